#include "format/file_map.h"

#include "base/buffer.h"
#include "base/status.h"
#include "base/system.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---------------------------------------------------------------- the handler's table */

/*
 * A signal handler can reach nothing but what is global, so the live mappings stand in a table of fixed
 * size. `version` is odd while a slot changes hands: the handler passes over such a slot and over one
 * whose version moved while it was read, since the mapping whose read faulted cannot be changing.
 */
struct slot {
    atomic_bool taken;
    atomic_bool damaged;
    atomic_uint version;
    atomic_uintptr_t begin; /* addresses, whole pages; end 0: no mapping */
    atomic_uintptr_t end;
    atomic_uintptr_t zeros; /* from here on the pages have been replaced */
};

static struct slot slots[GS_FILE_MAP_MAX];

/*
 * Who handled SIGBUS before us; the last one counts. There are several if another handler is put over ours
 * (test runners do it) and a later mapping puts ours back. Entries never change, as a handler may be at one.
 */
#define MAX_PREVIOUS 8
static struct sigaction previous_actions[MAX_PREVIOUS];
static atomic_int n_previous;
static pthread_mutex_t install_mutex = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local volatile sig_atomic_t chain_depth;

static void write_slot(struct slot *slot, uintptr_t begin, uintptr_t end)
{
    atomic_fetch_add(&slot->version, 1);
    atomic_store(&slot->begin, begin);
    atomic_store(&slot->end, end);
    atomic_store(&slot->zeros, end);
    atomic_fetch_add(&slot->version, 1);
}

static bool read_slot(struct slot *slot, uintptr_t *begin, uintptr_t *end)
{
    unsigned version = atomic_load(&slot->version);
    *begin = atomic_load(&slot->begin);
    *end = atomic_load(&slot->end);
    return version % 2 == 0 && atomic_load(&slot->version) == version;
}

/* -1 if the table is full. */
static int take_slot(uintptr_t begin, uintptr_t end)
{
    for (int i = 0; i < GS_FILE_MAP_MAX; i++) {
        bool taken = false;
        if (!atomic_compare_exchange_strong(&slots[i].taken, &taken, true))
            continue;
        atomic_store(&slots[i].damaged, false);
        write_slot(&slots[i], begin, end);
        return i;
    }
    return -1;
}

static void give_slot(int index)
{
    write_slot(&slots[index], 0, 0);
    atomic_store(&slots[index].taken, false);
}

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* Did the kernel send this signal for an access (and not a process, with kill)? */
static bool sent_by_fault(const siginfo_t *info)
{
    return info && (info->si_code == BUS_ADRERR || info->si_code == BUS_OBJERR);
}

/*
 * Puts zeros in place of the missing page and of all that follow: where a file ends early they are missing
 * too, and one anonymous range, unlike one per page, cannot use up the process's number of mappings.
 */
