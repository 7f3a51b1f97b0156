/*
 * The vocabulary in a GGUF's metadata -> tokens, merges and added tokens, as text/tokenizer_file makes them
 * from tokenizer.json. Takes byte-level BPE ("gpt2") with the o200k split ("gpt-4o") and nothing else. Of the
 * kinds of tokens, control tokens are the special ones, user-defined ones stand for their text, unused ones
 * do not exist.
 */
#ifndef GS_TEXT_GGUF_VOCAB_H
#define GS_TEXT_GGUF_VOCAB_H

#include "format/gguf.h"
#include "text/added_tokens.h"
#include "text/bpe.h"

/* Into zero-initialised objects, which the caller frees even on failure. Messages do not name the file. */
gs_status gs_gguf_vocab_read(const struct gs_gguf *gguf, struct gs_bpe *bpe, struct gs_added_tokens *added,
                             struct gs_error *error);

#endif
