/* The keywords of one schema: are their values of the right type, and which types of value do they allow? */
#include "base/status.h"
#include "chat/json_text.h"
#include "chat/schema_compile.h"

#include <string.h>

enum shape {
    SCHEMA,
    SCHEMAS,
    SCHEMA_MAP,
    SCHEMA_OR_SCHEMAS,
    COUNT,
    NUMBER,
    POSITIVE,
    TEXT,
    FLAG,
    ARRAY,
    NAMES,
    NAMES_MAP
};

static const struct {
    const char *name;
    enum shape shape;
} keywords[] = {
    {"allOf", SCHEMAS},
    {"anyOf", SCHEMAS},
    {"oneOf", SCHEMAS},
    {"prefixItems", SCHEMAS},
    {"not", SCHEMA},
    {"if", SCHEMA},
    {"then", SCHEMA},
    {"else", SCHEMA},
    {"items", SCHEMA_OR_SCHEMAS},
    {"additionalItems", SCHEMA},
    {"contains", SCHEMA},
    {"additionalProperties", SCHEMA},
    {"propertyNames", SCHEMA},
    {"unevaluatedItems", SCHEMA},
    {"unevaluatedProperties", SCHEMA},
    {"properties", SCHEMA_MAP},
    {"patternProperties", SCHEMA_MAP},
    {"dependentSchemas", SCHEMA_MAP},
    {"$defs", SCHEMA_MAP},
    {"dependentRequired", NAMES_MAP},
    {"required", NAMES},
    {"minLength", COUNT},
    {"maxLength", COUNT},
    {"minItems", COUNT},
    {"maxItems", COUNT},
    {"minProperties", COUNT},
    {"maxProperties", COUNT},
    {"minContains", COUNT},
    {"maxContains", COUNT},
    {"minimum", NUMBER},
    {"maximum", NUMBER},
    {"exclusiveMinimum", NUMBER},
    {"exclusiveMaximum", NUMBER},
    {"multipleOf", POSITIVE},
    {"pattern", TEXT},
    {"format", TEXT},
    {"$ref", TEXT},
    {"$dynamicRef", TEXT},
    {"$anchor", TEXT},
    {"$id", TEXT},
    {"uniqueItems", FLAG},
    {"nullable", FLAG},
    {"enum", ARRAY},
};

static bool is_schema(const json_t *value)
{
    return json_is_object(value) || json_is_boolean(value);
}

static bool all_schemas(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!is_schema(json_array_get(list, i)))
            return false;
    return json_array_size(list) > 0;
}

/* A NUL cannot be in a key, as the schema is held, and so in no name either. */
static bool is_names(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct gs_text name = gs_json_text(json_array_get(list, i));
        if (!name.bytes || memchr(name.bytes, '\0', name.size))
            return false;
    }
    return json_is_array(list);
}

static bool is_map(const json_t *map, bool (*holds)(const json_t *))
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)map, key, value)
    {
        if (!holds(value))
            return false;
    }
    return json_is_object(map);
}

static bool is_count(const json_t *value)
{
    return json_is_number(value) && json_number_value(value) >= 0 &&
           (json_is_integer(value) || json_real_value(value) >= 9e15 ||
            json_real_value(value) == (double)(int64_t)json_real_value(value));
}

/* NULL, or what would be right. */
static const char *wanted(enum shape shape, const json_t *value)
{
    switch (shape) {
    case SCHEMA:
        return is_schema(value) ? NULL : "a schema";
    case SCHEMAS:
        return json_is_array(value) && all_schemas(value) ? NULL : "a list of one or more schemas";
    case SCHEMA_OR_SCHEMAS:
        return is_schema(value) || json_array_size(value) == 0
                   ? json_is_array(value) || is_schema(value) ? NULL : "a schema"
               : all_schemas(value) ? NULL
                                    : "a schema";
    case SCHEMA_MAP:
        return is_map(value, is_schema) ? NULL : "an object of schemas";
    case NAMES_MAP:
        return is_map(value, is_names) ? NULL : "an object of lists of names (without a NUL)";
    case COUNT:
        return is_count(value) ? NULL : "a whole number, 0 or more";
    case NUMBER:
        return json_is_number(value) ? NULL : "a number";
    case POSITIVE:
        return json_is_number(value) && json_number_value(value) > 0 ? NULL : "a number above 0";
    case TEXT:
        return json_is_string(value) ? NULL : "a string";
    case FLAG:
        return json_is_boolean(value) ? NULL : "true or false";
    case ARRAY:
        return json_is_array(value) ? NULL : "a list";
    case NAMES:
        return is_names(value) ? NULL : "a list of names (without a NUL)";
    }
    return NULL;
}

