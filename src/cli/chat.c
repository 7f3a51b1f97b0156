/* gossamer chat: a conversation in the terminal. */
#include "cli/chat.h"

#include "base/file_write.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/report.h"
#include "cli/terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(struct gs_chat_settings, field)

static const struct gs_option options[] = {
    GS_HEADING_ROW("The conversation:"),
    GS_TEXT_ROW("system", "TEXT", AT(system), "instructions that stand above it"),
    GS_EFFORT_ROW(AT(effort)),
    GS_TEXT_ROW("load", "NAME", AT(load), "go on with a saved one: a name, or a path"),
    GS_DATE_ROW(AT(date)),
    GS_FLAG_ROW("no-date", AT(no_date), "do not tell it the date"),

    GS_HEADING_ROW("Functions:"),
    GS_TOOLS_ROW(AT(tools)),
    GS_TEXT_ROW("tool-command", "CMD", AT(tool_command),
                "a call runs CMD, when you agree: its arguments on standard input,\nits name in "
                "GOSSAMER_FUNCTION, standard output is the result\n(default: you type the result)"),

    GS_HEADING_ROW("How long:"),
    GS_SETUP_LENGTH_OPTIONS(struct gs_chat_settings, setup),
    GS_SETUP_SAMPLING_OPTIONS(struct gs_chat_settings, setup),
    GS_SETUP_MACHINE_OPTIONS(struct gs_chat_settings, setup),

    GS_HEADING_ROW("The terminal:"),
    GS_FLAG_ROW("show-reasoning", AT(show_reasoning), "do not fold the reasoning"),
    GS_FLAG_ROW("no-history", AT(no_history), "do not keep the lines you type on the disk"),
    GS_FLAG_ROW("no-snapshot", AT(no_snapshot), "/save writes the messages alone"),
    GS_FLAG_ROW("raw-control", AT(keep_control),
                "do not remove control characters\n(a model's text can then change your terminal)"),

    GS_SETUP_SCRIPT_OPTIONS(struct gs_chat_settings, setup),
    {.kind = GS_OPTION_END},
};

static gs_status read_settings(const struct gs_command *command, int argc, char **argv,
                               struct gs_chat_settings *s, bool *is_help, struct gs_error *error)
{
    struct gs_operands operands;
    *s = (struct gs_chat_settings){.setup = GS_SETUP_DEFAULTS};
    gs_status status = gs_options_parse(command, argc, argv, s, &operands, error);
    *is_help = status == GS_OK && operands.help;
    if (status != GS_OK || *is_help)
        return status;
    if (operands.count == 0)
        return gs_fail(error, GS_INVALID_ARGUMENT, "no model: gossamer chat %s", command->usage);
    s->setup.model = operands.list[0];
    if (s->tool_command && s->tool_command[0] == '\0')
        return gs_fail(error, GS_INVALID_ARGUMENT, "--tool-command: a command is expected");
    return GS_OK;
}

/* ---------------------------------------------------------------- the loop */

static gs_status take_line(struct gs_chat *chat, struct gs_buffer *text, enum gs_chat_next *next,
                           struct gs_error *error)
{
    size_t size = text->size, begin = 0;
    *next = GS_CHAT_GO_ON;
    while (size > 0 && strchr(" \t\r\n", text->data[size - 1]))
        size--;
    text->data[size] = '\0';
    if (size == 0)
        return GS_OK;
    if (gs_chat_is_command(text->data))
        return gs_chat_command(chat, text->data, next, error);
    if (strncmp(text->data, "//", 2) == 0)
        begin = 1;
    *next = GS_CHAT_ANSWER;
    return gs_dialog_add_user(&chat->dialog, text->data + begin, size - begin, error);
}

/* At the prompt: the first Ctrl-C gives the line up, the second in a row leaves. */
static bool leaves(const struct gs_chat *chat, enum gs_line_end end, bool *warned)
{
    if (end == GS_LINE_EOF)
        return true;
    if (end != GS_LINE_INTERRUPTED) {
        *warned = false;
        return false;
    }
    if (*warned)
        return true;
    *warned = true;
    gs_view_say(&chat->view, "Ctrl-C again, Ctrl-D or /quit leave");
    return false;
}

/* What fails here leaves the conversation usable; only a lost output is the end of it. */
static gs_status go_on(const struct gs_chat *chat, gs_status status, struct gs_error *error)
{
    if (status == GS_OK || !gs_output_ok(&chat->output))
        return status;
    gs_view_say(&chat->view, "%s", error->message);
    *error = (struct gs_error){0};
    return GS_OK;
}

static gs_status converse(struct gs_chat *chat, struct gs_error *error)
{
    const char *prompt = chat->view.color ? "\1\033[1;32m\1> \1\033[0m\1" : "> ";
    struct gs_buffer text = {0};
    enum gs_chat_next next = GS_CHAT_GO_ON;
    bool warned = false;
    gs_status status = GS_OK;
    while (status == GS_OK && next != GS_CHAT_QUIT && gs_output_ok(&chat->output)) {
        enum gs_line_end end;
        gs_interrupt_rearm();
        /* A failure here ends the loop: the rest of a message would be taken for new ones. */
        status = gs_line_read(chat->reader, prompt, &text, &end, error);
        if (status != GS_OK || leaves(chat, end, &warned))
            break;
        if (end == GS_LINE_INTERRUPTED)
            continue;
        status = take_line(chat, &text, &next, error);
        if (status == GS_OK && next == GS_CHAT_ANSWER)
            status = gs_chat_answer(chat, error);
        status = go_on(chat, status, error);
        if (gs_line_is_interactive(chat->reader))
            fputc('\n', stderr);
    }
    gs_buffer_free(&text);
    return status;
}

