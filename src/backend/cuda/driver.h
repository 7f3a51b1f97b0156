/*
 * The CUDA driver, opened at run time: no CUDA library is linked and no CUDA header needed. The names, types
 * and values below are those of the driver's published interface (version 12 and later);
 * tests/backend/check_cuda_header.c lets the compiler compare them with cuda.h where that is installed.
 */
#ifndef GS_BACKEND_CUDA_DRIVER_H
#define GS_BACKEND_CUDA_DRIVER_H

#include "gossamer.h"

typedef int gs_cu_result;                        /* CUresult */
typedef int gs_cu_device;                        /* CUdevice */
typedef unsigned long long gs_cu_pointer;        /* CUdeviceptr */
typedef struct CUctx_st *gs_cu_context;          /* CUcontext */
typedef struct CUmod_st *gs_cu_module;           /* CUmodule */
typedef struct CUfunc_st *gs_cu_function;        /* CUfunction */
typedef struct CUstream_st *gs_cu_stream;        /* CUstream */
typedef struct CUgraph_st *gs_cu_graph;          /* CUgraph */
typedef struct CUgraphExec_st *gs_cu_graph_exec; /* CUgraphExec */

enum {
    GS_CU_SUCCESS = 0,
    GS_CU_OUT_OF_MEMORY = 2,
    GS_CU_NO_DEVICE = 100,
    GS_CU_NO_BINARY_FOR_GPU = 209,
    GS_CU_UNSUPPORTED_PTX_VERSION = 222,
    GS_CU_SYSTEM_DRIVER_MISMATCH = 803,

    GS_CU_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    GS_CU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    GS_CU_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    GS_CU_ATTRIBUTE_L2_CACHE_SIZE = 38,
    GS_CU_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,

    GS_CU_FUNCTION_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    GS_CU_FUNCTION_PREFERRED_SHARED_MEMORY_CARVEOUT = 9,

    GS_CU_STREAM_NON_BLOCKING = 1,
    GS_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,

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
    gs_cu_stream stream;
    struct gs_cu_launch_attribute *attributes;
    unsigned n_attributes;
};

/* The functions that are used: result, field, name in the library, parameters. */
#define GS_CU_FUNCTIONS(X)                                                                                   \
    X(init, "cuInit", (unsigned flags))                                                                      \
    X(driver_version, "cuDriverGetVersion", (int *version))                                                  \
    X(error_name, "cuGetErrorName", (gs_cu_result result, const char **text))                                \
    X(error_string, "cuGetErrorString", (gs_cu_result result, const char **text))                            \
    X(device_count, "cuDeviceGetCount", (int *count))                                                        \
    X(device_get, "cuDeviceGet", (gs_cu_device * device, int ordinal))                                       \
    X(device_name, "cuDeviceGetName", (char *name, int size, gs_cu_device device))                           \
    X(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, gs_cu_device device))            \
    X(device_memory, "cuDeviceTotalMem_v2", (size_t * bytes, gs_cu_device device))                           \
    X(context_retain, "cuDevicePrimaryCtxRetain", (gs_cu_context * context, gs_cu_device device))            \
    X(context_release, "cuDevicePrimaryCtxRelease_v2", (gs_cu_device device))                                \
    X(context_set, "cuCtxSetCurrent", (gs_cu_context context))                                               \
    X(memory_info, "cuMemGetInfo_v2", (size_t * free, size_t * total))                                       \
    X(memory_alloc, "cuMemAlloc_v2", (gs_cu_pointer * pointer, size_t bytes))                                \
    X(memory_free, "cuMemFree_v2", (gs_cu_pointer pointer))                                                  \
    X(host_alloc, "cuMemHostAlloc", (void **pointer, size_t bytes, unsigned flags))                          \
    X(host_free, "cuMemFreeHost", (void *pointer))                                                           \
    X(copy_in, "cuMemcpyHtoDAsync_v2",                                                                       \
      (gs_cu_pointer to, const void *from, size_t bytes, gs_cu_stream stream))                               \
    X(copy_out, "cuMemcpyDtoHAsync_v2", (void *to, gs_cu_pointer from, size_t bytes, gs_cu_stream stream))   \
    X(copy, "cuMemcpyDtoDAsync_v2",                                                                          \
      (gs_cu_pointer to, gs_cu_pointer from, size_t bytes, gs_cu_stream stream))                             \
    X(set, "cuMemsetD8Async", (gs_cu_pointer to, unsigned char value, size_t bytes, gs_cu_stream stream))    \
    X(stream_create, "cuStreamCreate", (gs_cu_stream * stream, unsigned flags))                              \
    X(stream_destroy, "cuStreamDestroy_v2", (gs_cu_stream stream))                                           \
    X(stream_sync, "cuStreamSynchronize", (gs_cu_stream stream))                                             \
    X(capture_begin, "cuStreamBeginCapture_v2", (gs_cu_stream stream, int mode))                             \
    X(capture_end, "cuStreamEndCapture", (gs_cu_stream stream, gs_cu_graph * graph))                         \
    X(graph_instantiate, "cuGraphInstantiateWithFlags",                                                      \
      (gs_cu_graph_exec * exec, gs_cu_graph graph, unsigned long long flags))                                \
    X(graph_launch, "cuGraphLaunch", (gs_cu_graph_exec exec, gs_cu_stream stream))                           \
    X(graph_exec_destroy, "cuGraphExecDestroy", (gs_cu_graph_exec exec))                                     \
    X(graph_destroy, "cuGraphDestroy", (gs_cu_graph graph))                                                  \
    X(module_load, "cuModuleLoadData", (gs_cu_module * module, const void *image))                           \
    X(module_unload, "cuModuleUnload", (gs_cu_module module))                                                \
    X(module_count, "cuModuleGetFunctionCount", (unsigned *count, gs_cu_module module))                      \
    X(module_functions, "cuModuleEnumerateFunctions",                                                        \
      (gs_cu_function * functions, unsigned count, gs_cu_module module))                                     \
    X(function_name, "cuFuncGetName", (const char **name, gs_cu_function function))                          \
    X(function_set, "cuFuncSetAttribute", (gs_cu_function function, int attribute, int value))               \
    X(launch, "cuLaunchKernelEx",                                                                            \
      (const struct gs_cu_launch_config *config, gs_cu_function function, void **parameters, void **extra))

struct gs_cuda_driver {
    void *library;
    int version; /* 13000 for 13.0 */
#define GS_CU_FIELD(field, name, parameters) gs_cu_result(*field) parameters;
    GS_CU_FUNCTIONS(GS_CU_FIELD)
#undef GS_CU_FIELD
};

/*
 * Opens the library and initialises the driver. GS_UNSUPPORTED, in one line: no library, a driver that is too
 * old, no device.
 */
gs_status gs_cuda_driver_open(struct gs_cuda_driver *driver, struct gs_error *error);
void gs_cuda_driver_close(struct gs_cuda_driver *driver);

/*
 * GS_OK for 0; else "cuda: <action>: CUDA_ERROR_... (text)": GS_OUT_OF_MEMORY, GS_UNSUPPORTED where this
 * build and this machine do not go together, GS_IO where the device or the driver failed.
 */
__attribute__((format(printf, 4, 5))) gs_status gs_cuda_check(const struct gs_cuda_driver *driver,
                                                              gs_cu_result result, struct gs_error *error,
                                                              const char *action, ...);

#endif
