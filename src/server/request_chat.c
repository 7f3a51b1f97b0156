/* Chat completions: messages, tools and format become one prompt in harmony. */
#include "server/request_read.h"
#include "server/server_state.h"

#include "base/status.h"
#include "chat/harmony_render.h"
#include "chat/json_path.h"
#include "chat/json_text.h"
#include "chat/tools_json.h"

#include <stdlib.h>
#include <string.h>

/* Fields of the API that would change the answer and that nothing here does. */
static int refuse_unsupported(const json_t *body, struct gs_api_error *error)
{
    static const char *const keys[] = {"functions", "function_call", "audio"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *value = json_object_get(body, keys[i]);
        if (value && !json_is_null(value))
            return gs_api_bad(error, keys[i], "%s is not supported%s", keys[i],
                              keys[i][0] == 'f' ? ": tools and tool_choice are" : "");
    }
    const json_t *modalities = json_object_get(body, "modalities");
    if (modalities && !json_is_null(modalities) && !json_is_array(modalities))
        return gs_api_bad(error, "modalities", "modalities: an array is expected, not %s",
                          gs_json_kind(modalities));
    for (size_t i = 0; i < json_array_size(modalities); i++)
        if (!gs_text_is(gs_json_text(json_array_get(modalities, i)), "text"))
            return gs_api_bad(error, "modalities", "modalities: only \"text\" is supported");
    return 0;
}

/* ---------------------------------------------------------------- tools and format */

static int read_named_tool(const json_t *choice, struct gs_request *request, struct gs_api_error *error)
{
    const json_t *function = json_object_get(choice, "function");
    struct gs_text type = gs_json_text(json_object_get(choice, "type"));
    if (!gs_text_is(type, "function"))
        return gs_api_bad(error, "tool_choice.type", "tool_choice.type: \"function\" is expected");
    if (function && !json_is_object(function))
        return gs_api_bad(error, "tool_choice.function",
                          "tool_choice.function: an object is expected, not %s", gs_json_kind(function));
    request->tool_name = gs_json_text(json_object_get(function ? function : choice, "name"));
    if (!request->tool_name.bytes || !gs_conversation_declares(&request->conversation, request->tool_name))
        return gs_api_bad(error, "tool_choice.function.name",
                          "tool_choice.function.name: the name of one of the tools is expected");
    request->tool_choice = GS_TOOLS_NAMED;
    return 0;
}

static int read_tool_choice(const json_t *body, struct gs_request *request, struct gs_api_error *error)
{
    const json_t *choice = json_object_get(body, "tool_choice");
    struct gs_text text = gs_json_text(choice);
    bool declared = request->tools.n_function > 0;
    if (!choice || json_is_null(choice) || gs_text_is(text, "auto"))
        return 0;
    if (gs_text_is(text, "none")) {
        request->tool_choice = GS_TOOLS_NONE;
        return 0;
    }
    if (gs_text_is(text, "required")) {
        if (!declared)
            return gs_api_bad(error, "tool_choice",
                              "tool_choice: a call cannot be required without tools of type \"function\"");
        request->tool_choice = GS_TOOLS_REQUIRED;
        return 0;
    }
    if (json_is_object(choice))
        return read_named_tool(choice, request, error);
    return gs_api_bad(
        error, "tool_choice",
        "tool_choice: \"none\", \"auto\", \"required\" or {\"type\": \"function\", ...} is expected");
}

static int read_logprobs(const json_t *body, struct gs_request *request, struct gs_api_error *error)
{
    int64_t top = -1;
    int status = gs_read_bool(body, "logprobs", &request->logprobs, error);
    if (status == 0)
        status = gs_read_integer(body, "top_logprobs", 0, GS_MAX_TOP_LOGPROBS, &top, error);
    if (status == 0 && top > 0 && !request->logprobs)
        return gs_api_bad(error, "top_logprobs", "top_logprobs: needs logprobs to be true");
    request->n_top_logprobs = top > 0 ? (size_t)top : 0;
    return status;
}

/* How clients of other servers say which field they want, or none. */
static int read_reasoning_format(const json_t *body, struct gs_request *request, struct gs_api_error *error)
{
    struct gs_text format = {0};
    int status = gs_read_text(body, "reasoning_format", &format, error);
    if (status != 0 || !format.bytes || gs_text_is(format, "both") || gs_text_is(format, "auto"))
        return status;
    request->as_reasoning = gs_text_is(format, "reasoning");
    request->as_reasoning_content = gs_text_is(format, "reasoning_content") || gs_text_is(format, "deepseek");
    if (request->as_reasoning || request->as_reasoning_content || gs_text_is(format, "hidden"))
        return 0;
    return gs_api_bad(error, "reasoning_format",
                      "reasoning_format: \"both\", \"reasoning\", \"reasoning_content\" or \"hidden\" is "
                      "expected");
}

/* ---------------------------------------------------------------- the conversation */

/* Of a tool whose form was checked; not set: it is no function. */
static struct gs_text name_of(const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function");
    bool is_function = gs_text_is(gs_json_text(json_object_get(tool, "type")), "function");
    return is_function ? gs_json_text(json_object_get(function ? function : tool, "name"))
                       : (struct gs_text){0};
}

