/*
 * Each .c file of this folder is compiled once per instruction set, with GS_ISA naming it. A function that
 * leaves its file is GS_VARIANT(name): name_generic, name_avx2 ...
 */
#ifndef GS_BACKEND_CPU_KERNELS_VARIANT_H
#define GS_BACKEND_CPU_KERNELS_VARIANT_H

#include <stddef.h>
#include <stdint.h>

#define GS_CONCATENATE_(a, b) a##_##b
#define GS_CONCATENATE(a, b)  GS_CONCATENATE_(a, b)
#define GS_VARIANT(name)      GS_CONCATENATE(name, GS_ISA)

void GS_VARIANT(gs_dot)(const float *w, const float *const *x, size_t n_x, size_t n, float *out);
void GS_VARIANT(gs_dequantize_mxfp4)(const uint8_t *blocks, const uint8_t *scales, int64_t n, float *out);
void GS_VARIANT(gs_dequantize_mxfp4_gguf)(const uint8_t *blocks, int64_t n, float *out);

#endif
