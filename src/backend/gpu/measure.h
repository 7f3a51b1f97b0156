/*
 * Single experts on a GPU, without the model: how fast the simple kernels go over them (simple.cu), which are
 * all that HIP has. A driver's calls take as long as one such launch: so many launches are captured as one
 * graph and timed by the host, from its launch to its end, and the time is divided by their number. Cold:
 * each launch reads other memory than those before it, more in all than caches hold. Warm: all read the same.
 */
#ifndef GS_BACKEND_GPU_MEASURE_H
#define GS_BACKEND_GPU_MEASURE_H

#include "backend/gpu/api.h"
#include "model/mxfp4.h"

#define GS_GPU_MEASURE_EXPERTS 16 /* at most */

struct gs_gpu_measure;

/*
 * Device `index` of the driver gets experts [n] of one shape, again and again, and an activation for each,
 * in[e] [columns]. `is_gate_up`: the kernel of gate and up with its activation, for which all experts get
 * in[0] as a token's do; else that of down. Biases are 0.
 */
gs_status gs_gpu_measure_open(const struct gs_gpu_api *api, int index, const struct gs_mxfp4_matrix *experts,
                              size_t n, bool is_gate_up, const float *const *in, struct gs_gpu_measure **out,
                              struct gs_error *error);
void gs_gpu_measure_close(struct gs_gpu_measure *measure);

/* What is timed from now on: the first n experts in one launch. */
gs_status gs_gpu_measure_choose(struct gs_gpu_measure *measure, size_t n, bool cold, struct gs_error *error);

/* One launch, as a share of many. */
gs_status gs_gpu_measure_product(struct gs_gpu_measure *measure, double *seconds, struct gs_error *error);
size_t gs_gpu_measure_launches(const struct gs_gpu_measure *measure);

/* Bytes a second that a copy within the device's memory reads and writes. */
gs_status gs_gpu_measure_copy(struct gs_gpu_measure *measure, double *bytes_per_second,
                              struct gs_error *error);

/* What the last product made: [n][rows/2] activated, or [n][rows]. */
gs_status gs_gpu_measure_result(struct gs_gpu_measure *measure, float *out, struct gs_error *error);

#endif
