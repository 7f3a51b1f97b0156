/*
 * Each kernel against plain loops in double precision over shapes that fill no tile. A check says what is
 * wrong instead of failing a test, so that kernels with a fault put into them can be shown to be noticed.
 */
#ifndef GS_TESTS_GPU_SIM_CHECKS_H
#define GS_TESTS_GPU_SIM_CHECKS_H

#include "backend/gpu/simple.h"
#include "tests/gpu_sim/sim.h"

#define CHECK_MAX_BUFFERS 32

struct check {
    const struct gpu_sim *sim;
    enum sim_order order;
    bool sums_whole;
    uint64_t random;
    struct sim_buffer buffers[CHECK_MAX_BUFFERS];
    size_t n_buffers;
    uint64_t launched; /* a bit for each kernel of the library */
    uint64_t hash;     /* over all that was compared: equal where every bit is */
    char message[700]; /* what is wrong; empty: nothing so far */
};

typedef void check_fn(struct check *check);

struct check_entry {
    const char *name;
    check_fn *run;
};
extern const struct check_entry check_entries[];
extern const size_t check_entry_count;

/* Runs one; true if nothing is wrong. */
bool check_run(struct check *check, check_fn *run);

/* ---------------------------------------------------------------- for the checks themselves */

/* A buffer that ends at a page nobody may touch, with a copy of `from` or, for NULL, poison. */
void *check_give(struct check *check, const char *name, const void *from, size_t bytes);
/* After a shape: were the buffers' surroundings left alone? Releases them. */
void check_release(struct check *check);

void check_launch(struct check *check, const char *kernel, uint32_t x, uint32_t y, uint32_t z, uint32_t block,
                  uint32_t shared_bytes, const void *args);

/* Keeps the first thing that is wrong. */
__attribute__((format(printf, 2, 3))) void check_fail(struct check *check, const char *format, ...);
static inline bool check_failed(const struct check *check)
{
    return check->message[0] != '\0';
}

/* found[i] within tolerance * (size[i] or, for NULL, 1) of expected[i]; not a number never is. */
void check_near(struct check *check, const char *what, const float *found, const double *expected,
                const double *size, size_t n, double tolerance);
/* The same bytes. */
void check_same(struct check *check, const char *what, const void *found, const void *expected, size_t bytes);

uint32_t check_random(struct check *check); /* 32 bits */
float check_number(struct check *check);    /* -1 ... 1, of 8 significant bits: as exact in bfloat16 */
void check_numbers(struct check *check, float *to, size_t n);

/* A matrix of random numbers in a form of the device, and the same in float32. */
struct check_matrix {
    struct gs_gpu_matrix on_device;
    float *values; /* [rows][columns]; the caller frees */
};
struct check_matrix check_make_matrix(struct check *check, enum gs_gpu_type type, int32_t rows,
                                      int32_t columns);

check_fn check_embed, check_norm, check_add, check_move, check_linear, check_argmax, check_next, check_draw,
    check_draw_next;
check_fn check_rotate, check_attention;
check_fn check_choose, check_sort, check_moe, check_combine;
check_fn check_convert_dense, check_convert_quantise, check_convert_experts, check_rope, check_dequantize;

#endif
