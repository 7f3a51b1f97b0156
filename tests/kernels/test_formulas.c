/*
 * The generic variant of each kernel against its formula in double precision, written here from the headers:
 * where a processor has one variant alone (aarch64's uses NEON), this is what it is checked with.
 */
#include "model/mxfp4.h"
#include "tests/support/check.h"
#include "tests/support/kernel_cases.h"

#include <math.h>
#include <stdlib.h>

/* Of the output's root mean square. */
#define TOLERANCE           1e-4 /* float32 sums of some thousands of terms */
#define ATTENTION_TOLERANCE 5e-3 /* probabilities are rounded to bfloat16: by 2^-9 at most */
#define MAX_N               2880

static double bf16_value(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return (double)value;
}

static double f16_value(uint16_t bits)
{
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double size = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
    return bits & 0x8000 ? -size : size;
}

/* Element i of a row of activations. */
static double q8_value(const struct gs_q8_chunk *chunks, size_t i, enum gs_q8_order order)
{
    const struct gs_q8_chunk *chunk = &chunks[i / GS_Q8_CHUNK];
    size_t block = i % GS_Q8_CHUNK / 32, at = i % 32;
    size_t half = order == GS_Q8_PAIRS ? at % 2 : at / 16, place = order == GS_Q8_PAIRS ? at / 2 : at % 16;
    return (double)chunk->q[half * 64 + block * 16 + place] * (double)chunk->scale[block * 4];
}

static void read_row(const struct kernel_run *run, size_t r, double *row)
{
    static float values[MAX_N];
    size_t n = run->shape.n;
    if (run->mxfp4[r].blocks && run->mxfp4[r].scales)
        gs_mxfp4_dequantize(run->mxfp4[r].blocks, run->mxfp4[r].scales, (int64_t)n, values);
    else if (run->mxfp4[r].blocks)
        gs_mxfp4_dequantize_gguf(run->mxfp4[r].blocks, (int64_t)n, values);
    for (size_t i = 0; i < n; i++) {
        const uint8_t *block = run->q8_0[r].blocks ? run->q8_0[r].blocks + i / 32 * 34 : NULL;
        uint16_t bits = 0;
        if (run->bf16_rows.data)
            memcpy(&bits, run->bf16_rows.data + (r * n + i) * 2, sizeof bits);
        row[i] = run->mxfp4[r].blocks ? (double)values[i]
                 : block ? f16_value((uint16_t)(block[0] | block[1] << 8)) * (int8_t)block[2 + i % 32]
                         : bf16_value(bits);
    }
}

static void expect_product(const struct kernel_run *run, double *out)
{
    static double row[MAX_N];
    enum gs_q8_order order = run->mxfp4[0].scales ? GS_Q8_PAIRS : GS_Q8_HALVES;
    for (size_t r = 0; r < run->shape.n_rows; r++) {
        read_row(run, r, row);
        for (size_t t = 0; t < run->shape.n_x; t++) {
            double sum = 0.0;
            for (size_t i = 0; i < run->shape.n; i++)
                sum += row[i] * (run->q8[t] ? q8_value(run->q8[t], i, order) : bf16_value(run->bf16[t][i]));
            out[t * run->stride + r] = sum;
        }
    }
}

/* To nearest even, as the kernels round the query. */
static double rounded_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bf16_value((uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16));
}

static void expect_attention(const struct kernel_run *run, double *out)
{
    const struct gs_fast_attention *a = &run->attention;
    for (int64_t h = 0; h < a->n_head; h++) {
        double sum = 1.0, largest = (double)a->sinks[h], *row = out + h * a->d_head;
        memset(row, 0, (size_t)a->d_head * sizeof *row);
        for (int64_t p = a->first; p <= a->last; p++) {
            int64_t slot = p % a->n_slot;
            double score = 0.0;
            for (int64_t j = 0; j < a->d_head; j++)
                score +=
                    rounded_to_bf16(a->query[h * a->d_head + j]) *
                    bf16_value(a->keys[(slot / 16 * (a->d_head / 2) + j / 2) * 32 + slot % 16 * 2 + j % 2]);
            score *= (double)a->scale;
            double next = score > largest ? score : largest, shrink = exp(largest - next),
                   w = exp(score - next);
            sum = sum * shrink + w;
            for (int64_t j = 0; j < a->d_head; j++)
                row[j] =
                    row[j] * shrink + w * bf16_value(a->values[(slot / 2 * a->d_head + j) * 2 + slot % 2]);
            largest = next;
        }
        for (int64_t j = 0; j < a->d_head; j++)
            row[j] /= sum;
    }
}

static void expect_norm(const struct kernel_run *run, double *out)
{
    double squares = 0.0;
    for (size_t i = 0; i < run->shape.n; i++)
        squares += (double)run->x[0][i] * (double)run->x[0][i];
    for (size_t i = 0; i < run->shape.n; i++)
        out[i] = (double)run->w[i] * (double)run->x[0][i] / sqrt(squares / (double)run->shape.n + 1e-5);
}

