/*
 * The model at the speed of the memory. Read it from the bottom up, beside reference.c: the same stages, but
 * work goes to threads as tiles of 32 rows of weights, the experts of all tokens are tiles of one loop, and
 * what a stage leaves is already rounded for the next.
 *
 * A row's arithmetic is the kernels', which treat every row by itself, and sums over experts go in ascending
 * order: a token's bits do not depend on what shares its call, nor on the number of threads.
 */
#include "backend/cpu/fast.h"

#include "backend/cpu/fast_kernels.h"
#include "base/status.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define UNIT_ROWS 64 /* rows of gate and up whose 32 units are a block of the next stage's activations */

/* A layer's vectors as float32, and the router's matrix. */
struct layer {
    float *attention_norm, *mlp_norm; /* [d_model] */
    float *sinks;                     /* [n_head] */
    float *bias[4];                   /* of q, k, v, o */
    float *router;                    /* [n_expert][d_model] */
    float *router_bias;               /* [n_expert] */
};

/* Rows of a stage's input, in each form that the weights that they meet want. */
struct input {
    int64_t n;              /* of a row */
    float *f32;             /* [T][n] */
    uint16_t *bf16;         /* [T][n] */
    struct gs_q8_chunk *q8; /* [T][chunks]; GS_Q8_HALVES */
    const float **f32_rows; /* [T] */
    const uint16_t **bf16_rows;
    const struct gs_q8_chunk **q8_rows;
};

struct gs_fast {
    const struct gs_fast_kernels *kernels;
    struct gs_arena arena;
    uint64_t bytes;
    struct layer *layers; /* [n_layer] */
    float *norm;          /* [d_model] */
    enum gs_q8_order expert_order;

    /* Scratch for GS_CPU_FAST_MAX_TOKENS rows; T is the number of rows of the forward under way. */
    float *hidden;                                    /* [T][d_model]: the residual stream */
    struct input normed, attended;                    /* of d_model, of n_head*d_head */
    float *query, *key, *value;                       /* [T][n_head*d_head], [T][n_kv_head*d_head] twice */
    float *cosine, *sine;                             /* [T][d_head/2] */
    float *projected;                                 /* [T][d_model]: a block's output */
    float *router;                                    /* [T][n_expert] */
    float *choice, *choice_weight;                    /* [T][n_active] */
    struct gs_q8_chunk *expert_in;                    /* [T][chunks of d_model] */
    struct gs_q8_chunk *activated;                    /* [T*n_active][chunks of d_ff] */
    float *expert_out;                                /* [T*n_active][d_model] */
    struct gs_cpu_route *routes;                      /* [T*n_active], by expert, then by row */
    int64_t *first_route;                             /* [n_expert+1] */
    int64_t *route_of;                                /* [T*n_active]: a row's routes by ascending expert */
    int64_t *active;                                  /* [n_expert]: experts that have routes */
    const struct gs_q8_chunk **gate_up_in, **down_in; /* [T*n_active] */

    /* Of each thread. */
    unsigned char *work; /* a product's, or attention's */
    size_t work_bytes;
    float *tile; /* [T][UNIT_ROWS], or a row of weights */
    size_t tile_floats;
};

/* ---------------------------------------------------------------- opening */

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

static bool take_input(struct gs_fast *fast, struct input *input, int64_t n)
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
    fast->tile_floats = round_up(larger(GS_CPU_FAST_MAX_TOKENS * UNIT_ROWS, widest), 16);
    return (fast->work = take(fast, (int64_t)n_threads, fast->work_bytes)) &&
           (fast->tile = take(fast, (int64_t)(n_threads * fast->tile_floats), sizeof *fast->tile));
}

