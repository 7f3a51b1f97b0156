#include "chat/schema_trie.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

#define NO_STATE GS_DFA_DEAD

struct entry {
    const char *bytes;
    size_t size;
    int32_t id;
};

static int compare_entries(const void *x, const void *y)
{
    const struct entry *a = x, *b = y;
    size_t common = a->size < b->size ? a->size : b->size;
    int order = memcmp(a->bytes, b->bytes, common);
    if (order == 0)
        order = (a->size > b->size) - (a->size < b->size);
    return order ? order : (a->id > b->id) - (a->id < b->id);
}

/* All tokens that may be generated, in the order of their bytes. */
static struct entry *collect(const struct gs_vocab *vocab, size_t n_vocab, size_t *count, size_t *n_bytes)
{
    size_t size = gs_vocab_size(vocab);
    struct entry *entries = malloc((size + 1) * sizeof *entries);
    *count = 0;
    *n_bytes = 1;
    for (size_t id = 0; entries && id < size && id < n_vocab; id++) {
        struct entry *e = &entries[*count];
        e->bytes = gs_vocab_bytes(vocab, (int32_t)id, &e->size);
        e->id = (int32_t)id;
        if (!e->bytes || e->size == 0 || e->size > GS_TRIE_MAX_BYTES ||
            gs_vocab_is_special(vocab, (int32_t)id))
            continue;
        *n_bytes += e->size;
        ++*count;
    }
    if (entries)
        qsort(entries, *count, sizeof *entries, compare_entries);
    return entries;
}

static gs_status allocate(struct gs_token_trie *trie, size_t n_bytes, struct gs_error *error)
{
    trie->n_words = (trie->n_vocab + 63) / 64;
    trie->byte = malloc(n_bytes);
    trie->depth = malloc(n_bytes);
    trie->end = malloc(n_bytes * sizeof *trie->end);
    trie->parent = malloc(n_bytes * sizeof *trie->parent);
    trie->token = malloc(n_bytes * sizeof *trie->token);
    trie->next_token = malloc(trie->n_vocab * sizeof *trie->next_token);
    trie->node = calloc(trie->n_vocab, sizeof *trie->node);
    trie->inside = calloc(trie->n_words, sizeof *trie->inside);
    trie->few = calloc(trie->n_words * GS_TRIE_FEW_CHARS, sizeof *trie->few);
    trie->with = calloc(trie->n_words * GS_TRIE_SETS, sizeof *trie->with);
    if (trie->byte && trie->depth && trie->end && trie->parent && trie->token && trie->next_token &&
        trie->node && trie->inside && trie->few && trie->with)
        return GS_OK;
    return gs_fail_memory(error, n_bytes * 14);
}

static uint32_t add_node(struct gs_token_trie *trie, uint32_t parent, uint8_t byte)
{
    uint32_t node = (uint32_t)trie->n_nodes++;
    trie->byte[node] = byte;
    trie->parent[node] = parent;
    trie->depth[node] = node ? (uint8_t)(trie->depth[parent] + 1) : 0;
    trie->token[node] = -1;
    return node;
}

/* Sorted entries come in preorder: each leaves the path of the one before at their common prefix. */
static void build(struct gs_token_trie *trie, const struct entry *entries, size_t count)
{
    uint32_t path[GS_TRIE_MAX_BYTES + 1] = {0};
    size_t depth = 0;
    add_node(trie, 0, 0);
    for (size_t i = 0; i < count; i++) {
        const struct entry *e = &entries[i];
        size_t common = 0;
        while (common < depth && common < e->size &&
               trie->byte[path[common + 1]] == (uint8_t)e->bytes[common])
            common++;
        while (depth > common)
            trie->end[path[depth--]] = (uint32_t)trie->n_nodes;
        for (; depth < e->size; depth++)
            path[depth + 1] = add_node(trie, path[depth], (uint8_t)e->bytes[depth]);
        trie->next_token[e->id] = trie->token[path[depth]];
        trie->token[path[depth]] = e->id;
        trie->node[e->id] = path[depth];
        trie->longest = e->size > trie->longest ? (uint32_t)e->size : trie->longest;
    }
    for (;; depth--) {
        trie->end[path[depth]] = (uint32_t)trie->n_nodes;
        if (depth == 0)
            break;
    }
}

