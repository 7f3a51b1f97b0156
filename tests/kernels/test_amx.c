/*
 * The products for AMX with the tile instructions emulated (tests/support/tiles_model.c): the bits of the
 * AVX-512 kernels, the generic kernels' numbers, the instructions that they must execute, and faults put into
 * those, each of which must show. Where the processor has AMX, its own kernels against the emulated ones.
 */
#include "tests/support/check.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/tiles_emulated.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST_X      KERNEL_MAX_X
#define TILE_X      16 /* vectors of a tile */
#define LEAST_X     5  /* for which there is one */
#define ROWS_A_SIDE 16

static const char *const formats[] = {"mxfp4_q8", "mxfp4_q8, GGUF", "q8_0_q8"};

static const struct kernel_case *find_case(const char *name)
{
    for (size_t i = 0; i < kernel_case_count; i++)
        if (strcmp(kernel_cases[i].name, name) == 0)
            return &kernel_cases[i];
    fail_msg("no case \"%s\"", name);
    return NULL;
}

static void need_avx512(void)
{
    if (!gs_kernels_find("avx512bf16")) {
        print_message("  skipped: this processor has no AVX-512 BF16\n");
        skip();
    }
}

static unsigned char *call_variant(struct kernel_run *run, const char *isa)
{
    struct kernel_variant variant = {isa, NULL, gs_fast_kernels_find(isa)};
    unsigned char *out = malloc(run->out_size);
    assert_non_null(out);
    assert_non_null(variant.fast);
    kernel_call(run, &variant);
    memcpy(out, run->out, run->out_size);
    return out;
}

/* Nothing of the call may be seen after it: neither an exception nor registers in use. */
static bool call_emulated(struct kernel_run *run, struct tile_probe *probe)
{
    struct kernel_variant variant = {kernel_tiles_model.isa, NULL, &kernel_tiles_model};
    tile_probe_attach(probe);
    kernel_call(run, &variant);
    bool is_released = !emulated_tiles_are_configured();
    tile_probe_attach(NULL);
    return is_released;
}

/* ---------------------------------------------------------------- inputs */

/* Rows fill a side, or not; blocks fill the turns in which they are summed, or not. */
static struct kernel_shape choose_shape(size_t n_x, size_t round)
{
    static const size_t rows[] = {32, 1, 16, 31, 17, 7, 15},
                        blocks[] = {1, 17, 5, 16, 33, 3, 15, 22, 2, 45, 90};
    return (struct kernel_shape){32 * blocks[(3 * n_x + round) % 11], rows[(n_x + round) % 7], n_x};
}

enum input { AS_DRAWN, ENDS, ZERO_SCALE, N_INPUT };

/*
 * ENDS: every activation is 127 or -127, and every weight at an end. ZERO_SCALE: of one vector's block all is
 * zero, so that exponents may not be added. The memory is the case's own, and writable.
 */
static void change_input(struct kernel_run *run, enum input input, size_t seed)
{
    size_t n_blocks = run->shape.n / 32;
    for (size_t t = 0; t < run->shape.n_x && input == ENDS; t++)
        for (size_t block = 0; block < n_blocks; block++) {
            struct gs_q8_chunk *chunk = (struct gs_q8_chunk *)(uintptr_t)&run->q8[t][block / 4];
            int32_t q = (t + block + seed) % 3 == 0 ? -127 : 127;
            memset(chunk->q + block % 4 * 16, q, 16);
            memset(chunk->q + 64 + block % 4 * 16, q, 16);
            for (size_t i = 0; i < 4; i++)
                chunk->sum[block % 4 * 4 + i] = 32 * q;
        }
    if (input == ZERO_SCALE) {
        size_t block = seed % n_blocks, first = block % 4 * 16;
        struct gs_q8_chunk *chunk = (struct gs_q8_chunk *)(uintptr_t)&run->q8[run->shape.n_x / 2][block / 4];
        memset(chunk->q + first, 0, 16);
        memset(chunk->q + 64 + first, 0, 16);
        memset(&chunk->sum[block % 4 * 4], 0, 16);
        memset(&chunk->scale[block % 4 * 4], 0, 16);
    }
    for (size_t r = 0; r < run->shape.n_rows && input == ENDS; r++)
        for (size_t block = 0; block < n_blocks; block++) {
            bool is_high = (r + block) % 2;
            if (run->q8_0[r].blocks)
                memset((uint8_t *)(uintptr_t)run->q8_0[r].blocks + block * 34 + 2, is_high ? 127 : -127, 32);
            else if (run->mxfp4[r].scales)
                memset((uint8_t *)(uintptr_t)run->mxfp4[r].blocks + block * 16, is_high ? 0x77 : 0xFF, 16);
            else
                memset((uint8_t *)(uintptr_t)run->mxfp4[r].blocks + block * 17 + 1, is_high ? 0x77 : 0xFF,
                       16);
        }
}

