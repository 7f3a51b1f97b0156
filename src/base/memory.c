#include "base/memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <mach/mach.h>
#endif

#define PATH_SIZE 1024

/* The number that a line "<key> <number>" of the file holds; for an empty key, that the file holds alone. */
static bool read_number(const char *path, const char *key, uint64_t *value)
{
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    char line[256];
    bool found = false;
    size_t length = strlen(key);
    while (!found && fgets(line, sizeof line, file)) {
        unsigned long long number;
        if (strncmp(line, key, length) == 0 && sscanf(line + length, " %llu", &number) == 1) {
            *value = number;
            found = true;
        }
    }
    fclose(file);
    return found;
}

/* How one generation of Linux control groups names its files. */
struct control_group {
    const char *line;     /* before the path in /proc/self/cgroup */
    const char *root;     /* where the hierarchy is mounted */
    const char *limit;    /* a file that holds bytes */
    const char *used;     /* likewise, the page cache included */
    const char *cache[2]; /* lines of memory.stat: page cache, which can be given back */
};

static const struct control_group groups[] = {
    {"0::", "/sys/fs/cgroup", "memory.max", "memory.current", {"active_file", "inactive_file"}},
    {":memory:",
     "/sys/fs/cgroup/memory",
     "memory.limit_in_bytes",
     "memory.usage_in_bytes",
     {"total_active_file", "total_inactive_file"}},
};

/* This process's path in the hierarchy, e.g. "/user.slice"; "" if it is not known. */
static void read_group_path(const struct control_group *group, char path[PATH_SIZE])
{
    path[0] = '\0';
    FILE *file = fopen("/proc/self/cgroup", "r");
    if (!file)
        return;
    char line[PATH_SIZE];
    while (fgets(line, sizeof line, file)) {
        const char *at = strstr(line, group->line);
        if (!at)
            continue;
        line[strcspn(line, "\n")] = '\0';
        strcpy(path, at + strlen(group->line));
        break;
    }
    fclose(file);
}

/* Lowers *available to what the group in this folder has left, if it has a limit. */
static void apply_limit(const struct control_group *group, const char *folder, uint64_t *available)
{
    char path[3 * PATH_SIZE];
    uint64_t limit, used, cache = 0;
    snprintf(path, sizeof path, "%s/%s", folder, group->limit);
    if (!read_number(path, "", &limit))
        return; /* "max" */
    snprintf(path, sizeof path, "%s/%s", folder, group->used);
    if (!read_number(path, "", &used))
        return;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    for (int i = 0; i < 2; i++) {
        uint64_t bytes;
        if (read_number(path, group->cache[i], &bytes))
            cache += bytes;
    }
    used = used > cache ? used - cache : 0;
    uint64_t left = limit > used ? limit - used : 1; /* 0 would mean "unknown" */
    if (left < *available)
        *available = left;
}

/* Where there is no /proc: free pages and those not used for long, which the system gives away first; else
 * the physical memory, the best that POSIX tells. */
static uint64_t read_other_system(void)
{
#if defined(__APPLE__)
    vm_statistics64_data_t pages;
    mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
    vm_size_t bytes;
    if (host_statistics64(mach_host_self(), HOST_VM_INFO64, (host_info64_t)&pages, &count) == KERN_SUCCESS &&
        host_page_size(mach_host_self(), &bytes) == KERN_SUCCESS)
        return ((uint64_t)pages.free_count + pages.inactive_count) * bytes;
#endif
#if defined(_SC_PHYS_PAGES) && defined(_SC_PAGESIZE)
    long n = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return n > 0 && size > 0 ? (uint64_t)n * (uint64_t)size : 0;
#else
    return 0;
#endif
}

uint64_t gs_memory_available(void)
{
    uint64_t available = 0;
    if (read_number("/proc/meminfo", "MemAvailable:", &available))
        available *= 1024;
    if (available == 0)
        available = read_other_system();
    if (available == 0)
        return 0;
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        /* Every group on the way up may have a limit; inside a container the path may not be visible. */
        char path[PATH_SIZE], folder[2 * PATH_SIZE];
        read_group_path(&groups[i], path);
        for (;;) {
            snprintf(folder, sizeof folder, "%s%s", groups[i].root, path);
            apply_limit(&groups[i], folder, &available);
            char *slash = strrchr(path, '/');
            if (!slash)
                break;
            *slash = '\0';
        }
    }
    return available;
}
