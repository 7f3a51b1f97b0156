#include "tests/support/pair.h"

#include "engine/sample.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>

#define MOST_TOKENS 320

static const struct {
    const char *name;
    int64_t d_model, d_head, n_head, n_kv_head, n_expert, n_active, d_ff, window;
    enum gs_dtype dense;
} shapes[] = {
    [PAIR_DEFAULT] = {"default", 64, 16, 8, 2, 8, 2, 96, 16, GS_DTYPE_BF16},
    [PAIR_FLOAT32] = {"float32", 64, 16, 8, 2, 8, 2, 96, 16, GS_DTYPE_F32},
    [PAIR_FLOAT16] = {"float16", 96, 8, 6, 3, 5, 3, 64, 7, GS_DTYPE_F16},
    [PAIR_ONE_OF_EACH] = {"one of each", 32, 2, 1, 1, 1, 1, 32, 1, GS_DTYPE_BF16},
    [PAIR_ODD_HEADS] = {"odd heads", 160, 10, 3, 1, 40, 5, 128, 33, GS_DTYPE_BF16},
    [PAIR_AS_THE_REAL_ONE] = {"as the real one", 384, 64, 16, 2, 32, 4, 384, 128, GS_DTYPE_BF16},
    [PAIR_NO_CHOICE] = {"no choice", 384, 64, 16, 2, 4, 4, 384, 128, GS_DTYPE_BF16},
    [PAIR_NO_CHOICE_SMALL] = {"no choice, small", 192, 64, 4, 2, 4, 4, 96, 16, GS_DTYPE_BF16},
};

const char *pair_shape_name(enum pair_shape shape)
{
    return shapes[shape].name;
}

struct tiny_options pair_options(enum pair_shape shape, int64_t n_layer)
{
    struct tiny_options options = tiny_options_default();
    options.n_layer = n_layer;
    options.n_vocab = PAIR_VOCAB;
    options.d_model = shapes[shape].d_model;
    options.d_head = shapes[shape].d_head;
    options.n_head = shapes[shape].n_head;
    options.n_kv_head = shapes[shape].n_kv_head;
    options.n_expert = shapes[shape].n_expert;
    options.n_active = shapes[shape].n_active;
    options.d_ff = shapes[shape].d_ff;
    options.window = shapes[shape].window;
    options.dense = shapes[shape].dense;
    return options;
}

struct tiny_model *pair_model(void)
{
    struct tiny_options options = tiny_options_default();
    options.n_vocab = PAIR_VOCAB;
    return tiny_model_make(&options);
}

struct pair pair_make(struct loaded cpu, const struct gs_backend *other,
                      const struct gs_device_options *device)
{
    struct pair pair = {cpu, cpu};
    struct gs_error error;
    pair.other.backend = other;
    assert_ok(other->open(device, &pair.other.device, &error), &error);
    assert_ok(other->load(pair.other.device, cpu.weights, NULL, NULL, &error), &error);
    return pair;
}

struct pair pair_open(const struct tiny_options *options, const struct gs_backend *other,
                      const struct gs_device_options *device)
{
    struct tiny_model *model = tiny_model_make(options);
    struct loaded cpu = loaded_open(model, 1);
    tiny_model_free(model);
    return pair_make(cpu, other, device);
}

void pair_close(struct pair *pair)
{
    pair->other.backend->close(pair->other.device);
    loaded_close(&pair->cpu);
}

void pair_tokens(int32_t *tokens, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        tokens[i] = (int32_t)(seed >> 24) % PAIR_VOCAB;
    }
}

float *pair_logits(const struct loaded *loaded, int64_t capacity, const int32_t *tokens, size_t n,
                   size_t piece)
{
    float *logits = calloc(n * PAIR_VOCAB, sizeof *logits);
    struct gs_kv *kv = loaded_kv(loaded, capacity);
    assert_non_null(logits);
    loaded_run(loaded, kv, tokens, n, piece, logits);
    loaded->backend->kv_free(kv);
    return logits;
}

double pair_error(const float *expected, const float *found, size_t n)
{
    double largest = 0.0, difference = 0.0;
    for (size_t i = 0; i < n * PAIR_VOCAB; i++) {
        largest = fmax(largest, fabs((double)expected[i]));
        difference = fmax(difference, isfinite(found[i]) ? fabs((double)expected[i] - found[i]) : 1e9);
    }
    return difference / largest;
}

static double worst_cosine(const float *a, const float *b, size_t n)
{
    double worst = 1.0;
    for (size_t t = 0; t < n; t++) {
        double aa = 0.0, bb = 0.0, ab = 0.0;
        for (size_t i = t * PAIR_VOCAB; i < (t + 1) * PAIR_VOCAB; i++)
            aa += (double)a[i] * a[i], bb += (double)b[i] * b[i], ab += (double)a[i] * b[i];
        worst = fmin(worst, ab / sqrt(aa * bb));
    }
    return worst;
}

void assert_near(const float *expected, const float *found, size_t n, double least_cosine, double most_error,
                 const char *what)
{
    double worst = worst_cosine(expected, found, n), error = pair_error(expected, found, n);
    print_message("%-28s worst cosine 1 - %.2e, largest error %.2e\n", what, 1.0 - worst, error);
    assert_true(worst >= least_cosine);
    assert_true(error <= most_error);
}

void assert_same_bits(const float *a, const float *b, size_t n, const char *what)
{
    if (memcmp(a, b, n * sizeof *a) != 0)
        fail_msg("%s: other bits", what);
}

