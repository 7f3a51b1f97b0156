/* Timelines in memory that host and GPU share. The rules of rings are those of backend/cpu/kv.c. */
#include "backend/kv_header.h"
#include "backend/metal/device.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 256 /* bytes, of each layer's keys and values */

static int64_t element_bytes(const struct gs_device *device)
{
    return device->precision == GS_PRECISION_EXACT ? 4 : 2;
}

/* Bytes of a position of one head. */
static uint64_t slot_bytes(const struct gs_device *device)
{
    return (uint64_t)(device->config.d_head * element_bytes(device));
}

static int64_t slot_count(const struct gs_device *device, int64_t layer, int64_t capacity)
{
    return gs_kv_slot_count(&device->config, layer, capacity, device->max_rows);
}

static uint64_t align(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Bytes of a layer's keys, aligned; its values take as many. */
static uint64_t part_bytes(const struct gs_device *device, int64_t layer, int64_t capacity)
{
    uint64_t slots = (uint64_t)(slot_count(device, layer, capacity) * device->config.n_kv_head);
    return align(slots * slot_bytes(device));
}

static uint64_t table_bytes(const struct gs_device *device)
{
    return align((uint64_t)device->config.n_layer * sizeof(struct gs_metal_kv_layer));
}

uint64_t gs_metal_kv_bytes(const struct gs_device *device, int64_t capacity)
{
    uint64_t bytes = table_bytes(device);
    for (int64_t layer = 0; layer < device->config.n_layer; layer++)
        bytes += 2 * part_bytes(device, layer, capacity);
    return bytes;
}

gs_status gs_metal_kv_create(struct gs_device *device, int64_t capacity, struct gs_kv **out,
                             struct gs_error *error)
{
    *out = NULL;
    struct gs_kv *kv = calloc(1, sizeof *kv);
    if (!kv)
        return gs_fail_memory(error, sizeof *kv);
    kv->device = device;
    kv->capacity = kv->least_slots = capacity;
    gs_status status = gs_metal_memory_make(&device->metal, gs_metal_kv_bytes(device, capacity),
                                            "a context's cache", &kv->memory, error);
    if (status != GS_OK) {
        free(kv);
        return status;
    }
    /* Zeros, since kernels may load slots that they then weigh with nothing: they must hold numbers. */
    memset(kv->memory.contents, 0, (size_t)kv->memory.bytes);
    kv->layers = kv->memory.contents;
    uint64_t next = table_bytes(device);
    for (int64_t i = 0; i < device->config.n_layer; i++) {
        struct gs_metal_kv_layer *layer = &kv->layers[i];
        layer->n_slot = (uint32_t)slot_count(device, i, capacity);
        if (layer->n_slot < kv->least_slots)
            kv->least_slots = layer->n_slot;
        layer->keys = next;
        next += part_bytes(device, i, capacity);
        layer->values = next;
        next += part_bytes(device, i, capacity);
    }
    *out = kv;
    return GS_OK;
}

void gs_metal_kv_free(struct gs_kv *kv)
{
    if (!kv)
        return;
    gs_metal_memory_release(&kv->device->metal, &kv->memory);
    free(kv);
}

void gs_metal_kv_begin_write(struct gs_kv *kv, int64_t n_tokens)
{
    gs_kv_keep(0, kv->length + n_tokens, kv->least_slots, &kv->ring_first);
}

int64_t gs_metal_kv_length(const struct gs_kv *kv)
{
    return kv->length;
}

int64_t gs_metal_kv_truncate(struct gs_kv *kv, int64_t length)
{
    kv->length = gs_kv_cut(kv->length, length, kv->device->config.window, &kv->ring_first);
    return kv->length;
}

/* ---------------------------------------------------------------- moving */

static int64_t first_held(const struct gs_kv *kv, int64_t layer)
{
    return gs_kv_first_held(&kv->device->config, layer, kv->ring_first);
}

/* Where a position of a head is, in keys or values that begin at `part`. */
static char *slot_at(const struct gs_kv *kv, int64_t layer, uint64_t part, int64_t head, int64_t position)
{
    int64_t n_slot = kv->layers[layer].n_slot;
    uint64_t slot = (uint64_t)(head * n_slot + position % n_slot);
    return (char *)kv->memory.contents + part + slot * slot_bytes(kv->device);
}

static void copy_layer(struct gs_kv *dst, const struct gs_kv *src, int64_t layer, int64_t first)
{
    uint64_t to[2] = {dst->layers[layer].keys, dst->layers[layer].values};
    uint64_t from[2] = {src->layers[layer].keys, src->layers[layer].values};
    size_t bytes = (size_t)slot_bytes(src->device);
    for (int p = 0; p < 2; p++)
        for (int64_t h = 0; h < src->device->config.n_kv_head; h++)
            for (int64_t i = first; i < src->length; i++)
                memcpy(slot_at(dst, layer, to[p], h, i), slot_at(src, layer, from[p], h, i), bytes);
}

gs_status gs_metal_kv_copy(struct gs_kv *dst, const struct gs_kv *src, struct gs_error *error)
{
    gs_status status = gs_kv_check_copy(dst->device == src->device, dst->capacity, src->length, error);
    if (status != GS_OK)
        return status;
    int64_t ring_first = 0;
    for (int64_t i = 0; i < src->device->config.n_layer; i++) {
        copy_layer(dst, src, i,
                   gs_kv_keep(first_held(src, i), src->length, dst->layers[i].n_slot, &ring_first));
    }
    dst->length = src->length;
    dst->ring_first = ring_first;
    return GS_OK;
}

/* ---------------------------------------------------------------- files */

/*
 * An exported cache: the header, then for each layer keys and values [n_kv_head][held positions][d_head] in
 * the precision's type.
 */
static struct gs_kv_header make_header(const struct gs_kv *kv)
{
    return gs_kv_header_make(element_bytes(kv->device) == 4 ? "gsmkvf32" : "gsmkvb16", &kv->device->config,
                             kv->length, kv->ring_first);
}

gs_status gs_metal_kv_export(const struct gs_kv *kv, struct gs_buffer *out, struct gs_error *error)
{
    const struct gs_config *c = &kv->device->config;
    struct gs_kv_header header = make_header(kv);
    size_t bytes = (size_t)slot_bytes(kv->device);
    gs_status status = gs_buffer_append(out, &header, sizeof header, error);
    for (int64_t i = 0; i < c->n_layer; i++) {
        uint64_t parts[2] = {kv->layers[i].keys, kv->layers[i].values};
        for (int p = 0; p < 2; p++)
            for (int64_t h = 0; h < c->n_kv_head; h++)
                for (int64_t t = first_held(kv, i); status == GS_OK && t < kv->length; t++)
                    status = gs_buffer_append(out, slot_at(kv, i, parts[p], h, t), bytes, error);
    }
    return status;
}

gs_status gs_metal_kv_import(struct gs_kv *kv, const void *bytes, size_t size, struct gs_error *error)
{
    const struct gs_config *c = &kv->device->config;
    struct gs_kv_header header, own = make_header(kv);
    gs_status status =
        gs_kv_header_read(&own, c, kv->capacity, 2 * (uint64_t)c->n_kv_head * slot_bytes(kv->device), bytes,
                          size, &header, error);
    if (status != GS_OK)
        return status;
    const char *at = (const char *)bytes + sizeof header;
    size_t slot = (size_t)slot_bytes(kv->device);
    int64_t ring_first = 0;
    for (int64_t i = 0; i < c->n_layer; i++) {
        int64_t first = gs_kv_first_held(c, i, header.ring_first);
        int64_t kept = gs_kv_keep(first, header.length, kv->layers[i].n_slot, &ring_first);
        uint64_t parts[2] = {kv->layers[i].keys, kv->layers[i].values};
        for (int p = 0; p < 2; p++)
            for (int64_t h = 0; h < c->n_kv_head; h++)
                for (int64_t t = first; t < header.length; t++, at += slot)
                    if (t >= kept)
                        memcpy(slot_at(kv, i, parts[p], h, t), at, slot);
    }
    kv->length = header.length;
    kv->ring_first = ring_first;
    return GS_OK;
}
