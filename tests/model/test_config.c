/* config.json: the published files, both layouts, every spelling, and every key with every kind of wrong
 * value. */
#include "model/config.h"
#include "tests/support/check.h"
#include "tests/support/files.h"
#include "tests/support/tiny_model.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define ORIGINAL                                                                                             \
    "{\"num_hidden_layers\": 24, \"num_experts\": 32, \"experts_per_token\": 4, \"vocab_size\": 201088, "    \
    "\"hidden_size\": 2880, \"intermediate_size\": 2880, \"swiglu_limit\": 7.0, \"head_dim\": 64, "          \
    "\"num_attention_heads\": 64, \"num_key_value_heads\": 8, \"sliding_window\": 128, "                     \
    "\"initial_context_length\": 4096, \"rope_theta\": 150000, \"rope_scaling_factor\": 32.0, "              \
    "\"rope_ntk_alpha\": 1, \"rope_ntk_beta\": 32}"

static json_t *load_20b(void)
{
    json_t *root = json_load_file("tests/data/model/config-20b.json", 0, NULL);
    assert_non_null(root);
    return root;
}

static json_t *load_original(void)
{
    json_t *root = json_loads(ORIGINAL, 0, NULL);
    assert_non_null(root);
    return root;
}

/* Parses `root`, which it releases. */
static gs_status parse(json_t *root, enum gs_layout layout, struct gs_config *config, struct gs_error *error)
{
    char *text = json_dumps(root, 0);
    assert_non_null(text);
    gs_status status = gs_config_parse("config.json", text, strlen(text), layout, config, error);
    if (status != GS_OK)
        assert_null(strchr(error->message, '\n'));
    free(text);
    json_decref(root);
    return status;
}

/* The object that "key" or "block.key" lies in; *key becomes the last part. */
static json_t *holder(json_t *root, const char **key)
{
    const char *dot = strchr(*key, '.');
    if (!dot)
        return root;
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(dot - *key), *key);
    *key = dot + 1;
    return json_object_get(root, name);
}

/* Sets a key to a JSON text (NULL: removes it) in the published 20b file. */
static json_t *with(const char *key, const char *value)
{
    json_t *root = load_20b();
    json_t *object = holder(root, &key);
    if (value)
        json_object_set_new(object, key, json_loads(value, JSON_DECODE_ANY, NULL));
    else
        json_object_del(object, key);
    return root;
}

static void assert_refused(json_t *root, enum gs_layout layout, gs_status code, const char *part)
{
    struct gs_config config;
    struct gs_error error = {0};
    gs_status status = parse(root, layout, &config, &error);
    if (status != code || !strstr(error.message, part) || strncmp(error.message, "config.json: ", 13) != 0)
        fail_msg("status %d (wanted %d): \"%s\" should hold \"%s\"", (int)status, (int)code, error.message,
                 part);
}

static void assert_text_refused(const char *text, size_t size, gs_status code, const char *part)
{
    struct gs_config config;
    struct gs_error error = {0};
    assert_int_equal(gs_config_parse("config.json", text, size, GS_LAYOUT_HUGGING_FACE, &config, &error),
                     code);
    if (!strstr(error.message, part) || strchr(error.message, '\n'))
        fail_msg("\"%s\" should hold \"%s\"", error.message, part);
}

static struct gs_config accept(json_t *root, enum gs_layout layout)
{
    struct gs_config config;
    struct gs_error error = {0};
    if (parse(root, layout, &config, &error) != GS_OK)
        fail_msg("%s", error.message);
    return config;
}

/* ---------------------------------------------------------------- what is right */

