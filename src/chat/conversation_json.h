/*
 * Conversations in the OpenAI chat form: {"messages": [...], "tools": [...], ...}, or the array of messages
 * alone. docs/harmony.md lists the keys that are read; others are ignored.
 */
#ifndef GS_CHAT_CONVERSATION_JSON_H
#define GS_CHAT_CONVERSATION_JSON_H

#include "chat/conversation.h"

#define GS_DEFAULT_IDENTITY "You are ChatGPT, a large language model trained by OpenAI."
#define GS_DEFAULT_CUTOFF   "2024-06"

/* What the request does not say. Texts must live as long as the conversation. */
struct gs_conversation_settings {
    const char *identity; /* NULL: the one above */
    const char *cutoff;   /* NULL: the one above; "": no line */
    const char *date;     /* "2025-06-28"; NULL: no line */
    enum gs_effort effort;
    bool browser, python; /* declare the built-in tools */
    bool dotted_names;    /* names of functions may hold dots */
};

/*
 * Conversations begin with the system message that the settings describe. On failure `out` is to be freed all
 * the same; GS_INVALID_ARGUMENT has the JSON path and what is expected there.
 */
gs_status gs_conversation_from_json(const struct gs_conversation_settings *settings, json_t *request,
                                    struct gs_conversation *out, struct gs_error *error);

#endif
