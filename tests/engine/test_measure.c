/*
 * src/engine/measure.c: one expert out of a checkpoint has the values that the bound model has, in every
 * layout; and nothing but its bytes is touched or read.
 */
#include "backend/cpu/measure.h"
#include "base/buffer.h"
#include "engine/measure.h"
#include "model/weights.h"
#include "tests/support/check.h"
#include "tests/support/files.h"
#include "tests/support/tiny_gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *const names[] = {"moe_gate_up_mxfp4_f32", "moe_down_mxfp4_f32"};

static void dequantize(const struct gs_mxfp4_matrix *matrix, int64_t expert, int64_t row, float *out)
{
    struct gs_mxfp4_row stored = gs_mxfp4_find_row(matrix, expert, row);
    if (stored.scales)
        gs_mxfp4_dequantize(stored.blocks, stored.scales, matrix->columns, out);
    else
        gs_mxfp4_dequantize_gguf(stored.blocks, matrix->columns, out);
}

/* Every expert of every layer by both kernels against the binder. */
static void compare_with_binder(const char *folder)
{
    struct gs_checkpoint *checkpoint;
    struct gs_weights *weights;
    struct gs_error error;
    float expected[96], found[96]; /* d_model 64, d_ff 96 */
    assert_ok(gs_checkpoint_open(folder, &checkpoint, &error), &error);
    assert_ok(gs_weights_bind(checkpoint, NULL, NULL, &weights, &error), &error);
    for (int64_t layer = 0; layer < weights->config.n_layer; layer++)
        for (int64_t expert = 0; expert < weights->config.n_expert; expert++)
            for (size_t k = 0; k < 2; k++) {
                const struct gs_mxfp4_matrix *bound =
                    k == 0 ? &weights->layers[layer].gate_up : &weights->layers[layer].down;
                const struct gs_measure_kernel *kernel;
                struct gs_measure_expert one;
                assert_ok(gs_measure_kernel_find(names[k], &kernel, &error), &error);
                assert_ok(gs_measure_expert_find(checkpoint, kernel, layer, expert, &one, &error), &error);
                assert_int_equal(one.matrix.rows, bound->rows);
                assert_int_equal(one.matrix.columns, bound->columns);
                assert_int_equal(one.bytes, bound->rows * bound->columns / 32 * 17);
                for (int64_t row = 0; row < bound->rows; row++) {
                    dequantize(bound, expert, row, expected);
                    dequantize(&one.matrix, 0, row, found);
                    assert_memory_equal(found, expected, (size_t)bound->columns * sizeof(float));
                }
            }
    gs_weights_free(weights);
    gs_checkpoint_close(checkpoint);
}

static void experts_are_the_models_own(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_default();
    struct tiny_gguf_options gguf = {.dense = GS_DTYPE_F32};
    for (int layout = 0; layout < GS_LAYOUT_COUNT; layout++) {
        char *folder = test_folder_make();
        if (layout == GS_LAYOUT_GGUF) {
            options.layout = GS_LAYOUT_HUGGING_FACE;
            struct tiny_model *model = tiny_model_make(&options);
            tiny_gguf_write(model, &gguf, folder, "model");
            tiny_model_free(model);
        } else {
            options.layout = (enum gs_layout)layout;
            tiny_checkpoint_write(&options, folder);
        }
        compare_with_binder(folder);
        test_folder_remove(folder);
    }
}

