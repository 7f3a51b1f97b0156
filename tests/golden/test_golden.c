/*
 * The backend against goldens made with transformers in float32 (tools/oracle), component by component, in
 * several ways of cutting the sequence into calls; and controls, each of which must be flagged.
 *
 *   test_golden                 the committed goldens
 *   test_golden MODEL GOLDEN    that pair alone; a golden in bfloat16 is measured without a bar
 */
#include "golden_file.h"

#include <math.h>

#include "backend/registry.h"
#include "engine/compare.h"

#define COSINE_BAR   0.999999
#define RELATIVE_BAR 1e-4

static const struct model_golden {
    const char *model, *golden;
} models[] = GOLDEN_MODELS;
enum {
    N_MODELS = sizeof(models) / sizeof(models[0]),
    CONTROL_MODEL = 3, /* published-pattern */
    CONTROL_TOKENS = 300,
};

/* ---------------------------------------------------------------- what a backend computed */

struct subject {
    struct gs_checkpoint *checkpoint;
    struct gs_weights *weights;
    const struct gs_backend *backend;
};

/* Every tapped value of one timeline: values[stage][layer] is [n_tokens][columns]. */
struct recording {
    int64_t n_layer;
    size_t n_tokens;
    struct component {
        float *values;
        int64_t columns;
        size_t rows;
    } * components[GS_STAGE_COUNT]; /* [n_layer] */
};

static void subject_open(struct subject *subject, const char *model)
{
    struct gs_error error = {0};
    memset(subject, 0, sizeof(*subject));
    require(gs_checkpoint_open(model, &subject->checkpoint, &error), &error);
    require(gs_weights_bind(subject->checkpoint, NULL, NULL, &subject->weights, &error), &error);
    require(gs_backend_find("cpu", &subject->backend, &error), &error);
}

static void subject_close(struct subject *subject)
{
    gs_weights_free(subject->weights);
    gs_checkpoint_close(subject->checkpoint);
}

static struct recording *recording_new(int64_t n_layer, size_t n_tokens)
{
    struct recording *recording = calloc(1, sizeof(*recording));
    assert_non_null(recording);
    recording->n_layer = n_layer;
    recording->n_tokens = n_tokens;
    for (int stage = 0; stage < GS_STAGE_COUNT; stage++) {
        recording->components[stage] = calloc((size_t)n_layer, sizeof(struct component));
        assert_non_null(recording->components[stage]);
    }
    return recording;
}

static void recording_free(struct recording *recording)
{
    for (int stage = 0; recording != NULL && stage < GS_STAGE_COUNT; stage++) {
        for (int64_t layer = 0; layer < recording->n_layer; layer++) {
            free(recording->components[stage][layer].values);
        }
        free(recording->components[stage]);
    }
    free(recording);
}

static void record(void *user, enum gs_stage stage, int64_t layer, const float *values, int64_t rows,
                   int64_t columns)
{
    struct recording *recording = user;
    assert_true(stage < GS_STAGE_COUNT && layer >= 0 && layer < recording->n_layer && rows >= 0 &&
                columns > 0);
    struct component *component = &recording->components[stage][layer];
    if (component->values == NULL) {
        component->columns = columns;
        component->values = malloc(recording->n_tokens * (size_t)columns * sizeof(float));
        assert_non_null(component->values);
    }
    assert_true(component->columns == columns && component->rows + (size_t)rows <= recording->n_tokens);
    memcpy(component->values + component->rows * (size_t)columns, values,
           (size_t)(rows * columns) * sizeof(float));
    component->rows += (size_t)rows;
}

