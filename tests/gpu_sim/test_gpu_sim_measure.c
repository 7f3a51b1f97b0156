/*
 * Single experts on HIP, as bench --kernel times them, over the stand-in for AMD's library: what they
 * compute, warm and cold, alone and together, with waves of 64 and of 32 lanes, and every call of the library
 * failing in turn.
 */
#include "backend/gpu/measure.h"
#include "backend/hip/device.h"
#include "tests/gpu_sim/stand_in.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define N       3
#define ROWS    24
#define COLUMNS 96
#define GROUPS  (COLUMNS / GS_MXFP4_GROUP)

static struct hip_sim_control *control;

static int open_stand_in(void **state)
{
    char folder[1024];
    int status;
    (void)state;
    control = stand_in_open(folder, sizeof folder, &status);
    return status;
}

static void reset(unsigned long fail_at)
{
    if (!control)
        skip();
    *control =
        (struct hip_sim_control){.fail_at = fail_at, .fail_code = 719, .n_device = 3, .memory = 4ull << 30};
    stand_in_kinds(control->kinds);
}

static void assert_clean(void)
{
    assert_string_equal(control->misuse, "");
    assert_int_equal(control->n_held, 0);
}

/* Experts of their own, the last in GGUF's form. */
struct experts {
    uint8_t blocks[N][ROWS * GROUPS * GS_MXFP4_BLOCK_BYTES], scales[N][ROWS * GROUPS];
    struct gs_mxfp4_matrix matrices[N];
    float vectors[N][COLUMNS];
    const float *in[N];
};

static void fill(struct experts *x)
{
    uint32_t state = 7;
    for (int e = 0; e < N; e++) {
        bool gguf = e == N - 1;
        x->matrices[e] =
            (struct gs_mxfp4_matrix){x->blocks[e], gguf ? NULL : x->scales[e], NULL, 1, ROWS, COLUMNS};
        for (size_t i = 0; i < sizeof x->blocks[e]; i++) {
            state = state * 1664525u + 1013904223u;
            x->blocks[e][i] = (uint8_t)(state >> 24);
            if (gguf && i % GS_MXFP4_BLOCK_BYTES == 0)
                x->blocks[e][i] = (uint8_t)(124 + state % 5);
        }
        for (size_t i = 0; i < sizeof x->scales[e]; i++)
            x->scales[e][i] = (uint8_t)(123 + (i + (size_t)e) % 6);
        for (int i = 0; i < COLUMNS; i++)
            x->vectors[e][i] = (float)((i * 5 + e * 3) % 13 - 6) / 8.0f;
        x->in[e] = x->vectors[e];
    }
}

/* Row r of expert e times a vector, in double. */
static double dot(const struct experts *x, int e, int r, const float *vector)
{
    float row[COLUMNS];
    double sum = 0.0;
    struct gs_mxfp4_row at = gs_mxfp4_find_row(&x->matrices[e], 0, r);
    if (at.scales)
        gs_mxfp4_dequantize(at.blocks, at.scales, COLUMNS, row);
    else
        gs_mxfp4_dequantize_gguf(at.blocks, COLUMNS, row);
    for (int i = 0; i < COLUMNS; i++)
        sum += (double)row[i] * (double)vector[i];
    return sum;
}

static double expected(const struct experts *x, bool is_gate_up, int e, int i)
{
    if (!is_gate_up)
        return dot(x, e, i, x->vectors[e]);
    double gate = fmin(dot(x, e, 2 * i, x->vectors[0]), 7.0);
    double up = fmax(fmin(dot(x, e, 2 * i + 1, x->vectors[0]), 7.0), -7.0);
    return (up + 1.0) * gate / (1.0 + exp(-1.702 * gate));
}

static void products_are_the_scalar_codes(void **state)
{
    (void)state;
    static struct experts x;
    static const size_t counts[] = {1, N};
    fill(&x);
    for (int index = 0; index < 2; index++) /* 64 lanes, 32 */
        for (int is_gate_up = 0; is_gate_up < 2; is_gate_up++) {
            struct gs_gpu_measure *m;
            struct gs_error error;
            double seconds = -1.0, rate = 0.0;
            float found[N * ROWS];
            reset(0);
            assert_ok(gs_gpu_measure_open(&gs_hip_api, index, x.matrices, N, is_gate_up, x.in, &m, &error),
                      &error);
            assert_ok(gs_gpu_measure_copy(m, &rate, &error), &error);
            assert_true(rate > 0.0);
            assert_fails(gs_gpu_measure_choose(m, N + 1, false, &error), GS_INVALID_ARGUMENT, "of 3", &error);
            for (int k = 0; k < 4; k++) {
                size_t n = counts[k / 2], width = is_gate_up ? ROWS / 2 : ROWS;
                memset(found, 0, sizeof found);
                assert_ok(gs_gpu_measure_choose(m, n, k % 2, &error), &error);
                unsigned long before = control->n_launch;
                assert_ok(gs_gpu_measure_product(m, &seconds, &error), &error);
                assert_true(seconds > 0.0);
                assert_int_equal(control->n_launch - before, gs_gpu_measure_launches(m));
                assert_int_equal(gs_gpu_measure_launches(m), 64);
                assert_ok(gs_gpu_measure_result(m, found, &error), &error);
                for (size_t i = 0; i < n * width; i++) {
                    double right = expected(&x, is_gate_up, (int)(i / width), (int)(i % width));
                    assert_true(fabs(found[i] - right) <= 1e-4 * (1.0 + fabs(right)));
                }
            }
            gs_gpu_measure_close(m);
            assert_clean();
        }
    struct gs_gpu_measure *m;
    struct gs_error error;
    assert_fails(gs_gpu_measure_open(&gs_hip_api, 0, x.matrices, 17, true, x.in, &m, &error),
                 GS_INVALID_ARGUMENT, "1 to 16", &error);
    gs_gpu_measure_close(NULL);
}

static gs_status run_all(const struct experts *x, struct gs_error *error)
{
    struct gs_gpu_measure *m = NULL;
    float found[N * ROWS];
    double number;
    gs_status status = gs_gpu_measure_open(&gs_hip_api, 1, x->matrices, N, true, x->in, &m, error);
    if (status == GS_OK)
        status = gs_gpu_measure_copy(m, &number, error);
    if (status == GS_OK)
        status = gs_gpu_measure_choose(m, N, true, error);
    if (status == GS_OK)
        status = gs_gpu_measure_product(m, &number, error);
    if (status == GS_OK)
        status = gs_gpu_measure_result(m, found, error);
    gs_gpu_measure_close(m);
    return status;
}

static void any_call_may_fail(void **state)
{
    (void)state;
    static struct experts x;
    struct gs_error error;
    fill(&x);
    reset(0);
    assert_ok(run_all(&x, &error), &error);
    unsigned long n_calls = control->n_calls, n_failed = 0;
    assert_true(n_calls > 60);
    for (unsigned long at = 1; at <= n_calls; at += at < 80 || at + 30 > n_calls ? 1 : 9) {
        reset(at);
        gs_status status = run_all(&x, &error);
        n_failed += status != GS_OK;
        if (status != GS_OK)
            assert_null(strchr(error.message, '\n'));
        if (!control->device_lost)
            assert_clean();
    }
    print_message("%lu calls, %lu of those tried are failures\n", n_calls, n_failed);
    assert_true(n_failed > 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_the_scalar_codes),
        cmocka_unit_test(any_call_may_fail),
    };
    return cmocka_run_group_tests_name("gpu_sim_measure", tests, open_stand_in, NULL);
}
