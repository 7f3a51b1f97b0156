/*
 * Running the binary as a person has it: arguments and standard input in; exit code, standard output and
 * standard error out, each through a pipe or a terminal of its own. The binary is $GOSSAMER, which
 * scripts/run-tests.sh sets, or build/gossamer.
 */
#ifndef TESTS_CLI_PROCESS_H
#define TESTS_CLI_PROCESS_H

#include "base/system.h"
#include "tests/support/check.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define PROCESS_SECONDS 1200 /* longer is a hang, on a loaded machine and with sanitizers too */
#define PROCESS_MAX     (8u << 20)

struct process_options {
    const char *input; /* standard input [input_size] */
    size_t input_size;
    bool out_terminal, err_terminal;
    const char *term;         /* TERM; NULL: xterm */
    bool no_color;            /* NO_COLOR=1 */
    size_t interrupt_after;   /* bytes of output until SIGINT; 0: never */
    bool interrupt_on_err;    /* the bytes counted are of standard error */
    const char *interrupt_on; /* SIGINT when this stands on standard error; NULL: never */
    size_t close_after;       /* bytes of output until the reading end closes; 0: never */
    const char *out_path;     /* standard output goes to this file */
    const char *in_path;      /* standard input is this file */
    unsigned closed;          /* bit n: descriptor n is closed from the start */
};

struct process_result {
    int code;  /* exit code; -1: killed by signal */
    char *out; /* NUL-terminated; free with process_free */
    size_t out_size;
    char *err;
    size_t err_size;
};

static inline void process_free(struct process_result *result)
{
    free(result->out);
    free(result->err);
    *result = (struct process_result){0};
}

struct process_channel {
    int ours, theirs;
    char *data;
    size_t size;
};

static inline struct process_channel channel_open(bool terminal)
{
    struct process_channel channel = {-1, -1, malloc(PROCESS_MAX + 1), 0};
    assert_non_null(channel.data);
    if (terminal) {
        struct termios mode;
        channel.ours = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
        assert_true(channel.ours >= 0);
        assert_int_equal(grantpt(channel.ours), 0);
        assert_int_equal(unlockpt(channel.ours), 0);
        channel.theirs = open(ptsname(channel.ours), O_RDWR | O_NOCTTY | O_CLOEXEC);
        assert_true(channel.theirs >= 0);
        assert_int_equal(tcgetattr(channel.theirs, &mode), 0);
        cfmakeraw(&mode); /* bytes arrive as they were written */
        assert_int_equal(tcsetattr(channel.theirs, TCSANOW, &mode), 0);
    } else {
        int ends[2];
        assert_int_equal(gs_system_pipe(ends), 0);
        channel.ours = ends[0];
        channel.theirs = ends[1];
    }
    return channel;
}

/*
 * Zero-initialise and ask at least once a second: has it been PROCESS_SECONDS? A look counts a second at
 * most, so that a machine that stood still in between is not taken for a program that hangs.
 */
struct process_wait {
    time_t last;
    int seconds;
};

static inline bool process_hangs(struct process_wait *wait)
{
    time_t now = time(NULL);
    wait->seconds += wait->last != 0 && now > wait->last;
    wait->last = now;
    return wait->seconds > PROCESS_SECONDS;
}

/* Reads what is there; closes at the end. */
static inline void channel_read(struct process_channel *channel)
{
    assert_true(channel->size < PROCESS_MAX);
    ssize_t n = read(channel->ours, channel->data + channel->size, PROCESS_MAX - channel->size);
    if (n > 0) {
        channel->size += (size_t)n;
    } else if (n == 0 || errno != EINTR) { /* a terminal ends with EIO */
        close(channel->ours);
        channel->ours = -1;
    }
    channel->data[channel->size] = '\0';
}

static inline void process_exec(const struct process_options *options, const char *const *arguments, int in,
                                int out, int err)
{
    const char *binary = getenv("GOSSAMER");
    const char *argv[40] = {"gossamer"};
    size_t n = 1;
    for (; arguments[n - 1] && n < 39; n++)
        argv[n] = arguments[n - 1];
    setenv("TERM", options->term ? options->term : "xterm", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    if (options->no_color)
        setenv("NO_COLOR", "1", 1);
    else
        unsetenv("NO_COLOR");
    /* Whatever started the tests may have ignored them, as nohup and a shell's background do. */
    static const int signals[] = {SIGINT, SIGQUIT, SIGHUP, SIGTERM};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], SIG_DFL);
    if (options->out_path)
        out = open(options->out_path, O_WRONLY | O_CREAT, 0600);
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
        _exit(126);
    for (int descriptor = 0; descriptor <= 2; descriptor++)
        if (options->closed >> descriptor & 1)
            close(descriptor);
    execv(binary ? binary : "build/gossamer", (char *const *)argv);
    _exit(127);
}

