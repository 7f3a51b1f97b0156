/* Character sets, and nondeterministic automata that spell characters as JSON strings do. */
#include "base/status.h"
#include "base/utf8.h"
#include "chat/schema_automaton.h"

#include <stdlib.h>
#include <string.h>

#define LAST_CHAR       0x10FFFFu
#define FIRST_SURROGATE 0xD800u
#define LAST_SURROGATE  0xDFFFu

gs_status gs_budget_work(struct gs_schema_budget *budget, size_t amount, struct gs_error *error)
{
    if (amount > budget->work) {
        budget->work = 0;
        return gs_fail(error, GS_UNSUPPORTED, "too complex: compiling it takes too many steps");
    }
    budget->work -= amount;
    return GS_OK;
}

gs_status gs_budget_states(struct gs_schema_budget *budget, size_t amount, struct gs_error *error)
{
    if (amount > budget->states)
        return gs_fail(error, GS_UNSUPPORTED, "too complex: its automaton has too many states");
    budget->states -= amount;
    return GS_OK;
}

/* ---------------------------------------------------------------- sets of characters */

gs_status gs_char_set_add(struct gs_char_set *set, uint32_t first, uint32_t last, struct gs_error *error)
{
    if (set->count == set->capacity) {
        size_t capacity = set->capacity ? 2 * set->capacity : 8;
        struct gs_range *list = realloc(set->list, capacity * sizeof *list);
        if (!list)
            return gs_fail_memory(error, capacity * sizeof *list);
        set->list = list;
        set->capacity = capacity;
    }
    set->list[set->count++] = (struct gs_range){first, last};
    return GS_OK;
}

static int compare_ranges(const void *x, const void *y)
{
    const struct gs_range *a = x, *b = y;
    return (a->first > b->first) - (a->first < b->first);
}

void gs_char_set_normalise(struct gs_char_set *set)
{
    if (set->count == 0)
        return;
    qsort(set->list, set->count, sizeof *set->list, compare_ranges);
    size_t n = 0;
    for (size_t i = 1; i < set->count; i++) {
        if (set->list[i].first <= set->list[n].last + 1) {
            if (set->list[i].last > set->list[n].last)
                set->list[n].last = set->list[i].last;
        } else {
            set->list[++n] = set->list[i];
        }
    }
    set->count = n + 1;
}

gs_status gs_char_set_complement(struct gs_char_set *set, struct gs_error *error)
{
    struct gs_char_set out = {0};
    uint32_t from = 0;
    gs_status status = GS_OK;
    for (size_t i = 0; i < set->count && status == GS_OK; i++) {
        if (set->list[i].first > from)
            status = gs_char_set_add(&out, from, set->list[i].first - 1, error);
        from = set->list[i].last + 1;
    }
    if (status == GS_OK && from <= LAST_CHAR)
        status = gs_char_set_add(&out, from, LAST_CHAR, error);
    free(set->list);
    *set = out;
    return status;
}

/* ---------------------------------------------------------------- the automaton */

void gs_nfa_free(struct gs_nfa *nfa)
{
    free(nfa->nodes);
    free(nfa->edges);
}

static bool grow(struct gs_nfa *nfa, void **list, size_t count, size_t *capacity, size_t size)
{
    if (nfa->status != GS_OK || count < *capacity)
        return nfa->status == GS_OK;
    size_t wanted = *capacity ? 2 * *capacity : 64;
    void *bigger = realloc(*list, wanted * size);
    if (!bigger) {
        nfa->status = gs_fail_memory(nfa->error, wanted * size);
        return false;
    }
    *list = bigger;
    *capacity = wanted;
    return true;
}

uint32_t gs_nfa_node(struct gs_nfa *nfa)
{
    if (nfa->status == GS_OK && nfa->n_nodes >= GS_NFA_MAX_NODES)
        nfa->status = gs_fail(nfa->error, GS_UNSUPPORTED, "too complex: its automaton has too many states");
    if (nfa->status == GS_OK)
        nfa->status = gs_budget_work(nfa->budget, 1, nfa->error);
    if (!grow(nfa, (void **)&nfa->nodes, nfa->n_nodes, &nfa->nodes_capacity, sizeof *nfa->nodes))
        return 0;
    nfa->nodes[nfa->n_nodes] = UINT32_MAX;
    return (uint32_t)nfa->n_nodes++;
}

