#include "server/messages_write.h"

#include "base/clock.h"
#include "base/status.h"
#include "chat/json_text.h"
#include "server/items.h"
#include "server/messages_read.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A call's arguments are kept back until they are known to be JSON: a ping now and then says that all is
 * well. */
#define PING_SECONDS 5.0

struct gs_message_reply {
    pthread_mutex_t mutex; /* the handler's first event and the sink's may meet */
    atomic_int references;
    struct gs_exchange *exchange;
    json_t *model;
    struct gs_random_id id;
    size_t n_prompt;
    json_t *content; /* blocks that are whole */
    struct gs_items items;
    struct gs_items_watcher watcher;
    bool stream, hide_thinking;
    bool begun, released, ended;
    enum gs_finish finish;
    json_t *warnings; /* NULL: none */
    json_t *stop;     /* the stop string that ended it; NULL: none */
    double last_sent;
};

/* ---------------------------------------------------------------- objects */

static json_t *usage_json(const struct gs_usage *usage)
{
    /* What was read from the cache is not counted as input here. */
    return json_pack("{s:I, s:I, s:I, s:I, s:{s:I}}", "input_tokens",
                     (json_int_t)(usage->prompt - usage->cached), "output_tokens",
                     (json_int_t)usage->completion, "cache_read_input_tokens", (json_int_t)usage->cached,
                     "cache_creation_input_tokens", (json_int_t)0, "output_tokens_details", "thinking_tokens",
                     (json_int_t)usage->reasoning);
}

static const char *stop_reason(const struct gs_message_reply *reply)
{
    if (reply->stop)
        return "stop_sequence";
    return reply->finish == GS_FINISH_LENGTH       ? "max_tokens"
           : reply->finish == GS_FINISH_TOOL_CALLS ? "tool_use"
                                                   : "end_turn";
}

static json_t *stop_json(const struct gs_message_reply *reply)
{
    return reply->stop ? json_incref(reply->stop) : json_null();
}

/* `usage` NULL: the message has only begun. */
static json_t *message_json(const struct gs_message_reply *reply, const struct gs_usage *usage)
{
    struct gs_usage begun = {.prompt = reply->n_prompt, .completion = 1};
    return json_pack("{s:s, s:s, s:s, s:O, s:o, s:o, s:o, s:o, s:O*}", "id", reply->id.text, "type",
                     "message", "role", "assistant", "model", reply->model, "content",
                     usage ? json_incref(reply->content) : json_array(), "stop_reason",
                     usage ? json_string(stop_reason(reply)) : json_null(), "stop_sequence", stop_json(reply),
                     "usage", usage_json(usage ? usage : &begun), "warnings", reply->warnings);
}

static json_t *text_json(const struct gs_buffer *text)
{
    return json_stringn(text->data ? text->data : "", text->size);
}

/* What a model says is no reason to fail: arguments that are no object stand under a name that says so. */
static json_t *input_json(const struct gs_item *item)
{
    size_t flags = JSON_ALLOW_NUL | JSON_DECODE_ANY;
    json_t *input =
        item->text.size > 0 ? json_loadb(item->text.data, item->text.size, flags, NULL) : json_object();
    if (!input) /* an integer of more than 64 bits is JSON, too */
        input = json_loadb(item->text.data, item->text.size, flags | JSON_DECODE_INT_AS_REAL, NULL);
    if (json_is_object(input))
        return input;
    json_decref(input);
    return json_pack("{s:o}", "INVALID_JSON", text_json(&item->text));
}

/* ---------------------------------------------------------------- events */

/* Takes `fields`. */
static void send(struct gs_message_reply *reply, const char *type, json_t *fields)
{
    json_t *event = json_pack("{s:s}", "type", type);
    if (fields && json_object_update(event, fields) != 0)
        reply->items.failed = true;
    json_decref(fields);
    gs_stream_json(reply->exchange, type, event);
    reply->last_sent = gs_clock_seconds();
}

/* Under the mutex. */
static void begin(struct gs_message_reply *reply)
{
    if (!reply->stream || reply->begun)
        return;
    reply->begun = true;
    send(reply, "message_start", json_pack("{s:o}", "message", message_json(reply, NULL)));
    send(reply, "ping", NULL);
}

static void send_delta(struct gs_message_reply *reply, size_t index, const char *type, const char *key,
                       json_t *value)
{
    send(reply, "content_block_delta",
         json_pack("{s:I, s:{s:s, s:o}}", "index", (json_int_t)index, "delta", "type", type, key, value));
}

