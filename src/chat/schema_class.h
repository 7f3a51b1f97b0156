/* The named classes of patterns as character sets. */
#ifndef GS_CHAT_SCHEMA_CLASS_H
#define GS_CHAT_SCHEMA_CLASS_H

#include "chat/schema_automaton.h"

/*
 * Adds . d w s L N or their complement. A class is what ECMA and Python's re agree on, and so is the
 * complement: neither holds a character about which they differ.
 */
gs_status gs_char_class(char name, bool negated, struct gs_char_set *set, struct gs_error *error);

#endif
