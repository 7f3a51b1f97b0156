/*
 * A Metal device: the model's weights where they lie (in the file's pages, or in copies), the scratch that
 * kernels hand over in, and the compiled kernels. Host and GPU share all of this memory: results are read
 * where they were written, once their command buffer is done.
 */
#ifndef GS_BACKEND_METAL_DEVICE_H
#define GS_BACKEND_METAL_DEVICE_H

#include "backend/backend.h"
#include "backend/metal/kernels.h"
#include "backend/metal/metal.h"

#define GS_METAL_EXACT_ROWS   256  /* of one forward in exact precision */
#define GS_METAL_FAST_ROWS    1024 /* and in fast */
#define GS_METAL_LOGIT_ROWS   64   /* whose logits are computed at a time */
#define GS_METAL_SPLIT_ROWS   4    /* up to so many rows share their keys between threadgroups */
/* From so many rows on, in fast precision: the tile kernels; from 2 on, those for few. */
#define GS_METAL_TILED_ROWS   16
#define GS_METAL_CHAIN_TOKENS GS_CHAIN_TOKENS

struct gs_metal_matrix {
    struct gs_metal_place at;
    uint32_t type; /* enum gs_metal_type */
    uint32_t scales_at;
    uint32_t rows, columns;
    uint64_t bytes; /* that a product reads */
};

struct gs_metal_experts {
    struct gs_metal_place codes, scales;
    struct gs_metal_place bias; /* float [n_expert][rows] */
    uint32_t rows, columns;
};

/* Vectors are float32, whatever the file has. */
struct gs_metal_layer {
    struct gs_metal_place attention_norm, sinks, mlp_norm;
    struct gs_metal_matrix q, k, v, o, router;
    struct gs_metal_place q_bias, k_bias, v_bias, o_bias, router_bias;
    struct gs_metal_experts gate_up, down;
};

struct gs_device {
    struct gs_metal metal;
    struct gs_metal_tuning tuning;
    struct gs_metal_pipeline pipelines[GS_METAL_KERNEL_COUNT];
    uint64_t n_compiled, n_kept; /* of them: compiled by this process, found on disk */
    char kernels_note[600];      /* the same in words */
    enum gs_precision precision;
    enum gs_weight_format format;
    enum gs_control control;
    enum gs_decode decode;
    size_t n_threads; /* that copy weights; 0: one a core */

    const struct gs_weights *weights; /* the host's views; NULL: not loaded */
    struct gs_config config;          /* theirs, as a control spoils it */
    struct gs_yarn yarn;
    struct gs_metal_args args; /* the model's sizes; the rest is of a dispatch */
    int64_t max_rows;

    struct gs_metal_memory *memories; /* [n_memories]: mapped pages and copies of weights */
    size_t n_memories, memory_capacity;
    struct gs_metal_layer *layers; /* [n_layer] */
    struct gs_metal_matrix embedding, head;
    struct gs_metal_place norm;
    uint64_t mapped_bytes, copied_bytes, scratch_bytes;

    struct gs_metal_memory
        scratch[GS_METAL_BUFFER_COUNT];  /* by index; those that are not scratch are empty */
    struct gs_metal_pass *chain;         /* [GS_METAL_CHAIN_TOKENS] */
    const float *logits;                 /* [n_logit_rows][n_vocab] of the last forward */
    float *many_logits;                  /* where they are more than GS_METAL_LOGIT_ROWS */
    size_t many_capacity, n_logit_rows;  /* rows */
    bool is_chosen[GS_METAL_LOGIT_ROWS]; /* of each of up to so many: was a token wanted? */

    float *tapped; /* [max_rows][n_active]: what a tap is shown of whole numbers; NULL: none yet */
    gs_tap_fn *tap;
    void *tap_user;
    struct gs_backend_stats stats;
};

/* One timeline's cache: a table of where the layers lie, then the layers, in one piece of memory. */
struct gs_kv {
    struct gs_device *device;
    int64_t capacity;
    int64_t length;      /* tokens whose keys and values are complete, in every layer */
    int64_t ring_first;  /* the first position that the rings still hold */
    int64_t least_slots; /* of the smallest ring; the capacity if no layer has one */
    struct gs_metal_memory memory;
    struct gs_metal_kv_layer *layers; /* [n_layer], in that memory */
};

/* device.c: memory for weights, released with the device. */
gs_status gs_metal_keep(struct gs_device *device, const struct gs_metal_memory *memory,
                        struct gs_error *error);

/* load.c: layers, embedding, head, norm. */
gs_status gs_metal_load_weights(struct gs_device *device, gs_progress_fn *progress, void *progress_user,
                                struct gs_error *error);

/* kv.c. To be told before positions up to length + n_tokens - 1 are written. */
void gs_metal_kv_begin_write(struct gs_kv *kv, int64_t n_tokens);
uint64_t gs_metal_kv_bytes(const struct gs_device *device, int64_t capacity);
gs_status gs_metal_kv_create(struct gs_device *device, int64_t capacity, struct gs_kv **out,
                             struct gs_error *error);
void gs_metal_kv_free(struct gs_kv *kv);
int64_t gs_metal_kv_length(const struct gs_kv *kv);
int64_t gs_metal_kv_truncate(struct gs_kv *kv, int64_t length);
gs_status gs_metal_kv_copy(struct gs_kv *dst, const struct gs_kv *src, struct gs_error *error);
gs_status gs_metal_kv_export(const struct gs_kv *kv, struct gs_buffer *out, struct gs_error *error);
gs_status gs_metal_kv_import(struct gs_kv *kv, const void *bytes, size_t size, struct gs_error *error);

/* forward.c */
gs_status gs_metal_forward(struct gs_device *device, const struct gs_step *steps, size_t n_steps,
                           const _Atomic bool *cancelled, struct gs_error *error);
gs_status gs_metal_chain(struct gs_device *device, struct gs_kv *kv, int32_t token,
                         const struct gs_draw *draws, int32_t *out, size_t n, struct gs_error *error);

#endif
