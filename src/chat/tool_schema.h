/*
 * A JSON schema as the TypeScript-like type that harmony prompts have. Any JSON value is accepted: what the
 * form cannot express becomes the nearest wider type, at the end `any`. References are not followed.
 */
#ifndef GS_CHAT_TOOL_SCHEMA_H
#define GS_CHAT_TOOL_SCHEMA_H

#include "chat/writer.h"

#include <jansson.h>

#define GS_SCHEMA_MAX_DEPTH 64 /* what is nested deeper is `any` */

/*
 * reference_arrays: an array without items is `Array<any>`, as openai-harmony has it, instead of `any[]`.
 */
void gs_write_schema(struct gs_writer *writer, const json_t *schema, bool reference_arrays);

#endif
