#include "server/chat.h"

#include "base/status.h"
#include "chat/json_text.h"
#include "server/completion.h"
#include "server/logprob_json.h"
#include "server/usage_json.h"

#include <stdlib.h>
#include <string.h>

/* A choice as it is collected, where nothing is streamed. */
struct answer {
    struct gs_buffer reasoning, content;
    json_t *calls;              /* array */
    json_t *logprobs;           /* array, of the content */
    struct gs_buffer arguments; /* of the call under way */
    enum gs_finish finish;
    bool spoke; /* streaming: its role was sent */
};

struct reply {
    struct gs_completion common;
    bool as_reasoning, as_reasoning_content;
    struct answer *answers; /* [common.n_choice] */
};

static json_t *text_json(struct gs_text text)
{
    return json_stringn(text.bytes ? text.bytes : "", text.size);
}

static json_t *buffer_json(const struct gs_buffer *buffer)
{
    return text_json((struct gs_text){buffer->data, buffer->size});
}

static json_t *reasoning_json(const struct reply *reply, struct gs_text text)
{
    json_t *json = json_object();
    if (reply->as_reasoning)
        json_object_set_new(json, "reasoning", text_json(text));
    if (reply->as_reasoning_content)
        json_object_set_new(json, "reasoning_content", text_json(text));
    return json;
}

/* ---------------------------------------------------------------- streaming */

/* `delta` and `logprobs` (may be NULL) are taken. */
static void send_chunk(struct reply *reply, size_t choice, json_t *delta, json_t *logprobs,
                       const char *finish)
{
    json_t *one = json_pack("{s:I, s:o, s:o, s:o}", "index", (json_int_t)choice, "delta", delta, "logprobs",
                            logprobs ? logprobs : json_null(), "finish_reason",
                            finish ? json_string(finish) : json_null());
    gs_completion_send(&reply->common, "chat.completion.chunk", one);
}

static json_t *logprobs_json(struct reply *reply, const struct gs_event *event)
{
    json_t *list = json_array();
    for (size_t i = 0; i < event->n_logprob; i++)
        json_array_append_new(list,
                              gs_logprob_json(gs_server_vocab(reply->common.server), &event->logprobs[i]));
    return list;
}

/* The role comes first, and alone. */
static void speak(struct reply *reply, size_t choice)
{
    if (reply->answers[choice].spoke)
        return;
    reply->answers[choice].spoke = true;
    send_chunk(reply, choice, json_pack("{s:s, s:s}", "role", "assistant", "content", ""), NULL, NULL);
}

/* What a token brings. */
static void send_text(struct reply *reply, const struct gs_event *event, const struct gs_chunk_form *form)
{
    if (!gs_chunk_begun(&reply->common.chunk))
        gs_chunk_begin(&reply->common.chunk, gs_completion_object(&reply->common, "chat.completion.chunk"),
                       reply->common.include_usage);
    gs_chunk_send(&reply->common.chunk, reply->common.exchange, event->choice, form, event->text);
}

static void send_reasoning(struct reply *reply, const struct gs_event *event)
{
    const char *second = reply->as_reasoning_content ? ",\"reasoning_content\":" : NULL;
    if (reply->as_reasoning)
        send_text(reply, event, &(struct gs_chunk_form){",\"delta\":{\"reasoning\":", second, "}"});
    else if (reply->as_reasoning_content)
        send_text(reply, event, &(struct gs_chunk_form){",\"delta\":{\"reasoning_content\":", NULL, "}"});
}

static void send_arguments(struct reply *reply, const struct gs_event *event)
{
    char open[96];
    gs_format(open, sizeof open,
              ",\"delta\":{\"tool_calls\":[{\"index\":%zu,\"function\":{\"arguments\":", event->call);
    send_text(reply, event, &(struct gs_chunk_form){open, NULL, "}}]}"});
}

static void stream_choice(struct reply *reply, const struct gs_event *event)
{
    json_t *delta = NULL, *logprobs = NULL;
    const char *finish = NULL;
    speak(reply, event->choice);
    switch (event->kind) {
    case GS_EVENT_REASONING:
        send_reasoning(reply, event);
        return;
    case GS_EVENT_ARGUMENTS:
        send_arguments(reply, event);
        return;
    case GS_EVENT_TEXT:
        if (!reply->common.logprobs) {
            send_text(reply, event, &(struct gs_chunk_form){",\"delta\":{\"content\":", NULL, "}"});
            return;
        }
        delta = json_pack("{s:o}", "content", text_json(event->text));
        logprobs = json_pack("{s:o, s:n}", "content", logprobs_json(reply, event), "refusal");
        break;
    case GS_EVENT_CALL:
        delta = json_pack("{s:[{s:I, s:s, s:s, s:{s:o, s:s}}]}", "tool_calls", "index",
                          (json_int_t)event->call, "id", event->call_id, "type", "function", "function",
                          "name", text_json(event->text), "arguments", "");
        break;
    case GS_EVENT_CHOICE_DONE:
        delta = json_object();
        finish = gs_finish_name(event->finish);
        break;
    default:
        return;
    }
    send_chunk(reply, event->choice, delta, logprobs, finish);
}

static void end_stream(struct reply *reply, const struct gs_event *event)
{
    if (reply->common.include_usage) {
        json_t *chunk = gs_completion_object(&reply->common, "chat.completion.chunk");
        if (chunk) {
            json_object_set_new(chunk, "choices", json_array());
            json_object_set_new(chunk, "usage", gs_usage_json(event->usage));
            json_object_set_new(chunk, "timings", gs_timings_json(event->usage));
        }
        gs_stream_json(reply->common.exchange, NULL, chunk);
    }
    gs_stream_text(reply->common.exchange, NULL, "[DONE]", strlen("[DONE]"));
    gs_stream_end(reply->common.exchange);
}

