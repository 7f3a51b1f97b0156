/* Members of a request's JSON, read strictly: a wrong type or range is 400 and names the parameter. */
#include "base/status.h"
#include "chat/json_path.h"
#include "server/request.h"

#include <math.h>

static const json_t *member(const json_t *body, const char *key)
{
    const json_t *value = json_object_get(body, key);
    return json_is_null(value) ? NULL : value;
}

int gs_read_bool(const json_t *body, const char *key, bool *value, struct gs_api_error *error)
{
    const json_t *json = member(body, key);
    if (!json)
        return 0;
    if (!json_is_boolean(json))
        return gs_api_bad(error, key, "%s: true or false is expected, not %s", key, gs_json_kind(json));
    *value = json_is_true(json);
    return 0;
}

int gs_read_integer(const json_t *body, const char *key, int64_t least, int64_t most, int64_t *value,
                    struct gs_api_error *error)
{
    const json_t *json = member(body, key);
    double number = json_number_value(json);
    if (!json)
        return 0;
    if (!json_is_number(json) || (json_is_real(json) && number != floor(number)))
        return gs_api_bad(error, key, "%s: an integer is expected, not %s", key,
                          json_is_number(json) ? "a fraction" : gs_json_kind(json));
    /* A real here is beyond 64 bits, or was written as 5.0. */
    bool whole = json_is_integer(json) || (number >= -9e15 && number <= 9e15);
    int64_t integer = json_is_integer(json) ? json_integer_value(json) : whole ? (int64_t)number : 0;
    if (!whole || integer < least || integer > most)
        return gs_api_bad(error, key, "%s: %lld to %lld is expected", key, (long long)least, (long long)most);
    *value = integer;
    return 0;
}

int gs_read_number(const json_t *body, const char *key, double least, double most, float *value,
                   struct gs_api_error *error)
{
    const json_t *json = member(body, key);
    if (!json)
        return 0;
    if (!json_is_number(json))
        return gs_api_bad(error, key, "%s: a number is expected, not %s", key, gs_json_kind(json));
    double number = json_number_value(json);
    if (!(number >= least && number <= most))
        return gs_api_bad(error, key, "%s: %g to %g is expected", key, least, most);
    *value = (float)number;
    return 0;
}

int gs_read_text(const json_t *body, const char *key, struct gs_text *value, struct gs_api_error *error)
{
    const json_t *json = member(body, key);
    if (!json)
        return 0;
    if (!json_is_string(json))
        return gs_api_bad(error, key, "%s: a string is expected, not %s", key, gs_json_kind(json));
    *value = gs_json_text(json);
    return 0;
}

static const char *type_name(json_type type)
{
    return type == JSON_STRING    ? "a string"
           : type == JSON_OBJECT  ? "an object"
           : type == JSON_INTEGER ? "an integer"
                                  : "true or false";
}

int gs_read_idle(const json_t *body, const struct gs_idle_field *list, struct gs_api_error *error)
{
    for (; list->key; list++) {
        const json_t *json = member(body, list->key);
        bool right =
            list->type == JSON_TRUE ? json_is_boolean(json) : json && json_typeof(json) == list->type;
        if (json && !right)
            return gs_api_bad(error, list->key, "%s: %s is expected, not %s", list->key,
                              type_name(list->type), gs_json_kind(json));
    }
    return 0;
}
