/*
 * Which tensors a gpt-oss checkpoint holds: their names in each layout, their shapes in terms of the
 * configuration, and where each goes in gs_weights. One table; the binder walks it.
 */
#ifndef GS_MODEL_WEIGHTS_TABLE_H
#define GS_MODEL_WEIGHTS_TABLE_H

#include "model/weights.h"

#define GS_MAX_RANK 4

enum gs_rule_kind {
    GS_RULE_DENSE,
    GS_RULE_DENSE_QKV, /* q, k and v in one matrix or bias, rows in this order */
    GS_RULE_BLOCKS,
    GS_RULE_SCALES,
    /* GGUF: codes and scales in one tensor, and gate and up, the even and the odd rows, in two. */
    GS_RULE_MXFP4,
    GS_RULE_MXFP4_EVEN,
    GS_RULE_MXFP4_ODD,
    GS_RULE_DENSE_EVEN, /* columns of a bias */
    GS_RULE_DENSE_ODD,
};

/* A size that the configuration gives; GS_DIM_NONE ends a shape. */
enum gs_dim {
    GS_DIM_NONE,
    GS_DIM_VOCAB,
    GS_DIM_MODEL,
    GS_DIM_FF,
    GS_DIM_MODEL_GROUPS, /* d_model / 32 */
    GS_DIM_FF_GROUPS,    /* d_ff / 32 */
    GS_DIM_GATE_UP,      /* 2 * d_ff */
    GS_DIM_HEADS,
    GS_DIM_QUERY, /* n_head * d_head */
    GS_DIM_KEY,   /* n_kv_head * d_head */
    GS_DIM_QKV,   /* the sum: query + 2 * key */
    GS_DIM_EXPERTS,
    GS_DIM_GROUP_BYTES, /* 16 */
};

struct gs_weight_rule {
    const char
        *name[GS_LAYOUT_COUNT]; /* by enum gs_layout, without the layer's prefix; NULL: not in that layout */
    enum gs_rule_kind kind;
    enum gs_dim shape[GS_MAX_RANK];
    size_t offset;   /* of a gs_matrix or gs_mxfp4_matrix in gs_layer_weights, or in gs_weights */
    bool per_expert; /* only n_active / n_expert of it takes part in a token */
};

extern const struct gs_weight_rule gs_layer_rules[];
extern const size_t gs_layer_rule_count;
extern const struct gs_weight_rule gs_outer_rules[];
extern const size_t gs_outer_rule_count;

int64_t gs_dim_size(const struct gs_config *config, enum gs_dim dim);

/* "model.layers.7.self_attn.sinks"; of a layout that has such a tensor; layer -1 for the outer tensors. false
 * if it does not fit. */
bool gs_weight_name(const struct gs_weight_rule *rule, enum gs_layout layout, int64_t layer, char *text,
                    size_t size);

#endif
