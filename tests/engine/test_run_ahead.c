/*
 * Tokens that a backend chooses by itself, in chains and in batches, are those that the sampler draws from
 * its logits; and whoever stops, cancels or changes the subject finds the session as if there were no chains.
 * The backend is the CPU's with chains and draws made by plain loops.
 */
#include "backend/cpu/cpu.h"
#include "base/math.h"
#include "base/status.h"
#include "engine/batch.h"
#include "engine/engine.h"
#include "engine/sample.h"
#include "engine/session.h"
#include "engine/source.h"
#include "tests/support/check.h"
#include "tests/support/tiny_engine.h"

#include <stdlib.h>

#define N_VOCAB  128
#define N_CTX    90
#define N_PROMPT 20 /* past the window of 16 */
#define MANY     N_CTX

/* ---------------------------------------------------------------- a backend that chooses */

static struct gs_backend choosing;

/* What it did, and what it is to do; one test at a time. */
static struct {
    size_t n_chain, n_step, longest; /* chains, the steps in them, and the longest one's */
    int64_t in_doubt;                /* the token behind so many cannot be told; 0: all can */
    size_t fail_at;                  /* chain number: it fails; 0: none does */
    struct gs_session *cancels;      /* this session is cancelled in its next chain */
    bool many;                       /* no token of a forward can be told */
    struct gs_draw draws[64];        /* of the rows of the last forward; temperature 0: greedily */
    bool wants[64];                  /* was a token wanted of it? */
} backend;

static int32_t choose(const float *logits, const struct gs_draw *draw)
{
    int32_t best = 0;
    double total = 0.0, sum = 0.0;
    for (int32_t i = 1; i < N_VOCAB; i++)
        best = logits[i] > logits[best] ? i : best;
    if (!draw || draw->temperature == 0.0f)
        return best;
    for (int32_t i = 0; i < N_VOCAB; i++)
        total += gs_exp64(((double)logits[i] - (double)logits[best]) / (double)draw->temperature);
    for (int32_t i = 0; i < N_VOCAB; i++) {
        sum += gs_exp64(((double)logits[i] - (double)logits[best]) / (double)draw->temperature);
        if (sum > draw->uniform * total)
            return i;
    }
    return -1;
}

static gs_status chain(struct gs_device *device, struct gs_kv *kv, int32_t token, const struct gs_draw *draws,
                       int32_t *out, size_t n, struct gs_error *error)
{
    int64_t before = gs_backend_cpu.kv_length(kv);
    assert_in_range(n, 1, GS_CHAIN_TOKENS);
    backend.n_chain++;
    backend.n_step += n;
    backend.longest = n > backend.longest ? n : backend.longest;
    for (size_t i = 0; i < n; i++) {
        struct gs_step step = {kv, &token, 1, GS_WANT_LAST, NULL};
        gs_status status = gs_backend_cpu.forward(device, &step, 1, NULL, error);
        if (status == GS_OK && backend.n_chain == backend.fail_at && i + 1 == n)
            status = gs_fail(error, GS_IO, "made to fail");
        if (status != GS_OK) {
            assert_int_equal(gs_backend_cpu.kv_truncate(kv, before), before);
            return status;
        }
        out[i] = choose(gs_backend_cpu.logits(device, 0), draws ? &draws[i] : NULL);
        if (gs_backend_cpu.kv_length(kv) == backend.in_doubt)
            out[i] = -1;
        token = out[i] < 0 ? 0 : out[i];
    }
    if (backend.cancels)
        gs_session_cancel(backend.cancels);
    backend.cancels = NULL;
    return GS_OK;
}

static gs_status forward(struct gs_device *device, const struct gs_step *steps, size_t n_steps,
                         const _Atomic bool *cancelled, struct gs_error *error)
{
    size_t row = 0;
    for (size_t i = 0; i < n_steps; i++) {
        size_t n = steps[i].want == GS_WANT_ALL ? steps[i].n_tokens : steps[i].want != GS_WANT_NONE;
        assert_true(steps[i].want == GS_WANT_TOKEN || !steps[i].draw);
        for (size_t r = 0; r < n && row < 64; r++, row++) {
            backend.wants[row] = steps[i].want == GS_WANT_TOKEN;
            backend.draws[row] = steps[i].draw ? *steps[i].draw : (struct gs_draw){0};
        }
    }
    return gs_backend_cpu.forward(device, steps, n_steps, cancelled, error);
}

