/*
 * config.json of either layout -> the numbers of this model, every one range-checked.
 *
 * Both spellings of a key that has two are read (experts_per_token / num_experts_per_tok, num_local_experts /
 * num_experts, rope_scaling / rope_parameters); where both stand in the file they must agree. A key that the
 * published files or older ones omit takes the value that transformers gives it. Keys that do not change the
 * arithmetic are ignored; keys that would change it in a way that is not implemented are refused.
 */
#ifndef GS_MODEL_CONFIG_H
#define GS_MODEL_CONFIG_H

#include "format/checkpoint.h"

/* Upper bounds of a configuration: wide for any model of this family, small enough to size arrays with. */
#define GS_MAX_LAYERS   1024
#define GS_MAX_HIDDEN   65536 /* d_model and d_ff */
#define GS_MAX_HEADS    1024
#define GS_MAX_D_HEAD   512
#define GS_MAX_EXPERTS  1024
#define GS_MAX_VOCAB    16777216
#define GS_MAX_CONTEXT  1048576 /* gs_sincos takes angles below 2^20 radians, and inv_freq is at most 1 */
#define GS_MAX_STOP_IDS 16

struct gs_config {
    int64_t n_layer;
    int64_t d_model; /* hidden size, a multiple of 32 */
    int64_t d_head;  /* even */
    int64_t n_head;  /* a multiple of n_kv_head */
    int64_t n_kv_head;
    int64_t n_expert;
    int64_t n_active; /* experts a token, <= n_expert */
    int64_t d_ff;     /* intermediate size of an expert, a multiple of 32 */
    int64_t n_vocab;  /* rows of embedding and head */
    int64_t window;   /* positions that a window layer sees, itself included */
    int64_t max_ctx;  /* max_position_embeddings */
    bool layer_is_window[GS_MAX_LAYERS];

    float rms_norm_eps;
    float swiglu_limit; /* 7 */
    float swiglu_alpha; /* 1.702 */

    /* rotary embedding; rope_factor 1 is plain RoPE */
    double rope_theta;
    double rope_factor;
    double rope_beta_fast;
    double rope_beta_slow;
    double rope_original_ctx;
    bool rope_truncate; /* round the ramp's bounds (not in the published models) */

    /* Stop ids: generation_config.json's eos_token_id, else config.json's; none if neither has one. */
    int32_t stop_ids[GS_MAX_STOP_IDS];
    size_t n_stop_ids;
};

/*
 * Reads the checkpoint's config.json and generation_config.json, or the metadata of a GGUF
 * (model/gguf_config). Errors name file, key, value and range.
 */
gs_status gs_config_read(const struct gs_checkpoint *checkpoint, struct gs_config *config,
                         struct gs_error *error);

/*
 * The same from a text, for tests and the fuzzer; `name` is used in messages. `layout` decides which spelling
 * a message about a missing key names: the text of either layout is read in both, since a download's
 * original/ folder may borrow the config.json beside it.
 */
gs_status gs_config_parse(const char *name, const char *text, size_t size, enum gs_layout layout,
                          struct gs_config *config, struct gs_error *error);

/* Replaces the stop ids of a parsed `config` by generation_config.json's, if it has any. */
gs_status gs_config_parse_generation(const char *name, const char *text, size_t size,
                                     struct gs_config *config, struct gs_error *error);

#endif
