/* Deterministic automata: pruning, products, quotation marks. */
#include "base/hash.h"
#include "base/status.h"
#include "chat/schema_automaton.h"

#include <stdlib.h>
#include <string.h>

void gs_dfa_free(struct gs_dfa *dfa)
{
    free(dfa->next);
    free(dfa->label);
    free(dfa->final);
    *dfa = (struct gs_dfa){0};
}

gs_status gs_dfa_alloc(struct gs_dfa *dfa, size_t n_states, size_t n_classes, struct gs_error *error)
{
    *dfa = (struct gs_dfa){.n_states = (uint32_t)n_states, .n_classes = (uint32_t)n_classes};
    dfa->next = malloc((n_states * n_classes + 1) * sizeof *dfa->next);
    dfa->label = calloc(n_states + 1, 1);
    dfa->final = calloc(n_states + 1, 1);
    if (dfa->next && dfa->label && dfa->final) {
        memset(dfa->next, 0xFF, (n_states * n_classes + 1) * sizeof *dfa->next);
        return GS_OK;
    }
    gs_dfa_free(dfa);
    return gs_fail_memory(error, (n_states * n_classes + 1) * sizeof *dfa->next);
}

void gs_dfa_mark_final(struct gs_dfa *dfa)
{
    for (size_t s = 0; s < dfa->n_states; s++) {
        bool more = false;
        for (size_t c = 0; c < dfa->n_classes && !more; c++)
            more = dfa->next[s * dfa->n_classes + c] != GS_DFA_DEAD;
        dfa->final[s] = dfa->label[s] && !more;
    }
}

/* useful[s]: an accepting state can be reached from s. By a search along reversed edges. */
static gs_status find_useful(const struct gs_dfa *dfa, bool *useful, struct gs_error *error)
{
    size_t n = dfa->n_states, n_edges = n * dfa->n_classes;
    uint32_t *begin = calloc(n + 2, sizeof *begin), *from = malloc((n_edges + 1) * sizeof *from);
    uint32_t *stack = malloc((n + 1) * sizeof *stack);
    gs_status status = begin && from && stack ? GS_OK : gs_fail_memory(error, n_edges * sizeof *from);
    size_t top = 0;
    if (status != GS_OK)
        goto cleanup;
    for (size_t i = 0; i < n_edges; i++)
        if (dfa->next[i] != GS_DFA_DEAD)
            begin[dfa->next[i] + 2]++;
    for (size_t s = 2; s < n + 2; s++)
        begin[s] += begin[s - 1];
    for (size_t i = 0; i < n_edges; i++)
        if (dfa->next[i] != GS_DFA_DEAD)
            from[begin[dfa->next[i] + 1]++] = (uint32_t)(i / dfa->n_classes);
    for (size_t s = 0; s < n; s++)
        if (dfa->label[s]) {
            useful[s] = true;
            stack[top++] = (uint32_t)s;
        }
    while (top > 0) {
        uint32_t s = stack[--top];
        for (uint32_t i = begin[s]; i < begin[s + 1]; i++)
            if (!useful[from[i]]) {
                useful[from[i]] = true;
                stack[top++] = from[i];
            }
    }
cleanup:
    free(begin);
    free(from);
    free(stack);
    return status;
}

/* Drops states from which nothing is accepted; with the start, all. Keeps the order of the others. */
gs_status gs_dfa_prune(struct gs_dfa *dfa, struct gs_error *error)
{
    size_t n = dfa->n_states, kept = 0;
    bool *useful = calloc(n + 1, sizeof *useful);
    uint16_t *moved = calloc(n + 1, sizeof *moved);
    gs_status status = useful && moved ? find_useful(dfa, useful, error) : gs_fail_memory(error, n * 3);
    if (status != GS_OK)
        goto cleanup;
    for (size_t s = 0; s < n; s++)
        if (useful[s])
            moved[s] = (uint16_t)kept++;
    if (n > 0 && !useful[0])
        kept = n = 0;
    for (size_t s = 0; s < n; s++) {
        if (!useful[s])
            continue;
        uint16_t *to = dfa->next + (size_t)moved[s] * dfa->n_classes;
        const uint16_t *from = dfa->next + s * dfa->n_classes;
        for (size_t c = 0; c < dfa->n_classes; c++)
            to[c] = from[c] == GS_DFA_DEAD || !useful[from[c]] ? GS_DFA_DEAD : moved[from[c]];
        dfa->label[moved[s]] = dfa->label[s];
    }
    dfa->n_states = (uint32_t)kept;
    gs_dfa_mark_final(dfa);
cleanup:
    free(useful);
    free(moved);
    return status;
}

