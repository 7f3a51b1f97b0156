/* src/format/safetensors.c: every rule of the format by name, from both sides. */
#include "files.h"

#define E16 "{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0,16]}"

/* One header and data size; `rule` NULL: it loads, else a part of the message. */
struct rule_case {
    const char *header;
    size_t data_size;
    const char *rule;
};

static void check_bytes(const unsigned char *bytes, size_t size, const char *rule, const char *what)
{
    struct parsed parsed;
    parse_bytes(&parsed, bytes, size);
    if (!rule) {
        if (parsed.status != GS_OK)
            fail_msg("%s: %s", what, parsed.error.message);
    } else {
        if (parsed.status == GS_OK)
            fail_msg("%s: loads, expected \"%s\"", what, rule);
        assert_clean_failure(parsed.status, &parsed.error);
        assert_int_equal(parsed.status, GS_MALFORMED);
        assert_int_equal(strncmp(parsed.error.message, "f: ", 3), 0);
        if (!strstr(parsed.error.message, rule))
            fail_msg("%s: expected \"%s\" in \"%s\"", what, rule, parsed.error.message);
        assert_null(parsed.tensors.tensors);
    }
    gs_arena_free(&parsed.arena);
}

static void check_header(const char *header, size_t header_size, size_t data_size, const char *rule)
{
    size_t size;
    unsigned char *bytes = build_file(header, header_size, data_size, &size);
    check_bytes(bytes, size, rule, header);
    free(bytes);
}

static void check_cases(const struct rule_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        check_header(cases[i].header, strlen(cases[i].header), cases[i].data_size, cases[i].rule);
}

#define CHECK_CASES(cases) check_cases(cases, sizeof(cases) / sizeof(cases)[0])

static void views_are_right(void **state)
{
    (void)state;
    const char *header = "{\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[16,19]},"
                         "\"__metadata__\":{\"format\":\"pt\"},"
                         "\"a\\u00e9\":{\"data_offsets\":[0,16],\"shape\":[2,4],\"dtype\":\"BF16\"},"
                         "\"scalar\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[19,23]}}  ";
    size_t size;
    unsigned char *bytes = build_file(header, strlen(header), 23, &size);
    struct parsed parsed;
    parse_bytes(&parsed, bytes, size);
    assert_int_equal(parsed.status, GS_OK);
    assert_int_equal(parsed.tensors.count, 3);
    const struct gs_tensor *t = parsed.tensors.tensors;
    const unsigned char *data = bytes + 8 + strlen(header);
    assert_string_equal(t[0].name, "a\xC3\xA9");
    assert_int_equal(t[0].dtype, GS_DTYPE_BF16);
    assert_int_equal(t[0].rank, 2);
    assert_int_equal(t[0].shape[0], 2);
    assert_int_equal(t[0].shape[1], 4);
    assert_int_equal(t[0].bytes, 16);
    assert_ptr_equal(t[0].data, data);
    assert_ptr_equal(t[0].file, &parsed.map);
    assert_string_equal(t[1].name, "b");
    assert_ptr_equal(t[1].data, data + 16);
    assert_string_equal(t[2].name, "scalar");
    assert_int_equal(t[2].rank, 0);
    assert_int_equal(t[2].bytes, 4);
    assert_ptr_equal(t[2].data, data + 19);
    gs_arena_free(&parsed.arena);
    free(bytes);
}

static void files_without_a_header(void **state)
{
    (void)state;
    unsigned char bytes[10] = {0};
    check_bytes(NULL, 0, "no header", "empty");
    for (size_t size = 1; size <= 8; size++)
        check_bytes(bytes, size, "no header", "short");
    check_bytes(bytes, 9, "no header", "length 0");
    memset(bytes, 0xFF, 8);
    check_bytes(bytes, 8, "no header", "8 bytes");
    check_bytes(bytes, 10, "header too large", "length ff");
    memset(bytes, 0, 8);
    bytes[0] = 3;
    check_bytes(bytes, 10, "truncated header", "length 3 of 2");
    bytes[0] = 2;
    bytes[8] = '{';
    bytes[9] = '}';
    check_bytes(bytes, 10, NULL, "{}");
    bytes[7] = 0x80;
    check_bytes(bytes, 10, "header too large", "length 2^63+2");
    check_header("\xff", 1, 0, "not UTF-8");
    check_header("{\"\xed\xa0\x80\":1}", 9, 0, "not UTF-8");
    check_header("{\"\xc0\xaf\":1}", 8, 0, "not UTF-8");
    check_header("[]", 2, 0, "must begin with '{'");
    check_header(" {}", 3, 0, "must begin with '{'");
    check_header("\xEF\xBB\xBF{}", 5, 0, "must begin with '{'");
    check_header("null", 4, 0, "must begin with '{'");
}