static void assert_family(const struct gs_config *config, int64_t n_layer, int64_t n_expert)
{
    assert_int_equal(config->n_layer, n_layer);
    assert_int_equal(config->n_expert, n_expert);
    assert_int_equal(config->n_active, 4);
    assert_int_equal(config->d_model, 2880);
    assert_int_equal(config->d_ff, 2880);
    assert_int_equal(config->d_head, 64);
    assert_int_equal(config->n_head, 64);
    assert_int_equal(config->n_kv_head, 8);
    assert_int_equal(config->n_vocab, 201088);
    assert_int_equal(config->window, 128);
    assert_int_equal(config->max_ctx, 131072);
    assert_true(config->rms_norm_eps == 1e-5f);
    assert_true(config->swiglu_limit == 7.0f);
    assert_true(config->swiglu_alpha == 1.702f);
    assert_true(config->rope_theta == 150000.0);
    assert_true(config->rope_factor == 32.0);
    assert_true(config->rope_beta_fast == 32.0);
    assert_true(config->rope_beta_slow == 1.0);
    assert_true(config->rope_original_ctx == 4096.0);
    assert_false(config->rope_truncate);
    for (int64_t i = 0; i < n_layer; i++)
        assert_int_equal(config->layer_is_window[i], i % 2 == 0);
}

static void published_files(void **state)
{
    (void)state;
    const char *const paths[] = {"tests/data/model/config-20b.json", "tests/data/model/config-120b.json"};
    for (int i = 0; i < 2; i++) {
        struct gs_config config;
        struct gs_error error;
        size_t size;
        char *text = test_file_read(paths[i], &size);
        assert_int_equal(gs_config_parse(paths[i], text, size, GS_LAYOUT_HUGGING_FACE, &config, &error),
                         GS_OK);
        assert_family(&config, i ? 36 : 24, i ? 128 : 32);
        assert_int_equal(config.n_stop_ids, 1);
        assert_int_equal(config.stop_ids[0], 200002);
        free(text);

        text = test_file_read("tests/data/model/generation_config.json", &size);
        assert_int_equal(gs_config_parse_generation("g", text, size, &config, &error), GS_OK);
        assert_int_equal(config.n_stop_ids, 3);
        assert_int_equal(config.stop_ids[0], 200002);
        assert_int_equal(config.stop_ids[1], 199999);
        assert_int_equal(config.stop_ids[2], 200012);
        free(text);
    }
}

static void original_layout(void **state)
{
    (void)state;
    struct gs_config config = accept(load_original(), GS_LAYOUT_ORIGINAL);
    assert_family(&config, 24, 32);
    assert_int_equal(config.n_stop_ids, 0);

    /* original/ without a config.json of its own takes the one beside it. */
    config = accept(load_20b(), GS_LAYOUT_ORIGINAL);
    assert_family(&config, 24, 32);

    const char *const required[] = {"num_hidden_layers",   "num_experts",         "experts_per_token",
                                    "vocab_size",          "hidden_size",         "intermediate_size",
                                    "num_key_value_heads", "num_attention_heads", "initial_context_length",
                                    "rope_theta",          "rope_scaling_factor"};
    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++) {
        json_t *root = load_original();
        json_object_del(root, required[i]);
        char part[80];
        snprintf(part, sizeof part, "%s is missing", required[i]);
        assert_refused(root, GS_LAYOUT_ORIGINAL, GS_MALFORMED, part);
    }
    json_t *root = load_original();
    json_object_set_new(root, "rope_scaling_factor", json_real(1.00001));
    assert_refused(root, GS_LAYOUT_ORIGINAL, GS_MALFORMED,
                   "initial_context_length times rope_scaling_factor");
    root = load_original();
    json_object_set_new(root, "rope_scaling_factor", json_real(512.0));
    assert_refused(root, GS_LAYOUT_ORIGINAL, GS_MALFORMED, "must be an integer 1 ... 1048576");
    root = load_original();
    json_object_set_new(root, "rope_ntk_beta", json_real(1.0));
    assert_refused(root, GS_LAYOUT_ORIGINAL, GS_MALFORMED,
                   "rope_ntk_beta is 1, must be more than rope_ntk_alpha");
}