static json_t *signature_json(const struct gs_item *item)
{
    return json_string(item->id.text);
}

/* Blocks are numbered without the hidden ones. */
static size_t number_of(const struct gs_message_reply *reply, size_t index)
{
    size_t number = 0;
    for (size_t i = 0; i < index; i++)
        number += !(reply->hide_thinking && reply->items.list[i].kind == GS_ITEM_REASONING);
    return number;
}

static bool is_hidden(const struct gs_message_reply *reply, const struct gs_item *item)
{
    return reply->hide_thinking && item->kind == GS_ITEM_REASONING;
}

static void opened(void *user, const struct gs_item *item, size_t index)
{
    struct gs_message_reply *reply = user;
    json_t *block;
    if (!reply->stream || is_hidden(reply, item))
        return;
    if (item->kind == GS_ITEM_CALL)
        block = json_pack("{s:s, s:s, s:o, s:{}}", "type", "tool_use", "id",
                          gs_tool_use_id(item->call_id).text, "name", text_json(&item->name), "input");
    else if (item->kind == GS_ITEM_MESSAGE)
        block = json_pack("{s:s, s:s}", "type", "text", "text", "");
    else
        block = json_pack("{s:s, s:s, s:s}", "type", "thinking", "thinking", "", "signature", "");
    send(reply, "content_block_start",
         json_pack("{s:I, s:o}", "index", (json_int_t)number_of(reply, index), "content_block", block));
}

/* What a token brings: as send_delta would write it, without a tree of JSON. */
static void grew(void *user, const struct gs_item *item, size_t index, struct gs_text text, json_t *logprobs)
{
    struct gs_message_reply *reply = user;
    (void)logprobs;
    if (!reply->stream)
        return;
    if (is_hidden(reply, item) || item->kind == GS_ITEM_CALL) {
        if (gs_clock_seconds() - reply->last_sent > PING_SECONDS)
            send(reply, "ping", NULL);
        return;
    }
    struct gs_writer writer = gs_stream_open(reply->exchange, "content_block_delta");
    gs_write(&writer, "{\"type\":\"content_block_delta\",\"index\":");
    gs_write_number(&writer, number_of(reply, index));
    gs_write(&writer, item->kind == GS_ITEM_MESSAGE
                          ? ",\"delta\":{\"type\":\"text_delta\",\"text\":"
                          : ",\"delta\":{\"type\":\"thinking_delta\",\"thinking\":");
    gs_write_json_string(&writer, text);
    gs_write(&writer, "}}");
    gs_stream_close(reply->exchange, &writer);
}

static void send_arguments(struct gs_message_reply *reply, size_t number, const json_t *input,
                           const struct gs_item *item)
{
    char *text = json_object_get(input, "INVALID_JSON") || item->text.size == 0
                     ? json_dumps(input, JSON_COMPACT)
                     : NULL;
    send_delta(reply, number, "input_json_delta", "partial_json",
               text ? json_string(text) : text_json(&item->text));
    free(text);
}

static void closed(void *user, const struct gs_item *item, size_t index)
{
    struct gs_message_reply *reply = user;
    size_t number = number_of(reply, index);
    json_t *block;
    if (is_hidden(reply, item))
        return;
    if (item->kind == GS_ITEM_CALL) {
        json_t *input = input_json(item);
        if (reply->stream)
            send_arguments(reply, number, input, item);
        block = json_pack("{s:s, s:s, s:o, s:o}", "type", "tool_use", "id",
                          gs_tool_use_id(item->call_id).text, "name", text_json(&item->name), "input", input);
    } else if (item->kind == GS_ITEM_MESSAGE) {
        block = json_pack("{s:s, s:o}", "type", "text", "text", text_json(&item->text));
    } else {
        block = json_pack("{s:s, s:o, s:o}", "type", "thinking", "thinking", text_json(&item->text),
                          "signature", signature_json(item));
        if (reply->stream)
            send_delta(reply, number, "signature_delta", "signature", signature_json(item));
    }
    if (json_array_append_new(reply->content, block) != 0)
        reply->items.failed = true;
    if (reply->stream)
        send(reply, "content_block_stop", json_pack("{s:I}", "index", (json_int_t)number));
}

/* ---------------------------------------------------------------- the end */