static void what_is_not_there_is_named(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_default();
    char *folder = test_folder_make();
    struct gs_checkpoint *checkpoint;
    const struct gs_measure_kernel *kernel;
    struct gs_measure_expert one;
    struct gs_error error;
    int64_t count;
    tiny_checkpoint_write(&options, folder);
    assert_ok(gs_checkpoint_open(folder, &checkpoint, &error), &error);
    assert_fails(gs_measure_kernel_find("moe_gate", &kernel, &error), GS_INVALID_ARGUMENT,
                 "there are moe_gate_up_mxfp4_f32 and moe_down_mxfp4_f32", &error);
    assert_ok(gs_measure_kernel_find(names[0], &kernel, &error), &error);
    assert_ok(gs_measure_expert_count(checkpoint, kernel, 0, &count, &error), &error);
    assert_int_equal(count, options.n_expert);
    assert_fails(gs_measure_expert_find(checkpoint, kernel, options.n_layer, 0, &one, &error),
                 GS_INVALID_ARGUMENT, "no gate_up experts of layer 4", &error);
    assert_fails(gs_measure_expert_find(checkpoint, kernel, 0, options.n_expert, &one, &error),
                 GS_INVALID_ARGUMENT, "there are 0 to 7", &error);
    gs_checkpoint_close(checkpoint);
    test_folder_remove(folder);
}

/* A checkpoint of these two tensors and an embedding of one element, the data a hole in the file: zeros that
 * take no room on the disk. */
static void write_shard(const char *path, const char *blocks, const char *scales, long data_bytes)
{
    char header[1024];
    int size = snprintf(header + 8, sizeof header - 8,
                        "{\"model.layers.3.mlp.experts.gate_up_proj_blocks\":{\"dtype\":\"U8\",%s},"
                        "\"model.layers.3.mlp.experts.gate_up_proj_scales\":{\"dtype\":\"U8\",%s},"
                        "\"model.embed_tokens.weight\":{\"dtype\":\"U8\",\"shape\":[1],"
                        "\"data_offsets\":[%ld,%ld]}}",
                        blocks, scales, data_bytes, data_bytes + 1);
    for (int i = 0; i < 8; i++)
        header[i] = (char)(unsigned char)((uint64_t)size >> (8 * i));
    test_file_write(path, header, (size_t)size + 8);
    assert_int_equal(truncate(path, size + 8 + data_bytes + 1), 0);
}

static void odd_shapes_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *blocks, *scales;
        long bytes;
        const char *part;
    } cases[] = {
        {"\"shape\":[4,2,3,8],\"data_offsets\":[0,192]", "\"shape\":[4,2,3],\"data_offsets\":[192,216]", 216,
         "groups, 16]"},
        {"\"shape\":[4,6,16],\"data_offsets\":[0,384]", "\"shape\":[4,6],\"data_offsets\":[384,408]", 408,
         "groups, 16]"},
        {"\"shape\":[4,2,3,16],\"data_offsets\":[0,384]", "\"shape\":[4,3,2],\"data_offsets\":[384,408]", 408,
         "like their blocks"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *folder = test_folder_make();
        struct test_path path = test_path_join(folder, "model.safetensors");
        struct gs_checkpoint *checkpoint;
        const struct gs_measure_kernel *kernel;
        struct gs_measure_expert one;
        struct gs_error error;
        write_shard(path.text, cases[i].blocks, cases[i].scales, cases[i].bytes);
        assert_ok(gs_checkpoint_open(path.text, &checkpoint, &error), &error);
        assert_ok(gs_measure_kernel_find(names[0], &kernel, &error), &error);
        assert_fails(gs_measure_expert_find(checkpoint, kernel, 3, 0, &one, &error), GS_MALFORMED,
                     cases[i].part, &error);
        gs_checkpoint_close(checkpoint);
        test_folder_remove(folder);
    }
}

/* ---------------------------------------------------------------- only this expert's pages */

enum {
    N_EXPERT = 32,
    ROWS = 1024,
    GROUPS = 90, /* 1.5 MB of blocks and 92 KB of scales an expert; 50 MB in all */
    CHOSEN = 13,
};

/* Whole pages outside the slices become unreadable: whoever touches one dies. */
static void forbid_the_rest(const struct gs_measure_expert *one)
{
    const struct gs_file_map *map = one->slices[0].file;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = 0;
    for (size_t i = 0; i <= one->n_slices; i++) {
        uint64_t to = i < one->n_slices ? one->slices[i].offset / page * page : map->size;
        if (to > from)
            assert_int_equal(mprotect((void *)(uintptr_t)(map->data + from), to - from, PROT_NONE), 0);
        if (i < one->n_slices)
            from = (one->slices[i].offset + one->slices[i].bytes + page - 1) / page * page;
    }
}

