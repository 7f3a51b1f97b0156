/* /v1/messages and /v1/messages/count_tokens, as Anthropic's clients speak. */
#ifndef GS_SERVER_MESSAGES_H
#define GS_SERVER_MESSAGES_H

#include "server/http.h"

void gs_messages_create(struct gs_server *server, struct gs_exchange *exchange);
void gs_messages_count(struct gs_server *server, struct gs_exchange *exchange);

#endif
