/* The report of gossamer bench: a table for people, the same in Markdown, or JSON. */
#include "base/status.h"
#include "cli/bench.h"
#include "cli/report.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_COLUMNS 8

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct gs_bench_spread gs_bench_spread(const double *values, size_t count)
{
    double sorted[GS_BENCH_MAX_RUNS];
    if (count == 0 || count > GS_BENCH_MAX_RUNS)
        return (struct gs_bench_spread){0};
    memcpy(sorted, values, count * sizeof *values);
    qsort(sorted, count, sizeof *sorted, compare_doubles);
    double median = count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
    return (struct gs_bench_spread){median, sorted[0], sorted[count - 1]};
}

/* Work over time of each run: `work` units of a run. */
static struct gs_bench_spread rate(const struct gs_bench_row *row, double work)
{
    struct gs_bench_spread seconds = gs_bench_spread(row->seconds, row->n_runs);
    return (struct gs_bench_spread){work / seconds.median, work / seconds.most, work / seconds.least};
}

#define SHORTEST_SHARE 0.5 /* seconds of all threads: a tick is at most a few hundredths of it */

/*
 * Of the processors' time that the row's threads asked for, the part that they got; negative for a row that
 * was too short to tell: the system books a thread's time at its clock ticks, some milliseconds apart.
 */
static double cpu_share(const struct gs_bench_row *row)
{
    return row->thread_seconds >= SHORTEST_SHARE ? row->cpu_seconds / row->thread_seconds : -1.0;
}

/* ---------------------------------------------------------------- tables */

#define BUSY 0.9 /* below this share of the processors a person should know */

struct cells {
    char text[N_COLUMNS][100];
};

static const char *const model_heads[] = {"test", "threads",  "tokens/s", "min",
                                          "max",  "MB/token", "GB/s",     "of bandwidth"};
static const char *const kernel_heads[] = {"kernel", "threads", "GB/s", "min",
                                           "max",    "MB",      "us",   "of bandwidth"};

static void print_number(char *text, double value)
{
    snprintf(text, 100, value >= 100 ? "%.0f" : value >= 10 ? "%.1f" : "%.2f", value);
}

static struct cells format_row(const struct gs_bench_row *row)
{
    struct cells cells;
    struct gs_bench_spread bytes = rate(row, (double)row->bytes);
    bool is_model = row->n_tokens > 0;
    struct gs_bench_spread shown = is_model ? rate(row, (double)row->n_tokens) : bytes;
    double unit = is_model ? 1.0 : 1e9;
    snprintf(cells.text[0], sizeof cells.text[0], "%s", row->name);
    snprintf(cells.text[1], sizeof cells.text[1], "%zu", row->n_threads);
    print_number(cells.text[2], shown.median / unit);
    print_number(cells.text[3], shown.least / unit);
    print_number(cells.text[4], shown.most / unit);
    print_number(cells.text[5], (double)row->bytes / 1e6 / (is_model ? (double)row->n_tokens : 1.0));
    if (is_model)
        print_number(cells.text[6], bytes.median / 1e9);
    else
        print_number(cells.text[6], (double)row->bytes / bytes.median * 1e6);
    snprintf(cells.text[7], sizeof cells.text[7], "%.1f %%", 100.0 * bytes.median / row->bandwidth);
    return cells;
}

static void print_line(const char *const *cells, const int *widths, bool markdown, struct gs_output *out)
{
    for (int c = 0; c < N_COLUMNS; c++) {
        if (markdown)
            gs_output_print(out, "| %s %s", cells[c], c + 1 == N_COLUMNS ? "|\n" : "");
        else if (c == 0)
            gs_output_print(out, "%-*s", widths[c], cells[c]);
        else
            gs_output_print(out, "  %*s%s", widths[c], cells[c], c + 1 == N_COLUMNS ? "\n" : "");
    }
}

static void show_rows(const struct gs_bench_report *report, bool markdown, struct gs_output *out)
{
    const char *const *heads = report->has_info ? model_heads : kernel_heads;
    int widths[N_COLUMNS];
    const char *line[N_COLUMNS];
    for (int c = 0; c < N_COLUMNS; c++)
        widths[c] = (int)strlen(heads[c]);
    for (size_t i = 0; i < report->n_rows; i++) {
        struct cells cells = format_row(&report->rows[i]);
        for (int c = 0; c < N_COLUMNS; c++) {
            int size = (int)strlen(cells.text[c]);
            widths[c] = size > widths[c] ? size : widths[c];
        }
    }
    print_line(heads, widths, markdown, out);
    if (markdown)
        gs_output_print(out, "|---|---:|---:|---:|---:|---:|---:|---:|\n");
    for (size_t i = 0; i < report->n_rows; i++) {
        struct cells cells = format_row(&report->rows[i]);
        for (int c = 0; c < N_COLUMNS; c++)
            line[c] = cells.text[c];
        print_line(line, widths, markdown, out);
    }
}

