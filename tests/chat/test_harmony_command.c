/* gossamer harmony: JSON in and out, and one line for what is wrong. */
#include "tests/chat/harmony_case.h"
#include "tests/cli/process.h"
#include "tests/support/files.h"

#define INPUT(text) ((struct process_options){.input = (text), .input_size = strlen(text)})

#define MESSAGES "[{\"role\":\"user\",\"content\":\"hi <|end|>\"}]"
#define PROMPT                                                                                               \
    "<|start|>system<|message|>Me.\nCurrent date: D\n\nReasoning: low\n\n# Valid channels: analysis, "       \
    "commentary, final. Channel must be included for every message.<|end|><|start|>user<|message|>hi "       \
    "<|end|><|end|><|start|>assistant"

static void render(void **state)
{
    (void)state;
    struct process_options in = INPUT(MESSAGES);
    process_expect(process_run_as(in, "harmony", "render", "--text", "--identity", "Me.", "--cutoff", "",
                                  "--date", "D", "--effort", "low"),
                   PROMPT);
    struct process_result result = process_run_as(in, "harmony", "render", "-m", DEMO_VOCAB, "--identity",
                                                  "Me.", "--cutoff=", "--date=D", "--effort=low");
    assert_int_equal(result.code, 0);
    json_t *json = parse_json(result.out);
    assert_string_equal(json_string_value(json_object_get(json, "text")), PROMPT);
    size_t count = json_array_size(json_object_get(json, "ids"));
    assert_true(count > 20 && json_integer_value(json_object_get(json, "count")) == (json_int_t)count);
    process_free(&result);
    result = process_run_as(in, "harmony", "render", "--text"); /* the date is today's */
    assert_int_equal(result.code, 0);
    const char *date = strstr(result.out, "Current date: 20");
    assert_non_null(date);
    assert_int_equal(strspn(date + strlen("Current date: "), "0123456789-"), 10);
    assert_int_equal(date[strlen("Current date: YYYY-MM-DD")], '\n');
    process_free(&result);
    result = process_run_as(in, "harmony", "render", "--ids");
    assert_int_equal(result.code, 0);
    assert_int_equal(strspn(result.out, "0123456789,\n"), result.out_size);
    process_free(&result);
    json_decref(json);
}

/* R63: a tool that gossamer does not have is left out, and said to be. */
static void skipped_tools(void **state)
{
    (void)state;
    static const char request[] =
        "{\"messages\":[],\"tools\":[{\"type\":\"web\\nsearch\"},{\"type\":\"function\","
        "\"function\":{\"name\":\"f\"}}]}";
    struct process_result result = process_run_as(INPUT(request), "harmony", "render", "--text");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.err, "a tool of the type \"web\\x0Asearch\" is left out"));
    assert_non_null(strstr(result.out, "type f = () => any;"));
    process_free(&result);
}

/* The ids of a text with markers, as parse reads them. */
static void ids_of(const char *text, struct gs_buffer *ids)
{
    struct gs_vocab *vocab = open_vocab(DEMO_VOCAB);
    struct gs_tokens tokens = {0};
    assert_int_equal(gs_vocab_encode_special(vocab, text, strlen(text), &tokens, NULL), GS_OK);
    gs_buffer_append_text(ids, "", NULL);
    for (size_t i = 0; i < tokens.count; i++)
        gs_buffer_print(ids, NULL, "%d%s", (int)tokens.ids[i], i % 2 ? ", " : "\n");
    gs_tokens_free(&tokens);
    gs_vocab_close(vocab);
}

