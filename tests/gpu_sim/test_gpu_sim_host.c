/*
 * The HIP backend whole, over a library in libamdhip64.so's place (hip.c) whose devices run the kernels on
 * this processor: models against the exact CPU backend with waves of 64 and of 32 lanes, every call of the
 * library failing in turn, and what is said where something is missing.
 */
#include "backend/hip/hip.h"
#include "backend/hip/modules.h"
#include "backend/registry.h"
#include "engine/sample.h"
#include "tests/gpu_sim/stand_in.h"
#include "tests/support/check.h"
#include "tests/support/pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#define N_TOKENS 45 /* past the window and the edge of a block of keys that a ring has */
#define CAPACITY 80

enum { LANES_64, LANES_32, LANES_UNKNOWN }; /* the stand-in's devices */

static char folder[1024]; /* of this program, and of the stand-in */
static struct hip_sim_control *control;

static int open_stand_in(void **state)
{
    int status;
    (void)state;
    control = stand_in_open(folder, sizeof folder, &status);
    return status;
}

/* As a new process would find it. */
static void reset(unsigned long fail_at, int code)
{
    if (!control)
        skip();
    *control =
        (struct hip_sim_control){.fail_at = fail_at, .fail_code = code, .n_device = 3, .memory = 4ull << 30};
    stand_in_kinds(control->kinds);
}

/* Nothing was used wrongly, and all was given back. */
static void assert_clean(void)
{
    assert_string_equal(control->misuse, "");
    assert_int_equal(control->n_held, 0);
}

static const struct gs_backend *const hip = &gs_backend_hip;

static struct pair open_pair(const struct tiny_options *options, int index, enum gs_precision precision)
{
    struct gs_device_options device = {.precision = precision, .index = index};
    return pair_open(options, hip, &device);
}

static void close_pair(struct pair *pair)
{
    pair_close(pair);
    assert_clean();
}

/* ---------------------------------------------------------------- models */

static struct tiny_options small(int64_t d_model, int64_t d_head, int64_t n_head, int64_t n_kv_head)
{
    struct tiny_options options = tiny_options_default();
    options.n_layer = 2;
    options.n_vocab = PAIR_VOCAB;
    options.d_model = d_model;
    options.d_head = d_head;
    options.n_head = n_head;
    options.n_kv_head = n_kv_head;
    options.d_ff = 64;
    options.window = 16;
    return options;
}

/* Exact precision: near the CPU's, and the same bits in any cut, in any order of lanes, however sums are
 * made. */
static void logits_are_the_cpus(void **state)
{
    (void)state;
    struct tiny_options shapes[] = {small(64, 16, 4, 2), small(96, 10, 3, 1)};
    shapes[1].dense = GS_DTYPE_F16;
    shapes[1].n_expert = 5;
    shapes[1].n_active = 3;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int device = LANES_64; device <= LANES_32; device++) {
#if defined(__SANITIZE_ADDRESS__)
            if ((int)s != device) /* each shape and each width once: it is slow there */
                continue;
#endif
            reset(0, 0);
            struct pair pair = open_pair(&shapes[s], device, GS_PRECISION_EXACT);
            int32_t tokens[N_TOKENS];
            pair_tokens(tokens, N_TOKENS, 7 + (unsigned)s);
            float *expected = pair_logits(&pair.cpu, CAPACITY, tokens, N_TOKENS, N_TOKENS);
            float *whole = pair_logits(&pair.other, CAPACITY, tokens, N_TOKENS, N_TOKENS);
            control->order = SIM_RANDOM;
            float *single = pair_logits(&pair.other, CAPACITY, tokens, N_TOKENS, 1);
            control->order = SIM_REVERSE;
            control->sums_exchanged = true;
            float *cut = pair_logits(&pair.other, CAPACITY, tokens, N_TOKENS, 17);
            print_message("shape %zu, %d lanes: largest error %.1e\n", s, device == LANES_64 ? 64 : 32,
                          pair_error(expected, whole, N_TOKENS));
            assert_true(pair_error(expected, whole, N_TOKENS) <= 1e-4);
            assert_same_bits(whole, single, N_TOKENS * PAIR_VOCAB, "one token at a time");
            assert_same_bits(whole, cut, N_TOKENS * PAIR_VOCAB, "17 tokens at a time");
            free(expected);
            free(whole);
            free(single);
            free(cut);
            close_pair(&pair);
        }
}

