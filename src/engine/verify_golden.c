#include "engine/verify_golden.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct gs_tensor *find(const struct gs_golden *golden, const char *name)
{
    for (size_t i = 0; i < golden->file.count; i++)
        if (strcmp(golden->file.tensors[i].name, name) == 0)
            return &golden->file.tensors[i];
    return NULL;
}

/* A copy, and so aligned, of a tensor [rows][columns]; a vector [columns] if rows is 1. */
static gs_status take(struct gs_golden *golden, const char *name, enum gs_dtype dtype, uint64_t rows,
                      uint64_t columns, const void **out, struct gs_error *error)
{
    const struct gs_tensor *tensor = find(golden, name);
    const char *path = golden->map->path;
    if (!tensor)
        return gs_fail(error, GS_MALFORMED, "%s: not a golden of this model: it has no tensor %s",
                       gs_quote(path).text, name);
    bool is_vector = rows == 1 && tensor->rank == 1 && tensor->shape[0] == columns;
    bool is_matrix = tensor->rank == 2 && tensor->shape[0] == rows && tensor->shape[1] == columns;
    if (tensor->dtype != dtype || !(is_vector || is_matrix)) {
        char shape[160];
        gs_tensor_shape_text(tensor, shape, sizeof shape);
        return gs_fail(error, GS_MALFORMED,
                       "%s: not a golden of this model: %s is %s %s instead of %s [%llu, %llu]",
                       gs_quote(path).text, name, gs_dtype_name(tensor->dtype), shape, gs_dtype_name(dtype),
                       (unsigned long long)rows, (unsigned long long)columns);
    }
    void *copy = gs_arena_alloc(&golden->arena, (size_t)tensor->bytes);
    if (!copy)
        return gs_fail_memory(error, tensor->bytes);
    memcpy(copy, tensor->data, (size_t)tensor->bytes);
    *out = copy;
    return GS_OK;
}

/* A vector whose length the golden decides. */
static gs_status take_vector(struct gs_golden *golden, const char *name, const int32_t **out, size_t *count,
                             struct gs_error *error)
{
    const struct gs_tensor *tensor = find(golden, name);
    const void *values = NULL;
    *count = tensor && tensor->rank == 1 ? (size_t)tensor->shape[0] : 0;
    gs_status status = take(golden, name, GS_DTYPE_I32, 1, *count, &values, error);
    *out = values;
    return status;
}

/* Positions: ascending, and below `end`. */
static gs_status take_positions(struct gs_golden *golden, const char *name, int64_t end,
                                struct gs_positions *out, struct gs_error *error)
{
    gs_status status = take_vector(golden, name, &out->list, &out->count, error);
    for (size_t i = 0; status == GS_OK && i < out->count; i++)
        if (out->list[i] < 0 || out->list[i] >= end || (i > 0 && out->list[i] <= out->list[i - 1]))
            status = gs_fail(error, GS_MALFORMED, "%s: %s: positions must ascend from 0 to at most %lld",
                             gs_quote(golden->map->path).text, name, (long long)end - 1);
    return status;
}

static gs_status take_tokens(struct gs_golden *golden, const struct gs_config *config, struct gs_error *error)
{
    gs_status status = take_vector(golden, "tokens", &golden->tokens, &golden->n_tokens, error);
    if (status != GS_OK)
        return status;
    const char *path = golden->map->path;
    if (golden->n_tokens == 0 || golden->n_tokens > (size_t)config->max_ctx)
        return gs_fail(error, GS_MALFORMED, "%s: %zu tokens: this model takes 1 to %lld", gs_quote(path).text,
                       golden->n_tokens, (long long)config->max_ctx);
    for (size_t i = 0; i < golden->n_tokens; i++)
        if (golden->tokens[i] < 0 || golden->tokens[i] >= config->n_vocab)
            return gs_fail(error, GS_MALFORMED,
                           "%s: not a golden of this model: token %d is not in 0 ... %lld",
                           gs_quote(path).text, (int)golden->tokens[i], (long long)config->n_vocab - 1);
    return GS_OK;
}

static int64_t columns_of(const struct gs_config *config, enum gs_stage stage)
{
    switch (stage) {
    case GS_STAGE_ROUTER:
        return config->n_expert;
    case GS_STAGE_ROUTER_CHOICE:
    case GS_STAGE_ROUTER_WEIGHT:
        return config->n_active;
    case GS_STAGE_LOGITS:
        return config->n_vocab;
    default:
        return config->d_model;
    }
}

static gs_status take_component(struct gs_golden *golden, const struct gs_config *config, enum gs_stage stage,
                                int64_t layer, struct gs_error *error)
{
    char name[64];
    bool is_choice = stage == GS_STAGE_ROUTER_CHOICE;
    int64_t columns = columns_of(config, stage);
    size_t rows = gs_record_positions(golden->record, stage).count;
    const void *values = NULL;
    if (gs_stage_in_layers(stage))
        snprintf(name, sizeof name, "layers.%lld.%s", (long long)layer, gs_stage_name(stage));
    else
        snprintf(name, sizeof name, "%s", gs_stage_name(stage));
    gs_status status =
        take(golden, name, is_choice ? GS_DTYPE_U8 : GS_DTYPE_F32, rows, (uint64_t)columns, &values, error);
    float *place = status == GS_OK ? gs_record_place(golden->record, stage, layer, columns) : NULL;
    if (status == GS_OK && !place)
        status = gs_fail_memory(error, rows * (size_t)columns * sizeof *place);
    for (size_t i = 0; status == GS_OK && i < rows * (size_t)columns; i++)
        place[i] = is_choice ? (float)((const uint8_t *)values)[i] : ((const float *)values)[i];
    return status;
}

