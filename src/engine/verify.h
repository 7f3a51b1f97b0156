/*
 * Proof: a model's arithmetic against an independent witness, component by component, and the controls that
 * show that the comparison would notice. docs/verify.md says what is compared and why.
 *
 * A report is a list of checks: one measure of one component, with its bar. It belongs to the caller, who
 * releases it.
 */
#ifndef GS_ENGINE_VERIFY_H
#define GS_ENGINE_VERIFY_H

#include "backend/backend.h"

/* ---------------------------------------------------------------- thresholds */

/*
 * What must hold for a precision and a way of keeping the weights, against one kind of reference: "float32"
 * (a golden in float32, or another backend), "bfloat16" (a golden in bfloat16). 0 in a least or NAN in a
 * most: measured without a bar.
 */
struct gs_thresholds {
    const char *precision, *weights, *reference;
    double yarn_error;   /* most: frequencies and scaling, relative, against float64 */
    double angle_error;  /* most: cosines and sines, absolute */
    double row_cosine;   /* least: of any position of any component */
    double row_error;    /* most: |difference| over the component's largest |value| */
    double choices;      /* least: share of the positions with the same experts in the same order */
    double logit_cosine; /* least: of any position */
    double mean_cosine;  /* least: of the logits, over the positions */
    double logit_error;  /* most: as row_error */
    double worst_kl;     /* most: of any position, nats */
    double mean_kl;      /* most */
    double top1, top5;   /* least: agreement of the most likely token, overlap of the five most likely */
};

extern const struct gs_thresholds gs_threshold_table[];
extern const size_t gs_threshold_count;

/* NULL if there is no such row. */
const struct gs_thresholds *gs_thresholds_find(const char *precision, const char *weights,
                                               const char *reference);

/* ---------------------------------------------------------------- checks */

enum gs_bar {
    GS_BAR_NONE, /* measured only */
    GS_BAR_AT_LEAST,
    GS_BAR_AT_MOST,
};

struct gs_check {
    const char *component; /* "attention" */
    const char *measure;   /* "worst cosine" */
    int64_t layer;         /* -1: of no layer */
    uint64_t compared;     /* rows, elements */
    double measured, limit;
    enum gs_bar bar;
    bool pass;
    int64_t at; /* the position that decided it; -1: none */
};

struct gs_verify_report {
    struct gs_check *checks; /* [count] */
    size_t count, capacity;
    size_t n_failed;
    const char *backend;
    const char *reference; /* "golden in float32", "cpu:exact", "itself" */
    const struct gs_thresholds *thresholds;
    size_t n_tokens;
    uint64_t n_elements; /* MXFP4 elements compared */
    double seconds;
};

void gs_verify_report_free(struct gs_verify_report *report);

/* The failed check that comes first in the model's order: where to look. NULL if none failed. */
const struct gs_check *gs_verify_first_failure(const struct gs_verify_report *report);

/* ---------------------------------------------------------------- runs */

struct gs_verify_options {
    const char *golden;    /* a file made by tools/oracle; NULL: none */
    const char *backend;   /* NULL: the best */
    int device;            /* which of the backend's devices */
    const char *precision; /* NULL: "exact" */
    const char *weights;   /* NULL: "native" */
    const char *against;   /* "BACKEND:PRECISION" to compare with; NULL: none. Not with a golden */
    enum gs_control control;
    struct gs_levers levers;
    const char *cache_folder; /* for compiled kernels; NULL: none */
    size_t n_tokens;  /* the first of the golden's, or so many random ones; 0: all, or as many as needed */
    size_t n_threads; /* 0: one per physical core */
    const char *cpu_features; /* CPU: the kernels' instruction set; NULL: the best. Not of `against` */
    const int32_t *prompt;    /* [n_prompt] what the controls continue; 0: the first tokens of the sequence */
    size_t n_prompt;
    gs_progress_fn *progress; /* tokens; may be NULL */
    void *progress_user;
    const _Atomic bool *cancelled; /* may be NULL */
};

/*
 * Runs all checks on the model at `path`. GS_OK means that they were made, not that they passed: see
 * report->n_failed. Without a golden and an `against`, a control is compared with the same backend without
 * it.
 */
gs_status gs_verify(const char *path, const struct gs_verify_options *options,
                    struct gs_verify_report *report, struct gs_error *error);

/* ---------------------------------------------------------------- controls */

/* "sinks", and one line about what it does; of the controls 1 ... GS_CONTROL_COUNT-1. */
const char *gs_control_name(enum gs_control control);
const char *gs_control_summary(enum gs_control control);
bool gs_control_parse(const char *name, enum gs_control *control);

#define GS_CONTROL_DECODED 8 /* tokens */

struct gs_control_result {
    enum gs_control control;
    int64_t n_tokens;        /* that were run */
    bool has_effect;         /* theory says that something changes in this sequence */
    int64_t n_needed;        /* tokens from which on something does; 0: it finds nothing to act on */
    bool must_fail;          /* and that it is enough to fail the bars */
    int64_t first_expected;  /* positions before this one keep their bits; n_tokens: all do */
    int64_t first_found;     /* the first that does not; n_tokens: none */
    size_t n_failed;         /* checks of gs_verify that fail under it */
    struct gs_check failed;  /* the first of them */
    double attention_cosine; /* of layer 0: the worst position, against the run without a control */
    double attention_mean;   /* over the positions */
    double logit_cosine;     /* likewise */
    double logit_mean;
    double mean_kl;
    double argmax_agreement;             /* share of the positions */
    int32_t decoded[GS_CONTROL_DECODED]; /* greedily after the prompt */
    uint64_t n_past_limit;               /* of GS_CONTROL_SWIGLU_CLAMP */
    bool behaves;
    char problem[200]; /* what it does not do; empty if it behaves */
};

/* Of a control that behaves: did it have a chance not to? */
enum gs_exercise {
    GS_EXERCISED,
    GS_EXERCISE_TOO_SHORT, /* the sequence ends before it acts: n_needed tokens */
    GS_EXERCISE_IDLE,      /* it finds nothing to act on, however long the sequence */
};
enum gs_exercise gs_control_exercise(const struct gs_control_result *result);

struct gs_controls_report {
    struct gs_control_result results[GS_CONTROL_COUNT]; /* [0]: without a control, must pass */
    size_t n_misbehaved;
    size_t n_behaved, n_too_short, n_idle; /* of the controls 1 ... : the others, by gs_control_exercise */
    const char *backend;
    const char *reference;
    int64_t n_tokens, window, ring; /* ring: the first position whose cache slot is used again */
    double seconds;
};

/*
 * Every control in turn. As gs_verify; options->control and options->against are ignored. Where a golden is
 * too short for a control to act, and options->n_tokens is 0, random tokens follow it.
 */
gs_status gs_verify_controls(const char *path, const struct gs_verify_options *options,
                             struct gs_controls_report *report, struct gs_error *error);

#endif
