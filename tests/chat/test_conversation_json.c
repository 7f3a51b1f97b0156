/* src/chat/conversation_json.c, tools_json.c, harmony_json.c: wrong shapes get one line with the JSON path.
 */
#include "tests/chat/harmony_case.h"

static void expect_error(bool harmony, const char *request, const char *part)
{
    const struct gs_conversation_settings settings = {.cutoff = ""};
    struct gs_conversation conversation;
    struct gs_error error = {0};
    json_t *json = parse_json(request);
    gs_status status = harmony ? gs_conversation_from_harmony(json, &conversation, &error)
                               : gs_conversation_from_json(&settings, json, &conversation, &error);
    if (status == GS_OK)
        fail_msg("%s: is accepted, expected \"%s\"", request, part);
    assert_int_equal(status, GS_INVALID_ARGUMENT);
    if (!strstr(error.message, part))
        fail_msg("%s: \"%s\" lacks \"%s\"", request, error.message, part);
    for (const char *c = error.message; *c; c++)
        assert_true((unsigned char)*c >= 0x20);
    gs_conversation_free(&conversation);
    json_decref(json);
}

#define ASSISTANT(rest) "[{\"role\":\"assistant\"," rest "}]"

static void wrong_messages(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"7", "an array of messages, or an object with \"messages\", is expected, not an integer"},
        {"{}", "messages: an array is expected, not nothing"},
        {"{\"messages\":{}}", "messages: an array is expected, not an object"},
        {"[7]", "[0]: an object is expected, not an integer"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{}]}",
         "messages[1].role: a string is expected"},
        {"[{\"role\":\"human\"}]",
         "[0].role: system, developer, user, assistant or tool is expected, not \"human\""},
        {"[{\"role\":\"x\\ny\\u202e\"}]", "not \"x\\x0Ay\\xE2\\x80\\xAE\""},
        {"[{\"role\":\"user\",\"content\":7}]",
         "[0].content: a string, an array of parts or null is expected, not an integer"},
        {"[{\"role\":\"user\",\"content\":[7]}]", "[0].content[0]: an object such as"},
        {"[{\"role\":\"user\",\"content\":[{}]}]", "[0].content[0].type: a string is expected, not nothing"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image_url\"}]}]",
         "[0].content[1].type: \"text\" or \"refusal\" is expected, not \"image_url\""},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]",
         "[0].content[0].text: a string is expected"},
        {"[{\"role\":\"system\",\"content\":[{\"type\":\"input_audio\"}]}]", "[0].content[0].type: \"text\""},
        {"[{\"role\":\"user\",\"name\":7}]", "[0].name: a string is expected, not an integer"},
        {ASSISTANT("\"reasoning\":{}"), "[0].reasoning: a string is expected, not an object"},
        {ASSISTANT("\"tool_calls\":{}"), "[0].tool_calls: an array is expected, not an object"},
        {ASSISTANT("\"tool_calls\":[7]"), "[0].tool_calls[0]: an object is expected"},
        {ASSISTANT("\"tool_calls\":[{}]"), "[0].tool_calls[0].function: an object is expected, not nothing"},
        {ASSISTANT("\"tool_calls\":[{\"function\":{}}]"), "[0].tool_calls[0].function.name: the name"},
        {ASSISTANT("\"tool_calls\":[{\"function\":{\"name\":\"a b\"}}]"),
         "[0].tool_calls[0].function.name: the name"},
        {ASSISTANT("\"tool_calls\":[{\"id\":7,\"function\":{\"name\":\"f\"}}]"),
         "[0].tool_calls[0].id: a string"},
        {ASSISTANT("\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":7}}]"),
         "[0].tool_calls[0].function.arguments: a string is expected, not an integer"},
        {"[{\"role\":\"tool\",\"content\":\"x\"}]",
         "[0].tool_call_id: the id of a call in an earlier assistant message is expected"},
        {"[{\"role\":\"tool\",\"tool_call_id\":\"z\",\"content\":\"x\"}]", "is expected, not \"z\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_error(false, cases[i][0], cases[i][1]);
}

#define WITH(rest) "{\"messages\":[]," rest "}"

static void wrong_requests(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {WITH("\"reasoning_effort\":\"extreme\""),
         "reasoning_effort: \"low\", \"medium\" or \"high\" is expected, not \"extreme\""},
        {WITH("\"reasoning_effort\":7"),
         "reasoning_effort: \"low\", \"medium\" or \"high\" is expected, not an integer"},
        {WITH("\"tools\":{}"), "tools: an array is expected, not an object"},
        {WITH("\"tools\":[7]"), "tools[0]: an object is expected"},
        {WITH("\"tools\":[{}]"), "tools[0].type: a string such as \"function\" is expected, not nothing"},
        {WITH("\"tools\":[{\"type\":\"function\"}]"), "tools[0].name: 1 to 64 characters"},
        {WITH("\"tools\":[{\"type\":\"function\",\"function\":7}]"),
         "tools[0].function: an object is expected"},
        {WITH("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"<|end|>\"}}]"),
         "tools[0].function.name: 1 to 64 characters of [A-Za-z0-9_-] are expected, not \"<|end|>\""},
        {WITH("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a.b\"}}]"),
         "tools[0].function.name: 1 to 64"},
        {WITH("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":7}}]"),
         "tools[0].function.description: a string is expected"},
        {WITH("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":"
              "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}}]"),
         "1 to 64 characters"},
        {WITH("\"response_format\":7"), "response_format: an object is expected"},
        {WITH("\"response_format\":{\"type\":\"x\"}"), "response_format.type: "},
        {WITH("\"response_format\":{\"type\":\"json_schema\"}"), "response_format.json_schema: an object"},
        {WITH("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{}}"),
         "response_format.json_schema.name: a string"},
        {WITH("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\"}}"),
         "response_format.json_schema.schema: an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_error(false, cases[i][0], cases[i][1]);
}

