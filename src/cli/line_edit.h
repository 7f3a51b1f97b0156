/* One edited line: libedit behind four functions; line.c makes messages of them. */
#ifndef GS_CLI_LINE_EDIT_H
#define GS_CLI_LINE_EDIT_H

#include "cli/line.h"

struct gs_line_editor;

/* *out NULL: no editing here, neither in the binary nor on the terminal. */
gs_status gs_line_editor_open(const struct gs_line_options *options, struct gs_line_editor **out,
                              struct gs_error *error);
void gs_line_editor_close(struct gs_line_editor *editor);

/* Appends one line without its newline; a pasted text in it may hold newlines. */
gs_status gs_line_editor_read(struct gs_line_editor *editor, const char *prompt, struct gs_buffer *line,
                              enum gs_line_end *end, struct gs_error *error);
void gs_line_editor_remember(struct gs_line_editor *editor, const char *text);

#endif
