/*
 * The web page: files of this folder, part of the program. Nothing of them
 * depends on a request; what a page may load is in the header Content-Security-Policy.
 */
#ifndef GS_SERVER_PAGE_PAGE_H
#define GS_SERVER_PAGE_PAGE_H

#include "server/http.h"

struct gs_page_file {
    const char *type;
    const unsigned char *bytes; /* followed by a NUL that does not count */
    size_t size;
};

/* "" is the page itself, the others are below "page/". False if there is none of this name. */
bool gs_page_find(const char *name, struct gs_page_file *file);

/* GET / and GET /page/NAME. */
void gs_page_get(struct gs_server *server, struct gs_exchange *exchange);

#endif
