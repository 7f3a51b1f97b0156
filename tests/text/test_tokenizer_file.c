/* Malformed and unsupported tokenizer.json: one line, with what is wrong and what would be right. */
#include "text/tokenizer_file.h"

#include "tests/support/files.h"
#include "tests/text/support_text.h"
#include "text/vocab.h"

/* The first `find` in the small vocabulary replaced by `put`. */
struct change {
    const char *find;
    const char *put;
    gs_status status;
    const char *message;
};

static char *apply(const char *text, const char *find, const char *put)
{
    const char *at = strstr(text, find);
    if (!at)
        fail_msg("the file has no %s", find);
    char *changed = malloc(strlen(text) + strlen(put) + 1);
    assert_non_null(changed);
    sprintf(changed, "%.*s%s%s", (int)(at - text), text, put, at + strlen(find));
    return changed;
}

static void check_changes(const struct change *changes, size_t count)
{
    char *text = test_file_read("tests/data/text/ranks.json", NULL);
    struct gs_error error = {0};
    struct gs_vocab *vocab;
    for (size_t i = 0; i < count; i++) {
        char *changed = apply(text, changes[i].find, changes[i].put);
        if (changes[i].status == GS_OK) {
            assert_ok(gs_vocab_parse("name.json", changed, strlen(changed), &vocab, &error), &error);
            gs_vocab_close(vocab);
        } else {
            assert_fails(gs_vocab_parse("name.json", changed, strlen(changed), &vocab, &error),
                         changes[i].status, changes[i].message, &error);
            assert_null(vocab);
            assert_non_null(strstr(error.message, "name.json: "));
        }
        free(changed);
    }
    free(text);
}

static void test_layouts(void **state)
{
    (void)state;
    static const struct change changes[] = {
        {"\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\"}", GS_UNSUPPORTED, "NFC"},
        {"\"normalizer\":null,", "", GS_OK, NULL},
        {"\\\\p{N}{1,3}", "\\\\p{N}{1,2}", GS_UNSUPPORTED, "the o200k pattern"},
        {"Isolated", "Removed", GS_UNSUPPORTED, "pre_tokenizer"},
        {"\"invert\":false", "\"invert\":true", GS_UNSUPPORTED, "pre_tokenizer"},
        {"\"use_regex\":false", "\"use_regex\":true", GS_UNSUPPORTED, "pre_tokenizer"},
        {"\"add_prefix_space\":false", "\"add_prefix_space\":true", GS_UNSUPPORTED, "pre_tokenizer"},
        {"\"pre_tokenizer\":", "\"pre_tokeniser\":", GS_MALFORMED, "no key \"pre_tokenizer\""},
        {"\"decoder\":{\"type\":\"ByteLevel\"", "\"decoder\":{\"type\":\"WordPiece\"", GS_UNSUPPORTED,
         "WordPiece"},
        {"\"type\":\"BPE\"", "\"type\":\"Unigram\"", GS_UNSUPPORTED, "model.type is \"Unigram\""},
        {"\"type\":\"BPE\",", "", GS_MALFORMED, "no key \"model.type\""},
        {"\"dropout\":null", "\"dropout\":0.5", GS_UNSUPPORTED, "model.dropout is 0.5"},
        {"\"byte_fallback\":false", "\"byte_fallback\":true", GS_UNSUPPORTED, "byte_fallback"},
        {"\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"", GS_UNSUPPORTED,
         "end_of_word_suffix"},
        {"\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"\"", GS_OK, NULL},
        {"\"ignore_merges\":true", "\"ignore_merges\":1", GS_UNSUPPORTED, "ignore_merges"},
        {"\"lstrip\":false", "\"lstrip\":true", GS_UNSUPPORTED, "lstrip"},
        {"\"model\":", "\"modell\":", GS_MALFORMED, "no key \"model\""},
        {"\"vocab\":", "\"vocap\":", GS_MALFORMED, "no key \"vocab\""},
        {"\"merges\":", "\"merge\":", GS_MALFORMED, "no key \"merges\""},
        {"\"padding\":null", "\"model\":{}", GS_MALFORMED, "\"model\" occurs twice"},
        {"\"fuse_unk\":false", "\"type\":\"BPE\"", GS_MALFORMED, "occurs twice"},
    };
    check_changes(changes, sizeof(changes) / sizeof(*changes));
}

