/*
 * A dispatch of one Metal kernel in the simulator: buffers by the contract's indices
 * (backend/metal/kernels.h), run in every order of lanes, and what the scalar CPU code makes of the same
 * numbers.
 */
#ifndef GS_TESTS_METAL_SIM_KERNEL_FIXTURE_H
#define GS_TESTS_METAL_SIM_KERNEL_FIXTURE_H

#include "backend/metal/kernels.h"

#include <stdbool.h>
#include <stddef.h>

struct fixture {
    struct gs_metal_args args;
    struct gs_metal_tuning tuning;
    struct {
        void *data;
        size_t size;
    } buffers[GS_METAL_BUFFER_COUNT];
    uint64_t random;
};

/*
 * A program's main: runs the tests with the kernels as the host compiles them, and once more with fast math,
 * Metal's default. With three arguments (test_metal_mutations.c gives them), the tests to run, a text that
 * stands once in the kernels' source, and what is to stand there instead, fast math has no turn.
 */
struct CMUnitTest;
int fixture_main(int argc, char **argv, const struct CMUnitTest *tests, size_t n);
#define FIXTURE_NO_SUCH_TEXT 99 /* exit code: the text does not stand there once */

/* The kernels' source, as the host gives it to the driver, changed or not. */
const char *fixture_source(void);

/* Small and ragged: d_model 96, d_ff 32, 6 heads of 8 on 2 kv heads, 5 experts of which 3; one row.
   Skips the test where there is no simulator. */
void fixture_init(struct fixture *f, uint64_t seed);
void fixture_free(struct fixture *f);

uint32_t fixture_random(struct fixture *f, uint32_t below);
float fixture_uniform(struct fixture *f, float low, float high);

/* A buffer of `size` bytes in which nothing is a number; what was there is freed. */
void *fixture_output(struct fixture *f, enum gs_metal_buffer index, size_t size);

/* A buffer of n floats in [-scale, scale]. */
float *fixture_floats(struct fixture *f, enum gs_metal_buffer index, size_t n, float scale);

/*
 * A random matrix of args.type[slot] in WEIGHT_0 + slot; returned is the same in float32 [rows][columns], to
 * be freed.
 */
float *fixture_matrix(struct fixture *f, uint32_t slot, enum gs_metal_type type, uint32_t rows,
                      uint32_t columns);

/* Random MXFP4 experts in WEIGHT_0 and WEIGHT_1, in float32 [n_expert*rows][columns], to be freed. */
float *fixture_experts(struct fixture *f, uint32_t rows, uint32_t columns);

/* n rows from a position on; all else of them is zero. */
struct gs_metal_row *fixture_rows(struct fixture *f, uint32_t n, uint32_t first_position);

/* Caches of n_timeline timelines, each of a slot more; layer 1 of 2 is the one that is asked for. With
   `seven_bits`, values that half has exactly. */
void fixture_kv(struct fixture *f, uint32_t n_timeline, uint32_t n_slot, bool seven_bits);

struct attention_shape {
    uint32_t d_head, n_head, n_kv_head, window, kv_f32;
};
void fixture_attention(struct fixture *f, const struct attention_shape *shape);

/* For each of n rows, n_active experts in ascending order; `uneven`: expert 0 takes part in most. */
void fixture_actives(struct fixture *f, uint32_t n, bool uneven);

/*
 * Runs the kernel, from the same buffers, in every order of lanes: each must give the same bits. The last
 * result stays in the buffers.
 */
void fixture_run(struct fixture *f, enum gs_metal_kernel kernel);

/* Once, in one order: 0 forward, 1 reverse, 2 random. */
#define FIXTURE_ORDERS 3
void fixture_run_once(struct fixture *f, enum gs_metal_kernel kernel, int order);

/* ---------------------------------------------------------------- the scalar CPU code */

/* out [rows] = matrix [rows][columns] . x + bias (or NULL), summed as the CPU's exact backend does. */
void cpu_linear(const float *matrix, const float *bias, const float *x, uint32_t rows, uint32_t columns,
                float *out);

void cpu_norm(const struct fixture *f, const float *x, const float *weight, float *out);
void cpu_rotate(const struct fixture *f, const float *angles, float *heads, uint32_t n_head);
void cpu_choose(const struct fixture *f, const float *logits, int32_t *choice, float *weight);
void cpu_activate(const struct fixture *f, const float *gate_up, float *out);

/* attended [n_head][d_head] of row t, in double, from the fixture's QKV, KV, KV_TABLE and SINKS. */
void cpu_attention(const struct fixture *f, uint32_t t, float *out);

/* Element of a cache, as the kernels store it; and what a stored value becomes. */
float cpu_kv(const struct fixture *f, uint32_t timeline, bool value, uint32_t kv_head, uint32_t position,
             uint32_t i);
float cpu_kv_rounded(const struct fixture *f, float value);

/* Fails with `what` unless each |got - expected| <= tolerance * the largest |expected|. */
void expect_close(const char *what, const float *got, const float *expected, size_t n, double tolerance);
#define FLOAT_TOLERANCE 2e-5 /* float32 sums in another order */

/* ACTIVATED of every route against `weights` [n_expert*2*d_ff][d_model] on NORMED, with BIAS_0. */
void expect_activated(const struct fixture *f, const float *weights);

/*
 * PROJECTED of every row, and HIDDEN as the sum of `before` and it, against `weights`
 * [n_expert*d_model][d_ff] on ACTIVATED, with BIAS_0; EXPERT_OUT of every route, where there is that buffer.
 */
void expect_experts_down(const struct fixture *f, const float *weights, const float *before);

#endif
