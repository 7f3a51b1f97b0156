/* How many processors and cores this process may use. Reads the system each time: nothing is kept. */
#ifndef GS_BASE_PROCESSORS_H
#define GS_BASE_PROCESSORS_H

#include <stddef.h>

/* Processors that the process may run on (affinity), and no more than its control group's share. */
size_t gs_processors_allowed(void);

/*
 * Physical cores among them: two hardware threads of a core count once, because they share the units that
 * the kernels fill. As gs_processors_allowed where the system does not tell.
 */
size_t gs_processors_cores(void);

/* The one that the calling thread runs on; -1: the system does not tell. */
int gs_processors_current(void);

/*
 * Lets the calling thread run on every processor that the process may use except this one (-1: on all). Does
 * nothing where none would be left, or where the system has no such thing.
 */
void gs_processors_avoid(int processor);

/* For tests: the same count of processors 0 ... n-1 of a system whose /sys/devices/system/cpu is `folder`. */
size_t gs_processors_cores_in(const char *folder, size_t n_processors);

/* For tests: whole processors that the text of a cpu.max file grants: "200000 100000" 2; 0: no limit. */
size_t gs_processors_of_quota(const char *text);

#endif