void gs_nfa_edge(struct gs_nfa *nfa, uint32_t from, uint32_t to, enum gs_nfa_edge_kind kind, uint8_t first,
                 uint8_t last)
{
    if (nfa->status == GS_OK)
        nfa->status = gs_budget_work(nfa->budget, 1, nfa->error);
    if (!grow(nfa, (void **)&nfa->edges, nfa->n_edges, &nfa->edges_capacity, sizeof *nfa->edges))
        return;
    nfa->edges[nfa->n_edges] = (struct gs_nfa_edge){to, nfa->nodes[from], (uint8_t)kind, first, last};
    nfa->nodes[from] = (uint32_t)nfa->n_edges++;
}

void gs_nfa_bytes(struct gs_nfa *nfa, uint32_t from, uint32_t to, const char *bytes, size_t size)
{
    if (size == 0)
        gs_nfa_edge(nfa, from, to, GS_NFA_EMPTY, 0, 0);
    for (size_t i = 0; i < size && nfa->status == GS_OK; i++) {
        uint32_t next = i + 1 == size ? to : gs_nfa_node(nfa);
        gs_nfa_edge(nfa, from, next, GS_NFA_BYTES, (uint8_t)bytes[i], (uint8_t)bytes[i]);
        from = next;
    }
}

/* Sequences of `size` bytes whose first ones are the same range by range: first[i] ... last[i]. */
static void add_sequence(struct gs_nfa *nfa, uint32_t from, uint32_t to, const uint8_t *first,
                         const uint8_t *last, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        uint32_t next = i + 1 == size ? to : gs_nfa_node(nfa);
        gs_nfa_edge(nfa, from, next, GS_NFA_BYTES, first[i], last[i]);
        from = next;
    }
}

/* Characters first ... last, all with the same length in UTF-8: split until each byte is a range of its own.
 */
static void add_utf8(struct gs_nfa *nfa, uint32_t from, uint32_t to, uint32_t first, uint32_t last)
{
    char low[4], high[4];
    size_t size = gs_utf8_encode(first, low);
    gs_utf8_encode(last, high);
    for (size_t i = 1; i < size; i++) {
        uint32_t rest = (uint32_t)1 << 6 * i; /* characters below one value of byte size-1-i */
        if ((first & ~(rest - 1)) == (last & ~(rest - 1)))
            continue;
        if ((first & (rest - 1)) != 0) {
            add_utf8(nfa, from, to, first, first | (rest - 1));
            add_utf8(nfa, from, to, (first | (rest - 1)) + 1, last);
            return;
        }
        if ((last & (rest - 1)) != rest - 1) {
            add_utf8(nfa, from, to, first, (last & ~(rest - 1)) - 1);
            add_utf8(nfa, from, to, last & ~(rest - 1), last);
            return;
        }
    }
    add_sequence(nfa, from, to, (const uint8_t *)low, (const uint8_t *)high, size);
}

/* A character that a JSON string cannot have as it is. */
static void add_escape(struct gs_nfa *nfa, uint32_t from, uint32_t to, uint32_t c)
{
    static const char letters[] = "\b\f\n\r\t\"\\", names[] = "bfnrt\"\\";
    char text[8];
    const char *at = c ? strchr(letters, (int)c) : NULL;
    if (at)
        gs_format(text, sizeof text, "\\%c", names[at - letters]);
    else
        gs_format(text, sizeof text, "\\u%04x", (unsigned)c);
    gs_nfa_bytes(nfa, from, to, text, strlen(text));
}

static bool needs_escape(uint32_t c)
{
    return c < 0x20 || c == '"' || c == '\\';
}

void gs_nfa_char_range(struct gs_nfa *nfa, uint32_t from, uint32_t to, uint32_t first, uint32_t last)
{
    static const uint32_t ends[] = {0x7F, 0x7FF, FIRST_SURROGATE - 1, LAST_SURROGATE, 0xFFFF, LAST_CHAR};
    for (size_t i = 0; i < sizeof ends / sizeof *ends && first <= last && nfa->status == GS_OK; i++) {
        if (first > ends[i])
            continue;
        uint32_t end = last < ends[i] ? last : ends[i];
        if (ends[i] == 0x7F) {
            for (uint32_t c = first; c <= end;) {
                uint32_t stop = c;
                if (needs_escape(c)) {
                    add_escape(nfa, from, to, c);
                } else {
                    while (stop < end && !needs_escape(stop + 1))
                        stop++;
                    gs_nfa_edge(nfa, from, to, GS_NFA_BYTES, (uint8_t)c, (uint8_t)stop);
                }
                c = stop + 1;
            }
        } else if (ends[i] != LAST_SURROGATE) {
            add_utf8(nfa, from, to, first, end);
        }
        first = end + 1;
    }
}

void gs_nfa_chars(struct gs_nfa *nfa, uint32_t from, uint32_t to, const struct gs_char_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        gs_nfa_char_range(nfa, from, to, set->list[i].first, set->list[i].last);
}