/* Fast precision is the same kernels with a cache in bfloat16: near, and the same bits in any cut. */
static void fast_is_near_and_keeps_bits(void **state)
{
    (void)state;
    struct tiny_options options = small(64, 16, 4, 2);
    options.n_expert = options.n_active = 2; /* rounding cannot turn a choice */
    reset(0, 0);
    struct pair pair = open_pair(&options, LANES_32, GS_PRECISION_FAST);
    int32_t tokens[N_TOKENS];
    pair_tokens(tokens, N_TOKENS, 3);
    float *expected = pair_logits(&pair.cpu, CAPACITY, tokens, N_TOKENS, N_TOKENS),
          *whole = pair_logits(&pair.other, CAPACITY, tokens, N_TOKENS, N_TOKENS);
    float *single = pair_logits(&pair.other, CAPACITY, tokens, N_TOKENS, 1);
    assert_true(pair_error(expected, whole, N_TOKENS) <= 0.05 && pair_error(expected, whole, N_TOKENS) > 0.0);
    assert_true(hip->fast_keeps_bits);
    assert_same_bits(whole, single, N_TOKENS * PAIR_VOCAB, "one token at a time");
    free(expected);
    free(whole);
    free(single);
    close_pair(&pair);
}

/* Every element of every expert, to the bit. */
static void mxfp4_is_the_cpus_to_the_bit(void **state)
{
    (void)state;
    struct tiny_options options = small(160, 10, 3, 1);
    for (int device = LANES_64; device <= LANES_32; device++) {
        reset(0, 0);
        struct pair pair = open_pair(&options, device, GS_PRECISION_EXACT);
        const struct gs_layer_weights *w = &pair.cpu.weights->layers[1];
        check_experts(&pair, &w->gate_up, 1);
        check_experts(&pair, &w->down, 1);
        close_pair(&pair);
    }
}

/* Two timelines in one step are each alone's bits, a chain on the device is what single steps choose, and a
 * copied and a read cache go on alike. */
static void timelines_keep_apart(void **state)
{
    (void)state;
    struct tiny_options options = small(64, 16, 4, 2);
    reset(0, 0);
    struct pair pair = open_pair(&options, LANES_64, GS_PRECISION_EXACT);
    int32_t tokens[N_TOKENS];
    pair_tokens(tokens, N_TOKENS, 5);
    struct gs_error error;
    struct gs_kv *a = loaded_kv(&pair.other, CAPACITY), *b = loaded_kv(&pair.other, CAPACITY),
                 *copy = loaded_kv(&pair.other, CAPACITY), *read = loaded_kv(&pair.other, CAPACITY);
    struct gs_buffer bytes = {0};
    float alone[2][PAIR_VOCAB], logits[PAIR_VOCAB];
    int32_t chain[6], token = 9;
    loaded_run(&pair.other, a, tokens, 20, 20, NULL);
    loaded_run(&pair.other, b, tokens + 5, 3, 3, NULL);
    assert_ok(hip->kv_copy(copy, a, &error), &error);
    assert_ok(hip->kv_export(a, &bytes, &error), &error);
    assert_ok(hip->kv_import(read, bytes.data, bytes.size, &error), &error);
    loaded_run(&pair.other, a, &token, 1, 1, alone[0]);
    loaded_run(&pair.other, b, &token, 1, 1, alone[1]);
    assert_int_equal(hip->kv_truncate(a, 20), 20);
    assert_int_equal(hip->kv_truncate(b, 3), 3);
    struct gs_step steps[2] = {{a, &token, 1, GS_WANT_LAST, NULL}, {b, &token, 1, GS_WANT_LAST, NULL}};
    assert_ok(hip->forward(pair.other.device, steps, 2, NULL, &error), &error);
    assert_same_bits(alone[0], hip->logits(pair.other.device, 0), PAIR_VOCAB, "together, first");
    assert_same_bits(alone[1], hip->logits(pair.other.device, 1), PAIR_VOCAB, "together, second");
    assert_ok(hip->chain(pair.other.device, copy, token, NULL, chain, 6, &error), &error);
    for (size_t i = 0; i < 6; i++) {
        loaded_run(&pair.other, read, &token, 1, 1, logits);
        token = pair_argmax(logits);
        assert_int_equal(chain[i], token);
    }
    assert_same_bits(hip->logits(pair.other.device, 0), logits, PAIR_VOCAB, "the chain's last logits");
    assert_int_equal(hip->kv_length(copy), 26);
    gs_buffer_free(&bytes);
    hip->kv_free(a);
    hip->kv_free(b);
    hip->kv_free(copy);
    hip->kv_free(read);
    close_pair(&pair);
}

