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

static gs_status status_of(int result)
{
    switch (result) {
    case GS_GPU_NO_MEMORY:
        return GS_OUT_OF_MEMORY;
    case GS_GPU_NO_DEVICE:
    case GS_GPU_NO_BINARY:
    case GS_CU_UNSUPPORTED_PTX_VERSION:
    case GS_CU_SYSTEM_DRIVER_MISMATCH:
        return GS_UNSUPPORTED;
    default:
        return GS_IO;
    }
}

static const struct gs_gpu_vendor vendor = {
    .name = "cuda",
    .product = "CUDA driver",
    .needed = "CUDA 12.4 or later",
    .file_names = file_names,
    .call_names = call_names,
    .enter_name = "cuCtxSetCurrent",
    .enter = gs_cuda_enter,
    .describe = describe,
    .status_of = status_of,
};

static gs_status find_calls(struct gs_cuda_driver *driver, struct gs_error *error)
{
    gs_status status = GS_OK;
#define FIND(field, name, parameters)                                                                        \
    if (status == GS_OK)                                                                                     \
        status = gs_gpu_driver_find(&driver->common, #name, &driver->field, error);
    GS_CU_CALLS(FIND)
#undef FIND
    return status;
}

static gs_status start(struct gs_cuda_driver *driver, struct gs_error *error)
{
    gs_status status = find_calls(driver, error);
    if (status != GS_OK)
        return status;
    /* The version is told even where there is no device. */
    status = gs_gpu_check(&driver->common, driver->common.driver_version(&driver->version), error,
                          "driver version");
    if (status == GS_OK && driver->version / 1000 < gs_cuda_toolkit / 1000)
        return gs_fail(error, GS_UNSUPPORTED,
                       "the CUDA driver here is of version %d.%d: this build needs %d.0 or later",
                       driver->version / 1000, driver->version % 1000 / 10, gs_cuda_toolkit / 1000);
    if (status == GS_OK)
        status = gs_gpu_check(&driver->common, driver->common.init(0), error, "cuInit");
    return status;
}

gs_status gs_cuda_driver_open(struct gs_cuda_driver *driver, struct gs_error *error)
{
    *driver = (struct gs_cuda_driver){0};
    if (gs_cuda_module_count == 0)
        return gs_fail(error, GS_UNSUPPORTED, "this build has no CUDA kernels: it was made without nvcc");
    gs_status status = gs_gpu_driver_open(&driver->common, &vendor, error);
    if (status == GS_OK)
        status = start(driver, error);
    if (status != GS_OK)
        gs_cuda_driver_close(driver);
    return status;
}

void gs_cuda_driver_close(struct gs_cuda_driver *driver)
{
    gs_gpu_driver_close(&driver->common);
    *driver = (struct gs_cuda_driver){0};
}
