/* gossamer bench: how fast is it here, and what share of the machine is that? */
#include "cli/bench.h"

#include "base/status.h"
#include "cli/commands.h"
#include "cli/hub.h"
#include "cli/number_names.h"
#include "cli/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORDS 64 /* of the command, as the JSON repeats it */

struct settings {
    const char *prompt, *generate, *depth, *threads, *experts; /* lists of numbers */
    const char *frontier;                                      /* "1k:128k" */
    const char *backend, *precision, *weights, *cpu_features, *decode;
    int64_t device;
    const char *kernel;
    const char *gate;
    const char *streams;
    int64_t n_prompts;
    int64_t n_runs;
    int64_t layer;  /* -1: not given */
    int64_t expert; /* -1: not given */
    bool scalar_load;
    bool chain;
    bool in_turn;
    bool profile;
    bool json;
    bool markdown;
    bool csv;
};

#define DEFAULT_PRECISION      GS_PRECISION_FAST
#define DEFAULT_PRECISION_NAME "fast"

static const struct gs_option options[] = {
    GS_HEADING_ROW("The model (lists: numbers separated by commas):"),
    GS_TEXT_LETTER_ROW("prompt", 'p', "LIST", offsetof(struct settings, prompt),
                       "rows that read a prompt of so many tokens; 0: none"),
    GS_TEXT_LETTER_ROW("generate", 'n', "LIST", offsetof(struct settings, generate),
                       "rows that generate so many tokens one by one; 0: none\n"
                       "(default, if no row is asked for: -p 128 -n 16)"),
    GS_TEXT_ROW("streams", "LIST", offsetof(struct settings, streams),
                "-n rows with so many contexts that advance at once (1)"),
    GS_TEXT_LETTER_ROW("depth", 'd', "LIST", offsetof(struct settings, depth),
                       "each row with so many tokens in the context before (0)"),
    GS_FLAG_ROW("in-turn", offsetof(struct settings, in_turn),
                "the rows' runs alternate, and each depth is also told as a\n"
                "part of the first one's speed, round by round"),
    GS_TEXT_ROW("frontier", "FROM:TO", offsetof(struct settings, frontier),
                "speed over context: depths from FROM, each twice the one\n"
                "before, to TO (1k:128k); the reading of each is a row too"),
    GS_INTEGER_ROW(
        "prompts", "N", offsetof(struct settings, n_prompts), 1, 64,
        "a row of N short prompts, each continued greedily by 32\ntokens; only the steady part is timed"),
    GS_DEVICE_ROWS(struct settings, "exact or fast (" DEFAULT_PRECISION_NAME ")"),
    GS_FLAG_ROW("chain", offsetof(struct settings, chain),
                "-n rows choose their tokens on the device, many at a time"),
    GS_HEADING_ROW("One expert, without the model:"),
    GS_TEXT_ROW("kernel", "NAME", offsetof(struct settings, kernel),
                "moe_gate_up_mxfp4_f32 or moe_down_mxfp4_f32: the kernel\n"
                "on one expert's bytes, which are all that is read"),
    GS_INTEGER_ROW("layer", "L", offsetof(struct settings, layer), 0, 1023, "whose experts (0)"),
    GS_INTEGER_ROW("expert", "E", offsetof(struct settings, expert), 0, 1023,
                   "which one; the first of several (0)"),
    GS_TEXT_ROW("experts", "LIST", offsetof(struct settings, experts),
                "rows with so many experts in one launch (1)"),
    GS_FLAG_ROW("scalar-load", offsetof(struct settings, scalar_load),
                "beside each row a control that loads byte by byte; without\n"
                "--kernel: the model with such loads alone (Metal)"),
    GS_HEADING_ROW("A campaign:"),
    GS_TEXT_ROW("gate", "FILE", offsetof(struct settings, gate),
                "runs the command that a campaign file names, several times,\n"
                "and states the outcome (bench/campaign/README.md)"),
    GS_HEADING_ROW("Runs and output:"),
    GS_TEXT_LETTER_ROW("threads", 't', "LIST", offsetof(struct settings, threads),
                       "every row with so many threads (one a core)"),
    {.kind = GS_OPTION_INTEGER,
     .name = "runs",
     .letter = 'r',
     .value = "N",
     .offset = offsetof(struct settings, n_runs),
     .help = "timed runs of a row, after one untimed (5; kernels: 101)",
     .least = 1,
     .most = GS_BENCH_MAX_RUNS},
    GS_FLAG_ROW("profile", offsetof(struct settings, profile),
                "the time by stage too; generation then also samples"),
    GS_FLAG_ROW("json", offsetof(struct settings, json), "one JSON object with every run's time"),
    GS_FLAG_ROW("csv", offsetof(struct settings, csv), "a line a row, separated by commas"),
    GS_FLAG_ROW("md", offsetof(struct settings, markdown), "the table in Markdown"),
    {.kind = GS_OPTION_END},
};

