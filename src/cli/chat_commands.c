/* The slash commands of gossamer chat: one table, which help and the tab key read too. */
#include "base/status.h"
#include "cli/chat.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef gs_status command_fn(struct gs_chat *chat, const char *argument, enum gs_chat_next *next,
                             struct gs_error *error);

struct command {
    const char *name; /* without the slash */
    const char *argument;
    const char *help;
    command_fn *run;
};

static command_fn help, set_system, set_effort, set_tools, save, load, retry, undo, think, stats, clear, quit;

static const struct command commands[] = {
    {"help", "", "this list", help},
    {"system", "TEXT", "instructions above the conversation; - removes, no TEXT shows them", set_system},
    {"effort", "LEVEL", "of the reasoning: low, medium or high", set_effort},
    {"tools", "FILE", "declares the functions in FILE; - removes, no FILE lists them", set_tools},
    {"save", "[NAME]", "writes the conversation, and its cache, under a name or to a path", save},
    {"load", "NAME", "goes on with a saved one", load},
    {"retry", "", "answers the last message anew", retry},
    {"undo", "", "forgets the last message and its answer", undo},
    {"think", "", "shows the reasoning of the last answer", think},
    {"stats", "", "tokens, speed, context and settings so far", stats},
    {"clear", "", "forgets the conversation; system message, tools and effort stay", clear},
    {"quit", "", "ends the program, as Ctrl-D does", quit},
};
static const size_t n_commands = sizeof commands / sizeof *commands;

const char *const gs_chat_command_names[] = {"/help",  "/system", "/effort", "/tools", "/save",
                                             "/load",  "/retry",  "/undo",   "/think", "/stats",
                                             "/clear", "/quit",   NULL};

static gs_status help(struct gs_chat *chat, const char *argument, enum gs_chat_next *next,
                      struct gs_error *error)
{
    (void)argument;
    (void)next;
    (void)error;
    for (size_t i = 0; i < n_commands; i++) {
        char word[40];
        snprintf(word, sizeof word, "/%s %s", commands[i].name, commands[i].argument);
        gs_view_say(&chat->view, "  %-16s %s", word, commands[i].help);
    }
    gs_view_say(
        &chat->view,
        "\n  Ctrl-C stops an answer. A line that ends in \\ goes on in the next; \"\"\" begins and ends\n"
        "  a block of lines; pasted lines come as one message. //text is a message that begins\n"
        "  with a slash.");
    return GS_OK;
}

static gs_status set_system(struct gs_chat *chat, const char *argument, enum gs_chat_next *next,
                            struct gs_error *error)
{
    (void)next;
    struct gs_dialog *dialog = &chat->dialog;
    if (argument[0] == '\0') {
        if (dialog->system)
            gs_view_text(&chat->view, "  ", json_string_value(dialog->system),
                         json_string_length(dialog->system));
        else
            gs_view_say(&chat->view, "there is no system message");
        return GS_OK;
    }
    bool removes = strcmp(argument, "-") == 0;
    gs_status status = gs_dialog_set_system(dialog, argument, removes ? 0 : strlen(argument), error);
    if (status == GS_OK)
        gs_view_note(&chat->view, removes ? "the system message is gone" : "the system message is set");
    return status;
}

static gs_status set_effort(struct gs_chat *chat, const char *argument, enum gs_chat_next *next,
                            struct gs_error *error)
{
    (void)next;
    (void)error;
    if (argument[0] != '\0' && !gs_effort_parse(gs_text_of(argument), &chat->dialog.effort))
        gs_view_say(&chat->view, "/effort: low, medium or high is expected, not \"%s\"",
                    gs_quote(argument).text);
    else
        gs_view_say(&chat->view, "reasoning effort: %s", gs_effort_name(chat->dialog.effort));
    return GS_OK;
}

