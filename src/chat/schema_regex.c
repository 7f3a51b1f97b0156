#include "chat/schema_regex.h"

#include "base/arena.h"
#include "base/status.h"
#include "base/utf8.h"
#include "chat/schema_class.h"

#include <stdlib.h>
#include <string.h>

#define MAX_NESTING 100
#define NO_LIMIT    UINT32_MAX
#define MAX_REPEAT  1000000u /* a larger bound is broken, not only too complex */

enum kind { EMPTY, CLASS, SEQUENCE, CHOICE, REPEAT, BEGIN, END };

struct node {
    enum kind kind;
    struct node *left, *right; /* SEQUENCE, CHOICE; REPEAT: left */
    uint32_t min, max;
    struct gs_char_set set; /* CLASS; its list lives as long as the parser */
};

struct parser {
    const char *text;
    size_t size, at;
    struct gs_arena arena;
    struct gs_schema_budget *budget;
    unsigned depth;
    bool complement; /* in a [^...]: what its classes hold is taken away */
    bool supported;
    gs_status status;
    struct gs_error *error;
};

static struct node *parse_choice(struct parser *p);

static struct node *fail(struct parser *p, const char *what)
{
    if (p->status == GS_OK)
        p->status = gs_fail(p->error, GS_MALFORMED, "\"%s\": %s at byte %zu",
                            gs_quote_bytes(p->text, p->size).text, what, p->at);
    return NULL;
}

static struct node *make(struct parser *p, enum kind kind, struct node *left, struct node *right)
{
    struct node *node = gs_arena_alloc(&p->arena, sizeof *node);
    if (p->status == GS_OK)
        p->status = node ? gs_budget_work(p->budget, 1, p->error) : gs_fail_memory(p->error, sizeof *node);
    if (p->status != GS_OK)
        return NULL;
    *node = (struct node){.kind = kind, .left = left, .right = right};
    return node;
}

static bool more(const struct parser *p)
{
    return p->status == GS_OK && p->at < p->size;
}

static bool looking_at(const struct parser *p, const char *text)
{
    size_t size = strlen(text);
    return p->size - p->at >= size && memcmp(p->text + p->at, text, size) == 0;
}

static bool take(struct parser *p, const char *text)
{
    if (p->status != GS_OK || !looking_at(p, text))
        return false;
    p->at += strlen(text);
    return true;
}

/* A set from the arena, so that nodes need no release. */
static struct node *make_class(struct parser *p, struct gs_char_set *set)
{
    struct node *node = make(p, CLASS, NULL, NULL);
    size_t bytes = set->count * sizeof *set->list;
    struct gs_range *list = gs_arena_alloc(&p->arena, bytes);
    if (node && !list)
        p->status = gs_fail_memory(p->error, bytes);
    if (node && list) {
        if (bytes > 0)
            memcpy(list, set->list, bytes);
        node->set = (struct gs_char_set){list, set->count, set->count};
    }
    free(set->list);
    return p->status == GS_OK ? node : NULL;
}

static struct node *make_char(struct parser *p, uint32_t c)
{
    struct gs_char_set set = {0};
    p->status = gs_char_set_add(&set, c, c, p->error);
    return make_class(p, &set);
}

static void add(struct parser *p, struct gs_char_set *set, uint32_t first, uint32_t last)
{
    if (p->status == GS_OK)
        p->status = gs_char_set_add(set, first, last, p->error);
}

/*
 * A named class, in its narrow reading; in [^...] in its wide one, which is the complement of what the
 * opposite class holds in its narrow one.
 */
static void add_class(struct parser *p, char name, bool negated, struct gs_char_set *set)
{
    struct gs_char_set own = {0};
    p->status = gs_char_class(name, negated != p->complement, &own, p->error);
    gs_char_set_normalise(&own);
    if (p->status == GS_OK && p->complement)
        p->status = gs_char_set_complement(&own, p->error);
    for (size_t i = 0; i < own.count; i++)
        add(p, set, own.list[i].first, own.list[i].last);
    free(own.list);
}

static bool parse_hex(struct parser *p, size_t digits, uint32_t *value)
{
    *value = 0;
    for (size_t i = 0; i < digits; i++) {
        char c = p->at + i < p->size ? p->text[p->at + i] : '\0';
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                : 16;
        if (digit == 16)
            return false;
        *value = *value << 4 | digit;
    }
    p->at += digits;
    return true;
}

