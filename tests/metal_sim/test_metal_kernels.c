/*
 * Every Metal kernel of decoding, run by the simulator in three orders of lanes over ragged shapes, against
 * the scalar CPU code. (The kernels of large steps: test_metal_prefill.c.)
 */
#include "model/mxfp4.h"
#include "tests/metal_sim/around.h"
#include "tests/metal_sim/kernel_fixture.h"

#include <math.h>
#include <stdlib.h>

static const uint32_t simdgroup_choices[] = {1, 2, 4, 8};

/* Address spaces and types, and the language's version. */
static void test_language(void **state)
{
    (void)state;
    static char message[METALSIM_MESSAGE];
    need_simulator();
    if (!metalsim_check_strict(fixture_source(), message, sizeof message))
        fail_msg("%s", message);
}

/* ---------------------------------------------------------------- MXFP4 */

/* All codes with all scales, bit for bit, from a row on. */
static void test_dequantize_is_bit_exact(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, 1);
    f.args.n_rows = 255;
    f.args.columns = 96;
    f.args.matrix_row = 3;
    uint8_t *codes = fixture_output(&f, GS_METAL_WEIGHT_0, (size_t)(3 + 255) * 48);
    uint8_t *scales = fixture_output(&f, GS_METAL_WEIGHT_1, (size_t)(3 + 255) * 3);
    for (uint32_t r = 0; r < 258; r++) {
        for (uint32_t i = 0; i < 48; i++)
            codes[r * 48 + i] = (uint8_t)(i < 16 ? i * 17 : fixture_random(&f, 256));
        for (uint32_t i = 0; i < 3; i++)
            scales[r * 3 + i] = (uint8_t)(i == 0 ? (r + 252) % 255 : fixture_random(&f, 255));
    }
    float *expected = malloc((size_t)255 * 96 * sizeof *expected);
    assert_non_null(expected);
    for (uint32_t r = 0; r < 255; r++)
        gs_mxfp4_dequantize(codes + (r + 3) * 48, scales + (r + 3) * 3, 96, expected + r * 96);
    fixture_output(&f, GS_METAL_OUT, (size_t)255 * 96 * sizeof(float));
    fixture_run(&f, GS_METAL_DEQUANTIZE);
    assert_memory_equal(f.buffers[GS_METAL_OUT].data, expected, (size_t)255 * 96 * sizeof *expected);
    free(expected);
    fixture_free(&f);
}

/* ---------------------------------------------------------------- dense kernels */

static void set_rows(struct fixture *f, uint32_t n, uint32_t n_timeline, uint32_t first_position)
{
    struct gs_metal_row *rows = fixture_rows(f, n, first_position);
    for (uint32_t t = 0; t < n; t++) {
        rows[t].token = (int32_t)fixture_random(f, f->args.n_vocab);
        rows[t].timeline = (int32_t)(t % n_timeline);
        rows[t].position = (int32_t)(first_position + t / n_timeline);
        rows[t].logit_source = (int32_t)(n - 1 - t);
        rows[t].chosen_at = (int32_t)(n - 1 - t);
    }
}

static void test_embed(void **state)
{
    (void)state;
    for (int type = GS_METAL_BF16; type <= GS_METAL_Q8; type++) {
        struct fixture f;
        fixture_init(&f, 2);
        set_rows(&f, 4, 1, 0);
        float *table = fixture_matrix(&f, 0, (enum gs_metal_type)type, f.args.n_vocab, f.args.d_model);
        struct gs_metal_row *rows = f.buffers[GS_METAL_ROWS].data;
        int32_t *chosen = fixture_output(&f, GS_METAL_CHOSEN, 3 * sizeof *chosen);
        chosen[1] = 7;
        rows[2].token = -2; /* chosen[1] */
        f.args.first_row = 1;
        f.args.n_rows = 3;
        float *hidden = fixture_output(&f, GS_METAL_HIDDEN, (size_t)4 * f.args.d_model * sizeof *hidden);
        fixture_run(&f, GS_METAL_EMBED);
        for (uint32_t t = 1; t < 4; t++) {
            int32_t token = t == 2 ? 7 : rows[t].token;
            assert_memory_equal(hidden + t * f.args.d_model, table + (size_t)token * f.args.d_model,
                                f.args.d_model * sizeof *hidden);
        }
        assert_true(isnan(hidden[0]));
        free(table);
        fixture_free(&f);
    }
}

struct attention_case {
    uint32_t d_model, d_head, n_head, n_kv_head;
    int type[3]; /* enum gs_metal_type */
    uint32_t simdgroups, scalar_load, kv_f32;
};

