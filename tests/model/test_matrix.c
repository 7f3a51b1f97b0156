/* Dense rows as float32: three types, odd lengths, odd addresses, every 16-bit pattern. */
#include "model/matrix.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void every_bf16(void **state)
{
    (void)state;
    uint16_t *stored = malloc(65536 * sizeof *stored);
    float *out = malloc(65536 * sizeof *out);
    for (unsigned i = 0; i < 65536; i++)
        stored[i] = (uint16_t)i;
    struct gs_matrix matrix = {(const unsigned char *)stored, GS_WEIGHT_BF16, 1, 65536, NULL};
    gs_matrix_row(&matrix, 0, out);
    for (unsigned i = 0; i < 65536; i++)
        assert_int_equal(bits_of(out[i]), i << 16);
    free(stored);
    free(out);
}

static void every_f16(void **state)
{
    (void)state;
    uint16_t *stored = malloc(65536 * sizeof *stored);
    float *out = malloc(65536 * sizeof *out);
    for (unsigned i = 0; i < 65536; i++)
        stored[i] = (uint16_t)i;
    struct gs_matrix matrix = {(const unsigned char *)stored, GS_WEIGHT_F16, 1, 65536, NULL};
    gs_matrix_row(&matrix, 0, out);
    for (unsigned i = 0; i < 65536; i++) {
        unsigned exponent = i >> 10 & 31;
        double fraction = (i & 1023) / 1024.0;
        double value = exponent == 0 ? ldexp(fraction, -14) : ldexp(1.0 + fraction, (int)exponent - 15);
        assert_int_equal(bits_of(out[i]) >> 31, i >> 15);
        if (exponent < 31)
            assert_true((double)fabsf(out[i]) == value);
        else if (fraction == 0.0)
            assert_true(isinf(out[i]));
        else
            assert_true(isnan(out[i]));
    }
    free(stored);
    free(out);
}

static void rows_of_any_length_at_any_address(void **state)
{
    (void)state;
    const enum gs_weight_type types[] = {GS_WEIGHT_F32, GS_WEIGHT_BF16, GS_WEIGHT_F16};
    unsigned char bytes[3 * 40 * 4 + 8];
    float out[41];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 37 % 120); /* no NaN in any type */
    for (size_t t = 0; t < 3; t++) {
        for (int64_t columns = 1; columns <= 40; columns++) {
            for (size_t shift = 0; shift < 4; shift++) {
                struct gs_matrix matrix = {bytes + shift, types[t], 3, columns, NULL};
                out[columns] = 5.0f;
                gs_matrix_row(&matrix, 2, out);
                assert_true(out[columns] == 5.0f);
                for (int64_t i = 0; i < columns; i++)
                    assert_int_equal(bits_of(out[i]), bits_of(gs_matrix_element(&matrix, 2, i)));
            }
        }
    }
    struct gs_matrix matrix = {bytes + 1, GS_WEIGHT_F32, 3, 7, NULL};
    float expected;
    memcpy(&expected, bytes + 1 + 4 * (2 * 7 + 3), sizeof expected);
    assert_int_equal(bits_of(gs_matrix_element(&matrix, 2, 3)), bits_of(expected));
}

static void sizes(void **state)
{
    (void)state;
    assert_int_equal(gs_weight_bytes(GS_WEIGHT_F32, 3), 12);
    assert_int_equal(gs_weight_bytes(GS_WEIGHT_BF16, 3), 6);
    assert_int_equal(gs_weight_bytes(GS_WEIGHT_F16, 3), 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bf16),
        cmocka_unit_test(every_f16),
        cmocka_unit_test(rows_of_any_length_at_any_address),
        cmocka_unit_test(sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
