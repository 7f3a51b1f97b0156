/* What the tests of text/ share: vocabularies by path, and lists of strings with their ids. */
#ifndef TESTS_TEXT_SUPPORT_TEXT_H
#define TESTS_TEXT_SUPPORT_TEXT_H

#include "tests/support/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The published vocabulary; the test is skipped, with a line, where it has not been made. */
static inline struct gs_vocab *open_o200k(void)
{
    if (access(O200K_VOCAB, R_OK) != 0) {
        printf("  skipped: no " O200K_VOCAB " (tools/vocab/make_tokenizer.py makes it)\n");
        skip();
    }
    return open_vocab(O200K_VOCAB);
}

/* Bytes from hexadecimal digits; the caller frees. */
static inline char *from_hex(const char *hex, size_t *size)
{
    *size = strlen(hex) / 2;
    char *bytes = malloc(*size + 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < *size; i++) {
        unsigned value;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &value), 1);
        bytes[i] = (char)value;
    }
    bytes[*size] = '\0';
    return bytes;
}

/* Every entry's "utf8_hex" must become its list of ids `key`. */
static inline void check_goldens(const struct gs_vocab *vocab, const char *path, bool special,
                                 const char *key)
{
    json_t *list = load_json(path);
    struct gs_tokens tokens = {0};
    struct gs_error error = {0};
    assert_true(json_array_size(list) > 0);
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *entry = json_array_get(list, i), *ids = json_object_get(entry, key);
        size_t size;
        char *text = from_hex(json_string_value(json_object_get(entry, "utf8_hex")), &size);
        tokens.count = 0;
        if (special)
            assert_ok(gs_vocab_encode_special(vocab, text, size, &tokens, &error), &error);
        else
            assert_ok(gs_vocab_encode(vocab, text, size, &tokens, &error), &error);
        bool same = tokens.count == json_array_size(ids);
        for (size_t k = 0; same && k < tokens.count; k++)
            same = tokens.ids[k] == json_integer_value(json_array_get(ids, k));
        if (!same)
            fail_msg("%s, entry %zu, %s: \"%s\" gives %zu ids, which are not the %zu expected", path, i, key,
                     text, tokens.count, json_array_size(ids));
        free(text);
    }
    gs_tokens_free(&tokens);
    json_decref(list);
}

static inline uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

#endif
