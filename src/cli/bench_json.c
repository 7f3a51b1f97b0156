/* The report of gossamer bench as one JSON object. */
#include "base/status.h"
#include "cli/bench_report.h"
#include "cli/json_text.h"

#include <jansson.h>

static json_t *spread_json(struct gs_bench_spread spread, double unit)
{
    return json_pack("{s:f, s:f, s:f}", "median", spread.median / unit, "min", spread.least / unit, "max",
                     spread.most / unit);
}

static json_t *number_or_null(double value)
{
    return value < 0.0 ? json_null() : json_real(value);
}

/* Seconds a run, and the share of its time, of each stage. */
static json_t *profile_json(const struct gs_bench_row *row)
{
    json_t *out = json_object();
    double total = 0.0;
    for (int s = 0; s < GS_BENCH_STAGE_COUNT; s++)
        total += row->stage_seconds[s];
    for (int s = 0; s < GS_BENCH_STAGE_COUNT; s++)
        json_object_set_new(out, gs_bench_stage_name(s),
                            json_pack("{s:f, s:f}", "seconds", row->stage_seconds[s] / (double)row->n_runs,
                                      "share", row->stage_seconds[s] / total));
    return out;
}

static json_t *row_json(const struct gs_bench_report *report, const struct gs_bench_row *row)
{
    struct gs_bench_spread bytes = gs_bench_rate(row, (double)gs_bench_row_bytes(row));
    struct gs_bench_spread products = gs_bench_rate(row, (double)row->products);
    json_t *seconds = json_array();
    for (size_t i = 0; i < row->n_runs; i++)
        json_array_append_new(seconds, json_real(row->seconds[i]));
    json_t *out = json_pack(
        "{s:s, s:i, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "name", row->name, "threads", (int)row->n_threads,
        "bytes", (json_int_t)row->bytes, "kv_bytes", (json_int_t)row->kv_bytes, "seconds", seconds,
        "cpu_share", number_or_null(gs_bench_cpu_share(row)), "gb_per_second", spread_json(bytes, 1e9),
        "bandwidth_gb_per_second", number_or_null(row->bandwidth > 0.0 ? row->bandwidth / 1e9 : -1.0),
        "bandwidth_share", number_or_null(gs_bench_share(bytes.median, row->bandwidth)));
    json_object_set_new(out, "products", json_integer((json_int_t)row->products));
    json_object_set_new(out, "gmac_per_second", spread_json(products, 1e9));
    json_object_set_new(out, "peak_gmac_per_second",
                        number_or_null(row->peak > 0.0 ? row->peak / 1e9 : -1.0));
    json_object_set_new(out, "peak_share", number_or_null(gs_bench_share(products.median, row->peak)));
    if (row->n_tokens > 0) {
        double n = (double)row->n_tokens;
        json_object_set_new(out, "depth", json_integer(row->depth));
        json_object_set_new(out, "streams", json_integer(row->n_streams));
        json_object_set_new(out, "tokens", json_integer(row->n_tokens));
        json_object_set_new(out, "bytes_per_token", json_real((double)row->bytes / n));
        json_object_set_new(out, "kv_bytes_per_token", json_real((double)row->kv_bytes / n));
        json_object_set_new(out, "command_buffers_per_token", json_real((double)row->command_buffers / n));
        json_object_set_new(out, "encoders_per_token", json_real((double)row->encoders / n));
        json_object_set_new(out, "dispatches_per_token", json_real((double)row->dispatches / n));
        json_object_set_new(out, "tokens_per_second", spread_json(gs_bench_rate(row, n), 1.0));
    }
    if (row->is_in_turn)
        json_object_set_new(out, "of_first_depth", spread_json(gs_bench_of_first(report, row), 1.0));
    if (row->has_profile)
        json_object_set_new(out, "profile", profile_json(row));
    return out;
}

static json_t *machine_json(const struct gs_bench_report *report, const struct gs_bench_machine *machine)
{
    json_t *reads = json_array();
    for (size_t i = 0; i < report->n_limits; i++) {
        const struct gs_bench_limits *l = &report->limits[i];
        json_t *read =
            json_pack("{s:i, s:o, s:I, s:o, s:o}", "threads", (int)l->n_threads, "gb_per_second",
                      spread_json(l->bytes_per_second, 1e9), "buffer_bytes", (json_int_t)l->buffer_bytes,
                      "f32_gmac_per_second", spread_json(l->products_per_second[GS_MEASURE_F32], 1e9),
                      "int8_gmac_per_second", spread_json(l->products_per_second[GS_MEASURE_INT8], 1e9));
        if (l->after.median > 0.0)
            json_object_set_new(read, "gb_per_second_after", spread_json(l->after, 1e9));
        if (report->has_info)
            json_object_set_new(read, "load_seconds", json_real(l->load_seconds));
        if (l->first_token_seconds > 0.0)
            json_object_set_new(read, "first_token_seconds", json_real(l->first_token_seconds));
        json_array_append_new(reads, read);
    }
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:[f, f, f], s:o}", "processor", machine->processor, "system",
                     machine->system, "processors", (json_int_t)machine->n_processors, "memory_bytes",
                     (json_int_t)machine->memory_bytes, "cache_bytes", (json_int_t)machine->cache_bytes,
                     "load_average", machine->load[0], machine->load[1], machine->load[2], "limits", reads);
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

/* An argument may be any bytes, JSON is UTF-8. */
static json_t *word_json(const char *word)
{
    json_t *out = json_string(word);
    return out ? out : json_string(gs_quote(word).text);
}

gs_status gs_bench_show_json(const struct gs_bench_report *report, const struct gs_bench_machine *machine,
                             const char *const *command, size_t n_command, struct gs_output *out,
                             struct gs_error *error)
{
    json_t *rows = json_array(), *words = json_array();
    for (size_t i = 0; i < report->n_rows; i++)
        json_array_append_new(rows, row_json(report, &report->rows[i]));
    for (size_t i = 0; i < n_command; i++)
        json_array_append_new(words, word_json(command[i]));
    json_t *root =
        json_pack("{s:s, s:s, s:o, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:{s:I, s:I}, s:o}", "gossamer",
                  gs_version(), "kind", report->kind, "command", words, "when", machine->when, "build",
                  machine->build, "backend", report->backend, "isa", report->isa, "precision",
                  report->precision, "weights", report->weights, "machine", machine_json(report, machine),
                  "model", subject_json(report), "memory", "peak_bytes", (json_int_t)report->peak_bytes,
                  "anonymous_bytes", (json_int_t)report->anonymous_bytes, "rows", rows);
    return gs_json_print(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9), out, error);
}
