/*
 * The emulated tile instructions: their numbers against the formula, their exceptions against those that the
 * manual lists; and where the processor has AMX, its instructions against both.
 */
#include "backend/cpu/kernels.h"
#include "tests/support/check.h"
#include "tests/support/tiles_emulated.h"

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>

struct machine {
    void (*load_config)(const void *from);
    void (*store_config)(void *to);
    void (*release)(void);
    void (*zero)(int tile);
    void (*load)(int tile, const void *from, int64_t stride);
    void (*store)(int tile, void *to, int64_t stride);
    void (*dot)(enum tile_opcode opcode, int sums, int first, int second);
};

static const struct machine emulated = {
    emulate_load_config, emulate_store_config, emulate_release, emulate_zero,
    emulate_load,        emulate_store,        emulate_dot,
};

/* ---------------------------------------------------------------- this processor's */

#if defined(__x86_64__) && defined(__linux__)
#define HAVE_TRUE 1
#include <immintrin.h>

#define USES_TILES       __attribute__((target("amx-tile,amx-int8"), noinline))
#define MEMORY_IS_USED() __asm__ volatile("" ::: "memory")

/* A tile's number is part of the instruction. */
#define WITH_TILE(tile, act)                                                                                 \
    switch (tile) {                                                                                          \
    case 0:                                                                                                  \
        act(0);                                                                                              \
        break;                                                                                               \
    case 1:                                                                                                  \
        act(1);                                                                                              \
        break;                                                                                               \
    case 2:                                                                                                  \
        act(2);                                                                                              \
        break;                                                                                               \
    case 3:                                                                                                  \
        act(3);                                                                                              \
        break;                                                                                               \
    case 5:                                                                                                  \
        act(5);                                                                                              \
        break;                                                                                               \
    case 7:                                                                                                  \
        act(7);                                                                                              \
        break;                                                                                               \
    default:                                                                                                 \
        abort();                                                                                             \
    }

USES_TILES static void true_load_config(const void *from)
{
    MEMORY_IS_USED();
    _tile_loadconfig(from);
}

USES_TILES static void true_store_config(void *to)
{
    _tile_storeconfig(to);
    MEMORY_IS_USED();
}

USES_TILES static void true_release(void)
{
    _tile_release();
}

USES_TILES static void true_zero(int tile){WITH_TILE(tile, _tile_zero)}

USES_TILES static void true_load(int tile, const void *from, int64_t stride)
{
#define LOAD(t) _tile_loadd(t, from, stride)
    MEMORY_IS_USED();
    WITH_TILE(tile, LOAD)
}

USES_TILES static void true_store(int tile, void *to, int64_t stride)
{
#define STORE(t) _tile_stored(t, to, stride)
    WITH_TILE(tile, STORE)
    MEMORY_IS_USED();
}

/* Of tiles 0 1 2, 7 3 5, 0 1 3 and 0 2 1 alone. */
USES_TILES static void true_dot(enum tile_opcode opcode, int sums, int first, int second)
{
    switch ((int)opcode * 1000 + sums * 100 + first * 10 + second) {
    case TILE_DOT_SS * 1000 + 12:
        _tile_dpbssd(0, 1, 2);
        break;
    case TILE_DOT_SU * 1000 + 12:
        _tile_dpbsud(0, 1, 2);
        break;
    case TILE_DOT_US * 1000 + 12:
        _tile_dpbusd(0, 1, 2);
        break;
    case TILE_DOT_UU * 1000 + 12:
        _tile_dpbuud(0, 1, 2);
        break;
    case TILE_DOT_SS * 1000 + 735:
        _tile_dpbssd(7, 3, 5);
        break;
    case TILE_DOT_SU * 1000 + 735:
        _tile_dpbsud(7, 3, 5);
        break;
    case TILE_DOT_US * 1000 + 735:
        _tile_dpbusd(7, 3, 5);
        break;
    case TILE_DOT_UU * 1000 + 735:
        _tile_dpbuud(7, 3, 5);
        break;
    case TILE_DOT_SU * 1000 + 13:
        _tile_dpbsud(0, 1, 3);
        break;
    case TILE_DOT_SU * 1000 + 21:
        _tile_dpbsud(0, 2, 1);
        break;
    default:
        abort();
    }
}

static const struct machine processor = {
    true_load_config, true_store_config, true_release, true_zero, true_load, true_store, true_dot,
};
#endif

/* ---------------------------------------------------------------- programs of a product */

#define MEMORY 4096 /* bytes of each matrix, its rows anywhere in them */

