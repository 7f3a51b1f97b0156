/* What runs: sequences, and the steps of the model that they share. */
#include "server/scheduler_state.h"

#include "base/clock.h"
#include "base/status.h"
#include "engine/session.h"
#include "server/exchange.h"
#include "text/tokens.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FIRST_PIECE    4   /* before costs are known */
#define DECODE_SHARE   1.0 /* prompts may take so many times what decoding takes */
#define FRESH_STEPS    32  /* steps after which the cost of decoding is measured anew */
#define SOON_STEPS     4   /* the same, where another number of sequences decodes */
#define SMOOTH         0.2 /* of a new measurement in a running mean */
#define LOGPROB_PIECE  16  /* tokens of a step whose every row of logits is wanted */
#define LEAST_BOUNDARY 16  /* tokens of instructions that are worth keeping */

/* ---------------------------------------------------------------- starting */

void gs_sequence_free(struct gs_sequence *sequence)
{
    if (!sequence)
        return;
    gs_choice_close(sequence->choice);
    gs_session_close(sequence->timeline.session);
    gs_tokens_free(&sequence->prompt);
    free(sequence);
}

static void emit_of_choice(void *user, const struct gs_event *event)
{
    struct gs_sequence *sequence = user;
    gs_task_emit(sequence->task, event);
}

/* What a choice can add to the prompt: every token that is counted has its place in the context. */
static int64_t limit_of(const struct gs_scheduler *s, const struct gs_request *request, size_t n_prompt)
{
    int64_t left = s->options.n_ctx - (int64_t)n_prompt, room = left > 0 ? left : 0;
    return request->max_tokens >= 0 && request->max_tokens < room ? request->max_tokens : room;
}

static gs_status open_choice(struct gs_scheduler *s, struct gs_sequence *sequence, struct gs_error *error)
{
    struct gs_task *task = sequence->task;
    struct gs_request *request = task->request;
    const struct gs_choice_options options = {
        .request = request,
        .prompt = &request->prompts[sequence->prompt_index],
        .index = sequence->index,
        .vocab = s->options.vocab,
        .n_vocab = s->options.n_vocab,
        .markers = &s->markers,
        .stop_ids = s->stop_ids,
        .n_stop_id = s->n_stop_id,
        .seed = task->seed + sequence->index,
        .script = s->options.script,
        .generation = s->n_line > 0 ? (task->first_generation + sequence->index) % s->n_line : 0,
        .limit = limit_of(s, request, request->prompts[sequence->prompt_index].count),
        .sampler_nanoseconds = &s->options.metrics->sampler_nanoseconds,
        .emit = emit_of_choice,
        .user = sequence,
    };
    return gs_choice_open(&options, &sequence->choice, error);
}

/* Where the instructions end: the first <|start|> after which another conversation may go on otherwise. */
static size_t find_boundary(const struct gs_scheduler *s, const struct gs_sequence *sequence)
{
    const struct gs_conversation *conversation = &sequence->task->request->conversation;
    size_t n_message = 0, at = 0;
    if (!sequence->task->request->chat)
        return 0;
    while (n_message < conversation->count && (conversation->messages[n_message].role == GS_ROLE_SYSTEM ||
                                               conversation->messages[n_message].role == GS_ROLE_DEVELOPER))
        n_message++;
    for (size_t seen = 0; at < sequence->prompt.count; at++)
        if (sequence->prompt.ids[at] == s->markers.start && seen++ == n_message)
            break;
    return at >= LEAST_BOUNDARY && at < sequence->prompt.count ? at : 0;
}

static gs_status copy_prompt(struct gs_sequence *sequence, const struct gs_tokens *prompt,
                             struct gs_error *error)
{
    const struct gs_tokens *forced = gs_choice_forced(sequence->choice);
    gs_status status = GS_OK;
    for (size_t i = 0; i < prompt->count && status == GS_OK; i++)
        status = gs_tokens_append(&sequence->prompt, prompt->ids[i], error);
    for (size_t i = 0; i < forced->count && status == GS_OK; i++)
        status = gs_tokens_append(&sequence->prompt, forced->ids[i], error);
    return status;
}

static bool wants_all_rows(const struct gs_sequence *sequence)
{
    return sequence->task->request->echo && sequence->task->request->logprobs;
}

