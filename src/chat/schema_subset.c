/* Nondeterministic -> deterministic: the subset construction, paid for step by step. */
#include "base/hash.h"
#include "base/status.h"
#include "chat/schema_automaton.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct list {
    uint32_t *items;
    size_t count, capacity;
};

struct bucket_entry {
    uint32_t node, next;
};

struct subset {
    struct gs_nfa *nfa;
    struct gs_error *error;
    uint32_t accept;
    bool has_end;
    uint32_t *stamp; /* [n_nodes]: the closure that saw a node last */
    uint32_t n_closures;
    struct list stack, closed; /* of the closure under way */
    struct list pool;          /* the nodes of all states, one set after the other */
    struct list begins;        /* [n_states + 1]: where in the pool */
    struct list slots;         /* hash table of states, a power of two */
    struct list next;          /* [n_states][n_classes] */
    struct list accepting;     /* [n_states] */
    struct bucket_entry *bucket;
    size_t n_bucket, bucket_capacity;
    uint32_t heads[256]; /* of each class, into the bucket */
    uint32_t n_classes;
    uint8_t class_of[256];
};

static gs_status push(struct list *list, uint32_t item, struct gs_error *error)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 64;
        uint32_t *items = realloc(list->items, capacity * sizeof *items);
        if (!items)
            return gs_fail_memory(error, capacity * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = item;
    return GS_OK;
}

static void find_classes(struct subset *s)
{
    bool cut[257] = {true};
    for (size_t i = 0; i < s->nfa->n_edges; i++) {
        const struct gs_nfa_edge *edge = &s->nfa->edges[i];
        s->has_end |= edge->kind == GS_NFA_END;
        if (edge->kind == GS_NFA_BYTES)
            cut[edge->first] = cut[edge->last + 1] = true;
    }
    uint32_t class = 0;
    for (int b = 0; b < 256; b++) {
        class += b > 0 && cut[b];
        s->class_of[b] = (uint8_t) class;
    }
    s->n_classes = class + 1;
}

static int compare_nodes(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return (a > b) - (a < b);
}

static gs_status visit(struct subset *s, uint32_t node)
{
    if (s->stamp[node] == s->n_closures)
        return GS_OK;
    s->stamp[node] = s->n_closures;
    gs_status status = push(&s->stack, node, s->error);
    return status == GS_OK ? push(&s->closed, node, s->error) : status;
}

static void begin_closure(struct subset *s)
{
    s->n_closures++;
    s->stack.count = s->closed.count = 0;
}

/* s->closed: what the visited nodes reach without a byte. */
static gs_status close_over(struct subset *s, enum gs_nfa_edge_kind also)
{
    gs_status status = GS_OK;
    while (status == GS_OK && s->stack.count > 0) {
        uint32_t node = s->stack.items[--s->stack.count];
        size_t n = 1;
        for (uint32_t e = s->nfa->nodes[node]; e != NONE && status == GS_OK; e = s->nfa->edges[e].next, n++)
            if (s->nfa->edges[e].kind == GS_NFA_EMPTY || s->nfa->edges[e].kind == also)
                status = visit(s, s->nfa->edges[e].to);
        if (status == GS_OK)
            status = gs_budget_work(s->nfa->budget, n, s->error);
    }
    return status;
}

/* The state of the nodes in s->closed, a new one if need be. */
static gs_status intern(struct subset *s, uint32_t *state)
{
    qsort(s->closed.items, s->closed.count, sizeof *s->closed.items, compare_nodes);
    size_t bytes = s->closed.count * sizeof *s->closed.items, mask = s->slots.capacity - 1;
    size_t slot = (size_t)gs_hash_bytes(s->closed.items, bytes) & mask;
    for (; s->slots.items[slot] != NONE; slot = (slot + 1) & mask) {
        uint32_t other = s->slots.items[slot], begin = s->begins.items[other];
        if (s->begins.items[other + 1] - begin == s->closed.count &&
            memcmp(s->pool.items + begin, s->closed.items, bytes) == 0) {
            *state = other;
            return GS_OK;
        }
    }
    size_t n_states = s->begins.count - 1;
    if (n_states >= GS_DFA_MAX_STATES || (n_states + 1) * s->n_classes > GS_DFA_MAX_CELLS)
        return gs_fail(s->error, GS_UNSUPPORTED, "too complex: its automaton has too many states");
    gs_status status = gs_budget_states(s->nfa->budget, 1, s->error);
    for (size_t i = 0; i < s->closed.count && status == GS_OK; i++)
        status = push(&s->pool, s->closed.items[i], s->error);
    if (status == GS_OK && s->pool.count > UINT32_MAX / 2)
        status = gs_fail(s->error, GS_UNSUPPORTED, "too complex: its automaton has too many states");
    if (status == GS_OK)
        status = push(&s->begins, (uint32_t)s->pool.count, s->error);
    for (uint32_t c = 0; c < s->n_classes && status == GS_OK; c++)
        status = push(&s->next, NONE, s->error);
    *state = (uint32_t)n_states;
    s->slots.items[slot] = *state;
    return status;
}

