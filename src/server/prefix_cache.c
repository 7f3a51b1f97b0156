#include "server/prefix_cache.h"

#include "base/clock.h"
#include "base/status.h"
#include "engine/snapshot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_GAIN    16   /* tokens more than memory has, for which a file is read */
#define POLL_SECONDS  0.05 /* while a file is being written */
#define RETRY_SECONDS 30.0 /* after one could not be written */
#define PIECE         256  /* tokens that are copied without a look at the clock */

struct entry {
    struct entry *after; /* less recently used */
    struct gs_session *session;
    size_t least;                                     /* it can be cut back to this by itself */
    struct gs_prefix_mark marks[GS_PREFIX_MAX_MARKS]; /* [n_mark], ascending */
    size_t n_mark;
    size_t scope;
    uint64_t bytes;
    double changed; /* when it was last added to */
    bool stored;    /* it is in the store as it is, or is being written */
};

struct gs_prefix_cache {
    struct gs_engine *engine;
    uint64_t max_bytes;
    bool has_marks;
    struct entry *newest;
    _Atomic uint64_t bytes, n_loaded;
    _Atomic size_t n_entry;
    struct gs_prefix_store *store; /* may be NULL */
    double store_after;
    const struct entry *storing; /* handed over last; NULL: it is gone meanwhile */
    double retry_at;
    struct entry *copying; /* whose copy is under way; NULL: none */
    struct gs_session *source;
    bool owns_source; /* it is closed behind the copy */
    size_t n_copied;
};

gs_status gs_prefix_cache_open(struct gs_engine *engine, uint64_t max_bytes, struct gs_prefix_cache **out,
                               struct gs_error *error)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return gs_fail_memory(error, sizeof **out);
    (*out)->engine = engine;
    (*out)->max_bytes = max_bytes;
    (*out)->has_marks = gs_engine_has_rings(engine);
    return GS_OK;
}

void gs_prefix_cache_attach(struct gs_prefix_cache *cache, struct gs_prefix_store *store, double seconds)
{
    cache->store = store;
    cache->store_after = seconds;
}

/* ---------------------------------------------------------------- copies */

/* It is whole, or in vain. */
static void end_copy(struct gs_prefix_cache *cache)
{
    if (cache->owns_source)
        gs_session_close(cache->source);
    cache->copying = NULL;
    cache->source = NULL;
    cache->owns_source = false;
}

/* The next tokens. */
static gs_status copy_piece(struct gs_prefix_cache *cache)
{
    struct gs_session *to = cache->copying->session;
    gs_status status = gs_session_copy_part(to, cache->source, &cache->n_copied, PIECE, NULL);
    if (status == GS_OK && cache->n_copied == gs_session_n_cached(to))
        end_copy(cache);
    return status;
}

static gs_status begin_copy(struct gs_prefix_cache *cache, struct entry *entry, struct gs_session *source)
{
    cache->copying = entry;
    cache->source = source;
    cache->n_copied = 0;
    gs_status status = copy_piece(cache);
    if (status != GS_OK)
        end_copy(cache);
    return status;
}

void gs_prefix_cache_take(struct gs_prefix_cache *cache, struct gs_session *session)
{
    if (session && cache->source == session)
        cache->owns_source = true;
    else
        gs_session_close(session);
}

bool gs_prefix_cache_has_taken(const struct gs_prefix_cache *cache)
{
    return cache->owns_source;
}

/* ---------------------------------------------------------------- entries */

/* One that is not in the list. */
static void free_entry(struct entry *entry)
{
    for (size_t i = 0; i < entry->n_mark; i++)
        gs_buffer_free(&entry->marks[i].rings);
    gs_session_close(entry->session);
    free(entry);
}

static void link_entry(struct gs_prefix_cache *cache, struct entry *entry)
{
    entry->after = cache->newest;
    cache->newest = entry;
    atomic_fetch_add(&cache->bytes, entry->bytes);
    atomic_fetch_add(&cache->n_entry, 1);
}

