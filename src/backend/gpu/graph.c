/*
 * A decode step as a captured graph. Tokens, positions and timelines are read from device memory, so that a
 * graph serves every step of the same number of rows; positions are bounded by a power of two, since the
 * number of blocks that share the keys is part of a graph.
 */
#include "backend/gpu/device.h"
#include "backend/gpu/simple.h"
#include "base/status.h"

#define MIN_CONTEXT 1024 /* positions of the smallest graph */

/* The end of a chain's step: its token, and the row of the next one. */
static gs_status queue_choice(struct gs_device *device, const struct gs_gpu_call *call,
                              enum gs_gpu_chained chained, struct gs_error *error)
{
    const struct gs_gpu_args args = {.dims = device->dims, .s = device->scratch, .n_rows = 1};
    struct gs_gpu_launch next = {.kernel = "gs_simple_next", .grid = {1, 1, 1}, .block = 1};
    struct gs_gpu_launch weigh = {
        .kernel = "gs_simple_weigh_next", .grid = {GS_SIMPLE_PARTS, 1, 1}, .block = GS_SIMPLE_THREADS};
    struct gs_gpu_launch pick = {
        .kernel = "gs_simple_pick_next", .grid = {1, 1, 1}, .block = GS_SIMPLE_THREADS};
    if (chained == GS_GPU_GREEDY)
        return gs_gpu_launch(device, &next, &args, call->overlap, error);
    gs_status status = gs_gpu_launch(device, &weigh, &args, call->overlap, error);
    return status == GS_OK ? gs_gpu_launch(device, &pick, &args, call->overlap, error) : status;
}

static gs_status capture(struct gs_device *device, const struct gs_gpu_call *call,
                         enum gs_gpu_chained chained, struct gs_gpu_graph **out, struct gs_error *error)
{
    const struct gs_gpu_api *api = device->api;
    gs_status status = api->capture_begin(device->gpu, device->stream, error);
    if (status != GS_OK)
        return status;
    status = gs_gpu_queue_model(device, call, NULL, error);
    if (status == GS_OK && chained != GS_GPU_NOT_CHAINED)
        status = queue_choice(device, call, chained, error);
    /* Ended in any case: the stream is of no use while it records. */
    gs_status ended = api->capture_end(device->gpu, device->stream, out, status == GS_OK ? error : NULL);
    if (status == GS_OK)
        return ended;
    api->graph_free(device->gpu, *out);
    *out = NULL;
    return status;
}

gs_status gs_gpu_launch_graph(struct gs_device *device, const struct gs_gpu_step_graph *graph,
                              struct gs_error *error)
{
    device->stats.n_command_buffers++;
    device->stats.n_dispatches += graph->n_launches;
    return device->api->graph_launch(device->gpu, device->stream, graph->graph, error);
}

int64_t gs_gpu_graph_context(int64_t n_ctx)
{
    int64_t context = MIN_CONTEXT;
    while (context < n_ctx)
        context *= 2;
    return context;
}

gs_status gs_gpu_step_graph(struct gs_device *device, const struct gs_gpu_call *call,
                            enum gs_gpu_chained chained, const struct gs_gpu_step_graph **out,
                            struct gs_error *error)
{
    int64_t n_ctx = gs_gpu_graph_context(call->n_ctx);
    for (size_t i = 0; i < device->n_graphs; i++) {
        const struct gs_gpu_step_graph *known = &device->graphs[i];
        if (known->n_rows == call->n_rows && known->n_ctx == n_ctx && known->chained == (int32_t)chained) {
            *out = known;
            return GS_OK;
        }
    }
    if (device->n_graphs == GS_GPU_MAX_GRAPHS)
        gs_gpu_free_graphs(device);
    struct gs_gpu_call captured = *call;
    captured.n_ctx = n_ctx;
    captured.overlap = device->machine.capability >= 90;
    captured.family = gs_gpu_choose_family(device, call->n_rows, n_ctx);
    struct gs_gpu_graph *graph = NULL;
    uint64_t n_before = device->stats.n_dispatches;
    gs_status status = capture(device, &captured, chained, &graph, error);
    uint64_t n_launches = device->stats.n_dispatches - n_before;
    device->stats.n_dispatches = n_before; /* recorded, not run */
    if (status != GS_OK)
        return status;
    struct gs_gpu_step_graph *made = &device->graphs[device->n_graphs++];
    *made = (struct gs_gpu_step_graph){call->n_rows, (int32_t)chained, n_ctx, n_launches, graph};
    *out = made;
    return GS_OK;
}

void gs_gpu_free_graphs(struct gs_device *device)
{
    for (size_t i = 0; i < device->n_graphs; i++)
        device->api->graph_free(device->gpu, device->graphs[i].graph);
    device->n_graphs = 0;
}
