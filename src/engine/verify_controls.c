/*
 * The negative controls: what theory says of each, in one table, and the runs that hold them to it. A control
 * that changes nothing where it should proves that the comparison is blind there; one that changes something
 * where it cannot is itself wrong.
 */
#include "engine/verify_controls.h"

#include "base/clock.h"
#include "base/status.h"
#include "engine/verify_proof.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------- what theory says */

#define NOWHERE INT64_MAX /* as a position: nothing ever changes */

/* What the expectations depend on. */
struct setting {
    const struct gs_weights *weights;
    int64_t ring; /* the first position whose slot in a window layer's cache was used before */
    uint64_t n_past_limit;
};

static int64_t from_start(const struct setting *s)
{
    (void)s;
    return 0;
}

/* At position 0 every angle is 0: a rotation is none, whatever it pairs. */
static int64_t after_first(const struct setting *s)
{
    (void)s;
    return 1;
}

static int64_t first_window_layer(const struct gs_config *config)
{
    int64_t layer = 0;
    while (layer < config->n_layer && !config->layer_is_window[layer])
        layer++;
    return layer;
}

static bool has_window(const struct setting *s)
{
    return first_window_layer(&s->weights->config) < s->weights->config.n_layer;
}

static int64_t past_window(const struct setting *s)
{
    return has_window(s) ? s->weights->config.window : NOWHERE;
}

static int64_t past_ring(const struct setting *s)
{
    return has_window(s) ? s->ring : NOWHERE;
}

/* The attention scaling acts on the first position too: there it is the key against the sink. */
static int64_t where_scaled(const struct setting *s)
{
    return s->weights->config.rope_factor > 1.0 ? 0 : NOWHERE;
}

/* Rounding may change nothing (bounds that are whole already, a model that rounds them itself). */
static int64_t where_bounds_matter(const struct setting *s)
{
    struct gs_config rounded = s->weights->config;
    struct gs_yarn ours, theirs;
    rounded.rope_truncate = true;
    gs_yarn_init(&s->weights->config, &ours);
    gs_yarn_init(&rounded, &theirs);
    size_t bytes = (size_t)ours.n_freq * sizeof *ours.inv_freq;
    return memcmp(ours.inv_freq, theirs.inv_freq, bytes) != 0 ? 1 : NOWHERE;
}

/* With every expert active both softmaxes are over the same logits, and with one expert too. */
static int64_t where_experts_are_left_out(const struct setting *s)
{
    return s->weights->config.n_active < s->weights->config.n_expert ? 0 : NOWHERE;
}

static int64_t where_limited(const struct setting *s)
{
    return s->n_past_limit > 0 ? 0 : NOWHERE;
}

static bool is_zero(const struct gs_matrix *matrix)
{
    for (int64_t r = 0; r < matrix->rows; r++)
        for (int64_t i = 0; i < matrix->columns; i++)
            if (gs_matrix_element(matrix, r, i) != 0.0f)
                return false;
    return true;
}

static int64_t where_biased(const struct setting *s)
{
    for (int64_t layer = 0; layer < s->weights->config.n_layer; layer++) {
        const struct gs_layer_weights *w = &s->weights->layers[layer];
        if (!is_zero(&w->gate_up_bias) || !is_zero(&w->down_bias))
            return 0;
    }
    return NOWHERE;
}

static int64_t layer_zero(const struct gs_config *config)
{
    (void)config;
    return 0;
}

struct rule {
    const char *name, *summary;
    /* Positions before this one keep their bits in every component. */
    int64_t (*first_position)(const struct setting *setting);
    /* Up to this component of this layer nothing changes at any position. */
    int64_t (*first_layer)(const struct gs_config *config);
    enum gs_stage first_stage;
    /* Shows in long sequences only: runs all of the tokens, the others a few. */
    bool is_late;
    /* Where it acts, it fails the bars. Otherwise it changes bits, but how many is the model's affair. */
    bool must_fail;
};

