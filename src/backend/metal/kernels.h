/*
 * The contract between the host and the kernels of the Metal backend: what is bound where, the one argument
 * struct of every kernel, the kernels' names, and how each is launched. Included by C (host, tests) and put
 * in front of the kernels' source:
 *
 *   library = kernels.h common.metal dense.metal attention.metal router.metal experts.metal prefill.metal
 *             prefill_attention.metal head.metal few.metal measure.metal, one text in this order (no file of
 *             it includes another of ours)
 *
 * A forward runs over T rows: a row is a token of some timeline, described in GS_METAL_ROWS. Buffers have one
 * index each in all kernels, so the host binds scratch once an encoder and weights before each dispatch. A
 * kernel reads no index that its comment below does not name.
 *
 * Order of the stages of a layer, each one dispatch (decode and few rows; at most 7):
 *   GS_METAL_ATTENTION_IN       hidden -> qkv: norm, projections, bias, RoPE; k and v into the cache
 *   GS_METAL_ATTENTION          qkv, cache -> attended, or partials where keys are split over threadgroups
 *   GS_METAL_ATTENTION_COMBINE  partials -> attended; only after a split
 *   GS_METAL_ATTENTION_OUT      attended -> projected = o + bias; hidden += projected
 *   GS_METAL_ROUTER             hidden -> normed, router, choice, choice_weight, active
 *   GS_METAL_MOE_GATE_UP        normed, active -> activated
 *   GS_METAL_MOE_DOWN           activated, active -> projected; hidden += projected
 * Around the layers: GS_METAL_EMBED, GS_METAL_HEAD (norm, logits, candidates), GS_METAL_PICK.
 * In large steps (fast precision) the same with other kernels:
 *   GS_METAL_NORM (attention norm), GS_METAL_LINEAR for q, k and v, GS_METAL_ROTATE, GS_METAL_ATTENTION with
 *   n_split 1 (or GS_METAL_ATTENTION_TILE), GS_METAL_LINEAR for o with add_to_hidden, GS_METAL_ROUTER,
 *   GS_METAL_SORT, GS_METAL_EXPERTS_GATE_UP, GS_METAL_EXPERTS_DOWN, GS_METAL_EXPERTS_COMBINE.
 * In steps of few rows (fast precision; more than one, fewer than the tile kernels take) these, with the
 * kernels *_FEW in the place of LINEAR, EXPERTS_GATE_UP and EXPERTS_DOWN: weights are read once for all rows,
 * and nothing is rounded to half. HEAD_FEW in the place of HEAD wherever logits of 2 to GS_METAL_FEW_ROWS
 * rows are wanted.
 *
 * Numbers: activations, sums, softmax and norms are float32; matrices are read as stored. The tile kernels
 * (LINEAR, EXPERTS_*, ATTENTION_TILE) round the factors of a product to half and sum in float32. Every sum
 * has one order, which does not depend on the run nor, except in the tile kernels, on the other rows of the
 * call. Ties of the router go to the lower expert, of the argmax to the lower token.
 */
#ifndef GS_BACKEND_METAL_KERNELS_H
#define GS_BACKEND_METAL_KERNELS_H

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

/* Limits that the host checks at load; it refuses a model beyond them. */
#define GS_METAL_MAX_ACTIVE  16   /* experts a token */
#define GS_METAL_MAX_EXPERTS 1024 /* a layer */
#define GS_METAL_MAX_D_HEAD  256
#define GS_METAL_TILE_D_HEAD 128 /* of ATTENTION_TILE */

#define GS_METAL_LANES          32  /* of a SIMD-group, on every Apple GPU */
#define GS_METAL_THREADS        256 /* of a threadgroup, unless said otherwise */
#define GS_METAL_SIMDGROUPS     (GS_METAL_THREADS / GS_METAL_LANES)
#define GS_METAL_SET_ROWS       4   /* matrix rows that cooperating SIMD-groups take at once */
#define GS_METAL_DOWN_ROWS      2   /* the same of MOE_DOWN */
#define GS_METAL_HEAD_SETS      4   /* such sets that a threadgroup of HEAD takes, one after the other */
#define GS_METAL_CHUNK          256 /* keys of a split, counted from the first visible one */
#define GS_METAL_ROUTER_THREADS 512
#define GS_METAL_SORT_THREADS   1024
#define GS_METAL_PICK_THREADS   1024
#define GS_METAL_READ_GROUPS    4096 /* threadgroups of READ at most */
#define GS_METAL_TILE_THREADS   128
#define GS_METAL_TILE_TOKENS    32                    /* of a tile kernel's threadgroup */
#define GS_METAL_TILE_ROWS      64                    /* matrix rows of the same */
#define GS_METAL_FEW_ROWS       16                    /* rows that the kernels *_FEW take at most */
#define GS_METAL_FEW_BYTES      (GS_METAL_LANES * 16) /* of threadgroup memory, a row; experts: twice */

