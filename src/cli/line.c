#include "cli/line.h"

#include "base/status.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/line_edit.h"
#include "cli/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define QUOTES      "\"\"\""
#define PASTE_BEGIN "\033[200~"
#define PASTE_END   "\033[201~"

struct gs_line_reader {
    struct gs_line_editor *editor; /* NULL: plain lines */
    bool interactive;
    char *line; /* getline's */
    size_t capacity;
};

gs_status gs_line_open(const struct gs_line_options *options, struct gs_line_reader **out,
                       struct gs_error *error)
{
    *out = NULL;
    struct gs_line_reader *reader = calloc(1, sizeof *reader);
    if (!reader)
        return gs_fail_memory(error, sizeof *reader);
    reader->interactive = gs_is_terminal(STDIN_FILENO);
    gs_status status = gs_line_editor_open(options, &reader->editor, error);
    if (status != GS_OK) {
        gs_line_close(reader);
        return status;
    }
    *out = reader;
    return GS_OK;
}

void gs_line_close(struct gs_line_reader *reader)
{
    if (!reader)
        return;
    gs_line_editor_close(reader->editor);
    free(reader->line);
    free(reader);
}

bool gs_line_is_interactive(const struct gs_line_reader *reader)
{
    return reader->interactive;
}

/* The prompt without its escape sequences. */
static void print_prompt(const char *prompt)
{
    for (bool hidden = false; *prompt; prompt++) {
        if (*prompt == '\1')
            hidden = !hidden;
        else if (!hidden)
            fputc(*prompt, stderr);
    }
}

static gs_status read_plain(struct gs_line_reader *reader, const char *prompt, struct gs_buffer *line,
                            enum gs_line_end *end, struct gs_error *error)
{
    if (reader->interactive)
        print_prompt(prompt);
    errno = 0;
    ssize_t size = getline(&reader->line, &reader->capacity, stdin);
    if (size < 0) {
        *end = errno == EINTR && gs_interrupted() ? GS_LINE_INTERRUPTED : GS_LINE_EOF;
        if (*end == GS_LINE_INTERRUPTED)
            clearerr(stdin);
        if (reader->interactive)
            fputc('\n', stderr);
        return GS_OK;
    }
    *end = GS_LINE_DONE;
    if (size > 0 && reader->line[size - 1] == '\n')
        size--;
    if (line->size + (size_t)size > GS_MAX_INPUT)
        return gs_fail(error, GS_INVALID_ARGUMENT, "a message of more than %u bytes was typed", GS_MAX_INPUT);
    return gs_buffer_append(line, reader->line, (size_t)size, error);
}

static gs_status read_line(struct gs_line_reader *reader, const char *prompt, struct gs_buffer *line,
                           enum gs_line_end *end, struct gs_error *error)
{
    return reader->editor ? gs_line_editor_read(reader->editor, prompt, line, end, error)
                          : read_plain(reader, prompt, line, end, error);
}

static void cut_bytes(struct gs_buffer *text, size_t at, size_t size)
{
    memmove(text->data + at, text->data + at + size, text->size - at - size + 1);
    text->size -= size;
}

/* A terminal that marks pastes without an editor that knows them: lines up to the mark of the end. */
static gs_status join_paste(struct gs_line_reader *reader, const char *prompt, struct gs_buffer *text,
                            enum gs_line_end *end, struct gs_error *error)
{
    gs_status status = GS_OK;
    char *mark;
    while (status == GS_OK && *end == GS_LINE_DONE && text->size > 0 &&
           (mark = strstr(text->data, PASTE_BEGIN)) != NULL) {
        size_t begin = (size_t)(mark - text->data);
        mark = strstr(mark, PASTE_END);
        if (mark) {
            cut_bytes(text, (size_t)(mark - text->data), strlen(PASTE_END));
            cut_bytes(text, begin, strlen(PASTE_BEGIN));
            continue;
        }
        status = gs_buffer_append(text, "\n", 1, error);
        if (status == GS_OK)
            status = read_plain(reader, prompt, text, end, error);
    }
    if (status == GS_OK && *end == GS_LINE_EOF && (mark = strstr(text->data, PASTE_BEGIN)) != NULL)
        cut_bytes(text, (size_t)(mark - text->data), strlen(PASTE_BEGIN));
    return status;
}

static bool ends_in_backslash(const struct gs_buffer *text)
{
    size_t count = 0;
    while (count < text->size && text->data[text->size - 1 - count] == '\\')
        count++;
    return count % 2 == 1;
}

static void drop_last(struct gs_buffer *text, size_t size)
{
    text->size -= size;
    text->data[text->size] = '\0';
}

/* The lines of a block whose opening quotation marks are in *text, up to the closing ones. */
static gs_status read_block(struct gs_line_reader *reader, struct gs_buffer *text, enum gs_line_end *end,
                            struct gs_error *error)
{
    gs_status status = GS_OK;
    const size_t quotes = strlen(QUOTES);
    cut_bytes(text, 0, quotes);
    while (status == GS_OK && *end == GS_LINE_DONE &&
           !(text->size >= quotes && strcmp(text->data + text->size - quotes, QUOTES) == 0)) {
        if (text->size > 0)
            status = gs_buffer_append(text, "\n", 1, error);
        if (status == GS_OK)
            status = read_line(reader, "... ", text, end, error);
    }
    if (status == GS_OK && *end == GS_LINE_DONE) {
        drop_last(text, quotes);
        if (text->size > 0 && text->data[text->size - 1] == '\n')
            drop_last(text, 1);
    }
    return status;
}

gs_status gs_line_read(struct gs_line_reader *reader, const char *prompt, struct gs_buffer *text,
                       enum gs_line_end *end, struct gs_error *error)
{
    gs_buffer_clear(text);
    gs_status status = gs_buffer_append(text, "", 0, error);
    if (status == GS_OK)
        status = read_line(reader, prompt, text, end, error);
    if (status == GS_OK && !reader->editor)
        status = join_paste(reader, "", text, end, error);
    if (status == GS_OK && *end == GS_LINE_DONE && strncmp(text->data, QUOTES, strlen(QUOTES)) == 0)
        status = read_block(reader, text, end, error);
    else
        while (status == GS_OK && *end == GS_LINE_DONE && ends_in_backslash(text)) {
            text->data[text->size - 1] = '\n';
            status = read_line(reader, "... ", text, end, error);
        }
    if (status == GS_OK && *end == GS_LINE_EOF && text->size > 0)
        *end = GS_LINE_DONE; /* the next read meets the end again */
    if (status == GS_OK && *end == GS_LINE_DONE && reader->editor && text->data[strspn(text->data, " \n")])
        gs_line_editor_remember(reader->editor, text->data);
    return status;
}

gs_status gs_line_ask(struct gs_line_reader *reader, const char *prompt, struct gs_buffer *text,
                      enum gs_line_end *end, struct gs_error *error)
{
    gs_buffer_clear(text);
    gs_status status = gs_buffer_append(text, "", 0, error);
    return status == GS_OK ? read_line(reader, prompt, text, end, error) : status;
}
