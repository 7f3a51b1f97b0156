/*
 * A response as it grows: objects of /v1/responses, and its events. One generation's events go in through
 * gs_response_event, JSON comes out through the exchange.
 */
#ifndef GS_SERVER_RESPONSES_WRITE_H
#define GS_SERVER_RESPONSES_WRITE_H

#include "server/responses_read.h"
#include "server/server.h"

struct gs_response;

/*
 * What stays the same in every object of this response is taken from the request's body; `chat` is what
 * became of it. Two references are
 * held at first: the handler's and the sink's. NULL if memory is out.
 */
struct gs_response *gs_response_make(struct gs_server *server, struct gs_exchange *exchange,
                                     const json_t *body, const struct gs_responses_request *request,
                                     const struct gs_request *chat);

/* The request has been handed over: the stream's first events, unless it has failed or begun meanwhile. */
void gs_response_begin(struct gs_response *response);

void gs_response_release(struct gs_response *response);

/*
 * Replies with the events of a stored response as they were, with their numbers, from the number `from` on.
 * `object` and `course` are what the store has, and nobody else's. A response that was no stream has the
 * events that it would have had. They are made while they are sent: all at once are many times the response.
 */
void gs_response_replay(struct gs_exchange *exchange, json_t *object, json_t *course, size_t from);

/* The three of a gs_sink. */
struct gs_sink gs_response_sink(struct gs_response *response);

#endif
