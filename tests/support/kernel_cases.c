#include "tests/support/kernel_cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PATTERN 0xA5 /* of bytes that nobody has written */

size_t kernel_variant_count(void)
{
    return gs_kernels_count();
}

size_t kernel_checked_count(void)
{
    return gs_kernels_count() + (gs_kernels_find("avx512bf16") != NULL);
}

struct kernel_variant kernel_variant_at(size_t index)
{
    if (index == gs_kernels_count())
        return (struct kernel_variant){kernel_tiles_model.isa, NULL, &kernel_tiles_model};
    const struct gs_kernels *exact = gs_kernels_at(index);
    return (struct kernel_variant){exact->isa, exact, gs_fast_kernels_find(exact->isa)};
}

/* ---------------------------------------------------------------- buffers */

static uint32_t next_random(struct kernel_run *run)
{
    run->random = run->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(run->random >> 33);
}

/* From -1 to 1. */
static float next_float(struct kernel_run *run)
{
    return (float)((double)next_random(run) / (double)(1u << 30) - 1.0);
}

static void *guarded(struct kernel_run *run, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inside = (size + page - 1) / page * page;
    struct kernel_buffer *buffer = &run->buffers[run->n_buffers];
    char *mapping = run->n_buffers < KERNEL_MAX_BUFFERS
                        ? mmap(NULL, inside + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                        : MAP_FAILED;
    if (mapping == MAP_FAILED || mprotect(mapping + page, inside, PROT_READ | PROT_WRITE) != 0)
        abort();
    buffer->mapping = mapping;
    buffer->mapped = inside + 2 * page;
    buffer->size = size;
    buffer->data = (unsigned char *)mapping + page + (run->at_front ? 0 : inside - size);
    run->n_buffers++;
    return buffer->data;
}

static void *guarded_bytes(struct kernel_run *run, size_t size)
{
    unsigned char *bytes = guarded(run, size);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)next_random(run);
    return bytes;
}

static float *guarded_floats(struct kernel_run *run, size_t n)
{
    float *values = guarded(run, n * sizeof *values);
    for (size_t i = 0; i < n; i++)
        values[i] = next_float(run);
    return values;
}

static uint16_t *guarded_bf16(struct kernel_run *run, size_t n)
{
    uint16_t *values = guarded(run, n * sizeof *values);
    for (size_t i = 0; i < n; i++) {
        float value = next_float(run);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        values[i] = (uint16_t)(bits >> 16);
    }
    return values;
}

static void set_out(struct kernel_run *run, size_t size)
{
    run->out = guarded(run, size);
    run->out_size = size;
}

/* Rows that end a few floats before the next vector's begin: those in between stay as they are. */
static void set_product_out(struct kernel_run *run)
{
    run->stride = run->shape.n_rows + next_random(run) % 5;
    set_out(run, ((run->shape.n_x - 1) * run->stride + run->shape.n_rows) * sizeof(float));
}

/* ---------------------------------------------------------------- exact kernels */

static void prepare_dot(struct kernel_run *run)
{
    run->w = guarded_floats(run, run->shape.n);
    for (size_t j = 0; j < run->shape.n_x; j++)
        run->x[j] = guarded_floats(run, run->shape.n);
    set_out(run, run->shape.n_x * sizeof(float));
}

static void call_dot(const struct kernel_run *run, const struct kernel_variant *variant)
{
    variant->exact->dot(run->w, run->x, run->shape.n_x, run->shape.n, (float *)(void *)run->out);
}

/* Scales around one, and now and then the smallest, which is subnormal. */
static uint8_t next_scale(struct kernel_run *run)
{
    uint32_t random = next_random(run);
    return (uint8_t)(random % 53 == 0 ? 0 : 110 + random / 64 % 20);
}

