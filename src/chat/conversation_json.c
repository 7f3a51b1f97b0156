#include "chat/conversation_json.h"

#include "base/status.h"
#include "chat/call_table.h"
#include "chat/json_path.h"
#include "chat/tools_json.h"

struct reader {
    const struct gs_conversation_settings *settings;
    struct gs_conversation *out;
    struct gs_error *error;
    struct gs_call_table calls;
};

/* ---------------------------------------------------------------- content */

static gs_status read_part(struct reader *r, const json_t *part, const char *path, struct gs_content *content)
{
    if (json_is_string(part)) {
        content->text = gs_json_text(part);
        return GS_OK;
    }
    struct gs_text type = gs_json_text(json_object_get(part, "type"));
    struct gs_json_path at = gs_json_path_key(path, "type");
    if (!json_is_object(part))
        return gs_json_unexpected(path, "an object such as {\"type\": \"text\", \"text\": ...}", part,
                                  r->error);
    if (!type.bytes)
        return gs_json_unexpected(at.text, "a string", json_object_get(part, "type"), r->error);
    bool refusal = gs_text_is(type, "refusal");
    if (!refusal && !gs_text_is(type, "text") && !gs_text_is(type, "input_text") &&
        !gs_text_is(type, "output_text"))
        return gs_fail(r->error, GS_INVALID_ARGUMENT,
                       "%s: \"text\" or \"refusal\" is expected, not \"%s\": the model reads text only",
                       at.text, gs_quote_bytes(type.bytes, type.size).text);
    const char *key = refusal ? "refusal" : "text";
    content->text = gs_json_text(json_object_get(part, key));
    if (!content->text.bytes)
        return gs_json_unexpected(gs_json_path_key(path, key).text, "a string", json_object_get(part, key),
                                  r->error);
    return GS_OK;
}

/* "content": a text, parts, or nothing. Empty parts are left out; *given: something was there. */
static gs_status read_contents(struct reader *r, const json_t *message, const char *path,
                               struct gs_message *out, bool *given)
{
    const json_t *content = json_object_get(message, "content");
    struct gs_json_path at = gs_json_path_key(path, "content");
    size_t count = json_is_array(content) ? json_array_size(content) : 1;
    out->n_content = 0;
    *given = content && !json_is_null(content);
    if (!*given)
        return GS_OK;
    if (!json_is_array(content) && !json_is_string(content))
        return gs_json_unexpected(at.text, "a string, an array of parts or null", content, r->error);
    out->contents = gs_conversation_alloc(r->out, count, sizeof *out->contents, r->error);
    if (!out->contents)
        return GS_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const json_t *part = json_is_array(content) ? json_array_get(content, i) : content;
        struct gs_content *to = &out->contents[out->n_content];
        gs_status status = read_part(r, part, gs_json_path_index(at.text, i).text, to);
        if (status != GS_OK)
            return status;
        out->n_content += to->text.size > 0;
    }
    return GS_OK;
}

/* ---------------------------------------------------------------- instructions */

/* Appends the text of a system or developer message, after a blank line if something stands there already. */
static gs_status append_instructions(struct reader *r, const json_t *message, const char *path,
                                     struct gs_buffer *text)
{
    struct gs_message read = {0};
    bool given;
    gs_status status = read_contents(r, message, path, &read, &given);
    if (status == GS_OK && read.n_content > 0 && text->size > 0)
        status = gs_buffer_append_text(text, "\n\n", r->error);
    for (size_t i = 0; i < read.n_content && status == GS_OK; i++)
        status = gs_buffer_append(text, read.contents[i].text.bytes, read.contents[i].text.size, r->error);
    return status;
}

static gs_status add_developer(struct reader *r, const struct gs_developer_content *developer)
{
    struct gs_message message = {.role = GS_ROLE_DEVELOPER, .n_content = 1};
    message.contents = gs_conversation_alloc(r->out, 1, sizeof *message.contents, r->error);
    struct gs_developer_content *copy = gs_conversation_alloc(r->out, 1, sizeof *copy, r->error);
    if (!message.contents || !copy)
        return GS_OUT_OF_MEMORY;
    *copy = *developer;
    message.contents->developer = copy;
    return gs_conversation_add(r->out, &message, r->error);
}

static gs_status keep_text(struct reader *r, const struct gs_buffer *buffer, struct gs_text *text)
{
    *text = (struct gs_text){0};
    if (buffer->size == 0)
        return GS_OK;
    char *copy = gs_arena_copy(&r->out->arena, buffer->data, buffer->size);
    if (!copy)
        return gs_fail_memory(r->error, buffer->size);
    *text = (struct gs_text){copy, buffer->size};
    return GS_OK;
}

