/* Which GGUF files a path means, and the parts of one: src/format/locate.c and checkpoint.c. */
#include "format/checkpoint.h"
#include "format/locate.h"
#include "tests/format/files.h"
#include "tests/support/tiny_gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file with one tensor of this name, and part `number` of `count` by its metadata if count > 0. */
static void write_gguf(const char *name, const char *tensor, unsigned number, unsigned count)
{
    struct gguf_file file = {0};
    gguf_text(&file, "general.architecture", "gpt-oss");
    gguf_text(&file, "name", name);
    if (count > 0) {
        gguf_value(&file, "split.no", GS_GGUF_U16);
        gguf_put(&file.entries, &(uint16_t){(uint16_t)number}, 2);
        gguf_value(&file, "split.count", GS_GGUF_U16);
        gguf_put(&file.entries, &(uint16_t){(uint16_t)count}, 2);
    }
    if (tensor)
        gguf_tensor(&file, tensor, GGUF_F32, 1, (uint64_t[]){1}, "abcd", 4);
    struct gs_buffer bytes = gguf_finish(&file);
    test_file_write(test_path_join(folder, name).text, bytes.data, bytes.size);
    gs_buffer_free(&bytes);
}

/* Opens folder/name, expects `count` tensors, the metadata of `first`, and gs_locate_gguf to find it too. */
static void expect_open(const char *name, size_t count, const char *first)
{
    struct gs_checkpoint *checkpoint;
    struct gs_error error;
    struct gs_arena arena = {0};
    const char *text = "";
    size_t size = 0;
    char whole[1024];
    snprintf(whole, sizeof whole, "%s", test_path_join(folder, name).text);
    assert_ok(gs_checkpoint_open(whole, &checkpoint, &error), &error);
    assert_int_equal(gs_checkpoint_layout(checkpoint), GS_LAYOUT_GGUF);
    assert_int_equal(gs_checkpoint_count(checkpoint), count);
    assert_null(gs_checkpoint_config(checkpoint));
    assert_null(gs_checkpoint_generation_config(checkpoint));
    const struct gs_gguf *gguf = gs_checkpoint_gguf(checkpoint);
    assert_true(gguf && gs_gguf_text(gs_gguf_find(gguf, "name"), &text, &size));
    assert_true(size == strlen(first) && memcmp(text, first, size) == 0);
    const char *located = gs_locate_gguf(whole, &arena);
    assert_true(located && strcmp(located + strlen(located) - size, first) == 0);
    gs_arena_free(&arena);
    gs_checkpoint_close(checkpoint);
}

static void expect_error(const char *name, gs_status status, const char *part)
{
    struct gs_checkpoint *checkpoint;
    struct gs_error error;
    char path[1024];
    snprintf(path, sizeof path, "%s", test_path_join(folder, name).text);
    assert_fails(gs_checkpoint_open(path, &checkpoint, &error), status, part, &error);
    assert_null(checkpoint);
}

static void one_file(void **state)
{
    (void)state;
    write_gguf("model.gguf", "a", 0, 0);
    test_file_write(test_path_join(folder, "config.json").text, "{}", 2); /* of another model */
    expect_open("model.gguf", 1, "model.gguf");
    expect_open("", 1, "model.gguf");
    assert_int_equal(rename(test_path_join(folder, "model.gguf").text, test_path_join(folder, "M.GGUF").text),
                     0);
    struct gs_checkpoint *checkpoint;
    struct gs_error error;
    assert_ok(gs_checkpoint_open(folder, &checkpoint, &error), &error);
    gs_checkpoint_close(checkpoint);
}

static void several_files(void **state)
{
    (void)state;
    write_gguf("b.gguf", "a", 0, 0);
    write_gguf("a.gguf", "a", 0, 0);
    expect_error("", GS_INVALID_ARGUMENT,
                 "2 .gguf files that are not parts of one model; give one of them, such as a.");
    expect_open("b.gguf", 1, "b.gguf");
    struct gs_arena arena = {0};
    assert_null(gs_locate_gguf(folder, &arena));
    assert_null(gs_locate_gguf("/nowhere/at/all.gguf", &arena));
    assert_null(gs_locate_gguf("/dev/null", &arena));
    gs_arena_free(&arena);
}

static void safetensors_come_first(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_default();
    struct gs_checkpoint *checkpoint;
    struct gs_error error;
    options.n_layer = 1;
    tiny_checkpoint_write(&options, folder);
    write_gguf("model.gguf", "a", 0, 0);
    assert_ok(gs_checkpoint_open(folder, &checkpoint, &error), &error);
    assert_int_equal(gs_checkpoint_layout(checkpoint), GS_LAYOUT_HUGGING_FACE);
    assert_null(gs_checkpoint_gguf(checkpoint));
    gs_checkpoint_close(checkpoint);
}

