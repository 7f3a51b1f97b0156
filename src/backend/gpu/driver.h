/*
 * The calls of a driver that CUDA and HIP have alike, under other names: the same parameters in the same
 * order. A vendor (cuda/, hip/) opens its library into a gs_gpu_driver and takes from here the entries of
 * api.h that are one such call: memory, copies, streams, graphs. Devices, contexts, modules and launches
 * differ, and are its own.
 *
 * No vendor's header is needed: tests/backend/check_cuda_header.c and check_hip_header.c let the compiler
 * compare every prototype with the vendor's where its headers are installed.
 */
#ifndef GS_BACKEND_GPU_DRIVER_H
#define GS_BACKEND_GPU_DRIVER_H

#include "backend/gpu/api.h"

#include <stddef.h>

/* The types in which the vendors differ; the checks put in theirs. */
#ifndef GS_GPU_ADDRESS
#define GS_GPU_ADDRESS      void *     /* CUDA: an integer as large, which calls pass in the same way */
#define GS_GPU_SOURCE       const void /* HIP before 6: without const */
#define GS_GPU_CAPTURE_MODE int        /* an enumeration */
#endif

struct gs_gpu_module;    /* CUmodule, hipModule_t */
struct gs_gpu_function;  /* CUfunction, hipFunction_t */
struct gs_gpu_recording; /* CUgraph, hipGraph_t. A gs_gpu_graph is a CUgraphExec, a hipGraphExec_t */

/* Field, CUDA's name, HIP's name, parameters. Results and devices are ints. */
#define GS_GPU_CALLS(X)                                                                                      \
    X(init, cuInit, hipInit, (unsigned flags))                                                               \
    X(driver_version, cuDriverGetVersion, hipDriverGetVersion, (int *version))                               \
    X(device_count, cuDeviceGetCount, hipGetDeviceCount, (int *count))                                       \
    X(device_get, cuDeviceGet, hipDeviceGet, (int *device, int ordinal))                                     \
    X(device_name, cuDeviceGetName, hipDeviceGetName, (char *name, int size, int device))                    \
    X(device_memory, cuDeviceTotalMem_v2, hipDeviceTotalMem, (size_t * bytes, int device))                   \
    X(memory_info, cuMemGetInfo_v2, hipMemGetInfo, (size_t * free, size_t * total))                          \
    X(memory_alloc, cuMemAlloc_v2, hipMalloc, (GS_GPU_ADDRESS * pointer, size_t bytes))                      \
    X(memory_free, cuMemFree_v2, hipFree, (GS_GPU_ADDRESS pointer))                                          \
    X(host_alloc, cuMemHostAlloc, hipHostMalloc, (void **pointer, size_t bytes, unsigned flags))             \
    X(host_free, cuMemFreeHost, hipHostFree, (void *pointer))                                                \
    X(copy_in, cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync,                                                     \
      (GS_GPU_ADDRESS to, GS_GPU_SOURCE * from, size_t bytes, struct gs_gpu_stream * stream))                \
    X(copy_out, cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync,                                                    \
      (void *to, GS_GPU_ADDRESS from, size_t bytes, struct gs_gpu_stream *stream))                           \
    X(copy, cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync,                                                        \
      (GS_GPU_ADDRESS to, GS_GPU_ADDRESS from, size_t bytes, struct gs_gpu_stream * stream))                 \
    X(set, cuMemsetD8Async, hipMemsetD8Async,                                                                \
      (GS_GPU_ADDRESS to, unsigned char value, size_t bytes, struct gs_gpu_stream *stream))                  \
    X(stream_create, cuStreamCreate, hipStreamCreateWithFlags,                                               \
      (struct gs_gpu_stream * *stream, unsigned flags))                                                      \
    X(stream_destroy, cuStreamDestroy_v2, hipStreamDestroy, (struct gs_gpu_stream * stream))                 \
    X(stream_sync, cuStreamSynchronize, hipStreamSynchronize, (struct gs_gpu_stream * stream))               \
    X(capture_begin, cuStreamBeginCapture_v2, hipStreamBeginCapture,                                         \
      (struct gs_gpu_stream * stream, GS_GPU_CAPTURE_MODE mode))                                             \
    X(capture_end, cuStreamEndCapture, hipStreamEndCapture,                                                  \
      (struct gs_gpu_stream * stream, struct gs_gpu_recording * *out))                                       \
    X(graph_instantiate, cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags,                          \
      (struct gs_gpu_graph * *out, struct gs_gpu_recording * from, unsigned long long flags))                \
    X(graph_launch, cuGraphLaunch, hipGraphLaunch,                                                           \
      (struct gs_gpu_graph * graph, struct gs_gpu_stream * stream))                                          \
    X(graph_exec_destroy, cuGraphExecDestroy, hipGraphExecDestroy, (struct gs_gpu_graph * graph))            \
    X(graph_destroy, cuGraphDestroy, hipGraphDestroy, (struct gs_gpu_recording * recording))                 \
    X(module_load, cuModuleLoadData, hipModuleLoadData, (struct gs_gpu_module * *module, const void *image)) \
    X(module_unload, cuModuleUnload, hipModuleUnload, (struct gs_gpu_module * module))

