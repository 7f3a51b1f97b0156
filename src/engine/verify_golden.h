/*
 * A golden: what transformers computed for a sequence of tokens, component by component
 * (tools/oracle/README.md has the format). Untrusted like any file: shapes and positions are checked against
 * the model.
 */
#ifndef GS_ENGINE_VERIFY_GOLDEN_H
#define GS_ENGINE_VERIFY_GOLDEN_H

#include "engine/compare.h"
#include "format/safetensors.h"

struct gs_golden {
    struct gs_file_map *map;
    struct gs_arena arena;
    struct gs_safetensors file;
    bool is_complete;      /* float32, every component; otherwise choices, logits and argmax in bfloat16 */
    const int32_t *tokens; /* [n_tokens] */
    size_t n_tokens;
    struct gs_record *record; /* its values, positions as the file has them */

    /* of a complete golden */
    const float *inv_freq; /* [d_head/2] */
    float attention_scaling;
    const int32_t *rope_positions; /* [n_rope] */
    size_t n_rope;
    const float *cosine, *sine;   /* [n_rope][d_head/2] */
    const int64_t **gate_up_sums; /* [n_layer][n_expert]: checksums of dequantised experts */
    const int64_t **down_sums;
};

/* GS_MALFORMED names the tensor that does not fit the model. */
gs_status gs_golden_open(const char *path, const struct gs_config *config, struct gs_golden **out,
                         struct gs_error *error);
void gs_golden_close(struct gs_golden *golden);

#endif
