#include "cli/dialog.h"

#include "base/file_write.h"
#include "base/status.h"
#include "base/utf8.h"
#include "chat/json_load.h"
#include "chat/json_path.h"
#include "chat/markers.h"
#include "chat/tools_json.h"
#include "cli/input.h"
#include "text/tokens.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_REPLAY (1u << 20) /* tokens of past calls */

struct gs_date gs_date_today(void)
{
    struct gs_date date = {""};
    struct tm parts;
    time_t now = time(NULL);
    if (localtime_r(&now, &parts))
        strftime(date.text, sizeof date.text, "%Y-%m-%d", &parts);
    return date;
}

gs_status gs_date_parse(const char *text, struct gs_date *date, struct gs_error *error)
{
    struct tm parts = {0};
    const char *end = strptime(text, "%Y-%m-%d", &parts);
    struct tm real = parts; /* timegm makes the 31st of February a day in March */
    /* strptime skips white space, of which some would break lines */
    if (!end || *end != '\0' || strlen(text) != 10 || strspn(text, "0123456789-") != 10 ||
        timegm(&real) == -1 || real.tm_mday != parts.tm_mday)
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "--date: a date such as 2025-06-28 is expected, not \"%s\"", gs_quote(text).text);
    memcpy(date->text, text, 11);
    return GS_OK;
}

gs_status gs_date_choose(const char *text, bool none, struct gs_date *date, struct gs_error *error)
{
    if (text && none)
        return gs_fail(error, GS_INVALID_ARGUMENT, "--date and --no-date: give one of them");
    if (none)
        *date = (struct gs_date){""};
    return text ? gs_date_parse(text, date, error) : GS_OK;
}

gs_status gs_dialog_open(struct gs_dialog *dialog, struct gs_error *error)
{
    *dialog = (struct gs_dialog){.messages = json_array()};
    if (!dialog->messages)
        return gs_fail_memory(error, sizeof *dialog->messages);
    return gs_replay_open(MAX_REPLAY, &dialog->replay, error);
}

void gs_dialog_close(struct gs_dialog *dialog)
{
    json_decref(dialog->messages);
    json_decref(dialog->system);
    json_decref(dialog->tools);
    gs_replay_close(dialog->replay);
    *dialog = (struct gs_dialog){0};
}

/* A person's text as JSON: ill-formed parts become U+FFFD. */
static json_t *make_text(const char *text, size_t size)
{
    struct gs_buffer valid = {0};
    gs_status status = gs_buffer_append(&valid, "", 0, NULL);
    size_t length;
    for (size_t at = 0; at < size && status == GS_OK; at += length) {
        uint32_t c = gs_utf8_decode(text + at, size - at, &length);
        bool ill = c == GS_UTF8_INVALID || c == GS_UTF8_INCOMPLETE;
        if (c == GS_UTF8_INCOMPLETE)
            length = size - at;
        status = ill ? gs_buffer_append_text(&valid, "\xEF\xBF\xBD", NULL)
                     : gs_buffer_append(&valid, text + at, length, NULL);
    }
    json_t *json = status == GS_OK ? json_stringn(valid.data, valid.size) : NULL;
    gs_buffer_free(&valid);
    return json;
}

gs_status gs_dialog_set_system(struct gs_dialog *dialog, const char *text, size_t size,
                               struct gs_error *error)
{
    json_t *system = size > 0 ? make_text(text, size) : NULL;
    if (size > 0 && !system)
        return gs_fail_memory(error, size);
    json_decref(dialog->system);
    dialog->system = system;
    return GS_OK;
}

gs_status gs_dialog_set_tools(struct gs_dialog *dialog, const char *path, struct gs_error *error)
{
    struct gs_dialog changed = *dialog;
    struct gs_conversation trial = {0};
    json_t *document = NULL;
    gs_status status = path ? gs_input_read_json(path, &document, error) : GS_OK;
    if (status != GS_OK)
        return status;
    changed.tools = json_is_object(document) && json_object_get(document, "tools")
                        ? json_object_get(document, "tools")
                        : document;
    status = gs_dialog_build(&changed, &trial, error);
    if (status == GS_OK) {
        json_decref(dialog->tools);
        dialog->tools = json_incref(changed.tools);
    }
    gs_conversation_free(&trial);
    json_decref(document);
    return status;
}

