/* gossamer run: a text in, its completion out. */
#include "base/clock.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/generate.h"
#include "cli/hub.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/plan.h"
#include "cli/progress.h"
#include "cli/report.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TWO_TO_53 9007199254740992.0 /* whole numbers up to it are exact in JSON's numbers too */

struct settings {
    const char *model;
    const char *prompt, *file;
    bool from_stdin, special;
    int64_t n_tokens; /* -1: no limit */
    double temperature, top_p, min_p;
    double repeat_penalty, presence_penalty, frequency_penalty;
    int64_t top_k;
    struct gs_bias_list bias;
    int64_t seed; /* -1: a random one */
    int64_t n_ctx, n_threads;
    const char *backend;
    bool dry_run, ignore_stop, show_special, keep_control, json, stats, raw;
    int64_t n_logprobs; /* -1: none */
    const char *script;
    int64_t script_generation;
};

#define AT(field) offsetof(struct settings, field)

static const struct gs_option options[] = {
    {.kind = GS_OPTION_HEADING, .help = "The prompt:"},
    {.kind = GS_OPTION_TEXT,
     .name = "prompt",
     .letter = 'p',
     .value = "TEXT",
     .offset = AT(prompt),
     .help = "complete this text"},
    {.kind = GS_OPTION_TEXT,
     .name = "file",
     .letter = 'f',
     .value = "FILE",
     .offset = AT(file),
     .help = "complete the contents of FILE, every byte of it\n(- in place of a file: standard input)"},
    {.kind = GS_OPTION_FLAG,
     .name = "special",
     .offset = AT(special),
     .help = "texts such as <|end|> in the prompt become special tokens\n(never for a text from outside)"},
    {.kind = GS_OPTION_FLAG,
     .name = "raw",
     .offset = AT(raw),
     .help = "the prompt as it stands, without a chat format;\nthis is what run does anyway"},

    {.kind = GS_OPTION_HEADING, .help = "How long:"},
    {.kind = GS_OPTION_INTEGER,
     .name = "tokens",
     .letter = 'n',
     .value = "N",
     .offset = AT(n_tokens),
     .most = 1e9,
     .help = "at most N tokens; 0 only reads the prompt\n(default: until a stop token or a full context)"},
    {.kind = GS_OPTION_FLAG,
     .name = "ignore-stop",
     .offset = AT(ignore_stop),
     .help = "stop tokens do not end the text"},

    {.kind = GS_OPTION_HEADING, .help = "Sampling:"},
    {.kind = GS_OPTION_REAL,
     .name = "temp",
     .value = "T",
     .offset = AT(temperature),
     .most = 100,
     .help = "temperature; 0 takes the most likely token (default 1)"},
    {.kind = GS_OPTION_INTEGER,
     .name = "top-k",
     .value = "K",
     .offset = AT(top_k),
     .most = INT32_MAX,
     .help = "only the K most likely tokens; 0: all (default 0)"},
    {.kind = GS_OPTION_REAL,
     .name = "top-p",
     .value = "P",
     .offset = AT(top_p),
     .most = 1,
     .above = true,
     .help = "only the likeliest whose probability sums to P (default 1)"},
    {.kind = GS_OPTION_REAL,
     .name = "min-p",
     .value = "P",
     .offset = AT(min_p),
     .most = 1,
     .help = "only tokens at least P times as likely as the likeliest\n(default 0)"},
    {.kind = GS_OPTION_REAL,
     .name = "repeat-penalty",
     .value = "X",
     .offset = AT(repeat_penalty),
     .most = 100,
     .above = true,
     .help = "logits of tokens seen before, divided by X if positive,\nmultiplied if not (default 1)"},
    {.kind = GS_OPTION_REAL,
     .name = "presence-penalty",
     .value = "X",
     .offset = AT(presence_penalty),
     .least = -100,
     .most = 100,
     .help = "subtracted from the logits of tokens seen before"},
    {.kind = GS_OPTION_REAL,
     .name = "frequency-penalty",
     .value = "X",
     .offset = AT(frequency_penalty),
     .least = -100,
     .most = 100,
     .help = "the same, once per occurrence"},
    {.kind = GS_OPTION_BIAS,
     .name = "logit-bias",
     .value = "ID=X",
     .offset = AT(bias),
     .least = -1e9,
     .most = 1e9,
     .help = "added to the logit of token ID; may be repeated"},
    {.kind = GS_OPTION_INTEGER,
     .name = "seed",
     .value = "N",
     .offset = AT(seed),
     .most = TWO_TO_53,
     .help = "of the random numbers: the same seed gives the same text\n(default: random; --stats shows it)"},

    {.kind = GS_OPTION_HEADING, .help = "The machine:"},
    {.kind = GS_OPTION_INTEGER,
     .name = "ctx",
     .value = "N",
     .offset = AT(n_ctx),
     .least = 1,
     .most = INT32_MAX,
     .help = "context: prompt and answer, in tokens (default: the largest\nthat fits)"},
    {.kind = GS_OPTION_INTEGER,
     .name = "threads",
     .value = "N",
     .offset = AT(n_threads),
     .least = 1,
     .most = 4096,
     .help = "processor threads (default: one per processor)"},
    {.kind = GS_OPTION_TEXT,
     .name = "backend",
     .value = "NAME",
     .offset = AT(backend),
     .help = "what computes (default: the best that works here;\ngossamer --version lists them)"},
    {.kind = GS_OPTION_FLAG,
     .name = "dry-run",
     .offset = AT(dry_run),
     .help = "print the memory plan and stop"},

    {.kind = GS_OPTION_HEADING, .help = "Output:"},
    {.kind = GS_OPTION_FLAG,
     .name = "json",
     .offset = AT(json),
     .help = "a line of JSON for every token, and one at the end"},
    {.kind = GS_OPTION_INTEGER,
     .name = "logprobs",
     .value = "N",
     .offset = AT(n_logprobs),
     .most = GS_MAX_TOP_LOGPROBS,
     .help = "with --json: log-probabilities of the token and of the N\nmost likely (0 ... 20)"},
    {.kind = GS_OPTION_FLAG,
     .name = "show-special",
     .offset = AT(show_special),
     .help = "print special tokens too, as their text"},
    {.kind = GS_OPTION_FLAG,
     .name = "raw-control",
     .offset = AT(keep_control),
     .help =
         "on a terminal, do not remove control characters\n(a model's text can then change your terminal)"},
    {.kind = GS_OPTION_FLAG,
     .name = "stats",
     .offset = AT(stats),
     .help = "memory, settings, seed and speed on standard error"},

    {.kind = GS_OPTION_TEXT, .name = "script-tokens", .value = "FILE", .offset = AT(script), .hidden = true},
    {.kind = GS_OPTION_INTEGER,
     .name = "script-generation",
     .value = "N",
     .offset = AT(script_generation),
     .most = 1e9,
     .hidden = true},
    {.kind = GS_OPTION_END},
};

