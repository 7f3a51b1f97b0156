/*
 * What the verdict on a control rests on, fed with made-up results: one that could not fail would prove
 * nothing. And what counts as exercised, on real models.
 */
#include "base/buffer.h"
#include "engine/verify_controls.h"
#include "format/safetensors.h"
#include "tests/support/check.h"
#include "tests/support/files.h"

#include <stdio.h>

#define MODEL  "tests/golden/models/one-layer"
#define GOLDEN "tests/golden/data/one-layer.safetensors"

/* ---------------------------------------------------------------- verdicts */

/* A control that acts from position 5 on, has done so, and was noticed. */
static struct gs_control_result good_result(void)
{
    return (struct gs_control_result){.control = GS_CONTROL_WINDOW,
                                      .n_tokens = 20,
                                      .n_needed = 6,
                                      .has_effect = true,
                                      .must_fail = true,
                                      .first_expected = 5,
                                      .first_found = 7,
                                      .n_failed = 2};
}

static void expect(struct gs_control_result result, const char *upstream, const char *problem)
{
    gs_control_judge(&result, upstream);
    assert_string_equal(result.problem, problem);
    assert_int_equal(result.behaves, problem[0] == '\0');
}

static void one_verdict_a_sentence(void **state)
{
    (void)state;
    struct gs_control_result result = good_result();
    expect(result, "", "");
    expect(result, "router of layer 0", "changes router of layer 0, which it cannot reach");
    result.first_found = 5;
    expect(result, "", "");
    result.first_found = 4;
    expect(result, "", "changes position 4, which it cannot reach before 5");
    result = good_result();
    result.first_found = 20;
    expect(result, "", "changes nothing");
    result = good_result();
    result.n_failed = 0;
    expect(result, "", "passes every bar");
    result.must_fail = false;
    expect(result, "", "");

    struct gs_control_result idle = {.n_tokens = 20, .first_expected = 20, .first_found = 20};
    expect(idle, "", "");
    idle.n_failed = 1;
    expect(idle, "", "fails bars where it cannot act");
    idle.first_found = 19;
    expect(idle, "", "changes position 19, which it cannot reach before 20");
}

/* ---------------------------------------------------------------- what differs first */

enum { N_LAYER = 2, N_POSITION = 3 };
static const int32_t positions[N_POSITION] = {0, 1, 2};

static struct gs_record *make_record(void)
{
    const struct gs_positions all = {positions, N_POSITION};
    const struct gs_selection kept = {all, all, all, all};
    const float zeros[N_POSITION] = {0};
    struct gs_record *record;
    struct gs_error error;
    assert_ok(gs_record_open(N_LAYER, &kept, &record, &error), &error);
    for (int stage = 0; stage < GS_STAGE_COUNT; stage++)
        for (int64_t layer = 0; layer < (gs_stage_in_layers((enum gs_stage)stage) ? N_LAYER : 1); layer++)
            gs_record_tap(record, (enum gs_stage)stage, layer, zeros, N_POSITION, 1);
    return record;
}

/* The first difference and what is upstream of a control whose one change is at this place. */
static int64_t change(enum gs_control control, enum gs_stage stage, int64_t layer, int64_t position,
                      char upstream[64])
{
    struct gs_record *a = make_record(), *b = make_record();
    struct gs_config config = {.n_layer = N_LAYER, .layer_is_window = {false, true}};
    a->components[stage][layer].values[position] = 1.0f;
    upstream[0] = '\0';
    int64_t first = gs_control_find_first(control, a, b, &config, upstream);
    gs_record_close(a);
    gs_record_close(b);
    return first;
}

static void what_comes_before_a_control(void **state)
{
    (void)state;
    static const struct {
        enum gs_control control;
        enum gs_stage stage;
        int64_t layer;
        const char *upstream;
    } cases[] = {
        {GS_CONTROL_SINKS, GS_STAGE_EMBEDDING, 0, "embedding of layer 0"},
        {GS_CONTROL_SINKS, GS_STAGE_ATTENTION, 0, ""},
        {GS_CONTROL_EXPERT_BIAS, GS_STAGE_ROUTER, 0, "router of layer 0"},
        {GS_CONTROL_EXPERT_BIAS, GS_STAGE_MOE, 0, ""},
        {GS_CONTROL_EXPERT_BIAS, GS_STAGE_ATTENTION, 1, ""},
        {GS_CONTROL_ROUTER_SOFTMAX, GS_STAGE_ROUTER_CHOICE, 0, "router_choice of layer 0"},
        {GS_CONTROL_ROUTER_SOFTMAX, GS_STAGE_ROUTER_WEIGHT, 0, ""},
        /* layer 1 is the first with a window */
        {GS_CONTROL_WINDOW, GS_STAGE_LAYER, 0, "layer of layer 0"},
        {GS_CONTROL_WINDOW, GS_STAGE_ATTENTION, 1, ""},
        {GS_CONTROL_WINDOW, GS_STAGE_LOGITS, 0, ""},
        {GS_CONTROL_NONE, GS_STAGE_MOE, 0, "moe of layer 0"},
    };
    char upstream[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int64_t position = 0; position < N_POSITION; position++) {
            int64_t first = change(cases[i].control, cases[i].stage, cases[i].layer, position, upstream);
            assert_int_equal(first, position);
            assert_string_equal(upstream, cases[i].upstream);
        }
    struct gs_record *same = make_record();
    struct gs_config config = {.n_layer = N_LAYER};
    assert_int_equal(gs_control_find_first(GS_CONTROL_SINKS, same, same, &config, upstream), INT64_MAX);
    gs_record_close(same);
}

/* ---------------------------------------------------------------- exercised or not */

