/* Messages: one line, bounded, no control characters; and the small containers. */
#include "base/arena.h"
#include "base/buffer.h"
#include "base/status.h"
#include "base/utf8.h"
#include "tests/support/check.h"

static void names_are_quoted(void **state)
{
    (void)state;
    assert_string_equal(gs_quote("plain name").text, "plain name");
    assert_string_equal(gs_quote("é模").text, "é模");
    assert_string_equal(gs_quote("x\n[ERROR] fake").text, "x\\x0A[ERROR] fake");
    assert_string_equal(gs_quote("\x1b]52;c").text, "\\x1B]52;c");
    assert_string_equal(gs_quote("a\\b").text, "a\\x5Cb");
    assert_string_equal(gs_quote("\xE2\x80\xAE").text, "\\xE2\\x80\\xAE"); /* U+202E */
    assert_string_equal(gs_quote("\xC2\x85").text, "\\xC2\\x85");          /* C1 */
    assert_string_equal(gs_quote("a\xFFz").text, "a\\xFFz");
    assert_string_equal(gs_quote_bytes("a\0b", 3).text, "a\\x00b");
}

static void long_names_keep_both_ends(void **state)
{
    (void)state;
    char name[5000];
    memset(name, 'n', sizeof name);
    memcpy(name, "start", 5);
    memcpy(name + sizeof name - 3, "end", 3);
    struct gs_quoted quoted = gs_quote_bytes(name, sizeof name);
    assert_true(strlen(quoted.text) < sizeof quoted.text);
    assert_ptr_equal(strstr(quoted.text, "start"), quoted.text);
    assert_non_null(strstr(quoted.text, "..."));
    assert_string_equal(quoted.text + strlen(quoted.text) - 3, "end");
    for (size_t size = 0; size < 400; size++) { /* every length, the worst bytes: never past the end */
        char bytes[400];
        memset(bytes, 0x9F, sizeof bytes);
        assert_true(strlen(gs_quote_bytes(bytes, size).text) < sizeof quoted.text);
    }
}

static void fail_fills_and_may_nest(void **state)
{
    (void)state;
    struct gs_error error;
    assert_int_equal(gs_fail(&error, GS_MALFORMED, "byte %d", 7), GS_MALFORMED);
    gs_fail(&error, GS_MALFORMED, "file.json: %s", error.message);
    assert_string_equal(error.message, "file.json: byte 7");
    assert_int_equal(gs_fail(NULL, GS_IO, "ignored"), GS_IO);
}

static void long_messages_end_between_characters(void **state)
{
    static const char *const characters[] = {"a", "é", "模", "🜨"};
    (void)state;
    for (size_t width = 1; width <= 4; width++) {
        char text[1400] = "";
        for (size_t at = 0; at + width < sizeof text; at += width)
            memcpy(text + at, characters[width - 1], width);
        for (size_t skip = 0; skip < width; skip++) {
            struct gs_error error;
            gs_fail(&error, GS_IO, "%.*s%s", (int)skip, "abc", text);
            size_t size = strlen(error.message), room = sizeof error.message - 1;
            assert_int_equal(size, room - (room - skip) % width); /* not a whole character less */
            assert_true(gs_utf8_valid(error.message, size));
        }
    }
    char small[6];
    gs_format(small, sizeof small, "%s", "abé模");
    assert_string_equal(small, "abé");
    gs_format(small, sizeof small, "%s", "ab模"); /* fits */
    assert_string_equal(small, "ab模");
    gs_format(small, sizeof small, "%s", "ab\xE6\xA8"); /* was so before: nothing is cut */
    assert_string_equal(small, "ab\xE6\xA8");
    gs_format(small, sizeof small, "%s", "\x80\x80\x80\x80\x80\x80\x80");
    assert_int_equal(strlen(small), 5);
    gs_format(small, 1, "%s", "x");
    assert_string_equal(small, "");
}

static void buffers_grow(void **state)
{
    (void)state;
    struct gs_buffer buffer = {0};
    struct gs_error error;
    for (int i = 0; i < 1000; i++)
        assert_ok(gs_buffer_print(&buffer, &error, "%03d", i), &error);
    assert_int_equal(buffer.size, 3000);
    assert_memory_equal(buffer.data + 2997, "999", 4);
    gs_buffer_clear(&buffer);
    assert_int_equal(buffer.size, 0);
    assert_fails(gs_buffer_reserve(&buffer, SIZE_MAX - 1, &error), GS_OUT_OF_MEMORY, "out of memory", &error);
    gs_buffer_free(&buffer);
}

static void arenas_give_zeroed_aligned_memory(void **state)
{
    (void)state;
    struct gs_arena arena = {0};
    for (size_t size = 0; size < 200000; size = size * 2 + 3) {
        unsigned char *memory = gs_arena_alloc(&arena, size);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % 16, 0);
        for (size_t i = 0; i < size; i++)
            assert_int_equal(memory[i], 0);
        memset(memory, 0xAA, size);
    }
    assert_string_equal(gs_arena_copy(&arena, "abc", 2), "ab");
    assert_null(gs_arena_alloc_array(&arena, SIZE_MAX / 2, 4));
    assert_null(gs_arena_alloc(&arena, SIZE_MAX));
    gs_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_quoted),
        cmocka_unit_test(long_names_keep_both_ends),
        cmocka_unit_test(fail_fills_and_may_nest),
        cmocka_unit_test(long_messages_end_between_characters),
        cmocka_unit_test(buffers_grow),
        cmocka_unit_test(arenas_give_zeroed_aligned_memory),
    };
    return cmocka_run_group_tests_name("base/status", tests, NULL, NULL);
}
