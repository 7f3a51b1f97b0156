#include "backend/cuda/cuda.h"

#include "backend/cuda/device.h"
#include "backend/gpu/backend.h"

static bool cuda_probe(char *description, size_t size)
{
    return gs_cuda_api.probe(0, description, size);
}

static gs_status cuda_open(const struct gs_device_options *options, struct gs_device **out,
                           struct gs_error *error)
{
    return gs_gpu_open(&gs_cuda_api, options, out, error);
}

const struct gs_backend gs_backend_cuda = {
    .name = "cuda",
    .fast_keeps_bits = false, /* one row, a few and many are different kernels */
    .probe = cuda_probe,
    .open = cuda_open,
    GS_GPU_BACKEND_ENTRIES,
};
