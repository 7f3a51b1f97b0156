/*
 * The batch kernels' speed on random weights of the full shapes, cold: every layer has weights of its own.
 * Stages alone, then whole steps as one captured graph with programmatic dependent launches, and what a step
 * costs without each stage. Medians of REPEAT runs.
 *
 *   bench_batch_kernels [20b|20b-q8|120b] [rows ...]
 */
#include "batch_fixture.cuh"

#define REPEAT 9

/* Stands for the embedding: the rows' first vectors. */
__global__ static void start_rows(float *hidden, const float *from, int n)
{
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n; i += (int)(gridDim.x * blockDim.x))
        hidden[i] = from[i];
}

/* Experts that are chosen, and the routes of the one that is chosen most often. */
static void print_choice(const struct model *m, int n_rows)
{
    std::vector<int32_t> choice((size_t)n_rows * 4), count((size_t)m->dims.n_expert, 0);
    CHECK(cudaMemcpy(choice.data(), m->scratch.choice, choice.size() * 4, cudaMemcpyDeviceToHost));
    for (int32_t e : choice)
        count[(size_t)e]++;
    printf("  last layer: %d experts, %d routes at most\n",
           m->dims.n_expert - (int)std::count(count.begin(), count.end(), 0),
           *std::max_element(count.begin(), count.end()));
}

template <class Body> static double time_captured(cudaStream_t stream, Body body)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t begin, end;
    std::vector<float> times;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    body();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    for (int i = 0; i < REPEAT + 2; i++) {
        float ms;
        CHECK(cudaEventRecord(begin, stream));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaEventRecord(end, stream));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        if (i >= 2)
            times.push_back(1000.0f * ms);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    std::sort(times.begin(), times.end());
    return times[REPEAT / 2];
}

static void time_rows(struct model *m, struct timelines *t, int n_rows, int32_t position, cudaStream_t stream)
{
    static const char *const names[] = {"embed",   "qkv",           "attention", "o, router",
                                        "gate_up", "down, combine", "head"};
    const struct gs_gpu_dims *d = &m->dims;
    std::vector<struct gs_gpu_row> rows;
    for (int r = 0; r < n_rows; r++)
        rows.push_back({t->on_device + (int64_t)r * d->n_layer, 0, position + r, r, r});
    CHECK(cudaMemcpy(m->scratch.rows, rows.data(), rows.size() * sizeof rows[0], cudaMemcpyHostToDevice));
    static float *start = random_floats((int64_t)GS_BATCH_ROWS * d->d_model, 0.0f, 20.0f);
    int n = n_rows * d->d_model;
    int64_t n_ctx = position + 64 <= 1024 ? 1024 : 2048;
    auto step = [&](int skip) {
        return time_captured(stream, [&]() {
            start_rows<<<132, 256, 0, stream>>>(m->scratch.hidden, start, n);
            batch_step(m, n_rows, n_ctx, stream, skip);
        });
    };
    double whole = step(-1);
    printf("%d rows at %d: %.1f us, %.0f tokens/s in all; %d layers of %.1f us and the head\n", n_rows,
           position, whole, 1e6 * n_rows / whole, d->n_layer, whole / d->n_layer);
    print_choice(m, n_rows);
    for (int stage = GS_GPU_ATTENTION_IN; stage <= GS_GPU_HEAD; stage++) {
        int layers = stage == GS_GPU_HEAD ? 1 : d->n_layer;
        double alone = time_captured(stream, [&]() {
            for (int32_t layer = 0; layer < layers; layer++)
                batch_stage(m, (enum gs_gpu_stage)stage, stage == GS_GPU_HEAD ? d->n_layer : layer, n_rows,
                            n_ctx, stream);
        });
        double without = step(stage);
        printf("  %-14s alone %8.2f us, in its place %8.2f us\n", names[stage], alone / layers,
               (whole - without) / layers);
    }
}

int main(int argc, char **argv)
{
    const struct shape shapes[] = {{"20b", 12, 2880, 64, 8, 32, 2880, 201088, 2048, GS_GPU_BF16},
                                   {"20b-q8", 12, 2880, 64, 8, 32, 2880, 201088, 2048, GS_GPU_Q8},
                                   {"120b", 12, 2880, 64, 8, 128, 2880, 201088, 2048, GS_GPU_BF16}};
    struct model m;
    struct timelines t;
    cudaStream_t stream;
    const struct shape *shape = &shapes[0];
    for (const struct shape &s : shapes)
        if (argc > 1 && strcmp(argv[1], s.name) == 0)
            shape = &s;
    CHECK(cudaStreamCreate(&stream));
    make_model(&m, shape, false);
    make_timelines(&t, &m, GS_BATCH_ROWS);
    CHECK(cudaDeviceSynchronize());
    for (int i = 2; i < argc || i == 2; i++)
        time_rows(&m, &t, argc > 2 ? atoi(argv[i]) : 8, 100, stream);
    return 0;
}
