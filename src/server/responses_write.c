#include "server/responses_write.h"

#include "base/status.h"
#include "chat/json_text.h"
#include "server/items.h"
#include "server/logprob_json.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct gs_response {
    pthread_mutex_t mutex; /* the handler's first events and the sink's may meet */
    atomic_int references;
    struct gs_server *server;
    struct gs_exchange *exchange;
    size_t key;
    json_t *base;            /* the object without output, status and usage */
    json_t *history;         /* items up to this response; NULL: not to be stored */
    json_t *output;          /* closed items */
    struct gs_buffer course; /* what gs_response_replay reads */
    struct gs_items items;
    struct gs_items_watcher watcher;
    size_t sequence;
    size_t from; /* events before it are left out */
    bool stream, encrypted, logprobs;
    bool begun, released, ended;
    bool cut; /* by the limit of tokens */
};

/* ---------------------------------------------------------------- objects */

static json_t *or_null(json_t *value)
{
    return value ? json_incref(value) : json_null();
}

static json_t *member_or(const json_t *body, const char *key, json_t *otherwise)
{
    json_t *value = json_object_get(body, key);
    if (!value || json_is_null(value))
        return otherwise;
    json_decref(otherwise);
    return json_incref(value);
}

static json_t *make_base(struct gs_server *server, const char *id, const json_t *body, bool store)
{
    json_t *effort = json_object_get(json_object_get(body, "reasoning"), "effort");
    json_t *format = json_object_get(json_object_get(body, "text"), "format");
    json_t *text =
        json_pack("{s:o}", "format",
                  format && !json_is_null(format) ? json_incref(format) : json_pack("{s:s}", "type", "text"));
    json_t *reasoning =
        json_pack("{s:o, s:n}", "effort",
                  effort && !json_is_null(effort) ? json_incref(effort) : json_string("medium"), "summary");
    json_t *base = json_pack(
        "{s:s, s:s, s:I, s:s, s:b, s:n, s:n, s:o, s:o, s:o, s:[], s:o, s:o, s:o, s:b, s:o, s:o, s:o, s:o, "
        "s:o, "
        "s:s, s:n, s:o}",
        "id", id, "object", "response", "created_at", (json_int_t)time(NULL), "status", "in_progress",
        "background", 0, "error", "incomplete_details", "instructions",
        or_null(json_object_get(body, "instructions")), "max_output_tokens",
        or_null(json_object_get(body, "max_output_tokens")), "model",
        member_or(body, "model", json_string(gs_server_model(server))), "output", "parallel_tool_calls",
        member_or(body, "parallel_tool_calls", json_true()), "previous_response_id",
        or_null(json_object_get(body, "previous_response_id")), "reasoning", reasoning, "store", (int)store,
        "temperature", member_or(body, "temperature", json_integer(1)), "text", text, "tool_choice",
        member_or(body, "tool_choice", json_string("auto")), "tools", member_or(body, "tools", json_array()),
        "top_p", member_or(body, "top_p", json_integer(1)), "truncation", "disabled", "usage", "metadata",
        member_or(body, "metadata", json_object()));
    return base;
}

static json_t *usage_json(const struct gs_usage *usage)
{
    return json_pack("{s:I, s:{s:I}, s:I, s:{s:I}, s:I}", "input_tokens", (json_int_t)usage->prompt,
                     "input_tokens_details", "cached_tokens", (json_int_t)usage->cached, "output_tokens",
                     (json_int_t)usage->completion, "output_tokens_details", "reasoning_tokens",
                     (json_int_t)usage->reasoning, "total_tokens",
                     (json_int_t)(usage->prompt + usage->completion));
}

/* The whole object; usage and error may be NULL. */
static json_t *response_json(const struct gs_response *response, const char *status,
                             const struct gs_usage *usage, const struct gs_api_error *error)
{
    json_t *object = json_copy(response->base);
    json_object_set_new(object, "status", json_string(status));
    json_object_set_new(object, "output", json_copy(response->output));
    if (usage)
        json_object_set_new(object, "usage", usage_json(usage));
    if (response->cut && !error)
        json_object_set_new(object, "incomplete_details", json_pack("{s:s}", "reason", "max_output_tokens"));
    if (error)
        json_object_set_new(object, "error",
                            json_pack("{s:s, s:s}", "code", error->code ? error->code : "server_error",
                                      "message", error->message));
    return object;
}

/* ---------------------------------------------------------------- items */

static json_t *text_json(const struct gs_buffer *text)
{
    return json_stringn(text->data ? text->data : "", text->size);
}

