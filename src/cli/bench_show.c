/* The report of gossamer bench as a table for people, or the same in Markdown. */
#include "cli/bench_report.h"
#include "cli/report.h"

#include <stdio.h>
#include <string.h>

#define N_COLUMNS 9

/* ---------------------------------------------------------------- tables */

#define BUSY  0.9 /* below this share of the processors a person should know */
#define DRIFT 0.1 /* and of a bandwidth that changed by more than this meanwhile */

struct cells {
    char text[N_COLUMNS][100];
};

static const char *const model_heads[] = {"test",     "threads", "tokens/s",     "min",    "max",
                                          "MB/token", "GB/s",    "of bandwidth", "of peak"};
static const char *const kernel_heads[] = {"kernel", "threads", "GB/s",         "min",    "max",
                                           "MB",     "us",      "of bandwidth", "of peak"};

static void print_number(char *text, double value)
{
    snprintf(text, 100, value >= 100 ? "%.0f" : value >= 10 ? "%.1f" : "%.2f", value);
}

static void print_share(char *text, double share)
{
    if (share < 0.0)
        snprintf(text, 100, "-");
    else
        snprintf(text, 100, "%.1f %%", 100.0 * share);
}

static struct cells format_row(const struct gs_bench_row *row)
{
    struct cells cells;
    uint64_t n_bytes = gs_bench_row_bytes(row);
    struct gs_bench_spread bytes = gs_bench_rate(row, (double)n_bytes);
    bool is_model = row->n_tokens > 0;
    struct gs_bench_spread shown = is_model ? gs_bench_rate(row, (double)row->n_tokens) : bytes;
    double unit = is_model ? 1.0 : 1e9;
    snprintf(cells.text[0], sizeof cells.text[0], "%s", row->name);
    snprintf(cells.text[1], sizeof cells.text[1], "%zu", row->n_threads);
    print_number(cells.text[2], shown.median / unit);
    print_number(cells.text[3], shown.least / unit);
    print_number(cells.text[4], shown.most / unit);
    print_number(cells.text[5], (double)n_bytes / 1e6 / (is_model ? (double)row->n_tokens : 1.0));
    if (is_model)
        print_number(cells.text[6], bytes.median / 1e9);
    else
        print_number(cells.text[6], (double)n_bytes / bytes.median * 1e6);
    print_share(cells.text[7], gs_bench_share(bytes.median, row->bandwidth));
    print_share(cells.text[8], gs_bench_share(gs_bench_rate(row, (double)row->products).median, row->peak));
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
        gs_output_print(out, "|---|---:|---:|---:|---:|---:|---:|---:|---:|\n");
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
        double share = gs_bench_cpu_share(&report->rows[i]);
        least = share >= 0.0 && share < least ? share : least;
    }
    if (least < BUSY)
        gs_output_print(
            out,
            "\nThe threads of one row ran for only %.0f %% of its time: other work was going on, or "
            "they waited for each other.\n",
            100.0 * least);
}

