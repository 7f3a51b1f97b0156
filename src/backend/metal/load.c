/*
 * Weights from the mapped files to where kernels read them. A matrix that kernels can read as it lies in the
 * file stays there: its pages become a buffer. Everything else is copied, layer by layer, into memory of its
 * own: vectors as float32, GGUF's blocks in the form of safetensors, what a control spoils.
 */
#include "backend/cpu/fast_kernels.h"
#include "backend/metal/controls.h"
#include "backend/metal/device.h"
#include "backend/metal/pages.h"
#include "base/status.h"
#include "base/threads.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64 /* bytes, of a copy */
#define ROW_GRAIN 64

/* Memory handed out piece by piece; without a base it only counts. */
struct slab {
    struct gs_metal_memory memory;
    uint64_t used;
};

/* A copied tensor: where it is, and its bytes (NULL while counting). */
struct piece {
    struct gs_metal_place at;
    unsigned char *bytes;
};

struct loader {
    struct gs_device *device;
    struct gs_threads *threads;
    struct gs_metal_span *spans; /* of what stays in the file */
    size_t n_spans;
    struct gs_metal_window *windows;
    size_t n_windows;
    struct slab slab; /* of the layer under way */
    bool is_counting;
    float *rows; /* [n_threads][widest] */
    size_t widest;
};

static struct piece take(struct loader *loader, uint64_t bytes)
{
    struct slab *slab = &loader->slab;
    struct piece piece = {.at = {slab->memory.object, slab->used}};
    if (!loader->is_counting)
        piece.bytes = (unsigned char *)slab->memory.contents + slab->used;
    slab->used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return piece;
}

/* ---------------------------------------------------------------- what stays in the file */

/* Can the kernels read a matrix of this type at this address? */
static bool is_aligned(const struct gs_device *device, const unsigned char *data, uint32_t type)
{
    static const uint32_t element[] = {2, 2, 4, 2};
    uint32_t alignment = device->tuning.scalar_load ? element[type] : gs_metal_matrix_alignment(type);
    return (uintptr_t)data % alignment == 0;
}

static uint32_t type_of(const struct gs_matrix *m)
{
    switch (m->type) {
    case GS_WEIGHT_BF16:
        return GS_METAL_BF16;
    case GS_WEIGHT_F16:
        return GS_METAL_F16;
    case GS_WEIGHT_Q8_0:
        return GS_METAL_Q8;
    case GS_WEIGHT_F32:
        break;
    }
    return GS_METAL_F32;
}

static bool wants_q8(const struct loader *loader, const struct gs_matrix *m, bool quantise)
{
    return quantise && loader->device->format == GS_WEIGHTS_Q8 && m->type != GS_WEIGHT_Q8_0 &&
           m->columns % GS_Q8_0_BLOCK == 0;
}

static bool stays(const struct loader *loader, const struct gs_matrix *m, bool quantise)
{
    return !m->odd && m->type != GS_WEIGHT_Q8_0 && !wants_q8(loader, m, quantise) &&
           is_aligned(loader->device, m->data, type_of(m));
}

static bool experts_stay(const struct loader *loader, const struct gs_mxfp4_matrix *m)
{
    const struct gs_device *device = loader->device;
    uint32_t alignment = device->tuning.scalar_load ? 1 : GS_METAL_CODES_ALIGNMENT;
    return m->scales && (uintptr_t)m->blocks % alignment == 0 &&
           !gs_metal_control_copies_experts(device->control);
}

static void note_span(struct loader *loader, const unsigned char *begin, uint64_t bytes, bool between)
{
    loader->spans[loader->n_spans++] = (struct gs_metal_span){begin, bytes, between};
}

static struct gs_metal_place find_mapped(const struct loader *loader, const unsigned char *data)
{
    return gs_metal_windows_find(loader->windows, loader->n_windows, data);
}

/* ---------------------------------------------------------------- copies */

static struct gs_metal_place put_vector(struct loader *loader, const struct gs_matrix *m)
{
    struct piece piece = take(loader, (uint64_t)(m->rows * m->columns) * sizeof(float));
    /* It lies between matrices that stay: one buffer over all of them is better than two. */
    if (loader->is_counting && !m->odd)
        note_span(loader, m->data, (uint64_t)gs_weight_bytes(m->type, m->rows * m->columns), true);
    for (int64_t r = 0; piece.bytes && r < m->rows; r++)
        gs_matrix_row(m, r, (float *)(void *)piece.bytes + r * m->columns);
    return piece.at;
}

static float *vector_of(const struct loader *loader, struct gs_metal_place at)
{
    return loader->is_counting ? NULL : (float *)(void *)((char *)loader->slab.memory.contents + at.offset);
}

