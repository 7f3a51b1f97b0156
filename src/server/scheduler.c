#include "server/scheduler_state.h"

#include "base/clock.h"
#include "base/status.h"
#include "server/exchange.h"
#include "server/random_id.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUIET_SECONDS 5.0    /* without an event until WAITING */
#define STUCK_SECONDS 1800.0 /* of a step: a device that hangs; the slowest honest steps take minutes */
#define MAX_RETRY     60u
#define STOP_MS       20  /* while it stops: between two looks at the clock */
#define COPY_SHARE    0.5 /* of what decoding takes: of a prompt that is kept, copied in each step */
#define HURRY_SECONDS 1.0 /* for whatever the thread is at, where nobody waits for more */

/* ---------------------------------------------------------------- tasks */

static int fail_stopping(struct gs_api_error *error)
{
    return gs_api_fail(error, 503, "shutting_down", "the server is shutting down");
}

static void keep_alive(struct gs_task *task, double now)
{
    struct gs_event event = {.kind = GS_EVENT_WAITING};
    if (now - task->last_said > QUIET_SECONDS)
        gs_task_emit(task, &event);
}

static void free_task(struct gs_task *task)
{
    if (!task)
        return;
    if (task->exchange)
        gs_exchange_on_gone(task->exchange, NULL, NULL);
    task->sink.release(task->sink.user);
    gs_exchange_release(task->exchange);
    gs_request_free(task->request);
    free(task->prefilled);
    free(task);
}

/* Of the exchange, when the client leaves: only atomics here. */
static void notice_gone(void *user)
{
    struct gs_task *task = user;
    atomic_store(&task->gone, true);
    if (atomic_load(&task->scheduler->alone) == task)
        atomic_store(&task->scheduler->cancelled, true);
}

/* Under the mutex. */
static void enqueue(struct gs_scheduler *s, struct gs_task *task)
{
    task->number = ++s->n_number;
    task->first_generation = s->n_generation;
    s->n_generation += task->n_total;
    *s->queue_end = task;
    s->queue_end = &task->after;
    s->n_queue++;
    s->n_task++;
    atomic_store(&s->options.metrics->waiting, s->n_queue);
    pthread_cond_signal(&s->wakes);
}

static int refuse(struct gs_scheduler *s, struct gs_api_error *error)
{
    double seconds = (double)(s->n_queue + 1) * s->task_seconds / (double)s->options.n_parallel;
    gs_api_fail(error, 429, "queue_full", "%zu requests are waiting already: try again later", s->n_queue);
    error->retry_after = seconds < 1.0 ? 1 : seconds > (double)MAX_RETRY ? MAX_RETRY : (unsigned)seconds;
    return error->status;
}

int gs_scheduler_submit(struct gs_scheduler *s, struct gs_request *request, struct gs_sink sink,
                        struct gs_exchange *exchange, struct gs_client client, struct gs_api_error *error)
{
    struct gs_task *task = calloc(1, sizeof *task);
    bool *prefilled = calloc(request->n_prompt + 1, sizeof *prefilled);
    if (!task || !prefilled) {
        free(task);
        free(prefilled);
        sink.release(sink.user);
        gs_request_free(request);
        return gs_api_fail(error, 503, "out_of_memory", "memory is out");
    }
    *task = (struct gs_task){.scheduler = s,
                             .request = request,
                             .sink = sink,
                             .client = client,
                             .n_total = request->n_prompt * request->n_choice,
                             .prefilled = prefilled,
                             .seed = request->seeded ? request->sampling.seed : gs_random_number(),
                             .submitted = gs_clock_seconds()};
    task->last_said = task->submitted;
    atomic_fetch_add(&s->options.metrics->requests, 1);
    if (exchange) {
        task->exchange = gs_exchange_hold(exchange);
        gs_exchange_on_gone(exchange, notice_gone, task);
    }
    int status = 0;
    /* One look at `stops` and the queue: the thread ends when it sees it stopped and empty. */
    pthread_mutex_lock(&s->mutex);
    if (s->stops)
        status = fail_stopping(error);
    else if (s->n_queue >= s->options.max_queue)
        status = refuse(s, error);
    else
        enqueue(s, task);
    pthread_mutex_unlock(&s->mutex);
    if (status != 0) {
        atomic_fetch_add(&s->options.metrics->rejected, 1);
        free_task(task);
    }
    return status;
}

/* ---------------------------------------------------------------- the end of a task */

