#include "backend/gpu/device.h"

#include "base/status.h"

#include <stdlib.h>

gs_status gs_gpu_take(struct gs_device *device, uint64_t bytes, const char *what, void **out,
                      struct gs_error *error)
{
    *out = NULL;
    if (device->n_blocks == device->block_capacity) {
        size_t capacity = 2 * device->block_capacity + 64;
        void **blocks = realloc(device->blocks, capacity * sizeof *blocks);
        if (!blocks)
            return gs_fail_memory(error, capacity * sizeof *blocks);
        device->blocks = blocks;
        device->block_capacity = capacity;
    }
    gs_status status = device->api->alloc(device->gpu, bytes, what, out, error);
    if (status == GS_OK)
        device->blocks[device->n_blocks++] = *out;
    return status;
}

gs_status gs_gpu_launch(struct gs_device *device, const struct gs_gpu_launch *launch, const void *args,
                        bool overlap, struct gs_error *error)
{
    device->stats.n_dispatches++;
    return device->api->launch(device->gpu, device->stream, launch, args, overlap, error);
}

gs_status gs_gpu_run(struct gs_device *device, const char *kernel, const void *args, uint64_t n_threads,
                     uint32_t block, struct gs_error *error)
{
    struct gs_gpu_launch launch = {
        .kernel = kernel, .grid = {(uint32_t)((n_threads + block - 1) / block), 1, 1}, .block = block};
    return gs_gpu_launch(device, &launch, args, false, error);
}
