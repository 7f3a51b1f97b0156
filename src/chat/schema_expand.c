/* $ref, allOf, anyOf, oneOf and their kin: from a conjunction of schemas to alternatives without them. */
#include "base/status.h"
#include "chat/json_text.h"
#include "chat/schema_compile.h"
#include "chat/schema_disjoint.h"

#include <stdlib.h>
#include <string.h>

static gs_status apply(struct gs_compiler *c, const json_t *schema, struct gs_alternatives *all);

static json_t *get(const json_t *schema, const char *key)
{
    return json_object_get(schema, key);
}

/* ---------------------------------------------------------------- references */

/* One step of a JSON pointer, ~0 ~1 and %XX decoded, into name. */
static void decode_step(const char *step, size_t size, struct gs_buffer *name)
{
    gs_buffer_clear(name);
    for (size_t i = 0; i < size; i++) {
        char c = step[i];
        if (c == '~' && i + 1 < size && (step[i + 1] == '0' || step[i + 1] == '1')) {
            c = step[++i] == '0' ? '~' : '/';
        } else if (c == '%' && i + 2 < size) {
            char digits[3] = {step[i + 1], step[i + 2], '\0'}, *end;
            long value = strtol(digits, &end, 16);
            if (*end == '\0' && value > 0) {
                c = (char)value;
                i += 2;
                /* A percent-encoded ~ still begins an escape. */
                if (c == '~' && i + 1 < size && (step[i + 1] == '0' || step[i + 1] == '1'))
                    c = step[++i] == '0' ? '~' : '/';
            }
        }
        gs_buffer_append(name, &c, 1, NULL);
    }
}

static const json_t *follow_pointer(const json_t *at, const char *pointer, size_t size)
{
    struct gs_buffer name = {0};
    while (at && size > 0) {
        const char *end = memchr(pointer + 1, '/', size - 1);
        size_t step = end ? (size_t)(end - pointer) : size;
        decode_step(pointer + 1, step - 1, &name);
        const char *key = name.data ? name.data : "";
        if (json_is_array(at)) {
            char *rest;
            unsigned long index = strtoul(key, &rest, 10);
            at = *key && *rest == '\0' ? json_array_get(at, index) : NULL;
        } else {
            at = get(at, key);
        }
        pointer += step;
        size -= step;
    }
    gs_buffer_free(&name);
    return at;
}

/* The schema with this $anchor, by a search as deep as a document may be. */
static const json_t *find_anchor(struct gs_compiler *c, const json_t *at, const char *name, unsigned depth)
{
    const json_t *found = NULL;
    if (depth > GS_SCHEMA_MAX_NESTING || gs_budget_work(&c->budget, 8, NULL) != GS_OK)
        return NULL;
    if (gs_text_is(gs_json_text(get(at, "$anchor")), name))
        return at;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)at, key, value)
    {
        if (!found)
            found = find_anchor(c, value, name, depth + 1);
    }
    for (size_t i = 0; i < json_array_size(at) && !found; i++)
        found = find_anchor(c, json_array_get(at, i), name, depth + 1);
    return found;
}

gs_status gs_schema_resolve(struct gs_compiler *c, const json_t *holder, const json_t **target)
{
    struct gs_text reference = gs_json_text(get(holder, "$ref"));
    struct gs_text id = gs_json_text(get(c->root, "$id"));
    const char *at = reference.bytes;
    size_t size = reference.size;
    *target = NULL;
    gs_status status = gs_budget_work(&c->budget, size, c->error);
    if (status != GS_OK)
        return status;
    if (id.bytes && size >= id.size && id.size > 0 && memcmp(at, id.bytes, id.size) == 0 &&
        (size == id.size || at[id.size] == '#')) {
        at += id.size;
        size -= id.size;
    }
    if (size == 0 || (size == 1 && *at == '#'))
        *target = c->root;
    else if (size > 1 && at[0] == '#' && at[1] == '/')
        *target = follow_pointer(c->root, at + 1, size - 1);
    else if (*at == '#')
        *target = find_anchor(c, c->root, at + 1, 0);
    else
        return gs_compile_fail(c, GS_UNSUPPORTED, holder,
                               "$ref \"%s\": only references within the schema (#/...) are followed",
                               gs_quote_bytes(reference.bytes, reference.size).text);
    if (!*target && c->budget.work == 0) /* the search was cut short */
        return gs_budget_work(&c->budget, 1, c->error);
    if (!*target || (!json_is_object(*target) && !json_is_boolean(*target)))
        return gs_compile_fail(c, GS_MALFORMED, holder, "$ref \"%s\": there is no such schema",
                               gs_quote_bytes(reference.bytes, reference.size).text);
    return GS_OK;
}

