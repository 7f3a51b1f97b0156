/*
 * --precision fast of the CPU backend: near the exact one on text that the demo model knows, the same bits
 * for a token whatever it shares a call with, and a cache of its own.
 */
#include "backend/cpu/fast_kernels.h"
#include "backend/cpu/kernels.h"
#include "backend/registry.h"
#include "tests/support/check.h"
#include "tests/support/pair.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define N_TOKENS 760 /* the rings of window layers, 128 + 512, wrap */
#define N_VOCAB  PAIR_VOCAB

static float *make_logits(void)
{
    float *logits = calloc(N_TOKENS * N_VOCAB, sizeof *logits);
    assert_non_null(logits);
    return logits;
}

static void assert_same_logits(const float *a, const float *b, size_t first, const char *isa)
{
    for (size_t t = first; t < N_TOKENS; t++)
        if (memcmp(a + t * N_VOCAB, b + t * N_VOCAB, N_VOCAB * sizeof *a) != 0)
            fail_msg("%s: the logits of token %zu have other bits", isa, t);
}

/* ---------------------------------------------------------------- the same bits */

static void bits_do_not_depend_on_chunks_or_threads(void **state)
{
    (void)state;
    static const size_t pieces[] = {512, 1, 3, 64, 257, 16, 29};
    struct tiny_model *model = pair_model();
    int32_t tokens[N_TOKENS];
    pair_tokens(tokens, N_TOKENS, 1);
    for (size_t v = 0; v < gs_fast_kernels_count(); v++)
        for (int q8 = 0; q8 < 2; q8++) {
            float *whole = make_logits(), *other = make_logits();
            for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
                struct gs_device_options options = {.n_threads = 1 + i % 3,
                                                    .isa = gs_fast_kernels_at(v)->isa,
                                                    .precision = GS_PRECISION_FAST,
                                                    .weights = q8 ? GS_WEIGHTS_Q8 : GS_WEIGHTS_NATIVE};
                struct loaded loaded = loaded_open_with(model, &options);
                struct gs_kv *kv = loaded_kv(&loaded, N_TOKENS);
                loaded_run(&loaded, kv, tokens, N_TOKENS, pieces[i], i == 0 ? whole : other);
                if (i > 0)
                    assert_same_logits(whole, other, 0, options.isa);
                loaded.backend->kv_free(kv);
                loaded_close(&loaded);
            }
            free(whole);
            free(other);
        }
    tiny_model_free(model);
}

/* Three timelines, alone and then side by side in uneven pieces. */
static void bits_do_not_depend_on_other_sessions(void **state)
{
    (void)state;
    static const size_t pieces[3] = {1, 13, 70};
    struct tiny_model *model = pair_model();
    struct gs_device_options options = {.n_threads = 2, .precision = GS_PRECISION_FAST};
    struct loaded loaded = loaded_open_with(model, &options);
    int32_t tokens[3][N_TOKENS];
    float *alone[3];
    struct gs_kv *kv[3];
    for (unsigned s = 0; s < 3; s++) {
        pair_tokens(tokens[s], N_TOKENS, s + 1);
        alone[s] = make_logits();
        kv[s] = loaded_kv(&loaded, N_TOKENS);
        loaded_run(&loaded, kv[s], tokens[s], N_TOKENS, 512, alone[s]);
        assert_int_equal(loaded.backend->kv_truncate(kv[s], 0), 0);
    }
    for (size_t round = 0; round < 60; round++) {
        struct gs_step steps[3];
        size_t n_steps = 0, row = 0, begin[3];
        unsigned who[3];
        struct gs_error error;
        for (unsigned s = 0; s < 3; s++) {
            size_t at = (size_t)loaded.backend->kv_length(kv[s]), left = N_TOKENS - at;
            if (left == 0)
                continue;
            who[n_steps] = s;
            begin[n_steps] = at;
            steps[n_steps++] = (struct gs_step){kv[s], tokens[s] + at, left < pieces[s] ? left : pieces[s],
                                                GS_WANT_ALL, NULL};
        }
        assert_ok(loaded.backend->forward(loaded.device, steps, n_steps, NULL, &error), &error);
        for (size_t i = 0; i < n_steps; i++)
            for (size_t t = 0; t < steps[i].n_tokens; t++, row++)
                assert_memory_equal(alone[who[i]] + (begin[i] + t) * N_VOCAB,
                                    loaded.backend->logits(loaded.device, row), N_VOCAB * sizeof(float));
    }
    for (unsigned s = 0; s < 3; s++) {
        loaded.backend->kv_free(kv[s]);
        free(alone[s]);
    }
    loaded_close(&loaded);
    tiny_model_free(model);
}

