#include "tests/support/tiny_model.h"

#include "base/buffer.h"
#include "base/hash.h"
#include "tests/support/check.h"
#include "tests/support/files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tiny_options tiny_options_default(void)
{
    return (struct tiny_options){.n_layer = 4,
                                 .d_model = 64,
                                 .d_head = 16,
                                 .n_head = 8,
                                 .n_kv_head = 2,
                                 .n_expert = 8,
                                 .n_active = 2,
                                 .d_ff = 96,
                                 .n_vocab = 128,
                                 .window = 16,
                                 .max_ctx = 4096,
                                 .rope_factor = 32,
                                 .layout = GS_LAYOUT_HUGGING_FACE,
                                 .dense = GS_DTYPE_BF16,
                                 .n_shards = 1,
                                 .seed = 1};
}

struct tiny_options tiny_options_long_context(void)
{
    struct tiny_options options = tiny_options_default();
    options.max_ctx = 1 << 20;
    options.n_layer = 8;
    options.n_head = options.n_kv_head = 64;
    options.d_head = 128;
    return options;
}

/* ---------------------------------------------------------------- random values */

static uint64_t next_random(uint64_t *state)
{
    /* splitmix64 (Steele, Lea, Flood 2014) */
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Nearly normal, of mean 0 and variance 1: the sum of the word's four 16-bit parts. */
static double next_normal(uint64_t *state)
{
    uint64_t word = next_random(state);
    double sum = 0.0;
    for (int i = 0; i < 4; i++)
        sum += (double)(word >> (16 * i) & 0xFFFF) / 65536.0 - 0.5;
    return sum * 1.7320508075688772;
}

struct spread {
    double mean, deviation;
    double unit; /* values are multiples of it, at most 255 times */
};

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text);
    return length >= strlen(end) && strcmp(text + length - strlen(end), end) == 0;
}

static struct spread spread_of(const char *hf_name, uint64_t columns)
{
    if (ends_with(hf_name, "norm.weight"))
        return (struct spread){1.0, 0.1, 1.0 / 128};
    if (ends_with(hf_name, "sinks"))
        return (struct spread){0.0, 1.0, 1.0 / 64};
    if (ends_with(hf_name, "embed_tokens.weight"))
        return (struct spread){0.0, 0.7, 1.0 / 64};
    if (ends_with(hf_name, "bias"))
        return (struct spread){0.0, 0.1, 1.0 / 256};
    return (struct spread){0.0, 1.0 / sqrt((double)columns), 1.0 / 256};
}

/* A value of at most 8 significant bits, no subnormal of any of the three types. */
static void store_dense(unsigned char *at, enum gs_dtype dtype, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (dtype == GS_DTYPE_F32) {
        memcpy(at, &bits, 4);
        return;
    }
    uint16_t half = (uint16_t)(bits >> 16);
    if (dtype == GS_DTYPE_F16)
        half = (uint16_t)((bits >> 16 & 0x8000) |
                          ((bits & 0x7FFFFFFF) ? (bits & 0x7FFFFFFF) - (112u << 23) : 0) >> 13);
    memcpy(at, &half, 2);
}

static void fill_dense(unsigned char *data, enum gs_dtype dtype, uint64_t count, struct spread spread,
                       uint64_t state)
{
    for (uint64_t i = 0; i < count; i++) {
        double steps = round((spread.mean + spread.deviation * next_normal(&state)) / spread.unit);
        steps = steps > 255.0 ? 255.0 : steps < -255.0 ? -255.0 : steps + 0.0;
        store_dense(data + i * (gs_dtype_bits(dtype) / 8), dtype, (float)(steps * spread.unit));
    }
}

static void fill(const struct tiny_options *options, const char *hf_name, struct tiny_tensor *tensor,
                 unsigned char *data, uint64_t bytes)
{
    uint64_t state = options->seed * 0x9E3779B97F4A7C15u ^ gs_hash_bytes(hf_name, strlen(hf_name));
    if (tensor->dtype != GS_DTYPE_U8) {
        fill_dense(data, tensor->dtype, bytes * 8 / gs_dtype_bits(tensor->dtype),
                   spread_of(hf_name, tensor->shape[tensor->rank - 1]), state);
        return;
    }
    for (uint64_t i = 0; i < bytes; i++) {
        uint64_t word = next_random(&state) >> 32;
        data[i] = (unsigned char)(ends_with(hf_name, "_scales") ? 120 + word % 4 : word & 0xFF);
    }
}

