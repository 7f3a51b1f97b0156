#include "server/choice.h"

#include "base/clock.h"
#include "base/status.h"
#include "server/random_id.h"
#include "text/tokens.h"

#include <stdlib.h>
#include <string.h>

/* How likely a token was, and where its text ends among all that was shown; SIZE_MAX: not known yet. */
struct mark {
    struct gs_token_logprob logprob;
    size_t end;
};

/* What gs_choice_draw drew. */
struct early {
    bool is_there;
    gs_status status;
    int32_t id;
    struct gs_error error; /* where the status is none of success */
};

struct gs_choice {
    struct gs_choice_options options;
    const struct gs_request *request;
    struct gs_sampler *sampler;
    struct gs_draw draws[GS_AHEAD_TOKENS]; /* the sampler's next */
    struct early early;
    struct gs_source *source;           /* of a script */
    struct gs_steer *steer;             /* NULL: all is free */
    struct gs_harmony_parser *parser;   /* of a chat */
    struct gs_detokenizer *detokenizer; /* of raw text */
    struct gs_tokens generated;         /* with what was forced and with the stop id */
    size_t n_forced;                    /* at the front of `generated` */
    bool begun;                         /* the parser has been fed what was forced */
    size_t n_reasoning;
    struct gs_answer answer;       /* of a chat */
    struct gs_random_id *call_ids; /* [answer.n_call] */
    const char **call_names;       /* [answer.n_call]: the same as texts */
    struct gs_stop_filter filter;
    size_t n_fed, n_shown; /* bytes of visible text into and out of the filter */
    struct mark *marks;    /* [n_mark]: tokens whose logprobs are still to be told */
    size_t n_mark, mark_capacity;
    struct gs_logprob *tops;        /* [mark_capacity][n_top_logprobs] */
    struct gs_token_logprob *told;  /* [mark_capacity]: for one event */
    float *prompt_logprobs;         /* [prompt->count] for an echo */
    struct gs_logprob *prompt_tops; /* [prompt->count][n_top_logprobs] */
    enum gs_finish finish;
    bool ended, call_done;
};

/* ---------------------------------------------------------------- events */

static void emit(struct gs_choice *c, struct gs_event *event)
{
    event->choice = c->options.index;
    c->options.emit(c->options.user, event);
}

/* The marks whose text is wholly among the first n_shown bytes go with the event. */
static void emit_text(struct gs_choice *c, struct gs_text text)
{
    struct gs_event event = {.kind = GS_EVENT_TEXT, .text = text, .logprobs = c->told};
    size_t n = 0, n_top = c->request->n_top_logprobs;
    c->n_shown += text.size;
    while (n < c->n_mark && c->marks[n].end <= c->n_shown) {
        c->told[n] = c->marks[n].logprob;
        c->told[n].top = c->tops + n * n_top;
        n++;
    }
    event.n_logprob = n;
    if (text.size > 0 || n > 0)
        emit(c, &event);
    if (n > 0) {
        c->n_mark -= n;
        memmove(c->marks, c->marks + n, c->n_mark * sizeof *c->marks);
        memmove(c->tops, c->tops + n * n_top, c->n_mark * n_top * sizeof *c->tops);
    }
}

/* Visible text; what the open marks stand for ends with it, if it is of the kind that has logprobs. */
static gs_status show(struct gs_choice *c, struct gs_text text, bool has_logprobs, struct gs_error *error)
{
    struct gs_text out;
    c->n_fed += text.size;
    for (size_t i = 0; i < c->n_mark && has_logprobs; i++)
        if (c->marks[i].end == SIZE_MAX)
            c->marks[i].end = c->n_fed;
    gs_status status = gs_stop_filter_feed(&c->filter, text, &out, error);
    if (status == GS_OK)
        emit_text(c, out);
    return status;
}

/* The visible text of a message has ended. */
static void flush(struct gs_choice *c)
{
    emit_text(c, gs_stop_filter_finish(&c->filter));
    c->n_mark = 0;
}