/* ---------------------------------------------------------------- the cache */

static void copies_and_exports_continue_alike(void **state)
{
    (void)state;
    enum { AT = 700 };
    struct tiny_model *model = pair_model();
    struct gs_device_options options = {.n_threads = 2, .precision = GS_PRECISION_FAST};
    struct loaded loaded = loaded_open_with(model, &options), exact = loaded_open(model, 1);
    int32_t tokens[N_TOKENS];
    pair_tokens(tokens, N_TOKENS, 4);
    float *whole = make_logits(), *other = make_logits();
    struct gs_kv *kv = loaded_kv(&loaded, N_TOKENS), *copy = loaded_kv(&loaded, N_TOKENS),
                 *larger = loaded_kv(&loaded, 2 * N_TOKENS), *imported = loaded_kv(&loaded, N_TOKENS),
                 *foreign = loaded_kv(&exact, N_TOKENS);
    struct gs_buffer bytes = {0};
    struct gs_error error;
    loaded_run(&loaded, kv, tokens, N_TOKENS, 512, whole);
    assert_int_equal(loaded.backend->kv_truncate(kv, AT), AT);
    assert_ok(loaded.backend->kv_copy(copy, kv, &error), &error);
    assert_ok(loaded.backend->kv_copy(larger, kv, &error), &error);
    assert_ok(loaded.backend->kv_export(kv, &bytes, &error), &error);
    assert_ok(loaded.backend->kv_import(imported, bytes.data, bytes.size, &error), &error);
    struct gs_kv *const continued[] = {kv, copy, larger, imported};
    for (size_t i = 0; i < sizeof continued / sizeof *continued; i++) {
        memset(other, 0, N_TOKENS * N_VOCAB * sizeof *other);
        loaded_run(&loaded, continued[i], tokens + AT, N_TOKENS - AT, 7, other + AT * N_VOCAB);
        assert_same_logits(whole, other, AT, "continued");
    }
    assert_fails(exact.backend->kv_import(foreign, bytes.data, bytes.size, &error), GS_MALFORMED,
                 "of another model or backend", &error);
    assert_fails(exact.backend->kv_copy(foreign, copy, &error), GS_INVALID_ARGUMENT, "cannot take", &error);
    gs_buffer_free(&bytes);
    for (size_t i = 0; i < sizeof continued / sizeof *continued; i++)
        loaded.backend->kv_free(continued[i]);
    exact.backend->kv_free(foreign);
    free(whole);
    free(other);
    loaded_close(&loaded);
    loaded_close(&exact);
    tiny_model_free(model);
}

/* ---------------------------------------------------------------- the distance from exact */

#define DEMO        "models/demo"
#define HELD_OUT    "tests/data/model/demo_held_out.txt" /* two sequences, one a line */
#define N_SEQUENCES 2
#define MOST_TOKENS 250

static size_t read_line(FILE *file, int32_t tokens[MOST_TOKENS])
{
    size_t n = 0;
    char line[8192], *at = line;
    if (!fgets(line, sizeof line, file))
        return 0;
    for (char *end; n < MOST_TOKENS; at = end) {
        long id = strtol(at, &end, 10);
        if (end == at)
            break;
        tokens[n++] = (int32_t)id;
    }
    return n;
}

