/*
 * The decode kernels' speed on random weights of the full shapes, cold: every layer has weights of its own,
 * so that a token's are many times the L2 cache. Stages alone, then whole tokens as one captured graph with
 * programmatic dependent launches; beside each the bytes per second and the share of a streaming read that is
 * measured first. Medians of REPEAT runs, with the fastest and the slowest.
 *
 *   bench_decode_kernels [20b|20b-q8|120b] [context ...]
 */
#include <algorithm>
#include <vector>

#include "decode_chosen.cuh"
#include "decode_fixture.cuh"

#define REPEAT 15

/* ---------------------------------------------------------------- random weights, in place */

__device__ static uint32_t mix32(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(x ^ x >> 31);
}

/* bfloat16 of magnitude 2^-6 ... 2^-5. */
__global__ static void fill_bf16(uint32_t *to, int64_t n, uint64_t seed)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        to[i] = (mix32(seed + (uint64_t)i) & 0x807f807fu) | 0x3c803c80u;
}

__global__ static void fill_float(float *to, int64_t n, float center, float spread, uint64_t seed)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        to[i] = center + spread * ((float)(mix32(seed + (uint64_t)i) >> 8) * 0x1p-23f - 1.0f);
}

__global__ static void fill_experts(uint32_t *to, int64_t n, uint64_t seed)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        uint32_t bits = mix32(seed + (uint64_t)i);
        to[i] = i % (GS_DECODE_EXPERT_CHUNK / 4) < 384 ? bits : (bits & 0x03030303u) + 0x76767676u;
    }
}

/* Stands for the embedding: a token's first vector. */
__global__ static void start_token(float *hidden, const float *from, int n)
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n; i += (int)(gridDim.x * blockDim.x))
        hidden[i] = from[i];
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

static uint64_t seed = 7;

static void *random_dense(int64_t n)
{
    uint32_t *to;
    CHECK(cudaMalloc(&to, (size_t)n * 2));
    fill_bf16<<<1024, 256>>>(to, n / 2, seed += (uint64_t)n);
    return to;
}

/* Chunks of 8 bits: codes, then scales of 2^-12 ... 2^-11. */
__global__ static void fill_q8(uint32_t *to, int64_t n, uint64_t from)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        uint32_t bits = mix32(from + (uint64_t)i);
        to[i] = i % (GS_DECODE_Q8_CHUNK / 4) < 256 ? bits : (bits & 0x03ff03ffu) | 0x0c000c00u;
    }
}

static void random_dense_matrix(struct gs_gpu_matrix *m, int32_t type, int32_t rows, int32_t columns)
{
    int64_t bytes = gs_decode_relaid_bytes(rows, columns, 1, type);
    m->type = type, m->rows = rows, m->columns = columns;
    if (type == GS_GPU_BF16) {
        m->relaid = random_dense(bytes / 2);
        return;
    }
    uint32_t *to;
    CHECK(cudaMalloc(&to, (size_t)bytes));
    fill_q8<<<1024, 256>>>(to, bytes / 4, seed += (uint64_t)bytes);
    m->relaid = to;
}

static float *random_floats(int64_t n, float center, float spread)
{
    float *to;
    CHECK(cudaMalloc(&to, (size_t)n * 4));
    fill_float<<<64, 256>>>(to, n, center, spread, seed += (uint64_t)n);
    return to;
}

static void random_expert_matrix(struct gs_gpu_experts *e, int64_t n_expert, int32_t rows, int32_t columns)
{
    int64_t bytes = gs_decode_relaid_bytes(rows, columns, n_expert, GS_DECODE_MXFP4);
    uint32_t *to;
    memset(e, 0, sizeof *e);
    CHECK(cudaMalloc(&to, (size_t)bytes));
    fill_experts<<<1024, 256>>>(to, bytes / 4, seed += (uint64_t)bytes);
    e->relaid = to;
    e->bias = random_floats(n_expert * rows, 0.0f, 0.1f);
    e->rows = rows, e->columns = columns;
}

