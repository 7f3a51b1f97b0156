#include "engine/engine.h"

#include "backend/registry.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

static struct gs_model_info make_info(const struct gs_weights *weights)
{
    const struct gs_config *c = &weights->config;
    return (struct gs_model_info){.n_layer = c->n_layer,
                                  .d_model = c->d_model,
                                  .d_head = c->d_head,
                                  .n_head = c->n_head,
                                  .n_kv_head = c->n_kv_head,
                                  .n_expert = c->n_expert,
                                  .n_active = c->n_active,
                                  .d_ff = c->d_ff,
                                  .n_vocab = c->n_vocab,
                                  .window = c->window,
                                  .max_ctx = c->max_ctx,
                                  .n_param = weights->n_param,
                                  .n_param_active = weights->n_param_active};
}

/* Which of a backend's ways to compute were asked for. */
static uint64_t hash_kernels(const struct gs_engine_options *options)
{
    const char *features = options->cpu_features ? options->cpu_features : "";
    const struct gs_levers *levers = &options->levers; /* by field: padding may hold anything */
    const uint64_t fields[] = {(uint64_t)levers->decode, (uint64_t)levers->simdgroups, levers->scalar_load};
    return gs_hash_mix(gs_hash_bytes(features, strlen(features)), gs_hash_bytes(fields, sizeof fields) | 1);
}

static gs_status open_device(struct gs_engine *engine, const struct gs_engine_options *options,
                             struct gs_error *error)
{
    struct gs_device_options device_options = {.n_threads = options->n_threads,
                                               .index = options->device,
                                               .isa = options->cpu_features,
                                               .precision = options->precision,
                                               .weights = options->weights,
                                               .levers = options->levers,
                                               .cache_folder = options->cache_folder};
    gs_status status = gs_backend_check_levers(engine->backend, &options->levers, error);
    if (status == GS_OK)
        status = engine->backend->open(&device_options, &engine->device, error);
    if (status == GS_OK)
        status = engine->backend->load(engine->device, engine->weights, options->progress,
                                       options->progress_user, error);
    return status;
}

/* Who named no backend gets the next best where the best one fails: its reason is kept, to be told. */
static gs_status open_some_device(struct gs_engine *engine, const struct gs_engine_options *options,
                                  struct gs_error *error)
{
    bool is_named = options->backend && strcmp(options->backend, GS_BACKEND_AUTO) != 0;
    for (;;) {
        struct gs_error reason = {0};
        gs_status status = open_device(engine, options, &reason);
        const struct gs_backend *next = is_named ? NULL : gs_backend_after(engine->backend);
        bool is_the_devices = status == GS_UNSUPPORTED || status == GS_OUT_OF_MEMORY || status == GS_IO;
        if (status == GS_OK || !is_the_devices || !next) {
            if (status != GS_OK && error)
                *error = reason;
            return status;
        }
        engine->passed_over = engine->backend;
        engine->why = reason;
        if (engine->device)
            engine->backend->close(engine->device);
        engine->device = NULL;
        engine->backend = next;
    }
}

static gs_status open_model(struct gs_engine *engine, const char *path,
                            const struct gs_engine_options *options, struct gs_error *error)
{
    gs_status status = gs_backend_find(options->backend, &engine->backend, error);
    if (status == GS_OK)
        status = gs_checkpoint_open(path, &engine->checkpoint, error);
    if (status == GS_OK)
        status = gs_weights_bind(engine->checkpoint, options->progress, options->progress_user,
                                 &engine->weights, error);
    if (status != GS_OK)
        return status;
    engine->info = make_info(engine->weights);
    engine->precision = options->precision;
    engine->weight_format = options->weights;
    engine->kernels = hash_kernels(options);

    return open_some_device(engine, options, error);
}

