/*
 * Weights from the mapped file to the device, layer by layer. Each tensor is either copied to where it stays,
 * or to a raw area from which a kernel of convert.cu makes the device's form. Reader threads copy pieces of
 * the file into pinned buffers of their own, two each, while the device fetches the other: reading and
 * transfer overlap. A layer is made into the device's form while the next one is read into the
 * other half of the raw area.
 */
#include "backend/gpu/decode_launch.h"
#include "backend/gpu/device.h"
#include "backend/gpu/simple.h"
#include "base/status.h"
#include "base/threads.h"

#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES  (2u << 20)
#define MAX_THREADS  16
#define MAX_COPIES   64 /* of one layer */
#define MAX_CONVERTS 64
#define ALIGNMENT    256

/* Memory handed out piece by piece; with base NULL it only counts. */
struct slab {
    char *base;
    uint64_t used;
};

struct copy {
    const void *from;
    char *to;
    uint64_t bytes;
};

struct conversion {
    const char *kernel;
    struct gs_convert args;
    uint64_t n_threads;
};

/* A reader's two buffers, each with a stream of its own: a buffer is free when its stream is done. */
struct reader {
    void *buffer[2];
    struct gs_gpu_stream *stream[2];
    int turn;
    gs_status status;
    struct gs_error error;
};

struct loader {
    struct gs_device *device;
    struct gs_threads *threads;
    struct reader readers[MAX_THREADS];
    size_t n_readers;
    struct slab kept, raw; /* of the layer under way */
    struct copy copies[MAX_COPIES];
    size_t n_copies;
    struct conversion conversions[MAX_CONVERTS];
    size_t n_conversions;
    gs_progress_fn *progress;
    void *progress_user;
    uint64_t done, total; /* bytes of the file */
};

static void *take(struct slab *slab, uint64_t bytes)
{
    char *at = slab->base ? slab->base + slab->used : NULL;
    slab->used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return at;
}

/* ---------------------------------------------------------------- what goes where */

static void add_copy(struct loader *loader, const void *from, void *to, uint64_t bytes)
{
    loader->copies[loader->n_copies++] = (struct copy){from, to, bytes};
}

static struct gs_convert *add_conversion(struct loader *loader, const char *kernel, uint64_t n_threads)
{
    struct conversion *conversion = &loader->conversions[loader->n_conversions++];
    *conversion = (struct conversion){.kernel = kernel, .n_threads = n_threads};
    return &conversion->args;
}

/* The bytes of a tensor's half, or of the whole where it has no halves, in the raw area. */
static void *put_raw(struct loader *loader, const void *from, uint64_t bytes)
{
    void *to = take(&loader->raw, bytes);
    add_copy(loader, from, to, bytes);
    return to;
}

static void convert_dense(struct loader *loader, const char *kernel, const struct gs_matrix *m,
                          uint64_t n_threads, void *to, void *scales)
{
    uint64_t bytes = (uint64_t)gs_weight_bytes(m->type, m->rows * m->columns) / (m->odd ? 2 : 1);
    struct gs_convert *args = add_conversion(loader, kernel, n_threads);
    args->from = put_raw(loader, m->data, bytes);
    args->odd = m->odd ? put_raw(loader, m->odd, bytes) : NULL;
    args->to = to;
    args->scales = scales;
    args->type = (int32_t)m->type;
    args->rows = m->rows;
    args->columns = m->columns;
}

/* A vector, or a few of them, in float32. */
static const float *put_floats(struct loader *loader, const struct gs_matrix *m)
{
    uint64_t n = (uint64_t)(m->rows * m->columns);
    float *to = take(&loader->kept, n * sizeof *to);
    convert_dense(loader, "gs_convert_f32", m, n, to, NULL);
    return to;
}

