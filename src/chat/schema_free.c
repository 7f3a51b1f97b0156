#include "chat/schema_free.h"

#include "chat/schema_grammar.h"

#include <stdlib.h>
#include <string.h>

#define MAX_PAIRS 32 /* of states within characters beyond ASCII, seen beside each other */

enum kind { UNKNOWN, PLAIN, OTHER };

struct gs_plain_state {
    uint8_t kind;
    uint16_t next;
    uint64_t barred[3], ways[2];
};

void gs_free_memo_close(struct gs_free_memo *memo)
{
    free(memo->states);
    free(memo->filled);
    *memo = (struct gs_free_memo){0};
}

static void set_bit(uint64_t *set, unsigned bit)
{
    set[bit / 64] |= (uint64_t)1 << (bit % 64);
}

/* ---------------------------------------------------------------- beyond ASCII */

/* Two automata side by side: `left` is that of any string, from and back to the state between two characters.
 */
struct beside {
    const struct gs_dfa *left, *right;
    uint16_t left_home, right_home;
    uint16_t pairs[MAX_PAIRS][2];
    size_t n_pair, n_followed;
};

/* Notes a pair to be looked at; false if there are too many, or only one of them is at home or dead. */
static bool note_pair(struct beside *beside, uint16_t left, uint16_t right)
{
    if ((left == GS_DFA_DEAD) != (right == GS_DFA_DEAD))
        return false;
    if (left == GS_DFA_DEAD)
        return true;
    if (left == beside->left_home)
        return right == beside->right_home;
    for (size_t i = 0; i < beside->n_pair; i++)
        if (beside->pairs[i][0] == left && beside->pairs[i][1] == right)
            return true;
    if (beside->n_pair == MAX_PAIRS)
        return false;
    beside->pairs[beside->n_pair][0] = left;
    beside->pairs[beside->n_pair++][1] = right;
    return true;
}

/* The pairs that those noted so far lead to. */
static bool follow_pairs(const struct gs_free_memo *memo, struct beside *beside)
{
    while (beside->n_followed < beside->n_pair) {
        const uint16_t *pair = beside->pairs[beside->n_followed++];
        if (beside->right->label[pair[1]])
            return false;
        for (size_t k = 0; k < memo->n_kind; k++)
            if (!note_pair(beside, gs_dfa_next(beside->left, pair[0], memo->kinds[k]),
                           gs_dfa_next(beside->right, pair[1], memo->kinds[k])))
                return false;
    }
    return true;
}

/*
 * Does every character beyond ASCII that does not begin with 0xE2 lead from `state` to `next`, as in any
 * string it leads back? *all: and those that do.
 */
static bool takes_all(const struct gs_token_trie *trie, const struct gs_free_memo *memo, uint32_t state,
                      uint16_t next, bool *all)
{
    struct beside beside = {.left = &trie->string, .right = memo->dfa, .right_home = next};
    beside.left_home = gs_dfa_next(&trie->string, 0, '"');
    for (size_t k = 0; k < memo->n_kind; k++) {
        uint8_t b = memo->kinds[k];
        if (b >= 0x80 && b != 0xE2 &&
            !note_pair(&beside, gs_dfa_next(beside.left, beside.left_home, b),
                       gs_dfa_next(beside.right, state, b)))
            return false;
    }
    if (!follow_pairs(memo, &beside))
        return false;
    *all = note_pair(&beside, gs_dfa_next(beside.left, beside.left_home, 0xE2),
                     gs_dfa_next(beside.right, state, 0xE2)) &&
           follow_pairs(memo, &beside);
    return true;
}

static bool takes_none(const struct gs_dfa *dfa, uint32_t state)
{
    for (unsigned b = 0x80; b < 0x100; b++)
        if (gs_dfa_next(dfa, state, (uint8_t)b) != GS_DFA_DEAD)
            return false;
    return true;
}

/* ---------------------------------------------------------------- plain states */

