#include "cli/turn.h"

#include "base/clock.h"
#include "base/status.h"
#include "chat/harmony_render.h"
#include "chat/markers.h"
#include "chat/tools_json.h"
#include "cli/interrupt.h"
#include "cli/plan.h"
#include "cli/progress.h"
#include "text/tokens.h"

#include <stdio.h>
#include <stdlib.h>

/* ---------------------------------------------------------------- sessions */

gs_status gs_timeline_open(struct gs_setup *setup, struct gs_timeline *timeline, struct gs_error *error)
{
    gs_status status = gs_plan_require(&setup->plan, error);
    if (status == GS_OK)
        status = gs_session_open(setup->engine, setup->plan.n_ctx, &timeline->base, error);
    timeline->live = timeline->base;
    return status;
}

void gs_timeline_close(struct gs_timeline *timeline)
{
    if (timeline->live != timeline->base)
        gs_session_close(timeline->live);
    gs_session_close(timeline->base);
    *timeline = (struct gs_timeline){0};
}

/* *whole: all that the session holds; else it would have to go back, which its rings may not allow. */
static size_t count_shared(const struct gs_session *session, const struct gs_tokens *tokens, bool *whole)
{
    size_t count, shared = 0;
    const int32_t *held = gs_session_tokens(session, &count);
    while (shared < count && shared < tokens->count && held[shared] == tokens->ids[shared])
        shared++;
    *whole = shared == count;
    return shared;
}

/* A turn that begins anew: `base` becomes the session that can go on from most, and the other one goes. */
static void choose_base(struct gs_timeline *timeline, const struct gs_tokens *prompt)
{
    struct gs_session *live = timeline->live;
    if (live == timeline->base)
        return;
    bool live_whole, base_whole;
    size_t of_live = count_shared(live, prompt, &live_whole);
    size_t of_base = count_shared(timeline->base, prompt, &base_whole);
    if (live_whole == base_whole ? of_live > of_base : live_whole) {
        gs_session_close(timeline->base);
        timeline->base = live;
    } else {
        gs_session_close(live);
    }
    timeline->live = timeline->base;
}

static gs_status prefill(struct gs_turn *turn, struct gs_error *error)
{
    struct gs_timeline *timeline = turn->timeline;
    struct gs_progress progress;
    if (!turn->after_result)
        choose_base(timeline, &turn->prompt);
    struct gs_session *session = timeline->live;
    double began = gs_clock_seconds();
    gs_interrupt_note(session);
    gs_progress_begin(&progress, "prefill", false, 0);
    gs_session_on_progress(session, gs_progress_update, &progress);
    gs_status status =
        gs_session_sync(session, turn->prompt.ids, turn->prompt.count, &turn->n_computed, error);
    if (status == GS_CANCELLED && !gs_interrupted()) /* it was meant for the turn before, which had ended */
        status = gs_session_sync(session, turn->prompt.ids, turn->prompt.count, &turn->n_computed, error);
    gs_session_on_progress(session, NULL, NULL);
    gs_progress_end(&progress);
    gs_interrupt_note(NULL);
    if (status == GS_OK && session == timeline->base) {
        struct gs_session *copy;
        if (gs_session_fork(session, &copy, NULL) == GS_OK)
            timeline->live = copy;
    }
    turn->prefill_seconds = gs_clock_seconds() - began;
    gs_interrupt_note(timeline->live);
    return status;
}

/* ---------------------------------------------------------------- the prompt */

static gs_status render(struct gs_turn *turn, struct gs_error *error)
{
    const struct gs_memory_plan *plan = &turn->setup->plan;
    const struct gs_render_options how = {.replay = turn->replay};
    gs_status status =
        gs_harmony_render(turn->setup->vocab, turn->conversation, &how, &turn->prompt, NULL, error);
    if (status == GS_OK && turn->setup->engine && (int64_t)turn->prompt.count >= plan->n_ctx)
        return gs_fail(error, GS_CONTEXT_FULL,
                       "the conversation has %zu tokens and needs room for an answer, but the context holds "
                       "%lld: a larger --ctx is needed (this model takes up to %lld, and %lld fit in memory)",
                       turn->prompt.count, (long long)plan->n_ctx,
                       (long long)gs_engine_info(turn->setup->engine)->max_ctx,
                       (long long)plan->largest_n_ctx);
    return status;
}

gs_status gs_turn_declared(const struct gs_conversation *conversation, struct gs_declared_tools *tools,
                           struct gs_text **names, struct gs_error *error)
{
    const struct gs_namespace *functions = conversation->functions;
    size_t count = functions ? functions->n_function : 0;
    *tools = (struct gs_declared_tools){.browser = conversation->browser, .python = conversation->python};
    *names = calloc(count ? count : 1, sizeof **names);
    if (!*names)
        return gs_fail_memory(error, count * sizeof **names);
    for (size_t i = 0; i < count; i++)
        (*names)[i] = functions->functions[i].name;
    tools->functions = *names;
    tools->n_function = count;
    return GS_OK;
}

/* ---------------------------------------------------------------- the answer */

