/*
 * With NEON's matrix product of bfloat16: bfmmla multiplies two rows of four by two vectors of four. Its sums
 * are float32, rounded as the instruction does it, which is not quite as an addition does. Four rows at a
 * time against one or two pairs of vectors; a vector alone is its own pair, and so has the same bits.
 */
#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))
#define STEP   8 /* elements of a register */

INLINE uint64x2_t load_bf16(const void *from, size_t n_left)
{
    uint16_t values[STEP] = {0};
    if (n_left >= STEP)
        return vreinterpretq_u64_u8(vld1q_u8(from));
    memcpy(values, from, n_left * sizeof *values);
    return vreinterpretq_u64_u16(vld1q_u16(values));
}

/* Elements 0 to 3 of both, and 4 to 7 of both. */
INLINE void interleave(uint64x2_t a, uint64x2_t b, bfloat16x8_t out[2])
{
    out[0] = vreinterpretq_bf16_u64(vzip1q_u64(a, b));
    out[1] = vreinterpretq_bf16_u64(vzip2q_u64(a, b));
}

/* out[t][r] of 4 rows by n_pairs (1 or 2, a constant) pairs of vectors. */
INLINE void multiply_batch(const unsigned char *const rows[4], size_t n, const uint16_t *const *x,
                           size_t n_pairs, float out[4][4])
{
    float32x4_t sums[2][2][2]; /* [pair of rows][pair of vectors][half] */
    for (size_t r = 0; r < 2; r++)
        for (size_t t = 0; t < 2; t++)
            sums[r][t][0] = sums[r][t][1] = vdupq_n_f32(0);
    for (size_t i = 0; i < n; i += STEP) {
        bfloat16x8_t vectors[2][2];
        for (size_t t = 0; t < n_pairs; t++)
            interleave(load_bf16(x[2 * t] + i, n - i), load_bf16(x[2 * t + 1] + i, n - i), vectors[t]);
        for (size_t r = 0; r < 2; r++) {
            bfloat16x8_t weights[2];
            interleave(load_bf16(rows[2 * r] + 2 * i, n - i), load_bf16(rows[2 * r + 1] + 2 * i, n - i),
                       weights);
            for (size_t t = 0; t < n_pairs; t++)
                for (size_t half = 0; half < 2; half++)
                    sums[r][t][half] = vbfmmlaq_f32(sums[r][t][half], weights[half], vectors[t][half]);
        }
    }
    for (size_t r = 0; r < 2; r++)
        for (size_t t = 0; t < n_pairs; t++) {
            float32x4_t sum = vaddq_f32(sums[r][t][0], sums[r][t][1]);
            out[2 * t][2 * r] = vgetq_lane_f32(sum, 0);
            out[2 * t + 1][2 * r] = vgetq_lane_f32(sum, 1);
            out[2 * t][2 * r + 1] = vgetq_lane_f32(sum, 2);
            out[2 * t + 1][2 * r + 1] = vgetq_lane_f32(sum, 3);
        }
}

void GS_VARIANT(gs_bf16_bf16)(const struct gs_bf16_rows *rows, size_t n_rows, size_t n,
                              const uint16_t *const *x, size_t n_x, void *work, float *out, size_t stride,
                              bool same_x)
{
    (void)same_x;
    (void)work;
    for (size_t t = 0; t < n_x; t += 4)
        for (size_t r = 0; r < n_rows; r += 4) {
            const unsigned char *weights[4];
            const uint16_t *vectors[4];
            float sums[4][4];
            size_t n_t = n_x - t < 4 ? n_x - t : 4;
            for (size_t i = 0; i < 4; i++) { /* past the last, the last again: its sums are not stored */
                weights[i] = rows->data + (r + i < n_rows ? r + i : n_rows - 1) * n * 2;
                vectors[i] = x[t + (i < n_t ? i : n_t - 1)];
            }
            if (n_t > 2)
                multiply_batch(weights, n, vectors, 2, sums);
            else
                multiply_batch(weights, n, vectors, 1, sums);
            for (size_t j = 0; j < n_t; j++)
                for (size_t i = 0; i < 4 && r + i < n_rows; i++)
                    out[(t + j) * stride + r + i] = sums[j][i];
        }
}
