/*
 * AMD's HIP library, opened at run time: no HIP library is linked and no HIP header needed. Here is what CUDA
 * does not have alike (gpu/driver.h). Functions alone: no structure of the interface is used, since the one
 * of a device's properties changed between versions. tests/backend/check_hip_header.c lets the compiler
 * compare the prototypes with HIP's where its headers are installed.
 */
#ifndef GS_BACKEND_HIP_DRIVER_H
#define GS_BACKEND_HIP_DRIVER_H

#include "backend/gpu/driver.h"

enum {
    GS_HIP_INVALID_DEVICE = 101, /* what starting the library says where there is no device */
    GS_HIP_NOT_FOUND = 500,      /* no such function in a module */
};

#ifndef GS_HIP_RESULT
#define GS_HIP_RESULT int /* an enumeration */
#endif

/* Field, name, parameters. Results and devices are ints. */
#define GS_HIP_CALLS(X)                                                                                      \
    X(set_device, hipSetDevice, (int device))                                                                \
    X(module_function, hipModuleGetFunction,                                                                 \
      (struct gs_gpu_function * *function, struct gs_gpu_module * module, const char *name))                 \
    X(launch, hipModuleLaunchKernel,                                                                         \
      (struct gs_gpu_function * function, unsigned grid_x, unsigned grid_y, unsigned grid_z,                 \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,                          \
       struct gs_gpu_stream *stream, void **parameters, void **extra))

/* The two that return text. */
#define GS_HIP_TEXTS(X)                                                                                      \
    X(error_name, hipGetErrorName, (GS_HIP_RESULT result))                                                   \
    X(error_string, hipGetErrorString, (GS_HIP_RESULT result))

struct gs_hip_driver {
    struct gs_gpu_driver common;
    int version; /* major * 10,000,000 + minor * 100,000 + patch */
#define GS_HIP_FIELD(field, name, parameters) int(*field) parameters;
    GS_HIP_CALLS(GS_HIP_FIELD)
#undef GS_HIP_FIELD
#define GS_HIP_FIELD(field, name, parameters) const char *(*field)parameters;
    GS_HIP_TEXTS(GS_HIP_FIELD)
#undef GS_HIP_FIELD
};

/* As gs_gpu_driver_open(), which tells the errors; gs_gpu_driver_close() closes it. */
gs_status gs_hip_driver_open(struct gs_hip_driver *driver, struct gs_error *error);

#endif
