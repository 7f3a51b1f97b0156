/*
 * Conversations to tokens. All text is encoded literally; control tokens stand only where this file puts
 * them. Equal to openai-harmony except where docs/harmony.md says so.
 */
#ifndef GS_CHAT_HARMONY_RENDER_H
#define GS_CHAT_HARMONY_RENDER_H

#include "chat/conversation.h"

struct gs_replay;

/* Which reasoning of the past is left out. */
enum gs_drop_rule {
    GS_DROP_COMPLETED, /* of every turn that has its final; never what follows the last user message */
    GS_DROP_REFERENCE, /* openai-harmony's: before the first final, if the last assistant message is one */
    GS_DROP_NONE,
};

enum gs_render_end {
    GS_RENDER_COMPLETION, /* the assistant speaks next: <|start|>assistant */
    GS_RENDER_PLAIN,      /* nothing more */
    GS_RENDER_TRAINING,   /* a last final message ends in <|return|> */
};

/* Zero-initialised it is what a model is to be asked with. */
struct gs_render_options {
    enum gs_drop_rule drop;
    enum gs_render_end end;
    bool reference_arrays;          /* see tool_schema.h */
    const struct gs_replay *replay; /* past calls as they were generated; may be NULL */
};

/*
 * Appends the conversation to `tokens`, and to `text` (may be NULL) as text in which control tokens are
 * written out. GS_UNSUPPORTED for a vocabulary without harmony's tokens, else only GS_OUT_OF_MEMORY.
 */
gs_status gs_harmony_render(const struct gs_vocab *vocab, const struct gs_conversation *conversation,
                            const struct gs_render_options *options, struct gs_tokens *tokens,
                            struct gs_buffer *text, struct gs_error *error);

#endif
