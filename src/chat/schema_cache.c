#include "chat/schema_cache.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct entry {
    uint64_t *words; /* [n_words] */
    char *key;
    size_t key_size;
    uint64_t hash;
    uint32_t newer, older, next; /* next: of the same slot */
};

struct gs_mask_cache {
    size_t n_words, max_bytes, bytes;
    struct entry *entries;
    size_t count, capacity;
    uint32_t *slots; /* [n_slots], a power of two */
    size_t n_slots;
    uint32_t newest, oldest, unused; /* unused: a list by `next` */
};

struct gs_mask_cache *gs_mask_cache_make(size_t n_words, size_t max_bytes)
{
    struct gs_mask_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return NULL;
    cache->n_words = n_words;
    cache->max_bytes = max_bytes;
    cache->newest = cache->oldest = cache->unused = NONE;
    cache->n_slots = 1024;
    cache->slots = malloc(cache->n_slots * sizeof *cache->slots);
    if (!cache->slots) {
        free(cache);
        return NULL;
    }
    memset(cache->slots, 0xFF, cache->n_slots * sizeof *cache->slots);
    return cache;
}

void gs_mask_cache_free(struct gs_mask_cache *cache)
{
    if (!cache)
        return;
    for (size_t i = 0; i < cache->count; i++) {
        free(cache->entries[i].words);
        free(cache->entries[i].key);
    }
    free(cache->entries);
    free(cache->slots);
    free(cache);
}

static void unlink_entry(struct gs_mask_cache *cache, uint32_t i)
{
    struct entry *e = &cache->entries[i];
    *(e->newer == NONE ? &cache->newest : &cache->entries[e->newer].older) = e->older;
    *(e->older == NONE ? &cache->oldest : &cache->entries[e->older].newer) = e->newer;
}

static void link_newest(struct gs_mask_cache *cache, uint32_t i)
{
    struct entry *e = &cache->entries[i];
    e->newer = NONE;
    e->older = cache->newest;
    *(e->older == NONE ? &cache->oldest : &cache->entries[e->older].newer) = i;
    cache->newest = i;
}

static uint32_t lookup(const struct gs_mask_cache *cache, const void *key, size_t size, uint64_t hash)
{
    uint32_t i = cache->slots[hash & (cache->n_slots - 1)];
    while (i != NONE && (cache->entries[i].hash != hash || cache->entries[i].key_size != size ||
                         memcmp(cache->entries[i].key, key, size) != 0))
        i = cache->entries[i].next;
    return i;
}

const uint64_t *gs_mask_cache_find(struct gs_mask_cache *cache, const void *key, size_t size)
{
    uint32_t i = lookup(cache, key, size, gs_hash_bytes(key, size));
    if (i == NONE)
        return NULL;
    unlink_entry(cache, i);
    link_newest(cache, i);
    return cache->entries[i].words;
}

static size_t cost(const struct gs_mask_cache *cache, size_t key_size)
{
    return cache->n_words * sizeof(uint64_t) + key_size + sizeof(struct entry);
}

static void drop_oldest(struct gs_mask_cache *cache)
{
    uint32_t i = cache->oldest;
    struct entry *e = &cache->entries[i];
    uint32_t *at = &cache->slots[e->hash & (cache->n_slots - 1)];
    while (*at != i)
        at = &cache->entries[*at].next;
    *at = e->next;
    unlink_entry(cache, i);
    cache->bytes -= cost(cache, e->key_size);
    free(e->words);
    free(e->key);
    *e = (struct entry){.next = cache->unused};
    cache->unused = i;
}

/* The number of a free entry, or NONE. */
static uint32_t take_entry(struct gs_mask_cache *cache)
{
    uint32_t i = cache->unused;
    if (i != NONE) {
        cache->unused = cache->entries[i].next;
        return i;
    }
    if (cache->count == cache->capacity) {
        size_t capacity = cache->capacity ? 2 * cache->capacity : 64;
        struct entry *entries = realloc(cache->entries, capacity * sizeof *entries);
        if (!entries)
            return NONE;
        cache->entries = entries;
        cache->capacity = capacity;
    }
    cache->entries[cache->count] = (struct entry){0};
    return (uint32_t)cache->count++;
}

void gs_mask_cache_store(struct gs_mask_cache *cache, const void *key, size_t size, const uint64_t *words)
{
    uint64_t hash = gs_hash_bytes(key, size);
    if (lookup(cache, key, size, hash) != NONE)
        return; /* another thread was faster */
    while (cache->newest != NONE && cache->bytes + cost(cache, size) > cache->max_bytes)
        drop_oldest(cache);
    uint64_t *copy = malloc(cache->n_words * sizeof *copy + 1);
    char *name = malloc(size + 1);
    uint32_t i = copy && name ? take_entry(cache) : NONE;
    if (i == NONE) {
        free(copy);
        free(name);
        return;
    }
    memcpy(copy, words, cache->n_words * sizeof *copy);
    memcpy(name, key, size);
    uint32_t *slot = &cache->slots[hash & (cache->n_slots - 1)];
    cache->entries[i] =
        (struct entry){.words = copy, .key = name, .key_size = size, .hash = hash, .next = *slot};
    *slot = i;
    link_newest(cache, i);
    cache->bytes += cost(cache, size);
}
