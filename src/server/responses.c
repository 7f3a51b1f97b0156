#include "server/responses.h"

#include "base/status.h"
#include "server/responses_write.h"

#include <string.h>

static void fail_memory(struct gs_exchange *exchange)
{
    struct gs_api_error error = {0};
    gs_api_fail(&error, 503, "out_of_memory", "memory is out");
    gs_reply_error(exchange, &error);
}

void gs_responses_create(struct gs_server *server, struct gs_exchange *exchange)
{
    struct gs_responses_request read = {0};
    struct gs_response *response = NULL;
    struct gs_api_error error = {0};
    json_t *body = gs_exchange_json(exchange);
    if (!body)
        return;
    struct gs_request *request = gs_request_make();
    int status = request ? gs_responses_read(gs_server_responses(server), gs_exchange_key(exchange), body,
                                             &read, &error)
                         : gs_api_fail(&error, 503, "out_of_memory", "memory is out");
    if (status == 0)
        status = gs_request_read_chat(server, read.chat, request, &error);
    if (status != 0) {
        gs_responses_rename(&read, &error);
        gs_reply_error(exchange, &error);
        goto cleanup;
    }
    gs_responses_rename_warnings(&read, request->warnings);
    response = gs_response_make(server, exchange, body, &read, request);
    if (!response) {
        fail_memory(exchange);
        goto cleanup;
    }
    gs_server_submit(server, exchange, request, gs_response_sink(response));
    request = NULL;
    gs_response_begin(response);
    gs_response_release(response);
cleanup:
    gs_request_free(request);
    gs_responses_request_free(&read);
    json_decref(body);
}

static void fail_unknown(struct gs_exchange *exchange)
{
    struct gs_api_error error = {0};
    gs_api_fail(&error, 404, "not_found", "there is no stored response of this id");
    gs_reply_error(exchange, &error);
}

static const char items_tail[] = "/input_items";

/* Is the tail "ID/input_items"? */
static bool asks_for_items(const struct gs_exchange *exchange, char *id, size_t size)
{
    const char *tail = gs_exchange_tail(exchange);
    const char *slash = tail ? strchr(tail, '/') : NULL;
    if (!slash || strcmp(slash, items_tail) != 0 || (size_t)(slash - tail) >= size)
        return false;
    gs_format(id, size, "%.*s", (int)(slash - tail), tail);
    return true;
}

void gs_responses_get(struct gs_server *server, struct gs_exchange *exchange)
{
    json_t *response = NULL;
    const char *id = gs_exchange_tail(exchange);
    char of_items[64];
    if (asks_for_items(exchange, of_items, sizeof of_items))
        gs_responses_input_items(server, exchange, of_items);
    else if (id && gs_response_store_get(gs_server_responses(server), id, gs_exchange_key(exchange),
                                         &response, NULL))
        gs_reply_json(exchange, 200, response);
    else
        fail_unknown(exchange);
}

void gs_responses_delete(struct gs_server *server, struct gs_exchange *exchange)
{
    const char *id = gs_exchange_tail(exchange);
    char of_items[64];
    if (asks_for_items(exchange, of_items, sizeof of_items)) {
        struct gs_api_error error = {0};
        gs_api_fail(&error, 405, "method_not_allowed", "GET is expected here");
        gs_reply_header(exchange, "Allow", "GET");
        gs_reply_error(exchange, &error);
        return;
    }
    if (!id || !gs_response_store_remove(gs_server_responses(server), id, gs_exchange_key(exchange))) {
        fail_unknown(exchange);
        return;
    }
    gs_reply_json(exchange, 200,
                  json_pack("{s:s, s:s, s:b}", "id", id, "object", "response.deleted", "deleted", 1));
}
