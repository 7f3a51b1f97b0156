#include "server/messages_read.h"

#include "base/status.h"
#include "chat/json_path.h"
#include "chat/json_text.h"
#include "server/request.h"

#include <string.h>

static const char billing[] = "x-anthropic-billing-header:";
static const char call_prefix[] = "call_", use_prefix[] = "toolu_";

void gs_messages_request_free(struct gs_messages_request *request)
{
    json_decref(request->chat);
    gs_turns_free(&request->turns);
    *request = (struct gs_messages_request){0};
}

struct gs_tool_use_id gs_tool_use_id(const char *call_id)
{
    struct gs_tool_use_id id = {""};
    bool ours = strncmp(call_id, call_prefix, sizeof call_prefix - 1) == 0;
    gs_format(id.text, sizeof id.text, "%s%s", ours ? use_prefix : "",
              ours ? call_id + sizeof call_prefix - 1 : call_id);
    return id;
}

/* The way back; a new reference. */
static json_t *call_id_of(struct gs_text id)
{
    struct gs_buffer text = {0};
    size_t prefix = sizeof use_prefix - 1;
    json_t *json = NULL;
    if (!gs_text_begins(id, use_prefix))
        return json_stringn(id.bytes, id.size);
    if (gs_buffer_append_text(&text, call_prefix, NULL) == GS_OK &&
        gs_buffer_append(&text, id.bytes + prefix, id.size - prefix, NULL) == GS_OK)
        json = json_stringn(text.data, text.size);
    gs_buffer_free(&text);
    return json;
}

static json_t *member(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static int expected(const char *path, const char *what, const json_t *value, struct gs_api_error *error)
{
    return gs_api_bad(error, path, "%s: %s is expected, not %s", path, what, gs_json_kind(value));
}

/* A member that must be a string. */
static int need_text(const json_t *object, const char *path, const char *key, struct gs_text *text,
                     struct gs_api_error *error)
{
    *text = gs_json_text(json_object_get(object, key));
    if (text->bytes)
        return 0;
    if (!json_is_object(object))
        return expected(path, "an object", object, error);
    return expected(gs_json_path_key(path, key).text, "a string", json_object_get(object, key), error);
}

/* ---------------------------------------------------------------- system */

static void add_system(struct gs_turns *turns, json_t *text, const char *origin)
{
    if (!gs_text_begins(gs_json_text(text), billing)) /* it changes with every request */
        gs_turns_message(turns, "system", text, NULL, origin);
}

static int read_system(const json_t *body, struct gs_turns *turns, struct gs_api_error *error)
{
    json_t *system = member(body, "system");
    if (json_is_string(system))
        add_system(turns, system, "system");
    else if (system && !json_is_array(system))
        return expected("system", "a string or an array of text blocks", system, error);
    for (size_t i = 0; json_is_array(system) && i < json_array_size(system); i++) {
        struct gs_json_path at = gs_json_path_index("system", i);
        struct gs_text text;
        int status = need_text(json_array_get(system, i), at.text, "text", &text, error);
        if (status != 0)
            return status;
        add_system(turns, json_object_get(json_array_get(system, i), "text"), at.text);
    }
    return 0;
}

/* ---------------------------------------------------------------- blocks */

/* {"type": "text", "text"} alone: without what a cache needs. */
static int read_text(const json_t *block, const char *path, json_t *parts, struct gs_api_error *error)
{
    struct gs_text text;
    int status = need_text(block, path, "text", &text, error);
    if (status == 0)
        json_array_append_new(
            parts, json_pack("{s:s, s:O}", "type", "text", "text", json_object_get(block, "text")));
    return status;
}

static int refuse_block(const json_t *block, const char *path, const char *what, struct gs_api_error *error)
{
    struct gs_text type = gs_json_text(json_object_get(block, "type"));
    struct gs_json_path at = gs_json_path_key(path, "type");
    if (!json_is_object(block))
        return expected(path, "a content block", block, error);
    if (!type.bytes)
        return expected(at.text, "a string", json_object_get(block, "type"), error);
    return gs_api_bad(error, at.text, "%s: %s is expected, not \"%s\": the model reads text only", at.text,
                      what, gs_quote_bytes(type.bytes, type.size).text);
}

/* The blocks of a tool's result as text parts. */
static int read_result_blocks(const json_t *content, const char *path, json_t *parts,
                              struct gs_api_error *error)
{
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i);
        struct gs_json_path at = gs_json_path_index(path, i);
        int status = gs_text_is(gs_json_text(json_object_get(block, "type")), "text")
                         ? read_text(block, at.text, parts, error)
                         : refuse_block(block, at.text, "text", error);
        if (status != 0)
            return status;
    }
    return 0;
}

