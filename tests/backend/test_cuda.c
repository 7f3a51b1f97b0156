/*
 * The cuda backend. Where there is no device: it says so in one line and the engine goes on without it. Where
 * there is one: tiny models of ragged shapes against the exact CPU backend, and the contract of backend.h.
 */
#include "backend/cuda/cuda.h"
#include "backend/registry.h"
#include "engine/sample.h"
#include "tests/support/check.h"
#include "tests/support/pair.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define N_TOKENS 300
#define CAPACITY 320

static char description[300];

static bool has_device(void)
{
    return gs_backend_cuda.probe(description, sizeof description);
}

static void absence_is_told_in_one_line(void **state)
{
    (void)state;
    struct gs_device_options options = {0};
    struct gs_device *device = NULL;
    struct gs_error error;
    bool present = has_device();
    print_message("%s\n", description);
    assert_null(strchr(description, '\n'));
    assert_true(strlen(description) > 10);
    if (present)
        return;
    assert_fails(gs_backend_cuda.open(&options, &device, &error), GS_UNSUPPORTED, "CUDA", &error);
    assert_null(device);
    const struct gs_backend *best = NULL;
    assert_ok(gs_backend_find(NULL, &best, &error), &error);
    assert_string_equal(best->name, "cpu");
    assert_ok(gs_backend_find("auto", &best, &error), &error);
    assert_string_equal(best->name, "cpu");
}

/* What verify asks for, and what it only measures. */
static void only_the_cpu_promises_bits_in_fast(void **state)
{
    (void)state;
    const struct gs_backend *cpu = NULL;
    struct gs_error error;
    assert_ok(gs_backend_find("cpu", &cpu, &error), &error);
    assert_true(cpu->fast_keeps_bits);
    assert_false(gs_backend_cuda.fast_keeps_bits);
}

static void refusals_name_what_would_be_right(void **state)
{
    (void)state;
    if (!has_device())
        skip();
    struct gs_device *device = NULL;
    struct gs_error error;
    struct gs_device_options no_such = {.index = 99}, control = {.control = GS_CONTROL_KV_RING};
    assert_fails(gs_backend_cuda.open(&no_such, &device, &error), GS_INVALID_ARGUMENT, "devices 0 to",
                 &error);
    assert_fails(gs_backend_cuda.open(&control, &device, &error), GS_UNSUPPORTED, "controls", &error);
}

/* ---------------------------------------------------------------- a model on both */

static const struct gs_device_options options_of_precision[] = {
    [GS_PRECISION_EXACT] = {.precision = GS_PRECISION_EXACT},
    [GS_PRECISION_FAST] = {.precision = GS_PRECISION_FAST},
};

static struct pair open_pair(enum pair_shape shape, enum gs_precision precision)
{
    struct tiny_options options = pair_options(shape, 4);
    return pair_open(&options, &gs_backend_cuda, &options_of_precision[precision]);
}

static void logits_are_the_cpus(void **state)
{
    (void)state;
    if (!has_device())
        skip();
    for (unsigned s = PAIR_DEFAULT; s <= PAIR_NO_CHOICE; s++) {
        int32_t tokens[N_TOKENS];
        pair_tokens(tokens, N_TOKENS, 7 + s);
        struct pair pair = open_pair(s, GS_PRECISION_EXACT);
        float *expected = pair_logits(&pair.cpu, CAPACITY, tokens, N_TOKENS, 256);
        static const size_t pieces[] = {300, 1, 3, 64};
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
            char what[60];
            snprintf(what, sizeof what, "%s, %zu at a time", pair_shape_name(s), pieces[i]);
            float *found = pair_logits(&pair.other, CAPACITY, tokens, N_TOKENS, pieces[i]);
            assert_near(expected, found, N_TOKENS, 1.0 - 1e-9, 1e-4, what);
            free(found);
        }
        free(expected);
        pair_close(&pair);
    }
}

static void fast_is_near(void **state)
{
    (void)state;
    if (!has_device())
        skip();
    int32_t tokens[N_TOKENS];
    pair_tokens(tokens, N_TOKENS, 3);
    struct pair pair = open_pair(PAIR_NO_CHOICE, GS_PRECISION_FAST);
    float *expected = pair_logits(&pair.cpu, CAPACITY, tokens, N_TOKENS, 256);
    static const size_t pieces[] = {300, 1, 40};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        char what[60];
        snprintf(what, sizeof what, "fast, %zu at a time", pieces[i]);
        float *found = pair_logits(&pair.other, CAPACITY, tokens, N_TOKENS, pieces[i]);
        assert_near(expected, found, N_TOKENS, 0.999, 0.05, what);
        free(found);
    }
    free(expected);
    pair_close(&pair);
}

/* ---------------------------------------------------------------- the contract */

