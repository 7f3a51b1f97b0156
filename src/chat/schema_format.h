/* The values of `format` that are enforced, as patterns. */
#ifndef GS_CHAT_SCHEMA_FORMAT_H
#define GS_CHAT_SCHEMA_FORMAT_H

#include "chat/writer.h"

/* NULL for a format that is an annotation here. */
const char *gs_format_pattern(struct gs_text name);

#endif
