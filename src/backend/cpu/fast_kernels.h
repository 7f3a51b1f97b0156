/*
 * The inner loops of --precision fast, one table of them for each instruction set.
 *
 * Every kernel treats a row of activations by itself and in a fixed order, so a token has the same bits
 * alone, in a prompt of any size, or beside others. Between instruction sets the order differs: integer sums
 * are exact, their float32 accumulation is not, and variants agree to float32 rounding.
 */
#ifndef GS_BACKEND_CPU_FAST_KERNELS_H
#define GS_BACKEND_CPU_FAST_KERNELS_H

#include "model/mxfp4.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GS_Q8_CHUNK       128 /* activations in a gs_q8_chunk: four blocks of 32 */
#define GS_FAST_TILE_ROWS 32  /* rows of weights that one call of a product takes at most */

/* Which elements of a block come first in a chunk: those that lie in the low halves of MXFP4's bytes. */
enum gs_q8_order {
    GS_Q8_PAIRS,  /* 0, 2, 4 ... 30, then 1, 3 ... 31: safetensors */
    GS_Q8_HALVES, /* 0 ... 15, then 16 ... 31: GGUF, MXFP4 and Q8_0 */
};

/*
 * Activations in 8 bits: x = q * scale, one scale a block. q = x * (127 / m) rounded to nearest even, scale =
 * m / 127, with m the block's largest magnitude (scale and q 0 for m = 0). The last chunk of a row is padded
 * with zeros. Every variant gives the same bits.
 */
struct gs_q8_chunk {
    int8_t q[GS_Q8_CHUNK]; /* [2][4 blocks][16]: the blocks' first elements, then their second */
    float scale[16];       /* [4 blocks][4 copies] */
    int32_t sum[16];       /* [4 blocks][4 copies]: of the block's q */
};

static inline size_t gs_q8_chunk_count(size_t n)
{
    return (n + GS_Q8_CHUNK - 1) / GS_Q8_CHUNK;
}

/* A row of 8-bit weights as GGUF's Q8_0 has it: [n/32] blocks of an F16 scale and 32 int8; any alignment. */
struct gs_q8_0_row {
    const uint8_t *blocks; /* [n/32][34] */
};

/* Rows of bfloat16, one after the other; any alignment. */
struct gs_bf16_rows {
    const unsigned char *data; /* [n_rows][n] */
};

/*
 * Attention of the query heads that share one key and value head, at one position: softmax over the sinks and
 * the visible keys. n_slot is a multiple of GS_FAST_KEY_BLOCK; position p lives in slot p mod n_slot.
 *   keys   [n_slot/16][d_head/2][16 positions][2]
 *   values [n_slot/2][d_head][2 positions]
 * bfloat16, values of slots that were never written are finite.
 *
 * The keys are taken in spans, whose length and whose beginnings hang on the position alone, and what the
 * spans give is merged in ascending order: on as many threads as there are spans, with the same bits.
 */
#define GS_FAST_KEY_BLOCK      64  /* keys that the running softmax takes at a time, by absolute position */
#define GS_FAST_SPAN_KEYS      512 /* of a span at least */
#define GS_FAST_SPANS          16  /* of a position at most */
#define GS_FAST_HEADS_TOGETHER 4   /* query heads that the kernels without BF16 take at a time */

struct gs_fast_attention {
    const float *query; /* [n_head][d_head], rotated */
    const float *sinks; /* [n_head] */
    const uint16_t *keys, *values;
    int64_t n_slot;
    int64_t first, last; /* visible positions, both included */
    int64_t n_head;      /* of this group */
    int64_t d_head;      /* even */
    float scale;         /* of the scores */
    float *partial; /* [spans][n_head][d_head+2]: sums of values, the largest score, the sum of weights */
    float *out;     /* [n_head][d_head] */
    void *work;     /* gs_fast_attention_bytes(n_head, d_head), aligned to 64 bytes */

    /* What the thread takes next: its keys and values are asked for meanwhile. NULL: none. */
    const struct gs_fast_attention *next;
};

/* Of activate_q8. */
struct gs_activation {
    float limit, alpha;
    enum gs_q8_order order;
    size_t block; /* which of a row's blocks of 32 */
};

struct gs_fast_kernels {
    const char *isa; /* as of struct gs_kernels */

    /* x [n] -> chunks [gs_q8_chunk_count(n)]. n is a multiple of 32. */
    void (*quantize_q8)(const float *x, size_t n, enum gs_q8_order order, struct gs_q8_chunk *out);

