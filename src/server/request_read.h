/* What the readers of requests share. */
#ifndef GS_SERVER_REQUEST_READ_H
#define GS_SERVER_REQUEST_READ_H

#include "server/request.h"
#include "server/server.h"

/* model, stream, stream_options, sampling, n, stop: what all dialects call alike. */
int gs_request_read_common(struct gs_server *server, const json_t *body, struct gs_request *request,
                           struct gs_api_error *error);

/* max_tokens under any of its names; `least` is 0 or 1. */
int gs_request_read_limit(struct gs_server *server, const json_t *body, int64_t least,
                          struct gs_request *request, struct gs_api_error *error);

/* response_format, whose shape gs_read_response_format has checked. */
int gs_request_read_format(const json_t *body, struct gs_request *request, struct gs_api_error *error);

/* 400 context_length_exceeded for a prompt that leaves no room for an answer (unless none is wanted). */
int gs_request_check_room(struct gs_server *server, const struct gs_request *request,
                          struct gs_api_error *error);

#endif