static void test_tokens(void **state)
{
    (void)state;
    static const struct change changes[] = {
        {"\"!\":0", "\"!\":-1", GS_MALFORMED, "whole number"},
        {"\"!\":0", "\"!\":0.5", GS_MALFORMED, "whole number"},
        {"\"!\":0", "\"!\":\"0\"", GS_MALFORMED, "must be a number"},
        {"\"!\":0", "\"!\":16777216", GS_MALFORMED, "16777215"},
        {"\"!\":0", "\"!\":16777215", GS_MALFORMED, "highest id"},
        {"\"!\":0", "\"!\":1", GS_MALFORMED, "id 1 is given to two tokens"},
        {"\"!\":0", "\"!\":0,\"\\u0021\":599", GS_MALFORMED, "given to two"},
        {"\"!\":0", "\"!\":0,\"!\":700", GS_MALFORMED, "same token \"!\""},
        {"\"!\":0", "\"!!!!!!!!!!\":0", GS_MALFORMED, "single byte 0x21"},
        {"\"!\":0", "\"! \":0", GS_MALFORMED, "stands for no byte"},
        {"\"!\":0", "\"\xE4\xB8\xAD\":0", GS_MALFORMED, "stands for no byte"},
        {"\"!\":0", "\"\xC5\x84\":0", GS_MALFORMED, "stands for no byte"},
        {"\"!\":0", "\"\":0", GS_MALFORMED, "a token of 0 bytes"},
        {"\"id\":600", "\"id\":5", GS_MALFORMED, "id 5 is given to the added token"},
        {"\"id\":600", "\"id\":601", GS_MALFORMED, "two added tokens"},
        {"\"id\":600", "\"id\":-1", GS_MALFORMED, "id -1 is not in"},
        {"\"id\":600", "\"id\":\"x\"", GS_MALFORMED, "integer \"id\""},
        {"\"id\":600", "\"id\":16000000", GS_MALFORMED, "far beyond"},
        {"<|endoftext|>", "<|startoftext|>", GS_MALFORMED, "occurs twice"},
        {"<|endoftext|>", "", GS_MALFORMED, "0 bytes"},
        {"\"merges\":[", "\"merges\":[[\"!\"],", GS_MALFORMED, "two strings"},
        {"\"merges\":[", "\"merges\":[[\"!\",\"!\",\"!\"],", GS_MALFORMED, "two strings"},
        {"\"merges\":[", "\"merges\":[[\"!\",\"zzzz\"],", GS_MALFORMED, "merges[0]: \"zzzz\" is not a token"},
        {"\"merges\":[", "\"merges\":[\"! ~\",", GS_MALFORMED, "what it makes, \"!~\""},
        {"\"merges\":[", "\"merges\":[\"!~\",", GS_MALFORMED, "no space"},
        {"\"merges\":[", "\"merges\":[\"! \",", GS_MALFORMED, "\"\" is not a token"},
        {"\"merges\":[", "\"merges\":[7,", GS_MALFORMED, "array or a string"},
        {"\"merges\":[", "\"merges\":[[\"\xC4\xA0\",\"\xC4\xA0\"],", GS_MALFORMED, "the same two tokens"},
        {"\"merges\":[", "\"merges\":[[\"\xC4\xA0\",\" \"],", GS_MALFORMED, "stands for no byte"},
    };
    check_changes(changes, sizeof(changes) / sizeof(*changes));
}

/* A file that ends anywhere is refused, and soon. */
static void test_truncation(void **state)
{
    (void)state;
    size_t size;
    char *text = test_file_read("tests/data/text/ranks.json", &size);
    while (text[size - 1] == '\n')
        size--;
    struct gs_error error = {0};
    struct gs_vocab *vocab;
    for (size_t cut = 0; cut < size; cut++)
        assert_fails(gs_vocab_parse("x", text, cut, &vocab, &error), GS_MALFORMED, "x", &error);
    assert_ok(gs_vocab_parse("x", text, size, &vocab, &error), &error);
    gs_vocab_close(vocab);
    free(text);
}

/* Any one damaged byte gives a vocabulary or an error, never more. */
static void test_damage(void **state)
{
    (void)state;
    size_t size;
    char *text = test_file_read("tests/data/text/trained.json", &size);
    struct gs_error error;
    struct gs_vocab *vocab;
    uint32_t random = 3;
    for (int round = 0; round < 3000; round++) {
        size_t at = next_random(&random) % size;
        char kept = text[at];
        text[at] = (char)next_random(&random);
        gs_status status = gs_vocab_parse("x", text, size, &vocab, &error);
        assert_true(status == GS_OK || status == GS_MALFORMED || status == GS_UNSUPPORTED);
        gs_vocab_close(vocab);
        text[at] = kept;
    }
    free(text);
}

/* Keys in another order: merges before the vocabulary, the model before the added tokens. */
static void test_key_order(void **state)
{
    (void)state;
    json_t *file = load_json("tests/data/text/trained.json"), *turned = json_object();
    json_t *model = json_object_get(file, "model"), *turned_model = json_object();
    static const char *const model_keys[] = {"merges", "vocab", "ignore_merges", "type"};
    for (size_t i = 0; i < 4; i++)
        json_object_set(turned_model, model_keys[i], json_object_get(model, model_keys[i]));
    json_object_set_new(turned, "model", turned_model);
    static const char *const keys[] = {"decoder", "pre_tokenizer", "added_tokens"};
    for (size_t i = 0; i < 3; i++)
        json_object_set(turned, keys[i], json_object_get(file, keys[i]));
    char *text = json_dumps(turned, JSON_COMPACT);
    struct gs_vocab *vocab;
    struct gs_error error = {0};
    assert_ok(gs_vocab_parse("x", text, strlen(text), &vocab, &error), &error);
    check_goldens(vocab, "tests/data/text/trained_golden.json", false, "ids_literal");
    check_goldens(vocab, "tests/data/text/trained_golden.json", true, "ids_special");
    gs_vocab_close(vocab);
    free(text);
    json_decref(turned);
    json_decref(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts), cmocka_unit_test(test_tokens),    cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_damage),  cmocka_unit_test(test_key_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
