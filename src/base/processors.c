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
    int64_t cores[MAX_PROCESSORS] = {0};
    size_t n = n_processors < MAX_PROCESSORS ? n_processors : MAX_PROCESSORS;
    for (size_t i = 0; i < n; i++)
        cores[i] = find_core(folder, i);
    return count_different(cores, n);
}

/* The first line of a small file; false if there is none. */
static bool read_text(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "re");
    bool found = file && fgets(text, (int)size, file);
    if (file)
        fclose(file);
    return found;
}

/* What one group grants, in version 2 (one file) or version 1 (two, without a limit -1); 0: no limit. */
static size_t read_group(const char *root, const char *group, bool is_version_2)
{
    char path[2 * PATH_SIZE + 32], text[80], quota[32], period[32];
    snprintf(path, sizeof path, "%s%s/%s", root, group, is_version_2 ? "cpu.max" : "cpu.cfs_quota_us");
    if (!read_text(path, is_version_2 ? text : quota, sizeof quota))
        return 0;
    if (is_version_2)
        return gs_processors_of_quota(text);
    snprintf(path, sizeof path, "%s%s/%s", root, group, "cpu.cfs_period_us");
    if (quota[0] == '-' || !read_text(path, period, sizeof period))
        return 0;
    snprintf(text, sizeof text, "%s %s", quota, period);
    return gs_processors_of_quota(text);
}

/* The least that a group (its folder under the root: "/a/b") and those above it grant; 0: no limit. */
static size_t read_groups(const char *root, char *group, bool is_version_2)
{
    size_t least = 0;
    for (;;) {
        char *slash = strrchr(group, '/');
        size_t limit = read_group(root, group, is_version_2);
        least = limit > 0 && (least == 0 || limit < least) ? limit : least;
        if (!slash)
            return least;
        *slash = '\0';
    }
}

/* Is it one of the words, separated by commas, up to the colon? */
static bool has_controller(const char *words, const char *word)
{
    for (size_t size; *words && *words != ':'; words += size + (words[size] == ',')) {
        size = strcspn(words, ",:");
        if (size == strlen(word) && memcmp(words, word, size) == 0)
            return true;
    }
    return false;
}

/* A line is "number:controllers:/path"; version 2's is "0::/path". */
size_t gs_processors_quota_in(const char *groups, const char *root)
{
    size_t least = 0;
    for (const char *line = groups; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        char group[PATH_SIZE], folder[PATH_SIZE];
        const char *words = strchr(line, ':'), *path = words ? strchr(words + 1, ':') : NULL;
        const char *end = line + strcspn(line, "\n");
        bool is_version_2 = strncmp(line, "0::", 3) == 0;
        if (!path || path > end || (!is_version_2 && !has_controller(words + 1, "cpu")))
            continue;
        snprintf(group, sizeof group, "%.*s", (int)(end - path - 1), path + 1);
        snprintf(folder, sizeof folder, "%s%s", root, is_version_2 ? "" : "/cpu");
        size_t limit = read_groups(folder, group, is_version_2);
        least = limit > 0 && (least == 0 || limit < least) ? limit : least;
    }
    return least;
}

#if defined(__linux__)

static size_t read_quota(void)
{
    char groups[4096];
    FILE *file = fopen("/proc/self/cgroup", "re");
    size_t size = file ? fread(groups, 1, sizeof groups - 1, file) : 0;
    if (file)
        fclose(file);
    groups[size] = '\0';
    return gs_processors_quota_in(groups, "/sys/fs/cgroup");
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

struct gs_processors {
    cpu_set_t *given, *last; /* as it was found; as it was set here */
    cpu_set_t *set; /* to work in: threads wake while tokens are decoded, where nothing may allocate */
    size_t size;    /* bytes of each */
};

void gs_processors_forget(struct gs_processors *given)
{
    if (!given)
        return;
    CPU_FREE(given->given);
    CPU_FREE(given->last);
    CPU_FREE(given->set);
    free(given);
}

struct gs_processors *gs_processors_remember(void)
{
    struct gs_processors *out = calloc(1, sizeof *out);
    if (!out)
        return NULL;
    out->size = CPU_ALLOC_SIZE(MAX_PROCESSORS);
    out->given = CPU_ALLOC(MAX_PROCESSORS);
    out->last = CPU_ALLOC(MAX_PROCESSORS);
    out->set = CPU_ALLOC(MAX_PROCESSORS);
    if (out->given && out->last && out->set && sched_getaffinity(0, out->size, out->given) == 0) {
        memcpy(out->last, out->given, out->size);
        return out;
    }
    gs_processors_forget(out);
    return NULL;
}

void gs_processors_avoid(struct gs_processors *given, int processor)
{
    if (!given || sched_getaffinity(0, given->size, given->set) != 0)
        return;
    if (!CPU_EQUAL_S(given->size, given->set, given->last))
        memcpy(given->given, given->set, given->size);
    memcpy(given->set, given->given, given->size);
    if (processor >= 0 && processor < MAX_PROCESSORS)
        CPU_CLR_S((size_t)processor, given->size, given->set);
    if (CPU_COUNT_S(given->size, given->set) > 0)
        (void)sched_setaffinity(0, given->size, given->set);
    (void)sched_getaffinity(0, given->size, given->last);
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
    int64_t cores[MAX_PROCESSORS] = {0};
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

struct gs_processors *gs_processors_remember(void)
{
    return NULL;
}

void gs_processors_forget(struct gs_processors *given)
{
    (void)given;
}

void gs_processors_avoid(struct gs_processors *given, int processor)
{
    (void)given;
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
