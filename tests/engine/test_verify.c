/* The verifier: it passes what is right, and notices every way of being wrong that it is told of. */
#include "engine/compare.h"
#include "engine/verify_checks.h"
#include "tests/support/check.h"
#include "tests/support/files.h"
#include "tests/support/tiny_model.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>

#define MODEL        "tests/golden/models/published-pattern"
#define GOLDEN       "tests/golden/data/published-pattern.safetensors"
#define SMALL        "tests/golden/models/one-layer"
#define SMALL_GOLDEN "tests/golden/data/one-layer.safetensors"

/* ---------------------------------------------------------------- comparison */

static const struct gs_check *find_check(const struct gs_verify_report *report, const char *component,
                                         const char *measure)
{
    for (size_t i = 0; i < report->count; i++)
        if (strcmp(report->checks[i].component, component) == 0 &&
            strcmp(report->checks[i].measure, measure) == 0)
            return &report->checks[i];
    fail_msg("no check of %s, %s", component, measure);
    return NULL;
}

static const int32_t three[] = {0, 1, 2};

static struct gs_record *make_record(const float values[3][4])
{
    struct gs_selection kept = {{three, 3}, {three, 3}, {three, 3}, {three, 3}};
    struct gs_record *record;
    struct gs_error error;
    assert_ok(gs_record_open(1, &kept, &record, &error), &error);
    for (int stage = 0; values && stage < GS_STAGE_COUNT; stage++) {
        record->next = 0; /* in two calls */
        gs_record_tap(record, (enum gs_stage)stage, 0, values[0], 1, 4);
        record->next = 1;
        gs_record_tap(record, (enum gs_stage)stage, 0, values[1], 2, 4);
    }
    assert_false(record->failed);
    return record;
}

static struct gs_comparison *compare(const float found[3][4], const float expected[3][4])
{
    struct gs_record *a = make_record(found), *b = make_record(expected);
    struct gs_comparison *comparison;
    struct gs_error error;
    assert_ok(gs_comparison_open(1, &comparison, &error), &error);
    gs_compare(comparison, a, b);
    gs_record_close(a);
    gs_record_close(b);
    return comparison;
}

static const float right[3][4] = {{1, 2, 3, 4}, {0, -2, 1, 0}, {4, 4, 3, 0}};

static void test_equal_records(void **state)
{
    (void)state;
    struct gs_comparison *c = compare(right, right);
    const struct gs_distance *d = &c->stages[GS_STAGE_LAYER][0];
    assert_int_equal(d->compared, 3);
    assert_true(d->worst_error == 0.0 && fabs(d->worst_cosine - 1.0) < 1e-15);
    assert_int_equal(c->argmax.differing, 0);
    assert_true(c->worst_kl == 0.0 && c->sum_top5 == 3.0);
    gs_comparison_close(c);
}

static void test_distances(void **state)
{
    (void)state;
    const float wrong[3][4] = {{1, 2, 3, 4}, {0, -2, 1, 0}, {4, 5, 3, 0}};
    struct gs_comparison *c = compare(wrong, right);
    const struct gs_distance *d = &c->stages[GS_STAGE_LOGITS][0];
    assert_int_equal(d->error_at, 2);
    assert_int_equal(d->cosine_at, 2);
    assert_true(fabs(d->worst_error - 1.0 / 4.0) < 1e-12);
    double cosine = (16.0 + 20.0 + 9.0) / sqrt(50.0 * 41.0);
    assert_true(fabs(d->worst_cosine - cosine) < 1e-12);
    assert_int_equal(c->argmax.differing, 1); /* the lower of equals was expected */
    assert_int_equal(c->argmax.error_at, 2);
    assert_int_equal(c->stages[GS_STAGE_ROUTER_CHOICE][0].differing, 1);

    double p[4], q[4], p_sum = 0.0, q_sum = 0.0, kl = 0.0;
    for (int i = 0; i < 4; i++) {
        p_sum += p[i] = exp((double)right[2][i]);
        q_sum += q[i] = exp((double)wrong[2][i]);
    }
    for (int i = 0; i < 4; i++)
        kl += p[i] / p_sum * log(p[i] / p_sum / (q[i] / q_sum));
    assert_true(fabs(c->worst_kl - kl) < 1e-12);
    gs_comparison_close(c);
}