static bool take_scratch(struct gs_fast *fast, const struct gs_config *c, size_t n_threads)
{
    int64_t n = GS_CPU_FAST_MAX_TOKENS, routes = n * c->n_active, kv_width = c->n_kv_head * c->d_head;
    int64_t chunks = (int64_t)gs_q8_chunk_count((size_t)c->d_model);
    int64_t ff_chunks = (int64_t)gs_q8_chunk_count((size_t)c->d_ff);
    return (fast->hidden = take(fast, n * c->d_model, sizeof(float))) &&
           take_input(fast, &fast->normed, c->d_model) &&
           take_input(fast, &fast->attended, c->n_head * c->d_head) &&
           (fast->query = take(fast, n * c->n_head * c->d_head, sizeof(float))) &&
           (fast->key = take(fast, n * kv_width, sizeof(float))) &&
           (fast->value = take(fast, n * kv_width, sizeof(float))) &&
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
        struct layer *to = &fast->layers[i];
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

/* ---------------------------------------------------------------- dense layers */

/* Weights of one or more matrices that share an input, as one range of tiles. */
struct dense {
    const struct gs_matrix *weight;
    const float *bias; /* [rows]; may be NULL */
    float *out;        /* [n_in][rows] */
};

struct dense_job {
    struct gs_device *device;
    const struct input *input;
    int64_t n_in;
    struct dense parts[3];
    size_t n_parts;
};

static size_t count_tiles(const struct dense *part)
{
    return (size_t)((part->weight->rows + GS_FAST_TILE_ROWS - 1) / GS_FAST_TILE_ROWS);
}

/* Weights of another type, one row after the other in float32. */
static void multiply_any(const struct dense_job *job, const struct dense *part, int64_t first, int64_t n_rows,
                         float *row)
{
    int64_t stride = part->weight->rows;
    for (int64_t r = first; r < first + n_rows; r++) {
        gs_matrix_row(part->weight, r, row);
        for (int64_t t = 0; t < job->n_in; t++)
            job->device->kernels->dot(row, &job->input->f32_rows[t], 1, (size_t)part->weight->columns,
                                      &part->out[t * stride + r]);
    }
}

static void multiply_tile(const struct dense_job *job, const struct dense *part, int64_t tile, size_t thread)
{
    struct gs_fast *fast = job->device->fast;
    const struct gs_matrix *weight = part->weight;
    int64_t first = tile * GS_FAST_TILE_ROWS, n_rows = weight->rows - first;
    n_rows = n_rows < GS_FAST_TILE_ROWS ? n_rows : GS_FAST_TILE_ROWS;
    int64_t row_bytes = gs_weight_bytes(weight->type, weight->columns);
    const unsigned char *data = weight->data + first * row_bytes;
    size_t n = (size_t)weight->columns, n_in = (size_t)job->n_in, stride = (size_t)weight->rows;
    void *work = fast->work + thread * fast->work_bytes;
    float *out = part->out + first;
    if (weight->type == GS_WEIGHT_BF16) {
        struct gs_bf16_rows rows = {data};
        fast->kernels->bf16_bf16(&rows, (size_t)n_rows, n, job->input->bf16_rows, n_in, work, out, stride);
    } else if (weight->type == GS_WEIGHT_Q8_0) {
        struct gs_q8_0_row rows[GS_FAST_TILE_ROWS];
        for (int64_t r = 0; r < n_rows; r++)
            rows[r].blocks = data + r * row_bytes;
        fast->kernels->q8_0_q8(rows, (size_t)n_rows, n, job->input->q8_rows, n_in, work, out, stride);
    } else {
        multiply_any(job, part, first, n_rows, fast->tile + thread * fast->tile_floats);
    }
    if (part->bias)
        for (size_t t = 0; t < n_in; t++)
            for (int64_t r = 0; r < n_rows; r++)
                out[t * stride + (size_t)r] += part->bias[first + r];
}

static void dense_tiles(void *user, size_t begin, size_t end, size_t thread)
{
    const struct dense_job *job = user;
    for (size_t item = begin; item < end; item++) {
        size_t part = 0, tile = item;
        while (tile >= count_tiles(&job->parts[part]))
            tile -= count_tiles(&job->parts[part++]);
        multiply_tile(job, &job->parts[part], (int64_t)tile, thread);
    }
}

static void run_dense(struct dense_job *job)
{
    size_t n_tiles = 0;
    for (size_t i = 0; i < job->n_parts; i++) {
        const struct gs_matrix *weight = job->parts[i].weight;
        n_tiles += count_tiles(&job->parts[i]);
        job->device->stats.weight_bytes +=
            (uint64_t)(weight->rows * gs_weight_bytes(weight->type, weight->columns));
    }
    gs_threads_run(job->device->threads, dense_tiles, job, n_tiles, 1);
}

/* A row of an input in the forms that `weight` meets. */
static void prepare_row(const struct gs_fast *fast, struct input *input, int64_t row,
                        const struct gs_matrix *weight)
{
    const float *from = input->f32 + row * input->n;
    if (weight->type == GS_WEIGHT_BF16)
        fast->kernels->round_bf16(from, (size_t)input->n, input->bf16 + row * input->n);
    else if (weight->type == GS_WEIGHT_Q8_0)
        fast->kernels->quantize_q8(from, (size_t)input->n, GS_Q8_HALVES,
                                   input->q8 + row * (int64_t)gs_q8_chunk_count((size_t)input->n));
}

/* ---------------------------------------------------------------- attention */

struct row_job {
    struct gs_device *device;
    int64_t layer;
    int64_t n_rows;
};

static void norm_row(struct gs_device *device, const float *weight, int64_t t)
{
    struct gs_fast *fast = device->fast;
    const struct gs_config *config = &device->weights->config;
    fast->kernels->rms_norm(fast->hidden + t * config->d_model, weight, (size_t)config->d_model,
                            config->rms_norm_eps, fast->normed.f32 + t * config->d_model);
}

static void begin_attention(void *user, size_t begin, size_t end, size_t thread)
{
    (void)thread;
    const struct row_job *job = user;
    struct gs_fast *fast = job->device->fast;
    const struct gs_layer_weights *w = &job->device->weights->layers[job->layer];
    for (int64_t t = (int64_t)begin; t < (int64_t)end; t++) {
        norm_row(job->device, fast->layers[job->layer].attention_norm, t);
        prepare_row(fast, &fast->normed, t, &w->q);
        if (w->k.type != w->q.type)
            prepare_row(fast, &fast->normed, t, &w->k);
        if (w->v.type != w->q.type && w->v.type != w->k.type)
            prepare_row(fast, &fast->normed, t, &w->v);
    }
}

/* Rotates a row's queries and keys; keys and values go to its timeline's cache. */
static void store_rows(void *user, size_t begin, size_t end, size_t thread)
{
    (void)thread;
    const struct row_job *job = user;
    const struct gs_config *config = &job->device->weights->config;
    struct gs_fast *fast = job->device->fast;
    int64_t d = config->d_head, half = d / 2;
    for (int64_t t = (int64_t)begin; t < (int64_t)end; t++) {
        const struct gs_cpu_row *row = &job->device->scratch.rows[t];
        const float *cosine = fast->cosine + t * half, *sine = fast->sine + t * half;
        float *key = fast->key + t * config->n_kv_head * d, *value = fast->value + t * config->n_kv_head * d;
        gs_cpu_reference_stages.rotate(config, cosine, sine, fast->query + t * config->n_head * d,
                                       config->n_head);
        gs_cpu_reference_stages.rotate(config, cosine, sine, key, config->n_kv_head);
        for (int64_t h = 0; h < config->n_kv_head; h++) {
            uint16_t key_bits[GS_MAX_D_HEAD], value_bits[GS_MAX_D_HEAD];
            fast->kernels->round_bf16(key + h * d, (size_t)d, key_bits);
            fast->kernels->round_bf16(value + h * d, (size_t)d, value_bits);
            gs_kv_store_bf16(row->kv, job->layer, h, row->position, key_bits, value_bits);
        }
    }
}

/* Items are (kv head, row), heads first: the rows of a prompt find a head's cache warm. */
static void attend_items(void *user, size_t begin, size_t end, size_t thread)
{
    const struct row_job *job = user;
    const struct gs_config *config = &job->device->weights->config;
    struct gs_fast *fast = job->device->fast;
    int64_t d = config->d_head, group = config->n_head / config->n_kv_head;
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        int64_t kv_head = item / job->n_rows, t = item % job->n_rows;
        const struct gs_cpu_row *row = &job->device->scratch.rows[t];
        int64_t first = row->position - (config->window - 1);
        int64_t at = (t * config->n_head + kv_head * group) * d;
        struct gs_fast_attention attention = {
            .query = fast->query + at,
            .sinks = fast->layers[job->layer].sinks + kv_head * group,
            .keys = gs_kv_head_keys(row->kv, job->layer, kv_head),
            .values = gs_kv_head_values(row->kv, job->layer, kv_head),
            .n_slot = row->kv->layers[job->layer].n_slot,
            .first = config->layer_is_window[job->layer] && first > 0 ? first : 0,
            .last = row->position,
            .n_head = group,
            .d_head = d,
            .scale = 1.0f / sqrtf((float)d),
            .out = fast->attended.f32 + at,
            .work = fast->work + thread * fast->work_bytes,
        };
        fast->kernels->attend(&attention);
    }
}

