#include "hub/http.h"

#include "base/clock.h"
#include "base/status.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CONNECT_SECONDS  20L
#define STALL_BYTES      64L /* a second; less is a stall */
#define MAX_DELAY        60.0
#define MAX_SERVER_DELAY 300.0 /* of Retry-After */

/* ---------------------------------------------------------------- where to */

struct origin {
    char *scheme, *host, *port;
};

static void free_origin(struct origin *origin)
{
    curl_free(origin->scheme);
    curl_free(origin->host);
    curl_free(origin->port);
}

static bool read_origin(const char *url, struct origin *origin)
{
    *origin = (struct origin){0};
    CURLU *parts = curl_url();
    bool good = parts && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
                curl_url_get(parts, CURLUPART_SCHEME, &origin->scheme, 0) == CURLUE_OK &&
                curl_url_get(parts, CURLUPART_HOST, &origin->host, 0) == CURLUE_OK &&
                curl_url_get(parts, CURLUPART_PORT, &origin->port, CURLU_DEFAULT_PORT) == CURLUE_OK;
    curl_url_cleanup(parts);
    return good;
}

static bool is_own_address(const char *host)
{
    return strcasecmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0 ||
           (strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") == strlen(host));
}

bool gs_http_same_origin(const char *a, const char *b)
{
    struct origin x, y;
    bool x_good = read_origin(a, &x), y_good = read_origin(b, &y);
    bool same = x_good && y_good && strcasecmp(x.scheme, y.scheme) == 0 && strcasecmp(x.host, y.host) == 0 &&
                strcmp(x.port, y.port) == 0;
    free_origin(&x);
    free_origin(&y);
    return same;
}

/* https anywhere, or http to this machine. */
static bool is_secure(const char *url, bool *is_https)
{
    struct origin origin;
    bool good = read_origin(url, &origin);
    *is_https = good && strcasecmp(origin.scheme, "https") == 0;
    bool secure =
        *is_https || (good && strcasecmp(origin.scheme, "http") == 0 && is_own_address(origin.host));
    free_origin(&origin);
    return secure;
}

bool gs_http_is_allowed(const struct gs_http_options *options, const char *url)
{
    bool from_https, to_https;
    is_secure(options->endpoint, &from_https);
    return is_secure(url, &to_https) && (to_https || !from_https);
}

gs_status gs_http_check(const struct gs_http_options *options, struct gs_error *error)
{
    bool is_https;
    const char *url = options->endpoint;
    size_t size = strlen(url);
    if (!is_secure(url, &is_https) || strpbrk(url, "?#@") || url[size - 1] == '/')
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "\"%s\" is no endpoint: it should look like https://huggingface.co (http only for "
                       "this machine itself, as http://127.0.0.1:8080)",
                       gs_quote(url).text);
    for (const char *c = options->token; c && *c != '\0'; c++)
        if (*c <= ' ' || *c > '~')
            return gs_fail(error, GS_INVALID_ARGUMENT,
                           "the token (HF_TOKEN or its file) holds a character that no token has, at "
                           "position %d",
                           (int)(c - options->token));
    return GS_OK;
}

/* ---------------------------------------------------------------- the reply */

void gs_reply_free(struct gs_reply *reply)
{
    if (!reply)
        return;
    free(reply->location);
    *reply = (struct gs_reply){0};
}

static bool read_u64(const char *text, const char **end, uint64_t *value)
{
    char *stop;
    if (*text < '0' || *text > '9')
        return false;
    *value = strtoull(text, &stop, 10);
    *end = stop;
    return *value < UINT64_C(1) << 62;
}

/* "bytes 5-9/100" */
static void read_content_range(const char *text, struct gs_reply *reply)
{
    uint64_t begin, last, total;
    if (strncasecmp(text, "bytes ", 6) != 0 || !read_u64(text + 6, &text, &begin) || *text++ != '-' ||
        !read_u64(text, &text, &last) || *text++ != '/' || !read_u64(text, &text, &total))
        return;
    reply->has_range = true;
    reply->range_begin = begin;
    reply->range_total = total;
}

/* Copies what is between quotes, or the whole, without W/. */
static void read_tag(const char *text, char *out, size_t size)
{
    if (strncmp(text, "W/", 2) == 0)
        text += 2;
    if (*text == '"')
        text++;
    snprintf(out, size, "%.*s", (int)strcspn(text, "\""), text);
}

