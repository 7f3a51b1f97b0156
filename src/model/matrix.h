/* A dense matrix as a checkpoint stores it, read one row at a time as float32 (exactly). */
#ifndef GS_MODEL_MATRIX_H
#define GS_MODEL_MATRIX_H

#include <stdint.h>

enum gs_weight_type {
    GS_WEIGHT_F32,
    GS_WEIGHT_BF16,
    GS_WEIGHT_F16,
    GS_WEIGHT_Q8_0, /* blocks of 32 elements along a row: an F16 scale d and 32 int8 q; value d * q */
};

#define GS_Q8_0_BLOCK       32 /* elements */
#define GS_Q8_0_BLOCK_BYTES 34

/* A dense array of rows; a vector has one row. Borrowed; not aligned, not even to its element. */
struct gs_matrix {
    const unsigned char *data; /* [rows][columns]; with `odd`: the even columns, [rows][columns/2] */
    enum gs_weight_type type;
    int64_t rows;
    int64_t columns;
    const unsigned char *odd; /* NULL, or the odd columns, [rows][columns/2], of the same type */
};

/* Bytes of `columns` elements of a row; for Q8_0 a multiple of 32 of them. */
int64_t gs_weight_bytes(enum gs_weight_type type, int64_t columns);

/* A row [columns] as float32. */
void gs_matrix_row(const struct gs_matrix *matrix, int64_t row, float *out);

/* One element. */
float gs_matrix_element(const struct gs_matrix *matrix, int64_t row, int64_t column);

#endif
