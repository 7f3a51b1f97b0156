/* src/model/gguf_config.c: the metadata of a GGUF against the config.json of the same model, and every rule.
 */
#include "model/gguf_config.h"
#include "tests/support/check.h"
#include "tests/support/files.h"
#include "tests/support/tiny_gguf.h"

#include <stdio.h>
#include <stdlib.h>

#define N_VOCAB 128

/* Metadata as they are made, without tensors; parsed when all entries are there. */
struct made {
    struct gs_buffer bytes;
    struct gs_file_map map;
    struct gs_arena arena;
    struct gs_gguf gguf;
};

static struct made finish(struct gguf_file *file)
{
    static char path[] = "m.gguf";
    struct made made = {.bytes = gguf_finish(file)};
    struct gs_error error;
    made.map = (struct gs_file_map){.path = path,
                                    .data = (unsigned char *)made.bytes.data,
                                    .size = made.bytes.size,
                                    .descriptor = -1,
                                    .slot = -1};
    assert_ok(gs_gguf_parse(&made.map, &made.arena, &made.gguf, &error), &error);
    return made;
}

static void release(struct made *made)
{
    gs_arena_free(&made->arena);
    gs_buffer_free(&made->bytes);
}

static const char *const u32_keys[] = {
    "block_count",
    "context_length",
    "embedding_length",
    "attention.head_count",
    "expert_count",
    "expert_used_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.sliding_window",
    "expert_feed_forward_length",
    "rope.scaling.original_context_length",
};
static const uint32_t u32_values[] = {4, 131072, 64, 8, 8, 2, 2, 16, 128, 96, 4096};
enum { N_U32 = sizeof u32_keys / sizeof u32_keys[0] };

/* Everything that is needed, except what is named (NULL: nothing). */
static struct gguf_file without(const char *omitted)
{
    static const struct {
        const char *key;
        float value;
    } reals[] = {{"rope.freq_base", 150000.0f},
                 {"attention.layer_norm_rms_epsilon", 1e-5f},
                 {"rope.scaling.factor", 32.0f}};
    struct gguf_file file = {0};
    char key[100];
    omitted = omitted ? omitted : "";
    if (strcmp(omitted, "general.architecture") != 0)
        gguf_text(&file, "general.architecture", "gpt-oss");
    if (strcmp(omitted, "rope.scaling.type") != 0)
        gguf_text(&file, "gpt-oss.rope.scaling.type", "yarn");
    for (size_t i = 0; i < N_U32; i++) {
        snprintf(key, sizeof key, "gpt-oss.%s", u32_keys[i]);
        if (strcmp(omitted, u32_keys[i]) != 0)
            gguf_u32(&file, key, u32_values[i]);
    }
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        snprintf(key, sizeof key, "gpt-oss.%s", reals[i].key);
        if (strcmp(omitted, reals[i].key) != 0)
            gguf_f32(&file, key, reals[i].value);
    }
    return file;
}

static struct gs_config accept(struct gguf_file *file)
{
    struct made made = finish(file);
    struct gs_config config;
    struct gs_error error;
    assert_ok(gs_gguf_config_parse("m.gguf", &made.gguf, N_VOCAB, &config, &error), &error);
    release(&made);
    return config;
}

static void refuse(struct gguf_file *file, gs_status status, const char *part)
{
    struct made made = finish(file);
    struct gs_config config;
    struct gs_error error;
    assert_fails(gs_gguf_config_parse("m.gguf", &made.gguf, N_VOCAB, &config, &error), status, part, &error);
    release(&made);
}

/* ---------------------------------------------------------------- what is right */

static void agrees_with_config_json(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_default();
    struct tiny_model *model = tiny_model_make(&options);
    char *folder = test_folder_make();
    struct gs_config configs[2];
    struct gs_error error;
    /* The special tokens of the GGUF's vocabulary are the last three ids. */
    free(model->generation_config);
    model->generation_config = strdup("{\"eos_token_id\": [126, 125, 127]}");
    tiny_model_write(model, folder);
    tiny_gguf_write(model, &(struct tiny_gguf_options){.dense = GS_DTYPE_BF16, .has_vocabulary = true},
                    folder, "m");
    for (int i = 0; i < 2; i++) {
        struct gs_checkpoint *checkpoint;
        struct test_path path = i ? test_path_join(folder, "m.gguf") : test_path_join(folder, "");
        assert_ok(gs_checkpoint_open(path.text, &checkpoint, &error), &error);
        assert_ok(gs_config_read(checkpoint, &configs[i], &error), &error);
        gs_checkpoint_close(checkpoint);
    }
    assert_memory_equal(&configs[0], &configs[1], sizeof configs[0]);
    test_folder_remove(folder);
    tiny_model_free(model);
}

