#include "server/chunked.h"

#include "base/status.h"

#include <string.h>

static int value_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void fail(struct gs_api_error *error, const char *why)
{
    gs_api_fail(error, 400, "malformed_request", "the chunked body is damaged: %s", why);
}

static bool is_control(char c)
{
    return ((unsigned char)c < ' ' && c != '\t') || c == 0x7f;
}

static void read_size(struct gs_chunked *body, char c, struct gs_api_error *error)
{
    int value = value_of(c);
    if (value >= 0 && body->n_digit < GS_CHUNKED_MAX_DIGITS) {
        body->left = body->left * 16 + (unsigned)value;
        body->n_digit++;
    } else if (value >= 0) {
        fail(error, "the size of a chunk has more than 8 digits");
    } else if (body->n_digit > 0 && c == '\r') {
        body->state = GS_CHUNKED_SIZE_END;
    } else if (body->n_digit > 0 && c == ';') {
        body->state = GS_CHUNKED_EXTENSION;
        body->passed = 0;
    } else {
        fail(error, "the size of a chunk is expected, in hexadecimal digits and nothing else");
    }
}

/* What ends with the line of a size. The last chunk is written when the lines behind it are through. */
static size_t end_size(struct gs_chunked *body, char *out)
{
    struct gs_quoted line = {.text = ""};
    body->n_digit = body->passed = 0;
    body->announced += body->left;
    body->state = body->left > 0 ? GS_CHUNKED_DATA : GS_CHUNKED_TRAILER;
    if (body->left > 0)
        gs_format(line.text, sizeof line.text, "%llx\r\n", (unsigned long long)body->left);
    size_t length = strlen(line.text);
    memcpy(out, line.text, length);
    return length;
}

/* A byte that is passed over; where its line may end. */
static void pass(struct gs_chunked *body, char c, size_t most, enum gs_chunked_state end,
                 struct gs_api_error *error)
{
    if (c == '\r')
        body->state = end;
    else if (is_control(c))
        fail(error, "a control character stands outside of its chunks");
    else if (++body->passed > most)
        fail(error, "the lines outside of its chunks are too long");
}

static void read_trailer(struct gs_chunked *body, char c, struct gs_api_error *error)
{
    body->state = c == '\r' ? GS_CHUNKED_TRAILER_END : GS_CHUNKED_LINE;
    if (c == ' ' || c == '\t')
        fail(error, "a line behind its last chunk begins with a blank");
    else if (c != '\r')
        pass(body, c, GS_CHUNKED_MAX_TRAILER, GS_CHUNKED_LINE_END, error);
}

/* Of anything but data. Returns what it wrote. */
static size_t read_byte(struct gs_chunked *body, char c, char *out, struct gs_api_error *error)
{
    switch (body->state) {
    case GS_CHUNKED_SIZE:
        read_size(body, c, error);
        return 0;
    case GS_CHUNKED_EXTENSION:
        pass(body, c, GS_CHUNKED_MAX_EXTENSION, GS_CHUNKED_SIZE_END, error);
        return 0;
    case GS_CHUNKED_DATA_CR:
        body->state = GS_CHUNKED_DATA_LF;
        if (c != '\r')
            fail(error, "a chunk is longer than its size");
        return 0;
    case GS_CHUNKED_TRAILER:
        read_trailer(body, c, error);
        return 0;
    case GS_CHUNKED_LINE:
        pass(body, c, GS_CHUNKED_MAX_TRAILER, GS_CHUNKED_LINE_END, error);
        return 0;
    default:
        break;
    }
    if (c != '\n') { /* all others want it */
        fail(error, "a line ends in CR alone");
        return 0;
    }
    switch (body->state) {
    case GS_CHUNKED_SIZE_END:
        return end_size(body, out);
    case GS_CHUNKED_DATA_LF:
        body->state = GS_CHUNKED_SIZE;
        memcpy(out, "\r\n", 2);
        return 2;
    case GS_CHUNKED_LINE_END:
        body->state = GS_CHUNKED_TRAILER;
        return 0;
    default:
        body->state = GS_CHUNKED_WHOLE;
        memcpy(out, "0\r\n\r\n", 5);
        return 5;
    }
}

size_t gs_chunked_read(struct gs_chunked *body, const char *bytes, size_t size, char *out, size_t *written,
                       struct gs_api_error *error)
{
    size_t at = 0;
    *written = 0;
    *error = (struct gs_api_error){0};
    while (at < size && body->state != GS_CHUNKED_WHOLE && error->status == 0) {
        if (body->state != GS_CHUNKED_DATA) {
            *written += read_byte(body, bytes[at++], out + *written, error);
            continue;
        }
        size_t count = size - at < body->left ? size - at : (size_t)body->left;
        memcpy(out + *written, bytes + at, count);
        *written += count;
        at += count;
        body->left -= count;
        if (body->left == 0)
            body->state = GS_CHUNKED_DATA_CR;
    }
    return at;
}