int32_t pair_argmax(const float *logits)
{
    int32_t best = 0;
    for (int32_t i = 1; i < PAIR_VOCAB; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

struct gs_sampler *pair_sampler(float temperature, size_t n_vocab, uint64_t seed)
{
    struct gs_sampling sampling = gs_sampling_default();
    struct gs_sampler *sampler;
    struct gs_error error;
    sampling.temperature = temperature;
    sampling.seed = seed;
    assert_ok(gs_sampler_open(&sampling, n_vocab, &sampler, &error), &error);
    return sampler;
}

/* ---------------------------------------------------------------- the contract */

void check_batch(const struct loaded *l, const struct pair_batch *batch, unsigned seed)
{
    const struct gs_backend *backend = l->backend;
    struct gs_error error;
    struct gs_kv *alone[PAIR_BATCH_ROWS], *together[PAIR_BATCH_ROWS];
    int32_t tokens[MOST_TOKENS];
    size_t most = batch->first + batch->apart * batch->n_row + batch->n_step;
    assert_true(batch->n_row <= PAIR_BATCH_ROWS && most <= MOST_TOKENS);
    pair_tokens(tokens, MOST_TOKENS, seed);
    for (size_t i = 0; i < batch->n_row; i++) {
        size_t length = batch->first + batch->apart * i;
        alone[i] = loaded_kv(l, MOST_TOKENS);
        together[i] = loaded_kv(l, MOST_TOKENS);
        loaded_run(l, alone[i], tokens + i, length, 64, NULL);
        loaded_run(l, together[i], tokens + i, length, 64, NULL);
    }
    for (size_t t = 0; t < batch->n_step; t++) {
        struct gs_step steps[PAIR_BATCH_ROWS];
        float expected[PAIR_BATCH_ROWS * PAIR_VOCAB];
        size_t n = t + 1 == batch->n_step ? batch->n_last : batch->n_row;
        for (size_t i = 0; i < n; i++) {
            struct gs_step step = {alone[i], tokens + t + i, 1, GS_WANT_LAST, NULL};
            assert_ok(backend->forward(l->device, &step, 1, NULL, &error), &error);
            memcpy(expected + i * PAIR_VOCAB, backend->logits(l->device, 0), PAIR_VOCAB * sizeof *expected);
            steps[i] = (struct gs_step){together[i], tokens + t + i, 1, GS_WANT_LAST, NULL};
        }
        assert_ok(backend->forward(l->device, steps, n, NULL, &error), &error);
        for (size_t i = 0; i < n; i++)
            assert_same_bits(expected + i * PAIR_VOCAB, backend->logits(l->device, i), PAIR_VOCAB, "batch");
    }
    for (size_t i = 0; i < batch->n_row; i++) {
        backend->kv_free(alone[i]);
        backend->kv_free(together[i]);
    }
}

void check_keys_and_values(const struct loaded *l, int64_t capacity, int64_t other_capacity, size_t n,
                           unsigned seed)
{
    const struct gs_backend *backend = l->backend;
    struct gs_kv *kv = loaded_kv(l, capacity), *copy = loaded_kv(l, other_capacity),
                 *read = loaded_kv(l, capacity);
    struct gs_buffer bytes = {0};
    struct gs_error error;
    float expected[PAIR_VOCAB], found[PAIR_VOCAB];
    int32_t tokens[MOST_TOKENS];
    assert_true(n + 2 <= MOST_TOKENS);
    pair_tokens(tokens, MOST_TOKENS, seed);
    loaded_run(l, kv, tokens, n, 64, NULL);
    assert_ok(backend->kv_copy(copy, kv, &error), &error);
    assert_ok(backend->kv_export(kv, &bytes, &error), &error);
    assert_ok(backend->kv_import(read, bytes.data, bytes.size, &error), &error);
    assert_fails(backend->kv_import(read, bytes.data, bytes.size - 1, &error), GS_MALFORMED, "exported",
                 &error);
    assert_int_equal(backend->kv_length(read), n);
    loaded_run(l, kv, tokens + n, 1, 1, expected);
    loaded_run(l, copy, tokens + n, 1, 1, found);
    assert_same_bits(expected, found, PAIR_VOCAB, "copy");
    loaded_run(l, read, tokens + n, 1, 1, found);
    assert_same_bits(expected, found, PAIR_VOCAB, "import");
    assert_int_equal(backend->kv_truncate(kv, (int64_t)n), n);
    loaded_run(l, kv, tokens + n, 1, 1, found);
    assert_same_bits(expected, found, PAIR_VOCAB, "truncate");
    loaded_run(l, kv, tokens + n + 1, 1, 1, found);
    assert_memory_not_equal(expected, found, sizeof expected);
    backend->kv_free(kv);
    backend->kv_free(copy);
    backend->kv_free(read);
    gs_buffer_free(&bytes);
}

void check_experts(const struct pair *pair, const struct gs_mxfp4_matrix *m, int64_t apart)
{
    size_t n = (size_t)(m->rows * m->columns);
    float *expected = calloc(n, sizeof *expected), *found = calloc(n, sizeof *found);
    assert_true(expected && found);
    for (int64_t e = 0; e < m->n_expert; e += apart) {
        pair->cpu.backend->dequantize(pair->cpu.device, m, e, 0, m->rows, expected);
        pair->other.backend->dequantize(pair->other.device, m, e, 0, m->rows, found);
        assert_same_bits(expected, found, n, "dequantised");
    }
    free(expected);
    free(found);
}
