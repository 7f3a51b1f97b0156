/*
 * Compiled kernels that are kept on disk: the second start compiles none, and nothing that can be wrong with
 * the file or the folder is more than a reason to compile.
 */
#include "backend/metal/backend.h"
#include "backend/metal/device.h"
#include "tests/metal_sim/around.h"
#include "tests/support/files.h"
#include "tests/support/loaded.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_KERNEL GS_METAL_KERNEL_COUNT

static const struct gs_backend *const metal = &gs_backend_metal;

/* A start with kernels kept in `folder`: how many it compiled and found, as Metal counts and as we do. */
struct start {
    uint64_t compiled, found;
    char note[700];
};

static struct start start_with(const char *folder, enum gs_precision precision)
{
    struct gs_device_options options = {.precision = precision, .n_threads = 1, .cache_folder = folder};
    struct gs_device *device = NULL;
    struct gs_backend_stats stats;
    struct gs_error error;
    metalsim_reset_counts();
    assert_ok(metal->open(&options, &device, &error), &error);
    metal->stats(device, &stats);
    struct start start = {metalsim_counts().pipelines_compiled, metalsim_counts().pipelines_found, ""};
    snprintf(start.note, sizeof start.note, "%s", stats.kernels_note);
    assert_int_equal(stats.n_compiled, start.compiled);
    assert_int_equal(stats.n_kept, N_KERNEL - start.compiled);
    for (size_t k = 0; k < N_KERNEL; k++)
        assert_non_null(device->pipelines[k].object);
    metal->close(device);
    assert_nothing_left();
    return start;
}

static void expect(struct start start, uint64_t compiled, const char *note)
{
    assert_int_equal(start.compiled, compiled);
    if (compiled == 0) /* where it fills an archive, it also finds them there */
        assert_int_equal(start.found, N_KERNEL);
    if (!strstr(start.note, note))
        fail_msg("\"%s\" lacks \"%s\"", start.note, note);
    assert_null(strchr(start.note, '\n'));
}

/* How many files the folder holds, and the path of the last one that ends as the kept ones do. */
static size_t list(const char *folder, char *path, size_t size)
{
    size_t n = 0;
    DIR *entries = opendir(folder);
    for (struct dirent *e = entries ? readdir(entries) : NULL; e; e = readdir(entries)) {
        const char *end = strrchr(e->d_name, '.');
        if (e->d_name[0] == '.')
            continue;
        n++;
        if (path && end && strcmp(end, ".pipelines") == 0)
            snprintf(path, size, "%s/%s", folder, e->d_name);
    }
    if (entries)
        closedir(entries);
    return n;
}

static void a_second_start_compiles_nothing(void **state)
{
    (void)state;
    need_stand_in(true);
    char *parent = test_folder_make();
    struct test_path folder = test_path_join(parent, "kernels"); /* is made */
    expect(start_with(NULL, GS_PRECISION_EXACT), N_KERNEL, "no folder");
    expect(start_with(folder.text, GS_PRECISION_EXACT), N_KERNEL, "kept in ");
    expect(start_with(folder.text, GS_PRECISION_EXACT), 0, "as kept in ");
    /* Another specialisation is another file, and both stay. */
    expect(start_with(folder.text, GS_PRECISION_FAST), N_KERNEL, "kept in ");
    assert_int_equal(list(folder.text, NULL, 0), 2);
    expect(start_with(folder.text, GS_PRECISION_EXACT), 0, "as kept in ");
    expect(start_with(folder.text, GS_PRECISION_FAST), 0, "as kept in ");
    struct stat made;
    assert_int_equal(stat(folder.text, &made), 0);
    assert_int_equal(made.st_mode & 0777, 0700);
    test_folder_remove(parent);
}

/* Kept kernels compute what compiled ones do: that the right one is found under each name. */
static void kept_kernels_compute_the_same(void **state)
{
    (void)state;
    need_stand_in(true);
    *metalsim_controls() = (struct metalsim_controls){0};
    char *folder = test_folder_make();
    struct tiny_options tiny = tiny_options_default();
    tiny.n_layer = 2;
    tiny.n_vocab = 128;
    struct tiny_model *model = tiny_model_make(&tiny);
    struct loaded loaded = loaded_open(model, 1);
    float logits[2][128];
    for (size_t i = 0; i < 2; i++) {
        struct gs_device_options options = {.n_threads = 1, .cache_folder = folder};
        static const int32_t tokens[3] = {1, 2, 3};
        struct gs_device *device = NULL;
        struct gs_kv *kv = NULL;
        struct gs_error error;
        assert_ok(metal->open(&options, &device, &error), &error);
        assert_int_equal(device->n_kept, i == 0 ? 0 : N_KERNEL);
        assert_ok(metal->load(device, loaded.weights, NULL, NULL, &error), &error);
        assert_ok(metal->kv_create(device, 8, &kv, &error), &error);
        struct gs_step step = {.kv = kv, .tokens = tokens, .n_tokens = 3, .want = GS_WANT_LAST};
        assert_ok(metal->forward(device, &step, 1, NULL, &error), &error);
        memcpy(logits[i], metal->logits(device, 0), sizeof logits[i]);
        metal->kv_free(kv);
        metal->close(device);
    }
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
    assert_nothing_left();
    loaded_close(&loaded);
    tiny_model_free(model);
    test_folder_remove(folder);
}

