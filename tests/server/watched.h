/*
 * A scheduler on the demo model, whose backend is the CPU's, watched call by call. The clock is this file's
 * own, in the place of base/clock.c's, so that nothing hangs on the machine's speed: one file of a program
 * includes it.
 */
#ifndef TESTS_SERVER_WATCHED_H
#define TESTS_SERVER_WATCHED_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/kv.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "server/exchange.h"
#include "server/scheduler_state.h"
#include "tests/server/heard.h"
#include "text/tokens.h"

#define PROMPT "Spell the word" /* the demo model has much to say to that */

static struct gs_backend watched;
static struct gs_vocab *vocab;
static struct gs_engine *engine;
static struct gs_metrics metrics;
static _Atomic uint64_t nanoseconds; /* of the clock */

/* What a call of the model costs, in nanoseconds of the clock. */
struct cost {
    uint64_t call, token, behind; /* the last for each token that a token looks back at */
};

/* What the backend has seen and is to do; between a submit and its release the engine's thread alone writes.
 */
static struct {
    struct gs_scheduler *scheduler;
    struct cost cost;
    size_t n_call, n_shared; /* calls, those of them with two timelines */

    size_t arrives_at; /* call before which `arrival` asks; 0: none */
    struct heard *arrival;
    struct gs_request *asks;
    uint64_t alone;                     /* what the call before that cost: the time between two tokens */
    uint64_t beside, n_beside, slowest; /* of those from then on to the arrival's first token */

    size_t leaves_at;       /* call, of the shared ones if `shares`, in which the exchange's client leaves */
    uint64_t leaves_copied; /* instead, if not 0: the first in which copies have taken so much */
    bool shares, has_left;
    struct gs_exchange *leaver;
    gs_status left_with;
    size_t n_later, n_later_shared; /* calls since */
    bool was_stuck[2];              /* before and after a call's time had passed */

    size_t comes_late_at; /* call after whose time `late` asks; 0: none */
    struct heard *late;
    struct gs_request *late_asks;

    uint64_t copied;                  /* what copies took since the last call */
    uint64_t most_copied, sum_copied; /* of these the largest, and all */

    int64_t is_large;           /* tokens, above which a session is counted; 0: none is */
    size_t n_large, most_large; /* sessions that there are, and were at most */

    void (*hangs)(size_t call); /* instead of the watch, when a call's time has passed; may be NULL */
} seen;

/* Of the thread that has set it: called before it is told the time; NULL: nothing. */
static _Thread_local void (*at_clock)(void);

/* In the place of base/clock.c's. */
double gs_clock_seconds(void)
{
    if (at_clock)
        at_clock();
    return (double)atomic_load(&nanoseconds) * 1e-9;
}

static inline void submit(struct heard *heard, struct gs_request *request, struct gs_exchange *exchange,
                          size_t peer, size_t connection)
{
    struct gs_api_error error;
    const struct gs_client client = {peer, connection};
    assert_int_equal(gs_scheduler_submit(seen.scheduler, request, (struct gs_sink){hear, let_go, heard},
                                         exchange, client, &error),
                     0);
}

static inline bool leaves_now(void)
{
    if (!seen.leaver || seen.has_left)
        return false;
    return seen.leaves_copied > 0 ? seen.sum_copied >= seen.leaves_copied
                                  : (seen.shares ? seen.n_shared : seen.n_call) == seen.leaves_at;
}

/* A stream that decodes is in every call: what a call costs is the time between its tokens. */
static inline void note_cost(uint64_t cost)
{
    if (seen.arrives_at == 0 || seen.n_call < seen.arrives_at) {
        seen.alone = cost;
    } else if (!seen.arrival->begun) {
        seen.beside += cost;
        seen.n_beside++;
        seen.slowest = cost > seen.slowest ? cost : seen.slowest;
    }
}

