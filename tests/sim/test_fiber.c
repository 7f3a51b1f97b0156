/* The scheduler itself: barriers, exchanges, orders, what stops a run and what it says, guards and poison. */
#include "tests/sim/fiber.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N 256 /* threads of a block in most tests */

struct block {
    float shared[N];
    float out[8 * N];
    int64_t blocks[8];
    int n_blocks;
    bool barrier; /* or its absence */
    int sum_of_waves[SIM_MAX_THREADS / 32];
};

static const enum sim_order orders[] = {SIM_FORWARD, SIM_REVERSE, SIM_RANDOM};
#define N_ORDERS (sizeof orders / sizeof orders[0])

static struct sim *sim;

static int open_sim(void **state)
{
    (void)state;
    sim = sim_new();
    return sim ? 0 : -1;
}

static int close_sim(void **state)
{
    (void)state;
    sim_free(sim);
    return 0;
}

/* Runs `kernel` over 8 blocks; returns whether it came to its end. */
static bool run(void (*kernel)(void *), struct block *block, int n_lane, enum sim_order order,
                struct sim_fault *fault)
{
    struct sim_region shared = {block->shared, sizeof block->shared};
    struct sim_launch launch = {.n_block = 8,
                                .n_thread = N,
                                .n_lane = n_lane,
                                .order = order,
                                .seed = 7,
                                .kernel = kernel,
                                .context = block,
                                .shared = &shared,
                                .n_shared = 1};
    return sim_run(sim, &launch, fault);
}

/* ---------------------------------------------------------------- barriers and poison */

/* Each thread reads what another wrote: right only with a barrier between. */
static void neighbour(void *context)
{
    struct block *block = context;
    const struct sim_thread *self = sim_self();
    block->shared[self->index] = (float)self->index;
    if (block->barrier)
        sim_barrier(SIM_SITE("barrier"));
    block->out[self->block * N + self->index] = block->shared[(self->index + 1) % N];
}

static bool neighbours_right(const struct block *block)
{
    for (int i = 0; i < 8 * N; i++)
        if (!(block->out[i] == (float)((i + 1) % N)))
            return false;
    return true;
}

static void a_missing_barrier_reads_poison(void **state)
{
    (void)state;
    struct sim_fault fault;
    for (size_t i = 0; i < N_ORDERS; i++) {
        struct block with = {.barrier = true}, without = {.barrier = false};
        assert_true(run(neighbour, &with, 32, orders[i], &fault));
        assert_true(neighbours_right(&with));
        assert_true(run(neighbour, &without, 32, orders[i], &fault));
        assert_false(neighbours_right(&without));
        bool poisoned = false;
        for (int j = 0; j < 8 * N; j++)
            poisoned = poisoned || isnan(without.out[j]);
        assert_true(poisoned);
    }
}

/* Rounds that reuse shared memory: a barrier must also stand between reading and the next round's writing. */
static void rounds(void *context)
{
    struct block *block = context;
    const struct sim_thread *self = sim_self();
    float sum = 0.0f;
    for (int round = 0; round < 4; round++) {
        block->shared[self->index] = (float)(round * (self->index + 1));
        sim_barrier(SIM_SITE("barrier"));
        sum += block->shared[(self->index + 1) % N];
        if (block->barrier)
            sim_barrier(SIM_SITE("barrier"));
    }
    block->out[self->block * N + self->index] = sum;
}

static void a_missing_barrier_after_reading_shows_in_some_order(void **state)
{
    (void)state;
    struct sim_fault fault;
    for (size_t i = 0; i < N_ORDERS; i++)
        for (int barrier = 0; barrier < 2; barrier++) {
            struct block block = {.barrier = barrier};
            assert_true(run(rounds, &block, 32, orders[i], &fault));
            bool right = true;
            for (int j = 0; j < 8 * N; j++)
                right = right && block.out[j] == (float)(6 * ((j + 1) % N + 1));
            /* Forward order hides it from every thread but the last, which reads what the first wrote. */
            assert_int_equal(right, barrier);
        }
}

/* ---------------------------------------------------------------- exchanges */

static void add_lanes(struct sim_wave *wave, void *context)
{
    int sum = 0, n_lane = *(int *)context, value;
    for (int i = 0; i < n_lane; i++)
        if (wave->active >> i & 1) {
            memcpy(&value, wave->slots[i], sizeof value);
            sum += value;
        }
    for (int i = 0; i < n_lane; i++)
        memcpy(wave->slots[i], &sum, sizeof sum);
}

