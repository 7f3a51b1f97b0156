#include "backend/gpu/driver.h"

#include "base/status.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Where a call's name stands in gs_gpu_vendor.call_names. */
enum call {
#define CALL(field, cuda, hip, parameters) CALL_##field,
    GS_GPU_CALLS(CALL)
#undef CALL
};

/* A driver takes pointers to what it only reads. */
static void *unconst(const void *memory)
{
    union {
        const void *read;
        void *passed;
    } pointer = {.read = memory};
    return pointer.passed;
}

/* ---------------------------------------------------------------- the library */

/* Puts the address of a call into the function pointer at `field`. */
static gs_status find(const struct gs_gpu_driver *driver, const char *name, void *field,
                      struct gs_error *error)
{
    void *found = dlsym(driver->handle, name);
    if (!found)
        return gs_fail(error, GS_UNSUPPORTED, "the %s here has no %s: it is too old, must be of %s",
                       driver->vendor->product, name, driver->vendor->needed);
    /* A data pointer to a function pointer: POSIX allows it, C does not; memcpy says what is meant. */
    memcpy(field, &found, sizeof found);
    return GS_OK;
}

static gs_status find_all(struct gs_gpu_driver *driver, struct gs_error *error)
{
    const struct gs_gpu_vendor *vendor = driver->vendor;
    gs_status status = GS_OK;
#define FIND(field, cuda, hip, parameters)                                                                   \
    if (status == GS_OK)                                                                                     \
        status = find(driver, vendor->call_names[CALL_##field], &driver->field, error);
    GS_GPU_CALLS(FIND)
#undef FIND
    for (size_t i = 0; status == GS_OK && i < vendor->n_own; i++)
        status = find(driver, vendor->own[i].name, (char *)driver + vendor->own[i].at, error);
    return status;
}

gs_status gs_gpu_driver_open(struct gs_gpu_driver *driver, const struct gs_gpu_vendor *vendor,
                             struct gs_error *error)
{
    memset(driver, 0, vendor->bytes);
    driver->vendor = vendor;
    /* Never unmapped again: the driver may have threads of its own once it was initialised. */
    for (size_t i = 0; vendor->file_names[i] && !driver->handle; i++)
        driver->handle = dlopen(vendor->file_names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    gs_status status = driver->handle ? find_all(driver, error)
                                      : gs_fail(error, GS_UNSUPPORTED, "no %s here: %s cannot be opened",
                                                vendor->product, vendor->file_names[0]);
    if (status == GS_OK && vendor->start)
        status = vendor->start(driver, error);
    if (status != GS_OK)
        gs_gpu_driver_close(driver);
    return status;
}

void gs_gpu_driver_close(struct gs_gpu_driver *driver)
{
    if (driver->handle)
        dlclose(driver->handle);
    memset(driver, 0, driver->vendor ? driver->vendor->bytes : sizeof *driver);
}

static gs_status status_of(const struct gs_gpu_vendor *vendor, int result)
{
    if (result == GS_GPU_NO_MEMORY)
        return GS_OUT_OF_MEMORY;
    bool unsupported = result == GS_GPU_NO_DEVICE || result == GS_GPU_NO_BINARY;
    for (const int *own = vendor->unsupported; *own != GS_GPU_SUCCESS; own++)
        unsupported = unsupported || result == *own;
    return unsupported ? GS_UNSUPPORTED : GS_IO;
}

gs_status gs_gpu_check(const struct gs_gpu_driver *driver, int result, struct gs_error *error,
                       const char *action, ...)
{
    if (result == GS_GPU_SUCCESS)
        return GS_OK;
    const struct gs_gpu_vendor *vendor = driver->vendor;
    const char *name = NULL, *text = NULL;
    char where[200];
    va_list arguments;
    va_start(arguments, action);
    vsnprintf(where, sizeof where, action, arguments);
    va_end(arguments);
    vendor->describe(driver, result, &name, &text);
    return gs_fail(error, status_of(vendor, result), "%s: %s: %s (%s)", vendor->name, where,
                   name ? name : "unknown error", text ? text : "no description");
}

/* The result of a call that is named in the message. */
static gs_status check_call(struct gs_gpu *gpu, int result, enum call call, struct gs_error *error)
{
    return gs_gpu_check(gpu->driver, result, error, "%s", gpu->driver->vendor->call_names[call]);
}

gs_status gs_gpu_enter(struct gs_gpu *gpu, struct gs_error *error)
{
    const struct gs_gpu_vendor *vendor = gpu->driver->vendor;
    return gs_gpu_check(gpu->driver, gpu->enter(gpu), error, "%s", vendor->enter_name);
}

gs_status gs_gpu_find_device(const struct gs_gpu_driver *driver, int index, int *device,
                             struct gs_error *error)
{
    const struct gs_gpu_vendor *vendor = driver->vendor;
    int count = 0, result = driver->device_count(&count);
    gs_status status = gs_gpu_check(driver, result, error, "%s", vendor->call_names[CALL_device_count]);
    if (status != GS_OK)
        return status;
    if (count == 0)
        return gs_fail(error, GS_UNSUPPORTED, "the %s sees no device", vendor->product);
    if (index < 0 || index >= count)
        return gs_fail(error, GS_INVALID_ARGUMENT, "device %d: the %s backend has devices 0 to %d here",
                       index, vendor->name, count - 1);
    return gs_gpu_check(driver, driver->device_get(device, index), error, "%s %d",
                        vendor->call_names[CALL_device_get], index);
}

/* ---------------------------------------------------------------- memory */

gs_status gs_gpu_driver_memory(struct gs_gpu *gpu, uint64_t *free_bytes, uint64_t *total_bytes,
                               struct gs_error *error)
{
    size_t available = 0, total = 0;
    gs_status status = gs_gpu_enter(gpu, error);
    if (status == GS_OK)
        status = check_call(gpu, gpu->driver->memory_info(&available, &total), CALL_memory_info, error);
    *free_bytes = available;
    *total_bytes = total;
    return status;
}

gs_status gs_gpu_driver_alloc(struct gs_gpu *gpu, uint64_t bytes, const char *what, void **out,
                              struct gs_error *error)
{
    *out = NULL;
    gs_status status = gs_gpu_enter(gpu, error);
    if (status == GS_OK)
        status = gs_gpu_check(gpu->driver, gpu->driver->memory_alloc(out, bytes > 0 ? bytes : 1), error,
                              "%.1f MiB of device memory for %s", (double)bytes / (1 << 20), what);
    if (status != GS_OK)
        *out = NULL;
    return status;
}

void gs_gpu_driver_release(struct gs_gpu *gpu, void *memory)
{
    if (memory && gs_gpu_enter(gpu, NULL) == GS_OK)
        gpu->driver->memory_free(memory);
}

gs_status gs_gpu_driver_host_alloc(struct gs_gpu *gpu, uint64_t bytes, void **out, struct gs_error *error)
{
    *out = NULL;
    gs_status status = gs_gpu_enter(gpu, error);
    if (status == GS_OK)
        status = gs_gpu_check(gpu->driver, gpu->driver->host_alloc(out, bytes, 0), error,
                              "%.1f MiB of pinned memory", (double)bytes / (1 << 20));
    return status;
}

void gs_gpu_driver_host_release(struct gs_gpu *gpu, void *memory)
{
    if (memory && gs_gpu_enter(gpu, NULL) == GS_OK)
        gpu->driver->host_free(memory);
}

/* ---------------------------------------------------------------- streams */

gs_status gs_gpu_driver_stream_open(struct gs_gpu *gpu, struct gs_gpu_stream **out, struct gs_error *error)
{
    *out = NULL;
    gs_status status = gs_gpu_enter(gpu, error);
    if (status == GS_OK)
        status = check_call(gpu, gpu->driver->stream_create(out, GS_GPU_STREAM_NON_BLOCKING),
                            CALL_stream_create, error);
    return status;
}

void gs_gpu_driver_stream_close(struct gs_gpu *gpu, struct gs_gpu_stream *stream)
{
    if (stream && gs_gpu_enter(gpu, NULL) == GS_OK)
        gpu->driver->stream_destroy(stream);
}

gs_status gs_gpu_driver_copy_in(struct gs_gpu *gpu, struct gs_gpu_stream *stream, void *device,
                                const void *host, uint64_t bytes, struct gs_error *error)
{
    gs_status status = gs_gpu_enter(gpu, error);
    if (status == GS_OK)
        status = gs_gpu_check(gpu->driver, gpu->driver->copy_in(device, host, bytes, stream), error,
                              "copying %llu bytes to the device", (unsigned long long)bytes);
    return status;
}

gs_status gs_gpu_driver_copy_out(struct gs_gpu *gpu, struct gs_gpu_stream *stream, void *host,
                                 const void *device, uint64_t bytes, struct gs_error *error)
{
    gs_status status = gs_gpu_enter(gpu, error);
    if (status == GS_OK)
        status = gs_gpu_check(gpu->driver, gpu->driver->copy_out(host, unconst(device), bytes, stream), error,
                              "copying %llu bytes from the device", (unsigned long long)bytes);
    return status;
}

gs_status gs_gpu_driver_copy(struct gs_gpu *gpu, struct gs_gpu_stream *stream, void *to, const void *from,
                             uint64_t bytes, struct gs_error *error)
{
    gs_status status = gs_gpu_enter(gpu, error);
    if (status == GS_OK)
        status = gs_gpu_check(gpu->driver, gpu->driver->copy(to, unconst(from), bytes, stream), error,
                              "copying %llu bytes on the device", (unsigned long long)bytes);
    return status;
}

gs_status gs_gpu_driver_zero(struct gs_gpu *gpu, struct gs_gpu_stream *stream, void *device, uint64_t bytes,
                             struct gs_error *error)
{
    gs_status status = gs_gpu_enter(gpu, error);
    if (status == GS_OK)
        status = gs_gpu_check(gpu->driver, gpu->driver->set(device, 0, bytes, stream), error,
                              "clearing %llu bytes", (unsigned long long)bytes);
    return status;
}

gs_status gs_gpu_driver_sync(struct gs_gpu *gpu, struct gs_gpu_stream *stream, struct gs_error *error)
{
    gs_status status = gs_gpu_enter(gpu, error);
    if (status == GS_OK)
        status = gs_gpu_check(gpu->driver, gpu->driver->stream_sync(stream), error, "waiting for the device");
    return status;
}

/* ---------------------------------------------------------------- graphs */

gs_status gs_gpu_driver_capture_begin(struct gs_gpu *gpu, struct gs_gpu_stream *stream,
                                      struct gs_error *error)
{
    gs_status status = gs_gpu_enter(gpu, error);
    if (status == GS_OK)
        status = check_call(gpu, gpu->driver->capture_begin(stream, GS_GPU_CAPTURE_THREAD_LOCAL),
                            CALL_capture_begin, error);
    return status;
}

gs_status gs_gpu_driver_capture_end(struct gs_gpu *gpu, struct gs_gpu_stream *stream,
                                    struct gs_gpu_graph **out, struct gs_error *error)
{
    struct gs_gpu_recording *recording = NULL;
    *out = NULL;
    gs_status status = gs_gpu_enter(gpu, error);
    if (status == GS_OK)
        status = check_call(gpu, gpu->driver->capture_end(stream, &recording), CALL_capture_end, error);
    if (status == GS_OK)
        status =
            check_call(gpu, gpu->driver->graph_instantiate(out, recording, 0), CALL_graph_instantiate, error);
    if (recording)
        gpu->driver->graph_destroy(recording);
    return status;
}

gs_status gs_gpu_driver_graph_launch(struct gs_gpu *gpu, struct gs_gpu_stream *stream,
                                     const struct gs_gpu_graph *graph, struct gs_error *error)
{
    gs_status status = gs_gpu_enter(gpu, error);
    if (status == GS_OK)
        status = check_call(gpu, gpu->driver->graph_launch(unconst(graph), stream), CALL_graph_launch, error);
    return status;
}

void gs_gpu_driver_graph_free(struct gs_gpu *gpu, struct gs_gpu_graph *graph)
{
    if (graph && gs_gpu_enter(gpu, NULL) == GS_OK)
        gpu->driver->graph_exec_destroy(graph);
}
