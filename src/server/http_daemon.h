/* The port: connections to exchanges and back, on libmicrohttpd. absent.c stands in where that is missing. */
#ifndef GS_SERVER_HTTP_DAEMON_H
#define GS_SERVER_HTTP_DAEMON_H

#include "server/guard.h"

struct gs_http;

struct gs_http_options {
    const char *host;
    int port; /* 0: any */
    uint64_t max_body;
    const struct gs_guard *guard; /* borrowed */
    struct gs_server *server;
};

/* GS_UNSUPPORTED where libmicrohttpd was left out. */
gs_status gs_http_open(const struct gs_http_options *options, struct gs_http **out, struct gs_error *error);
int gs_http_port(const struct gs_http *http);

/* No new connections. */
void gs_http_quiesce(struct gs_http *http);

/* Sends what exchanges have been given since the last time; whoever gives them something calls it then. */
void gs_http_flush(struct gs_http *http);

/* Answers under way. A request whose body is still coming is none: it would be refused now. */
size_t gs_http_pending(struct gs_http *http);

/* Ends all connections. */
void gs_http_close(struct gs_http *http);

#endif
