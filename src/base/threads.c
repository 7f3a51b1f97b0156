#include "base/threads.h"

#include "base/clock.h"
#include "base/processors.h"
#include "base/status.h"

#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS  1024
#define LINE         64    /* bytes that processors exchange at a time */
#define SPIN_SECONDS 50e-6 /* before a thread goes to sleep: longer than what runs between two jobs */
#define SPIN_LOOKS   32    /* looks between two readings of the clock */

/* `entry` of a pool: the job's generation in the upper half, CLOSED, and how many workers are in the job. */
#define CLOSED     ((uint64_t)1 << 16)
#define COUNT_MASK (CLOSED - 1)

struct worker {
    struct gs_threads *pool;
    pthread_t thread;
    size_t number;
    struct gs_processors *given; /* where it may run; NULL: not known */
    int avoided;                 /* the processor that it does not run on; -1: none */
};

/* The pieces of a job that one thread begins with and nobody has taken: first << 32 | end. */
struct share {
    alignas(LINE) _Atomic uint64_t pieces;
};

struct gs_threads {
    /* The job: written by the caller before `entry` opens, read by workers that have entered. */
    alignas(LINE) _Atomic uint32_t generation; /* one more for every job */
    _Atomic bool closing;
    gs_task_fn *fn;
    void *user;
    size_t n_items;
    size_t grain;

    alignas(LINE) _Atomic uint64_t entry;

    _Atomic int caller_processor;   /* that the last job was published from; -1: not known */
    alignas(LINE) size_t n_threads; /* the caller included */
    double spin_seconds; /* 0 with more threads than processors: spinning would only be in the way */
    double wait_seconds;
    struct share *shares;   /* [n_threads] */
    struct worker *workers; /* [n_threads - 1] */
    size_t n_started;

    _Atomic size_t n_sleeping; /* workers that wait for job_ready */
    _Atomic bool caller_sleeps;
    pthread_mutex_t mutex; /* guards going to sleep */
    pthread_cond_t job_ready;
    pthread_cond_t job_done;
};

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ---------------------------------------------------------------- shares */

/* One piece from the share's front (its owner) or its far end (another thread): false if none is left. */
static bool take_piece(struct share *share, bool is_owner, uint64_t *piece)
{
    uint64_t pieces = atomic_load_explicit(&share->pieces, memory_order_relaxed), rest;
    do {
        uint64_t first = pieces >> 32, end = pieces & UINT32_MAX;
        if (first >= end)
            return false;
        *piece = is_owner ? first : end - 1;
        rest = is_owner ? (first + 1) << 32 | end : first << 32 | (end - 1);
    } while (!atomic_compare_exchange_weak_explicit(&share->pieces, &pieces, rest, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}

static void take_items(struct gs_threads *pool, size_t number)
{
    for (size_t i = 0; i < pool->n_threads; i++) {
        size_t owner = number + i < pool->n_threads ? number + i : number + i - pool->n_threads;
        uint64_t piece;
        while (take_piece(&pool->shares[owner], i == 0, &piece)) {
            size_t begin = (size_t)piece * pool->grain;
            size_t end = pool->n_items - begin < pool->grain ? pool->n_items : begin + pool->grain;
            pool->fn(pool->user, begin, end, number);
        }
    }
}

/* ---------------------------------------------------------------- workers */

/*
 * A thread that is woken often lands on the processor of the thread that wakes it, behind that one, though
 * others are free, and stays there for milliseconds. So before it sleeps it rules that processor out.
 */
static void avoid_caller(struct worker *worker)
{
    int processor = atomic_load_explicit(&worker->pool->caller_processor, memory_order_relaxed);
    if (worker->pool->spin_seconds == 0.0 || processor == worker->avoided)
        return;
    gs_processors_avoid(worker->given, processor);
    worker->avoided = processor;
}

static uint32_t wait_for_job(struct worker *worker, uint32_t seen)
{
    struct gs_threads *pool = worker->pool;
    double start = gs_clock_seconds();
    while (gs_clock_seconds() - start < pool->spin_seconds)
        for (int i = 0; i < SPIN_LOOKS; i++) {
            uint32_t now = atomic_load_explicit(&pool->generation, memory_order_acquire);
            if (now != seen)
                return now;
            pause_briefly();
        }
    avoid_caller(worker);
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->n_sleeping, 1);
    while (atomic_load(&pool->generation) == seen)
        pthread_cond_wait(&pool->job_ready, &pool->mutex);
    atomic_fetch_sub(&pool->n_sleeping, 1);
    pthread_mutex_unlock(&pool->mutex);
    return atomic_load(&pool->generation);
}

/* False if the job has been closed, or is no longer this one: the worker came too late for it. */
static bool enter(struct gs_threads *pool, uint32_t generation)
{
    uint64_t entry = atomic_load_explicit(&pool->entry, memory_order_acquire);
    do {
        if (entry >> 32 != generation || (entry & CLOSED))
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&pool->entry, &entry, entry + 1, memory_order_acq_rel,
                                                    memory_order_acquire));
    return true;
}

