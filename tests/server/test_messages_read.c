/* src/server/messages_read.c: content blocks become the messages of a chat; errors name the client's places.
 */
#include "server/messages_read.h"

#include "tests/support/check.h"

#include <string.h>

static json_t *parse(const char *text)
{
    json_error_t error;
    json_t *json = json_loads(text, JSON_ALLOW_NUL, &error);
    if (!json)
        print_error("%s: %s\n", text, error.text);
    assert_non_null(json);
    return json;
}

static int read_text(const char *text, struct gs_messages_request *request, struct gs_api_error *error)
{
    json_t *body = parse(text);
    *request = (struct gs_messages_request){0};
    *error = (struct gs_api_error){0};
    int status = gs_messages_read(body, true, request, error);
    json_decref(body);
    return status;
}

static void expect_chat(const char *body, const char *chat)
{
    struct gs_messages_request request;
    struct gs_api_error error;
    int status = read_text(body, &request, &error);
    if (status != 0)
        print_error("%s\n", error.message);
    assert_int_equal(status, 0);
    json_t *wanted = parse(chat);
    if (!json_equal(request.chat, wanted)) {
        char *text = json_dumps(request.chat, JSON_INDENT(1));
        print_error("%s\nis not\n%s\n", text, chat);
        free(text);
    }
    assert_true(json_equal(request.chat, wanted));
    json_decref(wanted);
    gs_messages_request_free(&request);
}

static void expect_error(const char *body, const char *param)
{
    struct gs_messages_request request;
    struct gs_api_error error;
    assert_int_equal(read_text(body, &request, &error), 400);
    assert_string_equal(error.param, param);
    assert_int_equal(strncmp(error.message, param, strlen(param)), 0);
    gs_messages_request_free(&request);
}

#define ASK  "\"messages\": [{\"role\": \"user\", \"content\": \"q\"}]"
#define CHAT "\"messages\": [{\"role\": \"user\", \"content\": \"q\"}]"

static void test_system_without_billing(void **state)
{
    (void)state;
    expect_chat(
        "{\"system\": \"be\", " ASK "}",
        "{\"messages\": [{\"role\": \"system\", \"content\": \"be\"}, {\"role\": \"user\", \"content\": "
        "\"q\"}]}");
    expect_chat(
        "{\"system\": [{\"type\": \"text\", \"text\": \"x-anthropic-billing-header: cch=1;\"}, {\"type\": "
        "\"text\", \"text\": \"be\", \"cache_control\": {\"type\": \"ephemeral\"}}], " ASK "}",
        "{\"messages\": [{\"role\": \"system\", \"content\": \"be\"}, {\"role\": \"user\", \"content\": "
        "\"q\"}]}");
    expect_chat("{\"system\": \"x-anthropic-billing-header: a\", " ASK "}", "{" CHAT "}");
    expect_chat("{\"system\": null, " ASK "}", "{" CHAT "}");
}

static void test_blocks_become_messages(void **state)
{
    (void)state;
    expect_chat(
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, "
        "{\"type\": "
        "\"text\", \"text\": \"b\", \"cache_control\": {}}]},"
        "{\"role\": \"assistant\", \"content\": [{\"type\": \"thinking\", \"thinking\": \"t\", "
        "\"signature\": "
        "\"s\"}, {\"type\": \"redacted_thinking\", \"data\": \"x\"}, {\"type\": \"text\", \"text\": "
        "\"pre\"}, "
        "{\"type\": \"tool_use\", \"id\": \"toolu_1\", \"name\": \"f\", \"input\": {\"x\": 1}}, {\"type\": "
        "\"tool_use\", \"id\": \"other\", \"name\": \"g\", \"input\": {}}]},"
        "{\"role\": \"user\", \"content\": [{\"type\": \"tool_result\", \"tool_use_id\": \"other\", "
        "\"content\": "
        "[{\"type\": \"text\", \"text\": \"two\"}]}, {\"type\": \"tool_result\", \"tool_use_id\": "
        "\"toolu_1\", "
        "\"is_error\": true}, {\"type\": \"text\", \"text\": \"and\"}]}]}",
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, "
        "{\"type\": "
        "\"text\", \"text\": \"b\"}]},"
        "{\"role\": \"assistant\", \"reasoning_content\": \"t\", \"content\": \"pre\", \"tool_calls\": "
        "[{\"id\": "
        "\"call_1\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1}}}, "
        "{\"id\": "
        "\"other\", \"type\": \"function\", \"function\": {\"name\": \"g\", \"arguments\": {}}}]},"
        "{\"role\": \"tool\", \"tool_call_id\": \"other\", \"content\": [{\"type\": \"text\", \"text\": "
        "\"two\"}]},"
        "{\"role\": \"tool\", \"tool_call_id\": \"call_1\", \"content\": \"error\"},"
        "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"and\"}]}]}");
}