static void show_busy(const struct gs_bench_report *report, struct gs_output *out)
{
    double least = 1.0;
    for (size_t i = 0; i < report->n_rows; i++) {
        double share = cpu_share(&report->rows[i]);
        least = share >= 0.0 && share < least ? share : least;
    }
    if (least < BUSY)
        gs_output_print(
            out,
            "\nThe threads of one row ran for only %.0f %% of its time: other work was going on, or "
            "they waited for each other.\n",
            100.0 * least);
}

static void show_line(struct gs_output *out, bool markdown, const char *key, const char *value)
{
    gs_output_print(out, markdown ? "- %s: %s\n" : "%-10s %s\n", key, value);
}

static void show_machine(const struct gs_bench_report *report, const struct gs_bench_machine *machine,
                         bool markdown, struct gs_output *out)
{
    char text[512];
    snprintf(text, sizeof text, "%s, %lld processors, %s, %s, load %.2f %.2f %.2f", machine->processor,
             (long long)machine->n_processors, gs_size_text(machine->memory_bytes).text, machine->system,
             machine->load[0], machine->load[1], machine->load[2]);
    show_line(out, markdown, "machine", text);
    snprintf(text, sizeof text, "gossamer %s, %s, backend %s (%s), exact", gs_version(), machine->build,
             report->backend, report->isa);
    show_line(out, markdown, "build", text);
    for (size_t i = 0; i < report->n_machine; i++) {
        const struct gs_bench_bandwidth *b = &report->machine[i];
        snprintf(text, sizeof text, "%.1f GB/s read (%.1f to %.1f) with %zu thread%s over %s",
                 b->bytes_per_second.median / 1e9, b->bytes_per_second.least / 1e9,
                 b->bytes_per_second.most / 1e9, b->n_threads, b->n_threads == 1 ? "" : "s",
                 gs_size_text(b->buffer_bytes).text);
        show_line(out, markdown, "bandwidth", text);
    }
}

static void show_subject(const struct gs_bench_report *report, bool markdown, struct gs_output *out)
{
    char text[512];
    if (report->has_info) {
        snprintf(text, sizeof text, "%s: %lld layers, %s parameters, %s active", report->model,
                 (long long)report->info.n_layer, gs_count_text(report->info.n_param).text,
                 gs_count_text(report->info.n_param_active).text);
        show_line(out, markdown, "model", text);
        return;
    }
    const struct gs_measure_expert *first = &report->experts[0];
    snprintf(text, sizeof text, "%s: layer %lld, expert %lld%s, %lld x %lld, %s each", report->model,
             (long long)report->layer, (long long)first->expert,
             report->n_experts > 1 ? " and following" : "", (long long)first->matrix.rows,
             (long long)first->matrix.columns, gs_size_text(first->bytes).text);
    show_line(out, markdown, "model", text);
    for (size_t i = 0; i < first->n_slices; i++) {
        snprintf(text, sizeof text, "%s, bytes %llu ... %llu", report->shards[i],
                 (unsigned long long)first->slices[i].offset,
                 (unsigned long long)(first->slices[i].offset + first->slices[i].bytes - 1));
        show_line(out, markdown, "slice", text);
    }
}

void gs_bench_show(const struct gs_bench_report *report, const struct gs_bench_machine *machine,
                   bool markdown, struct gs_output *out)
{
    char text[256];
    show_subject(report, markdown, out);
    show_machine(report, machine, markdown, out);
    for (size_t i = 0; report->has_info && i < report->n_machine; i++) {
        snprintf(text, sizeof text, "%.2f s with %zu thread%s", report->machine[i].load_seconds,
                 report->machine[i].n_threads, report->machine[i].n_threads == 1 ? "" : "s");
        show_line(out, markdown, "load", text);
    }
    if (report->peak_bytes > 0) {
        snprintf(text, sizeof text, "%s at most, mapped weights included",
                 gs_size_text(report->peak_bytes).text);
        if (report->anonymous_bytes > 0)
            snprintf(text + strlen(text), sizeof text - strlen(text), "; %s without them",
                     gs_size_text(report->anonymous_bytes).text);
        show_line(out, markdown, "memory", text);
    }
    gs_output_print(out, "\n");
    show_rows(report, markdown, out);
    show_busy(report, out);
}

/* ---------------------------------------------------------------- JSON */

static json_t *spread_json(struct gs_bench_spread spread, double unit)
{
    return json_pack("{s:f, s:f, s:f}", "median", spread.median / unit, "min", spread.least / unit, "max",
                     spread.most / unit);
}

