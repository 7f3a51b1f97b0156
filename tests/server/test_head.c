/* src/server/head.c: what is a request's head, what is none, and what is not whole yet. */
#include "server/head.h"

#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

#define HOST "Host: localhost\r\n"

/* A copy of its own size: a read beyond it is seen by the sanitizer. */
static enum gs_head_state check(const char *bytes, size_t size, struct gs_api_error *error)
{
    char *copy = malloc(size > 0 ? size : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    enum gs_head_state state = gs_head_check(copy, size, error);
    free(copy);
    return state;
}

static void whole_heads_and_all_their_beginnings(void **state)
{
    (void)state;
    static const char *const heads[] = {
        "GET / HTTP/1.1\r\n" HOST "\r\n",
        "\r\n\r\nGET /health?a=b HTTP/1.1\r\n" HOST "\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.9\n" HOST "\n",
        "BREW * HTTP/1.1\r\nhost:\r\n\r\n",
        "POST /v1/chat/completions HTTP/1.1\r\n" HOST "Content-Length: \t 17\r\nX-Y: \xFF\r\n\r\n",
        "POST / HTTP/1.1\r\n" HOST
        "Content-Length: 5\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n",
    };
    struct gs_api_error error;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        size_t size = strlen(heads[i]);
        for (size_t begun = 0; begun < size; begun++)
            assert_int_equal(check(heads[i], begun, &error), GS_HEAD_PART);
        assert_int_equal(check(heads[i], size, &error), GS_HEAD_WHOLE);
        assert_int_equal(error.status, 0);
        char longer[512];
        memcpy(longer, heads[i], size);
        memcpy(longer + size, "\0\r\nbody", 7);
        assert_int_equal(check(longer, size + 7, &error), GS_HEAD_WHOLE);
    }
}

static void what_is_none_has_its_status(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *bytes, *says;
    } cases[] = {
        {400, "hello\r\n", "METHOD PATH HTTP/1.1"},
        {400, "GET /\r\n", "METHOD PATH HTTP/1.1"},
        {400, "GET  HTTP/1.1\r\n", "METHOD PATH HTTP/1.1"},
        {400, " / HTTP/1.1\r\n", "METHOD PATH HTTP/1.1"},
        {400, "GET /a b HTTP/1.1\r\n", "a blank"},
        {400, "GET /\x1b[1m HTTP/1.1\r\n", "a control character"},
        {400, "G(T", "METHOD PATH HTTP/1.1"},
        {400, "\x16\x03\x01", "without TLS"},
        {400, "GET / HTTP/1.1x\r\n", "HTTP/1.1 is expected"},
        {400, "GET / http/1.1\r\n", "HTTP/1.1 is expected"},
        {505, "GET / HTTP/0.9\r\n", "HTTP/0.9 is not spoken"},
        {505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2.0 is not spoken"},
        {400, "GET / HTTP/1.1\r\n\r\n", "Host header is missing"},
        {400, "GET / HTTP/1.1\r\n" HOST HOST "\r\n", "one Host"},
        {400, "GET / HTTP/1.1\r\n" HOST "nothing\r\n", "header line 2"},
        {400, "GET / HTTP/1.1\r\n: x\r\n", "header line 1"},
        {400, "GET / HTTP/1.1\r\nX-\xC3: x\r\n", "header line 1"},
        {400, "GET / HTTP/1.1\r\n" HOST " folded: x\r\n", "header line 2"},
        {400, "GET / HTTP/1.1\r\n" HOST "Content-Length : 5\r\n", "header line 2"},
        {400, "GET / HTTP/1.1\r\n" HOST "X: a\rb\r\n", "a control character"},
        {400, "GET / HTTP/1.1\r\nContent-Length: -5\r\n", "whole number, not \"-5\""},
        {400, "GET / HTTP/1.1\r\nContent-Length: +5\r\n", "whole number"},
        {400, "GET / HTTP/1.1\r\nContent-Length: 5, 5\r\n", "whole number"},
        {400, "GET / HTTP/1.1\r\nContent-Length:\r\n", "whole number"},
        {413, "GET / HTTP/1.1\r\nContent-Length: 1234567890123456789\r\n", "19 digits"},
    };
    struct gs_api_error error;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(check(cases[i].bytes, strlen(cases[i].bytes), &error), GS_HEAD_BAD);
        assert_int_equal(error.status, cases[i].status);
        assert_string_equal(error.type, "invalid_request_error");
        assert_non_null(strstr(error.message, cases[i].says));
        assert_null(strpbrk(error.message, "\r\n\x1b"));
    }
    assert_int_equal(check("GET / HTTP/1.1\r\nX: a\0b\r\n", 24, &error), GS_HEAD_BAD);
}

