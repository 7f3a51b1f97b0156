/*
 * Every variant of every kernel of the CPU backend against the generic one: random input over random and
 * ragged shapes, each buffer beside a page without access. Runs for what this processor has, and emulated.
 */
#include "tests/support/check.h"
#include "tests/support/kernel_cases.h"

#include <math.h>
#include <stdlib.h>

#define N_ROUND 60

/* Small and ragged, then the model's own widths, then anything. */
static struct kernel_shape choose_shape(const struct kernel_case *kernel, size_t round, uint64_t *random)
{
    static const size_t widths[] = {1, 2, 3, 4, 5, 7, 9, 15, 22, 45, 90, 128};
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    uint32_t r = (uint32_t)(*random >> 33);
    struct kernel_shape shape = {.n_rows = 1 + r % kernel->most_rows, .n_x = 1 + r / 64 % kernel->most_x};
    shape.n = kernel->step * widths[round % (sizeof widths / sizeof *widths)];
    if (kernel->step == 2) /* heads are not as long as rows */
        shape.n = round % 3 == 0 ? 64 : 2 * (1 + r / 4096 % 64);
    else if (kernel->step == 1)
        shape.n = round % 4 == 3 ? 2880 : 1 + r / 4096 % 400;
    if (round % 5 == 0)
        shape.n_x = 1;
    if (round % 7 == 0)
        shape.n_rows = kernel->most_rows;
    return shape;
}

static void check_case(const struct kernel_case *kernel)
{
    uint64_t random = 1;
    double worst = 0.0;
    for (size_t round = 0; round < N_ROUND; round++) {
        struct kernel_run run;
        struct kernel_variant generic = kernel_variant_at(0);
        kernel_prepare(&run, kernel, choose_shape(kernel, round, &random), round);
        unsigned char *expected = malloc(run.out_size);
        assert_non_null(expected);
        kernel_call(&run, &generic);
        memcpy(expected, run.out, run.out_size);
        for (size_t v = 1; v < kernel_checked_count(); v++) {
            struct kernel_variant variant = kernel_variant_at(v);
            if (!kernel_has(kernel, &variant))
                continue;
            kernel_call(&run, &variant);
            double difference = kernel_difference(&run, expected, run.out);
            worst = difference > worst ? difference : worst;
            if (!(difference <= 1.0))
                fail_msg("%s, %s: n %zu, rows %zu, vectors %zu: %g times what is allowed", kernel->name,
                         variant.isa, run.shape.n, run.shape.n_rows, run.shape.n_x, difference);
        }
        free(expected);
        kernel_release(&run);
    }
    if (!kernel->is_exact)
        print_message("  %-16s at most %.3f of what may differ\n", kernel->name, worst);
}

static void every_variant_is_the_generic_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < kernel_case_count; i++)
        check_case(&kernel_cases[i]);
}

static void check_company(const struct kernel_case *kernel, const struct kernel_variant *variant,
                          struct kernel_shape shape, uint64_t seed)
{
    struct kernel_run run;
    kernel_prepare(&run, kernel, shape, seed);
    float *together = malloc(run.out_size);
    assert_non_null(together);
    kernel_call(&run, variant);
    memcpy(together, run.out, run.out_size);
    for (size_t j = 0; j < shape.n_x; j++) {
        struct kernel_run alone = run;
        alone.shape.n_x = 1;
        alone.q8[0] = run.q8[j];
        alone.bf16[0] = run.bf16[j];
        run.kernel->call(&alone, variant);
        if (memcmp(run.out, together + j * run.stride, shape.n_rows * sizeof(float)) != 0)
            fail_msg("%s, %s, %zu weights: vector %zu differs alone", run.kernel->name, variant->isa, shape.n,
                     j);
    }
    free(together);
    kernel_release(&run);
}

/*
 * A call a second time, or of its vectors one by one, gives the same bits: nothing depends on the company.
 * Short rows, medium and long ones may be taken in different ways.
 */
static void vectors_do_not_depend_on_their_company(void **state)
{
    static const struct kernel_shape shapes[] = {{288, 27, 11}, {192, 32, 8},  {1216, 17, 7}, {3104, 19, 5},
                                                 {1056, 9, 40}, {192, 27, 16}, {1024, 32, 29}};
    (void)state;
    for (size_t i = 0; i < kernel_case_count; i++)
        for (size_t v = 0; v < kernel_checked_count() && kernel_cases[i].most_rows == KERNEL_MAX_ROWS; v++) {
            struct kernel_variant variant = kernel_variant_at(v);
            for (size_t k = 0; kernel_has(&kernel_cases[i], &variant) && k < sizeof shapes / sizeof *shapes;
                 k++)
                check_company(&kernel_cases[i], &variant, shapes[k], 4 + v);
        }
}

