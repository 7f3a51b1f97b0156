/*
 * Attention of one position over a span of keys, for the query heads that share a key and value head: a
 * running softmax over blocks of 64 keys, which begin at multiples of 64 whatever is visible of them. Queries
 * and probabilities are rounded to bfloat16; the sum of the softmax is that of the rounded probabilities.
 */
#include "backend/cpu/kernels/lanes.h"
#include "backend/cpu/kernels/narrow.h"
#include "backend/cpu/kernels/variant.h"

#include <math.h>

#define BLOCK GS_FAST_KEY_BLOCK
#define FEW   GS_FAST_HEADS_TOGETHER

/* What a span gives of a head. */
static void store_span(const struct gs_fast_attention *a, int64_t head, const float *out, float largest,
                       float sum)
{
    float *to = a->partial + head * (a->d_head + 2);
    memcpy(to, out, (size_t)a->d_head * sizeof *to);
    to[a->d_head] = largest;
    to[a->d_head + 1] = sum;
}

#if defined(__AVX512BF16__)
#include "backend/cpu/kernels/attend_avx512.h"
#endif

struct softmax {
    float largest, sum;
};

/* Four heads on their way over the blocks. */
struct few_heads {
    float scores[FEW][BLOCK]; /* then probabilities */
    struct softmax softmax[FEW];
    float *query; /* [FEW][d_head] */
    float *out;   /* [FEW][d_head] */
};

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#include "backend/cpu/kernels/attend_neon_bf16.h"
#else

/* 16-bit pairs as float32: the first of each, and the second. */
LANES_INLINE void load_pairs(const uint16_t *from, floats *first, floats *second)
{
    words pairs;
    memcpy(&pairs, from, sizeof pairs);
    *first = (floats)(pairs << 16);
    *second = (floats)(pairs & 0xFFFF0000u);
}

/* Two vectors of keys and FEW heads at a time. */
static void score_block(const struct gs_fast_attention *a, const uint16_t *keys, struct few_heads *heads)
{
    int64_t d = a->d_head;
    for (int64_t i = 0; i < BLOCK; i += 2 * LANES) {
        const uint16_t *from[2] = {keys + i / 16 * 16 * d + i % 16 * 2,
                                   keys + (i + LANES) / 16 * 16 * d + (i + LANES) % 16 * 2};
        floats sums[2][FEW] = {0};
        for (int64_t j = 0; j < d / 2; j++) {
            floats first[2], second[2];
            load_pairs(from[0] + j * 32, &first[0], &second[0]);
            load_pairs(from[1] + j * 32, &first[1], &second[1]);
#pragma GCC unroll 4
            for (int h = 0; h < FEW; h++) {
                floats q_first = same_floats(heads->query[h * d + 2 * j]);
                floats q_second = same_floats(heads->query[h * d + 2 * j + 1]);
                sums[0][h] = multiply_add(q_first, first[0], sums[0][h]);
                sums[1][h] = multiply_add(q_first, first[1], sums[1][h]);
                sums[0][h] = multiply_add(q_second, second[0], sums[0][h]);
                sums[1][h] = multiply_add(q_second, second[1], sums[1][h]);
            }
        }
#pragma GCC unroll 4
        for (int h = 0; h < FEW; h++) {
            store_floats(&heads->scores[h][i], sums[0][h] * a->scale);
            store_floats(&heads->scores[h][i + LANES], sums[1][h] * a->scale);
        }
    }
}

/* out += probabilities * values: a vector of values and FEW heads at a time. */
static void mix_block(const struct gs_fast_attention *a, const uint16_t *values, struct few_heads *heads)
{
    int64_t d = a->d_head, j = 0;
    for (; j + LANES <= d; j += LANES) {
        floats sums[FEW], others[FEW] = {0};
#pragma GCC unroll 4
        for (int h = 0; h < FEW; h++)
            sums[h] = load_floats(heads->out + h * d + j);
        for (int64_t i = 0; i < BLOCK; i += 2) {
            floats first, second;
            load_pairs(values + i * d + 2 * j, &first, &second);
#pragma GCC unroll 4
            for (int h = 0; h < FEW; h++) {
                sums[h] = multiply_add(same_floats(heads->scores[h][i]), first, sums[h]);
                others[h] = multiply_add(same_floats(heads->scores[h][i + 1]), second, others[h]);
            }
        }
#pragma GCC unroll 4
        for (int h = 0; h < FEW; h++)
            store_floats(heads->out + h * d + j, sums[h] + others[h]);
    }
    for (; j < d; j++)
        for (int h = 0; h < FEW; h++)
            for (int64_t i = 0; i < BLOCK; i += 2)
                heads->out[h * d + j] += heads->scores[h][i] * gs_bf16_float(values[i * d + 2 * j]) +
                                         heads->scores[h][i + 1] * gs_bf16_float(values[i * d + 2 * j + 1]);
}