/* A session as large as this sequence can need, with what the cache has of its prompt. */
static gs_status open_session(struct gs_scheduler *s, struct gs_sequence *sequence, struct gs_error *error)
{
    const struct gs_request *request = sequence->task->request;
    int64_t need = s->options.n_ctx, prompt = (int64_t)sequence->prompt.count;
    if (request->max_tokens >= 0 && prompt + request->max_tokens < need)
        need = prompt + request->max_tokens;
    sequence->n_ctx = need > prompt ? need : prompt;
    gs_status status =
        gs_session_open(s->options.engine, sequence->n_ctx, &sequence->timeline.session, error);
    if (status == GS_OUT_OF_MEMORY) {
        gs_prefix_cache_clear(s->cache);
        status = gs_session_open(s->options.engine, sequence->n_ctx, &sequence->timeline.session, error);
    }
    if (status == GS_OK && !wants_all_rows(sequence))
        gs_prefix_cache_use(s->cache, request->scope, sequence->prompt.ids, sequence->prompt.count,
                            &sequence->timeline, &sequence->n_done);
    sequence->n_cached = sequence->n_done;
    if (sequence->n_cached > 0)
        atomic_fetch_add(&s->options.metrics->prefix_hits, 1);
    sequence->boundary = find_boundary(s, sequence);
    return status;
}

gs_status gs_sequence_start(struct gs_scheduler *s, struct gs_task *task, bool *started,
                            struct gs_error *error)
{
    size_t prompt_index = task->n_started / task->request->n_choice;
    bool further = task->n_started % task->request->n_choice > 0;
    *started = false;
    if (further && s->options.engine && !task->prefilled[prompt_index])
        return GS_OK; /* it will find the prefix then */
    struct gs_sequence *sequence = calloc(1, sizeof *sequence);
    if (!sequence)
        return gs_fail_memory(error, sizeof *sequence);
    sequence->task = task;
    sequence->index = task->n_started;
    sequence->prompt_index = prompt_index;
    sequence->pending = sequence->chosen = -1;
    sequence->n_ahead = 1;
    gs_status status = open_choice(s, sequence, error);
    if (status == GS_OK)
        status = copy_prompt(sequence, &task->request->prompts[prompt_index], error);
    if (status == GS_OK && s->options.engine)
        status = open_session(s, sequence, error);
    if (status != GS_OK) {
        bool wait = status == GS_OUT_OF_MEMORY && s->n_sequence > 0;
        gs_sequence_free(sequence);
        return wait ? GS_OK : status;
    }
    if (!further && !s->options.engine)
        sequence->n_done = sequence->prompt.count;
    if (!further) { /* what is forced behind a prompt counts as generated, also where the cache had it */
        size_t n_prompt = task->request->prompts[prompt_index].count;
        task->usage.prompt += n_prompt;
        task->usage.cached += sequence->n_cached < n_prompt ? sequence->n_cached : n_prompt;
    }
    sequence->after = s->sequences;
    s->sequences = sequence;
    s->n_sequence++;
    task->n_started++;
    *started = true;
    return GS_OK;
}

/* ---------------------------------------------------------------- what may never end */

/* Around it: meanwhile the tasks may be given up by others (scheduler.c). */
static void begin_work(struct gs_scheduler *s)
{
    atomic_store(&s->at_work, GS_WORK_OF_MODEL);
}

/* False: they were given up, and have failed. */
static bool end_work(struct gs_scheduler *s)
{
    int state = GS_WORK_OF_MODEL;
    if (atomic_compare_exchange_strong(&s->at_work, &state, GS_WORK_NONE))
        return true;
    pthread_mutex_lock(&s->mutex); /* until whoever gives them up is through, or has thought better of it */
    bool is_ours = atomic_exchange(&s->at_work, GS_WORK_NONE) == GS_WORK_OF_MODEL;
    pthread_mutex_unlock(&s->mutex);
    return is_ours;
}

/* ---------------------------------------------------------------- tokens */

static void fail_sequence(struct gs_sequence *sequence, gs_status status, const struct gs_error *cause)
{
    struct gs_api_error error;
    gs_api_error_from(&error, status, cause);
    if (error.status == 400 && status != GS_CONTEXT_FULL) /* no fault of the request's */
        error.status = 500;
    gs_task_fail(sequence->task, &error);
    sequence->ended = true;
}

static void note_token(struct gs_scheduler *s, struct gs_sequence *sequence)
{
    double now = gs_clock_seconds();
    struct gs_task *task = sequence->task;
    if (task->usage.first_seconds == 0.0) {
        task->usage.first_seconds = now - task->submitted;
        gs_histogram_add(&s->options.metrics->first_token, task->usage.first_seconds);
    }
    if (sequence->last_token > 0.0)
        gs_histogram_add(&s->options.metrics->between_tokens, now - sequence->last_token);
    sequence->last_token = now;
}

