/* The negative controls of the CPU backend: each does the one thing that it is named for, and nothing else.
 */
#include "backend/registry.h"
#include "model/mxfp4.h"
#include "tests/support/check.h"
#include "tests/support/files.h"
#include "tests/support/tiny_model.h"

#include <math.h>
#include <stdlib.h>

enum {
    WINDOW = 16,         /* of the tiny model; layers 0 and 2 have one */
    RING = WINDOW + 256, /* its first position that uses a slot again */
    LONG = RING + 12,
};

struct subject {
    char *folder;
    struct gs_checkpoint *checkpoint;
    struct gs_weights *weights;
    const struct gs_backend *backend;
    struct tiny_options options;
};

static struct subject subject_open(const struct tiny_options *options)
{
    struct subject s = {.folder = test_folder_make(), .options = *options};
    struct gs_error error;
    tiny_checkpoint_write(options, s.folder);
    assert_ok(gs_checkpoint_open(s.folder, &s.checkpoint, &error), &error);
    assert_ok(gs_weights_bind(s.checkpoint, NULL, NULL, &s.weights, &error), &error);
    assert_ok(gs_backend_find("cpu", &s.backend, &error), &error);
    return s;
}

static void subject_close(struct subject *s)
{
    gs_weights_free(s->weights);
    gs_checkpoint_close(s->checkpoint);
    test_folder_remove(s->folder);
}

static struct gs_device *device_open(const struct subject *s, enum gs_control control)
{
    struct gs_device_options options = {.n_threads = 2, .control = control};
    struct gs_device *device;
    struct gs_error error;
    assert_ok(s->backend->open(&options, &device, &error), &error);
    assert_ok(s->backend->load(device, s->weights, NULL, NULL, &error), &error);
    return device;
}

/* Logits [n][n_vocab] under a control, in calls of `piece` tokens; the caller frees them. */
static float *run(const struct subject *s, enum gs_control control, size_t n, size_t piece, uint64_t *n_past)
{
    struct gs_device *device = device_open(s, control);
    size_t n_vocab = (size_t)s->options.n_vocab;
    float *out = malloc(n * n_vocab * sizeof *out);
    struct gs_kv *kv;
    struct gs_error error;
    struct gs_backend_stats stats;
    assert_non_null(out);
    assert_ok(s->backend->kv_create(device, (int64_t)n, &kv, &error), &error);
    for (size_t at = 0; at < n; at += piece) {
        int32_t tokens[256];
        size_t count = n - at < piece ? n - at : piece;
        for (size_t i = 0; i < count; i++)
            tokens[i] = (int32_t)((at + i) * 29 % n_vocab);
        struct gs_step step = {kv, tokens, count, GS_WANT_ALL, NULL};
        assert_ok(s->backend->forward(device, &step, 1, NULL, &error), &error);
        for (size_t i = 0; i < count; i++)
            memcpy(out + (at + i) * n_vocab, s->backend->logits(device, i), n_vocab * sizeof *out);
    }
    s->backend->stats(device, &stats);
    if (n_past)
        *n_past = stats.n_past_limit;
    s->backend->kv_free(kv);
    s->backend->close(device);
    return out;
}

/* The first position whose logits differ; n if none does. */
static size_t first_difference(const struct subject *s, enum gs_control control, size_t n, size_t piece)
{
    size_t n_vocab = (size_t)s->options.n_vocab, at = 0;
    float *plain = run(s, GS_CONTROL_NONE, n, 256, NULL), *spoilt = run(s, control, n, piece, NULL);
    while (at < n && memcmp(plain + at * n_vocab, spoilt + at * n_vocab, n_vocab * sizeof *plain) == 0)
        at++;
    free(plain);
    free(spoilt);
    return at;
}

/* ---------------------------------------------------------------- where each acts */

static void test_where_controls_act(void **state)
{
    static const size_t expected[GS_CONTROL_COUNT] = {
        [GS_CONTROL_NONE] = LONG,
        [GS_CONTROL_WINDOW] = WINDOW,
        [GS_CONTROL_YARN_ROUNDED_BOUNDS] = 1,
        [GS_CONTROL_ROPE_PAIRS] = 1,
        [GS_CONTROL_KV_RING] = RING,
        [GS_CONTROL_SWIGLU_CLAMP] = LONG, /* no value of this model is past the limit */
    };
    (void)state;
    struct tiny_options options = tiny_options_default();
    struct subject s = subject_open(&options);
    for (int c = 0; c < GS_CONTROL_COUNT; c++) {
        size_t found = first_difference(&s, (enum gs_control)c, LONG, 256);
        if (found != expected[c])
            fail_msg("control %d changes position %zu first, not %zu", c, found, expected[c]);
    }
    /* The ring does not depend on how the tokens are cut, nor do the others. */
    assert_int_equal(first_difference(&s, GS_CONTROL_KV_RING, LONG, 1), RING);
    assert_int_equal(first_difference(&s, GS_CONTROL_WINDOW, LONG, 7), WINDOW);
    assert_int_equal(first_difference(&s, GS_CONTROL_NONE, LONG, 7), LONG);
    subject_close(&s);
}