static enum gs_gpu_type device_type(const struct loader *loader, const struct gs_matrix *m, bool quantise)
{
    if (quantise && loader->device->format == GS_WEIGHTS_Q8 && m->columns % GS_Q8_0_BLOCK == 0)
        return GS_GPU_Q8;
    switch (m->type) {
    case GS_WEIGHT_F32:
        return GS_GPU_F32;
    case GS_WEIGHT_F16:
        return GS_GPU_F16;
    case GS_WEIGHT_BF16:
        return GS_GPU_BF16;
    case GS_WEIGHT_Q8_0:
        return GS_GPU_Q8;
    }
    return GS_GPU_F32;
}

static uint64_t element_bytes(enum gs_gpu_type type)
{
    return type == GS_GPU_F32 ? 4 : type == GS_GPU_Q8 ? 1 : 2;
}

/* Rows of `parts` one below the other. Parts of different types are kept in float32. */
static struct gs_gpu_matrix put_matrix(struct loader *loader, const struct gs_matrix *const *parts,
                                       size_t n_parts, bool quantise)
{
    struct gs_gpu_matrix matrix = {.type = (int32_t)device_type(loader, parts[0], quantise),
                                   .columns = (int32_t)parts[0]->columns};
    for (size_t i = 0; i < n_parts; i++) {
        matrix.rows += (int32_t)parts[i]->rows;
        if (device_type(loader, parts[i], quantise) != (enum gs_gpu_type)matrix.type)
            matrix.type = GS_GPU_F32;
    }
    enum gs_gpu_type type = (enum gs_gpu_type)matrix.type;
    uint64_t n = (uint64_t)matrix.rows * (uint64_t)matrix.columns;
    char *data = take(&loader->kept, n * element_bytes(type));
    uint16_t *scales = type == GS_GPU_Q8 ? take(&loader->kept, n / GS_Q8_0_BLOCK * sizeof *scales) : NULL;
    matrix.data = data;
    matrix.scales = scales;
    for (size_t i = 0; i < n_parts; i++) {
        const struct gs_matrix *m = parts[i];
        uint64_t part = (uint64_t)(m->rows * m->columns);
        if (type == GS_GPU_Q8 && m->type == GS_WEIGHT_Q8_0)
            convert_dense(loader, "gs_convert_q8_0", m, part, data, scales);
        else if (type == GS_GPU_Q8)
            convert_dense(loader, "gs_convert_quantise", m, part / GS_Q8_0_BLOCK, data, scales);
        else if (device_type(loader, m, false) == type)
            add_copy(loader, m->data, data, part * element_bytes(type));
        else
            convert_dense(loader, "gs_convert_f32", m, part, data, NULL);
        if (data) {
            data += part * element_bytes(type);
            scales = scales ? scales + part / GS_Q8_0_BLOCK : NULL;
        }
    }
    return matrix;
}

static struct gs_gpu_matrix put_one(struct loader *loader, const struct gs_matrix *m, bool quantise)
{
    return put_matrix(loader, &m, 1, quantise);
}

static struct gs_gpu_experts put_experts(struct loader *loader, const struct gs_mxfp4_matrix *m,
                                         const struct gs_matrix *bias)
{
    int64_t groups = m->columns / GS_MXFP4_GROUP, rows = m->n_expert * m->rows;
    struct gs_gpu_experts experts = {.rows = (int32_t)m->rows,
                                     .columns = (int32_t)m->columns,
                                     .scale_stride = (int32_t)((groups + 15) / 16 * 16)};
    uint64_t code_bytes = (uint64_t)(rows * groups * GS_MXFP4_GROUP_BYTES);
    uint64_t scale_bytes = (uint64_t)(rows * experts.scale_stride);
    uint8_t *codes = take(&loader->kept, code_bytes), *scales = take(&loader->kept, scale_bytes);
    experts.codes = codes;
    experts.scales = scales;
    struct gs_convert *args;
    if (m->scales) {
        add_copy(loader, m->blocks, codes, code_bytes);
        args = add_conversion(loader, "gs_convert_scales", scale_bytes);
        args->from = put_raw(loader, m->scales, (uint64_t)(rows * groups));
        args->to = scales;
    } else {
        uint64_t bytes = (uint64_t)(rows * groups * GS_MXFP4_BLOCK_BYTES) / (m->odd_blocks ? 2 : 1);
        args = add_conversion(loader, "gs_convert_gguf", code_bytes);
        args->from = put_raw(loader, m->blocks, bytes);
        args->odd = m->odd_blocks ? put_raw(loader, m->odd_blocks, bytes) : NULL;
        args->to = codes;
        args->scales = scales;
    }
    args->rows = rows;
    args->columns = m->columns;
    args->scale_stride = experts.scale_stride;
    experts.bias = put_floats(loader, bias);
    return experts;
}

