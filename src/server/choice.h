/*
 * One choice of a request: tokens become events. It knows when to stop, and nothing of where tokens come from
 * but a source of them; the scheduler decides when it is its turn.
 */
#ifndef GS_SERVER_CHOICE_H
#define GS_SERVER_CHOICE_H

#include "chat/assemble.h"
#include "chat/markers.h"
#include "engine/sample.h"
#include "engine/source.h"
#include "server/events.h"
#include "server/request.h"
#include "server/steer.h"
#include "server/stop_filter.h"

struct gs_choice;

struct gs_choice_options {
    const struct gs_request *request; /* borrowed, as all */
    const struct gs_tokens *prompt;
    size_t index;
    const struct gs_vocab *vocab;
    size_t n_vocab;                   /* of the logits */
    const struct gs_markers *markers; /* of a chat */
    const int32_t *stop_ids;          /* [n_stop_id], of raw text */
    size_t n_stop_id;
    uint64_t seed;
    const char *script;                    /* NULL: logits are given */
    size_t generation;                     /* of the script */
    int64_t limit;                         /* tokens at most; -1: none */
    _Atomic uint64_t *sampler_nanoseconds; /* the time of drawing is added here */
    void (*emit)(void *user, const struct gs_event *event);
    void *user;
};

gs_status gs_choice_open(const struct gs_choice_options *options, struct gs_choice **out,
                         struct gs_error *error);
void gs_choice_close(struct gs_choice *choice);

/*
 * May the next n tokens (at most GS_AHEAD_TOKENS) be chosen where the logits are: does nothing else need
 * them? *draws [n], valid until the next step: how; NULL: greedily.
 */
bool gs_choice_lets_choose(struct gs_choice *choice, size_t n, const struct gs_draw **draws);

/* How many more it takes at most; -1: not known. */
int64_t gs_choice_left(const struct gs_choice *choice);

/*
 * Draws already what the next step will draw from the same logits, which stay until then. Different choices
 * may do so on different threads at once. Does nothing where a draw hangs on what choices share.
 */
void gs_choice_draw(struct gs_choice *choice, const float *logits);

/*
 * Draws the next token and makes events of it. logits [n_vocab]; NULL: from the script. `chosen`: the token
 * that was chosen so, and no logits are looked at; -1: none was. *token is what a model is to be given next,
 * -1 if the choice has ended (its last event was CHOICE_DONE). Errors: memory, and GS_NON_FINITE.
 */
gs_status gs_choice_step(struct gs_choice *choice, const float *logits, int32_t chosen, int32_t *token,
                         struct gs_error *error);

/* For an echoed prompt with logprobs: logits [n_vocab] after token `row` of the prompt. */
gs_status gs_choice_prompt_row(struct gs_choice *choice, size_t row, const float *logits,
                               struct gs_error *error);

/* The prompt itself, for an echo; once, before the first step. */
gs_status gs_choice_echo(struct gs_choice *choice, struct gs_error *error);

bool gs_choice_ended(const struct gs_choice *choice);
size_t gs_choice_count(const struct gs_choice *choice);     /* tokens generated */
size_t gs_choice_reasoning(const struct gs_choice *choice); /* of these in reasoning */

/* What must stand behind the prompt although nothing drew it: the header of a forced call. */
const struct gs_tokens *gs_choice_forced(const struct gs_choice *choice);

/* The turn, for the memory of calls: its tokens and their meaning; NULL without calls. */
const struct gs_answer *gs_choice_answer(const struct gs_choice *choice, const struct gs_tokens **tokens,
                                         const char *const **call_ids);

#endif
