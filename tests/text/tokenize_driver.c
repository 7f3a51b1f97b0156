/*
 * Tokenises strings in bulk for compare_tokenizers.py.
 *
 * usage: tokenize_driver TOKENIZER.JSON < requests > replies
 * A request is a mode (1 byte: 0 literal, 1 with special tokens), a size (u32) and that many bytes of text; a
 * reply is a count (u32) and that many ids (i32). Numbers are in the machine's byte order.
 */
#include "gossamer.h"

#include <stdio.h>
#include <stdlib.h>

static bool answer(const struct gs_vocab *vocab, char **text, struct gs_tokens *tokens,
                   struct gs_error *error)
{
    unsigned char mode;
    uint32_t size;
    if (fread(&mode, 1, 1, stdin) != 1 || fread(&size, sizeof(size), 1, stdin) != 1)
        return false;
    char *grown = realloc(*text, (size_t)size + 1);
    if (!grown)
        return false;
    *text = grown;
    if (fread(*text, 1, size, stdin) != size)
        return false;
    tokens->count = 0;
    gs_status status = mode ? gs_vocab_encode_special(vocab, *text, size, tokens, error)
                            : gs_vocab_encode(vocab, *text, size, tokens, error);
    if (status != GS_OK)
        return false;
    uint32_t count = (uint32_t)tokens->count;
    fwrite(&count, sizeof(count), 1, stdout);
    fwrite(tokens->ids, sizeof(*tokens->ids), count, stdout);
    return true;
}

int main(int argc, char **argv)
{
    struct gs_vocab *vocab;
    struct gs_error error = {0};
    if (argc != 2 || gs_vocab_open(argv[1], &vocab, &error) != GS_OK) {
        fprintf(stderr, "%s\n", argc == 2 ? error.message : "usage: tokenize_driver TOKENIZER.JSON");
        return 2;
    }
    struct gs_tokens tokens = {0};
    char *text = NULL;
    while (answer(vocab, &text, &tokens, &error))
        continue;
    free(text);
    gs_tokens_free(&tokens);
    gs_vocab_close(vocab);
    if (error.code != GS_OK)
        fprintf(stderr, "%s\n", error.message);
    return error.code == GS_OK ? 0 : 1;
}