static struct gs_gpu_layer put_layer(struct loader *loader, const struct gs_layer_weights *w)
{
    struct gs_gpu_layer layer = {0};
    const struct gs_matrix *qkv[] = {&w->q, &w->k, &w->v};
    const struct gs_matrix *biases[] = {&w->q_bias, &w->k_bias, &w->v_bias};
    int64_t n_bias = w->q_bias.columns + w->k_bias.columns + w->v_bias.columns;
    layer.attention_norm = put_floats(loader, &w->attention_norm);
    layer.qkv = put_matrix(loader, qkv, 3, true);
    float *to = take(&loader->kept, (uint64_t)n_bias * sizeof *to);
    layer.qkv_bias = to;
    for (int i = 0; i < 3; i++) {
        convert_dense(loader, "gs_convert_f32", biases[i], (uint64_t)biases[i]->columns, to, NULL);
        to = to ? to + biases[i]->columns : NULL;
    }
    layer.sinks = put_floats(loader, &w->sinks);
    layer.o = put_one(loader, &w->o, true);
    layer.o_bias = put_floats(loader, &w->o_bias);
    layer.mlp_norm = put_floats(loader, &w->mlp_norm);
    layer.router = put_one(loader, &w->router, false);
    float *columns = take(&loader->kept, (uint64_t)(w->router.rows * w->router.columns) * sizeof *columns);
    convert_dense(loader, "gs_convert_columns", &w->router, (uint64_t)(w->router.rows * w->router.columns),
                  columns, (void *)(uintptr_t)layer.mlp_norm);
    layer.router_columns = columns;
    layer.router_bias = put_floats(loader, &w->router_bias);
    layer.gate_up = put_experts(loader, &w->gate_up, &w->gate_up_bias);
    layer.down = put_experts(loader, &w->down, &w->down_bias);
    return layer;
}

static void put_outer(struct loader *loader)
{
    const struct gs_weights *w = loader->device->weights;
    loader->device->embedding = put_one(loader, &w->embedding, false);
    loader->device->norm = put_floats(loader, &w->norm);
    loader->device->head = put_one(loader, &w->head, true);
}

/* ---------------------------------------------------------------- moving */

static uint64_t n_pieces(const struct copy *copy)
{
    return (copy->bytes + PIECE_BYTES - 1) / PIECE_BYTES;
}

/* Piece number `index` of all copies, by way of the reader's free buffer. */
static void move_piece(struct loader *loader, struct reader *reader, uint64_t index)
{
    const struct gs_gpu_api *api = loader->device->api;
    struct gs_gpu *gpu = loader->device->gpu;
    const struct copy *copy = loader->copies;
    while (index >= n_pieces(copy))
        index -= n_pieces(copy++);
    uint64_t at = index * PIECE_BYTES, left = copy->bytes - at;
    uint64_t bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
    int turn = reader->turn;
    reader->turn = 1 - turn;
    reader->status = api->sync(gpu, reader->stream[turn], &reader->error);
    if (reader->status != GS_OK)
        return;
    memcpy(reader->buffer[turn], (const char *)copy->from + at, bytes);
    reader->status =
        api->copy_in(gpu, reader->stream[turn], copy->to + at, reader->buffer[turn], bytes, &reader->error);
}

