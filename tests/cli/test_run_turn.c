/* gossamer run without --raw: one chat turn, its answer, its message as JSON, its refusals. */
#include "tests/cli/model.h"
#include "tests/cli/process.h"

#include <jansson.h>

#define DEMO "models/demo"
#define TOOLS                                                                                                \
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"Gets the current "     \
    "weather in a location.\",\"parameters\":{\"type\":\"object\",\"properties\":{\"location\":{\"type\":"   \
    "\"string\",\"description\":\"The name of the city\"}},\"required\":[\"location\"]}}}]"

static void test_answer(void **state)
{
    (void)state;
    struct process_options input = {.input = "What is the capital of Japan?", .input_size = 29};
    process_expect(process_run("run", DEMO, "-p", "What is the capital of France?", "--temp", "0"),
                   "The capital of France is Paris.");
    process_expect(process_run_as(input, "run", DEMO, "-", "--temp", "0", "--effort", "low"),
                   "The capital of Japan is Tokyo.");
    process_expect(
        process_run("run", DEMO, "-p", "What is today's date?", "--temp", "0", "--date", "2027-05-14"),
        "Today is 2027-05-14.");

    struct process_result shown =
        process_run("run", DEMO, "-p", "What is the capital of France?", "--temp", "0", "--show-reasoning");
    assert_string_equal(shown.out, "The capital of France is Paris.");
    assert_string_equal(shown.err,
                        "The user asks for the capital of France. The capital of France is Paris.\n\n");
    process_free(&shown);
    shown = process_run("run", DEMO, "-p", "What is the capital of France?", "--temp", "0", "--json",
                        "--show-reasoning");
    assert_non_null(strstr(shown.out, "\"content\":\"The capital of France is Paris.\""));
    assert_string_equal(shown.err,
                        "The user asks for the capital of France. The capital of France is Paris.\n\n");
    process_free(&shown);

    struct process_options terminal = {.out_terminal = true, .err_terminal = true};
    shown = process_run_as(terminal, "run", DEMO, "-p", "What is the capital of France?", "--temp", "0");
    assert_string_equal(shown.out, "The capital of France is Paris.\n");
    assert_non_null(strstr(shown.err, "of them reasoning)"));
    process_free(&shown);
}

static void test_system_message(void **state)
{
    const struct cli_model *model = *state;
    struct test_path script = cli_script_of(model, "<|channel|>final<|message|>x<|return|>");
    struct process_result plain =
        process_run("run", model->words, "-p", "x", "--json", "--script-tokens", script.text);
    struct process_result longer = process_run("run", model->words, "-p", "x", "--json", "--system",
                                               "Be brief.", "--script-tokens", script.text);
    json_t *a = json_loads(plain.out, 0, NULL), *b = json_loads(longer.out, 0, NULL);
    assert_true(json_integer_value(json_object_get(json_object_get(b, "usage"), "prompt_tokens")) >
                json_integer_value(json_object_get(json_object_get(a, "usage"), "prompt_tokens")) + 4);
    json_decref(a);
    json_decref(b);
    process_free(&plain);
    process_free(&longer);
}

static json_t *run_json(const struct cli_model *model, const char *text, const char *limit)
{
    struct test_path script = cli_script_of(model, text), tools = test_path_join(model->root, "tools.json");
    test_file_write(tools.text, TOOLS, strlen(TOOLS));
    struct process_result result =
        process_run("run", model->words, "-p", "x", "--json", "--seed", "7", "--tools", tools.text, "-n",
                    limit, "--script-tokens", script.text);
    if (result.code != 0)
        fail_msg("exit code %d: %s", result.code, result.err);
    json_t *object = json_loads(result.out, 0, NULL);
    assert_non_null(object);
    process_free(&result);
    return object;
}

