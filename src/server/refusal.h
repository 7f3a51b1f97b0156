/* An answer as bytes, for what libmicrohttpd cannot or must not answer: an error, and then the end. */
#ifndef GS_SERVER_REFUSAL_H
#define GS_SERVER_REFUSAL_H

#include "base/buffer.h"
#include "server/http.h"

/* `lines`: of the head, each with its end. Less than a socket takes at once that was sent nothing yet.
 * GS_OUT_OF_MEMORY. */
gs_status gs_refusal_print(struct gs_buffer *out, enum gs_error_form form, const char *lines,
                           const struct gs_api_error *error);

/* 413: more than `most` bytes. */
int gs_refusal_of_length(uint64_t most, struct gs_api_error *error);

#endif
