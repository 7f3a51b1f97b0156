#include "server/guard.h"
#include "tests/support/check.h"

#include <stdio.h>
#include <stdlib.h>

static struct gs_guard open_guard(const struct gs_server_config *config)
{
    struct gs_guard guard;
    struct gs_error error;
    assert_ok(gs_guard_open(config, &guard, &error), &error);
    return guard;
}

static struct gs_exchange *ask(const char *method, const char *path, const struct gs_pair *headers,
                               size_t count)
{
    struct gs_exchange *exchange = gs_exchange_make(NULL);
    assert_non_null(exchange);
    exchange->method = method;
    exchange->path = path;
    for (size_t i = 0; i < count; i++)
        exchange->headers[i] = headers[i];
    exchange->n_header = count;
    return exchange;
}

/* The status for a request with these headers; 0: let through. */
static int check(const struct gs_guard *guard, const char *method, const char *path,
                 const struct gs_pair *headers, size_t count)
{
    struct gs_api_error error = {0};
    struct gs_exchange *exchange = ask(method, path, headers, count);
    int status = gs_guard_check(guard, exchange, &error);
    assert_int_equal(status, error.status);
    gs_exchange_release(exchange);
    return status;
}

static void hosts(void **state)
{
    (void)state;
    static const char *const names[] = {"box.local"};
    struct gs_server_config config = gs_server_defaults();
    config.allowed_hosts = names;
    config.n_allowed_host = 1;
    struct gs_guard guard = open_guard(&config);
    static const struct {
        const char *host;
        int status;
    } cases[] = {{"127.0.0.1", 0},
                 {"127.0.0.1:8080", 0},
                 {"LOCALHOST", 0},
                 {"[::1]:1", 0},
                 {"127.255.0.3", 0},
                 {"box.local:80", 0},
                 {"evil.example", 403},
                 {"127.0.0.1.evil", 403},
                 {"10.0.0.1", 403},
                 {"[::2]", 403},
                 {"", 403},
                 {"127.0.0.1:80x", 403},
                 {"127.0.0.1:123456", 403},
                 {"[::1", 403},
                 {"[::1]x", 403},
                 {"::1", 403},
                 {"a@127.0.0.1", 403},
                 {"box.local.evil", 403},
                 {"127.0.0.1/", 403},
                 {":80", 403}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gs_pair header = {"host", cases[i].host};
        if (check(&guard, "GET", "/health", &header, 1) != cases[i].status)
            fail_msg("Host: %s should be %d", cases[i].host, cases[i].status);
    }
    assert_int_equal(check(&guard, "GET", "/health", NULL, 0), 400);
    gs_guard_close(&guard);
}