/* ---------------------------------------------------------------- the whole */

/* $XDG_STATE_HOME/gossamer/, made if need be; empty if there is no home. */
static gs_status find_state_folder(struct gs_buffer *folder, struct gs_error *error)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    gs_status status = GS_OK;
    if (state && state[0] == '/')
        status = gs_buffer_print(folder, error, "%s/gossamer/", state);
    else if (home && home[0] == '/')
        status = gs_buffer_print(folder, error, "%s/.local/state/gossamer/", home);
    if (status == GS_OK && folder->size > 0 && gs_make_private_folders(folder->data, NULL) != GS_OK)
        gs_buffer_clear(folder); /* a home that cannot be written to: nothing is kept */
    return status;
}

static gs_status open_reader(struct gs_chat *chat, struct gs_error *error)
{
    struct gs_buffer path = {0};
    struct gs_line_options line_options = {.completions = gs_chat_command_names};
    gs_status status = find_state_folder(&chat->state_folder, error);
    if (status == GS_OK && chat->state_folder.size > 0 && !chat->settings.no_history) {
        status = gs_buffer_print(&path, error, "%shistory", chat->state_folder.data);
        line_options.history = path.data;
    }
    if (status == GS_OK)
        status = gs_line_open(&line_options, &chat->reader, error);
    gs_buffer_free(&path);
    return status;
}

/* What the command line says about the conversation: a new one's, or on top of a loaded one's. */
static gs_status apply_options(struct gs_chat *chat, struct gs_error *error)
{
    const struct gs_chat_settings *s = &chat->settings;
    const struct gs_dialog_options said = {s->effort, s->date, s->system, s->tools, s->no_date};
    return gs_dialog_apply(&chat->dialog, &said, error);
}

static gs_status open_dialog(struct gs_chat *chat, struct gs_error *error)
{
    gs_status status = gs_dialog_open(&chat->dialog, error);
    chat->dialog.date = gs_date_today();
    return status == GS_OK ? apply_options(chat, error) : status;
}

/* A saved conversation keeps its date, so that its cache holds, unless the command line names one. */
static gs_status load_first(struct gs_chat *chat, struct gs_error *error)
{
    struct gs_error failed;
    gs_status status = gs_chat_load(chat, chat->settings.load, &failed);
    return status == GS_OK ? apply_options(chat, error)
                           : gs_fail(error, status, "--load: %s", failed.message);
}

static void greet(const struct gs_chat *chat)
{
    const char *dot = chat->view.utf8 ? " · " : ", ";
    if (chat->setup.engine)
        gs_view_note(&chat->view, "gossamer %s%s%s%s%s%scontext of %lld tokens", gs_version(), dot,
                     gs_quote(chat->settings.setup.model).text, dot, gs_engine_backend(chat->setup.engine),
                     dot, (long long)chat->setup.plan.n_ctx);
    gs_view_note(&chat->view, "/help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves\n");
}

static gs_status open_all(struct gs_chat *chat, struct gs_error *error)
{
    gs_status status = gs_setup_open(&chat->setup, &chat->settings.setup, error);
    if (status == GS_OK)
        status = open_dialog(chat, error);
    if (status == GS_OK)
        status = gs_setup_load(&chat->setup, error);
    if (status == GS_OK)
        status = gs_setup_sampler(&chat->setup, error);
    if (status == GS_OK && chat->setup.engine)
        status = gs_timeline_open(&chat->setup, &chat->timeline, error);
    if (status == GS_OK)
        status = open_reader(chat, error);
    chat->generation = (size_t)chat->settings.setup.script_generation;
    chat->tools = (struct gs_tool_runner){.command = chat->settings.tool_command,
                                          .reader = chat->reader,
                                          .view = &chat->view,
                                          .always = json_object()};
    if (status == GS_OK && !chat->tools.always)
        status = gs_fail_memory(error, sizeof *chat->tools.always);
    return status;
}

static int chat_main(const struct gs_command *command, int argc, char **argv)
{
    struct gs_chat chat = {0};
    struct gs_error error = {0};
    bool is_help;
    gs_status status = read_settings(command, argc, argv, &chat.settings, &is_help, &error);
    chat.setup.settings = &chat.settings.setup; /* whose biases are to be freed */
    if (is_help)
        gs_options_help(command, stdout);
    if (status == GS_OK && !is_help) {
        gs_terminal_locale();
        gs_interrupt_keep_terminal();
        gs_output_open(&chat.output, true);
        gs_view_open(&chat.view, &chat.output, chat.settings.keep_control, chat.settings.show_reasoning);
        status = open_all(&chat, &error);
        if (status == GS_OK)
            greet(&chat);
        if (status == GS_OK && chat.settings.load)
            status = load_first(&chat, &error);
        if (status == GS_OK)
            status = converse(&chat, &error);
    }
    int code = gs_output_end(&chat.output, status, &error);
    gs_interrupt_forget();
    gs_line_close(chat.reader);
    gs_view_close(&chat.view);
    json_decref(chat.tools.always);
    gs_dialog_close(&chat.dialog);
    gs_timeline_close(&chat.timeline);
    gs_setup_close(&chat.setup);
    gs_buffer_free(&chat.state_folder);
    gs_buffer_free(&chat.name);
    return code;
}

const struct gs_command gs_command_chat = {
    .name = "chat",
    .usage = "MODEL [options]",
    .summary = "A conversation in the terminal.",
    .details = "In the conversation: /help lists the commands. docs/chat.md has more.",
    .options = options,
    .max_operands = 1,
    .run = chat_main,
};
