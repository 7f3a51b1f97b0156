/*
 * The prefill kernels on a device, without the rest of the program: every stage against float64 over ragged
 * shapes, then their speed at the 20b's shapes. Needs the CUDA runtime.
 *
 *   test_prefill_kernels [check [small|tiny]] [time] [mma] [sm90] [overlap]
 *
 * By default everything that the device has. small: not the 20b's shape; tiny: one model and 129 rows alone,
 * for a tool that watches every access.
 */
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <vector>

#include "prefill_reference.cuh"

#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        cudaError_t error_ = (call);                                                                         \
        if (error_ != cudaSuccess) {                                                                         \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error_));                  \
            exit(3);                                                                                         \
        }                                                                                                    \
    } while (0)

#define KERNELS(X)                                                                                           \
    X(gs_prefill_norm)                                                                                       \
    X(gs_prefill_qkv)                                                                                        \
    X(gs_prefill_attention)                                                                                  \
    X(gs_prefill_o)                                                                                          \
    X(gs_prefill_router)                                                                                     \
    X(gs_prefill_sort)                                                                                       \
    X(gs_prefill_gate_up)                                                                                    \
    X(gs_prefill_down)                                                                                       \
    X(gs_prefill_combine)                                                                                    \
    KERNELS_SM90(X)

#define KERNELS_SM90(X)                                                                                      \
    X(gs_prefill_qkv_sm90)                                                                                   \
    X(gs_prefill_o_sm90)                                                                                     \
    X(gs_prefill_gate_up_sm90)                                                                               \
    X(gs_prefill_down_sm90)                                                                                  \
    X(gs_prefill_attention_sm90)                                                                             \
    X(gs_prefill_router_wide)

#define DECLARE(name) extern "C" __global__ void name(const __grid_constant__ struct gs_gpu_args);
KERNELS(DECLARE)

static const struct {
    const char *name;
    const void *function;
} kernels[] = {
#define ENTRY(name) {#name, (const void *)name},
    KERNELS(ENTRY)};

typedef void plan_fn(const struct gs_gpu_args *, const struct gs_gpu_machine *, enum gs_gpu_stage,
                     struct gs_gpu_plan *);

static void plan_mma(const struct gs_gpu_args *args, const struct gs_gpu_machine *machine,
                     enum gs_gpu_stage stage, struct gs_gpu_plan *out)
{
    (void)machine;
    out->count = 0;
    gs_prefill_plan_mma(args, stage, out);
}

static void plan_sm90(const struct gs_gpu_args *args, const struct gs_gpu_machine *machine,
                      enum gs_gpu_stage stage, struct gs_gpu_plan *out)
{
    out->count = 0;
    gs_prefill_plan_sm90(args, machine, stage, out);
}

static const enum gs_gpu_stage layer_stages[] = {GS_GPU_ATTENTION_IN, GS_GPU_ATTENTION, GS_GPU_ATTENTION_OUT,
                                                 GS_GPU_MOE_IN, GS_GPU_MOE_OUT};

/* ---------------------------------------------------------------- random inputs */

static __device__ uint32_t hash(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return (uint32_t)(x ^ (x >> 31));
}

/* nearly normal: the sum of four uniforms */
static __device__ float draw(uint64_t seed, uint64_t i)
{
    uint32_t a = hash(seed * 0x9e3779b97f4a7c15ull + i), b = hash(a + 0x51ull * seed + (i << 20));
    return ((float)(a & 0xffff) + (float)(a >> 16) + (float)(b & 0xffff) + (float)(b >> 16)) / 65535.0f -
           2.0f;
}

static __global__ void fill_f32(float *x, uint64_t n, uint64_t seed, float scale, float mean)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x)
        x[i] = mean + scale * draw(seed, i);
}

static __global__ void fill_bf16(uint16_t *x, uint64_t n, uint64_t seed, float scale)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x)
        x[i] = (uint16_t)(__float_as_uint(scale * draw(seed, i)) >> 16);
}

static __global__ void fill_bytes(uint8_t *x, uint64_t n, uint64_t seed, int base, int range)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x)
        x[i] = (uint8_t)(base + hash(seed * 0x9e3779b97f4a7c15ull + i) % (uint32_t)range);
}

template <class T> static T *allocate(size_t n)
{
    void *p = NULL;
    CHECK(cudaMalloc(&p, n * sizeof(T)));
    CHECK(cudaMemset(p, 0xff, n * sizeof(T)));
    return (T *)p;
}

