/*
 * Standard output: everything for machines goes through here. On a terminal the text is cleaned of control
 * characters (clean.h) and ends with a newline; otherwise the bytes are exactly those given.
 *
 * Failures are kept, not returned: writing after one does nothing, gs_output_ok tells, and gs_output_close
 * reports. A reader that went away (EPIPE) is no failure, just an end.
 */
#ifndef GS_CLI_OUTPUT_H
#define GS_CLI_OUTPUT_H

#include "cli/clean.h"

struct gs_output {
    bool is_terminal;
    bool cleans;
    bool reader_gone;
    gs_status status;
    struct gs_error error;
    struct gs_cleaner cleaner;
    struct gs_buffer buffer; /* not written yet */
    char last;               /* the last byte written; '\n' at the start */
};

/* keep_control: no cleaning on a terminal either. */
void gs_output_open(struct gs_output *output, bool keep_control);

void gs_output_append(struct gs_output *output, const char *bytes, size_t size);

/* Of any length: what machines read is never cut. */
__attribute__((format(printf, 2, 3))) void gs_output_print(struct gs_output *output, const char *format, ...);

/* Writes what was appended. */
void gs_output_flush(struct gs_output *output);

/* Can the output still be written to? */
bool gs_output_ok(const struct gs_output *output);

/* Flushes and ends a terminal's last line, so that other lines can follow. */
void gs_output_end_text(struct gs_output *output);

/* The same, and releases; the status of the whole. */
gs_status gs_output_close(struct gs_output *output, struct gs_error *error);

/*
 * The end of a command: closes, reports `status` (of what was done; its message in `error`) or else the
 * output's own failure, and returns the exit code.
 */
int gs_output_end(struct gs_output *output, gs_status status, struct gs_error *error);

#endif
