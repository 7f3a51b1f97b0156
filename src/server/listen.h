/* A listening socket. */
#ifndef GS_SERVER_LISTEN_H
#define GS_SERVER_LISTEN_H

#include "gossamer.h"

/* `host` is an address or "localhost"; port 0 takes a free one. *port is the one that it is. */
gs_status gs_listen(const char *host, int wanted, int *listener, int *port, struct gs_error *error);

#endif