gs_status gs_schema_check_keywords(struct gs_compiler *c, const json_t *schema)
{
    if (json_is_boolean(schema))
        return GS_OK;
    if (!json_is_object(schema))
        return gs_compile_fail(c, GS_MALFORMED, schema, "a schema is an object, true or false");
    gs_status status = gs_budget_work(&c->budget, 4 * sizeof keywords / sizeof *keywords, c->error);
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords && status == GS_OK; i++) {
        const json_t *value = json_object_get(schema, keywords[i].name);
        status = gs_budget_work(&c->budget, json_array_size(value) + json_object_size(value), c->error);
        if (status != GS_OK)
            return status;
        const char *right = value ? wanted(keywords[i].shape, value) : NULL;
        /* Draft 4's exclusiveMinimum is a flag of minimum. */
        if (right && keywords[i].shape == NUMBER && keywords[i].name[0] == 'e' && json_is_boolean(value))
            continue;
        if (right)
            return gs_compile_fail(c, GS_MALFORMED, schema, "%s must be %s", keywords[i].name, right);
    }
    return status;
}

static unsigned type_of_name(struct gs_text name)
{
    static const struct {
        const char *name;
        unsigned type;
    } names[] = {{"null", GS_TYPE_NULL},      {"boolean", GS_TYPE_BOOLEAN}, {"number", GS_TYPE_NUMBER},
                 {"integer", GS_TYPE_NUMBER}, {"string", GS_TYPE_STRING},   {"array", GS_TYPE_ARRAY},
                 {"object", GS_TYPE_OBJECT}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (gs_text_is(name, names[i].name))
            return names[i].type;
    return 0;
}

gs_status gs_schema_types(struct gs_compiler *c, const json_t *schema, unsigned *types)
{
    const json_t *type = json_object_get(schema, "type");
    *types = GS_TYPE_ANY;
    if (!type)
        return GS_OK;
    *types = json_is_true(json_object_get(schema, "nullable")) ? GS_TYPE_NULL : 0;
    size_t count = json_is_array(type) ? json_array_size(type) : 1;
    for (size_t i = 0; i < count; i++) {
        struct gs_text name = gs_json_text(json_is_array(type) ? json_array_get(type, i) : type);
        unsigned one = name.bytes ? type_of_name(name) : 0;
        if (!one && !name.bytes)
            return gs_compile_fail(c, GS_MALFORMED, schema, "type must be a name or a list of names");
        if (!one)
            return gs_compile_fail(c, GS_MALFORMED, schema, "type: \"%s\" is unknown",
                                   gs_quote_bytes(name.bytes, name.size).text);
        *types |= one;
    }
    if (count == 0)
        return gs_compile_fail(c, GS_MALFORMED, schema, "type: the list is empty");
    return GS_OK;
}

bool gs_schema_only_integers(const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type");
    bool integer = gs_text_is(gs_json_text(type), "integer");
    for (size_t i = 0; i < json_array_size(type); i++) {
        struct gs_text name = gs_json_text(json_array_get(type, i));
        if (gs_text_is(name, "number"))
            return false;
        integer |= gs_text_is(name, "integer");
    }
    return integer;
}

/* A count beyond 32 bits is one that nothing reaches. */
bool gs_schema_count(const json_t *schema, const char *keyword, uint32_t *value)
{
    const json_t *count = json_object_get(schema, keyword);
    if (!count)
        return false;
    double number = json_number_value(count);
    *value = number >= (double)(UINT32_MAX - 1) ? UINT32_MAX - 1 : (uint32_t)number;
    return true;
}

static bool has_items(const json_t *schema)
{
    const json_t *items = json_object_get(schema, "items");
    return json_is_array(items) ? json_object_get(schema, "additionalItems") != NULL : items != NULL;
}

/* Where no keyword of the same schema can see items, those behind the lists are the unevaluated ones. */
bool gs_schema_unevaluated_items(const json_t *schema)
{
    static const char *const seeing[] = {"$ref",  "$dynamicRef", "$recursiveRef", "allOf",           "anyOf",
                                         "oneOf", "if",          "contains",      "dependentSchemas"};
    if (!json_object_get(schema, "unevaluatedItems") || has_items(schema))
        return false;
    for (size_t i = 0; i < sizeof seeing / sizeof *seeing; i++)
        if (json_object_get(schema, seeing[i]))
            return true;
    return false;
}

const json_t *gs_schema_rest_items(const json_t *schema)
{
    const json_t *items = json_object_get(schema, "items");
    if (has_items(schema))
        return json_is_array(items) ? json_object_get(schema, "additionalItems") : items;
    return gs_schema_unevaluated_items(schema) ? NULL : json_object_get(schema, "unevaluatedItems");
}
