/* A Metal device from open to close, and the table that the engine sees. */
#include "backend/metal/backend.h"

#include "backend/control_config.h"
#include "backend/metal/controls.h"
#include "backend/metal/encode.h"
#include "backend/metal/pipelines.h"
#include "base/status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool metal_probe(char *description, size_t size)
{
    struct gs_metal metal;
    struct gs_error error;
    if (gs_metal_open(&metal, &error) != GS_OK) {
        gs_format(description, size, "%s", error.message);
        return false;
    }
    gs_format(description, size, "%s, %.1f GiB for its GPU", metal.name,
              (double)metal.working_set_bytes / (1 << 30));
    gs_metal_close(&metal);
    return true;
}

static void metal_close(struct gs_device *device)
{
    if (!device)
        return;
    for (size_t i = 0; i < device->n_memories; i++)
        gs_metal_memory_release(&device->metal, &device->memories[i]);
    for (size_t i = 0; i < GS_METAL_BUFFER_COUNT; i++)
        gs_metal_memory_release(&device->metal, &device->scratch[i]);
    for (size_t i = 0; i < GS_METAL_KERNEL_COUNT; i++)
        gs_metal_pipeline_release(&device->metal, &device->pipelines[i]);
    gs_metal_close(&device->metal);
    free(device->memories);
    free(device->layers);
    free(device->chain);
    free(device->many_logits);
    free(device->tapped);
    free(device);
}

/* ---------------------------------------------------------------- kernels */

static struct gs_metal_tuning choose_tuning(const struct gs_device_options *options)
{
    uint32_t groups =
        options->levers.simdgroups > 0 ? (uint32_t)options->levers.simdgroups : GS_METAL_SIMDGROUPS_DEFAULT;
    bool capped = groups > GS_METAL_MXFP4_SIMDGROUPS_DEFAULT;
    return (struct gs_metal_tuning){.simdgroups = groups,
                                    .mxfp4_simdgroups = capped ? GS_METAL_MXFP4_SIMDGROUPS_DEFAULT : groups,
                                    .scalar_load = options->levers.scalar_load,
                                    .kv_f32 = options->precision == GS_PRECISION_EXACT,
                                    .control = gs_metal_control_of(options->control)};
}

static gs_status check_options(const struct gs_device_options *options, struct gs_error *error)
{
    int groups = options->levers.simdgroups;
    if (options->index != 0)
        return gs_fail(error, GS_INVALID_ARGUMENT, "device %d: the metal backend has one device, number 0",
                       options->index);
    if (groups != 0 && groups != 1 && groups != 2 && groups != 4)
        return gs_fail(error, GS_INVALID_ARGUMENT, "metal: %d SIMD-groups a row: must be 1, 2 or 4", groups);
    return gs_metal_control_check(options, error);
}

static gs_status metal_open(const struct gs_device_options *options, struct gs_device **out,
                            struct gs_error *error)
{
    *out = NULL;
    gs_status status = check_options(options, error);
    if (status != GS_OK)
        return status;
    struct gs_device *device = calloc(1, sizeof *device);
    if (!device)
        return gs_fail_memory(error, sizeof *device);
    device->precision = options->precision;
    device->format = options->weights;
    device->control = options->control;
    device->decode = options->levers.decode;
    device->n_threads = options->n_threads;
    device->tuning = choose_tuning(options);
    device->max_rows = options->precision == GS_PRECISION_EXACT ? GS_METAL_EXACT_ROWS : GS_METAL_FAST_ROWS;
    device->chain = calloc(GS_METAL_CHAIN_TOKENS, sizeof *device->chain);
    status = device->chain ? gs_metal_open(&device->metal, error)
                           : gs_fail_memory(error, GS_METAL_CHAIN_TOKENS * sizeof *device->chain);
    if (status == GS_OK)
        status = gs_metal_pipelines_make(device, options->cache_folder, error);
    if (status != GS_OK) {
        metal_close(device);
        return status;
    }
    *out = device;
    return GS_OK;
}

/* ---------------------------------------------------------------- the model's memory */

static struct gs_metal_args make_args(const struct gs_config *c)
{
    return (struct gs_metal_args){.d_model = (uint32_t)c->d_model,
                                  .d_head = (uint32_t)c->d_head,
                                  .n_head = (uint32_t)c->n_head,
                                  .n_kv_head = (uint32_t)c->n_kv_head,
                                  .n_expert = (uint32_t)c->n_expert,
                                  .n_active = (uint32_t)c->n_active,
                                  .d_ff = (uint32_t)c->d_ff,
                                  .n_vocab = (uint32_t)c->n_vocab,
                                  .n_layer = (uint32_t)c->n_layer,
                                  .rms_norm_eps = c->rms_norm_eps,
                                  .swiglu_limit = c->swiglu_limit,
                                  .swiglu_alpha = c->swiglu_alpha,
                                  .attention_scale = 1.0f / sqrtf((float)c->d_head)};
}

/* Rows that share their keys between threadgroups hold what each of them found. */
static uint64_t partials_bytes(const struct gs_device *device)
{
    uint32_t n_split = gs_metal_n_split((uint32_t)device->config.max_ctx, 0);
    return gs_metal_partials_bytes(&device->args, GS_METAL_SPLIT_ROWS, n_split);
}

