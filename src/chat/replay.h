/*
 * Turns that ended in tool calls, as they were generated, found by the id that was given to a call. With them
 * a client's next request continues the very tokens that the model wrote (so the cache of a session still
 * holds), and reasoning that the client did not send back is there all the same.
 *
 * Bounded in turns and in tokens: the oldest give way. One thread at a time.
 */
#ifndef GS_CHAT_REPLAY_H
#define GS_CHAT_REPLAY_H

#include "chat/assemble.h"

#define GS_REPLAY_MAX_TURNS                                                                                  \
    4096 /* however short: each costs memory of its own, and is looked at in a search */

struct gs_replay;

struct gs_replay_call {
    struct gs_text id, name, arguments;
};

struct gs_replay_turn {
    struct gs_text reasoning, content;
    const struct gs_replay_call *calls; /* [n_call] */
    size_t n_call;
    const struct gs_answer_part *parts; /* [n_part] of the tokens */
    size_t n_part;
    const int32_t *tokens; /* [n_token], what followed <|start|>assistant */
    size_t n_token;
};

/* max_tokens: how many generated tokens are remembered in all. */
gs_status gs_replay_open(size_t max_tokens, struct gs_replay **out, struct gs_error *error);
void gs_replay_close(struct gs_replay *replay);

/*
 * Remembers a turn: the tokens that the parser was fed, and what became of them; call_ids [answer->n_call]
 * are the ids under which the client knows the calls. A turn without calls is not kept. All is copied.
 */
gs_status gs_replay_add(struct gs_replay *replay, const int32_t *tokens, size_t n_token,
                        const struct gs_answer *answer, const char *const *call_ids, struct gs_error *error);

/* NULL if there is none. Valid until the next add. */
const struct gs_replay_turn *gs_replay_find(const struct gs_replay *replay, struct gs_text call_id);

#endif