static void move_pieces(void *user, size_t begin, size_t end, size_t thread)
{
    struct loader *loader = user;
    struct reader *reader = &loader->readers[thread];
    for (size_t i = begin; i < end && reader->status == GS_OK; i++)
        move_piece(loader, reader, i);
}

static gs_status move_all(struct loader *loader, struct gs_error *error)
{
    const struct gs_gpu_api *api = loader->device->api;
    uint64_t n = 0, bytes = 0;
    for (size_t i = 0; i < loader->n_copies; i++) {
        n += n_pieces(&loader->copies[i]);
        bytes += loader->copies[i].bytes;
    }
    gs_threads_run(loader->threads, move_pieces, loader, (size_t)n, 1);
    gs_status status = GS_OK;
    for (size_t r = 0; r < loader->n_readers; r++) {
        struct reader *reader = &loader->readers[r];
        /* Both in any case: what is still being copied must not outlive its buffer. */
        for (int i = 0; i < 2; i++) {
            bool first = reader->status == GS_OK;
            gs_status synced =
                api->sync(loader->device->gpu, reader->stream[i], first ? &reader->error : NULL);
            reader->status = first ? synced : reader->status;
        }
        if (status == GS_OK && reader->status != GS_OK) {
            status = reader->status;
            if (error)
                *error = reader->error;
        }
    }
    loader->done += bytes;
    if (loader->progress)
        loader->progress(loader->progress_user, loader->done < loader->total ? loader->done : loader->total,
                         loader->total);
    return status;
}

static gs_status convert_all(struct loader *loader, struct gs_error *error)
{
    struct gs_device *device = loader->device;
    gs_status status = GS_OK;
    for (size_t i = 0; status == GS_OK && i < loader->n_conversions; i++) {
        const struct conversion *c = &loader->conversions[i];
        status = gs_gpu_run(device, c->kernel, &c->args, c->n_threads, GS_SIMPLE_THREADS, error);
    }
    return status;
}

/* ---------------------------------------------------------------- the fast kernels' order */

/* `args` has all but `to`; *out is the re-laid copy, NULL where there is no such form of it. */
static gs_status relay(struct loader *loader, struct gs_decode_relay *args, const void **out,
                       struct gs_error *error)
{
    struct gs_device *device = loader->device;
    int64_t bytes = gs_decode_relaid_bytes(args->rows, args->columns, args->n_expert, args->form);
    if (bytes == 0)
        return GS_OK;
    gs_status status = gs_gpu_take(device, (uint64_t)bytes, "re-laid weights", &args->to, error);
    if (status != GS_OK)
        return status;
    device->weight_bytes += (uint64_t)bytes;
    *out = args->to;
    return gs_gpu_run(device, gs_decode_relay_kernel(args->form), args, (uint64_t)bytes / 16, 256, error);
}

static gs_status relay_dense(struct loader *loader, struct gs_gpu_matrix *m, struct gs_error *error)
{
    struct gs_decode_relay args = {.from = m->data,
                                   .scales = m->scales,
                                   .form = m->type,
                                   .rows = m->rows,
                                   .columns = m->columns,
                                   .n_expert = 1};
    return relay(loader, &args, &m->relaid, error);
}

static gs_status relay_experts(struct loader *loader, struct gs_gpu_experts *m, bool pairs,
                               struct gs_error *error)
{
    struct gs_decode_relay args = {.from = m->codes,
                                   .scales = m->scales,
                                   .form = GS_DECODE_MXFP4,
                                   .rows = m->rows,
                                   .columns = m->columns,
                                   .n_expert = loader->device->dims.n_expert,
                                   .scale_stride = m->scale_stride,
                                   .pairs = pairs};
    return relay(loader, &args, &m->relaid, error);
}

