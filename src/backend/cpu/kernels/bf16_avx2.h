/*
 * With AVX2: both widened to float32, even and odd elements apart, a fused multiply-add each. Four rows at a
 * time against one or two vectors.
 */
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
#define STEP   16 /* elements of a register */

INLINE void widen(__m256i bits, __m256 *even, __m256 *odd)
{
    *even = _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
    *odd = _mm256_castsi256_ps(_mm256_and_si256(bits, _mm256_set1_epi32((int)0xFFFF0000u)));
}

INLINE __m256i load_tail(const void *from, size_t n)
{
    uint16_t values[STEP] = {0};
    memcpy(values, from, n * sizeof *values);
    return _mm256_loadu_si256((const void *)values);
}

INLINE float add_lanes(__m256 sum)
{
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* 4 rows by n_x (1 or 2, a constant) vectors. */
INLINE void multiply_batch(const unsigned char *const rows[4], size_t n, const uint16_t *const *x, size_t n_x,
                           float out[2][4])
{
    __m256 sums[2][4];
    for (size_t t = 0; t < 2; t++)
        for (size_t r = 0; r < 4; r++)
            sums[t][r] = _mm256_setzero_ps();
    for (size_t i = 0; i < n; i += STEP) {
        size_t left = n - i;
        __m256 x_even[2], x_odd[2];
        for (size_t t = 0; t < n_x; t++)
            widen(left >= STEP ? _mm256_loadu_si256((const void *)(x[t] + i)) : load_tail(x[t] + i, left),
                  &x_even[t], &x_odd[t]);
        for (size_t r = 0; r < 4; r++) {
            __m256 even, odd;
            const unsigned char *from = rows[r] + 2 * i;
            widen(left >= STEP ? _mm256_loadu_si256((const void *)from) : load_tail(from, left), &even, &odd);
            for (size_t t = 0; t < n_x; t++) {
                sums[t][r] = _mm256_fmadd_ps(even, x_even[t], sums[t][r]);
                sums[t][r] = _mm256_fmadd_ps(odd, x_odd[t], sums[t][r]);
            }
        }
    }
    for (size_t t = 0; t < n_x; t++)
        for (size_t r = 0; r < 4; r++)
            out[t][r] = add_lanes(sums[t][r]);
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
