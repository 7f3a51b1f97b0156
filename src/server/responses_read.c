#include "server/responses_read.h"

#include "base/base64.h"
#include "base/status.h"
#include "chat/json_path.h"
#include "chat/json_text.h"
#include "server/request.h"

#include <string.h>

static const char sealed_prefix[] = "gossamer-1.";

void gs_responses_request_free(struct gs_responses_request *request)
{
    json_decref(request->chat);
    json_decref(request->items);
    gs_turns_free(&request->turns);
    *request = (struct gs_responses_request){0};
}

/* NULL for null, too. */
static json_t *member(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static int expected(const char *path, const char *what, const json_t *value, struct gs_api_error *error)
{
    return gs_api_bad(error, path, "%s: %s is expected, not %s", path, what, gs_json_kind(value));
}

/* ---------------------------------------------------------------- reasoning that travels */

json_t *gs_responses_seal(struct gs_text reasoning)
{
    struct gs_buffer text = {0};
    json_t *sealed = NULL;
    if (gs_buffer_append_text(&text, sealed_prefix, NULL) == GS_OK &&
        gs_base64_encode(reasoning.bytes, reasoning.size, &text, NULL) == GS_OK)
        sealed = json_stringn(text.data, text.size);
    gs_buffer_free(&text);
    return sealed;
}

/* What another server sealed, or what is no UTF-8, is nothing. */
static void unseal(struct gs_text sealed, struct gs_buffer *out)
{
    size_t prefix = sizeof sealed_prefix - 1;
    if (!gs_text_begins(sealed, sealed_prefix))
        return;
    if (gs_base64_decode(sealed.bytes + prefix, sealed.size - prefix, out, NULL) != GS_OK)
        gs_buffer_clear(out);
    json_t *text = json_stringn(out->data ? out->data : "", out->size);
    if (!text)
        gs_buffer_clear(out);
    json_decref(text);
}

/* ---------------------------------------------------------------- items */

static int read_message(struct gs_turns *turns, json_t *item, const char *path, struct gs_api_error *error)
{
    struct gs_text role = gs_json_text(json_object_get(item, "role"));
    json_t *content = member(item, "content");
    struct gs_json_path at = gs_json_path_key(path, "role");
    if (!role.bytes)
        return expected(at.text, "a string", json_object_get(item, "role"), error);
    if (!content)
        return expected(gs_json_path_key(path, "content").text, "a string or an array",
                        json_object_get(item, "content"), error);
    if (gs_text_is(role, "assistant")) {
        gs_turns_text(turns, content, path);
        return 0;
    }
    static const char *const roles[] = {"user", "system", "developer"};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (gs_text_is(role, roles[i])) {
            gs_turns_message(turns, roles[i], content, NULL, path);
            return 0;
        }
    }
    return gs_api_bad(error, at.text, "%s: user, assistant, system or developer is expected, not \"%s\"",
                      at.text, gs_quote_bytes(role.bytes, role.size).text);
}

static int read_reasoning(struct gs_turns *turns, const json_t *item, const char *path,
                          struct gs_api_error *error)
{
    const json_t *content = member(item, "content");
    struct gs_json_path at = gs_json_path_key(path, "content");
    struct gs_buffer text = {0};
    if (content && !json_is_array(content))
        return expected(at.text, "an array", content, error);
    for (size_t i = 0; i < json_array_size(content); i++) {
        struct gs_text part = gs_json_text(json_object_get(json_array_get(content, i), "text"));
        if (!part.bytes) {
            gs_buffer_free(&text);
            struct gs_json_path where = gs_json_path_index(at.text, i);
            return gs_api_bad(error, where.text,
                              "%s: {\"type\": \"reasoning_text\", \"text\": ...} is expected", where.text);
        }
        if (gs_buffer_append(&text, part.bytes, part.size, NULL) != GS_OK)
            turns->failed = true;
    }
    const json_t *sealed = member(item, "encrypted_content");
    if (sealed && !json_is_string(sealed)) {
        gs_buffer_free(&text);
        return expected(gs_json_path_key(path, "encrypted_content").text, "a string", sealed, error);
    }
    if (text.size == 0)
        unseal(gs_json_text(sealed), &text);
    gs_turns_reasoning(turns, (struct gs_text){text.data, text.size}, path);
    gs_buffer_free(&text);
    return 0;
}

