/* Every item runs exactly once, whatever the number of threads; shares; waiting and idling; pools coexist. */
#include "base/clock.h"
#include "base/processors.h"
#include "base/threads.h"
#include "tests/support/check.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#define N_ITEMS 1000

struct counts {
    _Atomic int of_item[N_ITEMS];
    _Atomic size_t largest_thread;
    size_t grain;
    _Atomic bool piece_too_large;
};

static void count(void *user, size_t begin, size_t end, size_t thread)
{
    struct counts *counts = user;
    if (end - begin > counts->grain)
        counts->piece_too_large = true;
    for (size_t i = begin; i < end; i++)
        counts->of_item[i]++;
    size_t largest = counts->largest_thread;
    while (thread > largest && !atomic_compare_exchange_weak(&counts->largest_thread, &largest, thread))
        ;
}

static void every_item_runs_once(void **state)
{
    (void)state;
    for (size_t n_threads = 1; n_threads <= 5; n_threads++) {
        struct gs_threads *threads;
        struct gs_error error;
        assert_ok(gs_threads_open(n_threads, &threads, &error), &error);
        assert_int_equal(gs_threads_count(threads), n_threads);
        for (size_t round = 0; round < 200; round++) {
            struct counts counts = {.grain = 1 + round % 7};
            size_t n_items = round * 13 % (N_ITEMS + 1);
            gs_threads_run(threads, count, &counts, n_items, counts.grain);
            for (size_t i = 0; i < N_ITEMS; i++)
                assert_int_equal(counts.of_item[i], i < n_items ? 1 : 0);
            assert_true(counts.largest_thread < n_threads);
            assert_false(counts.piece_too_large);
        }
        gs_threads_close(threads);
    }
}

/* Waits until as many items as threads are under way: it ends only if every thread takes one. */
static void meet(void *user, size_t begin, size_t end, size_t thread)
{
    (void)thread;
    _Atomic size_t *n_missing = user;
    *n_missing -= end - begin;
    while (*n_missing > 0)
        sched_yield();
}

static void all_threads_work_at_once(void **state)
{
    (void)state;
    for (size_t n_threads = 2; n_threads <= 8; n_threads += 3) {
        struct gs_threads *threads;
        struct gs_error error;
        assert_ok(gs_threads_open(n_threads, &threads, &error), &error);
        for (int round = 0; round < 50; round++) {
            _Atomic size_t n_missing = n_threads;
            gs_threads_run(threads, meet, &n_missing, n_threads, 1);
            assert_int_equal(n_missing, 0);
        }
        gs_threads_close(threads);
    }
}

#define N_SHARE 12 /* items of each thread's share */

struct shares {
    _Atomic size_t n_missing; /* threads that have taken no item */
    size_t first[8];          /* item of each thread */
    bool has_first[8];
    bool slow; /* the second thread's first item takes 100 ms */
};

static void take_share(void *user, size_t begin, size_t end, size_t thread)
{
    struct shares *shares = user;
    (void)end;
    if (shares->has_first[thread])
        return;
    shares->has_first[thread] = true;
    shares->first[thread] = begin;
    shares->n_missing--;
    while (shares->n_missing > 0)
        sched_yield();
    if (shares->slow && begin == N_SHARE)
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
}

/* However late a thread comes, it begins where its share does: others take from the far end. */
static void each_thread_begins_with_its_share(void **state)
{
    (void)state;
    for (size_t n_threads = 2; n_threads <= 8; n_threads++) {
        struct gs_threads *threads;
        struct gs_error error;
        assert_ok(gs_threads_open(n_threads, &threads, &error), &error);
        for (int round = 0; round < 20; round++) {
            struct shares shares = {.n_missing = n_threads};
            gs_threads_run(threads, take_share, &shares, n_threads * N_SHARE, 1);
            for (size_t t = 0; t < n_threads; t++)
                assert_int_equal(shares.first[t], t * N_SHARE);
        }
        gs_threads_close(threads);
    }
}

static void waiting_is_counted(void **state)
{
    (void)state;
    struct gs_threads *threads;
    struct gs_error error;
    assert_ok(gs_threads_open(2, &threads, &error), &error);
    assert_true(gs_threads_wait_seconds(threads) == 0.0);
    /* Again if this thread stood still for as long as the other slept. */
    double waited = 0.0;
    for (int round = 0; round < 100 && waited <= 0.005; round++) {
        struct shares shares = {.n_missing = 2, .slow = true};
        double before = gs_threads_wait_seconds(threads);
        gs_threads_run(threads, take_share, &shares, 2 * N_SHARE, 1);
        waited = gs_threads_wait_seconds(threads) - before;
    }
    assert_true(waited > 0.005);
    gs_threads_close(threads);
}

