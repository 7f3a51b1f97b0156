/* With NEON: both widened to float32, a fused multiply-add each. Four rows at a time against one or two
 * vectors. */
#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))
#define STEP   8 /* elements of a register */

INLINE uint16x8_t load_bf16(const void *from, size_t n_left)
{
    uint16_t values[STEP] = {0};
    if (n_left >= STEP)
        return vreinterpretq_u16_u8(vld1q_u8(from));
    memcpy(values, from, n_left * sizeof *values);
    return vld1q_u16(values);
}

/* Elements 0 to 3, and 4 to 7. */
INLINE void widen(uint16x8_t bits, float32x4_t out[2])
{
    out[0] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(bits), 16));
    out[1] = vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(bits), 16));
}

/* 4 rows by n_x (1 or 2, a constant) vectors. */
INLINE void multiply_batch(const unsigned char *const rows[4], size_t n, const uint16_t *const *x, size_t n_x,
                           float out[2][4])
{
    float32x4_t sums[2][4][2];
    for (size_t t = 0; t < 2; t++)
        for (size_t r = 0; r < 4; r++)
            sums[t][r][0] = sums[t][r][1] = vdupq_n_f32(0);
    for (size_t i = 0; i < n; i += STEP) {
        float32x4_t values[2][2];
        for (size_t t = 0; t < n_x; t++)
            widen(load_bf16(x[t] + i, n - i), values[t]);
        for (size_t r = 0; r < 4; r++) {
            float32x4_t weights[2];
            widen(load_bf16(rows[r] + 2 * i, n - i), weights);
            for (size_t t = 0; t < n_x; t++) {
                sums[t][r][0] = vfmaq_f32(sums[t][r][0], weights[0], values[t][0]);
                sums[t][r][1] = vfmaq_f32(sums[t][r][1], weights[1], values[t][1]);
            }
        }
    }
    for (size_t t = 0; t < n_x; t++)
        for (size_t r = 0; r < 4; r++)
            out[t][r] = vaddvq_f32(vaddq_f32(sums[t][r][0], sums[t][r][1]));
}

void GS_VARIANT(gs_bf16_bf16)(const struct gs_bf16_rows *rows, size_t n_rows, size_t n,
                              const uint16_t *const *x, size_t n_x, void *work, float *out, size_t stride)
{
    (void)work;
    for (size_t t = 0; t < n_x; t += 2)
        for (size_t r = 0; r < n_rows; r += 4) {
            const unsigned char *four[4];
            float sums[2][4];
            size_t n_t = n_x - t < 2 ? 1 : 2;
            for (size_t i = 0; i < 4; i++)
                four[i] = rows->data + (r + i < n_rows ? r + i : n_rows - 1) * n * 2;
            if (n_t == 2)
                multiply_batch(four, n, x + t, 2, sums);
            else
                multiply_batch(four, n, x + t, 1, sums);
            for (size_t j = 0; j < n_t; j++)
                for (size_t i = 0; i < 4 && r + i < n_rows; i++)
                    out[(t + j) * stride + r + i] = sums[j][i];
        }
}