static void remember_turn(struct gs_scheduler *s, const struct gs_choice *choice)
{
    const struct gs_tokens *tokens;
    const char *const *call_ids;
    const struct gs_answer *answer = gs_choice_answer(choice, &tokens, &call_ids);
    if (!answer || !s->options.replay)
        return;
    pthread_mutex_lock(s->options.replay_mutex);
    gs_replay_add(s->options.replay, tokens->ids, tokens->count, answer, call_ids,
                  NULL); /* a loss of speed */
    pthread_mutex_unlock(s->options.replay_mutex);
}

/* What goes on where it ended: a call's result comes next, a raw text may be continued. */
static bool goes_on(const struct gs_sequence *sequence)
{
    const struct gs_tokens *tokens;
    const char *const *ids;
    return !sequence->task->request->chat || gs_choice_answer(sequence->choice, &tokens, &ids) != NULL;
}

static void end_sequence(struct gs_scheduler *s, struct gs_sequence *sequence)
{
    struct gs_task *task = sequence->task;
    task->usage.completion += gs_choice_count(sequence->choice);
    task->usage.reasoning += gs_choice_reasoning(sequence->choice);
    task->n_ended++;
    if (!task->failed) {
        remember_turn(s, sequence->choice);
        if (s->cache && goes_on(sequence))
            gs_prefix_cache_keep(s->cache, task->request->scope, &sequence->timeline);
    }
    if (s->cache) {
        gs_prefix_cache_take(s->cache, sequence->timeline.session);
        sequence->timeline.session = NULL;
    }
    gs_sequence_free(sequence);
    s->n_sequence--;
}

static void end_task(struct gs_scheduler *s, struct gs_task *task)
{
    struct gs_metrics *m = s->options.metrics;
    struct gs_event event = {.kind = GS_EVENT_DONE, .usage = &task->usage};
    double seconds = task->usage.total_seconds = gs_clock_seconds() - task->submitted;
    bool failed = task->failed;
    gs_histogram_add(&m->request, seconds);
    atomic_fetch_add(atomic_load(&task->gone) ? &m->cancelled : failed ? &m->failed : &m->finished, 1);
    atomic_fetch_add(&m->prompt_tokens, task->usage.prompt);
    atomic_fetch_add(&m->cached_tokens, task->usage.cached);
    atomic_fetch_add(&m->completion_tokens, task->usage.completion);
    atomic_fetch_add(&m->reasoning_tokens, task->usage.reasoning);
    gs_task_emit(task, &event);
    free_task(task);
    pthread_mutex_lock(&s->mutex);
    s->n_task--;
    s->task_seconds = s->task_seconds > 0.0 ? 0.8 * s->task_seconds + 0.2 * seconds : seconds;
    pthread_cond_broadcast(&s->wakes);
    pthread_mutex_unlock(&s->mutex);
}

/* Has it no sequence under way, and does it want none? */
static bool is_over(const struct gs_task *task)
{
    return task->n_ended == task->n_started && (task->failed || task->n_started == task->n_total);
}

static void sweep_sequences(struct gs_scheduler *s)
{
    struct gs_sequence **link = &s->sequences;
    while (*link) {
        struct gs_sequence *sequence = *link;
        if (!sequence->ended && !sequence->task->failed) {
            link = &sequence->after;
            continue;
        }
        struct gs_task *task = sequence->task;
        *link = sequence->after;
        end_sequence(s, sequence);
        /* Tasks with choices to start are still in the queue, which ends them. */
        if (task->n_started == task->n_total && is_over(task))
            end_task(s, task);
    }
}

/* ---------------------------------------------------------------- the queue */

/* What a client has: sequences under way of its peer, when one of these was begun last, and of its
 * connection. */
struct share {
    size_t peer, turn, connection;
};

/* 0: not lately. */
static size_t find_turn(const struct gs_scheduler *s, size_t peer)
{
    for (size_t turn = s->n_turn; turn > 0 && s->n_turn - turn < GS_RECENT_TURNS; turn--)
        if (s->turns[turn % GS_RECENT_TURNS] == peer)
            return turn;
    return 0;
}

static struct share count_running(const struct gs_scheduler *s, struct gs_client client)
{
    struct share count = {.turn = find_turn(s, client.peer)};
    for (const struct gs_sequence *q = s->sequences; q; q = q->after) {
        count.peer += q->task->client.peer == client.peer;
        count.connection += q->task->client.connection == client.connection;
    }
    return count;
}

