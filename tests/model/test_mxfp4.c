/* MXFP4: every code and scale, the nibble order, group boundaries. */
#include "model/mxfp4.h"
#include "tests/support/check.h"

#include <math.h>

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void assert_same_bits(float value, float expected)
{
    assert_int_equal(bits_of(value), bits_of(expected));
}

static void scales_are_powers_of_two(void **state)
{
    (void)state;
    for (int scale = 0; scale < 255; scale++)
        assert_same_bits(gs_mxfp4_scale((uint8_t)scale), (float)ldexp(1.0, scale - 127));
    assert_same_bits(gs_mxfp4_scale(0), 5.877471754111438e-39f);
    assert_same_bits(gs_mxfp4_scale(126), 0.5f);
    assert_same_bits(gs_mxfp4_scale(254), 1.7014118346046923e+38f);
}

/* The value of a code by the definition of E2M1: sign, two exponent bits of bias 1, one mantissa bit. */
static double value_of_code(unsigned code)
{
    unsigned exponent = code >> 1 & 3;
    unsigned mantissa = code & 1;
    double magnitude = exponent == 0 ? 0.5 * mantissa : ldexp(1.0 + 0.5 * mantissa, (int)exponent - 1);
    return code & 8 ? -magnitude : magnitude;
}

static void every_code_with_every_scale(void **state)
{
    (void)state;
    for (unsigned scale = 0; scale < 255; scale++) {
        for (unsigned code = 0; code < 16; code++) {
            uint8_t blocks[16];
            uint8_t scales[1] = {(uint8_t)scale};
            float out[32];
            memset(blocks, (int)(code | (15 - code) << 4), sizeof blocks);
            gs_mxfp4_dequantize(blocks, scales, 32, out);
            float expected = (float)value_of_code(code) * (float)ldexp(1.0, (int)scale - 127);
            for (int i = 0; i < 32; i += 2)
                assert_same_bits(out[i], expected);
            if (scale <= 252) {
                assert_true((double)out[0] == ldexp(value_of_code(code), (int)scale - 127));
                assert_true(isfinite(out[0]));
            }
        }
    }
}

static void worked_examples(void **state)
{
    (void)state;
    const uint8_t mixed[16] = {0xc5, 0xd7, 0x14, 0x84, 0xf8, 0xcf, 0x9b, 0xf4,
                               0xb7, 0x6f, 0x47, 0x90, 0x47, 0x30, 0x80, 0x4b};
    const float mixed_values[32] = {3.0f,  -2.0f, 6.0f,  -3.0f, 2.0f,  0.5f,  2.0f,  -0.0f,
                                    -0.0f, -6.0f, -6.0f, -2.0f, -1.5f, -0.5f, 2.0f,  -6.0f,
                                    6.0f,  -1.5f, -6.0f, 4.0f,  6.0f,  2.0f,  0.0f,  -0.5f,
                                    6.0f,  2.0f,  0.0f,  1.5f,  0.0f,  -0.0f, -1.5f, 2.0f};
    const uint8_t counting[16] = {0x21, 0x43, 0x65, 0x87, 0xA9, 0xCB, 0xED, 0x0F};
    const float counting_values[32] = {1.0f,  2.0f,  3.0f,  4.0f,  6.0f,  8.0f,  12.0f,  -0.0f,
                                       -1.0f, -2.0f, -3.0f, -4.0f, -6.0f, -8.0f, -12.0f, 0.0f};
    uint8_t blocks[32];
    const uint8_t scales[2] = {127, 128};
    float out[65];
    memcpy(blocks, mixed, 16);
    memcpy(blocks + 16, counting, 16);
    out[64] = 77.0f;
    gs_mxfp4_dequantize(blocks, scales, 64, out);
    for (int i = 0; i < 32; i++) {
        assert_same_bits(out[i], mixed_values[i]);
        assert_same_bits(out[32 + i], counting_values[i]);
    }
    assert_true(out[64] == 77.0f);
}

/* A block of GGUF's form has the same values in the form of safetensors. */
static void a_block_is_parted(void **state)
{
    (void)state;
    uint8_t block[GS_MXFP4_BLOCK_BYTES] = {130}, codes[GS_MXFP4_GROUP_BYTES], scale = 0;
    float expected[GS_MXFP4_GROUP], found[GS_MXFP4_GROUP];
    for (int k = 0; k < GS_MXFP4_GROUP_BYTES; k++)
        block[1 + k] = (uint8_t)(k * 29 + 7);
    gs_mxfp4_part_gguf(block, codes, &scale);
    assert_int_equal(scale, 130);
    gs_mxfp4_dequantize_gguf(block, GS_MXFP4_GROUP, expected);
    gs_mxfp4_dequantize(codes, &scale, GS_MXFP4_GROUP, found);
    for (int i = 0; i < GS_MXFP4_GROUP; i++)
        assert_same_bits(found[i], expected[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales_are_powers_of_two),
        cmocka_unit_test(every_code_with_every_scale),
        cmocka_unit_test(worked_examples),
        cmocka_unit_test(a_block_is_parted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