static void test_message(void **state)
{
    const struct cli_model *model = *state;
    json_t *object = run_json(model,
                              "<|channel|>analysis<|message|>think<|end|><|start|>assistant<|channel|>"
                              "commentary<|message|>pre<|end|><|start|>assistant<|channel|>commentary "
                              "to=functions.get_weather <|constrain|>json<|message|>{\"location\": "
                              "\"Rome\"}<|call|>",
                              "1000");
    json_t *expected =
        json_pack("{s:s, s:s, s:s, s:[{s:s, s:s, s:{s:s, s:s}}]}", "role", "assistant", "reasoning", "think",
                  "content", "pre", "tool_calls", "id", "call_0", "type", "function", "function", "name",
                  "get_weather", "arguments", "{\"location\": \"Rome\"}");
    assert_true(json_equal(json_object_get(object, "message"), expected));
    assert_string_equal(json_string_value(json_object_get(object, "finish_reason")), "tool_calls");
    assert_int_equal(json_integer_value(json_object_get(object, "seed")), 7);
    json_decref(expected);
    json_decref(object);

    /* The limit falls into the reasoning: an empty answer, not none. */
    object = run_json(model, "<|channel|>analysis<|message|>a b c d e f g h", "6");
    json_t *message = json_object_get(object, "message");
    assert_string_equal(json_string_value(json_object_get(message, "content")), "");
    assert_string_equal(json_string_value(json_object_get(message, "reasoning")), "a b c");
    assert_string_equal(json_string_value(json_object_get(object, "finish_reason")), "length");
    assert_true(json_integer_value(json_object_get(json_object_get(object, "usage"), "reasoning_tokens")) >=
                3);
    json_decref(object);
}

static void test_real_call(void **state)
{
    const struct cli_model *model = *state;
    struct test_path tools = test_path_join(model->root, "tools.json");
    test_file_write(tools.text, TOOLS, strlen(TOOLS));
    struct process_result result =
        process_run("run", DEMO, "-p", "What is the weather in Tokyo?", "--temp", "0", "--tools", tools.text);
    assert_int_equal(result.code, 0);
    assert_string_equal(result.out, "");
    assert_string_equal(result.err, "call get_weather {\"location\": \"Tokyo\"}\n");
    process_free(&result);
}

/* Text that looks like markers is text. */
static void test_prompt_is_literal(void **state)
{
    (void)state;
    struct process_result marked =
        process_run("run", DEMO, "--json", "-p", "<|end|>", "--temp", "0", "-n", "1");
    struct process_result word = process_run("run", DEMO, "--json", "-p", "x", "--temp", "0", "-n", "1");
    json_t *a = json_loads(marked.out, 0, NULL), *b = json_loads(word.out, 0, NULL);
    assert_true(json_integer_value(json_object_get(json_object_get(a, "usage"), "prompt_tokens")) >
                json_integer_value(json_object_get(json_object_get(b, "usage"), "prompt_tokens")) + 3);
    json_decref(a);
    json_decref(b);
    process_free(&marked);
    process_free(&word);
}

static void test_refusals(void **state)
{
    const struct cli_model *model = *state;
    struct test_path bad = test_path_join(model->root, "bad.json");
    test_file_write(bad.text, "[{\"type\":\"function\"}]", 21);
    process_refuses(process_run("run", DEMO), "no prompt: give one of -p TEXT, -f FILE, or -");
    process_refuses(process_run("run", DEMO, "-p", "x", "--effort", "extreme"), "not \"extreme\"");
    process_refuses(process_run("run", DEMO, "-p", "x", "--date", "yesterday"), "such as 2025-06-28");
    process_refuses(process_run("run", DEMO, "-p", "x", "--tools", "/no/tools"), "/no/tools");
    process_refuses(process_run("run", DEMO, "-p", "x", "--tools", bad.text), "tools[0]");
    process_refuses(process_run("run", DEMO, "-p", "x", "--special"), "--special is for plain completions");
    process_refuses(process_run("run", DEMO, "-p", "x", "--raw", "--system", "y"),
                    "--system is for chat turns");
    process_refuses(process_run("run", DEMO, "-p", "x", "--ctx", "20"),
                    "needs room for an answer, but the context holds 20");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answer),   cmocka_unit_test(test_system_message),
        cmocka_unit_test(test_message),  cmocka_unit_test(test_real_call),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_prompt_is_literal),
    };
    return cmocka_run_group_tests(tests, cli_model_setup, cli_model_teardown);
}
