/*
 * What a person types: lines with editing and history (libedit) where standard input and error are a terminal
 * and the binary has it, plain lines elsewhere.
 *
 * A message of several lines: a backslash at a line's end continues it; a line that begins with three
 * quotation marks opens a block, which the next three close; and pasted lines come as one text, without being
 * run one by one (a long paste stands in the line as "[pasted 1: 24 lines]"). The end of the input ends a
 * message that was begun.
 */
#ifndef GS_CLI_LINE_H
#define GS_CLI_LINE_H

#include "base/buffer.h"

struct gs_line_reader;

enum gs_line_end {
    GS_LINE_DONE,
    GS_LINE_INTERRUPTED, /* Ctrl-C */
    GS_LINE_EOF,
};

struct gs_line_options {
    const char *history; /* file to which lines are added when entered; NULL: none; copied. In a folder that
                            is there */
    const char *const *completions; /* first words that the tab key completes; ends with NULL; may be NULL */
};

gs_status gs_line_open(const struct gs_line_options *options, struct gs_line_reader **out,
                       struct gs_error *error);

void gs_line_close(struct gs_line_reader *reader);

/* Is there a person at a terminal? Only then are prompts shown. */
bool gs_line_is_interactive(const struct gs_line_reader *reader);

/* Replaces *text by one message. `prompt` may be coloured: escape sequences stand between \1 and \1. */
gs_status gs_line_read(struct gs_line_reader *reader, const char *prompt, struct gs_buffer *text,
                       enum gs_line_end *end, struct gs_error *error);

/* One line, without blocks and without history: an answer to a question. */
gs_status gs_line_ask(struct gs_line_reader *reader, const char *prompt, struct gs_buffer *text,
                      enum gs_line_end *end, struct gs_error *error);

#endif
