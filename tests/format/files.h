/* What the tests of this folder share: a temporary folder, files in it, safetensors files in memory. */
#ifndef GS_TESTS_FORMAT_FILES_H
#define GS_TESTS_FORMAT_FILES_H

#include "base/arena.h"
#include "format/safetensors.h"
#include "tests/support/check.h"
#include "tests/support/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUPPORT __attribute__((unused)) static

/* ---------------------------------------------------------------- folders and files */

SUPPORT char *folder; /* of the running test */

SUPPORT int make_folder(void **state)
{
    (void)state;
    folder = test_folder_make();
    return 0;
}

SUPPORT int remove_folder(void **state)
{
    (void)state;
    test_folder_remove(folder);
    return 0;
}

/* "folder/name" of any length, to be freed. */
SUPPORT char *path_in(const char *within, const char *name)
{
    size_t size = strlen(within) + strlen(name) + 2;
    char *path = malloc(size);
    assert_non_null(path);
    snprintf(path, size, "%s/%s", within, name);
    return path;
}

SUPPORT char *make_subfolder(const char *within, const char *name)
{
    char *path = path_in(within, name);
    assert_int_equal(mkdir(path, 0700), 0);
    return path;
}

SUPPORT void write_file(const char *within, const char *name, const void *bytes, size_t size)
{
    char *path = path_in(within, name);
    test_file_write(path, bytes, size);
    free(path);
}

SUPPORT void write_text(const char *within, const char *name, const char *text)
{
    write_file(within, name, text, strlen(text));
}

SUPPORT void make_link(const char *target, const char *within, const char *name)
{
    char *path = path_in(within, name);
    assert_int_equal(symlink(target, path), 0);
    free(path);
}

/* ---------------------------------------------------------------- safetensors files */

/* Length, header, and data whose byte i is i % 251; to be freed. *size is the file's. */
SUPPORT unsigned char *build_file(const char *header, size_t header_size, size_t data_size, size_t *size)
{
    *size = 8 + header_size + data_size;
    unsigned char *bytes = malloc(*size);
    assert_non_null(bytes);
    for (unsigned i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)header_size >> (8 * i));
    memcpy(bytes + 8, header, header_size);
    for (size_t i = 0; i < data_size; i++)
        bytes[8 + header_size + i] = (unsigned char)(i % 251);
    return bytes;
}

SUPPORT void write_safetensors(const char *within, const char *name, const char *header, size_t data_size)
{
    size_t size;
    unsigned char *bytes = build_file(header, strlen(header), data_size, &size);
    write_file(within, name, bytes, size);
    free(bytes);
}

/* Parses bytes in memory as if they were a mapped file named "f". */
struct parsed {
    struct gs_file_map map;
    struct gs_arena arena;
    struct gs_safetensors tensors;
    struct gs_error error;
    gs_status status;
};

SUPPORT void parse_bytes(struct parsed *parsed, const unsigned char *bytes, size_t size)
{
    static char path[] = "f";
    *parsed = (struct parsed){0};
    parsed->map =
        (struct gs_file_map){.path = path, .data = bytes, .size = size, .descriptor = -1, .slot = -1};
    parsed->status = gs_safetensors_parse(&parsed->map, &parsed->arena, &parsed->tensors, &parsed->error);
}

/* A failure is a clean one: a code, one line, and nothing delivered. */
SUPPORT void assert_clean_failure(gs_status status, const struct gs_error *error)
{
    assert_int_not_equal(status, GS_OK);
    assert_int_equal(status, error->code);
    assert_true(strlen(error->message) > 0);
    assert_null(strpbrk(error->message, "\n\r\033"));
}

SUPPORT void assert_message(const struct gs_error *error, const char *part)
{
    if (!strstr(error->message, part))
        fail_msg("expected \"%s\" in \"%s\"", part, error->message);
}

#endif
