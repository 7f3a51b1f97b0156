/* A forward: rows to the device, the model (stages.c, or as a graph), what was wanted of them back. */
#include "backend/gpu/device.h"
#include "backend/gpu/simple.h"
#include "backend/steps.h"
#include "base/clock.h"
#include "base/status.h"

#include <stdatomic.h>

/* ---------------------------------------------------------------- rows in */

/* What the next logit row, of this step, is to be answered with. */
static void note_answer(struct gs_device *device, const struct gs_step *step, struct gs_gpu_call *call)
{
    const struct gs_draw *draw = step->want == GS_WANT_TOKEN ? step->draw : NULL;
    int32_t row = call->n_logit_rows;
    if (row >= GS_GPU_GRAPH_ROWS)
        return;
    device->answers[row] = draw ? GS_GPU_DRAW : step->want == GS_WANT_TOKEN ? GS_GPU_BEST : GS_GPU_LOGITS;
    device->host_draws[row] =
        draw ? (struct gs_gpu_draw){.uniform = draw->uniform, .temperature = draw->temperature}
             : (struct gs_gpu_draw){0};
    call->n_drawn += draw != NULL;
    call->n_chosen += step->want == GS_WANT_TOKEN;
}

/*
 * Taps and more rows than a graph's get all their logits. Where some rows are drawn, the same kernel tells
 * the largest logits of the others.
 */
static void settle_answers(struct gs_device *device, struct gs_gpu_call *call)
{
    bool all = device->tap || call->n_logit_rows > GS_GPU_GRAPH_ROWS;
    for (int32_t i = 0; i < call->n_logit_rows && i < GS_GPU_GRAPH_ROWS; i++) {
        if (all)
            device->answers[i] = GS_GPU_LOGITS;
        else if (call->n_drawn > 0 && device->answers[i] == GS_GPU_BEST)
            device->answers[i] = GS_GPU_DRAW;
    }
    if (all)
        call->n_chosen = call->n_drawn = 0;
}

/* Lays the steps out as rows in pinned memory, and fills the call. */
static gs_status lay_out(struct gs_device *device, const struct gs_step *steps, size_t n_steps,
                         struct gs_gpu_call *call, struct gs_error *error)
{
    int64_t n_ctx = 0;
    call->n_rows = 0;
    call->n_logit_rows = 0;
    for (size_t i = 0; i < n_steps; i++) {
        const struct gs_step *step = &steps[i];
        const struct gs_step_room room = {device->dims.max_rows, call->n_rows, device->dims.n_vocab,
                                          step->kv->length, step->kv->capacity};
        gs_status status = gs_step_check(steps, i, &room, error);
        if (status != GS_OK)
            return status;
        int32_t first = call->n_rows;
        for (size_t t = 0; t < step->n_tokens; t++) {
            bool wants = gs_step_wants(step, t);
            if (wants)
                note_answer(device, step, call);
            device->host_rows[call->n_rows++] =
                (struct gs_gpu_row){.kv = step->kv->on_device,
                                    .token = step->tokens[t],
                                    .position = (int32_t)(step->kv->length + (int64_t)t),
                                    .logit_row = wants ? call->n_logit_rows++ : -1,
                                    .first = first};
        }
        int64_t end = step->kv->length + (int64_t)step->n_tokens;
        n_ctx = end > n_ctx ? end : n_ctx;
    }
    call->n_ctx = n_ctx;
    settle_answers(device, call);
    return GS_OK;
}

/* ---------------------------------------------------------------- logits and tokens out */

/* Logits of more rows than a graph has: part by part, those beyond the first GS_GPU_LOGIT_ROWS computed here.
 */
static gs_status fetch_many(struct gs_device *device, const struct gs_gpu_call *call, struct gs_error *error)
{
    const struct gs_gpu_api *api = device->api;
    int64_t n_vocab = device->dims.n_vocab;
    gs_status status = GS_OK;
    for (int32_t at = 0; status == GS_OK && at < call->n_logit_rows; at += GS_GPU_LOGIT_ROWS) {
        int32_t n = call->n_logit_rows - at;
        n = n < GS_GPU_LOGIT_ROWS ? n : GS_GPU_LOGIT_ROWS;
        if (at > 0)
            status = gs_gpu_queue_logits(device, call, at, n, error);
        if (status == GS_OK)
            status = api->copy_out(device->gpu, device->stream, device->many_logits + at * n_vocab,
                                   device->scratch.logits, (uint64_t)(n * n_vocab) * sizeof(float), error);
        if (status == GS_OK)
            status = api->sync(device->gpu, device->stream, error);
    }
    return status;
}

