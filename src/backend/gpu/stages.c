/*
 * The model queued, for rows that are on the device: the stages of every layer in order, each by the kernels
 * of the call's family, and what the verifier taps between them.
 */
#include "backend/gpu/batch_launch.h"
#include "backend/gpu/device.h"
#include "backend/gpu/prefill_launch.h"
#include "backend/gpu/simple.h"
#include "base/status.h"

#include <stdatomic.h>
#include <string.h>

#define SYNC_ROWS 128 /* a call of more rows looks at the cancel flag after every layer */

/* A forward being queued. */
struct run {
    struct gs_device *device;
    const struct gs_gpu_call *call;
    struct gs_gpu_args args; /* of the layer under way */
    struct gs_error *error;
};

static uint32_t groups(int64_t n, int64_t size)
{
    return (uint32_t)((n + size - 1) / size);
}

static gs_status launch(struct run *run, const char *kernel, uint32_t x, uint32_t y, uint32_t z,
                        uint32_t block, uint32_t shared, const void *args)
{
    struct gs_gpu_launch launch = {
        .kernel = kernel, .grid = {x, y, z}, .block = block, .shared_bytes = shared};
    return gs_gpu_launch(run->device, &launch, args, run->call->overlap, run->error);
}

/* ---------------------------------------------------------------- simple stages */

static gs_status norm(struct run *run, const float *weight, const struct gs_gpu_row *rows)
{
    const struct gs_gpu_args *a = &run->args;
    struct gs_simple_norm args = {.weight = weight,
                                  .in = a->s.hidden,
                                  .out = a->s.normed,
                                  .rows = rows,
                                  .d = a->dims.d_model,
                                  .eps = a->dims.rms_norm_eps};
    return launch(run, "gs_simple_norm", (uint32_t)a->n_rows, 1, 1, GS_SIMPLE_THREADS, 0, &args);
}

static gs_status linear(struct run *run, const struct gs_gpu_matrix *matrix, const float *bias,
                        const float *in, int32_t n_in, float *out)
{
    struct gs_simple_linear args = {.matrix = *matrix, .bias = bias, .in = in, .out = out, .n_in = n_in};
    /* A warp is 32 lanes at least: with 64 half of the blocks find nothing to do. */
    uint32_t x = groups(matrix->rows, GS_SIMPLE_ROWS * (GS_SIMPLE_THREADS / 64));
    if (n_in == 1)
        return launch(run, "gs_simple_linear_1", x, 1, 1, GS_SIMPLE_THREADS, 0, &args);
    return launch(run, "gs_simple_linear_8", x, groups(n_in, GS_SIMPLE_VECTORS), 1, GS_SIMPLE_THREADS, 0,
                  &args);
}

static gs_status add_projected(struct run *run)
{
    const struct gs_gpu_args *a = &run->args;
    struct gs_simple_add args = {
        .to = a->s.hidden, .from = a->s.projected, .n = (int64_t)a->n_rows * a->dims.d_model};
    return launch(run, "gs_simple_add", groups(args.n, GS_SIMPLE_THREADS), 1, 1, GS_SIMPLE_THREADS, 0, &args);
}

static gs_status simple_moe_in(struct run *run)
{
    const struct gs_gpu_args *a = &run->args;
    uint32_t rows = (uint32_t)a->n_rows;
    uint32_t x = groups(2 * (int64_t)a->dims.d_ff, GS_SIMPLE_ROWS * (GS_SIMPLE_THREADS / 64));
    uint32_t z = groups((int64_t)rows * a->dims.n_active, GS_SIMPLE_VECTORS * (int64_t)a->dims.n_expert);
    gs_status status = norm(run, a->w.mlp_norm, NULL);
    if (status == GS_OK)
        status = linear(run, &a->w.router, a->w.router_bias, a->s.normed, a->n_rows, a->s.router);
    if (status == GS_OK)
        status = launch(run, "gs_simple_choose", rows, 1, 1, GS_SIMPLE_CHOOSE, 0, a);
    if (status == GS_OK)
        status = launch(run, "gs_simple_sort", 1, 1, 1, GS_SIMPLE_SORT, 0, a);
    if (status == GS_OK)
        status = launch(run, rows == 1 ? "gs_simple_moe_in_1" : "gs_simple_moe_in_8", x,
                        (uint32_t)a->dims.n_expert, z, GS_SIMPLE_THREADS, 0, a);
    return status;
}

