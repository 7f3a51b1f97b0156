/*
 * One compilation under way. A value's schema is a *conjunction*: a set of schemas that all hold (one for a
 * plain schema, several where allOf, two patternProperties or a $ref with neighbours meet). Expanding it
 * gives *alternatives*, each a list of schemas whose own keywords all hold and whose applicators are used up.
 */
#ifndef GS_CHAT_SCHEMA_COMPILE_H
#define GS_CHAT_SCHEMA_COMPILE_H

#include "base/arena.h"
#include "chat/schema_grammar.h"

#define GS_SCHEMA_MAX_NESTING      64 /* of allOf, anyOf, $ref in one another, and of constants */
#define GS_SCHEMA_MAX_ALTERNATIVES 512
#define GS_SCHEMA_MAX_PROPERTIES   5000 /* of one object */
#define GS_WORK_OF_POINTER         8    /* steps for a pointer kept in the arena: its memory is bounded too */

/* In a schema made to deny a condition: the properties it names do not count as evaluated. */
#define GS_DENIAL "x-denial"

enum {
    GS_TYPE_NULL = 1,
    GS_TYPE_BOOLEAN = 2,
    GS_TYPE_NUMBER = 4,
    GS_TYPE_STRING = 8,
    GS_TYPE_ARRAY = 16,
    GS_TYPE_OBJECT = 32,
    GS_TYPE_ANY = 63,
};

struct gs_conjunction {
    const json_t **list; /* in the arena */
    size_t count;
    uint32_t rule;
};

struct gs_alternative {
    const json_t **list; /* in the arena; schemas that are objects */
    size_t count;
    unsigned types; /* GS_TYPE_... that all of them allow */
};

struct gs_alternatives {
    struct gs_alternative *list; /* in the arena */
    size_t count;
};

struct gs_compiler {
    const json_t *root;
    struct gs_grammar *grammar;
    struct gs_schema_budget budget;
    size_t max_rules;
    struct gs_arena arena;
    struct gs_schema_report *report; /* never NULL */
    struct gs_error *error;
    json_t *made;     /* array: schemas made on the way, kept alive */
    json_t *scalars;  /* object: what a scalar rule was made from -> its number */
    json_t *patterns; /* object: pattern -> index of its automaton, or -1 for one that is not supported */
    json_t *expanded; /* object: what a conjunction consists of -> its rule */
    json_t *reported; /* object: places and keywords that were reported */
    struct gs_conjunction *pending; /* rules whose body is made, or still to be made */
    size_t n_pending, pending_capacity, n_done;
    const json_t *open[GS_SCHEMA_MAX_NESTING]; /* schemas being expanded, for references back */
    size_t n_open;
    const json_t *source; /* the schema whose constants are being filtered */
};

/* schema_state.c: what all parts of a compilation call. Fails with the path of `schema` in front:
 * "#/properties/a: ...". */
__attribute__((format(printf, 4, 5))) gs_status gs_compile_fail(struct gs_compiler *c, gs_status code,
                                                                const json_t *schema, const char *format,
                                                                ...);

/* Notes that a keyword is not enforced; once for each place. */
void gs_compile_report(struct gs_compiler *c, const json_t *schema, const char *keyword);

/* A schema made here (taken over); NULL if memory is out. */
const json_t *gs_compile_keep(struct gs_compiler *c, json_t *schema);

/* The rule of a conjunction, now or later; its body may still be missing. */
gs_status gs_compile_value(struct gs_compiler *c, const json_t **schemas, size_t count, uint32_t *rule);

/* schema_expand.c: the alternatives of a conjunction. Checks the keywords' types. */
gs_status gs_schema_expand(struct gs_compiler *c, const json_t **schemas, size_t count,
                           struct gs_alternatives *out);

/* schema_resolve.c: the schema that a $ref leads to. */
gs_status gs_schema_resolve(struct gs_compiler *c, const json_t *holder, const json_t **target);

/* schema_keywords.c: types of the keywords of one schema; which types of value it allows. */
gs_status gs_schema_check_keywords(struct gs_compiler *c, const json_t *schema);
gs_status gs_schema_types(struct gs_compiler *c, const json_t *schema, unsigned *types);
bool gs_schema_only_integers(const json_t *schema);
/* What holds for items behind the lists of the first ones; NULL: anything. */
const json_t *gs_schema_rest_items(const json_t *schema);
/* Has it unevaluatedItems that hang on what other keywords see? */
bool gs_schema_unevaluated_items(const json_t *schema);
bool gs_schema_count(const json_t *schema, const char *keyword, uint32_t *value);

/*
 * schema_condition.c. The scalar constants that `not` excludes, if that is all it says: number i of them, or
 * NULL. And if/then/else as a schema without them, where the condition can be denied; else NULL (*status
 * GS_OK).
 */
const json_t *gs_schema_excluded(const json_t *schema, size_t i);
json_t *gs_schema_branches(const json_t *schema, struct gs_compiler *c, gs_status *status);

/* schema_value.c: does a constant satisfy a schema? Unevaluated items and properties hold. */
gs_status gs_schema_holds(struct gs_compiler *c, const json_t *schema, const json_t *value, unsigned depth,
                          bool *holds);

/* schema_pattern.c. The automaton of a pattern, or NULL if it is not supported (which is reported for
 * `schema`). */
gs_status gs_compile_pattern(struct gs_compiler *c, const json_t *schema, const char *keyword,
                             struct gs_text pattern, const struct gs_dfa **dfa);
/* A string as a JSON text has it. */
gs_status gs_spell_string(struct gs_text text, struct gs_buffer *out, struct gs_error *error);

/* schema_scalar.c: rules of numbers, strings and constants. */
gs_status gs_compile_literals(struct gs_compiler *c, const struct gs_alternative *alternative, bool *found,
                              uint32_t **rules, size_t *n_rules);
gs_status gs_compile_words(struct gs_compiler *c, const char *const *words, size_t count, uint32_t *rule);
gs_status gs_compile_number(struct gs_compiler *c, const struct gs_alternative *alternative, uint32_t *rule);
gs_status gs_compile_string(struct gs_compiler *c, const struct gs_alternative *alternative, uint32_t *rule);
/* The automaton of the strings that a list of schemas allows (their own keywords only). */
gs_status gs_compile_string_dfa(struct gs_compiler *c, const json_t **schemas, size_t count,
                                struct gs_dfa *out);

/* schema_object.c, schema_array.c */
gs_status gs_compile_object(struct gs_compiler *c, const struct gs_alternative *alternative, uint32_t *rule);
gs_status gs_compile_array(struct gs_compiler *c, const struct gs_alternative *alternative, uint32_t *rule);

#endif
