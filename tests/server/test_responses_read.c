/* src/server/responses_read.c and turns.c: items become the messages of a chat; errors name the client's
 * places. */
#include "server/responses_read.h"

#include "chat/json_text.h"
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

static void assert_json(const json_t *json, const char *expected)
{
    json_t *wanted = parse(expected);
    if (!json_equal(json, wanted)) {
        char *text = json_dumps(json, JSON_INDENT(1));
        print_error("%s\nis not\n%s\n", text, expected);
        free(text);
    }
    assert_true(json_equal(json, wanted));
    json_decref(wanted);
}

static int read_text(struct gs_response_store *store, const char *text, struct gs_responses_request *request,
                     struct gs_api_error *error)
{
    json_t *body = parse(text);
    *request = (struct gs_responses_request){0};
    *error = (struct gs_api_error){0};
    int status = gs_responses_read(store, 0, body, request, error);
    json_decref(body);
    return status;
}

static void expect_messages(const char *body, const char *messages)
{
    struct gs_responses_request request;
    struct gs_api_error error;
    int status = read_text(NULL, body, &request, &error);
    if (status != 0)
        print_error("%s\n", error.message);
    assert_int_equal(status, 0);
    assert_json(json_object_get(request.chat, "messages"), messages);
    gs_responses_request_free(&request);
}

static void expect_error(const char *body, const char *param)
{
    struct gs_responses_request request;
    struct gs_api_error error;
    assert_int_equal(read_text(NULL, body, &request, &error), 400);
    assert_string_equal(error.param, param);
    assert_int_equal(strncmp(error.message, param, strlen(param)), 0);
    gs_responses_request_free(&request);
}

static void test_text_and_instructions(void **state)
{
    (void)state;
    expect_messages("{\"input\": \"hi\"}", "[{\"role\": \"user\", \"content\": \"hi\"}]");
    expect_messages("{\"input\": [{\"role\": \"user\", \"content\": [{\"type\": \"input_text\", \"text\": "
                    "\"hi\"}]}], \"instructions\": \"be\"}",
                    "[{\"role\": \"developer\", \"content\": \"be\"}, {\"role\": \"user\", \"content\": "
                    "[{\"type\": \"input_text\", \"text\": \"hi\"}]}]");
}

/* What stands together in a turn becomes one message; what begins anew does not. */
static void test_items_become_messages(void **state)
{
    (void)state;
    expect_messages(
        "{\"input\": [{\"type\": \"message\", \"role\": \"user\", \"content\": \"q\"},"
        "{\"type\": \"reasoning\", \"summary\": [], \"content\": [{\"type\": \"reasoning_text\", \"text\": "
        "\"r1\"}, {\"type\": \"reasoning_text\", \"text\": \"r2\"}]},"
        "{\"type\": \"message\", \"role\": \"assistant\", \"content\": [{\"type\": \"output_text\", "
        "\"text\": "
        "\"pre\"}]},"
        "{\"type\": \"function_call\", \"call_id\": \"c1\", \"name\": \"f\", \"arguments\": \"{}\"},"
        "{\"type\": \"function_call\", \"call_id\": \"c2\", \"name\": \"g\", \"arguments\": \"{]\"},"
        "{\"type\": \"function_call_output\", \"call_id\": \"c2\", \"output\": \"two\"},"
        "{\"type\": \"function_call_output\", \"call_id\": \"c1\", \"output\": [{\"type\": \"input_text\", "
        "\"text\": \"one\"}]},"
        "{\"type\": \"reasoning\", \"content\": [{\"text\": \"r3\"}]},"
        "{\"type\": \"message\", \"role\": \"assistant\", \"content\": \"end\"},"
        "{\"type\": \"reasoning\", \"content\": [{\"text\": \"r4\"}]}]}",
        "[{\"role\": \"user\", \"content\": \"q\"},"
        "{\"role\": \"assistant\", \"reasoning_content\": \"r1r2\", \"content\": [{\"type\": "
        "\"output_text\", "
        "\"text\": \"pre\"}], \"tool_calls\": [{\"id\": \"c1\", \"type\": \"function\", \"function\": "
        "{\"name\": "
        "\"f\", \"arguments\": \"{}\"}}, {\"id\": \"c2\", \"type\": \"function\", \"function\": {\"name\": "
        "\"g\", "
        "\"arguments\": \"{]\"}}]},"
        "{\"role\": \"tool\", \"tool_call_id\": \"c2\", \"content\": \"two\"},"
        "{\"role\": \"tool\", \"tool_call_id\": \"c1\", \"content\": [{\"type\": \"input_text\", \"text\": "
        "\"one\"}]},"
        "{\"role\": \"assistant\", \"reasoning_content\": \"r3\", \"content\": \"end\"},"
        "{\"role\": \"assistant\", \"reasoning_content\": \"r4\"}]");
}