/* Rows one after the other, as a model has them. */
static void make_mxfp4(struct kernel_run *run, bool is_gguf)
{
    size_t groups = run->shape.n / GS_MXFP4_GROUP, n_rows = run->shape.n_rows;
    size_t row_bytes = groups * (is_gguf ? GS_MXFP4_BLOCK_BYTES : GS_MXFP4_GROUP_BYTES);
    uint8_t *blocks = guarded_bytes(run, n_rows * row_bytes);
    uint8_t *scales = is_gguf ? NULL : guarded(run, n_rows * groups);
    for (size_t g = 0; g < n_rows * groups; g++)
        *(is_gguf ? &blocks[g * GS_MXFP4_BLOCK_BYTES] : &scales[g]) = next_scale(run);
    for (size_t r = 0; r < n_rows; r++)
        run->mxfp4[r] = (struct gs_mxfp4_row){blocks + r * row_bytes, is_gguf ? NULL : scales + r * groups};
}

static void prepare_dequantize(struct kernel_run *run)
{
    make_mxfp4(run, false);
    set_out(run, run->shape.n * sizeof(float));
}

static void prepare_dequantize_gguf(struct kernel_run *run)
{
    make_mxfp4(run, true);
    set_out(run, run->shape.n * sizeof(float));
}

static void call_dequantize(const struct kernel_run *run, const struct kernel_variant *variant)
{
    float *out = (float *)(void *)run->out;
    if (run->mxfp4[0].scales)
        variant->exact->dequantize_mxfp4(run->mxfp4[0].blocks, run->mxfp4[0].scales, (int64_t)run->shape.n,
                                         out);
    else
        variant->exact->dequantize_mxfp4_gguf(run->mxfp4[0].blocks, (int64_t)run->shape.n, out);
}

/* ---------------------------------------------------------------- fast kernels: vectors */

/* Blocks of very different size, one of them all zeros, and ties of the rounding. */
static void prepare_vector(struct kernel_run *run)
{
    float *x = guarded_floats(run, run->shape.n);
    for (size_t i = 0; i < run->shape.n; i++) {
        x[i] = ldexpf(x[i], (int)(i / 32 % 12) * 3 - 18);
        if (i / 32 % 7 == 3)
            x[i] = 0.0f;
        else if (i / 32 % 7 == 5)
            x[i] = (float)((int)(next_random(run) % 255) - 127) + 0.5f;
    }
    run->x[0] = x;
}

static void prepare_quantize(struct kernel_run *run)
{
    prepare_vector(run);
    set_out(run, gs_q8_chunk_count(run->shape.n) * sizeof(struct gs_q8_chunk));
}

static void call_quantize_pairs(const struct kernel_run *run, const struct kernel_variant *variant)
{
    variant->fast->quantize_q8(run->x[0], run->shape.n, GS_Q8_PAIRS, (struct gs_q8_chunk *)(void *)run->out);
}

static void call_quantize_halves(const struct kernel_run *run, const struct kernel_variant *variant)
{
    variant->fast->quantize_q8(run->x[0], run->shape.n, GS_Q8_HALVES, (struct gs_q8_chunk *)(void *)run->out);
}

static void prepare_quantize_q8_0(struct kernel_run *run)
{
    prepare_vector(run);
    set_out(run, run->shape.n / 32 * 34);
}

static void call_quantize_q8_0(const struct kernel_run *run, const struct kernel_variant *variant)
{
    variant->fast->quantize_q8_0(run->x[0], run->shape.n, run->out);
}

static void prepare_round(struct kernel_run *run)
{
    uint32_t *bits = guarded(run, run->shape.n * sizeof *bits);
    for (size_t i = 0; i < run->shape.n; i++) {
        bits[i] = next_random(run) << 1;
        if (i % 5 == 0)
            bits[i] = (bits[i] & 0xFFFF0000u) | 0x8000u; /* a tie */
        if (i % 31 == 7)
            bits[i] = 0x7F800000u | (i & 1 ? 0x00000001u : 0u); /* a NaN, or infinity */
    }
    run->x[0] = (const float *)(const void *)bits;
    set_out(run, run->shape.n * sizeof(uint16_t));
}

static void call_round(const struct kernel_run *run, const struct kernel_variant *variant)
{
    variant->fast->round_bf16(run->x[0], run->shape.n, (uint16_t *)(void *)run->out);
}

static void prepare_norm(struct kernel_run *run)
{
    run->x[0] = guarded_floats(run, run->shape.n);
    run->w = guarded_floats(run, run->shape.n);
    set_out(run, run->shape.n * sizeof(float));
}