/* ---------------------------------------------------------------- tensors */

struct tiny_tensor *tiny_model_add(struct tiny_model *model, const char *name, enum gs_dtype dtype,
                                   size_t rank, const uint64_t *shape)
{
    struct tiny_tensor *tensors = realloc(model->tensors, (model->count + 1) * sizeof *tensors);
    assert_non_null(tensors);
    model->tensors = tensors;
    struct tiny_tensor *tensor = &tensors[model->count++];
    *tensor = (struct tiny_tensor){.dtype = dtype, .rank = rank};
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    uint64_t count = 1;
    for (size_t i = 0; i < rank; i++) {
        tensor->shape[i] = shape[i];
        count *= shape[i];
    }
    tensor->bytes = count * gs_dtype_bits(dtype) / 8;
    tensor->data = calloc(tensor->bytes + 1, 1);
    assert_non_null(tensor->data);
    return tensor;
}

/* Adds a tensor by both its names (`original` NULL: the same) and fills it. */
static void add_filled(struct tiny_model *model, int64_t layer, const char *hf, const char *original,
                       enum gs_dtype dtype, size_t rank, const int64_t *shape)
{
    char hf_name[128], original_name[128];
    uint64_t sizes[4] = {0};
    for (size_t i = 0; i < rank; i++)
        sizes[i] = (uint64_t)shape[i];
    if (layer < 0) {
        snprintf(hf_name, sizeof hf_name, "%s", hf);
        snprintf(original_name, sizeof original_name, "%s", original);
    } else {
        snprintf(hf_name, sizeof hf_name, "model.layers.%lld.%s", (long long)layer, hf);
        snprintf(original_name, sizeof original_name, "block.%lld.%s", (long long)layer, original);
    }
    const char *name = model->options.layout == GS_LAYOUT_ORIGINAL ? original_name : hf_name;
    struct tiny_tensor *tensor = tiny_model_add(model, name, dtype, rank, sizes);
    fill(&model->options, hf_name, tensor, tensor->data, tensor->bytes);
}

/* q, k and v of one layer, weights (rank 2) or biases (rank 1): three tensors, or one with all rows. */
static void add_qkv(struct tiny_model *model, int64_t layer, const char *kind, size_t rank)
{
    const struct tiny_options *o = &model->options;
    const int64_t rows[3] = {o->n_head * o->d_head, o->n_kv_head * o->d_head, o->n_kv_head * o->d_head};
    char name[128];
    if (o->layout == GS_LAYOUT_HUGGING_FACE) {
        for (int i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "self_attn.%c_proj.%s", "qkv"[i], kind);
            add_filled(model, layer, name, "", o->dense, rank, (int64_t[]){rows[i], o->d_model});
        }
        return;
    }
    snprintf(name, sizeof name, "block.%lld.attn.qkv.%s", (long long)layer, kind);
    struct tiny_tensor *tensor =
        tiny_model_add(model, name, o->dense, rank,
                       (uint64_t[]){(uint64_t)(rows[0] + rows[1] + rows[2]), (uint64_t)o->d_model});
    unsigned char *at = tensor->data;
    for (int i = 0; i < 3; i++) {
        uint64_t bytes = (uint64_t)(rows[i] * (rank == 2 ? o->d_model : 1)) * gs_dtype_bits(o->dense) / 8;
        snprintf(name, sizeof name, "model.layers.%lld.self_attn.%c_proj.%s", (long long)layer, "qkv"[i],
                 kind);
        fill(o, name, tensor, at, bytes);
        at += bytes;
    }
}

