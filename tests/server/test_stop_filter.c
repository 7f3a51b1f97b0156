#include "server/stop_filter.h"
#include "tests/support/check.h"

#include <stdlib.h>

/* All that comes out of a text fed in pieces of `piece` bytes. */
static char *run(const struct gs_text *strings, size_t count, const char *text, size_t piece, bool *matched)
{
    struct gs_stop_filter filter = {.strings = strings, .count = count};
    struct gs_buffer out = {0};
    struct gs_error error;
    struct gs_text part;
    size_t size = strlen(text);
    assert_ok(gs_buffer_append(&out, "", 0, &error), &error);
    for (size_t at = 0; at < size; at += piece) {
        size_t n = size - at < piece ? size - at : piece;
        assert_ok(gs_stop_filter_feed(&filter, (struct gs_text){text + at, n}, &part, &error), &error);
        assert_ok(gs_buffer_append(&out, part.bytes, part.size, &error), &error);
    }
    part = gs_stop_filter_finish(&filter);
    assert_ok(gs_buffer_append(&out, part.bytes, part.size, &error), &error);
    *matched = filter.matched;
    gs_stop_filter_free(&filter);
    return out.data;
}

static void texts_end_in_front_of_the_first_stop_string(void **state)
{
    (void)state;
    const struct gs_text strings[] = {{"END", 3}, {"ENDE", 4}, {"\n\n", 2}};
    static const struct {
        const char *text, *out;
        bool matched;
    } cases[] = {
        {"", "", false},
        {"nothing here", "nothing here", false},
        {"a ENDE b", "a ", true},
        {"EN", "EN", false},
        {"ENEND", "EN", true},
        {"a\n", "a\n", false},
        {"a\n\nEND", "a", true},
        {"END", "", true},
        {"EEEEENDD", "EEEE", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t piece = 1; piece < 10; piece++) {
            bool matched;
            char *out = run(strings, 3, cases[i].text, piece, &matched);
            assert_string_equal(out, cases[i].out);
            assert_int_equal(matched, cases[i].matched);
            free(out);
        }
}

/* What cannot become a stop string any more is not held back. */
static void only_what_could_be_one_is_held(void **state)
{
    (void)state;
    const struct gs_text strings[] = {{"abcabd", 6}};
    struct gs_stop_filter filter = {.strings = strings, .count = 1};
    struct gs_error error;
    struct gs_text out;
    static const struct {
        const char *in, *out;
    } steps[] = {{"x", "x"}, {"ab", ""}, {"cab", ""}, {"c", "abc"}, {"abx", "abcabx"}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        assert_ok(gs_stop_filter_feed(&filter, gs_text_of(steps[i].in), &out, &error), &error);
        assert_int_equal(out.size, strlen(steps[i].out));
        assert_memory_equal(out.bytes, steps[i].out, out.size);
    }
    assert_int_equal(gs_stop_filter_finish(&filter).size, 0);
    gs_stop_filter_free(&filter);
}

static void without_strings_all_passes(void **state)
{
    (void)state;
    bool matched;
    char *out = run(NULL, 0, "all of it", 2, &matched);
    assert_string_equal(out, "all of it");
    assert_false(matched);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_end_in_front_of_the_first_stop_string),
        cmocka_unit_test(only_what_could_be_one_is_held),
        cmocka_unit_test(without_strings_all_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
