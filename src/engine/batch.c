#include "engine/batch.h"

#include "base/status.h"
#include "engine/engine.h"
#include "engine/session.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define FEW_ITEMS 64 /* more need an allocation */

size_t gs_batch_max_tokens(const struct gs_engine *engine)
{
    return engine->backend->max_tokens(engine->device);
}

size_t gs_session_n_cached(const struct gs_session *session)
{
    return session->n_cached;
}

uint64_t gs_session_bytes(const struct gs_engine *engine, int64_t n_ctx)
{
    return engine->backend->kv_bytes(engine->device, n_ctx) + (uint64_t)n_ctx * sizeof(int32_t) +
           (uint64_t)engine->info.n_vocab * sizeof(float);
}

gs_status gs_session_rewind(struct gs_session *session, size_t count, size_t *kept, struct gs_error *error)
{
    gs_status status = GS_OK;
    if (count < session->n_tokens)
        status = gs_session_truncate(session, count, error);
    if (status == GS_OK) {
        session->n_tokens = session->n_cached;
        *kept = session->n_cached;
    }
    return status;
}

gs_status gs_session_copy_part(struct gs_session *to, const struct gs_session *from, size_t *at, size_t most,
                               struct gs_error *error)
{
    const struct gs_backend *backend = to->engine->backend;
    bool begins = *at == 0;
    int64_t position = (int64_t)*at;
    if (begins && from->n_tokens > (size_t)to->n_ctx)
        return gs_fail(error, GS_CONTEXT_FULL, "%zu tokens do not fit in the context of %lld", from->n_tokens,
                       (long long)to->n_ctx);
    gs_status status = backend->kv_copy_part
                           ? backend->kv_copy_part(to->kv, from->kv, &position, (int64_t)most, error)
                           : backend->kv_copy(to->kv, from->kv, error);
    if (status != GS_OK)
        return status;
    *at = backend->kv_copy_part ? (size_t)position : from->n_cached;
    if (!begins)
        return GS_OK;
    memcpy(to->tokens, from->tokens, from->n_tokens * sizeof *to->tokens);
    to->n_tokens = from->n_tokens;
    to->n_cached = from->n_cached;
    to->has_logits = from->has_logits;
    if (from->has_logits)
        memcpy(to->logits, from->logits, gs_session_vocab(from) * sizeof *to->logits);
    return GS_OK;
}

gs_status gs_session_copy(struct gs_session *to, const struct gs_session *from, struct gs_error *error)
{
    size_t at = 0;
    return gs_session_copy_part(to, from, &at, (size_t)INT64_MAX, error);
}

bool gs_engine_has_rings(const struct gs_engine *engine)
{
    return engine->backend->kv_export_rings != NULL;
}

bool gs_engine_has_chains(const struct gs_engine *engine, bool draws)
{
    return engine->backend->chain && (!draws || engine->backend->draws);
}

void gs_engine_share(struct gs_engine *engine, gs_task_fn *fn, void *user, size_t n_items)
{
    pthread_mutex_lock(&engine->mutex);
    if (engine->backend->share)
        engine->backend->share(engine->device, fn, user, n_items);
    else
        fn(user, 0, n_items, 0);
    pthread_mutex_unlock(&engine->mutex);
}

gs_status gs_session_export_rings(const struct gs_session *session, struct gs_buffer *out, size_t *least,
                                  struct gs_error *error)
{
    int64_t shortest = 0;
    if (!gs_engine_has_rings(session->engine))
        return gs_fail(error, GS_UNSUPPORTED, "backend %s has no rings to export",
                       session->engine->backend->name);
    if (session->n_cached != session->n_tokens)
        return gs_fail(error, GS_INVALID_ARGUMENT, "a session with all its tokens in the cache is expected");
    gs_status status = session->engine->backend->kv_export_rings(session->kv, out, &shortest, error);
    *least = (size_t)shortest;
    return status;
}