static float *run_demo(const struct gs_weights *weights, const struct gs_device_options *options,
                       const int32_t *tokens, size_t n)
{
    const struct gs_backend *backend;
    struct gs_device *device;
    struct gs_error error;
    struct gs_kv *kv;
    size_t n_vocab = (size_t)weights->config.n_vocab;
    float *logits = malloc(n * n_vocab * sizeof *logits);
    assert_non_null(logits);
    assert_ok(gs_backend_find("cpu", &backend, &error), &error);
    assert_ok(backend->open(options, &device, &error), &error);
    assert_ok(backend->load(device, weights, NULL, NULL, &error), &error);
    assert_ok(backend->kv_create(device, (int64_t)n, &kv, &error), &error);
    for (size_t at = 0; at < n; at += 100) {
        struct gs_step step = {kv, tokens + at, n - at < 100 ? n - at : 100, GS_WANT_ALL, NULL};
        assert_ok(backend->forward(device, &step, 1, NULL, &error), &error);
        for (size_t i = 0; i < step.n_tokens; i++)
            memcpy(logits + (at + i) * n_vocab, backend->logits(device, i), n_vocab * sizeof *logits);
    }
    backend->kv_free(kv);
    backend->close(device);
    return logits;
}

struct distance {
    double kl, cosine;          /* sums */
    size_t n, clear, disagreed; /* positions; those whose exact margin is above MARGIN; that then differ */
};
#define MARGIN 0.1 /* between the two largest exact logits */

static void add_position(struct distance *sum, const float *a, const float *b, size_t n)
{
    size_t best = 0, other = 0;
    double second = -INFINITY, ab = 0, aa = 0, bb = 0, za = 0, zb = 0, kl = 0;
    for (size_t i = 1; i < n; i++) {
        if (a[i] > a[best]) {
            second = a[best];
            best = i;
        } else if (a[i] > second) {
            second = a[i];
        }
        other = b[i] > b[other] ? i : other;
    }
    for (size_t i = 0; i < n; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
        za += exp((double)a[i] - a[best]);
        zb += exp((double)b[i] - b[other]);
    }
    for (size_t i = 0; i < n; i++) {
        double log_a = (double)a[i] - a[best] - log(za), log_b = (double)b[i] - b[other] - log(zb);
        kl += exp(log_a) * (log_a - log_b);
    }
    bool is_clear = a[best] - second > MARGIN;
    sum->kl += kl;
    sum->cosine += ab / sqrt(aa * bb);
    sum->clear += is_clear;
    sum->disagreed += is_clear && best != other;
    sum->n++;
}

/* The demo model, and what the exact backend makes of the sequences. */
struct demo {
    struct gs_checkpoint *checkpoint;
    struct gs_weights *weights;
    int32_t tokens[N_SEQUENCES][MOST_TOKENS];
    float *exact[N_SEQUENCES]; /* [MOST_TOKENS][n_vocab] */
};

static void open_demo(struct demo *demo)
{
    const struct gs_device_options exact = {.n_threads = 2};
    struct gs_error error;
    FILE *file = fopen(HELD_OUT, "r");
    assert_non_null(file);
    assert_ok(gs_checkpoint_open(DEMO, &demo->checkpoint, &error), &error);
    assert_ok(gs_weights_bind(demo->checkpoint, NULL, NULL, &demo->weights, &error), &error);
    for (size_t i = 0; i < N_SEQUENCES; i++) {
        assert_int_equal(read_line(file, demo->tokens[i]), MOST_TOKENS);
        demo->exact[i] = run_demo(demo->weights, &exact, demo->tokens[i], MOST_TOKENS);
    }
    fclose(file);
}

static void close_demo(struct demo *demo)
{
    for (size_t i = 0; i < N_SEQUENCES; i++)
        free(demo->exact[i]);
    gs_weights_free(demo->weights);
    gs_checkpoint_close(demo->checkpoint);
}

static struct distance measure_demo(const struct demo *demo, const struct gs_device_options *options)
{
    struct distance sum = {0};
    size_t n_vocab = (size_t)demo->weights->config.n_vocab;
    for (size_t i = 0; i < N_SEQUENCES; i++) {
        float *logits = run_demo(demo->weights, options, demo->tokens[i], MOST_TOKENS);
        for (size_t t = 0; t < MOST_TOKENS; t++)
            add_position(&sum, demo->exact[i] + t * n_vocab, logits + t * n_vocab, n_vocab);
        free(logits);
    }
    return sum;
}

