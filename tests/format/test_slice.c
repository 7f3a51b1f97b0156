/* src/format/slice.c: ranges of one entry, and indices that are none. */
#include "format/slice.h"
#include "tests/support/check.h"

static const unsigned char bytes[100];
static const struct gs_file_map file = {
    .path = (char *)(uintptr_t) "shard", .data = bytes, .size = sizeof bytes};

static struct gs_tensor tensor_of(const uint64_t *shape, size_t rank, uint64_t size)
{
    return (struct gs_tensor){.name = "blocks",
                              .dtype = GS_DTYPE_U8,
                              .rank = rank,
                              .shape = shape,
                              .data = bytes + 20,
                              .bytes = size,
                              .file = &file};
}

static void entries_lie_side_by_side(void **state)
{
    (void)state;
    static const uint64_t shape[] = {5, 3, 4};
    struct gs_tensor tensor = tensor_of(shape, 3, 60);
    struct gs_error error;
    for (int64_t i = 0; i < 5; i++) {
        struct gs_slice slice;
        assert_ok(gs_slice_entry(&tensor, i, &slice, &error), &error);
        assert_ptr_equal(slice.data, bytes + 20 + 12 * i);
        assert_int_equal(slice.bytes, 12);
        assert_int_equal(slice.offset, 20 + 12 * i);
        assert_ptr_equal(slice.file, &file);
    }
}

static void other_entries_are_refused(void **state)
{
    (void)state;
    static const uint64_t shape[] = {5, 12}, none[] = {0, 12};
    struct gs_tensor tensor = tensor_of(shape, 2, 60);
    struct gs_slice slice;
    struct gs_error error;
    static const char part[] = "there are 0 to 4";
    assert_fails(gs_slice_entry(&tensor, 5, &slice, &error), GS_INVALID_ARGUMENT, part, &error);
    assert_fails(gs_slice_entry(&tensor, -1, &slice, &error), GS_INVALID_ARGUMENT, part, &error);
    assert_fails(gs_slice_entry(&tensor, INT64_MAX, &slice, &error), GS_INVALID_ARGUMENT, part, &error);
    assert_null(slice.data);
    tensor = tensor_of(none, 2, 0);
    assert_fails(gs_slice_entry(&tensor, 0, &slice, &error), GS_INVALID_ARGUMENT, "no entries", &error);
    tensor = tensor_of(NULL, 0, 1);
    assert_fails(gs_slice_entry(&tensor, 0, &slice, &error), GS_INVALID_ARGUMENT, "no entries", &error);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_lie_side_by_side),
        cmocka_unit_test(other_entries_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