/* Runs the tokens in calls of chunks[0], chunks[1], ... tokens, over and over. */
static struct recording *run(const struct subject *subject, const int32_t *tokens, size_t n_tokens,
                             const size_t *chunks, size_t n_chunks)
{
    const struct gs_backend *backend = subject->backend;
    struct recording *recording = recording_new(subject->weights->config.n_layer, n_tokens);
    struct gs_device_options options = {0};
    struct gs_device *device = NULL;
    struct gs_kv *kv = NULL;
    struct gs_error error = {0};

    require(backend->open(&options, &device, &error), &error);
    require(backend->load(device, subject->weights, NULL, NULL, &error), &error);
    require(backend->kv_create(device, (int64_t)n_tokens, &kv, &error), &error);
    backend->tap(device, record, recording);
    for (size_t at = 0, turn = 0; at < n_tokens; turn++) {
        size_t count = chunks[turn % n_chunks];
        count = count < backend->max_tokens(device) ? count : backend->max_tokens(device);
        count = count < n_tokens - at ? count : n_tokens - at;
        struct gs_step step = {.kv = kv, .tokens = tokens + at, .n_tokens = count, .want = GS_WANT_ALL};
        require(backend->forward(device, &step, 1, NULL, &error), &error);
        const struct component *logits = &recording->components[GS_STAGE_LOGITS][0];
        for (size_t row = 0; row < count; row++) {
            const float *tapped = logits->values + (at + row) * (size_t)logits->columns;
            assert_memory_equal(backend->logits(device, row), tapped,
                                (size_t)logits->columns * sizeof(float));
        }
        at += count;
    }
    assert_int_equal(backend->kv_length(kv), n_tokens);
    backend->kv_free(kv);
    backend->close(device);
    return recording;
}

static const size_t all_at_once[] = {SIZE_MAX};
static const size_t one_by_one[] = {1};
static const size_t mixed[] = {1, 7, 64};

/* ---------------------------------------------------------------- comparison */

/* What was found for one kind of component, over everything compared so far. */
struct tally {
    double distance, error; /* the worst; distance: 1 - cosine */
    size_t rows, wrong;     /* wrong: rows or choices beyond the bar */
};

struct report {
    struct tally stages[GS_STAGE_COUNT];
    struct tally argmax;
};

static void name_component(char name[64], enum gs_stage stage, int64_t layer)
{
    if (gs_stage_in_layers(stage)) {
        snprintf(name, 64, "layers.%lld.%s", (long long)layer, gs_stage_name((enum gs_stage)stage));
    } else {
        snprintf(name, 64, "%s", gs_stage_name((enum gs_stage)stage));
    }
}

static double cosine_of(const float *a, const float *b, int64_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return aa == 0 && bb == 0 ? 1 : ab / sqrt(aa * bb);
}

/*
 * Rows `rows` [n_rows] of `found` against expected [n_rows][columns]: cosines row by row; errors relative to
 * the largest value so far, which is at least as strict as at any of the lengths that end at a later row.
 */
static void compare(struct tally *tally, const float *found, const float *expected, const int32_t *rows,
                    size_t n_rows, int64_t columns, size_t n_tokens)
{
    double largest = 0;
    for (size_t r = 0; r < n_rows && (size_t)rows[r] < n_tokens; r++) {
        const float *is = found + (int64_t)rows[r] * columns;
        const float *should = expected + (int64_t)r * columns;
        double difference = 0;
        for (int64_t i = 0; i < columns; i++) {
            double d = fabs((double)is[i] - should[i]);
            difference = d > difference || isnan(d) ? d : difference;
            largest = fmax(largest, fabs((double)should[i]));
        }
        double cosine = cosine_of(is, should, columns);
        double error = difference == 0 ? 0 : difference / largest;
        bool good = cosine >= COSINE_BAR && error <= RELATIVE_BAR;
        tally->wrong += !good;
        tally->rows++;
        tally->distance = 1 - cosine <= tally->distance ? tally->distance : 1 - cosine;
        tally->error = error <= tally->error ? tally->error : error;
    }
}

static int32_t argmax_of(const float *values, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        best = values[i] > values[best] ? i : best;
    }
    return (int32_t)best;
}

static void count(struct tally *tally, bool good)
{
    tally->rows++;
    tally->wrong += !good;
}

