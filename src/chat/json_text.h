/*
 * JSON on one line, as harmony prompts have it: no blanks, keys in their order, non-ASCII as it is, integers
 * as integers, other numbers in the shortest form that reads back the same and never looks like an integer
 * (1.0, 1000.0, 1e30).
 */
#ifndef GS_CHAT_JSON_TEXT_H
#define GS_CHAT_JSON_TEXT_H

#include "chat/writer.h"

#include <jansson.h>

/* Values nested deeper than this are written as null. */
#define GS_JSON_TEXT_MAX_DEPTH 512

void gs_write_json(struct gs_writer *writer, const json_t *value);

/* The text between the quotation marks included. */
void gs_write_json_string(struct gs_writer *writer, struct gs_text text);

/* A JSON string's text; not set if `value` is none. */
struct gs_text gs_json_text(const json_t *value);

#endif