static int read_call(struct gs_turns *turns, const json_t *item, const char *path, struct gs_api_error *error)
{
    static const char *const keys[] = {"call_id", "name", "arguments"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *value = json_object_get(item, keys[i]);
        if (!json_is_string(value))
            return expected(gs_json_path_key(path, keys[i]).text, "a string", value, error);
    }
    gs_turns_call(turns, gs_json_text(json_object_get(item, "call_id")), json_object_get(item, "name"),
                  json_object_get(item, "arguments"), path);
    return 0;
}

static int read_output(struct gs_turns *turns, const json_t *item, const char *path,
                       struct gs_api_error *error)
{
    json_t *id = json_object_get(item, "call_id");
    json_t *output = member(item, "output");
    if (!json_is_string(id))
        return expected(gs_json_path_key(path, "call_id").text, "a string", id, error);
    if (!json_is_string(output) && !json_is_array(output))
        return expected(gs_json_path_key(path, "output").text, "a string or an array of parts", output,
                        error);
    gs_turns_message(turns, "tool", output, id, path);
    return 0;
}

static int read_item(struct gs_turns *turns, json_t *item, const char *path, struct gs_api_error *error)
{
    struct gs_text type = gs_json_text(json_object_get(item, "type"));
    if (!json_is_object(item))
        return expected(path, "an object", item, error);
    if (!member(item, "type") || gs_text_is(type, "message"))
        return read_message(turns, item, path, error);
    if (gs_text_is(type, "reasoning"))
        return read_reasoning(turns, item, path, error);
    if (gs_text_is(type, "function_call"))
        return read_call(turns, item, path, error);
    if (gs_text_is(type, "function_call_output"))
        return read_output(turns, item, path, error);
    struct gs_json_path at = gs_json_path_key(path, "type");
    if (!type.bytes)
        return expected(at.text, "a string", json_object_get(item, "type"), error);
    return gs_api_bad(error, at.text,
                      "%s: message, reasoning, function_call or function_call_output is expected, not \"%s\"",
                      at.text, gs_quote_bytes(type.bytes, type.size).text);
}

/* ---------------------------------------------------------------- the input */

static int read_previous(struct gs_response_store *store, size_t key, const json_t *body,
                         struct gs_responses_request *request, struct gs_api_error *error)
{
    static const char name[] = "previous_response_id";
    const json_t *id = member(body, name);
    if (!id)
        return 0;
    if (!json_is_string(id))
        return expected(name, "a string", id, error);
    if (gs_response_store_get(store, json_string_value(id), key, NULL, &request->items, NULL))
        return 0;
    struct gs_text text = gs_json_text(id);
    gs_api_bad(error, name, "%s: there is no stored response \"%s\" (any more): send the whole input", name,
               gs_quote_bytes(text.bytes, text.size).text);
    error->code = "previous_response_not_found";
    return error->status;
}

/*
 * The stored item of this id; borrowed from `known`, which has those of all responses that were looked into:
 * each is once at most. NULL: there is none, or memory is out.
 */
static json_t *find_referred(struct gs_response_store *store, size_t key, const char *id, json_t *known)
{
    json_t *found = json_object_get(known, id);
    if (found)
        return found;
    json_t *response = gs_response_store_find_item(store, id, key);
    const json_t *output = json_object_get(response, "output");
    for (size_t i = 0; i < json_array_size(output); i++) {
        json_t *item = json_array_get(output, i);
        const char *name = json_string_value(json_object_get(item, "id"));
        if (name)
            json_object_set(known, name, item);
    }
    json_decref(response);
    return json_object_get(known, id);
}

/*
 * Puts the stored item in the place of items[index], which refers to it. Each may be referred to once: a
 * short body could ask for more text than memory has, by naming a long item again and again.
 */
static int resolve_one(struct gs_response_store *store, size_t key, json_t *items, size_t index,
                       json_t *known, struct gs_api_error *error)
{
    struct gs_json_path at = gs_json_path_key(gs_json_path_index("input", index).text, "id");
    const json_t *id = json_object_get(json_array_get(items, index), "id");
    if (!json_is_string(id))
        return expected(at.text, "a string", id, error);
    json_t *referred = find_referred(store, key, json_string_value(id), known);
    struct gs_quoted name = gs_quote_bytes(json_string_value(id), json_string_length(id));
    if (!referred)
        return gs_api_bad(error, at.text,
                          "%s: no stored response has an item \"%s\" (any more): send the item itself",
                          at.text, name.text);
    if (json_is_true(referred))
        return gs_api_bad(error, at.text, "%s: the item \"%s\" is referred to twice", at.text, name.text);
    const json_t *known_id = json_object_get(referred, "id"); /* `id` goes with what it stood in */
    if (json_array_set(items, index, referred) == 0 &&
        json_object_set_new(known, json_string_value(known_id), json_true()) == 0)
        return 0;
    return gs_api_fail(error, 503, "out_of_memory", "memory is out");
}

