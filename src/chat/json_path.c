#include "chat/json_path.h"

#include "base/status.h"

#include <stdio.h>

struct gs_json_path gs_json_path_key(const char *parent, const char *key)
{
    struct gs_json_path path;
    snprintf(path.text, sizeof path.text, "%s%s%s", parent, *parent ? "." : "", gs_quote(key).text);
    return path;
}

struct gs_json_path gs_json_path_index(const char *parent, size_t index)
{
    struct gs_json_path path;
    snprintf(path.text, sizeof path.text, "%s[%zu]", parent, index);
    return path;
}

const char *gs_json_kind(const json_t *value)
{
    static const char *const kinds[] = {"an object", "an array", "a string", "an integer",
                                        "a number",  "true",     "false",    "null"};
    return value ? kinds[json_typeof(value)] : "nothing";
}

gs_status gs_json_unexpected(const char *path, const char *expected, const json_t *value,
                             struct gs_error *error)
{
    return gs_fail(error, GS_INVALID_ARGUMENT, "%s: %s is expected, not %s", *path ? path : "the JSON text",
                   expected, gs_json_kind(value));
}

gs_status gs_json_member_text(const json_t *object, const char *path, const char *key, struct gs_text *text,
                              struct gs_error *error)
{
    const json_t *value = json_object_get(object, key);
    *text = gs_json_text(value);
    if (!value || json_is_null(value) || text->bytes)
        return GS_OK;
    return gs_json_unexpected(gs_json_path_key(path, key).text, "a string", value, error);
}

gs_status gs_json_member_array(const json_t *object, const char *path, const char *key, const json_t **array,
                               struct gs_error *error)
{
    const json_t *value = json_object_get(object, key);
    *array = json_is_array(value) ? value : NULL;
    if (!value || json_is_null(value) || *array)
        return GS_OK;
    return gs_json_unexpected(gs_json_path_key(path, key).text, "an array", value, error);
}

gs_status gs_json_messages(const json_t *request, const json_t **messages, const char **path,
                           struct gs_error *error)
{
    *messages = json_is_array(request) ? request : json_object_get(request, "messages");
    *path = json_is_array(request) ? "" : "messages";
    if (!json_is_array(request) && !json_is_object(request))
        return gs_json_unexpected("", "an array of messages, or an object with \"messages\",", request,
                                  error);
    if (!json_is_array(*messages))
        return gs_json_unexpected("messages", "an array", *messages, error);
    return GS_OK;
}
