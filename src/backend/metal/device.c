#include "backend/metal/device.h"

#include "base/status.h"

#include <stdlib.h>

gs_status gs_metal_keep(struct gs_device *device, const struct gs_metal_memory *memory,
                        struct gs_error *error)
{
    if (device->n_memories == device->memory_capacity) {
        size_t capacity = 2 * device->memory_capacity + 64;
        struct gs_metal_memory *memories = realloc(device->memories, capacity * sizeof *memories);
        if (!memories) {
            struct gs_metal_memory lost = *memory;
            gs_metal_memory_release(&device->metal, &lost);
            return gs_fail_memory(error, capacity * sizeof *memories);
        }
        device->memories = memories;
        device->memory_capacity = capacity;
    }
    device->memories[device->n_memories++] = *memory;
    return GS_OK;
}