/* The best token counts apart where it is no near-tie: not at the last position of these. */
static void test_clear_positions(void **state)
{
    (void)state;
    const float tie[3][4] = {{1, 2, 3, 4}, {0, -2, 1, 0}, {4, 5, 3, 0}};
    const float wrong[3][4] = {{1, 2, 3, 4}, {2, -2, 1, 0}, {4, 4, 3, 0}};
    struct gs_comparison *c = compare(tie, right);
    assert_int_equal(c->clear.compared, 2);
    assert_int_equal(c->clear.differing, 0);
    gs_comparison_close(c);
    c = compare(wrong, right);
    assert_int_equal(c->clear.compared, 2);
    assert_int_equal(c->clear.differing, 1);
    assert_int_equal(c->clear.error_at, 1);
    gs_comparison_close(c);
}

/* The yardstick is the largest value of all positions, wherever it is. */
static void test_error_is_measured_by_the_largest(void **state)
{
    (void)state;
    const float expected[3][4] = {{1, 0, 0, 0}, {2, 0, 0, 0}, {0, 0, -8, 0}};
    const float found[3][4] = {{1.5f, 0, 0, 0}, {2.25f, 0, 0, 0}, {0, 0, -8, 0}};
    struct gs_comparison *c = compare(found, expected);
    const struct gs_distance *d = &c->stages[GS_STAGE_LAYER][0];
    assert_true(d->worst_error == 0.5 / 8.0);
    assert_true(d->worst_difference == 0.5 && d->largest == 8.0);
    assert_int_equal(d->error_at, 0);
    gs_comparison_close(c);
}

enum { N_WIDE = 12 };

static struct gs_record *make_logits(const float values[N_WIDE])
{
    struct gs_selection kept = {.logits = {three, 1}};
    struct gs_record *record;
    struct gs_error error;
    assert_ok(gs_record_open(1, &kept, &record, &error), &error);
    gs_record_tap(record, GS_STAGE_LOGITS, 0, values, 1, N_WIDE);
    return record;
}

/* Three of the five most likely tokens are the same, in whatever order. */
static void test_top_five(void **state)
{
    (void)state;
    const float expected[N_WIDE] = {9, 8, 7, 6, 5, 0, 0, 0, 0, 0, 0, 0};
    const float found[N_WIDE] = {7, 0, 9, 8, 0, 0, 0, 0, 0, 0, 6, 5};
    struct gs_record *a = make_logits(found), *b = make_logits(expected);
    struct gs_comparison *comparison;
    struct gs_verify_report report = {.thresholds = gs_thresholds_find("exact", "native", "float32")};
    struct gs_error error;
    assert_ok(gs_comparison_open(1, &comparison, &error), &error);
    gs_compare(comparison, a, b);
    assert_true(comparison->sum_top5 == 3.0 / 5.0);
    gs_compare(comparison, b, b);
    assert_ok(gs_check_comparison(&report, comparison, &error), &error);
    const struct gs_check *check = find_check(&report, "logits", "top 5 overlap");
    assert_true(check->measured == 0.8 && check->limit == 0.98 && !check->pass);
    gs_verify_report_free(&report);
    gs_comparison_close(comparison);
    gs_record_close(a);
    gs_record_close(b);
}

