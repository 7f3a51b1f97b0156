/*
 * The cuda backend. Where there is no device: it says so in one line and the engine goes on without it. Where
 * there is one: tiny models of ragged shapes against the exact CPU backend, and the contract of backend.h.
 */
#include "backend/cuda/cuda.h"
#include "backend/registry.h"
#include "engine/sample.h"
#include "tests/support/check.h"
#include "tests/support/files.h"
#include "tests/support/loaded.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define N_TOKENS 300
#define N_VOCAB  128
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

struct pair {
    struct loaded cpu, cuda; /* cuda borrows the cpu's weights */
};

static struct pair open_pair(const struct tiny_options *options, enum gs_precision precision)
{
    struct tiny_model *model = tiny_model_make(options);
    struct pair pair = {.cpu = loaded_open(model, 1)};
    struct gs_device_options device = {.precision = precision};
    struct gs_error error;
    tiny_model_free(model);
    pair.cuda = pair.cpu;
    pair.cuda.backend = &gs_backend_cuda;
    assert_ok(gs_backend_cuda.open(&device, &pair.cuda.device, &error), &error);
    assert_ok(gs_backend_cuda.load(pair.cuda.device, pair.cuda.weights, NULL, NULL, &error), &error);
    return pair;
}

static void close_pair(struct pair *pair)
{
    gs_backend_cuda.close(pair->cuda.device);
    loaded_close(&pair->cpu);
}

static void make_tokens(int32_t *tokens, unsigned seed)
{
    for (size_t i = 0; i < N_TOKENS; i++) {
        seed = seed * 1664525u + 1013904223u;
        tokens[i] = (int32_t)(seed >> 24) % N_VOCAB;
    }
}

static float *run_alone(const struct loaded *loaded, const int32_t *tokens, size_t piece)
{
    float *logits = calloc(N_TOKENS * N_VOCAB, sizeof *logits);
    struct gs_kv *kv = loaded_kv(loaded, CAPACITY);
    loaded_run(loaded, kv, tokens, N_TOKENS, piece, logits);
    loaded->backend->kv_free(kv);
    return logits;
}

/* The smallest cosine of any position, and the largest difference over the largest value. */
static void compare(const float *a, const float *b, double least_cosine, double most_error, const char *what)
{
    double largest = 0.0, difference = 0.0, worst = 1.0;
    for (size_t t = 0; t < N_TOKENS; t++) {
        double aa = 0.0, bb = 0.0, ab = 0.0;
        for (size_t i = t * N_VOCAB; i < (t + 1) * N_VOCAB; i++) {
            aa += (double)a[i] * a[i], bb += (double)b[i] * b[i], ab += (double)a[i] * b[i];
            largest = fmax(largest, fabs((double)a[i]));
            difference = fmax(difference, isfinite(b[i]) ? fabs((double)a[i] - b[i]) : 1e9);
        }
        worst = fmin(worst, ab / sqrt(aa * bb));
    }
    print_message("%-24s worst cosine 1 - %.2e, largest error %.2e\n", what, 1.0 - worst,
                  difference / largest);
    assert_true(worst >= least_cosine);
    assert_true(difference / largest <= most_error);
}

struct shape {
    const char *name;
    int64_t d_model, d_head, n_head, n_kv_head, n_expert, n_active, d_ff, window;
    enum gs_dtype dense;
};

static const struct shape shapes[] = {
    {"default", 64, 16, 8, 2, 8, 2, 96, 16, GS_DTYPE_BF16},
    {"float32", 64, 16, 8, 2, 8, 2, 96, 16, GS_DTYPE_F32},
    {"float16", 96, 8, 6, 3, 5, 3, 64, 7, GS_DTYPE_F16},
    {"one of each", 32, 2, 1, 1, 1, 1, 32, 1, GS_DTYPE_BF16},
    {"odd heads", 160, 10, 3, 1, 40, 5, 128, 33, GS_DTYPE_BF16},
    {"as the real one", 384, 64, 16, 2, 32, 4, 384, 128, GS_DTYPE_BF16},
    /* All experts are active: rounding cannot turn a choice, so that fast can be held to a bar. */
    {"no choice", 384, 64, 16, 2, 4, 4, 384, 128, GS_DTYPE_BF16},
};

static struct tiny_options options_of(const struct shape *shape)
{
    struct tiny_options options = tiny_options_default();
    options.n_vocab = N_VOCAB;
    options.d_model = shape->d_model;
    options.d_head = shape->d_head;
    options.n_head = shape->n_head;
    options.n_kv_head = shape->n_kv_head;
    options.n_expert = shape->n_expert;
    options.n_active = shape->n_active;
    options.d_ff = shape->d_ff;
    options.window = shape->window;
    options.dense = shape->dense;
    return options;
}

