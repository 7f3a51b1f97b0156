/*
 * A tiny model on the CPU backend and on another one: how near their logits are, and the parts of backend.h's
 * contract that are asked of every device in the same words.
 */
#ifndef TESTS_SUPPORT_PAIR_H
#define TESTS_SUPPORT_PAIR_H

#include "tests/support/loaded.h"

struct gs_sampler;

#define PAIR_VOCAB 128 /* n_vocab of the models below */

/* Ragged shapes; `dense` and all the rest are the default's where nothing else is said. */
enum pair_shape {
    PAIR_DEFAULT,
    PAIR_FLOAT32,
    PAIR_FLOAT16, /* and widths that are no powers of two */
    PAIR_ONE_OF_EACH,
    PAIR_ODD_HEADS,
    PAIR_AS_THE_REAL_ONE,
    PAIR_NO_CHOICE, /* all experts are active: rounding cannot turn a choice, so that fast can be held to a
                       bar */
    PAIR_NO_CHOICE_SMALL,
};
const char *pair_shape_name(enum pair_shape shape);
struct tiny_options pair_options(enum pair_shape shape, int64_t n_layer);

/* The default's shapes, with PAIR_VOCAB. */
struct tiny_model *pair_model(void);

struct pair {
    struct loaded cpu, other; /* other borrows the cpu's weights */
};

/* `cpu`, which the pair owns from now on, and its weights on a device of `other`. */
struct pair pair_make(struct loaded cpu, const struct gs_backend *other,
                      const struct gs_device_options *device);
struct pair pair_open(const struct tiny_options *options, const struct gs_backend *other,
                      const struct gs_device_options *device);
void pair_close(struct pair *pair);

/* n random tokens below PAIR_VOCAB. */
void pair_tokens(int32_t *tokens, size_t n, unsigned seed);

/* Logits [n][PAIR_VOCAB] of a timeline of its own that takes n tokens, `piece` at a time; to be freed. */
float *pair_logits(const struct loaded *loaded, int64_t capacity, const int32_t *tokens, size_t n,
                   size_t piece);

/* The largest difference over the largest value of `expected`; what is no finite number is far away. */
double pair_error(const float *expected, const float *found, size_t n);

/* The smallest cosine of n positions and pair_error(), told under the name `what`, against their bars. */
void assert_near(const float *expected, const float *found, size_t n, double least_cosine, double most_error,
                 const char *what);
void assert_same_bits(const float *a, const float *b, size_t n, const char *what);

/* The first of the largest of PAIR_VOCAB logits. */
int32_t pair_argmax(const float *logits);

struct gs_sampler *pair_sampler(float temperature, size_t n_vocab, uint64_t seed);

/* ---------------------------------------------------------------- the contract */

/* Timelines at places of their own, first + i * apart tokens in, that take n_step steps. */
struct pair_batch {
    size_t n_row, first, apart, n_step;
    size_t n_last; /* rows of the last step, which a device may take in another way */
};
#define PAIR_BATCH_ROWS 8

/* Each alone and all of them together: the same bits. */
void check_batch(const struct loaded *loaded, const struct pair_batch *batch, unsigned seed);

/* Keys and values after n tokens are copied to a cache of another capacity, exported and imported, cut back:
 * each goes on with the same bits. */
void check_keys_and_values(const struct loaded *loaded, int64_t capacity, int64_t other_capacity, size_t n,
                           unsigned seed);

/* Every `apart`-th expert, dequantised on both: the same bits. */
void check_experts(const struct pair *pair, const struct gs_mxfp4_matrix *matrix, int64_t apart);

#endif
