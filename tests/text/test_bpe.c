/* Merging: against a plain implementation, and in time. */
#include "text/bpe.h"

#include "base/utf8.h"
#include "tests/text/support_text.h"
#include "text/vocab.h"

#include <time.h>

/* The definition: merge the leftmost pair of lowest rank until there is none. ids [size] shrinks to *count.
 */
static void merge_plainly(const struct gs_bpe *bpe, const char *piece, size_t size, uint32_t *ids,
                          size_t *count)
{
    for (size_t i = 0; i < size; i++)
        ids[i] = bpe->byte_ids[(unsigned char)piece[i]];
    *count = size;
    for (;;) {
        uint32_t best = GS_NO_MERGE, result = 0, made;
        size_t at = 0;
        for (size_t i = 0; i + 1 < *count; i++) {
            uint32_t rank = gs_merge_table_find(&bpe->merges, ids[i], ids[i + 1], &made);
            if (rank < best) {
                best = rank;
                result = made;
                at = i;
            }
        }
        if (best == GS_NO_MERGE)
            return;
        ids[at] = result;
        memmove(ids + at + 1, ids + at + 2, (*count - at - 2) * sizeof(*ids));
        --*count;
    }
}

/* Takes the vocabulary. */
static void check_against_plain(struct gs_vocab *vocab)
{
    vocab->bpe.ignore_merges = false;
    static const char *const alphabets[] = {"a",         "ab", "the ", "tim es\n", " =\xE4\xB8\xAD\xE5",
                                            "eraonti.,'"};
    struct gs_tokens tokens = {0};
    struct gs_error error = {0};
    uint32_t random = 5;
    char piece[600];
    uint32_t ids[600];
    for (int round = 0; round < 2000; round++) {
        const char *alphabet = alphabets[next_random(&random) % (sizeof(alphabets) / sizeof(*alphabets))];
        size_t size = 1 + next_random(&random) % (round % 4 == 0 ? sizeof(piece) : 140), count;
        for (size_t i = 0; i < size; i++)
            piece[i] = alphabet[next_random(&random) % strlen(alphabet)];
        merge_plainly(&vocab->bpe, piece, size, ids, &count);
        tokens.count = 0;
        assert_ok(gs_bpe_encode(&vocab->bpe, piece, size, &tokens, &error), &error);
        assert_int_equal(tokens.count, count);
        assert_memory_equal(tokens.ids, ids, count * sizeof(*ids));
    }
    gs_tokens_free(&tokens);
    gs_vocab_close(vocab);
}

static void test_plain_merging(void **state)
{
    (void)state;
    check_against_plain(open_vocab("tests/data/text/ranks.json"));
    check_against_plain(open_vocab("tests/data/text/trained.json"));
}

/* Long and short pieces that hold solid characters (solid.h) between neighbours of all kinds, ill-formed too.
 */
static void test_solid_characters(void **state)
{
    (void)state;
    static const char *const others[] = {" ",    "a",        "\xC3\xA9", "\xE0\xB8\x81", "\xF0\xA0\x80\x80",
                                         "\xE4", "\xE5\xBC", "\x80",     "\xAD"};
    struct gs_vocab *vocab = open_o200k();
    vocab->bpe.ignore_merges = false;
    struct gs_tokens tokens = {0};
    struct gs_error error = {0};
    uint32_t random = 21, ids[200];
    size_t n_solid = 0;
    for (uint32_t i = 0; i < GS_SOLID_END - GS_SOLID_FIRST; i++)
        n_solid += vocab->bpe.solid[i] != GS_NO_TOKEN;
    assert_true(n_solid > 1000);
    for (int round = 0; round < 20000; round++) {
        char piece[200];
        size_t size = 0, count, limit = 4 + next_random(&random) % 120;
        while (size < limit) {
            uint32_t c = 0x3000 + next_random(&random) % (round % 2 ? 0xD000 : 0x100);
            if (round % 3 == 0)
                c = 0x4E00 + next_random(&random) % 0x200;
            if (next_random(&random) % 8 == 0) {
                const char *other = others[next_random(&random) % (sizeof(others) / sizeof(*others))];
                memcpy(piece + size, other, strlen(other));
                size += strlen(other);
            } else if (c < 0xD800 || c > 0xDFFF) {
                size += gs_utf8_encode(c, piece + size);
            }
        }
        merge_plainly(&vocab->bpe, piece, size, ids, &count);
        tokens.count = 0;
        assert_ok(gs_bpe_encode(&vocab->bpe, piece, size, &tokens, &error), &error);
        assert_int_equal(tokens.count, count);
        assert_memory_equal(tokens.ids, ids, count * sizeof(*ids));
    }
    gs_tokens_free(&tokens);
    gs_vocab_close(vocab);
}