/* A header of exactly the largest size loads, one byte more does not: both are all blanks after "{}". */
static void header_size_bound(void **state)
{
    (void)state;
    size_t size = 8 + (size_t)GS_SAFETENSORS_MAX_HEADER + 1;
    unsigned char *bytes = malloc(size);
    assert_non_null(bytes);
    memset(bytes, ' ', size);
    for (unsigned extra = 0; extra < 2; extra++) {
        uint64_t length = GS_SAFETENSORS_MAX_HEADER + extra;
        for (unsigned i = 0; i < 8; i++)
            bytes[i] = (unsigned char)(length >> (8 * i));
        memcpy(bytes + 8, "{}", 2);
        check_bytes(bytes, 8 + (size_t)length, extra ? "header too large" : NULL, "bound");
    }
    free(bytes);
}

static void well_formed_headers(void **state)
{
    (void)state;
    static const struct rule_case cases[] = {
        {"{}", 0, NULL},
        {"{} \t\r\n ", 0, NULL},
        {"{\"__metadata__\":{}}", 0, NULL},
        {"{\"__metadata__\":{\"a\":\"\",\"\":\"b\",\"a\\u0000\":\"c\"}}", 0, NULL},
        {"{\"test\":" E16 "}", 16, NULL},
        {"{ \"test\" : " E16 " } ", 16, NULL},
        {"{\"\":" E16 "}", 16, NULL},
        {"{\"__metadata\":" E16 "}", 16, NULL},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, NULL},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, NULL},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0,18446744073709551615],\"data_offsets\":[0,0]}}", 0, NULL},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[18446744073709551615,0],\"data_offsets\":[0,0]}}", 0, NULL},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,"
         "2]}}",
         2, NULL},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1, NULL},
        {"{\"a\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[0,3]}}", 3, NULL},
        {"{\"a\":{\"dtype\":\"F6_E3M2\",\"shape\":[2,2],\"data_offsets\":[0,3]}}", 3, NULL},
        {"{\"z\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[16,16]},\"test\":" E16 "}", 16, NULL},
        {"{\"y\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},\"test\":" E16
         ",\"x\":{\"dtype\":\"F64\",\"shape\":[7,0],\"data_offsets\":[0,0]}}",
         16, NULL},
    };
    CHECK_CASES(cases);
}

static void broken_json(void **state)
{
    (void)state;
    static const struct rule_case cases[] = {
        {"{", 0, "header, byte"},
        {"{\"test\":" E16, 16, "header, byte"},
        {"{\"test\":" E16 "}}", 16, "after the end"},
        {"{\"test\":" E16 "}{}", 16, "after the end"},
        {"{\"test\":" E16 "} x", 16, "after the end"},
        {"{\"test\":" E16 ",}", 16, "key"},
        {"{test:" E16 "}", 16, "key"},
        {"{'test':" E16 "}", 16, "key"},
        {"{\"te\tst\":" E16 "}", 16, "control character"},
        {"{\"\\ud800\":" E16 "}", 16, "surrogate"},
        {"{\"\\udc00\\ud800\":" E16 "}", 16, "surrogate"},
        {"{\"\\q\":" E16 "}", 16, "escape"},
        {"{/**/}", 0, "key"},
        {"{\"test\":NaN}", 0, "value"},
        {"{\"test\" " E16 "}", 16, "':'"},
    };
    CHECK_CASES(cases);
    check_header("{}\0\0\0\0\0\0", 8, 0, "after the end");
}

