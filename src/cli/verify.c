/* gossamer verify: is a model computed rightly here, and would we notice if it were not? */
#include "base/status.h"
#include "cli/commands.h"
#include "cli/hub.h"
#include "cli/number_names.h"
#include "cli/plan.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/verify_show.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GOLDEN_NAME "golden.safetensors"
#define PROMPT      "The capital of France is"

struct settings {
    const char *model;
    const char *golden;
    const char *backend;
    const char *precision;
    const char *weights;
    const char *against;
    const char *kill;
    const char *decode;
    const char *cpu_features;
    int64_t n_tokens;
    int64_t n_threads;
    int64_t device;
    bool scalar_load;
    bool controls;
    bool thresholds;
    bool all_layers;
    bool json;
};

static const struct gs_option options[] = {
    GS_HEADING_ROW("What to compare with (the first that there is):"),
    GS_TEXT_ROW("golden", "FILE", offsetof(struct settings, golden),
                "what transformers computed, from tools/oracle/make_golden.py\n"
                "(default: MODEL/" GOLDEN_NAME ", if there is one)"),
    GS_TEXT_ROW("against", "BACKEND:PRECISION", offsetof(struct settings, against),
                "another backend or precision of gossamer: cpu:exact"),
    GS_HEADING_ROW("Controls, which must be noticed:"),
    GS_TEXT_ROW("kill", "NAME", offsetof(struct settings, kill),
                "with one thing done wrongly: a name of the list below"),
    GS_FLAG_ROW("controls", offsetof(struct settings, controls),
                "every control in turn: does each do what theory says?"),
    GS_HEADING_ROW("What to run:"),
    GS_DEVICE_ROWS(struct settings, "exact (default) or fast"),
    GS_FLAG_ROW("scalar-load", offsetof(struct settings, scalar_load),
                "Metal: experts are loaded byte by byte"),
    {.kind = GS_OPTION_INTEGER,
     .name = "tokens",
     .letter = 'n',
     .value = "N",
     .offset = offsetof(struct settings, n_tokens),
     .least = 1,
     .most = INT32_MAX,
     .help = "the golden's first N, or N random ones\n(default: all, or as many as the checks need)"},
    GS_INTEGER_ROW("threads", "N", offsetof(struct settings, n_threads), 1, 1024,
                   "default: one per physical core"),
    GS_HEADING_ROW("What to show:"),
    GS_FLAG_ROW("layers", offsetof(struct settings, all_layers), "a line for each layer, not only the worst"),
    GS_FLAG_ROW("thresholds", offsetof(struct settings, thresholds), "only the table of bars"),
    GS_FLAG_ROW("json", offsetof(struct settings, json), "one JSON object instead of tables"),
    {.kind = GS_OPTION_END},
};

/* ---------------------------------------------------------------- preparation */

/* MODEL/golden.safetensors if it can be read, else NULL; the caller frees it. */
static char *find_golden(const char *model)
{
    size_t size = strlen(model) + sizeof "/" GOLDEN_NAME;
    char *path = malloc(size);
    if (path)
        snprintf(path, size, "%s/" GOLDEN_NAME, model);
    if (path && access(path, R_OK) == 0)
        return path;
    free(path);
    return NULL;
}

static gs_status choose_control(const char *name, enum gs_control *control, struct gs_error *error)
{
    const char *names[GS_CONTROL_COUNT];
    size_t count = 0;
    if (!name || gs_control_parse(name, control))
        return GS_OK;
    struct gs_buffer list = {0};
    for (int c = GS_CONTROL_NONE + 1; c < GS_CONTROL_COUNT; c++) {
        names[count] = gs_control_name((enum gs_control)c);
        gs_buffer_print(&list, NULL, "%s%s", count > 0 ? ", " : "", names[count]);
        count++;
    }
    const char *nearest = gs_nearest_name(name, names, count);
    gs_status status =
        nearest ? gs_fail(error, GS_INVALID_ARGUMENT, "--kill: unknown control \"%s\": did you mean %s?",
                          gs_quote(name).text, nearest)
                : gs_fail(error, GS_INVALID_ARGUMENT, "--kill: unknown control \"%s\": there are %s",
                          gs_quote(name).text, list.data ? list.data : "");
    gs_buffer_free(&list);
    return status;
}

