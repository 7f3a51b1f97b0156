/* The exact CPU backend: the same bits however a token is computed, and the formulas of attention and router.
 */
#include "backend/cpu/kernels.h"
#include "backend/registry.h"
#include "tests/support/check.h"
#include "tests/support/pair.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define N_TOKENS 300
#define N_VOCAB  PAIR_VOCAB

static float *make_logits(void)
{
    return calloc(N_TOKENS * N_VOCAB, sizeof(float));
}

static void assert_same_logits(const float *a, const float *b, const char *what)
{
    for (size_t t = 0; t < N_TOKENS; t++)
        if (memcmp(a + t * N_VOCAB, b + t * N_VOCAB, N_VOCAB * sizeof *a) != 0)
            fail_msg("%s: the logits of token %zu have other bits", what, t);
}

/* ---------------------------------------------------------------- the same bits */

static void bits_do_not_depend_on_chunks_or_threads(void **state)
{
    (void)state;
    struct tiny_model *model = pair_model();
    int32_t tokens[N_TOKENS];
    pair_tokens(tokens, N_TOKENS, 1);
    float *whole = make_logits(), *other = make_logits();
    for (size_t n_threads = 1; n_threads <= 4; n_threads++) {
        struct loaded loaded = loaded_open(model, n_threads);
        static const size_t pieces[] = {256, 1, 2, 3, 7, 16, 17, 64, 100, 255};
        for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
            bool first = n_threads == 1 && i == 0;
            struct gs_kv *kv = loaded_kv(&loaded, N_TOKENS);
            loaded_run(&loaded, kv, tokens, N_TOKENS, pieces[i], first ? whole : other);
            if (!first)
                assert_same_logits(whole, other, "chunks");
            loaded.backend->kv_free(kv);
        }
        loaded_close(&loaded);
    }
    /* The control: another token at position 5 changes position 5 and what comes after, nothing before. */
    struct loaded loaded = loaded_open(model, 2);
    struct gs_kv *kv = loaded_kv(&loaded, N_TOKENS);
    tokens[5] = (tokens[5] + 1) % N_VOCAB;
    loaded_run(&loaded, kv, tokens, N_TOKENS, 64, other);
    assert_memory_equal(whole, other, 5 * N_VOCAB * sizeof *whole);
    for (size_t t = 5; t < N_TOKENS; t++)
        assert_true(memcmp(whole + t * N_VOCAB, other + t * N_VOCAB, N_VOCAB * sizeof *whole) != 0);
    loaded.backend->kv_free(kv);
    loaded_close(&loaded);
    free(whole);
    free(other);
    tiny_model_free(model);
}

/* FNV-1a over the bits of floats. */
static uint64_t hash_of(const float *values, size_t n)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n * sizeof *values; i++)
        hash = (hash ^ ((const unsigned char *)values)[i]) * 0x100000001B3u;
    return hash;
}

/*
 * One number for the bits of 300 rows of logits: the same for every instruction set, compiler and processor.
 * Sizes are odd ones, so that tails of vectors take part: heads of 18, d_ff of 96.
 */
static void bits_do_not_depend_on_the_processor(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_default();
    options.n_vocab = N_VOCAB;
    options.d_head = 18;
    struct tiny_model *model = tiny_model_make(&options);
    int32_t tokens[N_TOKENS];
    pair_tokens(tokens, N_TOKENS, 9);
    float *logits = make_logits();
    for (size_t v = 0; v < gs_kernels_count(); v++) {
        struct loaded loaded = loaded_open_isa(model, gs_kernels_at(v)->isa);
        struct gs_kv *kv = loaded_kv(&loaded, N_TOKENS);
        loaded_run(&loaded, kv, tokens, N_TOKENS, 100, logits);
        uint64_t hash = hash_of(logits, N_TOKENS * N_VOCAB);
        if (hash != 0xe4a6990ff2d9d843u)
            fail_msg("%s: hash 0x%016llx", gs_kernels_at(v)->isa, (unsigned long long)hash);
        struct gs_backend_stats stats;
        loaded.backend->stats(loaded.device, &stats);
        assert_true(stats.weight_bytes > 0 && stats.n_tokens == N_TOKENS && stats.n_forward == 3);
        loaded.backend->kv_free(kv);
        loaded_close(&loaded);
    }
    struct gs_device_options unknown = {.isa = "mmx"};
    struct gs_device *device;
    struct gs_error error;
    const struct gs_backend *backend;
    assert_ok(gs_backend_find("cpu", &backend, &error), &error);
    assert_fails(backend->open(&unknown, &device, &error), GS_UNSUPPORTED, "no mmx kernels", &error);
    free(logits);
    tiny_model_free(model);
}

