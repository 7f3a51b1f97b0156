#include "tests/gpu_sim/hip.h"
#include "tests/gpu_sim/sim.h"

#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_CONFIGURATION = 9,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    NO_BINARY = 209,
    NOT_FOUND = 500,
    LAUNCH_FAILURE = 719,
    CAPTURE_UNSUPPORTED = 900,
};

#define SHARED_BYTES (64u << 10)
#define N_DEVICE     3

struct device {
    const char *name;
    unsigned kind; /* of a code object's flags */
    const char *file;
};

static const struct device devices[N_DEVICE] = {
    {"Stand-in of 64 lanes", 0x4c, "libgpusim64.so"},
    {"Stand-in of 32 lanes", 0x41, "libgpusim32.so"},
    {"Stand-in of a kind unknown", 0x33, "libgpusim32.so"},
};

struct block {
    struct sim_buffer buffer; /* of the device's library */
    int device;               /* -1: the host's */
    struct block *next;
};

struct function {
    char name[64];
    struct function *next;
};

struct module {
    int device;
    const unsigned char *image;
    struct function *functions;
};

struct launch {
    struct gpu_sim_launch what;
    char kernel[64];
    void *args;
};

struct recording {
    int device;
    struct launch *launches;
    size_t n;
};

struct stream {
    int device;
    struct recording *recording; /* NULL: it runs */
    bool failed;
};

EXPORT struct hip_sim_control hip_sim_control;

static struct {
    pthread_mutex_t lock;
    bool started;
    const struct gpu_sim *sims[N_DEVICE];
    struct block *blocks;
    uint64_t taken[N_DEVICE];
    char fault[512]; /* of the last kernel that failed */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local int device_of_thread = -1;

/* ---------------------------------------------------------------- every call */

static void misuse(const char *call, const char *what)
{
    if (hip_sim_control.misuse[0] == '\0')
        snprintf(hip_sim_control.misuse, sizeof hip_sim_control.misuse, "%s: %.200s", call, what);
}

static void start(void)
{
    struct hip_sim_control *c = &hip_sim_control;
    const char *fail_at = getenv("HIP_SIM_FAIL_AT"), *code = getenv("HIP_SIM_FAIL_CODE");
    const char *order = getenv("HIP_SIM_ORDER"), *memory = getenv("HIP_SIM_MEMORY");
    const char *n_device = getenv("HIP_SIM_DEVICES"), *kinds = getenv("HIP_SIM_KINDS");
    c->fail_at = fail_at ? strtoul(fail_at, NULL, 10) : 0;
    c->fail_code = code ? atoi(code) : LAUNCH_FAILURE;
    c->memory = memory ? strtoull(memory, NULL, 10) : 4ull << 30;
    c->n_device = n_device ? atoi(n_device) : N_DEVICE;
    if (kinds && sscanf(kinds, "%x,%x", &c->kinds[0], &c->kinds[1]) != 2)
        misuse("hipInit", "HIP_SIM_KINDS is not two numbers");
    c->order = !order            ? SIM_FORWARD
               : order[0] == 'f' ? SIM_FORWARD
               : order[1] == 'e' ? SIM_REVERSE
                                 : SIM_RANDOM;
}

/* Counts the call; SUCCESS: it may go on, with the lock held until leave(). */
static int begin(void)
{
    pthread_mutex_lock(&state.lock);
    if (!state.started)
        start();
    state.started = true;
    hip_sim_control.n_calls++;
    return hip_sim_control.n_calls == hip_sim_control.fail_at ? hip_sim_control.fail_code : SUCCESS;
}

/* The same for a call that is about the thread's device, which must have been set. */
static int enter(const char *call)
{
    int result = begin();
    if (result == SUCCESS && device_of_thread < 0) {
        misuse(call, "no device was set in this thread");
        result = INVALID_DEVICE;
    }
    return result;
}

static int leave(int result)
{
    pthread_mutex_unlock(&state.lock);
    return result;
}

/* The simulator of the thread's device: a library beside this one. */
static const struct gpu_sim *sim(void)
{
    int index = device_of_thread;
    Dl_info here;
    char path[1024];
    gpu_sim_fn *find = NULL;
    if (state.sims[index])
        return state.sims[index];
    if (!dladdr(&hip_sim_control, &here))
        return NULL;
    const char *slash = strrchr(here.dli_fname, '/');
    int folder = slash ? (int)(slash - here.dli_fname + 1) : 0;
    snprintf(path, sizeof path, "%.*s%s", folder, here.dli_fname, devices[index].file);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL),
         *found = library ? dlsym(library, GPU_SIM_TABLE) : NULL;
    if (!found) {
        fprintf(stderr, "hip stand-in: %s cannot be used: %s\n", path, dlerror());
        abort();
    }
    memcpy(&find, &found, sizeof find);
    state.sims[index] = find();
    return state.sims[index];
}

