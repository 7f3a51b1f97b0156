/* src/base/json_reader.c: events, syntax from both sides, limits, and jansson as a second opinion. */
#include "base/json_reader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STRING 1000

/* Appends one event as text: { } [ ] k:... s:... n:... true false null, each followed by a blank. */
static void print_event(struct gs_buffer *out, enum gs_json_event event, const struct gs_json_reader *reader)
{
    static const char *const plain[] = {
        [GS_JSON_OBJECT_BEGIN] = "{", [GS_JSON_OBJECT_END] = "}", [GS_JSON_ARRAY_BEGIN] = "[",
        [GS_JSON_ARRAY_END] = "]",    [GS_JSON_KEY] = "k:",       [GS_JSON_STRING] = "s:",
        [GS_JSON_NUMBER] = "n:",      [GS_JSON_TRUE] = "true",    [GS_JSON_FALSE] = "false",
        [GS_JSON_NULL] = "null",      [GS_JSON_END] = "end"};
    assert_int_equal(gs_buffer_append_text(out, plain[event], NULL), GS_OK);
    if (event == GS_JSON_KEY || event == GS_JSON_STRING || event == GS_JSON_NUMBER)
        assert_int_equal(gs_buffer_append(out, reader->string, reader->string_size, NULL), GS_OK);
    assert_int_equal(gs_buffer_append_text(out, " ", NULL), GS_OK);
}

/* All events of a copy of exactly this size into `out` (may be NULL). */
static gs_status read_all(const char *text, size_t size, unsigned max_depth, size_t max_string,
                          struct gs_buffer *out, struct gs_error *error)
{
    char *copy = malloc(size > 0 ? size : 1);
    assert_non_null(copy);
    memcpy(copy, text, size);
    struct gs_json_reader reader;
    enum gs_json_event event = GS_JSON_NULL;
    gs_status status = GS_OK;
    size_t n_event = 0;
    gs_json_reader_init(&reader, copy, size, max_depth, max_string);
    while (status == GS_OK && event != GS_JSON_END) {
        status = gs_json_next(&reader, &event, error);
        assert_true(++n_event <= 2 * size + 2); /* it always gets further */
        if (status == GS_OK && out)
            print_event(out, event, &reader);
    }
    if (status == GS_OK) {
        assert_int_equal(gs_json_next(&reader, &event, error), GS_OK); /* the end stays the end */
        assert_int_equal(event, GS_JSON_END);
        assert_int_equal(reader.depth, 0);
    }
    gs_json_reader_free(&reader);
    free(copy);
    return status;
}

static void expect_events(const char *text, const char *events)
{
    struct gs_buffer out = {0};
    struct gs_error error;
    if (read_all(text, strlen(text), GS_JSON_MAX_DEPTH, MAX_STRING, &out, &error) != GS_OK)
        fail_msg("%s: %s", text, error.message);
    assert_string_equal(out.data, events);
    gs_buffer_free(&out);
}

static void expect_error(const char *text, size_t size, const char *part)
{
    struct gs_error error;
    gs_status status = read_all(text, size, GS_JSON_MAX_DEPTH, MAX_STRING, NULL, &error);
    if (status == GS_OK)
        fail_msg("%s: is accepted, expected \"%s\"", text, part);
    assert_int_equal(status, GS_MALFORMED);
    assert_int_equal(error.code, GS_MALFORMED);
    assert_int_equal(strncmp(error.message, "byte ", 5), 0);
    if (!strstr(error.message, part))
        fail_msg("%s: expected \"%s\" in \"%s\"", text, part, error.message);
}

static void events(void **state)
{
    (void)state;
    expect_events("{}", "{ } end ");
    expect_events(" [ ] \t\r\n", "[ ] end ");
    expect_events("[1,[],{},\"\",null,true,false]", "[ n:1 [ ] { } s: null true false ] end ");
    expect_events("{\"a\":{\"b\":[1,2]},\"c\":\"d\"}", "{ k:a { k:b [ n:1 n:2 ] } k:c s:d } end ");
    expect_events("{\"a\" : 1 , \"a\":2}", "{ k:a n:1 k:a n:2 } end ");
    expect_events("\"x\"", "s:x end ");
    expect_events("-0.5e+10", "n:-0.5e+10 end ");
    expect_events("null", "null end ");
    expect_events("\"a\\\"\\\\\\/\\b\\f\\n\\r\\tz\"", "s:a\"\\/\b\f\n\r\tz end ");
    expect_events("\"\\u0041\\u00e9\\u6A21\\uD83D\\uDE00\"", "s:A\xC3\xA9\xE6\xA8\xA1\xF0\x9F\x98\x80 end ");
    expect_events("\"\\uFFFF\\uD800\\uDC00\\uDBFF\\uDFFF\"",
                  "s:\xEF\xBF\xBF\xF0\x90\x80\x80\xF4\x8F\xBF\xBF end ");
    expect_events("{\"\\u006b\":\"\\u006b\",\"k\":\"k\"}", "{ k:k s:k k:k s:k } end ");
    expect_events("\"\x7F\xC2\x80 plain\"", "s:\x7F\xC2\x80 plain end ");
}

