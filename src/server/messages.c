#include "server/messages.h"

#include "server/messages_read.h"
#include "server/messages_write.h"

#include <string.h>

/* Reads the body; on failure the error has been replied and false is returned. */
static bool read_request(struct gs_server *server, struct gs_exchange *exchange, bool count,
                         struct gs_messages_request *read, struct gs_request *request)
{
    struct gs_api_error error = {0};
    json_t *body = gs_exchange_json(exchange);
    if (!body)
        return false;
    int status = request ? gs_messages_read(body, count, read, &error)
                         : gs_api_fail(&error, 503, "out_of_memory", "memory is out");
    if (status == 0)
        status = gs_request_read_chat(server, read->chat, request, &error);
    /* A prompt that does not fit can be counted all the same. */
    if (status != 0 && count && request && request->prompts && error.code &&
        strcmp(error.code, "context_length_exceeded") == 0)
        status = 0;
    if (status != 0) {
        gs_messages_rename(read, &error);
        gs_reply_error(exchange, &error);
    }
    json_decref(body);
    return status == 0;
}

void gs_messages_create(struct gs_server *server, struct gs_exchange *exchange)
{
    struct gs_messages_request read = {0};
    struct gs_request *request = gs_request_make();
    if (!read_request(server, exchange, false, &read, request))
        goto cleanup;
    gs_messages_rename_warnings(&read, request->warnings);
    struct gs_message_reply *reply = gs_message_reply_make(server, exchange, request, read.hide_thinking);
    if (!reply) {
        struct gs_api_error error = {0};
        gs_api_fail(&error, 503, "out_of_memory", "memory is out");
        gs_reply_error(exchange, &error);
        goto cleanup;
    }
    gs_server_submit(server, exchange, request, gs_message_reply_sink(reply));
    request = NULL;
    gs_message_reply_begin(reply);
    gs_message_reply_release(reply);
cleanup:
    gs_request_free(request);
    gs_messages_request_free(&read);
}

void gs_messages_count(struct gs_server *server, struct gs_exchange *exchange)
{
    struct gs_messages_request read = {0};
    struct gs_request *request = gs_request_make();
    if (read_request(server, exchange, true, &read, request))
        gs_reply_json(exchange, 200,
                      json_pack("{s:I}", "input_tokens", (json_int_t)request->prompts[0].count));
    gs_request_free(request);
    gs_messages_request_free(&read);
}
