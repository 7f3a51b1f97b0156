/*
 * A model of random weights on the device for the batch kernels' test: weights in the contract's form and
 * re-laid, scratch, timelines; launches by the plan. All of it is made on the device, so that full shapes
 * take a moment.
 */
#ifndef GS_TESTS_GPU_BATCH_FIXTURE_CUH
#define GS_TESTS_GPU_BATCH_FIXTURE_CUH

#include <algorithm>
#include <vector>

#include "decode_fixture.cuh"

#include "backend/gpu/batch_launch.h"

#define FOUR_SIZES(X, name) X(name##_8) X(name##_16) X(name##_32) X(name##_64)
#define BATCH_KERNELS(X)                                                                                     \
    X(gs_batch_norm)                                                                                         \
    FOUR_SIZES(X, gs_batch_qkv)                                                                              \
    FOUR_SIZES(X, gs_batch_qkv_q8)                                                                           \
    X(gs_batch_attention)                                                                                    \
    FOUR_SIZES(X, gs_batch_o)                                                                                \
    FOUR_SIZES(X, gs_batch_o_q8)                                                                             \
    X(gs_batch_router)                                                                                       \
    X(gs_batch_gate_up_8)                                                                                    \
    X(gs_batch_gate_up_64)                                                                                   \
    X(gs_batch_down_8)                                                                                       \
    X(gs_batch_down_64) X(gs_batch_combine) FOUR_SIZES(X, gs_batch_head) FOUR_SIZES(X, gs_batch_head_q8)     \
        X(gs_simple_argmax)

#define DECLARE(name) extern "C" __global__ void name(const __grid_constant__ struct gs_gpu_args args);
BATCH_KERNELS(DECLARE)
#undef DECLARE

