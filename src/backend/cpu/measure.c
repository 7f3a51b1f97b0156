#include "backend/cpu/measure.h"

#include "backend/cpu/kernels.h"
#include "backend/cpu/measure_peak.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CACHE_MULTIPLE 8             /* the buffer's size in last-level caches */
#define ASSUMED_CACHE  (32ull << 20) /* where the system does not say */
#if defined(__SANITIZE_ADDRESS__)    /* loops an order slower, whose figures nobody reads */
#define LEAST_BUFFER (16ull << 20)
#define MOST_BUFFER  (16ull << 20)
#define PEAK_ROUNDS  5000
#else
#define LEAST_BUFFER (256ull << 20)
#define MOST_BUFFER  (2ull << 30)
#define PEAK_ROUNDS  100000 /* of a loop of arithmetic: some tenths of a millisecond */
#endif
#define PIECE       (1u << 20) /* bytes that a thread reads at a time: from two places in turn */
#define AHEAD       2048       /* bytes: asked for before they are read; one core alone gains a third */
#define ROW_GRAIN   16         /* rows that a thread takes at a time, as in the forward */
#define SINK_STRIDE 8          /* a cache line apart */
#define PEAK_ITEMS  20         /* such loops a thread */

typedef uint64_t vector __attribute__((vector_size(16)));
#define LINE_VECTORS 4

struct gs_measure {
    struct gs_threads *threads;
    const struct gs_kernels *kernels;
    unsigned char *buffer; /* [bytes], mapped */
    uint64_t bytes;
    uint64_t *sinks; /* [n_threads][SINK_STRIDE]: what was read, so that it had to be */
    float *rows;     /* [n_threads][row_size] */
    size_t row_size;
};

/* What the system says of this processor's caches: in a virtual machine its share, not the whole chip's. */
static uint64_t read_cache_size(void)
{
    uint64_t most = 0;
    for (int index = 0; index < 8; index++) {
        char path[80];
        unsigned long long kibibytes = 0;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
        FILE *file = fopen(path, "re");
        if (!file)
            break;
        if (fscanf(file, "%7lluK", &kibibytes) == 1 && kibibytes * 1024 > most)
            most = kibibytes * 1024;
        fclose(file);
    }
    return most;
}

uint64_t gs_measure_cache_bytes(void)
{
    uint64_t bytes = read_cache_size();
#if defined(_SC_LEVEL3_CACHE_SIZE)
    long level_3 = bytes == 0 ? sysconf(_SC_LEVEL3_CACHE_SIZE) : 0;
    bytes = level_3 > 0 ? (uint64_t)level_3 : bytes;
#endif
    return bytes;
}

static void fill_piece(void *user, size_t begin, size_t end, size_t thread)
{
    struct gs_measure *measure = user;
    (void)thread;
    memset(measure->buffer + begin * PIECE, 0x5a, (end - begin) * PIECE);
}

void gs_measure_close(struct gs_measure *measure)
{
    if (!measure)
        return;
    gs_threads_close(measure->threads);
    if (measure->buffer)
        munmap(measure->buffer, measure->bytes);
    free(measure->sinks);
    free(measure->rows);
    free(measure);
}

/* Written to once, by the threads that will read it: pages never written are all one page of zeros. */
static gs_status make_buffer(struct gs_measure *measure, struct gs_error *error)
{
    uint64_t cache = gs_measure_cache_bytes();
    uint64_t bytes = CACHE_MULTIPLE * (cache > 0 ? cache : ASSUMED_CACHE);
    bytes = bytes < LEAST_BUFFER ? LEAST_BUFFER : bytes > MOST_BUFFER ? MOST_BUFFER : bytes;
    bytes -= bytes % PIECE;
    void *buffer = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED)
        return gs_fail_memory(error, bytes);
    measure->buffer = buffer;
    measure->bytes = bytes;
