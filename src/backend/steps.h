/* What every backend checks of the steps of a forward, in the same words, and works out of them. */
#ifndef GS_BACKEND_STEPS_H
#define GS_BACKEND_STEPS_H

#include "backend/backend.h"

/* What a step has to fit into. */
struct gs_step_room {
    int64_t max_rows; /* of a forward */
    int64_t n_rows;   /* of the steps before */
    int64_t n_vocab;
    int64_t length, capacity; /* of its timeline */
};

/* Step i, with a timeline that none before it has. GS_INVALID_ARGUMENT, GS_CONTEXT_FULL. */
gs_status gs_step_check(const struct gs_step *steps, size_t i, const struct gs_step_room *room,
                        struct gs_error *error);

gs_status gs_token_check(int32_t token, int64_t n_vocab, struct gs_error *error);

/* Is something wanted of the step's row t? */
static inline bool gs_step_wants(const struct gs_step *step, size_t t)
{
    return step->want == GS_WANT_ALL || (step->want != GS_WANT_NONE && t + 1 == step->n_tokens);
}

/* Room for the logits of n_rows rows: *logits [*capacity][n_vocab] grows if need be. */
gs_status gs_logits_reserve(float **logits, size_t *capacity, size_t n_rows, int64_t n_vocab,
                            struct gs_error *error);

/*
 * Experts of a layer that a forward of n_rows rows reads: n_active for one row, for more what even routing
 * would give, where which they were stays on the device.
 */
double gs_experts_expected(int64_t n_expert, int64_t n_active, int64_t n_rows);

#endif
