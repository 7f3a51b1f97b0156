/*
 * A checkpoint's views -> this model's weights: every expected tensor exactly once, with the right type and
 * shape, and no other tensor. Nothing is copied or converted; pointers live as long as the checkpoint.
 *
 * Strict on purpose: an extra tensor is refused by its name, even a buffer such as rotary_emb.inv_freq that
 * could be ignored, because a tensor that is not understood may be one that ought to change the result.
 */
#ifndef GS_MODEL_WEIGHTS_H
#define GS_MODEL_WEIGHTS_H

#include "base/arena.h"
#include "model/config.h"
#include "model/matrix.h"
#include "model/mxfp4.h"

struct gs_layer_weights {
    struct gs_matrix attention_norm; /* [d_model] */
    struct gs_matrix q, k, v;        /* [n_head*d_head][d_model], [n_kv_head*d_head][d_model] twice */
    struct gs_matrix q_bias, k_bias, v_bias;
    struct gs_matrix sinks;         /* [n_head] */
    struct gs_matrix o;             /* [d_model][n_head*d_head] */
    struct gs_matrix o_bias;        /* [d_model] */
    struct gs_matrix mlp_norm;      /* [d_model] */
    struct gs_matrix router;        /* [n_expert][d_model] */
    struct gs_matrix router_bias;   /* [n_expert] */
    struct gs_mxfp4_matrix gate_up; /* rows 2*d_ff (gate u = row 2u, up u = row 2u+1), columns d_model */
    struct gs_matrix gate_up_bias;  /* [n_expert][2*d_ff] */
    struct gs_mxfp4_matrix down;    /* rows d_model, columns d_ff */
    struct gs_matrix down_bias;     /* [n_expert][d_model] */
};

struct gs_weights {
    struct gs_config config;
    struct gs_matrix embedding;      /* [n_vocab][d_model] */
    struct gs_matrix norm;           /* [d_model] */
    struct gs_matrix head;           /* [n_vocab][d_model] */
    struct gs_layer_weights *layers; /* [n_layer] */
    uint64_t n_param;                /* parameters, an MXFP4 element counting as one */
    uint64_t n_param_active;         /* without the embedding, n_active experts a layer */
    uint64_t bytes;                  /* of all bound tensors */
    struct gs_arena arena;
};

/*
 * Binds and verifies: presence, dtype (BF16, F32 or F16 for dense tensors; U8 for MXFP4; in a GGUF also Q8_0,
 * and MXFP4 as such), shape, no NaN scale (byte 255). GS_MALFORMED names file, tensor, what was found and
 * what would be right; a checkpoint whose experts were dequantised is GS_UNSUPPORTED. `progress` (may be
 * NULL) counts bytes of scales checked. A GGUF's scales lie between the codes, so that looking at them would
 * mean to read the whole file: they are not checked, and a NaN among them shows as GS_NON_FINITE logits.
 */
gs_status gs_weights_bind(const struct gs_checkpoint *checkpoint, gs_progress_fn *progress,
                          void *progress_user, struct gs_weights **out, struct gs_error *error);
void gs_weights_free(struct gs_weights *weights);

#endif
