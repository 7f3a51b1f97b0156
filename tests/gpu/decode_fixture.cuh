/*
 * A model of random weights on the device for the decode kernels' tests and timings: weights in the
 * contract's form and re-laid, scratch, caches. A program of its own; the CUDA runtime is linked into it
 * alone.
 */
#ifndef GS_TESTS_GPU_DECODE_FIXTURE_CUH
#define GS_TESTS_GPU_DECODE_FIXTURE_CUH

#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/gpu/decode_launch.h"

extern "C" {
__global__ void gs_decode_relay_dense(const __grid_constant__ struct gs_decode_relay args);
__global__ void gs_decode_relay_q8(const __grid_constant__ struct gs_decode_relay args);
__global__ void gs_decode_relay_experts(const __grid_constant__ struct gs_decode_relay args);
__global__ void gs_decode_qkv(const __grid_constant__ struct gs_gpu_args args);
__global__ void gs_decode_qkv_q8(const __grid_constant__ struct gs_gpu_args args);
__global__ void gs_decode_attention(const __grid_constant__ struct gs_gpu_args args);
__global__ void gs_decode_o(const __grid_constant__ struct gs_gpu_args args);
__global__ void gs_decode_o_q8(const __grid_constant__ struct gs_gpu_args args);
__global__ void gs_decode_gate_up(const __grid_constant__ struct gs_gpu_args args);
__global__ void gs_decode_down(const __grid_constant__ struct gs_gpu_args args);
__global__ void gs_decode_head(const __grid_constant__ struct gs_gpu_args args);
__global__ void gs_decode_head_q8(const __grid_constant__ struct gs_gpu_args args);
}

#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        cudaError_t status_ = (call);                                                                        \
        if (status_ != cudaSuccess) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status_));                 \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

struct shape {
    const char *name;
    int32_t n_layer, d_model, n_head, n_kv_head, n_expert, d_ff, n_vocab, n_ctx;
    int32_t type; /* of the dense matrices */
};

struct model {
    struct gs_gpu_machine machine;
    struct gs_gpu_dims dims;
    struct gs_gpu_scratch scratch;
    struct gs_gpu_layer *layers; /* host array of device pointers */
    struct gs_gpu_matrix head;
    float *norm;
    struct gs_gpu_kv_layer *kv; /* host array */
    struct gs_gpu_kv_layer *kv_device;
};

typedef void stage_kernel(const struct gs_gpu_args);

static inline const void *kernel_named(const char *name)
{
    static const struct {
        const char *name;
        const void *function;
    } kernels[] = {
        {"gs_decode_qkv", (const void *)gs_decode_qkv},
        {"gs_decode_qkv_q8", (const void *)gs_decode_qkv_q8},
        {"gs_decode_attention", (const void *)gs_decode_attention},
        {"gs_decode_o", (const void *)gs_decode_o},
        {"gs_decode_o_q8", (const void *)gs_decode_o_q8},
        {"gs_decode_gate_up", (const void *)gs_decode_gate_up},
        {"gs_decode_down", (const void *)gs_decode_down},
        {"gs_decode_head", (const void *)gs_decode_head},
        {"gs_decode_head_q8", (const void *)gs_decode_head_q8},
    };
    for (const auto &k : kernels)
        if (strcmp(k.name, name) == 0)
            return k.function;
    fprintf(stderr, "no kernel %s\n", name);
    exit(1);
}

static inline uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Uniform in [-1, 1). */
static inline float random_float(uint64_t seed)
{
    return (float)(mix(seed) >> 40) * 0x1p-23f - 1.0f;
}

static inline float float_of_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
}

static inline uint16_t bf16_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline void *device_bytes(size_t bytes)
{
    void *at;
    CHECK(cudaMalloc(&at, bytes));
    CHECK(cudaMemset(at, 0xff, bytes)); /* poison: NaN in every form */
    return at;
}

static inline void *device_copy(const void *from, size_t bytes)
{
    void *at = device_bytes(bytes);
    CHECK(cudaMemcpy(at, from, bytes, cudaMemcpyHostToDevice));
    return at;
}

static inline struct gs_gpu_machine machine_here(void)
{
    struct gs_gpu_machine m;
    cudaDeviceProp p;
    CHECK(cudaGetDeviceProperties(&p, 0));
    m.n_sm = p.multiProcessorCount;
    m.shared_bytes = (int32_t)p.sharedMemPerBlockOptin;
    m.capability = p.major * 10 + p.minor;
    m.l2_bytes = p.l2CacheSize;
    return m;
}