/* A component that only one of the two saw has other bits. */
static void test_same_bits(void **state)
{
    (void)state;
    const float wrong[3][4] = {{1, 2, 3, 4}, {0, -2, 1, 0}, {4, 4, 3, 1}};
    struct gs_record *records[] = {make_record(right), make_record(right), make_record(wrong),
                                   make_record(NULL)};
    struct gs_verify_report report = {0};
    struct gs_error error;
    for (size_t i = 1; i < 4; i++)
        for (int swap = 0; swap < 2; swap++)
            assert_ok(gs_check_same_bits(&report, records[swap ? i : 0], records[swap ? 0 : i], "bits", true,
                                         &error),
                      &error);
    for (size_t i = 0; i < report.count; i++) {
        assert_int_equal(report.checks[i].compared, GS_STAGE_COUNT);
        assert_true(report.checks[i].measured == (i < 2 ? 0.0 : (double)GS_STAGE_COUNT));
        assert_int_equal(report.checks[i].pass, i < 2);
        assert_int_equal(report.checks[i].at, i < 2 ? -1 : i < 4 ? 2 : 0);
    }
    /* What nobody promised is measured, and fails nothing. */
    assert_int_equal(report.n_failed, 4);
    assert_ok(gs_check_same_bits(&report, records[0], records[2], "bits", false, &error), &error);
    assert_int_equal(report.n_failed, 4);
    assert_int_equal(report.checks[6].bar, GS_BAR_NONE);
    assert_true(report.checks[6].measured == (double)GS_STAGE_COUNT);
    gs_verify_report_free(&report);
    for (size_t i = 0; i < 4; i++)
        gs_record_close(records[i]);
}

/*
 * A position that other experts computed counts under the choice, not against the bar of moe; the same
 * experts in another order are the same sum.
 */
static void test_moe_is_compared_where_experts_are_the_same(void **state)
{
    (void)state;
    const float chosen[3][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}, {1, 2, 3, 4}};
    const float turned[3][4] = {{1, 2, 3, 4}, {5, 6, 7, 9}, {4, 3, 2, 1}};
    const float other[3][4] = {{1, 2, 3, 4}, {0, 2, 0, 1}, {4, 4, 2, 0}};
    struct gs_record *found = make_record(other), *expected = make_record(right);
    struct gs_comparison *c;
    struct gs_error error;
    size_t bytes = sizeof chosen;
    memcpy(expected->components[GS_STAGE_ROUTER_CHOICE][0].values, chosen, bytes);
    memcpy(found->components[GS_STAGE_ROUTER_CHOICE][0].values, turned, bytes);
    assert_ok(gs_comparison_open(1, &c, &error), &error);
    gs_compare(c, found, expected);
    const struct gs_distance *moe = &c->stages[GS_STAGE_MOE][0], *layer = &c->stages[GS_STAGE_LAYER][0];
    assert_int_equal(c->stages[GS_STAGE_ROUTER_CHOICE][0].differing, 2);
    assert_int_equal(moe->left_out, 1);
    assert_int_equal(moe->compared, 2);
    assert_int_equal(moe->cosine_at, 2);
    assert_int_equal(layer->compared, 3);
    assert_int_equal(layer->cosine_at, 1);
    gs_comparison_close(c);
    gs_record_close(found);
    gs_record_close(expected);
}

static void test_nan_is_the_worst(void **state)
{
    (void)state;
    const float wrong[3][4] = {{1, 2, 3, 4}, {0, -2, NAN, 0}, {4, 4, 3, 1}};
    struct gs_comparison *c = compare(wrong, right);
    const struct gs_distance *d = &c->stages[GS_STAGE_LAYER][0];
    assert_true(isnan(d->worst_error) && isnan(d->worst_cosine));
    assert_int_equal(d->error_at, 1);
    assert_true(isnan(c->worst_kl));
    gs_comparison_close(c);
}

/* What was never tapped is missing, not equal. */
static void test_missing_component(void **state)
{
    (void)state;
    struct gs_comparison *c = compare(NULL, right);
    assert_true(c->stages[GS_STAGE_ATTENTION][0].missing);
    assert_int_equal(c->stages[GS_STAGE_ATTENTION][0].compared, 0);
    assert_int_equal(c->argmax.differing, 3);
    gs_comparison_close(c);
    c = compare(right, NULL);
    assert_false(c->stages[GS_STAGE_ATTENTION][0].missing);
    gs_comparison_close(c);
}

