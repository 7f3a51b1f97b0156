/*
 * Rules of objects. Known properties come in the order in which the schemas name them, then other keys; each
 * key's value has to satisfy every schema that speaks of it.
 */
#include "base/status.h"
#include "chat/json_text.h"
#include "chat/schema_compile.h"

#include <stdlib.h>
#include <string.h>

#define LABEL_KNOWN 0x40u /* of keys that are known properties */

struct builder {
    struct gs_compiler *c;
    const struct gs_alternative *all;
    json_t *names; /* object: name -> true if required; in order */
    struct {
        const char *text;
        const json_t *schema; /* that has it */
        size_t index;         /* of its automaton in the grammar */
    } patterns[GS_MAX_PATTERNS];
    size_t n_patterns;
    bool too_many_patterns;
    const json_t **scratch; /* for one conjunction */
    struct gs_rule_object object;
};

static json_t *get(const json_t *schema, const char *key)
{
    return json_object_get(schema, key);
}

static gs_status find_names(struct builder *b)
{
    const char *key;
    json_t *value;
    for (size_t i = 0; i < b->all->count; i++)
        json_object_foreach(get(b->all->list[i], "properties"), key, value)
        {
            if (!get(b->names, key) && json_object_set_new(b->names, key, json_false()) != 0)
                return gs_fail_memory(b->c->error, sizeof(json_t));
        }
    for (size_t i = 0; i < b->all->count; i++) {
        const json_t *required = get(b->all->list[i], "required");
        for (size_t k = 0; k < json_array_size(required); k++) {
            const json_t *name = json_array_get(required, k);
            if (json_object_set_new(b->names, json_string_value(name), json_true()) != 0)
                return gs_fail_memory(b->c->error, sizeof(json_t));
        }
    }
    size_t n = json_object_size(b->names);
    if (n > GS_SCHEMA_MAX_PROPERTIES)
        return gs_fail(b->c->error, GS_UNSUPPORTED, "too complex: an object of more than %d properties",
                       GS_SCHEMA_MAX_PROPERTIES);
    b->object.n = (uint32_t)n;
    return gs_budget_work(&b->c->budget, n * (b->all->count + 1), b->c->error);
}

static gs_status find_patterns(struct builder *b)
{
    const char *key;
    json_t *value;
    gs_status status = GS_OK;
    for (size_t i = 0; i < b->all->count; i++)
        json_object_foreach(get(b->all->list[i], "patternProperties"), key, value)
        {
            const struct gs_dfa *dfa = NULL;
            size_t k = 0;
            if (status == GS_OK)
                status =
                    gs_compile_pattern(b->c, b->all->list[i], "patternProperties", gs_text_of(key), &dfa);
            while (k < b->n_patterns && strcmp(b->patterns[k].text, key) != 0)
                k++;
            if (!dfa || k < b->n_patterns)
                continue;
            if (b->n_patterns == GS_MAX_PATTERNS) {
                gs_compile_report(b->c, b->all->list[i], "patternProperties");
                b->too_many_patterns = true;
                continue;
            }
            b->patterns[b->n_patterns].text = key;
            b->patterns[b->n_patterns].schema = b->all->list[i];
            b->patterns[b->n_patterns++].index = (size_t)(dfa - b->c->grammar->dfas);
        }
    return status;
}

/* Which patterns a name matches, a bit for each. */
static gs_status match(struct builder *b, const char *name, unsigned *matched)
{
    struct gs_buffer spelled = {0};
    gs_status status = gs_spell_string(gs_text_of(name), &spelled, b->c->error);
    *matched = 0;
    for (size_t k = 0; k < b->n_patterns && status == GS_OK; k++)
        if (gs_dfa_run(&b->c->grammar->dfas[b->patterns[k].index], spelled.data, spelled.size))
            *matched |= 1u << k;
    gs_buffer_free(&spelled);
    return status;
}

/* The rule of a key's value: of a known name, or (name NULL) of any other key that matches these patterns. */
static gs_status compile_property(struct builder *b, const char *name, unsigned matched, uint32_t *rule)
{
    size_t count = 0;
    *rule = GS_NO_RULE;
    for (size_t i = 0; i < b->all->count; i++) {
        const json_t *schema = b->all->list[i], *known = name ? get(get(schema, "properties"), name) : NULL;
        bool evaluated = known != NULL;
        if (known)
            b->scratch[count++] = known;
        for (size_t k = 0; k < b->n_patterns; k++) {
            const json_t *inner = get(get(schema, "patternProperties"), b->patterns[k].text);
            if (inner && matched >> k & 1) {
                b->scratch[count++] = inner;
                evaluated = true;
            }
        }
        const json_t *rest = get(schema, "additionalProperties");
        if (!evaluated && rest)
            b->scratch[count++] = rest;
    }
    for (size_t i = 0; i < count; i++)
        if (json_is_false(b->scratch[i]))
            return GS_OK;
    return gs_compile_value(b->c, b->scratch, count, rule);
}

