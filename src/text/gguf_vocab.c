#include "text/gguf_vocab.h"

#include "base/status.h"
#include "base/utf8.h"
#include "text/vocab_builder.h"

#include <string.h>

#define TOKENS "tokenizer.ggml.tokens"
#define KINDS  "tokenizer.ggml.token_type"
#define MERGES "tokenizer.ggml.merges"

/* Of a token, in tokenizer.ggml.token_type. 2 (unknown) and 6 (byte) belong to other tokenizers. */
enum kind {
    KIND_NORMAL = 1,
    KIND_CONTROL = 3,
    KIND_USER_DEFINED = 4,
    KIND_UNUSED = 5,
};

static gs_status require_text(const struct gs_gguf *gguf, const char *key, const char *wanted,
                              struct gs_error *error)
{
    const struct gs_gguf_entry *entry = gs_gguf_find(gguf, key);
    const char *text;
    size_t size;
    if (!entry || !gs_gguf_text(entry, &text, &size))
        return gs_fail(error, GS_MALFORMED, "%s is %s, must be \"%s\"", key, entry ? "no string" : "missing",
                       wanted);
    if (size != strlen(wanted) || memcmp(text, wanted, size) != 0)
        return gs_fail(error, GS_UNSUPPORTED, "%s is \"%s\"; supported is \"%s\"", key,
                       gs_quote_bytes(text, size).text, wanted);
    return GS_OK;
}

static gs_status require_array(const struct gs_gguf *gguf, const char *key, enum gs_gguf_type type,
                               const struct gs_gguf_entry **out, struct gs_error *error)
{
    *out = gs_gguf_find(gguf, key);
    if (*out && (*out)->is_array && (*out)->type == type)
        return GS_OK;
    return gs_fail(error, GS_MALFORMED, "%s is %s, must be an array of %s", key, *out ? "not" : "missing",
                   gs_gguf_type_name(type));
}

static gs_status add_normal(struct gs_vocab_builder *builder, uint32_t id, const char *text, size_t size,
                            struct gs_error *error)
{
    size_t n = 0;
    if (size > GS_MAX_SPELLING || !gs_vocab_builder_spell(builder, text, size, builder->joined, &n))
        return gs_fail(error, GS_MALFORMED,
                       TOKENS "[%u]: the token \"%s\" is too long or has a character that stands for no byte",
                       id, gs_quote_bytes(text, size).text);
    if (n == 0 || n > GS_MAX_TOKEN_BYTES)
        return gs_fail(error, GS_MALFORMED, TOKENS "[%u]: a token of %zu bytes, 1 ... %u are allowed", id, n,
                       GS_MAX_TOKEN_BYTES);
    return gs_token_table_add(&builder->bpe->table, id, builder->joined, n, error);
}

static gs_status add_token(struct gs_vocab_builder *builder, uint32_t id, int64_t kind, const char *text,
                           size_t size, struct gs_error *error)
{
    struct gs_added_token token = {.text = text, .size = size, .id = id, .special = kind == KIND_CONTROL};
    switch (kind) {
    case KIND_NORMAL:
        return add_normal(builder, id, text, size, error);
    case KIND_CONTROL:
    case KIND_USER_DEFINED:
        if (size == 0 || size > GS_MAX_ADDED_BYTES)
            return gs_fail(error, GS_MALFORMED,
                           TOKENS "[%u]: the text of an added token has %zu bytes, 1 ... %d are allowed", id,
                           size, GS_MAX_ADDED_BYTES);
        /* Texts are cut at added tokens: one that is no whole characters would cut inside a character. */
        if (!gs_utf8_valid(text, size))
            return gs_fail(error, GS_MALFORMED,
                           TOKENS "[%u]: the text of an added token, \"%s\", must be UTF-8", id,
                           gs_quote_bytes(text, size).text);
        return gs_added_tokens_add(builder->added, &token, error);
    case KIND_UNUSED:
        return GS_OK;
    default:
        return gs_fail(error, GS_UNSUPPORTED,
                       KINDS "[%u] is %lld; supported are 1 (normal), 3 (control), 4 (user-defined) and 5 "
                             "(unused)",
                       id, (long long)kind);
    }
}

