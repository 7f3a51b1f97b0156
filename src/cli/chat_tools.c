#include "cli/chat_tools.h"

#include "base/clock.h"
#include "base/status.h"
#include "base/system.h"
#include "base/utf8.h"
#include "chat/tools_json.h"
#include "cli/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

extern char **environ;

#define WAIT_MS       100 /* an interrupt is seen after this at the latest */
#define REAP_MS       10  /* between the end of the output and the end of the command */
#define GRACE_SECONDS 1.5 /* for a command to end by itself after SIGTERM */

/* ---------------------------------------------------------------- a command */

/* After fork: only what is allowed there. `in` and `out` are the child's ends. */
static void run_child(char *const *argv, char *const *environment, int in, int out)
{
    struct sigaction normal = {.sa_handler = SIG_DFL};
    setpgid(0, 0);
    sigaction(SIGPIPE, &normal, NULL);
    sigaction(SIGINT, &normal, NULL);
    if (dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0)
        gs_system_execute(argv[0], argv, environment);
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
    bool cut;    /* there was more output than is taken */
    pid_t child; /* its process group has the same number */
    int ended;   /* what waitpid said, if `reaped` */
    bool reaped;
    bool stopping; /* SIGTERM was sent, because of an interrupt */
    double deadline;
};

static void close_end(int *descriptor)
{
    if (*descriptor >= 0)
        close(*descriptor);
    *descriptor = -1;
}

static void give_input(struct exchange *x)
{
    ssize_t n = write(x->in, x->input, x->left);
    if (n > 0) {
        x->input += n;
        x->left -= (size_t)n;
    } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
        x->left = 0; /* it does not read its input */
    }
}

static gs_status take_output(struct exchange *x, struct gs_error *error)
{
    char bytes[4096];
    ssize_t n = read(x->out, bytes, sizeof bytes);
    if (n == 0 || (n < 0 && errno != EINTR))
        close_end(&x->out);
    if (n <= 0 || x->cut)
        return GS_OK;
    size_t room = x->output->size < GS_TOOL_MAX_RESULT ? GS_TOOL_MAX_RESULT - x->output->size : 0;
    x->cut = (size_t)n > room;
    return gs_buffer_append(x->output, bytes, x->cut ? room : (size_t)n, error);
}

/* After an interrupt: SIGTERM, and SIGKILL for what did not mind. A stopped one must run to see the first. */
static void stop_command(struct exchange *x)
{
    if (!x->stopping) {
        x->stopping = true;
        x->deadline = gs_clock_seconds() + GRACE_SECONDS;
        kill(-x->child, SIGTERM);
        kill(-x->child, SIGCONT);
    } else if (gs_clock_seconds() >= x->deadline) {
        kill(-x->child, SIGKILL);
    }
}

/* Is there nothing to wait for? `quiet`: no output has come. */
static bool is_over(struct exchange *x, bool quiet)
{
    if (!x->reaped)
        x->reaped = waitpid(x->child, &x->ended, WNOHANG) == x->child;
    if (!x->reaped || x->out < 0)
        return x->reaped;
    /* What it left in the background may hold the output open for ever. */
    return x->stopping ? gs_clock_seconds() >= x->deadline : quiet || x->cut;
}

/* Both ways at once: neither side waits for the other for ever. To the end of the command. */
static gs_status exchange(struct exchange *x, struct gs_error *error)
{
    gs_status status = GS_OK;
    bool quiet = false;
    while (status == GS_OK && !is_over(x, quiet)) {
        if (gs_interrupted())
            stop_command(x);
        if (x->left == 0)
            close_end(&x->in);
        struct pollfd waits[2] = {{x->out, POLLIN, 0}, {x->in, POLLOUT, 0}};
        bool reaped = x->reaped;
        int ready = poll(waits, 2, x->out < 0 ? REAP_MS : WAIT_MS);
        if (ready < 0 && errno != EINTR)
            return gs_fail(error, GS_IO, "cannot wait for a command: %s", strerror(errno));
        quiet = reaped && ready == 0;
        if (ready > 0 && waits[1].revents)
            give_input(x);
        if (ready > 0 && waits[0].revents)
            status = take_output(x, error);
    }
    if (status == GS_OK && x->cut)
        status = gs_buffer_print(x->output, error, "\n[cut at %u MiB]", GS_TOOL_MAX_RESULT >> 20);
    return status;
}

static gs_status start(const char *command, char *const *environment, struct exchange *x,
                       struct gs_error *error)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./+-";
    char *program[] = {(char *)(uintptr_t)command, NULL};
    char *shell[] = {"sh", "-c", (char *)(uintptr_t)command, NULL};
    char **argv = command[strspn(command, plain)] == '\0' ? program : shell;
    int to[2] = {-1, -1}, from[2] = {-1, -1};
    if (gs_system_pipe(to) == 0 && gs_system_pipe(from) == 0)
        x->child = fork();
    if (x->child == 0)
        run_child(argv, environment, to[0], from[1]);
    int number = errno;
    close_end(&to[0]);
    close_end(&from[1]);
    x->in = to[1];
    x->out = from[0];
    if (x->child < 0)
        return gs_fail(error, GS_IO, "cannot run \"%s\": %s", gs_quote(command).text, strerror(number));
    setpgid(x->child, x->child); /* whoever comes first, it or we */
    fcntl(x->in, F_SETFL, O_NONBLOCK);
    return GS_OK;
}

