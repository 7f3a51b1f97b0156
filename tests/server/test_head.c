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
    struct gs_head head;
    enum gs_head_state state = gs_head_check(copy, size, &head, error);
    assert_true(state == GS_HEAD_WHOLE ? head.size > 0 && head.size <= size : head.size == 0);
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
        "GET / HTTP/1.9\r\n" HOST "\r\n",
        "\n\nGET /?a&b&c HTTP/1.1\r\n" HOST "cookie: =;;\r\n\r\n",
        "BREW * HTTP/1.1\r\nhost:\r\n\r\n",
        "POST /v1/chat/completions HTTP/1.1\r\n" HOST "Content-Length: \t 17\r\nX-Y: \xFF\r\n\r\n",
        "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: Chunked\r\n\r\n",
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
        {400, "GET / HTTP/1.1\r\n" HOST " folded: x\r\n", "header line 2 begins with a blank"},
        {400, "GET / HTTP/1.1\r\n" HOST "X: y\r\n\tfolded\r\n", "header line 3 begins with a blank"},
        {400, "GET / HTTP/1.1\n" HOST "\r\n", "a line feed alone"},
        {400, "GET / HTTP/1.1\r\n" HOST "X: y\n", "a line feed alone"},
        {400, "GET / HTTP/1.1\r\n" HOST "\n", "a line feed alone"},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", "not several"},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
         "not several"},
        {400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n",
         "not several"},
        {400, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.0 has no"},
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
    static const struct {
        const char *bytes;
        size_t size;
    } with_nul[] = {{"GET / HTTP/1.1\r\nX: a\0b\r\n", 24},
                    {"GET / HTTP/1.1\r\nX\0: ab\r\n", 24},
                    {"GET /\0 HTTP/1.1\r\n", 17},
                    {"G\0T / HTTP/1.1\r\n", 16},
                    {"GET / HTTP/1.1\0\r\n", 17}};
    for (size_t i = 0; i < sizeof with_nul / sizeof *with_nul; i++) {
        assert_int_equal(check(with_nul[i].bytes, with_nul[i].size, &error), GS_HEAD_BAD);
        assert_int_equal(error.status, 400);
    }
    const char *coding = "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n";
    assert_int_equal(check(coding, strlen(coding), &error), GS_HEAD_BAD);
    assert_int_equal(error.status, 501);
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
        {"GET /?", "a&", " HTTP/1.1\r\n" HOST "\r\n", GS_HEAD_MAX_ARGUMENTS - 1, 414},
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
        bool counted_whole = strcmp(cases[i].piece, "a&") == 0; /* once its line has ended, or is too long */
        size_t too_many = counted_whole ? GS_HEAD_MAX_TARGET : most + 40;
        assert_int_equal(check_long(cases[i].start, cases[i].piece, too_many, "", &error), GS_HEAD_BAD);
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

static void what_frames_the_body_is_told(void **state)
{
    (void)state;
    static const char length[] = "POST / HTTP/1.1\r\n" HOST "Content-Length: 100000000000\r\n\r\nbody";
    static const char chunked[] =
        "\r\nPOST / HTTP/1.1\r\n" HOST "Cookie: a\r\nTransfer-Encoding:chunked\r\n\r\n";
    struct gs_head head;
    struct gs_api_error error;
    assert_int_equal(gs_head_check(length, sizeof length - 1, &head, &error), GS_HEAD_WHOLE);
    assert_int_equal(head.size, sizeof length - 5);
    assert_true(head.length == 100000000000u && !head.chunked && !head.has_cookie);
    assert_int_equal(gs_head_check(chunked, sizeof chunked - 1, &head, &error), GS_HEAD_WHOLE);
    assert_int_equal(head.size, sizeof chunked - 1);
    assert_true(head.length == 0 && head.chunked && head.has_cookie);
}

static void cookies_are_left_out(void **state)
{
    (void)state;
    static const char head[] =
        "\r\nGET /cookie: HTTP/1.1\r\n" HOST "COOKIE: a=b\r\nX-Cookie: c\r\ncookie:\r\n\r\n";
    static const char left[] = "\r\nGET /cookie: HTTP/1.1\r\n" HOST "X-Cookie: c\r\n\r\n";
    char out[sizeof head];
    size_t written;
    gs_head_drop_cookies(head, sizeof head - 1, out, &written);
    assert_int_equal(written, sizeof left - 1);
    assert_memory_equal(out, left, written);
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
        cmocka_unit_test(what_frames_the_body_is_told),
        cmocka_unit_test(cookies_are_left_out),
        cmocka_unit_test(errors_have_the_form_of_the_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