static void test_every_expert_active(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_default();
    options.n_active = options.n_expert;
    struct subject s = subject_open(&options);
    assert_int_equal(first_difference(&s, GS_CONTROL_ROUTER_SOFTMAX, 20, 256), 20);
    assert_int_equal(first_difference(&s, GS_CONTROL_SWIGLU_PLUS_ONE, 20, 256), 0);
    subject_close(&s);
}

static void test_no_yarn_to_kill(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_default();
    options.rope_factor = 1;
    struct subject s = subject_open(&options);
    assert_int_equal(first_difference(&s, GS_CONTROL_YARN, 20, 256), 20);
    assert_int_equal(first_difference(&s, GS_CONTROL_YARN_ROUNDED_BOUNDS, 20, 256), 20);
    subject_close(&s);
}

/* The count is of values, and no effect goes with a count of 0. */
static void test_limit_is_counted(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_default();
    struct subject s = subject_open(&options);
    size_t n_vocab = (size_t)options.n_vocab;
    uint64_t n_past = 1, unused = 1;
    free(run(&s, GS_CONTROL_SWIGLU_CLAMP, 20, 256, &n_past));
    assert_int_equal(n_past, 0);
    s.weights->config.swiglu_limit = 0.5f;
    float *plain = run(&s, GS_CONTROL_NONE, 20, 256, &unused);
    float *spoilt = run(&s, GS_CONTROL_SWIGLU_CLAMP, 20, 256, &n_past);
    assert_int_equal(unused, 0);
    assert_true(n_past > 0);
    assert_memory_not_equal(plain, spoilt, 20 * n_vocab * sizeof *plain);
    free(plain);
    free(spoilt);
    subject_close(&s);
}

/* ---------------------------------------------------------------- what each does */

struct routed {
    double sum; /* of the last row's weights in layer 0 */
    float choice[2];
};

static void keep_router(void *user, enum gs_stage stage, int64_t layer, const float *values, int64_t rows,
                        int64_t columns)
{
    struct routed *routed = user;
    if (layer != 0)
        return;
    if (stage == GS_STAGE_ROUTER_CHOICE)
        memcpy(routed->choice, values + (rows - 1) * columns, sizeof routed->choice);
    if (stage == GS_STAGE_ROUTER_WEIGHT)
        routed->sum = (double)values[(rows - 1) * columns] + (double)values[(rows - 1) * columns + 1];
}

static struct routed route(const struct subject *s, enum gs_control control)
{
    struct routed routed = {0};
    struct gs_device *device = device_open(s, control);
    struct gs_error error;
    struct gs_kv *kv;
    int32_t tokens[] = {5, 6, 7};
    assert_ok(s->backend->kv_create(device, 3, &kv, &error), &error);
    struct gs_step step = {kv, tokens, 3, GS_WANT_NONE, NULL};
    s->backend->tap(device, keep_router, &routed);
    assert_ok(s->backend->forward(device, &step, 1, NULL, &error), &error);
    s->backend->kv_free(kv);
    s->backend->close(device);
    return routed;
}

static void test_router_is_not_renormalised(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_default();
    struct subject s = subject_open(&options);
    struct routed plain = route(&s, GS_CONTROL_NONE), spoilt = route(&s, GS_CONTROL_ROUTER_SOFTMAX);
    assert_true(fabs(plain.sum - 1.0) < 1e-6);
    assert_true(spoilt.sum < 0.95 && spoilt.sum > 0.0);
    assert_memory_equal(plain.choice, spoilt.choice, sizeof plain.choice);
    subject_close(&s);
}

/* A row of an expert in the middle, as the backend reads it under a control. */
static void read_row(const struct subject *s, enum gs_control control, const struct gs_mxfp4_matrix *matrix,
                     float *out)
{
    struct gs_device *device = device_open(s, control);
    s->backend->dequantize(device, matrix, 3, 5, 1, out);
    s->backend->close(device);
}

