/* Rows, norms, dense products, the token. */
#include "tests/gpu_sim/checks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const enum gs_gpu_type types[] = {GS_GPU_F32, GS_GPU_BF16, GS_GPU_F16, GS_GPU_Q8};

void check_embed(struct check *check)
{
    for (size_t t = 0; t < 4; t++)
        for (int32_t d = 32; d <= 320; d += d == 32 ? 5 : 283) {
            if (types[t] == GS_GPU_Q8 && d % 32 != 0)
                continue;
            struct check_matrix m = check_make_matrix(check, types[t], 7, d);
            struct gs_gpu_row rows[3] = {{.token = 6}, {.token = 0}, {.token = 3}};
            struct gs_gpu_args args = {.dims = {.d_model = d}, .outer = m.on_device, .n_rows = 3};
            args.s.rows = check_give(check, "rows", rows, sizeof rows);
            args.s.hidden = check_give(check, "hidden", NULL, 3 * (size_t)d * sizeof(float));
            check_launch(check, "gs_simple_embed", 3, 1, 1, GS_SIMPLE_THREADS, 0, &args);
            for (int i = 0; i < 3; i++)
                check_same(check, "embed", args.s.hidden + i * d, m.values + rows[i].token * d,
                           (size_t)d * sizeof(float));
            free(m.values);
            check_release(check);
        }
}

static void norm_of(struct check *check, int32_t d, bool compact)
{
    enum { ROWS = 3 };
    static const int32_t to[ROWS] = {1, -1, 0};
    size_t n = ROWS * (size_t)d, n_out = compact ? 2 * (size_t)d : n;
    float *in = calloc(n, sizeof *in), *weight = calloc((size_t)d, sizeof *weight);
    double *expected = calloc(n_out, sizeof *expected);
    struct gs_gpu_row rows[ROWS] = {{.logit_row = to[0]}, {.logit_row = to[1]}, {.logit_row = to[2]}};
    check_numbers(check, in, n);
    check_numbers(check, weight, (size_t)d);
    for (int t = 0; t < ROWS; t++) {
        double sum = 0.0;
        int at = compact ? to[t] : t;
        for (int i = 0; i < d; i++)
            sum += (double)in[t * d + i] * in[t * d + i];
        for (int i = 0; at >= 0 && i < d; i++)
            expected[at * d + i] = (double)weight[i] * in[t * d + i] / sqrt(sum / d + 1e-5);
    }
    struct gs_simple_norm args = {.d = d, .eps = 1e-5f};
    args.in = check_give(check, "in", in, n * sizeof *in);
    args.weight = check_give(check, "weight", weight, (size_t)d * sizeof *weight);
    args.out = check_give(check, "out", NULL, n_out * sizeof(float));
    args.rows = compact ? check_give(check, "rows", rows, sizeof rows) : NULL;
    check_launch(check, "gs_simple_norm", ROWS, 1, 1, GS_SIMPLE_THREADS, 0, &args);
    check_near(check, "norm", args.out, expected, NULL, n_out, 2e-6);
    free(in);
    free(weight);
    free(expected);
    check_release(check);
}

void check_norm(struct check *check)
{
    static const int32_t sizes[] = {1, 31, 64, 100, 257, 600, 2880};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        norm_of(check, sizes[i], false);
        norm_of(check, sizes[i], true);
    }
}

void check_add(struct check *check)
{
    static const size_t sizes[] = {1, 255, 256, 1000};
    for (size_t k = 0; k < 4; k++) {
        size_t n = sizes[k];
        float to[1000], from[1000], expected[1000];
        check_numbers(check, to, n);
        check_numbers(check, from, n);
        for (size_t i = 0; i < n; i++)
            expected[i] = to[i] + from[i];
        struct gs_simple_add args = {.n = (int64_t)n};
        args.to = check_give(check, "to", to, n * sizeof *to);
        args.from = check_give(check, "from", from, n * sizeof *from);
        check_launch(check, "gs_simple_add", (uint32_t)(n + 255) / 256, 1, 1, GS_SIMPLE_THREADS, 0, &args);
        check_same(check, "add", args.to, expected, n * sizeof *expected);
        check_release(check);
    }
}

/* From a ring of 9 slots to a straight cache of 30, and back to a ring of 11. */
static void move_rows(struct check *check, int64_t from_slots, int64_t to_slots, int64_t first, int64_t count)
{
    enum { HEADS = 3, HALVES = 10 };
    size_t n_from = HEADS * HALVES * (size_t)from_slots, n_to = HEADS * HALVES * (size_t)to_slots;
    uint16_t *from = calloc(n_from, 2), *expected = malloc(n_to * 2);
    for (size_t i = 0; i < n_from; i++)
        from[i] = (uint16_t)check_random(check);
    memset(expected, SIM_POISON, n_to * 2);
    struct gs_simple_move args = {.from_slots = from_slots,
                                  .to_slots = to_slots,
                                  .to_shift = 2,
                                  .first = first,
                                  .count = count,
                                  .n_head = HEADS,
                                  .row_halves = HALVES};
    for (int64_t h = 0; h < HEADS; h++)
        for (int64_t p = first; p < first + count; p++)
            memcpy(expected + (h * to_slots + (p - 2) % to_slots) * HALVES,
                   from + (h * from_slots + p % from_slots) * HALVES, HALVES * 2);
    args.from = check_give(check, "from", from, n_from * 2);
    args.to = check_give(check, "to", NULL, n_to * 2);
    uint32_t blocks = (uint32_t)((HEADS * HALVES * count + 255) / 256);
    check_launch(check, "gs_simple_move", blocks, 1, 1, GS_SIMPLE_THREADS, 0, &args);
    check_same(check, "move", args.to, expected, n_to * 2);
    free(from);
    free(expected);
    check_release(check);
}

