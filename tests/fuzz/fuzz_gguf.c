/*
 * Fuzzes src/format/gguf.c and what reads its metadata: model/gguf_config.c and text/gguf_vocab.c.
 * Input: the bytes of a file.
 */
#include "base/utf8.h"
#include "model/gguf_config.h"
#include "text/vocab.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void check_failure(const struct gs_error *error)
{
    check(error->code == GS_MALFORMED || error->code == GS_UNSUPPORTED);
    check(!strpbrk(error->message, "\n\r\033"));
}

/* The tensors are in the file, in order, aligned, and of the size that type and shape give. */
static void check_tensors(const struct gs_file_map *map, const struct gs_gguf *gguf)
{
    const unsigned char *free_from = map->data;
    for (size_t i = 0; i < gguf->count; i++) {
        const struct gs_tensor *tensor = &gguf->tensors[i];
        uint64_t count = 1;
        for (size_t k = 0; k < tensor->rank; k++)
            count *= tensor->shape[k];
        check(tensor->bytes ==
              count / gs_dtype_block_size(tensor->dtype) * gs_dtype_block_bytes(tensor->dtype));
        check(tensor->data >= free_from && tensor->bytes <= (uint64_t)(map->data + map->size - tensor->data));
        check((uint64_t)(tensor->data - map->data) % gguf->alignment == 0);
        check(strlen(tensor->name) >= 1 && strlen(tensor->name) <= GS_GGUF_MAX_NAME);
        free_from = tensor->data + tensor->bytes;
    }
}

static void check_entries(const struct gs_file_map *map, const struct gs_gguf *gguf)
{
    for (size_t i = 0; i < gguf->n_entry; i++) {
        const struct gs_gguf_entry *entry = &gguf->entries[i];
        struct gs_gguf_strings strings = gs_gguf_strings(entry);
        const char *text;
        size_t size;
        uint64_t n = 0;
        int64_t integer;
        check(entry->data >= map->data && entry->bytes <= (uint64_t)(map->data + map->size - entry->data));
        while (gs_gguf_strings_next(&strings, &text, &size))
            n++;
        check(n == (entry->type == GS_GGUF_STRING ? entry->count : 0));
        if (entry->count > 0)
            gs_gguf_integer(entry, entry->count - 1, &integer);
        check(!gs_gguf_integer(entry, entry->count, &integer));
    }
}

/* Appends what of the bytes is UTF-8. */
static size_t put_valid(char *out, const char *bytes, size_t size)
{
    size_t n = 0;
    for (size_t at = 0, length; at < size; at += length) {
        if (gs_utf8_decode(bytes + at, size - at, &length) > 0x10FFFF)
            continue;
        memcpy(out + n, bytes + at, length);
        n += length;
    }
    return n;
}

/*
 * Encodes what of the input is UTF-8, which has the texts of the tokens in it, and after it a character of
 * four bytes. Valid text is read where it is: here in an allocation that ends with it, so that a read past it
 * is seen.
 */
static void check_encode(const struct gs_vocab *vocab, const uint8_t *input, size_t size)
{
    static const char edge[] = "\xF0\x9F\x98\x80";
    struct gs_tokens tokens = {0};
    struct gs_error error;
    char *text = malloc(size + sizeof edge);
    check(text);
    size_t n = put_valid(text, (const char *)input, size);
    n += put_valid(text + n, edge, sizeof edge - 1);
    char *exact = malloc(n);
    check(exact);
    memcpy(exact, text, n);
    check(gs_vocab_encode_special(vocab, exact, n, &tokens, &error) == GS_OK);
    for (size_t i = 0; i < tokens.count; i++)
        check(tokens.ids[i] >= 0 && (size_t)tokens.ids[i] < gs_vocab_size(vocab));
    gs_tokens_free(&tokens);
    free(exact);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    static char path[] = "fuzz";
    struct gs_file_map map = {.path = path, .data = input, .size = size, .descriptor = -1, .slot = -1};
    struct gs_arena arena = {0};
    struct gs_gguf gguf;
    struct gs_error error;
    static struct gs_config config;
    struct gs_vocab *vocab;
    if (gs_gguf_parse(&map, &arena, &gguf, &error) == GS_OK) {
        check_tensors(&map, &gguf);
        check_entries(&map, &gguf);
        const struct gs_gguf_entry *tokens = gs_gguf_find(&gguf, "tokenizer.ggml.tokens");
        if (gs_gguf_config_parse("fuzz", &gguf, tokens ? (int64_t)tokens->count : 1, &config, &error) !=
            GS_OK)
            check_failure(&error);
    } else {
        check_failure(&error);
        check(!gguf.tensors && !gguf.entries);
    }
    gs_arena_free(&arena);
    if (size >= 4 && memcmp(input, "GGUF", 4) == 0) {
        if (gs_vocab_parse("fuzz", (const char *)input, size, &vocab, &error) == GS_OK) {
            check_encode(vocab, input, size);
            gs_vocab_close(vocab);
        } else {
            check_failure(&error);
        }
    }
    return 0;
}