static uint64_t next_seed = 1;

static float *random_f32(size_t n, float scale, float mean)
{
    float *p = allocate<float>(n);
    fill_f32<<<2048, 256>>>(p, n, next_seed++, scale, mean);
    return p;
}

static struct gs_gpu_matrix random_matrix(int rows, int columns, float scale)
{
    struct gs_gpu_matrix m = {};
    uint16_t *p = allocate<uint16_t>((size_t)rows * columns);
    fill_bf16<<<2048, 256>>>(p, (uint64_t)rows * columns, next_seed++, scale);
    m.data = p;
    m.type = GS_GPU_BF16;
    m.rows = rows;
    m.columns = columns;
    return m;
}

static struct gs_gpu_experts random_experts(int n_expert, int rows, int columns)
{
    struct gs_gpu_experts w = {};
    int stride = (columns / 32 + 15) / 16 * 16;
    size_t n = (size_t)n_expert * rows;
    uint8_t *codes = allocate<uint8_t>(n * columns / 2), *scales = allocate<uint8_t>(n * stride);
    fill_bytes<<<2048, 256>>>(codes, n * columns / 2, next_seed++, 0, 256);
    fill_bytes<<<2048, 256>>>(scales, n * stride, next_seed++, 117, 6);
    w.codes = codes;
    w.scales = scales;
    w.bias = random_f32(n, 0.3f, 0);
    w.rows = rows;
    w.columns = columns;
    w.scale_stride = stride;
    return w;
}

/* ---------------------------------------------------------------- a model without its ends */

struct model {
    struct gs_gpu_args args; /* everything but the layer's own */
    std::vector<struct gs_gpu_layer> layers;
    struct gs_gpu_machine machine;
    float *before; /* [T][d_model]: hidden before a stage */
};

static struct gs_gpu_dims dims_20b(int n_layer, int max_rows, int max_ctx)
{
    struct gs_gpu_dims d = {};
    d.n_layer = n_layer, d.d_model = 2880, d.d_head = 64, d.n_head = 64, d.n_kv_head = 8, d.n_expert = 32;
    d.n_active = 4, d.d_ff = 2880, d.n_vocab = 201088, d.window = 128, d.max_ctx = max_ctx,
    d.max_rows = max_rows;
    d.rms_norm_eps = 1e-5f, d.swiglu_limit = 7.0f, d.swiglu_alpha = 1.702f, d.attention_scale = 0.125f;
    return d;
}

static struct gs_gpu_layer random_layer(const struct gs_gpu_dims &d)
{
    struct gs_gpu_layer w = {};
    int heads = d.n_head * 64, qkv = heads + 2 * d.n_kv_head * 64;
    w.attention_norm = random_f32(d.d_model, 0.3f, 1);
    w.qkv = random_matrix(qkv, d.d_model, 0.04f);
    w.qkv_bias = random_f32(qkv, 0.5f, 0);
    w.sinks = random_f32(d.n_head, 2.0f, 6);
    w.o = random_matrix(d.d_model, heads, 0.02f);
    w.o_bias = random_f32(d.d_model, 0.1f, 0);
    w.mlp_norm = random_f32(d.d_model, 0.3f, 1);
    w.router_columns = random_f32((size_t)d.d_model * d.n_expert, 0.03f, 0);
    w.router_bias = random_f32(d.n_expert, 0.2f, 0);
    w.gate_up = random_experts(d.n_expert, 2 * d.d_ff, d.d_model);
    w.down = random_experts(d.n_expert, d.d_model, d.d_ff);
    w.router.type = GS_GPU_BF16;
    return w;
}