static json_t *row_json(const struct gs_bench_row *row)
{
    struct gs_bench_spread bytes = rate(row, (double)row->bytes);
    json_t *seconds = json_array();
    for (size_t i = 0; i < row->n_runs; i++)
        json_array_append_new(seconds, json_real(row->seconds[i]));
    json_t *out = json_pack("{s:s, s:i, s:I, s:o, s:o, s:o, s:f, s:f}", "name", row->name, "threads",
                            (int)row->n_threads, "bytes", (json_int_t)row->bytes, "seconds", seconds,
                            "cpu_share", cpu_share(row) < 0.0 ? json_null() : json_real(cpu_share(row)),
                            "gb_per_second", spread_json(bytes, 1e9), "bandwidth_gb_per_second",
                            row->bandwidth / 1e9, "bandwidth_share", bytes.median / row->bandwidth);
    json_object_set_new(out, "products", json_integer((json_int_t)row->products));
    json_object_set_new(out, "gmac_per_second", spread_json(rate(row, (double)row->products), 1e9));
    if (row->n_tokens > 0) {
        double n = (double)row->n_tokens;
        json_object_set_new(out, "depth", json_integer(row->depth));
        json_object_set_new(out, "tokens", json_integer(row->n_tokens));
        json_object_set_new(out, "bytes_per_token", json_real((double)row->bytes / n));
        json_object_set_new(out, "tokens_per_second", spread_json(rate(row, n), 1.0));
    }
    return out;
}

static json_t *machine_json(const struct gs_bench_report *report, const struct gs_bench_machine *machine)
{
    json_t *reads = json_array();
    for (size_t i = 0; i < report->n_machine; i++) {
        const struct gs_bench_bandwidth *b = &report->machine[i];
        json_t *read =
            json_pack("{s:i, s:o, s:I}", "threads", (int)b->n_threads, "gb_per_second",
                      spread_json(b->bytes_per_second, 1e9), "buffer_bytes", (json_int_t)b->buffer_bytes);
        if (report->has_info)
            json_object_set_new(read, "load_seconds", json_real(b->load_seconds));
        json_array_append_new(reads, read);
    }
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:[f, f, f], s:o}", "processor", machine->processor, "system",
                     machine->system, "processors", (json_int_t)machine->n_processors, "memory_bytes",
                     (json_int_t)machine->memory_bytes, "cache_bytes", (json_int_t)machine->cache_bytes,
                     "load_average", machine->load[0], machine->load[1], machine->load[2], "read_bandwidth",
                     reads);
}

static json_t *subject_json(const struct gs_bench_report *report)
{
    if (report->has_info)
        return json_pack("{s:s, s:I, s:I, s:I}", "name", report->model, "layers",
                         (json_int_t)report->info.n_layer, "parameters", (json_int_t)report->info.n_param,
                         "active_parameters", (json_int_t)report->info.n_param_active);
    json_t *experts = json_array();
    for (size_t e = 0; e < report->n_experts; e++) {
        const struct gs_measure_expert *expert = &report->experts[e];
        json_t *slices = json_array();
        for (size_t i = 0; i < expert->n_slices; i++)
            json_array_append_new(slices, json_pack("{s:s, s:I, s:I}", "file", report->shards[i], "offset",
                                                    (json_int_t)expert->slices[i].offset, "bytes",
                                                    (json_int_t)expert->slices[i].bytes));
        json_array_append_new(experts, json_pack("{s:I, s:I, s:I, s:o}", "expert", (json_int_t)expert->expert,
                                                 "rows", (json_int_t)expert->matrix.rows, "columns",
                                                 (json_int_t)expert->matrix.columns, "slices", slices));
    }
    return json_pack("{s:s, s:I, s:o}", "name", report->model, "layer", (json_int_t)report->layer, "experts",
                     experts);
}

gs_status gs_bench_show_json(const struct gs_bench_report *report, const struct gs_bench_machine *machine,
                             const char *const *command, size_t n_command, struct gs_output *out,
                             struct gs_error *error)
{
    json_t *rows = json_array(), *words = json_array();
    for (size_t i = 0; i < report->n_rows; i++)
        json_array_append_new(rows, row_json(&report->rows[i]));
    for (size_t i = 0; i < n_command; i++)
        json_array_append_new(words, json_string(command[i]));
    json_t *root = json_pack("{s:s, s:s, s:o, s:s, s:s, s:s, s:s, s:o, s:o, s:{s:I, s:I}, s:o}", "gossamer",
                             gs_version(), "kind", report->kind, "command", words, "when", machine->when,
                             "build", machine->build, "backend", report->backend, "isa", report->isa,
                             "machine", machine_json(report, machine), "model", subject_json(report),
                             "memory", "peak_bytes", (json_int_t)report->peak_bytes, "anonymous_bytes",
                             (json_int_t)report->anonymous_bytes, "rows", rows);
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(root);
    if (!text)
        return gs_fail_memory(error, 0);
    gs_output_append(out, text, strlen(text));
    gs_output_append(out, "\n", 1);
    free(text);
    return GS_OK;
}
