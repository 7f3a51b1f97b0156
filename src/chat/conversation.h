/*
 * A conversation as harmony sees it: messages with an author, a recipient and a channel. conversation_json.h
 * fills one from the OpenAI chat form, harmony_json.h from the message form of openai-harmony;
 * harmony_render.h turns it into tokens.
 *
 * Zero-initialise; gs_conversation_free releases. The conversation owns its messages and keeps the JSON that
 * it was read from alive: texts and schemas point into it.
 */
#ifndef GS_CHAT_CONVERSATION_H
#define GS_CHAT_CONVERSATION_H

#include "base/arena.h"
#include "chat/writer.h"

#include <jansson.h>

enum gs_role { GS_ROLE_SYSTEM, GS_ROLE_DEVELOPER, GS_ROLE_USER, GS_ROLE_ASSISTANT, GS_ROLE_TOOL };

/* "system", "developer", ... */
const char *gs_role_name(enum gs_role role);

/* ---------------------------------------------------------------- tools */

struct gs_function {
    struct gs_text name;
    struct gs_text description; /* may have several lines */
    const json_t *parameters;   /* a JSON schema; NULL: none */
};

struct gs_namespace {
    struct gs_text key;  /* blocks are sorted by it */
    struct gs_text name; /* "functions" */
    struct gs_text description;
    struct gs_function *functions; /* [n_function] */
    size_t n_function;
    const char *block; /* instead of all this, the lines under the heading; NULL: none */
};

/* ---------------------------------------------------------------- contents */

enum gs_effort { GS_EFFORT_MEDIUM, GS_EFFORT_LOW, GS_EFFORT_HIGH };

/* "low", "medium", "high" */
const char *gs_effort_name(enum gs_effort effort);

/* Also "minimal" and "none", which are low. False for any other text. */
bool gs_effort_parse(struct gs_text text, enum gs_effort *effort);

/* What is not set has no line. */
struct gs_system_content {
    struct gs_text identity, cutoff, date, effort;
    struct gs_namespace *namespaces; /* [n_namespace] */
    size_t n_namespace;
    struct gs_text *channels; /* [n_channel] */
    size_t n_channel;
    bool channel_required;
};

struct gs_developer_content {
    struct gs_text instructions;
    struct gs_namespace *namespaces; /* [n_namespace] */
    size_t n_namespace;
    struct gs_text format_name, format_description; /* of a response format */
    const json_t *format_schema;                    /* NULL: none */
};

/* Exactly one of the three is set. */
struct gs_content {
    struct gs_text text;
    const struct gs_system_content *system;
    const struct gs_developer_content *developer;
};

/* ---------------------------------------------------------------- messages */

struct gs_message {
    enum gs_role role;
    struct gs_text name; /* of a tool's result: who sends it, "functions.f" */
    struct gs_text recipient, channel, content_type;
    struct gs_content *contents; /* [n_content], rendered without anything between them */
    size_t n_content;
    struct gs_text call_id; /* of a call and of its result: what pairs them in the JSON form */
    size_t source; /* messages made of the same assistant message of the JSON form share it; 0: none */
};

struct gs_conversation {
    struct gs_message *messages; /* [count] */
    size_t count;
    size_t capacity;
    const struct gs_namespace *functions; /* declared functions; NULL: none */
    bool browser, python;                 /* built-in tools that are declared */
    struct gs_text *skipped_tools;        /* [n_skipped_tool] types of tools that gossamer does not have */
    size_t n_skipped_tool;
    struct gs_arena arena;
    json_t *document;
};

void gs_conversation_free(struct gs_conversation *conversation);

/* Appends a message; its texts and contents must live as long as the conversation. */
gs_status gs_conversation_add(struct gs_conversation *conversation, const struct gs_message *message,
                              struct gs_error *error);

/* Zeroed memory of the conversation's lifetime; NULL if memory is out, with `error` filled. */
void *gs_conversation_alloc(struct gs_conversation *conversation, size_t count, size_t size,
                            struct gs_error *error);

/* One text as contents; NULL if memory is out. */
struct gs_content *gs_conversation_text(struct gs_conversation *conversation, struct gs_text text,
                                        struct gs_error *error);

/* The namespaces that the model was trained with: "browser" and "python". */
struct gs_namespace gs_builtin_browser(void);
struct gs_namespace gs_builtin_python(void);

#endif
