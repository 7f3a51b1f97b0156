/*
 * What CUDA and HIP have in common, as a table: memory, copies, launches, captured graphs. The GPU backend
 * (gpu.c, load.c, kv.c, forward.c, graph.c) is written over it; cuda/ and hip/ fill it in.
 *
 * Every function may be called from any thread (one at a time for a context, except what is marked) and makes
 * the context current for itself. Errors name the driver's call and its reason in one line.
 */
#ifndef GS_BACKEND_GPU_API_H
#define GS_BACKEND_GPU_API_H

#include "backend/gpu/kernels.h"
#include "gossamer.h"

struct gs_gpu;        /* an opened device: a context of the driver */
struct gs_gpu_stream; /* an ordered queue of work */
struct gs_gpu_graph;  /* captured launches, ready to be replayed */

struct gs_gpu_api {
    const char *name; /* "cuda" */

    /* One line about the device, or why there is none; false in that case. */
    bool (*probe)(int index, char *description, size_t size);
    gs_status (*open)(int index, struct gs_gpu **out, struct gs_gpu_machine *machine, struct gs_error *error);
    void (*close)(struct gs_gpu *gpu);

    /* Bytes of device memory that are free now, and that there are. */
    gs_status (*memory)(struct gs_gpu *gpu, uint64_t *free_bytes, uint64_t *total_bytes,
                        struct gs_error *error);
    /* `what` for the message: "the weights of layer 7". Aligned to 256 bytes at least. */
    gs_status (*alloc)(struct gs_gpu *gpu, uint64_t bytes, const char *what, void **out,
                       struct gs_error *error);
    void (*release)(struct gs_gpu *gpu, void *memory);
    /* Pinned memory of the host. Any thread. */
    gs_status (*host_alloc)(struct gs_gpu *gpu, uint64_t bytes, void **out, struct gs_error *error);
    void (*host_release)(struct gs_gpu *gpu, void *memory);

    gs_status (*stream_open)(struct gs_gpu *gpu, struct gs_gpu_stream **out, struct gs_error *error);
    void (*stream_close)(struct gs_gpu *gpu, struct gs_gpu_stream *stream);

    /* Queued on the stream; host memory that is not pinned makes them wait. Any thread with its own stream.
     */
    gs_status (*copy_in)(struct gs_gpu *gpu, struct gs_gpu_stream *stream, void *device, const void *host,
                         uint64_t bytes, struct gs_error *error);
    gs_status (*copy_out)(struct gs_gpu *gpu, struct gs_gpu_stream *stream, void *host, const void *device,
                          uint64_t bytes, struct gs_error *error);
    gs_status (*copy)(struct gs_gpu *gpu, struct gs_gpu_stream *stream, void *to, const void *from,
                      uint64_t bytes, struct gs_error *error);
    gs_status (*zero)(struct gs_gpu *gpu, struct gs_gpu_stream *stream, void *device, uint64_t bytes,
                      struct gs_error *error);
    /* Waits for all that was queued, and reports what failed of it. Any thread with its own stream. */
    gs_status (*sync)(struct gs_gpu *gpu, struct gs_gpu_stream *stream, struct gs_error *error);

    /*
     * Queues a kernel by name with one argument of `size` bytes, copied. `overlap`: it may start before what
     * was queued before it has ended, and waits by itself (gs_wait_for_previous), where the device can.
     */
    gs_status (*launch)(struct gs_gpu *gpu, struct gs_gpu_stream *stream, const struct gs_gpu_launch *launch,
                        const void *args, bool overlap, struct gs_error *error);

    /* Between begin and end the stream records instead of running. After a failure capture_end is called too.
     */
    gs_status (*capture_begin)(struct gs_gpu *gpu, struct gs_gpu_stream *stream, struct gs_error *error);
    gs_status (*capture_end)(struct gs_gpu *gpu, struct gs_gpu_stream *stream, struct gs_gpu_graph **out,
                             struct gs_error *error);
    gs_status (*graph_launch)(struct gs_gpu *gpu, struct gs_gpu_stream *stream,
                              const struct gs_gpu_graph *graph, struct gs_error *error);
    void (*graph_free)(struct gs_gpu *gpu, struct gs_gpu_graph *graph);
};

#endif