static void call_norm(const struct kernel_run *run, const struct kernel_variant *variant)
{
    variant->fast->rms_norm(run->x[0], run->w, run->shape.n, 1e-5f, (float *)(void *)run->out);
}

static void prepare_swiglu(struct kernel_run *run)
{
    float *gate_up = guarded_floats(run, 2 * run->shape.n);
    for (size_t i = 0; i < 2 * run->shape.n; i++)
        gate_up[i] *= 12.0f; /* the limit is 7 */
    run->x[0] = gate_up;
    set_out(run, run->shape.n * sizeof(float));
}

static void call_swiglu(const struct kernel_run *run, const struct kernel_variant *variant)
{
    variant->fast->swiglu(run->x[0], run->shape.n, 7.0f, 1.702f, (float *)(void *)run->out);
}

static size_t activated_size(const struct kernel_run *run)
{
    return run->shape.n_x * gs_q8_chunk_count(run->shape.n) * sizeof(struct gs_q8_chunk);
}

/* Blocks of 32 units of n_x rows, as tiles leave them. */
static void prepare_activate(struct kernel_run *run)
{
    size_t n_floats = 2 * run->shape.n * run->shape.n_x;
    float *gate_up = guarded_floats(run, n_floats);
    for (size_t i = 0; i < n_floats; i++)
        gate_up[i] *= 12.0f;
    run->x[0] = gate_up;
    run->w = guarded_floats(run, 2 * run->shape.n);
    run->work = guarded(run, activated_size(run));
    set_out(run, run->shape.n_x * run->shape.n * sizeof(float));
}

/* The output: q * scale of all rows, block by block, in the order of a chunk. */
static void call_activate(const struct kernel_run *run, const struct kernel_variant *variant)
{
    size_t n_x = run->shape.n_x, n_blocks = run->shape.n / 32, stride = gs_q8_chunk_count(run->shape.n);
    struct gs_q8_chunk *chunks = run->work;
    float *out = (float *)(void *)run->out;
    memset(chunks, 0, activated_size(run));
    for (size_t b = 0; b < n_blocks; b++) {
        struct gs_activation how = {7.0f, 1.702f, GS_Q8_PAIRS, b};
        variant->fast->activate_q8(&how, run->x[0] + 64 * b * n_x, run->w + 64 * b, n_x, chunks, stride);
    }
    for (size_t t = 0; t < n_x; t++, chunks += stride)
        for (size_t i = 0; i < run->shape.n; i++) {
            const struct gs_q8_chunk *chunk = &chunks[i / GS_Q8_CHUNK];
            size_t block = i / 32 % 4, at = i % 32;
            *out++ = (float)chunk->q[at / 16 * 64 + block * 16 + at % 16] * chunk->scale[4 * block];
        }
}

/* The output begins as another row. */
static void prepare_add(struct kernel_run *run)
{
    run->x[0] = guarded_floats(run, run->shape.n);
    run->w = guarded_floats(run, run->shape.n);
    set_out(run, run->shape.n * sizeof(float));
}

static void call_add(const struct kernel_run *run, const struct kernel_variant *variant)
{
    memcpy(run->out, run->w, run->out_size);
    variant->fast->add_scaled((float *)(void *)run->out, run->x[0], 0.3f, run->shape.n);
}

/* n_x rows that begin as others. */
static void prepare_bias(struct kernel_run *run)
{
    run->stride = run->shape.n + next_random(run) % 5;
    run->w = guarded_floats(run, run->shape.n);
    for (size_t t = 0; t < run->shape.n_x; t++)
        run->x[t] = guarded_floats(run, run->shape.n);
    set_out(run, ((run->shape.n_x - 1) * run->stride + run->shape.n) * sizeof(float));
}

static void call_bias(const struct kernel_run *run, const struct kernel_variant *variant)
{
    float *out = (float *)(void *)run->out;
    for (size_t t = 0; t < run->shape.n_x; t++)
        memcpy(out + t * run->stride, run->x[t], run->shape.n * sizeof *out);
    variant->fast->add_bias(out, run->stride, run->shape.n_x, run->w, run->shape.n);
}

