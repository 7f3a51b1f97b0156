/* The HIP side of backend/gpu/api.h. */
#ifndef GS_BACKEND_HIP_DEVICE_H
#define GS_BACKEND_HIP_DEVICE_H

#include "backend/gpu/api.h"

extern const struct gs_gpu_api gs_hip_api;

#endif