/* ---------------------------------------------------------------- devices */

EXPORT int hipInit(unsigned flags);
int hipInit(unsigned flags)
{
    int result = begin();
    if (result == SUCCESS && flags != 0)
        result = INVALID_VALUE;
    return leave(result == SUCCESS && hip_sim_control.n_device == 0 ? INVALID_DEVICE : result);
}

EXPORT int hipDriverGetVersion(int *version);
int hipDriverGetVersion(int *version)
{
    *version = 60200000;
    return leave(begin());
}

EXPORT int hipGetDeviceCount(int *count);
int hipGetDeviceCount(int *count)
{
    int result = begin();
    *count = hip_sim_control.n_device;
    return leave(result);
}

EXPORT int hipDeviceGet(int *device, int ordinal);
int hipDeviceGet(int *device, int ordinal)
{
    int result = begin();
    if (result == SUCCESS && (ordinal < 0 || ordinal >= hip_sim_control.n_device))
        result = INVALID_DEVICE;
    *device = ordinal;
    return leave(result);
}

EXPORT int hipDeviceGetName(char *name, int size, int device);
int hipDeviceGetName(char *name, int size, int device)
{
    int result = begin();
    if (result == SUCCESS)
        snprintf(name, (size_t)size, "%s", devices[device].name);
    return leave(result);
}

EXPORT int hipDeviceTotalMem(size_t *bytes, int device);
int hipDeviceTotalMem(size_t *bytes, int device)
{
    (void)device;
    int result = begin();
    *bytes = hip_sim_control.memory;
    return leave(result);
}

EXPORT int hipSetDevice(int device);
int hipSetDevice(int device)
{
    int result = begin();
    hip_sim_control.device_lost = hip_sim_control.device_lost || result != SUCCESS;
    if (result == SUCCESS && (device < 0 || device >= hip_sim_control.n_device))
        result = INVALID_DEVICE;
    if (result == SUCCESS)
        device_of_thread = device;
    return leave(result);
}

EXPORT const char *hipGetErrorName(int result);
const char *hipGetErrorName(int result)
{
    switch (result) {
    case OUT_OF_MEMORY:
        return "hipErrorOutOfMemory";
    case NO_DEVICE:
        return "hipErrorNoDevice";
    case INVALID_DEVICE:
        return "hipErrorInvalidDevice";
    case NO_BINARY:
        return "hipErrorNoBinaryForGpu";
    case LAUNCH_FAILURE:
        return "hipErrorLaunchFailure";
    default:
        return "hipErrorInvalidValue";
    }
}

EXPORT const char *hipGetErrorString(int result);
const char *hipGetErrorString(int result)
{
    return result == LAUNCH_FAILURE && state.fault[0] ? state.fault : "as the stand-in was told";
}

/* ---------------------------------------------------------------- memory */

static int add_block(void **pointer, size_t bytes, int device)
{
    struct block *block = calloc(1, sizeof *block);
    const struct gpu_sim *s = sim();
    if (!block || !s->buffer_init(&block->buffer, "a buffer", bytes, 256)) {
        free(block);
        return OUT_OF_MEMORY;
    }
    block->device = device;
    block->next = state.blocks;
    state.blocks = block;
    hip_sim_control.n_held++;
    *pointer = block->buffer.data;
    return SUCCESS;
}

