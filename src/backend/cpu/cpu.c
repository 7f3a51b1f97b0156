/* The CPU backend: its device, and the table that the engine sees. */
#include "backend/cpu/cpu.h"

#include "backend/cpu/controls.h"
#include "backend/cpu/device.h"
#include "backend/cpu/fast.h"
#include "backend/cpu/requantize.h"
#include "backend/steps.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void append_name(char *list, size_t size, const char *name)
{
    size_t length = strlen(list);
    snprintf(list + length, size - length, "%s%s", length > 0 ? ", " : "", name);
}

/* Which kernels there are, worst first, and which are not for this processor. */
static bool cpu_probe(char *description, size_t size)
{
    char here[128] = "", missing[128] = "";
    for (size_t i = 0; i < gs_kernels_count(); i++)
        append_name(here, sizeof here, gs_kernels_at(i)->isa);
    for (size_t i = 0; gs_kernels_missing(i); i++)
        append_name(missing, sizeof missing, gs_kernels_missing(i));
    snprintf(description, size, "processor (%s; kernels %s%s%s)", gs_kernels_best()->isa, here,
             missing[0] ? "; not for this processor: " : "", missing);
    return true;
}

static void cpu_close(struct gs_device *device)
{
    if (!device)
        return;
    gs_threads_close(device->threads);
    gs_fast_close(device->fast);
    gs_arena_free(&device->arena);
    free(device->logits);
    free(device);
}

static gs_status fail_isa(const char *isa, struct gs_error *error)
{
    char names[128] = "";
    for (size_t i = 0; i < gs_kernels_count(); i++)
        append_name(names, sizeof names, gs_kernels_at(i)->isa);
    return gs_fail(error, GS_UNSUPPORTED, "no %s kernels: this build and this processor have %s",
                   gs_quote(isa).text, names);
}