static size_t take_header(char *bytes, size_t one, size_t size, void *user)
{
    struct gs_reply *reply = user;
    char line[512];
    (void)one;
    size_t length = size < sizeof line - 1 ? size : sizeof line - 1;
    memcpy(line, bytes, length);
    line[length] = '\0';
    line[strcspn(line, "\r\n")] = '\0';
    if (strncmp(line, "HTTP/", 5) == 0) { /* a new answer: after a proxy's, or a 100 */
        reply->has_range = reply->has_length = false;
        return size;
    }
    char *value = strchr(line, ':');
    if (!value)
        return size;
    *value++ = '\0';
    value += strspn(value, " \t");
    const char *end;
    if (strcasecmp(line, "content-range") == 0)
        read_content_range(value, reply);
    else if (strcasecmp(line, "content-length") == 0)
        reply->has_length = read_u64(value, &end, &reply->length);
    else if (strcasecmp(line, "x-linked-size") == 0)
        read_u64(value, &end, &reply->linked_size);
    else if (strcasecmp(line, "x-linked-etag") == 0)
        read_tag(value, reply->linked_digest, sizeof reply->linked_digest);
    else if (strcasecmp(line, "x-error-message") == 0)
        gs_format(reply->message, sizeof reply->message, "%s", value);
    return size;
}

void gs_http_conclude(CURL *handle, CURLcode code, struct gs_reply *reply)
{
    char *location = NULL;
    curl_off_t retry_after = 0;
    reply->code = code;
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &reply->status);
    curl_easy_getinfo(handle, CURLINFO_RETRY_AFTER, &retry_after);
    reply->retry_after = (double)retry_after;
    if (curl_easy_getinfo(handle, CURLINFO_REDIRECT_URL, &location) == CURLE_OK && location) {
        free(reply->location);
        reply->location = strdup(location);
    }
}

bool gs_http_is_cancelled(const struct gs_http_options *options)
{
    return options->cancelled && options->cancelled(options->user);
}

bool gs_http_is_good(const struct gs_reply *reply)
{
    return reply->code == CURLE_OK && reply->status >= 200 && reply->status < 300;
}

bool gs_http_is_passing(const struct gs_reply *reply)
{
    if (reply->code == CURLE_PEER_FAILED_VERIFICATION || reply->code == CURLE_OUT_OF_MEMORY ||
        reply->code == CURLE_SSL_CACERT_BADFILE || reply->code == CURLE_UNSUPPORTED_PROTOCOL)
        return false;
    if (reply->code != CURLE_OK)
        return true;
    return reply->status == 408 || reply->status == 429 || reply->status >= 500;
}

struct gs_http_reason gs_http_reason(const struct gs_reply *reply)
{
    struct gs_http_reason out;
    const char *text = reply->reason[0] != '\0' ? reply->reason : curl_easy_strerror(reply->code);
    if (reply->code != CURLE_OK)
        snprintf(out.text, sizeof out.text, "%s", gs_quote(text).text);
    else
        snprintf(out.text, sizeof out.text, "HTTP %ld%s%s", reply->status,
                 reply->message[0] != '\0' ? ": " : "", gs_quote(reply->message).text);
    return out;
}

/* Does the server say that there is no such thing, or not for this token? */
static bool is_refusal(const struct gs_reply *reply)
{
    return reply->code == CURLE_OK && (reply->status == 401 || reply->status == 403 || reply->status == 404);
}

static gs_status fail_as(gs_status code, const struct gs_http_options *options, const struct gs_reply *reply,
                         const char *what, struct gs_error *error)
{
    const char *advice = "";
    if (gs_http_is_cancelled(options))
        return gs_fail(error, GS_CANCELLED, "interrupted");
    if (is_refusal(reply) && reply->status == 404)
        advice = "; there is no such repository, revision or file";
    else if (is_refusal(reply))
        advice = options->token ? "; there is no such repository, or the token gives no access to it"
                                : "; there is no such repository, or it wants a token (HF_TOKEN)";
    else if (gs_http_is_passing(reply))
        advice = "; the same command again goes on from here";
    return gs_fail(error, code, "%s: %s from %s%s", gs_quote(what).text, gs_http_reason(reply).text,
                   gs_quote(options->endpoint).text, advice);
}

gs_status gs_http_fail(const struct gs_http_options *options, const struct gs_reply *reply, const char *what,
                       struct gs_error *error)
{
    return fail_as(GS_IO, options, reply, what, error);
}

/* ---------------------------------------------------------------- one request */

static size_t take_nothing(char *bytes, size_t one, size_t size, void *user)
{
    (void)bytes;
    (void)one;
    (void)user;
    return size;
}

