/* src/format/tensor.c: dtype names and widths, shapes as text. */
#include "files.h"

static void dtypes_have_names_and_bits(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned bits;
    } expected[] = {{"F4", 4},          {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"BOOL", 8},    {"U8", 8},
                    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
                    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
                    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
                    {"I64", 64},        {"U64", 64}};
    assert_int_equal(sizeof expected / sizeof expected[0], GS_DTYPE_COUNT);
    for (size_t i = 0; i < GS_DTYPE_COUNT; i++) {
        enum gs_dtype dtype;
        assert_true(gs_dtype_parse(expected[i].name, strlen(expected[i].name), &dtype));
        assert_string_equal(gs_dtype_name(dtype), expected[i].name);
        assert_int_equal(gs_dtype_bits(dtype), expected[i].bits);
        assert_false(gs_dtype_parse(expected[i].name, strlen(expected[i].name) - 1, &dtype) &&
                     strcmp(gs_dtype_name(dtype), expected[i].name) == 0);
    }
    static const char *const unknown[] = {"", "bf16", "BF1", "BF166", "F128", "F8", "Q8_0"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        enum gs_dtype dtype;
        assert_false(gs_dtype_parse(unknown[i], strlen(unknown[i]), &dtype));
    }
}

static void shapes_as_text(void **state)
{
    (void)state;
    const uint64_t shape[] = {32, 5760, 90, UINT64_MAX};
    struct gs_tensor tensor = {.rank = 4, .shape = shape};
    static const char whole[] = "[32, 5760, 90, 18446744073709551615]";
    char text[64];
    gs_tensor_shape_text(&tensor, text, sizeof text);
    assert_string_equal(text, whole);
    for (size_t size = 1; size <= sizeof whole; size++) {
        memset(text, 'x', sizeof text);
        gs_tensor_shape_text(&tensor, text, size);
        assert_int_equal(strlen(text), size - 1);
        assert_memory_equal(text, whole, size - 1);
        assert_int_equal(text[size], 'x');
    }
    gs_tensor_shape_text(&tensor, NULL, 0);
    tensor.rank = 0;
    gs_tensor_shape_text(&tensor, text, sizeof text);
    assert_string_equal(text, "[]");
    tensor.rank = 1;
    gs_tensor_shape_text(&tensor, text, sizeof text);
    assert_string_equal(text, "[32]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_have_names_and_bits),
        cmocka_unit_test(shapes_as_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
