/* From a JSON Schema to a grammar: one rule after the other, without recursion, within a budget. */
#include "chat/schema_compile.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_RULES  4096
#define DEFAULT_STATES 262144
#define DEFAULT_WORK   40000000
#define DEFAULT_DEPTH  64
#define DEFAULT_CACHE  ((size_t)16 << 20)

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

struct choices {
    uint32_t *list;
    size_t count, capacity;
};

static gs_status add_choice(struct gs_compiler *c, struct choices *choices, uint32_t rule)
{
    for (size_t i = 0; i < choices->count; i++)
        if (choices->list[i] == rule)
            return GS_OK;
    if (choices->count == choices->capacity) {
        size_t capacity = choices->capacity ? 2 * choices->capacity : 8;
        uint32_t *list = realloc(choices->list, capacity * sizeof *list);
        if (!list)
            return gs_fail_memory(c->error, capacity * sizeof *list);
        choices->list = list;
        choices->capacity = capacity;
    }
    choices->list[choices->count++] = rule;
    return gs_budget_work(&c->budget, choices->count, c->error);
}

/* Does `not` of one of the schemas exclude this constant? */
static bool is_excluded(const struct gs_alternative *alternative, json_type type)
{
    const json_t *value;
    for (size_t i = 0; i < alternative->count; i++)
        for (size_t k = 0; (value = gs_schema_excluded(alternative->list[i], k)); k++)
            if (json_typeof(value) == type)
                return true;
    return false;
}

/* `null`, `true`, `false`: those that are allowed, one rule for each combination, made once. */
static gs_status compile_word(struct gs_compiler *c, const struct gs_alternative *alternative, uint32_t *rule)
{
    static const char *const words[] = {"null", "true", "false"};
    static const json_type types[] = {JSON_NULL, JSON_TRUE, JSON_FALSE};
    const char *allowed[3];
    char name[] = "*words ---";
    size_t count = 0;
    *rule = GS_NO_RULE;
    for (size_t i = 0; i < 3; i++) {
        if (!(alternative->types & (i == 0 ? GS_TYPE_NULL : GS_TYPE_BOOLEAN)) ||
            is_excluded(alternative, types[i]))
            continue;
        name[7 + i] = '+';
        allowed[count++] = words[i];
    }
    const json_t *known = json_object_get(c->scalars, name);
    if (known)
        *rule = (uint32_t)json_integer_value(known);
    if (known || count == 0)
        return GS_OK;
    gs_status status = gs_compile_words(c, allowed, count, rule);
    if (status == GS_OK && json_object_set_new(c->scalars, name, json_integer((json_int_t)*rule)) != 0)
        status = gs_fail_memory(c->error, sizeof(json_t));
    return status;
}

typedef gs_status compile_fn(struct gs_compiler *c, const struct gs_alternative *alternative, uint32_t *rule);

static gs_status compile_types(struct gs_compiler *c, const struct gs_alternative *alternative,
                               struct choices *choices)
{
    static const struct {
        unsigned type;
        compile_fn *compile;
    } kinds[] = {{GS_TYPE_STRING, gs_compile_string},
                 {GS_TYPE_NUMBER, gs_compile_number},
                 {GS_TYPE_ARRAY, gs_compile_array},
                 {GS_TYPE_OBJECT, gs_compile_object}};
    uint32_t rule;
    gs_status status = GS_OK;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && status == GS_OK; i++) {
        if (!(alternative->types & kinds[i].type))
            continue;
        status = kinds[i].compile(c, alternative, &rule);
        if (status == GS_OK)
            status = add_choice(c, choices, rule);
    }
    if (status == GS_OK)
        status = compile_word(c, alternative, &rule);
    if (status == GS_OK && rule != GS_NO_RULE)
        status = add_choice(c, choices, rule);
    return status;
}

/* The body of the next rule that lacks one. */
static gs_status compile_body(struct gs_compiler *c, struct gs_conjunction conjunction)
{
    struct gs_alternatives all;
    struct choices choices = {0};
    gs_status status = gs_schema_expand(c, conjunction.list, conjunction.count, &all);
    for (size_t i = 0; i < all.count && status == GS_OK; i++) {
        bool found;
        uint32_t *rules = NULL;
        size_t n_rules = 0;
        status = gs_compile_literals(c, &all.list[i], &found, &rules, &n_rules);
        for (size_t k = 0; k < n_rules && status == GS_OK; k++)
            status = add_choice(c, &choices, rules[k]);
        if (status == GS_OK && !found)
            status = compile_types(c, &all.list[i], &choices);
    }
    c->grammar->rules[conjunction.rule].as.alternatives.list = choices.list;
    c->grammar->rules[conjunction.rule].as.alternatives.count = (uint32_t)choices.count;
    return status;
}

/* Unions among the alternatives are replaced by theirs: only constants that are lists or objects bring them.
 */