static const struct rule rules[GS_CONTROL_COUNT] = {
    [GS_CONTROL_NONE] = {"none", "nothing killed", from_start, layer_zero, GS_STAGE_COUNT, false, false},
    [GS_CONTROL_SINKS] = {"sinks", "softmax over the keys alone, without the learned sinks", from_start,
                          layer_zero, GS_STAGE_ATTENTION, false, true},
    [GS_CONTROL_WINDOW] = {"window", "window layers see every position", past_window, first_window_layer,
                           GS_STAGE_ATTENTION, true, true},
    [GS_CONTROL_YARN] = {"yarn", "plain RoPE: frequencies and attention unscaled", where_scaled, layer_zero,
                         GS_STAGE_ATTENTION, false, true},
    [GS_CONTROL_YARN_ROUNDED_BOUNDS] = {"yarn-rounded-bounds",
                                        "the ramp's bounds rounded, as llama.cpp and mlx-lm do",
                                        where_bounds_matter, layer_zero, GS_STAGE_ATTENTION, false, true},
    [GS_CONTROL_ROUTER_SOFTMAX] = {"router-softmax-before-topk",
                                   "softmax over all experts, then the choice, not renormalised",
                                   where_experts_are_left_out, layer_zero, GS_STAGE_ROUTER_WEIGHT, false,
                                   true},
    [GS_CONTROL_SWIGLU_CLAMP] = {"swiglu-clamp", "SwiGLU without its limit", where_limited, layer_zero,
                                 GS_STAGE_MOE, false, false},
    [GS_CONTROL_SWIGLU_PLUS_ONE] = {"swiglu-plus-one", "up instead of up + 1", from_start, layer_zero,
                                    GS_STAGE_MOE, false, true},
    [GS_CONTROL_EXPERT_BIAS] = {"expert-bias", "the experts' biases zero", where_biased, layer_zero,
                                GS_STAGE_MOE, false, true},
    [GS_CONTROL_NIBBLE_ORDER] = {"nibble-order", "MXFP4: the high nibble first", from_start, layer_zero,
                                 GS_STAGE_MOE, false, true},
    [GS_CONTROL_GATE_UP_ORDER] = {"gate-up-order", "the first half of the rows as gate, not the even ones",
                                  from_start, layer_zero, GS_STAGE_MOE, false, true},
    [GS_CONTROL_SCALE_MINUS_ONE] = {"scale-minus-one", "MXFP4: exponents one less", from_start, layer_zero,
                                    GS_STAGE_MOE, false, true},
    [GS_CONTROL_ROPE_PAIRS] = {"rope-pairs", "rotates neighbours instead of halves", after_first, layer_zero,
                               GS_STAGE_ATTENTION, false, true},
    [GS_CONTROL_KV_RING] = {"kv-ring-off-by-one", "a wrapped ring is written one slot late", past_ring,
                            first_window_layer, GS_STAGE_ATTENTION, true, true},
};

const char *gs_control_name(enum gs_control control)
{
    return rules[control].name;
}

const char *gs_control_summary(enum gs_control control)
{
    return rules[control].summary;
}

bool gs_control_parse(const char *name, enum gs_control *control)
{
    for (int c = GS_CONTROL_NONE + 1; c < GS_CONTROL_COUNT; c++)
        if (strcmp(rules[c].name, name) == 0) {
            *control = (enum gs_control)c;
            return true;
        }
    return false;
}

/* ---------------------------------------------------------------- what was found */

/* Everything of a sequence, without a control, and what the controls continue. */
struct baseline {
    struct gs_record *record;
    const int32_t *prompt;
    size_t n_prompt;
    int64_t n_few; /* tokens of the controls that need no more */
    struct setting setting;
};

