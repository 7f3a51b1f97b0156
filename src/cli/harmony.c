/* gossamer harmony: conversations as prompts, and generated tokens as messages. Needs only the vocabulary. */
#include "base/status.h"
#include "chat/assemble.h"
#include "chat/conversation_json.h"
#include "chat/harmony_json.h"
#include "chat/harmony_render.h"
#include "chat/json_load.h"
#include "chat/json_path.h"
#include "chat/tools_json.h"
#include "cli/commands.h"
#include "cli/hub.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/report.h"
#include "text/tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct settings {
    const char *model, *file, *tools, *effort, *identity, *cutoff, *date, *form, *drop, *end;
    bool browser, python, dots, stream, no_preset, reference, ids, text;
};

#define AT(field) offsetof(struct settings, field)

static const struct gs_option options[] = {
    GS_TEXT_LETTER_ROW("model", 'm', "MODEL", AT(model),
                       "whose vocabulary: a folder, or a tokenizer.json (default: models/demo)"),
    GS_TEXT_LETTER_ROW("file", 'f', "FILE", AT(file), "read FILE instead of standard input"),
    GS_TOOLS_ROW(AT(tools)),
    GS_FLAG_ROW("browser", AT(browser), "declares the browser tool"),
    GS_FLAG_ROW("python", AT(python), "declares the python tool"),
    GS_FLAG_ROW("dots", AT(dots), "names of functions may hold dots"),

    GS_HEADING_ROW("render:"),
    GS_TEXT_ROW("effort", "LEVEL", AT(effort), "low, medium or high (default: the request's, else medium)"),
    GS_TEXT_ROW("identity", "TEXT", AT(identity), "the first line of the system message"),
    GS_TEXT_ROW("cutoff", "TEXT", AT(cutoff), "knowledge cutoff (default: 2024-06; empty: no line)"),
    GS_TEXT_ROW("date", "DATE", AT(date), "current date (default: today in UTC; empty: no line)"),
    GS_TEXT_ROW("end", "HOW", AT(end),
                "completion: the assistant speaks next (default); plain: nothing more;\n"
                "training: a last final message ends in <|return|>"),
    GS_TEXT_ROW("drop", "RULE", AT(drop),
                "past reasoning that is left out: completed (default; of every\n"
                "finished turn), reference (as openai-harmony does), none"),
    GS_TEXT_ROW("form", "FORM", AT(form),
                "of the messages: chat (default; OpenAI chat completions), harmony\n(openai-harmony)"),
    GS_FLAG_ROW("reference", AT(reference),
                "as openai-harmony writes: --drop reference (where no other rule is\ngiven), and its form of "
                "array types"),
    GS_FLAG_ROW("text", AT(text), "print the text alone"),
    GS_FLAG_ROW("ids", AT(ids), "print the ids alone, on one line, with commas"),

    GS_HEADING_ROW("parse:"),
    GS_FLAG_ROW("stream", AT(stream),
                "print each event as it comes, a JSON object a line, and at last the\nmessage"),
    GS_FLAG_ROW("no-preset", AT(no_preset),
                "the tokens are not what follows <|start|>assistant, but begin with\n<|start|>"),
    {.kind = GS_OPTION_END},
};

/* ---------------------------------------------------------------- JSON in and out */

/* Names of tools of a file: an array, or a request that has one. NULL if no file was given. */
static gs_status read_tools(const struct settings *s, json_t **tools, struct gs_error *error)
{
    *tools = NULL;
    if (!s->tools)
        return GS_OK;
    gs_status status = gs_input_read_json(s->tools, tools, error);
    if (status == GS_OK && json_is_object(*tools) && json_object_get(*tools, "tools")) {
        json_t *list = json_incref(json_object_get(*tools, "tools"));
        json_decref(*tools);
        *tools = list;
    }
    return status;
}

static void print_ids(struct gs_output *out, const struct gs_tokens *tokens)
{
    for (size_t i = 0; i < tokens->count && gs_output_ok(out); i++)
        gs_output_print(out, "%s%d", i > 0 ? "," : "", (int)tokens->ids[i]);
}

static void print_text_member(struct gs_writer *writer, const char *key, struct gs_text text)
{
    gs_write(writer, "\"");
    gs_write(writer, key);
    gs_write(writer, "\":");
    if (text.bytes)
        gs_write_json_string(writer, text);
    else
        gs_write(writer, "null");
}

/* ---------------------------------------------------------------- render */

