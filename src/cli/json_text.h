/*
 * Text from outside, such as a path, as a JSON string: exactly the text, not the form that messages show. And
 * a whole value as text.
 */
#ifndef GS_CLI_JSON_TEXT_H
#define GS_CLI_JSON_TEXT_H

#include "cli/output.h"

#include <jansson.h>
#include <stddef.h>

/* Each ill-formed part of UTF-8, which JSON cannot hold, becomes U+FFFD. NULL if memory is out. */
json_t *gs_json_bytes(const char *bytes, size_t size);
json_t *gs_json_string(const char *text);

/* A line of its own, or several, in the form that jansson's flags say. Takes `root`; NULL: memory was out. */
gs_status gs_json_print(json_t *root, size_t flags, struct gs_output *output, struct gs_error *error);

#endif
