/* src/format/file_map.c: mapping, confinement of links, files that shrink under a map. */
#include "files.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

/* Opens folder/name; `within` NULL or a subfolder's name, "" for the folder. */
static gs_status open_in(const char *name, const char *within, struct gs_file_map **map,
                         struct gs_error *error)
{
    char *path = path_in(folder, name);
    char *confinement = within ? path_in(folder, within) : NULL;
    gs_status status = gs_file_map_open(path, confinement, map, error);
    if (status != GS_OK) {
        assert_null(*map);
        assert_clean_failure(status, error);
    }
    free(confinement);
    free(path);
    return status;
}

static void maps_and_checks(void **state)
{
    (void)state;
    struct gs_file_map *map;
    struct gs_error error;
    write_text(folder, "a", "hello");
    assert_int_equal(open_in("a", NULL, &map, &error), GS_OK);
    assert_int_equal(map->size, 5);
    assert_memory_equal(map->data, "hello", 5);
    assert_int_equal(gs_file_map_check(map, &error), GS_OK);
    assert_false(gs_file_map_damaged(map));
    write_text(folder, "a", "hello!");
    assert_int_equal(gs_file_map_check(map, &error), GS_FILE_CHANGED);
    assert_message(&error, "had 5 bytes when it was opened and has 6 now");
    gs_file_map_close(map);

    write_text(folder, "empty", "");
    assert_int_equal(open_in("empty", "", &map, &error), GS_OK);
    assert_int_equal(map->size, 0);
    assert_null(map->data);
    assert_int_equal(gs_file_map_check(map, &error), GS_OK);
    assert_false(gs_file_map_damaged(map));
    gs_file_map_close(map);
    gs_file_map_close(NULL);
}

static void same_size_other_time(void **state)
{
    (void)state;
    struct gs_file_map *map;
    struct gs_error error;
    write_text(folder, "a", "hello");
    assert_int_equal(open_in("a", NULL, &map, &error), GS_OK);
    struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_int_equal(utimensat(AT_FDCWD, map->path, times, 0), 0);
    assert_int_equal(gs_file_map_check(map, &error), GS_FILE_CHANGED);
    assert_message(&error, "written to");
    gs_file_map_close(map);
}

static void what_is_no_file(void **state)
{
    (void)state;
    struct gs_file_map *map;
    struct gs_error error;
    assert_int_equal(open_in("absent", NULL, &map, &error), GS_IO);
    assert_message(&error, "absent");
    assert_int_equal(open_in("absent", "", &map, &error), GS_IO);
    assert_int_equal(open_in("absent", "none", &map, &error), GS_IO);
    assert_int_equal(open_in("", NULL, &map, &error), GS_INVALID_ARGUMENT);
    assert_message(&error, "a folder");
    char *pipe_path = path_in(folder, "pipe");
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    free(pipe_path);
    assert_int_equal(open_in("pipe", NULL, &map, &error), GS_INVALID_ARGUMENT);
    assert_message(&error, "pipe");
    assert_int_equal(gs_file_map_open("/dev/zero", NULL, &map, &error), GS_INVALID_ARGUMENT);
}

static void links_stay_inside(void **state)
{
    (void)state;
    struct gs_file_map *map;
    struct gs_error error;
    free(make_subfolder(folder, "m"));
    free(make_subfolder(folder, "m/sub"));
    free(make_subfolder(folder, "m2"));
    write_text(folder, "m/a", "a");
    write_text(folder, "m/sub/b", "b");
    write_text(folder, "out", "o");
    write_text(folder, "m2/c", "c");
    char *m = path_in(folder, "m");
    make_link("a", m, "to_a");
    make_link("sub/b", m, "to_b");
    make_link("../out", m, "to_out");
    make_link("../m2/c", m, "to_sibling"); /* its folder's name begins with "m" too */
    make_link("to_out", m, "twice");
    make_link("../m/a", m, "round");
    make_link("nowhere", m, "dangling");
    make_link("loop", m, "loop");
    make_link("/etc/passwd", m, "absolute");
    make_link("m", folder, "link_to_m");
    free(m);
    static const char *const inside[] = {"m/a", "m/to_a", "m/to_b", "m/round", "link_to_m/to_a"};
    static const char *const outside[] = {"m/to_out", "m/to_sibling", "m/twice", "m/absolute", "m/../out"};
    for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++) {
        if (open_in(inside[i], i == 4 ? "link_to_m" : "m", &map, &error) != GS_OK)
            fail_msg("%s: %s", inside[i], error.message);
        gs_file_map_close(map);
    }
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        assert_int_equal(open_in(outside[i], "m", &map, &error), GS_MALFORMED);
        assert_message(&error, "leads out of its folder");
    }
    assert_int_equal(open_in("m/dangling", "m", &map, &error), GS_IO);
    assert_int_equal(open_in("m/loop", "m", &map, &error), GS_IO);
    assert_int_equal(open_in("m/to_out", NULL, &map, &error), GS_OK); /* without confinement */
    gs_file_map_close(map);
}