/* ---------------------------------------------------------------- alternatives */

static gs_status append(struct gs_compiler *c, struct gs_alternatives *all, const struct gs_alternative *one)
{
    if (all->count >= GS_SCHEMA_MAX_ALTERNATIVES)
        return gs_fail(c->error, GS_UNSUPPORTED, "too complex: more than %d combinations of alternatives",
                       GS_SCHEMA_MAX_ALTERNATIVES);
    if ((all->count & (all->count - 1)) == 0) { /* room for the next power of two */
        size_t capacity = all->count ? 2 * all->count : 1;
        struct gs_alternative *list = gs_arena_alloc_array(&c->arena, capacity, sizeof *list);
        if (!list)
            return gs_fail_memory(c->error, capacity * sizeof *list);
        if (all->count > 0)
            memcpy(list, all->list, all->count * sizeof *list);
        all->list = list;
    }
    all->list[all->count++] = *one;
    return gs_budget_work(&c->budget, GS_WORK_OF_POINTER * (1 + one->count), c->error);
}

/* Adds a schema's own keywords to every alternative; those that allow no type any more go. */
static gs_status add_own(struct gs_compiler *c, const json_t *schema, unsigned types,
                         struct gs_alternatives *all)
{
    struct gs_alternatives out = {0};
    gs_status status = GS_OK;
    for (size_t i = 0; i < all->count && status == GS_OK; i++) {
        const struct gs_alternative *old = &all->list[i];
        struct gs_alternative one = {.types = old->types & types, .count = old->count};
        if (!one.types)
            continue;
        one.list = gs_arena_alloc_array(&c->arena, old->count + 1, sizeof *one.list);
        if (!one.list)
            return gs_fail_memory(c->error, (old->count + 1) * sizeof *one.list);
        bool there = false;
        for (size_t k = 0; k < old->count; k++) {
            one.list[k] = old->list[k];
            there |= old->list[k] == schema;
        }
        if (!there)
            one.list[one.count++] = schema;
        status = append(c, &out, &one);
    }
    *all = out;
    return status;
}

static bool same_alternative(const struct gs_alternative *a, const struct gs_alternative *b)
{
    return a->types == b->types && a->count == b->count &&
           (a->count == 0 || memcmp(a->list, b->list, a->count * sizeof *a->list) == 0);
}

/* One of the branches. */
static gs_status apply_any(struct gs_compiler *c, const json_t *branches, struct gs_alternatives *all)
{
    struct gs_alternatives out = {0};
    gs_status status = GS_OK;
    for (size_t i = 0; i < json_array_size(branches) && status == GS_OK; i++) {
        struct gs_alternatives some = *all;
        status = apply(c, json_array_get(branches, i), &some);
        for (size_t k = 0; k < some.count && status == GS_OK; k++) {
            bool there = false;
            for (size_t j = 0; j < out.count && !there; j++)
                there = same_alternative(&some.list[k], &out.list[j]);
            status = gs_budget_work(&c->budget, out.count, c->error);
            if (!there && status == GS_OK)
                status = append(c, &out, &some.list[k]);
        }
    }
    *all = out;
    return status;
}

static gs_status apply_made(struct gs_compiler *c, json_t *made, struct gs_alternatives *all)
{
    const json_t *schema = gs_compile_keep(c, made);
    return schema ? apply(c, schema, all) : gs_fail_memory(c->error, sizeof(json_t));
}

/* "If the property is there, then ...": it is not, or what follows holds. */
static gs_status apply_dependents(struct gs_compiler *c, const json_t *schema, struct gs_alternatives *all)
{
    gs_status status = GS_OK;
    const char *key;
    json_t *value;
    json_object_foreach(get(schema, "dependentRequired"), key, value)
    {
        if (status == GS_OK && json_array_size(value) > 0)
            status = apply_made(
                c, json_pack("{s:[{s:{s:b}},{s:O}]}", "anyOf", "properties", key, 0, "required", value), all);
    }
    json_object_foreach(get(schema, "dependentSchemas"), key, value)
    {
        if (status == GS_OK)
            status = apply_made(c,
                                json_pack("{s:[{s:{s:b}},{s:s,s:[s],s:[O]}]}", "anyOf", "properties", key, 0,
                                          "type", "object", "required", key, "allOf", value),
                                all);
    }
    return status;
}

