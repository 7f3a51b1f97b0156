/* A GPU device from open to close; the stages are forward.c's. */
#include "backend/gpu/backend.h"

#include "backend/gpu/batch_launch.h"
#include "backend/gpu/controls.h"
#include "backend/gpu/device.h"
#include "backend/gpu/prefill_launch.h"
#include "backend/gpu/simple.h"
#include "base/clock.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROWS 4096 /* of one forward */

void gs_gpu_close(struct gs_device *device)
{
    if (!device)
        return;
    if (device->gpu) {
        device->api->sync(device->gpu, device->stream, NULL);
        gs_gpu_free_graphs(device);
        for (size_t i = 0; i < device->n_blocks; i++)
            device->api->release(device->gpu, device->blocks[i]);
        device->api->host_release(device->gpu, device->host_rows);
        device->api->host_release(device->gpu, device->host_logits);
        device->api->host_release(device->gpu, device->host_tokens);
        device->api->host_release(device->gpu, device->host_best);
        device->api->host_release(device->gpu, device->host_draws);
        device->api->stream_close(device->gpu, device->stream);
        device->api->close(device->gpu);
    }
    gs_arena_free(&device->spoilt);
    free(device->blocks);
    free(device->layers);
    free(device->wide_layers);
    free(device->many_logits);
    free(device->tapped);
    free(device->tapped_before);
    free(device->tapped_pair);
    free(device);
}

gs_status gs_gpu_open(const struct gs_gpu_api *api, const struct gs_device_options *options,
                      struct gs_device **out, struct gs_error *error)
{
    *out = NULL;
    gs_status status = gs_gpu_control_check(api->name, options, error);
    if (status != GS_OK)
        return status;
    struct gs_device *device = calloc(1, sizeof *device);
    if (!device)
        return gs_fail_memory(error, sizeof *device);
    device->api = api;
    device->control = options->control;
    device->precision = options->precision;
    device->format = options->weights;
    status = api->open(options->index, &device->gpu, &device->machine, error);
    if (status == GS_OK)
        status = api->stream_open(device->gpu, &device->stream, error);
    if (status != GS_OK) {
        gs_gpu_close(device);
        return status;
    }
    *out = device;
    return GS_OK;
}

static struct gs_gpu_dims make_dims(const struct gs_config *c)
{
    return (struct gs_gpu_dims){.n_layer = (int32_t)c->n_layer,
                                .d_model = (int32_t)c->d_model,
                                .d_head = (int32_t)c->d_head,
                                .n_head = (int32_t)c->n_head,
                                .n_kv_head = (int32_t)c->n_kv_head,
                                .n_expert = (int32_t)c->n_expert,
                                .n_active = (int32_t)c->n_active,
                                .d_ff = (int32_t)c->d_ff,
                                .n_vocab = (int32_t)c->n_vocab,
                                .window = (int32_t)c->window,
                                .max_ctx = (int32_t)c->max_ctx,
                                .max_rows = MAX_ROWS,
                                .rms_norm_eps = c->rms_norm_eps,
                                .swiglu_limit = c->swiglu_limit,
                                .swiglu_alpha = c->swiglu_alpha,
                                .attention_scale = 1.0f / sqrtf((float)c->d_head)};
}

/* ---------------------------------------------------------------- scratch */

struct part {
    void **at;
    uint64_t bytes;
};

