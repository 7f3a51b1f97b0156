/*
 * The Metal kernels of large steps, of the verifier and of the benchmarks, run by the simulator in three
 * orders of lanes over ragged shapes, against the scalar CPU code. Factors of the tiles' products are chosen
 * so that half has them exactly: then what is left are float32 sums in another order.
 */
#include "tests/metal_sim/kernel_fixture.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>

#define HALF_TOLERANCE 1e-3 /* of the largest value, where probabilities are rounded to half */

/* n floats that half has exactly. */
static float *exact_halves(struct fixture *f, enum gs_metal_buffer index, size_t n)
{
    float *values = fixture_output(f, index, n * sizeof *values);
    for (size_t i = 0; i < n; i++)
        values[i] = (float)((int)fixture_random(f, 1025) - 512) / 256.0f;
    return values;
}

/* ---------------------------------------------------------------- rows by themselves */

static void test_norm(void **state)
{
    (void)state;
    static const uint32_t widths[] = {32, 96, 288, 2880};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        struct fixture f;
        fixture_init(&f, i);
        uint32_t d = f.args.d_model = widths[i];
        f.args.first_row = 1;
        f.args.n_rows = 2;
        float *hidden = fixture_floats(&f, GS_METAL_HIDDEN, (size_t)3 * d, 5.0f);
        float *weight = fixture_floats(&f, GS_METAL_NORM_WEIGHT, d, 2.0f), expected[2880];
        float *normed = fixture_output(&f, GS_METAL_NORMED, (size_t)3 * d * sizeof *normed);
        fixture_run(&f, GS_METAL_NORM);
        for (uint32_t t = 1; t < 3; t++) {
            cpu_norm(&f, hidden + t * d, weight, expected);
            expect_close("normed", normed + t * d, expected, d, FLOAT_TOLERANCE);
        }
        assert_true(isnan(normed[0]));
        fixture_free(&f);
    }
}

static void test_rotate(void **state)
{
    (void)state;
    static const uint32_t shapes[][3] = {
        {6, 2, 8}, {3, 1, 6}, {8, 1, 64}, {2, 2, 2}}; /* heads, kv heads, d_head */
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct fixture f;
        fixture_init(&f, 60 + i);
        f.args.n_head = shapes[i][0];
        f.args.n_kv_head = shapes[i][1];
        uint32_t d = f.args.d_head = shapes[i][2], n = 3;
        uint32_t width = (f.args.n_head + 2 * f.args.n_kv_head) * d,
                 n_turned = f.args.n_head + f.args.n_kv_head;
        f.tuning.kv_f32 = i % 2;
        fixture_kv(&f, 1, 4, true);
        fixture_rows(&f, n, 6);
        float *angles = fixture_floats(&f, GS_METAL_ROPE, (size_t)n * d, 1.3f);
        float *qkv = fixture_floats(&f, GS_METAL_QKV, (size_t)n * width, 2.0f);
        float *expected = malloc(n * width * sizeof *expected);
        assert_non_null(expected);
        memcpy(expected, qkv, n * width * sizeof *expected);
        fixture_run(&f, GS_METAL_ROTATE);
        for (uint32_t t = 0; t < n; t++) {
            cpu_rotate(&f, angles + t * d, expected + t * width, n_turned);
            for (uint32_t j = 0; j < 2 * f.args.n_kv_head * d; j++) {
                float put = cpu_kv_rounded(&f, qkv[t * width + f.args.n_head * d + j]);
                float got = cpu_kv(&f, 0, j >= f.args.n_kv_head * d, j / d % f.args.n_kv_head, 6 + t, j % d);
                assert_memory_equal(&got, &put, sizeof got);
            }
        }
        expect_close("qkv", qkv, expected, n * width, FLOAT_TOLERANCE);
        free(expected);
        fixture_free(&f);
    }
}

/* Rows of a matrix or of a bias in the order in which the host stores them for this control. */
static void store_paired(float *to, const float *from, uint32_t rows, uint32_t columns, uint32_t d)
{
    for (uint32_t r = 0; r < rows; r++) {
        uint32_t j = r % d, source = r - j + (j < d / 2 ? 2 * j : 2 * (j - d / 2) + 1);
        memcpy(to + (size_t)r * columns, from + (size_t)source * columns, columns * sizeof *to);
    }
}