static void assert_distance(const struct distance *d, const char *name)
{
    printf("  %-12s mean KL %.2e, mean cosine %.6f, %zu of %zu clear positions differ\n", name,
           d->kl / (double)d->n, d->cosine / (double)d->n, d->disagreed, d->clear);
    assert_true(d->kl > 0.0);
    assert_true(d->kl / (double)d->n < 1e-3);
    assert_true(d->cosine / (double)d->n >= 0.9995);
    assert_true(d->disagreed * 100 <= d->clear);
    assert_true(d->clear * 10 >= d->n * 8);
}

static void fast_and_q8_are_near_exact(void **state)
{
    (void)state;
    struct demo demo;
    open_demo(&demo);
    for (size_t v = 0; v < gs_fast_kernels_count(); v++) {
        struct gs_device_options options = {
            .n_threads = 2, .isa = gs_fast_kernels_at(v)->isa, .precision = GS_PRECISION_FAST};
        struct distance d = measure_demo(&demo, &options);
        assert_distance(&d, options.isa);
    }
    for (int fast = 0; fast < 2; fast++) {
        struct gs_device_options options = {.n_threads = 2,
                                            .precision = fast ? GS_PRECISION_FAST : GS_PRECISION_EXACT,
                                            .weights = GS_WEIGHTS_Q8};
        struct distance d = measure_demo(&demo, &options);
        assert_distance(&d, fast ? "q8, fast" : "q8, exact");
    }
    close_demo(&demo);
}

/* ---------------------------------------------------------------- ragged shapes */

#define RAGGED_VOCAB       77
#define RAGGED_ROW_ERROR   0.1 /* measured: 0.024, and 0.037 as q8 */
#define RAGGED_LOGIT_ERROR 0.3 /* measured: 0.064 and 0.134 */

/* |a - b| / |a| of the worst position, and the worst single logit's error in units of a's root mean square.
 */
static void worst_errors(const float *a, const float *b, double *row, double *logit)
{
    *row = *logit = 0.0;
    for (size_t t = 0; t < N_TOKENS; t++, a += RAGGED_VOCAB, b += RAGGED_VOCAB) {
        double difference = 0.0, size = 0.0, worst = 0.0;
        for (size_t i = 0; i < RAGGED_VOCAB; i++) {
            double d = fabs((double)b[i] - a[i]);
            difference += d * d;
            size += (double)a[i] * a[i];
            worst = d > worst || isnan(d) ? d : worst;
        }
        *row = fmax(*row, sqrt(difference / size));
        *logit = fmax(*logit, worst / sqrt(size / RAGGED_VOCAB));
    }
}

/*
 * No matrix but the experts' has rows in whole tiles, or columns in whole blocks; the window is so short that
 * one key more or less shows; all experts are active, so that no choice hangs on rounding.
 */
static void ragged_shapes_are_near_exact(void **state)
{
    (void)state;
    struct tiny_options shape = tiny_options_default();
    shape.n_layer = 2;
    shape.d_model = 160;
    shape.d_head = 20;
    shape.n_head = 6;
    shape.n_kv_head = 2;
    shape.n_expert = shape.n_active = 4;
    shape.n_vocab = RAGGED_VOCAB;
    shape.window = 5;
    struct tiny_model *model = tiny_model_make(&shape);
    int32_t tokens[N_TOKENS];
    pair_tokens(tokens, N_TOKENS, 9);
    for (size_t t = 0; t < N_TOKENS; t++)
        tokens[t] %= RAGGED_VOCAB;
    float *exact = make_logits(), *fast = make_logits();
    for (size_t v = 0; v <= 2 * gs_fast_kernels_count(); v++) {
        struct gs_device_options options = {.n_threads = 2};
        if (v > 0)
            options = (struct gs_device_options){.n_threads = 2,
                                                 .isa = gs_fast_kernels_at((v - 1) / 2)->isa,
                                                 .precision = GS_PRECISION_FAST,
                                                 .weights = v % 2 ? GS_WEIGHTS_NATIVE : GS_WEIGHTS_Q8};
        struct loaded loaded = loaded_open_with(model, &options);
        struct gs_kv *kv = loaded_kv(&loaded, N_TOKENS);
        loaded_run(&loaded, kv, tokens, N_TOKENS, 100, v > 0 ? fast : exact);
        loaded.backend->kv_free(kv);
        loaded_close(&loaded);
        if (v == 0)
            continue;
        double row, logit;
        worst_errors(exact, fast, &row, &logit);
        printf("  %-12s%s worst row %.4f, worst logit %.4f\n", options.isa, v % 2 ? "    " : ", q8", row,
               logit);
        assert_true(row < RAGGED_ROW_ERROR);
        assert_true(logit < RAGGED_LOGIT_ERROR);
    }
    free(exact);
    free(fast);
    tiny_model_free(model);
}

