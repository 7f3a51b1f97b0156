#include "model/config.h"

#include "base/status.h"
#include "model/gguf_config.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CONFIG_BYTES (1 << 20)

/* What transformers takes where a file is silent. */
#define DEFAULT_D_HEAD       64
#define DEFAULT_WINDOW       128
#define DEFAULT_EPS          1e-5
#define DEFAULT_SWIGLU_LIMIT 7.0
#define DEFAULT_SWIGLU_ALPHA 1.702
#define DEFAULT_ROPE_FACTOR  32.0
#define DEFAULT_BETA_FAST    32.0
#define DEFAULT_BETA_SLOW    1.0
#define DEFAULT_ORIGINAL_CTX 4096.0

/* The first failure is kept and every later read does nothing, so that callers need not check each one. */
struct reader {
    struct gs_quoted name;
    enum gs_layout layout;
    const json_t *root;
    const char *within; /* the key of the object being read, for messages; NULL at the top */
    gs_status status;
    struct gs_error *error;
};

__attribute__((format(printf, 3, 4))) static void refuse(struct reader *reader, gs_status code,
                                                         const char *format, ...)
{
    if (reader->status != GS_OK)
        return;
    char text[700];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    reader->status = gs_fail(reader->error, code, "%s: %s%s%s", reader->name.text,
                             reader->within ? reader->within : "", reader->within ? "." : "", text);
}

/* A value as a message shows it. */
static struct gs_quoted show(const json_t *value)
{
    struct gs_quoted shown;
    switch (json_typeof(value)) {
    case JSON_STRING:
        shown = gs_quote_bytes(json_string_value(value), json_string_length(value));
        memmove(shown.text + 1, shown.text, sizeof shown.text - 1);
        shown.text[0] = '"';
        shown.text[sizeof shown.text - 2] = '\0';
        strcat(shown.text, "\"");
        break;
    case JSON_INTEGER:
        snprintf(shown.text, sizeof shown.text, "%lld", (long long)json_integer_value(value));
        break;
    case JSON_REAL:
        snprintf(shown.text, sizeof shown.text, "%#.10g", json_real_value(value));
        break;
    default:
        snprintf(shown.text, sizeof shown.text, "%s",
                 json_is_object(value)  ? "an object"
                 : json_is_array(value) ? "an array"
                 : json_is_true(value)  ? "true"
                 : json_is_false(value) ? "false"
                                        : "null");
    }
    return shown;
}