/* For backends that copy whole timelines alone. */
static gs_status copy_and_rewind(struct gs_session *to, const struct gs_session *from, size_t count,
                                 struct gs_error *error)
{
    size_t kept = 0;
    gs_status status = gs_session_copy(to, from, error);
    if (status == GS_OK)
        status = gs_session_rewind(to, count, &kept, error);
    if (status == GS_OK && kept == count)
        return GS_OK;
    gs_session_truncate(to, 0, NULL);
    return status != GS_OK
               ? status
               : gs_fail(error, GS_INVALID_ARGUMENT, "the rings do not reach back to %zu tokens", count);
}

gs_status gs_session_copy_prefix(struct gs_session *to, const struct gs_session *from, size_t count,
                                 const struct gs_buffer *rings, struct gs_error *error)
{
    const struct gs_backend *backend = to->engine->backend;
    if (count > from->n_cached)
        return gs_fail(error, GS_INVALID_ARGUMENT, "%zu tokens of a timeline that holds %zu", count,
                       from->n_cached);
    if (count > (size_t)to->n_ctx)
        return gs_fail(error, GS_CONTEXT_FULL, "%zu tokens do not fit in the context of %lld", count,
                       (long long)to->n_ctx);
    if (!backend->kv_copy_prefix)
        return copy_and_rewind(to, from, count, error);
    gs_status status = backend->kv_copy_prefix(to->kv, from->kv, (int64_t)count,
                                               rings ? rings->data ? rings->data : "" : NULL,
                                               rings ? rings->size : 0, error);
    if (status != GS_OK)
        return status;
    memcpy(to->tokens, from->tokens, count * sizeof *to->tokens);
    to->n_tokens = to->n_cached = count;
    to->has_logits = false;
    return GS_OK;
}

static gs_status check_item(const struct gs_engine *engine, const struct gs_batch_item *item,
                            struct gs_error *error)
{
    const struct gs_session *session = item->session;
    int64_t n_vocab = engine->info.n_vocab;
    if (item->n_tokens == 0)
        return gs_fail(error, GS_INVALID_ARGUMENT, "no tokens: at least one is needed");
    if (session->engine != engine || session->n_cached != session->n_tokens)
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "a session of this engine with all its tokens in the cache "
                       "is expected");
    if (item->n_tokens > (size_t)session->n_ctx - session->n_tokens)
        return gs_fail(error, GS_CONTEXT_FULL, "%zu tokens do not fit in the context of %lld",
                       session->n_tokens + item->n_tokens, (long long)session->n_ctx);
    for (size_t i = 0; i < item->n_tokens; i++)
        if (item->tokens[i] < 0 || item->tokens[i] >= n_vocab)
            return gs_fail(error, GS_INVALID_ARGUMENT, "token id %d is not in 0 ... %lld",
                           (int)item->tokens[i], (long long)n_vocab - 1);
    return GS_OK;
}

