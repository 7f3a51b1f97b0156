/* gossamer run: one chat turn (run_turn.c), or with --raw a text in and its completion out. */
#include "base/clock.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/generate.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/json_text.h"
#include "cli/plan.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/run_turn.h"

#include <jansson.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#define AT(field) offsetof(struct gs_run_settings, field)

static const struct gs_option options[] = {
    GS_HEADING_ROW("The prompt:"),
    GS_TEXT_LETTER_ROW("prompt", 'p', "TEXT", AT(prompt),
                       "what the person says (with --raw: the text to complete)"),
    GS_TEXT_LETTER_ROW(
        "file", 'f', "FILE", AT(file),
        "the contents of FILE instead, every byte of it\n(- in place of a file: standard input)"),

    GS_HEADING_ROW("A chat turn:"),
    GS_TEXT_ROW("system", "TEXT", AT(system), "instructions that stand above the conversation"),
    GS_EFFORT_ROW(AT(effort)),
    GS_TOOLS_ROW(AT(tools)),
    GS_FLAG_ROW("show-reasoning", AT(show_reasoning), "the reasoning too, on standard error"),
    GS_DATE_ROW(AT(date)),
    GS_FLAG_ROW("no-date", AT(no_date), "do not tell it the date"),

    GS_HEADING_ROW("A plain completion:"),
    GS_FLAG_ROW("raw", AT(raw), "the prompt as it stands, without the chat format"),
    GS_FLAG_ROW("special", AT(special),
                "texts such as <|end|> in the prompt become special tokens\n(never for a text from outside)"),
    GS_FLAG_ROW("ignore-stop", AT(ignore_stop), "stop tokens do not end the text"),
    GS_FLAG_ROW("show-special", AT(show_special), "print special tokens too, as their text"),
    GS_INTEGER_ROW("logprobs", "N", AT(n_logprobs), 0, GS_MAX_TOP_LOGPROBS,
                   "with --json: log-probabilities of the token and of the N\nmost likely (0 ... 20)"),

    GS_HEADING_ROW("How long:"),
    GS_SETUP_LENGTH_OPTIONS(struct gs_run_settings, setup),
    GS_SETUP_SAMPLING_OPTIONS(struct gs_run_settings, setup),
    GS_SETUP_MACHINE_OPTIONS(struct gs_run_settings, setup),
    GS_FLAG_ROW("dry-run", AT(dry_run), "print the memory plan and stop"),

    GS_HEADING_ROW("Output:"),
    GS_FLAG_ROW(
        "json", AT(json),
        "the whole message as one JSON object; with --raw a line for\nevery token, and one at the end"),
    {.kind = GS_OPTION_FLAG,
     .name = "raw-control",
     .offset = AT(keep_control),
     .help =
         "on a terminal, do not remove control characters\n(a model's text can then change your terminal)"},
    GS_FLAG_ROW("stats", AT(stats), "memory, settings, seed and speed on standard error"),

    GS_SETUP_SCRIPT_OPTIONS(struct gs_run_settings, setup),
    {.kind = GS_OPTION_END},
};

/* What a raw run holds besides the setup; closed from the last to the first. */
struct run {
    struct gs_run_settings settings;
    struct gs_setup setup;
    struct gs_tokens prompt;
    struct gs_session *session;
    struct gs_source *source;
    struct gs_output output;
    size_t n_prefilled; /* tokens of the prompt that are in the session */
    double prefill_seconds;
    int32_t family_stops[3]; /* where no model says which ids stop */
};