/* The scratch's parts and their sizes; returns their number. */
static size_t list_scratch(struct gs_device *device, struct part *parts)
{
    const struct gs_gpu_dims *d = &device->dims;
    struct gs_gpu_scratch *s = &device->scratch;
    uint64_t rows = (uint64_t)d->max_rows, model = (uint64_t)d->d_model, n_active = (uint64_t)d->n_active;
    uint64_t heads = (uint64_t)(d->n_head * d->d_head), f = sizeof(float);
    uint64_t qkv = (uint64_t)((d->n_head + 2 * d->n_kv_head) * d->d_head);
    size_t n = 0;
#define PART(field, size) parts[n++] = (struct part){(void **)&s->field, (size)}
    PART(rows, rows * sizeof *s->rows);
    PART(hidden, rows * model * f);
    PART(normed, rows * model * f);
    PART(qkv, rows * qkv * f);
    PART(attended, rows * heads * f);
    PART(projected, rows * model * f);
    PART(router, rows * (uint64_t)d->n_expert * f);
    PART(choice, rows * n_active * sizeof *s->choice);
    PART(choice_weight, rows * n_active * f);
    PART(route_first, ((uint64_t)d->n_expert + 1) * sizeof *s->route_first);
    PART(routes, rows * n_active * sizeof *s->routes);
    PART(activated, rows * n_active * (uint64_t)d->d_ff * f);
    PART(expert_out, rows * n_active * model * f);
    PART(logits, GS_GPU_LOGIT_ROWS * (uint64_t)d->n_vocab * f);
    PART(argmax, rows * sizeof *s->argmax);
    PART(tokens, (1 + GS_GPU_CHAIN_TOKENS) * sizeof *s->tokens);
    PART(draws, GS_GPU_CHAIN_TOKENS * sizeof *s->draws);
    PART(draw_sums, (uint64_t)GS_GPU_LOGIT_ROWS * GS_SIMPLE_PARTS * sizeof *s->draw_sums);
    PART(picked, GS_GPU_LOGIT_ROWS * sizeof *s->picked);
    PART(decode, (uint64_t)gs_decode_scratch_bytes(d, &device->machine));
    /* Batch and prefill never share a call: one area serves both. */
    uint64_t batch = (uint64_t)gs_batch_scratch_bytes(d, &device->machine);
    uint64_t prefill = (uint64_t)gs_prefill_scratch_bytes(d, &device->machine);
    PART(prefill, batch > prefill ? batch : prefill);
#undef PART
    return n;
}

static gs_status allocate_pinned(struct gs_device *device, struct gs_error *error)
{
    union {
        void *memory;
        struct gs_gpu_row *rows;
        float *logits;
        int32_t *tokens;
        uint64_t *best;
        struct gs_gpu_draw *draws;
    } parts[5] = {{0}};
    const uint64_t bytes[] = {MAX_ROWS * sizeof *device->host_rows,
                              GS_GPU_GRAPH_ROWS * (uint64_t)device->dims.n_vocab * sizeof(float),
                              (1 + GS_GPU_CHAIN_TOKENS) * sizeof *device->host_tokens,
                              GS_GPU_GRAPH_ROWS * sizeof *device->host_best,
                              GS_GPU_CHAIN_TOKENS * sizeof *device->host_draws};
    gs_status status = GS_OK;
    for (size_t i = 0; status == GS_OK && i < sizeof bytes / sizeof *bytes; i++)
        status = device->api->host_alloc(device->gpu, bytes[i], &parts[i].memory, error);
    device->host_rows = parts[0].rows;
    device->host_logits = parts[1].logits;
    device->host_tokens = parts[2].tokens;
    device->host_best = parts[3].best;
    device->host_draws = parts[4].draws;
    return status;
}

static gs_status allocate_scratch(struct gs_device *device, struct gs_error *error)
{
    const struct gs_gpu_api *api = device->api;
    struct part parts[32];
    size_t n = list_scratch(device, parts);
    gs_status status = GS_OK;
    for (size_t i = 0; status == GS_OK && i < n; i++) {
        status = gs_gpu_take(device, parts[i].bytes, "scratch", parts[i].at, error);
        device->scratch_bytes += parts[i].bytes;
        if (status == GS_OK)
            status = api->zero(device->gpu, device->stream, *parts[i].at, parts[i].bytes, error);
    }
    if (status == GS_OK)
        status = allocate_pinned(device, error);
    return status == GS_OK ? api->sync(device->gpu, device->stream, error) : status;
}

gs_status gs_gpu_load(struct gs_device *device, const struct gs_weights *weights, gs_progress_fn *progress,
                      void *progress_user, struct gs_error *error)
{
    const struct gs_config *c = &weights->config;
    if (device->weights)
        return gs_fail(error, GS_INVALID_ARGUMENT, "this device has its weights already");
    if (c->n_active > GS_GPU_MAX_ACTIVE)
        return gs_fail(error, GS_UNSUPPORTED, "%s: %lld active experts, must be at most %d",
                       device->api->name, (long long)c->n_active, GS_GPU_MAX_ACTIVE);
    gs_status status =
        gs_gpu_control_spoil(device->control, weights, &device->spoilt, &device->weights, error);
    if (status != GS_OK)
        return status;
    device->given = weights;
    c = &device->weights->config;
    device->dims = make_dims(c);
    gs_yarn_init(c, &device->yarn);
    device->layers = calloc((size_t)c->n_layer, sizeof *device->layers);
    device->wide_layers = calloc((size_t)c->n_layer, sizeof *device->wide_layers);
    if (!device->layers || !device->wide_layers)
        return gs_fail_memory(error, 2 * (uint64_t)c->n_layer * sizeof *device->layers);
    status = allocate_scratch(device, error);
    return status == GS_OK ? gs_gpu_load_weights(device, progress, progress_user, error) : status;
}