static bool is_less(struct share a, struct share b)
{
    return a.peer != b.peer   ? a.peer < b.peer
           : a.turn != b.turn ? a.turn < b.turn
                              : a.connection < b.connection;
}

/* Under the mutex. */
static void unlink_task(struct gs_scheduler *s, struct gs_task *task)
{
    struct gs_task **link = &s->queue;
    while (*link != task)
        link = &(*link)->after;
    *link = task->after;
    if (!*link)
        s->queue_end = link;
    task->after = NULL;
    s->n_queue--;
    atomic_store(&s->options.metrics->waiting, s->n_queue);
}

/*
 * Under the mutex: of the peers with the fewest sequences under way, the one that has had no turn for
 * longest; of its connections, the one with the fewest; then the one that has waited the longest.
 */
static struct gs_task *choose_task(struct gs_scheduler *s, const struct gs_task *const *later, size_t n_later)
{
    struct gs_task *best = NULL;
    struct share fewest = {0};
    for (struct gs_task *task = s->queue; task; task = task->after) {
        bool skip = false;
        for (size_t i = 0; i < n_later; i++)
            skip |= later[i] == task;
        struct share running = skip ? fewest : count_running(s, task->client);
        if (!skip && (!best || is_less(running, fewest))) {
            best = task;
            fewest = running;
        }
    }
    return best;
}

static void begin_task(struct gs_scheduler *s, struct gs_task *task)
{
    if (task->started > 0.0)
        return;
    task->started = gs_clock_seconds();
    s->turns[++s->n_turn % GS_RECENT_TURNS] = task->client.peer;
    task->usage.queue_seconds = task->started - task->submitted;
    gs_histogram_add(&s->options.metrics->queue, task->usage.queue_seconds);
}

/* A session that is still copied has the memory of a place. */
static size_t count_places(const struct gs_scheduler *s)
{
    return s->n_sequence + (s->cache && gs_prefix_cache_has_taken(s->cache));
}

/* Starts what can be started. */
static void admit(struct gs_scheduler *s)
{
    const struct gs_task *later[16];
    size_t n_later = 0;
    while (count_places(s) < s->options.n_parallel && n_later < sizeof later / sizeof *later) {
        struct gs_error cause;
        struct gs_api_error error;
        bool started = false;
        pthread_mutex_lock(&s->mutex);
        struct gs_task *task = choose_task(s, later, n_later);
        pthread_mutex_unlock(&s->mutex);
        if (!task)
            return;
        begin_task(s, task);
        gs_status status = task->failed ? GS_OK : gs_sequence_start(s, task, &started, &cause);
        if (status != GS_OK) {
            gs_api_error_from(&error, status, &cause);
            if (error.status == 400)
                error.status = 500;
            gs_task_fail(task, &error);
        }
        bool leaves = task->failed || task->n_started == task->n_total;
        if (!leaves && !started) {
            later[n_later++] = task;
            continue;
        }
        if (!leaves)
            continue;
        pthread_mutex_lock(&s->mutex);
        unlink_task(s, task);
        pthread_mutex_unlock(&s->mutex);
        if (task->failed) /* it starts no more */
            task->n_total = task->n_started;
        if (is_over(task))
            end_task(s, task);
    }
}

/* Of those that wait: who left, and who is owed a sign of life. */
static void look_after_queue(struct gs_scheduler *s, const struct gs_api_error *refusal)
{
    struct gs_api_error gone;
    double now = gs_clock_seconds();
    gs_api_fail(&gone, 499, "client_gone", "the client has gone");
    struct gs_task *over = NULL;
    pthread_mutex_lock(&s->mutex);
    for (struct gs_task *task = s->queue, *after; task; task = after) {
        after = task->after;
        bool left = atomic_load(&task->gone);
        if (!left && !refusal && !task->failed) {
            keep_alive(task, now);
            continue;
        }
        gs_task_fail(task, left ? &gone : refusal ? refusal : &gone);
        task->n_total = task->n_started;
        unlink_task(s, task);
        if (is_over(task)) {
            task->after = over;
            over = task;
        }
    }
    pthread_mutex_unlock(&s->mutex);
    while (over) {
        struct gs_task *task = over;
        over = task->after;
        end_task(s, task);
    }
}

static void look_after_sequences(struct gs_scheduler *s, const struct gs_api_error *cut)
{
    struct gs_api_error gone;
    double now = gs_clock_seconds();
    gs_api_fail(&gone, 499, "client_gone", "the client has gone");
    for (struct gs_sequence *q = s->sequences; q; q = q->after) {
        if (atomic_load(&q->task->gone))
            gs_task_fail(q->task, &gone);
        else if (cut)
            gs_task_fail(q->task, cut);
        else
            keep_alive(q->task, now);
    }
}

