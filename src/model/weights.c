#include "model/weights.h"

#include "base/status.h"
#include "base/threads.h"
#include "model/mxfp4.h"
#include "model/weights_table.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCALE_CHUNK    (1 << 20)  /* bytes that a thread looks through at a time */
#define SCALES_FOR_ONE (16 << 20) /* bytes for which other threads are not worth starting */

struct binder {
    const struct gs_checkpoint *checkpoint;
    enum gs_layout layout;
    struct gs_weights *weights;
    const struct gs_tensor **bound; /* [n_bound] */
    size_t n_bound;
    const struct gs_tensor **scales; /* [n_scales] of them */
    size_t n_scales;
    struct gs_error *error;
};

/* ---------------------------------------------------------------- one tensor */

static size_t expected_shape(const struct binder *binder, const struct gs_weight_rule *rule,
                             uint64_t shape[GS_MAX_RANK])
{
    size_t rank = 0;
    while (rank < GS_MAX_RANK && rule->shape[rank] != GS_DIM_NONE) {
        shape[rank] = (uint64_t)gs_dim_size(&binder->weights->config, rule->shape[rank]);
        rank++;
    }
    return rank;
}

static bool is_dense(const struct gs_weight_rule *rule)
{
    return rule->kind == GS_RULE_DENSE || rule->kind == GS_RULE_DENSE_QKV ||
           rule->kind == GS_RULE_DENSE_EVEN || rule->kind == GS_RULE_DENSE_ODD;
}

/* MXFP4 is a dtype of its own in GGUF, and bytes in the other layouts. */
static enum gs_dtype expert_dtype(const struct gs_weight_rule *rule)
{
    return rule->kind == GS_RULE_BLOCKS || rule->kind == GS_RULE_SCALES ? GS_DTYPE_U8 : GS_DTYPE_MXFP4;
}

/* "BF16, F16 or F32 [2880]" */
static void describe_expected(const struct binder *binder, const struct gs_weight_rule *rule, char *text,
                              size_t size)
{
    uint64_t shape[GS_MAX_RANK];
    char shape_text[120];
    struct gs_tensor wanted = {.shape = shape, .rank = expected_shape(binder, rule, shape)};
    gs_tensor_shape_text(&wanted, shape_text, sizeof shape_text);
    const char *dense = binder->layout == GS_LAYOUT_GGUF ? "F32, F16, BF16 or Q8_0" : "BF16, F16 or F32";
    snprintf(text, size, "%s %s", is_dense(rule) ? dense : gs_dtype_name(expert_dtype(rule)), shape_text);
}

/* Experts in bf16 or float32 carry the name of the matrix without "_blocks" (original layout: ".blocks"). */
static const struct gs_tensor *find_dequantised(const struct binder *binder,
                                                const struct gs_weight_rule *rule, const char *name)
{
    char plain[200];
    if (is_dense(rule) || expert_dtype(rule) != GS_DTYPE_U8)
        return NULL;
    size_t length = strlen(name) - strlen("_blocks");
    if (length >= sizeof plain)
        return NULL;
    memcpy(plain, name, length); /* "_scales" is as long */
    plain[length] = '\0';
    return gs_checkpoint_find(binder->checkpoint, plain);
}

static gs_status fail_missing(const struct binder *binder, const struct gs_weight_rule *rule,
                              const char *name)
{
    char expected[200];
    const struct gs_tensor *plain = find_dequantised(binder, rule, name);
    describe_expected(binder, rule, expected, sizeof expected);
    if (plain)
        return gs_fail(binder->error, GS_UNSUPPORTED,
                       "%s: \"%s\" is a dequantised %s matrix, must be in MXFP4: \"%s\" as %s",
                       gs_quote(plain->file->path).text, gs_quote(plain->name).text,
                       gs_dtype_name(plain->dtype), name, expected);
    const char *where = binder->layout == GS_LAYOUT_GGUF
                            ? gs_checkpoint_tensor(binder->checkpoint, 0)->file->path
                            : gs_checkpoint_folder(binder->checkpoint);
    return gs_fail(binder->error, GS_MALFORMED, "%s: tensor \"%s\" is missing, must be %s",
                   gs_quote(where).text, name, expected);
}

static bool weight_type(enum gs_dtype dtype, enum gs_weight_type *type)
{
    switch (dtype) {
    case GS_DTYPE_BF16:
        *type = GS_WEIGHT_BF16;
        return true;
    case GS_DTYPE_F16:
        *type = GS_WEIGHT_F16;
        return true;
    case GS_DTYPE_F32:
        *type = GS_WEIGHT_F32;
        return true;
    case GS_DTYPE_Q8_0:
        *type = GS_WEIGHT_Q8_0;
        return true;
    default:
        return false;
    }
}

