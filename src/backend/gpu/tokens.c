/* What the host gets of logits on the device: rows of them, tokens, chains of tokens. */
#include "backend/gpu/device.h"
#include "backend/steps.h"
#include "base/clock.h"
#include "base/status.h"

#include <string.h>

const float *gs_gpu_logits(struct gs_device *device, size_t row)
{
    const struct gs_gpu_api *api = device->api;
    size_t n_vocab = (size_t)device->dims.n_vocab;
    if (row >= device->n_logit_rows)
        return NULL;
    if (device->n_logit_rows > GS_GPU_GRAPH_ROWS)
        return device->many_logits + row * n_vocab;
    float *to = device->host_logits + row * n_vocab;
    gs_status status = GS_OK;
    if (device->answers[row] != GS_GPU_LOGITS) {
        status = api->copy_out(device->gpu, device->stream, to, device->scratch.logits + row * n_vocab,
                               n_vocab * sizeof *to, NULL);
        gs_status done = api->sync(device->gpu, device->stream, NULL);
        status = status == GS_OK ? done : status;
    }
    return status == GS_OK ? to : NULL;
}

int32_t gs_gpu_chosen(const struct gs_device *device, size_t row)
{
    if (row >= device->n_logit_rows || device->n_logit_rows > GS_GPU_GRAPH_ROWS)
        return -1;
    if (device->answers[row] == GS_GPU_BEST)
        return gs_gpu_argmax_token(device->host_best[row]);
    return device->answers[row] == GS_GPU_DRAW ? device->host_tokens[row] : -1;
}

/* ---------------------------------------------------------------- chains */

/* What the steps of a chain read: the first row, the draws, the count of tokens and the first argmax. */
static gs_status begin_chain(struct gs_device *device, const struct gs_kv *kv, int32_t token,
                             const struct gs_draw *draws, size_t n, struct gs_error *error)
{
    const struct gs_gpu_api *api = device->api;
    const struct gs_gpu_scratch *s = &device->scratch;
    device->host_rows[0] = (struct gs_gpu_row){
        .kv = kv->on_device, .token = token, .position = (int32_t)kv->length, .logit_row = 0};
    for (size_t i = 0; draws && i < n; i++)
        device->host_draws[i] =
            (struct gs_gpu_draw){.uniform = draws[i].uniform, .temperature = draws[i].temperature};
    gs_status status = api->copy_in(device->gpu, device->stream, s->rows, device->host_rows,
                                    sizeof *device->host_rows, error);
    if (status == GS_OK && draws)
        status = api->copy_in(device->gpu, device->stream, s->draws, device->host_draws,
                              n * sizeof *device->host_draws, error);
    if (status == GS_OK)
        status = api->zero(device->gpu, device->stream, s->tokens, sizeof *s->tokens, error);
    return status == GS_OK ? api->zero(device->gpu, device->stream, s->argmax, sizeof *s->argmax, error)
                           : status;
}

/* A chain whose steps are all of one graph. */
static gs_status run_chain(struct gs_device *device, struct gs_kv *kv, int32_t token,
                           const struct gs_draw *draws, int32_t *out, size_t n, struct gs_error *error)
{
    const struct gs_gpu_api *api = device->api;
    struct gs_gpu_call call = {.n_rows = 1, .n_logit_rows = 1, .n_ctx = kv->length + (int64_t)n};
    const struct gs_gpu_step_graph *graph = NULL;
    gs_status status = gs_gpu_step_graph(device, &call, draws ? GS_GPU_DRAWN : GS_GPU_GREEDY, &graph, error);
    if (status == GS_OK)
        status = begin_chain(device, kv, token, draws, n, error);
    for (size_t i = 0; status == GS_OK && i < n; i++)
        status = gs_gpu_launch_graph(device, graph, error);
    if (status == GS_OK)
        status = api->copy_out(device->gpu, device->stream, device->host_tokens, device->scratch.tokens,
                               (1 + n) * sizeof(int32_t), error);
    gs_status done = api->sync(device->gpu, device->stream, status == GS_OK ? error : NULL);
    status = status == GS_OK ? done : status;
    if (status == GS_OK) {
        memcpy(out, device->host_tokens + 1, n * sizeof *out);
        kv->length += (int64_t)n;
    }
    return status;
}

/*
 * Each step by the graph that a forward of this token would take, so that its logits have the same bits: in
 * two pieces where the positions pass the limit of one. After a token that could not be told the steps go on
 * from token 0: what they choose means nothing.
 */
gs_status gs_gpu_chain(struct gs_device *device, struct gs_kv *kv, int32_t token, const struct gs_draw *draws,
                       int32_t *out, size_t n, struct gs_error *error)
{
    double start = gs_clock_seconds();
    int64_t before = kv->length;
    if (n == 0 || n > GS_GPU_CHAIN_TOKENS || (int64_t)n > kv->capacity - kv->length)
        return gs_fail(error, GS_INVALID_ARGUMENT, "a chain of %zu tokens, must be 1 to %d and fit", n,
                       GS_GPU_CHAIN_TOKENS);
    gs_status status = gs_token_check(token, device->dims.n_vocab, error);
    if (status != GS_OK)
        return status;
    gs_gpu_kv_begin_write(kv, (int64_t)n);
    for (size_t at = 0; status == GS_OK && at < n;) {
        size_t room = (size_t)(gs_gpu_graph_context(kv->length + 1) - kv->length);
        size_t piece = n - at < room ? n - at : room;
        int32_t first = at == 0 ? token : out[at - 1];
        status =
            run_chain(device, kv, first >= 0 ? first : 0, draws ? draws + at : NULL, out + at, piece, error);
        at += piece;
    }
    if (status != GS_OK) {
        kv->length = before;
        return status;
    }
    device->n_logit_rows = 1;
    device->answers[0] = GS_GPU_CHAIN;
    device->stats.n_tokens += n;
    device->stats.n_forward += n;
    device->stats.weight_bytes += n * gs_gpu_bytes_read(device, 1, 1);
    device->stats.seconds += gs_clock_seconds() - start;
    return GS_OK;
}
