/* Light markdown as a stream: what each form becomes, however the text is cut. */
#include "cli/markdown.c"
#include "cli/terminal.c"
#include "tests/support/check.h"

#include <stdlib.h>

/* What `text` becomes when it is fed in pieces of at most `piece` bytes (whole characters). */
static char *render(const char *text, size_t piece, int width, bool utf8)
{
    struct gs_markdown markdown = {.styled = true, .utf8 = utf8, .width = width};
    struct gs_buffer out = {0};
    struct gs_error error;
    for (size_t at = 0, size = strlen(text); at < size;) {
        size_t n = piece < size - at ? piece : size - at;
        while (at + n < size && ((unsigned char)text[at + n] & 0xC0) == 0x80)
            n++;
        assert_ok(gs_markdown_feed(&markdown, text + at, n, &out, &error), &error);
        at += n;
    }
    assert_ok(gs_markdown_finish(&markdown, &out, &error), &error);
    assert_ok(gs_buffer_append(&out, "", 0, &error), &error);
    gs_markdown_free(&markdown);
    return out.data;
}

static void becomes_at(const char *text, const char *expected, int width, bool utf8)
{
    for (size_t piece = 1; piece < 8; piece++) {
        char *out = render(text, piece, width, utf8);
        assert_string_equal(out, expected);
        free(out);
    }
}

static void becomes(const char *text, const char *expected)
{
    becomes_at(text, expected, 0, true);
}

static void plain_text_stays(void **state)
{
    (void)state;
    becomes("", "");
    becomes("Paris.", "Paris.");
    becomes("a  b\n\nc\n", "a  b\n\nc\n");
    becomes("2*3*4 = 24, 2 * 3 * 4, a_b_c, 5 < 6", "2*3*4 = 24, 2 * 3 * 4, a_b_c, 5 < 6");
    becomes("-5 degrees, #1, #hash\n1.5\n--\n>>> x", "-5 degrees, #1, #hash\n1.5\n--\n>>> x");
    becomes("* \n", "• \n");
    becomes("a \\* b \\n c \\\\", "a * b \\n c \\");
    becomes("**", "**");
    becomes("日本 é", "日本 é");
    becomes("   three", "   three");
}

static void spans(void **state)
{
    (void)state;
    becomes("a **bold** b", "a \033[1mbold\033[22m b");
    becomes("*it* **b**", "\033[3mit\033[23m \033[1mb\033[22m");
    becomes("***both***.", "\033[1m\033[3mboth\033[22m\033[23m.");
    becomes("`a * b`, `c`", "\033[36ma * b\033[39m, \033[36mc\033[39m");
    becomes("**open\nnext", "\033[1mopen\033[22m\nnext"); /* never beyond its line */
    becomes("`open\nnext", "\033[36mopen\033[39m\nnext");
    becomes("**Note:** x", "\033[1mNote:\033[22m x");
}

static void blocks(void **state)
{
    (void)state;
    becomes("# Title\ntext", "\033[1mTitle\033[22m\ntext");
    becomes("### A **b** c", "\033[1mA \033[1mb\033[22m\033[1m c\033[22m");
    becomes("- one\n* two\n  - in\n", "• one\n• two\n  • in\n");
    becomes("1. one\n12) two\n", "1. one\n12) two\n");
    becomes("> said", "\033[2m┃ \033[22msaid");
    becomes_at("---\n", "\033[2m──────────\033[22m\n", 10, true);
    becomes_at("- a\n---\n", "- a\n\033[2m-----\033[22m\n", 5, false);
}

#define BAR "\033[2m│\033[22m \033[36m"

static void code_blocks(void **state)
{
    (void)state;
    becomes("```python\nx = 1  # **no**\n\n  y\n```\nafter",
            "\033[2m╭─ python\033[22m\n" BAR "x = 1  # **no**\033[39m\n" BAR "\033[39m\n" BAR
            "  y\033[39m\n\033[2m╰─\033[22m\nafter");
    becomes("~~~\n```\n~~~", "\033[2m╭─\033[22m\n" BAR "```\033[39m\n\033[2m╰─\033[22m");
    becomes("```\nopen", "\033[2m╭─\033[22m\n" BAR "open\033[39m\n\033[2m╰─\033[22m");
    becomes("```\n``\n", "\033[2m╭─\033[22m\n" BAR "``\033[39m\n\033[2m╰─\033[22m");
    becomes("```c", "\033[2m╭─ c\033[22m\n\033[2m╰─\033[22m");
    becomes_at("```\nx\n```\n", "\033[2m+-\033[22m\n\033[2m|\033[22m \033[36mx\033[39m\n\033[2m+-\033[22m\n",
               0, false);
}

static void wrapping(void **state)
{
    (void)state;
    becomes_at("one two three four", "one two\nthree four", 10, true);
    becomes_at("- one two three", "• one two\n  three", 10, true);
    becomes_at("12. one two three", "12. one\n    two\n    three", 10, true);
    becomes_at("extraordinarily long", "extraordinarily\nlong", 10, true);
    becomes_at("a **bcd efg** h", "a \033[1mbcd\nefg\033[22m h", 6, true);
    becomes_at("> one two three", "\033[2m┃ \033[22mone two\n\033[2m┃ \033[22mthree", 10, true);
    /* Code is as wide as it is. */
    becomes_at("```\naaa bbb ccc\n```", "\033[2m╭─\033[22m\n" BAR "aaa bbb ccc\033[39m\n\033[2m╰─\033[22m", 6,
               true);
}

static void unstyled_is_untouched(void **state)
{
    (void)state;
    struct gs_markdown markdown = {.width = 4};
    struct gs_buffer out = {0};
    struct gs_error error;
    assert_ok(gs_markdown_feed(&markdown, "# a **b**\n```\nc", 15, &out, &error), &error);
    assert_ok(gs_markdown_finish(&markdown, &out, &error), &error);
    assert_string_equal(out.data, "# a **b**\n```\nc");
    gs_buffer_free(&out);
    gs_markdown_free(&markdown);
}

/* Whatever the text, however it is cut: the same, and never fewer letters than it had. */
static void any_text(void **state)
{
    static const char alphabet[] = "ab *#-`~>1. \n\\_";
    unsigned seed = 11;
    (void)state;
    for (int round = 0; round < 3000; round++) {
        char text[40];
        size_t size = 1 + (seed >> 16) % 38, letters = 0, kept = 0;
        for (size_t i = 0; i < size; i++) {
            seed = seed * 1664525u + 1013904223u;
            text[i] = alphabet[(seed >> 16) % (sizeof alphabet - 1)];
            letters += text[i] == 'a';
        }
        text[size] = '\0';
        char *whole = render(text, 100, 12, true), *pieces = render(text, 1, 12, true);
        assert_string_equal(whole, pieces);
        for (const char *at = whole; *at; at++)
            kept += *at == 'a';
        if (kept != letters)
            fail_msg("\"%s\" became \"%s\"", text, whole);
        free(whole);
        free(pieces);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_text_stays),      cmocka_unit_test(spans),    cmocka_unit_test(blocks),
        cmocka_unit_test(code_blocks),           cmocka_unit_test(wrapping), cmocka_unit_test(any_text),
        cmocka_unit_test(unstyled_is_untouched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
