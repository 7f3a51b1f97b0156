/*
 * The merges of a vocabulary: a pair of token ids -> the pair's rank (its position in the list of merges; the
 * lowest is merged first) and the id that it becomes. Zero-initialise; add all in order, then index.
 */
#ifndef GS_TEXT_MERGE_TABLE_H
#define GS_TEXT_MERGE_TABLE_H

#include "gossamer.h"

#define GS_NO_MERGE   UINT32_MAX
#define GS_MAX_MERGES ((1u << 24) - 1)

struct gs_merge_slot {
    uint64_t pair;        /* left << 32 | right */
    uint32_t rank_plus_1; /* 0: free */
    uint32_t result;
};

struct gs_merge_table {
    uint64_t *pairs;   /* [count]: left << 32 | right, by rank */
    uint32_t *results; /* [count]: ids, by rank */
    size_t count;
    size_t capacity;
    struct gs_merge_slot *slots; /* [mask+1] */
    size_t mask;
    uint64_t *filter; /* one bit a pair, hashed: most questions are answered "no" without a look at slots */
};

/* GS_UNSUPPORTED beyond GS_MAX_MERGES. */
gs_status gs_merge_table_add(struct gs_merge_table *table, uint32_t left, uint32_t right, uint32_t result,
                             struct gs_error *error);

/* GS_MALFORMED for a pair that occurs twice; `name` is that of the list in the file, for the message. */
gs_status gs_merge_table_index(struct gs_merge_table *table, const char *name, struct gs_error *error);
void gs_merge_table_free(struct gs_merge_table *table);

/* The rank of a pair and the id it becomes, or GS_NO_MERGE. */
static inline uint32_t gs_merge_table_find(const struct gs_merge_table *table, uint32_t left, uint32_t right,
                                           uint32_t *result);

/* ---- inline, because the merge loop consists of it */

static inline uint64_t gs_merge_hash(uint64_t pair)
{
    uint64_t hash = pair * 0x9E3779B97F4A7C15u;
    hash = (hash ^ hash >> 32) * 0xD1B54A32D192ED03u;
    return hash ^ hash >> 29;
}

static inline size_t gs_merge_filter_bit(const struct gs_merge_table *table, uint64_t hash)
{
    /* 4 bits a slot: the slot's index with the hash's top 2 bits added. */
    return (hash & table->mask) << 2 | hash >> 62;
}

static inline uint32_t gs_merge_table_find(const struct gs_merge_table *table, uint32_t left, uint32_t right,
                                           uint32_t *result)
{
    uint64_t pair = (uint64_t)left << 32 | right;
    uint64_t hash = gs_merge_hash(pair);
    size_t bit = gs_merge_filter_bit(table, hash);
    if (!(table->filter[bit >> 6] >> (bit & 63) & 1))
        return GS_NO_MERGE;
    for (size_t at = hash & table->mask;; at = (at + 1) & table->mask) {
        const struct gs_merge_slot *slot = &table->slots[at];
        if (slot->rank_plus_1 == 0)
            return GS_NO_MERGE;
        if (slot->pair == pair) {
            *result = slot->result;
            return slot->rank_plus_1 - 1;
        }
    }
}

#endif
