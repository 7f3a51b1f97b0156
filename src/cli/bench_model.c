/*
 * Rows of a whole model: reading a prompt, and generating, at several context depths and numbers of threads.
 * Tokens are pseudo-random and the same in every run, so a run reads the same weights each time; before the
 * timed runs of a row goes one that is not timed, which brings in the pages.
 */
#include "base/clock.h"
#include "base/status.h"
#include "cli/bench.h"
#include "cli/plan.h"
#include "cli/progress.h"
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>

#define DEFAULT_RUNS 5

/* The row of several prompts: the protocol of the report that this project answers. */
#define PROTOCOL_PROMPT   8  /* tokens of a prompt */
#define PROTOCOL_GENERATE 32 /* tokens of a continuation; the first comes from the prompt's own logits */

enum test_kind {
    TEST_PROMPT,   /* all tokens in one append */
    TEST_GENERATE, /* one by one */
    TEST_PROTOCOL, /* several short prompts, each continued greedily; only the continuation is timed */
};

struct test {
    enum test_kind kind;
    int64_t size;  /* tokens; TEST_PROTOCOL: prompts */
    int64_t depth; /* tokens before */
};

struct bench {
    const struct gs_bench_settings *settings;
    struct gs_bench_report *report;
    struct gs_engine *engine;
    struct gs_session *base; /* holds `depth` tokens; NULL: empty */
    int64_t n_ctx;
    int32_t *tokens; /* [n_ctx]: pseudo-random */
};

static int64_t largest(const struct gs_bench_list *list)
{
    int64_t most = 0;
    for (size_t i = 0; i < list->count; i++)
        most = list->values[i] > most ? list->values[i] : most;
    return most;
}

/* Tokens that the longest row needs. */
static int64_t count_context(const struct gs_bench_settings *settings)
{
    int64_t most = largest(&settings->prompt), generate = largest(&settings->generate);
    most = generate > most ? generate : most;
    if (settings->n_prompts > 0 && most < PROTOCOL_PROMPT + PROTOCOL_GENERATE)
        most = PROTOCOL_PROMPT + PROTOCOL_GENERATE;
    return largest(&settings->depth) + most;
}

static gs_status fill_tokens(struct bench *bench, struct gs_error *error)
{
    uint64_t state = 0x9e3779b97f4a7c15u, n_vocab = (uint64_t)gs_engine_info(bench->engine)->n_vocab;
    bench->tokens = calloc((size_t)bench->n_ctx, sizeof *bench->tokens);
    if (!bench->tokens)
        return gs_fail_memory(error, (uint64_t)bench->n_ctx * sizeof *bench->tokens);
    for (int64_t i = 0; i < bench->n_ctx; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        bench->tokens[i] = (int32_t)((state >> 33) % n_vocab);
    }
    return GS_OK;
}

static uint64_t count_weight_bytes(const struct bench *bench)
{
    struct gs_backend_stats stats;
    bench->engine->backend->stats(bench->engine->device, &stats);
    return stats.weight_bytes;
}

/* What a run took: the sum of its timed parts. */
struct cost {
    double seconds;
    double cpu_seconds; /* of all threads */
    uint64_t bytes;     /* of weights */
};

/* Subtracts where a timed part begins, adds where it ends. */
static void begin_part(const struct bench *bench, struct cost *cost)
{
    cost->bytes -= count_weight_bytes(bench);
    cost->seconds -= gs_clock_seconds();
    cost->cpu_seconds -= gs_bench_cpu_seconds();
}

static void end_part(const struct bench *bench, struct cost *cost)
{
    cost->cpu_seconds += gs_bench_cpu_seconds();
    cost->seconds += gs_clock_seconds();
    cost->bytes += count_weight_bytes(bench);
}

static gs_status open_session(struct bench *bench, struct gs_session **out, struct gs_error *error)
{
    return bench->base ? gs_session_fork(bench->base, out, error)
                       : gs_session_open(bench->engine, bench->n_ctx, out, error);
}

