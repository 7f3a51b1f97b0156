/* Reading weights of any type, eight elements of a row at a time. */
#ifndef GS_BACKEND_GPU_SIMPLE_CUH
#define GS_BACKEND_GPU_SIMPLE_CUH

#include "backend/gpu/gpu.h"
#include "backend/gpu/simple.h"

struct gs_u32x4 {
    uint32_t x, y, z, w;
} __attribute__((aligned(16)));

/* 2^k for -1022 <= k <= 1023 */
GS_DEVICE double gs_power_of_two(int32_t k)
{
    union {
        uint64_t bits;
        double value;
    } u;
    u.bits = (uint64_t)(k + 1023) << 52;
    return u.value;
}

struct gs_f32x4 {
    float x, y, z, w;
} __attribute__((aligned(16)));

GS_DEVICE float gs_matrix_at(const struct gs_gpu_matrix *m, int64_t row, int64_t column)
{
    int64_t at = row * m->columns + column;
    switch (m->type) {
    case GS_GPU_F32:
        return ((const float *)m->data)[at];
    case GS_GPU_BF16:
        return gs_float_of_bf16(((const uint16_t *)m->data)[at]);
    case GS_GPU_F16:
        return gs_float_of_f16(((const uint16_t *)m->data)[at]);
    default:
        return gs_float_of_f16(m->scales[at / 32]) * (float)((const int8_t *)m->data)[at];
    }
}

GS_DEVICE void gs_load_f32x8(const float *from, float *to)
{
    struct gs_f32x4 a = ((const struct gs_f32x4 *)from)[0], b = ((const struct gs_f32x4 *)from)[1];
    to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w;
    to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
}

/* Elements column ... column+7; beyond the row's end zeros. Rows of a multiple of 8 are read in one piece. */
GS_DEVICE void gs_matrix_load8(const struct gs_gpu_matrix *m, int64_t row, int32_t column, float *to)
{
    int64_t at = row * m->columns + column;
    if (m->columns % 8 != 0) {
        for (int j = 0; j < 8; j++)
            to[j] = column + j < m->columns ? gs_matrix_at(m, row, column + j) : 0.0f;
        return;
    }
    if (m->type == GS_GPU_F32) {
        gs_load_f32x8((const float *)m->data + at, to);
        return;
    }
    if (m->type == GS_GPU_Q8) {
        const uint32_t *codes = (const uint32_t *)((const int8_t *)m->data + at);
        float scale = gs_float_of_f16(m->scales[at / 32]);
#pragma unroll
        for (int j = 0; j < 8; j++)
            to[j] = scale * (float)(int8_t)(codes[j / 4] >> (8 * (j % 4)));
        return;
    }
    struct gs_u32x4 v = *(const struct gs_u32x4 *)((const uint16_t *)m->data + at);
    uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int j = 0; j < 8; j++) {
        uint16_t bits = (uint16_t)(words[j / 2] >> (16 * (j % 2)));
        to[j] = m->type == GS_GPU_BF16 ? gs_float_of_bf16(bits) : gs_float_of_f16(bits);
    }
}

/* Elements column ... column+7 of a vector of n; beyond its end zeros. */
GS_DEVICE void gs_vector_load8(const float *x, int32_t n, int32_t column, float *to)
{
    if (n % 8 == 0) {
        gs_load_f32x8(x + column, to);
        return;
    }
    for (int j = 0; j < 8; j++)
        to[j] = column + j < n ? x[column + j] : 0.0f;
}

/* 2^(scale - 127); 0 is the subnormal 2^-127. */
GS_DEVICE float gs_scale_of_byte(uint32_t byte)
{
    return gs_float_of_bits(byte > 0 ? byte << 23 : 0x00400000u);
}

/* The value of a code, exactly: 0 .5 1 1.5 2 3 4 6, the sign in bit 3. */
GS_DEVICE float gs_value_of_code(uint32_t code)
{
    uint32_t magnitude = code & 7u;
    /* Codes 2 ... 7 are exponent and mantissa of a float; 1 is one half. */
    uint32_t bits = magnitude >= 2u ? (magnitude << 22) + (126u << 23) : magnitude * 0x3f000000u;
    return gs_float_of_bits(bits | (code & 8u) << 28);
}

/* Eight elements of row `row` (of all experts counted on). column is a multiple of 8. */
GS_DEVICE void gs_experts_load8(const struct gs_gpu_experts *m, int64_t row, int32_t column, float *to)
{
    uint32_t codes = *(const uint32_t *)(m->codes + (row * m->columns + column) / 2);
    float scale = gs_scale_of_byte(m->scales[row * m->scale_stride + column / 32]);
#pragma unroll
    for (int j = 0; j < 8; j++)
        to[j] = gs_value_of_code(codes >> (4 * j) & 15u) * scale;
}

/*
 * exp of x <= 0: base/math.c's steps, which may be contracted here: for sums whose order is not certain
 * either.
 */
GS_DEVICE double gs_exp_f64(double x)
{
    const double rounder = 0x1.8p52, ln2_high = 0x1.62e42fef00000p-1, ln2_low = 0x1.473de6af278edp-34;
    const double inverse_factorial[] = {1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0,
                                        1.0 / 3628800.0,    1.0 / 362880.0,    1.0 / 40320.0,
                                        1.0 / 5040.0,       1.0 / 720.0,       1.0 / 120.0,
                                        1.0 / 24.0,         1.0 / 6.0,         0.5};
    if (!(x > -745.2))
        return 0.0;
    double k = gs_add_f64(gs_add_f64(gs_mul_f64(x, 0x1.71547652b82fep+0), rounder), -rounder);
    double r = (x - k * ln2_high) - k * ln2_low, tail = inverse_factorial[0];
#pragma unroll
    for (int i = 1; i < 12; i++)
        tail = tail * r + inverse_factorial[i];
    int32_t power = (int32_t)k, half = power / 2;
    return (1.0 + (r + r * r * tail)) * gs_power_of_two(half) * gs_power_of_two(power - half);
}

#endif
