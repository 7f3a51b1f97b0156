/*
 * Between a client and libmicrohttpd, for a request that this must not see as it is: one with a chunked body,
 * whose frame it would answer in HTML where that is damaged, or with cookies, which nobody here reads and it
 * does not take from everybody. It gets the request through a pair of sockets, checked on the way, and the
 * answer comes back the same way. No thread of its own: front.c polls for it.
 */
#ifndef GS_SERVER_RELAY_H
#define GS_SERVER_RELAY_H

#include "server/head.h"

#include <poll.h>

struct gs_relay;

enum gs_relay_state {
    GS_RELAY_GOES_ON,
    GS_RELAY_ANSWERED, /* all of the answer is with the client */
    GS_RELAY_BAD,      /* nothing is, but perhaps "100 Continue": `error` is to be, 400 or 413 */
    GS_RELAY_BROKEN,   /* a side has gone, or does not read */
};

bool gs_relay_needed(const struct gs_head *head);

/*
 * `client` is borrowed; `bytes` are the head of its request, which lies unread in it. `inner` is the end that
 * libmicrohttpd is to have: the caller's. A body in chunks has max_body bytes at most.
 */
gs_status gs_relay_open(int client, const char *bytes, const struct gs_head *head, uint64_t max_body,
                        struct gs_relay **out, int *inner, struct gs_error *error);

/* What it waits for: polls[0] of the client, polls[1] of its own end of the pair. */
void gs_relay_list_polls(const struct gs_relay *relay, struct pollfd polls[2]);

/* Moves what can be moved without waiting; polls has what poll found. */
enum gs_relay_state gs_relay_run(struct gs_relay *relay, const struct pollfd polls[2], double now,
                                 struct gs_api_error *error);

/* Is some of the request still to come? It may be answered before. */
bool gs_relay_has_more(const struct gs_relay *relay);

void gs_relay_close(struct gs_relay *relay); /* NULL is allowed */

#endif
