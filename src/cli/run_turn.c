#include "cli/run_turn.h"

#include "base/status.h"
#include "cli/dialog.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/json_text.h"
#include "cli/report.h"

#include <string.h>
#include <unistd.h>

struct show {
    const struct gs_run_settings *settings;
    struct gs_output *output;
    bool color;                /* of standard error */
    struct gs_cleaner cleaner; /* of what goes to a terminal by standard error */
};

static gs_status show_reasoning(struct show *show, struct gs_text text, struct gs_error *error)
{
    struct gs_buffer out = {0};
    gs_status status = gs_is_terminal(STDERR_FILENO) && !show->settings->keep_control
                           ? gs_cleaner_feed(&show->cleaner, text.bytes, text.size, &out, error)
                           : gs_buffer_append(&out, text.bytes, text.size, error);
    if (status == GS_OK && out.size > 0)
        fprintf(stderr, "%s%.*s%s", show->color ? "\033[2m" : "", (int)out.size, out.data,
                show->color ? "\033[22m" : "");
    gs_buffer_free(&out);
    return status;
}

/* A call that nobody reads as JSON: a line on standard error. */
static void show_calls(const struct gs_answer *answer)
{
    for (size_t i = 0; i < answer->n_call; i++)
        fprintf(stderr, "call %s %s\n",
                gs_quote_bytes(answer->calls[i].name.data, answer->calls[i].name.size).text,
                gs_quote_bytes(answer->calls[i].arguments.data, answer->calls[i].arguments.size).text);
}

static gs_status listen(void *user, const struct gs_harmony_event *event, struct gs_error *error)
{
    struct show *show = user;
    bool reasoning = event->kind == GS_MESSAGE_REASONING;
    bool visible = event->kind == GS_MESSAGE_FINAL || event->kind == GS_MESSAGE_PREAMBLE;
    if (event->event == GS_HARMONY_TEXT && visible && !show->settings->json) {
        gs_output_append(show->output, event->text.bytes, event->text.size);
        gs_output_flush(show->output);
    }
    if (!reasoning || !show->settings->show_reasoning)
        return GS_OK;
    if (event->event == GS_HARMONY_MESSAGE)
        fputs("\n\n", stderr);
    return event->event == GS_HARMONY_TEXT ? show_reasoning(show, event->text, error) : GS_OK;
}

static const char *reason_of(const struct gs_turn *turn)
{
    return turn->end == GS_TURN_INTERRUPTED ? "interrupted" : gs_finish_name(turn->answer.finish);
}

static gs_status print_json(const struct show *show, const struct gs_turn *turn, struct gs_error *error)
{
    json_t *message = gs_turn_message(turn, 0, true);
    json_t *object =
        json_pack("{s:s, s:o, s:{s:I, s:I, s:I, s:I}, s:I}", "finish_reason", reason_of(turn), "message",
                  message, "usage", "prompt_tokens", (json_int_t)turn->prompt.count, "completion_tokens",
                  (json_int_t)turn->generated.count, "reasoning_tokens", (json_int_t)turn->n_reasoning,
                  "total_tokens", (json_int_t)(turn->prompt.count + turn->generated.count), "seed",
                  (json_int_t)show->settings->setup.seed);
    return gs_json_print(object, JSON_COMPACT, show->output, error);
}