static void links_into_the_hub_cache(void **state)
{
    (void)state;
    struct gs_file_map *map;
    struct gs_error error;
    static const char *const folders[] = {"r",
                                          "r/blobs",
                                          "r/snapshots",
                                          "r/snapshots/v",
                                          "r/snapshots/v/original",
                                          "r/snapshots/v/original/deep",
                                          "r/blobs2",
                                          "s",
                                          "s/blobs"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        free(make_subfolder(folder, folders[i]));
    write_text(folder, "r/blobs/hash", "h");
    write_text(folder, "r/blobs2/hash", "h");
    write_text(folder, "s/blobs/hash", "h");
    char *snapshot = path_in(folder, "r/snapshots/v"), *original = path_in(snapshot, "original");
    char *deep = path_in(original, "deep");
    make_link("../../blobs/hash", snapshot, "w");
    make_link("../../blobs2/hash", snapshot, "w2");
    make_link("../../../s/blobs/hash", snapshot, "w3");
    make_link("../../../blobs/hash", original, "w");
    make_link("../../../../blobs/hash", deep, "w");
    free(deep);
    free(original);
    free(snapshot);
    assert_int_equal(open_in("r/snapshots/v/w", "r/snapshots/v", &map, &error), GS_OK);
    assert_memory_equal(map->data, "h", 1);
    gs_file_map_close(map);
    assert_int_equal(open_in("r/snapshots/v/original/w", "r/snapshots/v/original", &map, &error), GS_OK);
    gs_file_map_close(map);
    assert_int_equal(open_in("r/snapshots/v/w2", "r/snapshots/v", &map, &error), GS_MALFORMED);
    assert_int_equal(open_in("r/snapshots/v/w3", "r/snapshots/v", &map, &error), GS_MALFORMED);
    assert_int_equal(open_in("r/snapshots/v/original/deep/w", "r/snapshots/v/original/deep", &map, &error),
                     GS_MALFORMED);
}

static void any_path_opens(void **state)
{
    (void)state;
    struct gs_file_map *map;
    struct gs_error error;
    free(make_subfolder(folder, "模型 é dir"));
    write_text(folder, "模型 é dir/a\nb", "x");
    assert_int_equal(open_in("模型 é dir/a\nb", "模型 é dir", &map, &error), GS_OK);
    gs_file_map_close(map);
    assert_int_equal(open_in("模型 é dir/\033[31m\n", NULL, &map, &error), GS_IO);
    assert_message(&error, "模型 é dir");

    char name[251 * 8] = "";
    for (size_t i = 0; i < 7; i++) {
        memset(name + strlen(name), 'd', 250);
        free(make_subfolder(folder, name));
        strcat(name, "/");
    }
    strcat(name, "f");
    write_text(folder, name, "x");
    assert_int_equal(open_in(name, "", &map, &error), GS_OK);
    gs_file_map_close(map);
}

/* ---------------------------------------------------------------- shrinking */

#define PAGES   64
#define READERS 4
#define PAGE(n) ((uint64_t)(n) * (uint64_t)sysconf(_SC_PAGESIZE))

static void write_pages(const char *name, unsigned char value)
{
    unsigned char *bytes = malloc(PAGE(PAGES));
    assert_non_null(bytes);
    memset(bytes, value, PAGE(PAGES));
    write_file(folder, name, bytes, PAGE(PAGES));
    free(bytes);
}

static void *sum_all(void *user)
{
    const struct gs_file_map *map = user;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < map->size; i++)
        sum += map->data[i];
    return (void *)(uintptr_t)sum;
}

