/*
 * A growable byte string. Zero-initialise; gs_buffer_free releases. `data` is always NUL-terminated after
 * a successful append (the NUL is not counted in `size`).
 */
#ifndef GS_BASE_BUFFER_H
#define GS_BASE_BUFFER_H

#include "gossamer.h"

struct gs_buffer {
    char *data;
    size_t size;
    size_t capacity;
};

/* Room for `extra` more bytes and the NUL. */
gs_status gs_buffer_reserve(struct gs_buffer *buffer, size_t extra, struct gs_error *error);
gs_status gs_buffer_append(struct gs_buffer *buffer, const void *bytes, size_t size, struct gs_error *error);
gs_status gs_buffer_append_text(struct gs_buffer *buffer, const char *text, struct gs_error *error);
__attribute__((format(printf, 3, 4))) gs_status gs_buffer_print(struct gs_buffer *buffer,
                                                                struct gs_error *error, const char *format,
                                                                ...);
void gs_buffer_clear(struct gs_buffer *buffer); /* keeps the memory */
void gs_buffer_free(struct gs_buffer *buffer);

#endif
