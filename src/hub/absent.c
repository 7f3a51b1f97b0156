/* What pull.c is in a build without libcurl or libcrypto. */
#include "hub/pull.h"

#include "base/status.h"

bool gs_can_pull(void)
{
    return false;
}

struct gs_pull_options gs_pull_options_default(void)
{
    return (struct gs_pull_options){.n_connections = 1};
}

static gs_status fail_absent(struct gs_error *error)
{
    return gs_fail(error, GS_UNSUPPORTED,
                   "this build cannot fetch models: it was made without libcurl and libcrypto; install them "
                   "(scripts/setup.sh) and run make again");
}

gs_status gs_pull_plan_make(const struct gs_pull_options *options, const struct gs_hub_name *name,
                            struct gs_pull_plan *plan, struct gs_error *error)
{
    (void)options;
    (void)name;
    *plan = (struct gs_pull_plan){0};
    return fail_absent(error);
}

void gs_pull_plan_free(struct gs_pull_plan *plan)
{
    (void)plan;
}

gs_status gs_pull_run(struct gs_pull_plan *plan, struct gs_error *error)
{
    (void)plan;
    return fail_absent(error);
}
