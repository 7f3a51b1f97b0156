#include "engine/row.h"

#include "base/math.h"

#include <math.h>
#include <string.h>

/* Vectors of the size of a line; the compiler cuts them to what the processor has. */
#define LANES 8
typedef double doubles __attribute__((vector_size(64)));
typedef int64_t integers __attribute__((vector_size(64)));
typedef float floats __attribute__((vector_size(64)));
typedef float half_floats __attribute__((vector_size(32)));
typedef int32_t float_bits __attribute__((vector_size(64)));

#define INLINE static inline __attribute__((always_inline))

/* As in base/math.c: the same operations in the same order, for x <= 0. */
#define ROUNDER    0x1.8p52
#define LN2_HIGH   0x1.62e42fef00000p-1
#define LN2_LOW    0x1.473de6af278edp-34
#define INV_LN2    0x1.71547652b82fep+0
#define ZERO_BELOW -745.2

INLINE void exp_of_negative(doubles *value)
{
    static const double inverse_factorial[] = {1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0,
                                               1.0 / 3628800.0,    1.0 / 362880.0,    1.0 / 40320.0,
                                               1.0 / 5040.0,       1.0 / 720.0,       1.0 / 120.0,
                                               1.0 / 24.0,         1.0 / 6.0,         0.5};
    integers some = *value > ZERO_BELOW; /* all ones where it is not 0 */
    doubles x = (doubles)((integers)*value & some);
    doubles rounded = x * INV_LN2 + ROUNDER;
    doubles k = rounded - ROUNDER;
    doubles r = (x - k * LN2_HIGH) - k * LN2_LOW;
    doubles tail = (doubles){0} + inverse_factorial[0];
    for (int i = 1; i < 12; i++)
        tail = tail * r + inverse_factorial[i];
    doubles sum = 1.0 + (r + r * r * tail);

    /* The integer stands in the low bits of `rounded`; 2^k in two factors. */
    const doubles rounder = (doubles){0} + ROUNDER;
    integers down = (integers)rounder - (integers)rounded, half = down >> 1;
    doubles first = (doubles)((1023 - half) << 52), second = (doubles)((1023 - (down - half)) << 52);
    *value = (doubles)((integers)(sum * first * second) & some);
}

#define FEW_BITS 6 /* for so many a whole block is not worth it */

/* A whole block; what is not allowed may be anything, and gets 0. */
INLINE double weigh_block(const float *logits, uint64_t word, double largest, double temperature,
                          double *weights)
{
    doubles sum = {0};
    double total = 0.0;
    for (size_t i = 0; i < GS_ROW_BLOCK; i += LANES) {
        half_floats half;
        memcpy(&half, logits + i, sizeof half);
        doubles x = __builtin_convertvector(half, doubles) - largest;
        if (temperature != 1.0)
            x /= temperature;
        exp_of_negative(&x);
        memcpy(weights + i, &x, sizeof x);
        sum += x;
    }
    if (word != ~UINT64_C(0)) {
        for (size_t i = 0; i < GS_ROW_BLOCK; i++) {
            weights[i] = word >> i & 1 ? weights[i] : 0.0;
            total += weights[i];
        }
        return total;
    }
    for (int i = 0; i < LANES; i++)
        total += sum[i];
    return total;
}

/* A block of which few are allowed, or that has fewer than 64 values. */
static double weigh_some(const float *logits, size_t n, uint64_t word, double largest, double temperature,
                         double *weights)
{
    double sum = 0.0;
    memset(weights, 0, n * sizeof *weights);
    for (size_t i = 0; word != 0 && i < n; i++, word >>= 1)
        if (word & 1) {
            weights[i] = gs_exp64(((double)logits[i] - largest) / temperature);
            sum += weights[i];
        }
    return sum;
}

