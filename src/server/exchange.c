#include "server/exchange.h"

#include "base/clock.h"
#include "base/status.h"
#include "base/utf8.h"
#include "chat/json_load.h"
#include "chat/json_text.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_DEPTH 64          /* of a body */
#define OUT_KEEP  (64u << 10) /* bytes of an emptied buffer that are kept */
#define OUT_LOW   (16u << 10) /* bytes unsent, below which more of a stream is made */
/* An error of all dialects. */
#define NO_MEMORY                                                                                            \
    "{\"type\":\"error\",\"error\":{\"message\":\"memory is out\",\"type\":\"server_error\","                \
    "\"param\":null,\"code\":null}}"
#define STREAM_TYPE "text/event-stream"

struct gs_exchange *gs_exchange_make(struct gs_server *server)
{
    struct gs_exchange *exchange = calloc(1, sizeof *exchange);
    if (!exchange)
        return NULL;
    if (pthread_mutex_init(&exchange->mutex, NULL) != 0) {
        free(exchange);
        return NULL;
    }
    exchange->server = server;
    exchange->n_reference = 1;
    exchange->began = gs_clock_seconds();
    return exchange;
}

struct gs_exchange *gs_exchange_hold(struct gs_exchange *exchange)
{
    pthread_mutex_lock(&exchange->mutex);
    exchange->n_reference++;
    pthread_mutex_unlock(&exchange->mutex);
    return exchange;
}

void gs_exchange_release(struct gs_exchange *exchange)
{
    if (!exchange)
        return;
    pthread_mutex_lock(&exchange->mutex);
    size_t left = --exchange->n_reference;
    pthread_mutex_unlock(&exchange->mutex);
    if (left > 0)
        return;
    pthread_mutex_destroy(&exchange->mutex);
    if (exchange->make)
        exchange->free_maker(exchange->maker);
    gs_buffer_free(&exchange->body);
    gs_buffer_free(&exchange->out);
    gs_arena_free(&exchange->arena);
    free(exchange);
}

const char *gs_exchange_keep(struct gs_exchange *exchange, const char *text)
{
    return gs_arena_copy(&exchange->arena, text, strlen(text));
}

/* ---------------------------------------------------------------- the request */

const char *gs_exchange_body(const struct gs_exchange *exchange, size_t *size)
{
    *size = exchange->body.size;
    return exchange->body.data ? exchange->body.data : "";
}

const char *gs_exchange_tail(const struct gs_exchange *exchange)
{
    return exchange->tail;
}

const char *gs_exchange_header(const struct gs_exchange *exchange, const char *name)
{
    for (size_t i = 0; i < exchange->n_header; i++)
        if (strcasecmp(exchange->headers[i].name, name) == 0)
            return exchange->headers[i].value;
    return NULL;
}

const char *gs_exchange_query(const struct gs_exchange *exchange, const char *name)
{
    for (size_t i = 0; i < exchange->n_query; i++)
        if (strcmp(exchange->queries[i].name, name) == 0)
            return exchange->queries[i].value;
    return NULL;
}

size_t gs_exchange_key(const struct gs_exchange *exchange)
{
    return exchange->key;
}

/* Brackets outside of strings; the parser behind it sees the rest. */
static bool is_deep(const char *text, size_t size)
{
    size_t depth = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '"') {
            for (i++; i < size && text[i] != '"'; i++)
                i += text[i] == '\\';
        } else if (text[i] == '[' || text[i] == '{') {
            if (++depth > MAX_DEPTH)
                return true;
        } else if ((text[i] == ']' || text[i] == '}') && depth > 0) {
            depth--;
        }
    }
    return false;
}

json_t *gs_exchange_json(struct gs_exchange *exchange)
{
    struct gs_api_error failure = {0};
    struct gs_error error;
    json_t *body = NULL;
    size_t size;
    const char *text = gs_exchange_body(exchange, &size);
    if (size == 0)
        gs_api_fail(&failure, 400, NULL, "the body is empty: a JSON object is expected");
    else if (is_deep(text, size))
        gs_api_fail(&failure, 400, NULL, "the body is nested more than %d levels deep", MAX_DEPTH);
    else if (!gs_utf8_valid(text, size))
        gs_api_fail(&failure, 400, NULL, "the body is not valid UTF-8");
    else if (gs_json_load("the body is no valid JSON", text, size, &body, &error) != GS_OK)
        gs_api_fail(&failure, error.code == GS_OUT_OF_MEMORY ? 503 : 400, NULL, "%s", error.message);
    else if (!json_is_object(body))
        gs_api_fail(&failure, 400, NULL, "the body is no JSON object");
    if (failure.status == 0) {
        gs_buffer_free(&exchange->body); /* an answer may take minutes */
        return body;
    }
    json_decref(body);
    gs_reply_error(exchange, &failure);
    return NULL;
}