/* The declared functions' names on one line. */
static gs_status list_tools(struct gs_chat *chat, struct gs_error *error)
{
    struct gs_conversation conversation = {0};
    struct gs_buffer line = {0};
    gs_status status = gs_dialog_build(&chat->dialog, &conversation, error);
    const struct gs_namespace *functions = conversation.functions;
    size_t count = functions ? functions->n_function : 0;
    for (size_t i = 0; status == GS_OK && i < count; i++)
        status = gs_buffer_print(&line, error, "%s%.*s", i > 0 ? ", " : "",
                                 (int)functions->functions[i].name.size, functions->functions[i].name.bytes);
    if (status == GS_OK)
        gs_view_say(&chat->view, count ? "functions: %s" : "no functions are declared%s",
                    line.data ? line.data : "");
    gs_buffer_free(&line);
    gs_conversation_free(&conversation);
    return status;
}

static gs_status set_tools(struct gs_chat *chat, const char *argument, enum gs_chat_next *next,
                           struct gs_error *error)
{
    struct gs_error failed;
    (void)next;
    if (argument[0] != '\0' &&
        gs_dialog_set_tools(&chat->dialog, strcmp(argument, "-") == 0 ? NULL : argument, &failed) != GS_OK) {
        gs_view_say(&chat->view, "/tools: %s", failed.message);
        return GS_OK;
    }
    return list_tools(chat, error);
}

static gs_status save(struct gs_chat *chat, const char *argument, enum gs_chat_next *next,
                      struct gs_error *error)
{
    char name[40] = "";
    time_t now = time(NULL);
    struct tm parts;
    (void)next;
    if (argument[0] == '\0' && chat->name.size > 0) {
        struct gs_buffer same = {0};
        gs_status status = gs_buffer_append_text(&same, chat->name.data, error);
        if (status == GS_OK)
            status = gs_chat_save(chat, same.data, error);
        gs_buffer_free(&same);
        return status;
    }
    if (argument[0] == '\0' && localtime_r(&now, &parts))
        strftime(name, sizeof name, "%Y-%m-%d-%H%M%S", &parts);
    return gs_chat_save(chat, argument[0] ? argument : name, error);
}

static gs_status load(struct gs_chat *chat, const char *argument, enum gs_chat_next *next,
                      struct gs_error *error)
{
    struct gs_error failed;
    (void)next;
    (void)error;
    if (argument[0] == '\0')
        gs_view_say(&chat->view, "/load needs the name or the path of a saved conversation");
    else if (gs_chat_load(chat, argument, &failed) != GS_OK)
        gs_view_say(&chat->view, "not loaded: %s", failed.message);
    return GS_OK;
}

/* The old answer goes only when there is a new one. */
static gs_status retry(struct gs_chat *chat, const char *argument, enum gs_chat_next *next,
                       struct gs_error *error)
{
    struct gs_dialog *dialog = &chat->dialog;
    size_t last = gs_dialog_last(dialog, "user");
    (void)argument;
    (void)next;
    if (last == gs_dialog_count(dialog)) {
        gs_view_say(&chat->view, "there is nothing to answer yet");
        return GS_OK;
    }
    json_t *before = gs_dialog_tail(dialog, last);
    if (!before)
        return gs_fail_memory(error, sizeof *before);
    gs_dialog_cut(dialog, last + 1);
    gs_status status = gs_chat_answer(chat, error);
    if (status != GS_OK || !gs_dialog_says_something(dialog, last + 1)) {
        struct gs_error lost;
        gs_status kept = gs_dialog_put_back(dialog, last, before, &lost);
        if (kept != GS_OK && status == GS_OK) {
            *error = lost;
            status = kept;
        }
        if (kept == GS_OK)
            gs_view_say(&chat->view, "nothing came of it: the last message%s as before",
                        json_array_size(before) > 1 ? " and its answer stay" : " stays");
    }
    json_decref(before);
    return status;
}

static gs_status undo(struct gs_chat *chat, const char *argument, enum gs_chat_next *next,
                      struct gs_error *error)
{
    (void)argument;
    (void)next;
    (void)error;
    size_t count = gs_dialog_count(&chat->dialog), last = gs_dialog_last(&chat->dialog, "user");
    if (last == count) {
        gs_view_say(&chat->view, "there is nothing to forget");
        return GS_OK;
    }
    gs_dialog_cut(&chat->dialog, last);
    gs_buffer_clear(&chat->view.thought);
    gs_view_note(&chat->view, "forgot %zu messages, %zu are left", count - last, last);
    return GS_OK;
}