/* qkv and the cache of every row, as the CPU makes them. */
static void check_attention_in(struct fixture *f, float *const matrices[3], const float *hidden)
{
    const struct gs_metal_args *args = &f->args;
    uint32_t d = args->d_head, widths[3] = {args->n_head * d, args->n_kv_head * d, args->n_kv_head * d};
    uint32_t width = widths[0] + 2 * widths[1];
    float *normed = malloc(args->d_model * sizeof *normed), *expected = malloc(width * sizeof *expected);
    assert_true(normed && expected);
    const float *angles = f->buffers[GS_METAL_ROPE].data, *qkv = f->buffers[GS_METAL_QKV].data;
    const struct gs_metal_row *rows = f->buffers[GS_METAL_ROWS].data;
    for (uint32_t t = 0; t < args->n_rows; t++) {
        cpu_norm(f, hidden + t * args->d_model, f->buffers[GS_METAL_NORM_WEIGHT].data, normed);
        for (uint32_t m = 0, at = 0; m < 3; at += widths[m], m++)
            cpu_linear(matrices[m], f->buffers[GS_METAL_BIAS_0 + m].data, normed, widths[m], args->d_model,
                       expected + at);
        cpu_rotate(f, angles + t * d, expected, args->n_head + args->n_kv_head);
        expect_close("qkv", qkv + t * width, expected, width, FLOAT_TOLERANCE);
        for (uint32_t i = 0; i < 2 * args->n_kv_head * d; i++) {
            float got = cpu_kv(f, (uint32_t)rows[t].timeline, i >= args->n_kv_head * d,
                               i / d % args->n_kv_head, (uint32_t)rows[t].position, i % d);
            float put = cpu_kv_rounded(f, qkv[t * width + args->n_head * d + i]);
            assert_memory_equal(&got, &put, sizeof got);
        }
    }
    free(normed);
    free(expected);
}

static void run_attention_in(const struct attention_case *c, bool store)
{
    struct fixture f;
    fixture_init(&f, c->d_model + c->simdgroups);
    f.args.d_model = c->d_model;
    f.args.d_head = c->d_head;
    f.args.n_head = c->n_head;
    f.args.n_kv_head = c->n_kv_head;
    f.tuning.simdgroups = c->simdgroups;
    f.tuning.scalar_load = c->scalar_load;
    f.tuning.kv_f32 = c->kv_f32;
    f.args.store_kv = store;
    uint32_t n = 3, width = (c->n_head + 2 * c->n_kv_head) * c->d_head;
    fixture_kv(&f, 2, 3, false);
    set_rows(&f, n, 2, 5);
    float *matrices[3];
    for (uint32_t m = 0; m < 3; m++) {
        uint32_t rows = (m == 0 ? c->n_head : c->n_kv_head) * c->d_head;
        matrices[m] = fixture_matrix(&f, m, (enum gs_metal_type)c->type[m], rows, c->d_model);
        fixture_floats(&f, GS_METAL_BIAS_0 + m, rows, 1.0f);
    }
    float *hidden = fixture_floats(&f, GS_METAL_HIDDEN, (size_t)n * c->d_model, 3.0f);
    fixture_floats(&f, GS_METAL_NORM_WEIGHT, c->d_model, 2.0f);
    fixture_floats(&f, GS_METAL_ROPE, (size_t)n * c->d_head, 1.3f);
    fixture_output(&f, GS_METAL_QKV, (size_t)n * width * sizeof(float));
    fixture_run(&f, GS_METAL_ATTENTION_IN);
    if (!store) {
        f.args.first_row = 1; /* row by row, as for caches in buffers of their own */
        f.args.n_rows = 2;
        fixture_run(&f, GS_METAL_KV_STORE);
        f.args.first_row = 0;
        f.args.n_rows = 1;
        fixture_run(&f, GS_METAL_KV_STORE);
        f.args.n_rows = n;
    }
    check_attention_in(&f, matrices, hidden);
    for (int m = 0; m < 3; m++)
        free(matrices[m]);
    fixture_free(&f);
}

