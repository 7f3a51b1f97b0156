#include "chat/harmony_render.h"

#include "base/status.h"
#include "chat/harmony_text.h"
#include "chat/markers.h"
#include "chat/replay.h"
#include "text/tokens.h"

#include <stdlib.h>
#include <string.h>

struct renderer {
    const struct gs_vocab *vocab;
    const struct gs_conversation *conversation;
    const struct gs_render_options *options;
    struct gs_markers markers;
    struct gs_tokens *tokens;
    struct gs_buffer *text; /* may be NULL */
    struct gs_buffer scratch;
    size_t last_user, last_final, first_final; /* message numbers; count where there is none */
    bool ends_in_final;                        /* the last assistant message is one */
    gs_status status;                          /* the first failure; nothing is written after it */
    struct gs_error *error;
};

/* ---------------------------------------------------------------- writing */

static void put_id(struct renderer *r, int32_t id)
{
    size_t size;
    if (r->status == GS_OK)
        r->status = gs_tokens_append(r->tokens, id, r->error);
    if (r->status != GS_OK || !r->text)
        return;
    const char *bytes = gs_vocab_bytes(r->vocab, id, &size);
    if (bytes)
        r->status = gs_buffer_append(r->text, bytes, size, r->error);
}

static void put_text(struct renderer *r, struct gs_text text)
{
    if (r->status == GS_OK && text.size > 0)
        r->status = gs_vocab_encode(r->vocab, text.bytes, text.size, r->tokens, r->error);
    if (r->status == GS_OK && r->text)
        r->status = gs_buffer_append(r->text, text.bytes, text.size, r->error);
}

/* `start` and `end` as one text: tokens may span both. */
static void put_joined(struct renderer *r, const char *start, struct gs_text end)
{
    gs_buffer_clear(&r->scratch);
    if (r->status == GS_OK)
        r->status = gs_buffer_append_text(&r->scratch, start, r->error);
    if (r->status == GS_OK)
        r->status = gs_buffer_append(&r->scratch, end.bytes, end.size, r->error);
    put_text(r, (struct gs_text){r->scratch.data, r->scratch.size});
}

/* ---------------------------------------------------------------- one message */

static void put_content_type(struct renderer *r, struct gs_text type)
{
    static const char constrain[] = "<|constrain|>";
    if (!gs_text_begins(type, constrain)) {
        put_joined(r, " ", type);
        return;
    }
    put_text(r, gs_text_of(" "));
    put_id(r, r->markers.constrain);
    put_text(r, (struct gs_text){type.bytes + strlen(constrain), type.size - strlen(constrain)});
}

static void put_header(struct renderer *r, const struct gs_message *message)
{
    put_id(r, r->markers.start);
    if (message->role == GS_ROLE_TOOL) {
        put_text(r, message->name);
    } else {
        put_text(r, gs_text_of(gs_role_name(message->role)));
        if (message->name.bytes)
            put_joined(r, ":", message->name);
    }
    if (message->recipient.bytes && !gs_text_is(message->recipient, "all"))
        put_joined(r, " to=", message->recipient);
    if (message->channel.bytes) {
        put_id(r, r->markers.channel);
        put_text(r, message->channel);
    }
    if (message->content_type.bytes)
        put_content_type(r, message->content_type);
    put_id(r, r->markers.message);
}

static void put_content(struct renderer *r, const struct gs_content *content)
{
    if (content->text.bytes) {
        put_text(r, content->text);
        return;
    }
    struct gs_buffer text = {0};
    struct gs_writer writer = {.buffer = &text, .status = r->status, .error = r->error};
    const struct gs_namespace *functions = r->conversation->functions;
    if (content->system)
        gs_write_system(&writer, content->system, functions && functions->n_function > 0,
                        r->options->reference_arrays);
    else
        gs_write_developer(&writer, content->developer, r->options->reference_arrays);
    r->status = writer.status;
    put_text(r, (struct gs_text){text.data, text.size});
    gs_buffer_free(&text);
}

static bool is_final(const struct gs_message *message)
{
    return message->role == GS_ROLE_ASSISTANT && gs_text_is(message->channel, "final");
}

