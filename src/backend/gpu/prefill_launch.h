/*
 * Which kernels run a stage over many rows (prefill), and their private scratch. Plain C, no side effects;
 * the kernels include it for the layout of the scratch.
 *
 * All of them want the precision "fast": dense matrices in bfloat16, keys and values in bfloat16. Operands of
 * products are bfloat16, sums float32, the residual stream and the router float32.
 *
 * The stages belong together: the rotated queries and the next layer's normed rows are handed over in the
 * scratch. Stage MOE_OUT wants args.norm, the next layer's attention norm.
 */
#ifndef GS_BACKEND_GPU_PREFILL_LAUNCH_H
#define GS_BACKEND_GPU_PREFILL_LAUNCH_H

#include <stddef.h>

#include "backend/gpu/kernels.h"

#ifdef __CUDACC__
#define GS_PREFILL_INLINE static __host__ __device__ __forceinline__
#else
#define GS_PREFILL_INLINE static inline
#endif

#define GS_PREFILL_MIN_ROWS    32 /* below, the decode kernels' shape is the better one */
#define GS_PREFILL_MAX_EXPERT  128
#define GS_PREFILL_ROUTER_ROWS 16 /* of one block of the router kernel */

struct gs_prefill_parts {
    uint16_t *normed;    /* bf16 [T][d_model]; for the experts in the order of permuted_column */
    uint16_t *queries;   /* bf16 [T][n_head*d_head], rotated */
    uint16_t *attended;  /* bf16 [T][n_head*d_head] */
    uint16_t *activated; /* bf16 [T*n_active][d_ff] in the order of s.routes, columns permuted */
    int32_t *counts;     /* [T/16, up][n_expert]: routes of each block of rows */
    size_t bytes;        /* of all parts */
};

GS_PREFILL_INLINE size_t gs_prefill_take(size_t *used, size_t bytes)
{
    size_t offset = *used;
    *used += (bytes + 1023) / 1024 * 1024;
    return offset;
}

GS_PREFILL_INLINE struct gs_prefill_parts gs_prefill_carve(const struct gs_gpu_dims *dims, void *scratch)
{
    size_t used = 0, rows = (size_t)dims->max_rows, heads = (size_t)dims->n_head * (size_t)dims->d_head;
    size_t blocks = (rows + GS_PREFILL_ROUTER_ROWS - 1) / GS_PREFILL_ROUTER_ROWS;
    uintptr_t base = (uintptr_t)scratch; /* 0 to ask for the size */
    struct gs_prefill_parts parts;
    size_t normed = gs_prefill_take(&used, rows * (size_t)dims->d_model * 2);
    size_t queries = gs_prefill_take(&used, rows * heads * 2);
    size_t attended = gs_prefill_take(&used, rows * heads * 2);
    size_t activated = gs_prefill_take(&used, rows * (size_t)dims->n_active * (size_t)dims->d_ff * 2);
    size_t counts = gs_prefill_take(&used, blocks * (size_t)dims->n_expert * 4);
    parts.normed = (uint16_t *)(base + normed);
    parts.queries = (uint16_t *)(base + queries);
    parts.attended = (uint16_t *)(base + attended);
    parts.activated = (uint16_t *)(base + activated);
    parts.counts = (int32_t *)(base + counts);
    parts.bytes = used;
    return parts;
}

static inline size_t gs_prefill_scratch_bytes(const struct gs_gpu_dims *dims,
                                              const struct gs_gpu_machine *machine)
{
    (void)machine;
    return gs_prefill_carve(dims, NULL).bytes;
}

static inline void gs_prefill_set(struct gs_gpu_launch *launch, const char *kernel, uint32_t x,
                                  uint32_t block, uint32_t shared_bytes)
{
    launch->kernel = kernel;
    launch->grid[0] = x;
    launch->grid[1] = launch->grid[2] = 1;
    launch->block = block;
    launch->shared_bytes = shared_bytes;
    launch->cooperative = 0;
}

