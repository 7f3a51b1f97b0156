/* gossamer inspect: the table and the JSON say what the files hold. */
#include "tests/cli/model.h"
#include "tests/cli/process.h"

#include <jansson.h>

static void test_table(void **state)
{
    const struct cli_model *model = *state;
    struct process_result result = process_run("inspect", model->folder, "--ctx", "1000");
    assert_int_equal(result.code, 0);
    assert_string_equal(result.err, "");
    assert_non_null(strstr(result.out, "Hugging Face layout"));
    assert_non_null(strstr(result.out, "layers       4, 2 of them with a window of 16 positions"));
    assert_non_null(strstr(result.out, "for a context of 1000 tokens"));
    const char *line = strstr(result.out, "model.layers.3.mlp.experts.gate_up_proj_blocks");
    assert_non_null(line);
    assert_non_null(strstr(line, "U8     [8, 192, 2, 16]"));
    process_free(&result);
}

static int64_t whole(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static void test_json(void **state)
{
    const struct cli_model *model = *state;
    struct process_result result = process_run("inspect", model->folder, "--json", "--ctx", "1000");
    assert_int_equal(result.code, 0);
    json_t *root = json_loads(result.out, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    json_t *config = json_object_get(root, "config"), *plan = json_object_get(root, "plan");
    assert_int_equal(whole(config, "n_layer"), 4);
    assert_int_equal(whole(config, "n_expert"), 8);
    assert_int_equal(whole(config, "n_vocab"), model->n_vocab);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(config, "stop_ids"), 0)),
                     atoi(model->stop_id));
    assert_int_equal(whole(plan, "n_ctx"), 1000);
    assert_true(whole(plan, "kv_bytes") > 0);

    /* The tensors' elements, an MXFP4 block counting 32, are the parameters. */
    int64_t n_param = 0, bytes = 0;
    size_t i;
    json_t *tensor, *size;
    json_array_foreach(json_object_get(root, "tensors"), i, tensor)
    {
        const char *name = json_string_value(json_object_get(tensor, "name"));
        int64_t count = strstr(name, "_scales") ? 0 : strstr(name, "_blocks") ? 2 : 1;
        size_t axis;
        json_array_foreach(json_object_get(tensor, "shape"), axis, size) count *= json_integer_value(size);
        n_param += count;
        bytes += whole(tensor, "bytes");
        assert_string_equal(json_string_value(json_object_get(tensor, "file")), "model.safetensors");
    }
    assert_int_equal(i, 3 + 4 * 19);
    assert_int_equal(n_param, whole(json_object_get(root, "parameters"), "total"));
    assert_int_equal(bytes, whole(plan, "weight_bytes"));
    json_decref(root);
    process_free(&result);
}

/* A path is given whole and as it is, whatever is in it. */
static void test_json_paths(void **state)
{
    const struct cli_model *model = *state;
    char name[240] = "", path[900], shown[900];
    memset(name, 'x', 220);
    struct test_path link = test_path_join(model->root, strcat(name, "\\\n\"\xFF\xE9"));
    assert_int_equal(symlink(model->folder, link.text), 0);
    strcpy(path, link.text);
    snprintf(shown, sizeof shown, "%.*s\xEF\xBF\xBD\xEF\xBF\xBD", (int)strlen(path) - 2, path);
    struct process_result result = process_run("inspect", path, "--json", "--ctx", "100");
    assert_int_equal(result.code, 0);
    json_t *root = json_loads(result.out, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "folder")), shown);
    json_decref(root);
    process_free(&result);
    unlink(link.text);

    /* The file's name too. */
    char *folder = test_folder_make();
    struct tiny_options options = tiny_options_default();
    tiny_checkpoint_write(&options, folder);
    struct test_path file = test_path_join(folder, "odd\\\xFF.safetensors");
    assert_int_equal(rename(test_path_join(folder, "model.safetensors").text, file.text), 0);
    result = process_run("inspect", file.text, "--json");
    assert_int_equal(result.code, 0);
    root = json_loads(result.out, JSON_REJECT_DUPLICATES, NULL);
    const json_t *tensor = json_array_get(json_object_get(root, "tensors"), 0);
    assert_string_equal(json_string_value(json_object_get(tensor, "file")), "odd\\\xEF\xBF\xBD.safetensors");
    json_decref(root);
    process_free(&result);
    test_folder_remove(folder);
}

static void test_order(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_default();
    options.n_layer = 11;
    char *folder = test_folder_make();
    tiny_checkpoint_write(&options, folder);
    struct process_result result = process_run("inspect", folder);
    assert_int_equal(result.code, 0);
    assert_true(strstr(result.out, "model.layers.9.") < strstr(result.out, "model.layers.10."));
    process_free(&result);
    test_folder_remove(folder);
}

static void test_original_layout(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_default();
    options.layout = GS_LAYOUT_ORIGINAL;
    char *folder = test_folder_make();
    tiny_checkpoint_write(&options, folder);
    struct process_result result = process_run("inspect", folder);
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "original layout"));
    assert_non_null(strstr(result.out, "block.0.attn.qkv.weight"));
    process_free(&result);
    test_folder_remove(folder);
}

static void test_refusals(void **state)
{
    const struct cli_model *model = *state;
    char *folder = test_folder_make();
    process_refuses(process_run("inspect", "/no/model"), "/no/model");
    process_refuses(process_run("inspect", folder), folder);
    process_refuses(process_run("inspect", model->folder, "--ctx", "65537"), "1 to 65536");
    struct tiny_options options = tiny_options_default();
    struct tiny_model *tiny = tiny_model_make(&options);
    tiny_model_drop(tiny, "model.layers.2.self_attn.sinks");
    tiny_model_write(tiny, folder);
    process_refuses(process_run("inspect", folder), "model.layers.2.self_attn.sinks");
    tiny_model_free(tiny);
    test_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),           cmocka_unit_test(test_json),
        cmocka_unit_test(test_json_paths),      cmocka_unit_test(test_order),
        cmocka_unit_test(test_original_layout), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, cli_model_setup, cli_model_teardown);
}
