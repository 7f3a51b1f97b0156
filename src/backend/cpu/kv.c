#include "backend/cpu/kv.h"

#include "backend/cpu/fast_kernels.h"
#include "backend/cpu/kv_pages.h"
#include "backend/kv_header.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 64

/* A key and a value in a cache's own format, [d_head] each. */
union position {
    float f32[2 * GS_MAX_D_HEAD];
    uint16_t bf16[2 * GS_MAX_D_HEAD];
};

static size_t element_bytes(enum gs_kv_format format)
{
    return format == GS_KV_F32 ? sizeof(float) : sizeof(uint16_t);
}

static int64_t slot_count(const struct gs_config *config, enum gs_kv_format format, int64_t layer,
                          int64_t capacity, int64_t max_step)
{
    int64_t slots = gs_kv_slot_count(config, layer, capacity, max_step);
    int64_t block = format == GS_KV_F32 ? 1 : GS_FAST_KEY_BLOCK;
    return (slots + block - 1) / block * block;
}

uint64_t gs_kv_bytes(const struct gs_config *config, enum gs_kv_format format, int64_t capacity,
                     int64_t max_step)
{
    uint64_t position_bytes = 2 * element_bytes(format) * (uint64_t)(config->n_kv_head * config->d_head);
    uint64_t bytes = 0;
    for (int64_t layer = 0; layer < config->n_layer; layer++)
        bytes += (uint64_t)slot_count(config, format, layer, capacity, max_step) * position_bytes;
    return bytes;
}

/*
 * Zeros, on whole lines of the processor's cache. calloc's large blocks are not touched until they are used:
 * a context costs nothing before.
 */
static void *allocate(size_t bytes, void **memory)
{
    *memory = calloc(1, bytes + LINE_BYTES);
    return *memory ? (char *)*memory + (LINE_BYTES - (uintptr_t)*memory % LINE_BYTES) % LINE_BYTES : NULL;
}

gs_status gs_kv_open(const struct gs_config *config, enum gs_kv_format format, int64_t capacity,
                     int64_t max_step, struct gs_kv **out, struct gs_error *error)
{
    *out = NULL;
    struct gs_kv *kv = calloc(1, sizeof *kv);
    if (!kv)
        return gs_fail_memory(error, sizeof *kv);
    kv->config = config;
    kv->format = format;
    kv->capacity = kv->least_slots = capacity;
    kv->layers = calloc((size_t)config->n_layer, sizeof *kv->layers);
    if (!kv->layers)
        goto out_of_memory;
    for (int64_t i = 0; i < config->n_layer; i++) {
        struct gs_kv_layer *layer = &kv->layers[i];
        layer->n_slot = slot_count(config, format, i, capacity, max_step);
        if (layer->n_slot < kv->least_slots)
            kv->least_slots = layer->n_slot;
        size_t bytes = (size_t)(layer->n_slot * config->n_kv_head * config->d_head) * element_bytes(format);
        layer->keys = allocate(bytes, &layer->keys_memory);
        layer->values = allocate(bytes, &layer->values_memory);
        if (!layer->keys || !layer->values)
            goto out_of_memory;
    }
    *out = kv;
    return GS_OK;

out_of_memory:
    gs_kv_free(kv);
    return gs_fail_memory(error, gs_kv_bytes(config, format, capacity, max_step));
}