/*
 * Does the system say which pages are there, and does it hear how they will be read? qemu's user mode does
 * neither: it refuses mincore over pages that may not be read, and drops madvise.
 */
static bool knows_pages(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *memory = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char in_core[1];
    assert_true(memory != MAP_FAILED);
#if defined(__APPLE__)
    bool knows = mincore(memory, page, (char *)in_core) == 0;
#else
    bool knows = mincore(memory, page, in_core) == 0;
#endif
    munmap(memory, page);
    return knows;
}

/* Are an expert's pages in memory after two products with it, and no others? */
static bool reads_its_pages_alone(void)
{
    const long blocks = (long)N_EXPERT * ROWS * GROUPS * 16, scales = (long)N_EXPERT * ROWS * GROUPS;
    const uint64_t slack = 64u << 10; /* the header, and pages at the slices' ends */
    char *folder = test_folder_make(), text[2][128];
    struct test_path path = test_path_join(folder, "model.safetensors");
    struct gs_checkpoint *checkpoint;
    const struct gs_measure_kernel *kernel;
    struct gs_measure *measure;
    struct gs_measure_expert one;
    struct gs_error error;
    float *in = calloc(GROUPS * 32, sizeof *in), *out = calloc(ROWS, sizeof *out);
    double seconds;
    assert_true(in && out);
    snprintf(text[0], sizeof text[0], "\"shape\":[%d,%d,%d,16],\"data_offsets\":[0,%ld]", N_EXPERT, ROWS,
             GROUPS, blocks);
    snprintf(text[1], sizeof text[1], "\"shape\":[%d,%d,%d],\"data_offsets\":[%ld,%ld]", N_EXPERT, ROWS,
             GROUPS, blocks, blocks + scales);
    write_shard(path.text, text[0], text[1], blocks + scales);
    assert_ok(gs_checkpoint_open(path.text, &checkpoint, &error), &error);
    assert_ok(gs_measure_kernel_find(names[0], &kernel, &error), &error);
    assert_ok(gs_measure_expert_find(checkpoint, kernel, 3, CHOSEN, &one, &error), &error);
    const struct gs_file_map *map = one.slices[0].file;
    bool alone = test_resident_bytes(map->data, map->size) <= slack;

    for (size_t i = 0; i < one.n_slices; i++)
        gs_slice_fetch(&one.slices[i]);
    forbid_the_rest(&one);
    assert_ok(gs_measure_open(2, &measure, &error), &error);
    assert_ok(gs_measure_product(measure, &one.matrix, 1, (const float *const[]){in}, GS_MEASURE_KERNEL,
                                 (float *const[]){out}, &seconds, &error),
              &error);
    assert_ok(gs_measure_product(measure, &one.matrix, 1, (const float *const[]){in}, GS_MEASURE_SCALAR,
                                 (float *const[]){out}, &seconds, &error),
              &error);
    uint64_t resident = test_resident_bytes(map->data, map->size);
    /* The lower bound is a control: the count does see what was read. */
    alone = alone && resident >= one.bytes && resident <= one.bytes + slack;

    gs_measure_close(measure);
    gs_checkpoint_close(checkpoint);
    test_folder_remove(folder);
    free(in);
    free(out);
    return alone;
}

/*
 * Again, with a file of its own, where it was not so: the system may have taken pages back in between, which
 * then were read with their neighbours, or are missing.
 */
static void only_the_experts_pages_are_read(void **state)
{
    (void)state;
    if (!knows_pages()) {
        print_message("  which pages are read is not known under this emulator\n");
        skip();
    }
    bool alone = false;
    for (int attempt = 0; attempt < 20 && !alone; attempt++)
        alone = reads_its_pages_alone();
    assert_true(alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_are_the_models_own),
        cmocka_unit_test(what_is_not_there_is_named),
        cmocka_unit_test(odd_shapes_are_refused),
        cmocka_unit_test(only_the_experts_pages_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