static void show_drift(const struct gs_bench_report *report, struct gs_output *out)
{
    for (size_t i = 0; i < report->n_limits; i++) {
        const struct gs_bench_limits *l = &report->limits[i];
        if (gs_bench_drift(l) > DRIFT)
            gs_output_print(
                out,
                "\nWith %zu thread%s the memory was read at %.1f GB/s before the rows and at %.1f "
                "after them: their shares of the bandwidth are not to be trusted.\n",
                l->n_threads, l->n_threads == 1 ? "" : "s", l->bytes_per_second.median / 1e9,
                l->after.median / 1e9);
    }
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
    snprintf(text, sizeof text, "gossamer %s, %s, backend %s%s%s%s, %s, %s weights", gs_version(),
             machine->build, report->backend, report->isa[0] ? " (" : "", report->isa,
             report->isa[0] ? ")" : "", report->precision, report->weights);
    show_line(out, markdown, "build", text);
    for (size_t i = 0; i < report->n_limits; i++) {
        const struct gs_bench_limits *l = &report->limits[i];
        const char *plural = l->n_threads == 1 ? "" : "s";
        snprintf(text, sizeof text, "%.1f GB/s read (%.1f to %.1f) with %zu thread%s over %s",
                 l->bytes_per_second.median / 1e9, l->bytes_per_second.least / 1e9,
                 l->bytes_per_second.most / 1e9, l->n_threads, plural, gs_size_text(l->buffer_bytes).text);
        show_line(out, markdown, "bandwidth", text);
        snprintf(text, sizeof text,
                 "%.1f G multiplications a second in float32, %.1f in 8 bits, with %zu thread%s",
                 l->products_per_second[GS_MEASURE_F32].median / 1e9,
                 l->products_per_second[GS_MEASURE_INT8].median / 1e9, l->n_threads, plural);
        show_line(out, markdown, "peak", text);
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

/* A line a row: milliseconds a token and the stages' shares. */
static void show_profile(const struct gs_bench_report *report, bool markdown, struct gs_output *out)
{
    bool has_head = false;
    for (size_t i = 0; i < report->n_rows; i++) {
        const struct gs_bench_row *row = &report->rows[i];
        double total = 0.0;
        if (!row->has_profile)
            continue;
        for (int s = 0; s < GS_BENCH_STAGE_COUNT; s++)
            total += row->stage_seconds[s];
        if (!has_head) {
            gs_output_print(
                out, markdown ? "\n| %% of the time | threads | ms/token " : "\n%-20s threads  ms/token",
                "% of the time");
            for (int s = 0; s < GS_BENCH_STAGE_COUNT; s++)
                gs_output_print(out, markdown ? "| %s " : "  %9s", gs_bench_stage_name(s));
            gs_output_print(out, markdown ? "|\n|---|---:|---:" : "\n");
            for (int s = 0; markdown && s < GS_BENCH_STAGE_COUNT; s++)
                gs_output_print(out, s + 1 < GS_BENCH_STAGE_COUNT ? "|---:" : "|---:|\n");
            has_head = true;
        }
        gs_output_print(out, markdown ? "| %s | %zu | %.3f " : "%-20s %7zu  %8.3f", row->name, row->n_threads,
                        total / (double)row->n_runs / (double)row->n_tokens * 1e3);
        for (int s = 0; s < GS_BENCH_STAGE_COUNT; s++)
            gs_output_print(out, markdown ? "| %.1f " : "  %9.1f", 100.0 * row->stage_seconds[s] / total);
        gs_output_print(out, markdown ? "|\n" : "\n");
    }
}

/* A line a row: what was handed to the device for each token. Nothing where no queue drives it. */
static void show_launches(const struct gs_bench_report *report, bool markdown, struct gs_output *out)
{
    bool has_head = false;
    for (size_t i = 0; i < report->n_rows; i++) {
        const struct gs_bench_row *row = &report->rows[i];
        double n = (double)row->n_tokens;
        if (row->dispatches == 0 || row->n_tokens == 0)
            continue;
        if (!has_head)
            gs_output_print(out,
                            markdown ? "\n| a token | command buffers | encoders | dispatches |\n"
                                       "|---|---:|---:|---:|\n"
                                     : "\n%-20s command buffers  encoders  dispatches\n",
                            "a token");
        has_head = true;
        gs_output_print(out, markdown ? "| %s | %.2f | %.2f | %.1f |\n" : "%-20s %15.2f  %8.2f  %10.1f\n",
                        row->name, (double)row->command_buffers / n, (double)row->encoders / n,
                        (double)row->dispatches / n);
    }
}

/* What a depth costs, each round by itself: a machine whose speed changes changes both rows. */
static void show_turns(const struct gs_bench_report *report, bool markdown, struct gs_output *out)
{
    bool has_head = false;
    for (size_t i = 0; i < report->n_rows; i++) {
        const struct gs_bench_row *row = &report->rows[i];
        if (!row->is_in_turn || row->first == i)
            continue;
        struct gs_bench_spread part = gs_bench_of_first(report, row);
        const char *first = report->rows[row->first].name;
        if (!has_head)
            gs_output_print(out,
                            markdown ? "\n| in turn | of the speed of | median | min | max |\n"
                                       "|---|---|---:|---:|---:|\n"
                                     : "\n%-20s  %-20s  median    min    max\n",
                            "in turn", "of the speed of");
        has_head = true;
        gs_output_print(
            out, markdown ? "| %s | %s | %.3f | %.3f | %.3f |\n" : "%-20s  %-20s  %6.3f  %5.3f  %5.3f\n",
            row->name, first, part.median, part.least, part.most);
    }
}

void gs_bench_show(const struct gs_bench_report *report, const struct gs_bench_machine *machine,
                   bool markdown, struct gs_output *out)
{
    char text[256];
    show_subject(report, markdown, out);
    show_machine(report, machine, markdown, out);
    for (size_t i = 0; report->has_info && i < report->n_limits; i++) {
        const struct gs_bench_limits *l = &report->limits[i];
        int size = snprintf(text, sizeof text, "%.2f s with %zu thread%s", l->load_seconds, l->n_threads,
                            l->n_threads == 1 ? "" : "s");
        if (l->first_token_seconds > 0.0)
            snprintf(text + size, sizeof text - (size_t)size,
                     "; %.2f s to the first token, pages in the cache", l->first_token_seconds);
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
    show_profile(report, markdown, out);
    show_launches(report, markdown, out);
    show_turns(report, markdown, out);
    show_busy(report, out);
    show_drift(report, out);
}
