/*
 * YaRN frequencies and angles against tests/data/model/rope.json: float64 values, and what torch's float32
 * evaluation gives on a CPU.
 */
#include "model/yarn.h"
#include "tests/support/check.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

static struct gs_config published(void)
{
    struct gs_config config = {.d_head = 64,
                               .rope_theta = 150000.0,
                               .rope_factor = 32.0,
                               .rope_beta_fast = 32.0,
                               .rope_beta_slow = 1.0,
                               .rope_original_ctx = 4096.0};
    return config;
}

static float float_of_hex(const json_t *text)
{
    uint32_t bits = (uint32_t)strtoul(json_string_value(text), NULL, 16);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static int32_t ulps_between(float a, float b)
{
    int32_t left, right; /* of positive numbers, whose bits are in their order */
    memcpy(&left, &a, sizeof left);
    memcpy(&right, &b, sizeof right);
    return left - right;
}

static uint32_t bf16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

static json_t *load_rope(void)
{
    json_error_t problem;
    json_t *rope = json_load_file("tests/data/model/rope.json", 0, &problem);
    assert_non_null(rope);
    return rope;
}

static void frequencies(void **state)
{
    (void)state;
    struct gs_config config = published();
    struct gs_yarn yarn;
    json_t *rope = load_rope();
    gs_yarn_init(&config, &yarn);
    assert_int_equal(yarn.n_freq, 32);
    size_t j;
    json_t *entry;
    json_array_foreach(json_object_get(rope, "inv_freq"), j, entry)
    {
        float torch = float_of_hex(json_object_get(entry, "f32_hex"));
        float rounded = (float)json_number_value(json_object_get(entry, "f64"));
        assert_in_range(ulps_between(yarn.inv_freq[j], rounded) + 1, 0, 2);
        assert_in_range(ulps_between(yarn.inv_freq[j], torch) + 1, 0, 2);
    }
    assert_int_equal(j, 32);
    json_t *scaling = json_object_get(rope, "attention_scaling");
    assert_true(yarn.attention_scaling == float_of_hex(json_object_get(scaling, "f32_hex")));
    json_decref(rope);
}

static void angles(void **state)
{
    (void)state;
    struct gs_config config = published();
    struct gs_yarn yarn;
    float cosine[32], sine[32];
    json_t *rope = load_rope();
    gs_yarn_init(&config, &yarn);
    /* Torch's frequencies: one ulp in a frequency shifts large angles by more than any tolerance. */
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(rope, "inv_freq"), i, entry)
    {
        yarn.inv_freq[i] = float_of_hex(json_object_get(entry, "f32_hex"));
    }
    json_array_foreach(json_object_get(rope, "angles"), i, entry)
    {
        int64_t position = json_integer_value(json_object_get(entry, "pos"));
        size_t j = (size_t)json_integer_value(json_object_get(entry, "j"));
        gs_yarn_angles(&yarn, position, cosine, sine);
        double cos_a = json_number_value(json_object_get(entry, "cos_a"));
        double sin_a = json_number_value(json_object_get(entry, "sin_a"));
        assert_true(fabs((double)cosine[j] - cos_a) <= 1.2e-7 * 1.3466 + 1e-7 * fabs(cos_a));
        assert_true(fabs((double)sine[j] - sin_a) <= 1.2e-7 * 1.3466 + 1e-7 * fabs(sin_a));
        assert_int_equal(bf16_of(cosine[j]),
                         strtoul(json_string_value(json_object_get(entry, "cos_bf16")), NULL, 16));
        assert_int_equal(bf16_of(sine[j]),
                         strtoul(json_string_value(json_object_get(entry, "sin_bf16")), NULL, 16));
    }
    assert_int_equal(i, 58);
    json_decref(rope);
}

/* The rounded bounds give other frequencies inside the ramp only (R93's values). */
static void truncation(void **state)
{
    (void)state;
    struct gs_config config = published();
    struct gs_yarn exact, rounded;
    gs_yarn_init(&config, &exact);
    config.rope_truncate = true;
    gs_yarn_init(&config, &rounded);
    const double expected[] = {3.1620752e-02, 1.9450968e-02, 1.1792191e-02, 7.0157139e-03, 4.0695547e-03,
                               2.2772719e-03, 1.2061310e-03, 5.8094750e-04, 2.2794780e-04};
    for (int j = 0; j < 32; j++) {
        if (j < 9 || j > 17)
            assert_true(exact.inv_freq[j] == rounded.inv_freq[j]);
        else
            assert_true(fabs((double)rounded.inv_freq[j] / expected[j - 9] - 1.0) < 2.5e-7); /* two ulp */
    }
}

static void factor_one_is_plain(void **state)
{
    (void)state;
    struct gs_config config = published();
    struct gs_yarn yarn;
    float cosine[256], sine[256];
    config.rope_factor = 1.0;
    for (int64_t d_head = 2; d_head <= 512; d_head *= 2) {
        config.d_head = d_head;
        gs_yarn_init(&config, &yarn);
        assert_int_equal(yarn.n_freq, d_head / 2);
        assert_true(yarn.attention_scaling == 1.0f);
        for (int64_t j = 0; j < d_head / 2; j++)
            assert_in_range(
                ulps_between(yarn.inv_freq[j], (float)pow(150000.0, (double)(-2 * j) / (double)d_head)) + 1,
                0, 2);
        gs_yarn_angles(&yarn, 1, cosine, sine);
        assert_true(fabs((double)cosine[0] - cos(1.0)) < 1e-7);
        assert_true(fabs((double)sine[0] - sin(1.0)) < 1e-7);
    }
}

/* Bounds that meet or cross (small heads, short contexts) must give finite frequencies, none above 1. */
static void odd_configurations(void **state)
{
    (void)state;
    const int64_t heads[] = {2, 4, 6, 34, 510, 512};
    const double contexts[] = {1.0, 6.0, 64.0, 1048576.0};
    const double thetas[] = {2.0, 10000.0, 1e12};
    for (size_t h = 0; h < 6; h++) {
        for (size_t c = 0; c < 4; c++) {
            for (size_t t = 0; t < 3; t++) {
                struct gs_config config = published();
                struct gs_yarn yarn;
                config.d_head = heads[h];
                config.rope_original_ctx = contexts[c];
                config.rope_theta = thetas[t];
                for (int truncate = 0; truncate < 2; truncate++) {
                    config.rope_truncate = truncate;
                    gs_yarn_init(&config, &yarn);
                    for (int64_t j = 0; j < yarn.n_freq; j++)
                        assert_true(yarn.inv_freq[j] > 0.0f && yarn.inv_freq[j] <= 1.0f);
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies),        cmocka_unit_test(angles),
        cmocka_unit_test(truncation),         cmocka_unit_test(factor_one_is_plain),
        cmocka_unit_test(odd_configurations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