static int remove_block(const char *call, void *pointer, int device)
{
    struct block **at = &state.blocks;
    struct sim_fault fault;
    while (*at && (*at)->buffer.data != pointer)
        at = &(*at)->next;
    struct block *block = *at;
    if (!block || block->device != device) {
        misuse(call, "no such memory");
        return INVALID_VALUE;
    }
    const struct gpu_sim *s = sim();
    if (!s->buffer_intact(&block->buffer, &fault))
        misuse(call, fault.message);
    *at = block->next;
    if (device >= 0)
        state.taken[device] -= block->buffer.bytes;
    s->buffer_release(&block->buffer);
    free(block);
    hip_sim_control.n_held--;
    return SUCCESS;
}

/* Are these bytes of the thread's device? */
static bool on_device(const char *call, const void *pointer, size_t bytes)
{
    uintptr_t at = (uintptr_t)pointer;
    for (const struct block *block = state.blocks; block; block = block->next) {
        uintptr_t first = (uintptr_t)block->buffer.data;
        if (block->device == device_of_thread && at >= first && at - first <= block->buffer.bytes &&
            bytes <= block->buffer.bytes - (at - first))
            return true;
    }
    misuse(call, "not memory of this device");
    return false;
}

EXPORT int hipMemGetInfo(size_t *available, size_t *total);
int hipMemGetInfo(size_t *available, size_t *total)
{
    int result = enter("hipMemGetInfo");
    if (result == SUCCESS) {
        *total = hip_sim_control.memory;
        *available = hip_sim_control.memory - state.taken[device_of_thread];
    }
    return leave(result);
}

EXPORT int hipMalloc(void **pointer, size_t bytes);
int hipMalloc(void **pointer, size_t bytes)
{
    int result = enter("hipMalloc");
    if (result == SUCCESS && bytes > hip_sim_control.memory - state.taken[device_of_thread])
        result = OUT_OF_MEMORY;
    if (result == SUCCESS)
        result = add_block(pointer, bytes, device_of_thread);
    if (result == SUCCESS)
        state.taken[device_of_thread] += bytes;
    return leave(result);
}

EXPORT int hipFree(void *pointer);
int hipFree(void *pointer)
{
    int result = enter("hipFree");
    /* Given back even when told to fail: what is freed is not used again. */
    int removed =
        pointer && device_of_thread >= 0 ? remove_block("hipFree", pointer, device_of_thread) : SUCCESS;
    return leave(result == SUCCESS ? removed : result);
}

EXPORT int hipHostMalloc(void **pointer, size_t bytes, unsigned flags);
int hipHostMalloc(void **pointer, size_t bytes, unsigned flags)
{
    int result = enter("hipHostMalloc");
    if (result == SUCCESS)
        result = flags == 0 ? add_block(pointer, bytes, -1) : INVALID_VALUE;
    return leave(result);
}

EXPORT int hipHostFree(void *pointer);
int hipHostFree(void *pointer)
{
    int result = enter("hipHostFree");
    int removed = pointer && device_of_thread >= 0 ? remove_block("hipHostFree", pointer, -1) : SUCCESS;
    return leave(result == SUCCESS ? removed : result);
}

/* ---------------------------------------------------------------- streams */

EXPORT int hipStreamCreateWithFlags(struct stream **stream, unsigned flags);
int hipStreamCreateWithFlags(struct stream **stream, unsigned flags)
{
    int result = enter("hipStreamCreateWithFlags");
    if (result == SUCCESS && flags != 1)
        result = INVALID_VALUE;
    if (result == SUCCESS) {
        *stream = calloc(1, sizeof **stream);
        result = *stream ? SUCCESS : OUT_OF_MEMORY;
    }
    if (result == SUCCESS) {
        (*stream)->device = device_of_thread;
        hip_sim_control.n_held++;
    }
    return leave(result);
}

