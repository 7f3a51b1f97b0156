#include "chat/schema_grammar.h"

#include "base/status.h"
#include "chat/schema_cache.h"

#include <stdlib.h>
#include <string.h>

gs_status gs_grammar_make(struct gs_schema_budget *budget, size_t cache_bytes, struct gs_grammar **out,
                          struct gs_error *error)
{
    *out = NULL;
    struct gs_grammar *grammar = calloc(1, sizeof *grammar);
    if (!grammar)
        return gs_fail_memory(error, sizeof *grammar);
    pthread_mutex_init(&grammar->lock, NULL);
    grammar->n_holders = 1;
    grammar->cache_bytes = cache_bytes;
    struct gs_dfa any;
    uint32_t index;
    gs_status status = gs_dfa_string(0, GS_UNLIMITED, budget, &any, error);
    for (uint32_t s = 0; status == GS_OK && s < any.n_states; s++)
        any.label[s] = any.label[s] ? GS_LABEL_KEY : 0;
    if (status == GS_OK)
        status = gs_grammar_add_dfa(grammar, &any, &index, error);
    if (status == GS_OK)
        *out = grammar;
    else
        gs_grammar_close(grammar);
    return status;
}

struct gs_grammar *gs_grammar_hold(struct gs_grammar *grammar)
{
    pthread_mutex_lock(&grammar->lock);
    grammar->n_holders++;
    pthread_mutex_unlock(&grammar->lock);
    return grammar;
}

static void free_rule(struct gs_rule *rule)
{
    if (rule->kind == GS_RULE_ARRAY) {
        free(rule->as.array.prefix);
    } else if (rule->kind == GS_RULE_UNION) {
        free(rule->as.alternatives.list);
    } else if (rule->kind == GS_RULE_OBJECT) {
        struct gs_rule_object *object = &rule->as.object;
        free(object->values);
        free(object->required);
        free(object->next_required);
        free(object->required_left);
        free(object->nodes);
        free(object->lists);
        free(object->other_values);
    }
}

void gs_grammar_close(struct gs_grammar *grammar)
{
    if (!grammar)
        return;
    pthread_mutex_lock(&grammar->lock);
    bool last = --grammar->n_holders == 0;
    pthread_mutex_unlock(&grammar->lock);
    if (!last)
        return;
    for (size_t i = 0; i < grammar->n_rules; i++)
        free_rule(&grammar->rules[i]);
    for (size_t i = 0; i < grammar->n_dfas; i++)
        gs_dfa_free(&grammar->dfas[i]);
    gs_mask_cache_free(grammar->cache);
    pthread_mutex_destroy(&grammar->lock);
    free(grammar->rules);
    free(grammar->dfas);
    free(grammar);
}

struct gs_grammar_size gs_grammar_size(const struct gs_grammar *grammar)
{
    return grammar->size;
}

gs_status gs_grammar_add_rule(struct gs_grammar *grammar, enum gs_rule_kind kind, uint32_t *rule,
                              struct gs_error *error)
{
    if (grammar->n_rules == grammar->rules_capacity) {
        size_t capacity = grammar->rules_capacity ? 2 * grammar->rules_capacity : 32;
        struct gs_rule *rules = realloc(grammar->rules, capacity * sizeof *rules);
        if (!rules)
            return gs_fail_memory(error, capacity * sizeof *rules);
        grammar->rules = rules;
        grammar->rules_capacity = capacity;
    }
    memset(&grammar->rules[grammar->n_rules], 0, sizeof *grammar->rules);
    grammar->rules[grammar->n_rules].kind = kind;
    *rule = (uint32_t)grammar->n_rules++;
    return GS_OK;
}

gs_status gs_grammar_add_dfa(struct gs_grammar *grammar, struct gs_dfa *dfa, uint32_t *index,
                             struct gs_error *error)
{
    if (grammar->n_dfas == grammar->dfas_capacity) {
        size_t capacity = grammar->dfas_capacity ? 2 * grammar->dfas_capacity : 16;
        struct gs_dfa *dfas = realloc(grammar->dfas, capacity * sizeof *dfas);
        if (!dfas) {
            gs_dfa_free(dfa);
            return gs_fail_memory(error, capacity * sizeof *dfas);
        }
        grammar->dfas = dfas;
        grammar->dfas_capacity = capacity;
    }
    grammar->dfas[grammar->n_dfas] = *dfa;
    *dfa = (struct gs_dfa){0};
    *index = (uint32_t)grammar->n_dfas++;
    return GS_OK;
}

