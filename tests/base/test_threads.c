/* Every item runs exactly once, whatever the number of threads, and pools coexist. */
#include "base/threads.h"
#include "tests/support/check.h"

#include <stdatomic.h>

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

static void pools_coexist(void **state)
{
    (void)state;
    struct gs_threads *a, *b;
    struct gs_error error;
    assert_ok(gs_threads_open(2, &a, &error), &error);
    assert_ok(gs_threads_open(3, &b, &error), &error);
    struct counts in_a = {.grain = 1}, in_b = {.grain = 1};
    gs_threads_run(a, count, &in_a, N_ITEMS, 1);
    gs_threads_run(b, count, &in_b, N_ITEMS, 1);
    for (size_t i = 0; i < N_ITEMS; i++)
        assert_int_equal(in_a.of_item[i] + in_b.of_item[i], 2);
    gs_threads_close(a);
    gs_threads_close(b);
    gs_threads_close(NULL);
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
        cmocka_unit_test(pools_coexist),
        cmocka_unit_test(too_many_threads_are_refused),
    };
    return cmocka_run_group_tests_name("base/threads", tests, NULL, NULL);
}
