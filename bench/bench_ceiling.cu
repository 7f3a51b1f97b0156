/*
 * Is there a small-matrix ceiling, or is it made by how the work is submitted? The same kernels over the same
 * weights, cut and submitted in the ways that docs/campaign.md's 2 x 2 asks for, and what must be slow if the
 * way of submitting is the cause. Then one expert's products by themselves.
 *
 *   bench_ceiling [20b|120b] [--json FILE] [--runs N]
 *
 * Every figure: median of N runs (least ... most), bytes a second, share of the streaming read measured
 * first. A program of its own that links the CUDA runtime; see bench/campaign/cuda.sh for how it is built.
 */
#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_ceiling.cuh"

#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        cudaError_t status_ = (call);                                                                        \
        if (status_ != cudaSuccess) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status_));                 \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static const int d_model = 2880, d_ff = 2880, n_qkv = 5120, n_attended = 4096, n_vocab = 201088;
static const int expert_chunks = 15; /* 2880 / 192 */
static const int gate_up_strips = 360, down_strips = 180;
static const int64_t gate_up_bytes = (int64_t)gate_up_strips * expert_chunks * CEILING_EXPERT;
static const int64_t down_bytes = (int64_t)down_strips * expert_chunks * CEILING_EXPERT;
static const int slice_chunks =
    12; /* of the dense control: a strip of 768 columns has an expert strip's bytes */

/* ---------------------------------------------------------------- random weights */

__device__ static uint32_t mix32(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(x ^ x >> 31);
}

/* bfloat16 of magnitude 2^-6 ... 2^-5. */
__global__ static void fill_dense(uint32_t *to, int64_t n, uint64_t seed)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        to[i] = (mix32(seed + (uint64_t)i) & 0x807f807fu) | 0x3c803c80u;
}

/* Chunks of any codes and scales of 2^-9 ... 2^-6. */
__global__ static void fill_experts(uint32_t *to, int64_t n, uint64_t seed)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        uint32_t bits = mix32(seed + (uint64_t)i);
        to[i] = i % (CEILING_EXPERT / 4) < 384 ? bits : (bits & 0x03030303u) + 0x76767676u;
    }
}

__global__ static void fill_float(float *to, int64_t n, float center, float spread, uint64_t seed)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        to[i] = center + spread * ((float)(mix32(seed + (uint64_t)i) >> 8) * 0x1p-23f - 1.0f);
}

static uint64_t seed = 7;

static void *device_bytes(int64_t bytes)
{
    void *at;
    CHECK(cudaMalloc(&at, (size_t)bytes));
    return at;
}

static uint8_t *random_dense(int64_t bytes)
{
    uint32_t *to = (uint32_t *)device_bytes(bytes);
    fill_dense<<<1024, 256>>>(to, bytes / 4, seed += (uint64_t)bytes);
    return (uint8_t *)to;
}

static uint8_t *random_experts(int64_t bytes)
{
    uint32_t *to = (uint32_t *)device_bytes(bytes);
    fill_experts<<<1024, 256>>>(to, bytes / 4, seed += (uint64_t)bytes);
    return (uint8_t *)to;
}

static float *random_floats(int64_t n, float center, float spread)
{
    float *to = (float *)device_bytes(n * 4);
    fill_float<<<64, 256>>>(to, n, center, spread, seed += (uint64_t)n);
    return to;
}

/* ---------------------------------------------------------------- the model */

struct layer {
    uint8_t *qkv, *o, *gate_up, *down;
    float *gate_up_bias, *down_bias;
    int32_t *choice;
    float *choice_weight;
};

struct model {
    const char *name;
    int n_layer, n_expert, n_sm;
    std::vector<struct layer> layers;
    uint8_t *head, *dense; /* dense: the control's matrix, the bytes of a token and more */
    float *norm;
    float *start, *before, *middle, *qkv, *partial[2], *logits, *scrap; /* pairs but start, logits */
    uint8_t *attended, *activated;
    cudaStream_t stream;
    cudaEvent_t done; /* whoever waits for it sleeps */
};