/* ---------------------------------------------------------------- heights */

static uint32_t above(uint32_t height)
{
    return height == GS_UNREACHABLE ? GS_UNREACHABLE : height + 1;
}

static uint32_t height_of(const struct gs_grammar *grammar, uint32_t rule)
{
    return rule == GS_NO_RULE ? GS_UNREACHABLE : grammar->rules[rule].height;
}

static uint32_t array_height(const struct gs_grammar *grammar, const struct gs_rule_array *array)
{
    uint32_t height = 0;
    if (array->min > array->max)
        return GS_UNREACHABLE;
    for (uint32_t i = 0; i < array->min && i <= array->n_prefix; i++) {
        uint32_t item = height_of(grammar, i < array->n_prefix ? array->prefix[i] : array->items);
        height = item > height ? item : height;
    }
    return above(height);
}

static int compare_heights(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return (a > b) - (a < b);
}

/* The height at which enough properties are there for `min`; `scratch` [n + 1]. */
static uint32_t object_height(const struct gs_grammar *grammar, const struct gs_rule_object *object,
                              uint32_t *scratch)
{
    uint32_t height = 0, n_optional = 0, n_required = object->required_left[0];
    if (object->min > object->max || n_required > object->max)
        return GS_UNREACHABLE;
    for (uint32_t i = 0; i < object->n; i++) {
        uint32_t value = height_of(grammar, object->values[i]);
        if (!object->required[i])
            scratch[n_optional++] = value;
        else if (value > height)
            height = value;
    }
    if (object->min > n_required) {
        uint32_t missing = object->min - n_required, extra = GS_UNREACHABLE;
        if (object->key != GS_NO_RULE && object->min == 1)
            scratch[n_optional++] = object->other_height;
        qsort(scratch, n_optional, sizeof *scratch, compare_heights);
        if (missing <= n_optional)
            extra = scratch[missing - 1];
        height = extra > height ? extra : height;
    }
    return above(height);
}

static uint32_t other_height(const struct gs_grammar *grammar, const struct gs_rule_object *object)
{
    uint32_t least = GS_UNREACHABLE;
    for (uint32_t i = 0; i < GS_N_KEY_KINDS; i++) {
        uint32_t height = height_of(grammar, object->other_values[i]);
        least = height < least ? height : least;
    }
    return least;
}

static uint32_t rule_height(const struct gs_grammar *grammar, struct gs_rule *rule, uint32_t *scratch)
{
    uint32_t least = GS_UNREACHABLE;
    switch (rule->kind) {
    case GS_RULE_LEX:
        return grammar->dfas[rule->as.dfa].n_states ? 1 : GS_UNREACHABLE;
    case GS_RULE_STRING:
        return rule->as.string.min <= rule->as.string.max ? 1 : GS_UNREACHABLE;
    case GS_RULE_ARRAY:
        return array_height(grammar, &rule->as.array);
    case GS_RULE_OBJECT:
        if (rule->as.object.key != GS_NO_RULE)
            rule->as.object.other_height = other_height(grammar, &rule->as.object);
        return object_height(grammar, &rule->as.object, scratch);
    case GS_RULE_UNION:
        for (uint32_t i = 0; i < rule->as.alternatives.count; i++) {
            uint32_t height = height_of(grammar, rule->as.alternatives.list[i]);
            least = height < least ? height : least;
        }
        return least;
    }
    return GS_UNREACHABLE;
}

static size_t rule_size(const struct gs_rule *rule)
{
    if (rule->kind == GS_RULE_ARRAY)
        return 1 + rule->as.array.n_prefix;
    if (rule->kind == GS_RULE_UNION)
        return 1 + rule->as.alternatives.count;
    return rule->kind == GS_RULE_OBJECT ? 2 + 2 * rule->as.object.n + GS_N_KEY_KINDS : 1;
}

