/* src/base/utf8.c: every code point, every ill-formed part. */
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

/* Decodes a copy of exactly this size, so that a sanitizer sees a read past its end. */
static uint32_t decode(const char *bytes, size_t size, size_t *length)
{
    char *copy = malloc(size);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    uint32_t code_point = gs_utf8_decode(copy, size, length);
    free(copy);
    return code_point;
}

static void every_code_point_round_trips(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        if (c >= 0xD800 && c <= 0xDFFF)
            continue;
        char bytes[5] = {'x', 'x', 'x', 'x', 'x'};
        size_t expected = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4, length;
        assert_int_equal(gs_utf8_encode(c, bytes), expected);
        assert_int_equal(bytes[expected], 'x');
        assert_int_equal(gs_utf8_decode(bytes, 5, &length), c);
        assert_int_equal(length, expected);
        assert_true(gs_utf8_valid(bytes, expected));
        for (size_t cut = 1; cut < expected; cut++) {
            assert_int_equal(gs_utf8_decode(bytes, cut, &length), GS_UTF8_INCOMPLETE);
            assert_int_equal(length, cut);
            assert_false(gs_utf8_valid(bytes, cut));
        }
    }
}

/*
 * Well-formed by the definition, not by the table: the length that the first byte announces, continuation
 * bytes, and the shortest form of a code point that is no surrogate.
 */
static bool is_well_formed(const unsigned char *s, size_t size, size_t *length)
{
    uint32_t c;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    *length = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    if (*length == 0 || *length > size)
        return false;
    c = *length == 1 ? s[0] : s[0] & (0x7Fu >> *length);
    for (size_t i = 1; i < *length; i++) {
        if (s[i] >> 6 != 2)
            return false;
        c = c << 6 | (s[i] & 0x3F);
    }
    return c >= least[*length] && c <= 0x10FFFF && !(c >= 0xD800 && c <= 0xDFFF);
}

/* Can these bytes be the start of a well-formed sequence of four or fewer? Tries the continuations. */
static bool is_prefix(const unsigned char *s, size_t size)
{
    unsigned char whole[4] = {0};
    memcpy(whole, s, size);
    size_t wanted = s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    if (wanted <= size)
        return false;
    for (unsigned next = 0x80; next < 0xC0; next++) {
        memset(whole + size, 0x80, 4 - size);
        whole[size] = (unsigned char)next;
        size_t length;
        if (is_well_formed(whole, 4, &length))
            return true;
    }
    return false;
}

/* Bytes that stand for all: the borders of the ranges of table 3-7. */
static const unsigned char borders[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF,
                                        0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE,
                                        0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xF8, 0xFF};
#define N_BORDER sizeof borders

/* All sequences of up to four such bytes: the part is the longest prefix that could still become something.
 */
static void every_ill_formed_part(void **state)
{
    (void)state;
    for (size_t n = 0; n < N_BORDER * N_BORDER * N_BORDER * N_BORDER; n++) {
        unsigned char s[4] = {borders[n % N_BORDER], borders[n / N_BORDER % N_BORDER],
                              borders[n / N_BORDER / N_BORDER % N_BORDER],
                              borders[n / N_BORDER / N_BORDER / N_BORDER]};
        for (size_t size = 1; size <= 4; size++) {
            size_t length, expected;
            uint32_t c = gs_utf8_decode((const char *)s, size, &length);
            if (is_well_formed(s, size, &expected)) {
                assert_true(c <= 0x10FFFF);
                assert_int_equal(length, expected);
                continue;
            }
            size_t part = 1;
            while (part < size && is_prefix(s, part) && (is_prefix(s, part + 1)))
                part++;
            bool incomplete = part == size && is_prefix(s, size);
            assert_int_equal(c, incomplete ? GS_UTF8_INCOMPLETE : GS_UTF8_INVALID);
            assert_int_equal(length, part);
        }
    }
}

static void parts_of_longer_texts(void **state)
{
    (void)state;
    /* The example of Unicode's table 3-8: the parts of E1 80 E2 F0 91 92 F1 BF 41. */
    static const char text[] = "\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                               "A";
    static const size_t parts[] = {2, 1, 3, 2, 1};
    size_t at = 0;
    for (size_t i = 0; i < 5; i++) {
        size_t length;
        uint32_t c = decode(text + at, sizeof text - 1 - at, &length);
        assert_int_equal(c, i == 4 ? 'A' : GS_UTF8_INVALID);
        assert_int_equal(length, parts[i]);
        at += length;
    }
    static const char *const one_each[] = {"\xC0\xAF",     "\xE0\x80\xBF", "\xF0\x81\x82\x41",
                                           "\xED\xA0\x80", "\xF4\x90",     "\xF5\x80",
                                           "\xFF",         "\x80",         "\xC1\xBF"};
    for (size_t i = 0; i < sizeof one_each / sizeof one_each[0]; i++) {
        size_t length;
        assert_int_equal(decode(one_each[i], strlen(one_each[i]), &length), GS_UTF8_INVALID);
        assert_int_equal(length, 1);
        assert_false(gs_utf8_valid(one_each[i], strlen(one_each[i])));
    }
}

static void valid_texts(void **state)
{
    (void)state;
    assert_true(gs_utf8_valid("", 0));
    assert_true(gs_utf8_valid("a\0b", 3));
    assert_true(gs_utf8_valid("\xC3\xA9\xE6\xA8\xA1\xF0\x9F\x98\x80", 9));
    assert_true(gs_utf8_valid("\xEF\xBF\xBE\xF4\x8F\xBF\xBF", 7)); /* noncharacters are characters here */
    assert_false(gs_utf8_valid("ok\xC3", 3));
    assert_false(gs_utf8_valid("\xC3\xA9\x80", 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point_round_trips),
        cmocka_unit_test(every_ill_formed_part),
        cmocka_unit_test(parts_of_longer_texts),
        cmocka_unit_test(valid_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