static gs_status read_later_instructions(struct reader *r, const json_t *message, const char *path)
{
    struct gs_developer_content developer = {0};
    struct gs_buffer text = {0};
    gs_status status = append_instructions(r, message, path, &text);
    if (status == GS_OK)
        status = keep_text(r, &text, &developer.instructions);
    if (status == GS_OK && developer.instructions.bytes)
        status = add_developer(r, &developer);
    gs_buffer_free(&text);
    return status;
}

/* ---------------------------------------------------------------- assistant */

/* Declared functions are called in commentary, built-in tools in the analysis, as the model was trained. */
static bool is_builtin_call(const struct reader *r, struct gs_text name)
{
    bool builtin = (r->out->python && gs_text_is(name, "python")) ||
                   (r->out->browser && gs_text_begins(name, "browser."));
    return builtin && !gs_conversation_declares(r->out, name);
}

static gs_status function_recipient(struct reader *r, struct gs_text name, struct gs_text *recipient)
{
    struct gs_buffer text = {0};
    gs_status status = gs_buffer_append_text(&text, "functions.", r->error);
    if (status == GS_OK)
        status = gs_buffer_append(&text, name.bytes, name.size, r->error);
    if (status == GS_OK)
        status = keep_text(r, &text, recipient);
    gs_buffer_free(&text);
    return status;
}

static gs_status read_call(struct reader *r, const json_t *call, const char *path, size_t source)
{
    struct gs_message message = {.role = GS_ROLE_ASSISTANT, .source = source, .n_content = 1};
    const json_t *function = json_object_get(call, "function");
    struct gs_json_path at = gs_json_path_key(path, "function");
    if (!json_is_object(call))
        return gs_json_unexpected(path, "an object", call, r->error);
    if (!json_is_object(function))
        return gs_json_unexpected(at.text, "an object", function, r->error);
    struct gs_text name = gs_json_text(json_object_get(function, "name"));
    if (!gs_tool_name_valid(name, true, SIZE_MAX))
        return gs_fail(r->error, GS_INVALID_ARGUMENT, "%s.name: %s", at.text,
                       "the name of the function that was called is expected, of [A-Za-z0-9_.-]");
    gs_status status = gs_json_member_text(call, path, "id", &message.call_id, r->error);
    if (status == GS_OK && is_builtin_call(r, name)) {
        message.recipient = name;
        message.channel = gs_text_of("analysis");
        message.content_type = gs_text_of("code");
    } else if (status == GS_OK) {
        message.channel = gs_text_of("commentary");
        message.content_type = gs_text_of("<|constrain|>json");
        status = function_recipient(r, name, &message.recipient);
    }
    if (status != GS_OK)
        return status;
    message.contents = gs_conversation_text(r->out, gs_text_of(""), r->error);
    if (!message.contents)
        return GS_OUT_OF_MEMORY;
    const json_t *arguments = json_object_get(function, "arguments");
    message.contents->text = gs_json_text(arguments);
    if (json_is_object(arguments)) { /* some clients do not serialise them */
        struct gs_buffer text = {0};
        struct gs_writer writer = {.buffer = &text, .status = GS_OK, .error = r->error};
        gs_write_json(&writer, arguments);
        status = writer.status == GS_OK ? keep_text(r, &text, &message.contents->text) : writer.status;
        gs_buffer_free(&text);
    } else if (!message.contents->text.bytes && arguments && !json_is_null(arguments)) {
        return gs_json_unexpected(gs_json_path_key(at.text, "arguments").text, "a string", arguments,
                                  r->error);
    } else if (!message.contents->text.bytes) {
        message.contents->text = gs_text_of("");
    }
    if (status == GS_OK && message.call_id.bytes)
        status = gs_call_table_put(&r->calls, message.call_id, r->out->count, r->error);
    return status == GS_OK ? gs_conversation_add(r->out, &message, r->error) : status;
}

/* Reasoning has three names in the wild; the first that holds text counts. */
static gs_status read_reasoning(struct reader *r, const json_t *message, const char *path,
                                struct gs_text *reasoning)
{
    static const char *const names[] = {"reasoning", "reasoning_content", "thinking"};
    *reasoning = (struct gs_text){0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct gs_text text;
        gs_status status = gs_json_member_text(message, path, names[i], &text, r->error);
        if (status != GS_OK)
            return status;
        if (reasoning->size == 0)
            *reasoning = text;
    }
    return GS_OK;
}