static void test_attention_in(void **state)
{
    (void)state;
    enum { BF16 = GS_METAL_BF16, F16 = GS_METAL_F16, F32 = GS_METAL_F32, Q8 = GS_METAL_Q8 };
    static const struct attention_case cases[] = {
        {96, 8, 6, 2, {BF16, BF16, BF16}, 4, 0, 0},    {160, 64, 2, 1, {BF16, BF16, BF16}, 1, 0, 1},
        {96, 6, 3, 1, {F32, F16, Q8}, 2, 0, 1},        {64, 10, 3, 3, {Q8, BF16, F16}, 8, 1, 0},
        {576, 16, 4, 2, {BF16, F32, BF16}, 4, 0, 1},   {96, 2, 1, 1, {BF16, BF16, BF16}, 4, 0, 0},
        {2880, 64, 2, 1, {BF16, BF16, BF16}, 4, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_attention_in(&cases[i], i % 2 == 0);
}

static void test_attention_out(void **state)
{
    (void)state;
    static const uint32_t shapes[][3] = {
        {96, 6, 8}, {32, 3, 6}, {160, 5, 64}, {64, 1, 2}, {32, 64, 64}}; /* d_model, heads, d */
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct fixture f;
        fixture_init(&f, 10 + i);
        uint32_t d_model = f.args.d_model = shapes[i][0], columns = shapes[i][1] * shapes[i][2], n = 2;
        f.args.n_head = shapes[i][1];
        f.args.d_head = shapes[i][2];
        f.args.n_rows = n;
        f.tuning.simdgroups = simdgroup_choices[i % 4];
        f.tuning.scalar_load = i == 3;
        float *matrix = fixture_matrix(&f, 0, i == 2 ? GS_METAL_Q8 : GS_METAL_BF16, d_model, columns);
        float *bias = fixture_floats(&f, GS_METAL_BIAS_0, d_model, 1.0f);
        float *attended = fixture_floats(&f, GS_METAL_ATTENDED, (size_t)n * columns, 1.0f);
        float *hidden = fixture_floats(&f, GS_METAL_HIDDEN, (size_t)n * d_model, 1.0f);
        float *expected = malloc((size_t)n * d_model * 2 * sizeof *expected);
        assert_non_null(expected);
        for (uint32_t t = 0; t < n; t++) {
            cpu_linear(matrix, bias, attended + t * columns, d_model, columns, expected + t * d_model);
            for (uint32_t r = 0; r < d_model; r++)
                expected[(n + t) * d_model + r] = hidden[t * d_model + r] + expected[t * d_model + r];
        }
        float *projected = fixture_output(&f, GS_METAL_PROJECTED, (size_t)n * d_model * sizeof *projected);
        fixture_run(&f, GS_METAL_ATTENTION_OUT);
        expect_close("projected", projected, expected, (size_t)n * d_model, FLOAT_TOLERANCE);
        expect_close("hidden", hidden, expected + n * d_model, (size_t)n * d_model, FLOAT_TOLERANCE);
        free(matrix);
        free(expected);
        fixture_free(&f);
    }
}

/* ---------------------------------------------------------------- attention */

/* Without and with a split: near the CPU's, and of the same bits. */
static void run_attention(const struct attention_shape *s, uint32_t position)
{
    struct fixture f;
    uint32_t d = s->d_head, n_head = s->n_head;
    fixture_init(&f, position + d);
    fixture_attention(&f, s);
    uint32_t n = 3, width = (n_head + 2 * s->n_kv_head) * d, n_ctx = position + 2;
    fixture_kv(&f, 2, s->window > 0 ? s->window + 1 : n_ctx, false);
    set_rows(&f, n, 2, position);
    fixture_floats(&f, GS_METAL_QKV, (size_t)n * width, 4.0f);
    fixture_floats(&f, GS_METAL_SINKS, n_head, 3.0f);
    size_t size = (size_t)n_head * d * sizeof(float);
    float *expected = malloc(size), *whole = malloc(n * size);
    assert_true(expected && whole);
    float *attended = fixture_output(&f, GS_METAL_ATTENDED, n * size);
    fixture_output(&f, GS_METAL_PARTIALS, 1);
    fixture_run(&f, GS_METAL_ATTENTION);
    for (uint32_t t = 0; t < n; t++) {
        cpu_attention(&f, t, expected);
        expect_close("attended", attended + t * n_head * d, expected, n_head * d, FLOAT_TOLERANCE);
    }
    memcpy(whole, attended, n * size);

    f.args.n_split = gs_metal_n_split(n_ctx, s->window) + 1; /* one more than needed: it must do no harm */
    attended = fixture_output(&f, GS_METAL_ATTENDED, n * size);
    fixture_output(&f, GS_METAL_PARTIALS, gs_metal_partials_bytes(&f.args, n, f.args.n_split));
    fixture_run(&f, GS_METAL_ATTENTION);
    fixture_run(&f, GS_METAL_ATTENTION_COMBINE);
    assert_memory_equal(attended, whole, n * size);
    free(expected);
    free(whole);
    fixture_free(&f);
}

static void test_attention(void **state)
{
    (void)state;
    static const struct {
        struct attention_shape shape;
        uint32_t position;
    } cases[] = {
        {{8, 6, 2, 0, 1}, 0},    {{64, 8, 1, 0, 0}, 37},    {{64, 4, 2, 0, 0}, 600},
        {{6, 3, 1, 0, 1}, 300},  {{10, 3, 3, 0, 0}, 255},   {{64, 2, 1, 128, 0}, 300},
        {{16, 6, 2, 5, 1}, 3},   {{16, 22, 2, 5, 0}, 100},  /* eleven heads a kv head, eight a threadgroup */
        {{256, 1, 1, 0, 1}, 64}, {{40, 2, 1, 300, 1}, 400}, /* a window of more than a chunk */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_attention(&cases[i].shape, cases[i].position);
}

/* A row of a window layer meets no slot outside its window: what is there is not a number. */
static void test_window_reads_no_more(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, 5);
    f.args.window = 20;
    f.args.attention_scale = 1.0f;
    fixture_kv(&f, 1, 30, false);
    set_rows(&f, 1, 1, 100);
    uint32_t width = (f.args.n_head + 2 * f.args.n_kv_head) * f.args.d_head;
    fixture_floats(&f, GS_METAL_QKV, width, 1.0f);
    fixture_floats(&f, GS_METAL_SINKS, f.args.n_head, 1.0f);
    fixture_output(&f, GS_METAL_PARTIALS, 1);
    const struct gs_metal_kv_layer *layer =
        (const struct gs_metal_kv_layer *)f.buffers[GS_METAL_KV_TABLE].data + 1;
    uint8_t *kv = f.buffers[GS_METAL_KV].data;
    for (uint32_t head = 0; head < f.args.n_kv_head; head++)
        for (uint32_t position = 71; position <= 80; position++) {
            size_t at = ((size_t)head * 30 + position % 30) * f.args.d_head * 4, n = f.args.d_head * 4;
            memset(kv + layer->keys + at, 0xff, n);
            memset(kv + layer->values + at, 0xff, n);
        }
    float *attended =
        fixture_output(&f, GS_METAL_ATTENDED, (size_t)f.args.n_head * f.args.d_head * sizeof *attended);
    fixture_run(&f, GS_METAL_ATTENTION);
    float expected[6 * 8];
    cpu_attention(&f, 0, expected);
    expect_close("attended", attended, expected, 6 * 8, FLOAT_TOLERANCE);
    fixture_free(&f);
}

/* ---------------------------------------------------------------- router */

static void run_router(uint32_t n_expert, uint32_t n_active, uint32_t d_model, bool ties)
{
    struct fixture f;
    fixture_init(&f, n_expert);
    f.args.n_expert = n_expert;
    f.args.n_active = n_active;
    f.args.d_model = d_model;
    uint32_t n = f.args.n_rows = 2;
    float *matrix = fixture_matrix(&f, 0, GS_METAL_BF16, n_expert, d_model);
    float *bias = fixture_floats(&f, GS_METAL_BIAS_0, n_expert, 1.0f);
    if (ties) { /* every expert the same logits, but for the biases: few values, so many ties */
        memset(f.buffers[GS_METAL_WEIGHT_0].data, 0, f.buffers[GS_METAL_WEIGHT_0].size);
        memset(matrix, 0, (size_t)n_expert * d_model * sizeof *matrix);
        for (uint32_t e = 0; e < n_expert; e++)
            bias[e] = (float)fixture_random(&f, 3);
    }
    float *hidden = fixture_floats(&f, GS_METAL_HIDDEN, (size_t)n * d_model, 2.0f);
    float *weight = fixture_floats(&f, GS_METAL_NORM_WEIGHT, d_model, 2.0f);
    float *normed = fixture_output(&f, GS_METAL_NORMED, (size_t)n * d_model * 4);
    float *logits = fixture_output(&f, GS_METAL_ROUTER_LOGITS, (size_t)n * n_expert * 4);
    int32_t *choice = fixture_output(&f, GS_METAL_CHOICE, (size_t)n * n_active * 4);
    float *choice_weight = fixture_output(&f, GS_METAL_CHOICE_WEIGHT, (size_t)n * n_active * 4);
    struct gs_metal_active *active =
        fixture_output(&f, GS_METAL_ACTIVE, (size_t)n * n_active * sizeof *active);
    fixture_run(&f, GS_METAL_ROUTER);
    float *expected = malloc((d_model + n_expert) * sizeof *expected), weights[GS_METAL_MAX_ACTIVE];
    assert_non_null(expected);
    for (uint32_t t = 0; t < n; t++) {
        int32_t chosen[GS_METAL_MAX_ACTIVE];
        cpu_norm(&f, hidden + t * d_model, weight, expected);
        expect_close("normed", normed + t * d_model, expected, d_model, FLOAT_TOLERANCE);
        cpu_linear(matrix, bias, expected, n_expert, d_model, expected + d_model);
        expect_close("router", logits + t * n_expert, expected + d_model, n_expert, FLOAT_TOLERANCE);
        cpu_choose(&f, logits + t * n_expert, chosen, weights);
        assert_memory_equal(choice + t * n_active, chosen, n_active * sizeof *chosen);
        expect_close("weights", choice_weight + t * n_active, weights, n_active, FLOAT_TOLERANCE);
        for (uint32_t rank = 0; rank < n_active; rank++) {
            const struct gs_metal_active *a = &active[t * n_active + rank];
            assert_true(rank == 0 || a[-1].expert < a->expert);
            uint32_t k = 0;
            while (k < n_active && chosen[k] != a->expert)
                k++;
            assert_true(k < n_active && choice_weight[t * n_active + k] == a->weight);
        }
    }
    free(expected);
    free(matrix);
    fixture_free(&f);
}

static void test_router(void **state)
{
    (void)state;
    run_router(5, 3, 96, false);
    run_router(32, 4, 2880, false);
    run_router(32, 4, 96, true);
    run_router(128, 4, 64, true);
    run_router(70, 16, 96, true);
    run_router(1, 1, 32, false);
    run_router(150, 9, 32, false);
}

/* ---------------------------------------------------------------- experts */

#define N_MOE_SHAPES 6

static void set_moe(struct fixture *f, uint32_t i)
{
    static const uint32_t shapes[][4] = {
        {96, 32, 5, 3},   {1056, 96, 4, 4}, {64, 160, 9, 1},
        {32, 64, 20, 16}, {2880, 32, 2, 1}, {32, 2880, 2, 2},
    };
    f->args.d_model = shapes[i][0];
    f->args.d_ff = shapes[i][1];
    f->args.n_expert = shapes[i][2];
    f->args.n_active = f->args.n_ranks = shapes[i][3];
    f->tuning.mxfp4_simdgroups = i == 3 ? 8 : i == 0 ? 1 : i == 2 ? 4 : 2;
    f->tuning.scalar_load = i == 2;
    fixture_actives(f, 2, false);
}

/* With the clamp on both sides at work. */
static void test_moe_gate_up(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_MOE_SHAPES; i++) {
        struct fixture f;
        fixture_init(&f, 20 + i);
        set_moe(&f, i);
        uint32_t d_ff = f.args.d_ff, d_model = f.args.d_model, n_active = f.args.n_active;
        float *weights = fixture_experts(&f, 2 * d_ff, d_model);
        fixture_floats(&f, GS_METAL_BIAS_0, (size_t)f.args.n_expert * 2 * d_ff, 9.0f);
        fixture_floats(&f, GS_METAL_NORMED, (size_t)2 * d_model, 3.0f);
        float *activated = fixture_output(&f, GS_METAL_ACTIVATED, (size_t)2 * n_active * d_ff * 4);
        uint32_t *past_limit = fixture_output(&f, GS_METAL_OUT, sizeof *past_limit);
        *past_limit = 5;
        fixture_run(&f, GS_METAL_MOE_GATE_UP);
        assert_int_equal(*past_limit, 5); /* counted under a control alone */
        expect_activated(&f, weights);
        float *legacy = malloc(f.buffers[GS_METAL_ACTIVATED].size);
        assert_non_null(legacy);
        /* One expert after the other: the same bits. */
        memcpy(legacy, activated, f.buffers[GS_METAL_ACTIVATED].size);
        fixture_output(&f, GS_METAL_ACTIVATED, (size_t)2 * n_active * d_ff * 4);
        f.args.n_ranks = 1;
        for (f.args.first_rank = 0; f.args.first_rank < n_active; f.args.first_rank++)
            fixture_run_once(&f, GS_METAL_MOE_GATE_UP, 0);
        assert_memory_equal(f.buffers[GS_METAL_ACTIVATED].data, legacy, f.buffers[GS_METAL_ACTIVATED].size);
        free(legacy);
        free(weights);
        fixture_free(&f);
    }
}

