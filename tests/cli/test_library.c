/* The program of docs/library.md, compiled and run as it stands there; the header, included from C++. */
#include "tests/cli/process.h"
#include "tests/support/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZERS "-fsanitize=address,undefined"
#else
#define SANITIZERS ""
#endif

/* The folder of the library: where the binary is. */
static struct test_path build_folder(void)
{
    const char *binary = getenv("GOSSAMER");
    struct test_path folder;
    snprintf(folder.text, sizeof folder.text, "%s", binary ? binary : "build/gossamer");
    char *slash = strrchr(folder.text, '/');
    assert_non_null(slash);
    *slash = '\0';
    return folder;
}

/* The exit code of a shell's command; its output in `out` [size]. */
static int shell(const char *command, char *out, size_t size)
{
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    out[fread(out, 1, size - 1, pipe)] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The compiler of the shell makes programs for this machine, which under emulation is not the library's. */
static bool is_native(void)
{
#if defined(__x86_64__) && defined(__linux__)
    return true;
#else
    return false;
#endif
}

static void test_program(void **state)
{
    char command[4096], out[4096];
    size_t size;
    (void)state;
    if (!is_native())
        skip();
    char *folder = test_folder_make();
    char *text = test_file_read("docs/library.md", &size);
    char *begin = strstr(text, "```c\n"), *end = begin ? strstr(begin, "\n```\n") : NULL;
    assert_non_null(end);
    test_file_write(test_path_join(folder, "hello.c").text, begin + 5, (size_t)(end - begin - 4));
    snprintf(command, sizeof command,
             "cc -std=c11 -Wall -Wextra -Werror " SANITIZERS
             " -Iinclude -o %s/hello %s/hello.c %s/libgossamer.a "
             "$(pkg-config --libs jansson) -lm -pthread 2>&1",
             folder, folder, build_folder().text);
    if (shell(command, out, sizeof out) != 0)
        fail_msg("%s: %s", command, out);
    snprintf(command, sizeof command, "%s/hello models/demo 'The capital of France is'", folder);
    assert_int_equal(shell(command, out, sizeof out), 0);
    assert_string_equal(out, " Paris.\n");
    snprintf(command, sizeof command, "%s/hello /nowhere x 2>&1", folder);
    assert_int_equal(shell(command, out, sizeof out), 1);
    assert_string_equal(out, "cannot open /nowhere: No such file or directory\n");
    free(text);
    test_folder_remove(folder);
}

static void test_header_in_cpp(void **state)
{
    char out[4096];
    (void)state;
    if (!is_native())
        skip();
    const char *command =
        "echo '#include \"gossamer.h\"' | c++ -std=c++11 -Wall -Wextra -Wpedantic -Werror -Iinclude "
        "-fsyntax-only -x c++ - 2>&1";
    if (shell(command, out, sizeof out) != 0)
        fail_msg("%s", out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_program),
        cmocka_unit_test(test_header_in_cpp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