/* Q8_0's blocks of a row, apart: codes [columns] and scales [columns/32]. */
static void part_q8(const unsigned char *blocks, int64_t columns, unsigned char *codes, unsigned char *scales)
{
    for (int64_t b = 0; b < columns / GS_Q8_0_BLOCK; b++, blocks += GS_Q8_0_BLOCK_BYTES) {
        memcpy(scales + 2 * b, blocks, 2);
        memcpy(codes + b * GS_Q8_0_BLOCK, blocks + 2, GS_Q8_0_BLOCK);
    }
}

struct dense_job {
    const struct loader *loader;
    const struct gs_matrix *from;
    bool quantise;
    bool permute; /* GS_CONTROL_ROPE_PAIRS */
    uint32_t type;
    unsigned char *to, *scales;
};

static void copy_q8_row(const struct dense_job *job, int64_t from, int64_t r, float *row)
{
    const struct gs_matrix *m = job->from;
    int64_t bytes = gs_weight_bytes(GS_WEIGHT_Q8_0, m->columns);
    const unsigned char *blocks = m->data + from * bytes;
    unsigned char quantised[GS_MAX_HIDDEN / GS_Q8_0_BLOCK * GS_Q8_0_BLOCK_BYTES];
    if (job->quantise) {
        gs_matrix_row(m, from, row);
        gs_fast_kernels_best()->quantize_q8_0(row, (size_t)m->columns, quantised);
        blocks = quantised;
    }
    part_q8(blocks, m->columns, job->to + r * m->columns, job->scales + r * m->columns / GS_Q8_0_BLOCK * 2);
}

static void copy_dense_rows(void *user, size_t begin, size_t end, size_t thread)
{
    const struct dense_job *job = user;
    const struct gs_matrix *m = job->from;
    float *row = job->loader->rows + thread * job->loader->widest;
    for (int64_t r = (int64_t)begin; r < (int64_t)end; r++) {
        int64_t from = job->permute ? gs_metal_control_paired_row(job->loader->device, r) : r;
        int64_t bytes = gs_weight_bytes(m->type, m->columns);
        if (job->type == GS_METAL_Q8)
            copy_q8_row(job, from, r, row);
        else if (m->odd)
            gs_matrix_row(m, from, (float *)(void *)job->to + r * m->columns);
        else
            memcpy(job->to + r * bytes, m->data + from * bytes, (size_t)bytes);
    }
}

/* `permute`: the rows of q and k, as GS_CONTROL_ROPE_PAIRS has them. */
static struct gs_metal_matrix put_matrix(struct loader *loader, const struct gs_matrix *m, bool quantise,
                                         bool permute)
{
    struct gs_metal_matrix out = {
        .type = type_of(m), .rows = (uint32_t)m->rows, .columns = (uint32_t)m->columns};
    uint64_t n = (uint64_t)(m->rows * m->columns);
    if (stays(loader, m, quantise) && !permute) {
        out.bytes = (uint64_t)gs_weight_bytes(m->type, m->rows * m->columns);
        if (loader->is_counting)
            note_span(loader, m->data, out.bytes, false);
        else
            out.at = find_mapped(loader, m->data);
        return out;
    }
    bool quantises = wants_q8(loader, m, quantise);
    out.type = quantises ? GS_METAL_Q8 : m->odd ? GS_METAL_F32 : out.type;
    static const uint64_t element[] = {2, 2, 4, 1};
    uint64_t bytes = n * element[out.type], whole = (bytes + 15) / 16 * 16;
    out.bytes = bytes + (out.type == GS_METAL_Q8 ? n / GS_Q8_0_BLOCK * 2 : 0);
    out.scales_at = (uint32_t)(whole / 16);
    struct piece piece = take(loader, whole + n / GS_Q8_0_BLOCK * 2);
    out.at = piece.at;
    if (piece.bytes) {
        struct dense_job job = {loader, m, quantises, permute, out.type, piece.bytes, piece.bytes + whole};
        gs_threads_run(loader->threads, copy_dense_rows, &job, (size_t)m->rows, ROW_GRAIN);
    }
    return out;
}

struct expert_job {
    const struct gs_device *device;
    const struct gs_mxfp4_matrix *from;
    bool is_gate_up;
    unsigned char *codes, *scales;
};

