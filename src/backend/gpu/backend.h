/* The backend table's entries that need no word about the driver, for cuda/ and hip/ to put into their own.
 */
#ifndef GS_BACKEND_GPU_BACKEND_H
#define GS_BACKEND_GPU_BACKEND_H

#include "backend/backend.h"
#include "backend/gpu/api.h"

gs_status gs_gpu_open(const struct gs_gpu_api *api, const struct gs_device_options *options,
                      struct gs_device **out, struct gs_error *error);

/* Everything but name, probe and open. */
#define GS_GPU_BACKEND_ENTRIES                                                                               \
    .close = gs_gpu_close, .load = gs_gpu_load, .max_tokens = gs_gpu_max_tokens,                             \
    .kv_bytes = gs_gpu_kv_bytes, .scratch_bytes = gs_gpu_scratch_bytes,                                      \
    .memory_available = gs_gpu_memory_available, .kv_create = gs_gpu_kv_create, .kv_free = gs_gpu_kv_free,   \
    .kv_length = gs_gpu_kv_length, .kv_truncate = gs_gpu_kv_truncate, .kv_copy = gs_gpu_kv_copy,             \
    .kv_export = gs_gpu_kv_export, .kv_import = gs_gpu_kv_import, .forward = gs_gpu_forward,                 \
    .logits = gs_gpu_logits, .tap = gs_gpu_tap, .dequantize = gs_gpu_dequantize, .rotary = gs_gpu_rotary,    \
    .stats = gs_gpu_stats, .chain = gs_gpu_chain, .chosen = gs_gpu_chosen, .chooses = true, .draws = true

void gs_gpu_close(struct gs_device *device);
gs_status gs_gpu_load(struct gs_device *device, const struct gs_weights *weights, gs_progress_fn *progress,
                      void *progress_user, struct gs_error *error);
size_t gs_gpu_max_tokens(const struct gs_device *device);
uint64_t gs_gpu_kv_bytes(const struct gs_device *device, int64_t capacity);
uint64_t gs_gpu_scratch_bytes(const struct gs_device *device);
uint64_t gs_gpu_memory_available(const struct gs_device *device);
gs_status gs_gpu_kv_create(struct gs_device *device, int64_t capacity, struct gs_kv **out,
                           struct gs_error *error);
void gs_gpu_kv_free(struct gs_kv *kv);
int64_t gs_gpu_kv_length(const struct gs_kv *kv);
int64_t gs_gpu_kv_truncate(struct gs_kv *kv, int64_t length);
gs_status gs_gpu_kv_copy(struct gs_kv *dst, const struct gs_kv *src, struct gs_error *error);
gs_status gs_gpu_kv_export(const struct gs_kv *kv, struct gs_buffer *out, struct gs_error *error);
gs_status gs_gpu_kv_import(struct gs_kv *kv, const void *bytes, size_t size, struct gs_error *error);
gs_status gs_gpu_forward(struct gs_device *device, const struct gs_step *steps, size_t n_steps,
                         const _Atomic bool *cancelled, struct gs_error *error);
const float *gs_gpu_logits(struct gs_device *device, size_t row);
int32_t gs_gpu_chosen(const struct gs_device *device, size_t row);
void gs_gpu_tap(struct gs_device *device, gs_tap_fn *fn, void *user);
void gs_gpu_dequantize(struct gs_device *device, const struct gs_mxfp4_matrix *matrix, int64_t expert,
                       int64_t first, int64_t n_rows, float *out);
void gs_gpu_rotary(const struct gs_device *device, struct gs_yarn *out);
void gs_gpu_stats(const struct gs_device *device, struct gs_backend_stats *stats);
gs_status gs_gpu_chain(struct gs_device *device, struct gs_kv *kv, int32_t token, const struct gs_draw *draws,
                       int32_t *out, size_t n, struct gs_error *error);

#endif