static void add_layer(struct tiny_model *model, int64_t i)
{
    const struct tiny_options *o = &model->options;
    const int64_t d = o->d_model, ff = o->d_ff, e = o->n_expert, query = o->n_head * o->d_head;
    add_filled(model, i, "input_layernorm.weight", "attn.norm.scale", o->dense, 1, (int64_t[]){d});
    add_qkv(model, i, "weight", 2);
    add_qkv(model, i, "bias", 1);
    add_filled(model, i, "self_attn.sinks", "attn.sinks", o->dense, 1, (int64_t[]){o->n_head});
    add_filled(model, i, "self_attn.o_proj.weight", "attn.out.weight", o->dense, 2, (int64_t[]){d, query});
    add_filled(model, i, "self_attn.o_proj.bias", "attn.out.bias", o->dense, 1, (int64_t[]){d});
    add_filled(model, i, "post_attention_layernorm.weight", "mlp.norm.scale", o->dense, 1, (int64_t[]){d});
    add_filled(model, i, "mlp.router.weight", "mlp.gate.weight", o->dense, 2, (int64_t[]){e, d});
    add_filled(model, i, "mlp.router.bias", "mlp.gate.bias", o->dense, 1, (int64_t[]){e});
    add_filled(model, i, "mlp.experts.gate_up_proj_blocks", "mlp.mlp1_weight.blocks", GS_DTYPE_U8, 4,
               (int64_t[]){e, 2 * ff, d / 32, 16});
    add_filled(model, i, "mlp.experts.gate_up_proj_scales", "mlp.mlp1_weight.scales", GS_DTYPE_U8, 3,
               (int64_t[]){e, 2 * ff, d / 32});
    add_filled(model, i, "mlp.experts.gate_up_proj_bias", "mlp.mlp1_bias", o->dense, 2,
               (int64_t[]){e, 2 * ff});
    add_filled(model, i, "mlp.experts.down_proj_blocks", "mlp.mlp2_weight.blocks", GS_DTYPE_U8, 4,
               (int64_t[]){e, d, ff / 32, 16});
    add_filled(model, i, "mlp.experts.down_proj_scales", "mlp.mlp2_weight.scales", GS_DTYPE_U8, 3,
               (int64_t[]){e, d, ff / 32});
    add_filled(model, i, "mlp.experts.down_proj_bias", "mlp.mlp2_bias", o->dense, 2, (int64_t[]){e, d});
}

/* ---------------------------------------------------------------- configuration */

static char *hf_config(const struct tiny_options *o)
{
    struct gs_buffer text = {0};
    gs_buffer_print(&text, NULL,
                    "{\"architectures\": [\"GptOssForCausalLM\"], \"attention_bias\": true, "
                    "\"eos_token_id\": %lld, \"experts_per_token\": %lld, \"head_dim\": %lld, "
                    "\"hidden_act\": \"silu\", \"hidden_size\": %lld, \"intermediate_size\": %lld, ",
                    (long long)o->n_vocab - 1, (long long)o->n_active, (long long)o->d_head,
                    (long long)o->d_model, (long long)o->d_ff);
    gs_buffer_print(&text, NULL, "\"layer_types\": [");
    for (int64_t i = 0; i < o->n_layer; i++)
        gs_buffer_print(&text, NULL, "%s\"%s\"", i ? ", " : "",
                        i % 2 == 0 ? "sliding_attention" : "full_attention");
    gs_buffer_print(&text, NULL,
                    "], \"max_position_embeddings\": %lld, \"model_type\": \"gpt_oss\", "
                    "\"num_attention_heads\": %lld, \"num_experts_per_tok\": %lld, "
                    "\"num_hidden_layers\": %lld, \"num_key_value_heads\": %lld, "
                    "\"num_local_experts\": %lld, \"quantization_config\": {\"quant_method\": \"mxfp4\"}, ",
                    (long long)o->max_ctx, (long long)o->n_head, (long long)o->n_active,
                    (long long)o->n_layer, (long long)o->n_kv_head, (long long)o->n_expert);
    gs_buffer_print(&text, NULL,
                    "\"rms_norm_eps\": 1e-05, \"rope_scaling\": {\"beta_fast\": 32.0, \"beta_slow\": 1.0, "
                    "\"factor\": %lld.0, \"original_max_position_embeddings\": %lld, "
                    "\"rope_type\": \"yarn\", \"truncate\": false}, \"rope_theta\": 150000, "
                    "\"sliding_window\": %lld, \"swiglu_limit\": 7.0, \"tie_word_embeddings\": false, "
                    "\"vocab_size\": %lld}\n",
                    (long long)o->rope_factor, (long long)(o->max_ctx / o->rope_factor), (long long)o->window,
                    (long long)o->n_vocab);
    return text.data;
}