static void test_first_difference(void **state)
{
    (void)state;
    const float wrong[3][4] = {{1, 2, 3, 4}, {-0.0f, -2, 1, 0}, {4, 4, 3, 0}};
    struct gs_record *a = make_record(right), *b = make_record(wrong), *none = make_record(NULL);
    assert_int_equal(gs_first_difference(a, a, GS_STAGE_MOE, 0), INT64_MAX);
    assert_int_equal(gs_first_difference(a, b, GS_STAGE_MOE, 0), 1); /* bits, not values */
    assert_int_equal(gs_first_difference(a, none, GS_STAGE_MOE, 0), 0);
    gs_record_close(a);
    gs_record_close(b);
    gs_record_close(none);
}

/* ---------------------------------------------------------------- whole runs */

static struct gs_verify_report verify(const char *model, const struct gs_verify_options *options)
{
    struct gs_verify_report report;
    struct gs_error error;
    assert_ok(gs_verify(model, options, &report, &error), &error);
    assert_true(report.count > 0);
    return report;
}

static size_t failures(const char *model, const struct gs_verify_options *options)
{
    struct gs_verify_report report = verify(model, options);
    size_t n_failed = report.n_failed;
    gs_verify_report_free(&report);
    return n_failed;
}

static void test_golden_passes(void **state)
{
    (void)state;
    struct gs_verify_options options = {.golden = GOLDEN};
    struct gs_verify_report report = verify(MODEL, &options);
    assert_int_equal(report.n_failed, 0);
    assert_null(gs_verify_first_failure(&report));
    assert_int_equal(report.n_tokens, 1000);
    /* 4 layers of 8 experts with 64*64 gate and up and 64*32 down elements */
    assert_int_equal(report.n_elements, 4 * 8 * (64 * 64 + 64 * 32));
    assert_int_equal(find_check(&report, "mxfp4", "differing elements")->compared, report.n_elements);
    assert_int_equal(find_check(&report, "mxfp4", "differing experts")->compared, 2 * 4 * 8);
    assert_int_equal(find_check(&report, "attention", "worst error")->compared, 18);
    assert_int_equal(find_check(&report, "router_choice", "same choice")->compared, 1000);
    assert_int_equal(find_check(&report, "logits", "top 1 agreement")->compared, 1000);
    gs_verify_report_free(&report);
}

static void test_other_references_pass(void **state)
{
    (void)state;
    struct gs_verify_options rounded = {.golden = "tests/golden/data/published-pattern-bf16.safetensors"};
    struct gs_verify_options against = {.against = "cpu:exact", .n_tokens = 150};
    struct gs_verify_options itself = {0}, few = {.golden = GOLDEN, .n_tokens = 1};
    struct gs_verify_report report = verify(MODEL, &rounded);
    assert_int_equal(report.n_failed, 0);
    assert_string_equal(report.thresholds->reference, "bfloat16");
    assert_true(find_check(&report, "logits", "mean KL")->measured > 1e-7); /* it is another arithmetic */
    gs_verify_report_free(&report);
    report = verify(MODEL, &against);
    assert_int_equal(report.n_failed, 0);
    assert_int_equal(find_check(&report, "moe", "worst error")->compared, 150);
    assert_true(find_check(&report, "moe", "worst error")->measured == 0.0);
    gs_verify_report_free(&report);
    report = verify(MODEL, &itself);
    assert_int_equal(report.n_failed, 0);
    assert_int_equal(find_check(&report, "all components", "other bits in other cuts")->compared, 3 + 6 * 4);
    gs_verify_report_free(&report);
    assert_int_equal(failures(MODEL, &few), 0);
}

/* ---------------------------------------------------------------- what was run */

struct heard {
    uint64_t done, total;
    size_t most_threads;
};

static size_t count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    size_t n = 0;
    while (tasks && readdir(tasks))
        n++;
    if (tasks)
        closedir(tasks);
    return n;
}

static void hear(void *user, uint64_t done, uint64_t total)
{
    struct heard *heard = user;
    size_t n_threads = count_threads();
    assert_true(done > heard->done && done <= total);
    assert_true(heard->total == 0 || heard->total == total);
    heard->most_threads = n_threads > heard->most_threads ? n_threads : heard->most_threads;
    heard->done = done;
    heard->total = total;
}

