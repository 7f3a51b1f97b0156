/*
 * ECMA-262 patterns (with the u flag) as automata over JSON strings. There is no matcher: time and states are
 * bounded by the budget. Where ECMA and Python's re differ, the narrower reading is taken: what is generated
 * matches under both.
 */
#ifndef GS_CHAT_SCHEMA_REGEX_H
#define GS_CHAT_SCHEMA_REGEX_H

#include "chat/schema_automaton.h"

/*
 * The JSON strings, quotation marks included, in which the pattern is found, with label 1. *supported false
 * (and an empty automaton) for what is no regular language or not known here: look-around, back-references,
 * \b, Unicode properties other than L and N. GS_MALFORMED for a pattern that is broken.
 */
gs_status gs_regex_dfa(struct gs_text pattern, struct gs_schema_budget *budget, struct gs_dfa *out,
                       bool *supported, struct gs_error *error);

#endif