static int32_t chosen(const struct gs_device *device, size_t row)
{
    if (!backend.wants[row] || backend.many)
        return -1;
    union { /* logits() of another backend fetches them: it takes a device that changes */
        const struct gs_device *given;
        struct gs_device *taken;
    } same = {.given = device};
    return choose(gs_backend_cpu.logits(same.taken, row), &backend.draws[row]);
}

/* ---------------------------------------------------------------- a model on it */

static char *folder;
static struct gs_engine *engine;

static int set_up(void **state)
{
    struct tiny_options options = tiny_options_default();
    (void)state;
    options.n_vocab = N_VOCAB;
    options.n_layer = 2;
    struct gs_engine_options how = {.backend = "cpu", .n_threads = 1};
    engine = tiny_engine_open(&options, &how, &folder);
    choosing = gs_backend_cpu;
    choosing.chain = chain;
    choosing.forward = forward;
    choosing.chosen = chosen;
    choosing.chooses = choosing.draws = true;
    engine->backend = &choosing;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    engine->backend = &gs_backend_cpu;
    tiny_engine_close(engine, folder);
    return 0;
}

struct run {
    struct gs_session *session;
    struct gs_sampler *sampler;
    struct gs_source *source;
};

/* A session with a prompt, and its source. */
static struct run open_run(const struct gs_sampling *sampling)
{
    struct run run;
    struct gs_error error;
    int32_t prompt[N_PROMPT];
    for (int32_t i = 0; i < N_PROMPT; i++)
        prompt[i] = (i * 37 + 5) % N_VOCAB;
    memset(&backend, 0, sizeof backend);
    assert_ok(gs_session_open(engine, N_CTX, &run.session, &error), &error);
    assert_ok(gs_sampler_open(sampling, N_VOCAB, &run.sampler, &error), &error);
    assert_ok(gs_session_sync(run.session, prompt, N_PROMPT, NULL, &error), &error);
    assert_ok(gs_source_open_model(run.session, run.sampler, &run.source, &error), &error);
    gs_source_set_patience(run.source, 1e9);
    return run;
}

static void close_run(struct run *run)
{
    gs_source_close(run->source);
    gs_session_close(run->session);
    gs_sampler_close(run->sampler);
}

static struct gs_sampling sampling_of(float temperature)
{
    struct gs_sampling sampling = gs_sampling_default();
    sampling.temperature = temperature;
    sampling.seed = 77;
    return sampling;
}

static int32_t next(struct run *run)
{
    int32_t token;
    struct gs_error error;
    assert_ok(gs_source_next(run->source, &token, &error), &error);
    return token;
}

/* All tokens until the context is full, without running ahead; returns their number. */
static size_t draw_all(const struct gs_sampling *sampling, int32_t *tokens)
{
    struct run run = open_run(sampling);
    size_t n = 0;
    while ((tokens[n] = next(&run)) >= 0)
        n++;
    assert_int_equal(backend.n_chain, 0);
    assert_int_equal(n, N_CTX - N_PROMPT + 1);
    close_run(&run);
    return n;
}

/* The session holds the prompt and the first n - 1 of these, of which the n-th was drawn. */
static void assert_timeline(const struct run *run, const int32_t *tokens, size_t n)
{
    size_t count, generated = n > 0 ? n - 1 : 0;
    const int32_t *held = gs_session_tokens(run->session, &count);
    assert_int_equal(count, N_PROMPT + generated);
    assert_memory_equal(held + N_PROMPT, tokens, generated * sizeof *tokens);
}

/* ---------------------------------------------------------------- chains */

static const float temperatures[] = {0.0f, 1.0f, 0.6f};
#define N_TEMPERATURES (sizeof temperatures / sizeof *temperatures)