/* Neighbours are turned, each pair by its angle, and everything else is where it belongs; v is as ever. */
static void test_control_of_rope_pairs(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, 64);
    f.tuning.control = GS_METAL_CONTROL_ROPE_PAIRS;
    f.tuning.kv_f32 = 1;
    f.args.store_kv = 1;
    uint32_t d = f.args.d_head, d_model = f.args.d_model, n_head = f.args.n_head, n_kv = f.args.n_kv_head;
    uint32_t width = (n_head + 2 * n_kv) * d, at = 0;
    float matrix[(6 + 2 * 2) * 8 * 96], bias[(6 + 2 * 2) * 8], normed[96], expected[(6 + 2 * 2) * 8];
    assert_true(width * d_model * sizeof *matrix == sizeof matrix);
    fixture_kv(&f, 1, 4, true);
    fixture_rows(&f, 2, 1);
    for (uint32_t m = 0; m < 3; m++) {
        uint32_t rows = (m == 0 ? n_head : n_kv) * d;
        float *whole = fixture_matrix(&f, m, GS_METAL_F32, rows, d_model);
        float *vector = fixture_floats(&f, GS_METAL_BIAS_0 + m, rows, 1.0f);
        memcpy(matrix + (size_t)at * d_model, whole, (size_t)rows * d_model * sizeof *matrix);
        memcpy(bias + at, vector, rows * sizeof *bias);
        if (m < 2) {
            store_paired(f.buffers[GS_METAL_WEIGHT_0 + m].data, whole, rows, d_model, d);
            store_paired(vector, bias + at, rows, 1, d);
        }
        at += rows;
        free(whole);
    }
    float *hidden = fixture_floats(&f, GS_METAL_HIDDEN, (size_t)2 * d_model, 3.0f);
    float *weight = fixture_floats(&f, GS_METAL_NORM_WEIGHT, d_model, 2.0f);
    float *angles = fixture_floats(&f, GS_METAL_ROPE, (size_t)2 * d, 1.3f);
    float *qkv = fixture_output(&f, GS_METAL_QKV, (size_t)2 * width * sizeof *qkv);
    fixture_run(&f, GS_METAL_ATTENTION_IN);
    for (uint32_t t = 0; t < 2; t++) {
        cpu_norm(&f, hidden + t * d_model, weight, normed);
        cpu_linear(matrix, bias, normed, width, d_model, expected);
        for (uint32_t i = 0; i < (n_head + n_kv) * d; i += 2) {
            float a = expected[i], b = expected[i + 1], *angle = angles + t * d + i % d;
            expected[i] = a * angle[0] - b * angle[1];
            expected[i + 1] = b * angle[0] + a * angle[1];
        }
        expect_close("qkv", qkv + t * width, expected, width, FLOAT_TOLERANCE);
        for (uint32_t i = 0; i < 2 * n_kv * d; i++) {
            float got = cpu_kv(&f, 0, i >= n_kv * d, i / d % n_kv, 1 + t, i % d);
            assert_memory_equal(&got, &qkv[t * width + n_head * d + i], sizeof got);
        }
    }
    fixture_free(&f);
}

/* ---------------------------------------------------------------- dense tiles */

static void run_linear(enum gs_metal_kernel kernel, uint32_t n, uint32_t rows, uint32_t columns,
                       enum gs_metal_type type, bool add)
{
    struct fixture f;
    fixture_init(&f, n + rows);
    f.args.n_rows = n;
    f.args.rows = rows;
    f.args.columns = columns;
    f.args.out_first = add ? 0 : 5;
    f.args.out_stride = rows + f.args.out_first + (add ? 0 : 2);
    f.args.d_model = rows;
    f.args.add_to_hidden = add;
    f.tuning.scalar_load = n == 5;
    float *matrix = fixture_matrix(&f, 0, type, rows, columns);
    float *bias = fixture_floats(&f, GS_METAL_BIAS_0, rows, 1.0f);
    float *in = exact_halves(&f, GS_METAL_IN, (size_t)n * columns);
    float *hidden = fixture_floats(&f, GS_METAL_HIDDEN, (size_t)n * rows, 1.0f);
    float *out = fixture_output(&f, GS_METAL_OUT, (size_t)n * f.args.out_stride * sizeof *out);
    float *before = malloc((size_t)n * rows * sizeof *before), *expected = malloc(rows * sizeof *expected);
    assert_true(before && expected);
    memcpy(before, hidden, (size_t)n * rows * sizeof *before);
    fixture_run(&f, kernel);
    double tolerance = type == GS_METAL_F32 && kernel == GS_METAL_LINEAR ? HALF_TOLERANCE : FLOAT_TOLERANCE;
    for (uint32_t t = 0; t < n; t++) {
        cpu_linear(matrix, bias, in + t * columns, rows, columns, expected);
        expect_close("out", out + t * f.args.out_stride + f.args.out_first, expected, rows, tolerance);
        assert_true(add || isnan(out[t * f.args.out_stride]));
        for (uint32_t r = 0; r < rows; r++)
            expected[r] = before[t * rows + r] + (add ? expected[r] : 0.0f);
        expect_close("hidden", hidden + t * rows, expected, rows, tolerance);
    }
    free(before);
    free(expected);
    free(matrix);
    fixture_free(&f);
}

