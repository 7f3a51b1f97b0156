/*
 * A small random gpt-oss checkpoint, made in memory, changed at will, written to a folder.
 *
 * A tensor's values depend on the seed and on what it is (its Hugging Face name), not on layout, dtype or
 * sharding: dense values are multiples of a power of two with at most 8 significant bits, so that BF16, F16
 * and F32 hold them alike. They are sized so that activations stay of order one.
 */
#ifndef TESTS_SUPPORT_TINY_MODEL_H
#define TESTS_SUPPORT_TINY_MODEL_H

#include "format/checkpoint.h"

struct tiny_options {
    int64_t n_layer, d_model, d_head, n_head, n_kv_head, n_expert, n_active, d_ff, n_vocab;
    int64_t window;
    int64_t max_ctx;     /* a multiple of rope_factor */
    int64_t rope_factor; /* the original context is max_ctx / rope_factor */
    enum gs_layout layout;
    enum gs_dtype dense; /* BF16, F16 or F32 */
    size_t n_shards;     /* 1: one model.safetensors without an index */
    uint64_t seed;
};

/* 4 layers of d_model 64, 8 heads of 16 over 2 key heads, 2 of 8 experts of d_ff 96, 128 tokens, window 16.
 */
struct tiny_options tiny_options_default(void);

/* Whose longest context takes 256 GiB of keys and values in float32. */
struct tiny_options tiny_options_long_context(void);

struct tiny_tensor {
    char name[128];
    enum gs_dtype dtype;
    size_t rank;
    uint64_t shape[4];
    unsigned char *data;
    uint64_t bytes;
};

struct tiny_model {
    struct tiny_options options;
    struct tiny_tensor *tensors;
    size_t count;
    char *config;            /* the text of config.json */
    char *generation_config; /* of generation_config.json; NULL: not written */
};

struct tiny_model *tiny_model_make(const struct tiny_options *options);
void tiny_model_free(struct tiny_model *model);

/* The tensor of this name, which must exist. */
struct tiny_tensor *tiny_model_find(struct tiny_model *model, const char *name);
void tiny_model_drop(struct tiny_model *model, const char *name);

/* A further tensor, all zeros. */
struct tiny_tensor *tiny_model_add(struct tiny_model *model, const char *name, enum gs_dtype dtype,
                                   size_t rank, const uint64_t *shape);

/* Replaces the first `from` in config.json, which must be there. */
void tiny_model_edit_config(struct tiny_model *model, const char *from, const char *to);

/* Writes config.json, generation_config.json, the shards and, for several in HF layout, their index. */
void tiny_model_write(const struct tiny_model *model, const char *folder);

/* All of it at once. */
void tiny_checkpoint_write(const struct tiny_options *options, const char *folder);

#endif
