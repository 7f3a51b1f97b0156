/*
 * The parser of generated tokens. Input: a byte of settings, then text in which "<|end|>" and the like are
 * special tokens, and 0x01 with two bytes is any id. Run from the root of the repository (the vocabulary is
 * models/demo's).
 */
#include "tests/chat/harmony_check.h"
#include "text/tokens.h"

#include <stdlib.h>

static struct gs_vocab *vocab;

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void read_tokens(const uint8_t *data, size_t size, struct gs_tokens *tokens)
{
    for (size_t at = 0; at < size;) {
        const uint8_t *raw = memchr(data + at, 1, size - at);
        size_t n = raw ? (size_t)(raw - data) - at : size - at;
        check(gs_vocab_encode_special(vocab, (const char *)data + at, n, tokens, NULL) == GS_OK);
        at += n;
        if (raw && size - at >= 3)
            check(gs_tokens_append(tokens,
                                   (data[at + 1] | data[at + 2] << 8) % ((int)gs_vocab_size(vocab) + 9) - 4,
                                   NULL) == GS_OK);
        at += raw ? 3 : 0;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct gs_text names[] = {{"f", 1}, {"get_weather", 11}, {"json", 4}, {"web-browsing", 12}};
    struct gs_tokens tokens = {0};
    if (!vocab)
        check(gs_vocab_open("models/demo/tokenizer.json", &vocab, NULL) == GS_OK);
    if (size == 0)
        return 0;
    const struct gs_declared_tools tools = {.functions = names,
                                            .n_function = (*data & 1) ? sizeof names / sizeof *names : 0,
                                            .python = *data & 2,
                                            .browser = *data & 4};
    read_tokens(data + 1, size - 1, &tokens);
    const char *fault =
        harmony_check(vocab, &tools, tokens.ids, tokens.count, 2 + (size_t)(*data >> 4), *data & 8);
    if (fault)
        fprintf(stderr, "%s\n", fault);
    check(!fault);
    gs_tokens_free(&tokens);
    return 0;
}
