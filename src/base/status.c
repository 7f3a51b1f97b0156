#include "base/status.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEXT_OF(x)          #x
#define VERSION_OF(a, b, c) TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)

const char *gs_version(void)
{
    return VERSION_OF(GS_VERSION_MAJOR, GS_VERSION_MINOR, GS_VERSION_PATCH);
}

/* Removes a last character of which only the first bytes are there. */
static void drop_partial_character(char *text)
{
    size_t size = strlen(text), at = size, length;
    while (at > 0 && size - at < 3 && ((unsigned char)text[at - 1] & 0xC0) == 0x80)
        at--;
    if (at > 0 && gs_utf8_decode(text + at - 1, size - at + 1, &length) == GS_UTF8_INCOMPLETE)
        text[at - 1] = '\0';
}

__attribute__((format(printf, 3, 0))) static void format_text(char *text, size_t size, const char *format,
                                                              va_list arguments)
{
    text[0] = '\0';
    int length = vsnprintf(text, size, format, arguments);
    if (length > 0 && (size_t)length >= size)
        drop_partial_character(text);
}

void gs_format(char *text, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    format_text(text, size, format, arguments);
    va_end(arguments);
}

gs_status gs_fail(struct gs_error *error, gs_status code, const char *format, ...)
{
    if (error) {
        /* Formatted aside, since an argument may be the message itself (adding a file's name to it). */
        char message[sizeof error->message];
        va_list arguments;
        va_start(arguments, format);
        format_text(message, sizeof message, format, arguments);
        va_end(arguments);
        error->code = code;
        memcpy(error->message, message, sizeof message);
    }
    return code;
}

gs_status gs_fail_memory(struct gs_error *error, uint64_t bytes)
{
    return gs_fail(error, GS_OUT_OF_MEMORY, "out of memory: cannot allocate %llu bytes",
                   (unsigned long long)bytes);
}

gs_status gs_fail_io(struct gs_error *error, int errnum, const char *action, const char *path)
{
    return gs_fail(error, GS_IO, "cannot %s %s: %s", action, gs_quote(path).text, strerror(errnum));
}

/* Would this code point move the cursor, reorder the line or end it? */
static bool is_unprintable(uint32_t c)
{
    return c < 0x20 || (c >= 0x7F && c <= 0x9F) || c == '\\' || c == 0x2028 || c == 0x2029 || c == 0x61C ||
           c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) ||
           c > 0x10FFFF;
}

/* One character of the input as it will be shown; returns its length in bytes in `out`. */
static size_t quote_character(const char *bytes, size_t length, uint32_t code_point, char out[17])
{
    if (!is_unprintable(code_point)) {
        memcpy(out, bytes, length);
        return length;
    }
    size_t size = 0;
    for (size_t i = 0; i < length; i++)
        size += (size_t)snprintf(out + size, 5, "\\x%02X", (unsigned)(unsigned char)bytes[i]);
    return size;
}

struct gs_quoted gs_quote_bytes(const char *bytes, size_t size)
{
    struct gs_quoted quoted;
    const size_t head = 120, tail = 60; /* shown bytes where the whole does not fit */
    size_t used = 0;
    size_t at = 0;
    while (at < size) {
        size_t length;
        char shown[17];
        uint32_t code_point = gs_utf8_decode(bytes + at, size - at, &length);
        size_t width = quote_character(bytes + at, length, code_point, shown);
        if (used + width > head && size - at > tail)
            break;
        if (used + width >= sizeof quoted.text)
            break;
        memcpy(quoted.text + used, shown, width);
        used += width;
        at += length;
    }
    if (at < size && used <= head) {
        memcpy(quoted.text + used, "...", 3);
        used += 3;
        at = size - tail / 4; /* at most 4 shown bytes for each of these */
        while (at < size && ((unsigned char)bytes[at] & 0xC0) == 0x80)
            at++;
        while (at < size) {
            size_t length;
            char shown[17];
            uint32_t code_point = gs_utf8_decode(bytes + at, size - at, &length);
            size_t width = quote_character(bytes + at, length, code_point, shown);
            if (used + width >= sizeof quoted.text)
                break;
            memcpy(quoted.text + used, shown, width);
            used += width;
            at += length;
        }
    }
    quoted.text[used] = '\0';
    return quoted;
}

struct gs_quoted gs_quote(const char *text)
{
    return gs_quote_bytes(text, strlen(text));
}