static size_t take_body(char *bytes, size_t one, size_t size, void *user)
{
    const struct gs_http_request *request = user;
    (void)one;
    return request->sink(request->user, bytes, size) ? size : 0;
}

static int ask_cancelled(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    const struct gs_http_options *options = user;
    (void)a, (void)b, (void)c, (void)d;
    return gs_http_is_cancelled(options);
}

static bool is_own_url(const char *url)
{
    struct origin origin;
    bool own = read_origin(url, &origin) && is_own_address(origin.host);
    free_origin(&origin);
    return own;
}

static void set_policy(CURL *handle, const struct gs_http_options *options, const char *url)
{
    /* http is safe here because it stays on this machine; to a proxy it would carry the token in clear. */
    if (is_own_url(url))
        curl_easy_setopt(handle, CURLOPT_PROXY, "");
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(handle, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
    curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT, CONNECT_SECONDS);
    curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, STALL_BYTES);
    curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, (long)(options->stall_seconds + 0.999));
    /* Side by side means connections of their own: HTTP/2 would put all pieces on one. */
    curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, ask_cancelled);
    curl_easy_setopt(handle, CURLOPT_XFERINFODATA, options);
}

/* Appends a header; on failure the list is released and NULL. */
static struct curl_slist *add_header(struct curl_slist *headers, const char *text)
{
    struct curl_slist *longer = curl_slist_append(headers, text);
    if (!longer)
        curl_slist_free_all(headers);
    return longer;
}

static struct curl_slist *make_headers(const struct gs_http_options *options, const char *url)
{
    struct curl_slist *headers = add_header(NULL, "Accept-Encoding: identity");
    if (!headers || !options->token || !gs_http_same_origin(url, options->endpoint))
        return headers;
    struct gs_buffer line = {0};
    if (gs_buffer_print(&line, NULL, "Authorization: Bearer %s", options->token) == GS_OK) {
        headers = add_header(headers, line.data);
    } else {
        curl_slist_free_all(headers);
        headers = NULL;
    }
    gs_buffer_free(&line);
    return headers;
}

CURL *gs_http_prepare(const struct gs_http_options *options, const struct gs_http_request *request,
                      struct gs_reply *reply, struct curl_slist **headers)
{
    char range[64];
    CURL *handle = curl_easy_init();
    *headers = handle ? make_headers(options, request->url) : NULL;
    if (!*headers) {
        curl_easy_cleanup(handle);
        return NULL;
    }
    set_policy(handle, options, request->url);
    curl_easy_setopt(handle, CURLOPT_USERAGENT, "gossamer");
    curl_easy_setopt(handle, CURLOPT_HTTPHEADER, *headers);
    curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, reply->reason);
    curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(handle, CURLOPT_HEADERDATA, reply);
    curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, request->sink ? take_body : take_nothing);
    curl_easy_setopt(handle, CURLOPT_WRITEDATA, request);
    curl_easy_setopt(handle, CURLOPT_NOBODY, request->head ? 1L : 0L);
    if (request->ranged) {
        snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, request->begin, request->end - 1);
        curl_easy_setopt(handle, CURLOPT_RANGE, range);
    }
    if (curl_easy_setopt(handle, CURLOPT_URL, request->url) != CURLE_OK) {
        curl_easy_cleanup(handle);
        curl_slist_free_all(*headers);
        *headers = NULL;
        return NULL;
    }
    return handle;
}

/* ---------------------------------------------------------------- whole answers */

double gs_http_delay(const struct gs_http_options *options, const struct gs_reply *reply, unsigned n)
{
    double delay = options->retry_seconds;
    for (unsigned i = 1; i < n && delay < MAX_DELAY; i++)
        delay *= 2.0;
    delay = delay < MAX_DELAY ? delay : MAX_DELAY;
    double asked = reply->retry_after < MAX_SERVER_DELAY ? reply->retry_after : MAX_SERVER_DELAY;
    return asked > delay ? asked : delay;
}

gs_status gs_http_wait(const struct gs_http_options *options, double seconds, struct gs_error *error)
{
    double until = gs_clock_seconds() + seconds;
    for (double left = seconds; left > 0.0; left = until - gs_clock_seconds()) {
        if (gs_http_is_cancelled(options))
            return gs_fail(error, GS_CANCELLED, "interrupted");
        poll(NULL, 0, left < 0.1 ? (int)(left * 1000.0) + 1 : 100);
    }
    return GS_OK;
}

