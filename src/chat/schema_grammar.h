/*
 * What a compiled schema consists of: rules, one for each kind of value, that the machine (schema_machine.h)
 * runs on a stack. Inside strings and numbers it is an automaton; arrays and objects count.
 */
#ifndef GS_CHAT_SCHEMA_GRAMMAR_H
#define GS_CHAT_SCHEMA_GRAMMAR_H

#include "chat/schema_automaton.h"
#include "chat/schema_mask.h"

#include <pthread.h>

#define GS_NO_RULE      UINT32_MAX
#define GS_UNLIMITED    UINT32_MAX
#define GS_UNREACHABLE  UINT32_MAX /* the height of a rule that no finite text satisfies */
#define GS_MAX_PATTERNS 6          /* patternProperties of one object */
#define GS_LABEL_KEY                                                                                         \
    0x80u /* of a string that may be a key; the bits of the patterns it matches are added                    \
           */
#define GS_N_KEY_KINDS (1u << GS_MAX_PATTERNS)

enum gs_rule_kind {
    GS_RULE_LEX,    /* one automaton */
    GS_RULE_STRING, /* any string of min ... max characters; its automaton is dfas[0] */
    GS_RULE_ARRAY,
    GS_RULE_OBJECT,
    GS_RULE_UNION, /* one of the alternatives, none of which is a union */
};

struct gs_rule_array {
    uint32_t *prefix; /* [n_prefix]: the rules of the first items */
    uint32_t n_prefix;
    uint32_t items; /* of the others; GS_NO_RULE: there are none */
    uint32_t min, max;
};

/* A node of the tree of an object's known names, spelled with their quotation marks. */
struct gs_key_node {
    uint32_t first_child, n_children;
    uint32_t list, n_list; /* into lists: the properties below, ascending */
    uint8_t byte;
};

struct gs_rule_object {
    uint32_t n;              /* known properties, in the order in which they are generated */
    uint32_t *values;        /* [n]: rules */
    bool *required;          /* [n] */
    uint32_t *next_required; /* [n + 1]: the first required one at or after i, or n */
    uint32_t *required_left; /* [n + 1]: required ones at or after i */
    struct gs_key_node *nodes;
    uint32_t n_nodes;
    uint32_t *lists;
    uint32_t key;           /* the rule of other keys; GS_NO_RULE: there are none */
    uint32_t *other_values; /* [GS_N_KEY_KINDS]: by the key's label & (GS_N_KEY_KINDS - 1) */
    uint32_t other_height;  /* of the highest of them */
    uint32_t low_key;    /* of keys with the least high values, where one must come and no higher one fits */
    uint32_t low_height; /* of those values; low_key GS_NO_RULE: all are as high, or none must come */
    uint32_t min, max;
    bool counted; /* min or max can matter */
};

struct gs_rule {
    enum gs_rule_kind kind;
    uint32_t height; /* stack frames that the smallest text needs */
    union {
        uint32_t dfa;
        struct {
            uint32_t min, max;
        } string;
        struct gs_rule_array array;
        struct gs_rule_object object;
        struct {
            uint32_t *list, count;
        } alternatives;
    } as;
};

struct gs_mask_cache;

struct gs_grammar {
    struct gs_rule *rules;
    size_t n_rules, rules_capacity;
    struct gs_dfa *dfas;
    size_t n_dfas, dfas_capacity;
    uint32_t root;
    uint32_t max_depth; /* stack frames */
    struct gs_grammar_size size;

    pthread_mutex_t lock; /* guards what follows */
    size_t n_holders;
    size_t cache_bytes;
    struct gs_mask_cache *cache;      /* of masks; schema_cache.h */
    const struct gs_token_trie *trie; /* that the masks are for */
};

/* An empty grammar whose dfas[0] is there; gs_grammar_close releases. */
gs_status gs_grammar_make(struct gs_schema_budget *budget, size_t cache_bytes, struct gs_grammar **out,
                          struct gs_error *error);

/* A new rule (zeroed, of this kind), and a new automaton, which is taken over in any case. */
gs_status gs_grammar_add_rule(struct gs_grammar *grammar, enum gs_rule_kind kind, uint32_t *rule,
                              struct gs_error *error);
gs_status gs_grammar_add_dfa(struct gs_grammar *grammar, struct gs_dfa *dfa, uint32_t *index,
                             struct gs_error *error);

/* Heights, then what follows from them. GS_UNSUPPORTED if the root cannot be satisfied within max_depth. */
gs_status gs_grammar_finish(struct gs_grammar *grammar, uint32_t root, size_t max_depth,
                            struct gs_schema_budget *budget, struct gs_error *error);

/* The tree of names [n], spelled; fills nodes and lists. */
gs_status gs_object_index(struct gs_rule_object *object, struct gs_text *names,
                          struct gs_schema_budget *budget, struct gs_error *error);

#endif
