#include "text/vocab_builder.h"

#include "base/status.h"

#include <stdlib.h>

/* Printable Latin-1 stands for itself; the other 68 bytes, in order, for U+0100 and on. */
static void make_alphabet(int16_t alphabet[GS_ALPHABET_END])
{
    for (size_t c = 0; c < GS_ALPHABET_END; c++)
        alphabet[c] = -1;
    size_t other = 0x100;
    for (int16_t byte = 0; byte < 256; byte++) {
        bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
        alphabet[itself ? (size_t)byte : other++] = byte;
    }
}

gs_status gs_vocab_builder_open(struct gs_vocab_builder *builder, struct gs_error *error)
{
    make_alphabet(builder->alphabet);
    builder->last_result = 0;
    builder->joined = malloc(2 * GS_MAX_SPELLING);
    return builder->joined ? GS_OK : gs_fail_memory(error, 2 * GS_MAX_SPELLING);
}

void gs_vocab_builder_close(struct gs_vocab_builder *builder)
{
    free(builder->joined);
    builder->joined = NULL;
}

bool gs_vocab_builder_spell(const struct gs_vocab_builder *builder, const char *string, size_t size,
                            char *out, size_t *out_size)
{
    const unsigned char *s = (const unsigned char *)string;
    size_t n = 0;
    for (size_t i = 0; i < size; n++) {
        uint32_t c = s[i++];
        if (c >= 0xC2 && c <= 0xC5 && i < size && (s[i] & 0xC0) == 0x80)
            c = (c & 0x1F) << 6 | (s[i++] & 0x3Fu);
        else if (c >= 0x80)
            return false;
        int byte = c < GS_ALPHABET_END ? builder->alphabet[c] : -1;
        if (byte < 0)
            return false;
        out[n] = (char)byte;
    }
    *out_size = n;
    return true;
}

/*
 * The token that a merge makes. Merges are listed by what they make, so it is mostly that of the merge
 * before or the id after it: one comparison instead of a look into the hash table.
 */
static uint32_t find_result(const struct gs_vocab_builder *builder, size_t size)
{
    const struct gs_token_table *table = &builder->bpe->table;
    for (uint32_t guess = builder->last_result; guess < builder->last_result + 2; guess++)
        if (gs_token_table_is(table, guess, builder->joined, size))
            return guess;
    return gs_token_table_find(table, builder->joined, size);
}

/* The merge of joined [left_size] and the bytes after it [right_size]. */
static gs_status add_merge(struct gs_vocab_builder *builder, size_t left_size, size_t right_size,
                           struct gs_error *error)
{
    struct gs_merge_table *merges = &builder->bpe->merges;
    const struct gs_token_table *table = &builder->bpe->table;
    const char *right_bytes = builder->joined + left_size;
    uint32_t left = left_size > 0 ? gs_token_table_find(table, builder->joined, left_size) : GS_NO_TOKEN;
    uint32_t right = right_size > 0 ? gs_token_table_find(table, right_bytes, right_size) : GS_NO_TOKEN;
    if (left == GS_NO_TOKEN || right == GS_NO_TOKEN) {
        const char *unknown = left == GS_NO_TOKEN ? builder->joined : right_bytes;
        size_t unknown_size = left == GS_NO_TOKEN ? left_size : right_size;
        return gs_fail(error, GS_MALFORMED, "%s[%zu]: \"%s\" is not a token of %s", builder->merges_name,
                       merges->count, gs_quote_bytes(unknown, unknown_size).text, builder->tokens_name);
    }
    uint32_t result = find_result(builder, left_size + right_size);
    if (result == GS_NO_TOKEN)
        return gs_fail(error, GS_MALFORMED, "%s[%zu]: what it makes, \"%s\", is not a token of %s",
                       builder->merges_name, merges->count,
                       gs_quote_bytes(builder->joined, left_size + right_size).text, builder->tokens_name);
    builder->last_result = result;
    return gs_merge_table_add(merges, left, right, result, error);
}

/* One side of a merge, appended to joined [*filled]. */
static gs_status add_side(struct gs_vocab_builder *builder, const char *string, size_t size, size_t *filled,
                          struct gs_error *error)
{
    size_t n;
    if (!gs_vocab_builder_spell(builder, string, size, builder->joined + *filled, &n))
        return gs_fail(error, GS_MALFORMED, "%s[%zu]: \"%s\" has a character that stands for no byte",
                       builder->merges_name, builder->bpe->merges.count, gs_quote_bytes(string, size).text);
    *filled += n;
    return GS_OK;
}

gs_status gs_vocab_builder_merge(struct gs_vocab_builder *builder, const char *left, size_t left_size,
                                 const char *right, size_t right_size, struct gs_error *error)
{
    size_t cut = 0;
    gs_status status = add_side(builder, left, left_size, &cut, error);
    size_t filled = cut;
    if (status == GS_OK)
        status = add_side(builder, right, right_size, &filled, error);
    return status == GS_OK ? add_merge(builder, cut, filled - cut, error) : status;
}

gs_status gs_vocab_builder_finish(struct gs_vocab_builder *builder, struct gs_error *error)
{
    struct gs_token_table *table = &builder->bpe->table;
    for (size_t i = 0; i < builder->added->count; i++) {
        const struct gs_added_token *token = &builder->added->list[i];
        bool taken = token->id < table->size && table->tokens[token->id].size > 0;
        if (taken && (token->special || !token->in_vocab))
            return gs_fail(error, GS_MALFORMED,
                           "id %u is given to the added token \"%s\" and to a token of %s", token->id,
                           gs_quote_bytes(token->text, token->size).text, builder->tokens_name);
        gs_status status = gs_token_table_extend(table, token->id, token->text, token->size, error);
        if (status != GS_OK)
            return status;
    }
    return gs_bpe_index(builder->bpe, error);
}
