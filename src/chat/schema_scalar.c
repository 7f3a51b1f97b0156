/* Rules of what has no parts: numbers, strings, words; and of constants. */
#include "base/status.h"
#include "chat/json_text.h"
#include "chat/schema_compile.h"
#include "chat/schema_format.h"
#include "chat/schema_number.h"

#include <string.h>

#define MAX_COUNTED_STATES 1000 /* length bounds beside a pattern become states up to here */

static json_t *get(const json_t *schema, const char *key)
{
    return json_object_get(schema, key);
}

/* ---------------------------------------------------------------- rules made once */

/* The rule that was made from the same description; GS_NO_RULE if there is none. */
static uint32_t made_before(const struct gs_compiler *c, const char *description)
{
    const json_t *rule = get(c->scalars, description);
    return rule ? (uint32_t)json_integer_value(rule) : GS_NO_RULE;
}

static gs_status remember(struct gs_compiler *c, const char *description, uint32_t rule)
{
    if (json_object_set_new(c->scalars, description, json_integer((json_int_t)rule)) != 0)
        return gs_fail_memory(c->error, sizeof(json_t));
    return GS_OK;
}

/* `kind`, then the keywords that matter, of all schemas: equal texts mean equal rules. */
static gs_status describe(struct gs_compiler *c, const char *kind, const struct gs_alternative *alternative,
                          const char *const *keywords, size_t n_keywords, struct gs_buffer *out)
{
    gs_status status = gs_buffer_append_text(out, kind, c->error);
    for (size_t i = 0; i < alternative->count; i++)
        for (size_t k = 0; k < n_keywords && status == GS_OK; k++) {
            const json_t *value = get(alternative->list[i], keywords[k]);
            if (!value)
                continue;
            struct gs_writer writer = {.buffer = out, .status = GS_OK, .error = c->error};
            gs_write(&writer, keywords[k]);
            gs_write_json(&writer, value);
            status = writer.status;
            if (status == GS_OK)
                status = gs_budget_work(&c->budget, out->size, c->error);
        }
    return status;
}

static gs_status add_lex(struct gs_compiler *c, struct gs_dfa *dfa, const char *description, uint32_t *rule)
{
    uint32_t index;
    gs_status status = gs_grammar_add_dfa(c->grammar, dfa, &index, c->error);
    if (status == GS_OK)
        status = gs_grammar_add_rule(c->grammar, GS_RULE_LEX, rule, c->error);
    if (status != GS_OK)
        return status;
    c->grammar->rules[*rule].as.dfa = index;
    return description ? remember(c, description, *rule) : GS_OK;
}

gs_status gs_compile_words(struct gs_compiler *c, const char *const *words, size_t count, uint32_t *rule)
{
    struct gs_nfa nfa = {.budget = &c->budget, .error = c->error};
    struct gs_dfa dfa;
    uint32_t start = gs_nfa_node(&nfa), accept = gs_nfa_node(&nfa);
    for (size_t i = 0; i < count; i++)
        gs_nfa_bytes(&nfa, start, accept, words[i], strlen(words[i]));
    gs_status status = gs_dfa_build(&nfa, start, accept, 1, &dfa);
    gs_nfa_free(&nfa);
    return status == GS_OK ? add_lex(c, &dfa, NULL, rule) : status;
}

/* ---------------------------------------------------------------- numbers */

/* *dfa becomes its product with `other`, which is released. */
static gs_status intersect(struct gs_compiler *c, struct gs_dfa *dfa, struct gs_dfa *other)
{
    struct gs_dfa both;
    gs_status status = gs_dfa_product(dfa, other, GS_DFA_BOTH, &c->budget, &both, c->error);
    gs_dfa_free(other);
    gs_dfa_free(dfa);
    *dfa = both;
    return status;
}

static gs_status add_bound(struct gs_compiler *c, const json_t *bound, int direction, bool exclusive,
                           struct gs_dfa *dfa)
{
    struct gs_dfa other = {0};
    if (!json_is_number(bound))
        return GS_OK;
    gs_status status = gs_number_bound_dfa(bound, direction, exclusive, &c->budget, &other, c->error);
    return status == GS_OK ? intersect(c, dfa, &other) : status;
}