/* ---------------------------------------------------------------- memory, and what is refused */

/* Every variant of the build is told, as usable or as not for this processor; the best one first. */
static void kernels_are_listed(void **state)
{
    (void)state;
    const struct gs_backend *backend;
    struct gs_error error;
    char text[256], expected[64];
    assert_ok(gs_backend_find("cpu", &backend, &error), &error);
    assert_true(backend->probe(text, sizeof text));
    snprintf(expected, sizeof expected, "processor (%s; kernels generic", gs_kernels_best()->isa);
    assert_int_equal(strncmp(text, expected, strlen(expected)), 0);
    const char *missing = strstr(text, "; not for this processor: ");
    for (size_t i = 0; i < gs_kernels_count(); i++)
        assert_non_null(strstr(text, gs_kernels_at(i)->isa));
    for (size_t i = 0; gs_kernels_missing(i); i++) {
        assert_null(gs_kernels_find(gs_kernels_missing(i)));
        assert_non_null(missing);
        assert_non_null(strstr(missing, gs_kernels_missing(i)));
    }
    assert_true((missing == NULL) == (gs_kernels_missing(0) == NULL));
}

static void q8_is_in_the_plan(void **state)
{
    (void)state;
    struct tiny_model *model = pair_model();
    struct gs_device_options native = {.n_threads = 1, .precision = GS_PRECISION_FAST}, q8 = native;
    q8.weights = GS_WEIGHTS_Q8;
    struct loaded a = loaded_open_with(model, &native), b = loaded_open_with(model, &q8);
    const struct gs_config *c = &a.weights->config;
    int64_t query = c->n_head * c->d_head, key = c->n_kv_head * c->d_head;
    int64_t weights = c->n_layer * (2 * query + 2 * key) * c->d_model + c->n_vocab * c->d_model;
    assert_int_equal(query % 32, 0);
    assert_int_equal(b.backend->scratch_bytes(b.device) - a.backend->scratch_bytes(a.device),
                     weights / 32 * 34);
    loaded_close(&a);
    loaded_close(&b);
    tiny_model_free(model);
}

static void what_is_not_there_is_refused(void **state)
{
    (void)state;
    const struct gs_backend *backend;
    struct gs_device *device;
    struct gs_error error;
    struct gs_device_options isa = {.precision = GS_PRECISION_FAST, .isa = "mmx"};
    struct gs_device_options control = {.precision = GS_PRECISION_FAST, .control = GS_CONTROL_SINKS};
    assert_ok(gs_backend_find("cpu", &backend, &error), &error);
    assert_fails(backend->open(&isa, &device, &error), GS_UNSUPPORTED,
                 "no mmx kernels: this build and this processor have generic", &error);
    assert_null(device);
    assert_fails(backend->open(&control, &device, &error), GS_UNSUPPORTED, "exact", &error);
    assert_null(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_chunks_or_threads),
        cmocka_unit_test(bits_do_not_depend_on_other_sessions),
        cmocka_unit_test(copies_and_exports_continue_alike),
        cmocka_unit_test(fast_and_q8_are_near_exact),
        cmocka_unit_test(ragged_shapes_are_near_exact),
        cmocka_unit_test(kernels_are_listed),
        cmocka_unit_test(q8_is_in_the_plan),
        cmocka_unit_test(what_is_not_there_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
