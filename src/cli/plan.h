/* The memory plan as commands show and apply it. */
#ifndef GS_CLI_PLAN_H
#define GS_CLI_PLAN_H

#include "engine/engine.h"

#include <jansson.h>

/* The plan of a context: of n_ctx tokens, or (0) of the largest that fits. Fits or not. */
gs_status gs_plan_make(const struct gs_engine *engine, int64_t n_ctx, struct gs_memory_plan *plan,
                       struct gs_error *error);

/* gs_plan_check of a context that was asked for: one that does not fit is bad input. */
gs_status gs_plan_require(const struct gs_memory_plan *plan, struct gs_error *error);

/* Its lines, each beginning with `indent`, without a newline at the end. */
struct gs_plan_text {
    char text[512];
};
struct gs_plan_text gs_plan_text(const struct gs_memory_plan *plan, const char *indent);

/* Its fields, as inspect --json has them; NULL if memory is out. */
json_t *gs_plan_json(const struct gs_memory_plan *plan);

#endif