static void test_moe_down(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_MOE_SHAPES; i++) {
        struct fixture f;
        fixture_init(&f, 30 + i);
        set_moe(&f, i);
        uint32_t d_ff = f.args.d_ff, d_model = f.args.d_model, n_active = f.args.n_active;
        float *weights = fixture_experts(&f, d_model, d_ff);
        fixture_floats(&f, GS_METAL_BIAS_0, (size_t)f.args.n_expert * d_model, 1.0f);
        fixture_floats(&f, GS_METAL_ACTIVATED, (size_t)2 * n_active * d_ff, 3.0f);
        float *hidden = fixture_floats(&f, GS_METAL_HIDDEN, (size_t)2 * d_model, 1.0f);
        size_t size = (size_t)2 * d_model * sizeof(float);
        float *before = malloc(size), *moe = malloc(size), *sum = malloc(size);
        assert_true(before && moe && sum);
        memcpy(before, hidden, size);
        float *projected = fixture_output(&f, GS_METAL_PROJECTED, size);
        fixture_run(&f, GS_METAL_MOE_DOWN);
        expect_experts_down(&f, weights, before);
        /* One expert after the other: the same bits. */
        memcpy(moe, projected, size);
        memcpy(sum, hidden, size);
        memcpy(hidden, before, size);
        projected = fixture_output(&f, GS_METAL_PROJECTED, size);
        f.args.n_ranks = 1;
        for (f.args.first_rank = 0; f.args.first_rank < n_active; f.args.first_rank++)
            fixture_run_once(&f, GS_METAL_MOE_DOWN, 1);
        assert_memory_equal(projected, moe, size);
        assert_memory_equal(hidden, sum, size);
        free(before);
        free(moe);
        free(sum);
        free(weights);
        fixture_free(&f);
    }
}