static int read_tool_result(struct gs_turns *turns, const json_t *block, const char *path,
                            struct gs_api_error *error)
{
    struct gs_text id;
    int status = need_text(block, path, "tool_use_id", &id, error);
    if (status != 0)
        return status;
    json_t *content = member(block, "content");
    struct gs_json_path at = gs_json_path_key(path, "content");
    json_t *call_id = call_id_of(id);
    json_t *result = NULL;
    if (json_is_array(content)) {
        result = json_array();
        status = read_result_blocks(content, at.text, result, error);
    } else if (!content || json_is_string(content)) {
        bool failed = json_is_true(json_object_get(block, "is_error"));
        result = content ? json_incref(content) : json_string(failed ? "error" : "");
    } else {
        status = expected(at.text, "a string or an array of blocks", content, error);
    }
    if (status == 0)
        gs_turns_message(turns, "tool", result, call_id, path);
    json_decref(result);
    json_decref(call_id);
    return status;
}

/* What is said together is one message; *parts begins anew. */
static void flush_user(struct gs_turns *turns, json_t **parts, const char *origin)
{
    if (json_array_size(*parts) > 0)
        gs_turns_message(turns, "user", *parts, NULL, origin);
    json_decref(*parts);
    *parts = json_array();
}

static int read_user_blocks(struct gs_turns *turns, const json_t *content, const char *path,
                            const char *content_path, struct gs_api_error *error)
{
    json_t *parts = json_array();
    int status = 0;
    for (size_t i = 0; i < json_array_size(content) && status == 0; i++) {
        const json_t *block = json_array_get(content, i);
        struct gs_json_path at = gs_json_path_index(content_path, i);
        struct gs_text type = gs_json_text(json_object_get(block, "type"));
        if (gs_text_is(type, "text")) {
            status = read_text(block, at.text, parts, error);
        } else if (gs_text_is(type, "tool_result")) {
            flush_user(turns, &parts, path);
            status = read_tool_result(turns, block, at.text, error);
        } else {
            status = refuse_block(block, at.text, "text or tool_result", error);
        }
    }
    if (status == 0)
        flush_user(turns, &parts, path);
    json_decref(parts);
    return status;
}

static int read_tool_use(struct gs_turns *turns, const json_t *block, const char *path,
                         struct gs_api_error *error)
{
    struct gs_text id, name;
    int status = need_text(block, path, "id", &id, error);
    if (status == 0)
        status = need_text(block, path, "name", &name, error);
    json_t *input = member(block, "input");
    if (status == 0 && input && !json_is_object(input))
        status = expected(gs_json_path_key(path, "input").text, "an object", input, error);
    if (status != 0)
        return status;
    json_t *call_id = call_id_of(id);
    json_t *arguments = input ? json_incref(input) : json_object();
    if (call_id)
        gs_turns_call(turns, gs_json_text(call_id), json_object_get(block, "name"), arguments, path);
    json_decref(arguments);
    json_decref(call_id);
    return 0;
}

static int read_assistant_block(struct gs_turns *turns, const json_t *block, const char *path,
                                struct gs_api_error *error)
{
    struct gs_text type = gs_json_text(json_object_get(block, "type"));
    if (gs_text_is(type, "tool_use"))
        return read_tool_use(turns, block, path, error);
    if (gs_text_is(type, "redacted_thinking")) /* another server's: nothing to read */
        return 0;
    struct gs_text text;
    if (gs_text_is(type, "thinking")) {
        int status = need_text(block, path, "thinking", &text, error);
        if (status == 0)
            gs_turns_reasoning(turns, text, path);
        return status;
    }
    if (!gs_text_is(type, "text"))
        return refuse_block(block, path, "text, thinking or tool_use", error);
    int status = need_text(block, path, "text", &text, error);
    if (status == 0)
        gs_turns_text(turns, json_object_get(block, "text"), path);
    return status;
}

/* ---------------------------------------------------------------- messages */

