#include "chat/tools_json.h"

#include "base/status.h"
#include "chat/json_path.h"

#define MAX_TOOL_NAME 64 /* bytes */

bool gs_tool_name_valid(struct gs_text name, bool dots, size_t most)
{
    for (size_t i = 0; i < name.size; i++) {
        char c = name.bytes[i];
        if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
              c == '-' || (dots && c == '.')))
            return false;
    }
    return name.size > 0 && name.size <= most;
}

bool gs_conversation_declares(const struct gs_conversation *conversation, struct gs_text name)
{
    const struct gs_namespace *functions = conversation->functions;
    for (size_t i = 0; functions && i < functions->n_function; i++)
        if (gs_text_equal(functions->functions[i].name, name))
            return true;
    return false;
}

gs_status gs_conversation_tools(struct gs_conversation *conversation, struct gs_declared_tools *tools,
                                struct gs_error *error)
{
    const struct gs_namespace *functions = conversation->functions;
    size_t count = functions ? functions->n_function : 0;
    struct gs_text *names = gs_conversation_alloc(conversation, count, sizeof *names, error);
    *tools = (struct gs_declared_tools){.browser = conversation->browser, .python = conversation->python};
    if (!names)
        return GS_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++)
        names[i] = functions->functions[i].name;
    tools->functions = names;
    tools->n_function = count;
    return GS_OK;
}

static gs_status read_function(bool dotted_names, const json_t *function, const char *path,
                               struct gs_function *out, struct gs_error *error)
{
    out->name = gs_json_text(json_object_get(function, "name"));
    if (!gs_tool_name_valid(out->name, dotted_names, MAX_TOOL_NAME))
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "%s.name: 1 to %d characters of [A-Za-z0-9_%s-] are expected%s%s%s", path,
                       MAX_TOOL_NAME, dotted_names ? "." : "", out->name.bytes ? ", not \"" : "",
                       out->name.bytes ? gs_quote_bytes(out->name.bytes, out->name.size).text : "",
                       out->name.bytes ? "\"" : "");
    const json_t *strict = json_object_get(function, "strict");
    if (strict && !json_is_null(strict) && !json_is_boolean(strict))
        return gs_json_unexpected(gs_json_path_key(path, "strict").text, "true or false", strict, error);
    out->parameters = json_object_get(function, "parameters");
    if (json_is_null(out->parameters))
        out->parameters = NULL;
    if (out->parameters && !json_is_object(out->parameters) && !json_is_boolean(out->parameters))
        return gs_json_unexpected(gs_json_path_key(path, "parameters").text, "a JSON schema", out->parameters,
                                  error);
    return gs_json_member_text(function, path, "description", &out->description, error);
}

static gs_status read_tool(bool dotted_names, const json_t *tool, const char *path,
                           struct gs_conversation *conversation, struct gs_namespace *functions,
                           struct gs_error *error)
{
    const json_t *type = json_object_get(tool, "type"), *function = json_object_get(tool, "function");
    if (!json_is_object(tool))
        return gs_json_unexpected(path, "an object", tool, error);
    if (!json_is_string(type))
        return gs_json_unexpected(gs_json_path_key(path, "type").text, "a string such as \"function\"", type,
                                  error);
    if (!gs_text_is(gs_json_text(type), "function")) {
        conversation->skipped_tools[conversation->n_skipped_tool++] = gs_json_text(type);
        return GS_OK;
    }
    if (function && !json_is_object(function))
        return gs_json_unexpected(gs_json_path_key(path, "function").text, "an object", function, error);
    struct gs_json_path at = gs_json_path_key(path, "function");
    return read_function(dotted_names, function ? function : tool, function ? at.text : path,
                         &functions->functions[functions->n_function++], error);
}

gs_status gs_read_tools(bool dotted_names, const json_t *request, struct gs_conversation *conversation,
                        struct gs_developer_content *developer, struct gs_error *error)
{
    const json_t *tools;
    gs_status status = gs_json_member_array(request, "", "tools", &tools, error);
    size_t count = json_array_size(tools);
    bool none = gs_text_is(gs_json_text(json_object_get(request, "tool_choice")), "none");
    if (status != GS_OK || count == 0)
        return status;
    struct gs_namespace *functions = gs_conversation_alloc(conversation, 1, sizeof *functions, error);
    struct gs_function *list = gs_conversation_alloc(conversation, count, sizeof *list, error);
    conversation->skipped_tools =
        gs_conversation_alloc(conversation, count, sizeof *conversation->skipped_tools, error);
    if (!functions || !list || !conversation->skipped_tools)
        return GS_OUT_OF_MEMORY;
    *functions = (struct gs_namespace){
        .key = gs_text_of("functions"), .name = gs_text_of("functions"), .functions = list};
    for (size_t i = 0; i < count && status == GS_OK; i++)
        status = read_tool(dotted_names, json_array_get(tools, i), gs_json_path_index("tools", i).text,
                           conversation, functions, error);
    if (status != GS_OK || none || functions->n_function == 0)
        return status;
    conversation->functions = functions;
    developer->namespaces = functions;
    developer->n_namespace = 1;
    return GS_OK;
}

gs_status gs_read_response_format(const json_t *request, struct gs_developer_content *developer,
                                  struct gs_error *error)
{
    static const char where[] = "response_format", inner[] = "response_format.json_schema";
    const json_t *format = json_object_get(request, where);
    if (!format || json_is_null(format))
        return GS_OK;
    struct gs_text type = gs_json_text(json_object_get(format, "type"));
    const json_t *schema = json_object_get(format, "json_schema");
    if (!json_is_object(format))
        return gs_json_unexpected(where, "an object", format, error);
    if (gs_text_is(type, "text") || gs_text_is(type, "json_object"))
        return GS_OK;
    if (!gs_text_is(type, "json_schema"))
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "response_format.type: \"text\", \"json_object\" or \"json_schema\" is expected");
    if (!json_is_object(schema))
        return gs_json_unexpected(inner, "an object", schema, error);
    gs_status status = gs_json_member_text(schema, inner, "name", &developer->format_name, error);
    if (status == GS_OK)
        status = gs_json_member_text(schema, inner, "description", &developer->format_description, error);
    if (status != GS_OK)
        return status;
    if (!developer->format_name.bytes)
        return gs_json_unexpected("response_format.json_schema.name", "a string",
                                  json_object_get(schema, "name"), error);
    developer->format_schema = json_object_get(schema, "schema");
    if (!json_is_object(developer->format_schema))
        return gs_json_unexpected("response_format.json_schema.schema", "an object", developer->format_schema,
                                  error);
    return GS_OK;
}
