/*
 * The Metal backend, host and kernels together, on the simulator: models against the exact CPU backend, and
 * the contract of backend.h. Linked with a library.o that opens the stand-in in Metal's place.
 */
#include "backend/metal/backend.h"
#include "backend/metal/measure.h"
#include "engine/sample.h"
#include "engine/verify.h"
#include "tests/metal_sim/around.h"
#include "tests/support/files.h"
#include "tests/support/pair.h"
#include "tests/support/tiny_gguf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define N_TOKENS 40
#define CAPACITY 400
#define DEMO     "models/demo"
/* Under a sanitizer one: the host makes the same calls, and kernels are not built with it. */
#if defined(__SANITIZE_ADDRESS__)
#define N_PIECES 1
#else
#define N_PIECES 3
#endif

static const struct gs_backend *const metal = &gs_backend_metal;

static const struct gs_device_options exact = {.precision = GS_PRECISION_EXACT};
static const struct gs_device_options fast = {.precision = GS_PRECISION_FAST};

/* Two layers are enough, and the simulator is slow. */
static struct pair open_pair(enum pair_shape shape, const struct gs_device_options *device)
{
    struct tiny_options options = pair_options(shape, 2);
    return pair_open(&options, metal, device);
}

/* ---------------------------------------------------------------- a model on both */

static void logits_are_the_cpus(void **state)
{
    (void)state;
    need_simulator();
    static const enum pair_shape shapes[] = {PAIR_DEFAULT, PAIR_FLOAT32, PAIR_FLOAT16, PAIR_ODD_HEADS,
                                             PAIR_NO_CHOICE_SMALL};
    for (unsigned s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        int32_t tokens[N_TOKENS];
        pair_tokens(tokens, N_TOKENS, 7 + s);
        struct pair pair = open_pair(shapes[s], &exact);
        float *expected = pair_logits(&pair.cpu, CAPACITY, tokens, N_TOKENS, 256), *whole = NULL;
        static const size_t pieces[] = {3, N_TOKENS, 1};
        for (size_t i = 0; i < N_PIECES; i++) {
            char what[60];
            snprintf(what, sizeof what, "%s, %zu at a time", pair_shape_name(shapes[s]), pieces[i]);
            float *found = pair_logits(&pair.other, CAPACITY, tokens, N_TOKENS, pieces[i]);
            assert_near(expected, found, N_TOKENS, 1.0 - 1e-9, 1e-4, what);
            if (whole)
                assert_same_bits(whole, found, N_TOKENS * PAIR_VOCAB, what);
            free(i == 0 ? NULL : found);
            whole = i == 0 ? found : whole;
        }
        free(whole);
        free(expected);
        pair_close(&pair);
    }
}

/* The tile kernels, those of decoding, those for few rows, and matrices in 8 bits. */
static void fast_is_near(void **state)
{
    (void)state;
    need_simulator();
    struct gs_device_options q8 = fast;
    int32_t tokens[N_TOKENS];
    q8.weights = GS_WEIGHTS_Q8;
    pair_tokens(tokens, N_TOKENS, 3);
    for (int kind = 0; kind < 2; kind++) {
        struct pair pair = open_pair(PAIR_NO_CHOICE_SMALL, kind == 0 ? &fast : &q8);
        float *expected = pair_logits(&pair.cpu, CAPACITY, tokens, N_TOKENS, 256);
        static const size_t pieces[] = {N_TOKENS, 1, 18, 5};
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
            char what[60];
            snprintf(what, sizeof what, "fast%s, %zu at a time", kind == 0 ? "" : ", q8", pieces[i]);
            float *found = pair_logits(&pair.other, CAPACITY, tokens, N_TOKENS, pieces[i]);
            assert_near(expected, found, N_TOKENS, 0.999, 0.05, what);
            free(found);
        }
        free(expected);
        pair_close(&pair);
    }
}