/* ---------------------------------------------------------------- controls */

/* Each does its one wrong thing, and only in the kernels that it is about. */
static void test_control_of_router(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, 61);
    f.tuning.control = GS_METAL_CONTROL_ROUTER_SOFTMAX;
    uint32_t n_expert = f.args.n_expert, n_active = f.args.n_active;
    free(fixture_matrix(&f, 0, GS_METAL_BF16, n_expert, f.args.d_model));
    fixture_floats(&f, GS_METAL_BIAS_0, n_expert, 1.0f);
    fixture_floats(&f, GS_METAL_HIDDEN, f.args.d_model, 2.0f);
    fixture_floats(&f, GS_METAL_NORM_WEIGHT, f.args.d_model, 0.2f);
    fixture_output(&f, GS_METAL_NORMED, f.args.d_model * 4);
    float *logits = fixture_output(&f, GS_METAL_ROUTER_LOGITS, n_expert * 4), expected[3], sum = 0.0f;
    int32_t *choice = fixture_output(&f, GS_METAL_CHOICE, n_active * 4), chosen[3];
    float *weights = fixture_output(&f, GS_METAL_CHOICE_WEIGHT, n_active * 4);
    fixture_output(&f, GS_METAL_ACTIVE, n_active * sizeof(struct gs_metal_active));
    fixture_run(&f, GS_METAL_ROUTER);
    cpu_choose(&f, logits, chosen, expected);
    assert_memory_equal(choice, chosen, sizeof chosen);
    for (uint32_t e = 0; e < n_expert; e++)
        sum += expf(logits[e] - logits[chosen[0]]);
    for (uint32_t k = 0; k < n_active; k++)
        expected[k] = expf(logits[chosen[k]] - logits[chosen[0]]) / sum;
    expect_close("weights", weights, expected, n_active, FLOAT_TOLERANCE);
    fixture_free(&f);
}

