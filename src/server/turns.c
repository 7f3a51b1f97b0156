#include "server/turns.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

void gs_turns_free(struct gs_turns *turns)
{
    json_decref(turns->messages);
    json_decref(turns->origins);
    *turns = (struct gs_turns){0};
}

/* Takes the message. */
static void append(struct gs_turns *turns, json_t *message, const char *origin)
{
    if (!turns->messages) {
        turns->messages = json_array();
        turns->origins = json_array();
    }
    if (json_array_append_new(turns->messages, message) != 0 ||
        json_array_append_new(turns->origins, json_string(origin)) != 0)
        turns->failed = true;
}

void gs_turns_message(struct gs_turns *turns, const char *role, json_t *content, json_t *call_id,
                      const char *origin)
{
    turns->open = NULL;
    append(turns, json_pack("{s:s, s:O?, s:O*}", "role", role, "content", content, "tool_call_id", call_id),
           origin);
}

/* The assistant's message that goes on; a new one if it has any of what must come later in a message. */
static json_t *open_message(struct gs_turns *turns, bool begins_anew, const char *origin)
{
    if (turns->open && !begins_anew)
        return turns->open;
    turns->open = json_pack("{s:s}", "role", "assistant");
    append(turns, turns->open, origin);
    if (turns->failed)
        turns->open = NULL;
    return turns->open;
}

static void put(struct gs_turns *turns, json_t *message, const char *key, json_t *value)
{
    if (json_object_set_new(message, key, value) != 0)
        turns->failed = true;
}

void gs_turns_reasoning(struct gs_turns *turns, struct gs_text text, const char *origin)
{
    if (text.size == 0)
        return;
    bool spoken = json_object_get(turns->open, "content") || json_object_get(turns->open, "tool_calls");
    json_t *message = open_message(turns, spoken, origin);
    const json_t *old = json_object_get(message, "reasoning_content");
    struct gs_buffer joined = {0};
    if ((old && gs_buffer_append(&joined, json_string_value(old), json_string_length(old), NULL) != GS_OK) ||
        gs_buffer_append(&joined, text.bytes, text.size, NULL) != GS_OK)
        turns->failed = true;
    else
        put(turns, message, "reasoning_content", json_stringn(joined.data, joined.size));
    gs_buffer_free(&joined);
}

void gs_turns_text(struct gs_turns *turns, json_t *content, const char *origin)
{
    bool spoken = json_object_get(turns->open, "content") || json_object_get(turns->open, "tool_calls");
    put(turns, open_message(turns, spoken, origin), "content", json_incref(content));
}

void gs_turns_call(struct gs_turns *turns, struct gs_text id, json_t *name, json_t *arguments,
                   const char *origin)
{
    json_t *message = open_message(turns, false, origin);
    json_t *calls = json_object_get(message, "tool_calls");
    if (!message)
        return; /* memory is out */
    if (!calls) {
        calls = json_array();
        put(turns, message, "tool_calls", calls);
    }
    json_t *call = json_pack("{s:o, s:s, s:{s:O, s:O*}}", "id", json_stringn(id.bytes, id.size), "type",
                             "function", "function", "name", name, "arguments", arguments);
    if (json_array_append_new(calls, call) != 0)
        turns->failed = true;
}

int gs_turns_take(struct gs_turns *turns, json_t *chat, struct gs_api_error *error)
{
    json_t *messages = turns->messages ? json_incref(turns->messages) : json_array();
    if (json_object_set_new(chat, "messages", messages) != 0 || turns->failed)
        return gs_api_fail(error, 503, "out_of_memory", "memory is out");
    return 0;
}

/* ---------------------------------------------------------------- errors */

/* In `text` the first `length` bytes become `other`. */
static void replace_start(char *text, size_t size, size_t length, const char *other)
{
    char rest[sizeof((struct gs_api_error *)0)->message];
    gs_format(rest, sizeof rest, "%s", text + length);
    gs_format(text, size, "%s%s", other, rest);
}

/* Does `text` begin with these whole words of a path? */
static bool begins(const char *text, const char *start)
{
    size_t length = strlen(start);
    return strncmp(text, start, length) == 0 && (text[length] == '\0' || strchr(".: ", text[length]));
}

/* The parameter as the dialect calls it. */
static void rename_start(const struct gs_turns *turns, const struct gs_renamed *table, char *param,
                         size_t size)
{
    static const char messages[] = "messages[";
    const char *other = NULL;
    size_t length = 0;
    if (strncmp(param, messages, sizeof messages - 1) == 0) {
        char *end;
        unsigned long index = strtoul(param + sizeof messages - 1, &end, 10);
        other = json_string_value(json_array_get(turns->origins, index));
        length = (size_t)(end - param) + (*end == ']');
    }
    for (; !other && table->chat; table++) {
        if (begins(param, table->chat)) {
            other = table->here;
            length = strlen(table->chat);
        }
    }
    if (other)
        replace_start(param, size, length, other);
}

static void rename_end(const struct gs_renamed *table, char *param, size_t size)
{
    for (; table->chat; table++) {
        size_t length = strlen(param), end = strlen(table->chat);
        if (table->chat[0] == '.' && length > end && strcmp(param + length - end, table->chat) == 0)
            gs_format(param + length - end, size - (length - end), "%s", table->here);
    }
}

void gs_turns_rename(const struct gs_turns *turns, const struct gs_renamed *table, struct gs_api_error *error)
{
    char before[sizeof error->param];
    gs_format(before, sizeof before, "%s", error->param);
    rename_start(turns, table, error->param, sizeof error->param);
    rename_end(table, error->param, sizeof error->param);
    if (before[0] != '\0' && begins(error->message, before))
        replace_start(error->message, sizeof error->message, strlen(before), error->param);
}

void gs_turns_rename_warnings(const struct gs_turns *turns, const struct gs_renamed *table, json_t *warnings)
{
    for (size_t i = 0; i < json_array_size(warnings); i++) {
        const char *line = json_string_value(json_array_get(warnings, i));
        struct gs_api_error named = {0};
        gs_format(named.message, sizeof named.message, "%s", line);
        gs_format(named.param, sizeof named.param, "%.*s", (int)strcspn(line, ": "), line);
        gs_turns_rename(turns, table, &named);
        json_array_set_new(warnings, i, json_string(named.message));
    }
}
