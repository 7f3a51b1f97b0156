/* Text -> tokens: make it UTF-8, cut out added tokens where they are asked for, split, merge. */
#include "base/buffer.h"
#include "base/utf8.h"
#include "text/pretokenize.h"
#include "text/tokens.h"
#include "text/vocab.h"

#include <string.h>

/* Text without added tokens, in valid UTF-8. */
static gs_status encode_ordinary(const struct gs_vocab *vocab, const char *text, size_t size,
                                 struct gs_tokens *tokens, struct gs_error *error)
{
    for (size_t start = 0; start < size;) {
        size_t end = gs_pretokenize_next(text, size, start);
        gs_status status = gs_bpe_encode(&vocab->bpe, text + start, end - start, tokens, error);
        if (status != GS_OK)
            return status;
        start = end;
    }
    return GS_OK;
}

/* Cuts out the added tokens that are `normalized` or not; those that are not come first. */
static gs_status encode_cut(const struct gs_vocab *vocab, bool normalized, const char *text, size_t size,
                            struct gs_tokens *tokens, struct gs_error *error)
{
    for (size_t start = 0; start < size;) {
        size_t end = size;
        const struct gs_added_token *token =
            gs_added_tokens_next(&vocab->added, normalized, text, size, start, &end);
        gs_status status = normalized ? encode_ordinary(vocab, text + start, end - start, tokens, error)
                                      : encode_cut(vocab, true, text + start, end - start, tokens, error);
        if (status == GS_OK && token)
            status = gs_tokens_append(tokens, (int32_t)token->id, error);
        if (status != GS_OK)
            return status;
        start = token ? end + token->size : size;
    }
    return GS_OK;
}

/* How many bytes at the start are valid UTF-8. */
static size_t valid_prefix(const char *text, size_t size)
{
    size_t at = 0;
    while (at < size) {
        uint64_t word;
        if (size - at >= 8) {
            memcpy(&word, text + at, 8);
            if (!(word & 0x8080808080808080u)) {
                at += 8;
                continue;
            }
        }
        size_t length;
        if (gs_utf8_decode(text + at, size - at, &length) > 0x10FFFF)
            return at;
        at += length;
    }
    return at;
}

/* The text with U+FFFD for each ill-formed part. */
static gs_status make_valid(const char *text, size_t size, struct gs_buffer *valid, struct gs_error *error)
{
    gs_status status = gs_buffer_reserve(valid, size, error);
    for (size_t at = 0; at < size && status == GS_OK;) {
        size_t n = valid_prefix(text + at, size - at);
        status = gs_buffer_append(valid, text + at, n, error);
        at += n;
        if (at == size || status != GS_OK)
            break;
        size_t length;
        gs_utf8_decode(text + at, size - at, &length);
        status = gs_buffer_append(valid, "\xEF\xBF\xBD", 3, error);
        at += length;
    }
    return status;
}

static gs_status encode(const struct gs_vocab *vocab, bool cut, const char *text, size_t size,
                        struct gs_tokens *tokens, struct gs_error *error)
{
    struct gs_buffer valid = {0};
    size_t count = tokens->count;
    gs_status status = GS_OK;
    if (valid_prefix(text, size) < size) {
        status = make_valid(text, size, &valid, error);
        text = valid.data;
        size = valid.size;
    }
    if (status == GS_OK)
        status = cut ? encode_cut(vocab, false, text, size, tokens, error)
                     : encode_ordinary(vocab, text, size, tokens, error);
    if (status != GS_OK)
        tokens->count = count;
    gs_buffer_free(&valid);
    return status;
}

gs_status gs_vocab_encode(const struct gs_vocab *vocab, const char *text, size_t size,
                          struct gs_tokens *tokens, struct gs_error *error)
{
    return encode(vocab, false, text, size, tokens, error);
}

gs_status gs_vocab_encode_special(const struct gs_vocab *vocab, const char *text, size_t size,
                                  struct gs_tokens *tokens, struct gs_error *error)
{
    return encode(vocab, true, text, size, tokens, error);
}
