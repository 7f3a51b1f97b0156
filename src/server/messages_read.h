/* A request of /v1/messages as a chat completion. */
#ifndef GS_SERVER_MESSAGES_READ_H
#define GS_SERVER_MESSAGES_READ_H

#include "server/turns.h"

/* Zero-initialise; gs_messages_request_free releases. */
struct gs_messages_request {
    json_t *chat; /* what gs_request_read_chat reads */
    struct gs_turns turns;
    bool hide_thinking; /* it was disabled: the answer has no blocks of it */
};

/* `count`: of count_tokens, which needs no max_tokens. `body` is borrowed. 0, or the status of HTTP. */
int gs_messages_read(json_t *body, bool count, struct gs_messages_request *request,
                     struct gs_api_error *error);

/* An error of the chat's reader in the words of this dialect. */
void gs_messages_rename(const struct gs_messages_request *request, struct gs_api_error *error);

/* The same for lines about what is not honoured. */
void gs_messages_rename_warnings(const struct gs_messages_request *request, json_t *warnings);

void gs_messages_request_free(struct gs_messages_request *request);

/* "call_x" as Anthropic's clients know it: "toolu_x". Other ids stay. */
struct gs_tool_use_id {
    char text[64];
};
struct gs_tool_use_id gs_tool_use_id(const char *call_id);

#endif
