#include "base/math.h"
#include "base/status.h"
#include "engine/row.h"

#define PIECE 512 /* values */

/* ln sum exp(logits), in double and in ascending order of the id */
static double log_sum(const float *logits, size_t n_vocab, float largest)
{
    double weights[PIECE], sums[PIECE / GS_ROW_BLOCK], sum = 0.0;
    for (size_t at = 0; at < n_vocab; at += PIECE) {
        size_t n = n_vocab - at < PIECE ? n_vocab - at : PIECE;
        gs_row_weights(logits + at, n, NULL, (double)largest, 1.0, weights, sums);
        for (size_t i = 0; i < n; i++)
            sum += weights[i];
    }
    return (double)largest + gs_log64(sum);
}

/* Inserts into the list of the best n so far; equal logits keep the lower id first. */
static void insert(struct gs_logprob *top, size_t n, size_t n_top, int32_t id, float logit)
{
    size_t at = n < n_top ? n : n_top - 1;
    if (n >= n_top && top[at].logprob >= logit)
        return;
    for (; at > 0 && top[at - 1].logprob < logit; at--)
        top[at] = top[at - 1];
    top[at] = (struct gs_logprob){id, logit};
}

gs_status gs_logprobs(const float *logits, size_t n_vocab, int32_t token, float *logprob,
                      struct gs_logprob *top, size_t n_top, struct gs_error *error)
{
    int32_t best;
    if (token < 0 || (size_t)token >= n_vocab)
        return gs_fail(error, GS_INVALID_ARGUMENT, "token id %d is not in 0 ... %zu", (int)token,
                       n_vocab - 1);
    if (n_top > n_vocab)
        return gs_fail(error, GS_INVALID_ARGUMENT, "the %zu most likely of %zu tokens", n_top, n_vocab);
    if (!gs_row_best(logits, n_vocab, NULL, &best)) {
        size_t i = 0;
        while (i + 1 < n_vocab && __builtin_isfinite(logits[i]))
            i++;
        return gs_fail(error, GS_NON_FINITE, "logit %zu is not a finite number", i);
    }
    double total = log_sum(logits, n_vocab, logits[best]);
    *logprob = (float)((double)logits[token] - total);
    for (size_t i = 0; n_top > 0 && i < n_vocab; i++)
        insert(top, i, n_top, (int32_t)i, logits[i]);
    for (size_t i = 0; i < n_top; i++)
        top[i].logprob = (float)((double)top[i].logprob - total);
    return GS_OK;
}
