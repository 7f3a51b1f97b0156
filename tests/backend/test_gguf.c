/* The CPU backend on a GGUF: the same bits as on the safetensors form, the kernels that it takes, and fast
 * near exact where a layer's types are mixed. */
#include "backend/cpu/kernels.h"
#include "backend/registry.h"
#include "model/mxfp4.h"
#include "tests/support/files.h"
#include "tests/support/loaded.h"
#include "tests/support/pair.h"
#include "tests/support/tiny_gguf.h"

#include "tests/support/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define N_TOKENS 40 /* twice the window and more */

static float *logits_of_path(const char *path, enum gs_precision precision)
{
    struct loaded loaded = {0};
    struct gs_error error;
    assert_ok(gs_checkpoint_open(path, &loaded.checkpoint, &error), &error);
    assert_ok(gs_weights_bind(loaded.checkpoint, NULL, NULL, &loaded.weights, &error), &error);
    assert_ok(gs_backend_find("cpu", &loaded.backend, &error), &error);
    struct gs_device_options options = {.n_threads = 2, .precision = precision};
    assert_ok(loaded.backend->open(&options, &loaded.device, &error), &error);
    assert_ok(loaded.backend->load(loaded.device, loaded.weights, NULL, NULL, &error), &error);

    size_t n_vocab = (size_t)loaded.weights->config.n_vocab;
    int32_t tokens[N_TOKENS];
    for (int32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = (i * 37 + 5) % (int32_t)n_vocab;
    float *logits = malloc(N_TOKENS * n_vocab * sizeof *logits);
    assert_non_null(logits);
    struct gs_kv *kv = loaded_kv(&loaded, 64);
    loaded_run(&loaded, kv, tokens, N_TOKENS, 7, logits);
    loaded.backend->kv_free(kv);
    loaded.backend->close(loaded.device);
    gs_weights_free(loaded.weights);
    gs_checkpoint_close(loaded.checkpoint);
    return logits;
}

static void logits_have_the_same_bits(void **state)
{
    (void)state;
    const struct tiny_gguf_options variants[] = {
        {.dense = GS_DTYPE_BF16, .has_vocabulary = true},
        {.dense = GS_DTYPE_F32, .n_parts = 2},
        {.dense = GS_DTYPE_F16},
        {.dense = GS_DTYPE_BF16, .mixed = true, .keys = GS_DTYPE_F16, .values = GS_DTYPE_F32},
    };
    struct tiny_options options = tiny_options_default();
    struct tiny_model *model = tiny_model_make(&options);
    char *folder = test_folder_make();
    tiny_model_write(model, folder);
    float *expected = logits_of_path(folder, GS_PRECISION_EXACT);
    size_t bytes = N_TOKENS * (size_t)options.n_vocab * sizeof *expected;
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        char *gguf_folder = test_folder_make();
        tiny_gguf_write(model, &variants[i], gguf_folder, "model");
        float *logits = logits_of_path(gguf_folder, GS_PRECISION_EXACT);
        assert_memory_equal(logits, expected, bytes);
        free(logits);
        test_folder_remove(gguf_folder);
    }
    /* Q8_0 is another model: the comparison would notice. */
    tiny_gguf_write(model, &(struct tiny_gguf_options){.dense = GS_DTYPE_Q8_0}, folder, "q");
    float *logits = logits_of_path(test_path_join(folder, "q.gguf").text, GS_PRECISION_EXACT);
    assert_memory_not_equal(logits, expected, bytes);
    free(logits);
    free(expected);
    test_folder_remove(folder);
    tiny_model_free(model);
}

/*
 * The projections of a layer's queries, keys and values in types of their own: each meets the rows of
 * activations in the form that it multiplies, whatever the one before it met.
 */
static void mixed_types_are_near_exact(void **state)
{
    (void)state;
    static const struct tiny_gguf_options mixes[] = {
        {.dense = GS_DTYPE_BF16, .mixed = true, .keys = GS_DTYPE_Q8_0, .values = GS_DTYPE_BF16},
        {.dense = GS_DTYPE_Q8_0, .mixed = true, .keys = GS_DTYPE_Q8_0, .values = GS_DTYPE_BF16},
        {.dense = GS_DTYPE_Q8_0, .mixed = true, .keys = GS_DTYPE_BF16, .values = GS_DTYPE_F32},
        {.dense = GS_DTYPE_F16, .mixed = true, .keys = GS_DTYPE_BF16, .values = GS_DTYPE_Q8_0},
    };
    struct tiny_options options = pair_options(PAIR_NO_CHOICE_SMALL, 2);
    struct tiny_model *model = tiny_model_make(&options);
    for (size_t i = 0; i < sizeof mixes / sizeof mixes[0]; i++) {
        char *folder = test_folder_make(), name[32];
        tiny_gguf_write(model, &mixes[i], folder, "model");
        float *exact = logits_of_path(folder, GS_PRECISION_EXACT);
        float *fast = logits_of_path(folder, GS_PRECISION_FAST);
        snprintf(name, sizeof name, "mix %zu", i);
        assert_near(exact, fast, N_TOKENS, 0.999, 0.06, name);
        free(exact);
        free(fast);
        test_folder_remove(folder);
    }
    tiny_model_free(model);
}