static void nul_in_a_string(void **state)
{
    (void)state;
    struct gs_json_reader reader;
    enum gs_json_event event;
    const char *text = "[\"a\\u0000b\"]";
    gs_json_reader_init(&reader, text, strlen(text), 2, 3);
    assert_int_equal(gs_json_next(&reader, &event, NULL), GS_OK);
    assert_int_equal(gs_json_next(&reader, &event, NULL), GS_OK);
    assert_int_equal(reader.string_size, 3);
    assert_memory_equal(reader.string, "a\0b", 3);
    assert_false(gs_json_is(&reader, "a"));
    gs_json_reader_free(&reader);
    gs_json_reader_free(NULL);
    expect_error("\0", 1, "value");
    expect_error("{}\0", 3, "after the end");
    expect_error("\"a\0\"", 4, "control character");
    expect_error("\"\\\0\"", 4, "escape");
    expect_error("[1\0]", 4, "expected ','");
}

/* Texts, and what is said of them. */
static const char *const malformed_cases[][2] = {
    {"", "ends too early"},
    {" ", "ends too early"},
    {"{", "ends too early"},
    {"[", "ends too early"},
    {"[1", "ends too early"},
    {"[1,", "ends too early"},
    {"{\"a\"", "':'"},
    {"{\"a\":", "ends too early"},
    {"{\"a\":1", "ends too early"},
    {"{\"a\":1,", "ends too early"},
    {"\"a", "inside a string"},
    {"\"a\\", "escape"},
    {"\"a\\\"", "inside a string"},
    {"[1 2]", "',' or ']'"},
    {"[1}", "',' or ']'"},
    {"{\"a\":1]", "',' or '}'"},
    {"{\"a\":1 \"b\":2}", "',' or '}'"},
    {"[}", "value"},
    {"{]", "key"},
    {"]", "value"},
    {"}", "value"},
    {",", "value"},
    {":", "value"},
    {"[,]", "value"},
    {"[1,]", "value"},
    {"[1,,2]", "value"},
    {"{,}", "key"},
    {"{\"a\":1,}", "key"},
    {"{\"a\"}", "':'"},
    {"{\"a\",1}", "':'"},
    {"{\"a\"::1}", "value"},
    {"{\"a\":}", "value"},
    {"{1:2}", "key"},
    {"{a:1}", "key"},
    {"{'a':1}", "key"},
    {"{null:1}", "key"},
    {"[\"a\":1]", "',' or ']'"},
    {"1 2", "after the end"},
    {"{}{}", "after the end"},
    {"[]]", "after the end"},
    {"\"a\"\"b\"", "after the end"},
    {"null,", "after the end"},
    {"nul", "value"},
    {"nulll", "after the end"},
    {"tru", "value"},
    {"True", "value"},
    {"fals", "value"},
    {"NaN", "value"},
    {"Infinity", "value"},
    {"-Infinity", "number"},
    {"undefined", "value"},
    {"-", "number"},
    {"--1", "number"},
    {"+1", "value"},
    {"01", "number"},
    {"-01", "number"},
    {"00", "number"},
    {"1.", "number"},
    {".1", "value"},
    {"1.e1", "number"},
    {"1e", "number"},
    {"1e+", "number"},
    {"1E-", "number"},
    {"1e1.5", "after the end"},
    {"0x1", "after the end"},
    {"1_0", "after the end"},
    {"1a", "after the end"},
    {"- 1", "number"},
    {"\"\\x\"", "escape"},
    {"\"\\u\"", "hexadecimal"},
    {"\"\\u00\"", "hexadecimal"},
    {"\"\\u00g0\"", "hexadecimal"},
    {"\"\\U0041\"", "escape"},
    {"\"\\u+041\"", "hexadecimal"},
    {"\"\\u004", "hexadecimal"},
    {"\"\\ud800\"", "surrogate"},
    {"\"\\udc00\"", "surrogate"},
    {"\"\\ud800\\n\"", "surrogate"},
    {"\"\\ud800\\u0041\"", "surrogate"},
    {"\"\\ud800\\ud800\\udc00\"", "surrogate"},
    {"\"\\ud800\\udbff\"", "surrogate"},
    {"\"\\ud800\\ue000\"", "surrogate"},
    {"\"\\ud800\\udc0\"", "surrogate"},
    {"\"\\ud800x\"", "surrogate"},
    {"\"\n\"", "control character"},
    {"\"\t\"", "control character"},
    {"\"\x1F\"", "control character"},
    {"\"\x80\"", "UTF-8"},
    {"\"\xC3\"", "UTF-8"},
    {"\"\xC3", "UTF-8"},
    {"\"\xC0\xAF\"", "UTF-8"},
    {"\"\xED\xA0\x80\"", "UTF-8"},
    {"\"\xF4\x90\x80\x80\"", "UTF-8"},
    {"\"\\n\xFF\"", "UTF-8"},
    {"{\"\xFF\":1}", "UTF-8"},
    {"\xEF\xBB\xBF{}", "value"},
    {"\xC2\xA0{}", "value"},
    {"\f{}", "value"},
    {"\v{}", "value"},
    {"/**/{}", "value"},
    {"{}//", "after the end"},
};