static gs_status check_settings(const struct settings *s, struct gs_error *error)
{
    if (s->controls && s->kill)
        return gs_fail(error, GS_INVALID_ARGUMENT, "--controls runs every control: it takes no --kill");
    if (s->controls && s->against)
        return gs_fail(
            error, GS_INVALID_ARGUMENT,
            "--controls compares with a golden or the run without a control: it takes no --against");
    if (s->golden && s->against)
        return gs_fail(error, GS_INVALID_ARGUMENT, "--golden and --against: only one can be the reference");
    if (s->all_layers && (s->json || s->controls))
        return gs_fail(error, GS_INVALID_ARGUMENT, "--layers: %s",
                       s->json ? "--json has a line for each layer anyway" : "--controls shows no layers");
    return GS_OK;
}

/* --thresholds runs nothing: what says how to run would be passed over in silence. */
static gs_status check_table(const struct settings *s, struct gs_error *error)
{
    bool other = s->golden || s->against || s->kill || s->controls || s->backend || s->precision ||
                 s->weights || s->decode || s->cpu_features || s->device > 0 || s->n_tokens > 0 ||
                 s->n_threads > 0 || s->scalar_load || s->all_layers;
    return other ? gs_fail(error, GS_INVALID_ARGUMENT,
                           "--thresholds prints the bars and runs nothing: it takes --json alone")
                 : GS_OK;
}

/* ---------------------------------------------------------------- the command */

/* *failed: the checks were made, and some did not pass. */
static gs_status verify(const struct settings *s, const struct gs_verify_options *o,
                        const struct gs_verify_subject *subject, struct gs_output *out, bool *failed,
                        struct gs_error *error)
{
    struct gs_verify_report report;
    struct gs_progress progress;
    struct gs_verify_options with_progress = *o;
    gs_progress_begin(&progress, "verifying", false, 0);
    with_progress.progress = gs_progress_update;
    with_progress.progress_user = &progress;
    gs_status status = gs_verify(s->model, &with_progress, &report, error);
    gs_progress_end(&progress);
    if (status != GS_OK)
        return gs_plan_status(status);
    *failed = report.n_failed > 0;
    if (s->json)
        status = gs_show_checks_json(&report, subject, out, error);
    else
        gs_show_checks(&report, subject, out);
    gs_verify_report_free(&report);
    return status;
}

static gs_status run_controls(const struct settings *s, const struct gs_verify_options *o,
                              const struct gs_verify_subject *subject, struct gs_output *out, bool *failed,
                              struct gs_error *error)
{
    struct gs_controls_report *report = calloc(1, sizeof *report);
    struct gs_verify_options with_progress = *o;
    struct gs_progress progress;
    if (!report)
        return gs_fail_memory(error, sizeof *report);
    gs_progress_begin(&progress, "controls", false, 0);
    with_progress.progress = gs_progress_update;
    with_progress.progress_user = &progress;
    gs_status status = gs_verify_controls(s->model, &with_progress, report, error);
    gs_progress_end(&progress);
    if (status == GS_OK) {
        *failed = report->n_misbehaved > 0;
        if (s->json)
            status = gs_show_controls_json(report, subject, out, error);
        else
            gs_show_controls(report, subject, out);
    }
    free(report);
    return gs_plan_status(status);
}

