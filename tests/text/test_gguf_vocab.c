/* The vocabulary of a GGUF: the same as that of the tokenizer.json it was made from, and every refusal. */
#include "tests/support/check.h"
#include "tests/support/files.h"
#include "tests/support/tiny_gguf.h"
#include "text/vocab.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define TOKENIZER "models/demo/tokenizer.json"

/* ---------------------------------------------------------------- making one */

struct vocabulary {
    size_t count;
    const char **texts; /* [count] */
    size_t *sizes;
    uint32_t *kinds;
    char **merges; /* [n_merge] */
    size_t n_merge;
    json_t *root; /* owns the texts */
};

static void set_token(struct vocabulary *v, json_int_t id, const json_t *text, uint32_t kind)
{
    assert_true(id >= 0 && (size_t)id < v->count);
    v->texts[id] = json_string_value(text);
    v->sizes[id] = json_string_length(text);
    v->kinds[id] = kind;
}

/* The demo tokenizer with room for `extra` unused ids. */
static struct vocabulary load(size_t extra)
{
    struct vocabulary v = {.root = json_load_file(TOKENIZER, JSON_ALLOW_NUL, NULL)};
    const char *key;
    json_t *value;
    size_t i;
    assert_non_null(v.root);
    json_t *model = json_object_get(v.root, "model"), *vocab = json_object_get(model, "vocab");
    json_t *added = json_object_get(v.root, "added_tokens"), *merges = json_object_get(model, "merges");
    v.count = json_object_size(vocab) + json_array_size(added) + extra;
    v.texts = calloc(v.count, sizeof *v.texts);
    v.sizes = calloc(v.count, sizeof *v.sizes);
    v.kinds = calloc(v.count, sizeof *v.kinds);
    v.n_merge = json_array_size(merges);
    v.merges = calloc(v.n_merge + 1, sizeof *v.merges);
    assert_true(v.texts && v.sizes && v.kinds && v.merges);
    for (i = 0; i < v.count; i++) {
        v.texts[i] = "[PAD]";
        v.sizes[i] = 5;
        v.kinds[i] = 5;
    }
    json_object_foreach(vocab, key, value)
    {
        json_int_t id = json_integer_value(value);
        v.texts[id] = key;
        v.sizes[id] = strlen(key);
        v.kinds[id] = 1;
    }
    json_array_foreach(added, i, value)
        set_token(&v, json_integer_value(json_object_get(value, "id")), json_object_get(value, "content"), 3);
    json_array_foreach(merges, i, value)
    {
        char pair[2000];
        if (json_is_string(value))
            snprintf(pair, sizeof pair, "%s", json_string_value(value));
        else
            snprintf(pair, sizeof pair, "%s %s", json_string_value(json_array_get(value, 0)),
                     json_string_value(json_array_get(value, 1)));
        v.merges[i] = strdup(pair);
    }
    return v;
}

static void release(struct vocabulary *v)
{
    for (size_t i = 0; i < v->n_merge; i++)
        free(v->merges[i]);
    free(v->merges);
    free(v->texts);
    free(v->sizes);
    free(v->kinds);
    json_decref(v->root);
}

static void put_kinds(struct gguf_file *file, const struct vocabulary *v, size_t count)
{
    gguf_array(file, "tokenizer.ggml.token_type", GS_GGUF_I32, count);
    gguf_put(&file->entries, v->kinds, count * sizeof *v->kinds);
}

static void put_lists(struct gguf_file *file, const struct vocabulary *v)
{
    gguf_array(file, "tokenizer.ggml.tokens", GS_GGUF_STRING, v->count);
    for (size_t i = 0; i < v->count; i++)
        gguf_put_text(&file->entries, v->texts[i], v->sizes[i]);
    gguf_array(file, "tokenizer.ggml.merges", GS_GGUF_STRING, v->n_merge);
    for (size_t i = 0; i < v->n_merge; i++)
        gguf_put_text(&file->entries, v->merges[i], strlen(v->merges[i]));
}

static struct gguf_file begin(const char *model, const char *pre)
{
    struct gguf_file file = {0};
    gguf_text(&file, "general.architecture", "gpt-oss");
    if (model)
        gguf_text(&file, "tokenizer.ggml.model", model);
    if (pre)
        gguf_text(&file, "tokenizer.ggml.pre", pre);
    return file;
}

static struct gs_buffer make(const struct vocabulary *v)
{
    struct gguf_file file = begin("gpt2", "gpt-4o");
    put_lists(&file, v);
    put_kinds(&file, v, v->count);
    return gguf_finish(&file);
}

static struct gs_vocab *parse(struct gs_buffer *bytes)
{
    struct gs_vocab *vocab;
    struct gs_error error;
    assert_ok(gs_vocab_parse("v.gguf", bytes->data, bytes->size, &vocab, &error), &error);
    gs_buffer_free(bytes);
    return vocab;
}

