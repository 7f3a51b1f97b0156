#include "chat/call_table.h"

#include "base/hash.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

static uint64_t hash_id(const struct gs_call_table *table, struct gs_text id)
{
    uint64_t hash = table->seed ^ id.size, word;
    for (size_t at = 0; at < id.size; at += sizeof word) {
        size_t left = id.size - at;
        word = 0;
        memcpy(&word, id.bytes + at, left < sizeof word ? left : sizeof word);
        hash = gs_hash_mix(hash ^ word, table->seed | 1);
    }
    return gs_hash_mix(hash, table->seed | 1);
}

/* The slot of `id`, or the free one where it would be. */
static struct gs_call_slot *probe(const struct gs_call_table *table, struct gs_text id)
{
    size_t at = (size_t)hash_id(table, id) & (table->capacity - 1);
    while (table->slots[at].id.bytes && !gs_text_equal(table->slots[at].id, id))
        at = (at + 1) & (table->capacity - 1);
    return &table->slots[at];
}

static gs_status grow(struct gs_call_table *table, struct gs_error *error)
{
    struct gs_call_table grown = {.capacity = table->capacity ? 2 * table->capacity : 16,
                                  .count = table->count};
    grown.slots = calloc(grown.capacity, sizeof *grown.slots);
    if (!grown.slots)
        return gs_fail_memory(error, grown.capacity * sizeof *grown.slots);
    /* Addresses are the randomness at hand: the loader draws them anew for every process. */
    grown.seed = gs_hash_mix((uint64_t)(uintptr_t)grown.slots ^ 0x9E3779B97F4A7C15u,
                             (uint64_t)(uintptr_t)&gs_call_table_put ^ 0xD1B54A32D192ED03u);
    for (size_t i = 0; i < table->capacity; i++)
        if (table->slots[i].id.bytes)
            *probe(&grown, table->slots[i].id) = table->slots[i];
    free(table->slots);
    *table = grown;
    return GS_OK;
}

gs_status gs_call_table_put(struct gs_call_table *table, struct gs_text id, size_t message,
                            struct gs_error *error)
{
    if (2 * table->count >= table->capacity) {
        gs_status status = grow(table, error);
        if (status != GS_OK)
            return status;
    }
    struct gs_call_slot *slot = probe(table, id);
    table->count += slot->id.bytes == NULL;
    *slot = (struct gs_call_slot){id, message};
    return GS_OK;
}

bool gs_call_table_find(const struct gs_call_table *table, struct gs_text id, size_t *message)
{
    if (table->capacity == 0)
        return false;
    const struct gs_call_slot *slot = probe(table, id);
    *message = slot->message;
    return slot->id.bytes != NULL;
}

void gs_call_table_free(struct gs_call_table *table)
{
    free(table->slots);
    *table = (struct gs_call_table){0};
}