/* From "none can be satisfied" downwards until nothing changes: the smallest heights. */
static gs_status find_heights(struct gs_grammar *grammar, uint32_t *scratch, struct gs_schema_budget *budget,
                              struct gs_error *error)
{
    gs_status status = GS_OK;
    for (size_t i = 0; i < grammar->n_rules; i++)
        grammar->rules[i].height = GS_UNREACHABLE;
    for (bool changed = true; changed && status == GS_OK;) {
        changed = false;
        for (size_t i = grammar->n_rules; i-- > 0 && status == GS_OK;) {
            struct gs_rule *rule = &grammar->rules[i];
            uint32_t height = rule_height(grammar, rule, scratch);
            changed |= height != rule->height;
            rule->height = height;
            status = gs_budget_work(budget, rule_size(rule), error);
        }
    }
    return status;
}

/* A second automaton for the keys of the least high values. */
static gs_status add_low_key(struct gs_grammar *grammar, uint32_t rule, struct gs_schema_budget *budget,
                             struct gs_error *error)
{
    const struct gs_rule_object *object = &grammar->rules[rule].as.object;
    bool keep[256] = {false};
    struct gs_dfa dfa;
    uint32_t index, key;
    for (uint32_t i = 0; i < GS_N_KEY_KINDS; i++)
        keep[i | GS_LABEL_KEY] = height_of(grammar, object->other_values[i]) == object->low_height;
    gs_status status = gs_dfa_copy(&grammar->dfas[grammar->rules[object->key].as.dfa], budget, &dfa, error);
    if (status == GS_OK)
        status = gs_dfa_keep(&dfa, keep, error);
    if (status == GS_OK)
        status = gs_grammar_add_dfa(grammar, &dfa, &index, error);
    else
        gs_dfa_free(&dfa);
    if (status == GS_OK)
        status = gs_grammar_add_rule(grammar, GS_RULE_LEX, &key, error);
    if (status != GS_OK)
        return status;
    grammar->rules[key].as.dfa = index;
    grammar->rules[key].height = 1;
    grammar->rules[rule].as.object.low_key = key;
    return GS_OK;
}

/* Keys whose value cannot be satisfied go; the room that the others need is that of the highest. */
static gs_status trim_keys(struct gs_grammar *grammar, uint32_t rule, struct gs_schema_budget *budget,
                           struct gs_error *error)
{
    struct gs_rule_object *object = &grammar->rules[rule].as.object;
    bool keep[256] = {false}, any = false;
    if (object->key == GS_NO_RULE)
        return GS_OK;
    object->low_height = object->other_height; /* so far that of the lowest */
    object->other_height = 0;
    for (uint32_t i = 0; i < GS_N_KEY_KINDS; i++) {
        uint32_t height = height_of(grammar, object->other_values[i]);
        if (height == GS_UNREACHABLE)
            continue;
        any = keep[i | GS_LABEL_KEY] = true;
        object->other_height = height > object->other_height ? height : object->other_height;
    }
    struct gs_rule *key = &grammar->rules[object->key];
    if (key->kind == GS_RULE_LEX) {
        struct gs_dfa *dfa = &grammar->dfas[key->as.dfa];
        gs_status status = gs_dfa_keep(dfa, keep, error);
        if (status != GS_OK)
            return status;
        any = dfa->n_states > 0;
    }
    if (!any)
        object->key = GS_NO_RULE;
    bool must = object->min > object->required_left[0];
    return any && must && object->low_height < object->other_height
               ? add_low_key(grammar, rule, budget, error)
               : GS_OK;
}

static void measure(struct gs_grammar *grammar)
{
    struct gs_grammar_size *size = &grammar->size;
    size->n_rules = grammar->n_rules;
    size->bytes = sizeof *grammar + grammar->rules_capacity * sizeof *grammar->rules;
    for (size_t i = 0; i < grammar->n_dfas; i++) {
        const struct gs_dfa *dfa = &grammar->dfas[i];
        size->n_states += dfa->n_states;
        size->bytes += sizeof *dfa + dfa->n_states * (2 * (size_t)dfa->n_classes + 2);
    }
    for (size_t i = 0; i < grammar->n_rules; i++) {
        const struct gs_rule *rule = &grammar->rules[i];
        if (rule->kind == GS_RULE_OBJECT) {
            size->n_states += rule->as.object.n_nodes;
            size->bytes += rule->as.object.n_nodes * (sizeof *rule->as.object.nodes + sizeof(uint32_t));
        }
        size->bytes += rule_size(rule) * sizeof(uint32_t);
    }
}

