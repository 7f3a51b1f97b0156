/* Cores are counted once however many hardware threads they have; what the system does not tell; quotas. */
#include "base/processors.h"
#include "tests/support/check.h"
#include "tests/support/files.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static void write_topology(const char *folder, int processor, int package, int core)
{
    static const char *const names[] = {"physical_package_id", "core_id"};
    const int values[] = {package, core};
    char path[4096], text[16];
    snprintf(path, sizeof path, "%s/cpu%d", folder, processor);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/cpu%d/topology", folder, processor);
    assert_int_equal(mkdir(path, 0700), 0);
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/cpu%d/topology/%s", folder, processor, names[i]);
        int size = snprintf(text, sizeof text, "%d\n", values[i]);
        test_file_write(path, text, (size_t)size);
    }
}

static void hardware_threads_count_once(void **state)
{
    (void)state;
    char *folder = test_folder_make();
    /* Two packages of two cores of two threads each, numbered as many machines do. */
    for (int processor = 0; processor < 8; processor++)
        write_topology(folder, processor, processor / 2 % 2, processor % 2);
    assert_int_equal(gs_processors_cores_in(folder, 8), 4);
    assert_int_equal(gs_processors_cores_in(folder, 3), 3);
    assert_int_equal(gs_processors_cores_in(folder, 5), 4);
    /* Processors 8 and 9 say nothing: each a core of its own. */
    assert_int_equal(gs_processors_cores_in(folder, 10), 6);
    assert_int_equal(gs_processors_cores_in("tests/data/none", 3), 3);
    test_folder_remove(folder);
}

static void quotas(void **state)
{
    (void)state;
    assert_int_equal(gs_processors_of_quota("max 100000\n"), 0);
    assert_int_equal(gs_processors_of_quota("200000 100000\n"), 2);
    assert_int_equal(gs_processors_of_quota("250000 100000\n"), 2);
    assert_int_equal(gs_processors_of_quota("50000 100000\n"), 1);
    assert_int_equal(gs_processors_of_quota("50000 0\n"), 0);
    assert_int_equal(gs_processors_of_quota(""), 0);
}

static void counts_of_this_machine(void **state)
{
    (void)state;
    size_t allowed = gs_processors_allowed(), cores = gs_processors_cores();
    assert_true(cores >= 1 && cores <= allowed);
}

static void write_text(const char *folder, const char *name, const char *text)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    test_file_write(path, text, strlen(text));
}

/* The process's own group and every one above it limit it, in either version. */
static void quotas_of_control_groups(void **state)
{
    (void)state;
    char *folder = test_folder_make();
    static const char *const one = "12:pids:/a\n3:cpuacct,cpu:/a/b\n0::/none\n";
    write_text(folder, "a/cpu.max", "300000 100000\n");
    write_text(folder, "a/b/cpu.max", "max 100000\n");
    write_text(folder, "a/c/cpu.max", "150000 100000\n");
    assert_int_equal(gs_processors_quota_in("0::/a/b\n", folder), 3);
    assert_int_equal(gs_processors_quota_in("0::/a/c\n", folder), 1);
    assert_int_equal(gs_processors_quota_in("0::/d\n", folder), 0);
    assert_int_equal(gs_processors_quota_in(one, folder), 0);
    write_text(folder, "cpu/a/b/cpu.cfs_quota_us", "-1\n");
    write_text(folder, "cpu/a/b/cpu.cfs_period_us", "100000\n");
    assert_int_equal(gs_processors_quota_in(one, folder), 0);
    write_text(folder, "cpu/cpu.cfs_quota_us", "250000\n");
    write_text(folder, "cpu/cpu.cfs_period_us", "50000\n");
    assert_int_equal(gs_processors_quota_in(one, folder), 5);
    assert_int_equal(gs_processors_quota_in("3:cpuset,cpuacct:/a/b\n", folder), 0);
    /* Neither of them may make it fail. */
    assert_int_equal(gs_processors_quota_in("", folder), 0);
    assert_int_equal(gs_processors_quota_in("3:cpu\n0:\n:::\n", folder), 0);
    test_folder_remove(folder);
}

/* Linux alone has it; elsewhere nothing happens and the processor is not known. */
static void a_processor_can_be_avoided(void **state)
{
    (void)state;
    struct gs_processors *given = gs_processors_remember();
    int before = gs_processors_current();
    size_t allowed = gs_processors_allowed();
    gs_processors_avoid(NULL, before);
    if (given && before >= 0) {
        gs_processors_avoid(given, before);
        if (allowed > 1)
            assert_int_not_equal(gs_processors_current(), before);
        gs_processors_avoid(given, -1);
        assert_int_equal(gs_processors_allowed(), allowed);
    }
    gs_processors_forget(given);
    gs_processors_forget(NULL);
}

#if defined(__linux__)
static cpu_set_t own_set(void)
{
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    return set;
}

/* On a thread that was given less than the process: it never runs where it was not to. */
static void *avoid_all_in_turn(void *only)
{
    cpu_set_t given = *(const cpu_set_t *)only, set;
    assert_int_equal(sched_setaffinity(0, sizeof given, &given), 0);
    struct gs_processors *memory = gs_processors_remember();
    assert_non_null(memory);
    for (int processor = -1; processor < CPU_SETSIZE; processor++) {
        gs_processors_avoid(memory, processor);
        set = own_set();
        CPU_OR(&set, &set, &given);
        assert_true(CPU_EQUAL(&set, &given));
    }
    gs_processors_avoid(memory, -1);
    set = own_set();
    assert_true(CPU_EQUAL(&set, &given));
    gs_processors_forget(memory);
    return NULL;
}

/* What a thread was given stays its limit, whatever the process's first thread may; so does a later change.
 */
static void what_was_given_is_kept(void **state)
{
    (void)state;
    cpu_set_t all = own_set(), only;
    CPU_ZERO(&only);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&only) == 0; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &only);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, avoid_all_in_turn, &only), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);

    struct gs_processors *given = gs_processors_remember();
    gs_processors_avoid(given, -1);
    assert_int_equal(sched_setaffinity(0, sizeof only, &only), 0); /* as taskset does from outside */
    gs_processors_avoid(given, -1);
    cpu_set_t set = own_set();
    assert_true(CPU_EQUAL(&set, &only));
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    gs_processors_forget(given);
}
#else
static void what_was_given_is_kept(void **state)
{
    (void)state;
    assert_null(gs_processors_remember());
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hardware_threads_count_once), cmocka_unit_test(quotas),
        cmocka_unit_test(counts_of_this_machine),      cmocka_unit_test(quotas_of_control_groups),
        cmocka_unit_test(a_processor_can_be_avoided),  cmocka_unit_test(what_was_given_is_kept),
    };
    return cmocka_run_group_tests_name("base/processors", tests, NULL, NULL);
}
