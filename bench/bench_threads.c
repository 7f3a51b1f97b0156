/*
 * What the thread pool costs: a job that every thread takes part in and that is nothing but its beginning
 * and its end, the same when the threads have gone to sleep before, work on one thread and on several, and
 * what an idle pool uses. To see it with fewer processors than threads: taskset -c 0 bench_threads.
 *
 *   bench_threads [THREADS]
 */
#include "base/clock.h"
#include "base/processors.h"
#include "base/threads.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define N_ROUND 20000
#define N_PAUSE 300
#define N_BURST 20
#define N_LAYER 2000 /* jobs of the work */
#define N_ROW   512
#define N_TERM  64 /* of a row: about 50 ns */
#define N_TRY   7

static double cpu_seconds(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

static void sleep_seconds(double seconds)
{
    struct timespec time = {.tv_sec = (time_t)seconds};
    time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
    nanosleep(&time, NULL);
}

/* Every thread takes one item and waits until all have: begin and end of a job, met by all threads. */
static void meet(void *user, size_t begin, size_t end, size_t thread)
{
    _Atomic size_t *n_missing = user;
    (void)thread;
    atomic_fetch_sub(n_missing, end - begin);
    while (atomic_load(n_missing) > 0)
        sched_yield();
}

static void rows(void *user, size_t begin, size_t end, size_t thread)
{
    float *out = user;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        float x = 1.0f;
        for (int k = 0; k < N_TERM; k++)
            x = x * 0.999f + 0.5f;
        out[i] = x;
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median seconds of a job in which all threads meet; `pause` seconds go by before each. */
static double time_barrier(struct gs_threads *threads, int n_rounds, double pause)
{
    double *times = malloc((size_t)n_rounds * sizeof *times);
    if (!times)
        exit(1);
    for (int i = 0; i < n_rounds; i++) {
        if (pause > 0.0)
            sleep_seconds(pause);
        _Atomic size_t n_missing = gs_threads_count(threads);
        double start = gs_clock_seconds();
        gs_threads_run(threads, meet, &n_missing, gs_threads_count(threads), 1);
        times[i] = gs_clock_seconds() - start;
    }
    qsort(times, (size_t)n_rounds, sizeof *times, compare);
    double median = times[n_rounds / 2];
    free(times);
    return median;
}

static double time_work(struct gs_threads *threads, float *out)
{
    double best = 1e9;
    for (int i = 0; i < N_TRY; i++) {
        double start = gs_clock_seconds();
        for (int layer = 0; layer < N_LAYER; layer++)
            gs_threads_run(threads, rows, out, N_ROW, 16);
        double seconds = gs_clock_seconds() - start;
        best = seconds < best ? seconds : best;
    }
    return best;
}

/* Median seconds of a burst of N_BURST jobs of work, `pause` seconds after the one before. */
static double time_burst(struct gs_threads *threads, float *out, double pause)
{
    double times[N_PAUSE];
    for (int i = 0; i < N_PAUSE; i++) {
        sleep_seconds(pause);
        double start = gs_clock_seconds();
        for (int k = 0; k < N_BURST; k++)
            gs_threads_run(threads, rows, out, N_ROW, 16);
        times[i] = gs_clock_seconds() - start;
    }
    qsort(times, N_PAUSE, sizeof *times, compare);
    return times[N_PAUSE / 2];
}

int main(int argc, char **argv)
{
    static float out[N_ROW];
    size_t n_threads = argc > 1 ? (size_t)strtoul(argv[1], NULL, 10) : 2;
    struct gs_threads *one, *several;
    struct gs_error error;
    if (gs_threads_open(1, &one, &error) != GS_OK || gs_threads_open(n_threads, &several, &error) != GS_OK) {
        fprintf(stderr, "bench_threads: %s\n", error.message);
        return 1;
    }
    printf("threads: %zu, of %zu processors and %zu cores\n", gs_threads_count(several),
           gs_processors_allowed(), gs_processors_cores());
    printf("  a job that all threads meet in          %8.2f us (median)\n",
           time_barrier(several, N_ROUND, 0.0) * 1e6);
    printf("  the same after 1 ms without a job       %8.2f us (median)\n",
           time_barrier(several, N_PAUSE, 1e-3) * 1e6);
    double alone = time_work(one, out), shared = time_work(several, out);
    printf("  %d rows of work                %8.2f us on one thread, %.2f on %zu: %.2f times as fast\n",
           N_ROW, alone / N_LAYER * 1e6, shared / N_LAYER * 1e6, n_threads, alone / shared);
    double burst_alone = time_burst(one, out, 1e-3), burst = time_burst(several, out, 1e-3);
    printf(
        "  %d such jobs after 1 ms without a job %8.2f us on one thread, %.2f on %zu: %.2f times as fast\n",
        N_BURST, burst_alone * 1e6, burst * 1e6, n_threads, burst_alone / burst);
    double used = cpu_seconds();
    sleep_seconds(0.5);
    printf("  idle for half a second          %8.2f %% of a processor\n",
           (cpu_seconds() - used) / 0.5 * 100.0);
    gs_threads_close(several);
    gs_threads_close(one);
    return 0;
}
