#include "text/merge_table.h"

#include "base/status.h"
#include "text/huge.h"

#include <stdlib.h>

gs_status gs_merge_table_add(struct gs_merge_table *table, uint32_t left, uint32_t right, uint32_t result,
                             struct gs_error *error)
{
    if (table->count == GS_MAX_MERGES)
        return gs_fail(error, GS_UNSUPPORTED, "more than %u merges", GS_MAX_MERGES);
    if (table->count == table->capacity) {
        size_t capacity = table->capacity ? table->capacity * 2 : 4096;
        uint64_t *pairs = realloc(table->pairs, capacity * sizeof(*pairs));
        if (!pairs)
            return gs_fail_memory(error, capacity * sizeof(*pairs));
        table->pairs = pairs;
        uint32_t *results = realloc(table->results, capacity * sizeof(*results));
        if (!results)
            return gs_fail_memory(error, capacity * sizeof(*results));
        table->results = results;
        table->capacity = capacity;
    }
    table->pairs[table->count] = (uint64_t)left << 32 | right;
    table->results[table->count++] = result;
    return GS_OK;
}

gs_status gs_merge_table_index(struct gs_merge_table *table, const char *name, struct gs_error *error)
{
    size_t n_slots = 64;
    while (n_slots < 2 * table->count)
        n_slots *= 2;
    table->slots = gs_huge_alloc(n_slots * sizeof(*table->slots));
    table->filter = calloc(n_slots / 2, 1);
    if (!table->slots || !table->filter)
        return gs_fail_memory(error, n_slots * (sizeof(*table->slots) + 1));
    table->mask = n_slots - 1;

    for (size_t rank = 0; rank < table->count; rank++) {
        uint64_t pair = table->pairs[rank], hash = gs_merge_hash(pair);
        size_t at = hash & table->mask;
        while (table->slots[at].rank_plus_1 != 0) {
            if (table->slots[at].pair == pair)
                return gs_fail(error, GS_MALFORMED, "%s[%u] and [%zu] join the same two tokens", name,
                               table->slots[at].rank_plus_1 - 1, rank);
            at = (at + 1) & table->mask;
        }
        table->slots[at] = (struct gs_merge_slot){pair, (uint32_t)rank + 1, table->results[rank]};
        size_t bit = gs_merge_filter_bit(table, hash);
        table->filter[bit >> 6] |= 1ull << (bit & 63);
    }
    return GS_OK;
}

void gs_merge_table_free(struct gs_merge_table *table)
{
    if (!table)
        return;
    free(table->pairs);
    free(table->results);
    free(table->slots);
    free(table->filter);
    *table = (struct gs_merge_table){0};
}