static struct model create_model(const struct gs_gpu_dims &d)
{
    struct model m = {};
    struct gs_gpu_scratch *s = &m.args.s;
    size_t rows = (size_t)d.max_rows, model = (size_t)d.d_model, active = (size_t)d.n_active;
    m.args.dims = d;
    s->rows = allocate<struct gs_gpu_row>(rows);
    s->hidden = allocate<float>(rows * model);
    s->router = allocate<float>(rows * (size_t)d.n_expert);
    s->choice = allocate<int32_t>(rows * active);
    s->choice_weight = allocate<float>(rows * active);
    s->route_first = allocate<int32_t>((size_t)d.n_expert + 1);
    s->routes = allocate<int32_t>(rows * active);
    s->expert_out = allocate<float>(rows * active * model);
    s->prefill = allocate<uint8_t>(gs_prefill_scratch_bytes(&d, &m.machine));
    std::vector<float> rope((size_t)d.max_ctx * 64);
    for (int p = 0; p < d.max_ctx; p++) {
        for (int j = 0; j < 32; j++) {
            float angle = (float)p * (float)pow(150000.0, -j / 32.0);
            rope[(size_t)p * 64 + 2 * j] = 1.3466f * cosf(angle);
            rope[(size_t)p * 64 + 2 * j + 1] = 1.3466f * sinf(angle);
        }
    }
    float *device_rope = allocate<float>(rope.size());
    CHECK(cudaMemcpy(device_rope, rope.data(), rope.size() * 4, cudaMemcpyHostToDevice));
    s->rope = device_rope;
    m.before = allocate<float>(rows * model);
    for (int l = 0; l < d.n_layer; l++)
        m.layers.push_back(random_layer(d));
    int shared = 0;
    CHECK(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    CHECK(cudaDeviceGetAttribute(&m.machine.n_sm, cudaDevAttrMultiProcessorCount, 0));
    m.machine.shared_bytes = shared;
    m.machine.capability = 90;
    return m;
}

/* A timeline's cache: even layers are windows. Earlier positions are random. */
static const struct gs_gpu_kv_layer *create_cache(const struct model &m, int capacity)
{
    const struct gs_gpu_dims &d = m.args.dims;
    std::vector<struct gs_gpu_kv_layer> layers;
    for (int l = 0; l < d.n_layer; l++) {
        struct gs_gpu_kv_layer kv = {};
        kv.n_slot = l % 2 == 0 ? std::min(capacity, d.window + d.max_rows) : capacity;
        size_t n = (size_t)d.n_kv_head * kv.n_slot * 64;
        kv.keys = allocate<uint16_t>(n);
        kv.values = allocate<uint16_t>(n);
        fill_bf16<<<2048, 256>>>((uint16_t *)kv.keys, n, next_seed++, 2.0f);
        fill_bf16<<<2048, 256>>>((uint16_t *)kv.values, n, next_seed++, 1.0f);
        layers.push_back(kv);
    }
    struct gs_gpu_kv_layer *device = allocate<struct gs_gpu_kv_layer>(layers.size());
    CHECK(cudaMemcpy(device, layers.data(), layers.size() * sizeof(layers[0]), cudaMemcpyHostToDevice));
    return device;
}

struct timeline {
    const struct gs_gpu_kv_layer *kv;
    int position, n_rows;
};

static void set_rows(struct model *m, const std::vector<struct timeline> &timelines)
{
    std::vector<struct gs_gpu_row> rows;
    for (const struct timeline &t : timelines) {
        int first = (int)rows.size();
        for (int i = 0; i < t.n_rows; i++) {
            struct gs_gpu_row row = {t.kv, 0, t.position + i, -1, first};
            rows.push_back(row);
        }
    }
    m->args.n_rows = (int)rows.size();
    CHECK(cudaMemcpy(m->args.s.rows, rows.data(), rows.size() * sizeof(rows[0]), cudaMemcpyHostToDevice));
    fill_f32<<<2048, 256>>>(m->args.s.hidden, rows.size() * (uint64_t)m->args.dims.d_model, next_seed++, 1.0f,
                            0);
}

static void set_layer(struct model *m, int layer)
{
    m->args.w = m->layers[(size_t)layer];
    m->args.layer = layer;
    m->args.is_window = layer % 2 == 0;
    m->args.norm = m->layers[((size_t)layer + 1) % m->layers.size()].attention_norm;
}

static int only_tiny;
static unsigned with_overlap; /* 1: programmatic dependent launch */

static void launch(const struct gs_gpu_launch &l, const struct gs_gpu_args &args)
{
    for (const auto &k : kernels) {
        if (strcmp(k.name, l.kernel) != 0)
            continue;
        void *parameters[] = {(void *)&args};
        cudaLaunchAttribute overlap = {};
        overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        overlap.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(l.grid[0], l.grid[1], l.grid[2]);
        config.blockDim = dim3(l.block);
        config.dynamicSmemBytes = l.shared_bytes;
        config.attrs = &overlap;
        config.numAttrs = with_overlap;
        CHECK(cudaLaunchKernelExC(&config, k.function, parameters));
        return;
    }
    fprintf(stderr, "no kernel %s\n", l.kernel);
    exit(3);
}

static void run_stage(const struct model &m, plan_fn *plan, enum gs_gpu_stage stage)
{
    struct gs_gpu_plan p;
    plan(&m.args, &m.machine, stage, &p);
    for (int i = 0; i < p.count; i++)
        launch(p.launches[i], m.args);
}

/* ---------------------------------------------------------------- comparison */

static __device__ float value_of(float x)
{
    return x;
}
static __device__ float value_of(uint16_t x)
{
    return (float)bf16_value(x);
}

template <class T>
static __global__ void add_errors(const T *out, const float *reference, uint64_t n, double *sums)
{
    double error = 0, norm = 0;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x) {
        double d = (double)value_of(out[i]) - reference[i];
        error += d * d;
        norm += (double)reference[i] * reference[i];
    }
    error = warp_total(error);
    norm = warp_total(norm);
    if (threadIdx.x % 32 == 0) {
        atomicAdd(&sums[0], error);
        atomicAdd(&sums[1], norm);
    }
}