/* Marks of text that has no logprobs. */
static void drop_open_marks(struct gs_choice *c)
{
    while (c->n_mark > 0 && c->marks[c->n_mark - 1].end == SIZE_MAX)
        c->n_mark--;
}

/* ---------------------------------------------------------------- the parser's side */

static bool hides_calls(const struct gs_choice *c)
{
    return c->request->tool_choice == GS_TOOLS_NONE;
}

static gs_status begin_call(struct gs_choice *c, const struct gs_harmony_event *event, struct gs_error *error)
{
    size_t n = c->answer.n_call;
    struct gs_random_id *ids = realloc(c->call_ids, n * sizeof *ids);
    if (ids)
        c->call_ids = ids;
    const char **names = realloc(c->call_names, n * sizeof *names);
    if (names)
        c->call_names = names;
    if (!ids || !names)
        return gs_fail_memory(error, n * sizeof *ids);
    ids[n - 1] = gs_random_id("call_");
    for (size_t i = 0; i < n; i++)
        names[i] = ids[i].text;
    struct gs_event out = {
        .kind = GS_EVENT_CALL, .text = event->text, .call = n - 1, .call_id = ids[n - 1].text};
    emit(c, &out);
    return GS_OK;
}

static gs_status take_text(struct gs_choice *c, const struct gs_harmony_event *event, struct gs_error *error)
{
    struct gs_event out = {.text = event->text, .call = c->answer.n_call - 1};
    bool visible = event->kind == GS_MESSAGE_FINAL || event->kind == GS_MESSAGE_PREAMBLE;
    if (event->kind != GS_MESSAGE_FINAL)
        drop_open_marks(c);
    if (visible)
        return show(c, event->text, event->kind == GS_MESSAGE_FINAL, error);
    if (event->kind == GS_MESSAGE_HIDDEN)
        return GS_OK;
    out.kind = event->kind == GS_MESSAGE_CALL ? GS_EVENT_ARGUMENTS : GS_EVENT_REASONING;
    if (event->kind == GS_MESSAGE_CALL)
        out.call_id = c->call_ids[out.call].text;
    emit(c, &out);
    return GS_OK;
}

static void end_message(struct gs_choice *c, const struct gs_harmony_event *event)
{
    struct gs_event out = {.kind = GS_EVENT_MESSAGE_DONE, .message_kind = event->kind};
    if (event->kind == GS_MESSAGE_REASONING)
        c->n_reasoning += event->end - event->begin;
    if (event->kind == GS_MESSAGE_FINAL || event->kind == GS_MESSAGE_PREAMBLE)
        flush(c);
    c->n_mark = 0;
    if (event->kind == GS_MESSAGE_CALL) {
        out.call = c->answer.n_call - 1;
        out.call_id = c->call_ids[out.call].text;
        c->call_done = true;
    }
    if (event->kind != GS_MESSAGE_HIDDEN)
        emit(c, &out);
}

static gs_status listen_to_parser(void *user, const struct gs_harmony_event *event, struct gs_error *error)
{
    struct gs_choice *c = user;
    if (hides_calls(c) && event->event != GS_HARMONY_TURN &&
        (event->event == GS_HARMONY_CALL || event->kind == GS_MESSAGE_CALL))
        return GS_OK;
    gs_status status = gs_answer_collect(&c->answer, event, error);
    if (status != GS_OK)
        return status;
    switch (event->event) {
    case GS_HARMONY_TEXT:
        return take_text(c, event, error);
    case GS_HARMONY_CALL:
        return begin_call(c, event, error);
    case GS_HARMONY_MESSAGE:
        end_message(c, event);
        return GS_OK;
    case GS_HARMONY_TURN:
        c->finish = event->finish;
        return GS_OK;
    }
    return GS_OK;
}

/* ---------------------------------------------------------------- opening */

static gs_status open_source(struct gs_choice *c, struct gs_error *error)
{
    const struct gs_choice_options *o = &c->options;
    struct gs_sampling sampling = c->request->sampling;
    sampling.seed = o->seed;
    gs_status status = gs_sampler_open(&sampling, o->n_vocab, &c->sampler, error);
    if (status == GS_OK && o->script)
        status = gs_source_open_script(o->script, o->generation, c->sampler, o->n_vocab, &c->source, error);
    return status;
}