static struct gs_controls_report run(const char *model, const struct gs_verify_options *options)
{
    struct gs_controls_report report;
    struct gs_error error;
    assert_ok(gs_verify_controls(model, options, &report, &error), &error);
    assert_int_equal(report.n_misbehaved + report.n_behaved + report.n_too_short + report.n_idle,
                     GS_CONTROL_COUNT - 1);
    return report;
}

static void too_short_a_run(void **state)
{
    (void)state;
    struct gs_verify_options options = {.n_tokens = 40};
    struct gs_controls_report report = run(MODEL, &options);
    const struct gs_control_result *ring = &report.results[GS_CONTROL_KV_RING];
    assert_int_equal(gs_control_exercise(ring), GS_EXERCISE_TOO_SHORT);
    assert_int_equal(ring->n_needed, report.ring + 1);
    assert_true(report.n_too_short >= 1);
    assert_int_equal(report.n_misbehaved, 0);
    options.n_tokens = (size_t)ring->n_needed;
    report = run(MODEL, &options);
    assert_int_equal(gs_control_exercise(&report.results[GS_CONTROL_KV_RING]), GS_EXERCISED);
    assert_int_equal(report.n_too_short, 0);
    assert_int_equal(report.results[GS_CONTROL_KV_RING].first_found, report.ring);
}

static void nothing_to_act_on(void **state)
{
    (void)state;
    struct gs_verify_options options = {0};
    struct gs_controls_report report = run("tests/golden/models/one-expert", &options);
    assert_int_equal(gs_control_exercise(&report.results[GS_CONTROL_ROUTER_SOFTMAX]), GS_EXERCISE_IDLE);
    assert_int_equal(gs_control_exercise(&report.results[GS_CONTROL_SINKS]), GS_EXERCISED);
    assert_true(report.n_idle >= 1);
}

/* How many of the first axis of a golden's tensor belong to its first n_tokens, of which n_row are kept. */
static uint64_t shortened(const struct gs_tensor *tensor, uint64_t n_tokens, uint64_t n_row)
{
    static const char *const whole[] = {"rope.", "lengths", "checksum"};
    static const char *const every[] = {"tokens", "argmax", "router_choice"};
    for (size_t i = 0; i < 3; i++)
        if (strstr(tensor->name, whole[i]))
            return tensor->shape[0];
    for (size_t i = 0; i < 3; i++)
        if (strstr(tensor->name, every[i]))
            return n_tokens;
    return n_row;
}

/* GOLDEN's first n_tokens, of whose positions it keeps n_row, as a golden of their own. */
static void write_short_golden(const char *path, uint64_t n_tokens, uint64_t n_row)
{
    struct gs_file_map *map;
    struct gs_arena arena = {0};
    struct gs_safetensors file;
    struct gs_error error;
    struct gs_buffer header = {0}, data = {0}, all = {0};
    assert_ok(gs_file_map_open(GOLDEN, NULL, &map, &error), &error);
    assert_ok(gs_safetensors_parse(map, &arena, &file, &error), &error);
    for (size_t i = 0; i < file.count; i++) {
        const struct gs_tensor *t = &file.tensors[i];
        uint64_t count = shortened(t, n_tokens, n_row), bytes = t->bytes / t->shape[0] * count;
        char columns[32] = "";
        if (t->rank == 2)
            snprintf(columns, sizeof columns, ",%llu", (unsigned long long)t->shape[1]);
        gs_buffer_print(&header, NULL,
                        "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%llu%s],\"data_offsets\":[%zu,%zu]}",
                        i > 0 ? "," : "{", t->name, gs_dtype_name(t->dtype), (unsigned long long)count,
                        columns, data.size, data.size + (size_t)bytes);
        gs_buffer_append(&data, t->data, (size_t)bytes, NULL);
    }
    gs_buffer_append_text(&header, "}", NULL);
    while (header.size % 8 != 0)
        gs_buffer_append_text(&header, " ", NULL);
    uint64_t size = header.size;
    gs_buffer_append(&all, &size, sizeof size, NULL);
    gs_buffer_append(&all, header.data, header.size, NULL);
    gs_buffer_append(&all, data.data, data.size, NULL);
    test_file_write(path, all.data, all.size);
    gs_buffer_free(&header);
    gs_buffer_free(&data);
    gs_buffer_free(&all);
    gs_arena_free(&arena);
    gs_file_map_close(map);
}

/* Random tokens follow a golden that ends before the rings wrap, and the run without a control judges there.
 */
static void beyond_a_short_golden(void **state)
{
    (void)state;
    char *folder = test_folder_make();
    struct test_path path = test_path_join(folder, "short.safetensors");
    write_short_golden(path.text, 60, 6); /* positions 0, 1, 3, 4, 5, 16 */
    struct gs_verify_options options = {.golden = path.text};
    struct gs_controls_report report = run(MODEL, &options);
    assert_string_equal(report.reference, "golden in float32");
    assert_true(report.n_tokens > report.ring);
    for (int c = 0; c < GS_CONTROL_COUNT; c++)
        if (!report.results[c].behaves)
            fail_msg("%s %s", gs_control_name((enum gs_control)c), report.results[c].problem);
    assert_int_equal(gs_control_exercise(&report.results[GS_CONTROL_KV_RING]), GS_EXERCISED);
    assert_true(report.results[GS_CONTROL_KV_RING].n_failed > 0);
    assert_int_equal(report.n_too_short, 0);
    test_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_verdict_a_sentence), cmocka_unit_test(what_comes_before_a_control),
        cmocka_unit_test(too_short_a_run),        cmocka_unit_test(nothing_to_act_on),
        cmocka_unit_test(beyond_a_short_golden),
    };
    return cmocka_run_group_tests_name("engine/verify_controls", tests, NULL, NULL);
}