gs_status gs_dialog_apply(struct gs_dialog *dialog, const struct gs_dialog_options *options,
                          struct gs_error *error)
{
    if (options->effort && !gs_effort_parse(gs_text_of(options->effort), &dialog->effort))
        return gs_fail(error, GS_INVALID_ARGUMENT, "--effort: low, medium or high is expected, not \"%s\"",
                       gs_quote(options->effort).text);
    gs_status status = gs_date_choose(options->date, options->no_date, &dialog->date, error);
    if (status == GS_OK && options->system)
        status = gs_dialog_set_system(dialog, options->system, strlen(options->system), error);
    if (status == GS_OK && options->tools)
        status = gs_dialog_set_tools(dialog, options->tools, error);
    return status;
}

/* ---------------------------------------------------------------- as a request */

/* Everything; texts are shared with the dialog, lists are copies. */
static json_t *make_request(const struct gs_dialog *dialog)
{
    json_t *messages = json_array();
    bool ok = messages != NULL;
    if (dialog->system)
        ok = ok && json_array_append_new(
                       messages, json_pack("{s:s, s:O}", "role", "system", "content", dialog->system)) == 0;
    ok = ok && json_array_extend(messages, dialog->messages) == 0;
    json_t *request =
        ok ? json_pack("{s:s, s:O}", "reasoning_effort", gs_effort_name(dialog->effort), "messages", messages)
           : NULL;
    json_decref(messages);
    if (request && dialog->tools && json_object_set(request, "tools", dialog->tools) != 0) {
        json_decref(request);
        request = NULL;
    }
    return request;
}

gs_status gs_dialog_build(const struct gs_dialog *dialog, struct gs_conversation *out, struct gs_error *error)
{
    struct gs_conversation_settings settings = {.date = dialog->date.text[0] ? dialog->date.text : NULL,
                                                .effort = dialog->effort};
    json_t *request = make_request(dialog);
    *out = (struct gs_conversation){0};
    if (!request)
        return gs_fail_memory(error, sizeof *request);
    gs_status status = gs_conversation_from_json(&settings, request, out, error);
    json_decref(request);
    return status;
}

/* ---------------------------------------------------------------- messages */

static gs_status append(struct gs_dialog *dialog, json_t *message, struct gs_error *error)
{
    if (!message || json_array_append_new(dialog->messages, message) != 0)
        return gs_fail_memory(error, sizeof *message);
    return GS_OK;
}

gs_status gs_dialog_add_user(struct gs_dialog *dialog, const char *text, size_t size, struct gs_error *error)
{
    return append(dialog, json_pack("{s:s, s:o}", "role", "user", "content", make_text(text, size)), error);
}

gs_status gs_dialog_add_result(struct gs_dialog *dialog, size_t call, const char *text, size_t size,
                               struct gs_error *error)
{
    return append(dialog,
                  json_pack("{s:s, s:s, s:o}", "role", "tool", "tool_call_id", gs_call_id(call).text,
                            "content", make_text(text, size)),
                  error);
}

static bool has_whole_calls(const struct gs_turn *turn)
{
    const struct gs_answer *answer = &turn->answer;
    bool whole = answer->n_call > 0 && answer->finish == GS_FINISH_TOOL_CALLS;
    for (size_t i = 0; i < answer->n_call; i++)
        whole = whole &&
                gs_tool_name_valid((struct gs_text){answer->calls[i].name.data, answer->calls[i].name.size},
                                   true, SIZE_MAX);
    return whole;
}

/* The ids of a turn's tokens, kept with the message: with them a loaded conversation goes on as it was. */
static gs_status remember(struct gs_dialog *dialog, const struct gs_turn *turn, json_t *message,
                          struct gs_error *error)
{
    size_t n_call = turn->answer.n_call;
    struct gs_call_id *ids = calloc(n_call, sizeof *ids);
    const char **texts = calloc(n_call, sizeof *texts);
    json_t *tokens = json_array();
    gs_status status = ids && texts && tokens ? GS_OK : gs_fail_memory(error, n_call * sizeof *ids);
    for (size_t i = 0; status == GS_OK && i < n_call; i++) {
        ids[i] = gs_call_id(dialog->n_call + i);
        texts[i] = ids[i].text;
    }
    for (size_t i = 0; status == GS_OK && i < turn->generated.count; i++)
        if (json_array_append_new(tokens, json_integer(turn->generated.ids[i])) != 0)
            status = gs_fail_memory(error, sizeof *tokens);
    if (status == GS_OK)
        status = gs_replay_add(dialog->replay, turn->generated.ids, turn->generated.count, &turn->answer,
                               texts, error);
    if (status == GS_OK && json_object_set(message, "tokens", tokens) != 0)
        status = gs_fail_memory(error, sizeof *tokens);
    json_decref(tokens);
    free(texts);
    free(ids);
    return status;
}

