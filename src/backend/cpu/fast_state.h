/*
 * What --precision fast keeps beside the weights: a model's vectors as float32, and the scratch of a forward.
 * Of fast_state.c, which makes it, and fast.c, which computes in it.
 */
#ifndef GS_BACKEND_CPU_FAST_STATE_H
#define GS_BACKEND_CPU_FAST_STATE_H

#include "backend/cpu/fast.h"
#include "backend/cpu/fast_kernels.h"

/* Rows that attention spreads over spans of keys at most. */
#define GS_FAST_SPREAD_ROWS 8
/* Items that a thread has at least of a loop over heads: fewer, and threads wait for the last ones. */
#define GS_FAST_ITEMS       4
/* Rows of gate and up, whose 32 units are a block of the next stage's activations. */
#define GS_FAST_UNIT_ROWS   64

/* A layer's vectors as float32, and the router's matrix. */
struct gs_fast_layer {
    float *attention_norm, *mlp_norm; /* [d_model] */
    float *sinks;                     /* [n_head] */
    float *bias[4];                   /* of q, k, v, o */
    float *router;                    /* [n_expert][d_model] */
    float *router_bias;               /* [n_expert] */
};

/* Rows of a stage's input, in each form that the weights that they meet want. */
struct gs_fast_input {
    int64_t n;              /* of a row */
    float *f32;             /* [T][n] */
    uint16_t *bf16;         /* [T][n] */
    struct gs_q8_chunk *q8; /* [T][chunks]; GS_Q8_HALVES */
    const float **f32_rows; /* [T] */
    const uint16_t **bf16_rows;
    const struct gs_q8_chunk **q8_rows;
};

struct gs_fast {
    const struct gs_fast_kernels *kernels;
    struct gs_arena arena;
    uint64_t bytes;
    struct gs_fast_layer *layers; /* [n_layer] */
    float *norm;                  /* [d_model] */
    enum gs_q8_order expert_order;

    /* Scratch for GS_CPU_FAST_MAX_TOKENS rows; T is the number of rows of the forward under way. */
    float *hidden;                         /* [T][d_model]: the residual stream */
    struct gs_fast_input normed, attended; /* of d_model, of n_head*d_head */
    float *query, *key, *value;            /* [T][query_stride], [T][n_kv_head*d_head] twice */
    int64_t query_stride;                  /* n_head*d_head, and a line: rows in different sets of a cache */
    float *partial;                        /* [GS_FAST_SPREAD_ROWS][n_kv_head][spans]: of attention */
    float *cosine, *sine;                  /* [T][d_head/2] */
    float *projected;                      /* [T][d_model]: a block's output */
    float *router;                         /* [T][n_expert] */
    float *choice, *choice_weight;         /* [T][n_active] */
    struct gs_q8_chunk *expert_in;         /* [T][chunks of d_model] */
    struct gs_q8_chunk *activated;         /* [T*n_active][chunks of d_ff] */
    float *expert_out;                     /* [T*n_active][d_model] */
    struct gs_cpu_route *routes;           /* [T*n_active], by expert, then by row */
    int64_t *first_route;                  /* [n_expert+1] */
    int64_t *route_of;                     /* [T*n_active]: a row's routes by ascending expert */
    int64_t *active;                       /* [n_expert]: experts that have routes */
    const struct gs_q8_chunk **gate_up_in, **down_in; /* [T*n_active] */

    /* Of each thread. */
    unsigned char *work; /* a product's, or attention's */
    size_t work_bytes;
    uint64_t *work_holds; /* [n_threads]: the number of its vectors, of fast.c; 0: none */
    uint64_t last_number; /* that any had */
    float *tile;          /* [T][GS_FAST_UNIT_ROWS], or a row of weights */
    size_t tile_floats;
};

#endif
