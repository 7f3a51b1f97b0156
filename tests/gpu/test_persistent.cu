/*
 * The persistent kernel: each stage against float64, by the checks of the graph's kernels on what it leaves;
 * then a chain of tokens against the graph's kernels step by step, twice, and the chain's end by `cancel`.
 * Built with -DGS_DECODE_WARPS=8 -DGS_DECODE_MAX_QUADS=3 the chain must have the graph's bits; with another
 * width its tokens alone are compared. Needs a device of compute capability 9.0; exit code 0: all is right.
 */
#include "persistent_fixture.cuh"

static void run_graph_stage(const struct model *m, enum gs_gpu_stage stage, int32_t layer, int64_t n_ctx)
{
    run_stage(m, stage, layer, n_ctx, true, 0);
}

/* In the place of run_stage: a layer by one launch, at its first stage. */
static void run_in_place(const struct model *m, enum gs_gpu_stage stage, int32_t layer, int64_t, bool,
                         cudaStream_t stream)
{
    struct gs_persistent_args a = persistent_args(m, NULL);
    struct gs_gpu_row row;
    if (stage != GS_GPU_ATTENTION_IN && stage != GS_GPU_HEAD)
        return;
    CHECK(cudaMemcpy(&row, m->scratch.rows, sizeof row, cudaMemcpyDeviceToHost));
    a.first_layer = layer;
    a.n_layer = stage == GS_GPU_ATTENTION_IN;
    a.n_token = stage == GS_GPU_HEAD;
    CHECK(gs_persistent_launch(&a, m->machine.n_sm, stream));
    check_in_time(&a);
    /* The head's launch has gone on to the next position, where the graph's kernels stay. */
    CHECK(cudaMemcpy(m->scratch.rows, &row, sizeof row, cudaMemcpyHostToDevice));
}

#define run_stage run_in_place
#define main      test_graph_kernels
#include "test_decode_kernels.cu"
#undef main

#define N_TOKEN 6

/* The chain by the graph's kernels: a token a time, the host in between. */
static void run_graph_chain(struct model *m, const float *embedding, int32_t token, int32_t position,
                            int32_t out[N_TOKEN])
{
    const struct gs_gpu_dims *d = &m->dims;
    for (int i = 0; i < N_TOKEN; i++) {
        uint64_t best;
        start_at(m, token, position + i);
        CHECK(cudaMemcpy(m->scratch.hidden, embedding + (int64_t)token * d->d_model, (size_t)d->d_model * 4,
                         cudaMemcpyHostToDevice));
        for (int32_t layer = 0; layer < d->n_layer; layer++)
            for (int stage = GS_GPU_ATTENTION_IN; stage <= GS_GPU_MOE_OUT; stage++)
                run_graph_stage(m, (enum gs_gpu_stage)stage, layer, d->max_ctx);
        run_graph_stage(m, GS_GPU_HEAD, d->n_layer, d->max_ctx);
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemcpy(&best, m->scratch.argmax, 8, cudaMemcpyDeviceToHost));
        out[i] = token = (int32_t) ~(uint32_t)best;
    }
}

static void fail_if(bool wrong, const char *shape, const char *what)
{
    printf("%-8s %s%s\n", shape, what, wrong ? "  WRONG" : "");
    failures += wrong;
}

static void check_chain(const struct shape *s, int32_t position)
{
    struct test t;
    struct gs_gpu_matrix table;
    int32_t graph[N_TOKEN], chain[N_TOKEN + 1], again[N_TOKEN + 1];
    make_test(&t, s);
    struct model *m = &t.model;
    float *embedding = random_matrix(s->n_vocab, s->d_model, GS_GPU_BF16, &table);
    struct gs_persistent_args a = persistent_args(m, (const uint16_t *)table.data);
    size_t n = (size_t)s->n_vocab;
    run_graph_chain(m, embedding, 7, position, graph);
    float *theirs = read_floats(m->scratch.logits, n), *ours = NULL;
    double *x = (double *)malloc(n * 8), *y = (double *)malloc(n * 8);
    a.n_token = N_TOKEN;
    for (int run = 0; run < 2; run++) {
        start_at(m, 7, position);
        CHECK(gs_persistent_launch(&a, m->machine.n_sm, 0));
        check_in_time(&a);
        float *logits = read_floats(m->scratch.logits, n);
        CHECK(cudaMemcpy(run ? again : chain, a.s.tokens, sizeof chain, cudaMemcpyDeviceToHost));
        if (run)
            fail_if(memcmp(ours, logits, n * 4) != 0, s->name, "the same bits again");
        free(ours);
        ours = logits;
    }
    for (size_t i = 0; i < n; i++)
        x[i] = ours[i], y[i] = theirs[i];
    /*
     * With as many warps the order of sums is the same, and nothing may differ. With another, a key or value
     * of the cache may round to the next bfloat16, from which no bar for logits follows: tokens alone are
     * compared.
     */
    if (GS_DECODE_WARPS == 8)
        compare(s->name, "chain", s->n_layer, x, y, (int64_t)n, 0.0);
    else
        printf("%-8s the graph has %d warps a block: tokens alone are compared\n", s->name, GS_DECODE_WARPS);
    fail_if(chain[0] != N_TOKEN || memcmp(chain + 1, graph, sizeof graph) != 0, s->name,
            "the graph's tokens");
    fail_if(memcmp(chain, again, sizeof chain) != 0, s->name, "the same tokens again");
    uint32_t one = 1;
    a.cancel = (uint32_t *)device_copy(&one, 4);
    start_at(m, 7, position);
    CHECK(gs_persistent_launch(&a, m->machine.n_sm, 0));
    check_in_time(&a);
    CHECK(cudaMemcpy(again, a.s.tokens, sizeof again, cudaMemcpyDeviceToHost));
    fail_if(again[0] != 1 || again[1] != graph[0], s->name, "cancelled after a token");
    free(embedding), free(theirs), free(ours), free(x), free(y);
}

int main(void)
{
    const struct shape shapes[] = {
        {"20b", 2, 2880, 64, 8, 32, 2880, 8000, 1024, GS_GPU_BF16},
        {"20b-q8", 2, 2880, 64, 8, 32, 2880, 8000, 1024, GS_GPU_Q8},
    };
    check_shape(&shapes[0], 1000);
    check_shape(&shapes[1], 127);
    check_chain(&shapes[0], 500);
    check_chain(&shapes[1], 126);
    printf(failures ? "%d WRONG\n" : "all right\n", failures);
    return failures > 0;
}
