/* /v1/responses: responses_read.h reads a request, responses_write.h writes objects and events. */
#ifndef GS_SERVER_RESPONSES_H
#define GS_SERVER_RESPONSES_H

#include "server/http.h"

void gs_responses_create(struct gs_server *server, struct gs_exchange *exchange);

/* GET and DELETE /v1/responses/{id}: what is stored. */
void gs_responses_get(struct gs_server *server, struct gs_exchange *exchange);
void gs_responses_delete(struct gs_server *server, struct gs_exchange *exchange);

/* GET /v1/responses/{id}/input_items?limit&order&after: what the response was an answer to, page by page, the
 * latest first. */
gs_handler_fn gs_responses_input_items;

#endif
