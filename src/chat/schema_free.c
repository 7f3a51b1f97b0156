#include "chat/schema_free.h"

#include "chat/schema_grammar.h"

#include <stdlib.h>
#include <string.h>

#define MAX_PAIRS 32 /* of states within characters beyond ASCII, seen beside each other */

enum kind { UNKNOWN, PLAIN, OTHER };

struct gs_plain_state {
    uint8_t kind;
    uint16_t next;
    uint64_t barred[3];
};

void gs_free_memo_close(struct gs_free_memo *memo)
{
    free(memo->states);
    *memo = (struct gs_free_memo){0};
}

static void bar(uint64_t barred[3], unsigned bit)
{
    barred[bit / 64] |= (uint64_t)1 << (bit % 64);
}

/* ---------------------------------------------------------------- beyond ASCII */

/* Two automata side by side: `left` is that of any string, from and back to the state between two characters.
 */
struct beside {
    const struct gs_dfa *left, *right;
    uint16_t left_home, right_home;
    uint16_t pairs[MAX_PAIRS][2];
    size_t n_pair;
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

/*
 * Does every character beyond ASCII, or all but those that begin with 0xE2, lead from `state` to `next`, as
 * in any string it leads back?
 */
static bool takes_all(const struct gs_token_trie *trie, const struct gs_free_memo *memo, uint32_t state,
                      uint16_t next, bool but_e2)
{
    struct beside beside = {.left = &trie->string, .right = memo->dfa, .right_home = next};
    beside.left_home = gs_dfa_next(&trie->string, 0, '"');
    for (size_t k = 0; k < memo->n_kind; k++) {
        uint8_t b = memo->kinds[k];
        if (b >= 0x80 && !(but_e2 && b == 0xE2) &&
            !note_pair(&beside, gs_dfa_next(beside.left, beside.left_home, b),
                       gs_dfa_next(beside.right, state, b)))
            return false;
    }
    for (size_t i = 0; i < beside.n_pair; i++) {
        uint16_t left = beside.pairs[i][0], right = beside.pairs[i][1];
        if (memo->dfa->label[right])
            return false;
        for (size_t k = 0; k < memo->n_kind; k++)
            if (!note_pair(&beside, gs_dfa_next(beside.left, left, memo->kinds[k]),
                           gs_dfa_next(beside.right, right, memo->kinds[k])))
                return false;
    }
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

static bool is_letter(unsigned byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

static bool is_plain(const struct gs_token_trie *trie, const struct gs_free_memo *memo, uint32_t state,
                     struct gs_plain_state *plain)
{
    const struct gs_dfa *dfa = memo->dfa;
    plain->next = gs_dfa_next(dfa, state, 'a');
    if (plain->next == GS_DFA_DEAD || dfa->label[state])
        return false;
    for (unsigned b = 0; b < 0x80; b++) {
        uint16_t next = gs_dfa_next(dfa, state, (uint8_t)b);
        bool leaves = b == '"' || b == '\\';
        if (next == plain->next && b >= 0x20 && !leaves)
            continue;
        if (is_letter(b) || (next != GS_DFA_DEAD && !leaves))
            return false;
        bar(plain->barred, b);
    }
    if (takes_none(dfa, state)) {
        bar(plain->barred, GS_TRIE_BEYOND_ASCII);
        return true;
    }
    if (takes_all(trie, memo, state, plain->next, false))
        return true;
    bar(plain->barred, GS_TRIE_E2);
    return takes_all(trie, memo, state, plain->next, true);
}

static const struct gs_plain_state *look_up(const struct gs_token_trie *trie, struct gs_free_memo *memo,
                                            uint32_t state)
{
    struct gs_plain_state *plain = &memo->states[state];
    if (plain->kind == UNKNOWN)
        plain->kind = is_plain(trie, memo, state, plain) ? PLAIN : OTHER;
    return plain->kind == PLAIN ? plain : NULL;
}

/* At the end of a run: nothing but the end of the string, or its characters would have to be walked too. */
static bool only_ends(const struct gs_dfa *dfa, uint32_t state)
{
    for (unsigned b = 0; b < 0x100; b++)
        if (b != '"' && gs_dfa_next(dfa, state, (uint8_t)b) != GS_DFA_DEAD)
            return false;
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
    run->left = GS_UNLIMITED;
    for (uint32_t count = 0; count <= trie->longest; count++) {
        run->after[count] = (uint16_t)state;
        if (run->left != GS_UNLIMITED)
            continue;
        plain = look_up(trie, memo, state);
        if (plain && memcmp(plain->barred, run->barred, sizeof run->barred) == 0) {
            state = plain->next;
            continue;
        }
        if (!only_ends(dfa, state))
            return false;
        run->left = count;
    }
    return true;
}

/* ---------------------------------------------------------------- masks */

static bool is_barred(const struct gs_free_run *run, unsigned bit)
{
    return run->barred[bit / 64] >> (bit % 64) & 1;
}

/* The tokens that consist of nothing but the run's characters. */
static void fill(const struct gs_token_trie *trie, const struct gs_free_run *run, uint64_t *words)
{
    gs_trie_fill_inside(trie, run->left, words);
    for (unsigned b = 0x20; b < GS_TRIE_SETS;
         b++) { /* below it are none in any string, and '"' is behind a '\\' */
        if (b == '"' || !is_barred(run, b))
            continue;
        const uint64_t *with = trie->with + b * trie->n_words;
        for (size_t i = 0; i < trie->n_words; i++)
            words[i] &= ~with[i];
    }
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

gs_status gs_free_walk(const struct gs_token_trie *trie, const struct gs_dfa *dfa,
                       const struct gs_free_run *run, gs_exit_fn *leave, void *user, uint64_t *words)
{
    bool wide = is_barred(run, GS_TRIE_E2);
    gs_status status = GS_OK;
    fill(trie, run, words);
    for (size_t i = 0; i < trie->n_exits && status == GS_OK; i++) {
        const struct gs_string_exit *way = &trie->exits[i];
        if (reaches(run, way))
            status = walk_on(trie, dfa, way->node, gs_dfa_next(dfa, run->after[way->chars], '"'), leave, user,
                             words);
    }
    for (size_t i = 0; i < trie->n_begins && status == GS_OK; i++) {
        const struct gs_string_exit *way = &trie->begins[i];
        uint8_t byte = trie->byte[way->node];
        if ((byte == '\\' || wide) && reaches(run, way))
            status = walk_on(trie, dfa, way->node, gs_dfa_next(dfa, run->after[way->chars], byte), leave,
                             user, words);
    }
    return status;
}
