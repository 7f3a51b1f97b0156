/*
 * Who is computed when: a client that leaves is in no further step, a step that hangs is given up and does
 * not hold up the end, peers and connections take turns, the queue is bounded, and a long prompt slows a
 * stream by no more than threefold. The backend is the CPU's, watched call by call; the clock is this file's
 * own, so that nothing hangs on the machine's speed.
 */
#include "backend/cpu/cpu.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "server/exchange.h"
#include "server/scheduler_state.h"
#include "tests/server/heard.h"
#include "text/tokens.h"

#include <sched.h>
#include <time.h>

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

    size_t leaves_at; /* call, of the shared ones if `shares`, in which the exchange's client leaves */
    bool shares, has_left;
    struct gs_exchange *leaver;
    gs_status left_with;
    size_t n_later, n_later_shared; /* calls since */
    bool was_stuck[2];              /* before and after a call's time had passed */

    size_t comes_late_at; /* call after whose time `late` asks; 0: none */
    struct heard *late;
    struct gs_request *late_asks;

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

static void submit(struct heard *heard, struct gs_request *request, struct gs_exchange *exchange, size_t peer,
                   size_t connection)
{
    struct gs_api_error error;
    const struct gs_client client = {peer, connection};
    assert_int_equal(gs_scheduler_submit(seen.scheduler, request, (struct gs_sink){hear, let_go, heard},
                                         exchange, client, &error),
                     0);
}

/* A stream that decodes is in every call: what a call costs is the time between its tokens. */
static void note_cost(uint64_t cost)
{
    if (seen.arrives_at == 0 || seen.n_call < seen.arrives_at) {
        seen.alone = cost;
    } else if (!seen.arrival->begun) {
        seen.beside += cost;
        seen.n_beside++;
        seen.slowest = cost > seen.slowest ? cost : seen.slowest;
    }
}