int64_t gs_control_find_first(enum gs_control control, const struct gs_record *found,
                              const struct gs_record *expected, const struct gs_config *config,
                              char upstream[64])
{
    const struct rule *rule = &rules[control];
    int64_t first = INT64_MAX, first_layer = rule->first_layer(config);
    for (int s = 0; s < GS_STAGE_COUNT; s++)
        for (int64_t layer = 0; layer < config->n_layer; layer++) {
            enum gs_stage stage = (enum gs_stage)s;
            int64_t at = gs_first_difference(found, expected, stage, layer);
            bool in_layers = gs_stage_in_layers(stage);
            bool is_upstream =
                stage == GS_STAGE_EMBEDDING ||
                (in_layers && (layer < first_layer || (layer == first_layer && stage < rule->first_stage)));
            if (is_upstream && at != INT64_MAX)
                snprintf(upstream, 64, "%s of layer %lld", gs_stage_name(stage), (long long)layer);
            first = at < first ? at : first;
        }
    return first;
}

void gs_control_judge(struct gs_control_result *result, const char *upstream)
{
    size_t size = sizeof result->problem;
    result->problem[0] = '\0';
    if (upstream[0] != '\0')
        snprintf(result->problem, size, "changes %s, which it cannot reach", upstream);
    else if (result->first_found < result->first_expected)
        snprintf(result->problem, size, "changes position %lld, which it cannot reach before %lld",
                 (long long)result->first_found, (long long)result->first_expected);
    else if (result->has_effect && result->first_found == result->n_tokens)
        snprintf(result->problem, size, "changes nothing");
    else if (result->must_fail && result->n_failed == 0)
        snprintf(result->problem, size, "passes every bar");
    else if (!result->has_effect && result->n_failed > 0)
        snprintf(result->problem, size, "fails bars where it cannot act");
    result->behaves = result->problem[0] == '\0';
}

enum gs_exercise gs_control_exercise(const struct gs_control_result *result)
{
    if (result->has_effect)
        return GS_EXERCISED;
    return result->n_needed > 0 ? GS_EXERCISE_TOO_SHORT : GS_EXERCISE_IDLE;
}

/* Does the golden keep a position at which the control acts? Otherwise it cannot tell. */
static bool golden_reaches(const struct gs_golden *golden, const struct gs_control_result *result)
{
    struct gs_positions rows = gs_first_positions(golden->record->kept.rows, (size_t)result->n_tokens);
    return !result->has_effect || (rows.count > 0 && rows.list[rows.count - 1] >= result->first_expected);
}

/* The bars of gs_verify: against a golden in float32, or else the run without a control. */
static gs_status count_failures(struct gs_proof *proof, const struct gs_subject *subject,
                                const struct gs_record *record, const struct gs_comparison *comparison,
                                struct gs_control_result *result, struct gs_error *error)
{
    struct gs_verify_report report = {.thresholds = proof->thresholds};
    struct gs_comparison *golden = NULL;
    bool has_golden = proof->golden && proof->golden->is_complete && golden_reaches(proof->golden, result);
    gs_status status = gs_check_rotary(&report, subject, proof->golden, error);
    if (status == GS_OK && has_golden) {
        status = gs_comparison_open(proof->weights->config.n_layer, &golden, error);
        if (status == GS_OK) {
            gs_compare(golden, record, proof->golden->record);
            status = gs_check_comparison(&report, golden, error);
        }
        gs_comparison_close(golden);
    } else if (status == GS_OK) {
        status = gs_check_comparison(&report, comparison, error);
    }
    result->n_failed = report.n_failed;
    if (report.n_failed > 0)
        result->failed = *gs_verify_first_failure(&report);
    gs_verify_report_free(&report);
    return status;
}

static double mean_of(double sum, uint64_t count)
{
    return count > 0 ? sum / (double)count : NAN;
}

static void fill_figures(struct gs_control_result *result, const struct gs_comparison *comparison)
{
    const struct gs_distance *attention = &comparison->stages[GS_STAGE_ATTENTION][0];
    const struct gs_distance *logits = &comparison->stages[GS_STAGE_LOGITS][0], *argmax = &comparison->argmax;
    result->attention_cosine = attention->worst_cosine;
    result->attention_mean = mean_of(attention->sum_cosine, attention->compared);
    result->logit_cosine = logits->worst_cosine;
    result->logit_mean = mean_of(logits->sum_cosine, logits->compared);
    result->mean_kl = mean_of(comparison->sum_kl, logits->compared);
    result->argmax_agreement = mean_of((double)(argmax->compared - argmax->differing), argmax->compared);
}

