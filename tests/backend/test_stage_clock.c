/* src/backend/stage_clock.h: the stages are the time between the first mark and the last, waiting apart. */
#include "backend/stage_clock.h"
#include "tests/support/check.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#define SLOW_SECONDS 0.1

static void sleep_seconds(double seconds)
{
    struct timespec time = {.tv_nsec = (long)(seconds * 1e9)};
    nanosleep(&time, NULL);
}

/* Two items, two threads, each begins with its own when both are there: that of the other thread is slow. */
static void meet_and_wait(void *user, size_t begin, size_t end, size_t thread)
{
    _Atomic size_t *n_missing = user;
    (void)begin;
    *n_missing -= end - begin;
    while (*n_missing > 0)
        sched_yield();
    if (thread == 1)
        sleep_seconds(SLOW_SECONDS);
}

static double sum(const double seconds[GS_TIME_COUNT])
{
    double total = 0.0;
    for (int s = 0; s < GS_TIME_COUNT; s++)
        total += seconds[s];
    return total;
}

static void stages_are_told_apart(void **state)
{
    (void)state;
    struct gs_threads *threads;
    struct gs_error error;
    assert_ok(gs_threads_open(2, &threads, &error), &error);
    double seconds[GS_TIME_COUNT] = {0};
    struct gs_stage_clock clock;
    gs_stage_clock_begin(&clock, seconds, threads);
    double begin = clock.mark;
    sleep_seconds(SLOW_SECONDS);
    gs_stage_clock_end(&clock, GS_TIME_NORM);
    assert_true(seconds[GS_TIME_NORM] >= SLOW_SECONDS);
    assert_true(seconds[GS_TIME_IDLE] == 0.0);

    double waited = 0.0, at_once = 0.0; /* little, where this thread stood still while the other slept */
    for (int round = 0; round < 100 && at_once <= SLOW_SECONDS / 10; round++) {
        _Atomic size_t n_missing = 2;
        gs_threads_run(threads, meet_and_wait, &n_missing, 2, 1);
        gs_stage_clock_end(&clock, GS_TIME_EXPERTS);
        at_once = gs_threads_wait_seconds(threads) - waited;
        waited += at_once;
    }
    assert_true(at_once > SLOW_SECONDS / 10);
    assert_true(fabs(seconds[GS_TIME_IDLE] - waited) < 1e-9);
    assert_true(seconds[GS_TIME_EXPERTS] >= 0.0);
    assert_true(fabs(sum(seconds) - (clock.mark - begin)) < 1e-9);

    /* A second forward adds to the same figures, and what was waited before it is not its own. */
    double before = clock.mark, total = sum(seconds);
    gs_stage_clock_begin(&clock, seconds, threads);
    assert_true(clock.mark >= before);
    begin = clock.mark;
    gs_stage_clock_end(&clock, GS_TIME_NORM);
    assert_true(fabs(sum(seconds) - total - (clock.mark - begin)) < 1e-9);
    assert_true(fabs(seconds[GS_TIME_IDLE] - waited) < 1e-9);
    gs_threads_close(threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_are_told_apart),
    };
    return cmocka_run_group_tests_name("backend/stage_clock", tests, NULL, NULL);
}
