/*
 * A library in libcuda.so.1's place that runs no kernel and writes every call down, one a line, to the file
 * that CUDA_TRACE names: what the host asks of a driver, and in which order. Device memory is the host's, at
 * an address of its own choosing, so that two runs can be compared.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ARENA_AT    0x200000000000ull /* beyond where a sanitizer keeps its shadow */
#define ARENA_BYTES (8ull << 30)
#define MAX_NAMES   512

/* CUlaunchConfig and CUlaunchAttribute, as the library gets them. */
struct attribute {
    int id;
    char pad[4];
    int value[16];
};

struct config {
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    const struct attribute *attributes;
    unsigned n_attributes;
};

static struct {
    pthread_mutex_t lock;
    FILE *file;
    pthread_t first; /* the thread that called first: the others are marked */
    char *arena;
    uint64_t used;
    char names[MAX_NAMES][64]; /* of kernels: the lines of the file that CUDA_KERNELS names */
    unsigned n_names, n_streams, n_graphs, n_modules;
    unsigned long calls, fail_at; /* the call number CUDA_FAIL_AT says that there is no memory; 0: none */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void start(void)
{
    const char *trace = getenv("CUDA_TRACE"), *kernels = getenv("CUDA_KERNELS");
    const char *fail_at = getenv("CUDA_FAIL_AT");
    state.fail_at = fail_at ? strtoul(fail_at, NULL, 10) : 0;
    state.file = trace ? fopen(trace, "w") : NULL;
    state.first = pthread_self();
    state.arena = mmap((void *)(uintptr_t)ARENA_AT, ARENA_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    FILE *list = kernels ? fopen(kernels, "r") : NULL;
    while (list && state.n_names < MAX_NAMES && fscanf(list, "%63s", state.names[state.n_names]) == 1)
        state.n_names++;
    if (list)
        fclose(list);
}

__attribute__((format(printf, 1, 2))) static int note(const char *format, ...)
{
    va_list arguments;
    pthread_mutex_lock(&state.lock);
    if (!state.arena)
        start();
    if (state.file) {
        va_start(arguments, format);
        fputs(pthread_equal(pthread_self(), state.first) ? "" : "reader: ", state.file);
        vfprintf(state.file, format, arguments);
        va_end(arguments);
        fflush(state.file);
    }
    int result = state.arena == MAP_FAILED ? 999 : ++state.calls == state.fail_at ? 2 : 0;
    pthread_mutex_unlock(&state.lock);
    return result;
}

/* What the machine is said to have, unless the environment says otherwise. */
static int environment(const char *name, int usual)
{
    const char *value = getenv(name);
    return value ? atoi(value) : usual;
}

static uint64_t take(size_t bytes)
{
    uint64_t at = ARENA_AT + state.used;
    state.used += (bytes + 511) / 256 * 256;
    return at;
}

#define CALL(name, ...)                                                                                      \
    int name(__VA_ARGS__) __attribute__((visibility("default")));                                            \
    int name(__VA_ARGS__)

CALL(cuInit, unsigned flags)
{
    return note("cuInit(%u)\n", flags);
}
CALL(cuDriverGetVersion, int *version)
{
    *version = environment("CUDA_SAID_VERSION", 13000);
    return note("cuDriverGetVersion\n");
}
CALL(cuGetErrorName, int result, const char **text)
{
    *text = "CUDA_ERROR_STAND_IN";
    return note("cuGetErrorName(%d)\n", result);
}
CALL(cuGetErrorString, int result, const char **text)
{
    *text = "made by the stand-in";
    return note("cuGetErrorString(%d)\n", result);
}
CALL(cuDeviceGetCount, int *count)
{
    *count = environment("CUDA_SAID_DEVICES", 2);
    return note("cuDeviceGetCount\n");
}
CALL(cuDeviceGet, int *device, int ordinal)
{
    *device = ordinal + 40;
    return note("cuDeviceGet(%d)\n", ordinal);
}
CALL(cuDeviceGetName, char *name, int size, int device)
{
    snprintf(name, (size_t)size, "Stand-in");
    return note("cuDeviceGetName(%d, %d)\n", size, device);
}
CALL(cuDeviceGetAttribute, int *value, int attribute, int device)
{
    int capability = environment("CUDA_SAID_CAPABILITY", 90);
    *value = attribute == 75   ? capability / 10
             : attribute == 76 ? capability % 10
             : attribute == 16 ? 132
             : attribute == 97 ? 232448
                               : 1;
    return note("cuDeviceGetAttribute(%d, %d)\n", attribute, device);
}
CALL(cuDeviceTotalMem_v2, size_t *bytes, int device)
{
    *bytes = (size_t)ARENA_BYTES;
    return note("cuDeviceTotalMem(%d)\n", device);
}
CALL(cuDevicePrimaryCtxRetain, void **context, int device)
{
    *context = &state;
    return note("cuDevicePrimaryCtxRetain(%d)\n", device);
}
CALL(cuDevicePrimaryCtxRelease_v2, int device)
{
    return note("cuDevicePrimaryCtxRelease(%d)\n", device);
}
CALL(cuCtxSetCurrent, const void *context)
{
    return note("cuCtxSetCurrent(%s)\n", context == &state ? "the context" : "another");
}
CALL(cuMemGetInfo_v2, size_t *available, size_t *total)
{
    *available = *total = (size_t)ARENA_BYTES;
    return note("cuMemGetInfo\n");
}
CALL(cuMemAlloc_v2, unsigned long long *pointer, size_t bytes)
{
    *pointer = take(bytes);
    return note("cuMemAlloc(%zu) = %llx\n", bytes, *pointer);
}
CALL(cuMemFree_v2, unsigned long long pointer)
{
    return note("cuMemFree(%llx)\n", pointer);
}
CALL(cuMemHostAlloc, void **pointer, size_t bytes, unsigned flags)
{
    *pointer = (void *)(uintptr_t)take(bytes);
    return note("cuMemHostAlloc(%zu, %u) = %p\n", bytes, flags, *pointer);
}
CALL(cuMemFreeHost, void *pointer)
{
    return note("cuMemFreeHost(%p)\n", pointer);
}
CALL(cuMemcpyHtoDAsync_v2, unsigned long long to, const void *from, size_t bytes, const void *stream)
{
    memcpy((void *)(uintptr_t)to, from, bytes);
    return note("cuMemcpyHtoDAsync(%llx, %zu, stream %zu)\n", to, bytes, (size_t)stream);
}
CALL(cuMemcpyDtoHAsync_v2, void *to, unsigned long long from, size_t bytes, const void *stream)
{
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return note("cuMemcpyDtoHAsync(%llx, %zu, stream %zu)\n", from, bytes, (size_t)stream);
}
CALL(cuMemcpyDtoDAsync_v2, unsigned long long to, unsigned long long from, size_t bytes, const void *stream)
{
    memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return note("cuMemcpyDtoDAsync(%llx, %llx, %zu, stream %zu)\n", to, from, bytes, (size_t)stream);
}
CALL(cuMemsetD8Async, unsigned long long to, unsigned char value, size_t bytes, const void *stream)
{
    memset((void *)(uintptr_t)to, value, bytes);
    return note("cuMemsetD8Async(%llx, %d, %zu, stream %zu)\n", to, value, bytes, (size_t)stream);
}
CALL(cuStreamCreate, void **stream, unsigned flags)
{
    int result = note("cuStreamCreate(%u)\n", flags);
    *stream = (void *)(uintptr_t)++state.n_streams;
    return result;
}
CALL(cuStreamDestroy_v2, const void *stream)
{
    return note("cuStreamDestroy(%zu)\n", (size_t)stream);
}
CALL(cuStreamSynchronize, const void *stream)
{
    return note("cuStreamSynchronize(%zu)\n", (size_t)stream);
}
CALL(cuStreamBeginCapture_v2, const void *stream, int mode)
{
    return note("cuStreamBeginCapture(%zu, %d)\n", (size_t)stream, mode);
}
CALL(cuStreamEndCapture, const void *stream, void **graph)
{
    *graph = (void *)(uintptr_t)++state.n_graphs;
    return note("cuStreamEndCapture(%zu)\n", (size_t)stream);
}
CALL(cuGraphInstantiateWithFlags, void **exec, void *graph, unsigned long long flags)
{
    *exec = graph;
    return note("cuGraphInstantiateWithFlags(%zu, %llu)\n", (size_t)graph, flags);
}
CALL(cuGraphLaunch, const void *exec, const void *stream)
{
    return note("cuGraphLaunch(%zu, stream %zu)\n", (size_t)exec, (size_t)stream);
}
CALL(cuGraphExecDestroy, const void *exec)
{
    return note("cuGraphExecDestroy(%zu)\n", (size_t)exec);
}
CALL(cuGraphDestroy, const void *graph)
{
    return note("cuGraphDestroy(%zu)\n", (size_t)graph);
}
CALL(cuModuleLoadData, void **module, const void *image)
{
    *module = (void *)(uintptr_t)++state.n_modules;
    return note("cuModuleLoadData(%.20s)\n", (const char *)image);
}
CALL(cuModuleUnload, const void *module)
{
    return note("cuModuleUnload(%zu)\n", (size_t)module);
}
/* The first module has every kernel, the others none. */
CALL(cuModuleGetFunctionCount, unsigned *count, const void *module)
{
    *count = (size_t)module == 1 ? state.n_names : 0;
    return note("cuModuleGetFunctionCount(%zu)\n", (size_t)module);
}
CALL(cuModuleEnumerateFunctions, void **functions, unsigned count, const void *module)
{
    for (unsigned i = 0; i < count; i++)
        functions[i] = state.names[i];
    return note("cuModuleEnumerateFunctions(%u, %zu)\n", count, (size_t)module);
}
CALL(cuFuncGetName, const char **name, const char *function)
{
    *name = function;
    return note("cuFuncGetName(%s)\n", function);
}
CALL(cuFuncSetAttribute, const char *function, int attribute, int value)
{
    return note("cuFuncSetAttribute(%s, %d, %d)\n", function, attribute, value);
}
CALL(cuLaunchKernelEx, const struct config *c, const char *function, void **parameters, void **extra)
{
    uint64_t words[3] = {0};
    char attributes[100] = "";
    memcpy(words, parameters[0], sizeof words); /* no kernel has fewer bytes of arguments */
    for (unsigned i = 0; i < c->n_attributes; i++)
        snprintf(attributes + strlen(attributes), sizeof attributes - strlen(attributes), " %d=%d",
                 c->attributes[i].id, c->attributes[i].value[0]);
    return note("cuLaunchKernelEx(%s, %u %u %u of %u %u %u, %u bytes, stream %zu,%s, %llx %llx %llx, %s)\n",
                function, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2],
                c->shared_bytes, (size_t)c->stream, attributes, (unsigned long long)words[0],
                (unsigned long long)words[1], (unsigned long long)words[2], extra ? "extra" : "no extra");
}
