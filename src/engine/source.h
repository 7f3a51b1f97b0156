/* What the engine's tests need to know of a source; the rest is in gossamer.h. */
#ifndef GS_ENGINE_SOURCE_H
#define GS_ENGINE_SOURCE_H

#include "gossamer.h"

/* How long the tokens that are chosen at a time may take together: with much, their number hangs on no clock.
 */
void gs_source_set_patience(struct gs_source *source, double seconds);

#endif
