/*
 * An exchange without its connection: what was asked, what is to be sent, and the waking of whoever sends.
 * http_daemon.c stands on one side of it, handlers (http.h) on the other; tests stand in for either.
 */
#ifndef GS_SERVER_EXCHANGE_H
#define GS_SERVER_EXCHANGE_H

#include "base/arena.h"
#include "server/http.h"

#include <pthread.h>

#define GS_MAX_HEADERS       100
#define GS_MAX_UNSENT        (4u << 20) /* bytes of a stream that its client does not read */
#define GS_MAX_REPLY_HEADERS 4

enum gs_reply_form {
    GS_REPLY_NONE,
    GS_REPLY_WHOLE,
    GS_REPLY_STREAM,
};

struct gs_pair {
    const char *name, *value;
};

struct gs_exchange {
    /* the request: written before the handler runs, then only read */
    struct gs_server *server;
    const struct gs_route *route;
    struct gs_arena arena; /* of the texts */
    const char *method, *path, *tail;
    struct gs_pair headers[GS_MAX_HEADERS]; /* [n_header] */
    size_t n_header;
    struct gs_pair *queries; /* [n_query] */
    size_t n_query;
    struct gs_buffer body;
    size_t key;
    size_t client; /* number of the connection */
    size_t peer;   /* equal for requests with one key from one address */
    size_t number; /* of the exchange, for the log */
    double began;

    /* the reply: under the mutex */
    pthread_mutex_t mutex;
    size_t n_reference;
    enum gs_reply_form form;
    int status;
    const char *content_type; /* a literal */
    struct gs_pair reply_headers[GS_MAX_REPLY_HEADERS];
    size_t n_reply_header;
    struct gs_buffer out; /* to be sent: from out_at */
    size_t out_at;
    bool ended;               /* nothing more comes */
    bool waiting;             /* the sender sleeps until wake is called */
    _Atomic bool gone;        /* the client has */
    void (*wake)(void *user); /* under the mutex; NULL: no connection any more */
    void *wake_user;

    /* of a stream that is made while it is sent: by the thread that sends; GS_MAX_UNSENT is not for it */
    void (*make)(void *user); /* NULL: none */
    void (*free_maker)(void *user);
    void *maker;

    /* who wants to know at once that the client has gone */
    void (*on_gone)(void *user); /* under the mutex */
    void *on_gone_user;
};

/* One reference. NULL if memory is out. */
struct gs_exchange *gs_exchange_make(struct gs_server *server);

/* A text that lives as long as the exchange. */
const char *gs_exchange_keep(struct gs_exchange *exchange, const char *text);

/* Before what is there is sent: a stream that is made meanwhile gets its next part. */
void gs_exchange_fill(struct gs_exchange *exchange);

/* Marks the client as gone and wakes the sender, so that it sees it. */
void gs_exchange_leave(struct gs_exchange *exchange);

/* fn NULL: nobody. If the client has gone already it is called at once. */
void gs_exchange_on_gone(struct gs_exchange *exchange, void (*fn)(void *user), void *user);

#endif