static void end_attention(void *user, size_t begin, size_t end, size_t thread)
{
    (void)thread;
    const struct row_job *job = user;
    struct gs_fast *fast = job->device->fast;
    for (int64_t t = (int64_t)begin; t < (int64_t)end; t++)
        prepare_row(fast, &fast->attended, t, &job->device->weights->layers[job->layer].o);
}

/* ---------------------------------------------------------------- experts */

static void add(float *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

/* The residual, the norm, and the row as the experts take it. */
static void begin_experts(void *user, size_t begin, size_t end, size_t thread)
{
    (void)thread;
    const struct row_job *job = user;
    struct gs_fast *fast = job->device->fast;
    int64_t d = job->device->weights->config.d_model;
    for (int64_t t = (int64_t)begin; t < (int64_t)end; t++) {
        add(fast->hidden + t * d, fast->projected + t * d, d);
        norm_row(job->device, fast->layers[job->layer].mlp_norm, t);
        fast->kernels->quantize_q8(fast->normed.f32 + t * d, (size_t)d, fast->expert_order,
                                   fast->expert_in + t * (int64_t)gs_q8_chunk_count((size_t)d));
    }
}

/* In float32 and in the exact order: which experts are chosen hangs on it. */
static void route_experts(void *user, size_t begin, size_t end, size_t thread)
{
    const struct row_job *job = user;
    const struct gs_config *config = &job->device->weights->config;
    struct gs_fast *fast = job->device->fast;
    const struct layer *layer = &fast->layers[job->layer];
    float *dots = fast->tile + thread * fast->tile_floats;
    for (int64_t e = (int64_t)begin; e < (int64_t)end; e++) {
        job->device->kernels->dot(layer->router + e * config->d_model, fast->normed.f32_rows,
                                  (size_t)job->n_rows, (size_t)config->d_model, dots);
        for (int64_t t = 0; t < job->n_rows; t++)
            fast->router[t * config->n_expert + e] = dots[t] + layer->router_bias[e];
    }
}

/* Counts, prefix, scatter: routes by expert, so that an expert's weights are read once for all of its rows.
 */
static int64_t sort_routes(struct gs_device *device, int64_t n_rows)
{
    const struct gs_config *config = &device->weights->config;
    struct gs_fast *fast = device->fast;
    int64_t n_routes = n_rows * config->n_active, n_active_experts = 0;
    int64_t chunks = (int64_t)gs_q8_chunk_count((size_t)config->d_model);
    int64_t ff_chunks = (int64_t)gs_q8_chunk_count((size_t)config->d_ff);
    int64_t *first = fast->first_route;
    memset(first, 0, (size_t)(config->n_expert + 1) * sizeof *first);
    for (int64_t i = 0; i < n_routes; i++)
        first[(int64_t)fast->choice[i] + 1]++;
    for (int64_t e = 0; e < config->n_expert; e++) {
        if (first[e + 1] > 0)
            fast->active[n_active_experts++] = e;
        first[e + 1] += first[e];
    }
    for (int64_t t = 0; t < n_rows; t++)
        for (int64_t k = 0; k < config->n_active; k++) {
            int64_t e = (int64_t)fast->choice[t * config->n_active + k], at = first[e]++;
            fast->routes[at] = (struct gs_cpu_route){t, e, fast->choice_weight[t * config->n_active + k]};
            fast->gate_up_in[at] = fast->expert_in + t * chunks;
            fast->down_in[at] = fast->activated + at * ff_chunks;
        }
    for (int64_t e = config->n_expert; e > 0; e--)
        first[e] = first[e - 1];
    first[0] = 0;
    int64_t *of_row = fast->route_of;
    int64_t filled[GS_CPU_FAST_MAX_TOKENS] = {0};
    for (int64_t at = 0; at < n_routes; at++) {
        int64_t t = fast->routes[at].row;
        of_row[t * config->n_active + filled[t]++] = at;
    }
    return n_active_experts;
}

struct expert_job {
    struct gs_device *device;
    int64_t layer;
    int64_t tiles; /* of an expert */
};

/* `n` elements of an expert's bias from `first`. */
static void read_bias(const struct gs_matrix *bias, int64_t expert, int64_t first, int64_t n, float *out)
{
    if (bias->type == GS_WEIGHT_BF16 && !bias->odd) {
        const unsigned char *from = bias->data + 2 * (expert * bias->columns + first);
        for (int64_t i = 0; i < n; i++) {
            uint16_t half;
            memcpy(&half, from + 2 * i, sizeof half);
            uint32_t bits = (uint32_t)half << 16;
            memcpy(&out[i], &bits, sizeof bits);
        }
        return;
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = gs_matrix_element(bias, expert, first + i);
}

static void find_rows(const struct gs_mxfp4_matrix *weight, int64_t expert, int64_t first, int64_t n,
                      struct gs_mxfp4_row *rows)
{
    for (int64_t r = 0; r < n; r++)
        rows[r] = gs_mxfp4_find_row(weight, expert, first + r);
}

/* Block number `block` of a row of 8-bit activations; those after the last stay zero. */
static void store_block(const struct gs_fast *fast, const float *values, size_t block,
                        struct gs_q8_chunk *row)
{
    struct gs_q8_chunk one, *chunk = &row[block / 4];
    size_t part = block % 4;
    fast->kernels->quantize_q8(values, 32, fast->expert_order, &one);
    memcpy(chunk->q + part * 16, one.q, 16);
    memcpy(chunk->q + GS_Q8_CHUNK / 2 + part * 16, one.q + GS_Q8_CHUNK / 2, 16);
    memcpy(chunk->scale + part * 4, one.scale, 4 * sizeof *one.scale);
    memcpy(chunk->sum + part * 4, one.sum, 4 * sizeof *one.sum);
}

/* 64 rows of gate and up: 32 units, activated, are a block of 8-bit activations. */
static void gate_up_tiles(void *user, size_t begin, size_t end, size_t thread)
{
    const struct expert_job *job = user;
    const struct gs_layer_weights *w = &job->device->weights->layers[job->layer];
    const struct gs_config *config = &job->device->weights->config;
    struct gs_fast *fast = job->device->fast;
    float *out = fast->tile + thread * fast->tile_floats, bias[UNIT_ROWS];
    void *work = fast->work + thread * fast->work_bytes;
    int64_t ff_chunks = (int64_t)gs_q8_chunk_count((size_t)config->d_ff);
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        int64_t expert = fast->active[item / job->tiles], tile = item % job->tiles;
        int64_t route = fast->first_route[expert], n = fast->first_route[expert + 1] - route;
        struct gs_mxfp4_row rows[UNIT_ROWS];
        find_rows(&w->gate_up, expert, tile * UNIT_ROWS, UNIT_ROWS, rows);
        for (int64_t r = 0; r < UNIT_ROWS; r += GS_FAST_TILE_ROWS)
            fast->kernels->mxfp4_q8(rows + r, GS_FAST_TILE_ROWS, (size_t)config->d_model,
                                    fast->gate_up_in + route, (size_t)n, work, out + r, UNIT_ROWS);
        read_bias(&w->gate_up_bias, expert, tile * UNIT_ROWS, UNIT_ROWS, bias);
        for (int64_t i = 0; i < n; i++) {
            float units[UNIT_ROWS / 2];
            add(out + i * UNIT_ROWS, bias, UNIT_ROWS);
            fast->kernels->swiglu(out + i * UNIT_ROWS, UNIT_ROWS / 2, config->swiglu_limit,
                                  config->swiglu_alpha, units);
            store_block(fast, units, (size_t)tile, fast->activated + (route + i) * ff_chunks);
        }
    }
}

static void down_tiles(void *user, size_t begin, size_t end, size_t thread)
{
    const struct expert_job *job = user;
    const struct gs_layer_weights *w = &job->device->weights->layers[job->layer];
    const struct gs_config *config = &job->device->weights->config;
    struct gs_fast *fast = job->device->fast;
    void *work = fast->work + thread * fast->work_bytes;
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        int64_t expert = fast->active[item / job->tiles], first = item % job->tiles * GS_FAST_TILE_ROWS;
        int64_t route = fast->first_route[expert], n = fast->first_route[expert + 1] - route;
        int64_t n_rows = config->d_model - first;
        n_rows = n_rows < GS_FAST_TILE_ROWS ? n_rows : GS_FAST_TILE_ROWS;
        struct gs_mxfp4_row rows[GS_FAST_TILE_ROWS];
        float bias[GS_FAST_TILE_ROWS], *out = fast->expert_out + route * config->d_model + first;
        find_rows(&w->down, expert, first, n_rows, rows);
        fast->kernels->mxfp4_q8(rows, (size_t)n_rows, (size_t)config->d_ff, fast->down_in + route, (size_t)n,
                                work, out, (size_t)config->d_model);
        read_bias(&w->down_bias, expert, first, n_rows, bias);
        for (int64_t i = 0; i < n; i++)
            add(out + i * config->d_model, bias, n_rows);
    }
}

