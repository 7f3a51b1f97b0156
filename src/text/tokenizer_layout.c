#include "text/tokenizer_layout.h"

#include "base/status.h"
#include "text/token_table.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* The published split pattern, character for character. */
static const char o200k_pattern[] =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/* The value as a tree (*tree NULL for a key that is not there). The text was read as valid JSON before. */
static gs_status load(const struct gs_json_text *value, const char *key, json_t **tree,
                      struct gs_error *error)
{
    json_error_t fault;
    *tree = NULL;
    if (!value->text)
        return GS_OK;
    *tree = json_loadb(value->text, value->size, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES,
                       &fault);
    return *tree ? GS_OK : gs_fail(error, GS_MALFORMED, "%s: %s", key, gs_quote(fault.text).text);
}

static gs_status refuse(const char *key, const json_t *found, const char *supported, struct gs_error *error)
{
    if (!found)
        return gs_fail(error, GS_MALFORMED, "no key \"%s\"; supported is %s", key, supported);
    char *text = json_dumps(found, JSON_COMPACT | JSON_ENCODE_ANY);
    gs_fail(error, GS_UNSUPPORTED, "%s is %s; supported is %s", key, text ? gs_quote(text).text : "too large",
            supported);
    free(text);
    return GS_UNSUPPORTED;
}

static bool is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && json_string_length(value) == strlen(text) &&
           strcmp(json_string_value(value), text) == 0;
}

static bool is_byte_level(const json_t *value)
{
    return is_text(json_object_get(value, "type"), "ByteLevel");
}

static bool is_o200k_split(const json_t *value)
{
    const json_t *steps = json_object_get(value, "pretokenizers");
    if (!is_text(json_object_get(value, "type"), "Sequence") || json_array_size(steps) != 2)
        return false;
    const json_t *split = json_array_get(steps, 0), *bytes = json_array_get(steps, 1);
    return is_text(json_object_get(split, "type"), "Split") &&
           is_text(json_object_get(json_object_get(split, "pattern"), "Regex"), o200k_pattern) &&
           is_text(json_object_get(split, "behavior"), "Isolated") &&
           json_is_false(json_object_get(split, "invert")) && is_byte_level(bytes) &&
           json_is_false(json_object_get(bytes, "add_prefix_space")) &&
           json_is_false(json_object_get(bytes, "use_regex"));
}

gs_status gs_tokenizer_check_file(const struct gs_tokenizer_layout *layout, struct gs_error *error)
{
    json_t *normalizer = NULL, *split = NULL, *decoder = NULL;
    gs_status status = load(&layout->normalizer, "normalizer", &normalizer, error);
    if (status == GS_OK)
        status = load(&layout->pre_tokenizer, "pre_tokenizer", &split, error);
    if (status == GS_OK)
        status = load(&layout->decoder, "decoder", &decoder, error);
    if (status != GS_OK)
        goto cleanup;

    if (normalizer && !json_is_null(normalizer))
        status = refuse("normalizer", normalizer, "null", error);
    else if (!split || !is_o200k_split(split))
        status =
            refuse("pre_tokenizer", split,
                   "a Sequence of Split (the o200k pattern, Isolated) and ByteLevel (add_prefix_space and "
                   "use_regex false)",
                   error);
    else if (!decoder || !is_byte_level(decoder))
        status = refuse("decoder", decoder, "ByteLevel", error);
cleanup:
    json_decref(normalizer);
    json_decref(split);
    json_decref(decoder);
    return status;
}

/* null, "" (older files) or no key at all */
static bool is_unset(const json_t *value)
{
    return !value || json_is_null(value) || (json_is_string(value) && json_string_length(value) == 0);
}

static bool is_off(const json_t *value)
{
    return is_unset(value) || json_is_false(value);
}

static bool is_no_dropout(const json_t *value)
{
    return is_unset(value) || (json_is_number(value) && json_number_value(value) <= 0);
}