/* Every token that is reported was run, as often as the progress says. */
static void test_tokens_are_run(void **state)
{
    (void)state;
    static const struct {
        struct gs_verify_options options;
        uint64_t n_tokens, n_run;
    } cases[] = {
        {{.n_tokens = 300}, 300, 2 * 300},
        {{.n_tokens = 20}, 20, 2 * 20},
        {{0}, 141, 2 * 141},
        {{.n_tokens = 300, .against = "cpu:exact"}, 300, 2 * 300 + 2 * 141},
        {{.n_tokens = 20, .against = "cpu:exact"}, 20, 2 * 20 + 2 * 20},
        {{.n_tokens = 300, .golden = SMALL_GOLDEN}, 300, 300 + 141},
        {{.n_tokens = 20, .golden = SMALL_GOLDEN}, 20, 20 + 20},
        {{.n_tokens = 300, .golden = SMALL_GOLDEN, .control = GS_CONTROL_SINKS}, 300, 300},
        {{.n_tokens = 300, .control = GS_CONTROL_SINKS}, 300, 2 * 300},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gs_verify_options options = cases[i].options;
        struct heard heard = {0};
        options.progress = hear;
        options.progress_user = &heard;
        struct gs_verify_report report = verify(SMALL, &options);
        assert_int_equal(report.n_tokens, cases[i].n_tokens);
        assert_int_equal(heard.done, cases[i].n_run);
        assert_int_equal(heard.total, cases[i].n_run);
        gs_verify_report_free(&report);
    }
}

/* How many threads more there are at most in a verification with n of them. */
static size_t most_more_threads(size_t n)
{
    struct heard heard = {0};
    struct gs_verify_options options = {.n_threads = n, .progress = hear, .progress_user = &heard};
    size_t before = count_threads();
    struct gs_verify_report report = verify(SMALL, &options);
    assert_int_equal(report.n_failed, 0);
    gs_verify_report_free(&report);
    return heard.most_threads - before;
}

/*
 * The second run of the cuts is on another number of threads: together with the first, so many more. Again
 * if the system still counted one that has ended.
 */
static void test_cuts_change_the_threads(void **state)
{
    (void)state;
    if (count_threads() == 0)
        skip();
    for (size_t n = 1; n <= 4; n++) {
        size_t expected = n - 1 + (n == 3 ? 2 : 3) - 1, found = most_more_threads(n);
        for (int attempt = 0; attempt < 20 && found != expected; attempt++)
            found = most_more_threads(n);
        assert_int_equal(found, expected);
    }
}

/* ---------------------------------------------------------------- controls */

/* Every control, with a golden and without one. */
static void test_kill_fails(void **state)
{
    (void)state;
    for (int c = GS_CONTROL_NONE + 1; c < GS_CONTROL_COUNT; c++) {
        size_t n = c == GS_CONTROL_KV_RING ? 513 : 141; /* positions that the golden keeps, and one */
        struct gs_verify_options options = {.golden = GOLDEN, .control = (enum gs_control)c, .n_tokens = n};
        struct gs_verify_options alone = {.control = (enum gs_control)c, .n_tokens = n};
        if (failures(MODEL, &options) == 0 || failures(MODEL, &alone) == 0)
            fail_msg("%s passes", gs_control_name((enum gs_control)c));
    }
}

/* Where theory says that a control can do nothing, verify passes under it. */
static void test_kill_without_effect(void **state)
{
    (void)state;
    static const struct {
        enum gs_control control;
        size_t n_tokens;
    } cases[] = {{GS_CONTROL_WINDOW, 128}, {GS_CONTROL_KV_RING, 384}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gs_verify_options options = {
            .golden = GOLDEN, .control = cases[i].control, .n_tokens = cases[i].n_tokens};
        assert_int_equal(failures(MODEL, &options), 0);
        options.golden = NULL;
        assert_int_equal(failures(MODEL, &options), 0);
        options.n_tokens++;
        assert_true(failures(MODEL, &options) > 0);
    }
}