/* Options that only one of the two ways to run has. */
static gs_status check_way(const struct gs_run_settings *s, struct gs_error *error)
{
    const char *raw_only = s->special           ? "--special"
                           : s->ignore_stop     ? "--ignore-stop"
                           : s->show_special    ? "--show-special"
                           : s->n_logprobs >= 0 ? "--logprobs"
                                                : NULL;
    const char *chat_only = s->system           ? "--system"
                            : s->effort         ? "--effort"
                            : s->tools          ? "--tools"
                            : s->show_reasoning ? "--show-reasoning"
                            : s->date           ? "--date"
                            : s->no_date        ? "--no-date"
                                                : NULL;
    if (!s->raw && raw_only)
        return gs_fail(error, GS_INVALID_ARGUMENT, "%s is for plain completions: it needs --raw", raw_only);
    if (s->raw && chat_only)
        return gs_fail(error, GS_INVALID_ARGUMENT, "%s is for chat turns: it cannot go with --raw",
                       chat_only);
    if (s->n_logprobs >= 0 && !s->json)
        return gs_fail(error, GS_INVALID_ARGUMENT, "--logprobs needs --json, whose lines they stand in");
    return GS_OK;
}

static gs_status read_settings(const struct gs_command *command, int argc, char **argv,
                               struct gs_run_settings *s, bool *help, struct gs_error *error)
{
    struct gs_operands operands;
    *s = (struct gs_run_settings){.setup = GS_SETUP_DEFAULTS, .n_logprobs = -1};
    gs_status status = gs_options_parse(command, argc, argv, s, &operands, error);
    *help = status == GS_OK && operands.help;
    if (status != GS_OK || *help)
        return status;
    for (size_t i = 0; i < operands.count; i++) {
        const char *operand = operands.list[i];
        if (strcmp(operand, "-") == 0 && !s->from_stdin)
            s->from_stdin = true;
        else if (!s->setup.model)
            s->setup.model = operand;
        else
            return gs_fail(error, GS_INVALID_ARGUMENT,
                           "\"%s\" is one argument too many: a prompt is given by -p TEXT",
                           gs_quote(operand).text);
    }
    if (!s->setup.model)
        return gs_fail(error, GS_INVALID_ARGUMENT, "no model: gossamer run %s", command->usage);
    return check_way(s, error);
}

static gs_status read_prompt(struct run *run, struct gs_error *error)
{
    const struct gs_run_settings *s = &run->settings;
    struct gs_buffer text = {0};
    bool none = !s->prompt && !s->file && !s->from_stdin;
    if (s->setup.script && none) /* a script needs no prompt */
        return GS_OK;
    gs_status status = gs_input_choose("prompt", "-p TEXT", s->prompt, s->file, s->from_stdin, &text, error);
    if (status == GS_OK)
        status = s->special
                     ? gs_vocab_encode_special(run->setup.vocab, text.data, text.size, &run->prompt, error)
                     : gs_vocab_encode(run->setup.vocab, text.data, text.size, &run->prompt, error);
    if (status == GS_OK && run->prompt.count == 0)
        status = gs_fail(error, GS_INVALID_ARGUMENT,
                         "the prompt is empty: it needs at least one token (this family of models has no "
                         "token for the beginning)");
    gs_buffer_free(&text);
    return status;
}

/* The prompt through the model. */
static gs_status prefill(struct run *run, struct gs_error *error)
{
    const struct gs_run_settings *s = &run->settings;
    if ((int64_t)run->prompt.count > run->setup.plan.n_ctx)
        return gs_fail(error, GS_CONTEXT_FULL,
                       "the prompt has %zu tokens, but the context holds %lld: shorten it, or give a larger "
                       "--ctx (this model takes up to %lld, and %lld fit in memory)",
                       run->prompt.count, (long long)run->setup.plan.n_ctx,
                       (long long)gs_engine_info(run->setup.engine)->max_ctx,
                       (long long)run->setup.plan.largest_n_ctx);
    gs_status status = gs_plan_require(&run->setup.plan, error);
    if (status == GS_OK)
        status = gs_session_open(run->setup.engine, run->setup.plan.n_ctx, &run->session, error);
    if (status != GS_OK)
        return status;
    if (s->stats)
        gs_setup_print_plan(&run->setup);
    gs_interrupt_note(run->session);
    struct gs_progress progress;
    gs_progress_begin(&progress, "prefill", false, run->prompt.count);
    gs_session_on_progress(run->session, gs_progress_update, &progress);
    double began = gs_clock_seconds();
    status = gs_session_sync(run->session, run->prompt.ids, run->prompt.count, NULL, error);
    run->prefill_seconds = gs_clock_seconds() - began;
    gs_session_tokens(run->session, &run->n_prefilled);
    gs_session_on_progress(run->session, NULL, NULL);
    gs_progress_end(&progress);
    return status;
}