static void fail(struct gs_message_reply *reply, const struct gs_api_error *error)
{
    if (reply->ended)
        return;
    reply->ended = true;
    if (!reply->stream || !reply->begun) {
        gs_reply_error(reply->exchange, error);
        return;
    }
    gs_stream_json(reply->exchange, "error", gs_api_error_anthropic(error));
    gs_stream_end(reply->exchange);
}

static void fail_memory(struct gs_message_reply *reply)
{
    struct gs_api_error error = {0};
    gs_api_fail(&error, 503, "out_of_memory", "memory is out");
    fail(reply, &error);
}

static void reply_whole(struct gs_message_reply *reply, json_t *message)
{
    if (!message) {
        fail_memory(reply);
        return;
    }
    reply->ended = true;
    gs_reply_json(reply->exchange, 200, message);
}

static void finish(struct gs_message_reply *reply, const struct gs_usage *usage)
{
    if (reply->items.failed) {
        fail_memory(reply);
        return;
    }
    if (!reply->stream) {
        reply_whole(reply, message_json(reply, usage));
        return;
    }
    reply->ended = true;
    send(reply, "message_delta",
         json_pack("{s:{s:s, s:o}, s:o}", "delta", "stop_reason", stop_reason(reply), "stop_sequence",
                   stop_json(reply), "usage", usage_json(usage)));
    send(reply, "message_stop", NULL);
    gs_stream_end(reply->exchange);
}

static void take_event(void *user, const struct gs_event *event)
{
    struct gs_message_reply *reply = user;
    pthread_mutex_lock(&reply->mutex);
    if (event->kind != GS_EVENT_ERROR)
        begin(reply);
    switch (event->kind) {
    case GS_EVENT_WAITING:
        if (reply->stream)
            send(reply, "ping", NULL);
        break;
    case GS_EVENT_CHOICE_DONE:
        reply->finish = event->finish;
        if (event->stop.bytes)
            reply->stop = json_stringn(event->stop.bytes, event->stop.size);
        gs_items_close(&reply->items, &reply->watcher);
        break;
    case GS_EVENT_DONE:
        finish(reply, event->usage);
        break;
    case GS_EVENT_ERROR:
        fail(reply, event->error);
        break;
    default:
        gs_items_take(&reply->items, &reply->watcher, event);
        break;
    }
    pthread_mutex_unlock(&reply->mutex);
}

/* ---------------------------------------------------------------- life */

struct gs_message_reply *gs_message_reply_make(struct gs_server *server, struct gs_exchange *exchange,
                                               const struct gs_request *request, bool hide_thinking)
{
    struct gs_message_reply *reply = calloc(1, sizeof *reply);
    if (!reply)
        return NULL;
    pthread_mutex_init(&reply->mutex, NULL);
    atomic_init(&reply->references, 2);
    reply->exchange = gs_exchange_hold(exchange);
    reply->model = gs_server_model_json(server, request->model);
    reply->id = gs_random_id("msg_");
    reply->warnings = json_incref(request->warnings);
    reply->n_prompt = request->prompts[0].count;
    reply->content = json_array();
    reply->stream = request->stream;
    reply->hide_thinking = hide_thinking;
    reply->watcher = (struct gs_items_watcher){
        .prefixes = {"sig_", "", ""}, .opened = opened, .grew = grew, .closed = closed, .user = reply};
    return reply;
}

void gs_message_reply_begin(struct gs_message_reply *reply)
{
    pthread_mutex_lock(&reply->mutex);
    if (!reply->released && !reply->ended)
        begin(reply);
    pthread_mutex_unlock(&reply->mutex);
}

void gs_message_reply_release(struct gs_message_reply *reply)
{
    if (atomic_fetch_sub(&reply->references, 1) > 1)
        return;
    gs_exchange_release(reply->exchange);
    json_decref(reply->content);
    json_decref(reply->model);
    json_decref(reply->stop);
    json_decref(reply->warnings);
    gs_items_free(&reply->items);
    pthread_mutex_destroy(&reply->mutex);
    free(reply);
}

static void release(void *user)
{
    struct gs_message_reply *reply = user;
    pthread_mutex_lock(&reply->mutex);
    reply->released = true;
    pthread_mutex_unlock(&reply->mutex);
    gs_message_reply_release(reply);
}

struct gs_sink gs_message_reply_sink(struct gs_message_reply *reply)
{
    return (struct gs_sink){take_event, release, reply};
}