/* A sum by combine, then a shuffle, many times over, so that lanes run ahead of one another. */
static void sums(void *context)
{
    struct block *block = context;
    const struct sim_thread *self = sim_self();
    int n_lane = self->n_lane, value = self->index;
    for (int round = 0; round < 5; round++) {
        const struct sim_wave *wave = sim_exchange(SIM_SITE("sum"), &value, sizeof value, add_lanes, &n_lane);
        int sum;
        memcpy(&sum, wave->slots[self->lane], sizeof sum);
        int mine = sum + self->lane;
        wave = sim_exchange(SIM_SITE("shuffle"), &mine, sizeof mine, NULL, NULL);
        memcpy(&value, wave->slots[self->lane ^ 1], sizeof value);
        if (value != sum + (self->lane ^ 1))
            sim_stop("a shuffle gave %d, not %d", value, sum + (self->lane ^ 1));
        value = self->index;
        if (sim_is_first() != (self->lane == 0))
            sim_stop("not the first lane");
        block->sum_of_waves[self->wave] = sum;
    }
}

static void waves_exchange_values(void **state)
{
    (void)state;
    struct sim_fault fault;
    for (size_t i = 0; i < N_ORDERS; i++)
        for (int n_lane = 32; n_lane <= 64; n_lane += 32) {
            struct block block = {0};
            if (!run(sums, &block, n_lane, orders[i], &fault))
                fail_msg("%s", fault.message);
            for (int w = 0; w < N / n_lane; w++)
                assert_int_equal(block.sum_of_waves[w], n_lane * (w * n_lane) + n_lane * (n_lane - 1) / 2);
        }
}

/* The block's last wave has 20 lanes. */
static void lanes_that_do_not_exist_are_inactive(void **state)
{
    (void)state;
    struct block block = {0};
    struct sim_fault fault;
    struct sim_launch launch = {
        .n_block = 1, .n_thread = 84, .n_lane = 64, .kernel = sums, .context = &block};
    assert_true(sim_run(sim, &launch, &fault));
    assert_int_equal(block.sum_of_waves[1], 20 * 64 + 20 * 19 / 2);
}

/* ---------------------------------------------------------------- stops */

static void split(void *context)
{
    (void)context;
    if (sim_self()->index % 32 < 16)
        sim_barrier(SIM_SITE_OF("barrier", "k.metal", 12));
    sim_exchange(SIM_SITE_OF("simd_sum", "k.metal", 15), NULL, 0, NULL, NULL);
}

static void two_exchanges(void *context)
{
    (void)context;
    sim_exchange(SIM_SITE_OF("simd_sum", "k.metal", sim_self()->lane == 5 ? 30 : 31), NULL, 0, NULL, NULL);
}

static void return_early(void *context)
{
    (void)context;
    if (sim_self()->lane < 3)
        return;
    sim_exchange(SIM_SITE_OF("simd_sum", "k.metal", 40), NULL, 0, NULL, NULL);
    if (sim_is_first() != (sim_self()->lane == 3))
        sim_stop("the first lane is not the first one left");
}

static void some_reach_the_barrier(void *context)
{
    (void)context;
    if (sim_self()->index < 32)
        sim_barrier(SIM_SITE_OF("barrier", "k.metal", 50));
}

static void two_barriers(void *context)
{
    (void)context;
    sim_barrier(SIM_SITE_OF("barrier", "k.metal", sim_self()->wave == 1 ? 60 : 61));
}

static void give_up(void *context)
{
    (void)context;
    sim_exchange(SIM_SITE_OF("simd_sum", "k.metal", 69), NULL, 0, NULL, NULL);
    if (sim_self()->index == 70)
        sim_stop("buffer %d is not set", 3);
}

/* What goes wrong on purpose is the simulator's to find, not a sanitizer's. */
#define ON_PURPOSE __attribute__((no_sanitize("address"), no_sanitize("undefined")))

ON_PURPOSE static int run_off(volatile char *above, int depth)
{
    volatile char frame[4096];
    frame[0] = *above;
    return depth == 0 ? 0 : run_off(frame, depth - 1) + frame[0];
}

static void run_off_stack(void *context)
{
    (void)context;
    char start = 1;
    run_off(&start, 1000);
}

ON_PURPOSE static void null_pointer(void *context)
{
    (void)context;
    volatile int *volatile nowhere = (volatile int *)(uintptr_t)8;
    *nowhere = 1;
}

#if defined(__x86_64__)
ON_PURPOSE static void divide(void *context)
{
    volatile int zero = 0;
    ((struct block *)context)->n_blocks = 7 / zero;
}
#endif

ON_PURPOSE static void trap(void *context)
{
    if (context)
        __builtin_trap();
}