static void malformed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof malformed_cases / sizeof malformed_cases[0]; i++)
        expect_error(malformed_cases[i][0], strlen(malformed_cases[i][0]), malformed_cases[i][1]);
}

static void depth_bound(void **state)
{
    (void)state;
    static const struct {
        const char *open, *close;
    } kinds[] = {{"[", "]"}, {"{\"a\":", "}"}};
    for (unsigned max = 0; max <= GS_JSON_MAX_DEPTH + 3; max++) {
        unsigned allowed = max < GS_JSON_MAX_DEPTH ? max : GS_JSON_MAX_DEPTH;
        for (size_t kind = 0; kind < 2; kind++) {
            for (unsigned levels = allowed; levels <= allowed + 1; levels++) {
                struct gs_buffer text = {0};
                struct gs_error error;
                for (unsigned i = 0; i < levels; i++)
                    gs_buffer_append_text(&text, kinds[kind].open, NULL);
                gs_buffer_append_text(&text, "1", NULL);
                for (unsigned i = 0; i < levels; i++)
                    gs_buffer_append_text(&text, kinds[kind].close, NULL);
                gs_status status = read_all(text.data, text.size, max, MAX_STRING, NULL, &error);
                assert_int_equal(status, levels > allowed ? GS_MALFORMED : GS_OK);
                if (status != GS_OK)
                    assert_non_null(strstr(error.message, "nested deeper"));
                gs_buffer_free(&text);
            }
        }
    }
}

/* The bound counts decoded bytes, whether plain, escaped or several bytes a character. */
static void string_bound(void **state)
{
    (void)state;
    static const char *const units[] = {"a", "\\n", "\\u0041", "\xC3\xA9", "\\u00e9", "\\ud83d\\ude00"};
    static const size_t bytes[] = {1, 1, 1, 2, 2, 4};
    for (size_t unit = 0; unit < 6; unit++) {
        for (size_t extra = 0; extra < 2; extra++) {
            for (size_t key = 0; key < 2; key++) {
                struct gs_buffer text = {0};
                struct gs_error error;
                gs_buffer_append_text(&text, key ? "{\"" : "[\"", NULL);
                for (size_t i = 0; i < 3 + extra; i++)
                    gs_buffer_append_text(&text, units[unit], NULL);
                gs_buffer_append_text(&text, key ? "\":1}" : "\"]", NULL);
                assert_int_equal(read_all(text.data, text.size, 1, 3 * bytes[unit], NULL, &error),
                                 extra ? GS_MALFORMED : GS_OK);
                gs_buffer_free(&text);
            }
        }
    }
}

