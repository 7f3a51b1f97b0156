/*
 * Where the output is not free: a response format, strict tools, a tool choice, a budget of reasoning. A plan
 * is made once for a request and shared by its choices; a steer follows the tokens of one choice and says
 * which may come next.
 *
 * Reasoning is never touched, but that it ends where its budget does: at the next token then the message is
 * closed and the model has to choose between an answer and, where there may be one, a call. A format acts
 * inside the final message alone, a tool's schema inside the arguments of its calls. Raw text has no
 * messages: a format acts from its first token on. Where a source goes against a mask (a script of ids can),
 * the steer lets go.
 */
#ifndef GS_SERVER_STEER_H
#define GS_SERVER_STEER_H

#include "chat/harmony_parse.h"
#include "chat/markers.h"
#include "server/grammar_cache.h"
#include "server/request.h"

struct gs_steer_plan;
struct gs_steer;

/* What a model brings to it; one for the server. */
struct gs_steer_tools {
    const struct gs_vocab *vocab;
    size_t n_vocab;
    struct gs_markers markers;
    const struct gs_token_trie *trie; /* NULL: the vocabulary cannot be masked */
    struct gs_grammar_cache *grammars;
};

/*
 * The plan for request->tool_choice, tools and format; *out NULL: all is free. 400 for a schema that cannot
 * be honoured where it must be (a response format, a strict tool), else request->warnings says what was not.
 */
int gs_steer_plan_make(const struct gs_steer_tools *tools, struct gs_request *request,
                       struct gs_steer_plan **out, struct gs_api_error *error);
void gs_steer_plan_free(struct gs_steer_plan *plan);

/* Tokens that go behind the prompt undrawn. */
const struct gs_tokens *gs_steer_plan_forced(const struct gs_steer_plan *plan);

/* Borrows the plan. It begins behind the forced tokens. */
gs_status gs_steer_open(const struct gs_steer_plan *plan, struct gs_steer **out, struct gs_error *error);
void gs_steer_close(struct gs_steer *steer);

/* *words [(n_vocab + 63) / 64] as gs_sampler_draw_masked takes them; NULL: all. Valid until the next call. */
gs_status gs_steer_allowed(struct gs_steer *steer, const uint64_t **words, struct gs_error *error);

/* Where the output stands after a token; zero in raw text. */
struct gs_steer_place {
    bool in_body;              /* the next ordinary token is text of a message */
    enum gs_message_kind kind; /* of that message */
    struct gs_text call;       /* of a CALL: the function's name */
};

/* The token that was drawn, and where it led. */
gs_status gs_steer_take(struct gs_steer *steer, int32_t id, const struct gs_steer_place *place,
                        struct gs_error *error);

#endif