static gs_status simple_moe_out(struct run *run)
{
    const struct gs_gpu_args *a = &run->args;
    uint32_t rows = (uint32_t)a->n_rows;
    uint32_t x = groups(a->dims.d_model, GS_SIMPLE_ROWS * (GS_SIMPLE_THREADS / 64));
    uint32_t z = groups((int64_t)rows * a->dims.n_active, GS_SIMPLE_VECTORS * (int64_t)a->dims.n_expert);
    gs_status status = launch(run, rows == 1 ? "gs_simple_moe_out_1" : "gs_simple_moe_out_8", x,
                              (uint32_t)a->dims.n_expert, z, GS_SIMPLE_THREADS, 0, a);
    if (status == GS_OK)
        status = launch(run, "gs_simple_combine", rows, 1, 1, GS_SIMPLE_THREADS, 0, a);
    return status == GS_OK ? add_projected(run) : status;
}

static gs_status simple_head(struct run *run)
{
    const struct gs_gpu_args *a = &run->args;
    gs_status status = linear(run, &a->outer, NULL, a->s.normed, a->n_logit_rows, a->s.logits);
    if (status == GS_OK)
        status = launch(run, "gs_simple_argmax", 32, (uint32_t)a->n_logit_rows, 1, GS_SIMPLE_THREADS, 0, a);
    return status;
}

static gs_status simple_stage(struct run *run, enum gs_gpu_stage stage)
{
    const struct gs_gpu_args *a = &run->args;
    uint32_t rows = (uint32_t)a->n_rows;
    gs_status status = GS_OK;
    switch (stage) {
    case GS_GPU_EMBED:
        return launch(run, "gs_simple_embed", rows, 1, 1, GS_SIMPLE_THREADS, 0, a);
    case GS_GPU_ATTENTION_IN:
        status = norm(run, a->w.attention_norm, NULL);
        if (status == GS_OK)
            status = linear(run, &a->w.qkv, a->w.qkv_bias, a->s.normed, a->n_rows, a->s.qkv);
        if (status == GS_OK)
            status = launch(run, "gs_simple_rotate", rows, 1, 1, GS_SIMPLE_THREADS, 0, a);
        return status;
    case GS_GPU_ATTENTION:
        return launch(run, "gs_simple_attention", (uint32_t)a->dims.n_head, rows, 1, GS_SIMPLE_ATTENTION,
                      (uint32_t)(2 * a->dims.d_head + GS_SIMPLE_ATTENTION) * 4, a);
    case GS_GPU_ATTENTION_OUT:
        status = linear(run, &a->w.o, a->w.o_bias, a->s.attended, a->n_rows, a->s.projected);
        return status == GS_OK ? add_projected(run) : status;
    case GS_GPU_MOE_IN:
        return simple_moe_in(run);
    case GS_GPU_MOE_OUT:
        return simple_moe_out(run);
    case GS_GPU_HEAD:
        return simple_head(run);
    case GS_GPU_STAGE_COUNT:
        break;
    }
    return status;
}

/* ---------------------------------------------------------------- families */

static void make_plan(const struct gs_device *device, enum gs_gpu_family family,
                      const struct gs_gpu_args *args, enum gs_gpu_stage stage, int64_t n_ctx,
                      struct gs_gpu_plan *plan)
{
    plan->count = 0;
    if (family == GS_GPU_DECODE)
        gs_decode_plan(args, &device->machine, stage, n_ctx, plan);
    if (family == GS_GPU_BATCH)
        gs_batch_plan(args, &device->machine, stage, n_ctx, plan);
    if (family == GS_GPU_PREFILL)
        gs_prefill_plan(args, &device->machine, stage, n_ctx, plan);
}

static void set_layer(const struct gs_device *device, enum gs_gpu_family family, struct gs_gpu_args *args,
                      int64_t layer)
{
    args->w = family == GS_GPU_PREFILL ? device->wide_layers[layer] : device->layers[layer];
    args->layer = (int32_t)layer;
    args->is_window = device->weights->config.layer_is_window[layer];
    args->norm = layer + 1 < device->dims.n_layer ? device->layers[layer + 1].attention_norm : device->norm;
}