/* ---------------------------------------------------------------- settings */

/* A whole number, in thousands of 1024 with a k behind it: "16k". */
static gs_status parse_count(const char *what, const char *text, size_t size, int64_t least, int64_t most,
                             int64_t *value, struct gs_error *error)
{
    char number[24];
    bool is_thousands = size > 1 && text[size - 1] == 'k';
    if (size >= sizeof number)
        return gs_fail(error, GS_INVALID_ARGUMENT, "%s: \"%s\" has more digits than any number here", what,
                       gs_quote_bytes(text, size).text);
    size -= is_thousands;
    snprintf(number, sizeof number, "%.*s", (int)size, text);
    gs_status status = gs_parse_integer(what, number, least, is_thousands ? most / 1024 : most, value, error);
    if (is_thousands)
        *value *= 1024;
    return status;
}

/* "128,512" -> numbers from `least` to `most`; text NULL: `otherwise` alone. */
static gs_status parse_list(const char *what, const char *text, int64_t least, int64_t most,
                            int64_t otherwise, struct gs_bench_list *list, struct gs_error *error)
{
    *list = (struct gs_bench_list){.values = {otherwise}, .count = 1};
    for (list->count = text ? 0 : 1; text;) {
        size_t size = strcspn(text, ",");
        if (list->count == GS_BENCH_MAX_LIST)
            return gs_fail(error, GS_INVALID_ARGUMENT, "%s: more than %d numbers", what, GS_BENCH_MAX_LIST);
        gs_status status = parse_count(what, text, size, least, most, &list->values[list->count++], error);
        if (status != GS_OK)
            return status;
        text = text[size] == ',' ? text + size + 1 : NULL;
    }
    return GS_OK;
}

/* "1k:128k" -> 1024, 2048 ... 131072 */
static gs_status parse_frontier(const char *text, struct gs_bench_list *list, struct gs_error *error)
{
    int64_t from = 0, to = 0;
    const char *colon = strchr(text, ':');
    if (!colon)
        return gs_fail(error, GS_INVALID_ARGUMENT, "--frontier: \"%s\" is not FROM:TO, for instance 1k:128k",
                       gs_quote(text).text);
    gs_status status = parse_count("--frontier", text, (size_t)(colon - text), 1, 1 << 20, &from, error);
    if (status == GS_OK)
        status = parse_count("--frontier", colon + 1, strlen(colon + 1), 1, 1 << 20, &to, error);
    if (status == GS_OK && from > to)
        status = gs_fail(error, GS_INVALID_ARGUMENT, "--frontier: from %lld to %lld: the first is larger",
                         (long long)from, (long long)to);
    list->count = 0;
    for (int64_t depth = from; status == GS_OK && depth <= to; depth *= 2) {
        if (list->count == GS_BENCH_MAX_LIST)
            return gs_fail(error, GS_INVALID_ARGUMENT, "--frontier: more than %d depths", GS_BENCH_MAX_LIST);
        list->values[list->count++] = depth;
    }
    return status;
}

/* Has anything been said about what is measured of the model? */
static bool asks_for_rows(const struct settings *s)
{
    return s->prompt || s->generate || s->streams || s->depth || s->n_prompts > 0 || s->frontier ||
           s->in_turn || s->profile;
}

