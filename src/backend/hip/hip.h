/* The HIP backend, for AMD GPUs: backend/gpu over AMD's library. */
#ifndef GS_BACKEND_HIP_HIP_H
#define GS_BACKEND_HIP_HIP_H

#include "backend/backend.h"

extern const struct gs_backend gs_backend_hip;

#endif
