/*
 * With NEON's dot product, signed by signed: no shift. Two registers of 16 weights are a block; a row's four
 * lanes are added at its end.
 */
#include "backend/cpu/kernels/narrow.h"

#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))

enum format { MXFP4, MXFP4_GGUF, Q8_0 };

INLINE void load_block(enum format format, const uint8_t *blocks, size_t block, int8x16_t *first,
                       int8x16_t *second)
{
    static const int8_t doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    if (format == Q8_0) {
        *first = vld1q_s8((const int8_t *)blocks + block * 34 + 2);
        *second = vld1q_s8((const int8_t *)blocks + block * 34 + 18);
        return;
    }
    const int8x16_t values = vld1q_s8(doubled);
    uint8x16_t codes = vld1q_u8(format == MXFP4 ? blocks + block * 16 : blocks + block * 17 + 1);
    *first = vqtbl1q_s8(values, vandq_u8(codes, vdupq_n_u8(15)));
    *second = vqtbl1q_s8(values, vshrq_n_u8(codes, 4));
}

INLINE float block_scale(enum format format, const uint8_t *blocks, const uint8_t *scales, size_t block)
{
    if (format == Q8_0)
        return gs_half_float(gs_load_u16(blocks + block * 34));
    uint32_t byte = format == MXFP4 ? scales[block] : blocks[block * 17];
    return gs_bits_float(byte << 23);
}

/* n_x (1 or 4, a constant) vectors share what is unpacked. */
INLINE void dot_batch(enum format format, const uint8_t *blocks, const uint8_t *scales, size_t n_blocks,
                      const struct gs_q8_chunk *const *x, size_t n_x, float *out, size_t stride)
{
    float32x4_t sums[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
    for (size_t b = 0; b < n_blocks; b++) {
        int8x16_t first, second;
        load_block(format, blocks, b, &first, &second);
        float scale = block_scale(format, blocks, scales, b);
        for (size_t t = 0; t < n_x; t++) {
            const struct gs_q8_chunk *chunk = &x[t][b / 4];
            const int8_t *q = chunk->q + b % 4 * 16;
            int32x4_t dots = vdotq_s32(vdupq_n_s32(0), first, vld1q_s8(q));
            dots = vdotq_s32(dots, second, vld1q_s8(q + GS_Q8_CHUNK / 2));
            sums[t] = vfmaq_n_f32(sums[t], vcvtq_f32_s32(dots), scale * chunk->scale[b % 4 * 4]);
        }
    }
    for (size_t t = 0; t < n_x; t++)
        out[t * stride] = vaddvq_f32(sums[t]) * (format == Q8_0 ? 1.0f : 0.5f);
}

INLINE void multiply_row(enum format format, const uint8_t *blocks, const uint8_t *scales, size_t n,
                         const struct gs_q8_chunk *const *x, size_t n_x, float *out, size_t stride)
{
    size_t t = 0;
    for (; t + 4 <= n_x; t += 4)
        dot_batch(format, blocks, scales, n / 32, x + t, 4, out + t * stride, stride);
    for (; t < n_x; t++)
        dot_batch(format, blocks, scales, n / 32, x + t, 1, out + t * stride, stride);
}

void GS_VARIANT(gs_mxfp4_q8)(const struct gs_mxfp4_row *rows, size_t n_rows, size_t n,
                             const struct gs_q8_chunk *const *x, size_t n_x, void *work, float *out,
                             size_t stride)
{
    (void)work;
    for (size_t r = 0; r < n_rows; r++)
        if (rows[r].scales)
            multiply_row(MXFP4, rows[r].blocks, rows[r].scales, n, x, n_x, out + r, stride);
        else
            multiply_row(MXFP4_GGUF, rows[r].blocks, NULL, n, x, n_x, out + r, stride);
}

void GS_VARIANT(gs_q8_0_q8)(const struct gs_q8_0_row *rows, size_t n_rows, size_t n,
                            const struct gs_q8_chunk *const *x, size_t n_x, void *work, float *out,
                            size_t stride)
{
    (void)work;
    for (size_t r = 0; r < n_rows; r++)
        multiply_row(Q8_0, rows[r].blocks, NULL, n, x, n_x, out + r, stride);
}
