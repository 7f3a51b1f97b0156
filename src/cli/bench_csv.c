/* The report of gossamer bench as comma-separated values, for spreadsheets. */
#include "cli/bench_report.h"

#include <string.h>

static void print_spread(struct gs_output *out, struct gs_bench_spread spread, double unit)
{
    gs_output_print(out, ",%.6g,%.6g,%.6g", spread.median / unit, spread.least / unit, spread.most / unit);
}

/* Quoted: the name of a model's folder may hold a comma. */
static void print_text(struct gs_output *out, const char *text)
{
    gs_output_append(out, "\"", 1);
    for (const char *c = text; *c; c++)
        gs_output_append(out, *c == '"' ? "\"\"" : c, *c == '"' ? 2 : 1);
    gs_output_append(out, "\"", 1);
}

void gs_bench_show_csv(const struct gs_bench_report *report, struct gs_output *out)
{
    gs_output_print(
        out, "model,backend,isa,precision,weights,test,threads,depth,tokens,runs,"
             "tokens_per_second,tokens_per_second_min,tokens_per_second_max,"
             "gb_per_second,gb_per_second_min,gb_per_second_max,bytes,kv_bytes,bandwidth_gb_per_second,"
             "bandwidth_share,gmac_per_second,gmac_per_second_min,gmac_per_second_max,peak_share,"
             "command_buffers,encoders,dispatches\n");
    for (size_t i = 0; i < report->n_rows; i++) {
        const struct gs_bench_row *row = &report->rows[i];
        struct gs_bench_spread bytes = gs_bench_rate(row, (double)gs_bench_row_bytes(row));
        struct gs_bench_spread products = gs_bench_rate(row, (double)row->products);
        print_text(out, report->model);
        gs_output_print(out, ",%s,%s,%s,%s,", report->backend, report->isa, report->precision,
                        report->weights);
        print_text(out, row->name);
        gs_output_print(out, ",%zu,%lld,%lld,%zu", row->n_threads, (long long)row->depth,
                        (long long)row->n_tokens, row->n_runs);
        if (row->n_tokens > 0)
            print_spread(out, gs_bench_rate(row, (double)row->n_tokens), 1.0);
        else
            gs_output_print(out, ",,,");
        print_spread(out, bytes, 1e9);
        gs_output_print(out, ",%llu,%llu", (unsigned long long)row->bytes, (unsigned long long)row->kv_bytes);
        if (row->bandwidth > 0.0)
            gs_output_print(out, ",%.6g,%.6g", row->bandwidth / 1e9,
                            gs_bench_share(bytes.median, row->bandwidth));
        else
            gs_output_print(out, ",,");
        print_spread(out, products, 1e9);
        if (row->peak > 0.0)
            gs_output_print(out, ",%.6g", gs_bench_share(products.median, row->peak));
        else
            gs_output_print(out, ",");
        gs_output_print(out, ",%llu,%llu,%llu\n", (unsigned long long)row->command_buffers,
                        (unsigned long long)row->encoders, (unsigned long long)row->dispatches);
    }
}