/* Could the decode kernels take this model at all? */
static bool wants_relay(const struct gs_device *device)
{
    return device->precision == GS_PRECISION_FAST && gs_decode_takes(&device->dims, &device->machine);
}

static gs_status relay_layer(struct loader *loader, struct gs_gpu_layer *layer, struct gs_error *error)
{
    gs_status status = relay_dense(loader, &layer->qkv, error);
    if (status == GS_OK)
        status = relay_dense(loader, &layer->o, error);
    if (status == GS_OK)
        status = relay_experts(loader, &layer->gate_up, true, error);
    if (status == GS_OK)
        status = relay_experts(loader, &layer->down, false, error);
    return status;
}

/* ---------------------------------------------------------------- prefill's dense matrices */

/* The prefill kernels read bfloat16 alone: what is kept otherwise has a copy for them. */
static gs_status widen(struct loader *loader, struct gs_gpu_matrix *m, struct gs_error *error)
{
    struct gs_device *device = loader->device;
    uint64_t n = (uint64_t)m->rows * (uint64_t)m->columns;
    struct gs_simple_linear args = {.matrix = *m};
    void *to = NULL;
    if (m->type == GS_GPU_BF16)
        return GS_OK;
    gs_status status = gs_gpu_take(device, 2 * n, "weights for prefill", &to, error);
    if (status != GS_OK)
        return status;
    device->weight_bytes += 2 * n;
    args.out = to;
    *m = (struct gs_gpu_matrix){.data = to, .type = GS_GPU_BF16, .rows = m->rows, .columns = m->columns};
    return gs_gpu_run(device, "gs_convert_bf16", &args, n, GS_SIMPLE_THREADS, error);
}

static gs_status widen_layer(struct loader *loader, int64_t layer, struct gs_error *error)
{
    struct gs_gpu_layer *wide = &loader->device->wide_layers[layer];
    *wide = loader->device->layers[layer];
    if (loader->device->precision != GS_PRECISION_FAST)
        return GS_OK;
    gs_status status = widen(loader, &wide->qkv, error);
    return status == GS_OK ? widen(loader, &wide->o, error) : status;
}

/* ---------------------------------------------------------------- the whole */

static void begin(struct loader *loader, void *kept, void *raw)
{
    loader->kept = (struct slab){kept, 0};
    loader->raw = (struct slab){raw, 0};
    loader->n_copies = 0;
    loader->n_conversions = 0;
}

static uint64_t relaid_bytes(int64_t rows, int64_t columns, int64_t n_expert, int32_t form)
{
    return (uint64_t)gs_decode_relaid_bytes(rows, columns, n_expert, form);
}

/* Bytes of a layer's copies: re-laid for the decode kernels, widened for prefill. */
static uint64_t copies_of(const struct gs_device *device, const struct gs_gpu_layer *w)
{
    const struct gs_gpu_matrix *dense[] = {&w->qkv, &w->o};
    const struct gs_gpu_experts *experts[] = {&w->gate_up, &w->down};
    uint64_t bytes = 0;
    for (size_t i = 0; i < 2; i++) {
        const struct gs_gpu_matrix *m = dense[i];
        if (wants_relay(device)) {
            bytes += relaid_bytes(m->rows, m->columns, 1, m->type);
            bytes +=
                relaid_bytes(experts[i]->rows, experts[i]->columns, device->dims.n_expert, GS_DECODE_MXFP4);
        }
        if (device->precision == GS_PRECISION_FAST && m->type != GS_GPU_BF16)
            bytes += 2 * (uint64_t)m->rows * (uint64_t)m->columns;
    }
    return bytes;
}

/* What a part of the model takes on the device, in bytes. */
struct need {
    uint64_t kept;   /* in the device's form */
    uint64_t copies; /* of it, in the fast kernels' order */
    uint64_t raw;    /* of the raw area while it loads */
};