/* ---------------------------------------------------------------- right */

/* 16 vectors are a tile, and so are the last ones if there are 5; a side of rows meets each once a block. */
static void check_count(const struct tile_probe *probe, const struct kernel_shape *shape)
{
    size_t n_tiles = 0, n_sides = (shape->n_rows + ROWS_A_SIDE - 1) / ROWS_A_SIDE;
    for (size_t left = shape->n_x; left >= LEAST_X; n_tiles++)
        left -= left < TILE_X ? left : TILE_X;
    size_t n_products = n_tiles * n_sides * shape->n / 32;
    assert_int_equal(probe->count[TILE_DOT_SU], n_products);
    assert_int_equal(probe->count[TILE_ZERO], n_products);
    assert_int_equal(probe->count[TILE_STORE], n_products);
    assert_int_equal(probe->count[TILE_LOAD], 2 * n_products);
    assert_int_equal(probe->count[TILE_LOAD_CONFIG], n_tiles > 0);
    assert_int_equal(probe->count[TILE_RELEASE], n_tiles > 0);
}

static void check_product(const struct kernel_case *kernel, struct kernel_shape shape, size_t round)
{
    struct kernel_run run;
    struct tile_probe probe = {0};
    kernel_prepare(&run, kernel, shape, shape.n_x + round);
    change_input(&run, (enum input)((shape.n_x + round) % N_INPUT), round);
    unsigned char *same = call_variant(&run, "avx512vnni"), *near = call_variant(&run, "generic");
    bool is_released = call_emulated(&run, &probe);
    if (probe.reason)
        fail_msg("%s: n %zu, rows %zu, vectors %zu: %s", kernel->name, shape.n, shape.n_rows, shape.n_x,
                 probe.reason);
    assert_true(is_released);
    check_count(&probe, &shape);
    if (memcmp(run.out, same, run.out_size) != 0)
        fail_msg("%s: n %zu, rows %zu, vectors %zu: not the bits of avx512vnni", kernel->name, shape.n,
                 shape.n_rows, shape.n_x);
    if (!(kernel_difference(&run, near, run.out) <= 1.0))
        fail_msg("%s: n %zu, rows %zu, vectors %zu: not generic's numbers", kernel->name, shape.n,
                 shape.n_rows, shape.n_x);
    free(same);
    free(near);
    kernel_release(&run);
}

static void products_are_those_of_avx512(void **state)
{
    (void)state;
    need_avx512();
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (size_t n_x = 1; n_x <= MOST_X; n_x++)
            check_product(find_case(formats[f]), choose_shape(n_x, f), f);
}

/* ---------------------------------------------------------------- faults put in */

enum fault {
    NO_FAULT,
    CONFIG_LEFT_OUT,
    CONFIG_OF_PALETTE_0,
    CONFIG_17_ROWS,
    CONFIG_65_BYTES,
    CONFIG_RESERVED_BYTE,
    CONFIG_15_VECTORS,
    CONFIG_15_SUMS,
    CONFIG_15_ROWS,
    CONFIG_DEPTH_28,
    CONFIG_DEPTH_28_OF_WEIGHTS,
    CONFIG_START_ROW,
    RELEASED_EARLY,
    RELEASE_LEFT_OUT,
    ZERO_LEFT_OUT,
    DOT_LEFT_OUT,
    STORE_LEFT_OUT,
    WEIGHTS_LOADED_ONCE,
    VECTORS_LOADED_ONCE,
    LOADS_SWAPPED,
    TILES_SWAPPED,
    TILE_TWICE,
    BOTH_SIGNED,
    BOTH_UNSIGNED,
    SIGNS_SWAPPED,
    VECTORS_STRIDE_64,
    VECTORS_STRIDE_31,
    WEIGHTS_STRIDE_32,
    WEIGHTS_STRIDE_60,
    SUMS_STRIDE_60,
    VECTORS_A_ROW_LATE,
    WEIGHTS_A_ROW_LATE,
    N_FAULT
};