static void free_recording(struct recording *recording)
{
    for (size_t i = 0; recording && i < recording->n; i++)
        free(recording->launches[i].args);
    if (recording)
        free(recording->launches);
    free(recording);
}

EXPORT int hipStreamDestroy(struct stream *stream);
int hipStreamDestroy(struct stream *stream)
{
    int result = enter("hipStreamDestroy");
    if (stream->recording && !hip_sim_control.device_lost)
        misuse("hipStreamDestroy", "the stream still records");
    free_recording(stream->recording);
    free(stream);
    hip_sim_control.n_held--;
    return leave(result);
}

/* What every use of a stream begins with. */
static int enter_stream(const char *call, const struct stream *stream, bool may_record)
{
    int result = enter(call);
    if (!stream) /* the default one */
        return result;
    if (result == SUCCESS && stream->device != device_of_thread) {
        misuse(call, "a stream of another device");
        result = INVALID_VALUE;
    }
    if (result == SUCCESS && stream->recording && !may_record)
        result = CAPTURE_UNSUPPORTED;
    return result;
}

EXPORT int hipStreamSynchronize(struct stream *stream);
int hipStreamSynchronize(struct stream *stream)
{
    int result = enter_stream("hipStreamSynchronize", stream, false);
    return leave(result == SUCCESS && stream && stream->failed ? LAUNCH_FAILURE : result);
}

EXPORT int hipMemcpyHtoDAsync(void *to, const void *from, size_t bytes, struct stream *stream);
int hipMemcpyHtoDAsync(void *to, const void *from, size_t bytes, struct stream *stream)
{
    int result = enter_stream("hipMemcpyHtoDAsync", stream, false);
    if (result == SUCCESS && !on_device("hipMemcpyHtoDAsync", to, bytes))
        result = INVALID_VALUE;
    if (result == SUCCESS)
        memcpy(to, from, bytes);
    return leave(result);
}

EXPORT int hipMemcpyDtoHAsync(void *to, void *from, size_t bytes, struct stream *stream);
int hipMemcpyDtoHAsync(void *to, void *from, size_t bytes, struct stream *stream)
{
    int result = enter_stream("hipMemcpyDtoHAsync", stream, false);
    if (result == SUCCESS && !on_device("hipMemcpyDtoHAsync", from, bytes))
        result = INVALID_VALUE;
    if (result == SUCCESS)
        memcpy(to, from, bytes);
    return leave(result);
}

EXPORT int hipMemcpyDtoDAsync(void *to, void *from, size_t bytes, struct stream *stream);
int hipMemcpyDtoDAsync(void *to, void *from, size_t bytes, struct stream *stream)
{
    int result = enter_stream("hipMemcpyDtoDAsync", stream, false);
    if (result == SUCCESS &&
        (!on_device("hipMemcpyDtoDAsync", to, bytes) || !on_device("hipMemcpyDtoDAsync", from, bytes)))
        result = INVALID_VALUE;
    if (result == SUCCESS)
        memmove(to, from, bytes);
    return leave(result);
}

EXPORT int hipMemsetD8Async(void *to, unsigned char value, size_t bytes, struct stream *stream);
int hipMemsetD8Async(void *to, unsigned char value, size_t bytes, struct stream *stream)
{
    int result = enter_stream("hipMemsetD8Async", stream, false);
    if (result == SUCCESS && !on_device("hipMemsetD8Async", to, bytes))
        result = INVALID_VALUE;
    if (result == SUCCESS)
        memset(to, value, bytes);
    return leave(result);
}

/* ---------------------------------------------------------------- code objects */

static unsigned kind_of(int device)
{
    return device < 2 && hip_sim_control.kinds[device] ? hip_sim_control.kinds[device] : devices[device].kind;
}