static void origins_types_and_routes(void **state)
{
    (void)state;
    struct gs_server_config config = gs_server_defaults();
    struct gs_guard guard = open_guard(&config);
    const struct gs_pair host = {"Host", "localhost:8080"}, json = {"Content-Type", "application/json"};
    static const char chat[] = "/v1/chat/completions";
    static const struct {
        const char *name, *value;
        int status;
    } cases[] = {{"Origin", "http://localhost:8080", 0},
                 {"Origin", "https://localhost:8080", 0},
                 {"Origin", "http://localhost", 403},
                 {"Origin", "null", 403},
                 {"Origin", "", 403},
                 {"Origin", "http://localhost:8080.evil", 403},
                 {"Sec-Fetch-Site", "same-origin", 0},
                 {"Sec-Fetch-Site", "none", 0},
                 {"Sec-Fetch-Site", "cross-site", 403},
                 {"Sec-Fetch-Site", "same-site", 403},
                 {"Content-Encoding", "identity", 0},
                 {"Content-Encoding", "gzip", 415},
                 {"X-Nothing", "x", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gs_pair headers[] = {host, json, {cases[i].name, cases[i].value}};
        if (check(&guard, "POST", chat, headers, 3) != cases[i].status)
            fail_msg("%s: %s should be %d", cases[i].name, cases[i].value, cases[i].status);
    }
    struct gs_pair plain[] = {host, {"Content-Type", "text/plain"}};
    assert_int_equal(check(&guard, "POST", chat, plain, 2), 415);
    assert_int_equal(check(&guard, "POST", chat, &host, 1), 415);
    assert_int_equal(check(&guard, "GET", chat, &host, 1), 405);
    assert_int_equal(check(&guard, "POST", "/v1/chat/completions/", &host, 1), 404);
    assert_int_equal(check(&guard, "GET", "/v1/models/x", &host, 1), 0);
    assert_int_equal(check(&guard, "GET", "/v1/models/", &host, 1), 404);
    gs_guard_close(&guard);
}

static void tails_and_what_is_allowed(void **state)
{
    (void)state;
    struct gs_server_config config = gs_server_defaults();
    struct gs_guard guard = open_guard(&config);
    const struct gs_pair host = {"Host", "localhost"};
    static const struct {
        const char *path, *tail, *allowed; /* tail NULL: nothing is there */
    } cases[] = {{"/v1/models/a/b", "a/b", "GET, HEAD"},
                 {"/v1/responses/resp_1", "resp_1", "GET, HEAD, DELETE"},
                 {"/v1/responses/resp_1/input_items", "resp_1", "GET, HEAD"},
                 {"/v1/responses/resp_1/input_items/", NULL, NULL},
                 {"/v1/responses/resp_1/", NULL, NULL},
                 {"/v1/responses/a/b", NULL, NULL},
                 {"/v1/responses//input_items", NULL, NULL},
                 {"/v1/responses/", NULL, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gs_api_error error = {0};
        bool is_there = cases[i].tail != NULL;
        struct gs_exchange *exchange = ask("HEAD", cases[i].path, &host, 1);
        assert_int_equal(gs_guard_check(&guard, exchange, &error), is_there ? 0 : 404);
        if (is_there)
            assert_string_equal(exchange->tail, cases[i].tail);
        gs_exchange_release(exchange);
        exchange = ask("OPTIONS", cases[i].path, &host, 1);
        assert_int_equal(gs_guard_check(&guard, exchange, &error), is_there ? 405 : 404);
        assert_int_equal(exchange->n_reply_header, is_there);
        if (is_there)
            assert_string_equal(exchange->reply_headers[0].value, cases[i].allowed);
        gs_exchange_release(exchange);
    }
    gs_guard_close(&guard);
}

static void keys(void **state)
{
    (void)state;
    char longest[GS_MAX_KEY + 1], longer[GS_MAX_KEY + 2];
    memset(longest, 'k', GS_MAX_KEY);
    memset(longer, 'k', GS_MAX_KEY + 1);
    longest[GS_MAX_KEY] = longer[GS_MAX_KEY + 1] = '\0';
    const char *const list[] = {"first-key", longest};
    struct gs_server_config config = gs_server_defaults();
    config.keys = list;
    config.n_key = 2;
    struct gs_guard guard = open_guard(&config);
    assert_int_equal(gs_guard_find_key(&guard, "first-key", 9), 1);
    assert_int_equal(gs_guard_find_key(&guard, longest, GS_MAX_KEY), 2);
    assert_int_equal(gs_guard_find_key(&guard, longer, GS_MAX_KEY + 1), 0);
    assert_int_equal(gs_guard_find_key(&guard, "first-key\0", 10), 0); /* the padding does not count as it */
    for (size_t n = 0; n < 9; n++)
        assert_int_equal(gs_guard_find_key(&guard, "first-key", n), 0);

    const struct gs_pair host = {"Host", "localhost"};
    struct gs_pair bearer[] = {host, {"Authorization", "Bearer first-key"}};
    struct gs_pair other[] = {host, {"x-api-key", "first-key"}};
    struct gs_pair basic[] = {host, {"Authorization", "Basic first-key"}};
    assert_int_equal(check(&guard, "GET", "/v1/models", bearer, 2), 0);
    assert_int_equal(check(&guard, "GET", "/v1/models", other, 2), 0);
    assert_int_equal(check(&guard, "GET", "/v1/models", basic, 2), 401);
    assert_int_equal(check(&guard, "GET", "/v1/models", &host, 1), 401);
    assert_int_equal(check(&guard, "GET", "/health", &host, 1), 0);
    gs_guard_close(&guard);
}

static void addresses_beyond_this_machine_need_a_key(void **state)
{
    (void)state;
    static const char *const open[] = {"0.0.0.0", "::", "192.168.0.7", "2001:db8::1"};
    struct gs_server_config config = gs_server_defaults();
    struct gs_guard guard;
    struct gs_error error;
    const char *const list[] = {"k"};
    for (size_t i = 0; i < sizeof open / sizeof *open; i++) {
        config.host = open[i];
        config.n_key = 0;
        assert_fails(gs_guard_open(&config, &guard, &error), GS_INVALID_ARGUMENT, "--api-key-file", &error);
        gs_guard_close(&guard);
        config.keys = list;
        config.n_key = 1;
        guard = open_guard(&config);
        struct gs_pair headers[] = {{"Host", "10.1.2.3:80"}, {"x-api-key", "k"}};
        assert_int_equal(check(&guard, "GET", "/v1/models", headers, 2), 0);
        headers[0].value = "evil.example";
        assert_int_equal(check(&guard, "GET", "/v1/models", headers, 2), 403);
        gs_guard_close(&guard);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts),
        cmocka_unit_test(origins_types_and_routes),
        cmocka_unit_test(tails_and_what_is_allowed),
        cmocka_unit_test(keys),
        cmocka_unit_test(addresses_beyond_this_machine_need_a_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
