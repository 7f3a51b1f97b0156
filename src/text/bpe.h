/*
 * Byte-pair encoding of one piece of text: starting from single bytes, the adjacent pair of lowest rank is
 * merged, leftmost on ties, until no adjacent pair can be. O(n log n) for long pieces.
 */
#ifndef GS_TEXT_BPE_H
#define GS_TEXT_BPE_H

#include "text/solid.h"

struct gs_bpe {
    struct gs_token_table table;
    struct gs_merge_table merges;
    uint32_t byte_ids[256];    /* the token of each single byte */
    uint32_t *byte_pair_ranks; /* [256][256]: the rank of each pair of bytes, or GS_NO_MERGE */
    uint32_t *solid;           /* characters to start from: solid.h */
    bool ignore_merges;        /* a piece that is a token is that token, reachable by merges or not */
};

/* Fills byte_ids, byte_pair_ranks and solid once table and merges are indexed. GS_MALFORMED names a missing
 * byte. */
gs_status gs_bpe_index(struct gs_bpe *bpe, struct gs_error *error);

/* Appends the tokens of a piece [size >= 1 bytes]. GS_OUT_OF_MEMORY is the only failure. */
gs_status gs_bpe_encode(const struct gs_bpe *bpe, const char *piece, size_t size, struct gs_tokens *tokens,
                        struct gs_error *error);
void gs_bpe_free(struct gs_bpe *bpe);

#endif