/* Takes the file. */
static void refuse(struct gs_buffer bytes, gs_status status, const char *part)
{
    struct gs_vocab *vocab;
    struct gs_error error;
    assert_fails(gs_vocab_parse("v.gguf", bytes.data, bytes.size, &vocab, &error), status, part, &error);
    assert_null(vocab);
    gs_buffer_free(&bytes);
}

/* ---------------------------------------------------------------- tests */

static void same_tokens_as_the_json(void **state)
{
    (void)state;
    struct vocabulary v = load(50);
    struct gs_buffer bytes = make(&v);
    struct gs_vocab *ours = parse(&bytes), *json;
    struct gs_error error;
    assert_ok(gs_vocab_open(TOKENIZER, &json, &error), &error);
    assert_int_equal(gs_vocab_size(ours), gs_vocab_size(json));
    for (int32_t id = 0; id < (int32_t)v.count + 10; id++) {
        size_t a_size, b_size;
        const char *a = gs_vocab_bytes(ours, id, &a_size), *b = gs_vocab_bytes(json, id, &b_size);
        assert_int_equal(a_size, b_size);
        assert_true((a == NULL) == (b == NULL));
        if (a)
            assert_memory_equal(a, b, a_size);
        assert_int_equal(gs_vocab_is_special(ours, id), gs_vocab_is_special(json, id));
    }
    assert_int_equal(gs_vocab_special(ours, "<|channel|>"), gs_vocab_special(json, "<|channel|>"));
    assert_true(gs_vocab_special(ours, "<|channel|>") > 0);

    size_t size;
    char *text = test_file_read("tests/text/test_gguf_vocab.c", &size);
    struct gs_tokens a = {0}, b = {0};
    for (size_t from = 0; from + 700 < size; from += 331) {
        a.count = b.count = 0;
        assert_ok(gs_vocab_encode_special(ours, text + from, 700, &a, &error), &error);
        assert_ok(gs_vocab_encode_special(json, text + from, 700, &b, &error), &error);
        assert_int_equal(a.count, b.count);
        assert_memory_equal(a.ids, b.ids, a.count * sizeof *a.ids);
    }
    gs_tokens_free(&a);
    gs_tokens_free(&b);
    free(text);
    gs_vocab_close(ours);
    gs_vocab_close(json);
    release(&v);
}

static void user_defined_tokens_are_text(void **state)
{
    (void)state;
    struct vocabulary v = load(1);
    struct gs_error error;
    size_t last = v.count - 1;
    v.texts[last] = "<mine>";
    v.sizes[last] = 6;
    v.kinds[last] = 4;
    struct gs_buffer bytes = make(&v);
    struct gs_vocab *vocab = parse(&bytes);
    struct gs_tokens tokens = {0};
    assert_int_equal(gs_vocab_size(vocab), v.count);
    assert_false(gs_vocab_is_special(vocab, (int32_t)last));
    assert_int_equal(gs_vocab_special(vocab, "<mine>"), -1);
    assert_ok(gs_vocab_encode_special(vocab, "<mine>", 6, &tokens, &error), &error);
    assert_true(tokens.count == 1 && tokens.ids[0] == (int32_t)last);
    gs_tokens_free(&tokens);
    gs_vocab_close(vocab);
    release(&v);
}

static void paths(void **state)
{
    (void)state;
    struct vocabulary v = load(0);
    struct gs_buffer bytes = make(&v);
    struct gs_vocab *vocab;
    struct gs_error error;
    char *folder = test_folder_make();
    assert_fails(gs_vocab_open(folder, &vocab, &error), GS_IO, "no tokenizer.json in", &error);
    test_file_write(test_path_join(folder, "a.gguf").text, bytes.data, bytes.size);
    assert_ok(gs_vocab_open(folder, &vocab, &error), &error);
    gs_vocab_close(vocab);
    assert_ok(gs_vocab_open(test_path_join(folder, "a.gguf").text, &vocab, &error), &error);
    gs_vocab_close(vocab);
    test_file_write(test_path_join(folder, "b.gguf").text, "GGUF", 4);
    assert_fails(gs_vocab_open(folder, &vocab, &error), GS_IO, "no tokenizer.json in", &error);
    assert_fails(gs_vocab_open(test_path_join(folder, "b.gguf").text, &vocab, &error), GS_MALFORMED,
                 "b.gguf: ", &error);
    /* tokenizer.json goes first. */
    test_file_write(test_path_join(folder, "tokenizer.json").text, "{", 1);
    assert_fails(gs_vocab_open(folder, &vocab, &error), GS_MALFORMED, "tokenizer.json: byte", &error);
    test_folder_remove(folder);
    gs_buffer_free(&bytes);
    release(&v);
}