/* After "\u": XXXX, a pair of surrogates, or {X...}. */
static uint32_t parse_unicode(struct parser *p)
{
    uint32_t c = 0, low;
    if (take(p, "{")) {
        size_t digits = 0;
        while (p->at + digits < p->size && p->text[p->at + digits] != '}' && digits < 8)
            digits++;
        if (digits == 0 || !parse_hex(p, digits, &c) || !take(p, "}") || c > 0x10FFFF)
            fail(p, "a bad \\u{...}");
        return c;
    }
    if (!parse_hex(p, 4, &c)) {
        fail(p, "a bad \\u escape");
        return 0;
    }
    size_t before = p->at;
    if (c >= 0xD800 && c <= 0xDBFF && take(p, "\\u")) {
        if (parse_hex(p, 4, &low) && low >= 0xDC00 && low <= 0xDFFF)
            return 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
        p->at = before;
    }
    return c;
}

/* After \p or \P: {name}. */
static void parse_property(struct parser *p, bool negated, struct gs_char_set *set)
{
    size_t begin = p->at + 1, end = begin;
    while (end < p->size && p->text[end] != '}')
        end++;
    if (p->at >= p->size || p->text[p->at] != '{' || end >= p->size) {
        fail(p, "\\p without {name}");
        return;
    }
    struct gs_text name = {p->text + begin, end - begin};
    char class = gs_text_is(name, "L") || gs_text_is(name, "Letter")   ? 'L'
                 : gs_text_is(name, "N") || gs_text_is(name, "Number") ? 'N'
                                                                       : 0;
    p->at = end + 1;
    if (!class)
        p->supported = false;
    else
        add_class(p, class, negated, set);
}

/* After the backslash. True: one character, *c. False: a class was added to the set, or it failed. */
static bool parse_escape(struct parser *p, struct gs_char_set *set, bool in_class, uint32_t *c)
{
    static const char letters[] = "tnrvf", values[] = "\t\n\r\v\f";
    if (!more(p)) {
        fail(p, "a backslash at the end");
        return false;
    }
    size_t length;
    uint32_t e = gs_utf8_decode(p->text + p->at, p->size - p->at, &length);
    p->at += length;
    const char *letter = e < 0x80 && e ? strchr(letters, (int)e) : NULL;
    if (letter) {
        *c = (uint32_t)values[letter - letters];
    } else if (e == '0' && !(p->at < p->size && p->text[p->at] >= '0' && p->text[p->at] <= '9')) {
        *c = 0;
    } else if (e == 'x') {
        if (!parse_hex(p, 2, c))
            fail(p, "a bad \\x escape");
    } else if (e == 'u') {
        *c = parse_unicode(p);
    } else if (e == 'c' && p->at < p->size &&
               ((p->text[p->at] | 32) >= 'a' && (p->text[p->at] | 32) <= 'z')) {
        *c = (uint32_t)p->text[p->at++] & 31;
    } else if (e == 'b' && in_class) {
        *c = '\b';
    } else if (e < 0x80 && e && strchr("dDwWsS", (int)e)) {
        add_class(p, (char)(e | 32), e < 'a', set);
        return false;
    } else if (e == 'p' || e == 'P') {
        parse_property(p, e == 'P', set);
        return false;
    } else if ((e >= '0' && e <= '9') || (e >= 'a' && e <= 'z') || (e >= 'A' && e <= 'Z')) {
        p->supported = false;
        return false;
    } else {
        *c = e;
    }
    return p->status == GS_OK;
}

static uint32_t next_char(struct parser *p)
{
    size_t length;
    uint32_t c = gs_utf8_decode(p->text + p->at, p->size - p->at, &length);
    p->at += length;
    return c;
}

/* One end of a range in [...]; false if it was a class such as \d. */
static bool parse_member(struct parser *p, struct gs_char_set *set, uint32_t *c)
{
    if (take(p, "\\"))
        return parse_escape(p, set, true, c);
    *c = next_char(p);
    return true;
}

/* After "[". */
static struct node *parse_set(struct parser *p)
{
    struct gs_char_set set = {0};
    bool negated = p->complement = take(p, "^");
    while (more(p) && !looking_at(p, "]")) {
        uint32_t first, last;
        bool single = parse_member(p, &set, &first);
        if (more(p) && looking_at(p, "-") && p->at + 1 < p->size && p->text[p->at + 1] != ']') {
            p->at++;
            bool also = parse_member(p, &set, &last);
            if (single && also && last < first)
                fail(p, "a range in the wrong order");
            else if (single && also)
                add(p, &set, first, last);
            else if (p->status == GS_OK && p->supported)
                fail(p, "a range that begins or ends with a class");
        } else if (single) {
            add(p, &set, first, first);
        }
        if (p->status == GS_OK)
            p->status = gs_budget_work(p->budget, 1, p->error);
    }
    p->complement = false;
    if (p->status == GS_OK && !take(p, "]"))
        fail(p, "a [ without ]");
    gs_char_set_normalise(&set);
    if (p->status == GS_OK && negated)
        p->status = gs_char_set_complement(&set, p->error);
    return make_class(p, &set);
}