static void test_controls_of_swiglu(void **state)
{
    (void)state;
    for (uint32_t control = GS_METAL_CONTROL_SWIGLU_CLAMP; control <= GS_METAL_CONTROL_SWIGLU_PLUS_ONE;
         control++) {
        struct fixture f;
        fixture_init(&f, 62);
        f.tuning.control = control;
        set_moe(&f, 0);
        uint32_t d_ff = f.args.d_ff, d_model = f.args.d_model, n_route = f.args.n_rows * f.args.n_active;
        float *weights = fixture_experts(&f, 2 * d_ff, d_model), gate_up[64], expected[32],
              limit = f.args.swiglu_limit;
        float *bias = fixture_floats(&f, GS_METAL_BIAS_0, (size_t)f.args.n_expert * 2 * d_ff, 9.0f);
        float *normed = fixture_floats(&f, GS_METAL_NORMED, (size_t)f.args.n_rows * d_model, 3.0f);
        float *activated = fixture_output(&f, GS_METAL_ACTIVATED, (size_t)n_route * d_ff * 4);
        uint32_t *past_limit = fixture_output(&f, GS_METAL_OUT, sizeof *past_limit), n_past = *past_limit = 7;
        fixture_run(&f, GS_METAL_MOE_GATE_UP);
        const struct gs_metal_active *active = f.buffers[GS_METAL_ACTIVE].data;
        bool limited = control == GS_METAL_CONTROL_SWIGLU_PLUS_ONE;
        for (uint32_t route = 0; route < n_route; route++) {
            size_t row = (size_t)active[route].expert * 2 * d_ff;
            cpu_linear(weights + row * d_model, bias + row, normed + route / f.args.n_active * d_model,
                       2 * d_ff, d_model, gate_up);
            for (uint32_t u = 0; u < d_ff; u++) {
                float gate = gate_up[2 * u], up = gate_up[2 * u + 1];
                n_past += limited ? 0u : (uint32_t)(gate > limit) + (uint32_t)(fabsf(up) > limit);
                gate = limited ? fminf(gate, limit) : gate;
                up = limited ? fmaxf(fminf(up, limit), -limit) : up + 1.0f;
                expected[u] = up * gate / (1.0f + expf(-gate * f.args.swiglu_alpha));
            }
            expect_close("activated", activated + route * d_ff, expected, d_ff, FLOAT_TOLERANCE);
        }
        assert_int_equal(*past_limit, n_past);
        assert_true(limited || n_past > 7);
        free(weights);
        fixture_free(&f);
    }
}

/* A position past the ring lies one slot late; one that is not lies where it belongs. */
static void test_control_of_ring(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, 63);
    f.tuning.control = GS_METAL_CONTROL_KV_RING;
    fixture_kv(&f, 1, 4, false);
    set_rows(&f, 4, 1, 2); /* positions 2 ... 5 of four slots: into 2, 3, 1, 2 */
    uint32_t d = f.args.d_head, width = (f.args.n_head + 2 * f.args.n_kv_head) * d;
    float *qkv = fixture_floats(&f, GS_METAL_QKV, (size_t)4 * width, 1.0f);
    f.args.first_row = 1;
    f.args.n_rows = 3;
    fixture_run(&f, GS_METAL_KV_STORE);
    static const uint32_t slots[] = {3, 1, 2};
    for (uint32_t t = 1; t < 4; t++)
        for (uint32_t i = 0; i < 2 * f.args.n_kv_head * d; i++) {
            float got =
                cpu_kv(&f, 0, i >= f.args.n_kv_head * d, i / d % f.args.n_kv_head, slots[t - 1], i % d);
            assert_memory_equal(&got, &qkv[t * width + f.args.n_head * d + i], sizeof got);
        }
    fixture_free(&f);
}

