/*
 * THE interface between the engine and the hardware: a table of functions at the granularity of a step, so
 * that a backend can be a plain loop, a captured graph or one persistent kernel.
 *
 * A backend has no globals that change: everything hangs on the gs_device that `open` returns. Its objects
 * are used from one thread at a time.
 */
#ifndef GS_BACKEND_BACKEND_H
#define GS_BACKEND_BACKEND_H

#include "base/buffer.h"
#include "base/threads.h"
#include "model/weights.h"
#include "model/yarn.h"

struct gs_device; /* an opened device, private to its backend */
struct gs_kv;     /* the cache of one timeline, its layout private to the backend */

/*
 * Negative controls: one thing of the model done wrongly, in the way that implementations get it wrong, so
 * that a comparison can show that it would notice. engine/verify_controls.c has their names and what each
 * must do. Only the verifier and tests ask for one.
 */
enum gs_control {
    GS_CONTROL_NONE,
    GS_CONTROL_SINKS,               /* softmax over the keys alone */
    GS_CONTROL_WINDOW,              /* window layers see every position */
    GS_CONTROL_YARN,                /* plain RoPE: neither scaled frequencies nor attention scaling */
    GS_CONTROL_YARN_ROUNDED_BOUNDS, /* the ramp's bounds rounded outward, as llama.cpp and mlx-lm do */
    GS_CONTROL_ROUTER_SOFTMAX,      /* softmax over all experts, then the choice, without renormalising */
    GS_CONTROL_SWIGLU_CLAMP,        /* no limit; gs_backend_stats counts the values that are past it */
    GS_CONTROL_SWIGLU_PLUS_ONE,     /* up instead of up + 1 */
    GS_CONTROL_EXPERT_BIAS,         /* both expert biases zero */
    GS_CONTROL_NIBBLE_ORDER,        /* the high nibble first */
    GS_CONTROL_GATE_UP_ORDER,       /* rows 0 ... d_ff-1 are the gate instead of the even rows */
    GS_CONTROL_SCALE_MINUS_ONE,     /* MXFP4 exponents one less */
    GS_CONTROL_ROPE_PAIRS,          /* pairs (2j, 2j+1) instead of (j, j + d_head/2) */
    GS_CONTROL_KV_RING,             /* a position from window + max_tokens on is stored one slot late */
    GS_CONTROL_COUNT,
};

struct gs_device_options {
    size_t n_threads; /* CPU: 0 for one per physical core */
    int index;        /* which of several devices */
    const char *isa;  /* CPU: the kernels' instruction set, e.g. "generic"; NULL: the best */
    enum gs_precision precision;
    enum gs_weight_format weights;
    enum gs_control control;
    struct gs_levers levers;
    const char *cache_folder; /* for compiled kernels, made if need be; NULL: none */
};

/* What is wanted of a step's rows. */
enum gs_want {
    GS_WANT_NONE,
    GS_WANT_LAST,  /* the logits of the last */
    GS_WANT_ALL,   /* of all */
    GS_WANT_TOKEN, /* of the last a token, chosen where the logits are */
};

/* How a token is drawn from its row of logits, as docs/sampling.md has it. */
struct gs_draw {
    double uniform;    /* in [0, 1) */
    float temperature; /* above 0 */
};

/* New tokens of one timeline, at positions gs_kv length, length+1, ... */
struct gs_step {
    struct gs_kv *kv;
    const int32_t *tokens; /* [n_tokens] */
    size_t n_tokens;
    enum gs_want want;
    const struct gs_draw *draw; /* GS_WANT_TOKEN; NULL: the largest logit, the lowest id among equals */
};

/* Named intermediates, for the verifier. Rows are the tokens of the call, in order. */
enum gs_stage {
    GS_STAGE_EMBEDDING,     /* [n_tokens][d_model], layer 0 */
    GS_STAGE_ATTENTION,     /* [n_tokens][d_model]: o_proj's output, before the residual */
    GS_STAGE_ROUTER,        /* [n_tokens][n_expert]: logits */
    GS_STAGE_ROUTER_CHOICE, /* [n_tokens][n_active]: expert ids as float, best first */
    GS_STAGE_ROUTER_WEIGHT, /* [n_tokens][n_active]: their weights */
    GS_STAGE_MOE,           /* [n_tokens][d_model]: before the residual */
    GS_STAGE_LAYER,         /* [n_tokens][d_model]: the residual stream after the layer */
    GS_STAGE_FINAL_NORM,    /* [n_tokens][d_model], layer 0 */
    GS_STAGE_LOGITS,        /* [rows wanted][n_vocab], layer 0 */
    GS_STAGE_COUNT,
};
typedef void gs_tap_fn(void *user, enum gs_stage stage, int64_t layer, const float *values, int64_t rows,
                       int64_t columns);

