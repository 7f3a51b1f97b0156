/*
 * Running a campaign: its command as a process of its own, so that every run begins alike; the figure out of
 * each run's JSON; the outcome.
 */
#include "base/status.h"
#include "cli/bench.h"
#include "cli/bench_gate.h"
#include "cli/json_text.h"
#include "cli/report.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <mach-o/dyld.h>
#endif

#define MAX_OUTPUT (16u << 20)

extern char **environ;

struct campaign {
    const char *path;
    const char *model;
    struct gs_gate gate;
    double figures[GS_GATE_MAX_RUNS];
    json_t *runs; /* each run's own JSON */
};

/* The path of the program that is running. */
static bool find_self(char *path, size_t size)
{
#if defined(__APPLE__)
    uint32_t length = (uint32_t)size;
    return _NSGetExecutablePath(path, &length) == 0;
#else
    ssize_t length = readlink("/proc/self/exe", path, size - 1);
    path[length > 0 ? length : 0] = '\0';
    return length > 0 && (size_t)length < size - 1;
#endif
}

static gs_status read_pipe(int descriptor, struct gs_buffer *text, struct gs_error *error)
{
    for (;;) {
        gs_status status = gs_buffer_reserve(text, 65536, error);
        if (status != GS_OK)
            return status;
        ssize_t n = read(descriptor, text->data + text->size, 65536);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return gs_fail_io(error, errno, "read from", "the campaign's command");
        if (n == 0)
            break;
        text->size += (size_t)n;
        if (text->size > MAX_OUTPUT)
            return gs_fail(error, GS_MALFORMED, "the campaign's command prints more than %u MiB",
                           MAX_OUTPUT >> 20);
    }
    text->data[text->size] = '\0';
    return GS_OK;
}

static gs_status start(const char *self, char *const *argv, pid_t *child, int *descriptor,
                       struct gs_error *error)
{
    int ends[2];
    posix_spawn_file_actions_t actions;
    if (pipe(ends) != 0)
        return gs_fail_io(error, errno, "make", "a pipe");
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    int errnum = posix_spawn(child, self, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (errnum == 0) {
        *descriptor = ends[0];
        return GS_OK;
    }
    close(ends[0]);
    return gs_fail_io(error, errnum, "start", self);
}

/* One run; its standard error is ours. */
static gs_status run_command(const struct campaign *campaign, struct gs_buffer *text, struct gs_error *error)
{
    char self[4096];
    char *argv[GS_GATE_MAX_WORDS + 2];
    size_t n = 0;
    pid_t child;
    int descriptor = -1, outcome = 0;
    if (!find_self(self, sizeof self))
        return gs_fail(error, GS_UNSUPPORTED, "cannot find this program's own file to run it again");
    for (; n < campaign->gate.n_words; n++)
        argv[n] = strcmp(campaign->gate.words[n], "MODEL") == 0 ? (char *)(uintptr_t)campaign->model
                                                                : campaign->gate.words[n];
    argv[n++] = (char *)(uintptr_t) "--json";
    argv[n] = NULL;
    gs_status status = start(self, argv, &child, &descriptor, error);
    if (status != GS_OK)
        return status;
    status = read_pipe(descriptor, text, error);
    close(descriptor);
    while (waitpid(child, &outcome, 0) < 0 && errno == EINTR)
        ;
    if (status != GS_OK)
        return status;
    if (WIFEXITED(outcome) && WEXITSTATUS(outcome) == 0)
        return GS_OK;
    return gs_fail(error, GS_INVALID_ARGUMENT, "%s: the command failed (its own line is above): %s",
                   gs_quote(campaign->path).text, gs_quote(campaign->gate.values[GS_GATE_COMMAND].data).text);
}

/* The key's number, or its median, in the one row of this name. */
static gs_status find_figure(const struct campaign *campaign, const json_t *run, const char *name,
                             double *figure, struct gs_error *error)
{
    const char *key = campaign->gate.values[GS_GATE_FIGURE].data;
    const json_t *rows = json_object_get(run, "rows"), *found = NULL;
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *other = json_string_value(json_object_get(row, "name"));
        if (other && strcmp(other, name) == 0) {
            found = row;
            count++;
        }
    }
    if (count != 1)
        return gs_fail(error, GS_MALFORMED,
                       "%s: %s rows are called \"%s\" in what the command prints: one must be",
                       gs_quote(campaign->path).text, count == 0 ? "no" : "several", gs_quote(name).text);
    const json_t *value = json_object_get(found, key);
    value = json_is_object(value) ? json_object_get(value, "median") : value;
    if (!json_is_number(value))
        return gs_fail(error, GS_MALFORMED, "%s: row \"%s\" has no figure \"%s\"",
                       gs_quote(campaign->path).text, gs_quote(name).text, gs_quote(key).text);
    *figure = json_number_value(value);
    return GS_OK;
}

