/* gossamer verify: exit codes, the tables, the JSON, and what is refused. */
#include "engine/verify.h"
#include "tests/cli/process.h"
#include "tests/support/files.h"

#include <jansson.h>

#define MODEL  "tests/golden/models/one-layer"
#define GOLDEN "tests/golden/data/one-layer.safetensors"

static void test_table(void **state)
{
    (void)state;
    struct process_result result = process_run("verify", MODEL, "--golden", GOLDEN);
    assert_int_equal(result.code, 0);
    assert_string_equal(result.err, "");
    assert_non_null(strstr(result.out, "reference: golden in float32"));
    assert_non_null(strstr(result.out, "mxfp4           differing elements"));
    assert_non_null(strstr(result.out, "checks pass"));
    assert_null(strstr(result.out, "FAIL"));
    process_free(&result);
    result = process_run("verify", MODEL, "--golden", GOLDEN, "--cpu-features", "generic");
    assert_int_equal(result.code, 0);
    process_free(&result);
}

static void test_failure(void **state)
{
    (void)state;
    struct process_result result =
        process_run("verify", MODEL, "--golden", GOLDEN, "--kill", "sinks", "--layers");
    assert_int_equal(result.code, 1);
    assert_string_equal(result.err, "");
    assert_non_null(strstr(result.out, "killed: sinks"));
    assert_non_null(strstr(result.out, "FAILED, the first in the model's order: attention"));
    process_free(&result);
    /* Nothing can change within the window. */
    result = process_run("verify", MODEL, "--golden", GOLDEN, "--kill=window", "-n16");
    assert_int_equal(result.code, 0);
    process_free(&result);
}

static json_t *run_json(struct process_result result, int code)
{
    assert_int_equal(result.code, code);
    json_t *root = json_loads(result.out, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    process_free(&result);
    return root;
}

static void require_keys(const json_t *object, const char *const *keys)
{
    for (; *keys; keys++)
        if (!json_object_get(object, *keys))
            fail_msg("no key %s", *keys);
}

static void test_json(void **state)
{
    static const char *const keys[] = {"model",    "backend", "precision", "weights",       "reference",
                                       "golden",   "control", "n_tokens",  "seconds",       "n_elements",
                                       "n_failed", "pass",    "checks",    "first_failure", NULL};
    static const char *const check_keys[] = {"component", "measure", "layer", "compared", "measured",
                                             "bar",       "limit",   "pass",  "position", NULL};
    (void)state;
    json_t *root = run_json(process_run("verify", MODEL, "--golden", GOLDEN, "--json"), 0);
    require_keys(root, keys);
    assert_true(json_is_true(json_object_get(root, "pass")));
    assert_true(json_is_null(json_object_get(root, "first_failure")));
    require_keys(json_array_get(json_object_get(root, "checks"), 0), check_keys);
    json_decref(root);

    root = run_json(process_run("verify", MODEL, "--kill", "rope-pairs", "--json"), 1);
    assert_true(json_is_false(json_object_get(root, "pass")));
    assert_string_equal(json_string_value(json_object_get(root, "control")), "rope-pairs");
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(root, "first_failure"), "component")), "attention");
    json_decref(root);
}

static void test_controls(void **state)
{
    static const char *const keys[] = {"control",          "must_differ",
                                       "must_fail",        "first_expected",
                                       "first_found",      "n_failed",
                                       "mean_kl",          "decoded",
                                       "behaves",          "attention_worst_cosine",
                                       "problem",          "n_past_limit",
                                       "decoded_text",     "n_tokens",
                                       "first_failure",    "logits_worst_cosine",
                                       "argmax_agreement", NULL};
    (void)state;
    struct process_result result = process_run("verify", MODEL, "--golden", GOLDEN, "--controls");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "yarn-rounded-bounds"));
    assert_non_null(strstr(result.out, "all 13 controls behave"));
    process_free(&result);
    json_t *root = run_json(process_run("verify", MODEL, "--controls", "--json"), 0);
    json_t *controls = json_object_get(root, "controls");
    assert_int_equal(json_array_size(controls), 14);
    for (size_t i = 0; i < 14; i++)
        require_keys(json_array_get(controls, i), keys);
    json_decref(root);
}

