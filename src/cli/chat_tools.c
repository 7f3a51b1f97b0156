#include "cli/chat_tools.h"

#include "base/status.h"
#include "chat/tools_json.h"
#include "cli/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---------------------------------------------------------------- a command */

/* After fork: only what is allowed there. `in` and `out` are the child's ends. */
static void run_child(char *const *argv, char *const *environment, int in, int out)
{
    struct sigaction normal = {.sa_handler = SIG_DFL};
    sigaction(SIGPIPE, &normal, NULL);
    sigaction(SIGINT, &normal, NULL);
    if (dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0)
        execvpe(argv[0], argv, environment);
    _exit(127);
}

/* The environment with the function's name in it; the list is to be freed. */
static char **make_environment(char *variable)
{
    size_t count = 0, n = 0;
    while (environ[count])
        count++;
    char **list = calloc(count + 2, sizeof *list);
    for (size_t i = 0; list && i < count; i++)
        if (strncmp(environ[i], "GOSSAMER_FUNCTION=", 18) != 0)
            list[n++] = environ[i];
    if (list)
        list[n] = variable;
    return list;
}

struct exchange {
    int in, out; /* our ends; -1: closed */
    const char *input;
    size_t left;
    struct gs_buffer *output;
};

static void close_end(int *descriptor)
{
    if (*descriptor >= 0)
        close(*descriptor);
    *descriptor = -1;
}

/* Both ways at once: neither side waits for the other for ever. */
static gs_status exchange(struct exchange *x, struct gs_error *error)
{
    gs_status status = GS_OK;
    while (status == GS_OK && x->out >= 0) {
        struct pollfd waits[2] = {{x->out, POLLIN, 0}, {x->left > 0 ? x->in : -1, POLLOUT, 0}};
        if (x->left == 0)
            close_end(&x->in);
        if (poll(waits, 2, -1) < 0) {
            if (errno == EINTR && !gs_interrupted())
                continue;
            return errno == EINTR ? GS_OK : gs_fail(error, GS_IO, "cannot wait for a command");
        }
        if (waits[1].revents) {
            ssize_t n = write(x->in, x->input, x->left);
            if (n > 0) {
                x->input += n;
                x->left -= (size_t)n;
            } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
                x->left = 0; /* it does not read its input */
            }
        }
        if (waits[0].revents) {
            char bytes[4096];
            ssize_t n = read(x->out, bytes, sizeof bytes);
            if (n == 0 || (n < 0 && errno != EINTR))
                close_end(&x->out);
            else if (n > 0 && x->output->size + (size_t)n <= GS_TOOL_MAX_RESULT)
                status = gs_buffer_append(x->output, bytes, (size_t)n, error);
        }
    }
    return status;
}

static gs_status start(const char *command, char *const *environment, struct exchange *x, pid_t *child,
                       struct gs_error *error)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./+-";
    char *program[] = {(char *)(uintptr_t)command, NULL};
    char *shell[] = {"sh", "-c", (char *)(uintptr_t)command, NULL};
    char **argv = command[strspn(command, plain)] == '\0' ? program : shell;
    int to[2] = {-1, -1}, from[2] = {-1, -1};
    *child = -1;
    if (pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0)
        *child = fork();
    if (*child == 0)
        run_child(argv, environment, to[0], from[1]);
    close_end(&to[0]);
    close_end(&from[1]);
    x->in = to[1];
    x->out = from[0];
    if (*child >= 0) {
        fcntl(x->in, F_SETFL, O_NONBLOCK);
        return GS_OK;
    }
    return gs_fail(error, GS_IO, "cannot run \"%s\": %s", gs_quote(command).text, strerror(errno));
}

gs_status gs_tool_run(const char *command, const char *name, const char *input, size_t size,
                      struct gs_buffer *output, int *code, struct gs_error *error)
{
    struct gs_buffer variable = {0};
    struct exchange x = {-1, -1, input, size, output};
    pid_t child = -1;
    int wait = 0;
    *code = -1;
    gs_status status = gs_buffer_print(&variable, error, "GOSSAMER_FUNCTION=%s", name);
    char **environment = status == GS_OK ? make_environment(variable.data) : NULL;
    if (status == GS_OK && !environment)
        status = gs_fail_memory(error, size);
    if (status == GS_OK)
        status = start(command, environment, &x, &child, error);
    if (status == GS_OK)
        status = exchange(&x, error);
    close_end(&x.in);
    close_end(&x.out);
    if (child > 0) {
        if (gs_interrupted())
            kill(child, SIGTERM); /* the terminal's Ctrl-C has reached it too, but it may not have minded */
        while (waitpid(child, &wait, 0) < 0 && errno == EINTR)
            continue;
        *code = WIFEXITED(wait) ? WEXITSTATUS(wait) : 128 + WTERMSIG(wait);
    }
    free(environment);
    gs_buffer_free(&variable);
    return status;
}

