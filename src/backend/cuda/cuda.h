/* The CUDA backend: backend/gpu over the driver's interface. */
#ifndef GS_BACKEND_CUDA_CUDA_H
#define GS_BACKEND_CUDA_CUDA_H

#include "backend/backend.h"

extern const struct gs_backend gs_backend_cuda;

#endif