/* *items: a copy of the input in which {"type": "item_reference", "id"} are the stored items. */
static int resolve(struct gs_response_store *store, size_t key, json_t **items, struct gs_api_error *error)
{
    json_t *copy = json_copy(*items), *known = json_object();
    int status = copy && known ? 0 : gs_api_fail(error, 503, "out_of_memory", "memory is out");
    for (size_t i = 0; i < json_array_size(copy) && status == 0; i++)
        if (gs_text_is(gs_json_text(json_object_get(json_array_get(copy, i), "type")), "item_reference"))
            status = resolve_one(store, key, copy, i, known, error);
    json_decref(known);
    json_decref(*items);
    *items = copy;
    return status;
}

static int read_items(struct gs_responses_request *request, const json_t *items, const char *name,
                      struct gs_api_error *error)
{
    int status = 0;
    for (size_t i = 0; i < json_array_size(items) && status == 0; i++)
        status =
            read_item(&request->turns, json_array_get(items, i), gs_json_path_index(name, i).text, error);
    return status;
}

static int read_input(struct gs_response_store *store, size_t key, json_t *body,
                      struct gs_responses_request *request, struct gs_api_error *error)
{
    json_t *input = member(body, "input");
    json_t *instructions = member(body, "instructions");
    json_t *items = NULL;
    if (instructions && !json_is_string(instructions))
        return expected("instructions", "a string", instructions, error);
    if (json_is_array(input))
        items = json_incref(input);
    else if (json_is_string(input))
        items = json_pack("[{s:s, s:s, s:O}]", "type", "message", "role", "user", "content", input);
    else
        return expected("input", "a string or an array of items", input, error);
    if (instructions)
        gs_turns_message(&request->turns, "developer", instructions, NULL, "instructions");
    int status = resolve(store, key, &items, error);
    if (status == 0)
        status = read_items(request, request->items, "previous_response_id", error);
    if (status == 0)
        status = read_items(request, items, "input", error);
    if (!request->items)
        request->items = json_array();
    if (status == 0 && json_array_extend(request->items, items) != 0)
        status = gs_api_fail(error, 503, "out_of_memory", "memory is out");
    json_decref(items);
    return status;
}

/* ---------------------------------------------------------------- the other fields */

static int read_include(const json_t *body, struct gs_responses_request *request, struct gs_api_error *error)
{
    const json_t *include = member(body, "include");
    if (include && !json_is_array(include))
        return expected("include", "an array of strings", include, error);
    for (size_t i = 0; i < json_array_size(include); i++) {
        struct gs_text name = gs_json_text(json_array_get(include, i));
        struct gs_json_path at = gs_json_path_index("include", i);
        if (!name.bytes)
            return expected(at.text, "a string", json_array_get(include, i), error);
        if (gs_text_is(name, "reasoning.encrypted_content"))
            request->encrypted = true;
        if (gs_text_is(name, "message.output_text.logprobs"))
            request->logprobs = true;
    }
    return 0;
}

/* "text": {"format": ...} has one level less than response_format. */
static int read_format(const json_t *body, json_t *chat, struct gs_api_error *error)
{
    const json_t *text = member(body, "text");
    json_t *format = member(text, "format");
    struct gs_text type = gs_json_text(json_object_get(format, "type"));
    static const struct gs_idle_field idle[] = {{"verbosity", JSON_STRING}, {NULL, JSON_NULL}};
    if (text && !json_is_object(text))
        return expected("text", "an object", text, error);
    if (text && gs_read_idle(text, idle, error) != 0)
        return gs_api_within(error, "text");
    if (!format)
        return 0;
    if (!json_is_object(format))
        return expected("text.format", "an object", format, error);
    json_t *wrapped = gs_text_is(type, "json_schema")
                          ? json_pack("{s:s, s:O}", "type", "json_schema", "json_schema", format)
                          : json_incref(format);
    json_object_set_new(chat, "response_format", wrapped);
    return 0;
}