static void what_files_omit(void **state)
{
    (void)state;
    const char *const optional[] = {"head_dim",
                                    "sliding_window",
                                    "layer_types",
                                    "rms_norm_eps",
                                    "swiglu_limit",
                                    "hidden_act",
                                    "attention_bias",
                                    "tie_word_embeddings",
                                    "quantization_config",
                                    "model_type",
                                    "architectures",
                                    "experts_per_token",
                                    "num_experts_per_tok",
                                    "rope_scaling",
                                    "rope_scaling.beta_fast",
                                    "rope_scaling.beta_slow",
                                    "rope_scaling.truncate"};
    for (size_t i = 0; i < sizeof optional / sizeof optional[0]; i++) {
        struct gs_config config = accept(with(optional[i], NULL), GS_LAYOUT_HUGGING_FACE);
        assert_family(&config, 24, 32);
        config = accept(with(optional[i], "null"), GS_LAYOUT_HUGGING_FACE);
        assert_family(&config, 24, 32);
    }
    struct gs_config config = accept(with("eos_token_id", NULL), GS_LAYOUT_HUGGING_FACE);
    assert_int_equal(config.n_stop_ids, 0);
    config = accept(with("swiglu_alpha", "1.5"), GS_LAYOUT_HUGGING_FACE);
    assert_true(config.swiglu_alpha == 1.5f);
    config = accept(with("rope_scaling.truncate", "true"), GS_LAYOUT_HUGGING_FACE);
    assert_true(config.rope_truncate);
}

static void both_spellings(void **state)
{
    (void)state;
    /* rope_parameters holds theta; rope_scaling and rope_theta may be gone, or agree. */
    json_t *root = load_20b();
    json_t *block = json_deep_copy(json_object_get(root, "rope_scaling"));
    json_object_set_new(block, "rope_theta", json_real(150000.0));
    json_object_set_new(root, "rope_parameters", block);
    json_object_del(root, "rope_scaling");
    json_t *bare = json_deep_copy(root);
    json_object_del(bare, "rope_theta");
    struct gs_config config = accept(bare, GS_LAYOUT_HUGGING_FACE);
    assert_family(&config, 24, 32);
    json_t *wrong = json_deep_copy(root);
    json_object_set_new(wrong, "rope_theta", json_real(10000.0));
    assert_refused(wrong, GS_LAYOUT_HUGGING_FACE, GS_MALFORMED,
                   "rope_theta is 10000.00000 but rope_parameters.rope_theta is 150000.0000");
    config = accept(root, GS_LAYOUT_HUGGING_FACE); /* 150000 and 150000.0 are the same */
    assert_family(&config, 24, 32);

    root = load_20b();
    json_object_set_new(root, "rope_parameters", json_pack("{s:s}", "rope_type", "default"));
    assert_refused(root, GS_LAYOUT_HUGGING_FACE, GS_MALFORMED,
                   "rope_parameters is an object but rope_scaling is an object, must be the same");
    assert_refused(with("num_experts_per_tok", "2"), GS_LAYOUT_HUGGING_FACE, GS_MALFORMED,
                   "num_experts_per_tok is 2 but experts_per_token is 4, must be the same");
    assert_refused(with("num_experts", "31"), GS_LAYOUT_HUGGING_FACE, GS_MALFORMED,
                   "num_local_experts is 32 but num_experts is 31, must be the same");

    root = load_20b();
    json_object_del(root, "num_local_experts");
    json_object_set_new(root, "num_experts", json_integer(32));
    config = accept(root, GS_LAYOUT_HUGGING_FACE);
    assert_family(&config, 24, 32);

    config = accept(with("rope_scaling", "{\"rope_type\": \"default\"}"), GS_LAYOUT_HUGGING_FACE);
    assert_true(config.rope_factor == 1.0);
    root = load_20b();
    block = json_object_get(root, "rope_scaling");
    json_object_del(block, "rope_type");
    json_object_set_new(block, "type", json_string("yarn"));
    config = accept(root, GS_LAYOUT_HUGGING_FACE);
    assert_family(&config, 24, 32);
}