gs_status gs_dialog_add_answer(struct gs_dialog *dialog, const struct gs_turn *turn, size_t *n_call,
                               struct gs_error *error)
{
    const struct gs_answer *answer = &turn->answer;
    bool with_calls = has_whole_calls(turn);
    gs_status status = GS_OK;
    *n_call = with_calls ? answer->n_call : 0;
    if (!with_calls && answer->reasoning.size == 0 && answer->content.size == 0 &&
        turn->end == GS_TURN_INTERRUPTED)
        return GS_OK; /* nothing was said */
    json_t *message = gs_turn_message(turn, dialog->n_call, with_calls);
    if (!message)
        return gs_fail_memory(error, answer->content.size);
    if (with_calls)
        status = remember(dialog, turn, message, error);
    if (status == GS_OK)
        status = append(dialog, json_incref(message), error);
    json_decref(message);
    if (status == GS_OK)
        dialog->n_call += *n_call;
    return status;
}

size_t gs_dialog_count(const struct gs_dialog *dialog)
{
    return json_array_size(dialog->messages);
}

size_t gs_dialog_last(const struct gs_dialog *dialog, const char *role)
{
    size_t count = gs_dialog_count(dialog);
    for (size_t i = count; i-- > 0;) {
        const char *name = json_string_value(json_object_get(json_array_get(dialog->messages, i), "role"));
        if (name && strcmp(name, role) == 0)
            return i;
    }
    return count;
}

void gs_dialog_cut(struct gs_dialog *dialog, size_t count)
{
    while (json_array_size(dialog->messages) > count)
        json_array_remove(dialog->messages, json_array_size(dialog->messages) - 1);
}

json_t *gs_dialog_tail(const struct gs_dialog *dialog, size_t first)
{
    json_t *tail = json_array();
    for (size_t i = first; tail && i < gs_dialog_count(dialog); i++)
        if (json_array_append(tail, json_array_get(dialog->messages, i)) != 0) {
            json_decref(tail);
            return NULL;
        }
    return tail;
}

gs_status gs_dialog_put_back(struct gs_dialog *dialog, size_t first, json_t *tail, struct gs_error *error)
{
    gs_dialog_cut(dialog, first);
    if (json_array_extend(dialog->messages, tail) != 0)
        return gs_fail_memory(error, json_array_size(tail) * sizeof tail);
    return GS_OK;
}

bool gs_dialog_says_something(const struct gs_dialog *dialog, size_t first)
{
    for (size_t i = first; i < gs_dialog_count(dialog); i++) {
        const json_t *message = json_array_get(dialog->messages, i);
        if (gs_json_text(json_object_get(message, "content")).size > 0 ||
            gs_json_text(json_object_get(message, "reasoning")).size > 0 ||
            json_array_size(json_object_get(message, "tool_calls")) > 0)
            return true;
    }
    return false;
}

void gs_dialog_clear(struct gs_dialog *dialog)
{
    gs_dialog_cut(dialog, 0);
}

/* ---------------------------------------------------------------- on the disk */

gs_status gs_dialog_save(const struct gs_dialog *dialog, const char *path, struct gs_error *error)
{
    struct gs_file_write file = {.descriptor = -1};
    json_t *request = make_request(dialog);
    if (!request || json_object_set_new(request, "date", json_string(dialog->date.text)) != 0) {
        json_decref(request);
        return gs_fail_memory(error, sizeof *request);
    }
    char *text = json_dumps(request, JSON_INDENT(1));
    json_decref(request);
    gs_status status = text ? GS_OK : gs_fail_memory(error, sizeof *request);
    if (status == GS_OK)
        status = gs_file_write_begin(&file, path, error);
    if (status == GS_OK)
        status = gs_file_write_bytes(&file, text, strlen(text), error);
    if (status == GS_OK)
        status = gs_file_write_bytes(&file, "\n", 1, error);
    status = gs_file_write_end(&file, status, error);
    free(text);
    return status;
}

