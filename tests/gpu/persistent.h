/*
 * Decode as one cooperative kernel, beside the graph's kernels: see persistent.cu. A study, not part of the
 * library: docs/gpu-decode.md says what it teaches.
 */
#ifndef GS_TESTS_GPU_PERSISTENT_H
#define GS_TESTS_GPU_PERSISTENT_H

#include <cuda_runtime.h>

#include "backend/gpu/kernels.h"

#define GS_PERSISTENT_LAYERS 36

/* Counters of the barriers, each in a line of its own. The launch zeroes them. */
struct gs_persistent_sync {
    uint32_t all[32];   /* every block, once a barrier */
    uint32_t heads[32]; /* KV heads whose attention is done */
    uint32_t late[32];  /* not 0: a block waited a second for another, and all gave up */
    uint32_t stop[32];  /* what `cancel` held when a token was done */
};

struct gs_persistent_layer {
    const uint8_t *qkv, *o, *gate_up, *down; /* re-laid */
    const float *attention_norm, *qkv_bias, *sinks, *o_bias, *mlp_norm, *router_columns, *router_bias;
    const float *gate_up_bias, *down_bias;
};

struct gs_persistent_args {
    struct gs_gpu_dims dims; /* those of the official models */
    struct gs_gpu_scratch
        s; /* rows[0]: the first token; tokens: what follows it; decode, hidden, logits ... */
    const uint16_t *embedding; /* [n_vocab][d_model] bfloat16; NULL: the first token's vector is s.hidden */
    const uint8_t *head;       /* re-laid */
    const float *norm;
    struct gs_persistent_sync *sync;
    const uint32_t *cancel; /* may be NULL, and may lie in the host's memory: not 0 ends the chain */
    int32_t n_token;        /* greedy tokens of the chain; 0: only the layers */
    int32_t first_layer, n_layer;
    int32_t is_q8;
    struct gs_persistent_layer layers[GS_PERSISTENT_LAYERS];
};

/* Queues it: one block a multiprocessor, of which there are `n_block`. */
cudaError_t gs_persistent_launch(const struct gs_persistent_args *args, int n_block, cudaStream_t stream);

#endif
