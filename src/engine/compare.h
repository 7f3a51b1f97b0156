/*
 * The intermediates of two runs of the same tokens, kept by position, and their distance. A record owns
 * copies of what a backend's tap hands out; nothing here knows where the other record came from (a golden,
 * another run).
 */
#ifndef GS_ENGINE_COMPARE_H
#define GS_ENGINE_COMPARE_H

#include "backend/backend.h"

/* Positions of a timeline, ascending. */
struct gs_positions {
    const int32_t *list;
    size_t count;
};

/* Which positions of which components a record keeps. */
struct gs_selection {
    struct gs_positions rows;    /* of the stages that are not named below */
    struct gs_positions choices; /* GS_STAGE_ROUTER_CHOICE */
    struct gs_positions logits;  /* GS_STAGE_LOGITS */
    struct gs_positions argmax;  /* of the logits */
};

struct gs_component {
    float *values; /* [positions][columns]; NULL: never seen */
    int64_t columns;
};

struct gs_record {
    struct gs_selection kept;
    int64_t n_layer;
    struct gs_component *components[GS_STAGE_COUNT]; /* [n_layer] */
    int32_t *argmax;                                 /* [kept.argmax.count]; -1: never seen */
    int64_t next; /* position of the first row of the forward under way: the runner's to set */
    bool failed;  /* memory ran out, or a tap had another shape than before */
    struct gs_arena arena;
};

/* Borrows the lists of `kept`. */
gs_status gs_record_open(int64_t n_layer, const struct gs_selection *kept, struct gs_record **out,
                         struct gs_error *error);
void gs_record_close(struct gs_record *record);

/* A gs_tap_fn; `user` is the record. What was not seen stays NaN. */
void gs_record_tap(void *user, enum gs_stage stage, int64_t layer, const float *values, int64_t rows,
                   int64_t columns);

/* The component's place for `columns` values a position, made at the first call; NULL if memory is out. */
float *gs_record_place(struct gs_record *record, enum gs_stage stage, int64_t layer, int64_t columns);

struct gs_positions gs_record_positions(const struct gs_record *record, enum gs_stage stage);

/* "attention", and whether each layer has one. */
const char *gs_stage_name(enum gs_stage stage);
bool gs_stage_in_layers(enum gs_stage stage);

/* The lowest index of the largest value. */
int64_t gs_argmax(const float *values, int64_t n);

/* Of one component, over all positions compared. */
struct gs_distance {
    uint64_t compared;       /* positions */
    uint64_t differing;      /* of choices and argmax: positions that are not the same */
    double worst_cosine;     /* of a position; NaN if there is one */
    double sum_cosine;       /* over the positions */
    double worst_difference; /* largest |difference| of two values; NaN if there is one */
    double largest;          /* largest |value| of all that was expected */
    double worst_error;      /* worst_difference / largest */
    int64_t error_at;        /* position of worst_difference, or of the first that differs; -1 */
    int64_t cosine_at;       /* position of worst_cosine */
    bool missing;            /* `expected` has the component, `found` never saw it */
    uint64_t left_out;       /* of moe: positions that other experts computed; the choice counts them */
};

/* Two logits so far apart are no near-tie: the larger is exp(0.1) times, a tenth, more likely. */
#define GS_CLEAR_MARGIN 0.1

struct gs_comparison {
    int64_t n_layer;
    struct gs_distance *stages[GS_STAGE_COUNT]; /* [n_layer] */
    struct gs_distance argmax;
    struct gs_distance clear; /* argmax where the two largest expected logits are GS_CLEAR_MARGIN apart */
    /* softmax of the logits, expected against found */
    double worst_kl, sum_kl; /* Kullback-Leibler divergence, nats */
    double sum_top5;         /* share of the five most likely tokens that both have */
    struct gs_arena arena;
};

gs_status gs_comparison_open(int64_t n_layer, struct gs_comparison **out, struct gs_error *error);
void gs_comparison_close(struct gs_comparison *comparison);

/* Adds the distance of `found` from `expected` at the positions that both keep, in ascending order. */
void gs_compare(struct gs_comparison *comparison, const struct gs_record *found,
                const struct gs_record *expected);

/* Is there a position of the component that both keep? */
bool gs_have_common(const struct gs_record *a, const struct gs_record *b, enum gs_stage stage);

/* The first position that both keep and where the component has other bits; INT64_MAX if there is none. */
int64_t gs_first_difference(const struct gs_record *a, const struct gs_record *b, enum gs_stage stage,
                            int64_t layer);

#endif
