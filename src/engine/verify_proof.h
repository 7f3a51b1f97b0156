/* What gs_verify and gs_verify_controls share: the model, its golden, the tokens, the bars. */
#ifndef GS_ENGINE_VERIFY_PROOF_H
#define GS_ENGINE_VERIFY_PROOF_H

#include "engine/verify_checks.h"

struct gs_proof {
    struct gs_checkpoint *checkpoint;
    struct gs_weights *weights;
    const struct gs_backend *backend;
    struct gs_device_options device; /* without a control */
    struct gs_golden *golden;        /* may be NULL */
    const char *reference;           /* for people */
    const struct gs_thresholds *thresholds;
    const int32_t *tokens; /* [n_tokens] */
    size_t n_tokens;
    struct gs_watch watch;
    struct gs_arena arena;
};

gs_status gs_proof_open(const char *path, const struct gs_verify_options *options, struct gs_proof *proof,
                        struct gs_error *error);
void gs_proof_close(struct gs_proof *proof);

/*
 * The golden's tokens, then random ones: options->n_tokens of them (with a golden, at most as many as it
 * has), or else `wanted`, as far as the context goes.
 */
gs_status gs_proof_choose_tokens(struct gs_proof *proof, const struct gs_verify_options *options,
                                 size_t wanted, struct gs_error *error);

/* Enough tokens to leave the window, and to reach the positions that goldens keep on its far side. */
size_t gs_proof_few_tokens(const struct gs_proof *proof);

/* Those below `end`. */
struct gs_positions gs_first_positions(struct gs_positions positions, size_t end);

/* Positions begin ... end-1, in the proof's arena. */
gs_status gs_proof_span(struct gs_proof *proof, size_t begin, size_t end, struct gs_positions *out,
                        struct gs_error *error);

/* "exact" or "fast", "native" or "q8" into options; GS_INVALID_ARGUMENT names what was asked for instead. */
gs_status gs_proof_choose_kind(const char *precision, const char *weights, struct gs_device_options *options,
                               struct gs_error *error);

/* GS_FILE_CHANGED if the model's files shrank meanwhile. */
gs_status gs_proof_check_files(const struct gs_proof *proof, struct gs_error *error);

#endif