static int64_t token_bytes(const struct model *m)
{
    int64_t layer = (int64_t)(n_qkv + n_attended) * d_model * 2 + 4 * (gate_up_bytes + down_bytes);
    return m->n_layer * layer + (int64_t)n_vocab * d_model * 2;
}

static struct layer make_layer(const struct model *m, uint64_t at)
{
    struct layer l;
    int32_t choice[CEILING_MAX];
    float weight[CEILING_MAX] = {0.4f, 0.3f, 0.2f, 0.1f};
    l.qkv = random_dense((int64_t)n_qkv * d_model * 2);
    l.o = random_dense((int64_t)d_model * n_attended * 2);
    l.gate_up = random_experts(m->n_expert * gate_up_bytes);
    l.down = random_experts(m->n_expert * down_bytes);
    l.gate_up_bias = random_floats((int64_t)m->n_expert * 2 * d_ff, 0.0f, 0.1f);
    l.down_bias = random_floats((int64_t)m->n_expert * d_model, 0.0f, 0.1f);
    int step = m->n_expert / CEILING_MAX;
    for (int i = 0; i < CEILING_MAX; i++) /* distinct, ascending */
        choice[i] = i * step + (int)((at * 2654435761u + (uint64_t)i * 40503u) >> 7) % step;
    l.choice = (int32_t *)device_bytes(sizeof choice);
    l.choice_weight = (float *)device_bytes(sizeof weight);
    CHECK(cudaMemcpy(l.choice, choice, sizeof choice, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(l.choice_weight, weight, sizeof weight, cudaMemcpyHostToDevice));
    return l;
}

static float *make_pair(int n)
{
    float *pair = (float *)device_bytes(2 * 4 * (int64_t)n);
    CHECK(cudaMemset(pair, 0, 2 * 4 * (size_t)n));
    return pair;
}

static void make_model(struct model *m)
{
    CHECK(cudaDeviceGetAttribute(&m->n_sm, cudaDevAttrMultiProcessorCount, 0));
    CHECK(cudaStreamCreate(&m->stream));
    CHECK(cudaEventCreateWithFlags(&m->done, cudaEventBlockingSync | cudaEventDisableTiming));
    for (int i = 0; i < m->n_layer; i++)
        m->layers.push_back(make_layer(m, (uint64_t)i + 1));
    m->head = random_dense((int64_t)n_vocab * d_model * 2);
    m->dense = random_dense(token_bytes(m) + (int64_t)m->n_layer * (1 << 20));
    m->norm = random_floats(d_model, 1.0f, 0.1f);
    m->start = make_pair(d_model);
    fill_float<<<64, 256>>>(m->start, d_model, 0.0f, 2.0f, 5);
    m->before = make_pair(d_model), m->middle = make_pair(d_model), m->qkv = make_pair(n_qkv);
    m->partial[0] = make_pair(d_model), m->partial[1] = make_pair(d_model);
    m->scrap = make_pair(1 << 16);
    m->logits = (float *)device_bytes(4 * (int64_t)n_vocab);
    m->attended = (uint8_t *)device_bytes(6 * (int64_t)n_attended);
    m->activated = (uint8_t *)device_bytes(CEILING_MAX * 6 * (int64_t)d_ff);
    CHECK(cudaMemset(m->activated, 0, CEILING_MAX * 6 * (size_t)d_ff));
    CHECK(cudaDeviceSynchronize());
}

/* ---------------------------------------------------------------- launches */

/* Counted while a token is put together. */
static int n_launch, n_wait;

template <class Args>
static void launch(const struct model *m, void (*kernel)(Args), const Args &args, int blocks, uint32_t shared,
                   bool dependent)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute;
    config.gridDim = dim3((unsigned)blocks), config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = shared, config.stream = m->stream;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute, config.numAttrs = dependent ? 1 : 0;
    void *parameters[] = {(void *)&args};
    CHECK(cudaLaunchKernelExC(&config, (const void *)kernel, parameters));
    n_launch++;
}