static void bits_do_not_depend_on_other_sessions(void **state)
{
    (void)state;
    struct tiny_model *model = pair_model();
    struct loaded loaded = loaded_open(model, 2);
    int32_t tokens[3][N_TOKENS];
    float *alone[3], *together[3];
    struct gs_kv *kv[3];
    for (unsigned s = 0; s < 3; s++) {
        pair_tokens(tokens[s], N_TOKENS, s + 1);
        alone[s] = make_logits();
        together[s] = make_logits();
        kv[s] = loaded_kv(&loaded, N_TOKENS);
        loaded_run(&loaded, kv[s], tokens[s], N_TOKENS, 256, alone[s]);
        assert_int_equal(loaded.backend->kv_truncate(kv[s], 0), 0);
    }
    size_t done[3] = {0};
    static const size_t pieces[3] = {1, 13, 70};
    while (done[0] < N_TOKENS || done[1] < N_TOKENS || done[2] < N_TOKENS) {
        struct gs_step steps[3];
        unsigned who[3];
        size_t n_steps = 0, row = 0;
        for (unsigned s = 0; s < 3; s++) {
            size_t left = N_TOKENS - done[s], n = left < pieces[s] ? left : pieces[s];
            if (n == 0)
                continue;
            who[n_steps] = s;
            steps[n_steps++] = (struct gs_step){kv[s], tokens[s] + done[s], n, GS_WANT_ALL, NULL};
        }
        struct gs_error error;
        assert_ok(loaded.backend->forward(loaded.device, steps, n_steps, NULL, &error), &error);
        for (size_t i = 0; i < n_steps; i++)
            for (size_t t = 0; t < steps[i].n_tokens; t++)
                memcpy(together[who[i]] + done[who[i]]++ * N_VOCAB,
                       loaded.backend->logits(loaded.device, row++), N_VOCAB * sizeof(float));
        assert_null(loaded.backend->logits(loaded.device, row));
    }
    for (unsigned s = 0; s < 3; s++) {
        assert_same_logits(alone[s], together[s], "beside other sessions");
        loaded.backend->kv_free(kv[s]);
        free(alone[s]);
        free(together[s]);
    }
    loaded_close(&loaded);
    tiny_model_free(model);
}

/* ---------------------------------------------------------------- attention by formula */

static void set_f32(struct tiny_model *model, const char *name, float value)
{
    struct tiny_tensor *tensor = tiny_model_find(model, name);
    assert_int_equal(tensor->dtype, GS_DTYPE_F32);
    for (uint64_t i = 0; i < tensor->bytes / sizeof value; i++)
        memcpy(tensor->data + i * sizeof value, &value, sizeof value);
}

static void set_f32_at(struct tiny_model *model, const char *name, uint64_t index, float value)
{
    memcpy(tiny_model_find(model, name)->data + index * sizeof value, &value, sizeof value);
}

/*
 * One layer whose scores are all zero, whose output projection is the identity (4 heads of 8 make the 32
 * of d_model), and whose value at each position is that of its token: the normed embedding of token j is
 * sqrt(32) (sin, cos, 0 ...) of an angle with sin = j / 256, and every row of v_proj reads the sine.
 */