static void put_message(struct renderer *r, size_t index)
{
    const struct gs_message *message = &r->conversation->messages[index];
    bool call = message->role == GS_ROLE_ASSISTANT && message->recipient.bytes;
    bool last = index + 1 == r->conversation->count;
    put_header(r, message);
    for (size_t i = 0; i < message->n_content; i++)
        put_content(r, &message->contents[i]);
    if (last && is_final(message) && r->options->end == GS_RENDER_TRAINING)
        put_id(r, r->markers.final_return);
    else
        put_id(r, call ? r->markers.call : r->markers.end);
}

/* ---------------------------------------------------------------- reasoning of the past */

static void survey(struct renderer *r)
{
    const struct gs_conversation *c = r->conversation;
    r->last_user = r->last_final = r->first_final = c->count;
    for (size_t i = 0; i < c->count; i++) {
        const struct gs_message *message = &c->messages[i];
        bool final_channel = gs_text_is(message->channel, "final");
        if (message->role == GS_ROLE_USER)
            r->last_user = i;
        if (is_final(message))
            r->last_final = i;
        if (final_channel && r->first_final == c->count)
            r->first_final = i;
        if (message->role == GS_ROLE_ASSISTANT)
            r->ends_in_final = final_channel;
    }
}

/* Is reasoning that stands at `index` left out? */
static bool is_dropped(const struct renderer *r, size_t index)
{
    size_t none = r->conversation->count;
    switch (r->options->drop) {
    case GS_DROP_COMPLETED:
        return r->last_user < none && index < r->last_user && r->last_final < none && index < r->last_final;
    case GS_DROP_REFERENCE:
        return r->ends_in_final && index < r->first_final;
    case GS_DROP_NONE:
        break;
    }
    return false;
}

/* A message to a built-in tool is no reasoning, though it stands in the same channel. */
static bool is_reasoning(const struct renderer *r, const struct gs_message *message)
{
    if (!gs_text_is(message->channel, "analysis"))
        return false;
    if (r->options->drop == GS_DROP_REFERENCE)
        return true;
    return message->role == GS_ROLE_ASSISTANT && !message->recipient.bytes;
}

/* ---------------------------------------------------------------- turns as they were generated */

/* What an assistant message of the JSON form became: messages first ... end-1. */
struct group {
    size_t first, end;
    const struct gs_replay_turn *turn;
};

static bool is_same_json(struct gs_text a, struct gs_text b)
{
    if (gs_text_equal(a, b))
        return true;
    json_t *x = json_loadb(a.bytes, a.size, JSON_ALLOW_NUL, NULL);
    json_t *y = json_loadb(b.bytes, b.size, JSON_ALLOW_NUL, NULL);
    bool same = x && y && json_equal(x, y);
    json_decref(x);
    json_decref(y);
    return same;
}

/* Did this call come of that turn, arguments included? Clients may have written the JSON anew. */
static bool is_same_call(const struct gs_replay_turn *turn, const struct gs_message *message)
{
    struct gs_text name = message->recipient;
    if (gs_text_begins(name, "functions.")) {
        name.bytes += strlen("functions.");
        name.size -= strlen("functions.");
    }
    for (size_t i = 0; i < turn->n_call; i++)
        if (gs_text_equal(turn->calls[i].id, message->call_id))
            return gs_text_equal(turn->calls[i].name, name) &&
                   is_same_json(turn->calls[i].arguments, message->contents->text);
    return false;
}

static bool is_same_text(const struct gs_message *message, struct gs_text text)
{
    size_t at = 0;
    for (size_t i = 0; i < message->n_content; i++) {
        struct gs_text part = message->contents[i].text;
        if (part.size > text.size - at || memcmp(part.bytes, text.bytes + at, part.size) != 0)
            return false;
        at += part.size;
    }
    return at == text.size;
}