/* Eight timelines at once, each at a place of its own, against each alone. */
static void a_batch_changes_nothing(void **state)
{
    (void)state;
    if (!has_device())
        skip();
    const struct pair_batch batch = {.n_row = 8, .first = 5, .apart = 20, .n_step = 40, .n_last = 8};
    struct pair pair = open_pair(PAIR_AS_THE_REAL_ONE, GS_PRECISION_EXACT);
    check_batch(&pair.other, &batch, 11);
    pair_close(&pair);
}

/* A chain past the limit of a graph's positions, and single steps of each kind, against the sampler. */
static void check_chosen(const struct loaded *l, float temperature)
{
    enum { BEFORE = 1015, N = 20, CHOSEN_VOCAB = 5120 };
    const struct gs_backend *cuda = l->backend;
    struct gs_sampler *sampler = pair_sampler(temperature, CHOSEN_VOCAB, 23),
                      *same = pair_sampler(temperature, CHOSEN_VOCAB, 23);
    struct gs_draw draws[N];
    struct gs_kv *kv[3];
    struct gs_error error;
    int32_t tokens[BEFORE], chain[N], token = 9, expected;
    for (int32_t i = 0; i < BEFORE; i++)
        tokens[i] = i * 37 % CHOSEN_VOCAB;
    for (size_t i = 0; i < 3; i++) {
        kv[i] = loaded_kv(l, 1100);
        loaded_run(l, kv[i], tokens, BEFORE, 300, NULL);
    }
    for (size_t i = 0; i < N; i++)
        draws[i] = gs_sampler_ahead(sampler, i);
    const bool greedy = temperature == 0.0f;
    assert_ok(cuda->chain(l->device, kv[0], token, greedy ? NULL : draws, chain, N, &error), &error);
    assert_int_equal(cuda->kv_length(kv[0]), BEFORE + N);
    float *last = malloc(CHOSEN_VOCAB * sizeof *last);
    memcpy(last, cuda->logits(l->device, 0), CHOSEN_VOCAB * sizeof *last);
    for (size_t i = 0; i < N; i++) {
        struct gs_step logits = {kv[1], &token, 1, GS_WANT_LAST, NULL};
        struct gs_step choice = {kv[2], &token, 1, GS_WANT_TOKEN, greedy ? NULL : &draws[i]};
        assert_ok(cuda->forward(l->device, &choice, 1, NULL, &error), &error);
        int32_t chosen = cuda->chosen(l->device, 0);
        assert_ok(cuda->forward(l->device, &logits, 1, NULL, &error), &error);
        assert_ok(gs_sampler_draw(same, cuda->logits(l->device, 0), NULL, 0, &expected, &error), &error);
        assert_int_equal(chosen, expected);
        assert_int_equal(chain[i], expected);
        token = expected;
    }
    assert_same_bits(last, cuda->logits(l->device, 0), CHOSEN_VOCAB, "a chain's last logits");
    free(last);
    for (size_t i = 0; i < 3; i++)
        cuda->kv_free(kv[i]);
    gs_sampler_close(sampler);
    gs_sampler_close(same);
}

/* Rows of all wishes beside one another: tokens are the sampler's of the row's own logits. */
static void check_chosen_rows(const struct loaded *l, size_t n)
{
    enum { MOST = 64, CHOSEN_VOCAB = 5120 };
    struct gs_kv *kv[MOST];
    struct gs_step steps[MOST];
    struct gs_sampler *sampler = pair_sampler(0.8f, CHOSEN_VOCAB, 23);
    struct gs_draw draw = gs_sampler_ahead(sampler, 0);
    struct gs_error error;
    int32_t tokens[MOST], expected[2];
    gs_sampler_close(sampler);
    for (size_t i = 0; i < n; i++) {
        kv[i] = loaded_kv(l, 20);
        tokens[i] = (int32_t)(i * 71 % CHOSEN_VOCAB);
        steps[i] = (struct gs_step){kv[i], &tokens[i], 1, i % 3 == 2 ? GS_WANT_LAST : GS_WANT_TOKEN,
                                    i % 3 == 1 ? &draw : NULL};
    }
    for (int all = 0; all < 2; all++) { /* and where none is drawn */
        for (size_t i = 0; all && i < n; i++)
            steps[i].draw = NULL;
        assert_ok(l->backend->forward(l->device, steps, n, NULL, &error), &error);
        for (size_t i = 0; i < n; i++) {
            const float *logits = l->backend->logits(l->device, i);
            assert_non_null(logits);
            for (size_t s = 0; s < 2; s++) {
                sampler = pair_sampler(s ? 0.8f : 0.0f, CHOSEN_VOCAB, 23);
                assert_ok(gs_sampler_draw(sampler, logits, NULL, 0, &expected[s], &error), &error);
                gs_sampler_close(sampler);
            }
            bool wanted = steps[i].want == GS_WANT_TOKEN;
            assert_int_equal(l->backend->chosen(l->device, i), wanted ? expected[steps[i].draw != NULL] : -1);
        }
    }
    for (size_t i = 0; i < n; i++)
        l->backend->kv_free(kv[i]);
}