static void another_system_makes_it_stale(void **state)
{
    (void)state;
    need_stand_in(true);
    char *folder = test_folder_make();
    expect(start_with(folder, GS_PRECISION_EXACT), N_KERNEL, "kept in ");
    metalsim_controls()->system = "Version 14.1 (Build 23B74)";
    /* Not that of the other system, found to be of no use: it is not even opened. */
    expect(start_with(folder, GS_PRECISION_EXACT), N_KERNEL, "kernels compiled, kept in ");
    assert_int_equal(list(folder, NULL, 0), 1); /* the older one is gone */
    expect(start_with(folder, GS_PRECISION_EXACT), 0, "as kept in ");
    metalsim_controls()->system = "";
    expect(start_with(folder, GS_PRECISION_EXACT), N_KERNEL, "does not tell its version");
    test_folder_remove(folder);
}

static void spoil(const char *path, int how)
{
    FILE *file = fopen(path, how == 0 ? "wb" : "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, how == 1 ? 0 : 120, SEEK_SET), 0);
    assert_true(fputs(how == 0 ? "" : "#####", file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void a_damaged_file_is_replaced(void **state)
{
    (void)state;
    need_stand_in(true);
    char *folder = test_folder_make(), path[1024] = "";
    expect(start_with(folder, GS_PRECISION_EXACT), N_KERNEL, "kept in ");
    assert_int_equal(list(folder, path, sizeof path), 1);
    for (int how = 0; how < 3; how++) { /* empty; another kind of file; a byte of its contents */
        spoil(path, how);
        expect(start_with(folder, GS_PRECISION_EXACT), N_KERNEL, "of no use; kept in ");
        expect(start_with(folder, GS_PRECISION_EXACT), 0, "as kept in ");
        assert_int_equal(list(folder, NULL, 0), 1);
    }
    test_folder_remove(folder);
}

static void a_folder_that_cannot_be_written_is_a_note(void **state)
{
    (void)state;
    need_stand_in(true);
    char *folder = test_folder_make();
    struct test_path file = test_path_join(folder, "file"), below = test_path_join(file.text, "below");
    FILE *made = fopen(file.text, "wb");
    assert_non_null(made);
    fclose(made);
    for (int twice = 0; twice < 2; twice++)
        expect(start_with(below.text, GS_PRECISION_EXACT), N_KERNEL, "not kept: ");
    /* Nor is a name that is taken; and what was written under another one goes. */
    struct test_path kernels = test_path_join(folder, "kernels");
    char path[1024] = "";
    expect(start_with(kernels.text, GS_PRECISION_EXACT), N_KERNEL, "kept in ");
    assert_int_equal(list(kernels.text, path, sizeof path), 1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    expect(start_with(kernels.text, GS_PRECISION_EXACT), N_KERNEL, "not kept: ");
    assert_int_equal(list(kernels.text, NULL, 0), 1);
    test_folder_remove(folder);
}

/* Nor are kernels believed that somebody else may have written. */
static void a_folder_of_others_is_not_believed(void **state)
{
    (void)state;
    need_stand_in(true);
    static const mode_t open_to[] = {0720, 0702};
    char *folder = test_folder_make();
    expect(start_with(folder, GS_PRECISION_EXACT), N_KERNEL, "kept in ");
    for (size_t i = 0; i < sizeof open_to / sizeof *open_to; i++) {
        assert_int_equal(chmod(folder, open_to[i]), 0);
        expect(start_with(folder, GS_PRECISION_EXACT), N_KERNEL, "nobody else may write it");
    }
    assert_int_equal(chmod(folder, 0755), 0);
    expect(start_with(folder, GS_PRECISION_EXACT), 0, "as kept in ");
    test_folder_remove(folder);
}

/* Whichever call fails: the kernels are there or the reason is, nothing half-written stays, the next start
 * works. */
static void any_call_may_fail(void **state)
{
    (void)state;
    need_stand_in(true);
    char *folder = test_folder_make(), path[1024];
    struct gs_device_options options = {.n_threads = 1, .cache_folder = folder};
    struct gs_error error;
    for (int kept = 0; kept < 2; kept++) {
        struct start whole = start_with(folder, GS_PRECISION_EXACT);
        uint64_t n_calls = metalsim_counts().calls, n_ok = 0, n_failed = 0;
        expect(whole, kept ? 0 : N_KERNEL, "kept in ");
        for (uint64_t at = 1; at <= n_calls; at += at < 16 || at + 8 > n_calls ? 1 : 11) {
            struct gs_device *device = NULL;
            if (!kept && list(folder, path, sizeof path) > 0)
                assert_int_equal(unlink(path), 0);
            metalsim_reset_counts();
            metalsim_controls()->fail_at = at;
            gs_status status = metal->open(&options, &device, &error);
            metalsim_controls()->fail_at = 0;
            n_ok += status == GS_OK;
            n_failed += status != GS_OK;
            if (status != GS_OK && !strstr(error.message, "metal: "))
                fail_msg("call %llu: %s", (unsigned long long)at, error.message);
            metal->close(device);
            assert_nothing_left();
            assert_true(list(folder, NULL, 0) <= 1);
        }
        print_message("%s: %llu calls; of those tried %llu were survived\n", kept ? "kept" : "new",
                      (unsigned long long)n_calls, (unsigned long long)n_ok);
        assert_true(n_ok >= 10 && n_failed >= 3); /* device, queue, the compiler of the source */
        start_with(folder, GS_PRECISION_EXACT);
        expect(start_with(folder, GS_PRECISION_EXACT), 0, "as kept in ");
    }
    test_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_start_compiles_nothing),
        cmocka_unit_test(kept_kernels_compute_the_same),
        cmocka_unit_test(another_system_makes_it_stale),
        cmocka_unit_test(a_damaged_file_is_replaced),
        cmocka_unit_test(a_folder_that_cannot_be_written_is_a_note),
        cmocka_unit_test(a_folder_of_others_is_not_believed),
        cmocka_unit_test(any_call_may_fail),
    };
    return cmocka_run_group_tests_name("metal_archive", tests, NULL, NULL);
}
