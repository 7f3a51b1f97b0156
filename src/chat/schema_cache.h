/* Masks that were computed, by the place they belong to; the least recently used go first. Not thread-safe.
 */
#ifndef GS_CHAT_SCHEMA_CACHE_H
#define GS_CHAT_SCHEMA_CACHE_H

#include "gossamer.h"

struct gs_mask_cache;

/* n_words: of a mask. At most max_bytes are kept in all, one mask at least. */
struct gs_mask_cache *gs_mask_cache_make(size_t n_words, size_t max_bytes);
void gs_mask_cache_free(struct gs_mask_cache *cache);

/* The mask [n_words] of a key, or NULL. Valid until the next call. */
const uint64_t *gs_mask_cache_find(struct gs_mask_cache *cache, const void *key, size_t size);

/* Copies it; silently does nothing if memory is out. */
void gs_mask_cache_store(struct gs_mask_cache *cache, const void *key, size_t size, const uint64_t *words);

#endif