static gs_status think(struct gs_chat *chat, const char *argument, enum gs_chat_next *next,
                       struct gs_error *error)
{
    (void)argument;
    (void)next;
    (void)error;
    gs_view_show_thought(&chat->view);
    return GS_OK;
}

static double rate(size_t count, double seconds)
{
    return seconds > 0.0 ? (double)count / seconds : 0.0;
}

static gs_status stats(struct gs_chat *chat, const char *argument, enum gs_chat_next *next,
                       struct gs_error *error)
{
    const struct gs_sums *s = &chat->sums;
    const struct gs_setup_settings *how = chat->setup.settings;
    const struct gs_view *view = &chat->view;
    (void)argument;
    (void)next;
    (void)error;
    gs_view_say(view, "messages  %zu, answers %zu", gs_dialog_count(&chat->dialog), s->n_answer);
    gs_view_say(view, "written   %zu tokens at %.1f tok/s, %zu of them reasoning", s->n_generated,
                rate(s->n_steps, s->decode_seconds), s->n_reasoning);
    gs_view_say(view, "read      %zu tokens at %.1f tok/s, %zu were reused from the cache", s->n_computed,
                rate(s->n_computed, s->prefill_seconds), s->n_reused);
    if (chat->setup.engine)
        gs_view_say(view, "context   %zu of %lld tokens", s->n_context, (long long)chat->setup.plan.n_ctx);
    gs_view_say(view, "sampling  temperature %g, top-k %lld, top-p %g, min-p %g, seed %lld", how->temperature,
                (long long)how->top_k, how->top_p, how->min_p, (long long)how->seed);
    gs_view_say(view, "effort    %s, date %s", gs_effort_name(chat->dialog.effort),
                chat->dialog.date.text[0] ? chat->dialog.date.text : "not told");
    return GS_OK;
}

static gs_status clear(struct gs_chat *chat, const char *argument, enum gs_chat_next *next,
                       struct gs_error *error)
{
    (void)argument;
    (void)next;
    (void)error;
    gs_dialog_clear(&chat->dialog);
    gs_buffer_clear(&chat->view.thought);
    gs_buffer_clear(&chat->name);
    chat->sums = (struct gs_sums){0};
    gs_view_note(&chat->view, "a new conversation");
    return GS_OK;
}

static gs_status quit(struct gs_chat *chat, const char *argument, enum gs_chat_next *next,
                      struct gs_error *error)
{
    (void)chat;
    (void)argument;
    (void)error;
    *next = GS_CHAT_QUIT;
    return GS_OK;
}

/* Length of the word after the slash. */
static size_t word_size(const char *line)
{
    size_t size = 0;
    while (isalpha((unsigned char)line[1 + size]))
        size++;
    return size;
}

bool gs_chat_is_command(const char *line)
{
    size_t size = line[0] == '/' ? word_size(line) : 0;
    return size > 0 && (line[1 + size] == '\0' || isspace((unsigned char)line[1 + size]));
}

gs_status gs_chat_command(struct gs_chat *chat, const char *line, enum gs_chat_next *next,
                          struct gs_error *error)
{
    const char *names[sizeof commands / sizeof *commands];
    char word[40];
    size_t size = word_size(line);
    const char *argument = line + 1 + size;
    argument += strspn(argument, " \t\n");
    *next = GS_CHAT_GO_ON;
    snprintf(word, sizeof word, "%.*s", (int)(size < 39 ? size : 39), line + 1);
    for (size_t i = 0; i < n_commands; i++) {
        names[i] = commands[i].name;
        if (strcmp(commands[i].name, word) == 0)
            return commands[i].run(chat, argument, next, error);
    }
    const char *nearest = gs_nearest_name(word, names, n_commands);
    gs_view_say(&chat->view, "unknown command /%s: %s%s%s", word,
                nearest ? "did you mean /" : "/help lists them", nearest ? nearest : "", nearest ? "?" : "");
    return GS_OK;
}
