#include "model/mxfp4.h"

#include <string.h>

const float gs_mxfp4_values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                   -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

float gs_mxfp4_scale(uint8_t scale)
{
    /* The scale byte is a float32 exponent field, except that 0 stands for 2^-127, a subnormal. */
    uint32_t bits = scale > 0 ? (uint32_t)scale << 23 : 0x00400000u;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void gs_mxfp4_dequantize_gguf(const uint8_t *blocks, int64_t n, float *out)
{
    for (int64_t group = 0; group < n / GS_MXFP4_GROUP; group++) {
        float scale = gs_mxfp4_scale(blocks[group * GS_MXFP4_BLOCK_BYTES]);
        const uint8_t *codes = blocks + group * GS_MXFP4_BLOCK_BYTES + 1;
        float *to = out + group * GS_MXFP4_GROUP;
        for (int k = 0; k < GS_MXFP4_GROUP_BYTES; k++) {
            to[k] = gs_mxfp4_values[codes[k] & 15] * scale;
            to[k + 16] = gs_mxfp4_values[codes[k] >> 4] * scale;
        }
    }
}

void gs_mxfp4_dequantize(const uint8_t *blocks, const uint8_t *scales, int64_t n, float *out)
{
    for (int64_t group = 0; group < n / GS_MXFP4_GROUP; group++) {
        float scale = gs_mxfp4_scale(scales[group]);
        const uint8_t *codes = blocks + group * GS_MXFP4_GROUP_BYTES;
        float *to = out + group * GS_MXFP4_GROUP;
        for (int k = 0; k < GS_MXFP4_GROUP_BYTES; k++) {
            to[2 * k] = gs_mxfp4_values[codes[k] & 15] * scale;
            to[2 * k + 1] = gs_mxfp4_values[codes[k] >> 4] * scale;
        }
    }
}

void gs_mxfp4_part_gguf(const uint8_t *block, uint8_t *codes, uint8_t *scale)
{
    const uint8_t *pairs = block + 1;
    *scale = block[0];
    for (int k = 0; k < GS_MXFP4_GROUP_BYTES; k++) {
        /* Elements 2k and 2k+1: the lower half of the elements is in the low nibbles. */
        int shift = k < GS_MXFP4_GROUP_BYTES / 2 ? 0 : 4, at = 2 * k % GS_MXFP4_GROUP_BYTES;
        unsigned even = pairs[at] >> shift & 15u, odd = pairs[at + 1] >> shift & 15u;
        codes[k] = (uint8_t)(even | odd << 4);
    }
}

struct gs_mxfp4_row gs_mxfp4_find_row(const struct gs_mxfp4_matrix *matrix, int64_t expert, int64_t row)
{
    int64_t groups = matrix->columns / GS_MXFP4_GROUP;
    int64_t at = (expert * matrix->rows + row) * groups;
    if (matrix->scales)
        return (struct gs_mxfp4_row){matrix->blocks + at * GS_MXFP4_GROUP_BYTES, matrix->scales + at};
    const uint8_t *blocks = matrix->blocks;
    if (matrix->odd_blocks) {
        blocks = row % 2 ? matrix->odd_blocks : blocks;
        at = (expert * (matrix->rows / 2) + row / 2) * groups;
    }
    return (struct gs_mxfp4_row){blocks + at * GS_MXFP4_BLOCK_BYTES, NULL};
}
