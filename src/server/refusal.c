#include "server/refusal.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

static const char *reason_of(int status)
{
    switch (status) {
    case 401:
        return "Unauthorized";
    case 403:
        return "Forbidden";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 408:
        return "Request Timeout";
    case 413:
        return "Content Too Large";
    case 414:
        return "URI Too Long";
    case 415:
        return "Unsupported Media Type";
    case 431:
        return "Request Header Fields Too Large";
    case 501:
        return "Not Implemented";
    case 503:
        return "Service Unavailable";
    case 505:
        return "HTTP Version Not Supported";
    default:
        return "Bad Request";
    }
}

gs_status gs_refusal_print(struct gs_buffer *out, enum gs_error_form form, const char *lines,
                           const struct gs_api_error *error)
{
    json_t *json = form == GS_ERROR_ANTHROPIC ? gs_api_error_anthropic(error) : gs_api_error_json(error);
    char *body = json ? json_dumps(json, JSON_COMPACT) : NULL;
    gs_status status = GS_OUT_OF_MEMORY;
    if (body)
        status = gs_buffer_print(out, NULL,
                                 "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n"
                                 "X-Content-Type-Options: nosniff\r\nConnection: close\r\n"
                                 "%sContent-Length: %zu\r\n\r\n%s",
                                 error->status, reason_of(error->status), lines, strlen(body), body);
    json_decref(json);
    free(body);
    return status;
}

int gs_refusal_of_length(uint64_t most, struct gs_api_error *error)
{
    return gs_api_fail(error, 413, NULL, "the body is too long: at most %llu bytes are read",
                       (unsigned long long)most);
}