static void parts_of_one(void **state)
{
    (void)state;
    write_gguf("m-00001-of-00003.gguf", "a", 0, 3);
    write_gguf("m-00003-of-00003.gguf", NULL, 2, 3);
    expect_error("", GS_IO, "m-00002-of-00003.gguf");
    write_gguf("m-00002-of-00003.gguf", "b", 1, 3);
    expect_open("", 2, "m-00001-of-00003.gguf");
    expect_open("m-00001-of-00003.gguf", 2, "m-00001-of-00003.gguf");
    expect_open("m-00003-of-00003.gguf", 2, "m-00001-of-00003.gguf");
    write_gguf("m-00001-of-00002.gguf", "a", 0, 2);
    expect_error("", GS_INVALID_ARGUMENT, "4 .gguf files that are not parts of one model");
    assert_int_equal(unlink(test_path_join(folder, "m-00001-of-00002.gguf").text), 0);
    write_gguf("other-00001-of-00003.gguf", "a", 0, 3);
    expect_error("", GS_INVALID_ARGUMENT, "4 .gguf files that are not parts of one model");
    expect_open("m-00002-of-00003.gguf", 2, "m-00001-of-00003.gguf");

    write_gguf("m-00003-of-00003.gguf", "a", 2, 3);
    expect_error("m-00001-of-00003.gguf", GS_MALFORMED, "a: is in two files");
    write_gguf("m-00003-of-00003.gguf", "c", 1, 3);
    expect_error("m-00001-of-00003.gguf", GS_MALFORMED,
                 "is part 2 of 3 by its metadata, but 3 of 3 by its name");
    write_gguf("m-00003-of-00003.gguf", "c", 2, 4);
    expect_error("m-00001-of-00003.gguf", GS_MALFORMED, "is part 3 of 4 by its metadata");
    write_gguf("m-00003-of-00003.gguf", "c", 0, 0);
    expect_error("m-00001-of-00003.gguf", GS_MALFORMED, "is part 1 of 1 by its metadata, but 3 of 3");
}

static void a_part_under_another_name(void **state)
{
    (void)state;
    write_gguf("part.gguf", "a", 0, 3);
    expect_error("part.gguf", GS_MALFORMED,
                 "is part 1 of 3 by its metadata, but 1 of 1 by its name (which must be");
    write_gguf("whole-00001-of-00001.gguf", "a", 0, 1);
    expect_open("whole-00001-of-00001.gguf", 1, "whole-00001-of-00001.gguf");
    write_gguf("joined.gguf", "a", 0, 0);
    expect_open("joined.gguf", 1, "joined.gguf");
    write_gguf("x-00001-of-00600.gguf", "a", 0, 600);
    expect_error("x-00001-of-00600.gguf", GS_UNSUPPORTED, "one of 600 parts; at most 512");
    write_gguf("y-0001-of-0003.gguf", "a", 0, 0);
    expect_open("y-0001-of-0003.gguf", 1, "y-0001-of-0003.gguf");
}

static void files_that_are_none(void **state)
{
    (void)state;
    test_file_write(test_path_join(folder, "m.gguf").text, "", 0);
    expect_error("m.gguf", GS_MALFORMED, "is no GGUF file");
    test_file_write(test_path_join(folder, "m.gguf").text, "version https://git-lfs", 23);
    expect_error("", GS_MALFORMED, "is no GGUF file");
    write_gguf("m.gguf", NULL, 0, 0);
    expect_error("", GS_UNSUPPORTED, "m.gguf: holds no tensors");
    assert_int_equal(unlink(test_path_join(folder, "m.gguf").text), 0);
    assert_int_equal(mkfifo(test_path_join(folder, "m.gguf").text, 0600), 0);
    expect_error("m.gguf", GS_INVALID_ARGUMENT, "");
}

static void links(void **state)
{
    (void)state;
    char *outside = test_folder_make(), target[1024];
    char *inside = folder;
    folder = outside;
    write_gguf("model.gguf", "a", 0, 0);
    folder = inside;
    snprintf(target, sizeof target, "%s", test_path_join(outside, "model.gguf").text);
    assert_int_equal(symlink(target, test_path_join(folder, "model.gguf").text), 0);
    expect_error("", GS_MALFORMED, "model.gguf");
    struct gs_checkpoint *checkpoint;
    struct gs_error error;
    snprintf(target, sizeof target, "%s", test_path_join(folder, "model.gguf").text);
    assert_ok(gs_checkpoint_open(target, &checkpoint, &error), &error);
    gs_checkpoint_close(checkpoint);
    test_folder_remove(outside);
}

static void changes_are_noticed(void **state)
{
    (void)state;
    struct gs_checkpoint *checkpoint;
    struct gs_error error;
    write_gguf("model.gguf", "a", 0, 0);
    assert_ok(gs_checkpoint_open(folder, &checkpoint, &error), &error);
    assert_ok(gs_checkpoint_check(checkpoint, &error), &error);
    assert_int_equal(truncate(test_path_join(folder, "model.gguf").text, 10), 0);
    assert_int_equal(gs_checkpoint_check(checkpoint, &error), GS_FILE_CHANGED);
    gs_checkpoint_close(checkpoint);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_file, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(several_files, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(safetensors_come_first, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(parts_of_one, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_part_under_another_name, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(files_that_are_none, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(links, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(changes_are_noticed, make_folder, remove_folder),
    };
    return cmocka_run_group_tests_name("format/gguf_checkpoint", tests, NULL, NULL);
}