static void layer_types(void **state)
{
    (void)state;
    json_t *root = load_20b();
    json_array_set_new(json_object_get(root, "layer_types"), 2, json_string("full_attention"));
    struct gs_config config = accept(root, GS_LAYOUT_HUGGING_FACE);
    assert_false(config.layer_is_window[2]);
    assert_true(config.layer_is_window[4]);

    root = load_20b();
    json_array_remove(json_object_get(root, "layer_types"), 23);
    assert_refused(root, GS_LAYOUT_HUGGING_FACE, GS_MALFORMED,
                   "layer_types has 23 entries, must have num_hidden_layers = 24");
    root = load_20b();
    json_array_set_new(json_object_get(root, "layer_types"), 5, json_string("chunked_attention"));
    assert_refused(root, GS_LAYOUT_HUGGING_FACE, GS_UNSUPPORTED, "layer_types[5] is \"chunked_attention\"");
    root = load_20b();
    json_array_set_new(json_object_get(root, "layer_types"), 5, json_integer(1));
    assert_refused(root, GS_LAYOUT_HUGGING_FACE, GS_MALFORMED,
                   "layer_types[5] is 1, must be \"sliding_attention\"");
    assert_refused(with("layer_types", "\"full_attention\""), GS_LAYOUT_HUGGING_FACE, GS_MALFORMED,
                   "layer_types is \"full_attention\", must be an array");
}

/* Sizes from the smallest to the largest that the bounds allow. */
static void any_size_of_the_architecture(void **state)
{
    (void)state;
    json_t *root = load_original();
    const char *const smallest[] = {"num_hidden_layers", "num_experts",         "experts_per_token",
                                    "vocab_size",        "num_attention_heads", "num_key_value_heads",
                                    "sliding_window"};
    for (size_t i = 0; i < sizeof smallest / sizeof smallest[0]; i++)
        json_object_set_new(root, smallest[i], json_integer(1));
    json_object_set_new(root, "hidden_size", json_integer(32));
    json_object_set_new(root, "intermediate_size", json_integer(32));
    json_object_set_new(root, "head_dim", json_integer(2));
    json_object_set_new(root, "initial_context_length", json_integer(1));
    json_object_set_new(root, "rope_scaling_factor", json_integer(1));
    struct gs_config config = accept(root, GS_LAYOUT_ORIGINAL);
    assert_int_equal(config.max_ctx, 1);
    assert_true(config.layer_is_window[0]);

    root = load_original();
    json_object_set_new(root, "num_hidden_layers", json_integer(GS_MAX_LAYERS));
    json_object_set_new(root, "num_experts", json_integer(GS_MAX_EXPERTS));
    json_object_set_new(root, "experts_per_token", json_integer(GS_MAX_EXPERTS));
    json_object_set_new(root, "vocab_size", json_integer(GS_MAX_VOCAB));
    json_object_set_new(root, "num_attention_heads", json_integer(GS_MAX_HEADS));
    json_object_set_new(root, "hidden_size", json_integer(GS_MAX_HIDDEN));
    json_object_set_new(root, "intermediate_size", json_integer(GS_MAX_HIDDEN));
    json_object_set_new(root, "head_dim", json_integer(GS_MAX_D_HEAD));
    json_object_set_new(root, "rope_scaling_factor", json_integer(256));
    config = accept(root, GS_LAYOUT_ORIGINAL);
    assert_int_equal(config.max_ctx, GS_MAX_CONTEXT);
    assert_true(config.layer_is_window[1022]);
    assert_false(config.layer_is_window[1023]);
}

/* ---------------------------------------------------------------- what is wrong */

static void every_integer_key(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        bool required;
    } keys[] = {
        {"num_hidden_layers", true},
        {"hidden_size", true},
        {"head_dim", false},
        {"num_attention_heads", true},
        {"num_key_value_heads", true},
        {"num_local_experts", true},
        {"intermediate_size", true},
        {"vocab_size", true},
        {"sliding_window", false},
        {"max_position_embeddings", true},
        {"rope_scaling.original_max_position_embeddings", true},
    };
    static const char *const values[] = {"0",
                                         "-1",
                                         "16777217",
                                         "9223372036854775807",
                                         "-9223372036854775808",
                                         "64.0",
                                         "6.4e1",
                                         "\"64\"",
                                         "true",
                                         "false",
                                         "[64]",
                                         "{}"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char part[120];
        for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
            snprintf(part, sizeof part, "%s is ", keys[i].key);
            assert_refused(with(keys[i].key, values[v]), GS_LAYOUT_HUGGING_FACE, GS_MALFORMED, part);
            assert_refused(with(keys[i].key, values[v]), GS_LAYOUT_HUGGING_FACE, GS_MALFORMED,
                           ", must be an integer ");
        }
        if (keys[i].required) {
            snprintf(part, sizeof part, "%s is missing, must be an integer ", keys[i].key);
            assert_refused(with(keys[i].key, NULL), GS_LAYOUT_HUGGING_FACE, GS_MALFORMED, part);
            assert_refused(with(keys[i].key, "null"), GS_LAYOUT_HUGGING_FACE, GS_MALFORMED, part);
        }
    }
    assert_refused(with("num_hidden_layers", "1000000000"), GS_LAYOUT_HUGGING_FACE, GS_MALFORMED,
                   "config.json: num_hidden_layers is 1000000000, must be an integer 1 ... 1024");
}