/* Two messages of the assistant in a row stay two. */
static void test_messages_do_not_grow_together(void **state)
{
    (void)state;
    expect_chat(
        "{\"messages\": [{\"role\": \"assistant\", \"content\": [{\"type\": \"thinking\", \"thinking\": "
        "\"t\"}]}, {\"role\": \"assistant\", \"content\": \"a\"}]}",
        "{\"messages\": [{\"role\": \"assistant\", \"reasoning_content\": \"t\"}, {\"role\": "
        "\"assistant\", \"content\": \"a\"}]}");
}

static void test_tools_and_choice(void **state)
{
    (void)state;
    expect_chat(
        "{" ASK ", \"tools\": [{\"name\": \"f\", \"description\": \"d\", \"input_schema\": {\"type\": "
        "\"object\"}}, {\"type\": \"web_search_20250305\", \"name\": \"web_search\"}, {\"type\": \"custom\", "
        "\"name\": \"g\", \"input_schema\": {}}], \"tool_choice\": {\"type\": \"any\", "
        "\"disable_parallel_tool_use\": true}}",
        "{" CHAT ", \"tools\": [{\"type\": \"function\", \"name\": \"f\", \"description\": \"d\", "
        "\"parameters\": {\"type\": \"object\"}}, {\"type\": \"web_search_20250305\"}, {\"type\": "
        "\"function\", \"name\": \"g\", \"parameters\": {}}], \"tool_choice\": \"required\", "
        "\"parallel_tool_calls\": false}");
    expect_chat("{" ASK ", \"tool_choice\": {\"type\": \"tool\", \"name\": \"f\"}}",
                "{" CHAT ", \"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"f\"}}}");
    expect_chat("{" ASK ", \"tool_choice\": {\"type\": \"none\"}}", "{" CHAT ", \"tool_choice\": \"none\"}");
}

static void test_thinking_is_an_effort(void **state)
{
    struct gs_messages_request request;
    struct gs_api_error error;
    (void)state;
    expect_chat("{" ASK ", \"thinking\": {\"type\": \"enabled\", \"budget_tokens\": 1024}}",
                "{" CHAT ", \"reasoning_effort\": \"low\"}");
    expect_chat("{" ASK ", \"thinking\": {\"type\": \"enabled\", \"budget_tokens\": 16000}}",
                "{" CHAT ", \"reasoning_effort\": \"medium\"}");
    expect_chat("{" ASK ", \"thinking\": {\"type\": \"enabled\", \"budget_tokens\": 31999}}",
                "{" CHAT ", \"reasoning_effort\": \"high\"}");
    expect_chat("{" ASK ", \"thinking\": {\"type\": \"adaptive\"}, \"output_config\": {\"effort\": \"max\"}}",
                "{" CHAT ", \"reasoning_effort\": \"max\"}");
    assert_int_equal(read_text("{" ASK ", \"thinking\": {\"type\": \"disabled\"}}", &request, &error), 0);
    assert_true(request.hide_thinking);
    gs_messages_request_free(&request);
}