static void logits_are_the_cpus(void **state)
{
    (void)state;
    if (!has_device())
        skip();
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        struct tiny_options options = options_of(&shapes[s]);
        int32_t tokens[N_TOKENS];
        make_tokens(tokens, 7 + (unsigned)s);
        struct pair pair = open_pair(&options, GS_PRECISION_EXACT);
        float *expected = run_alone(&pair.cpu, tokens, 256);
        static const size_t pieces[] = {300, 1, 3, 64};
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
            char what[60];
            snprintf(what, sizeof what, "%s, %zu at a time", shapes[s].name, pieces[i]);
            float *found = run_alone(&pair.cuda, tokens, pieces[i]);
            compare(expected, found, 1.0 - 1e-9, 1e-4, what);
            free(found);
        }
        free(expected);
        close_pair(&pair);
    }
}

static void fast_is_near(void **state)
{
    (void)state;
    if (!has_device())
        skip();
    struct tiny_options options = options_of(&shapes[6]);
    int32_t tokens[N_TOKENS];
    make_tokens(tokens, 3);
    struct pair pair = open_pair(&options, GS_PRECISION_FAST);
    float *expected = run_alone(&pair.cpu, tokens, 256);
    static const size_t pieces[] = {300, 1, 40};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        char what[60];
        snprintf(what, sizeof what, "fast, %zu at a time", pieces[i]);
        float *found = run_alone(&pair.cuda, tokens, pieces[i]);
        compare(expected, found, 0.999, 0.05, what);
        free(found);
    }
    free(expected);
    close_pair(&pair);
}

/* ---------------------------------------------------------------- the contract */

static void assert_same_bits(const float *a, const float *b, size_t n, const char *what)
{
    if (memcmp(a, b, n * sizeof *a) != 0)
        fail_msg("%s: other bits", what);
}

/* Eight timelines at once, each at a place of its own, against each alone. */
static void a_batch_changes_nothing(void **state)
{
    (void)state;
    if (!has_device())
        skip();
    enum { N = 8, STEPS = 40 };
    struct tiny_options options = options_of(&shapes[5]);
    int32_t tokens[N_TOKENS];
    make_tokens(tokens, 11);
    struct pair pair = open_pair(&options, GS_PRECISION_EXACT);
    const struct gs_backend *cuda = &gs_backend_cuda;
    struct gs_error error;
    struct gs_kv *alone[N], *together[N];
    for (size_t i = 0; i < N; i++) {
        alone[i] = loaded_kv(&pair.cuda, CAPACITY);
        together[i] = loaded_kv(&pair.cuda, CAPACITY);
        loaded_run(&pair.cuda, alone[i], tokens + i, 5 + 20 * i, 64, NULL);
        loaded_run(&pair.cuda, together[i], tokens + i, 5 + 20 * i, 64, NULL);
    }
    for (size_t t = 0; t < STEPS; t++) {
        struct gs_step steps[N];
        float *expected = calloc(N * N_VOCAB, sizeof *expected);
        for (size_t i = 0; i < N; i++) {
            struct gs_step step = {alone[i], tokens + t + i, 1, GS_WANT_LAST, NULL};
            assert_ok(cuda->forward(pair.cuda.device, &step, 1, NULL, &error), &error);
            memcpy(expected + i * N_VOCAB, cuda->logits(pair.cuda.device, 0), N_VOCAB * sizeof *expected);
            steps[i] = (struct gs_step){together[i], tokens + t + i, 1, GS_WANT_LAST, NULL};
        }
        assert_ok(cuda->forward(pair.cuda.device, steps, N, NULL, &error), &error);
        for (size_t i = 0; i < N; i++)
            assert_same_bits(expected + i * N_VOCAB, cuda->logits(pair.cuda.device, i), N_VOCAB, "batch");
        free(expected);
    }
    for (size_t i = 0; i < N; i++) {
        cuda->kv_free(alone[i]);
        cuda->kv_free(together[i]);
    }
    close_pair(&pair);
}

static struct gs_sampler *open_sampler(float temperature, size_t n_vocab)
{
    struct gs_sampling sampling = gs_sampling_default();
    struct gs_sampler *sampler;
    struct gs_error error;
    sampling.temperature = temperature;
    sampling.seed = 23;
    assert_ok(gs_sampler_open(&sampling, n_vocab, &sampler, &error), &error);
    return sampler;
}

/* A chain past the limit of a graph's positions, and single steps of each kind, against the sampler. */
static void check_chosen(const struct loaded *l, float temperature)
{
    enum { BEFORE = 1015, N = 20, CHOSEN_VOCAB = 5120 };
    const struct gs_backend *cuda = l->backend;
    struct gs_sampler *sampler = open_sampler(temperature, CHOSEN_VOCAB),
                      *same = open_sampler(temperature, CHOSEN_VOCAB);
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
    struct gs_sampler *sampler = open_sampler(0.8f, CHOSEN_VOCAB);
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
                sampler = open_sampler(s ? 0.8f : 0.0f, CHOSEN_VOCAB);
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
        struct tiny_options options = options_of(&shapes[6]);
        options.n_vocab = 5120;
        struct pair pair = open_pair(&options, (enum gs_precision)precision);
        check_chosen(&pair.cuda, 0.0f);
        check_chosen(&pair.cuda, 1.0f);
        check_chosen(&pair.cuda, 0.4f);
        check_chosen_rows(&pair.cuda, 3);
        check_chosen_rows(&pair.cuda, 8);
        check_chosen_rows(&pair.cuda, 64);
        close_pair(&pair);
    }
}