/* Does a family take every layer of such a call? One that takes the first stage takes all. */
static bool takes(struct gs_device *device, enum gs_gpu_family family, int32_t n_rows, int64_t n_ctx)
{
    struct gs_gpu_args args = {.dims = device->dims, .s = device->scratch, .n_rows = n_rows};
    struct gs_gpu_plan plan;
    for (int64_t layer = 0; layer < device->dims.n_layer; layer++) {
        set_layer(device, family, &args, layer);
        make_plan(device, family, &args, GS_GPU_ATTENTION_IN, n_ctx, &plan);
        if (plan.count == 0)
            return false;
    }
    return true;
}

/* Are all matrices there in the decode kernels' order? */
static bool is_relaid(const struct gs_device *device)
{
    bool relaid = device->head.relaid != NULL;
    for (int64_t i = 0; i < device->dims.n_layer; i++) {
        const struct gs_gpu_layer *w = &device->layers[i];
        relaid = relaid && w->qkv.relaid && w->o.relaid && w->gate_up.relaid && w->down.relaid;
    }
    return relaid;
}

enum gs_gpu_family gs_gpu_choose_family(struct gs_device *device, int32_t n_rows, int64_t n_ctx)
{
    if (device->precision != GS_PRECISION_FAST)
        return GS_GPU_SIMPLE;
    if (n_rows <= GS_GPU_GRAPH_ROWS && is_relaid(device)) {
        if (takes(device, GS_GPU_DECODE, n_rows, n_ctx))
            return GS_GPU_DECODE;
        if (takes(device, GS_GPU_BATCH, n_rows, n_ctx))
            return GS_GPU_BATCH;
    }
    return takes(device, GS_GPU_PREFILL, n_rows, n_ctx) ? GS_GPU_PREFILL : GS_GPU_SIMPLE;
}

/* One stage by the call's family, or by the simple kernels where it leaves it to them. */
static gs_status run_stage(struct run *run, enum gs_gpu_stage stage)
{
    struct gs_device *device = run->device;
    struct gs_gpu_plan plan;
    make_plan(device, run->call->family, &run->args, stage, run->call->n_ctx, &plan);
    if (plan.count == 0)
        return simple_stage(run, stage);
    gs_status status = GS_OK;
    for (int32_t i = 0; status == GS_OK && i < plan.count; i++)
        status = gs_gpu_launch(device, &plan.launches[i], &run->args, run->call->overlap, run->error);
    return status;
}

/* ---------------------------------------------------------------- taps */

static gs_status fetch(struct run *run, void *to, const void *from, uint64_t bytes)
{
    struct gs_device *device = run->device;
    gs_status status = device->api->copy_out(device->gpu, device->stream, to, from, bytes, run->error);
    return status == GS_OK ? device->api->sync(device->gpu, device->stream, run->error) : status;
}

static gs_status tap(struct run *run, enum gs_stage stage, const float *values, int64_t columns)
{
    struct gs_device *device = run->device;
    int64_t rows = run->args.n_rows;
    if (!device->tap)
        return GS_OK;
    gs_status status = fetch(run, device->tapped, values, (uint64_t)(rows * columns) * sizeof(float));
    if (status == GS_OK)
        device->tap(device->tap_user, stage, run->args.layer, device->tapped, rows, columns);
    return status;
}

/* Whole numbers become floats in place: the buffer of a row is as large in both. */
static gs_status tap_choice(struct run *run)
{
    struct gs_device *device = run->device;
    int64_t n_active = device->dims.n_active, n = run->args.n_rows * n_active;
    if (!device->tap)
        return GS_OK;
    gs_status status = fetch(run, device->tapped, device->scratch.choice, (uint64_t)n * sizeof(int32_t));
    if (status != GS_OK)
        return status;
    for (int64_t i = 0; i < n; i++) {
        int32_t expert;
        memcpy(&expert, &device->tapped[i], sizeof expert);
        device->tapped[i] = (float)expert;
    }
    device->tap(device->tap_user, GS_STAGE_ROUTER_CHOICE, run->args.layer, device->tapped, run->args.n_rows,
                n_active);
    return GS_OK;
}

