/* Cores are counted once however many hardware threads they have; what the system does not tell; quotas. */
#include "base/processors.h"
#include "tests/support/check.h"
#include "tests/support/files.h"

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

/* Linux alone has it; elsewhere nothing happens and the processor is not known. */
static void a_processor_can_be_avoided(void **state)
{
    (void)state;
    int before = gs_processors_current();
    size_t allowed = gs_processors_allowed();
    if (before < 0)
        return;
    gs_processors_avoid(before);
    if (allowed > 1)
        assert_int_not_equal(gs_processors_current(), before);
    gs_processors_avoid(-1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hardware_threads_count_once),
        cmocka_unit_test(quotas),
        cmocka_unit_test(counts_of_this_machine),
        cmocka_unit_test(a_processor_can_be_avoided),
    };
    return cmocka_run_group_tests_name("base/processors", tests, NULL, NULL);
}