static int read_reasoning_effort(const json_t *body, json_t *chat, struct gs_api_error *error)
{
    const json_t *reasoning = member(body, "reasoning");
    if (reasoning && !json_is_object(reasoning))
        return expected("reasoning", "an object", reasoning, error);
    static const struct gs_idle_field idle[] = {
        {"summary", JSON_STRING}, {"generate_summary", JSON_STRING}, {NULL, JSON_NULL}};
    if (reasoning && gs_read_idle(reasoning, idle, error) != 0)
        return gs_api_within(error, "reasoning");
    json_t *effort = member(reasoning, "effort");
    if (effort)
        json_object_set(chat, "reasoning_effort", effort);
    return 0;
}

static int refuse_unsupported(const json_t *body, struct gs_api_error *error)
{
    static const char *const keys[] = {"conversation", "prompt"};
    bool background = false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (member(body, keys[i]))
            return gs_api_bad(error, keys[i], "%s is not supported: %s", keys[i],
                              "send the input, or previous_response_id");
    int status = gs_read_bool(body, "background", &background, error);
    if (status == 0 && background)
        status = gs_api_bad(error, "background", "background: true is not supported");
    return status;
}

static int read_fields(json_t *body, struct gs_responses_request *request, struct gs_api_error *error)
{
    static const struct {
        const char *here, *chat;
    } same[] = {
        {"model", "model"},
        {"tools", "tools"},
        {"tool_choice", "tool_choice"},
        {"parallel_tool_calls", "parallel_tool_calls"},
        {"max_output_tokens", "max_completion_tokens"},
        {"temperature", "temperature"},
        {"top_p", "top_p"},
        {"top_k", "top_k"},
        {"reasoning_budget", "reasoning_budget"},
        {"min_p", "min_p"},
        {"seed", "seed"},
        {"presence_penalty", "presence_penalty"},
        {"frequency_penalty", "frequency_penalty"},
        {"top_logprobs", "top_logprobs"},
        {"stream", "stream"},
        {"prompt_cache_key", "prompt_cache_key"},
        {"safety_identifier", "safety_identifier"},
        {"service_tier", "service_tier"},
        {"metadata", "metadata"},
    };
    static const struct gs_idle_field idle[] = {{"truncation", JSON_STRING},
                                                {"max_tool_calls", JSON_INTEGER},
                                                {"stream_options", JSON_OBJECT},
                                                {NULL, JSON_NULL}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        json_t *value = member(body, same[i].here);
        if (value)
            json_object_set(request->chat, same[i].chat, value);
    }
    int status = read_include(body, request, error);
    if (status == 0)
        status = refuse_unsupported(body, error);
    if (status == 0)
        status = read_format(body, request->chat, error);
    if (status == 0)
        status = read_reasoning_effort(body, request->chat, error);
    if (status == 0)
        status = gs_read_bool(body, "store", &request->store, error);
    if (status == 0)
        status = gs_read_idle(body, idle, error);
    if (request->logprobs || member(body, "top_logprobs"))
        json_object_set_new(request->chat, "logprobs", json_true());
    return status;
}

int gs_responses_read(struct gs_response_store *store, size_t key, json_t *body,
                      struct gs_responses_request *request, struct gs_api_error *error)
{
    request->store = true;
    request->chat = json_object();
    if (!request->chat)
        return gs_api_fail(error, 503, "out_of_memory", "memory is out");
    int status = read_fields(body, request, error);
    if (status == 0)
        status = read_previous(store, key, body, request, error);
    if (status == 0)
        status = read_input(store, key, body, request, error);
    return status == 0 ? gs_turns_take(&request->turns, request->chat, error) : status;
}

static const struct gs_renamed renamed[] = {
    {"messages", "input"},
    {"max_completion_tokens", "max_output_tokens"},
    {"reasoning_effort", "reasoning.effort"},
    {"response_format.json_schema", "text.format"},
    {"response_format", "text.format"},
    {"tool_choice.function", "tool_choice"},
    {"logprobs", "include"},
    {".tool_call_id", ".call_id"},
    {NULL, NULL},
};

void gs_responses_rename(const struct gs_responses_request *request, struct gs_api_error *error)
{
    gs_turns_rename(&request->turns, renamed, error);
}

void gs_responses_rename_warnings(const struct gs_responses_request *request, json_t *warnings)
{
    gs_turns_rename_warnings(&request->turns, renamed, warnings);
}