static void compare_logits(struct report *report, const struct recording *recording, struct golden *golden)
{
    const struct component *logits = &recording->components[GS_STAGE_LOGITS][0];
    size_t n_rows = 0, n_tokens = 0;
    const int32_t *rows = golden_vector(golden, "logit_rows", GS_DTYPE_I32, &n_rows);
    const float *expected = golden_data(golden, "logits", GS_DTYPE_F32, n_rows, (uint64_t)logits->columns);
    const int32_t *argmax = golden_vector(golden, "argmax", GS_DTYPE_I32, &n_tokens);
    compare(&report->stages[GS_STAGE_LOGITS], logits->values, expected, rows, n_rows, logits->columns,
            recording->n_tokens);
    for (size_t t = 0; t < recording->n_tokens; t++) {
        count(&report->argmax,
              argmax_of(logits->values + (int64_t)t * logits->columns, logits->columns) == argmax[t]);
    }
}

/* Choices of every token, order included. */
static void compare_choices(struct report *report, const struct recording *recording, struct golden *golden,
                            int64_t layer, size_t n_golden_tokens)
{
    const struct component *found = &recording->components[GS_STAGE_ROUTER_CHOICE][layer];
    char name[64];
    name_component(name, GS_STAGE_ROUTER_CHOICE, layer);
    const uint8_t *expected =
        golden_data(golden, name, GS_DTYPE_U8, n_golden_tokens, (uint64_t)found->columns);
    for (size_t t = 0; t < recording->n_tokens; t++) {
        bool same = true;
        for (int64_t k = 0; k < found->columns; k++) {
            int64_t at = (int64_t)t * found->columns + k;
            same = same && found->values[at] == (float)expected[at];
        }
        count(&report->stages[GS_STAGE_ROUTER_CHOICE], same);
    }
}

/* A golden in bfloat16 has only choices, argmax and logits. */
static bool is_complete(const struct golden *golden)
{
    return golden_find(golden, "embedding") != NULL;
}

/* Adds the comparison of the recording's tokens, the first ones of the golden's. */
static void compare_all(struct report *report, const struct recording *recording, struct golden *golden)
{
    size_t n_rows = 0, n_golden_tokens = 0;
    const int32_t *rows = golden_vector(golden, "rows", GS_DTYPE_I32, &n_rows);
    golden_vector(golden, "tokens", GS_DTYPE_I32, &n_golden_tokens);
    for (int stage = 0; stage < GS_STAGE_LOGITS; stage++) {
        for (int64_t layer = 0; layer < (gs_stage_in_layers((enum gs_stage)stage) ? recording->n_layer : 1);
             layer++) {
            const struct component *found = &recording->components[stage][layer];
            if (found->rows != recording->n_tokens) {
                fail_msg("stage %s of layer %lld has %zu rows instead of %zu",
                         gs_stage_name((enum gs_stage)stage), (long long)layer, found->rows,
                         recording->n_tokens);
            }
            if (stage == GS_STAGE_ROUTER_CHOICE) {
                compare_choices(report, recording, golden, layer, n_golden_tokens);
            } else if (is_complete(golden)) {
                char name[64];
                name_component(name, (enum gs_stage)stage, layer);
                const float *expected =
                    golden_data(golden, name, GS_DTYPE_F32, n_rows, (uint64_t)found->columns);
                compare(&report->stages[stage], found->values, expected, rows, n_rows, found->columns,
                        recording->n_tokens);
            }
        }
    }
    compare_logits(report, recording, golden);
}

static size_t wrong_in(const struct report *report)
{
    size_t wrong = report->argmax.wrong;
    for (int stage = 0; stage < GS_STAGE_COUNT; stage++) {
        wrong += report->stages[stage].wrong;
    }
    return wrong;
}