/* The record and the decoded tokens of one control. */
static gs_status run_control(struct gs_proof *proof, enum gs_control control, const struct baseline *baseline,
                             struct gs_control_result *result, struct gs_record **record,
                             struct gs_subject *subject, struct gs_error *error)
{
    struct gs_positions span = gs_first_positions(baseline->record->kept.rows, (size_t)result->n_tokens);
    struct gs_selection kept = {span, span, span, span};
    struct gs_backend_stats stats;
    struct gs_device_options device = proof->device;
    device.control = control;
    gs_status status = gs_subject_open(proof->backend, proof->weights, &device, subject, error);
    if (status == GS_OK)
        status = gs_record_open(proof->weights->config.n_layer, &kept, record, error);
    if (status == GS_OK)
        status = gs_subject_run(subject, proof->tokens, (size_t)result->n_tokens, &gs_cuts_whole, *record,
                                &proof->watch, error);
    if (status != GS_OK)
        return status;
    subject->backend->stats(subject->device, &stats);
    result->n_past_limit = stats.n_past_limit;
    return gs_subject_decode(subject, baseline->prompt, baseline->n_prompt, result->decoded,
                             GS_CONTROL_DECODED, &proof->watch, error);
}

static gs_status try_control(struct gs_proof *proof, const struct gs_verify_options *options,
                             enum gs_control control, const struct baseline *baseline,
                             struct gs_control_result *result, struct gs_error *error)
{
    const struct rule *rule = &rules[control];
    struct gs_record *record = NULL;
    struct gs_subject subject = {0};
    struct gs_comparison *comparison = NULL;
    char upstream[64] = "";
    int64_t n = rule->is_late || options->n_tokens > 0 ? (int64_t)proof->n_tokens : baseline->n_few;
    *result = (struct gs_control_result){.control = control, .n_tokens = n};
    gs_status status = run_control(proof, control, baseline, result, &record, &subject, error);
    if (status == GS_OK)
        status = gs_comparison_open(proof->weights->config.n_layer, &comparison, error);
    if (status != GS_OK)
        goto cleanup;
    gs_compare(comparison, record, baseline->record);
    fill_figures(result, comparison);

    struct setting setting = baseline->setting;
    setting.n_past_limit = result->n_past_limit;
    int64_t expected = control ? rule->first_position(&setting) : NOWHERE;
    int64_t found =
        gs_control_find_first(control, record, baseline->record, &proof->weights->config, upstream);
    result->n_needed = expected == NOWHERE ? 0 : expected + 1;
    result->first_expected = expected < n ? expected : n;
    result->first_found = found < n ? found : n;
    result->has_effect = result->first_expected < n;
    result->must_fail = result->has_effect && rule->must_fail;
    status = count_failures(proof, &subject, record, comparison, result, error);
    gs_control_judge(result, upstream);

cleanup:
    gs_comparison_close(comparison);
    gs_record_close(record);
    gs_subject_close(&subject);
    return status;
}

/* ---------------------------------------------------------------- all of them */

/* The prompt that every control continues, as much of it as the context takes. */
static void choose_prompt(const struct gs_proof *proof, const struct gs_verify_options *options,
                          struct baseline *baseline)
{
    size_t most = (size_t)proof->weights->config.max_ctx;
    most = most > GS_CONTROL_DECODED ? most - GS_CONTROL_DECODED : 1;
    bool given = options->n_prompt > 0 && options->n_prompt <= most;
    baseline->prompt = given ? options->prompt : proof->tokens;
    baseline->n_prompt = given ? options->n_prompt : proof->n_tokens < 16 ? proof->n_tokens : 16;
    baseline->n_prompt = baseline->n_prompt < most ? baseline->n_prompt : most;
}

