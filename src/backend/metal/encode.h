/*
 * The stages of a forward as dispatches. A run collects them into passes (command buffers): one for a token,
 * or one a stage where somebody looks between them.
 */
#ifndef GS_BACKEND_METAL_ENCODE_H
#define GS_BACKEND_METAL_ENCODE_H

#include "backend/metal/device.h"

/* A stretch of neighbouring rows of one timeline. */
struct gs_metal_stretch {
    const struct gs_kv *kv;
    uint32_t first_row, n_rows;
};

struct gs_metal_run {
    struct gs_device *device;
    struct gs_error *error;
    const struct gs_metal_stretch *stretches; /* [n_stretches] */
    size_t n_stretches;
    uint32_t n_rows, n_logit_rows;
    uint32_t n_ctx;       /* positions of the call are below */
    bool is_tiled;        /* rows grouped by expert: the tile kernels ... */
    bool is_few;          /* ... or of those the ones for few rows */
    uint32_t row_offset;  /* bytes: where GS_METAL_ROWS begins, ... */
    uint32_t rope_offset; /* ... and GS_METAL_ROPE */

    uint32_t n_chosen; /* logit rows of which a token is wanted */

    struct gs_metal_args args;
    struct gs_metal_pass pass;      /* being encoded; no encoder: none */
    struct gs_metal_pass in_flight; /* committed; no commands: none */
};

/* Are the kernels for few rows to be taken for n of them? */
bool gs_metal_takes_few(const struct gs_device *device, uint32_t n);

/* Hands the pass to the device and waits for the one before it, so that two are on the way at most. */
gs_status gs_metal_submit(struct gs_metal_run *run);

/* Hands the pass to the device and waits until everything is done. */
gs_status gs_metal_finish(struct gs_metal_run *run);

/* Gives up what is not committed and waits for what is. */
void gs_metal_abandon(struct gs_metal_run *run);

/* The stages, in the model's order. Each begins a pass if there is none. */
gs_status gs_metal_embed(struct gs_metal_run *run);
gs_status gs_metal_attention(struct gs_metal_run *run, int64_t layer);
gs_status gs_metal_experts(struct gs_metal_run *run, int64_t layer);
/* Logit rows `first` ... first+n-1 into the first rows of GS_METAL_LOGITS. */
gs_status gs_metal_head(struct gs_metal_run *run, uint32_t first, uint32_t n);
gs_status gs_metal_pick(struct gs_metal_run *run);

/* The last norm of all rows, for taps. */
gs_status gs_metal_final_norm(struct gs_metal_run *run);

/* Rows matrix_row ... of an expert's matrix as float32 to GS_METAL_PROJECTED, [n_rows][columns]. */
gs_status gs_metal_dequantize_rows(struct gs_metal_run *run, const struct gs_metal_experts *experts,
                                   uint32_t matrix_row, uint32_t n_rows);

#endif