static void tokens_chosen_here_are_the_samplers(void **state)
{
    (void)state;
    if (!has_device())
        skip();
    for (int precision = 0; precision < 2; precision++) {
        struct tiny_options options = pair_options(PAIR_NO_CHOICE, 4);
        options.n_vocab = 5120;
        struct pair pair = pair_open(&options, &gs_backend_cuda, &options_of_precision[precision]);
        check_chosen(&pair.other, 0.0f);
        check_chosen(&pair.other, 1.0f);
        check_chosen(&pair.other, 0.4f);
        check_chosen_rows(&pair.other, 3);
        check_chosen_rows(&pair.other, 8);
        check_chosen_rows(&pair.other, 64);
        pair_close(&pair);
    }
}

static void runs_repeat_to_the_bit(void **state)
{
    (void)state;
    if (!has_device())
        skip();
    for (int precision = 0; precision < 2; precision++) {
        int32_t tokens[N_TOKENS];
        pair_tokens(tokens, N_TOKENS, 5);
        struct pair pair = open_pair(PAIR_AS_THE_REAL_ONE, (enum gs_precision)precision);
        static const size_t pieces[] = {1, 300};
        for (size_t i = 0; i < 2; i++) {
            float *first = pair_logits(&pair.other, CAPACITY, tokens, N_TOKENS, pieces[i]);
            float *second = pair_logits(&pair.other, CAPACITY, tokens, N_TOKENS, pieces[i]);
            assert_same_bits(first, second, N_TOKENS * PAIR_VOCAB, "again");
            free(first);
            free(second);
        }
        pair_close(&pair);
    }
}

static void caches_are_kept_moved_and_cut(void **state)
{
    (void)state;
    if (!has_device())
        skip();
    for (int precision = 0; precision < 2; precision++) {
        struct pair pair = open_pair(PAIR_DEFAULT, (enum gs_precision)precision);
        check_keys_and_values(&pair.other, CAPACITY, 250, 200, 17);
        pair_close(&pair);
    }
}

static void failures_change_no_timeline(void **state)
{
    (void)state;
    if (!has_device())
        skip();
    int32_t tokens[N_TOKENS], bad[2] = {1, PAIR_VOCAB};
    pair_tokens(tokens, N_TOKENS, 23);
    struct pair pair = open_pair(PAIR_DEFAULT, GS_PRECISION_EXACT);
    const struct loaded *l = &pair.other;
    struct gs_kv *kv = loaded_kv(l, 100);
    struct gs_error error;
    _Atomic bool cancelled = true;
    loaded_run(l, kv, tokens, 90, 90, NULL);
    struct gs_step step = {kv, bad, 2, GS_WANT_LAST, NULL};
    assert_fails(l->backend->forward(l->device, &step, 1, NULL, &error), GS_INVALID_ARGUMENT, "token id 128",
                 &error);
    step = (struct gs_step){kv, tokens, 11, GS_WANT_LAST, NULL};
    assert_fails(l->backend->forward(l->device, &step, 1, NULL, &error), GS_CONTEXT_FULL, "10 of 100",
                 &error);
    step = (struct gs_step){kv, tokens, 5, GS_WANT_LAST, NULL};
    struct gs_step twice[2] = {step, step};
    assert_fails(l->backend->forward(l->device, twice, 2, NULL, &error), GS_INVALID_ARGUMENT, "same timeline",
                 &error);
    assert_int_equal(l->backend->forward(l->device, &step, 1, &cancelled, &error), GS_CANCELLED);
    assert_int_equal(l->backend->kv_length(kv), 90);
    l->backend->kv_free(kv);
    pair_close(&pair);
}

/* Every element of every expert, by the device's arithmetic, bit for bit. */
static void mxfp4_is_the_cpus_to_the_bit(void **state)
{
    (void)state;
    if (!has_device())
        skip();
    struct pair pair = open_pair(PAIR_ODD_HEADS, GS_PRECISION_EXACT);
    check_experts(&pair, &pair.cpu.weights->layers[1].gate_up, 1);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absence_is_told_in_one_line),
        cmocka_unit_test(refusals_name_what_would_be_right),
        cmocka_unit_test(logits_are_the_cpus),
        cmocka_unit_test(fast_is_near),
        cmocka_unit_test(a_batch_changes_nothing),
        cmocka_unit_test(tokens_chosen_here_are_the_samplers),
        cmocka_unit_test(runs_repeat_to_the_bit),
        cmocka_unit_test(caches_are_kept_moved_and_cut),
        cmocka_unit_test(failures_change_no_timeline),
        cmocka_unit_test(mxfp4_is_the_cpus_to_the_bit),
        cmocka_unit_test(only_the_cpu_promises_bits_in_fast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