static void make_model(struct model *m, const struct shape *s)
{
    memset(m, 0, sizeof *m);
    m->machine = machine_here();
    m->dims = dims_of(s);
    make_scratch(m);
    m->layers = (struct gs_gpu_layer *)calloc((size_t)s->n_layer, sizeof *m->layers);
    m->kv = (struct gs_gpu_kv_layer *)calloc((size_t)s->n_layer, sizeof *m->kv);
    int64_t d = s->d_model, n_qkv = (s->n_head + 2 * s->n_kv_head) * 64, n_attended = s->n_head * 64;
    for (int32_t layer = 0; layer < s->n_layer; layer++) {
        struct gs_gpu_layer *w = &m->layers[layer];
        w->attention_norm = random_floats(d, 1.0f, 0.1f);
        w->mlp_norm = random_floats(d, 1.0f, 0.1f);
        w->qkv_bias = random_floats(n_qkv, 0.0f, 0.1f);
        w->sinks = random_floats(s->n_head, 0.0f, 1.0f);
        w->o_bias = random_floats(d, 0.0f, 0.1f);
        w->router_bias = random_floats(s->n_expert, 0.0f, 1.0f);
        w->router_columns = random_floats(d * s->n_expert, 0.0f, 0.02f);
        random_dense_matrix(&w->qkv, s->type, (int32_t)n_qkv, s->d_model);
        random_dense_matrix(&w->o, s->type, s->d_model, (int32_t)n_attended);
        random_expert_matrix(&w->gate_up, s->n_expert, 2 * s->d_ff, s->d_model);
        random_expert_matrix(&w->down, s->n_expert, s->d_model, s->d_ff);
        m->kv[layer].n_slot = layer % 2 == 0 ? 136 : s->n_ctx;
        m->kv[layer].keys = random_dense((int64_t)s->n_kv_head * m->kv[layer].n_slot * 64);
        m->kv[layer].values = random_dense((int64_t)s->n_kv_head * m->kv[layer].n_slot * 64);
    }
    m->kv_device = (struct gs_gpu_kv_layer *)device_copy(m->kv, (size_t)s->n_layer * sizeof *m->kv);
    m->norm = random_floats(d, 1.0f, 0.1f);
#ifdef GS_DECODE_TRACE
    CHECK(cudaMalloc(&m->scratch.projected, (size_t)s->n_layer * 8 * 256 * 8 * 8 + 8 * 256 * 64));
    CHECK(cudaMemset(m->scratch.projected, 0, (size_t)s->n_layer * 8 * 256 * 8 * 8 + 8 * 256 * 64));
#endif
    random_dense_matrix(&m->head, s->type, s->n_vocab, s->d_model);
    CHECK(cudaDeviceSynchronize());
}

/* ---------------------------------------------------------------- timing */

struct timing {
    double median, fastest, slowest; /* microseconds */
};

static struct timing time_graph(cudaGraphExec_t graph, cudaStream_t stream)
{
    cudaEvent_t begin, end;
    std::vector<double> times;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    for (int i = 0; i < REPEAT + 2; i++) {
        float ms;
        CHECK(cudaEventRecord(begin, stream));
        CHECK(cudaGraphLaunch(graph, stream));
        CHECK(cudaEventRecord(end, stream));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        if (i >= 2)
            times.push_back(1000.0 * ms);
    }
    std::sort(times.begin(), times.end());
    return {times[REPEAT / 2], times[0], times[REPEAT - 1]};
}

template <class Body> static struct timing time_captured(cudaStream_t stream, Body body)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    body();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    struct timing t = time_graph(exec, stream);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    return t;
}

static double peak; /* bytes per second */

static void measure_peak(cudaStream_t stream)
{
    int64_t bytes = (int64_t)4 << 30;
    uint4 *from;
    uint32_t *out;
    CHECK(cudaMalloc(&from, (size_t)bytes));
    CHECK(cudaMalloc(&out, 4));
    fill_bf16<<<1024, 256>>>((uint32_t *)from, bytes / 4, 99);
    for (int blocks = 1; blocks <= 4; blocks *= 2) {
        struct timing t = time_captured(
            stream, [&]() { stream_read<<<132 * blocks, 512, 0, stream>>>(from, bytes / 16, out); });
        double rate = (double)bytes / (t.median * 1e-6);
        peak = rate > peak ? rate : peak;
    }
    CHECK(cudaFree(from));
    CHECK(cudaFree(out));
    printf("streaming read %.0f GB/s = 100 %%\n", peak * 1e-9);
}

static const char *const stage_names[] = {"embed",     "A qkv",  "B attention", "C o",
                                          "E gate_up", "F down", "head"};

static double stage_bytes(const struct gs_gpu_dims *d, double dense, int stage, int32_t layer,
                          int32_t position)
{
    double model = d->d_model, keys = position + 1;
    switch (stage) {
    case GS_GPU_ATTENTION_IN:
        return dense * model * (d->n_head + 2 * d->n_kv_head) * 64;
    case GS_GPU_ATTENTION:
        return (layer % 2 == 0 && keys > 128 ? 128 : keys) * d->n_kv_head * 64 * 4.0;
    case GS_GPU_ATTENTION_OUT:
        return dense * model * d->n_head * 64 + 4.0 * model * d->n_expert;
    case GS_GPU_MOE_IN:
        return 4 * 2.0 * d->d_ff * model * 17 / 32;
    case GS_GPU_MOE_OUT:
        return 4 * model * d->d_ff * 17 / 32;
    default:
        return dense * model * d->n_vocab;
    }
}