/* projected = the weighted sum of a row's experts, in ascending order of the expert. */
static void combine_rows(void *user, size_t begin, size_t end, size_t thread)
{
    (void)thread;
    const struct row_job *job = user;
    const struct gs_config *config = &job->device->weights->config;
    struct gs_fast *fast = job->device->fast;
    int64_t d = config->d_model;
    for (int64_t t = (int64_t)begin; t < (int64_t)end; t++) {
        float *to = fast->projected + t * d;
        memset(to, 0, (size_t)d * sizeof *to);
        for (int64_t k = 0; k < config->n_active; k++) {
            int64_t route = fast->route_of[t * config->n_active + k];
            float weight = fast->routes[route].weight;
            const float *from = fast->expert_out + route * d;
            for (int64_t j = 0; j < d; j++)
                to[j] += from[j] * weight;
        }
        add(fast->hidden + t * d, to, d);
    }
}

static void run_experts(struct gs_device *device, int64_t layer, int64_t n_active_experts)
{
    const struct gs_config *config = &device->weights->config;
    struct expert_job job = {device, layer, 2 * config->d_ff / UNIT_ROWS};
    gs_threads_run(device->threads, gate_up_tiles, &job, (size_t)(n_active_experts * job.tiles), 1);
    job.tiles = (config->d_model + GS_FAST_TILE_ROWS - 1) / GS_FAST_TILE_ROWS;
    gs_threads_run(device->threads, down_tiles, &job, (size_t)(n_active_experts * job.tiles), 1);
    int64_t groups = (2 * config->d_ff * config->d_model + config->d_model * config->d_ff) / GS_MXFP4_GROUP;
    device->stats.weight_bytes += (uint64_t)(n_active_experts * groups * (GS_MXFP4_GROUP_BYTES + 1));
}

