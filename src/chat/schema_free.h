/*
 * Strings of a pattern or a length that nearly every text fits: in their middle most tokens are possible, and
 * which is known without a walk through all of them. A state of an automaton is plain if every letter, and
 * every character beyond ASCII or none of them, leads on to one other state (or back to itself); what of
 * ASCII does not is barred, and leads elsewhere or nowhere. So `^[^<>]*$` is one plain state, "at most 100
 * characters without a slash" are a hundred in a row, and so are the labels of a host's name.
 */
#ifndef GS_CHAT_SCHEMA_FREE_H
#define GS_CHAT_SCHEMA_FREE_H

#include "chat/schema_trie.h"

/* The characters that may follow a state: so many plain states that bar the same bytes come after each other.
 */
struct gs_free_run {
    uint32_t left; /* characters; GS_UNLIMITED: they come back to themselves */
    uint16_t
        after[GS_TRIE_MAX_BYTES + 1]; /* the state after so many of them, as far as `left` and tokens go */
    uint64_t barred[3];               /* bit b % 64 of word b / 64: byte b; bit 128: all beyond ASCII */
    uint64_t ways[2]; /* of these, bytes of ASCII that lead elsewhere from some of the states */
};

/* What is known of the states of one automaton. Zero-initialise; gs_free_memo_close releases. */
struct gs_free_memo {
    const struct gs_dfa *dfa;
    struct gs_plain_state *states; /* [dfa->n_states] */
    uint8_t kinds[256];            /* [n_kind]: one byte of each kind that it and any string tell apart */
    size_t n_kind;
    uint64_t *filled; /* [n_words]: the tokens without a byte that `barred` has; NULL: none are known */
    uint64_t barred[3];
};
void gs_free_memo_close(struct gs_free_memo *memo);

/* false: not such a state, or memory is out; the tree has to be walked. */
bool gs_free_find(const struct gs_token_trie *trie, const struct gs_dfa *dfa, uint32_t state,
                  struct gs_free_memo *memo, struct gs_free_run *run);

/* What gs_trie_walk does from the root at the run's first state. */
gs_status gs_free_walk(const struct gs_token_trie *trie, struct gs_free_memo *memo,
                       const struct gs_free_run *run, gs_exit_fn *leave, void *user, uint64_t *words);

#endif