static void print_report(const char *title, const struct report *report)
{
    printf("%s\n  %-14s %9s %14s %14s %7s\n", title, "component", "rows", "worst cosine", "worst error",
           "wrong");
    for (int stage = 0; stage < GS_STAGE_COUNT; stage++) {
        const struct tally *tally = &report->stages[stage];
        if (stage == GS_STAGE_ROUTER_CHOICE) {
            printf("  %-14s %9zu %14s %14s %7zu\n", gs_stage_name((enum gs_stage)stage), tally->rows, "-",
                   "-", tally->wrong);
        } else if (tally->rows > 0) {
            printf("  %-14s %9zu %14.9f %14.2e %7zu\n", gs_stage_name((enum gs_stage)stage), tally->rows,
                   1 - tally->distance, tally->error, tally->wrong);
        }
    }
    printf("  %-14s %9zu %14s %14s %7zu\n", "argmax", report->argmax.rows, "-", "-", report->argmax.wrong);
}

/* ---------------------------------------------------------------- agreement */

/* Two recordings of the same tokens: the same bits in every component. */
static void assert_same_bits(const struct recording *a, const struct recording *b)
{
    for (int stage = 0; stage < GS_STAGE_COUNT; stage++) {
        for (int64_t layer = 0; layer < a->n_layer; layer++) {
            const struct component *x = &a->components[stage][layer], *y = &b->components[stage][layer];
            size_t rows = x->rows < y->rows ? x->rows : y->rows;
            if (rows > 0 && memcmp(x->values, y->values, rows * (size_t)x->columns * sizeof(float)) != 0) {
                fail_msg("stage %s of layer %lld depends on how the tokens were cut into calls",
                         gs_stage_name((enum gs_stage)stage), (long long)layer);
            }
        }
    }
}

/* Every length by itself, so that the end of a call and of a cache falls on each of them. */
static void check_lengths(const struct subject *subject, struct golden *golden, const int32_t *tokens,
                          const struct recording *whole, struct report *report)
{
    size_t n_lengths = 0;
    const int32_t *lengths = golden_vector(golden, "lengths", GS_DTYPE_I32, &n_lengths);
    for (size_t i = 0; i < n_lengths; i++) {
        if ((size_t)lengths[i] == whole->n_tokens) {
            continue;
        }
        struct recording *recording = run(subject, tokens, (size_t)lengths[i], all_at_once, 1);
        compare_all(report, recording, golden);
        assert_same_bits(whole, recording);
        recording_free(recording);
    }
}

/* The large model is spared the repetitions whose cost is in its weights, not in its logic. */
static bool is_tiny(const struct gs_weights *weights)
{
    return weights->n_param < 2000000;
}

/* The same tokens in other cuts: the same bits. */
static void check_cuts(const struct subject *subject, struct golden *golden, const int32_t *tokens,
                       const struct recording *whole, struct report *report)
{
    bool tiny = is_tiny(subject->weights);
    size_t few = whole->n_tokens < 300 ? whole->n_tokens : 300;
    struct recording *pieces = run(subject, tokens, tiny ? whole->n_tokens : few, mixed, 3);
    compare_all(report, pieces, golden);
    assert_same_bits(whole, pieces);
    recording_free(pieces);
    if (tiny) {
        pieces = run(subject, tokens, few, one_by_one, 1);
        compare_all(report, pieces, golden);
        assert_same_bits(whole, pieces);
        recording_free(pieces);
        check_lengths(subject, golden, tokens, whole, report);
    }
}

/* `rounded` (may be NULL) is a golden of the same tokens in bfloat16, for the envelope. */
static void check_model(const char *model, const char *path, const char *rounded, struct report *report,
                        struct report *envelope)
{
    struct subject subject;
    struct golden golden, other;
    size_t n_tokens = 0, n_other = 0;
    subject_open(&subject, model);
    golden_open(&golden, path);
    const int32_t *tokens = golden_vector(&golden, "tokens", GS_DTYPE_I32, &n_tokens);

