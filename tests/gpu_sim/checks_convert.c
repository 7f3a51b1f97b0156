/* Loading: what files have becomes what the device has, to the bit. */
#include "base/math.h"
#include "model/matrix.h"
#include "model/mxfp4.h"
#include "tests/gpu_sim/checks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t blocks_of(size_t n_threads)
{
    return (uint32_t)((n_threads + GS_SIMPLE_THREADS - 1) / GS_SIMPLE_THREADS);
}

/* Bytes of n elements of a file's type, random but finite. */
static unsigned char *make_file(struct check *check, enum gs_weight_type type, int64_t n, size_t *bytes)
{
    *bytes = (size_t)gs_weight_bytes(type, n);
    unsigned char *data = malloc(*bytes);
    for (size_t i = 0; i < *bytes; i++)
        data[i] = (unsigned char)check_random(check);
    for (int64_t i = 0; i < n; i++) { /* the top byte of each number: no infinity, no NaN */
        if (type == GS_WEIGHT_F32)
            data[4 * i + 3] = (unsigned char)(0x3e | (data[4 * i + 3] & 0x81));
        else if (type == GS_WEIGHT_Q8_0)
            data[i / 32 * 34 + 1] &= 0xbb;
        else
            data[2 * i + 1] &= 0xbb;
    }
    return data;
}

static struct gs_convert give_file(struct check *check, const struct gs_matrix *m, size_t bytes)
{
    struct gs_convert args = {.type = (int32_t)m->type, .rows = m->rows, .columns = m->columns};
    args.from = check_give(check, "the file", m->data, bytes);
    args.odd = m->odd ? check_give(check, "the odd columns", m->odd, bytes) : NULL;
    return args;
}

static void convert_shape(struct check *check, enum gs_weight_type type, int64_t rows, int64_t columns,
                          bool halves)
{
    size_t n = (size_t)(rows * columns), bytes, ignored;
    int64_t stored = halves ? rows * columns / 2 : rows * columns;
    unsigned char *data = make_file(check, type, stored, &bytes);
    unsigned char *odd = halves ? make_file(check, type, stored, &ignored) : NULL;
    struct gs_matrix m = {.data = data, .type = type, .rows = rows, .columns = columns, .odd = odd};
    float *values = calloc(n, 4), *turned = calloc(n, 4), *norm = calloc((size_t)columns, 4);
    uint16_t *narrow = calloc(n, 2);
    check_numbers(check, norm, (size_t)columns);
    for (int64_t r = 0; r < rows; r++) {
        gs_matrix_row(&m, r, values + r * columns);
        for (int64_t c = 0; c < columns; c++)
            turned[c * rows + r] = values[r * columns + c] * norm[c];
    }
    struct gs_convert args = give_file(check, &m, bytes);
    float *to = args.to = check_give(check, "floats", NULL, n * 4);
    check_launch(check, "gs_convert_f32", blocks_of(n), 1, 1, GS_SIMPLE_THREADS, 0, &args);
    check_same(check, "to float32", to, values, n * 4);
    args.to = check_give(check, "columns", NULL, n * 4);
    args.scales = check_give(check, "norm", norm, (size_t)columns * 4);
    check_launch(check, "gs_convert_columns", blocks_of(n), 1, 1, GS_SIMPLE_THREADS, 0, &args);
    check_same(check, "to columns", args.to, turned, n * 4);
    /* And from the device's float32 to bfloat16, to nearest, ties to even. */
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], 4);
        uint32_t rest = bits & 0xffffu, low = bits >> 16 & 1u;
        narrow[i] = (uint16_t)((bits >> 16) + (rest > 0x8000u || (rest == 0x8000u && low)));
    }
    struct gs_simple_linear wide = {
        .matrix = {.data = to, .type = GS_GPU_F32, .rows = (int32_t)rows, .columns = (int32_t)columns}};
    wide.out = check_give(check, "bfloat16", NULL, n * 2);
    check_launch(check, "gs_convert_bf16", blocks_of(n), 1, 1, GS_SIMPLE_THREADS, 0, &wide);
    check_same(check, "to bfloat16", wide.out, narrow, n * 2);
    free(data);
    free(odd);
    free(values);
    free(turned);
    free(norm);
    free(narrow);
    check_release(check);
}

void check_convert_dense(struct check *check)
{
    static const enum gs_weight_type types[] = {GS_WEIGHT_F32, GS_WEIGHT_BF16, GS_WEIGHT_F16, GS_WEIGHT_Q8_0};
    for (size_t t = 0; t < 4; t++) {
        convert_shape(check, types[t], 5, 64, false);
        convert_shape(check, types[t], 3, 128, true);
        if (types[t] != GS_WEIGHT_Q8_0)
            convert_shape(check, types[t], 7, 33, false);
    }
}

