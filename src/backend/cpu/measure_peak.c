#include "backend/cpu/measure_peak.h"

#include <stddef.h>
#include <string.h>

/*
 * CHAINS sums that do not wait for each other hide an instruction's latency. The compiler may neither drop a
 * round nor fold two into one: the empty statement makes it believe that the factors change.
 */
#define CHAINS                    12
#define CHANGE(x, register_class) __asm__ volatile("" : "+" register_class(x))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2_TARGET   __attribute__((target("avx2,fma")))
#define AVX512_TARGET __attribute__((target("avx512f,avx512bw")))
#define VNNI_TARGET   __attribute__((target("avx512f,avx512vnni")))

AVX512_TARGET static uint64_t f32_avx512(uint64_t rounds)
{
    __m512 sums[CHAINS], a = _mm512_set1_ps(1.0f), b = _mm512_set1_ps(0x1p-30f), total = _mm512_setzero_ps();
    for (int k = 0; k < CHAINS; k++)
        sums[k] = _mm512_setzero_ps();
    for (uint64_t i = 0; i < rounds; i++) {
        CHANGE(a, "v");
        UNROLL
        for (int k = 0; k < CHAINS; k++)
            sums[k] = _mm512_fmadd_ps(a, b, sums[k]);
    }
    for (int k = 0; k < CHAINS; k++)
        total = _mm512_add_ps(total, sums[k]);
    return (uint64_t)_mm512_reduce_add_ps(total);
}

AVX2_TARGET static uint64_t f32_avx2(uint64_t rounds)
{
    __m256 sums[CHAINS], a = _mm256_set1_ps(1.0f), b = _mm256_set1_ps(0x1p-30f), total = _mm256_setzero_ps();
    for (int k = 0; k < CHAINS; k++)
        sums[k] = _mm256_setzero_ps();
    for (uint64_t i = 0; i < rounds; i++) {
        CHANGE(a, "x");
        UNROLL
        for (int k = 0; k < CHAINS; k++)
            sums[k] = _mm256_fmadd_ps(a, b, sums[k]);
    }
    for (int k = 0; k < CHAINS; k++)
        total = _mm256_add_ps(total, sums[k]);
    float lanes[8];
    _mm256_storeu_ps(lanes, total);
    return (uint64_t)lanes[0];
}

VNNI_TARGET static uint64_t int8_vnni(uint64_t rounds)
{
    __m512i sums[CHAINS], a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-1), total = _mm512_setzero_si512();
    for (int k = 0; k < CHAINS; k++)
        sums[k] = _mm512_setzero_si512();
    for (uint64_t i = 0; i < rounds; i++) {
        CHANGE(a, "v");
        UNROLL
        for (int k = 0; k < CHAINS; k++)
            sums[k] = _mm512_dpbusd_epi32(sums[k], a, b);
    }
    for (int k = 0; k < CHAINS; k++)
        total = _mm512_add_epi32(total, sums[k]);
    return (uint64_t)_mm512_reduce_add_epi32(total);
}

AVX512_TARGET static uint64_t int8_avx512(uint64_t rounds)
{
    __m512i sums[CHAINS], a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-1), total = _mm512_setzero_si512();
    const __m512i ones = _mm512_set1_epi16(1);
    for (int k = 0; k < CHAINS; k++)
        sums[k] = _mm512_setzero_si512();
    for (uint64_t i = 0; i < rounds; i++)
        UNROLL
    for (int k = 0; k < CHAINS; k++) {
        CHANGE(a, "v");
        sums[k] = _mm512_add_epi32(sums[k], _mm512_madd_epi16(_mm512_maddubs_epi16(a, b), ones));
    }
    for (int k = 0; k < CHAINS; k++)
        total = _mm512_add_epi32(total, sums[k]);
    return (uint64_t)_mm512_reduce_add_epi32(total);
}