static void parse(void **state)
{
    (void)state;
    struct gs_buffer ids = {0};
    char *folder = test_folder_make();
    struct test_path tools = test_path_join(folder, "tools.json");
    static const char declared[] =
        "[{\"type\":\"web_search\"},{\"type\":\"function\",\"function\":{\"name\":\"get_weather\"}}]";
    test_file_write(tools.text, declared, strlen(declared));
    ids_of("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=get_weatherjson"
           "<|message|>{}<|call|>",
           &ids);
    struct process_options in = INPUT(ids.data);
    struct process_result result = process_run_as(in, "harmony", "parse", "--tools", tools.text);
    assert_int_equal(result.code, 0);
    json_t *json = parse_json(result.out);
    json_t *message = json_object_get(json, "message"), *calls = json_object_get(message, "tool_calls");
    const json_t *function = json_object_get(json_array_get(calls, 0), "function");
    assert_string_equal(json_string_value(json_object_get(json, "finish_reason")), "tool_calls");
    assert_string_equal(json_string_value(json_object_get(message, "reasoning")), "hm");
    assert_true(json_is_null(json_object_get(message, "content")));
    assert_string_equal(json_string_value(json_object_get(function, "name")), "get_weather");
    assert_string_equal(json_string_value(json_object_get(function, "arguments")), "{}");
    assert_true(json_array_size(json_object_get(json, "events")) >= 6);
    json_decref(json);
    process_free(&result);

    /* A JSON object a line, the message last; and it can be rendered again. */
    result = process_run_as(in, "harmony", "parse", "--stream");
    assert_int_equal(result.code, 0);
    size_t n = 0;
    char *line = strtok(result.out, "\n"), *last = NULL;
    for (; line; line = strtok(NULL, "\n"), n++) {
        json_decref(parse_json(line));
        last = line;
    }
    assert_true(n >= 7);
    json = parse_json(last);
    message = json_object_get(json, "message");
    assert_non_null(message);
    json_t *messages = json_pack("[O]", message);
    char *again = json_dumps(messages, JSON_COMPACT);
    struct process_options reply = INPUT(again);
    process_free(&result);
    result = process_run_as(reply, "harmony", "render", "--text");
    assert_non_null(strstr(result.out, "<|start|>assistant<|channel|>analysis<|message|>hm<|end|>"));
    process_free(&result);
    free(again);
    json_decref(messages);
    json_decref(json);
    gs_buffer_free(&ids);
    test_folder_remove(folder);
}

static void refusals(void **state)
{
    (void)state;
    process_refuses(process_run("harmony"), "render or parse is expected");
    process_refuses(process_run("harmony", "x"), "render or parse is expected");
    process_refuses(process_run_as(INPUT("[{\"role\":7}]"), "harmony", "render"),
                    "messages[0].role: a string is expected, not an integer");
    process_refuses(process_run_as(INPUT("{"), "harmony", "render"), "standard input: line 1, column 1: ");
    process_refuses(process_run_as(INPUT(""), "harmony", "render"),
                    "standard input is empty: JSON is expected");
    process_refuses(process_run_as(INPUT("[]"), "harmony", "render", "--effort", "x"),
                    "--effort: low, medium or high is expected, not \"x\"");
    process_refuses(process_run_as(INPUT("[]"), "harmony", "render", "--end", "x"),
                    "--end: completion, plain or training is expected, not \"x\"");
    process_refuses(process_run_as(INPUT("[]"), "harmony", "render", "--form", "x"),
                    "--form: chat or harmony is expected");
    process_refuses(process_run_as(INPUT("[]"), "harmony", "render", "--tools", "/nonexistent"),
                    "/nonexistent");
    process_refuses(process_run_as(INPUT("1 x"), "harmony", "parse"), "byte 2: token ids");
    process_refuses(process_run_as(INPUT("1234567890"), "harmony", "parse"), "byte 0: token ids");
    process_refuses(process_run_as(INPUT("{\"ids\":[-1]}"), "harmony", "parse"),
                    "ids[0]: a token id is expected");
    process_refuses(process_run_as(INPUT("{}"), "harmony", "parse"), "ids: an array is expected");
    struct process_result result = process_run_as(INPUT(""), "harmony", "parse");
    assert_int_equal(result.code, 0);
    assert_string_equal(result.out,
                        "{\"finish_reason\":\"length\",\"message\":{\"role\":\"assistant\",\"content\":"
                        "\"\"},\"events\":[{\"event\":\"turn\",\"finish_reason\":\"length\"}]}\n");
    process_free(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(render),
        cmocka_unit_test(skipped_tools),
        cmocka_unit_test(parse),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