static int n_failed, n_passed;
static double worst[32];

template <class T> static double relative_error(const T *out, const float *reference, uint64_t n)
{
    static double *sums = allocate<double>(2);
    double host[2];
    CHECK(cudaMemset(sums, 0, 16));
    add_errors<<<512, 256>>>(out, reference, n, sums);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(host, sums, 16, cudaMemcpyDeviceToHost));
    return sqrt(host[0] / host[1]);
}

/* `must_exceed`: a control, whose error has to be beyond the bar */
static void expect(const char *shape, const char *what, int slot, double error, double bar, int must_exceed)
{
    int good = must_exceed ? error > bar : error <= bar; /* NaN is never good */
    if (!must_exceed && !(error <= worst[slot]))
        worst[slot] = error;
    n_passed += good;
    n_failed += !good;
    if (!good || must_exceed)
        printf("  %-4s %-22s %-24s %.3g (%s %.3g)\n", good ? "ok" : "FAIL", shape, what, error,
               must_exceed ? "control, must exceed" : "bar", bar);
}

static void expect_true(const char *shape, const char *what, int good)
{
    n_passed += good != 0;
    n_failed += good == 0;
    if (!good)
        printf("  FAIL %-22s %s\n", shape, what);
}

template <class T> static std::vector<T> to_host(const T *device, size_t n)
{
    std::vector<T> host(n);
    CHECK(cudaMemcpy(host.data(), device, n * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
}

/* queries of [n_rows][q|k|v] against what the stage wrote; the rest against the cache */
static __global__ void split_qkv(const float *qkv, int n_rows, int q_width, int kv_width, float *q, float *kv)
{
    for (int i = threadIdx.x; i < q_width + kv_width; i += blockDim.x) {
        float x = qkv[(int64_t)blockIdx.x * (q_width + kv_width) + i];
        if (i < q_width)
            q[(int64_t)blockIdx.x * q_width + i] = x;
        else
            kv[(int64_t)blockIdx.x * kv_width + i - q_width] = x;
    }
}

static __global__ void add_to(float *x, const float *y, uint64_t n)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x)
        x[i] += y[i];
}

static float *reference_a, *reference_b, *reference_c; /* [max_rows][the widest] each */

static unsigned warps(uint64_t n)
{
    return (unsigned)((n * 32 + 255) / 256);
}

