/* Does a constant satisfy a schema? For enum and const beside other keywords; not for anything from a model.
 */
#include "base/status.h"
#include "base/utf8.h"
#include "chat/json_text.h"
#include "chat/schema_compile.h"
#include "chat/schema_format.h"

#include <math.h>
#include <string.h>

static json_t *get(const json_t *schema, const char *key)
{
    return json_object_get(schema, key);
}

static unsigned type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_NULL:
        return GS_TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return GS_TYPE_BOOLEAN;
    case JSON_INTEGER:
    case JSON_REAL:
        return GS_TYPE_NUMBER;
    case JSON_STRING:
        return GS_TYPE_STRING;
    case JSON_ARRAY:
        return GS_TYPE_ARRAY;
    case JSON_OBJECT:
        return GS_TYPE_OBJECT;
    }
    return 0;
}

/* x - y: only its sign counts. Integers exactly, beyond 2^53 too. */
static int compare(const json_t *x, const json_t *y)
{
    json_int_t i = json_integer_value(x), k = json_integer_value(y);
    if (json_is_integer(x) && json_is_integer(y))
        return (i > k) - (i < k);
    double a = json_number_value(x), b = json_number_value(y);
    return (a > b) - (a < b);
}

static bool is_multiple(const json_t *value, const json_t *divisor)
{
    if (json_is_integer(value) && json_is_integer(divisor))
        return json_integer_value(value) % json_integer_value(divisor) == 0;
    return fmod(json_number_value(value), json_number_value(divisor)) == 0;
}

/* Equal as JSON Schema has it: 1 and 1.0 are. As deep as the caller's depth allows. */
static bool equal(struct gs_compiler *c, const json_t *a, const json_t *b, unsigned depth)
{
    if (type_of(a) != type_of(b) || depth > GS_SCHEMA_MAX_NESTING ||
        gs_budget_work(&c->budget, 1 + json_string_length(a) / 8, NULL) != GS_OK)
        return false;
    if (json_is_number(a))
        return compare(a, b) == 0;
    if (json_is_array(a)) {
        bool same = json_array_size(a) == json_array_size(b);
        for (size_t i = 0; i < json_array_size(a) && same; i++)
            same = equal(c, json_array_get(a, i), json_array_get(b, i), depth + 1);
        return same;
    }
    if (json_is_object(a)) {
        bool same = json_object_size(a) == json_object_size(b);
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)a, key, value)
        {
            same = same && get(b, key) && equal(c, value, get(b, key), depth + 1);
        }
        return same;
    }
    return json_equal(a, b);
}

static bool number_holds(const json_t *schema, const json_t *value)
{
    double x = json_number_value(value);
    const json_t *low = get(schema, "minimum"), *high = get(schema, "maximum");
    const json_t *above = get(schema, "exclusiveMinimum"), *below = get(schema, "exclusiveMaximum");
    const json_t *multiple = get(schema, "multipleOf");
    if (gs_schema_only_integers(schema) && x != floor(x))
        return false;
    if (low && compare(value, low) < json_is_true(above))
        return false;
    if (high && compare(value, high) > -json_is_true(below))
        return false;
    if (json_is_number(above) && compare(value, above) <= 0)
        return false;
    if (json_is_number(below) && compare(value, below) >= 0)
        return false;
    return !multiple || is_multiple(value, multiple);
}

static gs_status pattern_holds(struct gs_compiler *c, const json_t *schema, const char *keyword,
                               struct gs_text pattern, struct gs_text text, bool *holds)
{
    const struct gs_dfa *dfa;
    struct gs_buffer spelled = {0};
    gs_status status = gs_compile_pattern(c, schema, keyword, pattern, &dfa);
    if (status == GS_OK)
        status = gs_spell_string(text, &spelled, c->error);
    if (status == GS_OK && dfa)
        *holds = *holds && gs_dfa_run(dfa, spelled.data, spelled.size) != 0;
    gs_buffer_free(&spelled);
    return status;
}

static gs_status string_holds(struct gs_compiler *c, const json_t *schema, struct gs_text text, bool *holds)
{
    uint32_t n = 0, min = 0, max = GS_UNLIMITED;
    for (size_t at = 0, length; at < text.size; at += length, n++)
        gs_utf8_decode(text.bytes + at, text.size - at, &length);
    gs_schema_count(schema, "minLength", &min);
    gs_schema_count(schema, "maxLength", &max);
    *holds = n >= min && n <= max;
    gs_status status = GS_OK;
    struct gs_text pattern = gs_json_text(get(schema, "pattern"));
    struct gs_text format = gs_json_text(get(schema, "format"));
    if (pattern.bytes && *holds)
        status = pattern_holds(c, schema, "pattern", pattern, text, holds);
    const char *known = format.bytes ? gs_format_pattern(format) : NULL;
    if (known && *holds && status == GS_OK)
        status = pattern_holds(c, schema, "format", gs_text_of(known), text, holds);
    return status;
}

