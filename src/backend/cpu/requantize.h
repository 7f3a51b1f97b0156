/*
 * --weights q8: attention's matrices and the head as Q8_0, made while loading, on all threads. The embedding
 * stays as it is: a token reads one row of it.
 */
#ifndef GS_BACKEND_CPU_REQUANTIZE_H
#define GS_BACKEND_CPU_REQUANTIZE_H

#include "backend/cpu/device.h"

/*
 * device->weights becomes a copy in the device's arena, device->repacked_bytes what it takes. Matrices that
 * are Q8_0 already, or whose rows are not whole blocks, stay as they are. GS_OUT_OF_MEMORY, before anything
 * is made, says how much is needed and how much there is.
 */
gs_status gs_cpu_requantize(struct gs_device *device, gs_progress_fn *progress, void *progress_user,
                            struct gs_error *error);

#endif
