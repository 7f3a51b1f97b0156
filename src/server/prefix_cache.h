/*
 * Timelines that are kept because another request may begin alike: sessions of exactly their length, found by
 * the longest common prefix of token ids. Where a request parts from one before its end, it is used as far as
 * the rings of the window layers reach back; beyond that at marks, where the rings were kept as they were. So
 * the places where requests do part (the end of a prompt, of the instructions) are what is kept: a timeline
 * that goes on from a kept one takes its place, and keeps its end as a mark. Backends without marks keep each
 * as a timeline of its own. The least recently used give way to a budget of bytes.
 *
 * With a store behind it (prefix_store.h), what has been kept for a while is written there, and what is there
 * is found.
 *
 * For the thread that owns the engine; the figures may be read from any.
 */
#ifndef GS_SERVER_PREFIX_CACHE_H
#define GS_SERVER_PREFIX_CACHE_H

#include "server/prefix_store.h"

#include <stdatomic.h>

struct gs_prefix_cache;

/* A session, and how far back it can go: not before `least`, unless to 0. */
struct gs_timeline_state {
    struct gs_session *session;
    size_t least;
};

struct gs_prefix_figures {
    size_t n_entry;
    uint64_t bytes, max_bytes;
    uint64_t n_loaded; /* from the store */
};

gs_status gs_prefix_cache_open(struct gs_engine *engine, uint64_t max_bytes, struct gs_prefix_cache **out,
                               struct gs_error *error);
void gs_prefix_cache_close(struct gs_prefix_cache *cache);

/* A timeline is written once it has been as it is for so many seconds. The store is borrowed. */
void gs_prefix_cache_attach(struct gs_prefix_cache *cache, struct gs_prefix_store *store, double seconds);

/*
 * Copies the longest usable prefix of tokens [count], of at most count - 1, into the empty session of
 * `state`. *reused: how many tokens that were; a failure to copy is none.
 */
void gs_prefix_cache_use(struct gs_prefix_cache *cache, size_t scope, const int32_t *tokens, size_t count,
                         struct gs_timeline_state *state, size_t *reused);

/* Can exactly this prefix be had? It then counts as used. */
bool gs_prefix_cache_has(struct gs_prefix_cache *cache, size_t scope, const int32_t *tokens, size_t count);

/*
 * Keeps a copy of the timeline, if there is room for it; never fails. The copy is made in pieces: meanwhile
 * the session may go on, and it is closed by gs_prefix_cache_take.
 */
void gs_prefix_cache_keep(struct gs_prefix_cache *cache, size_t scope, const struct gs_timeline_state *state);

/* Goes on with the copy that is under way, for some seconds; whoever needs it sooner waits for all of it.
 * True if more of it is left. */
bool gs_prefix_cache_copy(struct gs_prefix_cache *cache, double seconds);

/* Closes a session (NULL: none), when nothing is copied from it any more. */
void gs_prefix_cache_take(struct gs_prefix_cache *cache, struct gs_session *session);

/* Is one that was taken not closed yet? */
bool gs_prefix_cache_has_taken(const struct gs_prefix_cache *cache);

/* Forgets everything, for the memory. What is stored stays. */
void gs_prefix_cache_clear(struct gs_prefix_cache *cache);

/* Hands what is due to the store, one timeline at a time; in how many seconds to call again, -1: no need to.
 */
double gs_prefix_cache_store(struct gs_prefix_cache *cache);

/* Hands over all that is not stored yet, most recently used first, and waits; until the time `end`. */
void gs_prefix_cache_store_all(struct gs_prefix_cache *cache, double end);

struct gs_prefix_figures gs_prefix_cache_figures(struct gs_prefix_cache *cache);

/* Where a timeline that has been `count` tokens long can go back to, at least. */
size_t gs_timeline_least(const struct gs_engine *engine, size_t count);

#endif
