/*
 * Stop strings in a text that arrives in pieces: what could be the beginning of one is held back. Zero-
 * initialise; release with gs_stop_filter_free. The strings are borrowed.
 */
#ifndef GS_SERVER_STOP_FILTER_H
#define GS_SERVER_STOP_FILTER_H

#include "chat/writer.h"

struct gs_stop_filter {
    const struct gs_text *strings; /* [count] */
    size_t count;
    struct gs_buffer held; /* [held.size]: not passed on yet */
    size_t passed;         /* bytes at the front of `held` that the last call passed on */
    bool matched;
    struct gs_text match; /* which string it was */
};

/*
 * *out is what is certain to be in front of any stop string, valid until the next call. After a match (the
 * string itself is left out) everything further is swallowed.
 */
gs_status gs_stop_filter_feed(struct gs_stop_filter *filter, struct gs_text text, struct gs_text *out,
                              struct gs_error *error);

/* The text has ended: what was held back. */
struct gs_text gs_stop_filter_finish(struct gs_stop_filter *filter);
void gs_stop_filter_free(struct gs_stop_filter *filter);

#endif