/* After "(". */
static struct node *parse_group(struct parser *p)
{
    if (take(p, "?")) {
        if (looking_at(p, "=") || looking_at(p, "!") || looking_at(p, "<=") || looking_at(p, "<!")) {
            p->supported = false;
        } else if (take(p, "<") || take(p, "P<")) {
            while (more(p) && !looking_at(p, ">"))
                p->at++;
            if (!take(p, ">"))
                return fail(p, "a group's name without >");
        } else if (!take(p, ":")) {
            return fail(p, "an unknown kind of group");
        }
    }
    struct node *inside = p->supported ? parse_choice(p) : NULL;
    if (p->status == GS_OK && p->supported && !take(p, ")"))
        return fail(p, "a ( without )");
    return inside;
}

static struct node *parse_atom(struct parser *p)
{
    struct gs_char_set set = {0};
    uint32_t c;
    if (take(p, "^"))
        return make(p, BEGIN, NULL, NULL);
    if (take(p, "$"))
        return make(p, END, NULL, NULL);
    if (take(p, "("))
        return parse_group(p);
    if (take(p, "["))
        return parse_set(p);
    if (take(p, ".")) {
        p->status = gs_char_class('.', false, &set, p->error);
        return make_class(p, &set);
    }
    if (looking_at(p, "*") || looking_at(p, "+") || looking_at(p, "?"))
        return fail(p, "nothing to repeat");
    if (!take(p, "\\"))
        return make_char(p, next_char(p));
    if (!parse_escape(p, &set, false, &c)) {
        gs_char_set_normalise(&set);
        return make_class(p, &set);
    }
    return make_char(p, c);
}

static bool parse_number(const struct parser *p, size_t *at, uint32_t *value)
{
    size_t begin = *at;
    *value = 0;
    for (; *at < p->size && p->text[*at] >= '0' && p->text[*at] <= '9'; ++*at)
        *value = *value > MAX_REPEAT ? *value : *value * 10 + (uint32_t)(p->text[*at] - '0');
    return *at > begin;
}

/* {n}, {n,} or {n,m}; anything else is text. */
static bool parse_bounds(struct parser *p, uint32_t *min, uint32_t *max)
{
    size_t at = p->at + 1;
    if (!looking_at(p, "{"))
        return false;
    if (!parse_number(p, &at, min)) {
        /* Python's {0,m}, and text for ECMA. */
        p->supported &= at >= p->size || p->text[at] != ',';
        return false;
    }
    *max = *min;
    if (at < p->size && p->text[at] == ',') {
        at++;
        if (!parse_number(p, &at, max))
            *max = NO_LIMIT;
    }
    if (at >= p->size || p->text[at] != '}')
        return false;
    p->at = at + 1;
    if (*max < *min || *min > MAX_REPEAT || (*max > MAX_REPEAT && *max != NO_LIMIT))
        fail(p, "bad bounds of a repeat");
    return true;
}

static struct node *parse_repeats(struct parser *p)
{
    struct node *atom = parse_atom(p);
    while (more(p) && p->supported) {
        uint32_t min = 0, max = NO_LIMIT;
        if (take(p, "*")) {
        } else if (take(p, "+")) {
            min = 1;
        } else if (take(p, "?")) {
            max = 1;
        } else if (!parse_bounds(p, &min, &max)) {
            break;
        }
        take(p, "?"); /* lazy: the same language */
        if (p->status == GS_OK && (atom->kind == BEGIN || atom->kind == END || atom->kind == REPEAT))
            return fail(p, "nothing to repeat");
        atom = make(p, REPEAT, atom, NULL);
        if (atom) {
            atom->min = min;
            atom->max = max;
        }
    }
    return atom;
}

static struct node *parse_sequence(struct parser *p)
{
    struct node *all = make(p, EMPTY, NULL, NULL);
    while (more(p) && p->supported && !looking_at(p, "|") && !looking_at(p, ")"))
        all = make(p, SEQUENCE, all, parse_repeats(p));
    return all;
}

static struct node *parse_choice(struct parser *p)
{
    if (++p->depth > MAX_NESTING)
        return fail(p, "groups nested too deeply");
    struct node *all = parse_sequence(p);
    while (p->supported && take(p, "|"))
        all = make(p, CHOICE, all, parse_sequence(p));
    p->depth--;
    return all;
}

/* ---------------------------------------------------------------- to an automaton */

static void emit(struct gs_nfa *nfa, const struct node *node, uint32_t from, uint32_t to);

