/*
 * Tells a forward's time apart by stage, for gs_backend_stats.stage_seconds, on a backend whose stages run on
 * a pool of threads: the caller's time of a stage, less what it waited for other threads.
 */
#ifndef GS_BACKEND_STAGE_CLOCK_H
#define GS_BACKEND_STAGE_CLOCK_H

#include "backend/backend.h"
#include "base/clock.h"
#include "base/threads.h"

struct gs_stage_clock {
    double *seconds; /* [GS_TIME_COUNT] */
    const struct gs_threads *threads;
    double mark;   /* when the last stage ended */
    double waited; /* gs_threads_wait_seconds then */
};

static inline void gs_stage_clock_begin(struct gs_stage_clock *clock, double seconds[GS_TIME_COUNT],
                                        const struct gs_threads *threads)
{
    *clock = (struct gs_stage_clock){seconds, threads, gs_clock_seconds(), gs_threads_wait_seconds(threads)};
}

/* What happened since the last end, or the beginning, was this stage. */
static inline void gs_stage_clock_end(struct gs_stage_clock *clock, enum gs_time stage)
{
    double now = gs_clock_seconds(), waited = gs_threads_wait_seconds(clock->threads);
    clock->seconds[stage] += (now - clock->mark) - (waited - clock->waited);
    clock->seconds[GS_TIME_IDLE] += waited - clock->waited;
    clock->mark = now;
    clock->waited = waited;
}

#endif
