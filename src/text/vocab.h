/*
 * A vocabulary: the tokenizer.json or the GGUF of a path, and text -> tokens (gossamer.h has the public
 * functions). Immutable once opened; encoding allocates nothing but the list of tokens, except for pieces of
 * more than some hundred bytes and for text that is not UTF-8.
 */
#ifndef GS_TEXT_VOCAB_H
#define GS_TEXT_VOCAB_H

#include "text/added_tokens.h"
#include "text/bpe.h"

struct gs_vocab {
    struct gs_bpe bpe;
    struct gs_added_tokens added;
};

/* The same as gs_vocab_open from the contents of a file; `name` is used in messages. */
gs_status gs_vocab_parse(const char *name, const char *text, size_t size, struct gs_vocab **out,
                         struct gs_error *error);

#endif
