/* Tools and response formats of the OpenAI forms: what goes into the developer message. */
#ifndef GS_CHAT_TOOLS_JSON_H
#define GS_CHAT_TOOLS_JSON_H

#include "chat/conversation.h"
#include "chat/harmony_header.h"

/* [A-Za-z0-9_-], with dots if they are allowed; 1 ... `most` bytes. */
bool gs_tool_name_valid(struct gs_text name, bool dots, size_t most);

/* Is a function of this name declared in the conversation? */
bool gs_conversation_declares(const struct gs_conversation *conversation, struct gs_text name);

/* The tools of a conversation as the parser of its answer wants them; valid as long as the conversation. */
gs_status gs_conversation_tools(struct gs_conversation *conversation, struct gs_declared_tools *tools,
                                struct gs_error *error);

/*
 * "tools" of a request into the namespace "functions" of `developer` and of the conversation, unless its
 * "tool_choice" is "none". Both spellings of a function: {"type", "function": {"name", ...}} and
 * {"type", "name", ...}. Other types are skipped and listed in the conversation.
 */
gs_status gs_read_tools(bool dotted_names, const json_t *request, struct gs_conversation *conversation,
                        struct gs_developer_content *developer, struct gs_error *error);

/* "response_format": json_schema's name, description and schema; the other types ask for no section. */
gs_status gs_read_response_format(const json_t *request, struct gs_developer_content *developer,
                                  struct gs_error *error);

#endif