static bool is_text_of(const json_t *message, const char *key, const struct gs_buffer *text)
{
    struct gs_text held = gs_json_text(json_object_get(message, key));
    return held.size == text->size && (text->size == 0 || memcmp(held.bytes, text->data, text->size) == 0);
}

/* Does a message say what its tokens say? */
static bool is_answer(const json_t *message, const struct gs_answer *answer)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    bool same = is_text_of(message, "reasoning", &answer->reasoning) &&
                is_text_of(message, "content", &answer->content) && json_array_size(calls) == answer->n_call;
    for (size_t i = 0; same && i < answer->n_call; i++) {
        const json_t *function = json_object_get(json_array_get(calls, i), "function");
        same = is_text_of(function, "name", &answer->calls[i].name) &&
               is_text_of(function, "arguments", &answer->calls[i].arguments);
    }
    return same;
}

/*
 * Would a part be replayed as one message of the assistant? What stands in a hidden part, and control tokens
 * in a text, are in no key of the message: nobody who reads the file sees them.
 */
static bool is_plain_part(const struct gs_vocab *vocab, const struct gs_markers *markers,
                          const struct gs_answer_part *part, const int32_t *ids)
{
    bool in_body = false;
    size_t n_channel = 0, n_constrain = 0;
    for (size_t t = part->begin; t < part->end; t++) {
        int32_t id = ids[t];
        bool last = t + 1 == part->end;
        if (!gs_vocab_is_special(vocab, id))
            continue;
        if (last && (id == markers->end || gs_markers_is_stop(markers, id)))
            continue;
        if (in_body || (id == markers->start && t > part->begin) ||
            (id == markers->channel && n_channel++ > 0) || (id == markers->constrain && n_constrain++ > 0))
            return false;
        if (id == markers->message)
            in_body = true;
        else if (id != markers->start && id != markers->channel && id != markers->constrain)
            return false;
    }
    return in_body && part->kind != GS_MESSAGE_HIDDEN;
}

/* Are tokens nothing but the messages that were read from them? */
static bool is_plain(const struct gs_vocab *vocab, const struct gs_answer *answer,
                     const struct gs_tokens *tokens)
{
    struct gs_markers markers;
    bool plain = gs_markers_find(vocab, &markers, NULL) == GS_OK;
    for (size_t i = 0; plain && i < answer->n_part; i++)
        plain = is_plain_part(vocab, &markers, &answer->parts[i], tokens->ids);
    return plain;
}

static gs_status read_tokens(const struct gs_vocab *vocab, const json_t *list, struct gs_tokens *tokens,
                             struct gs_error *error)
{
    gs_status status = GS_OK;
    for (size_t i = 0; status == GS_OK && i < json_array_size(list); i++) {
        json_int_t id = json_integer_value(json_array_get(list, i));
        size_t size;
        if (id < 0 || id > INT32_MAX || !gs_vocab_bytes(vocab, (int32_t)id, &size)) {
            tokens->count = 0; /* of another vocabulary: the message is rendered from its texts */
            return GS_OK;
        }
        status = gs_tokens_append(tokens, (int32_t)id, error);
    }
    return status;
}

/* The tokens of a past call, if they are what its message says. */
static gs_status recall(struct gs_dialog *dialog, const struct gs_vocab *vocab,
                        const struct gs_declared_tools *tools, const json_t *message, struct gs_error *error)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    size_t n_call = json_array_size(calls);
    struct gs_tokens tokens = {0};
    struct gs_answer answer = {0};
    struct gs_harmony_parser *parser = NULL;
    struct gs_harmony_options options = {.tools = *tools, .fn = gs_answer_collect, .user = &answer};
    const char **ids = calloc(n_call + 1, sizeof *ids);
    gs_status status = ids ? read_tokens(vocab, json_object_get(message, "tokens"), &tokens, error)
                           : gs_fail_memory(error, n_call * sizeof *ids);
    if (status != GS_OK || tokens.count == 0 || n_call == 0)
        goto cleanup;
    status = gs_harmony_parser_open(vocab, &options, &parser, error);
    if (status == GS_OK)
        status = gs_harmony_feed(parser, tokens.ids, tokens.count, error);
    if (status == GS_OK)
        status = gs_harmony_finish(parser, error);
    bool known = status == GS_OK && is_answer(message, &answer) && is_plain(vocab, &answer, &tokens);
    for (size_t i = 0; i < n_call; i++) {
        ids[i] = json_string_value(json_object_get(json_array_get(calls, i), "id"));
        known = known && ids[i];
    }
    if (known)
        status = gs_replay_add(dialog->replay, tokens.ids, tokens.count, &answer, ids, error);
