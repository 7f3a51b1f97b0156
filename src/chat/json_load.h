/*
 * JSON from outside as a tree: strict, NUL in strings allowed, a repeated key refused. An integer beyond 64
 * bits, as schemas have them for limits, becomes the nearest real number instead of an error.
 */
#ifndef GS_CHAT_JSON_LOAD_H
#define GS_CHAT_JSON_LOAD_H

#include "gossamer.h"

#include <jansson.h>

/* GS_MALFORMED with "name: line, column: what is wrong". */
gs_status gs_json_load(const char *name, const char *text, size_t size, json_t **out, struct gs_error *error);

#endif
