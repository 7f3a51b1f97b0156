/* Text given by a person: an argument, a file, standard input. Bounded, and any byte may occur in it. */
#ifndef GS_CLI_INPUT_H
#define GS_CLI_INPUT_H

#include "base/buffer.h"

#include <jansson.h>

#define GS_MAX_INPUT (64u << 20) /* bytes; no context holds this many */

/* Appends the file's bytes; `path` NULL: standard input. */
gs_status gs_input_read(const char *path, struct gs_buffer *text, struct gs_error *error);

/* The JSON value that such a file is, a reference of the caller's; NULL on failure. */
gs_status gs_input_read_json(const char *path, json_t **out, struct gs_error *error);

/*
 * Appends the text that a command got: exactly one of `text`, `file` and an operand "-" must be there.
 * `what` names it in messages: "prompt"; `text_option` how it is given: "-p TEXT".
 */
gs_status gs_input_choose(const char *what, const char *text_option, const char *text, const char *file,
                          bool from_stdin, struct gs_buffer *out, struct gs_error *error);

#endif