/* Draws for a sequence whose logits are there. */
static void draw(struct gs_scheduler *s, struct gs_sequence *sequence)
{
    struct gs_error error;
    gs_status status =
        gs_choice_step(sequence->choice, sequence->row, sequence->chosen, &sequence->pending, &error);
    note_token(s, sequence);
    if (status != GS_OK)
        fail_sequence(sequence, status, &error);
    else if (gs_choice_ended(sequence->choice))
        sequence->ended = true;
}

/* The prompt is through: what comes before the first token. */
static void begin_decoding(struct gs_scheduler *s, struct gs_sequence *sequence)
{
    struct gs_task *task = sequence->task;
    struct gs_error error;
    sequence->decodes = true;
    if (s->cache)
        gs_prefix_cache_keep(s->cache, task->request->scope, &sequence->timeline);
    task->prefilled[sequence->prompt_index] = true;
    if (task->usage.prefill_seconds == 0.0)
        task->usage.prefill_seconds = gs_clock_seconds() - task->started;
    if (!task->request->echo)
        return;
    gs_status status = gs_choice_echo(sequence->choice, &error);
    if (status != GS_OK)
        fail_sequence(sequence, status, &error);
}

static void step_scripts(struct gs_scheduler *s)
{
    double seconds = s->n_sequence > 0 ? s->options.script_seconds : 0.0;
    const struct timespec pause = {.tv_sec = (time_t)seconds,
                                   .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    if (seconds > 0.0) {
        begin_work(s);
        nanosleep(&pause, NULL);
        if (!end_work(s))
            return;
    }
    for (struct gs_sequence *sequence = s->sequences; sequence; sequence = sequence->after) {
        if (sequence->ended)
            continue;
        if (!sequence->decodes)
            begin_decoding(s, sequence);
        for (size_t i = 0; i < s->options.script_step && !sequence->ended; i++)
            draw(s, sequence);
    }
}

/* ---------------------------------------------------------------- a step of the model */

struct step {
    size_t n_item;
    size_t n_decode, n_prompt; /* tokens */
};

static void add_item(struct gs_scheduler *s, struct step *step, struct gs_sequence *sequence,
                     const int32_t *tokens, size_t count, enum gs_want want)
{
    s->items[step->n_item] = (struct gs_batch_item){.session = sequence->timeline.session,
                                                    .tokens = tokens,
                                                    .n_tokens = count,
                                                    .want = want,
                                                    .chosen = &sequence->chosen,
                                                    .row = &sequence->row};
    sequence->chosen = -1;
    sequence->row = NULL;
    s->stepping[step->n_item++] = sequence;
    sequence->n_step = count;
}

static void add_decoding(struct gs_scheduler *s, struct step *step)
{
    for (struct gs_sequence *q = s->sequences; q; q = q->after) {
        if (q->ended || !q->decodes || step->n_decode == s->max_tokens)
            continue;
        const struct gs_draw *draw = NULL;
        bool lets_choose = gs_choice_lets_choose(q->choice, 1, &draw);
        add_item(s, step, q, &q->pending, 1, lets_choose ? GS_WANT_TOKEN : GS_WANT_LAST);
        s->items[step->n_item - 1].draw = draw;
        step->n_decode++;
    }
}

/*
 * Tokens of prompts that fit in this step without making those that decode wait: each step earns a share of
 * its own cost, and a token of a prompt is run when it has been earned.
 */
static size_t prompt_budget(struct gs_scheduler *s, const struct step *step)
{
    size_t room = s->max_tokens - step->n_decode;
    if (step->n_decode == 0) {
        s->earned = 0.0;
        return room;
    }
    if (s->decode_seconds == 0.0 || s->prompt_token_seconds == 0.0)
        return FIRST_PIECE < room ? FIRST_PIECE : room;
    s->earned += DECODE_SHARE * s->decode_seconds / s->prompt_token_seconds;
    if (s->earned > (double)room)
        s->earned = (double)room;
    return (size_t)s->earned;
}

static void add_prompt(struct gs_scheduler *s, struct step *step, struct gs_sequence *q, size_t most)
{
    size_t left = q->prompt.count - q->n_done;
    size_t count = left < most ? left : most;
    bool all_rows = wants_all_rows(q);
    if (all_rows && count > LOGPROB_PIECE)
        count = LOGPROB_PIECE;
    if (q->boundary > q->n_done && q->boundary < q->n_done + count)
        count = q->boundary - q->n_done;
    if (count == 0)
        return;
    add_item(s, step, q, q->prompt.ids + q->n_done, count,
             all_rows        ? GS_WANT_ALL
             : count == left ? GS_WANT_LAST
                             : GS_WANT_NONE);
    step->n_prompt += count;
}

/* Prompts share the budget, short ones whole; who is first goes around. */
static void add_prompts(struct gs_scheduler *s, struct step *step)
{
    size_t n = 0, at = 0;
    for (const struct gs_sequence *q = s->sequences; q; q = q->after)
        n += !q->ended && !q->decodes;
    s->n_mixed++;
    if (n == 0) {
        s->earned = 0.0;
        return;
    }
    if (step->n_decode > 0 && s->n_mixed > (step->n_decode == s->n_measured ? FRESH_STEPS : SOON_STEPS))
        return; /* what decoding alone costs must be known */
    size_t budget = prompt_budget(s, step);
    size_t first = s->turn++ % n;
    for (size_t pass = 0; pass < 2; pass++) {
        at = 0;
        for (struct gs_sequence *q = s->sequences; q; q = q->after) {
            if (q->ended || q->decodes)
                continue;
            bool mine = (at++ >= first) == (pass == 0);
            if (!mine || step->n_prompt >= budget)
                continue;
            size_t left = budget - step->n_prompt, share = budget / n > 0 ? budget / n : 1;
            add_prompt(s, step, q, share < left ? share : left);
        }
    }
}

static gs_status take_row(void *user, size_t item, size_t row, const float *logits, struct gs_error *error)
{
    struct gs_scheduler *s = user;
    struct gs_sequence *q = s->stepping[item];
    return q->decodes ? GS_OK : gs_choice_prompt_row(q->choice, q->n_done + row, logits, error);
}

static double smoothed(double mean, double value)
{
    return mean > 0.0 ? mean + SMOOTH * (value - mean) : value;
}

static void count_steps(struct gs_scheduler *s, size_t n, size_t n_token, double seconds)
{
    struct gs_metrics *m = s->options.metrics;
    atomic_fetch_add(&m->steps, n);
    atomic_fetch_add(&m->step_tokens, n_token);
    atomic_fetch_add(&m->engine_nanoseconds, (uint64_t)(seconds * 1e9));
}

/* What steps cost, so that the next one can be measured out. */
static void learn(struct gs_scheduler *s, const struct step *step, double seconds)
{
    if (step->n_prompt == 0) {
        s->decode_seconds = step->n_decode == s->n_measured ? smoothed(s->decode_seconds, seconds) : seconds;
        s->n_measured = step->n_decode;
        s->n_mixed = 0;
    } else {
        double decode = step->n_decode > 0 ? s->decode_seconds : 0.0;
        if (seconds > decode)
            s->prompt_token_seconds =
                smoothed(s->prompt_token_seconds, (seconds - decode) / (double)step->n_prompt);
    }
    count_steps(s, 1, step->n_decode + step->n_prompt, seconds);
}

/* The timeline has been so long: what it can be cut back to. */
static void note_length(struct gs_scheduler *s, struct gs_sequence *q, size_t count)
{
    size_t least = gs_timeline_least(s->options.engine, count);
    if (least > q->timeline.least)
        q->timeline.least = least;
}

static void draw_items(void *user, size_t begin, size_t end, size_t thread)
{
    (void)thread;
    const struct gs_scheduler *s = user;
    for (size_t i = begin; i < end; i++) {
        const struct gs_sequence *q = s->stepping[i];
        bool is_through = q->decodes || q->n_done + q->n_step == q->prompt.count;
        if (is_through && q->row)
            gs_choice_draw(q->choice, q->row);
    }
}

/* Draws are the longest part of what follows a step of many: they share the threads. */
static void draw_together(struct gs_scheduler *s, size_t n_item)
{
    double began = gs_clock_seconds();
    gs_engine_share(s->options.engine, draw_items, s, n_item);
    atomic_fetch_add(&s->options.metrics->sampler_nanoseconds,
                     (uint64_t)((gs_clock_seconds() - began) * 1e9));
}

/* A sequence that has been run by n_step tokens. */
static void advance(struct gs_scheduler *s, struct gs_sequence *q)
{
    size_t count;
    gs_session_tokens(q->timeline.session, &count);
    note_length(s, q, count);
    q->in_doubt = false;
    if (!q->decodes) {
        q->n_done += q->n_step;
        if (q->n_done == q->boundary)
            gs_prefix_cache_keep(s->cache, q->task->request->scope, &q->timeline);
        if (q->n_done < q->prompt.count)
            return;
        begin_decoding(s, q);
        if (q->ended)
            return;
    }
    draw(s, q);
}

/* ---------------------------------------------------------------- a lone stream */

/* The one sequence that runs, if it decodes, nobody waits, and the backend can go on by itself. */
static struct gs_sequence *find_lone(const struct gs_scheduler *s)
{
    struct gs_sequence *q = s->n_sequence == 1 ? s->sequences : NULL;
    bool lone = q && q->decodes && !q->ended && !q->in_doubt && q->pending >= 0 &&
                atomic_load(&s->options.metrics->waiting) == 0 &&
                gs_engine_has_chains(s->options.engine, false);
    return lone ? q : NULL;
}

/*
 * Several tokens in a row where nothing is to be decided between them: the backend goes on without waiting
 * for the host. All of them are there within some milliseconds, so who asks meanwhile waits no longer than
 * that. What lies behind the choice's end is cut off again; the rings reach back over so few. False: nothing
 * came of it.
 */
static bool run_ahead(struct gs_scheduler *s, struct gs_sequence *q)
{
    struct gs_session *session = q->timeline.session;
    const struct gs_draw *draws;
    int32_t chosen[GS_AHEAD_TOKENS];
    size_t before, n_chosen, kept, i = 0, n = q->n_ahead;
    struct gs_error error;
    gs_session_tokens(session, &before);
    size_t room = (size_t)gs_session_n_ctx(session) - before;
    int64_t left = gs_choice_left(q->choice);
    n = n < room ? n : room;
    n = left < 0 || (int64_t)n < left ? n : (size_t)left;
    if (n == 0 || !gs_choice_lets_choose(q->choice, n, &draws) ||
        !gs_engine_has_chains(s->options.engine, draws != NULL))
        return false;
    q->row = NULL;
    double began = gs_clock_seconds();
    begin_work(s);
    gs_status status = gs_session_chain(session, q->pending, draws, chosen, n, &n_chosen, &error);
    if (!end_work(s))
        return true;
    double seconds = gs_clock_seconds() - began;
    count_steps(s, n, n, seconds);
    q->n_ahead = gs_ahead_length(n, seconds, s->options.ahead_seconds);
    q->in_doubt = n_chosen < n;
    note_length(s, q, before + n);
    for (; status == GS_OK && i < n_chosen && !q->ended; i++) {
        q->chosen = chosen[i];
        draw(s, q);
    }
    if (status == GS_OK && i < n_chosen)
        status = gs_session_rewind(session, before + i, &kept, &error);
    if (status != GS_OK)
        fail_sequence(q, status, &error);
    return status != GS_OK || n_chosen > 0;
}

/* If all of the step is one task's, its leaving need not wait for the step's end. */
static void note_alone(struct gs_scheduler *s, const struct step *step)
{
    struct gs_task *task = s->stepping[0]->task;
    for (size_t i = 1; i < step->n_item; i++)
        if (s->stepping[i]->task != task)
            task = NULL;
    atomic_store(&s->cancelled, false);
    atomic_store(&s->alone, task);
    if (task && atomic_load(&task->gone))
        atomic_store(&s->cancelled, true);
}

void gs_scheduler_step(struct gs_scheduler *s)
{
    struct step step = {0};
    struct gs_error error;
    if (!s->options.engine) {
        step_scripts(s);
        return;
    }
    struct gs_sequence *lone = find_lone(s);
    if (lone && run_ahead(s, lone)) {
        s->earned = 0.0; /* no prompt was there to earn it */
        return;
    }
    add_decoding(s, &step);
    add_prompts(s, &step);
    if (step.n_item == 0)
        return;
    if (step.n_decode > 0 && s->earned >= (double)step.n_prompt)
        s->earned -= (double)step.n_prompt;
    note_alone(s, &step);
    double began = gs_clock_seconds();
    begin_work(s);
    gs_status status =
        gs_batch_run(s->options.engine, s->items, step.n_item, &s->cancelled, take_row, s, &error);
    bool is_ours = end_work(s);
    atomic_store(&s->alone, NULL);
    if (status == GS_CANCELLED || !is_ours)
        return;
    learn(s, &step, gs_clock_seconds() - began);
    if (status == GS_OK && step.n_item > 1)
        draw_together(s, step.n_item);
    for (size_t i = 0; i < step.n_item; i++) {
        if (status != GS_OK)
            fail_sequence(s->stepping[i], status, &error);
        else
            advance(s, s->stepping[i]);
    }
}
