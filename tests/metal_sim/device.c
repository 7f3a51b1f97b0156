/* MTLDevice and what it makes: queues aside, buffers, libraries, functions, pipelines. */
#include "tests/metal_sim/device.h"
#include "tests/metal_sim/library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GIB ((uint64_t)1 << 30)

struct device {
    struct object object;
};

void *MTLCreateSystemDefaultDevice(void);

void *MTLCreateSystemDefaultDevice(void)
{
    char message[200];
    if (metalsim_controls()->no_device || metalsim_fails())
        return NULL;
    if (!metalsim_available(message, sizeof message)) {
        fprintf(stderr, "metalsim: %s\n", message);
        return NULL;
    }
    return object_new(&class_device);
}

void *device_name(void *self, selector cmd)
{
    (void)self, (void)cmd;
    static const char name[] = "the Metal simulator";
    return object_autorelease(string_new(name, sizeof name - 1));
}

unsigned long device_max_buffer(void *self, selector cmd)
{
    (void)self, (void)cmd;
    uint64_t set = metalsim_controls()->max_buffer;
    return set ? set : 64 * GIB;
}

unsigned long device_working_set(void *self, selector cmd)
{
    (void)self, (void)cmd;
    uint64_t set = metalsim_controls()->working_set;
    return set ? set : 96 * GIB;
}

unsigned long device_allocated(void *self, selector cmd)
{
    (void)self, (void)cmd;
    return counts.live_buffer_bytes;
}

unsigned long device_max_shared(void *self, selector cmd)
{
    (void)self, (void)cmd;
    return METALSIM_MAX_SHARED;
}

struct size3 device_max_threads(void *self, selector cmd)
{
    (void)self, (void)cmd;
    return (struct size3){METALSIM_MAX_THREADS, METALSIM_MAX_THREADS, METALSIM_MAX_THREADS};
}

/* MTLGPUFamilyApple1 ... Apple7 are 1001 ... 1007, Metal3 is 5001: an M1. */
bool device_supports(void *self, selector cmd, long family)
{
    (void)self, (void)cmd;
    if (metalsim_controls()->old_device)
        return family >= 1001 && family <= 1005;
    return (family >= 1001 && family <= 1007) || family == 5001;
}

bool device_unified(void *self, selector cmd)
{
    (void)self, (void)cmd;
    return true;
}

void *device_new_queue(void *self, selector cmd)
{
    (void)self, (void)cmd;
    return metalsim_fails() ? NULL : object_new(&class_queue);
}

/* ---------------------------------------------------------------- buffers */

static void check_options(const char *method, unsigned long bytes, unsigned long options)
{
    if (options != 0)
        stop("%s: options %lu: the stand-in knows MTLResourceStorageModeShared, 0", method, options);
    if (bytes == 0)
        stop("%s: a buffer of no bytes", method);
}

void *device_new_buffer(void *self, selector cmd, unsigned long bytes, unsigned long options)
{
    check_options("newBufferWithLength", bytes, options);
    if (metalsim_fails() || bytes > device_max_buffer(self, cmd))
        return NULL;
    struct buffer *buffer = object_new(&class_buffer);
    bool made;
    if (metalsim_controls()->encode_only) { /* pages that nobody touches cost nothing */
        void *plain =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        made = plain != MAP_FAILED;
        buffer->data = buffer->plain = made ? plain : NULL;
    } else {
        char name[40];
        snprintf(name, sizeof name, "a buffer of %lu bytes", bytes);
        made = sim_buffer_init(&buffer->guarded, name, bytes, 16);
        buffer->data = buffer->guarded.data;
    }
    buffer->bytes = made ? bytes : 0;
    counts.live_buffer_bytes += buffer->bytes;
    if (made)
        return buffer;
    object_release(buffer);
    return NULL;
}

void *device_new_buffer_with(void *self, selector cmd, const void *from, unsigned long bytes,
                             unsigned long options)
{
    struct buffer *buffer = device_new_buffer(self, cmd, bytes, options);
    if (buffer)
        memcpy(buffer->data, from, bytes);
    return buffer;
}

void *device_new_buffer_no_copy(void *self, selector cmd, void *memory, unsigned long bytes,
                                unsigned long options, void *deallocator)
{
    uint64_t page = metalsim_controls()->page ? metalsim_controls()->page : (uint64_t)sysconf(_SC_PAGESIZE);
    check_options("newBufferWithBytesNoCopy", bytes, options);
    if ((uintptr_t)memory % page || bytes % page)
        stop("newBufferWithBytesNoCopy: %p and %lu bytes are not multiples of the page, %llu bytes", memory,
             bytes, (unsigned long long)page);
    if (deallocator)
        stop("newBufferWithBytesNoCopy: the stand-in calls no deallocator");
    if (metalsim_fails() || bytes > device_max_buffer(self, cmd))
        return NULL;
    struct buffer *buffer = object_new(&class_buffer);
    buffer->data = memory;
    buffer->bytes = bytes;
    return buffer;
}