static void copy_expert_rows(void *user, size_t begin, size_t end, size_t thread)
{
    const struct expert_job *job = user;
    const struct gs_mxfp4_matrix *m = job->from;
    int64_t groups = m->columns / GS_MXFP4_GROUP;
    (void)thread;
    for (int64_t i = (int64_t)begin; i < (int64_t)end; i++) {
        int64_t row = i % m->rows;
        if (job->is_gate_up)
            row = gs_metal_control_gate_up_row(job->device->control, row, m->rows);
        struct gs_mxfp4_row from = gs_mxfp4_find_row(m, i / m->rows, row);
        uint8_t *codes = job->codes + i * groups * GS_MXFP4_GROUP_BYTES, *scales = job->scales + i * groups;
        if (from.scales) {
            memcpy(codes, from.blocks, (size_t)(groups * GS_MXFP4_GROUP_BYTES));
            memcpy(scales, from.scales, (size_t)groups);
        }
        for (int64_t g = 0; !from.scales && g < groups; g++)
            gs_mxfp4_part_gguf(from.blocks + g * GS_MXFP4_BLOCK_BYTES, codes + g * GS_MXFP4_GROUP_BYTES,
                               &scales[g]);
        gs_metal_control_spoil_row(job->device->control, codes, scales, groups);
    }
}

static struct gs_metal_experts put_experts(struct loader *loader, const struct gs_mxfp4_matrix *m,
                                           const struct gs_matrix *bias, bool is_gate_up)
{
    struct gs_metal_experts out = {.rows = (uint32_t)m->rows, .columns = (uint32_t)m->columns};
    uint64_t groups = (uint64_t)(m->n_expert * m->rows * m->columns / GS_MXFP4_GROUP);
    out.bias = put_vector(loader, bias);
    if (!loader->is_counting)
        gs_metal_control_spoil_bias(loader->device->control, bias, is_gate_up, vector_of(loader, out.bias));
    if (experts_stay(loader, m)) {
        if (loader->is_counting) {
            note_span(loader, m->blocks, groups * GS_MXFP4_GROUP_BYTES, false);
            note_span(loader, m->scales, groups, false);
        } else {
            out.codes = find_mapped(loader, m->blocks);
            out.scales = find_mapped(loader, m->scales);
        }
        return out;
    }
    struct piece codes = take(loader, groups * GS_MXFP4_GROUP_BYTES), scales = take(loader, groups);
    out.codes = codes.at;
    out.scales = scales.at;
    if (codes.bytes) {
        struct expert_job job = {loader->device, m, is_gate_up, codes.bytes, scales.bytes};
        gs_threads_run(loader->threads, copy_expert_rows, &job, (size_t)(m->n_expert * m->rows), ROW_GRAIN);
    }
    return out;
}

/* ---------------------------------------------------------------- the model */

/* A bias of q or k, whose rows a control exchanges like the matrix's. */
static struct gs_metal_place put_paired(struct loader *loader, const struct gs_matrix *bias, bool permute)
{
    struct gs_metal_place at = put_vector(loader, bias);
    float *to = vector_of(loader, at);
    for (int64_t r = 0; to && permute && r < bias->columns; r++)
        to[r] = gs_matrix_element(bias, 0, gs_metal_control_paired_row(loader->device, r));
    return at;
}

static void put_layer(struct loader *loader, const struct gs_layer_weights *w, struct gs_metal_layer *out)
{
    struct gs_metal_layer layer = {0};
    bool paired = loader->device->control == GS_CONTROL_ROPE_PAIRS;
    layer.attention_norm = put_vector(loader, &w->attention_norm);
    layer.q = put_matrix(loader, &w->q, true, paired);
    layer.k = put_matrix(loader, &w->k, true, paired);
    layer.v = put_matrix(loader, &w->v, true, false);
    layer.q_bias = put_paired(loader, &w->q_bias, paired);
    layer.k_bias = put_paired(loader, &w->k_bias, paired);
    layer.v_bias = put_vector(loader, &w->v_bias);
    layer.sinks = put_vector(loader, &w->sinks);
    if (!loader->is_counting)
        gs_metal_control_spoil_sinks(loader->device, vector_of(loader, layer.sinks));
    layer.o = put_matrix(loader, &w->o, true, false);
    layer.o_bias = put_vector(loader, &w->o_bias);
    layer.mlp_norm = put_vector(loader, &w->mlp_norm);
    layer.router = put_matrix(loader, &w->router, false, false);
    layer.router_bias = put_vector(loader, &w->router_bias);
    layer.gate_up = put_experts(loader, &w->gate_up, &w->gate_up_bias, true);
    layer.down = put_experts(loader, &w->down, &w->down_bias, false);
    *out = layer;
}

/* A layer; before the first one, number -1, what belongs to none. */
static void put_part(struct loader *loader, int64_t number)
{
    struct gs_device *device = loader->device;
    loader->slab.used = 0;
    if (number >= 0) {
        put_layer(loader, &device->weights->layers[number], &device->layers[number]);
        return;
    }
    device->embedding = put_matrix(loader, &device->weights->embedding, false, false);
    device->norm = put_vector(loader, &device->weights->norm);
    device->head = put_matrix(loader, &device->weights->head, true, false);
}