/* Which of `names` (ending in NULL) a setting is; the first where it was not given. */
static gs_status choose(const char *option, const char *value, const char *const *names, unsigned *chosen,
                        struct gs_error *error)
{
    *chosen = 0;
    if (!value)
        return GS_OK;
    while (names[*chosen] && strcmp(names[*chosen], value) != 0)
        ++*chosen;
    if (names[*chosen])
        return GS_OK;
    return gs_fail(error, GS_INVALID_ARGUMENT, "%s: %s%s%s or %s is expected, not \"%s\"", option, names[0],
                   names[2] ? ", " : "", names[2] ? names[1] : "", names[2] ? names[2] : names[1],
                   gs_quote(value).text);
}

struct date {
    char text[32];
};

static struct date today(void)
{
    struct date date = {""};
    struct tm parts;
    time_t now = time(NULL);
    if (gmtime_r(&now, &parts))
        strftime(date.text, sizeof date.text, "%Y-%m-%d", &parts);
    return date;
}

/* The request, with what the command line adds to it. */
static gs_status read_request(const struct settings *s, json_t **request, struct gs_error *error)
{
    json_t *tools = NULL;
    gs_status status = gs_input_read_json(s->file, request, error);
    if (status == GS_OK)
        status = read_tools(s, &tools, error);
    if (status == GS_OK && json_is_array(*request)) {
        json_t *object = json_object();
        if (!object || json_object_set_new(object, "messages", *request) != 0)
            status = gs_fail_memory(error, sizeof *object);
        *request = object;
    }
    if (status == GS_OK && tools && json_object_set(*request, "tools", tools) != 0)
        status = gs_fail(error, GS_INVALID_ARGUMENT, "the JSON text: an object or an array is expected");
    if (status == GS_OK && s->effort && json_is_object(*request) &&
        json_object_set_new(*request, "reasoning_effort", json_string(s->effort)) != 0)
        status = gs_fail_memory(error, strlen(s->effort));
    json_decref(tools);
    return status;
}

static gs_status read_conversation(const struct settings *s, json_t *request, bool harmony_form,
                                   const struct date *now, struct gs_conversation *conversation,
                                   struct gs_error *error)
{
    struct gs_conversation_settings settings = {.identity = s->identity,
                                                .cutoff = s->cutoff,
                                                .date = s->date ? s->date : now->text,
                                                .browser = s->browser,
                                                .python = s->python,
                                                .dotted_names = s->dots};
    if (*settings.date == '\0')
        settings.date = NULL;
    return harmony_form ? gs_conversation_from_harmony(request, conversation, error)
                        : gs_conversation_from_json(&settings, request, conversation, error);
}

static void print_prompt(const struct settings *s, const struct gs_tokens *tokens, struct gs_buffer *text,
                         struct gs_output *out)
{
    struct gs_buffer json = {0};
    struct gs_writer writer = {.buffer = &json, .status = GS_OK, .error = NULL};
    if (s->text) {
        gs_output_append(out, text->data, text->size);
    } else if (s->ids) {
        print_ids(out, tokens);
        gs_output_append(out, "\n", 1);
    } else {
        print_text_member(&writer, "text", (struct gs_text){text->data, text->size});
        gs_output_append(out, "{", 1);
        gs_output_append(out, json.data, json.size);
        gs_output_print(out, ",\"count\":%zu,\"ids\":[", tokens->count);
        print_ids(out, tokens);
        gs_output_print(out, "]}\n");
    }
    gs_buffer_free(&json);
}

static gs_status render(const struct settings *s, const struct gs_vocab *vocab, struct gs_output *out,
                        struct gs_error *error)
{
    static const char *const drops[] = {"completed", "reference", "none", NULL};
    static const char *const ends[] = {"completion", "plain", "training", NULL};
    static const char *const forms[] = {"chat", "harmony", NULL, NULL};
    unsigned drop, end, form;
    const struct date now = today();
    json_t *request = NULL;
    struct gs_conversation conversation = {0};
    struct gs_tokens tokens = {0};
    struct gs_buffer text = {0};
    gs_status status = choose("--drop", s->drop, drops, &drop, error);
    if (status == GS_OK)
        status = choose("--end", s->end, ends, &end, error);
    if (status == GS_OK)
        status = choose("--form", s->form, forms, &form, error);
    if (status == GS_OK)
        status = read_request(s, &request, error);
    if (status == GS_OK)
        status = read_conversation(s, request, form == 1, &now, &conversation, error);
    for (size_t i = 0; i < conversation.n_skipped_tool; i++)
        fprintf(stderr, "gossamer: a tool of the type \"%s\" is left out: only functions can be declared\n",
                gs_quote_bytes(conversation.skipped_tools[i].bytes, conversation.skipped_tools[i].size).text);
    if (status == GS_OK) {
        const struct gs_render_options how = {.drop = s->reference && !s->drop ? GS_DROP_REFERENCE
                                                                               : (enum gs_drop_rule)drop,
                                              .end = (enum gs_render_end)end,
                                              .reference_arrays = s->reference};
        status = gs_harmony_render(vocab, &conversation, &how, &tokens, &text, error);
    }
    if (status == GS_OK)
        print_prompt(s, &tokens, &text, out);
    gs_buffer_free(&text);
    gs_tokens_free(&tokens);
    gs_conversation_free(&conversation);
    json_decref(request);
    return status;
}

