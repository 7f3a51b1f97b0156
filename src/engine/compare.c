#include "engine/compare.h"

#include "base/math.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- stages */

static const char *const stage_names[GS_STAGE_COUNT] = {
    [GS_STAGE_EMBEDDING] = "embedding",
    [GS_STAGE_ATTENTION] = "attention",
    [GS_STAGE_ROUTER] = "router",
    [GS_STAGE_ROUTER_CHOICE] = "router_choice",
    [GS_STAGE_ROUTER_WEIGHT] = "router_weight",
    [GS_STAGE_MOE] = "moe",
    [GS_STAGE_LAYER] = "layer",
    [GS_STAGE_FINAL_NORM] = "final_norm",
    [GS_STAGE_LOGITS] = "logits",
};

const char *gs_stage_name(enum gs_stage stage)
{
    return stage_names[stage];
}

bool gs_stage_in_layers(enum gs_stage stage)
{
    return stage != GS_STAGE_EMBEDDING && stage != GS_STAGE_FINAL_NORM && stage != GS_STAGE_LOGITS;
}

int64_t gs_argmax(const float *values, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        best = values[i] > values[best] ? i : best;
    return best;
}

/* ---------------------------------------------------------------- records */

gs_status gs_record_open(int64_t n_layer, const struct gs_selection *kept, struct gs_record **out,
                         struct gs_error *error)
{
    *out = NULL;
    struct gs_record *record = calloc(1, sizeof *record);
    if (!record)
        return gs_fail_memory(error, sizeof *record);
    record->kept = *kept;
    record->n_layer = n_layer;
    bool good = true;
    for (int stage = 0; good && stage < GS_STAGE_COUNT; stage++)
        good = (record->components[stage] =
                    gs_arena_alloc_array(&record->arena, (size_t)n_layer, sizeof *record->components[stage]));
    good = good && (record->argmax =
                        gs_arena_alloc_array(&record->arena, kept->argmax.count, sizeof *record->argmax));
    if (!good) {
        gs_record_close(record);
        return gs_fail_memory(error, kept->argmax.count * sizeof *record->argmax);
    }
    for (size_t i = 0; i < kept->argmax.count; i++)
        record->argmax[i] = -1;
    *out = record;
    return GS_OK;
}

void gs_record_close(struct gs_record *record)
{
    if (!record)
        return;
    gs_arena_free(&record->arena);
    free(record);
}

struct gs_positions gs_record_positions(const struct gs_record *record, enum gs_stage stage)
{
    switch (stage) {
    case GS_STAGE_ROUTER_CHOICE:
        return record->kept.choices;
    case GS_STAGE_LOGITS:
        return record->kept.logits;
    default:
        return record->kept.rows;
    }
}

float *gs_record_place(struct gs_record *record, enum gs_stage stage, int64_t layer, int64_t columns)
{
    struct gs_component *component = &record->components[stage][layer];
    if (component->values)
        return component->columns == columns ? component->values : NULL;
    size_t count = gs_record_positions(record, stage).count * (size_t)columns;
    component->values = gs_arena_alloc_array(&record->arena, count, sizeof *component->values);
    component->columns = columns;
    for (size_t i = 0; component->values && i < count; i++)
        component->values[i] = NAN;
    return component->values;
}

/* Index of a position, or -1. */
static int64_t find_position(struct gs_positions positions, int64_t position)
{
    size_t low = 0, high = positions.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (positions.list[middle] < position)
            low = middle + 1;
        else
            high = middle;
    }
    return low < positions.count && positions.list[low] == position ? (int64_t)low : -1;
}

void gs_record_tap(void *user, enum gs_stage stage, int64_t layer, const float *values, int64_t rows,
                   int64_t columns)
{
    struct gs_record *record = user;
    struct gs_positions positions = gs_record_positions(record, stage);
    if (layer < 0 || layer >= record->n_layer || columns < 1) {
        record->failed = true;
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        const float *row = values + r * columns;
        int64_t at = stage == GS_STAGE_LOGITS ? find_position(record->kept.argmax, record->next + r) : -1;
        if (at >= 0)
            record->argmax[at] = (int32_t)gs_argmax(row, columns);
        at = find_position(positions, record->next + r);
        if (at < 0)
            continue;
        float *place = gs_record_place(record, stage, layer, columns);
        if (!place) {
            record->failed = true;
            return;
        }
        memcpy(place + at * columns, row, (size_t)columns * sizeof *row);
    }
}

/* ---------------------------------------------------------------- comparisons */