/* The same numbers in both. */
enum {
    GS_GPU_SUCCESS = 0,
    GS_GPU_NO_MEMORY = 2,
    GS_GPU_NO_DEVICE = 100,
    GS_GPU_NO_BINARY = 209, /* a module for other devices */
    GS_GPU_STREAM_NON_BLOCKING = 1,
    GS_GPU_CAPTURE_THREAD_LOCAL = 1,
};

struct gs_gpu_driver;

/* A call that one vendor alone has: its name, and where its pointer stands in the vendor's driver. */
struct gs_gpu_own_call {
    const char *name;
    size_t at;
};

struct gs_gpu_vendor {
    const char *name;              /* "cuda": begins messages */
    const char *product;           /* "CUDA driver" */
    const char *needed;            /* "CUDA 12.4 or later": what a library that lacks a call is too old for */
    const char *const *file_names; /* tried in this order; the last is NULL */
    const char *const *call_names; /* in the order of GS_GPU_CALLS */
    const struct gs_gpu_own_call *own; /* [n_own] */
    size_t n_own, bytes;               /* bytes: of the vendor's driver */
    const int *unsupported;            /* own results like GS_GPU_NO_DEVICE; the last is 0 */
    const char *enter_name;            /* of the call behind gs_gpu.enter */

    /* Initialises the library once all calls are found. NULL: nothing to do. */
    gs_status (*start)(struct gs_gpu_driver *driver, struct gs_error *error);
    void (*describe)(const struct gs_gpu_driver *driver, int result, const char **name, const char **text);
};

/* A vendor's own begins with this. */
struct gs_gpu_driver {
    const struct gs_gpu_vendor *vendor;
    void *handle; /* of dlopen */
#define GS_GPU_FIELD(field, cuda, hip, parameters) int(*field) parameters;
    GS_GPU_CALLS(GS_GPU_FIELD)
#undef GS_GPU_FIELD
};

/* A vendor's own begins with this. */
struct gs_gpu {
    const struct gs_gpu_driver *driver;
    int (*enter)(struct gs_gpu *gpu); /* makes the device the one that this thread's calls are about */
};

/*
 * Opens the library, finds the calls and starts it; otherwise all of the vendor's driver is zero.
 * GS_UNSUPPORTED, in one line: no library, one that is too old, no device.
 */
gs_status gs_gpu_driver_open(struct gs_gpu_driver *driver, const struct gs_gpu_vendor *vendor,
                             struct gs_error *error);
void gs_gpu_driver_close(struct gs_gpu_driver *driver);

/*
 * GS_OK for GS_GPU_SUCCESS; else "cuda: <action>: CUDA_ERROR_... (text)": GS_OUT_OF_MEMORY, GS_UNSUPPORTED
 * where this build and this machine do not go together, GS_IO where the device or the driver failed.
 */
