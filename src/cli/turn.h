/*
 * One turn of the assistant: a conversation becomes tokens, a session runs what is new of them, a source
 * draws the answer, the parser says what it is.
 */
#ifndef GS_CLI_TURN_H
#define GS_CLI_TURN_H

#include "chat/assemble.h"
#include "chat/replay.h"
#include "cli/output.h"
#include "cli/setup.h"

#include <jansson.h>

/*
 * The sessions of a conversation. The next turn leaves out this turn's reasoning, so its tokens part from the
 * timeline before the answer, often farther back than the rings of the window layers reach. So an answer is
 * drawn on a copy, and `base` keeps what the next turn will share. Where memory is short there is no copy.
 */
struct gs_timeline {
    struct gs_session *base;
    struct gs_session *live; /* the one that draws; may be base */
};

gs_status gs_timeline_open(struct gs_setup *setup, struct gs_timeline *timeline, struct gs_error *error);
void gs_timeline_close(struct gs_timeline *timeline);

enum gs_turn_end {
    GS_TURN_STOP,
    GS_TURN_LIMIT,       /* as many tokens as were asked for */
    GS_TURN_FULL,        /* the context */
    GS_TURN_RAN_OUT,     /* a script */
    GS_TURN_INTERRUPTED, /* Ctrl-C */
    GS_TURN_OUTPUT,      /* nobody reads any more */
};

struct gs_turn {
    /* the caller's part */
    const struct gs_setup *setup;
    struct gs_timeline *timeline;   /* unused with a script */
    const struct gs_output *output; /* the turn ends when it can no longer be written to */
    const struct gs_conversation *conversation;
    const struct gs_replay *replay; /* may be NULL */
    bool after_result;              /* the answer goes on after a tool's result: same reasoning */
    size_t generation;              /* of the script */
    gs_harmony_event_fn *fn;        /* each event, after `answer` has it */
    void *user;

    /* the result */
    struct gs_answer answer;
    struct gs_tokens prompt, generated; /* generated: with the stop id */
    enum gs_turn_end end;
    size_t n_computed;  /* tokens of the prompt that were run; the others were reused */
    size_t n_reasoning; /* generated ones */
    size_t n_steps;     /* tokens that were run through the model while it answered */
    double prefill_seconds;
    double first_seconds; /* from the start to the first token */
    double decode_seconds;
};

/*
 * GS_CONTEXT_FULL, with both numbers and before anything is run, for a conversation that does not fit.
 * An interrupt is no failure: what was generated until then is the answer.
 */
gs_status gs_turn_run(struct gs_turn *turn, struct gs_error *error);
void gs_turn_free(struct gs_turn *turn);

/* The answer in the OpenAI chat form, without calls that are not whole; NULL if memory is out. */
json_t *gs_turn_message(const struct gs_turn *turn, size_t first_call, bool with_calls);

/* "call_7" */
struct gs_call_id {
    char text[32];
};
struct gs_call_id gs_call_id(size_t number);

/* The names of the functions of a conversation; *names is to be freed. */
gs_status gs_turn_declared(const struct gs_conversation *conversation, struct gs_declared_tools *tools,
                           struct gs_text **names, struct gs_error *error);

#endif
