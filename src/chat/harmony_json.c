#include "chat/harmony_json.h"

#include "base/status.h"
#include "chat/json_path.h"

struct reader {
    struct gs_conversation *out;
    struct gs_error *error;
};

static gs_status read_functions(struct reader *r, const json_t *list, const char *path,
                                struct gs_namespace *out)
{
    size_t count = json_array_size(list);
    out->functions = gs_conversation_alloc(r->out, count, sizeof *out->functions, r->error);
    if (!out->functions)
        return GS_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const json_t *tool = json_array_get(list, i);
        struct gs_function *function = &out->functions[out->n_function++];
        struct gs_json_path at = gs_json_path_index(path, i);
        gs_status status = gs_json_member_text(tool, at.text, "name", &function->name, r->error);
        if (status == GS_OK)
            status = gs_json_member_text(tool, at.text, "description", &function->description, r->error);
        if (status != GS_OK)
            return status;
        if (!function->name.bytes)
            return gs_json_unexpected(gs_json_path_key(at.text, "name").text, "a string",
                                      json_object_get(tool, "name"), r->error);
        function->parameters = json_object_get(tool, "parameters");
        if (json_is_null(function->parameters))
            function->parameters = NULL;
    }
    return GS_OK;
}

static gs_status read_namespaces(struct reader *r, const json_t *content, const char *path,
                                 struct gs_namespace **out, size_t *count)
{
    const json_t *tools = json_object_get(content, "tools");
    struct gs_json_path at = gs_json_path_key(path, "tools");
    const char *key;
    json_t *value;
    if (!tools || json_is_null(tools))
        return GS_OK;
    if (!json_is_object(tools))
        return gs_json_unexpected(at.text, "an object", tools, r->error);
    *out = gs_conversation_alloc(r->out, json_object_size(tools), sizeof **out, r->error);
    if (!*out)
        return GS_OUT_OF_MEMORY;
    json_object_foreach((json_t *)(uintptr_t)tools, key, value)
    {
        struct gs_namespace *space = &(*out)[(*count)++];
        struct gs_json_path own = gs_json_path_key(at.text, key), list = gs_json_path_key(own.text, "tools");
        const json_t *functions;
        space->key = gs_text_of(key);
        gs_status status = gs_json_member_text(value, own.text, "name", &space->name, r->error);
        if (status == GS_OK)
            status = gs_json_member_text(value, own.text, "description", &space->description, r->error);
        if (status == GS_OK)
            status = gs_json_member_array(value, own.text, "tools", &functions, r->error);
        if (status == GS_OK)
            status = read_functions(r, functions, list.text, space);
        if (status != GS_OK)
            return status;
        if (!space->name.bytes)
            space->name = space->key;
    }
    return GS_OK;
}

static gs_status read_channels(struct reader *r, const json_t *content, const char *path,
                               struct gs_system_content *system)
{
    const json_t *config = json_object_get(content, "channel_config"), *names = NULL;
    struct gs_json_path at = gs_json_path_key(path, "channel_config");
    if (!config || json_is_null(config))
        return GS_OK;
    gs_status status = gs_json_member_array(config, at.text, "valid_channels", &names, r->error);
    if (status != GS_OK)
        return status;
    system->channels =
        gs_conversation_alloc(r->out, json_array_size(names), sizeof(struct gs_text), r->error);
    if (!system->channels)
        return GS_OUT_OF_MEMORY;
    for (size_t i = 0; i < json_array_size(names); i++) {
        struct gs_text name = gs_json_text(json_array_get(names, i));
        if (!name.bytes)
            return gs_json_unexpected(gs_json_path_key(at.text, "valid_channels").text, "an array of strings",
                                      json_array_get(names, i), r->error);
        system->channels[system->n_channel++] = name;
    }
    system->channel_required = json_is_true(json_object_get(config, "channel_required"));
    return GS_OK;
}

static gs_status read_system(struct reader *r, const json_t *content, const char *path,
                             struct gs_content *out)
{
    struct gs_system_content *system = gs_conversation_alloc(r->out, 1, sizeof *system, r->error);
    struct gs_text effort;
    enum gs_effort known;
    if (!system)
        return GS_OUT_OF_MEMORY;
    out->system = system;
    gs_status status = gs_json_member_text(content, path, "model_identity", &system->identity, r->error);
    if (status == GS_OK)
        status = gs_json_member_text(content, path, "knowledge_cutoff", &system->cutoff, r->error);
    if (status == GS_OK)
        status = gs_json_member_text(content, path, "conversation_start_date", &system->date, r->error);
    if (status == GS_OK)
        status = gs_json_member_text(content, path, "reasoning_effort", &effort, r->error);
    if (status == GS_OK)
        status = read_namespaces(r, content, path, &system->namespaces, &system->n_namespace);
    if (status == GS_OK)
        status = read_channels(r, content, path, system);
    if (status != GS_OK || !effort.bytes)
        return status;
    static const char *const spellings[] = {"Medium", "Low", "High"};
    for (known = GS_EFFORT_MEDIUM; known <= GS_EFFORT_HIGH; known++)
        if (gs_text_is(effort, spellings[known])) {
            system->effort = gs_text_of(gs_effort_name(known));
            return GS_OK;
        }
    return gs_fail(r->error, GS_INVALID_ARGUMENT,
                   "%s.reasoning_effort: \"Low\", \"Medium\" or \"High\" is expected", path);
}

