/*
 * The inner loops of the CPU backend, one table of them for each instruction set, chosen once by what the
 * processor has. Every variant of the exact loops gives the same bits.
 */
#ifndef GS_BACKEND_CPU_KERNELS_H
#define GS_BACKEND_CPU_KERNELS_H

#include <stddef.h>
#include <stdint.h>

struct gs_kernels {
    const char *isa; /* "generic", "avx2", "avxvnni", "avx512", "avx512vnni256", "avx512vnni",
                        "avx512bf16", "amx", "dotprod", "i8mm", "bf16" */

    /*
     * out[j] = w [n] . x[j] [n] for j = 0 ... n_x-1, in float32 with this order of summation: 32 lanes,
     * element i in lane i mod 32, each lane summed in ascending i (a multiplication and an addition, each
     * rounded); then lane l += lane l+16, l+8, l+4, l+2, l+1.
     */
    void (*dot)(const float *w, const float *const *x, size_t n_x, size_t n, float *out);

    /* gs_mxfp4_dequantize, the same bits. */
    void (*dequantize_mxfp4)(const uint8_t *blocks, const uint8_t *scales, int64_t n, float *out);

    /* gs_mxfp4_dequantize_gguf, the same bits. */
    void (*dequantize_mxfp4_gguf)(const uint8_t *blocks, int64_t n, float *out);
};

/* The best that this processor can run. */
const struct gs_kernels *gs_kernels_best(void);

/* By name; NULL if this build or this processor does not have them. */
const struct gs_kernels *gs_kernels_find(const char *isa);

/* All that this processor can run, worst first: for tests. */
size_t gs_kernels_count(void);
const struct gs_kernels *gs_kernels_at(size_t index);

/* Names of those that this build has and this processor cannot run; NULL after the last. */
const char *gs_kernels_missing(size_t index);

#endif