static void list_scratch(const struct gs_device *device, uint64_t bytes[GS_METAL_BUFFER_COUNT])
{
    const struct gs_config *c = &device->config;
    uint64_t rows = (uint64_t)device->max_rows, f = sizeof(float), model = (uint64_t)c->d_model;
    uint64_t routes = rows * (uint64_t)c->n_active, heads = (uint64_t)(c->n_head * c->d_head);
    uint64_t qkv = (uint64_t)((c->n_head + 2 * c->n_kv_head) * c->d_head);
    uint64_t candidates = gs_metal_n_candidates(&device->args, &device->tuning);
    bytes[GS_METAL_ROWS] = rows * sizeof(struct gs_metal_row);
    bytes[GS_METAL_HIDDEN] = rows * model * f;
    bytes[GS_METAL_NORMED] = rows * model * f;
    bytes[GS_METAL_QKV] = rows * qkv * f;
    bytes[GS_METAL_ATTENDED] = rows * heads * f;
    bytes[GS_METAL_PARTIALS] = partials_bytes(device);
    bytes[GS_METAL_ROUTER_LOGITS] = rows * (uint64_t)c->n_expert * f;
    bytes[GS_METAL_CHOICE] = routes * sizeof(int32_t);
    bytes[GS_METAL_CHOICE_WEIGHT] = routes * f;
    bytes[GS_METAL_ACTIVE] = routes * sizeof(struct gs_metal_active);
    bytes[GS_METAL_ACTIVATED] = routes * (uint64_t)c->d_ff * f;
    bytes[GS_METAL_PROJECTED] = rows * model * f;
    bytes[GS_METAL_LOGITS] = GS_METAL_LOGIT_ROWS * (uint64_t)c->n_vocab * f;
    bytes[GS_METAL_CANDIDATES] = GS_METAL_LOGIT_ROWS * candidates * sizeof(struct gs_metal_candidate);
    bytes[GS_METAL_CHOSEN] = GS_METAL_CHAIN_TOKENS * sizeof(int32_t);
    /* A chain's steps begin at multiples of 16 bytes. */
    bytes[GS_METAL_ROPE] = rows * ((uint64_t)c->d_head * f + 16);
    bytes[GS_METAL_OUT] = sizeof(uint32_t);       /* MOE_GATE_UP's count of values past the limit */
    if (device->precision == GS_PRECISION_FAST) { /* the tile kernels' */
        bytes[GS_METAL_ROUTES] = gs_metal_routes_bytes(&device->args, (uint32_t)rows);
        bytes[GS_METAL_EXPERT_OUT] = routes * model * f;
    }
}

static gs_status allocate_scratch(struct gs_device *device, struct gs_error *error)
{
    uint64_t bytes[GS_METAL_BUFFER_COUNT] = {0};
    gs_status status = GS_OK;
    list_scratch(device, bytes);
    for (size_t i = 0; status == GS_OK && i < GS_METAL_BUFFER_COUNT; i++) {
        if (bytes[i] == 0)
            continue;
        status = gs_metal_memory_make(&device->metal, bytes[i], "scratch", &device->scratch[i], error);
        if (status == GS_OK)
            memset(device->scratch[i].contents, 0, (size_t)bytes[i]);
        device->scratch_bytes += bytes[i];
    }
    return status;
}

static gs_status check_model(const struct gs_config *c, struct gs_error *error)
{
    if (c->n_active > GS_METAL_MAX_ACTIVE || c->n_expert > GS_METAL_MAX_EXPERTS ||
        c->d_head > GS_METAL_MAX_D_HEAD)
        return gs_fail(error, GS_UNSUPPORTED,
                       "metal: %lld of %lld experts, heads of %lld: must be at most %d of %d, heads of %d",
                       (long long)c->n_active, (long long)c->n_expert, (long long)c->d_head,
                       GS_METAL_MAX_ACTIVE, GS_METAL_MAX_EXPERTS, GS_METAL_MAX_D_HEAD);
    return GS_OK;
}

static gs_status metal_load(struct gs_device *device, const struct gs_weights *weights,
                            gs_progress_fn *progress, void *progress_user, struct gs_error *error)
{
    if (device->weights)
        return gs_fail(error, GS_INVALID_ARGUMENT, "this device has its weights already");
    gs_status status = check_model(&weights->config, error);
    if (status != GS_OK)
        return status;
    device->weights = weights;
    device->config = weights->config;
    gs_control_spoil_config(device->control, &device->config);
    gs_yarn_init(&device->config, &device->yarn);
    device->args = make_args(&device->config);
    device->layers = calloc((size_t)device->config.n_layer, sizeof *device->layers);
    if (!device->layers)
        return gs_fail_memory(error, (uint64_t)device->config.n_layer * sizeof *device->layers);
    status = allocate_scratch(device, error);
    return status == GS_OK ? gs_metal_load_weights(device, progress, progress_user, error) : status;
}

/* ---------------------------------------------------------------- what the engine asks */