static gs_status prove(const struct settings *s, struct gs_output *out, bool *failed, struct gs_error *error)
{
    struct gs_tokens prompt = {0};
    struct gs_buffer kernel_cache = {0};
    struct gs_vocab *vocab = NULL;
    struct gs_verify_subject subject = {.model = s->model, .all_layers = s->all_layers};
    char *found = NULL;
    gs_status status = check_settings(s, error);
    if (status == GS_OK)
        status = choose_control(s->kill, &subject.control, error);
    if (status != GS_OK)
        return status;
    if (!s->golden && !s->against)
        found = find_golden(s->model);
    subject.golden = s->golden ? s->golden : found;
    /* A model without a tokenizer is verified all the same: its continuations are shown as ids. */
    if (s->controls && gs_vocab_open(s->model, &vocab, NULL) == GS_OK) {
        subject.vocab = vocab;
        status = gs_vocab_encode(vocab, PROMPT, strlen(PROMPT), &prompt, error);
    }
    struct gs_verify_options o = {.golden = subject.golden,
                                  .backend = s->backend,
                                  .device = (int)s->device,
                                  .precision = s->precision,
                                  .weights = s->weights,
                                  .against = s->against,
                                  .control = subject.control,
                                  .n_tokens = (size_t)s->n_tokens,
                                  .n_threads = (size_t)s->n_threads,
                                  .cpu_features = s->cpu_features,
                                  .cache_folder = gs_kernel_cache_folder(&kernel_cache),
                                  .prompt = prompt.ids,
                                  .n_prompt = prompt.count};
    if (status == GS_OK)
        status = gs_parse_levers(s->decode, s->scalar_load, &o.levers, error);
    if (status == GS_OK)
        gs_warn_untested(s->backend);
    if (status == GS_OK)
        status = s->controls ? run_controls(s, &o, &subject, out, failed, error)
                             : verify(s, &o, &subject, out, failed, error);
    gs_tokens_free(&prompt);
    gs_buffer_free(&kernel_cache);
    gs_vocab_close(vocab);
    free(found);
    return status;
}

static void print_help(const struct gs_command *command)
{
    gs_options_help(command, stdout);
    printf("\nThe controls (--kill NAME):\n");
    for (int c = GS_CONTROL_NONE + 1; c < GS_CONTROL_COUNT; c++)
        printf("  %-28s%s\n", gs_control_name((enum gs_control)c), gs_control_summary((enum gs_control)c));
}

static int verify_main(const struct gs_command *command, int argc, char **argv)
{
    struct settings settings = {0};
    struct gs_operands operands;
    struct gs_output output;
    struct gs_error error = {0};
    struct gs_buffer path = {0};
    bool failed = false;
    gs_status status = gs_options_parse(command, argc, argv, &settings, &operands, &error);
    if (status == GS_OK && operands.help) {
        print_help(command);
        return GS_EXIT_OK;
    }
    if (status == GS_OK && operands.count == 0 && !settings.thresholds)
        status = gs_fail(&error, GS_INVALID_ARGUMENT, "no model: gossamer verify %s", command->usage);
    if (status != GS_OK)
        return gs_report(status, &error);
    settings.model = operands.list[0];
    gs_output_open(&output, false);
    status =
        settings.thresholds ? check_table(&settings, &error) : gs_find_model(&settings.model, &path, &error);
    if (status == GS_OK && !settings.thresholds)
        status = prove(&settings, &output, &failed, &error);
    else if (status == GS_OK && settings.json)
        status = gs_show_thresholds_json(&output, &error);
    else if (status == GS_OK)
        gs_show_thresholds(&output);
    gs_buffer_free(&path);
    int code = gs_output_end(&output, status, &error);
    return code == GS_EXIT_OK && failed ? GS_EXIT_FAILURE : code;
}

const struct gs_command gs_command_verify = {
    .name = "verify",
    .usage = "MODEL [--golden FILE | --against OTHER] [--kill NAME | --controls] [--json]",
    .summary = "Checks a model's arithmetic, component by component, and that errors would be noticed.",
    .details = "Exit code 0 only if every bar holds (with --controls: if every control behaves), else 1.\n"
               "docs/verify.md says what is compared and where the bars come from.",
    .options = options,
    .max_operands = 1,
    .run = verify_main,
};
