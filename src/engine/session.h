/* What other files of the engine need to know of a session; the rest is in gossamer.h. */
#ifndef GS_ENGINE_SESSION_H
#define GS_ENGINE_SESSION_H

#include "gossamer.h"

/* The length of its rows of logits. */
size_t gs_session_vocab(const struct gs_session *session);

#endif
