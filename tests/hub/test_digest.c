/* Both hashes of a file, against values from elsewhere; what is told on the way, and that no stops it. */
#include "hub/digest.h"
#include "tests/support/check.h"
#include "tests/support/files.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define MIB  1048576
#define SIZE (5 * MIB / 2 + 5)

static struct gs_error error;

/* Computed by Python's hashlib; the second with git's header. */
static const char sha256[] = "c9a41f5e7812d280a2a34b4eda6d24543996a29ab3d84438e7ec1b6cbfa8f9b2";
static const char git_sha1[] = "b17837d6ee8a591b2f153e6250dcd5df7f0a399d";

struct watch {
    uint64_t told[8];
    size_t count;
    uint64_t stop_at; /* bytes; 0: never */
};

static bool take_done(void *user, uint64_t done)
{
    struct watch *watch = user;
    assert_true(watch->count < 8);
    watch->told[watch->count++] = done;
    return watch->stop_at == 0 || done < watch->stop_at;
}

static void hashes_a_file(void **state)
{
    char *folder = test_folder_make();
    struct test_path path = test_path_join(folder, "file");
    unsigned char *bytes = malloc(SIZE);
    struct gs_digest_text found;
    (void)state;
    assert_non_null(bytes);
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 251);
    test_file_write(path.text, bytes, SIZE);
    int descriptor = open(path.text, O_RDONLY | O_CLOEXEC);
    assert_true(descriptor >= 0);

    struct watch watch = {.count = 0};
    assert_ok(gs_digest_file(descriptor, path.text, sha256, SIZE, take_done, &watch, &found, &error), &error);
    assert_string_equal(found.text, sha256);
    static const uint64_t told[] = {MIB, 2 * MIB, SIZE};
    assert_int_equal(watch.count, 3);
    assert_memory_equal(watch.told, told, sizeof told);
    assert_ok(gs_digest_file(descriptor, path.text, git_sha1, SIZE, NULL, NULL, &found, &error), &error);
    assert_string_equal(found.text, git_sha1);

    watch = (struct watch){.stop_at = 2 * MIB};
    assert_fails(gs_digest_file(descriptor, path.text, sha256, SIZE, take_done, &watch, &found, &error),
                 GS_CANCELLED, "interrupted", &error);
    assert_int_equal(watch.count, 2);
    assert_fails(gs_digest_file(descriptor, path.text, sha256, SIZE + 1, NULL, NULL, &found, &error), GS_IO,
                 "became shorter", &error);
    close(descriptor);
    free(bytes);
    test_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(hashes_a_file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
