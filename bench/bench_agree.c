/*
 * A backend's final logits against what transformers computed (a golden of tools/oracle/make_golden.py), with
 * the prompt cut as one likes: pieces of 1 go through the kernels of generation, one piece through those of
 * prompts. Then whether the same run gives the same bits again, and whether a request does in a batch of 8.
 *
 *   bench_agree MODEL GOLDEN BACKEND exact|fast PIECE LEAST
 *
 * Exit code 1 if the mean cosine is below LEAST, if a second run has other bits, or if a batch has other bits
 * in exact precision, which promises them.
 */
#include "backend/registry.h"
#include "base/clock.h"
#include "engine/verify_golden.h"
#include "format/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 8

struct agree {
    const struct gs_backend *backend;
    struct gs_device *device;
    struct gs_weights *weights;
    struct gs_golden *golden;
    size_t n_vocab, n_tokens, piece;
};

static void require(gs_status status, const struct gs_error *error)
{
    if (status == GS_OK)
        return;
    fprintf(stderr, "bench_agree: %s\n", error->message);
    exit(2);
}

static void *take(size_t count, size_t size)
{
    void *at = calloc(count, size);
    struct gs_error error = {.message = "memory is out"};
    require(at ? GS_OK : GS_OUT_OF_MEMORY, &error);
    return at;
}

/* `n_request` timelines of the golden's tokens in step; the logits [n_tokens][n_vocab] of the last one. */
static float *run(const struct agree *a, size_t n_request, struct gs_record *record)
{
    float *logits = take(a->n_tokens * a->n_vocab, sizeof *logits);
    struct gs_kv *kvs[BATCH] = {NULL};
    struct gs_step steps[BATCH];
    struct gs_error error;
    for (size_t i = 0; i < n_request; i++)
        require(a->backend->kv_create(a->device, (int64_t)a->n_tokens, &kvs[i], &error), &error);
    a->backend->tap(a->device, record ? gs_record_tap : NULL, record);
    for (size_t at = 0; at < a->n_tokens; at += a->piece) {
        size_t n = a->n_tokens - at < a->piece ? a->n_tokens - at : a->piece;
        for (size_t i = 0; i < n_request; i++)
            steps[i] = (struct gs_step){
                .kv = kvs[i], .tokens = a->golden->tokens + at, .n_tokens = n, .want = GS_WANT_ALL};
        if (record)
            record->next = (int64_t)at;
        require(a->backend->forward(a->device, steps, n_request, NULL, &error), &error);
        for (size_t t = 0; t < n; t++)
            memcpy(logits + (at + t) * a->n_vocab, a->backend->logits(a->device, (n_request - 1) * n + t),
                   a->n_vocab * sizeof *logits);
    }
    a->backend->tap(a->device, NULL, NULL);
    for (size_t i = 0; i < n_request; i++)
        a->backend->kv_free(kvs[i]);
    return logits;
}

static double cosine(const float *a, const float *b, size_t n)
{
    double aa = 0.0, bb = 0.0, ab = 0.0;
    for (size_t i = 0; i < n; i++)
        aa += (double)a[i] * a[i], bb += (double)b[i] * b[i], ab += (double)a[i] * b[i];
    return ab / sqrt(aa * bb);
}

/* Did every layer choose the experts that the golden names, at this position, in whatever order? */
static bool same_experts(const struct agree *a, const struct gs_record *found, int32_t position)
{
    int64_t n_active = a->weights->config.n_active;
    for (int64_t layer = 0; layer < a->weights->config.n_layer; layer++) {
        const float *ours = found->components[GS_STAGE_ROUTER_CHOICE][layer].values + position * n_active;
        const float *theirs =
            a->golden->record->components[GS_STAGE_ROUTER_CHOICE][layer].values + position * n_active;
        for (int64_t i = 0; i < n_active; i++) {
            bool has = false;
            for (int64_t j = 0; j < n_active; j++)
                has = has || ours[j] == theirs[i];
            if (!has)
                return false;
        }
    }
    return true;
}

struct tally {
    double worst, sum;
    size_t n, n_best;
};

static void add(struct tally *tally, double value, bool same_best)
{
    tally->worst = tally->n == 0 || value < tally->worst ? value : tally->worst;
    tally->sum += value;
    tally->n++;
    tally->n_best += same_best;
}

static void print_tally(const char *what, const struct tally *t)
{
    printf("%-44s %4zu positions: cosine of the logits worst %.7f mean %.7f, same best token %zu\n", what,
           t->n, t->worst, t->n ? t->sum / (double)t->n : NAN, t->n_best);
}