static gs_status read_tokens(struct gs_vocab_builder *builder, const struct gs_gguf *gguf,
                             struct gs_error *error)
{
    const struct gs_gguf_entry *tokens, *kinds;
    gs_status status = require_array(gguf, TOKENS, GS_GGUF_STRING, &tokens, error);
    if (status == GS_OK)
        status = require_array(gguf, KINDS, GS_GGUF_I32, &kinds, error);
    if (status != GS_OK)
        return status;
    if (tokens->count != kinds->count || tokens->count > (uint64_t)GS_MAX_TOKEN_ID + 1)
        return gs_fail(error, GS_MALFORMED,
                       TOKENS " has %llu and " KINDS " %llu elements, must have as many, and at most %u",
                       (unsigned long long)tokens->count, (unsigned long long)kinds->count,
                       GS_MAX_TOKEN_ID + 1);
    struct gs_gguf_strings strings = gs_gguf_strings(tokens);
    const char *text;
    size_t size;
    for (uint32_t id = 0; status == GS_OK && gs_gguf_strings_next(&strings, &text, &size); id++) {
        int64_t kind = 0;
        gs_gguf_integer(kinds, id, &kind);
        status = add_token(builder, id, kind, text, size, error);
    }
    if (status == GS_OK)
        status = gs_token_table_index(&builder->bpe->table, error);
    return status == GS_OK ? gs_added_tokens_index(builder->added, error) : status;
}

/* "left right": a blank is no character of the alphabet, so that the first one separates. */
static gs_status read_merges(struct gs_vocab_builder *builder, const struct gs_gguf *gguf,
                             struct gs_error *error)
{
    const struct gs_gguf_entry *merges;
    gs_status status = require_array(gguf, MERGES, GS_GGUF_STRING, &merges, error);
    if (status != GS_OK)
        return status;
    struct gs_gguf_strings strings = gs_gguf_strings(merges);
    const char *text;
    size_t size;
    while (status == GS_OK && gs_gguf_strings_next(&strings, &text, &size)) {
        const char *blank = memchr(text, ' ', size);
        if (!blank || size > GS_MAX_SPELLING)
            return gs_fail(error, GS_MALFORMED,
                           MERGES "[%zu]: \"%s\" must be two tokens with a blank between them",
                           builder->bpe->merges.count, gs_quote_bytes(text, size).text);
        size_t cut = (size_t)(blank - text);
        status = gs_vocab_builder_merge(builder, text, cut, blank + 1, size - cut - 1, error);
    }
    return status == GS_OK ? gs_merge_table_index(&builder->bpe->merges, builder->merges_name, error)
                           : status;
}

gs_status gs_gguf_vocab_read(const struct gs_gguf *gguf, struct gs_bpe *bpe, struct gs_added_tokens *added,
                             struct gs_error *error)
{
    struct gs_vocab_builder builder = {
        .bpe = bpe, .added = added, .tokens_name = TOKENS, .merges_name = MERGES};
    gs_status status = require_text(gguf, "tokenizer.ggml.model", "gpt2", error);
    if (status == GS_OK)
        status = require_text(gguf, "tokenizer.ggml.pre", "gpt-4o", error);
    if (status == GS_OK)
        status = gs_vocab_builder_open(&builder, error);
    if (status == GS_OK)
        status = read_tokens(&builder, gguf, error);
    if (status == GS_OK)
        status = read_merges(&builder, gguf, error);
    /* As the published tokenizer.json has it, where every token can be reached by merges anyway. */
    bpe->ignore_merges = true;
    if (status == GS_OK)
        status = gs_vocab_builder_finish(&builder, error);
    gs_vocab_builder_close(&builder);
    return status;
}
