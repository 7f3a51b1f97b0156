#include "backend/steps.h"

#include "base/status.h"

#include <stdlib.h>

gs_status gs_token_check(int32_t token, int64_t n_vocab, struct gs_error *error)
{
    if (token >= 0 && token < n_vocab)
        return GS_OK;
    return gs_fail(error, GS_INVALID_ARGUMENT, "token id %d is not in 0 ... %lld", (int)token,
                   (long long)n_vocab - 1);
}

gs_status gs_step_check(const struct gs_step *steps, size_t i, const struct gs_step_room *room,
                        struct gs_error *error)
{
    const struct gs_step *step = &steps[i];
    for (size_t j = 0; j < i; j++)
        if (steps[j].kv == step->kv)
            return gs_fail(error, GS_INVALID_ARGUMENT, "steps %zu and %zu have the same timeline", j, i);
    if (step->n_tokens == 0 || step->n_tokens > (size_t)(room->max_rows - room->n_rows))
        return gs_fail(error, GS_INVALID_ARGUMENT, "a forward takes 1 to %d tokens a step and in all",
                       (int)room->max_rows);
    int64_t left = room->capacity - room->length;
    if (step->n_tokens > (size_t)left)
        return gs_fail(error, GS_CONTEXT_FULL, "%zu tokens, but only %lld of %lld are left in the context",
                       step->n_tokens, (long long)left, (long long)room->capacity);
    gs_status status = GS_OK;
    for (size_t t = 0; status == GS_OK && t < step->n_tokens; t++)
        status = gs_token_check(step->tokens[t], room->n_vocab, error);
    return status;
}

gs_status gs_logits_reserve(float **logits, size_t *capacity, size_t n_rows, int64_t n_vocab,
                            struct gs_error *error)
{
    if (n_rows <= *capacity)
        return GS_OK;
    size_t bytes = n_rows * (size_t)n_vocab * sizeof(float);
    float *grown = realloc(*logits, bytes);
    if (!grown)
        return gs_fail_memory(error, bytes);
    *logits = grown;
    *capacity = n_rows;
    return GS_OK;
}

double gs_experts_expected(int64_t n_expert, int64_t n_active, int64_t n_rows)
{
    double missed = 1.0, share = (double)n_active / (double)n_expert;
    if (n_rows == 1)
        return (double)n_active;
    for (int64_t t = 0; t < n_rows && missed > 1e-9; t++)
        missed *= 1.0 - share;
    return (double)n_expert * (1.0 - missed);
}