static void what_the_file_is_silent_about(void **state)
{
    (void)state;
    struct gguf_file file = without(NULL);
    struct gs_config config = accept(&file);
    assert_true(config.swiglu_limit == 7.0f && config.swiglu_alpha == 1.702f);
    assert_true(config.rope_beta_fast == 32.0 && config.rope_beta_slow == 1.0 && !config.rope_truncate);
    assert_true(config.rope_theta == 150000.0 && config.rope_factor == 32.0);
    assert_true(config.rope_original_ctx == 4096.0 && config.rms_norm_eps == 1e-5f);
    assert_int_equal(config.n_vocab, N_VOCAB);
    assert_int_equal(config.n_stop_ids, 0);
    for (int64_t i = 0; i < config.n_layer; i++)
        assert_int_equal(config.layer_is_window[i], i % 2 == 0);

    file = without(NULL);
    gguf_f32(&file, "gpt-oss.rope.scaling.yarn_beta_fast", 16.0f);
    gguf_f32(&file, "gpt-oss.rope.scaling.yarn_beta_slow", 2.0f);
    config = accept(&file);
    assert_true(config.rope_beta_fast == 16.0 && config.rope_beta_slow == 2.0);

    file = without("rope.scaling.type");
    gguf_text(&file, "gpt-oss.rope.scaling.type", "none");
    assert_true(accept(&file).rope_factor == 1.0);
}

static void patterns(void **state)
{
    (void)state;
    static const struct {
        uint32_t period;
        bool window[4];
    } periods[] = {
        {0, {1, 1, 1, 1}}, {1, {0, 0, 0, 0}}, {2, {1, 0, 1, 0}}, {3, {1, 1, 0, 1}}, {9, {1, 1, 1, 1}}};
    const char *key = "gpt-oss.attention.sliding_window_pattern";
    for (size_t i = 0; i < sizeof periods / sizeof periods[0]; i++) {
        struct gguf_file file = without(NULL);
        gguf_u32(&file, key, periods[i].period);
        struct gs_config config = accept(&file);
        assert_memory_equal(config.layer_is_window, periods[i].window, 4);
    }
    struct gguf_file file = without(NULL);
    gguf_array(&file, key, GS_GGUF_BOOL, 4);
    gguf_put(&file.entries, "\0\1\1\0", 4);
    struct gs_config config = accept(&file);
    assert_memory_equal(config.layer_is_window, ((bool[]){0, 1, 1, 0}), 4);
    file = without(NULL);
    gguf_array(&file, key, GS_GGUF_BOOL, 3);
    gguf_put(&file.entries, "\0\1\1", 3);
    refuse(&file, GS_MALFORMED, "sliding_window_pattern has 3 entries, must have block_count = 4");
    file = without(NULL);
    gguf_array(&file, key, GS_GGUF_U32, 4);
    gguf_put(&file.entries, "\0\0\0\0\1\0\0\0\2\0\0\0\0\0\0\0", 16);
    refuse(&file, GS_MALFORMED, "must be a number of layers or a truth value for each layer");
    static const uint64_t beyond[] = {1025, (uint64_t)-1, (uint64_t)INT64_MIN, INT64_MAX};
    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
        file = without(NULL);
        gguf_value(&file, key, GS_GGUF_I64);
        gguf_put_u64(&file.entries, beyond[i]);
        refuse(&file, GS_MALFORMED, "must be a number of layers or a truth value for each layer");
    }
    file = without(NULL);
    gguf_text(&file, key, "every second");
    refuse(&file, GS_MALFORMED, "is \"every second\", must be a number of layers");
}

/* ---------------------------------------------------------------- what is not */

static void every_key_is_needed_and_in_range(void **state)
{
    (void)state;
    static const char *const others[] = {"rope.freq_base", "attention.layer_norm_rms_epsilon",
                                         "rope.scaling.factor", "rope.scaling.type"};
    char key[100], part[160];
    for (size_t i = 0; i < N_U32; i++) {
        static const uint32_t values[] = {0, UINT32_MAX};
        struct gguf_file file = without(u32_keys[i]);
        snprintf(part, sizeof part, "m.gguf: gpt-oss.%s is missing, must be an integer", u32_keys[i]);
        refuse(&file, GS_MALFORMED, part);
        snprintf(key, sizeof key, "gpt-oss.%s", u32_keys[i]);
        for (size_t k = 0; k < 2; k++) {
            file = without(u32_keys[i]);
            gguf_u32(&file, key, values[k]);
            snprintf(part, sizeof part, "gpt-oss.%s is %u, must be an integer", u32_keys[i], values[k]);
            refuse(&file, GS_MALFORMED, part);
        }
        file = without(u32_keys[i]);
        gguf_value(&file, key, GS_GGUF_U64);
        gguf_put_u64(&file.entries, UINT64_MAX);
        refuse(&file, GS_MALFORMED, "is more than 2^63, must be an integer");
        file = without(u32_keys[i]);
        gguf_array(&file, key, GS_GGUF_U32, 1);
        gguf_put_u32(&file.entries, u32_values[i]);
        refuse(&file, GS_MALFORMED, "is an array of u32, must be an integer");
        file = without(u32_keys[i]);
        gguf_f32(&file, key, 64.0f);
        refuse(&file, GS_MALFORMED, "is 64.00000000, must be an integer");
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct gguf_file file = without(others[i]);
        snprintf(part, sizeof part, "gpt-oss.%s is missing", others[i]);
        refuse(&file, GS_MALFORMED, part);
        file = without(others[i]);
        snprintf(key, sizeof key, "gpt-oss.%s", others[i]);
        gguf_f32(&file, key, -1.0f);
        refuse(&file, GS_MALFORMED, "is -1.000000000, must be");
    }
    struct gguf_file file = without("rope.freq_base");
    gguf_f32(&file, "gpt-oss.rope.freq_base", (float)(1e300 * 1e300 * 0.0)); /* NaN */
    refuse(&file, GS_MALFORMED, "gpt-oss.rope.freq_base is");
}