static void stops_name_both_places(void **state)
{
    (void)state;
    static const struct {
        void (*kernel)(void *);
        enum sim_fault_kind kind;
        const char *says[3];
    } cases[] =
    { {split, SIM_SPLIT, {"split wave", "simd_sum at k.metal:15", "barrier at k.metal:12"}},
      {two_exchanges, SIM_SPLIT, {"simd_sum at k.metal:30", "simd_sum at k.metal:31", "thread 5 "}},
      {return_early, SIM_SPLIT, {"simd_sum at k.metal:40", "thread 0 has returned", "wave 0 of block"}},
      {some_reach_the_barrier,
       SIM_BARRIER,
       {"thread 0 waits in barrier at k.metal:50", "has returned", "not every"}},
      {two_barriers, SIM_BARRIER, {"barrier at k.metal:60", "barrier at k.metal:61", "not every"}},
      {give_up, SIM_STOPPED, {"thread 70 of block 0", "buffer 3 is not set", "after simd_sum at k.metal:69"}},
      {run_off_stack, SIM_MEMORY, {"ran off its stack", "thread 0 of block 0", ""}},
      {null_pointer, SIM_MEMORY, {"memory fault", "0x8", "in no buffer"}},
      {trap, SIM_MEMORY, {"a trap", "thread 0 of block 0", ""}},
#if defined(__x86_64__) /* other processors give a number */
      {divide, SIM_MEMORY, {"division by zero", "thread 0 of block 0", ""}},
#endif
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t o = 0; o < N_ORDERS; o++) {
            struct block block = {0};
            struct sim_fault fault;
            assert_false(run(cases[i].kernel, &block, 32, orders[o], &fault));
            assert_int_equal(fault.kind, cases[i].kind);
            for (size_t j = 0; j < 3 && orders[o] == SIM_FORWARD; j++)
                if (!strstr(fault.message, cases[i].says[j]))
                    fail_msg("case %zu: '%s' lacks '%s'", i, fault.message, cases[i].says[j]);
            /* and the simulator can be used again */
            assert_true(run(sums, &block, 32, orders[o], &fault));
        }
}

static void lanes_may_return_where_allowed(void **state)
{
    (void)state;
    struct sim_fault fault;
    struct sim_launch launch = {
        .n_block = 2, .n_thread = 128, .n_lane = 32, .kernel = return_early, .returned_lanes_ok = true};
    for (size_t i = 0; i < N_ORDERS; i++) {
        launch.order = orders[i];
        if (!sim_run(sim, &launch, &fault))
            fail_msg("%s", fault.message);
    }
}

static void bad_launches_are_refused(void **state)
{
    (void)state;
    struct sim_fault fault;
    struct sim_launch good = {.n_block = 0, .n_thread = 1024, .n_lane = 64, .kernel = split}, bad;
    assert_true(sim_run(sim, &good, &fault));
    bad = good, bad.n_lane = 16;
    assert_false(sim_run(sim, &bad, &fault));
    bad = good, bad.n_thread = SIM_MAX_THREADS + 1;
    assert_false(sim_run(sim, &bad, &fault));
    bad = good, bad.n_block = -1;
    assert_false(sim_run(sim, &bad, &fault));
    assert_int_equal(fault.kind, SIM_BAD_LAUNCH);
}

/* ---------------------------------------------------------------- orders */

static bool note_block(void *context, int64_t index, struct sim_fault *fault)
{
    (void)fault;
    struct block *block = context;
    block->blocks[block->n_blocks++] = index;
    return true;
}

static bool refuse_block(void *context, int64_t index, struct sim_fault *fault)
{
    (void)context;
    fault->kind = SIM_STOPPED;
    return index != 3;
}

static void nothing(void *context)
{
    (void)context;
}

static void blocks_run_once_each_in_the_order_asked_for(void **state)
{
    (void)state;
    struct sim_fault fault;
    for (size_t i = 0; i < N_ORDERS; i++) {
        struct block block = {0};
        struct sim_launch launch = {.n_block = 8,
                                    .n_thread = 1,
                                    .n_lane = 32,
                                    .order = orders[i],
                                    .kernel = nothing,
                                    .context = &block,
                                    .before_block = note_block};
        assert_true(sim_run(sim, &launch, &fault));
        unsigned seen = 0;
        for (int j = 0; j < 8; j++)
            seen |= 1u << block.blocks[j];
        assert_int_equal(block.n_blocks, 8);
        assert_int_equal(seen, 0xff);
        assert_int_equal(block.blocks[0], orders[i] == SIM_FORWARD   ? 0
                                          : orders[i] == SIM_REVERSE ? 7
                                                                     : block.blocks[0]);
    }
    struct sim_launch launch = {.n_block = 8, .n_thread = 1, .n_lane = 32, .kernel = nothing};
    launch.after_block = refuse_block;
    assert_false(sim_run(sim, &launch, &fault));
}