/* Every byte that UTF-8 text can have must be a token, or a place could have no way on. */
static gs_status check_bytes(const struct gs_token_trie *trie, struct gs_error *error)
{
    bool there[256] = {false};
    for (uint32_t i = 1; i < trie->n_nodes; i = trie->end[i])
        there[trie->byte[i]] = trie->token[i] >= 0;
    for (int b = 0; b < 256; b++) {
        bool control = b < 0x20 && b != '\n';
        if (!there[b] && !control && b != 0xC0 && b != 0xC1 && b <= 0xF4)
            return gs_fail(
                error, GS_UNSUPPORTED,
                "the vocabulary has no token for byte 0x%02x alone: structured output needs one for "
                "each byte",
                (unsigned)b);
    }
    return GS_OK;
}

/* ---------------------------------------------------------------- walks */

gs_status gs_trie_walk(const struct gs_token_trie *trie, uint32_t node, const struct gs_lex_walk *walk,
                       uint64_t *words)
{
    const struct gs_dfa *dfa = walk->dfa;
    uint16_t states[GS_TRIE_MAX_BYTES + 1];
    uint32_t chars[GS_TRIE_MAX_BYTES + 1];
    uint32_t end = trie->end[node];
    states[trie->depth[node]] = (uint16_t)walk->state;
    chars[trie->depth[node]] = walk->chars;
    for (uint32_t i = node + 1; i < end;) {
        unsigned d = trie->depth[i];
        uint16_t before = states[d - 1], state = gs_dfa_next(dfa, before, trie->byte[i]);
        if (state != NO_STATE && walk->counts) {
            bool begins = before == walk->inside && !dfa->final[state];
            if (dfa->final[state] ? chars[d - 1] < walk->min : begins && chars[d - 1] >= walk->max)
                state = NO_STATE;
            chars[d] = chars[d - 1] + begins;
        }
        if (state == NO_STATE) {
            i = trie->end[i];
            continue;
        }
        states[d] = state;
        gs_trie_allow(trie, i, words);
        if (dfa->label[state] && trie->end[i] > i + 1) {
            gs_status status = walk->leave(walk->user, i, dfa->label[state]);
            if (status != GS_OK)
                return status;
        }
        i = dfa->final[state] ? trie->end[i] : i + 1;
    }
    return GS_OK;
}

/* ---------------------------------------------------------------- strings */

/* Calls itself what gs_trie_walk would do from inside a string, and keeps the number of characters. */
static void count_chars(const struct gs_token_trie *trie, uint32_t inside, uint32_t *chars, bool *leaves)
{
    uint16_t states[GS_TRIE_MAX_BYTES + 1] = {(uint16_t)inside};
    for (uint32_t i = 1; i < trie->n_nodes;) {
        unsigned d = trie->depth[i];
        uint16_t before = states[d - 1], state = gs_dfa_next(&trie->string, before, trie->byte[i]);
        if (state == NO_STATE) {
            for (uint32_t k = i; k < trie->end[i]; k++)
                chars[k] = UINT32_MAX;
            i = trie->end[i];
            continue;
        }
        leaves[i] = trie->string.final[state];
        chars[i] = chars[trie->parent[i]] + (before == inside && !leaves[i]);
        states[d] = state;
        if (!leaves[i]) {
            i++;
            continue;
        }
        for (uint32_t k = i + 1; k < trie->end[i]; k++)
            chars[k] = UINT32_MAX;
        i = trie->end[i];
    }
}

struct counted {
    uint32_t chars;
    int32_t id;
};

static int compare_counted(const void *x, const void *y)
{
    const struct counted *a = x, *b = y;
    return (a->chars > b->chars) - (a->chars < b->chars);
}