static gs_status check_tensor(const struct binder *binder, const struct gs_weight_rule *rule,
                              const struct gs_tensor *tensor)
{
    enum gs_weight_type type;
    uint64_t shape[GS_MAX_RANK];
    size_t rank = expected_shape(binder, rule, shape);
    bool right = is_dense(rule) ? weight_type(tensor->dtype, &type) : tensor->dtype == expert_dtype(rule);
    right = right && tensor->rank == rank;
    for (size_t i = 0; right && i < rank; i++)
        right = tensor->shape[i] == shape[i];
    if (right)
        return GS_OK;

    char found[120], expected[200];
    gs_tensor_shape_text(tensor, found, sizeof found);
    describe_expected(binder, rule, expected, sizeof expected);
    return gs_fail(binder->error, GS_MALFORMED, "%s: tensor \"%s\" is %s %s, must be %s",
                   gs_quote(tensor->file->path).text, gs_quote(tensor->name).text,
                   gs_dtype_name(tensor->dtype), found, expected);
}

/* ---------------------------------------------------------------- placing */

static struct gs_matrix dense_view(const struct gs_tensor *tensor)
{
    struct gs_matrix matrix = {.data = tensor->data, .rows = 1, .columns = (int64_t)tensor->shape[0]};
    weight_type(tensor->dtype, &matrix.type);
    if (tensor->rank == 2) {
        matrix.rows = (int64_t)tensor->shape[0];
        matrix.columns = (int64_t)tensor->shape[1];
    }
    return matrix;
}

/* Elements first ... first+count-1 along the slowest axis: rows of a matrix, elements of a bias. */
static struct gs_matrix slice(const struct gs_matrix *whole, bool is_bias, int64_t first, int64_t count)
{
    struct gs_matrix part = *whole;
    part.data += first * gs_weight_bytes(whole->type, is_bias ? 1 : whole->columns);
    *(is_bias ? &part.columns : &part.rows) = count;
    return part;
}

static void place_qkv(const struct gs_config *config, const struct gs_tensor *tensor,
                      struct gs_layer_weights *layer)
{
    struct gs_matrix whole = dense_view(tensor);
    bool is_bias = tensor->rank == 1;
    int64_t query = config->n_head * config->d_head;
    int64_t key = config->n_kv_head * config->d_head;
    *(is_bias ? &layer->q_bias : &layer->q) = slice(&whole, is_bias, 0, query);
    *(is_bias ? &layer->k_bias : &layer->k) = slice(&whole, is_bias, query, key);
    *(is_bias ? &layer->v_bias : &layer->v) = slice(&whole, is_bias, query + key, key);
}

/* The odd columns of a matrix whose even ones are placed: two tensors of one type. */
static gs_status place_odd(const struct binder *binder, const struct gs_tensor *tensor,
                           struct gs_matrix *matrix)
{
    struct gs_matrix odd = dense_view(tensor);
    if (odd.type != matrix->type)
        return gs_fail(
            binder->error, GS_UNSUPPORTED, "%s: tensor \"%s\" is %s, must be of the type of the gate's",
            gs_quote(tensor->file->path).text, gs_quote(tensor->name).text, gs_dtype_name(tensor->dtype));
    matrix->odd = odd.data;
    return GS_OK;
}

static void place_experts(const struct gs_weight_rule *rule, const struct gs_tensor *tensor,
                          struct gs_mxfp4_matrix *experts)
{
    if (rule->kind == GS_RULE_MXFP4_ODD) {
        experts->odd_blocks = tensor->data;
        return;
    }
    experts->blocks = tensor->data;
    experts->n_expert = (int64_t)tensor->shape[0];
    experts->rows = (int64_t)tensor->shape[1] * (rule->kind == GS_RULE_MXFP4_EVEN ? 2 : 1);
    experts->columns = (int64_t)tensor->shape[2] * (rule->kind == GS_RULE_BLOCKS ? GS_MXFP4_GROUP : 1);
}