static void check_attention(struct model *m, plan_fn *plan, const char *shape, int controls)
{
    const struct gs_gpu_args &a = m->args;
    const struct gs_gpu_dims &d = a.dims;
    struct gs_prefill_parts parts = gs_prefill_carve(&d, a.s.prefill);
    uint64_t rows = (uint64_t)a.n_rows, q_width = (uint64_t)d.n_head * 64,
             kv_width = (uint64_t)d.n_kv_head * 128;

    gs_prefill_norm<<<(a.n_rows + 7) / 8, 256>>>(a); /* of a layer but the first it is the layer's before */
    run_stage(*m, plan, GS_GPU_ATTENTION_IN);
    reference_norm<<<a.n_rows, 32>>>(a, a.w.attention_norm, 0, reference_a);
    expect(shape, "norm", 0, relative_error(parts.normed, reference_a, rows * d.d_model), 3e-3, 0);
    reference_dense<<<warps(rows * a.w.qkv.rows), 256>>>(parts.normed, a.w.qkv, a.w.qkv_bias, a.n_rows,
                                                         reference_a);
    reference_rope<<<a.n_rows, 256>>>(a, reference_a);
    split_qkv<<<a.n_rows, 256>>>(reference_a, a.n_rows, (int)q_width, (int)kv_width, reference_b,
                                 reference_c);
    expect(shape, "queries", 1, relative_error(parts.queries, reference_b, rows * q_width), 3e-3, 0);
    gather_cache<<<a.n_rows, 256>>>(a, reference_a);
    expect(shape, "keys and values", 2, relative_error(reference_a, reference_c, rows * kv_width), 3e-3, 0);

    run_stage(*m, plan, GS_GPU_ATTENTION);
    int window = a.is_window ? d.window : 1 << 30;
    reference_attention<<<dim3(a.n_rows, d.n_head), 32>>>(a, parts.queries, window, 1, reference_a);
    expect(shape, "attention", 3, relative_error(parts.attended, reference_a, rows * q_width), 4e-3, 0);
    if (controls) {
        reference_attention<<<dim3(a.n_rows, d.n_head), 32>>>(a, parts.queries, window, 0, reference_a);
        expect(shape, "sinks removed", 3, relative_error(parts.attended, reference_a, rows * q_width), 4e-3,
               1);
        if (a.is_window) {
            reference_attention<<<dim3(a.n_rows, d.n_head), 32>>>(a, parts.queries, window - 1, 1,
                                                                  reference_a);
            expect(shape, "window less one", 3, relative_error(parts.attended, reference_a, rows * q_width),
                   4e-3, 1);
        }
    }
    CHECK(cudaMemcpy(m->before, a.s.hidden, rows * d.d_model * 4, cudaMemcpyDeviceToDevice));
    run_stage(*m, plan, GS_GPU_ATTENTION_OUT);
    reference_dense<<<warps(rows * d.d_model), 256>>>(parts.attended, a.w.o, a.w.o_bias, a.n_rows,
                                                      reference_a);
    add_to<<<512, 256>>>(reference_a, m->before, rows * (uint64_t)d.d_model);
    expect(shape, "o and residual", 4, relative_error(a.s.hidden, reference_a, rows * d.d_model), 1e-5, 0);
}

/* choice, weights and the sort, from the kernels' own logits */
static void check_routes(const struct model &m, const char *shape)
{
    const struct gs_gpu_args &a = m.args;
    size_t rows = (size_t)a.n_rows, n_expert = (size_t)a.dims.n_expert, n_active = (size_t)a.dims.n_active;
    auto logits = to_host(a.s.router, rows * n_expert);
    auto choice = to_host(a.s.choice, rows * n_active), routes = to_host(a.s.routes, rows * n_active);
    auto weight = to_host(a.s.choice_weight, rows * n_active);
    auto first = to_host(a.s.route_first, n_expert + 1);
    std::vector<std::vector<int32_t>> wanted(n_expert);
    int choice_good = 1, sort_good = 1;
    double error = 0;
    for (size_t r = 0; r < rows; r++) {
        std::vector<int> order(n_expert);
        for (size_t e = 0; e < n_expert; e++)
            order[e] = (int)e;
        const float *l = &logits[r * n_expert];
        std::stable_sort(order.begin(), order.end(), [l](int x, int y) { return l[x] > l[y]; });
        double sum = 0;
        for (size_t k = 0; k < n_active; k++)
            sum += exp((double)l[order[k]] - l[order[0]]);
        for (size_t k = 0; k < n_active; k++) {
            choice_good = choice_good && choice[r * n_active + k] == order[k];
            double w = exp((double)l[order[k]] - l[order[0]]) / sum, e = fabs(weight[r * n_active + k] - w);
            error = e <= error ? error : e;
            wanted[(size_t)order[k]].push_back((int32_t)(r * n_active + k));
        }
    }
    int32_t place = 0;
    for (size_t e = 0; e < n_expert; e++) {
        sort_good = sort_good && first[e] == place;
        for (int32_t route : wanted[e])
            sort_good = sort_good && routes[(size_t)place++] == route;
    }
    sort_good = sort_good && first[n_expert] == place;
    expect_true(shape, "choice", choice_good);
    expect_true(shape, "routes sorted", sort_good);
    expect(shape, "choice weight", 5, error, 1e-6, 0);
}