struct product {
    enum tile_opcode opcode;
    int tile[3];
    unsigned rows, lanes, depth; /* int32 [rows][lanes] = bytes [rows][4 depth] times [depth][lanes][4] */
    int64_t stride[3];           /* sums, first, second */
    bool adds, twice;            /* to sums from memory; the product two times */
    uint8_t sums[MEMORY], first[MEMORY], second[MEMORY];
};

static uint32_t next_random(uint64_t *random)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*random >> 33);
}

/* Half of the bytes are at an end of their range. */
static void fill(uint8_t *bytes, uint64_t *random)
{
    static const uint8_t ends[] = {0x80, 0x7F, 0xFF, 0x00};
    for (size_t i = 0; i < MEMORY; i++) {
        uint32_t r = next_random(random);
        bytes[i] = r & 256 ? ends[r / 512 % 4] : (uint8_t)r;
    }
}

/* Backwards, on the spot, close together or apart. */
static int64_t choose_stride(int64_t row_bytes, bool may_overlap, uint64_t *random)
{
    uint32_t r = next_random(random);
    if (may_overlap && r % 8 == 0)
        return r / 8 % 2;
    int64_t stride = row_bytes + r / 8 % 3 * (r / 32 % 64);
    return r % 4 == 1 ? -stride : stride;
}

/* Of 16 rows at most 192 bytes apart, the first. */
static size_t first_row(int64_t stride)
{
    return stride < 0 ? MEMORY - 256 : 64;
}

static void make_product(struct product *p, uint64_t *random)
{
    static const int tiles[][3] = {{0, 1, 2}, {7, 3, 5}};
    uint32_t r = next_random(random);
    memcpy(p->tile, tiles[r % 2], sizeof p->tile);
    p->opcode = (enum tile_opcode)(TILE_DOT_SS + r / 2 % 4);
    p->rows = r / 8 % 4 == 0 ? 16 : 1 + r / 32 % 16;
    p->depth = r / 512 % 4 == 0 ? 16 : 1 + r / 2048 % 16;
    p->lanes = r / 32768 % 4 == 0 ? 16 : 1 + r / 131072 % 16;
    p->adds = next_random(random) % 4 > 0;
    p->twice = next_random(random) % 4 == 0;
    p->stride[0] = choose_stride(4 * p->lanes, false, random);
    p->stride[1] = choose_stride(4 * p->depth, true, random);
    p->stride[2] = choose_stride(4 * p->lanes, true, random);
    fill(p->sums, random);
    fill(p->first, random);
    fill(p->second, random);
}

static void set_tile(uint8_t config[TILE_ROW_BYTES], int tile, unsigned rows, unsigned bytes)
{
    config[16 + 2 * tile] = (uint8_t)bytes;
    config[48 + tile] = (uint8_t)rows;
}

static void run_product(const struct machine *machine, struct product *p)
{
    uint8_t config[TILE_ROW_BYTES] = {1}, seen[TILE_ROW_BYTES];
    const int *tile = p->tile;
    set_tile(config, tile[0], p->rows, 4 * p->lanes);
    set_tile(config, tile[1], p->rows, 4 * p->depth);
    set_tile(config, tile[2], p->depth, 4 * p->lanes);
    machine->load_config(config);
    machine->store_config(seen);
    assert_memory_equal(seen, config, sizeof seen);
    machine->load(tile[0], p->sums + first_row(p->stride[0]), p->stride[0]);
    if (!p->adds)
        machine->zero(tile[0]);
    machine->load(tile[1], p->first + first_row(p->stride[1]), p->stride[1]);
    machine->load(tile[2], p->second + first_row(p->stride[2]), p->stride[2]);
    machine->dot(p->opcode, tile[0], tile[1], tile[2]);
    if (p->twice)
        machine->dot(p->opcode, tile[0], tile[1], tile[2]);
    machine->store(tile[0], p->sums + first_row(p->stride[0]), p->stride[0]);
    machine->release();
    machine->store_config(seen);
    memset(config, 0, sizeof config);
    assert_memory_equal(seen, config, sizeof seen);
}

static int64_t byte_at(const uint8_t *matrix, int64_t stride, unsigned row, unsigned at, bool is_signed)
{
    uint8_t byte = matrix[(int64_t)first_row(stride) + (int64_t)row * stride + at];
    return is_signed && byte > 127 ? (int64_t)byte - 256 : byte;
}