static void experts_per_token(void **state)
{
    (void)state;
    const char *const values[] = {"0", "-1", "1025", "4.0", "\"4\"", "true"};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        json_t *root = with("num_experts_per_tok", values[i]);
        json_object_del(root, "experts_per_token");
        assert_refused(root, GS_LAYOUT_HUGGING_FACE, GS_MALFORMED, "num_experts_per_tok is ");
    }
    json_t *root = with("num_experts_per_tok", NULL);
    json_object_del(root, "experts_per_token");
    assert_refused(root, GS_LAYOUT_HUGGING_FACE, GS_MALFORMED, "num_experts_per_tok is missing");
}

static void every_real_key(void **state)
{
    (void)state;
    const char *const keys[] = {
        "rms_norm_eps",        "swiglu_limit",           "swiglu_alpha",          "rope_theta",
        "rope_scaling.factor", "rope_scaling.beta_fast", "rope_scaling.beta_slow"};
    const char *const values[] = {"0",     "0.0",  "-1", "-0.5", "1e300", "9223372036854775807",
                                  "\"1\"", "true", "[]"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
            char part[120];
            snprintf(part, sizeof part, "%s is ", keys[i]);
            assert_refused(with(keys[i], values[v]), GS_LAYOUT_HUGGING_FACE, GS_MALFORMED, part);
            assert_refused(with(keys[i], values[v]), GS_LAYOUT_HUGGING_FACE, GS_MALFORMED,
                           ", must be a number ");
        }
    }
    assert_refused(with("rope_theta", NULL), GS_LAYOUT_HUGGING_FACE, GS_MALFORMED, "rope_theta is missing");
    assert_refused(with("rope_scaling.factor", NULL), GS_LAYOUT_HUGGING_FACE, GS_MALFORMED,
                   "rope_scaling.factor is missing, must be a number 1 ... 1e+06");
    assert_refused(with("rope_scaling.beta_fast", "0.5"), GS_LAYOUT_HUGGING_FACE, GS_MALFORMED,
                   "beta_fast is 0.5, must be more than beta_slow, which is 1");
}

static void proportions(void **state)
{
    (void)state;
    assert_refused(with("num_attention_heads", "63"), GS_LAYOUT_HUGGING_FACE, GS_MALFORMED,
                   "num_attention_heads is 63, must be a multiple of num_key_value_heads, which is 8");
    assert_refused(with("head_dim", "63"), GS_LAYOUT_HUGGING_FACE, GS_MALFORMED,
                   "head_dim is 63, must be even");
    assert_refused(with("hidden_size", "2881"), GS_LAYOUT_HUGGING_FACE, GS_UNSUPPORTED,
                   "hidden_size is 2881, must be a multiple of 32");
    assert_refused(with("intermediate_size", "2864"), GS_LAYOUT_HUGGING_FACE, GS_UNSUPPORTED,
                   "intermediate_size is 2864, must be a multiple of 32");
    assert_refused(with("num_local_experts", "3"), GS_LAYOUT_HUGGING_FACE, GS_MALFORMED,
                   "experts_per_token is 4, must be at most the number of experts, 3");
}

