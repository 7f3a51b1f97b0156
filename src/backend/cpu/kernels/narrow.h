/* Between float32 and the 16-bit formats: bfloat16, the upper half of its bits, and IEEE half. */
#ifndef GS_BACKEND_CPU_KERNELS_NARROW_H
#define GS_BACKEND_CPU_KERNELS_NARROW_H

#include <stdint.h>
#include <string.h>

static inline uint32_t gs_float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float gs_bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float gs_bf16_float(uint16_t bits)
{
    return gs_bits_float((uint32_t)bits << 16);
}

/* Nearest even; NaN stays NaN. */
static inline uint16_t gs_float_bf16(float value)
{
    uint32_t bits = gs_float_bits(value);
    uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
    return (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded);
}

/* Exact. Subnormal halves by a multiplication: their bits are a whole number of 2^-24. */
static inline float gs_half_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7FFFu;
    if (magnitude >= 0x7C00)
        return gs_bits_float(sign | 0x7F800000 | magnitude << 13);
    if (magnitude < 0x400) {
        float value = (float)magnitude * 0x1p-24f;
        return sign ? -value : value;
    }
    return gs_bits_float(sign | ((magnitude << 13) + 0x38000000));
}

/* Nearest even, of 0 <= value <= 65504. */
static inline uint16_t gs_float_half(float value)
{
    if (value < 0x1p-14f) /* subnormal: whole numbers of 2^-24, rounded by the addition */
        return (uint16_t)(gs_float_bits(value + 0.5f) - 0x3F000000);
    uint32_t bits = gs_float_bits(value) - 0x38000000;
    return (uint16_t)((bits + 0xFFF + (bits >> 13 & 1)) >> 13);
}

static inline uint16_t gs_load_u16(const uint8_t *from)
{
    uint16_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

#endif
