/* Text from outside, such as a path, as a JSON string: exactly the text, not the form that messages show. */
#ifndef GS_CLI_JSON_TEXT_H
#define GS_CLI_JSON_TEXT_H

#include <jansson.h>
#include <stddef.h>

/* Each ill-formed part of UTF-8, which JSON cannot hold, becomes U+FFFD. NULL if memory is out. */
json_t *gs_json_bytes(const char *bytes, size_t size);
json_t *gs_json_string(const char *text);

#endif
