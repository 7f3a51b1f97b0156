#include "tests/support/tiny_gguf.h"

#include "tests/support/check.h"
#include "tests/support/files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- pieces */

void gguf_put(struct gs_buffer *buffer, const void *bytes, size_t size)
{
    if (size > 0)
        assert_int_equal(gs_buffer_append(buffer, bytes, size, NULL), GS_OK);
}

void gguf_put_u32(struct gs_buffer *buffer, uint32_t value)
{
    gguf_put(buffer, &value, sizeof value);
}

void gguf_put_u64(struct gs_buffer *buffer, uint64_t value)
{
    gguf_put(buffer, &value, sizeof value);
}

void gguf_put_text(struct gs_buffer *buffer, const char *text, size_t size)
{
    gguf_put_u64(buffer, size);
    gguf_put(buffer, text, size);
}

void gguf_value(struct gguf_file *file, const char *key, uint32_t type)
{
    gguf_put_text(&file->entries, key, strlen(key));
    gguf_put_u32(&file->entries, type);
    file->n_entry++;
}

void gguf_array(struct gguf_file *file, const char *key, uint32_t type, uint64_t count)
{
    gguf_value(file, key, GS_GGUF_ARRAY);
    gguf_put_u32(&file->entries, type);
    gguf_put_u64(&file->entries, count);
}

void gguf_u32(struct gguf_file *file, const char *key, uint32_t value)
{
    gguf_value(file, key, GS_GGUF_U32);
    gguf_put_u32(&file->entries, value);
}

void gguf_f32(struct gguf_file *file, const char *key, float value)
{
    gguf_value(file, key, GS_GGUF_F32);
    gguf_put(&file->entries, &value, sizeof value);
}

void gguf_text(struct gguf_file *file, const char *key, const char *text)
{
    gguf_value(file, key, GS_GGUF_STRING);
    gguf_put_text(&file->entries, text, strlen(text));
}

static void pad(struct gs_buffer *buffer, uint32_t alignment)
{
    alignment = alignment ? alignment : GS_GGUF_DEFAULT_ALIGNMENT;
    while (buffer->size % alignment != 0)
        gguf_put(buffer, "", 1);
}

void gguf_tensor(struct gguf_file *file, const char *name, uint32_t type, uint32_t rank, const uint64_t *ne,
                 const void *data, uint64_t bytes)
{
    gguf_put_text(&file->infos, name, strlen(name));
    gguf_put_u32(&file->infos, rank);
    for (uint32_t i = 0; i < rank; i++)
        gguf_put_u64(&file->infos, ne[i]);
    gguf_put_u32(&file->infos, type);
    gguf_put_u64(&file->infos, file->data.size);
    gguf_put(&file->data, data, bytes);
    pad(&file->data, file->alignment);
    file->n_tensor++;
}

struct gs_buffer gguf_finish(struct gguf_file *file)
{
    struct gs_buffer out = {0};
    if (file->alignment)
        gguf_u32(file, "general.alignment", file->alignment);
    gguf_put(&out, "GGUF", 4);
    gguf_put_u32(&out, file->version ? file->version : 3);
    gguf_put_u64(&out, file->n_tensor);
    gguf_put_u64(&out, file->n_entry);
    gguf_put(&out, file->entries.data, file->entries.size);
    gguf_put(&out, file->infos.data, file->infos.size);
    pad(&out, file->alignment);
    gguf_put(&out, file->data.data, file->data.size);
    gs_buffer_free(&file->entries);
    gs_buffer_free(&file->infos);
    gs_buffer_free(&file->data);
    return out;
}

/* ---------------------------------------------------------------- values */

static float bf16_at(const unsigned char *data, uint64_t index)
{
    uint16_t stored;
    memcpy(&stored, data + 2 * index, sizeof stored);
    uint32_t bits = (uint32_t)stored << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Of normal half-precision numbers with at most 11 significant bits, and zero: exact. */
static uint16_t half_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t magnitude = bits & 0x7FFFFFFF;
    return (uint16_t)((bits >> 16 & 0x8000) | (magnitude ? magnitude - (112u << 23) : 0) >> 13);
}