static gs_status forward(struct gs_device *device, const struct gs_step *steps, size_t n_steps,
                         const _Atomic bool *cancelled, struct gs_error *error)
{
    uint64_t cost = seen.cost.call;
    seen.n_call++;
    seen.n_shared += n_steps == 2;
    seen.n_later += seen.has_left;
    seen.n_later_shared += seen.has_left && n_steps == 2;
    if (seen.n_call == seen.arrives_at)
        submit(seen.arrival, seen.asks, NULL, 0, 2);
    bool leaves =
        seen.leaver && !seen.has_left && (seen.shares ? seen.n_shared : seen.n_call) == seen.leaves_at;
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

/* ---------------------------------------------------------------- one of everything */

static int set_up(void **state)
{
    (void)state;
    open_model(GS_PRECISION_FAST, &vocab, &engine);
    watched = gs_backend_cpu;
    watched.forward = forward;
    watched.chain = NULL;
    engine->backend = &watched;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    close_model(vocab, engine);
    return 0;
}

static void open_scheduler(size_t n_parallel, size_t max_queue)
{
    struct gs_error error;
    const struct gs_scheduler_options options = {.vocab = vocab,
                                                 .engine = engine,
                                                 .n_vocab = (size_t)gs_engine_info(engine)->n_vocab,
                                                 .n_ctx = 2048,
                                                 .n_parallel = n_parallel,
                                                 .max_queue = max_queue,
                                                 .metrics = &metrics};
    memset(&seen, 0, sizeof seen);
    memset(&metrics, 0, sizeof metrics);
    seen.cost = (struct cost){.call = 1000000};
    assert_ok(gs_scheduler_open(&options, &seen.scheduler, &error), &error);
}

/* To the limit: what would end it earlier is ruled out. */
static struct gs_request *ask_raw(const char *prompt, int64_t length)
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
static struct gs_request *ask_long(size_t count)
{
    struct gs_request *request = ask_raw(PROMPT, 1);
    while (request->prompts->count < count)
        assert_int_equal(
            gs_tokens_append(request->prompts, (int32_t)(5 + request->prompts->count % 900), NULL), GS_OK);
    return request;
}

/* ---------------------------------------------------------------- clients that leave */

static void who_leaves_is_in_no_further_step(void **state)
{
    struct heard *alone = make_heard(), *leaves = make_heard(), *stays = make_heard();
    (void)state;
    open_scheduler(4, 4);
    submit(alone, ask_raw("The capital of France is", 24), NULL, 0, 1);
    wait_for(alone);
    gs_scheduler_close(seen.scheduler);

    open_scheduler(4, 4);
    struct gs_exchange *exchange = gs_exchange_make(NULL);
    assert_non_null(exchange);
    seen.arrives_at = 2;
    seen.arrival = stays;
    seen.asks = ask_raw("The capital of France is", 24);
    seen.shares = true;
    seen.leaves_at = 8;
    seen.leaver = exchange;
    submit(leaves, ask_raw(PROMPT, 1000), exchange, 0, 1);
    wait_for(leaves);
    wait_for(stays);
    gs_scheduler_close(seen.scheduler);
    gs_exchange_release(exchange);
    assert_int_equal(seen.left_with, GS_OK); /* the step is the other's too */
    assert_int_equal(seen.n_later_shared, 0);
    assert_true(seen.n_later > 0);
    assert_int_equal(leaves->status, 499);
    assert_int_equal(atomic_load(&metrics.cancelled), 1);
    assert_int_equal(stays->status, 0);
    assert_true(says_the_same(alone, stays));
    free_heard(alone);
    free_heard(leaves);
    free_heard(stays);
}

static void who_leaves_alone_ends_the_step(void **state)
{
    struct heard *leaves = make_heard();
    struct gs_exchange *exchange = gs_exchange_make(NULL);
    (void)state;
    assert_non_null(exchange);
    open_scheduler(4, 4);
    seen.leaves_at = 2;
    seen.leaver = exchange;
    submit(leaves, ask_long(600), exchange, 0, 1);
    wait_for(leaves);
    gs_scheduler_close(seen.scheduler);
    gs_exchange_release(exchange);
    assert_int_equal(seen.left_with, GS_CANCELLED);
    assert_int_equal(seen.n_later, 0);
    assert_int_equal(leaves->status, 499);
    free_heard(leaves);
}

/* Who runs and who waits is told; the step that ends after all was for nothing, and the next are as ever. */
static void a_step_that_does_not_end_is_given_up(void **state)
{
    static const uint64_t second = 1000000000u;
    struct heard *slow = make_heard(), *hangs = make_heard(), *waits = make_heard(), *late = make_heard(),
                 *next = make_heard();
    (void)state;
    open_scheduler(1, 4);
    seen.cost.call = 1799 * second;
    submit(slow, ask_raw(PROMPT, 4), NULL, 0, 1);
    wait_for(slow);
    assert_false(seen.was_stuck[1]);
    gs_scheduler_close(seen.scheduler);

    open_scheduler(1, 4);
    seen.cost.call = 1801 * second;
    seen.arrives_at = 1;
    seen.arrival = waits;
    seen.asks = ask_raw(PROMPT, 4);
    seen.comes_late_at = 1;
    seen.late = late;
    seen.late_asks = ask_raw(PROMPT, 4);
    submit(hangs, ask_raw(PROMPT, 4), NULL, 0, 1);
    wait_for(hangs);
    wait_for(waits);
    wait_for(late);
    assert_false(seen.was_stuck[0]);
    assert_true(seen.was_stuck[1]);
    assert_int_equal(seen.n_call, 1);
    assert_int_equal(hangs->status, 503);
    assert_int_equal(waits->status, 503);
    assert_int_equal(late->status, 503); /* asked after all had been given up */
    assert_int_equal(hangs->text.size, 0);
    assert_int_equal(atomic_load(&metrics.failed), 3);

    seen.cost.call = 1000000;
    submit(next, ask_raw(PROMPT, 4), NULL, 0, 1);
    wait_for(next);
    gs_scheduler_close(seen.scheduler);
    assert_int_equal(slow->status, 0);
    assert_int_equal(next->status, 0);
    assert_true(says_the_same(slow, next));
    free_heard(slow);
    free_heard(hangs);
    free_heard(waits);
    free_heard(late);
    free_heard(next);
}

/* ---------------------------------------------------------------- steps that hang */

#define LOOKS_MS                                                                                             \
    70 /* real ones: a few looks of a stop at the clock. What must not happen then has time to. */

static void rest(unsigned milliseconds)
{
    const struct timespec pause = {.tv_nsec = (long)milliseconds * 1000000};
    nanosleep(&pause, NULL);
}

static void pass(double seconds)
{
    atomic_fetch_add(&nanoseconds, (uint64_t)(seconds * 1e9));
}

/* Calls of the model that do not end before they are let go: how many are inside, and how many may leave. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    size_t inside, open;
} hang = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void hang_until_opened(size_t call)
{
    pthread_mutex_lock(&hang.mutex);
    hang.inside = call;
    pthread_cond_broadcast(&hang.changed);
    while (hang.open < call)
        pthread_cond_wait(&hang.changed, &hang.mutex);
    pthread_mutex_unlock(&hang.mutex);
    seen.cost.call = 1000000;
}

static void wait_until_inside(size_t call)
{
    pthread_mutex_lock(&hang.mutex);
    while (hang.inside < call)
        pthread_cond_wait(&hang.changed, &hang.mutex);
    pthread_mutex_unlock(&hang.mutex);
}

static void let_go_on(size_t call)
{
    pthread_mutex_lock(&hang.mutex);
    hang.open = call;
    pthread_cond_broadcast(&hang.changed);
    pthread_mutex_unlock(&hang.mutex);
}

/* A stop on a thread of its own. */
struct stopping {
    pthread_t thread;
    double seconds;
    _Atomic int ended; /* -1: not yet; else what it returned */
};

static void *stop(void *user)
{
    struct stopping *stopping = user;
    atomic_store(&stopping->ended, gs_scheduler_stop(seen.scheduler, stopping->seconds));
    return NULL;
}

/* It has read the clock when this returns. */
static void begin_stop(struct stopping *stopping, double seconds)
{
    bool stops = false;
    stopping->seconds = seconds;
    atomic_store(&stopping->ended, -1);
    assert_int_equal(pthread_create(&stopping->thread, NULL, stop, stopping), 0);
    while (!stops) {
        rest(1);
        pthread_mutex_lock(&seen.scheduler->mutex);
        stops = seen.scheduler->stops;
        pthread_mutex_unlock(&seen.scheduler->mutex);
    }
}

static int end_stop(struct stopping *stopping)
{
    assert_int_equal(pthread_join(stopping->thread, NULL), 0);
    return atomic_load(&stopping->ended);
}

/* 0: no error has come. `waits` for one. */
static int error_of(struct heard *heard, bool waits)
{
    pthread_mutex_lock(&heard->mutex);
    while (waits && heard->status == 0)
        pthread_cond_wait(&heard->changed, &heard->mutex);
    int status = heard->status;
    pthread_mutex_unlock(&heard->mutex);
    return status;
}

/* One that is in a step which hangs, one that waits. */
static void begin_hang(struct heard *runs, struct heard *waits)
{
    open_scheduler(1, 4);
    hang.inside = hang.open = 0;
    seen.hangs = hang_until_opened;
    submit(runs, ask_raw(PROMPT, 4), NULL, 0, 1);
    wait_until_inside(1);
    submit(waits, ask_raw(PROMPT, 4), NULL, 0, 2);
}

/* The step ends after all: everything is released, and nothing was computed for it. */
static void end_hang(struct heard *runs, struct heard *waits)
{
    let_go_on(SIZE_MAX);
    gs_scheduler_close(seen.scheduler);
    assert_true(runs->released && waits->released);
    assert_int_equal(seen.n_call, 1);
    assert_int_equal(runs->text.size, 0);
    assert_int_equal(atomic_load(&metrics.failed), 2);
    free_heard(runs);
    free_heard(waits);
}

/* Requests are cut when their time is over, whatever the step does; half a minute later it is left behind. */
static void a_step_that_hangs_does_not_hold_up_the_end(void **state)
{
    struct heard *runs = make_heard(), *waits = make_heard();
    struct stopping stopping;
    (void)state;
    begin_hang(runs, waits);
    begin_stop(&stopping, 10.0);
    pass(9.9);
    rest(LOOKS_MS);
    assert_int_equal(error_of(runs, false), 0);
    pass(0.2);
    assert_int_equal(error_of(runs, true), 503);
    assert_int_equal(error_of(waits, true), 503);
    pass(GS_LAST_STEP_SECONDS - 0.2);
    rest(LOOKS_MS);
    assert_int_equal(atomic_load(&stopping.ended), -1);
    pass(0.2);
    assert_int_equal(end_stop(&stopping), false);
    assert_false(runs->released || waits->released); /* the step may still use what is theirs */
    end_hang(runs, waits);
}

static void a_step_that_ends_late_is_waited_for(void **state)
{
    struct heard *runs = make_heard(), *waits = make_heard();
    struct stopping stopping;
    (void)state;
    begin_hang(runs, waits);
    begin_stop(&stopping, 10.0);
    pass(10.0 + GS_LAST_STEP_SECONDS - 0.1);
    assert_int_equal(error_of(runs, true), 503);
    assert_int_equal(error_of(waits, true), 503);
    let_go_on(SIZE_MAX);
    assert_int_equal(end_stop(&stopping), true);
    end_hang(runs, waits);
}

/* Nobody waits: the requests are cut at once, and the step has a second. */
static void who_hurries_does_not_wait_for_a_step(void **state)
{
    struct heard *runs = make_heard(), *waits = make_heard();
    struct stopping stopping;
    (void)state;
    begin_hang(runs, waits);
    begin_stop(&stopping, 900.0);
    rest(LOOKS_MS);
    assert_int_equal(error_of(runs, false), 0);
    gs_scheduler_hurry(seen.scheduler);
    assert_int_equal(error_of(runs, true), 503);
    assert_int_equal(error_of(waits, true), 503);
    assert_int_equal(atomic_load(&stopping.ended), -1);
    pass(1.1);
    assert_int_equal(end_stop(&stopping), false);
    end_hang(runs, waits);
}

/* ---------------------------------------------------------------- steps that end while they are given up */

/* Called by the watch between what it reads of a step and its look at the clock: the step that it has seen
 * ends, and the next one begins; asked again, it lets that one end too. */
static void end_what_was_seen(void)
{
    static size_t n_look;
    if (++n_look % 2 == 1) {
        let_go_on(1);
        wait_until_inside(2);
    } else {
        let_go_on(SIZE_MAX);
        rest(LOOKS_MS); /* until it is at the end, and waits for the watch, or soon will */
    }
}

/* The watch has seen a step that hung, and takes the next one: it thinks better of it. */
static void the_step_after_one_that_hung_is_let_be(void **state)
{
    struct heard *heard = make_heard();
    (void)state;
    open_scheduler(1, 4);
    hang.inside = hang.open = 0;
    seen.hangs = hang_until_opened;
    seen.cost.call = UINT64_C(1801) * 1000000000;
    submit(heard, ask_raw(PROMPT, 4), NULL, 0, 1);
    wait_until_inside(1);
    at_clock = end_what_was_seen;
    gs_scheduler_watch(seen.scheduler);
    at_clock = NULL;
    wait_for(heard);
    gs_scheduler_close(seen.scheduler);
    assert_int_equal(heard->status, 0);
    assert_true(heard->text.size > 0);
    assert_int_equal(atomic_load(&metrics.finished), 1);
    free_heard(heard);
}

#define N_RACE 120 /* pairs of requests */

/* What came of a request. Whoever ends it, nobody else says anything to it: plain numbers are enough. */
struct verdict {
    struct heard *heard;
    size_t n_done, n_error, n_later; /* the last: events after one of these */
};

static struct {
    struct verdict verdicts[2]; /* one that runs, one that waits */
    _Atomic size_t asked, looked;
    _Atomic bool ends;
} race;

static void note_verdict(struct heard *heard, const struct gs_event *event)
{
    struct verdict *verdict = &race.verdicts[heard == race.verdicts[1].heard];
    verdict->n_later += verdict->n_done + verdict->n_error > 0;
    verdict->n_done += event->kind == GS_EVENT_DONE;
    verdict->n_error += event->kind == GS_EVENT_ERROR;
}

static void *look_when_asked(void *user)
{
    (void)user;
    while (!atomic_load(&race.ends)) {
        if (atomic_load(&race.looked) == atomic_load(&race.asked)) {
            sched_yield();
            continue;
        }
        gs_scheduler_watch(seen.scheduler);
        atomic_fetch_add(&race.looked, 1);
    }
    return NULL;
}

/*
 * The step is over its time and just ends: somebody looks at the same time, or before, or nobody does. That
 * is in three steps after the other, so that a request of two steps certainly lies between two looks.
 */
static void race_to_the_end(size_t call)
{
    while (atomic_load(&race.looked) != atomic_load(&race.asked))
        sched_yield();
    if (call % 8 < 3)
        return;
    atomic_fetch_add(&race.asked, 1);
    if (call % 8 == 3)
        while (atomic_load(&race.looked) != atomic_load(&race.asked))
            sched_yield();
    else
        for (size_t i = 0; i < call * 37 % 1000; i++)
            atomic_load(&race.ends);
}

/* Either is told that its step was given up, and nothing else, or gets all that it gets alone. */
static void assert_one_end(const struct verdict *verdict, const struct heard *alone)
{
    const struct heard *heard = verdict->heard;
    assert_int_equal(verdict->n_done + verdict->n_error, 1);
    assert_int_equal(verdict->n_later, 0);
    assert_int_equal(heard->status, verdict->n_error > 0 ? 503 : 0);
    if (verdict->n_done > 0)
        assert_true(says_the_same(heard, alone));
}

static void a_step_that_just_ends_is_given_up_or_not(void **state)
{
    struct heard *alone = make_heard();
    size_t n_end[2] = {0};
    pthread_t watch;
    (void)state;
    open_scheduler(1, 4);
    submit(alone, ask_raw(PROMPT, 2), NULL, 0, 1);
    wait_for(alone);
    gs_scheduler_close(seen.scheduler);

    open_scheduler(1, 4);
    memset(&race, 0, sizeof race);
    seen.cost.call = UINT64_C(1801) * 1000000000;
    seen.hangs = race_to_the_end;
    assert_int_equal(pthread_create(&watch, NULL, look_when_asked, NULL), 0);
    for (size_t i = 0; i < N_RACE; i++) {
        for (size_t k = 0; k < 2; k++)
            race.verdicts[k] = (struct verdict){.heard = make_heard()};
        for (size_t k = 0; k < 2; k++) {
            race.verdicts[k].heard->listens = note_verdict;
            submit(race.verdicts[k].heard, ask_raw(PROMPT, 2), NULL, 0, 1);
        }
        for (size_t k = 0; k < 2; k++) {
            wait_for(race.verdicts[k].heard);
            assert_one_end(&race.verdicts[k], alone);
            n_end[race.verdicts[k].n_error]++;
        }
        for (size_t k = 0; k < 2; k++)
            free_heard(race.verdicts[k].heard);
    }
    atomic_store(&race.ends, true);
    pthread_join(watch, NULL);
    gs_scheduler_close(seen.scheduler);
    print_message("          %zu ended, %zu were given up\n", n_end[0], n_end[1]);
    assert_true(n_end[0] > 0 && n_end[1] > 0);
    assert_int_equal(atomic_load(&metrics.finished), n_end[0]);
    assert_int_equal(atomic_load(&metrics.failed), n_end[1]);
    free_heard(alone);
}

/* ---------------------------------------------------------------- the queue */

#define MOST_STARTS 8

/* Who said something first, in order. Until it is opened the engine's thread is held there. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool open;
    size_t count;
    const struct heard *who[MOST_STARTS];
} starts = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void note_start(struct heard *heard, const struct gs_event *event)
{
    bool known = event->kind != GS_EVENT_TEXT;
    pthread_mutex_lock(&starts.mutex);
    for (size_t i = 0; i < starts.count; i++)
        known |= starts.who[i] == heard;
    if (!known && starts.count < MOST_STARTS)
        starts.who[starts.count++] = heard;
    pthread_cond_broadcast(&starts.changed);
    while (!starts.open)
        pthread_cond_wait(&starts.changed, &starts.mutex);
    pthread_mutex_unlock(&starts.mutex);
}

static void wait_for_start(void)
{
    pthread_mutex_lock(&starts.mutex);
    while (starts.count == 0)
        pthread_cond_wait(&starts.changed, &starts.mutex);
    pthread_mutex_unlock(&starts.mutex);
}

static void set_gate(bool open)
{
    pthread_mutex_lock(&starts.mutex);
    starts.open = open;
    if (!open)
        starts.count = 0;
    pthread_cond_broadcast(&starts.changed);
    pthread_mutex_unlock(&starts.mutex);
}

static struct heard *make_listener(void)
{
    struct heard *heard = make_heard();
    heard->listens = note_start;
    return heard;
}

/* The first of them runs for `length` tokens, the others come meanwhile; `order` is that of their beginnings.
 */
static void assert_order(size_t n_parallel, int64_t length, const struct gs_client *clients,
                         const size_t *order, size_t count)
{
    struct heard *heard[MOST_STARTS];
    open_scheduler(n_parallel, MOST_STARTS);
    set_gate(false);
    for (size_t i = 0; i < count; i++) {
        heard[i] = make_listener();
        submit(heard[i], ask_raw(PROMPT, i == 0 ? length : 2), NULL, clients[i].peer, clients[i].connection);
        if (i == 0)
            wait_for_start();
    }
    set_gate(true);
    for (size_t i = 0; i < count; i++)
        wait_for(heard[i]);
    gs_scheduler_close(seen.scheduler);
    assert_int_equal(starts.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(heard[i]->status, 0);
        assert_ptr_equal(starts.who[i], heard[order[i]]);
    }
    for (size_t i = 0; i < count; i++)
        free_heard(heard[i]);
}

/* Who has less under way goes first: of peers, and of the connections of one. */
static void peers_and_connections_take_turns(void **state)
{
    static const struct gs_client beside[] = {{1, 1}, {1, 1}, {1, 2}, {2, 3}};
    static const size_t order_beside[] = {0, 3, 2, 1};
    static const struct gs_client after[] = {{1, 1}, {1, 2}, {1, 3}, {1, 4}, {2, 5}, {2, 6}, {3, 7}};
    static const size_t order_after[] = {0, 4, 6, 1, 5, 2, 3};
    (void)state;
    assert_order(2, 100, beside, order_beside, 4);
    assert_order(1, 2, after, order_after, 7);
}

static void a_full_queue_says_when_to_come_again(void **state)
{
    struct heard *heard[4];
    struct gs_api_error error = {0};
    (void)state;
    open_scheduler(1, 2);
    set_gate(false);
    for (size_t i = 0; i < 4; i++)
        heard[i] = make_listener();
    submit(heard[0], ask_raw(PROMPT, 4), NULL, 0, 1);
    wait_for_start();
    submit(heard[1], ask_raw(PROMPT, 4), NULL, 0, 2);
    submit(heard[2], ask_raw(PROMPT, 4), NULL, 0, 3);
    assert_int_equal(gs_scheduler_submit(seen.scheduler, ask_raw(PROMPT, 4),
                                         (struct gs_sink){hear, let_go, heard[3]}, NULL,
                                         (struct gs_client){0, 4}, &error),
                     429);
    assert_string_equal(error.code, "queue_full");
    assert_in_range(error.retry_after, 1, 60);
    assert_true(heard[3]->released && !heard[3]->begun);
    assert_int_equal(atomic_load(&metrics.rejected), 1);
    set_gate(true);
    for (size_t i = 0; i < 3; i++) {
        wait_for(heard[i]);
        assert_int_equal(heard[i]->status, 0);
    }
    gs_scheduler_stop(seen.scheduler, 0.0);
    assert_int_equal(gs_scheduler_submit(seen.scheduler, ask_raw(PROMPT, 4),
                                         (struct gs_sink){hear, let_go, heard[3]}, NULL,
                                         (struct gs_client){0, 4}, &error),
                     503);
    gs_scheduler_close(seen.scheduler);
    for (size_t i = 0; i < 4; i++)
        free_heard(heard[i]);
}

/* ---------------------------------------------------------------- long prompts */

/* On a machine where a step's cost lies in the call, in its tokens, in the text behind them, or in all. */
static void a_long_prompt_slows_a_stream_threefold_at_most(void **state)
{
    static const struct cost costs[] = {
        {10000000, 50000, 0}, {0, 1000000, 0}, {1000000, 100000, 0}, {1000000, 100000, 400}};
    (void)state;
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++) {
        struct heard *stream = make_heard(), *prompt = make_heard();
        struct gs_exchange *exchange = gs_exchange_make(NULL);
        assert_non_null(exchange);
        open_scheduler(4, 4);
        seen.cost = costs[i];
        seen.arrives_at = 40;
        seen.arrival = prompt;
        seen.asks = ask_long(250);
        submit(stream, ask_raw(PROMPT, 1500), exchange, 0, 1);
        wait_for(prompt);
        gs_exchange_leave(exchange);
        wait_for(stream);
        gs_scheduler_close(seen.scheduler);
        gs_exchange_release(exchange);
        double mean = (double)seen.beside / (double)seen.n_beside / (double)seen.alone;
        double worst = (double)seen.slowest / (double)seen.alone;
        print_message("          costs %zu: %zu steps, %.2f times as long, the longest %.2f times\n", i,
                      (size_t)seen.n_beside, mean, worst);
        assert_int_equal(prompt->status, 0);
        assert_true(seen.n_beside > 5);
        assert_true(mean < 3.0);
        assert_true(worst < 3.01);
        free_heard(stream);
        free_heard(prompt);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_leaves_is_in_no_further_step),
        cmocka_unit_test(who_leaves_alone_ends_the_step),
        cmocka_unit_test(a_step_that_does_not_end_is_given_up),
        cmocka_unit_test(a_step_that_hangs_does_not_hold_up_the_end),
        cmocka_unit_test(a_step_that_ends_late_is_waited_for),
        cmocka_unit_test(who_hurries_does_not_wait_for_a_step),
        cmocka_unit_test(the_step_after_one_that_hung_is_let_be),
        cmocka_unit_test(a_step_that_just_ends_is_given_up_or_not),
        cmocka_unit_test(peers_and_connections_take_turns),
        cmocka_unit_test(a_full_queue_says_when_to_come_again),
        cmocka_unit_test(a_long_prompt_slows_a_stream_threefold_at_most),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
