#include "engine/verify_run.h"

#include "base/status.h"

#include <string.h>

static const size_t whole_sizes[] = {SIZE_MAX};
static const size_t mixed_sizes[] = {1, 7, 64};
const struct gs_cuts gs_cuts_whole = {whole_sizes, 1};
const struct gs_cuts gs_cuts_mixed = {mixed_sizes, 3};

gs_status gs_subject_open(const struct gs_backend *backend, const struct gs_weights *weights,
                          const struct gs_device_options *options, struct gs_subject *out,
                          struct gs_error *error)
{
    *out = (struct gs_subject){.backend = backend, .weights = weights};
    gs_status status = backend->open(options, &out->device, error);
    if (status == GS_OK)
        status = backend->load(out->device, weights, NULL, NULL, error);
    if (status != GS_OK)
        gs_subject_close(out);
    return status;
}

void gs_subject_close(struct gs_subject *subject)
{
    if (subject->device)
        subject->backend->close(subject->device);
    subject->device = NULL;
}

static void advance(struct gs_watch *watch, size_t n_tokens)
{
    watch->done += n_tokens;
    if (watch->progress)
        watch->progress(watch->progress_user, watch->done < watch->total ? watch->done : watch->total,
                        watch->total);
}

gs_status gs_subject_continue(const struct gs_subject *subject, struct gs_kv *kv, const int32_t *tokens,
                              size_t n_tokens, const struct gs_cuts *cuts, struct gs_record *record,
                              struct gs_watch *watch, struct gs_error *error)
{
    const struct gs_backend *backend = subject->backend;
    size_t most = backend->max_tokens(subject->device);
    gs_status status = GS_OK;
    backend->tap(subject->device, gs_record_tap, record);
    for (size_t at = 0, turn = 0; status == GS_OK && at < n_tokens; turn++) {
        size_t count = cuts->sizes[turn % cuts->count];
        count = count < most ? count : most;
        count = count < n_tokens - at ? count : n_tokens - at;
        record->next = backend->kv_length(kv);
        struct gs_step step = {.kv = kv, .tokens = tokens + at, .n_tokens = count, .want = GS_WANT_ALL};
        status = backend->forward(subject->device, &step, 1, watch->cancelled, error);
        at += count;
        advance(watch, count);
    }
    backend->tap(subject->device, NULL, NULL);
    if (status == GS_OK && record->failed)
        status = gs_fail(error, GS_OUT_OF_MEMORY, "no memory for the intermediates of %zu tokens", n_tokens);
    return status;
}

gs_status gs_subject_run(const struct gs_subject *subject, const int32_t *tokens, size_t n_tokens,
                         const struct gs_cuts *cuts, struct gs_record *record, struct gs_watch *watch,
                         struct gs_error *error)
{
    struct gs_kv *kv = NULL;
    gs_status status = subject->backend->kv_create(subject->device, (int64_t)n_tokens, &kv, error);
    if (status == GS_OK)
        status = gs_subject_continue(subject, kv, tokens, n_tokens, cuts, record, watch, error);
    subject->backend->kv_free(kv);
    return status;
}

gs_status gs_subject_decode(const struct gs_subject *subject, const int32_t *prompt, size_t n_prompt,
                            int32_t *out, size_t n_new, struct gs_watch *watch, struct gs_error *error)
{
    const struct gs_backend *backend = subject->backend;
    struct gs_kv *kv = NULL;
    size_t most = backend->max_tokens(subject->device);
    gs_status status = backend->kv_create(subject->device, (int64_t)(n_prompt + n_new), &kv, error);
    for (size_t at = 0; status == GS_OK && at < n_prompt; at += most) {
        size_t count = n_prompt - at < most ? n_prompt - at : most;
        struct gs_step step = {.kv = kv, .tokens = prompt + at, .n_tokens = count, .want = GS_WANT_LAST};
        status = backend->forward(subject->device, &step, 1, watch->cancelled, error);
        advance(watch, count);
    }
    for (size_t i = 0; status == GS_OK && i < n_new; i++) {
        out[i] = (int32_t)gs_argmax(backend->logits(subject->device, 0), subject->weights->config.n_vocab);
        struct gs_step step = {.kv = kv, .tokens = &out[i], .n_tokens = 1, .want = GS_WANT_LAST};
        if (i + 1 < n_new)
            status = backend->forward(subject->device, &step, 1, watch->cancelled, error);
        advance(watch, 1);
    }
    backend->kv_free(kv);
    return status;
}