static void check_experts(struct model *m, plan_fn *plan, const char *shape)
{
    const struct gs_gpu_args &a = m->args;
    const struct gs_gpu_dims &d = a.dims;
    struct gs_prefill_parts parts = gs_prefill_carve(&d, a.s.prefill);
    uint64_t rows = (uint64_t)a.n_rows, routes = rows * (uint64_t)d.n_active;

    run_stage(*m, plan, GS_GPU_MOE_IN);
    reference_norm<<<a.n_rows, 32>>>(a, a.w.mlp_norm, 1, reference_a);
    expect(shape, "norm, permuted", 6, relative_error(parts.normed, reference_a, rows * d.d_model), 3e-3, 0);
    reference_router<<<dim3(a.n_rows, d.n_expert), 32>>>(a, reference_a);
    expect(shape, "router", 7, relative_error(a.s.router, reference_a, rows * d.n_expert), 1e-5, 0);
    check_routes(*m, shape);
    reference_gate_up<<<(unsigned)routes, 256>>>(a, parts.normed, reference_a);
    expect(shape, "gate/up", 8, relative_error(parts.activated, reference_a, routes * d.d_ff), 3e-3, 0);
    CHECK(cudaMemcpy(m->before, a.s.hidden, rows * d.d_model * 4, cudaMemcpyDeviceToDevice));
    run_stage(*m, plan, GS_GPU_MOE_OUT);
    reference_down<<<(unsigned)routes, 256>>>(a, parts.activated, reference_a);
    expect(shape, "down", 9, relative_error(a.s.expert_out, reference_a, routes * d.d_model), 2e-5, 0);
    reference_combine<<<a.n_rows, 256>>>(a, m->before, reference_a);
    expect(shape, "combine", 10, relative_error(a.s.hidden, reference_a, rows * d.d_model), 1e-6, 0);
    reference_norm<<<a.n_rows, 32>>>(a, a.norm, 0, reference_a);
    expect(shape, "next norm", 0, relative_error(parts.normed, reference_a, rows * d.d_model), 3e-3, 0);
}

static void poison(const struct model &m)
{
    const struct gs_gpu_dims &d = m.args.dims;
    size_t rows = (size_t)d.max_rows, active = rows * (size_t)d.n_active;
    CHECK(cudaMemset(m.args.s.prefill, 0xff, gs_prefill_scratch_bytes(&d, &m.machine)));
    CHECK(cudaMemset(m.args.s.router, 0xff, rows * (size_t)d.n_expert * 4));
    CHECK(cudaMemset(m.args.s.choice, 0xff, active * 4));
    CHECK(cudaMemset(m.args.s.choice_weight, 0xff, active * 4));
    CHECK(cudaMemset(m.args.s.routes, 0xff, active * 4));
    CHECK(cudaMemset(m.args.s.expert_out, 0xff, active * (size_t)d.d_model * 4));
}

/* Crowds most routes into one expert and leaves some without any. */
static void skew_router(const struct gs_gpu_layer &w, int n_expert, int on)
{
    std::vector<float> bias((size_t)n_expert);
    for (int e = 0; e < n_expert; e++)
        bias[(size_t)e] = on && e % 5 == 3 ? -100.0f : on && e == 7 ? 100.0f : 0.1f * (float)(e % 3);
    CHECK(cudaMemcpy((void *)w.router_bias, bias.data(), bias.size() * 4, cudaMemcpyHostToDevice));
}

static std::vector<float> run_layer(struct model *m, plan_fn *plan, const std::vector<struct timeline> &shape,
                                    const std::vector<float> &inputs, size_t first)
{
    size_t n = (size_t)m->args.dims.d_model;
    poison(*m);
    set_rows(m, shape);
    CHECK(cudaMemcpy(m->args.s.hidden + first * n, inputs.data(), inputs.size() * 4, cudaMemcpyHostToDevice));
    gs_prefill_norm<<<(m->args.n_rows + 7) / 8, 256>>>(m->args);
    for (enum gs_gpu_stage stage : layer_stages)
        run_stage(*m, plan, stage);
    return to_host(m->args.s.hidden + first * n, inputs.size());
}

/* The same rows alone, once more, and behind other rows: the same bits. */
static void check_bits(struct model *m, plan_fn *plan, const struct gs_gpu_kv_layer *mine,
                       const struct gs_gpu_kv_layer *other)
{
    struct timeline rows = {mine, 1000, 50}, others = {other, 200, 43};
    std::vector<float> inputs(50 * (size_t)m->args.dims.d_model);
    for (size_t i = 0; i < inputs.size(); i++)
        inputs[i] = sinf((float)i * 0.7f) + cosf((float)i * 0.13f);
    for (int layer = 0; layer < 2; layer++) {
        set_layer(m, layer);
        skew_router(m->args.w, m->args.dims.n_expert, 0);
        auto alone = run_layer(m, plan, {rows}, inputs, 0), again = run_layer(m, plan, {rows}, inputs, 0);
        auto beside = run_layer(m, plan, {others, rows}, inputs, 43);
        expect_true("50 rows", "the same bits again", !memcmp(alone.data(), again.data(), alone.size() * 4));
        expect_true("50 rows", "the same bits beside others",
                    !memcmp(alone.data(), beside.data(), alone.size() * 4));
        expect_true("50 rows", "inputs changed", memcmp(alone.data(), inputs.data(), alone.size() * 4));
    }
}