/* What a run holds; closed from the last to the first. */
struct run {
    struct settings settings;
    struct gs_buffer model_path;
    struct gs_vocab *vocab;
    struct gs_tokens prompt;
    struct gs_engine *engine;
    struct gs_session *session;
    struct gs_sampler *sampler;
    struct gs_source *source;
    struct gs_output output;
    struct gs_memory_plan plan;
    size_t n_vocab;     /* of the logits */
    size_t n_prefilled; /* tokens of the prompt that are in the session */
    double prefill_seconds;
    int32_t family_stops[3]; /* where no model says which ids stop */
};

static gs_status read_settings(const struct gs_command *command, int argc, char **argv, struct settings *s,
                               bool *help, struct gs_error *error)
{
    struct gs_operands operands;
    *s = (struct settings){.n_tokens = -1,
                           .temperature = 1.0,
                           .top_p = 1.0,
                           .repeat_penalty = 1.0,
                           .seed = -1,
                           .n_logprobs = -1};
    gs_status status = gs_options_parse(command, argc, argv, s, &operands, error);
    *help = status == GS_OK && operands.help;
    if (status != GS_OK || *help)
        return status;
    for (size_t i = 0; i < operands.count; i++) {
        const char *operand = operands.list[i];
        if (strcmp(operand, "-") == 0 && !s->from_stdin)
            s->from_stdin = true;
        else if (!s->model)
            s->model = operand;
        else
            return gs_fail(error, GS_INVALID_ARGUMENT,
                           "\"%s\" is one argument too many: a prompt is given by -p TEXT",
                           gs_quote(operand).text);
    }
    if (!s->model)
        return gs_fail(error, GS_INVALID_ARGUMENT, "no model: gossamer run %s", command->usage);
    if (s->n_logprobs >= 0 && !s->json)
        return gs_fail(error, GS_INVALID_ARGUMENT, "--logprobs needs --json, whose lines they stand in");
    if (s->seed < 0) {
        uint64_t random;
        if (getentropy(&random, sizeof random) != 0)
            random = (uint64_t)(gs_clock_seconds() * 1e9);
        s->seed = (int64_t)(random >> 22); /* 42 bits: short enough to type */
    }
    return GS_OK;
}

