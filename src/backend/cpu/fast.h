/*
 * --precision fast of the CPU backend: 8-bit activations before MXFP4 and Q8_0 weights, bfloat16 before
 * bfloat16 weights, keys and values in bfloat16; residual stream, norms, router and softmax in float32.
 */
#ifndef GS_BACKEND_CPU_FAST_H
#define GS_BACKEND_CPU_FAST_H

#include "backend/cpu/device.h"

#define GS_CPU_FAST_MAX_TOKENS 512 /* of one forward */

struct gs_fast;

/* Of a device that has its weights: vectors as float32, and the scratch. */
gs_status gs_fast_open(struct gs_device *device, struct gs_fast **out, struct gs_error *error);
void gs_fast_close(struct gs_fast *fast);

/* Bytes that it has allocated. */
uint64_t gs_fast_bytes(const struct gs_fast *fast);

/* As gs_cpu_reference_forward. */
gs_status gs_fast_forward(struct gs_device *device, int64_t n_rows, const _Atomic bool *cancelled,
                          struct gs_error *error);

#endif
