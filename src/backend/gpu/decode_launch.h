/*
 * The decode kernels' side of the contract (kernels.h): when they take a call, their launches, their scratch
 * and the form in which they want the weights. Plain C, shared by the host and the kernels.
 *
 * They take a call of one row on a machine of compute capability 9.0 or later, for models whose dimensions
 * are multiples as gs_decode_takes says, with dense weights in bfloat16 and keys and values in bfloat16, and
 * then all stages of it but `embed`: between stages vectors lie in s.decode, not in the contract's places.
 *
 * Weights are re-laid once after loading (gs_decode_relay_dense, gs_decode_relay_experts): see
 * decode_common.cuh for the order.
 */
#ifndef GS_BACKEND_GPU_DECODE_LAUNCH_H
#define GS_BACKEND_GPU_DECODE_LAUNCH_H

#include <stddef.h>

#include "backend/gpu/kernels.h"

#ifndef GS_DECODE_WARPS
#define GS_DECODE_WARPS     12 /* of a block that streams weights */
#define GS_DECODE_MAX_QUADS 2  /* of neighbouring elements that a thread holds: d_model <= 4*2*384 */
#endif
#define GS_DECODE_STRIP       16  /* rows that a warp computes together */
#define GS_DECODE_SEGMENTS    3   /* strips that a warp's share of a stage may touch */
#define GS_DECODE_MAX_SPLIT   32  /* blocks that share a KV head */
#define GS_DECODE_ACTIVE      4   /* active experts */
#define GS_DECODE_DOWN_PARTS  2   /* of the active experts: each part has its own blocks of F */
#define GS_DECODE_EXPERTS     128 /* at most */
#define GS_DECODE_ROUTER_SUMS 2   /* copies of the router's sums: C's blocks add to one of them */

/* Attention: a block's warps, and keys a split must have before there is another. */
#define GS_DECODE_ATTENTION_WARPS 8
#ifndef GS_DECODE_SPLIT_KEYS
#define GS_DECODE_SPLIT_KEYS 128
#endif

/* Dense chunk: 16 rows x 64 columns of bfloat16. Expert chunk: 16 rows x 192 columns and their scales. */
#define GS_DECODE_DENSE_COLUMNS  64
#define GS_DECODE_DENSE_CHUNK    2048
#define GS_DECODE_Q8_CHUNK       1088 /* the same in 8 bits, and their scales */
#define GS_DECODE_EXPERT_COLUMNS 192
#define GS_DECODE_EXPERT_CHUNK   1632

/* Shared memory of a block beside its rings and its vector. */
#define GS_DECODE_BLOCK_SHARED 11136

/* Chunks in flight for each warp. Two blocks of neighbouring stages shall fit an SM's 227 KB together. */
#ifndef GS_DECODE_QKV_SLOTS
#define GS_DECODE_QKV_SLOTS     3
#define GS_DECODE_O_SLOTS       3
#define GS_DECODE_GATE_UP_SLOTS 3
#define GS_DECODE_DOWN_SLOTS    3
#define GS_DECODE_HEAD_SLOTS    4
#endif
#define GS_DECODE_Q8_SLOTS      4
#define GS_DECODE_Q8_HEAD_SLOTS 3
#define GS_DECODE_Q8_HEAD_GROUP 3 /* chunks of a slot: d_model is a multiple of their columns */
#define GS_DECODE_MAX_SLOTS     8

/*
 * What is asked for early delays what is needed now: A and C fill so many slots of their rings only when
 * their input is there, and E lets F, which fills all of its own, start after so many chunks of a warp.
 */
#define GS_DECODE_LATE_SLOTS 1
#define GS_DECODE_GO_AFTER   1

/*
 * So much shared memory that an SM cannot take two blocks of the kernel. Without it C's blocks that wait for
 * an SM of B's go to the first SM that A leaves, which then has two to do, and after it two of E's, and so
 * on: every stage ends when the doubled SM does.
 */