__attribute__((format(printf, 4, 5))) gs_status gs_gpu_check(const struct gs_gpu_driver *driver, int result,
                                                             struct gs_error *error, const char *action, ...);

gs_status gs_gpu_enter(struct gs_gpu *gpu, struct gs_error *error);

/* Number `index` of the devices, which must be there; *device is the driver's number of it. */
gs_status gs_gpu_find_device(const struct gs_gpu_driver *driver, int index, int *device,
                             struct gs_error *error);

/* The entries of api.h that are made here. */
#define GS_GPU_DRIVER_ENTRIES                                                                                \
    .memory = gs_gpu_driver_memory, .alloc = gs_gpu_driver_alloc, .release = gs_gpu_driver_release,          \
    .host_alloc = gs_gpu_driver_host_alloc, .host_release = gs_gpu_driver_host_release,                      \
    .stream_open = gs_gpu_driver_stream_open, .stream_close = gs_gpu_driver_stream_close,                    \
    .copy_in = gs_gpu_driver_copy_in, .copy_out = gs_gpu_driver_copy_out, .copy = gs_gpu_driver_copy,        \
    .zero = gs_gpu_driver_zero, .sync = gs_gpu_driver_sync, .capture_begin = gs_gpu_driver_capture_begin,    \
    .capture_end = gs_gpu_driver_capture_end, .graph_launch = gs_gpu_driver_graph_launch,                    \
    .graph_free = gs_gpu_driver_graph_free

gs_status gs_gpu_driver_memory(struct gs_gpu *gpu, uint64_t *free_bytes, uint64_t *total_bytes,
                               struct gs_error *error);
gs_status gs_gpu_driver_alloc(struct gs_gpu *gpu, uint64_t bytes, const char *what, void **out,
                              struct gs_error *error);
void gs_gpu_driver_release(struct gs_gpu *gpu, void *memory);
gs_status gs_gpu_driver_host_alloc(struct gs_gpu *gpu, uint64_t bytes, void **out, struct gs_error *error);
void gs_gpu_driver_host_release(struct gs_gpu *gpu, void *memory);
gs_status gs_gpu_driver_stream_open(struct gs_gpu *gpu, struct gs_gpu_stream **out, struct gs_error *error);
void gs_gpu_driver_stream_close(struct gs_gpu *gpu, struct gs_gpu_stream *stream);
gs_status gs_gpu_driver_copy_in(struct gs_gpu *gpu, struct gs_gpu_stream *stream, void *device,
                                const void *host, uint64_t bytes, struct gs_error *error);
gs_status gs_gpu_driver_copy_out(struct gs_gpu *gpu, struct gs_gpu_stream *stream, void *host,
                                 const void *device, uint64_t bytes, struct gs_error *error);
gs_status gs_gpu_driver_copy(struct gs_gpu *gpu, struct gs_gpu_stream *stream, void *to, const void *from,
                             uint64_t bytes, struct gs_error *error);
gs_status gs_gpu_driver_zero(struct gs_gpu *gpu, struct gs_gpu_stream *stream, void *device, uint64_t bytes,
                             struct gs_error *error);
gs_status gs_gpu_driver_sync(struct gs_gpu *gpu, struct gs_gpu_stream *stream, struct gs_error *error);
gs_status gs_gpu_driver_capture_begin(struct gs_gpu *gpu, struct gs_gpu_stream *stream,
                                      struct gs_error *error);
gs_status gs_gpu_driver_capture_end(struct gs_gpu *gpu, struct gs_gpu_stream *stream,
                                    struct gs_gpu_graph **out, struct gs_error *error);
gs_status gs_gpu_driver_graph_launch(struct gs_gpu *gpu, struct gs_gpu_stream *stream,
                                     const struct gs_gpu_graph *graph, struct gs_error *error);
void gs_gpu_driver_graph_free(struct gs_gpu *gpu, struct gs_gpu_graph *graph);

#endif
