#include "cli/verify_show.h"

#include "base/status.h"
#include "cli/json_text.h"
#include "engine/compare.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define JSON_FORM (JSON_INDENT(1) | JSON_REAL_PRECISION(12))

/* ---------------------------------------------------------------- figures */

struct figure {
    char text[32];
};

/* Cosines and shares with nine places, counts whole, small things as powers of ten. */
static struct figure format_figure(const char *measure, double value)
{
    static const char *const shares[] = {"cosine", "agreement", "overlap", "choice"};
    static const char *const counts[] = {"differing", "ulps", "bits"};
    struct figure out;
    const char *format = "%.1e";
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        format = strstr(measure, shares[i]) ? "%.9f" : format;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        format = strstr(measure, counts[i]) ? "%.0f" : format;
    if (isnan(value))
        return (struct figure){"none"};
    if (value == 0.0)
        return (struct figure){"0"};
    snprintf(out.text, sizeof out.text, format, value);
    return out;
}

static struct figure format_bar(const struct gs_check *check)
{
    struct figure out = {"-"};
    if (check->bar != GS_BAR_NONE)
        snprintf(out.text, sizeof out.text, "%s %.9g",
                 check->bar == GS_BAR_AT_LEAST ? ">=" : "<=", check->limit);
    return out;
}

struct place {
    char text[64];
};

static struct place format_place(const struct gs_check *check)
{
    struct place out = {""};
    if (check->layer >= 0 && check->at >= 0)
        snprintf(out.text, sizeof out.text, "layer %lld, position %lld", (long long)check->layer,
                 (long long)check->at);
    else if (check->layer >= 0)
        snprintf(out.text, sizeof out.text, "layer %lld", (long long)check->layer);
    else if (check->at >= 0)
        snprintf(out.text, sizeof out.text, "position %lld", (long long)check->at);
    return out;
}

static bool is_worse(const struct gs_check *check, const struct gs_check *than)
{
    if (check->pass != than->pass)
        return !check->pass;
    if (isnan(check->measured) || isnan(than->measured))
        return isnan(check->measured) && !isnan(than->measured);
    bool least = check->bar == GS_BAR_AT_LEAST || strstr(check->measure, "cosine");
    return least ? check->measured < than->measured : check->measured > than->measured;
}

static bool same_measure(const struct gs_check *a, const struct gs_check *b)
{
    return strcmp(a->component, b->component) == 0 && strcmp(a->measure, b->measure) == 0;
}

/* ---------------------------------------------------------------- checks, for people */

static void print_check(const struct gs_check *check, struct gs_output *out)
{
    char compared[24];
    snprintf(compared, sizeof compared, "%llu", (unsigned long long)check->compared);
    gs_output_print(out, "%-14s  %-19s  %11s  %12s  %-11s  %-4s  %s\n", check->component, check->measure,
                    compared, format_figure(check->measure, check->measured).text, format_bar(check).text,
                    check->bar == GS_BAR_NONE ? ""
                    : check->pass             ? "ok"
                                              : "FAIL",
                    format_place(check).text);
}

/* The worst layer stands for all, unless they are wanted one by one. */
static void print_checks(const struct gs_verify_report *report, bool all_layers, struct gs_output *out)
{
    for (size_t i = 0; i < report->count; i++) {
        struct gs_check check = report->checks[i];
        bool seen = false;
        for (size_t j = 0; j < i && check.layer >= 0; j++)
            seen = seen || same_measure(&report->checks[j], &check);
        if (seen && !all_layers)
            continue;
        uint64_t compared = check.compared;
        for (size_t j = i + 1; j < report->count && check.layer >= 0 && !all_layers; j++) {
            const struct gs_check *other = &report->checks[j];
            if (!same_measure(other, &check))
                continue;
            compared += other->compared;
            if (is_worse(other, &check))
                check = *other;
        }
        check.compared = compared;
        print_check(&check, out);
    }
}