static void u64_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok;
        uint64_t value;
    } cases[] = {
        {"0", true, 0},
        {"7", true, 7},
        {"9007199254740993", true, 9007199254740993u},
        {"18446744073709551615", true, UINT64_MAX},
        {"18446744073709551616", false, 0},
        {"18446744073709551620", false, 0},
        {"28446744073709551615", false, 0},
        {"184467440737095516150", false, 0},
        {"99999999999999999999999999999999999999", false, 0},
        {"-0", false, 0},
        {"-1", false, 0},
        {"1.0", false, 0},
        {"0.0", false, 0},
        {"1e0", false, 0},
        {"1E3", false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gs_json_reader reader;
        enum gs_json_event event;
        uint64_t value = 1;
        gs_json_reader_init(&reader, cases[i].text, strlen(cases[i].text), 0, 0);
        assert_int_equal(gs_json_next(&reader, &event, NULL), GS_OK);
        assert_int_equal(event, GS_JSON_NUMBER);
        assert_int_equal(gs_json_u64(&reader, &value), cases[i].ok);
        assert_true(!cases[i].ok || value == cases[i].value);
        gs_json_reader_free(&reader);
    }
}

static void skips_values(void **state)
{
    (void)state;
    const char *text = "{\"a\":{\"x\":[1,{\"y\":[]}],\"z\":null},\"b\":7,\"c\":[],\"d\":[\"p\",[[2]],\"q\"]}";
    struct gs_json_reader reader;
    enum gs_json_event event;
    gs_json_reader_init(&reader, text, strlen(text), 8, MAX_STRING);
    assert_int_equal(gs_json_next(&reader, &event, NULL), GS_OK);
    static const char *const keys[] = {"a", "b", "c", "d"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(gs_json_next(&reader, &event, NULL), GS_OK);
        assert_int_equal(event, GS_JSON_KEY);
        assert_true(gs_json_is(&reader, keys[i]));
        assert_false(gs_json_is(&reader, ""));
        if (i < 3)
            assert_int_equal(gs_json_skip(&reader, NULL), GS_OK);
    }
    assert_int_equal(gs_json_next(&reader, &event, NULL), GS_OK);
    assert_int_equal(event, GS_JSON_ARRAY_BEGIN);
    assert_int_equal(gs_json_skip(&reader, NULL), GS_OK);
    assert_int_equal(gs_json_skip(&reader, NULL), GS_OK);
    assert_int_equal(gs_json_next(&reader, &event, NULL), GS_OK);
    assert_int_equal(event, GS_JSON_STRING);
    assert_true(gs_json_is(&reader, "q"));
    assert_int_equal(gs_json_next(&reader, &event, NULL), GS_OK);
    assert_int_equal(event, GS_JSON_ARRAY_END);
    gs_json_reader_free(&reader);

    static const char *const broken[] = {"[[1,]", "[{\"a\" 1}]", "[\"\\ud800\"]", "[[[[[[[[[[1]]]]]]]]]]",
                                         "["};
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        gs_json_reader_init(&reader, broken[i], strlen(broken[i]), 8, MAX_STRING);
        assert_int_equal(gs_json_next(&reader, &event, NULL), GS_OK);
        assert_int_equal(gs_json_skip(&reader, NULL), GS_MALFORMED);
        gs_json_reader_free(&reader);
    }
}

/* ---------------------------------------------------------------- a second opinion */

/* The events of a jansson value, as print_event writes them, but numbers as "n". */
static void print_value(struct gs_buffer *out, json_t *value)
{
    const char *key;
    json_t *item;
    size_t i;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        gs_buffer_append_text(out, "{ ", NULL);
        json_object_foreach(value, key, item)
        {
            gs_buffer_print(out, NULL, "k:%s ", key);
            print_value(out, item);
        }
        gs_buffer_append_text(out, "} ", NULL);
        break;
    case JSON_ARRAY:
        gs_buffer_append_text(out, "[ ", NULL);
        json_array_foreach(value, i, item) print_value(out, item);
        gs_buffer_append_text(out, "] ", NULL);
        break;
    case JSON_STRING:
        gs_buffer_append_text(out, "s:", NULL);
        gs_buffer_append(out, json_string_value(value), json_string_length(value), NULL);
        gs_buffer_append_text(out, " ", NULL);
        break;
    case JSON_INTEGER:
    case JSON_REAL:
        gs_buffer_append_text(out, "n ", NULL);
        break;
    default:
        gs_buffer_append_text(out,
                              json_is_true(value)    ? "true "
                              : json_is_false(value) ? "false "
                                                     : "null ",
                              NULL);
    }
}

/* Numbers shortened to "n", so that their spelling does not matter. */
static gs_status read_shortened(const char *text, size_t size, struct gs_buffer *out)
{
    struct gs_json_reader reader;
    enum gs_json_event event = GS_JSON_NULL;
    gs_status status = GS_OK;
    gs_json_reader_init(&reader, text, size, GS_JSON_MAX_DEPTH, MAX_STRING);
    while (status == GS_OK && event != GS_JSON_END) {
        status = gs_json_next(&reader, &event, NULL);
        if (status == GS_OK && event == GS_JSON_NUMBER)
            gs_buffer_append_text(out, "n ", NULL);
        else if (status == GS_OK && event != GS_JSON_END)
            print_event(out, event, &reader);
    }
    gs_json_reader_free(&reader);
    return status;
}

