/*
 * The persistent kernel's speed beside the captured graph's, on the same random weights of the full shapes,
 * in turn: medians of REPEAT launches, of one token and of a chain of 16.
 *
 *   bench_persistent [20b|20b-q8|120b] [context ...]
 */
#define main bench_graph_kernels
#include "bench_decode_kernels.cu"
#undef main

#include "persistent_fixture.cuh"

static struct timing time_chain(struct model *m, const struct gs_persistent_args *a, int32_t position,
                                cudaStream_t stream)
{
    std::vector<double> times;
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    for (int i = 0; i < REPEAT + 2; i++) {
        float ms;
        start_at(m, 1000 + i, position);
        CHECK(cudaEventRecord(begin, stream));
        CHECK(gs_persistent_launch(a, m->machine.n_sm, stream));
        CHECK(cudaEventRecord(end, stream));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        if (i >= 2)
            times.push_back(1000.0 * ms / a->n_token);
    }
    check_in_time(a);
    std::sort(times.begin(), times.end());
    return {times[REPEAT / 2], times[0], times[REPEAT - 1]};
}

static void report_rate(const char *what, struct timing t)
{
    printf("  %-32s %8.1f us (%.1f ... %.1f)  %7.1f tokens/s\n", what, t.median, t.fastest, t.slowest,
           1e6 / t.median);
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
    make_model(&m, shape);
    const uint16_t *embedding = (const uint16_t *)random_dense((int64_t)shape->n_vocab * shape->d_model);
    float *start = random_floats(shape->d_model, 0.0f, 2.0f);
    struct gs_persistent_args a = persistent_args(&m, embedding);
    for (int i = 2; i < argc || i == 2; i++) {
        int32_t position = argc > 2 ? atoi(argv[i]) : 512;
        printf("%s, position %d\n", shape->name, position);
        for (int n = 1; n <= 16; n += 15) {
            a.n_token = n;
            report_rate(n == 1 ? "persistent, a token a launch" : "persistent, 16 tokens a launch",
                        time_chain(&m, &a, position, stream));
        }
        start_at(&m, 1000, position);
        report_rate("graph", time_captured(stream, [&]() { token(&m, position + 8, stream, -1, start); }));
    }
    return 0;
}
