/*
 * The negative controls of the GPU backends, on the stand-in for AMD's library (hip.c): under each, the
 * device computes what the exact CPU backend computes under the same one, and not what it computes without.
 * Those that it does not have are refused.
 */
#include "backend/hip/hip.h"
#include "backend/hip/modules.h"
#include "backend/registry.h"
#include "tests/gpu_sim/hip.h"
#include "tests/support/check.h"
#include "tests/support/loaded.h"

#include <dlfcn.h>
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_TOKENS 24 /* past the window */
#define N_VOCAB  128

static struct hip_sim_control *stand_in;
static const struct gs_backend *const hip = &gs_backend_hip;

static int open_stand_in(void **state)
{
    char folder[1024], path[1200];
    (void)state;
    ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    folder[length > 0 ? length : 0] = '\0';
    snprintf(path, sizeof path, "%s/libamdhip64.so", dirname(folder));
    if (access(path, R_OK) != 0 || gs_hip_module_count == 0) {
        print_message("  the HIP backend is not run in a simulator: no C++ compiler, or no code objects\n");
        return 0;
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    stand_in = library ? dlsym(library, HIP_SIM_CONTROL) : NULL;
    return stand_in ? 0 : -1;
}

static void reset(void)
{
    if (!stand_in)
        skip();
    *stand_in = (struct hip_sim_control){.n_device = 1, .memory = 4ull << 30};
}

/* The tests' weights, and their logits on a backend under a control; freed by the caller. */
static float *run(const struct gs_weights *weights, const struct gs_backend *backend, enum gs_control control)
{
    float *logits = calloc(N_TOKENS * N_VOCAB, sizeof *logits);
    struct gs_device_options options = {.n_threads = 1, .control = control};
    struct gs_device *device = NULL;
    struct gs_kv *kv = NULL;
    struct gs_error error;
    int32_t tokens[N_TOKENS];
    for (int32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = i * 29 % N_VOCAB;
    struct gs_step step = {kv, tokens, N_TOKENS, GS_WANT_ALL, NULL};
    assert_non_null(logits);
    assert_ok(backend->open(&options, &device, &error), &error);
    assert_ok(backend->load(device, weights, NULL, NULL, &error), &error);
    assert_ok(backend->kv_create(device, N_TOKENS, &kv, &error), &error);
    step.kv = kv;
    assert_ok(backend->forward(device, &step, 1, NULL, &error), &error);
    for (size_t i = 0; i < N_TOKENS; i++)
        memcpy(logits + i * N_VOCAB, backend->logits(device, i), N_VOCAB * sizeof *logits);
    backend->kv_free(kv);
    backend->close(device);
    return logits;
}

/* The largest difference over the largest value. */
static double distance(const float *a, const float *b)
{
    double largest = 0.0, difference = 0.0;
    for (size_t i = 0; i < N_TOKENS * N_VOCAB; i++) {
        largest = fmax(largest, fabs((double)a[i]));
        difference = fmax(difference, isfinite(b[i]) ? fabs((double)a[i] - b[i]) : 1e9);
    }
    return difference / largest;
}

static struct loaded open_model(enum gs_layout layout)
{
    struct tiny_options options = tiny_options_default();
    options.n_layer = 2;
    options.n_vocab = N_VOCAB;
    options.n_expert = 4;
    options.layout = layout;
    struct tiny_model *model = tiny_model_make(&options);
    struct loaded loaded = loaded_open(model, 1);
    tiny_model_free(model);
    return loaded;
}

static const enum gs_control has[] = {
    GS_CONTROL_SINKS,       GS_CONTROL_WINDOW,       GS_CONTROL_YARN,          GS_CONTROL_YARN_ROUNDED_BOUNDS,
    GS_CONTROL_EXPERT_BIAS, GS_CONTROL_NIBBLE_ORDER, GS_CONTROL_GATE_UP_ORDER, GS_CONTROL_SCALE_MINUS_ONE,
};

static void each_does_what_the_cpus_does(void **state)
{
    (void)state;
    reset();
    struct loaded model = open_model(tiny_options_default().layout);
    float *plain = run(model.weights, hip, GS_CONTROL_NONE);
    for (size_t i = 0; i < sizeof has / sizeof *has; i++) {
        float *expected = run(model.weights, model.backend, has[i]), *found = run(model.weights, hip, has[i]);
        if (distance(expected, found) > 1e-4 || memcmp(plain, found, N_TOKENS * N_VOCAB * sizeof *plain) == 0)
            fail_msg("control %d: %.1e from the CPU's, %.1e from none", (int)has[i],
                     distance(expected, found), distance(plain, found));
        free(expected);
        free(found);
    }
    free(plain);
    loaded_close(&model);
    assert_string_equal(stand_in->misuse, "");
    assert_int_equal(stand_in->n_held, 0);
}

/* What the verifier is told of the experts is what the kernels have, spoilt or not. */
static void experts_are_told_as_spoilt(void **state)
{
    (void)state;
    reset();
    struct loaded model = open_model(tiny_options_default().layout);
    const struct gs_mxfp4_matrix *matrix = &model.weights->layers[1].gate_up;
    float expected[512], found[512];
    assert_true(matrix->columns <= 512);
    for (size_t i = 0; i < sizeof has / sizeof *has; i++) {
        struct gs_device_options options = {.n_threads = 1, .control = has[i]};
        const struct gs_backend *const backends[] = {model.backend, hip};
        struct gs_error error;
        if (has[i] == GS_CONTROL_GATE_UP_ORDER) /* the CPU's reads other rows, ours has moved them */
            continue;
        for (size_t b = 0; b < 2; b++) {
            struct gs_device *device = NULL;
            assert_ok(backends[b]->open(&options, &device, &error), &error);
            assert_ok(backends[b]->load(device, model.weights, NULL, NULL, &error), &error);
            backends[b]->dequantize(device, matrix, 2, 5, 1, b == 0 ? expected : found);
            backends[b]->close(device);
        }
        assert_memory_equal(expected, found, (size_t)matrix->columns * sizeof *found);
    }
    loaded_close(&model);
}

static void others_are_refused(void **state)
{
    (void)state;
    reset();
    const struct gs_device_options refused[] = {
        {.control = GS_CONTROL_ROUTER_SOFTMAX},
        {.control = GS_CONTROL_SWIGLU_CLAMP},
        {.control = GS_CONTROL_SWIGLU_PLUS_ONE},
        {.control = GS_CONTROL_ROPE_PAIRS},
        {.control = GS_CONTROL_KV_RING},
        {.control = GS_CONTROL_COUNT},
        {.control = GS_CONTROL_SINKS, .precision = GS_PRECISION_FAST},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct gs_device *device = NULL;
        struct gs_error error;
        assert_fails(hip->open(&refused[i], &device, &error), GS_UNSUPPORTED, "controls", &error);
        assert_null(device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_does_what_the_cpus_does),
        cmocka_unit_test(experts_are_told_as_spoilt),
        cmocka_unit_test(others_are_refused),
    };
    return cmocka_run_group_tests(tests, open_stand_in, NULL);
}