AVX2_TARGET static uint64_t int8_avx2(uint64_t rounds)
{
    __m256i sums[CHAINS], a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(-1), total = _mm256_setzero_si256();
    const __m256i ones = _mm256_set1_epi16(1);
    for (int k = 0; k < CHAINS; k++)
        sums[k] = _mm256_setzero_si256();
    for (uint64_t i = 0; i < rounds; i++)
        UNROLL
    for (int k = 0; k < CHAINS; k++) {
        CHANGE(a, "x");
        sums[k] = _mm256_add_epi32(sums[k], _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
    }
    for (int k = 0; k < CHAINS; k++)
        total = _mm256_add_epi32(total, sums[k]);
    uint64_t lanes[4];
    _mm256_storeu_si256((__m256i *)(void *)lanes, total);
    return lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3];
}
#endif

/* In the build's own instruction set, as the compiler sees fit. */
typedef float four_floats __attribute__((vector_size(16)));
typedef int16_t eight_shorts __attribute__((vector_size(16)));

#if defined(__x86_64__)
#define VECTOR_CLASS "x"
#else
#define VECTOR_CLASS "w"
#endif

static uint64_t f32_plain(uint64_t rounds)
{
    four_floats sums[CHAINS] = {0}, a = {1, 1, 1, 1}, b = {0x1p-30f, 0x1p-30f, 0x1p-30f, 0x1p-30f},
                total = {0};
    for (uint64_t i = 0; i < rounds; i++) {
        CHANGE(a, VECTOR_CLASS);
        UNROLL
        for (int k = 0; k < CHAINS; k++)
            sums[k] += a * b;
        CHANGE(b, VECTOR_CLASS);
    }
    for (int k = 0; k < CHAINS; k++)
        total += sums[k];
    return (uint64_t)(total[0] + total[1] + total[2] + total[3]);
}

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>

static uint64_t int8_plain(uint64_t rounds)
{
    int32x4_t sums[CHAINS], total = vdupq_n_s32(0);
    int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(-1);
    for (int k = 0; k < CHAINS; k++)
        sums[k] = total;
    for (uint64_t i = 0; i < rounds; i++) {
        CHANGE(a, VECTOR_CLASS);
        UNROLL
        for (int k = 0; k < CHAINS; k++)
            sums[k] = vdotq_s32(sums[k], a, b);
    }
    for (int k = 0; k < CHAINS; k++)
        total = vaddq_s32(total, sums[k]);
    return (uint64_t)vaddvq_s32(total);
}
#define INT8_PLAIN_LANES 16
#define INT8_PLAIN_NAME  "sdot"
#else
static uint64_t int8_plain(uint64_t rounds)
{
    eight_shorts sums[CHAINS] = {0}, a = {3, 3, 3, 3, 3, 3, 3, 3}, b = {1, 1, 1, 1, 1, 1, 1, 1}, total = {0};
    for (uint64_t i = 0; i < rounds; i++)
        UNROLL
    for (int k = 0; k < CHAINS; k++) {
        CHANGE(a, VECTOR_CLASS);
        sums[k] += a * b;
    }
    for (int k = 0; k < CHAINS; k++)
        total += sums[k];
    return (uint64_t)(uint16_t)total[0];
}
#define INT8_PLAIN_LANES 8
#define INT8_PLAIN_NAME  "plain, 16-bit sums"
#endif

struct gs_peak gs_peak_f32(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
        return (struct gs_peak){f32_avx512, CHAINS * 16, "fma, 512 bits"};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return (struct gs_peak){f32_avx2, CHAINS * 8, "fma, 256 bits"};
#endif
    return (struct gs_peak){f32_plain, CHAINS * 4, "plain, 128 bits"};
}

struct gs_peak gs_peak_int8(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512vnni"))
        return (struct gs_peak){int8_vnni, CHAINS * 64, "vpdpbusd, 512 bits"};
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
        return (struct gs_peak){int8_avx512, CHAINS * 64, "vpmaddubsw, 512 bits"};
    if (__builtin_cpu_supports("avx2"))
        return (struct gs_peak){int8_avx2, CHAINS * 32, "vpmaddubsw, 256 bits"};
#endif
    return (struct gs_peak){int8_plain, CHAINS * INT8_PLAIN_LANES, INT8_PLAIN_NAME};
}
