/*
 * A progress bar on stderr: one line, drawn only on a terminal that can move its cursor, and erased when the
 * work is done.
 */
#ifndef GS_CLI_PROGRESS_H
#define GS_CLI_PROGRESS_H

#include "gossamer.h"

struct gs_progress {
    bool enabled;
    bool utf8;
    bool in_bytes; /* what is counted: bytes, else tokens */
    bool rated;    /* bytes a second and the time left are shown too; set after gs_progress_begin */
    bool visible;
    const char *label;
    double began; /* seconds */
    double drawn;
    double rate;    /* of late, in bytes a second; 0: not known yet */
    double rate_at; /* when it was measured, at `rate_done` bytes; 0: never */
    uint64_t rate_done;
};

/* Draws the empty bar at once if `total` is known (not 0), else the first one after a moment of work. */
void gs_progress_begin(struct gs_progress *progress, const char *label, bool in_bytes, uint64_t total);

/* A gs_progress_fn; `user` is the gs_progress. */
void gs_progress_update(void *user, uint64_t done, uint64_t total);

/* Erases the bar. Harmless if there is none. */
void gs_progress_end(struct gs_progress *progress);

#endif
