/*
 * The compilation under way, for all of its parts: messages with a path, schemas made on the way, and the
 * rules whose bodies are still to be made. It calls none of them.
 */
#include "base/status.h"
#include "chat/schema_compile.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- places */

/* Writes the path from `at` to the schema; false if it is not below, or the budget (may be NULL) is spent. */
static bool find_path(const json_t *at, const json_t *schema, unsigned depth, struct gs_schema_budget *budget,
                      struct gs_buffer *path)
{
    size_t before = path->size;
    const char *key;
    json_t *value;
    bool found = at == schema;
    if (found || depth > 2 * GS_SCHEMA_MAX_NESTING || (budget && gs_budget_work(budget, 8, NULL) != GS_OK))
        return found;
    json_object_foreach((json_t *)at, key, value)
    {
        if (found || !json_is_object(value) + !json_is_array(value) == 2)
            continue;
        gs_buffer_print(path, NULL, "/%s", key);
        found = find_path(value, schema, depth + 1, budget, path);
        if (!found)
            path->size = before;
    }
    for (size_t i = 0; i < json_array_size(at) && !found; i++) {
        gs_buffer_print(path, NULL, "/%zu", i);
        found = find_path(json_array_get(at, i), schema, depth + 1, budget, path);
        if (!found)
            path->size = before;
    }
    return found;
}

static void path_of(const struct gs_compiler *c, const json_t *schema, struct gs_schema_budget *budget,
                    char *out, size_t size)
{
    struct gs_buffer path = {0};
    gs_buffer_append_text(&path, "#", NULL);
    find_path(c->root, schema, 0, budget, &path);
    gs_format(out, size, "%s", path.data ? gs_quote_bytes(path.data, path.size).text : "#");
    gs_buffer_free(&path);
}

gs_status gs_compile_fail(struct gs_compiler *c, gs_status code, const json_t *schema, const char *format,
                          ...)
{
    char path[200], message[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    path_of(c, schema, NULL, path, sizeof path);
    return gs_fail(c->error, code, "%s: %s", path, message);
}

void gs_compile_report(struct gs_compiler *c, const json_t *schema, const char *keyword)
{
    struct gs_schema_report *report = c->report;
    struct gs_schema_unsupported one = {0};
    char place[64];
    gs_format(place, sizeof place, "%llx %s", (unsigned long long)(uintptr_t)schema, keyword);
    /* Finding a path goes through the whole schema. */
    if (report->count >= GS_MAX_UNSUPPORTED || json_object_get(c->reported, place))
        return;
    json_object_set_new(c->reported, place, json_true());
    path_of(c, schema, &c->budget, one.path, sizeof one.path);
    gs_format(one.keyword, sizeof one.keyword, "%s", keyword);
    for (size_t i = 0; i < report->count; i++)
        if (strcmp(report->list[i].keyword, one.keyword) == 0 && strcmp(report->list[i].path, one.path) == 0)
            return;
    report->list[report->count++] = one;
}

const json_t *gs_compile_keep(struct gs_compiler *c, json_t *schema)
{
    return schema && json_array_append_new(c->made, schema) == 0 ? schema : NULL;
}

/* ---------------------------------------------------------------- values */

static int compare_pointers(const void *x, const void *y)
{
    uintptr_t a = (uintptr_t) * (const json_t *const *)x, b = (uintptr_t) * (const json_t *const *)y;
    return (a > b) - (a < b);
}

/* The set as text: the same schemas give the same key, whatever their order. */
static gs_status key_of(struct gs_compiler *c, const json_t **schemas, size_t count, struct gs_buffer *key)
{
    const json_t **sorted = gs_arena_alloc_array(&c->arena, count + 1, sizeof *sorted);
    if (!sorted)
        return gs_fail_memory(c->error, count * sizeof *sorted);
    if (count > 0)
        memcpy(sorted, schemas, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_pointers);
    gs_status status = gs_buffer_append_text(key, "*", c->error);
    for (size_t i = 0; i < count && status == GS_OK; i++)
        if (i == 0 || sorted[i] != sorted[i - 1])
            status = gs_buffer_print(key, c->error, " %llx", (unsigned long long)(uintptr_t)sorted[i]);
    return status;
}

static gs_status grow_pending(struct gs_compiler *c)
{
    if (c->n_pending < c->pending_capacity)
        return GS_OK;
    size_t capacity = c->pending_capacity ? 2 * c->pending_capacity : 64;
    struct gs_conjunction *pending = realloc(c->pending, capacity * sizeof *pending);
    if (!pending)
        return gs_fail_memory(c->error, capacity * sizeof *pending);
    c->pending = pending;
    c->pending_capacity = capacity;
    return GS_OK;
}

gs_status gs_compile_value(struct gs_compiler *c, const json_t **schemas, size_t count, uint32_t *rule)
{
    struct gs_buffer key = {0};
    gs_status status = gs_budget_work(&c->budget, 2 * GS_WORK_OF_POINTER * (count + 1), c->error);
    if (status != GS_OK)
        return status;
    /* `true` says nothing. */
    const json_t **list = gs_arena_alloc_array(&c->arena, count + 1, sizeof *list);
    size_t n = 0;
    for (size_t i = 0; i < count && list; i++)
        if (!json_is_true(schemas[i]))
            list[n++] = schemas[i];
    status = list ? key_of(c, list, n, &key) : gs_fail_memory(c->error, count * sizeof *list);
    const json_t *known = status == GS_OK ? json_object_get(c->expanded, key.data) : NULL;
    if (known)
        *rule = (uint32_t)json_integer_value(known);
    if (status != GS_OK || known)
        goto cleanup;
    status = grow_pending(c);
    if (status == GS_OK && c->grammar->n_rules >= c->max_rules)
        status = gs_fail(c->error, GS_UNSUPPORTED, "too complex: more than %zu kinds of value", c->max_rules);
    if (status == GS_OK)
        status = gs_grammar_add_rule(c->grammar, GS_RULE_UNION, rule, c->error);
    if (status == GS_OK && json_object_set_new(c->expanded, key.data, json_integer((json_int_t)*rule)) != 0)
        status = gs_fail_memory(c->error, sizeof(json_t));
    if (status == GS_OK)
        c->pending[c->n_pending++] = (struct gs_conjunction){list, n, *rule};

cleanup:
    gs_buffer_free(&key);
    return status;
}
