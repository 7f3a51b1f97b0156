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
