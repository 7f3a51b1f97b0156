/* What http_daemon.c (requests and answers, by libmicrohttpd) shares with http_watch.c (clients that leave,
 * or are too slow). */
#ifndef GS_SERVER_HTTP_STATE_H
#define GS_SERVER_HTTP_STATE_H

#include "server/exchange.h"
#include "server/http_daemon.h"

struct MHD_Connection;

#define GS_HTTP_IDLE_SECONDS 30.0 /* without a byte of a body */
#define GS_HTTP_HEAD_SECONDS 10.0 /* from the connection to the end of its head */
#define GS_HTTP_BODY_SECONDS 30.0 /* and for each GS_HTTP_MIN_RATE bytes one more */
#define GS_HTTP_MIN_RATE     16384u

/* A connection, from accept to close. */
struct gs_link {
    struct gs_link *before, *after;
    size_t number;
    int socket;
    double since; /* handed on, or its answer ended */
    bool busy;
    bool watched; /* its answer is under way, for a client that is there as far as is known */
};

/* A request under way. */
struct gs_sender {
    struct gs_sender *before, *after;
    struct gs_http *http;
    struct MHD_Connection *connection;
    struct gs_link *link;
    struct gs_exchange *exchange;
    struct gs_api_error failure; /* of the head; status 0: none */
    bool refused;                /* for its head, though a body comes: `failure` changes no more */
    _Atomic uint64_t received;   /* bytes of the body */
    _Atomic double heard;        /* when the last of them came */
    uint64_t kept;               /* of these in memory: counted in body_bytes */
    struct gs_sender *woken;     /* next of those to be resumed */
    int status;                  /* of what was queued */

    /* under the mutex */
    bool whole;      /* the body is: who asks is answered by libmicrohttpd */
    bool dispatched; /* its handler has run */
    double told;     /* when it was refused, before it was whole (http_watch.c); 0: it was not */
};

struct gs_http {
    struct gs_http_options options;
    int listener, port;
    struct MHD_Daemon *daemon;
    struct gs_front *front;
    pthread_mutex_t mutex; /* of the two lists */
    struct gs_link *links;
    struct gs_sender *senders;
    size_t n_sender;
    size_t n_exchange, n_link;   /* ever */
    size_t n_open;               /* links */
    _Atomic uint64_t body_bytes; /* of all senders */
    pthread_t watcher, waker;
    bool has_watcher, has_waker;
    _Atomic bool stops;

    pthread_mutex_t wake_mutex;
    pthread_cond_t wakes;
    struct gs_sender *woken; /* suspended, and to be resumed at the next flush */
    bool flushes, waker_stops;
};

/* A thread's function, until `stops`; the user is the gs_http. */
void *gs_http_watch(void *user);

#endif
