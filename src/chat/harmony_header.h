/*
 * What a message is, read from its header: whose it is, where it goes, and what its body means. Never fails:
 * every sequence of words has a meaning (docs/harmony.md, "Reading").
 */
#ifndef GS_CHAT_HARMONY_HEADER_H
#define GS_CHAT_HARMONY_HEADER_H

#include "chat/writer.h"

/* The tools that a request declared; borrowed. Zero-initialised: none. */
struct gs_declared_tools {
    const struct gs_text *functions; /* [n_function] names, without "functions." */
    size_t n_function;
    bool browser, python;
};

enum gs_message_kind {
    GS_MESSAGE_REASONING,
    GS_MESSAGE_PREAMBLE, /* commentary to the user */
    GS_MESSAGE_FINAL,
    GS_MESSAGE_CALL,
    GS_MESSAGE_HIDDEN, /* to a built-in tool that was not declared, or not the assistant's */
};

/* A header as it came: the ordinary text, and where its markers stood in it. */
struct gs_header_parts {
    struct gs_text text;
    bool starts; /* <|start|> stood in front: not in the prompt, and not left out */
    bool has_channel, has_constrain;
    bool has_message;                /* it is complete: what follows is the body */
    size_t channel_at, constrain_at; /* offsets in `text` */
};

struct gs_header {
    enum gs_message_kind kind;
    struct gs_text name;   /* of a call: into the header's text or the declared tools */
    struct gs_text type;   /* the content type; may be empty */
    bool builtin;          /* the call goes to a declared built-in tool */
    bool known_channel;    /* one of the three */
    bool has_recipient;    /* some tool */
    struct gs_text rest;   /* what stands behind all this: the body of a message without <|message|> */
    struct gs_text behind; /* what follows the role, where there is no channel */
};

void gs_header_read(const struct gs_header_parts *parts, const struct gs_declared_tools *tools,
                    struct gs_header *header);

/* Words of running text rather than of a header, before any channel. */
bool gs_header_is_text(const struct gs_header_parts *parts);

/* Only blanks, or the beginning of a header that was cut off. */
bool gs_header_is_stub(struct gs_text text);

#endif
