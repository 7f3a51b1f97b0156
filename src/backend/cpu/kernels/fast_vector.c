/* Row by row: quantising, rounding, the norm and the activation. */
#include "backend/cpu/kernels/lanes.h"
#include "backend/cpu/kernels/narrow.h"
#include "backend/cpu/kernels/variant.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define PARTS (32 / LANES) /* vectors of a block */

#if LANES == 4
typedef int8_t bytes_of_lanes __attribute__((vector_size(LANES)));
#endif
typedef uint16_t halves_of_lanes __attribute__((vector_size(2 * LANES)));

/* Nearest even of |x| < 2^22: the magic constant leaves no room for a fraction. */
LANES_INLINE ints round_even(floats x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23 */
    return (ints)(x + magic) - 0x4B400000;
}

/* The largest of 32 magnitudes, compared as bits: a NaN is the largest of all. */
LANES_INLINE float largest_of(const floats x[PARTS])
{
    ints most = (ints)x[0] & 0x7FFFFFFF;
    for (int i = 1; i < PARTS; i++)
        most = larger_ints(most, (ints)x[i] & 0x7FFFFFFF);
    return gs_bits_float((uint32_t)largest_lane(most));
}

/* The 32 values of a block, each within a byte, in order. */
LANES_INLINE void pack_block(const ints q[PARTS], int8_t *to)
{
#if LANES == 16
    __m256i bytes = _mm256_castsi128_si256(_mm512_cvtepi32_epi8((__m512i)q[0]));
    bytes = _mm256_inserti128_si256(bytes, _mm512_cvtepi32_epi8((__m512i)q[1]), 1);
    _mm256_storeu_si256((void *)to, bytes);
#elif LANES == 8
    __m256i low = _mm256_packs_epi32((__m256i)q[0], (__m256i)q[1]);
    __m256i high = _mm256_packs_epi32((__m256i)q[2], (__m256i)q[3]);
    __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); /* packing stays within halves */
    _mm256_storeu_si256((void *)to, _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order));
#else
    for (int i = 0; i < PARTS; i++) {
        bytes_of_lanes bytes = __builtin_convertvector(q[i], bytes_of_lanes);
        memcpy(to + i * LANES, &bytes, sizeof bytes);
    }
#endif
}

/* Even elements to `first`, odd ones to `second`. */
LANES_INLINE void part_pairs(const int8_t *q, int8_t *first, int8_t *second)
{
#if defined(__AVX2__)
    const __m256i parted =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    __m256i bytes = _mm256_shuffle_epi8(_mm256_loadu_si256((const void *)q), parted);
    bytes = _mm256_permute4x64_epi64(bytes, 0xD8);
    _mm_storeu_si128((void *)first, _mm256_castsi256_si128(bytes));
    _mm_storeu_si128((void *)second, _mm256_extracti128_si256(bytes, 1));
#else
    for (int i = 0; i < 16; i++) {
        first[i] = q[2 * i];
        second[i] = q[2 * i + 1];
    }
#endif
}

LANES_INLINE void quantize_block(const floats x[PARTS], enum gs_q8_order order, struct gs_q8_chunk *out,
                                 size_t block)
{
    ints q[PARTS], sum = {0};
    float m = largest_of(x), inverse = 0.0f, scale = 0.0f;
    if (m >= 0x1p-100f && m <= FLT_MAX) { /* what is smaller is zero: its inverse could overflow */
        inverse = 127.0f / m;
        scale = m / 127.0f;
    } else if (!(m < 1.0f)) {
        scale = NAN; /* an infinity or a NaN shows in the logits */
    }
    for (int i = 0; i < PARTS; i++) {
        q[i] = inverse > 0.0f ? round_even(x[i] * inverse) : (ints){0};
        sum += q[i];
    }
    int8_t bytes[32], *first = out->q + block * 16, *second = first + GS_Q8_CHUNK / 2;
    pack_block(q, bytes);
    if (order == GS_Q8_PAIRS) {
        part_pairs(bytes, first, second);
    } else {
        memcpy(first, bytes, 16);
        memcpy(second, bytes + 16, 16);
    }
    int32_t total = sum_lanes(sum);
    for (size_t i = block * 4; i < block * 4 + 4; i++) {
        out->scale[i] = scale;
        out->sum[i] = total;
    }
}

