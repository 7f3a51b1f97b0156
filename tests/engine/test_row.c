/* Rows many values at a time, against one value at a time: the same bits, whatever the length and the mask.
 */
#include "engine/row.h"

#include "base/math.h"
#include "tests/support/check.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#define MOST 700

static uint32_t next(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

struct row {
    float logits[MOST];
    uint64_t allowed[MOST / 64 + 1];
    size_t n;
    bool masked;
};

static bool is_allowed(const struct row *row, size_t i)
{
    return !row->masked || (row->allowed[i / 64] >> (i % 64) & 1) != 0;
}

/* Logits of all sizes and with equals; masks that are empty, full or mixed in their words. */
static void make_row(struct row *row, uint32_t *seed)
{
    static const float spreads[] = {0x1p-24f, 0x1p-21f, 0x1p-17f, 0x1p-12f};
    float spread = spreads[next(seed) % 4];
    row->n = 1 + next(seed) % MOST;
    row->masked = next(seed) % 3 > 0;
    for (size_t i = 0; i < row->n; i++)
        row->logits[i] = (float)((int32_t)next(seed) - (1 << 23)) * spread;
    if (next(seed) % 2)
        for (size_t i = 0; i < row->n; i++)
            row->logits[i] = roundf(row->logits[i]);
    for (size_t word = 0; word < sizeof row->allowed / sizeof *row->allowed; word++) {
        uint64_t some = (uint64_t)next(seed) << 40 ^ (uint64_t)next(seed) << 20 ^ next(seed);
        uint32_t kind = next(seed) % 4;
        row->allowed[word] = kind == 0   ? 0
                             : kind == 1 ? ~UINT64_C(0)
                             : kind == 2 ? some
                                         : some & some >> 7 & some >> 13;
    }
}

static void weights_are_those_of_one_value(void **state)
{
    (void)state;
    static double weights[MOST], sums[MOST / GS_ROW_BLOCK + 1];
    static const double temperatures[] = {1.0, 0.7, 0.01, 2.0};
    struct row row;
    uint32_t seed = 1;
    for (int round = 0; round < 600; round++) {
        make_row(&row, &seed);
        const uint64_t *allowed = row.masked ? row.allowed : NULL;
        double temperature = temperatures[round % 4], total = 0.0;
        int32_t best;
        assert_true(gs_row_best(row.logits, row.n, allowed, &best));
        int32_t expected = -1;
        for (size_t i = 0; i < row.n; i++)
            if (is_allowed(&row, i) && (expected < 0 || row.logits[i] > row.logits[expected]))
                expected = (int32_t)i;
        assert_int_equal(best, expected);
        if (best < 0)
            continue;
        double largest = (double)row.logits[best];
        double found = gs_row_weights(row.logits, row.n, allowed, largest, temperature, weights, sums);
        for (size_t i = 0; i < row.n; i++) {
            double one =
                is_allowed(&row, i) ? gs_exp64(((double)row.logits[i] - largest) / temperature) : 0.0;
            assert_memory_equal(&weights[i], &one, sizeof one);
            total += one;
        }
        assert_true(fabs(found - total) <= (double)row.n * DBL_EPSILON * total);
        double of_blocks = 0.0;
        for (size_t i = 0; i < row.n; i += GS_ROW_BLOCK)
            of_blocks += sums[i / GS_ROW_BLOCK];
        assert_true(of_blocks == found);
    }
}

static void what_is_not_finite_is_found(void **state)
{
    (void)state;
    static const float wrong[] = {NAN, INFINITY, -INFINITY};
    struct row row;
    uint32_t seed = 2;
    int32_t best;
    for (int round = 0; round < 300; round++) {
        make_row(&row, &seed);
        row.logits[next(&seed) % row.n] = wrong[round % 3];
        assert_false(gs_row_best(row.logits, row.n, row.masked ? row.allowed : NULL, &best));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_those_of_one_value),
        cmocka_unit_test(what_is_not_finite_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