static size_t metal_max_tokens(const struct gs_device *device)
{
    return (size_t)device->max_rows;
}

/* Taken since load: memory_available counts it as free again, so that a plan finds room for it. */
static uint64_t metal_scratch_bytes(const struct gs_device *device)
{
    return device->scratch_bytes;
}

/* What the GPU may use without being slowed down, less what it uses: mapped weights count. */
static uint64_t metal_memory_available(const struct gs_device *device)
{
    uint64_t taken = gs_metal_allocated(&device->metal), all = device->metal.working_set_bytes;
    return (all > taken ? all - taken : 0) + device->scratch_bytes;
}

static const float *metal_logits(struct gs_device *device, size_t row)
{
    return row < device->n_logit_rows ? device->logits + row * (size_t)device->config.n_vocab : NULL;
}

static int32_t metal_chosen(const struct gs_device *device, size_t row)
{
    const int32_t *chosen = device->scratch[GS_METAL_CHOSEN].contents;
    bool is_there = row < device->n_logit_rows && device->n_logit_rows <= GS_METAL_LOGIT_ROWS;
    return is_there && device->is_chosen[row] ? chosen[row] : -1;
}

static void metal_tap(struct gs_device *device, gs_tap_fn *fn, void *user)
{
    if (fn && !device->tapped)
        device->tapped = malloc((size_t)(device->max_rows * device->config.n_active) * sizeof(float));
    /* Without memory for it nothing is tapped: the verifier then finds rows missing, and says so. */
    device->tap = device->tapped ? fn : NULL;
    device->tap_user = user;
}

static const struct gs_metal_experts *find_experts(const struct gs_device *device,
                                                   const struct gs_mxfp4_matrix *matrix)
{
    for (int64_t i = 0; i < device->config.n_layer; i++) {
        if (matrix->blocks == device->weights->layers[i].gate_up.blocks)
            return &device->layers[i].gate_up;
        if (matrix->blocks == device->weights->layers[i].down.blocks)
            return &device->layers[i].down;
    }
    return NULL;
}

static void metal_dequantize(struct gs_device *device, const struct gs_mxfp4_matrix *matrix, int64_t expert,
                             int64_t first, int64_t n_rows, float *out)
{
    const struct gs_metal_experts *experts = find_experts(device, matrix);
    gs_status status = experts ? GS_OK : GS_INVALID_ARGUMENT;
    /* By way of memory that no forward is using now, in parts that fit. */
    int64_t most = device->max_rows * device->config.d_model / matrix->columns;
    for (int64_t at = 0; status == GS_OK && at < n_rows; at += most) {
        struct gs_metal_run run = {.device = device};
        int64_t part = n_rows - at < most ? n_rows - at : most;
        status = gs_metal_dequantize_rows(&run, experts, (uint32_t)(expert * matrix->rows + first + at),
                                          (uint32_t)part);
        if (status == GS_OK)
            status = gs_metal_finish(&run);
        gs_metal_abandon(&run);
        memcpy(out + at * matrix->columns, device->scratch[GS_METAL_PROJECTED].contents,
               (size_t)(part * matrix->columns) * sizeof *out);
    }
    for (int64_t i = 0; status != GS_OK && i < n_rows * matrix->columns; i++)
        out[i] = NAN; /* no error to return: nothing compares equal to this */
}

static void metal_rotary(const struct gs_device *device, struct gs_yarn *out)
{
    *out = device->yarn;
}

static void metal_stats(const struct gs_device *device, struct gs_backend_stats *stats)
{
    *stats = device->stats;
    stats->n_command_buffers = device->metal.n_command_buffers;
    stats->n_encoders = device->metal.n_encoders;
    stats->n_dispatches = device->metal.n_dispatches;
    stats->n_compiled = device->n_compiled;
    stats->n_kept = device->n_kept;
    stats->kernels_note = device->kernels_note;
}

const struct gs_backend gs_backend_metal = {
    .name = "metal",
    .fast_keeps_bits = false, /* few rows and many are different kernels */
    .untested =
        "Metal: kernels and host path are tested on a simulator on Linux. They have never run on a Mac.",
    .has_levers = true,
    .probe = metal_probe,
    .open = metal_open,
    .close = metal_close,
    .load = metal_load,
    .max_tokens = metal_max_tokens,
    .kv_bytes = gs_metal_kv_bytes,
    .scratch_bytes = metal_scratch_bytes,
    .memory_available = metal_memory_available,
    .kv_create = gs_metal_kv_create,
    .kv_free = gs_metal_kv_free,
    .kv_length = gs_metal_kv_length,
    .kv_truncate = gs_metal_kv_truncate,
    .kv_copy = gs_metal_kv_copy,
    .kv_export = gs_metal_kv_export,
    .kv_import = gs_metal_kv_import,
    .forward = gs_metal_forward,
    .chain = gs_metal_chain,
    .logits = metal_logits,
    .chosen = metal_chosen,
    .chooses = true,
    .draws = true,
    .tap = metal_tap,
    .dequantize = metal_dequantize,
    .rotary = metal_rotary,
    .stats = metal_stats,
};
