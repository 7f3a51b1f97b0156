/*
 * One forward over several sessions: the step of a server. Each session gets new tokens behind its timeline,
 * which must be wholly in its cache (as after a sync or an append that succeeded). The logits of a session do
 * not depend on what else is in the call.
 *
 * For one thread that owns the engine; sessions that others sync meanwhile take turns with it.
 */
#ifndef GS_ENGINE_BATCH_H
#define GS_ENGINE_BATCH_H

#include "backend/backend.h"

#include <stdatomic.h>

struct gs_batch_item {
    struct gs_session *session;
    const int32_t *tokens; /* [n_tokens], n_tokens >= 1 */
    size_t n_tokens;
    /*
     * LAST: they become the session's logits. ALL: those too, and each row goes to the row function. NONE:
     * the session has no logits. TOKEN: *chosen is the next token, by `draw` or greedily, and the session has
     * no logits; or -1, and it has them: the backend does not choose, or could not tell.
     */
    enum gs_want want;
    const struct gs_draw *draw; /* TOKEN; NULL: greedily */
    int32_t *chosen;            /* TOKEN */
    /*
     * Where the last token's logits [n_vocab] stand, if the session would have them: until the engine runs
     * tokens again, whichever session's, and the session has none, which saves a copy. NULL: they are the
     * session's. Nothing is written where there are none.
     */
    const float **row;
};

/* Logits [n_vocab] after token `row` of item `item`; valid during the call, in which no session may be run.
 */
typedef gs_status gs_batch_row_fn(void *user, size_t item, size_t row, const float *logits,
                                  struct gs_error *error);

/* The most tokens of one call, all items together. */
size_t gs_batch_max_tokens(const struct gs_engine *engine);

/* Prefix of a session that further tokens can be put behind: all of it, unless something was truncated. */
size_t gs_session_n_cached(const struct gs_session *session);

/*
 * Brings a session's timeline to its first `count` tokens; *kept says how many it still has, and can go on
 * from: fewer than asked for (down to 0) where the rings do not reach. There are no logits then.
 */
gs_status gs_session_rewind(struct gs_session *session, size_t count, size_t *kept, struct gs_error *error);

/* As gs_session_fork, into a session of its own capacity: GS_CONTEXT_FULL if it does not hold that many. */
gs_status gs_session_copy(struct gs_session *to, const struct gs_session *from, struct gs_error *error);

/*
 * The same in pieces of some `most` tokens, at least 1: *at is 0 at first, and gs_session_n_cached(to) when
 * it is whole; till then nothing else is done with `to`, save asking for its tokens and exporting its rings.
 * Only the first can fail. Meanwhile `from` may go on. Some backends copy all of it at once.
 */
gs_status gs_session_copy_part(struct gs_session *to, const struct gs_session *from, size_t *at, size_t most,
                               struct gs_error *error);

/*
 * What cutting a timeline back cannot bring back, as it is at its end: a part of the window layers, appended
 * to `out`, that does not grow with the timeline. With it can be had its length and shorter ones, down to
 * *least. GS_UNSUPPORTED where the backend has no such thing.
 */
gs_status gs_session_export_rings(const struct gs_session *session, struct gs_buffer *out, size_t *least,
                                  struct gs_error *error);
bool gs_engine_has_rings(const struct gs_engine *engine);

/* Does it choose several tokens in a row by itself (gs_session_chain): greedily, or by draws? */
bool gs_engine_has_chains(const struct gs_engine *engine, bool draws);

/*
 * `to` becomes the first `count` tokens of `from`, without logits. `rings` are those that were exported when
 * it was that long; NULL: its own must reach back so far (GS_INVALID_ARGUMENT otherwise; `to` is then empty
 * or as it was).
 */
gs_status gs_session_copy_prefix(struct gs_session *to, const struct gs_session *from, size_t count,
                                 const struct gs_buffer *rings, struct gs_error *error);

/*
 * Runs fn over 0 ... n_items-1 on the engine's threads, as gs_threads_run, or on the caller's where it has
 * none. fn must not call the engine.
 */
void gs_engine_share(struct gs_engine *engine, gs_task_fn *fn, void *user, size_t n_items);

/* Bytes that a session of `n_ctx` tokens takes. */
uint64_t gs_session_bytes(const struct gs_engine *engine, int64_t n_ctx);

/*
 * Runs the items. `cancelled` (may be NULL) ends it with GS_CANCELLED within about a layer. On any failure no
 * timeline has changed, except where the row function failed or logits could not be fetched. Errors as
 * gs_session_append.
 */
gs_status gs_batch_run(struct gs_engine *engine, const struct gs_batch_item *items, size_t n_items,
                       const _Atomic bool *cancelled, gs_batch_row_fn *row, void *user,
                       struct gs_error *error);

#endif
