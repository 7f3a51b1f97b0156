/* backend/gpu/api.h by the CUDA driver: every function is one or two of its calls. */
#include "backend/cuda/device.h"

#include "backend/cuda/driver.h"
#include "backend/cuda/modules.h"
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIN_CAPABILITY 80 /* the oldest that kernels are compiled for */
#define MAX_KERNELS    256

struct kernel {
    const char *name;
    gs_cu_function function;
    unsigned shared_bytes; /* dynamic, that it may have */
    bool overlaps;         /* its multiprocessors are divided as those of its neighbours */
};

struct gs_gpu {
    struct gs_cuda_driver driver;
    gs_cu_device device;
    gs_cu_context context;
    bool has_context;
    gs_cu_module *modules; /* [gs_cuda_module_count] */
    struct kernel kernels[MAX_KERNELS];
    size_t n_kernels;
};

/* A stream and a graph are the driver's own handles, cast: nothing else belongs to them. */
static gs_cu_stream handle(struct gs_gpu_stream *stream)
{
    return (gs_cu_stream)(void *)stream;
}

static gs_cu_pointer address(const void *memory)
{
    return (gs_cu_pointer)(uintptr_t)memory;
}

static gs_status enter(struct gs_gpu *gpu, struct gs_error *error)
{
    return gs_cuda_check(&gpu->driver, gpu->driver.context_set(gpu->context), error, "cuCtxSetCurrent");
}

/* ---------------------------------------------------------------- devices */

static int attribute(const struct gs_cuda_driver *driver, gs_cu_device device, int which)
{
    int value = 0;
    return driver->device_attribute(&value, which, device) == GS_CU_SUCCESS ? value : 0;
}

