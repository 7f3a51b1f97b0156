/* Compiling schemas: what is refused and how it is said, what is reported, and that nothing takes long. */
#include "chat/json_load.h"
#include "chat/schema_mask.h"
#include "tests/support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

/* Steps of a compilation: what is refused may take the default limit, what compiles takes well under that. */
#define MAX_WORK         40000000
#define MAX_WORK_OF_GOOD 12000000
/* Of the processor, for all tests together: ends a compilation that counts no steps. They take two. */
#define MAX_SECONDS      600

static gs_status compile(const char *text, const struct gs_schema_limits *limits, struct gs_grammar **grammar,
                         struct gs_schema_report *report, struct gs_error *error)
{
    json_t *schema;
    *grammar = NULL;
    gs_status status = gs_json_load("schema", text, strlen(text), &schema, error);
    assert_int_equal(status, GS_OK);
    status = gs_schema_compile(schema, limits, grammar, report, error);
    json_decref(schema);
    return status;
}

static void wrong_schemas_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *message;
        gs_status status;
    } cases[] = {
        {"3", "#: a schema is an object", GS_MALFORMED},
        {"{\"type\":\"strnig\"}", "#: type: \"strnig\" is unknown", GS_MALFORMED},
        {"{\"properties\":{\"a\":{\"minLength\":\"x\"}}}", "#/properties/a: minLength must be", GS_MALFORMED},
        {"{\"items\":{\"anyOf\":[{},{\"type\":7}]}}", "#/items/anyOf/1: type must be", GS_MALFORMED},
        {"{\"pattern\":\"(a\"}", "#: pattern: \"(a\": a ( without )", GS_MALFORMED},
        {"{\"pattern\":\"a{3,2}\"}", "bad bounds", GS_MALFORMED},
        {"{\"patternProperties\":{\"[\":{}}}", "patternProperties", GS_MALFORMED},
        {"{\"$ref\":\"#/$defs/x\"}", "$ref \"#/$defs/x\": there is no such schema", GS_MALFORMED},
        {"{\"$ref\":\"http://example.com/\"}", "only references within", GS_UNSUPPORTED},
        {"{\"$ref\":\"#\"}", "leads back", GS_MALFORMED},
        {"{\"required\":[\"a\\u0000b\"]}", "#: required must be a list of names", GS_MALFORMED},
        {"{\"not\":{\"required\":[\"a\\u0000b\"]}}", "#/not: required must be a list of names", GS_MALFORMED},
        {"{\"minProperties\":1,\"propertyNames\":false,\"type\":\"object\"}", "no value can satisfy",
         GS_UNSUPPORTED},
        {"{\"allOf\":[{\"$ref\":\"#\"}]}", "leads back", GS_MALFORMED},
        {"{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#/$defs/"
         "a\"}],\"$defs\":{\"a\":{\"oneOf\":[{\"$ref\":\"#\"}]}}}",
         "leads back", GS_MALFORMED},
        {"false", "no value can satisfy", GS_UNSUPPORTED},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
         "no value can satisfy", GS_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gs_grammar *grammar;
        struct gs_error error;
        assert_fails(compile(cases[i].schema, NULL, &grammar, NULL, &error), cases[i].status,
                     cases[i].message, &error);
        assert_null(grammar);
    }
}