void check_move(struct check *check)
{
    move_rows(check, 9, 30, 20, 9);
    move_rows(check, 30, 11, 4, 11);
    move_rows(check, 5, 5, 2, 1);
}

/* ---------------------------------------------------------------- products */

static void linear_of(struct check *check, enum gs_gpu_type type, int32_t rows, int32_t columns, int32_t n_in,
                      bool biased)
{
    struct check_matrix m = check_make_matrix(check, type, rows, columns);
    size_t n_x = (size_t)n_in * (size_t)columns, n_out = (size_t)n_in * (size_t)rows;
    float *x = calloc(n_x, sizeof *x), *bias = calloc((size_t)rows, sizeof *bias);
    double *expected = calloc(n_out, sizeof *expected), *size = calloc(n_out, sizeof *size);
    check_numbers(check, x, n_x);
    check_numbers(check, bias, (size_t)rows);
    for (int32_t n = 0; n < n_in; n++)
        for (int32_t r = 0; r < rows; r++) {
            size_t at = (size_t)(n * rows + r);
            expected[at] = biased ? (double)bias[r] : 0.0;
            size[at] = 1.0;
            for (int32_t c = 0; c < columns; c++) {
                double product = (double)m.values[r * columns + c] * x[n * columns + c];
                expected[at] += product;
                size[at] += fabs(product);
            }
        }
    struct gs_simple_linear args = {.matrix = m.on_device, .n_in = n_in};
    args.in = check_give(check, "in", x, n_x * sizeof *x);
    args.bias = biased ? check_give(check, "bias", bias, (size_t)rows * sizeof *bias) : NULL;
    args.out = check_give(check, "out", NULL, n_out * sizeof(float));
    /* Blocks for warps of 64 lanes, as the host asks for them. */
    uint32_t blocks = (uint32_t)(rows + 15) / 16, groups = (uint32_t)(n_in + 7) / 8;
    check_launch(check, n_in == 1 ? "gs_simple_linear_1" : "gs_simple_linear_8", blocks, groups, 1,
                 GS_SIMPLE_THREADS, 0, &args);
    check_near(check, "linear", args.out, expected, size, n_out, 5e-7);
    free(m.values);
    free(x);
    free(bias);
    free(expected);
    free(size);
    check_release(check);
}

void check_linear(struct check *check)
{
    static const struct {
        int32_t rows, columns, n_in;
    } shapes[] = {{1, 1, 1}, {3, 33, 2}, {5, 40, 1}, {18, 192, 8}, {70, 32, 11}, {17, 520, 9}, {4, 64, 1}};
    for (size_t t = 0; t < 4; t++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            if (types[t] != GS_GPU_Q8 || shapes[s].columns % 32 == 0)
                linear_of(check, types[t], shapes[s].rows, shapes[s].columns, shapes[s].n_in, s % 2 == 0);
}

/* ---------------------------------------------------------------- the token */

void check_argmax(struct check *check)
{
    static const int32_t sizes[] = {1, 100, 5000};
    for (size_t k = 0; k < 3; k++) {
        enum { ROWS = 3 };
        int32_t n = sizes[k];
        float *logits = calloc(ROWS * (size_t)n, sizeof *logits);
        uint64_t zeros[ROWS] = {0}, expected[ROWS];
        struct gs_gpu_args args = {.dims = {.n_vocab = n}, .n_logit_rows = ROWS};
        for (int32_t i = 0; i < ROWS * n; i++) /* few values: many ties; a row of negative ones */
            logits[i] = (float)(check_random(check) % 40) / 8.0f - (i / n == 1 ? 100.0f : 2.0f);
        for (int32_t row = 0; row < ROWS; row++) {
            int32_t best = 0;
            uint32_t bits;
            for (int32_t i = 1; i < n; i++)
                best = logits[row * n + i] > logits[row * n + best] ? i : best;
            memcpy(&bits, &logits[row * n + best], sizeof bits);
            expected[row] = gs_gpu_pack_argmax(bits, (uint32_t)best);
        }
        args.s.logits = check_give(check, "logits", logits, ROWS * (size_t)n * sizeof *logits);
        args.s.argmax = check_give(check, "argmax", zeros, sizeof zeros);
        check_launch(check, "gs_simple_argmax", 32, ROWS, 1, GS_SIMPLE_THREADS, 0, &args);
        check_same(check, "argmax", args.s.argmax, expected, sizeof expected);
        free(logits);
        check_release(check);
    }
}

void check_next(struct check *check)
{
    struct gs_gpu_row row = {.token = 4, .position = 9};
    uint64_t argmax = gs_gpu_pack_argmax(0x40000000u, 77), zero = 0;
    int32_t tokens[4] = {2, 5, 6, -1}, expected[4] = {3, 5, 6, 77};
    struct gs_gpu_args args = {.n_rows = 1};
    args.s.rows = check_give(check, "rows", &row, sizeof row);
    args.s.argmax = check_give(check, "argmax", &argmax, sizeof argmax);
    args.s.tokens = check_give(check, "tokens", tokens, sizeof tokens);
    check_launch(check, "gs_simple_next", 1, 1, 1, 1, 0, &args);
    check_same(check, "next", args.s.tokens, expected, sizeof expected);
    check_same(check, "next: argmax", args.s.argmax, &zero, sizeof zero);
    row.token = 77;
    row.position = 10;
    check_same(check, "next: row", args.s.rows, &row, sizeof row);
}
