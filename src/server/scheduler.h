/*
 * Who is computed when. One thread owns the engine: each of its steps runs the next token of every request
 * that is decoding and a bounded piece of prompts. Prefixes are kept (prefix_cache.h), requests beyond those
 * that run wait in a bounded queue, fair between clients.
 */
#ifndef GS_SERVER_SCHEDULER_H
#define GS_SERVER_SCHEDULER_H

#include "chat/replay.h"
#include "server/events.h"
#include "server/metrics.h"
#include "server/request.h"

#include <pthread.h>

struct gs_scheduler;
struct gs_prefix_store;

struct gs_scheduler_options {
    const struct gs_vocab *vocab;
    struct gs_engine *engine; /* NULL: a script stands in */
    const char *script;
    size_t script_step;    /* tokens that a step of it delivers */
    double script_seconds; /* and how long it takes */
    size_t n_vocab;        /* of the logits */
    int64_t n_ctx;         /* of a sequence */
    size_t n_parallel;     /* sequences at once */
    size_t max_queue;      /* requests that wait */
    double ahead_seconds;  /* that tokens chosen in a row may take (engine/source.h); 0: GS_AHEAD_SECONDS */
    uint64_t cache_bytes;
    struct gs_prefix_store *store; /* of prefixes; NULL: none */
    double store_seconds;          /* after which they are written */
    struct gs_metrics *metrics;
    /* Locked around every use; may be NULL. */
    struct gs_replay *replay;
    pthread_mutex_t *replay_mutex;
    /* Called when the sinks have been given all that a step brought: once a step, not once a token. */
    void (*flush)(void *user);
    void *flush_user;
};

gs_status gs_scheduler_open(const struct gs_scheduler_options *options, struct gs_scheduler **out,
                            struct gs_error *error);

#define GS_LAST_STEP_SECONDS 30.0 /* for a step that is under way when all is cut */

/*
 * Nothing new from now on. What waits is refused, what runs has `seconds` to end and is then cut by an
 * ERROR event, also while a step of the model is under way. Returns true when all is released, and false if
 * such a step has not ended GS_LAST_STEP_SECONDS later: its thread goes on with what it has been given, so
 * nothing of that may be freed.
 */
bool gs_scheduler_stop(struct gs_scheduler *scheduler, double seconds);

/* Before that or meanwhile, from another thread: there is no more time, neither for requests nor for what the
 * thread is at, be it a step or files that it writes. */
void gs_scheduler_hurry(struct gs_scheduler *scheduler);

/* Stops at once, and waits for a step that is under way, however long. */
void gs_scheduler_close(struct gs_scheduler *scheduler);

/* What fairness is between: first peers (whoever has one key, at one address), then their connections. */
struct gs_client {
    size_t peer, connection;
};

/*
 * Takes the request and the sink (also on failure: then the request is freed and the sink released without an
 * event) and returns 0, or the status of HTTP with `error` filled: 429 for a full queue, 503 while the server
 * stops. `exchange` is whose leaving ends the request; NULL: nobody's.
 */
int gs_scheduler_submit(struct gs_scheduler *scheduler, struct gs_request *request, struct gs_sink sink,
                        struct gs_exchange *exchange, struct gs_client client, struct gs_api_error *error);

/* Has the step under way taken so long that it is not to be expected to end? */
bool gs_scheduler_is_stuck(const struct gs_scheduler *scheduler);

/* From time to time, by any thread: if so, all requests end with an error. A step that ends after all has
 * been for nothing, and the next requests are served. */
void gs_scheduler_watch(struct gs_scheduler *scheduler);

/* What the sequences under way are at, in numbers alone. */
struct gs_slot {
    size_t request; /* its number */
    size_t choice;
    size_t n_prompt, n_prompt_done, n_cached, n_generated;
    int64_t n_ctx;
    bool decodes;
    double seconds; /* since it was asked for */
};

/* The first `most` of them; returns how many. */
size_t gs_scheduler_slots(struct gs_scheduler *scheduler, struct gs_slot *slots, size_t most);
struct gs_cache_figures gs_scheduler_cache_figures(struct gs_scheduler *scheduler);

#endif