/* ---------------------------------------------------------------- function constants */

enum gs_metal_constant {
    GS_METAL_CONSTANT_SIMDGROUPS = 0,       /* uint: SIMD-groups that share a dense row: 1, 2, 4, 8 */
    GS_METAL_CONSTANT_MXFP4_SIMDGROUPS = 1, /* uint: the same of MXFP4 rows */
    GS_METAL_CONSTANT_SCALAR_LOAD = 2,      /* bool: weights by their smallest unit, no vector loads */
    GS_METAL_CONSTANT_KV_F32 = 3,           /* bool: keys and values as float32 (exact), else bfloat16 */
    GS_METAL_CONSTANT_CONTROL = 4,          /* uint: enum gs_metal_control */
    GS_METAL_CONSTANT_COUNT = 5,
};

/* Negative controls that are arithmetic: enum gs_control has the same ones, and those that weights can play.
 */
enum gs_metal_control {
    GS_METAL_CONTROL_NONE = 0,
    GS_METAL_CONTROL_ROUTER_SOFTMAX = 1, /* softmax over all experts, without renormalising */
    GS_METAL_CONTROL_SWIGLU_CLAMP = 2,   /* no limit; the values past it are counted in MOE_GATE_UP's OUT */
    GS_METAL_CONTROL_SWIGLU_PLUS_ONE = 3,
    GS_METAL_CONTROL_KV_RING = 4,    /* positions from n_slot on are stored one slot late */
    GS_METAL_CONTROL_ROPE_PAIRS = 5, /* ATTENTION_IN puts pair j at elements 2j and 2j + 1 of q and k */
};

#define GS_METAL_SIMDGROUPS_DEFAULT       4
#define GS_METAL_MXFP4_SIMDGROUPS_DEFAULT 2

/* ---------------------------------------------------------------- buffers */

enum gs_metal_buffer {
    GS_METAL_ARGS = 0,          /* struct gs_metal_args, by setBytes */
    GS_METAL_ROWS = 1,          /* struct gs_metal_row [T] */
    GS_METAL_HIDDEN = 2,        /* float [T][d_model]: the residual stream */
    GS_METAL_NORMED = 3,        /* float [T][d_model] */
    GS_METAL_QKV = 4,           /* float [T][(n_head + 2*n_kv_head)*d_head]: q | k | v, q and k rotated */
    GS_METAL_ATTENDED = 5,      /* float [T][n_head*d_head] */
    GS_METAL_PARTIALS = 6,      /* float [T][n_head][n_split][d_head + 2] */
    GS_METAL_ROUTER_LOGITS = 7, /* float [T][n_expert] */
    GS_METAL_CHOICE = 8,        /* int32 [T][n_active]: experts, best first */
    GS_METAL_CHOICE_WEIGHT = 9, /* float [T][n_active] */
    GS_METAL_ACTIVE = 10,       /* struct gs_metal_active [T][n_active]: the same, ascending by expert */
    GS_METAL_ACTIVATED = 11,    /* float [T][n_active][d_ff], in the order of `active` */
    GS_METAL_PROJECTED = 12,    /* float [T][d_model]: what attention, then the experts add to hidden */
    GS_METAL_LOGITS = 13,       /* float [n_logit_rows][n_vocab] */
    GS_METAL_CANDIDATES = 14,   /* struct gs_metal_candidate [n_logit_rows][gs_metal_n_candidates] */
    GS_METAL_CHOSEN = 15,       /* int32: tokens that PICK chose, -1: none; EMBED reads them in a chain */
    GS_METAL_ROPE = 16,         /* float [T][d_head/2][2]: cosine, sine of each row's position, scaled */
    GS_METAL_KV = 17,           /* the caches: bytes, addressed by GS_METAL_KV_TABLE */
    GS_METAL_KV_TABLE = 18,     /* struct gs_metal_kv_layer [timelines][n_layer] */
    GS_METAL_ROUTES = 19,       /* int32, gs_metal_routes_bytes: prefill's grouping by expert */
    GS_METAL_EXPERT_OUT = 20,   /* float [T][n_active][d_model]: prefill, in the order of `active` */
    GS_METAL_NORM_WEIGHT = 21,  /* float [d_model] */
    GS_METAL_WEIGHT_0 = 22,     /* a matrix: q, o, router, head, embedding; MXFP4 codes */
    GS_METAL_WEIGHT_1 = 23,     /* k; MXFP4 scales */
    GS_METAL_WEIGHT_2 = 24,     /* v */
    GS_METAL_BIAS_0 = 25,       /* float [rows] of WEIGHT_0; of experts [n_expert][rows] */
    GS_METAL_BIAS_1 = 26,       /* of WEIGHT_1 */
    GS_METAL_BIAS_2 = 27,       /* of WEIGHT_2 */
    GS_METAL_SINKS = 28,        /* float [n_head] */
    GS_METAL_IN = 29,           /* LINEAR: float [T][columns]; READ */
    GS_METAL_OUT = 30,          /* LINEAR: float [T][out_stride]; DEQUANTIZE; READ */
    GS_METAL_BUFFER_COUNT = 31,
};

