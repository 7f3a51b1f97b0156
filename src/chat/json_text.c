#include "chat/json_text.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gs_text gs_json_text(const json_t *value)
{
    if (!json_is_string(value))
        return (struct gs_text){0};
    return (struct gs_text){json_string_value(value), json_string_length(value)};
}

/* The character that `bytes` begin with, if it is an end of line beyond ASCII; else 0. */
static unsigned end_of_line(const char *bytes, size_t size)
{
    if (size >= 2 && memcmp(bytes, "\xC2\x85", 2) == 0)
        return 0x85;
    if (size >= 3 && memcmp(bytes, "\xE2\x80", 2) == 0 && ((unsigned char)bytes[2] | 1) == 0xA9)
        return 0x2000 + ((unsigned char)bytes[2] & 0x3F);
    return 0;
}

void gs_write_json_string(struct gs_writer *writer, struct gs_text text)
{
    static const char escapes[256] = {
        ['"'] = '"', ['\\'] = '\\', ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    size_t plain = 0, size = 1;
    gs_write(writer, "\"");
    for (size_t i = 0; i < text.size; i += size) {
        unsigned char c = (unsigned char)text.bytes[i];
        unsigned end = writer->one_line && c >= 0x80 ? end_of_line(text.bytes + i, text.size - i) : 0;
        size = end > 0xFF ? 3 : end > 0 ? 2 : 1;
        if (c >= 0x20 && !escapes[c] && end == 0)
            continue;
        char escape[8];
        if (escapes[c])
            snprintf(escape, sizeof escape, "\\%c", escapes[c]);
        else
            snprintf(escape, sizeof escape, "\\u%04x", end > 0 ? end : c);
        gs_write_text(writer, (struct gs_text){text.bytes + plain, i - plain});
        gs_write(writer, escape);
        plain = i + size;
    }
    gs_write_text(writer, (struct gs_text){text.bytes + plain, text.size - plain});
    gs_write(writer, "\"");
}

/*
 * The fewest digits that read back as `value`, and the power of ten of the first of them. What has at most 15
 * digits is what the 15 digits of its double are, without the zeros behind; smaller than DBL_MIN doubles hold
 * fewer digits.
 */
static size_t shortest_digits(double value, char digits[24], int *exponent)
{
    char text[40];
    for (int precision = value < DBL_MIN ? 0 : 14; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, value);
        if (strtod(text, NULL) == value)
            break;
    }
    size_t n = 0;
    const char *at = text;
    for (; *at && *at != 'e'; at++)
        if (*at >= '0' && *at <= '9') /* the decimal point is the locale's */
            digits[n++] = *at;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    *exponent = *at == 'e' ? atoi(at + 1) : 0;
    return n;
}

static void write_real(struct gs_writer *writer, double value)
{
    char digits[24];
    int exponent;
    if (value < 0 || (value == 0 && 1 / value < 0)) {
        gs_write(writer, "-");
        value = -value;
    }
    if (value == 0) {
        gs_write(writer, "0.0");
        return;
    }
    size_t n = shortest_digits(value, digits, &exponent);
    int point = exponent + 1; /* digits before the decimal point */
    if (point > 16 || point <= -5) {
        char tail[16];
        snprintf(tail, sizeof tail, "e%d", exponent);
        gs_write_text(writer, (struct gs_text){digits, 1});
        gs_write(writer, n > 1 ? "." : "");
        gs_write_text(writer, (struct gs_text){digits + 1, n - 1});
        gs_write(writer, tail);
        return;
    }
    size_t whole = point > 0 ? (size_t)point : 0, given = whole < n ? whole : n;
    gs_write_text(writer, (struct gs_text){digits, given});
    for (size_t i = given; i < whole; i++)
        gs_write(writer, "0");
    gs_write(writer, whole == 0 ? "0." : ".");
    for (int i = point; i < 0; i++)
        gs_write(writer, "0");
    gs_write_text(writer, (struct gs_text){digits + given, n - given});
    gs_write(writer, given == n ? "0" : "");
}

static void write_value(struct gs_writer *writer, const json_t *value, unsigned depth);

static void write_object(struct gs_writer *writer, const json_t *object, unsigned depth)
{
    const char *key, *comma = "";
    json_t *member;
    gs_write(writer, "{");
    json_object_foreach((json_t *)(uintptr_t)object, key, member)
    {
        gs_write(writer, comma);
        gs_write_json_string(writer, gs_text_of(key));
        gs_write(writer, ":");
        write_value(writer, member, depth + 1);
        comma = ",";
    }
    gs_write(writer, "}");
}

static void write_value(struct gs_writer *writer, const json_t *value, unsigned depth)
{
    char number[32];
    if (!value || depth > GS_JSON_TEXT_MAX_DEPTH) {
        gs_write(writer, "null");
        return;
    }
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        write_object(writer, value, depth);
        break;
    case JSON_ARRAY:
        gs_write(writer, "[");
        for (size_t i = 0; i < json_array_size(value); i++) {
            gs_write(writer, i > 0 ? "," : "");
            write_value(writer, json_array_get(value, i), depth + 1);
        }
        gs_write(writer, "]");
        break;
    case JSON_STRING:
        gs_write_json_string(writer, gs_json_text(value));
        break;
    case JSON_INTEGER:
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
        gs_write(writer, number);
        break;
    case JSON_REAL:
        write_real(writer, json_real_value(value));
        break;
    case JSON_TRUE:
        gs_write(writer, "true");
        break;
    case JSON_FALSE:
        gs_write(writer, "false");
        break;
    case JSON_NULL:
        gs_write(writer, "null");
        break;
    }
}

void gs_write_json(struct gs_writer *writer, const json_t *value)
{
    write_value(writer, value, 0);
}