static gs_status read_assistant(struct reader *r, const json_t *message, const char *path, size_t source)
{
    struct gs_message answer = {.role = GS_ROLE_ASSISTANT, .source = source};
    struct gs_message thought = {.role = GS_ROLE_ASSISTANT, .source = source, .n_content = 1};
    struct gs_text reasoning = {0}, refusal = {0};
    const json_t *calls = NULL;
    bool given = false;
    gs_status status = read_contents(r, message, path, &answer, &given);
    if (status == GS_OK)
        status = read_reasoning(r, message, path, &reasoning);
    if (status == GS_OK)
        status = gs_json_member_array(message, path, "tool_calls", &calls, r->error);
    if (status == GS_OK)
        status = gs_json_member_text(message, path, "refusal", &refusal, r->error);
    if (status == GS_OK && reasoning.size > 0) {
        thought.channel = gs_text_of("analysis");
        thought.contents = gs_conversation_text(r->out, reasoning, r->error);
        status = thought.contents ? gs_conversation_add(r->out, &thought, r->error) : GS_OUT_OF_MEMORY;
    }
    if (status == GS_OK && answer.n_content == 0 && refusal.size > 0) {
        answer.contents = gs_conversation_text(r->out, refusal, r->error);
        answer.n_content = 1;
        status = answer.contents ? GS_OK : GS_OUT_OF_MEMORY;
    }
    size_t n_call = json_array_size(calls);
    /* An empty answer is only a message where nothing else was said: it would end the turn. */
    bool empty = given && reasoning.size == 0 && n_call == 0;
    if (status == GS_OK && (answer.n_content > 0 || empty)) {
        answer.channel = gs_text_of(n_call > 0 ? "commentary" : "final");
        status = gs_conversation_add(r->out, &answer, r->error);
    }
    struct gs_json_path at = gs_json_path_key(path, "tool_calls");
    for (size_t i = 0; i < n_call && status == GS_OK; i++)
        status = read_call(r, json_array_get(calls, i), gs_json_path_index(at.text, i).text, source);
    return status;
}

/* ---------------------------------------------------------------- other roles */

static gs_status read_result(struct reader *r, const json_t *message, const char *path)
{
    struct gs_message result = {.role = GS_ROLE_TOOL, .recipient = gs_text_of("assistant")};
    struct gs_text name;
    size_t caller;
    bool given;
    gs_status status = gs_json_member_text(message, path, "tool_call_id", &result.call_id, r->error);
    if (status == GS_OK)
        status = gs_json_member_text(message, path, "name", &name, r->error);
    if (status == GS_OK)
        status = read_contents(r, message, path, &result, &given);
    if (status != GS_OK)
        return status;
    if (result.call_id.bytes && gs_call_table_find(&r->calls, result.call_id, &caller)) {
        result.name = r->out->messages[caller].recipient;
        result.channel = r->out->messages[caller].channel;
    } else if (gs_tool_name_valid(name, true, SIZE_MAX)) {
        bool builtin = is_builtin_call(r, name);
        result.name = name;
        result.channel = gs_text_of(builtin ? "analysis" : "commentary");
        if (!builtin && !gs_text_begins(name, "functions."))
            status = function_recipient(r, name, &result.name);
    } else {
        return gs_fail(r->error, GS_INVALID_ARGUMENT,
                       "%s.tool_call_id: the id of a call in an earlier assistant message is expected%s%s%s",
                       path, result.call_id.bytes ? ", not \"" : "",
                       result.call_id.bytes ? gs_quote_bytes(result.call_id.bytes, result.call_id.size).text
                                            : "",
                       result.call_id.bytes ? "\"" : "");
    }
    return status == GS_OK ? gs_conversation_add(r->out, &result, r->error) : status;
}

static gs_status read_user(struct reader *r, const json_t *message, const char *path)
{
    struct gs_message user = {.role = GS_ROLE_USER};
    bool given;
    gs_status status = read_contents(r, message, path, &user, &given);
    if (status == GS_OK)
        status = gs_json_member_text(message, path, "name", &user.name, r->error);
    return status == GS_OK ? gs_conversation_add(r->out, &user, r->error) : status;
}

static bool is_instructions(const json_t *message)
{
    struct gs_text role = gs_json_text(json_object_get(message, "role"));
    return gs_text_is(role, "system") || gs_text_is(role, "developer");
}

static gs_status read_message(struct reader *r, const json_t *message, const char *path, size_t index)
{
    struct gs_text role = gs_json_text(json_object_get(message, "role"));
    if (!json_is_object(message))
        return gs_json_unexpected(path, "an object", message, r->error);
    if (is_instructions(message))
        return read_later_instructions(r, message, path);
    if (gs_text_is(role, "user"))
        return read_user(r, message, path);
    if (gs_text_is(role, "assistant"))
        return read_assistant(r, message, path, index + 1);
    if (gs_text_is(role, "tool"))
        return read_result(r, message, path);
    if (!role.bytes)
        return gs_json_unexpected(gs_json_path_key(path, "role").text, "a string",
                                  json_object_get(message, "role"), r->error);
    return gs_fail(r->error, GS_INVALID_ARGUMENT,
                   "%s.role: system, developer, user, assistant or tool is expected, not \"%s\"", path,
                   gs_quote_bytes(role.bytes, role.size).text);
}

