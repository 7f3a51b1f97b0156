#include "server/guard.h"

#include "base/status.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---------------------------------------------------------------- names */

static bool is_address(const char *host)
{
    unsigned char bytes[16];
    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

bool gs_is_loopback(const char *host)
{
    unsigned char bytes[16];
    static const unsigned char one[16] = {[15] = 1};
    if (strcasecmp(host, "localhost") == 0)
        return true;
    if (inet_pton(AF_INET, host, bytes) == 1)
        return bytes[0] == 127;
    return inet_pton(AF_INET6, host, bytes) == 1 && memcmp(bytes, one, sizeof one) == 0;
}

struct host_name {
    char text[256];
};

/* The name or address of "name", "name:port", "[v6]:port"; false for anything else. */
static bool split_host(const char *header, struct host_name *host)
{
    const char *end, *rest;
    if (header[0] == '[') {
        header++;
        end = strchr(header, ']');
        rest = end ? end + 1 : NULL;
    } else {
        end = rest = header + strcspn(header, ":");
    }
    if (!end || end == header || (size_t)(end - header) >= sizeof host->text)
        return false;
    if (*rest == ':') {
        size_t digits = strspn(rest + 1, "0123456789");
        if (digits > 5 || rest[1 + digits] != '\0')
            return false;
    } else if (*rest != '\0') {
        return false;
    }
    memcpy(host->text, header, (size_t)(end - header));
    host->text[end - header] = '\0';
    return true;
}

static bool is_allowed_host(const struct gs_guard *guard, const char *name)
{
    const struct gs_server_config *config = guard->config;
    if (gs_is_loopback(name) || strcasecmp(name, config->host) == 0)
        return true;
    if (!guard->loopback && is_address(name)) /* rebinding needs a name */
        return true;
    for (size_t i = 0; i < config->n_allowed_host; i++)
        if (strcasecmp(name, config->allowed_hosts[i]) == 0)
            return true;
    return false;
}

static int check_host(const struct gs_guard *guard, const struct gs_exchange *exchange,
                      struct gs_api_error *error)
{
    const char *header = gs_exchange_header(exchange, "Host");
    struct host_name host;
    if (!header)
        return gs_api_fail(error, 400, "host_missing", "the Host header is missing");
    if (!split_host(header, &host) || !is_allowed_host(guard, host.text))
        return gs_api_fail(
            error, 403, "host_not_allowed",
            "Host \"%s\" is not served: an address of this machine is expected, or a name given "
            "with --allow-host",
            gs_quote(header).text);
    return 0;
}

/* "http://HOST" or "https://HOST" of the very Host that is asked. */
static bool is_same_origin(const char *origin, const char *host)
{
    const char *rest = strncasecmp(origin, "http://", 7) == 0    ? origin + 7
                       : strncasecmp(origin, "https://", 8) == 0 ? origin + 8
                                                                 : NULL;
    return rest && strcasecmp(rest, host) == 0;
}

static int check_origin(const struct gs_exchange *exchange, struct gs_api_error *error)
{
    const char *origin = gs_exchange_header(exchange, "Origin");
    const char *site = gs_exchange_header(exchange, "Sec-Fetch-Site");
    const char *mode = gs_exchange_header(exchange, "Sec-Fetch-Mode");
    bool reads = strcmp(exchange->method, "GET") == 0 || strcmp(exchange->method, "HEAD") == 0;
    bool navigates = reads && mode && strcmp(mode, "navigate") == 0;
    if (origin && !is_same_origin(origin, gs_exchange_header(exchange, "Host")))
        return gs_api_fail(error, 403, "origin_not_allowed", "Origin \"%s\" may not call this server",
                           gs_quote(origin).text);
    if (site && !navigates && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0)
        return gs_api_fail(error, 403, "origin_not_allowed", "pages of other sites may not call this server");
    return 0;
}

/* ---------------------------------------------------------------- keys */

gs_status gs_guard_open(const struct gs_server_config *config, struct gs_guard *guard, struct gs_error *error)
{
    *guard = (struct gs_guard){.config = config, .loopback = gs_is_loopback(config->host)};
    if (!guard->loopback && config->n_key == 0)
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "--host %s: an address that other machines reach needs a key: --api-key-file FILE",
                       gs_quote(config->host).text);
    guard->keys = calloc(config->n_key ? config->n_key : 1, sizeof *guard->keys);
    if (!guard->keys)
        return gs_fail_memory(error, config->n_key * sizeof *guard->keys);
    for (size_t i = 0; i < config->n_key; i++) {
        struct gs_guard_key *key = &guard->keys[guard->n_key++];
        key->size = strlen(config->keys[i]);
        if (key->size == 0 || key->size > GS_MAX_KEY)
            return gs_fail(error, GS_INVALID_ARGUMENT, "key %zu: 1 to %d bytes are expected", i + 1,
                           GS_MAX_KEY);
        memcpy(key->bytes, config->keys[i], key->size);
    }
    return GS_OK;
}

void gs_guard_close(struct gs_guard *guard)
{
    if (guard->keys)
        memset(guard->keys, 0, guard->n_key * sizeof *guard->keys);
    free(guard->keys);
    *guard = (struct gs_guard){0};
}

