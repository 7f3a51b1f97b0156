/* Rows of a kernel on single experts: the model is not loaded, only these experts' bytes are read. */
#include "backend/gpu/measure.h"
#include "backend/hip/device.h"
#include "backend/metal/measure.h"
#include "base/clock.h"
#include "base/status.h"
#include "cli/bench.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "model/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_RUNS 101

struct bench {
    const struct gs_bench_settings *settings;
    struct gs_bench_report *report;
    struct gs_measure *measure;
    const struct gs_mxfp4_matrix *experts; /* [most]: the launch takes the first so many */
    const float **in;                      /* [most] */
    float **out;                           /* [most] */
    uint64_t expert_bytes;
};

static gs_status run_row(struct bench *bench, size_t n_experts, bool cold, enum gs_measure_reader reader,
                         const struct gs_bench_limits *limits, struct gs_error *error)
{
    const struct gs_bench_settings *settings = bench->settings;
    size_t n_runs = (size_t)(settings->n_runs > 0 ? settings->n_runs : DEFAULT_RUNS);
    struct gs_bench_row *row;
    struct gs_progress progress;
    double warm_up;
    gs_status status = gs_bench_row_add(bench->report, n_runs, &row, error);
    if (status != GS_OK)
        return status;
    snprintf(row->name, sizeof row->name, "%s x%zu %s%s", settings->kernel->name, n_experts,
             cold ? "cold" : "warm", reader == GS_MEASURE_SCALAR ? " scalar-load" : "");
    row->n_threads = limits->n_threads;
    row->bandwidth = limits->bytes_per_second.median;
    row->peak = limits->products_per_second[GS_MEASURE_F32].median;
    row->bytes = n_experts * bench->expert_bytes;
    row->products = n_experts * (uint64_t)(bench->experts->rows * bench->experts->columns);
    gs_progress_begin(&progress, row->name, true, (n_runs + 1) * row->bytes);
    status = gs_measure_product(bench->measure, bench->experts, n_experts, bench->in, reader, bench->out,
                                &warm_up, error);
    /* The share of the processors is that of the whole row: one run is shorter than the system's clock tick.
     */
    double start = gs_clock_seconds(), cpu_start = gs_bench_cpu_seconds();
    for (size_t i = 0; status == GS_OK && i < n_runs; i++) {
        gs_progress_update(&progress, (i + 1) * row->bytes, (n_runs + 1) * row->bytes);
        if (cold)
            gs_measure_read(bench->measure);
        status = gs_measure_product(bench->measure, bench->experts, n_experts, bench->in, reader, bench->out,
                                    &row->seconds[i], error);
    }
    row->cpu_seconds = gs_bench_cpu_seconds() - cpu_start;
    row->thread_seconds = (gs_clock_seconds() - start) * (double)row->n_threads;
    gs_progress_end(&progress);
    gs_bench_note_memory(bench->report);
    return status;
}

/* ---------------------------------------------------------------- on the GPU */

static gs_status run_gpu_row(struct bench *bench, struct gs_metal_measure *measure, size_t n_experts,
                             bool cold, bool scalar, struct gs_error *error)
{
    const struct gs_bench_settings *settings = bench->settings;
    size_t n_runs = (size_t)(settings->n_runs > 0 ? settings->n_runs : DEFAULT_RUNS);
    struct gs_bench_row *row;
    double warm_up, bandwidth = 0.0;
    gs_status status = gs_bench_row_add(bench->report, n_runs, &row, error);
    if (status != GS_OK)
        return status;
    snprintf(row->name, sizeof row->name, "%s x%zu %s%s", settings->kernel->name, n_experts,
             cold ? "cold" : "warm", scalar ? " scalar-load" : "");
    row->bytes = n_experts * bench->expert_bytes;
    row->products = n_experts * (uint64_t)(bench->experts->rows * bench->experts->columns);
    row->command_buffers = row->encoders = row->dispatches = 1;
    status = gs_metal_measure_read(measure, &row->bandwidth, error);
    if (status == GS_OK)
        status = gs_metal_measure_product(measure, n_experts, &warm_up, error);
    for (size_t i = 0; status == GS_OK && i < n_runs; i++) {
        if (cold)
            status = gs_metal_measure_read(measure, &bandwidth, error);
        row->bandwidth = bandwidth > row->bandwidth ? bandwidth : row->bandwidth;
        if (status == GS_OK)
            status = gs_metal_measure_product(measure, n_experts, &row->seconds[i], error);
    }
    return status;
}

