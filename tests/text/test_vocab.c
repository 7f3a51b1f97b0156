#include "tests/support/files.h"
#include "tests/text/support_text.h"

#include <sys/stat.h>

static void test_o200k_vectors(void **state)
{
    (void)state;
    struct gs_vocab *vocab = open_o200k();
    check_goldens(vocab, "tests/data/text/vectors.json", false, "ids_ordinary");
    check_goldens(vocab, "tests/data/text/vectors.json", true, "ids_hf_with_specials");
    gs_vocab_close(vocab);
}

static void test_o200k_ids(void **state)
{
    (void)state;
    struct gs_vocab *vocab = open_o200k();
    size_t size;
    assert_int_equal(gs_vocab_size(vocab), 200019);
    assert_int_equal(gs_vocab_special(vocab, "<|return|>"), 200002);
    assert_int_equal(gs_vocab_special(vocab, "<|endofprompt|>"), 200018);
    assert_int_equal(gs_vocab_special(vocab, "<|Return|>"), -1);
    assert_true(gs_vocab_is_special(vocab, 199998));
    assert_false(gs_vocab_is_special(vocab, 199997));
    assert_memory_equal(gs_vocab_bytes(vocab, 9552, &size), " \xF0\x9F", 3);
    assert_int_equal(size, 3);
    assert_non_null(gs_vocab_bytes(vocab, 72056, &size));
    assert_int_equal(size, 128);
    assert_null(gs_vocab_bytes(vocab, 200019, &size));
    assert_null(gs_vocab_bytes(vocab, -1, &size));
    gs_vocab_close(vocab);
}

static void test_ranks(void **state)
{
    (void)state;
    struct gs_vocab *vocab = open_vocab("tests/data/text/ranks.json");
    check_goldens(vocab, "tests/data/text/ranks_golden.json", false, "ids_literal");
    check_goldens(vocab, "tests/data/text/ranks_golden.json", true, "ids_special");
    gs_vocab_close(vocab);
}

static void test_trained(void **state)
{
    (void)state;
    struct gs_vocab *vocab = open_vocab("tests/data/text/trained.json");
    check_goldens(vocab, "tests/data/text/trained_golden.json", false, "ids_literal");
    check_goldens(vocab, "tests/data/text/trained_golden.json", true, "ids_special");
    /* Added, but text: cut out as one token that is no special one. */
    struct gs_tokens tokens = {0};
    struct gs_error error;
    assert_ok(gs_vocab_encode_special(vocab, "tool_call", 9, &tokens, &error), &error);
    assert_int_equal(tokens.count, 1);
    assert_false(gs_vocab_is_special(vocab, tokens.ids[0]));
    assert_int_equal(gs_vocab_special(vocab, "tool_call"), -1);
    gs_tokens_free(&tokens);
    assert_true(gs_vocab_is_special(vocab, gs_vocab_special(vocab, "<|\xC3\xA9|>")));
    size_t size;
    const char *bytes = gs_vocab_bytes(vocab, gs_vocab_special(vocab, "<|\xC3\xA9|>"), &size);
    assert_int_equal(size, 6);
    assert_memory_equal(bytes, "<|\xC3\xA9|>", 6);
    gs_vocab_close(vocab);
}

/* Whatever the text holds, literal encoding yields no special id. */
static void test_literal_is_never_special(void **state)
{
    (void)state;
    static const char *const parts[] = {
        "<|end|>", "<|start|>", "<|\xC3\xA9|>", "<|message|>", "<|", "|>", "<|endo", "\xF0\x9F",
        " ",       "x",         "\n",
    };
    struct gs_vocab *vocab = open_vocab("tests/data/text/trained.json");
    struct gs_tokens tokens = {0};
    struct gs_error error = {0};
    uint32_t random = 1;
    size_t found = 0;
    for (int round = 0; round < 2000; round++) {
        char text[256] = "";
        for (int i = 0; i < 12; i++)
            strcat(text, parts[next_random(&random) % (sizeof(parts) / sizeof(*parts))]);
        tokens.count = 0;
        assert_ok(gs_vocab_encode(vocab, text, strlen(text), &tokens, &error), &error);
        for (size_t i = 0; i < tokens.count; i++)
            assert_false(gs_vocab_is_special(vocab, tokens.ids[i]));
        tokens.count = 0;
        assert_ok(gs_vocab_encode_special(vocab, text, strlen(text), &tokens, &error), &error);
        for (size_t i = 0; i < tokens.count; i++)
            found += gs_vocab_is_special(vocab, tokens.ids[i]);
    }
    assert_true(found > 2000);
    gs_tokens_free(&tokens);
    gs_vocab_close(vocab);
}

/* Appending goes on after what is there. */
static void test_appends(void **state)
{
    (void)state;
    struct gs_vocab *vocab = open_vocab("tests/data/text/ranks.json");
    struct gs_tokens tokens = {0};
    struct gs_error error = {0};
    assert_ok(gs_vocab_encode(vocab, "a", 1, &tokens, &error), &error);
    assert_ok(gs_vocab_encode(vocab, NULL, 0, &tokens, &error), &error);
    assert_ok(gs_vocab_encode(vocab, "\0", 1, &tokens, &error), &error);
    assert_int_equal(tokens.count, 2);
    assert_int_equal(tokens.ids[1], 188);
    gs_tokens_free(&tokens);
    gs_tokens_free(NULL);
    gs_vocab_close(vocab);
    gs_vocab_close(NULL);
}

static void test_paths(void **state)
{
    (void)state;
    char *folder = test_folder_make();
    struct test_path file = test_path_join(folder, "tokenizer.json"),
                     below = test_path_join(folder, "original");
    struct gs_error error = {0};
    struct gs_vocab *vocab = NULL;
    assert_int_equal(mkdir(below.text, 0777), 0);
    assert_fails(gs_vocab_open(below.text, &vocab, &error), GS_IO, "no tokenizer.json in", &error);
    assert_null(vocab);

    size_t size;
    char *text = test_file_read("tests/data/text/ranks.json", &size);
    test_file_write(file.text, text, size);
    gs_vocab_close(open_vocab(file.text));
    gs_vocab_close(open_vocab(folder));
    gs_vocab_close(open_vocab(below.text));

    test_file_write(file.text, text, size / 2);
    assert_fails(gs_vocab_open(folder, &vocab, &error), GS_MALFORMED, "tokenizer.json", &error);
    test_file_write(file.text, text, 0);
    assert_fails(gs_vocab_open(folder, &vocab, &error), GS_MALFORMED, "tokenizer.json", &error);
    struct test_path absent = test_path_join(folder, "absent.json");
    assert_fails(gs_vocab_open(absent.text, &vocab, &error), GS_IO, "absent.json", &error);
    free(text);
    test_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_o200k_vectors),
        cmocka_unit_test(test_o200k_ids),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_trained),
        cmocka_unit_test(test_literal_is_never_special),
        cmocka_unit_test(test_appends),
        cmocka_unit_test(test_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
