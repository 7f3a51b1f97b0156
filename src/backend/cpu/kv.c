#include "backend/cpu/kv.h"

#include "base/checked.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

static int64_t slot_count(const struct gs_config *config, int64_t layer, int64_t capacity, int64_t max_step)
{
    int64_t ring = config->window + max_step;
    return config->layer_is_window[layer] && ring < capacity ? ring : capacity;
}

uint64_t gs_kv_bytes(const struct gs_config *config, int64_t capacity, int64_t max_step)
{
    uint64_t position_bytes = 2 * sizeof(float) * (uint64_t)(config->n_kv_head * config->d_head);
    uint64_t bytes = 0;
    for (int64_t layer = 0; layer < config->n_layer; layer++)
        bytes += (uint64_t)slot_count(config, layer, capacity, max_step) * position_bytes;
    return bytes;
}

gs_status gs_kv_open(const struct gs_config *config, int64_t capacity, int64_t max_step, struct gs_kv **out,
                     struct gs_error *error)
{
    *out = NULL;
    struct gs_kv *kv = calloc(1, sizeof *kv);
    if (!kv)
        return gs_fail_memory(error, sizeof *kv);
    kv->config = config;
    kv->capacity = capacity;
    kv->layers = calloc((size_t)config->n_layer, sizeof *kv->layers);
    if (!kv->layers)
        goto out_of_memory;
    for (int64_t i = 0; i < config->n_layer; i++) {
        struct gs_kv_layer *layer = &kv->layers[i];
        layer->n_slot = slot_count(config, i, capacity, max_step);
        /* calloc of a large block is not touched until it is used: an unused context costs nothing. */
        size_t n = (size_t)(layer->n_slot * config->n_kv_head * config->d_head);
        layer->keys = calloc(n, sizeof *layer->keys);
        layer->values = calloc(n, sizeof *layer->values);
        if (!layer->keys || !layer->values)
            goto out_of_memory;
    }
    *out = kv;
    return GS_OK;

out_of_memory:
    gs_kv_free(kv);
    return gs_fail_memory(error, gs_kv_bytes(config, capacity, max_step));
}

void gs_kv_free(struct gs_kv *kv)
{
    if (!kv)
        return;
    for (int64_t i = 0; kv->layers && i < kv->config->n_layer; i++) {
        free(kv->layers[i].keys);
        free(kv->layers[i].values);
    }
    free(kv->layers);
    free(kv);
}

static size_t offset_of(const struct gs_kv *kv, int64_t layer, int64_t kv_head, int64_t position)
{
    int64_t n_slot = kv->layers[layer].n_slot;
    return (size_t)((kv_head * n_slot + position % n_slot) * kv->config->d_head);
}

float *gs_kv_key(const struct gs_kv *kv, int64_t layer, int64_t kv_head, int64_t position)
{
    return kv->layers[layer].keys + offset_of(kv, layer, kv_head, position);
}

float *gs_kv_value(const struct gs_kv *kv, int64_t layer, int64_t kv_head, int64_t position)
{
    return kv->layers[layer].values + offset_of(kv, layer, kv_head, position);
}

/* Slots of the smallest ring; the capacity if no layer has one. */
static int64_t ring_slots(const struct gs_kv *kv)
{
    int64_t slots = kv->capacity;
    for (int64_t i = 0; i < kv->config->n_layer; i++)
        if (kv->layers[i].n_slot < slots)
            slots = kv->layers[i].n_slot;
    return slots;
}

void gs_kv_begin_write(struct gs_kv *kv, int64_t n_tokens)
{
    int64_t first = kv->length + n_tokens - ring_slots(kv);
    if (first > kv->ring_first)
        kv->ring_first = first;
}

int64_t gs_kv_length(const struct gs_kv *kv)
{
    return kv->length;
}

int64_t gs_kv_truncate(struct gs_kv *kv, int64_t length)
{
    if (length < kv->length) {
        /* The next token, at position `length`, sees window - 1 positions before it. */
        int64_t first_seen = length - (kv->config->window - 1);
        bool whole = kv->ring_first == 0 || first_seen >= kv->ring_first;
        kv->length = whole && length > 0 ? length : 0;
        if (kv->length == 0)
            kv->ring_first = 0;
    }
    return kv->length;
}

/*
 * The positions that a layer holds: first ... length-1. Not only rings lack early positions: a window layer
 * that has room for all may have been imported from one that had not.
 */
static int64_t first_held(const struct gs_kv *kv, int64_t layer)
{
    return kv->config->layer_is_window[layer] ? kv->ring_first : 0;
}