/* ---------------------------------------------------------------- the thread */

static void publish(struct gs_scheduler *s)
{
    double now = gs_clock_seconds();
    uint64_t tokens = 0, capacity = 0;
    pthread_mutex_lock(&s->mutex);
    s->n_slot = 0;
    for (const struct gs_sequence *q = s->sequences; q && s->n_slot < s->options.n_parallel; q = q->after) {
        size_t n_generated = gs_choice_count(q->choice);
        s->slots[s->n_slot++] = (struct gs_slot){.request = q->task->number,
                                                 .choice = q->index,
                                                 .n_prompt = q->prompt.count,
                                                 .n_prompt_done = q->n_done,
                                                 .n_cached = q->n_cached,
                                                 .n_generated = n_generated,
                                                 .n_ctx = s->options.n_ctx,
                                                 .decodes = q->decodes,
                                                 .seconds = now - q->task->submitted};
        tokens += q->n_done + n_generated;
        capacity += (uint64_t)s->options.n_ctx;
    }
    pthread_mutex_unlock(&s->mutex);
    atomic_store(&s->options.metrics->running, s->n_sequence);
    atomic_store(&s->options.metrics->kv_tokens, tokens);
    atomic_store(&s->options.metrics->kv_capacity, capacity);
}

/* As pthread_cond_timedwait wants it. */
static struct timespec time_after(double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    double fraction = seconds + (double)until.tv_nsec * 1e-9;
    until.tv_sec += (time_t)fraction;
    until.tv_nsec = (long)((fraction - (double)(time_t)fraction) * 1e9);
    return until;
}

/* Meanwhile, what has been kept for a while is written. */
static void wait_for_work(struct gs_scheduler *s)
{
    if (s->cache)
        gs_prefix_cache_copy(s->cache, INFINITY);
    double seconds = s->cache ? gs_prefix_cache_store(s->cache) : -1.0;
    struct timespec until = time_after(seconds);
    pthread_mutex_lock(&s->mutex);
    while (!s->queue && !s->stops)
        if (seconds < 0.0)
            pthread_cond_wait(&s->wakes, &s->mutex);
        else if (pthread_cond_timedwait(&s->wakes, &s->mutex, &until) == ETIMEDOUT)
            break;
    pthread_mutex_unlock(&s->mutex);
}

static uint64_t counted_nanoseconds(const struct gs_scheduler *s)
{
    const struct gs_metrics *m = s->options.metrics;
    return atomic_load(&m->engine_nanoseconds) + atomic_load(&m->sampler_nanoseconds);
}

/* What was said so far goes out. */
static void flush(const struct gs_scheduler *s)
{
    if (s->options.flush)
        s->options.flush(s->options.flush_user);
}

static void say_ended(struct gs_scheduler *s)
{
    pthread_mutex_lock(&s->mutex);
    s->has_ended = true;
    pthread_cond_broadcast(&s->wakes);
    pthread_mutex_unlock(&s->mutex);
}

static void *serve(void *user)
{
    struct gs_scheduler *s = user;
    struct gs_api_error stopping;
    fail_stopping(&stopping);
    for (;;) {
        if (s->n_sequence == 0)
            wait_for_work(s);
        double began = gs_clock_seconds();
        uint64_t counted = counted_nanoseconds(s);
        pthread_mutex_lock(&s->mutex);
        bool stops = s->stops, idle = !s->queue, cut = s->stops && began >= s->cut_at;
        double cut_at = s->cut_at;
        pthread_mutex_unlock(&s->mutex);
        if (stops && idle && s->n_sequence == 0) {
            if (s->cache)
                gs_prefix_cache_store_all(s->cache, cut_at);
            say_ended(s);
            return NULL; /* all is flushed */
        }
        look_after_queue(s, stops ? &stopping : NULL);
        look_after_sequences(s, cut ? &stopping : NULL);
        sweep_sequences(s);
        admit(s);
        flush(s);
        atomic_store(&s->step_began, gs_clock_seconds());
        gs_scheduler_step(s);
        atomic_store(&s->step_began, 0.0);
        sweep_sequences(s);
        publish(s);
        flush(s);
        if (s->cache) {
            gs_prefix_cache_copy(s->cache, COPY_SHARE * s->decode_seconds);
            gs_prefix_cache_store(s->cache);
        }
        counted = counted_nanoseconds(s) - counted;
        double all = (gs_clock_seconds() - began) * 1e9;
        if (all > (double)counted)
            atomic_fetch_add(&s->options.metrics->server_nanoseconds, (uint64_t)all - counted);
    }
}

