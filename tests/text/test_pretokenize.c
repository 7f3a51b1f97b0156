#include "text/pretokenize.h"

#include "base/utf8.h"
#include "tests/text/support_text.h"
#include "text/unicode_tables.h"

static void check_pieces(const char *text, size_t size, const json_t *pieces)
{
    size_t start = 0, n = 0;
    for (; start < size; n++) {
        size_t end = gs_pretokenize_next(text, size, start);
        const json_t *piece = json_array_get(pieces, n);
        assert_non_null(piece);
        assert_int_equal(end - start, json_string_length(piece));
        assert_memory_equal(text + start, json_string_value(piece), end - start);
        start = end;
    }
    assert_int_equal(n, json_array_size(pieces));
}

static void test_vectors(void **state)
{
    (void)state;
    json_t *list = load_json("tests/data/text/vectors.json");
    assert_true(json_array_size(list) > 20);
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *entry = json_array_get(list, i), *text = json_object_get(entry, "text");
        check_pieces(json_string_value(text), json_string_length(text), json_object_get(entry, "pieces"));
    }
    json_decref(list);
}

/* Cases that the vectors lack, by the size of their first piece. */
static void test_boundaries(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t first; /* bytes of the first piece */
    } firsts[] = {
        {"\xC7\x85"
         "a\xC7\x85",
         3},
        {"\xCC\x81"
         "AB",
         2},
        {"\xCC\x81"
         "aB",
         3},
        {"A\xCC\x81"
         "B",
         3},
        {"\xE4\xB8\xAD"
         "AB",
         3},
        {"\xE4\xB8\xAD"
         "ABc",
         6},
        {"a'\xC5\xBF't", 4},
        {"a'r", 1},
        {"a'Ll", 4},
        {" \xE2\x80\x8F"
         "a",
         4},
        {"\xC2\x85"
         "a",
         3},
        {"  a", 1},
        {"  ", 2},
        {" \n a", 2},
        {"\r\n\r", 3},
        {"1234", 3},
        {"!\n/\r/a", 5},
        {"\nabc", 1},
        {"\xF3\xA0\x84\x80"
         "a",
         5},
    };
    for (size_t i = 0; i < sizeof(firsts) / sizeof(*firsts); i++) {
        size_t end = gs_pretokenize_next(firsts[i].text, strlen(firsts[i].text), 0);
        if (end != firsts[i].first)
            fail_msg("case %zu: the first piece has %zu bytes, expected %zu", i, end, firsts[i].first);
    }
}

/* Pieces tile any text, and end between characters. */
static void test_tiles(void **state)
{
    (void)state;
    uint32_t random = 7;
    for (int round = 0; round < 3000; round++) {
        char text[256];
        size_t size = 0;
        while (size < 200) {
            uint32_t c = next_random(&random) % (next_random(&random) % 4 == 0 ? 0x110000 : 0x500);
            if (c < 0xD800 || c > 0xDFFF)
                size += gs_utf8_encode(c, text + size);
        }
        for (size_t start = 0; start < size;) {
            size_t end = gs_pretokenize_next(text, size, start);
            assert_true(end > start && end <= size);
            assert_true(gs_utf8_valid(text + start, end - start));
            start = end;
        }
    }
}

static void test_classes(void **state)
{
    (void)state;
    assert_int_equal(gs_unicode_class('a'), GS_CLASS_LOWER | GS_CLASS_LETTER);
    assert_int_equal(gs_unicode_class('Z'), GS_CLASS_UPPER | GS_CLASS_LETTER);
    assert_int_equal(gs_unicode_class('\n'), GS_CLASS_SPACE | GS_CLASS_NEWLINE);
    assert_int_equal(gs_unicode_class(0x85), GS_CLASS_SPACE);
    assert_int_equal(gs_unicode_class(0x200B), 0);
    assert_int_equal(gs_unicode_class(0x4E00), GS_CLASS_UPPER | GS_CLASS_LOWER | GS_CLASS_LETTER);
    assert_int_equal(gs_unicode_class(0x0301), GS_CLASS_UPPER | GS_CLASS_LOWER);
    assert_int_equal(gs_unicode_class(0xBD), GS_CLASS_NUMBER);
    assert_int_equal(gs_unicode_class(0x295), GS_CLASS_LOWER | GS_CLASS_LETTER);  /* Lo from Unicode 17 on */
    assert_int_equal(gs_unicode_class(0x1C89), GS_CLASS_UPPER | GS_CLASS_LETTER); /* new in 16 */
    assert_int_equal(gs_unicode_class(0x88F), 0);                                 /* new in 17 */
    assert_int_equal(gs_unicode_class(0xE0100), GS_CLASS_UPPER | GS_CLASS_LOWER);
    assert_int_equal(gs_unicode_class(0xE01F0), 0);
    assert_int_equal(gs_unicode_class(0x10FFFF), 0);
    for (uint32_t c = 0; c < 128; c++) {
        uint64_t word = gs_unicode_words[(uint32_t)gs_unicode_blocks[0] << 3 | c >> 4];
        assert_int_equal(gs_unicode_ascii[c], gs_unicode_masks[word >> ((c & 15) * 4) & 7]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_boundaries),
        cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