static gs_status open_raw(struct gs_choice *c, struct gs_error *error)
{
    gs_status status = gs_detokenizer_open(c->options.vocab, &c->detokenizer, error);
    return status == GS_OK && c->request->steer ? gs_steer_open(c->request->steer, &c->steer, error) : status;
}

static gs_status open_reader(struct gs_choice *c, struct gs_error *error)
{
    if (!c->request->chat)
        return open_raw(c, error);
    struct gs_harmony_options options = {.tools = c->request->tools, .fn = listen_to_parser, .user = c};
    gs_status status = gs_harmony_parser_open(c->options.vocab, &options, &c->parser, error);
    if (status != GS_OK || !c->request->steer)
        return status;
    const struct gs_tokens *forced = gs_steer_plan_forced(c->request->steer);
    status = gs_steer_open(c->request->steer, &c->steer, error);
    for (size_t i = 0; i < forced->count && status == GS_OK; i++)
        status = gs_tokens_append(&c->generated, forced->ids[i], error);
    c->n_forced = c->generated.count;
    return status;
}

/* Room for one more mark. */
static gs_status reserve_mark(struct gs_choice *c, struct gs_error *error)
{
    size_t n_top = c->request->n_top_logprobs;
    if (c->n_mark < c->mark_capacity)
        return GS_OK;
    size_t capacity = c->mark_capacity ? 2 * c->mark_capacity : 64;
    struct mark *marks = realloc(c->marks, capacity * sizeof *marks);
    if (marks)
        c->marks = marks;
    struct gs_token_logprob *told = realloc(c->told, capacity * sizeof *told);
    if (told)
        c->told = told;
    struct gs_logprob *tops = realloc(c->tops, (capacity * n_top + 1) * sizeof *tops);
    if (tops)
        c->tops = tops;
    if (!marks || !told || !tops)
        return gs_fail_memory(error, capacity * sizeof *marks);
    c->mark_capacity = capacity;
    return GS_OK;
}

static gs_status reserve_prompt(struct gs_choice *c, struct gs_error *error)
{
    const struct gs_request *r = c->request;
    if (!r->echo || !r->logprobs)
        return GS_OK;
    size_t count = c->options.prompt->count;
    c->prompt_logprobs = calloc(count, sizeof *c->prompt_logprobs);
    c->prompt_tops = calloc(count * r->n_top_logprobs + 1, sizeof *c->prompt_tops);
    return c->prompt_logprobs && c->prompt_tops ? GS_OK : gs_fail_memory(error, count * sizeof(float));
}

gs_status gs_choice_open(const struct gs_choice_options *options, struct gs_choice **out,
                         struct gs_error *error)
{
    *out = NULL;
    struct gs_choice *c = calloc(1, sizeof *c);
    if (!c)
        return gs_fail_memory(error, sizeof *c);
    c->options = *options;
    c->request = options->request;
    c->filter.strings = c->request->stop;
    c->filter.count = c->request->n_stop;
    c->finish = GS_FINISH_LENGTH;
    gs_status status = open_source(c, error);
    if (status == GS_OK)
        status = open_reader(c, error);
    if (status == GS_OK)
        status = reserve_prompt(c, error);
    if (status == GS_OK)
        status = reserve_mark(c, error);
    if (status != GS_OK) {
        gs_choice_close(c);
        return status;
    }
    *out = c;
    return GS_OK;
}

void gs_choice_close(struct gs_choice *c)
{
    if (!c)
        return;
    gs_source_close(c->source);
    gs_sampler_close(c->sampler);
    gs_steer_close(c->steer);
    gs_harmony_parser_close(c->parser);
    gs_detokenizer_close(c->detokenizer);
    gs_tokens_free(&c->generated);
    gs_answer_free(&c->answer);
    gs_stop_filter_free(&c->filter);
    free(c->call_ids);
    free((void *)c->call_names);
    free(c->marks);
    free(c->tops);
    free(c->told);
    free(c->prompt_logprobs);
    free(c->prompt_tops);
    free(c);
}