/* Three heads of 2n. */
static void prepare_rotate(struct kernel_run *run)
{
    run->x[0] = guarded_floats(run, 6 * run->shape.n);
    run->w = guarded_floats(run, 2 * run->shape.n); /* cosine, sine */
    set_out(run, 6 * run->shape.n * sizeof(float));
}

static void call_rotate(const struct kernel_run *run, const struct kernel_variant *variant)
{
    memcpy(run->out, run->x[0], run->out_size);
    variant->fast->rotate(run->w, run->w + run->shape.n, 2 * run->shape.n, (float *)(void *)run->out, 3);
}

/* ---------------------------------------------------------------- fast kernels: products */

static void make_q8(struct kernel_run *run, enum gs_q8_order order)
{
    size_t n_chunks = gs_q8_chunk_count(run->shape.n);
    float *x = malloc(run->shape.n * sizeof *x);
    if (!x)
        abort();
    for (size_t j = 0; j < run->shape.n_x; j++) {
        struct gs_q8_chunk *chunks = guarded(run, n_chunks * sizeof *chunks);
        for (size_t i = 0; i < run->shape.n; i++)
            x[i] = next_float(run);
        gs_fast_kernels_at(0)->quantize_q8(x, run->shape.n, order, chunks);
        run->q8[j] = chunks;
    }
    free(x);
    run->work = guarded(run, (gs_fast_work_bytes(run->shape.n) + 63) / 64 * 64);
    set_product_out(run);
}

static void prepare_mxfp4(struct kernel_run *run)
{
    make_mxfp4(run, false);
    make_q8(run, GS_Q8_PAIRS);
}

static void prepare_mxfp4_gguf(struct kernel_run *run)
{
    make_mxfp4(run, true);
    make_q8(run, GS_Q8_HALVES);
}

static void call_mxfp4(const struct kernel_run *run, const struct kernel_variant *variant)
{
    variant->fast->mxfp4_q8(run->mxfp4, run->shape.n_rows, run->shape.n, run->q8, run->shape.n_x, run->work,
                            (float *)(void *)run->out, run->stride);
}

static void prepare_q8_0(struct kernel_run *run)
{
    size_t groups = run->shape.n / 32;
    uint8_t *blocks = guarded_bytes(run, run->shape.n_rows * groups * 34);
    for (size_t g = 0; g < run->shape.n_rows * groups; g++) {
        /* The scale: an F16 from about 0.001 to 1, or a subnormal one. */
        uint32_t random = next_random(run);
        uint16_t scale = (uint16_t)(random % 41 == 0 ? random / 64 % 1024 : 0x1400 + random / 64 % 0x2800);
        uint8_t *block = blocks + g * 34;
        block[0] = (uint8_t)scale;
        block[1] = (uint8_t)(scale >> 8);
        for (int i = 2; i < 34; i++) /* -128 does not occur in Q8_0 */
            block[i] = block[i] == 128 ? 129 : block[i];
    }
    for (size_t r = 0; r < run->shape.n_rows; r++)
        run->q8_0[r].blocks = blocks + r * groups * 34;
    make_q8(run, GS_Q8_HALVES);
}

static void call_q8_0(const struct kernel_run *run, const struct kernel_variant *variant)
{
    variant->fast->q8_0_q8(run->q8_0, run->shape.n_rows, run->shape.n, run->q8, run->shape.n_x, run->work,
                           (float *)(void *)run->out, run->stride);
}

static void prepare_bf16(struct kernel_run *run)
{
    run->bf16_rows.data = (const unsigned char *)guarded_bf16(run, run->shape.n_rows * run->shape.n);
    for (size_t j = 0; j < run->shape.n_x; j++)
        run->bf16[j] = guarded_bf16(run, run->shape.n);
    run->work = guarded(run, (gs_fast_work_bytes(run->shape.n) + 63) / 64 * 64);
    set_product_out(run);
}

static void call_bf16(const struct kernel_run *run, const struct kernel_variant *variant)
{
    variant->fast->bf16_bf16(&run->bf16_rows, run->shape.n_rows, run->shape.n, run->bf16, run->shape.n_x,
                             run->work, (float *)(void *)run->out, run->stride, false);
}

