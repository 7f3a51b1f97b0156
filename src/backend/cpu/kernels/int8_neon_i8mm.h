/*
 * With NEON's matrix product of bytes: smmla multiplies two rows of eight by two vectors of eight, signed by
 * signed. Four of them are a block, whose sum is whole; it then meets both scales, row by vector, in a lane.
 *
 * One vector alone goes through sdot, four rows at a time: the same whole sums and the same float32
 * operations in the same order, so the same bits.
 */
#include "backend/cpu/kernels/narrow.h"

#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))
#define TILE   4 /* rows, and vectors, that one pass takes */

enum format { MXFP4, MXFP4_GGUF, Q8_0 };

struct row {
    const uint8_t *blocks;
    const uint8_t *scales; /* MXFP4 alone */
};

INLINE void load_block(enum format format, const struct row *row, size_t block, int8x16_t *first,
                       int8x16_t *second)
{
    static const int8_t doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    if (format == Q8_0) {
        *first = vld1q_s8((const int8_t *)row->blocks + block * 34 + 2);
        *second = vld1q_s8((const int8_t *)row->blocks + block * 34 + 18);
        return;
    }
    const int8x16_t values = vld1q_s8(doubled);
    uint8x16_t codes = vld1q_u8(format == MXFP4 ? row->blocks + block * 16 : row->blocks + block * 17 + 1);
    *first = vqtbl1q_s8(values, vandq_u8(codes, vdupq_n_u8(15)));
    *second = vqtbl1q_s8(values, vshrq_n_u8(codes, 4));
}

INLINE float block_scale(enum format format, const struct row *row, size_t block)
{
    if (format == Q8_0)
        return gs_half_float(gs_load_u16(row->blocks + block * 34));
    uint32_t byte = format == MXFP4 ? row->scales[block] : row->blocks[block * 17];
    return gs_bits_float(byte << 23);
}

/* ---------------------------------------------------------------- one vector */

/* out [4] = rows [4] . x, before the factor. */
INLINE float32x4_t dot_four(enum format format, const struct row *rows, size_t n_blocks,
                            const struct gs_q8_chunk *x)
{
    float32x4_t sum = vdupq_n_f32(0);
    for (size_t b = 0; b < n_blocks; b++) {
        const struct gs_q8_chunk *chunk = &x[b / 4];
        const int8_t *q = chunk->q + b % 4 * 16;
        int8x16_t x_first = vld1q_s8(q), x_second = vld1q_s8(q + GS_Q8_CHUNK / 2);
        int32x4_t dots[TILE];
        float scales[TILE];
        for (size_t r = 0; r < TILE; r++) {
            int8x16_t first, second;
            load_block(format, &rows[r], b, &first, &second);
            dots[r] = vdotq_s32(vdotq_s32(vdupq_n_s32(0), first, x_first), second, x_second);
            scales[r] = block_scale(format, &rows[r], b);
        }
        int32x4_t whole = vpaddq_s32(vpaddq_s32(dots[0], dots[1]), vpaddq_s32(dots[2], dots[3]));
        float32x4_t scale = vmulq_n_f32(vld1q_f32(scales), chunk->scale[b % 4 * 4]);
        sum = vfmaq_f32(sum, vcvtq_f32_s32(whole), scale);
    }
    return sum;
}

/* ---------------------------------------------------------------- several vectors */

/* A block of two rows, or of two vectors, as smmla takes it: eight of one, eight of the other. */
struct pair {
    int8x16_t parts[4];
};

INLINE struct pair interleave(int8x16_t a_first, int8x16_t a_second, int8x16_t b_first, int8x16_t b_second)
{
    int64x2_t a[2] = {vreinterpretq_s64_s8(a_first), vreinterpretq_s64_s8(a_second)};
    int64x2_t b[2] = {vreinterpretq_s64_s8(b_first), vreinterpretq_s64_s8(b_second)};
    struct pair out;
    for (size_t i = 0; i < 2; i++) {
        out.parts[2 * i] = vreinterpretq_s8_s64(vzip1q_s64(a[i], b[i]));
        out.parts[2 * i + 1] = vreinterpretq_s8_s64(vzip2q_s64(a[i], b[i]));
    }
    return out;
}

INLINE struct pair load_rows(enum format format, const struct row *rows, size_t block)
{
    int8x16_t first[2], second[2];
    for (size_t r = 0; r < 2; r++)
        load_block(format, &rows[r], block, &first[r], &second[r]);
    return interleave(first[0], second[0], first[1], second[1]);
}

INLINE struct pair load_vectors(const struct gs_q8_chunk *const *x, size_t block)
{
    size_t at = block % 4 * 16;
    const int8_t *a = x[0][block / 4].q + at, *b = x[1][block / 4].q + at;
    return interleave(vld1q_s8(a), vld1q_s8(a + GS_Q8_CHUNK / 2), vld1q_s8(b), vld1q_s8(b + GS_Q8_CHUNK / 2));
}

