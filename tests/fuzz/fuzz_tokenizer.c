/*
 * Bytes as a tokenizer.json and, where that is one, as text to encode; and bytes as text for a small
 * vocabulary. Literal text must never give a special id, and decoding must give the text back.
 */
#include "base/utf8.h"
#include "text/vocab.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const struct gs_vocab *vocab, const char *text, size_t size)
{
    struct gs_tokens tokens = {0};
    struct gs_detokenizer *detokenizer = NULL;
    size_t n_text = 0, n;
    const char *part;
    if (gs_vocab_encode(vocab, text, size, &tokens, NULL) != GS_OK ||
        gs_detokenizer_open(vocab, &detokenizer, NULL) != GS_OK)
        abort();
    for (size_t i = 0; i < tokens.count; i++) {
        if (gs_vocab_is_special(vocab, tokens.ids[i]))
            abort();
        if (gs_detokenizer_feed(detokenizer, tokens.ids[i], &part, &n, NULL) != GS_OK ||
            !gs_utf8_valid(part, n))
            abort();
        n_text += n;
    }
    if (gs_utf8_valid(text, size) && n_text != size)
        abort();
    tokens.count = 0;
    if (gs_vocab_encode_special(vocab, text, size, &tokens, NULL) != GS_OK)
        abort();
    gs_detokenizer_close(detokenizer);
    gs_tokens_free(&tokens);
}

/* The vocabulary that the bytes are text for. */
static struct gs_vocab *open_small(void)
{
    struct gs_vocab *vocab;
    return gs_vocab_open("tests/data/text/trained.json", &vocab, NULL) == GS_OK ? vocab : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct gs_vocab *small;
    const char *text = (const char *)data;
    if (!small && !(small = open_small()))
        abort(); /* run from the repository's root */
    struct gs_vocab *vocab;
    struct gs_error error;
    if (gs_vocab_parse("fuzz", text, size, &vocab, &error) == GS_OK)
        check_text(vocab, text, size);
    else if (strchr(error.message, '\n'))
        abort();
    gs_vocab_close(vocab);
    check_text(small, text, size);
    return 0;
}
