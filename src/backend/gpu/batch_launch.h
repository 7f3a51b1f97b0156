/*
 * Which kernels run a step of a few rows (2 to 64), mostly one of each of several timelines, and their
 * scratch. Plain C, no side effects. Precision fast: activations are rounded to bfloat16 where they meet
 * weights, sums and the residual stream are float32. Weights are those of the decode kernels, in their order;
 * a step reads each distinct expert once for every 24 of its routes. A row's sums have the same order in
 * every such call.
 */
#ifndef GS_BACKEND_GPU_BATCH_LAUNCH_H
#define GS_BACKEND_GPU_BATCH_LAUNCH_H

#include "backend/gpu/decode_launch.h"

#define GS_BATCH_ROWS           64
#define GS_BATCH_THREADS        256
#define GS_BATCH_ROUTER_THREADS 1024
#define GS_BATCH_WARPS          8
#define GS_BATCH_WIDE_TILES                                                                                  \
    4 /* groups of 8 rows from which on a dense product is wide: see                                         \
       * batch_dense.cu                                                                                      \
       */
#ifndef GS_BATCH_WIDE_STRIPS
#define GS_BATCH_WIDE_STRIPS 3
#endif
#define GS_BATCH_DENSE_SLOTS                                                                                 \
    4                           /* chunks under way for each warp of a narrow one: three blocks a            \
                                   multiprocessor */
#define GS_BATCH_HEAD_STRIPS  2 /* of a warp of the head */
#define GS_BATCH_HEAD_SLOTS   5 /* chunks of them under way */
#define GS_BATCH_HEAD_X_SLOTS 6 /* chunks of the rows under way */
#define GS_BATCH_O_PIECES     2 /* blocks that share the columns of a strip of the output projection */
#define GS_BATCH_ROW_BLOCKS   3 /* of GS_BATCH_ROW_COLUMNS elements of a row: d_model <= 3072 */
#define GS_BATCH_ROW_COLUMNS  1024
#define GS_BATCH_SPLIT_KEYS   128 /* keys of a block of attention at least */
#define GS_BATCH_MAX_SPLIT    32

/*
 * Experts: warps of a block, activations staged at a time, chunks under way for each warp; for few rows two
 * such blocks fit a multiprocessor, for many one does.
 */
#ifndef GS_BATCH_EXPERT_WARPS
#define GS_BATCH_EXPERT_WARPS 16
#define GS_BATCH_FEW_ROWS     8 /* at most; an expert has no more routes */
#define GS_BATCH_FEW_ROUTES   8
#define GS_BATCH_FEW_SLOTS    2
#define GS_BATCH_MANY_ROUTES  16
#define GS_BATCH_MANY_SLOTS   5
#define GS_BATCH_DOWN_PIECES  2 /* of a strip's columns of the down matrix */
#endif

/*
 * So much that a multiprocessor takes one block of gate and up, and then one of down beside it: where two of
 * a kernel meet, every later stage waits for the doubled one.
 */
#define GS_BATCH_ALONE 111104

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

#ifdef __CUDACC__
#define GS_BATCH_CONSTANT static constexpr __host__ __device__ inline
#else
#define GS_BATCH_CONSTANT static inline
#endif

/* Strips of a block of a dense product of so many groups of 8 rows. */
GS_BATCH_CONSTANT int32_t gs_batch_strips(int32_t tiles)
{
    return tiles >= GS_BATCH_WIDE_TILES ? GS_BATCH_WIDE_STRIPS : 1;
}

/* Bytes of activations in a slot of such a block: of a wide one, all rows of 64 columns. */
GS_BATCH_CONSTANT int32_t gs_batch_slot_x(int32_t tiles)
{
    return tiles >= GS_BATCH_WIDE_TILES ? tiles * 8 * GS_DECODE_DENSE_COLUMNS * 2 : 0;
}

