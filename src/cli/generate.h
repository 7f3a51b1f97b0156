/*
 * The loop of a completion: tokens from a source, through the detokenizer, to standard output, until one of
 * the reasons to end. Owns nothing; the caller fills the first part and reads the second.
 */
#ifndef GS_CLI_GENERATE_H
#define GS_CLI_GENERATE_H

#include "cli/output.h"

#define GS_MAX_TOP_LOGPROBS 20

enum gs_end_reason {
    GS_END_STOP,        /* a stop id */
    GS_END_LIMIT,       /* as many tokens as were asked for */
    GS_END_EXHAUSTED,   /* the source has no more: the context is full, or the script ran out */
    GS_END_INTERRUPTED, /* Ctrl-C */
    GS_END_OUTPUT,      /* nobody reads any more, or writing failed */
    GS_END_ERROR,
};

struct gs_generation {
    const struct gs_vocab *vocab;
    struct gs_source *source;
    struct gs_output *output;
    const int32_t *stop_ids; /* [n_stop_ids]; 0 of them: nothing stops */
    size_t n_stop_ids;
    size_t n_vocab;     /* of the logits */
    int64_t limit;      /* tokens; -1: none */
    bool show_special;  /* special tokens are printed as their text */
    bool json;          /* a JSON object a line and token instead of the text */
    int64_t n_logprobs; /* most likely tokens in it; -1: no log-probabilities */

    enum gs_end_reason reason;
    int32_t stop_id;  /* the one it was; -1 */
    int64_t n_tokens; /* printed ones: without the stop id */
    int64_t n_steps;  /* tokens that were run through the model for it */
    bool broken_tail; /* the text ended inside a character: U+FFFD stands for it */
    double seconds;   /* of those steps */
};

/* GS_OK for every reason but GS_END_ERROR. */
gs_status gs_generate(struct gs_generation *generation, struct gs_error *error);

/* "stop", "length", "interrupted", "output", "error" */
const char *gs_end_reason_name(enum gs_end_reason reason);

#endif
