/*
 * Steps that do not end: one that hangs is given up and does not hold up the end, one that ends at that
 * moment is given up or not, and is never both.
 */
#include "tests/server/watched.h"

#include <sched.h>
#include <time.h>

/* ---------------------------------------------------------------- steps that are given up */

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_that_does_not_end_is_given_up),
        cmocka_unit_test(a_step_that_hangs_does_not_hold_up_the_end),
        cmocka_unit_test(a_step_that_ends_late_is_waited_for),
        cmocka_unit_test(who_hurries_does_not_wait_for_a_step),
        cmocka_unit_test(the_step_after_one_that_hung_is_let_be),
        cmocka_unit_test(a_step_that_just_ends_is_given_up_or_not),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
