/*
 * The simulator of the Metal language: it agrees with plain C on kernels that are right, with and without
 * fast math and in every order, and each kind of fault has a control here that it must catch.
 */
#include "tests/metal_sim/around.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const enum sim_order orders[] = {SIM_FORWARD, SIM_REVERSE, SIM_RANDOM};
#define N_ORDERS (sizeof orders / sizeof orders[0])

static char message[METALSIM_MESSAGE];
static char *right_source, *wrong_source;
static struct metalsim_library *right[2], *wrong; /* right: plain, fast math */

static char *read_source(const char *path)
{
    static char text[1 << 16];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    return strdup(text);
}

static const uint32_t n_column = 352;
static const bool with_bias = true;
static const struct metalsim_constant constants[] = {{0, METALSIM_UINT, &n_column},
                                                     {1, METALSIM_BOOL, &with_bias}};

static int open_libraries(void **state)
{
    (void)state;
    right_source = read_source("tests/metal_sim/data/right.metal");
    wrong_source = read_source("tests/metal_sim/data/wrong.metal");
    for (int fast = 0; fast < 2 && metalsim_available(message, sizeof message); fast++) {
        struct metalsim_options options = {.fast_math = fast, .constants = constants, .n_constant = 2};
        right[fast] = metalsim_library_new(right_source, &options, message, sizeof message);
        if (!right[fast]) {
            print_error("right.metal: %s\n", message);
            return -1;
        }
    }
    wrong = metalsim_library_new(wrong_source, NULL, message, sizeof message);
    if (!wrong)
        print_error("wrong.metal: %s\n", message);
    return wrong || !metalsim_available(message, sizeof message) ? 0 : -1;
}

static int close_libraries(void **state)
{
    (void)state;
    metalsim_library_free(right[0]);
    metalsim_library_free(right[1]);
    metalsim_library_free(wrong);
    free(right_source);
    free(wrong_source);
    return 0;
}

static uint32_t random_state = 1;