/* `target`: the gs_layer_weights or gs_weights that the rule's offset counts in. */
static gs_status place(struct binder *binder, const struct gs_weight_rule *rule,
                       const struct gs_tensor *tensor, void *target)
{
    void *at = (char *)target + rule->offset;
    struct gs_mxfp4_matrix *experts = at;
    struct gs_matrix *matrix = at;
    switch (rule->kind) {
    case GS_RULE_DENSE:
        *matrix = dense_view(tensor);
        break;
    case GS_RULE_DENSE_EVEN:
        *matrix = dense_view(tensor);
        matrix->columns *= 2;
        break;
    case GS_RULE_DENSE_ODD:
        return place_odd(binder, tensor, matrix);
    case GS_RULE_DENSE_QKV:
        place_qkv(&binder->weights->config, tensor, target);
        break;
    case GS_RULE_BLOCKS:
    case GS_RULE_MXFP4:
    case GS_RULE_MXFP4_EVEN:
    case GS_RULE_MXFP4_ODD:
        place_experts(rule, tensor, experts);
        break;
    case GS_RULE_SCALES:
        experts->scales = tensor->data;
        binder->scales[binder->n_scales++] = tensor;
        break;
    }
    return GS_OK;
}

static void count_parameters(struct gs_weights *weights, const struct gs_weight_rule *rule,
                             const struct gs_tensor *tensor)
{
    uint64_t n = tensor->bytes / gs_dtype_block_bytes(tensor->dtype) * gs_dtype_block_size(tensor->dtype);
    if (rule->kind == GS_RULE_BLOCKS)
        n *= 2;
    if (rule->kind == GS_RULE_SCALES)
        n = 0;
    weights->bytes += tensor->bytes;
    weights->n_param += n;
    if (rule->per_expert)
        n = n / (uint64_t)weights->config.n_expert * (uint64_t)weights->config.n_active;
    if (rule != &gs_outer_rules[0]) /* the embedding is looked up, not multiplied */
        weights->n_param_active += n;
}

static gs_status bind_rules(struct binder *binder, const struct gs_weight_rule *rules, size_t n_rules,
                            int64_t layer, void *target)
{
    for (size_t i = 0; i < n_rules; i++) {
        const struct gs_weight_rule *rule = &rules[i];
        char name[200];
        if (!rule->name[binder->layout])
            continue;
        if (!gs_weight_name(rule, binder->layout, layer, name, sizeof name))
            return gs_fail(binder->error, GS_INVALID_ARGUMENT, "tensor name of layer %lld is too long",
                           (long long)layer);
        const struct gs_tensor *tensor = gs_checkpoint_find(binder->checkpoint, name);
        if (!tensor)
            return fail_missing(binder, rule, name);
        gs_status status = check_tensor(binder, rule, tensor);
        if (status == GS_OK)
            status = place(binder, rule, tensor, target);
        if (status != GS_OK)
            return status;
        count_parameters(binder->weights, rule, tensor);
        binder->bound[binder->n_bound++] = tensor;
    }
    return GS_OK;
}

/* ---------------------------------------------------------------- the whole */

static int compare_pointers(const void *a, const void *b)
{
    const struct gs_tensor *const *left = a;
    const struct gs_tensor *const *right = b;
    return (*left > *right) - (*left < *right);
}

/* Every expected tensor was found, so any that is left over has a name of its own or repeats one. */
static gs_status check_unexpected(struct binder *binder)
{
    qsort(binder->bound, binder->n_bound, sizeof *binder->bound, compare_pointers);
    for (size_t i = 0; i < gs_checkpoint_count(binder->checkpoint); i++) {
        const struct gs_tensor *tensor = gs_checkpoint_tensor(binder->checkpoint, i);
        if (bsearch(&tensor, binder->bound, binder->n_bound, sizeof tensor, compare_pointers))
            continue;
        return gs_fail(binder->error, GS_MALFORMED,
                       "%s: tensor \"%s\" is not expected, must be one of a gpt_oss model of %lld layers",
                       gs_quote(tensor->file->path).text, gs_quote(tensor->name).text,
                       (long long)binder->weights->config.n_layer);
    }
    return GS_OK;
}

static gs_status fail_scale(const struct binder *binder, const struct gs_tensor *tensor, uint64_t at)
{
    uint64_t groups = tensor->shape[2];
    uint64_t rows = tensor->shape[1];
    return gs_fail(binder->error, GS_MALFORMED,
                   "%s: scale [%llu][%llu][%llu] of tensor \"%s\" is 255 (not a number), must be 0 ... 254",
                   gs_quote(tensor->file->path).text, (unsigned long long)(at / groups / rows),
                   (unsigned long long)(at / groups % rows), (unsigned long long)(at % groups),
                   gs_quote(tensor->name).text);
}

