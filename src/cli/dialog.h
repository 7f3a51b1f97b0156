/*
 * A conversation that a person edits: messages in the OpenAI chat form, with what stands above them. It goes
 * to the disk as it is, and becomes tokens through chat/conversation_json.
 */
#ifndef GS_CLI_DIALOG_H
#define GS_CLI_DIALOG_H

#include "chat/conversation_json.h"
#include "chat/replay.h"
#include "cli/turn.h"

struct gs_date {
    char text[32]; /* "2025-06-28"; "": none */
};

/* Today where the person is. */
struct gs_date gs_date_today(void);

/* "2025-06-28"; GS_INVALID_ARGUMENT for another form, or a day that no calendar has. */
gs_status gs_date_parse(const char *text, struct gs_date *date, struct gs_error *error);

/* What --date (NULL: not given) and --no-date say; *date stays if neither is given. Both are refused. */
gs_status gs_date_choose(const char *text, bool none, struct gs_date *date, struct gs_error *error);

struct gs_dialog {
    json_t *messages; /* without the system message */
    json_t *system;   /* its text; NULL: none */
    json_t *tools;    /* declared functions; NULL: none */
    enum gs_effort effort;
    struct gs_date date;
    size_t n_call;            /* that were made so far: the next one's number */
    struct gs_replay *replay; /* calls as they were generated */
};

gs_status gs_dialog_open(struct gs_dialog *dialog, struct gs_error *error);
void gs_dialog_close(struct gs_dialog *dialog);

/* What a command line says about a conversation; NULL: nothing, and that stays. */
struct gs_dialog_options {
    const char *effort, *date, *system, *tools; /* names, a day, a text, a path */
    bool no_date;
};
gs_status gs_dialog_apply(struct gs_dialog *dialog, const struct gs_dialog_options *options,
                          struct gs_error *error);

/* A person's text is read as UTF-8, ill-formed parts of it as U+FFFD; size 0: no system message. */
gs_status gs_dialog_set_system(struct gs_dialog *dialog, const char *text, size_t size,
                               struct gs_error *error);

/* From a file: an array of tools, or an object with one under "tools"; path NULL: none. */
gs_status gs_dialog_set_tools(struct gs_dialog *dialog, const char *path, struct gs_error *error);

/* The conversation as it stands; to be freed on failure too. */
gs_status gs_dialog_build(const struct gs_dialog *dialog, struct gs_conversation *out,
                          struct gs_error *error);

gs_status gs_dialog_add_user(struct gs_dialog *dialog, const char *text, size_t size, struct gs_error *error);

/*
 * The answer of a turn. Its calls are part of it only if they are whole (a turn that was cut off keeps none)
 * and have possible names; *n_call says how many, their numbers end at dialog->n_call - 1.
 */
gs_status gs_dialog_add_answer(struct gs_dialog *dialog, const struct gs_turn *turn, size_t *n_call,
                               struct gs_error *error);
gs_status gs_dialog_add_result(struct gs_dialog *dialog, size_t call, const char *text, size_t size,
                               struct gs_error *error);

/* Number of messages; of the last one of a role, or the count if there is none. */
size_t gs_dialog_count(const struct gs_dialog *dialog);
size_t gs_dialog_last(const struct gs_dialog *dialog, const char *role);

/* Forgets the messages from `count` on. */
void gs_dialog_cut(struct gs_dialog *dialog, size_t count);

/*
 * The messages from `first` on as a list (NULL if memory is out), and back in the place of what stands there
 * by then: for an attempt that may come to nothing.
 */
json_t *gs_dialog_tail(const struct gs_dialog *dialog, size_t first);
gs_status gs_dialog_put_back(struct gs_dialog *dialog, size_t first, json_t *tail, struct gs_error *error);

/* Is there a text, a reasoning or a call in the messages from `first` on? */
bool gs_dialog_says_something(const struct gs_dialog *dialog, size_t first);

void gs_dialog_clear(struct gs_dialog *dialog); /* all messages; what stands above them stays */

/* Written whole or not at all. */
gs_status gs_dialog_save(const struct gs_dialog *dialog, const char *path, struct gs_error *error);

/*
 * Replaces everything by what a file holds; on failure all is as it was. Tokens of past calls are taken only
 * if they are of the vocabulary and hold nothing beside what their message says.
 */
gs_status gs_dialog_load(struct gs_dialog *dialog, const struct gs_vocab *vocab, const char *path,
                         struct gs_error *error);

#endif