/* Neither the way of decoding nor how weights are loaded changes a bit. */
static void levers_keep_the_numbers(void **state)
{
    (void)state;
    need_simulator();
    enum { N = 12 };
    static const struct gs_levers kinds[] = {
        {GS_DECODE_FUSED, 0, false},  {GS_DECODE_LEGACY, 0, false}, {GS_DECODE_FUSED, 0, true},
        {GS_DECODE_SERIAL, 0, false}, {GS_DECODE_STAGED, 0, false}, {GS_DECODE_FUSED, 1, false},
        {GS_DECODE_FUSED, 2, false},
    };
    int32_t tokens[N];
    pair_tokens(tokens, N, 29);
    float *first = NULL;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct gs_device_options device = {.levers = kinds[k]};
        struct pair pair = open_pair(PAIR_DEFAULT, &device);
        float *found = pair_logits(&pair.other, CAPACITY, tokens, N, 1);
        if (first && kinds[k].simdgroups == 0)
            assert_same_bits(first, found, N * PAIR_VOCAB, "lever");
        else if (first) /* sums may have another order */
            assert_near(first, found, N, 1.0 - 1e-9, 1e-5, kinds[k].simdgroups == 1 ? "1 a row" : "2 a row");
        free(k == 0 ? NULL : found);
        first = k == 0 ? found : first;
        pair_close(&pair);
    }
    free(first);
}

/* Tokens chosen on the device, without the host between, are those that the host would have chosen. */
static void chains_are_greedy_steps(void **state)
{
    (void)state;
    need_simulator();
    enum { N = 9, BEFORE = 3 };
    int32_t tokens[BEFORE], chosen[N];
    float found[PAIR_VOCAB], expected[PAIR_VOCAB];
    struct gs_error error;
    pair_tokens(tokens, BEFORE, 31);
    for (int precision = 0; precision < 2; precision++) {
        struct pair pair = open_pair(PAIR_DEFAULT, precision == 0 ? &exact : &fast);
        const struct loaded *l = &pair.other;
        struct gs_kv *kv = loaded_kv(l, CAPACITY), *other = loaded_kv(l, CAPACITY);
        loaded_run(l, kv, tokens, BEFORE, BEFORE, NULL);
        loaded_run(l, other, tokens, BEFORE, BEFORE, NULL);
        assert_ok(metal->chain(l->device, kv, 5, NULL, chosen, N, &error), &error);
        assert_int_equal(metal->kv_length(kv), BEFORE + N);
        memcpy(found, metal->logits(l->device, 0), sizeof found);
        int32_t next = 5;
        for (size_t i = 0; i < N; i++) {
            loaded_run(l, other, &next, 1, 1, expected);
            next = pair_argmax(expected);
            assert_int_equal(chosen[i], next);
        }
        assert_same_bits(expected, found, PAIR_VOCAB, "the last logits of a chain");
        assert_fails(metal->chain(l->device, kv, PAIR_VOCAB, NULL, chosen, 2, &error), GS_INVALID_ARGUMENT,
                     "token id", &error);
        assert_fails(metal->chain(l->device, kv, 1, NULL, chosen, 257, &error), GS_INVALID_ARGUMENT,
                     "must be 1 to", &error);
        metal->kv_free(kv);
        metal->kv_free(other);
        pair_close(&pair);
    }
}

/* Rows that want a token beside rows that want logits, the logits of which are there all the same. */
static void tokens_are_chosen_beside_logits(void **state)
{
    (void)state;
    need_simulator();
    enum { N = 5 };
    struct pair pair = open_pair(PAIR_DEFAULT, &exact);
    const struct loaded *l = &pair.other;
    struct gs_kv *kv[N];
    struct gs_step steps[N];
    int32_t tokens[N];
    struct gs_error error;
    pair_tokens(tokens, N, 23);
    for (size_t i = 0; i < N; i++) {
        kv[i] = loaded_kv(l, CAPACITY);
        steps[i] = (struct gs_step){kv[i], &tokens[i], 1, i % 2 ? GS_WANT_LAST : GS_WANT_TOKEN, NULL};
    }
    assert_ok(metal->forward(l->device, steps, N, NULL, &error), &error);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(metal->chosen(l->device, i), i % 2 ? -1 : pair_argmax(metal->logits(l->device, i)));
    assert_int_equal(metal->chosen(l->device, N), -1);
    assert_ok(metal->chain(l->device, kv[0], 1, NULL, tokens, 1, &error), &error);
    assert_int_equal(metal->chosen(l->device, 0), -1);
    for (size_t i = 0; i < N; i++)
        metal->kv_free(kv[i]);
    pair_close(&pair);
}

