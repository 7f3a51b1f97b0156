/*
 * Numbers as automata over their decimal text. Digits are bounded, so that no number goes on for ever:
 * integers have up to 19, numbers with a bound up to 15 in all (float64 tells those apart, so that comparing
 * texts and comparing values is the same), others 18 before the point, 17 after it and 2 of an exponent.
 */
#ifndef GS_CHAT_SCHEMA_NUMBER_H
#define GS_CHAT_SCHEMA_NUMBER_H

#include "chat/schema_automaton.h"

#include <jansson.h>

#define GS_MAX_MULTIPLE 1000 /* a larger multipleOf is not enforced */

enum gs_number_form {
    GS_NUMBER_INTEGER,
    GS_NUMBER_DECIMAL, /* without exponent, 15 digits */
    GS_NUMBER_ANY,
};
gs_status gs_number_dfa(enum gs_number_form form, struct gs_schema_budget *budget, struct gs_dfa *out,
                        struct gs_error *error);

/* Texts of the first two forms whose value is above (direction 1) or below (-1) the bound, or equals it. */
gs_status gs_number_bound_dfa(const json_t *bound, int direction, bool exclusive,
                              struct gs_schema_budget *budget, struct gs_dfa *out, struct gs_error *error);

/* Integers that `divisor` (1 ... GS_MAX_MULTIPLE) divides. */
gs_status gs_number_multiple_dfa(uint32_t divisor, struct gs_schema_budget *budget, struct gs_dfa *out,
                                 struct gs_error *error);

/* The value as an exact int64: an integer, or a real number without a fraction in that range. */
bool gs_number_as_integer(const json_t *number, int64_t *value);

#endif