/* The stop ids of the model, or for a script those of the family by their texts. */
static void set_stops(struct run *run, struct gs_generation *generation)
{
    static const char *const texts[] = {"<|return|>", "<|endoftext|>", "<|call|>"};
    if (run->settings.ignore_stop)
        return;
    if (run->setup.engine) {
        generation->stop_ids = gs_engine_stop_ids(run->setup.engine, &generation->n_stop_ids);
        return;
    }
    generation->stop_ids = run->family_stops;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int32_t id = gs_vocab_special(run->setup.vocab, texts[i]);
        if (id >= 0)
            run->family_stops[generation->n_stop_ids++] = id;
    }
}

static double rate(int64_t count, double seconds)
{
    return seconds > 0.0 ? (double)count / seconds : 0.0;
}

/* The last line of --json. */
static gs_status write_end(struct run *run, const struct gs_generation *g, struct gs_error *error)
{
    json_t *line = json_pack("{s:s, s:s, s:I, s:I, s:I, s:f, s:f}", "type", "end", "reason",
                             gs_end_reason_name(g->reason), "prompt_tokens", (json_int_t)run->prompt.count,
                             "tokens", (json_int_t)g->n_tokens, "seed", (json_int_t)run->settings.setup.seed,
                             "prefill_seconds", run->prefill_seconds, "decode_seconds", g->seconds);
    if (line && g->stop_id >= 0)
        json_object_set_new(line, "stop_id", json_integer(g->stop_id));
    if (line && g->broken_tail)
        json_object_set_new(line, "text", json_string("\xEF\xBF\xBD"));
    return gs_json_print(line, JSON_COMPACT | JSON_REAL_PRECISION(9), &run->output, error);
}

static void print_stats(const struct run *run, const struct gs_generation *g)
{
    gs_setup_print_sampling(&run->setup);
    fprintf(stderr, "end      %s", gs_end_reason_name(g->reason));
    if (g->stop_id >= 0) {
        size_t size = 0;
        const char *bytes = gs_vocab_bytes(run->setup.vocab, g->stop_id, &size);
        fprintf(stderr, ": token %d %s", (int)g->stop_id, gs_quote_bytes(bytes ? bytes : "", size).text);
    } else if (g->reason == GS_END_EXHAUSTED) {
        fputs(run->session ? ": the context is full" : ": the script ran out", stderr);
    }
    fputc('\n', stderr);
}

/* "prefill 5 tokens 812.3 tok/s, decode 12 tokens 120.4 tok/s" */
static void print_closing_line(const struct run *run, const struct gs_generation *g)
{
    bool color = gs_wants_color();
    size_t n_prompt = run->session ? run->n_prefilled : run->prompt.count;
    fprintf(stderr, "%sprefill %zu token%s", color ? "\033[2m" : "", n_prompt, n_prompt == 1 ? "" : "s");
    if (run->session)
        fprintf(stderr, " %.1f tok/s", rate((int64_t)run->n_prefilled, run->prefill_seconds));
    fprintf(stderr, ", decode %lld token%s", (long long)g->n_tokens, g->n_tokens == 1 ? "" : "s");
    if (g->n_steps > 0)
        fprintf(stderr, " %.1f tok/s", rate(g->n_steps, g->seconds));
    fprintf(stderr, "%s%s\n", g->reason == GS_END_INTERRUPTED ? ", interrupted" : "", color ? "\033[0m" : "");
}

static gs_status open_source(struct run *run, struct gs_error *error)
{
    const struct gs_run_settings *s = &run->settings;
    if (s->setup.script)
        return gs_source_open_script(s->setup.script, (size_t)s->setup.script_generation, run->setup.sampler,
                                     run->setup.n_vocab, &run->source, error);
    return gs_source_open_model(run->session, run->setup.sampler, &run->source, error);
}