EXPORT int hipModuleLoadData(struct module **module, const unsigned char *image);
int hipModuleLoadData(struct module **module, const unsigned char *image)
{
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)(const void *)image;
    int result = enter("hipModuleLoadData");
    if (result != SUCCESS)
        return leave(result);
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_machine != 224 /* AMDGPU */)
        return leave(INVALID_VALUE);
    if ((header->e_flags & HIP_SIM_KIND_MASK) != kind_of(device_of_thread))
        return leave(NO_BINARY);
    *module = calloc(1, sizeof **module);
    if (!*module)
        return leave(OUT_OF_MEMORY);
    (*module)->device = device_of_thread;
    (*module)->image = image;
    hip_sim_control.n_held++;
    return leave(SUCCESS);
}

EXPORT int hipModuleUnload(struct module *module);
int hipModuleUnload(struct module *module)
{
    int result = enter("hipModuleUnload");
    for (struct function *f = module->functions, *next; f; f = next) {
        next = f->next;
        free(f);
    }
    free(module);
    hip_sim_control.n_held--;
    return leave(result);
}

/* Does the code object have the descriptor of a kernel of this name? */
static bool has_kernel(const unsigned char *image, const char *name)
{
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)(const void *)image;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(const void *)(image + header->e_shoff);
    char wanted[80];
    snprintf(wanted, sizeof wanted, "%s.kd", name);
    for (int i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_DYNSYM)
            continue;
        const Elf64_Sym *symbols = (const Elf64_Sym *)(const void *)(image + sections[i].sh_offset);
        const char *names = (const char *)image + sections[sections[i].sh_link].sh_offset;
        for (size_t s = 0; s < sections[i].sh_size / sizeof *symbols; s++)
            if (strcmp(names + symbols[s].st_name, wanted) == 0)
                return true;
    }
    return false;
}

EXPORT int hipModuleGetFunction(struct function **function, struct module *module, const char *name);
int hipModuleGetFunction(struct function **function, struct module *module, const char *name)
{
    int result = enter("hipModuleGetFunction");
    if (result == SUCCESS && (!has_kernel(module->image, name) || sim()->args_bytes(name) == 0))
        result = NOT_FOUND;
    if (result == SUCCESS) {
        *function = calloc(1, sizeof **function);
        result = *function ? SUCCESS : OUT_OF_MEMORY;
    }
    if (result == SUCCESS) {
        snprintf((*function)->name, sizeof(*function)->name, "%s", name);
        (*function)->next = module->functions;
        module->functions = *function;
    }
    return leave(result);
}

/* ---------------------------------------------------------------- launches */

static void run(struct stream *stream, const struct gpu_sim_launch *what)
{
    struct sim_fault fault;
    struct gpu_sim_launch launch = *what;
    launch.order = hip_sim_control.order;
    launch.seed = ++hip_sim_control.seed;
    launch.sums_whole = !hip_sim_control.sums_exchanged;
    hip_sim_control.n_launch++;
    if (stream->failed || sim()->run(&launch, &fault))
        return;
    stream->failed = true;
    snprintf(state.fault, sizeof state.fault, "%s: %.400s", what->kernel, fault.message);
}

static int record(struct recording *recording, const struct gpu_sim_launch *what)
{
    size_t bytes = sim()->args_bytes(what->kernel);
    struct launch *launches = realloc(recording->launches, (recording->n + 1) * sizeof *launches);
    if (!launches)
        return OUT_OF_MEMORY;
    recording->launches = launches;
    struct launch *launch = &launches[recording->n];
    launch->what = *what;
    launch->args = malloc(bytes);
    if (!launch->args)
        return OUT_OF_MEMORY;
    memcpy(launch->args, what->args, bytes);
    snprintf(launch->kernel, sizeof launch->kernel, "%s", what->kernel);
    recording->n++;
    return SUCCESS;
}

