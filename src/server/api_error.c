#include "server/api_error.h"

#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *type_of(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 429:
        return "rate_limit_error";
    case 505: /* the client's version */
        return "invalid_request_error";
    default:
        return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

/* Characters cut in the middle at the end of a text that was too long are dropped. */
static void fill(char *text, size_t size, const char *format, va_list arguments)
{
    vsnprintf(text, size, format, arguments);
    size_t length = strlen(text), start = length;
    while (length + 1 == size && start > 0 && ((unsigned char)text[start - 1] & 0xC0) == 0x80)
        start--;
    if (length + 1 == size && start > 0 && (unsigned char)text[start - 1] >= 0xC0)
        text[start - 1] = '\0';
}

int gs_api_bad(struct gs_api_error *error, const char *param, const char *format, ...)
{
    va_list arguments;
    *error = (struct gs_api_error){.status = 400, .type = type_of(400)};
    gs_format(error->param, sizeof error->param, "%s", param);
    va_start(arguments, format);
    fill(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return error->status;
}

int gs_api_within(struct gs_api_error *error, const char *path)
{
    struct gs_api_error inner = *error;
    size_t length = strlen(inner.param);
    if (length == 0 || strncmp(inner.message, inner.param, length) != 0)
        return inner.status;
    char param[sizeof inner.param];
    gs_format(param, sizeof param, "%s.%s", path, inner.param);
    return gs_api_bad(error, param, "%s.%s", path, inner.message);
}

int gs_api_fail(struct gs_api_error *error, int status, const char *code, const char *format, ...)
{
    va_list arguments;
    *error = (struct gs_api_error){.status = status, .type = type_of(status), .code = code};
    va_start(arguments, format);
    fill(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return error->status;
}

/* The JSON path in front of a message: letters, digits, "_", ".", "[", "]", then ": ". */
static size_t path_length(const char *message)
{
    size_t length = strspn(message, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.[]");
    return length > 0 && strncmp(message + length, ": ", 2) == 0 ? length : 0;
}

int gs_api_error_from(struct gs_api_error *error, gs_status status, const struct gs_error *cause)
{
    size_t path = 0;
    switch (status) {
    case GS_INVALID_ARGUMENT:
    case GS_MALFORMED:
    case GS_UNSUPPORTED:
        path = path_length(cause->message);
        gs_api_fail(error, 400, NULL, "%s", cause->message);
        break;
    case GS_CONTEXT_FULL:
        return gs_api_fail(error, 400, "context_length_exceeded", "%s", cause->message);
    case GS_OUT_OF_MEMORY:
        gs_api_fail(error, 503, "out_of_memory", "%s", cause->message);
        error->retry_after = 5;
        return error->status;
    case GS_NON_FINITE:
        return gs_api_fail(error, 500, "non_finite_logits", "%s", cause->message);
    default:
        return gs_api_fail(error, 500, NULL, "%s", cause->message);
    }
    if (path > 0 && path < sizeof error->param) {
        memcpy(error->param, cause->message, path);
        error->param[path] = '\0';
    }
    return error->status;
}

static json_t *text_or_null(const char *text)
{
    return text && text[0] ? json_string(text) : json_null();
}

json_t *gs_api_error_json(const struct gs_api_error *error)
{
    json_t *message = json_string(error->message);
    if (!message) /* a cut character, say */
        message = json_string("the request failed");
    return json_pack("{s:{s:o, s:s, s:o, s:o}}", "error", "message", message, "type", error->type, "param",
                     text_or_null(error->param), "code", text_or_null(error->code));
}

json_t *gs_api_error_anthropic(const struct gs_api_error *error)
{
    const char *type = error->type;
    if (error->status == 404)
        type = "not_found_error";
    else if (error->status == 413)
        type = "request_too_large";
    else if (error->status == 503)
        type = "overloaded_error";
    else if (error->status >= 500)
        type = "api_error";
    return json_pack("{s:s, s:{s:s, s:s}}", "type", "error", "error", "type", type, "message",
                     error->message);
}