/* How many items `contains` counts, and whether all of them differ. */
static gs_status items_hold(struct gs_compiler *c, const json_t *schema, const json_t *value, unsigned depth,
                            bool *holds)
{
    uint32_t min = 1, max = GS_UNLIMITED, n = 0;
    size_t size = json_array_size(value);
    gs_status status = gs_budget_work(&c->budget, size * size, c->error);
    gs_schema_count(schema, "minContains", &min);
    gs_schema_count(schema, "maxContains", &max);
    for (size_t i = 0; i < size && get(schema, "contains") && status == GS_OK; i++) {
        bool one;
        status = gs_schema_holds(c, get(schema, "contains"), json_array_get(value, i), depth + 1, &one);
        n += one;
    }
    *holds = !get(schema, "contains") || (n >= min && n <= max);
    for (size_t i = 0; i < size && json_is_true(get(schema, "uniqueItems")); i++)
        for (size_t k = 0; k < i; k++)
            *holds = *holds && !equal(c, json_array_get(value, i), json_array_get(value, k), 0);
    return status;
}

static gs_status array_holds(struct gs_compiler *c, const json_t *schema, const json_t *value, unsigned depth,
                             bool *holds)
{
    uint32_t min = 0, max = GS_UNLIMITED;
    size_t n = json_array_size(value);
    const json_t *prefix = get(schema, "prefixItems"), *items = gs_schema_rest_items(schema);
    gs_schema_count(schema, "minItems", &min);
    gs_schema_count(schema, "maxItems", &max);
    *holds = n >= min && n <= max;
    if (json_is_array(get(schema, "items")))
        prefix = get(schema, "items");
    gs_status status = GS_OK;
    if (*holds && (get(schema, "contains") || get(schema, "uniqueItems")))
        status = items_hold(c, schema, value, depth, holds);
    for (size_t i = 0; i < n && *holds && status == GS_OK; i++) {
        const json_t *one = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
        if (one)
            status = gs_schema_holds(c, one, json_array_get(value, i), depth + 1, holds);
    }
    return status;
}

static gs_status property_holds(struct gs_compiler *c, const json_t *schema, const char *name,
                                const json_t *value, unsigned depth, bool *holds)
{
    const json_t *known = get(get(schema, "properties"), name), *rest = get(schema, "additionalProperties");
    bool evaluated = known != NULL;
    gs_status status = known ? gs_schema_holds(c, known, value, depth + 1, holds) : GS_OK;
    const char *pattern;
    json_t *inner;
    json_object_foreach(get(schema, "patternProperties"), pattern, inner)
    {
        bool matches = true, both = true;
        if (status == GS_OK)
            status = pattern_holds(c, schema, "patternProperties", gs_text_of(pattern), gs_text_of(name),
                                   &matches);
        if (status == GS_OK && matches)
            status = gs_schema_holds(c, inner, value, depth + 1, &both);
        evaluated |= matches;
        *holds = *holds && both;
    }
    if (status == GS_OK && !evaluated && rest && *holds)
        status = gs_schema_holds(c, rest, value, depth + 1, holds);
    if (status == GS_OK && *holds && get(schema, "propertyNames")) {
        json_t *text = json_string(name);
        status = gs_schema_holds(c, get(schema, "propertyNames"), text, depth + 1, holds);
        json_decref(text);
    }
    return status;
}

static gs_status object_holds(struct gs_compiler *c, const json_t *schema, const json_t *value,
                              unsigned depth, bool *holds)
{
    uint32_t min = 0, max = GS_UNLIMITED;
    size_t n = json_object_size(value);
    gs_schema_count(schema, "minProperties", &min);
    gs_schema_count(schema, "maxProperties", &max);
    *holds = n >= min && n <= max;
    for (size_t i = 0; i < json_array_size(get(schema, "required")); i++)
        *holds = *holds && get(value, json_string_value(json_array_get(get(schema, "required"), i)));
    gs_status status = GS_OK;
    const char *name;
    json_t *inner;
    json_object_foreach((json_t *)value, name, inner)
    {
        if (*holds && status == GS_OK)
            status = property_holds(c, schema, name, inner, depth, holds);
    }
    return status;
}