/* ---------------------------------------------------------------- parse */

/* Events go to the list of the reply, or out at once. */
struct listener {
    struct gs_answer answer;
    struct gs_output *out;
    bool stream;
    struct gs_buffer events;
    size_t n_event;
};

static const char *const kind_names[] = {"reasoning", "preamble", "final", "call", "hidden"};

static gs_status listen(void *user, const struct gs_harmony_event *event, struct gs_error *error)
{
    static const char *const names[] = {"text", "call", "message", "turn"};
    struct listener *listener = user;
    gs_status status = gs_answer_collect(&listener->answer, event, error);
    struct gs_writer writer = {.buffer = &listener->events, .status = status, .error = error};
    gs_write(&writer, listener->n_event++ > 0 && !listener->stream ? "," : "");
    gs_write(&writer, "{\"event\":\"");
    gs_write(&writer, names[event->event]);
    if (event->event == GS_HARMONY_TURN) {
        gs_write(&writer, "\",\"finish_reason\":\"");
        gs_write(&writer, gs_finish_name(event->finish));
        gs_write(&writer, "\"}");
    } else {
        gs_write(&writer, "\",\"kind\":\"");
        gs_write(&writer, kind_names[event->kind]);
        gs_write(&writer, "\"");
        if (writer.status == GS_OK)
            writer.status = gs_buffer_print(&listener->events, error, ",\"message\":%zu", event->message);
        if (event->event == GS_HARMONY_MESSAGE && writer.status == GS_OK)
            writer.status =
                gs_buffer_print(&listener->events, error, ",\"tokens\":[%zu,%zu]", event->begin, event->end);
        if (event->event != GS_HARMONY_MESSAGE) {
            gs_write(&writer, ",");
            print_text_member(&writer, event->event == GS_HARMONY_CALL ? "name" : "text", event->text);
        }
        gs_write(&writer, "}");
    }
    if (writer.status == GS_OK && listener->stream) {
        gs_output_append(listener->out, listener->events.data, listener->events.size);
        gs_output_append(listener->out, "\n", 1);
        gs_output_flush(listener->out);
        gs_buffer_clear(&listener->events);
    }
    return writer.status;
}

/* The assistant message in the OpenAI chat form. */
static gs_status print_answer(const struct gs_answer *answer, struct gs_output *out, struct gs_error *error)
{
    struct gs_buffer json = {0};
    struct gs_writer writer = {.buffer = &json, .status = GS_OK, .error = error};
    bool no_content = answer->content.size == 0 && answer->n_call > 0;
    gs_write(&writer, "{\"role\":\"assistant\",");
    print_text_member(&writer, "content",
                      (struct gs_text){no_content             ? NULL
                                       : answer->content.data ? answer->content.data
                                                              : "",
                                       answer->content.size});
    if (answer->reasoning.size > 0) {
        gs_write(&writer, ",");
        print_text_member(&writer, "reasoning",
                          (struct gs_text){answer->reasoning.data, answer->reasoning.size});
    }
    for (size_t i = 0; i < answer->n_call; i++) {
        const struct gs_answer_call *call = &answer->calls[i];
        gs_write(&writer, i == 0 ? ",\"tool_calls\":[" : ",");
        if (writer.status == GS_OK)
            writer.status =
                gs_buffer_print(&json, error, "{\"id\":\"call_%zu\",\"type\":\"function\",\"function\":{", i);
        print_text_member(&writer, "name", (struct gs_text){call->name.data, call->name.size});
        gs_write(&writer, ",");
        print_text_member(&writer, "arguments", (struct gs_text){call->arguments.data, call->arguments.size});
        gs_write(&writer, "}}");
    }
    gs_write(&writer, answer->n_call > 0 ? "]}" : "}");
    if (writer.status == GS_OK) {
        gs_output_print(out, "{\"finish_reason\":\"%s\",\"message\":", gs_finish_name(answer->finish));
        gs_output_append(out, json.data, json.size);
    }
    gs_buffer_free(&json);
    return writer.status;
}

