/*
 * HTTP as handlers see it. A handler gets an exchange (one request and the reply to it) with the whole body
 * read and all general checks done (method, host, origin, key, limits), and may answer at once or later, from
 * any thread. It runs on a thread of the HTTP side and must not block.
 *
 * An exchange is counted: whoever keeps it beyond the handler holds a reference. Replying after the client
 * has gone is allowed and does nothing.
 */
#ifndef GS_SERVER_HTTP_H
#define GS_SERVER_HTTP_H

#include "chat/writer.h"
#include "server/api_error.h"

#include <stdatomic.h>

struct gs_server;
struct gs_exchange;

typedef void gs_handler_fn(struct gs_server *server, struct gs_exchange *exchange);

/* How errors are written. */
enum gs_error_form {
    GS_ERROR_OPENAI,    /* {"error": {...}} */
    GS_ERROR_ANTHROPIC, /* {"type": "error", "error": {"type", "message"}} */
};

enum gs_route_flags {
    GS_ROUTE_OPEN = 1,  /* answered without a key, too */
    GS_ROUTE_TAIL = 2,  /* `path` ends in "/": what follows it is the tail */
    GS_ROUTE_READY = 4, /* answered while the model is still loading */
};

struct gs_route {
    const char *method; /* "GET", "POST" (body: JSON), "DELETE" */
    const char *path;   /* "*": a segment, which is the tail */
    gs_handler_fn *fn;
    unsigned flags;
    enum gs_error_form errors;
};

/* All of them, ended by a NULL method; routes.c has the table. */
extern const struct gs_route gs_routes[];

/* ---------------------------------------------------------------- the request */

struct gs_exchange *gs_exchange_hold(struct gs_exchange *exchange);
void gs_exchange_release(struct gs_exchange *exchange);

const char *gs_exchange_body(const struct gs_exchange *exchange, size_t *size);

/*
 * The body as a JSON object: depth, UTF-8, repeated keys and numbers checked. NULL if it is none: the error
 * has then been replied. The caller owns the reference.
 */
json_t *gs_exchange_json(struct gs_exchange *exchange);

/* NULL: not there. Valid as long as the exchange. */
const char *gs_exchange_tail(const struct gs_exchange *exchange);
const char *gs_exchange_header(const struct gs_exchange *exchange, const char *name); /* "user-agent" */
const char *gs_exchange_query(const struct gs_exchange *exchange, const char *name);

/* Which of the configured keys the client used; 0 if there are none. */
size_t gs_exchange_key(const struct gs_exchange *exchange);

/* ---------------------------------------------------------------- the reply */

/* At most one of these, once. A header, before it: text without control characters. */
void gs_reply_header(struct gs_exchange *exchange, const char *name, const char *value);
void gs_reply_json(struct gs_exchange *exchange, int status, json_t *body); /* takes the reference */
void gs_reply_bytes(struct gs_exchange *exchange, int status, const char *content_type, const void *bytes,
                    size_t size); /* copied */
void gs_reply_error(struct gs_exchange *exchange, const struct gs_api_error *error);

/*
 * A stream of server-sent events. Begin sends the headers (again: nothing); every other call begins it if
 * that has not been done. After end nothing is sent any more.
 */
void gs_stream_begin(struct gs_exchange *exchange);
void gs_stream_json(struct gs_exchange *exchange, const char *event, json_t *data); /* event NULL: no such
                                                                                       line; takes `data` */
void gs_stream_text(struct gs_exchange *exchange, const char *event, const char *data, size_t size);

/*
 * Begins a stream that is made while it is sent: `make` writes a part of it, or ends it, whenever little is
 * left to be sent. `user` is the exchange's from now on, which calls `free_maker` for it.
 */
void gs_stream_make(struct gs_exchange *exchange, void (*make)(void *user), void (*free_maker)(void *user),
                    void *user);

/*
 * What a token brings is written to the stream itself, without a tree of JSON or a copy: open, the data on
 * one line, close. In between nothing else may be done with the exchange. Where memory is out the stream is
 * cut.
 */
struct gs_writer gs_stream_open(struct gs_exchange *exchange, const char *event);
void gs_stream_close(struct gs_exchange *exchange, const struct gs_writer *writer);
void gs_stream_comment(struct gs_exchange *exchange); /* ": keep-alive" */
void gs_stream_end(struct gs_exchange *exchange);

/* Has the client gone, or does it not read? What is generated for it is then in vain. */
bool gs_exchange_gone(const struct gs_exchange *exchange);

#endif