/* As matrices, in 64 bits: element d of a row times element d of a column, for each d below 4 depth. */
static void expect_product(const struct product *p, uint8_t sums[MEMORY])
{
    bool is_first_signed = p->opcode == TILE_DOT_SS || p->opcode == TILE_DOT_SU;
    bool is_second_signed = p->opcode == TILE_DOT_SS || p->opcode == TILE_DOT_US;
    memcpy(sums, p->sums, MEMORY);
    for (unsigned row = 0; row < p->rows; row++)
        for (unsigned lane = 0; lane < p->lanes; lane++) {
            uint8_t *at = sums + (int64_t)first_row(p->stride[0]) + (int64_t)row * p->stride[0] + 4 * lane;
            int64_t sum = 0;
            uint32_t bits = 0;
            for (unsigned d = 0; d < 4 * p->depth; d++)
                sum += byte_at(p->first, p->stride[1], row, d, is_first_signed) *
                       byte_at(p->second, p->stride[2], d / 4, 4 * lane + d % 4, is_second_signed);
            if (p->adds)
                memcpy(&bits, at, sizeof bits);
            bits += (uint32_t)(p->twice ? 2 * sum : sum);
            memcpy(at, &bits, sizeof bits);
        }
}

static void products_follow_the_formula(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (int round = 0; round < 2000; round++) {
        static struct product p;
        static uint8_t expected[MEMORY];
        make_product(&p, &random);
        expect_product(&p, expected);
        tile_probe_attach(NULL);
        run_product(&emulated, &p);
        if (memcmp(p.sums, expected, MEMORY) != 0)
            fail_msg("opcode %d, rows %u, lanes %u, depth %u: not the formula's", (int)p.opcode, p.rows,
                     p.lanes, p.depth);
    }
}

/* ---------------------------------------------------------------- exceptions */

enum configuration { LOADED, PALETTE_0, PALETTE_2, NEVER_LOADED, RELEASED };

/* A good configuration (0: 16 x 64, 1: 16 x 32, 2: 8 x 64) with two bytes changed, then one instruction. */
struct misuse {
    const char *what;
    struct {
        uint8_t at, value;
    } patch[2]; /* at 0: none */
    enum configuration configuration;
    enum tile_opcode opcode; /* TILE_LOAD_CONFIG: none more */
    int tile[3];
    enum tile_exception expected;
    bool is_emulated_only; /* what compilers refuse to write, or the manual leaves in doubt */
};

#define UD   TILE_UNDEFINED_OPCODE
#define GP   TILE_GENERAL_PROTECTION
#define FINE TILE_NO_EXCEPTION