template <class Kernel> static void allow(Kernel *kernel, uint32_t shared)
{
    CHECK(
        cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    CHECK(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
}

/* At least so much for the output projection that an SM takes one of its blocks (decode_launch.h). */
static const uint32_t dense_shared = GS_DECODE_ALONE;

static uint32_t gate_up_shared(void)
{
    return ceiling_shared_bytes(CEILING_EXPERT, d_model);
}

static uint32_t down_shared(int n)
{
    return ceiling_shared_bytes(CEILING_EXPERT, n * d_ff);
}

static void launch_qkv(const struct model *m, int layer, bool dependent)
{
    struct ceiling_dense_args a = {};
    a.weights = m->layers[(size_t)layer].qkv, a.n_strip = n_qkv / 16, a.n_chunk = d_model / 64;
    a.in = layer == 0 ? m->start : m->before, a.norm = m->norm, a.n_in = d_model, a.out = m->qkv;
    launch(m, ceiling_dense, a, m->n_sm, ceiling_shared_bytes(CEILING_DENSE, d_model), dependent);
}

static void launch_attend(const struct model *m, bool dependent)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute;
    config.gridDim = dim3(8), config.blockDim = dim3(256), config.stream = m->stream;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute, config.numAttrs = dependent ? 1 : 0;
    CHECK(cudaLaunchKernelEx(&config, ceiling_attend, (const float *)m->qkv, n_qkv, (uint32_t *)m->attended,
                             n_attended));
    n_launch++;
}

static void launch_o(const struct model *m, int layer, bool dependent)
{
    struct ceiling_dense_args a = {};
    a.weights = m->layers[(size_t)layer].o, a.n_strip = d_model / 16, a.n_chunk = n_attended / 64;
    a.split = m->attended, a.n_in = n_attended, a.before = layer == 0 ? m->start : m->before,
    a.out = m->middle;
    launch(m, ceiling_dense, a, m->n_sm, dense_shared, dependent);
}

static struct ceiling_expert_args expert_args(const struct model *m, int layer, int first)
{
    const struct layer *l = &m->layers[(size_t)layer];
    struct ceiling_expert_args a = {};
    a.choice = l->choice, a.choice_weight = l->choice_weight, a.first = first, a.n_chunk = expert_chunks;
    a.in = m->middle, a.norm = m->norm, a.activated = m->activated, a.d_model = d_model, a.d_ff = d_ff;
    return a;
}

template <int N, enum ceiling_loads LOADS>
static void launch_gate_up(const struct model *m, int layer, int first, bool dependent)
{
    struct ceiling_expert_args a = expert_args(m, layer, first);
    a.weights = m->layers[(size_t)layer].gate_up, a.bias = m->layers[(size_t)layer].gate_up_bias;
    a.n_strip = gate_up_strips;
    launch(m, ceiling_gate_up<N, LOADS>, a, m->n_sm, gate_up_shared(), dependent);
}

template <int N, enum ceiling_loads LOADS>
static void launch_down(const struct model *m, int layer, int first, const float *before, float *out,
                        bool dependent)
{
    struct ceiling_expert_args a = expert_args(m, layer, first);
    a.weights = m->layers[(size_t)layer].down, a.bias = m->layers[(size_t)layer].down_bias;
    a.n_strip = down_strips, a.before = before, a.out = out;
    launch(m, ceiling_down<N, LOADS>, a, m->n_sm, down_shared(N), dependent);
}

template <enum ceiling_loads LOADS> static void allow_experts(void)
{
    allow(ceiling_gate_up<1, LOADS>, gate_up_shared());
    allow(ceiling_gate_up<4, LOADS>, gate_up_shared());
    allow(ceiling_down<1, LOADS>, down_shared(1));
    allow(ceiling_down<4, LOADS>, down_shared(4));
}

static void launch_head(const struct model *m, bool dependent)
{
    struct ceiling_dense_args a = {};
    a.weights = m->head, a.n_strip = n_vocab / 16, a.n_chunk = d_model / 64;
    a.in = m->before, a.norm = m->norm, a.n_in = d_model, a.flat = m->logits;
    launch(m, ceiling_dense, a, m->n_sm, ceiling_shared_bytes(CEILING_DENSE, d_model), dependent);
}

/* ---------------------------------------------------------------- a token in each way */

struct way {
    bool grid;      /* the four experts as rows of one grid; else one after another, each as two launches */
    bool waits;     /* the host waits for each submission */
    bool dependent; /* programmatic dependent launch, in a captured graph */
    bool asleep;    /* it sleeps meanwhile; else it looks again and again */
};

static void end_submission(const struct model *m, const struct way *way)
{
    if (!way->waits)
        return;
    if (way->asleep) {
        CHECK(cudaEventRecord(m->done, m->stream));
        CHECK(cudaEventSynchronize(m->done));
    } else {
        CHECK(cudaStreamSynchronize(m->stream));
    }
    n_wait++;
}

static void put_experts(const struct model *m, int layer, const struct way *way)
{
    if (way->grid) {
        launch_gate_up<4, CEILING_RINGS>(m, layer, 0, way->dependent);
        launch_down<4, CEILING_RINGS>(m, layer, 0, m->middle, m->before, way->dependent);
        return;
    }
    const float *from[4] = {m->middle, m->partial[0], m->partial[1], m->partial[0]};
    float *to[4] = {m->partial[0], m->partial[1], m->partial[0], m->before};
    for (int i = 0; i < 4; i++) {
        launch_gate_up<1, CEILING_RINGS>(m, layer, i, way->dependent);
        launch_down<1, CEILING_RINGS>(m, layer, i, from[i], to[i], way->dependent);
    }
}

/* 2 submissions a layer and one for the head. */
static void put_token(const struct model *m, const struct way *way)
{
    for (int layer = 0; layer < m->n_layer; layer++) {
        launch_qkv(m, layer, way->dependent && layer > 0);
        launch_attend(m, way->dependent);
        launch_o(m, layer, way->dependent);
        end_submission(m, way);
        put_experts(m, layer, way);
        end_submission(m, way);
    }
    launch_head(m, way->dependent);
    end_submission(m, way);
}

/* The dense control: strips [*at, *at + n) of one matrix of 768 columns. */
static void launch_slice(const struct model *m, int64_t *at, int64_t bytes, bool dependent)
{
    struct ceiling_dense_args a = {};
    int64_t strip = slice_chunks * CEILING_DENSE, n = (bytes + strip / 2) / strip;
    a.weights = m->dense + *at * strip, a.n_strip = (int32_t)n, a.n_chunk = slice_chunks;
    a.in = m->start, a.norm = m->norm, a.n_in = slice_chunks * 64;
    if (n > 2 * 16 * m->n_sm)
        a.flat = m->scrap; /* rows beyond it are written over: see put_dense */
    else
        a.out = m->scrap;
    *at += n;
    launch(m, ceiling_dense, a, m->n_sm, ceiling_shared_bytes(CEILING_DENSE, d_model), dependent);
}

/* One dense matrix with a token's bytes in the shape of `way`: as many launches of as many bytes, as many
 * waits. */
static void put_dense(const struct model *m, const struct way *way)
{
    int64_t at = 0;
    for (int layer = 0; layer < m->n_layer; layer++) {
        launch_slice(m, &at, (int64_t)n_qkv * d_model * 2, way->dependent);
        launch_attend(m, way->dependent);
        launch_slice(m, &at, (int64_t)n_attended * d_model * 2, way->dependent);
        end_submission(m, way);
        for (int i = 0; i < (way->grid ? 1 : 4); i++) {
            launch_slice(m, &at, gate_up_bytes * (way->grid ? 4 : 1), way->dependent);
            launch_slice(m, &at, down_bytes * (way->grid ? 4 : 1), way->dependent);
        }
        end_submission(m, way);
    }
    launch_head(m, way->dependent); /* it is a dense matrix already */
    end_submission(m, way);
}

/* The same launches and waits with nothing in them. */
static void put_empty(const struct model *m, const struct way *way)
{
    for (int layer = 0; layer < m->n_layer; layer++) {
        for (int i = 0; i < 3; i++)
            launch(m, ceiling_empty, 0, m->n_sm, 0, way->dependent);
        end_submission(m, way);
        for (int i = 0; i < (way->grid ? 2 : 8); i++)
            launch(m, ceiling_empty, 0, m->n_sm, 0, way->dependent);
        end_submission(m, way);
    }
    launch(m, ceiling_empty, 0, m->n_sm, 0, way->dependent);
    end_submission(m, way);
}

/* ---------------------------------------------------------------- timing */

struct figure {
    std::string name;
    double median, least, most; /* seconds */
    double bytes;
    double launches, waits; /* a token or a run; -1: it is not asked */
    bool is_token;
};

static std::vector<struct figure> figures;
static double peak; /* bytes a second */
static int runs = 7;

static double now(void)
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static void print_figure(const struct figure &f)
{
    printf("%-52s %9.2f us (%.2f ... %.2f)", f.name.c_str(), 1e6 * f.median, 1e6 * f.least, 1e6 * f.most);
    if (f.is_token)
        printf(" %7.1f tokens/s", 1.0 / f.median);
    if (f.bytes > 0)
        printf(" %6.0f GB/s %5.1f %%", f.bytes / f.median * 1e-9, 100.0 * f.bytes / f.median / peak);
    if (f.launches >= 0)
        printf("  %.0f launches, %.0f waits", f.launches, f.waits);
    printf("\n");
    fflush(stdout);
}

static void add_figure(const std::string &name, std::vector<double> times, double bytes, double launches,
                       double waits, bool is_token)
{
    std::sort(times.begin(), times.end());
    struct figure f = {name,    times[times.size() / 2], times[0], times.back(), bytes, launches, waits,
                       is_token};
    figures.push_back(f);
    print_figure(f);
}

#define TOKENS 8 /* a run */

/* `token` does one token and returns when the host knows that it is done. */
static void time_token(const std::string &name, double bytes, double launches, double waits,
                       const std::function<void()> &token)
{
    std::vector<double> times;
    for (int r = -1; r < runs; r++) {
        double start = now();
        for (int i = 0; i < TOKENS; i++)
            token();
        if (r >= 0)
            times.push_back((now() - start) / TOKENS);
    }
    add_figure(name, times, bytes, launches, waits, true);
}

static cudaGraphExec_t capture(const struct model *m, const std::function<void()> &body)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(m->stream, cudaStreamCaptureModeThreadLocal));
    body();
    CHECK(cudaStreamEndCapture(m->stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    return exec;
}

typedef void put(const struct model *m, const struct way *way);

/* Many submissions: launches into the stream, a wait after each submission or one at the end. */
static void time_submissions(const struct model *m, const std::string &name, double bytes, put *body,
                             struct way way)
{
    n_launch = n_wait = 0;
    body(m, &way);
    CHECK(cudaStreamSynchronize(m->stream));
    double launches = n_launch, waits = way.waits ? n_wait : 1;
    time_token(name, bytes, launches, waits, [&]() {
        body(m, &way);
        if (!way.waits)
            CHECK(cudaStreamSynchronize(m->stream));
    });
}

/* One submission: the same launches as one captured graph. */
static void time_graph(const struct model *m, const std::string &name, double bytes, put *body,
                       struct way way)
{
    n_launch = 0;
    cudaGraphExec_t exec = capture(m, [&]() { body(m, &way); });
    double launches = n_launch;
    time_token(name, bytes, launches, 1, [&]() {
        CHECK(cudaGraphLaunch(exec, m->stream));
        CHECK(cudaStreamSynchronize(m->stream));
    });
    CHECK(cudaGraphExecDestroy(exec));
}

/* Time on the device of one of `n` equal pieces of a graph. */
static void time_pieces(const struct model *m, const std::string &name, double bytes, int n,
                        const std::function<void(int)> &piece)
{
    cudaEvent_t begin, end;
    std::vector<double> times;
    cudaGraphExec_t exec = capture(m, [&]() {
        for (int i = 0; i < n; i++)
            piece(i);
    });
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    for (int r = -2; r < 2 * runs + 1; r++) {
        float ms;
        CHECK(cudaEventRecord(begin, m->stream));
        CHECK(cudaGraphLaunch(exec, m->stream));
        CHECK(cudaEventRecord(end, m->stream));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        if (r >= 0)
            times.push_back(1e-3 * ms / n);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
    add_figure(name, times, bytes, -1, -1, false);
}

/* Reads n 16-byte words; the result is used, but practically never written. */
__global__ static void stream_read(const uint4 *from, int64_t n, uint32_t *out)
{
    uint32_t sum = 0;
    int64_t step = (int64_t)gridDim.x * blockDim.x, i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * step < n; i += 4 * step) {
        uint4 a = __ldcs(from + i), b = __ldcs(from + i + step), c = __ldcs(from + i + 2 * step);
        uint4 d = __ldcs(from + i + 3 * step);
        sum ^= a.x ^ b.y ^ c.z ^ d.w ^ a.y ^ a.z ^ a.w ^ b.x ^ b.z ^ b.w ^ c.x ^ c.y ^ c.w ^ d.x ^ d.y ^ d.z;
    }
    if (sum == 0x12345678u)
        *out = sum;
}

static void measure_peak(const struct model *m)
{
    int64_t bytes = token_bytes(m) / 4096 * 4096;
    for (int blocks = 1; blocks <= 4; blocks *= 2) {
        peak = 1e30;
        time_pieces(m, "streaming read, " + std::to_string(blocks) + " x 512 threads an SM", (double)bytes, 1,
                    [&](int) {
                        stream_read<<<(unsigned)(m->n_sm * blocks), 512, 0, m->stream>>>(
                            (const uint4 *)m->dense, bytes / 16, (uint32_t *)m->scrap);
                    });
    }
    peak = 0;
    for (const struct figure &f : figures)
        peak = std::max(peak, f.bytes / f.median);
    printf("100 %% = %.0f GB/s\n", peak * 1e-9);
}

/* ---------------------------------------------------------------- what is measured */

static std::vector<float> result_of(const struct model *m, struct way way)
{
    std::vector<float> logits((size_t)n_vocab);
    CHECK(cudaMemset(m->logits, 0xff, 4 * (size_t)n_vocab));
    if (way.waits) {
        put_token(m, &way);
    } else {
        cudaGraphExec_t exec = capture(m, [&]() { put_token(m, &way); });
        CHECK(cudaGraphLaunch(exec, m->stream));
        CHECK(cudaStreamSynchronize(m->stream));
        CHECK(cudaGraphExecDestroy(exec));
    }
    CHECK(cudaMemcpy(logits.data(), m->logits, 4 * (size_t)n_vocab, cudaMemcpyDeviceToHost));
    return logits;
}

/* The four ways compute the same token: largest difference over largest logit. */
static bool check_same(const struct model *m)
{
    const struct way ways[] = {{false, true, false, false},
                               {false, false, true, false},
                               {true, true, false, false},
                               {true, false, true, false}};
    std::vector<float> first = result_of(m, ways[0]);
    bool same = true;
    double largest = 0;
    for (float v : first) {
        same = same && isfinite(v);
        largest = std::max(largest, fabs((double)v));
    }
    for (int i = 1; i < 4; i++) {
        std::vector<float> other = result_of(m, ways[i]), again = result_of(m, ways[i]);
        double worst = 0;
        for (size_t j = 0; j < first.size(); j++)
            worst = std::max(worst, fabs((double)first[j] - (double)other[j]));
        bool repeats = memcmp(other.data(), again.data(), 4 * other.size()) == 0;
        same = same && worst <= 1e-4 * largest && repeats;
        printf("logits of %c against a: largest difference %.2e of the largest logit, repeats %s\n", 'a' + i,
               worst / largest, repeats ? "yes" : "NO");
    }
    return same;
}

static void measure_square(const struct model *m)
{
    double bytes = (double)token_bytes(m);
    const struct way a = {false, true, false, false}, c = {true, true, false, false};
    const struct way plain_a = {false, false, false, false}, plain_d = {true, false, false, false};
    const struct way b = {false, false, true, false}, d = {true, false, true, false};
    std::string waited = std::to_string(2 * m->n_layer + 1) + " submissions, each waited for";
    std::string queued = std::to_string(2 * m->n_layer + 1) + " submissions, one wait";
    printf("\nthe square, %s: %d layers, %.3f GB a token\n", m->name, m->n_layer, bytes * 1e-9);
    time_submissions(m, "a: " + waited + "; in sequence", bytes, put_token, a);
    time_submissions(m, "a: " + waited + " asleep; in sequence", bytes, put_token,
                     {false, true, false, true});
    time_submissions(m, "a: " + queued + "; in sequence", bytes, put_token, plain_a);
    time_submissions(m, "c: " + waited + "; one grid", bytes, put_token, c);
    time_submissions(m, "c: " + waited + " asleep; one grid", bytes, put_token, {true, true, false, true});
    time_submissions(m, "c: " + queued + "; one grid", bytes, put_token, plain_d);
    time_graph(m, "b: one submission; in sequence, plain edges", bytes, put_token, plain_a);
    time_graph(m, "b: one submission; in sequence", bytes, put_token, b);
    time_graph(m, "d: one submission; one grid, plain edges", bytes, put_token, plain_d);
    time_graph(m, "d: one submission; one grid", bytes, put_token, d);
    printf("controls\n");
    time_submissions(m, "dense in the shape of a", bytes, put_dense, a);
    time_submissions(m, "dense in the shape of c", bytes, put_dense, c);
    time_graph(m, "dense in the shape of b", bytes, put_dense, b);
    time_graph(m, "dense in the shape of d", bytes, put_dense, d);
    time_submissions(m, "empty in the shape of a", 0, put_empty, a);
    time_submissions(m, "empty in the shape of a, one wait", 0, put_empty, plain_a);
    time_submissions(m, "empty in the shape of c", 0, put_empty, c);
    time_graph(m, "empty in the shape of b", 0, put_empty, b);
    time_graph(m, "empty in the shape of d", 0, put_empty, d);
}

/*
 * One launch after another over experts that are not in the L2 cache (every launch has a layer of its own,
 * and a round of them is many times its size), or over the same ones again.
 */
template <int N, enum ceiling_loads LOADS>
static void measure_experts(const struct model *m, const std::string &loads)
{
    std::string experts = N == 1 ? "1 expert" : "4 experts";
    int rounds = N == 1 ? 4 : 1, n = m->n_layer * rounds;
    for (int warm = 0; warm < 2; warm++)
        for (int dependent = 0; dependent < (warm ? 1 : 2); dependent++) {
            std::string tail = ", " + experts + (warm ? ", warm" : ", cold") +
                               (dependent ? ", dependent launches" : "") + ", " + loads;
            auto layer = [&](int i) { return warm ? 0 : i % m->n_layer; };
            auto first = [&](int i) { return warm || N == 4 ? 0 : i / m->n_layer; };
            time_pieces(m, "gate and up" + tail, (double)N * gate_up_bytes, n,
                        [&](int i) { launch_gate_up<N, LOADS>(m, layer(i), first(i), dependent); });
            time_pieces(m, "down" + tail, (double)N * down_bytes, n, [&](int i) {
                launch_down<N, LOADS>(m, layer(i), first(i), m->middle, m->partial[0], dependent);
            });
            time_pieces(m, "gate and up, down" + tail, (double)N * (gate_up_bytes + down_bytes), n,
                        [&](int i) {
                            launch_gate_up<N, LOADS>(m, layer(i), first(i), dependent);
                            launch_down<N, LOADS>(m, layer(i), first(i), m->middle, m->partial[0], dependent);
                        });
        }
}

/* The same launch with more experts in it: what is fixed and what grows with the bytes. */
template <int N> static void measure_more(const struct model *m)
{
    allow(ceiling_gate_up<N, CEILING_RINGS>, gate_up_shared());
    time_pieces(m, "gate and up, " + std::to_string(N) + " experts, cold, bulk copies",
                (double)N * gate_up_bytes, m->n_layer,
                [&](int i) { launch_gate_up<N, CEILING_RINGS>(m, i, 0, false); });
}

static void write_json(const struct model *m, const char *path)
{
    FILE *file = fopen(path, "w");
    cudaDeviceProp p;
    CHECK(cudaGetDeviceProperties(&p, 0));
    if (!file) {
        fprintf(stderr, "bench_ceiling: cannot write %s\n", path);
        exit(1);
    }
    fprintf(file,
            "{\n  \"program\": \"bench_ceiling\", \"model\": \"%s\", \"device\": \"%s\", \"n_sm\": %d,\n",
            m->name, p.name, m->n_sm);
    fprintf(file, "  \"runs\": %d, \"token_bytes\": %lld, \"read_gb_per_second\": %.1f,\n  \"rows\": [\n",
            runs, (long long)token_bytes(m), peak * 1e-9);
    for (size_t i = 0; i < figures.size(); i++) {
        const struct figure &f = figures[i];
        fprintf(file,
                "    {\"name\": \"%s\", \"microseconds\": {\"median\": %.3f, \"min\": %.3f, \"max\": %.3f}",
                f.name.c_str(), 1e6 * f.median, 1e6 * f.least, 1e6 * f.most);
        if (f.is_token)
            fprintf(file, ", \"tokens_per_second\": %.2f", 1.0 / f.median);
        if (f.bytes > 0)
            fprintf(file, ", \"bytes\": %.0f, \"gb_per_second\": %.1f, \"bandwidth_share\": %.4f", f.bytes,
                    f.bytes / f.median * 1e-9, f.bytes / f.median / peak);
        if (f.launches >= 0)
            fprintf(file, ", \"launches\": %.0f, \"waits\": %.0f", f.launches, f.waits);
        fprintf(file, "}%s\n", i + 1 < figures.size() ? "," : "");
    }
    fprintf(file, "  ]\n}\n");
    fclose(file);
}

int main(int argc, char **argv)
{
    struct model m = {};
    const char *json = NULL;
    m.name = "20b", m.n_layer = 24, m.n_expert = 32;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "120b") == 0) {
            m.name = "120b", m.n_layer = 36, m.n_expert = 128;
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            json = argv[++i];
        } else if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc) {
            runs = std::max(1, atoi(argv[++i]));
        } else if (strcmp(argv[i], "20b") != 0) {
            fprintf(stderr, "bench_ceiling: %s? use: bench_ceiling [20b|120b] [--json FILE] [--runs N]\n",
                    argv[i]);
            return 2;
        }
    }
    CHECK(cudaSetDeviceFlags(cudaDeviceScheduleSpin)); /* the quickest way to wait */
    make_model(&m);
    allow(ceiling_dense, dense_shared);
    allow(ceiling_attend, 0);
    allow(ceiling_empty, 0);
    allow_experts<CEILING_RINGS>();
    allow_experts<CEILING_WIDE>();
    allow_experts<CEILING_BYTES>();
    measure_peak(&m);
    bool same = check_same(&m);
    measure_square(&m);
    printf("\none expert's products, of %d experts\n", m.n_expert);
    measure_experts<1, CEILING_RINGS>(&m, "bulk copies");
    measure_experts<4, CEILING_RINGS>(&m, "bulk copies");
    measure_more<2>(&m);
    measure_more<8>(&m);
    measure_experts<1, CEILING_WIDE>(&m, "16-byte loads");
    measure_experts<4, CEILING_WIDE>(&m, "16-byte loads");
    measure_experts<1, CEILING_BYTES>(&m, "1-byte loads");
    measure_experts<4, CEILING_BYTES>(&m, "1-byte loads");
    if (json)
        write_json(&m, json);
    if (!same)
        fprintf(stderr, "bench_ceiling: the ways do not compute the same token\n");
    return same ? 0 : 1;
}