#if defined(MADV_HUGEPAGE)
    /* The memory's speed, not that of the page tables; refused on some systems, which is no loss. */
    (void)madvise(buffer, bytes, MADV_HUGEPAGE);
#endif
    gs_threads_run(measure->threads, fill_piece, measure, bytes / PIECE, 1);
    return GS_OK;
}

gs_status gs_measure_open(size_t n_threads, struct gs_measure **out, struct gs_error *error)
{
    *out = NULL;
    struct gs_measure *measure = calloc(1, sizeof *measure);
    if (!measure)
        return gs_fail_memory(error, sizeof *measure);
    measure->kernels = gs_kernels_best();
    gs_status status = gs_threads_open(n_threads, &measure->threads, error);
    if (status != GS_OK)
        goto cleanup;
    size_t n = gs_threads_count(measure->threads) * SINK_STRIDE;
    measure->sinks = calloc(n, sizeof *measure->sinks);
    status = measure->sinks ? make_buffer(measure, error) : gs_fail_memory(error, n * sizeof *measure->sinks);
    if (status == GS_OK) {
        *out = measure;
        measure = NULL;
    }
cleanup:
    gs_measure_close(measure);
    return status;
}

size_t gs_measure_threads(const struct gs_measure *measure)
{
    return gs_threads_count(measure->threads);
}

const char *gs_measure_isa(const struct gs_measure *measure)
{
    return measure->kernels->isa;
}

uint64_t gs_measure_buffer_bytes(const struct gs_measure *measure)
{
    return measure->bytes;
}

/* One cache line into the sums. */
static inline void read_line(const vector *from, vector sums[LINE_VECTORS])
{
    __builtin_prefetch((const char *)from + AHEAD);
    sums[0] += from[0];
    sums[1] += from[1];
    sums[2] += from[2];
    sums[3] += from[3];
}

static void read_piece(void *user, size_t begin, size_t end, size_t thread)
{
    struct gs_measure *measure = user;
    vector sums[LINE_VECTORS] = {0};
    for (size_t piece = begin; piece < end; piece++) {
        const vector *first = (const vector *)(const void *)(measure->buffer + piece * PIECE);
        const vector *second = first + PIECE / 2 / sizeof *first;
        for (size_t i = 0; i < PIECE / 2 / sizeof *first; i += LINE_VECTORS) {
            read_line(first + i, sums);
            read_line(second + i, sums);
        }
    }
    vector sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    measure->sinks[thread * SINK_STRIDE] += sum[0] + sum[1];
}

double gs_measure_read(struct gs_measure *measure)
{
    double start = gs_clock_seconds();
    gs_threads_run(measure->threads, read_piece, measure, measure->bytes / PIECE, 1);
    return (double)measure->bytes / (gs_clock_seconds() - start);
}

/* ---------------------------------------------------------------- arithmetic */

struct arithmetic {
    struct gs_measure *measure;
    gs_peak_fn *loop;
};

static void run_loop(void *user, size_t begin, size_t end, size_t thread)
{
    const struct arithmetic *arithmetic = user;
    for (size_t i = begin; i < end; i++)
        arithmetic->measure->sinks[thread * SINK_STRIDE] += arithmetic->loop(PEAK_ROUNDS);
}

double gs_measure_arithmetic(struct gs_measure *measure, enum gs_measure_type type)
{
    struct gs_peak peak = type == GS_MEASURE_F32 ? gs_peak_f32() : gs_peak_int8();
    struct arithmetic arithmetic = {measure, peak.loop};
    size_t n_items = PEAK_ITEMS * gs_threads_count(measure->threads);
    double start = gs_clock_seconds();
    gs_threads_run(measure->threads, run_loop, &arithmetic, n_items, 1);
    return (double)(n_items * PEAK_ROUNDS * peak.products) / (gs_clock_seconds() - start);
}

/* ---------------------------------------------------------------- experts */

