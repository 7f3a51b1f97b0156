#include "backend/cuda/driver.h"

#include "backend/cuda/modules.h"
#include "base/status.h"

static const char *const file_names[] = {"libcuda.so.1", "libcuda.so", NULL};

static const char *const call_names[] = {
#define NAME(field, cuda, hip, parameters) #cuda,
    GS_GPU_CALLS(NAME)
#undef NAME
};

static void describe(const struct gs_gpu_driver *common, int result, const char **name, const char **text)
{
    const struct gs_cuda_driver *driver = (const struct gs_cuda_driver *)common;
    driver->error_name(result, name);
    driver->error_string(result, text);
}

/* The version is told even where there is no device. */
static gs_status start(struct gs_gpu_driver *common, struct gs_error *error)
{
    struct gs_cuda_driver *driver = (struct gs_cuda_driver *)common;
    gs_status status =
        gs_gpu_check(common, common->driver_version(&driver->version), error, "driver version");
    if (status == GS_OK && driver->version / 1000 < gs_cuda_toolkit / 1000)
        return gs_fail(error, GS_UNSUPPORTED,
                       "the CUDA driver here is of version %d.%d: this build needs %d.0 or later",
                       driver->version / 1000, driver->version % 1000 / 10, gs_cuda_toolkit / 1000);
    if (status == GS_OK)
        status = gs_gpu_check(common, common->init(0), error, "cuInit");
    return status;
}

static const struct gs_gpu_own_call own_calls[] = {
#define CALL(field, name, parameters) {#name, offsetof(struct gs_cuda_driver, field)},
    GS_CU_CALLS(CALL)
#undef CALL
};

static const int unsupported[] = {GS_CU_UNSUPPORTED_PTX_VERSION, GS_CU_SYSTEM_DRIVER_MISMATCH, 0};

static const struct gs_gpu_vendor vendor = {
    .name = "cuda",
    .product = "CUDA driver",
    .needed = "CUDA 12.4 or later",
    .file_names = file_names,
    .call_names = call_names,
    .own = own_calls,
    .n_own = sizeof own_calls / sizeof *own_calls,
    .bytes = sizeof(struct gs_cuda_driver),
    .unsupported = unsupported,
    .enter_name = "cuCtxSetCurrent",
    .start = start,
    .describe = describe,
};

gs_status gs_cuda_driver_open(struct gs_cuda_driver *driver, struct gs_error *error)
{
    *driver = (struct gs_cuda_driver){0};
    if (gs_cuda_module_count == 0)
        return gs_fail(error, GS_UNSUPPORTED, "this build has no CUDA kernels: it was made without nvcc");
    return gs_gpu_driver_open(&driver->common, &vendor, error);
}
