#include "chat/schema_disjoint.h"

#define LOOKUPS 8 /* steps for looking one name up in two schemas */

static json_t *get(const json_t *schema, const char *key)
{
    return json_object_get(schema, key);
}

/* The constants of one schema, as a list: its enum, or its const in `made` (to be released), or NULL. */
static json_t *constants_of(const json_t *schema, json_t **made)
{
    *made = get(schema, "const") ? json_pack("[O]", get(schema, "const")) : NULL;
    return *made ? *made : get(schema, "enum");
}

/* Does one of the constants satisfy all of `other`? */
static gs_status any_holds(struct gs_compiler *c, const json_t *constants, const json_t *const *other,
                           size_t count, bool *any)
{
    gs_status status = GS_OK;
    *any = false;
    for (size_t i = 0; i < json_array_size(constants) && !*any && status == GS_OK; i++) {
        bool all = true;
        for (size_t k = 0; k < count && all && status == GS_OK; k++)
            status = gs_schema_holds(c, other[k], json_array_get(constants, i), 0, &all);
        *any = all;
    }
    return status;
}

/* a's constants, if it has any, are none of b's values. */
static gs_status constants_differ(struct gs_compiler *c, const struct gs_alternative *a,
                                  const struct gs_alternative *b, bool *differ)
{
    gs_status status = GS_OK;
    for (size_t i = 0; i < a->count && status == GS_OK && !*differ; i++) {
        json_t *made, *constants = constants_of(a->list[i], &made);
        bool any = true;
        if (constants)
            status = any_holds(c, constants, b->list, b->count, &any);
        *differ = !any;
        json_decref(made);
    }
    return status;
}

static bool forbids(const struct gs_alternative *one, const char *name)
{
    for (size_t i = 0; i < one->count; i++) {
        const json_t *schema = one->list[i], *property = get(get(schema, "properties"), name);
        if (property
                ? json_is_false(property)
                : json_is_false(get(schema, "additionalProperties")) && !get(schema, "patternProperties"))
            return true;
    }
    return false;
}

/* Objects: a has a property that b forbids, or that has other constants in b. */
static gs_status objects_differ(struct gs_compiler *c, const struct gs_alternative *a,
                                const struct gs_alternative *b, bool *differ)
{
    gs_status status = GS_OK;
    for (size_t i = 0; i < a->count && !*differ && status == GS_OK; i++)
        for (size_t k = 0; k < json_array_size(get(a->list[i], "required")) && !*differ && status == GS_OK;
             k++) {
            const char *name = json_string_value(json_array_get(get(a->list[i], "required"), k));
            status = gs_budget_work(&c->budget, LOOKUPS * (a->count + 1) * b->count, c->error);
            *differ = status == GS_OK && forbids(b, name);
            for (size_t m = 0; m < a->count * b->count && !*differ && status == GS_OK; m++) {
                const json_t *x = get(get(a->list[m % a->count], "properties"), name);
                const json_t *y = get(get(b->list[m / a->count], "properties"), name);
                json_t *made, *constants = constants_of(x, &made);
                bool any = true;
                if (constants && y)
                    status = any_holds(c, constants, &y, 1, &any);
                json_decref(made);
                constants = constants_of(y, &made);
                if (any && constants && x && status == GS_OK)
                    status = any_holds(c, constants, &x, 1, &any);
                json_decref(made);
                *differ = !any;
            }
        }
    return status;
}

static gs_status pair_disjoint(struct gs_compiler *c, const struct gs_alternative *a,
                               const struct gs_alternative *b, unsigned types, bool *disjoint)
{
    unsigned common = a->types & b->types & types;
    *disjoint = common == 0;
    gs_status status = gs_budget_work(&c->budget, 1 + a->count * b->count, c->error);
    if (status == GS_OK && !*disjoint)
        status = constants_differ(c, a, b, disjoint);
    if (status == GS_OK && !*disjoint)
        status = constants_differ(c, b, a, disjoint);
    if (status == GS_OK && !*disjoint && common == GS_TYPE_OBJECT)
        status = objects_differ(c, a, b, disjoint);
    if (status == GS_OK && !*disjoint && common == GS_TYPE_OBJECT)
        status = objects_differ(c, b, a, disjoint);
    return status;
}

gs_status gs_schema_disjoint(struct gs_compiler *c, const struct gs_alternatives *branches, size_t n,
                             unsigned types, bool *disjoint)
{
    gs_status status = GS_OK;
    *disjoint = true;
    for (size_t i = 0; i < n && *disjoint && status == GS_OK; i++)
        for (size_t k = i + 1; k < n && *disjoint && status == GS_OK; k++)
            for (size_t m = 0; m < branches[i].count * branches[k].count && *disjoint && status == GS_OK; m++)
                status = pair_disjoint(c, &branches[i].list[m % branches[i].count],
                                       &branches[k].list[m / branches[i].count], types, disjoint);
    return status;
}