static const char *const fault_names[N_FAULT] = {
    "none",
    "configuration not loaded",
    "configuration of palette 0",
    "configuration of 17 rows",
    "configuration of 65 bytes a row",
    "configuration with a reserved byte",
    "configuration of 15 vectors",
    "configuration of 15 rows of sums alone",
    "configuration of 15 rows of weights",
    "configuration 28 deep",
    "configuration 28 deep, weights alone",
    "configuration that starts at row 1",
    "released before a product",
    "never released",
    "sums not zeroed",
    "product left out",
    "sums not stored",
    "weights loaded once",
    "vectors loaded once",
    "weights and vectors loaded into each other's tile",
    "product of weights and vectors, swapped",
    "product of weights and weights",
    "both signed",
    "both unsigned",
    "signs swapped",
    "vectors 64 bytes apart",
    "vectors 31 bytes apart",
    "weights 32 bytes apart",
    "weights 60 bytes apart",
    "sums 60 bytes apart",
    "vectors a row late",
    "weights a row late",
};

struct meddler {
    enum fault fault;
    size_t n_loads[TILE_COUNT];
    uint8_t config[TILE_ROW_BYTES];
};

/* Bytes of a configuration: of tile t the width is at 16 + 2 t, the rows at 48 + t. */
static void meddle_with_config(struct meddler *meddler, struct tile_instruction *instruction)
{
    uint8_t *config = meddler->config;
    memcpy(config, instruction->from, TILE_ROW_BYTES);
    instruction->from = config;
    switch (meddler->fault) {
    case CONFIG_OF_PALETTE_0:
        config[0] = 0;
        break;
    case CONFIG_17_ROWS:
        config[48] = 17;
        break;
    case CONFIG_65_BYTES:
        config[16] = 65;
        break;
    case CONFIG_RESERVED_BYTE:
        config[15] = 1;
        break;
    case CONFIG_15_VECTORS:
        config[48] = config[49] = 15;
        break;
    case CONFIG_15_SUMS:
        config[48] = 15;
        break;
    case CONFIG_15_ROWS:
        config[16] = config[20] = 60;
        break;
    case CONFIG_DEPTH_28:
        config[18] = 28;
        config[50] = 7;
        break;
    case CONFIG_DEPTH_28_OF_WEIGHTS:
        config[50] = 7;
        break;
    case CONFIG_START_ROW:
        config[1] = 1;
        break;
    default:
        break;
    }
}

static bool meddle_with_load(struct meddler *meddler, struct tile_instruction *instruction)
{
    int tile = instruction->tile[0];
    bool is_vectors = tile == 1, is_first = meddler->n_loads[tile]++ == 0;
    switch (meddler->fault) {
    case WEIGHTS_LOADED_ONCE:
        return is_vectors || is_first;
    case VECTORS_LOADED_ONCE:
        return !is_vectors || is_first;
    case LOADS_SWAPPED:
        instruction->tile[0] = is_vectors ? 2 : 1;
        break;
    case VECTORS_STRIDE_64:
    case VECTORS_STRIDE_31:
        if (is_vectors)
            instruction->stride = meddler->fault == VECTORS_STRIDE_64 ? 64 : 31;
        break;
    case WEIGHTS_STRIDE_32:
    case WEIGHTS_STRIDE_60:
        if (!is_vectors)
            instruction->stride = meddler->fault == WEIGHTS_STRIDE_32 ? 32 : 60;
        break;
    case VECTORS_A_ROW_LATE:
    case WEIGHTS_A_ROW_LATE:
        if (is_vectors == (meddler->fault == VECTORS_A_ROW_LATE))
            instruction->from = (const char *)instruction->from + instruction->stride;
        break;
    default:
        break;
    }
    return true;
}

static bool meddle_with_dot(struct meddler *meddler, struct tile_instruction *instruction)
{
    int *tile = instruction->tile;
    switch (meddler->fault) {
    case DOT_LEFT_OUT:
        return false;
    case TILES_SWAPPED:
        tile[1] = 2;
        tile[2] = 1;
        break;
    case TILE_TWICE:
        tile[1] = 2;
        break;
    case BOTH_SIGNED:
        instruction->opcode = TILE_DOT_SS;
        break;
    case BOTH_UNSIGNED:
        instruction->opcode = TILE_DOT_UU;
        break;
    case SIGNS_SWAPPED:
        instruction->opcode = TILE_DOT_US;
        break;
    default:
        break;
    }
    return true;
}

static bool meddle(struct tile_instruction *instruction, void *user)
{
    struct meddler *meddler = user;
    switch (instruction->opcode) {
    case TILE_LOAD_CONFIG:
        meddle_with_config(meddler, instruction);
        return meddler->fault != CONFIG_LEFT_OUT;
    case TILE_RELEASE:
        return meddler->fault != RELEASE_LEFT_OUT;
    case TILE_ZERO:
        if (meddler->fault == RELEASED_EARLY)
            instruction->opcode = TILE_RELEASE;
        return meddler->fault != ZERO_LEFT_OUT;
    case TILE_LOAD:
        return meddle_with_load(meddler, instruction);
    case TILE_STORE:
        if (meddler->fault == SUMS_STRIDE_60)
            instruction->stride = 60;
        return meddler->fault != STORE_LEFT_OUT;
    default:
        return meddle_with_dot(meddler, instruction);
    }
}