static void test_first_failure_is_where_it_broke(void **state)
{
    (void)state;
    struct gs_verify_options options = {.golden = GOLDEN, .control = GS_CONTROL_WINDOW};
    struct gs_verify_report report = verify(MODEL, &options);
    const struct gs_check *first = gs_verify_first_failure(&report);
    assert_string_equal(first->component, "attention");
    assert_int_equal(first->layer, 0);
    assert_true(first->at >= 128);
    gs_verify_report_free(&report);
    options.control = GS_CONTROL_NIBBLE_ORDER;
    report = verify(MODEL, &options);
    assert_string_equal(gs_verify_first_failure(&report)->component, "mxfp4");
    assert_true(find_check(&report, "mxfp4", "differing experts")->measured == 64.0);
    gs_verify_report_free(&report);
}

static void test_controls_behave(void **state)
{
    (void)state;
    static const char *const models[] = {MODEL, SMALL, "tests/golden/models/one-expert"};
    static const char *const goldens[] = {GOLDEN, NULL, "tests/golden/data/one-expert-bf16.safetensors"};
    struct gs_controls_report report;
    struct gs_error error;
    for (int i = 0; i < 3; i++) {
        struct gs_verify_options options = {.golden = goldens[i]};
        assert_ok(gs_verify_controls(models[i], &options, &report, &error), &error);
        for (int c = 0; c < GS_CONTROL_COUNT; c++)
            if (!report.results[c].behaves)
                fail_msg("%s: %s %s", models[i], gs_control_name((enum gs_control)c),
                         report.results[c].problem);
        assert_int_equal(report.n_misbehaved, 0);
    }
    /* one expert: nothing is left out by the router, and this model rounds its bounds itself */
    assert_false(report.results[GS_CONTROL_ROUTER_SOFTMAX].has_effect);
    assert_false(report.results[GS_CONTROL_YARN_ROUNDED_BOUNDS].has_effect);
    assert_true(report.results[GS_CONTROL_SINKS].must_fail);
    assert_true(report.results[GS_CONTROL_SINKS].attention_cosine < 0.9);
}

/* ---------------------------------------------------------------- goldens that are not as they should be */

/* A copy of the small model's golden with one byte of a tensor changed. */
static struct test_path spoil_golden(const char *folder, const char *tensor, size_t byte, uint8_t flip)
{
    struct gs_file_map *map;
    struct gs_arena arena = {0};
    struct gs_safetensors file;
    struct gs_error error;
    size_t size, offset = 0;
    assert_ok(gs_file_map_open(SMALL_GOLDEN, NULL, &map, &error), &error);
    assert_ok(gs_safetensors_parse(map, &arena, &file, &error), &error);
    for (size_t i = 0; i < file.count; i++)
        if (strcmp(file.tensors[i].name, tensor) == 0)
            offset = (size_t)(file.tensors[i].data - map->data) + byte;
    assert_true(offset > 0);
    gs_arena_free(&arena);
    gs_file_map_close(map);
    char *bytes = test_file_read(SMALL_GOLDEN, &size);
    bytes[offset] = (char)(bytes[offset] ^ flip);
    struct test_path path = test_path_join(folder, "golden.safetensors");
    test_file_write(path.text, bytes, size);
    free(bytes);
    return path;
}

/* One value of each kind: no component of a golden is ignored. */
static void test_spoilt_goldens_fail(void **state)
{
    (void)state;
    static const struct {
        const char *tensor, *component;
        size_t byte;
        uint8_t flip;
    } cases[] = {
        {"embedding", "embedding", 2, 0x40},
        {"layers.0.attention", "attention", 2, 0x40},
        {"layers.0.router", "router", 2, 0x40},
        {"layers.0.router_choice", "router_choice", 300, 1},
        {"layers.0.router_weight", "router_weight", 2, 0x40},
        {"layers.0.moe", "moe", 2, 0x40},
        {"layers.0.layer", "layer", 2, 0x40},
        {"final_norm", "final_norm", 2, 0x40},
        {"logits", "logits", 2, 0x40},
        {"argmax", "logits", 400, 1},
        {"rope.inv_freq", "yarn", 0, 2},
        {"rope.cos", "yarn", 1, 0x10},
        {"rope.attention_scaling", "yarn", 0, 1},
        {"layers.0.down_checksum", "mxfp4", 7, 1},
    };
    char *folder = test_folder_make();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct test_path path = spoil_golden(folder, cases[i].tensor, cases[i].byte, cases[i].flip);
        struct gs_verify_options options = {.golden = path.text};
        struct gs_verify_report report = verify(SMALL, &options);
        const struct gs_check *first = gs_verify_first_failure(&report);
        if (!first || strcmp(first->component, cases[i].component) != 0)
            fail_msg("%s spoilt: %s", cases[i].tensor, first ? first->component : "passes");
        gs_verify_report_free(&report);
    }
    test_folder_remove(folder);
}

