/* What is left of a model's text on a terminal, whole and cut anywhere. */
#include "cli/clean.c"
#include "tests/support/check.h"

/* Feeds `text` in pieces of `piece` bytes and compares. */
static void check_cut(const char *text, size_t size, const char *expected, size_t piece)
{
    struct gs_cleaner cleaner = {0};
    struct gs_buffer out = {0};
    struct gs_error error;
    assert_ok(gs_buffer_append(&out, "", 0, &error), &error);
    for (size_t at = 0; at < size; at += piece) {
        size_t n = size - at < piece ? size - at : piece;
        assert_ok(gs_cleaner_feed(&cleaner, text + at, n, &out, &error), &error);
    }
    assert_ok(gs_cleaner_finish(&cleaner, &out, &error), &error);
    assert_string_equal(out.data, expected);
    assert_int_equal(out.size, strlen(expected));
    gs_buffer_free(&out);
}

static void check_clean(const char *text, const char *expected)
{
    for (size_t piece = 1; piece <= strlen(text) + 1; piece++)
        check_cut(text, strlen(text), expected, piece);
}

static void test_text_stays(void **state)
{
    (void)state;
    check_clean("", "");
    check_clean("plain\n\ttext \xC3\xA9 \xE6\x97\xA5\xE6\x9C\xAC \xF0\x9F\x91\x8B\xF0\x9F\x8F\xBD [31m]",
                "plain\n\ttext \xC3\xA9 \xE6\x97\xA5\xE6\x9C\xAC \xF0\x9F\x91\x8B\xF0\x9F\x8F\xBD [31m]");
    check_clean("\xD7\xA9\xE2\x80\x8F\xD9\x85", "\xD7\xA9\xE2\x80\x8F\xD9\x85"); /* a right-to-left mark */
}

static void test_controls_go(void **state)
{
    (void)state;
    check_clean("a\r\nb\x08\x07\x0B\x0C\x0E\x01z\x7F!", "a\nbz!");
    check_clean("a\xC2\x80\xC2\x85\xC2\x84!", "a!");
    check_clean("x\xE2\x80\xAA\xE2\x80\xAE\xE2\x81\xA6\xE2\x81\xA9y", "xy");
    check_cut("a\0b", 3, "ab", 1);
}

static void test_sequences_go(void **state)
{
    (void)state;
    check_clean("\033[31mred\033[0m", "red");
    check_clean("a\033[2J\033[1;1Hb\033[?25lc", "abc");
    check_clean("a\033]0;title\007b", "ab");
    check_clean("a\033]52;c;QUJD\033\\b", "ab");
    check_clean("a\033]8;;http://x\xC2\x9C"
                "b",
                "ab");
    check_clean("a\xC2\x9B"
                "31mb\xC2\x9D"
                "0;t\007c\xC2\x90q\033\\d",
                "abcd");
    check_clean("a\033Pq#0\033\\b\033_app\033\\c\033^pm\033\\d\033Xsos\033\\e", "abcde");
    check_clean("a\033cb\033(Bc\0337d", "abcd");
    check_clean("a\033", "a");
    check_clean("a\033[", "a");
    check_clean("a\033\033[1mb", "ab");
    check_clean("a\033[1\033[2mb", "ab");
    check_clean("a\033]x\033[31mb", "ab"); /* a sequence in a string ends the string */
    check_clean("a\033[3\030b\033]t\032c", "abc");
    check_clean("\033[\xE6\x97\xA5", "\xE6\x97\xA5"); /* no terminal reads on over it */
}

static void test_unfinished_string_ends(void **state)
{
    (void)state;
    check_clean("a\033]0;title\nb", "a\nb");
    char text[6000];
    memset(text, 'x', sizeof text);
    memcpy(text, "\033]", 2);
    struct gs_cleaner cleaner = {0};
    struct gs_buffer out = {0};
    struct gs_error error;
    assert_ok(gs_cleaner_feed(&cleaner, text, sizeof text, &out, &error), &error);
    assert_in_range(out.size, sizeof text - 4200, sizeof text - 4000);
    gs_buffer_free(&out);
}

static void test_ill_formed_text(void **state)
{
    (void)state;
    check_clean("a\xFF"
                "b",
                "a\xEF\xBF\xBD"
                "b");
    check_clean("a\x9B"
                "31m",
                "a\xEF\xBF\xBD"
                "31m");
    check_clean("\xE2\x82", "\xEF\xBF\xBD");
    check_clean("\xE2\x82"
                "A\xE2"
                "BC",
                "\xEF\xBF\xBD"
                "A\xEF\xBF\xBD"
                "BC");
    check_clean("\xE2\x1B[1mA", "\xEF\xBF\xBD"
                                "A");
    check_clean("\xF0\x9F\xE2\x82\xAC", "\xEF\xBF\xBD\xE2\x82\xAC");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_stays),      cmocka_unit_test(test_controls_go),
        cmocka_unit_test(test_sequences_go),    cmocka_unit_test(test_unfinished_string_ends),
        cmocka_unit_test(test_ill_formed_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