/*
 * Tokens that the device draws, alone, in a chain and beside rows of other wishes, are the sampler's; and the
 * logits of a row that was answered with a token can still be had.
 */
static void drawn_tokens_are_the_samplers(void **state)
{
    (void)state;
    enum { N = 6 };
    struct tiny_options options = small(64, 16, 4, 2);
    reset(0, 0);
    struct pair pair = open_pair(&options, LANES_32, GS_PRECISION_EXACT);
    struct gs_device *device = pair.other.device;
    int32_t tokens[N_TOKENS];
    pair_tokens(tokens, N_TOKENS, 6);
    struct gs_error error;
    struct gs_sampler *sampler = pair_sampler(1.5f, PAIR_VOCAB, 11),
                      *same = pair_sampler(1.5f, PAIR_VOCAB, 11);
    struct gs_draw draws[N];
    struct gs_kv *kv[4];
    float logits[PAIR_VOCAB];
    int32_t chain[N], token = 9;
    for (size_t i = 0; i < 4; i++) {
        kv[i] = loaded_kv(&pair.other, CAPACITY);
        loaded_run(&pair.other, kv[i], tokens, 20, 20, NULL);
    }
    for (size_t i = 0; i < N; i++)
        draws[i] = gs_sampler_ahead(sampler, i);
    assert_ok(hip->chain(device, kv[0], token, draws, chain, N, &error), &error);
    for (size_t i = 0; i < N; i++) {
        const struct gs_step steps[] = {{kv[1], &token, 1, GS_WANT_LAST, NULL},
                                        {kv[2], &token, 1, GS_WANT_TOKEN, &draws[i]},
                                        {kv[3], &token, 1, GS_WANT_TOKEN, NULL}};
        int32_t expected;
        assert_ok(hip->forward(device, steps, 3, NULL, &error), &error);
        memcpy(logits, hip->logits(device, 0), sizeof logits);
        assert_ok(gs_sampler_draw(same, logits, NULL, 0, &expected, &error), &error);
        assert_int_equal(hip->chosen(device, 0), -1);
        assert_int_equal(hip->chosen(device, 1), expected);
        assert_int_equal(hip->chosen(device, 2), pair_argmax(logits));
        assert_int_equal(chain[i], expected);
        for (size_t row = 1; row < 3; row++)
            assert_same_bits(hip->logits(device, row), logits, PAIR_VOCAB, "fetched later");
        const struct gs_step again = {kv[3], &token, 1, GS_WANT_TOKEN, NULL};
        assert_int_equal(hip->kv_truncate(kv[3], 20 + (int64_t)i), 20 + (int64_t)i);
        assert_ok(hip->forward(device, &again, 1, NULL, &error), &error);
        assert_int_equal(hip->chosen(device, 0), pair_argmax(logits));
        token = expected;
    }
    assert_ok(hip->chain(device, kv[1], token, NULL, chain, 1, &error), &error);
    assert_int_equal(hip->chosen(device, 0), -1);
    assert_int_equal(pair_argmax(hip->logits(device, 0)), chain[0]);
    for (size_t i = 0; i < 4; i++)
        hip->kv_free(kv[i]);
    gs_sampler_close(sampler);
    gs_sampler_close(same);
    close_pair(&pair);
}

/* ---------------------------------------------------------------- failures */

/* Everything once, until something fails. */
static gs_status run_all(const struct loaded *model, struct gs_error *error)
{
    static const int32_t tokens[] = {1, 2, 3};
    struct gs_device_options options = {.precision = GS_PRECISION_EXACT, .index = LANES_32};
    struct gs_device *device = NULL;
    struct gs_kv *kv = NULL;
    static const struct gs_draw draws[1] = {{0.3, 1.0f}};
    int32_t chain[2];
    gs_status status = hip->open(&options, &device, error);
    if (status == GS_OK)
        status = hip->load(device, model->weights, NULL, NULL, error);
    if (status == GS_OK)
        status = hip->kv_create(device, 20, &kv, error);
    struct gs_step step = {kv, tokens, 3, GS_WANT_LAST, NULL};
    if (status == GS_OK) {
        status = hip->forward(device, &step, 1, NULL, error);
        assert_int_equal(hip->kv_length(kv), status == GS_OK ? 3 : 0);
    }
    if (status == GS_OK) {
        status = hip->chain(device, kv, 5, NULL, chain, 2, error);
        assert_int_equal(hip->kv_length(kv), status == GS_OK ? 5 : 3);
    }
    if (status == GS_OK) {
        status = hip->chain(device, kv, 5, draws, chain, 1, error);
        assert_int_equal(hip->kv_length(kv), status == GS_OK ? 6 : 5);
    }
    step = (struct gs_step){kv, tokens, 1, GS_WANT_TOKEN, draws};
    if (status == GS_OK) {
        status = hip->forward(device, &step, 1, NULL, error);
        assert_int_equal(hip->kv_length(kv), status == GS_OK ? 7 : 6);
    }
    hip->kv_free(kv);
    hip->close(device);
    return status;
}

