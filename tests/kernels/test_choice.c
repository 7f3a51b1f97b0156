/*
 * Which kernels are chosen: kernels.c compiled with a processor and a system of the test's. This object takes
 * the place of the library's, so what fast_kernels.c answers is tested too. Above all AMX, which needs the
 * processor, the system's state and its permission.
 */
#include "tests/support/check.h"

#if defined(__x86_64__) && defined(__linux__)
#include "backend/cpu/fast_kernels.h"
#include "backend/cpu/kernels.h"
#include "base/arm.h"

#include <cpuid.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    const char *sets;        /* of __builtin_cpu_supports, each between spaces */
    unsigned f16c, avx_vnni; /* bits that are asked by number, in their places */
    unsigned tiles;          /* of leaf 7: EDX */
    unsigned enabled;        /* XCR0 */
    long refusal;            /* what asking for the tiles' state returns */
    int n_asked;
} machine;

static bool supports(const char *set)
{
    char word[32];
    snprintf(word, sizeof word, " %s ", set);
    return strstr(machine.sets, word) != NULL;
}

static int ask(unsigned leaf, unsigned subleaf, unsigned *a, unsigned *b, unsigned *c, unsigned *d)
{
    *a = leaf == 7 && subleaf == 1 ? machine.avx_vnni : 0;
    *b = 0;
    *c = leaf == 1 ? machine.f16c : 0;
    *d = leaf == 7 && subleaf == 0 ? machine.tiles : 0;
    return 1;
}

/* ARCH_REQ_XCOMP_PERM of XFEATURE_XTILEDATA is all that may be asked. */
static long call_system(long number, long what, long feature)
{
    assert_int_equal(number, SYS_arch_prctl);
    assert_int_equal(what, 0x1023);
    assert_int_equal(feature, 18);
    machine.n_asked++;
    return machine.refusal;
}

#define __builtin_cpu_supports(set)                  supports(set)
#define __get_cpuid(leaf, a, b, c, d)                ask(leaf, 0, a, b, c, d)
#define __get_cpuid_count(leaf, subleaf, a, b, c, d) ask(leaf, subleaf, a, b, c, d)
#define syscall(number, what, feature)               call_system(number, what, feature)
#define __asm__(...) (void)(state_low = machine.enabled, state_high = 0) /* xgetbv */
#include "backend/cpu/kernels.c"
#undef __asm__

#define AVX512 " avx2 fma avx512f avx512bw avx512dq avx512vl "
#define ALL    AVX512 "avx512vnni avx512vbmi avx512bf16 "

#define TILE         (1u << 24)
#define INT8         (1u << 25)
#define TILE_CONFIG  (1u << 17)
#define TILE_DATA    (1u << 18)
#define USUAL_STATES 0xE7u

static void become_sapphire_rapids(void)
{
    machine.sets = ALL;
    machine.f16c = bit_F16C;
    machine.avx_vnni = 1u << 4;
    machine.tiles = TILE | INT8;
    machine.enabled = USUAL_STATES | TILE_CONFIG | TILE_DATA;
    machine.refusal = 0;
    machine.n_asked = 0;
}

static bool is_missing(const char *isa)
{
    for (size_t i = 0; gs_kernels_missing(i); i++)
        if (strcmp(gs_kernels_missing(i), isa) == 0)
            return true;
    return false;
}

static void expect_best(const char *isa)
{
    assert_string_equal(gs_kernels_best()->isa, isa);
    assert_string_equal(gs_fast_kernels_best()->isa, isa);
}

static void expect_no_tiles(bool may_ask)
{
    machine.n_asked = 0;
    expect_best("avx512bf16");
    assert_null(gs_kernels_find("amx"));
    assert_null(gs_fast_kernels_find("amx"));
    assert_true(is_missing("amx"));
    assert_true((machine.n_asked > 0) == may_ask);
}

static void tiles_are_chosen_where_all_is_there(void **state)
{
    (void)state;
    become_sapphire_rapids();
    expect_best("amx");
    assert_true(machine.n_asked > 0);
    assert_non_null(gs_kernels_find("amx"));
    assert_false(is_missing("amx"));
}

static void refused_tiles_are_not_chosen(void **state)
{
    (void)state;
    become_sapphire_rapids();
    machine.refusal = -1;
    expect_no_tiles(true);
}

static void without_the_processor_or_the_state_nobody_asks(void **state)
{
    (void)state;
    become_sapphire_rapids();
    machine.tiles = TILE;
    expect_no_tiles(false);
    machine.tiles = INT8;
    expect_no_tiles(false);
    become_sapphire_rapids();
    machine.enabled = USUAL_STATES | TILE_CONFIG;
    expect_no_tiles(false);
    machine.enabled = USUAL_STATES | TILE_DATA;
    expect_no_tiles(false);
    become_sapphire_rapids();
    machine.sets = AVX512 "avx512vnni avx512vbmi "; /* the rest of the kernels needs BF16 */
    expect_best("avx512vnni");
    assert_int_equal(machine.n_asked, 0);
}

static void each_set_has_its_kernels(void **state)
{
    static const struct {
        const char *sets;
        unsigned avx_vnni;
        const char *isa;
    } processors[] = {
        {ALL, 0, "avx512bf16"},
        {AVX512 "avx512vnni avx512vbmi ", 0, "avx512vnni"},
        {AVX512 "avx512vnni ", 0, "avx512vnni256"},
        {AVX512, 1u << 4, "avx512"},
        {" avx2 fma avx512f avx512bw avx512dq ", 0, "avx2"},
        {" avx2 fma ", 1u << 4, "avxvnni"},
        {" avx2 fma ", 0, "avx2"},
        {" avx2 ", 0, "generic"},
        {" ", 1u << 4, "generic"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof processors / sizeof *processors; i++) {
        become_sapphire_rapids();
        machine.tiles = 0;
        machine.sets = processors[i].sets;
        machine.avx_vnni = processors[i].avx_vnni;
        expect_best(processors[i].isa);
    }
    machine.sets = " avx2 fma ";
    machine.avx_vnni = machine.f16c = 0;
    expect_best("generic");
}
#else
static void tiles_are_chosen_where_all_is_there(void **state)
{
    (void)state;
    print_message("  skipped: for x86-64 and Linux\n");
    skip();
}
#define refused_tiles_are_not_chosen                   tiles_are_chosen_where_all_is_there
#define without_the_processor_or_the_state_nobody_asks tiles_are_chosen_where_all_is_there
#define each_set_has_its_kernels                       tiles_are_chosen_where_all_is_there
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_are_chosen_where_all_is_there),
        cmocka_unit_test(refused_tiles_are_not_chosen),
        cmocka_unit_test(without_the_processor_or_the_state_nobody_asks),
        cmocka_unit_test(each_set_has_its_kernels),
    };
    return cmocka_run_group_tests_name("kernels/choice", tests, NULL, NULL);
}
