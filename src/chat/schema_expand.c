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

/* oneOf is the same as anyOf where no value satisfies two branches. */
static gs_status apply_one(struct gs_compiler *c, const json_t *schema, unsigned types,
                           struct gs_alternatives *all)
{
    const json_t *branches = get(schema, "oneOf");
    size_t n = json_array_size(branches);
    struct gs_alternatives *each = gs_arena_alloc_array(&c->arena, n, sizeof *each);
    gs_status status = each ? GS_OK : gs_fail_memory(c->error, n * sizeof *each);
    bool disjoint = true;
    for (size_t i = 0; i < n && status == GS_OK; i++) {
        const json_t *branch = json_array_get(branches, i);
        status = gs_schema_expand(c, &branch, 1, &each[i]);
    }
    if (status == GS_OK)
        status = gs_schema_disjoint(c, each, n, types, &disjoint);
    if (!disjoint)
        gs_compile_report(c, schema, "oneOf");
    return status == GS_OK ? apply_any(c, branches, all) : status;
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
    static const char *const never[] = {"$dynamicRef", "$recursiveRef"};
    if (gs_schema_unevaluated_items(schema) && !json_is_true(get(schema, "unevaluatedItems")))
        gs_compile_report(c, schema, "unevaluatedItems");
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (get(schema, never[i]) && !json_is_true(get(schema, never[i])))
            gs_compile_report(c, schema, never[i]);
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
    if (status == GS_OK && get(schema, "oneOf"))
        status = apply_one(c, schema, types, all);
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
