/* Bytes as text of [A-Za-z0-9+/=] and back (RFC 4648). */
#ifndef GS_BASE_BASE64_H
#define GS_BASE_BASE64_H

#include "base/buffer.h"

/* Append to `out`. */
gs_status gs_base64_encode(const void *bytes, size_t size, struct gs_buffer *out, struct gs_error *error);

/* GS_MALFORMED for anything that gs_base64_encode does not write. */
gs_status gs_base64_decode(const char *text, size_t size, struct gs_buffer *out, struct gs_error *error);

#endif
