#include "base/memory.h"

#include <stdio.h>
#include <unistd.h>

/* A file that holds one number of bytes ("max" for no limit); 0 if there is none. */
static uint64_t read_number(const char *path)
{
    unsigned long long value = 0;
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    if (fscanf(file, "%llu", &value) != 1)
        value = 0;
    fclose(file);
    return value;
}

static uint64_t read_meminfo(void)
{
    FILE *file = fopen("/proc/meminfo", "r");
    if (!file)
        return 0;
    char line[128];
    unsigned long long kib = 0;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            break;
    fclose(file);
    return kib * 1024;
}

uint64_t gs_memory_available(void)
{
    uint64_t available = read_meminfo();
#if defined(_SC_PHYS_PAGES) && defined(_SC_PAGESIZE)
    if (available == 0) { /* not Linux: the physical memory is the best that POSIX tells */
        long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
        available = pages > 0 && bytes > 0 ? (uint64_t)pages * (uint64_t)bytes : 0;
    }
#endif
    uint64_t limit = read_number("/sys/fs/cgroup/memory.max");
    uint64_t used = read_number("/sys/fs/cgroup/memory.current");
    if (limit > 0 && used < limit && limit - used < available)
        available = limit - used;
    return available;
}