static void leave(struct gs_threads *pool)
{
    uint64_t before = atomic_fetch_sub(&pool->entry, 1);
    if ((before & COUNT_MASK) != 1 || !(before & CLOSED) || !atomic_load(&pool->caller_sleeps))
        return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_signal(&pool->job_done);
    pthread_mutex_unlock(&pool->mutex);
}

/*
 * A worker takes no signal that is meant for the program, but must take the faults that its own reads raise:
 * blocked, these would end the process without a handler being asked.
 */
static void set_signal_mask(void)
{
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP};
    sigset_t blocked;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, NULL);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    set_signal_mask();
    struct gs_threads *pool = worker->pool;
    uint32_t seen = 0;
    for (;;) {
        seen = wait_for_job(worker, seen);
        if (atomic_load(&pool->closing))
            return NULL;
        if (enter(pool, seen)) {
            take_items(pool, worker->number);
            leave(pool);
        }
    }
}

/* ---------------------------------------------------------------- the caller */

static void publish(struct gs_threads *pool)
{
    uint32_t generation = atomic_load_explicit(&pool->generation, memory_order_relaxed) + 1;
    atomic_store_explicit(&pool->caller_processor, gs_processors_current(), memory_order_relaxed);
    atomic_store_explicit(&pool->entry, (uint64_t)generation << 32, memory_order_release);
    /*
     * Before the look at n_sleeping, as a worker counts itself before its look at the generation. An
     * exchange, here and in finish: C orders a store before a load as well, but qemu's ARM on x86-64 lets the
     * load overtake it.
     */
    atomic_exchange(&pool->generation, generation);
    if (atomic_load(&pool->n_sleeping) == 0)
        return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->job_ready);
    pthread_mutex_unlock(&pool->mutex);
}

static bool is_empty(const struct gs_threads *pool)
{
    return (atomic_load(&pool->entry) & COUNT_MASK) == 0;
}

/* Nobody else may enter the job; waits for those who are in it. */
static void finish(struct gs_threads *pool)
{
    if ((atomic_fetch_or(&pool->entry, CLOSED) & COUNT_MASK) == 0)
        return;
    double start = gs_clock_seconds(), now = start;
    while (!is_empty(pool) && now - start < pool->spin_seconds) {
        for (int i = 0; i < SPIN_LOOKS && !is_empty(pool); i++)
            pause_briefly();
        now = gs_clock_seconds();
    }
    if (!is_empty(pool)) {
        pthread_mutex_lock(&pool->mutex);
        atomic_exchange(&pool->caller_sleeps, true);
        while (!is_empty(pool))
            pthread_cond_wait(&pool->job_done, &pool->mutex);
        atomic_store(&pool->caller_sleeps, false);
        pthread_mutex_unlock(&pool->mutex);
        now = gs_clock_seconds();
    }
    pool->wait_seconds += now - start;
}