/* The order in which threads add themselves to a list. */
static void join(void *context)
{
    struct block *block = context;
    int *n = &block->n_blocks;
    if (sim_self()->block == 0)
        block->out[(*n)++] = (float)sim_self()->index;
}

static void random_order_follows_the_seed(void **state)
{
    (void)state;
    struct sim_fault fault;
    struct block first = {0}, again = {0}, other = {0};
    struct sim_launch launch = {
        .n_block = 1, .n_thread = N, .n_lane = 32, .order = SIM_RANDOM, .kernel = join};
    launch.seed = 1, launch.context = &first;
    assert_true(sim_run(sim, &launch, &fault));
    launch.context = &again;
    assert_true(sim_run(sim, &launch, &fault));
    launch.seed = 2, launch.context = &other;
    assert_true(sim_run(sim, &launch, &fault));
    assert_memory_equal(first.out, again.out, sizeof first.out);
    assert_memory_not_equal(first.out, other.out, sizeof first.out);
}

/* ---------------------------------------------------------------- buffers */

struct access {
    volatile unsigned char *at;
    bool write;
};

static void touch(void *context)
{
    struct access *access = context;
    if (access->write)
        *access->at = 1;
    else
        (void)*access->at;
}

static void accesses_outside_a_buffer_are_found(void **state)
{
    (void)state;
    struct sim_buffer buffer;
    struct sim_fault fault;
    struct sim_launch launch = {.n_block = 1, .n_thread = 1, .n_lane = 32, .kernel = touch};
    assert_true(sim_buffer_init(&buffer, "weights", 5000, 4));
    unsigned char *data = buffer.data;
    assert_int_equal((uintptr_t)data % 4, 0);
    assert_int_equal(data[0], SIM_POISON);
    assert_int_equal(data[4999], SIM_POISON);
    for (int write = 0; write < 2; write++) {
        struct access past = {data + 5000, write};
        launch.context = &past;
        assert_false(sim_run(sim, &launch, &fault));
        assert_int_equal(fault.kind, SIM_MEMORY);
        assert_non_null(strstr(fault.message, "at byte 5000 of weights, which has 5000 bytes"));
    }
    struct access before = {data - 5000, false};
    launch.context = &before;
    assert_false(sim_run(sim, &launch, &fault));
    assert_non_null(strstr(fault.message, "5000 bytes before the start of weights"));
    assert_true(sim_buffer_intact(&buffer, &fault));
    struct access just_before = {data - 1, true};
    launch.context = &just_before;
    assert_true(sim_run(sim, &launch, &fault));
    assert_false(sim_buffer_intact(&buffer, &fault));
    assert_non_null(strstr(fault.message, "1 bytes before its start"));
    sim_buffer_release(&buffer);

    assert_true(sim_buffer_init(&buffer, "odd", 5, 16));
    ((unsigned char *)buffer.data)[5] = 1; /* between its end and the guard */
    assert_false(sim_buffer_intact(&buffer, &fault));
    assert_non_null(strstr(fault.message, "at byte 5, past its end"));
    sim_buffer_release(&buffer);
    assert_true(sim_buffer_init(&buffer, "empty", 0, 16));
    assert_true(sim_buffer_intact(&buffer, &fault));
    sim_buffer_release(&buffer);
    sim_buffer_release(&buffer);
    sim_buffer_release(NULL);
    assert_false(sim_buffer_init(&buffer, "huge", SIZE_MAX, 16));
    assert_false(sim_buffer_init(&buffer, "alignment", 16, 24));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_barrier_reads_poison),
        cmocka_unit_test(a_missing_barrier_after_reading_shows_in_some_order),
        cmocka_unit_test(waves_exchange_values),
        cmocka_unit_test(lanes_that_do_not_exist_are_inactive),
        cmocka_unit_test(stops_name_both_places),
        cmocka_unit_test(lanes_may_return_where_allowed),
        cmocka_unit_test(bad_launches_are_refused),
        cmocka_unit_test(blocks_run_once_each_in_the_order_asked_for),
        cmocka_unit_test(random_order_follows_the_seed),
        cmocka_unit_test(accesses_outside_a_buffer_are_found),
    };
    return cmocka_run_group_tests_name("fiber", tests, open_sim, close_sim);
}
