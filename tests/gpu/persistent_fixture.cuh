/* What the persistent kernel's test and timing share: its arguments from a model of decode_fixture.cuh. */
#ifndef GS_TESTS_GPU_PERSISTENT_FIXTURE_CUH
#define GS_TESTS_GPU_PERSISTENT_FIXTURE_CUH

#include "decode_fixture.cuh"
#include "persistent.h"

#define CHAIN 64 /* tokens of a chain at most */

/* `embedding` may be NULL: the first token's vector is scratch.hidden. The memory is never freed. */
static inline struct gs_persistent_args persistent_args(const struct model *m, const uint16_t *embedding)
{
    static struct gs_persistent_sync *sync;
    static int32_t *tokens;
    struct gs_persistent_args a;
    if (!sync) {
        sync = (struct gs_persistent_sync *)device_bytes(sizeof *sync);
        tokens = (int32_t *)device_bytes((CHAIN + 1) * sizeof *tokens);
    }
    memset(&a, 0, sizeof a);
    a.dims = m->dims, a.s = m->scratch, a.s.tokens = tokens, a.embedding = embedding;
    a.head = (const uint8_t *)m->head.relaid, a.norm = m->norm, a.sync = sync;
    a.n_layer = m->dims.n_layer, a.is_q8 = m->head.type == GS_GPU_Q8;
    for (int i = 0; i < m->dims.n_layer; i++) {
        const struct gs_gpu_layer *w = &m->layers[i];
        struct gs_persistent_layer *to = &a.layers[i];
        to->qkv = (const uint8_t *)w->qkv.relaid, to->o = (const uint8_t *)w->o.relaid;
        to->gate_up = (const uint8_t *)w->gate_up.relaid, to->down = (const uint8_t *)w->down.relaid;
        to->attention_norm = w->attention_norm, to->qkv_bias = w->qkv_bias, to->sinks = w->sinks;
        to->o_bias = w->o_bias, to->mlp_norm = w->mlp_norm, to->router_columns = w->router_columns;
        to->router_bias = w->router_bias;
        to->gate_up_bias = w->gate_up.bias, to->down_bias = w->down.bias;
    }
    return a;
}

static inline void start_at(struct model *m, int32_t token, int32_t position)
{
    struct gs_gpu_row row = {m->kv_device, token, position, 0, 0};
    CHECK(cudaMemcpy(m->scratch.rows, &row, sizeof row, cudaMemcpyHostToDevice));
}

static inline void check_in_time(const struct gs_persistent_args *a)
{
    struct gs_persistent_sync sync;
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&sync, a->sync, sizeof sync, cudaMemcpyDeviceToHost));
    if (sync.late[0]) {
        fprintf(stderr, "a block of the persistent kernel waited too long for the others\n");
        exit(1);
    }
}

#endif