/* ---------------------------------------------------------------- the reply */

/* Under the mutex: whoever sends has something to do. */
static void wake(struct gs_exchange *exchange)
{
    if (exchange->waiting && exchange->wake) {
        exchange->waiting = false;
        exchange->wake(exchange->wake_user);
    }
}

bool gs_exchange_gone(const struct gs_exchange *exchange)
{
    return atomic_load(&exchange->gone);
}

/* Under the mutex. */
static void leave(struct gs_exchange *exchange)
{
    if (!atomic_exchange(&exchange->gone, true) && exchange->on_gone)
        exchange->on_gone(exchange->on_gone_user);
}

void gs_exchange_leave(struct gs_exchange *exchange)
{
    pthread_mutex_lock(&exchange->mutex);
    leave(exchange);
    wake(exchange);
    pthread_mutex_unlock(&exchange->mutex);
}

void gs_exchange_on_gone(struct gs_exchange *exchange, void (*fn)(void *user), void *user)
{
    pthread_mutex_lock(&exchange->mutex);
    exchange->on_gone = fn;
    exchange->on_gone_user = user;
    if (fn && atomic_load(&exchange->gone))
        fn(user);
    pthread_mutex_unlock(&exchange->mutex);
}

static bool is_plain(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || (unsigned char)*text > 0x7E)
            return false;
    return true;
}

void gs_reply_header(struct gs_exchange *exchange, const char *name, const char *value)
{
    pthread_mutex_lock(&exchange->mutex);
    if (exchange->n_reply_header < GS_MAX_REPLY_HEADERS && exchange->form == GS_REPLY_NONE &&
        is_plain(value)) {
        struct gs_pair pair = {gs_exchange_keep(exchange, name), gs_exchange_keep(exchange, value)};
        if (pair.name && pair.value)
            exchange->reply_headers[exchange->n_reply_header++] = pair;
    }
    pthread_mutex_unlock(&exchange->mutex);
}

/* Content types are literals of the callers. */
void gs_reply_bytes(struct gs_exchange *exchange, int status, const char *content_type, const void *bytes,
                    size_t size)
{
    pthread_mutex_lock(&exchange->mutex);
    if (exchange->form == GS_REPLY_NONE) {
        exchange->form = GS_REPLY_WHOLE;
        exchange->status = status;
        exchange->content_type = content_type;
        exchange->ended = true;
        if (gs_buffer_append(&exchange->out, bytes, size, NULL) != GS_OK) {
            exchange->status = 503;
            gs_buffer_clear(&exchange->out);
        }
        wake(exchange);
    }
    pthread_mutex_unlock(&exchange->mutex);
}

/* Numbers so that they read back equal, in as few digits as that takes. */
static gs_status print_json(struct gs_buffer *text, const json_t *value)
{
    struct gs_writer writer = {.buffer = text, .one_line = true};
    gs_write_json(&writer, value);
    return writer.status;
}

void gs_reply_json(struct gs_exchange *exchange, int status, json_t *body)
{
    struct gs_buffer text = {0};
    if (body && print_json(&text, body) == GS_OK)
        gs_reply_bytes(exchange, status, "application/json", text.data, text.size);
    else
        gs_reply_bytes(exchange, 503, "application/json", NO_MEMORY, sizeof NO_MEMORY - 1);
    gs_buffer_free(&text);
    json_decref(body);
}

void gs_reply_error(struct gs_exchange *exchange, const struct gs_api_error *error)
{
    struct gs_quoted seconds;
    if (error->retry_after > 0) {
        gs_format(seconds.text, sizeof seconds.text, "%u", error->retry_after);
        gs_reply_header(exchange, "Retry-After", seconds.text);
    }
    bool anthropic = exchange->route && exchange->route->errors == GS_ERROR_ANTHROPIC;
    gs_reply_json(exchange, error->status,
                  anthropic ? gs_api_error_anthropic(error) : gs_api_error_json(error));
}