static gs_status read_prompt(struct run *run, struct gs_error *error)
{
    const struct settings *s = &run->settings;
    struct gs_buffer text = {0};
    bool none = !s->prompt && !s->file && !s->from_stdin;
    if (s->script && none) /* a script needs no prompt */
        return GS_OK;
    gs_status status = gs_input_choose("prompt", "-p TEXT", s->prompt, s->file, s->from_stdin, &text, error);
    if (status == GS_OK)
        status = s->special ? gs_vocab_encode_special(run->vocab, text.data, text.size, &run->prompt, error)
                            : gs_vocab_encode(run->vocab, text.data, text.size, &run->prompt, error);
    if (status == GS_OK && run->prompt.count == 0)
        status = gs_fail(error, GS_INVALID_ARGUMENT,
                         "the prompt is empty: it needs at least one token (this family of models has no "
                         "token for the beginning)");
    gs_buffer_free(&text);
    return status;
}

/* Loads the model, plans its memory. */
static gs_status open_model(struct run *run, struct gs_error *error)
{
    const struct settings *s = &run->settings;
    struct gs_progress progress;
    gs_progress_begin(&progress, "loading", true, 0);
    struct gs_engine_options engine_options = {.backend = s->backend,
                                               .n_threads = (size_t)s->n_threads,
                                               .progress = gs_progress_update,
                                               .progress_user = &progress};
    gs_status status = gs_engine_open(s->model, &engine_options, &run->engine, error);
    gs_progress_end(&progress);
    if (status == GS_OK)
        status = gs_plan_make(run->engine, s->n_ctx, &run->plan, error);
    if (status == GS_OK)
        run->n_vocab = (size_t)gs_engine_info(run->engine)->n_vocab;
    return status;
}

static void print_plan(const struct run *run)
{
    fprintf(stderr, "model    %s on backend %s\n%s\n", gs_quote(run->settings.model).text,
            gs_engine_backend(run->engine), gs_plan_text(&run->plan, "").text);
}

/* The prompt through the model. */
static gs_status prefill(struct run *run, struct gs_error *error)
{
    const struct settings *s = &run->settings;
    if ((int64_t)run->prompt.count > run->plan.n_ctx)
        return gs_fail(error, GS_CONTEXT_FULL,
                       "the prompt has %zu tokens, but the context holds %lld: shorten it, or give a larger "
                       "--ctx (this model takes up to %lld, and %lld fit in memory)",
                       run->prompt.count, (long long)run->plan.n_ctx,
                       (long long)gs_engine_info(run->engine)->max_ctx, (long long)run->plan.largest_n_ctx);
    gs_status status = gs_plan_check(&run->plan, error);
    if (status == GS_OK)
        status = gs_session_open(run->engine, run->plan.n_ctx, &run->session, error);
    if (status != GS_OK)
        return status;
    if (s->stats)
        print_plan(run);
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

static gs_status open_sampler(struct run *run, struct gs_error *error)
{
    const struct settings *s = &run->settings;
    struct gs_sampling sampling = gs_sampling_default();
    sampling.temperature = (float)s->temperature;
    sampling.top_k = (int32_t)s->top_k;
    sampling.top_p = (float)s->top_p;
    sampling.min_p = (float)s->min_p;
    sampling.repetition_penalty = (float)s->repeat_penalty;
    sampling.presence_penalty = (float)s->presence_penalty;
    sampling.frequency_penalty = (float)s->frequency_penalty;
    sampling.bias = s->bias.list;
    sampling.n_bias = s->bias.count;
    sampling.seed = (uint64_t)s->seed;
    return gs_sampler_open(&sampling, run->n_vocab, &run->sampler, error);
}

/* The stop ids of the model, or for a script those of the family by their texts. */
static void set_stops(struct run *run, struct gs_generation *generation)
{
    static const char *const texts[] = {"<|return|>", "<|endoftext|>", "<|call|>"};
    if (run->settings.ignore_stop)
        return;
    if (run->engine) {
        generation->stop_ids = gs_engine_stop_ids(run->engine, &generation->n_stop_ids);
        return;
    }
    generation->stop_ids = run->family_stops;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int32_t id = gs_vocab_special(run->vocab, texts[i]);
        if (id >= 0)
            run->family_stops[generation->n_stop_ids++] = id;
    }
}

static double rate(int64_t count, double seconds)
{
    return seconds > 0.0 ? (double)count / seconds : 0.0;
}