/* What a forward's time went into. */
enum gs_time {
    GS_TIME_NORM,      /* norms and residual additions */
    GS_TIME_QKV,       /* projections, RoPE, writing the cache */
    GS_TIME_ATTENTION, /* scores, softmax, values */
    GS_TIME_OUTPUT,    /* attention's output projection */
    GS_TIME_ROUTER,    /* logits, choice, grouping */
    GS_TIME_EXPERTS,   /* gate and up, activation, down, weighted sum */
    GS_TIME_HEAD,
    GS_TIME_IDLE,  /* the thread that calls waits for other threads */
    GS_TIME_OTHER, /* embedding, preparation */
    GS_TIME_COUNT,
};

#define GS_CHAIN_TOKENS 256 /* of one chain at most */

struct gs_backend_stats {
    uint64_t n_tokens;     /* run through the model since load */
    uint64_t n_forward;    /* calls */
    uint64_t weight_bytes; /* read: rows of matrices, each once a forward; not vectors, not the embedding */
    double seconds;        /* inside forward */
    double stage_seconds[GS_TIME_COUNT]; /* the rest is preparation; all 0: not told apart */
    uint64_t n_past_limit; /* SwiGLU inputs beyond the limit; counted under GS_CONTROL_SWIGLU_CLAMP alone */

    /* Of a device that is driven by a queue; all 0 elsewhere. */
    uint64_t n_command_buffers; /* handed to the queue; CUDA: launched graphs */
    uint64_t n_encoders;        /* Metal alone */
    uint64_t n_dispatches;      /* kernels launched, those of graphs included */

    /* Of a device whose driver compiles kernels when it is opened. */
    uint64_t n_compiled, n_kept; /* kernels that it compiled, and those that it had kept on disk */
    const char *kernels_note;    /* the same in words, and why none are kept; NULL: nothing to say */
};

struct gs_backend {
    const char *name; /* "cpu" */

    /*
     * Do a token's logits have the same bits whatever else is in the call and however a prompt is cut in fast
     * precision too? In exact precision every backend promises it.
     */
    bool fast_keeps_bits;

    /* What this backend has been run on, as a sentence for its user, until it has run on hardware; else NULL.
     */
    const char *untested;

    /* Does it take any gs_levers? The others are opened with zeros. */
    bool has_levers;

    /*
     * Is it worth asking for tokens instead of logits: do the logits lie where the host has to fetch them?
     * And does it take a gs_draw? Every backend takes GS_WANT_TOKEN without one.
     */
    bool chooses, draws;

    /* Can this backend run here? Fills a one-line description; never fails loudly. */
    bool (*probe)(char *description, size_t size);

    /* GS_UNSUPPORTED for a precision, a weight format or a control that this backend does not have. */
    gs_status (*open)(const struct gs_device_options *options, struct gs_device **out,
                      struct gs_error *error);
    void (*close)(struct gs_device *device);

    /* Takes host views, which must outlive the device. Once per device. */
    gs_status (*load)(struct gs_device *device, const struct gs_weights *weights, gs_progress_fn *progress,
                      void *progress_user, struct gs_error *error);

    /* The most tokens that one call of forward takes, all steps together. */
    size_t (*max_tokens)(const struct gs_device *device);

    /* Bytes of one timeline's cache of `capacity` tokens, and of everything else that is allocated. */
    uint64_t (*kv_bytes)(const struct gs_device *device, int64_t capacity);
    uint64_t (*scratch_bytes)(const struct gs_device *device);

    /* Bytes that caches and scratch may take where they lie; 0: unknown. NULL: the host's memory. */
    uint64_t (*memory_available)(const struct gs_device *device);

    gs_status (*kv_create)(struct gs_device *device, int64_t capacity, struct gs_kv **out,
                           struct gs_error *error);
    void (*kv_free)(struct gs_kv *kv);
    int64_t (*kv_length)(const struct gs_kv *kv);

    /*
     * Forgets tokens so that at most `length` remain, and returns how many do: fewer where a window layer's
     * ring no longer holds what the tokens after `length` would need to see (then 0).
     */
    int64_t (*kv_truncate)(struct gs_kv *kv, int64_t length);

    /* Copies src's contents into dst, which has at least src's length as capacity. */
    gs_status (*kv_copy)(struct gs_kv *dst, const struct gs_kv *src, struct gs_error *error);