/* The forms of `not` that a grammar can say. */
static gs_status apply_not(struct gs_compiler *c, const json_t *schema, struct gs_alternatives *all)
{
    static const char *const names[] = {"null", "boolean", "number", "string", "array", "object"};
    const json_t *inner = get(schema, "not");
    unsigned types = 0;
    if (json_is_false(inner))
        return GS_OK;
    if (json_is_true(inner) || (json_is_object(inner) && json_object_size(inner) == 0))
        return apply(c, json_false(), all);
    gs_status checked = gs_schema_check_keywords(c, inner);
    if (checked != GS_OK)
        return checked;
    const json_t *required = get(inner, "required");
    if (json_object_size(inner) == 1 && get(inner, "type") && !gs_schema_only_integers(inner)) {
        gs_status status = gs_schema_types(c, inner, &types);
        json_t *others = json_array();
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (!(types >> i & 1))
                json_array_append_new(others, json_string(names[i]));
        if (status == GS_OK && json_array_size(others) == 0) {
            json_decref(others);
            return apply(c, json_false(), all);
        }
        if (status == GS_OK)
            return apply_made(c, json_pack("{s:o}", "type", others), all);
        json_decref(others);
        return status;
    }
    if (json_object_size(inner) == 1 && json_array_size(required) == 1)
        return apply_made(c,
                          json_pack("{s:s,s:{s:b}}", "type", "object", "properties",
                                    json_string_value(json_array_get(required, 0)), 0),
                          all);
    if (!gs_schema_excluded(schema, 0)) /* else the rules of the types look at it */
        gs_compile_report(c, schema, "not");
    return GS_OK;
}

static gs_status apply_condition(struct gs_compiler *c, const json_t *schema, struct gs_alternatives *all)
{
    gs_status status;
    json_t *branches = gs_schema_branches(schema, c, &status);
    if (branches)
        return apply_made(c, branches, all);
    if (status == GS_OK)
        gs_compile_report(c, schema, "if");
    return status;
}

/* What unevaluatedProperties sees: the names that the schema's own alternative knows. */
static gs_status close_alternative(struct gs_compiler *c, const json_t *schema, struct gs_alternative *one,
                                   size_t first)
{
    json_t *names = json_object(), *patterns = json_object();
    bool closed = false;
    for (size_t i = first; i < one->count; i++) {
        const char *key;
        json_t *value;
        if (get(one->list[i], GS_DENIAL))
            continue;
        json_object_foreach(get(one->list[i], "properties"), key, value)
            json_object_set_new(names, key, json_true());
        json_object_foreach(get(one->list[i], "patternProperties"), key, value)
            json_object_set_new(patterns, key, json_true());
        closed |= get(one->list[i], "additionalProperties") != NULL;
    }
    json_t *made = json_pack("{s:o,s:o,s:O}", "properties", names, "patternProperties", patterns,
                             "additionalProperties", get(schema, "unevaluatedProperties"));
    const json_t *facet = gs_compile_keep(c, made);
    if (!facet)
        return gs_fail_memory(c->error, sizeof(json_t));
    if (closed)
        return GS_OK;
    const json_t **list = gs_arena_alloc_array(&c->arena, one->count + 1, sizeof *list);
    if (!list)
        return gs_fail_memory(c->error, (one->count + 1) * sizeof *list);
    memcpy(list, one->list, one->count * sizeof *list);
    list[one->count++] = facet;
    one->list = list;
    return GS_OK;
}

/* unevaluatedProperties closes over this schema alone: it is expanded by itself and then joined. */
static gs_status apply_unevaluated(struct gs_compiler *c, const json_t *schema, struct gs_alternatives *own)
{
    gs_status status = GS_OK;
    for (size_t i = 0; i < own->count && status == GS_OK; i++)
        status = close_alternative(c, schema, &own->list[i], 0);
    return status;
}

static gs_status join(struct gs_compiler *c, const struct gs_alternatives *own, struct gs_alternatives *all)
{
    struct gs_alternatives out = {0};
    gs_status status = GS_OK;
    for (size_t i = 0; i < all->count; i++)
        for (size_t k = 0; k < own->count && status == GS_OK; k++) {
            struct gs_alternatives one = {0};
            struct gs_alternative base = all->list[i];
            base.types &= own->list[k].types;
            if (!base.types)
                continue;
            status = append(c, &one, &base);
            for (size_t j = 0; j < own->list[k].count && status == GS_OK; j++)
                status = add_own(c, own->list[k].list[j], GS_TYPE_ANY, &one);
            for (size_t j = 0; j < one.count && status == GS_OK; j++)
                status = append(c, &out, &one.list[j]);
        }
    *all = out;
    return status;
}

