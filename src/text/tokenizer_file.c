#include "text/tokenizer_file.h"

#include "base/json_reader.h"
#include "base/status.h"
#include "text/tokenizer_layout.h"
#include "text/vocab_builder.h"

#include <stdlib.h>
#include <string.h>

#define MAX_JSON_DEPTH 16

struct loader {
    const char *text; /* the whole file */
    struct gs_bpe *bpe;
    struct gs_added_tokens *added;
    struct gs_tokenizer_layout layout;
    struct gs_json_text model;  /* where it came before the added tokens */
    struct gs_json_text merges; /* where they came before the vocabulary */
    bool has_model, has_vocab, has_merges;
    struct gs_vocab_builder builder;
    char *pair; /* [2*GS_MAX_SPELLING]: both sides of a merge */
};

/* ---------------------------------------------------------------- vocabulary */

static gs_status expect(struct gs_json_reader *reader, enum gs_json_event wanted, const char *what,
                        struct gs_error *error)
{
    enum gs_json_event event;
    gs_status status = gs_json_next(reader, &event, error);
    if (status == GS_OK && event != wanted)
        return gs_fail(error, GS_MALFORMED, "byte %zu: %s", reader->at, what);
    return status;
}

/*
 * The next event: is it another entry, not the `end` of what holds them? False where *status is a failure
 * too.
 */
static bool next_entry(struct gs_json_reader *reader, enum gs_json_event end, enum gs_json_event *event,
                       gs_status *status, struct gs_error *error)
{
    *status = gs_json_next(reader, event, error);
    return *status == GS_OK && *event != end;
}

/*
 * A key of the vocabulary that is an added token's text. A special one stays out of the table of ordinary
 * tokens, so that no literal text can become it.
 */
static gs_status read_added_entry(struct loader *loader, struct gs_json_reader *reader,
                                  const struct gs_added_token *token, bool *keep, struct gs_error *error)
{
    uint64_t id;
    gs_status status = expect(reader, GS_JSON_NUMBER, "the id of a token must be a number", error);
    if (status != GS_OK)
        return status;
    if (!gs_json_u64(reader, &id) || id != token->id)
        return gs_fail(error, GS_MALFORMED,
                       "the token \"%s\" has one id in model.vocab and %u in added_tokens",
                       gs_quote_bytes(token->text, token->size).text, token->id);
    if (token->in_vocab)
        return gs_fail(error, GS_MALFORMED, "model.vocab has the token \"%s\" twice",
                       gs_quote_bytes(token->text, token->size).text);
    loader->added->list[token - loader->added->list].in_vocab = true;
    *keep = !token->special;
    return GS_OK;
}

/* The entry whose key the reader has just read. */
static gs_status read_vocab_entry(struct loader *loader, struct gs_json_reader *reader,
                                  struct gs_error *error)
{
    size_t size = 0;
    char *bytes = loader->builder.joined;
    bool spelt = gs_vocab_builder_spell(&loader->builder, reader->string, reader->string_size, bytes, &size);
    unsigned char first = reader->string_size > 0 ? (unsigned char)reader->string[0] : 0;
    if (loader->added->starts[0][first] || loader->added->starts[1][first]) {
        const struct gs_added_token *token =
            gs_added_tokens_find(loader->added, reader->string, reader->string_size);
        if (token) {
            bool keep = false;
            gs_status status = read_added_entry(loader, reader, token, &keep, error);
            if (status != GS_OK || !keep || !spelt)
                return status;
            return gs_token_table_add(&loader->bpe->table, token->id, bytes, size, error);
        }
    }
    if (!spelt)
        return gs_fail(error, GS_MALFORMED,
                       "model.vocab: the token \"%s\" has a character that stands for no byte "
                       "(U+0021-007E, 00A1-00AC, 00AE-0143 do)",
                       gs_quote_bytes(reader->string, reader->string_size).text);
    if (size == 0 || size > GS_MAX_TOKEN_BYTES)
        return gs_fail(error, GS_MALFORMED, "byte %zu: a token of %zu bytes, 1 ... %u are allowed",
                       reader->at, size, GS_MAX_TOKEN_BYTES);
    gs_status status = expect(reader, GS_JSON_NUMBER, "the id of a token must be a number", error);
    if (status != GS_OK)
        return status;
    uint64_t id;
    if (!gs_json_u64(reader, &id) || id > GS_MAX_TOKEN_ID)
        return gs_fail(error, GS_MALFORMED,
                       "byte %zu: the id of the token \"%s\" is not a whole number in 0 ... %u", reader->at,
                       gs_quote_bytes(bytes, size).text, GS_MAX_TOKEN_ID);
    return gs_token_table_add(&loader->bpe->table, (uint32_t)id, bytes, size, error);
}