/* The value of `key` in an object; NULL if it is absent or null. */
static const json_t *find(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static bool same(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

/* One of two spellings; *found names the one that the file has, or `key`. */
static const json_t *find_either(struct reader *reader, const json_t *object, const char *key,
                                 const char *other, const char **found)
{
    const json_t *value = find(object, key);
    const json_t *second = other ? find(object, other) : NULL;
    *found = !value && second ? other : key;
    if (value && second && !same(value, second))
        refuse(reader, GS_MALFORMED, "%s is %s but %s is %s, must be the same", key, show(value).text, other,
               show(second).text);
    return value ? value : second;
}

static int64_t check_integer(struct reader *reader, const char *key, const json_t *value, int64_t low,
                             int64_t high)
{
    if (json_is_integer(value) && json_integer_value(value) >= low && json_integer_value(value) <= high)
        return json_integer_value(value);
    refuse(reader, GS_MALFORMED, "%s is %s, must be an integer %lld ... %lld", key,
           value ? show(value).text : "missing", (long long)low, (long long)high);
    return low;
}

static double check_real(struct reader *reader, const char *key, const json_t *value, double low, double high)
{
    if (json_is_number(value) && json_number_value(value) >= low && json_number_value(value) <= high)
        return json_number_value(value);
    refuse(reader, GS_MALFORMED, "%s is %s, must be a number %g ... %g", key,
           value ? show(value).text : "missing", low, high);
    return low;
}

static double read_real(struct reader *reader, const json_t *object, const char *key, double low, double high,
                        double otherwise)
{
    const json_t *value = find(object, key);
    return value ? check_real(reader, key, value, low, high) : otherwise;
}

static bool read_flag(struct reader *reader, const json_t *object, const char *key, bool otherwise)
{
    const json_t *value = find(object, key);
    if (value && !json_is_boolean(value))
        refuse(reader, GS_MALFORMED, "%s is %s, must be true or false", key, show(value).text);
    return value ? json_is_true(value) : otherwise;
}

/* A key that may be absent, but must hold this text if it is there. */
static void require_text(struct reader *reader, const json_t *object, const char *key, const char *text)
{
    const json_t *value = find(object, key);
    if (value && !json_is_string(value))
        refuse(reader, GS_MALFORMED, "%s is %s, must be \"%s\"", key, show(value).text, text);
    else if (value && strcmp(json_string_value(value), text) != 0)
        refuse(reader, GS_UNSUPPORTED, "%s is %s, must be \"%s\"", key, show(value).text, text);
}

/* ---------------------------------------------------------------- shape */

struct integer_key {
    const char *key;      /* in the Hugging Face layout */
    const char *original; /* in the original layout; NULL: the same */
    size_t offset;
    int64_t low, high;
    int64_t otherwise; /* 0: the key is required */
};

static const struct integer_key integer_keys[] = {
    {"num_hidden_layers", NULL, offsetof(struct gs_config, n_layer), 1, GS_MAX_LAYERS, 0},
    {"hidden_size", NULL, offsetof(struct gs_config, d_model), 32, GS_MAX_HIDDEN, 0},
    {"head_dim", NULL, offsetof(struct gs_config, d_head), 2, GS_MAX_D_HEAD, DEFAULT_D_HEAD},
    {"num_attention_heads", NULL, offsetof(struct gs_config, n_head), 1, GS_MAX_HEADS, 0},
    {"num_key_value_heads", NULL, offsetof(struct gs_config, n_kv_head), 1, GS_MAX_HEADS, 0},
    {"num_local_experts", "num_experts", offsetof(struct gs_config, n_expert), 1, GS_MAX_EXPERTS, 0},
    {"num_experts_per_tok", "experts_per_token", offsetof(struct gs_config, n_active), 1, GS_MAX_EXPERTS, 0},
    {"intermediate_size", NULL, offsetof(struct gs_config, d_ff), 32, GS_MAX_HIDDEN, 0},
    {"vocab_size", NULL, offsetof(struct gs_config, n_vocab), 1, GS_MAX_VOCAB, 0},
    {"sliding_window", NULL, offsetof(struct gs_config, window), 1, GS_MAX_CONTEXT, DEFAULT_WINDOW},
};

static void read_integers(struct reader *reader, struct gs_config *config)
{
    for (size_t i = 0; i < sizeof integer_keys / sizeof integer_keys[0]; i++) {
        const struct integer_key *entry = &integer_keys[i];
        bool renamed = reader->layout == GS_LAYOUT_ORIGINAL && entry->original;
        const char *first = renamed ? entry->original : entry->key;
        const char *second = renamed ? entry->key : entry->original;
        const char *key;
        const json_t *value = find_either(reader, reader->root, first, second, &key);
        int64_t number = entry->otherwise;
        if (value || number == 0)
            number = check_integer(reader, key, value, entry->low, entry->high);
        memcpy((char *)config + entry->offset, &number, sizeof number);
    }
}

static void check_proportions(struct reader *reader, const struct gs_config *config)
{
    if (config->d_model % 32 != 0)
        refuse(reader, GS_UNSUPPORTED, "hidden_size is %lld, must be a multiple of 32 (the MXFP4 group)",
               (long long)config->d_model);
    if (config->d_ff % 32 != 0)
        refuse(reader, GS_UNSUPPORTED,
               "intermediate_size is %lld, must be a multiple of 32 (the MXFP4 group)",
               (long long)config->d_ff);
    if (config->d_head % 2 != 0)
        refuse(reader, GS_MALFORMED, "head_dim is %lld, must be even", (long long)config->d_head);
    if (config->n_head % config->n_kv_head != 0)
        refuse(reader, GS_MALFORMED,
               "num_attention_heads is %lld, must be a multiple of num_key_value_heads, which is %lld",
               (long long)config->n_head, (long long)config->n_kv_head);
    if (config->n_active > config->n_expert)
        refuse(reader, GS_MALFORMED, "experts_per_token is %lld, must be at most the number of experts, %lld",
               (long long)config->n_active, (long long)config->n_expert);
}

static void read_layer_types(struct reader *reader, struct gs_config *config)
{
    const json_t *types = find(reader->root, "layer_types");
    if (!types) {
        for (int64_t i = 0; i < config->n_layer; i++)
            config->layer_is_window[i] = i % 2 == 0;
        return;
    }
    if (!json_is_array(types)) {
        refuse(reader, GS_MALFORMED, "layer_types is %s, must be an array", show(types).text);
        return;
    }
    if (json_array_size(types) != (size_t)config->n_layer) {
        refuse(reader, GS_MALFORMED, "layer_types has %zu entries, must have num_hidden_layers = %lld",
               json_array_size(types), (long long)config->n_layer);
        return;
    }
    for (size_t i = 0; i < json_array_size(types); i++) {
        const json_t *type = json_array_get(types, i);
        const char *text = json_is_string(type) ? json_string_value(type) : "";
        bool window = strcmp(text, "sliding_attention") == 0;
        if (!window && strcmp(text, "full_attention") != 0)
            refuse(reader, json_is_string(type) ? GS_UNSUPPORTED : GS_MALFORMED,
                   "layer_types[%zu] is %s, must be \"sliding_attention\" or \"full_attention\"", i,
                   show(type).text);
        config->layer_is_window[i] = window;
    }
}

/* ---------------------------------------------------------------- identity */

static void check_identity(struct reader *reader)
{
    const json_t *root = reader->root;
    require_text(reader, root, "model_type", "gpt_oss");
    const json_t *names = find(root, "architectures");
    if (names) {
        const json_t *name = json_array_get(names, 0);
        if (!json_is_string(name))
            refuse(reader, GS_MALFORMED, "architectures is %s, must be [\"GptOssForCausalLM\"]",
                   name ? show(name).text : show(names).text);
        else if (json_array_size(names) != 1 || strcmp(json_string_value(name), "GptOssForCausalLM") != 0)
            refuse(reader, GS_UNSUPPORTED, "architectures is [%s%s], must be [\"GptOssForCausalLM\"]",
                   show(name).text, json_array_size(names) > 1 ? ", ..." : "");
    }
    require_text(reader, root, "hidden_act", "silu");
    if (read_flag(reader, root, "tie_word_embeddings", false))
        refuse(reader, GS_UNSUPPORTED, "tie_word_embeddings is true, must be false");
    if (!read_flag(reader, root, "attention_bias", true))
        refuse(reader, GS_UNSUPPORTED, "attention_bias is false, must be true");

    const json_t *quantization = find(root, "quantization_config");
    if (quantization && !json_is_object(quantization))
        refuse(reader, GS_MALFORMED, "quantization_config is %s, must be an object", show(quantization).text);
    reader->within = "quantization_config";
    require_text(reader, quantization, "quant_method", "mxfp4");
    reader->within = NULL;
}

/* ---------------------------------------------------------------- rotary embedding */

static void check_rope_type(struct reader *reader, const json_t *block, bool *yarn)
{
    const char *key;
    const json_t *type = find_either(reader, block, "rope_type", "type", &key);
    const char *text = json_is_string(type) ? json_string_value(type) : "";
    *yarn = strcmp(text, "yarn") == 0;
    if (!*yarn && strcmp(text, "default") != 0)
        refuse(reader, json_is_string(type) ? GS_UNSUPPORTED : GS_MALFORMED,
               "%s is %s, must be \"yarn\" or \"default\"", key, type ? show(type).text : "missing");

    static const char *const unknown[] = {"attention_factor", "mscale", "mscale_all_dim"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        const json_t *value = find(block, unknown[i]);
        if (value)
            refuse(reader, GS_UNSUPPORTED, "%s is %s, must be absent (the factor alone gives the scaling)",
                   unknown[i], show(value).text);
    }
    if (read_real(reader, block, "partial_rotary_factor", 0.0, 1.0, 1.0) != 1.0)
        refuse(reader, GS_UNSUPPORTED, "partial_rotary_factor is %s, must be 1",
               show(find(block, "partial_rotary_factor")).text);
}

static void read_yarn(struct reader *reader, const json_t *block, struct gs_config *config)
{
    config->rope_factor = check_real(reader, "factor", find(block, "factor"), 1.0, 1e6);
    config->rope_beta_fast = read_real(reader, block, "beta_fast", 1e-3, 1e6, DEFAULT_BETA_FAST);
    config->rope_beta_slow = read_real(reader, block, "beta_slow", 1e-3, 1e6, DEFAULT_BETA_SLOW);
    config->rope_original_ctx =
        (double)check_integer(reader, "original_max_position_embeddings",
                              find(block, "original_max_position_embeddings"), 1, GS_MAX_CONTEXT);
    config->rope_truncate = read_flag(reader, block, "truncate", false);
}

/* rope_scaling (theta beside it) or rope_parameters (theta inside). */
static void read_rope_block(struct reader *reader, const json_t *block, const char *key,
                            struct gs_config *config)
{
    bool yarn = false;
    if (!json_is_object(block)) {
        refuse(reader, GS_MALFORMED, "%s is %s, must be an object", key, show(block).text);
        return;
    }
    reader->within = key;
    check_rope_type(reader, block, &yarn);
    config->rope_factor = 1.0;
    if (yarn)
        read_yarn(reader, block, config);
    reader->within = NULL;
}
static void read_rope(struct reader *reader, struct gs_config *config)
{
    const json_t *root = reader->root;
    const char *key;
    const json_t *block = find_either(reader, root, "rope_parameters", "rope_scaling", &key);

    config->rope_factor = DEFAULT_ROPE_FACTOR;
    config->rope_beta_fast = DEFAULT_BETA_FAST;
    config->rope_beta_slow = DEFAULT_BETA_SLOW;
    config->rope_original_ctx = DEFAULT_ORIGINAL_CTX;
    if (block) {
        read_rope_block(reader, block, key, config);
    } else if (reader->layout == GS_LAYOUT_ORIGINAL || find(root, "rope_scaling_factor")) {
        config->rope_factor =
            check_real(reader, "rope_scaling_factor", find(root, "rope_scaling_factor"), 1.0, 1e6);
        config->rope_beta_slow = read_real(reader, root, "rope_ntk_alpha", 1e-3, 1e6, DEFAULT_BETA_SLOW);
        config->rope_beta_fast = read_real(reader, root, "rope_ntk_beta", 1e-3, 1e6, DEFAULT_BETA_FAST);
        config->rope_original_ctx = (double)check_integer(
            reader, "initial_context_length", find(root, "initial_context_length"), 1, GS_MAX_CONTEXT);
    }
    if (config->rope_beta_fast <= config->rope_beta_slow)
        refuse(reader, GS_MALFORMED, "%s is %g, must be more than %s, which is %g",
               block ? "beta_fast" : "rope_ntk_beta", config->rope_beta_fast,
               block ? "beta_slow" : "rope_ntk_alpha", config->rope_beta_slow);

    const json_t *outer = find(root, "rope_theta");
    const json_t *inner = find(block, "rope_theta");
    if (outer && inner && !same(outer, inner))
        refuse(reader, GS_MALFORMED, "rope_theta is %s but %s.rope_theta is %s, must be the same",
               show(outer).text, key, show(inner).text);
    config->rope_theta = check_real(reader, "rope_theta", inner ? inner : outer, 2.0, 1e12);
}

static void read_max_ctx(struct reader *reader, struct gs_config *config)
{
    const json_t *value = find(reader->root, "max_position_embeddings");
    if (!value && find(reader->root, "rope_scaling_factor")) {
        double positions = config->rope_original_ctx * config->rope_factor;
        if (positions != floor(positions) || positions > GS_MAX_CONTEXT)
            refuse(reader, GS_MALFORMED,
                   "initial_context_length times rope_scaling_factor is %.10g, must be an integer 1 ... %d",
                   positions, GS_MAX_CONTEXT);
        config->max_ctx = reader->status == GS_OK ? (int64_t)positions : 1;
        return;
    }
    config->max_ctx = check_integer(reader, "max_position_embeddings", value, 1, GS_MAX_CONTEXT);
}

/* ---------------------------------------------------------------- stop ids */

static void add_stop_id(struct reader *reader, struct gs_config *config, const json_t *value)
{
    int32_t id = (int32_t)check_integer(reader, "eos_token_id", value, 0, config->n_vocab - 1);
    for (size_t i = 0; i < config->n_stop_ids; i++) {
        if (config->stop_ids[i] == id)
            return;
    }
    if (config->n_stop_ids == GS_MAX_STOP_IDS) {
        refuse(reader, GS_UNSUPPORTED, "eos_token_id has more than %d ids", GS_MAX_STOP_IDS);
        return;
    }
    config->stop_ids[config->n_stop_ids++] = id;
}

static void read_stop_ids(struct reader *reader, struct gs_config *config)
{
    const json_t *value = find(reader->root, "eos_token_id");
    if (!value)
        return;
    config->n_stop_ids = 0;
    if (!json_is_array(value)) {
        add_stop_id(reader, config, value);
        return;
    }
    for (size_t i = 0; i < json_array_size(value) && reader->status == GS_OK; i++)
        add_stop_id(reader, config, json_array_get(value, i));
}

/* ---------------------------------------------------------------- entry points */

static gs_status open_reader(struct reader *reader, const char *name, const char *text, size_t size,
                             json_t **root, struct gs_error *error)
{
    *root = NULL;
    reader->name = gs_quote(name);
    reader->status = GS_OK;
    reader->error = error;
    if (size > MAX_CONFIG_BYTES) {
        refuse(reader, GS_MALFORMED, "has %zu bytes, must have at most %d", size, MAX_CONFIG_BYTES);
        return reader->status;
    }
    json_error_t problem;
    *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &problem);
    if (!*root)
        refuse(reader, GS_MALFORMED, "line %d, column %d: %s", problem.line, problem.column,
               gs_quote(problem.text).text);
    else if (!json_is_object(*root))
        refuse(reader, GS_MALFORMED, "is an array, must be a JSON object");
    reader->root = *root;
    return reader->status;
}

gs_status gs_config_parse(const char *name, const char *text, size_t size, enum gs_layout layout,
                          struct gs_config *config, struct gs_error *error)
{
    json_t *root;
    struct reader reader = {.layout = layout};
    memset(config, 0, sizeof *config);
    if (open_reader(&reader, name, text, size, &root, error) != GS_OK)
        goto cleanup;

    check_identity(&reader);
    read_integers(&reader, config);
    if (reader.status != GS_OK)
        goto cleanup; /* what follows divides by these numbers and indexes with them */
    check_proportions(&reader, config);
    read_layer_types(&reader, config);
    config->rms_norm_eps = (float)read_real(&reader, root, "rms_norm_eps", 1e-20, 1.0, DEFAULT_EPS);
    config->swiglu_limit = (float)read_real(&reader, root, "swiglu_limit", 1e-3, 1e6, DEFAULT_SWIGLU_LIMIT);
    config->swiglu_alpha = (float)read_real(&reader, root, "swiglu_alpha", 1e-3, 1e3, DEFAULT_SWIGLU_ALPHA);
    read_rope(&reader, config);
    read_max_ctx(&reader, config);
    read_stop_ids(&reader, config);

cleanup:
    json_decref(root);
    return reader.status;
}

gs_status gs_config_parse_generation(const char *name, const char *text, size_t size,
                                     struct gs_config *config, struct gs_error *error)
{
    json_t *root;
    struct reader reader = {.layout = GS_LAYOUT_HUGGING_FACE};
    if (open_reader(&reader, name, text, size, &root, error) == GS_OK)
        read_stop_ids(&reader, config);
    json_decref(root);
    return reader.status;
}

/* Maps a file that must lie in its own folder: links out of it are not followed. */
static gs_status open_file(const char *path, struct gs_file_map **map, struct gs_error *error)
{
    char *folder = strdup(path);
    if (!folder)
        return gs_fail_memory(error, strlen(path) + 1);
    char *slash = strrchr(folder, '/');
    if (slash == folder)
        slash++; /* the root folder keeps its name */
    if (slash)
        *slash = '\0';
    gs_status status = gs_file_map_open(path, slash ? folder : ".", map, error);
    free(folder);
    return status;
}

static const char *text_of(const struct gs_file_map *map)
{
    return map->data ? (const char *)map->data : "";
}

gs_status gs_config_read(const struct gs_checkpoint *checkpoint, struct gs_config *config,
                         struct gs_error *error)
{
    gs_status status;
    struct gs_file_map *main_file = NULL;
    struct gs_file_map *generation = NULL;
    const char *path = gs_checkpoint_config(checkpoint);
    const char *generation_path = gs_checkpoint_generation_config(checkpoint);

    if (gs_checkpoint_layout(checkpoint) == GS_LAYOUT_GGUF)
        return gs_gguf_config_read(checkpoint, config, error);
    if (!path)
        return gs_fail(error, GS_IO, "%s: config.json is missing, must lie beside the weights",
                       gs_quote(gs_checkpoint_folder(checkpoint)).text);
    status = open_file(path, &main_file, error);
    if (status != GS_OK)
        goto cleanup;
    status = gs_config_parse(path, text_of(main_file), main_file->size, gs_checkpoint_layout(checkpoint),
                             config, error);
    if (status != GS_OK || !generation_path)
        goto cleanup;
    status = open_file(generation_path, &generation, error);
    if (status != GS_OK)
        goto cleanup;
    status =
        gs_config_parse_generation(generation_path, text_of(generation), generation->size, config, error);

cleanup:
    gs_file_map_close(main_file);
    gs_file_map_close(generation);
    return status;
}