static void check_model(struct gs_gpu_dims d, plan_fn *plan, const char *name)
{
    struct model m = create_model(d);
    const struct gs_gpu_kv_layer *cache[3];
    for (auto &c : cache)
        c = create_cache(m, 4096);
    size_t widest = (size_t)d.max_rows *
                    (size_t)std::max(std::max(d.n_head * 64 + d.n_kv_head * 128, d.n_active * d.d_ff),
                                     d.n_active * d.d_model);
    reference_a = allocate<float>(widest);
    reference_b = allocate<float>(widest);
    reference_c = allocate<float>(widest);
    const std::vector<std::vector<struct timeline>> shapes = {
        {{cache[0], 0, 1}},
        {{cache[0], 1, 7}},
        {{cache[0], 8, 127}},
        {{cache[0], 100, 128}},
        {{cache[0], 300, 129}},
        {{cache[1], 0, 1000}},
        {{cache[1], 1000, 50}, {cache[2], 0, 3}, {cache[0], 429, 100}},
        {{cache[2], 37, d.max_rows}},
    };
    for (double &w : worst)
        w = 0;
    printf("%s\n", name);
    for (const auto &shape : shapes) {
        int total = 0;
        for (const auto &t : shape)
            total += t.n_rows;
        if (total > d.max_rows || (only_tiny && total != 129))
            continue;
        for (int layer = 0; layer < 2; layer++) {
            char label[64];
            snprintf(label, sizeof label, "%d rows, layer %d", total, layer);
            set_layer(&m, layer);
            skew_router(m.args.w, d.n_expert, layer == 1);
            poison(m);
            set_rows(&m, shape);
            check_attention(&m, plan, label, total == 129);
            check_experts(&m, plan, label);
            CHECK(cudaDeviceSynchronize());
        }
    }
    if (!only_tiny)
        check_bits(&m, plan, cache[0], cache[1]);
    const char *names[] = {"norm",  "queries", "kv",      "attention", "o",      "weight",
                           "norm2", "router",  "gate_up", "down",      "combine"};
    printf("  worst:");
    for (int i = 0; i < 11; i++)
        printf(" %s %.2g", names[i], worst[i]);
    printf("\n");
}

/* ---------------------------------------------------------------- time */

/* FLOP of a launch at the 20b's shapes; 0: not a product */
static double flop_of(const char *kernel, const struct gs_gpu_args &a)
{
    double rows = a.n_rows, d = a.dims.d_model, ff = a.dims.d_ff, routes = rows * a.dims.n_active;
    double heads = a.dims.n_head * 64.0;
    if (strstr(kernel, "qkv"))
        return 2 * rows * d * a.w.qkv.rows;
    if (strstr(kernel, "prefill_o"))
        return 2 * rows * d * heads;
    if (strstr(kernel, "gate_up"))
        return 4 * routes * d * ff;
    if (strstr(kernel, "down"))
        return 2 * routes * d * ff;
    if (strstr(kernel, "attention"))
        return a.is_window ? 4 * rows * heads * 128 : 2 * rows * heads * rows;
    return 0;
}

static float run_layers(struct model *m, plan_fn *plan, cudaEvent_t begin, cudaEvent_t end)
{
    float ms = 0;
    CHECK(cudaEventRecord(begin));
    for (int layer = 0; layer < m->args.dims.n_layer; layer++) {
        set_layer(m, layer);
        for (enum gs_gpu_stage stage : layer_stages)
            run_stage(*m, plan, stage);
    }
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    return ms;
}