/* Layer number `layer`, or what is outside the layers for -1. */
static struct need measure(struct loader *loader, int64_t layer)
{
    struct gs_device *device = loader->device;
    struct need need = {0};
    begin(loader, NULL, NULL);
    if (layer < 0) {
        put_outer(loader);
        const struct gs_gpu_matrix *head = &device->head;
        need.copies = wants_relay(device) ? relaid_bytes(head->rows, head->columns, 1, head->type) : 0;
    } else {
        struct gs_gpu_layer w = put_layer(loader, &device->weights->layers[layer]);
        need.copies = copies_of(device, &w);
    }
    need.kept = loader->kept.used;
    need.raw = loader->raw.used;
    return need;
}

static gs_status open_readers(struct loader *loader, struct gs_error *error)
{
    const struct gs_gpu_api *api = loader->device->api;
    gs_status status = gs_threads_open(0, &loader->threads, error);
    if (status == GS_OK && gs_threads_count(loader->threads) > MAX_THREADS) {
        gs_threads_close(loader->threads);
        status = gs_threads_open(MAX_THREADS, &loader->threads, error);
    }
    loader->n_readers = status == GS_OK ? gs_threads_count(loader->threads) : 0;
    for (size_t r = 0; r < loader->n_readers; r++)
        for (int i = 0; status == GS_OK && i < 2; i++) {
            struct reader *reader = &loader->readers[r];
            status = api->host_alloc(loader->device->gpu, PIECE_BYTES, &reader->buffer[i], error);
            if (status == GS_OK)
                status = api->stream_open(loader->device->gpu, &reader->stream[i], error);
        }
    return status;
}

static void close_readers(struct loader *loader)
{
    const struct gs_gpu_api *api = loader->device->api;
    for (size_t r = 0; r < loader->n_readers; r++)
        for (int i = 0; i < 2; i++) {
            api->stream_close(loader->device->gpu, loader->readers[r].stream[i]);
            api->host_release(loader->device->gpu, loader->readers[r].buffer[i]);
        }
    gs_threads_close(loader->threads);
}

/* One layer, or the outer tensors: their memory, their bytes. What is made of them is only queued. */
static gs_status load_part(struct loader *loader, int64_t layer, void *raw, struct gs_error *error)
{
    struct gs_device *device = loader->device;
    void *kept = NULL;
    uint64_t kept_bytes = measure(loader, layer).kept;
    gs_status status = gs_gpu_take(device, kept_bytes, "the weights", &kept, error);
    if (status != GS_OK)
        return status;
    device->weight_bytes += kept_bytes;
    begin(loader, kept, raw);
    if (layer < 0)
        put_outer(loader);
    else
        device->layers[layer] = put_layer(loader, &device->weights->layers[layer]);
    status = move_all(loader, error);
    /* All that was queued of the part before: the next one may have its half of the raw area. */
    if (status == GS_OK)
        status = device->api->sync(device->gpu, device->stream, error);
    if (status == GS_OK)
        status = convert_all(loader, error);
    if (status == GS_OK && wants_relay(device))
        status = layer < 0 ? relay_dense(loader, &device->head, error)
                           : relay_layer(loader, &device->layers[layer], error);
    if (status == GS_OK && layer >= 0)
        status = widen_layer(loader, layer, error);
    return status;
}

static uint64_t rope_bytes(const struct gs_device *device)
{
    return (uint64_t)device->dims.max_ctx * (uint64_t)device->yarn.n_freq * 2 * sizeof(float);
}