void gs_kv_free(struct gs_kv *kv)
{
    if (!kv)
        return;
    for (int64_t i = 0; kv->layers && i < kv->config->n_layer; i++) {
        free(kv->layers[i].keys_memory);
        free(kv->layers[i].values_memory);
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
    return (float *)kv->layers[layer].keys + offset_of(kv, layer, kv_head, position);
}

float *gs_kv_value(const struct gs_kv *kv, int64_t layer, int64_t kv_head, int64_t position)
{
    return (float *)kv->layers[layer].values + offset_of(kv, layer, kv_head, position);
}

static uint16_t *find_head(const struct gs_kv *kv, void *base, int64_t layer, int64_t kv_head)
{
    return (uint16_t *)base + kv_head * kv->layers[layer].n_slot * kv->config->d_head;
}

const uint16_t *gs_kv_head_keys(const struct gs_kv *kv, int64_t layer, int64_t kv_head)
{
    return find_head(kv, kv->layers[layer].keys, layer, kv_head);
}

const uint16_t *gs_kv_head_values(const struct gs_kv *kv, int64_t layer, int64_t kv_head)
{
    return find_head(kv, kv->layers[layer].values, layer, kv_head);
}

/* The first elements of a position's key and value; the next are 2 of 32 (keys), or 2 on (values). */
static uint16_t *find_key(const struct gs_kv *kv, int64_t layer, int64_t kv_head, int64_t position)
{
    int64_t slot = position % kv->layers[layer].n_slot, d = kv->config->d_head;
    return find_head(kv, kv->layers[layer].keys, layer, kv_head) + slot / 16 * 16 * d + slot % 16 * 2;
}

static uint16_t *find_value(const struct gs_kv *kv, int64_t layer, int64_t kv_head, int64_t position)
{
    int64_t slot = position % kv->layers[layer].n_slot, d = kv->config->d_head;
    return find_head(kv, kv->layers[layer].values, layer, kv_head) + slot / 2 * 2 * d + slot % 2;
}

void gs_kv_store_bf16(const struct gs_kv *kv, int64_t layer, int64_t kv_head, int64_t position,
                      const uint16_t *key, const uint16_t *value)
{
    uint16_t *to_key = find_key(kv, layer, kv_head, position);
    uint16_t *to_value = find_value(kv, layer, kv_head, position);
    for (int64_t j = 0; j < kv->config->d_head; j += 2) {
        memcpy(to_key + j * 16, key + j, 2 * sizeof *key);
        to_value[2 * j] = value[j];
        to_value[2 * j + 2] = value[j + 1];
    }
}

/* A position's key, then its value, in order: the form in which they are copied and exported. */
static void read_position(const struct gs_kv *kv, int64_t layer, int64_t kv_head, int64_t position,
                          union position *to)
{
    int64_t d = kv->config->d_head;
    if (kv->format == GS_KV_F32) {
        float *out = to->f32;
        memcpy(out, gs_kv_key(kv, layer, kv_head, position), (size_t)d * sizeof *out);
        memcpy(out + d, gs_kv_value(kv, layer, kv_head, position), (size_t)d * sizeof *out);
        return;
    }
    uint16_t *out = to->bf16;
    const uint16_t *key = find_key(kv, layer, kv_head, position);
    const uint16_t *value = find_value(kv, layer, kv_head, position);
    for (int64_t j = 0; j < d; j++) {
        out[j] = key[j / 2 * 32 + j % 2];
        out[d + j] = value[2 * j];
    }
}

static void write_position(const struct gs_kv *kv, int64_t layer, int64_t kv_head, int64_t position,
                           const union position *from)
{
    int64_t d = kv->config->d_head;
    if (kv->format == GS_KV_F32) {
        const float *in = from->f32;
        memcpy(gs_kv_key(kv, layer, kv_head, position), in, (size_t)d * sizeof *in);
        memcpy(gs_kv_value(kv, layer, kv_head, position), in + d, (size_t)d * sizeof *in);
        return;
    }
    const uint16_t *in = from->bf16;
    gs_kv_store_bf16(kv, layer, kv_head, position, in, in + d);
}

/* Bytes of what read_position gives. */
static size_t position_bytes(const struct gs_kv *kv)
{
    return 2 * (size_t)kv->config->d_head * element_bytes(kv->format);
}

void gs_kv_begin_write(struct gs_kv *kv, int64_t n_tokens)
{
    gs_kv_enlarge_pages(kv, kv->length + n_tokens, n_tokens);
    gs_kv_keep(0, kv->length + n_tokens, kv->least_slots, &kv->ring_first);
}

int64_t gs_kv_length(const struct gs_kv *kv)
{
    return kv->length;
}

int64_t gs_kv_truncate(struct gs_kv *kv, int64_t length)
{
    kv->length = gs_kv_cut(kv->length, length, kv->config->window, &kv->ring_first);
    return kv->length;
}

/*
 * The slots of positions first ... end-1 as they lie, `first` where a block begins; false where a position
 * can have another slot in dst: where the sizes differ and the positions do not fit in both.
 */
static bool copy_slots(struct gs_kv *dst, const struct gs_kv *src, int64_t layer, int64_t first, int64_t end)
{
    const struct gs_kv_layer *to = &dst->layers[layer], *from = &src->layers[layer];
    int64_t least = to->n_slot < from->n_slot ? to->n_slot : from->n_slot;
    if (to->n_slot != from->n_slot && end > least)
        return false;
    size_t slot_bytes = (size_t)src->config->d_head * element_bytes(src->format);
    int64_t n = (end + GS_FAST_KEY_BLOCK - 1) / GS_FAST_KEY_BLOCK * GS_FAST_KEY_BLOCK;
    n = (n < least ? n : least) - first;
    for (int64_t head = 0; head < src->config->n_kv_head; head++) {
        size_t there = (size_t)(head * to->n_slot + first) * slot_bytes;
        size_t here = (size_t)(head * from->n_slot + first) * slot_bytes;
        memcpy((char *)to->keys + there, (const char *)from->keys + here, (size_t)n * slot_bytes);
        memcpy((char *)to->values + there, (const char *)from->values + here, (size_t)n * slot_bytes);
    }
    return true;
}

/* Positions first ... end-1 one by one. */
static void copy_positions(struct gs_kv *dst, const struct gs_kv *src, int64_t layer, int64_t first,
                           int64_t end)
{
    union position position;
    for (int64_t head = 0; head < dst->config->n_kv_head; head++)
        for (int64_t p = first; p < end; p++) {
            read_position(src, layer, head, p, &position);
            write_position(dst, layer, head, p, &position);
        }
}

/* All that src overwrites as it grows. */
static void copy_rings(struct gs_kv *dst, const struct gs_kv *src)
{
    const struct gs_config *config = src->config;
    int64_t ring_first = 0;
    for (int64_t layer = 0; layer < config->n_layer; layer++) {
        int64_t first = gs_kv_keep(gs_kv_first_held(config, layer, src->ring_first), src->length,
                                   dst->layers[layer].n_slot, &ring_first);
        if (config->layer_is_window[layer] && !copy_slots(dst, src, layer, 0, src->length))
            copy_positions(dst, src, layer, first, src->length);
    }
    dst->ring_first = ring_first;
}

gs_status gs_kv_copy_part(struct gs_kv *dst, const struct gs_kv *src, int64_t *at, int64_t most,
                          struct gs_error *error)
{
    if (*at == 0) {
        bool alike = dst->config == src->config && dst->format == src->format;
        gs_status status = gs_kv_check_copy(alike, dst->capacity, src->length, error);
        if (status != GS_OK)
            return status;
        if (most >= src->length) /* the first of some pieces would wait for a large page of each array */
            gs_kv_enlarge_pages(dst, src->length, INT64_MAX);
        copy_rings(dst, src);
        dst->length = src->length;
    }
    int64_t first = *at, end = dst->length;
    if (most < end - first) /* pieces end with blocks */
        end = (first + most + GS_FAST_KEY_BLOCK - 1) / GS_FAST_KEY_BLOCK * GS_FAST_KEY_BLOCK;
    end = end < dst->length ? end : dst->length;
    for (int64_t layer = 0; layer < src->config->n_layer; layer++)
        if (!src->config->layer_is_window[layer])
            copy_slots(dst, src, layer, first, end);
    *at = end;
    return GS_OK;
}

gs_status gs_kv_copy(struct gs_kv *dst, const struct gs_kv *src, struct gs_error *error)
{
    int64_t at = 0;
    return gs_kv_copy_part(dst, src, &at, INT64_MAX, error);
}

/* An exported cache: the header, then for each layer, kv head and held position the key and the value. */
static const char export_magics[][8] = {[GS_KV_F32] = "gskvf32", [GS_KV_BF16] = "gskvb16"};

static struct gs_kv_header make_header(const struct gs_kv *kv)
{
    return gs_kv_header_make(export_magics[kv->format], kv->config, kv->length, kv->ring_first);
}

gs_status gs_kv_export(const struct gs_kv *kv, struct gs_buffer *out, struct gs_error *error)
{
    const struct gs_config *config = kv->config;
    struct gs_kv_header header = make_header(kv);
    gs_status status = gs_buffer_append(out, &header, sizeof header, error);
    union position position;
    for (int64_t layer = 0; layer < config->n_layer; layer++) {
        int64_t first = gs_kv_first_held(config, layer, kv->ring_first);
        for (int64_t head = 0; head < config->n_kv_head; head++)
            for (int64_t p = first; status == GS_OK && p < kv->length; p++) {
                read_position(kv, layer, head, p, &position);
                status = gs_buffer_append(out, &position, position_bytes(kv), error);
            }
    }
    return status;
}

gs_status gs_kv_import(struct gs_kv *kv, const void *bytes, size_t size, struct gs_error *error)
{
    const struct gs_config *config = kv->config;
    struct gs_kv_header header, own = make_header(kv);
    gs_status status =
        gs_kv_header_read(&own, config, kv->capacity, position_bytes(kv) * (uint64_t)config->n_kv_head, bytes,
                          size, &header, error);
    if (status != GS_OK)
        return status;

    const char *at = (const char *)bytes + sizeof header;
    union position position;
    size_t size_of_one = position_bytes(kv);
    int64_t ring_first = 0;
    gs_kv_enlarge_pages(kv, header.length, INT64_MAX);
    for (int64_t layer = 0; layer < config->n_layer; layer++) {
        int64_t first = gs_kv_first_held(config, layer, header.ring_first);
        int64_t kept = gs_kv_keep(first, header.length, kv->layers[layer].n_slot, &ring_first);
        for (int64_t head = 0; head < config->n_kv_head; head++)
            for (int64_t p = first; p < header.length; p++, at += size_of_one) {
                if (p < kept)
                    continue;
                memcpy(&position, at, size_of_one);
                write_position(kv, layer, head, p, &position);
            }
    }
    kv->length = header.length;
    kv->ring_first = ring_first;
    return GS_OK;
}

/* ---------------------------------------------------------------- prefixes */

#define RINGS_REACH 16 /* tokens that exported rings can be cut back by */

/* Exported rings: this header, then for each window layer and kv head the positions. */
struct rings_header {
    int64_t first, end; /* positions first ... end-1 */
};

/* The shortest timeline whose next token finds all that it sees from `first` on. */
static int64_t least_length(const struct gs_kv *kv, int64_t first)
{
    return first > 0 ? first + kv->config->window - 1 : 0;
}

/* What follows the header. */
static size_t rings_bytes(const struct gs_kv *kv, const struct rings_header *header)
{
    size_t n_window = 0;
    for (int64_t layer = 0; layer < kv->config->n_layer; layer++)
        n_window += kv->config->layer_is_window[layer];
    return n_window * (size_t)kv->config->n_kv_head * (size_t)(header->end - header->first) *
           position_bytes(kv);
}

gs_status gs_kv_export_rings(const struct gs_kv *kv, struct gs_buffer *out, int64_t *least,
                             struct gs_error *error)
{
    const struct gs_config *config = kv->config;
    union position position;
    int64_t seen = kv->length - (config->window - 1) - RINGS_REACH;
    struct rings_header header = {seen > kv->ring_first ? seen : kv->ring_first, kv->length};
    *least = least_length(kv, header.first);
    gs_status status = gs_buffer_reserve(out, sizeof header + rings_bytes(kv, &header), error);
    if (status == GS_OK)
        status = gs_buffer_append(out, &header, sizeof header, error);
    for (int64_t layer = 0; layer < config->n_layer; layer++)
        for (int64_t head = 0; config->layer_is_window[layer] && head < config->n_kv_head; head++)
            for (int64_t p = header.first; status == GS_OK && p < kv->length; p++) {
                read_position(kv, layer, head, p, &position);
                status = gs_buffer_append(out, &position, position_bytes(kv), error);
            }
    return status;
}

/* Positions first ... length-1 from exported rings; returns what follows them. */
static const char *write_rings(struct gs_kv *dst, int64_t layer, const struct rings_header *header,
                               int64_t first, int64_t length, const char *at)
{
    union position position;
    for (int64_t head = 0; head < dst->config->n_kv_head; head++)
        for (int64_t p = header->first; p < header->end; p++, at += position_bytes(dst)) {
            if (p < first || p >= length)
                continue;
            memcpy(&position, at, position_bytes(dst));
            write_position(dst, layer, head, p, &position);
        }
    return at;
}

/* The rings as they are in src, or those that were exported, if they fit. */
static bool find_rings(const struct gs_kv *src, int64_t length, const void *rings, size_t size,
                       struct rings_header *header)
{
    *header = (struct rings_header){src->ring_first, src->length};
    if (rings) {
        if (size < sizeof *header)
            return false;
        memcpy(header, rings, sizeof *header);
        if (header->first < 0 || header->end < header->first || header->end > src->length ||
            size - sizeof *header != rings_bytes(src, header))
            return false;
    }
    return length <= header->end && length >= least_length(src, header->first);
}

gs_status gs_kv_copy_prefix(struct gs_kv *dst, const struct gs_kv *src, int64_t length, const void *rings,
                            size_t size, struct gs_error *error)
{
    const struct gs_config *config = src->config;
    struct rings_header header;
    if (dst->config != config || dst->format != src->format || length < 0 || length > src->length ||
        length > dst->capacity)
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "a cache of %lld tokens cannot take %lld of another's %lld tokens",
                       (long long)dst->capacity, (long long)length, (long long)src->length);
    if (!find_rings(src, length, rings, size, &header))
        return gs_fail(error, GS_INVALID_ARGUMENT, "the rings do not reach back to %lld of %lld tokens",
                       (long long)length, (long long)src->length);
    const char *at = rings ? (const char *)rings + sizeof header : NULL;
    int64_t first = header.first < length ? header.first : length;
    for (int64_t layer = 0; layer < config->n_layer; layer++)
        if (config->layer_is_window[layer] && length - dst->layers[layer].n_slot > first)
            first = length - dst->layers[layer].n_slot;
    gs_kv_enlarge_pages(dst, length, INT64_MAX);
    for (int64_t layer = 0; layer < config->n_layer; layer++)
        if (!config->layer_is_window[layer])
            copy_slots(dst, src, layer, 0, length);
        else if (at)
            at = write_rings(dst, layer, &header, first, length, at);
        else
            copy_positions(dst, src, layer, first, length);
    dst->length = length;
    dst->ring_first = first;
    return GS_OK;
}