gs_status gs_comparison_open(int64_t n_layer, struct gs_comparison **out, struct gs_error *error)
{
    *out = NULL;
    struct gs_comparison *comparison = calloc(1, sizeof *comparison);
    bool good = comparison != NULL;
    for (int stage = 0; good && stage < GS_STAGE_COUNT; stage++)
        good = (comparison->stages[stage] = gs_arena_alloc_array(&comparison->arena, (size_t)n_layer,
                                                                 sizeof *comparison->stages[stage]));
    if (!good) {
        gs_comparison_close(comparison);
        return gs_fail_memory(error, (uint64_t)n_layer * GS_STAGE_COUNT * sizeof(struct gs_distance));
    }
    comparison->n_layer = n_layer;
    for (int stage = 0; stage < GS_STAGE_COUNT; stage++)
        for (int64_t layer = 0; layer < n_layer; layer++)
            comparison->stages[stage][layer] =
                (struct gs_distance){.worst_cosine = 1.0, .error_at = -1, .cosine_at = -1};
    comparison->argmax = (struct gs_distance){.worst_cosine = 1.0, .error_at = -1, .cosine_at = -1};
    comparison->clear = comparison->argmax;
    *out = comparison;
    return GS_OK;
}

void gs_comparison_close(struct gs_comparison *comparison)
{
    if (!comparison)
        return;
    gs_arena_free(&comparison->arena);
    free(comparison);
}

static double cosine_of(const float *a, const float *b, int64_t n)
{
    double ab = 0.0, aa = 0.0, bb = 0.0;
    for (int64_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    if (aa == 0.0 && bb == 0.0)
        return 1.0;
    return aa == 0.0 || bb == 0.0 ? 0.0 : ab / sqrt(aa * bb);
}

/* A measured figure that is not a number is the worst of all, and stays so. */
static bool is_worse_error(double error, double than)
{
    return !isnan(than) && !(error <= than);
}

static void add_row(struct gs_distance *distance, const float *found, const float *expected, int64_t columns,
                    int64_t position)
{
    double difference = 0.0;
    for (int64_t i = 0; i < columns; i++) {
        double d = fabs((double)found[i] - (double)expected[i]);
        difference = is_worse_error(d, difference) ? d : difference;
        distance->largest = fmax(distance->largest, fabs((double)expected[i]));
    }
    double cosine = cosine_of(found, expected, columns);
    if (is_worse_error(difference, distance->worst_difference)) {
        distance->worst_difference = difference;
        distance->error_at = position;
    }
    if (distance->worst_difference != 0.0)
        distance->worst_error = distance->worst_difference / distance->largest;
    if (is_worse_error(-cosine, -distance->worst_cosine)) {
        distance->worst_cosine = cosine;
        distance->cosine_at = position;
    }
    distance->sum_cosine += cosine;
    distance->compared++;
}

static void add_equality(struct gs_distance *distance, bool same, int64_t position)
{
    distance->compared++;
    distance->differing += !same;
    if (!same && distance->error_at < 0)
        distance->error_at = position;
}

static bool same_choice(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (a[i] != b[i])
            return false;
    return true;
}

/* logits -> their logarithm of the sum of exponentials. */
static double log_sum(const float *logits, int64_t n)
{
    double largest = (double)logits[gs_argmax(logits, n)], sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += gs_exp64((double)logits[i] - largest);
    return sum > 0.0 ? largest + gs_log64(sum) : NAN;
}

/* Sum of p (log p - log q), with the logarithms' sums taken out: two exponentials an element, not three. */
static double divergence(const float *found, const float *expected, int64_t n)
{
    double largest = (double)expected[gs_argmax(expected, n)], sum = 0.0, kl = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double weight = gs_exp64((double)expected[i] - largest);
        sum += weight;
        kl += weight * ((double)expected[i] - (double)found[i]);
    }
    kl = sum > 0.0 ? kl / sum - (largest + gs_log64(sum)) + log_sum(found, n) : NAN;
    return kl < 0.0 ? 0.0 : kl; /* rounding alone can make it negative */
}

enum { TOP = 5 };

/* The indices of the largest values, ties to the lower; fewer than TOP are filled up with -1. */
static void find_top(const float *values, int64_t n, int64_t top[TOP])
{
    for (int k = 0; k < TOP; k++)
        top[k] = -1;
    for (int64_t i = 0; i < n; i++) {
        int k = TOP;
        while (k > 0 && (top[k - 1] < 0 || values[i] > values[top[k - 1]]))
            k--;
        if (k < TOP) {
            memmove(top + k + 1, top + k, (size_t)(TOP - 1 - k) * sizeof *top);
            top[k] = i;
        }
    }
}

static double top_overlap(const float *found, const float *expected, int64_t n)
{
    int64_t a[TOP], b[TOP], common = 0, count = n < TOP ? n : TOP;
    find_top(found, n, a);
    find_top(expected, n, b);
    for (int i = 0; i < TOP; i++)
        for (int j = 0; j < TOP; j++)
            common += b[i] >= 0 && a[j] == b[i];
    return (double)common / (double)count;
}

