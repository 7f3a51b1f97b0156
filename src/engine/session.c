/*
 * A timeline of tokens over a backend's cache. The cache holds a prefix of the timeline: all of it after a
 * success, less after a truncation that the rings could not follow. Whoever needs logits first runs what is
 * missing.
 */
#include "engine/session.h"

#include "base/clock.h"
#include "base/status.h"
#include "engine/engine.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static gs_status make_session(struct gs_engine *engine, int64_t n_ctx, struct gs_session **out,
                              struct gs_error *error)
{
    gs_status status;
    struct gs_session *session = calloc(1, sizeof *session);
    if (!session)
        return gs_fail_memory(error, sizeof *session);
    session->engine = engine;
    session->n_ctx = n_ctx;
    session->tokens = malloc((size_t)n_ctx * sizeof *session->tokens);
    session->logits = malloc((size_t)engine->info.n_vocab * sizeof *session->logits);
    if (!session->tokens || !session->logits)
        status = gs_fail_memory(error, (uint64_t)(n_ctx + engine->info.n_vocab) * 4);
    else
        status = engine->backend->kv_create(engine->device, n_ctx, &session->kv, error);
    if (status != GS_OK) {
        gs_session_close(session);
        return status;
    }
    *out = session;
    return GS_OK;
}

/*
 * Asking the system what is free reads half a dozen files: as much as some steps of a small model. Of what
 * was free sessions may take half within a second without asking again.
 */
static bool take_spare(struct gs_engine *engine, int64_t n_ctx)
{
    if (n_ctx < 1 || n_ctx > engine->info.max_ctx || gs_clock_seconds() >= atomic_load(&engine->spare_until))
        return false;
    uint64_t bytes = engine->backend->kv_bytes(engine->device, n_ctx);
    uint64_t left = atomic_load(&engine->spare_bytes);
    while (left >= bytes)
        if (atomic_compare_exchange_weak(&engine->spare_bytes, &left, left - bytes))
            return true;
    return false;
}

static void note_spare(struct gs_engine *engine, const struct gs_memory_plan *plan)
{
    uint64_t taken = plan->scratch_bytes + plan->kv_bytes;
    atomic_store(&engine->spare_bytes,
                 plan->available_bytes > taken ? (plan->available_bytes - taken) / 2 : 0);
    atomic_store(&engine->spare_until, gs_clock_seconds() + 1.0);
}

gs_status gs_session_open(struct gs_engine *engine, int64_t n_ctx, struct gs_session **out,
                          struct gs_error *error)
{
    struct gs_memory_plan plan;
    *out = NULL;
    if (take_spare(engine, n_ctx))
        return make_session(engine, n_ctx, out, error);
    gs_status status = gs_engine_plan(engine, n_ctx == 0 ? engine->info.max_ctx : n_ctx, &plan, error);
    if (status == GS_OK && n_ctx == 0) /* asking again could find less free */
        plan.n_ctx = plan.largest_n_ctx > 0 ? plan.largest_n_ctx : 1;
    if (status == GS_OK)
        status = gs_plan_check(&plan, error);
    if (status == GS_OK)
        note_spare(engine, &plan);
    return status == GS_OK ? make_session(engine, plan.n_ctx, out, error) : status;
}

void gs_session_close(struct gs_session *session)
{
    if (!session)
        return;
    if (session->kv)
        session->engine->backend->kv_free(session->kv);
    free(session->logits);
    free(session->tokens);
    free(session);
}

gs_status gs_session_fork(const struct gs_session *session, struct gs_session **out, struct gs_error *error)
{
    gs_status status = gs_session_open(session->engine, session->n_ctx, out, error);
    if (status != GS_OK)
        return status;
    struct gs_session *copy = *out;
    status = session->engine->backend->kv_copy(copy->kv, session->kv, error);
    if (status != GS_OK) {
        gs_session_close(copy);
        *out = NULL;
        return status;
    }
    memcpy(copy->tokens, session->tokens, session->n_tokens * sizeof *copy->tokens);
    copy->n_tokens = session->n_tokens;
    copy->n_cached = session->n_cached;
    copy->has_logits = session->has_logits;
    if (session->has_logits)
        memcpy(copy->logits, session->logits, (size_t)session->engine->info.n_vocab * sizeof *copy->logits);
    return GS_OK;
}

