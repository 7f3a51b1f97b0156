/* Appending to a gs_tokens (gossamer.h), whose memory belongs to its caller. */
#ifndef GS_TEXT_TOKENS_H
#define GS_TEXT_TOKENS_H

#include "gossamer.h"

/* Room for `extra` more ids. */
gs_status gs_tokens_reserve(struct gs_tokens *tokens, size_t extra, struct gs_error *error);
gs_status gs_tokens_append(struct gs_tokens *tokens, int32_t id, struct gs_error *error);

#endif
