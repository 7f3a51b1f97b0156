#include "model/gguf_config.h"

#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ARCHITECTURE "gpt-oss"
#define EMBEDDING    "token_embd.weight"

/* What the files are silent about. */
#define SWIGLU_LIMIT      7.0f
#define SWIGLU_ALPHA      1.702f
#define DEFAULT_BETA_FAST 32.0
#define DEFAULT_BETA_SLOW 1.0
#define DEFAULT_PERIOD    2 /* layers; the last of each period is without a window */
#define CONTROL_TOKEN     3 /* in tokenizer.ggml.token_type */

/* The first failure is kept and every later read does nothing, so that callers need not check each one. */
struct reader {
    struct gs_quoted name;
    const struct gs_gguf *gguf;
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
    reader->status = gs_fail(reader->error, code, "%s: %s", reader->name.text, text);
}

static const struct gs_gguf_entry *find(const struct reader *reader, const char *key)
{
    char full[120];
    snprintf(full, sizeof full, ARCHITECTURE ".%s", key);
    return gs_gguf_find(reader->gguf, full);
}

struct shown {
    char text[sizeof(struct gs_quoted) + 2]; /* a text has quotation marks */
};

/* A value as a message shows it. */
static struct shown show(const struct gs_gguf_entry *entry)
{
    struct shown shown = {"missing"};
    const char *text;
    size_t size;
    int64_t integer;
    double real;
    if (!entry)
        return shown;
    if (entry->is_array)
        snprintf(shown.text, sizeof shown.text, "an array of %s", gs_gguf_type_name(entry->type));
    else if (gs_gguf_text(entry, &text, &size))
        snprintf(shown.text, sizeof shown.text, "\"%s\"", gs_quote_bytes(text, size).text);
    else if (gs_gguf_real(entry, &real))
        snprintf(shown.text, sizeof shown.text, "%#.10g", real);
    else if (gs_gguf_integer(entry, 0, &integer))
        snprintf(shown.text, sizeof shown.text, "%lld", (long long)integer);
    else
        snprintf(shown.text, sizeof shown.text, "more than 2^63");
    return shown;
}

static int64_t read_integer(struct reader *reader, const char *key, int64_t low, int64_t high)
{
    const struct gs_gguf_entry *entry = find(reader, key);
    int64_t value;
    if (entry && !entry->is_array && gs_gguf_integer(entry, 0, &value) && value >= low && value <= high)
        return value;
    refuse(reader, GS_MALFORMED, ARCHITECTURE ".%s is %s, must be an integer %lld ... %lld", key,
           show(entry).text, (long long)low, (long long)high);
    return low;
}

/* `otherwise` 0: the key is required. */
static double read_real(struct reader *reader, const char *key, double low, double high, double otherwise)
{
    const struct gs_gguf_entry *entry = find(reader, key);
    double value;
    if (!entry && otherwise != 0.0)
        return otherwise;
    if (entry && gs_gguf_real(entry, &value) && value >= low && value <= high)
        return value;
    refuse(reader, GS_MALFORMED, ARCHITECTURE ".%s is %s, must be a number %g ... %g", key, show(entry).text,
           low, high);
    return low;
}

/* A text that must be one of two; the second may be NULL. True: it is the first. */
static bool read_choice(struct reader *reader, const char *key, const struct gs_gguf_entry *entry,
                        const char *first, const char *second)
{
    const char *text;
    size_t size;
    bool is_text = entry && gs_gguf_text(entry, &text, &size);
    if (is_text && size == strlen(first) && memcmp(text, first, size) == 0)
        return true;
    if (!is_text || !second || size != strlen(second) || memcmp(text, second, size) != 0)
        refuse(reader, is_text ? GS_UNSUPPORTED : GS_MALFORMED, "%s is %s, must be \"%s\"%s%s%s", key,
               show(entry).text, first, second ? " or \"" : "", second ? second : "", second ? "\"" : "");
    return false;
}

/* ---------------------------------------------------------------- shape */

