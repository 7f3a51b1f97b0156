/*
 * Which kernels run a step of a few rows (2 to 64), mostly one of each of several timelines, and their
 * scratch. Plain C, no side effects. Precision fast: activations are rounded to bfloat16 where they meet
 * weights, sums and the residual stream are float32. Weights are those of the decode kernels, in their order;
 * a step reads each distinct expert once for every 16 of its routes. A row's sums have the same order in
 * every such call.
 */
#ifndef GS_BACKEND_GPU_BATCH_LAUNCH_H
#define GS_BACKEND_GPU_BATCH_LAUNCH_H

#include "backend/gpu/decode_launch.h"

#define GS_BATCH_ROWS           64
#define GS_BATCH_THREADS        256
#define GS_BATCH_ROUTER_THREADS 1024
#define GS_BATCH_WARPS          8
#define GS_BATCH_EXPERT_ROUTES  16 /* of an expert at a time */
#define GS_BATCH_WIDE_TILES     4  /* from so many groups of 8 rows on a block takes two strips */
#define GS_BATCH_SPLIT_KEYS     256
#define GS_BATCH_MAX_SPLIT      32

#ifdef __CUDACC__
#define GS_BATCH_INLINE static __host__ __device__ inline
#else
#define GS_BATCH_INLINE static inline
#endif

/* Bytes from row to row of activations in shared memory: rows of a pair of lanes meet other banks. */
GS_BATCH_INLINE int32_t gs_batch_row_stride(int32_t columns)
{
    return columns * 2 + 64;
}

struct gs_batch_layout {
    int64_t normed;    /* bf16 [T][d_model] */
    int64_t attended;  /* bf16 [T][n_head*d_head] */
    int64_t activated; /* bf16 [T*n_active][d_ff], times 2^64 */
    int64_t partial;   /* float [T][n_head][splits][d_head + 2]: values, largest, sum */
    int64_t bytes;
};

GS_BATCH_INLINE struct gs_batch_layout gs_batch_layout_of(const struct gs_gpu_dims *dims)
{
    struct gs_batch_layout at;
    int64_t rows = GS_BATCH_ROWS, heads = (int64_t)dims->n_head * dims->d_head, next = 0;
    at.normed = next, next += 2 * rows * dims->d_model;
    at.attended = next, next += 2 * rows * heads;
    at.activated = next, next += 2 * rows * dims->n_active * dims->d_ff;
    next = (next + 15) / 16 * 16;
    at.partial = next, next += 4 * rows * dims->n_head * GS_BATCH_MAX_SPLIT * (dims->d_head + 2);
    at.bytes = (next + 255) / 256 * 256;
    return at;
}

static inline int64_t gs_batch_scratch_bytes(const struct gs_gpu_dims *dims,
                                             const struct gs_gpu_machine *machine)
{
    return gs_decode_takes(dims, machine) ? gs_batch_layout_of(dims).bytes : 0;
}

static inline void gs_batch_add(struct gs_gpu_plan *plan, const char *kernel, int64_t x, int64_t y, int64_t z,
                                uint32_t block)
{
    struct gs_gpu_launch *launch = &plan->launches[plan->count++];
    launch->kernel = kernel;
    launch->grid[0] = (uint32_t)x;
    launch->grid[1] = (uint32_t)y;
    launch->grid[2] = (uint32_t)z;
    launch->block = block;
    launch->shared_bytes = 0;
    launch->cooperative = 0;
}

/* The rows of an expert's routes: no more than there are rows, since a row chooses an expert once. */
static inline uint32_t gs_batch_expert_shared(const struct gs_gpu_args *args, int32_t columns)
{
    int32_t rows =
        args->n_rows < GS_BATCH_EXPERT_ROUTES ? (args->n_rows + 7) / 8 * 8 : GS_BATCH_EXPERT_ROUTES;
    return (uint32_t)(rows * gs_batch_row_stride(columns));
}

/* Blocks that share the keys of a row and KV head. */
static inline int64_t gs_batch_splits(const struct gs_gpu_args *args, int64_t n_ctx)
{
    int64_t keys = args->is_window ? args->dims.window : n_ctx;
    int64_t splits = (keys + GS_BATCH_SPLIT_KEYS - 1) / GS_BATCH_SPLIT_KEYS;
    return splits < GS_BATCH_MAX_SPLIT ? splits : GS_BATCH_MAX_SPLIT;
}

/* The dense kernels exist for 8, 16, 32 and 64 rows, and for both forms of weights. */
static inline const char *gs_batch_dense(const char *const names[8], const struct gs_gpu_args *args,
                                         int32_t type)
{
    int size = args->n_rows <= 8 ? 0 : args->n_rows <= 16 ? 1 : args->n_rows <= 32 ? 2 : 3;
    return names[size + (type == GS_GPU_Q8 ? 4 : 0)];
}