static uint32_t next_random(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

static float next_float(void)
{
    return (float)next_random() / (float)(1 << 23) - 1.0f;
}

static bool run_with(const struct metalsim_library *library, const char *kernel, enum sim_order order,
                     uint32_t n_threadgroup, uint32_t n_thread, const struct metalsim_bound *buffers,
                     int n_buffer)
{
    struct metalsim_dispatch dispatch = {.n_threadgroup = {n_threadgroup, 1, 1},
                                         .n_thread = {n_thread, 1, 1},
                                         .buffers = buffers,
                                         .n_buffer = n_buffer,
                                         .order = order,
                                         .seed = 3};
    return metalsim_run(library, kernel, &dispatch, message, sizeof message);
}

/* Runs a kernel of right.metal in every order, plain and with fast math; `check` looks at the result. */
static void run_right(const char *kernel, uint32_t n_threadgroup, uint32_t n_thread,
                      const struct metalsim_bound *buffers, int n_buffer, void (*prepare)(void),
                      void (*check)(void))
{
    need_simulator();
    for (int fast = 0; fast < 2; fast++)
        for (size_t o = 0; o < N_ORDERS; o++) {
            prepare();
            if (!run_with(right[fast], kernel, orders[o], n_threadgroup, n_thread, buffers, n_buffer))
                fail_msg("%s: %s", kernel, message);
            check();
        }
}

/* ---------------------------------------------------------------- kernels that are right */

#define N_ROW 37
static uint8_t codes[N_ROW * 352 / 2], scales[N_ROW * 352 / 32];
static uint16_t bias[N_ROW];
static float x[4096], y[4096];

static void prepare_mxfp4(void)
{
    for (size_t i = 0; i < sizeof codes; i++)
        codes[i] = (uint8_t)next_random();
    for (size_t i = 0; i < sizeof scales; i++)
        scales[i] = (uint8_t)(120 + next_random() % 8);
    for (int i = 0; i < N_ROW; i++)
        bias[i] = (uint16_t)(0x3f80 + i); /* 1 + i/128 */
    for (uint32_t i = 0; i < n_column; i++)
        x[i] = (float)(next_random() % 512) / 256.0f - 1.0f; /* exact in half */
    memset(y, 0xff, sizeof y);
}

static void check_mxfp4(void)
{
    static const double values[16] = {0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6};
    for (uint32_t row = 0; row < N_ROW; row++) {
        double sum = 0.0, size = 0.0;
        for (uint32_t c = 0; c < n_column; c++) {
            uint8_t pair = codes[(row * n_column + c) / 2];
            double w =
                values[c % 2 ? pair >> 4 : pair & 15] * ldexp(1.0, scales[(row * n_column + c) / 32] - 127);
            sum += w * (double)x[c];
            size += fabs(w * (double)x[c]);
        }
        sum += 1.0 + (double)row / 128.0;
        assert_true(fabs((double)y[row] - sum) <= 2e-7 * (size + 1.0));
    }
}

static void mxfp4_matrix_vector_product(void **state)
{
    (void)state;
    uint32_t n_row = N_ROW;
    struct metalsim_bound buffers[] = {{0, codes, sizeof codes, 0}, {1, scales, sizeof scales, 0},
                                       {2, x, n_column * 4, 0},     {3, bias, sizeof bias, 0},
                                       {4, y, N_ROW * 4, 0},        {5, &n_row, 4, 0}};
    run_right("mxfp4_row", 10, 128, buffers, 6, prepare_mxfp4, check_mxfp4);
}

#define N_NORM 1028

static void prepare_norm(void)
{
    for (int i = 0; i < N_NORM; i++)
        x[i] = next_float();
    memset(y, 0xff, sizeof y);
}

static void check_norm(void)
{
    double sum = 0.0;
    for (int i = 0; i < N_NORM; i++)
        sum += (double)x[i] * (double)x[i];
    for (int i = 0; i < N_NORM; i++)
        assert_true(fabs((double)y[i] - (double)x[i] / sqrt(sum / N_NORM + 1e-5)) < 1e-6);
}

static void rms_norm_in_two_levels(void **state)
{
    (void)state;
    uint32_t n = N_NORM;
    struct metalsim_bound buffers[] = {{0, x, N_NORM * 4, 0}, {1, y, N_NORM * 4, 0}, {2, &n, 4, 0}};
    run_right("rms_norm", 1, 224, buffers, 3, prepare_norm, check_norm);
}

/* Small whole numbers as half: exact. */
static uint16_t a[16 * 24], b[16 * 24];
static int a_value[16 * 24], b_value[16 * 24];

static void prepare_matrices(void)
{
    static const uint16_t halves[5] = {0xc000, 0xbc00, 0x0000, 0x3c00, 0x4000}; /* -2 ... 2 */
    for (int i = 0; i < 16 * 24; i++) {
        a_value[i] = (int)(next_random() % 5) - 2, b_value[i] = (int)(next_random() % 5) - 2;
        a[i] = halves[a_value[i] + 2], b[i] = halves[b_value[i] + 2];
    }
    memset(y, 0xff, sizeof y);
}

static void check_matrices(void)
{
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 16; column++) {
            int sum = 0;
            for (int k = 0; k < 24; k++)
                sum += a_value[row * 24 + k] * b_value[column * 24 + k];
            assert_true(y[row * 16 + column] == 2.0f * (float)sum);
        }
}

static void simdgroup_matrices(void **state)
{
    (void)state;
    struct metalsim_bound buffers[] = {{0, a, sizeof a, 0}, {1, b, sizeof b, 0}, {2, y, 1024, 0}};
    run_right("matrix_product", 1, 128, buffers, 3, prepare_matrices, check_matrices);
}

static uint32_t input[512], counted[8], largest;

static void prepare_counts(void)
{
    for (int i = 0; i < 512; i++)
        input[i] = next_random() % 8;
    memset(counted, 0, sizeof counted);
    largest = 0;
}

static void check_counts(void)
{
    uint32_t expected[8] = {0}, last = 0;
    for (uint32_t i = 0; i < 512; i++) {
        expected[input[i]]++;
        last = input[i] == 7 ? i : last;
    }
    assert_memory_equal(counted, expected, sizeof counted);
    assert_int_equal(largest, last);
}

static void atomics(void **state)
{
    (void)state;
    struct metalsim_bound buffers[] = {
        {0, input, sizeof input, 0}, {1, counted, sizeof counted, 0}, {2, &largest, 4, 0}};
    run_right("histogram", 4, 128, buffers, 3, prepare_counts, check_counts);
}

static void prepare_output(void)
{
    memset(y, 0xff, sizeof y);
}

static void check_simd(void)
{
    for (int i = 0; i < 32; i++)
        assert_true(y[i] == 15.0f);
}

static void simd_functions(void **state)
{
    (void)state;
    struct metalsim_bound buffers[] = {{0, y, 128, 0}};
    run_right("simd_functions", 1, 32, buffers, 1, prepare_output, check_simd);
}

