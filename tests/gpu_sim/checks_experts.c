/* The router's choice, routes, experts. */
#include "model/mxfp4.h"
#include "tests/gpu_sim/checks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    int32_t n_rows, n_expert, n_active, d_model, d_ff;
};

static const struct shape shapes[] = {
    {1, 8, 2, 64, 96}, {13, 5, 3, 96, 32}, {3, 1, 1, 32, 32}, {40, 4, 4, 288, 64}, {1, 32, 4, 320, 64},
};

/* ---------------------------------------------------------------- the choice */

static void choose_row(const float *logits, int32_t n_expert, int32_t n_active, int32_t *choice,
                       double *weight)
{
    double sum = 0.0;
    for (int32_t k = 0; k < n_active; k++) {
        int32_t best = -1;
        for (int32_t e = 0; e < n_expert; e++) {
            bool taken = false;
            for (int32_t i = 0; i < k; i++)
                taken = taken || choice[i] == e;
            if (!taken && (best < 0 || logits[e] > logits[best]))
                best = e;
        }
        choice[k] = best;
        weight[k] = exp((double)logits[best] - (double)logits[choice[0]]);
        sum += weight[k];
    }
    for (int32_t k = 0; k < n_active; k++)
        weight[k] /= sum;
}

static void choose_shape(struct check *check, int32_t n_rows, int32_t n_expert, int32_t n_active)
{
    size_t n = (size_t)(n_rows * n_expert), n_choice = (size_t)(n_rows * n_active);
    float *logits = calloc(n, sizeof *logits);
    int32_t *choice = calloc(n_choice, sizeof *choice);
    double *weight = calloc(n_choice, sizeof *weight);
    struct gs_gpu_args args = {.dims = {.n_expert = n_expert, .n_active = n_active}, .n_rows = n_rows};
    for (size_t i = 0; i < n; i++) /* few values: ties in every row */
        logits[i] = (float)(int)(check_random(check) % 24) / 4.0f - 3.0f;
    for (int32_t t = 0; t < n_rows; t++)
        choose_row(logits + t * n_expert, n_expert, n_active, choice + t * n_active, weight + t * n_active);
    args.s.router = check_give(check, "router", logits, n * sizeof *logits);
    args.s.choice = check_give(check, "choice", NULL, n_choice * sizeof *choice);
    args.s.choice_weight = check_give(check, "weights", NULL, n_choice * sizeof(float));
    check_launch(check, "gs_simple_choose", (uint32_t)n_rows, 1, 1, GS_SIMPLE_CHOOSE, 0, &args);
    check_same(check, "choose", args.s.choice, choice, n_choice * sizeof *choice);
    check_near(check, "choose: weights", args.s.choice_weight, weight, NULL, n_choice, 5e-7);
    free(logits);
    free(choice);
    free(weight);
    check_release(check);
}

void check_choose(struct check *check)
{
    choose_shape(check, 20, 32, 4);
    choose_shape(check, 3, 128, 4);
    choose_shape(check, 2, 1, 1);
    choose_shape(check, 5, 40, 16);
    choose_shape(check, 2, 100, 7);
    choose_shape(check, 4, 5, 5);
}

/* ---------------------------------------------------------------- routes */

/* Distinct experts for each row, at random. */
static int32_t *make_choice(struct check *check, const struct shape *s)
{
    int32_t *choice = calloc((size_t)(s->n_rows * s->n_active), sizeof *choice);
    for (int32_t t = 0; t < s->n_rows; t++)
        for (int32_t k = 0; k < s->n_active; k++) {
            bool again = true;
            while (again) {
                int32_t e = (int32_t)(check_random(check) % (uint32_t)s->n_expert);
                again = false;
                for (int32_t i = 0; i < k; i++)
                    again = again || choice[t * s->n_active + i] == e;
                choice[t * s->n_active + k] = e;
            }
        }
    return choice;
}

static void sort_routes(const struct shape *s, const int32_t *choice, int32_t *first, int32_t *routes)
{
    int32_t n = 0;
    for (int32_t e = 0; e < s->n_expert; e++) {
        first[e] = n;
        for (int32_t i = 0; i < s->n_rows * s->n_active; i++)
            if (choice[i] == e)
                routes[n++] = i;
    }
    first[s->n_expert] = n;
}