/* Which of two a call means could not be told. */
static int check_unique(const json_t *tools, struct gs_api_error *error)
{
    struct gs_text names[GS_MAX_TOOLS];
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        names[i] = name_of(tool);
        for (size_t before = 0; names[i].bytes && before < i; before++) {
            if (!names[before].bytes || !gs_text_equal(names[before], names[i]))
                continue;
            struct gs_json_path path = gs_json_path_index("tools", i);
            if (json_object_get(tool, "function"))
                path = gs_json_path_key(path.text, "function");
            path = gs_json_path_key(path.text, "name");
            return gs_api_bad(error, path.text, "%s: names have to be unique, and tools[%zu] is \"%s\" too",
                              path.text, before, gs_quote_bytes(names[i].bytes, names[i].size).text);
        }
    }
    return 0;
}

/* Of chat_template_kwargs: known keys only. */
static int read_template_arguments(const json_t *body, struct gs_conversation_settings *settings,
                                   struct gs_api_error *error)
{
    const json_t *arguments = json_object_get(body, "chat_template_kwargs");
    struct gs_text effort = {0}, identity = {0};
    if (!arguments || json_is_null(arguments))
        return 0;
    if (!json_is_object(arguments))
        return gs_api_bad(error, "chat_template_kwargs",
                          "chat_template_kwargs: an object is expected, not %s", gs_json_kind(arguments));
    int status = gs_read_text(arguments, "reasoning_effort", &effort, error);
    if (status == 0)
        status = gs_read_text(arguments, "model_identity", &identity, error);
    if (status == 0 && effort.bytes && !gs_effort_parse(effort, &settings->effort))
        status = gs_api_bad(error, "reasoning_effort",
                            "reasoning_effort: \"low\", \"medium\" or \"high\" is expected, not \"%s\"",
                            gs_quote_bytes(effort.bytes, effort.size).text);
    if (status != 0)
        return gs_api_within(error, "chat_template_kwargs");
    if (identity.bytes && !memchr(identity.bytes, '\0', identity.size))
        settings->identity = identity.bytes;
    return 0;
}

static int read_conversation(struct gs_server *server, json_t *body, struct gs_request *request,
                             struct gs_api_error *error)
{
    const struct gs_server_config *config = gs_server_config(server);
    struct gs_conversation_settings settings = {.identity = config->identity, .date = gs_server_date(server)};
    struct gs_error cause;
    const json_t *messages = json_object_get(body, "messages");
    if (!json_is_array(messages))
        return gs_api_bad(error, "messages", "messages: an array is expected, not %s",
                          gs_json_kind(messages));
    if (json_array_size(messages) == 0)
        return gs_api_bad(error, "messages", "messages: at least one message is expected");
    if (json_array_size(json_object_get(body, "tools")) > GS_MAX_TOOLS)
        return gs_api_bad(error, "tools", "tools: at most %d are taken", GS_MAX_TOOLS);
    int bad = read_template_arguments(body, &settings, error);
    if (bad != 0)
        return bad;
    gs_status status = gs_conversation_from_json(&settings, body, &request->conversation, &cause);
    if (status == GS_OK)
        status = gs_conversation_tools(&request->conversation, &request->tools, &cause);
    if (status != GS_OK)
        return gs_api_error_from(error, status, &cause);
    bad = check_unique(json_object_get(body, "tools"), error);
    for (size_t i = 0; bad == 0 && i < request->conversation.n_skipped_tool; i++) {
        struct gs_text type = request->conversation.skipped_tools[i];
        gs_server_log(server, "a tool of type \"%s\" was skipped",
                      gs_quote_bytes(type.bytes, type.size).text);
    }
    return bad;
}

static int render(struct gs_server *server, struct gs_request *request, struct gs_api_error *error)
{
    struct gs_error cause;
    request->prompts = calloc(1, sizeof *request->prompts);
    if (!request->prompts)
        return gs_api_fail(error, 503, "out_of_memory", "memory is out");
    request->n_prompt = 1;
    struct gs_render_options how = {.replay = gs_server_lock_replay(server)};
    gs_status status = gs_harmony_render(gs_server_vocab(server), &request->conversation, &how,
                                         &request->prompts[0], NULL, &cause);
    gs_server_unlock_replay(server);
    return status == GS_OK ? 0 : gs_api_error_from(error, status, &cause);
}

int gs_request_read_chat(struct gs_server *server, json_t *body, struct gs_request *request,
                         struct gs_api_error *error)
{
    request->chat = true;
    request->document = json_incref(body);
    int status = gs_request_read_common(server, body, request, error);
    if (status == 0)
        status = gs_request_read_limit(server, body, 1, request, error);
    if (status == 0)
        status = read_logprobs(body, request, error);
    if (status == 0)
        status = gs_read_bool(body, "parallel_tool_calls", &request->parallel_tool_calls, error);
    if (status == 0)
        status = read_reasoning_format(body, request, error);
    if (status == 0)
        status = gs_read_integer(body, "reasoning_budget", 0, INT64_MAX, &request->reasoning_budget, error);
    if (status == 0)
        status = refuse_unsupported(body, error);
    if (status == 0)
        status = read_conversation(server, body, request, error);
    if (status == 0)
        status = read_tool_choice(body, request, error);
    if (status == 0)
        status = gs_request_read_format(body, request, error);
    if (status == 0) {
        struct gs_steer_tools tools = gs_server_steer_tools(server);
        status = gs_steer_plan_make(&tools, request, &request->steer, error);
    }
    if (status == 0)
        status = render(server, request, error);
    return status == 0 ? gs_request_check_room(server, request, error) : status;
}