/* Scales of two rows by two vectors, in the order of smmla's lanes. */
INLINE float32x4_t pair_scales(const float rows[2], const struct gs_q8_chunk *const *x, size_t block)
{
    float32x2_t vectors = {x[0][block / 4].scale[block % 4 * 4], x[1][block / 4].scale[block % 4 * 4]};
    return vcombine_f32(vmul_n_f32(vectors, rows[0]), vmul_n_f32(vectors, rows[1]));
}

/* out[t][r] = rows[r] . x[t], TILE of each, before the factor. */
INLINE void dot_tile(enum format format, const struct row *rows, size_t n_blocks,
                     const struct gs_q8_chunk *const *x, float out[TILE][TILE])
{
    float32x4_t sums[2][2] = {{vdupq_n_f32(0), vdupq_n_f32(0)}, {vdupq_n_f32(0), vdupq_n_f32(0)}};
    for (size_t b = 0; b < n_blocks; b++) {
        struct pair vectors[2] = {load_vectors(x, b), load_vectors(x + 2, b)};
        for (size_t r = 0; r < 2; r++) {
            const struct row *two = rows + 2 * r;
            const struct pair weights = load_rows(format, two, b);
            const float scales[2] = {block_scale(format, &two[0], b), block_scale(format, &two[1], b)};
            for (size_t t = 0; t < 2; t++) {
                int32x4_t whole = vdupq_n_s32(0);
                for (size_t i = 0; i < 4; i++)
                    whole = vmmlaq_s32(whole, weights.parts[i], vectors[t].parts[i]);
                sums[r][t] = vfmaq_f32(sums[r][t], vcvtq_f32_s32(whole), pair_scales(scales, x + 2 * t, b));
            }
        }
    }
    for (size_t r = 0; r < 2; r++)
        for (size_t t = 0; t < 2; t++) {
            out[2 * t][2 * r] = vgetq_lane_f32(sums[r][t], 0);
            out[2 * t + 1][2 * r] = vgetq_lane_f32(sums[r][t], 1);
            out[2 * t][2 * r + 1] = vgetq_lane_f32(sums[r][t], 2);
            out[2 * t + 1][2 * r + 1] = vgetq_lane_f32(sums[r][t], 3);
        }
}

/* `rows` TILE of them, of which n_rows count. */
INLINE void multiply_rows(enum format format, const struct row *rows, size_t n_rows, size_t n,
                          const struct gs_q8_chunk *const *x, size_t n_x, float *out, size_t stride)
{
    const float factor = format == Q8_0 ? 1.0f : 0.5f;
    float sums[TILE][TILE];
    for (size_t t = 0; t < n_x; t += TILE) {
        size_t n_t = n_x - t < TILE ? n_x - t : TILE;
        if (n_t == 1) {
            vst1q_f32(sums[0], dot_four(format, rows, n / 32, x[t]));
        } else { /* past the last, the last again: its sums are not stored */
            const struct gs_q8_chunk *four[TILE];
            for (size_t i = 0; i < TILE; i++)
                four[i] = x[t + (i < n_t ? i : n_t - 1)];
            dot_tile(format, rows, n / 32, four, sums);
        }
        for (size_t i = 0; i < n_t; i++)
            for (size_t r = 0; r < n_rows; r++)
                out[(t + i) * stride + r] = factor * sums[i][r];
    }
}

void GS_VARIANT(gs_mxfp4_q8)(const struct gs_mxfp4_row *rows, size_t n_rows, size_t n,
                             const struct gs_q8_chunk *const *x, size_t n_x, void *work, float *out,
                             size_t stride)
{
    (void)work;
    for (size_t r = 0; r < n_rows; r += TILE) {
        struct row four[TILE];
        size_t n_r = n_rows - r < TILE ? n_rows - r : TILE;
        for (size_t i = 0; i < TILE; i++) {
            const struct gs_mxfp4_row *row = &rows[r + (i < n_r ? i : n_r - 1)];
            four[i] = (struct row){row->blocks, row->scales};
        }
        if (four[0].scales) /* rows of one matrix: of one format */
            multiply_rows(MXFP4, four, n_r, n, x, n_x, out + r, stride);
        else
            multiply_rows(MXFP4_GGUF, four, n_r, n, x, n_x, out + r, stride);
    }
}

void GS_VARIANT(gs_q8_0_q8)(const struct gs_q8_0_row *rows, size_t n_rows, size_t n,
                            const struct gs_q8_chunk *const *x, size_t n_x, void *work, float *out,
                            size_t stride)
{
    (void)work;
    for (size_t r = 0; r < n_rows; r += TILE) {
        struct row four[TILE];
        size_t n_r = n_rows - r < TILE ? n_rows - r : TILE;
        for (size_t i = 0; i < TILE; i++)
            four[i] = (struct row){rows[r + (i < n_r ? i : n_r - 1)].blocks, NULL};
        multiply_rows(Q8_0, four, n_r, n, x, n_x, out + r, stride);
    }
}