/* ---------------------------------------------------------------- 8 bits */

/* The half nearest to a positive normal value, ties to even, without a type for it. */
static uint16_t half_of(float value)
{
    int exponent;
    if (value == 0.0f)
        return 0;
    frexpf(value, &exponent);
    int unit = exponent - 11 > -24 ? exponent - 11 : -24;
    return (uint16_t)((unsigned)(unit + 24) * 1024u + (unsigned)nearbyintf(ldexpf(value, -unit)));
}

void check_convert_quantise(struct check *check)
{
    enum { ROWS = 3, COLUMNS = 96, N = ROWS * COLUMNS, BLOCKS = N / 32 };
    float values[N];
    int8_t codes[N];
    uint16_t scales[BLOCKS];
    unsigned char file[BLOCKS * GS_Q8_0_BLOCK_BYTES];
    check_numbers(check, values, N);
    memset(values + 64, 0, 32 * sizeof *values); /* a block of zeros */
    for (int b = 0; b < BLOCKS; b++) {
        float largest = 0.0f, scale, inverse;
        for (int i = 0; i < 32; i++)
            largest = fmaxf(largest, fabsf(values[b * 32 + i]));
        scale = largest / 127.0f;
        inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
        scales[b] = half_of(scale);
        for (int i = 0; i < 32; i++)
            codes[b * 32 + i] = (int8_t)roundf(values[b * 32 + i] * inverse);
        memcpy(file + b * GS_Q8_0_BLOCK_BYTES, &scales[b], 2);
        memcpy(file + b * GS_Q8_0_BLOCK_BYTES + 2, codes + b * 32, 32);
    }
    struct gs_convert args = {.type = GS_WEIGHT_F32, .rows = ROWS, .columns = COLUMNS};
    args.from = check_give(check, "the file", values, sizeof values);
    args.to = check_give(check, "codes", NULL, sizeof codes);
    args.scales = check_give(check, "scales", NULL, sizeof scales);
    check_launch(check, "gs_convert_quantise", blocks_of(BLOCKS), 1, 1, GS_SIMPLE_THREADS, 0, &args);
    check_same(check, "quantised", args.to, codes, sizeof codes);
    check_same(check, "quantised: scales", args.scales, scales, sizeof scales);
    check_release(check);
    args.from = check_give(check, "the file", file, sizeof file);
    args.to = check_give(check, "codes", NULL, sizeof codes);
    args.scales = check_give(check, "scales", NULL, sizeof scales);
    check_launch(check, "gs_convert_q8_0", blocks_of(N), 1, 1, GS_SIMPLE_THREADS, 0, &args);
    check_same(check, "Q8_0", args.to, codes, sizeof codes);
    check_same(check, "Q8_0: scales", args.scales, scales, sizeof scales);
}

/* ---------------------------------------------------------------- experts */

static void convert_gguf(struct check *check, int64_t rows, int64_t columns, bool halves)
{
    size_t groups = (size_t)columns / 32, n = (size_t)rows * groups, stride = (groups + 15) / 16 * 16;
    size_t bytes = n * GS_MXFP4_BLOCK_BYTES, each = halves ? bytes / 2 : bytes;
    uint8_t *blocks = malloc(bytes), *zeros = calloc((size_t)rows, stride);
    float *expected = calloc(n * 32, 4), *found = calloc(n * 32, 4);
    for (size_t i = 0; i < bytes; i++)
        blocks[i] =
            (uint8_t)(i % GS_MXFP4_BLOCK_BYTES == 0 ? 60 + check_random(check) % 130 : check_random(check));
    struct gs_convert args = {.rows = rows, .columns = columns, .scale_stride = (int32_t)stride};
    args.from = check_give(check, "blocks", blocks, each);
    args.odd = halves ? check_give(check, "odd blocks", blocks + each, each) : NULL;
    uint8_t *codes = args.to = check_give(check, "codes", NULL, n * 16);
    uint8_t *scales = args.scales = check_give(check, "scales", zeros, (size_t)rows * stride);
    check_launch(check, "gs_convert_gguf", blocks_of(n * 16), 1, 1, GS_SIMPLE_THREADS, 0, &args);
    for (int64_t r = 0; r < rows; r++) {
        size_t half = halves ? (size_t)(r % 2) * each : 0, stored = (size_t)(halves ? r / 2 : r);
        gs_mxfp4_dequantize_gguf(blocks + half + stored * groups * GS_MXFP4_BLOCK_BYTES, columns,
                                 expected + r * columns);
        gs_mxfp4_dequantize(codes + (size_t)r * groups * 16, scales + (size_t)r * stride, columns,
                            found + r * columns);
    }
    check_same(check, "GGUF's blocks", found, expected, n * 32 * 4);
    free(blocks);
    free(zeros);
    free(expected);
    free(found);
    check_release(check);
}