/* ---------------------------------------------------------------- the model */

static void tap(struct gs_device *device, enum gs_stage stage, int64_t layer, const float *values,
                int64_t rows, int64_t columns)
{
    if (device->tap)
        device->tap(device->tap_user, stage, layer, values, rows, columns);
}

/* projected = o(attention(norm(hidden))) */
static void attention_block(struct gs_device *device, struct row_job *job)
{
    const struct gs_config *config = &device->weights->config;
    const struct gs_layer_weights *w = &device->weights->layers[job->layer];
    struct gs_fast *fast = device->fast;
    float *const *bias = fast->layers[job->layer].bias;
    size_t n_rows = (size_t)job->n_rows;
    gs_threads_run(device->threads, begin_attention, job, n_rows, 1);
    struct dense_job qkv = {
        device,
        &fast->normed,
        job->n_rows,
        {{&w->q, bias[0], fast->query}, {&w->k, bias[1], fast->key}, {&w->v, bias[2], fast->value}},
        3};
    gs_stage_clock_end(&device->clock, GS_TIME_NORM);
    run_dense(&qkv);
    gs_threads_run(device->threads, store_rows, job, n_rows, 1);
    gs_stage_clock_end(&device->clock, GS_TIME_QKV);
    gs_threads_run(device->threads, attend_items, job, n_rows * (size_t)config->n_kv_head, 1);
    gs_threads_run(device->threads, end_attention, job, n_rows, 1);
    gs_stage_clock_end(&device->clock, GS_TIME_ATTENTION);
    struct dense_job o = {device, &fast->attended, job->n_rows, {{&w->o, bias[3], fast->projected}}, 1};
    run_dense(&o);
    gs_stage_clock_end(&device->clock, GS_TIME_OUTPUT);
    tap(device, GS_STAGE_ATTENTION, job->layer, fast->projected, job->n_rows, config->d_model);
}