static void runs_repeat_to_the_bit(void **state)
{
    (void)state;
    if (!has_device())
        skip();
    for (int precision = 0; precision < 2; precision++) {
        struct tiny_options options = options_of(&shapes[5]);
        int32_t tokens[N_TOKENS];
        make_tokens(tokens, 5);
        struct pair pair = open_pair(&options, (enum gs_precision)precision);
        static const size_t pieces[] = {1, 300};
        for (size_t i = 0; i < 2; i++) {
            float *first = run_alone(&pair.cuda, tokens, pieces[i]);
            float *second = run_alone(&pair.cuda, tokens, pieces[i]);
            assert_same_bits(first, second, N_TOKENS * N_VOCAB, "again");
            free(first);
            free(second);
        }
        close_pair(&pair);
    }
}

static void caches_are_kept_moved_and_cut(void **state)
{
    (void)state;
    if (!has_device())
        skip();
    for (int precision = 0; precision < 2; precision++) {
        struct tiny_options options = options_of(&shapes[0]);
        int32_t tokens[N_TOKENS];
        make_tokens(tokens, 17);
        struct pair pair = open_pair(&options, (enum gs_precision)precision);
        const struct loaded *l = &pair.cuda;
        const struct gs_backend *cuda = l->backend;
        struct gs_error error;
        float expected[N_VOCAB], found[N_VOCAB];
        struct gs_kv *kv = loaded_kv(l, CAPACITY), *copy = loaded_kv(l, 250), *read = loaded_kv(l, CAPACITY);
        struct gs_buffer bytes = {0};
        loaded_run(l, kv, tokens, 200, 64, NULL);
        assert_ok(cuda->kv_copy(copy, kv, &error), &error);
        assert_ok(cuda->kv_export(kv, &bytes, &error), &error);
        assert_ok(cuda->kv_import(read, bytes.data, bytes.size, &error), &error);
        assert_fails(cuda->kv_import(read, bytes.data, bytes.size - 1, &error), GS_MALFORMED, "exported",
                     &error);
        assert_int_equal(cuda->kv_length(read), 200);
        loaded_run(l, kv, tokens + 200, 1, 1, expected);
        loaded_run(l, copy, tokens + 200, 1, 1, found);
        assert_same_bits(expected, found, N_VOCAB, "copy");
        loaded_run(l, read, tokens + 200, 1, 1, found);
        assert_same_bits(expected, found, N_VOCAB, "import");
        assert_int_equal(cuda->kv_truncate(kv, 200), 200);
        loaded_run(l, kv, tokens + 200, 1, 1, found);
        assert_same_bits(expected, found, N_VOCAB, "truncate");
        loaded_run(l, kv, tokens + 201, 1, 1, found);
        assert_memory_not_equal(expected, found, sizeof expected);
        cuda->kv_free(kv);
        cuda->kv_free(copy);
        cuda->kv_free(read);
        gs_buffer_free(&bytes);
        close_pair(&pair);
    }
}

static void failures_change_no_timeline(void **state)
{
    (void)state;
    if (!has_device())
        skip();
    struct tiny_options options = options_of(&shapes[0]);
    int32_t tokens[N_TOKENS], bad[2] = {1, N_VOCAB};
    make_tokens(tokens, 23);
    struct pair pair = open_pair(&options, GS_PRECISION_EXACT);
    const struct loaded *l = &pair.cuda;
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
    close_pair(&pair);
}

/* Every element of every expert, by the device's arithmetic, bit for bit. */
static void mxfp4_is_the_cpus_to_the_bit(void **state)
{
    (void)state;
    if (!has_device())
        skip();
    struct tiny_options options = options_of(&shapes[4]);
    struct pair pair = open_pair(&options, GS_PRECISION_EXACT);
    const struct gs_mxfp4_matrix *m = &pair.cpu.weights->layers[1].gate_up;
    size_t n = (size_t)(m->rows * m->columns);
    float *expected = calloc(n, sizeof *expected), *found = calloc(n, sizeof *found);
    for (int64_t e = 0; e < m->n_expert; e++) {
        pair.cpu.backend->dequantize(pair.cpu.device, m, e, 0, m->rows, expected);
        pair.cuda.backend->dequantize(pair.cuda.device, m, e, 0, m->rows, found);
        assert_same_bits(expected, found, n, "dequantised");
    }
    free(expected);
    free(found);
    close_pair(&pair);
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