/* The last line of --json. */
static void write_end(struct run *run, const struct gs_generation *g)
{
    json_t *line = json_pack("{s:s, s:s, s:I, s:I, s:I, s:f, s:f}", "type", "end", "reason",
                             gs_end_reason_name(g->reason), "prompt_tokens", (json_int_t)run->prompt.count,
                             "tokens", (json_int_t)g->n_tokens, "seed", (json_int_t)run->settings.seed,
                             "prefill_seconds", run->prefill_seconds, "decode_seconds", g->seconds);
    if (line && g->stop_id >= 0)
        json_object_set_new(line, "stop_id", json_integer(g->stop_id));
    if (line && g->broken_tail)
        json_object_set_new(line, "text", json_string("\xEF\xBF\xBD"));
    char *text = line ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    if (text)
        gs_output_print(&run->output, "%s\n", text);
    free(text);
    json_decref(line);
}

static void print_stats(const struct run *run, const struct gs_generation *g)
{
    const struct settings *s = &run->settings;
    fprintf(stderr, "sampling temperature %g, top-k %lld, top-p %g, min-p %g, seed %lld\n", s->temperature,
            (long long)s->top_k, s->top_p, s->min_p, (long long)s->seed);
    fprintf(stderr, "end      %s", gs_end_reason_name(g->reason));
    if (g->stop_id >= 0) {
        size_t size = 0;
        const char *bytes = gs_vocab_bytes(run->vocab, g->stop_id, &size);
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
    const struct settings *s = &run->settings;
    if (s->script)
        return gs_source_open_script(s->script, (size_t)s->script_generation, run->sampler, run->n_vocab,
                                     &run->source, error);
    return gs_source_open_model(run->session, run->sampler, &run->source, error);
}

/* Prompt and completion, with the closing lines. */
static gs_status complete(struct run *run, struct gs_error *error)
{
    const struct settings *s = &run->settings;
    struct gs_generation generation = {.vocab = run->vocab,
                                       .output = &run->output,
                                       .n_vocab = run->n_vocab,
                                       .limit = s->n_tokens,
                                       .show_special = s->show_special,
                                       .json = s->json,
                                       .n_logprobs = s->n_logprobs,
                                       .reason = GS_END_INTERRUPTED,
                                       .stop_id = -1};
    set_stops(run, &generation);
    if (s->script)
        gs_interrupt_note(NULL);
    gs_status status = open_sampler(run, error);
    if (status == GS_OK && !s->script)
        status = prefill(run, error);
    if (status == GS_OK)
        status = open_source(run, error);
    if (status == GS_OK) {
        generation.source = run->source;
        status = gs_generate(&generation, error);
    }
    if (status != GS_OK && status != GS_CANCELLED)
        return status;

    if (s->json)
        write_end(run, &generation);
    gs_output_end_text(&run->output);
    if (s->stats)
        print_stats(run, &generation);
    if (s->stats || gs_is_terminal(STDERR_FILENO))
        print_closing_line(run, &generation);
    return generation.reason == GS_END_INTERRUPTED ? GS_CANCELLED : status;
}

static gs_status run_all(struct run *run, struct gs_error *error)
{
    const struct settings *s = &run->settings;
    gs_status status = gs_find_model(&run->settings.model, &run->model_path, error);
    if (status == GS_OK)
        status = gs_vocab_open(s->model, &run->vocab, error);
    if (status == GS_OK && !s->dry_run)
        status = read_prompt(run, error);
    if (status == GS_OK && s->script)
        run->n_vocab = gs_vocab_size(run->vocab);
    else if (status == GS_OK)
        status = open_model(run, error);
    if (status != GS_OK || !s->dry_run)
        return status == GS_OK ? complete(run, error) : status;
    if (run->engine) {
        gs_output_print(&run->output, "%s\n", gs_plan_text(&run->plan, "").text);
        status = gs_plan_check(&run->plan, error);
    }
    return status;
}

static int run_main(const struct gs_command *command, int argc, char **argv)
{
    struct run run = {0};
    struct gs_error error = {0};
    bool help;
    gs_status status = read_settings(command, argc, argv, &run.settings, &help, &error);
    if (help)
        gs_options_help(command, stdout);
    if (status == GS_OK && !help) {
        gs_output_open(&run.output, run.settings.keep_control);
        status = run_all(&run, &error);
    }
    int code = gs_output_end(&run.output, status, &error);
    gs_interrupt_forget();
    gs_source_close(run.source);
    gs_sampler_close(run.sampler);
    gs_session_close(run.session);
    gs_engine_close(run.engine);
    gs_tokens_free(&run.prompt);
    gs_vocab_close(run.vocab);
    gs_buffer_free(&run.model_path);
    free(run.settings.bias.list);
    return code;
}

const struct gs_command gs_command_run = {
    .name = "run",
    .usage = "MODEL (-p TEXT | -f FILE | -) [options]",
    .summary = "Completes a text: the completion, and nothing else, goes to standard output.",
    .options = options,
    .max_operands = 2,
    .run = run_main,
};