static gs_status read_developer(struct reader *r, const json_t *content, const char *path,
                                struct gs_content *out)
{
    struct gs_developer_content *developer = gs_conversation_alloc(r->out, 1, sizeof *developer, r->error);
    if (!developer)
        return GS_OUT_OF_MEMORY;
    out->developer = developer;
    gs_status status = gs_json_member_text(content, path, "instructions", &developer->instructions, r->error);
    if (status == GS_OK)
        status = read_namespaces(r, content, path, &developer->namespaces, &developer->n_namespace);
    for (size_t i = 0; i < developer->n_namespace; i++)
        if (gs_text_is(developer->namespaces[i].key, "functions"))
            r->out->functions = &developer->namespaces[i];
    return status;
}

static gs_status read_content(struct reader *r, const json_t *content, const char *path, enum gs_role role,
                              struct gs_content *out)
{
    struct gs_text type = gs_json_text(json_object_get(content, "type"));
    bool system = gs_text_is(type, "system_content"), developer = gs_text_is(type, "developer_content");
    if ((system && role != GS_ROLE_SYSTEM) || (developer && role != GS_ROLE_DEVELOPER))
        return gs_fail(r->error, GS_INVALID_ARGUMENT,
                       "%s: %s may only stand in a %s message, not in a %s one", path,
                       system ? "system_content" : "developer_content", system ? "system" : "developer",
                       gs_role_name(role));
    if (system)
        return read_system(r, content, path, out);
    if (developer)
        return read_developer(r, content, path, out);
    out->text = gs_json_text(json_object_get(content, "text"));
    if (!gs_text_is(type, "text") || !out->text.bytes)
        return gs_fail(
            r->error, GS_INVALID_ARGUMENT,
            "%s: {\"type\": \"text\", \"text\": ...}, system_content or developer_content is expected", path);
    return GS_OK;
}

static gs_status read_contents(struct reader *r, const json_t *message, const char *path,
                               struct gs_message *out)
{
    const json_t *content = json_object_get(message, "content");
    struct gs_json_path at = gs_json_path_key(path, "content");
    if (json_is_string(content)) {
        out->contents = gs_conversation_text(r->out, gs_json_text(content), r->error);
        out->n_content = 1;
        return out->contents ? GS_OK : GS_OUT_OF_MEMORY;
    }
    if (!json_is_array(content))
        return gs_json_unexpected(at.text, "a string or an array", content, r->error);
    out->contents = gs_conversation_alloc(r->out, json_array_size(content), sizeof *out->contents, r->error);
    if (!out->contents)
        return GS_OUT_OF_MEMORY;
    for (size_t i = 0; i < json_array_size(content); i++) {
        gs_status status = read_content(r, json_array_get(content, i), gs_json_path_index(at.text, i).text,
                                        out->role, &out->contents[out->n_content++]);
        if (status != GS_OK)
            return status;
    }
    return GS_OK;
}

static gs_status read_message(struct reader *r, const json_t *message, const char *path)
{
    struct gs_message out = {0};
    struct gs_text role = gs_json_text(json_object_get(message, "role"));
    const struct {
        const char *key;
        struct gs_text *text;
    } members[] = {{"name", &out.name},
                   {"recipient", &out.recipient},
                   {"channel", &out.channel},
                   {"content_type", &out.content_type}};
    if (!json_is_object(message))
        return gs_json_unexpected(path, "an object", message, r->error);
    while (out.role < GS_ROLE_TOOL && !gs_text_is(role, gs_role_name(out.role)))
        out.role++;
    if (!gs_text_is(role, gs_role_name(out.role)))
        return gs_fail(r->error, GS_INVALID_ARGUMENT,
                       "%s.role: system, developer, user, assistant or tool is expected", path);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        gs_status status = gs_json_member_text(message, path, members[i].key, members[i].text, r->error);
        if (status != GS_OK)
            return status;
    }
    if (out.role == GS_ROLE_TOOL && !out.name.bytes)
        return gs_json_unexpected(gs_json_path_key(path, "name").text, "the tool's name",
                                  json_object_get(message, "name"), r->error);
    gs_status status = read_contents(r, message, path, &out);
    return status == GS_OK ? gs_conversation_add(r->out, &out, r->error) : status;
}

gs_status gs_conversation_from_harmony(json_t *request, struct gs_conversation *out, struct gs_error *error)
{
    struct reader r = {out, error};
    const json_t *messages;
    const char *path;
    *out = (struct gs_conversation){0};
    gs_status status = gs_json_messages(request, &messages, &path, error);
    if (status != GS_OK)
        return status;
    out->document = json_incref(request);
    for (size_t i = 0; i < json_array_size(messages) && status == GS_OK; i++)
        status = read_message(&r, json_array_get(messages, i), gs_json_path_index(path, i).text);
    return status;
}