static void report(const char *what, struct timing t, int n, double bytes)
{
    double rate = bytes / (t.median * 1e-6);
    printf("%-24s %8.2f us  (%.2f ... %.2f)  %6.0f GB/s  %5.1f %%\n", what, t.median / n, t.fastest / n,
           t.slowest / n, rate * 1e-9, 100.0 * rate / peak);
}

static void token(const struct model *m, int64_t n_ctx, cudaStream_t stream, int skip, const float *start)
{
    cudaLaunchConfig_t config = {};
    CHECK(cudaFuncSetAttribute(start_token, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
    config.gridDim = dim3(4), config.blockDim = dim3(256), config.stream = stream;
    CHECK(cudaLaunchKernelEx(&config, start_token, m->scratch.hidden, start, (int)m->dims.d_model));
    for (int32_t layer = 0; layer < m->dims.n_layer; layer++)
        for (int stage = GS_GPU_ATTENTION_IN; stage <= GS_GPU_MOE_OUT; stage++)
            if (stage != skip)
                run_stage(m, (enum gs_gpu_stage)stage, layer, n_ctx, true, stream);
    if (skip != GS_GPU_HEAD)
        run_stage(m, GS_GPU_HEAD, m->dims.n_layer, n_ctx, true, stream);
}

#ifdef GS_DECODE_TRACE
/* When the blocks of a layer's stages passed their points: first, mean and last, in ns since stage A's first.
 */
static void print_trace(const struct model *m, int32_t layer)
{
    size_t n = (size_t)m->dims.n_layer * 8 * 256 * 8;
    std::vector<uint64_t> t(n);
    CHECK(cudaMemcpy(t.data(), m->scratch.projected, n * 8, cudaMemcpyDeviceToHost));
    auto at = [&](int l, int stage, int block, int point) {
        return t[(((size_t)l * 8 + (size_t)stage) * 256 + (size_t)block) * 8 + (size_t)point];
    };
    uint64_t zero = ~(uint64_t)0;
    for (int b = 0; b < 132; b++)
        zero = std::min(zero, at(layer, 1, b, 1));
    const char *points[] = {"start", "after wait", "stream", "streamed", "end", "let go", "all warps"};
    for (int l = layer; l <= layer + 1; l++)
        for (int stage = 1; stage <= 5; stage++)
            for (int point : {0, 1, 5, 2, 3, 6, 4}) {
                double first = 1e18, last = -1e18, sum = 0;
                int count = 0;
                for (int b = 0; b < (stage == 2 ? 8 : 132); b++) {
                    if (at(l, stage, b, point) == 0)
                        continue;
                    double ns = (double)(int64_t)(at(l, stage, b, point) - zero);
                    first = std::min(first, ns), last = std::max(last, ns), sum += ns, count++;
                }
                if (count)
                    printf("  L%d %-12s %-10s %8.0f %8.0f %8.0f\n", l, stage_names[stage], points[point],
                           first, sum / count, last);
            }
}
#endif

/* A kernel with nothing to do on every SM: what is before and after a pair that is timed alone. */
__global__ static void nothing(void)
{
}

/* E or F with the choice made by an earlier kernel. */
static void run_chosen(const struct model *m, enum gs_gpu_stage stage, int32_t layer, bool dependent,
                       cudaStream_t stream)
{
    struct gs_gpu_args args = args_of(m, layer);
    struct gs_gpu_plan plan;
    gs_decode_plan(&args, &m->machine, stage, 1, &plan);
    launch_function(stage == GS_GPU_MOE_IN ? (const void *)gs_chosen_gate_up : (const void *)gs_chosen_down,
                    &plan.launches[0], &args, dependent, stream);
}

/*
 * One token-load of experts: gate/up and down of the four of a layer, every layer's once, cold. Chained, as
 * in a token without its other stages; and each pair alone, between kernels that do nothing, whose own time
 * is taken off. Both once with the choice of the experts, which each block makes in both stages, and once
 * without, the choice being what the last layer of the former left: the matrix-vector products alone.
 */
static void time_experts(const struct model *m, cudaStream_t stream)
{
    int32_t n_layer = m->dims.n_layer;
    double bytes = n_layer * (stage_bytes(&m->dims, 2.0, GS_GPU_MOE_IN, 0, 0) +
                              stage_bytes(&m->dims, 2.0, GS_GPU_MOE_OUT, 0, 0));
    auto between = [&](void) { nothing<<<(unsigned)m->machine.n_sm, 256, 0, stream>>>(); };
    auto stage = [&](bool chooses, enum gs_gpu_stage which, int32_t layer, bool dependent) {
        if (chooses)
            run_stage(m, which, layer, 1, dependent, stream);
        else
            run_chosen(m, which, layer, dependent, stream);
    };
    auto pairs = [&](bool chained, bool chooses) {
        for (int32_t layer = 0; layer < n_layer; layer++) {
            if (!chained)
                between();
            stage(chooses, GS_GPU_MOE_IN, layer, chained);
            stage(chooses, GS_GPU_MOE_OUT, layer, true);
        }
        if (!chained)
            between();
    };
    struct timing empty = time_captured(stream, [&]() {
        for (int32_t layer = 0; layer <= n_layer; layer++)
            between();
    });
    for (bool chooses : {true, false}) {
        struct timing chained = time_captured(stream, [&]() { pairs(true, chooses); });
        struct timing alone = time_captured(stream, [&]() { pairs(false, chooses); });
        alone.median -= empty.median, alone.fastest -= empty.median, alone.slowest -= empty.median;
        report(chooses ? "four experts, chained" : "products alone, chained", chained, n_layer, bytes);
        report(chooses ? "four experts, alone" : "products alone, alone", alone, n_layer, bytes);
    }
}

static void time_position(struct model *m, int32_t position, cudaStream_t stream, bool stages)
{
    const struct gs_gpu_dims *d = &m->dims;
    float *start = random_floats(d->d_model, 0.0f, 2.0f);
    double all = 0.0;
    set_row(m, position);
    printf("%d layers, %d experts, %s, position %d\n", d->n_layer, d->n_expert,
           m->head.type == GS_GPU_Q8 ? "8 bits" : "bfloat16", position);
    for (int stage = GS_GPU_ATTENTION_IN; stage <= GS_GPU_HEAD; stage++) {
        double bytes = 0.0;
        int32_t layers = stage == GS_GPU_HEAD ? 1 : d->n_layer, first = stage == GS_GPU_HEAD ? d->n_layer : 0;
        for (int32_t layer = 0; layer < layers; layer++)
            bytes += stage_bytes(d, m->head.type == GS_GPU_Q8 ? 1.0625 : 2.0, stage, layer, position);
        all += bytes;
        if (!stages)
            continue;
        struct timing t = time_captured(stream, [&]() {
            for (int32_t layer = 0; layer < layers; layer++)
                run_stage(m, (enum gs_gpu_stage)stage, first + layer, position + 8, true, stream);
        });
        report(stage_names[stage], t, layers, bytes);
    }
    struct timing t = time_captured(stream, [&]() { token(m, position + 8, stream, -1, start); });
    report("token", t, 1, all);
    printf("    %.1f tokens/s\n", 1e6 / t.median);
#ifdef GS_DECODE_TRACE
    print_trace(m, 6);
#endif
    if (stages)
        time_experts(m, stream);
    for (int skip = GS_GPU_ATTENTION_IN; stages && skip <= GS_GPU_HEAD; skip++) {
        struct timing u = time_captured(stream, [&]() { token(m, position + 8, stream, skip, start); });
        printf("    without %-12s %8.1f us: the stage costs %.2f us\n", stage_names[skip], u.median,
               (t.median - u.median) / (skip == GS_GPU_HEAD ? 1 : d->n_layer));
    }
}

int main(int argc, char **argv)
{
    const struct shape shapes[] = {{"20b", 24, 2880, 64, 8, 32, 2880, 201088, 131072, GS_GPU_BF16},
                                   {"20b-q8", 24, 2880, 64, 8, 32, 2880, 201088, 131072, GS_GPU_Q8},
                                   {"120b", 36, 2880, 64, 8, 128, 2880, 201088, 131072, GS_GPU_BF16}};
    const struct shape *shape = &shapes[0];
    for (const struct shape &s : shapes)
        if (argc > 1 && strcmp(argv[1], s.name) == 0)
            shape = &s;
    struct model m;
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    measure_peak(stream);
    make_model(&m, shape);
    if (argc < 3)
        time_position(&m, 512, stream, true);
    for (int i = 2; i < argc; i++)
        time_position(&m, atoi(argv[i]), stream, i == 2);
    return 0;
}
