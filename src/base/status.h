/*
 * Filling a gs_error. Owns nothing. Every message is one line; text from outside (names, paths) is passed
 * through gs_quote so that it is bounded and cannot carry control characters.
 */
#ifndef GS_BASE_STATUS_H
#define GS_BASE_STATUS_H

#include "gossamer.h"

/* Formats the message into `error` (may be NULL), cut to fit as gs_format does, and returns `code`. */
__attribute__((format(printf, 3, 4))) gs_status gs_fail(struct gs_error *error, gs_status code,
                                                        const char *format, ...);

/* snprintf into text[size], size >= 1, except that a text that does not fit is cut between two characters. */
__attribute__((format(printf, 3, 4))) void gs_format(char *text, size_t size, const char *format, ...);

/* A quoted text, ready for "%s"; make one with gs_quote or gs_quote_bytes. */
struct gs_quoted {
    char text[200];
};

/*
 * `bytes` [size] as printable text: C0, C1, DEL, U+2028, U+2029, bidi controls, backslashes and ill-formed
 * UTF-8 become \xNN per byte; a long text keeps its start and its end around "...".
 */
struct gs_quoted gs_quote_bytes(const char *bytes, size_t size);
struct gs_quoted gs_quote(const char *text);

/* gs_fail for a failed allocation of `bytes`. */
gs_status gs_fail_memory(struct gs_error *error, uint64_t bytes);

/* gs_fail with GS_IO and the text of `errnum`: "cannot <action> <path>: <reason>". */
gs_status gs_fail_io(struct gs_error *error, int errnum, const char *action, const char *path);

#endif