static gs_status read_vocab(struct loader *loader, struct gs_json_reader *reader, struct gs_error *error)
{
    enum gs_json_event event;
    gs_status status = expect(reader, GS_JSON_OBJECT_BEGIN, "model.vocab must be an object", error);
    while (status == GS_OK && next_entry(reader, GS_JSON_OBJECT_END, &event, &status, error))
        status = read_vocab_entry(loader, reader, error);
    loader->has_vocab = status == GS_OK;
    return status == GS_OK ? gs_token_table_index(&loader->bpe->table, error) : status;
}

/* ---------------------------------------------------------------- merges */

/* ["left", "right"], whose bracket the reader has just read. */
static gs_status read_merge_pair(struct loader *loader, struct gs_json_reader *reader, struct gs_error *error)
{
    const char *rule = "a merge must be an array of two strings, or one string \"left right\"";
    gs_status status = expect(reader, GS_JSON_STRING, rule, error);
    if (status != GS_OK)
        return status;
    /* The reader's strings last until its next event. */
    size_t left_size = reader->string_size;
    memcpy(loader->pair, reader->string, left_size);
    status = expect(reader, GS_JSON_STRING, rule, error);
    if (status != GS_OK)
        return status;
    size_t right_size = reader->string_size;
    char *right = loader->pair + left_size;
    memcpy(right, reader->string, right_size);
    status = expect(reader, GS_JSON_ARRAY_END, rule, error);
    if (status != GS_OK)
        return status;
    return gs_vocab_builder_merge(&loader->builder, loader->pair, left_size, right, right_size, error);
}

/* "left right", which the reader has just read. */
static gs_status read_merge_text(struct loader *loader, struct gs_json_reader *reader, struct gs_error *error)
{
    const char *string = reader->string, *space = memchr(string, ' ', reader->string_size);
    if (!space)
        return gs_fail(error, GS_MALFORMED, "byte %zu: the merge \"%s\" has no space between its two tokens",
                       reader->at, gs_quote_bytes(string, reader->string_size).text);
    size_t cut = (size_t)(space - string);
    return gs_vocab_builder_merge(&loader->builder, string, cut, space + 1, reader->string_size - cut - 1,
                                  error);
}

static gs_status read_merges(struct loader *loader, struct gs_json_reader *reader, struct gs_error *error)
{
    enum gs_json_event event;
    gs_status status = expect(reader, GS_JSON_ARRAY_BEGIN, "model.merges must be an array", error);
    while (status == GS_OK && next_entry(reader, GS_JSON_ARRAY_END, &event, &status, error)) {
        if (event == GS_JSON_ARRAY_BEGIN)
            status = read_merge_pair(loader, reader, error);
        else if (event == GS_JSON_STRING)
            status = read_merge_text(loader, reader, error);
        else
            status =
                gs_fail(error, GS_MALFORMED, "byte %zu: a merge must be an array or a string", reader->at);
    }
    return status == GS_OK ? gs_merge_table_index(&loader->bpe->merges, loader->builder.merges_name, error)
                           : status;
}