static inline const void *batch_kernel(const char *name)
{
#define FIND(k)                                                                                              \
    if (strcmp(name, #k) == 0)                                                                               \
        return (const void *)k;
    BATCH_KERNELS(FIND)
#undef FIND
    fprintf(stderr, "no kernel %s\n", name);
    exit(1);
}

static uint64_t seed = 1;

__device__ static uint64_t mix_on_device(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

__global__ static void fill_words(uint32_t *to, int64_t n, uint32_t keep, uint32_t base, uint64_t from)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        to[i] = ((uint32_t)mix_on_device(from + (uint64_t)i) & keep) + base;
}

__global__ static void fill_floats(float *to, int64_t n, float center, float spread, uint64_t from)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        to[i] = center + spread * ((float)(mix_on_device(from + (uint64_t)i) >> 40) * 0x1p-23f - 1.0f);
}

static float *random_floats(int64_t n, float center, float spread)
{
    float *to = (float *)device_bytes((size_t)n * 4);
    fill_floats<<<256, 256>>>(to, n, center, spread, seed += (uint64_t)n);
    return to;
}

/* Words of random bits where `keep` has them, plus `base`. */
static void *random_words(int64_t bytes, uint32_t keep, uint32_t base)
{
    void *to = device_bytes((size_t)bytes);
    fill_words<<<1024, 256>>>((uint32_t *)to, bytes / 4, keep, base, seed += (uint64_t)bytes);
    return to;
}

/* bfloat16 of magnitude 2^-6 ... 2^-5, or codes with scales of 2^-12 ... 2^-11. */
static void random_dense(struct gs_gpu_matrix *m, int32_t type, int32_t rows, int32_t columns, bool keep)
{
    int64_t n = (int64_t)rows * columns;
    memset(m, 0, sizeof *m);
    m->type = type, m->rows = rows, m->columns = columns;
    m->data = type == GS_GPU_Q8 ? random_words(n, 0x7f7f7f7fu, 0xc0c0c0c0u)
                                : random_words(2 * n, 0x807f807fu, 0x3c803c80u);
    m->scales = type == GS_GPU_Q8 ? (uint16_t *)random_words(n / 16, 0x03ff03ffu, 0x0c000c00u) : NULL;
    void *to = device_bytes((size_t)gs_decode_relaid_bytes(rows, columns, 1, type));
    struct gs_decode_relay relay = {m->data, m->scales, to, type, rows, columns, 1, 0, 0};
    if (type == GS_GPU_Q8)
        gs_decode_relay_q8<<<1024, 256>>>(relay);
    else
        gs_decode_relay_dense<<<1024, 256>>>(relay);
    m->relaid = to;
    CHECK(cudaDeviceSynchronize());
    if (!keep) {
        CHECK(cudaFree((void *)m->data));
        m->data = NULL;
    }
}

static void random_experts(struct gs_gpu_experts *e, int32_t n_expert, int32_t rows, int32_t columns,
                           int32_t pairs, bool keep)
{
    int32_t stride = (columns / 32 + 15) / 16 * 16;
    int64_t n = (int64_t)n_expert * rows;
    memset(e, 0, sizeof *e);
    e->rows = rows, e->columns = columns, e->scale_stride = stride;
    e->codes = (uint8_t *)random_words(n * columns / 2, ~0u, 0);
    e->scales = (uint8_t *)random_words(n * stride, 0x03030303u, 0x76767676u);
    e->bias = random_floats(n, 0.0f, 0.5f);
    void *to = device_bytes((size_t)gs_decode_relaid_bytes(rows, columns, n_expert, GS_DECODE_MXFP4));
    struct gs_decode_relay relay = {e->codes, e->scales, to,   GS_DECODE_MXFP4, rows, columns,
                                    n_expert, stride,    pairs};
    gs_decode_relay_experts<<<1024, 256>>>(relay);
    e->relaid = to;
    CHECK(cudaDeviceSynchronize());
    if (!keep) {
        CHECK(cudaFree((void *)e->codes));
        CHECK(cudaFree((void *)e->scales));
        e->codes = e->scales = NULL;
    }
}

struct timelines {
    std::vector<struct gs_gpu_kv_layer> layers; /* [timeline][layer] */
    struct gs_gpu_kv_layer *on_device;
};

/* keep: the contract's form too, for the references. */
static void make_model(struct model *m, const struct shape *s, bool keep)
{
    memset(m, 0, sizeof *m);
    m->machine = machine_here();
    m->dims = dims_of(s);
    m->dims.max_rows = GS_BATCH_ROWS;
    m->layers = (struct gs_gpu_layer *)calloc((size_t)s->n_layer, sizeof *m->layers);
    int64_t d = s->d_model, n_qkv = (s->n_head + 2 * s->n_kv_head) * 64;
    for (int32_t layer = 0; layer < s->n_layer; layer++) {
        struct gs_gpu_layer *w = &m->layers[layer];
        memset(w, 0, sizeof *w);
        w->attention_norm = random_floats(d, 1.0f, 0.5f);
        w->mlp_norm = random_floats(d, 1.0f, 0.5f);
        w->qkv_bias = random_floats(n_qkv, 0.0f, 0.5f);
        w->sinks = random_floats(s->n_head, 0.0f, 2.0f);
        w->o_bias = random_floats(d, 0.0f, 0.5f);
        w->router_bias = random_floats(s->n_expert, 0.0f, 0.5f);
        w->router_columns = random_floats(d * s->n_expert, 0.0f, 0.03f);
        random_dense(&w->qkv, s->type, (int32_t)n_qkv, s->d_model, keep);
        random_dense(&w->o, s->type, s->d_model, s->n_head * 64, keep);
        random_experts(&w->gate_up, s->n_expert, 2 * s->d_ff, s->d_model, 1, keep);
        random_experts(&w->down, s->n_expert, s->d_model, s->d_ff, 0, keep);
    }
    m->norm = random_floats(d, 1.0f, 0.5f);
    random_dense(&m->head, s->type, s->n_vocab, s->d_model, keep);
    struct gs_gpu_scratch *p = &m->scratch;
    size_t rows = GS_BATCH_ROWS;
    p->rows = (struct gs_gpu_row *)device_bytes(sizeof *p->rows * rows);
    p->hidden = (float *)device_bytes(4 * rows * (size_t)d);
    p->qkv = (float *)device_bytes(4 * rows * (size_t)n_qkv);
    p->router = (float *)device_bytes(4 * rows * (size_t)s->n_expert);
    p->choice = (int32_t *)device_bytes(4 * rows * 4);
    p->choice_weight = (float *)device_bytes(4 * rows * 4);
    p->logits = (float *)device_bytes(4 * rows * (size_t)s->n_vocab);
    p->argmax = (uint64_t *)device_bytes(8 * rows);
    p->prefill = device_bytes((size_t)gs_batch_layout_of(&m->dims).bytes);
    std::vector<float> rope((size_t)s->n_ctx * 64);
    for (int64_t at = 0; at < s->n_ctx; at++)
        for (int j = 0; j < 32; j++) {
            double angle = (double)at * pow(150000.0, -j / 32.0);
            rope[(size_t)at * 64 + 2 * (size_t)j] = (float)(1.3465735902799727 * cos(angle));
            rope[(size_t)at * 64 + 2 * (size_t)j + 1] = (float)(1.3465735902799727 * sin(angle));
        }
    p->rope = (float *)device_copy(rope.data(), rope.size() * 4);
}

/* Even layers see a window, in a ring. */
static void make_timelines(struct timelines *t, const struct model *m, int n)
{
    const struct gs_gpu_dims *d = &m->dims;
    for (int i = 0; i < n; i++)
        for (int32_t layer = 0; layer < d->n_layer; layer++) {
            struct gs_gpu_kv_layer kv = {NULL, NULL, layer % 2 == 0 ? d->window + GS_BATCH_ROWS : d->max_ctx,
                                         0};
            int64_t bytes = (int64_t)d->n_kv_head * kv.n_slot * 128;
            kv.keys = random_words(bytes, 0x807f807fu, 0x3f003f00u);
            kv.values = random_words(bytes, 0x807f807fu, 0x3f003f00u);
            t->layers.push_back(kv);
        }
    t->on_device =
        (struct gs_gpu_kv_layer *)device_copy(t->layers.data(), t->layers.size() * sizeof t->layers[0]);
}

static struct gs_gpu_args batch_args(const struct model *m, int32_t layer, int32_t n_rows)
{
    struct gs_gpu_args args = args_of(m, layer);
    args.norm = layer + 1 < m->dims.n_layer ? m->layers[layer + 1].attention_norm : m->norm;
    args.n_rows = args.n_logit_rows = n_rows;
    args.n_ctx = m->dims.max_ctx;
    return args;
}

static void batch_launch(const struct gs_gpu_launch *l, const struct gs_gpu_args *args, cudaStream_t stream)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute;
    const void *function = batch_kernel(l->kernel);
    void *parameters[] = {(void *)args};
    config.gridDim = dim3(l->grid[0], l->grid[1], l->grid[2]);
    config.blockDim = dim3(l->block);
    config.dynamicSmemBytes = l->shared_bytes;
    config.stream = stream;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    CHECK(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)l->shared_bytes));
    CHECK(cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
    CHECK(cudaLaunchKernelExC(&config, function, parameters));
}

static void batch_stage(const struct model *m, enum gs_gpu_stage stage, int32_t layer, int32_t n_rows,
                        int64_t n_ctx, cudaStream_t stream)
{
    struct gs_gpu_args args = batch_args(m, layer, n_rows);
    struct gs_gpu_plan plan;
    gs_batch_plan(&args, &m->machine, stage, n_ctx, &plan);
    if (plan.count == 0) {
        fprintf(stderr, "the batch kernels do not take this shape\n");
        exit(1);
    }
    for (int i = 0; i < plan.count; i++)
        batch_launch(&plan.launches[i], &args, stream);
}

static void batch_step(const struct model *m, int32_t n_rows, int64_t n_ctx, cudaStream_t stream, int skip)
{
    for (int32_t layer = 0; layer < m->dims.n_layer; layer++)
        for (int stage = GS_GPU_ATTENTION_IN; stage <= GS_GPU_MOE_OUT; stage++)
            if (stage != skip)
                batch_stage(m, (enum gs_gpu_stage)stage, layer, n_rows, n_ctx, stream);
    if (skip != GS_GPU_HEAD)
        batch_stage(m, GS_GPU_HEAD, m->dims.n_layer, n_rows, n_ctx, stream);
}

#endif
