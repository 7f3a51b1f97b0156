/*
 * The cuda backend without the command line's own work: loading, prefill, decoding token by token and in
 * chains on the device, batches, and whether steps and chains agree: exit code 1 if not. Medians with least
 * and most.
 *
 *   bench_cuda MODEL [exact|fast] [native|q8] [RUNS] [DEPTH,DEPTH...] [PROMPT,PROMPT...] [BATCH,BATCH...]
 * [JSON]
 *
 * A batch is a number of timelines of 64 tokens, or "64@8192": that many with a context of their own of 8,192
 * tokens. JSON is a file for the same figures, in the form of `gossamer bench --json`.
 */
#include "backend/cuda/cuda.h"
#include "backend/gpu/backend.h"
#include "backend/gpu/device.h"
#include "base/clock.h"
#include "format/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RUNS  64
#define CHAIN     128
#define MAX_BATCH 64
#define STEPS     16 /* of a batch, in a run */
#define PINNED    ((uint64_t)64 << 20)
#define COPIES    16 /* of that many bytes, in a run */

static const struct gs_backend *const cuda = &gs_backend_cuda;

struct bench {
    struct gs_weights *weights;
    struct gs_device *device;
    int n_runs;
    int32_t *tokens; /* [n_tokens]: pseudo-random */
    size_t n_tokens;
    FILE *json; /* or NULL */
    bool has_rows;
};