/* The run without a control must pass too: a wrong golden makes the controls fail as a whole. */
static void test_spoilt_golden_makes_controls_misbehave(void **state)
{
    (void)state;
    char *folder = test_folder_make();
    struct test_path path = spoil_golden(folder, "layers.0.moe", 2, 0x40);
    struct gs_verify_options options = {.golden = path.text};
    struct gs_controls_report report;
    struct gs_error error;
    assert_ok(gs_verify_controls(SMALL, &options, &report, &error), &error);
    assert_false(report.results[GS_CONTROL_NONE].behaves);
    assert_true(report.n_misbehaved > 0);
    test_folder_remove(folder);
}

static void test_refused_goldens(void **state)
{
    (void)state;
    char *folder = test_folder_make();
    struct gs_verify_report report;
    struct gs_error error;
    struct gs_verify_options options = {.golden = "tests/golden/data/two-layers.safetensors"};
    assert_fails(gs_verify(SMALL, &options, &report, &error), GS_MALFORMED, "not a golden of this model",
                 &error);
    options.golden = "tests/golden/data/mxfp4.safetensors";
    assert_fails(gs_verify(SMALL, &options, &report, &error), GS_MALFORMED, "no tensor tokens", &error);
    options.golden = "tests/golden/data/nowhere.safetensors";
    assert_fails(gs_verify(SMALL, &options, &report, &error), GS_IO, "nowhere", &error);
    struct test_path negative_row = spoil_golden(folder, "rows", 3, 0x80);
    options.golden = negative_row.text;
    assert_fails(gs_verify(SMALL, &options, &report, &error), GS_MALFORMED, "rows", &error);
    struct test_path huge_token = spoil_golden(folder, "tokens", 3, 0x40);
    options.golden = huge_token.text;
    assert_fails(gs_verify(SMALL, &options, &report, &error), GS_MALFORMED, "token", &error);
    test_folder_remove(folder);
}

/* ---------------------------------------------------------------- what is refused */

static void test_refused_options(void **state)
{
    (void)state;
    struct gs_verify_report report;
    struct gs_error error;
    struct gs_verify_options both = {.golden = SMALL_GOLDEN, .against = "cpu:exact"};
    struct gs_verify_options precision = {.precision = "swift"}, weights = {.weights = "q9"};
    struct gs_verify_options backend = {.backend = "abacus"}, against = {.against = "cpu"};
    struct gs_verify_options many = {.golden = SMALL_GOLDEN, .n_tokens = 2000};
    assert_fails(gs_verify(SMALL, &both, &report, &error), GS_INVALID_ARGUMENT, "only one", &error);
    assert_fails(gs_verify(SMALL, &precision, &report, &error), GS_INVALID_ARGUMENT, "exact", &error);
    assert_fails(gs_verify(SMALL, &weights, &report, &error), GS_INVALID_ARGUMENT, "native", &error);
    assert_fails(gs_verify(SMALL, &backend, &report, &error), GS_UNSUPPORTED, "abacus", &error);
    assert_fails(gs_verify(SMALL, &against, &report, &error), GS_INVALID_ARGUMENT, "cpu:exact", &error);
    assert_fails(gs_verify(SMALL, &many, &report, &error), GS_INVALID_ARGUMENT, "1000", &error);
    _Atomic bool cancelled = true;
    struct gs_verify_options stop = {.cancelled = &cancelled};
    assert_fails(gs_verify(SMALL, &stop, &report, &error), GS_CANCELLED, "", &error);
}

