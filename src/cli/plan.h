/* The memory plan as commands show and apply it. */
#ifndef GS_CLI_PLAN_H
#define GS_CLI_PLAN_H

#include "engine/engine.h"

#include <jansson.h>

/* The plan of a context: of n_ctx tokens, or (0) of the largest that fits. Fits or not. */
gs_status gs_plan_make(const struct gs_engine *engine, int64_t n_ctx, struct gs_memory_plan *plan,
                       struct gs_error *error);

/*
 * The status of something that was asked for: no room for it is bad input, since a smaller context, another
 * precision or another backend mends it. Every other status is what it was.
 */
gs_status gs_plan_status(gs_status status);

/* gs_engine_open with a progress bar; gs_plan_status of weights that do not fit. */
gs_status gs_plan_open(const char *model, const struct gs_engine_options *options, struct gs_engine **engine,
                       struct gs_error *error);

/* gs_plan_check of a context that was asked for; gs_plan_status. */
gs_status gs_plan_require(const struct gs_memory_plan *plan, struct gs_error *error);

/* Its lines, each beginning with `indent`, without a newline at the end. */
struct gs_plan_text {
    char text[512];
};
struct gs_plan_text gs_plan_text(const struct gs_memory_plan *plan, const char *indent);

/* Its fields, as inspect --json has them; NULL if memory is out. */
json_t *gs_plan_json(const struct gs_memory_plan *plan);

#endif