/* Device number `index`, which must be there and new enough. */
static gs_status find_device(const struct gs_cuda_driver *driver, int index, gs_cu_device *device,
                             struct gs_gpu_machine *machine, struct gs_error *error)
{
    int count = 0;
    gs_status status = gs_cuda_check(driver, driver->device_count(&count), error, "cuDeviceGetCount");
    if (status != GS_OK)
        return status;
    if (count == 0)
        return gs_fail(error, GS_UNSUPPORTED, "the CUDA driver sees no device");
    if (index < 0 || index >= count)
        return gs_fail(error, GS_INVALID_ARGUMENT, "device %d: the cuda backend has devices 0 to %d here",
                       index, count - 1);
    status = gs_cuda_check(driver, driver->device_get(device, index), error, "cuDeviceGet %d", index);
    if (status != GS_OK)
        return status;
    machine->capability = 10 * attribute(driver, *device, GS_CU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                          attribute(driver, *device, GS_CU_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    machine->n_sm = attribute(driver, *device, GS_CU_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    machine->shared_bytes = attribute(driver, *device, GS_CU_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    machine->l2_bytes = attribute(driver, *device, GS_CU_ATTRIBUTE_L2_CACHE_SIZE);
    if (machine->capability < MIN_CAPABILITY)
        return gs_fail(error, GS_UNSUPPORTED,
                       "CUDA device %d has compute capability %d.%d: the kernels need %d.%d or later", index,
                       machine->capability / 10, machine->capability % 10, MIN_CAPABILITY / 10,
                       MIN_CAPABILITY % 10);
    return GS_OK;
}

static bool cuda_probe(int index, char *description, size_t size)
{
    struct gs_cuda_driver driver;
    struct gs_gpu_machine machine;
    struct gs_error error;
    gs_cu_device device = 0;
    char name[100] = "";
    size_t bytes = 0;
    gs_status status = gs_cuda_driver_open(&driver, &error);
    if (status == GS_OK)
        status = find_device(&driver, index, &device, &machine, &error);
    if (status != GS_OK) {
        gs_format(description, size, "%s", error.message);
        gs_cuda_driver_close(&driver);
        return false;
    }
    driver.device_name(name, sizeof name, device);
    driver.device_memory(&bytes, device);
    gs_format(description, size, "%s, compute capability %d.%d, %.1f GiB, driver of CUDA %d.%d", name,
              machine.capability / 10, machine.capability % 10, (double)bytes / (1 << 30),
              driver.version / 1000, driver.version % 1000 / 10);
    gs_cuda_driver_close(&driver);
    return true;
}

static void cuda_close(struct gs_gpu *gpu)
{
    if (!gpu)
        return;
    if (gpu->has_context && gpu->driver.context_set(gpu->context) == GS_CU_SUCCESS)
        for (size_t i = 0; gpu->modules && i < gs_cuda_module_count; i++)
            if (gpu->modules[i])
                gpu->driver.module_unload(gpu->modules[i]);
    if (gpu->has_context)
        gpu->driver.context_release(gpu->device);
    free(gpu->modules);
    gs_cuda_driver_close(&gpu->driver);
    free(gpu);
}

/* Takes down what a module has, by name. */
static gs_status list_kernels(struct gs_gpu *gpu, gs_cu_module module, struct gs_error *error)
{
    const struct gs_cuda_driver *driver = &gpu->driver;
    gs_cu_function functions[MAX_KERNELS];
    unsigned count = 0;
    gs_status status =
        gs_cuda_check(driver, driver->module_count(&count, module), error, "cuModuleGetFunctionCount");
    if (status == GS_OK && count > MAX_KERNELS - gpu->n_kernels)
        return gs_fail(error, GS_UNSUPPORTED, "cuda: more than %d kernels", MAX_KERNELS);
    if (status == GS_OK)
        status = gs_cuda_check(driver, driver->module_functions(functions, count, module), error,
                               "cuModuleEnumerateFunctions");
    for (unsigned i = 0; status == GS_OK && i < count; i++) {
        struct kernel *kernel = &gpu->kernels[gpu->n_kernels++];
        kernel->function = functions[i];
        status =
            gs_cuda_check(driver, driver->function_name(&kernel->name, functions[i]), error, "cuFuncGetName");
    }
    return status;
}

static gs_status load_modules(struct gs_gpu *gpu, struct gs_error *error)
{
    gpu->modules = calloc(gs_cuda_module_count, sizeof *gpu->modules);
    if (!gpu->modules)
        return gs_fail_memory(error, gs_cuda_module_count * sizeof *gpu->modules);
    gs_status status = GS_OK;
    for (size_t i = 0; status == GS_OK && i < gs_cuda_module_count; i++) {
        const struct gs_cuda_module *module = &gs_cuda_modules[i];
        gs_cu_result result = gpu->driver.module_load(&gpu->modules[i], module->image);
        /* Some kernels are for newer devices alone: their plans do not take an older one. */
        if (result == GS_CU_NO_BINARY_FOR_GPU && strcmp(module->name, "simple") != 0) {
            gpu->modules[i] = NULL;
            continue;
        }
        status = gs_cuda_check(&gpu->driver, result, error, "loading the kernels of %s", module->name);
        if (status == GS_OK)
            status = list_kernels(gpu, gpu->modules[i], error);
    }
    return status;
}

static gs_status cuda_open(int index, struct gs_gpu **out, struct gs_gpu_machine *machine,
                           struct gs_error *error)
{
    *out = NULL;
    struct gs_gpu *gpu = calloc(1, sizeof *gpu);
    if (!gpu)
        return gs_fail_memory(error, sizeof *gpu);
    gs_status status = gs_cuda_driver_open(&gpu->driver, error);
    if (status == GS_OK)
        status = find_device(&gpu->driver, index, &gpu->device, machine, error);
    if (status == GS_OK) {
        status = gs_cuda_check(&gpu->driver, gpu->driver.context_retain(&gpu->context, gpu->device), error,
                               "a context on device %d", index);
        gpu->has_context = status == GS_OK;
    }
    if (status == GS_OK)
        status = enter(gpu, error);
    if (status == GS_OK)
        status = load_modules(gpu, error);
    if (status != GS_OK) {
        cuda_close(gpu);
        return status;
    }
    *out = gpu;
    return GS_OK;
}

/* ---------------------------------------------------------------- memory */

static gs_status cuda_memory(struct gs_gpu *gpu, uint64_t *free_bytes, uint64_t *total_bytes,
                             struct gs_error *error)
{
    size_t available = 0, total = 0;
    gs_status status = enter(gpu, error);
    if (status == GS_OK)
        status =
            gs_cuda_check(&gpu->driver, gpu->driver.memory_info(&available, &total), error, "cuMemGetInfo");
    *free_bytes = available;
    *total_bytes = total;
    return status;
}

static gs_status cuda_alloc(struct gs_gpu *gpu, uint64_t bytes, const char *what, void **out,
                            struct gs_error *error)
{
    gs_cu_pointer pointer = 0;
    *out = NULL;
    gs_status status = enter(gpu, error);
    if (status == GS_OK)
        status = gs_cuda_check(&gpu->driver, gpu->driver.memory_alloc(&pointer, bytes > 0 ? bytes : 1), error,
                               "%.1f MiB of device memory for %s", (double)bytes / (1 << 20), what);
    if (status == GS_OK)
        *out = (void *)(uintptr_t)pointer;
    return status;
}

static void cuda_release(struct gs_gpu *gpu, void *memory)
{
    if (memory && enter(gpu, NULL) == GS_OK)
        gpu->driver.memory_free(address(memory));
}

static gs_status cuda_host_alloc(struct gs_gpu *gpu, uint64_t bytes, void **out, struct gs_error *error)
{
    *out = NULL;
    gs_status status = enter(gpu, error);
    if (status == GS_OK)
        status = gs_cuda_check(&gpu->driver, gpu->driver.host_alloc(out, bytes, 0), error,
                               "%.1f MiB of pinned memory", (double)bytes / (1 << 20));
    return status;
}

static void cuda_host_release(struct gs_gpu *gpu, void *memory)
{
    if (memory && enter(gpu, NULL) == GS_OK)
        gpu->driver.host_free(memory);
}

/* ---------------------------------------------------------------- streams */

static gs_status cuda_stream_open(struct gs_gpu *gpu, struct gs_gpu_stream **out, struct gs_error *error)
{
    gs_cu_stream stream = NULL;
    gs_status status = enter(gpu, error);
    if (status == GS_OK)
        status = gs_cuda_check(&gpu->driver, gpu->driver.stream_create(&stream, GS_CU_STREAM_NON_BLOCKING),
                               error, "cuStreamCreate");
    *out = (struct gs_gpu_stream *)(void *)stream;
    return status;
}

static void cuda_stream_close(struct gs_gpu *gpu, struct gs_gpu_stream *stream)
{
    if (stream && enter(gpu, NULL) == GS_OK)
        gpu->driver.stream_destroy(handle(stream));
}

static gs_status cuda_copy_in(struct gs_gpu *gpu, struct gs_gpu_stream *stream, void *device,
                              const void *host, uint64_t bytes, struct gs_error *error)
{
    gs_status status = enter(gpu, error);
    if (status == GS_OK)
        status =
            gs_cuda_check(&gpu->driver, gpu->driver.copy_in(address(device), host, bytes, handle(stream)),
                          error, "copying %llu bytes to the device", (unsigned long long)bytes);
    return status;
}

static gs_status cuda_copy_out(struct gs_gpu *gpu, struct gs_gpu_stream *stream, void *host,
                               const void *device, uint64_t bytes, struct gs_error *error)
{
    gs_status status = enter(gpu, error);
    if (status == GS_OK)
        status =
            gs_cuda_check(&gpu->driver, gpu->driver.copy_out(host, address(device), bytes, handle(stream)),
                          error, "copying %llu bytes from the device", (unsigned long long)bytes);
    return status;
}

static gs_status cuda_copy(struct gs_gpu *gpu, struct gs_gpu_stream *stream, void *to, const void *from,
                           uint64_t bytes, struct gs_error *error)
{
    gs_status status = enter(gpu, error);
    if (status == GS_OK)
        status =
            gs_cuda_check(&gpu->driver, gpu->driver.copy(address(to), address(from), bytes, handle(stream)),
                          error, "copying %llu bytes on the device", (unsigned long long)bytes);
    return status;
}

static gs_status cuda_zero(struct gs_gpu *gpu, struct gs_gpu_stream *stream, void *device, uint64_t bytes,
                           struct gs_error *error)
{
    gs_status status = enter(gpu, error);
    if (status == GS_OK)
        status = gs_cuda_check(&gpu->driver, gpu->driver.set(address(device), 0, bytes, handle(stream)),
                               error, "clearing %llu bytes", (unsigned long long)bytes);
    return status;
}

static gs_status cuda_sync(struct gs_gpu *gpu, struct gs_gpu_stream *stream, struct gs_error *error)
{
    gs_status status = enter(gpu, error);
    if (status == GS_OK)
        status = gs_cuda_check(&gpu->driver, gpu->driver.stream_sync(handle(stream)), error,
                               "waiting for the device");
    return status;
}

/* ---------------------------------------------------------------- launches */

static gs_status find_kernel(struct gs_gpu *gpu, const char *name, struct kernel **out,
                             struct gs_error *error)
{
    for (size_t i = 0; i < gpu->n_kernels; i++)
        if (strcmp(gpu->kernels[i].name, name) == 0) {
            *out = &gpu->kernels[i];
            return GS_OK;
        }
    return gs_fail(error, GS_UNSUPPORTED, "cuda: this build has no kernel %s", name);
}

/* More than 48 KiB of dynamic shared memory is given only to who asks. */
static gs_status allow_shared(struct gs_gpu *gpu, struct kernel *kernel, unsigned bytes,
                              struct gs_error *error)
{
    if (bytes <= kernel->shared_bytes)
        return GS_OK;
    gs_status status = gs_cuda_check(
        &gpu->driver,
        gpu->driver.function_set(kernel->function, GS_CU_FUNCTION_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)bytes),
        error, "%u bytes of shared memory for kernel %s", bytes, kernel->name);
    if (status == GS_OK)
        kernel->shared_bytes = bytes;
    return status;
}

/*
 * A multiprocessor holds two kernels at once only if both divide its memory between cache and shared memory
 * in the same way: kernels that overlap all ask for as much shared memory as there is.
 */
static gs_status allow_overlap(struct gs_gpu *gpu, struct kernel *kernel, struct gs_error *error)
{
    if (kernel->overlaps)
        return GS_OK;
    gs_status status = gs_cuda_check(
        &gpu->driver,
        gpu->driver.function_set(kernel->function, GS_CU_FUNCTION_PREFERRED_SHARED_MEMORY_CARVEOUT, 100),
        error, "the shared memory of kernel %s", kernel->name);
    kernel->overlaps = status == GS_OK;
    return status;
}

static gs_status cuda_launch(struct gs_gpu *gpu, struct gs_gpu_stream *stream,
                             const struct gs_gpu_launch *launch, const void *args, bool overlap,
                             struct gs_error *error)
{
    struct kernel *kernel = NULL;
    gs_status status = enter(gpu, error);
    if (status == GS_OK)
        status = find_kernel(gpu, launch->kernel, &kernel, error);
    if (status == GS_OK)
        status = allow_shared(gpu, kernel, launch->shared_bytes, error);
    if (status == GS_OK && overlap)
        status = allow_overlap(gpu, kernel, error);
    if (status != GS_OK)
        return status;
    struct gs_cu_launch_attribute attributes[2] = {0};
    struct gs_cu_launch_config config = {.grid_x = launch->grid[0],
                                         .grid_y = launch->grid[1],
                                         .grid_z = launch->grid[2],
                                         .block_x = launch->block,
                                         .block_y = 1,
                                         .block_z = 1,
                                         .shared_bytes = launch->shared_bytes,
                                         .stream = handle(stream),
                                         .attributes = attributes};
    if (overlap) {
        attributes[config.n_attributes].id = GS_CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attributes[config.n_attributes++].value.value = 1;
    }
    if (launch->cooperative) {
        attributes[config.n_attributes].id = GS_CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        attributes[config.n_attributes++].value.value = 1;
    }
    union { /* the driver takes a pointer to what it only reads */
        const void *read;
        void *passed;
    } parameter = {.read = args};
    void *parameters[1] = {parameter.passed};
    return gs_cuda_check(&gpu->driver, gpu->driver.launch(&config, kernel->function, parameters, NULL), error,
                         "kernel %s, grid %u x %u x %u of %u", launch->kernel, launch->grid[0],
                         launch->grid[1], launch->grid[2], launch->block);
}

/* ---------------------------------------------------------------- graphs */

static gs_status cuda_capture_begin(struct gs_gpu *gpu, struct gs_gpu_stream *stream, struct gs_error *error)
{
    gs_status status = enter(gpu, error);
    if (status == GS_OK)
        status = gs_cuda_check(
            &gpu->driver, gpu->driver.capture_begin(handle(stream), GS_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            error, "cuStreamBeginCapture");
    return status;
}

static gs_status cuda_capture_end(struct gs_gpu *gpu, struct gs_gpu_stream *stream, struct gs_gpu_graph **out,
                                  struct gs_error *error)
{
    gs_cu_graph graph = NULL;
    gs_cu_graph_exec exec = NULL;
    *out = NULL;
    gs_status status = enter(gpu, error);
    if (status == GS_OK)
        status = gs_cuda_check(&gpu->driver, gpu->driver.capture_end(handle(stream), &graph), error,
                               "cuStreamEndCapture");
    if (status == GS_OK)
        status = gs_cuda_check(&gpu->driver, gpu->driver.graph_instantiate(&exec, graph, 0), error,
                               "cuGraphInstantiate");
    if (graph)
        gpu->driver.graph_destroy(graph);
    *out = (struct gs_gpu_graph *)(void *)exec;
    return status;
}

static gs_status cuda_graph_launch(struct gs_gpu *gpu, struct gs_gpu_stream *stream,
                                   const struct gs_gpu_graph *graph, struct gs_error *error)
{
    union {
        const void *read;
        void *passed;
    } exec = {.read = graph};
    gs_status status = enter(gpu, error);
    if (status == GS_OK)
        status = gs_cuda_check(&gpu->driver,
                               gpu->driver.graph_launch((gs_cu_graph_exec)exec.passed, handle(stream)), error,
                               "cuGraphLaunch");
    return status;
}

static void cuda_graph_free(struct gs_gpu *gpu, struct gs_gpu_graph *graph)
{
    if (graph && enter(gpu, NULL) == GS_OK)
        gpu->driver.graph_exec_destroy((gs_cu_graph_exec)(void *)graph);
}

const struct gs_gpu_api gs_cuda_api = {
    .name = "cuda",
    .probe = cuda_probe,
    .open = cuda_open,
    .close = cuda_close,
    .memory = cuda_memory,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .host_alloc = cuda_host_alloc,
    .host_release = cuda_host_release,
    .stream_open = cuda_stream_open,
    .stream_close = cuda_stream_close,
    .copy_in = cuda_copy_in,
    .copy_out = cuda_copy_out,
    .copy = cuda_copy,
    .zero = cuda_zero,
    .sync = cuda_sync,
    .launch = cuda_launch,
    .capture_begin = cuda_capture_begin,
    .capture_end = cuda_capture_end,
    .graph_launch = cuda_graph_launch,
    .graph_free = cuda_graph_free,
};