gs_status gs_grammar_finish(struct gs_grammar *grammar, uint32_t root, size_t max_depth,
                            struct gs_schema_budget *budget, struct gs_error *error)
{
    uint32_t longest = 0;
    for (size_t i = 0; i < grammar->n_rules; i++)
        if (grammar->rules[i].kind == GS_RULE_OBJECT && grammar->rules[i].as.object.n > longest)
            longest = grammar->rules[i].as.object.n;
    uint32_t *scratch = malloc((longest + 2) * sizeof *scratch);
    gs_status status = scratch ? find_heights(grammar, scratch, budget, error)
                               : gs_fail_memory(error, (longest + 2) * sizeof *scratch);
    free(scratch);
    for (uint32_t i = 0; i < grammar->n_rules && status == GS_OK; i++)
        if (grammar->rules[i].kind == GS_RULE_OBJECT)
            status = trim_keys(grammar, i, budget, error);
    if (status != GS_OK)
        return status;
    grammar->root = root;
    grammar->max_depth = (uint32_t)max_depth;
    if (grammar->rules[root].height == GS_UNREACHABLE)
        return gs_fail(error, GS_UNSUPPORTED, "#: no value can satisfy this schema");
    if (grammar->rules[root].height > max_depth)
        return gs_fail(error, GS_UNSUPPORTED,
                       "#: values are nested at least %u deep; at most %zu are allowed",
                       (unsigned)grammar->rules[root].height, max_depth);
    measure(grammar);
    return GS_OK;
}

/* ---------------------------------------------------------------- names */

struct name {
    struct gs_text text;
    uint32_t index;
};

struct name_range {
    uint32_t begin, end, depth;
};

static int compare_names(const void *x, const void *y)
{
    const struct gs_text *a = &((const struct name *)x)->text, *b = &((const struct name *)y)->text;
    size_t common = a->size < b->size ? a->size : b->size;
    int order = memcmp(a->bytes, b->bytes, common);
    return order ? order : (a->size > b->size) - (a->size < b->size);
}

/* Gives node `at` its list and its children, which are appended to the nodes. */
static void fill_node(struct gs_rule_object *object, const struct name *names, struct name_range *ranges,
                      uint32_t at, uint32_t *n_lists)
{
    struct gs_key_node *node = &object->nodes[at];
    const struct name_range range = ranges[at];
    node->list = *n_lists;
    node->n_list = range.end - range.begin;
    for (uint32_t i = range.begin; i < range.end; i++)
        object->lists[(*n_lists)++] = names[i].index;
    qsort(object->lists + node->list, node->n_list, sizeof *object->lists, compare_heights);
    node->first_child = object->n_nodes;
    for (uint32_t i = range.begin; i < range.end;) {
        uint32_t begin = i;
        if (names[i].text.size <= range.depth) {
            i++;
            continue;
        }
        char byte = names[i].text.bytes[range.depth];
        while (i < range.end && names[i].text.bytes[range.depth] == byte)
            i++;
        ranges[object->n_nodes] = (struct name_range){begin, i, range.depth + 1};
        object->nodes[object->n_nodes++] = (struct gs_key_node){.byte = (uint8_t)byte};
        node->n_children++;
    }
}

gs_status gs_object_index(struct gs_rule_object *object, struct gs_text *texts,
                          struct gs_schema_budget *budget, struct gs_error *error)
{
    size_t n_bytes = 1;
    for (uint32_t i = 0; i < object->n; i++)
        n_bytes += texts[i].size;
    gs_status status = gs_budget_states(budget, n_bytes, error);
    if (status != GS_OK)
        return status;
    struct name *names = malloc((object->n + 1) * sizeof *names);
    struct name_range *ranges = malloc(n_bytes * sizeof *ranges);
    object->nodes = malloc(n_bytes * sizeof *object->nodes);
    object->lists = malloc((n_bytes + object->n) * sizeof *object->lists);
    if (names && ranges && object->nodes && object->lists) {
        uint32_t n_lists = 0;
        for (uint32_t i = 0; i < object->n; i++)
            names[i] = (struct name){texts[i], i};
        qsort(names, object->n, sizeof *names, compare_names);
        ranges[0] = (struct name_range){0, object->n, 0};
        object->nodes[0] = (struct gs_key_node){0};
        object->n_nodes = 1;
        for (uint32_t at = 0; at < object->n_nodes; at++)
            fill_node(object, names, ranges, at, &n_lists);
    } else {
        status = gs_fail_memory(error, n_bytes * sizeof *object->nodes);
    }
    free(names);
    free(ranges);
    return status;
}