static gs_status perform(const struct gs_http_options *options, const struct gs_http_request *request,
                         struct gs_reply *reply, struct gs_error *error)
{
    struct curl_slist *headers;
    gs_reply_free(reply);
    CURL *handle = gs_http_prepare(options, request, reply, &headers);
    if (!handle)
        return gs_fail_memory(error, sizeof *request);
    gs_http_conclude(handle, curl_easy_perform(handle), reply);
    curl_easy_cleanup(handle);
    curl_slist_free_all(headers);
    return GS_OK;
}

/* After a try that may pass: waits for the next, or fails if there were too many. */
static gs_status wait_for_next(const struct gs_http_options *options, const struct gs_reply *reply,
                               const char *what, unsigned *failures, struct gs_error *error)
{
    if (gs_http_is_cancelled(options) || !gs_http_is_passing(reply) || ++*failures >= options->max_failures)
        return gs_http_fail(options, reply, what, error);
    double seconds = gs_http_delay(options, reply, *failures);
    if (options->waiting)
        options->waiting(options->user, gs_http_reason(reply).text, seconds);
    return gs_http_wait(options, seconds, error);
}

/* Replaces *url by where the reply redirects to. */
static gs_status follow(const struct gs_http_options *options, struct gs_reply *reply, const char *what,
                        unsigned *redirects, char **url, struct gs_error *error)
{
    if (!gs_http_is_allowed(options, reply->location))
        return gs_fail(error, GS_MALFORMED, "%s: the hub redirects to what is not https",
                       gs_quote(what).text);
    if (++*redirects > GS_HTTP_MAX_REDIRECTS)
        return gs_fail(error, GS_MALFORMED, "%s: more than %d redirects", gs_quote(what).text,
                       GS_HTTP_MAX_REDIRECTS);
    free(*url);
    *url = reply->location;
    reply->location = NULL;
    return GS_OK;
}

struct body {
    struct gs_buffer *buffer;
    size_t max_size;
    bool too_large;
};

static bool take_bounded(void *user, const char *bytes, size_t size)
{
    struct body *body = user;
    if (size > body->max_size - body->buffer->size) {
        body->too_large = true;
        return false;
    }
    return gs_buffer_append(body->buffer, bytes, size, NULL) == GS_OK;
}

gs_status gs_http_get(const struct gs_http_options *options, const char *url, const char *what,
                      size_t max_size, struct gs_buffer *body, struct gs_error *error)
{
    struct body sink = {.buffer = body, .max_size = max_size};
    struct gs_reply reply = {0};
    unsigned failures = 0, redirects = 0;
    char *at = strdup(url);
    gs_status status = at ? GS_OK : gs_fail_memory(error, strlen(url) + 1);
    while (status == GS_OK) {
        struct gs_http_request request = {.url = at, .sink = take_bounded, .user = &sink};
        gs_buffer_clear(body);
        status = perform(options, &request, &reply, error);
        if (status != GS_OK)
            break;
        if (sink.too_large) {
            status = gs_fail(error, GS_MALFORMED, "%s: the answer is larger than %zu bytes",
                             gs_quote(what).text, max_size);
            break;
        }
        if (gs_http_is_good(&reply))
            break;
        if (reply.code == CURLE_OK && reply.location)
            status = follow(options, &reply, what, &redirects, &at, error);
        else if (is_refusal(&reply))
            status = fail_as(GS_INVALID_ARGUMENT, options, &reply, what, error);
        else
            status = wait_for_next(options, &reply, what, &failures, error);
    }
    gs_reply_free(&reply);
    free(at);
    return status;
}

gs_status gs_http_locate(const struct gs_http_options *options, const char *url, const char *what,
                         char **location, struct gs_reply *reply, struct gs_error *error)
{
    unsigned failures = 0, redirects = 0;
    char *at = strdup(url);
    gs_status status = at ? GS_OK : gs_fail_memory(error, strlen(url) + 1);
    *location = NULL;
    while (status == GS_OK) {
        struct gs_http_request request = {.url = at, .head = true};
        status = perform(options, &request, reply, error);
        if (status != GS_OK || gs_http_is_good(reply))
            break;
        if (reply->code != CURLE_OK || !reply->location) {
            status = wait_for_next(options, reply, what, &failures, error);
            continue;
        }
        status = follow(options, reply, what, &redirects, &at, error);
        if (status == GS_OK && !gs_http_same_origin(at, options->endpoint))
            break;
    }
    if (status == GS_OK)
        *location = at;
    else
        free(at);
    return status;
}
