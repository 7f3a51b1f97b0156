/* The kernels' source, a part of the program: the driver of the machine compiles it at start. */
#ifndef GS_BACKEND_METAL_SOURCE_H
#define GS_BACKEND_METAL_SOURCE_H

#include "base/buffer.h"

/* Appends it: the contract (kernels.h), then the .metal files, as one text. */
gs_status gs_metal_source(struct gs_buffer *out, struct gs_error *error);

#endif