/* Prompt and completion, with the closing lines. */
static gs_status complete(struct run *run, struct gs_error *error)
{
    const struct gs_run_settings *s = &run->settings;
    struct gs_generation generation = {.vocab = run->setup.vocab,
                                       .output = &run->output,
                                       .n_vocab = run->setup.n_vocab,
                                       .limit = s->setup.n_tokens,
                                       .show_special = s->show_special,
                                       .json = s->json,
                                       .n_logprobs = s->n_logprobs,
                                       .reason = GS_END_INTERRUPTED,
                                       .stop_id = -1};
    set_stops(run, &generation);
    if (s->setup.script)
        gs_interrupt_note(NULL);
    gs_status status = gs_setup_sampler(&run->setup, error);
    if (status == GS_OK && !s->setup.script)
        status = prefill(run, error);
    if (status == GS_OK)
        status = open_source(run, error);
    if (status == GS_OK) {
        generation.source = run->source;
        status = gs_generate(&generation, error);
    }
    if (status != GS_OK && status != GS_CANCELLED)
        return status;

    gs_status told = s->json ? write_end(run, &generation, error) : GS_OK;
    gs_output_end_text(&run->output);
    if (s->stats)
        print_stats(run, &generation);
    if (s->stats || gs_is_terminal(STDERR_FILENO))
        print_closing_line(run, &generation);
    if (told != GS_OK)
        return told;
    return generation.reason == GS_END_INTERRUPTED ? GS_CANCELLED : status;
}

static gs_status dry_run(struct run *run, struct gs_error *error)
{
    if (!run->setup.engine)
        return GS_OK;
    gs_status status = GS_OK;
    if (run->settings.json)
        status = gs_json_print(gs_plan_json(&run->setup.plan), JSON_COMPACT, &run->output, error);
    else
        gs_output_print(&run->output, "%s\n", gs_plan_text(&run->setup.plan, "").text);
    return status == GS_OK ? gs_plan_require(&run->setup.plan, error) : status;
}

static gs_status run_raw(struct run *run, struct gs_error *error)
{
    gs_status status = read_prompt(run, error);
    if (status == GS_OK)
        status = gs_setup_load(&run->setup, error);
    return status == GS_OK ? complete(run, error) : status;
}

static gs_status run_all(struct run *run, struct gs_error *error)
{
    struct gs_run_settings *s = &run->settings;
    gs_status status = gs_setup_open(&run->setup, &s->setup, error);
    if (status == GS_OK && s->dry_run) {
        status = gs_setup_load(&run->setup, error);
        return status == GS_OK ? dry_run(run, error) : status;
    }
    if (status != GS_OK)
        return status;
    return s->raw ? run_raw(run, error) : gs_run_turn(s, &run->setup, &run->output, error);
}

static int run_main(const struct gs_command *command, int argc, char **argv)
{
    struct run run = {0};
    struct gs_error error = {0};
    bool help;
    gs_status status = read_settings(command, argc, argv, &run.settings, &help, &error);
    run.setup.settings = &run.settings.setup; /* whose biases are to be freed */
    if (help)
        gs_options_help(command, stdout);
    if (status == GS_OK && !help) {
        gs_output_open(&run.output, run.settings.keep_control);
        status = run_all(&run, &error);
    }
    int code = gs_output_end(&run.output, status, &error);
    gs_interrupt_forget();
    gs_source_close(run.source);
    gs_session_close(run.session);
    gs_setup_close(&run.setup);
    gs_tokens_free(&run.prompt);
    return code;
}

const struct gs_command gs_command_run = {
    .name = "run",
    .usage = "MODEL (-p TEXT | -f FILE | -) [options]",
    .summary = "One chat turn, or with --raw a completion: the answer goes to standard output.",
    .options = options,
    .max_operands = 2,
    .run = run_main,
};
