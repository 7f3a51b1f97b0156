/*
 * The MXFP4 format (OCP Microscaling Formats v1.0: E2M1 elements, E8M0 scales), in one place.
 * A group is 32 consecutive elements along a row: 16 bytes of codes and one scale byte. In the safetensors
 * layout byte k holds element 2k in its low nibble and element 2k+1 in its high nibble.
 * value = code value * 2^(scale - 127), exact in float32 for scales 0 ... 252.
 */
#ifndef GS_MODEL_MXFP4_H
#define GS_MODEL_MXFP4_H

#include <stdint.h>

#define GS_MXFP4_GROUP       32 /* elements */
#define GS_MXFP4_GROUP_BYTES 16 /* bytes of codes */
#define GS_MXFP4_SCALE_NAN   255

extern const float gs_mxfp4_values[16]; /* 0, .5, 1, 1.5, 2, 3, 4, 6, -0, -.5 ... */

/* 2^(scale - 127); scale 0 is the subnormal 2^-127. Not for 255. */
float gs_mxfp4_scale(uint8_t scale);

/* One row: blocks [n/32][16], scales [n/32] -> out [n]. n is a multiple of 32. */
void gs_mxfp4_dequantize(const uint8_t *blocks, const uint8_t *scales, int64_t n, float *out);

#endif
