/* src/backend/cpu/measure.c: what is measured is the real work, and the bandwidth is a believable one. */
#include "backend/cpu/kernels.h"
#include "backend/cpu/measure.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>

enum { N_EXPERT = 3, ROWS = 50, COLUMNS = 160, GROUPS = COLUMNS / 32, TRIES = 50 };

struct fixture {
    uint8_t blocks[N_EXPERT][ROWS][GROUPS][17]; /* 16 of 17 used without GGUF's scale */
    uint8_t scales[N_EXPERT][ROWS][GROUPS];
    float in[N_EXPERT][COLUMNS];
    float out[N_EXPERT][ROWS];
    struct gs_mxfp4_matrix experts[N_EXPERT];
    const float *ins[N_EXPERT];
    float *outs[N_EXPERT];
};

static struct fixture *make_fixture(bool is_gguf)
{
    struct fixture *f = calloc(1, sizeof *f);
    uint32_t state = 7;
    assert_non_null(f);
    uint8_t *bytes = &f->blocks[0][0][0][0];
    for (size_t i = 0; i < sizeof f->blocks; i++) {
        state = state * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(is_gguf && i % 17 == 0 ? 120 + (state >> 24) % 10 : state >> 24);
    }
    for (size_t e = 0; e < N_EXPERT; e++) {
        for (size_t i = 0; i < ROWS * GROUPS; i++)
            (&f->scales[e][0][0])[i] = (uint8_t)(120 + (i * 7 + e) % 10);
        for (size_t i = 0; i < COLUMNS; i++)
            f->in[e][i] = (float)((int)((i * 31 + e * 17) % 101) - 50) / 64.0f;
        f->experts[e] = (struct gs_mxfp4_matrix){.blocks = bytes + e * ROWS * GROUPS * (is_gguf ? 17 : 16),
                                                 .scales = is_gguf ? NULL : &f->scales[e][0][0],
                                                 .n_expert = 1,
                                                 .rows = ROWS,
                                                 .columns = COLUMNS};
        f->ins[e] = f->in[e];
        f->outs[e] = f->out[e];
    }
    return f;
}

/* The row in the plainest way, the product in the order that the exact kernels promise. */
static float expect(const struct fixture *f, size_t expert, int64_t row)
{
    float weights[COLUMNS], sum;
    const float *in = f->in[expert];
    struct gs_mxfp4_row stored = gs_mxfp4_find_row(&f->experts[expert], 0, row);
    if (stored.scales)
        gs_mxfp4_dequantize(stored.blocks, stored.scales, COLUMNS, weights);
    else
        gs_mxfp4_dequantize_gguf(stored.blocks, COLUMNS, weights);
    gs_kernels_find("generic")->dot(weights, &in, 1, COLUMNS, &sum);
    return sum;
}

static void products_are_the_forwards(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++)
        for (size_t n_threads = 1; n_threads <= 3; n_threads++) {
            struct fixture *f = make_fixture(form == 1);
            struct gs_measure *measure;
            struct gs_error error;
            double seconds = -1.0;
            assert_ok(gs_measure_open(n_threads, &measure, &error), &error);
            assert_int_equal(gs_measure_threads(measure), n_threads);
            assert_ok(gs_measure_product(measure, f->experts, N_EXPERT, f->ins, GS_MEASURE_KERNEL, f->outs,
                                         &seconds, &error),
                      &error);
            assert_true(seconds > 0.0);
            for (size_t e = 0; e < N_EXPERT; e++)
                for (int64_t r = 0; r < ROWS; r++) {
                    float expected = expect(f, e, r);
                    assert_memory_equal(&f->out[e][r], &expected, sizeof expected);
                }
            assert_ok(gs_measure_product(measure, f->experts, N_EXPERT, f->ins, GS_MEASURE_SCALAR, f->outs,
                                         &seconds, &error),
                      &error);
            for (size_t e = 0; e < N_EXPERT; e++)
                for (int64_t r = 0; r < ROWS; r++)
                    assert_true(fabsf(f->out[e][r] - expect(f, e, r)) < 1e-3f);
            gs_measure_close(measure);
            free(f);
        }
}

static void the_buffer_is_beyond_the_cache(void **state)
{
    (void)state;
    struct gs_measure *measure;
    struct gs_error error;
    assert_ok(gs_measure_open(1, &measure, &error), &error);
#if !defined(__SANITIZE_ADDRESS__) /* there the buffer is small on purpose: nobody reads those figures */
    assert_true(gs_measure_buffer_bytes(measure) >= 256u << 20);
    assert_true(gs_measure_buffer_bytes(measure) >= 4 * gs_measure_cache_bytes() ||
                gs_measure_buffer_bytes(measure) == 2ull << 30);
#endif
    /* Again if it was slow: this process may have stood still. */
    double rate = 0.0;
    for (int attempt = 0; attempt < TRIES && rate <= 1e7; attempt++)
        rate = gs_measure_read(measure);
    assert_true(rate > 1e7 && rate < 1e13);
    /* A loop that the compiler had removed would be faster than any processor. */
    for (int type = 0; type < GS_MEASURE_TYPE_COUNT; type++) {
        rate = 0.0;
        for (int attempt = 0; attempt < TRIES && rate <= 1e7; attempt++)
            rate = gs_measure_arithmetic(measure, (enum gs_measure_type)type);
        assert_true(rate > 1e7 && rate < 2e12);
    }
    gs_measure_close(measure);
    gs_measure_close(NULL);
    assert_fails(gs_measure_open(100000, &measure, &error), GS_INVALID_ARGUMENT, "threads", &error);
    assert_null(measure);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_the_forwards),
        cmocka_unit_test(the_buffer_is_beyond_the_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
