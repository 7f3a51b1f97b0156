/* What stands in harmony's system and developer messages: sections, tools, response formats. */
#ifndef GS_CHAT_HARMONY_TEXT_H
#define GS_CHAT_HARMONY_TEXT_H

#include "chat/conversation.h"

/* has_functions: functions are declared in a developer message of the same conversation. */
void gs_write_system(struct gs_writer *writer, const struct gs_system_content *system, bool has_functions,
                     bool reference_arrays);

void gs_write_developer(struct gs_writer *writer, const struct gs_developer_content *developer,
                        bool reference_arrays);

#endif