/* Does every propertyNames allow it? */
static gs_status name_allowed(struct builder *b, const char *name, bool *allowed)
{
    gs_status status = GS_OK;
    json_t *text = json_string(name);
    *allowed = true;
    for (size_t i = 0; i < b->all->count && *allowed && status == GS_OK; i++)
        if (get(b->all->list[i], "propertyNames"))
            status = gs_schema_holds(b->c, get(b->all->list[i], "propertyNames"), text, 0, allowed);
    json_decref(text);
    return status;
}

static gs_status compile_known(struct builder *b)
{
    struct gs_rule_object *object = &b->object;
    struct gs_text *texts = gs_arena_alloc_array(&b->c->arena, object->n + 1, sizeof *texts);
    object->values = malloc((object->n + 1) * sizeof *object->values);
    object->required = calloc(object->n + 1, sizeof *object->required);
    object->next_required = malloc((object->n + 1) * sizeof(uint32_t));
    object->required_left = malloc((object->n + 1) * sizeof(uint32_t));
    if (!texts || !object->values || !object->required || !object->next_required || !object->required_left)
        return gs_fail_memory(b->c->error, (object->n + 1) * sizeof *texts);
    gs_status status = GS_OK;
    const char *name;
    json_t *required;
    size_t i = 0;
    json_object_foreach(b->names, name, required)
    {
        struct gs_buffer spelled = {0};
        unsigned matched = 0;
        bool allowed = true;
        object->values[i] = GS_NO_RULE;
        if (status == GS_OK)
            status = match(b, name, &matched);
        if (status == GS_OK)
            status = name_allowed(b, name, &allowed);
        if (status == GS_OK && allowed)
            status = compile_property(b, name, matched, &object->values[i]);
        if (status == GS_OK)
            status = gs_spell_string(gs_text_of(name), &spelled, b->c->error);
        if (status == GS_OK) {
            char *copy = gs_arena_copy(&b->c->arena, spelled.data, spelled.size);
            texts[i] = (struct gs_text){copy, spelled.size};
            status = copy ? GS_OK : gs_fail_memory(b->c->error, spelled.size);
        }
        object->required[i++] = json_is_true(required);
        gs_buffer_free(&spelled);
    }
    if (status != GS_OK)
        return status;
    object->next_required[object->n] = object->n;
    object->required_left[object->n] = 0;
    for (uint32_t k = object->n; k-- > 0;) {
        object->next_required[k] = object->required[k] ? k : object->next_required[k + 1];
        object->required_left[k] = object->required_left[k + 1] + object->required[k];
    }
    return gs_object_index(object, texts, &b->c->budget, b->c->error);
}

/*
 * Are keys beyond the known ones generated? An object that names properties and says nothing of others stays
 * with those: the others would be valid, but nobody asked for them.
 */
static bool is_open(const struct builder *b)
{
    bool asked = b->n_patterns > 0, names = false;
    for (size_t i = 0; i < b->all->count; i++) {
        const json_t *schema = b->all->list[i], *rest = get(schema, "additionalProperties");
        asked |= rest && !json_is_false(rest);
        names |= json_object_size(get(schema, "properties")) > 0 || rest || get(schema, "patternProperties");
    }
    return (asked || !names) && !b->too_many_patterns;
}

/* *dfa becomes its product with `other`. */
static gs_status combine(struct builder *b, struct gs_dfa *dfa, const struct gs_dfa *other,
                         enum gs_dfa_mode mode)
{
    struct gs_dfa out;
    gs_status status = gs_dfa_product(dfa, other, mode, &b->c->budget, &out, b->c->error);
    gs_dfa_free(dfa);
    *dfa = out;
    return status;
}

static void relabel(struct gs_dfa *dfa, uint8_t label)
{
    for (size_t s = 0; s < dfa->n_states; s++)
        dfa->label[s] = dfa->label[s] ? label : 0;
}

