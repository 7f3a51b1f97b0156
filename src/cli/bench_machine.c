/* What a benchmark says about where it ran. */
#include "cli/bench_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

/* The text after "key ... :" of the first such line of a small file; false if there is none. */
static bool read_field(const char *path, const char *key, char *text, size_t size)
{
    char line[512];
    bool found = false;
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) != 0 || !colon)
            continue;
        const char *from = colon + 1 + strspn(colon + 1, " \t");
        snprintf(text, size, "%.*s", (int)strcspn(from, "\n"), from);
        found = true;
    }
    if (file)
        fclose(file);
    return found;
}

static void describe_processor(const struct utsname *system, char *text, size_t size)
{
#if defined(__APPLE__)
    size_t length = size;
    if (sysctlbyname("machdep.cpu.brand_string", text, &length, NULL, 0) == 0)
        return;
#endif
    if (!read_field("/proc/cpuinfo", "model name", text, size))
        snprintf(text, size, "%s", system->machine);
}

struct gs_bench_machine gs_bench_machine(void)
{
    struct gs_bench_machine out = {.cache_bytes = gs_measure_cache_bytes()};
    struct utsname system = {0};
    uname(&system);
    describe_processor(&system, out.processor, sizeof out.processor);
    snprintf(out.system, sizeof out.system, "%.40s %.40s %.40s", system.sysname, system.release,
             system.machine);
#if defined(__clang__)
    const char *compiler = "clang " __clang_version__;
#else
    const char *compiler = "gcc " __VERSION__;
#endif
#if defined(__OPTIMIZE__)
    const char *optimised = "optimised";
#else
    const char *optimised = "not optimised";
#endif
    snprintf(out.build, sizeof out.build, "%.90s, %s", compiler, optimised);
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc))
        strftime(out.when, sizeof out.when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    out.n_processors = sysconf(_SC_NPROCESSORS_ONLN);
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    out.memory_bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    if (getloadavg(out.load, 3) != 3)
        memset(out.load, 0, sizeof out.load);
    return out;
}

double gs_bench_cpu_seconds(void)
{
    struct timespec used = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

void gs_bench_forget_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "we");
    if (!file)
        return;
    fputs("5", file);
    fclose(file);
}

void gs_bench_note_memory(struct gs_bench_report *report)
{
    struct rusage usage;
    uint64_t peak = 0;
    char text[64];
    /* Linux: not from getrusage, whose mark cannot be forgotten. */
    if (read_field("/proc/self/status", "VmHWM", text, sizeof text))
        peak = strtoull(text, NULL, 10) * 1024;
    else if (getrusage(RUSAGE_SELF, &usage) == 0 && usage.ru_maxrss > 0)
#if defined(__APPLE__)
        peak = (uint64_t)usage.ru_maxrss;
#else
        peak = (uint64_t)usage.ru_maxrss * 1024;
#endif
    /* The mark was set back for every number of threads. */
    report->peak_bytes = peak > report->peak_bytes ? peak : report->peak_bytes;
    if (read_field("/proc/self/status", "RssAnon", text, sizeof text)) {
        uint64_t bytes = strtoull(text, NULL, 10) * 1024;
        report->anonymous_bytes = bytes > report->anonymous_bytes ? bytes : report->anonymous_bytes;
    }
}