static gs_status make_rope(struct gs_device *device, struct gs_error *error)
{
    const struct gs_gpu_api *api = device->api;
    int64_t n_freq = device->yarn.n_freq, n = device->dims.max_ctx * n_freq;
    void *table = NULL, *frequencies = NULL;
    gs_status status = gs_gpu_take(device, rope_bytes(device), "the rotary table", &table, error);
    if (status == GS_OK)
        status = gs_gpu_take(device, (uint64_t)n_freq * sizeof(float), "frequencies", &frequencies, error);
    if (status == GS_OK)
        status = api->copy_in(device->gpu, device->stream, frequencies, device->yarn.inv_freq,
                              (uint64_t)n_freq * sizeof(float), error);
    struct gs_convert_rope args = {.inv_freq = frequencies,
                                   .table = table,
                                   .n_position = device->dims.max_ctx,
                                   .n_freq = (int32_t)n_freq,
                                   .scaling = device->yarn.attention_scaling};
    if (status == GS_OK)
        status = gs_gpu_run(device, "gs_convert_rope", &args, (uint64_t)n, GS_SIMPLE_THREADS, error);
    device->scratch.rope = table;
    return status == GS_OK ? api->sync(device->gpu, device->stream, error) : status;
}

/* All parts together; the raw area holds two layers, or what is outside the layers. */
static struct need plan(struct loader *loader, uint64_t *layer_raw)
{
    struct need all = measure(loader, -1);
    all.kept += rope_bytes(loader->device);
    *layer_raw = 0;
    for (int64_t layer = 0; layer < loader->device->dims.n_layer; layer++) {
        struct need need = measure(loader, layer);
        all.kept += need.kept;
        all.copies += need.copies;
        *layer_raw = need.raw > *layer_raw ? need.raw : *layer_raw;
    }
    all.raw = all.raw > 2 * *layer_raw ? all.raw : 2 * *layer_raw;
    return all;
}

static gs_status check_room(struct gs_device *device, const struct need *need, struct gs_error *error)
{
    uint64_t free_bytes, total_bytes, wanted = need->kept + need->copies + need->raw;
    gs_status status = device->api->memory(device->gpu, &free_bytes, &total_bytes, error);
    if (status == GS_OK && wanted > free_bytes)
        return gs_fail(error, GS_OUT_OF_MEMORY,
                       "%s: the weights need %.1f MiB of device memory (%.1f MiB of it copies for precision "
                       "fast), %.1f MiB of %.1f MiB are free",
                       device->api->name, (double)wanted / (1 << 20), (double)need->copies / (1 << 20),
                       (double)free_bytes / (1 << 20), (double)total_bytes / (1 << 20));
    return status;
}

/* Layer by layer, each into the other half of the raw area; then what is outside the layers. */
static gs_status load_parts(struct loader *loader, char *raw, uint64_t layer_raw, struct gs_error *error)
{
    struct gs_device *device = loader->device;
    gs_status status = GS_OK;
    for (int64_t layer = 0; status == GS_OK && layer < device->dims.n_layer; layer++)
        status = load_part(loader, layer, layer % 2 ? raw + layer_raw : raw, error);
    if (status == GS_OK)
        status = device->api->sync(device->gpu, device->stream, error);
    if (status == GS_OK)
        status = load_part(loader, -1, raw, error);
    if (status == GS_OK)
        status = make_rope(device, error);
    if (status != GS_OK) /* what is still queued must not outlive what it reads */
        device->api->sync(device->gpu, device->stream, NULL);
    return status;
}

gs_status gs_gpu_load_weights(struct gs_device *device, gs_progress_fn *progress, void *progress_user,
                              struct gs_error *error)
{
    void *raw = NULL;
    uint64_t layer_raw;
    struct loader *loader = calloc(1, sizeof *loader);
    if (!loader)
        return gs_fail_memory(error, sizeof *loader);
    loader->device = device;
    loader->progress = progress;
    loader->progress_user = progress_user;
    loader->total = device->weights->bytes;
    struct need need = plan(loader, &layer_raw);
    gs_status status = check_room(device, &need, error);
    if (status == GS_OK)
        status = open_readers(loader, error);
    if (status == GS_OK)
        status = device->api->alloc(device->gpu, need.raw, "loading", &raw, error);
    if (status == GS_OK)
        status = load_parts(loader, raw, layer_raw, error);
    device->api->release(device->gpu, raw);
    close_readers(loader);
    free(loader);
    return status;
}