static inline void gs_prefill_add(struct gs_gpu_plan *plan, const char *kernel, uint32_t x, uint32_t y,
                                  uint32_t block, uint32_t shared_bytes)
{
    struct gs_gpu_launch *launch = &plan->launches[plan->count++];
    gs_prefill_set(launch, kernel, x, block, shared_bytes);
    launch->grid[1] = y;
}

/* Do these kernels take this call at all? All stages of a layer have the same answer. */
static inline int gs_prefill_takes(const struct gs_gpu_args *args, const struct gs_gpu_machine *machine)
{
    const struct gs_gpu_dims *d = &args->dims;
    return machine->capability >= 80 && machine->shared_bytes >= 99 * 1024 &&
           args->n_rows >= GS_PREFILL_MIN_ROWS && d->d_head == 64 && d->n_head == 8 * d->n_kv_head &&
           d->d_model % 64 == 0 && d->d_model <= 4096 && d->d_ff % 64 == 0 &&
           d->n_expert <= GS_PREFILL_MAX_EXPERT && d->n_active <= 8 && d->n_active <= d->n_expert &&
           args->w.qkv.type == GS_GPU_BF16 && args->w.o.type == GS_GPU_BF16 && args->w.router_columns;
}

/* Shared memory and tiles of the kernels; the .cu files check that they agree. */
#define GS_PREFILL_DENSE_SHARED          (3 * (128 + 128) * 128)
#define GS_PREFILL_EXPERT_SHARED         (4 * (128 * 128 + 128 * 32 + 128 * 4))
#define GS_PREFILL_ATTENTION_SHARED      (3 * 2 * 64 * 128)
#define GS_PREFILL_DENSE_SM90_TILES      (200 * 1024) /* four stages of 48 KB or five of 40 */
#define GS_PREFILL_EXPERT_SM90_SHARED    (7 * 25600 + 3 * 144 * 80)
#define GS_PREFILL_ATTENTION_SM90_SHARED (6 * 2 * 64 * 128 + 4 * 64 * 128)

/* Of gs_prefill_router_wide: 16 rows, and partial sums of 16 warps. */
static inline uint32_t gs_prefill_router_bytes(const struct gs_gpu_dims *dims)
{
    return GS_PREFILL_ROUTER_ROWS * ((uint32_t)dims->d_model + 16 * 32) * 4;
}

static inline uint32_t gs_prefill_tiles(int64_t n, int64_t tile)
{
    return (uint32_t)((n + tile - 1) / tile);
}

/* Kernels on mma.sync: every NVIDIA GPU from 8.0 on. */
static inline void gs_prefill_plan_mma(const struct gs_gpu_args *args, enum gs_gpu_stage stage,
                                       struct gs_gpu_plan *out)
{
    const struct gs_gpu_dims *d = &args->dims;
    uint32_t row_tiles = gs_prefill_tiles(args->n_rows, 128);
    /* every expert may end in a tile of its own that is not full */
    uint32_t route_tiles = gs_prefill_tiles((int64_t)args->n_rows * d->n_active, 128) + (uint32_t)d->n_expert;

