/*
 * With AVX-512 BF16: dpbf16 adds two products to each of 16 lanes. Rows are read where they lie: against one
 * vector one after the other (see int8_rows_avx512.h), against three or six four at a time; short ones are
 * laid out first (bf16_sides_avx512.h).
 */
#include "backend/cpu/kernels/tile_avx512.h"

#define STEP 32 /* elements in a register */

INLINE __m512bh load_bf16(const void *from, __mmask32 mask)
{
    __m512i bits = mask == 0xFFFFFFFF ? _mm512_loadu_si512(from) : _mm512_maskz_loadu_epi16(mask, from);
    return (__m512bh)bits;
}

/* Lane sums of four registers, in one order. */
INLINE __m128 add_lanes(__m512 a, __m512 b, __m512 c, __m512 d)
{
    __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    __m512i low = _mm512_unpacklo_epi64(_mm512_castps_si512(ab), _mm512_castps_si512(cd));
    __m512i high = _mm512_unpackhi_epi64(_mm512_castps_si512(ab), _mm512_castps_si512(cd));
    __m512 sum = _mm512_add_ps(_mm512_castsi512_ps(low), _mm512_castsi512_ps(high));
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(sum), _mm512_extractf32x8_ps(sum, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

/* Four rows by n_x products, a constant. */
INLINE void multiply_batch(const unsigned char *const *rows, size_t n, const uint16_t *const *x, size_t n_x,
                           __m128 out[6])
{
    __m512 sums[4][6];
    for (size_t r = 0; r < 4; r++)
        for (size_t t = 0; t < 6; t++)
            sums[r][t] = _mm512_setzero_ps();
    for (size_t i = 0; i < n; i += STEP) {
        __mmask32 mask = n - i >= STEP ? 0xFFFFFFFF : (__mmask32)((1u << (n - i)) - 1);
        __m512bh weights[4];
#pragma GCC unroll 4
        for (size_t r = 0; r < 4; r++)
            weights[r] = load_bf16(rows[r] + 2 * i, mask);
#pragma GCC unroll 6
        for (size_t t = 0; t < n_x; t++) {
            __m512bh value = load_bf16(x[t] + i, mask);
#pragma GCC unroll 4
            for (size_t r = 0; r < 4; r++)
                sums[r][t] = _mm512_dpbf16_ps(sums[r][t], weights[r], value);
        }
    }
#pragma GCC unroll 6
    for (size_t t = 0; t < n_x; t++)
        out[t] = add_lanes(sums[0][t], sums[1][t], sums[2][t], sums[3][t]);
}

/* Four rows, of which n_left are there, by one vector: a row's lanes add up as in multiply_batch. */
INLINE __m128 multiply_rows(const unsigned char *const *rows, size_t n_left, size_t n, const uint16_t *x)
{
    __m512 sums[4];
    for (size_t r = 0; r < 4; r++) {
        sums[r] = _mm512_setzero_ps();
        for (size_t i = 0; i < n && r < n_left; i += STEP) {
            __mmask32 mask = n - i >= STEP ? 0xFFFFFFFF : (__mmask32)((1u << (n - i)) - 1);
            sums[r] = _mm512_dpbf16_ps(sums[r], load_bf16(rows[r] + 2 * i, mask), load_bf16(x + i, mask));
        }
    }
    return add_lanes(sums[0], sums[1], sums[2], sums[3]);
}

#include "backend/cpu/kernels/bf16_sides_avx512.h"

#include "backend/cpu/kernels/bf16_lanes_avx512.h"

/* Those of the tile's rows from `first` on. */
INLINE __mmask8 four_of(size_t first, size_t n_rows)
{
    size_t left = n_rows - first;
    return (__mmask8)(left >= 4 ? 0xFu : (1u << left) - 1);
}

void GS_VARIANT(gs_bf16_bf16)(const struct gs_bf16_rows *rows, size_t n_rows, size_t n,
                              const uint16_t *const *x, size_t n_x, void *work, float *out, size_t stride,
                              bool same_x)
{
    const unsigned char *all[GS_FAST_TILE_ROWS + 3]; /* those past the end are the last one again */
    __m128 sums[6];
    for (size_t r = 0; r < GS_FAST_TILE_ROWS + 3; r++)
        all[r] = rows->data + (r < n_rows ? r : n_rows - 1) * n * 2;
    if (is_for_lanes(n, n_x)) {
        multiply_vectors(all, n_rows, n, x, n_x, same_x, work, out, stride);
        return;
    }
    if (is_for_sides(n, n_x)) {
        multiply_short(all, n_rows, n, x, n_x, work, out, stride);
        return;
    }
    size_t t = 0;
    for (; t + 6 <= n_x; t += 6)
        for (size_t r = 0; r < n_rows; r += 4) {
            multiply_batch(all + r, n, x + t, 6, sums);
            for (size_t i = 0; i < 6; i++)
                _mm_mask_storeu_ps(out + (t + i) * stride + r, four_of(r, n_rows), sums[i]);
        }
    if (t + 3 <= n_x) {
        for (size_t r = 0; r < n_rows; r += 4) {
            multiply_batch(all + r, n, x + t, 3, sums);
            for (size_t i = 0; i < 3; i++)
                _mm_mask_storeu_ps(out + (t + i) * stride + r, four_of(r, n_rows), sums[i]);
        }
        t += 3;
    }
    for (; t < n_x; t++)
        for (size_t r = 0; r < n_rows; r += 4)
            _mm_mask_storeu_ps(out + t * stride + r, four_of(r, n_rows),
                               multiply_rows(all + r, n_rows - r, n, x[t]));
}