void gs_show_checks(const struct gs_verify_report *report, const struct gs_verify_subject *subject,
                    struct gs_output *out)
{
    const struct gs_thresholds *t = report->thresholds;
    gs_output_print(out, "%s: backend %s, precision %s, weights %s, %zu tokens\n",
                    gs_quote(subject->model).text, report->backend, t->precision, t->weights,
                    report->n_tokens);
    gs_output_print(out, "reference: %s%s%s\n", report->reference, subject->golden ? ", " : "",
                    subject->golden ? gs_quote(subject->golden).text : "");
    if (subject->control)
        gs_output_print(out, "killed: %s (%s)\n", gs_control_name(subject->control),
                        gs_control_summary(subject->control));
    gs_output_print(out, "\n%-14s  %-19s  %11s  %12s  %-11s        %s\n", "component", "measure", "compared",
                    "measured", "bar", "where it is worst");
    print_checks(report, subject->all_layers, out);
    const struct gs_check *first = gs_verify_first_failure(report);
    if (first) {
        struct place place = format_place(first);
        gs_output_print(out,
                        "\n%zu of %zu checks FAILED, the first in the model's order: %s, %s%s%s (%.2f s)\n",
                        report->n_failed, report->count, first->component, first->measure,
                        place.text[0] ? " at " : "", place.text, report->seconds);
    } else {
        gs_output_print(out, "\nall %zu checks pass (%.2f s)\n", report->count, report->seconds);
    }
}

/* ---------------------------------------------------------------- controls, for people */

/* The decoded tokens as text, or as ids; the caller frees it. */
static struct gs_buffer decoded_text(const struct gs_control_result *result, const struct gs_vocab *vocab)
{
    struct gs_buffer text = {0};
    for (int i = 0; i < GS_CONTROL_DECODED; i++) {
        size_t size = 0;
        const char *bytes = vocab ? gs_vocab_bytes(vocab, result->decoded[i], &size) : NULL;
        if (bytes)
            gs_buffer_append(&text, bytes, size, NULL);
        else
            gs_buffer_print(&text, NULL, vocab ? "<%d>" : i > 0 ? " %d" : "%d", (int)result->decoded[i]);
    }
    return text;
}

static struct figure format_from(int64_t position, int64_t n_tokens)
{
    struct figure out = {"never"};
    if (position < n_tokens)
        snprintf(out.text, sizeof out.text, "%lld", (long long)position);
    return out;
}

static void print_control(const struct gs_control_result *r, const struct gs_verify_subject *subject,
                          struct gs_output *out)
{
    const char *must = r->must_fail ? "fail" : r->has_effect ? "differ" : "nothing";
    bool idle = r->control != GS_CONTROL_NONE && gs_control_exercise(r) != GS_EXERCISED;
    struct gs_buffer decoded = decoded_text(r, subject->vocab);
    gs_output_print(out, "%-26s  %-7s  %6s  %6s  %6zu  %12.9f  %12.9f  %8.1e  %6.1f%%  %-4s  %s\n",
                    gs_control_name(r->control), must, format_from(r->first_expected, r->n_tokens).text,
                    format_from(r->first_found, r->n_tokens).text, r->n_failed, r->attention_cosine,
                    r->logit_cosine, r->mean_kl, 100.0 * r->argmax_agreement,
                    !r->behaves ? "BAD"
                    : idle      ? "-"
                                : "ok",
                    gs_quote_bytes(decoded.data ? decoded.data : "", decoded.size).text);
    gs_buffer_free(&decoded);
}