static gs_status flatten(struct gs_compiler *c)
{
    gs_status status = GS_OK;
    for (size_t i = 0; i < c->grammar->n_rules && status == GS_OK; i++) {
        struct gs_rule *rule = &c->grammar->rules[i];
        struct choices choices = {0};
        if (rule->kind != GS_RULE_UNION)
            continue;
        for (uint32_t k = 0; k < rule->as.alternatives.count && status == GS_OK; k++) {
            uint32_t inner = rule->as.alternatives.list[k];
            const struct gs_rule *other = &c->grammar->rules[inner];
            if (other->kind != GS_RULE_UNION)
                status = add_choice(c, &choices, inner);
            for (uint32_t m = 0; other->kind == GS_RULE_UNION && m < other->as.alternatives.count; m++)
                if (status == GS_OK)
                    status = add_choice(c, &choices, other->as.alternatives.list[m]);
        }
        free(rule->as.alternatives.list);
        rule->as.alternatives.list = choices.list;
        rule->as.alternatives.count = (uint32_t)choices.count;
    }
    return status;
}

static size_t or_default(size_t value, size_t normal)
{
    return value ? value : normal;
}

static gs_status compile_all(struct gs_compiler *c, size_t max_depth)
{
    uint32_t root;
    gs_status status = gs_compile_value(c, &c->root, 1, &root);
    while (status == GS_OK && c->n_done < c->n_pending) {
        status = compile_body(c, c->pending[c->n_done++]);
        if (status == GS_OK && c->grammar->n_rules > c->max_rules)
            status =
                gs_fail(c->error, GS_UNSUPPORTED, "too complex: more than %zu kinds of value", c->max_rules);
    }
    if (status == GS_OK)
        status = flatten(c);
    return status == GS_OK ? gs_grammar_finish(c->grammar, root, max_depth, &c->budget, c->error) : status;
}

gs_status gs_schema_compile(const json_t *schema, const struct gs_schema_limits *limits,
                            struct gs_grammar **out, struct gs_schema_report *report, struct gs_error *error)
{
    static const struct gs_schema_limits none;
    struct gs_schema_report own = {0};
    limits = limits ? limits : &none;
    report = report ? report : &own;
    report->count = 0;
    report->n_work = 0;
    *out = NULL;
    size_t work = or_default(limits->max_work, DEFAULT_WORK);
    struct gs_compiler c = {
        .root = schema,
        .budget = {work, or_default(limits->max_states, DEFAULT_STATES)},
        .max_rules = or_default(limits->max_rules, DEFAULT_RULES),
        .report = report,
        .error = error,
        .made = json_array(),
        .scalars = json_object(),
        .patterns = json_object(),
        .expanded = json_object(),
        .reported = json_object(),
    };
    gs_status status = c.made && c.scalars && c.patterns && c.expanded && c.reported
                           ? GS_OK
                           : gs_fail_memory(error, sizeof(json_t));
    if (status == GS_OK)
        status =
            gs_grammar_make(&c.budget, or_default(limits->cache_bytes, DEFAULT_CACHE), &c.grammar, error);
    if (status == GS_OK)
        status = compile_all(&c, or_default(limits->max_depth, DEFAULT_DEPTH));
    report->n_work = work - c.budget.work;
    if (status == GS_OK) {
        c.grammar->size.n_work = report->n_work;
        *out = c.grammar;
    } else {
        gs_grammar_close(c.grammar);
    }
    json_decref(c.made);
    json_decref(c.scalars);
    json_decref(c.patterns);
    json_decref(c.expanded);
    json_decref(c.reported);
    free(c.pending);
    gs_arena_free(&c.arena);
    return status;
}

gs_status gs_grammar_json_object(struct gs_grammar **out, struct gs_error *error)
{
    *out = NULL;
    json_t *schema = json_pack("{s:s}", "type", "object");
    gs_status status =
        schema ? gs_schema_compile(schema, NULL, out, NULL, error) : gs_fail_memory(error, sizeof(json_t));
    json_decref(schema);
    return status;
}

gs_status gs_grammar_texts(const char *const *texts, size_t count, struct gs_grammar **out,
                           struct gs_error *error)
{
    struct gs_compiler c = {.budget = {DEFAULT_WORK, DEFAULT_STATES}, .error = error};
    uint32_t rule;
    *out = NULL;
    if (count == 0)
        return gs_fail(error, GS_INVALID_ARGUMENT, "a grammar of texts needs at least one");
    gs_status status = gs_grammar_make(&c.budget, DEFAULT_CACHE, &c.grammar, error);
    if (status == GS_OK)
        status = gs_compile_words(&c, texts, count, &rule);
    if (status == GS_OK)
        status = gs_grammar_finish(c.grammar, rule, DEFAULT_DEPTH, &c.budget, error);
    if (status == GS_OK)
        *out = c.grammar;
    else
        gs_grammar_close(c.grammar);
    return status;
}