/* Continues `prompt` greedily; the steps are what is timed. */
static gs_status continue_prompt(struct bench *bench, const int32_t *prompt, struct cost *cost,
                                 struct gs_error *error)
{
    struct gs_session *session = NULL;
    struct gs_sampler *sampler = NULL;
    struct gs_sampling greedy = gs_sampling_default();
    greedy.temperature = 0.0f;
    size_t n_vocab = (size_t)gs_engine_info(bench->engine)->n_vocab;
    int32_t token = -1;
    gs_status status = open_session(bench, &session, error);
    if (status == GS_OK)
        status = gs_sampler_open(&greedy, n_vocab, &sampler, error);
    if (status == GS_OK)
        status = gs_session_append(session, prompt, PROTOCOL_PROMPT, error);
    if (status == GS_OK)
        status = gs_sampler_draw(sampler, gs_session_logits(session), NULL, 0, &token, error);
    begin_part(bench, cost);
    for (int i = 1; status == GS_OK && i < PROTOCOL_GENERATE; i++) {
        status = gs_session_append(session, &token, 1, error);
        if (status == GS_OK)
            status = gs_sampler_draw(sampler, gs_session_logits(session), NULL, 0, &token, error);
    }
    end_part(bench, cost);
    gs_sampler_close(sampler);
    gs_session_close(session);
    return status;
}

static gs_status append_tokens(struct bench *bench, const struct test *test, struct cost *cost,
                               struct gs_error *error)
{
    struct gs_session *session = NULL;
    const int32_t *tokens = bench->tokens + test->depth;
    gs_status status = open_session(bench, &session, error);
    begin_part(bench, cost);
    if (status == GS_OK && test->kind == TEST_PROMPT)
        status = gs_session_append(session, tokens, (size_t)test->size, error);
    for (int64_t i = 0; status == GS_OK && test->kind == TEST_GENERATE && i < test->size; i++)
        status = gs_session_append(session, &tokens[i], 1, error);
    end_part(bench, cost);
    gs_session_close(session);
    return status;
}

static gs_status run_once(struct bench *bench, const struct test *test, struct cost *cost,
                          struct gs_error *error)
{
    gs_status status = GS_OK;
    *cost = (struct cost){0};
    if (test->kind != TEST_PROTOCOL)
        return append_tokens(bench, test, cost, error);
    for (int64_t i = 0; status == GS_OK && i < test->size; i++) {
        int32_t prompt[PROTOCOL_PROMPT];
        for (int64_t k = 0; k < PROTOCOL_PROMPT; k++)
            prompt[k] = bench->tokens[(i * PROTOCOL_PROMPT + k) % bench->n_ctx];
        status = continue_prompt(bench, prompt, cost, error);
    }
    return status;
}

static void name_row(struct gs_bench_row *row, const struct test *test)
{
    static const char *const formats[] = {"pp%lld", "tg%lld", "%lld prompts x %d"};
    int size =
        snprintf(row->name, sizeof row->name, formats[test->kind], (long long)test->size, PROTOCOL_GENERATE);
    if (test->depth > 0 && size > 0 && (size_t)size < sizeof row->name)
        snprintf(row->name + size, sizeof row->name - (size_t)size, " @ d%lld", (long long)test->depth);
}

/* Of a run's timed part: a prompt needs the head for its last token alone. */
static uint64_t count_products(const struct bench *bench, const struct test *test, int64_t n_tokens)
{
    const struct gs_model_info *info = gs_engine_info(bench->engine);
    uint64_t head = (uint64_t)info->d_model * (uint64_t)info->n_vocab;
    uint64_t n_heads = test->kind == TEST_PROMPT ? 1 : (uint64_t)n_tokens;
    return (uint64_t)n_tokens * (info->n_param_active - head) + n_heads * head;
}

static gs_status run_test(struct bench *bench, const struct test *test,
                          const struct gs_bench_bandwidth *machine, struct gs_error *error)
{
    size_t n_runs = (size_t)(bench->settings->n_runs > 0 ? bench->settings->n_runs : DEFAULT_RUNS);
    struct gs_bench_row *row;
    struct gs_progress progress;
    gs_status status = gs_bench_row_add(bench->report, n_runs, &row, error);
    if (status != GS_OK)
        return status;
    name_row(row, test);
    row->n_threads = machine->n_threads;
    row->bandwidth = machine->bytes_per_second.median;
    row->depth = test->depth;
    row->n_tokens = test->kind == TEST_PROTOCOL ? test->size * (PROTOCOL_GENERATE - 1) : test->size;
    row->products = count_products(bench, test, row->n_tokens);
    uint64_t total = (n_runs + 1) * (uint64_t)row->n_tokens;
    struct cost cost;
    gs_progress_begin(&progress, row->name, false, total);
    status = run_once(bench, test, &cost, error);
    for (size_t i = 0; status == GS_OK && i < n_runs; i++) {
        gs_progress_update(&progress, (i + 1) * (uint64_t)row->n_tokens, total);
        status = run_once(bench, test, &cost, error);
        row->seconds[i] = cost.seconds;
        row->cpu_seconds += cost.cpu_seconds;
        row->thread_seconds += cost.seconds * (double)row->n_threads;
        row->bytes = cost.bytes;
    }
    gs_progress_end(&progress);
    gs_bench_note_memory(bench->report);
    return status;
}