#define GS_DECODE_ALONE (114 * 1024)

/* One re-lay of a matrix, by the kernel that gs_decode_relay_kernel names; any grid, 256 threads. */
#define GS_DECODE_MXFP4 100 /* a form beside those of enum gs_gpu_type: experts */
struct gs_decode_relay {
    const void *from;   /* bfloat16 or int8 [rows][columns]; experts: codes [n_expert][rows][columns/2] */
    const void *scales; /* GS_GPU_Q8: float16 [rows][columns/32]; experts: [n_expert][rows][scale_stride] */
    void *to;
    int32_t form; /* GS_GPU_BF16, GS_GPU_Q8 or GS_DECODE_MXFP4 */
    int32_t rows, columns, n_expert, scale_stride;
    int32_t pairs; /* experts: 1 = gate and up rows alternate: row g of a strip is a gate, row g+8 its up */
};

static inline const char *gs_decode_relay_kernel(int32_t form)
{
    return form == GS_DECODE_MXFP4 ? "gs_decode_relay_experts"
           : form == GS_GPU_Q8     ? "gs_decode_relay_q8"
                                   : "gs_decode_relay_dense";
}

#define GS_DECODE_BEFORE (2 * GS_DECODE_DOWN_PARTS) /* vectors of the residual stream before a layer */

/* Where things lie in s.decode, in bytes. */
struct gs_decode_layout {
    int64_t before;    /* [GS_DECODE_BEFORE][d_model] float: the residual stream before a layer, as a sum */
    int64_t middle;    /* [2][d_model] float: the same after attention */
    int64_t qkv;       /* [2][q|k|v rows] float: without bias and rotation, as a sum of two vectors */
    int64_t attended;  /* split vector of n_head*d_head */
    int64_t activated; /* [n_active] split vectors of d_ff */
    int64_t router;    /* [GS_DECODE_ROUTER_SUMS][n_expert] int64: the router's logits, as a sum, in units */
    int64_t unit;      /* float: units of 1, a power of two */
    int64_t partial;   /* [splits][n_head][d_head + 2] float: attention of a part of the keys */
    int64_t arrived;   /* [n_kv_head] uint32: splits done */
    int64_t bytes;
};

static inline int64_t gs_decode_split_bytes(int64_t n)
{
    return n * 3 * 2;
}

#ifdef __CUDACC__ /* the kernels' test calls it from both sides */
static __host__ __device__ inline
#else
static inline
#endif
    struct gs_decode_layout
    gs_decode_layout_of(const struct gs_gpu_dims *dims)
{
    struct gs_decode_layout at;
    int64_t n_qkv = (int64_t)(dims->n_head + 2 * dims->n_kv_head) * dims->d_head, next = 0;
    int64_t n_attended = (int64_t)dims->n_head * dims->d_head;
    at.router = next, next += 8 * (int64_t)GS_DECODE_ROUTER_SUMS * GS_DECODE_EXPERTS;
    at.unit = next, next += 128;
    at.middle = next, next += 2 * 4 * (int64_t)dims->d_model;
    at.before = next, next += GS_DECODE_BEFORE * 4 * (int64_t)dims->d_model;
    at.qkv = next, next += 2 * 4 * n_qkv;
    at.attended = next, next += 6 * n_attended;
    at.activated = next, next += 6 * (int64_t)GS_DECODE_ACTIVE * dims->d_ff;
    at.partial = next, next += 4 * (int64_t)GS_DECODE_MAX_SPLIT * dims->n_head * (dims->d_head + 2);
    at.arrived = next, next += 4 * (int64_t)dims->n_kv_head;
    at.bytes = (next + 255) / 256 * 256;
    return at;
}