/* ---------------------------------------------------------------- the end */

/* finish: what it is unless the parser knows better; a matched stop string always is a stop. */
static gs_status end(struct gs_choice *c, enum gs_finish finish, struct gs_error *error)
{
    gs_status status = GS_OK;
    const char *tail;
    size_t size;
    if (c->ended)
        return GS_OK;
    c->ended = true;
    c->finish = finish;
    if (c->parser) {
        status = gs_harmony_finish(c->parser, error);
    } else {
        status = gs_detokenizer_finish(c->detokenizer, &tail, &size, error);
        if (status == GS_OK)
            status = show(c, (struct gs_text){tail, size}, true, error);
        for (size_t i = 0; i < c->n_mark; i++) /* tokens without text */
            if (c->marks[i].end == SIZE_MAX)
                c->marks[i].end = c->n_fed;
        if (status == GS_OK)
            flush(c);
    }
    bool hidden = hides_calls(c) && c->finish == GS_FINISH_TOOL_CALLS;
    if (finish == GS_FINISH_TOOL_CALLS || c->filter.matched || hidden)
        c->finish = finish;
    struct gs_event event = {.kind = GS_EVENT_CHOICE_DONE, .finish = c->finish};
    if (c->filter.matched)
        event.stop = c->filter.match;
    if (status == GS_OK)
        emit(c, &event);
    return status;
}

/* ---------------------------------------------------------------- a token */

static bool is_stop(const struct gs_choice *c, int32_t id)
{
    bool is_end = gs_markers_is_stop(c->options.markers, id);
    if (c->request->chat || (c->steer && is_end)) /* a format ends so, whatever the model's files say */
        return is_end;
    for (size_t i = 0; i < c->options.n_stop_id; i++)
        if (c->options.stop_ids[i] == id)
            return true;
    return false;
}

/* A source without logits is certain of its tokens. */
static gs_status add_mark(struct gs_choice *c, const float *logits, int32_t id, struct gs_error *error)
{
    size_t n_top = c->request->n_top_logprobs, n_found = logits ? n_top : n_top > 0;
    gs_status status = reserve_mark(c, error);
    if (status != GS_OK)
        return status;
    struct mark *mark = &c->marks[c->n_mark];
    struct gs_logprob *top = c->tops + c->n_mark * n_top;
    *mark = (struct mark){.logprob = {.id = id, .has_logprob = true}, .end = SIZE_MAX};
    if (n_found > c->options.n_vocab)
        n_found = c->options.n_vocab;
    mark->logprob.n_top = n_found;
    if (logits)
        status = gs_logprobs(logits, c->options.n_vocab, id, &mark->logprob.logprob, top, n_found, error);
    else if (n_found > 0)
        top[0] = (struct gs_logprob){id, 0.0f};
    if (status == GS_OK)
        c->n_mark++;
    return status;
}

static gs_status feed_raw(struct gs_choice *c, int32_t id, struct gs_error *error)
{
    const char *text = "";
    size_t size = 0;
    gs_status status = GS_OK;
    if (!gs_vocab_is_special(c->options.vocab, id) && gs_vocab_bytes(c->options.vocab, id, &size)) {
        size = 0;
        status = gs_detokenizer_feed(c->detokenizer, id, &text, &size, error);
    }
    return status == GS_OK && size > 0 ? show(c, (struct gs_text){text, size}, true, error) : status;
}

/* What was forced goes to the parser first, unless the source writes the header itself all the same. */
static gs_status feed_chat(struct gs_choice *c, int32_t id, struct gs_error *error)
{
    gs_status status = GS_OK;
    if (!c->begun) {
        c->begun = true;
        if (c->n_forced > 0 && id == c->options.markers->channel) {
            c->generated.count = c->n_forced = 0;
            c->generated.ids[c->generated.count++] = id;
        }
        status = gs_harmony_feed(c->parser, c->generated.ids, c->n_forced, error);
    }
    return status == GS_OK ? gs_harmony_feed(c->parser, &id, 1, error) : status;
}

