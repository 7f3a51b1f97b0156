/*
 * Compared with cuda.h where that is installed: not run, not part of a build. Compiling it is the check:
 *
 *     cc -std=c11 -Isrc -Iinclude -I/usr/local/cuda/include -fsyntax-only tests/backend/check_cuda_header.c
 *
 * Handles are the same pointers by name; results and enumerations, which the driver passes as enums, are
 * ints.
 */
#include "backend/cuda/driver.h"

#include <cuda.h>
#include <stddef.h>

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
SAME(GS_CU_SUCCESS, CUDA_SUCCESS);
SAME(GS_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(GS_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(GS_CU_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(GS_CU_UNSUPPORTED_PTX_VERSION, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
SAME(GS_CU_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME(GS_CU_ATTRIBUTE_MULTIPROCESSOR_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(GS_CU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(GS_CU_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(GS_CU_ATTRIBUTE_L2_CACHE_SIZE, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
SAME(GS_CU_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
     CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME(GS_CU_FUNCTION_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(GS_CU_FUNCTION_PREFERRED_SHARED_MEMORY_CARVEOUT, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
SAME(GS_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(GS_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME(GS_CU_LAUNCH_ATTRIBUTE_COOPERATIVE, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
SAME(GS_CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
     CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
SAME(sizeof(struct gs_cu_launch_attribute), sizeof(CUlaunchAttribute));
SAME(offsetof(struct gs_cu_launch_attribute, value), offsetof(CUlaunchAttribute, value));
SAME(sizeof(struct gs_cu_launch_config), sizeof(CUlaunchConfig));
SAME(offsetof(struct gs_cu_launch_config, shared_bytes), offsetof(CUlaunchConfig, sharedMemBytes));
SAME(offsetof(struct gs_cu_launch_config, stream), offsetof(CUlaunchConfig, hStream));
SAME(offsetof(struct gs_cu_launch_config, attributes), offsetof(CUlaunchConfig, attrs));
SAME(offsetof(struct gs_cu_launch_config, n_attributes), offsetof(CUlaunchConfig, numAttrs));
SAME(sizeof(gs_cu_device), sizeof(CUdevice));
SAME(sizeof(gs_cu_pointer), sizeof(CUdeviceptr));

/* The driver's own prototypes, called with our types. Never run. */
void check_calls(const struct gs_cuda_driver *d, gs_cu_context c, gs_cu_module m, gs_cu_function f,
                 gs_cu_stream s, gs_cu_graph g, gs_cu_graph_exec e);
void check_calls(const struct gs_cuda_driver *d, gs_cu_context c, gs_cu_module m, gs_cu_function f,
                 gs_cu_stream s, gs_cu_graph g, gs_cu_graph_exec e)
{
    int i = 0;
    unsigned u = 0;
    size_t n = 0;
    void *p = NULL;
    const char *text = NULL;
    gs_cu_pointer at = 0;
    CUlaunchConfig config = {0};
    (void)d;
    cuInit(0), cuDriverGetVersion(&i), cuGetErrorName(0, &text), cuGetErrorString(0, &text);
    cuDeviceGetCount(&i), cuDeviceGet(&i, 0), cuDeviceGetName(NULL, 0, i), cuDeviceGetAttribute(&i, 0, i);
    cuDeviceTotalMem(&n, i), cuDevicePrimaryCtxRetain(&c, i), cuDevicePrimaryCtxRelease(i),
        cuCtxSetCurrent(c);
    cuMemGetInfo(&n, &n), cuMemAlloc(&at, n), cuMemFree(at), cuMemHostAlloc(&p, n, 0), cuMemFreeHost(p);
    cuMemcpyHtoDAsync(at, p, n, s), cuMemcpyDtoHAsync(p, at, n, s), cuMemcpyDtoDAsync(at, at, n, s);
    cuMemsetD8Async(at, 0, n, s), cuStreamCreate(&s, 0), cuStreamDestroy(s), cuStreamSynchronize(s);
    cuStreamBeginCapture(s, 1), cuStreamEndCapture(s, &g), cuGraphInstantiateWithFlags(&e, g, 0);
    cuGraphLaunch(e, s), cuGraphExecDestroy(e), cuGraphDestroy(g), cuModuleLoadData(&m, p);
    cuModuleUnload(m), cuModuleGetFunctionCount(&u, m), cuModuleEnumerateFunctions(&f, u, m);
    cuFuncGetName(&text, f), cuFuncSetAttribute(f, 8, i), cuLaunchKernelEx(&config, f, &p, NULL);
}
