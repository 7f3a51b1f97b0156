/* The exact dot product, compiled once for each instruction set (see backend/cpu/kernels.h for the order). */
#include "backend/cpu/kernels/variant.h"

#include <string.h>

#define LANES 32
#if defined(__AVX512F__)
#define WIDTH 16 /* floats in a register */
#define BATCH 4  /* vectors that share a load of w */
#elif defined(__AVX2__)
#define WIDTH 8
#define BATCH 2
#else
#define WIDTH 4
#define BATCH 1
#endif
#define PARTS (LANES / WIDTH)

/* The sums live in registers only if the loops over them are gone. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

typedef float vector __attribute__((vector_size(WIDTH * sizeof(float))));

static inline vector load(const float *from)
{
    vector value;
    memcpy(&value, from, sizeof value);
    return value;
}

static float reduce(const vector sums[PARTS], const float *w, const float *x, size_t from, size_t n)
{
    float lanes[LANES];
    for (size_t part = 0; part < PARTS; part++)
        memcpy(lanes + part * WIDTH, &sums[part], sizeof sums[part]);
    for (size_t i = from; i < n; i++)
        lanes[i - from] += w[i] * x[i];
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lanes[l] += lanes[l + half];
    return lanes[0];
}

/* `count` (a constant, 1 or BATCH) vectors at once: the additions of one do not wait for those of another. */
static inline __attribute__((always_inline)) void dot_batch(const float *w, const float *const *x,
                                                            size_t count, size_t n, float *out)
{
    vector sums[BATCH][PARTS] = {0};
    size_t whole = n - n % LANES;
    for (size_t i = 0; i < whole; i += LANES)
        UNROLL
    for (size_t part = 0; part < PARTS; part++) {
        vector weights = load(w + i + part * WIDTH);
        UNROLL
        for (size_t j = 0; j < count; j++)
            sums[j][part] += weights * load(x[j] + i + part * WIDTH);
    }
    for (size_t j = 0; j < count; j++)
        out[j] = reduce(sums[j], w, x[j], whole, n);
}

void GS_VARIANT(gs_dot)(const float *w, const float *const *x, size_t n_x, size_t n, float *out)
{
    size_t j = 0;
    for (; j + BATCH <= n_x; j += BATCH)
        dot_batch(w, x + j, BATCH, n, out + j);
    for (; j < n_x; j++)
        dot_batch(w, x + j, 1, n, out + j);
}
