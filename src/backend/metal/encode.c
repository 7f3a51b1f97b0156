#include "backend/metal/encode.h"

/* ---------------------------------------------------------------- passes */

/* A pass with all scratch bound, if there is none. */
static gs_status begin(struct gs_metal_run *run)
{
    struct gs_device *device = run->device;
    if (run->pass.encoder)
        return GS_OK;
    gs_status status = gs_metal_pass_begin(&device->metal, &run->pass, run->error);
    for (uint32_t i = 0; status == GS_OK && i < GS_METAL_BUFFER_COUNT; i++) {
        struct gs_metal_place place = {device->scratch[i].object, 0};
        place.offset = i == GS_METAL_ROWS ? run->row_offset : i == GS_METAL_ROPE ? run->rope_offset : 0;
        if (place.buffer)
            gs_metal_pass_bind(&device->metal, &run->pass, i, place);
    }
    return status;
}

static gs_status wait(struct gs_metal_run *run)
{
    struct gs_metal *metal = &run->device->metal;
    gs_status status = GS_OK;
    if (run->in_flight.commands)
        status = gs_metal_pass_wait(metal, &run->in_flight, run->error);
    gs_metal_pass_end(metal, &run->in_flight);
    return status;
}

gs_status gs_metal_submit(struct gs_metal_run *run)
{
    struct gs_metal *metal = &run->device->metal;
    if (!run->pass.encoder)
        return GS_OK;
    gs_metal_pass_commit(metal, &run->pass);
    gs_status status = wait(run);
    run->in_flight = run->pass;
    run->pass = (struct gs_metal_pass){0};
    return status;
}

gs_status gs_metal_finish(struct gs_metal_run *run)
{
    gs_status status = gs_metal_submit(run);
    struct gs_error *error = run->error;
    run->error = status == GS_OK ? error : NULL; /* the first reason is the one that counts */
    gs_status done = wait(run);
    run->error = error;
    return status == GS_OK ? done : status;
}

void gs_metal_abandon(struct gs_metal_run *run)
{
    run->error = NULL;
    gs_metal_pass_end(&run->device->metal, &run->pass);
    wait(run);
}

/* ---------------------------------------------------------------- dispatches */

static void bind(struct gs_metal_run *run, uint32_t index, struct gs_metal_place place)
{
    gs_metal_pass_bind(&run->device->metal, &run->pass, index, place);
}

static struct gs_metal_place scratch(const struct gs_metal_run *run, enum gs_metal_buffer index)
{
    return (struct gs_metal_place){run->device->scratch[index].object, 0};
}

/* Matrix number `index` of a dispatch. */
static void bind_matrix(struct gs_metal_run *run, uint32_t index, const struct gs_metal_matrix *matrix)
{
    bind(run, GS_METAL_WEIGHT_0 + index, matrix->at);
    run->args.type[index] = matrix->type;
    run->args.scales_at[index] = matrix->scales_at;
}

static void bind_experts(struct gs_metal_run *run, const struct gs_metal_experts *experts)
{
    bind(run, GS_METAL_WEIGHT_0, experts->codes);
    bind(run, GS_METAL_WEIGHT_1, experts->scales);
    bind(run, GS_METAL_BIAS_0, experts->bias);
}

static void bind_kv(struct gs_metal_run *run, const struct gs_kv *kv)
{
    bind(run, GS_METAL_KV, (struct gs_metal_place){kv->memory.object, 0});
    bind(run, GS_METAL_KV_TABLE, (struct gs_metal_place){kv->memory.object, 0});
}

static gs_status dispatch(struct gs_metal_run *run, enum gs_metal_kernel kernel)
{
    struct gs_device *device = run->device;
    struct gs_metal_launch launch = gs_metal_launch_of(kernel, &run->args, &device->tuning);
    struct gs_metal_dispatch dispatch = {.kernel = gs_metal_kernel_name(kernel),
                                         .pipeline = &device->pipelines[kernel],
                                         .bytes = &run->args,
                                         .n_bytes = sizeof run->args,
                                         .threadgroup_bytes = launch.threadgroup_bytes,
                                         .grid = {launch.grid[0], launch.grid[1], launch.grid[2]},
                                         .threads = launch.threads};
    return gs_metal_pass_dispatch(&device->metal, &run->pass, &dispatch, run->error);
}

/* Begins a pass if need be, and sets the arguments to those of all rows of a layer. */
static gs_status prepare(struct gs_metal_run *run, int64_t layer)
{
    const struct gs_device *device = run->device;
    run->args = device->args;
    run->args.layer = (uint32_t)layer;
    run->args.n_rows = run->n_rows;
    run->args.n_split = 1;
    run->args.n_ranks = device->args.n_active;
    if (device->config.layer_is_window[layer])
        run->args.window = (uint32_t)device->config.window;
    return begin(run);
}