static bool compare(const struct agree *a, const struct gs_record *found, const float *logits, double least)
{
    struct gs_positions positions = gs_record_positions(a->golden->record, GS_STAGE_LOGITS);
    const float *expected = a->golden->record->components[GS_STAGE_LOGITS][0].values;
    struct tally all = {0}, unmoved = {0};
    for (size_t i = 0; i < positions.count; i++) {
        int32_t at = positions.list[i];
        const float *ours = logits + (size_t)at * a->n_vocab, *theirs = expected + i * a->n_vocab;
        bool best = gs_argmax(ours, (int64_t)a->n_vocab) == gs_argmax(theirs, (int64_t)a->n_vocab);
        double value = cosine(ours, theirs, a->n_vocab);
        add(&all, value, best);
        if (same_experts(a, found, at))
            add(&unmoved, value, best);
    }
    print_tally("all", &all);
    print_tally("where every layer chose the same experts", &unmoved);
    return all.n > 0 && all.sum / (double)all.n >= least;
}

static bool same_bits(const struct agree *a, const char *what, const float *first, const float *second)
{
    size_t n = a->n_tokens * a->n_vocab;
    double largest = 0.0;
    bool same = memcmp(first, second, n * sizeof *first) == 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)first[i] - (double)second[i]));
    printf("%-44s %s (largest difference %.2e)\n", what, same ? "same bits" : "other bits", largest);
    return same;
}

static void open_all(struct agree *a, char **argv, struct gs_checkpoint **checkpoint)
{
    struct gs_error error;
    struct gs_device_options options = {.precision = strcmp(argv[4], "fast") == 0 ? GS_PRECISION_FAST
                                                                                  : GS_PRECISION_EXACT};
    require(gs_backend_find(argv[3], &a->backend, &error), &error);
    require(gs_checkpoint_open(argv[1], checkpoint, &error), &error);
    require(gs_weights_bind(*checkpoint, NULL, NULL, &a->weights, &error), &error);
    require(gs_golden_open(argv[2], &a->weights->config, &a->golden, &error), &error);
    require(a->backend->open(&options, &a->device, &error), &error);
    require(a->backend->load(a->device, a->weights, NULL, NULL, &error), &error);
    size_t most = a->backend->max_tokens(a->device), piece = strtoul(argv[5], NULL, 10);
    a->n_vocab = (size_t)a->weights->config.n_vocab;
    a->n_tokens = a->golden->n_tokens;
    a->piece = piece < 1 || piece > most ? most : piece;
    a->piece = a->piece > a->n_tokens ? a->n_tokens : a->piece;
    printf("%s, %s, %s, pieces of %zu, %zu tokens, golden in %s\n", argv[1], a->backend->name, argv[4],
           a->piece, a->n_tokens, a->golden->is_complete ? "float32" : "bfloat16");
}

int main(int argc, char **argv)
{
    struct agree a = {0};
    struct gs_checkpoint *checkpoint = NULL;
    struct gs_record *record = NULL;
    struct gs_error error;
    if (argc != 7) {
        fprintf(stderr, "bench_agree: use: bench_agree MODEL GOLDEN BACKEND exact|fast PIECE LEAST\n");
        return argc == 1 ? 0 : 2; /* alone, it has nothing to measure */
    }
    open_all(&a, argv, &checkpoint);
    struct gs_selection kept = {.choices = gs_record_positions(a.golden->record, GS_STAGE_ROUTER_CHOICE)};
    require(gs_record_open(a.weights->config.n_layer, &kept, &record, &error), &error);
    float *first = run(&a, 1, record), *again = run(&a, 1, NULL);
    bool good = compare(&a, record, first, strtod(argv[6], NULL));
    bool repeats = same_bits(&a, "the same run again", first, again);
    bool alike = true;
    free(again);
    if (a.piece * BATCH <= a.backend->max_tokens(a.device)) {
        float *batch = run(&a, BATCH, NULL);
        alike = same_bits(&a, "the last of 8 requests in a batch", first, batch);
        free(batch);
    }
    bool promised = strcmp(argv[4], "fast") != 0 || a.backend->fast_keeps_bits;
    printf("%s\n", good && repeats && (alike || !promised) ? "pass" : "FAIL");
    free(first);
    gs_record_close(record);
    a.backend->close(a.device);
    gs_golden_close(a.golden);
    gs_weights_free(a.weights);
    gs_checkpoint_close(checkpoint);
    return good && repeats && (alike || !promised) ? 0 : 1;
}