/* What had no chance to act is not among those that behave. */
static void test_tally(void **state)
{
    (void)state;
    struct process_result result = process_run("verify", MODEL, "--controls", "-n", "40");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "kv-ring-off-by-one is not exercised: it needs "));
    assert_non_null(strstr(result.out, " tokens, and 40 were run\n"));
    assert_null(strstr(result.out, "all 13 controls"));
    assert_non_null(strstr(result.out, " of 13 controls behave, "));
    process_free(&result);
    result = process_run("verify", "tests/golden/models/one-expert", "--controls");
    assert_non_null(strstr(result.out, "router-softmax-before-topk finds nothing to act on here"));
    assert_non_null(strstr(result.out, " with nothing to act on ("));
    process_free(&result);
    json_t *root = run_json(process_run("verify", MODEL, "--controls", "--json", "-n", "40"), 0);
    json_t *ring = json_array_get(json_object_get(root, "controls"), 13);
    assert_string_equal(json_string_value(json_object_get(ring, "control")), "kv-ring-off-by-one");
    assert_true(json_is_false(json_object_get(ring, "exercised")));
    assert_true(json_integer_value(json_object_get(ring, "n_needed")) > 256);
    assert_true(json_integer_value(json_object_get(root, "n_too_short")) >= 1);
    json_decref(root);
}

/* A path is given whole and as it is. */
static void test_json_paths(void **state)
{
    (void)state;
    char *folder = test_folder_make(), target[4096], name[230];
    memset(name, 'x', sizeof name);
    strcpy(name + 220, "\\\xFF");
    struct test_path link = test_path_join(folder, name);
    assert_non_null(realpath(MODEL, target));
    assert_int_equal(symlink(target, link.text), 0);
    json_t *root = run_json(process_run("verify", link.text, "--json", "-n", "4"), 0);
    const char *shown = json_string_value(json_object_get(root, "model"));
    assert_int_equal(strncmp(shown, link.text, strlen(link.text) - 1), 0);
    assert_string_equal(shown + strlen(link.text) - 1, "\xEF\xBF\xBD");
    json_decref(root);
    test_folder_remove(folder);
}

/* Both ways to the help name every control. */
static void test_help(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct process_result result = i ? process_run("help", "verify") : process_run("verify", "--help");
        assert_int_equal(result.code, 0);
        for (int c = GS_CONTROL_NONE + 1; c < GS_CONTROL_COUNT; c++)
            if (!strstr(result.out, gs_control_name((enum gs_control)c)))
                fail_msg("the help lacks %s", gs_control_name((enum gs_control)c));
        process_free(&result);
    }
}

static void test_thresholds(void **state)
{
    (void)state;
    struct process_result result = process_run("verify", "--thresholds");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "components: worst cosine"));
    process_free(&result);
    json_t *root = run_json(process_run("verify", "--thresholds", "--json"), 0);
    json_t *row = json_array_get(json_object_get(root, "thresholds"), 0);
    assert_true(json_real_value(json_object_get(row, "row_cosine")) == 0.999999);
    json_decref(root);
}

/* MODEL/golden.safetensors is found without being named. */
static void test_golden_beside_the_model(void **state)
{
    static const char *const names[] = {"config.json", "model.safetensors"};
    (void)state;
    char *folder = test_folder_make();
    size_t size;
    for (int i = 0; i < 2; i++) {
        char *bytes = test_file_read(test_path_join(MODEL, names[i]).text, &size);
        test_file_write(test_path_join(folder, names[i]).text, bytes, size);
        free(bytes);
    }
    char *bytes = test_file_read(GOLDEN, &size);
    test_file_write(test_path_join(folder, "golden.safetensors").text, bytes, size);
    free(bytes);
    struct process_result result = process_run("verify", folder);
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "golden in float32"));
    process_free(&result);
    result = process_run("verify", folder, "--against", "cpu:exact");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "reference: cpu:exact"));
    process_free(&result);
    test_folder_remove(folder);
}

static void test_refused(void **state)
{
    (void)state;
    process_refuses(process_run("verify"), "no model");
    process_refuses(process_run("verify", MODEL, "--kill", "snks"), "did you mean sinks");
    process_refuses(process_run("verify", MODEL, "--kill", "everything-at-once"), "kv-ring-off-by-one");
    process_refuses(process_run("verify", MODEL, "--controls", "--kill", "sinks"), "--controls");
    process_refuses(process_run("verify", MODEL, "--golden", "/nowhere"), "/nowhere");
    process_refuses(process_run("verify", MODEL, "--golden", GOLDEN, "--against", "cpu:exact"), "--against");
    process_refuses(process_run("verify", MODEL, "--precision", "swift"), "exact");
    process_refuses(process_run("verify", MODEL, "--precision", "fast", "--kill", "sinks"), "exact");
    process_refuses(process_run("verify", MODEL, "-n", "0"), "whole number");
    process_refuses(process_run("verify", MODEL, "--cpu-features", "sse9"), "no sse9 kernels");
    process_refuses(process_run("verify", "/nowhere"), "/nowhere");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),      cmocka_unit_test(test_failure),
        cmocka_unit_test(test_json),       cmocka_unit_test(test_controls),
        cmocka_unit_test(test_thresholds), cmocka_unit_test(test_golden_beside_the_model),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_tally),
        cmocka_unit_test(test_json_paths), cmocka_unit_test(test_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
