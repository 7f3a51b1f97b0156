#include "backend/cpu/requantize.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>
#include <sys/mman.h>

#define PIECE_ROWS 64
#define HUGE_PAGE  ((uint64_t)2 << 20)
#define LINE       64 /* copies begin at one */

struct job {
    const struct gs_fast_kernels *kernels;
    const struct gs_matrix *from;
    unsigned char *to;
    float *rows; /* [n_threads][largest row] */
    size_t row_size;
};

static void quantize_rows(void *user, size_t begin, size_t end, size_t thread)
{
    const struct job *job = user;
    float *row = job->rows + thread * job->row_size;
    int64_t bytes = gs_weight_bytes(GS_WEIGHT_Q8_0, job->from->columns);
    for (int64_t r = (int64_t)begin; r < (int64_t)end; r++) {
        gs_matrix_row(job->from, r, row);
        job->kernels->quantize_q8_0(row, (size_t)job->from->columns, job->to + r * bytes);
    }
}

static bool is_convertible(const struct gs_matrix *matrix)
{
    return matrix->type != GS_WEIGHT_Q8_0 && matrix->columns % GS_Q8_0_BLOCK == 0;
}

static uint64_t count_bytes(const struct gs_matrix *matrix)
{
    return is_convertible(matrix)
               ? (uint64_t)(matrix->rows * gs_weight_bytes(GS_WEIGHT_Q8_0, matrix->columns))
               : 0;
}

/* Those of a layer, then the head. */
static struct gs_matrix *matrix_at(struct gs_weights *weights, struct gs_layer_weights *layers, int64_t index)
{
    int64_t layer = index / 4;
    if (layer == weights->config.n_layer)
        return index % 4 == 0 ? &weights->head : NULL;
    struct gs_matrix *all[] = {&layers[layer].q, &layers[layer].k, &layers[layer].v, &layers[layer].o};
    return all[index % 4];
}

/* `bytes` from the beginning of a large page on: with small ones, a seventh of decode's speed is lost. */
static unsigned char *allocate_huge(struct gs_arena *arena, uint64_t bytes)
{
    char *memory = gs_arena_alloc(arena, bytes + HUGE_PAGE);
    if (!memory)
        return NULL;
    memory += (HUGE_PAGE - (uintptr_t)memory % HUGE_PAGE) % HUGE_PAGE;
#ifdef MADV_HUGEPAGE
    (void)madvise(memory, bytes, MADV_HUGEPAGE); /* a hint: refused on some systems */
#endif
    return (unsigned char *)memory;
}

static gs_status check_memory(uint64_t bytes, struct gs_error *error)
{
    uint64_t available = gs_memory_available();
    if (available == 0 || bytes <= available)
        return GS_OK;
    return gs_fail(error, GS_OUT_OF_MEMORY,
                   "weights as q8 need %.1f MiB of their own, but %.1f MiB are free: native ones need none",
                   (double)bytes / (1 << 20), (double)available / (1 << 20));
}

gs_status gs_cpu_requantize(struct gs_device *device, gs_progress_fn *progress, void *progress_user,
                            struct gs_error *error)
{
    const struct gs_config *c = &device->weights->config;
    struct gs_weights *weights = gs_arena_alloc(&device->arena, sizeof *weights);
    struct gs_layer_weights *layers =
        gs_arena_alloc_array(&device->arena, (size_t)c->n_layer, sizeof *layers);
    int64_t widest = c->d_model > c->n_head * c->d_head ? c->d_model : c->n_head * c->d_head;
    struct job job = {.kernels = gs_fast_kernels_find(device->kernels->isa), .row_size = (size_t)widest};
    job.rows = gs_arena_alloc_array(&device->arena, gs_threads_count(device->threads) * job.row_size,
                                    sizeof *job.rows);
    if (!weights || !layers || !job.rows)
        return gs_fail_memory(error, sizeof *weights + (uint64_t)c->n_layer * sizeof *layers);
    *weights = *device->weights;
    memcpy(layers, device->weights->layers, (size_t)c->n_layer * sizeof *layers);
    weights->layers = layers;

    uint64_t total = 0, done = 0;
    struct gs_matrix *matrix;
    for (int64_t i = 0; (matrix = matrix_at(weights, layers, i)); i++)
        total += (count_bytes(matrix) + LINE - 1) / LINE * LINE;
    gs_status status = check_memory(total, error);
    if (status != GS_OK)
        return status;
    unsigned char *copies = allocate_huge(&device->arena, total);
    if (!copies)
        return gs_fail_memory(error, total);
    for (int64_t i = 0; (matrix = matrix_at(weights, layers, i)); i++) {
        uint64_t bytes = count_bytes(matrix);
        if (bytes == 0)
            continue;
        job.from = matrix;
        job.to = copies + done;
        gs_threads_run(device->threads, quantize_rows, &job, (size_t)matrix->rows, PIECE_ROWS);
        *matrix = (struct gs_matrix){job.to, GS_WEIGHT_Q8_0, matrix->rows, matrix->columns, NULL};
        done += (bytes + LINE - 1) / LINE * LINE;
        if (progress)
            progress(progress_user, done, total);
    }
    device->weights = weights;
    device->repacked_bytes = total;
    return GS_OK;
}
