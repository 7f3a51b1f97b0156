/* What can be denied: `not` of constants, and the conditions of if/then/else. */
#include "base/status.h"
#include "chat/json_text.h"
#include "chat/schema_compile.h"

#include <string.h>

static json_t *get(const json_t *schema, const char *key)
{
    return json_object_get(schema, key);
}

static bool is_scalar(const json_t *value)
{
    return !json_is_array(value) && !json_is_object(value);
}

/* Just {"const": scalar} or {"enum": [scalars]}. */
static bool lists_scalars(const json_t *schema)
{
    const json_t *list = get(schema, "enum");
    if (json_object_size(schema) != 1 || (!get(schema, "const") && !json_is_array(list)))
        return false;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!is_scalar(json_array_get(list, i)))
            return false;
    return list || is_scalar(get(schema, "const"));
}

const json_t *gs_schema_excluded(const json_t *schema, size_t i)
{
    const json_t *inner = get(schema, "not");
    if (!json_is_object(inner) || !lists_scalars(inner))
        return NULL;
    return get(inner, "enum") ? json_array_get(get(inner, "enum"), i) : i == 0 ? get(inner, "const") : NULL;
}

static bool is_annotation(const char *key)
{
    static const char *const names[] = {"title", "description", "$comment", "examples", "default"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(key, names[i]) == 0)
            return true;
    return false;
}

/* The schema without annotations, and without a type that its string constants have anyway. */
static json_t *bare(const json_t *schema)
{
    json_t *copy = json_object();
    const char *key;
    json_t *value;
    const json_t *constants = get(schema, "enum");
    bool strings = json_is_string(get(schema, "const")) || json_array_size(constants) > 0;
    for (size_t i = 0; i < json_array_size(constants); i++)
        strings = strings && json_is_string(json_array_get(constants, i));
    bool implied = strings && gs_text_is(gs_json_text(get(schema, "type")), "string");
    json_object_foreach((json_t *)schema, key, value)
    {
        if (!is_annotation(key) && !(implied && strcmp(key, "type") == 0))
            json_object_set(copy, key, value);
    }
    return copy;
}

/* Adds {"allOf": [denial, rest]} to the branches. */
static void add_branch(json_t *branches, json_t *denial, const json_t *rest)
{
    json_t *always = json_true();
    json_array_append_new(branches, json_pack("{s:[o,O]}", "allOf", denial, rest ? (json_t *)rest : always));
}

/* The ways in which an object can fail the condition; false if one of its keywords cannot be denied. */
static bool deny_object(const json_t *condition, const json_t *otherwise, json_t *branches)
{
    const char *key;
    json_t *value;
    bool all = true;
    json_object_foreach((json_t *)condition, key, value)
    {
        bool object_type = strcmp(key, "type") == 0 && gs_text_is(gs_json_text(value), "object");
        all = all && (object_type || strcmp(key, "properties") == 0 || strcmp(key, "required") == 0);
        if (all && object_type)
            add_branch(branches, json_pack("{s:{s:s}}", "not", "type", "object"), otherwise);
    }
    json_object_foreach(get(condition, "properties"), key, value)
    {
        json_t *inner = bare(value);
        all = all && lists_scalars(inner);
        if (all)
            add_branch(branches,
                       json_pack("{s:b,s:s,s:[s],s:{s:{s:O}}}", GS_DENIAL, 1, "type", "object", "required",
                                 key, "properties", key, "not", inner),
                       otherwise);
        json_decref(inner);
    }
    for (size_t i = 0; i < json_array_size(get(condition, "required")) && all; i++)
        add_branch(branches,
                   json_pack("{s:s,s:{s:b}}", "type", "object", "properties",
                             json_string_value(json_array_get(get(condition, "required"), i)), 0),
                   otherwise);
    return all;
}

json_t *gs_schema_branches(const json_t *schema, struct gs_compiler *c, gs_status *status)
{
    const json_t *condition = get(schema, "if"), *then = get(schema, "then"),
                 *otherwise = get(schema, "else");
    *status = gs_schema_check_keywords(c, condition);
    if (*status != GS_OK)
        return NULL;
    if (json_is_boolean(condition)) {
        const json_t *chosen = json_is_true(condition) ? then : otherwise;
        return json_pack("{s:[O]}", "allOf", chosen ? (json_t *)chosen : json_true());
    }
    json_t *branches = json_array(), *plain = bare(condition), *always = json_true();
    json_array_append_new(branches,
                          json_pack("{s:[O,O]}", "allOf", condition, then ? (json_t *)then : always));
    bool denied = true;
    if (json_object_size(plain) == 0)
        ; /* it always holds */
    else if (lists_scalars(plain) || (json_object_size(plain) == 1 && get(plain, "type")))
        add_branch(branches, json_pack("{s:O}", "not", plain), otherwise);
    else
        denied = deny_object(plain, otherwise, branches);
    json_decref(plain);
    if (denied)
        return json_pack("{s:o}", "anyOf", branches);
    json_decref(branches);
    return NULL;
}