/* ---------------------------------------------------------------- attention */

static void prepare_attend(struct kernel_run *run)
{
    struct gs_fast_attention *a = &run->attention;
    int64_t visible = (int64_t)run->shape.n_x, d = (int64_t)run->shape.n, block = GS_FAST_KEY_BLOCK;
    a->d_head = d;
    a->n_head = (int64_t)run->shape.n_rows;
    a->n_slot = ((visible + block - 1) / block + (int64_t)(next_random(run) % 3)) * block;
    a->first = (int64_t)(next_random(run) % 1000); /* a ring begins anywhere */
    a->last = a->first + visible - 1;
    a->scale = 1.0f / sqrtf((float)d);
    float *query = guarded_floats(run, (size_t)(a->n_head * d));
    for (int64_t i = 0; i < a->n_head * d; i++)
        query[i] *= 6.0f; /* scores that differ */
    a->query = query;
    a->sinks = guarded_floats(run, (size_t)a->n_head);
    a->keys = guarded_bf16(run, (size_t)(a->n_slot * d));
    a->values = guarded_bf16(run, (size_t)(a->n_slot * d));
    a->work = guarded(run, (gs_fast_attention_bytes(a->n_head, d) + 63) / 64 * 64);
    set_out(run, (size_t)(a->n_head * d) * sizeof(float));
    a->out = (float *)(void *)run->out;
    a->next = a; /* whatever is asked for, results are the same */
}

static void call_attend(const struct kernel_run *run, const struct kernel_variant *variant)
{
    gs_fast_attend(variant->fast, &run->attention);
}

/* ---------------------------------------------------------------- work */

static double product_count(const struct kernel_shape *s)
{
    return (double)s->n * (double)s->n_rows * (double)s->n_x;
}

static double element_count(const struct kernel_shape *s)
{
    return (double)s->n;
}

static double float_bytes(const struct kernel_shape *s)
{
    return (double)s->n * 4.0;
}

static double pair_bytes(const struct kernel_shape *s)
{
    return (double)s->n * 8.0;
}

static double mxfp4_bytes(const struct kernel_shape *s)
{
    return (double)s->n * (double)s->n_rows * 17.0 / 32.0;
}

static double q8_0_bytes(const struct kernel_shape *s)
{
    return (double)s->n * (double)s->n_rows * 34.0 / 32.0;
}

static double bf16_bytes(const struct kernel_shape *s)
{
    return (double)s->n * (double)s->n_rows * 2.0;
}

static double cache_bytes(const struct kernel_shape *s)
{
    return (double)s->n * (double)s->n_x * 4.0;
}

static double attention_count(const struct kernel_shape *s)
{
    return 2.0 * product_count(s);
}

/* ---------------------------------------------------------------- the table */

#define ROWS      KERNEL_MAX_ROWS
#define ACTIVATED 0.1  /* an activation may be rounded to the number beside it */
#define ATTENTION 4e-3 /* a probability may be rounded to the other bfloat16 beside it */