static void test_linear(void **state)
{
    (void)state;
    run_linear(GS_METAL_LINEAR, 1, 64, 32, GS_METAL_BF16, false);
    run_linear(GS_METAL_LINEAR, 5, 70, 96, GS_METAL_BF16, true);
    run_linear(GS_METAL_LINEAR, 33, 130, 64, GS_METAL_BF16, false);
    run_linear(GS_METAL_LINEAR, 70, 32, 160, GS_METAL_F32, true);
    run_linear(GS_METAL_LINEAR, 17, 96, 18, GS_METAL_BF16, false); /* columns that are no multiple of 4 */
    run_linear(GS_METAL_LINEAR, 40, 65, 36, GS_METAL_F32, false);  /* ... of 32 */
    run_linear(GS_METAL_LINEAR, 32, 128, 64, GS_METAL_F16, false);
}

static void test_linear_few(void **state)
{
    (void)state;
    run_linear(GS_METAL_LINEAR_FEW, 2, 64, 32, GS_METAL_BF16, false);
    run_linear(GS_METAL_LINEAR_FEW, 5, 70, 160, GS_METAL_BF16, true); /* scalar loads */
    run_linear(GS_METAL_LINEAR_FEW, 15, 33, 64, GS_METAL_F32, true);
    run_linear(GS_METAL_LINEAR_FEW, 16, 31, 18, GS_METAL_BF16, false); /* columns that are no multiple of 4 */
    run_linear(GS_METAL_LINEAR_FEW, 3, 40, 292, GS_METAL_F16, false);
}

/* Not all of Q8_0's values are halves. */
static void run_linear_q8(enum gs_metal_kernel kernel, double tolerance)
{
    struct fixture f;
    fixture_init(&f, 3);
    uint32_t n = f.args.n_rows = 9, rows = f.args.rows = f.args.out_stride = f.args.d_model = 40;
    uint32_t columns = f.args.columns = 64;
    float *matrix = fixture_matrix(&f, 0, GS_METAL_Q8, rows, columns), expected[40];
    float *bias = fixture_floats(&f, GS_METAL_BIAS_0, rows, 1.0f);
    float *in = exact_halves(&f, GS_METAL_IN, (size_t)n * columns);
    fixture_floats(&f, GS_METAL_HIDDEN, (size_t)n * rows, 1.0f);
    float *out = fixture_output(&f, GS_METAL_OUT, (size_t)n * rows * sizeof *out);
    fixture_run(&f, kernel);
    for (uint32_t t = 0; t < n; t++) {
        cpu_linear(matrix, bias, in + t * columns, rows, columns, expected);
        expect_close("out", out + t * rows, expected, rows, tolerance);
    }
    free(matrix);
    fixture_free(&f);
}

static void test_linear_q8(void **state)
{
    (void)state;
    run_linear_q8(GS_METAL_LINEAR, HALF_TOLERANCE);
    run_linear_q8(GS_METAL_LINEAR_FEW, FLOAT_TOLERANCE);
}

/* ---------------------------------------------------------------- experts */

static void run_sort(struct fixture *f)
{
    uint32_t n = f->args.n_rows;
    fixture_output(f, GS_METAL_ROUTES, gs_metal_routes_bytes(&f->args, n));
    fixture_run(f, GS_METAL_SORT);
}

