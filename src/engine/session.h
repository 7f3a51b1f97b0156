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

/* The length of its rows of logits. */
size_t gs_session_vocab(const struct gs_session *session);

#endif