static gs_status read_id_list(const struct gs_buffer *text, struct gs_tokens *tokens, struct gs_error *error)
{
    const char *at = text->data, *end = at + text->size;
    gs_status status = GS_OK;
    while (at < end && status == GS_OK) {
        size_t size = 0;
        while (at + size < end && at[size] >= '0' && at[size] <= '9')
            size++;
        if (size > 9 || (size == 0 && (*at == '\0' || !strchr(", \t\r\n[]", *at))))
            status =
                gs_fail(error, GS_INVALID_ARGUMENT,
                        "byte %zu: token ids, with commas or blanks between them, are expected, not \"%s\"",
                        (size_t)(at - text->data), gs_quote_bytes(at, size > 0 ? size : 1).text);
        else if (size > 0)
            status = gs_tokens_append(tokens, (int32_t)strtol(at, NULL, 10), error);
        at += size > 0 ? size : 1;
    }
    return status;
}

/* Of what render prints. */
static gs_status read_id_object(const char *name, const struct gs_buffer *text, struct gs_tokens *tokens,
                                struct gs_error *error)
{
    json_t *object;
    gs_status status = gs_json_load(name, text->data, text->size, &object, error);
    if (status != GS_OK)
        return status;
    const json_t *ids = json_object_get(object, "ids");
    if (!json_is_array(ids))
        status = gs_json_unexpected("ids", "an array", ids, error);
    for (size_t i = 0; i < json_array_size(ids) && status == GS_OK; i++) {
        const json_t *id = json_array_get(ids, i);
        json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value > INT32_MAX)
            status = gs_json_unexpected(gs_json_path_index("ids", i).text, "a token id", id, error);
        else
            status = gs_tokens_append(tokens, (int32_t)value, error);
    }
    json_decref(object);
    return status;
}

static gs_status read_ids(const struct settings *s, struct gs_tokens *tokens, struct gs_error *error)
{
    struct gs_buffer text = {0};
    gs_status status = gs_input_read(s->file, &text, error);
    const char *start = text.data ? text.data + strspn(text.data, " \t\r\n") : "";
    if (status == GS_OK && *start == '{')
        status = read_id_object(s->file ? s->file : "standard input", &text, tokens, error);
    else if (status == GS_OK && text.size > 0)
        status = read_id_list(&text, tokens, error);
    gs_buffer_free(&text);
    return status;
}

/* The declared names, by the same reader that renders them. */
static gs_status declare_tools(const struct settings *s, struct gs_conversation *conversation,
                               struct gs_declared_tools *declared, struct gs_error *error)
{
    json_t *tools = NULL;
    const struct gs_conversation_settings settings = {
        .browser = s->browser, .python = s->python, .dotted_names = s->dots};
    gs_status status = read_tools(s, &tools, error);
    if (status != GS_OK)
        return status;
    json_t *request = tools ? json_pack("{s:[],s:o}", "messages", "tools", tools) : json_array();
    if (!request)
        return gs_fail_memory(error, sizeof *request);
    status = gs_conversation_from_json(&settings, request, conversation, error);
    json_decref(request);
    return status == GS_OK ? gs_conversation_tools(conversation, declared, error) : status;
}

static gs_status parse(const struct settings *s, const struct gs_vocab *vocab, struct gs_output *out,
                       struct gs_error *error)
{
    struct listener listener = {.out = out, .stream = s->stream};
    struct gs_conversation conversation = {0};
    struct gs_tokens tokens = {0};
    struct gs_harmony_parser *parser = NULL;
    struct gs_harmony_options how = {.no_preset = s->no_preset, .fn = listen, .user = &listener};
    gs_status status = declare_tools(s, &conversation, &how.tools, error);
    if (status == GS_OK)
        status = read_ids(s, &tokens, error);
    if (status == GS_OK)
        status = gs_harmony_parser_open(vocab, &how, &parser, error);
    if (status == GS_OK)
        status = gs_harmony_feed(parser, tokens.ids, tokens.count, error);
    if (status == GS_OK)
        status = gs_harmony_finish(parser, error);
    if (status == GS_OK)
        status = print_answer(&listener.answer, out, error);
    if (status == GS_OK && !s->stream) {
        gs_output_append(out, ",\"events\":[", strlen(",\"events\":["));
        gs_output_append(out, listener.events.data, listener.events.size);
        gs_output_append(out, "]", 1);
    }
    if (status == GS_OK)
        gs_output_append(out, "}\n", 2);
    gs_harmony_parser_close(parser);
    gs_tokens_free(&tokens);
    gs_conversation_free(&conversation);
    gs_answer_free(&listener.answer);
    gs_buffer_free(&listener.events);
    return status;
}