void gs_threads_run(struct gs_threads *pool, gs_task_fn *fn, void *user, size_t n_items, size_t grain)
{
    if (n_items == 0)
        return;
    if (grain == 0)
        grain = 1;
    uint64_t n_pieces = (n_items - 1) / grain + 1;
    if (pool->n_started == 0 || n_pieces == 1 || n_pieces > UINT32_MAX / MAX_THREADS) {
        for (size_t begin = 0; begin < n_items; begin += grain)
            fn(user, begin, n_items - begin < grain ? n_items : begin + grain, 0);
        return;
    }
    pool->fn = fn;
    pool->user = user;
    pool->n_items = n_items;
    pool->grain = grain;
    for (uint64_t t = 0, first = 0; t < pool->n_threads; t++) {
        uint64_t end = (t + 1) * n_pieces / pool->n_threads;
        atomic_store_explicit(&pool->shares[t].pieces, first << 32 | end, memory_order_relaxed);
        first = end;
    }
    publish(pool);
    take_items(pool, 0);
    finish(pool);
}

double gs_threads_wait_seconds(const struct gs_threads *pool)
{
    return pool->wait_seconds;
}

/* ---------------------------------------------------------------- the pool */

static void *allocate_lines(size_t count, size_t size)
{
    void *lines = aligned_alloc(LINE, count * size); /* sizes of aligned types: multiples of LINE */
    return lines ? memset(lines, 0, count * size) : NULL;
}

static gs_status start_workers(struct gs_threads *pool, struct gs_error *error)
{
    for (size_t i = 0; i + 1 < pool->n_threads; i++) {
        struct worker *worker = &pool->workers[i];
        /* A thread may run where the one that starts it may; asked here, because a worker allocates nothing.
         */
        *worker =
            (struct worker){.pool = pool, .number = i + 1, .given = gs_processors_remember(), .avoided = -1};
        int errnum = pthread_create(&worker->thread, NULL, work, worker);
        if (errnum != 0)
            return gs_fail_io(error, errnum, "start", "a thread");
        pool->n_started++;
    }
    return GS_OK;
}

gs_status gs_threads_open(size_t n_threads, struct gs_threads **out, struct gs_error *error)
{
    *out = NULL;
    if (n_threads == 0) {
        size_t n_cores = gs_processors_cores();
        n_threads = n_cores < MAX_THREADS ? n_cores : MAX_THREADS;
    }
    if (n_threads > MAX_THREADS)
        return gs_fail(error, GS_INVALID_ARGUMENT, "%zu threads asked for, at most %d are possible",
                       n_threads, MAX_THREADS);
    struct gs_threads *pool = allocate_lines(1, sizeof *pool);
    if (!pool)
        return gs_fail_memory(error, sizeof *pool);
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->job_ready, NULL);
    pthread_cond_init(&pool->job_done, NULL);
    pool->n_threads = n_threads;
    pool->spin_seconds = n_threads <= gs_processors_allowed() ? SPIN_SECONDS : 0.0;
    atomic_store(&pool->entry, CLOSED);
    atomic_store(&pool->caller_processor, -1);
    pool->workers = calloc(n_threads, sizeof *pool->workers);
    pool->shares = allocate_lines(n_threads, sizeof *pool->shares);
    gs_status status = pool->workers && pool->shares
                           ? start_workers(pool, error)
                           : gs_fail_memory(error, n_threads * sizeof *pool->shares);
    if (status != GS_OK) {
        gs_threads_close(pool);
        return status;
    }
    *out = pool;
    return GS_OK;
}

void gs_threads_close(struct gs_threads *pool)
{
    if (!pool)
        return;
    atomic_store(&pool->closing, true);
    publish(pool);
    for (size_t i = 0; i < pool->n_started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    for (size_t i = 0; pool->workers && i < pool->n_threads; i++)
        gs_processors_forget(pool->workers[i].given);
    pthread_cond_destroy(&pool->job_done);
    pthread_cond_destroy(&pool->job_ready);
    pthread_mutex_destroy(&pool->mutex);
    free(pool->shares);
    free(pool->workers);
    free(pool);
}

size_t gs_threads_count(const struct gs_threads *pool)
{
    return pool->n_threads;
}
