/* A request of /v1/responses as a chat completion. */
#ifndef GS_SERVER_RESPONSES_READ_H
#define GS_SERVER_RESPONSES_READ_H

#include "server/response_store.h"
#include "server/turns.h"

/* Zero-initialise; gs_responses_request_free releases. */
struct gs_responses_request {
    json_t *chat;  /* what gs_request_read_chat reads */
    json_t *items; /* of the whole conversation so far: those of the previous response, then the input */
    struct gs_turns turns;
    bool store;
    bool encrypted; /* reasoning items carry their text in encrypted_content, too */
    bool logprobs;
};

/* `body` is borrowed. Returns 0, or the status of HTTP with `error` filled. */
int gs_responses_read(struct gs_response_store *store, size_t key, json_t *body,
                      struct gs_responses_request *request, struct gs_api_error *error);

/* An error of the chat's reader in the words of this dialect. */
void gs_responses_rename(const struct gs_responses_request *request, struct gs_api_error *error);

/* The same for lines about what is not honoured. */
void gs_responses_rename_warnings(const struct gs_responses_request *request, json_t *warnings);

void gs_responses_request_free(struct gs_responses_request *request);

/*
 * encrypted_content: the reasoning itself, so that a client that sends back nothing else keeps its thoughts
 * over a loop of calls. It is opaque, not secret. NULL if memory is out.
 */
json_t *gs_responses_seal(struct gs_text reasoning);

#endif