static bool is_plain(const struct gs_token_trie *trie, const struct gs_free_memo *memo, uint32_t state,
                     struct gs_plain_state *plain)
{
    const struct gs_dfa *dfa = memo->dfa;
    plain->next = gs_dfa_next(dfa, state, 'a');
    if (plain->next == GS_DFA_DEAD || dfa->label[state])
        return false;
    for (unsigned b = 0; b < 0x80; b++) {
        uint16_t next = gs_dfa_next(dfa, state, (uint8_t)b);
        if (next == plain->next && b >= 0x20 && b != '"' && b != '\\')
            continue;
        if (gs_is_letter(b))
            return false;
        set_bit(plain->barred, b);
        if (next != GS_DFA_DEAD)
            set_bit(plain->ways, b);
    }
    bool all = true;
    if (takes_none(dfa, state))
        set_bit(plain->barred, GS_TRIE_BEYOND_ASCII);
    else if (!takes_all(trie, memo, state, plain->next, &all))
        return false;
    if (!all)
        set_bit(plain->barred, GS_TRIE_E2);
    return true;
}

static const struct gs_plain_state *look_up(const struct gs_token_trie *trie, struct gs_free_memo *memo,
                                            uint32_t state)
{
    struct gs_plain_state *plain = &memo->states[state];
    if (plain->kind == UNKNOWN)
        plain->kind = is_plain(trie, memo, state, plain) ? PLAIN : OTHER;
    return plain->kind == PLAIN ? plain : NULL;
}

static bool is_barred(const struct gs_free_run *run, unsigned bit)
{
    return run->barred[bit / 64] >> (bit % 64) & 1;
}

/* At the end of a run: none of its characters leads on, or they would have to be walked too. */
static bool only_ends(const struct gs_dfa *dfa, uint32_t state, struct gs_free_run *run)
{
    for (unsigned b = 0; b < 0x100; b++) {
        if (gs_dfa_next(dfa, state, (uint8_t)b) == GS_DFA_DEAD)
            continue;
        if (b >= 0x80 ? b != 0xE2 || !is_barred(run, GS_TRIE_E2) : !is_barred(run, b))
            return false;
        if (b < 0x80)
            set_bit(run->ways, b);
    }
    return dfa->label[state] == 0;
}

/* The alphabets of both are far smaller than 256; 0xE2 is of a kind of its own. */
static void find_kinds(const struct gs_dfa *string, struct gs_free_memo *memo)
{
    for (unsigned b = 0; b < 0x100; b++) {
        bool known = false;
        for (size_t k = 0; k < memo->n_kind && !known; k++) {
            uint8_t other = memo->kinds[k];
            known = (b < 0x80) == (other < 0x80) && (b == 0xE2) == (other == 0xE2) &&
                    string->class_of[b] == string->class_of[other] &&
                    memo->dfa->class_of[b] == memo->dfa->class_of[other];
        }
        if (!known)
            memo->kinds[memo->n_kind++] = (uint8_t)b;
    }
}

/* Seen at once of most states that are not plain. */
static bool takes_letters(const struct gs_dfa *dfa, uint32_t state)
{
    uint16_t next = gs_dfa_next(dfa, state, 'a');
    return next != GS_DFA_DEAD && next == gs_dfa_next(dfa, state, 'z') &&
           next == gs_dfa_next(dfa, state, 'E') && dfa->label[state] == 0 &&
           gs_dfa_next(dfa, state, '\n') == GS_DFA_DEAD;
}

bool gs_free_find(const struct gs_token_trie *trie, const struct gs_dfa *dfa, uint32_t state,
                  struct gs_free_memo *memo, struct gs_free_run *run)
{
    if (!takes_letters(dfa, state))
        return false;
    if (memo->dfa != dfa) {
        gs_free_memo_close(memo);
        memo->states = calloc(dfa->n_states, sizeof *memo->states);
        if (!memo->states)
            return false;
        memo->dfa = dfa;
        find_kinds(&trie->string, memo);
    }
    const struct gs_plain_state *plain = look_up(trie, memo, state);
    if (!plain)
        return false;
    memcpy(run->barred, plain->barred, sizeof run->barred);
    run->ways[0] = run->ways[1] = 0;
    run->left = GS_UNLIMITED;
    for (uint32_t count = 0; count <= trie->longest; count++) {
        run->after[count] = (uint16_t)state;
        if (run->left != GS_UNLIMITED)
            continue;
        plain = look_up(trie, memo, state);
        if (plain && memcmp(plain->barred, run->barred, sizeof run->barred) == 0) {
            run->ways[0] |= plain->ways[0];
            run->ways[1] |= plain->ways[1];
            state = plain->next;
            continue;
        }
        if (!only_ends(dfa, state, run))
            return false;
        run->left = count;
    }
    return true;
}

