/* Which bytes are there: pieces, and their state on disk, which is believed only where it can be true. */
#include "hub/ranges.h"
#include "tests/support/check.h"
#include "tests/support/files.h"

#include <stdio.h>
#include <stdlib.h>

static struct gs_error error;

static void tiles_the_file(void **state)
{
    static const struct {
        uint64_t size, piece;
        size_t count;
    } cases[] = {{1, 10, 1},  {9, 10, 1},    {10, 10, 1},         {11, 10, 2},
                 {20, 10, 2}, {100, 1, 100}, {1u << 20, 1, 4081}, {UINT64_C(1) << 50, 32u << 20, 4096}};
    struct gs_ranges ranges = {0};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_ok(gs_ranges_init(&ranges, cases[i].size, cases[i].piece, &error), &error);
        assert_true(ranges.count <= 4096);
        if (cases[i].count < 4000)
            assert_int_equal(ranges.count, cases[i].count);
        uint64_t at = 0;
        for (size_t k = 0; k < ranges.count; k++) {
            assert_true(ranges.pieces[k].begin == at && ranges.pieces[k].end > at);
            at = ranges.pieces[k].end;
        }
        assert_true(at == cases[i].size);
    }
    gs_ranges_free(&ranges);
}

static void gives_out_pieces(void **state)
{
    struct gs_ranges ranges = {0};
    (void)state;
    assert_ok(gs_ranges_init(&ranges, 25, 10, &error), &error);
    assert_ptr_equal(gs_ranges_next(&ranges), &ranges.pieces[0]);
    ranges.pieces[0].busy = true;
    assert_ptr_equal(gs_ranges_next(&ranges), &ranges.pieces[1]);
    ranges.pieces[1].done = 10;
    ranges.pieces[2].done = 4;
    assert_ptr_equal(gs_ranges_next(&ranges), &ranges.pieces[2]);
    ranges.pieces[2].done = 5;
    assert_null(gs_ranges_next(&ranges));
    assert_int_equal(gs_ranges_done(&ranges), 15);
    gs_ranges_free(&ranges);
}

static void survives_on_disk(void **state)
{
    char *folder = test_folder_make();
    struct test_path path = test_path_join(folder, "state");
    struct gs_ranges a = {0}, b = {0};
    (void)state;
    assert_ok(gs_ranges_init(&a, 95, 10, &error), &error);
    static const uint64_t done[] = {10, 10, 3, 0, 10, 10, 10, 0, 1, 5};
    for (size_t i = 0; i < 10; i++)
        a.pieces[i].done = done[i];
    assert_ok(gs_ranges_save(&a, path.text, &error), &error);
    char *text = test_file_read(path.text, NULL);
    assert_string_equal(text, "ranges 1 of 95\n0 23\n40 70\n80 81\n90 95\n");
    free(text);
    assert_ok(gs_ranges_init(&b, 95, 10, &error), &error);
    assert_ok(gs_ranges_load(&b, path.text, 95, &error), &error);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(b.pieces[i].done, done[i]);
    assert_ok(gs_ranges_init(&b, 95, 20, &error), &error); /* other pieces: what fits */
    assert_ok(gs_ranges_load(&b, path.text, 95, &error), &error);
    static const uint64_t fits[] = {20, 3, 20, 10, 1};
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(b.pieces[i].done, fits[i]);
    gs_ranges_free(&a);
    gs_ranges_free(&b);
    test_folder_remove(folder);
}

static void believes_no_damaged_state(void **state)
{
    static const char *const texts[] = {
        "",
        "ranges 1 of 96\n0 10\n",
        "ranges 2 of 95\n0 10\n",
        "ranges 1 of 95\n0 96\n",
        "ranges 1 of 95\n0 51\n", /* beyond what is there */
        "ranges 1 of 95\n10 0\n",
        "ranges 1 of 95\n0 10\n5 15\n",
        "ranges 1 of 95\n0 10",
        "ranges 1 of 95\n0 10\nx",
        "ranges 1 of 95\n-1 10\n",
        "ranges 1 of 95\n0  10\n",
        "ranges 1 of 95\n0 99999999999999999999999\n",
    };
    char *folder = test_folder_make();
    struct test_path path = test_path_join(folder, "state");
    struct gs_ranges ranges = {0};
    (void)state;
    assert_ok(gs_ranges_init(&ranges, 95, 10, &error), &error);
    assert_ok(gs_ranges_load(&ranges, path.text, 50, &error), &error); /* missing */
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        test_file_write(path.text, texts[i], strlen(texts[i]));
        assert_ok(gs_ranges_load(&ranges, path.text, 50, &error), &error);
        if (gs_ranges_done(&ranges) != 0)
            fail_msg("believes \"%s\"", texts[i]);
    }
    test_file_write(path.text, "ranges 1 of 95\n0 50\n", 20);
    assert_ok(gs_ranges_load(&ranges, path.text, 50, &error), &error);
    assert_int_equal(gs_ranges_done(&ranges), 50);
    gs_ranges_free(&ranges);
    test_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_the_file),
        cmocka_unit_test(gives_out_pieces),
        cmocka_unit_test(survives_on_disk),
        cmocka_unit_test(believes_no_damaged_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