static void allow(uint64_t *words, int32_t id)
{
    words[id / 64] |= (uint64_t)1 << (id % 64);
}

static void note_byte(uint64_t set[3], uint8_t byte)
{
    unsigned bit = byte < 0x80 ? byte : GS_TRIE_BEYOND_ASCII;
    set[bit / 64] |= (uint64_t)1 << (bit % 64);
    if (byte == 0xE2)
        set[GS_TRIE_E2 / 64] |= (uint64_t)1 << (GS_TRIE_E2 % 64);
}

static struct gs_string_exit make_exit(const struct gs_token_trie *trie, uint32_t node, uint32_t chars)
{
    struct gs_string_exit way = {.node = node, .chars = chars};
    for (uint32_t at = trie->parent[node]; at != 0; at = trie->parent[at])
        note_byte(way.before, trie->byte[at]);
    return way;
}

/* Escapes and characters are counted where they begin. */
static bool begins(const struct gs_token_trie *trie, const uint32_t *chars, const bool *leaves, uint32_t node)
{
    uint8_t byte = trie->byte[node];
    return chars[node] != UINT32_MAX && !leaves[node] && chars[node] > chars[trie->parent[node]] &&
           (byte == 0xE2 || (byte < 0x80 && !gs_is_letter(byte)));
}

/* Two passes: how many, and which. */
static gs_status list_ways(struct gs_token_trie *trie, const uint32_t *chars, const bool *leaves,
                           struct gs_error *error)
{
    size_t n_exits = 0, n_begins = 0, next[256] = {0};
    for (uint32_t i = 1; i < trie->n_nodes; i++) {
        n_exits += chars[i] != UINT32_MAX && leaves[i];
        next[trie->byte[i]] += begins(trie, chars, leaves, i);
    }
    for (unsigned b = 0; b < 0x100; b++) {
        trie->begins_at[b] = n_begins;
        n_begins += next[b];
        next[b] = trie->begins_at[b];
    }
    trie->begins_at[0x100] = n_begins;
    trie->exits = malloc((n_exits + 1) * sizeof *trie->exits);
    trie->begins = malloc((n_begins + 1) * sizeof *trie->begins);
    if (!trie->exits || !trie->begins)
        return gs_fail_memory(error, (n_exits + n_begins) * sizeof *trie->exits);
    for (uint32_t i = 1; i < trie->n_nodes; i++) {
        if (chars[i] != UINT32_MAX && leaves[i])
            trie->exits[trie->n_exits++] = make_exit(trie, i, chars[i]);
        else if (begins(trie, chars, leaves, i))
            trie->begins[next[trie->byte[i]]++] = make_exit(trie, i, chars[i] - 1);
    }
    return GS_OK;
}

/* The bytes of a token that stays inside a string. */
static void note_bytes(struct gs_token_trie *trie, uint32_t node, int32_t id)
{
    uint64_t set[3] = {0};
    for (uint32_t at = node; at != 0; at = trie->parent[at])
        note_byte(set, trie->byte[at]);
    for (size_t i = 0; i < 3; i++)
        for (uint64_t word = set[i]; word != 0; word &= word - 1)
            allow(trie->with + (64 * i + (size_t)__builtin_ctzll(word)) * trie->n_words, id);
}