/* Bytes of a re-laid matrix (n_expert 1: dense); 0: it cannot be re-laid. */
static inline int64_t gs_decode_relaid_bytes(int64_t rows, int64_t columns, int64_t n_expert, int32_t form)
{
    int64_t width = form == GS_DECODE_MXFP4 ? GS_DECODE_EXPERT_COLUMNS : GS_DECODE_DENSE_COLUMNS;
    int64_t bytes = form == GS_DECODE_MXFP4 ? GS_DECODE_EXPERT_CHUNK
                    : form == GS_GPU_Q8     ? GS_DECODE_Q8_CHUNK
                    : form == GS_GPU_BF16   ? GS_DECODE_DENSE_CHUNK
                                            : 0;
    if (rows % GS_DECODE_STRIP != 0 || columns % width != 0)
        return 0;
    return n_expert * (rows / GS_DECODE_STRIP) * (columns / width) * bytes;
}

/* Is this model one for the decode kernels, on this machine? */
static inline int gs_decode_takes(const struct gs_gpu_dims *dims, const struct gs_gpu_machine *machine)
{
    int32_t n_attended = dims->n_head * dims->d_head, blocks = machine->n_sm;
    return machine->capability >= 90 && machine->shared_bytes >= 160 * 1024 && blocks <= 256 &&
           dims->d_head == 64 && dims->n_head == 8 * dims->n_kv_head && dims->n_active == GS_DECODE_ACTIVE &&
           dims->n_expert <= GS_DECODE_EXPERTS && dims->n_expert >= 8 &&
           (dims->n_expert & (dims->n_expert - 1)) == 0 && dims->d_model % GS_DECODE_EXPERT_COLUMNS == 0 &&
           dims->d_ff % GS_DECODE_EXPERT_COLUMNS == 0 && n_attended % GS_DECODE_DENSE_COLUMNS == 0 &&
           dims->d_model <= 4 * GS_DECODE_MAX_QUADS * GS_DECODE_WARPS * 32 && dims->d_ff <= 3072 &&
           n_attended <= 4096 && dims->n_vocab % GS_DECODE_STRIP == 0 && dims->n_vocab <= 1 << 24 &&
           dims->d_model / GS_DECODE_STRIP <= 4 * blocks && dims->d_ff <= 48 * blocks;
}

/* Blocks of the stages: no more than a strip each, so that two blocks of a part at most share a strip. */
static inline uint32_t gs_decode_blocks(const struct gs_gpu_dims *dims, const struct gs_gpu_machine *machine)
{
    int32_t strips = dims->d_model / GS_DECODE_STRIP;
    int32_t n = machine->n_sm < strips ? machine->n_sm : strips;
    return (uint32_t)(n / GS_DECODE_DOWN_PARTS * GS_DECODE_DOWN_PARTS);
}

/* Rows at most of which a block of C has a part: the router's columns of these are in its shared memory. */
static inline uint32_t gs_decode_most_rows(const struct gs_gpu_dims *dims, uint32_t blocks)
{
    uint32_t strips = (uint32_t)dims->d_model / GS_DECODE_STRIP;
    return ((strips + blocks - 1) / blocks + 1) * GS_DECODE_STRIP;
}

static inline int64_t gs_decode_scratch_bytes(const struct gs_gpu_dims *dims,
                                              const struct gs_gpu_machine *machine)
{
    return gs_decode_takes(dims, machine) ? gs_decode_layout_of(dims).bytes : 0;
}

static inline int gs_decode_has_relaid(const struct gs_gpu_layer *w)
{
    return w->qkv.relaid && w->o.relaid && w->qkv.type == w->o.type && w->gate_up.relaid && w->down.relaid;
}

