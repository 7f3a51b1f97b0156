#include "base/utf8.h"
#include "tests/text/support_text.h"
#include "text/vocab.h"

/* Feeds ids, appending all text to out [capacity]; every part must be valid UTF-8 and NUL-terminated. */
static size_t decode(const struct gs_vocab *vocab, const int32_t *ids, size_t count, char *out)
{
    struct gs_detokenizer *detokenizer;
    struct gs_error error = {0};
    size_t size = 0, n;
    const char *part;
    assert_ok(gs_detokenizer_open(vocab, &detokenizer, &error), &error);
    for (size_t i = 0; i <= count; i++) {
        if (i < count)
            assert_ok(gs_detokenizer_feed(detokenizer, ids[i], &part, &n, &error), &error);
        else
            assert_ok(gs_detokenizer_finish(detokenizer, &part, &n, &error), &error);
        assert_true(gs_utf8_valid(part, n));
        assert_int_equal(part[n], '\0');
        memcpy(out + size, part, n);
        size += n;
    }
    gs_detokenizer_close(detokenizer);
    return size;
}

/* Single-byte tokens, so that characters are cut everywhere. */
static size_t decode_bytes(const struct gs_vocab *vocab, const char *bytes, size_t size, char *out)
{
    int32_t ids[256];
    for (size_t i = 0; i < size; i++)
        ids[i] = (int32_t)vocab->bpe.byte_ids[(unsigned char)bytes[i]];
    return decode(vocab, ids, size, out);
}

static void test_holds_back(void **state)
{
    (void)state;
    struct gs_vocab *vocab = open_vocab("tests/data/text/trained.json");
    struct gs_detokenizer *detokenizer;
    struct gs_error error = {0};
    const char *part;
    size_t n;
    assert_ok(gs_detokenizer_open(vocab, &detokenizer, &error), &error);
    static const unsigned char heart[] = {0xF0, 0x9F, 0x92, 0x96};
    for (size_t i = 0; i < 4; i++) {
        assert_ok(gs_detokenizer_feed(detokenizer, (int32_t)vocab->bpe.byte_ids[heart[i]], &part, &n, &error),
                  &error);
        assert_int_equal(n, i < 3 ? 0 : 4);
    }
    assert_memory_equal(part, heart, 4);
    /* An id without a token changes nothing. */
    assert_ok(gs_detokenizer_feed(detokenizer, (int32_t)vocab->bpe.byte_ids[0xE4], &part, &n, &error),
              &error);
    assert_fails(gs_detokenizer_feed(detokenizer, 999999, &part, &n, &error), GS_INVALID_ARGUMENT, "999999",
                 &error);
    assert_fails(gs_detokenizer_feed(detokenizer, -1, &part, &n, &error), GS_INVALID_ARGUMENT, "-1", &error);
    /* What cannot continue the character makes it ill-formed; a special token gives its text. */
    assert_ok(gs_detokenizer_feed(detokenizer, gs_vocab_special(vocab, "<|end|>"), &part, &n, &error),
              &error);
    assert_string_equal(part, "\xEF\xBF\xBD<|end|>");
    /* The end does too, and then the detokenizer is as new. */
    assert_ok(gs_detokenizer_feed(detokenizer, (int32_t)vocab->bpe.byte_ids[0xF0], &part, &n, &error),
              &error);
    assert_ok(gs_detokenizer_finish(detokenizer, &part, &n, &error), &error);
    assert_string_equal(part, "\xEF\xBF\xBD");
    assert_ok(gs_detokenizer_feed(detokenizer, (int32_t)vocab->bpe.byte_ids[0x9F], &part, &n, &error),
              &error);
    assert_string_equal(part, "\xEF\xBF\xBD");
    assert_ok(gs_detokenizer_finish(detokenizer, &part, &n, &error), &error);
    assert_int_equal(n, 0);
    gs_detokenizer_close(detokenizer);
    gs_detokenizer_close(NULL);
    gs_vocab_close(vocab);
}

/* Maximal ill-formed parts, each one U+FFFD (written ? here). */
static void test_ill_formed(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *text;
    } cases[] = {
        {"a\xFF"
         "b",
         "a?b"},
        {"\xE2\x82", "?"},
        {"\xE2\x82"
         "a",
         "?a"},
        {"\xF0\x9F\x98", "?"},
        {"\xC0\xAF", "??"},
        {"\xED\xA0\x80", "???"},
        {"\xF4\x90\x80", "???"},
        {"\xE0\x80\x80", "???"},
        {"\xF0\x80\x80\x80", "????"},
        {"\x80\x80", "??"},
        {"\xE2\xE2\x82\xAC", "?\xE2\x82\xAC"},
    };
    struct gs_vocab *vocab = open_vocab("tests/data/text/trained.json");
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char out[64], expected[64];
        size_t n = 0, size = decode_bytes(vocab, cases[i].bytes, strlen(cases[i].bytes), out);
        for (const char *c = cases[i].text; *c; c++) {
            memcpy(expected + n, *c == '?' ? "\xEF\xBF\xBD" : c, *c == '?' ? 3 : 1);
            n += *c == '?' ? 3 : 1;
        }
        assert_int_equal(size, n);
        assert_memory_equal(out, expected, n);
    }
    gs_vocab_close(vocab);
}

/* However a text is cut into tokens, the joined parts are the same. */
static void test_chunking(void **state)
{
    (void)state;
    static const char *const parts[] = {"\xF0\x9F\x92\x96", "\xE4\xB8\xAD", "\xC3\xA9", "the", " ",
                                        "\xF0\x9F",         "\xE4",         "\xFF"};
    struct gs_vocab *vocab = open_vocab("tests/data/text/trained.json");
    struct gs_tokens whole = {0};
    uint32_t random = 9;
    for (int round = 0; round < 2000; round++) {
        char text[64] = "", one[256], other[256];
        for (int i = 0; i < 10; i++)
            strcat(text, parts[next_random(&random) % (sizeof(parts) / sizeof(*parts))]);
        size_t size = strlen(text);
        whole.count = 0;
        /* bytes one by one, and greedily the longest tokens */
        for (size_t at = 0; at < size;) {
            size_t n = size - at;
            uint32_t id;
            while ((id = gs_token_table_find(&vocab->bpe.table, text + at, n)) == GS_NO_TOKEN)
                n--;
            int32_t *grown = realloc(whole.ids, (whole.count + 1) * sizeof(*grown));
            assert_non_null(grown);
            whole.ids = grown;
            whole.ids[whole.count++] = (int32_t)id;
            at += n;
        }
        size_t n_one = decode(vocab, whole.ids, whole.count, one),
               n_other = decode_bytes(vocab, text, size, other);
        assert_int_equal(n_one, n_other);
        assert_memory_equal(one, other, n_one);
    }
    gs_tokens_free(&whole);
    gs_vocab_close(vocab);
}

static void test_o200k_heart(void **state)
{
    (void)state;
    struct gs_vocab *vocab = open_o200k();
    char out[16];
    assert_int_equal(decode(vocab, (const int32_t[]){31446, 244}, 2, out), 4);
    assert_memory_equal(out, "\xF0\x9F\x92\x96", 4);
    assert_int_equal(decode(vocab, (const int32_t[]){9552}, 1, out), 4);
    assert_memory_equal(out, " \xEF\xBF\xBD", 4);
    gs_vocab_close(vocab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_holds_back),
        cmocka_unit_test(test_ill_formed),
        cmocka_unit_test(test_chunking),
        cmocka_unit_test(test_o200k_heart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
