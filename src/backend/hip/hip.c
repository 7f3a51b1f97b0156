#include "backend/hip/hip.h"

#include "backend/gpu/backend.h"
#include "backend/hip/device.h"

static bool hip_probe(char *description, size_t size)
{
    return gs_hip_api.probe(0, description, size);
}

static gs_status hip_open(const struct gs_device_options *options, struct gs_device **out,
                          struct gs_error *error)
{
    return gs_gpu_open(&gs_hip_api, options, out, error);
}

const struct gs_backend gs_backend_hip = {
    .name = "hip",
    .fast_keeps_bits = true, /* the simple kernels do every call */
    .untested = "HIP: compiled for gfx90a, gfx942, gfx1100 and gfx1201; the shared kernel logic is tested as "
                "CUDA and on the CPU with 32 and 64 lanes. It has never run on an AMD GPU.",
    .probe = hip_probe,
    .open = hip_open,
    GS_GPU_BACKEND_ENTRIES,
};
