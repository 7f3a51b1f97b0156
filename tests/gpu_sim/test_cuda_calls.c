/*
 * What the CUDA backend asks of the driver, call by call: a library in libcuda.so.1's place (cuda_trace.c)
 * writes it down. So a change of the code that CUDA and HIP share cannot change it unnoticed.
 */
#include "backend/cuda/device.h"
#include "backend/cuda/modules.h"
#include "tests/support/check.h"

#include <dlfcn.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* In place of the program's own: the test is of the calls, not of kernels. */
const struct gs_cuda_module gs_cuda_modules[2] = {{"simple", (const unsigned char *)"image of simple"},
                                                  {"decode", (const unsigned char *)"image of decode"}};
const size_t gs_cuda_module_count = 2;
const int gs_cuda_toolkit = 13000;

#define ENTER "cuCtxSetCurrent(the context)\n"

static const char *const expected =
    /* open */
    "cuDriverGetVersion\n"
    "cuInit(0)\n"
    "cuDeviceGetCount\n"
    "cuDeviceGet(1)\n"
    "cuDeviceGetAttribute(75, 41)\n"
    "cuDeviceGetAttribute(76, 41)\n"
    "cuDeviceGetAttribute(16, 41)\n"
    "cuDeviceGetAttribute(97, 41)\n"
    "cuDeviceGetAttribute(38, 41)\n"
    "cuDevicePrimaryCtxRetain(41)\n" ENTER "cuModuleLoadData(image of simple)\n"
    "cuModuleGetFunctionCount(1)\n"
    "cuModuleEnumerateFunctions(2, 1)\n"
    "cuFuncGetName(gs_one)\n"
    "cuFuncGetName(gs_two)\n"
    "cuModuleLoadData(image of decode)\n"
    "cuModuleGetFunctionCount(2)\n"
    "cuModuleEnumerateFunctions(0, 2)\n"
    /* memory */
    ENTER "cuMemGetInfo\n" ENTER "cuMemAlloc(1000) = 200000000000\n" ENTER
    "cuMemAlloc(1) = 200000000500\n" ENTER "cuMemHostAlloc(600, 0) = 0x200000000700\n"
    /* a stream */
    ENTER "cuStreamCreate(1)\n" ENTER "cuMemcpyHtoDAsync(200000000000, 600, stream 1)\n" ENTER
    "cuMemcpyDtoDAsync(200000000100, 200000000000, 50, stream 1)\n" ENTER
    "cuMemsetD8Async(200000000000, 0, 70, stream 1)\n" ENTER
    "cuMemcpyDtoHAsync(200000000100, 50, stream 1)\n" ENTER "cuStreamSynchronize(1)\n"
    /* launches */
    ENTER "cuLaunchKernelEx(gs_two, 3 2 1 of 128 1 1, 0 bytes, stream 1,, 7 8 9, no extra)\n" ENTER
    "cuFuncSetAttribute(gs_two, 8, 50000)\n"
    "cuFuncSetAttribute(gs_two, 9, 100)\n"
    "cuLaunchKernelEx(gs_two, 3 2 1 of 128 1 1, 50000 bytes, stream 1, 6=1, 7 8 9, no extra)\n" ENTER
    "cuLaunchKernelEx(gs_two, 3 2 1 of 128 1 1, 40000 bytes, stream 1, 6=1 2=1, 7 8 9, no extra)\n" ENTER
        /* a graph */
        ENTER "cuStreamBeginCapture(1, 1)\n" ENTER "cuStreamEndCapture(1)\n"
    "cuGraphInstantiateWithFlags(1, 0)\n"
    "cuGraphDestroy(1)\n" ENTER "cuGraphLaunch(1, stream 1)\n" ENTER "cuGraphExecDestroy(1)\n"
    /* the end */
    ENTER "cuStreamDestroy(1)\n" ENTER "cuMemFree(200000000500)\n" ENTER "cuMemFree(200000000000)\n" ENTER
    "cuMemFreeHost(0x200000000700)\n" ENTER "cuModuleUnload(1)\n"
    "cuModuleUnload(2)\n"
    "cuDevicePrimaryCtxRelease(41)\n";

static char trace_path[] = "/tmp/gossamer-test-trace-XXXXXX",
            names_path[] = "/tmp/gossamer-test-names-XXXXXX";

/* Opened first, the stand-in is what the backend's own opening by name finds. */
static int open_stand_in(void **state)
{
    char program[1024] = "", path[1200];
    (void)state;
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    snprintf(path, sizeof path, "%s/libcuda.so.1", dirname(program));
    int trace = mkstemp(trace_path), names = mkstemp(names_path);
    if (trace < 0 || names < 0 || write(names, "gs_one\ngs_two\n", 14) != 14)
        return -1;
    close(trace);
    close(names);
    setenv("CUDA_TRACE", trace_path, 1);
    setenv("CUDA_KERNELS", names_path, 1);
    if (dlopen(path, RTLD_NOW | RTLD_GLOBAL))
        return 0;
    print_message("  %s\n", dlerror());
    return -1;
}