static json_t *part_json(const struct gs_item *item, bool whole)
{
    json_t *text = whole ? text_json(&item->text) : json_string("");
    if (item->kind == GS_ITEM_REASONING)
        return json_pack("{s:s, s:o}", "type", "reasoning_text", "text", text);
    json_t *logprobs = whole && item->logprobs ? json_incref(item->logprobs) : json_array();
    return json_pack("{s:s, s:o, s:[], s:o}", "type", "output_text", "text", text, "annotations", "logprobs",
                     logprobs);
}

/* Not whole: nothing of its text yet. */
static json_t *item_json(const struct gs_response *response, const struct gs_item *item, bool whole)
{
    const char *status = !whole ? "in_progress" : response->cut ? "incomplete" : "completed";
    json_t *content = whole ? json_pack("[o]", part_json(item, true)) : json_array();
    if (item->kind == GS_ITEM_CALL) {
        json_decref(content);
        return json_pack("{s:s, s:s, s:s, s:o, s:o, s:s}", "id", item->id.text, "type", "function_call",
                         "call_id", item->call_id, "name", text_json(&item->name), "arguments",
                         whole ? text_json(&item->text) : json_string(""), "status", status);
    }
    if (item->kind == GS_ITEM_MESSAGE)
        return json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", item->id.text, "type", "message", "role",
                         "assistant", "status", status, "content", content);
    json_t *sealed = NULL;
    if (whole && response->encrypted)
        sealed = gs_responses_seal((struct gs_text){item->text.data, item->text.size});
    return json_pack("{s:s, s:s, s:[], s:o, s:s, s:o*}", "id", item->id.text, "type", "reasoning", "summary",
                     "content", content, "status", status, "encrypted_content", sealed);
}

/* ---------------------------------------------------------------- events */

/* Takes `fields`; type and number come first. */
static void send(struct gs_response *response, const char *type, json_t *fields)
{
    size_t number = response->sequence++;
    if (number < response->from) {
        json_decref(fields);
        return;
    }
    json_t *event = json_pack("{s:s, s:I}", "type", type, "sequence_number", (json_int_t)number);
    if (!fields || json_object_update(event, fields) != 0)
        response->items.failed = true;
    json_decref(fields);
    gs_stream_json(response->exchange, type, event);
}

static void send_response(struct gs_response *response, const char *type, json_t *object)
{
    send(response, type, json_pack("{s:o}", "response", object));
}

/* The course of a response that may be told again: an item opens ("o"), grows by so many bytes ("12.") and
 * tokens with logprobs ("12,1."), closes ("c"), and between these one waits ("w"). */
static void note(struct gs_response *response, const char *what)
{
    if (response->history && gs_buffer_append_text(&response->course, what, NULL) != GS_OK)
        response->items.failed = true;
}

static void note_piece(struct gs_response *response, size_t n_byte, size_t n_logprob)
{
    char piece[64];
    if (!response->history)
        return;
    gs_format(piece, sizeof piece, n_logprob > 0 ? "%zu,%zu." : "%zu.", n_byte, n_logprob);
    note(response, piece);
}

/* Under the mutex. */
static void begin(struct gs_response *response)
{
    if (!response->stream || response->begun)
        return;
    response->begun = true;
    send_response(response, "response.created", response_json(response, "in_progress", NULL, NULL));
    send_response(response, "response.in_progress", response_json(response, "in_progress", NULL, NULL));
}

static void send_waiting(struct gs_response *response)
{
    note(response, "w");
    send_response(response, "response.in_progress", response_json(response, "in_progress", NULL, NULL));
}

static void send_part(struct gs_response *response, const struct gs_item *item, size_t index, bool done)
{
    send(response, done ? "response.content_part.done" : "response.content_part.added",
         json_pack("{s:s, s:I, s:i, s:o}", "item_id", item->id.text, "output_index", (json_int_t)index,
                   "content_index", 0, "part", part_json(item, done)));
}

static void opened(void *user, const struct gs_item *item, size_t index)
{
    struct gs_response *response = user;
    note(response, "o");
    if (!response->stream)
        return;
    send(
        response, "response.output_item.added",
        json_pack("{s:I, s:o}", "output_index", (json_int_t)index, "item", item_json(response, item, false)));
    if (item->kind != GS_ITEM_CALL)
        send_part(response, item, index, false);
}

