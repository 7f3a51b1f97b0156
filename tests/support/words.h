/* What the tests of text/ and chat/ share: vocabularies by path, and the JSON of their data. */
#ifndef TESTS_SUPPORT_WORDS_H
#define TESTS_SUPPORT_WORDS_H

#include "tests/support/check.h"

#include <jansson.h>

#define O200K_VOCAB                                                                                          \
    "build/o200k/tokenizer.json" /* the published one; tools/vocab/make_tokenizer.py makes it */

static inline struct gs_vocab *open_vocab(const char *path)
{
    struct gs_vocab *vocab = NULL;
    struct gs_error error = {0};
    assert_ok(gs_vocab_open(path, &vocab, &error), &error);
    return vocab;
}

static inline json_t *load_json(const char *path)
{
    json_error_t fault;
    json_t *value = json_load_file(path, JSON_ALLOW_NUL, &fault);
    if (!value)
        fail_msg("%s: %s", path, fault.text);
    return value;
}

#endif