    /*
     * The same in pieces of some `most` tokens, at least 1: *at is 0 at first, and dst's length when it is
     * whole; till then nothing else is done with dst, save exporting its rings. Only the first can fail.
     * Meanwhile src may go on, and be cut back to no less than it had at first. NULL: a backend whose copies
     * are quick.
     */
    gs_status (*kv_copy_part)(struct gs_kv *dst, const struct gs_kv *src, int64_t *at, int64_t most,
                              struct gs_error *error);

    /* The contents as bytes in a form that import of the same backend and model reads back. */
    gs_status (*kv_export)(const struct gs_kv *kv, struct gs_buffer *out, struct gs_error *error);
    gs_status (*kv_import)(struct gs_kv *kv, const void *bytes, size_t size, struct gs_error *error);

    /*
     * What a truncation cannot bring back: the part of the rings that a next token sees, and a few tokens
     * before it, appended to `out`; its size does not grow with the timeline. *least: the shortest length
     * that can be had with it. And a copy of src's first `length` tokens into dst, with rings that were
     * exported when src was that long or a little longer; rings NULL: src's own must reach back so far
     * (GS_INVALID_ARGUMENT otherwise). Both NULL: a backend without them.
     */
    gs_status (*kv_export_rings)(const struct gs_kv *kv, struct gs_buffer *out, int64_t *least,
                                 struct gs_error *error);
    gs_status (*kv_copy_prefix)(struct gs_kv *dst, const struct gs_kv *src, int64_t length, const void *rings,
                                size_t size, struct gs_error *error);

    /*
     * Runs all steps as one. On failure no timeline has changed. Ids must be in range, each kv must have
     * room and occur once (GS_INVALID_ARGUMENT otherwise). The logits of a token do not depend on what else
     * is in the call: to the bit in exact precision, and in fast where fast_keeps_bits says so. Elsewhere
     * fast may take other kernels for another number of rows, and the logits differ by their rounding.
     *
     * `cancelled` (may be NULL) belongs to the caller and may be set from any thread: forward then returns
     * GS_CANCELLED within about a layer. A flag of the caller's, not an entry of this table, so that one
     * session's cancel cannot hit another session's step.
     */
    gs_status (*forward)(struct gs_device *device, const struct gs_step *steps, size_t n_steps,
                         const _Atomic bool *cancelled, struct gs_error *error);

    /*
     * n tokens after `token`, which is the next one of the timeline, chosen on the device without the host
     * between: each as `chosen` would tell it after a forward of one token, greedily or by draws [n]. The
     * timeline then holds `token` and all of `out` [n] but the last, whose logits are row 0's. At most
     * GS_CHAIN_TOKENS at a time; nothing stops it on the way. What follows a -1 in `out` means nothing. On
     * failure the timeline has not changed. NULL: there is no such way.
     */
    gs_status (*chain)(struct gs_device *device, struct gs_kv *kv, int32_t token, const struct gs_draw *draws,
                       int32_t *out, size_t n, struct gs_error *error);

    /*
     * Row `row` [n_vocab] of those that the last forward was wanted something of, in the order of steps and
     * tokens, each in a place of its own until the next forward or chain; of a GS_WANT_TOKEN row they are
     * fetched by this call. NULL: no such row, or not to be had.
     */
    const float *(*logits)(struct gs_device *device, size_t row);

    /*
     * The token of such a row, if GS_WANT_TOKEN was wanted of it. -1: it has to be chosen from the logits. A
     * logit is not finite; or the draw falls so near the border of two tokens that only sums in the order of
     * docs/sampling.md can tell them apart; or there were too many rows.
     */
    int32_t (*chosen)(const struct gs_device *device, size_t row);

    /* As gs_threads_run, on the device's threads, while no other call is under way. NULL: it has none. */
    void (*share)(struct gs_device *device, gs_task_fn *fn, void *user, size_t n_items);

    /* fn NULL: off. */
    void (*tap)(struct gs_device *device, gs_tap_fn *fn, void *user);

    /*
     * For the verifier: what this backend's arithmetic makes of the loaded weights. Rows `first` ...
     * first+n_rows-1 of an expert of an MXFP4 matrix, to out [n_rows][columns]; and the rotary frequencies.
     */
    void (*dequantize)(struct gs_device *device, const struct gs_mxfp4_matrix *matrix, int64_t expert,
                       int64_t first, int64_t n_rows, float *out);
    void (*rotary)(const struct gs_device *device, struct gs_yarn *out);
    void (*stats)(const struct gs_device *device, struct gs_backend_stats *stats);
};

#endif
