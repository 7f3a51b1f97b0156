/* Where a token and a redirect may go, decided by URLs alone. */
#include "hub/http.h"
#include "tests/support/check.h"

static void redirects_stay_secure(void **state)
{
    static const struct {
        const char *endpoint, *url;
        bool allowed;
    } cases[] = {
        {"https://hub.example", "https://hub.example/x", true},
        {"https://hub.example", "https://other.example/x", true},
        {"https://hub.example", "http://hub.example/x", false},
        {"https://hub.example", "http://127.0.0.1/x", false}, /* a hub does not reach into this machine */
        {"https://hub.example", "http://localhost:8080/x", false},
        {"https://hub.example", "ftp://hub.example/x", false},
        {"https://hub.example", "file:///etc/passwd", false},
        {"https://hub.example", "x", false},
        {"http://127.0.0.1:8080", "https://other.example/x", true},
        {"http://127.0.0.1:8080", "http://localhost:8081/x", true},
        {"http://127.0.0.1:8080", "http://[::1]/x", true},
        {"http://127.0.0.1:8080", "http://other.example/x", false},
        {"http://127.0.0.1:8080", "http://127.evil.example/x", false},
        {"http://127.0.0.1:8080", "http://localhost.evil.example/x", false},
        {"http://127.0.0.1:8080", "http://127.0.0.1@evil.example/x", false},
        {"http://127.0.0.1:8080", "ftp://127.0.0.1/x", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gs_http_options options = {.endpoint = cases[i].endpoint};
        if (gs_http_is_allowed(&options, cases[i].url) != cases[i].allowed)
            fail_msg("from %s to %s", cases[i].endpoint, cases[i].url);
    }
}

static void tells_origins_apart(void **state)
{
    static const struct {
        const char *a, *b;
        bool same;
    } cases[] = {
        {"https://hub.example", "https://hub.example/x?y#z", true},
        {"https://hub.example", "https://HUB.example:443/x", true},
        {"https://hub.example", "https://hub.example:444/x", false},
        {"https://hub.example", "http://hub.example:443/x", false},
        {"https://hub.example", "https://hub.example.evil.example/x", false},
        {"https://hub.example", "https://hub.example@evil.example/x", false},
        {"x", "x", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (gs_http_same_origin(cases[i].a, cases[i].b) != cases[i].same)
            fail_msg("%s and %s", cases[i].a, cases[i].b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(redirects_stay_secure),
        cmocka_unit_test(tells_origins_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
