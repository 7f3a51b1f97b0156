/*
 * Rows of a whole model: reading a prompt, and generating, at several context depths and numbers of threads.
 * Tokens are pseudo-random and the same in every run, so a run reads the same weights each time; before the
 * timed runs of a row goes one that is not timed, which brings in the pages.
 */
#include "backend/cpu/fast_kernels.h"
#include "backend/cpu/kernels.h"
#include "base/clock.h"
#include "base/status.h"
#include "cli/bench.h"
#include "cli/number_names.h"
#include "cli/plan.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "engine/batch.h"
#include "engine/engine.h"
#include "engine/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_RUNS     5
#define FIRST_TOKEN_RUNS 3
#define LONG_WAIT        60.0 /* seconds */
#define CHAIN_TOKENS     128
#define STREAM_STRIDE    61 /* between the ids of two streams' tokens: equal ones would share experts */

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
    int64_t size;      /* tokens; TEST_PROTOCOL: prompts */
    int64_t depth;     /* tokens before */
    int64_t n_streams; /* TEST_GENERATE: contexts that advance at once; of the others 1 */
};

struct bench {
    struct gs_bench_settings *settings; /* fitted to the model once it is open */
    struct gs_bench_report *report;
    const struct gs_bench_limits *limits; /* with the number of threads under way */
    struct gs_engine *engine;
    struct gs_session *base; /* holds `depth` tokens; NULL: empty */
    bool is_cpu;             /* the limits are the processor's: of no other backend */
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

/* Tokens of the longest row, without those before. */
static int64_t longest_row(const struct gs_bench_settings *settings)
{
    int64_t most = largest(&settings->prompt), generate = largest(&settings->generate);
    most = generate > most ? generate : most;
    return settings->n_prompts > 0 && most < PROTOCOL_PROMPT + PROTOCOL_GENERATE
               ? PROTOCOL_PROMPT + PROTOCOL_GENERATE
               : most;
}

/* A frontier may end at the model's whole context: its last rows then begin so early that they end there. */
static void fit_frontier(struct bench *bench)
{
    struct gs_bench_list *depth = &bench->settings->depth;
    int64_t *last = &depth->values[depth->count - 1], max_ctx = gs_engine_info(bench->engine)->max_ctx;
    int64_t fitting = max_ctx - longest_row(bench->settings);
    int64_t before = depth->count > 1 ? depth->values[depth->count - 2] : 0;
    if (bench->settings->is_frontier && *last <= max_ctx && fitting < *last && fitting > before)
        *last = fitting;
    bench->n_ctx = largest(depth) + longest_row(bench->settings);
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

static struct gs_backend_stats read_stats(const struct bench *bench)
{
    struct gs_backend_stats stats = {0};
    bench->engine->backend->stats(bench->engine->device, &stats);
    return stats;
}

/* What a run took: the sum of its timed parts. */
struct cost {
    double seconds;
    double cpu_seconds; /* of all threads */
    double sampling;    /* of the seconds */
    double stages[GS_TIME_COUNT];
    uint64_t bytes; /* of weights */
    uint64_t command_buffers, encoders, dispatches;
};

/* Subtracts where a timed part begins, adds where it ends. */
static void begin_part(const struct bench *bench, struct cost *cost)
{
    struct gs_backend_stats stats = read_stats(bench);
    cost->bytes -= stats.weight_bytes;
    cost->command_buffers -= stats.n_command_buffers;
    cost->encoders -= stats.n_encoders;
    cost->dispatches -= stats.n_dispatches;
    for (int s = 0; s < GS_TIME_COUNT; s++)
        cost->stages[s] -= stats.stage_seconds[s];
    /* The clock last, and first at the end: the other is a call where a thread often loses its processor. */
    cost->cpu_seconds -= gs_bench_cpu_seconds();
    cost->seconds -= gs_clock_seconds();
}

static void end_part(const struct bench *bench, struct cost *cost)
{
    cost->seconds += gs_clock_seconds();
    cost->cpu_seconds += gs_bench_cpu_seconds();
    struct gs_backend_stats stats = read_stats(bench);
    for (int s = 0; s < GS_TIME_COUNT; s++)
        cost->stages[s] += stats.stage_seconds[s];
    cost->bytes += stats.weight_bytes;
    cost->command_buffers += stats.n_command_buffers;
    cost->encoders += stats.n_encoders;
    cost->dispatches += stats.n_dispatches;
}

static gs_status draw(struct gs_sampler *sampler, struct gs_session *session, struct cost *cost,
                      int32_t *token, struct gs_error *error)
{
    double start = gs_clock_seconds();
    gs_status status = gs_sampler_draw(sampler, gs_session_logits(session), NULL, 0, token, error);
    cost->sampling += gs_clock_seconds() - start;
    return status;
}

static gs_status open_sampler(const struct bench *bench, struct gs_sampler **out, struct gs_error *error)
{
    struct gs_sampling greedy = gs_sampling_default();
    greedy.temperature = 0.0f;
    return gs_sampler_open(&greedy, (size_t)gs_engine_info(bench->engine)->n_vocab, out, error);
}

static gs_status open_session(struct bench *bench, struct gs_session **out, struct gs_error *error)
{
    return gs_plan_status(bench->base ? gs_session_fork(bench->base, out, error)
                                      : gs_session_open(bench->engine, bench->n_ctx, out, error));
}

/* Continues `prompt` greedily; the steps are what is timed. */
static gs_status continue_prompt(struct bench *bench, const int32_t *prompt, struct cost *cost,
                                 struct gs_error *error)
{
    struct gs_session *session = NULL;
    struct gs_sampler *sampler = NULL;
    struct cost untimed = {0};
    int32_t token = -1;
    gs_status status = open_session(bench, &session, error);
    if (status == GS_OK)
        status = open_sampler(bench, &sampler, error);
    if (status == GS_OK)
        status = gs_session_append(session, prompt, PROTOCOL_PROMPT, error);
    if (status == GS_OK)
        status = draw(sampler, session, &untimed, &token, error);
    begin_part(bench, cost);
    for (int i = 1; status == GS_OK && i < PROTOCOL_GENERATE; i++) {
        status = gs_session_append(session, &token, 1, error);
        if (status == GS_OK)
            status = draw(sampler, session, cost, &token, error);
    }
    end_part(bench, cost);
    gs_sampler_close(sampler);
    gs_session_close(session);
    return status;
}

/* The tokens of a chain are its own: greedy ones, chosen on the device. */
static gs_status run_chains(struct bench *bench, const struct test *test, struct gs_session *session,
                            struct gs_error *error)
{
    int32_t out[CHAIN_TOKENS], next = bench->tokens[test->depth];
    const struct gs_engine *engine = bench->engine;
    gs_status status = GS_OK;
    for (int64_t done = 0; status == GS_OK && done < test->size; done += CHAIN_TOKENS) {
        int64_t n = test->size - done < CHAIN_TOKENS ? test->size - done : CHAIN_TOKENS;
        status = engine->backend->chain(engine->device, session->kv, next, NULL, out, (size_t)n, error);
        next = out[n - 1];
    }
    return status;
}

/*
 * The tokens of a generation are the same in every run, whatever the logits say. Other engines' benchmarks
 * draw none; a profile does, to know what that costs.
 */
static gs_status append_tokens(struct bench *bench, const struct test *test, struct cost *cost,
                               struct gs_error *error)
{
    struct gs_session *session = NULL;
    struct gs_sampler *sampler = NULL;
    const int32_t *tokens = bench->tokens + test->depth;
    int32_t drawn;
    gs_status status = open_session(bench, &session, error);
    if (status == GS_OK && bench->settings->profile)
        status = open_sampler(bench, &sampler, error);
    begin_part(bench, cost);
    if (status == GS_OK && test->kind == TEST_PROMPT)
        status = gs_session_append(session, tokens, (size_t)test->size, error);
    bool is_chain = bench->settings->chain && test->kind == TEST_GENERATE;
    if (status == GS_OK && is_chain)
        status = run_chains(bench, test, session, error);
    for (int64_t i = 0; status == GS_OK && test->kind == TEST_GENERATE && !is_chain && i < test->size; i++) {
        status = gs_session_append(session, &tokens[i], 1, error);
        if (status == GS_OK && sampler)
            status = draw(sampler, session, cost, &drawn, error);
    }
    end_part(bench, cost);
    gs_sampler_close(sampler);
    gs_session_close(session);
    return status;
}

/* One step gives each stream its next token; as a server asks for it: the token, not the logits. */
static gs_status step_streams(struct bench *bench, const struct test *test, struct gs_session *const *streams,
                              int64_t step, struct gs_error *error)
{
    struct gs_batch_item items[GS_BENCH_MAX_STREAMS];
    int32_t tokens[GS_BENCH_MAX_STREAMS], chosen;
    int64_t n_vocab = gs_engine_info(bench->engine)->n_vocab;
    const float *row;
    for (int64_t i = 0; i < test->n_streams; i++) {
        tokens[i] = (int32_t)((bench->tokens[test->depth + step] + i * STREAM_STRIDE) % n_vocab);
        items[i] = (struct gs_batch_item){streams[i], &tokens[i], 1, GS_WANT_TOKEN, NULL, &chosen, &row};
    }
    return gs_batch_run(bench->engine, items, (size_t)test->n_streams, NULL, NULL, NULL, error);
}

static gs_status run_streams(struct bench *bench, const struct test *test, struct cost *cost,
                             struct gs_error *error)
{
    struct gs_session *streams[GS_BENCH_MAX_STREAMS] = {NULL};
    size_t most = gs_batch_max_tokens(bench->engine);
    gs_status status = GS_OK;
    if ((size_t)test->n_streams > most)
        return gs_fail(error, GS_INVALID_ARGUMENT, "--streams: a step of this backend has %zu tokens at most",
                       most);
    for (int64_t i = 0; status == GS_OK && i < test->n_streams; i++)
        status = open_session(bench, &streams[i], error);
    begin_part(bench, cost);
    for (int64_t step = 0; status == GS_OK && step < test->size; step++)
        status = step_streams(bench, test, streams, step, error);
    end_part(bench, cost);
    for (int64_t i = 0; i < test->n_streams; i++)
        gs_session_close(streams[i]);
    return status;
}

static gs_status run_once(struct bench *bench, const struct test *test, struct cost *cost,
                          struct gs_error *error)
{
    gs_status status = GS_OK;
    *cost = (struct cost){0};
    if (test->n_streams > 1)
        return run_streams(bench, test, cost, error);
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
    char name[32], streams[32] = "";
    if (test->n_streams > 1)
        snprintf(streams, sizeof streams, "%lld x ", (long long)test->n_streams);
    snprintf(name, sizeof name, formats[test->kind], (long long)test->size, PROTOCOL_GENERATE);
    int size = snprintf(row->name, sizeof row->name, "%s%s", streams, name);
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

/* Of the cache, that generating one by one reads: all positions in full layers, `window` in the others. */
static uint64_t count_kv_bytes(const struct bench *bench, const struct test *test)
{
    const struct gs_config *config = &bench->engine->weights->config;
    const struct gs_backend *backend = bench->engine->backend;
    const int64_t some =
        1 << 20; /* tokens by which a cache grows where it grows evenly: no ring is as long */
    uint64_t grown =
        backend->kv_bytes(bench->engine->device, 2 * some) - backend->kv_bytes(bench->engine->device, some);
    int64_t n_full = 0, n_window = 0, sum = 0;
    for (int64_t layer = 0; layer < config->n_layer; layer++)
        n_window += config->layer_is_window[layer];
    n_full = config->n_layer - n_window;
    if (test->kind != TEST_GENERATE || n_full == 0)
        return 0;
    for (int64_t i = 1; i <= test->size; i++) {
        int64_t n = test->depth + i, seen = n < config->window ? n : config->window;
        sum += n_full * n + n_window * seen;
    }
    return grown * (uint64_t)sum / (uint64_t)(some * n_full) * (uint64_t)test->n_streams;
}

static gs_status add_row(struct bench *bench, const struct test *test, size_t n_runs,
                         struct gs_bench_row **out, struct gs_error *error)
{
    const struct gs_bench_limits *limits = bench->limits;
    enum gs_measure_type type =
        bench->settings->engine.precision == GS_PRECISION_EXACT ? GS_MEASURE_F32 : GS_MEASURE_INT8;
    gs_status status = gs_bench_row_add(bench->report, n_runs, out, error);
    if (status != GS_OK)
        return status;
    struct gs_bench_row *row = *out;
    name_row(row, test);
    row->n_threads = limits->n_threads;
    if (bench->is_cpu) {
        row->bandwidth = limits->bytes_per_second.median;
        row->peak = limits->products_per_second[type].median;
    }
    row->depth = test->depth;
    row->n_streams = test->n_streams;
    row->n_tokens =
        test->kind == TEST_PROTOCOL ? test->size * (PROTOCOL_GENERATE - 1) : test->size * test->n_streams;
    row->products = count_products(bench, test, row->n_tokens);
    row->kv_bytes = count_kv_bytes(bench, test);
    row->has_profile = bench->settings->profile;
    return GS_OK;
}

static void note_run(const struct bench *bench, struct gs_bench_row *row, size_t run, const struct cost *cost)
{
    double rest = cost->seconds - cost->sampling;
    row->seconds[run] = cost->seconds;
    row->cpu_seconds += cost->cpu_seconds;
    /* Of another backend the threads do not do the work. */
    row->thread_seconds += bench->is_cpu ? cost->seconds * (double)row->n_threads : 0.0;
    row->bytes = cost->bytes;
    row->command_buffers = cost->command_buffers;
    row->encoders = cost->encoders;
    row->dispatches = cost->dispatches;
    for (int s = 0; s < GS_TIME_COUNT; s++) {
        row->stage_seconds[s] += cost->stages[s];
        rest -= cost->stages[s];
    }
    row->stage_seconds[GS_BENCH_SAMPLING] += cost->sampling;
    row->stage_seconds[GS_BENCH_OUTSIDE] += rest;
}

static gs_status run_test(struct bench *bench, const struct test *test, struct gs_error *error)
{
    size_t n_runs = (size_t)(bench->settings->n_runs > 0 ? bench->settings->n_runs : DEFAULT_RUNS);
    struct gs_bench_row *row;
    struct gs_progress progress;
    struct cost cost;
    gs_status status = add_row(bench, test, n_runs, &row, error);
    if (status != GS_OK)
        return status;
    uint64_t total = (n_runs + 1) * (uint64_t)row->n_tokens;
    gs_progress_begin(&progress, row->name, false, total);
    status = run_once(bench, test, &cost, error);
    for (size_t i = 0; status == GS_OK && i < n_runs; i++) {
        gs_progress_update(&progress, (i + 1) * (uint64_t)row->n_tokens, total);
        status = run_once(bench, test, &cost, error);
        note_run(bench, row, i, &cost);
    }
    gs_progress_end(&progress);
    gs_bench_note_memory(bench->report);
    return status;
}

/* Rows of one size: of a generation, one for each number of streams. */
static size_t count_widths(const struct gs_bench_settings *settings, enum test_kind kind)
{
    return kind == TEST_GENERATE ? settings->streams.count : 1;
}

static gs_status run_list(struct bench *bench, const struct gs_bench_list *sizes, enum test_kind kind,
                          int64_t depth, struct gs_error *error)
{
    gs_status status = GS_OK;
    for (size_t i = 0; status == GS_OK && i < sizes->count; i++) {
        struct test test = {kind, sizes->values[i], depth, 1};
        for (size_t s = 0; status == GS_OK && test.size > 0 && s < count_widths(bench->settings, kind); s++) {
            if (kind == TEST_GENERATE)
                test.n_streams = bench->settings->streams.values[s];
            status = run_test(bench, &test, error);
        }
    }
    return status;
}

/* At the rate of what was read so far, the contexts still to come: told where a person would have to wait. */
static void tell_cost(const struct bench *bench, int64_t from, int64_t read, double seconds)
{
    const struct gs_bench_list *depth = &bench->settings->depth;
    double left = (double)(depth->values[depth->count - 1] - from - read) / (double)read * seconds;
    if (left > LONG_WAIT)
        fprintf(
            stderr,
            "bench: a context of %lld tokens took %.0f s to read; the longest, of %lld, takes %.0f minutes "
            "more at this rate\n",
            (long long)(from + read), seconds, (long long)depth->values[depth->count - 1], left / 60.0);
}

/* What reading the tokens of a frontier's step took is a row of its own, of one run. */
static gs_status note_step(struct bench *bench, int64_t from, int64_t read, const struct cost *cost,
                           struct gs_error *error)
{
    struct test test = {TEST_PROMPT, read, from, 1};
    struct gs_bench_row *row;
    gs_status status = add_row(bench, &test, 1, &row, error);
    if (status == GS_OK)
        note_run(bench, row, 0, cost);
    return status;
}

/* Brings the base session to `depth` tokens; 0: none. A longer context goes on from a shorter one. */
static gs_status fill_context(struct bench *bench, int64_t depth, struct gs_error *error)
{
    struct gs_progress progress;
    struct cost cost = {0};
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
    int64_t from = (int64_t)count, read = depth - from;
    gs_progress_begin(&progress, "context", false, (uint64_t)read);
    gs_session_on_progress(bench->base, gs_progress_update, &progress);
    begin_part(bench, &cost);
    status = gs_session_append(bench->base, bench->tokens + count, (size_t)read, error);
    end_part(bench, &cost);
    gs_session_on_progress(bench->base, NULL, NULL);
    gs_progress_end(&progress);
    if (status == GS_OK && from == 0)
        tell_cost(bench, from, read, cost.seconds);
    return status == GS_OK && bench->settings->is_frontier ? note_step(bench, from, read, &cost, error)
                                                           : status;
}

static gs_status run_rows(struct bench *bench, struct gs_error *error)
{
    const struct gs_bench_settings *settings = bench->settings;
    gs_status status = GS_OK;
    for (size_t d = 0; status == GS_OK && d < settings->depth.count; d++) {
        int64_t depth = settings->depth.values[d];
        struct test protocol = {TEST_PROTOCOL, settings->n_prompts, depth, 1};
        status = fill_context(bench, depth, error);
        if (status == GS_OK)
            status = run_list(bench, &settings->prompt, TEST_PROMPT, depth, error);
        if (status == GS_OK)
            status = run_list(bench, &settings->generate, TEST_GENERATE, depth, error);
        if (status == GS_OK && protocol.size > 0)
            status = run_test(bench, &protocol, error);
    }
    return status;
}

/* ---------------------------------------------------------------- rows in turn */

/* All rows with the same number of threads, and the context of each depth. */
struct turns {
    struct test tests[GS_BENCH_MAX_ROWS]; /* by depth */
    size_t depth_of[GS_BENCH_MAX_ROWS];   /* its place in the list */
    size_t n_tests;
    size_t n_per_depth;
    size_t first_row;                            /* of the report */
    struct gs_session *bases[GS_BENCH_MAX_LIST]; /* NULL: empty */
};

static gs_status add_turns(const struct gs_bench_settings *settings, struct turns *turns,
                           const struct gs_bench_list *sizes, enum test_kind kind, size_t depth_index,
                           int64_t depth, struct gs_error *error)
{
    size_t n_widths = count_widths(settings, kind);
    for (size_t i = 0; i < sizes->count * n_widths; i++) {
        int64_t size = sizes->values[i / n_widths];
        if (size == 0)
            continue;
        if (turns->n_tests == GS_BENCH_MAX_ROWS)
            return gs_fail(error, GS_INVALID_ARGUMENT, "more than %d rows: shorten the lists",
                           GS_BENCH_MAX_ROWS);
        int64_t n_streams = kind == TEST_GENERATE ? settings->streams.values[i % n_widths] : 1;
        turns->depth_of[turns->n_tests] = depth_index;
        turns->tests[turns->n_tests++] = (struct test){kind, size, depth, n_streams};
    }
    return GS_OK;
}

/* Every depth's rows in the same order. */
static gs_status list_turns(const struct gs_bench_settings *settings, struct turns *turns,
                            struct gs_error *error)
{
    const struct gs_bench_list protocol = {.values = {settings->n_prompts}, .count = 1};
    gs_status status = GS_OK;
    for (size_t d = 0; status == GS_OK && d < settings->depth.count; d++) {
        int64_t depth = settings->depth.values[d];
        status = add_turns(settings, turns, &settings->prompt, TEST_PROMPT, d, depth, error);
        if (status == GS_OK)
            status = add_turns(settings, turns, &settings->generate, TEST_GENERATE, d, depth, error);
        if (status == GS_OK)
            status = add_turns(settings, turns, &protocol, TEST_PROTOCOL, d, depth, error);
        if (d == 0)
            turns->n_per_depth = turns->n_tests;
    }
    return status;
}

/* A context for each depth, which stays; a longer one begins as a copy of the one before. */
static gs_status fill_contexts(struct bench *bench, struct turns *turns, struct gs_error *error)
{
    const struct gs_bench_list *depth = &bench->settings->depth;
    gs_status status = GS_OK;
    for (size_t d = 0; status == GS_OK && d < depth->count; d++) {
        if (d > 0 && turns->bases[d - 1])
            status = gs_session_fork(turns->bases[d - 1], &bench->base, error);
        if (status == GS_OK)
            status = fill_context(bench, depth->values[d], error);
        turns->bases[d] = bench->base;
        bench->base = NULL;
    }
    return status;
}

static gs_status run_rounds(struct bench *bench, const struct turns *turns, size_t n_runs,
                            struct gs_error *error)
{
    struct gs_progress progress;
    struct cost cost;
    gs_status status = GS_OK;
    uint64_t total = (n_runs + 1) * turns->n_tests;
    gs_progress_begin(&progress, "rows in turn", false, total);
    for (size_t step = 0; status == GS_OK && step < total; step++) {
        size_t round = step / turns->n_tests, t = step % turns->n_tests; /* round 0 is not timed */
        bench->base = turns->bases[turns->depth_of[t]];
        status = run_once(bench, &turns->tests[t], &cost, error);
        bench->base = NULL;
        if (round > 0)
            note_run(bench, &bench->report->rows[turns->first_row + t], round - 1, &cost);
        gs_progress_update(&progress, step + 1, total);
    }
    gs_progress_end(&progress);
    gs_bench_note_memory(bench->report);
    return status;
}

/* A run of each row, then the next of each: what changes slowly changes all of them. */
static gs_status run_in_turn(struct bench *bench, struct gs_error *error)
{
    size_t n_runs = (size_t)(bench->settings->n_runs > 0 ? bench->settings->n_runs : DEFAULT_RUNS);
    struct turns *turns = calloc(1, sizeof *turns);
    if (!turns)
        return gs_fail_memory(error, sizeof *turns);
    turns->first_row = bench->report->n_rows;
    gs_status status = list_turns(bench->settings, turns, error);
    for (size_t t = 0; status == GS_OK && t < turns->n_tests; t++) {
        struct gs_bench_row *row;
        status = add_row(bench, &turns->tests[t], n_runs, &row, error);
        if (status != GS_OK)
            break;
        row->is_in_turn = true;
        row->first = turns->first_row + t % turns->n_per_depth;
    }
    if (status == GS_OK)
        status = fill_contexts(bench, turns, error);
    if (status == GS_OK)
        status = run_rounds(bench, turns, n_runs, error);
    for (size_t d = 0; d < GS_BENCH_MAX_LIST; d++)
        gs_session_close(turns->bases[d]);
    free(turns);
    return status;
}

static gs_status open_engine(struct bench *bench, size_t n_threads, struct gs_error *error)
{
    struct gs_engine_options options = bench->settings->engine;
    options.n_threads = n_threads;
    return gs_plan_open(bench->settings->model, &options, &bench->engine, error);
}

static gs_status check_plan(const struct bench *bench, struct gs_error *error)
{
    struct gs_memory_plan plan;
    gs_status status = gs_plan_make(bench->engine, bench->n_ctx, &plan, error);
    if (status == GS_OK)
        status = gs_plan_require(&plan, error);
    uint64_t n_caches = bench->settings->in_turn ? bench->settings->depth.count + 1 : 1;
    if (status != GS_OK || plan.available_bytes == 0 ||
        plan.kv_bytes <= (plan.available_bytes - plan.scratch_bytes) / n_caches)
        return status;
    return gs_fail(
        error, GS_INVALID_ARGUMENT,
        "--in-turn keeps %llu contexts of %lld tokens, %s each, but %s are free: name fewer depths",
        (unsigned long long)n_caches, (long long)bench->n_ctx, gs_size_text(plan.kv_bytes).text,
        gs_size_text(plan.available_bytes - plan.scratch_bytes).text);
}

static void close_engine(struct bench *bench)
{
    gs_session_close(bench->base);
    bench->base = NULL;
    gs_engine_close(bench->engine);
    bench->engine = NULL;
}

/*
 * From nothing to the first token: the model opened and loaded again, a prompt of one token, one draw. The
 * rows before have brought the pages in.
 */
static gs_status time_first_token(struct bench *bench, size_t n_threads, double *seconds,
                                  struct gs_error *error)
{
    double times[FIRST_TOKEN_RUNS] = {0};
    struct cost cost = {0};
    int32_t token;
    gs_status status = GS_OK;
    for (size_t i = 0; status == GS_OK && i < FIRST_TOKEN_RUNS; i++) {
        struct gs_session *session = NULL;
        struct gs_sampler *sampler = NULL;
        close_engine(bench);
        double start = gs_clock_seconds();
        status = open_engine(bench, n_threads, error);
        if (status == GS_OK)
            status = gs_session_open(bench->engine, bench->n_ctx, &session, error);
        if (status == GS_OK)
            status = open_sampler(bench, &sampler, error);
        if (status == GS_OK)
            status = gs_session_append(session, bench->tokens, 1, error);
        if (status == GS_OK)
            status = draw(sampler, session, &cost, &token, error);
        times[i] = gs_clock_seconds() - start;
        gs_sampler_close(sampler);
        gs_session_close(session);
    }
    *seconds = gs_bench_spread(times, FIRST_TOKEN_RUNS).median;
    return status;
}

/* The instruction set of the kernels that the rows are about. */
static void name_isa(const struct bench *bench, struct gs_bench_report *report)
{
    const struct gs_engine_options *options = &bench->settings->engine;
    const char *isa =
        options->precision == GS_PRECISION_EXACT ? gs_kernels_best()->isa : gs_fast_kernels_best()->isa;
    isa = !bench->is_cpu ? "" : options->cpu_features ? options->cpu_features : isa;
    snprintf(report->isa, sizeof report->isa, "%s", isa);
}

static gs_status run_threads(struct bench *bench, size_t n_threads, struct gs_error *error)
{
    struct gs_bench_limits *limits;
    struct gs_bench_report *report = bench->report;
    gs_status status = gs_bench_measure_limits(report, n_threads, &limits, error);
    bench->limits = limits;
    if (status != GS_OK)
        return status;
    double start = gs_clock_seconds();
    status = open_engine(bench, n_threads, error);
    limits->load_seconds = gs_clock_seconds() - start;
    if (status == GS_OK)
        fit_frontier(bench);
    if (status == GS_OK)
        status = check_plan(bench, error);
    if (status == GS_OK && !bench->tokens)
        status = fill_tokens(bench, error);
    if (status == GS_OK && bench->settings->chain && !bench->engine->backend->chain)
        status = gs_fail(error, GS_UNSUPPORTED, "--chain: the %s backend chooses no tokens on its device",
                         gs_engine_backend(bench->engine));
    if (status == GS_OK) {
        report->backend = gs_engine_backend(bench->engine);
        bench->is_cpu = strcmp(report->backend, "cpu") == 0;
        name_isa(bench, report);
        report->info = *gs_engine_info(bench->engine);
        report->has_info = true;
        status = bench->settings->in_turn ? run_in_turn(bench, error) : run_rows(bench, error);
    }
    if (status == GS_OK)
        status = time_first_token(bench, n_threads, &limits->first_token_seconds, error);
    close_engine(bench);
    return status == GS_OK && bench->is_cpu ? gs_bench_measure_again(limits, error) : status;
}

gs_status gs_bench_model(const struct gs_bench_settings *settings, struct gs_bench_report *report,
                         struct gs_error *error)
{
    struct gs_bench_settings fitted = *settings;
    struct bench bench = {.settings = &fitted, .report = report};
    gs_status status = GS_OK;
    gs_warn_untested(settings->engine.backend);
    report->kind = "model";
    report->precision = gs_precision_name(settings->engine.precision);
    report->weights = gs_weight_format_name(settings->engine.weights);
    for (size_t t = 0; status == GS_OK && t < settings->threads.count; t++)
        status = run_threads(&bench, (size_t)settings->threads.values[t], error);
    free(bench.tokens);
    return status;
}