static void wrong_harmony(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"system_content\"}]}]",
         "[0].content[0]: system_content may only stand in a system message, not in a user one"},
        {"[{\"role\":\"system\",\"content\":[{\"type\":\"developer_content\"}]}]",
         "developer_content may only stand in a developer"},
        {"[{\"role\":\"tool\",\"content\":\"x\"}]", "[0].name: the tool's name is expected, not nothing"},
        {"[{\"role\":\"x\",\"content\":\"x\"}]", "[0].role: "},
        {"[{\"role\":\"user\"}]", "[0].content: a string or an array is expected"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]", "[0].content[0]: "},
        {"[{\"role\":\"user\",\"content\":\"x\",\"channel\":7}]", "[0].channel: a string is expected"},
        {"[{\"role\":\"system\",\"content\":[{\"type\":\"system_content\",\"reasoning_effort\":\"x\"}]}]",
         "reasoning_effort: "},
        {"[{\"role\":\"system\",\"content\":[{\"type\":\"system_content\",\"tools\":7}]}]",
         "[0].content[0].tools: an object"},
        {"[{\"role\":\"system\",\"content\":[{\"type\":\"system_content\",\"tools\":{\"a\":{\"tools\":[{}]}}}"
         "]}]",
         "[0].content[0].tools.a.tools[0].name: a string"},
        {"[{\"role\":\"system\",\"content\":[{\"type\":\"system_content\",\"channel_config\":{\"valid_"
         "channels\":[7]}}]}]",
         "channel_config.valid_channels: an array of strings"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_error(true, cases[i][0], cases[i][1]);
}

static void accepted(void **state)
{
    (void)state;
    static const char request[] = "{\"messages\":[{\"role\":\"user\",\"content\":[\"a\",{\"type\":\"input_"
                                  "text\",\"text\":\"b\"}]}],\"tools\":["
                                  "{\"type\":\"web_search\"},{\"type\":\"function\",\"function\":{\"name\":"
                                  "\"a.b\"}},{\"type\":\"custom\"}],"
                                  "\"reasoning_effort\":null,\"temperature\":1,\"anything\":{}}";
    const struct gs_conversation_settings settings = {.dotted_names = true};
    struct gs_conversation c;
    struct gs_error error;
    json_t *json = parse_json(request);
    assert_ok(gs_conversation_from_json(&settings, json, &c, &error), &error);
    assert_int_equal(c.count, 3);
    assert_int_equal(c.messages[2].n_content, 2);
    assert_int_equal(c.n_skipped_tool, 2);
    assert_true(gs_text_is(c.skipped_tools[1], "custom"));
    assert_int_equal(c.functions->n_function, 1);
    gs_conversation_free(&c);
    gs_conversation_free(NULL);
    json_decref(json);
}

/* A thousand calls, results in reverse order: pairing is by table, not by search. */
static void many_calls(void **state)
{
    (void)state;
    const size_t n = 50000;
    struct gs_buffer text = {0};
    const struct gs_conversation_settings settings = {.cutoff = ""};
    struct gs_conversation c;
    struct gs_error error;
    gs_buffer_append_text(&text, "[{\"role\":\"assistant\",\"tool_calls\":[", NULL);
    for (size_t i = 0; i < n; i++)
        gs_buffer_print(&text, NULL, "%s{\"id\":\"%zu\",\"function\":{\"name\":\"f%zu\"}}", i ? "," : "", i,
                        i);
    gs_buffer_append_text(&text, "]}", NULL);
    for (size_t i = n; i-- > 0;)
        gs_buffer_print(&text, NULL, ",{\"role\":\"tool\",\"tool_call_id\":\"%zu\",\"content\":\"\"}", i);
    gs_buffer_append_text(&text, "]", NULL);
    json_t *json = parse_json(text.data);
    assert_ok(gs_conversation_from_json(&settings, json, &c, &error), &error);
    assert_int_equal(c.count, 1 + 2 * n);
    assert_true(gs_text_is(c.messages[1 + n].name, "functions.f49999"));
    assert_true(gs_text_is(c.messages[2 * n].name, "functions.f0"));
    gs_conversation_free(&c);
    json_decref(json);
    gs_buffer_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_messages), cmocka_unit_test(wrong_requests), cmocka_unit_test(wrong_harmony),
        cmocka_unit_test(accepted),       cmocka_unit_test(many_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