bool gs_metal_takes_few(const struct gs_device *device, uint32_t n)
{
    return device->precision == GS_PRECISION_FAST && device->decode == GS_DECODE_FUSED && n > 1 &&
           n <= GS_METAL_FEW_ROWS;
}

/* ---------------------------------------------------------------- attention */

/* Scores and values: a timeline's rows at a time, since each has its own cache. */
static gs_status attend(struct gs_metal_run *run, enum gs_metal_kernel store)
{
    gs_status status = GS_OK;
    if (run->n_rows <= GS_METAL_SPLIT_ROWS)
        run->args.n_split = gs_metal_n_split(run->n_ctx, run->args.window);
    for (size_t i = 0; status == GS_OK && i < run->n_stretches; i++) {
        const struct gs_metal_stretch *stretch = &run->stretches[i];
        bind_kv(run, stretch->kv);
        run->args.first_row = stretch->first_row;
        run->args.n_rows = stretch->n_rows;
        if (store != GS_METAL_KERNEL_COUNT)
            status = dispatch(run, store);
        bool is_tile =
            run->is_tiled && stretch->n_rows >= GS_METAL_TILED_ROWS && gs_metal_takes_tile(&run->args);
        if (status == GS_OK)
            status = dispatch(run, is_tile ? GS_METAL_ATTENTION_TILE : GS_METAL_ATTENTION);
    }
    run->args.first_row = 0;
    run->args.n_rows = run->n_rows;
    return status == GS_OK && run->args.n_split > 1 ? dispatch(run, GS_METAL_ATTENTION_COMBINE) : status;
}

static gs_status linear(struct gs_metal_run *run, const struct gs_metal_matrix *matrix,
                        struct gs_metal_place bias, uint32_t out_first)
{
    bind_matrix(run, 0, matrix);
    bind(run, GS_METAL_BIAS_0, bias);
    run->args.rows = matrix->rows;
    run->args.columns = matrix->columns;
    run->args.out_first = out_first;
    return dispatch(run, run->is_few ? GS_METAL_LINEAR_FEW : GS_METAL_LINEAR);
}

static gs_status tiled_attention(struct gs_metal_run *run, const struct gs_metal_layer *w)
{
    bind(run, GS_METAL_NORM_WEIGHT, w->attention_norm);
    bind(run, GS_METAL_SINKS, w->sinks);
    bind(run, GS_METAL_IN, scratch(run, GS_METAL_NORMED));
    bind(run, GS_METAL_OUT, scratch(run, GS_METAL_QKV));
    run->args.out_stride = w->q.rows + w->k.rows + w->v.rows;
    gs_status status = dispatch(run, GS_METAL_NORM);
    if (status == GS_OK)
        status = linear(run, &w->q, w->q_bias, 0);
    if (status == GS_OK)
        status = linear(run, &w->k, w->k_bias, w->q.rows);
    if (status == GS_OK)
        status = linear(run, &w->v, w->v_bias, w->q.rows + w->k.rows);
    if (status == GS_OK)
        status = attend(run, GS_METAL_ROTATE);
    bind(run, GS_METAL_IN, scratch(run, GS_METAL_ATTENDED));
    bind(run, GS_METAL_OUT, scratch(run, GS_METAL_PROJECTED));
    run->args.out_stride = run->args.d_model;
    run->args.add_to_hidden = 1;
    return status == GS_OK ? linear(run, &w->o, w->o_bias, 0) : status;
}

static gs_status plain_attention(struct gs_metal_run *run, const struct gs_metal_layer *w)
{
    bool is_one = run->n_stretches == 1;
    bind(run, GS_METAL_NORM_WEIGHT, w->attention_norm);
    bind(run, GS_METAL_SINKS, w->sinks);
    bind_matrix(run, 0, &w->q);
    bind_matrix(run, 1, &w->k);
    bind_matrix(run, 2, &w->v);
    bind(run, GS_METAL_BIAS_0, w->q_bias);
    bind(run, GS_METAL_BIAS_1, w->k_bias);
    bind(run, GS_METAL_BIAS_2, w->v_bias);
    bind_kv(run, run->stretches[0].kv);
    run->args.store_kv = is_one;
    gs_status status = dispatch(run, GS_METAL_ATTENTION_IN);
    if (status == GS_OK)
        status = attend(run, is_one ? GS_METAL_KERNEL_COUNT : GS_METAL_KV_STORE);
    bind_matrix(run, 0, &w->o);
    bind(run, GS_METAL_BIAS_0, w->o_bias);
    return status == GS_OK ? dispatch(run, GS_METAL_ATTENTION_OUT) : status;
}