static gs_status check_combination(const struct settings *s, struct gs_error *error)
{
    if (s->json + s->markdown + s->csv > 1)
        return gs_fail(error, GS_INVALID_ARGUMENT, "--json, --md and --csv: choose one");
    if (s->gate &&
        (asks_for_rows(s) || s->kernel || s->precision || s->weights || s->cpu_features || s->backend ||
         s->decode || s->chain || s->device != 0 || s->layer >= 0 || s->expert >= 0 || s->experts ||
         s->scalar_load || s->threads || s->n_runs > 0 || s->markdown || s->csv))
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "--gate runs the command that its file names: of the other options only --json goes "
                       "with it");
    if (s->kernel && asks_for_rows(s))
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "--kernel measures no tokens: leave -p, -n, --streams, -d, --in-turn, --prompts, "
                       "--frontier and --profile out");
    if (s->kernel &&
        (s->precision || s->weights || s->cpu_features || s->device != 0 || s->decode || s->chain))
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "--kernel measures the exact kernels as they are: leave --precision, --weights, "
                       "--cpu-features, --device, --decode and --chain out");
    if (s->streams && s->chain)
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "--streams and --chain: choose one (a chain is of one context)");
    if (s->frontier && s->in_turn)
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "--frontier and --in-turn: choose one (a frontier's contexts go on from each other)");
    if (s->frontier && s->depth)
        return gs_fail(error, GS_INVALID_ARGUMENT, "--frontier and --depth: choose one");
    if (s->kernel && s->backend && strcmp(s->backend, "cpu") != 0 && strcmp(s->backend, "metal") != 0 &&
        strcmp(s->backend, "hip") != 0)
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "--kernel: no kernels of backend \"%s\" to measure: cpu has some, metal and hip",
                       gs_quote(s->backend).text);
    if (s->kernel && s->backend && strcmp(s->backend, "hip") == 0 && s->scalar_load)
        return gs_fail(error, GS_INVALID_ARGUMENT, "--scalar-load: hip has no such kernels to measure");
    if (!s->kernel && (s->layer >= 0 || s->expert >= 0 || s->experts))
        return gs_fail(error, GS_INVALID_ARGUMENT, "--layer, --expert and --experts go with --kernel NAME");
    return GS_OK;
}

static bool all_zero(const struct gs_bench_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->values[i] > 0)
            return false;
    return true;
}

static gs_status read_settings(const struct settings *s, struct gs_bench_settings *out,
                               struct gs_error *error)
{
    bool asks = s->prompt || s->generate || s->n_prompts > 0;
    int64_t default_prompt = asks || s->frontier ? 0 : 128, default_generate = asks ? 0 : 16;
    out->engine = (struct gs_engine_options){.backend = s->backend,
                                             .device = (int)s->device,
                                             .precision = DEFAULT_PRECISION,
                                             .cpu_features = s->cpu_features};
    out->is_frontier = s->frontier != NULL;
    out->profile = s->profile;
    out->n_prompts = s->n_prompts;
    out->n_runs = s->n_runs;
    out->layer = s->layer > 0 ? s->layer : 0;
    out->expert = s->expert > 0 ? s->expert : 0;
    out->scalar_load = s->scalar_load;
    out->chain = s->chain;
    out->in_turn = s->in_turn;
    gs_status status = gs_parse_levers(s->decode, s->scalar_load && !s->kernel, &out->engine.levers, error);
    if (status == GS_OK)
        status = parse_list("--prompt", s->prompt, 0, 1 << 20, default_prompt, &out->prompt, error);
    if (status == GS_OK)
        status = parse_list("--generate", s->generate, 0, 1 << 20, default_generate, &out->generate, error);
    if (status == GS_OK)
        status = parse_list("--streams", s->streams, 1, GS_BENCH_MAX_STREAMS, 1, &out->streams, error);
    if (status == GS_OK && s->streams && all_zero(&out->generate))
        status = gs_fail(error, GS_INVALID_ARGUMENT, "--streams: rows of -n take it, and none is asked for");
    if (status == GS_OK)
        status = parse_list("--depth", s->depth, 0, 1 << 20, 0, &out->depth, error);
    if (status == GS_OK && s->in_turn && out->depth.count < 2)
        status = gs_fail(error, GS_INVALID_ARGUMENT,
                         "--in-turn: rows of several depths take turns: name them, for instance -d 0,4k");
    if (status == GS_OK && s->frontier)
        status = parse_frontier(s->frontier, &out->depth, error);
    if (status == GS_OK)
        status = gs_parse_precision(s->precision, &out->engine.precision, error);
    if (status == GS_OK)
        status = gs_parse_weight_format(s->weights, &out->engine.weights, error);
    if (status == GS_OK)
        status = parse_list("--threads", s->threads, s->threads ? 1 : 0, 1024, 0, &out->threads, error);
    if (status == GS_OK)
        status = parse_list("--experts", s->experts, 1, 1024, 1, &out->experts, error);
    if (status == GS_OK && s->kernel)
        return gs_measure_kernel_find(s->kernel, &out->kernel, error);
    if (status == GS_OK && !s->frontier && out->n_prompts == 0 && all_zero(&out->prompt) &&
        all_zero(&out->generate))
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "-p and -n ask for no row: give one of them a number above 0");
    return status;
}