/* Slots of each warp. */
GS_BATCH_INLINE int32_t gs_batch_dense_slots(int32_t columns, int32_t pieces, int32_t tiles)
{
    int32_t chunks = (columns / GS_DECODE_DENSE_COLUMNS + pieces - 1) / pieces;
    int32_t slots = (chunks + GS_BATCH_WARPS - 1) / GS_BATCH_WARPS;
    int32_t most = tiles < GS_BATCH_WIDE_TILES ? GS_BATCH_DENSE_SLOTS : tiles > 4 ? 1 : 2;
    return slots < most ? slots : most;
}

struct gs_batch_layout {
    int64_t normed;     /* bf16 [d_model] of T rows, in tiles (batch.cuh): without the
                           factor 1/rms */
    int64_t mlp_normed; /* bf16 [T][d_model], times 2^64: with it, for the experts */
    int64_t squares;    /* float [T][GS_BATCH_ROW_BLOCKS]: sums of squares of a row's
                           parts, for that factor */
    int64_t attended;   /* bf16 [n_head*d_head] of T rows, in tiles */
    int64_t partial;    /* float [T][splits][n_head][d_head + 2]: largest, sum, values */
    int64_t arrived;    /* uint32 [T][n_kv_head]: splits done */
    int64_t second;     /* float [T][d_model]: what the second piece of the output
                           projection adds to hidden */
    int64_t router;     /* float [T][blocks of the output projection][n_expert]: parts
                           of the logits */
    int64_t activated;  /* bf16 [T*n_active][d_ff], times 2^64 */
    int64_t expert_out; /* float [pieces][T*n_active][d_model] */
    int64_t bytes;
};

GS_BATCH_INLINE struct gs_batch_layout gs_batch_layout_of(const struct gs_gpu_dims *dims)
{
    struct gs_batch_layout at;
    int64_t rows = GS_BATCH_ROWS, heads = (int64_t)dims->n_head * dims->d_head, next = 0;
    int64_t routes = rows * dims->n_active, parts = dims->d_model / GS_DECODE_STRIP * GS_BATCH_O_PIECES;
    at.normed = next, next += 2 * rows * dims->d_model;
    at.mlp_normed = next, next += 2 * rows * dims->d_model;
    at.attended = next, next += 2 * rows * heads;
    at.activated = next, next += 2 * routes * dims->d_ff;
    at.squares = next, next += 4 * rows * GS_BATCH_ROW_BLOCKS;
    at.partial = next, next += 4 * rows * dims->n_head * GS_BATCH_MAX_SPLIT * (dims->d_head + 2);
    at.arrived = next, next += 4 * rows * dims->n_kv_head;
    at.second = next, next += 4 * rows * dims->d_model;
    at.router = next, next += 4 * rows * parts * dims->n_expert;
    at.expert_out = next, next += 4 * GS_BATCH_DOWN_PIECES * routes * dims->d_model;
    at.bytes = (next + 255) / 256 * 256;
    return at;
}

/* Shared memory of a block of the experts' kernels. */
static inline uint32_t gs_batch_expert_shared(int32_t n_rows, int32_t columns)
{
    int32_t routes = n_rows <= GS_BATCH_FEW_ROWS ? GS_BATCH_FEW_ROUTES : GS_BATCH_MANY_ROUTES;
    int32_t slots = n_rows <= GS_BATCH_FEW_ROWS ? GS_BATCH_FEW_SLOTS : GS_BATCH_MANY_SLOTS;
    return (uint32_t)(routes * gs_batch_row_stride(columns) +
                      GS_BATCH_EXPERT_WARPS * slots * GS_DECODE_EXPERT_CHUNK);
}

static inline int gs_batch_takes(const struct gs_gpu_dims *dims, const struct gs_gpu_machine *machine)
{
    int32_t columns = dims->d_model > dims->d_ff ? dims->d_model : dims->d_ff;
    return gs_decode_takes(dims, machine) && dims->d_model <= GS_BATCH_ROW_BLOCKS * GS_BATCH_ROW_COLUMNS &&
           (uint32_t)machine->shared_bytes >= gs_batch_expert_shared(GS_BATCH_ROWS, columns) + 6 * 1024;
}

