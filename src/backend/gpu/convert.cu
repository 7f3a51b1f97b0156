/* Loading: tensors as files have them -> as kernels.h has them; the rope table; and back, for the verifier.
 */
#include "backend/gpu/simple.cuh"

/* The file's types, as enum gs_weight_type numbers them. */
#define FILE_F32  0
#define FILE_BF16 1
#define FILE_F16  2
#define FILE_Q8_0 3

#define Q8_0_BLOCK_BYTES 34
#define GGUF_BLOCK_BYTES 17
#define GROUP            32
#define GROUP_BYTES      16

GS_DEVICE uint16_t load_u16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

GS_DEVICE float file_element(const struct gs_convert &args, int64_t row, int64_t column)
{
    const uint8_t *data = (const uint8_t *)args.from;
    int64_t at = row * args.columns + column;
    if (args.odd) {
        data = column % 2 ? (const uint8_t *)args.odd : data;
        at = row * (args.columns / 2) + column / 2;
    }
    switch (args.type) {
    case FILE_F32:
        return gs_float_of_bits(load_u16(data + 4 * at) | (uint32_t)load_u16(data + 4 * at + 2) << 16);
    case FILE_BF16:
        return gs_float_of_bf16(load_u16(data + 2 * at));
    case FILE_F16:
        return gs_float_of_f16(load_u16(data + 2 * at));
    default: {
        const uint8_t *block = data + at / GROUP * Q8_0_BLOCK_BYTES;
        return gs_float_of_f16(load_u16(block)) * (float)(int8_t)block[2 + at % GROUP];
    }
    }
}

GS_DEVICE int64_t global_thread(void)
{
    return (int64_t)gs_block() * gs_n_thread() + gs_thread();
}

/* A dense tensor of any type to float32: to [rows][columns]. A thread an element. */
GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_convert_f32(GS_ARGS(struct gs_convert, args))
{
    int64_t i = global_thread();
    if (i < args.rows * args.columns)
        ((float *)args.to)[i] = file_element(args, i / args.columns, i % args.columns);
}

/* The router transposed, times the norm's weight (scales): to [columns][rows]. A thread an element. */
GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_convert_columns(GS_ARGS(struct gs_convert, args))
{
    int64_t i = global_thread();
    if (i < args.rows * args.columns) {
        int64_t column = i / args.rows, row = i % args.rows;
        ((float *)args.to)[i] = file_element(args, row, column) * ((const float *)args.scales)[column];
    }
}

/* Q8_0 blocks to planar codes and scales. A thread an element. */
GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_convert_q8_0(GS_ARGS(struct gs_convert, args))
{
    int64_t i = global_thread();
    if (i >= args.rows * args.columns)
        return;
    const uint8_t *block = (const uint8_t *)args.from + i / GROUP * Q8_0_BLOCK_BYTES;
    ((int8_t *)args.to)[i] = (int8_t)block[2 + i % GROUP];
    if (i % GROUP == 0)
        ((uint16_t *)args.scales)[i / GROUP] = load_u16(block);
}

/* A dense tensor of any type quantised as Q8_0 has it: scale = largest magnitude / 127 in float16. A thread a
 * block. */
GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_convert_quantise(GS_ARGS(struct gs_convert, args))
{
    int64_t block = global_thread();
    if (block >= args.rows * args.columns / GROUP)
        return;
    int64_t row = block * GROUP / args.columns, column = block * GROUP % args.columns;
    float largest = 0.0f;
    for (int i = 0; i < GROUP; i++) {
        float magnitude = gs_abs(file_element(args, row, column + i));
        largest = magnitude > largest ? magnitude : largest;
    }
    float scale = largest / 127.0f, inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    ((uint16_t *)args.scales)[block] = gs_f16_of_float(scale);
    for (int i = 0; i < GROUP; i++)
        ((int8_t *)args.to)[block * GROUP + i] =
            (int8_t)gs_round(file_element(args, row, column + i) * inverse);
}

/* A dense matrix in the device's form to bfloat16: to out, [rows][columns] of 2 bytes. A thread an element.
 */
GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_convert_bf16(GS_ARGS(struct gs_simple_linear, args))
{
    int64_t i = global_thread(), columns = args.matrix.columns;
    if (i < args.matrix.rows * columns)
        ((uint16_t *)args.out)[i] = gs_bf16_of_float(gs_matrix_at(&args.matrix, i / columns, i % columns));
}

/* Scales of experts, rows padded to scale_stride with zeros. A thread a byte of the result. */
GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_convert_scales(GS_ARGS(struct gs_convert, args))
{
    int64_t i = global_thread(), groups = args.columns / GROUP;
    if (i >= args.rows * args.scale_stride)
        return;
    int64_t row = i / args.scale_stride, group = i % args.scale_stride;
    ((uint8_t *)args.to)[i] = group < groups ? ((const uint8_t *)args.from)[row * groups + group] : 0;
}

