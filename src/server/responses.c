#include "server/responses.h"

#include "base/status.h"
#include "server/responses_write.h"

#include <stdlib.h>
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

/* Are events asked for, and from which number on? */
static int read_retrieval(const struct gs_exchange *exchange, bool *stream, size_t *from,
                          struct gs_api_error *error)
{
    const char *asked = gs_exchange_query(exchange, "stream");
    const char *after = gs_exchange_query(exchange, "starting_after");
    *stream = asked && strcmp(asked, "true") == 0;
    *from = 0;
    if (asked && !*stream && strcmp(asked, "false") != 0)
        return gs_api_bad(error, "stream", "stream: true or false is expected, not \"%s\"",
                          gs_quote(asked).text);
    if (!after)
        return 0;
    size_t digits = strspn(after, "0123456789");
    if (digits == 0 || digits > 9 || after[digits])
        return gs_api_bad(error, "starting_after",
                          "starting_after: the number of an event is expected, not \"%s\"",
                          gs_quote(after).text);
    *from = strtoul(after, NULL, 10) + 1;
    return 0;
}

void gs_responses_get(struct gs_server *server, struct gs_exchange *exchange)
{
    struct gs_api_error error = {0};
    json_t *response = NULL, *course = NULL;
    const char *id = gs_exchange_tail(exchange);
    size_t from;
    bool stream;
    if (read_retrieval(exchange, &stream, &from, &error) != 0)
        gs_reply_error(exchange, &error);
    else if (!id || !gs_response_store_get(gs_server_responses(server), id, gs_exchange_key(exchange),
                                           &response, NULL, &course))
        fail_unknown(exchange);
    else if (stream)
        gs_response_replay(exchange, response, course, from);
    else
        gs_reply_json(exchange, 200, json_incref(response));
    json_decref(response);
    json_decref(course);
}

void gs_responses_delete(struct gs_server *server, struct gs_exchange *exchange)
{
    const char *id = gs_exchange_tail(exchange);
    if (!id || !gs_response_store_remove(gs_server_responses(server), id, gs_exchange_key(exchange))) {
        fail_unknown(exchange);
        return;
    }
    gs_reply_json(exchange, 200,
                  json_pack("{s:s, s:s, s:b}", "id", id, "object", "response.deleted", "deleted", 1));
}