/* ---------------------------------------------------------------- the file */

/* Remembers where the value is whose key has just been read. */
static gs_status keep_value(struct gs_json_reader *reader, const char *key, struct gs_json_text *value,
                            struct gs_error *error)
{
    if (value->text)
        return gs_fail(error, GS_MALFORMED, "byte %zu: the key \"%s\" occurs twice", reader->at, key);
    size_t start = reader->at;
    gs_status status = gs_json_skip(reader, error);
    *value = (struct gs_json_text){reader->text + start, reader->at - start};
    return status;
}

static gs_status keep_known_value(struct gs_json_reader *reader, const char *const *keys,
                                  struct gs_json_text *const *values, size_t count, struct gs_error *error)
{
    for (size_t i = 0; i < count; i++)
        if (gs_json_is(reader, keys[i]))
            return keep_value(reader, keys[i], values[i], error);
    return gs_json_skip(reader, error);
}

static gs_status twice(const struct gs_json_reader *reader, const char *key, struct gs_error *error)
{
    return gs_fail(error, GS_MALFORMED, "byte %zu: the key \"%s\" occurs twice", reader->at, key);
}

/* What is known of the layout before the vocabulary: its fault says more than what it makes of the tokens. */
static gs_status check_known(struct loader *loader, struct gs_error *error)
{
    const struct gs_tokenizer_layout *layout = &loader->layout;
    gs_status status = GS_OK;
    if (layout->type.text)
        status = gs_tokenizer_check_model(layout, &loader->bpe->ignore_merges, error);
    if (status == GS_OK && layout->pre_tokenizer.text && layout->decoder.text)
        status = gs_tokenizer_check_file(layout, error);
    return status;
}

static gs_status read_model_key(struct loader *loader, struct gs_json_reader *reader, struct gs_error *error)
{
    static const char *const keys[] = {
        "type",          "dropout",       "continuing_subword_prefix", "end_of_word_suffix",
        "byte_fallback", "ignore_merges",
    };
    struct gs_tokenizer_layout *layout = &loader->layout;
    struct gs_json_text *const values[] = {
        &layout->type,   &layout->dropout,       &layout->prefix,
        &layout->suffix, &layout->byte_fallback, &layout->ignore_merges,
    };
    if (gs_json_is(reader, "vocab")) {
        if (loader->has_vocab)
            return twice(reader, "vocab", error);
        gs_status status = check_known(loader, error);
        return status == GS_OK ? read_vocab(loader, reader, error) : status;
    }
    if (gs_json_is(reader, "merges")) {
        if (loader->has_merges)
            return twice(reader, "merges", error);
        loader->has_merges = true;
        return loader->has_vocab ? read_merges(loader, reader, error)
                                 : keep_value(reader, "merges", &loader->merges, error);
    }
    return keep_known_value(reader, keys, values, sizeof(keys) / sizeof(*keys), error);
}

/* Reads a value that was kept, with a reader of its own. */
static gs_status read_kept(struct loader *loader, const struct gs_json_text *value,
                           gs_status (*read)(struct loader *, struct gs_json_reader *, struct gs_error *),
                           struct gs_error *error)
{
    struct gs_json_reader reader;
    size_t start = (size_t)(value->text - loader->text);
    gs_json_reader_init(&reader, loader->text, start + value->size, MAX_JSON_DEPTH, GS_MAX_SPELLING);
    reader.at = start;
    gs_status status = read(loader, &reader, error);
    gs_json_reader_free(&reader);
    return status;
}

static gs_status read_model(struct loader *loader, struct gs_json_reader *reader, struct gs_error *error)
{
    enum gs_json_event event;
    gs_status status = expect(reader, GS_JSON_OBJECT_BEGIN, "model must be an object", error);
    while (status == GS_OK && next_entry(reader, GS_JSON_OBJECT_END, &event, &status, error))
        status = read_model_key(loader, reader, error);
    if (status == GS_OK && (!loader->has_vocab || !loader->has_merges))
        return gs_fail(error, GS_MALFORMED, "model has no key \"%s\"",
                       loader->has_vocab ? "merges" : "vocab");
    if (status == GS_OK && loader->merges.text)
        status = read_kept(loader, &loader->merges, read_merges, error);
    return status;
}