/* Counts what is copied and lists what stays; nothing is allocated on the device. */
static gs_status survey(struct loader *loader, struct gs_error *error)
{
    struct gs_device *device = loader->device;
    size_t most = 8 + 24 * (size_t)device->config.n_layer;
    loader->spans = calloc(most, sizeof *loader->spans);
    if (!loader->spans)
        return gs_fail_memory(error, most * sizeof *loader->spans);
    loader->is_counting = true;
    for (int64_t i = -1; i < device->config.n_layer; i++) {
        put_part(loader, i);
        device->copied_bytes += loader->slab.used;
    }
    loader->is_counting = false;
    gs_status status = gs_metal_windows_plan(loader->spans, loader->n_spans, device->metal.max_buffer_bytes,
                                             &loader->windows, &loader->n_windows, error);
    for (size_t i = 0; status == GS_OK && i < loader->n_windows; i++)
        device->mapped_bytes += loader->windows[i].bytes;
    return status;
}

static gs_status check_room(const struct gs_device *device, struct gs_error *error)
{
    uint64_t wanted = device->mapped_bytes + device->copied_bytes;
    uint64_t taken = gs_metal_allocated(&device->metal), all = device->metal.working_set_bytes;
    if (wanted + taken <= all)
        return GS_OK;
    return gs_fail(
        error, GS_OUT_OF_MEMORY,
        "metal: the weights need %.1f MiB (%.1f MiB of it copies) beside %.1f MiB that are taken, but "
        "the GPU may use %.1f MiB",
        (double)wanted / (1 << 20), (double)device->copied_bytes / (1 << 20), (double)taken / (1 << 20),
        (double)all / (1 << 20));
}

static gs_status map_windows(struct loader *loader, struct gs_error *error)
{
    struct gs_device *device = loader->device;
    gs_status status = GS_OK;
    for (size_t i = 0; status == GS_OK && i < loader->n_windows; i++) {
        struct gs_metal_window *window = &loader->windows[i];
        status = gs_metal_memory_over(&device->metal, window->begin, window->bytes, &window->memory, error);
        if (status == GS_OK)
            status = gs_metal_keep(device, &window->memory, error);
    }
    return status;
}

static gs_status load_part(struct loader *loader, int64_t number, struct gs_error *error)
{
    struct gs_device *device = loader->device;
    size_t n_spans = loader->n_spans;
    loader->is_counting = true;
    loader->slab = (struct slab){0};
    loader->n_spans = 0; /* the windows are there: what is noted now is of no use */
    put_part(loader, number);
    loader->n_spans = n_spans;
    loader->is_counting = false;
    gs_status status = gs_metal_memory_make(&device->metal, loader->slab.used, "copies of weights",
                                            &loader->slab.memory, error);
    if (status == GS_OK)
        status = gs_metal_keep(device, &loader->slab.memory, error);
    if (status == GS_OK)
        put_part(loader, number);
    return status;
}

gs_status gs_metal_load_weights(struct gs_device *device, gs_progress_fn *progress, void *progress_user,
                                struct gs_error *error)
{
    const struct gs_config *c = &device->config;
    struct loader loader = {.device = device};
    int64_t widest = c->d_model > c->n_head * c->d_head ? c->d_model : c->n_head * c->d_head;
    loader.widest = (size_t)(widest > c->d_ff ? widest : c->d_ff);
    gs_status status = gs_threads_open(device->n_threads, &loader.threads, error);
    if (status == GS_OK) {
        size_t n = gs_threads_count(loader.threads) * loader.widest;
        loader.rows = malloc(n * sizeof *loader.rows);
        status = loader.rows ? GS_OK : gs_fail_memory(error, n * sizeof *loader.rows);
    }
    if (status == GS_OK)
        status = survey(&loader, error);
    if (status == GS_OK)
        status = check_room(device, error);
    if (status == GS_OK)
        status = map_windows(&loader, error);
    uint64_t total = device->weights->bytes, n_part = (uint64_t)c->n_layer + 1;
    for (int64_t i = -1; status == GS_OK && i < c->n_layer; i++) {
        status = load_part(&loader, i, error);
        if (progress)
            progress(progress_user, total / n_part * (uint64_t)(i + 1), total);
    }
    if (status == GS_OK && progress)
        progress(progress_user, total, total);
    free(loader.rows);
    free(loader.windows);
    free(loader.spans);
    gs_threads_close(loader.threads);
    return status;
}
