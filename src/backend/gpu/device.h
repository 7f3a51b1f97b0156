/*
 * A GPU backend's device: the model in device memory, the scratch that forward works in, and the captured
 * graphs. One kind for all drivers: what differs is behind api.h.
 */
#ifndef GS_BACKEND_GPU_DEVICE_H
#define GS_BACKEND_GPU_DEVICE_H

#include "backend/backend.h"
#include "backend/gpu/backend.h"

#define GS_GPU_LOGIT_ROWS   64 /* rows whose logits are computed at a time */
#define GS_GPU_GRAPH_ROWS   64 /* a decode step of up to so many timelines is a captured graph */
#define GS_GPU_MAX_GRAPHS   64 /* captured at a time */
#define GS_GPU_CHAIN_TOKENS GS_CHAIN_TOKENS

/* Which kernels run a layer. */
enum gs_gpu_family {
    GS_GPU_SIMPLE,
    GS_GPU_DECODE,
    GS_GPU_BATCH,
    GS_GPU_PREFILL,
};

/* Does a captured step choose its token and prepare the next step? */
enum gs_gpu_chained {
    GS_GPU_NOT_CHAINED,
    GS_GPU_GREEDY,
    GS_GPU_DRAWN,
};

/* A captured decode step: of n_rows timelines whose positions are below n_ctx. */
struct gs_gpu_step_graph {
    int32_t n_rows;
    int32_t chained; /* enum gs_gpu_chained */
    int64_t n_ctx;
    uint64_t n_launches; /* kernels in it */
    struct gs_gpu_graph *graph;
};

/* What the host has of a logit row. */
enum gs_gpu_answer {
    GS_GPU_LOGITS,
    GS_GPU_BEST,  /* a token; the logits are still on the device */
    GS_GPU_DRAW,  /* the same, of a draw */
    GS_GPU_CHAIN, /* nothing: its logits are on the device, and its token is the chain's last */
};

struct gs_device {
    const struct gs_gpu_api *api;
    struct gs_gpu *gpu;
    struct gs_gpu_machine machine;
    struct gs_gpu_stream *stream;
    enum gs_precision precision;
    enum gs_weight_format format;

    enum gs_control control;
    const struct gs_weights *weights; /* the host's views, spoilt if a control says so; NULL: not loaded */
    const struct gs_weights *given;   /* as load was given them */
    struct gs_arena spoilt;           /* what a control changed */
    struct gs_gpu_dims dims;
    struct gs_yarn yarn;
    struct gs_gpu_layer *layers;      /* [n_layer], pointers into device memory */
    struct gs_gpu_layer *wide_layers; /* [n_layer]: the same with dense matrices in bfloat16, for prefill */
    struct gs_gpu_matrix embedding, head;
    const float *norm;
    struct gs_gpu_scratch scratch;

    void **blocks; /* [n_blocks]: device memory, released with the device */
    size_t n_blocks, block_capacity;
    uint64_t weight_bytes, scratch_bytes; /* on the device */

    struct gs_gpu_row *host_rows; /* pinned [max_rows] */
    float *host_logits;           /* pinned [GS_GPU_GRAPH_ROWS][n_vocab]: of the last decode step */
    int32_t *host_tokens;         /* pinned [1 + GS_GPU_CHAIN_TOKENS]: of a chain; of rows that were drawn */
    uint64_t *host_best;          /* pinned [GS_GPU_GRAPH_ROWS]: packed, of rows with the largest logit */
    struct gs_gpu_draw *host_draws;                /* pinned [GS_GPU_CHAIN_TOKENS] */
    enum gs_gpu_answer answers[GS_GPU_GRAPH_ROWS]; /* of each of up to so many rows of the last forward */
    float *many_logits;   /* [n_logit_rows][n_vocab], where more than GS_GPU_GRAPH_ROWS are wanted */
    size_t many_capacity; /* rows */
    size_t n_logit_rows;  /* of the last forward */
    /* Host memory for taps: [max_rows][widest], [max_rows][d_model], [2][GS_GPU_GRAPH_ROWS][d_model]. */
    float *tapped, *tapped_before, *tapped_pair;