/* Tokens that the device draws, in a chain and beside rows of other wishes, are the sampler's, or none. */
static void drawn_tokens_are_the_samplers(void **state)
{
    (void)state;
    need_simulator();
    enum { N = 16, BEFORE = 3 };
    struct pair pair = open_pair(PAIR_DEFAULT, &exact);
    const struct loaded *l = &pair.other;
    struct gs_sampler *ahead = pair_sampler(1.5f, PAIR_VOCAB, 11), *same = pair_sampler(1.5f, PAIR_VOCAB, 11);
    struct gs_kv *kv[4];
    struct gs_draw draws[N], cold = {0.5, 1e-37f};
    struct gs_error error;
    int32_t tokens[BEFORE], chain[N], token = 9;
    size_t n_told = 0;
    pair_tokens(tokens, BEFORE, 6);
    for (size_t i = 0; i < 4; i++) {
        kv[i] = loaded_kv(l, CAPACITY);
        loaded_run(l, kv[i], tokens, BEFORE, BEFORE, NULL);
    }
    for (size_t i = 0; i < N; i++)
        draws[i] = gs_sampler_ahead(ahead, i);
    assert_ok(metal->chain(l->device, kv[0], token, draws, chain, N, &error), &error);
    while (n_told < N && chain[n_told] >= 0)
        n_told++;
    print_message("%zu of %d tokens of a chain are drawn\n", n_told, N);
    assert_true(n_told > 0);
    for (size_t i = 0; i < n_told; i++) {
        const struct gs_step steps[] = {{kv[1], &token, 1, GS_WANT_TOKEN, NULL},
                                        {kv[2], &token, 1, GS_WANT_TOKEN, i % 2 ? &cold : &draws[i]},
                                        {kv[3], &token, 1, GS_WANT_LAST, &draws[i]}};
        int32_t expected;
        assert_ok(metal->forward(l->device, steps, 3, NULL, &error), &error);
        const float *logits = metal->logits(l->device, 2);
        assert_ok(gs_sampler_draw(same, logits, NULL, 0, &expected, &error), &error);
        assert_int_equal(metal->chosen(l->device, 0), pair_argmax(logits));
        assert_int_equal(metal->chosen(l->device, 1), i % 2 ? -1 : expected);
        assert_int_equal(metal->chosen(l->device, 2), -1);
        assert_int_equal(chain[i], expected);
        token = expected;
    }
    for (size_t i = 0; i < 4; i++)
        metal->kv_free(kv[i]);
    gs_sampler_close(ahead);
    gs_sampler_close(same);
    pair_close(&pair);
}

/* ---------------------------------------------------------------- the contract */

static void a_batch_changes_nothing(void **state)
{
    (void)state;
    need_simulator();
    /* few rows share their keys between threadgroups */
    const struct pair_batch batch = {.n_row = 6, .first = 1, .apart = 5, .n_step = 3, .n_last = 2};
    struct pair pair = open_pair(PAIR_DEFAULT, &exact);
    check_batch(&pair.other, &batch, 11);
    pair_close(&pair);
}

/*
 * Few rows of several timelines: near to what each gives alone, by the kernels of decoding; and the same bits
 * in any company of few.
 */
static void few_rows_do_not_see_each_other(void **state)
{
    (void)state;
    need_simulator();
    enum { N = 7, FEW = 2, ALONE = 0, TOGETHER = 1, FEWER = 2, WAYS };
    struct pair pair = open_pair(PAIR_NO_CHOICE_SMALL, &fast);
    const struct loaded *l = &pair.other;
    struct gs_kv *kv[WAYS][N];
    struct gs_step steps[WAYS][N];
    struct gs_error error;
    int32_t tokens[N + 20];
    float alone[N * PAIR_VOCAB], together[N * PAIR_VOCAB];
    pair_tokens(tokens, N + 20, 43);
    for (int way = 0; way < WAYS; way++)
        for (size_t i = 0; i < N; i++) {
            kv[way][i] = loaded_kv(l, CAPACITY);
            steps[way][i] = (struct gs_step){
                .kv = kv[way][i], .tokens = tokens + 19 + i, .n_tokens = 1, .want = GS_WANT_LAST};
            if (way == 0)
                loaded_run(l, kv[way][i], tokens, 1 + 3 * i, 1, NULL);
            else
                assert_ok(metal->kv_copy(kv[way][i], kv[0][i], &error), &error);
        }
    for (size_t i = 0; i < N; i++) {
        assert_ok(metal->forward(l->device, &steps[ALONE][i], 1, NULL, &error), &error);
        memcpy(alone + i * PAIR_VOCAB, metal->logits(l->device, 0), PAIR_VOCAB * sizeof *alone);
    }
    assert_ok(metal->forward(l->device, steps[TOGETHER], N, NULL, &error), &error);
    for (size_t i = 0; i < N; i++)
        memcpy(together + i * PAIR_VOCAB, metal->logits(l->device, i), PAIR_VOCAB * sizeof *together);
    assert_ok(metal->forward(l->device, steps[FEWER] + N - FEW, FEW, NULL, &error), &error);
    for (size_t i = 0; i < FEW; i++)
        assert_same_bits(together + (N - FEW + i) * PAIR_VOCAB, metal->logits(l->device, i), PAIR_VOCAB,
                         "a row in other company");
    assert_near(alone, together, N, 0.99999, 0.01, "seven rows at once");
    assert_memory_not_equal(alone, together, sizeof alone); /* other kernels, other roundings */
    for (int way = 0; way < WAYS; way++)
        for (size_t i = 0; i < N; i++)
            metal->kv_free(kv[way][i]);
    pair_close(&pair);
}

