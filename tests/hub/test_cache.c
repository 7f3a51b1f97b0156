/* The cache on disk: finding what other tools or we have put there, and writing it so that they find it. */
#include "hub/cache.h"
#include "tests/support/check.h"
#include "tests/support/files.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define OTHER  "89abcdef0123456789abcdef0123456789abcdef"

static struct gs_error error;

static void make(const char *cache, const char *folder)
{
    assert_ok(gs_make_folders(test_path_join(cache, folder).text, &error), &error);
}

static void write_ref(const char *cache, const char *name, const char *text)
{
    make(cache, "models--a--b/refs");
    test_file_write(test_path_join(test_path_join(cache, "models--a--b/refs").text, name).text, text,
                    strlen(text));
}

static void write_snapshot(const char *cache, const char *name)
{
    struct test_path folder = test_path_join(cache, "models--a--b/snapshots/" COMMIT);
    test_file_write(test_path_join(folder.text, name).text, "{}", 2);
}

static void finds_by_revision(void **state)
{
    char *cache = test_folder_make();
    struct gs_buffer path = {0};
    (void)state;
    make(cache, "models--a--b/snapshots/" COMMIT);
    write_snapshot(cache, "config.json");
    write_ref(cache, "main", COMMIT);
    write_ref(cache, "v1", COMMIT "\n"); /* as an editor or echo leaves it */
    static const char *const names[] = {"a/b", "a/b@main", "a/b@v1", ("a/b@" COMMIT)};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_ok(gs_hub_find(cache, names[i], &path, &error), &error);
        assert_string_equal(path.data, test_path_join(cache, "models--a--b/snapshots/" COMMIT).text);
    }
    gs_buffer_free(&path);
    test_folder_remove(cache);
}

static void says_what_fetches_it(void **state)
{
    char *cache = test_folder_make();
    struct gs_buffer path = {0};
    (void)state;
    assert_fails(gs_hub_find(cache, "a/b", &path, &error), GS_IO, "gossamer pull a/b fetches it", &error);
    assert_fails(gs_hub_find(NULL, "a/b", &path, &error), GS_IO, "gossamer pull a/b", &error);
    make(cache, "models--a--b/snapshots/" COMMIT);
    assert_fails(gs_hub_find(cache, "a/b", &path, &error), GS_IO, "not completely", &error);
    write_ref(cache, "main", OTHER); /* a snapshot that is not there */
    assert_fails(gs_hub_find(cache, "a/b", &path, &error), GS_IO, "gossamer pull a/b", &error);
    assert_fails(gs_hub_find(cache, "a/b@v9", &path, &error), GS_IO, "gossamer pull a/b@v9", &error);
    static const char *const damaged[] = {"", "main", "../../../../etc", (COMMIT "x"), (COMMIT COMMIT)};
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        write_ref(cache, "main", damaged[i]);
        assert_fails(gs_hub_find(cache, "a/b", &path, &error), GS_IO, "gossamer pull a/b", &error);
    }
    gs_buffer_free(&path);
    test_folder_remove(cache);
}

static void takes_no_part_for_a_model(void **state)
{
    char *cache = test_folder_make();
    struct gs_buffer path = {0};
    (void)state;
    make(cache, "models--a--b/snapshots/" COMMIT);
    write_ref(cache, "main", COMMIT);
    static const char *const parts[] = {"tokenizer.json", "model.safetensors", ".gguf", "gguf", "m.gguf.new"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        write_snapshot(cache, parts[i]);
        assert_fails(gs_hub_find(cache, "a/b@" COMMIT, &path, &error), GS_IO, "not completely", &error);
        assert_fails(gs_hub_find(cache, "a/b", &path, &error), GS_IO, "not completely", &error);
    }
    write_snapshot(cache, "m.gguf"); /* another tool's way to have a model */
    assert_ok(gs_hub_find(cache, "a/b@" COMMIT, &path, &error), &error);
    assert_ok(gs_hub_find(cache, "a/b", &path, &error), &error);
    gs_buffer_free(&path);
    test_folder_remove(cache);
}