    struct recording *whole = run(&subject, tokens, n_tokens, all_at_once, 1);
    compare_all(report, whole, &golden);
    if (is_complete(&golden)) {
        check_cuts(&subject, &golden, tokens, whole, report);
    }
    if (rounded != NULL) {
        golden_open(&other, rounded);
        const int32_t *same = golden_vector(&other, "tokens", GS_DTYPE_I32, &n_other);
        assert_int_equal(n_other, n_tokens);
        assert_memory_equal(same, tokens, n_tokens * sizeof(*tokens));
        compare_all(envelope, whole, &other);
        golden_close(&other);
    }
    recording_free(whole);
    golden_close(&golden);
    subject_close(&subject);
}

/* gossamer keeps float32 where transformers rounds to bfloat16: that distance is recorded, not judged. */
static void test_every_component_agrees(void **state)
{
    (void)state;
    struct report total = {0}, envelope = {0};
    for (size_t i = 0; i < N_MODELS; i++) {
        char path[400], rounded[400];
        if (!golden_present(models[i].model, models[i].golden)) {
            continue;
        }
        snprintf(path, sizeof(path), "%s.safetensors", models[i].golden);
        snprintf(rounded, sizeof(rounded), "%s-bf16.safetensors", models[i].golden);
        size_t before = wrong_in(&total);
        check_model(models[i].model, path, rounded, &total, &envelope);
        if (wrong_in(&total) != before) {
            printf("golden: %s disagrees\n", models[i].model);
        }
    }
    print_report("float32 goldens: all models, lengths and cuts", &total);
    print_report("bfloat16 goldens (an envelope without a bar; wrong: beyond that of float32)", &envelope);
    assert_int_equal(wrong_in(&total), 0);
    assert_true(envelope.argmax.rows > 0);
}

/* ---------------------------------------------------------------- controls: each must be flagged */

static uint8_t *copy_bytes(struct gs_arena *arena, const uint8_t *bytes, int64_t size, uint8_t add, bool swap)
{
    uint8_t *copy = gs_arena_alloc(arena, (size_t)size);
    assert_non_null(copy);
    for (int64_t i = 0; i < size; i++) {
        copy[i] = (uint8_t)((swap ? bytes[i] << 4 | bytes[i] >> 4 : bytes[i] + add) & 0xff);
    }
    return copy;
}

static int64_t scale_bytes(const struct gs_mxfp4_matrix *matrix)
{
    return matrix->n_expert * matrix->rows * matrix->columns / 32;
}

static void no_sinks(struct gs_weights *weights, struct gs_arena *arena)
{
    for (int64_t layer = 0; layer < weights->config.n_layer; layer++) {
        struct gs_matrix *sinks = &weights->layers[layer].sinks;
        float *values = gs_arena_alloc_array(arena, (size_t)sinks->columns, sizeof(float));
        assert_non_null(values);
        for (int64_t h = 0; h < sinks->columns; h++) {
            values[h] = -10000;
        }
        sinks->data = (const unsigned char *)values;
        sinks->type = GS_WEIGHT_F32;
    }
}

static void no_window(struct gs_weights *weights, struct gs_arena *arena)
{
    (void)arena;
    memset(weights->config.layer_is_window, 0, sizeof(weights->config.layer_is_window));
}

static void window_one_less(struct gs_weights *weights, struct gs_arena *arena)
{
    (void)arena;
    weights->config.window--;
}

static void window_one_more(struct gs_weights *weights, struct gs_arena *arena)
{
    (void)arena;
    weights->config.window++;
}

static void windows_elsewhere(struct gs_weights *weights, struct gs_arena *arena)
{
    (void)arena;
    for (int64_t layer = 0; layer < weights->config.n_layer; layer++) {
        weights->config.layer_is_window[layer] = !weights->config.layer_is_window[layer];
    }
}

static void rope_bounds_rounded(struct gs_weights *weights, struct gs_arena *arena)
{
    (void)arena;
    weights->config.rope_truncate = true;
}

static void rope_plain(struct gs_weights *weights, struct gs_arena *arena)
{
    (void)arena;
    weights->config.rope_factor = 1;
}

