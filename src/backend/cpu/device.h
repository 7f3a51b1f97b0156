/* The CPU device: what forward needs, and the scratch that it works in. */
#ifndef GS_BACKEND_CPU_DEVICE_H
#define GS_BACKEND_CPU_DEVICE_H

#include "backend/backend.h"
#include "backend/cpu/fast_kernels.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/kv.h"
#include "backend/stage_clock.h"
#include "base/threads.h"
#include "model/yarn.h"

#define GS_CPU_MAX_TOKENS 256 /* of one exact forward */
#define GS_CPU_KEY_BLOCK  64  /* keys that attention takes at a time */

/* One row of a forward: a token of some timeline. */
struct gs_cpu_row {
    struct gs_kv *kv;
    int32_t token;
    int64_t position;
    bool wants_logits;
};

/* A row sent to an expert. Sorted by expert, then by row. */
struct gs_cpu_route {
    int64_t row;
    int64_t expert;
    float weight;
};

/* Buffers for GS_CPU_MAX_TOKENS rows; T is the number of rows of the forward under way. */
struct gs_cpu_scratch {
    struct gs_cpu_row *rows;     /* [T] */
    float *hidden;               /* [T][d_model]: the residual stream */
    float *normed;               /* [T][d_model] */
    float *query;                /* [T][n_head*d_head] */
    float *key;                  /* [T][n_kv_head*d_head] */
    float *value;                /* [T][n_kv_head*d_head] */
    float *attended;             /* [T][n_head*d_head] */
    float *projected;            /* [T][d_model] */
    float *cosine, *sine;        /* [T][d_head/2] */
    float *router;               /* [T][n_expert]: logits */
    float *choice;               /* [T][n_active]: expert ids, best first */
    float *choice_weight;        /* [T][n_active] */
    struct gs_cpu_route *routes; /* [T*n_active] */
    int64_t *expert_routes;      /* [n_expert+1]: routes of expert e are expert_routes[e] ... [e+1]-1 */
    int64_t *active;             /* [n_expert]: experts that have routes */
    float *gate_up;              /* [T*n_active][2*d_ff] */
    float *activated;            /* [T*n_active][d_ff] */
    float *expert_out;           /* [T*n_active][d_model] */
    float *moe;                  /* [T][d_model] */
    const float **pointers;      /* [T*n_active] */
    const float **expert_inputs; /* [T*n_active]: of each route */
    float *thread_rows;          /* [n_threads][largest row of weights] */
    float *thread_dots;          /* [n_threads][T*n_active] */
    int64_t thread_row_size;     /* floats */
};

/*
 * Stages of the model that a negative control may replace (backend/cpu/controls.h); otherwise the
 * reference's. One call does a row of a layer.
 */
struct gs_cpu_stages {
    /* Rotates heads [n_head][d_head] by the angles of cosine, sine [d_head/2]. */
    void (*rotate)(const struct gs_config *config, const float *cosine, const float *sine, float *heads,
                   int64_t n_head);
    /* Puts the key and value of row t into its timeline's cache. */
    void (*store)(struct gs_device *device, int64_t layer, int64_t t);
    /* logits [n_expert] -> choice, weight [n_active]. */
    void (*choose_experts)(const struct gs_config *config, const float *logits, float *choice, float *weight);
    /* gate_up [2*d_ff] -> out [d_ff]. */
    void (*activate)(struct gs_device *device, const float *gate_up, float *out);
};

extern const struct gs_cpu_stages gs_cpu_reference_stages;

struct gs_fast; /* backend/cpu/fast.h */

struct gs_device {
    const struct gs_weights *weights;
    const struct gs_kernels *kernels;
    const struct gs_fast_kernels *fast_kernels; /* NULL: exact */
    struct gs_fast *fast;                       /* NULL: exact */
    int64_t max_tokens;                         /* of one forward */
    struct gs_cpu_stages stages;
    enum gs_control control;
    enum gs_weight_format format;
    struct gs_threads *threads;
    struct gs_yarn yarn;
    struct gs_arena arena; /* the scratch */
    struct gs_cpu_scratch scratch;
    uint64_t scratch_bytes;
    uint64_t repacked_bytes; /* of weights made while loading */

    float *logits; /* [logit_capacity][n_vocab] */
    size_t logit_capacity;
    size_t n_logit_rows;

    gs_tap_fn *tap;
    void *tap_user;
    struct gs_backend_stats stats;
    struct gs_stage_clock clock; /* into stats.stage_seconds */
};

/*
 * The model in plain order, over the rows that scratch.rows describes (n_rows of them); logits go to
 * device->logits. Caches are written but their lengths left alone.
 */
gs_status gs_cpu_reference_forward(struct gs_device *device, int64_t n_rows, const _Atomic bool *cancelled,
                                   struct gs_error *error);

#endif