static void shrinks_under_readers(void **state)
{
    (void)state;
    struct gs_file_map *map, *other;
    struct gs_error error;
    write_pages("other", 1);
    assert_int_equal(open_in("other", NULL, &other, &error), GS_OK);
    /* Again and again, so that slots are reused. */
    for (unsigned round = 0; round < 50; round++) {
        write_pages("a", 3);
        assert_int_equal(open_in("a", NULL, &map, &error), GS_OK);
        assert_false(gs_file_map_damaged(map));
        uint64_t kept = PAGE(round % PAGES);
        assert_int_equal(truncate(map->path, (off_t)kept), 0);
        pthread_t threads[READERS];
        for (size_t i = 0; i < READERS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, sum_all, map), 0);
        for (size_t i = 0; i < READERS; i++) {
            void *sum;
            assert_int_equal(pthread_join(threads[i], &sum), 0);
            assert_int_equal((uintptr_t)sum, 3 * kept);
        }
        assert_true(gs_file_map_damaged(map));
        assert_int_equal(gs_file_map_check(map, &error), GS_FILE_CHANGED);
        assert_message(&error, "went missing");
        gs_file_map_close(map);
    }
    assert_false(gs_file_map_damaged(other));
    assert_int_equal((uintptr_t)sum_all(other), PAGE(PAGES));
    assert_int_equal(gs_file_map_check(other, &error), GS_OK);
    gs_file_map_close(other);
}

/* More holes than a process may have mappings (65,530 is Linux's default), from either end. */
static void many_missing_pages(void **state)
{
    (void)state;
    const uint64_t n_page = 140000;
    for (unsigned backward = 0; backward < 2; backward++) {
        struct gs_file_map *map;
        struct gs_error error;
        write_text(folder, "a", "x");
        char *path = path_in(folder, "a");
        assert_int_equal(truncate(path, (off_t)PAGE(n_page)), 0);
        free(path);
        assert_int_equal(open_in("a", NULL, &map, &error), GS_OK);
        assert_int_equal(truncate(map->path, 0), 0);
        for (uint64_t i = 0; i < n_page; i += 2)
            assert_int_equal(map->data[PAGE(backward ? n_page - 1 - i : i)], 0);
        assert_true(gs_file_map_damaged(map));
        gs_file_map_close(map);
    }
}

/* Readers run while others open and close: the handler must find its slot among changing ones. */
static atomic_bool churning;

static void *churn(void *user)
{
    char *path = user;
    while (atomic_load(&churning)) {
        struct gs_file_map *map;
        if (gs_file_map_open(path, NULL, &map, NULL) != GS_OK)
            return path;
        gs_file_map_close(map);
    }
    return NULL;
}

static void shrinks_among_changing_slots(void **state)
{
    (void)state;
    struct gs_error error;
    write_pages("still", 1);
    char *still = path_in(folder, "still");
    pthread_t threads[3];
    atomic_store(&churning, true);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, still), 0);
    for (unsigned round = 0; round < 200; round++) {
        struct gs_file_map *map;
        write_pages("a", 1);
        assert_int_equal(open_in("a", NULL, &map, &error), GS_OK);
        assert_int_equal(truncate(map->path, 0), 0);
        assert_int_equal((uintptr_t)sum_all(map), 0);
        assert_true(gs_file_map_damaged(map));
        gs_file_map_close(map);
    }
    atomic_store(&churning, false);
    for (size_t i = 0; i < 3; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    free(still);
}

static void the_table_is_bounded(void **state)
{
    (void)state;
    static struct gs_file_map *maps[GS_FILE_MAP_MAX];
    struct gs_file_map *map;
    struct gs_error error;
    write_text(folder, "a", "x");
    size_t count = 0;
    while (count < GS_FILE_MAP_MAX && open_in("a", NULL, &maps[count], &error) == GS_OK)
        count++;
    if (count == GS_FILE_MAP_MAX) {
        assert_int_equal(open_in("a", NULL, &map, &error), GS_UNSUPPORTED);
        assert_message(&error, "1024 files are mapped already");
    } else {
        assert_int_equal(error.code, GS_IO); /* the system's limit of descriptors came first */
    }
    for (size_t i = 0; i < count; i++)
        gs_file_map_close(maps[i]);
    assert_int_equal(open_in("a", NULL, &map, &error), GS_OK);
    gs_file_map_close(map);
}

/* ---------------------------------------------------------------- other people's SIGBUS */

/* Runs `body` in a child; its exit code, or minus the signal that ended it. */
static int run_child(void (*body)(const char *path))
{
    write_pages("a", 1);
    char *path = path_in(folder, "a");
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        body(path);
        _exit(99);
    }
    free(path);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void no_core(void)
{
    signal(SIGBUS, SIG_DFL); /* a sanitizer's own handler would report and exit instead */
}