/* Tiles hold every route once, sorted by expert, then by row, none larger than a tile. */
static void test_sort(void **state)
{
    (void)state;
    static const uint32_t shapes[][3] = {{1, 5, 3},   {70, 5, 3}, {40, 32, 4},
                                         {3, 200, 2}, {64, 1, 1}, {7, 1024, 16}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct fixture f;
        fixture_init(&f, 70 + i);
        f.args.n_expert = shapes[i][1];
        f.args.n_active = shapes[i][2];
        fixture_actives(&f, shapes[i][0], true);
        run_sort(&f);
        const struct gs_metal_active *active = f.buffers[GS_METAL_ACTIVE].data;
        const int32_t *routes = f.buffers[GS_METAL_ROUTES].data;
        int32_t n = (int32_t)(shapes[i][0] * shapes[i][2]), expert = -1, last = -1, done = 0;
        int32_t max_tiles = (int32_t)gs_metal_max_tiles(&f.args, f.args.n_rows);
        const int32_t *sorted = routes + 4 + 4 * max_tiles;
        assert_in_range(routes[0], 1, max_tiles);
        for (int32_t tile = 0; tile < routes[0]; tile++) {
            const int32_t *entry = routes + 4 + 4 * tile;
            assert_true(entry[0] >= expert && entry[1] == done);
            assert_in_range(entry[2], 1, GS_METAL_TILE_TOKENS);
            last = entry[0] == expert ? last : -1;
            expert = entry[0];
            for (int32_t r = 0; r < entry[2]; r++, done++) {
                assert_true(sorted[done] > last && active[sorted[done]].expert == expert);
                last = sorted[done];
            }
        }
        assert_int_equal(done, n);
        fixture_free(&f);
    }
}

static void set_experts(struct fixture *f, uint32_t i, bool few)
{
    static const uint32_t shapes[][5] = {
        {96, 32, 5, 3, 3}, {64, 96, 4, 2, 45}, {32, 64, 9, 1, 20}, {160, 32, 3, 3, 33}};
    static const uint32_t few_rows[] = {3, 16, 9, 15};
    f->args.d_model = shapes[i][0];
    f->args.d_ff = shapes[i][1];
    f->args.n_expert = shapes[i][2];
    f->args.n_active = shapes[i][3];
    f->tuning.scalar_load = i == 2;
    fixture_actives(f, few ? few_rows[i] : shapes[i][4], true);
    run_sort(f);
}

/* A factor that half does not have, where the kernel under test has no halves. */
static float *few_or_halves(struct fixture *f, enum gs_metal_buffer index, size_t n, bool few)
{
    return few ? fixture_floats(f, index, n, 2.0f) : exact_halves(f, index, n);
}

static void run_experts_gate_up(enum gs_metal_kernel kernel)
{
    bool few = kernel == GS_METAL_EXPERTS_GATE_UP_FEW;
    for (uint32_t i = 0; i < 4; i++) {
        struct fixture f;
        fixture_init(&f, 80 + i);
        set_experts(&f, i, few);
        uint32_t d_ff = f.args.d_ff, d_model = f.args.d_model, n_active = f.args.n_active, n = f.args.n_rows;
        float *weights = fixture_experts(&f, 2 * d_ff, d_model);
        fixture_floats(&f, GS_METAL_BIAS_0, (size_t)f.args.n_expert * 2 * d_ff, 9.0f);
        few_or_halves(&f, GS_METAL_NORMED, (size_t)n * d_model, few);
        fixture_output(&f, GS_METAL_ACTIVATED, (size_t)n * n_active * d_ff * sizeof(float));
        fixture_run(&f, kernel);
        expect_activated(&f, weights);
        free(weights);
        fixture_free(&f);
    }
}

static void test_experts_gate_up(void **state)
{
    (void)state;
    run_experts_gate_up(GS_METAL_EXPERTS_GATE_UP);
}

static void test_experts_gate_up_few(void **state)
{
    (void)state;
    run_experts_gate_up(GS_METAL_EXPERTS_GATE_UP_FEW);
}