gs_status gs_metal_attention(struct gs_metal_run *run, int64_t layer)
{
    const struct gs_metal_layer *w = &run->device->layers[layer];
    gs_status status = prepare(run, layer);
    if (status != GS_OK)
        return status;
    return run->is_tiled ? tiled_attention(run, w) : plain_attention(run, w);
}

/* ---------------------------------------------------------------- experts */

static gs_status tiled_experts(struct gs_metal_run *run, const struct gs_metal_layer *w)
{
    gs_status status = dispatch(run, GS_METAL_SORT);
    bind_experts(run, &w->gate_up);
    if (status == GS_OK)
        status = dispatch(run, run->is_few ? GS_METAL_EXPERTS_GATE_UP_FEW : GS_METAL_EXPERTS_GATE_UP);
    bind_experts(run, &w->down);
    if (status == GS_OK)
        status = dispatch(run, run->is_few ? GS_METAL_EXPERTS_DOWN_FEW : GS_METAL_EXPERTS_DOWN);
    return status == GS_OK ? dispatch(run, GS_METAL_EXPERTS_COMBINE) : status;
}

/* Experts of ranks first_rank ... : all at once, or one after another. */
static gs_status plain_experts(struct gs_metal_run *run, const struct gs_metal_layer *w)
{
    bind_experts(run, &w->gate_up);
    gs_status status = dispatch(run, GS_METAL_MOE_GATE_UP);
    bind_experts(run, &w->down);
    return status == GS_OK ? dispatch(run, GS_METAL_MOE_DOWN) : status;
}

gs_status gs_metal_experts(struct gs_metal_run *run, int64_t layer)
{
    const struct gs_device *device = run->device;
    const struct gs_metal_layer *w = &device->layers[layer];
    gs_status status = prepare(run, layer);
    if (status != GS_OK)
        return status;
    bind(run, GS_METAL_NORM_WEIGHT, w->mlp_norm);
    bind_matrix(run, 0, &w->router);
    bind(run, GS_METAL_BIAS_0, w->router_bias);
    status = dispatch(run, GS_METAL_ROUTER);
    if (status != GS_OK)
        return status;
    if (run->is_tiled)
        return tiled_experts(run, w);
    if (device->decode == GS_DECODE_FUSED || device->decode == GS_DECODE_STAGED)
        return plain_experts(run, w);
    run->args.n_ranks = 1;
    for (uint32_t rank = 0; status == GS_OK && rank < run->args.n_active; rank++) {
        run->args.first_rank = rank;
        status = plain_experts(run, w);
    }
    return status;
}

/* ---------------------------------------------------------------- around the layers */

gs_status gs_metal_embed(struct gs_metal_run *run)
{
    gs_status status = prepare(run, 0);
    if (status != GS_OK)
        return status;
    bind_matrix(run, 0, &run->device->embedding);
    return dispatch(run, GS_METAL_EMBED);
}

gs_status gs_metal_head(struct gs_metal_run *run, uint32_t first, uint32_t n)
{
    gs_status status = prepare(run, 0);
    if (status != GS_OK)
        return status;
    struct gs_metal_place rows = scratch(run, GS_METAL_ROWS);
    bool is_few = gs_metal_takes_few(run->device, n);
    rows.offset = run->row_offset + first * sizeof(struct gs_metal_row);
    bind(run, GS_METAL_ROWS, rows);
    bind(run, GS_METAL_NORM_WEIGHT, run->device->norm);
    if (is_few)
        status = dispatch(run, GS_METAL_NORM);
    bind_matrix(run, 0, &run->device->head);
    run->args.n_logit_rows = n;
    return status == GS_OK ? dispatch(run, is_few ? GS_METAL_HEAD_FEW : GS_METAL_HEAD) : status;
}

gs_status gs_metal_pick(struct gs_metal_run *run)
{
    return dispatch(run, GS_METAL_PICK);
}

gs_status gs_metal_final_norm(struct gs_metal_run *run)
{
    gs_status status = prepare(run, 0);
    if (status != GS_OK)
        return status;
    bind(run, GS_METAL_NORM_WEIGHT, run->device->norm);
    return dispatch(run, GS_METAL_NORM);
}

gs_status gs_metal_dequantize_rows(struct gs_metal_run *run, const struct gs_metal_experts *experts,
                                   uint32_t matrix_row, uint32_t n_rows)
{
    run->n_rows = n_rows;
    gs_status status = prepare(run, 0);
    if (status != GS_OK)
        return status;
    bind_experts(run, experts);
    bind(run, GS_METAL_OUT, scratch(run, GS_METAL_PROJECTED));
    run->args.rows = experts->rows;
    run->args.columns = experts->columns;
    run->args.matrix_row = matrix_row;
    return dispatch(run, GS_METAL_DEQUANTIZE);
}
