/*
 * Attention of one position, for the query heads that share a key and value head: a running softmax over
 * blocks of 64 keys, which begin at multiples of 64 whatever is visible of them. Queries and probabilities
 * are rounded to bfloat16; the sum of the softmax is that of the rounded probabilities.
 */
#include "backend/cpu/kernels/narrow.h"
#include "backend/cpu/kernels/variant.h"

#include <math.h>

#define BLOCK GS_FAST_KEY_BLOCK

#if defined(__AVX512BF16__)
#include "backend/cpu/kernels/attend_avx512.h"
#endif

struct softmax {
    float largest, sum;
};

/* scores [64] of the block at `begin` -> probabilities, rounded; out shrinks to the new maximum. */
static void update_softmax(const struct gs_fast_attention *a, int64_t begin, struct softmax *softmax,
                           float *scores, float *out)
{
    float largest = softmax->largest, sum = 0.0f;
    int64_t low = a->first > begin ? a->first - begin : 0;
    int64_t high = a->last - begin < BLOCK - 1 ? a->last - begin : BLOCK - 1;
    for (int64_t i = low; i <= high; i++)
        largest = scores[i] > largest ? scores[i] : largest;
    for (int64_t i = 0; i < BLOCK; i++) {
        float p = i >= low && i <= high ? expf(scores[i] - largest) : 0.0f;
        scores[i] = gs_bf16_float(gs_float_bf16(p));
        sum += scores[i];
    }
    float shrink = expf(softmax->largest - largest);
    for (int64_t j = 0; j < a->d_head; j++)
        out[j] *= shrink;
    softmax->sum = softmax->sum * shrink + sum;
    softmax->largest = largest;
}

/* 16 pairs of bfloat16, the first of each pair and the second, as float32. */
typedef float floats __attribute__((vector_size(64)));
typedef uint32_t words __attribute__((vector_size(64)));

static inline __attribute__((always_inline)) void load_pairs(const uint16_t *from, floats *first,
                                                             floats *second)
{
    words pairs;
    memcpy(&pairs, from, sizeof pairs);
    *first = (floats)(pairs << 16);
    *second = (floats)(pairs & 0xFFFF0000u);
}

static void add_block(const struct gs_fast_attention *a, int64_t begin, const float *query,
                      struct softmax *softmax, float *out)
{
    int64_t slot = begin % a->n_slot, d = a->d_head;
    float scores[BLOCK];
    for (int64_t i = 0; i < BLOCK; i += 16) {
        const uint16_t *keys = a->keys + (slot + i) * d;
        floats sums = {0};
        for (int64_t j = 0; j < d / 2; j++) {
            floats first, second;
            load_pairs(keys + j * 32, &first, &second);
            sums += query[2 * j] * first + query[2 * j + 1] * second;
        }
        sums *= a->scale;
        memcpy(scores + i, &sums, sizeof sums);
    }
    update_softmax(a, begin, softmax, scores, out);
    for (int64_t i = 0; i < BLOCK; i += 2) {
        const uint16_t *values = a->values + (slot + i) * d;
        int64_t j = 0;
        for (; j + 16 <= d; j += 16) {
            floats first, second, sums;
            load_pairs(values + 2 * j, &first, &second);
            memcpy(&sums, out + j, sizeof sums);
            sums += scores[i] * first + scores[i + 1] * second;
            memcpy(out + j, &sums, sizeof sums);
        }
        for (; j < d; j++)
            out[j] +=
                scores[i] * gs_bf16_float(values[2 * j]) + scores[i + 1] * gs_bf16_float(values[2 * j + 1]);
    }
}

static void attend_plainly(const struct gs_fast_attention *a)
{
    float *query = a->work;
    int64_t d = a->d_head;
    for (int64_t h = 0; h < a->n_head; h++) {
        struct softmax softmax = {a->sinks[h], 1.0f};
        float *out = a->out + h * d;
        for (int64_t j = 0; j < d; j++) {
            query[j] = gs_bf16_float(gs_float_bf16(a->query[h * d + j]));
            out[j] = 0.0f;
        }
        for (int64_t begin = a->first - a->first % BLOCK; begin <= a->last; begin += BLOCK)
            add_block(a, begin, query, &softmax, out);
        for (int64_t j = 0; j < d; j++)
            out[j] /= softmax.sum;
    }
}

void GS_VARIANT(gs_attend)(const struct gs_fast_attention *attention)
{
#if defined(__AVX512BF16__)
    if (attention->d_head == D_HEAD) {
        attend_wide(attention);
        return;
    }
#endif
    attend_plainly(attention);
}