static struct tiny_model *make_averager(bool window_layer, const float sinks[4], float v_bias)
{
    struct tiny_options options = tiny_options_default();
    options.n_layer = 1;
    options.d_model = 32;
    options.d_head = 8;
    options.n_head = 4;
    options.n_kv_head = 2;
    options.n_vocab = 256;
    options.window = 128;
    options.dense = GS_DTYPE_F32;
    struct tiny_model *model = tiny_model_make(&options);
    static const char layer[] = "model.layers.0.";
    static const char *const zeros[] = {"self_attn.q_proj.weight", "self_attn.q_proj.bias",
                                        "self_attn.k_proj.weight", "self_attn.k_proj.bias",
                                        "self_attn.v_proj.weight", "self_attn.o_proj.weight",
                                        "self_attn.o_proj.bias"};
    char name[128];
    for (size_t i = 0; i < sizeof zeros / sizeof zeros[0]; i++) {
        snprintf(name, sizeof name, "%s%s", layer, zeros[i]);
        set_f32(model, name, 0);
    }
    set_f32(model, "model.layers.0.input_layernorm.weight", 1);
    set_f32(model, "model.layers.0.self_attn.v_proj.bias", v_bias);
    set_f32(model, "model.embed_tokens.weight", 0);
    for (uint64_t j = 0; j < 256; j++) {
        float sine = (float)j / 256, size = 1000; /* so large that the norm's epsilon does not count */
        set_f32_at(model, "model.embed_tokens.weight", j * 32, size * sine);
        set_f32_at(model, "model.embed_tokens.weight", j * 32 + 1, size * sqrtf(1 - sine * sine));
    }
    for (uint64_t row = 0; row < 16; row++) /* value = 256 sine = j */
        set_f32_at(model, "model.layers.0.self_attn.v_proj.weight", row * 32,
                   v_bias != 0 ? 0 : 256 / sqrtf(32));
    for (uint64_t i = 0; i < 32; i++)
        set_f32_at(model, "model.layers.0.self_attn.o_proj.weight", i * 32 + i, 1);
    for (uint64_t head = 0; head < 4; head++)
        set_f32_at(model, "model.layers.0.self_attn.sinks", head, sinks[head]);
    if (!window_layer)
        tiny_model_edit_config(model, "sliding_attention", "full_attention");
    return model;
}

struct captured {
    float attention[256][32];
    int64_t n_rows;
};

static void capture(void *user, enum gs_stage stage, int64_t layer, const float *values, int64_t rows,
                    int64_t columns)
{
    struct captured *captured = user;
    if (stage != GS_STAGE_ATTENTION || layer != 0)
        return;
    assert_int_equal(columns, 32);
    memcpy(captured->attention[captured->n_rows], values, (size_t)(rows * columns) * sizeof *values);
    captured->n_rows += rows;
}

static void run_averager(struct tiny_model *model, size_t n_tokens, size_t piece, struct captured *captured)
{
    struct loaded loaded = loaded_open(model, 2);
    int32_t tokens[256];
    for (int32_t j = 0; j < 256; j++)
        tokens[j] = j;
    *captured = (struct captured){0};
    struct gs_kv *kv = loaded_kv(&loaded, 256);
    loaded.backend->tap(loaded.device, capture, captured);
    loaded_run(&loaded, kv, tokens, n_tokens, piece, NULL);
    loaded.backend->kv_free(kv);
    loaded_close(&loaded);
    tiny_model_free(model);
}

static void window_is_exactly_128_positions(void **state)
{
    (void)state;
    static const float no_sinks[4] = {-1e30f, -1e30f, -1e30f, -1e30f};
    static const size_t pieces[] = {201, 1, 50};
    for (size_t i = 0; i < 3; i++) {
        struct captured captured;
        run_averager(make_averager(true, no_sinks, 0), 201, pieces[i], &captured);
        for (int h = 0; h < 32; h++) {
            assert_float_equal(captured.attention[200][h], 136.5f, 1e-3f); /* the mean of 73 ... 200 */
            assert_float_equal(captured.attention[127][h], 63.5f, 1e-3f);  /* of 0 ... 127 */
            assert_float_equal(captured.attention[128][h], 64.5f, 1e-3f);  /* of 1 ... 128 */
        }
        run_averager(make_averager(false, no_sinks, 0), 201, pieces[i], &captured);
        for (int h = 0; h < 32; h++)
            assert_float_equal(captured.attention[200][h], 100.0f, 1e-3f); /* of 0 ... 200 */
    }
}

static void sinks_join_the_denominator(void **state)
{
    (void)state;
    static const float sinks[4] = {0.0f, 1.0f, -2.0f, 30.0f};
    static const size_t pieces[] = {201, 1, 2};
    for (int window_layer = 0; window_layer < 2; window_layer++)
        for (size_t i = 0; i < 3; i++) {
            struct captured captured;
            run_averager(make_averager(window_layer, sinks, 1), 201, pieces[i], &captured);
            for (int64_t t = 0; t < captured.n_rows; t++)
                for (int h = 0; h < 32; h++) {
                    double n = window_layer && t >= 128 ? 128 : (double)t + 1;
                    double expected = n / (n + exp((double)sinks[h / 8]));
                    assert_float_equal(captured.attention[t][h], (float)expected, 2e-6f);
                }
        }
}

