/* Rules of arrays: which schemas hold for which item. */
#include "base/status.h"
#include "chat/schema_compile.h"

#include <stdlib.h>

#define MAX_PREFIX    4096
#define MAX_CONTAINED 64

static json_t *get(const json_t *schema, const char *key)
{
    return json_object_get(schema, key);
}

/* The lists of the first items: prefixItems, or `items` of older drafts. */
static const json_t *prefix_of(const json_t *schema)
{
    const json_t *items = get(schema, "items");
    return json_is_array(items) ? items : get(schema, "prefixItems");
}

/*
 * How many items of each list[k] have to be such as `contains` says; those come first. Returns the sum. Where
 * they could not come first, or others must not be such, it is 0 and the keyword is reported.
 */
static size_t count_contained(struct gs_compiler *c, const struct gs_alternative *alternative, uint32_t max,
                              uint32_t *counts)
{
    size_t sum = 0;
    bool possible = true;
    for (size_t k = 0; k < alternative->count; k++) {
        const json_t *schema = alternative->list[k];
        counts[k] = get(schema, "contains") ? 1 : 0;
        possible &= json_array_size(prefix_of(schema)) == 0 && !json_is_false(gs_schema_rest_items(schema)) &&
                    !(counts[k] && get(schema, "maxContains"));
        if (counts[k])
            gs_schema_count(schema, "minContains", &counts[k]);
        sum += counts[k];
    }
    possible &= sum <= MAX_CONTAINED && sum <= max;
    for (size_t k = 0; k < alternative->count && !possible; k++) {
        const json_t *schema = alternative->list[k];
        if (get(schema, "contains") && (counts[k] > 0 || get(schema, "maxContains")))
            gs_compile_report(c, schema, "contains");
    }
    return possible ? sum : 0;
}

/* The rule of item number `i`, or of all after the prefixes (i SIZE_MAX); `also`: what else holds for it, or
 * NULL. */
static gs_status compile_item(struct gs_compiler *c, const struct gs_alternative *alternative, size_t i,
                              const json_t *also, const json_t **scratch, uint32_t *rule)
{
    size_t count = 0;
    if (also)
        scratch[count++] = also;
    for (size_t k = 0; k < alternative->count; k++) {
        const json_t *prefix = prefix_of(alternative->list[k]);
        const json_t *item = i < json_array_size(prefix) ? json_array_get(prefix, i)
                                                         : gs_schema_rest_items(alternative->list[k]);
        if (json_is_false(item)) {
            *rule = GS_NO_RULE;
            return GS_OK;
        }
        if (item)
            scratch[count++] = item;
    }
    return gs_compile_value(c, scratch, count, rule);
}

/* The items that come first because of `contains`. */
static gs_status compile_contained(struct gs_compiler *c, const struct gs_alternative *alternative,
                                   const uint32_t *counts, const json_t **scratch, uint32_t *rules)
{
    gs_status status = GS_OK;
    size_t at = 0;
    for (size_t k = 0; k < alternative->count; k++)
        for (uint32_t i = 0; i < counts[k] && status == GS_OK; i++)
            status = compile_item(c, alternative, SIZE_MAX, get(alternative->list[k], "contains"), scratch,
                                  &rules[at++]);
    return status;
}

gs_status gs_compile_array(struct gs_compiler *c, const struct gs_alternative *alternative, uint32_t *rule)
{
    struct gs_rule_array array = {.items = GS_NO_RULE, .max = GS_UNLIMITED};
    size_t n_prefix = 0;
    for (size_t k = 0; k < alternative->count; k++) {
        uint32_t value;
        size_t n = json_array_size(prefix_of(alternative->list[k]));
        n_prefix = n > n_prefix ? n : n_prefix;
        if (gs_schema_count(alternative->list[k], "minItems", &value) && value > array.min)
            array.min = value;
        if (gs_schema_count(alternative->list[k], "maxItems", &value) && value < array.max)
            array.max = value;
    }
    if (n_prefix > MAX_PREFIX)
        return gs_fail(c->error, GS_UNSUPPORTED, "too complex: prefixItems of more than %d", MAX_PREFIX);
    n_prefix = n_prefix < array.max ? n_prefix : array.max;
    const json_t **scratch = gs_arena_alloc_array(&c->arena, alternative->count + 2, sizeof *scratch);
    uint32_t *counts = gs_arena_alloc_array(&c->arena, alternative->count + 1, sizeof *counts);
    size_t n_contained = counts ? count_contained(c, alternative, array.max, counts) : 0;
    array.prefix = calloc(n_prefix + n_contained + 1, sizeof *array.prefix);
    gs_status status =
        scratch && counts && array.prefix ? GS_OK : gs_fail_memory(c->error, n_prefix * sizeof(uint32_t));
    for (size_t i = 0; i < n_prefix && status == GS_OK; i++)
        status = compile_item(c, alternative, i, NULL, scratch, &array.prefix[i]);
    if (status == GS_OK && n_contained > 0) { /* there are no other prefixes then */
        status = compile_contained(c, alternative, counts, scratch, array.prefix);
        n_prefix = n_contained;
        array.min = array.min > n_contained ? array.min : (uint32_t)n_contained;
    }
    if (status == GS_OK && array.max > n_prefix)
        status = compile_item(c, alternative, SIZE_MAX, NULL, scratch, &array.items);
    array.n_prefix = (uint32_t)n_prefix;
    if (status == GS_OK)
        status = gs_grammar_add_rule(c->grammar, GS_RULE_ARRAY, rule, c->error);
    if (status == GS_OK)
        c->grammar->rules[*rule].as.array = array;
    else
        free(array.prefix);
    return status;
}