static void report_rest(struct gs_compiler *c, const json_t *schema)
{
    static const char *const never[] = {"contains", "$dynamicRef", "$recursiveRef", "unevaluatedItems"};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (get(schema, never[i]) && !json_is_true(get(schema, never[i])))
            gs_compile_report(c, schema, never[i]);
    if (json_is_true(get(schema, "contains")))
        gs_compile_report(c, schema, "contains");
    if (json_is_true(get(schema, "uniqueItems")))
        gs_compile_report(c, schema, "uniqueItems");
    if (gs_text_is(gs_json_text(get(schema, "format")), "regex"))
        gs_compile_report(c, schema, "format");
    if (get(schema, "dependencies"))
        gs_compile_report(c, schema, "dependencies");
    if (get(schema, "$id") && schema != c->root)
        gs_compile_report(c, schema, "$id");
}

static gs_status apply_keywords(struct gs_compiler *c, const json_t *schema, struct gs_alternatives *all)
{
    unsigned types = GS_TYPE_ANY;
    const json_t *target;
    gs_status status = gs_schema_check_keywords(c, schema);
    if (status == GS_OK)
        status = gs_schema_types(c, schema, &types);
    if (status != GS_OK)
        return status;
    report_rest(c, schema);
    status = add_own(c, schema, types, all);
    if (status == GS_OK && get(schema, "$ref")) {
        status = gs_schema_resolve(c, schema, &target);
        if (status == GS_OK)
            status = apply(c, target, all);
    }
    for (size_t i = 0; i < json_array_size(get(schema, "allOf")) && status == GS_OK; i++)
        status = apply(c, json_array_get(get(schema, "allOf"), i), all);
    if (status == GS_OK && get(schema, "not"))
        status = apply_not(c, schema, all);
    if (status == GS_OK)
        status = apply_dependents(c, schema, all);
    if (status == GS_OK && get(schema, "if") && (get(schema, "then") || get(schema, "else")))
        status = apply_condition(c, schema, all);
    if (status == GS_OK && get(schema, "anyOf"))
        status = apply_any(c, get(schema, "anyOf"), all);
    if (status == GS_OK && get(schema, "oneOf")) {
        bool disjoint = true;
        status = gs_schema_disjoint(c, get(schema, "oneOf"), types, &disjoint);
        if (!disjoint)
            gs_compile_report(c, schema, "oneOf");
        if (status == GS_OK)
            status = apply_any(c, get(schema, "oneOf"), all);
    }
    return status;
}

static gs_status apply(struct gs_compiler *c, const json_t *schema, struct gs_alternatives *all)
{
    if (json_is_boolean(schema)) {
        if (json_is_false(schema))
            all->count = 0;
        return GS_OK;
    }
    for (size_t i = 0; i < c->n_open; i++)
        if (c->open[i] == schema)
            return gs_compile_fail(c, GS_MALFORMED, schema,
                                   "$ref leads back to the schema itself, without a value between");
    if (c->n_open == GS_SCHEMA_MAX_NESTING)
        return gs_fail(c->error, GS_UNSUPPORTED,
                       "too complex: allOf, anyOf, oneOf and $ref nested over %d deep",
                       GS_SCHEMA_MAX_NESTING);
    gs_status status = gs_budget_work(&c->budget, 16, c->error);
    if (status != GS_OK)
        return status;
    c->open[c->n_open++] = schema;
    const json_t *unevaluated = get(schema, "unevaluatedProperties");
    if (unevaluated && !json_is_true(unevaluated)) {
        struct gs_alternatives own = {0};
        status = append(c, &own, &(struct gs_alternative){.types = GS_TYPE_ANY});
        if (status == GS_OK)
            status = apply_keywords(c, schema, &own);
        if (status == GS_OK)
            status = apply_unevaluated(c, schema, &own);
        if (status == GS_OK)
            status = join(c, &own, all);
    } else {
        status = apply_keywords(c, schema, all);
    }
    c->n_open--;
    return status;
}

gs_status gs_schema_expand(struct gs_compiler *c, const json_t **schemas, size_t count,
                           struct gs_alternatives *out)
{
    *out = (struct gs_alternatives){0};
    size_t n_open = c->n_open;
    gs_status status = append(c, out, &(struct gs_alternative){.types = GS_TYPE_ANY});
    for (size_t i = 0; i < count && status == GS_OK; i++)
        status = apply(c, schemas[i], out);
    c->n_open = n_open;
    return status;
}
