#include "backend/cuda/driver.h"

#include "backend/cuda/modules.h"
#include "base/status.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const library_names[] = {"libcuda.so.1", "libcuda.so"};

static gs_status find_functions(struct gs_cuda_driver *driver, struct gs_error *error)
{
    void *found;
    /* A data pointer to a function pointer: POSIX allows it, C does not; memcpy says what is meant. */
#define GS_CU_FIND(field, name, parameters)                                                                  \
    found = dlsym(driver->library, name);                                                                    \
    if (!found)                                                                                              \
        return gs_fail(error, GS_UNSUPPORTED,                                                                \
                       "the CUDA driver here has no %s: it is too old, must be of CUDA 12.4 or later",       \
                       name);                                                                                \
    memcpy(&driver->field, &found, sizeof found);
    GS_CU_FUNCTIONS(GS_CU_FIND)
#undef GS_CU_FIND
    return GS_OK;
}

static gs_status start(struct gs_cuda_driver *driver, struct gs_error *error)
{
    gs_status status = find_functions(driver, error);
    if (status != GS_OK)
        return status;
    /* The version is told even where there is no device. */
    status = gs_cuda_check(driver, driver->driver_version(&driver->version), error, "driver version");
    if (status == GS_OK && driver->version / 1000 < gs_cuda_toolkit / 1000)
        return gs_fail(error, GS_UNSUPPORTED,
                       "the CUDA driver here is of version %d.%d: this build needs %d.0 or later",
                       driver->version / 1000, driver->version % 1000 / 10, gs_cuda_toolkit / 1000);
    if (status == GS_OK)
        status = gs_cuda_check(driver, driver->init(0), error, "cuInit");
    return status;
}

gs_status gs_cuda_driver_open(struct gs_cuda_driver *driver, struct gs_error *error)
{
    *driver = (struct gs_cuda_driver){0};
    if (gs_cuda_module_count == 0)
        return gs_fail(error, GS_UNSUPPORTED, "this build has no CUDA kernels: it was made without nvcc");
    /* Never unmapped again: the driver may have threads of its own once it was initialised. */
    for (size_t i = 0; i < sizeof library_names / sizeof *library_names && !driver->library; i++)
        driver->library = dlopen(library_names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!driver->library)
        return gs_fail(error, GS_UNSUPPORTED, "no CUDA driver here: %s cannot be opened", library_names[0]);
    gs_status status = start(driver, error);
    if (status != GS_OK)
        gs_cuda_driver_close(driver);
    return status;
}

void gs_cuda_driver_close(struct gs_cuda_driver *driver)
{
    if (driver->library)
        dlclose(driver->library);
    *driver = (struct gs_cuda_driver){0};
}

static gs_status status_of(gs_cu_result result)
{
    switch (result) {
    case GS_CU_SUCCESS:
        return GS_OK;
    case GS_CU_OUT_OF_MEMORY:
        return GS_OUT_OF_MEMORY;
    case GS_CU_NO_DEVICE:
    case GS_CU_NO_BINARY_FOR_GPU:
    case GS_CU_UNSUPPORTED_PTX_VERSION:
    case GS_CU_SYSTEM_DRIVER_MISMATCH:
        return GS_UNSUPPORTED;
    default:
        return GS_IO;
    }
}

gs_status gs_cuda_check(const struct gs_cuda_driver *driver, gs_cu_result result, struct gs_error *error,
                        const char *action, ...)
{
    if (result == GS_CU_SUCCESS)
        return GS_OK;
    const char *name = NULL, *text = NULL;
    char where[200];
    va_list arguments;
    va_start(arguments, action);
    vsnprintf(where, sizeof where, action, arguments);
    va_end(arguments);
    driver->error_name(result, &name);
    driver->error_string(result, &text);
    return gs_fail(error, status_of(result), "cuda: %s: %s (%s)", where, name ? name : "unknown error",
                   text ? text : "no description");
}
