/* The model's answer: turns and calls, until one comes that is for the person. */
#include "cli/chat.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"

#include <stdlib.h>
#include <string.h>

#define MAX_ROUNDS 50 /* of calls in one turn: more is a model that turns in circles */

/* Why an answer is not whole, in one line. */
static void say_end(const struct gs_chat *chat, const struct gs_turn *turn)
{
    const struct gs_view *view = &chat->view;
    bool thinking = turn->answer.content.size == 0 && turn->n_reasoning > 0;
    const char *where = thinking ? ", in the reasoning: there is no answer" : "";
    if (turn->end == GS_TURN_INTERRUPTED)
        gs_view_say(view, "stopped; what was said stays in the conversation (/retry, /undo)");
    else if (turn->end == GS_TURN_LIMIT)
        gs_view_say(view, "the limit of %lld tokens was reached%s", (long long)chat->setup.settings->n_tokens,
                    where);
    else if (turn->end == GS_TURN_FULL)
        gs_view_say(view, "the context of %lld tokens is full%s: /undo, /clear, or a larger --ctx",
                    (long long)chat->setup.plan.n_ctx, where);
    else if (turn->end == GS_TURN_RAN_OUT)
        gs_view_say(view, "the script ran out%s", where);
    if (turn->end != GS_TURN_STOP && turn->answer.n_call > 0)
        gs_view_say(view, "a call was cut off: it is not made");
}

/* The results of the last `n_call` calls, in their order. */
static gs_status make_calls(struct gs_chat *chat, const struct gs_turn *turn, size_t n_call, bool *stopped,
                            struct gs_error *error)
{
    struct gs_buffer result = {0};
    gs_status status = gs_buffer_append(&result, "", 0, error);
    *stopped = false;
    for (size_t i = 0; i < n_call && status == GS_OK; i++) {
        if (*stopped)
            gs_buffer_clear(&result);
        if (*stopped)
            status = gs_buffer_append_text(&result, "[stopped by the user]", error);
        else
            status = gs_tool_call(&chat->tools, turn->conversation, &turn->answer.calls[i], &result, stopped,
                                  error);
        if (status == GS_OK)
            status = gs_dialog_add_result(&chat->dialog, chat->dialog.n_call - n_call + i, result.data,
                                          result.size, error);
    }
    gs_buffer_free(&result);
    return status;
}

/* One round: a turn, its place in the conversation, its calls. *goes_on: their results are to be answered. */
static gs_status answer_once(struct gs_chat *chat, struct gs_sums *sums, bool *goes_on,
                             struct gs_error *error)
{
    bool after_result = sums->n_answer > 0;
    struct gs_conversation conversation = {0};
    struct gs_turn turn = {.setup = &chat->setup,
                           .timeline = &chat->timeline,
                           .output = &chat->output,
                           .conversation = &conversation,
                           .replay = chat->dialog.replay,
                           .after_result = after_result,
                           .generation = chat->generation++,
                           .fn = gs_view_event,
                           .user = &chat->view};
    size_t n_call = 0;
    bool stopped = false;
    *goes_on = false;
    gs_status status = gs_dialog_build(&chat->dialog, &conversation, error);
    if (status == GS_OK) {
        gs_view_begin(&chat->view, after_result);
        gs_interrupt_rearm();
        if (gs_line_is_interactive(chat->reader))
            gs_terminal_echo(false);
        status = gs_turn_run(&turn, error);
        if (gs_line_is_interactive(chat->reader))
            gs_terminal_echo(true);
    }
    if (status == GS_OK) {
        gs_sums_add(sums, &turn);
        gs_sums_add(&chat->sums, &turn);
        say_end(chat, &turn);
        status = gs_dialog_add_answer(&chat->dialog, &turn, &n_call, error);
    }
    if (status == GS_OK && n_call > 0)
        status = make_calls(chat, &turn, n_call, &stopped, error);
    *goes_on = status == GS_OK && n_call > 0 && !stopped;
    gs_turn_free(&turn);
    gs_conversation_free(&conversation);
    return status;
}

gs_status gs_chat_answer(struct gs_chat *chat, struct gs_error *error)
{
    bool goes_on = true;
    struct gs_sums sums = {0};
    gs_status status = GS_OK;
    while (status == GS_OK && goes_on && sums.n_answer < MAX_ROUNDS)
        status = answer_once(chat, &sums, &goes_on, error);
    if (status == GS_OK && goes_on)
        gs_view_say(&chat->view, "stopped after %d rounds of calls", MAX_ROUNDS);
    if (sums.n_answer > 0)
        gs_view_status(&chat->view, &sums, chat->setup.plan.n_ctx);
    if (status == GS_CONTEXT_FULL) {
        gs_view_say(&chat->view, "%s", error->message);
        if (sums.n_answer == 0) { /* nothing of it was run: as if it had not been said */
            gs_dialog_cut(&chat->dialog, gs_dialog_last(&chat->dialog, "user"));
            gs_view_say(&chat->view, "your message was not taken; /undo or /clear make room");
        }
        status = GS_OK;
    }
    return status;
}