static bool is_full(const struct gs_choice *c)
{
    return c->options.limit >= 0 && (int64_t)gs_choice_count(c) >= c->options.limit;
}

void gs_choice_draw(struct gs_choice *c, const float *logits)
{
    if (c->ended || c->steer || c->source || is_full(c))
        return;
    c->early.is_there = true;
    c->early.status = gs_sampler_draw_masked(c->sampler, logits, NULL, c->generated.ids, c->generated.count,
                                             &c->early.id, &c->early.error);
}

static gs_status draw(struct gs_choice *c, const float **logits, int32_t *id, struct gs_error *error)
{
    const uint64_t *allowed = NULL;
    if (c->early.is_there) {
        c->early.is_there = false;
        *id = c->early.id;
        if (c->early.status != GS_OK)
            *error = c->early.error;
        return c->early.status;
    }
    gs_status status = c->steer ? gs_steer_allowed(c->steer, &allowed, error) : GS_OK;
    if (status != GS_OK)
        return status;
    if (c->source) {
        status = gs_source_next_masked(c->source, allowed, id, error);
        *logits = gs_source_logits(c->source);
    } else {
        double began = gs_clock_seconds();
        status = gs_sampler_draw_masked(c->sampler, *logits, allowed, c->generated.ids, c->generated.count,
                                        id, error);
        atomic_fetch_add(c->options.sampler_nanoseconds, (uint64_t)((gs_clock_seconds() - began) * 1e9));
    }
    return status;
}

static gs_status steer(struct gs_choice *c, int32_t id, struct gs_error *error)
{
    struct gs_steer_place place = {0};
    if (c->parser) {
        place.in_body = gs_harmony_in_body(c->parser);
        place.kind = gs_harmony_body_kind(c->parser);
    }
    if (place.kind == GS_MESSAGE_CALL && c->answer.n_call > 0) {
        const struct gs_buffer *name = &c->answer.calls[c->answer.n_call - 1].name;
        place.call = (struct gs_text){name->data, name->size};
    }
    return gs_steer_take(c->steer, id, &place, error);
}

static gs_status take(struct gs_choice *c, const float *logits, int32_t id, struct gs_error *error)
{
    bool chat = c->request->chat, stops = is_stop(c, id);
    gs_status status = gs_tokens_append(&c->generated, id, error);
    bool text = !chat || (gs_harmony_in_body(c->parser) && !gs_vocab_is_special(c->options.vocab, id));
    if (status == GS_OK && c->request->logprobs && text && !stops)
        status = add_mark(c, logits, id, error);
    if (status == GS_OK && chat)
        status = feed_chat(c, id, error);
    if (status == GS_OK && c->steer)
        status = steer(c, id, error);
    if (status == GS_OK && !chat && !stops)
        status = feed_raw(c, id, error);
    if (status != GS_OK)
        return status;
    if (stops || c->filter.matched)
        return end(c, GS_FINISH_STOP, error);
    if (c->call_done && !c->request->parallel_tool_calls)
        return end(c, GS_FINISH_TOOL_CALLS, error);
    return GS_OK;
}

bool gs_choice_lets_choose(struct gs_choice *c, size_t n, const struct gs_draw **draws)
{
    if (c->steer || c->source || c->request->logprobs || !gs_sampler_is_plain(c->sampler))
        return false;
    bool greedy = gs_sampler_is_greedy(c->sampler);
    for (size_t i = 0; i < n && !greedy; i++)
        c->draws[i] = gs_sampler_ahead(c->sampler, i);
    *draws = greedy ? NULL : c->draws;
    return true;
}

int64_t gs_choice_left(const struct gs_choice *c)
{
    return c->options.limit < 0 ? -1 : c->options.limit - (int64_t)gs_choice_count(c);
}