static const struct misuse misuses[] = {
    {"a good product", {{0}}, LOADED, TILE_DOT_SU, {0, 1, 2}, FINE, false},
    {"a good load", {{0}}, LOADED, TILE_LOAD, {1}, FINE, false},
    {"a good store", {{0}}, LOADED, TILE_STORE, {0}, FINE, false},
    {"a tile of zeros", {{0}}, LOADED, TILE_ZERO, {2}, FINE, false},
    {"palette 0", {{0}}, PALETTE_0, TILE_LOAD_CONFIG, {0}, FINE, false},
    {"palette 0, then a product", {{0}}, PALETTE_0, TILE_DOT_SU, {0, 1, 2}, UD, false},
    {"palette 2", {{0}}, PALETTE_2, TILE_LOAD_CONFIG, {0}, GP, false},
    {"byte 2 is reserved", {{2, 1}}, LOADED, TILE_LOAD_CONFIG, {0}, GP, false},
    {"byte 15 is reserved", {{15, 1}}, LOADED, TILE_LOAD_CONFIG, {0}, GP, false},
    {"byte 32 is reserved", {{32, 1}}, LOADED, TILE_LOAD_CONFIG, {0}, GP, false},
    {"byte 47 is reserved", {{47, 1}}, LOADED, TILE_LOAD_CONFIG, {0}, GP, false},
    {"byte 56 is reserved", {{56, 1}}, LOADED, TILE_LOAD_CONFIG, {0}, GP, false},
    {"byte 63 is reserved", {{63, 1}}, LOADED, TILE_LOAD_CONFIG, {0}, GP, false},
    {"17 rows", {{48, 17}}, LOADED, TILE_LOAD_CONFIG, {0}, GP, false},
    {"65 bytes a row", {{16, 65}}, LOADED, TILE_LOAD_CONFIG, {0}, GP, false},
    {"320 bytes a row", {{17, 1}}, LOADED, TILE_LOAD_CONFIG, {0}, GP, false},
    {"rows without bytes", {{55, 1}}, LOADED, TILE_LOAD_CONFIG, {0}, GP, false},
    {"bytes without rows", {{50, 0}}, LOADED, TILE_LOAD_CONFIG, {0}, GP, false},
    {"zero, never configured", {{0}}, NEVER_LOADED, TILE_ZERO, {0}, UD, false},
    {"load, never configured", {{0}}, NEVER_LOADED, TILE_LOAD, {1}, UD, false},
    {"store, never configured", {{0}}, NEVER_LOADED, TILE_STORE, {0}, UD, false},
    {"product, never configured", {{0}}, NEVER_LOADED, TILE_DOT_SU, {0, 1, 2}, UD, false},
    {"zero, released", {{0}}, RELEASED, TILE_ZERO, {0}, UD, false},
    {"load, released", {{0}}, RELEASED, TILE_LOAD, {1}, UD, false},
    {"store, released", {{0}}, RELEASED, TILE_STORE, {0}, UD, false},
    {"product, released", {{0}}, RELEASED, TILE_DOT_SU, {0, 1, 2}, UD, false},
    {"zero of a tile without a shape", {{0}}, LOADED, TILE_ZERO, {3}, UD, false},
    {"load of a tile without a shape", {{0}}, LOADED, TILE_LOAD, {3}, UD, false},
    {"store of a tile without a shape", {{0}}, LOADED, TILE_STORE, {3}, UD, false},
    {"product of a tile without a shape", {{0}}, LOADED, TILE_DOT_SU, {0, 1, 3}, UD, false},
    {"tile 8", {{0}}, LOADED, TILE_ZERO, {8}, UD, true},
    {"a product of tiles of one shape", {{18, 64}, {50, 16}}, LOADED, TILE_DOT_SU, {0, 1, 2}, FINE, false},
    {"product onto its first", {{18, 64}, {50, 16}}, LOADED, TILE_DOT_SU, {1, 1, 2}, UD, true},
    {"product onto its second", {{18, 64}, {50, 16}}, LOADED, TILE_DOT_SU, {2, 1, 2}, UD, true},
    {"square of a tile", {{18, 64}, {50, 16}}, LOADED, TILE_DOT_SU, {0, 1, 1}, UD, true},
    {"second before first", {{0}}, LOADED, TILE_DOT_SU, {0, 2, 1}, UD, false},
    {"sums of 15 rows", {{48, 15}}, LOADED, TILE_DOT_SU, {0, 1, 2}, UD, false},
    {"first of 15 rows", {{49, 15}}, LOADED, TILE_DOT_SU, {0, 1, 2}, UD, false},
    {"first of 28 bytes", {{18, 28}}, LOADED, TILE_DOT_SU, {0, 1, 2}, UD, false},
    {"second of 7 rows", {{50, 7}}, LOADED, TILE_DOT_SU, {0, 1, 2}, UD, false},
    {"second of 60 bytes", {{20, 60}}, LOADED, TILE_DOT_SU, {0, 1, 2}, UD, false},
    {"sums of 60 bytes", {{16, 60}}, LOADED, TILE_DOT_SU, {0, 1, 2}, UD, false},
    {"15 rows of both", {{48, 15}, {49, 15}}, LOADED, TILE_DOT_SU, {0, 1, 2}, FINE, false},
    {"a depth of 7", {{18, 28}, {50, 7}}, LOADED, TILE_DOT_SU, {0, 1, 2}, FINE, false},
    {"half a double word", {{16, 62}, {20, 62}}, LOADED, TILE_DOT_SU, {0, 1, 2}, UD, true},
    {"load of half a double word", {{18, 30}}, LOADED, TILE_LOAD, {1}, UD, true},
    {"load from row 16 of 16", {{1, 16}}, LOADED, TILE_LOAD, {1}, UD, true},
    {"load from row 15 of 16", {{1, 15}}, LOADED, TILE_LOAD, {1}, FINE, true},
};

static void run_misuse(const struct machine *machine, const struct misuse *misuse)
{
    static uint8_t memory[16 * TILE_ROW_BYTES];
    uint8_t config[TILE_ROW_BYTES] = {1};
    const int *tile = misuse->tile;
    set_tile(config, 0, 16, 64);
    set_tile(config, 1, 16, 32);
    set_tile(config, 2, 8, 64);
    for (int i = 0; i < 2; i++)
        if (misuse->patch[i].at > 0)
            config[misuse->patch[i].at] = misuse->patch[i].value;
    if (misuse->configuration != NEVER_LOADED)
        machine->load_config(config);
    config[0] = misuse->configuration == PALETTE_0 ? 0 : 2;
    if (misuse->configuration == PALETTE_0 || misuse->configuration == PALETTE_2)
        machine->load_config(config);
    if (misuse->configuration == RELEASED)
        machine->release();
    if (misuse->opcode == TILE_ZERO)
        machine->zero(tile[0]);
    else if (misuse->opcode == TILE_LOAD)
        machine->load(tile[0], memory, TILE_ROW_BYTES);
    else if (misuse->opcode == TILE_STORE)
        machine->store(tile[0], memory, TILE_ROW_BYTES);
    else if (misuse->opcode == TILE_DOT_SU)
        machine->dot(misuse->opcode, tile[0], tile[1], tile[2]);
}

