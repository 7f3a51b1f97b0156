/*
 * Generated tokens to events: reasoning, visible text, tool calls. A push parser for one turn of the
 * assistant; it is the same for streams and for whole outputs, and no sequence of ids makes it fail. What it
 * makes of a damaged output is in docs/harmony.md, "Reading".
 *
 * The parser borrows the vocabulary and the names of the tools; an event's texts are valid during the
 * callback. It does not stop at a stop id (gs_markers_is_stop): that is for whoever draws the tokens.
 */
#ifndef GS_CHAT_HARMONY_PARSE_H
#define GS_CHAT_HARMONY_PARSE_H

#include "chat/harmony_header.h"

enum gs_harmony_event_kind {
    GS_HARMONY_TEXT,    /* more text of a message; `kind` says what it is */
    GS_HARMONY_CALL,    /* a call begins: `text` is the whole name; its arguments follow as TEXT */
    GS_HARMONY_MESSAGE, /* a message is complete */
    GS_HARMONY_TURN,    /* the turn is: the last event */
};

/* Why a turn ended. */
enum gs_finish {
    GS_FINISH_STOP,       /* a stop id */
    GS_FINISH_LENGTH,     /* the tokens ran out */
    GS_FINISH_TOOL_CALLS, /* a stop id, and there were calls */
};

/* "stop", "length", "tool_calls" */
const char *gs_finish_name(enum gs_finish finish);

struct gs_harmony_event {
    enum gs_harmony_event_kind event;
    enum gs_message_kind kind; /* of the message, except for TURN */
    struct gs_text text;       /* of TEXT (UTF-8, whole characters, not empty) and CALL */
    struct gs_text type;       /* of CALL: the content type that was written; may be empty */
    bool builtin;              /* of CALL: of a declared built-in tool */
    bool cut;                  /* of MESSAGE: nothing closed it */
    enum gs_finish finish;     /* of TURN */
    size_t message;            /* number of the message in its turn, from 0 */
    size_t begin, end;         /* of MESSAGE: its tokens, markers included, among those that were fed */
};

/* Anything but GS_OK ends the feed with that status. */
typedef gs_status gs_harmony_event_fn(void *user, const struct gs_harmony_event *event,
                                      struct gs_error *error);

struct gs_harmony_parser;

struct gs_harmony_options {
    struct gs_declared_tools tools;
    bool no_preset; /* the prompt did not end in <|start|>assistant */
    gs_harmony_event_fn *fn;
    void *user;
};

/* GS_UNSUPPORTED for a vocabulary without harmony's tokens. */
gs_status gs_harmony_parser_open(const struct gs_vocab *vocab, const struct gs_harmony_options *options,
                                 struct gs_harmony_parser **out, struct gs_error *error);
void gs_harmony_parser_close(struct gs_harmony_parser *parser);

/* Any ids. Fails only with GS_OUT_OF_MEMORY or with what the callback returned. */
gs_status gs_harmony_feed(struct gs_harmony_parser *parser, const int32_t *ids, size_t count,
                          struct gs_error *error);

/* The tokens have ended: closes what is open, then TURN. Nothing may be fed after it. */
gs_status gs_harmony_finish(struct gs_harmony_parser *parser, struct gs_error *error);

/* Would the next ordinary token be text of a message (not of a header)? */
bool gs_harmony_in_body(const struct gs_harmony_parser *parser);

/* Of which kind that message is. */
enum gs_message_kind gs_harmony_body_kind(const struct gs_harmony_parser *parser);

#endif