int64_t gs_session_n_ctx(const struct gs_session *session)
{
    return session->n_ctx;
}

const int32_t *gs_session_tokens(const struct gs_session *session, size_t *count)
{
    *count = session->n_tokens;
    return session->tokens;
}

const float *gs_session_logits(const struct gs_session *session)
{
    return session->has_logits ? session->logits : NULL;
}

void gs_session_on_progress(struct gs_session *session, gs_progress_fn *fn, void *user)
{
    session->progress = fn;
    session->progress_user = user;
}

size_t gs_session_vocab(const struct gs_session *session)
{
    return (size_t)session->engine->info.n_vocab;
}

void gs_session_cancel(struct gs_session *session)
{
    atomic_store(&session->cancelled, true);
}

/*
 * The turn of this session: one forward at a time runs on an engine. While it waits it looks at its own
 * cancel flag now and then, so that a long step of another session does not hold up a cancel.
 */
static gs_status take_turn(struct gs_session *session, struct gs_error *error)
{
    pthread_mutex_t *mutex = &session->engine->mutex;
    while (pthread_mutex_trylock(mutex) != 0) {
        if (atomic_load(&session->cancelled))
            return gs_fail(error, GS_CANCELLED, "cancelled");
        struct timespec pause = {.tv_nsec = 200000};
        nanosleep(&pause, NULL);
    }
    return GS_OK;
}

/*
 * A backend runs with SIGBUS unblocked: where it is blocked, a page that a shrunken file no longer has would
 * end the process instead of reaching the handler of format/file_map.h. Returns the mask as it was.
 */
static sigset_t unblock_bus_error(void)
{
    sigset_t bus_error, before;
    sigemptyset(&bus_error);
    sigaddset(&bus_error, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &bus_error, &before);
    return before;
}

static gs_status forward(struct gs_session *session, const struct gs_step *step, struct gs_error *error)
{
    struct gs_engine *engine = session->engine;
    sigset_t before = unblock_bus_error();
    gs_status status = engine->backend->forward(engine->device, step, 1, &session->cancelled, error);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

/* One forward of the `count` tokens of the timeline after those that are cached. */
static gs_status run_piece(struct gs_session *session, size_t count, bool last, struct gs_error *error)
{
    struct gs_engine *engine = session->engine;
    struct gs_step step = {session->kv, session->tokens + session->n_cached, count,
                           last ? GS_WANT_LAST : GS_WANT_NONE, NULL};
    gs_status status = take_turn(session, error);
    if (status != GS_OK)
        return status;
    status = forward(session, &step, error);
    if (status == GS_OK && last)
        memcpy(session->logits, engine->backend->logits(engine->device, 0),
               (size_t)engine->info.n_vocab * sizeof *session->logits);
    pthread_mutex_unlock(&engine->mutex);
    if (status == GS_OK)
        session->n_cached += count;
    return status;
}

/* Runs what is not cached yet of the first `count` tokens of session->tokens, which become the timeline. */
static gs_status run_to(struct gs_session *session, size_t count, struct gs_error *error)
{
    size_t piece = session->engine->backend->max_tokens(session->engine->device);
    size_t first = session->n_cached;
    gs_status status = GS_OK;
    session->has_logits = false;
    while (status == GS_OK && session->n_cached < count) {
        size_t left = count - session->n_cached, n = left < piece ? left : piece;
        status = run_piece(session, n, n == left, error);
        if (status == GS_OK && session->progress)
            session->progress(session->progress_user, session->n_cached - first, count - first);
    }
    if (status == GS_OK) /* weights read from a file that changed meanwhile would be silent nonsense */
        status = gs_checkpoint_check(session->engine->checkpoint, error);
    session->has_logits = status == GS_OK;
    session->n_tokens = status == GS_OK ? count : session->n_cached;
    if (status == GS_CANCELLED)
        atomic_store(&session->cancelled, false);
    return status;
}

static gs_status check_tokens(struct gs_session *session, size_t before, const int32_t *tokens, size_t count,
                              struct gs_error *error)
{
    int64_t n_vocab = session->engine->info.n_vocab;
    if (count == 0)
        return gs_fail(error, GS_INVALID_ARGUMENT, "no tokens: at least one is needed");
    if (count > (size_t)session->n_ctx - before)
        return gs_fail(error, GS_CONTEXT_FULL, "%zu tokens do not fit in the context of %lld", before + count,
                       (long long)session->n_ctx);
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= n_vocab)
            return gs_fail(error, GS_INVALID_ARGUMENT, "token id %d is not in 0 ... %lld", (int)tokens[i],
                           (long long)n_vocab - 1);
    if (atomic_exchange(&session->cancelled, false))
        return gs_fail(error, GS_CANCELLED, "cancelled");
    return GS_OK;
}

