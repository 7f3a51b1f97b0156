/*
 * In front of libmicrohttpd: takes connections, and looks at the head of each without reading it away. What
 * is a request is handed on with all its bytes; what is none, or says that its body is too long, is answered
 * here, in JSON, and closed. A chunked body is seen whole (relay.h). Whoever is handed a connection answers
 * one request of it, and closes.
 */
#ifndef GS_SERVER_FRONT_H
#define GS_SERVER_FRONT_H

#include "gossamer.h"

#include <sys/socket.h>

struct gs_front;

struct gs_front_options {
    int listener; /* borrowed; does not block */
    size_t max_callers, max_per_peer;
    double head_seconds; /* from the connection to the end of its first head */
    uint64_t max_body;   /* bytes; a request with more is refused when that is known */
    /* The socket is the callee's from here on. */
    void (*take)(void *user, int socket, const struct sockaddr *address, socklen_t length);
    void (*refused)(void *user, int status, const char *message);
    void *user;
};

gs_status gs_front_open(const struct gs_front_options *options, struct gs_front **out,
                        struct gs_error *error);

/* No new connections; those that are there may still ask. */
void gs_front_quiesce(struct gs_front *front);

/* Takes and closes all that were not handed on. NULL is allowed. */
void gs_front_close(struct gs_front *front);

#endif
