#include "engine/measure.h"

#include "base/status.h"
#include "model/weights_table.h"

#include <string.h>

static const struct gs_measure_kernel kernels[] = {
    {"moe_gate_up_mxfp4_f32", offsetof(struct gs_layer_weights, gate_up), "gate_up"},
    {"moe_down_mxfp4_f32", offsetof(struct gs_layer_weights, down), "down"},
};

gs_status gs_measure_kernel_find(const char *name, const struct gs_measure_kernel **out,
                                 struct gs_error *error)
{
    *out = NULL;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (strcmp(kernels[i].name, name) == 0) {
            *out = &kernels[i];
            return GS_OK;
        }
    return gs_fail(error, GS_INVALID_ARGUMENT, "no kernel \"%s\": there are %s and %s", gs_quote(name).text,
                   kernels[0].name, kernels[1].name);
}

/* The tensor of one kind that the kernel's matrix has in this layout; NULL with *named false: none by rule.
 */
static const struct gs_tensor *find_part(const struct gs_checkpoint *checkpoint,
                                         const struct gs_measure_kernel *kernel, int64_t layer,
                                         enum gs_rule_kind kind, bool *named)
{
    enum gs_layout layout = gs_checkpoint_layout(checkpoint);
    char name[160];
    *named = false;
    for (size_t i = 0; i < gs_layer_rule_count; i++) {
        const struct gs_weight_rule *rule = &gs_layer_rules[i];
        if (rule->offset != kernel->weight || rule->kind != kind || !rule->name[layout])
            continue;
        *named = gs_weight_name(rule, layout, layer, name, sizeof name);
        return *named ? gs_checkpoint_find(checkpoint, name) : NULL;
    }
    return NULL;
}

/* The one or two tensors of the matrix: blocks and scales, or GGUF's. */
static gs_status find_parts(const struct gs_checkpoint *checkpoint, const struct gs_measure_kernel *kernel,
                            int64_t layer, const struct gs_tensor *parts[GS_MEASURE_MAX_SLICES],
                            size_t *n_parts, struct gs_error *error)
{
    static const enum gs_rule_kind kinds[] = {GS_RULE_BLOCKS, GS_RULE_SCALES, GS_RULE_MXFP4,
                                              GS_RULE_MXFP4_EVEN, GS_RULE_MXFP4_ODD};
    *n_parts = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        bool named;
        const struct gs_tensor *tensor = find_part(checkpoint, kernel, layer, kinds[i], &named);
        if (!named)
            continue;
        if (!tensor)
            return gs_fail(error, GS_INVALID_ARGUMENT,
                           "%s: no %s experts of layer %lld here: choose a layer whose tensors are in it",
                           gs_quote(gs_checkpoint_folder(checkpoint)).text, kernel->tensor, (long long)layer);
        if (*n_parts < GS_MEASURE_MAX_SLICES)
            parts[(*n_parts)++] = tensor;
    }
    return GS_OK;
}

static gs_status fail_shape(const struct gs_tensor *tensor, const char *rule, struct gs_error *error)
{
    char shape[128];
    gs_tensor_shape_text(tensor, shape, sizeof shape);
    return gs_fail(error, GS_MALFORMED, "%s: tensor \"%s\" is %s %s, but %s",
                   gs_quote(tensor->file->path).text, gs_quote(tensor->name).text,
                   gs_dtype_name(tensor->dtype), shape, rule);
}

/* Sizes small enough that no product of them overflows; every axis at least 1. */
static bool is_sane(const struct gs_tensor *tensor, size_t rank)
{
    if (tensor->rank != rank)
        return false;
    for (size_t i = 0; i < rank; i++)
        if (tensor->shape[i] == 0 || tensor->shape[i] > 2 * GS_MAX_HIDDEN)
            return false;
    return tensor->shape[0] <= GS_MAX_EXPERTS;
}

/* Blocks [E][rows][groups][16] and scales [E][rows][groups], as safetensors have them. */
static gs_status check_pair(const struct gs_tensor *blocks, const struct gs_tensor *scales,
                            struct gs_error *error)
{
    if (blocks->dtype != GS_DTYPE_U8 || !is_sane(blocks, 4) || blocks->shape[3] != GS_MXFP4_GROUP_BYTES)
        return fail_shape(blocks, "MXFP4 blocks are U8 [experts, rows, groups, 16]", error);
    if (scales->dtype != GS_DTYPE_U8 || !is_sane(scales, 3) ||
        memcmp(scales->shape, blocks->shape, 3 * sizeof *blocks->shape) != 0)
        return fail_shape(scales, "MXFP4 scales are U8 [experts, rows, groups] like their blocks", error);
    return GS_OK;
}

/* GGUF: MXFP4 [E][rows][columns], once, or twice for even and odd rows. */
static gs_status check_gguf(const struct gs_tensor *const *parts, size_t n_parts, struct gs_error *error)
{
    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i]->dtype != GS_DTYPE_MXFP4 || !is_sane(parts[i], 3) ||
            parts[i]->shape[2] % GS_MXFP4_GROUP != 0)
            return fail_shape(parts[i], "experts are MXFP4 [experts, rows, columns], columns by 32", error);
        if (memcmp(parts[i]->shape, parts[0]->shape, 3 * sizeof *parts[i]->shape) != 0)
            return fail_shape(parts[i], "gate and up have one shape", error);
    }
    return GS_OK;
}

gs_status gs_measure_expert_find(const struct gs_checkpoint *checkpoint,
                                 const struct gs_measure_kernel *kernel, int64_t layer, int64_t expert,
                                 struct gs_measure_expert *out, struct gs_error *error)
{
    const struct gs_tensor *parts[GS_MEASURE_MAX_SLICES] = {NULL};
    bool is_gguf = gs_checkpoint_layout(checkpoint) == GS_LAYOUT_GGUF;
    *out = (struct gs_measure_expert){.expert = expert};
    gs_status status = find_parts(checkpoint, kernel, layer, parts, &out->n_slices, error);
    if (status == GS_OK)
        status = is_gguf ? check_gguf(parts, out->n_slices, error) : check_pair(parts[0], parts[1], error);
    for (size_t i = 0; status == GS_OK && i < out->n_slices; i++) {
        status = gs_slice_entry(parts[i], expert, &out->slices[i], error);
        out->bytes += out->slices[i].bytes;
    }
    if (status != GS_OK) {
        *out = (struct gs_measure_expert){0};
        return status;
    }
    bool has_odd = is_gguf && out->n_slices == 2;
    out->matrix = (struct gs_mxfp4_matrix){
        .blocks = out->slices[0].data,
        .scales = is_gguf ? NULL : out->slices[1].data,
        .odd_blocks = has_odd ? out->slices[1].data : NULL,
        .n_expert = 1,
        .rows = (int64_t)parts[0]->shape[1] * (has_odd ? 2 : 1),
        .columns = (int64_t)parts[0]->shape[2] * (is_gguf ? 1 : GS_MXFP4_GROUP),
    };
    return GS_OK;
}

gs_status gs_measure_expert_count(const struct gs_checkpoint *checkpoint,
                                  const struct gs_measure_kernel *kernel, int64_t layer, int64_t *count,
                                  struct gs_error *error)
{
    const struct gs_tensor *parts[GS_MEASURE_MAX_SLICES] = {NULL};
    size_t n_parts;
    *count = 0;
    gs_status status = find_parts(checkpoint, kernel, layer, parts, &n_parts, error);
    if (status == GS_OK && parts[0]->rank > 0 && parts[0]->shape[0] <= GS_MAX_EXPERTS)
        *count = (int64_t)parts[0]->shape[0];
    return status;
}