/* ---------------------------------------------------------------- streams */

/* Under the mutex. */
static bool begin_stream(struct gs_exchange *exchange)
{
    if (exchange->form == GS_REPLY_NONE) {
        exchange->form = GS_REPLY_STREAM;
        exchange->status = 200;
        exchange->content_type = STREAM_TYPE;
    }
    return exchange->form == GS_REPLY_STREAM && !exchange->ended && !atomic_load(&exchange->gone);
}

void gs_stream_begin(struct gs_exchange *exchange)
{
    pthread_mutex_lock(&exchange->mutex);
    begin_stream(exchange);
    wake(exchange);
    pthread_mutex_unlock(&exchange->mutex);
}

/* Under the mutex: what was sent makes room. */
static void make_room(struct gs_exchange *exchange)
{
    struct gs_buffer *out = &exchange->out;
    if (exchange->out_at < out->size && exchange->out_at < OUT_KEEP)
        return;
    memmove(out->data, out->data + exchange->out_at, out->size - exchange->out_at);
    out->size -= exchange->out_at;
    exchange->out_at = 0;
}

struct gs_writer gs_stream_open(struct gs_exchange *exchange, const char *event)
{
    pthread_mutex_lock(&exchange->mutex);
    struct gs_writer writer = {.buffer = &exchange->out, .one_line = true};
    if (!begin_stream(exchange)) {
        writer.buffer = NULL;
        writer.status = GS_CANCELLED; /* what is written goes nowhere */
        return writer;
    }
    if (exchange->out.size > 0)
        make_room(exchange);
    if (event) {
        gs_write(&writer, "event: ");
        gs_write(&writer, event);
        gs_write(&writer, "\n");
    }
    gs_write(&writer, "data: ");
    return writer;
}

void gs_stream_close(struct gs_exchange *exchange, const struct gs_writer *writer)
{
    struct gs_writer last = *writer;
    gs_write(&last, "\n\n");
    bool written = last.buffer != NULL;
    bool too_much = !exchange->make && exchange->out.size - exchange->out_at > GS_MAX_UNSENT;
    if (written && (last.status != GS_OK || too_much))
        leave(exchange);
    wake(exchange);
    pthread_mutex_unlock(&exchange->mutex);
}

void gs_stream_text(struct gs_exchange *exchange, const char *event, const char *data, size_t size)
{
    struct gs_writer writer = gs_stream_open(exchange, event);
    gs_write_text(&writer, (struct gs_text){data, size});
    gs_stream_close(exchange, &writer);
}

void gs_stream_json(struct gs_exchange *exchange, const char *event, json_t *data)
{
    struct gs_buffer text = {0};
    if (!gs_exchange_gone(exchange)) {
        if (data && print_json(&text, data) == GS_OK)
            gs_stream_text(exchange, event, text.data, text.size);
        else /* a stream that lacks a part would be taken for whole */
            gs_exchange_leave(exchange);
    }
    gs_buffer_free(&text);
    json_decref(data);
}

void gs_stream_make(struct gs_exchange *exchange, void (*make)(void *user), void (*free_maker)(void *user),
                    void *user)
{
    exchange->make = make;
    exchange->free_maker = free_maker;
    exchange->maker = user;
    gs_stream_begin(exchange);
}

static bool is_low(struct gs_exchange *exchange)
{
    pthread_mutex_lock(&exchange->mutex);
    bool low =
        !exchange->ended && !atomic_load(&exchange->gone) && exchange->out.size - exchange->out_at < OUT_LOW;
    pthread_mutex_unlock(&exchange->mutex);
    return low;
}

void gs_exchange_fill(struct gs_exchange *exchange)
{
    while (exchange->make && is_low(exchange))
        exchange->make(exchange->maker);
}

void gs_stream_comment(struct gs_exchange *exchange)
{
    pthread_mutex_lock(&exchange->mutex);
    if (begin_stream(exchange) && gs_buffer_append_text(&exchange->out, ": keep-alive\n\n", NULL) != GS_OK)
        leave(exchange);
    wake(exchange);
    pthread_mutex_unlock(&exchange->mutex);
}

void gs_stream_end(struct gs_exchange *exchange)
{
    pthread_mutex_lock(&exchange->mutex);
    begin_stream(exchange);
    exchange->ended = true;
    wake(exchange);
    pthread_mutex_unlock(&exchange->mutex);
}