#endif

/* Of non-negative numbers; a NaN stays. */
LANES_INLINE floats round_to_bf16(floats p)
{
    words bits = (words)p;
    return (floats)((bits + 0x7FFFu + (bits >> 16 & 1)) & 0xFFFF0000u);
}

/* scores [64] of the block at `begin` -> probabilities, rounded; out shrinks to the new maximum. */
static void weigh_block(const struct gs_fast_attention *a, int64_t begin, struct softmax *softmax,
                        float *scores, float *out)
{
    float largest = softmax->largest;
    int64_t low = a->first > begin ? a->first - begin : 0;
    int64_t high = a->last - begin < BLOCK - 1 ? a->last - begin : BLOCK - 1;
    for (int64_t i = low; i <= high; i++)
        largest = scores[i] > largest ? scores[i] : largest;
    if (largest > softmax->largest) {
        floats shrink = exp_floats(same_floats(softmax->largest - largest));
        for (int64_t j = 0; j < a->d_head; j++)
            out[j] *= shrink[0];
        softmax->sum *= shrink[0];
        softmax->largest = largest;
    }
    floats sums = {0};
    ints place = {0};
    for (int i = 0; i < LANES; i++)
        place[i] = i;
    for (int i = 0; i < BLOCK; i += LANES, place += LANES) {
        floats p = round_to_bf16(exp_floats(load_floats(scores + i) - largest));
        p = select_floats((place >= (int32_t)low) & (place <= (int32_t)high), p, (floats){0});
        store_floats(scores + i, p);
        sums += p;
    }
    for (int i = 0; i < LANES; i++)
        softmax->sum += sums[i];
}

/* For every set and every length of heads; products and sums in float32 unless the set has its own. */
static void attend_plainly(const struct gs_fast_attention *a)
{
    int64_t d = a->d_head;
    struct few_heads heads = {.query = a->work, .out = (float *)a->work + FEW * d};
    for (int64_t first = 0; first < a->n_head; first += FEW) {
        int64_t n = a->n_head - first < FEW ? a->n_head - first : FEW;
        memset(a->work, 0, (size_t)(2 * FEW * d) * sizeof(float));
        for (int64_t i = 0; i < n * d; i++)
            heads.query[i] = gs_bf16_float(gs_float_bf16(a->query[first * d + i]));
        for (int64_t h = 0; h < FEW; h++)
            heads.softmax[h] = (struct softmax){-INFINITY, 0.0f};
        for (int64_t begin = a->first - a->first % BLOCK; begin <= a->last; begin += BLOCK) {
            int64_t slot = begin % a->n_slot;
            score_block(a, a->keys + slot * d, &heads);
            for (int64_t h = 0; h < FEW; h++)
                weigh_block(a, begin, &heads.softmax[h], heads.scores[h], heads.out + h * d);
            mix_block(a, a->values + slot * d, &heads);
        }
        for (int64_t h = 0; h < n; h++)
            store_span(a, first + h, heads.out + h * d, heads.softmax[h].largest, heads.softmax[h].sum);
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

/* Each span's part weighs e^(its largest score - the largest of all). */
static void merge_head(const struct gs_fast_attention *a, int64_t h, int64_t n_spans)
{
    int64_t d = a->d_head, stride = a->n_head * (d + 2);
    const float *parts = a->partial + h * (d + 2);
    float largest = a->sinks[h], weights[GS_FAST_SPANS], *out = a->out + h * d;
    for (int64_t s = 0; s < n_spans; s++)
        largest = parts[s * stride + d] > largest ? parts[s * stride + d] : largest;
    float sum = exp_floats(same_floats(a->sinks[h] - largest))[0];
    for (int64_t s = 0; s < n_spans; s++) {
        weights[s] = exp_floats(same_floats(parts[s * stride + d] - largest))[0];
        sum += weights[s] * parts[s * stride + d + 1];
    }
    int64_t j = 0;
    for (; j + LANES <= d; j += LANES) {
        floats total = {0};
        for (int64_t s = 0; s < n_spans; s++)
            total = multiply_add(same_floats(weights[s]), load_floats(parts + s * stride + j), total);
        store_floats(out + j, total / sum);
    }
    for (; j < d; j++) {
        float total = 0.0f;
        for (int64_t s = 0; s < n_spans; s++)
            total += weights[s] * parts[s * stride + j];
        out[j] = total / sum;
    }
}

void GS_VARIANT(gs_merge_spans)(const struct gs_fast_attention *attention, int64_t n_spans)
{
    for (int64_t h = 0; h < attention->n_head; h++)
        merge_head(attention, h, n_spans);
}
