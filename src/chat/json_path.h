/* Where in a JSON document something stands, and messages about it. */
#ifndef GS_CHAT_JSON_PATH_H
#define GS_CHAT_JSON_PATH_H

#include "chat/json_text.h"

struct gs_json_path {
    char text[400];
};

/* "messages[3].content": `parent` may be "". */
struct gs_json_path gs_json_path_key(const char *parent, const char *key);
struct gs_json_path gs_json_path_index(const char *parent, size_t index);

/* "an object", "a string", ...; "nothing" for NULL. */
const char *gs_json_kind(const json_t *value);

/* GS_INVALID_ARGUMENT: "<path>: <expected> is expected, not <what it is>" */
gs_status gs_json_unexpected(const char *path, const char *expected, const json_t *value,
                             struct gs_error *error);

/* A member that is a string or absent (or null): not set then. */
gs_status gs_json_member_text(const json_t *object, const char *path, const char *key, struct gs_text *text,
                              struct gs_error *error);

/* A member that is an array or absent (or null): NULL then. */
gs_status gs_json_member_array(const json_t *object, const char *path, const char *key, const json_t **array,
                               struct gs_error *error);

/* The messages of a request: an array, or an object with them under "messages"; *path is where they are. */
gs_status gs_json_messages(const json_t *request, const json_t **messages, const char **path,
                           struct gs_error *error);

#endif