static void emit_repeat(struct gs_nfa *nfa, const struct node *node, uint32_t from, uint32_t to)
{
    uint32_t at = from;
    for (uint32_t i = 0; i < node->min && nfa->status == GS_OK; i++) {
        uint32_t next = gs_nfa_node(nfa);
        emit(nfa, node->left, at, next);
        at = next;
    }
    if (node->max == NO_LIMIT) {
        uint32_t loop = gs_nfa_node(nfa);
        gs_nfa_edge(nfa, at, loop, GS_NFA_EMPTY, 0, 0);
        emit(nfa, node->left, loop, loop);
        at = loop;
    }
    for (uint32_t i = node->min; i < node->max && node->max != NO_LIMIT && nfa->status == GS_OK; i++) {
        uint32_t next = gs_nfa_node(nfa);
        gs_nfa_edge(nfa, at, to, GS_NFA_EMPTY, 0, 0);
        emit(nfa, node->left, at, next);
        at = next;
    }
    gs_nfa_edge(nfa, at, to, GS_NFA_EMPTY, 0, 0);
}

/* Sequences and choices grow to the left: the loop keeps the recursion as deep as the groups. */
static void emit(struct gs_nfa *nfa, const struct node *node, uint32_t from, uint32_t to)
{
    for (; nfa->status == GS_OK && (node->kind == SEQUENCE || node->kind == CHOICE); node = node->left) {
        if (node->kind == CHOICE) {
            emit(nfa, node->right, from, to);
        } else {
            uint32_t middle = gs_nfa_node(nfa);
            emit(nfa, node->right, middle, to);
            to = middle;
        }
    }
    if (nfa->status != GS_OK)
        return;
    if (node->kind == EMPTY)
        gs_nfa_edge(nfa, from, to, GS_NFA_EMPTY, 0, 0);
    else if (node->kind == CLASS)
        gs_nfa_chars(nfa, from, to, &node->set);
    else if (node->kind == REPEAT)
        emit_repeat(nfa, node, from, to);
    else
        gs_nfa_edge(nfa, from, to, node->kind == BEGIN ? GS_NFA_BEGIN : GS_NFA_END, 0, 0);
}

/* Any characters, the pattern, any characters. */
static gs_status build(const struct node *pattern, struct gs_schema_budget *budget, struct gs_dfa *out,
                       struct gs_error *error)
{
    struct gs_nfa nfa = {.budget = budget, .error = error};
    uint32_t start = gs_nfa_node(&nfa), before = gs_nfa_node(&nfa), after = gs_nfa_node(&nfa);
    gs_nfa_edge(&nfa, start, before, GS_NFA_EMPTY, 0, 0);
    gs_nfa_char_range(&nfa, start, start, 0, 0x10FFFF);
    emit(&nfa, pattern, before, after);
    gs_nfa_char_range(&nfa, after, after, 0, 0x10FFFF);
    gs_status status = gs_dfa_build(&nfa, start, after, 1, out);
    if (status == GS_OK)
        status = gs_dfa_quote(out, budget, error);
    gs_nfa_free(&nfa);
    return status;
}

gs_status gs_regex_dfa(struct gs_text pattern, struct gs_schema_budget *budget, struct gs_dfa *out,
                       bool *supported, struct gs_error *error)
{
    struct parser p = {
        .text = pattern.bytes, .size = pattern.size, .budget = budget, .supported = true, .error = error};
    *out = (struct gs_dfa){0};
    struct node *root = parse_choice(&p);
    if (p.status == GS_OK && p.supported && p.at < p.size)
        fail(&p, "a ) without (");
    *supported = p.supported;
    if (p.status == GS_OK && p.supported)
        p.status = build(root, budget, out, error);
    gs_arena_free(&p.arena);
    return p.status;
}

/* ---------------------------------------------------------------- strings */

gs_status gs_dfa_string(uint32_t min, uint32_t max, struct gs_schema_budget *budget, struct gs_dfa *dfa,
                        struct gs_error *error)
{
    struct gs_nfa nfa = {.budget = budget, .error = error};
    uint32_t start = gs_nfa_node(&nfa), accept = gs_nfa_node(&nfa), at = start;
    uint32_t n = max == UINT32_MAX ? min : max;
    for (uint32_t i = 0; i <= n && nfa.status == GS_OK; i++) {
        if (i >= min)
            gs_nfa_edge(&nfa, at, accept, GS_NFA_EMPTY, 0, 0);
        uint32_t next = at;
        if (i < n)
            next = gs_nfa_node(&nfa);
        if (i < n || max == UINT32_MAX)
            gs_nfa_char_range(&nfa, at, next, 0, 0x10FFFF);
        at = next;
    }
    gs_status status = gs_dfa_build(&nfa, start, accept, 1, dfa);
    if (status == GS_OK)
        status = gs_dfa_quote(dfa, budget, error);
    gs_nfa_free(&nfa);
    return status;
}