struct launch {
    struct gs_measure *measure;
    const struct gs_mxfp4_matrix *experts; /* [n]: one shape */
    const float *const *in;                /* [n] */
    float *const *out;                     /* [n] */
};

static void kernel_rows(void *user, size_t begin, size_t end, size_t thread)
{
    const struct launch *launch = user;
    const struct gs_kernels *kernels = launch->measure->kernels;
    float *row = launch->measure->rows + thread * launch->measure->row_size;
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        int64_t e = item / launch->experts->rows, r = item % launch->experts->rows;
        const struct gs_mxfp4_matrix *expert = &launch->experts[e];
        struct gs_mxfp4_row stored = gs_mxfp4_find_row(expert, 0, r);
        if (stored.scales)
            kernels->dequantize_mxfp4(stored.blocks, stored.scales, expert->columns, row);
        else
            kernels->dequantize_mxfp4_gguf(stored.blocks, expert->columns, row);
        kernels->dot(row, &launch->in[e], 1, (size_t)expert->columns, &launch->out[e][r]);
    }
}

/* Of a group: volatile, so that each byte is a load of its own.*/
static float scalar_group(const volatile uint8_t *codes, const float *x, bool is_gguf)
{
    float low = 0.0f, high = 0.0f;
    for (int k = 0; k < GS_MXFP4_GROUP_BYTES; k++) {
        uint8_t byte = codes[k];
        low += gs_mxfp4_values[byte & 15] * x[is_gguf ? k : 2 * k];
        high += gs_mxfp4_values[byte >> 4] * x[is_gguf ? k + GS_MXFP4_GROUP_BYTES : 2 * k + 1];
    }
    return low + high;
}

static void scalar_rows(void *user, size_t begin, size_t end, size_t thread)
{
    const struct launch *launch = user;
    (void)thread;
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        int64_t e = item / launch->experts->rows, r = item % launch->experts->rows;
        const struct gs_mxfp4_matrix *expert = &launch->experts[e];
        struct gs_mxfp4_row stored = gs_mxfp4_find_row(expert, 0, r);
        bool is_gguf = stored.scales == NULL;
        float sum = 0.0f;
        for (int64_t g = 0; g < expert->columns / GS_MXFP4_GROUP; g++) {
            const uint8_t *block =
                stored.blocks + g * (is_gguf ? GS_MXFP4_BLOCK_BYTES : GS_MXFP4_GROUP_BYTES);
            uint8_t scale = is_gguf ? block[0] : stored.scales[g];
            sum += gs_mxfp4_scale(scale) *
                   scalar_group(block + is_gguf, launch->in[e] + g * GS_MXFP4_GROUP, is_gguf);
        }
        launch->out[e][r] = sum;
    }
}

static gs_status reserve_rows(struct gs_measure *measure, size_t row_size, struct gs_error *error)
{
    if (row_size <= measure->row_size)
        return GS_OK;
    size_t bytes = gs_threads_count(measure->threads) * row_size * sizeof(float);
    float *rows = realloc(measure->rows, bytes);
    if (!rows)
        return gs_fail_memory(error, bytes);
    measure->rows = rows;
    measure->row_size = row_size;
    return GS_OK;
}

gs_status gs_measure_product(struct gs_measure *measure, const struct gs_mxfp4_matrix *experts,
                             size_t n_experts, const float *const *in, enum gs_measure_reader reader,
                             float *const *out, double *seconds, struct gs_error *error)
{
    struct launch launch = {measure, experts, in, out};
    gs_status status = reserve_rows(measure, (size_t)experts->columns, error);
    if (status != GS_OK)
        return status;
    double start = gs_clock_seconds();
    gs_threads_run(measure->threads, reader == GS_MEASURE_KERNEL ? kernel_rows : scalar_rows, &launch,
                   n_experts * (size_t)experts->rows, ROW_GRAIN);
    *seconds = gs_clock_seconds() - start;
    return GS_OK;
}