/* What a token brings: as send would write it, without a tree of JSON. */
static void grew(void *user, const struct gs_item *item, size_t index, struct gs_text text, json_t *logprobs)
{
    static const char *const types[] = {[GS_ITEM_REASONING] = "response.reasoning_text.delta",
                                        [GS_ITEM_MESSAGE] = "response.output_text.delta",
                                        [GS_ITEM_CALL] = "response.function_call_arguments.delta"};
    struct gs_response *response = user;
    note_piece(response, text.size, json_array_size(logprobs));
    if (!response->stream)
        return;
    size_t number = response->sequence++;
    if (number < response->from)
        return;
    struct gs_writer writer = gs_stream_open(response->exchange, types[item->kind]);
    gs_write(&writer, "{\"type\":\"");
    gs_write(&writer, types[item->kind]);
    gs_write(&writer, "\",\"sequence_number\":");
    gs_write_number(&writer, number);
    gs_write(&writer, ",\"item_id\":\"");
    gs_write(&writer, item->id.text);
    gs_write(&writer, "\",\"output_index\":");
    gs_write_number(&writer, index);
    gs_write(&writer, item->kind == GS_ITEM_CALL ? ",\"delta\":" : ",\"content_index\":0,\"delta\":");
    gs_write_json_string(&writer, text);
    if (item->kind == GS_ITEM_MESSAGE && logprobs) {
        gs_write(&writer, ",\"logprobs\":");
        gs_write_json(&writer, logprobs);
        gs_write(&writer, "}");
    } else {
        gs_write(&writer, item->kind == GS_ITEM_MESSAGE ? ",\"logprobs\":[]}" : "}");
    }
    gs_stream_close(response->exchange, &writer);
}

static void send_done(struct gs_response *response, const struct gs_item *item, size_t index)
{
    if (item->kind == GS_ITEM_CALL) {
        send(response, "response.function_call_arguments.done",
             json_pack("{s:s, s:I, s:o, s:o}", "item_id", item->id.text, "output_index", (json_int_t)index,
                       "name", text_json(&item->name), "arguments", text_json(&item->text)));
        return;
    }
    json_t *fields = json_pack("{s:s, s:I, s:i, s:o}", "item_id", item->id.text, "output_index",
                               (json_int_t)index, "content_index", 0, "text", text_json(&item->text));
    if (item->kind == GS_ITEM_MESSAGE)
        json_object_set_new(fields, "logprobs", item->logprobs ? json_incref(item->logprobs) : json_array());
    send(response,
         item->kind == GS_ITEM_MESSAGE ? "response.output_text.done" : "response.reasoning_text.done",
         fields);
    send_part(response, item, index, true);
}

static void closed(void *user, const struct gs_item *item, size_t index)
{
    struct gs_response *response = user;
    json_t *object = item_json(response, item, true);
    note(response, "c");
    if (json_array_append(response->output, object) != 0)
        response->items.failed = true;
    if (response->stream) {
        send_done(response, item, index);
        send(response, "response.output_item.done",
             json_pack("{s:I, s:O}", "output_index", (json_int_t)index, "item", object));
    }
    json_decref(object);
}

static json_t *logprobs_of(void *user, const struct gs_event *event)
{
    struct gs_response *response = user;
    if (!response->logprobs)
        return NULL;
    json_t *array = json_array();
    for (size_t i = 0; i < event->n_logprob; i++)
        json_array_append_new(array, gs_logprob_json(gs_server_vocab(response->server), &event->logprobs[i]));
    return array;
}

/* ---------------------------------------------------------------- the end */

static void store(struct gs_response *response, const json_t *object)
{
    if (!response->history)
        return;
    json_array_extend(response->history, response->output);
    gs_response_store_put(gs_server_responses(response->server),
                          json_string_value(json_object_get(response->base, "id")), response->key, object,
                          response->history, response->course.data ? response->course.data : "");
}

static void fail(struct gs_response *response, const struct gs_api_error *error, const struct gs_usage *usage)
{
    if (response->ended)
        return;
    response->ended = true;
    if (!response->stream || !response->begun) {
        gs_reply_error(response->exchange, error);
        return;
    }
    response->cut = true;
    gs_items_cut(&response->items, &response->watcher);
    json_t *param = error->param[0] ? json_string(error->param) : json_null();
    send(response, "error",
         json_pack("{s:s, s:s, s:o}", "code", error->code ? error->code : "server_error", "message",
                   error->message, "param", param));
    send_response(response, "response.failed", response_json(response, "failed", usage, error));
    gs_stream_end(response->exchange);
}

static void fail_memory(struct gs_response *response, const struct gs_usage *usage)
{
    struct gs_api_error error = {0};
    gs_api_fail(&error, 503, "out_of_memory", "memory is out");
    fail(response, &error, usage);
}

