#include "base/math.h"
#include "base/status.h"

/* ln sum exp(logits), in double and in ascending order of the id */
static double log_sum(const float *logits, size_t n_vocab)
{
    float largest = logits[0];
    for (size_t i = 1; i < n_vocab; i++)
        largest = logits[i] > largest ? logits[i] : largest;
    double sum = 0.0;
    for (size_t i = 0; i < n_vocab; i++)
        sum += gs_exp64((double)logits[i] - (double)largest);
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
    if (token < 0 || (size_t)token >= n_vocab)
        return gs_fail(error, GS_INVALID_ARGUMENT, "token id %d is not in 0 ... %zu", (int)token,
                       n_vocab - 1);
    if (n_top > n_vocab)
        return gs_fail(error, GS_INVALID_ARGUMENT, "the %zu most likely of %zu tokens", n_top, n_vocab);
    for (size_t i = 0; i < n_vocab; i++)
        if (!__builtin_isfinite(logits[i]))
            return gs_fail(error, GS_NON_FINITE, "logit %zu is not a finite number", i);
    double total = log_sum(logits, n_vocab);
    *logprob = (float)((double)logits[token] - total);
    for (size_t i = 0; n_top > 0 && i < n_vocab; i++)
        insert(top, i, n_top, (int32_t)i, logits[i]);
    for (size_t i = 0; i < n_top; i++)
        top[i].logprob = (float)((double)top[i].logprob - total);
    return GS_OK;
}