/* ---------------------------------------------------------------- a call */

static void drop_last_newline(struct gs_buffer *text)
{
    if (text->size > 0 && text->data[text->size - 1] == '\n')
        text->data[--text->size] = '\0';
}

static gs_status run_command(struct gs_tool_runner *runner, const struct gs_answer_call *call,
                             struct gs_buffer *result, bool *stopped, struct gs_error *error)
{
    int code;
    gs_interrupt_rearm();
    gs_status status = gs_tool_run(runner->command, call->name.data, call->arguments.data,
                                   call->arguments.size, result, &code, error);
    if (status != GS_OK)
        return status;
    drop_last_newline(result);
    *stopped = gs_interrupted();
    if (*stopped)
        status = gs_buffer_print(result, error, "%s[stopped by the user]", result->size ? "\n" : "");
    else if (code != 0)
        status = gs_buffer_print(result, error, "%s[exit code %d]", result->size ? "\n" : "", code);
    if (code == 127)
        gs_view_say(runner->view, "\"%s\" was not found", gs_quote(runner->command).text);
    return status;
}

/* Does the person agree? Remembers "always". */
static gs_status ask(struct gs_tool_runner *runner, const char *name, bool *agreed, bool *stopped,
                     struct gs_error *error)
{
    struct gs_buffer reply = {0};
    enum gs_line_end end;
    gs_status status = GS_OK;
    *agreed = json_object_get(runner->always, name) != NULL;
    if (*agreed)
        return GS_OK;
    status = gs_line_ask(runner->reader, "  run it? [y/N/always] ", &reply, &end, error);
    if (status == GS_OK) {
        *stopped = end != GS_LINE_DONE;
        char first = end == GS_LINE_DONE ? reply.data[strspn(reply.data, " ")] : '\0';
        bool always = first == 'a' || first == 'A';
        *agreed = always || first == 'y' || first == 'Y';
        if (always && json_object_set_new(runner->always, name, json_true()) != 0)
            status = gs_fail_memory(error, sizeof *runner->always);
    }
    gs_buffer_free(&reply);
    return status;
}

gs_status gs_tool_call(struct gs_tool_runner *runner, const struct gs_conversation *conversation,
                       const struct gs_answer_call *call, struct gs_buffer *result, bool *stopped,
                       struct gs_error *error)
{
    const struct gs_view *view = runner->view;
    struct gs_buffer shown = {0};
    enum gs_line_end end;
    bool agreed = true;
    *stopped = false;
    gs_buffer_clear(result);
    gs_status status = gs_buffer_append(result, "", 0, error);
    if (status == GS_OK)
        status = gs_buffer_print(&shown, error, "%s %s", call->name.data, call->arguments.data);
    if (status == GS_OK)
        gs_view_text(view, view->utf8 ? "→ " : "> ", shown.data, shown.size);
    gs_buffer_free(&shown);
    if (status != GS_OK)
        return status;
    if (!gs_conversation_declares(conversation, (struct gs_text){call->name.data, call->name.size})) {
        gs_view_say(view, "  there is no such function: the model is told so");
        return gs_buffer_print(result, error, "There is no function %s.", call->name.data);
    }
    if (runner->command) {
        status = ask(runner, call->name.data, &agreed, stopped, error);
        if (status == GS_OK && agreed)
            status = run_command(runner, call, result, stopped, error);
        else if (status == GS_OK)
            status = gs_buffer_append_text(result, "The user did not allow this call.", error);
    } else {
        status = gs_line_ask(runner->reader, "  its result: ", result, &end, error);
        *stopped = status == GS_OK && end != GS_LINE_DONE;
        if (*stopped)
            status = gs_buffer_append_text(result, "[stopped by the user]", error);
    }
    if (status == GS_OK && runner->command)
        gs_view_text(view, view->utf8 ? "← " : "< ", result->data, result->size);
    return status;
}
