/*
 * Single experts on the GPU, without the model: how fast the kernels of decoding go over them, and how fast
 * the GPU reads its memory. Times are the GPU's own, of one command buffer with one dispatch.
 */
#ifndef GS_BACKEND_METAL_MEASURE_H
#define GS_BACKEND_METAL_MEASURE_H

#include "gossamer.h"
#include "model/mxfp4.h"

struct gs_metal_measure;

/*
 * Copies experts [n] of one shape and an activation for each, in[e] [columns]. `is_gate_up`: the kernel of
 * gate and up with its activation, for which all experts get in[0] as a token's do; else that of down, which
 * adds the experts up. Biases are 0. At most 16 experts.
 */
gs_status gs_metal_measure_open(const struct gs_mxfp4_matrix *experts, size_t n, bool is_gate_up,
                                const float *const *in, const struct gs_levers *levers,
                                struct gs_metal_measure **out, struct gs_error *error);
void gs_metal_measure_close(struct gs_metal_measure *measure);

/* Reads a buffer of several times the largest cache once; bytes a second. */
gs_status gs_metal_measure_read(struct gs_metal_measure *measure, double *bytes_per_second,
                                struct gs_error *error);

/* The first `n` experts in one launch. */
gs_status gs_metal_measure_product(struct gs_metal_measure *measure, size_t n, double *seconds,
                                   struct gs_error *error);

/* What the last product made: [n][rows/2] activated, or [rows], the sum over the experts. */
const float *gs_metal_measure_result(const struct gs_metal_measure *measure);

#endif