static double cpu_seconds(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

static void idle_threads_sleep(void **state)
{
    (void)state;
    struct gs_threads *threads;
    struct gs_error error;
    struct counts counts = {.grain = 1};
    assert_ok(gs_threads_open(2, &threads, &error), &error);
    gs_threads_run(threads, count, &counts, 100, 1);
    double before = cpu_seconds();
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    assert_true(cpu_seconds() - before < 0.1);
    gs_threads_run(threads, count, &counts, 100, 1); /* and wake up again */
    assert_int_equal(counts.of_item[99], 2);
    gs_threads_close(threads);
}

static void *run_counts(void *threads)
{
    static struct counts counts[2]; /* one for each thread that runs this */
    static _Atomic size_t next;
    struct counts *own = &counts[next++ % 2];
    memset(own, 0, sizeof *own);
    own->grain = 1;
    for (int round = 0; round < 100; round++)
        gs_threads_run(threads, count, own, N_ITEMS, 1);
    return own;
}

static void pools_run_side_by_side(void **state)
{
    (void)state;
    struct gs_threads *pools[2];
    pthread_t callers[2];
    struct gs_error error;
    for (size_t i = 0; i < 2; i++) {
        assert_ok(gs_threads_open(2 + i, &pools[i], &error), &error);
        assert_int_equal(pthread_create(&callers[i], NULL, run_counts, pools[i]), 0);
    }
    for (size_t i = 0; i < 2; i++) {
        void *result;
        pthread_join(callers[i], &result);
        const struct counts *counts = result;
        for (size_t item = 0; item < N_ITEMS; item++)
            assert_int_equal(counts->of_item[item], 100);
        gs_threads_close(pools[i]);
    }
    gs_threads_close(NULL);
}

/* Without a number: one thread a core. */
static void threads_of_this_machine(void **state)
{
    (void)state;
    struct gs_threads *threads;
    struct gs_error error;
    assert_ok(gs_threads_open(0, &threads, &error), &error);
    assert_int_equal(gs_threads_count(threads), gs_processors_cores());
    gs_threads_close(threads);
}

/* Pools that are closed at once, while their threads start, look out or have just gone to sleep. */
static void a_pool_closes_at_any_time(void **state)
{
    (void)state;
    for (long round = 0; round < 200; round++) {
        struct gs_threads *threads;
        struct gs_error error;
        struct counts counts = {.grain = 1};
        size_t n_items = (size_t)(round % 4) * 10;
        assert_ok(gs_threads_open(2 + (size_t)round % 3, &threads, &error), &error);
        gs_threads_run(threads, count, &counts, n_items, 1);
        for (size_t i = 0; i < n_items; i++)
            assert_int_equal(counts.of_item[i], 1);
        nanosleep(&(struct timespec){.tv_nsec = round % 5 * 20000}, NULL);
        gs_threads_close(threads);
    }
}

/* Jobs just when threads go to sleep, the moment where one could be missed. */
static void jobs_at_the_edge_of_sleep(void **state)
{
    (void)state;
    struct gs_threads *threads;
    struct gs_error error;
    assert_ok(gs_threads_open(2, &threads, &error), &error);
    for (long round = 0; round < 5000; round++) {
        _Atomic size_t n_missing = 2;
        double until = gs_clock_seconds() + 48e-6 + 4e-9 * (double)round;
        while (gs_clock_seconds() < until)
            ;
        gs_threads_run(threads, meet, &n_missing, 2, 1); /* ends only if the other one comes */
        assert_int_equal(n_missing, 0);
    }
    gs_threads_close(threads);
}

static void too_many_threads_are_refused(void **state)
{
    (void)state;
    struct gs_threads *threads;
    struct gs_error error;
    assert_fails(gs_threads_open(100000, &threads, &error), GS_INVALID_ARGUMENT, "at most 1024", &error);
    assert_null(threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_runs_once),
        cmocka_unit_test(all_threads_work_at_once),
        cmocka_unit_test(each_thread_begins_with_its_share),
        cmocka_unit_test(waiting_is_counted),
        cmocka_unit_test(idle_threads_sleep),
        cmocka_unit_test(pools_run_side_by_side),
        cmocka_unit_test(threads_of_this_machine),
        cmocka_unit_test(a_pool_closes_at_any_time),
        cmocka_unit_test(jobs_at_the_edge_of_sleep),
        cmocka_unit_test(too_many_threads_are_refused),
    };
    return cmocka_run_group_tests_name("base/threads", tests, NULL, NULL);
}