static gs_status add_bounds(struct gs_compiler *c, const json_t *schema, struct gs_dfa *dfa)
{
    const json_t *above = get(schema, "exclusiveMinimum"), *below = get(schema, "exclusiveMaximum");
    gs_status status = add_bound(c, get(schema, "minimum"), 1, json_is_true(above), dfa);
    if (status == GS_OK)
        status = add_bound(c, get(schema, "maximum"), -1, json_is_true(below), dfa);
    if (status == GS_OK)
        status = add_bound(c, above, 1, true, dfa);
    return status == GS_OK ? add_bound(c, below, -1, true, dfa) : status;
}

static bool divisor_of(const json_t *schema, uint32_t *divisor)
{
    int64_t value;
    if (!gs_number_as_integer(get(schema, "multipleOf"), &value) || value < 1 || value > GS_MAX_MULTIPLE)
        return false;
    *divisor = (uint32_t)value;
    return true;
}

/* Numbers that `not` excludes: what is above or below each of them. */
static gs_status exclude_numbers(struct gs_compiler *c, const json_t *schema, struct gs_dfa *dfa)
{
    gs_status status = GS_OK;
    const json_t *value;
    for (size_t i = 0; (value = gs_schema_excluded(schema, i)) && status == GS_OK; i++) {
        struct gs_dfa above = {0}, below = {0}, others = {0};
        if (!json_is_number(value))
            continue;
        status = gs_number_bound_dfa(value, 1, true, &c->budget, &above, c->error);
        if (status == GS_OK)
            status = gs_number_bound_dfa(value, -1, true, &c->budget, &below, c->error);
        if (status == GS_OK)
            status = gs_dfa_product(&above, &below, GS_DFA_UNION, &c->budget, &others, c->error);
        if (status == GS_OK)
            status = intersect(c, dfa, &others);
        gs_dfa_free(&above);
        gs_dfa_free(&below);
        gs_dfa_free(&others);
    }
    return status;
}

/* Does `not` exclude constants of this kind? */
static bool excludes(const json_t *schema, bool strings)
{
    const json_t *value;
    for (size_t i = 0; (value = gs_schema_excluded(schema, i)); i++)
        if (strings ? json_is_string(value) : json_is_number(value))
            return true;
    return false;
}