static void scales_shifted(struct gs_weights *weights, struct gs_arena *arena)
{
    struct gs_mxfp4_matrix *down = &weights->layers[1].down;
    down->scales = copy_bytes(arena, down->scales, scale_bytes(down), 1, false);
}

static void nibbles_swapped(struct gs_weights *weights, struct gs_arena *arena)
{
    struct gs_mxfp4_matrix *gate_up = &weights->layers[0].gate_up;
    gate_up->blocks = copy_bytes(arena, gate_up->blocks, 16 * scale_bytes(gate_up), 0, true);
}

static void no_limit(struct gs_weights *weights, struct gs_arena *arena)
{
    (void)arena;
    weights->config.swiglu_limit = 1e30f;
}

static void plain_silu(struct gs_weights *weights, struct gs_arena *arena)
{
    (void)arena;
    weights->config.swiglu_alpha = 1;
}

static void one_expert_less(struct gs_weights *weights, struct gs_arena *arena)
{
    (void)arena;
    weights->config.n_active--;
}

static void other_epsilon(struct gs_weights *weights, struct gs_arena *arena)
{
    (void)arena;
    weights->config.rms_norm_eps = 1e-3f;
}

static const struct control {
    const char *name;
    void (*spoil)(struct gs_weights *weights, struct gs_arena *arena);
    enum gs_stage flagged; /* at least this one */
} controls[] = {
    {"sinks removed", no_sinks, GS_STAGE_ATTENTION},
    {"window removed", no_window, GS_STAGE_ATTENTION},
    {"window one less", window_one_less, GS_STAGE_ATTENTION},
    {"window one more", window_one_more, GS_STAGE_ATTENTION},
    {"windows in the other layers", windows_elsewhere, GS_STAGE_ATTENTION},
    {"YaRN bounds rounded", rope_bounds_rounded, GS_STAGE_ATTENTION},
    {"no YaRN", rope_plain, GS_STAGE_ATTENTION},
    {"scales shifted by one", scales_shifted, GS_STAGE_MOE},
    {"nibbles swapped", nibbles_swapped, GS_STAGE_MOE},
    {"SwiGLU without its limit", no_limit, GS_STAGE_MOE},
    {"SiLU instead of SwiGLU", plain_silu, GS_STAGE_MOE},
    {"one expert less", one_expert_less, GS_STAGE_MOE},
    {"another epsilon", other_epsilon, GS_STAGE_ATTENTION},
};

/* Compared by hand where the number of columns itself is spoilt. */
static bool is_flagged(const struct recording *recording, struct golden *golden, enum gs_stage stage,
                       size_t *n_wrong)
{
    struct tally tally = {0};
    size_t n_rows = 0;
    const int32_t *rows = golden_vector(golden, "rows", GS_DTYPE_I32, &n_rows);
    for (int64_t layer = 0; layer < recording->n_layer; layer++) {
        const struct component *found = &recording->components[stage][layer];
        char name[64];
        name_component(name, stage, layer);
        const float *expected = golden_data(golden, name, GS_DTYPE_F32, n_rows, (uint64_t)found->columns);
        compare(&tally, found->values, expected, rows, n_rows, found->columns, recording->n_tokens);
    }
    *n_wrong = tally.wrong;
    return tally.wrong > 0;
}