static void misuse_raises_what_the_manual_lists(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof misuses / sizeof *misuses; i++) {
        struct tile_probe probe = {0};
        tile_probe_attach(&probe);
        run_misuse(&emulated, &misuses[i]);
        tile_probe_attach(NULL);
        if (probe.exception != misuses[i].expected)
            fail_msg("%s: exception %d, not %d", misuses[i].what, (int)probe.exception,
                     (int)misuses[i].expected);
        assert_true((probe.reason != NULL) == (misuses[i].expected != FINE));
    }
}

/* The row that a configuration names is where a load begins: the rows before it stay. */
static void a_load_may_begin_in_the_middle(void **state)
{
    (void)state;
    uint8_t config[TILE_ROW_BYTES] = {1, 3}, from[5][8], to[5][8];
    set_tile(config, 4, 5, 8);
    memset(from, 0x11, sizeof from);
    memset(to, 0x33, sizeof to);
    tile_probe_attach(NULL);
    emulate_load_config(config);
    emulate_load(4, from, 8);
    emulate_store(4, to, 8);
    assert_true(to[2][7] == 0 && to[3][0] == 0x11 && to[4][7] == 0x11);
    memset(from, 0x22, sizeof from);
    emulate_load(4, from, 8); /* the row is 0 again */
    emulate_store(4, to, 8);
    assert_memory_equal(to, from, sizeof to);
    tile_probe_attach(NULL);
}

/* ---------------------------------------------------------------- the processor and the emulation */

static void instructions_are_the_emulated_ones(void **state)
{
    (void)state;
#if defined(HAVE_TRUE)
    uint64_t random = 2;
    if (!gs_kernels_find("amx")) {
        print_message("  skipped: this processor has no AMX\n");
        skip();
    }
    for (int round = 0; round < 2000; round++) {
        static struct product p, copy;
        make_product(&p, &random);
        copy = p;
        tile_probe_attach(NULL);
        run_product(&emulated, &p);
        run_product(&processor, &copy);
        if (memcmp(p.sums, copy.sums, MEMORY) != 0)
            fail_msg("opcode %d, rows %u, lanes %u, depth %u: not the processor's", (int)p.opcode, p.rows,
                     p.lanes, p.depth);
    }
#else
    skip();
#endif
}

#if defined(HAVE_TRUE)
static sigjmp_buf before;

static void go_back(int signal)
{
    siglongjmp(before, signal);
}
#endif

static void exceptions_are_the_emulated_ones(void **state)
{
    (void)state;
#if defined(HAVE_TRUE)
    struct sigaction catch = {.sa_handler = go_back}, was[2];
    volatile size_t n_other = 0;
    if (!gs_kernels_find("amx")) {
        print_message("  skipped: this processor has no AMX\n");
        skip();
    }
    sigaction(SIGILL, &catch, &was[0]);
    sigaction(SIGSEGV, &catch, &was[1]);
    for (volatile size_t i = 0; i < sizeof misuses / sizeof *misuses; i++) {
        volatile bool raised = true;
        if (misuses[i].is_emulated_only)
            continue;
        true_release();
        if (sigsetjmp(before, 1) == 0) {
            run_misuse(&processor, &misuses[i]);
            raised = false;
        }
        true_release();
        if (raised != (misuses[i].expected != FINE)) {
            print_message("  %s: an exception %s\n", misuses[i].what, raised ? "is raised" : "is missing");
            n_other++;
        }
    }
    sigaction(SIGILL, &was[0], NULL);
    sigaction(SIGSEGV, &was[1], NULL);
    assert_int_equal(n_other, 0);
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_follow_the_formula),
        cmocka_unit_test(misuse_raises_what_the_manual_lists),
        cmocka_unit_test(a_load_may_begin_in_the_middle),
        cmocka_unit_test(instructions_are_the_emulated_ones),
        cmocka_unit_test(exceptions_are_the_emulated_ones),
    };
    return cmocka_run_group_tests_name("kernels/tiles", tests, NULL, NULL);
}