static void what_is_not_enforced_is_reported(void **state)
{
    (void)state;
    static const char text[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"uniqueItems\":true},\"b\":{\"not\":"
        "{\"minimum\":1}},"
        "\"c\":{\"type\":\"string\",\"pattern\":\"a(?!b)\"},\"d\":{\"type\":\"number\",\"multipleOf\":0.1}},"
        "\"if\":{\"minProperties\":1},\"then\":{\"required\":[\"b\"]}}";
    static const char *const expected[][2] = {{"if", "#"},
                                              {"uniqueItems", "#/properties/a"},
                                              {"not", "#/properties/b"},
                                              {"pattern", "#/properties/c"},
                                              {"multipleOf", "#/properties/d"}};
    struct gs_grammar *grammar;
    struct gs_schema_report report;
    struct gs_error error;
    assert_ok(compile(text, NULL, &grammar, &report, &error), &error);
    assert_int_equal(report.count, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_string_equal(report.list[i].keyword, expected[i][0]);
        assert_string_equal(report.list[i].path, expected[i][1]);
    }
    gs_grammar_close(grammar);
    assert_ok(compile("{\"uniqueItems\":false,\"title\":\"x\",\"x-mine\":{\"a\":1}}", NULL, &grammar, &report,
                      &error),
              &error);
    assert_int_equal(report.count, 0);
    gs_grammar_close(grammar);
}

static bool accepts(const char *schema, const char *text)
{
    struct gs_grammar *grammar;
    struct gs_error error;
    bool accepted;
    assert_ok(compile(schema, NULL, &grammar, NULL, &error), &error);
    assert_ok(gs_grammar_accepts(grammar, text, strlen(text), &accepted, &error), &error);
    gs_grammar_close(grammar);
    return accepted;
}

static void blanks_are_few(void **state)
{
    (void)state;
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"type\":"
        "\"integer\"}}},\"required\":[\"a\"]}";
    assert_true(accepts(schema, "{\"a\":[1,2]}"));
    assert_true(accepts(schema, "{\"a\": [1, 2]}"));
    assert_true(accepts(schema, "{ \"a\": [ 1, 2 ] }"));
    assert_true(accepts(schema, "{\n  \"a\": [\n    1,\n    2\n  ]\n}"));
    assert_true(accepts(schema, "{\n                    \"a\":[]}"));
    assert_false(accepts(schema, "{\n                     \"a\":[]}")); /* 21 blanks */
    assert_false(accepts(schema, "{  \"a\":[]}"));
    assert_false(accepts(schema, "{\n\n\"a\":[]}"));
    assert_false(accepts(schema, "{\"a\" :[]}"));
    assert_false(accepts(schema, "{\"a\":  []}"));
    assert_false(accepts(schema, "{\"a\":\n[]}"));
    assert_false(accepts(schema, "{\"a\":[1 ,2]}"));
    assert_false(accepts(schema, "{\"a\":[1,2,]}"));
    assert_false(accepts(schema, "{\"a\":[1,2]} "));
    assert_false(accepts(schema, " {\"a\":[1,2]}"));
}

static void strings_have_one_spelling(void **state)
{
    (void)state;
    static const char schema[] = "{\"type\":\"string\"}";
    assert_true(accepts(schema, "\"\\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001f/\x7f\""));
    assert_true(
        accepts(schema, "\"\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x98\x80\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\""));
    static const char *const wrong[] = {
        "\"\\/\"",     "\"\\u0061\"",  "\"\\u000a\"",      "\"\\u001F\"",          "\"\n\"",
        "\"\x80\"",    "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", "\"\xe0\x80\x80\"",
        "\"\\ud800\"", "\"a",          "\"a\"\""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(accepts(schema, wrong[i]));
}

/* ECMA's and Python's classes differ in a few characters: none of those, in a class or in its complement. */
static void patterns_take_the_narrower_reading(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text;
        bool accepted;
    } cases[] = {
        {"^[^\\\\s]$", "\"a\"", true},
        {"^[^\\\\s]$", "\"\xef\xbb\xbf\"", false},
        {"^[^\\\\s]$", "\"\xc2\x85\"", false},
        {"^[^\\\\S]$", "\" \"", true},
        {"^[^\\\\S]$", "\"\\u001c\"", false},
        {"^[^\\\\w]$", "\"-\"", true},
        {"^[^\\\\w]$", "\"\xc3\xa9\"", false},
        {"^[^\\\\d]$", "\"\xd9\xa3\"", false},
        {"^[^\\\\da]$", "\"b\"", true},
        {"^[^\\\\da]$", "\"a\"", false},
        {"^[\\\\sa]$", "\"\xef\xbb\xbf\"", false},
        {"^[^x][\\\\w]$",
         "\"\xc3\xa9"
         "a\"",
         true},
        {"^x{1,2}{}$", "\"xx{}\"", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char schema[100];
        snprintf(schema, sizeof schema, "{\"type\":\"string\",\"pattern\":\"%s\"}", cases[i].pattern);
        if (accepts(schema, cases[i].text) != cases[i].accepted)
            fail_msg("%s: %s", schema, cases[i].text);
    }
}

static void large_numbers_are_exact(void **state)
{
    (void)state;
    static const char exclusive[] = "{\"type\":\"integer\",\"exclusiveMaximum\":9223372036854775808}";
    static const char rounded[] = "{\"type\":\"integer\",\"maximum\":9223372036854777000}";
    static const char real[] = "{\"type\":\"integer\",\"minimum\":1.2345678901234567e18}";
    assert_true(accepts(exclusive, "9223372036854770000"));
    assert_false(accepts(exclusive, "9223372036854775808"));
    assert_false(accepts(exclusive, "9223372036854775900"));
    assert_true(accepts(rounded, "9223372036854775800"));
    assert_false(accepts(rounded, "9223372036854777500"));
    assert_true(accepts(real, "1234567890123456768"));
    assert_false(accepts(real, "1234567890123456767"));
    assert_true(accepts("{\"enum\":[9007199254740993,9007199254740992],\"maximum\":9007199254740992}",
                        "9007199254740992"));
    assert_false(accepts("{\"enum\":[9007199254740993,9007199254740992],\"maximum\":9007199254740992}",
                         "9007199254740993"));
    assert_false(accepts("{\"enum\":[9007199254740993,4],\"multipleOf\":2}", "9007199254740993"));
}

/* Constants are held against the schema that lists them, also where it refers to itself. */
static void constants_satisfy_their_own_schema(void **state)
{
    (void)state;
    static const char schema[] = "{\"enum\":[[],[1],[[]]],\"items\":{\"$ref\":\"#\"}}";
    assert_true(accepts(schema, "[]"));
    assert_true(accepts(schema, "[[]]"));
    assert_false(accepts(schema, "[1]"));
}

/* Text made of `repeat` copies of `middle`, separated by `comma`. */
static char *repeated(const char *start, const char *middle, const char *comma, size_t repeat,
                      const char *end)
{
    size_t size = strlen(start) + repeat * (strlen(middle) + strlen(comma) + 20) + strlen(end) + 1, at;
    char *text = malloc(size);
    assert_non_null(text);
    at = (size_t)snprintf(text, size, "%s", start);
    for (size_t i = 0; i < repeat; i++)
        at += (size_t)snprintf(text + at, size - at, middle, i, i),
            at += (size_t)snprintf(text + at, size - at, "%s", i + 1 < repeat ? comma : "");
    snprintf(text + at, size - at, "%s", end);
    return text;
}

/* Compiles, whatever comes out, in bounded steps and memory. */
static void is_bounded(const char *text, gs_status wanted)
{
    struct gs_grammar *grammar;
    struct gs_schema_report report;
    struct gs_error error = {0};
    gs_status status = compile(text, NULL, &grammar, &report, &error);
    if (status != wanted || report.n_work == 0 ||
        report.n_work > (wanted == GS_OK ? MAX_WORK_OF_GOOD : MAX_WORK))
        fail_msg("%.60s...: status %d (%s), %zu steps", text, (int)status, error.message, report.n_work);
    if (status == GS_OK)
        assert_true(gs_grammar_size(grammar).bytes < (size_t)64 << 20);
    gs_grammar_close(grammar);
}

static void hostile_schemas_are_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        gs_status status;
    } cases[] = {
        {"{\"pattern\":\"(a{1000}){1000}\"}", GS_UNSUPPORTED},
        {"{\"pattern\":\"([ab]*a[ab\\u00e9]{14}){3}\\\\p{L}*\"}", GS_UNSUPPORTED},
        {"{\"pattern\":\"((((((a{9}){9}){9}){9}){9}){9}){9}\"}", GS_UNSUPPORTED},
        {"{\"pattern\":\"(((((((((a*)*)*)*)*)*)*)*)*)*b\"}", GS_OK},
        {"{\"pattern\":\"(a|a)*(a|aa)*(a|a|a)*$\"}", GS_OK},
        {"{\"pattern\":\"(.*a.{20}b.*)|(.*b.{20}c.*)\"}", GS_UNSUPPORTED},
        {"{\"pattern\":\"[01]*1[01]{30}$\"}", GS_UNSUPPORTED},
        {"{\"pattern\":\"^(a?){500}a{500}$\"}", GS_OK},
        {"{\"type\":\"string\",\"minLength\":4000000000}", GS_OK},
        {"{\"type\":\"string\",\"minLength\":1e300}", GS_OK},
        {"{\"type\":\"array\",\"minItems\":4000000000,\"items\":{\"type\":\"null\"}}", GS_OK},
        {"{\"type\":\"integer\",\"multipleOf\":997,\"minimum\":-1e18,\"maximum\":1e18}", GS_OK},
        {"{\"type\":\"number\",\"minimum\":-1.7976931348623157e308,\"maximum\":4.9e-324}", GS_OK},
        {"{\"type\":\"string\",\"pattern\":\"^[a-z]*$\",\"minLength\":900,\"maxLength\":999}", GS_OK},
        {"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"allOf\":[{\"$ref\":\"#/$defs/b\"},{\"$ref\":\"#/$defs/"
         "b\"}]},\"b\":"
         "{\"allOf\":[{\"$ref\":\"#/$defs/c\"},{\"$ref\":\"#/$defs/"
         "c\"}]},\"c\":{\"type\":\"array\",\"items\":"
         "{\"$ref\":\"#/$defs/a\"}}}}",
         GS_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        is_bounded(cases[i].text, cases[i].status);
}

static void large_schemas_are_bounded(void **state)
{
    (void)state;
    const struct {
        const char *start, *middle, *comma;
        size_t repeat;
        const char *end;
        gs_status status;
    } cases[] = {
        {"{\"enum\":[", "\"value %zu\"", ",", 2000, "]}", GS_OK},
        {"{\"enum\":[", "\"value number %zu of a long list\"", ",", 200000, "]}", GS_UNSUPPORTED},
        {"{\"properties\":{", "\"p%zu\":{\"type\":\"string\",\"maxLength\":%zu}", ",", 1000, "}}", GS_OK},
        {"{\"properties\":{", "\"p%zu\":{}", ",", 5001, "}}", GS_UNSUPPORTED},
        {"{\"properties\":{", "\"p%zu\":{\"pattern\":\"^[a-z]{%zu}$\"}", ",", 3000, "}}", GS_UNSUPPORTED},
        {"{\"anyOf\":[", "{\"required\":[\"p%zu\"],\"type\":\"object\"}", ",", 500, "]}", GS_OK},
        {"{\"anyOf\":[", "{\"const\":[%zu]}", ",", 600, "]}", GS_UNSUPPORTED},
        {"{\"allOf\":[", "{\"anyOf\":[{\"minimum\":%zu},{\"maxLength\":%zu}]}", ",", 60, "]}",
         GS_UNSUPPORTED},
        {"{\"oneOf\":[", "{\"properties\":{\"k\":{\"const\":%zu}},\"required\":[\"k\"],\"type\":\"object\"}",
         ",", 300, "]}", GS_OK},
        {"{\"patternProperties\":{", "\"^p%zu\":{\"type\":\"integer\"}", ",", 100, "}}", GS_OK},
        {"{\"enum\":[", "\"v%zu\"", ",", 20000, "]}", GS_OK},
        {"{\"oneOf\":[", "{}", ",", 300000, "]}", GS_UNSUPPORTED},
        {"{\"allOf\":[", "{\"minLength\":%zu}", ",", 8000, "]}", GS_UNSUPPORTED},
        {"{\"patternProperties\":{\"(?=a)\":{}},\"unevaluatedProperties\":false,\"anyOf\":[",
         "{\"properties\":{\"p%zu\":{\"x\":[{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}]}}}",
         ",", 500, "]}", GS_UNSUPPORTED},
        {"{\"prefixItems\":[", "{\"maxLength\":%zu}", ",", 5000, "]}", GS_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = repeated(cases[i].start, cases[i].middle, cases[i].comma, cases[i].repeat, cases[i].end);
        is_bounded(text, cases[i].status);
        free(text);
    }
}

/* Each definition refers to the next one twice: 2^40 ways to the last. */
static void doubled_references_are_bounded(void **state)
{
    (void)state;
    char text[4096];
    size_t at = (size_t)snprintf(text, sizeof text, "{\"$ref\":\"#/$defs/0\",\"$defs\":{");
    for (int i = 0; i < 40; i++)
        at += (size_t)snprintf(text + at, sizeof text - at,
                               "\"%d\":{\"allOf\":[{\"$ref\":\"#/$defs/%d\"},{\"$ref\":\"#/$defs/%d\"}]},", i,
                               i + 1, i + 1);
    snprintf(text + at, sizeof text - at, "\"40\":{}}}");
    is_bounded(text, GS_UNSUPPORTED);
}

/* Nested as deep as the loader lets a text be, in every keyword that nests. */
static void deep_schemas_are_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *open, *close;
        gs_status status;
    } cases[] = {
        {"{\"items\":", "}", GS_OK},
        {"{\"anyOf\":[", "]}", GS_UNSUPPORTED},
        {"{\"allOf\":[", "]}", GS_UNSUPPORTED},
        {"{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":", "}}", GS_UNSUPPORTED},
        {"{\"not\":", "}", GS_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = 500, open = strlen(cases[i].open), close = strlen(cases[i].close);
        char *text = malloc(n * (open + close) + 5);
        assert_non_null(text);
        for (size_t k = 0; k < n; k++) {
            memcpy(text + k * open, cases[i].open, open);
            memcpy(text + n * open + 4 + k * close, cases[i].close, close);
        }
        memcpy(text + n * open, "true", 4);
        text[n * (open + close) + 4] = '\0';
        is_bounded(text, cases[i].status);
        free(text);
    }
}

static void limits_hold_from_both_sides(void **state)
{
    (void)state;
    static const char text[] =
        "{\"type\":\"array\",\"items\":{\"type\":\"array\",\"minItems\":1,\"items\":{\"const\":\"abcdef\"}},"
        "\"minItems\":1}";
    struct gs_grammar *grammar;
    struct gs_error error;
    assert_ok(compile(text, NULL, &grammar, NULL, &error), &error);
    struct gs_grammar_size size = gs_grammar_size(grammar);
    gs_grammar_close(grammar);
    const struct gs_schema_limits enough = {
        .max_rules = size.n_rules, .max_work = size.n_work, .max_depth = 3};
    assert_ok(compile(text, &enough, &grammar, NULL, &error), &error);
    gs_grammar_close(grammar);
    const struct gs_schema_limits few[] = {
        {.max_rules = size.n_rules - 1}, {.max_work = size.n_work - 1}, {.max_states = 30}, {.max_depth = 2}};
    static const char *const messages[] = {"kinds of value", "too many steps",
                                           "const: too complex: its automaton has too many states",
                                           "nested at least 3"};
    for (size_t i = 0; i < 4; i++)
        assert_fails(compile(text, &few[i], &grammar, NULL, &error), GS_UNSUPPORTED, messages[i], &error);
}

/* What is generated is never nested deeper than the limit, and can still end there. */
static void depth_is_bounded(void **state)
{
    (void)state;
    static const char text[] = "{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}";
    const struct gs_schema_limits limits = {.max_depth = 5};
    struct gs_grammar *grammar;
    struct gs_error error;
    bool accepted;
    assert_ok(compile(text, &limits, &grammar, NULL, &error), &error);
    assert_ok(gs_grammar_accepts(grammar, "[[[[[],[]]]]]", 13, &accepted, &error), &error);
    assert_true(accepted);
    assert_ok(gs_grammar_accepts(grammar, "[[[[[[]]]]]]", 12, &accepted, &error), &error);
    assert_false(accepted);
    gs_grammar_close(grammar);
}

/* A key must come, and the values of some keys are too high for the room that is left: others are offered. */
static void a_key_that_must_come_has_room(void **state)
{
    (void)state;
    static const char text[] =
        "{\"type\":\"object\",\"minProperties\":1,\"additionalProperties\":false,\"patternProperties\":{"
        "\"^low\":{\"type\":\"null\"},\"^high\":{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":"
        "\"array\"}}}}";
    static const struct {
        size_t depth;
        const char *text;
        bool accepted;
    } cases[] = {{2, "{\"low\":null}", true},  {2, "{\"high\":[[]]}", false},
                 {3, "{\"low\":null}", true},  {2, "{\"low\":null,\"low2\":null}", false},
                 {3, "{\"high\":[[]]}", true}, {2, "{}", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct gs_schema_limits limits = {.max_depth = cases[i].depth};
        struct gs_grammar *grammar;
        struct gs_error error;
        bool accepted;
        assert_ok(compile(text, &limits, &grammar, NULL, &error), &error);
        assert_ok(gs_grammar_accepts(grammar, cases[i].text, strlen(cases[i].text), &accepted, &error),
                  &error);
        assert_int_equal(accepted, cases[i].accepted);
        gs_grammar_close(grammar);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_schemas_are_named),
        cmocka_unit_test(what_is_not_enforced_is_reported),
        cmocka_unit_test(blanks_are_few),
        cmocka_unit_test(strings_have_one_spelling),
        cmocka_unit_test(patterns_take_the_narrower_reading),
        cmocka_unit_test(large_numbers_are_exact),
        cmocka_unit_test(constants_satisfy_their_own_schema),
        cmocka_unit_test(hostile_schemas_are_bounded),
        cmocka_unit_test(large_schemas_are_bounded),
        cmocka_unit_test(doubled_references_are_bounded),
        cmocka_unit_test(deep_schemas_are_bounded),
        cmocka_unit_test(limits_hold_from_both_sides),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(a_key_that_must_come_has_room),
    };
    setrlimit(RLIMIT_CPU, &(struct rlimit){MAX_SECONDS, MAX_SECONDS});
    return cmocka_run_group_tests_name("chat/schema_compile", tests, NULL, NULL);
}