static void stream(struct reply *reply, const struct gs_event *event)
{
    switch (event->kind) {
    case GS_EVENT_WAITING:
        gs_stream_comment(reply->common.exchange);
        break;
    case GS_EVENT_DONE:
        end_stream(reply, event);
        break;
    case GS_EVENT_ERROR:
        gs_stream_json(reply->common.exchange, NULL, gs_api_error_json(event->error));
        gs_stream_end(reply->common.exchange);
        break;
    default:
        stream_choice(reply, event);
    }
}

/* ---------------------------------------------------------------- all at once */

static void begin_call(struct answer *answer, const struct gs_event *event)
{
    if (!answer->calls)
        answer->calls = json_array();
    gs_buffer_clear(&answer->arguments);
    json_array_append_new(answer->calls,
                          json_pack("{s:s, s:s, s:{s:o, s:s}}", "id", event->call_id, "type", "function",
                                    "function", "name", text_json(event->text), "arguments", ""));
}

static void end_call(struct answer *answer)
{
    size_t count = json_array_size(answer->calls);
    json_t *call = count > 0 ? json_array_get(answer->calls, count - 1) : NULL;
    json_object_set_new(json_object_get(call, "function"), "arguments", buffer_json(&answer->arguments));
}

static void collect(struct reply *reply, const struct gs_event *event)
{
    struct answer *answer = &reply->answers[event->choice];
    struct gs_text text = event->text;
    switch (event->kind) {
    case GS_EVENT_REASONING:
        gs_buffer_append(&answer->reasoning, text.bytes, text.size, NULL);
        break;
    case GS_EVENT_TEXT:
        gs_buffer_append(&answer->content, text.bytes, text.size, NULL);
        if (reply->common.logprobs && !answer->logprobs)
            answer->logprobs = json_array();
        if (reply->common.logprobs) {
            json_t *list = logprobs_json(reply, event);
            json_array_extend(answer->logprobs, list);
            json_decref(list);
        }
        break;
    case GS_EVENT_CALL:
        begin_call(answer, event);
        break;
    case GS_EVENT_ARGUMENTS:
        gs_buffer_append(&answer->arguments, text.bytes, text.size, NULL);
        break;
    case GS_EVENT_MESSAGE_DONE:
        if (event->message_kind == GS_MESSAGE_CALL)
            end_call(answer);
        break;
    case GS_EVENT_CHOICE_DONE:
        answer->finish = event->finish;
        break;
    default:
        break;
    }
}

static json_t *message_json(const struct reply *reply, const struct answer *answer)
{
    bool silent = answer->content.size == 0 && answer->calls;
    json_t *message = json_pack("{s:s, s:o, s:n}", "role", "assistant", "content",
                                silent ? json_null() : buffer_json(&answer->content), "refusal");
    if (message && answer->reasoning.size > 0) {
        json_t *reasoning =
            reasoning_json(reply, (struct gs_text){answer->reasoning.data, answer->reasoning.size});
        json_object_update(message, reasoning);
        json_decref(reasoning);
    }
    if (message && answer->calls)
        json_object_set(message, "tool_calls", answer->calls);
    return message;
}

static json_t *choice_json(const struct reply *reply, size_t index)
{
    const struct answer *answer = &reply->answers[index];
    json_t *logprobs = json_null();
    if (reply->common.logprobs)
        logprobs = json_pack("{s:o, s:n}", "content",
                             answer->logprobs ? json_incref(answer->logprobs) : json_array(), "refusal");
    return json_pack("{s:I, s:o, s:o, s:s}", "index", (json_int_t)index, "message",
                     message_json(reply, answer), "logprobs", logprobs, "finish_reason",
                     gs_finish_name(answer->finish));
}

static void send_whole(struct reply *reply, const struct gs_event *event)
{
    json_t *body = gs_completion_object(&reply->common, "chat.completion"), *choices = json_array();
    for (size_t i = 0; i < reply->common.n_choice; i++)
        json_array_append_new(choices, choice_json(reply, i));
    if (body) {
        json_object_set(body, "choices", choices);
        json_object_set_new(body, "usage", gs_usage_json(event->usage));
        json_object_set_new(body, "timings", gs_timings_json(event->usage));
        if (reply->common.warnings)
            json_object_set(body, "warnings", reply->common.warnings);
    }
    json_decref(choices);
    gs_reply_json(reply->common.exchange, 200, body);
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
    else if (event->kind != GS_EVENT_WAITING)
        collect(reply, event);
}

static void release(void *user)
{
    struct reply *reply = user;
    for (size_t i = 0; reply->answers && i < reply->common.n_choice; i++) {
        struct answer *answer = &reply->answers[i];
        gs_buffer_free(&answer->reasoning);
        gs_buffer_free(&answer->content);
        gs_buffer_free(&answer->arguments);
        json_decref(answer->calls);
        json_decref(answer->logprobs);
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
    bool made = gs_completion_init(&reply->common, server, exchange, request, "chatcmpl-");
    reply->as_reasoning = request->as_reasoning;
    reply->as_reasoning_content = request->as_reasoning_content;
    reply->answers = calloc(reply->common.n_choice, sizeof *reply->answers);
    if (made && reply->answers)
        return (struct gs_sink){take_event, release, reply};
    release(reply);
    return (struct gs_sink){0};
}

void gs_chat_completions(struct gs_server *server, struct gs_exchange *exchange)
{
    gs_completion_serve(server, exchange, gs_request_read_chat, make_sink);
}
