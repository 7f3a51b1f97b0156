#include "server/openapi.h"

#include "base/embed.h"

GS_EMBED(openapi_json, "src/server/openapi.json");

void gs_openapi_get(struct gs_server *server, struct gs_exchange *exchange)
{
    (void)server;
    gs_reply_header(exchange, "Cache-Control", "no-cache");
    gs_reply_bytes(exchange, 200, "application/json", gs_openapi_json_begin,
                   gs_embed_size(gs_openapi_json_begin, gs_openapi_json_end));
}