/* ---------------------------------------------------------------- errors, cancelling, the cache */

static void bad_steps_are_refused(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_default();
    struct tiny_model *model = tiny_model_make(&options);
    struct loaded loaded = loaded_open(model, 1);
    struct gs_kv *kv = loaded_kv(&loaded, 4);
    int32_t tokens[300] = {0};
    struct gs_error error;
    struct gs_step step = {kv, tokens, 5, GS_WANT_LAST, NULL};
    assert_fails(loaded.backend->forward(loaded.device, &step, 1, NULL, &error), GS_CONTEXT_FULL, "4 of 4",
                 &error);
    step.n_tokens = 0;
    assert_fails(loaded.backend->forward(loaded.device, &step, 1, NULL, &error), GS_INVALID_ARGUMENT, "1 to",
                 &error);
    step.n_tokens = 300;
    assert_fails(loaded.backend->forward(loaded.device, &step, 1, NULL, &error), GS_INVALID_ARGUMENT, "256",
                 &error);
    step.n_tokens = 2;
    tokens[1] = (int32_t)options.n_vocab;
    assert_fails(loaded.backend->forward(loaded.device, &step, 1, NULL, &error), GS_INVALID_ARGUMENT,
                 "token id", &error);
    tokens[1] = -1;
    assert_fails(loaded.backend->forward(loaded.device, &step, 1, NULL, &error), GS_INVALID_ARGUMENT,
                 "token id", &error);
    tokens[1] = 0;
    struct gs_step twice[2] = {step, step};
    assert_fails(loaded.backend->forward(loaded.device, twice, 2, NULL, &error), GS_INVALID_ARGUMENT,
                 "same timeline", &error);
    assert_int_equal(loaded.backend->kv_length(kv), 0);
    loaded.backend->kv_free(kv);
    loaded_close(&loaded);
    tiny_model_free(model);
}

static void a_cancelled_step_leaves_the_timeline(void **state)
{
    (void)state;
    struct tiny_model *model = pair_model();
    struct loaded loaded = loaded_open(model, 2);
    int32_t tokens[N_TOKENS];
    pair_tokens(tokens, N_TOKENS, 3);
    float *expected = make_logits(), *resumed = make_logits();
    struct gs_kv *kv = loaded_kv(&loaded, N_TOKENS);
    loaded_run(&loaded, kv, tokens, N_TOKENS, 256, expected);
    assert_int_equal(loaded.backend->kv_truncate(kv, 0), 0);

    loaded_run(&loaded, kv, tokens, 200, 200, resumed);
    _Atomic bool cancelled = true;
    struct gs_step step = {kv, tokens + 200, 100, GS_WANT_LAST, NULL};
    struct gs_error error;
    assert_fails(loaded.backend->forward(loaded.device, &step, 1, &cancelled, &error), GS_CANCELLED,
                 "cancelled", &error);
    assert_int_equal(loaded.backend->kv_length(kv), 200);
    loaded_run(&loaded, kv, tokens + 200, 100, 100, resumed + 200 * N_VOCAB);
    assert_same_logits(expected, resumed, "after a cancelled step");
    loaded.backend->kv_free(kv);
    loaded_close(&loaded);
    free(expected);
    free(resumed);
    tiny_model_free(model);
}

struct canceller {
    _Atomic bool cancelled;
    int64_t last_layer;
};

static void cancel_in_layer_1(void *user, enum gs_stage stage, int64_t layer, const float *values,
                              int64_t rows, int64_t columns)
{
    (void)values, (void)rows, (void)columns;
    struct canceller *canceller = user;
    if (stage == GS_STAGE_ATTENTION && layer == 1)
        canceller->cancelled = true;
    canceller->last_layer = layer;
}