static void test_formats_and_sampling(void **state)
{
    static const char wanted[] =
        "{" CHAT ", \"response_format\": {\"type\": \"json_schema\", \"json_schema\": "
        "{\"name\": \"output\", \"schema\": {\"type\": \"object\"}, \"strict\": true}}}";
    (void)state;
    expect_chat("{" ASK
                ", \"output_format\": {\"type\": \"json_schema\", \"schema\": {\"type\": \"object\"}}}",
                wanted);
    expect_chat("{" ASK
                ", \"output_config\": {\"format\": {\"type\": \"json_schema\", \"schema\": {\"type\": "
                "\"object\"}}}}",
                wanted);
    expect_chat("{" ASK
                ", \"max_tokens\": 5, \"temperature\": 0, \"top_p\": null, \"stop_sequences\": [\"x\"], "
                "\"metadata\": {\"user_id\": \"u\"}, \"stream\": true}",
                "{" CHAT ", \"max_tokens\": 5, \"temperature\": 0, \"stop\": [\"x\"], "
                "\"metadata\": {\"user_id\": \"u\"}, \"stream\": true}");
}

static void test_errors_name_the_place(void **state)
{
    struct gs_messages_request request = {0};
    struct gs_api_error error;
    (void)state;
    expect_error("{}", "messages");
    expect_error("{\"messages\": []}", "messages");
    expect_error("{\"messages\": [3]}", "messages[0]");
    expect_error("{\"messages\": [{\"content\": \"x\"}]}", "messages[0].role");
    expect_error("{\"messages\": [{\"role\": \"tool\", \"content\": \"x\"}]}", "messages[0].role");
    expect_error("{\"messages\": [{\"role\": \"user\"}]}", "messages[0].content");
    expect_error(
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\", \"source\": {\"type\": "
        "\"url\", \"url\": \"http://169.254.169.254/\"}}]}]}",
        "messages[0].content[0].type");
    expect_error("{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]}",
                 "messages[0].content[0].text");
    expect_error("{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"tool_result\"}]}]}",
                 "messages[0].content[0].tool_use_id");
    expect_error(
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"tool_result\", \"tool_use_id\": "
        "\"x\", \"content\": [{\"type\": \"image\"}]}]}]}",
        "messages[0].content[0].content[0].type");
    expect_error(
        "{\"messages\": [{\"role\": \"assistant\", \"content\": [{\"type\": \"tool_use\", \"id\": \"x\", "
        "\"name\": \"f\", \"input\": \"{}\"}]}]}",
        "messages[0].content[0].input");
    expect_error("{" ASK ", \"system\": 3}", "system");
    expect_error("{" ASK ", \"system\": [{}]}", "system[0].text");
    expect_error("{" ASK ", \"tools\": {}}", "tools");
    expect_error("{" ASK ", \"tools\": [{\"name\": \"f\"}]}", "tools[0].input_schema");
    expect_error("{" ASK ", \"tool_choice\": \"auto\"}", "tool_choice");
    expect_error("{" ASK ", \"tool_choice\": {\"type\": \"maybe\"}}", "tool_choice.type");
    expect_error("{" ASK ", \"tool_choice\": {\"type\": \"tool\"}}", "tool_choice.name");
    expect_error("{" ASK ", \"thinking\": true}", "thinking");
    expect_error("{" ASK ", \"output_format\": {\"type\": \"json_schema\"}}", "output_format");
    json_t *body = parse("{" ASK "}");
    assert_int_equal(gs_messages_read(body, false, &request, &error), 400);
    assert_string_equal(error.param, "max_tokens");
    gs_messages_request_free(&request);
    json_decref(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_system_without_billing),        cmocka_unit_test(test_blocks_become_messages),
        cmocka_unit_test(test_messages_do_not_grow_together), cmocka_unit_test(test_tools_and_choice),
        cmocka_unit_test(test_thinking_is_an_effort),         cmocka_unit_test(test_formats_and_sampling),
        cmocka_unit_test(test_errors_name_the_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
