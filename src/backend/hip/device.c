/* The HIP side of backend/gpu/api.h: devices, code objects and launches. */
#include "backend/hip/device.h"

#include "backend/hip/driver.h"
#include "backend/hip/modules.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

#define MAX_KERNELS  64
#define SHARED_BYTES (64 * 1024) /* of a block: every device that there are kernels for has as much */

struct kernel {
    const char *name; /* the launch's: names of kernels are constants */
    struct gs_gpu_function *function;
};

/* What a gs_gpu is here. */
struct hip {
    struct gs_gpu base;
    struct gs_hip_driver driver;
    int device;
    const char *arch; /* of the code object that the device took */
    struct gs_gpu_module *module;
    struct kernel kernels[MAX_KERNELS]; /* those launched so far */
    size_t n_kernels;
};

static struct hip *hip_of(struct gs_gpu *gpu)
{
    return (struct hip *)gpu;
}

static int enter(struct gs_gpu *gpu)
{
    return hip_of(gpu)->driver.set_device(hip_of(gpu)->device);
}

/* ---------------------------------------------------------------- devices */

static const char *device_name(const struct hip *hip, char *name, int size)
{
    name[0] = '\0';
    if (hip->driver.common.device_name(name, size, hip->device) != GS_GPU_SUCCESS || name[0] == '\0')
        return "a device without a name";
    return name;
}

static gs_status refuse_device(const struct hip *hip, int index, int result, struct gs_error *error)
{
    char name[100], archs[200] = "";
    for (size_t i = 0; i < gs_hip_module_count; i++) {
        size_t used = strlen(archs);
        gs_format(archs + used, sizeof archs - used, "%s%s", i > 0 ? ", " : "", gs_hip_modules[i].arch);
    }
    return gs_fail(error, GS_UNSUPPORTED,
                   "hip: device %d (%s) takes none of this build's kernels, which are for %s (%s)", index,
                   device_name(hip, name, sizeof name), archs, hip->driver.error_name(result));
}

/*
 * The first code object that the device takes. Asking the device what it is would need a structure that
 * differs between versions of the library; and versions differ in what they answer to a code object for
 * another device, so that any refusal but "no memory" means the next one.
 */
static gs_status load_module(struct hip *hip, int index, struct gs_error *error)
{
    int result = GS_GPU_NO_BINARY;
    for (size_t i = 0; i < gs_hip_module_count; i++) {
        result = hip->driver.common.module_load(&hip->module, gs_hip_modules[i].image);
        if (result == GS_GPU_SUCCESS) {
            hip->arch = gs_hip_modules[i].arch;
            return GS_OK;
        }
        hip->module = NULL;
        if (result == GS_GPU_NO_MEMORY)
            return gs_gpu_check(&hip->driver.common, result, error, "loading the kernels");
    }
    return refuse_device(hip, index, result, error);
}

static void hip_close(struct gs_gpu *gpu)
{
    if (!gpu)
        return;
    struct hip *hip = hip_of(gpu);
    if (hip->module && enter(gpu) == GS_GPU_SUCCESS)
        hip->driver.common.module_unload(hip->module);
    gs_gpu_driver_close(&hip->driver.common);
    free(hip);
}

static gs_status hip_open(int index, struct gs_gpu **out, struct gs_gpu_machine *machine,
                          struct gs_error *error)
{
    *out = NULL;
    /* Of a capability below all that the families of fast kernels ask for: those are NVIDIA's instructions.
     */
    *machine = (struct gs_gpu_machine){.shared_bytes = SHARED_BYTES};
    struct hip *hip = calloc(1, sizeof *hip);
    if (!hip)
        return gs_fail_memory(error, sizeof *hip);
    hip->base = (struct gs_gpu){.driver = &hip->driver.common, .enter = enter};
    gs_status status = gs_hip_driver_open(&hip->driver, error);
    if (status == GS_OK)
        status = gs_gpu_find_device(&hip->driver.common, index, &hip->device, error);
    if (status == GS_OK)
        status = gs_gpu_enter(&hip->base, error);
    if (status == GS_OK)
        status = load_module(hip, index, error);
    if (status != GS_OK) {
        hip_close(&hip->base);
        return status;
    }
    *out = &hip->base;
    return GS_OK;
}

static bool hip_probe(int index, char *description, size_t size)
{
    struct gs_gpu *gpu = NULL;
    struct gs_gpu_machine machine;
    struct gs_error error;
    char name[100];
    size_t bytes = 0;
    if (hip_open(index, &gpu, &machine, &error) != GS_OK) {
        gs_format(description, size, "%s", error.message);
        return false;
    }
    const struct hip *hip = hip_of(gpu);
    hip->driver.common.device_memory(&bytes, hip->device);
    gs_format(description, size, "%s, kernels for %s, %.1f GiB, HIP %d.%d",
              device_name(hip, name, sizeof name), hip->arch, (double)bytes / (1 << 30),
              hip->driver.version / 10000000, hip->driver.version / 100000 % 100);
    hip_close(gpu);
    return true;
}

/* ---------------------------------------------------------------- launches */

static gs_status find_kernel(struct hip *hip, const char *name, struct gs_gpu_function **out,
                             struct gs_error *error)
{
    for (size_t i = 0; i < hip->n_kernels; i++)
        if (strcmp(hip->kernels[i].name, name) == 0) {
            *out = hip->kernels[i].function;
            return GS_OK;
        }
    if (hip->n_kernels == MAX_KERNELS)
        return gs_fail(error, GS_UNSUPPORTED, "hip: more than %d kernels", MAX_KERNELS);
    int result = hip->driver.module_function(out, hip->module, name);
    if (result == GS_HIP_NOT_FOUND)
        return gs_fail(error, GS_UNSUPPORTED, "hip: this build has no kernel %s", name);
    gs_status status = gs_gpu_check(&hip->driver.common, result, error, "kernel %s", name);
    if (status == GS_OK)
        hip->kernels[hip->n_kernels++] = (struct kernel){name, *out};
    return status;
}

/* Neither `overlap` nor launch->cooperative: no kernel here asks for them. */
static gs_status hip_launch(struct gs_gpu *gpu, struct gs_gpu_stream *stream,
                            const struct gs_gpu_launch *launch, const void *args, bool overlap,
                            struct gs_error *error)
{
    struct hip *hip = hip_of(gpu);
    struct gs_gpu_function *function = NULL;
    (void)overlap;
    gs_status status = gs_gpu_enter(gpu, error);
    if (status == GS_OK && launch->cooperative)
        return gs_fail(error, GS_UNSUPPORTED, "hip: kernel %s asks for all its blocks at once",
                       launch->kernel);
    if (status == GS_OK)
        status = find_kernel(hip, launch->kernel, &function, error);
    if (status != GS_OK)
        return status;
    union { /* the library takes a pointer to what it only reads */
        const void *read;
        void *passed;
    } parameter = {.read = args};
    void *parameters[1] = {parameter.passed};
    const uint32_t *grid = launch->grid;
    return gs_gpu_check(&hip->driver.common,
                        hip->driver.launch(function, grid[0], grid[1], grid[2], launch->block, 1, 1,
                                           launch->shared_bytes, stream, parameters, NULL),
                        error, "kernel %s, grid %u x %u x %u of %u", launch->kernel, grid[0], grid[1],
                        grid[2], launch->block);
}

const struct gs_gpu_api gs_hip_api = {
    .name = "hip",
    .probe = hip_probe,
    .open = hip_open,
    .close = hip_close,
    .launch = hip_launch,
    GS_GPU_DRIVER_ENTRIES,
};
