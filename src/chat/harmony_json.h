/*
 * The message form of openai-harmony: role, name, recipient, channel, content_type, and content as a text or
 * as a list of text, system_content and developer_content. For tools and tests that speak of harmony itself.
 */
#ifndef GS_CHAT_HARMONY_JSON_H
#define GS_CHAT_HARMONY_JSON_H

#include "chat/conversation.h"

/*
 * `request`: an array of messages, or an object with them under "messages". On failure (GS_INVALID_ARGUMENT
 * with the JSON path and what is expected) `out` is to be freed all the same.
 */
gs_status gs_conversation_from_harmony(json_t *request, struct gs_conversation *out, struct gs_error *error);

#endif
