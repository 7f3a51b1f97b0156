#include "tests/support/files.h"

#include "tests/support/check.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

char *test_folder_make(void)
{
    char *folder = strdup("/tmp/gossamer-test-XXXXXX");
    assert_non_null(folder);
    assert_non_null(mkdtemp(folder));
    return folder;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

void test_folder_remove(char *folder)
{
    if (folder)
        nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(folder);
}

struct test_path test_path_join(const char *folder, const char *name)
{
    struct test_path path;
    int length = snprintf(path.text, sizeof path.text, "%s/%s", folder, name);
    assert_true(length > 0 && (size_t)length < sizeof path.text);
    return path;
}

void test_file_write(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

char *test_file_read(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long length = ftell(file);
    assert_true(length >= 0);
    rewind(file);
    char *bytes = malloc((size_t)length + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, (size_t)length, file), (size_t)length);
    bytes[length] = '\0';
    fclose(file);
    if (size)
        *size = (size_t)length;
    return bytes;
}

uint64_t test_resident_bytes(const void *bytes, size_t size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (uintptr_t)bytes % page;
    const size_t n = (before + size + page - 1) / page;
    void *begin = (void *)((uintptr_t)bytes - before);
    unsigned char *in_core = malloc(n);
    uint64_t count = 0;
    assert_non_null(in_core);
#if defined(__APPLE__)
    assert_int_equal(mincore(begin, n * page, (char *)in_core), 0);
#else
    assert_int_equal(mincore(begin, n * page, in_core), 0);
#endif
    for (size_t i = 0; i < n; i++)
        count += in_core[i] & 1u;
    free(in_core);
    return count * page;
}