/* not, if, then, else, and the dependents of properties that are there. */
static gs_status conditions_hold(struct gs_compiler *c, const json_t *schema, const json_t *value,
                                 unsigned depth, bool *holds)
{
    gs_status status = GS_OK;
    bool inner = false;
    if (get(schema, "not")) {
        status = gs_schema_holds(c, get(schema, "not"), value, depth + 1, &inner);
        *holds = *holds && !inner;
    }
    if (get(schema, "if") && *holds && status == GS_OK) {
        status = gs_schema_holds(c, get(schema, "if"), value, depth + 1, &inner);
        const json_t *chosen = get(schema, inner ? "then" : "else");
        if (status == GS_OK && chosen)
            status = gs_schema_holds(c, chosen, value, depth + 1, holds);
    }
    const char *key;
    json_t *rest;
    json_object_foreach(get(schema, "dependentRequired"), key, rest)
    {
        for (size_t i = 0; i < json_array_size(rest) && get(value, key); i++)
            *holds = *holds && get(value, json_string_value(json_array_get(rest, i)));
    }
    json_object_foreach(get(schema, "dependentSchemas"), key, rest)
    {
        if (get(value, key) && *holds && status == GS_OK)
            status = gs_schema_holds(c, rest, value, depth + 1, holds);
    }
    return status;
}

/* anyOf and oneOf are what they say here: a constant can be counted. */
static gs_status applicators_hold(struct gs_compiler *c, const json_t *schema, const json_t *value,
                                  unsigned depth, bool *holds)
{
    static const char *const some[] = {"anyOf", "oneOf"};
    const json_t *target, *all = get(schema, "allOf");
    gs_status status = GS_OK;
    if (get(schema, "$ref")) {
        status = gs_schema_resolve(c, schema, &target);
        if (status == GS_OK)
            status = gs_schema_holds(c, target, value, depth + 1, holds);
    }
    for (size_t i = 0; i < json_array_size(all) && *holds && status == GS_OK; i++)
        status = gs_schema_holds(c, json_array_get(all, i), value, depth + 1, holds);
    for (size_t k = 0; k < 2 && status == GS_OK; k++) {
        const json_t *branches = get(schema, some[k]);
        size_t n = 0;
        for (size_t i = 0; i < json_array_size(branches) && status == GS_OK; i++) {
            bool one;
            status = gs_schema_holds(c, json_array_get(branches, i), value, depth + 1, &one);
            n += one;
        }
        *holds = *holds && (!branches || (k == 0 ? n > 0 : n == 1));
    }
    return status == GS_OK && *holds ? conditions_hold(c, schema, value, depth, holds) : status;
}

gs_status gs_schema_holds(struct gs_compiler *c, const json_t *schema, const json_t *value, unsigned depth,
                          bool *holds)
{
    unsigned types, type = type_of(value);
    *holds = !json_is_false(schema);
    if (json_is_boolean(schema))
        return GS_OK;
    if (depth > GS_SCHEMA_MAX_NESTING)
        return gs_fail(c->error, GS_UNSUPPORTED, "too complex: a constant nested over %d deep",
                       GS_SCHEMA_MAX_NESTING);
    gs_status status = gs_budget_work(&c->budget, 16, c->error);
    bool own_constant = schema == c->source && depth == 0; /* checked, and one of those it lists */
    if (status == GS_OK && !own_constant)
        status = gs_schema_check_keywords(c, schema);
    if (status == GS_OK)
        status = gs_schema_types(c, schema, &types);
    if (status != GS_OK)
        return status;
    *holds = (types & type) != 0;
    static const char *const unseen[] = {"unevaluatedProperties", "$dynamicRef"};
    if (depth > 0 && gs_schema_unevaluated_items(schema))
        gs_compile_report(c, schema, "unevaluatedItems");
    for (size_t i = 0; i < sizeof unseen / sizeof *unseen && depth > 0; i++)
        if (get(schema, unseen[i]))
            gs_compile_report(c, schema, unseen[i]);
    const json_t *constants = own_constant && !get(schema, "const") ? NULL : get(schema, "enum");
    bool among = !constants;
    for (size_t i = 0; i < json_array_size(constants) && !among; i++)
        among = equal(c, json_array_get(constants, i), value, 0);
    status = gs_budget_work(&c->budget, json_array_size(constants), c->error);
    if (get(schema, "const"))
        among = among && equal(c, get(schema, "const"), value, 0);
    bool own = true, applied = true;
    if (status == GS_OK && *holds && among && type == GS_TYPE_STRING)
        status = string_holds(c, schema, gs_json_text(value), &own);
    else if (status == GS_OK && type == GS_TYPE_NUMBER)
        own = number_holds(schema, value);
    else if (status == GS_OK && type == GS_TYPE_ARRAY)
        status = array_holds(c, schema, value, depth, &own);
    else if (status == GS_OK && type == GS_TYPE_OBJECT)
        status = object_holds(c, schema, value, depth, &own);
    if (status == GS_OK && own)
        status = applicators_hold(c, schema, value, depth, &applied);
    *holds = *holds && among && own && applied;
    return status;
}