/* ---------------------------------------------------------------- head and choice */

static void test_head_and_greedy(void **state)
{
    (void)state;
    static const uint32_t vocabs[] = {1, 37, 100, 500};
    for (size_t i = 0; i < sizeof vocabs / sizeof *vocabs; i++) {
        struct fixture f;
        fixture_init(&f, 40 + i);
        uint32_t n_vocab = f.args.n_vocab = vocabs[i], d_model = f.args.d_model, n = 2;
        f.tuning.simdgroups = simdgroup_choices[3 - i];
        f.args.n_logit_rows = n;
        set_rows(&f, n, 1, 0); /* logit row 0 is of row 1, and the reverse */
        float *matrix = fixture_matrix(&f, 0, GS_METAL_BF16, n_vocab, d_model);
        if (n_vocab > 60) /* two rows alike: both logits are the largest or neither */
            for (uint32_t r = 7; r < 60; r += 26) {
                memcpy((uint16_t *)f.buffers[GS_METAL_WEIGHT_0].data + r * d_model,
                       (uint16_t *)f.buffers[GS_METAL_WEIGHT_0].data + 3 * d_model, d_model * 2);
                memcpy(matrix + r * d_model, matrix + 3 * d_model, d_model * sizeof *matrix);
            }
        float *hidden = fixture_floats(&f, GS_METAL_HIDDEN, (size_t)n * d_model, 3.0f);
        float *weight = fixture_floats(&f, GS_METAL_NORM_WEIGHT, d_model, 1.0f);
        for (uint32_t c = 0; n_vocab > 60 && c < d_model; c++) /* row 1 points along matrix row 3 */
            hidden[d_model + c] = matrix[3 * d_model + c] / weight[c] * fixture_uniform(&f, 0.9f, 1.0f);
        float *logits = fixture_output(&f, GS_METAL_LOGITS, (size_t)n * n_vocab * 4);
        fixture_output(&f, GS_METAL_CANDIDATES,
                       (size_t)n * gs_metal_n_candidates(&f.args, &f.tuning) *
                           sizeof(struct gs_metal_candidate));
        int32_t *chosen = fixture_output(&f, GS_METAL_CHOSEN, n * sizeof *chosen);
        fixture_run(&f, GS_METAL_HEAD);
        fixture_run(&f, GS_METAL_PICK);
        float normed[96], *expected = malloc(n_vocab * sizeof *expected);
        assert_non_null(expected);
        for (uint32_t l = 0; l < n; l++) {
            cpu_norm(&f, hidden + (n - 1 - l) * d_model, weight, normed);
            cpu_linear(matrix, NULL, normed, n_vocab, d_model, expected);
            expect_close("logits", logits + l * n_vocab, expected, n_vocab, FLOAT_TOLERANCE);
            int32_t best = 0;
            for (uint32_t v = 1; v < n_vocab; v++)
                best = logits[l * n_vocab + v] > logits[l * n_vocab + (uint32_t)best] ? (int32_t)v : best;
            assert_int_equal(chosen[n - 1 - l], best);
        }
        assert_true(n_vocab <= 60 || chosen[1] == 3 || chosen[1] < 60);
        ((uint16_t *)f.buffers[GS_METAL_WEIGHT_0].data)[(n_vocab - 1) * d_model] = 0xff80; /* -infinity */
        fixture_run(&f, GS_METAL_HEAD);
        fixture_run(&f, GS_METAL_PICK);
        assert_true(chosen[0] == -1 && chosen[1] == -1); /* a logit that is not finite: no token */
        free(expected);
        free(matrix);
        fixture_free(&f);
    }
}

/* Candidates of logits as HEAD would give them. */
static void set_candidates(struct fixture *f, const float *logits)
{
    uint32_t n = gs_metal_n_candidates(&f->args, &f->tuning), rows = gs_metal_head_rows(&f->tuning);
    struct gs_metal_candidate *candidates =
        fixture_output(f, GS_METAL_CANDIDATES, (size_t)f->args.n_logit_rows * n * sizeof *candidates);
    for (uint32_t i = 0; i < f->args.n_logit_rows * n; i++) {
        uint32_t begin = i % n * rows, best = begin;
        const float *row = logits + i / n * f->args.n_vocab;
        for (uint32_t v = begin; v < begin + rows && v < f->args.n_vocab; v++)
            best = row[v] > row[best] ? v : best;
        candidates[i] = (struct gs_metal_candidate){row[best], (int32_t)best};
    }
}