/* Queues the logits that were asked for, neighbouring rows in one copy. */
static gs_status queue_logits(struct gs_device *device, const struct gs_gpu_call *call,
                              struct gs_error *error)
{
    int64_t n_vocab = device->dims.n_vocab;
    gs_status status = GS_OK;
    for (int32_t first = 0, end; status == GS_OK && first < call->n_logit_rows; first = end) {
        end = first;
        while (end < call->n_logit_rows && device->answers[end] == GS_GPU_LOGITS)
            end++;
        if (end > first)
            status = device->api->copy_out(device->gpu, device->stream, device->host_logits + first * n_vocab,
                                           device->scratch.logits + first * n_vocab,
                                           (uint64_t)((end - first) * n_vocab) * sizeof(float), error);
        else
            end++;
    }
    return status;
}

/* Queues the choice of tokens, and their way to the host. */
static gs_status queue_tokens(struct gs_device *device, const struct gs_gpu_call *call,
                              struct gs_error *error)
{
    const struct gs_gpu_api *api = device->api;
    const struct gs_gpu_args args = {.dims = device->dims, .s = device->scratch};
    uint64_t rows = (uint64_t)call->n_logit_rows;
    struct gs_gpu_launch weigh = {.kernel = "gs_simple_weigh",
                                  .grid = {GS_SIMPLE_PARTS, (uint32_t)rows, 1},
                                  .block = GS_SIMPLE_THREADS};
    struct gs_gpu_launch pick = {
        .kernel = "gs_simple_pick", .grid = {(uint32_t)rows, 1, 1}, .block = GS_SIMPLE_THREADS};
    if (call->n_drawn == 0)
        return api->copy_out(device->gpu, device->stream, device->host_best, args.s.argmax,
                             rows * sizeof *args.s.argmax, error);
    gs_status status = gs_gpu_launch(device, &weigh, &args, call->overlap, error);
    if (status == GS_OK)
        status = gs_gpu_launch(device, &pick, &args, call->overlap, error);
    return status == GS_OK ? api->copy_out(device->gpu, device->stream, device->host_tokens, args.s.picked,
                                           rows * sizeof *args.s.picked, error)
                           : status;
}

/* What was wanted of the logit rows, on its way to the host: there after a sync. */
static gs_status queue_answers(struct gs_device *device, const struct gs_gpu_call *call,
                               struct gs_error *error)
{
    bool many = call->n_logit_rows > GS_GPU_GRAPH_ROWS;
    gs_status status = many ? fetch_many(device, call, error) : queue_logits(device, call, error);
    if (status == GS_OK && call->n_chosen > 0)
        status = queue_tokens(device, call, error);
    if (status != GS_OK || !device->tap || call->n_logit_rows == 0)
        return status;
    status = device->api->sync(device->gpu, device->stream, error);
    if (status == GS_OK)
        device->tap(device->tap_user, GS_STAGE_LOGITS, 0, many ? device->many_logits : device->host_logits,
                    call->n_logit_rows, device->dims.n_vocab);
    return status;
}

/* A step of one token for each of a few timelines, without taps, is a captured graph. */
static bool is_decode(const struct gs_device *device, const struct gs_gpu_call *call, size_t n_steps)
{
    return !device->tap && n_steps <= GS_GPU_GRAPH_ROWS && (size_t)call->n_rows == n_steps &&
           call->n_logit_rows == call->n_rows;
}

