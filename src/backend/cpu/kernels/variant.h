/*
 * Each .c file of this folder is compiled once per instruction set, with GS_ISA naming it. A function that
 * leaves its file is GS_VARIANT(name): name_generic, name_avx2 ...
 */
#ifndef GS_BACKEND_CPU_KERNELS_VARIANT_H
#define GS_BACKEND_CPU_KERNELS_VARIANT_H

#include "backend/cpu/fast_kernels.h"

#include <stddef.h>
#include <stdint.h>

#define GS_CONCATENATE_(a, b) a##_##b
#define GS_CONCATENATE(a, b)  GS_CONCATENATE_(a, b)
#define GS_VARIANT(name)      GS_CONCATENATE(name, GS_ISA)

void GS_VARIANT(gs_dot)(const float *w, const float *const *x, size_t n_x, size_t n, float *out);
void GS_VARIANT(gs_dequantize_mxfp4)(const uint8_t *blocks, const uint8_t *scales, int64_t n, float *out);
void GS_VARIANT(gs_dequantize_mxfp4_gguf)(const uint8_t *blocks, int64_t n, float *out);

/* Those of struct gs_fast_kernels. */
void GS_VARIANT(gs_quantize_q8)(const float *x, size_t n, enum gs_q8_order order, struct gs_q8_chunk *out);
void GS_VARIANT(gs_quantize_q8_0)(const float *x, size_t n, uint8_t *blocks);
void GS_VARIANT(gs_round_bf16)(const float *x, size_t n, uint16_t *out);
void GS_VARIANT(gs_rms_norm)(const float *x, const float *w, size_t n, float eps, float *y);
void GS_VARIANT(gs_swiglu)(const float *gate_up, size_t n, float limit, float alpha, float *out);
void GS_VARIANT(gs_add_scaled)(float *to, const float *from, float weight, size_t n);
void GS_VARIANT(gs_activate_q8)(const struct gs_activation *how, const float *gate_up, const float *bias,
                                size_t n_x, struct gs_q8_chunk *out, size_t stride);
void GS_VARIANT(gs_add_bias)(float *to, size_t stride, size_t n_x, const float *bias, size_t n);
void GS_VARIANT(gs_rotate)(const float *cosine, const float *sine, size_t d_head, float *heads,
                           size_t n_head);
void GS_VARIANT(gs_mxfp4_q8)(const struct gs_mxfp4_row *rows, size_t n_rows, size_t n,
                             const struct gs_q8_chunk *const *x, size_t n_x, void *work, float *out,
                             size_t stride);
void GS_VARIANT(gs_q8_0_q8)(const struct gs_q8_0_row *rows, size_t n_rows, size_t n,
                            const struct gs_q8_chunk *const *x, size_t n_x, void *work, float *out,
                            size_t stride);
void GS_VARIANT(gs_bf16_bf16)(const struct gs_bf16_rows *rows, size_t n_rows, size_t n,
                              const uint16_t *const *x, size_t n_x, void *work, float *out, size_t stride,
                              bool same_x);
void GS_VARIANT(gs_attend)(const struct gs_fast_attention *attention);
void GS_VARIANT(gs_merge_spans)(const struct gs_fast_attention *attention, int64_t n_spans);

#endif