static const struct integer_key {
    const char *key;
    size_t offset;
    int64_t low, high;
} integer_keys[] = {
    {"block_count", offsetof(struct gs_config, n_layer), 1, GS_MAX_LAYERS},
    {"embedding_length", offsetof(struct gs_config, d_model), 32, GS_MAX_HIDDEN},
    {"attention.key_length", offsetof(struct gs_config, d_head), 2, GS_MAX_D_HEAD},
    {"attention.head_count", offsetof(struct gs_config, n_head), 1, GS_MAX_HEADS},
    {"attention.head_count_kv", offsetof(struct gs_config, n_kv_head), 1, GS_MAX_HEADS},
    {"expert_count", offsetof(struct gs_config, n_expert), 1, GS_MAX_EXPERTS},
    {"expert_used_count", offsetof(struct gs_config, n_active), 1, GS_MAX_EXPERTS},
    {"expert_feed_forward_length", offsetof(struct gs_config, d_ff), 32, GS_MAX_HIDDEN},
    {"attention.sliding_window", offsetof(struct gs_config, window), 1, GS_MAX_CONTEXT},
    {"context_length", offsetof(struct gs_config, max_ctx), 1, GS_MAX_CONTEXT},
};

static void read_integers(struct reader *reader, struct gs_config *config)
{
    for (size_t i = 0; i < sizeof integer_keys / sizeof integer_keys[0]; i++) {
        const struct integer_key *entry = &integer_keys[i];
        int64_t number = read_integer(reader, entry->key, entry->low, entry->high);
        memcpy((char *)config + entry->offset, &number, sizeof number);
    }
}

static void check_proportions(struct reader *reader, const struct gs_config *config)
{
    if (config->d_model % 32 != 0)
        refuse(reader, GS_UNSUPPORTED, ARCHITECTURE ".embedding_length is %lld, must be a multiple of 32",
               (long long)config->d_model);
    if (config->d_ff % 32 != 0)
        refuse(reader, GS_UNSUPPORTED,
               ARCHITECTURE ".expert_feed_forward_length is %lld, must be a multiple of 32",
               (long long)config->d_ff);
    if (config->d_head % 2 != 0)
        refuse(reader, GS_MALFORMED, ARCHITECTURE ".attention.key_length is %lld, must be even",
               (long long)config->d_head);
    if (config->n_head % config->n_kv_head != 0)
        refuse(reader, GS_MALFORMED,
               ARCHITECTURE ".attention.head_count is %lld, must be a multiple of head_count_kv, which is "
                            "%lld",
               (long long)config->n_head, (long long)config->n_kv_head);
    if (config->n_active > config->n_expert)
        refuse(reader, GS_MALFORMED,
               ARCHITECTURE ".expert_used_count is %lld, must be at most expert_count, %lld",
               (long long)config->n_active, (long long)config->n_expert);
}

/*
 * Keys that may be there if they say what is so anyway. Each would change the arithmetic if it said anything
 * else.
 */
static void check_neutral(struct reader *reader, const struct gs_config *config)
{
    const struct {
        const char *key;
        double value;
    } neutral[] = {
        {"attention.value_length", (double)config->d_head},
        {"attention.key_length_swa", (double)config->d_head},
        {"attention.value_length_swa", (double)config->d_head},
        {"rope.dimension_count", (double)config->d_head},
        {"rope.dimension_count_swa", (double)config->d_head},
        {"rope.freq_base_swa", config->rope_theta},
        {"rope.scaling.attn_factor", 1.0},
        {"rope.scaling.yarn_ext_factor", 1.0},
        {"rope.scaling.yarn_attn_factor", 1.0},
        {"rope.scaling.yarn_log_multiplier", 0.0},
        {"attn_logit_softcapping", 0.0},
        {"final_logit_softcapping", 0.0},
        {"logit_scale", 1.0},
        {"residual_scale", 1.0},
        {"embedding_scale", 1.0},
        {"expert_shared_count", 0.0},
        {"leading_dense_block_count", 0.0},
        {"expert_weights_scale", 1.0},
    };
    for (size_t i = 0; i < sizeof neutral / sizeof neutral[0]; i++) {
        const struct gs_gguf_entry *entry = find(reader, neutral[i].key);
        int64_t integer;
        double real;
        if (!entry)
            continue;
        bool same = gs_gguf_real(entry, &real) ? real == neutral[i].value
                                               : !entry->is_array && gs_gguf_integer(entry, 0, &integer) &&
                                                     (double)integer == neutral[i].value;
        if (!same)
            refuse(reader, GS_UNSUPPORTED, ARCHITECTURE ".%s is %s, must be %g or absent", neutral[i].key,
                   show(entry).text, neutral[i].value);
    }
}

