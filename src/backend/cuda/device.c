/* The CUDA side of backend/gpu/api.h: devices, contexts, modules and launches. */
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
    struct gs_gpu_function *function;
    unsigned shared_bytes; /* dynamic, that it may have */
    bool overlaps;         /* its multiprocessors are divided as those of its neighbours */
};

/* What a gs_gpu is here. */
struct cuda {
    struct gs_gpu base;
    struct gs_cuda_driver driver;
    int device;
    struct gs_cu_context *context;
    bool has_context;
    struct gs_gpu_module **modules; /* [gs_cuda_module_count] */
    struct kernel kernels[MAX_KERNELS];
    size_t n_kernels;
};

static struct cuda *cuda_of(struct gs_gpu *gpu)
{
    return (struct cuda *)gpu;
}

static int enter(struct gs_gpu *gpu)
{
    return cuda_of(gpu)->driver.context_set(cuda_of(gpu)->context);
}

/* ---------------------------------------------------------------- devices */

static int attribute(const struct gs_cuda_driver *driver, int device, int which)
{
    int value = 0;
    return driver->device_attribute(&value, which, device) == GS_GPU_SUCCESS ? value : 0;
}

/* Device number `index`, which must be there and new enough. */
static gs_status find_device(const struct gs_cuda_driver *driver, int index, int *device,
                             struct gs_gpu_machine *machine, struct gs_error *error)
{
    gs_status status = gs_gpu_find_device(&driver->common, index, device, error);
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
    int device = 0;
    char name[100] = "";
    size_t bytes = 0;
    gs_status status = gs_cuda_driver_open(&driver, &error);
    if (status == GS_OK)
        status = find_device(&driver, index, &device, &machine, &error);
    if (status != GS_OK) {
        gs_format(description, size, "%s", error.message);
        gs_gpu_driver_close(&driver.common);
        return false;
    }
    driver.common.device_name(name, sizeof name, device);
    driver.common.device_memory(&bytes, device);
    gs_format(description, size, "%s, compute capability %d.%d, %.1f GiB, driver of CUDA %d.%d", name,
              machine.capability / 10, machine.capability % 10, (double)bytes / (1 << 30),
              driver.version / 1000, driver.version % 1000 / 10);
    gs_gpu_driver_close(&driver.common);
    return true;
}

static void cuda_close(struct gs_gpu *gpu)
{
    if (!gpu)
        return;
    struct cuda *cuda = cuda_of(gpu);
    if (cuda->has_context && enter(gpu) == GS_GPU_SUCCESS)
        for (size_t i = 0; cuda->modules && i < gs_cuda_module_count; i++)
            if (cuda->modules[i])
                cuda->driver.common.module_unload(cuda->modules[i]);
    if (cuda->has_context)
        cuda->driver.context_release(cuda->device);
    free(cuda->modules);
    gs_gpu_driver_close(&cuda->driver.common);
    free(cuda);
}

/* Takes down what a module has, by name. */
static gs_status list_kernels(struct cuda *cuda, struct gs_gpu_module *module, struct gs_error *error)
{
    const struct gs_cuda_driver *driver = &cuda->driver;
    struct gs_gpu_function *functions[MAX_KERNELS];
    unsigned count = 0;
    gs_status status = gs_gpu_check(&driver->common, driver->module_count(&count, module), error,
                                    "cuModuleGetFunctionCount");
    if (status == GS_OK && count > MAX_KERNELS - cuda->n_kernels)
        return gs_fail(error, GS_UNSUPPORTED, "cuda: more than %d kernels", MAX_KERNELS);
    if (status == GS_OK)
        status = gs_gpu_check(&driver->common, driver->module_functions(functions, count, module), error,
                              "cuModuleEnumerateFunctions");
    for (unsigned i = 0; status == GS_OK && i < count; i++) {
        struct kernel *kernel = &cuda->kernels[cuda->n_kernels++];
        kernel->function = functions[i];
        status = gs_gpu_check(&driver->common, driver->function_name(&kernel->name, functions[i]), error,
                              "cuFuncGetName");
    }
    return status;
}

static gs_status load_modules(struct cuda *cuda, struct gs_error *error)
{
    cuda->modules = calloc(gs_cuda_module_count, sizeof *cuda->modules);
    if (!cuda->modules)
        return gs_fail_memory(error, gs_cuda_module_count * sizeof *cuda->modules);
    gs_status status = GS_OK;
    for (size_t i = 0; status == GS_OK && i < gs_cuda_module_count; i++) {
        const struct gs_cuda_module *module = &gs_cuda_modules[i];
        int result = cuda->driver.common.module_load(&cuda->modules[i], module->image);
        /* Some kernels are for newer devices alone: their plans do not take an older one. */
        if (result == GS_GPU_NO_BINARY && strcmp(module->name, "simple") != 0) {
            cuda->modules[i] = NULL;
            continue;
        }
        status = gs_gpu_check(&cuda->driver.common, result, error, "loading the kernels of %s", module->name);
        if (status == GS_OK)
            status = list_kernels(cuda, cuda->modules[i], error);
    }
    return status;
}