static bool is_bpe(const json_t *value)
{
    return value && is_text(value, "BPE");
}

static bool is_switch(const json_t *value)
{
    return is_unset(value) || json_is_boolean(value);
}

gs_status gs_tokenizer_check_model(const struct gs_tokenizer_layout *layout, bool *ignore_merges,
                                   struct gs_error *error)
{
    const struct rule {
        const char *key;
        const struct gs_json_text *value;
        bool (*holds)(const json_t *value);
        const char *supported;
    } rules[] = {
        {"model.type", &layout->type, is_bpe, "\"BPE\""},
        {"model.dropout", &layout->dropout, is_no_dropout, "null"},
        {"model.continuing_subword_prefix", &layout->prefix, is_unset, "null"},
        {"model.end_of_word_suffix", &layout->suffix, is_unset, "null"},
        {"model.byte_fallback", &layout->byte_fallback, is_off, "false"},
        {"model.ignore_merges", &layout->ignore_merges, is_switch, "true or false"},
    };
    *ignore_merges = false;
    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++) {
        json_t *value;
        gs_status status = load(rules[i].value, rules[i].key, &value, error);
        if (status == GS_OK && !rules[i].holds(value))
            status = refuse(rules[i].key, value, rules[i].supported, error);
        if (rules[i].value == &layout->ignore_merges)
            *ignore_merges = json_is_true(value);
        json_decref(value);
        if (status != GS_OK)
            return status;
    }
    return GS_OK;
}

static gs_status read_added_token(const json_t *entry, size_t number, struct gs_added_tokens *added,
                                  struct gs_error *error)
{
    const json_t *id = json_object_get(entry, "id"), *content = json_object_get(entry, "content");
    if (!json_is_integer(id) || !json_is_string(content))
        return gs_fail(error, GS_MALFORMED,
                       "added_tokens[%zu] needs an integer \"id\" and a string \"content\"", number);
    struct gs_added_token token = {
        .text = json_string_value(content),
        .size = json_string_length(content),
        .special = json_is_true(json_object_get(entry, "special")),
        .normalized = json_is_true(json_object_get(entry, "normalized")),
    };
    if (json_integer_value(id) < 0 || json_integer_value(id) > GS_MAX_TOKEN_ID)
        return gs_fail(error, GS_MALFORMED, "added_tokens[%zu]: id %lld is not in 0 ... %u", number,
                       (long long)json_integer_value(id), GS_MAX_TOKEN_ID);
    token.id = (uint32_t)json_integer_value(id);
    if (token.size == 0 || token.size > GS_MAX_ADDED_BYTES)
        return gs_fail(error, GS_MALFORMED,
                       "added_tokens[%zu]: the content has %zu bytes, 1 ... %d are allowed", number,
                       token.size, GS_MAX_ADDED_BYTES);
    static const char *const switches[] = {"single_word", "lstrip", "rstrip"};
    for (size_t i = 0; i < 3; i++)
        if (json_is_true(json_object_get(entry, switches[i])))
            return gs_fail(error, GS_UNSUPPORTED,
                           "added_tokens[%zu] \"%s\": \"%s\" is true; supported is false", number,
                           gs_quote_bytes(token.text, token.size).text, switches[i]);
    return gs_added_tokens_add(added, &token, error);
}

gs_status gs_tokenizer_read_added(const struct gs_tokenizer_layout *layout, struct gs_added_tokens *added,
                                  struct gs_error *error)
{
    json_t *list;
    gs_status status = load(&layout->added_tokens, "added_tokens", &list, error);
    if (status != GS_OK)
        return status;
    if (list && !json_is_array(list))
        status = gs_fail(error, GS_MALFORMED, "added_tokens is not an array");
    for (size_t i = 0; i < json_array_size(list) && status == GS_OK; i++)
        status = read_added_token(json_array_get(list, i), i, added, error);
    json_decref(list);
    return status == GS_OK ? gs_added_tokens_index(added, error) : status;
}