gs_status gs_choice_step(struct gs_choice *c, const float *logits, int32_t chosen, int32_t *token,
                         struct gs_error *error)
{
    int32_t id = chosen;
    *token = -1;
    if (c->ended)
        return GS_OK;
    if (is_full(c))
        return end(c, GS_FINISH_LENGTH, error);
    gs_status status = GS_OK;
    if (chosen >= 0)
        gs_sampler_count(c->sampler);
    else
        status = draw(c, &logits, &id, error);
    if (status != GS_OK)
        return status;
    if (id < 0) /* a script that ran out */
        return end(c, GS_FINISH_LENGTH, error);
    status = take(c, logits, id, error);
    if (status == GS_OK && !c->ended && is_full(c))
        status = end(c, GS_FINISH_LENGTH, error);
    if (status == GS_OK && !c->ended)
        *token = id;
    return status;
}

/* ---------------------------------------------------------------- echo */

gs_status gs_choice_prompt_row(struct gs_choice *c, size_t row, const float *logits, struct gs_error *error)
{
    size_t n_top = c->request->n_top_logprobs, next = row + 1;
    if (!c->prompt_logprobs || next >= c->options.prompt->count)
        return GS_OK;
    if (n_top > c->options.n_vocab)
        n_top = c->options.n_vocab;
    return gs_logprobs(logits, c->options.n_vocab, c->options.prompt->ids[next], &c->prompt_logprobs[next],
                       c->prompt_tops + next * c->request->n_top_logprobs, n_top, error);
}

gs_status gs_choice_echo(struct gs_choice *c, struct gs_error *error)
{
    const struct gs_tokens *prompt = c->options.prompt;
    struct gs_buffer text = {0};
    struct gs_event event = {.kind = GS_EVENT_TEXT};
    struct gs_token_logprob *logprobs = NULL;
    gs_status status = gs_buffer_append(&text, "", 0, error);
    const char *piece = "";
    size_t size;
    for (size_t i = 0; i < prompt->count && status == GS_OK; i++) {
        size = 0;
        if (gs_vocab_bytes(c->options.vocab, prompt->ids[i], &size)) {
            status = gs_detokenizer_feed(c->detokenizer, prompt->ids[i], &piece, &size, error);
            if (status == GS_OK)
                status = gs_buffer_append(&text, piece, size, error);
        }
    }
    if (status == GS_OK)
        status = gs_detokenizer_finish(c->detokenizer, &piece, &size, error);
    if (status == GS_OK)
        status = gs_buffer_append(&text, piece, size, error);
    if (status == GS_OK && c->request->logprobs) {
        logprobs = calloc(prompt->count, sizeof *logprobs);
        status = logprobs ? GS_OK : gs_fail_memory(error, prompt->count * sizeof *logprobs);
        for (size_t i = 0; i < prompt->count && status == GS_OK; i++)
            logprobs[i] = (struct gs_token_logprob){.id = prompt->ids[i],
                                                    .has_logprob = i > 0,
                                                    .logprob = c->prompt_logprobs[i],
                                                    .top = c->prompt_tops + i * c->request->n_top_logprobs,
                                                    .n_top = i > 0 ? c->request->n_top_logprobs : 0};
        event.n_logprob = prompt->count;
    }
    event.text = (struct gs_text){text.data, text.size};
    event.logprobs = logprobs;
    if (status == GS_OK)
        emit(c, &event);
    free(logprobs);
    gs_buffer_free(&text);
    return status;
}

/* ---------------------------------------------------------------- questions */

bool gs_choice_ended(const struct gs_choice *c)
{
    return c->ended;
}

size_t gs_choice_count(const struct gs_choice *c)
{
    size_t count = c->generated.count; /* a forced header may be longer than the limit, which cuts it then */
    return c->options.limit >= 0 && count > (size_t)c->options.limit ? (size_t)c->options.limit : count;
}

size_t gs_choice_reasoning(const struct gs_choice *c)
{
    return c->n_reasoning;
}

const struct gs_tokens *gs_choice_forced(const struct gs_choice *c)
{
    static const struct gs_tokens none = {0};
    return c->request->steer ? gs_steer_plan_forced(c->request->steer) : &none;
}

const struct gs_answer *gs_choice_answer(const struct gs_choice *c, const struct gs_tokens **tokens,
                                         const char *const **call_ids)
{
    *tokens = &c->generated;
    *call_ids = c->call_names;
    return c->answer.n_call > 0 ? &c->answer : NULL;
}