static gs_status cuda_open(int index, struct gs_gpu **out, struct gs_gpu_machine *machine,
                           struct gs_error *error)
{
    *out = NULL;
    struct cuda *cuda = calloc(1, sizeof *cuda);
    if (!cuda)
        return gs_fail_memory(error, sizeof *cuda);
    cuda->base = (struct gs_gpu){.driver = &cuda->driver.common, .enter = enter};
    gs_status status = gs_cuda_driver_open(&cuda->driver, error);
    if (status == GS_OK)
        status = find_device(&cuda->driver, index, &cuda->device, machine, error);
    if (status == GS_OK) {
        status = gs_gpu_check(&cuda->driver.common, cuda->driver.context_retain(&cuda->context, cuda->device),
                              error, "a context on device %d", index);
        cuda->has_context = status == GS_OK;
    }
    if (status == GS_OK)
        status = gs_gpu_enter(&cuda->base, error);
    if (status == GS_OK)
        status = load_modules(cuda, error);
    if (status != GS_OK) {
        cuda_close(&cuda->base);
        return status;
    }
    *out = &cuda->base;
    return GS_OK;
}

/* ---------------------------------------------------------------- launches */

static gs_status find_kernel(struct cuda *cuda, const char *name, struct kernel **out, struct gs_error *error)
{
    for (size_t i = 0; i < cuda->n_kernels; i++)
        if (strcmp(cuda->kernels[i].name, name) == 0) {
            *out = &cuda->kernels[i];
            return GS_OK;
        }
    return gs_fail(error, GS_UNSUPPORTED, "cuda: this build has no kernel %s", name);
}

/* More than 48 KiB of dynamic shared memory is given only to who asks. */
static gs_status allow_shared(struct cuda *cuda, struct kernel *kernel, unsigned bytes,
                              struct gs_error *error)
{
    if (bytes <= kernel->shared_bytes)
        return GS_OK;
    gs_status status = gs_gpu_check(
        &cuda->driver.common,
        cuda->driver.function_set(kernel->function, GS_CU_FUNCTION_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)bytes),
        error, "%u bytes of shared memory for kernel %s", bytes, kernel->name);
    if (status == GS_OK)
        kernel->shared_bytes = bytes;
    return status;
}

/*
 * A multiprocessor holds two kernels at once only if both divide its memory between cache and shared memory
 * in the same way: kernels that overlap all ask for as much shared memory as there is.
 */
static gs_status allow_overlap(struct cuda *cuda, struct kernel *kernel, struct gs_error *error)
{
    if (kernel->overlaps)
        return GS_OK;
    gs_status status = gs_gpu_check(
        &cuda->driver.common,
        cuda->driver.function_set(kernel->function, GS_CU_FUNCTION_PREFERRED_SHARED_MEMORY_CARVEOUT, 100),
        error, "the shared memory of kernel %s", kernel->name);
    kernel->overlaps = status == GS_OK;
    return status;
}

static gs_status cuda_launch(struct gs_gpu *gpu, struct gs_gpu_stream *stream,
                             const struct gs_gpu_launch *launch, const void *args, bool overlap,
                             struct gs_error *error)
{
    struct cuda *cuda = cuda_of(gpu);
    struct kernel *kernel = NULL;
    gs_status status = gs_gpu_enter(gpu, error);
    if (status == GS_OK)
        status = find_kernel(cuda, launch->kernel, &kernel, error);
    if (status == GS_OK)
        status = allow_shared(cuda, kernel, launch->shared_bytes, error);
    if (status == GS_OK && overlap)
        status = allow_overlap(cuda, kernel, error);
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
                                         .stream = stream,
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
    return gs_gpu_check(&cuda->driver.common,
                        cuda->driver.launch(&config, kernel->function, parameters, NULL), error,
                        "kernel %s, grid %u x %u x %u of %u", launch->kernel, launch->grid[0],
                        launch->grid[1], launch->grid[2], launch->block);
}

const struct gs_gpu_api gs_cuda_api = {
    .name = "cuda",
    .probe = cuda_probe,
    .open = cuda_open,
    .close = cuda_close,
    .launch = cuda_launch,
    GS_GPU_DRIVER_ENTRIES,
};
