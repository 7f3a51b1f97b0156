#include "base/processors.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#define MAX_PROCESSORS 4096
#define PATH_SIZE      1024

size_t gs_processors_of_quota(const char *text)
{
    unsigned long long quota, period;
    if (sscanf(text, "%llu %llu", &quota, &period) != 2 || period == 0)
        return 0; /* "max 100000" */
    return quota < period ? 1 : (size_t)(quota / period);
}

/* The number in a small file; -1 if there is none. */
static long read_long(const char *path)
{
    FILE *file = fopen(path, "re");
    long value = -1;
    if (!file)
        return -1;
    if (fscanf(file, "%9ld", &value) != 1)
        value = -1;
    fclose(file);
    return value;
}

/* package and core of a processor as one number; -1 if the system does not tell. */
static int64_t find_core(const char *folder, size_t processor)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/cpu%zu/topology/core_id", folder, processor);
    long core = read_long(path);
    snprintf(path, sizeof path, "%s/cpu%zu/topology/physical_package_id", folder, processor);
    long package = read_long(path);
    return core < 0 || package < 0 ? -1 : (int64_t)package << 32 | core;
}

static int compare_cores(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* How many different ones; a processor of unknown core is a core of its own. Sorts the list. */
static size_t count_different(int64_t *cores, size_t count)
{
    size_t n = 0;
    qsort(cores, count, sizeof *cores, compare_cores);
    for (size_t i = 0; i < count; i++)
        n += i == 0 || cores[i] != cores[i - 1] || cores[i] < 0;
    return n;
}

size_t gs_processors_cores_in(const char *folder, size_t n_processors)
{
    int64_t cores[MAX_PROCESSORS];
    size_t n = n_processors < MAX_PROCESSORS ? n_processors : MAX_PROCESSORS;
    for (size_t i = 0; i < n; i++)
        cores[i] = find_core(folder, i);
    return count_different(cores, n);
}

#if defined(__linux__)

/* The least that the process's control group and those above it grant; 0: no limit. */
static size_t read_quota(void)
{
    char group[PATH_SIZE] = "", line[PATH_SIZE];
    size_t least = 0;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "0::", 3) == 0)
            snprintf(group, sizeof group, "%.*s", (int)strcspn(line + 3, "\n"), line + 3);
    if (file)
        fclose(file);
    for (;;) {
        char path[PATH_SIZE + 32];
        char *slash = strrchr(group, '/');
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
        file = fopen(path, "re");
        size_t limit = file && fgets(line, sizeof line, file) ? gs_processors_of_quota(line) : 0;
        if (file)
            fclose(file);
        least = limit > 0 && (least == 0 || limit < least) ? limit : least;
        if (!slash)
            return least;
        *slash = '\0';
    }
}

/* Those that the process may run on, up to MAX_PROCESSORS of them; their numbers to `list`. */
static size_t list_processors(size_t *list)
{
    cpu_set_t *set = CPU_ALLOC(MAX_PROCESSORS);
    size_t size = CPU_ALLOC_SIZE(MAX_PROCESSORS), n = 0;
    if (set && sched_getaffinity(0, size, set) == 0)
        for (size_t i = 0; i < MAX_PROCESSORS; i++)
            if (CPU_ISSET_S(i, size, set))
                list[n++] = i;
    CPU_FREE(set);
    return n;
}

int gs_processors_current(void)
{
    return sched_getcpu();
}

void gs_processors_avoid(int processor)
{
    cpu_set_t *set = CPU_ALLOC(MAX_PROCESSORS);
    size_t size = CPU_ALLOC_SIZE(MAX_PROCESSORS);
    /* Of the process's first thread: what it was given from outside, not what this one has avoided before. */
    if (set && sched_getaffinity(getpid(), size, set) == 0) {
        if (processor >= 0 && processor < MAX_PROCESSORS)
            CPU_CLR_S((size_t)processor, size, set);
        if (CPU_COUNT_S(size, set) > 0)
            (void)sched_setaffinity(0, size, set);
    }
    CPU_FREE(set);
}

static size_t limit_by_quota(size_t count)
{
    size_t quota = read_quota();
    return quota > 0 && quota < count ? quota : count;
}

size_t gs_processors_allowed(void)
{
    size_t list[MAX_PROCESSORS];
    size_t n = list_processors(list);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    if (n == 0)
        n = online > 0 ? (size_t)online : 1;
    return limit_by_quota(n);
}

size_t gs_processors_cores(void)
{
    size_t list[MAX_PROCESSORS];
    int64_t cores[MAX_PROCESSORS];
    size_t n = list_processors(list);
    if (n == 0)
        return gs_processors_allowed();
    for (size_t i = 0; i < n; i++)
        cores[i] = find_core("/sys/devices/system/cpu", list[i]);
    return limit_by_quota(count_different(cores, n));
}

#else

int gs_processors_current(void)
{
    return -1;
}

void gs_processors_avoid(int processor)
{
    (void)processor;
}

size_t gs_processors_allowed(void)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (size_t)online : 1;
}

size_t gs_processors_cores(void)
{
#if defined(__APPLE__)
    /* The fast cores alone where there are two kinds: a job waits for its slowest thread. */
    static const char *const names[] = {"hw.perflevel0.physicalcpu", "hw.physicalcpu"};
    for (size_t i = 0; i < 2; i++) {
        int count = 0;
        size_t size = sizeof count;
        if (sysctlbyname(names[i], &count, &size, NULL, 0) == 0 && count > 0)
            return (size_t)count;
    }
#endif
    return gs_processors_allowed();
}

#endif
