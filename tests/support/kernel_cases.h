/*
 * Every kernel of the CPU backend as a case: random input for a shape, a call, and how far its output may be
 * from another variant's. tests/kernels checks with them, bench/bench_kernels.c times them.
 *
 * Each buffer ends (or, every other seed, begins) where a page without access begins, so that a kernel that
 * reads or writes past an end crashes; what it must not write to is seen by comparing.
 */
#ifndef TESTS_SUPPORT_KERNEL_CASES_H
#define TESTS_SUPPORT_KERNEL_CASES_H

#include "backend/cpu/fast_kernels.h"
#include "backend/cpu/kernels.h"

/* The tables of one instruction set. */
struct kernel_variant {
    const char *isa;
    const struct gs_kernels *exact;
    const struct gs_fast_kernels *fast; /* NULL: it has none */
};
size_t kernel_variant_count(void); /* 0 is generic */
struct kernel_variant kernel_variant_at(size_t index);

/* The products for AMX with its instructions emulated (tiles_model.c); what is around them is AVX-512. */
extern const struct gs_fast_kernels kernel_tiles_model;

/* Those of this processor, and the emulated ones where they run: for checks, not for speed. */
size_t kernel_checked_count(void);

struct kernel_shape {
    size_t n;      /* elements of a row; attend: the head's */
    size_t n_rows; /* of weights; attend: query heads */
    size_t n_x;    /* activation vectors; attend: visible positions */
};

struct kernel_buffer {
    unsigned char *data;
    size_t size;
    void *mapping;
    size_t mapped;
};

#define KERNEL_MAX_BUFFERS 160
#define KERNEL_MAX_ROWS    GS_FAST_TILE_ROWS
#define KERNEL_MAX_X       64

struct kernel_run {
    const struct kernel_case *kernel;
    struct kernel_shape shape;
    struct kernel_buffer buffers[KERNEL_MAX_BUFFERS];
    size_t n_buffers;
    bool at_front;
    uint64_t random;

    unsigned char *out; /* [out_size] */
    size_t out_size;
    size_t stride; /* floats, of a product's output */

    const float *w;                             /* [n] */
    const float *x[KERNEL_MAX_X];               /* [n_x][n] */
    const struct gs_q8_chunk *q8[KERNEL_MAX_X]; /* [n_x] */
    const uint16_t *bf16[KERNEL_MAX_X];         /* [n_x][n] */
    struct gs_mxfp4_row mxfp4[KERNEL_MAX_ROWS]; /* [n_rows] */
    struct gs_q8_0_row q8_0[KERNEL_MAX_ROWS];   /* [n_rows] */
    struct gs_bf16_rows bf16_rows;
    struct gs_fast_attention attention;
    void *work;
};

struct kernel_case {
    const char *name;
    bool is_exact;    /* every variant gives the same bits */
    double tolerance; /* else: of the output's root mean square */
    size_t step;      /* n is a multiple of it */
    size_t most_rows; /* 1: no rows */
    size_t most_x;    /* 1: no vectors */
    void (*prepare)(struct kernel_run *run);
    void (*call)(const struct kernel_run *run, const struct kernel_variant *variant);
    double (*bytes)(
        const struct kernel_shape *shape); /* that a call reads of weights, or of what it converts */
    double (*products)(const struct kernel_shape *shape); /* multiplications, or elements */
};

extern const struct kernel_case kernel_cases[];
extern const size_t kernel_case_count;

/* Does the variant have this kernel? */
bool kernel_has(const struct kernel_case *kernel, const struct kernel_variant *variant);

/* Aborts where memory is short. Ends with kernel_release. */
void kernel_prepare(struct kernel_run *run, const struct kernel_case *kernel, struct kernel_shape shape,
                    uint64_t seed);
void kernel_release(struct kernel_run *run);

/* Fills the output with a pattern, then calls. */
void kernel_call(struct kernel_run *run, const struct kernel_variant *variant);

/*
 * The largest difference of two outputs over what the case allows (at most 1 is right); infinite where a
 * place that stays as it was has changed in one of them, or something is not finite in one alone.
 */
double kernel_difference(const struct kernel_run *run, const unsigned char *a, const unsigned char *b);

#endif
