/*
 * Scores and mixtures with NEON's dot product of bfloat16 pairs: keys and values lie in pairs, so a register
 * is four of them, and meets FEW heads. Queries and probabilities are float32 that bfloat16 holds.
 */
#include <arm_neon.h>

#define PAIRS 4 /* of a register */

/* Two floats as bfloat16, four times: of each the upper half of its bits. */
LANES_INLINE bfloat16x8_t repeat_pair(const float *from)
{
    uint16x4_t halves = vreinterpret_u16_f32(vld1_f32(from));
    return vreinterpretq_bf16_u32(vdupq_lane_u32(vreinterpret_u32_u16(vuzp2_u16(halves, halves)), 0));
}

LANES_INLINE bfloat16x8_t load_pairs(const uint16_t *from)
{
    return vreinterpretq_bf16_u16(vld1q_u16(from));
}

/* 16 keys at a time. */
static void score_block(const struct gs_fast_attention *a, const uint16_t *keys, struct few_heads *heads)
{
    int64_t d = a->d_head;
    for (int64_t i = 0; i < BLOCK; i += 16) {
        float32x4_t sums[FEW][4];
        for (int h = 0; h < FEW; h++)
            for (int k = 0; k < 4; k++)
                sums[h][k] = vdupq_n_f32(0);
        for (int64_t j = 0; j < d / 2; j++) {
            bfloat16x8_t pairs[4];
            for (int k = 0; k < 4; k++)
                pairs[k] = load_pairs(keys + i * d + j * 32 + k * 2 * PAIRS);
#pragma GCC unroll 4
            for (int h = 0; h < FEW; h++) {
                bfloat16x8_t query = repeat_pair(heads->query + h * d + 2 * j);
#pragma GCC unroll 4
                for (int k = 0; k < 4; k++)
                    sums[h][k] = vbfdotq_f32(sums[h][k], pairs[k], query);
            }
        }
        for (int h = 0; h < FEW; h++)
            for (int k = 0; k < 4; k++)
                vst1q_f32(&heads->scores[h][i + PAIRS * k], vmulq_n_f32(sums[h][k], a->scale));
    }
}

/* out[j ...] of 4 * n_register elements (n_register a constant) += probabilities * values. */
LANES_INLINE void mix_elements(const struct gs_fast_attention *a, const uint16_t *values,
                               struct few_heads *heads, int64_t j, int n_register)
{
    int64_t d = a->d_head;
    float32x4_t sums[FEW][4];
    for (int h = 0; h < FEW; h++)
        for (int k = 0; k < n_register; k++)
            sums[h][k] = vld1q_f32(heads->out + h * d + j + PAIRS * k);
    for (int64_t i = 0; i < BLOCK; i += 2) {
        bfloat16x8_t pairs[4];
        for (int k = 0; k < n_register; k++)
            pairs[k] = load_pairs(values + i * d + 2 * j + k * 2 * PAIRS);
#pragma GCC unroll 4
        for (int h = 0; h < FEW; h++) {
            bfloat16x8_t weight = repeat_pair(&heads->scores[h][i]);
#pragma GCC unroll 4
            for (int k = 0; k < n_register; k++)
                sums[h][k] = vbfdotq_f32(sums[h][k], pairs[k], weight);
        }
    }
    for (int h = 0; h < FEW; h++)
        for (int k = 0; k < n_register; k++)
            vst1q_f32(heads->out + h * d + j + PAIRS * k, sums[h][k]);
}

static void mix_block(const struct gs_fast_attention *a, const uint16_t *values, struct few_heads *heads)
{
    int64_t d = a->d_head, j = 0;
    for (; j + 4 * PAIRS <= d; j += 4 * PAIRS)
        mix_elements(a, values, heads, j, 4);
    for (; j + PAIRS <= d; j += PAIRS)
        mix_elements(a, values, heads, j, 1);
    for (; j < d; j++)
        for (int h = 0; h < FEW; h++)
            for (int64_t i = 0; i < BLOCK; i += 2)
                heads->out[h * d + j] += heads->scores[h][i] * gs_bf16_float(values[i * d + 2 * j]) +
                                         heads->scores[h][i + 1] * gs_bf16_float(values[i * d + 2 * j + 1]);
}