static void run_experts_down_and_combine(enum gs_metal_kernel kernel)
{
    bool few = kernel == GS_METAL_EXPERTS_DOWN_FEW;
    for (uint32_t i = 0; i < 4; i++) {
        struct fixture f;
        fixture_init(&f, 90 + i);
        set_experts(&f, i, few);
        uint32_t d_ff = f.args.d_ff, d_model = f.args.d_model, n_active = f.args.n_active, n = f.args.n_rows;
        float *weights = fixture_experts(&f, d_model, d_ff);
        fixture_floats(&f, GS_METAL_BIAS_0, (size_t)f.args.n_expert * d_model, 1.0f);
        few_or_halves(&f, GS_METAL_ACTIVATED, (size_t)n * n_active * d_ff, few);
        float *hidden = fixture_floats(&f, GS_METAL_HIDDEN, (size_t)n * d_model, 1.0f);
        float *before = malloc((size_t)n * d_model * sizeof *before);
        assert_non_null(before);
        memcpy(before, hidden, (size_t)n * d_model * sizeof *before);
        fixture_output(&f, GS_METAL_EXPERT_OUT, (size_t)n * n_active * d_model * sizeof(float));
        fixture_output(&f, GS_METAL_PROJECTED, (size_t)n * d_model * sizeof(float));
        fixture_run(&f, kernel);
        fixture_run(&f, GS_METAL_EXPERTS_COMBINE);
        assert_non_null(f.buffers[GS_METAL_EXPERT_OUT].data);
        expect_experts_down(&f, weights, before);
        free(before);
        free(weights);
        fixture_free(&f);
    }
}

static void test_experts_down_and_combine(void **state)
{
    (void)state;
    run_experts_down_and_combine(GS_METAL_EXPERTS_DOWN);
}

static void test_experts_down_few(void **state)
{
    (void)state;
    run_experts_down_and_combine(GS_METAL_EXPERTS_DOWN_FEW);
}

/* Logits of rows that are not neighbours, the best of each threadgroup, and ties to the lower token. */
static void test_head_few(void **state)
{
    (void)state;
    static const uint32_t shapes[][4] = {
        {300, 64, 5, 4}, {97, 36, 16, 2}, {32, 96, 2, 1}}; /* .., rows, tuning */
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct fixture f;
        fixture_init(&f, 40 + i);
        uint32_t n_vocab = f.args.n_vocab = shapes[i][0], d = f.args.d_model = shapes[i][1], n = shapes[i][2];
        f.tuning.simdgroups = shapes[i][3];
        f.args.n_logit_rows = n;
        fixture_rows(&f, n + 2, 0);
        struct gs_metal_row *rows = f.buffers[GS_METAL_ROWS].data;
        for (uint32_t j = 0; j < n; j++)
            rows[j].logit_source = (int32_t)(n + 1 - j);
        float *matrix = fixture_matrix(&f, 0, GS_METAL_BF16, n_vocab, d), expected[300];
        uint16_t *stored = f.buffers[GS_METAL_WEIGHT_0].data; /* two rows that are the same */
        memcpy(stored + (size_t)20 * d, stored + (size_t)7 * d, d * sizeof *stored);
        memcpy(matrix + (size_t)20 * d, matrix + (size_t)7 * d, d * sizeof *matrix);
        float *normed = fixture_floats(&f, GS_METAL_NORMED, (size_t)(n + 2) * d, 1.0f);
        memcpy(normed, matrix + (size_t)7 * d, d * sizeof *normed); /* ... are the best of row 0, ... */
        rows[0].logit_source = 0;
        for (uint32_t k = 0; k < d; k++)
            normed[k] *= 1000.0f;
        float *logits = fixture_output(&f, GS_METAL_LOGITS, (size_t)n * n_vocab * sizeof *logits);
        uint32_t n_candidate = gs_metal_n_candidates(&f.args, &f.tuning);
        struct gs_metal_candidate *best =
            fixture_output(&f, GS_METAL_CANDIDATES, (size_t)n * n_candidate * sizeof *best);
        fixture_run(&f, GS_METAL_HEAD_FEW);
        uint32_t head_rows = gs_metal_head_rows(&f.tuning);
        for (uint32_t j = 0; j < n; j++) {
            const float *x = normed + (size_t)rows[j].logit_source * d;
            cpu_linear(matrix, NULL, x, n_vocab, d, expected);
            expect_close("logits", logits + (size_t)j * n_vocab, expected, n_vocab, FLOAT_TOLERANCE);
            for (uint32_t c = 0; c < n_candidate; c++) {
                uint32_t token = c * head_rows;
                for (uint32_t r = token; r < n_vocab && r < (c + 1) * head_rows; r++)
                    if (logits[(size_t)j * n_vocab + r] > logits[(size_t)j * n_vocab + token])
                        token = r;
                assert_int_equal(best[(size_t)j * n_candidate + c].token, token);
                assert_memory_equal(&best[(size_t)j * n_candidate + c].logit,
                                    &logits[(size_t)j * n_vocab + token], sizeof *logits);
            }
        }
        assert_int_equal(best[0].token, 7); /* ... and the lower one is chosen */
        free(matrix);
        fixture_free(&f);
    }
}