static void test_spoilt_models_are_flagged(void **state)
{
    (void)state;
    struct subject subject;
    struct golden golden;
    char path[400];
    size_t n_tokens = 0, missed = 0;
    subject_open(&subject, models[CONTROL_MODEL].model);
    snprintf(path, sizeof(path), "%s.safetensors", models[CONTROL_MODEL].golden);
    golden_open(&golden, path);
    const int32_t *tokens = golden_vector(&golden, "tokens", GS_DTYPE_I32, &n_tokens);

    for (size_t i = 0; i < sizeof(controls) / sizeof(controls[0]); i++) {
        struct gs_arena arena = {0};
        struct gs_weights spoilt = *subject.weights;
        size_t n_layer = (size_t)spoilt.config.n_layer, n_wrong = 0;
        spoilt.layers = gs_arena_alloc_array(&arena, n_layer, sizeof(*spoilt.layers));
        assert_non_null(spoilt.layers);
        memcpy(spoilt.layers, subject.weights->layers, n_layer * sizeof(*spoilt.layers));
        controls[i].spoil(&spoilt, &arena);

        struct subject other = {subject.checkpoint, &spoilt, subject.backend};
        struct recording *recording = run(&other, tokens, CONTROL_TOKENS, all_at_once, 1);
        bool flagged = is_flagged(recording, &golden, controls[i].flagged, &n_wrong);
        printf("  control %-28s %s (%zu rows of %s)\n", controls[i].name, flagged ? "flagged" : "MISSED",
               n_wrong, gs_stage_name(controls[i].flagged));
        missed += !flagged;
        recording_free(recording);
        gs_arena_free(&arena);
    }
    golden_close(&golden);
    subject_close(&subject);
    assert_int_equal(missed, 0);
}

/* One value of each component moved by thrice the bar, one choice exchanged, one argmax moved. */
static void test_spoilt_recordings_are_flagged(void **state)
{
    (void)state;
    struct subject subject;
    struct golden golden;
    char path[400];
    size_t n_tokens = 0;
    subject_open(&subject, models[CONTROL_MODEL].model);
    snprintf(path, sizeof(path), "%s.safetensors", models[CONTROL_MODEL].golden);
    golden_open(&golden, path);
    const int32_t *tokens = golden_vector(&golden, "tokens", GS_DTYPE_I32, &n_tokens);
    struct recording *recording = run(&subject, tokens, 5, all_at_once, 1);

    for (int stage = 0; stage < GS_STAGE_COUNT; stage++) {
        struct component *component = &recording->components[stage][0];
        float *value = component->values + 4 * component->columns + 1, kept = *value;
        float largest = 0;
        for (int64_t i = 0; i < 5 * component->columns; i++) {
            largest = fmaxf(largest, fabsf(component->values[i]));
        }
        *value += stage == GS_STAGE_ROUTER_CHOICE ? 1 : (float)(3 * RELATIVE_BAR) * largest;
        struct report report = {0};
        compare_all(&report, recording, &golden);
        assert_int_equal(report.stages[stage].wrong, 1);
        *value = NAN;
        memset(&report, 0, sizeof(report));
        compare_all(&report, recording, &golden);
        assert_int_equal(report.stages[stage].wrong, 1);
        *value = kept;
    }
    float *logits = recording->components[GS_STAGE_LOGITS][0].values; /* row 0 */
    logits[(argmax_of(logits, subject.weights->config.n_vocab) + 1) % subject.weights->config.n_vocab] = 1e3f;
    struct report report = {0};
    compare_all(&report, recording, &golden);
    assert_int_equal(report.argmax.wrong, 1);

    recording_free(recording);
    golden_close(&golden);
    subject_close(&subject);
}

/* ---------------------------------------------------------------- one pair */

static void test_pair(void **state)
{
    const struct model_golden *pair = *state;
    struct report report = {0};
    struct golden golden;
    golden_open(&golden, pair->golden);
    bool judged = is_complete(&golden);
    golden_close(&golden);
    check_model(pair->model, pair->golden, NULL, &report, NULL);
    print_report(pair->golden, &report);
    assert_true(!judged || wrong_in(&report) == 0);
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        struct model_golden pair = {argv[1], argv[2]};
        const struct CMUnitTest one[] = {cmocka_unit_test_prestate(test_pair, &pair)};
        return cmocka_run_group_tests(one, NULL, NULL);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_component_agrees),
        cmocka_unit_test(test_spoilt_models_are_flagged),
        cmocka_unit_test(test_spoilt_recordings_are_flagged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
