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

/* ---------------------------------------------------------------- values */

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

/* A limit that was met in a schema: where, and by which of its keywords. */
static gs_status name_limit(struct gs_compiler *c, gs_status status, const struct gs_conjunction *conjunction)
{
    static const char *const keywords[] = {"$ref",        "allOf",
                                           "anyOf",       "oneOf",
                                           "if",          "dependentSchemas",
                                           "enum",        "const",
                                           "properties",  "patternProperties",
                                           "prefixItems", "items",
                                           "pattern",     "format",
                                           "minLength",   "maxLength",
                                           "minimum",     "maximum",
                                           "multipleOf"};
    static const char begin[] = "too complex";
    struct gs_buffer names = {0};
    char cause[400];
    const json_t *schema = conjunction->count > 0 ? conjunction->list[0] : NULL;
    if (status != GS_UNSUPPORTED || strncmp(c->error->message, begin, sizeof begin - 1) != 0)
        return status;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (json_object_get(schema, keywords[i]))
            gs_buffer_print(&names, NULL, "%s%s", names.size > 0 ? ", " : "", keywords[i]);
    gs_format(cause, sizeof cause, "%s", c->error->message);
    if (names.size > 0)
        status = gs_compile_fail(c, status, schema, "%s: %s", names.data, cause);
    gs_buffer_free(&names);
    return status;
}

static gs_status compile_all(struct gs_compiler *c, size_t max_depth)
{
    uint32_t root;
    gs_status status = gs_compile_value(c, &c->root, 1, &root);
    while (status == GS_OK && c->n_done < c->n_pending) {
        status = compile_body(c, c->pending[c->n_done]);
        status = name_limit(c, status, &c->pending[c->n_done++]);
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