/* Is the best of the expected logits no near-tie? Then whether it is the best of those found too. */
static void add_clear(struct gs_comparison *comparison, const float *found, const float *expected, int64_t n,
                      int32_t position)
{
    int64_t top[TOP];
    find_top(expected, n, top);
    if (top[1] >= 0 && (double)expected[top[0]] - (double)expected[top[1]] >= GS_CLEAR_MARGIN)
        add_equality(&comparison->clear, gs_argmax(found, n) == top[0], position);
}

static void add_distribution(struct gs_comparison *comparison, const float *found, const float *expected,
                             int64_t n)
{
    double kl = divergence(found, expected, n);
    comparison->worst_kl = is_worse_error(kl, comparison->worst_kl) ? kl : comparison->worst_kl;
    comparison->sum_kl += kl;
    comparison->sum_top5 += top_overlap(found, expected, n);
}

/* The experts of a position; NULL where the record does not have them. */
static const float *find_choice(const struct gs_record *record, int64_t layer, int32_t position)
{
    const struct gs_component *choice = &record->components[GS_STAGE_ROUTER_CHOICE][layer];
    int64_t at = find_position(record->kept.choices, position);
    return choice->values && at >= 0 ? choice->values + at * choice->columns : NULL;
}

/* Did the same experts compute a position's sum, in whatever order? So too where one record does not tell. */
static bool same_experts(const struct gs_record *found, const struct gs_record *expected, int64_t layer,
                         int32_t position)
{
    const float *a = find_choice(found, layer, position), *b = find_choice(expected, layer, position);
    int64_t n = found->components[GS_STAGE_ROUTER_CHOICE][layer].columns, common = 0;
    if (!a || !b || n != expected->components[GS_STAGE_ROUTER_CHOICE][layer].columns)
        return true;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            common += a[i] == b[j];
    return common >= n;
}

static void compare_component(struct gs_comparison *comparison, const struct gs_record *found,
                              const struct gs_record *expected, enum gs_stage stage, int64_t layer)
{
    const struct gs_component *a = &found->components[stage][layer];
    const struct gs_component *b = &expected->components[stage][layer];
    struct gs_distance *distance = &comparison->stages[stage][layer];
    struct gs_positions positions = gs_record_positions(expected, stage);
    if (!b->values)
        return;
    for (size_t i = 0; i < positions.count; i++) {
        int64_t at = find_position(gs_record_positions(found, stage), positions.list[i]);
        if (at < 0)
            continue;
        if (!a->values || a->columns != b->columns) {
            distance->missing = true;
            return;
        }
        if (stage == GS_STAGE_MOE && !same_experts(found, expected, layer, positions.list[i])) {
            distance->left_out++;
            continue;
        }
        const float *is = a->values + at * a->columns, *should = b->values + (int64_t)i * b->columns;
        if (stage == GS_STAGE_ROUTER_CHOICE) {
            add_equality(distance, same_choice(is, should, a->columns), positions.list[i]);
            continue;
        }
        add_row(distance, is, should, a->columns, positions.list[i]);
        if (stage == GS_STAGE_LOGITS) {
            add_distribution(comparison, is, should, a->columns);
            add_clear(comparison, is, should, a->columns, positions.list[i]);
        }
    }
}

void gs_compare(struct gs_comparison *comparison, const struct gs_record *found,
                const struct gs_record *expected)
{
    for (int stage = 0; stage < GS_STAGE_COUNT; stage++)
        for (int64_t layer = 0; layer < comparison->n_layer; layer++)
            compare_component(comparison, found, expected, (enum gs_stage)stage, layer);
    struct gs_positions positions = expected->kept.argmax;
    for (size_t i = 0; i < positions.count; i++) {
        int64_t at = find_position(found->kept.argmax, positions.list[i]);
        if (at >= 0)
            add_equality(&comparison->argmax,
                         found->argmax[at] == expected->argmax[i] && found->argmax[at] >= 0,
                         positions.list[i]);
    }
}

bool gs_have_common(const struct gs_record *a, const struct gs_record *b, enum gs_stage stage)
{
    struct gs_positions positions = gs_record_positions(a, stage);
    for (size_t i = 0; i < positions.count; i++)
        if (find_position(gs_record_positions(b, stage), positions.list[i]) >= 0)
            return true;
    return false;
}

int64_t gs_first_difference(const struct gs_record *a, const struct gs_record *b, enum gs_stage stage,
                            int64_t layer)
{
    const struct gs_component *x = &a->components[stage][layer], *y = &b->components[stage][layer];
    struct gs_positions positions = gs_record_positions(a, stage);
    if (!x->values && !y->values)
        return INT64_MAX;
    for (size_t i = 0; i < positions.count; i++) {
        int64_t at = find_position(gs_record_positions(b, stage), positions.list[i]);
        if (at < 0)
            continue;
        if (!x->values || !y->values || x->columns != y->columns ||
            memcmp(x->values + (int64_t)i * x->columns, y->values + at * x->columns,
                   (size_t)x->columns * sizeof(float)) != 0)
            return positions.list[i];
    }
    return INT64_MAX;
}