void check_sort(struct check *check)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *s = &shapes[i];
        size_t n = (size_t)(s->n_rows * s->n_active), n_first = (size_t)s->n_expert + 1;
        int32_t *choice = make_choice(check, s), *first = calloc(n_first, 4), *routes = calloc(n, 4);
        struct gs_gpu_args args = {.dims = {.n_expert = s->n_expert, .n_active = s->n_active},
                                   .n_rows = s->n_rows};
        sort_routes(s, choice, first, routes);
        args.s.choice = check_give(check, "choice", choice, n * 4);
        args.s.route_first = check_give(check, "first routes", NULL, n_first * 4);
        args.s.routes = check_give(check, "routes", NULL, n * 4);
        check_launch(check, "gs_simple_sort", 1, 1, 1, GS_SIMPLE_SORT, 0, &args);
        check_same(check, "sort: first", args.s.route_first, first, n_first * 4);
        check_same(check, "sort: routes", args.s.routes, routes, n * 4);
        free(choice);
        free(first);
        free(routes);
        check_release(check);
    }
}

/* ---------------------------------------------------------------- experts */

struct experts {
    struct gs_gpu_experts on_device;
    float *values; /* [n_expert][rows][columns] */
    float *bias;   /* [n_expert][rows] */
};

static struct experts make_experts(struct check *check, int32_t n_expert, int32_t rows, int32_t columns)
{
    size_t n_rows = (size_t)n_expert * (size_t)rows, groups = (size_t)columns / 32,
           stride = (groups + 15) / 16 * 16;
    uint8_t *codes = check_give(check, "codes", NULL, n_rows * groups * 16);
    uint8_t *scales = check_give(check, "scales", NULL, n_rows * stride);
    float *bias = check_give(check, "bias", NULL, n_rows * sizeof *bias);
    struct experts e = {.on_device = {.codes = codes,
                                      .scales = scales,
                                      .bias = bias,
                                      .rows = rows,
                                      .columns = columns,
                                      .scale_stride = (int32_t)stride},
                        .values = calloc(n_rows * (size_t)columns, sizeof(float)),
                        .bias = bias};
    for (size_t i = 0; i < n_rows * groups * 16; i++)
        codes[i] = (uint8_t)check_random(check);
    for (size_t r = 0; r < n_rows; r++) {
        for (size_t g = 0; g < stride; g++)
            scales[r * stride + g] = g < groups ? (uint8_t)(122 + check_random(check) % 4) : 0;
        gs_mxfp4_dequantize(codes + r * groups * 16, scales + r * stride, columns,
                            e.values + r * (size_t)columns);
    }
    check_numbers(check, bias, n_rows);
    return e;
}