static void convert_scales(struct check *check, int64_t rows, int64_t groups)
{
    size_t stride = ((size_t)groups + 15) / 16 * 16, n = (size_t)(rows * groups);
    uint8_t *scales = malloc(n), *expected = calloc((size_t)rows, stride);
    for (size_t i = 0; i < n; i++) {
        scales[i] = (uint8_t)check_random(check);
        expected[i / (size_t)groups * stride + i % (size_t)groups] = scales[i];
    }
    struct gs_convert args = {.rows = rows, .columns = 32 * groups, .scale_stride = (int32_t)stride};
    args.from = check_give(check, "scales", scales, n);
    args.to = check_give(check, "padded", NULL, (size_t)rows * stride);
    check_launch(check, "gs_convert_scales", blocks_of((size_t)rows * stride), 1, 1, GS_SIMPLE_THREADS, 0,
                 &args);
    check_same(check, "scales", args.to, expected, (size_t)rows * stride);
    free(scales);
    free(expected);
    check_release(check);
}

void check_convert_experts(struct check *check)
{
    convert_gguf(check, 5, 96, false);
    convert_gguf(check, 6, 64, true);
    convert_gguf(check, 2, 640, true);
    convert_scales(check, 5, 3);
    convert_scales(check, 3, 16);
    convert_scales(check, 2, 90);
}

/* ---------------------------------------------------------------- rope, and back */

void check_rope(struct check *check)
{
    enum { POSITIONS = 300, FREQUENCIES = 5 };
    static const float inv_freq[FREQUENCIES] = {1.0f, 0.3f, 0.01f, 700.5f, 1e-6f};
    float expected[POSITIONS * FREQUENCIES * 2];
    struct gs_convert_rope args = {.n_position = POSITIONS, .n_freq = FREQUENCIES, .scaling = 1.3f};
    for (int i = 0; i < POSITIONS * FREQUENCIES; i++) {
        float sine, cosine;
        gs_sincos((float)(i / FREQUENCIES) * inv_freq[i % FREQUENCIES], &sine, &cosine);
        expected[2 * i] = cosine * args.scaling;
        expected[2 * i + 1] = sine * args.scaling;
    }
    args.inv_freq = check_give(check, "frequencies", inv_freq, sizeof inv_freq);
    args.table = check_give(check, "rope", NULL, sizeof expected);
    check_launch(check, "gs_convert_rope", blocks_of(POSITIONS * FREQUENCIES), 1, 1, GS_SIMPLE_THREADS, 0,
                 &args);
    check_same(check, "rope", args.table, expected, sizeof expected);
}

/* The MXFP4 reader: every code under every scale, to the bit. */
void check_dequantize(struct check *check)
{
    enum { ROWS = GS_MXFP4_SCALE_NAN, COLUMNS = 64, STRIDE = 16 };
    uint8_t codes[ROWS * COLUMNS / 2], scales[ROWS * STRIDE] = {0};
    float *expected = calloc(ROWS * COLUMNS, 4);
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < COLUMNS / 2; i++) /* the codes 0 ... 15 in either nibble */
            codes[r * COLUMNS / 2 + i] = (uint8_t)(i % 16 | ((i * 7 + i / 16) % 16) << 4);
        scales[r * STRIDE] = (uint8_t)r;
        scales[r * STRIDE + 1] = (uint8_t)(ROWS - 1 - r);
        gs_mxfp4_dequantize(codes + r * COLUMNS / 2, scales + r * STRIDE, COLUMNS, expected + r * COLUMNS);
    }
    struct gs_dequantize args = {.experts = {.rows = ROWS, .columns = COLUMNS, .scale_stride = STRIDE},
                                 .first = 1,
                                 .n_rows = ROWS - 1};
    args.experts.codes = check_give(check, "codes", codes, sizeof codes);
    args.experts.scales = check_give(check, "scales", scales, sizeof scales);
    args.out = check_give(check, "out", NULL, (ROWS - 1) * COLUMNS * 4);
    check_launch(check, "gs_dequantize", blocks_of((ROWS - 1) * COLUMNS / 8), 1, 1, GS_SIMPLE_THREADS, 0,
                 &args);
    check_same(check, "MXFP4", args.out, expected + COLUMNS, (ROWS - 1) * COLUMNS * 4);
    free(expected);
}