/* A truth value for each layer. */
static bool read_window_list(const struct gs_gguf_entry *entry, struct gs_config *config)
{
    for (int64_t i = 0; i < config->n_layer; i++) {
        int64_t value;
        if (!gs_gguf_integer(entry, (uint64_t)i, &value) || value < 0 || value > 1)
            return false;
        config->layer_is_window[i] = value == 1;
    }
    return true;
}

/* A period p: the last of every p layers has no window; 0: every layer has one. */
static bool read_window_period(const struct gs_gguf_entry *entry, struct gs_config *config)
{
    int64_t period = DEFAULT_PERIOD;
    if (entry && (!gs_gguf_integer(entry, 0, &period) || period < 0 || period > GS_MAX_LAYERS))
        return false;
    for (int64_t i = 0; i < config->n_layer; i++)
        config->layer_is_window[i] = period == 0 || i % period < period - 1;
    return true;
}

static void read_pattern(struct reader *reader, struct gs_config *config)
{
    const char *key = "attention.sliding_window_pattern";
    const struct gs_gguf_entry *entry = find(reader, key);
    bool is_list = entry && entry->is_array;
    if (is_list && entry->count != (uint64_t)config->n_layer)
        refuse(reader, GS_MALFORMED, ARCHITECTURE ".%s has %llu entries, must have block_count = %lld", key,
               (unsigned long long)entry->count, (long long)config->n_layer);
    else if (is_list ? !read_window_list(entry, config) : !read_window_period(entry, config))
        refuse(reader, GS_MALFORMED,
               ARCHITECTURE ".%s is %s, must be a number of layers or a truth value for each layer", key,
               show(entry).text);
}

static void read_rope(struct reader *reader, struct gs_config *config)
{
    config->rope_theta = read_real(reader, "rope.freq_base", 2.0, 1e12, 0.0);
    config->rope_factor = 1.0;
    config->rope_beta_fast = DEFAULT_BETA_FAST;
    config->rope_beta_slow = DEFAULT_BETA_SLOW;
    config->rope_original_ctx = (double)config->max_ctx;
    if (!read_choice(reader, ARCHITECTURE ".rope.scaling.type", find(reader, "rope.scaling.type"), "yarn",
                     "none"))
        return;
    config->rope_factor = read_real(reader, "rope.scaling.factor", 1.0, 1e6, 0.0);
    config->rope_original_ctx =
        (double)read_integer(reader, "rope.scaling.original_context_length", 1, GS_MAX_CONTEXT);
    config->rope_beta_fast = read_real(reader, "rope.scaling.yarn_beta_fast", 1e-3, 1e6, DEFAULT_BETA_FAST);
    config->rope_beta_slow = read_real(reader, "rope.scaling.yarn_beta_slow", 1e-3, 1e6, DEFAULT_BETA_SLOW);
    if (config->rope_beta_fast <= config->rope_beta_slow)
        refuse(reader, GS_MALFORMED,
               ARCHITECTURE ".rope.scaling.yarn_beta_fast is %g, must be more than yarn_beta_slow, %g",
               config->rope_beta_fast, config->rope_beta_slow);
}

/* ---------------------------------------------------------------- tokens */

static void check_vocabulary_size(struct reader *reader, const struct gs_config *config)
{
    const struct gs_gguf_entry *tokens = gs_gguf_find(reader->gguf, "tokenizer.ggml.tokens");
    const struct gs_gguf_entry *size = find(reader, "vocab_size");
    int64_t value;
    if (tokens &&
        (!tokens->is_array || tokens->type != GS_GGUF_STRING || tokens->count != (uint64_t)config->n_vocab))
        refuse(reader, GS_MALFORMED,
               "tokenizer.ggml.tokens has %llu elements of type %s, must have a string for each of the %lld "
               "rows of " EMBEDDING,
               (unsigned long long)tokens->count, gs_gguf_type_name(tokens->type),
               (long long)config->n_vocab);
    if (size && (size->is_array || !gs_gguf_integer(size, 0, &value) || value != config->n_vocab))
        refuse(reader, GS_MALFORMED,
               ARCHITECTURE ".vocab_size is %s, must be the number of rows of " EMBEDDING ", %lld",
               show(size).text, (long long)config->n_vocab);
}