/* ---------------------------------------------------------------- steps that do not end */

bool gs_scheduler_is_stuck(const struct gs_scheduler *s)
{
    double began = atomic_load(&s->step_began);
    return began > 0.0 && gs_clock_seconds() - began > STUCK_SECONDS;
}

/*
 * Under the mutex: takes all requests from the model, if it is at work on them, and ends them. Its step is in
 * vain then, and need not go on. Again: who has come since is told too. `still` (NULL: yes) is whether there
 * is a reason, asked when the step cannot end any more.
 */
static void give_up(struct gs_scheduler *s, const struct gs_api_error *error,
                    bool (*still)(const struct gs_scheduler *s))
{
    int state = GS_WORK_OF_MODEL;
    bool taken = atomic_compare_exchange_strong(&s->at_work, &state, GS_WORK_GIVEN_UP);
    if (taken && still && !still(s)) { /* that step has ended meanwhile: this is another */
        atomic_store(&s->at_work, GS_WORK_OF_MODEL);
        return;
    }
    if (!taken && state != GS_WORK_GIVEN_UP)
        return;
    atomic_store(&s->cancelled, true);
    for (struct gs_sequence *q = s->sequences; q; q = q->after)
        gs_task_fail(q->task, error);
    for (struct gs_task *task = s->queue; task; task = task->after)
        gs_task_fail(task, error);
}

void gs_scheduler_watch(struct gs_scheduler *s)
{
    struct gs_api_error hangs;
    if (!gs_scheduler_is_stuck(s))
        return;
    gs_api_fail(&hangs, 503, "stuck", "a step of the model has not ended in %.0f seconds: the device hangs",
                STUCK_SECONDS);
    pthread_mutex_lock(&s->mutex);
    give_up(s, &hangs, gs_scheduler_is_stuck);
    pthread_mutex_unlock(&s->mutex);
}

/* ---------------------------------------------------------------- the end */

/* Under the mutex, after all was cut: is what the thread is at not waited for any longer? */
static bool is_left_behind(const struct gs_scheduler *s, double now)
{
    double step = atomic_load(&s->step_began), since = step > s->cut_at ? step : s->cut_at;
    return s->hurries ? now - s->cut_at >= HURRY_SECONDS : step > 0.0 && now - since >= GS_LAST_STEP_SECONDS;
}

/* Under the mutex. */
static bool wait_for_end(struct gs_scheduler *s)
{
    struct gs_api_error stopping;
    fail_stopping(&stopping);
    while (!s->has_ended) {
        double now = gs_clock_seconds();
        if (now >= s->cut_at) {
            give_up(s, &stopping, NULL);
            flush(s);
            if (is_left_behind(s, now))
                return false;
        }
        struct timespec until = time_after(1e-3 * STOP_MS);
        pthread_cond_timedwait(&s->wakes, &s->mutex, &until);
    }
    return true;
}

bool gs_scheduler_stop(struct gs_scheduler *s, double seconds)
{
    bool ended = true;
    pthread_mutex_lock(&s->mutex);
    s->stops = true;
    s->cut_at = gs_clock_seconds() + (s->hurries ? 0.0 : seconds);
    pthread_cond_broadcast(&s->wakes);
    if (s->has_thread)
        ended = wait_for_end(s);
    pthread_mutex_unlock(&s->mutex);
    if (s->has_thread && ended) {
        pthread_join(s->thread, NULL);
        s->has_thread = false;
    }
    return ended;
}

void gs_scheduler_hurry(struct gs_scheduler *s)
{
    double now = gs_clock_seconds();
    pthread_mutex_lock(&s->mutex);
    s->hurries = true;
    if (s->cut_at > now)
        s->cut_at = now;
    pthread_cond_broadcast(&s->wakes);
    pthread_mutex_unlock(&s->mutex);
}

/* ---------------------------------------------------------------- opening */

/* A script that is through begins anew: its lines, at least 1. */
static gs_status count_generations(struct gs_scheduler *s, struct gs_error *error)
{
    FILE *file = fopen(s->options.script, "r");
    int byte, last = '\n';
    if (!file)
        return gs_fail_io(error, errno, "open", s->options.script);
    while ((byte = getc(file)) != EOF) {
        s->n_line += last == '\n';
        last = byte;
    }
    fclose(file);
    return s->n_line > 0
               ? GS_OK
               : gs_fail(error, GS_INVALID_ARGUMENT, "%s: has no line", gs_quote(s->options.script).text);
}