static inline int64_t gs_batch_scratch_bytes(const struct gs_gpu_dims *dims,
                                             const struct gs_gpu_machine *machine)
{
    return gs_batch_takes(dims, machine) ? gs_batch_layout_of(dims).bytes : 0;
}

static inline void gs_batch_add(struct gs_gpu_plan *plan, const char *kernel, int64_t x, int64_t y, int64_t z,
                                uint32_t block, uint32_t shared)
{
    struct gs_gpu_launch *launch = &plan->launches[plan->count++];
    launch->kernel = kernel;
    launch->grid[0] = (uint32_t)x;
    launch->grid[1] = (uint32_t)y;
    launch->grid[2] = (uint32_t)z;
    launch->block = block;
    launch->shared_bytes = shared;
    launch->cooperative = 0;
}

/* Blocks that share the keys of a row and KV head: none that would have to wait for a place. */
static inline int64_t gs_batch_splits(const struct gs_gpu_args *args, const struct gs_gpu_machine *machine,
                                      int64_t n_ctx)
{
    int64_t keys = args->is_window && n_ctx > args->dims.window ? args->dims.window : n_ctx;
    int64_t splits = (keys + GS_BATCH_SPLIT_KEYS - 1) / GS_BATCH_SPLIT_KEYS;
    int64_t places = 2 * (int64_t)machine->n_sm / ((int64_t)args->n_rows * args->dims.n_kv_head);
    places = places < 1 ? 1 : places < GS_BATCH_MAX_SPLIT ? places : GS_BATCH_MAX_SPLIT;
    return splits < places ? splits : places;
}

/* The dense kernels exist for 8, 16, 32 and 64 rows, and for both forms of weights. */
static inline int gs_batch_size(int32_t n_rows)
{
    return n_rows <= 8 ? 0 : n_rows <= 16 ? 1 : n_rows <= 32 ? 2 : 3;
}

static inline void gs_batch_add_dense(struct gs_gpu_plan *plan, const char *const names[8], int32_t n_rows,
                                      const struct gs_gpu_matrix *m, int32_t pieces)
{
    int size = gs_batch_size(n_rows);
    int32_t tiles = 1 << size, strips = gs_batch_strips(tiles), n_strip = m->rows / GS_DECODE_STRIP;
    int32_t chunk = m->type == GS_GPU_Q8 ? GS_DECODE_Q8_CHUNK : GS_DECODE_DENSE_CHUNK;
    int32_t slot = strips * chunk + gs_batch_slot_x(tiles);
    int32_t rings = GS_BATCH_WARPS * slot * gs_batch_dense_slots(m->columns, pieces, tiles);
    int32_t parts = GS_BATCH_WARPS * GS_DECODE_STRIP * (8 * tiles + 1) * 4;
    gs_batch_add(plan, names[size + (m->type == GS_GPU_Q8 ? 4 : 0)],
                 (int64_t)(n_strip + strips - 1) / strips * pieces, 1, 1, GS_BATCH_THREADS,
                 (uint32_t)(rings > parts ? rings : parts));
}

static inline void gs_batch_add_head(struct gs_gpu_plan *plan, const char *const names[8], int32_t n_rows,
                                     const struct gs_gpu_matrix *m, const struct gs_gpu_machine *machine)
{
    int size = gs_batch_size(n_rows);
    int32_t chunk = m->type == GS_GPU_Q8 ? GS_DECODE_Q8_CHUNK : GS_DECODE_DENSE_CHUNK;
    int32_t rows = (8 << size) * GS_DECODE_DENSE_COLUMNS * 2;
    gs_batch_add(plan, names[size + (m->type == GS_GPU_Q8 ? 4 : 0)], machine->n_sm, 1, 1,
                 GS_BATCH_THREADS + 32,
                 (uint32_t)(GS_BATCH_HEAD_X_SLOTS * rows +
                            GS_BATCH_WARPS * GS_BATCH_HEAD_SLOTS * GS_BATCH_HEAD_STRIPS * chunk));
}

