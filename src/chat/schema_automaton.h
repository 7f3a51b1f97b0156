/*
 * Automata over bytes for what lies inside one JSON value: strings with their quotation marks, numbers,
 * words. A string has one spelling only: escapes where JSON demands them, in their shortest form, and UTF-8
 * for the rest; so an automaton over characters is one over bytes.
 */
#ifndef GS_CHAT_SCHEMA_AUTOMATON_H
#define GS_CHAT_SCHEMA_AUTOMATON_H

#include "chat/writer.h"

#define GS_DFA_DEAD       UINT16_MAX
#define GS_DFA_MAX_STATES 65000
#define GS_DFA_MAX_CELLS  ((size_t)4 << 20) /* states x classes */
#define GS_NFA_MAX_NODES  400000

/* What a compilation may still spend. Everything that loops over input pays. */
struct gs_schema_budget {
    size_t work;
    size_t states;
};

/* GS_UNSUPPORTED "too complex" once the budget is spent. */
gs_status gs_budget_work(struct gs_schema_budget *budget, size_t amount, struct gs_error *error);
gs_status gs_budget_states(struct gs_schema_budget *budget, size_t amount, struct gs_error *error);

/* ---------------------------------------------------------------- sets of characters */

struct gs_range {
    uint32_t first, last;
};

/* Zero-initialise; free `list`. */
struct gs_char_set {
    struct gs_range *list;
    size_t count, capacity;
};

gs_status gs_char_set_add(struct gs_char_set *set, uint32_t first, uint32_t last, struct gs_error *error);
/* Sorts and joins; to be called before what follows. */
void gs_char_set_normalise(struct gs_char_set *set);
gs_status gs_char_set_complement(struct gs_char_set *set, struct gs_error *error);

/* ---------------------------------------------------------------- nondeterministic */

enum gs_nfa_edge_kind {
    GS_NFA_BYTES,
    GS_NFA_EMPTY,
    GS_NFA_BEGIN, /* only at the first byte */
    GS_NFA_END,   /* only after the last */
};

struct gs_nfa_edge {
    uint32_t to, next;
    uint8_t kind, first, last;
};

struct gs_nfa {
    uint32_t *nodes; /* [n_nodes]: first edge, or UINT32_MAX */
    struct gs_nfa_edge *edges;
    size_t n_nodes, nodes_capacity, n_edges, edges_capacity;
    struct gs_schema_budget *budget;
    gs_status status; /* the first failure; later calls do nothing */
    struct gs_error *error;
};

void gs_nfa_free(struct gs_nfa *nfa);
uint32_t gs_nfa_node(struct gs_nfa *nfa);
void gs_nfa_edge(struct gs_nfa *nfa, uint32_t from, uint32_t to, enum gs_nfa_edge_kind kind, uint8_t first,
                 uint8_t last);
/* One character of the (normalised) set as a JSON string spells it. */
void gs_nfa_chars(struct gs_nfa *nfa, uint32_t from, uint32_t to, const struct gs_char_set *set);
void gs_nfa_char_range(struct gs_nfa *nfa, uint32_t from, uint32_t to, uint32_t first, uint32_t last);
/* These bytes, one after the other. */
void gs_nfa_bytes(struct gs_nfa *nfa, uint32_t from, uint32_t to, const char *bytes, size_t size);

/* ---------------------------------------------------------------- deterministic */

/* State 0 is the start; n_states 0: nothing is accepted. Every state reaches an accepting one. */
struct gs_dfa {
    uint16_t *next; /* [n_states][n_classes]: a state or GS_DFA_DEAD */
    uint8_t *label; /* [n_states]: 0, or what was accepted here */
    uint8_t *final; /* [n_states]: accepting, and no byte may follow */
    uint32_t n_states, n_classes;
    uint8_t class_of[256];
};

static inline uint16_t gs_dfa_next(const struct gs_dfa *dfa, uint32_t state, uint8_t byte)
{
    return dfa->next[state * dfa->n_classes + dfa->class_of[byte]];
}

void gs_dfa_free(struct gs_dfa *dfa);

/* The texts from `start` to `accept`, labelled `label`. */
gs_status gs_dfa_build(struct gs_nfa *nfa, uint32_t start, uint32_t accept, uint8_t label,
                       struct gs_dfa *dfa);

/* Puts quotation marks around the texts. */
gs_status gs_dfa_quote(struct gs_dfa *dfa, struct gs_schema_budget *budget, struct gs_error *error);

enum gs_dfa_mode {
    GS_DFA_BOTH,  /* what a and b accept, with a's label */
    GS_DFA_UNION, /* what one of them accepts, with the bits of their labels */
};
gs_status gs_dfa_product(const struct gs_dfa *a, const struct gs_dfa *b, enum gs_dfa_mode mode,
                         struct gs_schema_budget *budget, struct gs_dfa *out, struct gs_error *error);

/* The same texts and labels. */
gs_status gs_dfa_copy(const struct gs_dfa *dfa, struct gs_schema_budget *budget, struct gs_dfa *out,
                      struct gs_error *error);

/* Accepts only labels whose bit is set in keep[256]; what becomes useless goes. */
gs_status gs_dfa_keep(struct gs_dfa *dfa, const bool keep[256], struct gs_error *error);

/* The label of a whole text; 0: not accepted. */
uint8_t gs_dfa_run(const struct gs_dfa *dfa, const char *bytes, size_t size);

/* Strings of min ... max characters (max UINT32_MAX: any number), quotation marks included. */
gs_status gs_dfa_string(uint32_t min, uint32_t max, struct gs_schema_budget *budget, struct gs_dfa *dfa,
                        struct gs_error *error);

/* Shared by the automata's files. */
void gs_dfa_mark_final(struct gs_dfa *dfa);
gs_status gs_dfa_alloc(struct gs_dfa *dfa, size_t n_states, size_t n_classes, struct gs_error *error);
gs_status gs_dfa_prune(struct gs_dfa *dfa, struct gs_error *error);

#endif
