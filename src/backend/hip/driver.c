#include "backend/hip/driver.h"

#include "backend/hip/modules.h"
#include "base/status.h"

/* The name without a version is that of a development package; the others are of ROCm 6, 7 and 5. */
static const char *const file_names[] = {"libamdhip64.so", "libamdhip64.so.6", "libamdhip64.so.7",
                                         "libamdhip64.so.5", NULL};

static const char *const call_names[] = {
#define NAME(field, cuda, hip, parameters) #hip,
    GS_GPU_CALLS(NAME)
#undef NAME
};

static void describe(const struct gs_gpu_driver *common, int result, const char **name, const char **text)
{
    const struct gs_hip_driver *driver = (const struct gs_hip_driver *)common;
    *name = driver->error_name(result);
    *text = driver->error_string(result);
}

static gs_status status_of(int result)
{
    switch (result) {
    case GS_GPU_NO_MEMORY:
        return GS_OUT_OF_MEMORY;
    case GS_GPU_NO_DEVICE:
    case GS_GPU_NO_BINARY:
    case GS_HIP_INVALID_DEVICE:
        return GS_UNSUPPORTED;
    default:
        return GS_IO;
    }
}

static const struct gs_gpu_vendor vendor = {
    .name = "hip",
    .product = "HIP library",
    .needed = "ROCm 5.2 or later",
    .file_names = file_names,
    .call_names = call_names,
    .enter_name = "hipSetDevice",
    .enter = gs_hip_enter,
    .describe = describe,
    .status_of = status_of,
};

static gs_status start(struct gs_hip_driver *driver, struct gs_error *error)
{
    gs_status status = GS_OK;
#define FIND(field, name, parameters)                                                                        \
    if (status == GS_OK)                                                                                     \
        status = gs_gpu_driver_find(&driver->common, #name, &driver->field, error);
    GS_HIP_CALLS(FIND)
    GS_HIP_TEXTS(FIND)
#undef FIND
    if (status != GS_OK)
        return status;
    int result = driver->common.init(0);
    if (result == GS_GPU_NO_DEVICE || result == GS_HIP_INVALID_DEVICE)
        return gs_fail(error, GS_UNSUPPORTED, "the HIP library sees no device (hipInit: %s)",
                       driver->error_name(result));
    status = gs_gpu_check(&driver->common, result, error, "hipInit");
    if (status == GS_OK)
        status = gs_gpu_check(&driver->common, driver->common.driver_version(&driver->version), error,
                              "hipDriverGetVersion");
    return status;
}

gs_status gs_hip_driver_open(struct gs_hip_driver *driver, struct gs_error *error)
{
    *driver = (struct gs_hip_driver){0};
    if (gs_hip_module_count == 0)
        return gs_fail(error, GS_UNSUPPORTED,
                       "this build has no HIP kernels: it was made without a clang that compiles them");
    gs_status status = gs_gpu_driver_open(&driver->common, &vendor, error);
    if (status == GS_OK)
        status = start(driver, error);
    if (status != GS_OK)
        gs_hip_driver_close(driver);
    return status;
}

void gs_hip_driver_close(struct gs_hip_driver *driver)
{
    gs_gpu_driver_close(&driver->common);
    *driver = (struct gs_hip_driver){0};
}