static inline void gs_batch_add_experts(struct gs_gpu_plan *plan, const struct gs_gpu_args *args,
                                        const struct gs_gpu_machine *machine, const char *few,
                                        const char *many, int32_t columns)
{
    gs_batch_add(plan, args->n_rows <= GS_BATCH_FEW_ROWS ? few : many, machine->n_sm, 1, 1,
                 GS_BATCH_EXPERT_WARPS * 32, gs_batch_expert_shared(args->n_rows, columns));
}

#define GS_BATCH_NAMES(name)                                                                                 \
    {                                                                                                        \
        name "_8", name "_16", name "_32", name "_64", name "_q8_8", name "_q8_16", name "_q8_32",           \
            name "_q8_64"                                                                                    \
    }

/* kernels.h has the contract. All of a call's stages but EMBED, or none. */
static inline void gs_batch_plan(const struct gs_gpu_args *args, const struct gs_gpu_machine *machine,
                                 enum gs_gpu_stage stage, int64_t n_ctx, struct gs_gpu_plan *out)
{
    static const char *const qkv[8] = GS_BATCH_NAMES("gs_batch_qkv");
    static const char *const o[8] = GS_BATCH_NAMES("gs_batch_o");
    static const char *const head[8] = GS_BATCH_NAMES("gs_batch_head");
    const struct gs_gpu_dims *d = &args->dims;
    int32_t rows = args->n_rows;
    out->count = 0;
    if (stage == GS_GPU_EMBED || rows < 2 || rows > GS_BATCH_ROWS || !gs_batch_takes(d, machine) ||
        !(stage == GS_GPU_HEAD ? args->outer.relaid != NULL && args->n_logit_rows == rows
                               : gs_decode_has_relaid(&args->w)))
        return;
    switch (stage) {
    case GS_GPU_ATTENTION_IN:
        if (args->layer == 0)
            gs_batch_add(out, "gs_batch_norm", GS_BATCH_ROW_BLOCKS, rows, 1, GS_BATCH_THREADS, 0);
        gs_batch_add_dense(out, qkv, rows, &args->w.qkv, 1);
        break;
    case GS_GPU_ATTENTION:
        gs_batch_add(out, "gs_batch_attention", d->n_kv_head, rows, gs_batch_splits(args, machine, n_ctx),
                     GS_BATCH_THREADS, 0);
        break;
    case GS_GPU_ATTENTION_OUT: /* the router completes hidden */
        gs_batch_add_dense(out, o, rows, &args->w.o, GS_BATCH_O_PIECES);
        gs_batch_add(out, "gs_batch_router", rows, 1, 1, GS_BATCH_ROUTER_THREADS, 0);
        break;
    case GS_GPU_MOE_IN:
        gs_batch_add_experts(out, args, machine, "gs_batch_gate_up_8", "gs_batch_gate_up_64", d->d_model);
        if (out->launches[0].shared_bytes < GS_BATCH_ALONE)
            out->launches[0].shared_bytes = GS_BATCH_ALONE;
        break;
    case GS_GPU_MOE_OUT:
        gs_batch_add_experts(out, args, machine, "gs_batch_down_8", "gs_batch_down_64", d->d_ff);
        gs_batch_add(out, "gs_batch_combine", GS_BATCH_ROW_BLOCKS, rows, 1, GS_BATCH_THREADS, 0);
        break;
    default:
        gs_batch_add_head(out, head, rows, &args->outer, machine);
        gs_batch_add(out, "gs_simple_argmax", 32, rows, 1, GS_BATCH_THREADS, 0);
        break;
    }
}

#endif
