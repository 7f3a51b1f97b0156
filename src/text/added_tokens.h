/*
 * The tokens that stand beside the byte-pair vocabulary (`added_tokens`), and finding their texts. They are
 * found as Hugging Face's tokenizers finds them: leftmost, then longest; those that are not "normalized"
 * first, the others in what is left between them. Zero-initialise; add all, then index.
 */
#ifndef GS_TEXT_ADDED_TOKENS_H
#define GS_TEXT_ADDED_TOKENS_H

#include "base/arena.h"
#include "gossamer.h"

#define GS_MAX_ADDED_BYTES 1024 /* bounds the search at each position of a text */

struct gs_added_token {
    const char *text; /* [size], 1 <= size <= GS_MAX_ADDED_BYTES */
    size_t size;
    uint32_t id;
    bool special; /* dropped where special tokens are skipped; the others are text */
    bool normalized;
    bool in_vocab; /* the vocabulary proper lists it too */
};

struct gs_added_tokens {
    struct gs_added_token *list; /* [count]; once indexed: first n_first not normalized, each part by text */
    size_t count;
    size_t capacity;
    size_t n_first;
    bool starts[2][256];   /* the first bytes of the texts, not normalized and normalized */
    uint32_t *special_ids; /* [n_special], ascending */
    size_t n_special;
    struct gs_arena arena;
};

/* Copies the text. */
gs_status gs_added_tokens_add(struct gs_added_tokens *added, const struct gs_added_token *token,
                              struct gs_error *error);

/* GS_MALFORMED for a text or an id that occurs twice. */
gs_status gs_added_tokens_index(struct gs_added_tokens *added, struct gs_error *error);
void gs_added_tokens_free(struct gs_added_tokens *added);

/* By exact text; NULL if there is none. */
const struct gs_added_token *gs_added_tokens_find(const struct gs_added_tokens *added, const char *text,
                                                  size_t size);
bool gs_added_tokens_is_special(const struct gs_added_tokens *added, uint32_t id);

/*
 * The first token in text[from ... size-1], of those that are `normalized` or of those that are not;
 * *at is where it starts. NULL if there is none.
 */
const struct gs_added_token *gs_added_tokens_next(const struct gs_added_tokens *added, bool normalized,
                                                  const char *text, size_t size, size_t from, size_t *at);

#endif