/* Is the group all that the turn was? Reasoning may be missing. */
static bool is_whole(const struct renderer *r, const struct group *group)
{
    size_t n_call = 0;
    bool has_content = false;
    for (size_t i = group->first; i < group->end; i++) {
        const struct gs_message *message = &r->conversation->messages[i];
        if (message->recipient.bytes && !is_same_call(group->turn, message))
            return false;
        if (message->recipient.bytes)
            n_call++;
        else if (!is_same_text(message,
                               is_reasoning(r, message) ? group->turn->reasoning : group->turn->content))
            return false;
        else
            has_content |= !is_reasoning(r, message);
    }
    return n_call == group->turn->n_call && has_content == (group->turn->content.size > 0);
}

/* The messages of a turn with the tokens that were generated, all or without its reasoning. */
static void put_turn(struct renderer *r, const struct gs_replay_turn *turn, bool reasoning, bool others)
{
    for (size_t i = 0; i < turn->n_part; i++) {
        const struct gs_answer_part *part = &turn->parts[i];
        bool thought = part->kind == GS_MESSAGE_REASONING;
        if (thought ? !reasoning : !others)
            continue;
        if (part->begin == part->end || turn->tokens[part->begin] != r->markers.start) {
            put_id(r, r->markers.start);
            put_text(r, gs_text_of("assistant"));
        }
        int32_t last = -1;
        for (size_t t = part->begin; t < part->end; t++) {
            last = turn->tokens[t];
            bool stop = gs_markers_is_stop(&r->markers, last) || last == r->markers.end;
            if (!stop)
                put_id(r, last);
        }
        /* Whatever ended it when it was generated: a call ends in <|call|>, all else in <|end|>. */
        bool call = part->kind == GS_MESSAGE_CALL || last == r->markers.call;
        put_id(r, call ? r->markers.call : r->markers.end);
    }
}

/* The group that begins at `index`, if its turn is remembered. */
static bool find_group(const struct renderer *r, size_t index, struct group *group)
{
    const struct gs_message *messages = r->conversation->messages;
    *group = (struct group){.first = index, .end = index};
    if (!r->options->replay || messages[index].source == 0)
        return false;
    while (group->end < r->conversation->count && messages[group->end].source == messages[index].source) {
        const struct gs_message *message = &messages[group->end++];
        if (!group->turn && message->call_id.bytes)
            group->turn = gs_replay_find(r->options->replay, message->call_id);
    }
    return group->turn != NULL;
}

/* Renders the group as generated; false where the client changed it, and only its reasoning was put. */
static bool put_group(struct renderer *r, const struct group *group)
{
    const struct gs_message *first = &r->conversation->messages[group->first];
    bool keeps = !is_dropped(r, group->first);
    if (is_whole(r, group)) {
        put_turn(r, group->turn, keeps, true);
        return true;
    }
    if (keeps && !is_reasoning(r, first))
        put_turn(r, group->turn, true, false);
    return false;
}

/* ---------------------------------------------------------------- the whole */

static void put_messages(struct renderer *r)
{
    size_t changed = 0; /* messages below this belong to a group that is rendered one by one */
    for (size_t i = 0; i < r->conversation->count && r->status == GS_OK;) {
        struct group group;
        if (i >= changed && find_group(r, i, &group)) {
            if (put_group(r, &group)) {
                i = group.end;
                continue;
            }
            changed = group.end;
        }
        if (!(is_reasoning(r, &r->conversation->messages[i]) && is_dropped(r, i)))
            put_message(r, i);
        i++;
    }
}

gs_status gs_harmony_render(const struct gs_vocab *vocab, const struct gs_conversation *conversation,
                            const struct gs_render_options *options, struct gs_tokens *tokens,
                            struct gs_buffer *text, struct gs_error *error)
{
    struct renderer r = {.vocab = vocab,
                         .conversation = conversation,
                         .options = options,
                         .tokens = tokens,
                         .text = text,
                         .error = error};
    r.status = gs_markers_find(vocab, &r.markers, error);
    survey(&r);
    if (r.status == GS_OK)
        put_messages(&r);
    if (options->end == GS_RENDER_COMPLETION) {
        put_id(&r, r.markers.start);
        put_text(&r, gs_text_of("assistant"));
    }
    gs_buffer_free(&r.scratch);
    return r.status;
}
