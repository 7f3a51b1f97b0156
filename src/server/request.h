/*
 * A generation that a client asked for, whatever the dialect: prompts as tokens, how to draw, when to stop,
 * what the output must look like. Dialects fill one, scheduler.h runs it, events.h is what comes back.
 *
 * A dialect whose wire form is not chat completions first builds the JSON of one (messages, tools,
 * tool_choice, response_format, reasoning_effort, and the sampling fields under their usual names) and hands
 * that to gs_request_read_chat: one reader, one set of rules. It renames the parameter in an error itself.
 */
#ifndef GS_SERVER_REQUEST_H
#define GS_SERVER_REQUEST_H

#include "chat/conversation_json.h"
#include "chat/harmony_header.h"
#include "server/api_error.h"

#include <stdatomic.h>

struct gs_server;
struct gs_exchange;
struct gs_steer_plan;

#define GS_MAX_CHOICES      128 /* n that a server can be told to take */
#define GS_MAX_STOP_STRINGS 4
#define GS_MAX_STOP_BYTES   256
#define GS_MAX_TOP_LOGPROBS 20
#define GS_MAX_LOGIT_BIAS   1024
#define GS_MAX_TOOLS        1024

enum gs_tool_choice {
    GS_TOOLS_AUTO,
    GS_TOOLS_NONE,
    GS_TOOLS_REQUIRED,
    GS_TOOLS_NAMED,
};

enum gs_format_kind {
    GS_FORMAT_TEXT,
    GS_FORMAT_JSON_OBJECT,
    GS_FORMAT_JSON_SCHEMA,
};

/* What the final message must be. Texts and schema point into the request's document. */
struct gs_format {
    enum gs_format_kind kind;
    struct gs_text name;
    const json_t *schema; /* of JSON_SCHEMA */
    bool strict;
};

struct gs_request {
    /* the prompts: one for a chat, any number for raw completions */
    struct gs_tokens *prompts; /* [n_prompt] */
    size_t n_prompt;
    bool chat;                           /* harmony goes in and comes out; else raw text */
    struct gs_conversation conversation; /* of a chat; owns the JSON that was read */
    json_t *document;                    /* the same JSON, also of raw completions */
    struct gs_declared_tools tools;      /* for the parser; in the conversation's memory */
    enum gs_effort effort;

    /* tools and format */
    enum gs_tool_choice tool_choice;
    struct gs_text tool_name; /* of NAMED */
    bool parallel_tool_calls;
    struct gs_format format;
    struct gs_steer_plan *steer; /* steer.h; NULL: the output is free */
    json_t *warnings;            /* array of strings about what was not honoured; NULL: none */

    /* how much, and how */
    size_t n_choice;             /* of each prompt */
    int64_t max_tokens;          /* reasoning included; -1: as many as the context holds */
    int64_t reasoning_budget;    /* tokens of reasoning, then an answer has to begin; -1: none is set */
    struct gs_sampling sampling; /* its bias is `bias` */
    bool seeded;                 /* choice i of a seeded request draws with seed + i */
    struct gs_logit_bias *bias;
    size_t n_bias;
    struct gs_text stop[GS_MAX_STOP_STRINGS]; /* in visible text; points into the document */
    size_t n_stop;
    bool logprobs;
    size_t n_top_logprobs; /* 0 ... GS_MAX_TOP_LOGPROBS */
    bool echo;             /* of raw completions: the prompt is part of the text */

    /* for the dialect that answers */
    bool stream, include_usage;
    /* Under which names a chat completion tells its reasoning; default both. */
    bool as_reasoning, as_reasoning_content;
    struct gs_text model; /* as the client named it; not set: not given */
    size_t scope;         /* prefix cache: only requests of the same scope share */
};

/* With the defaults: temperature 1, n 1, no limit. NULL if memory is out. */
struct gs_request *gs_request_make(void);
void gs_request_free(struct gs_request *request);

/*
 * Reads a chat completion's JSON: everything above. `body` is borrowed (a reference is kept). On failure the
 * status of HTTP is returned with `error` filled; 0 is success. Renders the prompt, so that an overflow of
 * the context is known here (400, context_length_exceeded).
 */
int gs_request_read_chat(struct gs_server *server, json_t *body, struct gs_request *request,
                         struct gs_api_error *error);

/* The same for /v1/completions. */
int gs_request_read_completion(struct gs_server *server, json_t *body, struct gs_request *request,
                               struct gs_api_error *error);

/* Members of a JSON body: absent and null leave *value alone, a wrong type or range is 400 naming `key`. */
int gs_read_bool(const json_t *body, const char *key, bool *value, struct gs_api_error *error);
int gs_read_integer(const json_t *body, const char *key, int64_t least, int64_t most, int64_t *value,
                    struct gs_api_error *error);
int gs_read_number(const json_t *body, const char *key, double least, double most, float *value,
                   struct gs_api_error *error);
int gs_read_text(const json_t *body, const char *key, struct gs_text *value, struct gs_api_error *error);

/* Members that change nothing here, and still have a type. */
struct gs_idle_field {
    const char *key;
    json_type type; /* JSON_STRING, JSON_OBJECT, JSON_INTEGER, JSON_TRUE: a boolean */
};

/* `list` ends in a NULL. */
int gs_read_idle(const json_t *body, const struct gs_idle_field *list, struct gs_api_error *error);

#endif
