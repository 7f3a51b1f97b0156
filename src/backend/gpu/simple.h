/*
 * Arguments of the simple kernels (simple.cu, convert.cu), which do every stage for any model, any number of
 * rows and any type of weights. Their sums have one order per output, whatever shares the call: the exact
 * path, and what the fast kernels are compared with.
 */
#ifndef GS_BACKEND_GPU_SIMPLE_H
#define GS_BACKEND_GPU_SIMPLE_H

#include "backend/gpu/kernels.h"

#define GS_SIMPLE_ROWS      4   /* rows of weights that a warp takes at a time */
#define GS_SIMPLE_VECTORS   8   /* vectors it multiplies them with */
#define GS_SIMPLE_THREADS   256 /* of every kernel but the ones below */
#define GS_SIMPLE_ATTENTION 128 /* threads, and keys at a time, of attention */
#define GS_SIMPLE_SORT      1024
#define GS_SIMPLE_CHOOSE    64  /* a warp of any kind: the lanes beyond it leave */
#define GS_SIMPLE_PARTS     256 /* of the vocabulary, that are weighed apart for a draw */

/* gs_simple_linear_1, _8: out[n][r] = matrix[r] in[n] + bias[r]. Grid: row groups, groups of vectors. */
struct gs_simple_linear {
    struct gs_gpu_matrix matrix;
    const float *bias; /* [rows]; may be NULL */
    const float *in;   /* [n_in][columns] */
    float *out;        /* [n_in][rows] */
    int32_t n_in;
    int32_t unused;
};

/* gs_simple_norm: out[compact ? logit_row : t] = norm(in[t]). Grid: rows. */
struct gs_simple_norm {
    const float *weight;           /* [d] */
    const float *in;               /* [rows][d] */
    float *out;                    /* [rows][d] */
    const struct gs_gpu_row *rows; /* NULL: every row to its own place; else to its logit_row, if any */
    int32_t d;
    float eps;
};

/* gs_simple_add: to[i] += from[i]. */
struct gs_simple_add {
    float *to;
    const float *from;
    int64_t n;
};

/*
 * gs_simple_move: rows of positions first ... first+count-1 of every head, from one arrangement of slots to
 * another: position p lies in slot (p - shift) mod slots.
 */
struct gs_simple_move {
    const void *from; /* [n_head][from_slots][row_halves] of 2 bytes */
    void *to;         /* [n_head][to_slots][row_halves] */
    int64_t from_slots, from_shift, to_slots, to_shift;
    int64_t first, count;
    int32_t n_head, row_halves;
};

/* gs_convert_*: one tensor in the file's form at `from` to the device's form. */
struct gs_convert {
    const void *from;
    const void *odd; /* NULL, or the odd rows or columns of the same form */
    void *to;
    void *scales; /* of Q8 and of experts */
    int32_t type; /* of dense tensors: enum gs_weight_type's value */
    int32_t unused;
    int64_t rows, columns; /* of the result; experts: rows counts those of all experts */
    int32_t scale_stride;
    int32_t flags;
};

/* gs_convert_rope: fills the table of cosines and sines. */
struct gs_convert_rope {
    const float *inv_freq; /* [n_freq] */
    float *table;          /* [n_position][n_freq][2] */
    int64_t n_position;
    int32_t n_freq;
    float scaling;
};

/* gs_dequantize: rows first ... of an expert to float32. */
struct gs_dequantize {
    struct gs_gpu_experts experts;
    float *out;            /* [n_rows][columns] */
    int64_t first, n_rows; /* rows of all experts counted on */
};

#endif
