#include "cli/input.h"

#include "base/status.h"
#include "chat/json_load.h"
#include "cli/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static gs_status read_all(int descriptor, const char *name, struct gs_buffer *text, struct gs_error *error)
{
    const size_t piece = 65536, before = text->size;
    for (;;) {
        gs_status status = gs_buffer_reserve(text, piece, error);
        if (status != GS_OK)
            return status;
        ssize_t n = read(descriptor, text->data + text->size, piece);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return gs_fail_io(error, errno, "read", name);
        if (n == 0)
            break;
        text->size += (size_t)n;
        if (text->size - before > GS_MAX_INPUT)
            return gs_fail(error, GS_INVALID_ARGUMENT, "%s: more than %u MiB, which no context holds",
                           gs_quote(name).text, GS_MAX_INPUT >> 20);
    }
    text->data[text->size] = '\0';
    return GS_OK;
}

gs_status gs_input_read(const char *path, struct gs_buffer *text, struct gs_error *error)
{
    if (!path) {
        if (gs_is_terminal(STDIN_FILENO) && gs_is_terminal(STDERR_FILENO))
            fputs("type the text; Ctrl-D on an empty line ends it\n", stderr);
        return read_all(STDIN_FILENO, "standard input", text, error);
    }
    if (path[0] == '\0')
        return gs_fail(error, GS_INVALID_ARGUMENT, "the name of a file is empty");
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return gs_fail_io(error, errno, "open", path);
    gs_status status = read_all(descriptor, path, text, error);
    close(descriptor);
    return status;
}

gs_status gs_input_read_json(const char *path, json_t **out, struct gs_error *error)
{
    const char *name = path ? path : "standard input";
    struct gs_buffer text = {0};
    *out = NULL;
    gs_status status = gs_input_read(path, &text, error);
    if (status == GS_OK && text.size == 0)
        status = gs_fail(error, GS_MALFORMED, "%s is empty: JSON is expected", gs_quote(name).text);
    else if (status == GS_OK)
        status = gs_json_load(name, text.data, text.size, out, error);
    gs_buffer_free(&text);
    return status;
}

gs_status gs_input_choose(const char *what, const char *text_option, const char *text, const char *file,
                          bool from_stdin, struct gs_buffer *out, struct gs_error *error)
{
    int given = (text != NULL) + (file != NULL) + from_stdin;
    if (given != 1)
        return gs_fail(error, GS_INVALID_ARGUMENT, "%s %s: give one of %s, -f FILE, or - for standard input",
                       given == 0 ? "no" : "more than one", what, text_option);
    return text ? gs_buffer_append_text(out, text, error)
                : gs_input_read(from_stdin ? NULL : file, out, error);
}
