#include "chat/json_load.h"

#include "base/buffer.h"
#include "base/status.h"

#define MIN_DIGITS 19 /* fewer always fit */

static const size_t flags = JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY;

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* One past the string whose quotation mark is at `at`. */
static size_t skip_string(const char *text, size_t size, size_t at)
{
    for (at++; at < size && text[at] != '"'; at++)
        at += text[at] == '\\';
    return at < size ? at + 1 : size;
}

/* The text with ".0" after every integer of MIN_DIGITS digits or more. */
static gs_status widen(const char *text, size_t size, struct gs_buffer *out, struct gs_error *error)
{
    gs_status status = GS_OK;
    size_t copied = 0;
    for (size_t at = 0; at < size && status == GS_OK;) {
        size_t digits = at;
        if (text[at] == '"') {
            at = skip_string(text, size, at);
            continue;
        }
        if (!is_digit(text[at]) && text[at] != '.') {
            at++;
            continue;
        }
        while (at < size && is_digit(text[at]))
            at++;
        bool integer = at == size || (text[at] != '.' && text[at] != 'e' && text[at] != 'E');
        bool long_enough = at - digits >= MIN_DIGITS;
        while (at < size && (is_digit(text[at]) || text[at] == '.' || text[at] == 'e' || text[at] == 'E' ||
                             text[at] == '+' || text[at] == '-'))
            at++;
        if (!integer || !long_enough)
            continue;
        status = gs_buffer_append(out, text + copied, at - copied, error);
        if (status == GS_OK)
            status = gs_buffer_append_text(out, ".0", error);
        copied = at;
    }
    return status == GS_OK ? gs_buffer_append(out, text + copied, size - copied, error) : status;
}

gs_status gs_json_load(const char *name, const char *text, size_t size, json_t **out, struct gs_error *error)
{
    json_error_t fault;
    *out = json_loadb(size > 0 ? text : "", size, flags, &fault);
    if (!*out && json_error_code(&fault) == json_error_numeric_overflow) {
        struct gs_buffer wide = {0};
        gs_status status = widen(text, size, &wide, error);
        if (status == GS_OK)
            *out = json_loadb(wide.data, wide.size, flags, &fault);
        gs_buffer_free(&wide);
        if (status != GS_OK)
            return status;
    }
    if (*out)
        return GS_OK;
    return gs_fail(error, GS_MALFORMED, "%s: line %d, column %d: %s", gs_quote(name).text, fault.line,
                   fault.column, gs_quote(fault.text).text);
}
