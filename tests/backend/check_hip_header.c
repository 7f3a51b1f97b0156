/*
 * Compared with HIP's own header where that is installed: not run, not part of a build. Compiling it is the
 * check, and scripts/check-hip.sh does:
 *
 *     cc -std=c11 -D__HIP_PLATFORM_AMD__ -Isrc -Iinclude -fsyntax-only tests/backend/check_hip_header.c
 *
 * Our handles get the tags of HIP's, and every function of HIP's is assigned to a pointer of our prototype:
 * the compiler refuses what is not the same type.
 */
#include <hip/hip_runtime_api.h>
#include <stddef.h>

#define gs_gpu_module    ihipModule_t
#define gs_gpu_function  ihipModuleSymbol_t
#define gs_gpu_recording ihipGraph
#define gs_gpu_graph     hipGraphExec
#define gs_gpu_stream    ihipStream_t

#define GS_GPU_ADDRESS hipDeviceptr_t
#if HIP_VERSION_MAJOR < 6
#define GS_GPU_SOURCE void
#else
#define GS_GPU_SOURCE const void
#endif
#define GS_GPU_CAPTURE_MODE hipStreamCaptureMode
#define GS_HIP_RESULT       hipError_t

#include "backend/hip/driver.h"

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
SAME(GS_GPU_SUCCESS, hipSuccess);
SAME(GS_GPU_NO_MEMORY, hipErrorOutOfMemory);
SAME(GS_GPU_NO_DEVICE, hipErrorNoDevice);
SAME(GS_GPU_NO_BINARY, hipErrorNoBinaryForGpu);
SAME(GS_HIP_INVALID_DEVICE, hipErrorInvalidDevice);
SAME(GS_HIP_NOT_FOUND, hipErrorNotFound);
SAME(GS_GPU_STREAM_NON_BLOCKING, hipStreamNonBlocking);
SAME(GS_GPU_CAPTURE_THREAD_LOCAL, hipStreamCaptureModeThreadLocal);
SAME(sizeof(int), sizeof(hipError_t));
SAME(sizeof(int), sizeof(hipDevice_t));

#define CHECK(field, cuda, hip, parameters) static hipError_t(*const check_##field) parameters = hip;
GS_GPU_CALLS(CHECK)
#undef CHECK
#define CHECK(field, name, parameters) static hipError_t(*const check_##field) parameters = name;
GS_HIP_CALLS(CHECK)
#undef CHECK
#define CHECK(field, name, parameters) static const char *(*const check_##field)parameters = name;
GS_HIP_TEXTS(CHECK)
#undef CHECK