static bool replace_pages(uintptr_t address)
{
    for (int i = 0; i < GS_FILE_MAP_MAX; i++) {
        struct slot *slot = &slots[i];
        uintptr_t begin, end;
        if (!read_slot(slot, &begin, &end) || address < begin || address >= end)
            continue;
        uintptr_t page = begin + (address - begin) / page_size() * page_size();
        uintptr_t zeros = atomic_load(&slot->zeros);
        atomic_store(&slot->damaged, true);
        if (page >= zeros)
            return true; /* another thread was here first */
        if (mmap((void *)page, zeros - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
            MAP_FAILED)
            return false;
        while (page < zeros && !atomic_compare_exchange_weak(&slot->zeros, &zeros, page))
            continue;
        return true;
    }
    return false;
}

/* Ends the process: the raised signal waits until the handler has returned. */
static void act_by_default(int number)
{
    struct sigaction action = {0};
    action.sa_handler = SIG_DFL;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
    raise(number);
}

static void call_previous(int number, siginfo_t *info, void *context)
{
    const struct sigaction *previous = &previous_actions[atomic_load(&n_previous) - 1];
    bool has_info = (previous->sa_flags & SA_SIGINFO) != 0;
    if (!has_info && previous->sa_handler == SIG_IGN && !sent_by_fault(info))
        return;
    if (!has_info && (previous->sa_handler == SIG_IGN || previous->sa_handler == SIG_DFL)) {
        act_by_default(number);
        return;
    }
    /* A handler put over ours may call ours in its turn, as the one before it. */
    if (chain_depth == MAX_PREVIOUS) {
        act_by_default(number);
        return;
    }
    chain_depth++;
    if (has_info)
        previous->sa_sigaction(number, info, context);
    else
        previous->sa_handler(number);
    chain_depth--;
}

static void handle_bus_error(int number, siginfo_t *info, void *context)
{
    int saved_errno = errno;
    if (!sent_by_fault(info) || !replace_pages((uintptr_t)info->si_addr))
        call_previous(number, info, context);
    errno = saved_errno;
}

static bool same_handler(const struct sigaction *a, const struct sigaction *b)
{
    if ((a->sa_flags & SA_SIGINFO) != (b->sa_flags & SA_SIGINFO))
        return false;
    return a->sa_flags & SA_SIGINFO ? a->sa_sigaction == b->sa_sigaction : a->sa_handler == b->sa_handler;
}

/* 0 or an errno. Does nothing while our handler is in place. */
static int install_handler(void)
{
    int result = 0;
    struct sigaction ours = {0}, current;
    ours.sa_sigaction = handle_bus_error;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigemptyset(&ours.sa_mask);
    pthread_mutex_lock(&install_mutex);
    if (sigaction(SIGBUS, NULL, &current) != 0) {
        result = errno;
    } else if (!same_handler(&current, &ours)) {
        /* Noted before ours can run, so that it never chains to nothing. */
        int n = atomic_load(&n_previous);
        if (n < MAX_PREVIOUS && (n == 0 || !same_handler(&current, &previous_actions[n - 1]))) {
            previous_actions[n] = current;
            atomic_store(&n_previous, n + 1);
        }
        if (sigaction(SIGBUS, &ours, NULL) != 0)
            result = errno;
    }
    pthread_mutex_unlock(&install_mutex);
    return result;
}

/* ---------------------------------------------------------------- confinement */

/* Is `path` below `folder`? Both are real, absolute paths. */
static bool lies_below(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    while (length > 0 && folder[length - 1] == '/')
        length--;
    return strncmp(path, folder, length) == 0 && path[length] == '/';
}

/* Cuts the last component off a real path; false at the root. */
static bool cut_component(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash || slash == path)
        return false;
    *slash = '\0';
    return true;
}

static bool lies_in_blobs(const char *path, const char *repository)
{
    struct gs_buffer blobs = {0};
    bool result =
        gs_buffer_print(&blobs, NULL, "%s/blobs", repository) == GS_OK && lies_below(path, blobs.data);
    gs_buffer_free(&blobs);
    return result;
}

/*
 * The hub's cache: repository/snapshots/revision/file links to repository/blobs/hash, and so does
 * repository/snapshots/revision/original/file. `folder` is cut on the way.
 */
static bool lies_in_cache(const char *path, char *folder)
{
    if (!cut_component(folder))
        return false;
    if (cut_component(folder) && lies_in_blobs(path, folder))
        return true;
    const char *name = strrchr(folder, '/');
    return name && strcmp(name, "/snapshots") == 0 && cut_component(folder) && lies_in_blobs(path, folder);
}

/* *real is the path without links; to be freed. */
static gs_status confine(const char *path, const char *folder, char **real, struct gs_error *error)
{
    gs_status status = GS_OK;
    char *real_folder = realpath(folder, NULL);
    if (!real_folder)
        return gs_fail_io(error, errno, "open", folder);
    *real = realpath(path, NULL);
    if (!*real)
        status = gs_fail_io(error, errno, "open", path);
    else if (!lies_below(*real, real_folder) && !lies_in_cache(*real, real_folder))
        status = gs_fail(error, GS_MALFORMED,
                         "%s: is a link that leads out of its folder, to %s; only a link inside the folder "
                         "or into the hub cache's ../../blobs is followed",
                         gs_quote(path).text, gs_quote(*real).text);
    free(real_folder);
    return status;
}

/* ---------------------------------------------------------------- mapping */