static gs_status read_file(struct loader *loader, struct gs_json_reader *reader, struct gs_error *error)
{
    static const char *const keys[] = {"added_tokens", "normalizer", "pre_tokenizer", "decoder"};
    struct gs_tokenizer_layout *layout = &loader->layout;
    struct gs_json_text *const values[] = {
        &layout->added_tokens,
        &layout->normalizer,
        &layout->pre_tokenizer,
        &layout->decoder,
    };
    enum gs_json_event event;
    gs_status status = expect(reader, GS_JSON_OBJECT_BEGIN, "the file must hold an object", error);
    while (status == GS_OK && next_entry(reader, GS_JSON_OBJECT_END, &event, &status, error)) {
        if (!gs_json_is(reader, "model")) {
            status = keep_known_value(reader, keys, values, sizeof(keys) / sizeof(*keys), error);
            if (status == GS_OK && layout->added_tokens.text && !loader->added->special_ids)
                status = gs_tokenizer_read_added(layout, loader->added, error);
            continue;
        }
        if (loader->has_model)
            return twice(reader, "model", error);
        loader->has_model = true;
        /* The vocabulary is read with the added tokens known; they come first in the files of the field. */
        status = layout->added_tokens.text ? read_model(loader, reader, error)
                                           : keep_value(reader, "model", &loader->model, error);
    }
    return status == GS_OK ? expect(reader, GS_JSON_END, "text after the object", error) : status;
}

gs_status gs_tokenizer_parse(const char *text, size_t size, struct gs_bpe *bpe, struct gs_added_tokens *added,
                             struct gs_error *error)
{
    struct gs_json_reader reader;
    struct loader *loader = NULL;
    gs_status status = GS_OK;
    gs_json_reader_init(&reader, text, size, MAX_JSON_DEPTH, GS_MAX_SPELLING);
    if (size > GS_MAX_TOKENIZER_BYTES) {
        status = gs_fail(error, GS_UNSUPPORTED, "the file has %zu bytes, at most %u are read", size,
                         GS_MAX_TOKENIZER_BYTES);
        goto cleanup;
    }
    loader = calloc(1, sizeof(*loader));
    if (loader)
        loader->pair = malloc(2 * GS_MAX_SPELLING);
    if (!loader || !loader->pair) {
        status = gs_fail_memory(error, sizeof(*loader) + 2 * GS_MAX_SPELLING);
        goto cleanup;
    }
    loader->text = text;
    loader->bpe = bpe;
    loader->added = added;
    loader->builder = (struct gs_vocab_builder){
        .bpe = bpe, .added = added, .tokens_name = "model.vocab", .merges_name = "model.merges"};
    status = gs_vocab_builder_open(&loader->builder, error);
    if (status != GS_OK)
        goto cleanup;

    status = read_file(loader, &reader, error);
    if (status == GS_OK && !loader->has_model)
        status = gs_fail(error, GS_MALFORMED, "no key \"model\"");
    if (status == GS_OK)
        status = gs_tokenizer_check_file(&loader->layout, error);
    if (status == GS_OK && loader->model.text)
        status = read_kept(loader, &loader->model, read_model, error);
    if (status == GS_OK)
        status = gs_tokenizer_check_model(&loader->layout, &bpe->ignore_merges, error);
    if (status == GS_OK)
        status = gs_vocab_builder_finish(&loader->builder, error);
cleanup:
    gs_json_reader_free(&reader);
    if (loader) {
        gs_vocab_builder_close(&loader->builder);
        free(loader->pair);
    }
    free(loader);
    return status;
}
