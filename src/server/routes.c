/* What is where. */
#include "server/chat.h"
#include "server/completions.h"
#include "server/messages.h"
#include "server/openapi.h"
#include "server/page/page.h"
#include "server/responses.h"
#include "server/status.h"

const struct gs_route gs_routes[] = {
    {"POST", "/v1/chat/completions", gs_chat_completions, 0, GS_ERROR_OPENAI},
    {"POST", "/v1/completions", gs_completions, 0, GS_ERROR_OPENAI},
    {"POST", "/v1/responses", gs_responses_create, 0, GS_ERROR_OPENAI},
    {"GET", "/v1/responses/*", gs_responses_get, 0, GS_ERROR_OPENAI},
    {"DELETE", "/v1/responses/*", gs_responses_delete, 0, GS_ERROR_OPENAI},
    {"GET", "/v1/responses/*/input_items", gs_responses_input_items, 0, GS_ERROR_OPENAI},
    {"POST", "/v1/messages", gs_messages_create, 0, GS_ERROR_ANTHROPIC},
    {"POST", "/v1/messages/count_tokens", gs_messages_count, 0, GS_ERROR_ANTHROPIC},
    {"GET", "/v1/models", gs_get_models, 0, GS_ERROR_OPENAI},
    {"GET", "/v1/models/", gs_get_model, GS_ROUTE_TAIL, GS_ERROR_OPENAI},
    {"GET", "/health", gs_get_health, GS_ROUTE_OPEN | GS_ROUTE_READY, GS_ERROR_OPENAI},
    {"GET", "/version", gs_get_version, GS_ROUTE_OPEN | GS_ROUTE_READY, GS_ERROR_OPENAI},
    {"GET", "/metrics", gs_get_metrics, 0, GS_ERROR_OPENAI},
    {"GET", "/slots", gs_get_slots, 0, GS_ERROR_OPENAI},
    {"POST", "/tokenize", gs_post_tokenize, 0, GS_ERROR_OPENAI},
    {"POST", "/detokenize", gs_post_detokenize, 0, GS_ERROR_OPENAI},
    {"GET", "/openapi.json", gs_openapi_get, GS_ROUTE_OPEN | GS_ROUTE_READY, GS_ERROR_OPENAI},
    {"GET", "/", gs_page_get, GS_ROUTE_OPEN | GS_ROUTE_READY, GS_ERROR_OPENAI},
    {"GET", "/page/", gs_page_get, GS_ROUTE_OPEN | GS_ROUTE_READY | GS_ROUTE_TAIL, GS_ERROR_OPENAI},
    {NULL, NULL, NULL, 0, GS_ERROR_OPENAI},
};
