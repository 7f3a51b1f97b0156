/*
 * The tokens of a vocabulary as a tree of bytes, in preorder: the children of a node follow it, and `end`
 * skips a subtree. For strings without a pattern, in whose middle nearly every token is possible, what each
 * token does is known beforehand.
 */
#ifndef GS_CHAT_SCHEMA_TRIE_H
#define GS_CHAT_SCHEMA_TRIE_H

#include "chat/schema_machine.h"

#define GS_TRIE_MAX_BYTES 255 /* longer tokens are never allowed */
#define GS_TRIE_FEW_CHARS 32

/* Sets of bytes: bit b for byte b of ASCII, and two more. */
#define GS_TRIE_BEYOND_ASCII 128u /* any other */
#define GS_TRIE_E2           129u /* 0xE2, with which U+2028 and U+2029 begin: a dot in a pattern is all but those */
#define GS_TRIE_SETS         130u

/* A node at which a string is closed, or one of its characters begins. */
struct gs_string_exit {
    uint32_t node;
    uint32_t chars;     /* before it */
    uint64_t before[3]; /* the set of the bytes in front of it: bit i % 64 of word i / 64 */
};

struct gs_token_trie {
    size_t n_vocab, n_words, n_nodes;
    uint8_t *byte;       /* [n_nodes]; node 0 is the root */
    uint8_t *depth;      /* [n_nodes] */
    uint32_t *end;       /* [n_nodes]: one past the subtree */
    uint32_t *parent;    /* [n_nodes] */
    int32_t *token;      /* [n_nodes]: or -1 */
    int32_t *next_token; /* [n_vocab]: another token with the same bytes, or -1 */
    uint32_t *node;      /* [n_vocab]: of a token; 0: it has none */
    uint32_t longest;    /* bytes of a token */

    /* Between two characters of a string: tokens that stay inside it, and the ways out of it. */
    struct gs_dfa string;
    uint64_t *inside;  /* [n_words] */
    uint64_t *few;     /* [GS_TRIE_FEW_CHARS][n_words]: those of at most i characters */
    int32_t *many;     /* tokens of GS_TRIE_FEW_CHARS characters or more, ascending by their number */
    uint32_t *n_chars; /* [n_many]: characters */
    size_t n_many;
    struct gs_string_exit *exits;
    size_t n_exits;
    struct gs_string_exit
        *begins;           /* of escapes, characters with 0xE2, and those of ASCII but letters; by byte */
    size_t begins_at[257]; /* those of byte b: from begins_at[b] to begins_at[b + 1] */
    uint64_t *with;        /* [GS_TRIE_SETS][n_words]: of `inside`, those that have such a byte */
};

static inline void gs_trie_allow(const struct gs_token_trie *trie, uint32_t node, uint64_t *words)
{
    for (int32_t id = trie->token[node]; id >= 0; id = trie->next_token[id])
        words[id / 64] |= (uint64_t)1 << (id % 64);
}

/* Allows what stays inside any string of at most `left` more characters (UINT32_MAX: any number). */
void gs_trie_fill_inside(const struct gs_token_trie *trie, uint32_t left, uint64_t *words);

static inline bool gs_is_letter(unsigned byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

/* Where a walk through an automaton leaves it. */
typedef gs_status gs_exit_fn(void *user, uint32_t node, uint8_t label);

/*
 * Sets the tokens below `node` that the automaton takes from `state`, and calls `leave` at each node where it
 * may end and tokens go on. With counts (min, max of characters, `chars` so far; inside: the state in which a
 * character begins), a string ends and goes on only as they allow.
 */
struct gs_lex_walk {
    const struct gs_dfa *dfa;
    uint32_t state;
    bool counts;
    uint32_t inside, chars, min, max;
    gs_exit_fn *leave;
    void *user;
};
gs_status gs_trie_walk(const struct gs_token_trie *trie, uint32_t node, const struct gs_lex_walk *walk,
                       uint64_t *words);

#endif
