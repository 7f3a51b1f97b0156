/* With AVX2: even and odd elements apart, both added to the same lanes. */
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
#define STEP   16 /* elements of a register */

struct wide {
    __m256 even, odd;
};

struct sums {
    __m256 lanes;
};

INLINE struct wide load_wide(const void *from, size_t n_left)
{
    uint16_t values[STEP] = {0};
    if (n_left < STEP)
        from = memcpy(values, from, n_left * sizeof *values);
    __m256i bits = _mm256_loadu_si256(from);
    return (struct wide){
        _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16)),
        _mm256_castsi256_ps(_mm256_and_si256(bits, _mm256_set1_epi32((int)0xFFFF0000u))),
    };
}

INLINE struct sums no_sums(void)
{
    return (struct sums){_mm256_setzero_ps()};
}

INLINE struct sums add_products(struct sums sums, struct wide a, struct wide b)
{
    return (struct sums){_mm256_fmadd_ps(a.odd, b.odd, _mm256_fmadd_ps(a.even, b.even, sums.lanes))};
}

INLINE float total_of(struct sums sums)
{
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(sums.lanes), _mm256_extractf128_ps(sums.lanes, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#include "backend/cpu/kernels/bf16_widened.h"