    /* x [n] -> Q8_0 blocks [n/32]: scale m / 127 as a half, q = x / scale, rounded to nearest even. Every
     * variant gives the same bits. */
    void (*quantize_q8_0)(const float *x, size_t n, uint8_t *blocks);

    /* Nearest even; NaN stays NaN. Every variant gives the same bits. */
    void (*round_bf16)(const float *x, size_t n, uint16_t *out);

    /* y = w * (x / sqrt(mean(x^2) + eps)), all [n] */
    void (*rms_norm)(const float *x, const float *w, size_t n, float eps, float *y);

    /* Clamped SwiGLU: gate_up [n][2] -> out [n]. */
    void (*swiglu)(const float *gate_up, size_t n, float limit, float alpha, float *out);

    /* to += from * weight, all [n]. Every variant gives the same bits. */
    void (*add_scaled)(float *to, const float *from, float weight, size_t n);

    /* to [n_x] rows of n, `stride` apart, += bias [n]. Every variant gives the same bits. */
    void (*add_bias)(float *to, size_t stride, size_t n_x, const float *bias, size_t n);

    /* gate_up [n_x][32 units][2] + bias [32][2] -> a block of each of n_x rows of out, `stride` chunks apart;
     * the bits of add_bias, swiglu and quantize_q8. */
    void (*activate_q8)(const struct gs_activation *how, const float *gate_up, const float *bias, size_t n_x,
                        struct gs_q8_chunk *out, size_t stride);

    /* Rotates heads [n_head][d_head] by the angles of cosine, sine [d_head/2]. Every variant gives the same
     * bits. */
    void (*rotate)(const float *cosine, const float *sine, size_t d_head, float *heads, size_t n_head);

    /*
     * Products: out[t * stride + r] = rows[r] . x[t], for n_rows <= GS_FAST_TILE_ROWS rows of n weights (a
     * multiple of 32) and n_x vectors. `work` [gs_fast_work_bytes(n)] is aligned to 64 bytes. The activations
     * are in the order of the rows' format: mxfp4 with scales GS_Q8_PAIRS, without (GGUF) GS_Q8_HALVES, q8_0
     * GS_Q8_HALVES. same_x: the last product with this work was of the same kernel, with the same n, x and
     * n_x; what it made of them is still there.
     */
    void (*mxfp4_q8)(const struct gs_mxfp4_row *rows, size_t n_rows, size_t n,
                     const struct gs_q8_chunk *const *x, size_t n_x, void *work, float *out, size_t stride);
    void (*q8_0_q8)(const struct gs_q8_0_row *rows, size_t n_rows, size_t n,
                    const struct gs_q8_chunk *const *x, size_t n_x, void *work, float *out, size_t stride);
    void (*bf16_bf16)(const struct gs_bf16_rows *rows, size_t n_rows, size_t n, const uint16_t *const *x,
                      size_t n_x, void *work, float *out, size_t stride, bool same_x);

    /* A span: first ... last lie in it; to partial [n_head][d_head+2]. */
    void (*attend)(const struct gs_fast_attention *attention);
    /* partial [n_spans] and the sinks -> out. */
    void (*merge_spans)(const struct gs_fast_attention *attention, int64_t n_spans);
};

/* Scratch of a product whose rows have n weights: a tile in the order in which it is multiplied. */
size_t gs_fast_work_bytes(size_t n);
size_t gs_fast_attention_bytes(int64_t n_head, int64_t d_head);
size_t gs_fast_span_floats(int64_t n_head, int64_t d_head); /* of `partial`, a span */

/* How many spans the visible positions first ... last have; one of them, to be found and to be computed; and
 * all of an item, with `partial` in its work. */
int64_t gs_fast_span_count(int64_t first, int64_t last);
struct gs_fast_attention gs_fast_span(const struct gs_fast_attention *attention, int64_t span);
void gs_fast_attend(const struct gs_fast_kernels *kernels, const struct gs_fast_attention *attention);

/* As gs_kernels_*: the best of this processor, by name (NULL: not here), and all that it can run, worst
 * first.
 */
const struct gs_fast_kernels *gs_fast_kernels_best(void);
const struct gs_fast_kernels *gs_fast_kernels_find(const char *isa);
size_t gs_fast_kernels_count(void);
const struct gs_fast_kernels *gs_fast_kernels_at(size_t index);

#endif