/* Adds another automaton's texts under a label of their own. */
static gs_status add_label(struct builder *b, struct gs_dfa *dfa, size_t index, uint8_t label)
{
    struct gs_dfa copy;
    gs_status status = gs_dfa_copy(&b->c->grammar->dfas[index], &b->c->budget, &copy, b->c->error);
    if (status == GS_OK) {
        relabel(&copy, label);
        status = combine(b, dfa, &copy, GS_DFA_UNION);
    }
    gs_dfa_free(&copy);
    return status;
}

/* The known names as an automaton. */
static gs_status add_known(struct builder *b, struct gs_dfa *dfa)
{
    struct gs_nfa nfa = {.budget = &b->c->budget, .error = b->c->error};
    struct gs_dfa names = {0};
    uint32_t start = gs_nfa_node(&nfa), accept = gs_nfa_node(&nfa);
    const char *name;
    json_t *required;
    gs_status status = GS_OK;
    json_object_foreach(b->names, name, required)
    {
        struct gs_buffer spelled = {0};
        if (status == GS_OK)
            status = gs_spell_string(gs_text_of(name), &spelled, b->c->error);
        if (status == GS_OK)
            gs_nfa_bytes(&nfa, start, accept, spelled.data, spelled.size);
        gs_buffer_free(&spelled);
    }
    if (status == GS_OK)
        status = gs_dfa_build(&nfa, start, accept, LABEL_KNOWN, &names);
    if (status == GS_OK)
        status = combine(b, dfa, &names, GS_DFA_UNION);
    gs_dfa_free(&names);
    gs_nfa_free(&nfa);
    return status;
}

/* Keys that propertyNames allows: its own keywords about strings; the rest is reported. */
static gs_status add_property_names(struct builder *b, struct gs_dfa *dfa)
{
    static const char *const known[] = {"type",   "minLength",   "maxLength", "pattern",
                                        "format", "description", "title",     "$comment"};
    gs_status status = GS_OK;
    for (size_t i = 0; i < b->all->count && status == GS_OK; i++) {
        const json_t *names = get(b->all->list[i], "propertyNames");
        struct gs_dfa allowed = {0};
        size_t n_known = 0;
        if (!names || json_is_true(names))
            continue;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            n_known += get(names, known[k]) != NULL;
        unsigned types = 0;
        if (json_is_object(names))
            status = gs_schema_types(b->c, names, &types);
        if (status == GS_OK && json_is_object(names) && n_known < json_object_size(names))
            gs_compile_report(b->c, b->all->list[i], "propertyNames");
        if (status == GS_OK && (types & GS_TYPE_STRING))
            status = gs_compile_string_dfa(b->c, &names, 1, &allowed);
        if (status == GS_OK)
            status = combine(b, dfa, &allowed, GS_DFA_BOTH);
        gs_dfa_free(&allowed);
    }
    return status;
}

static gs_status compile_key(struct builder *b)
{
    struct gs_dfa dfa;
    bool names_limited = false;
    gs_status status = GS_OK;
    for (size_t i = 0; i < b->all->count; i++)
        names_limited |=
            get(b->all->list[i], "propertyNames") && !json_is_true(get(b->all->list[i], "propertyNames"));
    if (b->object.n == 0 && b->n_patterns == 0 && !names_limited) {
        status = gs_grammar_add_rule(b->c->grammar, GS_RULE_STRING, &b->object.key, b->c->error);
        if (status == GS_OK)
            b->c->grammar->rules[b->object.key].as.string.max = GS_UNLIMITED;
        return status;
    }
    status = gs_dfa_string(0, GS_UNLIMITED, &b->c->budget, &dfa, b->c->error);
    if (status == GS_OK)
        relabel(&dfa, GS_LABEL_KEY);
    for (size_t k = 0; k < b->n_patterns && status == GS_OK; k++)
        status = add_label(b, &dfa, b->patterns[k].index, (uint8_t)(1u << k));
    if (status == GS_OK && b->object.n > 0)
        status = add_known(b, &dfa);
    if (status == GS_OK)
        status = add_property_names(b, &dfa);
    uint32_t index;
    if (status == GS_OK)
        status = gs_grammar_add_dfa(b->c->grammar, &dfa, &index, b->c->error);
    if (status == GS_OK)
        status = gs_grammar_add_rule(b->c->grammar, GS_RULE_LEX, &b->object.key, b->c->error);
    if (status == GS_OK)
        b->c->grammar->rules[b->object.key].as.dfa = index;
    gs_dfa_free(&dfa);
    return status;
}

