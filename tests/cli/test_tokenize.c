/* gossamer tokenize: both directions, with only a tokenizer.json. */
#include "tests/cli/model.h"
#include "tests/cli/process.h"

#include <jansson.h>

static void test_lines(void **state)
{
    const struct cli_model *model = *state;
    static const char text[] = "Hi \"you\"\\\n\t\xE2\x80\xAE";
    struct process_result result = process_run("tokenize", model->words, text);
    assert_int_equal(result.code, 0);
    assert_string_equal(result.err, "");

    /* Every line is an id, a tab and the quoted bytes of that id; together they are the text. */
    char joined[256] = "";
    for (char *line = strtok(result.out, "\n"); line; line = strtok(NULL, "\n")) {
        char *tab = strchr(line, '\t');
        size_t size;
        assert_non_null(tab);
        assert_int_equal(tab[1], '"');
        assert_int_equal(line[strlen(line) - 1], '"');
        const char *bytes = gs_vocab_bytes(model->vocab, atoi(line), &size);
        strncat(joined, bytes, size);
        for (const char *c = tab + 1; *c; c++)
            assert_in_range((unsigned char)*c, 0x20, 0x7E);
    }
    assert_string_equal(joined, text);
    process_free(&result);
}

static void test_escapes(void **state)
{
    const struct cli_model *model = *state;
    struct process_options input = {.input = "\033\"\\\0", .input_size = 4};
    struct process_result result = process_run_as(input, "tokenize", model->words, "-");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "\\x1B"));
    assert_non_null(strstr(result.out, "\\x00"));
    process_free(&result);
    result = process_run("tokenize", model->words, "\xE2\x98\x83\xE2\x98\x84"); /* split into bytes, maybe */
    assert_int_equal(result.code, 0);
    process_free(&result);
}

static void test_ids_and_count(void **state)
{
    const struct cli_model *model = *state;
    struct gs_tokens tokens = {0};
    struct gs_error error;
    assert_ok(gs_vocab_encode(model->vocab, "one two three", 13, &tokens, &error), &error);
    char ids[256] = "", count[16];
    for (size_t i = 0; i < tokens.count; i++)
        sprintf(ids + strlen(ids), "%s%d", i ? "," : "", (int)tokens.ids[i]);
    snprintf(count, sizeof count, "%zu\n", tokens.count);
    process_expect(process_run("tokenize", "--count", model->words, "one two three"), count);
    process_expect(process_run("tokenize", model->words, "--decode", ids), "one two three");
    strcat(ids, "\n");
    process_expect(process_run("tokenize", model->words, "--ids", "one two three"), ids);
    process_expect(process_run("tokenize", TOKENIZER, "--ids", "one two three"), ids);
    struct process_options input = {.input = ids, .input_size = strlen(ids)};
    process_expect(process_run_as(input, "tokenize", model->words, "--decode", "-"), "one two three");
    gs_tokens_free(&tokens);
    process_expect(process_run("tokenize", model->words, ""), "");
    process_expect(process_run("tokenize", model->words, "", "--count"), "0\n");
    process_expect(process_run("tokenize", model->words, "", "--ids"), "\n");
}

static void test_special(void **state)
{
    const struct cli_model *model = *state;
    char expected[64], id[16];
    snprintf(id, sizeof id, "%d", (int)gs_vocab_special(model->vocab, "<|end|>"));
    snprintf(expected, sizeof expected, "%s\t\"<|end|>\"\n", id);
    process_expect(process_run("tokenize", model->words, "--special", "<|end|>"), expected);
    process_expect(process_run("tokenize", model->words, "--decode", id), "<|end|>");
    struct process_result literal = process_run("tokenize", model->words, "<|end|>");
    assert_null(strstr(literal.out, expected));
    process_free(&literal);
}

/* A token of one byte that is no character alone. */
static void test_bytes(void **state)
{
    const struct cli_model *model = *state;
    for (int32_t id = 0; id < (int32_t)gs_vocab_size(model->vocab); id++) {
        size_t size;
        const char *bytes = gs_vocab_bytes(model->vocab, id, &size);
        if (!bytes || size != 1 || (unsigned char)bytes[0] != 0xE2)
            continue;
        char text[16];
        snprintf(text, sizeof text, "%d", (int)id);
        process_expect(process_run("tokenize", model->words, "--decode", text), "\xEF\xBF\xBD");
        process_expect(process_run("tokenize", model->words, "--decode", text, "--bytes"), "\xE2");
        return;
    }
    fail_msg("the vocabulary has no token of the byte E2");
}

/* TOKENIZER with one more token, "<" c ">". */
static void write_tokenizer(const char *path, const char *character, size_t id)
{
    json_t *root = json_load_file(TOKENIZER, JSON_ALLOW_NUL, NULL);
    assert_non_null(root);
    json_t *added = json_object_get(root, "added_tokens");
    json_t *token = json_deep_copy(json_array_get(added, 0));
    char text[16];
    snprintf(text, sizeof text, "<%s>", character);
    json_object_set_new(token, "id", json_integer((json_int_t)id));
    json_object_set_new(token, "content", json_string(text));
    json_array_append_new(added, token);
    assert_int_equal(json_dump_file(root, path, JSON_COMPACT), 0);
    json_decref(root);
}