static inline struct gs_gpu_dims dims_of(const struct shape *s)
{
    struct gs_gpu_dims d;
    memset(&d, 0, sizeof d);
    d.n_layer = s->n_layer, d.d_model = s->d_model, d.d_head = 64, d.n_head = s->n_head;
    d.n_kv_head = s->n_kv_head, d.n_expert = s->n_expert, d.n_active = 4, d.d_ff = s->d_ff;
    d.n_vocab = s->n_vocab, d.window = 128, d.max_ctx = s->n_ctx, d.max_rows = 8;
    d.rms_norm_eps = 1e-5f, d.swiglu_limit = 7.0f, d.swiglu_alpha = 1.702f, d.attention_scale = 0.125f;
    return d;
}

static inline void launch_function(const void *function, const struct gs_gpu_launch *l,
                                   const struct gs_gpu_args *args, bool dependent, cudaStream_t stream)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute;
    void *parameters[] = {(void *)args};
    config.gridDim = dim3(l->grid[0], l->grid[1], l->grid[2]);
    config.blockDim = dim3(l->block);
    config.dynamicSmemBytes = l->shared_bytes;
    config.stream = stream;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = dependent ? 1 : 0;
    CHECK(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)l->shared_bytes));
    /* The same for all: an SM does not hold kernels of different divisions of its memory at once. */
    CHECK(cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
    CHECK(cudaLaunchKernelExC(&config, function, parameters));
}

static inline void launch(const struct gs_gpu_launch *l, const struct gs_gpu_args *args, bool dependent,
                          cudaStream_t stream)
{
    launch_function(kernel_named(l->kernel), l, args, dependent, stream);
}

static inline struct gs_gpu_args args_of(const struct model *m, int32_t layer)
{
    struct gs_gpu_args args;
    memset(&args, 0, sizeof args);
    args.dims = m->dims;
    args.s = m->scratch;
    if (layer < m->dims.n_layer) {
        args.w = m->layers[layer];
    } else {
        args.outer = m->head;
        args.norm = m->norm;
    }
    args.n_rows = 1;
    args.n_logit_rows = 1;
    args.layer = layer;
    args.is_window = layer % 2 == 0;
    return args;
}

static inline void run_stage(const struct model *m, enum gs_gpu_stage stage, int32_t layer, int64_t n_ctx,
                             bool dependent, cudaStream_t stream)
{
    struct gs_gpu_args args = args_of(m, layer);
    struct gs_gpu_plan plan;
    gs_decode_plan(&args, &m->machine, stage, n_ctx, &plan);
    if (plan.count == 0) {
        fprintf(stderr, "the decode kernels do not take this shape\n");
        exit(1);
    }
    for (int i = 0; i < plan.count; i++)
        launch(&plan.launches[i], &args, dependent, stream);
}

static inline void make_scratch(struct model *m)
{
    const struct gs_gpu_dims *d = &m->dims;
    struct gs_gpu_scratch *s = &m->scratch;
    int64_t bytes = gs_decode_scratch_bytes(d, &m->machine);
    float *rope = (float *)malloc((size_t)d->max_ctx * 64 * sizeof(float));
    memset(s, 0, sizeof *s);
    s->rows = (struct gs_gpu_row *)device_bytes(sizeof *s->rows * 8);
    s->hidden = (float *)device_bytes(4 * (size_t)d->d_model);
    s->choice = (int32_t *)device_bytes(4 * 8);
    s->choice_weight = (float *)device_bytes(4 * 8);
    s->logits = (float *)device_bytes(4 * (size_t)d->n_vocab);
    s->argmax = (uint64_t *)device_bytes(8 * 8);
    s->decode = device_bytes((size_t)bytes);
    CHECK(cudaMemset((uint8_t *)s->decode + gs_decode_layout_of(d).arrived, 0, 4 * (size_t)d->n_kv_head));
    for (int64_t p = 0; p < d->max_ctx; p++)
        for (int j = 0; j < 32; j++) {
            double angle = (double)p * pow(150000.0, -j / 32.0);
            rope[p * 64 + 2 * j] = (float)(1.3465735902799727 * cos(angle));
            rope[p * 64 + 2 * j + 1] = (float)(1.3465735902799727 * sin(angle));
        }
    s->rope = (float *)device_copy(rope, (size_t)d->max_ctx * 64 * sizeof(float));
    free(rope);
}

static inline void set_row(struct model *m, int32_t position)
{
    struct gs_gpu_row row = {m->kv_device, 0, position, 0, 0};
    CHECK(cudaMemcpy(m->scratch.rows, &row, sizeof row, cudaMemcpyHostToDevice));
}

#endif