static void finish(struct gs_response *response, const struct gs_usage *usage)
{
    if (response->items.failed) {
        fail_memory(response, usage);
        return;
    }
    const char *status = response->cut ? "incomplete" : "completed";
    json_t *object = response_json(response, status, usage, NULL);
    response->ended = true;
    store(response, object); /* first: the next request may refer to it at once */
    if (!response->stream) {
        gs_reply_json(response->exchange, 200, object);
        return;
    }
    send_response(response, response->cut ? "response.incomplete" : "response.completed", object);
    gs_stream_end(response->exchange);
}

static void take_event(void *user, const struct gs_event *event)
{
    struct gs_response *response = user;
    pthread_mutex_lock(&response->mutex);
    bool before = !response->begun;
    if (event->kind != GS_EVENT_ERROR)
        begin(response);
    switch (event->kind) {
    case GS_EVENT_WAITING: /* an event, not a comment: clients' timers count only those */
        if (response->stream && !before)
            send_waiting(response);
        break;
    case GS_EVENT_CHOICE_DONE:
        response->cut = event->finish == GS_FINISH_LENGTH;
        gs_items_close(&response->items, &response->watcher);
        break;
    case GS_EVENT_DONE:
        finish(response, event->usage);
        break;
    case GS_EVENT_ERROR:
        fail(response, event->error, event->usage);
        break;
    default:
        gs_items_take(&response->items, &response->watcher, event);
        break;
    }
    pthread_mutex_unlock(&response->mutex);
}

/* ---------------------------------------------------------------- life */

struct gs_response *gs_response_make(struct gs_server *server, struct gs_exchange *exchange,
                                     const json_t *body, const struct gs_responses_request *request,
                                     const struct gs_request *chat)
{
    struct gs_response *response = calloc(1, sizeof *response);
    if (!response)
        return NULL;
    struct gs_random_id id = gs_random_id("resp_");
    pthread_mutex_init(&response->mutex, NULL);
    atomic_init(&response->references, 2);
    response->server = server;
    response->exchange = gs_exchange_hold(exchange);
    response->key = gs_exchange_key(exchange);
    response->base = make_base(server, id.text, body, request->store);
    if (chat->warnings)
        json_object_set(response->base, "warnings", chat->warnings);
    response->output = json_array();
    response->history = request->store ? json_incref(request->items) : NULL;
    response->stream = chat->stream;
    response->encrypted = request->encrypted;
    response->logprobs = request->logprobs;
    response->watcher = (struct gs_items_watcher){.prefixes = {"rs_", "msg_", "fc_"},
                                                  .opened = opened,
                                                  .grew = grew,
                                                  .closed = closed,
                                                  .logprobs = logprobs_of,
                                                  .user = response};
    if (response->base && response->output)
        return response;
    gs_response_release(response);
    gs_response_release(response);
    return NULL;
}

void gs_response_begin(struct gs_response *response)
{
    pthread_mutex_lock(&response->mutex);
    if (!response->released && !response->ended)
        begin(response);
    pthread_mutex_unlock(&response->mutex);
}

void gs_response_release(struct gs_response *response)
{
    if (atomic_fetch_sub(&response->references, 1) > 1)
        return;
    gs_exchange_release(response->exchange);
    json_decref(response->base);
    json_decref(response->history);
    json_decref(response->output);
    gs_buffer_free(&response->course);
    gs_items_free(&response->items);
    pthread_mutex_destroy(&response->mutex);
    free(response);
}

static void release(void *user)
{
    struct gs_response *response = user;
    pthread_mutex_lock(&response->mutex);
    response->released = true;
    pthread_mutex_unlock(&response->mutex);
    gs_response_release(response);
}

struct gs_sink gs_response_sink(struct gs_response *response)
{
    return (struct gs_sink){take_event, release, response};
}

/* ---------------------------------------------------------------- once more */

/* The item that a client got so; false if memory is out. */
static bool read_item(const json_t *object, struct gs_item *item)
{
    struct gs_text type = gs_json_text(json_object_get(object, "type"));
    const json_t *part = json_array_get(json_object_get(object, "content"), 0);
    item->kind = gs_text_is(type, "message")         ? GS_ITEM_MESSAGE
                 : gs_text_is(type, "function_call") ? GS_ITEM_CALL
                                                     : GS_ITEM_REASONING;
    bool call = item->kind == GS_ITEM_CALL;
    struct gs_text text = gs_json_text(json_object_get(call ? object : part, call ? "arguments" : "text"));
    struct gs_text name = gs_json_text(json_object_get(object, "name"));
    struct gs_text id = gs_json_text(json_object_get(object, "id"));
    struct gs_text call_id = gs_json_text(json_object_get(object, "call_id"));
    gs_format(item->id.text, sizeof item->id.text, "%.*s", (int)id.size, id.bytes ? id.bytes : "");
    gs_format(item->call_id, sizeof item->call_id, "%.*s", (int)call_id.size,
              call_id.bytes ? call_id.bytes : "");
    item->logprobs = json_incref(json_object_get(part, "logprobs"));
    return gs_buffer_append(&item->text, text.bytes, text.size, NULL) == GS_OK &&
           gs_buffer_append(&item->name, name.bytes, name.size, NULL) == GS_OK;
}