static void positions_in_three_dimensions(void **state)
{
    (void)state;
    need_simulator();
    uint32_t out[24 * 10 * 6];
    struct metalsim_bound buffers[] = {{0, out, sizeof out, 0}};
    struct metalsim_dispatch dispatch = {
        .n_threadgroup = {3, 5, 2}, .n_thread = {8, 2, 3}, .buffers = buffers, .n_buffer = 1};
    for (size_t o = 0; o < N_ORDERS; o++) {
        dispatch.order = orders[o];
        memset(out, 0, sizeof out);
        if (!metalsim_run(right[0], "positions", &dispatch, message, sizeof message))
            fail_msg("%s", message);
        for (uint32_t i = 0; i < 24 * 10 * 6; i++)
            assert_int_equal(out[i], i + 1);
    }
}

static void function_constants_belong_to_their_library(void **state)
{
    (void)state;
    need_simulator();
    uint32_t n_row = 1, n = 32;
    bool without = false;
    struct metalsim_constant others[] = {{0, METALSIM_UINT, &n}, {1, METALSIM_BOOL, &without}};
    struct metalsim_options options = {.constants = others, .n_constant = 2};
    struct metalsim_library *library = metalsim_library_new(right_source, &options, message, sizeof message);
    assert_non_null(library);
    prepare_mxfp4();
    struct metalsim_bound buffers[] = {{0, codes, 16, 0}, {1, scales, 1, 0}, {2, x, 128, 0},
                                       {3, bias, 2, 0},   {4, y, 4, 0},      {5, &n_row, 4, 0}};
    if (!run_with(library, "mxfp4_row", SIM_FORWARD, 1, 32, buffers, 6))
        fail_msg("%s", message);
    metalsim_library_free(library);
    assert_true(isfinite(y[0]));
    assert_false(run_with(right[0], "mxfp4_row", SIM_FORWARD, 1, 32, buffers, 6)); /* 352 columns there */

    options.n_constant = 1;
    assert_null(metalsim_library_new(right_source, &options, message, sizeof message));
    assert_non_null(strstr(message, "function constant 1, with_bias, is not set"));
    others[1].type = METALSIM_INT;
    options.n_constant = 2;
    assert_null(metalsim_library_new(right_source, &options, message, sizeof message));
    assert_non_null(strstr(message, "has MTLDataType 53 and was given 29"));
}

/* ---------------------------------------------------------------- kernels that are wrong */

static void a_missing_barrier_fails_in_every_order(void **state)
{
    (void)state;
    need_simulator();
    struct metalsim_bound buffers[] = {{0, y, 256, 0}};
    for (size_t o = 0; o < N_ORDERS; o++) {
        assert_true(run_with(wrong, "barrier_missing", orders[o], 1, 64, buffers, 1));
        bool is_right = true;
        for (int i = 0; i < 64; i++)
            is_right = is_right && y[i] == (float)(63 - i);
        assert_false(is_right);
    }
}

static void a_barrier_missing_at_a_loops_end_fails_out_of_order(void **state)
{
    (void)state;
    need_simulator();
    struct metalsim_bound buffers[] = {{0, y, 256, 0}};
    for (size_t o = 0; o < N_ORDERS; o++) {
        assert_true(run_with(wrong, "barrier_missing_at_loop_end", orders[o], 1, 64, buffers, 1));
        bool is_right = true;
        for (int i = 0; i < 64; i++)
            is_right = is_right && y[i] == (i < 63 ? 6.0f * (float)(i + 1) : 0.0f);
        assert_int_equal(is_right, orders[o] == SIM_FORWARD);
    }
}

