/* In place of http_daemon.c where libmicrohttpd was left out. */
#include "base/status.h"
#include "server/http_daemon.h"

gs_status gs_http_open(const struct gs_http_options *options, struct gs_http **out, struct gs_error *error)
{
    (void)options;
    *out = NULL;
    return gs_fail(
        error, GS_UNSUPPORTED,
        "this gossamer was built without a server: it needs libmicrohttpd (scripts/setup.sh installs "
        "it), then build again");
}

int gs_http_port(const struct gs_http *http)
{
    (void)http;
    return 0;
}

void gs_http_quiesce(struct gs_http *http)
{
    (void)http;
}

size_t gs_http_pending(struct gs_http *http)
{
    (void)http;
    return 0;
}

void gs_http_flush(struct gs_http *http)
{
    (void)http;
}

void gs_http_close(struct gs_http *http)
{
    (void)http;
}
