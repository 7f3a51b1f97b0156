/*
 * What the answers of /v1/chat/completions and /v1/completions have in common: who asked, what each of their
 * objects begins with, and the way from a body to the scheduler.
 */
#ifndef GS_SERVER_COMPLETION_H
#define GS_SERVER_COMPLETION_H

#include "server/chunk.h"
#include "server/server.h"

struct gs_completion {
    struct gs_server *server;
    struct gs_exchange *exchange; /* held */
    struct gs_random_id id;
    json_t *model;
    json_t *warnings; /* NULL: none, or a chunk has said them */
    json_int_t created;
    bool stream, include_usage, logprobs;
    size_t n_choice; /* of all prompts */
    struct gs_chunk chunk;
};

/* `prefix` of its id. False if memory is out; it is to be released either way. */
bool gs_completion_init(struct gs_completion *completion, struct gs_server *server,
                        struct gs_exchange *exchange, const struct gs_request *request, const char *prefix);
void gs_completion_release(struct gs_completion *completion);

/* The id, the kind of object, the time, the model and the version. */
json_t *gs_completion_object(const struct gs_completion *completion, const char *object);

/* The object of a stream that has this one choice (taken; NULL where memory is out). */
void gs_completion_send(struct gs_completion *completion, const char *object, json_t *choice);

typedef int gs_completion_read_fn(struct gs_server *server, json_t *body, struct gs_request *request,
                                  struct gs_api_error *error);

/* The sink of a request's answer; its event is NULL if memory is out. */
typedef struct gs_sink gs_completion_make_fn(struct gs_server *server, struct gs_exchange *exchange,
                                             const struct gs_request *request);

/* Reads the body, makes the sink and submits; or replies the error. */
void gs_completion_serve(struct gs_server *server, struct gs_exchange *exchange, gs_completion_read_fn *read,
                         gs_completion_make_fn *make);

#endif
