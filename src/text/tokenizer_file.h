/*
 * tokenizer.json -> tokens, merges and added tokens. Takes any vocabulary of the byte-level BPE form with the
 * o200k split pattern; refuses, with what was found and what is supported, what would tokenise otherwise.
 * `truncation`, `padding` and `post_processor` are not read: they act on lists of ids, not on text.
 */
#ifndef GS_TEXT_TOKENIZER_FILE_H
#define GS_TEXT_TOKENIZER_FILE_H

#include "text/added_tokens.h"
#include "text/bpe.h"

#define GS_MAX_TOKENIZER_BYTES (1u << 30)

/*
 * The text [size bytes] of the file into zero-initialised objects, which the caller frees even on failure.
 * Messages do not name the file.
 */
gs_status gs_tokenizer_parse(const char *text, size_t size, struct gs_bpe *bpe, struct gs_added_tokens *added,
                             struct gs_error *error);

#endif
