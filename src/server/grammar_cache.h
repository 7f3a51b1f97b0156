/*
 * Compiled schemas by their text: a client sends the same ones with every request, and a grammar keeps the
 * masks that it has made. Any thread.
 */
#ifndef GS_SERVER_GRAMMAR_CACHE_H
#define GS_SERVER_GRAMMAR_CACHE_H

#include "chat/schema_mask.h"

struct gs_grammar_cache;

gs_status gs_grammar_cache_open(struct gs_grammar_cache **out, struct gs_error *error);
void gs_grammar_cache_close(struct gs_grammar_cache *cache);

/* As gs_schema_compile; the caller closes the grammar. schema NULL: any JSON object. */
gs_status gs_grammar_cache_get(struct gs_grammar_cache *cache, const json_t *schema, struct gs_grammar **out,
                               struct gs_schema_report *report, struct gs_error *error);

#endif
