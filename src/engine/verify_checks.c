#include "engine/verify_checks.h"

#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

gs_status gs_check_add(struct gs_verify_report *report, struct gs_check check, struct gs_error *error)
{
    if (report->count == report->capacity) {
        size_t capacity = report->capacity ? 2 * report->capacity : 64;
        struct gs_check *checks = realloc(report->checks, capacity * sizeof *checks);
        if (!checks)
            return gs_fail_memory(error, capacity * sizeof *checks);
        report->checks = checks;
        report->capacity = capacity;
    }
    /* A comparison with a NaN is false: it fails either kind of bar. */
    check.pass = check.bar == GS_BAR_NONE ||
                 (check.bar == GS_BAR_AT_LEAST && check.measured >= check.limit) ||
                 (check.bar == GS_BAR_AT_MOST && check.measured <= check.limit);
    report->n_failed += !check.pass;
    report->checks[report->count++] = check;
    return GS_OK;
}

void gs_verify_report_free(struct gs_verify_report *report)
{
    free(report->checks);
    *report = (struct gs_verify_report){0};
}

/* Where a check stands in the order of the model: what is loaded, then the layers, then what follows them. */
static int64_t order_of(const struct gs_check *check)
{
    if (check->layer >= 0)
        return check->layer;
    bool after = strcmp(check->component, gs_stage_name(GS_STAGE_FINAL_NORM)) == 0 ||
                 strcmp(check->component, gs_stage_name(GS_STAGE_LOGITS)) == 0;
    return after ? INT64_MAX : -1;
}

const struct gs_check *gs_verify_first_failure(const struct gs_verify_report *report)
{
    const struct gs_check *first = NULL;
    for (size_t i = 0; i < report->count; i++) {
        const struct gs_check *check = &report->checks[i];
        if (!check->pass && (!first || order_of(check) < order_of(first)))
            first = check;
    }
    return first;
}

/* A bar from the table: 0 for a least and NAN for a most stand for none. */
static struct gs_check at_least(struct gs_check check, double limit)
{
    check.limit = limit;
    check.bar = limit > 0.0 ? GS_BAR_AT_LEAST : GS_BAR_NONE;
    return check;
}

static struct gs_check at_most(struct gs_check check, double limit)
{
    check.limit = limit;
    check.bar = isnan(limit) ? GS_BAR_NONE : GS_BAR_AT_MOST;
    return check;
}

static gs_status add_rows(struct gs_verify_report *report, const struct gs_distance *distance,
                          enum gs_stage stage, int64_t layer, struct gs_error *error)
{
    const struct gs_thresholds *bars = report->thresholds;
    bool is_logits = stage == GS_STAGE_LOGITS;
    struct gs_check check = {.component = gs_stage_name(stage),
                             .measure = "worst cosine",
                             .layer = gs_stage_in_layers(stage) ? layer : -1,
                             .compared = distance->compared,
                             .measured = distance->missing ? NAN : distance->worst_cosine,
                             .at = distance->cosine_at};
    gs_status status =
        gs_check_add(report, at_least(check, is_logits ? bars->logit_cosine : bars->row_cosine), error);
    check.measure = "worst error";
    check.measured = distance->missing ? NAN : distance->worst_error;
    check.at = distance->error_at;
    if (status == GS_OK)
        status = gs_check_add(report, at_most(check, is_logits ? bars->logit_error : bars->row_error), error);
    return status;
}

static gs_status add_share(struct gs_verify_report *report, const char *component, const char *measure,
                           int64_t layer, const struct gs_distance *distance, double limit,
                           struct gs_error *error)
{
    double n = (double)distance->compared;
    struct gs_check check = {.component = component,
                             .measure = measure,
                             .layer = layer,
                             .compared = distance->compared,
                             .measured = n > 0.0 ? (n - (double)distance->differing) / n : NAN,
                             .at = distance->error_at};
    return gs_check_add(report, at_least(check, limit), error);
}

