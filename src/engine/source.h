/* Tokens that are chosen in a row, for others than gs_source; the rest is in gossamer.h. */
#ifndef GS_ENGINE_SOURCE_H
#define GS_ENGINE_SOURCE_H

#include "gossamer.h"

#define GS_AHEAD_SECONDS 0.008 /* that they may take: what their first one comes later than alone */
#define GS_AHEAD_TOKENS  32    /* at most */

/*
 * How many to choose next, where n took so many seconds: twice as many at most, so that little is thrown away
 * where a generation ends early.
 */
size_t gs_ahead_length(size_t n, double seconds, double patience);

/* How long the tokens that are chosen at a time may take together: with much, their number hangs on no clock.
 */
void gs_source_set_patience(struct gs_source *source, double seconds);

#endif
