/*
 * Tokens and merges, spelt in the byte alphabet of byte-level BPE, -> the tables of a vocabulary. What
 * tokenizer.json and a GGUF's metadata have in common.
 */
#ifndef GS_TEXT_VOCAB_BUILDER_H
#define GS_TEXT_VOCAB_BUILDER_H

#include "text/added_tokens.h"
#include "text/bpe.h"

#define GS_ALPHABET_END 0x144 /* one past the last code point that stands for a byte */
#define GS_MAX_SPELLING ((size_t)2 * GS_MAX_TOKEN_BYTES) /* a byte is at most two bytes of UTF-8 there */

struct gs_vocab_builder {
    struct gs_bpe *bpe; /* to be filled; borrowed, as is the next */
    struct gs_added_tokens *added;
    const char *tokens_name, *merges_name; /* of both lists in the file, for messages */
    int16_t alphabet[GS_ALPHABET_END];     /* code point -> byte, or -1 */
    char *joined;                          /* [2*GS_MAX_SPELLING]: the bytes of both sides of a merge */
    uint32_t last_result;                  /* of the merge before */
};

/* The other fields are set. Release with gs_vocab_builder_close even on failure. */
gs_status gs_vocab_builder_open(struct gs_vocab_builder *builder, struct gs_error *error);
void gs_vocab_builder_close(struct gs_vocab_builder *builder);

/* The bytes that a string [size] spells, into out [size]; false for what is not of the alphabet. */
bool gs_vocab_builder_spell(const struct gs_vocab_builder *builder, const char *string, size_t size,
                            char *out, size_t *out_size);

/* The next merge, of two strings of at most GS_MAX_SPELLING bytes. All tokens are there and indexed. */
gs_status gs_vocab_builder_merge(struct gs_vocab_builder *builder, const char *left, size_t left_size,
                                 const char *right, size_t right_size, struct gs_error *error);

/* Gives the added tokens (indexed) their ids and texts in the table, and indexes the whole. */
gs_status gs_vocab_builder_finish(struct gs_vocab_builder *builder, struct gs_error *error);

#endif