static void buffer_dealloc(void *self)
{
    struct buffer *buffer = self;
    struct sim_fault fault;
    if (buffer->guarded.mapping && !sim_buffer_intact(&buffer->guarded, &fault))
        stop("%s", fault.message);
    if (buffer->guarded.mapping || buffer->plain)
        counts.live_buffer_bytes -= buffer->bytes;
    sim_buffer_release(&buffer->guarded);
    if (buffer->plain)
        munmap(buffer->plain, buffer->bytes);
}

void *buffer_contents(void *self, selector cmd)
{
    (void)cmd;
    return ((struct buffer *)self)->data;
}

unsigned long buffer_length(void *self, selector cmd)
{
    (void)cmd;
    return ((struct buffer *)self)->bytes;
}

/* ---------------------------------------------------------------- libraries */

void *device_new_library(void *self, selector cmd, struct string *source, struct options *options,
                         struct error **error)
{
    (void)self, (void)cmd;
    char message[METALSIM_MESSAGE] = "the compiler's service is gone";
    struct metalsim_options own = {.fast_math = options ? options->fast_math : true,
                                   .version = options ? options->version : 0};
    if (metalsim_fails() || !metalsim_library_compile(source->text, &own, message, sizeof message)) {
        error_give(error, error_new("%s", message));
        return NULL;
    }
    struct library_object *library = object_new(&class_library);
    library->source = strdup(source->text);
    library->options = own;
    counts.compiled++;
    return library;
}

static void library_dealloc(void *self)
{
    free(((struct library_object *)self)->source);
}

static uint64_t mix(uint64_t hash, const void *bytes, size_t n)
{
    for (const unsigned char *at = bytes; n > 0; n--)
        hash = (hash ^ *at++) * 1099511628211u;
    return hash;
}

static uint64_t identity_of(const struct library_object *library, const char *name,
                            const struct constants *constants)
{
    uint64_t hash = mix(1469598103934665603u, library->source, strlen(library->source) + 1);
    hash = mix(hash, name, strlen(name) + 1);
    hash = mix(hash, &library->options.fast_math, sizeof library->options.fast_math);
    hash = mix(hash, &library->options.version, sizeof library->options.version);
    for (int i = 0; constants && i < constants->n; i++) {
        hash = mix(hash, &constants->list[i].index, sizeof constants->list[i].index);
        hash = mix(hash, &constants->values[i], sizeof constants->values[i]);
    }
    return hash;
}

void *library_new_function_with(void *self, selector cmd, struct string *name, struct constants *constants,
                                struct error **error)
{
    (void)cmd;
    const struct library_object *from = self;
    char message[METALSIM_MESSAGE] = "the function cannot be made";
    struct metalsim_options options = from->options;
    options.constants = constants ? constants->list : NULL;
    options.n_constant = constants ? constants->n : 0;
    struct metalsim_library *library =
        metalsim_fails() ? NULL : metalsim_library_new(from->source, &options, message, sizeof message);
    const struct metalsim_kernel *kernel = library ? metalsim_library_find(library, name->text) : NULL;
    if (library && !kernel)
        snprintf(message, sizeof message, "the library has no function '%s'", name->text);
    if (!kernel) {
        metalsim_library_free(library);
        error_give(error, error_new("%s", message));
        return NULL;
    }
    struct function_object *function = object_new(&class_function);
    function->library = library;
    function->kernel = kernel;
    function->identity = identity_of(from, name->text, constants);
    return function;
}

void *library_new_function(void *self, selector cmd, struct string *name)
{
    return library_new_function_with(self, cmd, name, NULL, NULL);
}

static void function_dealloc(void *self)
{
    metalsim_library_free(((struct function_object *)self)->library);
}

void *device_new_pipeline(void *self, selector cmd, struct function_object *function, struct error **error)
{
    (void)self, (void)cmd;
    if (metalsim_fails()) {
        error_give(error, error_new("the pipeline cannot be made"));
        return NULL;
    }
    counts.pipelines_compiled++;
    struct pipeline *pipeline = object_new(&class_pipeline);
    pipeline->function = object_retain(function);
    return pipeline;
}

static void pipeline_dealloc(void *self)
{
    object_release(((struct pipeline *)self)->function);
}

unsigned long pipeline_max_threads(void *self, selector cmd)
{
    (void)cmd;
    int own = ((struct pipeline *)self)->function->kernel->max_threads;
    uint32_t set = metalsim_controls()->max_threads;
    return own ? (unsigned long)own : set ? set : METALSIM_MAX_THREADS;
}

unsigned long pipeline_width(void *self, selector cmd)
{
    (void)self, (void)cmd;
    uint32_t told = metalsim_controls()->width;
    return told ? told : METALSIM_WIDTH;
}

struct class class_device = {.name = "MTLDevice", .size = sizeof(struct device)};
struct class class_buffer = {.name = "MTLBuffer", .size = sizeof(struct buffer), .dealloc = buffer_dealloc};
struct class class_library = {
    .name = "MTLLibrary", .size = sizeof(struct library_object), .dealloc = library_dealloc};
struct class class_function = {
    .name = "MTLFunction", .size = sizeof(struct function_object), .dealloc = function_dealloc};
struct class class_pipeline = {
    .name = "MTLComputePipelineState", .size = sizeof(struct pipeline), .dealloc = pipeline_dealloc};
