/*
 * The CPU backend's own measuring: how fast this machine reads its memory and multiplies, and how fast the
 * exact kernels go over single experts. A gs_measure owns a thread pool and a buffer several times the size
 * of the last-level cache; what it measures is borrowed.
 */
#ifndef GS_BACKEND_CPU_MEASURE_H
#define GS_BACKEND_CPU_MEASURE_H

#include "gossamer.h"
#include "model/mxfp4.h"

struct gs_measure;

gs_status gs_measure_open(size_t n_threads, struct gs_measure **out, struct gs_error *error);
void gs_measure_close(struct gs_measure *measure);

size_t gs_measure_threads(const struct gs_measure *measure);
const char *gs_measure_isa(const struct gs_measure *measure);

/* Of the last-level cache as the system reports it; 0: it does not. And of the buffer. */
uint64_t gs_measure_cache_bytes(void);
uint64_t gs_measure_buffer_bytes(const struct gs_measure *measure);

/*
 * Reads the whole buffer once on all threads, every byte loaded into a register, and returns the bytes of a
 * second. What was in the caches before is gone afterwards.
 */
double gs_measure_read(struct gs_measure *measure);

enum gs_measure_type {
    GS_MEASURE_F32,  /* fused multiplications and additions where the processor has them */
    GS_MEASURE_INT8, /* 8-bit factors, 32-bit sums */
    GS_MEASURE_TYPE_COUNT,
};

/*
 * Multiplications (each with its addition) a second on all threads, with the best instructions that the
 * processor has, on numbers in registers: what arithmetic alone allows.
 */
double gs_measure_arithmetic(struct gs_measure *measure, enum gs_measure_type type);

enum gs_measure_reader {
    GS_MEASURE_KERNEL, /* rows dequantised and multiplied as the exact forward does it */
    GS_MEASURE_SCALAR, /* a control: the same product, its weights loaded byte by byte, nothing vectorised */
};

/*
 * out[e] [rows] = experts[e] in[e] [columns] for all of them in one launch; the matrices have n_expert 1 and
 * one shape. *seconds is what that took. GS_OUT_OF_MEMORY is the only failure.
 */
gs_status gs_measure_product(struct gs_measure *measure, const struct gs_mxfp4_matrix *experts,
                             size_t n_experts, const float *const *in, enum gs_measure_reader reader,
                             float *const *out, double *seconds, struct gs_error *error);

#endif
