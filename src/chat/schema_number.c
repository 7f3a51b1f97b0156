#include "chat/schema_number.h"

#include "base/status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_INTEGER_DIGITS 19
#define MAX_DECIMAL_DIGITS 15
#define MAX_WHOLE_DIGITS   18
#define MAX_FRACTION       17
#define BOUND_FRACTION     24 /* digits kept of a bound's fraction: more than a text can have */

bool gs_number_as_integer(const json_t *number, int64_t *value)
{
    if (json_is_integer(number)) {
        *value = json_integer_value(number);
        return true;
    }
    double real = json_is_real(number) ? json_real_value(number) : 0.5;
    if (__builtin_fabs(real) > 0x1p62 || real != (double)(int64_t)real)
        return false;
    *value = (int64_t)real;
    return true;
}

/* ---------------------------------------------------------------- syntax */

static void digit(struct gs_nfa *nfa, uint32_t from, uint32_t to, char first)
{
    gs_nfa_edge(nfa, from, to, GS_NFA_BYTES, (uint8_t)first, '9');
}

/* "." and 1 ... count digits, each of which may be followed by what follows `accept`. */
static void add_fraction(struct gs_nfa *nfa, uint32_t from, uint32_t accept, int count)
{
    if (count <= 0)
        return;
    uint32_t at = gs_nfa_node(nfa);
    gs_nfa_edge(nfa, from, at, GS_NFA_BYTES, '.', '.');
    for (int i = 0; i < count; i++) {
        uint32_t next = gs_nfa_node(nfa);
        digit(nfa, at, next, '0');
        gs_nfa_edge(nfa, next, accept, GS_NFA_EMPTY, 0, 0);
        at = next;
    }
}

static void add_exponent(struct gs_nfa *nfa, uint32_t from, uint32_t accept)
{
    uint32_t sign = gs_nfa_node(nfa), first = gs_nfa_node(nfa), second = gs_nfa_node(nfa);
    gs_nfa_edge(nfa, from, sign, GS_NFA_BYTES, 'e', 'e');
    gs_nfa_edge(nfa, from, sign, GS_NFA_BYTES, 'E', 'E');
    gs_nfa_edge(nfa, sign, first, GS_NFA_EMPTY, 0, 0);
    gs_nfa_edge(nfa, sign, first, GS_NFA_BYTES, '+', '+');
    gs_nfa_edge(nfa, sign, first, GS_NFA_BYTES, '-', '-');
    digit(nfa, first, second, '0');
    gs_nfa_edge(nfa, second, accept, GS_NFA_EMPTY, 0, 0);
    digit(nfa, second, accept, '0');
}

gs_status gs_number_dfa(enum gs_number_form form, struct gs_schema_budget *budget, struct gs_dfa *out,
                        struct gs_error *error)
{
    struct gs_nfa nfa = {.budget = budget, .error = error};
    int longest = form == GS_NUMBER_ANY ? MAX_WHOLE_DIGITS : MAX_INTEGER_DIGITS;
    uint32_t start = gs_nfa_node(&nfa), positive = gs_nfa_node(&nfa), whole = gs_nfa_node(&nfa),
             accept = gs_nfa_node(&nfa);
    gs_nfa_edge(&nfa, start, positive, GS_NFA_EMPTY, 0, 0);
    gs_nfa_edge(&nfa, start, positive, GS_NFA_BYTES, '-', '-');
    for (int length = 1; length <= longest; length++) { /* one chain; a node for each length */
        uint32_t at = gs_nfa_node(&nfa);
        digit(&nfa, length == 1 ? positive : at - 1, at, length == 1 ? '1' : '0');
        gs_nfa_edge(&nfa, at, whole, GS_NFA_EMPTY, 0, 0);
    }
    uint32_t last = (uint32_t)nfa.n_nodes - 1, zero = gs_nfa_node(&nfa);
    /* An integer's zero has no sign. */
    gs_nfa_edge(&nfa, form == GS_NUMBER_INTEGER ? start : positive, zero, GS_NFA_BYTES, '0', '0');
    gs_nfa_edge(&nfa, zero, whole, GS_NFA_EMPTY, 0, 0);
    if (form == GS_NUMBER_DECIMAL) {
        add_fraction(&nfa, zero, accept, MAX_DECIMAL_DIGITS - 1);
        for (int length = 1; length < MAX_DECIMAL_DIGITS; length++)
            add_fraction(&nfa, last - (uint32_t)(longest - length), accept, MAX_DECIMAL_DIGITS - length);
    } else if (form == GS_NUMBER_ANY) {
        uint32_t done = gs_nfa_node(&nfa);
        gs_nfa_edge(&nfa, whole, done, GS_NFA_EMPTY, 0, 0);
        add_fraction(&nfa, whole, done, MAX_FRACTION);
        gs_nfa_edge(&nfa, done, accept, GS_NFA_EMPTY, 0, 0);
        add_exponent(&nfa, done, accept);
    }
    gs_nfa_edge(&nfa, whole, accept, GS_NFA_EMPTY, 0, 0);
    gs_status status = gs_dfa_build(&nfa, start, accept, 1, out);
    gs_nfa_free(&nfa);
    return status;
}

