/*
 * The negative controls (enum gs_control) of a GPU backend: the unchanged kernels get spoilt weights or
 * sizes, a copy made on the host before the load. Those controls that change the arithmetic itself (the
 * router's softmax, SwiGLU, the rotation's pairs, the ring) this backend does not have.
 */
#ifndef GS_BACKEND_GPU_CONTROLS_H
#define GS_BACKEND_GPU_CONTROLS_H

#include "backend/backend.h"

/* GS_UNSUPPORTED outside exact precision, and for a control that these kernels do not have. */
gs_status gs_gpu_control_check(const char *backend, const struct gs_device_options *options,
                               struct gs_error *error);

/*
 * *out is `weights` with one thing wrong, in `arena`; it borrows from `weights` what is not spoilt. Without a
 * control it is `weights` itself. Order of codes and of rows: the experts' codes are copied whole.
 */
gs_status gs_gpu_control_spoil(enum gs_control control, const struct gs_weights *weights,
                               struct gs_arena *arena, const struct gs_weights **out, struct gs_error *error);

#endif
