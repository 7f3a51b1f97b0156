/* Monotonic time in seconds. */
#ifndef GS_BASE_CLOCK_H
#define GS_BASE_CLOCK_H

double gs_clock_seconds(void);

#endif