/* In the middle of a step, after rings were written: no later layer runs, and the timeline is as it was. */
static void a_step_is_cancelled_within_a_layer(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_default();
    options.n_vocab = N_VOCAB;
    assert_true(options.n_layer >= 4);
    struct tiny_model *model = tiny_model_make(&options);
    struct loaded loaded = loaded_open(model, 2);
    int32_t tokens[N_TOKENS];
    pair_tokens(tokens, N_TOKENS, 6);
    float *expected = make_logits(), *resumed = make_logits();
    struct gs_kv *kv = loaded_kv(&loaded, 2 * N_TOKENS);
    loaded_run(&loaded, kv, tokens, N_TOKENS, 256, expected);
    assert_int_equal(loaded.backend->kv_truncate(kv, 0), 0);
    loaded_run(&loaded, kv, tokens, 290, 145, resumed);

    struct canceller canceller = {0};
    int32_t others[256] = {0};
    struct gs_step step = {kv, others, 256, GS_WANT_LAST, NULL};
    struct gs_error error;
    loaded.backend->tap(loaded.device, cancel_in_layer_1, &canceller);
    assert_fails(loaded.backend->forward(loaded.device, &step, 1, &canceller.cancelled, &error), GS_CANCELLED,
                 "cancelled", &error);
    loaded.backend->tap(loaded.device, NULL, NULL);
    assert_int_equal(canceller.last_layer, 1);
    assert_int_equal(loaded.backend->kv_length(kv), 290);
    loaded_run(&loaded, kv, tokens + 290, 10, 10, resumed + 290 * N_VOCAB);
    assert_same_logits(expected, resumed, "after a step that was cancelled in layer 1");
    loaded.backend->kv_free(kv);
    loaded_close(&loaded);
    free(expected);
    free(resumed);
    tiny_model_free(model);
}

/* Truncate to every length, run the rest again: the same bits, or the cache says that it has to start over.
 */
static void truncation_is_exact_or_declined(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_default();
    options.n_vocab = N_VOCAB;
    options.n_layer = 2;
    struct tiny_model *model = tiny_model_make(&options);
    struct loaded loaded = loaded_open(model, 2);
    int32_t tokens[N_TOKENS];
    pair_tokens(tokens, N_TOKENS, 4);
    float *expected = make_logits(), *again = make_logits();
    struct gs_kv *kv = loaded_kv(&loaded, 2 * N_TOKENS);
    loaded_run(&loaded, kv, tokens, N_TOKENS, 256, expected);
    int64_t shortest = N_TOKENS;
    for (int64_t length = N_TOKENS - 1; length >= 0; length -= 7) {
        memcpy(again, expected, N_TOKENS * N_VOCAB * sizeof *again);
        int64_t kept = loaded.backend->kv_truncate(kv, length);
        assert_true(kept == length || kept == 0);
        shortest = kept > 0 && kept < shortest ? kept : shortest;
        assert_int_equal(loaded.backend->kv_length(kv), kept);
        loaded_run(&loaded, kv, tokens + kept, (size_t)(N_TOKENS - kept), 61, again + kept * N_VOCAB);
        assert_same_logits(expected, again, "after truncation");
    }
    assert_true(shortest <= N_TOKENS - 200); /* a ring of window + step allows going back by a step */
    loaded.backend->kv_free(kv);
    loaded_close(&loaded);
    free(expected);
    free(again);
    tiny_model_free(model);
}

static void copies_and_exports_continue_alike(void **state)
{
    (void)state;
    struct tiny_model *model = pair_model();
    struct loaded loaded = loaded_open(model, 2);
    int32_t tokens[N_TOKENS];
    pair_tokens(tokens, N_TOKENS, 5);
    float *expected = make_logits(), *other = make_logits();
    struct gs_kv *kv = loaded_kv(&loaded, N_TOKENS);
    struct gs_error error;
    static const size_t splits[] = {0, 1, 15, 16, 17, 290};
    for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++) {
        size_t split = splits[i];
        struct gs_buffer bytes = {0};
        loaded.backend->kv_truncate(kv, 0);
        loaded_run(&loaded, kv, tokens, split, 64, expected);
        struct gs_kv *copy = loaded_kv(&loaded, N_TOKENS + 7),
                     *imported = loaded_kv(&loaded, N_TOKENS + 1000);
        assert_ok(loaded.backend->kv_copy(copy, kv, &error), &error);
        assert_ok(loaded.backend->kv_export(kv, &bytes, &error), &error);
        assert_ok(loaded.backend->kv_import(imported, bytes.data, bytes.size, &error), &error);
        loaded_run(&loaded, kv, tokens + split, N_TOKENS - split, 64, expected + split * N_VOCAB);
        memcpy(other, expected, split * N_VOCAB * sizeof *other);
        loaded_run(&loaded, copy, tokens + split, N_TOKENS - split, 64, other + split * N_VOCAB);
        assert_same_logits(expected, other, "copy");
        loaded_run(&loaded, imported, tokens + split, N_TOKENS - split, 64, other + split * N_VOCAB);
        assert_same_logits(expected, other, "import");
        assert_fails(loaded.backend->kv_import(imported, bytes.data, bytes.size - 1, &error), GS_MALFORMED,
                     split > 0 ? "does not hold" : "shorter", &error);
        bytes.data[0] ^= 1;
        assert_fails(loaded.backend->kv_import(imported, bytes.data, bytes.size, &error), GS_MALFORMED,
                     "another model", &error);
        gs_buffer_free(&bytes);
        loaded.backend->kv_free(copy);
        loaded.backend->kv_free(imported);
    }
    loaded.backend->kv_free(kv);
    loaded_close(&loaded);
    free(expected);
    free(other);
    tiny_model_free(model);
}