    switch (stage) {
    case GS_GPU_ATTENTION_IN:
        if (args->layer == 0) /* the stage MOE_OUT of the layer before has normed the others' */
            gs_prefill_add(out, "gs_prefill_norm", gs_prefill_tiles(args->n_rows, 8), 1, 256, 0);
        gs_prefill_add(out, "gs_prefill_qkv", row_tiles, gs_prefill_tiles(args->w.qkv.rows, 128), 256,
                       GS_PREFILL_DENSE_SHARED);
        break;
    case GS_GPU_ATTENTION:
        gs_prefill_add(out, "gs_prefill_attention", gs_prefill_tiles(args->n_rows, 16),
                       (uint32_t)d->n_kv_head, 256, GS_PREFILL_ATTENTION_SHARED);
        break;
    case GS_GPU_ATTENTION_OUT:
        gs_prefill_add(out, "gs_prefill_o", row_tiles, gs_prefill_tiles(d->d_model, 128), 256,
                       GS_PREFILL_DENSE_SHARED);
        break;
    case GS_GPU_MOE_IN:
        gs_prefill_add(out, "gs_prefill_router", gs_prefill_tiles(args->n_rows, GS_PREFILL_ROUTER_ROWS), 1,
                       256, 0);
        gs_prefill_add(out, "gs_prefill_sort", (uint32_t)d->n_expert, 1, 256, 0);
        gs_prefill_add(out, "gs_prefill_gate_up", gs_prefill_tiles(2 * (int64_t)d->d_ff, 128), route_tiles,
                       256, GS_PREFILL_EXPERT_SHARED);
        break;
    case GS_GPU_MOE_OUT:
        gs_prefill_add(out, "gs_prefill_down", gs_prefill_tiles(d->d_model, 128), route_tiles, 256,
                       GS_PREFILL_EXPERT_SHARED);
        gs_prefill_add(out, "gs_prefill_combine", (uint32_t)args->n_rows, 1, 128, 0);
        break;
    case GS_GPU_EMBED:
    case GS_GPU_HEAD:
    case GS_GPU_STAGE_COUNT:
        break;
    }
}

/* Kernels on wgmma (Hopper): products as persistent blocks, one an SM; the rest as above. */
static inline void gs_prefill_plan_sm90(const struct gs_gpu_args *args, const struct gs_gpu_machine *machine,
                                        enum gs_gpu_stage stage, struct gs_gpu_plan *out)
{
    uint32_t n_sm = (uint32_t)machine->n_sm;

    gs_prefill_plan_mma(args, stage, out);
    if (out->count == 0)
        return;
    struct gs_gpu_launch *last = &out->launches[out->count - 1], *first = &out->launches[0];
    switch (stage) {
    case GS_GPU_ATTENTION_IN:
        gs_prefill_set(last, "gs_prefill_qkv_sm90", n_sm, 384, GS_PREFILL_DENSE_SM90_TILES);
        break;
    case GS_GPU_ATTENTION_OUT:
        gs_prefill_set(last, "gs_prefill_o_sm90", n_sm, 384, GS_PREFILL_DENSE_SM90_TILES);
        break;
    case GS_GPU_MOE_IN:
        gs_prefill_set(first, "gs_prefill_router_wide",
                       gs_prefill_tiles(args->n_rows, GS_PREFILL_ROUTER_ROWS), 512,
                       gs_prefill_router_bytes(&args->dims));
        gs_prefill_set(last, "gs_prefill_gate_up_sm90", n_sm, 512, GS_PREFILL_EXPERT_SM90_SHARED);
        break;
    case GS_GPU_MOE_OUT:
        gs_prefill_set(first, "gs_prefill_down_sm90", n_sm, 512, GS_PREFILL_EXPERT_SM90_SHARED);
        break;
    case GS_GPU_ATTENTION:
        gs_prefill_set(last, "gs_prefill_attention_sm90", gs_prefill_tiles(args->n_rows, 32), 512,
                       GS_PREFILL_ATTENTION_SM90_SHARED);
        last->grid[1] = (uint32_t)args->dims.n_kv_head;
        break;
    case GS_GPU_EMBED:
    case GS_GPU_HEAD:
    case GS_GPU_STAGE_COUNT:
        break;
    }
}

static inline void gs_prefill_plan(const struct gs_gpu_args *args, const struct gs_gpu_machine *machine,
                                   enum gs_gpu_stage stage, int64_t n_ctx, struct gs_gpu_plan *out)
{
    (void)n_ctx;
    out->count = 0;
    if (!gs_prefill_takes(args, machine))
        return;
    if (machine->capability == 90 && machine->shared_bytes >= 227 * 1024 &&
        gs_prefill_router_bytes(&args->dims) <= 216 * 1024)
        gs_prefill_plan_sm90(args, machine, stage, out);
    else
        gs_prefill_plan_mma(args, stage, out);
}

#endif
