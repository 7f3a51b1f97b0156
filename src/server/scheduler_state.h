/* What scheduler.c (requests) shares with sequence.c (what runs), and both with task.c (what clients are
 * told). */
#ifndef GS_SERVER_SCHEDULER_STATE_H
#define GS_SERVER_SCHEDULER_STATE_H

#include "server/choice.h"
#include "server/prefix_cache.h"
#include "server/scheduler.h"

#include <pthread.h>

#define GS_RECENT_TURNS 64u

/* Who may touch tasks: the engine's thread, unless the model is at work; then whoever takes them from it. */
enum gs_at_work {
    GS_WORK_NONE,
    GS_WORK_OF_MODEL,
    GS_WORK_GIVEN_UP,
};

/* A request, from submit to release. */
struct gs_task {
    struct gs_task *after;
    struct gs_scheduler *scheduler;
    struct gs_request *request;
    struct gs_sink sink;
    struct gs_exchange *exchange; /* held; may be NULL */
    struct gs_client client;
    size_t number;
    size_t first_generation; /* of a script */
    uint64_t seed;
    size_t n_total, n_started, n_ended; /* choices */
    bool *prefilled;                    /* [n_prompt]: its prefix is in the cache for further choices */
    bool failed;
    _Atomic bool gone;
    struct gs_usage usage;
    double submitted, started, last_said;
};

/* A choice under way. */
struct gs_sequence {
    struct gs_sequence *after;
    struct gs_task *task;
    size_t index, prompt_index;
    struct gs_choice *choice;
    struct gs_timeline_state timeline; /* its session is NULL with a script */
    int64_t n_ctx;                     /* of the session */
    struct gs_tokens prompt;           /* with what is forced behind it */
    size_t n_done;                     /* tokens of it in the session */
    size_t n_cached;                   /* of these taken from the prefix cache */
    size_t boundary;                   /* the prefix of this length is kept on the way; 0: none */
    int32_t pending;                   /* drawn and to be run next; -1: none */
    size_t n_step;                     /* tokens of the step under way */
    int32_t chosen;                    /* by the backend in this step; -1: none */
    const float *row;                  /* the logits of this step [n_vocab]; NULL: none */
    size_t n_ahead;                    /* tokens that it is to choose in a row, where it runs alone */
    bool in_doubt;                     /* it could not tell the next one */
    bool decodes, ended;
    double last_token;
};

struct gs_scheduler {
    struct gs_scheduler_options options;
    pthread_t thread;
    bool has_thread; /* to be joined */
    pthread_mutex_t mutex;
    pthread_cond_t wakes;

    /* under the mutex */
    struct gs_task *queue, **queue_end;
    size_t n_queue;
    size_t n_task; /* submitted and not released */
    size_t n_number, n_generation;
    bool stops, hurries, has_ended; /* the last: the thread does nothing more */
    double cut_at;
    struct gs_slot *slots; /* [n_parallel] */
    size_t n_slot;
    double task_seconds; /* what a request took lately */

    /* the thread's own */
    struct gs_prefix_cache *cache; /* NULL with a script */
    struct gs_markers markers;
    bool has_markers;
    int32_t stop_ids[16];
    size_t n_stop_id;
    size_t n_line; /* of the script */
    struct gs_sequence *sequences;
    size_t n_sequence;
    size_t max_tokens;                           /* of a step */
    struct gs_batch_item *items;                 /* [n_parallel] */
    struct gs_sequence **stepping;               /* [n_parallel]: whose items they are */
    double decode_seconds, prompt_token_seconds; /* what a step costs: its decoding, a token of a prompt */
    size_t n_measured;                           /* sequences of the step that decode_seconds is of */
    size_t n_mixed;                              /* steps since then */
    double earned;                               /* tokens of prompts that may be run beside decoding */
    size_t turn;                                 /* which prompt goes first */
    size_t turns[GS_RECENT_TURNS]; /* peers whose requests were begun: number i at i % that many */
    size_t n_turn;                 /* ever */

    /* the task that a step is for alone: its leaving cancels the step */
    _Atomic(struct gs_task *) alone;
    _Atomic bool cancelled;
    _Atomic double step_began; /* 0: none is under way */
    _Atomic int at_work;       /* an enum gs_at_work */
};

/* ---------------------------------------------------------------- tasks (task.c) */

void gs_task_emit(struct gs_task *task, const struct gs_event *event);

/* ERROR, once; the task's sequences end at the next sweep. */
void gs_task_fail(struct gs_task *task, const struct gs_api_error *error);

/* ---------------------------------------------------------------- sequences (sequence.c) */

/*
 * Starts the next choice of a task. *started false with GS_OK: not now (another choice's prefix is under way,
 * or memory is short while others run).
 */
gs_status gs_sequence_start(struct gs_scheduler *scheduler, struct gs_task *task, bool *started,
                            struct gs_error *error);
void gs_sequence_free(struct gs_sequence *sequence);

/* One step of all that run. Failures of a sequence fail its task. */
void gs_scheduler_step(struct gs_scheduler *scheduler);

#endif