/* Other rows that meet the same vectors: what the first call made of them serves, with the same bits. */
static void vectors_are_laid_out_once(void **state)
{
    static const struct kernel_shape shapes[] = {{192, 32, 16}, {1024, 19, 31}, {96, 7, 12}, {64, 5, 3}};
    const struct kernel_case *product = NULL;
    (void)state;
    for (size_t i = 0; i < kernel_case_count; i++)
        if (strcmp(kernel_cases[i].name, "bf16_bf16") == 0)
            product = &kernel_cases[i];
    assert_non_null(product);
    for (size_t v = 0; v < kernel_variant_count(); v++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            struct kernel_variant variant = kernel_variant_at(v);
            struct kernel_run run;
            size_t n = shapes[k].n, n_left = shapes[k].n_rows - 1;
            kernel_prepare(&run, product, shapes[k], v);
            struct gs_bf16_rows rest = {run.bf16_rows.data + 2 * n};
            float *out = (float *)(void *)run.out, *whole = malloc(run.out_size);
            assert_non_null(whole);
            kernel_call(&run, &variant);
            memcpy(whole, out, run.out_size);
            variant.fast->bf16_bf16(&rest, n_left, n, run.bf16, shapes[k].n_x, run.work, out, run.stride,
                                    true);
            for (size_t t = 0; t < shapes[k].n_x; t++)
                assert_memory_equal(out + t * run.stride, whole + t * run.stride + 1, n_left * sizeof *out);
            free(whole);
            kernel_release(&run);
        }
}

/* Bias, activation and quantising in one are what they are one after the other. */
static void activation_is_its_parts(void **state)
{
    enum { N_X = 3, BLOCK = 5 };
    (void)state;
    float gate_up[N_X][64], bias[64], units[32];
    for (int i = 0; i < 64; i++) {
        bias[i] = sinf((float)i);
        for (int t = 0; t < N_X; t++)
            gate_up[t][i] = 9.0f * cosf((float)(i * 7 + t));
    }
    for (size_t v = 0; v < gs_fast_kernels_count(); v++)
        for (enum gs_q8_order order = GS_Q8_PAIRS; order <= GS_Q8_HALVES; order++) {
            const struct gs_fast_kernels *kernels = gs_fast_kernels_at(v);
            struct gs_activation how = {7.0f, 1.702f, order, BLOCK};
            struct gs_q8_chunk out[N_X][2] = {0}, alone;
            float sums[N_X][64];
            kernels->activate_q8(&how, gate_up[0], bias, N_X, out[0], 2);
            memcpy(sums, gate_up, sizeof sums);
            kernels->add_bias(sums[0], 64, N_X, bias, 64);
            for (int t = 0; t < N_X; t++) {
                for (int i = 0; i < 64; i++)
                    assert_true(sums[t][i] == gate_up[t][i] + bias[i]);
                kernels->swiglu(sums[t], 32, how.limit, how.alpha, units);
                kernels->quantize_q8(units, 32, order, &alone);
                const struct gs_q8_chunk *chunk = &out[t][1];
                assert_memory_equal(chunk->q + 16, alone.q, 16);
                assert_memory_equal(chunk->q + 80, alone.q + 64, 16);
                assert_memory_equal(chunk->scale + 4, alone.scale, 16);
                assert_memory_equal(chunk->sum + 4, alone.sum, 16);
                assert_true(chunk->scale[0] == 0.0f && chunk->q[0] == 0 && out[t][0].sum[3] == 0);
            }
        }
}

/* The comparison notices one wrong element, a write between rows and a number that is none. */
static void the_comparison_notices(void **state)
{
    (void)state;
    struct kernel_run run;
    struct kernel_variant generic = kernel_variant_at(0);
    const struct kernel_case *product = NULL;
    for (size_t i = 0; i < kernel_case_count; i++)
        if (strcmp(kernel_cases[i].name, "mxfp4_q8") == 0)
            product = &kernel_cases[i];
    assert_non_null(product);
    uint64_t seed = 0;
    do { /* until the output has gaps */
        kernel_prepare(&run, product, (struct kernel_shape){2880, 32, 3}, seed++);
        if (run.stride == 32)
            kernel_release(&run);
    } while (run.n_buffers == 0);
    float *copy = malloc(run.out_size), *out = (float *)(void *)run.out;
    assert_non_null(copy);
    kernel_call(&run, &generic);
    memcpy(copy, out, run.out_size);
    assert_true(kernel_difference(&run, (unsigned char *)copy, run.out) == 0.0);
    out[5] += 1e-3f * fabsf(out[5]) + 1e-3f;
    assert_true(kernel_difference(&run, (unsigned char *)copy, run.out) > 1.0);
    out[5] = NAN;
    assert_true(kernel_difference(&run, (unsigned char *)copy, run.out) > 1.0);
    out[5] = copy[5];
    out[run.stride - 1] = 0.0f;
    assert_true(kernel_difference(&run, (unsigned char *)copy, run.out) > 1.0);
    free(copy);
    kernel_release(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_variant_is_the_generic_one),
        cmocka_unit_test(vectors_do_not_depend_on_their_company),
        cmocka_unit_test(vectors_are_laid_out_once),
        cmocka_unit_test(activation_is_its_parts),
        cmocka_unit_test(the_comparison_notices),
    };
    return cmocka_run_group_tests_name("kernels/variants", tests, NULL, NULL);
}