/* ---------------------------------------------------------------- what the engine asks */

size_t gs_gpu_max_tokens(const struct gs_device *device)
{
    (void)device;
    return MAX_ROWS;
}

/* Taken since load: memory_available counts it as free again, so that a plan finds room for it. */
uint64_t gs_gpu_scratch_bytes(const struct gs_device *device)
{
    return device->scratch_bytes;
}

uint64_t gs_gpu_memory_available(const struct gs_device *device)
{
    uint64_t free_bytes = 0, total_bytes = 0;
    if (device->api->memory(device->gpu, &free_bytes, &total_bytes, NULL) != GS_OK)
        return 0;
    return free_bytes + device->scratch_bytes;
}

void gs_gpu_tap(struct gs_device *device, gs_tap_fn *fn, void *user)
{
    const struct gs_gpu_dims *d = &device->dims;
    size_t widest = (size_t)(d->d_model > d->n_expert ? d->d_model : d->n_expert);
    if (fn && !device->tapped)
        device->tapped = malloc(MAX_ROWS * widest * sizeof *device->tapped);
    if (fn && !device->tapped_before)
        device->tapped_before = malloc(MAX_ROWS * (size_t)d->d_model * sizeof *device->tapped_before);
    if (fn && !device->tapped_pair)
        device->tapped_pair =
            malloc(2 * GS_GPU_GRAPH_ROWS * (size_t)d->d_model * sizeof *device->tapped_pair);
    /* Without memory for them nothing is tapped: the verifier then finds rows missing, and says so. */
    device->tap = device->tapped && device->tapped_before && device->tapped_pair ? fn : NULL;
    device->tap_user = user;
}

static const struct gs_gpu_experts *find_experts(const struct gs_device *device,
                                                 const struct gs_mxfp4_matrix *matrix)
{
    for (int64_t i = 0; i < device->dims.n_layer; i++) {
        if (matrix->blocks == device->given->layers[i].gate_up.blocks)
            return &device->layers[i].gate_up;
        if (matrix->blocks == device->given->layers[i].down.blocks)
            return &device->layers[i].down;
    }
    return NULL;
}

void gs_gpu_dequantize(struct gs_device *device, const struct gs_mxfp4_matrix *matrix, int64_t expert,
                       int64_t first, int64_t n_rows, float *out)
{
    const struct gs_gpu_api *api = device->api;
    const struct gs_gpu_experts *experts = find_experts(device, matrix);
    uint64_t n = (uint64_t)(n_rows * matrix->columns), room = 0;
    gs_status status = experts ? GS_OK : GS_INVALID_ARGUMENT;
    /* By way of a buffer that no forward is using now, in parts that fit. */
    room = (uint64_t)device->dims.max_rows * (uint64_t)device->dims.d_model;
    int64_t most = (int64_t)(room / (uint64_t)matrix->columns);
    for (int64_t at = 0; status == GS_OK && at < n_rows; at += most) {
        int64_t part = n_rows - at < most ? n_rows - at : most;
        uint64_t count = (uint64_t)(part * matrix->columns);
        struct gs_dequantize args = {.experts = *experts,
                                     .out = device->scratch.normed,
                                     .first = expert * matrix->rows + first + at,
                                     .n_rows = part};
        status = gs_gpu_run(device, "gs_dequantize", &args, count / 8, GS_SIMPLE_THREADS, NULL);
        if (status == GS_OK)
            status = api->copy_out(device->gpu, device->stream, out + at * matrix->columns, args.out,
                                   count * sizeof *out, NULL);
        if (status == GS_OK)
            status = api->sync(device->gpu, device->stream, NULL);
    }
    for (uint64_t i = 0; status != GS_OK && i < n; i++)
        out[i] = NAN; /* no error to return: nothing compares equal to this */
}

void gs_gpu_rotary(const struct gs_device *device, struct gs_yarn *out)
{
    *out = device->yarn;
}

void gs_gpu_stats(const struct gs_device *device, struct gs_backend_stats *stats)
{
    *stats = device->stats;
}