static gs_status run_once(struct campaign *campaign, size_t index, struct gs_error *error)
{
    struct gs_buffer text = {0};
    const struct gs_buffer *over = &campaign->gate.values[GS_GATE_OVER];
    double divisor = 1.0;
    json_t *run = NULL;
    gs_status status = run_command(campaign, &text, error);
    if (status == GS_OK && !(run = json_loadb(text.data, text.size, 0, NULL)))
        status =
            gs_fail(error, GS_MALFORMED, "%s: the command printed no JSON", gs_quote(campaign->path).text);
    if (status == GS_OK)
        status = find_figure(campaign, run, campaign->gate.values[GS_GATE_ROW].data,
                             &campaign->figures[index], error);
    if (status == GS_OK && over->size > 0)
        status = find_figure(campaign, run, over->data, &divisor, error);
    if (status == GS_OK && divisor == 0.0)
        status =
            gs_fail(error, GS_MALFORMED, "%s: over: the figure of row \"%s\" is 0: nothing is a part of it",
                    gs_quote(campaign->path).text, gs_quote(over->data).text);
    campaign->figures[index] /= divisor;
    if (status == GS_OK && json_array_append(campaign->runs, run) != 0)
        status = gs_fail_memory(error, text.size);
    json_decref(run);
    gs_buffer_free(&text);
    return status;
}

/* ---------------------------------------------------------------- the outcome */

static void show(const struct campaign *campaign, const struct gs_bench_spread *spread, struct gs_output *out)
{
    const struct gs_gate *gate = &campaign->gate;
    static const enum gs_gate_key told[] = {GS_GATE_HYPOTHESIS, GS_GATE_MACHINE, GS_GATE_MODEL,
                                            GS_GATE_COMMAND};
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        gs_output_print(out, "%-11s ", gs_gate_key_name(told[i]));
        gs_output_append(out, gate->values[told[i]].data, gate->values[told[i]].size);
        gs_output_append(out, "\n", 1);
    }
    gs_output_print(out, "%-11s %.300s of \"%.300s\"", "figure", gate->values[GS_GATE_FIGURE].data,
                    gate->values[GS_GATE_ROW].data);
    if (gate->values[GS_GATE_OVER].size > 0)
        gs_output_print(out, " over \"%.300s\"", gate->values[GS_GATE_OVER].data);
    gs_output_print(out, "\n%-11s %g\n", "predicted", gate->predicted);
    gs_output_print(out, "%-11s strong %s, continue %s, close-out %s\n", "thresholds",
                    gate->values[GS_GATE_STRONG].data, gate->values[GS_GATE_CONTINUE].data,
                    gate->values[GS_GATE_CLOSE_OUT].data);
    gs_output_print(out, "%-11s", "runs");
    for (int64_t i = 0; i < gate->n_runs; i++)
        gs_output_print(out, " %.4g", campaign->figures[i]);
    gs_output_print(out, "\n%-11s %.4g (%.4g to %.4g), %+.1f %% from the prediction\n", "measured",
                    spread->median, spread->least, spread->most,
                    100.0 * (spread->median / gate->predicted - 1.0));
    gs_output_print(out, "%-11s %s\n", "outcome", gs_gate_outcome_name(gs_gate_judge(gate, spread->median)));
}

static gs_status show_json(const struct campaign *campaign, const struct gs_bench_spread *spread,
                           struct gs_output *out, struct gs_error *error)
{
    const struct gs_gate *gate = &campaign->gate;
    const char *slash = strrchr(campaign->path, '/');
    json_t *file = json_object(), *figures = json_array();
    for (size_t i = 0; i < GS_GATE_KEY_COUNT; i++)
        if (gate->values[i].size > 0)
            json_object_set_new(file, gs_gate_key_name((enum gs_gate_key)i),
                                json_string(gate->values[i].data));
    for (int64_t i = 0; i < gate->n_runs; i++)
        json_array_append_new(figures, json_real(campaign->figures[i]));
    json_t *root = json_pack(
        "{s:s, s:s, s:o, s:f, s:o, s:f, s:f, s:f, s:s, s:O}", "kind", "campaign", "file",
        slash ? slash + 1 : campaign->path, "campaign", file, "predicted", gate->predicted, "figures",
        figures, "median", spread->median, "min", spread->least, "max", spread->most, "outcome",
        gs_gate_outcome_name(gs_gate_judge(gate, spread->median)), "runs", campaign->runs);
    return gs_json_print(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9), out, error);
}

gs_status gs_bench_gate(const char *path, const char *model, bool json, struct gs_output *out,
                        struct gs_error *error)
{
    struct campaign campaign = {.path = path, .model = model, .runs = json_array()};
    gs_status status = gs_gate_read(path, &campaign.gate, error);
    for (int64_t i = 0; status == GS_OK && i < campaign.gate.n_runs; i++) {
        status = run_once(&campaign, (size_t)i, error);
        if (status == GS_OK && gs_is_terminal(STDERR_FILENO))
            fprintf(stderr, "run %lld of %lld: %.4g\n", (long long)i + 1, (long long)campaign.gate.n_runs,
                    campaign.figures[i]);
    }
    if (status == GS_OK) {
        struct gs_bench_spread spread = gs_bench_spread(campaign.figures, (size_t)campaign.gate.n_runs);
        if (json)
            status = show_json(&campaign, &spread, out, error);
        else
            show(&campaign, &spread, out);
    }
    json_decref(campaign.runs);
    gs_gate_free(&campaign.gate);
    return status;
}
