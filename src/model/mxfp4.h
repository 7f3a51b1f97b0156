/*
 * The MXFP4 format (OCP Microscaling Formats v1.0: E2M1 elements, E8M0 scales), in one place.
 * A group is 32 consecutive elements along a row: 16 bytes of codes and one scale byte.
 *   safetensors: codes and scales in two arrays; byte k holds element 2k in its low nibble, 2k+1 in its high.
 *   GGUF: blocks of 17 bytes, the scale first; byte k of the codes holds elements k (low) and k+16 (high).
 * value = code value * 2^(scale - 127), exact in float32 for scales 0 ... 252.
 */
#ifndef GS_MODEL_MXFP4_H
#define GS_MODEL_MXFP4_H

#include <stdint.h>

#define GS_MXFP4_GROUP       32 /* elements */
#define GS_MXFP4_GROUP_BYTES 16 /* bytes of codes */
#define GS_MXFP4_BLOCK_BYTES 17 /* of a group in GGUF */
#define GS_MXFP4_SCALE_NAN   255

extern const float gs_mxfp4_values[16]; /* 0, .5, 1, 1.5, 2, 3, 4, 6, -0, -.5 ... */

/* 2^(scale - 127); scale 0 is the subnormal 2^-127. Not for 255. */
float gs_mxfp4_scale(uint8_t scale);

/* One row: blocks [n/32][16], scales [n/32] -> out [n]. n is a multiple of 32. */
void gs_mxfp4_dequantize(const uint8_t *blocks, const uint8_t *scales, int64_t n, float *out);

/* One row in GGUF's form: blocks [n/32][17]. */
void gs_mxfp4_dequantize_gguf(const uint8_t *blocks, int64_t n, float *out);

/* A group of GGUF's form [17] in that of safetensors: codes [16] and the scale. */
void gs_mxfp4_part_gguf(const uint8_t *block, uint8_t *codes, uint8_t *scale);

/* Matrices of rows in MXFP4, one for each expert, as the checkpoint has them. Borrowed. */
struct gs_mxfp4_matrix {
    const uint8_t *blocks;     /* [n_expert][rows][columns/32][16]; GGUF: [n_expert][rows][columns/32][17] */
    const uint8_t *scales;     /* [n_expert][rows][columns/32]; NULL: GGUF's form */
    const uint8_t *odd_blocks; /* NULL, or the odd rows; then both are [n_expert][rows/2][columns/32][17] */
    int64_t n_expert;
    int64_t rows;
    int64_t columns;
};

/* Where a row is: scales [columns/32] NULL for GGUF's form. */
struct gs_mxfp4_row {
    const uint8_t *blocks;
    const uint8_t *scales;
};
struct gs_mxfp4_row gs_mxfp4_find_row(const struct gs_mxfp4_matrix *matrix, int64_t expert, int64_t row);

#endif
