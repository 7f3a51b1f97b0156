/*
 * Writing a long text into a buffer without looking at every status: the first failure is kept, and writing
 * after it does nothing. Owns nothing.
 */
#ifndef GS_CHAT_WRITER_H
#define GS_CHAT_WRITER_H

#include "base/buffer.h"

/* Bytes that may hold a NUL; bytes NULL: not set. Borrowed. */
struct gs_text {
    const char *bytes;
    size_t size;
};

struct gs_text gs_text_of(const char *text); /* NULL stays not set */
bool gs_text_equal(struct gs_text a, struct gs_text b);
bool gs_text_is(struct gs_text text, const char *other);
bool gs_text_begins(struct gs_text text, const char *start);

struct gs_writer {
    struct gs_buffer *buffer;
    gs_status status;
    struct gs_error *error; /* may be NULL */
    /* JSON strings have U+0085, U+2028 and U+2029 escaped: for readers to whom these end a line. */
    bool one_line;
};

void gs_write(struct gs_writer *writer, const char *text);
void gs_write_text(struct gs_writer *writer, struct gs_text text);
void gs_write_number(struct gs_writer *writer, size_t number); /* in decimal digits */
void gs_write_blanks(struct gs_writer *writer, size_t count);

/* The next line of `text` from *at, without its "\n" or "\r\n"; a final newline begins no further line. */
bool gs_next_line(struct gs_text text, size_t *at, struct gs_text *line);

#endif