/* ---------------------------------------------------------------- automata over '-', '.' and digits */

enum { CLASS_OTHER = 10, CLASS_MINUS, CLASS_POINT, N_CLASSES };

static void number_classes(struct gs_dfa *dfa)
{
    memset(dfa->class_of, CLASS_OTHER, sizeof dfa->class_of);
    for (int d = 0; d < 10; d++)
        dfa->class_of['0' + d] = (uint8_t)d;
    dfa->class_of['-'] = CLASS_MINUS;
    dfa->class_of['.'] = CLASS_POINT;
}

gs_status gs_number_multiple_dfa(uint32_t divisor, struct gs_schema_budget *budget, struct gs_dfa *out,
                                 struct gs_error *error)
{
    /* States: the start, after the minus, then one for each remainder. */
    gs_status status = gs_budget_states(budget, divisor + 2, error);
    if (status == GS_OK)
        status = gs_budget_work(budget, (size_t)(divisor + 2) * N_CLASSES, error);
    if (status == GS_OK)
        status = gs_dfa_alloc(out, divisor + 2, N_CLASSES, error);
    if (status != GS_OK)
        return status;
    number_classes(out);
    out->next[CLASS_MINUS] = 1;
    for (uint32_t s = 0; s < divisor + 2; s++)
        for (uint32_t d = 0; d < 10; d++)
            out->next[s * N_CLASSES + d] = (uint16_t)(2 + ((s < 2 ? 0 : s - 2) * 10 + d) % divisor);
    out->label[2] = 1;
    return gs_dfa_prune(out, error);
}

/* A bound's decimal digits: exactly, up to what no text can tell. */
struct decimal {
    bool negative;
    char whole[MAX_INTEGER_DIGITS + 3], fraction[BOUND_FRACTION + 2]; /* no zeros in front; none at the end */
};

static void read_digits(const char *digits, int exponent, struct decimal *out)
{
    if (exponent > MAX_INTEGER_DIGITS) { /* beyond all texts: another such bound does as well */
        exponent = MAX_INTEGER_DIGITS + 1;
        digits = "1";
    }
    size_t n = strlen(digits), n_whole = 0, n_fraction = 0;
    for (int place = exponent > 0 ? exponent : 0; place >= 0; place--) { /* of 10^place */
        size_t i = (size_t)(exponent - place);
        out->whole[n_whole++] = exponent >= place && i < n ? digits[i] : '0';
    }
    for (int place = -1; place >= -BOUND_FRACTION; place--) {
        int i = exponent - place;
        out->fraction[n_fraction++] = i >= 0 && (size_t)i < n ? digits[i] : '0';
    }
    /* What lies beyond makes the bound a little larger than what is kept. */
    bool beyond = exponent + BOUND_FRACTION + 1 < (int)n && digits[n - 1] != '0';
    out->fraction[n_fraction++] = beyond ? '1' : '0';
    while (n_fraction > 0 && out->fraction[n_fraction - 1] == '0')
        n_fraction--;
    out->fraction[n_fraction] = out->whole[n_whole] = '\0';
}

/*
 * direction: the side of the bound that is allowed. A real number of 2^63 or more may be an integer that was
 * rounded when it was read: it is moved by one step, so that nothing beyond the integer is allowed.
 */
static void read_bound(const json_t *bound, int direction, struct decimal *out)
{
    char text[64], digits[32];
    *out = (struct decimal){0};
    if (json_is_integer(bound)) {
        gs_format(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(bound));
        out->negative = text[0] == '-';
        gs_format(digits, sizeof digits, "%s", text + out->negative);
        read_digits(digits, (int)strlen(digits) - 1, out);
        return;
    }
    double value = json_real_value(bound);
    bool whole = __builtin_fabs(value) >= 0x1p53 && __builtin_fabs(value) < 0x1p64;
    if (whole && __builtin_fabs(value) >= 0x1p63)
        value = nextafter(value, direction > 0 ? HUGE_VAL : -HUGE_VAL);
    for (int precision = 0; precision < 17 && !whole;
         precision++) { /* the shortest that reads back the same */
        snprintf(text, sizeof text, "%.*e", precision, value);
        if (strtod(text, NULL) == value)
            break;
    }
    if (whole) /* exactly, as integers are compared with it */
        snprintf(text, sizeof text, "%.19e", value);
    out->negative = text[0] == '-' && value != 0;
    const char *at = text + (text[0] == '-');
    size_t n = 0;
    for (; *at && *at != 'e'; at++)
        if (*at != '.')
            digits[n++] = *at;
    digits[n] = '\0';
    read_digits(digits, value != 0 ? atoi(at + 1) : 0, out);
}

/* Where the text's absolute value stands in comparison with the bound's, digit by digit. */
struct place {
    uint8_t negative;
    uint8_t phase; /* 0: nothing read, 1: a minus, 2: before the point, 3: after it */
    int16_t n;     /* digits of this phase, not counted further once it makes no difference */
    int8_t order;  /* of the digits read so far: -1, 0, 1 */
    uint8_t nonzero;
};