static gs_status take_components(struct gs_golden *golden, const struct gs_config *config,
                                 struct gs_error *error)
{
    gs_status status = GS_OK;
    for (int s = 0; status == GS_OK && s < GS_STAGE_COUNT; s++) {
        enum gs_stage stage = (enum gs_stage)s;
        if (!golden->is_complete && stage != GS_STAGE_ROUTER_CHOICE && stage != GS_STAGE_LOGITS)
            continue;
        int64_t n_layer = gs_stage_in_layers(stage) ? config->n_layer : 1;
        for (int64_t layer = 0; status == GS_OK && layer < n_layer; layer++)
            status = take_component(golden, config, stage, layer, error);
    }
    return status;
}

static gs_status take_record(struct gs_golden *golden, const struct gs_config *config, struct gs_error *error)
{
    int64_t n = (int64_t)golden->n_tokens;
    struct gs_selection kept = {0};
    const void *argmax = NULL;
    int32_t *every = gs_arena_alloc_array(&golden->arena, golden->n_tokens, sizeof *every);
    if (!every)
        return gs_fail_memory(error, golden->n_tokens * sizeof *every);
    for (int64_t i = 0; i < n; i++)
        every[i] = (int32_t)i;
    kept.choices = kept.argmax = (struct gs_positions){every, golden->n_tokens};
    gs_status status = take_positions(golden, "rows", n, &kept.rows, error);
    if (status == GS_OK)
        status = take_positions(golden, "logit_rows", n, &kept.logits, error);
    if (status == GS_OK)
        status = take(golden, "argmax", GS_DTYPE_I32, 1, golden->n_tokens, &argmax, error);
    if (status == GS_OK)
        status = gs_record_open(config->n_layer, &kept, &golden->record, error);
    if (status != GS_OK)
        return status;
    memcpy(golden->record->argmax, argmax, golden->n_tokens * sizeof *golden->record->argmax);
    return take_components(golden, config, error);
}

static gs_status take_rope(struct gs_golden *golden, const struct gs_config *config, struct gs_error *error)
{
    uint64_t n_freq = (uint64_t)config->d_head / 2;
    struct gs_positions positions;
    const void *inv_freq = NULL, *scaling = NULL, *cosine = NULL, *sine = NULL;
    gs_status status = take_positions(golden, "rope.positions", config->max_ctx, &positions, error);
    if (status == GS_OK)
        status = take(golden, "rope.inv_freq", GS_DTYPE_F32, 1, n_freq, &inv_freq, error);
    if (status == GS_OK)
        status = take(golden, "rope.attention_scaling", GS_DTYPE_F32, 1, 1, &scaling, error);
    if (status == GS_OK)
        status = take(golden, "rope.cos", GS_DTYPE_F32, positions.count, n_freq, &cosine, error);
    if (status == GS_OK)
        status = take(golden, "rope.sin", GS_DTYPE_F32, positions.count, n_freq, &sine, error);
    if (status != GS_OK)
        return status;
    golden->inv_freq = inv_freq;
    golden->attention_scaling = *(const float *)scaling;
    golden->rope_positions = positions.list;
    golden->n_rope = positions.count;
    golden->cosine = cosine;
    golden->sine = sine;
    return GS_OK;
}

static gs_status take_sums(struct gs_golden *golden, const struct gs_config *config, const char *part,
                           const int64_t ***out, struct gs_error *error)
{
    const int64_t **sums = gs_arena_alloc_array(&golden->arena, (size_t)config->n_layer, sizeof *sums);
    if (!sums)
        return gs_fail_memory(error, (uint64_t)config->n_layer * sizeof *sums);
    gs_status status = GS_OK;
    for (int64_t layer = 0; status == GS_OK && layer < config->n_layer; layer++) {
        char name[64];
        const void *values = NULL;
        snprintf(name, sizeof name, "layers.%lld.%s_checksum", (long long)layer, part);
        status = take(golden, name, GS_DTYPE_I64, 1, (uint64_t)config->n_expert, &values, error);
        sums[layer] = values;
    }
    *out = sums;
    return status;
}

gs_status gs_golden_open(const char *path, const struct gs_config *config, struct gs_golden **out,
                         struct gs_error *error)
{
    *out = NULL;
    struct gs_golden *golden = calloc(1, sizeof *golden);
    if (!golden)
        return gs_fail_memory(error, sizeof *golden);
    gs_status status = gs_file_map_open(path, NULL, &golden->map, error);
    if (status == GS_OK)
        status = gs_safetensors_parse(golden->map, &golden->arena, &golden->file, error);
    if (status == GS_OK)
        status = take_tokens(golden, config, error);
    golden->is_complete = find(golden, "embedding") != NULL;
    if (status == GS_OK)
        status = take_record(golden, config, error);
    if (status == GS_OK && golden->is_complete)
        status = take_rope(golden, config, error);
    if (status == GS_OK && golden->is_complete)
        status = take_sums(golden, config, "gate_up", &golden->gate_up_sums, error);
    if (status == GS_OK && golden->is_complete)
        status = take_sums(golden, config, "down", &golden->down_sums, error);
    if (status != GS_OK) {
        gs_golden_close(golden);
        return status;
    }
    *out = golden;
    return GS_OK;
}

void gs_golden_close(struct gs_golden *golden)
{
    if (!golden)
        return;
    gs_record_close(golden->record);
    gs_arena_free(&golden->arena);
    gs_file_map_close(golden->map);
    free(golden);
}