static void print_closing_lines(const struct show *show, const struct gs_turn *turn)
{
    bool color = show->color;
    if (show->settings->stats) {
        gs_setup_print_sampling(turn->setup);
        fprintf(stderr, "end      %s\n", reason_of(turn));
    }
    if (turn->end == GS_TURN_LIMIT && turn->answer.content.size == 0 && turn->n_reasoning > 0)
        fprintf(stderr,
                "gossamer: the limit of %lld tokens was reached in the reasoning: there is no answer\n",
                (long long)turn->setup->settings->n_tokens);
    if (!show->settings->stats && !gs_is_terminal(STDERR_FILENO))
        return;
    fprintf(stderr, "%sprefill %zu tokens", color ? "\033[2m" : "", turn->prompt.count);
    if (turn->prefill_seconds > 0.0)
        fprintf(stderr, " %.1f tok/s", (double)turn->n_computed / turn->prefill_seconds);
    fprintf(stderr, ", decode %zu tokens", turn->generated.count);
    if (turn->decode_seconds > 0.0)
        fprintf(stderr, " %.1f tok/s", (double)turn->n_steps / turn->decode_seconds);
    if (turn->n_reasoning > 0)
        fprintf(stderr, " (%zu of them reasoning)", turn->n_reasoning);
    fprintf(stderr, "%s%s\n", turn->end == GS_TURN_INTERRUPTED ? ", interrupted" : "",
            color ? "\033[0m" : "");
}

/* The conversation that the command line describes. */
static gs_status make_dialog(const struct gs_run_settings *s, struct gs_dialog *dialog,
                             struct gs_error *error)
{
    struct gs_buffer text = {0};
    const struct gs_dialog_options said = {s->effort, s->date, s->system, s->tools, s->no_date};
    gs_status status = gs_dialog_open(dialog, error);
    dialog->date = gs_date_today();
    if (status == GS_OK)
        status = gs_dialog_apply(dialog, &said, error);
    bool none = !s->prompt && !s->file && !s->from_stdin;
    if (status == GS_OK && !(s->setup.script && none)) /* a script needs no prompt */
        status = gs_input_choose("prompt", "-p TEXT", s->prompt, s->file, s->from_stdin, &text, error);
    if (status == GS_OK && text.size == 0 && !s->setup.script)
        status = gs_fail(error, GS_INVALID_ARGUMENT, "the prompt is empty: there is nothing to answer");
    if (status == GS_OK)
        status = gs_dialog_add_user(dialog, text.data ? text.data : "", text.size, error);
    gs_buffer_free(&text);
    return status;
}

static gs_status answer(struct show *show, struct gs_turn *turn, struct gs_setup *setup,
                        struct gs_error *error)
{
    gs_status status = gs_setup_sampler(setup, error);
    if (status == GS_OK && setup->engine)
        status = gs_timeline_open(setup, turn->timeline, error);
    if (status == GS_OK && setup->engine && show->settings->stats)
        gs_setup_print_plan(setup);
    gs_interrupt_note(NULL);
    if (status == GS_OK)
        status = gs_turn_run(turn, error);
    gs_interrupt_note(NULL);
    if (status != GS_OK)
        return status;
    if (show->settings->json)
        status = print_json(show, turn, error);
    gs_output_end_text(show->output);
    if (!show->settings->json)
        show_calls(&turn->answer);
    print_closing_lines(show, turn);
    return turn->end == GS_TURN_INTERRUPTED ? GS_CANCELLED : status;
}

gs_status gs_run_turn(const struct gs_run_settings *settings, struct gs_setup *setup,
                      struct gs_output *output, struct gs_error *error)
{
    struct show show = {.settings = settings, .output = output, .color = gs_wants_color()};
    struct gs_dialog dialog = {0};
    struct gs_conversation conversation = {0};
    struct gs_timeline timeline = {0};
    struct gs_turn turn = {.setup = setup,
                           .timeline = &timeline,
                           .output = output,
                           .conversation = &conversation,
                           .generation = (size_t)settings->setup.script_generation,
                           .fn = listen,
                           .user = &show};
    gs_status status = make_dialog(settings, &dialog, error);
    if (status == GS_OK)
        status = gs_dialog_build(&dialog, &conversation, error);
    if (status == GS_OK)
        status = gs_setup_load(setup, error);
    if (status == GS_OK)
        status = answer(&show, &turn, setup, error);
    gs_turn_free(&turn);
    gs_timeline_close(&timeline);
    gs_conversation_free(&conversation);
    gs_dialog_close(&dialog);
    return status;
}