/* The bars as docs/verify.md has them; a change here needs a reason there. */
static void test_threshold_table(void **state)
{
    (void)state;
    static const struct gs_thresholds table[] = {
        {"exact", "native", "float32", 6e-7, 4e-7, 0.999999, 1e-4, 1.0, 0.999999, 0.9999995, 1e-4, 1e-6, 1e-7,
         1.0, 0.98},
        {"exact", "native", "bfloat16", 6e-7, 4e-7, 0.0, NAN, 0.85, 0.0, 0.995, NAN, NAN, 2e-2, 0.90, 0.85},
        {"fast", "native", "float32", 6e-7, 4e-7, 0.98, NAN, 0.95, 0.999, 0.9995, NAN, NAN, 2e-2, 0.98, 0.95},
        {"exact", "q8", "float32", 6e-7, 4e-7, 0.99, NAN, 0.95, 0.999, 0.9995, NAN, NAN, 1e-3, 0.99, 0.95},
        {"fast", "q8", "float32", 6e-7, 4e-7, 0.98, NAN, 0.93, 0.998, 0.999, NAN, NAN, 2e-2, 0.97, 0.93},
    };
    assert_int_equal(gs_threshold_count, sizeof table / sizeof *table);
    for (size_t i = 0; i < gs_threshold_count; i++) {
        const struct gs_thresholds *row =
            gs_thresholds_find(table[i].precision, table[i].weights, table[i].reference);
        const size_t first = offsetof(struct gs_thresholds, yarn_error), step = sizeof(double);
        assert_non_null(row);
        for (size_t at = first; at < sizeof *row; at += step) {
            double is, should;
            memcpy(&is, (const char *)row + at, step);
            memcpy(&should, (const char *)&table[i] + at, step);
            if (is != should && !(isnan(is) && isnan(should)))
                fail_msg("%s %s against %s, bar %zu: %g, must be %g", row->precision, row->weights,
                         row->reference, (at - first) / step, is, should);
        }
    }
}

static void test_tables(void **state)
{
    (void)state;
    enum gs_control control;
    for (int c = GS_CONTROL_NONE + 1; c < GS_CONTROL_COUNT; c++) {
        assert_true(gs_control_parse(gs_control_name((enum gs_control)c), &control));
        assert_int_equal(control, c);
        assert_true(strlen(gs_control_summary(control)) > 0);
    }
    assert_false(gs_control_parse("none", &control));
    for (size_t i = 0; i < gs_threshold_count; i++) {
        const struct gs_thresholds *t = &gs_threshold_table[i];
        assert_ptr_equal(gs_thresholds_find(t->precision, t->weights, t->reference), t);
    }
    assert_null(gs_thresholds_find("exact", "native", "float64"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_records),
        cmocka_unit_test(test_distances),
        cmocka_unit_test(test_clear_positions),
        cmocka_unit_test(test_error_is_measured_by_the_largest),
        cmocka_unit_test(test_top_five),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_moe_is_compared_where_experts_are_the_same),
        cmocka_unit_test(test_nan_is_the_worst),
        cmocka_unit_test(test_missing_component),
        cmocka_unit_test(test_first_difference),
        cmocka_unit_test(test_golden_passes),
        cmocka_unit_test(test_other_references_pass),
        cmocka_unit_test(test_tokens_are_run),
        cmocka_unit_test(test_cuts_change_the_threads),
        cmocka_unit_test(test_kill_fails),
        cmocka_unit_test(test_kill_without_effect),
        cmocka_unit_test(test_first_failure_is_where_it_broke),
        cmocka_unit_test(test_controls_behave),
        cmocka_unit_test(test_spoilt_goldens_fail),
        cmocka_unit_test(test_spoilt_golden_makes_controls_misbehave),
        cmocka_unit_test(test_refused_goldens),
        cmocka_unit_test(test_refused_options),
        cmocka_unit_test(test_threshold_table),
        cmocka_unit_test(test_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
