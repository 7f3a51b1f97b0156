/*
 * One timeline's keys and values: in float32 for the exact forward, in bfloat16 and interleaved as its
 * kernels take them for the fast one. Full layers keep every position; window layers keep a ring of the
 * window and one step, so that a step of many tokens can be written whole before it is read.
 */
#ifndef GS_BACKEND_CPU_KV_H
#define GS_BACKEND_CPU_KV_H

#include "backend/backend.h"

enum gs_kv_format {
    GS_KV_F32,
    GS_KV_BF16, /* of each head the layout of struct gs_fast_attention */
};

struct gs_kv_layer {
    void *keys;                        /* F32: [n_kv_head][n_slot][d_head], rotated */
    void *values;                      /* F32: [n_kv_head][n_slot][d_head] */
    void *keys_memory, *values_memory; /* what is freed: keys and values begin on a line of 64 bytes in it */
    int64_t n_slot; /* position p lives in slot p mod n_slot; BF16: a multiple of GS_FAST_KEY_BLOCK */
};

struct gs_kv {
    const struct gs_config *config;
    enum gs_kv_format format;
    int64_t capacity;           /* tokens */
    int64_t length;             /* tokens whose keys and values are complete, in every layer */
    int64_t ring_first;         /* the first position that the rings still hold */
    int64_t least_slots;        /* of the smallest ring; the capacity if no layer has one */
    int64_t n_enlarged;         /* positions whose memory is in large pages, as far as the system has some */
    int64_t n_enlarged_run;     /* of the next ones: keys and values of a head, in order */
    struct gs_kv_layer *layers; /* [n_layer] */
};

/* max_step: the most tokens of one forward. */
uint64_t gs_kv_bytes(const struct gs_config *config, enum gs_kv_format format, int64_t capacity,
                     int64_t max_step);
gs_status gs_kv_open(const struct gs_config *config, enum gs_kv_format format, int64_t capacity,
                     int64_t max_step, struct gs_kv **out, struct gs_error *error);
void gs_kv_free(struct gs_kv *kv);

/* F32: where the key and value of a position go, and come from. */
float *gs_kv_key(const struct gs_kv *kv, int64_t layer, int64_t kv_head, int64_t position);
float *gs_kv_value(const struct gs_kv *kv, int64_t layer, int64_t kv_head, int64_t position);

/* BF16: puts them, [d_head] each; and where a head's are. */
void gs_kv_store_bf16(const struct gs_kv *kv, int64_t layer, int64_t kv_head, int64_t position,
                      const uint16_t *key, const uint16_t *value);
const uint16_t *gs_kv_head_keys(const struct gs_kv *kv, int64_t layer, int64_t kv_head);
const uint16_t *gs_kv_head_values(const struct gs_kv *kv, int64_t layer, int64_t kv_head);

/* To be told before positions up to length + n_tokens - 1 are written. */
void gs_kv_begin_write(struct gs_kv *kv, int64_t n_tokens);

int64_t gs_kv_length(const struct gs_kv *kv);
int64_t gs_kv_truncate(struct gs_kv *kv, int64_t length);
gs_status gs_kv_copy(struct gs_kv *dst, const struct gs_kv *src, struct gs_error *error);
gs_status gs_kv_copy_part(struct gs_kv *dst, const struct gs_kv *src, int64_t *at, int64_t most,
                          struct gs_error *error);
gs_status gs_kv_export(const struct gs_kv *kv, struct gs_buffer *out, struct gs_error *error);
gs_status gs_kv_import(struct gs_kv *kv, const void *bytes, size_t size, struct gs_error *error);

/* As backend.h has them. The bytes: a header, for each window layer, kv head and position the key and the
 * value. */
gs_status gs_kv_export_rings(const struct gs_kv *kv, struct gs_buffer *out, int64_t *least,
                             struct gs_error *error);
gs_status gs_kv_copy_prefix(struct gs_kv *dst, const struct gs_kv *src, int64_t length, const void *rings,
                            size_t size, struct gs_error *error);

#endif