static inline int64_t gs_batch_dense_blocks(const struct gs_gpu_args *args, int64_t matrix_rows)
{
    int64_t strips = matrix_rows / GS_DECODE_STRIP;
    return args->n_rows > 8 * GS_BATCH_WIDE_TILES / 2 ? (strips + 1) / 2 : strips;
}

static inline void gs_batch_plan(const struct gs_gpu_args *args, const struct gs_gpu_machine *machine,
                                 enum gs_gpu_stage stage, int64_t n_ctx, struct gs_gpu_plan *out)
{
    static const char *const qkv[8] = {"gs_batch_qkv_8",     "gs_batch_qkv_16",   "gs_batch_qkv_32",
                                       "gs_batch_qkv_64",    "gs_batch_qkv_q8_8", "gs_batch_qkv_q8_16",
                                       "gs_batch_qkv_q8_32", "gs_batch_qkv_q8_64"};
    static const char *const o[8] = {"gs_batch_o_8",     "gs_batch_o_16",   "gs_batch_o_32",
                                     "gs_batch_o_64",    "gs_batch_o_q8_8", "gs_batch_o_q8_16",
                                     "gs_batch_o_q8_32", "gs_batch_o_q8_64"};
    static const char *const head[8] = {"gs_batch_head_8",     "gs_batch_head_16",   "gs_batch_head_32",
                                        "gs_batch_head_64",    "gs_batch_head_q8_8", "gs_batch_head_q8_16",
                                        "gs_batch_head_q8_32", "gs_batch_head_q8_64"};
    const struct gs_gpu_dims *d = &args->dims;
    int64_t rows = args->n_rows, splits = gs_batch_splits(args, n_ctx);
    out->count = 0;
    if (stage == GS_GPU_EMBED || rows < 2 || rows > GS_BATCH_ROWS || !gs_decode_takes(d, machine) ||
        !(stage == GS_GPU_HEAD ? args->outer.relaid != NULL && args->n_logit_rows == rows
                               : gs_decode_has_relaid(&args->w)))
        return;
    switch (stage) {
    case GS_GPU_ATTENTION_IN:
        if (args->layer == 0)
            gs_batch_add(out, "gs_batch_norm", rows, 1, 1, GS_BATCH_THREADS);
        gs_batch_add(out, gs_batch_dense(qkv, args, args->w.qkv.type),
                     gs_batch_dense_blocks(args, args->w.qkv.rows), 1, 1, GS_BATCH_THREADS);
        gs_batch_add(out, "gs_simple_rotate", rows, 1, 1, GS_BATCH_THREADS);
        break;
    case GS_GPU_ATTENTION:
        gs_batch_add(out, "gs_batch_attention", d->n_kv_head, rows, splits, 128);
        gs_batch_add(out, "gs_batch_attention_sum", d->n_kv_head, rows, 1, 256);
        break;
    case GS_GPU_ATTENTION_OUT:
        gs_batch_add(out, gs_batch_dense(o, args, args->w.o.type), gs_batch_dense_blocks(args, d->d_model), 1,
                     1, GS_BATCH_THREADS);
        break;
    case GS_GPU_MOE_IN:
        gs_batch_add(out, "gs_batch_router", rows, 1, 1, GS_BATCH_ROUTER_THREADS);
        gs_batch_add(out, "gs_batch_sort", 1, 1, 1, GS_BATCH_THREADS);
        gs_batch_add(out, "gs_batch_gate_up", (2 * d->d_ff / GS_DECODE_STRIP + 7) / 8, d->n_expert, 1,
                     GS_BATCH_THREADS);
        out->launches[out->count - 1].shared_bytes = gs_batch_expert_shared(args, d->d_model);
        break;
    case GS_GPU_MOE_OUT:
        gs_batch_add(out, "gs_batch_down", (d->d_model / GS_DECODE_STRIP + 7) / 8, d->n_expert, 1,
                     GS_BATCH_THREADS);
        out->launches[out->count - 1].shared_bytes = gs_batch_expert_shared(args, d->d_ff);
        gs_batch_add(out, "gs_batch_combine", rows, 1, 1, GS_BATCH_ROUTER_THREADS);
        break;
    default:
        gs_batch_add(out, gs_batch_dense(head, args, args->outer.type),
                     gs_batch_dense_blocks(args, d->n_vocab), 1, 1, GS_BATCH_THREADS);
        gs_batch_add(out, "gs_simple_argmax", 32, rows, 1, GS_BATCH_THREADS);
        break;
    }
}

#endif