/* ---------------------------------------------------------------- masks */

/* The tokens of which no byte is barred; NULL if memory is out. */
static const uint64_t *fill_all(const struct gs_token_trie *trie, const struct gs_free_run *run,
                                struct gs_free_memo *memo)
{
    size_t size = trie->n_words * sizeof *memo->filled;
    if (memo->filled && memcmp(memo->barred, run->barred, sizeof run->barred) == 0)
        return memo->filled;
    if (!memo->filled)
        memo->filled = malloc(size);
    if (!memo->filled)
        return NULL;
    memcpy(memo->barred, run->barred, sizeof run->barred);
    memcpy(memo->filled, trie->inside, size);
    for (unsigned b = 0x20; b < GS_TRIE_SETS;
         b++) { /* below it are none in any string, and '"' is behind a '\\' */
        if (b == '"' || !is_barred(run, b))
            continue;
        const uint64_t *with = trie->with + b * trie->n_words;
        for (size_t i = 0; i < trie->n_words; i++)
            memo->filled[i] &= ~with[i];
    }
    return memo->filled;
}

/* Are there only characters of the run before this node? */
static bool reaches(const struct gs_free_run *run, const struct gs_string_exit *way)
{
    return way->chars <= run->left && !(way->before[0] & run->barred[0]) &&
           !(way->before[1] & run->barred[1]) && !(way->before[2] & run->barred[2]);
}

/* On from a byte that is none of the run's. */
static gs_status walk_on(const struct gs_token_trie *trie, const struct gs_dfa *dfa, uint32_t node,
                         uint16_t state, gs_exit_fn *leave, void *user, uint64_t *words)
{
    gs_status status = GS_OK;
    if (state == GS_DFA_DEAD)
        return GS_OK;
    gs_trie_allow(trie, node, words);
    if (trie->end[node] == node + 1)
        return GS_OK;
    struct gs_lex_walk lex = {.dfa = dfa, .state = state, .leave = leave, .user = user};
    if (dfa->label[state])
        status = leave(user, node, dfa->label[state]);
    if (status == GS_OK && !dfa->final[state])
        status = gs_trie_walk(trie, node, &lex, words);
    return status;
}

/* From where one of the run's characters is followed by `byte`. */
static gs_status walk_begins(const struct gs_token_trie *trie, const struct gs_dfa *dfa,
                             const struct gs_free_run *run, unsigned byte, gs_exit_fn *leave, void *user,
                             uint64_t *words)
{
    gs_status status = GS_OK;
    for (size_t i = trie->begins_at[byte]; i < trie->begins_at[byte + 1] && status == GS_OK; i++) {
        const struct gs_string_exit *way = &trie->begins[i];
        if (reaches(run, way))
            status = walk_on(trie, dfa, way->node, gs_dfa_next(dfa, run->after[way->chars], (uint8_t)byte),
                             leave, user, words);
    }
    return status;
}

gs_status gs_free_walk(const struct gs_token_trie *trie, struct gs_free_memo *memo,
                       const struct gs_free_run *run, gs_exit_fn *leave, void *user, uint64_t *words)
{
    const struct gs_dfa *dfa = memo->dfa;
    const uint64_t *all = fill_all(trie, run, memo);
    gs_status status = all ? GS_OK : GS_OUT_OF_MEMORY;
    if (all)
        gs_trie_fill_inside(trie, run->left, words);
    for (size_t i = 0; all && i < trie->n_words; i++)
        words[i] &= all[i];
    for (size_t i = 0; i < trie->n_exits && status == GS_OK; i++) {
        const struct gs_string_exit *way = &trie->exits[i];
        if (reaches(run, way))
            status = walk_on(trie, dfa, way->node, gs_dfa_next(dfa, run->after[way->chars], '"'), leave, user,
                             words);
    }
    for (unsigned b = 0x20; b < 0x80 && status == GS_OK; b++)
        if (b != '"' && run->ways[b / 64] >> (b % 64) & 1)
            status = walk_begins(trie, dfa, run, b, leave, user, words);
    if (status == GS_OK && is_barred(run, GS_TRIE_E2))
        status = walk_begins(trie, dfa, run, 0xE2, leave, user, words);
    return status;
}