/* ---------------------------------------------------------------- the command */

/* Messages in harmony's own form bring all that the chat form leaves to options. */
static gs_status check_form(const struct settings *s, struct gs_error *error)
{
    const char *of_chat = s->effort     ? "--effort"
                          : s->identity ? "--identity"
                          : s->cutoff   ? "--cutoff"
                          : s->date     ? "--date"
                          : s->tools    ? "--tools"
                          : s->browser  ? "--browser"
                          : s->python   ? "--python"
                          : s->dots     ? "--dots"
                                        : NULL;
    if (of_chat && s->form && strcmp(s->form, "harmony") == 0)
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "%s cannot go with --form harmony, whose messages say it themselves", of_chat);
    return GS_OK;
}

/* An option of the other half would be passed over in silence. */
static gs_status check_half(const struct settings *s, bool parses, struct gs_error *error)
{
    enum gs_effort effort;
    const struct {
        const char *name;
        bool given, of_parse;
    } halves[] = {
        {"--effort", s->effort, false}, {"--identity", s->identity, false},
        {"--cutoff", s->cutoff, false}, {"--date", s->date, false},
        {"--end", s->end, false},       {"--drop", s->drop, false},
        {"--form", s->form, false},     {"--reference", s->reference, false},
        {"--text", s->text, false},     {"--ids", s->ids, false},
        {"--stream", s->stream, true},  {"--no-preset", s->no_preset, true},
    };
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++)
        if (halves[i].given && halves[i].of_parse != parses)
            return gs_fail(error, GS_INVALID_ARGUMENT, "%s is an option of harmony %s", halves[i].name,
                           parses ? "render" : "parse");
    if (s->text && s->ids)
        return gs_fail(error, GS_INVALID_ARGUMENT, "--text and --ids: give one of them");
    if (s->effort && !gs_effort_parse(gs_text_of(s->effort), &effort))
        return gs_fail(error, GS_INVALID_ARGUMENT, "--effort: low, medium or high is expected, not \"%s\"",
                       gs_quote(s->effort).text);
    return parses ? GS_OK : check_form(s, error);
}

static int harmony_main(const struct gs_command *command, int argc, char **argv)
{
    struct settings settings = {.model = "models/demo"};
    struct gs_operands operands;
    struct gs_output output;
    struct gs_error error = {0};
    struct gs_vocab *vocab = NULL;
    gs_status status = gs_options_parse(command, argc, argv, &settings, &operands, &error);
    if (status == GS_OK && operands.help) {
        gs_options_help(command, stdout);
        return GS_EXIT_OK;
    }
    const char *what = status == GS_OK && operands.count == 1 ? operands.list[0] : "";
    bool parses = strcmp(what, "parse") == 0;
    if (status == GS_OK && !parses && strcmp(what, "render") != 0)
        status = gs_fail(&error, GS_INVALID_ARGUMENT, "render or parse is expected: gossamer harmony %s",
                         command->usage);
    if (status == GS_OK)
        status = check_half(&settings, parses, &error);
    if (status != GS_OK)
        return gs_report(status, &error);
    gs_output_open(&output, false);
    status = gs_find_vocab(settings.model, &vocab, &error);
    if (status == GS_OK)
        status =
            parses ? parse(&settings, vocab, &output, &error) : render(&settings, vocab, &output, &error);
    gs_vocab_close(vocab);
    return gs_output_end(&output, status, &error);
}

const struct gs_command gs_command_harmony = {
    .name = "harmony",
    .usage = "(render < messages.json | parse < ids) [--model MODEL]",
    .summary = "Shows a conversation as the model's tokens, or tokens as messages.",
    .details =
        "render reads messages in the OpenAI chat form (an array, or a request with \"messages\" and\n"
        "\"tools\") and prints {\"text\", \"count\", \"ids\"}. parse reads token ids, with commas or blanks\n"
        "between them, and prints {\"finish_reason\", \"message\", \"events\"}.\n"
        "MODEL may be a tokenizer.json, or a folder that holds nothing else.",
    .options = options,
    .max_operands = 1,
    .run = harmony_main,
};
