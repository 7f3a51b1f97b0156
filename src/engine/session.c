/*
 * A timeline of tokens over a backend's cache. The cache may hold fewer tokens than the timeline only while
 * a call is under way or after one failed; `sync` always starts from what the cache really holds.
 */
#include "base/status.h"
#include "engine/engine.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct gs_session {
    struct gs_engine *engine;
    struct gs_kv *kv;
    int64_t n_ctx;
    int32_t *tokens; /* [n_ctx]; the first n_tokens are in the cache */
    size_t n_tokens;
    float *logits; /* [n_vocab] */
    bool has_logits;
    gs_progress_fn *progress;
    void *progress_user;
    _Atomic bool cancelled;
};

static gs_status check_fit(const struct gs_engine *engine, int64_t n_ctx, struct gs_error *error)
{
    struct gs_memory_plan plan;
    gs_status status = gs_engine_plan(engine, n_ctx, &plan, error);
    if (status == GS_OK && plan.available_bytes > 0 && n_ctx > plan.largest_n_ctx)
        return gs_fail(
            error, GS_OUT_OF_MEMORY,
            "a context of %lld tokens needs %llu bytes for its cache, but only %llu are free: the largest "
            "that fits is %lld",
            (long long)n_ctx, (unsigned long long)plan.kv_bytes, (unsigned long long)plan.available_bytes,
            (long long)plan.largest_n_ctx);
    return status;
}

gs_status gs_session_open(struct gs_engine *engine, int64_t n_ctx, struct gs_session **out,
                          struct gs_error *error)
{
    *out = NULL;
    if (n_ctx == 0) {
        struct gs_memory_plan plan;
        gs_status planned = gs_engine_plan(engine, engine->info.max_ctx, &plan, error);
        if (planned != GS_OK)
            return planned;
        n_ctx = plan.largest_n_ctx > 0 ? plan.largest_n_ctx : 1;
    }
    gs_status status = check_fit(engine, n_ctx, error);
    if (status != GS_OK)
        return status;

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

void gs_session_cancel(struct gs_session *session)
{
    atomic_store(&session->cancelled, true);
}

/* One forward of `count` tokens at the end of the timeline. */
static gs_status step(struct gs_session *session, const int32_t *tokens, size_t count, bool last,
                      struct gs_error *error)
{
    struct gs_engine *engine = session->engine;
    struct gs_step one = {session->kv, tokens, count, last ? GS_WANT_LAST : GS_WANT_NONE};
    pthread_mutex_lock(&engine->mutex);
    gs_status status = engine->backend->forward(engine->device, &one, 1, &session->cancelled, error);
    if (status == GS_OK && last)
        memcpy(session->logits, engine->backend->logits(engine->device, 0),
               (size_t)engine->info.n_vocab * sizeof *session->logits);
    pthread_mutex_unlock(&engine->mutex);
    if (status == GS_OK && gs_checkpoint_damaged(engine->checkpoint)) {
        status = gs_checkpoint_check(engine->checkpoint, error);
        if (status == GS_OK)
            status = gs_fail(error, GS_FILE_CHANGED, "a file of the model shrank while in use");
    }
    return status;
}

/* Runs tokens [count] at the end of the cache, in pieces of what the backend takes at once. */
static gs_status extend(struct gs_session *session, const int32_t *tokens, size_t count,
                        struct gs_error *error)
{
    size_t piece = session->engine->backend->max_tokens(session->engine->device);
    gs_status status = GS_OK;
    session->has_logits = false;
    for (size_t done = 0; status == GS_OK && done < count;) {
        size_t n = count - done < piece ? count - done : piece;
        status = step(session, tokens + done, n, done + n == count, error);
        if (status != GS_OK)
            break;
        memmove(session->tokens + session->n_tokens, tokens + done, n * sizeof *tokens);
        session->n_tokens += n;
        done += n;
        if (session->progress)
            session->progress(session->progress_user, done, count);
    }
    session->has_logits = status == GS_OK;
    atomic_store(&session->cancelled, false);
    return status;
}

static gs_status check_tokens(const struct gs_session *session, size_t before, const int32_t *tokens,
                              size_t count, struct gs_error *error)
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
    return GS_OK;
}

static void keep(struct gs_session *session, size_t count)
{
    if (count < session->n_tokens) {
        session->n_tokens = (size_t)session->engine->backend->kv_truncate(session->kv, (int64_t)count);
        session->has_logits = false;
    }
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
    while (shared < count && shared < session->n_tokens && tokens[shared] == session->tokens[shared])
        shared++;
    if (shared == count && count == session->n_tokens && session->has_logits)
        return GS_OK;
    /* The last token is run again where nothing else would give its logits. */
    keep(session, shared < count ? shared : count - 1);
    shared = session->n_tokens;
    status = extend(session, tokens + shared, count - shared, error);
    if (n_computed)
        *n_computed = session->n_tokens - shared;
    return status;
}

gs_status gs_session_append(struct gs_session *session, const int32_t *tokens, size_t count,
                            struct gs_error *error)
{
    gs_status status = check_tokens(session, session->n_tokens, tokens, count, error);
    return status == GS_OK ? extend(session, tokens, count, error) : status;
}

gs_status gs_session_truncate(struct gs_session *session, size_t count, struct gs_error *error)
{
    if (count > session->n_tokens)
        return gs_fail(error, GS_INVALID_ARGUMENT, "cannot keep %zu tokens of a timeline of %zu", count,
                       session->n_tokens);
    if (count == session->n_tokens)
        return GS_OK;
    keep(session, count);
    if (session->n_tokens == count)
        return GS_OK;
    /* The rings no longer hold the window before `count`: what is to be kept is computed again. */
    return extend(session, session->tokens + session->n_tokens, count - session->n_tokens, error);
}