/* `start`, `count` times `piece`, `end`. */
static enum gs_head_state check_long(const char *start, const char *piece, size_t count, const char *end,
                                     struct gs_api_error *error)
{
    struct gs_buffer text = {0};
    assert_int_equal(gs_buffer_append_text(&text, start, NULL), GS_OK);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(gs_buffer_append_text(&text, piece, NULL), GS_OK);
    assert_int_equal(gs_buffer_append_text(&text, end, NULL), GS_OK);
    enum gs_head_state state = check(text.data, text.size, error);
    gs_buffer_free(&text);
    return state;
}

static void sizes_are_bounded_whole_or_not(void **state)
{
    (void)state;
    static const char first[] = "GET / HTTP/1.1\r\n" HOST;
    static const struct {
        const char *start, *piece, *end;
        size_t most; /* pieces that are taken */
        int status;
    } cases[] = {
        {"GET /", "a", " HTTP/1.1\r\n" HOST "\r\n", GS_HEAD_MAX_TARGET - 1, 414},
        {"", "A", " / HTTP/1.1\r\n" HOST "\r\n", GS_HEAD_MAX_METHOD, 400},
        {first, "X: y\r\n", "\r\n", GS_HEAD_MAX_LINES - 1, 431},
        {"GET / HTTP/1.1\r\n" HOST "X: ", "y", "\r\n\r\n", GS_HEAD_MAX_BYTES - sizeof HOST + 1 - 5, 431},
    };
    struct gs_api_error error;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t most = cases[i].most;
        assert_int_equal(check_long(cases[i].start, cases[i].piece, most, cases[i].end, &error),
                         GS_HEAD_WHOLE);
        assert_int_equal(check_long(cases[i].start, cases[i].piece, most + 1, cases[i].end, &error),
                         GS_HEAD_BAD);
        assert_int_equal(error.status, cases[i].status);
        assert_int_equal(check_long(cases[i].start, cases[i].piece, most + 40, "", &error), GS_HEAD_BAD);
        assert_int_equal(error.status, cases[i].status);
    }
    assert_int_equal(check_long("", "\r\n", GS_HEAD_MAX_LINES, "", &error), GS_HEAD_BAD);
}

static void add(struct gs_buffer *text, const char *piece, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_int_equal(gs_buffer_append_text(text, piece, NULL), GS_OK);
}

/* Everything as long as it may be: nobody has to keep more to know. */
static void the_longest_head_is_known_in_time(void **state)
{
    (void)state;
    struct gs_buffer text = {0};
    struct gs_api_error error;
    add(&text, "\n", GS_HEAD_MAX_LINES);
    add(&text, "A", GS_HEAD_MAX_METHOD);
    add(&text, " /", 1);
    add(&text, "a", GS_HEAD_MAX_TARGET - 1);
    add(&text, " HTTP/1.1\r\n", 1);
    size_t begin = text.size;
    add(&text, HOST "X: ", 1);
    add(&text, "y", GS_HEAD_MAX_BYTES - (text.size - begin));
    assert_int_equal(check(text.data, text.size, &error), GS_HEAD_PART);
    assert_true(text.size < GS_HEAD_ENOUGH_BYTES);
    add(&text, "y", GS_HEAD_ENOUGH_BYTES - text.size);
    assert_int_equal(check(text.data, text.size, &error), GS_HEAD_BAD);
    assert_int_equal(error.status, 431);
    gs_buffer_free(&text);
}

static void errors_have_the_form_of_the_path(void **state)
{
    (void)state;
    static const char *const anthropic[] = {"POST /v1/messages HTTP/1.1\r\n",
                                            "\r\nPOST /v1/messages?beta=true HTTP/9.1\r\n",
                                            "POST /v1/messages/count_tokens\r\n"};
    static const char *const others[] = {"POST /v1/message HTTP/1.1\r\n", "POST /v1/messagesx ",
                                         "/v1/messages", "", "GET / HTTP/1.1\r\n"};
    for (size_t i = 0; i < sizeof anthropic / sizeof *anthropic; i++)
        assert_int_equal(gs_head_errors(anthropic[i], strlen(anthropic[i])), GS_ERROR_ANTHROPIC);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(gs_head_errors(others[i], strlen(others[i])), GS_ERROR_OPENAI);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_heads_and_all_their_beginnings),
        cmocka_unit_test(what_is_none_has_its_status),
        cmocka_unit_test(sizes_are_bounded_whole_or_not),
        cmocka_unit_test(the_longest_head_is_known_in_time),
        cmocka_unit_test(errors_have_the_form_of_the_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