static gs_status prepare_strings(struct gs_token_trie *trie, struct gs_error *error)
{
    struct gs_schema_budget budget = {1000000, 1000};
    uint32_t *chars = calloc(trie->n_nodes, sizeof *chars);
    bool *leaves = calloc(trie->n_nodes, sizeof *leaves);
    struct counted *many = malloc(trie->n_vocab * sizeof *many);
    gs_status status = chars && leaves && many ? gs_dfa_string(0, UINT32_MAX, &budget, &trie->string, error)
                                               : gs_fail_memory(error, trie->n_nodes * sizeof *chars);
    if (status != GS_OK)
        goto cleanup;
    count_chars(trie, gs_dfa_next(&trie->string, 0, '"'), chars, leaves);
    status = list_ways(trie, chars, leaves, error);
    if (status != GS_OK)
        goto cleanup;
    for (uint32_t i = 1; i < trie->n_nodes; i++) {
        if (chars[i] == UINT32_MAX || leaves[i])
            continue;
        for (int32_t id = trie->token[i]; id >= 0; id = trie->next_token[id]) {
            allow(trie->inside, id);
            note_bytes(trie, i, id);
            for (uint32_t k = chars[i]; k < GS_TRIE_FEW_CHARS; k++)
                allow(trie->few + k * trie->n_words, id);
            if (chars[i] >= GS_TRIE_FEW_CHARS)
                many[trie->n_many++] = (struct counted){chars[i], id};
        }
    }
    qsort(many, trie->n_many, sizeof *many, compare_counted);
    trie->many = malloc((trie->n_many + 1) * sizeof *trie->many);
    trie->n_chars = malloc((trie->n_many + 1) * sizeof *trie->n_chars);
    if (!trie->many || !trie->n_chars)
        status = gs_fail_memory(error, trie->n_many * sizeof *trie->many);
    for (size_t i = 0; i < trie->n_many && status == GS_OK; i++) {
        trie->many[i] = many[i].id;
        trie->n_chars[i] = many[i].chars;
    }
cleanup:
    free(chars);
    free(leaves);
    free(many);
    return status;
}

void gs_trie_fill_inside(const struct gs_token_trie *trie, uint32_t left, uint64_t *words)
{
    const uint64_t *inside = left < GS_TRIE_FEW_CHARS ? trie->few + left * trie->n_words : trie->inside;
    for (size_t i = 0; i < trie->n_words; i++)
        words[i] |= inside[i];
    if (left >= GS_TRIE_FEW_CHARS)
        for (size_t i = trie->n_many; i-- > 0 && trie->n_chars[i] > left;)
            words[trie->many[i] / 64] &= ~((uint64_t)1 << (trie->many[i] % 64));
}

gs_status gs_token_trie_open(const struct gs_vocab *vocab, size_t n_vocab, struct gs_token_trie **out,
                             struct gs_error *error)
{
    size_t count, n_bytes;
    *out = NULL;
    if (n_vocab < gs_vocab_size(vocab) || n_vocab > INT32_MAX)
        return gs_fail(error, GS_INVALID_ARGUMENT, "%zu logits for a vocabulary of %zu tokens", n_vocab,
                       gs_vocab_size(vocab));
    struct gs_token_trie *trie = calloc(1, sizeof *trie);
    struct entry *entries = collect(vocab, n_vocab, &count, &n_bytes);
    gs_status status = trie && entries ? GS_OK : gs_fail_memory(error, n_bytes);
    if (status == GS_OK && n_bytes > UINT32_MAX / 2)
        status = gs_fail(error, GS_UNSUPPORTED, "a vocabulary of %zu bytes is too large", n_bytes);
    if (status == GS_OK) {
        trie->n_vocab = n_vocab;
        status = allocate(trie, n_bytes, error);
    }
    if (status == GS_OK) {
        build(trie, entries, count);
        status = check_bytes(trie, error);
    }
    if (status == GS_OK)
        status = prepare_strings(trie, error);
    free(entries);
    if (status == GS_OK)
        *out = trie;
    else
        gs_token_trie_close(trie);
    return status;
}

void gs_token_trie_close(struct gs_token_trie *trie)
{
    if (!trie)
        return;
    gs_dfa_free(&trie->string);
    free(trie->byte);
    free(trie->depth);
    free(trie->end);
    free(trie->parent);
    free(trie->token);
    free(trie->next_token);
    free(trie->node);
    free(trie->inside);
    free(trie->few);
    free(trie->with);
    free(trie->begins);
    free(trie->many);
    free(trie->n_chars);
    free(trie->exits);
    free(trie);
}