/*
 * GGUF's blocks of 17 bytes (elements k and k+16 share byte k) to codes (elements 2k and 2k+1) and scales,
 * which were zeroed. With `odd` the even rows come from `from`. A thread a byte of codes.
 */
GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_convert_gguf(GS_ARGS(struct gs_convert, args))
{
    int64_t i = global_thread(), groups = args.columns / GROUP;
    if (i >= args.rows * groups * GROUP_BYTES)
        return;
    int64_t row = i / (groups * GROUP_BYTES), group = i / GROUP_BYTES % groups, k = i % GROUP_BYTES;
    const uint8_t *data = (const uint8_t *)args.from;
    int64_t stored = row;
    if (args.odd) { /* rows of an expert are even in number, so halves of all rows are halves of each */
        data = row % 2 ? (const uint8_t *)args.odd : data;
        stored = row / 2;
    }
    const uint8_t *block = data + (stored * groups + group) * GGUF_BLOCK_BYTES;
    const uint8_t *pair = block + 1 + 2 * (k % 8);
    uint32_t shift = k < 8 ? 0 : 4;
    ((uint8_t *)args.to)[i] = (uint8_t)((pair[0] >> shift & 15) | (pair[1] >> shift & 15) << 4);
    if (k == 0)
        ((uint8_t *)args.scales)[row * args.scale_stride + group] = block[0];
}

/* ---------------------------------------------------------------- rope */

/* Polynomials and range reduction of base/math.c, in double and in its order: the same bits as on the CPU. */
GS_DEVICE void exact_sincos(float x, float *sine, float *cosine)
{
    const double rounder = 0x1.8p52;
    double k = gs_add_f64(gs_add_f64(gs_mul_f64((double)x, 0x1.45f306dc9c883p-1), rounder), -rounder);
    double r = gs_add_f64(gs_add_f64((double)x, -gs_mul_f64(k, 0x1.921fb54400000p+0)),
                          -gs_mul_f64(k, 0x1.0b4611a626331p-34));
    double s = gs_mul_f64(r, r);
    const double sine_terms[] = {
        1.0 / 355687428096000.0, -1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0,
        1.0 / 362880.0,          -1.0 / 5040.0,          1.0 / 120.0,        -1.0 / 6.0};
    const double cosine_terms[] = {
        1.0 / 20922789888000.0, -1.0 / 87178291200.0, 1.0 / 479001600.0, -1.0 / 3628800.0,
        1.0 / 40320.0,          -1.0 / 720.0,         1.0 / 24.0,        -0.5};
    double sine_tail = sine_terms[0], cosine_tail = cosine_terms[0];
#pragma unroll
    for (int i = 1; i < 8; i++) {
        sine_tail = gs_add_f64(gs_mul_f64(sine_tail, s), sine_terms[i]);
        cosine_tail = gs_add_f64(gs_mul_f64(cosine_tail, s), cosine_terms[i]);
    }
    float sine_r = (float)gs_add_f64(r, gs_mul_f64(gs_mul_f64(r, s), sine_tail));
    float cosine_r = (float)gs_add_f64(1.0, gs_mul_f64(s, cosine_tail));
    int quarter = (int)((long long)k & 3);
    *sine = quarter == 0 ? sine_r : quarter == 1 ? cosine_r : quarter == 2 ? -sine_r : -cosine_r;
    *cosine = quarter == 0 ? cosine_r : quarter == 1 ? -sine_r : quarter == 2 ? -cosine_r : sine_r;
}

/* A thread a position and frequency. */
GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_convert_rope(GS_ARGS(struct gs_convert_rope, args))
{
    int64_t i = global_thread();
    if (i >= args.n_position * args.n_freq)
        return;
    float sine, cosine;
    exact_sincos((float)(i / args.n_freq) * args.inv_freq[i % args.n_freq], &sine, &cosine);
    args.table[2 * i] = cosine * args.scaling;
    args.table[2 * i + 1] = sine * args.scaling;
}

/* ---------------------------------------------------------------- for the verifier */

/* A thread eight elements. */
GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_dequantize(GS_ARGS(struct gs_dequantize, args))
{
    int64_t i = global_thread() * 8, columns = args.experts.columns;
    if (i >= args.n_rows * columns)
        return;
    float values[8];
    gs_experts_load8(&args.experts, args.first + i / columns, (int32_t)(i % columns), values);
#pragma unroll
    for (int j = 0; j < 8; j++)
        args.out[i + j] = values[j];
}