static gs_status run_model(struct gs_device *device, struct gs_gpu_call *call, size_t n_steps,
                           const _Atomic bool *cancelled, struct gs_error *error)
{
    const struct gs_gpu_api *api = device->api;
    const struct gs_gpu_step_graph *graph = NULL;
    gs_status status = api->copy_in(device->gpu, device->stream, device->scratch.rows, device->host_rows,
                                    (uint64_t)call->n_rows * sizeof *device->host_rows, error);
    if (status == GS_OK && call->n_chosen > 0) /* kernels of batches only ever raise it */
        status = api->zero(device->gpu, device->stream, device->scratch.argmax,
                           (uint64_t)call->n_logit_rows * sizeof *device->scratch.argmax, error);
    if (status == GS_OK && call->n_drawn > 0)
        status = api->copy_in(device->gpu, device->stream, device->scratch.draws, device->host_draws,
                              (uint64_t)call->n_logit_rows * sizeof *device->host_draws, error);
    if (status != GS_OK)
        return status;
    if (!is_decode(device, call, n_steps)) {
        call->family = gs_gpu_choose_family(device, call->n_rows, call->n_ctx);
        call->overlap = device->machine.capability >= 90 && !device->tap;
        return gs_gpu_queue_model(device, call, cancelled, error);
    }
    if (cancelled && atomic_load_explicit(cancelled, memory_order_relaxed))
        return gs_fail(error, GS_CANCELLED, "cancelled");
    status = gs_gpu_step_graph(device, call, GS_GPU_NOT_CHAINED, &graph, error);
    return status == GS_OK ? gs_gpu_launch_graph(device, graph, error) : status;
}

/* Bytes of weights that a forward reads. */
uint64_t gs_gpu_bytes_read(const struct gs_device *device, int32_t n_rows, int32_t n_logit_rows)
{
    const struct gs_gpu_dims *d = &device->dims;
    const struct gs_gpu_layer *w = &device->layers[0];
    double experts = gs_experts_expected(d->n_expert, d->n_active, n_rows);
    double expert =
        ((double)w->gate_up.rows * w->gate_up.columns + (double)w->down.rows * w->down.columns) * (4.25 / 8);
    const struct gs_gpu_matrix *dense[] = {&w->qkv, &w->o, &w->router, &device->head};
    static const double type_bytes[] = {4.0, 2.0, 2.0, 34.0 / 32};
    double bytes = experts * expert * d->n_layer;
    for (size_t i = 0; i < sizeof dense / sizeof *dense; i++)
        bytes += (double)dense[i]->rows * dense[i]->columns * type_bytes[dense[i]->type] *
                 (i < 3 ? (double)d->n_layer : n_logit_rows > 0);
    return (uint64_t)bytes;
}

gs_status gs_gpu_forward(struct gs_device *device, const struct gs_step *steps, size_t n_steps,
                         const _Atomic bool *cancelled, struct gs_error *error)
{
    double start = gs_clock_seconds();
    const struct gs_gpu_api *api = device->api;
    struct gs_gpu_call call = {0};
    gs_status status = lay_out(device, steps, n_steps, &call, error);
    if (status == GS_OK && call.n_logit_rows > GS_GPU_GRAPH_ROWS)
        status = gs_logits_reserve(&device->many_logits, &device->many_capacity, (size_t)call.n_logit_rows,
                                   device->dims.n_vocab, error);
    if (status != GS_OK || n_steps == 0)
        return status;
    for (size_t i = 0; i < n_steps; i++)
        gs_gpu_kv_begin_write(steps[i].kv, (int64_t)steps[i].n_tokens);
    status = run_model(device, &call, n_steps, cancelled, error);
    if (status == GS_OK)
        status = queue_answers(device, &call, error);
    /* Whatever happened, nothing is under way when this returns: the caller may free what rows point to. */
    gs_status done = api->sync(device->gpu, device->stream, status == GS_OK ? error : NULL);
    status = status == GS_OK ? done : status;
    if (status != GS_OK)
        return status;
    device->n_logit_rows = (size_t)call.n_logit_rows;
    for (size_t i = 0; i < n_steps; i++)
        steps[i].kv->length += (int64_t)steps[i].n_tokens;
    device->stats.n_tokens += (uint64_t)call.n_rows;
    device->stats.n_forward++;
    device->stats.weight_bytes += gs_gpu_bytes_read(device, call.n_rows, call.n_logit_rows);
    device->stats.seconds += gs_clock_seconds() - start;
    return GS_OK;
}
