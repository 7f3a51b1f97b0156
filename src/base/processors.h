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
 * Where the calling thread may run, as it is now: what it was given from outside. NULL where the system has
 * no such thing. gs_processors_forget releases it.
 */
struct gs_processors;
struct gs_processors *gs_processors_remember(void);
void gs_processors_forget(struct gs_processors *given);

/*
 * Lets the calling thread, whose `given` it is (may be NULL), run where it was given to, but not on this
 * processor (-1: on all). Does nothing where none would be left. What somebody else has changed since the
 * last call is from then on what was given.
 */
void gs_processors_avoid(struct gs_processors *given, int processor);

/* For tests: the same count of processors 0 ... n-1 of a system whose /sys/devices/system/cpu is `folder`. */
size_t gs_processors_cores_in(const char *folder, size_t n_processors);

/* For tests: whole processors that the text of a cpu.max file grants: "200000 100000" 2; 0: no limit. */
size_t gs_processors_of_quota(const char *text);

/*
 * For tests: whole processors that the control groups of a text like /proc/self/cgroup's, and those above
 * them, grant, where their folders are in `root`; both versions of control groups. 0: no limit.
 */
size_t gs_processors_quota_in(const char *groups, const char *root);

#endif