static void architectures(void **state)
{
    (void)state;
    struct gguf_file file = without("general.architecture");
    refuse(&file, GS_MALFORMED, "general.architecture is missing, must be \"gpt-oss\"");
    static const char *const others[] = {"gptoss", "llama", "gpt-oss ", ""};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        char part[100];
        file = without("general.architecture");
        gguf_text(&file, "general.architecture", others[i]);
        snprintf(part, sizeof part, "general.architecture is \"%s\", must be \"gpt-oss\"", others[i]);
        refuse(&file, GS_UNSUPPORTED, part);
    }
    file = without("general.architecture");
    gguf_u32(&file, "general.architecture", 1);
    refuse(&file, GS_MALFORMED, "general.architecture is 1, must be");
    file = without("rope.scaling.type");
    gguf_text(&file, "gpt-oss.rope.scaling.type", "linear");
    refuse(&file, GS_UNSUPPORTED, "rope.scaling.type is \"linear\", must be \"yarn\" or \"none\"");
}

static void proportions(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
        gs_status status;
        const char *part;
    } cases[] = {
        {"embedding_length", 65, GS_UNSUPPORTED, "must be a multiple of 32"},
        {"expert_feed_forward_length", 100, GS_UNSUPPORTED, "must be a multiple of 32"},
        {"attention.key_length", 17, GS_MALFORMED, "must be even"},
        {"attention.head_count_kv", 3, GS_MALFORMED, "must be a multiple of head_count_kv"},
        {"expert_used_count", 9, GS_MALFORMED, "must be at most expert_count, 8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gguf_file file = without(cases[i].key);
        char key[100];
        snprintf(key, sizeof key, "gpt-oss.%s", cases[i].key);
        gguf_u32(&file, key, cases[i].value);
        refuse(&file, cases[i].status, cases[i].part);
    }
    struct gguf_file file = without(NULL);
    gguf_f32(&file, "gpt-oss.rope.scaling.yarn_beta_fast", 1.0f);
    refuse(&file, GS_MALFORMED, "must be more than yarn_beta_slow");
}

static void keys_that_would_change_the_arithmetic(void **state)
{
    (void)state;
    struct gguf_file file = without(NULL);
    gguf_u32(&file, "gpt-oss.attention.value_length", 16);
    gguf_u32(&file, "gpt-oss.rope.dimension_count", 16);
    gguf_f32(&file, "gpt-oss.rope.scaling.attn_factor", 1.0f);
    gguf_u32(&file, "gpt-oss.expert_shared_count", 0);
    gguf_f32(&file, "gpt-oss.rope.freq_base_swa", 150000.0f);
    accept(&file);
    static const struct {
        const char *key;
        float neutral;
    } keys[] = {
        {"attention.value_length", 16},
        {"attention.key_length_swa", 16},
        {"attention.value_length_swa", 16},
        {"rope.dimension_count", 16},
        {"rope.dimension_count_swa", 16},
        {"rope.freq_base_swa", 150000.0f},
        {"rope.scaling.attn_factor", 1},
        {"rope.scaling.yarn_ext_factor", 1},
        {"rope.scaling.yarn_attn_factor", 1},
        {"rope.scaling.yarn_log_multiplier", 0},
        {"attn_logit_softcapping", 0},
        {"final_logit_softcapping", 0},
        {"logit_scale", 1},
        {"residual_scale", 1},
        {"embedding_scale", 1},
        {"expert_shared_count", 0},
        {"leading_dense_block_count", 0},
        {"expert_weights_scale", 1},
    };
    static const float others[] = {0.5f, -1.0f, 2.0f};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char key[100], part[160];
        snprintf(key, sizeof key, "gpt-oss.%s", keys[i].key);
        file = without(NULL);
        gguf_f32(&file, key, keys[i].neutral);
        accept(&file);
        snprintf(part, sizeof part, "%s is ", key);
        for (size_t k = 0; k < 3; k++) {
            file = without(NULL);
            gguf_f32(&file, key, others[k]);
            refuse(&file, GS_UNSUPPORTED, part);
        }
        file = without(NULL);
        gguf_text(&file, key, "none");
        refuse(&file, GS_UNSUPPORTED, "or absent");
    }
}