/* The sum of the weights of tokens below n, as docs/sampling.md has them, over the sum of all. */
static double share_below(const struct fixture *f, uint32_t l, uint32_t n)
{
    const float *logits = (const float *)f->buffers[GS_METAL_LOGITS].data + l * f->args.n_vocab;
    const struct gs_metal_row *row = (const struct gs_metal_row *)f->buffers[GS_METAL_ROWS].data + l;
    double largest = -INFINITY, total = 0.0, below = 0.0;
    for (uint32_t v = 0; v < f->args.n_vocab; v++)
        largest = fmax(largest, (double)logits[v]);
    for (uint32_t v = 0; v < f->args.n_vocab; v++) {
        double weight = exp(((double)logits[v] - largest) / (double)row->temperature);
        below += v < n ? weight : 0.0;
        total += weight;
    }
    return below / total;
}

#define NEAR_A_BORDER 0x1p-16

/* The draw's token, or none, if the draw is near to the border of two tokens. True: a token. */
static bool check_drawn(const struct fixture *f, uint32_t l, int32_t chosen)
{
    double uniform = ((const struct gs_metal_row *)f->buffers[GS_METAL_ROWS].data)[l].draw / 0x1p32, above;
    uint32_t v = 0;
    while ((above = share_below(f, l, v + 1)) <= uniform)
        v++;
    double below = share_below(f, l, v),
           distance = v == 0 ? above - uniform : fmin(above - uniform, uniform - below);
    if (chosen != (int32_t)v && (chosen != -1 || distance > NEAR_A_BORDER))
        fail_msg("row %u: token %d, expected %u, %g from a border", l, chosen, v, distance);
    return chosen >= 0;
}

static void test_sampling(void **state)
{
    (void)state;
    enum { N = 20, BEST = 5, COLD = 6, AIMED = 8, HALVES = N - 4 };
    struct fixture f;
    fixture_init(&f, 50);
    uint32_t n_vocab = f.args.n_vocab = 777;
    f.args.n_logit_rows = N;
    set_rows(&f, N, 1, 0);
    struct gs_metal_row *rows = f.buffers[GS_METAL_ROWS].data;
    float *logits = fixture_floats(&f, GS_METAL_LOGITS, (size_t)N * n_vocab, 6.0f);
    for (uint32_t l = 0; l < N; l++) {
        double uniform = l == 0 ? 0.0 : l == 1 ? 0.99999994 : (double)fixture_uniform(&f, 0.0f, 1.0f);
        rows[l].temperature = l % 4 == 0 ? 0.3f : l % 4 == 1 ? 1.0f : l % 4 == 2 ? 5.0f : 0.02f;
        rows[l].chosen_at = (int32_t)l;
        if (l >= AIMED) /* at the last number below a border, or the first behind it */
            uniform = share_below(&f, l, 40 * l) + (l % 8 < 4 ? 0.0 : 0x1p-32);
        if (l >=
            HALVES) { /* two tokens have half of the sum each; the draw is on their border, or far enough */
            for (uint32_t v = 0; v < n_vocab; v++)
                logits[l * n_vocab + v] = v == 77 || v == 700 ? 3.0f : -1e4f;
            uniform = 0.5 + (l % 4 < 2 ? -1.0 : 1.0) * (l % 2 ? NEAR_A_BORDER : 0x1p-40);
        }
        rows[l].draw = (uint32_t)(uniform * 0x1p32);
    }
    rows[BEST].temperature = 0.0f;
    rows[COLD].temperature = -1.0f;
    set_candidates(&f, logits);
    int32_t *chosen = fixture_output(&f, GS_METAL_CHOSEN, N * sizeof *chosen);
    fixture_run(&f, GS_METAL_PICK);
    for (uint32_t v = 0; v < n_vocab; v++)
        assert_true(logits[BEST * n_vocab + v] <= logits[BEST * n_vocab + (uint32_t)chosen[BEST]]);
    assert_int_equal(chosen[COLD], -1);
    int n_told = 0;
    for (uint32_t l = 0; l < HALVES; l++)
        if (l != BEST && l != COLD)
            n_told += check_drawn(&f, l, chosen[l]) && l < AIMED;
    assert_true(n_told >= 3);
    static const int32_t halves[] = {-1, 77, -1, 700};
    assert_memory_equal(chosen + HALVES, halves, sizeof halves);
    fixture_free(&f);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_language),
        cmocka_unit_test(test_dequantize_is_bit_exact),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_attention_in),
        cmocka_unit_test(test_attention_out),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_window_reads_no_more),
        cmocka_unit_test(test_router),
        cmocka_unit_test(test_moe_gate_up),
        cmocka_unit_test(test_moe_down),
        cmocka_unit_test(test_control_of_router),
        cmocka_unit_test(test_controls_of_swiglu),
        cmocka_unit_test(test_control_of_ring),
        cmocka_unit_test(test_head_and_greedy),
        cmocka_unit_test(test_sampling),
    };
    return fixture_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