/* Scales are not searched beforehand: one that is no number must show in the logits, and do no other harm. */
static void nan_scales_reach_the_logits(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_default();
    struct tiny_model *model = tiny_model_make(&options);
    struct tiny_tensor *scales = tiny_model_find(model, "model.layers.1.mlp.experts.down_proj_scales");
    char *folder = test_folder_make();
    memset(scales->data, 255, scales->bytes);
    tiny_gguf_write(model, &(struct tiny_gguf_options){.dense = GS_DTYPE_BF16}, folder, "model");
    float *logits = logits_of_path(folder, GS_PRECISION_EXACT);
    for (size_t i = 0; i < N_TOKENS * (size_t)options.n_vocab; i++)
        assert_true(!isfinite(logits[i]));
    free(logits);
    test_folder_remove(folder);
    tiny_model_free(model);
}

/* The same codes and scales in both forms, through every variant. Blocks end at the end of their memory. */
static void mxfp4_forms_agree(void **state)
{
    (void)state;
    enum { GROUPS = 9, N = 32 * GROUPS };
    unsigned seed = 7;
    for (int round = 0; round < 255; round++) {
        uint8_t blocks[GROUPS * 16], scales[GROUPS];
        uint8_t *joined = malloc(GROUPS * 17);
        float expected[N], scalar[N];
        assert_non_null(joined);
        for (int g = 0; g < GROUPS; g++) {
            joined[17 * g] = scales[g] = (uint8_t)((round + g * 28) % 255);
            for (int k = 0; k < 16; k++) {
                seed = seed * 1664525u + 1013904223u;
                blocks[16 * g + k] = (uint8_t)(seed >> 24);
            }
            for (int k = 0; k < 16; k++) {
                unsigned low = (unsigned)blocks[16 * g + k / 2] >> (k % 2 * 4) & 15u;
                unsigned high = (unsigned)blocks[16 * g + 8 + k / 2] >> (k % 2 * 4) & 15u;
                joined[17 * g + 1 + k] = (uint8_t)(low | high << 4);
            }
        }
        gs_mxfp4_dequantize(blocks, scales, N, expected);
        gs_mxfp4_dequantize_gguf(joined, N, scalar);
        assert_memory_equal(scalar, expected, sizeof expected);
        for (size_t v = 0; v < gs_kernels_count(); v++) {
            float out[N];
            gs_kernels_at(v)->dequantize_mxfp4_gguf(joined, N, out);
            assert_memory_equal(out, expected, sizeof expected);
        }
        free(joined);
    }
}

/* A block of one checkpoint in both forms, and its values, by hand. */
static void known_block(void **state)
{
    (void)state;
    static const uint8_t hugging_face[16] = {0xc5, 0xd7, 0x14, 0x84, 0xf8, 0xcf, 0x9b, 0xf4,
                                             0xb7, 0x6f, 0x47, 0x90, 0x47, 0x30, 0x80, 0x4b};
    static const uint8_t gguf[17] = {127,  0x75, 0xbc, 0xf7, 0x6d, 0x74, 0x41, 0x04, 0x98,
                                     0x78, 0x4f, 0x0f, 0x3c, 0x0b, 0x89, 0xb4, 0x4f};
    static const float values[32] = {3.0f,  -2.0f, 6.0f,  -3.0f, 2.0f,  0.5f,  2.0f,  -0.0f,
                                     -0.0f, -6.0f, -6.0f, -2.0f, -1.5f, -0.5f, 2.0f,  -6.0f,
                                     6.0f,  -1.5f, -6.0f, 4.0f,  6.0f,  2.0f,  0.0f,  -0.5f,
                                     6.0f,  2.0f,  0.0f,  1.5f,  0.0f,  -0.0f, -1.5f, 2.0f};
    uint8_t scale = 127;
    float out[32];
    gs_mxfp4_dequantize(hugging_face, &scale, 32, out);
    assert_memory_equal(out, values, sizeof values);
    gs_mxfp4_dequantize_gguf(gguf, 32, out);
    assert_memory_equal(out, values, sizeof values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_have_the_same_bits),
        cmocka_unit_test(mixed_types_are_near_exact),
        cmocka_unit_test(nan_scales_reach_the_logits),
        cmocka_unit_test(mxfp4_forms_agree),
        cmocka_unit_test(known_block),
    };
    return cmocka_run_group_tests_name("backend/gguf", tests, NULL, NULL);
}