gs_status gs_dfa_keep(struct gs_dfa *dfa, const bool keep[256], struct gs_error *error)
{
    for (size_t s = 0; s < dfa->n_states; s++)
        if (!keep[dfa->label[s]])
            dfa->label[s] = 0;
    return gs_dfa_prune(dfa, error);
}

uint8_t gs_dfa_run(const struct gs_dfa *dfa, const char *bytes, size_t size)
{
    uint32_t state = 0;
    if (dfa->n_states == 0)
        return 0;
    for (size_t i = 0; i < size; i++) {
        state = gs_dfa_next(dfa, state, (uint8_t)bytes[i]);
        if (state == GS_DFA_DEAD)
            return 0;
    }
    return dfa->label[state];
}

gs_status gs_dfa_quote(struct gs_dfa *dfa, struct gs_schema_budget *budget, struct gs_error *error)
{
    if (dfa->n_states == 0)
        return GS_OK;
    struct gs_dfa out;
    uint32_t n = dfa->n_states, end = n + 1;
    if (n + 2 > GS_DFA_MAX_STATES)
        return gs_fail(error, GS_UNSUPPORTED, "too complex: its automaton has too many states");
    gs_status status = gs_budget_states(budget, 2, error);
    if (status == GS_OK)
        status = gs_dfa_alloc(&out, n + 2, (size_t)dfa->n_classes + 1, error);
    if (status != GS_OK)
        return status;
    /* The quotation mark gets a class of its own, the last one. */
    memcpy(out.class_of, dfa->class_of, sizeof out.class_of);
    out.class_of['"'] = (uint8_t)dfa->n_classes;
    for (uint32_t s = 0; s < n; s++) {
        uint16_t *to = out.next + (size_t)(s + 1) * out.n_classes;
        for (uint32_t c = 0; c < dfa->n_classes; c++) {
            uint16_t next = dfa->next[s * dfa->n_classes + c];
            to[c] = next == GS_DFA_DEAD ? GS_DFA_DEAD : (uint16_t)(next + 1);
        }
        uint16_t quoted = gs_dfa_next(dfa, s, '"'); /* after a backslash */
        if (dfa->label[s])
            to[dfa->n_classes] = (uint16_t)end;
        else if (quoted != GS_DFA_DEAD)
            to[dfa->n_classes] = (uint16_t)(quoted + 1);
    }
    out.next[dfa->n_classes] = 1;
    /* All labels are the same here: one automaton, one label. */
    for (uint32_t s = 0; s < n && !out.label[end]; s++)
        out.label[end] = dfa->label[s];
    gs_dfa_free(dfa);
    *dfa = out;
    gs_dfa_mark_final(dfa);
    return GS_OK;
}

/* ---------------------------------------------------------------- products */

struct product {
    const struct gs_dfa *a, *b;
    struct gs_schema_budget *budget;
    struct gs_error *error;
    uint32_t *pairs; /* [n]: state of a << 16 | state of b */
    uint16_t *next;  /* [n][n_classes] */
    size_t n, capacity;
    uint32_t *slots;
    size_t n_slots;
    uint8_t class_a[256], class_b[256]; /* [n_classes] */
    uint8_t class_of[256];
    size_t n_classes;
};

static void join_classes(struct product *p)
{
    for (size_t b = 0; b < 256; b++) {
        size_t c = 0;
        while (c < p->n_classes && (p->class_a[c] != p->a->class_of[b] || p->class_b[c] != p->b->class_of[b]))
            c++;
        if (c == p->n_classes) {
            p->class_a[c] = p->a->class_of[b];
            p->class_b[c] = p->b->class_of[b];
            p->n_classes++;
        }
        p->class_of[b] = (uint8_t)c;
    }
}

static gs_status rehash(struct product *p)
{
    size_t n_slots = p->n_slots ? 2 * p->n_slots : 256;
    uint32_t *slots = malloc(n_slots * sizeof *slots);
    if (!slots)
        return gs_fail_memory(p->error, n_slots * sizeof *slots);
    memset(slots, 0xFF, n_slots * sizeof *slots);
    for (size_t i = 0; i < p->n; i++) {
        size_t slot = (size_t)gs_hash_bytes(&p->pairs[i], 4) & (n_slots - 1);
        while (slots[slot] != UINT32_MAX)
            slot = (slot + 1) & (n_slots - 1);
        slots[slot] = (uint32_t)i;
    }
    free(p->slots);
    p->slots = slots;
    p->n_slots = n_slots;
    return GS_OK;
}

