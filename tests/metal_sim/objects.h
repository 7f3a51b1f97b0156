/* The stand-in's own: objects, their counts, and what its files offer each other. */
#ifndef GS_TESTS_METAL_SIM_OBJECTS_H
#define GS_TESTS_METAL_SIM_OBJECTS_H

#include "tests/metal_sim/metal_stand_in.h"

/* What every object begins with. A class is an object too, its own kind. */
struct object {
    const struct class *class;
    long count;                     /* 0: gone; its memory is kept, so that a late message is noticed */
    struct object *next, *previous; /* among the live ones */
};

struct class {
    struct object object;
    const char *name;
    size_t size;
    void (*dealloc)(void *object); /* or NULL */
};

extern struct class class_string, class_error, class_options, class_constants, class_device, class_queue,
    class_library, class_function, class_pipeline, class_buffer, class_commands, class_encoder, class_pool,
    class_url, class_array, class_process, class_archive, class_archive_descriptor, class_pipeline_descriptor;

typedef const struct selector *selector;

/* A method: `function` is called with the object, the selector and the arguments of `types`. */
struct method {
    const struct class *class; /* NULL: of every class */
    bool of_class;             /* +, not - */
    const char *name, *types;
    void (*function)(void);
};
extern const struct method metalsim_methods[];

/* Counted once. Never NULL: without memory the process ends. */
void *object_new(const struct class *class);
void *object_retain(void *object); /* accepts NULL */
void object_release(void *object); /* accepts NULL */
void *object_autorelease(void *object);

/* Ends the process: what Metal's validation, or a crash, would do. */
void stop(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Counts a call that may fail, and says whether this is the one that is to. */
bool metalsim_fails(void);

extern struct metalsim_counts counts;

/* ---------------------------------------------------------------- kinds */

struct string {
    struct object object;
    char *text;
    size_t n;
};

struct error {
    struct object object;
    struct string *description;
};

struct options {
    struct object object;
    bool fast_math;
    unsigned long version;
};

struct constants {
    struct object object;
    struct metalsim_constant list[64];
    uint64_t values[64];
    int n;
};

struct library_object {
    struct object object;
    char *source;
    struct metalsim_options options; /* without constants */
};

struct function_object {
    struct object object;
    struct metalsim_library *library; /* opened with this function's constants */
    const struct metalsim_kernel *kernel;
    uint64_t identity; /* a hash of source, options, name and constants */
};

struct pipeline {
    struct object object;
    struct function_object *function;
};

struct buffer {
    struct object object;
    struct sim_buffer guarded; /* of memory of its own */
    void *data, *plain;        /* `plain`: memory without guards, to be unmapped */
    size_t bytes;
};

struct string *string_new(const char *text, size_t n);
struct error *error_new(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Puts an autoreleased error into *out, if there is an out. */
void error_give(struct error **out, struct error *error);

#endif