gs_status gs_kv_copy(struct gs_kv *dst, const struct gs_kv *src, struct gs_error *error)
{
    if (dst->config != src->config || dst->capacity < src->length)
        return gs_fail(error, GS_INVALID_ARGUMENT, "a cache of %lld tokens cannot take a copy of %lld tokens",
                       (long long)dst->capacity, (long long)src->length);
    const struct gs_config *config = src->config;
    size_t bytes = (size_t)config->d_head * sizeof(float);
    int64_t ring_first = 0;
    for (int64_t layer = 0; layer < config->n_layer; layer++) {
        int64_t first = first_held(src, layer);
        int64_t fits = src->length - dst->layers[layer].n_slot;
        first = fits > first ? fits : first;
        ring_first = first > ring_first ? first : ring_first;
        for (int64_t head = 0; head < config->n_kv_head; head++)
            for (int64_t p = first; p < src->length; p++) {
                memcpy(gs_kv_key(dst, layer, head, p), gs_kv_key(src, layer, head, p), bytes);
                memcpy(gs_kv_value(dst, layer, head, p), gs_kv_value(src, layer, head, p), bytes);
            }
    }
    dst->length = src->length;
    dst->ring_first = ring_first;
    return GS_OK;
}

/* An exported cache: this header, then for each layer, kv head and held position the key and the value. */
struct export_header {
    char magic[8];
    int64_t length;
    int64_t ring_first;
    int64_t n_layer;
    int64_t n_kv_head;
    int64_t d_head;
    int64_t window;
};

static const char export_magic[8] = "gskvf32";

static struct export_header make_header(const struct gs_kv *kv)
{
    const struct gs_config *config = kv->config;
    struct export_header header = {.length = kv->length,
                                   .ring_first = kv->ring_first,
                                   .n_layer = config->n_layer,
                                   .n_kv_head = config->n_kv_head,
                                   .d_head = config->d_head,
                                   .window = config->window};
    memcpy(header.magic, export_magic, sizeof header.magic);
    return header;
}

gs_status gs_kv_export(const struct gs_kv *kv, struct gs_buffer *out, struct gs_error *error)
{
    const struct gs_config *config = kv->config;
    struct export_header header = make_header(kv);
    gs_status status = gs_buffer_append(out, &header, sizeof header, error);
    size_t bytes = (size_t)config->d_head * sizeof(float);
    for (int64_t layer = 0; layer < config->n_layer; layer++) {
        int64_t first = first_held(kv, layer);
        for (int64_t head = 0; head < config->n_kv_head; head++)
            for (int64_t p = first; status == GS_OK && p < kv->length; p++) {
                status = gs_buffer_append(out, gs_kv_key(kv, layer, head, p), bytes, error);
                if (status == GS_OK)
                    status = gs_buffer_append(out, gs_kv_value(kv, layer, head, p), bytes, error);
            }
    }
    return status;
}

/* Bytes that follow a header; 0 if they would overflow. */
static uint64_t body_bytes(const struct gs_config *config, const struct export_header *header)
{
    uint64_t positions = 0, bytes = 0;
    for (int64_t layer = 0; layer < config->n_layer; layer++) {
        int64_t first = config->layer_is_window[layer] ? header->ring_first : 0;
        if (!gs_add_u64(positions, (uint64_t)(header->length - first), &positions))
            return 0;
    }
    uint64_t per_position = 2 * sizeof(float) * (uint64_t)(config->n_kv_head * config->d_head);
    return gs_mul_u64(positions, per_position, &bytes) ? bytes : 0;
}

gs_status gs_kv_import(struct gs_kv *kv, const void *bytes, size_t size, struct gs_error *error)
{
    const struct gs_config *config = kv->config;
    struct export_header header, own = make_header(kv);
    if (size < sizeof header)
        return gs_fail(error, GS_MALFORMED, "an exported cache of %zu bytes is shorter than its header",
                       size);
    memcpy(&header, bytes, sizeof header);
    if (memcmp(header.magic, own.magic, sizeof header.magic) != 0 || header.n_layer != own.n_layer ||
        header.n_kv_head != own.n_kv_head || header.d_head != own.d_head || header.window != own.window)
        return gs_fail(error, GS_MALFORMED, "the exported cache is of another model or backend");
    if (header.length < 0 || header.length > kv->capacity || header.ring_first < 0 ||
        header.ring_first > header.length || size - sizeof header != body_bytes(config, &header))
        return gs_fail(error, GS_MALFORMED, "an exported cache of %zu bytes does not hold %lld tokens", size,
                       (long long)header.length);
    if (header.ring_first > 0 && header.length - header.ring_first < config->window - 1)
        return gs_fail(error, GS_MALFORMED, "the exported cache lacks positions of the window");

    const char *at = (const char *)bytes + sizeof header;
    size_t row = (size_t)config->d_head * sizeof(float);
    int64_t ring_first = 0;
    for (int64_t layer = 0; layer < config->n_layer; layer++) {
        int64_t first = config->layer_is_window[layer] ? header.ring_first : 0;
        int64_t fits = header.length - kv->layers[layer].n_slot;
        ring_first = first > ring_first ? first : ring_first;
        ring_first = fits > ring_first ? fits : ring_first;
        for (int64_t head = 0; head < config->n_kv_head; head++)
            for (int64_t p = first; p < header.length; p++, at += 2 * row) {
                if (p < fits)
                    continue;
                memcpy(gs_kv_key(kv, layer, head, p), at, row);
                memcpy(gs_kv_value(kv, layer, head, p), at + row, row);
            }
    }
    kv->length = header.length;
    kv->ring_first = ring_first;
    return GS_OK;
}
