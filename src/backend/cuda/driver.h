/*
 * The CUDA driver, opened at run time: no CUDA library is linked and no CUDA header needed. Here is what HIP
 * does not have alike (gpu/driver.h). The names, types and values are those of the driver's published
 * interface (version 12 and later); tests/backend/check_cuda_header.c lets the compiler compare them with
 * cuda.h where that is installed.
 */
#ifndef GS_BACKEND_CUDA_DRIVER_H
#define GS_BACKEND_CUDA_DRIVER_H

#include "backend/gpu/driver.h"

enum {
    GS_CU_UNSUPPORTED_PTX_VERSION = 222,
    GS_CU_SYSTEM_DRIVER_MISMATCH = 803,

    GS_CU_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    GS_CU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    GS_CU_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    GS_CU_ATTRIBUTE_L2_CACHE_SIZE = 38,
    GS_CU_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,

    GS_CU_FUNCTION_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    GS_CU_FUNCTION_PREFERRED_SHARED_MEMORY_CARVEOUT = 9,

    GS_CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2,
    GS_CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
};

/* CUlaunchAttribute: an id and a value in a union of 64 bytes. */
struct gs_cu_launch_attribute {
    int id;
    char pad[4];
    union {
        char pad[64];
        int value;
        void *align;
    } value;
};

/* CUlaunchConfig */
struct gs_cu_launch_config {
    unsigned grid_x, grid_y, grid_z;
    unsigned block_x, block_y, block_z;
    unsigned shared_bytes;
    struct gs_gpu_stream *stream;
    struct gs_cu_launch_attribute *attributes;
    unsigned n_attributes;
};

struct gs_cu_context; /* CUctx_st */

/* Types that the check puts CUDA's in place of. */
#ifndef GS_CU_RESULT
#define GS_CU_RESULT           int /* an enumeration */
#define GS_CU_DEVICE_ATTRIBUTE int /* an enumeration */
#define GS_CU_FUNC_ATTRIBUTE   int /* an enumeration */
#define GS_CU_LAUNCH_CONFIG    struct gs_cu_launch_config
#endif

/* Field, name, parameters. Results and devices are ints. */
#define GS_CU_CALLS(X)                                                                                       \
    X(error_name, cuGetErrorName, (GS_CU_RESULT result, const char **text))                                  \
    X(error_string, cuGetErrorString, (GS_CU_RESULT result, const char **text))                              \
    X(device_attribute, cuDeviceGetAttribute, (int *value, GS_CU_DEVICE_ATTRIBUTE attribute, int device))    \
    X(context_retain, cuDevicePrimaryCtxRetain, (struct gs_cu_context * *context, int device))               \
    X(context_release, cuDevicePrimaryCtxRelease_v2, (int device))                                           \
    X(context_set, cuCtxSetCurrent, (struct gs_cu_context * context))                                        \
    X(module_count, cuModuleGetFunctionCount, (unsigned *count, struct gs_gpu_module *module))               \
    X(module_functions, cuModuleEnumerateFunctions,                                                          \
      (struct gs_gpu_function * *functions, unsigned count, struct gs_gpu_module *module))                   \
    X(function_name, cuFuncGetName, (const char **name, struct gs_gpu_function *function))                   \
    X(function_set, cuFuncSetAttribute,                                                                      \
      (struct gs_gpu_function * function, GS_CU_FUNC_ATTRIBUTE attribute, int value))                        \
    X(launch, cuLaunchKernelEx,                                                                              \
      (const GS_CU_LAUNCH_CONFIG *config, struct gs_gpu_function *function, void **parameters,               \
       void **extra))

struct gs_cuda_driver {
    struct gs_gpu_driver common;
    int version; /* 13000 for 13.0 */
#define GS_CU_FIELD(field, name, parameters) int(*field) parameters;
    GS_CU_CALLS(GS_CU_FIELD)
#undef GS_CU_FIELD
};

/*
 * Opens the library and initialises the driver. GS_UNSUPPORTED, in one line: no library, a driver that is too
 * old, no device. gs_gpu_driver_close() closes it.
 */
gs_status gs_cuda_driver_open(struct gs_cuda_driver *driver, struct gs_error *error);

#endif
