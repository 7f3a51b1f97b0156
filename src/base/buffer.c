#include "base/buffer.h"

#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

gs_status gs_buffer_reserve(struct gs_buffer *buffer, size_t extra, struct gs_error *error)
{
    if (extra >= SIZE_MAX / 4 || buffer->size >= SIZE_MAX / 4)
        return gs_fail_memory(error, extra);
    size_t needed = buffer->size + extra + 1;
    if (needed <= buffer->capacity)
        return GS_OK;
    size_t capacity = buffer->capacity ? buffer->capacity : 64;
    while (capacity < needed)
        capacity *= 2;
    char *data = realloc(buffer->data, capacity);
    if (!data)
        return gs_fail_memory(error, capacity);
    buffer->data = data;
    buffer->capacity = capacity;
    return GS_OK;
}

gs_status gs_buffer_append(struct gs_buffer *buffer, const void *bytes, size_t size, struct gs_error *error)
{
    gs_status status = gs_buffer_reserve(buffer, size, error);
    if (status != GS_OK)
        return status;
    if (size > 0)
        memcpy(buffer->data + buffer->size, bytes, size);
    buffer->size += size;
    buffer->data[buffer->size] = '\0';
    return GS_OK;
}

gs_status gs_buffer_append_text(struct gs_buffer *buffer, const char *text, struct gs_error *error)
{
    return gs_buffer_append(buffer, text, strlen(text), error);
}

gs_status gs_buffer_print(struct gs_buffer *buffer, struct gs_error *error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0)
        return gs_fail(error, GS_INVALID_ARGUMENT, "a text could not be formatted");
    gs_status status = gs_buffer_reserve(buffer, (size_t)length, error);
    if (status != GS_OK)
        return status;
    va_start(arguments, format);
    vsnprintf(buffer->data + buffer->size, (size_t)length + 1, format, arguments);
    va_end(arguments);
    buffer->size += (size_t)length;
    return GS_OK;
}

void gs_buffer_clear(struct gs_buffer *buffer)
{
    buffer->size = 0;
    if (buffer->data)
        buffer->data[0] = '\0';
}

void gs_buffer_free(struct gs_buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct gs_buffer){0};
}