struct comparison {
    struct decimal bound;
    int n_whole, n_fraction;
    struct place *places;
    size_t n_places, capacity;
};

static void after_whole(const struct comparison *c, struct place *p)
{
    if (p->n != c->n_whole)
        p->order = p->n < c->n_whole ? -1 : 1;
}

/* The text's value against the bound's, if the text ends here: -1, 0 or 1. */
static int verdict(const struct comparison *c, struct place p)
{
    if (p.phase == 2)
        after_whole(c, &p);
    int order = p.order;
    if (order == 0 && (p.phase == 2 ? 0 : p.n) < c->n_fraction)
        order = -1; /* the bound goes on, and does not end with zeros */
    if (c->bound.negative != (p.negative && p.nonzero))
        return p.negative && p.nonzero ? -1 : 1;
    return c->bound.negative ? -order : order;
}

static bool next_place(const struct comparison *c, struct place *p, int class)
{
    if (class == CLASS_MINUS) {
        bool first = p->phase == 0;
        p->negative = p->phase = 1;
        return first;
    }
    if (class == CLASS_POINT) {
        bool whole = p->phase == 2;
        after_whole(c, p);
        p->phase = 3;
        p->n = 0;
        return whole;
    }
    if (class == CLASS_OTHER)
        return false;
    if (p->phase < 2) {
        p->phase = 2;
        p->n = 0;
    }
    const char *digits = p->phase == 2 ? c->bound.whole : c->bound.fraction;
    int length = p->phase == 2 ? c->n_whole : c->n_fraction, other = p->n < length ? digits[p->n] - '0' : 0;
    if (p->order == 0 && (p->phase == 3 || p->n < length) && class != other)
        p->order = class < other ? -1 : 1;
    p->nonzero |= class > 0;
    p->n = (int16_t)(p->n < length + (p->phase == 2) ? p->n + 1 : p->n);
    if (p->phase == 3 && p->order != 0)
        p->n = 0;
    return true;
}

static gs_status find_place(struct comparison *c, struct place p, uint16_t *state, struct gs_error *error)
{
    for (size_t i = 0; i < c->n_places; i++)
        if (memcmp(&c->places[i], &p, sizeof p) == 0) {
            *state = (uint16_t)i;
            return GS_OK;
        }
    if (c->n_places == c->capacity) {
        size_t capacity = c->capacity ? 2 * c->capacity : 64;
        struct place *places = realloc(c->places, capacity * sizeof *places);
        if (!places)
            return gs_fail_memory(error, capacity * sizeof *places);
        c->places = places;
        c->capacity = capacity;
    }
    c->places[c->n_places] = p;
    *state = (uint16_t)c->n_places++;
    return GS_OK;
}

static gs_status explore(struct comparison *c, struct gs_schema_budget *budget, struct gs_dfa *out,
                         struct gs_error *error)
{
    uint16_t state;
    size_t n_cells = 0;
    uint16_t *next = NULL;
    struct place start;
    memset(&start, 0, sizeof start); /* compared as bytes */
    gs_status status = find_place(c, start, &state, error);
    for (size_t i = 0; i < c->n_places && status == GS_OK; i++) {
        uint16_t *more = realloc(next, (n_cells + N_CLASSES) * sizeof *more);
        if (!more) {
            status = gs_fail_memory(error, (n_cells + N_CLASSES) * sizeof *more);
            break;
        }
        next = more;
        for (int class = 0; class < N_CLASSES && status == GS_OK; class ++) {
            struct place p = c->places[i];
            next[n_cells] = GS_DFA_DEAD;
            if (next_place(c, &p, class))
                status = find_place(c, p, &next[n_cells], error);
            n_cells++;
        }
        if (status == GS_OK)
            status = gs_budget_states(budget, 1, error);
        if (status == GS_OK)
            status = gs_budget_work(budget, N_CLASSES * c->n_places, error);
    }
    if (status == GS_OK)
        status = gs_dfa_alloc(out, c->n_places, N_CLASSES, error);
    if (status == GS_OK)
        memcpy(out->next, next, n_cells * sizeof *next);
    free(next);
    return status;
}

gs_status gs_number_bound_dfa(const json_t *bound, int direction, bool exclusive,
                              struct gs_schema_budget *budget, struct gs_dfa *out, struct gs_error *error)
{
    struct comparison c = {0};
    *out = (struct gs_dfa){0};
    read_bound(bound, direction, &c.bound);
    c.n_whole = (int)strlen(c.bound.whole);
    c.n_fraction = (int)strlen(c.bound.fraction);
    gs_status status = explore(&c, budget, out, error);
    if (status == GS_OK) {
        number_classes(out);
        for (size_t i = 0; i < c.n_places; i++) {
            int order = verdict(&c, c.places[i]);
            bool begun = c.places[i].phase >= 2;
            out->label[i] = begun && (order == 0 ? !exclusive : order == direction);
        }
        status = gs_dfa_prune(out, error);
    }
    free(c.places);
    return status;
}
