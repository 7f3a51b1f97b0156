#include "backend/cpu/fast_state.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Aligned to 64 bytes. */
static void *take(struct gs_fast *fast, int64_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow((size_t)count, size, &bytes) || bytes > SIZE_MAX - 64)
        return NULL;
    char *memory = gs_arena_alloc(&fast->arena, bytes + 64);
    fast->bytes += bytes;
    return memory ? memory + (64 - (uintptr_t)memory % 64) % 64 : NULL;
}

static bool take_input(struct gs_fast *fast, struct gs_fast_input *input, int64_t n)
{
    int64_t rows = GS_CPU_FAST_MAX_TOKENS, chunks = (int64_t)gs_q8_chunk_count((size_t)n);
    input->n = n;
    if (!(input->f32 = take(fast, rows * n, sizeof *input->f32)) ||
        !(input->bf16 = take(fast, rows * n, sizeof *input->bf16)) ||
        !(input->q8 = take(fast, rows * chunks, sizeof *input->q8)) ||
        !(input->f32_rows = take(fast, rows, sizeof *input->f32_rows)) ||
        !(input->bf16_rows = take(fast, rows, sizeof *input->bf16_rows)) ||
        !(input->q8_rows = take(fast, rows, sizeof *input->q8_rows)))
        return false;
    for (int64_t t = 0; t < rows; t++) {
        input->f32_rows[t] = input->f32 + t * n;
        input->bf16_rows[t] = input->bf16 + t * n;
        input->q8_rows[t] = input->q8 + t * chunks;
    }
    return true;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static bool take_thread_scratch(struct gs_fast *fast, const struct gs_config *c, size_t n_threads)
{
    size_t widest = larger(larger((size_t)c->d_model, (size_t)(c->n_head * c->d_head)), (size_t)c->d_ff);
    size_t attention = gs_fast_attention_bytes(c->n_head / c->n_kv_head, c->d_head);
    fast->work_bytes = round_up(larger(gs_fast_work_bytes(widest), attention), 64);
    fast->tile_floats = round_up(larger(GS_CPU_FAST_MAX_TOKENS * GS_FAST_UNIT_ROWS, widest), 16);
    return (fast->work = take(fast, (int64_t)n_threads, fast->work_bytes)) &&
           (fast->work_holds = take(fast, (int64_t)n_threads, sizeof *fast->work_holds)) &&
           (fast->tile = take(fast, (int64_t)(n_threads * fast->tile_floats), sizeof *fast->tile));
}

static bool take_scratch(struct gs_fast *fast, const struct gs_config *c, size_t n_threads)
{
    int64_t n = GS_CPU_FAST_MAX_TOKENS, routes = n * c->n_active, kv_width = c->n_kv_head * c->d_head;
    int64_t chunks = (int64_t)gs_q8_chunk_count((size_t)c->d_model);
    int64_t ff_chunks = (int64_t)gs_q8_chunk_count((size_t)c->d_ff);
    int64_t span_floats = (int64_t)gs_fast_span_floats(c->n_head / c->n_kv_head, c->d_head);
    fast->query_stride = c->n_head * c->d_head + 16;
    return (fast->hidden = take(fast, n * c->d_model, sizeof(float))) &&
           take_input(fast, &fast->normed, c->d_model) &&
           take_input(fast, &fast->attended, c->n_head * c->d_head) &&
           (fast->query = take(fast, n * fast->query_stride, sizeof(float))) &&
           (fast->key = take(fast, n * kv_width, sizeof(float))) &&
           (fast->value = take(fast, n * kv_width, sizeof(float))) &&
           (fast->partial = take(fast, GS_FAST_SPREAD_ROWS * c->n_kv_head * GS_FAST_SPANS * span_floats,
                                 sizeof(float))) &&
           (fast->cosine = take(fast, n * c->d_head / 2, sizeof(float))) &&
           (fast->sine = take(fast, n * c->d_head / 2, sizeof(float))) &&
           (fast->projected = take(fast, n * c->d_model, sizeof(float))) &&
           (fast->router = take(fast, n * c->n_expert, sizeof(float))) &&
           (fast->choice = take(fast, routes, sizeof(float))) &&
           (fast->choice_weight = take(fast, routes, sizeof(float))) &&
           (fast->expert_in = take(fast, n * chunks, sizeof *fast->expert_in)) &&
           (fast->activated = take(fast, routes * ff_chunks, sizeof *fast->activated)) &&
           (fast->expert_out = take(fast, routes * c->d_model, sizeof(float))) &&
           (fast->routes = take(fast, routes, sizeof *fast->routes)) &&
           (fast->first_route = take(fast, c->n_expert + 1, sizeof *fast->first_route)) &&
           (fast->route_of = take(fast, routes, sizeof *fast->route_of)) &&
           (fast->active = take(fast, c->n_expert, sizeof *fast->active)) &&
           (fast->gate_up_in = take(fast, routes, sizeof *fast->gate_up_in)) &&
           (fast->down_in = take(fast, routes, sizeof *fast->down_in)) &&
           take_thread_scratch(fast, c, n_threads);
}

static float *copy_matrix(struct gs_fast *fast, const struct gs_matrix *matrix)
{
    float *copy = take(fast, matrix->rows * matrix->columns, sizeof *copy);
    for (int64_t r = 0; copy && r < matrix->rows; r++)
        gs_matrix_row(matrix, r, copy + r * matrix->columns);
    return copy;
}

static bool copy_vectors(struct gs_fast *fast, const struct gs_weights *weights)
{
    if (!(fast->layers = take(fast, weights->config.n_layer, sizeof *fast->layers)) ||
        !(fast->norm = copy_matrix(fast, &weights->norm)))
        return false;
    for (int64_t i = 0; i < weights->config.n_layer; i++) {
        const struct gs_layer_weights *from = &weights->layers[i];
        struct gs_fast_layer *to = &fast->layers[i];
        if (!(to->attention_norm = copy_matrix(fast, &from->attention_norm)) ||
            !(to->mlp_norm = copy_matrix(fast, &from->mlp_norm)) ||
            !(to->sinks = copy_matrix(fast, &from->sinks)) ||
            !(to->bias[0] = copy_matrix(fast, &from->q_bias)) ||
            !(to->bias[1] = copy_matrix(fast, &from->k_bias)) ||
            !(to->bias[2] = copy_matrix(fast, &from->v_bias)) ||
            !(to->bias[3] = copy_matrix(fast, &from->o_bias)) ||
            !(to->router = copy_matrix(fast, &from->router)) ||
            !(to->router_bias = copy_matrix(fast, &from->router_bias)))
            return false;
    }
    return true;
}

gs_status gs_fast_open(struct gs_device *device, struct gs_fast **out, struct gs_error *error)
{
    const struct gs_weights *weights = device->weights;
    *out = NULL;
    struct gs_fast *fast = calloc(1, sizeof *fast);
    if (!fast)
        return gs_fail_memory(error, sizeof *fast);
    fast->kernels = device->fast_kernels;
    /* All layers of a checkpoint are in one format. */
    fast->expert_order = weights->layers[0].gate_up.scales ? GS_Q8_PAIRS : GS_Q8_HALVES;
    if (!copy_vectors(fast, weights) ||
        !take_scratch(fast, &weights->config, gs_threads_count(device->threads))) {
        gs_status status = gs_fail_memory(error, fast->bytes);
        gs_fast_close(fast);
        return status;
    }
    *out = fast;
    return GS_OK;
}

void gs_fast_close(struct gs_fast *fast)
{
    if (!fast)
        return;
    gs_arena_free(&fast->arena);
    free(fast);
}

uint64_t gs_fast_bytes(const struct gs_fast *fast)
{
    return fast->bytes;
}