static void broken_entries(void **state)
{
    (void)state;
    static const struct rule_case cases[] = {
        {"{\"a\":1}", 0, "a: bad entry"},
        {"{\"a\":null}", 0, "a: bad entry"},
        {"{\"a\":[]}", 0, "a: bad entry"},
        {"{\"a\":{}}", 0, "a: missing key: the entry has no dtype"},
        {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,0]}}", 0, "a: missing key: the entry has no shape"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0]}}", 0, "a: missing key: the entry has no data_offsets"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0],\"x\":1}}", 0, "a: unknown key: x"},
        {"{\"a\":{\"DTYPE\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "a: unknown key: DTYPE"},
        {"{\"a\":{\"dtype\":\"u8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "a: unknown dtype: u8"},
        {"{\"a\":{\"dtype\":\"U8 \",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "a: unknown dtype"},
        {"{\"a\":{\"dtype\":\"\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "a: unknown dtype"},
        {"{\"a\":{\"dtype\":8,\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "a: bad dtype: 8"},
        {"{\"a\":{\"dtype\":null,\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "a: bad dtype: null"},
        {"{\"a\":{\"dtype\":[[[[[[[[\"U8\"]]]]]]]],\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
         "a: bad dtype"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":0,\"data_offsets\":[0,0]}}", 0, "a: bad shape"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":{},\"data_offsets\":[0,0]}}", 0, "a: bad shape"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[[0]],\"data_offsets\":[0,0]}}", 0, "a: bad dimension"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":0}}", 0, "a: bad data_offsets"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[]}}", 0, "a: bad data_offsets: 0 of them"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0]}}", 0,
         "a: bad data_offsets: 1 of them"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0,0]}}", 0, "a: bad data_offsets: more"},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, "a: partial byte"},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, "a: partial byte"},
        {"{\"a\":{\"dtype\":\"F6_E2M3\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, "a: partial byte"},
        {"{\"a\\u0000b\":" E16 "}", 16, "a\\x00b; a tensor's name must not hold a NUL"},
        {"{\"__metadata__\":1}", 0, "__metadata__: bad value"},
        {"{\"__metadata__\":null}", 0, "__metadata__: bad value"},
        {"{\"__metadata__\":[]}", 0, "__metadata__: bad value"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__: bad value: a is 1"},
        {"{\"__metadata__\":{\"a\":null}}", 0, "__metadata__: bad value: a is null"},
        {"{\"__metadata__\":{\"a\":{}}}", 0, "__metadata__: bad value: a is an object"},
        {"{\"__metadata__\":{\"a\":\"b\",\"c\":[\"d\"]}}", 0, "__metadata__: bad value: c is an array"},
        {"{\"__metadata__\":" E16 "}", 16, "__metadata__: bad value: shape is an array"},
        {"{\"a\\u001b[31m\":1}", 0, "a\\x1B[31m: bad entry"},
    };
    CHECK_CASES(cases);
}

/* Each bad number as first and second dimension, and as each offset. */
static void numbers_are_u64_digits(void **state)
{
    (void)state;
    static const char *const bad[] = {"-1",    "-0",
                                      "0.0",   "1.0",
                                      "1e3",   "0e0",
                                      "1E0",   "true",
                                      "false", "null",
                                      "\"0\"", "{}",
                                      "[0]",   "18446744073709551616",
                                      "1e400", "-1e-1",
                                      "1.5",   "99999999999999999999999999999999999999999"};
    static const char *const ill[] = {"00", "01", "+1", "0x1", "1_0", ".5", "1.", "NaN", "Infinity", "- 1"};
    static const char *const places[][2] = {
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[%s,0],\"data_offsets\":[0,0]}}", "a: bad dimension"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0,%s],\"data_offsets\":[0,0]}}", "a: bad dimension"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[%s,0]}}", "a: bad offset"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,%s]}}", "a: bad offset"},
    };
    for (size_t place = 0; place < 4; place++) {
        char header[256];
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(header, sizeof header, places[place][0], bad[i]);
            check_header(header, strlen(header), 0, places[place][1]);
        }
        for (size_t i = 0; i < sizeof ill / sizeof ill[0]; i++) {
            snprintf(header, sizeof header, places[place][0], ill[i]);
#pragma GCC diagnostic pop
            check_header(header, strlen(header), 0, "");
        }
    }
}