/* A tensor's scales, in pieces; `bad` is the first that is not a number. */
struct scale_scan {
    const struct gs_tensor *tensor;
    _Atomic uint64_t bad;
};

static void scan_scales(void *user, size_t begin, size_t end, size_t thread)
{
    (void)thread;
    struct scale_scan *scan = user;
    for (size_t piece = begin; piece < end; piece++) {
        uint64_t at = piece * SCALE_CHUNK, left = scan->tensor->bytes - at;
        const unsigned char *from = scan->tensor->data + at;
        const unsigned char *bad = memchr(from, GS_MXFP4_SCALE_NAN, left < SCALE_CHUNK ? left : SCALE_CHUNK);
        uint64_t found = bad ? (uint64_t)(bad - scan->tensor->data) : UINT64_MAX;
        uint64_t first = atomic_load(&scan->bad);
        while (found < first && !atomic_compare_exchange_weak(&scan->bad, &first, found)) {
        }
    }
}

static gs_status check_scales(const struct binder *binder, gs_progress_fn *progress, void *user)
{
    uint64_t total = 0, done = 0;
    for (size_t i = 0; i < binder->n_scales; i++)
        total += binder->scales[i]->bytes;
    /* Memory is what takes the time, and the pages' mapping: threads share it. */
    struct gs_threads *threads = NULL;
    gs_status status = gs_threads_open(total < SCALES_FOR_ONE ? 1 : 0, &threads, binder->error);
    for (size_t i = 0; status == GS_OK && i < binder->n_scales; i++) {
        struct scale_scan scan = {binder->scales[i], UINT64_MAX};
        size_t n_pieces = (size_t)((scan.tensor->bytes + SCALE_CHUNK - 1) / SCALE_CHUNK);
        gs_threads_run(threads, scan_scales, &scan, n_pieces, 1);
        uint64_t bad = atomic_load(&scan.bad);
        if (bad != UINT64_MAX)
            status = fail_scale(binder, scan.tensor, bad);
        done += scan.tensor->bytes;
        if (progress && status == GS_OK)
            progress(user, done, total);
    }
    gs_threads_close(threads);
    if (status == GS_OK && gs_checkpoint_damaged(binder->checkpoint))
        return gs_checkpoint_check(binder->checkpoint, binder->error);
    return status;
}

static gs_status allocate(struct binder *binder)
{
    struct gs_weights *weights = binder->weights;
    size_t n_layer = (size_t)weights->config.n_layer;
    size_t most = gs_outer_rule_count + n_layer * gs_layer_rule_count;
    weights->layers = gs_arena_alloc_array(&weights->arena, n_layer, sizeof *weights->layers);
    binder->bound = calloc(most, sizeof *binder->bound);
    binder->scales = calloc(2 * n_layer, sizeof *binder->scales);
    if (!weights->layers || !binder->bound || !binder->scales)
        return gs_fail_memory(binder->error, n_layer * sizeof *weights->layers);
    return GS_OK;
}

gs_status gs_weights_bind(const struct gs_checkpoint *checkpoint, gs_progress_fn *progress,
                          void *progress_user, struct gs_weights **out, struct gs_error *error)
{
    gs_status status;
    struct binder binder = {
        .checkpoint = checkpoint, .layout = gs_checkpoint_layout(checkpoint), .error = error};
    *out = NULL;
    binder.weights = calloc(1, sizeof *binder.weights);
    if (!binder.weights)
        return gs_fail_memory(error, sizeof *binder.weights);

    status = gs_config_read(checkpoint, &binder.weights->config, error);
    if (status == GS_OK)
        status = allocate(&binder);
    if (status == GS_OK)
        status = bind_rules(&binder, gs_outer_rules, gs_outer_rule_count, -1, binder.weights);
    for (int64_t i = 0; status == GS_OK && i < binder.weights->config.n_layer; i++)
        status = bind_rules(&binder, gs_layer_rules, gs_layer_rule_count, i, &binder.weights->layers[i]);
    if (status == GS_OK)
        status = check_unexpected(&binder);
    if (status == GS_OK)
        status = check_scales(&binder, progress, progress_user);
    if (status == GS_OK) {
        *out = binder.weights;
        binder.weights = NULL;
    }
    free(binder.bound);
    free(binder.scales);
    gs_weights_free(binder.weights);
    return status;
}

void gs_weights_free(struct gs_weights *weights)
{
    if (!weights)
        return;
    gs_arena_free(&weights->arena);
    free(weights);
}
