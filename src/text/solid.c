#include "text/solid.h"

#include "base/status.h"

#include <stdlib.h>

/* What a token is to the conditions in solid.h. */
enum {
    ENDS_HIGH = 1,   /* its last byte is from 0x80 on */
    STARTS_WIDE = 2, /* its first byte is from 0xE3 on */
    PREFIX = 4,      /* one or two bytes that a character of three bytes from U+3000 on starts with */
    SUFFIX = 8,      /* one or two bytes that one ends with */
    CHARACTER = 16,  /* such a character */
};

static bool continues(unsigned char byte)
{
    return (byte & 0xC0) == 0x80;
}

static uint8_t kind_of(const struct gs_token_table *table, uint32_t id)
{
    size_t size = table->tokens[id].size;
    if (size == 0)
        return 0;
    const unsigned char *s = (const unsigned char *)table->bytes.data + table->tokens[id].offset;
    bool wide = s[0] >= GS_SOLID_BYTE && s[0] <= 0xEF;
    unsigned kind = s[size - 1] >= 0x80 ? ENDS_HIGH : 0;
    kind |= s[0] >= GS_SOLID_BYTE ? STARTS_WIDE : 0;
    kind |= wide && (size == 1 || (size == 2 && continues(s[1]))) ? PREFIX : 0;
    kind |= continues(s[0]) && (size == 1 || (size == 2 && continues(s[1]))) ? SUFFIX : 0;
    kind |= wide && size == 3 && continues(s[1]) && continues(s[2]) ? CHARACTER : 0;
    return (uint8_t)kind;
}

static void lower(uint32_t *limit, uint32_t rank)
{
    *limit = rank < *limit ? rank : *limit;
}

/*
 * For each token the lowest rank of the merges that (1), (2) or (3) forbid below m: limits of prefixes,
 * suffixes and characters. No token is two of them.
 */
static void find_limits(const struct gs_merge_table *merges, const uint8_t *kinds, uint32_t *limits)
{
    for (size_t rank = 0; rank < merges->count; rank++) {
        uint32_t left = (uint32_t)(merges->pairs[rank] >> 32), right = (uint32_t)merges->pairs[rank];
        uint8_t l = kinds[left], r = kinds[right];
        if ((l & CHARACTER) || ((l & SUFFIX) && (r & STARTS_WIDE)))
            lower(&limits[left], (uint32_t)rank);
        if ((r & CHARACTER) || ((r & PREFIX) && (l & ENDS_HIGH)))
            lower(&limits[right], (uint32_t)rank);
    }
}

static uint32_t limit_of(const struct gs_token_table *table, const uint32_t *limits, const char *bytes,
                         size_t size)
{
    uint32_t id = gs_token_table_find(table, bytes, size);
    return id == GS_NO_TOKEN ? UINT32_MAX : limits[id];
}

/* Is the character `id` made from its three bytes alone, by merges of ranks below all its limits? */
static bool is_solid(const struct gs_token_table *table, const struct gs_merge_table *merges,
                     const uint32_t byte_ids[256], const uint32_t *limits, uint32_t id)
{
    const char *bytes = table->bytes.data + table->tokens[id].offset;
    const unsigned char *s = (const unsigned char *)bytes;
    uint32_t front = 0, back = 0, made = GS_NO_TOKEN;
    uint32_t first = gs_merge_table_find(merges, byte_ids[s[0]], byte_ids[s[1]], &front);
    uint32_t last = gs_merge_table_find(merges, byte_ids[s[1]], byte_ids[s[2]], &back);
    if (first == GS_NO_MERGE && last == GS_NO_MERGE)
        return false;
    uint32_t highest = first < last ? first : last;
    uint32_t rank = first < last ? gs_merge_table_find(merges, front, byte_ids[s[2]], &made)
                                 : gs_merge_table_find(merges, byte_ids[s[0]], back, &made);
    if (rank == GS_NO_MERGE || made != id)
        return false;
    highest = rank > highest ? rank : highest;
    return highest < limits[id] && highest < limit_of(table, limits, bytes, 1) &&
           highest < limit_of(table, limits, bytes, 2) && highest < limit_of(table, limits, bytes + 1, 2) &&
           highest < limit_of(table, limits, bytes + 2, 1);
}

gs_status gs_solid_find(const struct gs_token_table *table, const struct gs_merge_table *merges,
                        const uint32_t byte_ids[256], uint32_t **out, struct gs_error *error)
{
    const size_t n_solid = GS_SOLID_END - GS_SOLID_FIRST;
    uint8_t *kinds = malloc(table->size);
    uint32_t *limits = malloc(table->size * sizeof(*limits));
    uint32_t *solid = malloc(n_solid * sizeof(*solid));
    gs_status status = GS_OK;
    if (!kinds || !limits || !solid) {
        free(solid);
        solid = NULL;
        status = gs_fail_memory(error, table->size * 5 + n_solid * sizeof(*solid));
        goto cleanup;
    }
    for (uint32_t id = 0; id < table->size; id++) {
        kinds[id] = kind_of(table, id);
        limits[id] = UINT32_MAX;
    }
    find_limits(merges, kinds, limits);
    for (size_t i = 0; i < n_solid; i++)
        solid[i] = GS_NO_TOKEN;
    for (uint32_t id = 0; id < table->size; id++) {
        if (!(kinds[id] & CHARACTER) || !is_solid(table, merges, byte_ids, limits, id))
            continue;
        const unsigned char *s = (const unsigned char *)table->bytes.data + table->tokens[id].offset;
        solid[((s[0] & 0xFu) << 12 | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3Fu)) - GS_SOLID_FIRST] = id;
    }
cleanup:
    *out = solid;
    free(kinds);
    free(limits);
    return status;
}
