#include "text/token_table.h"

#include "base/hash.h"
#include "base/status.h"
#include "text/huge.h"

#include <stdlib.h>
#include <string.h>

static const char *bytes_of(const struct gs_token_table *table, uint32_t id)
{
    return table->bytes.data + table->tokens[id].offset;
}

static gs_status append_bytes(struct gs_token_table *table, const char *bytes, size_t size,
                              struct gs_token *token, struct gs_error *error)
{
    if (table->bytes.size > UINT32_MAX - size)
        return gs_fail(error, GS_UNSUPPORTED, "the tokens have more than 4 GiB of bytes together");
    *token = (struct gs_token){(uint32_t)table->bytes.size, (uint32_t)size};
    return gs_buffer_append(&table->bytes, bytes, size, error);
}

gs_status gs_token_table_add(struct gs_token_table *table, uint32_t id, const char *bytes, size_t size,
                             struct gs_error *error)
{
    if (table->count == table->capacity) {
        size_t capacity = table->capacity ? table->capacity * 2 : 4096;
        struct gs_token_entry *list = realloc(table->list, capacity * sizeof(*list));
        if (!list)
            return gs_fail_memory(error, capacity * sizeof(*list));
        table->list = list;
        table->capacity = capacity;
    }
    struct gs_token_entry *entry = &table->list[table->count];
    entry->id = id;
    gs_status status = append_bytes(table, bytes, size, &entry->token, error);
    if (status == GS_OK)
        table->count++;
    return status;
}

/*
 * Most pieces of text are at most 8 bytes long. Their bytes are compared inside the slot, without a look at
 * the token itself. Shorter heads are put together from overlapping reads, so nothing is read beyond `size`.
 */
static uint64_t head_of(const char *bytes, size_t size)
{
    uint64_t head;
    if (size >= 8) {
        memcpy(&head, bytes, 8);
        return head;
    }
    if (size >= 4) {
        uint32_t first, last;
        memcpy(&first, bytes, 4);
        memcpy(&last, bytes + size - 4, 4);
        return first | (uint64_t)last << (size - 4) * 8;
    }
    const unsigned char *s = (const unsigned char *)bytes;
    size_t middle = size / 2;
    return s[0] | (uint64_t)s[middle] << middle * 8 | (uint64_t)s[size - 1] << (size - 1) * 8;
}

static size_t hash_of(const char *bytes, size_t size, uint64_t head)
{
    if (size > 8)
        return (size_t)gs_hash_bytes(bytes, size);
    return (size_t)gs_hash_mix(head ^ 0x9E3779B97F4A7C15u, 0xD1B54A32D192ED03u + size);
}

static bool slot_is(const struct gs_token_table *table, const struct gs_token_slot *slot, uint64_t head,
                    const char *bytes, size_t size)
{
    if (slot->head != head || slot->size != size)
        return false;
    return size <= 8 || memcmp(bytes_of(table, slot->id) + 8, bytes + 8, size - 8) == 0;
}

/* The slot that holds these bytes, or the free slot where they would go. */
static struct gs_token_slot *find_slot(const struct gs_token_table *table, const char *bytes, size_t size)
{
    uint64_t head = head_of(bytes, size);
    size_t at = hash_of(bytes, size, head) & table->mask;
    while (table->slots[at].size != 0 && !slot_is(table, &table->slots[at], head, bytes, size))
        at = (at + 1) & table->mask;
    return &table->slots[at];
}

static gs_status index_ids(struct gs_token_table *table, struct gs_error *error)
{
    size_t size = 0;
    for (size_t i = 0; i < table->count; i++)
        size = table->list[i].id >= size ? (size_t)table->list[i].id + 1 : size;
    if (size > 2 * table->count + 1024)
        return gs_fail(error, GS_MALFORMED, "the highest id is %zu, but there are only %zu tokens", size - 1,
                       table->count);
    table->tokens = calloc(size ? size : 1, sizeof(*table->tokens));
    if (!table->tokens)
        return gs_fail_memory(error, size * sizeof(*table->tokens));
    table->size = size;
    for (size_t i = 0; i < table->count; i++) {
        struct gs_token *token = &table->tokens[table->list[i].id];
        if (token->size != 0)
            return gs_fail(error, GS_MALFORMED, "id %u is given to two tokens", table->list[i].id);
        *token = table->list[i].token;
        table->longest = token->size > table->longest ? token->size : table->longest;
    }
    return GS_OK;
}

gs_status gs_token_table_index(struct gs_token_table *table, struct gs_error *error)
{
    gs_status status = index_ids(table, error);
    if (status != GS_OK)
        return status;
    size_t n_slots = 16;
    while (n_slots < 2 * table->count)
        n_slots *= 2;
    table->slots = gs_huge_alloc(n_slots * sizeof(*table->slots));
    if (!table->slots)
        return gs_fail_memory(error, n_slots * sizeof(*table->slots));
    table->mask = n_slots - 1;
    for (size_t i = 0; i < table->count; i++) {
        const struct gs_token_entry *entry = &table->list[i];
        const char *bytes = bytes_of(table, entry->id);
        struct gs_token_slot *slot = find_slot(table, bytes, entry->token.size);
        if (slot->size != 0)
            return gs_fail(error, GS_MALFORMED, "the ids %u and %u have the same token \"%s\"", slot->id,
                           entry->id, gs_quote_bytes(bytes, entry->token.size).text);
        *slot = (struct gs_token_slot){head_of(bytes, entry->token.size), entry->token.size, entry->id};
    }
    free(table->list);
    table->list = NULL;
    return GS_OK;
}

gs_status gs_token_table_extend(struct gs_token_table *table, uint32_t id, const char *bytes, size_t size,
                                struct gs_error *error)
{
    if (id >= table->size) {
        if (id > 2 * table->size + 65536)
            return gs_fail(error, GS_MALFORMED, "id %u is far beyond the %zu other ids", id, table->size);
        struct gs_token *tokens = realloc(table->tokens, ((size_t)id + 1) * sizeof(*tokens));
        if (!tokens)
            return gs_fail_memory(error, ((uint64_t)id + 1) * sizeof(*tokens));
        memset(tokens + table->size, 0, (id + 1 - table->size) * sizeof(*tokens));
        table->tokens = tokens;
        table->size = (size_t)id + 1;
    }
    return append_bytes(table, bytes, size, &table->tokens[id], error);
}

uint32_t gs_token_table_find(const struct gs_token_table *table, const char *bytes, size_t size)
{
    if (size > table->longest)
        return GS_NO_TOKEN;
    const struct gs_token_slot *slot = find_slot(table, bytes, size);
    return slot->size != 0 ? slot->id : GS_NO_TOKEN;
}

bool gs_token_table_is(const struct gs_token_table *table, uint32_t id, const char *bytes, size_t size)
{
    return id < table->size && table->tokens[id].size == size && size > 0 &&
           memcmp(bytes_of(table, id), bytes, size) == 0;
}

void gs_token_table_free(struct gs_token_table *table)
{
    if (!table)
        return;
    gs_buffer_free(&table->bytes);
    free(table->list);
    free(table->tokens);
    free(table->slots);
    *table = (struct gs_token_table){0};
}
