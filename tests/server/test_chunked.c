/* src/server/chunked.c: frames of a chunked body, whole, damaged, and in all pieces. */
#include "server/chunked.h"

#include "base/buffer.h"
#include "base/status.h"

#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

/* Copies of their own size: a read or write beyond is seen by the sanitizer. */
static size_t read_piece(struct gs_chunked *body, const char *bytes, size_t size, struct gs_buffer *out,
                         struct gs_api_error *error)
{
    char *copy = malloc(size > 0 ? size : 1), *room = malloc(size + GS_CHUNKED_LONGER);
    size_t written;
    assert_non_null(copy);
    assert_non_null(room);
    memcpy(copy, bytes, size);
    size_t taken = gs_chunked_read(body, copy, size, room, &written, error);
    assert_true(written <= size + GS_CHUNKED_LONGER);
    assert_int_equal(gs_buffer_append(out, room, written, NULL), GS_OK);
    free(copy);
    free(room);
    return taken;
}

/* A piece of `step` bytes at a time. Returns the bytes taken; error.status tells whether it is bad. */
static size_t read_all(const char *bytes, size_t size, size_t step, struct gs_buffer *out,
                       struct gs_chunked *body, struct gs_api_error *error)
{
    size_t at = 0;
    *error = (struct gs_api_error){0};
    while (at < size && error->status == 0 && body->state != GS_CHUNKED_WHOLE)
        at += read_piece(body, bytes + at, step < size - at ? step : size - at, out, error);
    return at;
}

static void whole_bodies_are_written_anew(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *anew;
    } cases[] = {
        {"0\r\n\r\n", "0\r\n\r\n"},
        {"5\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n"},
        {"0000000A\r\n\r\n0\r\n\r\n123\r\n1\r\nx\r\n000\r\n\r\n",
         "a\r\n\r\n0\r\n\r\n123\r\n1\r\nx\r\n0\r\n\r\n"},
        {"2;a=\"b\"\r\nab\r\n0;x\r\nTrailer: x\r\nMore: y\r\n\r\n", "2\r\nab\r\n0\r\n\r\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char longer[256];
        size_t size = strlen(cases[i].bytes);
        gs_format(longer, sizeof longer, "%sGET / HTTP/1.1\r\n", cases[i].bytes);
        for (size_t step = 1; step <= strlen(longer); step++) {
            struct gs_buffer out = {0};
            struct gs_chunked body = {0};
            struct gs_api_error error;
            assert_int_equal(read_all(longer, strlen(longer), step, &out, &body, &error), size);
            assert_int_equal(error.status, 0);
            assert_int_equal(body.state, GS_CHUNKED_WHOLE);
            assert_string_equal(out.data, cases[i].anew);
            gs_buffer_free(&out);
        }
    }
}

/* Nothing that is damaged ends: the last chunk is not passed on. */
static void damaged_frames_are_told(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "-2\r\nab\r\n",
        "+2\r\nab\r\n",
        "0x5\r\nabcde\r\n",
        " 5\r\nabcde\r\n",
        "5 \r\nabcde\r\n",
        "\r\n",
        ";a\r\n",
        "g\r\n",
        "5\nabcde\r\n",
        "5\rabcde\r\n",
        "000000005\r\nabcde\r\n",
        "fffffffff\r\n",
        "2\r\nabc\r\n",
        "2\r\nab\n0\r\n\r\n",
        "2\r\nab\rx",
        "2;a\nb\r\nab\r\n",
        "2;\x01\r\n",
        "0\r\nTrailer: x\n\r\n",
        "0\r\n folded\r\n\r\n",
        "0\r\n\n",
        "0\r\n\rx",
        "0\r\nA: \x7f\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t step = 1; step < 20; step += 6) {
            struct gs_buffer out = {0};
            struct gs_chunked body = {0};
            struct gs_api_error error;
            read_all(cases[i], strlen(cases[i]), step, &out, &body, &error);
            assert_int_equal(error.status, 400);
            assert_string_equal(error.type, "invalid_request_error");
            assert_non_null(strstr(error.message, "the chunked body is damaged"));
            assert_null(out.data ? strstr(out.data, "0\r\n\r\n") : NULL);
            gs_buffer_free(&out);
        }
}

static int status_of_long(const char *start, size_t count, const char *end)
{
    struct gs_buffer text = {0}, out = {0};
    struct gs_chunked body = {0};
    struct gs_api_error error;
    assert_int_equal(gs_buffer_append_text(&text, start, NULL), GS_OK);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(gs_buffer_append_text(&text, "x", NULL), GS_OK);
    assert_int_equal(gs_buffer_append_text(&text, end, NULL), GS_OK);
    read_all(text.data, text.size, 1000, &out, &body, &error);
    gs_buffer_free(&text);
    gs_buffer_free(&out);
    return error.status;
}

static void what_is_passed_over_is_bounded(void **state)
{
    (void)state;
    assert_int_equal(status_of_long("1;", GS_CHUNKED_MAX_EXTENSION, "\r\na\r\n"), 0);
    assert_int_equal(status_of_long("1;", GS_CHUNKED_MAX_EXTENSION + 1, "\r\na\r\n"), 400);
    assert_int_equal(status_of_long("0\r\n", GS_CHUNKED_MAX_TRAILER, "\r\n\r\n"), 0);
    assert_int_equal(status_of_long("0\r\n", GS_CHUNKED_MAX_TRAILER / 2, "\r\n"), 0);
    assert_int_equal(status_of_long("0\r\nA: b\r\n", GS_CHUNKED_MAX_TRAILER - 3, "\r\n\r\n"), 400);
}

/* As soon as the size of a chunk is read, before its bytes. */
static void what_is_announced_is_counted(void **state)
{
    static const char frames[] = "5\r\nhello\r\na;x=y\r\n0123456789\r\nffffffff\r\n";
    struct gs_buffer out = {0};
    struct gs_chunked body = {0};
    struct gs_api_error error;
    (void)state;
    assert_int_equal(read_all(frames, 3, 1, &out, &body, &error), 3);
    assert_int_equal(body.announced, 5);
    assert_int_equal(read_all(frames + 3, strlen(frames) - 3, 2, &out, &body, &error), strlen(frames) - 3);
    assert_int_equal(error.status, 0);
    assert_int_equal(body.announced, UINT64_C(15) + 0xffffffff);
    gs_buffer_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_bodies_are_written_anew),
        cmocka_unit_test(damaged_frames_are_told),
        cmocka_unit_test(what_is_passed_over_is_bounded),
        cmocka_unit_test(what_is_announced_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
