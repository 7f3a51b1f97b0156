/* src/chat/tool_schema.c, json_text.c: the reference's types, and that no JSON value is too strange. */
#include "chat/json_load.h"
#include "chat/json_text.h"
#include "chat/tool_schema.h"

#include "tests/chat/harmony_case.h"

static void print_schema(const json_t *schema, bool reference, struct gs_buffer *out)
{
    struct gs_error error;
    struct gs_writer writer = {.buffer = out, .status = GS_OK, .error = &error};
    gs_write(&writer, "");
    gs_write_schema(&writer, schema, reference);
    assert_ok(writer.status, &error);
}

static void expect_schema(const char *schema, const char *expected)
{
    struct gs_buffer out = {0};
    json_t *json = parse_json(schema);
    print_schema(json, false, &out);
    assert_string_equal(out.data, expected);
    gs_buffer_free(&out);
    json_decref(json);
}

/* The type of a tool stands between these in the vectors. */
static void vectors(void **state)
{
    (void)state;
    json_t *cases = load_json("tests/data/chat/ts_schema.json");
    size_t i;
    json_t *c;
    assert_int_equal(json_array_size(cases), 13);
    json_array_foreach(cases, i, c)
    {
        struct gs_buffer out = {0};
        const char *name = json_string_value(json_object_get(c, "name"));
        const char *expected = json_string_value(json_object_get(c, "rendered"));
        gs_buffer_print(&out, NULL, "// D.\ntype %s = (_: ", name);
        print_schema(json_object_get(c, "schema"), true, &out);
        gs_buffer_append_text(&out, ") => any;", NULL);
        assert_string_equal(out.data, expected);
        gs_buffer_free(&out);
    }
    json_decref(cases);
}

static void arrays_and_unions(void **state)
{
    (void)state;
    expect_schema("{\"type\":\"array\"}", "any[]");
    expect_schema("{\"type\":\"array\",\"items\":{\"type\":\"array\",\"items\":{\"type\":\"number\"}}}",
                  "number[][]");
    expect_schema("{\"type\":[\"string\",\"null\"]}", "string | null");
    expect_schema("{\"type\":[\"integer\",\"null\"]}", "number | null");
    expect_schema("{\"type\":[]}", "any");
    expect_schema("{\"type\":[1,null]}", "any");
    expect_schema("{\"anyOf\":[{\"type\":\"string\"}]}", "any");
    expect_schema("{\"$ref\":\"#\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/a\"}}}", "any");
    expect_schema("{\"type\":\"object\"}", "{\n}");
    expect_schema("{\"oneOf\":[]}", "any");
    expect_schema("{\"type\":\"string\",\"enum\":[1]}", "string");
    expect_schema(
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\"}},\"required\":[\"a\"],\"strict\":"
        "true,\"$schema\":\"x\",\"additionalProperties\":false,\"$defs\":{}}",
        "{\na: any[],\n}");
}

static void strange_values(void **state)
{
    (void)state;
    static const char *const any[] = {"null",
                                      "true",
                                      "1",
                                      "\"string\"",
                                      "[]",
                                      "{}",
                                      "{\"type\":7}",
                                      "{\"type\":{}}",
                                      "{\"type\":\"\\u0000\"}",
                                      "{\"oneOf\":7}"};
    for (size_t i = 0; i < sizeof any / sizeof *any; i++)
        expect_schema(any[i], "any");
    expect_schema("{\"type\":\"object\",\"properties\":7,\"required\":7}", "{\n}");
    expect_schema("{\"type\":\"object\",\"properties\":[1],\"required\":[7]}", "{\n}");
    expect_schema("{\"type\":\"object\",\"properties\":{\"a\":null,\"b\":[],\"c\":\"x\"}}",
                  "{\na?: any,\nb?: any,\nc?: any,\n}");
    expect_schema("{\"type\":\"array\",\"items\":[{\"type\":\"string\"}]}", "any[]");
    expect_schema(
        "{\"type\":\"object\",\"properties\":{\"a\":{\"title\":1,\"description\":[],\"examples\":{},"
        "\"enum\":7,\"nullable\":1,\"type\":\"string\"}}}",
        "{\na?: string,\n}");
    expect_schema("{\"oneOf\":[1,null,[]]}", "\n | any\n | any\n | any");
}

