/* A session as other files of the engine see it; the rest is in gossamer.h. */
#ifndef GS_ENGINE_SESSION_H
#define GS_ENGINE_SESSION_H

#include "backend/backend.h"

#include <stdatomic.h>

struct gs_session {
    struct gs_engine *engine;
    struct gs_kv *kv;
    int64_t n_ctx;
    int32_t *tokens; /* [n_ctx]: the timeline */
    size_t n_tokens;
    size_t n_cached; /* the first so many are in the cache */
    float *logits;   /* [n_vocab] */
    bool has_logits; /* they are those after the last token */
    gs_progress_fn *progress;
    void *progress_user;
    _Atomic bool cancelled;
};

/*
 * Appends `token` and goes on from it on the device: out [n] are what follows, chosen greedily or by
 * draws [n], and *n_chosen of them could be told (backend.h). The timeline holds `token` and all of those but
 * the last, or is as it was if there are none; there are no logits. Errors as gs_session_append. A cancel
 * while it runs is for the next call to hear. For backends that have chains.
 */
gs_status gs_session_chain(struct gs_session *session, int32_t token, const struct gs_draw *draws,
                           int32_t *out, size_t n, size_t *n_chosen, struct gs_error *error);

/* The length of its rows of logits. */
size_t gs_session_vocab(const struct gs_session *session);

#endif