static gs_status find_stop_ids(struct gs_scheduler *s, struct gs_error *error)
{
    struct gs_error unused;
    size_t count = 0;
    s->has_markers = gs_markers_find(s->options.vocab, &s->markers, &unused) == GS_OK;
    if (s->options.engine) {
        const int32_t *ids = gs_engine_stop_ids(s->options.engine, &count);
        size_t most = sizeof s->stop_ids / sizeof *s->stop_ids;
        s->n_stop_id = count < most ? count : most;
        memcpy(s->stop_ids, ids, s->n_stop_id * sizeof *ids);
        return GS_OK;
    }
    if (!s->has_markers)
        return gs_fail(error, GS_UNSUPPORTED, "a script needs a vocabulary with harmony's tokens");
    s->stop_ids[s->n_stop_id++] = s->markers.final_return;
    s->stop_ids[s->n_stop_id++] = s->markers.call;
    if (s->markers.end_of_text >= 0)
        s->stop_ids[s->n_stop_id++] = s->markers.end_of_text;
    return GS_OK;
}

gs_status gs_scheduler_open(const struct gs_scheduler_options *options, struct gs_scheduler **out,
                            struct gs_error *error)
{
    *out = NULL;
    struct gs_scheduler *s = calloc(1, sizeof *s);
    if (!s)
        return gs_fail_memory(error, sizeof *s);
    s->options = *options;
    s->queue_end = &s->queue;
    if (s->options.script_step == 0)
        s->options.script_step = 1;
    if (s->options.ahead_seconds == 0.0)
        s->options.ahead_seconds = GS_AHEAD_SECONDS;
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->wakes, NULL);
    s->items = calloc(options->n_parallel, sizeof *s->items);
    s->stepping = calloc(options->n_parallel, sizeof *s->stepping);
    s->slots = calloc(options->n_parallel, sizeof *s->slots);
    gs_status status = s->items && s->stepping && s->slots
                           ? find_stop_ids(s, error)
                           : gs_fail_memory(error, options->n_parallel * sizeof *s->items);
    if (status == GS_OK && !options->engine)
        status = count_generations(s, error);
    if (status == GS_OK && options->engine) {
        s->max_tokens = gs_batch_max_tokens(options->engine);
        status = gs_prefix_cache_open(options->engine, options->cache_bytes, &s->cache, error);
        if (status == GS_OK && options->store)
            gs_prefix_cache_attach(s->cache, options->store, options->store_seconds);
    }
    if (status == GS_OK) {
        s->has_thread = pthread_create(&s->thread, NULL, serve, s) == 0;
        if (!s->has_thread)
            status = gs_fail(error, GS_OUT_OF_MEMORY, "cannot start a thread");
    }
    if (status != GS_OK) {
        gs_scheduler_close(s);
        return status;
    }
    *out = s;
    return GS_OK;
}

void gs_scheduler_close(struct gs_scheduler *s)
{
    if (!s)
        return;
    gs_scheduler_stop(s, 0.0);
    if (s->has_thread)
        pthread_join(s->thread, NULL);
    gs_prefix_cache_close(s->cache);
    pthread_cond_destroy(&s->wakes);
    pthread_mutex_destroy(&s->mutex);
    free(s->items);
    free(s->stepping);
    free(s->slots);
    free(s);
}

/* ---------------------------------------------------------------- figures */

size_t gs_scheduler_slots(struct gs_scheduler *s, struct gs_slot *slots, size_t most)
{
    pthread_mutex_lock(&s->mutex);
    size_t count = s->n_slot < most ? s->n_slot : most;
    memcpy(slots, s->slots, count * sizeof *slots);
    pthread_mutex_unlock(&s->mutex);
    return count;
}

struct gs_cache_figures gs_scheduler_cache_figures(struct gs_scheduler *s)
{
    struct gs_cache_figures figures = {0};
    if (s->cache) {
        struct gs_prefix_figures memory = gs_prefix_cache_figures(s->cache);
        figures.n_entry = memory.n_entry;
        figures.bytes = memory.bytes;
        figures.n_loaded = memory.n_loaded;
    }
    if (s->options.store)
        gs_prefix_store_figures(s->options.store, &figures.n_file, &figures.file_bytes);
    return figures;
}