static void expect_swiglu(const struct kernel_run *run, double *out)
{
    for (size_t i = 0; i < run->shape.n; i++) {
        double gate = fmin((double)run->x[0][2 * i], 7.0);
        double up = fmax(-7.0, fmin((double)run->x[0][2 * i + 1], 7.0));
        out[i] = (up + 1.0) * gate / (1.0 + exp(-1.702 * gate));
    }
}

static void check(const struct kernel_run *run, const double *expected, double tolerance)
{
    const float *found = (const float *)(const void *)run->out;
    size_t n = run->out_size / sizeof *found, n_checked = 0;
    double squares = 0.0, worst = 0.0;
    for (size_t i = 0; i < n; i++) {
        if (run->stride > 0 && i % run->stride >= run->shape.n_rows)
            continue;
        double difference = fabs((double)found[i] - expected[i]);
        worst = difference <= worst ? worst : difference;
        squares += expected[i] * expected[i];
        n_checked++;
    }
    double allowed = tolerance * sqrt(squares / (double)n_checked) + 1e-30;
    if (!(worst <= allowed))
        fail_msg("%s: n %zu, rows %zu, vectors %zu: %g from the formula, %g are allowed", run->kernel->name,
                 run->shape.n, run->shape.n_rows, run->shape.n_x, worst, allowed);
}

typedef void expect_fn(const struct kernel_run *run, double *out);

static void check_kernel(const char *name, expect_fn *expect, size_t n, size_t n_rows, size_t n_x)
{
    struct kernel_variant generic = kernel_variant_at(0);
    struct kernel_run run;
    for (size_t i = 0; i < kernel_case_count; i++) {
        if (strcmp(kernel_cases[i].name, name) != 0)
            continue;
        kernel_prepare(&run, &kernel_cases[i], (struct kernel_shape){n, n_rows, n_x}, n + n_x);
        double *expected = calloc(run.out_size / sizeof(float), sizeof *expected);
        assert_non_null(expected);
        kernel_call(&run, &generic);
        expect(&run, expected);
        check(&run, expected, expect == expect_attention ? ATTENTION_TOLERANCE : TOLERANCE);
        free(expected);
        kernel_release(&run);
        return;
    }
    fail_msg("no case \"%s\"", name);
}

static void products(void **state)
{
    (void)state;
    static const char *const names[] = {"mxfp4_q8", "mxfp4_q8, GGUF", "q8_0_q8", "bf16_bf16"};
    static const size_t shapes[][3] = {{32, 1, 1}, {96, 5, 3}, {160, 32, 2}, {2880, 7, 1}, {288, 32, 19}};
    for (size_t k = 0; k < 4; k++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            check_kernel(names[k], expect_product, shapes[i][0], shapes[i][1], shapes[i][2]);
}

static void attention(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {{2, 1, 1}, {24, 2, 5}, {64, 8, 64}, {64, 8, 129}, {128, 3, 500}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_kernel("attend", expect_attention, shapes[i][0], shapes[i][1], shapes[i][2]);
}

/* What spans were asked for, and their merge. */
struct span_log {
    int64_t next; /* position */
    int64_t n_spans, n_merged;
};

static void log_span(const struct gs_fast_attention *part)
{
    struct span_log *log = part->work;
    assert_int_equal(part->first, log->next);
    assert_true(part->last >= part->first);
    log->next = part->last + 1;
    log->n_spans++;
}

static void log_merge(const struct gs_fast_attention *whole, int64_t n_spans)
{
    ((struct span_log *)whole->work)->n_merged = n_spans;
}

/* Each position in one span, in order; few spans however long the context. */
static void spans_cover_every_position(void **state)
{
    (void)state;
    static const int64_t lasts[] = {0, 1, 511, 512, 4095, 8191, 8192, 16384, 131071, 1000000};
    struct gs_fast_kernels kernels = {.attend = log_span, .merge_spans = log_merge};
    for (size_t i = 0; i < sizeof lasts / sizeof *lasts; i++)
        for (int window = 0; window < 2; window++) {
            int64_t last = lasts[i], first = window && last > 127 ? last - 127 : 0;
            struct span_log log = {.next = first};
            struct gs_fast_attention whole = {
                .first = first, .last = last, .n_head = 8, .d_head = 64, .work = &log};
            gs_fast_attend(&kernels, &whole);
            assert_int_equal(log.next, last + 1);
            assert_int_equal(log.n_spans, gs_fast_span_count(first, last));
            assert_int_equal(log.n_merged, log.n_spans);
            assert_true(log.n_spans <= (window ? 2 : GS_FAST_SPANS));
            assert_true(window || last < 8191 || log.n_spans > GS_FAST_SPANS / 2);
        }
}

static void vectors(void **state)
{
    (void)state;
    for (size_t n = 1; n < 80; n += 13) {
        check_kernel("rms_norm", expect_norm, n, 1, 1);
        check_kernel("swiglu", expect_swiglu, n, 1, 1);
    }
    check_kernel("rms_norm", expect_norm, 2880, 1, 1);
    check_kernel("swiglu", expect_swiglu, 2880, 1, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),
        cmocka_unit_test(attention),
        cmocka_unit_test(vectors),
        cmocka_unit_test(spans_cover_every_position),
    };
    return cmocka_run_group_tests_name("kernels/formulas", tests, NULL, NULL);
}