static void the_same_tokens_come_out(void **state)
{
    (void)state;
    for (size_t t = 0; t < N_TEMPERATURES; t++) {
        int32_t tokens[MANY];
        struct gs_sampling sampling = sampling_of(temperatures[t]);
        size_t n = draw_all(&sampling, tokens);
        for (int clock = 0; clock < 2; clock++) {
            struct run run = open_run(&sampling);
            if (clock == 1)
                gs_source_set_patience(run.source, 0.0);
            gs_source_run_ahead(run.source, -1);
            for (size_t i = 0; i < n; i++)
                assert_int_equal(next(&run), tokens[i]);
            assert_int_equal(next(&run), -1);
            assert_int_equal(next(&run), -1);
            assert_timeline(&run, tokens, n);
            /* 1, 2, 4, 8, 16, 32, and what is left of the context */
            assert_int_equal(backend.n_step, n - 1);
            assert_int_equal(backend.longest, clock == 0 ? 32 : 1);
            assert_true(clock == 1 || backend.n_chain < 10);
            close_run(&run);
        }
    }
}

/* Who takes k tokens and stops has the timeline of k single steps, and goes on from it. */
static void a_stop_cuts_the_timeline_back(void **state)
{
    (void)state;
    for (size_t t = 0; t < N_TEMPERATURES; t++) {
        int32_t tokens[MANY];
        struct gs_sampling sampling = sampling_of(temperatures[t]);
        size_t n = draw_all(&sampling, tokens);
        for (size_t k = 0; k < n; k += k < 20 ? 1 : 7) {
            struct run run = open_run(&sampling);
            struct gs_session *fresh;
            struct gs_error error;
            int32_t further[] = {3, 1};
            gs_source_run_ahead(run.source, -1);
            for (size_t i = 0; i < k; i++)
                assert_int_equal(next(&run), tokens[i]);
            if (k % 2 == 0)
                gs_source_run_ahead(run.source, 0);
            else
                gs_source_close(run.source);
            assert_timeline(&run, tokens, k);
            assert_ok(gs_session_append(run.session, further, 1, &error), &error);
            size_t count;
            const int32_t *held = gs_session_tokens(run.session, &count);
            assert_ok(gs_session_open(engine, N_CTX, &fresh, &error), &error);
            assert_ok(gs_session_sync(fresh, held, count, NULL, &error), &error);
            assert_memory_equal(gs_session_logits(run.session), gs_session_logits(fresh),
                                N_VOCAB * sizeof(float));
            gs_session_close(fresh);
            run.source = k % 2 == 0 ? run.source : NULL;
            close_run(&run);
        }
    }
}

/* Nothing is run that nobody can want: as many tokens as were announced, in all. */
static void the_most_is_not_passed(void **state)
{
    (void)state;
    int32_t tokens[MANY];
    struct gs_sampling sampling = sampling_of(0.0f);
    draw_all(&sampling, tokens);
    for (size_t most = 1; most < 40; most++) {
        struct run run = open_run(&sampling);
        gs_source_run_ahead(run.source, (int64_t)most);
        for (size_t i = 0; i < most; i++)
            assert_int_equal(next(&run), tokens[i]);
        assert_int_equal(backend.n_step, most - 1); /* the first is drawn from the prompt's logits */
        assert_timeline(&run, tokens, most);
        for (size_t i = most; i < most + 3; i++) /* who takes more nevertheless gets them one by one */
            assert_int_equal(next(&run), tokens[i]);
        assert_int_equal(backend.n_step, most - 1);
        assert_timeline(&run, tokens, most + 3);
        close_run(&run);
    }
}

/* Before a chain, in one, and between its tokens: told once, and what follows is as it was. */
static void a_cancel_comes_between_two_tokens(void **state)
{
    (void)state;
    for (size_t t = 0; t < N_TEMPERATURES; t++) {
        int32_t tokens[MANY], token;
        struct gs_sampling sampling = sampling_of(temperatures[t]);
        size_t n = draw_all(&sampling, tokens);
        for (size_t at = 1; at < 20; at += 2)
            for (int within = 0; within < 2; within++) {
                struct run run = open_run(&sampling);
                struct gs_error error;
                size_t i = 0;
                gs_source_run_ahead(run.source, -1);
                for (; i < at; i++)
                    assert_int_equal(next(&run), tokens[i]);
                if (within) /* in the next chain, wherever that begins */
                    backend.cancels = run.session;
                else
                    gs_session_cancel(run.session);
                gs_status status = GS_OK;
                for (; status == GS_OK && i < n; i += status == GS_OK) {
                    status = gs_source_next(run.source, &token, &error);
                    assert_int_equal(token, status == GS_OK ? tokens[i] : -1);
                }
                assert_int_equal(status, GS_CANCELLED);
                assert_true(within || i == at);
                assert_int_equal(next(&run), tokens[i]);
                gs_source_run_ahead(run.source, 0);
                assert_timeline(&run, tokens, i + 1);
                for (i++; i < n; i++)
                    assert_int_equal(next(&run), tokens[i]);
                close_run(&run);
            }
    }
}