/* Nesting is bounded, whatever nests: the text stays small and the stack shallow. */
static void depth(void **state)
{
    (void)state;
    static const char *const shapes[][2] = {
        {"{\"type\":\"array\",\"items\":", "}"},
        {"{\"type\":\"object\",\"properties\":{\"a\":", "}}"},
        {"{\"oneOf\":[", "]}"},
    };
    for (size_t s = 0; s < 3; s++) {
        struct gs_buffer text = {0}, out = {0};
        const size_t n = 600;
        for (size_t i = 0; i < n; i++)
            gs_buffer_append_text(&text, shapes[s][0], NULL);
        gs_buffer_append_text(&text, "{\"type\":\"string\"}", NULL);
        for (size_t i = 0; i < n; i++)
            gs_buffer_append_text(&text, shapes[s][1], NULL);
        json_t *json = parse_json(text.data);
        print_schema(json, false, &out);
        assert_non_null(strstr(out.data, "any"));
        assert_null(strstr(out.data, "string"));
        assert_true(out.size < 100000);
        json_decref(json);
        gs_buffer_free(&text);
        gs_buffer_free(&out);
    }
}

static void json_numbers(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"1.5", "1.5"},
        {"1.0", "1.0"},
        {"1e3", "1000.0"},
        {"0.1", "0.1"},
        {"-0.0", "-0.0"},
        {"100", "100"},
        {"1e16", "1e16"},
        {"1e15", "1000000000000000.0"},
        {"1e30", "1e30"},
        {"1.25e-7", "1.25e-7"},
        {"0.00001", "0.00001"},
        {"0.000001", "1e-6"},
        {"0.0001", "0.0001"},
        {"123456.789e20", "1.23456789e25"},
        {"5e-324", "5e-324"},
        {"0.30000000000000004", "0.30000000000000004"},
        {"1.7976931348623157e308", "1.7976931348623157e308"},
        {"-12.5", "-12.5"},
        {"9007199254740993.0", "9007199254740992.0"},
        {"{\"b\":[1,\"\\u00e9\\n\\u0001\\\"\\u0000\"],\"a\":null,\"c\":{}}",
         "{\"b\":[1,\"\xC3\xA9\\n\\u0001\\\"\\u0000\"],\"a\":null,\"c\":{}}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gs_buffer out = {0};
        struct gs_writer writer = {.buffer = &out, .status = GS_OK, .error = NULL};
        json_t *json = parse_json(cases[i][0]);
        gs_write_json(&writer, json);
        assert_string_equal(out.data, cases[i][1]);
        json_decref(json);
        gs_buffer_free(&out);
    }
}

/* src/chat/json_load.c: limits of 64 bits and more are no reason to refuse a schema. */
static void large_integers(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"[18446744073709551615]", "[1.8446744073709552e19]"},
        {"{\"99999999999999999999\":-99999999999999999999,\"b\":9223372036854775807}",
         "{\"99999999999999999999\":-1e20,\"b\":9.223372036854776e18}"},
        {"[\"\\\"99999999999999999999\",99999999999999999999e2,0.99999999999999999999,99999999999999999999]",
         "[\"\\\"99999999999999999999\",1e22,1.0,1e20]"},
        {"9223372036854775807", "9223372036854775807"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gs_buffer out = {0};
        struct gs_writer writer = {.buffer = &out, .status = GS_OK, .error = NULL};
        struct gs_error error;
        json_t *json;
        assert_ok(gs_json_load("x", cases[i][0], strlen(cases[i][0]), &json, &error), &error);
        gs_write_json(&writer, json);
        assert_string_equal(out.data, cases[i][1]);
        json_decref(json);
        gs_buffer_free(&out);
    }
    static const char *const bad[] = {"",      "[1e999]",    "[99999999999999999999", "{\"a\":1,\"a\":2}",
                                      "[NaN]", "\"\\ud800\""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct gs_error error;
        json_t *json;
        assert_fails(gs_json_load("the file", bad[i], strlen(bad[i]), &json, &error), GS_MALFORMED,
                     "the file: line ", &error);
        assert_null(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors), cmocka_unit_test(arrays_and_unions), cmocka_unit_test(strange_values),
        cmocka_unit_test(depth),   cmocka_unit_test(json_numbers),      cmocka_unit_test(large_integers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