static float float_of_half(uint16_t half)
{
    uint32_t bits = (uint32_t)(half & 0x8000) << 16 |
                    ((half & 0x7FFFu) ? ((uint32_t)(half & 0x7FFF) << 13) + (112u << 23) : 0);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void tiny_q8_0_quantize(const float *values, uint64_t count, unsigned char *blocks)
{
    for (uint64_t block = 0; block < count / 32; block++, values += 32, blocks += 34) {
        float largest = 0.0f;
        for (int i = 0; i < 32; i++)
            largest = fmaxf(largest, fabsf(values[i]));
        uint16_t scale = half_of(largest / 127.0f);
        float d = float_of_half(scale);
        memcpy(blocks, &scale, sizeof scale);
        for (int i = 0; i < 32; i++) {
            float steps = d > 0.0f ? roundf(values[i] / d) : 0.0f;
            steps = steps > 127.0f ? 127.0f : steps < -128.0f ? -128.0f : steps;
            blocks[2 + i] = (unsigned char)(int8_t)steps;
        }
    }
}

void tiny_q8_0_dequantize(const unsigned char *blocks, uint64_t count, float *values)
{
    for (uint64_t i = 0; i < count; i++) {
        const unsigned char *block = blocks + i / 32 * 34;
        uint16_t scale;
        memcpy(&scale, block, sizeof scale);
        values[i] = float_of_half(scale) * (float)(int8_t)block[2 + i % 32];
    }
}

/* ---------------------------------------------------------------- tensors of a model */

static uint64_t count_of(const struct tiny_tensor *tensor)
{
    uint64_t count = 1;
    for (size_t i = 0; i < tensor->rank; i++)
        count *= tensor->shape[i];
    return count;
}

/* Elements first, first + step, ... of a BF16 tensor as one of ggml's types. */
static void put_dense(struct gguf_file *file, const char *name, const struct tiny_tensor *tensor,
                      enum gs_dtype dtype, uint64_t first, uint64_t step)
{
    uint64_t count = count_of(tensor) / step, bytes, ne[2];
    float *values = malloc(count * sizeof *values);
    unsigned char *stored = malloc(count * sizeof *values);
    uint32_t type = GGUF_F32;
    assert_true(values && stored && tensor->dtype == GS_DTYPE_BF16);
    for (uint64_t i = 0; i < count; i++) {
        values[i] = bf16_at(tensor->data, first + i * step);
        uint16_t half = half_of(values[i]);
        if (dtype == GS_DTYPE_F16)
            memcpy(stored + 2 * i, &half, sizeof half);
        if (dtype == GS_DTYPE_BF16)
            memcpy(stored + 2 * i, tensor->data + 2 * (first + i * step), 2);
        if (dtype == GS_DTYPE_F32)
            memcpy(stored + 4 * i, &values[i], sizeof values[i]);
    }
    bytes = count * gs_dtype_block_bytes(dtype) / gs_dtype_block_size(dtype);
    if (dtype == GS_DTYPE_Q8_0) {
        tiny_q8_0_quantize(values, count, stored);
        type = GGUF_Q8_0;
    } else if (dtype != GS_DTYPE_F32) {
        type = dtype == GS_DTYPE_F16 ? GGUF_F16 : GGUF_BF16;
    }
    ne[0] = tensor->shape[tensor->rank - 1] / step;
    ne[1] = tensor->shape[0];
    gguf_tensor(file, name, type, (uint32_t)tensor->rank, ne, stored, bytes);
    free(values);
    free(stored);
}

static unsigned code_at(const unsigned char *codes, unsigned element)
{
    return (unsigned)codes[element / 2] >> (element % 2 * 4) & 15u;
}

/* Rows first, first + step, ... of each expert, repacked. */
static void put_experts(struct gguf_file *file, const char *name, const struct tiny_tensor *blocks,
                        const struct tiny_tensor *scales, uint64_t first, uint64_t step)
{
    uint64_t n_expert = blocks->shape[0], rows = blocks->shape[1], groups = blocks->shape[2];
    struct gs_buffer data = {0};
    for (uint64_t row = first; row < n_expert * rows; row += step) {
        for (uint64_t group = row * groups; group < (row + 1) * groups; group++) {
            const unsigned char *codes = blocks->data + group * 16;
            gguf_put(&data, scales->data + group, 1);
            for (unsigned k = 0; k < 16; k++) {
                unsigned char pair = (unsigned char)(code_at(codes, k) | code_at(codes, k + 16) << 4);
                gguf_put(&data, &pair, 1);
            }
        }
    }
    gguf_tensor(file, name, GGUF_MXFP4, 3, (uint64_t[]){groups * 32, rows / step, n_expert}, data.data,
                data.size);
    gs_buffer_free(&data);
}

static const struct {
    const char *from, *to;
} renamed[] = {
    {"input_layernorm.weight", "attn_norm.weight"},
    {"self_attn.q_proj.weight", "attn_q.weight"},
    {"self_attn.q_proj.bias", "attn_q.bias"},
    {"self_attn.k_proj.weight", "attn_k.weight"},
    {"self_attn.k_proj.bias", "attn_k.bias"},
    {"self_attn.v_proj.weight", "attn_v.weight"},
    {"self_attn.v_proj.bias", "attn_v.bias"},
    {"self_attn.o_proj.weight", "attn_output.weight"},
    {"self_attn.o_proj.bias", "attn_output.bias"},
    {"self_attn.sinks", "attn_sinks.weight"},
    {"post_attention_layernorm.weight", "post_attention_norm.weight"},
    {"mlp.router.weight", "ffn_gate_inp.weight"},
    {"mlp.router.bias", "ffn_gate_inp.bias"},
    {"mlp.experts.down_proj_bias", "ffn_down_exps.bias"},
};

static bool is_matrix(const struct tiny_tensor *tensor)
{
    return tensor->rank == 2 && !strstr(tensor->name, "router") && !strstr(tensor->name, "_bias");
}

static struct tiny_tensor *in_layer(const struct tiny_model *model, int64_t layer, const char *suffix)
{
    char name[128];
    snprintf(name, sizeof name, "model.layers.%lld.%s", (long long)layer, suffix);
    return tiny_model_find((struct tiny_model *)model, name);
}

static enum gs_dtype dtype_of(const struct tiny_gguf_options *options, const struct tiny_tensor *tensor)
{
    if (!is_matrix(tensor))
        return GS_DTYPE_F32;
    if (options->mixed && strstr(tensor->name, "k_proj"))
        return options->keys;
    return options->mixed && strstr(tensor->name, "v_proj") ? options->values : options->dense;
}

static void put_layer(struct gguf_file *file, const struct tiny_model *model, int64_t layer,
                      const struct tiny_gguf_options *options)
{
    char name[64];
    for (size_t i = 0; i < sizeof renamed / sizeof renamed[0]; i++) {
        const struct tiny_tensor *tensor = in_layer(model, layer, renamed[i].from);
        snprintf(name, sizeof name, "blk.%lld.%s", (long long)layer, renamed[i].to);
        put_dense(file, name, tensor, dtype_of(options, tensor), 0, 1);
    }
    const struct tiny_tensor *blocks = in_layer(model, layer, "mlp.experts.gate_up_proj_blocks");
    const struct tiny_tensor *scales = in_layer(model, layer, "mlp.experts.gate_up_proj_scales");
    const struct tiny_tensor *bias = in_layer(model, layer, "mlp.experts.gate_up_proj_bias");
    for (uint64_t odd = 0; odd < 2; odd++) {
        const char *half = odd ? "up" : "gate";
        snprintf(name, sizeof name, "blk.%lld.ffn_%s_exps.weight", (long long)layer, half);
        put_experts(file, name, blocks, scales, odd, 2);
        snprintf(name, sizeof name, "blk.%lld.ffn_%s_exps.bias", (long long)layer, half);
        put_dense(file, name, bias, GS_DTYPE_F32, odd, 2);
    }
    snprintf(name, sizeof name, "blk.%lld.ffn_down_exps.weight", (long long)layer);
    put_experts(file, name, in_layer(model, layer, "mlp.experts.down_proj_blocks"),
                in_layer(model, layer, "mlp.experts.down_proj_scales"), 0, 1);
}

static void put_outer(struct gguf_file *file, const struct tiny_model *model, enum gs_dtype dense)
{
    struct tiny_model *m = (struct tiny_model *)model;
    put_dense(file, "token_embd.weight", tiny_model_find(m, "model.embed_tokens.weight"), dense, 0, 1);
    put_dense(file, "output_norm.weight", tiny_model_find(m, "model.norm.weight"), GS_DTYPE_F32, 0, 1);
    put_dense(file, "output.weight", tiny_model_find(m, "lm_head.weight"), dense, 0, 1);
}

/* ---------------------------------------------------------------- metadata of a model */

static void put_vocabulary(struct gguf_file *file, int64_t n_vocab)
{
    static const char *const last[] = {"<|endoftext|>", "<|return|>", "<|call|>"};
    gguf_text(file, "tokenizer.ggml.model", "gpt2");
    gguf_text(file, "tokenizer.ggml.pre", "gpt-4o");
    gguf_array(file, "tokenizer.ggml.tokens", GS_GGUF_STRING, (uint64_t)n_vocab);
    for (int64_t i = 0; i < n_vocab; i++) {
        char text[24];
        snprintf(text, sizeof text, "t%lld", (long long)i);
        const char *token = i < n_vocab - 3 ? text : last[i - (n_vocab - 3)];
        gguf_put_text(&file->entries, token, strlen(token));
    }
    gguf_array(file, "tokenizer.ggml.token_type", GS_GGUF_I32, (uint64_t)n_vocab);
    for (int64_t i = 0; i < n_vocab; i++)
        gguf_put_u32(&file->entries, i < n_vocab - 3 ? 1 : 3);
    gguf_u32(file, "tokenizer.ggml.eos_token_id", (uint32_t)n_vocab - 2);
}

static void put_metadata(struct gguf_file *file, const struct tiny_options *o, bool has_vocabulary)
{
    gguf_text(file, "general.architecture", "gpt-oss");
    gguf_u32(file, "gpt-oss.block_count", (uint32_t)o->n_layer);
    gguf_u32(file, "gpt-oss.context_length", (uint32_t)o->max_ctx);
    gguf_u32(file, "gpt-oss.embedding_length", (uint32_t)o->d_model);
    gguf_u32(file, "gpt-oss.feed_forward_length", (uint32_t)o->d_ff);
    gguf_u32(file, "gpt-oss.attention.head_count", (uint32_t)o->n_head);
    gguf_u32(file, "gpt-oss.attention.head_count_kv", (uint32_t)o->n_kv_head);
    gguf_f32(file, "gpt-oss.rope.freq_base", 150000.0f);
    gguf_f32(file, "gpt-oss.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_u32(file, "gpt-oss.expert_count", (uint32_t)o->n_expert);
    gguf_u32(file, "gpt-oss.expert_used_count", (uint32_t)o->n_active);
    gguf_u32(file, "gpt-oss.attention.key_length", (uint32_t)o->d_head);
    gguf_u32(file, "gpt-oss.attention.value_length", (uint32_t)o->d_head);
    gguf_u32(file, "gpt-oss.attention.sliding_window", (uint32_t)o->window);
    gguf_u32(file, "gpt-oss.expert_feed_forward_length", (uint32_t)o->d_ff);
    gguf_text(file, "gpt-oss.rope.scaling.type", "yarn");
    gguf_f32(file, "gpt-oss.rope.scaling.factor", (float)o->rope_factor);
    gguf_u32(file, "gpt-oss.rope.scaling.original_context_length", (uint32_t)(o->max_ctx / o->rope_factor));
    if (has_vocabulary)
        put_vocabulary(file, o->n_vocab);
}

struct gguf_file tiny_gguf_begin(const struct tiny_model *model, const struct tiny_gguf_options *options)
{
    struct gguf_file file = {.version = options->version, .alignment = options->alignment};
    put_metadata(&file, &model->options, options->has_vocabulary);
    put_outer(&file, model, options->dense);
    for (int64_t i = 0; i < model->options.n_layer; i++)
        put_layer(&file, model, i, options);
    return file;
}

struct gs_buffer tiny_gguf_make(const struct tiny_model *model, const struct tiny_gguf_options *options)
{
    struct gguf_file file = tiny_gguf_begin(model, options);
    return gguf_finish(&file);
}

static void write_part(const struct tiny_model *model, const struct tiny_gguf_options *options, size_t part,
                       const char *path)
{
    struct gguf_file file = {.version = options->version, .alignment = options->alignment};
    size_t n = options->n_parts;
    if (part == 0) {
        put_metadata(&file, &model->options, options->has_vocabulary);
        put_outer(&file, model, options->dense);
    }
    gguf_value(&file, "split.no", GS_GGUF_U16);
    gguf_put(&file.entries, &(uint16_t){(uint16_t)part}, 2);
    gguf_value(&file, "split.count", GS_GGUF_U16);
    gguf_put(&file.entries, &(uint16_t){(uint16_t)n}, 2);
    for (int64_t i = 0; i < model->options.n_layer; i++) {
        if ((size_t)i * n / (size_t)model->options.n_layer == part)
            put_layer(&file, model, i, options);
    }
    struct gs_buffer bytes = gguf_finish(&file);
    test_file_write(path, bytes.data, bytes.size);
    gs_buffer_free(&bytes);
}

void tiny_gguf_write(const struct tiny_model *model, const struct tiny_gguf_options *options,
                     const char *folder, const char *stem)
{
    char name[128];
    if (options->n_parts > 1) {
        for (size_t i = 0; i < options->n_parts; i++) {
            snprintf(name, sizeof name, "%s-%05zu-of-%05zu.gguf", stem, i + 1, options->n_parts);
            write_part(model, options, i, test_path_join(folder, name).text);
        }
        return;
    }
    struct gs_buffer bytes = tiny_gguf_make(model, options);
    snprintf(name, sizeof name, "%s.gguf", stem);
    test_file_write(test_path_join(folder, name).text, bytes.data, bytes.size);
    gs_buffer_free(&bytes);
}
