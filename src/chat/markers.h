/* The special tokens of harmony, whose ids every vocabulary has for itself. */
#ifndef GS_CHAT_MARKERS_H
#define GS_CHAT_MARKERS_H

#include "gossamer.h"

struct gs_markers {
    int32_t start, end, message, channel, constrain, call, final_return;
    int32_t end_of_text; /* ends a turn too; -1 if the vocabulary has none */
};

/* GS_UNSUPPORTED names the token that the vocabulary lacks. */
gs_status gs_markers_find(const struct gs_vocab *vocab, struct gs_markers *markers, struct gs_error *error);

/* Ends a turn: <|return|>, <|call|>, <|endoftext|>. Never <|end|>, after which the next message follows. */
bool gs_markers_is_stop(const struct gs_markers *markers, int32_t id);

#endif
