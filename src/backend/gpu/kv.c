/* Timelines in device memory. The rules of rings are those of backend/cpu/kv.c. */
#include "backend/gpu/device.h"
#include "backend/gpu/simple.h"
#include "backend/kv_header.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 256 /* bytes, of each layer's keys and values */

static const struct gs_config *config_of(const struct gs_device *device)
{
    return &device->weights->config;
}

static int64_t element_bytes(const struct gs_device *device)
{
    return device->precision == GS_PRECISION_EXACT ? 4 : 2;
}

static int64_t slot_count(const struct gs_device *device, int64_t layer, int64_t capacity)
{
    return gs_kv_slot_count(config_of(device), layer, capacity, device->dims.max_rows);
}

/* Bytes of a layer's keys, aligned; its values take as many. */
static uint64_t part_bytes(const struct gs_device *device, int64_t layer, int64_t capacity)
{
    const struct gs_config *c = config_of(device);
    uint64_t bytes =
        (uint64_t)(slot_count(device, layer, capacity) * c->n_kv_head * c->d_head * element_bytes(device));
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static uint64_t table_bytes(const struct gs_device *device)
{
    uint64_t bytes = (uint64_t)config_of(device)->n_layer * sizeof(struct gs_gpu_kv_layer);
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

uint64_t gs_gpu_kv_bytes(const struct gs_device *device, int64_t capacity)
{
    uint64_t bytes = table_bytes(device);
    for (int64_t layer = 0; layer < config_of(device)->n_layer; layer++)
        bytes += 2 * part_bytes(device, layer, capacity);
    return bytes;
}

gs_status gs_gpu_kv_create(struct gs_device *device, int64_t capacity, struct gs_kv **out,
                           struct gs_error *error)
{
    const struct gs_gpu_api *api = device->api;
    int64_t n_layer = config_of(device)->n_layer;
    uint64_t bytes = gs_gpu_kv_bytes(device, capacity);
    *out = NULL;
    struct gs_kv *kv = calloc(1, sizeof *kv);
    if (!kv)
        return gs_fail_memory(error, sizeof *kv);
    kv->device = device;
    kv->capacity = kv->least_slots = capacity;
    kv->layers = calloc((size_t)n_layer, sizeof *kv->layers);
    gs_status status = kv->layers ? api->alloc(device->gpu, bytes, "a context's cache", &kv->memory, error)
                                  : gs_fail_memory(error, (uint64_t)n_layer * sizeof *kv->layers);
    if (status != GS_OK)
        goto cleanup;
    char *next = kv->memory;
    kv->on_device = (struct gs_gpu_kv_layer *)(void *)next;
    next += table_bytes(device);
    for (int64_t i = 0; i < n_layer; i++) {
        struct gs_gpu_kv_layer *layer = &kv->layers[i];
        layer->n_slot = (int32_t)slot_count(device, i, capacity);
        if (layer->n_slot < kv->least_slots)
            kv->least_slots = layer->n_slot;
        layer->is_f32 = device->precision == GS_PRECISION_EXACT;
        layer->keys = next;
        next += part_bytes(device, i, capacity);
        layer->values = next;
        next += part_bytes(device, i, capacity);
    }
    /* Zeros, since kernels may load slots that they then weigh with nothing: they must hold numbers. */
    status = api->zero(device->gpu, device->stream, kv->memory, bytes, error);
    if (status == GS_OK)
        status = api->copy_in(device->gpu, device->stream, kv->on_device, kv->layers,
                              (uint64_t)n_layer * sizeof *kv->layers, error);
    if (status == GS_OK)
        status = api->sync(device->gpu, device->stream, error);

cleanup:
    if (status == GS_OK)
        *out = kv;
    else
        gs_gpu_kv_free(kv);
    return status;
}

void gs_gpu_kv_free(struct gs_kv *kv)
{
    if (!kv)
        return;
    kv->device->api->release(kv->device->gpu, kv->memory);
    free(kv->layers);
    free(kv);
}

void gs_gpu_kv_begin_write(struct gs_kv *kv, int64_t n_tokens)
{
    gs_kv_keep(0, kv->length + n_tokens, kv->least_slots, &kv->ring_first);
}

int64_t gs_gpu_kv_length(const struct gs_kv *kv)
{
    return kv->length;
}

int64_t gs_gpu_kv_truncate(struct gs_kv *kv, int64_t length)
{
    kv->length = gs_kv_cut(kv->length, length, config_of(kv->device)->window, &kv->ring_first);
    return kv->length;
}

/* ---------------------------------------------------------------- moving */

static int64_t first_held(const struct gs_kv *kv, int64_t layer)
{
    return gs_kv_first_held(config_of(kv->device), layer, kv->ring_first);
}

/* Positions first ... end-1 of every head, from one arrangement of slots to another. */
static gs_status move(struct gs_device *device, const void *from, int64_t from_slots, int64_t from_shift,
                      void *to, int64_t to_slots, int64_t to_shift, int64_t first, int64_t end,
                      struct gs_error *error)
{
    const struct gs_config *c = config_of(device);
    struct gs_simple_move args = {.from = from,
                                  .to = to,
                                  .from_slots = from_slots,
                                  .from_shift = from_shift,
                                  .to_slots = to_slots,
                                  .to_shift = to_shift,
                                  .first = first,
                                  .count = end - first,
                                  .n_head = (int32_t)c->n_kv_head,
                                  .row_halves = (int32_t)(c->d_head * element_bytes(device) / 2)};
    if (end <= first)
        return GS_OK;
    return gs_gpu_run(device, "gs_simple_move", &args,
                      (uint64_t)(c->n_kv_head * (end - first)) * (uint64_t)args.row_halves, GS_SIMPLE_THREADS,
                      error);
}

gs_status gs_gpu_kv_copy(struct gs_kv *dst, const struct gs_kv *src, struct gs_error *error)
{
    gs_status status = gs_kv_check_copy(dst->device == src->device, dst->capacity, src->length, error);
    if (status != GS_OK)
        return status;
    struct gs_device *device = dst->device;
    int64_t ring_first = 0;
    for (int64_t i = 0; status == GS_OK && i < config_of(device)->n_layer; i++) {
        const struct gs_gpu_kv_layer *from = &src->layers[i], *to = &dst->layers[i];
        int64_t first = gs_kv_keep(first_held(src, i), src->length, to->n_slot, &ring_first);
        status =
            move(device, from->keys, from->n_slot, 0, to->keys, to->n_slot, 0, first, src->length, error);
        if (status == GS_OK)
            status = move(device, from->values, from->n_slot, 0, to->values, to->n_slot, 0, first,
                          src->length, error);
    }
    if (status == GS_OK)
        status = device->api->sync(device->gpu, device->stream, error);
    /* After a failure dst may hold half of it: it holds nothing then. */
    dst->length = status == GS_OK ? src->length : 0;
    dst->ring_first = status == GS_OK ? ring_first : 0;
    return status;
}

/* ---------------------------------------------------------------- files */

/*
 * An exported cache: the header, then for each layer keys and values [n_kv_head][held positions][d_head] in
 * the precision's type.
 */
static struct gs_kv_header make_header(const struct gs_kv *kv)
{
    return gs_kv_header_make(element_bytes(kv->device) == 4 ? "gsgkvf32" : "gsgkvb16", config_of(kv->device),
                             kv->length, kv->ring_first);
}

/* Bytes of a layer's keys over `positions`. */
static uint64_t row_bytes(const struct gs_kv *kv, int64_t positions)
{
    const struct gs_config *c = config_of(kv->device);
    return (uint64_t)(positions * c->n_kv_head * c->d_head * element_bytes(kv->device));
}

gs_status gs_gpu_kv_export(const struct gs_kv *kv, struct gs_buffer *out, struct gs_error *error)
{
    struct gs_device *device = kv->device;
    const struct gs_gpu_api *api = device->api;
    struct gs_kv_header header = make_header(kv);
    void *line = NULL; /* one layer's keys or values, positions in order */
    gs_status status = gs_buffer_append(out, &header, sizeof header, error);
    if (status == GS_OK && kv->length > 0)
        status = api->alloc(device->gpu, row_bytes(kv, kv->length), "saving a cache", &line, error);
    for (int64_t i = 0; status == GS_OK && kv->length > 0 && i < config_of(device)->n_layer; i++) {
        int64_t first = first_held(kv, i), held = kv->length - first;
        const void *parts[2] = {kv->layers[i].keys, kv->layers[i].values};
        for (int p = 0; status == GS_OK && p < 2 && held > 0; p++) {
            status =
                move(device, parts[p], kv->layers[i].n_slot, 0, line, held, first, first, kv->length, error);
            if (status == GS_OK)
                status = gs_buffer_reserve(out, row_bytes(kv, held), error);
            if (status == GS_OK)
                status = api->copy_out(device->gpu, device->stream, out->data + out->size, line,
                                       row_bytes(kv, held), error);
            if (status == GS_OK)
                status = api->sync(device->gpu, device->stream, error);
            if (status == GS_OK)
                out->size += row_bytes(kv, held);
        }
    }
    api->release(device->gpu, line);
    return status;
}

gs_status gs_gpu_kv_import(struct gs_kv *kv, const void *bytes, size_t size, struct gs_error *error)
{
    struct gs_device *device = kv->device;
    const struct gs_gpu_api *api = device->api;
    const struct gs_config *c = config_of(device);
    struct gs_kv_header header, own = make_header(kv);
    gs_status status =
        gs_kv_header_read(&own, c, kv->capacity, 2 * row_bytes(kv, 1), bytes, size, &header, error);
    if (status != GS_OK)
        return status;
    const char *at = (const char *)bytes + sizeof header;
    void *line = NULL;
    int64_t ring_first = 0;
    if (header.length > 0)
        status = api->alloc(device->gpu, row_bytes(kv, header.length), "reading a cache", &line, error);
    for (int64_t i = 0; status == GS_OK && i < c->n_layer; i++) {
        int64_t first = gs_kv_first_held(c, i, header.ring_first), held = header.length - first;
        int64_t kept = gs_kv_keep(first, header.length, kv->layers[i].n_slot, &ring_first);
        void *parts[2] = {kv->layers[i].keys, kv->layers[i].values};
        for (int p = 0; status == GS_OK && p < 2 && held > 0; p++, at += row_bytes(kv, held)) {
            status = api->copy_in(device->gpu, device->stream, line, at, row_bytes(kv, held), error);
            if (status == GS_OK)
                status = move(device, line, held, first, parts[p], kv->layers[i].n_slot, 0, kept,
                              header.length, error);
            if (status == GS_OK)
                status = api->sync(device->gpu, device->stream, error);
        }
    }
    api->release(device->gpu, line);
    if (status != GS_OK) { /* the cache may hold half of it: it holds nothing then */
        kv->length = 0;
        kv->ring_first = 0;
        return status;
    }
    kv->length = header.length;
    kv->ring_first = ring_first;
    return GS_OK;
}
