/* src/base/base64.c: RFC 4648's vectors, all bytes, and what is no base64. */
#include "base/base64.h"

#include "tests/support/check.h"

#include <string.h>

static void test_vectors(void **state)
{
    static const char *const pairs[][2] = {{"", ""},
                                           {"f", "Zg=="},
                                           {"fo", "Zm8="},
                                           {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg=="},
                                           {"fooba", "Zm9vYmE="},
                                           {"foobar", "Zm9vYmFy"}};
    struct gs_error error;
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct gs_buffer coded = {0}, plain = {0};
        assert_ok(gs_base64_encode(pairs[i][0], strlen(pairs[i][0]), &coded, &error), &error);
        assert_string_equal(coded.data ? coded.data : "", pairs[i][1]);
        assert_ok(gs_base64_decode(coded.data, coded.size, &plain, &error), &error);
        assert_string_equal(plain.data ? plain.data : "", pairs[i][0]);
        gs_buffer_free(&coded);
        gs_buffer_free(&plain);
    }
}

static void test_every_byte_at_every_place(void **state)
{
    struct gs_error error;
    unsigned char bytes[257];
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 167 + 3);
    for (size_t size = 0; size < sizeof bytes; size++) {
        struct gs_buffer coded = {0}, plain = {0};
        assert_ok(gs_base64_encode(bytes, size, &coded, &error), &error);
        assert_int_equal(coded.size, (size + 2) / 3 * 4);
        assert_ok(gs_base64_decode(coded.data, coded.size, &plain, &error), &error);
        assert_int_equal(plain.size, size);
        if (size > 0)
            assert_memory_equal(plain.data, bytes, size);
        gs_buffer_free(&coded);
        gs_buffer_free(&plain);
    }
}

static void test_what_is_none(void **state)
{
    static const char *const bad[] = {"Z",    "Zg=",     "Zg",        "Zh==",      "Zm9=",
                                      "Z===", "====",    "Zm=v",      "Zm9v Zg==", "Zm9vZg==Zm9v",
                                      "Zm-v", "Zm\x80v", "Zm\xc3\xa9"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct gs_buffer plain = {0};
        assert_int_equal(gs_base64_decode(bad[i], strlen(bad[i]), &plain, NULL), GS_MALFORMED);
        gs_buffer_free(&plain);
    }
    struct gs_buffer plain = {0};
    assert_int_equal(gs_base64_decode("Zg\0=", 4, &plain, NULL), GS_MALFORMED);
    gs_buffer_free(&plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_every_byte_at_every_place),
        cmocka_unit_test(test_what_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
