/*
 * The binary on a terminal of its own, spoken with as a person does: send keys, wait for what must appear.
 */
#ifndef TESTS_CLI_TERMINAL_SESSION_H
#define TESTS_CLI_TERMINAL_SESSION_H

#include "tests/cli/process.h"

#include <sys/ioctl.h>

struct terminal_session {
    pid_t child;
    struct process_channel channel;
    size_t at; /* what was waited for ends here */
};

static inline struct terminal_session terminal_start(const char *const *arguments, const char *term)
{
    struct terminal_session session = {.channel = {-1, -1, malloc(PROCESS_MAX + 1), 0}};
    struct winsize size = {.ws_row = 40, .ws_col = 90};
    assert_non_null(session.channel.data);
    session.channel.data[0] = '\0';
    session.channel.ours = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(session.channel.ours >= 0);
    assert_int_equal(grantpt(session.channel.ours), 0);
    assert_int_equal(unlockpt(session.channel.ours), 0);
    assert_int_equal(ioctl(session.channel.ours, TIOCSWINSZ, &size), 0);
    const char *name = ptsname(session.channel.ours);
    session.child = fork();
    assert_true(session.child >= 0);
    if (session.child == 0) {
        const struct process_options options = {.term = term};
        setsid();
        int terminal = open(name, O_RDWR); /* becomes the controlling one */
        process_exec(&options, arguments, terminal, terminal, terminal);
    }
    return session;
}

static inline void terminal_send(struct terminal_session *session, const char *keys)
{
    size_t size = strlen(keys);
    assert_int_equal(write(session->channel.ours, keys, size), (ssize_t)size);
}

/* Waits until this text has come after the last one waited for. */
static inline void terminal_expect(struct terminal_session *session, const char *text)
{
    struct process_wait patience = {0};
    for (;;) {
        char *found = strstr(session->channel.data + session->at, text);
        if (found) {
            session->at = (size_t)(found - session->channel.data) + strlen(text);
            return;
        }
        struct pollfd wait = {session->channel.ours, POLLIN, 0};
        bool ready = session->channel.ours >= 0 && poll(&wait, 1, 1000) > 0;
        if (ready)
            channel_read(&session->channel);
        if (session->channel.ours < 0 || process_hangs(&patience)) {
            kill(session->child, SIGKILL);
            fail_msg("\"%s\" did not come after:\n%s", text, session->channel.data + session->at);
        }
    }
}

/* Reads to the end; the exit code. What came stays readable until terminal_free. */
static inline int terminal_finish(struct terminal_session *session)
{
    int status;
    struct process_wait patience = {0};
    while (session->channel.ours >= 0) {
        struct pollfd wait = {session->channel.ours, POLLIN, 0};
        if (poll(&wait, 1, 1000) > 0)
            channel_read(&session->channel);
        if (process_hangs(&patience)) {
            kill(session->child, SIGKILL);
            fail_msg("no end after:\n%s", session->channel.data + session->at);
        }
    }
    assert_int_equal(waitpid(session->child, &status, 0), session->child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static inline void terminal_free(struct terminal_session *session)
{
    free(session->channel.data);
}

/* Without libedit a person's lines are read as the terminal gives them. */
static inline void need_line_editor(void)
{
#ifndef GS_HAVE_LIBEDIT
    print_message("  no line editor in this build: skipped\n");
    skip();
#endif
}

#define terminal_run(...) terminal_start((const char *const[]){__VA_ARGS__, NULL}, "xterm")

#endif
