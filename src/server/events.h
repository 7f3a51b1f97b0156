/*
 * What comes of a request: one stream of events, which every dialect consumes. The scheduler calls the sink's
 * `event` on its own thread, in order; texts are valid during the call. The last event of a request is DONE
 * or ERROR, after which `release` is called once and nothing more. A sink must not block.
 *
 * Of one choice: (REASONING | TEXT | CALL ARGUMENTS* | MESSAGE_DONE)* CHOICE_DONE. WAITING may come anywhere.
 */
#ifndef GS_SERVER_EVENTS_H
#define GS_SERVER_EVENTS_H

#include "chat/harmony_parse.h"
#include "server/api_error.h"

enum gs_event_kind {
    GS_EVENT_WAITING,      /* nothing to say for a while (queue, prefill): time for a keep-alive */
    GS_EVENT_REASONING,    /* `text`: more of the analysis */
    GS_EVENT_TEXT,         /* `text`: more of what the user sees; `logprobs` of tokens that became certain */
    GS_EVENT_CALL,         /* a tool call begins: `text` is its whole name, `call_id` and `call` are set */
    GS_EVENT_ARGUMENTS,    /* `text`: more of the arguments of `call` */
    GS_EVENT_MESSAGE_DONE, /* a message of `message_kind` is complete; of a CALL: `call` is set */
    GS_EVENT_CHOICE_DONE,  /* `finish`, `stop` */
    GS_EVENT_DONE,         /* all choices are; `usage` */
    GS_EVENT_ERROR,        /* `error`; `usage` so far. What was sent stands */
};

/* A token of the final message (or of raw text) and how likely it was. */
struct gs_token_logprob {
    int32_t id;
    float logprob;
    bool has_logprob;             /* false: the first token of an echoed prompt */
    const struct gs_logprob *top; /* [n_top], best first */
    size_t n_top;
};

struct gs_usage {
    size_t prompt;     /* tokens of all prompts, each once */
    size_t cached;     /* of these: taken from the prefix cache */
    size_t completion; /* generated, all choices, stop ids included */
    size_t reasoning;  /* of these: in messages of reasoning */
    double queue_seconds, prefill_seconds, first_seconds, total_seconds; /* first: submit to first token */
};

struct gs_event {
    enum gs_event_kind kind;
    size_t choice; /* 0 ... n_prompt * n_choice - 1 */
    struct gs_text text;
    size_t call;         /* number of the call in its choice */
    const char *call_id; /* "call_..." */
    enum gs_message_kind message_kind;
    enum gs_finish finish;
    struct gs_text stop;                     /* the stop string that ended the choice; not set: none */
    const struct gs_token_logprob *logprobs; /* [n_logprob] */
    size_t n_logprob;
    const struct gs_usage *usage;
    const struct gs_api_error *error;
};

struct gs_sink {
    void (*event)(void *user, const struct gs_event *event);
    void (*release)(void *user);
    void *user;
};

#endif