static void add_stop_id(struct gs_config *config, int64_t id)
{
    for (size_t i = 0; i < config->n_stop_ids; i++) {
        if (config->stop_ids[i] == id)
            return;
    }
    config->stop_ids[config->n_stop_ids++] = (int32_t)id;
}

/* A generation ends with the message, with the document, or with a call of a tool. */
static void read_stop_ids(struct reader *reader, struct gs_config *config)
{
    static const char *const ends[] = {"<|return|>", "<|endoftext|>", "<|call|>"};
    enum { N_ENDS = sizeof ends / sizeof ends[0] };
    int64_t ids[N_ENDS] = {-1, -1, -1};
    const struct gs_gguf_entry *eos = gs_gguf_find(reader->gguf, "tokenizer.ggml.eos_token_id");
    const struct gs_gguf_entry *kinds = gs_gguf_find(reader->gguf, "tokenizer.ggml.token_type");
    struct gs_gguf_strings tokens = gs_gguf_strings(gs_gguf_find(reader->gguf, "tokenizer.ggml.tokens"));
    int64_t value = 0;
    if (eos) {
        if (eos->is_array || !gs_gguf_integer(eos, 0, &value) || value < 0 || value >= config->n_vocab) {
            refuse(reader, GS_MALFORMED, "tokenizer.ggml.eos_token_id is %s, must be an integer 0 ... %lld",
                   show(eos).text, (long long)config->n_vocab - 1);
            return;
        }
        add_stop_id(config, value);
    }
    const char *text;
    size_t size;
    for (int64_t id = 0; kinds && gs_gguf_strings_next(&tokens, &text, &size); id++) {
        if (size < 3 || text[0] != '<' || text[1] != '|')
            continue;
        for (int i = 0; i < N_ENDS; i++) {
            if (size == strlen(ends[i]) && memcmp(text, ends[i], size) == 0 &&
                gs_gguf_integer(kinds, (uint64_t)id, &value) && value == CONTROL_TOKEN)
                ids[i] = id;
        }
    }
    for (int i = 0; i < N_ENDS; i++) {
        if (ids[i] >= 0)
            add_stop_id(config, ids[i]);
    }
}

/* ---------------------------------------------------------------- entry points */

gs_status gs_gguf_config_parse(const char *name, const struct gs_gguf *gguf, int64_t n_vocab,
                               struct gs_config *config, struct gs_error *error)
{
    struct reader reader = {.name = gs_quote(name), .gguf = gguf, .error = error};
    memset(config, 0, sizeof *config);
    if (n_vocab < 1 || n_vocab > GS_MAX_VOCAB)
        refuse(&reader, GS_MALFORMED, EMBEDDING " has %lld rows, must have 1 ... %d", (long long)n_vocab,
               GS_MAX_VOCAB);
    read_choice(&reader, "general.architecture", gs_gguf_find(gguf, "general.architecture"), ARCHITECTURE,
                NULL);
    read_integers(&reader, config);
    if (reader.status != GS_OK)
        return reader.status; /* what follows divides by these numbers and indexes with them */
    config->n_vocab = n_vocab;
    config->swiglu_limit = SWIGLU_LIMIT;
    config->swiglu_alpha = SWIGLU_ALPHA;
    config->rms_norm_eps = (float)read_real(&reader, "attention.layer_norm_rms_epsilon", 1e-20, 1.0, 0.0);
    check_proportions(&reader, config);
    read_pattern(&reader, config);
    read_rope(&reader, config);
    check_neutral(&reader, config);
    check_vocabulary_size(&reader, config);
    read_stop_ids(&reader, config);
    return reader.status;
}

gs_status gs_gguf_config_read(const struct gs_checkpoint *checkpoint, struct gs_config *config,
                              struct gs_error *error)
{
    const struct gs_tensor *embedding = gs_checkpoint_find(checkpoint, EMBEDDING);
    const char *path = gs_checkpoint_tensor(checkpoint, 0)->file->path;
    if (!embedding || embedding->rank != 2 || embedding->shape[0] > GS_MAX_VOCAB)
        return gs_fail(error, GS_MALFORMED,
                       "%s: no gpt-oss model: tensor \"" EMBEDDING
                       "\" must be there, with two dimensions and at most %d rows",
                       gs_quote(path).text, GS_MAX_VOCAB);
    return gs_gguf_config_parse(path, gs_checkpoint_gguf(checkpoint), (int64_t)embedding->shape[0], config,
                                error);
}