static gs_status fill_bucket(struct subset *s, uint32_t node, uint8_t first, uint8_t last)
{
    for (uint32_t c = s->class_of[first]; c <= s->class_of[last]; c++) {
        if (s->n_bucket == s->bucket_capacity) {
            size_t capacity = s->bucket_capacity ? 2 * s->bucket_capacity : 256;
            struct bucket_entry *bucket = realloc(s->bucket, capacity * sizeof *bucket);
            if (!bucket)
                return gs_fail_memory(s->error, capacity * sizeof *bucket);
            s->bucket = bucket;
            s->bucket_capacity = capacity;
        }
        s->bucket[s->n_bucket] = (struct bucket_entry){node, s->heads[c]};
        s->heads[c] = (uint32_t)s->n_bucket++;
    }
    return gs_budget_work(s->nfa->budget, 1 + (size_t)(s->class_of[last] - s->class_of[first]), s->error);
}

/* Does the text may end in this state? */
static gs_status find_accepting(struct subset *s, uint32_t state)
{
    begin_closure(s);
    gs_status status = GS_OK;
    for (uint32_t i = s->begins.items[state]; i < s->begins.items[state + 1] && status == GS_OK; i++)
        status = visit(s, s->pool.items[i]);
    if (status == GS_OK && s->has_end)
        status = close_over(s, GS_NFA_END);
    return status == GS_OK ? push(&s->accepting, s->stamp[s->accept] == s->n_closures, s->error) : status;
}

static gs_status expand(struct subset *s, uint32_t state)
{
    gs_status status = find_accepting(s, state);
    s->n_bucket = 0;
    memset(s->heads, 0xFF, sizeof s->heads);
    for (uint32_t i = s->begins.items[state]; i < s->begins.items[state + 1] && status == GS_OK; i++)
        for (uint32_t e = s->nfa->nodes[s->pool.items[i]]; e != NONE && status == GS_OK;
             e = s->nfa->edges[e].next)
            if (s->nfa->edges[e].kind == GS_NFA_BYTES)
                status = fill_bucket(s, s->nfa->edges[e].to, s->nfa->edges[e].first, s->nfa->edges[e].last);
    for (uint32_t c = 0; c < s->n_classes && status == GS_OK; c++) {
        if (s->heads[c] == NONE)
            continue;
        begin_closure(s);
        for (uint32_t e = s->heads[c]; e != NONE && status == GS_OK; e = s->bucket[e].next)
            status = visit(s, s->bucket[e].node);
        uint32_t target = 0;
        if (status == GS_OK)
            status = close_over(s, GS_NFA_EMPTY);
        if (status == GS_OK)
            status = intern(s, &target);
        if (status == GS_OK)
            s->next.items[state * s->n_classes + c] = target;
    }
    return status;
}

static gs_status make_slots(struct subset *s)
{
    s->slots.capacity = (size_t)1 << 17; /* more than GS_DFA_MAX_STATES */
    s->slots.items = malloc(s->slots.capacity * sizeof *s->slots.items);
    s->stamp = calloc(s->nfa->n_nodes, sizeof *s->stamp);
    if (!s->slots.items || !s->stamp)
        return gs_fail_memory(s->error, s->slots.capacity * sizeof *s->slots.items);
    memset(s->slots.items, 0xFF, s->slots.capacity * sizeof *s->slots.items);
    return push(&s->begins, 0, s->error);
}

static gs_status output(const struct subset *s, uint8_t label, struct gs_dfa *dfa)
{
    size_t n_states = s->begins.count - 1;
    gs_status status = gs_dfa_alloc(dfa, n_states, s->n_classes, s->error);
    if (status != GS_OK)
        return status;
    memcpy(dfa->class_of, s->class_of, sizeof dfa->class_of);
    for (size_t i = 0; i < n_states * s->n_classes; i++)
        dfa->next[i] = s->next.items[i] == NONE ? GS_DFA_DEAD : (uint16_t)s->next.items[i];
    for (size_t i = 0; i < n_states; i++)
        dfa->label[i] = s->accepting.items[i] ? label : 0;
    return gs_dfa_prune(dfa, s->error);
}

gs_status gs_dfa_build(struct gs_nfa *nfa, uint32_t start, uint32_t accept, uint8_t label, struct gs_dfa *dfa)
{
    *dfa = (struct gs_dfa){0};
    if (nfa->status != GS_OK)
        return nfa->status;
    struct subset s = {.nfa = nfa, .error = nfa->error, .accept = accept};
    find_classes(&s);
    gs_status status = make_slots(&s);
    uint32_t first;
    if (status == GS_OK) {
        begin_closure(&s);
        status = visit(&s, start);
    }
    if (status == GS_OK)
        status = close_over(&s, GS_NFA_BEGIN);
    if (status == GS_OK)
        status = intern(&s, &first);
    for (uint32_t state = 0; status == GS_OK && state + 1 < s.begins.count; state++)
        status = expand(&s, state);
    if (status == GS_OK)
        status = output(&s, label, dfa);
    free(s.stamp);
    free(s.stack.items);
    free(s.closed.items);
    free(s.pool.items);
    free(s.begins.items);
    free(s.slots.items);
    free(s.next.items);
    free(s.accepting.items);
    free(s.bucket);
    nfa->status = status;
    return status;
}
