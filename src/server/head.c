#include "server/head.h"

#include "base/status.h"

#include <string.h>
#include <strings.h>

#define LENGTH_DIGITS 18 /* of a Content-Length that fits in 64 bits, whatever they are */

/* A line without its end; of the request line, what is between its blanks. */
struct part {
    const char *bytes;
    size_t size;
    bool bare; /* it ends in a line feed alone */
};

/* Header lines that say where a request ends, and for whom it is. */
struct lines {
    size_t n_host, n_length, n_coding, n_cookie;
    uint64_t length;
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
    size_t length = (size_t)(end - start);
    bool bare = length == 0 || end[-1] != '\r';
    *line = (struct part){start, bare ? length : length - 1, bare};
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

/* Others may see one line where this server sees two, or the other way round. */
static int fail_bare(struct gs_api_error *error)
{
    return gs_api_fail(error, 400, "malformed_request",
                       "a line of the head ends in a line feed alone: CR LF is expected");
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
    struct part target = {.bytes = blank + 1, .size = (size_t)(last - blank) - 1};
    if (target.size > GS_HEAD_MAX_TARGET)
        return fail_target(error);
    for (size_t i = 0; i < target.size; i++)
        if ((unsigned char)target.bytes[i] <= ' ' || target.bytes[i] == 0x7f)
            return gs_api_fail(error, 400, "malformed_request",
                               "the path has a blank or a control character: it has to be %%-escaped");
    if (target.size == 0)
        return fail_line(error, line);
    size_t n_argument = 0;
    for (size_t i = 0; i < target.size; i++)
        n_argument += target.bytes[i] == '&';
    if (n_argument >= GS_HEAD_MAX_ARGUMENTS)
        return gs_api_fail(error, 414, "uri_too_long", "the path has too many arguments: at most %d are read",
                           GS_HEAD_MAX_ARGUMENTS);
    struct part version = {.bytes = last + 1, .size = line.size - (size_t)(last + 1 - line.bytes)};
    if (check_version(version, minor, error) != 0)
        return error->status;
    return line.bare ? fail_bare(error) : 0;
}

/* ---------------------------------------------------------------- the other lines */

static int read_length(struct part value, uint64_t *length, struct gs_api_error *error)
{
    size_t digits = 0;
    *length = 0;
    while (digits < value.size && value.bytes[digits] >= '0' && value.bytes[digits] <= '9') {
        *length = *length * 10 + (unsigned)(value.bytes[digits] - '0'); /* too many are refused below */
        digits++;
    }
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

static int check_coding(struct part value, struct gs_api_error *error)
{
    return is_named(value, "chunked")
               ? 0
               : gs_api_fail(error, 501, "transfer_encoding",
                             "Transfer-Encoding \"%s\" is not read here: chunked is, or a Content-Length",
                             quoted(value).text);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static int check_line(struct part line, int number, struct lines *seen, struct gs_api_error *error)
{
    const char *colon = memchr(line.bytes, ':', line.size);
    struct part name = {.bytes = line.bytes, .size = colon ? (size_t)(colon - line.bytes) : 0};
    if (line.size > 0 && is_blank(line.bytes[0]))
        return gs_api_fail(error, 400, "malformed_request",
                           "header line %d begins with a blank: a value has to stand on one line", number);
    if (!gs_head_is_token(name.bytes, name.size))
        return gs_api_fail(error, 400, "malformed_request",
                           "header line %d: NAME: VALUE is expected, not \"%s\"", number, quoted(line).text);
    struct part value = {.bytes = colon + 1, .size = line.size - name.size - 1};
    while (value.size > 0 && is_blank(value.bytes[0])) {
        value.bytes++;
        value.size--;
    }
    if (memchr(value.bytes, '\0', value.size) || memchr(value.bytes, '\r', value.size))
        return gs_api_fail(error, 400, "malformed_request",
                           "header line %d: its value has a control character", number);
    if (line.bare)
        return fail_bare(error);
    seen->n_host += is_named(name, "Host");
    if (is_named(name, "Content-Length")) {
        seen->n_length++;
        return read_length(value, &seen->length, error);
    }
    seen->n_cookie += is_named(name, "Cookie");
    if (!is_named(name, "Transfer-Encoding"))
        return 0;
    seen->n_coding++;
    return check_coding(value, error);
}

static int check_seen(const struct lines *seen, int minor, struct gs_api_error *error)
{
    if (seen->n_host == 0 && minor > 0)
        return gs_api_fail(error, 400, "host_missing", "the Host header is missing");
    if (seen->n_host > 1)
        return gs_api_fail(error, 400, "malformed_request", "one Host header is expected, not %zu",
                           seen->n_host);
    if (seen->n_length + seen->n_coding > 1)
        return gs_api_fail(error, 400, "malformed_request",
                           "one Content-Length or one Transfer-Encoding is expected, not several");
    if (seen->n_coding > 0 && minor == 0)
        return gs_api_fail(error, 400, "malformed_request", "HTTP/1.0 has no Transfer-Encoding");
    return 0;
}

static int fail_size(struct gs_api_error *error)
{
    return gs_api_fail(error, 431, NULL, "the head is too long: at most %d lines and %u bytes are read",
                       GS_HEAD_MAX_LINES, GS_HEAD_MAX_BYTES);
}

static enum gs_head_state check_lines(const char *bytes, size_t size, size_t at, int minor,
                                      struct gs_head *head, struct gs_api_error *error)
{
    struct part line;
    struct lines seen = {0};
    size_t begin = at;
    for (int number = 1; next_line(bytes, size, &at, &line); number++) {
        bool last = line.size == 0 && !line.bare;
        if (!last && (number > GS_HEAD_MAX_LINES || at - begin > GS_HEAD_MAX_BYTES))
            fail_size(error);
        else if (line.size == 0 && line.bare)
            fail_bare(error);
        else if (last)
            check_seen(&seen, minor, error);
        else
            check_line(line, number, &seen, error);
        if (error->status)
            return GS_HEAD_BAD;
        if (last) {
            *head = (struct gs_head){.size = at,
                                     .length = seen.length,
                                     .chunked = seen.n_coding > 0,
                                     .has_cookie = seen.n_cookie > 0};
            return GS_HEAD_WHOLE;
        }
    }
    if (size - begin > GS_HEAD_MAX_BYTES)
        fail_size(error);
    return error->status ? GS_HEAD_BAD : GS_HEAD_PART;
}

/* ---------------------------------------------------------------- all of it */

enum gs_head_state gs_head_check(const char *bytes, size_t size, struct gs_head *head,
                                 struct gs_api_error *error)
{
    size_t at = skip_empty(bytes, size);
    struct part line;
    int minor = 0;
    *error = (struct gs_api_error){0};
    *head = (struct gs_head){0};
    if (at > GS_HEAD_MAX_LINES) {
        gs_api_fail(error, 400, "malformed_request", "a request is expected, not empty lines");
        return GS_HEAD_BAD;
    }
    struct part begun = {.bytes = bytes + at, .size = size - at};
    if (!next_line(bytes, size, &at, &line)) {
        check_begun_line(begun, error);
        return error->status ? GS_HEAD_BAD : GS_HEAD_PART;
    }
    if (check_first_line(line, &minor, error) != 0)
        return GS_HEAD_BAD;
    return check_lines(bytes, size, at, minor, head, error);
}

void gs_head_drop_cookies(const char *bytes, size_t size, char *out, size_t *written)
{
    size_t at = 0, begin = 0;
    struct part line;
    *written = 0;
    for (; next_line(bytes, size, &at, &line); begin = at) {
        const char *colon = memchr(line.bytes, ':', line.size);
        if (colon &&
            is_named((struct part){.bytes = line.bytes, .size = (size_t)(colon - line.bytes)}, "Cookie"))
            continue;
        memcpy(out + *written, bytes + begin, at - begin);
        *written += at - begin;
    }
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