/* A row's product with a vector, and the sum of its terms' sizes. */
static double product(const struct experts *e, int32_t expert, int32_t row, const float *x, double *size)
{
    int32_t columns = e->on_device.columns;
    size_t at = (size_t)expert * (size_t)e->on_device.rows + (size_t)row;
    double sum = e->bias[at];
    for (int32_t c = 0; c < columns; c++) {
        double term = (double)e->values[at * (size_t)columns + (size_t)c] * x[c];
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

static double swiglu(double gate, double up)
{
    gate = fmin(gate, 7.0);
    up = fmax(-7.0, fmin(up, 7.0));
    return (up + 1.0) * gate / (1.0 + exp(-1.702 * gate));
}

/* activated and expert_out of all routes. */
static void expect_moe(const struct shape *s, const struct experts *in, const struct experts *out,
                       const int32_t *choice, const float *normed, const float *activated,
                       double *expected_in, double *size_in, double *expected_out, double *size_out)
{
    for (int32_t route = 0; route < s->n_rows * s->n_active; route++) {
        const float *x = normed + route / s->n_active * s->d_model;
        for (int32_t u = 0; u < s->d_ff; u++) {
            double size = 1.0, gate = product(in, choice[route], 2 * u, x, &size);
            double up = product(in, choice[route], 2 * u + 1, x, &size);
            expected_in[route * s->d_ff + u] = swiglu(gate, up);
            size_in[route * s->d_ff + u] = 10.0 * size; /* neither factor grows an error more than that */
        }
        for (int32_t r = 0; r < s->d_model; r++) {
            size_t at = (size_t)(route * s->d_model + r);
            size_out[at] = 1.0;
            expected_out[at] = product(out, choice[route], r, activated + route * s->d_ff, &size_out[at]);
        }
    }
}

static void moe_shape(struct check *check, const struct shape *s)
{
    size_t n_route = (size_t)(s->n_rows * s->n_active), n_first = (size_t)s->n_expert + 1;
    size_t n_in = n_route * (size_t)s->d_ff, n_out = n_route * (size_t)s->d_model;
    struct experts in = make_experts(check, s->n_expert, 2 * s->d_ff, s->d_model);
    struct experts out = make_experts(check, s->n_expert, s->d_model, s->d_ff);
    int32_t *choice = make_choice(check, s), *first = calloc(n_first, 4), *routes = calloc(n_route, 4);
    float *normed = calloc((size_t)(s->n_rows * s->d_model), 4), *activated = calloc(n_in, 4);
    double *expected_in = calloc(2 * n_in, 8), *expected_out = calloc(2 * n_out, 8);
    double *size_in = expected_in + n_in, *size_out = expected_out + n_out;
    struct gs_gpu_args args = {.dims = {.n_expert = s->n_expert,
                                        .n_active = s->n_active,
                                        .d_model = s->d_model,
                                        .d_ff = s->d_ff,
                                        .swiglu_limit = 7.0f,
                                        .swiglu_alpha = 1.702f},
                               .w = {.gate_up = in.on_device, .down = out.on_device},
                               .n_rows = s->n_rows};
    check_numbers(check, normed, (size_t)(s->n_rows * s->d_model));
    check_numbers(check, activated, n_in);
    sort_routes(s, choice, first, routes);
    expect_moe(s, &in, &out, choice, normed, activated, expected_in, size_in, expected_out, size_out);
    args.s.route_first = check_give(check, "first routes", first, n_first * 4);
    args.s.routes = check_give(check, "routes", routes, n_route * 4);
    args.s.normed = check_give(check, "normed", normed, (size_t)(s->n_rows * s->d_model) * 4);
    args.s.activated = check_give(check, "activated", NULL, n_in * 4);
    args.s.expert_out = check_give(check, "expert_out", NULL, n_out * 4);
    /* The host's grid: warps of 64 lanes, and groups of eight routes as even routing would have them. */
    uint32_t z = (uint32_t)(n_route + 8 * (size_t)s->n_expert - 1) / (8 * (uint32_t)s->n_expert);
    bool one = s->n_rows == 1;
    check_launch(check, one ? "gs_simple_moe_in_1" : "gs_simple_moe_in_8", (uint32_t)(2 * s->d_ff + 15) / 16,
                 (uint32_t)s->n_expert, z, GS_SIMPLE_THREADS, 0, &args);
    check_near(check, "moe in", args.s.activated, expected_in, size_in, n_in, 5e-7);
    memcpy(args.s.activated, activated, n_in * 4);
    check_launch(check, one ? "gs_simple_moe_out_1" : "gs_simple_moe_out_8", (uint32_t)(s->d_model + 15) / 16,
                 (uint32_t)s->n_expert, z, GS_SIMPLE_THREADS, 0, &args);
    check_near(check, "moe out", args.s.expert_out, expected_out, size_out, n_out, 5e-7);
    free(in.values);
    free(out.values);
    free(choice);
    free(first);
    free(routes);
    free(normed);
    free(activated);
    free(expected_in);
    free(expected_out);
    check_release(check);
}

void check_moe(struct check *check)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        moe_shape(check, &shapes[i]);
}

void check_combine(struct check *check)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *s = &shapes[i];
        size_t n_route = (size_t)(s->n_rows * s->n_active), n = (size_t)(s->n_rows * s->d_model);
        int32_t *choice = make_choice(check, s);
        float *weight = calloc(n_route, 4), *outs = calloc(n_route * (size_t)s->d_model, 4);
        float *expected = calloc(n, 4);
        struct gs_gpu_args args = {.dims = {.n_active = s->n_active, .d_model = s->d_model},
                                   .n_rows = s->n_rows};
        check_numbers(check, weight, n_route);
        check_numbers(check, outs, n_route * (size_t)s->d_model);
        for (int32_t t = 0; t < s->n_rows; t++)
            for (int32_t e = 0; e < s->n_expert; e++) /* in ascending order of the expert, to the bit */
                for (int32_t k = t * s->n_active; k < (t + 1) * s->n_active; k++)
                    for (int32_t j = 0; choice[k] == e && j < s->d_model; j++)
                        expected[t * s->d_model + j] += outs[k * s->d_model + j] * weight[k];
        args.s.choice = check_give(check, "choice", choice, n_route * 4);
        args.s.choice_weight = check_give(check, "weights", weight, n_route * 4);
        args.s.expert_out = check_give(check, "expert_out", outs, n_route * (size_t)s->d_model * 4);
        args.s.projected = check_give(check, "projected", NULL, n * 4);
        check_launch(check, "gs_simple_combine", (uint32_t)s->n_rows, 1, 1, GS_SIMPLE_THREADS, 0, &args);
        check_same(check, "combine", args.s.projected, expected, n * 4);
        free(choice);
        free(weight);
        free(outs);
        free(expected);
        check_release(check);
    }
}