static volatile const unsigned char *foreign_map(const char *path)
{
    int descriptor = open(path, O_RDWR);
    void *data = mmap(NULL, PAGE(PAGES), PROT_READ, MAP_SHARED, descriptor, 0);
    if (data == MAP_FAILED || ftruncate(descriptor, 0) != 0)
        _exit(98);
    return data;
}

static struct gs_file_map *own_map(const char *path)
{
    struct gs_file_map *map;
    if (gs_file_map_open(path, NULL, &map, NULL) != GS_OK)
        _exit(97);
    return map;
}

static void foreign_fault_default(const char *path)
{
    struct gs_file_map *map = own_map(path);
    volatile const unsigned char *data = foreign_map(path);
    _exit(data[0] + gs_file_map_damaged(map));
}

static void killed_by_default(const char *path)
{
    own_map(path);
    raise(SIGBUS);
}

static void killed_ignored(const char *path)
{
    own_map(path);
    raise(SIGBUS);
    _exit(7);
}

static void exit_21(int number)
{
    (void)number;
    _exit(21);
}

static void exit_22(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    _exit(info->si_addr ? 22 : 23);
}

static void handled_before(const char *path)
{
    signal(SIGBUS, exit_21);
    foreign_fault_default(path);
}

static void handled_before_with_info(const char *path)
{
    struct sigaction action = {0};
    action.sa_sigaction = exit_22;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGBUS, &action, NULL);
    foreign_fault_default(path);
}

static void default_before(const char *path)
{
    no_core();
    foreign_fault_default(path);
}

static void default_before_raise(const char *path)
{
    no_core();
    killed_by_default(path);
}

static void ignored_before_raise(const char *path)
{
    signal(SIGBUS, SIG_IGN);
    killed_ignored(path);
}

static void ignored_before_fault(const char *path)
{
    signal(SIGBUS, SIG_IGN);
    foreign_fault_default(path);
}

/* After close the addresses are nobody's: a fault there is no longer ours to hide. */
static void closed_before_fault(const char *path)
{
    signal(SIGBUS, exit_21);
    struct gs_file_map *map = own_map(path);
    void *address = (void *)(uintptr_t)map->data;
    int descriptor = open(path, O_RDWR);
    gs_file_map_close(map);
    volatile unsigned char *data =
        mmap(address, PAGE(PAGES), PROT_READ, MAP_SHARED | MAP_FIXED, descriptor, 0);
    if (ftruncate(descriptor, 0) != 0)
        _exit(98);
    _exit(data[0]);
}

static void own_fault(const char *path)
{
    signal(SIGBUS, exit_21);
    struct gs_file_map *map = own_map(path);
    if (truncate(path, 0) != 0)
        _exit(98);
    _exit(map->data[PAGE(3)] == 0 && gs_file_map_damaged(map) ? 5 : 6);
}

/* A signal that a process made up, with an address of ours in it, is none of ours. */
static void forged(const char *path)
{
    signal(SIGBUS, exit_21);
    struct gs_file_map *map = own_map(path);
#ifdef SYS_rt_tgsigqueueinfo
    siginfo_t info = {0};
    info.si_code = SI_QUEUE;
    info.si_addr = (void *)(uintptr_t)map->data;
    syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), SIGBUS, &info);
    _exit(map->data[0] == 1 && !gs_file_map_damaged(map) ? 7 : 8);
#else
    _exit(map ? 21 : 8);
#endif
}

static void foreign_signals_go_on(void **state)
{
    (void)state;
    /* This process's own first mapping must not stand between the children and their handlers, so these
     * run before any other test maps something. */
    assert_int_equal(run_child(own_fault), 5);
    assert_int_equal(run_child(handled_before), 21);
    assert_int_equal(run_child(handled_before_with_info), 22);
    assert_int_equal(run_child(default_before), -SIGBUS);
    assert_int_equal(run_child(default_before_raise), -SIGBUS);
    assert_int_equal(run_child(ignored_before_raise), 7);
    assert_int_equal(run_child(ignored_before_fault), -SIGBUS);
    assert_int_equal(run_child(closed_before_fault), 21);
    assert_int_equal(run_child(forged), 21);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(foreign_signals_go_on, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(maps_and_checks, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(same_size_other_time, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(what_is_no_file, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(links_stay_inside, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(links_into_the_hub_cache, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(any_path_opens, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(shrinks_under_readers, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(many_missing_pages, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(shrinks_among_changing_slots, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(the_table_is_bounded, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
