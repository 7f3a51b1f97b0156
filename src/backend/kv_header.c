#include "backend/kv_header.h"

#include "base/checked.h"

#include <string.h>

int64_t gs_kv_slot_count(const struct gs_config *config, int64_t layer, int64_t capacity, int64_t max_step)
{
    int64_t ring = config->window + max_step;
    return config->layer_is_window[layer] && ring < capacity ? ring : capacity;
}

int64_t gs_kv_first_held(const struct gs_config *config, int64_t layer, int64_t ring_first)
{
    return config->layer_is_window[layer] ? ring_first : 0;
}

int64_t gs_kv_keep(int64_t first, int64_t length, int64_t n_slot, int64_t *ring_first)
{
    int64_t fits = length - n_slot, kept = fits > first ? fits : first;
    *ring_first = kept > *ring_first ? kept : *ring_first;
    return kept;
}

gs_status gs_kv_check_copy(bool alike, int64_t capacity, int64_t length, struct gs_error *error)
{
    if (alike && capacity >= length)
        return GS_OK;
    return gs_fail(error, GS_INVALID_ARGUMENT, "a cache of %lld tokens cannot take a copy of %lld tokens",
                   (long long)capacity, (long long)length);
}

int64_t gs_kv_cut(int64_t held, int64_t length, int64_t window, int64_t *ring_first)
{
    if (length >= held)
        return held;
    int64_t first_seen = length - (window - 1);
    bool whole = *ring_first == 0 || first_seen >= *ring_first;
    int64_t left = whole && length > 0 ? length : 0;
    if (left == 0)
        *ring_first = 0;
    return left;
}

struct gs_kv_header gs_kv_header_make(const char *magic, const struct gs_config *config, int64_t length,
                                      int64_t ring_first)
{
    struct gs_kv_header header = {.length = length,
                                  .ring_first = ring_first,
                                  .n_layer = config->n_layer,
                                  .n_kv_head = config->n_kv_head,
                                  .d_head = config->d_head,
                                  .window = config->window};
    memcpy(header.magic, magic, sizeof header.magic);
    return header;
}

/* Bytes that follow a header; 0 if they would overflow. */
static uint64_t body_bytes(const struct gs_config *config, const struct gs_kv_header *header,
                           uint64_t position_bytes)
{
    uint64_t positions = 0, bytes = 0;
    for (int64_t layer = 0; layer < config->n_layer; layer++) {
        int64_t first = gs_kv_first_held(config, layer, header->ring_first);
        if (!gs_add_u64(positions, (uint64_t)(header->length - first), &positions))
            return 0;
    }
    return gs_mul_u64(positions, position_bytes, &bytes) ? bytes : 0;
}

gs_status gs_kv_header_read(const struct gs_kv_header *own, const struct gs_config *config, int64_t capacity,
                            uint64_t position_bytes, const void *bytes, size_t size, struct gs_kv_header *out,
                            struct gs_error *error)
{
    if (size < sizeof *out)
        return gs_fail(error, GS_MALFORMED, "an exported cache of %zu bytes is shorter than its header",
                       size);
    memcpy(out, bytes, sizeof *out);
    if (memcmp(out->magic, own->magic, sizeof own->magic) != 0 || out->n_layer != own->n_layer ||
        out->n_kv_head != own->n_kv_head || out->d_head != own->d_head || out->window != own->window)
        return gs_fail(error, GS_MALFORMED,
                       "the exported cache is of another model or backend, or of another precision");
    if (out->length < 0 || out->length > capacity || out->ring_first < 0 || out->ring_first > out->length ||
        size - sizeof *out != body_bytes(config, out, position_bytes))
        return gs_fail(error, GS_MALFORMED, "an exported cache of %zu bytes does not hold %lld tokens", size,
                       (long long)out->length);
    if (out->ring_first > 0 && out->length - out->ring_first < own->window - 1)
        return gs_fail(error, GS_MALFORMED, "the exported cache lacks positions of the window");
    return GS_OK;
}