static void other_tokenizers(void **state)
{
    (void)state;
    static const struct {
        const char *model, *pre, *part;
    } cases[] = {
        {NULL, "gpt-4o", "v.gguf: tokenizer.ggml.model is missing, must be \"gpt2\""},
        {"llama", "gpt-4o", "tokenizer.ggml.model is \"llama\"; supported is \"gpt2\""},
        {"none", "gpt-4o", "tokenizer.ggml.model is \"none\""},
        {"gpt2", NULL, "tokenizer.ggml.pre is missing, must be \"gpt-4o\""},
        {"gpt2", "gpt-2", "tokenizer.ggml.pre is \"gpt-2\"; supported is \"gpt-4o\""},
        {"gpt2", "gpt-4o", "tokenizer.ggml.tokens is missing, must be an array of string"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gguf_file file = begin(cases[i].model, cases[i].pre);
        bool missing = strstr(cases[i].part, "missing");
        refuse(gguf_finish(&file), missing ? GS_MALFORMED : GS_UNSUPPORTED, cases[i].part);
    }
}

static void damaged_lists(void **state)
{
    (void)state;
    struct vocabulary v = load(0);
    struct gguf_file file = begin("gpt2", "gpt-4o");
    put_lists(&file, &v);
    refuse(gguf_finish(&file), GS_MALFORMED, "tokenizer.ggml.token_type is missing, must be an array of i32");
    file = begin("gpt2", "gpt-4o");
    put_lists(&file, &v);
    put_kinds(&file, &v, v.count - 1);
    refuse(gguf_finish(&file), GS_MALFORMED, "must have as many");
    file = begin("gpt2", "gpt-4o");
    gguf_text(&file, "tokenizer.ggml.tokens", "all");
    refuse(gguf_finish(&file), GS_MALFORMED, "tokenizer.ggml.tokens is not, must be an array of string");

    static const struct {
        size_t id;
        uint32_t kind;
        const char *text;
        gs_status status;
        const char *part;
    } cases[] = {
        {300, 2, "a", GS_UNSUPPORTED, "tokenizer.ggml.token_type[300] is 2; supported are"},
        {300, 6, "<0x-1>", GS_UNSUPPORTED, "tokenizer.ggml.token_type[300] is 6"},
        {300, (uint32_t)-1, "a", GS_UNSUPPORTED, "tokenizer.ggml.token_type[300] is -1"},
        {300, 1, "", GS_MALFORMED, "tokenizer.ggml.tokens[300]: a token of 0 bytes"},
        {300, 3, "", GS_MALFORMED, "tokenizer.ggml.tokens[300]: the text of an added token has 0 bytes"},
        {300, 1, "a b", GS_MALFORMED, "tokenizer.ggml.tokens[300]: the token \"a b\" is too long or has"},
        {300, 1, "\xc4", GS_MALFORMED, "stands for no byte"},
        {300, 1, "\xc4\x41", GS_MALFORMED, "stands for no byte"},
        {300, 1, "\xe6\xa8\xa1", GS_MALFORMED, "stands for no byte"},
        {300, 3, "\xF0", GS_MALFORMED, "tokens[300]: the text of an added token, \"\\xF0\", must be UTF-8"},
        {300, 4, "<\xF0\x9F\x98>", GS_MALFORMED, "must be UTF-8"},
        {300, 4, "\xED\xA0\x80", GS_MALFORMED, "must be UTF-8"},
        {300, 3, "<|call|>", GS_MALFORMED, "the added token \"<|call|>\" occurs twice"},
        {300, 1, "!", GS_MALFORMED, "have the same token"},
        {0, 5, "!", GS_MALFORMED, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct vocabulary w = load(0);
        w.texts[cases[i].id] = cases[i].text;
        w.sizes[cases[i].id] = strlen(cases[i].text);
        w.kinds[cases[i].id] = cases[i].kind;
        refuse(make(&w), cases[i].status, cases[i].part);
        release(&w);
    }
    static const struct {
        const char *merge, *part;
    } merges[] = {
        {"ab", "tokenizer.ggml.merges[5]: \"ab\" must be two tokens with a blank between them"},
        {"", "must be two tokens"},
        {" b", "tokenizer.ggml.merges[5]: \"\" is not a token of tokenizer.ggml.tokens"},
        {"a ", "is not a token of"},
        {"a b c", "\"b c\" has a character that stands for no byte"},
        {"zqzq x", "\"zqzq\" is not a token of"},
        {"! \"", "what it makes, \"!\"\", is not a token of"},
    };
    for (size_t i = 0; i < sizeof merges / sizeof merges[0]; i++) {
        free(v.merges[5]);
        v.merges[5] = strdup(merges[i].merge);
        refuse(make(&v), GS_MALFORMED, merges[i].part);
    }
    free(v.merges[5]);
    v.merges[5] = strdup(v.merges[4]);
    refuse(make(&v), GS_MALFORMED, "tokenizer.ggml.merges[4] and [5] join the same two tokens");
    release(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_tokens_as_the_json),
        cmocka_unit_test(user_defined_tokens_are_text),
        cmocka_unit_test(paths),
        cmocka_unit_test(other_tokenizers),
        cmocka_unit_test(damaged_lists),
    };
    return cmocka_run_group_tests_name("text/gguf_vocab", tests, NULL, NULL);
}