/* An item of a response that is told again, and how much of it has been. */
struct told {
    struct gs_item item;
    size_t index, n_byte, n_logprob;
};

static void forget(struct told *told)
{
    gs_buffer_free(&told->item.text);
    gs_buffer_free(&told->item.name);
    json_decref(told->item.logprobs);
    *told = (struct told){.index = told->index + 1};
}

static void tell_piece(struct gs_response *response, struct told *told, size_t n_byte, size_t n_logprob)
{
    const struct gs_buffer *text = &told->item.text;
    json_t *logprobs = n_logprob > 0 ? json_array() : NULL;
    for (size_t i = 0; i < n_logprob; i++)
        json_array_append(logprobs, json_array_get(told->item.logprobs, told->n_logprob++));
    if (told->n_byte + n_byte <= text->size)
        grew(response, &told->item, told->index, (struct gs_text){text->data + told->n_byte, n_byte},
             logprobs);
    told->n_byte += n_byte;
    json_decref(logprobs);
}

struct replay {
    struct gs_response response; /* its sending half */
    json_t *object, *course;
    const char *at; /* in the course */
    struct told told;
};

static void tell_next(struct replay *replay)
{
    struct gs_response *response = &replay->response;
    struct told *told = &replay->told;
    const json_t *object = json_array_get(json_object_get(replay->object, "output"), told->index);
    char *end;
    switch (*replay->at) {
    case 'o':
        if (!read_item(object, &told->item))
            response->items.failed = true;
        opened(response, &told->item, told->index);
        replay->at++;
        break;
    case 'c':
        response->cut = gs_text_is(gs_json_text(json_object_get(object, "status")), "incomplete");
        response->encrypted = json_object_get(object, "encrypted_content") != NULL;
        closed(response, &told->item, told->index);
        forget(told);
        replay->at++;
        break;
    case 'w':
        send_waiting(response);
        replay->at++;
        break;
    default: {
        size_t n_byte = strtoul(replay->at, &end, 10);
        size_t n_logprob = *end == ',' ? strtoul(end + 1, &end, 10) : 0;
        tell_piece(response, told, n_byte, n_logprob);
        replay->at = end + (*end != '\0');
    }
    }
}

static void make(void *user)
{
    struct replay *replay = user;
    struct gs_response *response = &replay->response;
    bool cut = gs_text_is(gs_json_text(json_object_get(replay->object, "status")), "incomplete");
    bool ends = response->begun && *replay->at == '\0';
    if (!response->begun)
        begin(response);
    else if (!ends)
        tell_next(replay);
    else
        send_response(response, cut ? "response.incomplete" : "response.completed",
                      json_copy(replay->object));
    if (response->items.failed)
        fail_memory(response, NULL);
    else if (ends)
        gs_stream_end(response->exchange);
}

static void free_replay(void *user)
{
    struct replay *replay = user;
    forget(&replay->told);
    json_decref(replay->response.base);
    json_decref(replay->response.output);
    json_decref(replay->object);
    json_decref(replay->course);
    free(replay);
}

void gs_response_replay(struct gs_exchange *exchange, json_t *object, json_t *course, size_t from)
{
    struct replay *replay = calloc(1, sizeof *replay);
    if (!replay) {
        struct gs_api_error error = {0};
        gs_api_fail(&error, 503, "out_of_memory", "memory is out");
        gs_reply_error(exchange, &error);
        return;
    }
    *replay = (struct replay){.object = json_incref(object),
                              .course = json_incref(course),
                              .at = json_is_string(course) ? json_string_value(course) : ""};
    struct gs_response *response = &replay->response;
    response->exchange = exchange;
    response->base = json_copy(object);
    response->output = json_array();
    response->from = from;
    response->stream = true;
    json_object_set_new(response->base, "usage", json_null());
    json_object_set_new(response->base, "incomplete_details", json_null());
    gs_stream_make(exchange, make, free_replay, replay);
}