/* A cache imported without its early window positions, into one with room for all, must not claim them later.
 */
static void imported_caches_copy_and_truncate(void **state)
{
    (void)state;
    struct tiny_model *model = pair_model();
    struct loaded loaded = loaded_open(model, 2);
    int32_t tokens[N_TOKENS];
    pair_tokens(tokens, N_TOKENS, 8);
    struct gs_kv *kv = loaded_kv(&loaded, 2 * N_TOKENS), *imported = loaded_kv(&loaded, 272),
                 *copy = loaded_kv(&loaded, 272);
    struct gs_error error;
    struct gs_buffer bytes = {0};
    loaded_run(&loaded, kv, tokens, N_TOKENS, 256, NULL);
    assert_int_equal(loaded.backend->kv_truncate(kv, 260), 260);
    assert_ok(loaded.backend->kv_export(kv, &bytes, &error), &error);
    assert_ok(loaded.backend->kv_import(imported, bytes.data, bytes.size, &error), &error);
    assert_ok(loaded.backend->kv_copy(copy, imported, &error), &error);
    assert_int_equal(loaded.backend->kv_truncate(imported, 10), 0);
    assert_int_equal(loaded.backend->kv_truncate(copy, 10), 0);
    gs_buffer_free(&bytes);
    loaded.backend->kv_free(kv);
    loaded.backend->kv_free(imported);
    loaded.backend->kv_free(copy);
    loaded_close(&loaded);
    tiny_model_free(model);
}

static void check_choices(void *user, enum gs_stage stage, int64_t layer, const float *values, int64_t rows,
                          int64_t columns)
{
    if (stage != GS_STAGE_ROUTER_CHOICE || layer != 0)
        return;
    *(bool *)user = true;
    for (int64_t t = 0; t < rows; t++)
        for (int64_t k = 0; k < columns; k++)
            assert_true(values[t * columns + k] == (float)k); /* 0, 1, 2 ... in this order */
}

static void equal_router_logits_choose_the_lower_expert(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_default();
    options.n_layer = 1;
    options.n_active = 4;
    options.dense = GS_DTYPE_F32;
    struct tiny_model *model = tiny_model_make(&options);
    set_f32(model, "model.layers.0.mlp.router.weight", 0);
    set_f32(model, "model.layers.0.mlp.router.bias", 0.5f);
    struct loaded loaded = loaded_open(model, 1);
    struct gs_kv *kv = loaded_kv(&loaded, 8);
    const int32_t tokens[3] = {1, 2, 3};
    bool seen = false;
    loaded.backend->tap(loaded.device, check_choices, &seen);
    loaded_run(&loaded, kv, tokens, 3, 3, NULL);
    assert_true(seen);
    loaded.backend->kv_free(kv);
    loaded_close(&loaded);
    tiny_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_chunks_or_threads),
        cmocka_unit_test(bits_do_not_depend_on_the_processor),
        cmocka_unit_test(bits_do_not_depend_on_other_sessions),
        cmocka_unit_test(window_is_exactly_128_positions),
        cmocka_unit_test(sinks_join_the_denominator),
        cmocka_unit_test(bad_steps_are_refused),
        cmocka_unit_test(a_cancelled_step_leaves_the_timeline),
        cmocka_unit_test(a_step_is_cancelled_within_a_layer),
        cmocka_unit_test(equal_router_logits_choose_the_lower_expert),
        cmocka_unit_test(imported_caches_copy_and_truncate),
        cmocka_unit_test(truncation_is_exact_or_declined),
        cmocka_unit_test(copies_and_exports_continue_alike),
    };
    return cmocka_run_group_tests_name("backend/reference", tests, NULL, NULL);
}
