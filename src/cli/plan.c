#include "cli/plan.h"

#include "cli/progress.h"
#include "cli/report.h"

#include <stdio.h>

gs_status gs_plan_status(gs_status status)
{
    return status == GS_OUT_OF_MEMORY ? GS_INVALID_ARGUMENT : status;
}

gs_status gs_plan_open(const char *model, const struct gs_engine_options *options, struct gs_engine **engine,
                       struct gs_error *error)
{
    struct gs_progress progress;
    struct gs_engine_options telling = *options;
    telling.progress = gs_progress_update;
    telling.progress_user = &progress;
    gs_progress_begin(&progress, "loading", true, 0);
    gs_status status = gs_engine_open(model, &telling, engine, error);
    gs_progress_end(&progress);
    return gs_plan_status(status);
}

gs_status gs_plan_make(const struct gs_engine *engine, int64_t n_ctx, struct gs_memory_plan *plan,
                       struct gs_error *error)
{
    if (n_ctx > 0)
        return gs_engine_plan(engine, n_ctx, plan, error);
    int64_t most = gs_engine_info(engine)->max_ctx;
    gs_status status = gs_engine_plan(engine, most, plan, error);
    if (status == GS_OK && plan->largest_n_ctx < most)
        status = gs_engine_plan(engine, plan->largest_n_ctx > 0 ? plan->largest_n_ctx : 1, plan, error);
    return status;
}

gs_status gs_plan_require(const struct gs_memory_plan *plan, struct gs_error *error)
{
    return gs_plan_status(gs_plan_check(plan, error));
}

struct gs_plan_text gs_plan_text(const struct gs_memory_plan *plan, const char *indent)
{
    struct gs_plan_text out;
    char free_text[96] = "unknown";
    if (plan->available_bytes > 0)
        snprintf(free_text, sizeof free_text, "%s (room for a context of up to %lld tokens)",
                 gs_size_text(plan->available_bytes).text, (long long)plan->largest_n_ctx);
    snprintf(out.text, sizeof out.text,
             "%sweights  %s, mapped from the files\n"
             "%scache    %s for a context of %lld tokens\n"
             "%sscratch  %s\n"
             "%sfree     %s",
             indent, gs_size_text(plan->weight_bytes).text, indent, gs_size_text(plan->kv_bytes).text,
             (long long)plan->n_ctx, indent, gs_size_text(plan->scratch_bytes).text, indent, free_text);
    return out;
}

json_t *gs_plan_json(const struct gs_memory_plan *plan)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "n_ctx", (json_int_t)plan->n_ctx, "weight_bytes",
                     (json_int_t)plan->weight_bytes, "kv_bytes", (json_int_t)plan->kv_bytes, "scratch_bytes",
                     (json_int_t)plan->scratch_bytes, "available_bytes", (json_int_t)plan->available_bytes,
                     "largest_n_ctx", (json_int_t)plan->largest_n_ctx);
}