static void test_sealed_reasoning_comes_back(void **state)
{
    struct gs_text reasoning = gs_text_of("I think \xe2\x82\xac, \"so\"");
    json_t *sealed = gs_responses_seal(reasoning);
    (void)state;
    assert_non_null(sealed);
    assert_null(strstr(json_string_value(sealed), "think"));
    json_t *body = json_pack("{s:[{s:s, s:[], s:O}]}", "input", "type", "reasoning", "summary",
                             "encrypted_content", sealed);
    struct gs_responses_request request = {0};
    struct gs_api_error error;
    assert_int_equal(gs_responses_read(NULL, 0, body, &request, &error), 0);
    const json_t *message = json_array_get(json_object_get(request.chat, "messages"), 0);
    assert_string_equal(json_string_value(json_object_get(message, "reasoning_content")), reasoning.bytes);
    gs_responses_request_free(&request);
    json_decref(body);
    json_decref(sealed);
}

/* Another server's seal, a damaged one, and one around bytes that are no text: nothing, and no error. */
static void test_what_cannot_be_unsealed_is_nothing(void **state)
{
    static const char *const bodies[] = {
        "{\"input\": [{\"type\": \"reasoning\", \"encrypted_content\": \"gAAAAA\"}]}",
        "{\"input\": [{\"type\": \"reasoning\", \"encrypted_content\": \"gossamer-1.Zg\"}]}",
        "{\"input\": [{\"type\": \"reasoning\", \"encrypted_content\": \"gossamer-1./w==\"}]}",
        "{\"input\": [{\"type\": \"reasoning\", \"encrypted_content\": null, \"content\": null}]}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        expect_messages(bodies[i], "[]");
}

static void test_other_fields(void **state)
{
    struct gs_responses_request request;
    struct gs_api_error error;
    (void)state;
    assert_int_equal(
        read_text(
            NULL,
            "{\"input\": \"x\", \"max_output_tokens\": 7, \"reasoning\": {\"effort\": \"low\", \"summary\": "
            "\"auto\"}, \"text\": {\"format\": {\"type\": \"json_schema\", \"name\": \"n\", \"schema\": {}, "
            "\"strict\": true}, \"verbosity\": \"low\"}, \"store\": false, \"include\": "
            "[\"reasoning.encrypted_content\", \"message.output_text.logprobs\", \"other\"], "
            "\"temperature\": null, \"tool_choice\": {\"type\": \"function\", \"name\": \"f\"}}",
            &request, &error),
        0);
    assert_false(request.store);
    assert_true(request.encrypted && request.logprobs);
    json_object_del(request.chat, "messages");
    assert_json(
        request.chat,
        "{\"max_completion_tokens\": 7, \"reasoning_effort\": \"low\", \"logprobs\": true, "
        "\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"type\": \"json_schema\", "
        "\"name\": \"n\", \"schema\": {}, \"strict\": true}}, \"tool_choice\": {\"type\": \"function\", "
        "\"name\": \"f\"}}");
    gs_responses_request_free(&request);
}

static void test_errors_name_the_place(void **state)
{
    (void)state;
    expect_error("{}", "input");
    expect_error("{\"input\": 1}", "input");
    expect_error("{\"input\": [1]}", "input[0]");
    expect_error("{\"input\": [{\"type\": \"message\"}]}", "input[0].role");
    expect_error("{\"input\": [{\"role\": \"robot\", \"content\": \"\"}]}", "input[0].role");
    expect_error("{\"input\": [{\"type\": 3}]}", "input[0].type");
    expect_error("{\"input\": [{\"type\": \"item_reference\"}]}", "input[0].id");
    expect_error("{\"input\": [{\"type\": \"function_call\", \"call_id\": \"c\", \"name\": \"f\"}]}",
                 "input[0].arguments");
    expect_error("{\"input\": [{\"type\": \"function_call\", \"name\": \"f\", \"arguments\": \"\"}]}",
                 "input[0].call_id");
    expect_error("{\"input\": [{\"type\": \"function_call_output\", \"call_id\": \"c\"}]}",
                 "input[0].output");
    expect_error("{\"input\": [{\"type\": \"reasoning\", \"content\": \"x\"}]}", "input[0].content");
    expect_error("{\"input\": [{\"type\": \"reasoning\", \"content\": [{}]}]}", "input[0].content[0]");
    expect_error("{\"input\": \"x\", \"instructions\": 1}", "instructions");
    expect_error("{\"input\": \"x\", \"store\": 1}", "store");
    expect_error("{\"input\": \"x\", \"background\": true}", "background");
    expect_error("{\"input\": \"x\", \"conversation\": \"c\"}", "conversation");
    expect_error("{\"input\": \"x\", \"text\": []}", "text");
    expect_error("{\"input\": \"x\", \"text\": {\"format\": 1}}", "text.format");
    expect_error("{\"input\": \"x\", \"reasoning\": \"low\"}", "reasoning");
    expect_error("{\"input\": \"x\", \"include\": {}}", "include");
    expect_error("{\"input\": \"x\", \"include\": [1]}", "include[0]");
    expect_error("{\"input\": \"x\", \"previous_response_id\": 1}", "previous_response_id");
}

static void test_errors_of_the_chat_are_renamed(void **state)
{
    struct gs_responses_request request;
    struct gs_api_error error;
    (void)state;
    assert_int_equal(
        read_text(NULL,
                  "{\"instructions\": \"i\", \"input\": [{\"role\": \"user\", \"content\": \"a\"}, "
                  "{\"type\": \"reasoning\"}, {\"role\": \"user\", \"content\": \"b\"}]}",
                  &request, &error),
        0);
    gs_api_bad(&error, "messages[2].content[0].type", "messages[2].content[0].type: text is expected");
    gs_responses_rename(&request, &error);
    assert_string_equal(error.param, "input[2].content[0].type");
    assert_string_equal(error.message, "input[2].content[0].type: text is expected");
    gs_api_bad(&error, "messages[0].content", "no");
    gs_responses_rename(&request, &error);
    assert_string_equal(error.param, "instructions.content");
    assert_string_equal(error.message, "no");
    gs_api_bad(&error, "messages[99]", "messages[99]: no");
    gs_responses_rename(&request, &error);
    assert_string_equal(error.param, "messages[99]");
    gs_api_bad(&error, "reasoning_effort", "reasoning_effort: low is expected");
    gs_responses_rename(&request, &error);
    assert_string_equal(error.param, "reasoning.effort");
    gs_api_bad(&error, "response_format.json_schema.strict", "response_format.json_schema.strict: no");
    gs_responses_rename(&request, &error);
    assert_string_equal(error.message, "text.format.strict: no");
    gs_api_bad(&error, "messages", "messages: at least one message is expected");
    gs_responses_rename(&request, &error);
    assert_string_equal(error.message, "input: at least one message is expected");
    gs_responses_request_free(&request);
}

static void test_a_previous_response_stands_before(void **state)
{
    struct gs_response_store *store;
    struct gs_responses_request request;
    struct gs_api_error error;
    struct gs_error failure;
    json_t *items = parse("[{\"role\": \"user\", \"content\": \"q\"}, {\"type\": \"message\", \"role\": "
                          "\"assistant\", \"content\": [{\"type\": \"output_text\", \"text\": \"a\"}]}]");
    json_t *response = json_object();
    (void)state;
    assert_ok(gs_response_store_open(1 << 20, &store, &failure), &failure);
    gs_response_store_put(store, "resp_1", 0, response, items, "");
    static const char body[] = "{\"previous_response_id\": \"resp_1\", \"input\": \"next\"}";
    assert_int_equal(read_text(store, body, &request, &error), 0);
    assert_int_equal(json_array_size(json_object_get(request.chat, "messages")), 3);
    assert_int_equal(json_array_size(request.items), 3);
    gs_responses_request_free(&request);
    assert_int_equal(
        read_text(store, "{\"previous_response_id\": \"resp_2\", \"input\": \"next\"}", &request, &error),
        400);
    assert_string_equal(error.code, "previous_response_not_found");
    gs_responses_request_free(&request);
    json_t *parsed = parse(body);
    request = (struct gs_responses_request){0};
    assert_int_equal(gs_responses_read(store, 1, parsed, &request, &error), 400); /* another key */
    gs_responses_request_free(&request);
    json_decref(parsed);
    json_decref(items);
    json_decref(response);
    gs_response_store_close(store);
}

/* Once each: a short body is not to ask for more text than memory has. */
static void test_a_stored_item_stands_for_its_reference(void **state)
{
    struct gs_response_store *store;
    struct gs_responses_request request;
    struct gs_api_error error;
    struct gs_error failure;
    json_t *items = json_array();
    json_t *response =
        parse("{\"output\": [{\"id\": \"msg_1\", \"type\": \"message\", \"role\": \"assistant\", "
              "\"content\": [{\"type\": \"output_text\", \"text\": \"a\"}]}]}");
    (void)state;
    assert_ok(gs_response_store_open(1 << 20, &store, &failure), &failure);
    gs_response_store_put(store, "resp_1", 0, response, items, "");
    static const char once[] =
        "{\"input\": [{\"role\": \"user\", \"content\": \"q\"}, {\"type\": \"item_reference\", "
        "\"id\": \"msg_1\"}]}";
    assert_int_equal(read_text(store, once, &request, &error), 0);
    assert_json(json_object_get(request.chat, "messages"),
                "[{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": "
                "[{\"type\": \"output_text\", \"text\": \"a\"}]}]");
    assert_true(
        json_equal(json_array_get(request.items, 1), json_array_get(json_object_get(response, "output"), 0)));
    gs_responses_request_free(&request);
    static const char twice[] = "{\"input\": [{\"type\": \"item_reference\", \"id\": \"msg_1\"}, {\"type\": "
                                "\"item_reference\", \"id\": \"msg_1\"}]}";
    assert_int_equal(read_text(store, twice, &request, &error), 400);
    assert_string_equal(error.message, "input[1].id: the item \"msg_1\" is referred to twice");
    gs_responses_request_free(&request);
    json_t *parsed = parse(once);
    request = (struct gs_responses_request){0};
    assert_int_equal(gs_responses_read(store, 1, parsed, &request, &error), 400); /* another key */
    assert_string_equal(error.param, "input[1].id");
    gs_responses_request_free(&request);
    json_decref(parsed);
    json_decref(items);
    json_decref(response);
    gs_response_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_and_instructions),
        cmocka_unit_test(test_items_become_messages),
        cmocka_unit_test(test_sealed_reasoning_comes_back),
        cmocka_unit_test(test_what_cannot_be_unsealed_is_nothing),
        cmocka_unit_test(test_other_fields),
        cmocka_unit_test(test_errors_name_the_place),
        cmocka_unit_test(test_errors_of_the_chat_are_renamed),
        cmocka_unit_test(test_a_previous_response_stands_before),
        cmocka_unit_test(test_a_stored_item_stands_for_its_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
