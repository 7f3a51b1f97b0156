/*
 * Structured output: JSON Schema -> grammar -> which tokens may come next (docs/structured-output.md).
 *
 *   gs_token_trie   the vocabulary's bytes as a tree; one per vocabulary, immutable, any number of threads
 *   gs_grammar      a compiled schema; immutable but for a cache of masks that a lock guards, so that one
 *                   grammar serves any number of requests and threads; counted references
 *   gs_mask         one generation's place in a grammar; one thread at a time
 *
 * Text that follows the masks to an end token is valid JSON and valid against the schema, unless keywords
 * were reported as unsupported. A place where nothing is allowed cannot be reached.
 */
#ifndef GS_CHAT_SCHEMA_MASK_H
#define GS_CHAT_SCHEMA_MASK_H

#include "chat/writer.h"

#include <jansson.h>

struct gs_token_trie;

/*
 * n_vocab: the length of the model's logits, at least the vocabulary's size. Special tokens are left out.
 * The vocabulary is not used afterwards. GS_UNSUPPORTED if a byte of UTF-8 text has no token of its own.
 */
gs_status gs_token_trie_open(const struct gs_vocab *vocab, size_t n_vocab, struct gs_token_trie **out,
                             struct gs_error *error);
void gs_token_trie_close(struct gs_token_trie *trie);

/* ---------------------------------------------------------------- grammar */

/* Bounds of one compilation; 0 stands for the default. What is over a bound is GS_UNSUPPORTED. */
struct gs_schema_limits {
    size_t max_rules;   /* kinds of value: distinct sub-schemas (4,096) */
    size_t max_states;  /* of all automata together (262,144) */
    size_t max_work;    /* elementary steps of compilation (40 million, well under a second) */
    size_t max_depth;   /* nesting of what is generated (64) */
    size_t cache_bytes; /* masks kept (16 MiB) */
};

/* A keyword of the schema that the grammar does not enforce. */
struct gs_schema_unsupported {
    char keyword[32];
    char path[200]; /* of the schema that holds it: "#/properties/size", cut to fit; printable */
};

#define GS_MAX_UNSUPPORTED 32

struct gs_schema_report {
    struct gs_schema_unsupported list[GS_MAX_UNSUPPORTED];
    size_t count;  /* of the list; what is beyond is not kept */
    size_t n_work; /* steps that the compilation took, also of a schema that is refused */
};

struct gs_grammar;

/*
 * Compiles a schema (an object, true or false); it is not used afterwards. *report (may be NULL) is what is
 * not enforced, also on success: count 0 means that all of it is. limits may be NULL.
 *
 * GS_MALFORMED   no schema: a keyword of a wrong type, a broken pattern, a reference that leads nowhere or
 *                back to itself
 * GS_UNSUPPORTED over a limit, or no value can satisfy it
 * The message is one line with the path in the schema, if there is one: "#/properties/a: minLength must be
 * ..."; a limit over the whole schema has none.
 */
gs_status gs_schema_compile(const json_t *schema, const struct gs_schema_limits *limits,
                            struct gs_grammar **out, struct gs_schema_report *report, struct gs_error *error);

/* Any JSON object: response_format json_object, and tools without parameters. */
gs_status gs_grammar_json_object(struct gs_grammar **out, struct gs_error *error);

/*
 * Exactly one of these texts (not JSON), e.g. "get_weather " for the name in a forced header of harmony with
 * <|constrain|> as end token. No NUL, valid UTF-8, count >= 1.
 */
gs_status gs_grammar_texts(const char *const *texts, size_t count, struct gs_grammar **out,
                           struct gs_error *error);

/* One more reference, and one less; the last one frees. */
struct gs_grammar *gs_grammar_hold(struct gs_grammar *grammar);
void gs_grammar_close(struct gs_grammar *grammar);

/* Would this whole text be accepted? For tests and for checking what was generated without masks. */
gs_status gs_grammar_accepts(struct gs_grammar *grammar, const char *text, size_t size, bool *accepted,
                             struct gs_error *error);

/* What a compilation made and what it cost: figures for logs and tests. */
struct gs_grammar_size {
    size_t n_rules;
    size_t n_states;
    size_t bytes; /* without cached masks */
    size_t n_work;
};
struct gs_grammar_size gs_grammar_size(const struct gs_grammar *grammar);

/* ---------------------------------------------------------------- mask */

struct gs_mask;

/*
 * A generation that begins now, at the first byte of the text. end_ids [n_end] are allowed where the text may
 * end, and there alone: <|return|> after a final message, <|call|> after arguments. Holds the grammar;
 * borrows the trie, which must be the same for all masks of a grammar.
 */
gs_status gs_mask_open(struct gs_grammar *grammar, const struct gs_token_trie *trie, const int32_t *end_ids,
                       size_t n_end, struct gs_mask **out, struct gs_error *error);
void gs_mask_close(struct gs_mask *mask);

/*
 * *words [(n_vocab + 63) / 64]: bit id % 64 of word id / 64 is set if the token may come next; never all
 * zero before an end token was accepted. Valid until the next call. GS_OUT_OF_MEMORY is the only failure.
 */
gs_status gs_mask_allowed(struct gs_mask *mask, const uint64_t **words, struct gs_error *error);

/* Moves on. GS_INVALID_ARGUMENT, with the place as it was, for a token that is not allowed. */
gs_status gs_mask_accept(struct gs_mask *mask, int32_t token, struct gs_error *error);

/* May the text end here? And: was an end token accepted? */
bool gs_mask_can_end(const struct gs_mask *mask);
bool gs_mask_ended(const struct gs_mask *mask);

#endif