/* A file that holds the input and has no name: no pipe that could fill up. */
static inline int process_input(const struct process_options *options)
{
    if (options->in_path) {
        int given = open(options->in_path, O_RDONLY | O_CLOEXEC);
        assert_true(given >= 0);
        return given;
    }
    FILE *file = tmpfile();
    assert_non_null(file);
    if (options->input_size > 0)
        assert_int_equal(fwrite(options->input, 1, options->input_size, file), options->input_size);
    rewind(file);
    int descriptor = fcntl(fileno(file), F_DUPFD_CLOEXEC, 3);
    assert_true(descriptor >= 0);
    fclose(file);
    return descriptor;
}

/* The status of a child that ends, whatever becomes of its output. */
static inline int process_wait_end(pid_t child)
{
    int status;
    pid_t ended;
    struct process_wait wait = {0};
    while ((ended = waitpid(child, &status, WNOHANG)) == 0) {
        poll(NULL, 0, 10);
        if (process_hangs(&wait)) {
            kill(child, SIGKILL);
            fail_msg("the program did not end for %d seconds", PROCESS_SECONDS);
        }
    }
    assert_int_equal(ended, child);
    return status;
}

/* `arguments` ends with NULL. */
static inline struct process_result process_run_with(const struct process_options *options,
                                                     const char *const *arguments)
{
    struct process_channel out = channel_open(options->out_terminal);
    struct process_channel err = channel_open(options->err_terminal);
    int in = process_input(options);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        process_exec(options, arguments, in, out.theirs, err.theirs);
    close(in);
    close(out.theirs);
    close(err.theirs);

    bool interrupted = false;
    struct process_wait wait = {0};
    while (out.ours >= 0 || err.ours >= 0) {
        struct pollfd waits[2] = {{out.ours, POLLIN, 0}, {err.ours, POLLIN, 0}};
        int ready = poll(waits, 2, 1000);
        if (process_hangs(&wait)) {
            kill(child, SIGKILL);
            fail_msg("gossamer %s ran for more than %d seconds", arguments[0], PROCESS_SECONDS);
        }
        if (ready <= 0)
            continue;
        if (out.ours >= 0 && waits[0].revents)
            channel_read(&out);
        if (err.ours >= 0 && waits[1].revents)
            channel_read(&err);
        size_t counted = options->interrupt_on_err ? err.size : out.size;
        if (!interrupted &&
            ((options->interrupt_after > 0 && counted >= options->interrupt_after) ||
             (options->interrupt_on && err.size > 0 && strstr(err.data, options->interrupt_on)))) {
            interrupted = true;
            kill(child, SIGINT);
        }
        if (options->close_after > 0 && out.ours >= 0 && out.size >= options->close_after) {
            close(out.ours);
            out.ours = -1;
        }
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return (struct process_result){WIFEXITED(status) ? WEXITSTATUS(status) : -1, out.data, out.size, err.data,
                                   err.size};
}

#define process_run(...)                                                                                     \
    process_run_with(&(struct process_options){0}, (const char *const[]){__VA_ARGS__, NULL})

#define process_run_as(options, ...) process_run_with(&(options), (const char *const[]){__VA_ARGS__, NULL})

/* Succeeded, with exactly this on standard output; releases the result. */
static inline void process_expect(struct process_result result, const char *out)
{
    if (result.code != 0)
        fail_msg("exit code %d: %s", result.code, result.err);
    assert_string_equal(result.out, out);
    process_free(&result);
}

/* Exit code 2, nothing on standard output, one line on standard error that has this part. */
static inline void process_refuses(struct process_result result, const char *part)
{
    if (!strstr(result.err, part))
        fail_msg("message \"%s\" lacks \"%s\"", result.err, part);
    assert_int_equal(result.code, 2);
    assert_int_equal(strncmp(result.err, "gossamer: ", 10), 0);
    assert_ptr_equal(strchr(result.err, '\n'), result.err + result.err_size - 1);
    assert_string_equal(result.out, "");
    process_free(&result);
}

/*
 * For what an emulator of another processor cannot do: the program starting itself once more, where the
 * system does not know to ask the emulator; and being started with a handful of descriptors.
 */
static inline void need_own_processor(void)
{
#if defined(__aarch64__) && defined(__linux__)
    char machine[20] = "";
    FILE *pipe = popen("uname -m", "r");
    assert_non_null(pipe);
    assert_non_null(fgets(machine, sizeof machine, pipe));
    pclose(pipe);
    if (strcmp(machine, "aarch64\n") == 0)
        return;
    print_message("  not under an emulator: skipped\n");
    skip();
#endif
}

#endif
