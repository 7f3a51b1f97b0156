/*
 * A message of /v1/messages as it grows: the object, and its events. One generation's events go in through
 * the sink, JSON comes out through the exchange.
 */
#ifndef GS_SERVER_MESSAGES_WRITE_H
#define GS_SERVER_MESSAGES_WRITE_H

#include "server/server.h"

struct gs_message_reply;

/* Two references are held at first: the handler's and the sink's. NULL if memory is out. */
struct gs_message_reply *gs_message_reply_make(struct gs_server *server, struct gs_exchange *exchange,
                                               const struct gs_request *request, bool hide_thinking);

/* The request has been handed over: message_start, unless it has failed or begun meanwhile. */
void gs_message_reply_begin(struct gs_message_reply *reply);

void gs_message_reply_release(struct gs_message_reply *reply);

struct gs_sink gs_message_reply_sink(struct gs_message_reply *reply);

#endif