/*
 * Each call of the library fails in turn: one line that says where and why, no timeline changed, no wrong
 * use. Nothing stays behind but what cannot be given back when entering the device or giving it back itself
 * fails.
 */
static void any_call_may_fail(void **state)
{
    (void)state;
    reset(0, 0);
    struct tiny_options options = small(32, 2, 1, 1);
    options.n_layer = 1;
    options.n_expert = options.n_active = 1;
    options.d_ff = 32;
    struct tiny_model *tiny = tiny_model_make(&options);
    struct loaded model = loaded_open(tiny, 1);
    tiny_model_free(tiny);
    unsigned long n_calls = 0, n_failed = 0;
    for (unsigned long at = 1; at <= n_calls + 1; at++) {
        struct gs_error error = {.message = ""};
        reset(at, at % 2 == 0 ? 719 : 2);
        gs_status status = run_all(&model, &error);
        n_calls = control->n_calls > n_calls ? control->n_calls : n_calls;
        if (control->misuse[0] != '\0' || strchr(error.message, '\n') ||
            control->n_held > (control->device_lost ? 1 : 0))
            fail_msg("call %lu: %s, %lu held, message \"%s\"", at, control->misuse, control->n_held,
                     error.message);
        if (status == GS_OK)
            continue; /* it failed where nothing can be reported: while closing */
        n_failed++;
        assert_true(status == GS_OUT_OF_MEMORY || status == GS_IO || status == GS_UNSUPPORTED);
        if (!strstr(error.message, "hipError") || strncmp(error.message, "hip: ", 5) != 0)
            fail_msg("call %lu: message \"%s\"", at, error.message);
    }
    print_message("%lu calls, %lu of which report their failure\n", n_calls, n_failed);
    assert_true(n_calls > 200 && n_failed > n_calls * 3 / 4);
    loaded_close(&model);
}

static void what_is_missing_is_named(void **state)
{
    (void)state;
    char description[300], expected[300];
    struct gs_device *device = NULL;
    struct gs_error error;
    struct gs_device_options options = {.index = LANES_UNKNOWN};
    const struct gs_backend *best = NULL;
    reset(0, 0);
    assert_true(hip->probe(description, sizeof description));
    print_message("%s\n", description);
    snprintf(expected, sizeof expected, "kernels for %s, ", stand_in_arch(control->kinds[LANES_64]));
    assert_non_null(strstr(description, expected));
    assert_non_null(strstr(description, "HIP 6.2"));
    size_t used = (size_t)snprintf(expected, sizeof expected, "this build's kernels, which are for ");
    for (size_t i = 0; i < gs_hip_module_count; i++)
        used += (size_t)snprintf(expected + used, sizeof expected - used, "%s%s", i > 0 ? ", " : "",
                                 gs_hip_modules[i].arch);
    assert_fails(hip->open(&options, &device, &error), GS_UNSUPPORTED, expected, &error);
    assert_non_null(strstr(error.message, "hipErrorNoBinaryForGpu"));
    options.index = 3;
    assert_fails(hip->open(&options, &device, &error), GS_INVALID_ARGUMENT, "devices 0 to 2", &error);
    options = (struct gs_device_options){.control = GS_CONTROL_KV_RING};
    assert_fails(hip->open(&options, &device, &error), GS_UNSUPPORTED, "controls", &error);
    control->n_device = 0;
    options = (struct gs_device_options){0};
    assert_fails(hip->open(&options, &device, &error), GS_UNSUPPORTED, "the HIP library sees no device",
                 &error);
    assert_ok(gs_backend_find("auto", &best, &error), &error);
    assert_string_equal(best->name, "cpu");
    assert_null(device);
    assert_clean();
}

