/* A dense matrix as a checkpoint stores it, read one row at a time as float32 (exactly). */
#ifndef GS_MODEL_MATRIX_H
#define GS_MODEL_MATRIX_H

#include <stdint.h>

enum gs_weight_type {
    GS_WEIGHT_F32,
    GS_WEIGHT_BF16,
    GS_WEIGHT_F16,
};

/* A dense array of rows; a vector has one row. Borrowed; not aligned, not even to its element. */
struct gs_matrix {
    const unsigned char *data; /* [rows][columns] */
    enum gs_weight_type type;
    int64_t rows;
    int64_t columns;
};

/* Bytes of an element. */
int64_t gs_weight_size(enum gs_weight_type type);

/* A row [columns] as float32. */
void gs_matrix_row(const struct gs_matrix *matrix, int64_t row, float *out);

/* One element. */
float gs_matrix_element(const struct gs_matrix *matrix, int64_t row, int64_t column);

#endif
