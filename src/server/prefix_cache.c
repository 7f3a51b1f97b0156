#include "server/prefix_cache.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

struct entry {
    struct entry *after; /* less recently used */
    struct gs_timeline_state state;
    size_t scope;
    uint64_t bytes;
};

struct gs_prefix_cache {
    struct gs_engine *engine;
    uint64_t max_bytes;
    struct entry *newest;
    _Atomic uint64_t bytes;
    _Atomic size_t n_entry;
};

gs_status gs_prefix_cache_open(struct gs_engine *engine, uint64_t max_bytes, struct gs_prefix_cache **out,
                               struct gs_error *error)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return gs_fail_memory(error, sizeof **out);
    (*out)->engine = engine;
    (*out)->max_bytes = max_bytes;
    return GS_OK;
}

static void free_entry(struct gs_prefix_cache *cache, struct entry *entry)
{
    atomic_fetch_sub(&cache->bytes, entry->bytes);
    atomic_fetch_sub(&cache->n_entry, 1);
    gs_session_close(entry->state.session);
    free(entry);
}

void gs_prefix_cache_clear(struct gs_prefix_cache *cache)
{
    while (cache->newest) {
        struct entry *entry = cache->newest;
        cache->newest = entry->after;
        free_entry(cache, entry);
    }
}

void gs_prefix_cache_close(struct gs_prefix_cache *cache)
{
    if (!cache)
        return;
    gs_prefix_cache_clear(cache);
    free(cache);
}

/* A ring holds the window and the longest step; a token sees window - 1 before it (backend.h). */
size_t gs_timeline_least(const struct gs_engine *engine, size_t count)
{
    size_t reach = gs_batch_max_tokens(engine);
    size_t ring = reach + (size_t)gs_engine_info(engine)->window;
    return count <= ring ? 0 : count - reach - 1;
}

static size_t common(const struct entry *entry, const int32_t *tokens, size_t count)
{
    size_t held, n = 0;
    const int32_t *own = gs_session_tokens(entry->state.session, &held);
    while (n < held && n < count && own[n] == tokens[n])
        n++;
    return n;
}

/* How many of the tokens can be taken from the entry. */
static size_t usable(const struct entry *entry, const int32_t *tokens, size_t count)
{
    size_t n = common(entry, tokens, count);
    return n >= entry->state.least ? n : 0;
}

static void move_to_front(struct gs_prefix_cache *cache, struct entry *wanted)
{
    struct entry **link = &cache->newest;
    while (*link != wanted)
        link = &(*link)->after;
    *link = wanted->after;
    wanted->after = cache->newest;
    cache->newest = wanted;
}

void gs_prefix_cache_use(struct gs_prefix_cache *cache, size_t scope, const int32_t *tokens, size_t count,
                         struct gs_timeline_state *state, size_t *reused)
{
    struct entry *best = NULL;
    size_t most = 0;
    *reused = 0;
    state->least = 0;
    for (struct entry *entry = cache->newest; entry; entry = entry->after) {
        size_t n = entry->scope == scope ? usable(entry, tokens, count - 1) : 0;
        if (n > most) {
            most = n;
            best = entry;
        }
    }
    if (!best || gs_session_copy(state->session, best->state.session, NULL) != GS_OK)
        return;
    state->least = best->state.least;
    move_to_front(cache, best);
    /* The empty timeline can always be gone back to; nothing of another prompt may be left in it. */
    if (gs_session_rewind(state->session, most, reused, NULL) != GS_OK) {
        gs_session_truncate(state->session, 0, NULL);
        *reused = 0;
    }
    if (*reused == 0)
        state->least = 0;
}

bool gs_prefix_cache_has(struct gs_prefix_cache *cache, size_t scope, const int32_t *tokens, size_t count)
{
    for (struct entry *entry = cache->newest; entry; entry = entry->after) {
        size_t held;
        gs_session_tokens(entry->state.session, &held);
        if (entry->scope == scope && held == count && common(entry, tokens, count) == count) {
            move_to_front(cache, entry);
            return true;
        }
    }
    return false;
}

/* The least recently used go until `bytes` more fit. */
static bool make_room(struct gs_prefix_cache *cache, uint64_t bytes)
{
    if (bytes > cache->max_bytes)
        return false;
    while (cache->newest && atomic_load(&cache->bytes) > cache->max_bytes - bytes) {
        struct entry **link = &cache->newest;
        while ((*link)->after)
            link = &(*link)->after;
        struct entry *oldest = *link;
        *link = NULL;
        free_entry(cache, oldest);
    }
    return true;
}

void gs_prefix_cache_keep(struct gs_prefix_cache *cache, size_t scope, const struct gs_timeline_state *state)
{
    size_t count;
    const int32_t *tokens = gs_session_tokens(state->session, &count);
    uint64_t bytes = gs_session_bytes(cache->engine, count > 0 ? (int64_t)count : 1);
    if (count == 0 || gs_prefix_cache_has(cache, scope, tokens, count) || !make_room(cache, bytes))
        return;
    struct entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return;
    *entry = (struct entry){
        .scope = scope, .bytes = bytes, .state.least = gs_timeline_least(cache->engine, count)};
    if (entry->state.least < state->least)
        entry->state.least = state->least;
    if (gs_session_open(cache->engine, (int64_t)count, &entry->state.session, NULL) != GS_OK ||
        gs_session_copy(entry->state.session, state->session, NULL) != GS_OK) {
        gs_session_close(entry->state.session);
        free(entry);
        return;
    }
    entry->after = cache->newest;
    cache->newest = entry;
    atomic_fetch_add(&cache->bytes, bytes);
    atomic_fetch_add(&cache->n_entry, 1);
}

struct gs_prefix_figures gs_prefix_cache_figures(struct gs_prefix_cache *cache)
{
    return (struct gs_prefix_figures){atomic_load(&cache->n_entry), atomic_load(&cache->bytes),
                                      cache->max_bytes};
}
