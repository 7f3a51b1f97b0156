/* The elementary functions against the C library's, over their whole ranges. */
#include "base/math.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Distance in representable floats. */
static int64_t ulps(float a, float b)
{
    int32_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    int64_t ordered_x = x < 0 ? INT32_MIN - (int64_t)x : x;
    int64_t ordered_y = y < 0 ? INT32_MIN - (int64_t)y : y;
    return llabs(ordered_x - ordered_y);
}

static double relative(double a, double b)
{
    return b == 0 ? fabs(a) : fabs(a - b) / fabs(b);
}

static void exp_is_right(void **state)
{
    (void)state;
    for (double x = -110; x < 95; x += 0.000731) {
        assert_true(ulps(gs_exp((float)x), (float)exp((double)(float)x)) <= 1);
        if (x > -100)
            assert_true(relative(gs_exp64(x), exp(x)) < 4e-16);
    }
    assert_true(gs_exp(0.0f) == 1.0f);
    assert_true(gs_exp(-1e30f) == 0.0f);
    assert_true(isinf(gs_exp(89.0f)));
    assert_true(isinf(gs_exp(INFINITY)));
    assert_true(gs_exp(-INFINITY) == 0.0f);
    assert_true(isnan(gs_exp(NAN)));
    assert_true(gs_exp(-103.9f) > 0.0f); /* the smallest subnormal */
}

static void sine_and_cosine_are_right(void **state)
{
    (void)state;
    for (double x = -200000; x < 200000; x += 0.3719) {
        float sine, cosine;
        gs_sincos((float)x, &sine, &cosine);
        assert_true(ulps(sine, (float)sin((double)(float)x)) <= 1);
        assert_true(ulps(cosine, (float)cos((double)(float)x)) <= 1);
    }
    for (double x = 1e-9; x < 10; x *= 1.0001) {
        float sine, cosine;
        gs_sincos((float)x, &sine, &cosine);
        assert_true(ulps(sine, (float)sin((double)(float)x)) <= 1);
        assert_true(ulps(cosine, (float)cos((double)(float)x)) <= 1);
    }
}

static void logarithm_is_right(void **state)
{
    (void)state;
    for (double x = 1e-310; x < 1e300; x *= 1.0137)
        assert_true(fabs(gs_log64(x) - log(x)) <= 4.5e-16 * fabs(log(x)));
    for (double x = 0.5; x < 2; x += 0.0001)
        assert_true(fabs(gs_log64(x) - log(x)) <= 4.5e-16 * fabs(log(x)));
    assert_true(gs_log64(1.0) == 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_right),
        cmocka_unit_test(sine_and_cosine_are_right),
        cmocka_unit_test(logarithm_is_right),
    };
    return cmocka_run_group_tests_name("base/math", tests, NULL, NULL);
}