/* What only one of the two knows: double keys, NULs in keys, numbers beyond a double. */
static bool is_own_rule(enum json_error_code code)
{
    return code == json_error_duplicate_key || code == json_error_null_byte_in_key ||
           code == json_error_numeric_overflow;
}

/* Returns whether both accepted. A plain NUL is never JSON, but jansson passes over one after a number. */
static bool compare_with_jansson(const char *text, size_t size)
{
    struct gs_buffer ours = {0}, theirs = {0};
    json_error_t why;
    json_t *root =
        json_loadb(text, size,
                   JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL | JSON_REJECT_DUPLICATES, &why);
    gs_status status = read_shortened(text, size, &ours);
    if (memchr(text, '\0', size)) {
        assert_int_equal(status, GS_MALFORMED);
        json_decref(root);
        root = NULL;
    } else if (root && status == GS_OK) {
        print_value(&theirs, root);
        assert_int_equal(ours.size, theirs.size);
        assert_memory_equal(ours.data, theirs.data, ours.size);
    } else if (root || (status == GS_OK && !is_own_rule(json_error_code(&why)))) {
        fail_msg("\"%.*s\": jansson %s it, gossamer does not agree", (int)size, text,
                 root ? "accepts" : "refuses");
    }
    bool both = root != NULL;
    json_decref(root);
    gs_buffer_free(&ours);
    gs_buffer_free(&theirs);
    return both;
}

static const char all_kinds[] = "{\"a\":[1,-2.5e3,true,false,null,\"x\\u00e9\\n\\ud83d\\ude00\"],"
                                "\"b\":{\"c\":{},\"d\":[[],[0]]},\"e\":\"\xE6\xA8\xA1\"}";

static const char *const samples[] = {
    all_kinds,
    "[0,1,10,-0,0.5,1e5,1E-7,1.25e+2]",
    " { \"test\" : { \"dtype\" : \"I32\" , \"shape\" : [ 2 , 2 ] , \"data_offsets\" : [ 0 , 16 ] } } ",
    "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\"",
};

static void every_changed_byte_as_jansson(void **state)
{
    (void)state;
    size_t n_accepted = 0;
    for (size_t sample = 0; sample < sizeof samples / sizeof samples[0]; sample++) {
        size_t size = strlen(samples[sample]);
        char *text = malloc(size);
        assert_non_null(text);
        memcpy(text, samples[sample], size);
        assert_true(compare_with_jansson(text, size));
        for (size_t at = 0; at < size; at++) {
            for (unsigned value = 0; value < 256; value++) {
                text[at] = (char)value;
                n_accepted += compare_with_jansson(text, size);
            }
            text[at] = samples[sample][at];
            compare_with_jansson(text, at); /* and every truncation */
        }
        free(text);
    }
    assert_true(n_accepted > 1000);
}

static void random_tokens_as_jansson(void **state)
{
    (void)state;
    static const char *const tokens[] = {
        "{",    "}",     "[",       "]",       ",",        ":",    "\"a\":", "\"b\"", "1",
        "null", "true",  " ",       "-",       "0",        "\"",   "\\",     "e5",    ".5",
        "\\n",  "\\u00", "\\ud83d", "\\ude00", "\xC3\xA9", "\x80", "\n",     "false", "1"};
    uint64_t seed = 3;
    size_t n_accepted = 0;
    for (unsigned round = 0; round < 300000; round++) {
        char text[200] = "";
        size_t count = 1 + round % 9;
        for (size_t i = 0; i < count; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            strcat(text, tokens[(seed >> 33) % (sizeof tokens / sizeof tokens[0])]);
        }
        n_accepted += compare_with_jansson(text, strlen(text));
    }
    assert_true(n_accepted > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events),
        cmocka_unit_test(nul_in_a_string),
        cmocka_unit_test(malformed),
        cmocka_unit_test(depth_bound),
        cmocka_unit_test(string_bound),
        cmocka_unit_test(u64_numbers),
        cmocka_unit_test(skips_values),
        cmocka_unit_test(every_changed_byte_as_jansson),
        cmocka_unit_test(random_tokens_as_jansson),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