/* What a text decodes to: itself, with U+FFFD for each ill-formed part, however the bytes fell. */
static void check_round_trip(const struct gs_vocab *vocab, const char *text, size_t size)
{
    struct gs_tokens tokens = {0};
    struct gs_error error = {0};
    struct gs_detokenizer *detokenizer;
    struct gs_buffer decoded = {0}, expected = {0};
    assert_ok(gs_vocab_encode(vocab, text, size, &tokens, &error), &error);
    assert_ok(gs_detokenizer_open(vocab, &detokenizer, &error), &error);
    const char *part;
    size_t n;
    for (size_t i = 0; i < tokens.count; i++) {
        assert_ok(gs_detokenizer_feed(detokenizer, tokens.ids[i], &part, &n, &error), &error);
        assert_ok(gs_buffer_append(&decoded, part, n, &error), &error);
    }
    assert_ok(gs_detokenizer_finish(detokenizer, &part, &n, &error), &error);
    assert_int_equal(n, 0); /* tokens of one text leave no tail */

    for (size_t at = 0; at < size; at += n) {
        bool bad = gs_utf8_decode(text + at, size - at, &n) > 0x10FFFF;
        assert_ok(gs_buffer_append(&expected, bad ? "\xEF\xBF\xBD" : text + at, bad ? 3 : n, &error), &error);
    }
    assert_int_equal(decoded.size, expected.size);
    if (expected.size > 0)
        assert_memory_equal(decoded.data, expected.data, expected.size);
    gs_buffer_free(&decoded);
    gs_buffer_free(&expected);
    gs_detokenizer_close(detokenizer);
    gs_tokens_free(&tokens);
}

static void test_round_trip(void **state)
{
    (void)state;
    static const char bytes[] = "a \xE2\x82\xAC\xF0\x9F\x98\x80\xC3\xED\xA0\x80\xFF\n";
    struct gs_vocab *vocab = open_vocab("tests/data/text/trained.json");
    uint32_t random = 11;
    for (int round = 0; round < 4000; round++) {
        char text[64];
        size_t size = next_random(&random) % sizeof(text);
        for (size_t i = 0; i < size; i++)
            text[i] =
                round % 2 ? (char)next_random(&random) : bytes[next_random(&random) % (sizeof(bytes) - 1)];
        check_round_trip(vocab, text, size);
    }
    gs_vocab_close(vocab);
}

static double thread_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* 1 MB of one piece in about a quarter of a second; a quadratic loop would take minutes. */
static void check_speed(const struct gs_vocab *vocab)
{
    static const char *const units[] = {"a", " ", "=", "\n", "A", "\xE4\xB8\xAD", "\xCC\x81\x41", "'", ""};
    const size_t size = 1000000;
    char *text = malloc(size);
    assert_non_null(text);
    struct gs_tokens tokens = {0};
    struct gs_error error = {0};
    for (size_t k = 0; k < sizeof(units) / sizeof(*units); k++) {
        uint32_t random = 1;
        size_t n = strlen(units[k]);
        for (size_t i = 0; i < size; i++) /* the empty unit stands for random letters */
            text[i] = n ? units[k][i % n] : (char)('a' + next_random(&random) % 26);
        tokens.count = 0;
        double start = thread_seconds();
        assert_ok(gs_vocab_encode(vocab, text, size, &tokens, &error), &error);
        double seconds = thread_seconds() - start;
        if (seconds > 2) /* of the processor, sanitizers included */
            fail_msg("1 MB of \"%s\" took %.2f s", units[k], seconds);
        printf("  1 MB of \"%s\": %.3f s, %zu tokens\n", *units[k] == '\n' ? "\\n" : units[k], seconds,
               tokens.count);
    }
    free(text);
    gs_tokens_free(&tokens);
}

static void test_no_quadratic_time(void **state)
{
    (void)state;
    struct gs_vocab *vocab = open_vocab("tests/data/text/ranks.json");
    check_speed(vocab);
    gs_vocab_close(vocab);
}

static void test_no_quadratic_time_o200k(void **state)
{
    (void)state;
    struct gs_vocab *vocab = open_o200k();
    check_speed(vocab);
    gs_vocab_close(vocab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_merging),
        cmocka_unit_test(test_solid_characters),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_no_quadratic_time),
        cmocka_unit_test(test_no_quadratic_time_o200k),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
