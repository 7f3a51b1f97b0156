/* What the commands share in speaking to a person: exit codes, the one line of an error, readable sizes. */
#ifndef GS_CLI_REPORT_H
#define GS_CLI_REPORT_H

#include "gossamer.h"

enum gs_exit {
    GS_EXIT_OK = 0,
    GS_EXIT_FAILURE = 1, /* the machine: out of memory, a full disk, a file that changed under us */
    GS_EXIT_BAD_INPUT = 2,
    GS_EXIT_INTERRUPTED = 130,
};

/* Which of them a status is; GS_EXIT_OK for GS_OK. */
int gs_exit_code(gs_status status);

/* Prints "gossamer: <message>" on stderr and returns the exit code. */
int gs_report(gs_status status, const struct gs_error *error);

/* "13.8 GiB" */
struct gs_size_text {
    char text[32];
};
struct gs_size_text gs_size_text(uint64_t bytes);

/* "20.9 B": counts in thousands, millions and billions. */
struct gs_size_text gs_count_text(uint64_t count);

/* Is this descriptor a terminal? One that understands cursor movement (TERM is not "dumb")? */
bool gs_is_terminal(int descriptor);
bool gs_is_cursor_terminal(int descriptor);

/* May stderr have colours: a cursor terminal, and no NO_COLOR in the environment? */
bool gs_wants_color(void);

/* Does the environment's locale use UTF-8? */
bool gs_is_utf8_locale(void);

/*
 * Where the backend of this name (NULL, "auto": the best here) works here but had never run on hardware,
 * that and a request to report, in one line on standard error. Once in a process, before a backend is opened.
 */
void gs_warn_untested(const char *backend);

#endif