static char *original_config(const struct tiny_options *o)
{
    struct gs_buffer text = {0};
    gs_buffer_print(&text, NULL,
                    "{\"num_hidden_layers\": %lld, \"num_experts\": %lld, \"experts_per_token\": %lld, "
                    "\"vocab_size\": %lld, \"hidden_size\": %lld, \"intermediate_size\": %lld, "
                    "\"swiglu_limit\": 7.0, \"head_dim\": %lld, \"num_attention_heads\": %lld, ",
                    (long long)o->n_layer, (long long)o->n_expert, (long long)o->n_active,
                    (long long)o->n_vocab, (long long)o->d_model, (long long)o->d_ff, (long long)o->d_head,
                    (long long)o->n_head);
    gs_buffer_print(&text, NULL,
                    "\"num_key_value_heads\": %lld, \"sliding_window\": %lld, "
                    "\"initial_context_length\": %lld, \"rope_theta\": 150000, "
                    "\"rope_scaling_factor\": %lld.0, \"rope_ntk_alpha\": 1, \"rope_ntk_beta\": 32}\n",
                    (long long)o->n_kv_head, (long long)o->window, (long long)(o->max_ctx / o->rope_factor),
                    (long long)o->rope_factor);
    return text.data;
}

static char *generation_config(const struct tiny_options *o)
{
    struct gs_buffer text = {0};
    gs_buffer_print(&text, NULL, "{\"eos_token_id\": [%lld, %lld]}\n", (long long)o->n_vocab - 1,
                    (long long)(o->n_vocab > 1 ? o->n_vocab - 2 : 0));
    return text.data;
}

/* ---------------------------------------------------------------- models */

struct tiny_model *tiny_model_make(const struct tiny_options *options)
{
    struct tiny_model *model = calloc(1, sizeof *model);
    assert_non_null(model);
    model->options = *options;
    const struct tiny_options *o = &model->options;
    const int64_t table[2] = {o->n_vocab, o->d_model};
    for (int64_t i = 0; i < o->n_layer; i++)
        add_layer(model, i);
    add_filled(model, -1, "model.embed_tokens.weight", "embedding.weight", o->dense, 2, table);
    add_filled(model, -1, "model.norm.weight", "norm.scale", o->dense, 1, &o->d_model);
    add_filled(model, -1, "lm_head.weight", "unembedding.weight", o->dense, 2, table);
    model->config = o->layout == GS_LAYOUT_ORIGINAL ? original_config(o) : hf_config(o);
    model->generation_config = generation_config(o);
    assert_non_null(model->config);
    assert_non_null(model->generation_config);
    return model;
}

void tiny_model_free(struct tiny_model *model)
{
    if (!model)
        return;
    for (size_t i = 0; i < model->count; i++)
        free(model->tensors[i].data);
    free(model->tensors);
    free(model->config);
    free(model->generation_config);
    free(model);
}

struct tiny_tensor *tiny_model_find(struct tiny_model *model, const char *name)
{
    for (size_t i = 0; i < model->count; i++) {
        if (strcmp(model->tensors[i].name, name) == 0)
            return &model->tensors[i];
    }
    fail_msg("the tiny model has no tensor %s", name);
    return NULL;
}

void tiny_model_drop(struct tiny_model *model, const char *name)
{
    struct tiny_tensor *tensor = tiny_model_find(model, name);
    free(tensor->data);
    size_t after = (size_t)(model->tensors + model->count - tensor) - 1;
    memmove(tensor, tensor + 1, after * sizeof *tensor);
    model->count--;
}

void tiny_model_edit_config(struct tiny_model *model, const char *from, const char *to)
{
    char *at = strstr(model->config, from);
    assert_non_null(at);
    struct gs_buffer text = {0};
    gs_buffer_append(&text, model->config, (size_t)(at - model->config), NULL);
    gs_buffer_append_text(&text, to, NULL);
    gs_buffer_append_text(&text, at + strlen(from), NULL);
    free(model->config);
    model->config = text.data;
}

/* ---------------------------------------------------------------- files */

