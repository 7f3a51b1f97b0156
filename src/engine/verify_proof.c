#include "engine/verify_proof.h"

#include "backend/registry.h"
#include "base/status.h"

#include <string.h>

gs_status gs_proof_choose_kind(const char *precision, const char *weights, struct gs_device_options *options,
                               struct gs_error *error)
{
    if (strcmp(precision, "exact") == 0)
        options->precision = GS_PRECISION_EXACT;
    else if (strcmp(precision, "fast") == 0)
        options->precision = GS_PRECISION_FAST;
    else
        return gs_fail(error, GS_INVALID_ARGUMENT, "no precision \"%s\": there are exact and fast",
                       gs_quote(precision).text);
    if (strcmp(weights, "native") == 0)
        options->weights = GS_WEIGHTS_NATIVE;
    else if (strcmp(weights, "q8") == 0)
        options->weights = GS_WEIGHTS_Q8;
    else
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "weights cannot be kept as \"%s\": there are native and q8", gs_quote(weights).text);
    return GS_OK;
}

gs_status gs_proof_open(const char *path, const struct gs_verify_options *options, struct gs_proof *proof,
                        struct gs_error *error)
{
    const char *precision = options->precision ? options->precision : "exact";
    const char *weights = options->weights ? options->weights : "native";
    *proof = (struct gs_proof){.watch = {.progress = options->progress,
                                         .progress_user = options->progress_user,
                                         .cancelled = options->cancelled},
                               .device = {.n_threads = options->n_threads,
                                          .index = options->device,
                                          .isa = options->cpu_features,
                                          .levers = options->levers,
                                          .cache_folder = options->cache_folder}};
    gs_status status = gs_backend_find(options->backend, &proof->backend, error);
    if (status == GS_OK)
        status = gs_backend_check_levers(proof->backend, &options->levers, error);
    if (status == GS_OK)
        status = gs_proof_choose_kind(precision, weights, &proof->device, error);
    if (status == GS_OK)
        status = gs_checkpoint_open(path, &proof->checkpoint, error);
    if (status == GS_OK)
        status = gs_weights_bind(proof->checkpoint, NULL, NULL, &proof->weights, error);
    if (status == GS_OK && options->golden)
        status = gs_golden_open(options->golden, &proof->weights->config, &proof->golden, error);
    if (status != GS_OK) {
        gs_proof_close(proof);
        return status;
    }
    bool rounded = proof->golden && !proof->golden->is_complete;
    proof->reference = rounded         ? "golden in bfloat16"
                       : proof->golden ? "golden in float32"
                                       : "itself, cut and threaded otherwise";
    proof->thresholds = gs_thresholds_find(precision, weights, rounded ? "bfloat16" : "float32");
    if (!proof->thresholds) {
        gs_proof_close(proof);
        return gs_fail(error, GS_UNSUPPORTED, "there are no thresholds for precision %s with weights %s",
                       precision, weights);
    }
    return GS_OK;
}

void gs_proof_close(struct gs_proof *proof)
{
    gs_golden_close(proof->golden);
    gs_weights_free(proof->weights);
    gs_checkpoint_close(proof->checkpoint);
    gs_arena_free(&proof->arena);
    *proof = (struct gs_proof){0};
}

/* splitmix64 (Steele, Lea, Flood 2014): always the same tokens for a model. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

gs_status gs_proof_choose_tokens(struct gs_proof *proof, const struct gs_verify_options *options,
                                 size_t wanted, struct gs_error *error)
{
    const struct gs_config *config = &proof->weights->config;
    size_t most = (size_t)config->max_ctx, n_golden = proof->golden ? proof->golden->n_tokens : 0;
    size_t asked = options->n_tokens, n = asked > 0 ? asked : wanted < most ? wanted : most;
    if (asked > most || (n_golden > 0 && asked > n_golden))
        return gs_fail(error, GS_INVALID_ARGUMENT, "%zu tokens: %s %zu", asked,
                       n_golden > 0 ? "the golden has" : "this model takes at most",
                       n_golden > 0 ? n_golden : most);
    proof->n_tokens = n;
    if (n <= n_golden) {
        proof->tokens = proof->golden->tokens;
        return GS_OK;
    }
    int32_t *tokens = gs_arena_alloc_array(&proof->arena, n, sizeof *tokens);
    if (!tokens)
        return gs_fail_memory(error, n * sizeof *tokens);
    if (n_golden > 0)
        memcpy(tokens, proof->golden->tokens, n_golden * sizeof *tokens);
    uint64_t state = 1;
    for (size_t i = n_golden; i < n; i++)
        tokens[i] = (int32_t)(next_random(&state) % (uint64_t)config->n_vocab);
    proof->tokens = tokens;
    return GS_OK;
}

size_t gs_proof_few_tokens(const struct gs_proof *proof)
{
    size_t past_window = (size_t)proof->weights->config.window + 13;
    return past_window > 141 ? past_window : 141;
}

gs_status gs_proof_span(struct gs_proof *proof, size_t begin, size_t end, struct gs_positions *out,
                        struct gs_error *error)
{
    int32_t *list = gs_arena_alloc_array(&proof->arena, end - begin, sizeof *list);
    if (!list)
        return gs_fail_memory(error, (end - begin) * sizeof *list);
    for (size_t i = begin; i < end; i++)
        list[i - begin] = (int32_t)i;
    *out = (struct gs_positions){list, end - begin};
    return GS_OK;
}

struct gs_positions gs_first_positions(struct gs_positions positions, size_t end)
{
    while (positions.count > 0 && positions.list[positions.count - 1] >= (int64_t)end)
        positions.count--;
    return positions;
}

gs_status gs_proof_check_files(const struct gs_proof *proof, struct gs_error *error)
{
    if (!gs_checkpoint_damaged(proof->checkpoint))
        return GS_OK;
    gs_status status = gs_checkpoint_check(proof->checkpoint, error);
    return status != GS_OK ? status
                           : gs_fail(error, GS_FILE_CHANGED, "a file of the model shrank while in use");
}