/* kernels.h has the contract. All of a call's stages but EMBED, or none. */
static inline void gs_decode_plan(const struct gs_gpu_args *args, const struct gs_gpu_machine *machine,
                                  enum gs_gpu_stage stage, int64_t n_ctx, struct gs_gpu_plan *out)
{
    const struct gs_gpu_dims *dims = &args->dims;
    struct gs_gpu_launch *launch = &out->launches[0];
    int is_q8 = (stage == GS_GPU_HEAD ? args->outer.type : args->w.qkv.type) == GS_GPU_Q8;
    uint32_t rings = GS_DECODE_Q8_SLOTS * GS_DECODE_Q8_CHUNK,
             vector = (uint32_t)gs_decode_split_bytes(dims->d_model);
    out->count = 0;
    if (stage == GS_GPU_EMBED || args->n_rows != 1 || !gs_decode_takes(dims, machine) ||
        !(stage == GS_GPU_HEAD ? args->outer.relaid != NULL : gs_decode_has_relaid(&args->w)))
        return;
    launch->grid[0] = gs_decode_blocks(dims, machine);
    launch->grid[1] = launch->grid[2] = 1;
    launch->block = GS_DECODE_WARPS * 32;
    launch->cooperative = 0;
    switch (stage) {
    case GS_GPU_ATTENTION_IN:
        launch->kernel = is_q8 ? "gs_decode_qkv_q8" : "gs_decode_qkv";
        rings = is_q8 ? rings : GS_DECODE_QKV_SLOTS * GS_DECODE_DENSE_CHUNK;
        break;
    case GS_GPU_ATTENTION: {
        int64_t keys = args->is_window ? dims->window : n_ctx;
        int64_t split = (keys + GS_DECODE_SPLIT_KEYS - 1) / GS_DECODE_SPLIT_KEYS;
        int64_t most = machine->n_sm / dims->n_kv_head;
        most = most < 1 ? 1 : most < GS_DECODE_MAX_SPLIT ? most : GS_DECODE_MAX_SPLIT;
        launch->kernel = "gs_decode_attention";
        launch->grid[0] = (uint32_t)dims->n_kv_head;
        launch->grid[1] = (uint32_t)(split < most ? split : most);
        launch->block = GS_DECODE_ATTENTION_WARPS * 32;
        launch->shared_bytes = 0;
        out->count = 1;
        return;
    }
    case GS_GPU_ATTENTION_OUT:
        launch->kernel = is_q8 ? "gs_decode_o_q8" : "gs_decode_o";
        rings = is_q8 ? rings : GS_DECODE_O_SLOTS * GS_DECODE_DENSE_CHUNK;
        vector = (uint32_t)gs_decode_split_bytes((int64_t)dims->n_head * dims->d_head);
        vector += gs_decode_most_rows(dims, launch->grid[0]) * 4 * (uint32_t)dims->n_expert;
        break;
    case GS_GPU_MOE_IN:
        launch->kernel = "gs_decode_gate_up";
        rings = GS_DECODE_GATE_UP_SLOTS * GS_DECODE_EXPERT_CHUNK;
        break;
    case GS_GPU_MOE_OUT:
        launch->kernel = "gs_decode_down";
        rings = GS_DECODE_DOWN_SLOTS * GS_DECODE_EXPERT_CHUNK;
        vector =
            (uint32_t)gs_decode_split_bytes((int64_t)GS_DECODE_ACTIVE / GS_DECODE_DOWN_PARTS * dims->d_ff);
        break;
    default:
        launch->kernel = is_q8 ? "gs_decode_head_q8" : "gs_decode_head";
        launch->grid[0] = (uint32_t)machine->n_sm;
        rings = is_q8 ? GS_DECODE_Q8_HEAD_SLOTS * GS_DECODE_Q8_HEAD_GROUP * GS_DECODE_Q8_CHUNK
                      : GS_DECODE_HEAD_SLOTS * GS_DECODE_DENSE_CHUNK;
        break;
    }
    launch->shared_bytes = GS_DECODE_WARPS * rings + GS_DECODE_BLOCK_SHARED + vector;
    if (stage == GS_GPU_ATTENTION_OUT && launch->shared_bytes < GS_DECODE_ALONE)
        launch->shared_bytes = GS_DECODE_ALONE;
    out->count = 1;
}

#endif