static void faults_stop_and_say_where(void **state)
{
    (void)state;
    need_simulator();
    static const struct {
        const char *kernel;
        uint32_t n_thread;
        size_t out, in; /* bytes of buffers 0 and 1; 0: not set */
        size_t shared;  /* of threadgroup memory 0 */
        const char *says[2];
    } cases[] = {
        {"barrier_under_condition",
         64,
         256,
         0,
         0,
         {"simd_sum at program_source:31", "threadgroup_barrier at program_source:30"}},
        {"barrier_not_for_all", 64, 256, 0, 0, {"threadgroup_barrier at program_source:37", "has returned"}},
        {"lane_returns", 64, 256, 0, 0, {"simd_sum at program_source:45", "thread 3 has returned"}},
        {"read_past_end", 64, 256, 256, 0, {"at byte 256 of buffer 1, which has 256 bytes", "thread 63"}},
        {"write_past_end", 64, 256, 0, 0, {"at byte 256 of buffer 0, which has 256 bytes", "thread 63"}},
        {"write_before_start", 64, 256, 0, 0, {"buffer 0", "4 bytes before its start"}},
        {"read_past_end", 64, 256, 0, 0, {"buffer 1, 'in', is not set", ""}},
        {"index_past_array", 64, 256, 0, 0, {"an index outside an array", "thread 63"}},
        {"pointer_past_array", 64, 256, 0, 0, {"past the end of threadgroup memory 'shared'", ""}},
        {"too_much_shared", 64, 256, 0, 0, {"32784 bytes with b, at most 32768", ""}},
        {"given_shared", 64, 256, 0, 0, {"threadgroup memory 0, 'shared', has no length", ""}},
        {"given_shared", 64, 256, 0, 32784, {"32784 bytes with 'shared', at most 32768", ""}},
        {"given_shared", 64, 256, 0, 264, {"264 bytes, which is no multiple of 16", ""}},
        {"given_shared", 64, 256, 0, 240, {"past the end of threadgroup memory 'shared'", ""}},
        {"half_a_simdgroup",
         16,
         256,
         0,
         0,
         {"simdgroup_store at program_source:106", "not all of its 32 threads"}},
        {"reads_reference", 1, 256, 16, 0, {"buffer 1, 'both', has 16 bytes", "one value needs 32"}},
        {"at_most_32", 64, 256, 0, 0, {"a threadgroup of 64 threads, at most 32", ""}},
        {"at_most_32", 1025, 256, 0, 0, {"a threadgroup of 1025 threads", ""}},
        {"no_such_kernel", 1, 256, 0, 0, {"no kernel 'no_such_kernel'", ""}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t o = 0; o < N_ORDERS; o++) {
            struct metalsim_bound buffers[] = {{0, y, cases[i].out, 0}, {1, x, cases[i].in, 0}};
            struct metalsim_shared shared = {0, cases[i].shared};
            struct metalsim_dispatch dispatch = {.n_threadgroup = {1, 1, 1},
                                                 .n_thread = {cases[i].n_thread, 1, 1},
                                                 .buffers = buffers,
                                                 .n_buffer = cases[i].in ? 2 : 1,
                                                 .shared = &shared,
                                                 .n_shared = cases[i].shared ? 1 : 0,
                                                 .order = orders[o]};
            if (metalsim_run(wrong, cases[i].kernel, &dispatch, message, sizeof message))
                fail_msg("%s ran to its end", cases[i].kernel);
            for (int j = 0; j < 2 && orders[o] == SIM_FORWARD; j++)
                if (!strstr(message, cases[i].says[j]))
                    fail_msg("%s: '%s' lacks '%s'", cases[i].kernel, message, cases[i].says[j]);
        }
    /* and what such kernels do when nothing is wrong */
    struct metalsim_bound buffers[] = {{0, y, 256, 0}, {1, x, 260, 0}};
    assert_true(run_with(wrong, "read_past_end", SIM_FORWARD, 1, 64, buffers, 2));
    assert_true(run_with(wrong, "at_most_32", SIM_FORWARD, 1, 32, buffers, 1));
}

static void a_matrix_without_value_is_not_a_number(void **state)
{
    (void)state;
    need_simulator();
    struct metalsim_bound buffers[] = {{0, y, 256, 0}};
    memset(y, 0, 256);
    assert_true(run_with(wrong, "matrix_without_value", SIM_FORWARD, 1, 32, buffers, 1));
    for (int i = 0; i < 64; i++)
        assert_true(isnan(y[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mxfp4_matrix_vector_product),
        cmocka_unit_test(rms_norm_in_two_levels),
        cmocka_unit_test(simdgroup_matrices),
        cmocka_unit_test(atomics),
        cmocka_unit_test(simd_functions),
        cmocka_unit_test(positions_in_three_dimensions),
        cmocka_unit_test(function_constants_belong_to_their_library),
        cmocka_unit_test(a_missing_barrier_fails_in_every_order),
        cmocka_unit_test(a_barrier_missing_at_a_loops_end_fails_out_of_order),
        cmocka_unit_test(faults_stop_and_say_where),
        cmocka_unit_test(a_matrix_without_value_is_not_a_number),
    };
    return cmocka_run_group_tests_name("metal_sim", tests, open_libraries, close_libraries);
}
