/*
 * Who may ask: names for the Host header, origins, keys. Pure functions of headers; http_daemon.c asks them
 * before any handler runs.
 */
#ifndef GS_SERVER_GUARD_H
#define GS_SERVER_GUARD_H

#include "server/exchange.h"
#include "server/server.h"

#define GS_MAX_KEY 256 /* bytes */

/* Is it an address that only this machine reaches: 127.0.0.0/8, ::1, or the name localhost? */
bool gs_is_loopback(const char *host);

/* Keys as they are compared: of one size, however long they are. */
struct gs_guard_key {
    unsigned char bytes[GS_MAX_KEY];
    size_t size;
};

struct gs_guard {
    const struct gs_server_config *config;
    struct gs_guard_key *keys; /* [n_key] */
    size_t n_key;
    bool loopback; /* only this machine reaches the port */
};

/* GS_INVALID_ARGUMENT for an address beyond loopback without a key, and for a key that is too long or empty.
 */
gs_status gs_guard_open(const struct gs_server_config *config, struct gs_guard *guard,
                        struct gs_error *error);
void gs_guard_close(struct gs_guard *guard);

/* Which key the text [size] is, from 1; 0: none. Takes the same time for every wrong one of any length. */
size_t gs_guard_find_key(const struct gs_guard *guard, const char *text, size_t size);

/*
 * All checks of a request's head, in the order: Host, Origin and Sec-Fetch-Site, route, method, key, content
 * type. 0 with exchange->route, tail and key set, or the status with `error` filled.
 */
int gs_guard_check(const struct gs_guard *guard, struct gs_exchange *exchange, struct gs_api_error *error);

#endif
