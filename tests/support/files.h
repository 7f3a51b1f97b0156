/* Temporary folders and whole files for tests. Every failure fails the running test. */
#ifndef TESTS_SUPPORT_FILES_H
#define TESTS_SUPPORT_FILES_H

#include <stddef.h>
#include <stdint.h>

/* A new, empty folder; test_folder_remove deletes it with all it holds and releases the name. */
char *test_folder_make(void);
void test_folder_remove(char *folder);

struct test_path {
    char text[1024];
};

/* "folder/name" */
struct test_path test_path_join(const char *folder, const char *name);

void test_file_write(const char *path, const void *bytes, size_t size);

/* The whole file, NUL-terminated; the caller frees it. `size` may be NULL. */
char *test_file_read(const char *path, size_t *size);

/* How much of a mapped file is in memory, in whole pages; `bytes` may begin and end within one. */
uint64_t test_resident_bytes(const void *bytes, size_t size);

#endif
