/*
 * The head of a request as bytes: is it whole, is it one? Asked before libmicrohttpd sees it, which would
 * answer what is none in HTML. Pure functions; front.c calls them.
 */
#ifndef GS_SERVER_HEAD_H
#define GS_SERVER_HEAD_H

#include "server/http.h"

#define GS_HEAD_MAX_METHOD    64u         /* bytes */
#define GS_HEAD_MAX_TARGET    8192u       /* of the path and the query */
#define GS_HEAD_MAX_BYTES     (16u << 10) /* of the header lines */
#define GS_HEAD_MAX_ARGUMENTS 100         /* behind the path */
#define GS_HEAD_MAX_LINES     100         /* and bytes of empty lines before the first */

/* So many bytes are never a part: with the blanks, the version and the ends of lines, all of the above. */
#define GS_HEAD_ENOUGH_BYTES                                                                                 \
    (GS_HEAD_MAX_LINES + GS_HEAD_MAX_METHOD + GS_HEAD_MAX_TARGET + GS_HEAD_MAX_BYTES + 64u)

enum gs_head_state {
    GS_HEAD_PART,  /* nothing wrong, and more has to come */
    GS_HEAD_WHOLE, /* up to the empty line; a body may follow */
    GS_HEAD_BAD,   /* `error` has the status, 400, 413, 414, 431, 501 or 505, and why */
};

/* Of a whole one. */
struct gs_head {
    size_t size;     /* bytes, the empty line included */
    uint64_t length; /* of the body, where it is not chunked */
    bool chunked, has_cookie;
};

enum gs_head_state gs_head_check(const char *bytes, size_t size, struct gs_head *head,
                                 struct gs_api_error *error);

/* A whole head, size bytes, without its Cookie lines; `out` has room for it. */
void gs_head_drop_cookies(const char *bytes, size_t size, char *out, size_t *written);

/* How errors of the path that the first line asks for are written. */
enum gs_error_form gs_head_errors(const char *bytes, size_t size);

/* Is it a name of a header, or a method: one of the letters, digits and signs that HTTP calls a token? */
bool gs_head_is_token(const char *bytes, size_t size);

#endif