static void caches_are_kept_moved_and_cut(void **state)
{
    (void)state;
    need_simulator();
    for (int precision = 0; precision < 2; precision++) {
        struct pair pair = open_pair(PAIR_DEFAULT, precision == 0 ? &exact : &fast);
        check_keys_and_values(&pair.other, CAPACITY, 30, 20, 17);
        pair_close(&pair);
    }
}

/* Every element of every expert, by the kernels' arithmetic, bit for bit. */
static void mxfp4_is_the_cpus_to_the_bit(void **state)
{
    (void)state;
    need_simulator();
    for (int scalar = 0; scalar < 2; scalar++) {
        struct gs_device_options device = {.levers = {.scalar_load = scalar != 0}};
        struct pair pair = open_pair(PAIR_ODD_HEADS, &device);
        check_experts(&pair, &pair.cpu.weights->layers[1].gate_up, 13);
        pair_close(&pair);
    }
}

/* What bench --kernel runs: the sum over the experts that the scalar code makes of their dequantised rows. */
static void single_experts_are_measured(void **state)
{
    (void)state;
    need_simulator();
    enum { N = 3 };
    struct tiny_options options = pair_options(PAIR_DEFAULT, 2);
    struct tiny_model *model = tiny_model_make(&options);
    struct loaded cpu = loaded_open(model, 1);
    const struct gs_mxfp4_matrix *down = &cpu.weights->layers[1].down;
    int64_t rows = down->rows, columns = down->columns, groups = columns / GS_MXFP4_GROUP;
    struct gs_mxfp4_matrix experts[N];
    struct gs_metal_measure *measure = NULL;
    struct gs_levers levers = {0};
    struct gs_error error;
    const float *in[N];
    float vectors[N][256], row[256], expected[256] = {0};
    double seconds = -1.0;
    assert_true(columns <= 256 && rows <= 256);
    for (int e = 0; e < N; e++) {
        experts[e] = *down;
        experts[e].n_expert = 1;
        experts[e].blocks += e * rows * groups * GS_MXFP4_GROUP_BYTES;
        experts[e].scales += e * rows * groups;
        in[e] = vectors[e];
        for (int64_t i = 0; i < columns; i++)
            vectors[e][i] = (float)((i * 7 + e * 3) % 11 - 5) / 4.0f;
        for (int64_t r = 0; r < rows; r++) {
            gs_mxfp4_dequantize(experts[e].blocks + r * groups * GS_MXFP4_GROUP_BYTES,
                                experts[e].scales + r * groups, columns, row);
            for (int64_t i = 0; i < columns; i++)
                expected[r] += row[i] * vectors[e][i];
        }
    }
    assert_ok(gs_metal_measure_open(experts, N, false, in, &levers, &measure, &error), &error);
    assert_ok(gs_metal_measure_product(measure, N, &seconds, &error), &error);
    assert_true(seconds >= 0.0);
    const float *found = gs_metal_measure_result(measure);
    for (int64_t r = 0; r < rows; r++)
        assert_true(fabsf(found[r] - expected[r]) <= 1e-4f * (1.0f + fabsf(expected[r])));
    gs_metal_measure_close(measure);
    assert_fails(gs_metal_measure_open(experts, 17, false, in, &levers, &measure, &error),
                 GS_INVALID_ARGUMENT, "1 to 16", &error);
    assert_ok(gs_metal_measure_open(&cpu.weights->layers[1].gate_up, 1, true, in, &levers, &measure, &error),
              &error);
    assert_ok(gs_metal_measure_product(measure, 1, &seconds, &error), &error);
    assert_true(isfinite(gs_metal_measure_result(measure)[0]));
    gs_metal_measure_close(measure);
    loaded_close(&cpu);
    tiny_model_free(model);
}

