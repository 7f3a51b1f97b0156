#include "model/matrix.h"

#include <string.h>

/* GNU vectors, since -O2 alone vectorises no loop of unknown length: rows are converted in the hot loop. */
typedef uint16_t u16x8 __attribute__((vector_size(16)));
typedef uint32_t u32x8 __attribute__((vector_size(32)));

int64_t gs_weight_size(enum gs_weight_type type)
{
    return type == GS_WEIGHT_F32 ? 4 : 2;
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

void gs_matrix_row(const struct gs_matrix *matrix, int64_t row, float *out)
{
    int64_t n = matrix->columns;
    const unsigned char *from = matrix->data + row * n * gs_weight_size(matrix->type);
    switch (matrix->type) {
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
    }
}

float gs_matrix_element(const struct gs_matrix *matrix, int64_t row, int64_t column)
{
    struct gs_matrix one = {
        .data = matrix->data + (row * matrix->columns + column) * gs_weight_size(matrix->type),
        .type = matrix->type,
        .rows = 1,
        .columns = 1,
    };
    float value = 0.0f;
    gs_matrix_row(&one, 0, &value);
    return value;
}