const struct kernel_case kernel_cases[] = {
    {"dot", true, 0, 1, 1, 13, prepare_dot, call_dot, float_bytes, product_count},
    {"dequantize_mxfp4", true, 0, 32, 1, 1, prepare_dequantize, call_dequantize, mxfp4_bytes, element_count},
    {"dequantize_mxfp4_gguf", true, 0, 32, 1, 1, prepare_dequantize_gguf, call_dequantize, mxfp4_bytes,
     element_count},
    {"quantize_q8, pairs", true, 0, 32, 1, 1, prepare_quantize, call_quantize_pairs, float_bytes,
     element_count},
    {"quantize_q8, halves", true, 0, 32, 1, 1, prepare_quantize, call_quantize_halves, float_bytes,
     element_count},
    {"quantize_q8_0", true, 0, 32, 1, 1, prepare_quantize_q8_0, call_quantize_q8_0, float_bytes,
     element_count},
    {"round_bf16", true, 0, 1, 1, 1, prepare_round, call_round, float_bytes, element_count},
    {"rms_norm", false, 1e-5, 1, 1, 1, prepare_norm, call_norm, pair_bytes, element_count},
    {"swiglu", false, 1e-5, 1, 1, 1, prepare_swiglu, call_swiglu, pair_bytes, element_count},
    {"activate_q8", false, ACTIVATED, 32, 1, 13, prepare_activate, call_activate, pair_bytes, product_count},
    {"add_scaled", true, 0, 1, 1, 1, prepare_add, call_add, pair_bytes, element_count},
    {"add_bias", true, 0, 1, 1, 13, prepare_bias, call_bias, float_bytes, product_count},
    {"rotate", true, 0, 1, 1, 1, prepare_rotate, call_rotate, float_bytes, element_count},
    {"mxfp4_q8", false, 2e-5, 32, ROWS, 40, prepare_mxfp4, call_mxfp4, mxfp4_bytes, product_count},
    {"mxfp4_q8, GGUF", false, 2e-5, 32, ROWS, 40, prepare_mxfp4_gguf, call_mxfp4, mxfp4_bytes, product_count},
    {"q8_0_q8", false, 2e-5, 32, ROWS, 40, prepare_q8_0, call_q8_0, q8_0_bytes, product_count},
    {"bf16_bf16", false, 2e-5, 32, ROWS, 40, prepare_bf16, call_bf16, bf16_bytes, product_count},
    {"attend", false, ATTENTION, 2, 8, 700, prepare_attend, call_attend, cache_bytes, attention_count},
};
const size_t kernel_case_count = sizeof kernel_cases / sizeof *kernel_cases;

bool kernel_has(const struct kernel_case *kernel, const struct kernel_variant *variant)
{
    bool is_tiled = kernel->call == call_mxfp4 || kernel->call == call_q8_0;
    bool is_exact_table = kernel->call == call_dot || kernel->call == call_dequantize;
    if (variant->fast == &kernel_tiles_model)
        return is_tiled;
    return is_exact_table || variant->fast != NULL;
}

void kernel_prepare(struct kernel_run *run, const struct kernel_case *kernel, struct kernel_shape shape,
                    uint64_t seed)
{
    *run = (struct kernel_run){
        .kernel = kernel, .shape = shape, .random = seed * 0x9e3779b97f4a7c15u + 1, .at_front = seed % 2};
    kernel->prepare(run);
}

void kernel_release(struct kernel_run *run)
{
    for (size_t i = 0; i < run->n_buffers; i++)
        munmap(run->buffers[i].mapping, run->buffers[i].mapped);
    run->n_buffers = 0;
}

void kernel_call(struct kernel_run *run, const struct kernel_variant *variant)
{
    memset(run->out, PATTERN, run->out_size);
    run->kernel->call(run, variant);
}

static double float_difference(const struct kernel_run *run, const float *a, const float *b)
{
    size_t n = run->out_size / sizeof *a, n_finite = 0;
    double squares = 0.0, largest = 0.0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(a[i])) {
            squares += (double)a[i] * (double)a[i];
            n_finite++;
        }
    double allowed = run->kernel->tolerance * sqrt(squares / (double)(n_finite ? n_finite : 1)) + 1e-30;
    for (size_t i = 0; i < n; i++) {
        double difference = fabs((double)a[i] - (double)b[i]) / allowed;
        if (memcmp(&a[i], &b[i], sizeof *a) == 0)
            continue;
        if (!(difference <= HUGE_VAL) || !isfinite(a[i]) || !isfinite(b[i]))
            return HUGE_VAL;
        /* Between two vectors' rows nothing is written. */
        if (run->stride > 0 && i % run->stride >= run->shape.n_rows)
            return HUGE_VAL;
        largest = difference > largest ? difference : largest;
    }
    return largest;
}

double kernel_difference(const struct kernel_run *run, const unsigned char *a, const unsigned char *b)
{
    if (run->kernel->is_exact)
        return memcmp(a, b, run->out_size) == 0 ? 0.0 : HUGE_VAL;
    return float_difference(run, (const float *)(const void *)a, (const float *)(const void *)b);
}