static gs_status run_list(struct bench *bench, const struct gs_bench_list *sizes, enum test_kind kind,
                          int64_t depth, const struct gs_bench_bandwidth *machine, struct gs_error *error)
{
    gs_status status = GS_OK;
    for (size_t i = 0; status == GS_OK && i < sizes->count; i++) {
        struct test test = {kind, sizes->values[i], depth};
        if (test.size > 0)
            status = run_test(bench, &test, machine, error);
    }
    return status;
}

/* Brings the base session to `depth` tokens; 0: none. A longer context goes on from a shorter one. */
static gs_status fill_context(struct bench *bench, int64_t depth, struct gs_error *error)
{
    struct gs_progress progress;
    size_t count = 0;
    if (bench->base)
        gs_session_tokens(bench->base, &count);
    if (bench->base && count > (size_t)depth) {
        gs_session_close(bench->base);
        bench->base = NULL;
        count = 0;
    }
    if (depth == (int64_t)count)
        return GS_OK;
    gs_status status =
        bench->base ? GS_OK : gs_session_open(bench->engine, bench->n_ctx, &bench->base, error);
    if (status != GS_OK)
        return status;
    gs_progress_begin(&progress, "context", false, (uint64_t)depth - count);
    gs_session_on_progress(bench->base, gs_progress_update, &progress);
    status = gs_session_append(bench->base, bench->tokens + count, (size_t)depth - count, error);
    gs_session_on_progress(bench->base, NULL, NULL);
    gs_progress_end(&progress);
    return status;
}

static gs_status run_rows(struct bench *bench, const struct gs_bench_bandwidth *machine,
                          struct gs_error *error)
{
    const struct gs_bench_settings *settings = bench->settings;
    gs_status status = GS_OK;
    for (size_t d = 0; status == GS_OK && d < settings->depth.count; d++) {
        int64_t depth = settings->depth.values[d];
        struct test protocol = {TEST_PROTOCOL, settings->n_prompts, depth};
        status = fill_context(bench, depth, error);
        if (status == GS_OK)
            status = run_list(bench, &settings->prompt, TEST_PROMPT, depth, machine, error);
        if (status == GS_OK)
            status = run_list(bench, &settings->generate, TEST_GENERATE, depth, machine, error);
        if (status == GS_OK && protocol.size > 0)
            status = run_test(bench, &protocol, machine, error);
    }
    return status;
}

static gs_status open_engine(struct bench *bench, size_t n_threads, double *seconds, struct gs_error *error)
{
    struct gs_progress progress;
    struct gs_memory_plan plan;
    struct gs_engine_options options = {.backend = bench->settings->backend,
                                        .n_threads = n_threads,
                                        .progress = gs_progress_update,
                                        .progress_user = &progress};
    gs_progress_begin(&progress, "loading", true, 0);
    double start = gs_clock_seconds();
    gs_status status = gs_engine_open(bench->settings->model, &options, &bench->engine, error);
    *seconds = gs_clock_seconds() - start;
    gs_progress_end(&progress);
    if (status == GS_OK)
        status = gs_plan_make(bench->engine, bench->n_ctx, &plan, error);
    if (status == GS_OK)
        status = gs_plan_check(&plan, error);
    return status;
}

static gs_status run_threads(struct bench *bench, size_t n_threads, struct gs_error *error)
{
    struct gs_bench_bandwidth *machine;
    struct gs_bench_report *report = bench->report;
    gs_status status = gs_bench_measure_bandwidth(report, n_threads, &machine, error);
    if (status == GS_OK)
        status = open_engine(bench, n_threads, &machine->load_seconds, error);
    if (status == GS_OK && !bench->tokens)
        status = fill_tokens(bench, error);
    if (status == GS_OK) {
        report->backend = gs_engine_backend(bench->engine);
        report->info = *gs_engine_info(bench->engine);
        report->has_info = true;
        status = run_rows(bench, machine, error);
    }
    gs_session_close(bench->base);
    bench->base = NULL;
    gs_engine_close(bench->engine);
    bench->engine = NULL;
    return status;
}

gs_status gs_bench_model(const struct gs_bench_settings *settings, struct gs_bench_report *report,
                         struct gs_error *error)
{
    struct bench bench = {.settings = settings, .report = report, .n_ctx = count_context(settings)};
    gs_status status = GS_OK;
    report->kind = "model";
    for (size_t t = 0; status == GS_OK && t < settings->threads.count; t++)
        status = run_threads(&bench, (size_t)settings->threads.values[t], error);
    free(bench.tokens);
    return status;
}