static gs_status map_pages(struct gs_file_map *map, struct gs_error *error)
{
    if (map->size > SIZE_MAX - page_size())
        return gs_fail(error, GS_UNSUPPORTED, "%s: %llu bytes do not fit in this system's address space",
                       gs_quote(map->path).text, (unsigned long long)map->size);
    int handler_errno = install_handler();
    if (handler_errno != 0)
        return gs_fail_io(error, handler_errno, "handle SIGBUS for", map->path);
    void *data = mmap(NULL, (size_t)map->size, PROT_READ, MAP_SHARED, map->descriptor, 0);
    if (data == MAP_FAILED)
        return gs_fail_io(error, errno, "map", map->path);
    map->data = data;
#ifdef MADV_HUGEPAGE
    /* What is not in the page cache yet then comes in large pages, where the file system has them: reading
     * is a third faster, for every process that maps the file later too. A hint. */
    (void)madvise(data, (size_t)map->size, MADV_HUGEPAGE);
#endif
    size_t pages = ((size_t)map->size + page_size() - 1) / page_size();
    map->slot = take_slot((uintptr_t)data, (uintptr_t)data + pages * page_size());
    if (map->slot < 0)
        return gs_fail(error, GS_UNSUPPORTED,
                       "cannot map %s: %d files are mapped already, the most at a time",
                       gs_quote(map->path).text, GS_FILE_MAP_MAX);
    return GS_OK;
}

/* `real` is what to open: `map->path`, or where its links lead. */
static gs_status open_descriptor(struct gs_file_map *map, const char *real, int flags, struct gs_error *error)
{
    /* Without O_NONBLOCK a pipe without a writer would never open. */
    map->descriptor = open(real, O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
    if (map->descriptor < 0)
        return gs_fail_io(error, errno, "open", map->path);
    struct stat info;
    if (fstat(map->descriptor, &info) != 0)
        return gs_fail_io(error, errno, "examine", map->path);
    if (!S_ISREG(info.st_mode))
        return gs_fail(error, GS_INVALID_ARGUMENT, "%s: is %s, not a regular file", gs_quote(map->path).text,
                       S_ISDIR(info.st_mode) ? "a folder" : "a device, pipe or socket");
    map->size = (uint64_t)info.st_size;
    map->modified_ns = gs_system_modified_ns(&info);
    return GS_OK;
}

gs_status gs_file_map_open(const char *path, const char *folder, struct gs_file_map **out,
                           struct gs_error *error)
{
    *out = NULL;
    char *real = NULL;
    gs_status status = GS_OK;
    struct gs_file_map *map = calloc(1, sizeof *map);
    if (!map)
        return gs_fail_memory(error, sizeof *map);
    map->descriptor = -1;
    map->slot = -1;
    map->path = strdup(path);
    if (!map->path) {
        status = gs_fail_memory(error, strlen(path) + 1);
        goto cleanup;
    }
    if (folder)
        status = confine(path, folder, &real, error);
    if (status == GS_OK)
        status = open_descriptor(map, real ? real : path, real ? O_NOFOLLOW : 0, error);
    if (status == GS_OK && map->size > 0)
        status = map_pages(map, error);
    if (status == GS_OK) {
        *out = map;
        map = NULL;
    }
cleanup:
    free(real);
    gs_file_map_close(map);
    return status;
}

void gs_file_map_close(struct gs_file_map *map)
{
    if (!map)
        return;
    /* The slot first: once unmapped, the addresses may be anybody's. */
    if (map->slot >= 0)
        give_slot(map->slot);
    if (map->data)
        munmap((void *)(uintptr_t)map->data, (size_t)map->size);
    if (map->descriptor >= 0)
        close(map->descriptor);
    free(map->path);
    free(map);
}

bool gs_file_map_damaged(const struct gs_file_map *map)
{
    return map->slot >= 0 && atomic_load(&slots[map->slot].damaged);
}

gs_status gs_file_map_check(const struct gs_file_map *map, struct gs_error *error)
{
    if (gs_file_map_damaged(map))
        return gs_fail(error, GS_FILE_CHANGED, "%s: a part of the file went missing while it was in use",
                       gs_quote(map->path).text);
    struct stat info;
    if (fstat(map->descriptor, &info) != 0)
        return gs_fail_io(error, errno, "examine", map->path);
    if ((uint64_t)info.st_size != map->size)
        return gs_fail(
            error, GS_FILE_CHANGED, "%s: the file had %llu bytes when it was opened and has %llu now",
            gs_quote(map->path).text, (unsigned long long)map->size, (unsigned long long)info.st_size);
    if (gs_system_modified_ns(&info) != map->modified_ns)
        return gs_fail(error, GS_FILE_CHANGED, "%s: the file was written to since it was opened",
                       gs_quote(map->path).text);
    return GS_OK;
}