/* What had no chance to misbehave is not among those that behave. */
static void print_tally(const struct gs_controls_report *report, struct gs_output *out)
{
    if (report->n_misbehaved > 0)
        gs_output_print(out, "%zu of %d controls MISBEHAVE", report->n_misbehaved, GS_CONTROL_COUNT - 1);
    else if (report->n_behaved == GS_CONTROL_COUNT - 1)
        gs_output_print(out, "all %zu controls behave", report->n_behaved);
    else
        gs_output_print(out, "%zu of %d controls behave", report->n_behaved, GS_CONTROL_COUNT - 1);
    if (report->n_too_short > 0)
        gs_output_print(out, ", %zu not exercised", report->n_too_short);
    if (report->n_idle > 0)
        gs_output_print(out, ", %zu with nothing to act on", report->n_idle);
    gs_output_print(out, " (%.2f s)\n", report->seconds);
}

void gs_show_controls(const struct gs_controls_report *report, const struct gs_verify_subject *subject,
                      struct gs_output *out)
{
    gs_output_print(out, "%s: backend %s, %lld tokens, window %lld, rings wrap at %lld\n",
                    gs_quote(subject->model).text, report->backend, (long long)report->n_tokens,
                    (long long)report->window, (long long)report->ring);
    gs_output_print(out,
                    "bars against %s%s%s; cosines (the worst position), KL and argmax against the run "
                    "without a control\n\n",
                    report->reference, subject->golden ? ", " : "",
                    subject->golden ? gs_quote(subject->golden).text : "");
    gs_output_print(out, "%-26s  %-7s  %6s  %6s  %6s  %12s  %12s  %8s  %7s  %-4s  %s\n", "", "", "from", "",
                    "bars", "attention", "final", "mean", "", "", "");
    gs_output_print(out, "%-26s  %-7s  %6s  %6s  %6s  %12s  %12s  %8s  %7s  %-4s  %s\n", "control", "must",
                    "theory", "found", "failed", "of layer 0", "logits", "KL", "argmax", "", "decoded");
    for (int c = 0; c < GS_CONTROL_COUNT; c++)
        print_control(&report->results[c], subject, out);
    gs_output_print(out, "\n");
    for (int c = 0; c < GS_CONTROL_COUNT; c++) {
        const struct gs_control_result *r = &report->results[c];
        enum gs_exercise exercise = c == GS_CONTROL_NONE ? GS_EXERCISED : gs_control_exercise(r);
        if (!r->behaves)
            gs_output_print(out, "%s misbehaves: %s\n", gs_control_name(r->control), r->problem);
        else if (exercise == GS_EXERCISE_TOO_SHORT)
            gs_output_print(out, "%s is not exercised: it needs %lld tokens, and %lld were run\n",
                            gs_control_name(r->control), (long long)r->n_needed, (long long)r->n_tokens);
        else if (exercise == GS_EXERCISE_IDLE)
            gs_output_print(out, "%s finds nothing to act on here, and changes nothing\n",
                            gs_control_name(r->control));
        else if (c == GS_CONTROL_SWIGLU_CLAMP)
            gs_output_print(out, "%s: %llu values are past the limit\n", gs_control_name(r->control),
                            (unsigned long long)r->n_past_limit);
    }
    print_tally(report, out);
}

/* ---------------------------------------------------------------- for machines */

/* JSON has no NaN and no infinity. */
static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static const char *bar_name(enum gs_bar bar)
{
    return bar == GS_BAR_AT_LEAST ? "at_least" : bar == GS_BAR_AT_MOST ? "at_most" : "none";
}

static json_t *check_object(const struct gs_check *c)
{
    return json_pack("{s:s, s:s, s:I, s:I, s:o, s:s, s:o, s:b, s:I}", "component", c->component, "measure",
                     c->measure, "layer", (json_int_t)c->layer, "compared", (json_int_t)c->compared,
                     "measured", number(c->measured), "bar", bar_name(c->bar), "limit",
                     c->bar == GS_BAR_NONE ? json_null() : json_real(c->limit), "pass", (int)c->pass,
                     "position", (json_int_t)c->at);
}

static json_t *text_or_null(const char *text)
{
    return text ? gs_json_string(text) : json_null();
}

