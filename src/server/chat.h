/* POST /v1/chat/completions. */
#ifndef GS_SERVER_CHAT_H
#define GS_SERVER_CHAT_H

#include "server/http.h"

gs_handler_fn gs_chat_completions;

#endif