/* The smallest form that all of the schemas need. */
static enum gs_number_form form_of(struct gs_compiler *c, const struct gs_alternative *alternative)
{
    static const char *const bounds[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
    enum gs_number_form form = GS_NUMBER_ANY;
    for (size_t i = 0; i < alternative->count; i++) {
        const json_t *schema = alternative->list[i];
        uint32_t divisor;
        if (gs_schema_only_integers(schema) || divisor_of(schema, &divisor))
            return GS_NUMBER_INTEGER;
        if (get(schema, "multipleOf"))
            gs_compile_report(c, schema, "multipleOf");
        for (size_t k = 0; k < 4; k++)
            if (json_is_number(get(schema, bounds[k])))
                form = GS_NUMBER_DECIMAL;
        if (excludes(schema, false))
            form = GS_NUMBER_DECIMAL;
    }
    return form;
}

gs_status gs_compile_number(struct gs_compiler *c, const struct gs_alternative *alternative, uint32_t *rule)
{
    static const char *const keywords[] = {"minimum",          "maximum",    "exclusiveMinimum",
                                           "exclusiveMaximum", "multipleOf", "not"};
    enum gs_number_form form = form_of(c, alternative);
    struct gs_buffer description = {0};
    struct gs_dfa dfa = {0};
    gs_status status = describe(c, form == GS_NUMBER_INTEGER ? "integer" : "number", alternative, keywords,
                                sizeof keywords / sizeof *keywords, &description);
    *rule = status == GS_OK ? made_before(c, description.data) : 0;
    if (status != GS_OK || *rule != GS_NO_RULE)
        goto cleanup;
    status = gs_number_dfa(form, &c->budget, &dfa, c->error);
    for (size_t i = 0; i < alternative->count && status == GS_OK; i++) {
        uint32_t divisor;
        struct gs_dfa multiples;
        status = add_bounds(c, alternative->list[i], &dfa);
        if (status == GS_OK)
            status = exclude_numbers(c, alternative->list[i], &dfa);
        if (status != GS_OK || !get(alternative->list[i], "multipleOf"))
            continue;
        if (!divisor_of(alternative->list[i], &divisor)) {
            gs_compile_report(c, alternative->list[i], "multipleOf");
            continue;
        }
        status = gs_number_multiple_dfa(divisor, &c->budget, &multiples, c->error);
        if (status == GS_OK)
            status = intersect(c, &dfa, &multiples);
    }
    if (status == GS_OK)
        status = add_lex(c, &dfa, description.data, rule);
cleanup:
    gs_dfa_free(&dfa);
    gs_buffer_free(&description);
    return status;
}

/* ---------------------------------------------------------------- strings */

struct string_bounds {
    uint32_t min, max;
    bool patterns; /* is there more than lengths? */
};

static bool known_format(const json_t *schema)
{
    struct gs_text format = gs_json_text(get(schema, "format"));
    return format.bytes && gs_format_pattern(format);
}

static struct string_bounds bounds_of(const json_t *const *schemas, size_t count)
{
    struct string_bounds bounds = {.max = GS_UNLIMITED};
    for (size_t i = 0; i < count; i++) {
        uint32_t value;
        if (gs_schema_count(schemas[i], "minLength", &value) && value > bounds.min)
            bounds.min = value;
        if (gs_schema_count(schemas[i], "maxLength", &value) && value < bounds.max)
            bounds.max = value;
        bounds.patterns |=
            get(schemas[i], "pattern") || known_format(schemas[i]) || excludes(schemas[i], true);
    }
    return bounds;
}

static gs_status add_pattern(struct gs_compiler *c, const json_t *schema, const char *keyword,
                             struct gs_text pattern, struct gs_dfa *dfa)
{
    const struct gs_dfa *other;
    struct gs_dfa both;
    gs_status status = gs_compile_pattern(c, schema, keyword, pattern, &other);
    if (status != GS_OK || !other)
        return status;
    status = gs_dfa_product(dfa, other, GS_DFA_BOTH, &c->budget, &both, c->error);
    gs_dfa_free(dfa);
    *dfa = both;
    return status;
}

/* Strings of min ... max characters, with bounds that are too long for states reported and left out. */
static gs_status start_string(struct gs_compiler *c, const json_t *const *schemas, size_t count,
                              struct string_bounds bounds, struct gs_dfa *dfa)
{
    for (size_t i = 0; i < count; i++) {
        if (bounds.min > MAX_COUNTED_STATES && get(schemas[i], "minLength"))
            gs_compile_report(c, schemas[i], "minLength");
        if (bounds.max > MAX_COUNTED_STATES && get(schemas[i], "maxLength"))
            gs_compile_report(c, schemas[i], "maxLength");
    }
    uint32_t min = bounds.min > MAX_COUNTED_STATES ? 0 : bounds.min;
    uint32_t max = bounds.max > MAX_COUNTED_STATES ? GS_UNLIMITED : bounds.max;
    if (min > max) {
        *dfa = (struct gs_dfa){0};
        return GS_OK;
    }
    return gs_dfa_string(min, max, &c->budget, dfa, c->error);
}

/* Strings that `not` excludes: they get a label of their own, which is then dropped. */
static gs_status exclude_strings(struct gs_compiler *c, const json_t *schema, struct gs_dfa *dfa)
{
    struct gs_nfa nfa = {.budget = &c->budget, .error = c->error};
    struct gs_dfa words = {0}, both = {0};
    uint32_t start = gs_nfa_node(&nfa), accept = gs_nfa_node(&nfa);
    const bool keep[256] = {[1] = true};
    const json_t *value;
    gs_status status = GS_OK;
    for (size_t i = 0; (value = gs_schema_excluded(schema, i)) && status == GS_OK; i++) {
        struct gs_buffer text = {0};
        if (!json_is_string(value))
            continue;
        status = gs_spell_string(gs_json_text(value), &text, c->error);
        if (status == GS_OK)
            gs_nfa_bytes(&nfa, start, accept, text.data, text.size);
        gs_buffer_free(&text);
    }
    if (status == GS_OK)
        status = gs_dfa_build(&nfa, start, accept, 2, &words);
    if (status == GS_OK)
        status = gs_dfa_product(dfa, &words, GS_DFA_UNION, &c->budget, &both, c->error);
    if (status == GS_OK) {
        gs_dfa_free(dfa);
        *dfa = both;
        status = gs_dfa_keep(dfa, keep, c->error);
    }
    gs_dfa_free(&words);
    gs_nfa_free(&nfa);
    return status;
}

gs_status gs_compile_string_dfa(struct gs_compiler *c, const json_t **schemas, size_t count,
                                struct gs_dfa *out)
{
    gs_status status = start_string(c, schemas, count, bounds_of(schemas, count), out);
    for (size_t i = 0; i < count && status == GS_OK; i++) {
        struct gs_text pattern = gs_json_text(get(schemas[i], "pattern"));
        if (pattern.bytes)
            status = add_pattern(c, schemas[i], "pattern", pattern, out);
        if (status == GS_OK && known_format(schemas[i]))
            status = add_pattern(c, schemas[i], "format",
                                 gs_text_of(gs_format_pattern(gs_json_text(get(schemas[i], "format")))), out);
        if (status == GS_OK && excludes(schemas[i], true))
            status = exclude_strings(c, schemas[i], out);
    }
    return status;
}

gs_status gs_compile_string(struct gs_compiler *c, const struct gs_alternative *alternative, uint32_t *rule)
{
    static const char *const keywords[] = {"minLength", "maxLength", "pattern", "format", "not"};
    struct string_bounds bounds = bounds_of(alternative->list, alternative->count);
    struct gs_buffer description = {0};
    struct gs_dfa dfa = {0};
    gs_status status;
    if (!bounds.patterns)
        status = gs_buffer_print(&description, c->error, "string %u %u", bounds.min, bounds.max);
    else
        status =
            describe(c, "string", alternative, keywords, sizeof keywords / sizeof *keywords, &description);
    *rule = status == GS_OK ? made_before(c, description.data) : 0;
    if (status != GS_OK || *rule != GS_NO_RULE)
        goto cleanup;
    if (bounds.patterns) {
        status = gs_compile_string_dfa(c, alternative->list, alternative->count, &dfa);
        if (status == GS_OK)
            status = add_lex(c, &dfa, description.data, rule);
    } else {
        status = gs_grammar_add_rule(c->grammar, GS_RULE_STRING, rule, c->error);
        if (status == GS_OK) {
            c->grammar->rules[*rule].as.string.min = bounds.min;
            c->grammar->rules[*rule].as.string.max = bounds.max;
            status = remember(c, description.data, *rule);
        }
    }
cleanup:
    gs_dfa_free(&dfa);
    gs_buffer_free(&description);
    return status;
}

/* ---------------------------------------------------------------- constants */

/* A schema that allows just this list or object. */
static const json_t *schema_of_constant(struct gs_compiler *c, const json_t *value)
{
    json_t *inner = json_is_array(value) ? json_array() : json_object(), *names = json_array();
    const char *key;
    json_t *item;
    for (size_t i = 0; i < json_array_size(value); i++)
        json_array_append_new(inner, json_pack("{s:O}", "const", json_array_get(value, i)));
    json_object_foreach((json_t *)value, key, item)
    {
        json_object_set_new(inner, key, json_pack("{s:O}", "const", item));
        json_array_append_new(names, json_string(key));
    }
    json_int_t n = (json_int_t)json_array_size(value);
    if (json_is_object(value))
        return gs_compile_keep(c, json_pack("{s:s,s:o,s:o,s:b}", "type", "object", "properties", inner,
                                            "required", names, "additionalProperties", 0));
    json_decref(names);
    json_t *made = json_pack("{s:s,s:b,s:I,s:I}", "type", "array", "items", 0, "minItems", n, "maxItems", n);
    if (n > 0 && made)
        json_object_set(made, "prefixItems", inner);
    json_decref(inner);
    return gs_compile_keep(c, made);
}

/* The constants that a schema lists; *made is to be released. */
static const json_t *constants_of(const json_t *schema, json_t **made)
{
    *made = get(schema, "const") ? json_pack("[O]", get(schema, "const")) : NULL;
    return *made ? *made : get(schema, "enum");
}

static gs_status add_scalar(struct gs_compiler *c, struct gs_nfa *nfa, uint32_t start, uint32_t accept,
                            const json_t *value)
{
    struct gs_buffer text = {0};
    gs_status status;
    if (json_is_string(value)) {
        status = gs_spell_string(gs_json_text(value), &text, c->error);
    } else {
        struct gs_writer writer = {.buffer = &text, .status = GS_OK, .error = c->error};
        gs_write_json(&writer, value);
        status = writer.status;
    }
    if (status == GS_OK)
        gs_nfa_bytes(nfa, start, accept, text.data, text.size);
    gs_buffer_free(&text);
    return status;
}

static gs_status holds_all(struct gs_compiler *c, const struct gs_alternative *alternative,
                           const json_t *value, bool *all)
{
    gs_status status = GS_OK;
    *all = true;
    for (size_t i = 0; i < alternative->count && *all && status == GS_OK; i++)
        status = gs_schema_holds(c, alternative->list[i], value, 0, all);
    return status;
}

gs_status gs_compile_literals(struct gs_compiler *c, const struct gs_alternative *alternative, bool *found,
                              uint32_t **rules, size_t *n_rules)
{
    json_t *made = NULL;
    const json_t *constants = NULL;
    for (size_t i = 0; i < alternative->count && !constants; i++) {
        constants = constants_of(alternative->list[i], &made);
        c->source = alternative->list[i];
    }
    *found = constants != NULL;
    if (!constants)
        return GS_OK;
    struct gs_nfa nfa = {.budget = &c->budget, .error = c->error};
    struct gs_dfa dfa = {0};
    uint32_t start = gs_nfa_node(&nfa), accept = gs_nfa_node(&nfa);
    size_t n_scalars = 0;
    gs_status status = GS_OK;
    *rules = gs_arena_alloc_array(&c->arena, json_array_size(constants) + 1, sizeof **rules);
    if (!*rules)
        status = gs_fail_memory(c->error, json_array_size(constants) * sizeof **rules);
    for (size_t i = 0; i < json_array_size(constants) && status == GS_OK; i++) {
        const json_t *value = json_array_get(constants, i);
        bool holds;
        status = holds_all(c, alternative, value, &holds);
        if (status != GS_OK || !holds)
            continue;
        if (!json_is_array(value) && !json_is_object(value)) {
            status = add_scalar(c, &nfa, start, accept, value);
            n_scalars++;
            continue;
        }
        const json_t *schema = schema_of_constant(c, value);
        status = schema ? gs_compile_value(c, &schema, 1, &(*rules)[*n_rules])
                        : gs_fail_memory(c->error, sizeof(json_t));
        *n_rules += status == GS_OK;
    }
    c->source = NULL;
    if (status == GS_OK && n_scalars > 0)
        status = gs_dfa_build(&nfa, start, accept, 1, &dfa);
    if (status == GS_OK && n_scalars > 0)
        status = add_lex(c, &dfa, NULL, &(*rules)[(*n_rules)++]);
    gs_dfa_free(&dfa);
    gs_nfa_free(&nfa);
    json_decref(made);
    return status;
}