static gs_status listen(void *user, const struct gs_harmony_event *event, struct gs_error *error)
{
    struct gs_turn *turn = user;
    gs_status status = gs_answer_collect(&turn->answer, event, error);
    if (status == GS_OK && event->event == GS_HARMONY_MESSAGE && event->kind == GS_MESSAGE_REASONING)
        turn->n_reasoning += event->end - event->begin;
    return status == GS_OK && turn->fn ? turn->fn(turn->user, event, error) : status;
}

/* Draws and feeds until one of the reasons to end. */
static gs_status generate(struct gs_turn *turn, struct gs_source *source, struct gs_harmony_parser *parser,
                          double began, struct gs_error *error)
{
    struct gs_markers markers;
    int64_t limit = turn->setup->settings->n_tokens;
    gs_status status = gs_markers_find(turn->setup->vocab, &markers, error);
    gs_source_run_ahead(source, limit);
    while (status == GS_OK) {
        int32_t id;
        if (limit >= 0 && (int64_t)turn->generated.count >= limit) {
            turn->end = GS_TURN_LIMIT;
            break;
        }
        double before = gs_clock_seconds();
        status = gs_source_next(source, &id, error);
        if (gs_interrupted()) {
            turn->end = GS_TURN_INTERRUPTED;
            return GS_OK;
        }
        if (status != GS_OK)
            return status;
        if (id < 0) {
            turn->end = turn->setup->engine ? GS_TURN_FULL : GS_TURN_RAN_OUT;
            break;
        }
        double now = gs_clock_seconds();
        if (turn->generated.count == 0) {
            turn->first_seconds = now - began;
        } else { /* the first one is drawn from the logits that the prompt left */
            turn->decode_seconds += now - before;
            turn->n_steps++;
        }
        status = gs_tokens_append(&turn->generated, id, error);
        if (status == GS_OK)
            status = gs_harmony_feed(parser, &id, 1, error);
        if (gs_markers_is_stop(&markers, id))
            break;
        if (turn->output && !gs_output_ok(turn->output)) {
            turn->end = GS_TURN_OUTPUT;
            break;
        }
    }
    return status;
}

gs_status gs_turn_run(struct gs_turn *turn, struct gs_error *error)
{
    const struct gs_setup *setup = turn->setup;
    struct gs_harmony_options options = {.fn = listen, .user = turn};
    struct gs_harmony_parser *parser = NULL;
    struct gs_source *source = NULL;
    struct gs_text *names = NULL;
    double began = gs_clock_seconds();
    turn->end = GS_TURN_STOP;
    gs_status status = render(turn, error);
    if (status == GS_OK)
        status = gs_turn_declared(turn->conversation, &options.tools, &names, error);
    if (status == GS_OK)
        status = gs_harmony_parser_open(setup->vocab, &options, &parser, error);
    if (status == GS_OK && setup->engine)
        status = prefill(turn, error);
    if (status == GS_CANCELLED && gs_interrupted()) {
        turn->end = GS_TURN_INTERRUPTED;
        status = GS_OK;
        goto cleanup;
    }
    if (status == GS_OK)
        status = setup->engine ? gs_source_open_model(turn->timeline->live, setup->sampler, &source, error)
                               : gs_source_open_script(setup->settings->script, turn->generation,
                                                       setup->sampler, setup->n_vocab, &source, error);
    if (status == GS_OK)
        status = generate(turn, source, parser, began, error);
    if (status == GS_OK)
        status = gs_harmony_finish(parser, error);
cleanup:
    gs_interrupt_note(NULL);
    gs_source_close(source);
    gs_harmony_parser_close(parser);
    free(names);
    return status;
}

void gs_turn_free(struct gs_turn *turn)
{
    gs_answer_free(&turn->answer);
    gs_tokens_free(&turn->prompt);
    gs_tokens_free(&turn->generated);
}

/* ---------------------------------------------------------------- the message */

struct gs_call_id gs_call_id(size_t number)
{
    struct gs_call_id id;
    snprintf(id.text, sizeof id.text, "call_%zu", number);
    return id;
}

static json_t *json_of(const struct gs_buffer *text)
{
    return json_stringn(text->data ? text->data : "", text->size);
}

json_t *gs_turn_message(const struct gs_turn *turn, size_t first_call, bool with_calls)
{
    const struct gs_answer *answer = &turn->answer;
    size_t n_call = with_calls ? answer->n_call : 0;
    json_t *message = json_pack("{s:s}", "role", "assistant");
    bool ok = message != NULL;
    if (answer->reasoning.size > 0)
        ok = ok && json_object_set_new(message, "reasoning", json_of(&answer->reasoning)) == 0;
    ok = ok && json_object_set_new(message, "content",
                                   answer->content.size == 0 && n_call > 0 ? json_null()
                                                                           : json_of(&answer->content)) == 0;
    json_t *calls = json_array();
    for (size_t i = 0; ok && i < n_call; i++) {
        json_t *call = json_pack("{s:s, s:s, s:{s:o, s:o}}", "id", gs_call_id(first_call + i).text, "type",
                                 "function", "function", "name", json_of(&answer->calls[i].name), "arguments",
                                 json_of(&answer->calls[i].arguments));
        ok = json_array_append_new(calls, call) == 0;
    }
    if (ok && n_call > 0)
        ok = json_object_set(message, "tool_calls", calls) == 0;
    json_decref(calls);
    if (!ok) {
        json_decref(message);
        message = NULL;
    }
    return message;
}