static gs_status intern_pair(struct product *p, uint32_t pair, uint16_t *state)
{
    gs_status status = 2 * p->n >= p->n_slots ? rehash(p) : GS_OK;
    if (status != GS_OK)
        return status;
    size_t slot = (size_t)gs_hash_bytes(&pair, 4) & (p->n_slots - 1);
    for (; p->slots[slot] != UINT32_MAX; slot = (slot + 1) & (p->n_slots - 1))
        if (p->pairs[p->slots[slot]] == pair) {
            *state = (uint16_t)p->slots[slot];
            return GS_OK;
        }
    if (p->n >= GS_DFA_MAX_STATES || (p->n + 1) * p->n_classes > GS_DFA_MAX_CELLS)
        return gs_fail(p->error, GS_UNSUPPORTED, "too complex: its automaton has too many states");
    status = gs_budget_states(p->budget, 1, p->error);
    if (status == GS_OK && p->n == p->capacity) {
        size_t capacity = p->capacity ? 2 * p->capacity : 256;
        uint32_t *pairs = realloc(p->pairs, capacity * sizeof *pairs);
        p->pairs = pairs ? pairs : p->pairs;
        uint16_t *next = realloc(p->next, capacity * p->n_classes * sizeof *next);
        p->next = next ? next : p->next;
        if (!pairs || !next)
            return gs_fail_memory(p->error, capacity * p->n_classes * sizeof *next);
        p->capacity = capacity;
    }
    if (status != GS_OK)
        return status;
    p->pairs[p->n] = pair;
    *state = (uint16_t)p->n;
    p->slots[slot] = (uint32_t)p->n++;
    return GS_OK;
}

static uint16_t step(const struct gs_dfa *dfa, uint32_t state, uint8_t class)
{
    return state == GS_DFA_DEAD ? GS_DFA_DEAD : dfa->next[state * dfa->n_classes + class];
}

static gs_status explore(struct product *p, enum gs_dfa_mode mode)
{
    uint16_t first;
    uint32_t start = p->a->n_states ? 0 : (uint32_t)GS_DFA_DEAD << 16;
    gs_status status = intern_pair(p, start | (p->b->n_states ? 0 : GS_DFA_DEAD), &first);
    for (size_t i = 0; i < p->n && status == GS_OK; i++) {
        status = gs_budget_work(p->budget, p->n_classes, p->error);
        for (size_t c = 0; c < p->n_classes && status == GS_OK; c++) {
            uint16_t a = step(p->a, p->pairs[i] >> 16, p->class_a[c]);
            uint16_t b = step(p->b, p->pairs[i] & 0xFFFF, p->class_b[c]), to = GS_DFA_DEAD;
            bool a_dead = a == GS_DFA_DEAD, b_dead = b == GS_DFA_DEAD;
            if (mode == GS_DFA_BOTH ? !a_dead && !b_dead : !a_dead || !b_dead)
                status = intern_pair(p, (uint32_t)a << 16 | b, &to);
            p->next[i * p->n_classes + c] = to;
        }
    }
    return status;
}

static uint8_t label_of(const struct gs_dfa *dfa, uint32_t state)
{
    return state == GS_DFA_DEAD ? 0 : dfa->label[state];
}

gs_status gs_dfa_product(const struct gs_dfa *a, const struct gs_dfa *b, enum gs_dfa_mode mode,
                         struct gs_schema_budget *budget, struct gs_dfa *out, struct gs_error *error)
{
    struct product p = {.a = a, .b = b, .budget = budget, .error = error};
    *out = (struct gs_dfa){0};
    join_classes(&p);
    bool empty = mode == GS_DFA_BOTH ? !a->n_states || !b->n_states : !a->n_states && !b->n_states;
    gs_status status = empty ? GS_OK : explore(&p, mode);
    if (status == GS_OK)
        status = gs_dfa_alloc(out, p.n, p.n_classes, error);
    if (status == GS_OK) {
        memcpy(out->class_of, p.class_of, sizeof out->class_of);
        if (p.n > 0)
            memcpy(out->next, p.next, p.n * p.n_classes * sizeof *p.next);
        for (size_t i = 0; i < p.n; i++) {
            uint8_t la = label_of(a, p.pairs[i] >> 16), lb = label_of(b, p.pairs[i] & 0xFFFF);
            out->label[i] = mode == GS_DFA_UNION ? la | lb : (uint8_t)(la && lb ? la : 0);
        }
        status = gs_dfa_prune(out, error);
    }
    free(p.pairs);
    free(p.next);
    free(p.slots);
    return status;
}

gs_status gs_dfa_copy(const struct gs_dfa *dfa, struct gs_schema_budget *budget, struct gs_dfa *out,
                      struct gs_error *error)
{
    const struct gs_dfa none = {.n_classes = 1};
    return gs_dfa_product(dfa, &none, GS_DFA_UNION, budget, out, error);
}