static int read_message(struct gs_turns *turns, const json_t *message, const char *path,
                        struct gs_api_error *error)
{
    struct gs_text role;
    json_t *content = json_object_get(message, "content");
    struct gs_json_path at = gs_json_path_key(path, "content");
    if (!json_is_object(message))
        return expected(path, "an object", message, error);
    int status = need_text(message, path, "role", &role, error);
    if (status != 0)
        return status;
    bool assistant = gs_text_is(role, "assistant"), system = gs_text_is(role, "system");
    if (!assistant && !system && !gs_text_is(role, "user")) {
        at = gs_json_path_key(path, "role");
        return gs_api_bad(error, at.text, "%s: user or assistant is expected, not \"%s\"", at.text,
                          gs_quote_bytes(role.bytes, role.size).text);
    }
    if (json_is_string(content)) {
        if (assistant)
            gs_turns_text(turns, content, path);
        else
            gs_turns_message(turns, system ? "system" : "user", content, NULL, path);
        turns->open = NULL;
        return 0;
    }
    if (!json_is_array(content))
        return expected(at.text, "a string or an array of blocks", content, error);
    if (!assistant)
        return read_user_blocks(turns, content, path, at.text, error);
    for (size_t i = 0; i < json_array_size(content) && status == 0; i++)
        status = read_assistant_block(turns, json_array_get(content, i), gs_json_path_index(at.text, i).text,
                                      error);
    turns->open = NULL;
    return status;
}

static int read_messages(const json_t *body, struct gs_turns *turns, struct gs_api_error *error)
{
    const json_t *messages = json_object_get(body, "messages");
    int status = read_system(body, turns, error);
    if (status != 0)
        return status;
    if (!json_is_array(messages))
        return expected("messages", "an array", messages, error);
    if (json_array_size(messages) == 0)
        return gs_api_bad(error, "messages", "messages: at least one message is expected");
    for (size_t i = 0; i < json_array_size(messages) && status == 0; i++)
        status =
            read_message(turns, json_array_get(messages, i), gs_json_path_index("messages", i).text, error);
    return status;
}

/* ---------------------------------------------------------------- tools */

static int read_tool(const json_t *tool, const char *path, json_t *tools, struct gs_api_error *error)
{
    struct gs_text type = gs_json_text(json_object_get(tool, "type"));
    if (!json_is_object(tool))
        return expected(path, "an object", tool, error);
    if (type.bytes && !gs_text_is(type, "custom")) { /* the reader of chats skips it */
        json_array_append_new(tools, json_pack("{s:O}", "type", json_object_get(tool, "type")));
        return 0;
    }
    json_t *schema = member(tool, "input_schema");
    if (!json_is_object(schema))
        return expected(gs_json_path_key(path, "input_schema").text, "a JSON schema", schema, error);
    json_array_append_new(tools,
                          json_pack("{s:s, s:O*, s:O*, s:O, s:O*}", "type", "function", "name",
                                    json_object_get(tool, "name"), "description", member(tool, "description"),
                                    "parameters", schema, "strict", member(tool, "strict")));
    return 0;
}

static int read_tools(const json_t *body, json_t *chat, struct gs_api_error *error)
{
    const json_t *tools = member(body, "tools");
    int status = 0;
    if (!tools)
        return 0;
    if (!json_is_array(tools))
        return expected("tools", "an array", tools, error);
    json_t *read = json_array();
    for (size_t i = 0; i < json_array_size(tools) && status == 0; i++)
        status = read_tool(json_array_get(tools, i), gs_json_path_index("tools", i).text, read, error);
    json_object_set_new(chat, "tools", read);
    return status;
}

static int read_tool_choice(const json_t *body, json_t *chat, struct gs_api_error *error)
{
    const json_t *choice = member(body, "tool_choice");
    struct gs_text type;
    bool alone = false;
    if (!choice)
        return 0;
    if (!json_is_object(choice))
        return expected("tool_choice", "an object", choice, error);
    int status = need_text(choice, "tool_choice", "type", &type, error);
    if (status == 0 && gs_read_bool(choice, "disable_parallel_tool_use", &alone, error) != 0)
        return gs_api_within(error, "tool_choice");
    if (status != 0)
        return status;
    if (alone)
        json_object_set_new(chat, "parallel_tool_calls", json_false());
    if (gs_text_is(type, "tool")) {
        struct gs_text name;
        status = need_text(choice, "tool_choice", "name", &name, error);
        json_object_set_new(chat, "tool_choice",
                            json_pack("{s:s, s:{s:O?}}", "type", "function", "function", "name",
                                      json_object_get(choice, "name")));
        return status;
    }
    if (!gs_text_is(type, "auto") && !gs_text_is(type, "any") && !gs_text_is(type, "none"))
        return gs_api_bad(error, "tool_choice.type",
                          "tool_choice.type: auto, any, tool or none is expected, not \"%s\"",
                          gs_quote_bytes(type.bytes, type.size).text);
    json_object_set_new(chat, "tool_choice",
                        gs_text_is(type, "any") ? json_string("required")
                                                : json_stringn(type.bytes, type.size));
    return 0;
}

/* ---------------------------------------------------------------- effort and format */

