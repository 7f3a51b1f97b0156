/* Standard output for machines: the bytes that were given, of any length, and nothing less. */
#include "cli/clean.c"
#include "cli/output.c"
#include "cli/report.c"
#include "tests/support/check.h"
#include "tests/support/files.h"

#include <fcntl.h>

/* Runs `write` with standard output in a file; returns what is in it. */
static char *capture(void (*write_some)(struct gs_output *output), size_t *size)
{
    char *folder = test_folder_make();
    struct test_path path = test_path_join(folder, "out");
    struct gs_output output;
    struct gs_error error;
    int file = open(path.text, O_WRONLY | O_CREAT | O_CLOEXEC, 0600), before = dup(STDOUT_FILENO);
    assert_true(file >= 0 && before >= 0);
    fflush(stdout);
    assert_true(dup2(file, STDOUT_FILENO) >= 0);
    gs_output_open(&output, false);
    write_some(&output);
    gs_status status = gs_output_close(&output, &error);
    assert_true(dup2(before, STDOUT_FILENO) >= 0);
    close(before);
    close(file);
    assert_int_equal(status, GS_OK);
    char *text = test_file_read(path.text, size);
    test_folder_remove(folder);
    return text;
}

static void print_lengths(struct gs_output *output)
{
    for (int length = 1000; length < 1050; length++)
        gs_output_print(output, "%0*d\n", length, 7);
    gs_output_print(output, "%0*d|%s\n", 200000, 7, "end");
}

static void prints_any_length(void **state)
{
    size_t size, at = 0;
    char *text = capture(print_lengths, &size);
    (void)state;
    for (size_t length = 1000; length < 1050; at += length + 1, length++) {
        assert_int_equal(strcspn(text + at, "\n"), length);
        assert_int_equal(text[at + length - 1], '7');
    }
    assert_int_equal(size - at, 200005);
    assert_string_equal(text + size - 6, "7|end\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(prints_any_length)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
