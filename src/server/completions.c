#include "server/completions.h"

#include "chat/token_json.h"
#include "server/completion.h"
#include "server/usage_json.h"

#include <stdlib.h>
#include <string.h>

#define OBJECT "text_completion"

struct answer {
    struct gs_buffer text;
    json_t *logprobs;  /* object of four lists; NULL: none yet */
    json_int_t offset; /* characters of the tokens so far */
    enum gs_finish finish;
};

struct reply {
    struct gs_completion common;
    bool top;               /* the likeliest tokens are asked for */
    struct answer *answers; /* [common.n_choice] */
};

/* Characters of UTF-8: what offsets count. */
static json_int_t count_characters(const char *text)
{
    json_int_t count = 0;
    for (; *text; text++)
        count += ((unsigned char)*text & 0xC0) != 0x80;
    return count;
}

static json_t *top_json(const struct reply *reply, const struct gs_token_logprob *logprob)
{
    const struct gs_vocab *vocab = gs_server_vocab(reply->common.server);
    json_t *top = json_object();
    for (size_t i = 0; i < logprob->n_top; i++) {
        json_t *name = gs_token_json(vocab, logprob->top[i].id);
        if (name && !json_object_get(top, json_string_value(name)))
            json_object_set_new(top, json_string_value(name), json_real((double)logprob->top[i].logprob));
        json_decref(name);
    }
    return top;
}

static json_t *make_lists(void)
{
    return json_pack("{s:[], s:[], s:[], s:[]}", "tokens", "token_logprobs", "top_logprobs", "text_offset");
}

static void append(json_t *lists, const char *name, json_t *value)
{
    json_array_append_new(json_object_get(lists, name), value);
}

/* The tokens of an event behind those of `lists`. */
static void add_logprobs(const struct reply *reply, struct answer *answer, json_t *lists,
                         const struct gs_event *event)
{
    for (size_t i = 0; i < event->n_logprob; i++) {
        const struct gs_token_logprob *logprob = &event->logprobs[i];
        json_t *token = gs_token_json(gs_server_vocab(reply->common.server), logprob->id);
        const char *text = json_string_value(token);
        append(lists, "text_offset", json_integer(answer->offset));
        answer->offset += count_characters(text ? text : "");
        append(lists, "tokens", token);
        append(lists, "token_logprobs",
               logprob->has_logprob ? json_real((double)logprob->logprob) : json_null());
        append(lists, "top_logprobs",
               logprob->has_logprob && reply->top ? top_json(reply, logprob) : json_null());
    }
}

static json_t *choice_json(size_t index, json_t *text, json_t *logprobs, json_t *finish)
{
    return json_pack("{s:I, s:o, s:o, s:o}", "index", (json_int_t)index, "text", text, "logprobs",
                     logprobs ? logprobs : json_null(), "finish_reason", finish);
}

/* ---------------------------------------------------------------- streaming */

static void send_chunk(struct reply *reply, json_t *choice)
{
    gs_completion_send(&reply->common, OBJECT, choice);
}

/* What a token brings. */
static void send_text(struct reply *reply, const struct gs_event *event)
{
    static const struct gs_chunk_form form = {",\"text\":", NULL, ""};
    if (!gs_chunk_begun(&reply->common.chunk))
        gs_chunk_begin(&reply->common.chunk, gs_completion_object(&reply->common, OBJECT),
                       reply->common.include_usage);
    gs_chunk_send(&reply->common.chunk, reply->common.exchange, event->choice, &form, event->text);
}