/* Characters that a terminal would not show, or that would move others, are escaped; the rest is not. */
static void test_hidden_characters(void **state)
{
    const struct cli_model *model = *state;
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"\xE2\x80\x8E", "\\xE2\\x80\\x8E"},
        {"\xE2\x80\x8F", "\\xE2\\x80\\x8F"},
        {"\xD8\x9C", "\\xD8\\x9C"},
        {"\xE2\x80\xAA", "\\xE2\\x80\\xAA"},
        {"\xE2\x80\xAE", "\\xE2\\x80\\xAE"},
        {"\xE2\x81\xA6", "\\xE2\\x81\\xA6"},
        {"\xE2\x81\xA9", "\\xE2\\x81\\xA9"},
        {"\xE2\x80\xA8", "\\xE2\\x80\\xA8"},
        {"\xE2\x80\xA9", "\\xE2\\x80\\xA9"},
        {"\xEF\xBB\xBF", "\\xEF\\xBB\\xBF"},
        {"\xC2\x80", "\\xC2\\x80"},
        {"\xC2\x9F", "\\xC2\\x9F"},
        {"\x7F", "\\x7F"},
        {"\x1F", "\\x1F"},
        {"\xC2\xA0", "\xC2\xA0"},
        {"\xE2\x80\x8D", "\xE2\x80\x8D"},
        {"\xE2\x80\xAF", "\xE2\x80\xAF"},
        {"\xE2\x81\xAA", "\xE2\x81\xAA"},
        {"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80"},
    };
    struct test_path path = test_path_join(model->root, "hidden.json");
    size_t id = gs_vocab_size(model->vocab);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[16], expected[64];
        write_tokenizer(path.text, cases[i].text, id);
        snprintf(text, sizeof text, "<%s>", cases[i].text);
        snprintf(expected, sizeof expected, "%zu\t\"<%s>\"\n", id, cases[i].shown);
        process_expect(process_run("tokenize", path.text, "--special", text), expected);
    }
    unlink(path.text);
}

/* 64 MiB are read, and not a byte more. The file is all zeros, which are no ids. */
static void test_largest_input(void **state)
{
    const struct cli_model *model = *state;
    struct test_path path = test_path_join(model->root, "large");
    const char *words = model->words;
    test_file_write(path.text, "", 0);
    assert_int_equal(truncate(path.text, (64 << 20) + 1), 0);
    process_refuses(process_run("tokenize", words, "-f", path.text, "--count"),
                    "large: more than 64 MiB, which no context holds");
    struct process_options input = {.in_path = path.text};
    process_refuses(process_run_as(input, "tokenize", words, "--decode", "-"),
                    "standard input: more than 64");
    assert_int_equal(truncate(path.text, 64 << 20), 0);
    process_refuses(process_run_as(input, "tokenize", words, "--decode", "-"), "a NUL byte among the ids");
    unlink(path.text);
}

static void test_refusals(void **state)
{
    const struct cli_model *model = *state;
    const char *words = model->words;
    process_refuses(process_run("tokenize", words), "no text: give one of TEXT, -f FILE, or -");
    process_refuses(process_run("tokenize", words, "x", "-f", "y"), "more than one text");
    process_refuses(process_run("tokenize", words, "--decode", "1,99999999"), "no token has the id 99999999");
    process_refuses(process_run("tokenize", words, "--decode", "99999999", "--bytes"),
                    "the id 99999999: the highest is");
    process_refuses(process_run("tokenize", words, "--decode", "1;2"), "\"1;2\" is not a whole number");
    process_refuses(process_run("tokenize", words, "--decode", "-5"), "\"-5\"");
    process_refuses(process_run("tokenize", words, "--decode", "12345678901234567"), "is not a token id");
    process_refuses(process_run("tokenize", words, "--decode", "1", "text"), "--decode takes ids");
    process_refuses(process_run("tokenize", words, "--decode", "1", "--count"), "--decode takes ids");
    process_refuses(process_run("tokenize", words, "x", "--bytes"), "--bytes needs --decode");
    process_refuses(process_run("tokenize", words, "x", "--ids", "--count"), "give one of them");
    process_refuses(process_run("tokenize", model->root, "x"), "tokenizer.json");
    process_refuses(process_run("tokenize", "/no/folder", "x"), "/no/folder");
    struct test_path broken = test_path_join(model->root, "broken.json");
    test_file_write(broken.text, "{\"model\":", 9);
    process_refuses(process_run("tokenize", broken.text, "x"), "broken.json");
    struct process_options nul = {.input = "1\0"
                                           "2",
                                  .input_size = 3};
    process_refuses(process_run_as(nul, "tokenize", words, "--decode", "-"), "a NUL byte");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),         cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_ids_and_count), cmocka_unit_test(test_special),
        cmocka_unit_test(test_bytes),         cmocka_unit_test(test_hidden_characters),
        cmocka_unit_test(test_largest_input), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, cli_model_setup, cli_model_teardown);
}
