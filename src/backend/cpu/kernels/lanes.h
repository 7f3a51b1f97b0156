/*
 * Vectors as wide as the instruction set's registers, in the compilers' own terms: the same source for every
 * set, and the same arithmetic in every lane.
 */
#ifndef GS_BACKEND_CPU_KERNELS_LANES_H
#define GS_BACKEND_CPU_KERNELS_LANES_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

#define LANES_INLINE static inline __attribute__((always_inline))

typedef float floats __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t words __attribute__((vector_size(4 * LANES)));

LANES_INLINE floats load_floats(const void *from)
{
    floats value;
    memcpy(&value, from, sizeof value);
    return value;
}

LANES_INLINE void store_floats(void *to, floats value)
{
    memcpy(to, &value, sizeof value);
}

LANES_INLINE floats same_floats(float value)
{
    return value - (floats){0};
}

/* a where the condition is all ones, else b. */
LANES_INLINE floats select_floats(ints condition, floats a, floats b)
{
    return (floats)((condition & (ints)a) | (~condition & (ints)b));
}

/* A NaN in b stays. */
LANES_INLINE floats smaller_floats(floats a, floats b)
{
#if defined(__AVX512F__)
    return (floats)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (floats)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return select_floats(a < b, a, b);
#endif
}

LANES_INLINE floats larger_floats(floats a, floats b)
{
#if defined(__AVX512F__)
    return (floats)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (floats)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return select_floats(a > b, a, b);
#endif
}

LANES_INLINE ints larger_ints(ints a, ints b)
{
#if defined(__AVX512F__)
    return (ints)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (ints)_mm256_max_epi32((__m256i)a, (__m256i)b);
#else
    ints condition = a > b;
    return (condition & a) | (~condition & b);
#endif
}

LANES_INLINE int32_t largest_lane(ints v)
{
#if defined(__AVX512F__)
    return _mm512_reduce_max_epi32((__m512i)v);
#else
    int32_t most = v[0];
    for (int i = 1; i < LANES; i++)
        most = v[i] > most ? v[i] : most;
    return most;
#endif
}

LANES_INLINE int32_t sum_lanes(ints v)
{
#if defined(__AVX512F__)
    return _mm512_reduce_add_epi32((__m512i)v);
#else
    int32_t sum = v[0];
    for (int i = 1; i < LANES; i++)
        sum += v[i];
    return sum;
#endif
}

/* a * b + c, in one rounding where the set has that. */
LANES_INLINE floats multiply_add(floats a, floats b, floats c)
{
#if defined(__AVX512F__)
    return (floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
    return (floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__ARM_NEON)
    return (floats)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

/* Half the lanes from one vector, half from the other. */
#if LANES == 16
#define EVEN_LANES(a, b)                                                                                     \
    __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define ODD_LANES(a, b)                                                                                      \
    __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
#elif LANES == 8
#define EVEN_LANES(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define ODD_LANES(a, b)  __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15)
#else
#define EVEN_LANES(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define ODD_LANES(a, b)  __builtin_shufflevector(a, b, 1, 3, 5, 7)
#endif

/*
 * e^x for x <= 88, relative error below 2e-7; what it gives for x < -87 is that of -87, 1e-38. A NaN stays
 * one. Cephes' reduction, its polynomial of degree 5.
 */
LANES_INLINE floats exp_floats(floats x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: no room for a fraction */
    x = larger_floats(same_floats(-87.0f), smaller_floats(same_floats(88.0f), x));
    floats shifted = x * 1.44269504f + magic, n = shifted - magic;
    words power = ((words)shifted << 23) + ((words)(ints){0} + 0x3F800000u);
    floats r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * (floats)power;
}

#endif