/* ---------------------------------------------------------------- tokens */

static void put_tokens(struct gguf_file *file, uint64_t count, const char *last, uint32_t kind)
{
    gguf_array(file, "tokenizer.ggml.tokens", GS_GGUF_STRING, count);
    for (uint64_t i = 0; i < count; i++)
        gguf_put_text(&file->entries, i + 1 < count ? "x" : last, strlen(i + 1 < count ? "x" : last));
    gguf_array(file, "tokenizer.ggml.token_type", GS_GGUF_I32, count);
    for (uint64_t i = 0; i < count; i++)
        gguf_put_u32(&file->entries, i + 1 < count ? 1 : kind);
}

static void stop_ids(void **state)
{
    (void)state;
    struct gguf_file file = without(NULL);
    gguf_u32(&file, "tokenizer.ggml.eos_token_id", 9);
    struct gs_config config = accept(&file);
    assert_true(config.n_stop_ids == 1 && config.stop_ids[0] == 9);
    file = without(NULL);
    put_tokens(&file, N_VOCAB, "<|call|>", 3);
    gguf_u32(&file, "tokenizer.ggml.eos_token_id", 9);
    config = accept(&file);
    assert_true(config.n_stop_ids == 2 && config.stop_ids[0] == 9 && config.stop_ids[1] == N_VOCAB - 1);
    file = without(NULL);
    put_tokens(&file, N_VOCAB, "<|call|>", 1); /* ordinary text */
    assert_int_equal(accept(&file).n_stop_ids, 0);
    file = without(NULL);
    put_tokens(&file, N_VOCAB, "<|end|>", 3); /* ends a message, not the generation */
    assert_int_equal(accept(&file).n_stop_ids, 0);
    file = without(NULL);
    gguf_u32(&file, "tokenizer.ggml.eos_token_id", N_VOCAB);
    refuse(&file, GS_MALFORMED, "tokenizer.ggml.eos_token_id is 128, must be an integer 0 ... 127");
    file = without(NULL);
    gguf_text(&file, "tokenizer.ggml.eos_token_id", "<|return|>");
    refuse(&file, GS_MALFORMED, "tokenizer.ggml.eos_token_id is \"<|return|>\"");
    /* A list of kinds that is too short, or of another type, has no kinds for the rest. */
    file = without(NULL);
    gguf_array(&file, "tokenizer.ggml.tokens", GS_GGUF_STRING, N_VOCAB);
    for (int i = 0; i < N_VOCAB; i++)
        gguf_put_text(&file.entries, "<|call|>", 8);
    gguf_text(&file, "tokenizer.ggml.token_type", "control");
    assert_int_equal(accept(&file).n_stop_ids, 0);
}

static void sizes_of_the_vocabulary(void **state)
{
    (void)state;
    struct gguf_file file = without(NULL);
    put_tokens(&file, N_VOCAB - 1, "y", 1);
    refuse(&file, GS_MALFORMED,
           "tokenizer.ggml.tokens has 127 elements of type string, must have a string for");
    file = without(NULL);
    gguf_array(&file, "tokenizer.ggml.tokens", GS_GGUF_U8, N_VOCAB);
    for (int i = 0; i < N_VOCAB; i++)
        gguf_put(&file.entries, "", 1);
    refuse(&file, GS_MALFORMED, "has 128 elements of type u8");
    file = without(NULL);
    gguf_u32(&file, "gpt-oss.vocab_size", 127);
    refuse(&file, GS_MALFORMED, "gpt-oss.vocab_size is 127, must be the number of rows");
    file = without(NULL);
    gguf_u32(&file, "gpt-oss.vocab_size", N_VOCAB);
    accept(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_config_json),
        cmocka_unit_test(what_the_file_is_silent_about),
        cmocka_unit_test(patterns),
        cmocka_unit_test(every_key_is_needed_and_in_range),
        cmocka_unit_test(architectures),
        cmocka_unit_test(proportions),
        cmocka_unit_test(keys_that_would_change_the_arithmetic),
        cmocka_unit_test(stop_ids),
        cmocka_unit_test(sizes_of_the_vocabulary),
    };
    return cmocka_run_group_tests_name("model/gguf_config", tests, NULL, NULL);
}
