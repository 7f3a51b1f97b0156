/* A model on a backend, run over tokens while a record takes down its intermediates. */
#ifndef GS_ENGINE_VERIFY_RUN_H
#define GS_ENGINE_VERIFY_RUN_H

#include "engine/compare.h"

struct gs_subject {
    const struct gs_backend *backend;
    const struct gs_weights *weights;
    struct gs_device *device;
};

/* How a sequence is cut into calls: sizes[0], sizes[1] ... tokens, over and over. */
struct gs_cuts {
    const size_t *sizes;
    size_t count;
};

extern const struct gs_cuts gs_cuts_whole; /* as many as the backend takes */
extern const struct gs_cuts gs_cuts_mixed; /* 1, 7, 64: decoding and prefill in turn */

/* Borrows weights. */
gs_status gs_subject_open(const struct gs_backend *backend, const struct gs_weights *weights,
                          const struct gs_device_options *options, struct gs_subject *out,
                          struct gs_error *error);
void gs_subject_close(struct gs_subject *subject);

/* Where a long run tells how far it is, and looks whether it should stop. */
struct gs_watch {
    gs_progress_fn *progress; /* may be NULL */
    void *progress_user;
    const _Atomic bool *cancelled; /* may be NULL */
    uint64_t done, total;          /* tokens */
};

/* Runs tokens [n_tokens] as a timeline of their own. */
gs_status gs_subject_run(const struct gs_subject *subject, const int32_t *tokens, size_t n_tokens,
                         const struct gs_cuts *cuts, struct gs_record *record, struct gs_watch *watch,
                         struct gs_error *error);

/* The same as a part of a timeline that the caller has: the next n_tokens of kv. */
gs_status gs_subject_continue(const struct gs_subject *subject, struct gs_kv *kv, const int32_t *tokens,
                              size_t n_tokens, const struct gs_cuts *cuts, struct gs_record *record,
                              struct gs_watch *watch, struct gs_error *error);

/* Greedy: the n_new tokens that follow the prompt. */
gs_status gs_subject_decode(const struct gs_subject *subject, const int32_t *prompt, size_t n_prompt,
                            int32_t *out, size_t n_new, struct gs_watch *watch, struct gs_error *error);

#endif