/* Every byte of both is looked at, whatever they are. */
static unsigned differ(const struct gs_guard_key *a, const struct gs_guard_key *b)
{
    volatile unsigned difference = a->size != b->size;
    for (size_t i = 0; i < GS_MAX_KEY; i++)
        difference |= (unsigned)(a->bytes[i] ^ b->bytes[i]);
    return difference;
}

size_t gs_guard_find_key(const struct gs_guard *guard, const char *text, size_t size)
{
    struct gs_guard_key given = {.size = size};
    volatile size_t found = 0;
    memcpy(given.bytes, text, size < GS_MAX_KEY ? size : GS_MAX_KEY);
    for (size_t i = 0; i < guard->n_key; i++) {
        size_t is_it = differ(&given, &guard->keys[i]) == 0;
        found += (i + 1) * is_it * (found == 0);
    }
    return found;
}

static int check_key(const struct gs_guard *guard, struct gs_exchange *exchange, struct gs_api_error *error)
{
    static const char bearer[] = "Bearer ";
    const char *given = gs_exchange_header(exchange, "Authorization");
    if (guard->n_key == 0)
        return 0;
    if (given && strncasecmp(given, bearer, strlen(bearer)) == 0)
        given += strlen(bearer);
    else
        given = gs_exchange_header(exchange, "x-api-key");
    exchange->key = given ? gs_guard_find_key(guard, given, strlen(given)) : 0;
    if (exchange->key > 0)
        return 0;
    gs_reply_header(exchange, "WWW-Authenticate", "Bearer");
    return gs_api_fail(error, 401, "invalid_api_key", "%s",
                       given ? "the key is not one of this server's"
                             : "a key is needed: Authorization: Bearer KEY, or x-api-key: KEY");
}

/* ---------------------------------------------------------------- routes */

/* *tail [*size]: into the path; NULL: the route has none. */
static bool matches(const struct gs_route *route, const char *path, const char **tail, size_t *size)
{
    const char *star = strchr(route->path, '*');
    size_t length = star ? (size_t)(star - route->path) : strlen(route->path);
    *tail = NULL;
    if (!star && !(route->flags & GS_ROUTE_TAIL))
        return strcmp(route->path, path) == 0;
    if (strncmp(route->path, path, length) != 0 || path[length] == '\0')
        return false;
    *tail = path + length;
    *size = star ? strcspn(*tail, "/") : strlen(*tail);
    return *size > 0 && (!star || strcmp(*tail + *size, star + 1) == 0);
}

static int find_route(struct gs_exchange *exchange, struct gs_api_error *error)
{
    char allowed[64] = "";
    const char *tail;
    size_t size = 0;
    /* HEAD is answered as GET; the sender leaves the body out. */
    const char *method = strcmp(exchange->method, "HEAD") == 0 ? "GET" : exchange->method;
    for (const struct gs_route *route = gs_routes; route->method; route++) {
        if (!matches(route, exchange->path, &tail, &size))
            continue;
        size_t used = strlen(allowed);
        gs_format(allowed + used, sizeof allowed - used, "%s%s", used ? ", " : "",
                  strcmp(route->method, "GET") == 0 ? "GET, HEAD" : route->method);
        exchange->route = route;
        exchange->tail = tail && tail[size] ? gs_arena_copy(&exchange->arena, tail, size) : tail;
        if (strcmp(route->method, method) == 0)
            return 0;
    }
    if (allowed[0]) {
        gs_reply_header(exchange, "Allow", allowed);
        return gs_api_fail(error, 405, "method_not_allowed", "%s is not answered at %s: %s",
                           gs_quote(exchange->method).text, gs_quote(exchange->path).text, allowed);
    }
    return gs_api_fail(error, 404, "not_found", "nothing is at %s: docs/server.md lists what is",
                       gs_quote(exchange->path).text);
}

static int check_content_type(const struct gs_exchange *exchange, struct gs_api_error *error)
{
    static const char json[] = "application/json";
    const char *type = gs_exchange_header(exchange, "Content-Type");
    const char *encoding = gs_exchange_header(exchange, "Content-Encoding");
    if (strcmp(exchange->method, "POST") != 0)
        return 0;
    if (encoding && encoding[0] && strcasecmp(encoding, "identity") != 0)
        return gs_api_fail(error, 415, "unsupported_media_type",
                           "Content-Encoding: bodies are read as they are, not as \"%s\"",
                           gs_quote(encoding).text);
    size_t length = strlen(json);
    if (type && strncasecmp(type, json, length) == 0 && strchr("; \t", type[length]))
        return 0;
    return gs_api_fail(error, 415, "unsupported_media_type",
                       "Content-Type: application/json is expected, not \"%s\"",
                       type ? gs_quote(type).text : "");
}

int gs_guard_check(const struct gs_guard *guard, struct gs_exchange *exchange, struct gs_api_error *error)
{
    int status = check_host(guard, exchange, error);
    if (status == 0)
        status = check_origin(exchange, error);
    if (status == 0)
        status = find_route(exchange, error);
    if (status == 0 && !(exchange->route->flags & GS_ROUTE_OPEN))
        status = check_key(guard, exchange, error);
    if (status == 0)
        status = check_content_type(exchange, error);
    return status;
}