/* What is asked of the logits as distributions. */
static gs_status add_distributions(struct gs_verify_report *report, const struct gs_comparison *comparison,
                                   struct gs_error *error)
{
    const struct gs_thresholds *bars = report->thresholds;
    const struct gs_distance *logits = &comparison->stages[GS_STAGE_LOGITS][0];
    double n = (double)logits->compared;
    struct gs_check check = {.component = "logits", .layer = -1, .compared = logits->compared, .at = -1};
    gs_status status = GS_OK;
    if (logits->compared == 0)
        return add_share(report, "logits", "top 1 agreement", -1, &comparison->argmax, bars->top1, error);
    check.measure = "mean cosine";
    check.measured = logits->sum_cosine / n;
    status = gs_check_add(report, at_least(check, bars->mean_cosine), error);
    check.measure = "worst KL";
    check.measured = comparison->worst_kl;
    if (status == GS_OK)
        status = gs_check_add(report, at_most(check, bars->worst_kl), error);
    check.measure = "mean KL";
    check.measured = comparison->sum_kl / n;
    if (status == GS_OK)
        status = gs_check_add(report, at_most(check, bars->mean_kl), error);
    check.measure = "top 5 overlap";
    check.measured = comparison->sum_top5 / n;
    if (status == GS_OK)
        status = gs_check_add(report, at_least(check, bars->top5), error);
    if (status == GS_OK)
        status = add_share(report, "logits", "top 1 agreement", -1, &comparison->argmax, bars->top1, error);
    if (status == GS_OK && bars->top1 < 1.0) /* where near-ties may fall otherwise */
        status = add_share(report, "logits", "top 1 where clear", -1, &comparison->clear, 0.0, error);
    return status;
}

gs_status gs_check_comparison(struct gs_verify_report *report, const struct gs_comparison *comparison,
                              struct gs_error *error)
{
    gs_status status = GS_OK;
    for (int s = 0; status == GS_OK && s < GS_STAGE_COUNT; s++) {
        enum gs_stage stage = (enum gs_stage)s;
        for (int64_t layer = 0; status == GS_OK && layer < comparison->n_layer; layer++) {
            const struct gs_distance *distance = &comparison->stages[stage][layer];
            if (distance->compared == 0 && !distance->missing)
                continue;
            status = stage == GS_STAGE_ROUTER_CHOICE
                         ? add_share(report, gs_stage_name(stage), "same choice", layer, distance,
                                     report->thresholds->choices, error)
                         : add_rows(report, distance, stage, layer, error);
        }
    }
    return status == GS_OK ? add_distributions(report, comparison, error) : status;
}

gs_status gs_check_same_bits(struct gs_verify_report *report, const struct gs_record *found,
                             const struct gs_record *expected, const char *measure, bool promised,
                             struct gs_error *error)
{
    uint64_t compared = 0, differing = 0;
    int64_t first = INT64_MAX, first_layer = -1;
    enum gs_stage first_stage = GS_STAGE_EMBEDDING;
    for (int64_t layer = 0; layer < found->n_layer; layer++)
        for (int s = 0; s < GS_STAGE_COUNT; s++) {
            enum gs_stage stage = (enum gs_stage)s;
            bool nowhere =
                !found->components[stage][layer].values && !expected->components[stage][layer].values;
            if (nowhere || !gs_have_common(found, expected, stage))
                continue;
            int64_t at = gs_first_difference(found, expected, stage, layer);
            compared++;
            differing += at != INT64_MAX;
            if (first == INT64_MAX && at != INT64_MAX) {
                first = at;
                first_layer = gs_stage_in_layers(stage) ? layer : -1;
                first_stage = stage;
            }
        }
    struct gs_check check = {.component = differing > 0 ? gs_stage_name(first_stage) : "all components",
                             .measure = measure,
                             .layer = first_layer,
                             .compared = compared,
                             .measured = compared > 0 ? (double)differing : NAN,
                             .at = differing > 0 ? first : -1};
    return gs_check_add(report, at_most(check, promised ? 0.0 : NAN), error);
}
