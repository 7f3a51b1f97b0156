#include "server/head.h"

#include "base/status.h"

#include <string.h>
#include <strings.h>

#define LENGTH_DIGITS 18 /* of a Content-Length that fits in 64 bits, whatever they are */

/* A line without its end; of the request line, what is between its blanks. */
struct part {
    const char *bytes;
    size_t size;
};

static bool is_token_byte(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c != 0 && strchr("!#$%&'*+-.^_`|~", c));
}

bool gs_head_is_token(const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (!is_token_byte((unsigned char)bytes[i]))
            return false;
    return size > 0;
}

static struct gs_quoted quoted(struct part part)
{
    char text[64];
    size_t size = part.size < sizeof text ? part.size : sizeof text - 1;
    memcpy(text, part.bytes, size);
    text[size] = '\0';
    return gs_quote(text);
}

/* false: its end has not come yet. */
static bool next_line(const char *bytes, size_t size, size_t *at, struct part *line)
{
    const char *start = bytes + *at, *end = memchr(start, '\n', size - *at);
    if (!end)
        return false;
    *at = (size_t)(end - bytes) + 1;
    *line = (struct part){start, (size_t)(end - start)};
    if (line->size > 0 && end[-1] == '\r')
        line->size--;
    return true;
}

/* libmicrohttpd skips empty lines before a request, as RFC 9112 wants it. */
static size_t skip_empty(const char *bytes, size_t size)
{
    size_t at = 0;
    while (at < size && (bytes[at] == '\r' || bytes[at] == '\n'))
        at++;
    return at;
}

/* ---------------------------------------------------------------- the first line */

static int fail_line(struct gs_api_error *error, struct part line)
{
    if (line.size > 0 && line.bytes[0] == 0x16)
        return gs_api_fail(error, 400, "malformed_request",
                           "this port speaks HTTP without TLS: http:// is expected");
    return gs_api_fail(error, 400, "malformed_request",
                       "the first line is no request: METHOD PATH HTTP/1.1 is expected, not \"%s\"",
                       quoted(line).text);
}

static int fail_target(struct gs_api_error *error)
{
    return gs_api_fail(error, 414, "uri_too_long",
                       "the path and its query are too long: at most %u bytes are read", GS_HEAD_MAX_TARGET);
}

/* What has come of a first line that is not whole. */
static int check_begun_line(struct part line, struct gs_api_error *error)
{
    const char *blank = memchr(line.bytes, ' ', line.size);
    size_t method = blank ? (size_t)(blank - line.bytes) : line.size;
    if ((method > 0 || blank) && !gs_head_is_token(line.bytes, method))
        return fail_line(error, line);
    if (method > GS_HEAD_MAX_METHOD)
        return fail_line(error, line);
    return line.size - method > GS_HEAD_MAX_TARGET + sizeof " HTTP/1.1\r" ? fail_target(error) : 0;
}

static int check_version(struct part version, int *minor, struct gs_api_error *error)
{
    static const char form[] = "HTTP/0.0";
    bool good = version.size == sizeof form - 1;
    for (size_t i = 0; good && i < version.size; i++)
        good =
            form[i] == '0' ? version.bytes[i] >= '0' && version.bytes[i] <= '9' : version.bytes[i] == form[i];
    if (!good)
        return gs_api_fail(error, 400, "malformed_request",
                           "HTTP/1.1 is expected at the end of the first line, not \"%s\"",
                           quoted(version).text);
    if (version.bytes[5] != '1')
        return gs_api_fail(error, 505, "http_version", "%s is not spoken here: HTTP/1.1 is expected",
                           quoted(version).text);
    *minor = version.bytes[7] - '0';
    return 0;
}

static int check_first_line(struct part line, int *minor, struct gs_api_error *error)
{
    const char *blank = memchr(line.bytes, ' ', line.size);
    const char *last = blank;
    for (size_t i = 0; i < line.size; i++)
        last = line.bytes[i] == ' ' ? line.bytes + i : last;
    size_t method = blank ? (size_t)(blank - line.bytes) : 0;
    if (!blank || last == blank || method > GS_HEAD_MAX_METHOD || !gs_head_is_token(line.bytes, method))
        return fail_line(error, line);
    struct part target = {blank + 1, (size_t)(last - blank) - 1};
    if (target.size > GS_HEAD_MAX_TARGET)
        return fail_target(error);
    for (size_t i = 0; i < target.size; i++)
        if ((unsigned char)target.bytes[i] <= ' ' || target.bytes[i] == 0x7f)
            return gs_api_fail(error, 400, "malformed_request",
                               "the path has a blank or a control character: it has to be %%-escaped");
    if (target.size == 0)
        return fail_line(error, line);
    return check_version((struct part){last + 1, line.size - (size_t)(last + 1 - line.bytes)}, minor, error);
}