cleanup:
    gs_harmony_parser_close(parser);
    gs_answer_free(&answer);
    gs_tokens_free(&tokens);
    free(ids);
    return status;
}

/* Calls are numbered on from the highest number that occurs. */
static void count_calls(struct gs_dialog *dialog)
{
    size_t at, i;
    json_t *message, *call;
    dialog->n_call = 0;
    json_array_foreach(dialog->messages, at, message)
    {
        json_array_foreach(json_object_get(message, "tool_calls"), i, call)
        {
            const char *id = json_string_value(json_object_get(call, "id"));
            size_t number = id && strncmp(id, "call_", 5) == 0 ? strtoul(id + 5, NULL, 10) : 0;
            if (number < SIZE_MAX / 2 && number >= dialog->n_call)
                dialog->n_call = number + 1;
        }
    }
}

/* The parts of a document into an empty dialog. */
static gs_status take_document(struct gs_dialog *dialog, json_t *document, struct gs_error *error)
{
    const json_t *messages;
    const char *path;
    struct gs_text effort = gs_json_text(json_object_get(document, "reasoning_effort"));
    struct gs_text date = gs_json_text(json_object_get(document, "date"));
    gs_status status = gs_json_messages(document, &messages, &path, error);
    if (status != GS_OK)
        return status;
    size_t count = json_array_size(messages);
    for (size_t i = 0; i < count; i++) {
        json_t *message = json_array_get(messages, i);
        bool system = i == 0 && gs_text_is(gs_json_text(json_object_get(message, "role")), "system") &&
                      json_is_string(json_object_get(message, "content"));
        if (system)
            dialog->system = json_incref(json_object_get(message, "content"));
        else if (json_array_append(dialog->messages, message) != 0)
            return gs_fail_memory(error, count);
    }
    if (effort.bytes && !gs_effort_parse(effort, &dialog->effort))
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "reasoning_effort: \"low\", \"medium\" or \"high\" is expected");
    if (date.bytes && date.size == 0)
        dialog->date = (struct gs_date){""};
    else if (date.bytes &&
             (strlen(date.bytes) != date.size || gs_date_parse(date.bytes, &dialog->date, NULL) != GS_OK))
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "date: a date such as \"2025-06-28\" is expected, not \"%s\"",
                       gs_quote(date.bytes).text);
    dialog->tools = json_incref(json_object_get(document, "tools"));
    count_calls(dialog);
    return GS_OK;
}

gs_status gs_dialog_load(struct gs_dialog *dialog, const struct gs_vocab *vocab, const char *path,
                         struct gs_error *error)
{
    struct gs_dialog loaded = {0};
    struct gs_conversation conversation = {0};
    struct gs_declared_tools tools;
    struct gs_text *names = NULL;
    json_t *document = NULL;
    gs_status status = gs_input_read_json(path, &document, error);
    if (status == GS_OK)
        status = gs_dialog_open(&loaded, error);
    loaded.effort = dialog->effort;
    loaded.date = dialog->date;
    if (status == GS_OK)
        status = take_document(&loaded, document, error);
    if (status == GS_OK)
        status = gs_dialog_build(&loaded, &conversation, error);
    if (status == GS_OK)
        status = gs_turn_declared(&conversation, &tools, &names, error);
    for (size_t i = 0; status == GS_OK && i < json_array_size(loaded.messages); i++)
        status = recall(&loaded, vocab, &tools, json_array_get(loaded.messages, i), error);
    if (status == GS_OK) {
        struct gs_dialog before = *dialog;
        *dialog = loaded;
        loaded = before;
    }
    free(names);
    gs_conversation_free(&conversation);
    gs_dialog_close(&loaded);
    json_decref(document);
    return status;
}