static void paths_win(void **state)
{
    char *cache = test_folder_make();
    struct gs_buffer path = {0};
    (void)state;
    make(cache, "models--tests--data/snapshots/" COMMIT);
    assert_ok(gs_hub_find(cache, "tests/data", &path, &error), &error); /* a folder, seen from the root */
    assert_string_equal(path.data, "tests/data");
    static const char *const others[] = {"no/such/path", "./x", "/none", "nothing"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_ok(gs_hub_find(cache, others[i], &path, &error), &error);
        assert_string_equal(path.data, others[i]);
    }
    gs_buffer_free(&path);
    test_folder_remove(cache);
}

static void writes_what_it_finds(void **state)
{
    char *cache = test_folder_make();
    struct gs_hub_store store = {0};
    struct gs_hub_name name;
    struct gs_buffer path = {0};
    (void)state;
    assert_ok(gs_hub_name_parse("a/b@refs/pr/1", &name, &error), &error);
    assert_ok(gs_hub_store_name(cache, &name, COMMIT, &store, &error), &error);
    assert_ok(gs_hub_store_create(&store, &error), &error);
    assert_ok(gs_hub_store_create(&store, &error), &error);
    test_file_write(test_path_join(store.blobs.data, "1234").text, "{}", 2);
    make(cache, "models--a--b/snapshots/" COMMIT);
    test_file_write(test_path_join(store.snapshot.data, "config.json").text, "old", 3);
    for (int i = 0; i < 2; i++)
        assert_ok(gs_hub_store_link(&store, "config.json", "1234", &error), &error);
    size_t size;
    char *text = test_file_read(test_path_join(store.snapshot.data, "config.json").text, &size);
    assert_string_equal(text, "{}");
    free(text);
    assert_ok(gs_hub_store_refer(&store, &name, OTHER, &error), &error);
    assert_ok(gs_hub_store_refer(&store, &name, COMMIT, &error), &error);
    text = test_file_read(test_path_join(store.root.data, "refs/refs/pr/1").text, &size);
    assert_string_equal(text, COMMIT); /* without a newline: others compare the whole */
    free(text);
    assert_ok(gs_hub_find(cache, "a/b@refs/pr/1", &path, &error), &error);
    assert_string_equal(path.data, store.snapshot.data);
    gs_buffer_free(&path);
    gs_hub_store_free(&store);
    test_folder_remove(cache);
}

static void locks_out_a_second_writer(void **state)
{
    char *cache = test_folder_make();
    struct gs_hub_store store = {0};
    struct gs_hub_name name;
    int first, second;
    (void)state;
    assert_ok(gs_hub_name_parse("a/b", &name, &error), &error);
    assert_ok(gs_hub_store_name(cache, &name, COMMIT, &store, &error), &error);
    assert_ok(gs_hub_store_create(&store, &error), &error);
    assert_ok(gs_hub_store_lock(&store, "1234", &first, &error), &error);
    assert_fails(gs_hub_store_lock(&store, "1234", &second, &error), GS_IO, "another process", &error);
    assert_int_equal(second, -1);
    close(first);
    assert_ok(gs_hub_store_lock(&store, "1234", &second, &error), &error);
    close(second);
    gs_hub_store_free(&store);
    test_folder_remove(cache);
}

static void refuses_a_file_in_the_way(void **state)
{
    char *cache = test_folder_make();
    (void)state;
    test_file_write(test_path_join(cache, "models--a--b").text, "", 0);
    assert_fails(gs_make_folders(test_path_join(cache, "models--a--b/blobs").text, &error), GS_IO,
                 "models--a--b", &error);
    test_folder_remove(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_by_revision),         cmocka_unit_test(says_what_fetches_it),
        cmocka_unit_test(takes_no_part_for_a_model), cmocka_unit_test(paths_win),
        cmocka_unit_test(writes_what_it_finds),      cmocka_unit_test(locks_out_a_second_writer),
        cmocka_unit_test(refuses_a_file_in_the_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
