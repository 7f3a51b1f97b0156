/*
 * Metal's objects as C: a device with its queue, compiled kernels, buffers, and passes: one command buffer
 * with one encoder. Everything that is handed out is owned by the caller, who gives it back by
 * gs_metal_release or gs_metal_pass_end; nothing here is autoreleased beyond the call that made it.
 *
 * metal.c talks to the Objective-C runtime and includes nothing of the system but C's own types, so that a
 * compiler for Apple's targets checks it without an SDK.
 */
#ifndef GS_BACKEND_METAL_METAL_H
#define GS_BACKEND_METAL_METAL_H

#include "backend/metal/objc.h"
#include "gossamer.h"

#define GS_METAL_MAX_INDICES 31 /* of buffers */

struct gs_metal {
    struct gs_objc objc;
    void *libraries[3]; /* library.c's */
    gs_objc_id device, queue, kernels;
    char name[96]; /* "Apple M1 Ultra" */
    uint64_t max_buffer_bytes;
    uint64_t working_set_bytes; /* what the GPU may use at a time without being slowed down */
    uint64_t threadgroup_bytes; /* of threadgroup memory at most */
    uint64_t allocated_bytes;   /* of all buffers that are held now, by our own count */
    uint64_t n_command_buffers, n_encoders, n_dispatches; /* since open */
};

struct gs_metal_memory {
    gs_objc_id object; /* NULL: none */
    void *contents;    /* shared with the GPU */
    uint64_t bytes;
};

struct gs_metal_pipeline {
    gs_objc_id object;
    uint32_t max_threads; /* of a threadgroup */
    uint32_t width;       /* threads of a SIMD-group */
};

/* A value that a kernel is compiled with. */
struct gs_metal_value {
    uint32_t index;
    int32_t type; /* GS_METAL_TYPE_INT, _UINT or _BOOL */
    uint32_t value;
};

struct gs_metal_dispatch {
    const char *kernel; /* for messages */
    const struct gs_metal_pipeline *pipeline;
    const void *bytes; /* [n_bytes], at most 4096: index 0 */
    size_t n_bytes;
    uint32_t threadgroup_bytes; /* a multiple of 16; 0: none */
    uint32_t grid[3];           /* threadgroups */
    uint32_t threads;           /* of a threadgroup */
};

/* Memory as a dispatch sees it, from an offset on. */
struct gs_metal_place {
    gs_objc_id buffer; /* NULL: nowhere */
    uint64_t offset;
};

/* A command buffer and the one encoder that writes to it. */
struct gs_metal_pass {
    gs_objc_id commands, encoder;
    struct gs_metal_place bound[GS_METAL_MAX_INDICES]; /* what the encoder has where */
};

/* library.c: opens Objective-C and Metal. GS_UNSUPPORTED, in one line, where they are not. */
gs_status gs_metal_libraries_open(struct gs_metal *metal, struct gs_error *error);
void gs_metal_libraries_close(struct gs_metal *metal);

/* The default device and a queue. GS_UNSUPPORTED: no Metal here, no device, a device that is too old. */
gs_status gs_metal_open(struct gs_metal *metal, struct gs_error *error);
void gs_metal_close(struct gs_metal *metal);

/* Compiles `source` [size bytes]. GS_UNSUPPORTED with the compiler's message. */
gs_status gs_metal_compile(struct gs_metal *metal, const void *source, size_t size, struct gs_error *error);

/* A kernel of the compiled source, with constants [n], by way of an archive or (NULL) compiled for this
 * process. */
struct gs_metal_archive;
gs_status gs_metal_pipeline_make(struct gs_metal *metal, const char *kernel,
                                 const struct gs_metal_value *constants, size_t n,
                                 struct gs_metal_archive *archive, struct gs_metal_pipeline *out,
                                 struct gs_error *error);

/* Shared memory of its own, not cleared. `what` for the message: "the cache of a context". */
gs_status gs_metal_memory_make(struct gs_metal *metal, uint64_t bytes, const char *what,
                               struct gs_metal_memory *out, struct gs_error *error);

/* A view of whole pages that are mapped, and stay so until it is released. */
gs_status gs_metal_memory_over(struct gs_metal *metal, const void *pages, uint64_t bytes,
                               struct gs_metal_memory *out, struct gs_error *error);
void gs_metal_memory_release(struct gs_metal *metal, struct gs_metal_memory *buffer);
void gs_metal_pipeline_release(struct gs_metal *metal, struct gs_metal_pipeline *pipeline);

/* Bytes of buffers that this process holds on the device now: Metal's figure or ours, the larger. */
uint64_t gs_metal_allocated(const struct gs_metal *metal);

/*
 * A pass from begin to end. Dispatches of a pass run in order, each after what the one before it wrote. After
 * a failure of any of these, or to give up a pass that was not committed: gs_metal_pass_end.
 */
gs_status gs_metal_pass_begin(struct gs_metal *metal, struct gs_metal_pass *pass, struct gs_error *error);
/* Binds memory to an index, for the dispatches that follow. */
void gs_metal_pass_bind(struct gs_metal *metal, struct gs_metal_pass *pass, uint32_t index,
                        struct gs_metal_place place);
gs_status gs_metal_pass_dispatch(struct gs_metal *metal, struct gs_metal_pass *pass,
                                 const struct gs_metal_dispatch *dispatch, struct gs_error *error);
void gs_metal_pass_commit(struct gs_metal *metal, struct gs_metal_pass *pass);

/* Waits for a committed pass. GS_IO with the device's reason where it failed. */
gs_status gs_metal_pass_wait(struct gs_metal *metal, struct gs_metal_pass *pass, struct gs_error *error);
/* What the GPU worked on it, once it was waited for. */
double gs_metal_pass_seconds(struct gs_metal *metal, const struct gs_metal_pass *pass);
void gs_metal_pass_end(struct gs_metal *metal, struct gs_metal_pass *pass);

#endif