/* As many tokens as show a wrapped ring: up to a position from there on that the golden keeps, if any. */
static size_t tokens_past(const struct gs_golden *golden, size_t ring)
{
    struct gs_positions rows = golden ? golden->record->kept.rows : (struct gs_positions){0};
    for (size_t i = 0; i < rows.count; i++)
        if ((size_t)rows.list[i] >= ring)
            return (size_t)rows.list[i] + 1;
    return ring + 16;
}

static gs_status open_baseline(struct gs_proof *proof, const struct gs_verify_options *options,
                               struct baseline *baseline, struct gs_error *error)
{
    const struct gs_config *config = &proof->weights->config;
    struct gs_subject subject = {0};
    struct gs_positions span = {0};
    *baseline = (struct baseline){0};
    gs_status status = gs_subject_open(proof->backend, proof->weights, &proof->device, &subject, error);
    if (status != GS_OK)
        return status;
    size_t ring = (size_t)config->window + subject.backend->max_tokens(subject.device);
    status = gs_proof_choose_tokens(proof, options, tokens_past(proof->golden, ring), error);
    if (status == GS_OK)
        status = gs_proof_span(proof, 0, proof->n_tokens, &span, error);
    struct gs_selection kept = {span, span, span, span};
    if (status == GS_OK)
        status = gs_record_open(config->n_layer, &kept, &baseline->record, error);
    choose_prompt(proof, options, baseline);
    size_t few = gs_proof_few_tokens(proof), n = proof->n_tokens;
    few = few < n ? few : n;
    baseline->n_few = (int64_t)few;
    proof->watch.total = 3 * n + (GS_CONTROL_COUNT - 2) * (options->n_tokens > 0 ? n : few) +
                         GS_CONTROL_COUNT * (baseline->n_prompt + GS_CONTROL_DECODED);
    if (status == GS_OK)
        status = gs_subject_run(&subject, proof->tokens, proof->n_tokens, &gs_cuts_whole, baseline->record,
                                &proof->watch, error);
    baseline->setting = (struct setting){.weights = proof->weights, .ring = (int64_t)ring};
    gs_subject_close(&subject);
    return status;
}

static void count_result(struct gs_controls_report *report, const struct gs_control_result *result)
{
    enum gs_exercise exercise = gs_control_exercise(result);
    if (!result->behaves)
        report->n_misbehaved++;
    else if (result->control != GS_CONTROL_NONE) {
        report->n_behaved += exercise == GS_EXERCISED;
        report->n_too_short += exercise == GS_EXERCISE_TOO_SHORT;
        report->n_idle += exercise == GS_EXERCISE_IDLE;
    }
}

gs_status gs_verify_controls(const char *path, const struct gs_verify_options *options,
                             struct gs_controls_report *report, struct gs_error *error)
{
    double began = gs_clock_seconds();
    struct gs_proof proof;
    struct baseline baseline;
    *report = (struct gs_controls_report){0};
    gs_status status = gs_proof_open(path, options, &proof, error);
    if (status != GS_OK)
        return status;
    proof.thresholds = gs_thresholds_find(proof.thresholds->precision, proof.thresholds->weights, "float32");
    status = open_baseline(&proof, options, &baseline, error);
    for (int c = 0; status == GS_OK && c < GS_CONTROL_COUNT; c++) {
        struct gs_control_result *result = &report->results[c];
        status = try_control(&proof, options, (enum gs_control)c, &baseline, result, error);
        count_result(report, result);
    }
    if (status == GS_OK)
        status = gs_proof_check_files(&proof, error);
    report->backend = proof.backend->name;
    report->reference =
        proof.golden && proof.golden->is_complete ? proof.reference : "the run without a control";
    report->n_tokens = (int64_t)proof.n_tokens;
    report->window = proof.weights->config.window;
    report->ring = baseline.setting.ring;
    gs_record_close(baseline.record);
    gs_proof_close(&proof);
    report->seconds = gs_clock_seconds() - began;
    return status;
}