gs_status gs_tool_run(const char *command, const char *name, const char *input, size_t size,
                      struct gs_buffer *output, int *code, struct gs_error *error)
{
    struct gs_buffer variable = {0};
    struct exchange x = {.in = -1, .out = -1, .input = input, .left = size, .output = output, .child = -1};
    *code = -1;
    gs_status status = gs_buffer_print(&variable, error, "GOSSAMER_FUNCTION=%s", name);
    char **environment = status == GS_OK ? make_environment(variable.data) : NULL;
    if (status == GS_OK && !environment)
        status = gs_fail_memory(error, size);
    if (status == GS_OK)
        status = start(command, environment, &x, error);
    if (status == GS_OK)
        status = exchange(&x, error);
    close_end(&x.in);
    close_end(&x.out);
    if (x.child > 0) {
        if (x.stopping || !x.reaped)
            kill(-x.child, SIGKILL); /* what outlives the command goes with it */
        while (!x.reaped && waitpid(x.child, &x.ended, 0) < 0 && errno == EINTR)
            continue;
        *code = WIFEXITED(x.ended) ? WEXITSTATUS(x.ended) : 128 + WTERMSIG(x.ended);
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
    struct gs_error problem;
    gs_interrupt_rearm();
    gs_status status = gs_tool_run(runner->command, call->name.data, call->arguments.data,
                                   call->arguments.size, result, &code, &problem);
    if (status == GS_IO) { /* the model is told, and the conversation goes on */
        gs_view_say(runner->view, "  the command could not be run: %s", problem.message);
        *stopped = gs_interrupted();
        return gs_buffer_print(result, error, "%s[the command could not be run: %s]",
                               result->size ? "\n" : "", problem.message);
    }
    if (status != GS_OK) {
        if (error)
            *error = problem;
        return status;
    }
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

/* Is the reply this word, whatever its case and the blanks around it? */
static bool says(const struct gs_buffer *reply, const char *word)
{
    size_t begin = 0, end = reply->size, length = strlen(word);
    while (end > 0 && strchr(" \t\r\n", reply->data[end - 1]) && reply->data[end - 1] != '\0')
        end--;
    while (begin < end && strchr(" \t", reply->data[begin]) && reply->data[begin] != '\0')
        begin++;
    return end - begin == length && strncasecmp(reply->data + begin, word, length) == 0;
}

/* What was typed before the question was seen is not its answer. */
static void forget_typed(const struct gs_line_reader *reader)
{
    if (!gs_line_is_interactive(reader))
        return;
    tcflush(STDIN_FILENO, TCIFLUSH);
    gs_system_purge(stdin);
}

/* Does the person agree? Remembers "always". */
static gs_status ask(struct gs_tool_runner *runner, const char *name, bool *agreed, bool *stopped,
                     struct gs_error *error)
{
    struct gs_buffer reply = {0};
    enum gs_line_end end;
    *agreed = json_object_get(runner->always, name) != NULL;
    if (*agreed)
        return GS_OK;
    forget_typed(runner->reader);
    gs_status status = gs_line_ask(runner->reader, "  run it? [y/N/always] ", &reply, &end, error);
    if (status == GS_OK) {
        *stopped = end != GS_LINE_DONE;
        bool always = !*stopped && says(&reply, "always");
        *agreed = always || (!*stopped && (says(&reply, "y") || says(&reply, "yes")));
        if (always && json_object_set_new(runner->always, name, json_true()) != 0)
            status = gs_fail_memory(error, sizeof *runner->always);
    }
    gs_buffer_free(&reply);
    return status;
}

/* Would a terminal act on it, or show nothing or something else in its place? */
static bool is_hidden(uint32_t c)
{
    static const uint32_t ranges[][2] = {
        {0x00, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},     {0x61c, 0x61c},
        {0x180e, 0x180e}, {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},
        {0xfe00, 0xfe0f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe0fff},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1])
            return true;
    return false;
}

/*
 * All of the text, with each byte of what cannot be seen as \xNN. A backslash before an x becomes \x5c: what
 * is shown stands for one text only.
 */
static gs_status append_visible(struct gs_buffer *shown, const char *text, size_t size,
                                struct gs_error *error)
{
    gs_status status = GS_OK;
    for (size_t at = 0, length; status == GS_OK && at < size; at += length) {
        uint32_t c = gs_utf8_decode(text + at, size - at, &length);
        bool invalid = c == GS_UTF8_INVALID || c == GS_UTF8_INCOMPLETE;
        if (!invalid && !is_hidden(c) && !(c == '\\' && at + 1 < size && text[at + 1] == 'x'))
            status = gs_buffer_append(shown, text + at, length, error);
        else
            for (size_t i = 0; status == GS_OK && i < length; i++)
                status = gs_buffer_print(shown, error, "\\x%02x", (unsigned char)text[at + i]);
    }
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
        status = append_visible(&shown, call->name.data, call->name.size, error);
    if (status == GS_OK)
        status = gs_buffer_append(&shown, " ", 1, error);
    if (status == GS_OK)
        status = append_visible(&shown, call->arguments.data, call->arguments.size, error);
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