static void stream(struct reply *reply, const struct gs_event *event)
{
    struct answer *answer = &reply->answers[event->choice];
    json_t *logprobs = NULL, *chunk;
    switch (event->kind) {
    case GS_EVENT_WAITING:
        gs_stream_comment(reply->common.exchange);
        break;
    case GS_EVENT_TEXT:
        if (!reply->common.logprobs && !reply->common.warnings) {
            send_text(reply, event);
            break;
        }
        if (reply->common.logprobs && (logprobs = make_lists()))
            add_logprobs(reply, answer, logprobs, event);
        send_chunk(reply, choice_json(event->choice, json_stringn(event->text.bytes, event->text.size),
                                      logprobs, json_null()));
        break;
    case GS_EVENT_CHOICE_DONE:
        send_chunk(reply, choice_json(event->choice, json_string(""), NULL,
                                      json_string(gs_finish_name(event->finish))));
        break;
    case GS_EVENT_DONE:
        if (reply->common.include_usage && (chunk = gs_completion_object(&reply->common, OBJECT))) {
            json_object_set_new(chunk, "choices", json_array());
            json_object_set_new(chunk, "usage", gs_usage_json(event->usage));
            gs_stream_json(reply->common.exchange, NULL, chunk);
        }
        gs_stream_text(reply->common.exchange, NULL, "[DONE]", strlen("[DONE]"));
        gs_stream_end(reply->common.exchange);
        break;
    case GS_EVENT_ERROR:
        gs_stream_json(reply->common.exchange, NULL, gs_api_error_json(event->error));
        gs_stream_end(reply->common.exchange);
        break;
    default:
        break;
    }
}

/* ---------------------------------------------------------------- all at once */

static void send_whole(struct reply *reply, const struct gs_event *event)
{
    json_t *body = gs_completion_object(&reply->common, OBJECT), *choices = json_array();
    for (size_t i = 0; i < reply->common.n_choice; i++) {
        struct answer *answer = &reply->answers[i];
        json_array_append_new(
            choices,
            choice_json(i, json_stringn(answer->text.data ? answer->text.data : "", answer->text.size),
                        reply->common.logprobs
                            ? answer->logprobs ? json_incref(answer->logprobs) : make_lists()
                            : NULL,
                        json_string(gs_finish_name(answer->finish))));
    }
    if (body) {
        json_object_set(body, "choices", choices);
        json_object_set_new(body, "usage", gs_usage_json(event->usage));
        if (reply->common.warnings)
            json_object_set(body, "warnings", reply->common.warnings);
    }
    json_decref(choices);
    gs_reply_json(reply->common.exchange, 200, body);
}

static void collect(struct reply *reply, const struct gs_event *event)
{
    struct answer *answer = &reply->answers[event->choice];
    if (event->kind == GS_EVENT_CHOICE_DONE)
        answer->finish = event->finish;
    if (event->kind != GS_EVENT_TEXT)
        return;
    gs_buffer_append(&answer->text, event->text.bytes, event->text.size, NULL);
    if (reply->common.logprobs && !answer->logprobs)
        answer->logprobs = make_lists();
    if (reply->common.logprobs)
        add_logprobs(reply, answer, answer->logprobs, event);
}

/* ---------------------------------------------------------------- the sink */

static void take_event(void *user, const struct gs_event *event)
{
    struct reply *reply = user;
    if (reply->common.stream)
        stream(reply, event);
    else if (event->kind == GS_EVENT_DONE)
        send_whole(reply, event);
    else if (event->kind == GS_EVENT_ERROR)
        gs_reply_error(reply->common.exchange, event->error);
    else
        collect(reply, event);
}

static void release(void *user)
{
    struct reply *reply = user;
    for (size_t i = 0; reply->answers && i < reply->common.n_choice; i++) {
        gs_buffer_free(&reply->answers[i].text);
        json_decref(reply->answers[i].logprobs);
    }
    gs_completion_release(&reply->common);
    free(reply->answers);
    free(reply);
}

static struct gs_sink make_sink(struct gs_server *server, struct gs_exchange *exchange,
                                const struct gs_request *request)
{
    struct reply *reply = calloc(1, sizeof *reply);
    if (!reply)
        return (struct gs_sink){0};
    bool made = gs_completion_init(&reply->common, server, exchange, request, "cmpl-");
    reply->top = request->n_top_logprobs > 0;
    reply->answers = calloc(reply->common.n_choice, sizeof *reply->answers);
    if (made && reply->answers)
        return (struct gs_sink){take_event, release, reply};
    release(reply);
    return (struct gs_sink){0};
}

void gs_completions(struct gs_server *server, struct gs_exchange *exchange)
{
    gs_completion_serve(server, exchange, gs_request_read_completion, make_sink);
}