    struct gs_gpu_step_graph graphs[GS_GPU_MAX_GRAPHS];
    size_t n_graphs;

    gs_tap_fn *tap;
    void *tap_user;
    struct gs_backend_stats stats;
};

/* One timeline's cache: kernels.h says how it lies. */
struct gs_kv {
    struct gs_device *device;
    int64_t capacity;
    int64_t length;                    /* tokens whose keys and values are complete, in every layer */
    int64_t ring_first;                /* the first position that the rings still hold */
    int64_t least_slots;               /* of the smallest ring; the capacity if no layer has one */
    void *memory;                      /* of all layers, and of the table below */
    struct gs_gpu_kv_layer *layers;    /* [n_layer], pointers into device memory */
    struct gs_gpu_kv_layer *on_device; /* the same table in device memory */
};

/* ---------------------------------------------------------------- device.c */

/* Device memory that lives as long as the device. */
gs_status gs_gpu_take(struct gs_device *device, uint64_t bytes, const char *what, void **out,
                      struct gs_error *error);

/* Queues a launch, and counts it; overlap: programmatic dependent launch. */
gs_status gs_gpu_launch(struct gs_device *device, const struct gs_gpu_launch *launch, const void *args,
                        bool overlap, struct gs_error *error);
/* The same with n threads in blocks of `block`. */
gs_status gs_gpu_run(struct gs_device *device, const char *kernel, const void *args, uint64_t n_threads,
                     uint32_t block, struct gs_error *error);

/* ---------------------------------------------------------------- the others, each knows those before it */

/* load.c: fills layers, embedding, head, norm and the rope table. */
gs_status gs_gpu_load_weights(struct gs_device *device, gs_progress_fn *progress, void *progress_user,
                              struct gs_error *error);

/* kv.c. To be told before positions up to length + n_tokens - 1 are written. */
void gs_gpu_kv_begin_write(struct gs_kv *kv, int64_t n_tokens);

/* stages.c */
struct gs_gpu_call {
    int32_t n_rows, n_logit_rows;
    int64_t n_ctx; /* positions of the call are below */
    enum gs_gpu_family family;
    bool overlap;              /* programmatic dependent launch */
    int32_t n_chosen, n_drawn; /* logit rows of which a token is wanted, and by a draw */
};
/* Queues the whole model for rows that are in scratch.rows; the logits stay on the device. */
gs_status gs_gpu_queue_model(struct gs_device *device, const struct gs_gpu_call *call,
                             const _Atomic bool *cancelled, struct gs_error *error);
/* Queues logits of n rows from `first` on, normed already, to the beginning of scratch.logits. */
gs_status gs_gpu_queue_logits(struct gs_device *device, const struct gs_gpu_call *call, int32_t first,
                              int32_t n, struct gs_error *error);
enum gs_gpu_family gs_gpu_choose_family(struct gs_device *device, int32_t n_rows, int64_t n_ctx);

/* graph.c: the captured form of a decode step; from the cache where it is there. */
gs_status gs_gpu_step_graph(struct gs_device *device, const struct gs_gpu_call *call,
                            enum gs_gpu_chained chained, const struct gs_gpu_step_graph **out,
                            struct gs_error *error);
/* Queues it. */
gs_status gs_gpu_launch_graph(struct gs_device *device, const struct gs_gpu_step_graph *graph,
                              struct gs_error *error);
void gs_gpu_free_graphs(struct gs_device *device);
/* The positions of the graph that serves positions below n_ctx: they have as many, or more. */
int64_t gs_gpu_graph_context(int64_t n_ctx);

/* forward.c: bytes of weights that a forward of such a call reads. */
uint64_t gs_gpu_bytes_read(const struct gs_device *device, int32_t n_rows, int32_t n_logit_rows);

#endif