/* What the backend cannot tell, wherever in a chain, is drawn from logits. */
static void doubt_is_settled_by_logits(void **state)
{
    (void)state;
    for (size_t t = 0; t < N_TEMPERATURES; t++) {
        int32_t tokens[MANY];
        struct gs_sampling sampling = sampling_of(temperatures[t]);
        size_t n = draw_all(&sampling, tokens);
        for (int64_t at = N_PROMPT + 1; at < N_CTX; at += at < N_PROMPT + 18 ? 1 : 5) {
            struct run run = open_run(&sampling);
            backend.in_doubt = at;
            gs_source_run_ahead(run.source, -1);
            for (size_t i = 0; i < n; i++)
                assert_int_equal(next(&run), tokens[i]);
            assert_true(backend.n_chain > 3);
            close_run(&run);
        }
    }
}

static void a_failed_chain_changes_nothing(void **state)
{
    (void)state;
    int32_t tokens[MANY], token;
    struct gs_sampling sampling = sampling_of(1.0f);
    size_t n = draw_all(&sampling, tokens);
    for (size_t at = 1; at < 6; at++) {
        struct run run = open_run(&sampling);
        struct gs_error error;
        size_t n_failed = 0;
        backend.fail_at = at;
        gs_source_run_ahead(run.source, -1);
        for (size_t i = 0; i < n;) {
            gs_status status = gs_source_next(run.source, &token, &error);
            if (status == GS_OK) {
                assert_int_equal(token, tokens[i++]);
                continue;
            }
            assert_int_equal(status, GS_IO);
            assert_string_equal(error.message, "made to fail");
            assert_timeline(&run, tokens, i);
            n_failed++;
        }
        assert_int_equal(n_failed, 1);
        close_run(&run);
    }
}

/* A mask is obeyed by the very next token, however far ahead the source is. */
static void a_mask_is_obeyed_at_once(void **state)
{
    (void)state;
    const uint64_t odd[2] = {UINT64_C(0xAAAAAAAAAAAAAAAA), UINT64_C(0xAAAAAAAAAAAAAAAA)};
    for (size_t t = 0; t < N_TEMPERATURES; t++)
        for (size_t masked = 0; masked < 12; masked++) {
            int32_t tokens[2][MANY];
            for (size_t ahead = 0; ahead < 2; ahead++) {
                struct gs_sampling sampling = sampling_of(temperatures[t]);
                struct run run = open_run(&sampling);
                struct gs_error error;
                gs_source_run_ahead(run.source, ahead ? -1 : 0);
                for (size_t i = 0; i < 40; i++) {
                    const uint64_t *allowed = i == masked || i == masked + 9 ? odd : NULL;
                    assert_ok(gs_source_next_masked(run.source, allowed, &tokens[ahead][i], &error), &error);
                    assert_true(!allowed || tokens[ahead][i] % 2 == 1);
                    if (allowed)
                        assert_timeline(&run, tokens[ahead], i + 1);
                }
                assert_int_equal(backend.n_chain > 0, ahead);
                close_run(&run);
            }
            assert_memory_equal(tokens[0], tokens[1], 40 * sizeof **tokens);
        }
}

