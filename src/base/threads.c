#include "base/threads.h"

#include "base/status.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#endif

#define MAX_THREADS 1024
#define SPINS       300 /* looks at the counter before a thread goes to sleep: tens of microseconds */

struct worker {
    struct gs_threads *pool;
    pthread_t thread;
    size_t number;
};

struct gs_threads {
    size_t n_threads;       /* the caller included */
    int n_spins;            /* 0 with more threads than processors: spinning would only be in the way */
    struct worker *workers; /* [n_threads - 1] */
    size_t n_started;

    /* The job: written by the caller before `generation` changes, read by workers after. */
    gs_task_fn *fn;
    void *user;
    size_t n_items;
    size_t grain;

    _Atomic size_t next;         /* first item that nobody has taken */
    _Atomic size_t n_running;    /* workers that have not finished this job */
    _Atomic unsigned generation; /* one more for every job */
    _Atomic bool closing;

    pthread_mutex_t mutex; /* guards the two conditions */
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

static void take_items(struct gs_threads *pool, size_t number)
{
    for (;;) {
        size_t begin = atomic_fetch_add_explicit(&pool->next, pool->grain, memory_order_relaxed);
        if (begin >= pool->n_items)
            return;
        size_t end = pool->n_items - begin < pool->grain ? pool->n_items : begin + pool->grain;
        pool->fn(pool->user, begin, end, number);
    }
}

static unsigned wait_for_job(struct gs_threads *pool, unsigned seen)
{
    for (int i = 0; i < pool->n_spins; i++) {
        unsigned now = atomic_load_explicit(&pool->generation, memory_order_acquire);
        if (now != seen)
            return now;
        pause_briefly();
    }
    pthread_mutex_lock(&pool->mutex);
    while (atomic_load(&pool->generation) == seen)
        pthread_cond_wait(&pool->job_ready, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
    return atomic_load(&pool->generation);
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
    unsigned seen = 0;
    for (;;) {
        seen = wait_for_job(pool, seen);
        if (atomic_load(&pool->closing))
            return NULL;
        take_items(pool, worker->number);
        if (atomic_fetch_sub_explicit(&pool->n_running, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&pool->mutex);
            pthread_cond_signal(&pool->job_done);
            pthread_mutex_unlock(&pool->mutex);
        }
    }
}

static void publish(struct gs_threads *pool)
{
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add_explicit(&pool->generation, 1, memory_order_release);
    pthread_cond_broadcast(&pool->job_ready);
    pthread_mutex_unlock(&pool->mutex);
}

void gs_threads_run(struct gs_threads *pool, gs_task_fn *fn, void *user, size_t n_items, size_t grain)
{
    if (n_items == 0)
        return;
    if (grain == 0)
        grain = 1;
    if (pool->n_started == 0 || n_items <= grain) {
        for (size_t begin = 0; begin < n_items; begin += grain)
            fn(user, begin, n_items - begin < grain ? n_items : begin + grain, 0);
        return;
    }
    pool->fn = fn;
    pool->user = user;
    pool->n_items = n_items;
    pool->grain = grain;
    atomic_store(&pool->next, 0);
    atomic_store(&pool->n_running, pool->n_started);
    publish(pool);
    take_items(pool, 0);
    for (int i = 0; i < pool->n_spins; i++) {
        if (atomic_load_explicit(&pool->n_running, memory_order_acquire) == 0)
            return;
        pause_briefly();
    }
    pthread_mutex_lock(&pool->mutex);
    while (atomic_load_explicit(&pool->n_running, memory_order_acquire) != 0)
        pthread_cond_wait(&pool->job_done, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
}

/* Processors that this process may run on. */
static size_t count_processors(void)
{
#if defined(__linux__)
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) > 0)
        return (size_t)CPU_COUNT(&allowed);
#endif
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (size_t)online : 1;
}

gs_status gs_threads_open(size_t n_threads, struct gs_threads **out, struct gs_error *error)
{
    *out = NULL;
    size_t n_processors = count_processors();
    if (n_threads == 0)
        n_threads = n_processors < MAX_THREADS ? n_processors : MAX_THREADS;
    if (n_threads > MAX_THREADS)
        return gs_fail(error, GS_INVALID_ARGUMENT, "%zu threads asked for, at most %d are possible",
                       n_threads, MAX_THREADS);
    struct gs_threads *pool = calloc(1, sizeof *pool);
    if (!pool)
        return gs_fail_memory(error, sizeof *pool);
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->job_ready, NULL);
    pthread_cond_init(&pool->job_done, NULL);
    pool->n_threads = n_threads;
    pool->n_spins = n_threads <= n_processors ? SPINS : 0;
    pool->workers = calloc(n_threads, sizeof *pool->workers);
    if (!pool->workers) {
        gs_threads_close(pool);
        return gs_fail_memory(error, n_threads * sizeof *pool->workers);
    }
    for (size_t i = 0; i + 1 < n_threads; i++) {
        struct worker *worker = &pool->workers[i];
        *worker = (struct worker){.pool = pool, .number = i + 1};
        int errnum = pthread_create(&worker->thread, NULL, work, worker);
        if (errnum != 0) {
            gs_threads_close(pool);
            return gs_fail_io(error, errnum, "start", "a thread");
        }
        pool->n_started++;
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
    pthread_cond_destroy(&pool->job_done);
    pthread_cond_destroy(&pool->job_ready);
    pthread_mutex_destroy(&pool->mutex);
    free(pool->workers);
    free(pool);
}

size_t gs_threads_count(const struct gs_threads *pool)
{
    return pool->n_threads;
}