/* safetensors form: neighbours change places; GGUF's: element k and k + 16 do. */
static void check_dequantize(const struct subject *s, const struct gs_mxfp4_matrix *matrix, int64_t apart)
{
    enum { MOST = 96 };
    float plain[MOST], other[MOST];
    int64_t n = matrix->columns, n_differing = 0;
    assert_true(n <= MOST);
    read_row(s, GS_CONTROL_NONE, matrix, plain);
    read_row(s, GS_CONTROL_NIBBLE_ORDER, matrix, other);
    for (int64_t i = 0; i < n; i++) {
        assert_true(other[i] == plain[i ^ apart]);
        n_differing += other[i] != plain[i];
    }
    assert_true(n_differing > n / 2);
    read_row(s, GS_CONTROL_SCALE_MINUS_ONE, matrix, other);
    for (int64_t i = 0; i < n; i++)
        assert_true(other[i] == plain[i] / 2.0f);
}

static void test_dequantize(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_default();
    struct subject s = subject_open(&options);
    check_dequantize(&s, &s.weights->layers[1].gate_up, 1);
    check_dequantize(&s, &s.weights->layers[1].down, 1);

    uint8_t *blocks = malloc(8 * 16 * 2 * GS_MXFP4_BLOCK_BYTES); /* experts, rows, groups */
    assert_non_null(blocks);
    for (size_t i = 0; i < 8 * 16 * 2 * GS_MXFP4_BLOCK_BYTES; i++)
        blocks[i] = (uint8_t)(i % GS_MXFP4_BLOCK_BYTES == 0 ? 120 + i % 5 : i * 37 + i / 11);
    struct gs_mxfp4_matrix gguf = {.blocks = blocks, .n_expert = 8, .rows = 16, .columns = 64};
    check_dequantize(&s, &gguf, 16);
    free(blocks);
    subject_close(&s);
}

static void test_rotary(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_default();
    struct subject s = subject_open(&options);
    static const enum gs_control controls[] = {GS_CONTROL_NONE, GS_CONTROL_YARN,
                                               GS_CONTROL_YARN_ROUNDED_BOUNDS};
    struct gs_yarn found[3], expected;
    for (int i = 0; i < 3; i++) {
        struct gs_device *device = device_open(&s, controls[i]);
        s.backend->rotary(device, &found[i]);
        s.backend->close(device);
    }
    size_t bytes = (size_t)found[0].n_freq * sizeof(float);
    gs_yarn_init(&s.weights->config, &expected);
    assert_memory_equal(found[0].inv_freq, expected.inv_freq, bytes);
    assert_true(found[1].attention_scaling == 1.0f && found[0].attention_scaling > 1.3f);
    assert_true(found[2].attention_scaling == found[0].attention_scaling);
    assert_memory_not_equal(found[0].inv_freq, found[1].inv_freq, bytes);
    assert_memory_not_equal(found[0].inv_freq, found[2].inv_freq, bytes);
    subject_close(&s);
}

/* The weights belong to everyone: a control works on a copy. */
static void test_weights_stay(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_default();
    struct subject s = subject_open(&options);
    struct gs_weights before = *s.weights;
    size_t bytes = (size_t)options.n_layer * sizeof *before.layers;
    struct gs_layer_weights *layers = malloc(bytes);
    assert_non_null(layers);
    memcpy(layers, s.weights->layers, bytes);
    for (int c = 0; c < GS_CONTROL_COUNT; c++)
        s.backend->close(device_open(&s, (enum gs_control)c));
    assert_memory_equal(&before, s.weights, sizeof before);
    assert_memory_equal(layers, s.weights->layers, bytes);
    free(layers);
    subject_close(&s);
}

static void test_unknown_control(void **state)
{
    (void)state;
    const struct gs_backend *backend;
    struct gs_device *device;
    struct gs_error error;
    struct gs_device_options options = {.control = GS_CONTROL_COUNT};
    assert_ok(gs_backend_find("cpu", &backend, &error), &error);
    assert_fails(backend->open(&options, &device, &error), GS_INVALID_ARGUMENT, "control", &error);
    assert_null(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_where_controls_act),
        cmocka_unit_test(test_every_expert_active),
        cmocka_unit_test(test_no_yarn_to_kill),
        cmocka_unit_test(test_limit_is_counted),
        cmocka_unit_test(test_router_is_not_renormalised),
        cmocka_unit_test(test_dequantize),
        cmocka_unit_test(test_rotary),
        cmocka_unit_test(test_weights_stay),
        cmocka_unit_test(test_unknown_control),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