/* Settings that look at more than a row's logits, and backends that cannot. */
static void not_everything_runs_ahead(void **state)
{
    (void)state;
    static const struct gs_logit_bias bias = {3, 1.0f};
    struct gs_sampling some[6];
    for (size_t i = 0; i < 6; i++)
        some[i] = sampling_of(1.0f);
    some[0].top_k = 5;
    some[1].top_p = 0.9f;
    some[2].min_p = 0.01f;
    some[3].presence_penalty = 0.5f;
    some[4].bias = &bias;
    some[4].n_bias = 1;
    for (size_t i = 0; i < 6; i++) {
        int32_t tokens[MANY];
        choosing.draws = i != 5;
        size_t n = draw_all(&some[i], tokens);
        struct run run = open_run(&some[i]);
        gs_source_run_ahead(run.source, -1);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(next(&run), tokens[k]);
        assert_int_equal(backend.n_chain, 0);
        assert_non_null(gs_source_logits(run.source));
        close_run(&run);
    }
    choosing.draws = true;
    struct gs_sampling greedy = sampling_of(0.0f);
    greedy.top_k = 5; /* of no meaning there */
    choosing.chain = NULL;
    struct run run = open_run(&greedy);
    gs_source_run_ahead(run.source, -1);
    assert_true(next(&run) >= 0 && next(&run) >= 0);
    close_run(&run);
    choosing.chain = chain;
    run = open_run(&greedy);
    gs_source_run_ahead(run.source, -1);
    assert_true(next(&run) >= 0 && next(&run) >= 0);
    assert_int_equal(backend.n_chain, 1);
    close_run(&run);
}

/* ---------------------------------------------------------------- batches */

/*
 * Rows of all wishes in one call: each gets its own, whether the backend chooses, cannot tell, or does not
 * choose at all; and where it did, nobody is given logits.
 */
static void batches_give_each_row_what_it_wants(void **state)
{
    (void)state;
    enum { N = 4, STEPS = 12 };
    int32_t first[STEPS][N];
    for (int kind = 0; kind < 4; kind++) {
        struct gs_session *sessions[N];
        struct gs_sampler *samplers[N];
        struct gs_error error;
        int32_t last[N] = {1, 2, 3, 4};
        memset(&backend, 0, sizeof backend);
        backend.many = kind == 1;
        choosing.chooses = kind != 2;
        choosing.draws = kind != 3;
        for (size_t i = 0; i < N; i++) {
            struct gs_sampling sampling = sampling_of(i % 2 ? 1.0f : 0.0f);
            sampling.seed = i;
            assert_ok(gs_session_open(engine, N_CTX, &sessions[i], &error), &error);
            assert_ok(gs_sampler_open(&sampling, N_VOCAB, &samplers[i], &error), &error);
        }
        for (size_t s = 0; s < STEPS; s++) {
            struct gs_batch_item items[N];
            struct gs_draw draws[N];
            int32_t found[N] = {-9, -9, -9, -9};
            for (size_t i = 0; i < N; i++) {
                draws[i] = gs_sampler_ahead(samplers[i], 0);
                items[i] = (struct gs_batch_item){sessions[i],
                                                  &last[i],
                                                  1,
                                                  (s + i) % 5 == 4 ? GS_WANT_LAST : GS_WANT_TOKEN,
                                                  i % 2 ? &draws[i] : NULL,
                                                  &found[i],
                                                  NULL};
            }
            assert_ok(gs_batch_run(engine, items, N, NULL, NULL, NULL, &error), &error);
            for (size_t i = 0; i < N; i++) {
                bool told = items[i].want == GS_WANT_TOKEN && (kind == 0 || (kind == 3 && i % 2 == 0));
                assert_int_equal(found[i] >= 0, told);
                assert_int_equal(gs_session_logits(sessions[i]) == NULL, told);
                if (told)
                    gs_sampler_count(samplers[i]);
                else
                    assert_ok(gs_sampler_draw(samplers[i], gs_session_logits(sessions[i]), NULL, 0, &found[i],
                                              &error),
                              &error);
                last[i] = found[i];
                if (kind == 0)
                    first[s][i] = found[i];
                assert_int_equal(found[i], first[s][i]);
            }
        }
        for (size_t i = 0; i < N; i++) {
            gs_session_close(sessions[i]);
            gs_sampler_close(samplers[i]);
        }
    }
    choosing.chooses = choosing.draws = true;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_tokens_come_out),
        cmocka_unit_test(a_stop_cuts_the_timeline_back),
        cmocka_unit_test(the_most_is_not_passed),
        cmocka_unit_test(a_cancel_comes_between_two_tokens),
        cmocka_unit_test(doubt_is_settled_by_logits),
        cmocka_unit_test(a_failed_chain_changes_nothing),
        cmocka_unit_test(a_mask_is_obeyed_at_once),
        cmocka_unit_test(not_everything_runs_ahead),
        cmocka_unit_test(batches_give_each_row_what_it_wants),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