static gs_status run_gpu(struct bench *bench, bool scalar, struct gs_error *error)
{
    const struct gs_bench_settings *settings = bench->settings;
    struct gs_levers levers = settings->engine.levers;
    struct gs_metal_measure *measure = NULL;
    bool is_gate_up = settings->kernel->weight == offsetof(struct gs_layer_weights, gate_up);
    levers.scalar_load = scalar;
    gs_status status = gs_metal_measure_open(bench->experts, bench->report->n_experts, is_gate_up, bench->in,
                                             &levers, &measure, error);
    for (size_t i = 0; status == GS_OK && i < settings->experts.count; i++)
        for (int cold = 0; status == GS_OK && cold < 2; cold++)
            status =
                run_gpu_row(bench, measure, (size_t)settings->experts.values[i], cold != 0, scalar, error);
    gs_metal_measure_close(measure);
    return status;
}

/* HIP: a run is a graph of many launches, and a row's time a launch's share of it. */
static gs_status run_hip_row(struct bench *bench, struct gs_gpu_measure *measure, size_t n_experts, bool cold,
                             struct gs_error *error)
{
    const struct gs_bench_settings *settings = bench->settings;
    size_t n_runs = (size_t)(settings->n_runs > 0 ? settings->n_runs : DEFAULT_RUNS);
    struct gs_bench_row *row;
    double unused;
    gs_status status = gs_bench_row_add(bench->report, n_runs, &row, error);
    if (status == GS_OK)
        status = gs_gpu_measure_copy(measure, &unused, error); /* makes its memory */
    if (status == GS_OK)
        status = gs_gpu_measure_copy(measure, &row->bandwidth, error);
    if (status == GS_OK)
        status = gs_gpu_measure_choose(measure, n_experts, cold, error);
    if (status == GS_OK)
        status = gs_gpu_measure_product(measure, &unused, error);
    if (status != GS_OK)
        return status;
    snprintf(row->name, sizeof row->name, "%s x%zu %s", settings->kernel->name, n_experts,
             cold ? "cold" : "warm");
    row->bytes = n_experts * bench->expert_bytes;
    row->products = n_experts * (uint64_t)(bench->experts->rows * bench->experts->columns);
    row->command_buffers = row->dispatches = 1;
    for (size_t i = 0; status == GS_OK && i < n_runs; i++)
        status = gs_gpu_measure_product(measure, &row->seconds[i], error);
    return status;
}

static gs_status run_hip(struct bench *bench, struct gs_error *error)
{
    const struct gs_bench_settings *settings = bench->settings;
    struct gs_gpu_measure *measure = NULL;
    bool is_gate_up = settings->kernel->weight == offsetof(struct gs_layer_weights, gate_up);
    gs_status status = gs_gpu_measure_open(&gs_hip_api, settings->engine.device, bench->experts,
                                           bench->report->n_experts, is_gate_up, bench->in, &measure, error);
    for (size_t i = 0; status == GS_OK && i < settings->experts.count; i++)
        for (int cold = 0; status == GS_OK && cold < 2; cold++)
            status = run_hip_row(bench, measure, (size_t)settings->experts.values[i], cold != 0, error);
    gs_gpu_measure_close(measure);
    return status;
}

/* ---------------------------------------------------------------- on the processor */

static gs_status run_threads(struct bench *bench, size_t n_threads, struct gs_error *error)
{
    const struct gs_bench_settings *settings = bench->settings;
    struct gs_bench_limits *limits;
    gs_status status = gs_bench_measure_limits(bench->report, n_threads, &limits, error);
    if (status == GS_OK)
        status = gs_measure_open(n_threads, &bench->measure, error);
    for (size_t i = 0; status == GS_OK && i < settings->experts.count; i++)
        for (int cold = 0; status == GS_OK && cold < 2; cold++) {
            size_t n = (size_t)settings->experts.values[i];
            status = run_row(bench, n, cold != 0, GS_MEASURE_KERNEL, limits, error);
            if (status == GS_OK && settings->scalar_load)
                status = run_row(bench, n, cold != 0, GS_MEASURE_SCALAR, limits, error);
        }
    gs_measure_close(bench->measure);
    bench->measure = NULL;
    return status == GS_OK ? gs_bench_measure_again(limits, error) : status;
}