/* Where the residual stream is at a moment of a layer. */
enum moment {
    BEFORE_LAYER,
    AFTER_ATTENTION,
    AFTER_LAYER,
};

/* The residual stream to the host: the decode kernels keep it as a sum of vectors of their own. */
static gs_status fetch_hidden(struct run *run, enum moment moment, float *to)
{
    const struct gs_device *device = run->device;
    int64_t d = device->dims.d_model, n = run->args.n_rows * d;
    if (run->call->family != GS_GPU_DECODE || (moment == BEFORE_LAYER && run->args.layer == 0))
        return fetch(run, to, device->scratch.hidden, (uint64_t)n * sizeof *to);
    struct gs_decode_layout at = gs_decode_layout_of(&device->dims);
    const char *from =
        (const char *)device->scratch.decode + (moment == AFTER_ATTENTION ? at.middle : at.before);
    int64_t n_vector = moment == AFTER_ATTENTION ? 2 : GS_DECODE_BEFORE;
    float *vectors = device->tapped_pair; /* room for more than a row's: see backend.c */
    gs_status status = fetch(run, vectors, from, (uint64_t)(n_vector * n) * sizeof *vectors);
    for (int64_t i = 0; status == GS_OK && i < n; i++) {
        to[i] = 0.0f;
        for (int64_t v = 0; v < n_vector; v++)
            to[i] += vectors[v * n + i];
    }
    return status;
}

/* Before a stage that adds to hidden at once: what it adds is then a difference. */
static gs_status remember_hidden(struct run *run, enum moment moment)
{
    if (!run->device->tap || run->call->family == GS_GPU_SIMPLE)
        return GS_OK;
    return fetch_hidden(run, moment, run->device->tapped_before);
}

static gs_status tap_added(struct run *run, enum gs_stage stage, enum moment moment)
{
    struct gs_device *device = run->device;
    int64_t d = device->dims.d_model, n = run->args.n_rows * d;
    if (!device->tap)
        return GS_OK;
    if (run->call->family == GS_GPU_SIMPLE)
        return tap(run, stage, device->scratch.projected, d);
    gs_status status = fetch_hidden(run, moment, device->tapped);
    if (status != GS_OK)
        return status;
    for (int64_t i = 0; i < n; i++)
        device->tapped[i] -= device->tapped_before[i];
    device->tap(device->tap_user, stage, run->args.layer, device->tapped, run->args.n_rows, d);
    return GS_OK;
}

static gs_status tap_layer(struct run *run)
{
    struct gs_device *device = run->device;
    if (!device->tap)
        return GS_OK;
    gs_status status = fetch_hidden(run, AFTER_LAYER, device->tapped);
    if (status == GS_OK)
        device->tap(device->tap_user, GS_STAGE_LAYER, run->args.layer, device->tapped, run->args.n_rows,
                    device->dims.d_model);
    return status;
}

/* The last norm of all rows, by the simple kernel. */
static gs_status tap_final_norm(struct run *run)
{
    struct gs_device *device = run->device;
    uint64_t n = (uint64_t)run->args.n_rows * (uint64_t)device->dims.d_model;
    gs_status status = fetch_hidden(run, AFTER_LAYER, device->tapped);
    if (status == GS_OK && run->call->family == GS_GPU_DECODE)
        status = device->api->copy_in(device->gpu, device->stream, device->scratch.hidden, device->tapped,
                                      n * sizeof(float), run->error);
    if (status == GS_OK)
        status = norm(run, device->norm, NULL);
    return status == GS_OK ? tap(run, GS_STAGE_FINAL_NORM, device->scratch.normed, device->dims.d_model)
                           : status;
}

/* ---------------------------------------------------------------- the model */

static gs_status attention_block(struct run *run)
{
    gs_status status = remember_hidden(run, BEFORE_LAYER);
    if (status == GS_OK)
        status = run_stage(run, GS_GPU_ATTENTION_IN);
    if (status == GS_OK)
        status = run_stage(run, GS_GPU_ATTENTION);
    if (status == GS_OK)
        status = run_stage(run, GS_GPU_ATTENTION_OUT);
    return status == GS_OK ? tap_added(run, GS_STAGE_ATTENTION, AFTER_ATTENTION) : status;
}