gs_status gs_engine_open(const char *path, const struct gs_engine_options *options, struct gs_engine **out,
                         struct gs_error *error)
{
    const struct gs_engine_options defaults = {0};
    *out = NULL;
    struct gs_engine *engine = calloc(1, sizeof *engine);
    if (!engine)
        return gs_fail_memory(error, sizeof *engine);
    engine->has_mutex = pthread_mutex_init(&engine->mutex, NULL) == 0;
    gs_status status = engine->has_mutex ? open_model(engine, path, options ? options : &defaults, error)
                                         : gs_fail(error, GS_OUT_OF_MEMORY, "cannot make a mutex");
    if (status != GS_OK) {
        gs_engine_close(engine);
        return status;
    }
    *out = engine;
    return GS_OK;
}

void gs_engine_close(struct gs_engine *engine)
{
    if (!engine)
        return;
    if (engine->device)
        engine->backend->close(engine->device);
    gs_weights_free(engine->weights);
    gs_checkpoint_close(engine->checkpoint);
    if (engine->has_mutex)
        pthread_mutex_destroy(&engine->mutex);
    free(engine);
}

const struct gs_model_info *gs_engine_info(const struct gs_engine *engine)
{
    return &engine->info;
}

const char *gs_engine_backend(const struct gs_engine *engine)
{
    return engine->backend->name;
}

const int32_t *gs_engine_stop_ids(const struct gs_engine *engine, size_t *count)
{
    *count = engine->weights->config.n_stop_ids;
    return engine->weights->config.stop_ids;
}

/* The largest context whose cache fits in `bytes`: kv_bytes grows with the context. */
static int64_t largest_context(const struct gs_engine *engine, uint64_t bytes)
{
    int64_t fits = 0, too_large = engine->info.max_ctx + 1;
    while (too_large - fits > 1) {
        int64_t middle = fits + (too_large - fits) / 2;
        if (engine->backend->kv_bytes(engine->device, middle) <= bytes)
            fits = middle;
        else
            too_large = middle;
    }
    return fits;
}

gs_status gs_engine_plan(const struct gs_engine *engine, int64_t n_ctx, struct gs_memory_plan *plan,
                         struct gs_error *error)
{
    *plan = (struct gs_memory_plan){0};
    if (n_ctx < 1 || n_ctx > engine->info.max_ctx)
        return gs_fail(error, GS_INVALID_ARGUMENT, "a context of %lld tokens: this model takes 1 to %lld",
                       (long long)n_ctx, (long long)engine->info.max_ctx);
    plan->n_ctx = n_ctx;
    plan->weight_bytes = engine->weights->bytes;
    plan->kv_bytes = engine->backend->kv_bytes(engine->device, n_ctx);
    plan->scratch_bytes = engine->backend->scratch_bytes(engine->device);
    plan->available_bytes = engine->backend->memory_available
                                ? engine->backend->memory_available(engine->device)
                                : gs_memory_available();
    plan->largest_n_ctx = engine->info.max_ctx;
    if (plan->available_bytes > 0)
        plan->largest_n_ctx = plan->available_bytes > plan->scratch_bytes
                                  ? largest_context(engine, plan->available_bytes - plan->scratch_bytes)
                                  : 0;
    return GS_OK;
}

static double in_mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

gs_status gs_plan_check(const struct gs_memory_plan *plan, struct gs_error *error)
{
    if (plan->available_bytes == 0 || plan->n_ctx <= plan->largest_n_ctx)
        return GS_OK;
    if (plan->largest_n_ctx == 0)
        return gs_fail(error, GS_OUT_OF_MEMORY,
                       "not even a context of one token fits in memory: %.1f MiB are free, and what does not "
                       "grow with the context needs %.1f MiB",
                       in_mib(plan->available_bytes), in_mib(plan->scratch_bytes));
    return gs_fail(error, GS_OUT_OF_MEMORY,
                   "a context of %lld tokens needs %.1f MiB for its cache and %.1f MiB beside it, but %.1f "
                   "MiB are free: the largest that fits is %lld tokens",
                   (long long)plan->n_ctx, in_mib(plan->kv_bytes), in_mib(plan->scratch_bytes),
                   in_mib(plan->available_bytes), (long long)plan->largest_n_ctx);
}
