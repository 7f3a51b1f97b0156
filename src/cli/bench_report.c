#include "cli/bench_report.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_RUNS     11
#define SHORTEST_SHARE 0.5 /* seconds of all threads: a tick is at most a few hundredths of it */

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

const char *gs_bench_stage_name(int stage)
{
    static const char *const names[GS_BENCH_STAGE_COUNT] = {
        [GS_TIME_NORM] = "norm",          [GS_TIME_QKV] = "qkv",          [GS_TIME_ATTENTION] = "attention",
        [GS_TIME_OUTPUT] = "output",      [GS_TIME_ROUTER] = "router",    [GS_TIME_EXPERTS] = "experts",
        [GS_TIME_HEAD] = "head",          [GS_TIME_IDLE] = "idle",        [GS_TIME_OTHER] = "other",
        [GS_BENCH_SAMPLING] = "sampling", [GS_BENCH_OUTSIDE] = "outside",
    };
    return names[stage];
}

struct gs_bench_spread gs_bench_rate(const struct gs_bench_row *row, double work)
{
    struct gs_bench_spread seconds = gs_bench_spread(row->seconds, row->n_runs);
    return (struct gs_bench_spread){work / seconds.median, work / seconds.most, work / seconds.least};
}

struct gs_bench_spread gs_bench_of_first(const struct gs_bench_report *report, const struct gs_bench_row *row)
{
    const struct gs_bench_row *first = &report->rows[row->first];
    double parts[GS_BENCH_MAX_RUNS];
    for (size_t i = 0; i < row->n_runs; i++)
        parts[i] = first->seconds[i] / row->seconds[i];
    return gs_bench_spread(parts, row->n_runs);
}

double gs_bench_share(double figure, double limit)
{
    return limit > 0.0 ? figure / limit : -1.0;
}

uint64_t gs_bench_row_bytes(const struct gs_bench_row *row)
{
    return row->bytes + row->kv_bytes;
}

/* The system books a thread's time at its clock ticks, some milliseconds apart. */
double gs_bench_cpu_share(const struct gs_bench_row *row)
{
    return row->thread_seconds >= SHORTEST_SHARE ? row->cpu_seconds / row->thread_seconds : -1.0;
}

void gs_bench_report_free(struct gs_bench_report *report)
{
    for (size_t i = 0; i < report->n_rows; i++)
        free(report->rows[i].seconds);
    free(report->rows);
    free(report->limits);
    free(report->experts);
    *report = (struct gs_bench_report){0};
}

gs_status gs_bench_row_add(struct gs_bench_report *report, size_t n_runs, struct gs_bench_row **out,
                           struct gs_error *error)
{
    *out = NULL;
    if (report->n_rows == GS_BENCH_MAX_ROWS)
        return gs_fail(error, GS_INVALID_ARGUMENT, "more than %d rows: shorten the lists", GS_BENCH_MAX_ROWS);
    struct gs_bench_row *rows = realloc(report->rows, (report->n_rows + 1) * sizeof *rows);
    if (!rows)
        return gs_fail_memory(error, (report->n_rows + 1) * sizeof *rows);
    report->rows = rows;
    double *seconds = calloc(n_runs, sizeof *seconds);
    if (!seconds)
        return gs_fail_memory(error, n_runs * sizeof *seconds);
    *out = &report->rows[report->n_rows++];
    **out = (struct gs_bench_row){.seconds = seconds, .n_runs = n_runs};
    return GS_OK;
}

static struct gs_bench_spread measure_products(struct gs_measure *measure, enum gs_measure_type type)
{
    double rates[LIMIT_RUNS];
    for (size_t i = 0; i < LIMIT_RUNS; i++)
        rates[i] = gs_measure_arithmetic(measure, type);
    return gs_bench_spread(rates, LIMIT_RUNS);
}

/* After one reading that is not counted. */
static struct gs_bench_spread measure_reading(struct gs_measure *measure)
{
    double rates[LIMIT_RUNS];
    gs_measure_read(measure);
    for (size_t i = 0; i < LIMIT_RUNS; i++)
        rates[i] = gs_measure_read(measure);
    return gs_bench_spread(rates, LIMIT_RUNS);
}

gs_status gs_bench_measure_limits(struct gs_bench_report *report, size_t n_threads,
                                  struct gs_bench_limits **out, struct gs_error *error)
{
    struct gs_measure *measure = NULL;
    *out = NULL;
    struct gs_bench_limits *list = realloc(report->limits, (report->n_limits + 1) * sizeof *list);
    if (!list)
        return gs_fail_memory(error, (report->n_limits + 1) * sizeof *list);
    report->limits = list;
    gs_status status = gs_measure_open(n_threads, &measure, error);
    if (status != GS_OK)
        return status;
    *out = &list[report->n_limits++];
    **out = (struct gs_bench_limits){.n_threads = gs_measure_threads(measure),
                                     .bytes_per_second = measure_reading(measure),
                                     .buffer_bytes = gs_measure_buffer_bytes(measure)};
    for (int type = 0; type < GS_MEASURE_TYPE_COUNT; type++)
        (*out)->products_per_second[type] = measure_products(measure, (enum gs_measure_type)type);
    snprintf(report->isa, sizeof report->isa, "%s", gs_measure_isa(measure));
    gs_measure_close(measure);
    gs_bench_forget_peak(); /* the buffer is not what the model needs */
    return GS_OK;
}

gs_status gs_bench_measure_again(struct gs_bench_limits *limits, struct gs_error *error)
{
    struct gs_measure *measure = NULL;
    gs_status status = gs_measure_open(limits->n_threads, &measure, error);
    if (status == GS_OK)
        limits->after = measure_reading(measure);
    gs_measure_close(measure);
    return status;
}

double gs_bench_drift(const struct gs_bench_limits *limits)
{
    double before = limits->bytes_per_second.median, after = limits->after.median;
    if (!(before > 0.0 && after > 0.0))
        return 0.0;
    return before > after ? before / after - 1.0 : after / before - 1.0;
}