/* Tokens of thinking that stand for an effort. */
enum { LOW_BUDGET = 4096, MEDIUM_BUDGET = 16384 };

static int read_thinking(const json_t *body, struct gs_messages_request *request, struct gs_api_error *error)
{
    const json_t *thinking = member(body, "thinking");
    struct gs_text type;
    int64_t budget = 0;
    if (!thinking)
        return 0;
    if (!json_is_object(thinking))
        return expected("thinking", "an object", thinking, error);
    int status = need_text(thinking, "thinking", "type", &type, error);
    if (status == 0 &&
        (status = gs_read_integer(thinking, "budget_tokens", 0, INT64_MAX, &budget, error)) != 0)
        return gs_api_within(error, "thinking");
    if (status != 0)
        return status;
    request->hide_thinking = gs_text_is(type, "disabled");
    if (!request->hide_thinking && !gs_text_is(type, "enabled") && !gs_text_is(type, "adaptive"))
        return gs_api_bad(error, "thinking.type",
                          "thinking.type: enabled, adaptive or disabled is expected, not \"%s\"",
                          gs_quote_bytes(type.bytes, type.size).text);
    const char *effort = budget > MEDIUM_BUDGET ? "high" : budget > LOW_BUDGET ? "medium" : "low";
    if (request->hide_thinking || budget > 0)
        json_object_set_new(request->chat, "reasoning_effort", json_string(effort));
    return 0;
}

/* output_config: {"effort", "format": {"type": "json_schema", "schema"}}; the format's older name is
 * output_format. */
static int read_output_config(const json_t *body, json_t *chat, struct gs_api_error *error)
{
    const json_t *config = member(body, "output_config");
    if (config && !json_is_object(config))
        return expected("output_config", "an object", config, error);
    json_t *effort = member(config, "effort");
    if (effort)
        json_object_set(chat, "reasoning_effort", effort);
    const json_t *format = member(config, "format");
    const char *path = "output_config.format";
    if (!format) {
        format = member(body, "output_format");
        path = "output_format";
    }
    if (!format)
        return 0;
    json_t *schema = member(format, "schema");
    if (!gs_text_is(gs_json_text(json_object_get(format, "type")), "json_schema") || !json_is_object(schema))
        return gs_api_bad(error, path, "%s: {\"type\": \"json_schema\", \"schema\": {...}} is expected",
                          path);
    json_object_set_new(chat, "response_format",
                        json_pack("{s:s, s:{s:s, s:O, s:b}}", "type", "json_schema", "json_schema", "name",
                                  "output", "schema", schema, "strict", 1));
    return 0;
}

int gs_messages_read(json_t *body, bool count, struct gs_messages_request *request,
                     struct gs_api_error *error)
{
    static const char *const same[] = {"model",  "max_tokens", "temperature", "top_p",       "top_k",
                                       "stream", "seed",       "metadata",    "service_tier"};
    request->chat = json_object();
    if (!request->chat)
        return gs_api_fail(error, 503, "out_of_memory", "memory is out");
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (member(body, same[i]))
            json_object_set(request->chat, same[i], member(body, same[i]));
    if (member(body, "stop_sequences"))
        json_object_set(request->chat, "stop", member(body, "stop_sequences"));
    if (!count && !member(body, "max_tokens"))
        return gs_api_bad(error, "max_tokens", "max_tokens: an integer is expected, not nothing");
    int status = read_messages(body, &request->turns, error);
    if (status == 0)
        status = read_tools(body, request->chat, error);
    if (status == 0)
        status = read_tool_choice(body, request->chat, error);
    if (status == 0)
        status = read_thinking(body, request, error);
    if (status == 0)
        status = read_output_config(body, request->chat, error);
    return status == 0 ? gs_turns_take(&request->turns, request->chat, error) : status;
}

static const struct gs_renamed renamed[] = {
    {"stop", "stop_sequences"},
    {"max_completion_tokens", "max_tokens"},
    {"reasoning_effort", "output_config.effort"},
    {"response_format.json_schema", "output_config.format"},
    {"response_format", "output_config.format"},
    {"tool_choice.function", "tool_choice"},
    {".tool_call_id", ".tool_use_id"},
    {".parameters", ".input_schema"},
    {NULL, NULL},
};

void gs_messages_rename(const struct gs_messages_request *request, struct gs_api_error *error)
{
    gs_turns_rename(&request->turns, renamed, error);
}

void gs_messages_rename_warnings(const struct gs_messages_request *request, json_t *warnings)
{
    gs_turns_rename_warnings(&request->turns, renamed, warnings);
}