gs_status gs_show_checks_json(const struct gs_verify_report *report, const struct gs_verify_subject *subject,
                              struct gs_output *out, struct gs_error *error)
{
    json_t *checks = json_array();
    for (size_t i = 0; i < report->count; i++)
        json_array_append_new(checks, check_object(&report->checks[i]));
    const struct gs_check *first = gs_verify_first_failure(report);
    return gs_json_print(
        json_pack("{s:o, s:s, s:s, s:s, s:s, s:o, s:o, s:I, s:I, s:f, s:b, s:I, s:o, s:o}", "model",
                  text_or_null(subject->model), "backend", report->backend, "precision",
                  report->thresholds->precision, "weights", report->thresholds->weights, "reference",
                  report->reference, "golden", text_or_null(subject->golden), "control",
                  text_or_null(subject->control ? gs_control_name(subject->control) : NULL), "n_tokens",
                  (json_int_t)report->n_tokens, "n_elements", (json_int_t)report->n_elements, "seconds",
                  report->seconds, "pass", report->n_failed == 0, "n_failed", (json_int_t)report->n_failed,
                  "first_failure", first ? check_object(first) : json_null(), "checks", checks),
        JSON_FORM, out, error);
}

static json_t *control_object(const struct gs_control_result *r, const struct gs_vocab *vocab)
{
    json_t *decoded = json_array(), *text = json_null();
    struct gs_buffer bytes = {0};
    if (vocab) {
        bytes = decoded_text(r, vocab);
        text = gs_json_bytes(bytes.data ? bytes.data : "", bytes.size);
        gs_buffer_free(&bytes);
    }
    for (int i = 0; i < GS_CONTROL_DECODED; i++)
        json_array_append_new(decoded, json_integer(r->decoded[i]));
    return json_pack("{s:s, s:s, s:I, s:b, s:b, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, "
                     "s:o, s:b, s:b, s:I, s:s}",
                     "control", gs_control_name(r->control), "what", gs_control_summary(r->control),
                     "n_tokens", (json_int_t)r->n_tokens, "must_differ", (int)r->has_effect, "must_fail",
                     (int)r->must_fail, "first_expected", (json_int_t)r->first_expected, "first_found",
                     (json_int_t)r->first_found, "n_failed", (json_int_t)r->n_failed, "first_failure",
                     r->n_failed > 0 ? check_object(&r->failed) : json_null(), "attention_worst_cosine",
                     number(r->attention_cosine), "attention_mean_cosine", number(r->attention_mean),
                     "logits_worst_cosine", number(r->logit_cosine), "logits_mean_cosine",
                     number(r->logit_mean), "mean_kl", number(r->mean_kl), "argmax_agreement",
                     number(r->argmax_agreement), "n_past_limit", (json_int_t)r->n_past_limit, "decoded",
                     decoded, "decoded_text", text, "behaves", (int)r->behaves, "exercised",
                     r->control == GS_CONTROL_NONE || gs_control_exercise(r) == GS_EXERCISED, "n_needed",
                     (json_int_t)r->n_needed, "problem", r->problem);
}

gs_status gs_show_controls_json(const struct gs_controls_report *report,
                                const struct gs_verify_subject *subject, struct gs_output *out,
                                struct gs_error *error)
{
    json_t *controls = json_array();
    for (int c = 0; c < GS_CONTROL_COUNT; c++)
        json_array_append_new(controls, control_object(&report->results[c], subject->vocab));
    return gs_json_print(
        json_pack("{s:o, s:s, s:s, s:o, s:I, s:I, s:I, s:f, s:b, s:I, s:I, s:I, s:I, s:o}", "model",
                  text_or_null(subject->model), "backend", report->backend, "reference", report->reference,
                  "golden", text_or_null(subject->golden), "n_tokens", (json_int_t)report->n_tokens, "window",
                  (json_int_t)report->window, "ring", (json_int_t)report->ring, "seconds", report->seconds,
                  "pass", report->n_misbehaved == 0, "n_misbehaved", (json_int_t)report->n_misbehaved,
                  "n_behaved", (json_int_t)report->n_behaved, "n_too_short", (json_int_t)report->n_too_short,
                  "n_idle", (json_int_t)report->n_idle, "controls", controls),
        JSON_FORM, out, error);
}