static gs_status cpu_open(const struct gs_device_options *options, struct gs_device **out,
                          struct gs_error *error)
{
    *out = NULL;
    if (options->index != 0)
        return gs_fail(error, GS_INVALID_ARGUMENT, "device %d: the cpu backend has one device, number 0",
                       options->index);
    if ((unsigned)options->control >= GS_CONTROL_COUNT)
        return gs_fail(error, GS_INVALID_ARGUMENT, "control %d: there are controls 0 to %d",
                       (int)options->control, GS_CONTROL_COUNT - 1);
    if (options->precision != GS_PRECISION_EXACT && options->precision != GS_PRECISION_FAST)
        return gs_fail(error, GS_UNSUPPORTED, "the cpu backend has the precisions exact and fast");
    if (options->weights != GS_WEIGHTS_NATIVE && options->weights != GS_WEIGHTS_Q8)
        return gs_fail(error, GS_UNSUPPORTED, "the cpu backend keeps weights as native or as q8");
    if (options->precision != GS_PRECISION_EXACT && options->control != GS_CONTROL_NONE)
        return gs_fail(error, GS_UNSUPPORTED, "controls are of exact precision");
    const struct gs_kernels *kernels = options->isa ? gs_kernels_find(options->isa) : gs_kernels_best();
    if (!kernels)
        return fail_isa(options->isa, error);
    struct gs_device *device = calloc(1, sizeof *device);
    if (!device)
        return gs_fail_memory(error, sizeof *device);
    device->kernels = kernels;
    device->max_tokens = GS_CPU_MAX_TOKENS;
    if (options->precision == GS_PRECISION_FAST) {
        device->fast_kernels = options->isa ? gs_fast_kernels_find(options->isa) : gs_fast_kernels_best();
        device->max_tokens = GS_CPU_FAST_MAX_TOKENS;
    }
    device->stages = gs_cpu_reference_stages;
    device->control = options->control;
    device->format = options->weights;
    gs_status status = gs_threads_open(options->n_threads, &device->threads, error);
    if (status != GS_OK) {
        cpu_close(device);
        return status;
    }
    *out = device;
    return GS_OK;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Allocates `count` elements of `size` bytes; on failure returns NULL and remembers how much was wanted. */
static void *take(struct gs_device *device, int64_t count, size_t size)
{
    device->scratch_bytes += (uint64_t)count * size;
    return gs_arena_alloc_array(&device->arena, (size_t)count, size);
}

static bool allocate_scratch(struct gs_device *device)
{
    const struct gs_config *c = &device->weights->config;
    struct gs_cpu_scratch *s = &device->scratch;
    int64_t n = GS_CPU_MAX_TOKENS, routes = n * c->n_active, q_width = c->n_head * c->d_head;
    int64_t kv_width = c->n_kv_head * c->d_head, n_threads = (int64_t)gs_threads_count(device->threads);
    s->thread_row_size = larger(larger(c->d_model, q_width), c->d_ff);
    return (s->rows = take(device, n, sizeof *s->rows)) &&
           (s->hidden = take(device, n * c->d_model, sizeof(float))) &&
           (s->normed = take(device, n * c->d_model, sizeof(float))) &&
           (s->query = take(device, n * q_width, sizeof(float))) &&
           (s->key = take(device, n * kv_width, sizeof(float))) &&
           (s->value = take(device, n * kv_width, sizeof(float))) &&
           (s->attended = take(device, n * q_width, sizeof(float))) &&
           (s->projected = take(device, n * c->d_model, sizeof(float))) &&
           (s->cosine = take(device, n * c->d_head / 2, sizeof(float))) &&
           (s->sine = take(device, n * c->d_head / 2, sizeof(float))) &&
           (s->router = take(device, n * c->n_expert, sizeof(float))) &&
           (s->choice = take(device, routes, sizeof(float))) &&
           (s->choice_weight = take(device, routes, sizeof(float))) &&
           (s->routes = take(device, routes, sizeof *s->routes)) &&
           (s->expert_routes = take(device, c->n_expert + 1, sizeof(int64_t))) &&
           (s->active = take(device, c->n_expert, sizeof(int64_t))) &&
           (s->gate_up = take(device, routes * 2 * c->d_ff, sizeof(float))) &&
           (s->activated = take(device, routes * c->d_ff, sizeof(float))) &&
           (s->expert_out = take(device, routes * c->d_model, sizeof(float))) &&
           (s->moe = take(device, n * c->d_model, sizeof(float))) &&
           (s->pointers = take(device, routes, sizeof(float *))) &&
           (s->expert_inputs = take(device, routes, sizeof(float *))) &&
           (s->thread_rows = take(device, n_threads * s->thread_row_size, sizeof(float))) &&
           (s->thread_dots = take(device, n_threads * routes, sizeof(float)));
}

/* Room for the logits of n_rows rows. One row is there from the start, so decoding never allocates. */
static gs_status reserve_logits(struct gs_device *device, size_t n_rows, struct gs_error *error)
{
    return gs_logits_reserve(&device->logits, &device->logit_capacity, n_rows,
                             device->weights->config.n_vocab, error);
}

static gs_status cpu_load(struct gs_device *device, const struct gs_weights *weights,
                          gs_progress_fn *progress, void *progress_user, struct gs_error *error)
{
    if (device->weights)
        return gs_fail(error, GS_INVALID_ARGUMENT, "this device has its weights already");
    device->weights = weights;
    gs_status status = gs_cpu_control_apply(device, error);
    if (status == GS_OK && device->format == GS_WEIGHTS_Q8)
        status = gs_cpu_requantize(device, progress, progress_user, error);
    if (status != GS_OK)
        return status;
    gs_yarn_init(&device->weights->config, &device->yarn);
    if (device->fast_kernels) {
        device->scratch.rows = take(device, device->max_tokens, sizeof *device->scratch.rows);
        if (!device->scratch.rows)
            return gs_fail_memory(error, device->scratch_bytes);
        status = gs_fast_open(device, &device->fast, error);
        if (status != GS_OK)
            return status;
        device->scratch_bytes += gs_fast_bytes(device->fast);
    } else if (!allocate_scratch(device)) {
        return gs_fail_memory(error, device->scratch_bytes);
    }
    if (progress)
        progress(progress_user, weights->bytes, weights->bytes);
    return reserve_logits(device, 1, error);
}

static size_t cpu_max_tokens(const struct gs_device *device)
{
    return (size_t)device->max_tokens;
}

static enum gs_kv_format kv_format(const struct gs_device *device)
{
    return device->fast ? GS_KV_BF16 : GS_KV_F32;
}

static uint64_t cpu_kv_bytes(const struct gs_device *device, int64_t capacity)
{
    return gs_kv_bytes(&device->weights->config, kv_format(device), capacity, device->max_tokens);
}

static uint64_t cpu_scratch_bytes(const struct gs_device *device)
{
    return device->repacked_bytes + device->scratch_bytes +
           (uint64_t)device->weights->config.n_vocab * sizeof(float);
}

/* What was made while loading is scratch too, and taken already. */
static uint64_t cpu_memory_available(const struct gs_device *device)
{
    uint64_t available = gs_memory_available();
    return available > 0 ? available + device->repacked_bytes : 0;
}

static gs_status cpu_kv_create(struct gs_device *device, int64_t capacity, struct gs_kv **out,
                               struct gs_error *error)
{
    return gs_kv_open(&device->weights->config, kv_format(device), capacity, device->max_tokens, out, error);
}

/* Lays the steps out as rows and checks them; *n_logits counts the rows that want logits. */
static gs_status lay_out_rows(struct gs_device *device, const struct gs_step *steps, size_t n_steps,
                              int64_t *n_rows, size_t *n_logits, struct gs_error *error)
{
    *n_rows = 0;
    *n_logits = 0;
    for (size_t i = 0; i < n_steps; i++) {
        const struct gs_step *step = &steps[i];
        const struct gs_step_room room = {device->max_tokens, *n_rows, device->weights->config.n_vocab,
                                          step->kv->length, step->kv->capacity};
        gs_status status = gs_step_check(steps, i, &room, error);
        if (status != GS_OK)
            return status;
        for (size_t t = 0; t < step->n_tokens; t++) {
            bool wants = gs_step_wants(step, t);
            device->scratch.rows[(*n_rows)++] =
                (struct gs_cpu_row){step->kv, step->tokens[t], step->kv->length + (int64_t)t, wants};
            *n_logits += wants;
        }
    }
    return GS_OK;
}

static gs_status cpu_forward(struct gs_device *device, const struct gs_step *steps, size_t n_steps,
                             const _Atomic bool *cancelled, struct gs_error *error)
{
    double start = gs_clock_seconds();
    int64_t n_rows;
    size_t n_logits;
    gs_status status = lay_out_rows(device, steps, n_steps, &n_rows, &n_logits, error);
    if (status == GS_OK)
        status = reserve_logits(device, n_logits, error);
    if (status != GS_OK)
        return status;
    for (size_t i = 0; i < n_steps; i++)
        gs_kv_begin_write(steps[i].kv, (int64_t)steps[i].n_tokens);
    status = device->fast ? gs_fast_forward(device, n_rows, cancelled, error)
                          : gs_cpu_reference_forward(device, n_rows, cancelled, error);
    if (status != GS_OK)
        return status;
    for (size_t i = 0; i < n_steps; i++)
        steps[i].kv->length += (int64_t)steps[i].n_tokens;
    device->stats.n_tokens += (uint64_t)n_rows;
    device->stats.n_forward++;
    device->stats.seconds += gs_clock_seconds() - start;
    return GS_OK;
}

static const float *cpu_logits(struct gs_device *device, size_t row)
{
    return row < device->n_logit_rows ? device->logits + row * (size_t)device->weights->config.n_vocab : NULL;
}

static int32_t cpu_chosen(const struct gs_device *device, size_t row)
{
    if (row >= device->n_logit_rows)
        return -1;
    int64_t n_vocab = device->weights->config.n_vocab, best = 0;
    const float *logits = device->logits + row * (size_t)n_vocab;
    for (int64_t i = 0; i < n_vocab; i++) {
        if (!__builtin_isfinite(logits[i]))
            return -1;
        best = logits[i] > logits[best] ? i : best;
    }
    return (int32_t)best;
}

static void cpu_tap(struct gs_device *device, gs_tap_fn *fn, void *user)
{
    device->tap = fn;
    device->tap_user = user;
}

static void cpu_dequantize(struct gs_device *device, const struct gs_mxfp4_matrix *matrix, int64_t expert,
                           int64_t first, int64_t n_rows, float *out)
{
    for (int64_t r = first; r < first + n_rows; r++, out += matrix->columns) {
        struct gs_mxfp4_row row = gs_mxfp4_find_row(matrix, expert, r);
        if (row.scales)
            device->kernels->dequantize_mxfp4(row.blocks, row.scales, matrix->columns, out);
        else
            device->kernels->dequantize_mxfp4_gguf(row.blocks, matrix->columns, out);
    }
}

static void cpu_share(struct gs_device *device, gs_task_fn *fn, void *user, size_t n_items)
{
    gs_threads_run(device->threads, fn, user, n_items, 1);
}

static void cpu_rotary(const struct gs_device *device, struct gs_yarn *out)
{
    *out = device->yarn;
}

static void cpu_stats(const struct gs_device *device, struct gs_backend_stats *stats)
{
    *stats = device->stats;
}

const struct gs_backend gs_backend_cpu = {
    .name = "cpu",
    .fast_keeps_bits = true,
    .probe = cpu_probe,
    .open = cpu_open,
    .close = cpu_close,
    .load = cpu_load,
    .max_tokens = cpu_max_tokens,
    .kv_bytes = cpu_kv_bytes,
    .scratch_bytes = cpu_scratch_bytes,
    .memory_available = cpu_memory_available,
    .kv_create = cpu_kv_create,
    .kv_free = gs_kv_free,
    .kv_length = gs_kv_length,
    .kv_truncate = gs_kv_truncate,
    .kv_copy = gs_kv_copy,
    .kv_copy_part = gs_kv_copy_part,
    .kv_export = gs_kv_export,
    .kv_import = gs_kv_import,
    .kv_export_rings = gs_kv_export_rings,
    .kv_copy_prefix = gs_kv_copy_prefix,
    .forward = cpu_forward,
    .logits = cpu_logits,
    .chosen = cpu_chosen,
    .share = cpu_share,
    .tap = cpu_tap,
    .dequantize = cpu_dequantize,
    .rotary = cpu_rotary,
    .stats = cpu_stats,
};
