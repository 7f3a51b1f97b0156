#include "model/matrix.h"

#include <string.h>

/* GNU vectors, since -O2 alone vectorises no loop of unknown length: rows are converted in the hot loop. */
typedef uint16_t u16x8 __attribute__((vector_size(16)));
typedef uint32_t u32x8 __attribute__((vector_size(32)));
typedef int8_t i8x8 __attribute__((vector_size(8)));
typedef float f32x8 __attribute__((vector_size(32)));

int64_t gs_weight_bytes(enum gs_weight_type type, int64_t columns)
{
    if (type == GS_WEIGHT_Q8_0)
        return columns / GS_Q8_0_BLOCK * GS_Q8_0_BLOCK_BYTES;
    return columns * (type == GS_WEIGHT_F32 ? 4 : 2);
}

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint16_t load_u16(const unsigned char *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void convert_bf16(const unsigned char *from, int64_t n, float *out)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        u16x8 stored;
        memcpy(&stored, from + 2 * i, sizeof stored);
        u32x8 bits = __builtin_convertvector(stored, u32x8) << 16;
        memcpy(out + i, &bits, sizeof bits);
    }
    for (; i < n; i++)
        out[i] = float_of_bits((uint32_t)load_u16(from + 2 * i) << 16);
}

static float convert_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t magnitude = half & 0x7FFFu;
    if (magnitude >= 0x7C00)
        return float_of_bits(sign | 0x7F800000u | magnitude << 13);
    if (magnitude < 0x0400) {
        float value = (float)magnitude * 0x1p-24f;
        return sign ? -value : value;
    }
    return float_of_bits(sign | ((magnitude << 13) + (112u << 23)));
}

/* The product of an 11-bit and an 8-bit significand is exact in float32. */
static void convert_q8_0(const unsigned char *from, int64_t n, float *out)
{
    for (int64_t block = 0; block < n / GS_Q8_0_BLOCK; block++, from += GS_Q8_0_BLOCK_BYTES) {
        float scale = convert_f16(load_u16(from));
        for (int i = 0; i < GS_Q8_0_BLOCK; i += 8) {
            i8x8 stored;
            memcpy(&stored, from + 2 + i, sizeof stored);
            f32x8 values = __builtin_convertvector(stored, f32x8) * scale;
            memcpy(out + block * GS_Q8_0_BLOCK + i, &values, sizeof values);
        }
    }
}

static void convert(const unsigned char *from, enum gs_weight_type type, int64_t n, float *out)
{
    switch (type) {
    case GS_WEIGHT_F32:
        memcpy(out, from, (size_t)n * sizeof *out);
        break;
    case GS_WEIGHT_BF16:
        convert_bf16(from, n, out);
        break;
    case GS_WEIGHT_F16:
        for (int64_t i = 0; i < n; i++)
            out[i] = convert_f16(load_u16(from + 2 * i));
        break;
    case GS_WEIGHT_Q8_0:
        convert_q8_0(from, n, out);
        break;
    }
}

void gs_matrix_row(const struct gs_matrix *matrix, int64_t row, float *out)
{
    int64_t n = matrix->columns;
    if (matrix->odd) {
        for (int64_t i = 0; i < n; i++)
            out[i] = gs_matrix_element(matrix, row, i);
        return;
    }
    convert(matrix->data + row * gs_weight_bytes(matrix->type, n), matrix->type, n, out);
}

float gs_matrix_element(const struct gs_matrix *matrix, int64_t row, int64_t column)
{
    const unsigned char *data = matrix->data;
    int64_t at = row * matrix->columns + column;
    if (matrix->odd) {
        data = column % 2 ? matrix->odd : data;
        at = row * (matrix->columns / 2) + column / 2;
    }
    if (matrix->type == GS_WEIGHT_Q8_0) {
        const unsigned char *block = data + at / GS_Q8_0_BLOCK * GS_Q8_0_BLOCK_BYTES;
        return convert_f16(load_u16(block)) * (float)(int8_t)block[2 + at % GS_Q8_0_BLOCK];
    }
    float value = 0.0f;
    convert(data + gs_weight_bytes(matrix->type, at), matrix->type, 1, &value);
    return value;
}
