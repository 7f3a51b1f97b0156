/* What base/system.h promises, on whatever system this is; and that kernels are offered as base/arm.h says.
 */
#include "backend/cpu/kernels.h"
#include "base/arm.h"
#include "base/system.h"
#include "tests/support/check.h"
#include "tests/support/files.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void pipes_and_sockets_stay_here(void **state)
{
    (void)state;
    int ends[2];
    char byte = 0;
    assert_int_equal(gs_system_pipe(ends), 0);
    for (int i = 0; i < 2; i++)
        assert_true(fcntl(ends[i], F_GETFD) & FD_CLOEXEC);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(byte, 'x');
    close(ends[0]);
    close(ends[1]);

    int descriptor = gs_system_socket(AF_INET, SOCK_STREAM);
    assert_true(descriptor >= 0);
    assert_true(fcntl(descriptor, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(descriptor, F_GETFL) & O_NONBLOCK);
    close(descriptor);
    assert_int_equal(gs_system_socket(-1, SOCK_STREAM), -1);
}

static void files_have_their_time(void **state)
{
    (void)state;
    char *folder = test_folder_make();
    struct test_path path = test_path_join(folder, "file");
    const struct timespec times[2] = {{.tv_sec = 1000000000, .tv_nsec = 0},
                                      {.tv_sec = 1234567890, .tv_nsec = 0}};
    struct stat info;
    test_file_write(path.text, "x", 1);
    assert_int_equal(utimensat(AT_FDCWD, path.text, times, 0), 0);
    assert_int_equal(stat(path.text, &info), 0);
    assert_true(gs_system_modified_ns(&info) == 1234567890 * INT64_C(1000000000));
    test_folder_remove(folder);
}

static void what_was_read_ahead_is_forgotten(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(gs_system_pipe(ends), 0);
    FILE *stream = fdopen(ends[0], "r");
    assert_non_null(stream);
    assert_int_equal(write(ends[1], "abc", 3), 3);
    assert_int_equal(fgetc(stream), 'a'); /* b and c are in the stream now */
    gs_system_purge(stream);
    assert_int_equal(write(ends[1], "d", 1), 1);
    assert_int_equal(fgetc(stream), 'd');
    fclose(stream);
    close(ends[1]);
}

/* Found by PATH, with the environment that it is given. */
static void a_program_gets_its_environment(void **state)
{
    (void)state;
    char *argv[] = {"sh", "-c", "exit $CODE", NULL}, *environment[] = {"CODE=37", NULL};
    int code;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        gs_system_execute("sh", argv, environment);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 37);
}

static void kernels_are_offered_as_the_processor_has_them(void **state)
{
    (void)state;
    unsigned features = gs_arm_features();
    assert_int_equal(gs_kernels_find("dotprod") != NULL, (features & GS_ARM_DOTPROD) != 0);
    assert_int_equal(gs_kernels_find("i8mm") != NULL,
                     (features & GS_ARM_DOTPROD) && (features & GS_ARM_I8MM));
    assert_int_equal(gs_kernels_find("bf16") != NULL,
                     (features & GS_ARM_DOTPROD) && (features & GS_ARM_I8MM) && (features & GS_ARM_BF16));
#if !defined(__aarch64__)
    assert_int_equal(features, 0);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipes_and_sockets_stay_here),
        cmocka_unit_test(files_have_their_time),
        cmocka_unit_test(what_was_read_ahead_is_forgotten),
        cmocka_unit_test(a_program_gets_its_environment),
        cmocka_unit_test(kernels_are_offered_as_the_processor_has_them),
    };
    return cmocka_run_group_tests_name("base/system", tests, NULL, NULL);
}