/* The weights are compared with what is free before the first of them is read. */
static void a_model_too_large_is_refused(void **state)
{
    (void)state;
    struct tiny_options options = small(64, 16, 4, 2);
    reset(0, 0);
    struct tiny_model *tiny = tiny_model_make(&options);
    struct loaded model = loaded_open(tiny, 1);
    struct gs_device_options of_device = {.precision = GS_PRECISION_EXACT};
    struct gs_device *device = NULL;
    struct gs_error error;
    tiny_model_free(tiny);
    assert_ok(hip->open(&of_device, &device, &error), &error);
    assert_ok(hip->load(device, model.weights, NULL, NULL, &error), &error);
    uint64_t scratch = hip->scratch_bytes(device);
    hip->close(device);
    control->memory = scratch + 4096;
    assert_ok(hip->open(&of_device, &device, &error), &error);
    assert_fails(hip->load(device, model.weights, NULL, NULL, &error), GS_OUT_OF_MEMORY, "the weights need",
                 &error);
    hip->close(device);
    control->memory = scratch / 2;
    assert_ok(hip->open(&of_device, &device, &error), &error);
    assert_fails(hip->load(device, model.weights, NULL, NULL, &error), GS_OUT_OF_MEMORY,
                 "of device memory for scratch: hipErrorOutOfMemory", &error);
    hip->close(device);
    assert_clean();
    loaded_close(&model);
}

/* ---------------------------------------------------------------- the program */

/* Runs the program with the stand-in; returns its exit code, and in `output` both of its streams. */
static int run_program(const char *environment, const char *arguments, char *output, size_t size)
{
    const char *program = getenv("GOSSAMER");
    char command[2600];
    snprintf(command, sizeof command, "LD_LIBRARY_PATH=%s HIP_SIM_KINDS=%x,%x %s %s %s 2>&1", folder,
             control->kinds[LANES_64], control->kinds[LANES_32], environment,
             program ? program : "build/gossamer", arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(output, 1, size - 1, pipe);
    output[n] = '\0';
    return pclose(pipe);
}

/* The demo model against its golden values, by verify's own bars. A sanitizer takes minutes for it, and has
 * seen the same code with the small models. */
static void the_demo_model_verifies(void **state)
{
    (void)state;
    reset(0, 0);
#if defined(__SANITIZE_ADDRESS__)
    print_message("  the demo model is not run in the simulator under a sanitizer\n");
    skip();
#endif
    static char output[20000];
    static const char *const arguments[] = {"verify models/demo --backend hip --device 0 -n 20",
                                            "verify models/demo --backend hip --device 1 -n 40"};
    for (size_t i = 0; i < 2; i++) {
        int code = run_program("HIP_SIM_ORDER=reverse", arguments[i], output, sizeof output);
        if (code != 0 || !strstr(output, "checks pass") || !strstr(output, "never run on an AMD GPU"))
            fail_msg("%s: %d\n%s", arguments[i], code, output);
    }
}

static void the_program_says_what_is_missing(void **state)
{
    (void)state;
    reset(0, 0);
    static char output[20000];
    static const char run[] = "run models/demo --raw -p x -n 1 --temp 0";
    char arguments[200];
    snprintf(arguments, sizeof arguments, "%s --backend hip --device 2", run);
    assert_true(run_program("", arguments, output, sizeof output) != 0);
    assert_non_null(strstr(output, "takes none of this build's kernels"));
    snprintf(arguments, sizeof arguments, "%s --backend auto", run);
    assert_int_equal(run_program("HIP_SIM_DEVICES=0", arguments, output, sizeof output), 0);
    assert_non_null(strstr(output, "backend cpu, not hip: the HIP library sees no device"));
    snprintf(arguments, sizeof arguments, "%s --backend hip", run);
    int code = run_program("HIP_SIM_MEMORY=1000000", arguments, output, sizeof output);
    assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 2); /* as for a context that does not fit */
    assert_non_null(strstr(output, "hipErrorOutOfMemory"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_the_cpus),           cmocka_unit_test(fast_is_near_and_keeps_bits),
        cmocka_unit_test(mxfp4_is_the_cpus_to_the_bit),  cmocka_unit_test(timelines_keep_apart),
        cmocka_unit_test(drawn_tokens_are_the_samplers), cmocka_unit_test(any_call_may_fail),
        cmocka_unit_test(what_is_missing_is_named),      cmocka_unit_test(a_model_too_large_is_refused),
        cmocka_unit_test(the_demo_model_verifies),       cmocka_unit_test(the_program_says_what_is_missing),
    };
    return cmocka_run_group_tests(tests, open_stand_in, NULL);
}