/* GGUF's blocks, and its matrices in 8 bits, in the form that the kernels read. */
static void a_gguf_is_the_cpus(void **state)
{
    (void)state;
    need_simulator();
    struct tiny_options options = pair_options(PAIR_DEFAULT, 2);
    struct tiny_gguf_options gguf = {.dense = GS_DTYPE_Q8_0};
    struct tiny_model *model = tiny_model_make(&options);
    struct loaded cpu = {.folder = test_folder_make()};
    struct gs_error error;
    int32_t tokens[6];
    char path[300];
    pair_tokens(tokens, 6, 41);
    tiny_gguf_write(model, &gguf, cpu.folder, "tiny");
    snprintf(path, sizeof path, "%s/tiny.gguf", cpu.folder);
    assert_ok(gs_checkpoint_open(path, &cpu.checkpoint, &error), &error);
    assert_ok(gs_weights_bind(cpu.checkpoint, NULL, NULL, &cpu.weights, &error), &error);
    struct loaded reference = loaded_open(model, 1);
    cpu.backend = reference.backend;
    assert_ok(cpu.backend->open(&exact, &cpu.device, &error), &error);
    assert_ok(cpu.backend->load(cpu.device, cpu.weights, NULL, NULL, &error), &error);
    struct pair pair = pair_make(cpu, metal, &exact);
    float *expected = pair_logits(&pair.cpu, CAPACITY, tokens, 6, 6),
          *found = pair_logits(&pair.other, CAPACITY, tokens, 6, 6);
    assert_near(expected, found, 6, 1.0 - 1e-9, 1e-4, "GGUF");
    free(expected);
    free(found);
    pair_close(&pair);
    loaded_close(&reference);
    tiny_model_free(model);
}

/* ---------------------------------------------------------------- the demo model */

static void print_failures(const struct gs_verify_report *report)
{
    for (size_t i = 0; i < report->count; i++)
        if (!report->checks[i].pass)
            print_message("  %s, %s: %g, limit %g\n", report->checks[i].component, report->checks[i].measure,
                          report->checks[i].measured, report->checks[i].limit);
}

/* Under a sanitizer these take minutes, and run nothing of the host that the others do not. */
static void skip_when_slow(void)
{
#if defined(__SANITIZE_ADDRESS__)
    print_message("  not under a sanitizer: skipped\n");
    skip();
#endif
}

/* What gossamer verify says of it: the bars of the table, component by component, against transformers. */
static void the_demo_model_passes_verify(void **state)
{
    (void)state;
    skip_when_slow();
    need_simulator();
    struct gs_verify_report report;
    struct gs_error error;
    struct gs_verify_options options = {
        .golden = DEMO "/golden.safetensors", .backend = "metal", .n_tokens = 32, .n_threads = 2};
    assert_ok(gs_verify(DEMO, &options, &report, &error), &error);
    print_failures(&report);
    print_message("verify: %zu checks, %zu failed, %.1f s\n", report.count, report.n_failed, report.seconds);
    assert_true(report.count > 20);
    assert_int_equal(report.n_failed, 0);
    gs_verify_report_free(&report);
}

/* And that it would notice. */
static void a_control_fails_it(void **state)
{
    (void)state;
    skip_when_slow();
    need_simulator();
    struct gs_verify_report report;
    struct gs_error error;
    struct gs_verify_options options = {.golden = DEMO "/golden.safetensors",
                                        .backend = "metal",
                                        .control = GS_CONTROL_SINKS,
                                        .n_tokens = 8,
                                        .n_threads = 2};
    assert_ok(gs_verify(DEMO, &options, &report, &error), &error);
    assert_true(report.n_failed > 0);
    gs_verify_report_free(&report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_the_cpus),
        cmocka_unit_test(fast_is_near),
        cmocka_unit_test(levers_keep_the_numbers),
        cmocka_unit_test(chains_are_greedy_steps),
        cmocka_unit_test(tokens_are_chosen_beside_logits),
        cmocka_unit_test(drawn_tokens_are_the_samplers),
        cmocka_unit_test(a_batch_changes_nothing),
        cmocka_unit_test(few_rows_do_not_see_each_other),
        cmocka_unit_test(caches_are_kept_moved_and_cut),
        cmocka_unit_test(mxfp4_is_the_cpus_to_the_bit),
        cmocka_unit_test(single_experts_are_measured),
        cmocka_unit_test(a_gguf_is_the_cpus),
        cmocka_unit_test(the_demo_model_passes_verify),
        cmocka_unit_test(a_control_fails_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