static inline gs_status forward(struct gs_device *device, const struct gs_step *steps, size_t n_steps,
                                const _Atomic bool *cancelled, struct gs_error *error)
{
    uint64_t cost = seen.cost.call;
    seen.n_call++;
    seen.most_copied = seen.copied > seen.most_copied ? seen.copied : seen.most_copied;
    seen.copied = 0;
    seen.n_shared += n_steps == 2;
    seen.n_later += seen.has_left;
    seen.n_later_shared += seen.has_left && n_steps == 2;
    if (seen.n_call == seen.arrives_at)
        submit(seen.arrival, seen.asks, NULL, 0, 2);
    bool leaves = leaves_now();
    if (leaves)
        gs_exchange_leave(seen.leaver);
    for (size_t i = 0; i < n_steps; i++)
        cost += (uint64_t)steps[i].n_tokens *
                (seen.cost.token + (uint64_t)gs_backend_cpu.kv_length(steps[i].kv) * seen.cost.behind);
    gs_status status = gs_backend_cpu.forward(device, steps, n_steps, cancelled, error);
    seen.was_stuck[0] |= gs_scheduler_is_stuck(seen.scheduler);
    atomic_fetch_add(&nanoseconds, cost);
    seen.was_stuck[1] |= gs_scheduler_is_stuck(seen.scheduler);
    if (seen.hangs)
        seen.hangs(seen.n_call);
    else
        gs_scheduler_watch(seen.scheduler);
    if (seen.n_call == seen.comes_late_at) {
        submit(seen.late, seen.late_asks, NULL, 0, 3);
        gs_scheduler_watch(seen.scheduler);
    }
    note_cost(cost);
    if (leaves)
        seen.left_with = status;
    seen.has_left |= leaves;
    return status;
}

#define COPY_COST 1000 /* of a token */

static inline gs_status copy_part(struct gs_kv *to, const struct gs_kv *from, int64_t *at, int64_t most,
                                  struct gs_error *error)
{
    int64_t before = *at;
    gs_status status = gs_backend_cpu.kv_copy_part(to, from, at, most, error);
    uint64_t cost = (uint64_t)(*at - before) * COPY_COST;
    atomic_fetch_add(&nanoseconds, cost);
    seen.copied += cost;
    seen.sum_copied += cost;
    return status;
}

static inline bool is_large(const struct gs_kv *kv)
{
    return seen.is_large > 0 && kv->capacity > seen.is_large;
}

static inline gs_status create(struct gs_device *device, int64_t capacity, struct gs_kv **out,
                               struct gs_error *error)
{
    gs_status status = gs_backend_cpu.kv_create(device, capacity, out, error);
    seen.n_large += status == GS_OK && is_large(*out);
    seen.most_large = seen.n_large > seen.most_large ? seen.n_large : seen.most_large;
    return status;
}

static inline void destroy(struct gs_kv *kv)
{
    seen.n_large -= is_large(kv);
    gs_backend_cpu.kv_free(kv);
}

/* ---------------------------------------------------------------- one of everything */

static inline int set_up(void **state)
{
    (void)state;
    open_model(GS_PRECISION_FAST, &vocab, &engine);
    watched = gs_backend_cpu;
    watched.forward = forward;
    watched.kv_copy_part = copy_part;
    watched.kv_create = create;
    watched.kv_free = destroy;
    watched.chain = NULL;
    engine->backend = &watched;
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    close_model(vocab, engine);
    return 0;
}

static inline void open_with_cache(size_t n_parallel, size_t max_queue, uint64_t cache_bytes)
{
    struct gs_error error;
    const struct gs_scheduler_options options = {.vocab = vocab,
                                                 .engine = engine,
                                                 .n_vocab = (size_t)gs_engine_info(engine)->n_vocab,
                                                 .n_ctx = 2048,
                                                 .n_parallel = n_parallel,
                                                 .max_queue = max_queue,
                                                 .cache_bytes = cache_bytes,
                                                 .metrics = &metrics};
    memset(&seen, 0, sizeof seen);
    memset(&metrics, 0, sizeof metrics);
    seen.cost = (struct cost){.call = 1000000};
    atomic_store(&nanoseconds, UINT64_C(1000000000)); /* how it is rounded as seconds decides who is when */
    assert_ok(gs_scheduler_open(&options, &seen.scheduler, &error), &error);
}

static inline void open_scheduler(size_t n_parallel, size_t max_queue)
{
    open_with_cache(n_parallel, max_queue, 0);
}

/* To the limit: what would end it earlier is ruled out. */
static inline struct gs_request *ask_raw(const char *prompt, int64_t length)
{
    struct gs_request *request = make_raw_request(vocab, prompt, length);
    const int32_t *stops = gs_engine_stop_ids(engine, &request->n_bias);
    request->bias = calloc(request->n_bias, sizeof *request->bias);
    assert_non_null(request->bias);
    for (size_t i = 0; i < request->n_bias; i++)
        request->bias[i] = (struct gs_logit_bias){stops[i], -100.0f};
    request->sampling.bias = request->bias;
    request->sampling.n_bias = request->n_bias;
    return request;
}

/* A prompt of so many tokens, and one token after it. */
static inline struct gs_request *ask_long(size_t count)
{
    struct gs_request *request = ask_raw(PROMPT, 1);
    while (request->prompts->count < count)
        assert_int_equal(
            gs_tokens_append(request->prompts, (int32_t)(5 + request->prompts->count % 900), NULL), GS_OK);
    return request;
}

#endif
