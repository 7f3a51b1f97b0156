/* Can a value satisfy two branches of oneOf? If that is excluded, oneOf is the same as anyOf. */
#ifndef GS_CHAT_SCHEMA_DISJOINT_H
#define GS_CHAT_SCHEMA_DISJOINT_H

#include "chat/schema_compile.h"

/* *disjoint: provably, no value of these types satisfies two of the branches [n]. */
gs_status gs_schema_disjoint(struct gs_compiler *c, const struct gs_alternatives *branches, size_t n,
                             unsigned types, bool *disjoint);

#endif
