/*
 * Tokens -> UTF-8, streaming. A token may end inside a character: such a tail (at most 3 bytes) is held back
 * until a later token completes it or shows that nothing can.
 */
#include "base/status.h"
#include "base/utf8.h"
#include "text/vocab.h"

#include <stdlib.h>
#include <string.h>

struct gs_detokenizer {
    const struct gs_vocab *vocab;
    struct gs_buffer pending; /* bytes whose text is not certain yet */
    struct gs_buffer text;    /* what the last call returned */
};

gs_status gs_detokenizer_open(const struct gs_vocab *vocab, struct gs_detokenizer **out,
                              struct gs_error *error)
{
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return gs_fail_memory(error, sizeof(**out));
    (*out)->vocab = vocab;
    return GS_OK;
}

void gs_detokenizer_close(struct gs_detokenizer *detokenizer)
{
    if (!detokenizer)
        return;
    gs_buffer_free(&detokenizer->pending);
    gs_buffer_free(&detokenizer->text);
    free(detokenizer);
}

/* Moves to `text` what is certain; at the end of the text everything is. */
static gs_status flush(struct gs_detokenizer *detokenizer, bool at_end, struct gs_error *error)
{
    struct gs_buffer *pending = &detokenizer->pending, *text = &detokenizer->text;
    gs_status status = gs_buffer_append(text, "", 0, error);
    size_t at = 0;
    while (at < pending->size && status == GS_OK) {
        size_t length;
        uint32_t c = gs_utf8_decode(pending->data + at, pending->size - at, &length);
        if (c == GS_UTF8_INCOMPLETE && !at_end)
            break;
        bool ill_formed = c == GS_UTF8_INVALID || c == GS_UTF8_INCOMPLETE;
        status = ill_formed ? gs_buffer_append(text, "\xEF\xBF\xBD", 3, error)
                            : gs_buffer_append(text, pending->data + at, length, error);
        at += length;
    }
    if (pending->size > 0)
        memmove(pending->data, pending->data + at, pending->size - at);
    pending->size -= at;
    return status;
}

gs_status gs_detokenizer_feed(struct gs_detokenizer *detokenizer, int32_t id, const char **text, size_t *size,
                              struct gs_error *error)
{
    *text = NULL;
    *size = 0;
    size_t n;
    const char *bytes = gs_vocab_bytes(detokenizer->vocab, id, &n);
    if (!bytes)
        return gs_fail(error, GS_INVALID_ARGUMENT, "no token has the id %d (ids are below %zu)", id,
                       gs_vocab_size(detokenizer->vocab));
    gs_buffer_clear(&detokenizer->text);
    gs_status status = gs_buffer_append(&detokenizer->pending, bytes, n, error);
    if (status == GS_OK)
        status = flush(detokenizer, false, error);
    if (status != GS_OK)
        return status;
    *text = detokenizer->text.data;
    *size = detokenizer->text.size;
    return GS_OK;
}

gs_status gs_detokenizer_finish(struct gs_detokenizer *detokenizer, const char **text, size_t *size,
                                struct gs_error *error)
{
    *text = NULL;
    *size = 0;
    gs_buffer_clear(&detokenizer->text);
    gs_status status = flush(detokenizer, true, error);
    if (status != GS_OK)
        return status;
    *text = detokenizer->text.data;
    *size = detokenizer->text.size;
    return GS_OK;
}