static void unlink_entry(struct gs_prefix_cache *cache, struct entry *entry)
{
    struct entry **link = &cache->newest;
    while (*link != entry)
        link = &(*link)->after;
    *link = entry->after;
    if (cache->storing == entry)
        cache->storing = NULL;
    if (cache->copying == entry)
        end_copy(cache);
    atomic_fetch_sub(&cache->bytes, entry->bytes);
    atomic_fetch_sub(&cache->n_entry, 1);
}

bool gs_prefix_cache_copy(struct gs_prefix_cache *cache, double seconds)
{
    double began = gs_clock_seconds();
    while (cache->copying) {
        copy_piece(cache); /* only the first can fail */
        if (gs_clock_seconds() - began >= seconds)
            break;
    }
    return cache->copying != NULL;
}

void gs_prefix_cache_clear(struct gs_prefix_cache *cache)
{
    while (cache->newest) {
        struct entry *entry = cache->newest;
        unlink_entry(cache, entry);
        free_entry(entry);
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

static size_t count_tokens(const struct entry *entry)
{
    size_t count;
    gs_session_tokens(entry->session, &count);
    return count;
}

static size_t common(const struct entry *entry, const int32_t *tokens, size_t count)
{
    size_t held, n = 0;
    const int32_t *own = gs_session_tokens(entry->session, &held);
    while (n < held && n < count && own[n] == tokens[n])
        n++;
    return n;
}

/* How many of the tokens can be taken from the entry; *mark: where, NULL: by its own rings. */
static size_t usable(const struct entry *entry, const int32_t *tokens, size_t count,
                     const struct gs_prefix_mark **mark)
{
    size_t n = common(entry, tokens, count), best = 0;
    *mark = NULL;
    if (n >= entry->least)
        return n;
    for (size_t i = 0; i < entry->n_mark; i++) {
        size_t here = entry->marks[i].count < n ? entry->marks[i].count : n;
        if (here >= entry->marks[i].least && here > best) {
            best = here;
            *mark = &entry->marks[i];
        }
    }
    return best;
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

/* ---------------------------------------------------------------- marks */

/* Takes the mark over, with its rings; false if it stays the caller's: it is there already. */
static bool add_mark(struct gs_prefix_cache *cache, struct entry *entry, bool linked,
                     struct gs_prefix_mark *mark)
{
    size_t at = 0;
    while (at < entry->n_mark && entry->marks[at].count < mark->count)
        at++;
    if (at < entry->n_mark && entry->marks[at].count == mark->count)
        return false;
    uint64_t bytes = mark->rings.size;
    if (entry->n_mark ==
        GS_PREFIX_MAX_MARKS) { /* the oldest turn goes; the first mark is the instructions' */
        bytes -= entry->marks[1].rings.size;
        gs_buffer_free(&entry->marks[1].rings);
        memmove(&entry->marks[1], &entry->marks[2], (GS_PREFIX_MAX_MARKS - 2) * sizeof *entry->marks);
        entry->n_mark--;
        at = at > 1 ? at - 1 : at;
    }
    memmove(&entry->marks[at + 1], &entry->marks[at], (entry->n_mark - at) * sizeof *entry->marks);
    entry->marks[at] = *mark;
    entry->n_mark++;
    entry->bytes += bytes;
    if (linked)
        atomic_fetch_add(&cache->bytes, bytes);
    *mark = (struct gs_prefix_mark){0};
    return true;
}

/* Before an entry goes: its marks are of use to another that begins alike. */
static void hand_down(struct gs_prefix_cache *cache, struct entry *entry)
{
    size_t held;
    const int32_t *tokens = gs_session_tokens(entry->session, &held);
    for (size_t i = 0; i < entry->n_mark; i++) {
        struct gs_prefix_mark *mark = &entry->marks[i];
        for (struct entry *heir = cache->newest; heir && mark->count > 0; heir = heir->after)
            if (heir != entry && heir->scope == entry->scope &&
                common(heir, tokens, mark->count) == mark->count && add_mark(cache, heir, true, mark))
                break;
    }
}

/* The least recently used go until `bytes` more fit. */
static bool make_room(struct gs_prefix_cache *cache, uint64_t bytes)
{
    if (bytes > cache->max_bytes)
        return false;
    while (cache->newest && atomic_load(&cache->bytes) > cache->max_bytes - bytes) {
        struct entry *oldest = cache->newest;
        while (oldest->after)
            oldest = oldest->after;
        hand_down(cache, oldest);
        unlink_entry(cache, oldest);
        free_entry(oldest);
    }
    return true;
}

/* ---------------------------------------------------------------- use */

/* The session for `count` tokens of a new entry, if there is room for it. */
static struct entry *make_entry(struct gs_prefix_cache *cache, size_t scope, size_t count)
{
    uint64_t bytes = gs_session_bytes(cache->engine, (int64_t)count);
    struct entry *entry = make_room(cache, bytes) ? calloc(1, sizeof *entry) : NULL;
    if (!entry)
        return NULL;
    *entry = (struct entry){.scope = scope, .bytes = bytes, .changed = gs_clock_seconds()};
    if (gs_session_open(cache->engine, (int64_t)count, &entry->session, NULL) == GS_OK)
        return entry;
    free(entry);
    return NULL;
}

/* A file becomes an entry, with as many of its marks as fit; false if not all of it is in memory then. */
static bool take_loaded(struct gs_prefix_cache *cache, size_t scope, const struct gs_prefix_loaded *loaded)
{
    const struct gs_prefix_head *head = &loaded->index.head;
    struct entry *entry = make_entry(cache, scope, (size_t)head->n_tokens);
    bool whole = true;
    if (!entry)
        return false;
    gs_status status = gs_session_import(entry->session, loaded->index.tokens, (size_t)head->n_tokens,
                                         loaded->body.export, loaded->body.export_bytes, NULL);
    entry->least = (size_t)head->least;
    entry->stored = true;
    for (size_t i = 0; i < head->n_mark && status == GS_OK && whole; i++) {
        struct gs_prefix_mark mark = {.count = (size_t)loaded->index.places[i].count,
                                      .least = (size_t)loaded->index.places[i].least};
        size_t bytes = (size_t)loaded->index.places[i].bytes;
        whole = bytes <= cache->max_bytes - entry->bytes;
        if (whole)
            status = gs_buffer_append(&mark.rings, loaded->body.rings[i], bytes, NULL);
        if (whole && status == GS_OK)
            add_mark(cache, entry, false, &mark);
        gs_buffer_free(&mark.rings);
    }
    if (status != GS_OK || !make_room(cache, entry->bytes)) { /* the marks have come to it */
        free_entry(entry);
        return false;
    }
    link_entry(cache, entry);
    atomic_fetch_add(&cache->n_loaded, 1);
    return whole;
}

static struct entry *find_best(struct gs_prefix_cache *cache, size_t scope, const int32_t *tokens,
                               size_t count, const struct gs_prefix_mark **mark, size_t *most)
{
    struct entry *best = NULL;
    const struct gs_prefix_mark *here;
    *most = 0;
    *mark = NULL;
    for (struct entry *entry = cache->newest; entry; entry = entry->after) {
        size_t n = entry->scope == scope ? usable(entry, tokens, count, &here) : 0;
        if (n > *most) {
            *most = n;
            *mark = here;
            best = entry;
        }
    }
    return best;
}

/* What the store has, if it is more than what memory has. */
static void fetch(struct gs_prefix_cache *cache, size_t scope, const int32_t *tokens, size_t count,
                  size_t most)
{
    struct gs_prefix_loaded loaded;
    if (!cache->store || gs_prefix_store_find(cache->store, scope, tokens, count) < most + LEAST_GAIN ||
        !gs_prefix_store_load(cache->store, scope, tokens, count, &loaded))
        return;
    if (!take_loaded(cache, scope, &loaded)) /* else it would be read again for each request */
        gs_prefix_store_rest(cache->store, &loaded);
    gs_prefix_loaded_close(&loaded);
}

static void note_use(struct gs_prefix_cache *cache, struct entry *entry)
{
    size_t count;
    const int32_t *tokens = gs_session_tokens(entry->session, &count);
    move_to_front(cache, entry);
    if (cache->store && entry->stored)
        gs_prefix_store_touch(cache->store, entry->scope, tokens, count);
}

void gs_prefix_cache_use(struct gs_prefix_cache *cache, size_t scope, const int32_t *tokens, size_t count,
                         struct gs_timeline_state *state, size_t *reused)
{
    const struct gs_prefix_mark *mark;
    size_t most;
    *reused = 0;
    state->least = 0;
    find_best(cache, scope, tokens, count - 1, &mark, &most);
    fetch(cache, scope, tokens, count - 1, most);
    struct entry *best = find_best(cache, scope, tokens, count - 1, &mark, &most);
    if (!best)
        return;
    note_use(cache, best);
    if (best == cache->copying)
        gs_prefix_cache_copy(cache, INFINITY);
    /* The empty timeline can always be gone back to; nothing of another prompt may be left in it. */
    if (gs_session_copy_prefix(state->session, best->session, most, mark ? &mark->rings : NULL, NULL) !=
        GS_OK) {
        gs_session_truncate(state->session, 0, NULL);
        return;
    }
    *reused = most;
    state->least = mark ? mark->least : best->least;
}

/* ---------------------------------------------------------------- keeping */

bool gs_prefix_cache_has(struct gs_prefix_cache *cache, size_t scope, const int32_t *tokens, size_t count)
{
    const struct gs_prefix_mark *mark;
    for (struct entry *entry = cache->newest; entry; entry = entry->after)
        if (entry->scope == scope && usable(entry, tokens, count, &mark) == count) {
            note_use(cache, entry);
            return true;
        }
    return false;
}

/* The entry that begins with these tokens; *is_all: it is no longer than they are. */
static struct entry *find_longer(struct gs_prefix_cache *cache, size_t scope, const int32_t *tokens,
                                 size_t count, bool *is_all)
{
    struct entry *found = NULL;
    *is_all = false;
    for (struct entry *entry = cache->newest; entry && !*is_all; entry = entry->after)
        if (entry->scope == scope && common(entry, tokens, count) == count) {
            *is_all = count_tokens(entry) == count;
            found = *is_all || !found ? entry : found;
        }
    return found;
}

/* Is it there already? Where a longer timeline begins like this one, a mark in it is enough. */
static bool keep_as_mark(struct gs_prefix_cache *cache, size_t scope, const struct gs_timeline_state *state)
{
    size_t count;
    bool is_all;
    const int32_t *tokens = gs_session_tokens(state->session, &count);
    struct gs_prefix_mark mark = {.count = count};
    struct entry *longer = find_longer(cache, scope, tokens, count, &is_all);
    if (!longer || (!is_all && !cache->has_marks))
        return false;
    note_use(cache, longer);
    if (is_all)
        return true;
    if (gs_session_export_rings(state->session, &mark.rings, &mark.least, NULL) == GS_OK &&
        add_mark(cache, longer, true, &mark)) {
        longer->changed = gs_clock_seconds();
        longer->stored = false;
        make_room(cache, 0);
    }
    gs_buffer_free(&mark.rings);
    return true;
}

/*
 * Entries that the new timeline goes on from leave it their ends and marks. They go before there is room for
 * it: what memory is needed is that of the longer one.
 */
static size_t absorb(struct gs_prefix_cache *cache, size_t scope, const int32_t *tokens, size_t count,
                     struct gs_prefix_mark *marks, size_t most)
{
    size_t n_mark = 0;
    for (struct entry *entry = cache->newest, *after; entry; entry = after) {
        after = entry->after;
        size_t held = count_tokens(entry);
        struct gs_prefix_mark end = {.count = held};
        if (entry->scope != scope || held >= count || common(entry, tokens, count) < held ||
            n_mark + entry->n_mark + 1 > most)
            continue;
        if (gs_session_export_rings(entry->session, &end.rings, &end.least, NULL) != GS_OK) {
            gs_buffer_free(&end.rings);
            continue;
        }
        memcpy(&marks[n_mark], entry->marks, entry->n_mark * sizeof *marks);
        n_mark += entry->n_mark;
        marks[n_mark++] = end;
        entry->n_mark = 0;
        unlink_entry(cache, entry);
        free_entry(entry);
    }
    return n_mark;
}

void gs_prefix_cache_keep(struct gs_prefix_cache *cache, size_t scope, const struct gs_timeline_state *state)
{
    struct gs_prefix_mark marks[2 * GS_PREFIX_MAX_MARKS];
    size_t count, n_mark = 0;
    const int32_t *tokens = gs_session_tokens(state->session, &count);
    if (count == 0 || gs_session_bytes(cache->engine, (int64_t)count) > cache->max_bytes ||
        keep_as_mark(cache, scope, state))
        return;
    if (cache->has_marks)
        n_mark = absorb(cache, scope, tokens, count, marks, sizeof marks / sizeof *marks);
    gs_prefix_cache_copy(cache, INFINITY); /* one at a time */
    struct entry *entry = make_entry(cache, scope, count);
    if (entry && begin_copy(cache, entry, state->session) != GS_OK) {
        free_entry(entry);
        entry = NULL;
    }
    if (entry) {
        entry->least = gs_timeline_least(cache->engine, count);
        entry->least = entry->least < state->least ? state->least : entry->least;
        link_entry(cache, entry);
    }
    for (size_t i = 0; i < n_mark; i++) {
        if (entry)
            add_mark(cache, entry, true, &marks[i]);
        gs_buffer_free(&marks[i].rings);
    }
    make_room(cache, 0);
}

/* ---------------------------------------------------------------- storing */

static bool hand_over(struct gs_prefix_cache *cache, struct entry *entry)
{
    if (entry == cache->copying)
        gs_prefix_cache_copy(cache, INFINITY);
    const struct gs_prefix_timeline timeline = {entry->session, entry->least, entry->marks, entry->n_mark};
    if (!gs_prefix_store_save(cache->store, entry->scope, &timeline))
        return false;
    entry->stored = true;
    cache->storing = entry;
    return true;
}

/* What became of the last one; false while it is being written. */
static bool is_idle(struct gs_prefix_cache *cache)
{
    enum gs_prefix_store_state state = gs_prefix_store_poll(cache->store);
    if (state == GS_STORE_FAILED) {
        for (struct entry *entry = cache->newest; entry; entry = entry->after)
            if (entry == cache->storing)
                entry->stored = false;
        cache->retry_at = gs_clock_seconds() + RETRY_SECONDS;
    }
    if (state != GS_STORE_BUSY)
        cache->storing = NULL;
    return state != GS_STORE_BUSY;
}

double gs_prefix_cache_store(struct gs_prefix_cache *cache)
{
    double now = gs_clock_seconds(), soonest = -1.0;
    if (!cache->store)
        return -1.0;
    bool idle = is_idle(cache);
    for (struct entry *entry = cache->newest; entry; entry = entry->after) {
        double due = entry->changed + cache->store_after;
        due = due > cache->retry_at ? due : cache->retry_at;
        if (entry->stored)
            continue;
        if (due > now || !idle) {
            double wait = due > now ? due - now : POLL_SECONDS;
            soonest = soonest < 0.0 || wait < soonest ? wait : soonest;
            continue;
        }
        if (!hand_over(cache, entry))
            cache->retry_at = now + RETRY_SECONDS;
        idle = false;
        soonest = POLL_SECONDS; /* how it went */
    }
    return idle ? soonest : soonest < 0.0 ? POLL_SECONDS : soonest;
}

void gs_prefix_cache_store_all(struct gs_prefix_cache *cache, double end)
{
    if (!cache->store)
        return;
    for (struct entry *entry = cache->newest; entry && gs_clock_seconds() < end; entry = entry->after) {
        gs_prefix_store_wait(cache->store);
        if (!entry->stored && !hand_over(cache, entry))
            return;
    }
    gs_prefix_store_wait(cache->store);
}

struct gs_prefix_figures gs_prefix_cache_figures(struct gs_prefix_cache *cache)
{
    return (struct gs_prefix_figures){atomic_load(&cache->n_entry), atomic_load(&cache->bytes),
                                      cache->max_bytes, atomic_load(&cache->n_loaded)};
}