static gs_status moe_block(struct run *run)
{
    const struct gs_gpu_dims *dims = &run->args.dims;
    const struct gs_gpu_scratch *s = &run->args.s;
    gs_status status = remember_hidden(run, AFTER_ATTENTION);
    if (status == GS_OK)
        status = run_stage(run, GS_GPU_MOE_IN);
    if (status == GS_OK)
        status = tap(run, GS_STAGE_ROUTER, s->router, dims->n_expert);
    if (status == GS_OK)
        status = tap_choice(run);
    if (status == GS_OK)
        status = tap(run, GS_STAGE_ROUTER_WEIGHT, s->choice_weight, dims->n_active);
    if (status == GS_OK)
        status = run_stage(run, GS_GPU_MOE_OUT);
    if (status == GS_OK)
        status = tap_added(run, GS_STAGE_MOE, AFTER_LAYER);
    return status == GS_OK ? tap_layer(run) : status;
}

/* The first GS_GPU_LOGIT_ROWS rows of logits; the others are fetch_logits's. */
static gs_status head(struct run *run)
{
    struct gs_device *device = run->device;
    int32_t wanted = run->call->n_logit_rows;
    gs_status status = GS_OK;
    run->args.norm = device->norm;
    run->args.outer = device->head;
    run->args.layer = 0;
    if (device->tap)
        status = tap_final_norm(run);
    if (status != GS_OK || wanted == 0)
        return status;
    run->args.n_logit_rows = wanted < GS_GPU_LOGIT_ROWS ? wanted : GS_GPU_LOGIT_ROWS;
    struct gs_gpu_plan plan;
    make_plan(device, run->call->family, &run->args, GS_GPU_HEAD, run->call->n_ctx, &plan);
    if (plan.count == 0 || wanted > GS_GPU_LOGIT_ROWS)
        status = norm(run, device->norm, device->scratch.rows);
    return status == GS_OK ? run_stage(run, GS_GPU_HEAD) : status;
}

gs_status gs_gpu_queue_model(struct gs_device *device, const struct gs_gpu_call *call,
                             const _Atomic bool *cancelled, struct gs_error *error)
{
    struct run run = {.device = device, .call = call, .error = error};
    run.args = (struct gs_gpu_args){.dims = device->dims,
                                    .s = device->scratch,
                                    .outer = device->embedding,
                                    .n_rows = call->n_rows,
                                    .n_logit_rows = call->n_logit_rows,
                                    .n_ctx = (int32_t)call->n_ctx};
    gs_status status = run_stage(&run, GS_GPU_EMBED);
    if (status == GS_OK)
        status = tap(&run, GS_STAGE_EMBEDDING, device->scratch.hidden, device->dims.d_model);
    for (int64_t layer = 0; status == GS_OK && layer < device->dims.n_layer; layer++) {
        if (cancelled && call->n_rows > SYNC_ROWS && layer > 0)
            status = device->api->sync(device->gpu, device->stream, error);
        if (status == GS_OK && cancelled && atomic_load_explicit(cancelled, memory_order_relaxed))
            status = gs_fail(error, GS_CANCELLED, "cancelled");
        set_layer(device, call->family, &run.args, layer);
        if (status == GS_OK)
            status = attention_block(&run);
        if (status == GS_OK)
            status = moe_block(&run);
    }
    return status == GS_OK ? head(&run) : status;
}

gs_status gs_gpu_queue_logits(struct gs_device *device, const struct gs_gpu_call *call, int32_t first,
                              int32_t n, struct gs_error *error)
{
    struct run run = {.device = device, .call = call, .error = error};
    run.args = (struct gs_gpu_args){.dims = device->dims,
                                    .s = device->scratch,
                                    .outer = device->head,
                                    .n_rows = call->n_rows,
                                    .n_logit_rows = n};
    run.args.s.normed += (int64_t)first * device->dims.d_model;
    return simple_head(&run);
}
