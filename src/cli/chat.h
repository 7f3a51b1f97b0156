/* gossamer chat: what a conversation in the terminal holds, for its loop (chat.c) and its slash commands. */
#ifndef GS_CLI_CHAT_H
#define GS_CLI_CHAT_H

#include "cli/chat_tools.h"
#include "cli/chat_view.h"
#include "cli/dialog.h"
#include "cli/line.h"

struct gs_chat_settings {
    struct gs_setup_settings setup;
    const char *system, *effort, *tools, *tool_command, *load, *date;
    bool no_date, no_snapshot, no_history, keep_control, show_reasoning;
};

struct gs_chat {
    struct gs_chat_settings settings;
    struct gs_setup setup;
    struct gs_timeline timeline;
    struct gs_dialog dialog;
    struct gs_output output;
    struct gs_view view;
    struct gs_line_reader *reader;
    struct gs_tool_runner tools;
    struct gs_buffer state_folder; /* with a slash at its end; empty: there is none */
    struct gs_buffer name;         /* under which the conversation was saved or loaded last */
    struct gs_sums sums;           /* of the whole conversation */
    size_t generation;             /* of a script: the next line */
};

/* chat_answer.c. Answers what the conversation ends in, calls and all. Failures that leave the conversation
 * usable are said, not returned, or are said by the loop, which goes on. */
gs_status gs_chat_answer(struct gs_chat *chat, struct gs_error *error);

enum gs_chat_next { GS_CHAT_GO_ON, GS_CHAT_ANSWER, GS_CHAT_QUIT };

/* Is a line a command: a slash and a word? "//" at its start is a text that begins with a slash. */
bool gs_chat_is_command(const char *line);

/* Runs one. What a person did wrong is said, not returned. */
gs_status gs_chat_command(struct gs_chat *chat, const char *line, enum gs_chat_next *next,
                          struct gs_error *error);

/* The commands' names with their slashes, for the tab key; ends with NULL. */
extern const char *const gs_chat_command_names[];

/*
 * chat_store.c: saving and loading by name or path. What went wrong with saving is said, not returned; where
 * loading fails the conversation is as it was.
 */
gs_status gs_chat_save(struct gs_chat *chat, const char *name, struct gs_error *error);
gs_status gs_chat_load(struct gs_chat *chat, const char *name, struct gs_error *error);

#endif