/* The official writer's order: larger elements first, then by name. */
static int compare_tensors(const void *a, const void *b)
{
    const struct tiny_tensor *left = a;
    const struct tiny_tensor *right = b;
    unsigned left_bits = gs_dtype_bits(left->dtype);
    unsigned right_bits = gs_dtype_bits(right->dtype);
    if (left_bits != right_bits)
        return left_bits > right_bits ? -1 : 1;
    return strcmp(left->name, right->name);
}

static void write_shard(const struct tiny_tensor *tensors, size_t count, const char *path)
{
    struct gs_buffer header = {0};
    struct gs_buffer file = {0};
    struct tiny_tensor *sorted = malloc((count + 1) * sizeof *sorted);
    assert_non_null(sorted);
    memcpy(sorted, tensors, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_tensors);

    uint64_t offset = 0;
    gs_buffer_print(&header, NULL, "{");
    for (size_t i = 0; i < count; i++) {
        gs_buffer_print(&header, NULL, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "", sorted[i].name,
                        gs_dtype_name(sorted[i].dtype));
        for (size_t axis = 0; axis < sorted[i].rank; axis++)
            gs_buffer_print(&header, NULL, "%s%llu", axis ? "," : "",
                            (unsigned long long)sorted[i].shape[axis]);
        gs_buffer_print(&header, NULL, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)offset,
                        (unsigned long long)(offset + sorted[i].bytes));
        offset += sorted[i].bytes;
    }
    gs_buffer_print(&header, NULL, "}");
    while (header.size % 8 != 0)
        gs_buffer_append(&header, " ", 1, NULL);

    uint64_t length = header.size;
    gs_buffer_append(&file, &length, sizeof length, NULL);
    gs_buffer_append(&file, header.data, header.size, NULL);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(gs_buffer_append(&file, sorted[i].data, sorted[i].bytes, NULL), GS_OK);
    test_file_write(path, file.data, file.size);
    gs_buffer_free(&header);
    gs_buffer_free(&file);
    free(sorted);
}

static void shard_name(const struct tiny_model *model, size_t shard, char *name, size_t size)
{
    size_t n = model->options.n_shards;
    if (n <= 1)
        snprintf(name, size, "model.safetensors");
    else if (model->options.layout == GS_LAYOUT_ORIGINAL)
        snprintf(name, size, "model--%05zu-of-%05zu.safetensors", shard + 1, n);
    else
        snprintf(name, size, "model-%05zu-of-%05zu.safetensors", shard, n - 1);
}

void tiny_model_write(const struct tiny_model *model, const char *folder)
{
    size_t n = model->options.n_shards > 1 ? model->options.n_shards : 1;
    struct gs_buffer index = {0};
    uint64_t total = 0;
    for (size_t i = 0; i < model->count; i++)
        total += model->tensors[i].bytes;
    gs_buffer_print(&index, NULL, "{\"metadata\": {\"total_size\": %llu}, \"weight_map\": {",
                    (unsigned long long)total);
    for (size_t shard = 0; shard < n; shard++) {
        char name[64];
        size_t first = model->count * shard / n;
        size_t end = model->count * (shard + 1) / n;
        shard_name(model, shard, name, sizeof name);
        write_shard(model->tensors + first, end - first, test_path_join(folder, name).text);
        for (size_t i = first; i < end; i++)
            gs_buffer_print(&index, NULL, "%s\"%s\": \"%s\"", i ? ", " : "", model->tensors[i].name, name);
    }
    gs_buffer_print(&index, NULL, "}}");
    if (n > 1 && model->options.layout == GS_LAYOUT_HUGGING_FACE)
        test_file_write(test_path_join(folder, "model.safetensors.index.json").text, index.data, index.size);
    gs_buffer_free(&index);
    if (model->config)
        test_file_write(test_path_join(folder, "config.json").text, model->config, strlen(model->config));
    if (model->generation_config)
        test_file_write(test_path_join(folder, "generation_config.json").text, model->generation_config,
                        strlen(model->generation_config));
}

void tiny_checkpoint_write(const struct tiny_options *options, const char *folder)
{
    struct tiny_model *model = tiny_model_make(options);
    tiny_model_write(model, folder);
    tiny_model_free(model);
}