/*
 * A dense matrix [rows][columns] as stored. With vector loads the bound offset is a multiple of
 * gs_metal_matrix_alignment; with SCALAR_LOAD of the element's size.
 */
enum gs_metal_type {
    GS_METAL_BF16 = 0,
    GS_METAL_F16 = 1,
    GS_METAL_F32 = 2,
    GS_METAL_Q8 = 3, /* int8 [rows][columns]; at scales_at half [rows][columns/32]; columns % 32 = 0 */
};

/*
 * The experts' MXFP4 matrices as in safetensors: codes [n_expert][rows][columns/32][16] in WEIGHT_0, offset a
 * multiple of GS_METAL_CODES_ALIGNMENT (1 with SCALAR_LOAD); scales [n_expert][rows][columns/32] in WEIGHT_1,
 * any offset.
 */
#define GS_METAL_CODES_ALIGNMENT 8

struct gs_metal_row {
    int32_t token; /* from 0; below 0: chosen[-1 - token], what PICK chose before */
    int32_t position;
    int32_t timeline;     /* its row of GS_METAL_KV_TABLE */
    int32_t logit_source; /* of entry i < n_logit_rows: the row that logit row i belongs to */
    int32_t chosen_at;    /* of entry i < n_logit_rows: where PICK puts logit row i's token */
    float temperature;    /* of entry i < n_logit_rows: 0: the largest logit; below: none, the host draws */
    uint32_t draw;        /* of the same: uniform in [0, 1), times 2^32; with a temperature */
    int32_t unused;
};

/*
 * A layer's cache of one timeline: keys and values [n_kv_head][n_slot][d_head] each, keys rotated. Position p
 * lies in slot p mod n_slot: a window layer is a ring of the window and the largest step, a full layer has a
 * slot for every position. Offsets in bytes from where GS_METAL_KV is bound, multiples of 16.
 */
struct gs_metal_kv_layer {
    uint64_t keys, values;
    uint32_t n_slot;
    uint32_t unused;
};

struct gs_metal_active {
    int32_t expert;
    float weight;
};

struct gs_metal_candidate {
    float logit;
    int32_t token;
};

/* What every kernel gets. `dims` are the model's; what follows is set for a dispatch. */
struct gs_metal_args {
    uint32_t d_model, d_head, n_head, n_kv_head;
    uint32_t n_expert, n_active, d_ff, n_vocab;
    uint32_t n_layer;
    float rms_norm_eps, swiglu_limit, swiglu_alpha;
    float attention_scale; /* 1/sqrt(d_head) */

    uint32_t layer;
    uint32_t window;    /* positions that the layer sees, its own included; 0: all */
    uint32_t n_rows;    /* rows of this dispatch ... */
    uint32_t first_row; /* ... from this one on; 0 for LINEAR, SORT and EXPERTS_* */
    uint32_t store_kv;  /* ATTENTION_IN: put k and v into the cache; 0: KV_STORE does */
    uint32_t n_split;   /* ATTENTION: threadgroups that share a row's keys, gs_metal_n_split; 1: none share */
    uint32_t n_logit_rows;
    uint32_t first_rank, n_ranks; /* MOE_*: which of a row's active experts; 0, n_active: all */

