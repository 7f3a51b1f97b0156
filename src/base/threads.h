/*
 * One persistent pool of threads. Work is a range of items; which thread takes which item must not matter to
 * the result (every item writes its own outputs), so results do not depend on the number of threads.
 *
 * Each thread has a contiguous share of the items, the same one in every job of the same size: it reads the
 * memory that it read the last time. A thread that is done takes over what others have not begun, from the
 * far ends of their shares. A job never waits for a thread that has not arrived: with more threads than
 * processors the others do its share. Between jobs a thread looks out for a short time, then it sleeps.
 */
#ifndef GS_BASE_THREADS_H
#define GS_BASE_THREADS_H

#include "gossamer.h"

struct gs_threads;

/* n_threads counts the caller; 0: one per physical core that the process may use. */
gs_status gs_threads_open(size_t n_threads, struct gs_threads **out, struct gs_error *error);
void gs_threads_close(struct gs_threads *threads);
size_t gs_threads_count(const struct gs_threads *threads);

/* Items begin ... end-1 on thread number `thread` (0 is the caller). */
typedef void gs_task_fn(void *user, size_t begin, size_t end, size_t thread);

/*
 * Runs fn over 0 ... n_items-1 in pieces of at most `grain` items, on all threads, and returns when all are
 * done. One call at a time.
 */
void gs_threads_run(struct gs_threads *threads, gs_task_fn *fn, void *user, size_t n_items, size_t grain);

/* How long the caller has waited for other threads at the ends of jobs, since the pool was opened. */
double gs_threads_wait_seconds(const struct gs_threads *threads);

#endif