static void sizes_are_checked(void **state)
{
    (void)state;
    static const struct rule_case cases[] = {
        {"{\"test\":{\"dtype\":\"I32\",\"shape\":[2,18446744073709551614],\"data_offsets\":[0,16]}}", 16,
         "test: overflow"},
        {"{\"a\":{\"dtype\":\"I32\",\"shape\":[4398046511105,4398046511104],\"data_offsets\":[0,16]}}", 16,
         "a: overflow"},
        {"{\"a\":{\"dtype\":\"I32\",\"shape\":[4398046511105],\"data_offsets\":[0,16]}}", 16,
         "a: size mismatch"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[18446744073709551615],\"data_offsets\":[0,16]}}", 16,
         "a: overflow"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2305843009213693951],\"data_offsets\":[0,16]}}", 16,
         "a: size mismatch"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2305843009213693952],\"data_offsets\":[0,16]}}", 16,
         "a: overflow"},
        {"{\"a\":{\"dtype\":\"I32\",\"shape\":[576460752303423488],\"data_offsets\":[0,16]}}", 16,
         "a: overflow"},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[4611686018427387904],\"data_offsets\":[0,16]}}", 16,
         "a: overflow"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[18446744073709551615,2,0],\"data_offsets\":[0,0]}}", 0,
         "a: overflow"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0,18446744073709551615,2],\"data_offsets\":[0,0]}}", 0, NULL},
        {"{\"test\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0,4]}}", 16, "test: size mismatch"},
        {"{\"test\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0,15]}}", 15, "test: size mismatch"},
        {"{\"test\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0,17]}}", 17, "test: size mismatch"},
        {"{\"test\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[16,0]}}", 16,
         "test: reversed offsets"},
        {"{\"test\":{\"dtype\":\"I32\",\"shape\":[0],\"data_offsets\":[1,0]}}", 1, "test: reversed offsets"},
        {"{\"test\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[18446744073709551600,0]}}", 16,
         "test: reversed offsets"},
        {"{\"test\":{\"dtype\":\"U8\",\"shape\":[15],\"data_offsets\":[18446744073709551600,"
         "18446744073709551615]}}",
         15, "test: hole"},
        {"{\"test\":" E16 "}", 17, "trailing data"},
        {"{\"test\":" E16 "}", 15, "test: truncated"},
        {"{\"test\":" E16 "}", 14, "test: truncated"},
        {"{\"test\":" E16 "}", 0, "test: truncated"},
        {"{\"test\":{\"dtype\":\"U8\",\"shape\":[1073741824],\"data_offsets\":[0,1073741824]}}", 100,
         "test: truncated"},
        {"{}", 1, "trailing data"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 1, "trailing data"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]}}", 1, "a: hole"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[17,17]},\"test\":" E16 "}", 16, "a: hole"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[8,8]},\"test\":" E16 "}", 16,
         "a: overlap"},
    };
    CHECK_CASES(cases);
}

/* Three tensors of 4 bytes, in every order of their entries: tiled, overlapping, with a hole. */
static void tiling_in_every_order(void **state)
{
    (void)state;
    static const unsigned orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static const struct {
        unsigned begin[3];
        size_t data_size;
        const char *rule;
    } tilings[] = {
        {{0, 4, 8}, 12, NULL},           {{0, 4, 8}, 13, "trailing data"}, {{0, 4, 8}, 11, "t2: truncated"},
        {{0, 3, 7}, 11, "t1: overlap"},  {{0, 4, 7}, 11, "t2: overlap"},   {{0, 0, 4}, 8, ": overlap"},
        {{0, 4, 4}, 8, ": overlap"},     {{1, 5, 9}, 13, "t0: hole"},      {{0, 5, 9}, 13, "t1: hole"},
        {{0, 4, 9}, 13, "t2: hole"},     {{0, 8, 12}, 16, "t1: hole"},     {{0, 0, 0}, 4, ": overlap"},
        {{0, 4, 8}, 0, "t0: truncated"}, {{0, 4, 8}, 4, "t1: truncated"},
    };
    for (size_t i = 0; i < sizeof tilings / sizeof tilings[0]; i++) {
        for (size_t order = 0; order < 6; order++) {
            char header[400] = "{";
            for (unsigned k = 0; k < 3; k++) {
                unsigned t = orders[order][k], begin = tilings[i].begin[t];
                size_t used = strlen(header);
                snprintf(header + used, sizeof header - used,
                         "%s\"t%u\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%u,%u]}", k ? "," : "",
                         t, begin, begin + 4);
            }
            strcat(header, "}");
            check_header(header, strlen(header), tilings[i].data_size, tilings[i].rule);
        }
    }
}