static void other_models(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value;
        gs_status code;
        const char *part;
    } cases[] = {
        {"model_type", "\"llama\"", GS_UNSUPPORTED, "model_type is \"llama\", must be \"gpt_oss\""},
        {"model_type", "7", GS_MALFORMED, "model_type is 7, must be \"gpt_oss\""},
        {"architectures", "[\"LlamaForCausalLM\"]", GS_UNSUPPORTED,
         "architectures is [\"LlamaForCausalLM\"], must"},
        {"architectures", "[\"GptOssForCausalLM\", \"X\"]", GS_UNSUPPORTED, "\"GptOssForCausalLM\", ...]"},
        {"architectures", "[]", GS_MALFORMED, "architectures is an array"},
        {"architectures", "[1]", GS_MALFORMED, "architectures is 1"},
        {"architectures", "\"GptOssForCausalLM\"", GS_MALFORMED,
         "architectures is \"GptOssForCausalLM\", must be ["},
        {"hidden_act", "\"gelu\"", GS_UNSUPPORTED, "hidden_act is \"gelu\", must be \"silu\""},
        {"tie_word_embeddings", "true", GS_UNSUPPORTED, "tie_word_embeddings is true, must be false"},
        {"tie_word_embeddings", "1", GS_MALFORMED, "tie_word_embeddings is 1, must be true or false"},
        {"attention_bias", "false", GS_UNSUPPORTED, "attention_bias is false, must be true"},
        {"attention_bias", "\"true\"", GS_MALFORMED, "attention_bias is \"true\", must be true or false"},
        {"quantization_config.quant_method", "\"gptq\"", GS_UNSUPPORTED,
         "quantization_config.quant_method is \"gptq\", must be \"mxfp4\""},
        {"quantization_config.quant_method", "4", GS_MALFORMED, "quantization_config.quant_method is 4"},
        {"quantization_config", "\"mxfp4\"", GS_MALFORMED,
         "quantization_config is \"mxfp4\", must be an object"},
        {"rope_scaling", "\"yarn\"", GS_MALFORMED, "rope_scaling is \"yarn\", must be an object"},
        {"rope_scaling.rope_type", "\"linear\"", GS_UNSUPPORTED,
         "rope_scaling.rope_type is \"linear\", must be \"yarn\" or \"default\""},
        {"rope_scaling.rope_type", NULL, GS_MALFORMED, "rope_scaling.rope_type is missing"},
        {"rope_scaling.truncate", "0", GS_MALFORMED, "rope_scaling.truncate is 0, must be true or false"},
        {"rope_scaling.attention_factor", "1.2", GS_UNSUPPORTED, "rope_scaling.attention_factor is 1.2"},
        {"rope_scaling.mscale", "1.0", GS_UNSUPPORTED, "rope_scaling.mscale is 1.0"},
        {"rope_scaling.partial_rotary_factor", "0.5", GS_UNSUPPORTED,
         "rope_scaling.partial_rotary_factor is 0.5"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_refused(with(cases[i].key, cases[i].value), GS_LAYOUT_HUGGING_FACE, cases[i].code,
                       cases[i].part);
}

static void texts_that_are_not_a_configuration(void **state)
{
    (void)state;
    assert_text_refused("", 0, GS_MALFORMED, "config.json: line 1");
    assert_text_refused("[]", 2, GS_MALFORMED, "config.json: is an array, must be a JSON object");
    assert_text_refused("{}", 2, GS_MALFORMED, "num_hidden_layers is missing");
    assert_text_refused("{\"a\": 1,\n \"a\": 2}", 17, GS_MALFORMED, "config.json: line 2, column");
    assert_text_refused("{\"a\": {\"b\": 1, \"b\": 1}}", 24, GS_MALFORMED, "duplicate");
    assert_text_refused("{\"num_hidden_layers\": 99999999999999999999}", 43, GS_MALFORMED, "too big integer");
    assert_text_refused("{\"a\": \"\xff\"}", 10, GS_MALFORMED, "config.json: line 1");
    assert_text_refused("{\"a\": 1} x", 10, GS_MALFORMED, "config.json: line 1");
    size_t size = (1 << 20) + 1;
    char *text = malloc(size);
    memset(text, ' ', size);
    assert_text_refused(text, size, GS_MALFORMED, "has 1048577 bytes, must have at most 1048576");
    memset(text, '[', 100000);
    assert_text_refused(text, 100000, GS_MALFORMED, "config.json: line 1");
    free(text);

    struct gs_config config;
    struct gs_error error;
    assert_int_equal(gs_config_parse("a\nb\x1b[31m", "x", 1, GS_LAYOUT_HUGGING_FACE, &config, &error),
                     GS_MALFORMED);
    assert_null(strchr(error.message, '\n'));
    assert_null(strchr(error.message, '\x1b'));
    assert_int_equal(gs_config_parse("c", "x", 1, GS_LAYOUT_HUGGING_FACE, &config, NULL), GS_MALFORMED);
}

static void stop_ids(void **state)
{
    (void)state;
    struct gs_config config = accept(with("eos_token_id", "[3, 1, 3, 201087, 0]"), GS_LAYOUT_HUGGING_FACE);
    assert_int_equal(config.n_stop_ids, 4);
    assert_int_equal(config.stop_ids[0], 3);
    assert_int_equal(config.stop_ids[2], 201087);
    const char *const wrong[] = {"201088",      "-1",    "1.0",    "\"1\"", "true",
                                 "[1, 201088]", "[[1]]", "[null]", "{}"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_refused(with("eos_token_id", wrong[i]), GS_LAYOUT_HUGGING_FACE, GS_MALFORMED,
                       "must be an integer 0 ... 201087");
    assert_refused(with("eos_token_id", "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]"), GS_LAYOUT_HUGGING_FACE,
                   GS_UNSUPPORTED, "eos_token_id has more than 16 ids");

    struct gs_error error;
    const char *text = "{\"eos_token_id\": 7}";
    assert_int_equal(gs_config_parse_generation("g", text, strlen(text), &config, &error), GS_OK);
    assert_int_equal(config.n_stop_ids, 1);
    assert_int_equal(config.stop_ids[0], 7);
    assert_int_equal(gs_config_parse_generation("g", "{}", 2, &config, &error), GS_OK);
    assert_int_equal(config.n_stop_ids, 1);
    text = "{\"eos_token_id\": [7, 300000]}";
    assert_int_equal(gs_config_parse_generation("g", text, strlen(text), &config, &error), GS_MALFORMED);
    assert_string_equal(error.message, "g: eos_token_id is 300000, must be an integer 0 ... 201087");
    assert_int_equal(gs_config_parse_generation("g", "{", 1, &config, &error), GS_MALFORMED);
}

/* Through a checkpoint: the files are found, and generation_config.json comes before config.json. */
static void from_a_folder(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_default();
    struct tiny_model *model = tiny_model_make(&options);
    char *folder = test_folder_make();
    struct gs_checkpoint *checkpoint;
    struct gs_config config;
    struct gs_error error = {0};
    tiny_model_write(model, folder);
    assert_int_equal(gs_checkpoint_open(folder, &checkpoint, &error), GS_OK);
    assert_int_equal(gs_config_read(checkpoint, &config, &error), GS_OK);
    assert_int_equal(config.d_model, options.d_model);
    assert_int_equal(config.max_ctx, options.max_ctx);
    assert_int_equal(config.n_stop_ids, 2);
    assert_int_equal(config.stop_ids[1], 126);
    gs_checkpoint_close(checkpoint);

    tiny_model_edit_config(model, "\"hidden_size\": 64", "\"hidden_size\": 65");
    tiny_model_write(model, folder);
    assert_int_equal(gs_checkpoint_open(folder, &checkpoint, &error), GS_OK);
    assert_int_equal(gs_config_read(checkpoint, &config, &error), GS_UNSUPPORTED);
    assert_non_null(strstr(error.message, "config.json: hidden_size is 65"));
    assert_non_null(strstr(error.message, folder));
    gs_checkpoint_close(checkpoint);
    test_folder_remove(folder);
    tiny_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_files),   cmocka_unit_test(original_layout),
        cmocka_unit_test(what_files_omit),   cmocka_unit_test(both_spellings),
        cmocka_unit_test(layer_types),       cmocka_unit_test(any_size_of_the_architecture),
        cmocka_unit_test(every_integer_key), cmocka_unit_test(experts_per_token),
        cmocka_unit_test(every_real_key),    cmocka_unit_test(proportions),
        cmocka_unit_test(other_models),      cmocka_unit_test(texts_that_are_not_a_configuration),
        cmocka_unit_test(stop_ids),          cmocka_unit_test(from_a_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
