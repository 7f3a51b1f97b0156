/*
 * One request to a hub by libcurl, and the rules that all requests keep:
 *
 *   - https only; http for this machine's own addresses, which cannot be overheard
 *   - redirects are followed by the caller, one at a time; none leads from https to http
 *   - the token goes to the endpoint's origin (scheme, host and port) and to nowhere else
 *   - what is for this machine's own addresses passes no proxy
 *   - a connection that stalls is given up
 *
 * URLs may carry signatures, so messages name hosts and files only.
 */
#ifndef GS_HUB_HTTP_H
#define GS_HUB_HTTP_H

#include "base/buffer.h"

#include <curl/curl.h>

#define GS_HTTP_MAX_REDIRECTS 10

struct gs_http_options {
    const char *endpoint; /* "https://huggingface.co", without a slash at its end */
    const char *token;    /* NULL: none */
    double stall_seconds;
    double retry_seconds;  /* the first wait; it doubles */
    unsigned max_failures; /* in a row */
    bool (*cancelled)(void *user);
    void (*waiting)(void *user, const char *why, double seconds); /* may be NULL */
    void *user;
};

/* What came back, as far as the callers look. Zero-initialise; gs_reply_free releases. */
struct gs_reply {
    CURLcode code;
    long status;        /* of HTTP; 0: no answer */
    double retry_after; /* seconds; 0: not said */
    char *location;     /* absolute URL of a redirect; NULL */
    bool has_range;     /* Content-Range: bytes range_begin-.../range_total */
    uint64_t range_begin, range_total;
    bool has_length;
    uint64_t length;              /* Content-Length */
    uint64_t linked_size;         /* X-Linked-Size; 0: not said */
    char linked_digest[72];       /* X-Linked-Etag without quotes; "" */
    char message[160];            /* X-Error-Message; "" */
    char reason[CURL_ERROR_SIZE]; /* of `code` */
};
void gs_reply_free(struct gs_reply *reply);

/* GS_INVALID_ARGUMENT for an endpoint that is no URL or not secure, or a token that cannot be one. */
gs_status gs_http_check(const struct gs_http_options *options, struct gs_error *error);

/* Have both URLs scheme, host and port in common? */
bool gs_http_same_origin(const char *a, const char *b);

/* May a redirect lead from the endpoint to this URL? */
bool gs_http_is_allowed(const struct gs_http_options *options, const char *url);

/* Takes `size` bytes of a body; false ends the transfer. */
typedef bool gs_http_sink(void *user, const char *bytes, size_t size);

struct gs_http_request {
    const char *url;
    bool head;   /* no body is wanted */
    bool ranged; /* only bytes begin ... end-1 */
    uint64_t begin, end;
    gs_http_sink *sink; /* may be NULL for HEAD */
    void *user;
};

/*
 * A handle ready to run; *headers (released by the caller after the handle) go with it. The reply is filled
 * while it runs and must stay in place. NULL if memory is out.
 */
CURL *gs_http_prepare(const struct gs_http_options *options, const struct gs_http_request *request,
                      struct gs_reply *reply, struct curl_slist **headers);

/* Fills in what is known only at the end. */
void gs_http_conclude(CURL *handle, CURLcode code, struct gs_reply *reply);

bool gs_http_is_cancelled(const struct gs_http_options *options);

/* Did the transfer end well, with a status of success? */
bool gs_http_is_good(const struct gs_reply *reply);

/* Is it worth another try: no answer, a broken one, 408, 429, or 5xx? */
bool gs_http_is_passing(const struct gs_reply *reply);

/* "HTTP 503", "Operation too slow ..." */
struct gs_http_reason {
    char text[240];
};
struct gs_http_reason gs_http_reason(const struct gs_reply *reply);

/* GS_IO (or GS_CANCELLED) for a reply that no further try can mend; `what` was asked for. */
gs_status gs_http_fail(const struct gs_http_options *options, const struct gs_reply *reply, const char *what,
                       struct gs_error *error);

/* Seconds until the next try after the n-th failure in a row, n >= 1. */
double gs_http_delay(const struct gs_http_options *options, const struct gs_reply *reply, unsigned n);

/* Waits; GS_CANCELLED if it was cut short. */
gs_status gs_http_wait(const struct gs_http_options *options, double seconds, struct gs_error *error);

/*
 * GET with redirects and retries. `what` begins messages. Replaces *body, of at most max_size bytes.
 * GS_INVALID_ARGUMENT for 401, 403 and 404: whoever asked has the wrong name, or no access.
 */
gs_status gs_http_get(const struct gs_http_options *options, const char *url, const char *what,
                      size_t max_size, struct gs_buffer *body, struct gs_error *error);

/*
 * HEAD with retries, and with redirects as long as they stay at the endpoint. *location is where the
 * contents are: a redirect to elsewhere, which is not asked, or the last URL. The reply is the one that
 * named it.
 */
gs_status gs_http_locate(const struct gs_http_options *options, const char *url, const char *what,
                         char **location, struct gs_reply *reply, struct gs_error *error);

#endif
