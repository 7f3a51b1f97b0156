#include "cli/setup.h"

#include "backend/registry.h"
#include "base/clock.h"
#include "base/status.h"
#include "cli/hub.h"
#include "cli/number_names.h"
#include "cli/plan.h"
#include "cli/report.h"
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

gs_status gs_setup_open(struct gs_setup *setup, struct gs_setup_settings *settings, struct gs_error *error)
{
    setup->settings = settings;
    if (settings->seed < 0) {
        uint64_t random;
        if (getentropy(&random, sizeof random) != 0)
            random = (uint64_t)(gs_clock_seconds() * 1e9);
        settings->seed = (int64_t)(random >> 22); /* 42 bits: short enough to type */
    }
    gs_status status = gs_find_model(&settings->model, &setup->model_path, error);
    return status == GS_OK ? gs_vocab_open(settings->model, &setup->vocab, error) : status;
}

/* Who asked for the best backend by name is told why it is not a better one; who did not ask is not. */
static void print_passed_over(const struct gs_setup *setup)
{
    char why[300];
    const struct gs_engine *engine = setup->engine;
    if (engine->passed_over)
        fprintf(stderr, "backend %s, not %s: %s\n", gs_engine_backend(engine), engine->passed_over->name,
                engine->why.message);
    if (!setup->settings->backend || strcmp(setup->settings->backend, GS_BACKEND_AUTO) != 0)
        return;
    for (size_t i = 0; i < gs_backend_count(); i++) {
        const struct gs_backend *backend = gs_backend_at(i);
        if (strcmp(backend->name, gs_engine_backend(setup->engine)) == 0)
            return;
        if (backend != engine->passed_over && !backend->probe(why, sizeof why))
            fprintf(stderr, "backend %s, not %s: %s\n", gs_engine_backend(setup->engine), backend->name, why);
    }
}

gs_status gs_setup_load(struct gs_setup *setup, struct gs_error *error)
{
    const struct gs_setup_settings *s = setup->settings;
    if (s->script) {
        setup->n_vocab = gs_vocab_size(setup->vocab);
        return GS_OK;
    }
    struct gs_engine_options options = {.backend = s->backend,
                                        .device = (int)s->device,
                                        .precision = GS_PRECISION_FAST,
                                        .cpu_features = s->cpu_features,
                                        .n_threads = (size_t)s->n_threads,
                                        .cache_folder = gs_kernel_cache_folder(&setup->kernel_cache)};
    gs_status status = gs_parse_precision(s->precision, &options.precision, error);
    if (status == GS_OK)
        status = gs_parse_weight_format(s->weights, &options.weights, error);
    if (status == GS_OK)
        status = gs_parse_levers(s->decode, false, &options.levers, error);
    if (status != GS_OK)
        return status;
    gs_warn_untested(s->backend);
    status = gs_plan_open(s->model, &options, &setup->engine, error);
    if (status == GS_OK)
        print_passed_over(setup);
    if (status == GS_OK)
        status = gs_plan_make(setup->engine, s->n_ctx, &setup->plan, error);
    if (status == GS_OK)
        setup->n_vocab = (size_t)gs_engine_info(setup->engine)->n_vocab;
    return status;
}

gs_status gs_setup_sampler(struct gs_setup *setup, struct gs_error *error)
{
    const struct gs_setup_settings *s = setup->settings;
    struct gs_sampling sampling = gs_sampling_default();
    sampling.temperature = (float)s->temperature;
    sampling.top_k = (int32_t)s->top_k;
    sampling.top_p = (float)s->top_p;
    sampling.min_p = (float)s->min_p;
    sampling.repetition_penalty = (float)s->repeat_penalty;
    sampling.presence_penalty = (float)s->presence_penalty;
    sampling.frequency_penalty = (float)s->frequency_penalty;
    sampling.bias = s->bias.list;
    sampling.n_bias = s->bias.count;
    sampling.seed = (uint64_t)s->seed;
    return gs_sampler_open(&sampling, setup->n_vocab, &setup->sampler, error);
}

void gs_setup_print_plan(const struct gs_setup *setup)
{
    fprintf(stderr, "model    %s on backend %s\n%s\n", gs_quote(setup->settings->model).text,
            gs_engine_backend(setup->engine), gs_plan_text(&setup->plan, "").text);
    struct gs_backend_stats stats = {0};
    setup->engine->backend->stats(setup->engine->device, &stats);
    if (stats.kernels_note)
        fprintf(stderr, "kernels  %s\n", stats.kernels_note);
}

void gs_setup_print_sampling(const struct gs_setup *setup)
{
    const struct gs_setup_settings *s = setup->settings;
    fprintf(stderr, "sampling temperature %g, top-k %lld, top-p %g, min-p %g, seed %lld\n", s->temperature,
            (long long)s->top_k, s->top_p, s->min_p, (long long)s->seed);
}

void gs_setup_close(struct gs_setup *setup)
{
    gs_sampler_close(setup->sampler);
    gs_engine_close(setup->engine);
    gs_vocab_close(setup->vocab);
    gs_buffer_free(&setup->model_path);
    gs_buffer_free(&setup->kernel_cache);
    if (setup->settings)
        free(setup->settings->bias.list);
}