/* ---------------------------------------------------------------- the command */

static gs_status measure(const struct settings *s, const char *model, const char *const *words,
                         size_t n_words, struct gs_output *out, struct gs_error *error)
{
    struct gs_bench_settings settings = {.model = model};
    struct gs_bench_report report = {0};
    struct gs_bench_machine machine = gs_bench_machine();
    gs_status status = read_settings(s, &settings, error);
    size_t size = strlen(model);
    while (size > 1 && model[size - 1] == '/')
        size--;
    size_t from = size;
    while (from > 0 && model[from - 1] != '/')
        from--;
    snprintf(report.model, sizeof report.model, "%s", gs_quote_bytes(model + from, size - from).text);
    if (status == GS_OK)
        status = settings.kernel ? gs_bench_kernel(&settings, &report, error)
                                 : gs_bench_model(&settings, &report, error);
    if (status == GS_OK && s->json)
        status = gs_bench_show_json(&report, &machine, words, n_words, out, error);
    else if (status == GS_OK && s->csv)
        gs_bench_show_csv(&report, out);
    else if (status == GS_OK)
        gs_bench_show(&report, &machine, s->markdown, out);
    gs_bench_report_free(&report);
    return status;
}

/* The command's words, the model's path in them as the word MODEL: it is of no use elsewhere. */
static size_t copy_words(int argc, char **argv, const char *model, const char **words)
{
    size_t n = 0;
    words[n++] = "gossamer";
    for (int i = 0; i < argc && n < MAX_WORDS; i++)
        words[n++] = argv[i] == model ? "MODEL" : argv[i];
    return n;
}

static int bench_main(const struct gs_command *command, int argc, char **argv)
{
    struct settings settings = {.layer = -1, .expert = -1};
    struct gs_operands operands;
    struct gs_output output;
    struct gs_error error = {0};
    struct gs_buffer path = {0};
    const char *words[MAX_WORDS];
    gs_status status = gs_options_parse(command, argc, argv, &settings, &operands, &error);
    if (status == GS_OK && operands.help) {
        gs_options_help(command, stdout);
        return GS_EXIT_OK;
    }
    const char *model = operands.list[0];
    if (status == GS_OK && !model)
        status = gs_fail(&error, GS_INVALID_ARGUMENT, "no model: gossamer bench %s", command->usage);
    if (status != GS_OK)
        return gs_report(status, &error);
    size_t n_words = copy_words(argc, argv, model, words);
    gs_output_open(&output, false);
    status = check_combination(&settings, &error);
    if (status == GS_OK)
        status = gs_find_model(&model, &path, &error);
    if (status == GS_OK)
        status = settings.gate ? gs_bench_gate(settings.gate, model, settings.json, &output, &error)
                               : measure(&settings, model, words, n_words, &output, &error);
    gs_buffer_free(&path);
    return gs_output_end(&output, status, &error);
}

const struct gs_command gs_command_bench = {
    .name = "bench",
    .usage = "MODEL [-p LIST] [-n LIST] [--kernel NAME | --gate FILE] [--json|--md|--csv]",
    .summary = "Measures speed, and what share of this machine's memory bandwidth that is.",
    .details =
        "Each figure is the median of the runs, with the smallest and the largest. GB/s counts the bytes of\n"
        "weights and of the cache that were read; bandwidth and peak are measured first, by reading a large\n"
        "buffer and by multiplying in registers. docs/bench.md explains every figure.",
    .options = options,
    .max_operands = 1,
    .run = bench_main,
};