/* Makes the cache hold at most `count` tokens: fewer, where the rings cannot go back that little. */
static void shrink_cache(struct gs_session *session, size_t count)
{
    if (count < session->n_cached)
        session->n_cached = (size_t)session->engine->backend->kv_truncate(session->kv, (int64_t)count);
}

gs_status gs_session_sync(struct gs_session *session, const int32_t *tokens, size_t count, size_t *n_computed,
                          struct gs_error *error)
{
    if (n_computed)
        *n_computed = 0;
    gs_status status = check_tokens(session, 0, tokens, count, error);
    if (status != GS_OK)
        return status;
    size_t shared = 0;
    while (shared < count && shared < session->n_cached && tokens[shared] == session->tokens[shared])
        shared++;
    if (shared == count && count == session->n_tokens && session->has_logits)
        return GS_OK;
    /* The last token is run again where nothing else would give its logits. */
    shrink_cache(session, shared < count ? shared : count - 1);
    size_t before = session->n_cached;
    memmove(session->tokens, tokens, count * sizeof *tokens);
    status = run_to(session, count, error);
    if (n_computed)
        *n_computed = session->n_cached - before;
    return status;
}

gs_status gs_session_append(struct gs_session *session, const int32_t *tokens, size_t count,
                            struct gs_error *error)
{
    gs_status status = check_tokens(session, session->n_tokens, tokens, count, error);
    if (status != GS_OK)
        return status;
    memmove(session->tokens + session->n_tokens, tokens, count * sizeof *tokens);
    return run_to(session, session->n_tokens + count, error);
}

gs_status gs_session_truncate(struct gs_session *session, size_t count, struct gs_error *error)
{
    if (count > session->n_tokens)
        return gs_fail(error, GS_INVALID_ARGUMENT, "cannot keep %zu tokens of a timeline of %zu", count,
                       session->n_tokens);
    shrink_cache(session, count);
    session->n_tokens = count;
    session->has_logits = false;
    return GS_OK;
}

/* ---------------------------------------------------------------- chains */

static gs_status run_chain(struct gs_session *session, int32_t token, const struct gs_draw *draws,
                           int32_t *out, size_t n, struct gs_error *error)
{
    struct gs_engine *engine = session->engine;
    gs_status status = take_turn(session, error);
    if (status != GS_OK)
        return status;
    sigset_t before = unblock_bus_error();
    status = engine->backend->chain(engine->device, session->kv, token, draws, out, n, error);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_mutex_unlock(&engine->mutex);
    return status;
}

gs_status gs_session_chain(struct gs_session *session, int32_t token, const struct gs_draw *draws,
                           int32_t *out, size_t n, size_t *n_chosen, struct gs_error *error)
{
    size_t before = session->n_tokens, told = 0;
    *n_chosen = 0;
    gs_status status = check_tokens(session, before + n - 1, &token, 1, error);
    if (status == GS_OK && session->n_cached < before) /* the rings did not reach back */
        status = run_to(session, before, error);
    if (status == GS_OK)
        status = run_chain(session, token, draws, out, n, error);
    if (status == GS_CANCELLED)
        atomic_store(&session->cancelled, false);
    if (status != GS_OK)
        return status;
    session->tokens[before] = token;
    memcpy(session->tokens + before + 1, out, (n - 1) * sizeof *out);
    session->n_tokens = session->n_cached = before + n;
    session->has_logits = false;
    while (told < n && out[told] >= 0)
        told++;
    status = gs_checkpoint_check(session->engine->checkpoint, error);
    if (status != GS_OK)
        told = 0;
    if (told < n)
        gs_session_truncate(session, before + told, NULL);
    *n_chosen = told;
    return status;
}