/* SIGBUS is unblocked as in session.c: a page that a shrunken file no longer has must reach its handler. */
static gs_status forward(struct gs_engine *engine, const struct gs_step *steps, size_t n_steps,
                         const _Atomic bool *cancelled, struct gs_error *error)
{
    sigset_t bus_error, before;
    sigemptyset(&bus_error);
    sigaddset(&bus_error, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &bus_error, &before);
    gs_status status = engine->backend->forward(engine->device, steps, n_steps, cancelled, error);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

/* Weights read from a file that changed meanwhile would be silent nonsense: what they gave is forgotten. */
static gs_status check_weights(struct gs_engine *engine, const struct gs_batch_item *items, size_t n_items,
                               struct gs_error *error)
{
    gs_status status = gs_checkpoint_check(engine->checkpoint, error);
    for (size_t i = 0; i < n_items && status != GS_OK; i++) {
        struct gs_session *session = items[i].session;
        session->n_cached = (size_t)engine->backend->kv_truncate(session->kv, (int64_t)session->n_tokens);
        session->has_logits = false;
    }
    return status;
}

/* Is an item's token chosen by the backend? */
static bool is_chosen(const struct gs_engine *engine, const struct gs_batch_item *item)
{
    const struct gs_backend *backend = engine->backend;
    return item->want == GS_WANT_TOKEN && backend->chooses && (!item->draw || backend->draws);
}

static struct gs_step step_of(const struct gs_engine *engine, const struct gs_batch_item *item)
{
    bool chosen = is_chosen(engine, item);
    return (struct gs_step){.kv = item->session->kv,
                            .tokens = item->tokens,
                            .n_tokens = item->n_tokens,
                            .want = item->want == GS_WANT_TOKEN && !chosen ? GS_WANT_LAST : item->want,
                            .draw = chosen ? item->draw : NULL};
}

/* Row `at` is the last of the item, and more than a token is needed of it. */
static gs_status keep_logits(struct gs_engine *engine, const struct gs_batch_item *item, const float *logits,
                             struct gs_error *error)
{
    struct gs_session *session = item->session;
    session->has_logits = logits && !item->row;
    if (!logits)
        return gs_fail(error, GS_IO, "backend %s: the logits could not be fetched", engine->backend->name);
    if (item->row) {
        *item->row = logits;
        return GS_OK;
    }
    memcpy(session->logits, logits, (size_t)engine->info.n_vocab * sizeof *session->logits);
    return GS_OK;
}

/* The new tokens join the timelines, the wanted rows go where they belong. */
static gs_status take_results(struct gs_engine *engine, const struct gs_batch_item *items, size_t n_items,
                              gs_batch_row_fn *row, void *user, struct gs_error *error)
{
    const struct gs_backend *backend = engine->backend;
    size_t at = 0;
    gs_status status = GS_OK;
    for (size_t i = 0; i < n_items; i++) {
        const struct gs_batch_item *item = &items[i];
        struct gs_session *session = item->session;
        memcpy(session->tokens + session->n_tokens, item->tokens, item->n_tokens * sizeof *item->tokens);
        session->n_tokens += item->n_tokens;
        session->n_cached = session->n_tokens;
        session->has_logits = false;
        if (item->want == GS_WANT_NONE)
            continue;
        size_t n_rows = item->want == GS_WANT_ALL ? item->n_tokens : 1;
        for (size_t r = 0; item->want == GS_WANT_ALL && row && status == GS_OK && r < n_rows; r++)
            status = row(user, i, r, backend->logits(engine->device, at + r), error);
        at += n_rows - 1;
        if (item->want == GS_WANT_TOKEN)
            *item->chosen = is_chosen(engine, item) ? backend->chosen(engine->device, at) : -1;
        if (status == GS_OK && (item->want != GS_WANT_TOKEN || *item->chosen < 0))
            status = keep_logits(engine, item, backend->logits(engine->device, at), error);
        at++;
    }
    return status;
}

gs_status gs_batch_run(struct gs_engine *engine, const struct gs_batch_item *items, size_t n_items,
                       const _Atomic bool *cancelled, gs_batch_row_fn *row, void *user,
                       struct gs_error *error)
{
    struct gs_step few[FEW_ITEMS], *steps = few;
    gs_status status = GS_OK;
    for (size_t i = 0; i < n_items && status == GS_OK; i++)
        status = check_item(engine, &items[i], error);
    if (status != GS_OK || n_items == 0)
        return status;
    if (n_items > FEW_ITEMS && !(steps = calloc(n_items, sizeof *steps)))
        return gs_fail_memory(error, n_items * sizeof *steps);
    for (size_t i = 0; i < n_items; i++)
        steps[i] = step_of(engine, &items[i]);
    pthread_mutex_lock(&engine->mutex);
    status = forward(engine, steps, n_items, cancelled, error);
    if (status == GS_OK)
        status = check_weights(engine, items, n_items, error);
    if (status == GS_OK)
        status = take_results(engine, items, n_items, row, user, error);
    pthread_mutex_unlock(&engine->mutex);
    if (steps != few)
        free(steps);
    return status;
}
