/* Row by row: quantising, rounding, the norm and the activation, in loops that compilers vectorise. */
#include "backend/cpu/kernels/narrow.h"
#include "backend/cpu/kernels/variant.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Nearest even of |x| < 2^22: the magic constant leaves no room for a fraction. */
static inline int32_t round_even(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23 */
    return (int32_t)(gs_float_bits(x + magic) - 0x4B400000u);
}

/* Of 32 magnitudes, as bits: a NaN is the largest of all. */
static inline float largest_of(const float *x)
{
    uint32_t lanes[16];
    for (int i = 0; i < 16; i++) {
        uint32_t a = gs_float_bits(x[i]) & 0x7FFFFFFF, b = gs_float_bits(x[i + 16]) & 0x7FFFFFFF;
        lanes[i] = a > b ? a : b;
    }
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lanes[i] = lanes[i] > lanes[i + half] ? lanes[i] : lanes[i + half];
    return gs_bits_float(lanes[0]);
}

static void quantize_block(const float *x, enum gs_q8_order order, struct gs_q8_chunk *out, size_t block)
{
    float m = largest_of(x), inverse = 0.0f, scale = 0.0f;
    if (m >= 0x1p-100f && m <= FLT_MAX) { /* what is smaller is zero: its inverse could overflow */
        inverse = 127.0f / m;
        scale = m / 127.0f;
    } else if (!(m < 1.0f)) {
        scale = NAN; /* an infinity or a NaN shows in the logits */
    }
    int8_t q[32];
    int32_t sum = 0;
    for (int i = 0; i < 32; i++) {
        int32_t value = inverse > 0.0f ? round_even(x[i] * inverse) : 0;
        q[i] = (int8_t)value;
        sum += value;
    }
    int8_t *first = out->q + block * 16, *second = first + GS_Q8_CHUNK / 2;
    if (order == GS_Q8_PAIRS) {
        for (int i = 0; i < 16; i++) {
            first[i] = q[2 * i];
            second[i] = q[2 * i + 1];
        }
    } else {
        memcpy(first, q, 16);
        memcpy(second, q + 16, 16);
    }
    for (int i = 0; i < 4; i++) {
        out->scale[block * 4 + (size_t)i] = scale;
        out->sum[block * 4 + (size_t)i] = sum;
    }
}

void GS_VARIANT(gs_quantize_q8)(const float *x, size_t n, enum gs_q8_order order, struct gs_q8_chunk *out)
{
    size_t n_blocks = n / 32;
    for (size_t b = 0; b < n_blocks; b++) {
        if (b % 4 == 0 && b + 4 > n_blocks)
            memset(&out[b / 4], 0, sizeof *out);
        quantize_block(x + b * 32, order, &out[b / 4], b % 4);
    }
}

#define HALF_NAN 0x7E00

void GS_VARIANT(gs_quantize_q8_0)(const float *x, size_t n, uint8_t *blocks)
{
    for (size_t b = 0; b < n / 32; b++, x += 32, blocks += 34) {
        float m = largest_of(x);
        /* What a half cannot hold: weights are far from it; the largest is then kept as the largest half. An
         * infinity or a NaN shows in the logits. */
        uint16_t half = gs_float_half(m / 127.0f < 65504.0f ? m / 127.0f : 65504.0f);
        half = m <= FLT_MAX ? half : HALF_NAN;
        float scale = gs_half_float(half), inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
        int8_t q[32];
        for (int i = 0; i < 32; i++) {
            float value = x[i] * inverse;
            value = value > 127.0f ? 127.0f : value < -127.0f ? -127.0f : value;
            q[i] = (int8_t)round_even(value);
        }
        memcpy(blocks, &half, sizeof half);
        memcpy(blocks + 2, q, sizeof q);
    }
}

void GS_VARIANT(gs_round_bf16)(const float *x, size_t n, uint16_t *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = gs_float_bf16(x[i]);
}

void GS_VARIANT(gs_rms_norm)(const float *x, const float *w, size_t n, float eps, float *y)
{
    float sum;
    GS_VARIANT(gs_dot)(x, &x, 1, n, &sum);
    float scale = 1.0f / sqrtf(sum / (float)n + eps);
    for (size_t i = 0; i < n; i++)
        y[i] = w[i] * (x[i] * scale);
}

/* e^x for x <= 88, relative error below 2e-7; 0 below -87. Cephes' reduction, its polynomial of degree 5. */
static inline float fast_exp(float x)
{
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    int32_t n = round_even(x * 1.44269504f);
    float r = x - (float)n * 0.693359375f;
    r = r + (float)n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * gs_bits_float((uint32_t)(n + 127) << 23);
}

void GS_VARIANT(gs_swiglu)(const float *gate_up, size_t n, float limit, float alpha, float *out)
{
    for (size_t u = 0; u < n; u++) {
        float gate = gate_up[2 * u], up = gate_up[2 * u + 1];
        gate = gate > limit ? limit : gate;
        up = up > limit ? limit : up < -limit ? -limit : up;
        out[u] = (up + 1.0f) * (gate / (1.0f + fast_exp(-(gate * alpha))));
    }
}
