/* The CUDA side of backend/gpu/api.h. */
#ifndef GS_BACKEND_CUDA_DEVICE_H
#define GS_BACKEND_CUDA_DEVICE_H

#include "backend/gpu/api.h"

extern const struct gs_gpu_api gs_cuda_api;

#endif
