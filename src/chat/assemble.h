/*
 * The events of a turn collected into one assistant message. Zero-initialise; gs_answer_free releases. Pass
 * gs_answer_collect and the answer to the parser as its callback, or call it from one's own.
 */
#ifndef GS_CHAT_ASSEMBLE_H
#define GS_CHAT_ASSEMBLE_H

#include "chat/harmony_parse.h"

struct gs_answer_call {
    struct gs_buffer name;
    struct gs_buffer arguments; /* as generated; may be no JSON */
    bool builtin;
};

/* A message of the turn: which of the tokens that were fed are its own. */
struct gs_answer_part {
    enum gs_message_kind kind;
    size_t begin, end;
};

struct gs_answer {
    struct gs_buffer reasoning;   /* of all messages of its kind, one after the other; so is the content */
    struct gs_buffer content;     /* preambles and the final */
    struct gs_answer_call *calls; /* [n_call] */
    size_t n_call;
    struct gs_answer_part *parts; /* [n_part] */
    size_t n_part;
    enum gs_finish finish;
};

/* A gs_harmony_event_fn; `user` is the gs_answer. */
gs_status gs_answer_collect(void *user, const struct gs_harmony_event *event, struct gs_error *error);
void gs_answer_free(struct gs_answer *answer);

#endif