void GS_VARIANT(gs_quantize_q8)(const float *x, size_t n, enum gs_q8_order order, struct gs_q8_chunk *out)
{
    size_t n_blocks = n / 32;
    for (size_t b = 0; b < n_blocks; b++) {
        if (b % 4 == 0 && b + 4 > n_blocks)
            memset(&out[b / 4], 0, sizeof *out);
        floats values[PARTS];
        for (int i = 0; i < PARTS; i++)
            values[i] = load_floats(x + b * 32 + (size_t)(i * LANES));
        quantize_block(values, order, &out[b / 4], b % 4);
    }
}

#define HALF_NAN 0x7E00

void GS_VARIANT(gs_quantize_q8_0)(const float *x, size_t n, uint8_t *blocks)
{
    for (size_t b = 0; b < n / 32; b++, x += 32, blocks += 34) {
        floats values[PARTS];
        for (int i = 0; i < PARTS; i++)
            values[i] = load_floats(x + i * LANES);
        float m = largest_of(values);
        /* What a half cannot hold: weights are far from it; the largest is then kept as the largest half. An
         * infinity or a NaN shows in the logits. */
        uint16_t half = gs_float_half(m / 127.0f < 65504.0f ? m / 127.0f : 65504.0f);
        half = m <= FLT_MAX ? half : HALF_NAN;
        float scale = gs_half_float(half), inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
        memcpy(blocks, &half, sizeof half);
        ints q[PARTS];
        for (int i = 0; i < PARTS; i++) {
            floats value = smaller_floats(same_floats(127.0f), values[i] * inverse);
            q[i] = round_even(larger_floats(same_floats(-127.0f), value));
        }
        pack_block(q, (int8_t *)blocks + 2);
    }
}

void GS_VARIANT(gs_round_bf16)(const float *x, size_t n, uint16_t *out)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        words bits = (words)load_floats(x + i);
        words rounded = (bits + 0x7FFFu + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
        words is_nan = (words)((bits & 0x7FFFFFFFu) > 0x7F800000u);
        words kept = (is_nan & quiet) | (~is_nan & rounded);
        halves_of_lanes halves = __builtin_convertvector(kept, halves_of_lanes);
        memcpy(out + i, &halves, sizeof halves);
    }
    for (; i < n; i++)
        out[i] = gs_float_bf16(x[i]);
}

void GS_VARIANT(gs_rms_norm)(const float *x, const float *w, size_t n, float eps, float *y)
{
    float sum;
    GS_VARIANT(gs_dot)(x, &x, 1, n, &sum);
    float scale = 1.0f / sqrtf(sum / (float)n + eps);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store_floats(y + i, load_floats(w + i) * (load_floats(x + i) * scale));
    for (; i < n; i++)
        y[i] = w[i] * (x[i] * scale);
}

LANES_INLINE floats activate(floats gate, floats up, float limit, float alpha)
{
    gate = smaller_floats(same_floats(limit), gate);
    up = larger_floats(same_floats(-limit), smaller_floats(same_floats(limit), up));
    return (up + 1.0f) * (gate / (1.0f + exp_floats(-(gate * alpha))));
}

void GS_VARIANT(gs_swiglu)(const float *gate_up, size_t n, float limit, float alpha, float *out)
{
    size_t u = 0;
    for (; u + LANES <= n; u += LANES) {
        floats low = load_floats(gate_up + 2 * u), high = load_floats(gate_up + 2 * u + LANES);
        store_floats(out + u, activate(EVEN_LANES(low, high), ODD_LANES(low, high), limit, alpha));
    }
    for (; u < n; u++) /* all lanes the same: one is kept */
        out[u] = activate(same_floats(gate_up[2 * u]), same_floats(gate_up[2 * u + 1]), limit, alpha)[0];
}

void GS_VARIANT(gs_activate_q8)(const struct gs_activation *how, const float *gate_up, const float *bias,
                                size_t n_x, struct gs_q8_chunk *out, size_t stride)
{
    for (size_t t = 0; t < n_x; t++, gate_up += 64) {
        floats values[PARTS];
        for (int i = 0; i < PARTS; i++) {
            int at = 2 * i * LANES;
            floats low = load_floats(gate_up + at) + load_floats(bias + at);
            floats high = load_floats(gate_up + at + LANES) + load_floats(bias + at + LANES);
            values[i] = activate(EVEN_LANES(low, high), ODD_LANES(low, high), how->limit, how->alpha);
        }
        quantize_block(values, how->order, &out[t * stride + how->block / 4], how->block % 4);
    }
}
