/*
 * Compared with cuda.h where that is installed: not run, not part of a build. Compiling it is the check, and
 * scripts/check-hip.sh does where it finds one:
 *
 *     cc -std=c11 -Isrc -Iinclude -I/usr/local/cuda/include -fsyntax-only tests/backend/check_cuda_header.c
 *
 * Our handles get the tags of CUDA's, and every function of CUDA's is assigned to a pointer of our prototype:
 * the compiler refuses what is not the same type.
 */
#include <cuda.h>
#include <stddef.h>

#define gs_gpu_module          CUmod_st
#define gs_gpu_function        CUfunc_st
#define gs_gpu_recording       CUgraph_st
#define gs_gpu_graph           CUgraphExec_st
#define gs_gpu_stream          CUstream_st
#define gs_cu_context          CUctx_st
#define GS_GPU_ADDRESS         CUdeviceptr
#define GS_GPU_SOURCE          const void
#define GS_GPU_CAPTURE_MODE    CUstreamCaptureMode
#define GS_CU_RESULT           CUresult
#define GS_CU_DEVICE_ATTRIBUTE CUdevice_attribute
#define GS_CU_FUNC_ATTRIBUTE   CUfunction_attribute
#define GS_CU_LAUNCH_CONFIG    CUlaunchConfig

#include "backend/cuda/driver.h"

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
SAME(GS_GPU_SUCCESS, CUDA_SUCCESS);
SAME(GS_GPU_NO_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(GS_GPU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(GS_GPU_NO_BINARY, CUDA_ERROR_NO_BINARY_FOR_GPU);
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
SAME(GS_GPU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(GS_GPU_CAPTURE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
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
SAME(sizeof(int), sizeof(CUresult));
SAME(sizeof(int), sizeof(CUdevice));
SAME(sizeof(void *), sizeof(CUdeviceptr)); /* which is passed as a pointer */

#define CHECK(field, cuda, hip, parameters) static CUresult(*const check_##field) parameters = cuda;
GS_GPU_CALLS(CHECK)
#undef CHECK
#define CHECK(field, name, parameters) static CUresult(*const check_##field) parameters = name;
GS_CU_CALLS(CHECK)
#undef CHECK