    uint32_t type[3];      /* enum gs_metal_type of WEIGHT_0 ... 2 */
    uint32_t scales_at[3]; /* GS_METAL_Q8: the scales begin 16 * scales_at bytes after the codes */

    uint32_t rows, columns;         /* LINEAR, DEQUANTIZE: of the matrix */
    uint32_t out_first, out_stride; /* LINEAR: out[row*out_stride + out_first + r] */
    uint32_t add_to_hidden;         /* LINEAR: hidden[row*d_model + r] += the same */

    uint32_t matrix_row; /* DEQUANTIZE: first row, counted over experts: expert*rows + row */
    uint32_t n_words;    /* READ: 16-byte words of GS_METAL_IN */
    uint32_t unused;
};

/* ---------------------------------------------------------------- kernels */

/* clang-format off */
/*
 * name, and what it reads besides ARGS -> what it writes
 *
 * EMBED              ROWS, CHOSEN, WEIGHT_0 (type 0) -> HIDDEN
 * ATTENTION_IN       ROWS, HIDDEN, NORM_WEIGHT, WEIGHT_0..2, BIAS_0..2, ROPE, KV_TABLE -> QKV, KV
 * KV_STORE           ROWS, QKV, KV_TABLE -> KV: for rows of one binding of KV, after store_kv 0
 * ATTENTION          ROWS, QKV, KV, KV_TABLE, SINKS -> ATTENDED (n_split 1) or PARTIALS
 * ATTENTION_COMBINE  ROWS, PARTIALS, SINKS -> ATTENDED
 * ATTENTION_OUT      ATTENDED, WEIGHT_0, BIAS_0, HIDDEN -> PROJECTED, HIDDEN
 * ROUTER             HIDDEN, NORM_WEIGHT, WEIGHT_0, BIAS_0 -> NORMED, ROUTER_LOGITS, CHOICE, CHOICE_WEIGHT, ACTIVE
 * MOE_GATE_UP        NORMED, ACTIVE, WEIGHT_0, WEIGHT_1, BIAS_0 -> ACTIVATED; OUT under CONTROL_SWIGLU_CLAMP
 * MOE_DOWN           ACTIVATED, ACTIVE, WEIGHT_0, WEIGHT_1, BIAS_0, HIDDEN, PROJECTED -> PROJECTED, HIDDEN
 * HEAD               ROWS, HIDDEN, NORM_WEIGHT (the last norm), WEIGHT_0 -> LOGITS, CANDIDATES
 * PICK               ROWS, LOGITS, CANDIDATES -> CHOSEN
 * NORM               HIDDEN, NORM_WEIGHT -> NORMED
 * LINEAR             IN, WEIGHT_0, BIAS_0, HIDDEN -> OUT, HIDDEN
 * ROTATE             ROWS, QKV, ROPE, KV_TABLE -> QKV, KV
 * SORT               ACTIVE -> ROUTES
 * EXPERTS_GATE_UP    ROUTES, NORMED, WEIGHT_0, WEIGHT_1, BIAS_0 -> ACTIVATED
 * EXPERTS_DOWN       ROUTES, ACTIVATED, WEIGHT_0, WEIGHT_1, BIAS_0 -> EXPERT_OUT
 * EXPERTS_COMBINE    ACTIVE, EXPERT_OUT, HIDDEN -> PROJECTED, HIDDEN
 * ATTENTION_TILE     ROWS, QKV, KV, KV_TABLE, SINKS -> ATTENDED: rows of one timeline, neighbours in position;
 *                    d_head a multiple of 8, GS_METAL_TILE_D_HEAD at most
 * LINEAR_FEW         as LINEAR
 * EXPERTS_GATE_UP_FEW, EXPERTS_DOWN_FEW  as EXPERTS_GATE_UP, EXPERTS_DOWN
 * HEAD_FEW           ROWS, NORMED (of all rows, by NORM), WEIGHT_0 -> LOGITS, CANDIDATES
 * DEQUANTIZE         WEIGHT_0, WEIGHT_1 -> OUT float [n_rows][columns], bit-exact
 * READ               IN -> OUT uint32 [threads of the launch]: bandwidth
 * EMPTY              nothing: the price of a dispatch
 */