static int remove_files(void **state)
{
    (void)state;
    unlink(trace_path);
    unlink(names_path);
    return 0;
}

static void launch_some(struct gs_gpu *gpu, struct gs_gpu_stream *stream)
{
    const struct gs_gpu_api *api = &gs_cuda_api;
    uint64_t args[3] = {7, 8, 9};
    struct gs_error error;
    struct gs_gpu_launch launch = {.kernel = "gs_two", .grid = {3, 2, 1}, .block = 128};
    assert_ok(api->launch(gpu, stream, &launch, args, false, &error), &error);
    launch.shared_bytes = 50000;
    assert_ok(api->launch(gpu, stream, &launch, args, true, &error), &error);
    launch.shared_bytes = 40000;
    launch.cooperative = 1;
    assert_ok(api->launch(gpu, stream, &launch, args, true, &error), &error);
    launch.kernel = "gs_three";
    assert_fails(api->launch(gpu, stream, &launch, args, true, &error), GS_UNSUPPORTED,
                 "cuda: this build has no kernel gs_three", &error);
}

static void calls_are_these(void **state)
{
    (void)state;
    const struct gs_gpu_api *api = &gs_cuda_api;
    struct gs_gpu *gpu = NULL;
    struct gs_gpu_machine machine;
    struct gs_gpu_stream *stream = NULL;
    struct gs_gpu_graph *graph = NULL;
    struct gs_error error;
    uint64_t available, total;
    void *memory, *nothing, *pinned;
    assert_ok(api->open(1, &gpu, &machine, &error), &error);
    assert_int_equal(machine.capability, 90);
    assert_ok(api->memory(gpu, &available, &total, &error), &error);
    assert_ok(api->alloc(gpu, 1000, "a test", &memory, &error), &error);
    assert_ok(api->alloc(gpu, 0, "nothing", &nothing, &error), &error);
    assert_ok(api->host_alloc(gpu, 600, &pinned, &error), &error);
    assert_ok(api->stream_open(gpu, &stream, &error), &error);
    assert_ok(api->copy_in(gpu, stream, memory, pinned, 600, &error), &error);
    assert_ok(api->copy(gpu, stream, (char *)memory + 256, memory, 50, &error), &error);
    assert_ok(api->zero(gpu, stream, memory, 70, &error), &error);
    assert_ok(api->copy_out(gpu, stream, pinned, (char *)memory + 256, 50, &error), &error);
    assert_ok(api->sync(gpu, stream, &error), &error);
    launch_some(gpu, stream);
    assert_ok(api->capture_begin(gpu, stream, &error), &error);
    assert_ok(api->capture_end(gpu, stream, &graph, &error), &error);
    assert_ok(api->graph_launch(gpu, stream, graph, &error), &error);
    api->graph_free(gpu, graph);
    api->graph_free(gpu, NULL);
    api->stream_close(gpu, stream);
    api->release(gpu, nothing);
    api->release(gpu, memory);
    api->release(gpu, NULL);
    api->host_release(gpu, pinned);
    api->close(gpu);

    static char found[20000];
    FILE *file = fopen(trace_path, "r");
    assert_non_null(file);
    found[fread(found, 1, sizeof found - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(found, expected);
}

/* A driver older than the build, a device older than the kernels, none, one that is not there. */
static void what_is_wrong_is_named(void **state)
{
    static const struct {
        const char *name, *value;
        int device;
        gs_status status;
        const char *message;
    } wrongs[] = {
        {"CUDA_SAID_VERSION", "12080", 0, GS_UNSUPPORTED,
         "the CUDA driver here is of version 12.8: this build needs 13.0 or later"},
        {"CUDA_SAID_CAPABILITY", "75", 1, GS_UNSUPPORTED,
         "CUDA device 1 has compute capability 7.5: the kernels need 8.0 or later"},
        {"CUDA_SAID_DEVICES", "0", 0, GS_UNSUPPORTED, "CUDA driver sees no device"},
        {"CUDA_SAID_DEVICES", "3", 3, GS_INVALID_ARGUMENT, "devices 0 to 2"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        struct gs_gpu *gpu = NULL;
        struct gs_gpu_machine machine;
        struct gs_error error;
        char description[300];
        setenv(wrongs[i].name, wrongs[i].value, 1);
        assert_fails(gs_cuda_api.open(wrongs[i].device, &gpu, &machine, &error), wrongs[i].status,
                     wrongs[i].message, &error);
        assert_null(gpu);
        assert_false(gs_cuda_api.probe(wrongs[i].device, description, sizeof description));
        assert_non_null(strstr(description, wrongs[i].message));
        assert_null(strchr(description, '\n'));
        unsetenv(wrongs[i].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(calls_are_these),
                                       cmocka_unit_test(what_is_wrong_is_named)};
    return cmocka_run_group_tests(tests, open_stand_in, remove_files);
}
