#include "chat/writer.h"

#include <string.h>

struct gs_text gs_text_of(const char *text)
{
    return (struct gs_text){text, text ? strlen(text) : 0};
}

bool gs_text_equal(struct gs_text a, struct gs_text b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.bytes, b.bytes, a.size) == 0);
}

bool gs_text_is(struct gs_text text, const char *other)
{
    return text.bytes && gs_text_equal(text, gs_text_of(other));
}

bool gs_text_begins(struct gs_text text, const char *start)
{
    size_t size = strlen(start);
    return text.size >= size && (size == 0 || memcmp(text.bytes, start, size) == 0);
}

void gs_write(struct gs_writer *writer, const char *text)
{
    gs_write_text(writer, gs_text_of(text));
}

void gs_write_text(struct gs_writer *writer, struct gs_text text)
{
    if (writer->status == GS_OK)
        writer->status = gs_buffer_append(writer->buffer, text.bytes, text.size, writer->error);
}

void gs_write_number(struct gs_writer *writer, size_t number)
{
    char digits[24];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    gs_write_text(writer, (struct gs_text){digits + at, sizeof digits - at});
}

void gs_write_blanks(struct gs_writer *writer, size_t count)
{
    if (writer->status == GS_OK)
        writer->status = gs_buffer_reserve(writer->buffer, count, writer->error);
    if (writer->status != GS_OK || count == 0)
        return;
    memset(writer->buffer->data + writer->buffer->size, ' ', count);
    writer->buffer->size += count;
    writer->buffer->data[writer->buffer->size] = '\0';
}

bool gs_next_line(struct gs_text text, size_t *at, struct gs_text *line)
{
    if (*at >= text.size)
        return false;
    const char *start = text.bytes + *at;
    size_t left = text.size - *at;
    const char *newline = memchr(start, '\n', left);
    size_t size = newline ? (size_t)(newline - start) : left;
    *at += newline ? size + 1 : left;
    if (newline && size > 0 && start[size - 1] == '\r')
        size--;
    *line = (struct gs_text){start, size};
    return true;
}