EXPORT int hipModuleLaunchKernel(struct function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                 struct stream *stream, void **parameters, void **extra);
int hipModuleLaunchKernel(struct function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                          struct stream *stream, void **parameters, void **extra)
{
    int result = enter_stream("hipModuleLaunchKernel", stream, true);
    if (result != SUCCESS)
        return leave(result);
    if (extra || block_y != 1 || block_z != 1 || grid_x == 0 || grid_y == 0 || grid_z == 0)
        return leave(INVALID_VALUE);
    if (block_x == 0 || block_x > SIM_MAX_THREADS || shared_bytes > SHARED_BYTES ||
        (uint64_t)grid_x * block_x > UINT32_MAX)
        return leave(INVALID_CONFIGURATION);
    struct gpu_sim_launch what = {.kernel = function->name,
                                  .grid = {grid_x, grid_y, grid_z},
                                  .block = block_x,
                                  .shared_bytes = shared_bytes,
                                  .args = parameters[0]};
    if (stream->recording)
        return leave(record(stream->recording, &what));
    run(stream, &what);
    return leave(SUCCESS);
}

/* ---------------------------------------------------------------- graphs */

EXPORT int hipStreamBeginCapture(struct stream *stream, int mode);
int hipStreamBeginCapture(struct stream *stream, int mode)
{
    int result = enter_stream("hipStreamBeginCapture", stream, false);
    if (result == SUCCESS && mode != 1)
        result = INVALID_VALUE;
    if (result == SUCCESS) {
        stream->recording = calloc(1, sizeof *stream->recording);
        result = stream->recording ? SUCCESS : OUT_OF_MEMORY;
    }
    if (result == SUCCESS)
        stream->recording->device = device_of_thread;
    return leave(result);
}

EXPORT int hipStreamEndCapture(struct stream *stream, struct recording **out);
int hipStreamEndCapture(struct stream *stream, struct recording **out)
{
    int result = enter_stream("hipStreamEndCapture", stream, true);
    if (!stream->recording)
        return leave(result == SUCCESS ? INVALID_VALUE : result);
    if (result == SUCCESS) {
        *out = stream->recording;
        hip_sim_control.n_held++;
    } else {
        free_recording(stream->recording);
    }
    stream->recording = NULL;
    return leave(result);
}

EXPORT int hipGraphInstantiateWithFlags(struct recording **exec, const struct recording *from,
                                        unsigned long long flags);
int hipGraphInstantiateWithFlags(struct recording **exec, const struct recording *from,
                                 unsigned long long flags)
{
    int result = enter("hipGraphInstantiateWithFlags");
    if (result == SUCCESS && flags != 0)
        result = INVALID_VALUE;
    if (result == SUCCESS) {
        *exec = calloc(1, sizeof **exec);
        result = *exec ? SUCCESS : OUT_OF_MEMORY;
    }
    if (result != SUCCESS)
        return leave(result);
    (*exec)->device = from->device;
    for (size_t i = 0; result == SUCCESS && i < from->n; i++) {
        struct gpu_sim_launch what = from->launches[i].what;
        what.kernel = from->launches[i].kernel;
        what.args = from->launches[i].args;
        result = record(*exec, &what);
    }
    hip_sim_control.n_held++;
    return leave(result);
}

EXPORT int hipGraphLaunch(const struct recording *exec, struct stream *stream);
int hipGraphLaunch(const struct recording *exec, struct stream *stream)
{
    int result = enter_stream("hipGraphLaunch", stream, false);
    for (size_t i = 0; result == SUCCESS && i < exec->n; i++) {
        struct gpu_sim_launch what = exec->launches[i].what;
        what.kernel = exec->launches[i].kernel;
        what.args = exec->launches[i].args;
        run(stream, &what);
    }
    return leave(result);
}

static int free_graph(const char *call, struct recording *graph)
{
    int result = enter(call);
    free_recording(graph);
    hip_sim_control.n_held--;
    return leave(result);
}

EXPORT int hipGraphExecDestroy(struct recording *exec);
int hipGraphExecDestroy(struct recording *exec)
{
    return free_graph("hipGraphExecDestroy", exec);
}

EXPORT int hipGraphDestroy(struct recording *graph);
int hipGraphDestroy(struct recording *graph)
{
    return free_graph("hipGraphDestroy", graph);
}