/* Kinds of keys that no key is of have no values: heights are to be those of what can come. */
static void drop_absent_kinds(struct builder *b)
{
    struct gs_rule_object *object = &b->object;
    const struct gs_rule *key = &b->c->grammar->rules[object->key];
    bool there[GS_N_KEY_KINDS] = {false}, any = false;
    if (key->kind != GS_RULE_LEX)
        return;
    const struct gs_dfa *dfa = &b->c->grammar->dfas[key->as.dfa];
    for (size_t s = 0; s < dfa->n_states; s++)
        if ((dfa->label[s] & GS_LABEL_KEY) && !(dfa->label[s] & LABEL_KNOWN))
            there[dfa->label[s] & (GS_N_KEY_KINDS - 1)] = true;
    for (size_t i = 0; i < GS_N_KEY_KINDS; i++) {
        object->other_values[i] = there[i] ? object->other_values[i] : GS_NO_RULE;
        any |= object->other_values[i] != GS_NO_RULE;
    }
    if (!any)
        object->key = GS_NO_RULE;
}

static gs_status compile_others(struct builder *b)
{
    struct gs_rule_object *object = &b->object;
    object->other_values = malloc(GS_N_KEY_KINDS * sizeof *object->other_values);
    if (!object->other_values)
        return gs_fail_memory(b->c->error, GS_N_KEY_KINDS * sizeof *object->other_values);
    bool asked = false, any = false, bare = true;
    for (size_t i = 0; i < b->all->count; i++) {
        const json_t *rest = get(b->all->list[i], "additionalProperties");
        asked |= rest && !json_is_false(rest);
        bare &= json_object_size(get(b->all->list[i], "properties")) == 0 &&
                !get(b->all->list[i], "patternProperties");
    }
    gs_status status = GS_OK;
    for (unsigned matched = 0; matched < GS_N_KEY_KINDS; matched++) {
        object->other_values[matched] = GS_NO_RULE;
        if (matched >> b->n_patterns || status != GS_OK || (matched == 0 && !asked && !bare))
            continue;
        status = compile_property(b, NULL, matched, &object->other_values[matched]);
        any |= object->other_values[matched] != GS_NO_RULE;
    }
    if (status != GS_OK || !any)
        return status;
    status = compile_key(b);
    if (status == GS_OK)
        drop_absent_kinds(b);
    return status;
}

static void read_counts(struct builder *b)
{
    struct gs_rule_object *object = &b->object;
    const json_t *who = NULL;
    object->max = GS_UNLIMITED;
    for (size_t i = 0; i < b->all->count; i++) {
        uint32_t value;
        if (gs_schema_count(b->all->list[i], "minProperties", &value) && value > object->min) {
            object->min = value;
            who = b->all->list[i];
        }
        if (gs_schema_count(b->all->list[i], "maxProperties", &value) && value < object->max)
            object->max = value;
    }
    /* Keys that are not known could repeat one another, and then count once only. */
    if (object->key != GS_NO_RULE && object->min > 1 && object->min > object->required_left[0]) {
        gs_compile_report(b->c, who, "minProperties");
        object->min = 1;
    }
    object->counted = object->min > object->required_left[0] || object->max < object->n ||
                      (object->key != GS_NO_RULE && object->max != GS_UNLIMITED);
}

gs_status gs_compile_object(struct gs_compiler *c, const struct gs_alternative *alternative, uint32_t *rule)
{
    struct builder b = {.c = c,
                        .all = alternative,
                        .names = json_object(),
                        .object = {.key = GS_NO_RULE, .low_key = GS_NO_RULE}};
    size_t n_scratch = alternative->count * (GS_MAX_PATTERNS + 2) + 1;
    b.scratch = gs_arena_alloc_array(&c->arena, n_scratch, sizeof *b.scratch);
    gs_status status = b.names && b.scratch ? GS_OK : gs_fail_memory(c->error, n_scratch * sizeof *b.scratch);
    if (status == GS_OK)
        status = find_names(&b);
    if (status == GS_OK)
        status = find_patterns(&b);
    if (status == GS_OK)
        status = compile_known(&b);
    if (status == GS_OK && is_open(&b))
        status = compile_others(&b);
    if (status == GS_OK) {
        read_counts(&b);
        status = gs_grammar_add_rule(c->grammar, GS_RULE_OBJECT, rule, c->error);
    }
    if (status == GS_OK) {
        c->grammar->rules[*rule].as.object = b.object;
    } else {
        free(b.object.values);
        free(b.object.required);
        free(b.object.next_required);
        free(b.object.required_left);
        free(b.object.nodes);
        free(b.object.lists);
        free(b.object.other_values);
    }
    json_decref(b.names);
    return status;
}
