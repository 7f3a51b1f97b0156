/*
 * The messages of a chat completion, built from a dialect's smaller pieces: reasoning, text and calls that
 * follow each other become one message of the assistant. Each message remembers where it came from, so that
 * an error about messages[3] can name the place that the client knows.
 *
 * Zero-initialise; gs_turns_free releases. Memory that runs out is noticed by gs_turns_take.
 */
#ifndef GS_SERVER_TURNS_H
#define GS_SERVER_TURNS_H

#include "chat/writer.h"
#include "server/api_error.h"

struct gs_turns {
    json_t *messages;
    json_t *origins; /* of each message: "input[2]" */
    json_t *open;    /* the assistant's message that may go on; borrowed from messages */
    bool failed;
};

void gs_turns_free(struct gs_turns *turns);

/* A message that is none of the assistant's. content: kept by reference; call_id: of a tool's result, or
 * NULL. */
void gs_turns_message(struct gs_turns *turns, const char *role, json_t *content, json_t *call_id,
                      const char *origin);

/* Of the assistant. An empty reasoning is none. `content` and `arguments` are kept by reference. */
void gs_turns_reasoning(struct gs_turns *turns, struct gs_text text, const char *origin);
void gs_turns_text(struct gs_turns *turns, json_t *content, const char *origin);
void gs_turns_call(struct gs_turns *turns, struct gs_text id, json_t *name, json_t *arguments,
                   const char *origin);

/* Puts the messages into `chat`; 503 if memory ran out. */
int gs_turns_take(struct gs_turns *turns, json_t *chat, struct gs_api_error *error);

/* What stands for the beginning of a parameter's name in this dialect, or, from a dot on, for its end. */
struct gs_renamed {
    const char *chat, *here;
};

/* An error of the chat's reader in the dialect's words: messages by their origin, others by the table, which
   ends in a NULL. Both the parameter and a message that begins with it. */
void gs_turns_rename(const struct gs_turns *turns, const struct gs_renamed *table,
                     struct gs_api_error *error);

/* The same for lines "PARAMETER: ...". */
void gs_turns_rename_warnings(const struct gs_turns *turns, const struct gs_renamed *table, json_t *warnings);

#endif