INLINE double weigh(const float *logits, size_t n, const uint64_t *allowed, double largest,
                    double temperature, double *weights, double *sums)
{
    double total = 0.0;
    for (size_t at = 0, block = 0; at < n; at += GS_ROW_BLOCK, block++) {
        size_t here = n - at < GS_ROW_BLOCK ? n - at : GS_ROW_BLOCK;
        uint64_t word = allowed ? allowed[block] : ~UINT64_C(0);
        if (here == GS_ROW_BLOCK && __builtin_popcountll(word) > FEW_BITS)
            sums[block] = weigh_block(logits + at, word, largest, temperature, weights + at);
        else
            sums[block] = weigh_some(logits + at, here, word, largest, temperature, weights + at);
        total += sums[block];
    }
    return total;
}

/* Has a whole block one above `bound`? *wrong turns into NaN where any value is no finite number. */
INLINE bool has_larger(const float *logits, float bound, floats *wrong)
{
    float_bits larger = {0};
    for (size_t i = 0; i < GS_ROW_BLOCK; i += 16) {
        floats v;
        memcpy(&v, logits + i, sizeof v);
        *wrong += v - v;
        larger |= v > bound;
    }
    uint64_t parts[8], any = 0;
    memcpy(parts, &larger, sizeof parts);
    for (int i = 0; i < 8; i++)
        any |= parts[i];
    return any != 0;
}

INLINE bool find_best(const float *logits, size_t n, const uint64_t *allowed, int32_t *best)
{
    floats wrong = {0};
    float any_wrong = 0.0f;
    size_t at = 0, found = n;
    float largest = -INFINITY;
    bool has_one = false;
    for (; at < n; at += GS_ROW_BLOCK) {
        size_t here = n - at < GS_ROW_BLOCK ? n - at : GS_ROW_BLOCK;
        uint64_t word = allowed ? allowed[at / GS_ROW_BLOCK] : ~UINT64_C(0);
        if (here == GS_ROW_BLOCK) {
            bool larger = has_larger(logits + at, largest, &wrong);
            if (word == 0 || !larger)
                continue;
        }
        for (size_t i = 0; i < here; i++) {
            float value = logits[at + i];
            any_wrong += value - value;
            if ((word >> i & 1) && (!has_one || value > largest)) {
                largest = value;
                found = at + i;
                has_one = true;
            }
        }
    }
    for (int i = 0; i < 16; i++)
        any_wrong += wrong[i];
    *best = has_one ? (int32_t)found : -1;
    return any_wrong == 0.0f;
}

/* ---------------------------------------------------------------- for each instruction set */

#define VARIANT(name, attributes)                                                                            \
    attributes static double weigh_##name(const float *logits, size_t n, const uint64_t *allowed,            \
                                          double largest, double temperature, double *weights, double *sums) \
    {                                                                                                        \
        return weigh(logits, n, allowed, largest, temperature, weights, sums);                               \
    }                                                                                                        \
    attributes static bool find_best_##name(const float *logits, size_t n, const uint64_t *allowed,          \
                                            int32_t *best)                                                   \
    {                                                                                                        \
        return find_best(logits, n, allowed, best);                                                          \
    }

VARIANT(generic, )
#ifdef __x86_64__
VARIANT(avx2, __attribute__((target("avx2"))))
VARIANT(avx512, __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw"))))
#define CHOOSE(function, ...)                                                                                \
    (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")                                \
         ? function##_avx512(__VA_ARGS__)                                                                    \
     : __builtin_cpu_supports("avx2") ? function##_avx2(__VA_ARGS__)                                         \
                                      : function##_generic(__VA_ARGS__))
#else
#define CHOOSE(function, ...) function##_generic(__VA_ARGS__)
#endif

bool gs_row_best(const float *logits, size_t n, const uint64_t *allowed, int32_t *best)
{
    return CHOOSE(find_best, logits, n, allowed, best);
}

double gs_row_weights(const float *logits, size_t n, const uint64_t *allowed, double largest,
                      double temperature, double *weights, double *sums)
{
    return CHOOSE(weigh, logits, n, allowed, largest, temperature, weights, sums);
}