/* ---------------------------------------------------------------- the whole */

static gs_status add_system(struct reader *r)
{
    const struct gs_conversation_settings *s = r->settings;
    struct gs_system_content *system = gs_conversation_alloc(r->out, 1, sizeof *system, r->error);
    struct gs_message message = {.role = GS_ROLE_SYSTEM, .n_content = 1};
    message.contents = gs_conversation_alloc(r->out, 1, sizeof *message.contents, r->error);
    struct gs_text *channels = gs_conversation_alloc(r->out, 3, sizeof *channels, r->error);
    struct gs_namespace *tools = gs_conversation_alloc(r->out, 2, sizeof *tools, r->error);
    if (!system || !message.contents || !channels || !tools)
        return GS_OUT_OF_MEMORY;
    channels[0] = gs_text_of("analysis");
    channels[1] = gs_text_of("commentary");
    channels[2] = gs_text_of("final");
    system->identity = gs_text_of(s->identity ? s->identity : GS_DEFAULT_IDENTITY);
    system->cutoff = gs_text_of(s->cutoff ? s->cutoff : GS_DEFAULT_CUTOFF);
    if (system->cutoff.size == 0)
        system->cutoff.bytes = NULL;
    system->date = gs_text_of(s->date);
    system->channels = channels;
    system->n_channel = 3;
    system->channel_required = true;
    system->namespaces = tools;
    if (r->out->browser)
        tools[system->n_namespace++] = gs_builtin_browser();
    if (r->out->python)
        tools[system->n_namespace++] = gs_builtin_python();
    message.contents->system = system;
    return gs_conversation_add(r->out, &message, r->error);
}

static gs_status read_effort(struct reader *r, const json_t *request)
{
    enum gs_effort effort = r->settings->effort;
    const json_t *value = json_object_get(request, "reasoning_effort");
    struct gs_text text = gs_json_text(value);
    if (value && !json_is_null(value) && !gs_effort_parse(text, &effort))
        return gs_fail(r->error, GS_INVALID_ARGUMENT,
                       "reasoning_effort: \"low\", \"medium\" or \"high\" is expected, not %s%s%s",
                       text.bytes ? "\"" : "",
                       text.bytes ? gs_quote_bytes(text.bytes, text.size).text : gs_json_kind(value),
                       text.bytes ? "\"" : "");
    struct gs_system_content *system =
        (struct gs_system_content *)(uintptr_t)r->out->messages[0].contents->system;
    system->effort = gs_text_of(gs_effort_name(effort));
    return GS_OK;
}

/* The leading system and developer messages, the tools and the response format: one developer message. */
static gs_status read_head(struct reader *r, const json_t *request, const json_t *messages, const char *path,
                           size_t *n_leading)
{
    struct gs_developer_content developer = {0};
    struct gs_buffer text = {0};
    gs_status status = gs_read_tools(r->settings->dotted_names, request, r->out, &developer, r->error);
    if (status == GS_OK)
        status = gs_read_response_format(request, &developer, r->error);
    for (*n_leading = 0; status == GS_OK && is_instructions(json_array_get(messages, *n_leading));
         ++*n_leading)
        status = append_instructions(r, json_array_get(messages, *n_leading),
                                     gs_json_path_index(path, *n_leading).text, &text);
    if (status == GS_OK)
        status = keep_text(r, &text, &developer.instructions);
    if (status == GS_OK &&
        (developer.instructions.bytes || developer.n_namespace > 0 || developer.format_schema))
        status = add_developer(r, &developer);
    gs_buffer_free(&text);
    return status;
}

gs_status gs_conversation_from_json(const struct gs_conversation_settings *settings, json_t *request,
                                    struct gs_conversation *out, struct gs_error *error)
{
    struct reader r = {.settings = settings, .out = out, .error = error};
    const json_t *messages;
    const char *path;
    size_t n_leading = 0;
    *out = (struct gs_conversation){.browser = settings->browser, .python = settings->python};
    gs_status status = gs_json_messages(request, &messages, &path, error);
    if (status != GS_OK)
        return status;
    out->document = json_incref(request);
    status = add_system(&r);
    if (status == GS_OK)
        status = read_effort(&r, request);
    if (status == GS_OK)
        status = read_head(&r, request, messages, path, &n_leading);
    for (size_t i = n_leading; i < json_array_size(messages) && status == GS_OK; i++)
        status = read_message(&r, json_array_get(messages, i), gs_json_path_index(path, i).text, i);
    gs_call_table_free(&r.calls);
    return status;
}
