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

static gs_status start(struct gs_gpu_driver *common, struct gs_error *error)
{
    struct gs_hip_driver *driver = (struct gs_hip_driver *)common;
    int result = common->init(0);
    if (result == GS_GPU_NO_DEVICE || result == GS_HIP_INVALID_DEVICE)
        return gs_fail(error, GS_UNSUPPORTED, "the HIP library sees no device (hipInit: %s)",
                       driver->error_name(result));
    gs_status status = gs_gpu_check(common, result, error, "hipInit");
    if (status == GS_OK)
        status = gs_gpu_check(common, common->driver_version(&driver->version), error, "hipDriverGetVersion");
    return status;
}

static const struct gs_gpu_own_call own_calls[] = {
#define CALL(field, name, parameters) {#name, offsetof(struct gs_hip_driver, field)},
    GS_HIP_CALLS(CALL) GS_HIP_TEXTS(CALL)
#undef CALL
};

static const int unsupported[] = {GS_HIP_INVALID_DEVICE, 0};

static const struct gs_gpu_vendor vendor = {
    .name = "hip",
    .product = "HIP library",
    .needed = "ROCm 5.2 or later",
    .file_names = file_names,
    .call_names = call_names,
    .own = own_calls,
    .n_own = sizeof own_calls / sizeof *own_calls,
    .bytes = sizeof(struct gs_hip_driver),
    .unsupported = unsupported,
    .enter_name = "hipSetDevice",
    .start = start,
    .describe = describe,
};

gs_status gs_hip_driver_open(struct gs_hip_driver *driver, struct gs_error *error)
{
    *driver = (struct gs_hip_driver){0};
    if (gs_hip_module_count == 0)
        return gs_fail(error, GS_UNSUPPORTED,
                       "this build has no HIP kernels: it was made without a clang that compiles them");
    return gs_gpu_driver_open(&driver->common, &vendor, error);
}
