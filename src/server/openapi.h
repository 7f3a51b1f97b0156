/* The description of the API, OpenAPI 3.1: the file openapi.json, part of the program. */
#ifndef GS_SERVER_OPENAPI_H
#define GS_SERVER_OPENAPI_H

#include "server/http.h"

void gs_openapi_get(struct gs_server *server, struct gs_exchange *exchange);

#endif