/* hidden += projected, then += the chosen experts of norm(hidden) */
static void moe_block(struct gs_device *device, struct row_job *job)
{
    const struct gs_config *config = &device->weights->config;
    struct gs_fast *fast = device->fast;
    size_t n_rows = (size_t)job->n_rows;
    gs_threads_run(device->threads, begin_experts, job, n_rows, 1);
    gs_stage_clock_end(&device->clock, GS_TIME_NORM);
    gs_threads_run(device->threads, route_experts, job, (size_t)config->n_expert, 8);
    device->stats.weight_bytes += (uint64_t)(config->n_expert * config->d_model) * sizeof(float);
    for (int64_t t = 0; t < job->n_rows; t++)
        device->stages.choose_experts(config, fast->router + t * config->n_expert,
                                      fast->choice + t * config->n_active,
                                      fast->choice_weight + t * config->n_active);
    tap(device, GS_STAGE_ROUTER, job->layer, fast->router, job->n_rows, config->n_expert);
    tap(device, GS_STAGE_ROUTER_CHOICE, job->layer, fast->choice, job->n_rows, config->n_active);
    tap(device, GS_STAGE_ROUTER_WEIGHT, job->layer, fast->choice_weight, job->n_rows, config->n_active);
    int64_t n_active_experts = sort_routes(device, job->n_rows);
    gs_stage_clock_end(&device->clock, GS_TIME_ROUTER);
    run_experts(device, job->layer, n_active_experts);
    gs_threads_run(device->threads, combine_rows, job, n_rows, 1);
    gs_stage_clock_end(&device->clock, GS_TIME_EXPERTS);
    tap(device, GS_STAGE_MOE, job->layer, fast->projected, job->n_rows, config->d_model);
    tap(device, GS_STAGE_LAYER, job->layer, fast->hidden, job->n_rows, config->d_model);
}