/* ---------------------------------------------------------------- thresholds */

struct bar_column {
    const char *name, *key;
    size_t offset;
    bool least;
};

static const struct bar_column columns[] = {
    {"yarn: frequencies, scaling", "yarn_error", offsetof(struct gs_thresholds, yarn_error), false},
    {"yarn: cos, sin", "angle_error", offsetof(struct gs_thresholds, angle_error), false},
    {"components: worst cosine", "row_cosine", offsetof(struct gs_thresholds, row_cosine), true},
    {"components: worst error", "row_error", offsetof(struct gs_thresholds, row_error), false},
    {"router: same choice", "choices", offsetof(struct gs_thresholds, choices), true},
    {"logits: worst cosine", "logit_cosine", offsetof(struct gs_thresholds, logit_cosine), true},
    {"logits: mean cosine", "mean_cosine", offsetof(struct gs_thresholds, mean_cosine), true},
    {"logits: worst error", "logit_error", offsetof(struct gs_thresholds, logit_error), false},
    {"logits: worst KL", "worst_kl", offsetof(struct gs_thresholds, worst_kl), false},
    {"logits: mean KL", "mean_kl", offsetof(struct gs_thresholds, mean_kl), false},
    {"logits: top 1 agreement", "top1", offsetof(struct gs_thresholds, top1), true},
    {"logits: top 5 overlap", "top5", offsetof(struct gs_thresholds, top5), true},
};
static const size_t n_columns = sizeof columns / sizeof *columns;

static double limit_of(const struct gs_thresholds *row, const struct bar_column *column)
{
    double value;
    memcpy(&value, (const char *)row + column->offset, sizeof value);
    return column->least && value == 0.0 ? NAN : value; /* no bar */
}

void gs_show_thresholds(struct gs_output *out)
{
    static const char *const titles[] = {"precision", "weights", "reference"};
    for (size_t line = 0; line < 3; line++) {
        gs_output_print(out, "%-30s", titles[line]);
        for (size_t i = 0; i < gs_threshold_count; i++) {
            const struct gs_thresholds *t = &gs_threshold_table[i];
            gs_output_print(out, "%-13s", line == 0 ? t->precision : line == 1 ? t->weights : t->reference);
        }
        gs_output_print(out, "\n");
    }
    gs_output_print(out, "%-30s", "mxfp4: differing elements");
    for (size_t i = 0; i < gs_threshold_count; i++)
        gs_output_print(out, "%-13s", "<= 0");
    gs_output_print(out, "\n");
    for (size_t c = 0; c < n_columns; c++) {
        gs_output_print(out, "%-30s", columns[c].name);
        for (size_t i = 0; i < gs_threshold_count; i++) {
            double limit = limit_of(&gs_threshold_table[i], &columns[c]);
            char text[32] = "-";
            if (!isnan(limit))
                snprintf(text, sizeof text, "%s %.8g", columns[c].least ? ">=" : "<=", limit);
            gs_output_print(out, "%-13s", text);
        }
        gs_output_print(out, "\n");
    }
}

gs_status gs_show_thresholds_json(struct gs_output *out, struct gs_error *error)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < gs_threshold_count; i++) {
        const struct gs_thresholds *t = &gs_threshold_table[i];
        json_t *row = json_pack("{s:s, s:s, s:s}", "precision", t->precision, "weights", t->weights,
                                "reference", t->reference);
        for (size_t c = 0; c < n_columns; c++)
            json_object_set_new(row, columns[c].key, number(limit_of(t, &columns[c])));
        json_array_append_new(rows, row);
    }
    return gs_json_print(json_pack("{s:o}", "thresholds", rows), JSON_FORM, out, error);
}