/* Experts `expert`, `expert` + 1 ... modulo their number, as many as the largest launch takes. */
static gs_status find_experts(const struct gs_bench_settings *settings,
                              const struct gs_checkpoint *checkpoint, struct gs_bench_report *report,
                              struct gs_error *error)
{
    int64_t n_experts, most = 0;
    for (size_t i = 0; i < settings->experts.count; i++)
        most = settings->experts.values[i] > most ? settings->experts.values[i] : most;
    gs_status status =
        gs_measure_expert_count(checkpoint, settings->kernel, settings->layer, &n_experts, error);
    if (status != GS_OK)
        return status;
    if (most > n_experts)
        return gs_fail(error, GS_INVALID_ARGUMENT, "--experts: %lld of them, but layer %lld has %lld",
                       (long long)most, (long long)settings->layer, (long long)n_experts);
    report->experts = calloc((size_t)most, sizeof *report->experts);
    if (!report->experts)
        return gs_fail_memory(error, (uint64_t)most * sizeof *report->experts);
    for (int64_t i = 0; status == GS_OK && i < most; i++) {
        int64_t expert = i == 0 ? settings->expert : (settings->expert + i) % n_experts;
        status = gs_measure_expert_find(checkpoint, settings->kernel, settings->layer, expert,
                                        &report->experts[i], error);
        report->n_experts += status == GS_OK;
        for (size_t k = 0; status == GS_OK && k < report->experts[i].n_slices; k++)
            gs_slice_fetch(&report->experts[i].slices[k]);
    }
    report->layer = settings->layer;
    for (size_t i = 0; status == GS_OK && i < report->experts[0].n_slices; i++) {
        const char *path = report->experts[0].slices[i].file->path, *slash = strrchr(path, '/');
        snprintf(report->shards[i], sizeof report->shards[i], "%s", gs_quote(slash ? slash + 1 : path).text);
    }
    return status;
}

/* Activations of order one, each expert's its own; one allocation for them and the outputs. */
static gs_status make_vectors(struct bench *bench, float **vectors, struct gs_mxfp4_matrix *matrices,
                              struct gs_error *error)
{
    const struct gs_bench_report *report = bench->report;
    size_t n = report->n_experts, columns = (size_t)report->experts[0].matrix.columns;
    size_t rows = (size_t)report->experts[0].matrix.rows;
    uint64_t state = 1;
    *vectors = calloc(n * (columns + rows), sizeof **vectors);
    if (!*vectors)
        return gs_fail_memory(error, n * (columns + rows) * sizeof **vectors);
    for (size_t i = 0; i < n * columns; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        (*vectors)[i] = (float)(int32_t)(state >> 32) / 2147483648.0f;
    }
    for (size_t e = 0; e < n; e++) {
        matrices[e] = report->experts[e].matrix;
        bench->in[e] = *vectors + e * columns;
        bench->out[e] = *vectors + n * columns + e * rows;
    }
    bench->experts = matrices;
    bench->expert_bytes = report->experts[0].bytes;
    return GS_OK;
}

gs_status gs_bench_kernel(const struct gs_bench_settings *settings, struct gs_bench_report *report,
                          struct gs_error *error)
{
    struct bench bench = {.settings = settings, .report = report};
    struct gs_checkpoint *checkpoint = NULL;
    struct gs_mxfp4_matrix *matrices = NULL;
    float *vectors = NULL;
    report->kind = "kernel";
    const char *backend = settings->engine.backend ? settings->engine.backend : "cpu";
    bool is_metal = strcmp(backend, "metal") == 0, is_hip = strcmp(backend, "hip") == 0;
    report->backend = is_metal ? "metal" : is_hip ? "hip" : "cpu";
    report->precision = "exact";
    report->weights = "native";
    gs_status status = gs_checkpoint_open(settings->model, &checkpoint, error);
    if (status == GS_OK)
        status = find_experts(settings, checkpoint, report, error);
    if (status != GS_OK)
        goto cleanup;
    matrices = calloc(report->n_experts, sizeof *matrices);
    bench.in = calloc(report->n_experts, sizeof *bench.in);
    bench.out = calloc(report->n_experts, sizeof *bench.out);
    status = matrices && bench.in && bench.out ? make_vectors(&bench, &vectors, matrices, error)
                                               : gs_fail_memory(error, report->n_experts * sizeof *matrices);
    if (is_metal || is_hip)
        gs_warn_untested(backend);
    if (status == GS_OK && is_hip)
        status = run_hip(&bench, error);
    if (status == GS_OK && is_metal)
        status = run_gpu(&bench, false, error);
    if (status == GS_OK && is_metal && settings->scalar_load)
        status = run_gpu(&bench, true, error);
    for (size_t t = 0; status == GS_OK && !is_metal && !is_hip && t < settings->threads.count; t++)
        status = run_threads(&bench, (size_t)settings->threads.values[t], error);
    if (status == GS_OK)
        status = gs_checkpoint_check(checkpoint, error);
cleanup:
    free(vectors);
    free(bench.out);
    free(bench.in);
    free(matrices);
    /* The report keeps offsets and sizes; bytes and files go with the checkpoint. */
    for (size_t e = 0; e < report->n_experts; e++)
        for (size_t i = 0; i < GS_MEASURE_MAX_SLICES; i++) {
            report->experts[e].slices[i].data = NULL;
            report->experts[e].slices[i].file = NULL;
        }
    gs_checkpoint_close(checkpoint);
    return status;
}
