/*
 * The Objective-C runtime and Metal as plain C: no SDK, no Objective-C, nothing of either is linked. Names,
 * types and values are those of Apple's published headers; tests/metal_sim compares the selectors with a list
 * that was made from an independent source.
 *
 * objc_msgSend has no type of its own. Every call goes through a pointer of the method's true type: on arm64
 * a variadic call would put the arguments where the method does not look for them.
 */
#ifndef GS_BACKEND_METAL_OBJC_H
#define GS_BACKEND_METAL_OBJC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gs_objc_object *gs_objc_id;
typedef const struct gs_objc_name *gs_objc_selector;

/* BOOL */
#if defined(__APPLE__) && defined(__x86_64__)
typedef signed char gs_objc_bool;
#else
typedef bool gs_objc_bool;
#endif

/* MTLSize: 24 bytes. arm64 passes the address of a copy, x86-64 the bytes on the stack: the compiler knows.
 */
struct gs_metal_size {
    unsigned long width, height, depth;
};

enum {
    GS_METAL_LANGUAGE_3_0 = 196608, /* MTLLanguageVersion3_0: macOS 13 */
    GS_METAL_FAMILY_APPLE_7 = 1007, /* MTLGPUFamilyApple7: M1 and later */
    GS_METAL_STATUS_ERROR = 5,      /* MTLCommandBufferStatusError */
    GS_METAL_STORAGE_SHARED = 0,    /* MTLResourceStorageModeShared */
    GS_METAL_TYPE_INT = 29,         /* MTLDataTypeInt */
    GS_METAL_TYPE_UINT = 33,        /* MTLDataTypeUInt */
    GS_METAL_TYPE_BOOL = 53,        /* MTLDataTypeBool */
    GS_METAL_UTF8 = 4,              /* NSUTF8StringEncoding */

    GS_METAL_FAIL_ON_ARCHIVE_MISS = 4, /* MTLPipelineOptionFailOnBinaryArchiveMiss */
};

/* The methods that are used: field, selector. */
#define GS_METAL_SELECTORS(X)                                                                                \
    X(new_object, "new")                                                                                     \
    X(alloc, "alloc")                                                                                        \
    X(retain, "retain")                                                                                      \
    X(release, "release")                                                                                    \
    X(init_with_bytes, "initWithBytes:length:encoding:")                                                     \
    X(utf8_string, "UTF8String")                                                                             \
    X(localized_description, "localizedDescription")                                                         \
    X(name, "name")                                                                                          \
    X(new_command_queue, "newCommandQueue")                                                                  \
    X(max_buffer_length, "maxBufferLength")                                                                  \
    X(working_set_size, "recommendedMaxWorkingSetSize")                                                      \
    X(allocated_size, "currentAllocatedSize")                                                                \
    X(max_threadgroup_memory, "maxThreadgroupMemoryLength")                                                  \
    X(supports_family, "supportsFamily:")                                                                    \
    X(new_buffer, "newBufferWithLength:options:")                                                            \
    X(new_buffer_no_copy, "newBufferWithBytesNoCopy:length:options:deallocator:")                            \
    X(new_library, "newLibraryWithSource:options:error:")                                                    \
    X(new_pipeline, "newComputePipelineStateWithFunction:error:")                                            \
    X(set_language_version, "setLanguageVersion:")                                                           \
    X(set_fast_math, "setFastMathEnabled:")                                                                  \
    X(set_constant, "setConstantValue:type:atIndex:")                                                        \
    X(new_function, "newFunctionWithName:constantValues:error:")                                             \
    X(max_threads, "maxTotalThreadsPerThreadgroup")                                                          \
    X(execution_width, "threadExecutionWidth")                                                               \
    X(command_buffer, "commandBuffer")                                                                       \
    X(compute_encoder, "computeCommandEncoder")                                                              \
    X(commit, "commit")                                                                                      \
    X(wait_until_completed, "waitUntilCompleted")                                                            \
    X(status, "status")                                                                                      \
    X(gpu_start_time, "GPUStartTime")                                                                        \
    X(gpu_end_time, "GPUEndTime")                                                                            \
    X(error, "error")                                                                                        \
    X(set_pipeline, "setComputePipelineState:")                                                              \
    X(set_buffer, "setBuffer:offset:atIndex:")                                                               \
    X(set_bytes, "setBytes:length:atIndex:")                                                                 \
    X(set_threadgroup_memory, "setThreadgroupMemoryLength:atIndex:")                                         \
    X(dispatch, "dispatchThreadgroups:threadsPerThreadgroup:")                                               \
    X(end_encoding, "endEncoding")                                                                           \
    X(contents, "contents")                                                                                  \
    X(new_archive, "newBinaryArchiveWithDescriptor:error:")                                                  \
    X(set_url, "setUrl:")                                                                                    \
    X(add_functions, "addComputePipelineFunctionsWithDescriptor:error:")                                     \
    X(serialize, "serializeToURL:error:")                                                                    \
    X(new_described_pipeline, "newComputePipelineStateWithDescriptor:options:reflection:error:")             \
    X(set_function, "setComputeFunction:")                                                                   \
    X(set_archives, "setBinaryArchives:")                                                                    \
    X(file_url, "fileURLWithPath:")                                                                          \
    X(array_with, "arrayWithObject:")                                                                        \
    X(process_info, "processInfo")                                                                           \
    X(system_version, "operatingSystemVersionString")

/* The functions of C that are used: field, name, type. */
#define GS_OBJC_FUNCTIONS(X)                                                                                 \
    X(get_class, "objc_getClass", gs_objc_id, (const char *name))                                            \
    X(register_name, "sel_registerName", gs_objc_selector, (const char *name))                               \
    X(pool_push, "objc_autoreleasePoolPush", void *, (void))                                                 \
    X(pool_pop, "objc_autoreleasePoolPop", void, (void *pool))                                               \
    X(default_device, "MTLCreateSystemDefaultDevice", gs_objc_id, (void))

/* What library.c finds in the opened libraries, and the selectors, which metal.c registers. */
struct gs_objc {
    void (*send)(void); /* objc_msgSend */
#define GS_OBJC_FIELD(field, name, result, parameters) result(*field) parameters;
    GS_OBJC_FUNCTIONS(GS_OBJC_FIELD)
#undef GS_OBJC_FIELD
#define GS_OBJC_FIELD(field, name) gs_objc_selector field;
    struct {
        GS_METAL_SELECTORS(GS_OBJC_FIELD)
    } selectors;
#undef GS_OBJC_FIELD
};

#endif