/* ---------------------------------------------------------------- attention */

static void run_attention_tile(uint32_t n, uint32_t first_position, const struct attention_shape *s)
{
    struct fixture f;
    uint32_t d = s->d_head, n_head = s->n_head, window = s->window;
    fixture_init(&f, n + d);
    fixture_attention(&f, s);
    assert_true(gs_metal_takes_tile(&f.args));
    uint32_t width = (n_head + 2 * s->n_kv_head) * d, skipped = 2;
    fixture_kv(&f, 1, window > 0 ? window + n : first_position + n, true);
    fixture_rows(&f, skipped + n, first_position - skipped);
    f.args.first_row = skipped;
    f.args.n_rows = n;
    exact_halves(&f, GS_METAL_QKV, (size_t)(skipped + n) * width);
    fixture_floats(&f, GS_METAL_SINKS, n_head, 3.0f);
    float *attended =
        fixture_output(&f, GS_METAL_ATTENDED, (size_t)(skipped + n) * n_head * d * sizeof *attended);
    float *expected = malloc((size_t)n_head * d * sizeof *expected);
    assert_non_null(expected);
    fixture_run(&f, GS_METAL_ATTENTION_TILE);
    for (uint32_t t = skipped; t < skipped + n; t++) {
        cpu_attention(&f, t, expected);
        expect_close("attended", attended + (size_t)t * n_head * d, expected, (size_t)n_head * d,
                     HALF_TOLERANCE);
    }
    assert_true(isnan(attended[0]));
    free(expected);
    fixture_free(&f);
}

static void test_attention_tile(void **state)
{
    (void)state;
    static const struct {
        struct attention_shape shape;
        uint32_t n, position;
    } cases[] = {
        {{8, 6, 2, 0, 1}, 1, 2},     {{64, 2, 1, 0, 0}, 33, 2}, {{16, 3, 3, 0, 1}, 70, 9},
        {{64, 2, 1, 20, 0}, 40, 60}, {{24, 4, 2, 5, 0}, 35, 3}, {{128, 1, 1, 128, 1}, 7, 100},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_attention_tile(cases[i].n, cases[i].position, &cases[i].shape);
}

/* ---------------------------------------------------------------- benchmarks */

static void test_read_and_empty(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 300, 4096, 9001};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct fixture f;
        fixture_init(&f, i);
        f.args.n_words = sizes[i];
        uint32_t *in = fixture_output(&f, GS_METAL_IN, (size_t)sizes[i] * 16), sum = 0;
        for (uint32_t w = 0; w < sizes[i] * 4; w++)
            sum += in[w] = fixture_random(&f, UINT32_MAX);
        size_t n = (size_t)gs_metal_read_groups(sizes[i]) * GS_METAL_THREADS;
        uint32_t *out = fixture_output(&f, GS_METAL_OUT, n * sizeof *out);
        fixture_run(&f, GS_METAL_READ);
        for (size_t t = 0; t < n; t++)
            sum -= out[t];
        assert_int_equal(sum, 0);
        fixture_run(&f, GS_METAL_EMPTY);
        fixture_free(&f);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_rotate),
        cmocka_unit_test(test_control_of_rope_pairs),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_linear_few),
        cmocka_unit_test(test_linear_q8),
        cmocka_unit_test(test_sort),
        cmocka_unit_test(test_experts_gate_up),
        cmocka_unit_test(test_experts_down_and_combine),
        cmocka_unit_test(test_experts_gate_up_few),
        cmocka_unit_test(test_experts_down_few),
        cmocka_unit_test(test_head_few),
        cmocka_unit_test(test_attention_tile),
        cmocka_unit_test(test_read_and_empty),
    };
    return fixture_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