/* Each launch of a layer alone, median of 7, layers in turn so that weights are cold. */
static void time_kernels(struct model *m, plan_fn *plan, cudaEvent_t begin, cudaEvent_t end)
{
    for (enum gs_gpu_stage stage : layer_stages) {
        for (int kind = 0; kind < (stage == GS_GPU_ATTENTION ? 2 : 1); kind++) {
            struct gs_gpu_plan p;
            set_layer(m, kind);
            plan(&m->args, &m->machine, stage, &p);
            for (int i = 0; i < p.count; i++) {
                std::vector<float> times;
                for (int r = 0; r < 7; r++) {
                    float ms;
                    set_layer(m, kind + 2 * (r % (m->args.dims.n_layer / 2)));
                    CHECK(cudaEventRecord(begin));
                    launch(p.launches[i], m->args);
                    CHECK(cudaEventRecord(end));
                    CHECK(cudaEventSynchronize(end));
                    CHECK(cudaEventElapsedTime(&ms, begin, end));
                    times.push_back(ms);
                }
                std::sort(times.begin(), times.end());
                printf("  %-28s%s %8.1f us", p.launches[i].kernel + 11,
                       stage == GS_GPU_ATTENTION ? kind ? " full  " : " window" : "       ", times[3] * 1e3);
                double flop = flop_of(p.launches[i].kernel, m->args);
                if (flop > 0)
                    printf(" %6.1f TFLOP/s", flop / times[3] * 1e-9);
                printf("\n");
            }
        }
    }
}

static void time_model(struct model *m, plan_fn *plan, const char *name, int n_rows, int detail)
{
    cudaEvent_t begin, end;
    std::vector<float> times;
    const struct gs_gpu_kv_layer *kv = NULL;
    static const struct gs_gpu_kv_layer *cache = create_cache(*m, m->args.dims.max_ctx);
    kv = cache;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    for (int r = 0; r < 6; r++) {
        set_rows(m, {{kv, 0, n_rows}});
        float ms = run_layers(m, plan, begin, end);
        if (r > 0)
            times.push_back(ms);
    }
    std::sort(times.begin(), times.end());
    printf("%s, %d rows: %.2f ms (%.2f ... %.2f) for %d layers = %.0f tokens/s\n", name, n_rows, times[2],
           times[0], times[4], m->args.dims.n_layer, n_rows / times[2] * 1e3);
    if (detail)
        time_kernels(m, plan, begin, end);
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
}

int main(int argc, char **argv)
{
    int check = 0, only_small = 0, timing = 0, mma = 0, sm90 = 0;
    for (int i = 1; i < argc; i++) {
        check |= !strcmp(argv[i], "check");
        only_tiny |= !strcmp(argv[i], "tiny");
        only_small |= only_tiny || !strcmp(argv[i], "small");
        timing |= !strcmp(argv[i], "time");
        mma |= !strcmp(argv[i], "mma");
        sm90 |= !strcmp(argv[i], "sm90");
        with_overlap |= !strcmp(argv[i], "overlap");
    }
    if (!check && !timing)
        check = timing = 1;
    if (!mma && !sm90)
        mma = sm90 = 1;
    for (const auto &k : kernels) {
        cudaFuncAttributes attributes;
        CHECK(cudaFuncGetAttributes(&attributes, k.function));
        CHECK(cudaFuncSetAttribute(k.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   227 * 1024 - (int)attributes.sharedSizeBytes));
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (check) {
        struct gs_gpu_dims small = dims_20b(2, 300, 4096);
        small.d_model = 192, small.d_ff = 256, small.n_head = 16, small.n_kv_head = 2, small.n_expert = 8;
        struct gs_gpu_dims many = small;
        many.n_expert = 128, many.d_model = 320;
        if (mma) {
            check_model(small, plan_mma, "mma, demo's shape");
            if (!only_tiny)
                check_model(many, plan_mma, "mma, 128 experts");
            if (!only_small)
                check_model(dims_20b(2, 2048, 4096), plan_mma, "mma, 20b's shape");
        }
        if (sm90) {
            check_model(small, plan_sm90, "sm90, demo's shape");
            if (!only_tiny)
                check_model(many, plan_sm90, "sm90, 128 experts");
            if (!only_small)
                check_model(dims_20b(2, 2048, 4096), plan_sm90, "sm90, 20b's shape");
        }
        printf("%d passed, %d failed\n", n_passed, n_failed);
    }
    if (timing) {
        struct model m = create_model(dims_20b(24, 8192, 8192));
        for (int rows : {512, 1024, 2048, 8192}) {
            if (mma)
                time_model(&m, plan_mma, "mma", rows, rows == 2048);
            if (sm90)
                time_model(&m, plan_sm90, "sm90", rows, rows != 1024);
        }
        CHECK(cudaDeviceSynchronize());
    }
    return n_failed > 0;
}
