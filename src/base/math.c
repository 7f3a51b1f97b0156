#include "base/math.h"

#include <stdint.h>
#include <string.h>

/* Adding and subtracting 1.5 * 2^52 rounds a double of magnitude below 2^51 to the nearest integer. */
#define ROUNDER 0x1.8p52

/* ln 2 and pi/2 as a sum: the first part has few enough bits that its product with the integer is exact. */
#define LN2_HIGH     0x1.62e42fef00000p-1
#define LN2_LOW      0x1.473de6af278edp-34
#define INV_LN2      0x1.71547652b82fep+0
#define HALF_PI_HIGH 0x1.921fb54400000p+0
#define HALF_PI_LOW  0x1.0b4611a626331p-34
#define INV_HALF_PI  0x1.45f306dc9c883p-1

static double double_from_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double round_to_integer(double x)
{
    return (x + ROUNDER) - ROUNDER;
}

/* 2^k for -1022 <= k <= 1023 */
static double power_of_two(int64_t k)
{
    return double_from_bits((uint64_t)(k + 1023) << 52);
}

double gs_exp64(double x)
{
    if (!(x > -745.2))
        return x != x ? x : 0.0;
    if (x > 709.79)
        return double_from_bits(0x7FF0000000000000u);
    double k = round_to_integer(x * INV_LN2);
    double r = (x - k * LN2_HIGH) - k * LN2_LOW; /* |r| <= ln 2 / 2 */

    /* Taylor's series; the first term left out is below 2^-57. */
    static const double inverse_factorial[] = {1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0,
                                               1.0 / 3628800.0,    1.0 / 362880.0,    1.0 / 40320.0,
                                               1.0 / 5040.0,       1.0 / 720.0,       1.0 / 120.0,
                                               1.0 / 24.0,         1.0 / 6.0,         0.5};
    double tail = inverse_factorial[0];
    for (int i = 1; i < 12; i++)
        tail = tail * r + inverse_factorial[i];
    double value = 1.0 + (r + r * r * tail);

    int64_t power = (int64_t)k; /* in two factors, since 2^power itself may be subnormal or too large */
    int64_t half = power / 2;
    return value * power_of_two(half) * power_of_two(power - half);
}

float gs_exp(float x)
{
    return (float)gs_exp64((double)x);
}

void gs_sincos(float x, float *sine, float *cosine)
{
    double k = round_to_integer((double)x * INV_HALF_PI);
    double r = ((double)x - k * HALF_PI_HIGH) - k * HALF_PI_LOW; /* |r| <= pi / 4 */
    double s = r * r;

    /* Taylor's series to r^17 and r^16 */
    static const double sine_terms[] = {
        1.0 / 355687428096000.0, -1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0,
        1.0 / 362880.0,          -1.0 / 5040.0,          1.0 / 120.0,        -1.0 / 6.0};
    static const double cosine_terms[] = {
        1.0 / 20922789888000.0, -1.0 / 87178291200.0, 1.0 / 479001600.0, -1.0 / 3628800.0,
        1.0 / 40320.0,          -1.0 / 720.0,         1.0 / 24.0,        -0.5};
    double sine_tail = sine_terms[0], cosine_tail = cosine_terms[0];
    for (int i = 1; i < 8; i++) {
        sine_tail = sine_tail * s + sine_terms[i];
        cosine_tail = cosine_tail * s + cosine_terms[i];
    }
    float sine_r = (float)(r + r * s * sine_tail);
    float cosine_r = (float)(1.0 + s * cosine_tail);

    switch ((int64_t)k & 3) {
    case 0:
        *sine = sine_r;
        *cosine = cosine_r;
        break;
    case 1:
        *sine = cosine_r;
        *cosine = -sine_r;
        break;
    case 2:
        *sine = -sine_r;
        *cosine = -cosine_r;
        break;
    default:
        *sine = -cosine_r;
        *cosine = sine_r;
        break;
    }
}

double gs_log64(double x)
{
    uint64_t bits;
    int64_t exponent = 0;
    if (x < 0x1p-1022) { /* subnormal: bring it into range */
        x *= 0x1p54;
        exponent = -54;
    }
    memcpy(&bits, &x, sizeof bits);
    exponent += (int64_t)(bits >> 52) - 1023;
    double m = double_from_bits((bits & 0x000FFFFFFFFFFFFFu) | 0x3FF0000000000000u); /* 1 <= m < 2 */
    if (m > 0x1.6a09e667f3bcdp+0) { /* the square root of 2: keeps |ln m| small */
        m *= 0.5;
        exponent++;
    }
    /* ln m = 2 artanh((m - 1) / (m + 1)) */
    double s = (m - 1.0) / (m + 1.0);
    double s2 = s * s;
    double tail = 1.0 / 25.0;
    for (int n = 23; n >= 3; n -= 2)
        tail = tail * s2 + 1.0 / (double)n;
    double ln_m = 2.0 * s + 2.0 * s * s2 * tail;
    double e = (double)exponent;
    return e * LN2_HIGH + (e * LN2_LOW + ln_m);
}