/* ---------------------------------------------------------------- the other lines */

static int check_length(struct part value, struct gs_api_error *error)
{
    size_t digits = 0;
    while (digits < value.size && value.bytes[digits] >= '0' && value.bytes[digits] <= '9')
        digits++;
    if (digits != value.size || digits == 0)
        return gs_api_fail(error, 400, "malformed_request",
                           "Content-Length has to be a whole number, not \"%s\"", quoted(value).text);
    return digits > LENGTH_DIGITS
               ? gs_api_fail(error, 413, NULL, "the body is too long: its Content-Length has %zu digits",
                             digits)
               : 0;
}

static bool is_named(struct part name, const char *other)
{
    return name.size == strlen(other) && strncasecmp(name.bytes, other, name.size) == 0;
}

static int check_line(struct part line, int number, size_t *n_host, struct gs_api_error *error)
{
    const char *colon = memchr(line.bytes, ':', line.size);
    struct part name = {line.bytes, colon ? (size_t)(colon - line.bytes) : 0};
    if (!gs_head_is_token(name.bytes, name.size))
        return gs_api_fail(error, 400, "malformed_request",
                           "header line %d: NAME: VALUE is expected, not \"%s\"", number, quoted(line).text);
    struct part value = {colon + 1, line.size - name.size - 1};
    while (value.size > 0 && (value.bytes[0] == ' ' || value.bytes[0] == '\t')) {
        value.bytes++;
        value.size--;
    }
    if (memchr(value.bytes, '\0', value.size) || memchr(value.bytes, '\r', value.size))
        return gs_api_fail(error, 400, "malformed_request",
                           "header line %d: its value has a control character", number);
    *n_host += is_named(name, "Host");
    return is_named(name, "Content-Length") ? check_length(value, error) : 0;
}

static int fail_size(struct gs_api_error *error)
{
    return gs_api_fail(error, 431, NULL, "the head is too long: at most %d lines and %u bytes are read",
                       GS_HEAD_MAX_LINES, GS_HEAD_MAX_BYTES);
}

static enum gs_head_state check_lines(const char *bytes, size_t size, size_t at, int minor,
                                      struct gs_api_error *error)
{
    struct part line;
    size_t begin = at, n_host = 0;
    for (int number = 1; next_line(bytes, size, &at, &line); number++) {
        if (line.size == 0) {
            if (n_host == 0 && minor > 0)
                gs_api_fail(error, 400, "host_missing", "the Host header is missing");
            else if (n_host > 1)
                gs_api_fail(error, 400, "malformed_request", "one Host header is expected, not %zu", n_host);
            return error->status ? GS_HEAD_BAD : GS_HEAD_WHOLE;
        }
        if (number > GS_HEAD_MAX_LINES || at - begin > GS_HEAD_MAX_BYTES)
            fail_size(error);
        else
            check_line(line, number, &n_host, error);
        if (error->status)
            return GS_HEAD_BAD;
    }
    if (size - begin > GS_HEAD_MAX_BYTES)
        fail_size(error);
    return error->status ? GS_HEAD_BAD : GS_HEAD_PART;
}

/* ---------------------------------------------------------------- all of it */

enum gs_head_state gs_head_check(const char *bytes, size_t size, struct gs_api_error *error)
{
    size_t at = skip_empty(bytes, size);
    struct part line;
    int minor = 0;
    *error = (struct gs_api_error){0};
    if (at > GS_HEAD_MAX_LINES) {
        gs_api_fail(error, 400, "malformed_request", "a request is expected, not empty lines");
        return GS_HEAD_BAD;
    }
    struct part begun = {bytes + at, size - at};
    if (!next_line(bytes, size, &at, &line)) {
        check_begun_line(begun, error);
        return error->status ? GS_HEAD_BAD : GS_HEAD_PART;
    }
    if (check_first_line(line, &minor, error) != 0)
        return GS_HEAD_BAD;
    return check_lines(bytes, size, at, minor, error);
}

enum gs_error_form gs_head_errors(const char *bytes, size_t size)
{
    size_t at = skip_empty(bytes, size);
    const char *blank = memchr(bytes + at, ' ', size - at);
    const char *path = blank ? blank + 1 : bytes + size;
    size_t length = 0, left = size - (size_t)(path - bytes);
    while (length < left && !strchr(" ?\r\n", path[length]))
        length++;
    for (const struct gs_route *route = gs_routes; route->method; route++)
        if (strlen(route->path) == length && memcmp(route->path, path, length) == 0)
            return route->errors;
    return GS_ERROR_OPENAI;
}