/* What shows a fault; NULL: nothing does. */
static const char *find_fault(struct kernel_run *run, const unsigned char *expected, enum fault fault)
{
    struct meddler meddler = {.fault = fault};
    struct tile_probe probe = {.meddle = meddle, .user = &meddler};
    bool is_released = call_emulated(run, &probe);
    if (probe.reason)
        return probe.reason;
    if (!is_released)
        return "the registers are still in use";
    return memcmp(run->out, expected, run->out_size) != 0 ? "other numbers" : NULL;
}

/* The codes of MXFP4 are below 128, so that their sign does not matter: Q8_0 alone shows that fault. */
static void every_fault_shows(void **state)
{
    (void)state;
    need_avx512();
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        struct kernel_run run;
        bool is_q8_0 = strcmp(formats[f], "q8_0_q8") == 0;
        kernel_prepare(&run, find_case(formats[f]), (struct kernel_shape){32 * 19, 29, 21}, f);
        unsigned char *expected = call_variant(&run, "avx512vnni");
        for (int fault = NO_FAULT; fault < N_FAULT; fault++) {
            const char *how = find_fault(&run, expected, (enum fault)fault);
            bool must_show = fault != NO_FAULT && (fault != BOTH_SIGNED || is_q8_0);
            if ((how != NULL) != must_show)
                fail_msg("%s, fault \"%s\": %s", formats[f], fault_names[fault],
                         how ? how : "nothing shows it");
        }
        free(expected);
        kernel_release(&run);
    }
}

/* ---------------------------------------------------------------- the library's tiles */

#if defined(__x86_64__) && defined(__linux__)
/* How often a file has these bytes, each of which is one more than it should be: here they stand for nothing.
 */
static size_t count_bytes(const char *path, const unsigned char *above, size_t size)
{
    FILE *file = fopen(path, "rb");
    size_t n_same = 0, n_found = 0;
    assert_non_null(file);
    for (int c = getc(file); c != EOF; c = getc(file)) {
        bool is_next = c + 1 == above[n_same];
        n_same = is_next ? n_same + 1 : c + 1 == above[0];
        if (n_same == size) {
            n_found++;
            n_same = 0;
        }
    }
    fclose(file);
    return n_found;
}
#endif

/*
 * Without its tiles the variant "amx" would be avx512bf16 by another name, and every comparison would hold:
 * its code, which is in this program, must have them.
 */
static void the_build_has_the_instructions(void **state)
{
    (void)state;
#if defined(__x86_64__) && defined(__linux__)
    static const unsigned char zero[] = {0xC5, 0xE3, 0x7C, 0x4A, 0xC1}; /* tilezero tmm0 */
    static const unsigned char dot[] = {0xC5, 0xE3, 0x6B, 0x5F, 0xC2};  /* tdpbsud tmm0, tmm1, tmm2 */
    assert_string_equal(gs_fast_kernels_at(0)->isa,
                        "generic"); /* the tables, and so the kernels, are linked */
    assert_true(count_bytes("/proc/self/exe", zero, sizeof zero) > 0);
    assert_true(count_bytes("/proc/self/exe", dot, sizeof dot) > 0);
#else
    print_message("  skipped: for x86-64 and Linux\n");
    skip();
#endif
}

static void the_processors_tiles_give_the_same_bits(void **state)
{
    (void)state;
    if (!gs_fast_kernels_find("amx")) {
        print_message("  skipped: this processor has no AMX\n");
        skip();
    }
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (size_t n_x = 1; n_x <= MOST_X; n_x++) {
            struct kernel_run run;
            struct tile_probe probe = {0};
            kernel_prepare(&run, find_case(formats[f]), choose_shape(n_x, f + 1), n_x);
            change_input(&run, (enum input)(n_x % N_INPUT), f);
            unsigned char *found = call_variant(&run, "amx");
            assert_true(call_emulated(&run, &probe));
            if (probe.reason || memcmp(run.out, found, run.out_size) != 0)
                fail_msg("%s: n %zu, rows %zu, vectors %zu: the emulated instructions give other bits",
                         formats[f], run.shape.n, run.shape.n_rows, n_x);
            free(found);
            kernel_release(&run);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_those_of_avx512),
        cmocka_unit_test(every_fault_shows),
        cmocka_unit_test(the_build_has_the_instructions),
        cmocka_unit_test(the_processors_tiles_give_the_same_bits),
    };
    return cmocka_run_group_tests_name("kernels/amx", tests, NULL, NULL);
}
