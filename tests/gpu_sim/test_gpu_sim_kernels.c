/*
 * Every kernel that CUDA and HIP share, on this processor with waves of 32 and of 64 lanes, in three orders
 * of its threads; and that a fault put into one is noticed.
 */
#include "tests/gpu_sim/checks.h"
#include "tests/support/check.h"

#include <dlfcn.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const struct {
    enum sim_order order;
    const char *name;
} orders[] = {{SIM_FORWARD, "forward"}, {SIM_REVERSE, "reverse"}, {SIM_RANDOM, "random"}};

/* The library beside this program; NULL: it was not built, since there is no C++ compiler. */
static const struct gpu_sim *open_sim(const char *name)
{
    char program[1024] = "", path[1200];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    snprintf(path, sizeof path, "%s/libgpusim%s.so", dirname(program), name);
    void *library = access(path, R_OK) == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library && access(path, R_OK) == 0)
        fail_msg("%s", dlerror());
    void *found = library ? dlsym(library, GPU_SIM_TABLE) : NULL;
    gpu_sim_fn *table = NULL;
    memcpy(&table, &found, sizeof found);
    return table ? table() : NULL;
}

/* Every kernel in every order, sums made in one exchange and in many: the same bits. */
static void run_all(const char *width)
{
    const struct gpu_sim *sim = open_sim(width);
    struct check check = {.sim = sim};
    if (!sim) {
        print_message("  the shared kernels are not run: they need a C++ compiler\n");
        skip();
    }
    assert_int_equal(sim->n_lane, atoi(width));
    for (size_t i = 0; i < check_entry_count; i++) {
        uint64_t hash = 0;
        for (size_t o = 0; o < 4; o++) {
            check.order = orders[o % 3].order;
            check.sums_whole = o < 3;
            if (!check_run(&check, check_entries[i].run))
                fail_msg("%s, %s lanes, %s: %s", check_entries[i].name, width, orders[o % 3].name,
                         check.message);
            if (o > 0 && check.hash != hash)
                fail_msg("%s, %s lanes, %s: other bits than forward", check_entries[i].name, width,
                         orders[o % 3].name);
            hash = check.hash;
        }
    }
    for (size_t i = 0; i < sim->count(); i++)
        if (!(check.launched >> i & 1))
            fail_msg("no check runs %s", sim->name(i));
}

static void waves_of_32_lanes(void **state)
{
    (void)state;
    run_all("32");
}

static void waves_of_64_lanes(void **state)
{
    (void)state;
    run_all("64");
}

/* What a check says of a faulty kernel in each order: notices[i] is whether it must complain there. */
struct fault {
    const char *file;
    check_fn *check;
    bool notices[3];
    const char *says; /* in its complaint */
};

static const struct fault faults[] = {
    {"32-first-read", check_norm, {true, true, true}, "norm: element"},
    {"32-before-write", check_attention, {true, true, true}, "attention: element"},
    {"32-past-end", check_add, {true, true, true}, "past its end"},
    {"32-past-shared", check_attention, {true, true, true}, "memory fault"},
    {"32-swapped", check_rotate, {true, true, true}, "rotate: keys"},
    {"32-split", check_choose, {true, true, true}, "split wave"},
    {"32-barrier", check_norm, {true, true, true}, "a barrier that not every thread reaches"},
    {"32-last-row", check_linear, {true, true, true}, "linear: element"},
    /* A 32 written as a number is right at that width: only waves of 64 show it. */
    {"32-mask-32", check_choose, {false, false, false}, ""},
    {"32-lane-32", check_linear, {false, false, false}, ""},
    {"64-mask-32", check_choose, {true, true, true}, "choose: byte"},
    {"64-lane-32", check_linear, {true, true, true}, "linear: element"},
};

static void faults_are_noticed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct check check = {.sim = open_sim(faults[i].file), .sums_whole = true};
        if (!check.sim)
            skip();
        for (size_t o = 0; o < 3; o++) {
            check.order = orders[o].order;
            bool ok = check_run(&check, faults[i].check);
            print_message("%-16s %-8s %s\n", faults[i].file, orders[o].name, ok ? "nothing" : check.message);
            assert_int_equal(!ok, faults[i].notices[o]);
            if (!ok && !strstr(check.message, faults[i].says))
                fail_msg("%s: \"%s\" lacks \"%s\"", faults[i].file, check.message, faults[i].says);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waves_of_32_lanes),
        cmocka_unit_test(waves_of_64_lanes),
        cmocka_unit_test(faults_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