static void require(gs_status status, const struct gs_error *error)
{
    if (status == GS_OK)
        return;
    fprintf(stderr, "bench_cuda: %s\n", error->message);
    exit(1);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A row of the JSON; its names hold nothing that would have to be escaped. */
static void put_row(struct bench *bench, const char *name, const char *key, double median, double least,
                    double most)
{
    if (!bench->json)
        return;
    fprintf(bench->json,
            "%s\n    {\"name\": \"%s\", \"%s\": {\"median\": %.9g, \"min\": %.9g, \"max\": %.9g}}",
            bench->has_rows ? "," : "", name, key, median, least, most);
    bench->has_rows = true;
}

/* "what: median (least ... most) unit", and the row of the JSON that has `key` */
static double report(struct bench *bench, const char *what, double *values, const char *key)
{
    int n = bench->n_runs;
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    printf("%-44s %10.2f  (%.2f ... %.2f) %s\n", what, values[n / 2], values[0], values[n - 1],
           strcmp(key, "milliseconds") == 0 ? "ms" : "tokens/s");
    fflush(stdout);
    put_row(bench, what, key, values[n / 2], values[0], values[n - 1]);
    return values[n / 2];
}

/* Copies from pinned memory and nothing else: what loading is measured by. Returns GB/s. */
static double bench_transfer(struct bench *bench)
{
    const struct gs_gpu_api *api = bench->device->api;
    struct gs_gpu *gpu = bench->device->gpu;
    double rates[MAX_RUNS];
    void *host = NULL, *to = NULL;
    struct gs_error error;
    require(api->host_alloc(gpu, PINNED, &host, &error), &error);
    memset(host, 1, PINNED);
    require(api->alloc(gpu, PINNED, "a buffer", &to, &error), &error);
    for (int r = -1; r < bench->n_runs; r++) {
        double start = gs_clock_seconds();
        for (int i = 0; i < COPIES; i++)
            require(api->copy_in(gpu, bench->device->stream, to, host, PINNED, &error), &error);
        require(api->sync(gpu, bench->device->stream, &error), &error);
        if (r >= 0)
            rates[r] = 1e-9 * (double)(COPIES * PINNED) / (gs_clock_seconds() - start);
    }
    api->release(gpu, to);
    api->host_release(gpu, host);
    qsort(rates, (size_t)bench->n_runs, sizeof *rates, compare_doubles);
    double median = rates[bench->n_runs / 2];
    put_row(bench, "host to device, pinned", "gb_per_second", median, rates[0], rates[bench->n_runs - 1]);
    return median;
}

static struct gs_kv *make_kv(const struct bench *bench, int64_t capacity)
{
    struct gs_kv *kv = NULL;
    struct gs_error error;
    require(cuda->kv_create(bench->device, capacity, &kv, &error), &error);
    return kv;
}

static void append(const struct bench *bench, struct gs_kv *kv, size_t first, size_t n)
{
    size_t most = cuda->max_tokens(bench->device);
    struct gs_error error;
    for (size_t at = 0; at < n;) {
        size_t piece = n - at < most ? n - at : most;
        struct gs_step step = {kv, bench->tokens + first + at, piece,
                               at + piece == n ? GS_WANT_LAST : GS_WANT_NONE, NULL};
        require(cuda->forward(bench->device, &step, 1, NULL, &error), &error);
        at += piece;
    }
}

static int32_t argmax(const float *logits, int64_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* The same greedy tokens step by step on the host and in a chain on the device, and again? */
static bool check_chain(const struct bench *bench)
{
    int32_t stepped[CHAIN], chained[CHAIN], again[CHAIN];
    struct gs_error error;
    struct gs_kv *kv = make_kv(bench, 1024);
    append(bench, kv, 0, 100);
    int32_t first = argmax(cuda->logits(bench->device, 0), bench->weights->config.n_vocab), token = first;
    for (int i = 0; i < CHAIN; i++) {
        struct gs_step step = {kv, &token, 1, GS_WANT_LAST, NULL};
        require(cuda->forward(bench->device, &step, 1, NULL, &error), &error);
        stepped[i] = token = argmax(cuda->logits(bench->device, 0), bench->weights->config.n_vocab);
    }
    for (int run = 0; run < 2; run++) {
        cuda->kv_truncate(kv, 100);
        require(gs_gpu_chain(bench->device, kv, first, NULL, run ? again : chained, CHAIN, &error), &error);
    }
    cuda->kv_free(kv);
    bool as_stepped = memcmp(stepped, chained, sizeof stepped) == 0;
    bool repeats = memcmp(again, chained, sizeof again) == 0;
    printf("chain of %d greedy tokens: as step by step %s, repeats %s\n", CHAIN, as_stepped ? "yes" : "NO",
           repeats ? "yes" : "NO");
    return as_stepped && repeats;
}

#define COMPARED 192 /* tokens of the comparison with exact */
#define STEPPED  64  /* of them one by one */

/* What a run of the first COMPARED tokens gave. */
struct record {
    float *layers; /* [n_layer][COMPARED][d_model]: the residual stream after each layer */
    float *logits; /* [COMPARED][n_vocab] */
    size_t n_vocab, d_model, n_done;
};

static void take_stage(void *user, enum gs_stage stage, int64_t layer, const float *values, int64_t rows,
                       int64_t columns)
{
    struct record *record = user;
    size_t n = (size_t)(rows * columns);
    if (stage == GS_STAGE_LAYER)
        memcpy(record->layers + ((size_t)layer * COMPARED + record->n_done) * record->d_model, values,
               n * sizeof *values);
    if (stage == GS_STAGE_LOGITS)
        memcpy(record->logits + record->n_done * record->n_vocab, values, n * sizeof *values);
}

/* A prompt, then single steps. */
static struct record record_run(const struct bench *bench)
{
    const struct gs_config *c = &bench->weights->config;
    struct record record = {.n_vocab = (size_t)c->n_vocab, .d_model = (size_t)c->d_model};
    struct gs_error error = {.message = "no memory for the comparison"};
    record.layers = malloc((size_t)c->n_layer * COMPARED * record.d_model * sizeof *record.layers);
    record.logits = malloc(COMPARED * record.n_vocab * sizeof *record.logits);
    require(record.layers && record.logits ? GS_OK : GS_OUT_OF_MEMORY, &error);
    struct gs_kv *kv = make_kv(bench, COMPARED);
    cuda->tap(bench->device, take_stage, &record);
    for (size_t n; record.n_done < COMPARED; record.n_done += n) {
        n = record.n_done == 0 ? COMPARED - STEPPED : 1;
        struct gs_step step = {kv, bench->tokens + record.n_done, n, GS_WANT_ALL, NULL};
        require(cuda->forward(bench->device, &step, 1, NULL, &error), &error);
    }
    cuda->tap(bench->device, NULL, NULL);
    cuda->kv_free(kv);
    return record;
}

static double cosine(const float *a, const float *b, size_t n)
{
    double aa = 0.0, bb = 0.0, ab = 0.0;
    for (size_t i = 0; i < n; i++)
        aa += (double)a[i] * a[i], bb += (double)b[i] * b[i], ab += (double)a[i] * b[i];
    return ab / sqrt(aa * bb);
}

/*
 * Rows first ... end-1 of `found` against `exact`: the worst, the median. In a random model a rounding that
 * exchanges an expert is felt from there on, so the median of the first layers says most.
 */
static void compare_rows(const char *what, const float *exact, const float *found, size_t n, size_t first,
                         size_t end)
{
    double values[COMPARED];
    size_t count = 0;
    for (size_t t = first; t < end; t++)
        values[count++] = cosine(exact + t * n, found + t * n, n);
    qsort(values, count, sizeof *values, compare_doubles);
    printf("  %-36s cosine worst %.7f median %.7f\n", what, values[0], values[count / 2]);
}

static void check_precision(const struct bench *bench, const struct record *exact)
{
    struct record found = record_run(bench);
    size_t n_layer = (size_t)bench->weights->config.n_layer, n = found.d_model, same = 0;
    size_t edges[] = {0, COMPARED - STEPPED, COMPARED}, layers[] = {0, 1, 3, n_layer / 2, n_layer - 1};
    for (size_t part = 0; part < 2; part++) {
        printf("against exact: %s\n", part == 0 ? "a prompt" : "single steps after it");
        for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
            char what[40];
            size_t at = layers[i] * COMPARED * n;
            snprintf(what, sizeof what, "after layer %zu", layers[i]);
            compare_rows(what, exact->layers + at, found.layers + at, n, edges[part], edges[part + 1]);
        }
        compare_rows("logits", exact->logits, found.logits, found.n_vocab, edges[part], edges[part + 1]);
    }
    for (size_t t = 0; t < COMPARED; t++)
        same += argmax(exact->logits + t * found.n_vocab, (int64_t)found.n_vocab) ==
                argmax(found.logits + t * found.n_vocab, (int64_t)found.n_vocab);
    printf("  same argmax %zu of %d\n", same, COMPARED);
    free(found.layers);
    free(found.logits);
}

/* The same run in exact precision, on a device of its own that is closed again. */
static struct record record_exact(const struct bench *bench)
{
    struct gs_device_options options = {.precision = GS_PRECISION_EXACT};
    struct bench exact = *bench;
    struct gs_error error;
    require(cuda->open(&options, &exact.device, &error), &error);
    require(cuda->load(exact.device, exact.weights, NULL, NULL, &error), &error);
    struct record record = record_run(&exact);
    cuda->close(exact.device);
    return record;
}

static void bench_decode(struct bench *bench, size_t depth)
{
    double chain[MAX_RUNS], step_rate[MAX_RUNS];
    int32_t out[CHAIN];
    char what[80];
    struct gs_error error;
    struct gs_kv *kv = make_kv(bench, (int64_t)depth + 2 * CHAIN);
    append(bench, kv, 0, depth);
    for (int r = -1; r < bench->n_runs; r++) {
        cuda->kv_truncate(kv, (int64_t)depth);
        double start = gs_clock_seconds();
        require(gs_gpu_chain(bench->device, kv, 100, NULL, out, CHAIN, &error), &error);
        double middle = gs_clock_seconds();
        cuda->kv_truncate(kv, (int64_t)depth);
        for (int i = 0; i < CHAIN; i++) {
            struct gs_step step = {kv, bench->tokens + i, 1, GS_WANT_LAST, NULL};
            require(cuda->forward(bench->device, &step, 1, NULL, &error), &error);
        }
        double end = gs_clock_seconds();
        if (r >= 0) {
            chain[r] = CHAIN / (middle - start);
            step_rate[r] = CHAIN / (end - middle);
        }
    }
    cuda->kv_free(kv);
    snprintf(what, sizeof what, "decode at %zu, chain of %d", depth, CHAIN);
    report(bench, what, chain, "tokens_per_second");
    snprintf(what, sizeof what, "decode at %zu, step by step with logits", depth);
    report(bench, what, step_rate, "tokens_per_second");
}

static void bench_prefill(struct bench *bench, size_t n)
{
    double rates[MAX_RUNS];
    char what[80];
    struct gs_kv *kv = make_kv(bench, (int64_t)n + 1);
    for (int r = -1; r < bench->n_runs; r++) {
        cuda->kv_truncate(kv, 0);
        double start = gs_clock_seconds();
        append(bench, kv, 0, n);
        if (r >= 0)
            rates[r] = gs_clock_seconds() - start;
    }
    cuda->kv_free(kv);
    snprintf(what, sizeof what, "prompt of %zu, first token after", n);
    for (int r = 0; r < bench->n_runs; r++)
        rates[r] *= 1e3;
    double median = report(bench, what, rates, "milliseconds");
    printf("%-44s %10.0f\n", "  tokens/s", (double)n / (median / 1e3));
}

/*
 * `depth` 0: timelines of 64 tokens each. Else one timeline is filled and the others are copies of it: what
 * is read is as much.
 */
static void make_timelines(const struct bench *bench, struct gs_kv **kvs, size_t n, size_t depth)
{
    struct gs_error error;
    for (size_t i = 0; i < n; i++) {
        kvs[i] = make_kv(bench, depth ? (int64_t)(depth + (size_t)STEPS * (MAX_RUNS + 1)) : 512);
        if (depth && i > 0)
            require(cuda->kv_copy(kvs[i], kvs[0], &error), &error);
        else
            append(bench, kvs[i], 10 * i, depth ? depth : 64);
    }
}

static void bench_batch_of(struct bench *bench, size_t n, size_t depth, enum gs_want want)
{
    double rates[MAX_RUNS];
    char what[80], at[32] = "";
    struct gs_kv *kvs[MAX_BATCH];
    struct gs_step steps[MAX_BATCH];
    struct gs_error error;
    make_timelines(bench, kvs, n, depth);
    for (int r = -1; r < bench->n_runs; r++) {
        double start = gs_clock_seconds();
        for (size_t t = 0; t < STEPS; t++) {
            for (size_t i = 0; i < n; i++)
                steps[i] = (struct gs_step){kvs[i], bench->tokens + 37 * i + t, 1, want, NULL};
            require(cuda->forward(bench->device, steps, n, NULL, &error), &error);
        }
        if (r >= 0)
            rates[r] = (double)(STEPS * n) / (gs_clock_seconds() - start);
    }
    for (size_t i = 0; i < n; i++)
        cuda->kv_free(kvs[i]);
    if (depth)
        snprintf(at, sizeof at, " at %zu", depth);
    snprintf(what, sizeof what, "batch of %zu%s, in all%s", n, at,
             want == GS_WANT_TOKEN ? ", tokens alone" : "");
    report(bench, what, rates, "tokens_per_second");
}

/* With all rows of logits brought to the host, and with a token of each chosen on the device. */
static void bench_batches(struct bench *bench, const char *list)
{
    for (char *end; *list; list = *end ? end + 1 : end) {
        unsigned long long n = strtoull(list, &end, 10), depth = 0;
        if (end == list)
            return;
        if (*end == '@')
            depth = strtoull(end + 1, &end, 10);
        if (n == 0 || n > MAX_BATCH || depth > bench->n_tokens)
            continue;
        bench_batch_of(bench, (size_t)n, (size_t)depth, GS_WANT_LAST);
        bench_batch_of(bench, (size_t)n, (size_t)depth, GS_WANT_TOKEN);
    }
}

/* Does `run` with every number of a list "1,2,3" that is 1 to most. */
static void for_each(struct bench *bench, const char *list, size_t most,
                     void (*run)(struct bench *bench, size_t n))
{
    for (char *end; *list; list = *end ? end + 1 : end) {
        unsigned long long n = strtoull(list, &end, 10);
        if (end == list)
            return;
        if (n > 0 && n <= most)
            run(bench, (size_t)n);
    }
}

/* The file's beginning: everything but the rows. */
static void begin_json(struct bench *bench, const char *path, const char *device, bool is_fast, bool is_q8)
{
    struct gs_error error = {.message = "the file for JSON cannot be written"};
    bench->json = fopen(path, "w");
    require(bench->json ? GS_OK : GS_IO, &error);
    fprintf(bench->json,
            "{\"program\": \"bench_cuda\", \"precision\": \"%s\", \"weights\": \"%s\", \"runs\": %d,\n"
            "  \"device\": \"%s\", \"rows\": [",
            is_fast ? "fast" : "exact", is_q8 ? "q8" : "native", bench->n_runs, device);
}

int main(int argc, char **argv)
{
    char description[300];
    struct gs_error error;
    struct gs_checkpoint *checkpoint = NULL;
    struct bench bench = {.n_runs = argc > 4 ? atoi(argv[4]) : 5, .n_tokens = 140000};
    if (!cuda->probe(description, sizeof description) || argc < 2) {
        printf("bench_cuda: %s\n", argc < 2 ? "no model given" : description);
        return 0;
    }
    bench.n_runs = bench.n_runs < 1 ? 1 : bench.n_runs > MAX_RUNS ? MAX_RUNS : bench.n_runs;
    struct gs_device_options options = {
        .precision = argc > 2 && strcmp(argv[2], "fast") == 0 ? GS_PRECISION_FAST : GS_PRECISION_EXACT,
        .weights = argc > 3 && strcmp(argv[3], "q8") == 0 ? GS_WEIGHTS_Q8 : GS_WEIGHTS_NATIVE};
    printf("%s\n%s, precision %s, weights %s, %d runs after one\n", description, argv[1],
           options.precision ? "fast" : "exact", options.weights ? "q8" : "native", bench.n_runs);
    if (argc > 8)
        begin_json(&bench, argv[8], description, options.precision != 0, options.weights != 0);
    require(gs_checkpoint_open(argv[1], &checkpoint, &error), &error);
    require(gs_weights_bind(checkpoint, NULL, NULL, &bench.weights, &error), &error);
    bench.tokens = malloc(bench.n_tokens * sizeof *bench.tokens);
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; bench.tokens && i < bench.n_tokens; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        bench.tokens[i] = (int32_t)((state >> 33) % (uint64_t)bench.weights->config.n_vocab);
    }
    bool compares = options.precision != GS_PRECISION_EXACT || options.weights != GS_WEIGHTS_NATIVE;
    struct record exact = {0};
    if (compares)
        exact = record_exact(&bench);
    double start = gs_clock_seconds();
    require(cuda->open(&options, &bench.device, &error), &error);
    double opened = gs_clock_seconds();
    require(cuda->load(bench.device, bench.weights, NULL, NULL, &error), &error);
    double loaded = gs_clock_seconds();
    double gigabytes = (double)bench.weights->bytes / 1e9, rate = gigabytes / (loaded - opened);
    put_row(&bench, "load", "seconds", loaded - opened, loaded - opened, loaded - opened);
    put_row(&bench, "load, of the file", "gb_per_second", rate, rate, rate);
    double pinned = bench_transfer(&bench);
    printf("opened in %.2f s, %.2f GB loaded in %.3f s: %.1f GB/s, %.0f %% of the %.1f of pinned copies\n",
           opened - start, gigabytes, loaded - opened, rate, 100.0 * rate / pinned, pinned);
    bool same = check_chain(&bench);
    if (compares)
        check_precision(&bench, &exact);
    free(exact.layers);
    free(exact.logits);
    for_each(&bench, argc > 5 ? argv[5] : "128", bench.n_tokens - 2 * CHAIN, bench_decode);
    for_each(&bench, argc > 6 ? argv[6] : "512,1024,2048,8192", bench.n_tokens, bench_prefill);
    bench_batches(&bench, argc > 7 ? argv[7] : "2,4,8,16,32,64");
    if (bench.json) {
        fprintf(bench.json, "\n]}\n");
        bool written = !ferror(bench.json);
        written = fclose(bench.json) == 0 && written;
        snprintf(error.message, sizeof error.message, "the file for JSON could not be written");
        require(written ? GS_OK : GS_IO, &error);
    }
    cuda->close(bench.device);
    gs_weights_free(bench.weights);
    gs_checkpoint_close(checkpoint);
    free(bench.tokens);
    return same ? 0 : 1;
}