/* clang-format on */
enum gs_metal_kernel {
    GS_METAL_EMBED,
    GS_METAL_ATTENTION_IN,
    GS_METAL_KV_STORE,
    GS_METAL_ATTENTION,
    GS_METAL_ATTENTION_COMBINE,
    GS_METAL_ATTENTION_OUT,
    GS_METAL_ROUTER,
    GS_METAL_MOE_GATE_UP,
    GS_METAL_MOE_DOWN,
    GS_METAL_HEAD,
    GS_METAL_PICK,
    GS_METAL_NORM,
    GS_METAL_LINEAR,
    GS_METAL_ROTATE,
    GS_METAL_SORT,
    GS_METAL_EXPERTS_GATE_UP,
    GS_METAL_EXPERTS_DOWN,
    GS_METAL_EXPERTS_COMBINE,
    GS_METAL_ATTENTION_TILE,
    GS_METAL_LINEAR_FEW,
    GS_METAL_EXPERTS_GATE_UP_FEW,
    GS_METAL_EXPERTS_DOWN_FEW,
    GS_METAL_HEAD_FEW,
    GS_METAL_DEQUANTIZE,
    GS_METAL_READ,
    GS_METAL_EMPTY,
    GS_METAL_KERNEL_COUNT,
};

#if !defined(__METAL_VERSION__)

/* The function's name in the library. */
static inline const char *gs_metal_kernel_name(enum gs_metal_kernel kernel)
{
    switch (kernel) {
    case GS_METAL_EMBED:
        return "gs_embed";
    case GS_METAL_ATTENTION_IN:
        return "gs_attention_in";
    case GS_METAL_KV_STORE:
        return "gs_kv_store";
    case GS_METAL_ATTENTION:
        return "gs_attention";
    case GS_METAL_ATTENTION_COMBINE:
        return "gs_attention_combine";
    case GS_METAL_ATTENTION_OUT:
        return "gs_attention_out";
    case GS_METAL_ROUTER:
        return "gs_router";
    case GS_METAL_MOE_GATE_UP:
        return "gs_moe_gate_up_mxfp4_f32";
    case GS_METAL_MOE_DOWN:
        return "gs_moe_down_mxfp4_f32";
    case GS_METAL_HEAD:
        return "gs_head";
    case GS_METAL_PICK:
        return "gs_pick";
    case GS_METAL_NORM:
        return "gs_rms_norm";
    case GS_METAL_LINEAR:
        return "gs_linear_tile_f16";
    case GS_METAL_ROTATE:
        return "gs_rotate";
    case GS_METAL_SORT:
        return "gs_sort_routes";
    case GS_METAL_EXPERTS_GATE_UP:
        return "gs_experts_gate_up_mxfp4_f16";
    case GS_METAL_EXPERTS_DOWN:
        return "gs_experts_down_mxfp4_f16";
    case GS_METAL_EXPERTS_COMBINE:
        return "gs_experts_combine";
    case GS_METAL_ATTENTION_TILE:
        return "gs_attention_tile_f16";
    case GS_METAL_LINEAR_FEW:
        return "gs_linear_few_f32";
    case GS_METAL_EXPERTS_GATE_UP_FEW:
        return "gs_experts_gate_up_mxfp4_f32";
    case GS_METAL_EXPERTS_DOWN_FEW:
        return "gs_experts_down_mxfp4_f32";
    case GS_METAL_HEAD_FEW:
        return "gs_head_few_f32";
    case GS_METAL_DEQUANTIZE:
        return "gs_dequantize_mxfp4";
    case GS_METAL_READ:
        return "gs_read_words";
    case GS_METAL_EMPTY:
        return "gs_empty";
    case GS_METAL_KERNEL_COUNT:
        break;
    }
    return "";
}

/* How kernels were specialised: the values of the function constants. */
struct gs_metal_tuning {
    uint32_t simdgroups, mxfp4_simdgroups;
    uint32_t scalar_load, kv_f32;
    uint32_t control; /* enum gs_metal_control */
};

/* A dispatch: threadgroups, threads of each, bytes for threadgroup index 0 (0: none; a multiple of 16). */
struct gs_metal_launch {
    uint32_t grid[3];
    uint32_t threads;
    uint32_t threadgroup_bytes;
};

/* Threadgroups of READ. */
static inline uint32_t gs_metal_read_groups(uint32_t n_words)
{
    uint32_t groups = n_words / GS_METAL_THREADS / 16;
    return groups < 1 ? 1 : groups < GS_METAL_READ_GROUPS ? groups : GS_METAL_READ_GROUPS;
}