static void embed(struct gs_device *device, int64_t n_rows)
{
    const struct gs_config *config = &device->weights->config;
    struct gs_fast *fast = device->fast;
    int64_t half = config->d_head / 2;
    for (int64_t t = 0; t < n_rows; t++) {
        const struct gs_cpu_row *row = &device->scratch.rows[t];
        gs_matrix_row(&device->weights->embedding, row->token, fast->hidden + t * config->d_model);
        gs_yarn_angles(&device->yarn, row->position, fast->cosine + t * half, fast->sine + t * half);
    }
    tap(device, GS_STAGE_EMBEDDING, 0, fast->hidden, n_rows, config->d_model);
}

/* Logits of the rows that want them: their norms move up to the front. */
static void head(struct gs_device *device, int64_t n_rows)
{
    const struct gs_weights *weights = device->weights;
    struct gs_fast *fast = device->fast;
    int64_t d = weights->config.d_model, n_wanted = 0;
    for (int64_t t = 0; t < n_rows; t++)
        if (device->tap || device->scratch.rows[t].wants_logits)
            norm_row(device, fast->norm, t);
    tap(device, GS_STAGE_FINAL_NORM, 0, fast->normed.f32, n_rows, d);
    for (int64_t t = 0; t < n_rows; t++) {
        if (!device->scratch.rows[t].wants_logits)
            continue;
        memmove(fast->normed.f32 + n_wanted * d, fast->normed.f32 + t * d, (size_t)d * sizeof(float));
        prepare_row(fast, &fast->normed, n_wanted++, &weights->head);
    }
    device->n_logit_rows = (size_t)n_wanted;
    gs_stage_clock_end(&device->clock, GS_TIME_NORM);
    if (n_wanted == 0)
        return;
    struct dense_job job = {device, &fast->normed, n_wanted, {{&weights->head, NULL, device->logits}}, 1};
    run_dense(&job);
    gs_stage_clock_end(&device->clock, GS_TIME_HEAD);
    tap(device, GS_STAGE_LOGITS, 0, device->logits, n_wanted, weights->config.n_vocab);
}

gs_status gs_fast_forward(struct gs_device *device, int64_t n_rows, const _Atomic bool *cancelled,
                          struct gs_error *error)
{
    struct row_job job = {device, 0, n_rows};
    gs_stage_clock_begin(&device->clock, device->stats.stage_seconds, device->threads);
    embed(device, n_rows);
    gs_stage_clock_end(&device->clock, GS_TIME_OTHER);
    for (; job.layer < device->weights->config.n_layer; job.layer++) {
        if (cancelled && atomic_load_explicit(cancelled, memory_order_relaxed))
            return gs_fail(error, GS_CANCELLED, "cancelled");
        attention_block(device, &job);
        moe_block(device, &job);
    }
    head(device, n_rows);
    return GS_OK;
}