static void duplicates_at_every_level(void **state)
{
    (void)state;
    static const struct rule_case cases[] = {
        {"{\"test\":" E16 ",\"test\":" E16 "}", 16, "test: duplicate key"},
        {"{\"test\":" E16 ",\"te\\u0073t\":" E16 "}", 16, "test: duplicate key"},
        {"{\"test\":" E16 ",\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},\"test\":" E16 "}",
         16, "test: duplicate key"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "duplicate key: __metadata__"},
        {"{\"__metadata__\":{},\"__metad\\u0061ta__\":{}}", 0, "duplicate key: __metadata__"},
        {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"1\"}}", 0, "__metadata__: duplicate key: k"},
        {"{\"__metadata__\":{\"k\":\"1\",\"j\":\"\",\"\\u006b\":\"2\"}}", 0,
         "__metadata__: duplicate key: k"},
        {"{\"__metadata__\":{\"\":\"1\",\"\":\"1\"}}", 0, "__metadata__: duplicate key"},
        {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
         "a: duplicate key: dtype"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
         "a: duplicate key: shape"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0],\"data_offsets\":[0,0]}}", 0,
         "a: duplicate key: data_offsets"},
        {"{\"k\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},\"__metadata__\":{\"k\":\"\"}}", 0,
         NULL},
    };
    CHECK_CASES(cases);
}

/* Names and metadata of 65,536 bytes load, of 65,537 do not; escapes count as what they stand for. */
static void string_length_bound(void **state)
{
    (void)state;
    static const char *const forms[][2] = {
        {"{\"", "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}"},
        {"{\"__metadata__\":{\"", "\":\"\"}}"},
        {"{\"__metadata__\":{\"a\":\"", "\"}}"},
    };
    for (size_t form = 0; form < 3; form++) {
        for (size_t extra = 0; extra < 2; extra++) {
            for (size_t escaped = 0; escaped < 2; escaped++) {
                size_t length = GS_SAFETENSORS_MAX_STRING + extra;
                char *header = malloc(length + 200);
                assert_non_null(header);
                char *at = stpcpy(header, forms[form][0]);
                at = stpcpy(at, escaped ? "\\u0041" : "A");
                memset(at, 'n', length - 1);
                strcpy(at + length - 1, forms[form][1]);
                check_header(header, strlen(header), 0, extra ? "over 65536 bytes" : NULL);
                free(header);
            }
        }
    }
}

/* The deepest legal header has three levels, so the ninth can be met only where a rule has failed before. */
static void deep_headers_are_refused(void **state)
{
    (void)state;
    char *header = malloc(400000);
    assert_non_null(header);
    for (size_t levels = 1; levels < 100000; levels = levels < 12 ? levels + 1 : levels * 10) {
        char *at = stpcpy(header, "{\"a\":");
        memset(at, '[', levels);
        check_header(header, strlen("{\"a\":") + levels, 0, "a: bad entry");
        at = header;
        for (size_t i = 0; i < levels && i < 60000; i++)
            at = stpcpy(at, "{\"\":");
        check_header(header, (size_t)(at - header), 0, "");
    }
    free(header);
}

/* Sorting, not hashing, finds duplicates: a hundred thousand tensors in well under a second. */
static void many_tensors(void **state)
{
    (void)state;
    const size_t count = 100000;
    char *header = malloc(count * 80);
    assert_non_null(header);
    char *at = header;
    *at++ = '{';
    for (size_t i = 0; i < count; i++)
        at += sprintf(at, "%s\"%zu\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}",
                      i ? "," : "", i * 7919 % count, i, i + 1);
    *at++ = '}';
    *at = '\0';
    check_header(header, (size_t)(at - header), count, NULL);
    free(header);
}

static void mistaken_files_are_named(void **state)
{
    (void)state;
    static const char *const files[][2] = {
        {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS pointer"},
        {"GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "GGUF"},
        {"<!DOCTYPE html><html></html>", "web page"},
        {"PK\3\4aaaaaaaaaaaaaaaaaaaaaaaa", "PyTorch"},
    };
    for (size_t i = 0; i < 4; i++)
        check_bytes((const unsigned char *)files[i][0], 24, files[i][1], files[i][0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_are_right),
        cmocka_unit_test(files_without_a_header),
        cmocka_unit_test(header_size_bound),
        cmocka_unit_test(well_formed_headers),
        cmocka_unit_test(broken_json),
        cmocka_unit_test(broken_entries),
        cmocka_unit_test(numbers_are_u64_digits),
        cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(tiling_in_every_order),
        cmocka_unit_test(duplicates_at_every_level),
        cmocka_unit_test(string_length_bound),
        cmocka_unit_test(deep_headers_are_refused),
        cmocka_unit_test(many_tensors),
        cmocka_unit_test(mistaken_files_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