static inline uint32_t gs_metal_ceil_div(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

static inline uint32_t gs_metal_matrix_alignment(uint32_t type)
{
    return type == GS_METAL_F32 ? 16 : type == GS_METAL_Q8 ? 4 : 8;
}

/* Threadgroups that share a row's keys, for rows at positions below n_ctx; window 0: a full layer. */
static inline uint32_t gs_metal_n_split(uint32_t n_ctx, uint32_t window)
{
    uint32_t visible = window > 0 && window < n_ctx ? window : n_ctx;
    return visible > 0 ? gs_metal_ceil_div(visible, GS_METAL_CHUNK) : 1;
}

/* Does ATTENTION_TILE take these heads? */
static inline int gs_metal_takes_tile(const struct gs_metal_args *args)
{
    return args->d_head % 8 == 0 && args->d_head <= GS_METAL_TILE_D_HEAD;
}

static inline uint64_t gs_metal_partials_bytes(const struct gs_metal_args *args, uint32_t n_rows,
                                               uint32_t n_split)
{
    return (uint64_t)n_rows * args->n_head * n_split * (args->d_head + 2) * sizeof(float);
}

/* Rows of the head that a threadgroup of HEAD takes, and so the candidates of a logit row. */
static inline uint32_t gs_metal_head_rows(const struct gs_metal_tuning *tuning)
{
    return GS_METAL_SIMDGROUPS / tuning->simdgroups * GS_METAL_SET_ROWS * GS_METAL_HEAD_SETS;
}

static inline uint32_t gs_metal_n_candidates(const struct gs_metal_args *args,
                                             const struct gs_metal_tuning *tuning)
{
    return gs_metal_ceil_div(args->n_vocab, gs_metal_head_rows(tuning));
}

/* Tiles of routes that SORT makes at most. */
static inline uint32_t gs_metal_max_tiles(const struct gs_metal_args *args, uint32_t n_rows)
{
    uint32_t n_routes = n_rows * args->n_active;
    uint32_t partial = n_routes < args->n_expert ? n_routes : args->n_expert;
    return n_routes / GS_METAL_TILE_TOKENS + partial;
}

/* GS_METAL_ROUTES: the number of tiles (16 bytes), tiles of four numbers, routes. */
static inline uint64_t gs_metal_routes_bytes(const struct gs_metal_args *args, uint32_t max_rows)
{
    return 16 + (uint64_t)gs_metal_max_tiles(args, max_rows) * 16 + (uint64_t)max_rows * args->n_active * 4;
}

/* Of a kernel *_FEW: matrix rows by `y`, and threadgroup memory for so many rows of activations. */
static inline struct gs_metal_launch gs_metal_few_launch(uint32_t matrix_rows, uint32_t y, uint32_t n)
{
    uint32_t set = GS_METAL_SIMDGROUPS * GS_METAL_SET_ROWS; /* matrix rows of a threadgroup */
    return (struct gs_metal_launch){
        {gs_metal_ceil_div(matrix_rows, set), y, 1}, GS_METAL_THREADS, n * GS_METAL_FEW_BYTES};
}

/* A SIMD-group is a head: heads of one kv head side by side. */
static inline struct gs_metal_launch gs_metal_attention_launch(const struct gs_metal_args *args)
{
    uint32_t per_kv = args->n_head / args->n_kv_head;
    uint32_t heads = per_kv < GS_METAL_SIMDGROUPS ? per_kv : GS_METAL_SIMDGROUPS;
    return (struct gs_metal_launch){{gs_metal_ceil_div(args->n_head, heads), args->n_rows, args->n_split},
                                    heads * GS_METAL_LANES,
                                    heads * gs_metal_ceil_div(args->d_head, 4) * 16};
}

static inline struct gs_metal_launch gs_metal_launch_of(enum gs_metal_kernel kernel,
                                                        const struct gs_metal_args *args,
                                                        const struct gs_metal_tuning *tuning)
{
    uint32_t n = args->n_rows, threads = GS_METAL_THREADS;
    uint32_t dense_sets = GS_METAL_SIMDGROUPS / tuning->simdgroups;
    uint32_t mxfp4_sets = GS_METAL_SIMDGROUPS / tuning->mxfp4_simdgroups;
    uint32_t tile_rows = gs_metal_ceil_div(args->rows, GS_METAL_TILE_ROWS);
    switch (kernel) {
    case GS_METAL_EMBED:
    case GS_METAL_KV_STORE:
    case GS_METAL_NORM:
    case GS_METAL_ROTATE:
    case GS_METAL_EXPERTS_COMBINE:
    case GS_METAL_DEQUANTIZE:
        return (struct gs_metal_launch){{n, 1, 1}, threads, 0};
    case GS_METAL_ATTENTION_IN: {
        uint32_t rows = (args->n_head + 2 * args->n_kv_head) * args->d_head;
        return (struct gs_metal_launch){
            {n, gs_metal_ceil_div(gs_metal_ceil_div(rows, GS_METAL_SET_ROWS), dense_sets), 1}, threads, 0};
    }
    case GS_METAL_ATTENTION:
        return gs_metal_attention_launch(args);
    case GS_METAL_ATTENTION_COMBINE:
        return (struct gs_metal_launch){
            {gs_metal_ceil_div(args->n_head, GS_METAL_SIMDGROUPS), n, 1}, threads, 0};
    case GS_METAL_ATTENTION_OUT:
        return (struct gs_metal_launch){
            {n, gs_metal_ceil_div(args->d_model, GS_METAL_SET_ROWS * dense_sets), 1}, threads, 0};
    case GS_METAL_ROUTER:
        return (struct gs_metal_launch){{n, 1, 1}, GS_METAL_ROUTER_THREADS, 0};
    case GS_METAL_MOE_GATE_UP:
        return (struct gs_metal_launch){
            {n, gs_metal_ceil_div(2 * args->d_ff, GS_METAL_SET_ROWS * mxfp4_sets), args->n_ranks},
            threads,
            0};
    case GS_METAL_MOE_DOWN:
        return (struct gs_metal_launch){
            {n, gs_metal_ceil_div(args->d_model, GS_METAL_DOWN_ROWS * mxfp4_sets), 1}, threads, 0};
    case GS_METAL_HEAD:
        return (struct gs_metal_launch){
            {args->n_logit_rows, gs_metal_n_candidates(args, tuning), 1}, threads, 0};
    case GS_METAL_PICK:
        return (struct gs_metal_launch){{args->n_logit_rows, 1, 1}, GS_METAL_PICK_THREADS, 0};
    case GS_METAL_SORT:
        return (struct gs_metal_launch){{1, 1, 1}, GS_METAL_SORT_THREADS, 0};
    case GS_METAL_LINEAR:
        return (struct gs_metal_launch){
            {tile_rows, gs_metal_ceil_div(n, GS_METAL_TILE_TOKENS), 1}, GS_METAL_TILE_THREADS, 0};
    case GS_METAL_EXPERTS_GATE_UP:
    case GS_METAL_EXPERTS_DOWN: {
        uint32_t rows = kernel == GS_METAL_EXPERTS_DOWN ? args->d_model : 2 * args->d_ff;
        return (struct gs_metal_launch){
            {gs_metal_ceil_div(rows, GS_METAL_TILE_ROWS), gs_metal_max_tiles(args, n), 1},
            GS_METAL_TILE_THREADS,
            0};
    }
    case GS_METAL_ATTENTION_TILE:
        return (struct gs_metal_launch){
            {args->n_head, gs_metal_ceil_div(n, GS_METAL_TILE_TOKENS), 1}, GS_METAL_TILE_THREADS, 0};
    case GS_METAL_LINEAR_FEW:
        return gs_metal_few_launch(args->rows, 1, n);
    case GS_METAL_EXPERTS_GATE_UP_FEW:
        return gs_metal_few_launch(2 * args->d_ff, gs_metal_max_tiles(args, n), 2 * n);
    case GS_METAL_EXPERTS_DOWN_FEW:
        return gs_metal_few_launch(args->d_model, gs_metal_max_tiles(args, n), 2 * n);
    case GS_METAL_HEAD_FEW:
        return (struct gs_metal_launch){
            {1, gs_metal_n_candidates(args, tuning), 1}, threads, args->n_logit_rows * GS_METAL_FEW_BYTES};
    case GS_METAL_READ:
        return (struct gs_metal_launch){{gs_metal_read_groups(args->n_words), 1, 1}, threads, 0};
    case GS_METAL_EMPTY:
    case GS_METAL_KERNEL_COUNT:
        break;
    }
    return (struct gs_metal_launch){{1, 1, 1}, GS_METAL_LANES, 0};
}

#endif /* !__METAL_VERSION__ */

#endif
