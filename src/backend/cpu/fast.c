/*
 * The model at the speed of the memory. Read it from the bottom up, beside reference.c: the same stages, but
 * work goes to threads as tiles of 32 rows of weights, the experts of all tokens are tiles of one loop, and
 * what a stage leaves is already rounded for the next.
 *
 * A row's arithmetic is the kernels', which treat every row by itself, and sums over experts go in ascending
 * order: a token's bits do not depend on what shares its call, nor on the number of threads.
 */
#include "backend/cpu/fast_state.h"

#include "base/status.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* ---------------------------------------------------------------- dense layers */

/* Weights of one or more matrices that share an input, as one range of tiles. */
struct dense {
    const struct gs_matrix *weight;
    const float *bias; /* [rows]; may be NULL */
    float *out;        /* [n_in][stride] */
    int64_t stride;    /* rows at least */
};

struct dense_job {
    struct gs_device *device;
    const struct gs_fast_input *input;
    int64_t n_in;
    struct dense parts[3];
    size_t n_parts;
    uint64_t number; /* of the input, for meets_again */
};

/*
 * Has the thread's last product had the same vectors? They have a number, which none had before them, so that
 * what a product makes of them in the thread's work is made once.
 */
static bool meets_again(struct gs_fast *fast, size_t thread, uint64_t number)
{
    bool again = fast->work_holds[thread] == number;
    fast->work_holds[thread] = number;
    return again;
}

static size_t count_tiles(const struct dense *part)
{
    return (size_t)((part->weight->rows + GS_FAST_TILE_ROWS - 1) / GS_FAST_TILE_ROWS);
}

/* Weights of another type, one row after the other in float32. */
static void multiply_any(const struct dense_job *job, const struct dense *part, int64_t first, int64_t n_rows,
                         float *row)
{
    for (int64_t r = first; r < first + n_rows; r++) {
        gs_matrix_row(part->weight, r, row);
        for (int64_t t = 0; t < job->n_in; t++)
            job->device->kernels->dot(row, &job->input->f32_rows[t], 1, (size_t)part->weight->columns,
                                      &part->out[t * part->stride + r]);
    }
}

/* Rows of weights from `first` to `end`, a tile of them at most. */
static void multiply_tile(const struct dense_job *job, const struct dense *part, int64_t first, int64_t end,
                          size_t thread)
{
    struct gs_fast *fast = job->device->fast;
    const struct gs_matrix *weight = part->weight;
    int64_t n_rows = end - first < GS_FAST_TILE_ROWS ? end - first : GS_FAST_TILE_ROWS;
    int64_t row_bytes = gs_weight_bytes(weight->type, weight->columns);
    const unsigned char *data = weight->data + first * row_bytes;
    size_t n = (size_t)weight->columns, n_in = (size_t)job->n_in, stride = (size_t)part->stride;
    void *work = fast->work + thread * fast->work_bytes;
    float *out = part->out + first;
    if (weight->type == GS_WEIGHT_BF16) {
        struct gs_bf16_rows rows = {data};
        fast->kernels->bf16_bf16(&rows, (size_t)n_rows, n, job->input->bf16_rows, n_in, work, out, stride,
                                 meets_again(fast, thread, job->number));
    } else if (weight->type == GS_WEIGHT_Q8_0) {
        struct gs_q8_0_row rows[GS_FAST_TILE_ROWS];
        for (int64_t r = 0; r < n_rows; r++)
            rows[r].blocks = data + r * row_bytes;
        fast->work_holds[thread] = 0;
        fast->kernels->q8_0_q8(rows, (size_t)n_rows, n, job->input->q8_rows, n_in, work, out, stride);
    } else {
        multiply_any(job, part, first, n_rows, fast->tile + thread * fast->tile_floats);
    }
    if (part->bias)
        fast->kernels->add_bias(out, stride, n_in, part->bias + first, (size_t)n_rows);
}

static void dense_tiles(void *user, size_t begin, size_t end, size_t thread)
{
    const struct dense_job *job = user;
    for (size_t item = begin; item < end; item++) {
        size_t part = 0, tile = item;
        while (tile >= count_tiles(&job->parts[part]))
            tile -= count_tiles(&job->parts[part++]);
        multiply_tile(job, &job->parts[part], (int64_t)tile * GS_FAST_TILE_ROWS,
                      job->parts[part].weight->rows, thread);
    }
}

/* Before the job's first tile. */
static void begin_dense(struct dense_job *job)
{
    job->number = ++job->device->fast->last_number;
    for (size_t i = 0; i < job->n_parts; i++) {
        const struct gs_matrix *weight = job->parts[i].weight;
        job->device->stats.weight_bytes +=
            (uint64_t)(weight->rows * gs_weight_bytes(weight->type, weight->columns));
    }
}

static void run_dense(struct dense_job *job)
{
    size_t n_tiles = 0;
    for (size_t i = 0; i < job->n_parts; i++)
        n_tiles += count_tiles(&job->parts[i]);
    begin_dense(job);
    gs_threads_run(job->device->threads, dense_tiles, job, n_tiles, 1);
}

/* `n` elements of a row of an input, from `first`, a multiple of a chunk, in the form that `weight` meets. */
static void prepare_part(const struct gs_fast *fast, struct gs_fast_input *input, int64_t row, int64_t first,
                         int64_t n, const struct gs_matrix *weight)
{
    const float *from = input->f32 + row * input->n + first;
    if (weight->type == GS_WEIGHT_BF16)
        fast->kernels->round_bf16(from, (size_t)n, input->bf16 + row * input->n + first);
    else if (weight->type == GS_WEIGHT_Q8_0)
        fast->kernels->quantize_q8(from, (size_t)n, GS_Q8_HALVES,
                                   input->q8 + row * (int64_t)gs_q8_chunk_count((size_t)input->n) +
                                       first / GS_Q8_CHUNK);
}

static void prepare_row(const struct gs_fast *fast, struct gs_fast_input *input, int64_t row,
                        const struct gs_matrix *weight)
{
    prepare_part(fast, input, row, 0, input->n, weight);
}

/* ---------------------------------------------------------------- attention */

struct row_job {
    struct gs_device *device;
    int64_t layer;
    int64_t n_rows;
    int64_t n_spans;       /* of keys, that attention is spread over; 0: an item has all */
    int64_t rows_together; /* that are an item of the router */
};

static void norm_row(struct gs_device *device, const float *weight, int64_t t)
{
    struct gs_fast *fast = device->fast;
    const struct gs_config *config = &device->weights->config;
    fast->kernels->rms_norm(fast->hidden + t * config->d_model, weight, (size_t)config->d_model,
                            config->rms_norm_eps, fast->normed.f32 + t * config->d_model);
}

/* The row as a layer's QKV takes it. */
static void begin_layer(struct gs_device *device, int64_t layer, int64_t t)
{
    struct gs_fast *fast = device->fast;
    const struct gs_layer_weights *w = &device->weights->layers[layer];
    norm_row(device, fast->layers[layer].attention_norm, t);
    prepare_row(fast, &fast->normed, t, &w->q);
    if (w->k.type != w->q.type)
        prepare_row(fast, &fast->normed, t, &w->k);
    if (w->v.type != w->q.type && w->v.type != w->k.type)
        prepare_row(fast, &fast->normed, t, &w->v);
}

static void begin_first_layer(void *user, size_t begin, size_t end, size_t thread)
{
    (void)thread;
    const struct row_job *job = user;
    for (int64_t t = (int64_t)begin; t < (int64_t)end; t++)
        begin_layer(job->device, 0, t);
}

/* A row's query heads from `first` on. */
static void rotate_queries(const struct row_job *job, int64_t first, int64_t n_heads, int64_t t)
{
    struct gs_fast *fast = job->device->fast;
    int64_t d = job->device->weights->config.d_head, half = d / 2;
    fast->kernels->rotate(fast->cosine + t * half, fast->sine + t * half, (size_t)d,
                          fast->query + t * fast->query_stride + first * d, (size_t)n_heads);
}

/* A row's key, rotated, and value of a head go to its timeline's cache. */
static void store_head(const struct row_job *job, int64_t kv_head, int64_t t)
{
    const struct gs_config *config = &job->device->weights->config;
    const struct gs_cpu_row *row = &job->device->scratch.rows[t];
    struct gs_fast *fast = job->device->fast;
    int64_t d = config->d_head, half = d / 2, at = (t * config->n_kv_head + kv_head) * d;
    uint16_t key_bits[GS_MAX_D_HEAD], value_bits[GS_MAX_D_HEAD];
    fast->kernels->rotate(fast->cosine + t * half, fast->sine + t * half, (size_t)d, fast->key + at, 1);
    fast->kernels->round_bf16(fast->key + at, (size_t)d, key_bits);
    fast->kernels->round_bf16(fast->value + at, (size_t)d, value_bits);
    gs_kv_store_bf16(row->kv, job->layer, kv_head, row->position, key_bits, value_bits);
}

static void store_rows(void *user, size_t begin, size_t end, size_t thread)
{
    (void)thread;
    const struct row_job *job = user;
    const struct gs_config *config = &job->device->weights->config;
    for (int64_t t = (int64_t)begin; t < (int64_t)end; t++) {
        rotate_queries(job, 0, config->n_head, t);
        for (int64_t h = 0; h < config->n_kv_head; h++)
            store_head(job, h, t);
    }
}

/* Q, K and V of some rows, and where they go from there. */
struct qkv_job {
    const struct row_job *rows;
    struct dense_job dense; /* of q, k, v */
};

static void multiply_head(const struct qkv_job *job, size_t part, int64_t head, size_t thread)
{
    int64_t d = job->rows->device->weights->config.d_head;
    for (int64_t first = head * d; first < (head + 1) * d; first += GS_FAST_TILE_ROWS)
        multiply_tile(&job->dense, &job->dense.parts[part], first, (head + 1) * d, thread);
}

/* Items are heads, those of keys and values first: what a thread has made it takes on, while it is near. */
static void qkv_heads(void *user, size_t begin, size_t end, size_t thread)
{
    const struct qkv_job *job = user;
    int64_t n_kv_head = job->rows->device->weights->config.n_kv_head;
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        if (item < n_kv_head) {
            multiply_head(job, 1, item, thread);
            multiply_head(job, 2, item, thread);
        } else {
            multiply_head(job, 0, item - n_kv_head, thread);
        }
        for (int64_t t = 0; t < job->rows->n_rows; t++)
            if (item < n_kv_head)
                store_head(job->rows, item, t);
            else
                rotate_queries(job->rows, item - n_kv_head, 1, t);
    }
}

/* One row, or few heads for each thread: tiles are smaller items. */
static void run_qkv(struct row_job *rows)
{
    struct gs_device *device = rows->device;
    const struct gs_config *config = &device->weights->config;
    const struct gs_layer_weights *w = &device->weights->layers[rows->layer];
    struct gs_fast *fast = device->fast;
    float *const *bias = fast->layers[rows->layer].bias;
    int64_t kv_width = config->n_kv_head * config->d_head;
    struct qkv_job job = {rows,
                          {device,
                           &fast->normed,
                           rows->n_rows,
                           {{&w->q, bias[0], fast->query, fast->query_stride},
                            {&w->k, bias[1], fast->key, kv_width},
                            {&w->v, bias[2], fast->value, kv_width}},
                           3,
                           0}};
    size_t n_heads = (size_t)(config->n_head + config->n_kv_head);
    if (rows->n_rows > 1 && n_heads >= GS_FAST_ITEMS * gs_threads_count(device->threads)) {
        begin_dense(&job.dense);
        gs_threads_run(device->threads, qkv_heads, &job, n_heads, 1);
        return;
    }
    run_dense(&job.dense);
    gs_threads_run(device->threads, store_rows, rows, (size_t)rows->n_rows, 1);
}

/* Of a kv head and a row: where its attention comes from and goes to. */
static struct gs_fast_attention find_attention(const struct row_job *job, int64_t kv_head, int64_t t,
                                               size_t thread)
{
    const struct gs_config *config = &job->device->weights->config;
    struct gs_fast *fast = job->device->fast;
    const struct gs_cpu_row *row = &job->device->scratch.rows[t];
    int64_t d = config->d_head, group = config->n_head / config->n_kv_head;
    int64_t first = row->position - (config->window - 1), at = kv_head * group * d;
    int64_t span_floats = (int64_t)gs_fast_span_floats(group, d) * GS_FAST_SPANS;
    return (struct gs_fast_attention){
        .query = fast->query + t * fast->query_stride + at,
        .sinks = fast->layers[job->layer].sinks + kv_head * group,
        .keys = gs_kv_head_keys(row->kv, job->layer, kv_head),
        .values = gs_kv_head_values(row->kv, job->layer, kv_head),
        .n_slot = row->kv->layers[job->layer].n_slot,
        .first = config->layer_is_window[job->layer] && first > 0 ? first : 0,
        .last = row->position,
        .n_head = group,
        .d_head = d,
        .scale = 1.0f / sqrtf((float)d),
        .partial =
            t < GS_FAST_SPREAD_ROWS ? fast->partial + (t * config->n_kv_head + kv_head) * span_floats : NULL,
        .out = fast->attended.f32 + t * fast->attended.n + at,
        .work = fast->work + thread * fast->work_bytes,
    };
}

/* What the query heads of a kv head give is whole chunks of a row. */
static bool has_whole_chunks(const struct gs_config *config)
{
    return config->n_head / config->n_kv_head * config->d_head % GS_Q8_CHUNK == 0;
}

/* Many rows: items are (kv head, row), heads first: the rows of a prompt find a head's cache warm. */
static void attend_items(void *user, size_t begin, size_t end, size_t thread)
{
    const struct row_job *job = user;
    const struct gs_config *config = &job->device->weights->config;
    struct gs_fast *fast = job->device->fast;
    int64_t n_items = job->n_rows * config->n_kv_head, width = fast->attended.n / config->n_kv_head;
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        int64_t soon = item + 1 < n_items ? item + 1 : item;
        struct gs_fast_attention attention =
            find_attention(job, item / job->n_rows, item % job->n_rows, thread);
        struct gs_fast_attention next = find_attention(job, soon / job->n_rows, soon % job->n_rows, thread);
        attention.next = &next;
        gs_fast_attend(fast->kernels, &attention);
        if (has_whole_chunks(config))
            prepare_part(fast, &fast->attended, item % job->n_rows, item / job->n_rows * width, width,
                         &job->device->weights->layers[job->layer].o);
    }
}

/* Few: also by span of keys. False: this row has no such span. */
static bool find_span(const struct row_job *job, int64_t item, size_t thread, struct gs_fast_attention *out)
{
    int64_t n_kv_head = job->device->weights->config.n_kv_head;
    int64_t head_of_row = item / job->n_spans, span = item % job->n_spans;
    if (head_of_row >= job->n_rows * n_kv_head)
        return false;
    *out = find_attention(job, head_of_row % n_kv_head, head_of_row / n_kv_head, thread);
    if (span >= gs_fast_span_count(out->first, out->last))
        return false;
    *out = gs_fast_span(out, span);
    return true;
}

/* So that there are items for all threads; end_attention merges. */
static void attend_spans(void *user, size_t begin, size_t end, size_t thread)
{
    const struct row_job *job = user;
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        struct gs_fast_attention attention, next;
        if (!find_span(job, item, thread, &attention))
            continue;
        if (find_span(job, item + 1, thread, &next))
            attention.next = &next;
        job->device->fast->kernels->attend(&attention);
    }
}

/* The most that a row of this layer has. */
static int64_t count_spans(const struct row_job *job)
{
    int64_t most = 1;
    for (int64_t t = 0; t < job->n_rows; t++) {
        struct gs_fast_attention attention = find_attention(job, 0, t, 0);
        int64_t n_spans = gs_fast_span_count(attention.first, attention.last);
        most = n_spans > most ? n_spans : most;
    }
    return most;
}

static void end_attention(void *user, size_t begin, size_t end, size_t thread)
{
    const struct row_job *job = user;
    struct gs_fast *fast = job->device->fast;
    for (int64_t t = (int64_t)begin; t < (int64_t)end; t++) {
        for (int64_t h = 0; job->n_spans > 0 && h < job->device->weights->config.n_kv_head; h++) {
            struct gs_fast_attention attention = find_attention(job, h, t, thread);
            fast->kernels->merge_spans(&attention, gs_fast_span_count(attention.first, attention.last));
        }
        prepare_row(fast, &fast->attended, t, &job->device->weights->layers[job->layer].o);
    }
}

static void run_attention(struct row_job *job)
{
    size_t n_items = (size_t)(job->n_rows * job->device->weights->config.n_kv_head);
    job->n_spans = job->n_rows <= GS_FAST_SPREAD_ROWS ? count_spans(job) : 0;
    if (job->n_spans > 0)
        gs_threads_run(job->device->threads, attend_spans, job, n_items * (size_t)job->n_spans, 1);
    else
        gs_threads_run(job->device->threads, attend_items, job, n_items, 1);
    if (job->n_spans > 0 || !has_whole_chunks(&job->device->weights->config))
        gs_threads_run(job->device->threads, end_attention, job, (size_t)job->n_rows, 1);
}

/* ---------------------------------------------------------------- experts */

/* The residual, the norm, and the row as the experts take it. */
static void begin_row(const struct row_job *job, int64_t t)
{
    struct gs_fast *fast = job->device->fast;
    int64_t d = job->device->weights->config.d_model;
    fast->kernels->add_scaled(fast->hidden + t * d, fast->projected + t * d, 1.0f, (size_t)d);
    norm_row(job->device, fast->layers[job->layer].mlp_norm, t);
    fast->kernels->quantize_q8(fast->normed.f32 + t * d, (size_t)d, fast->expert_order,
                               fast->expert_in + t * (int64_t)gs_q8_chunk_count((size_t)d));
}

static void begin_rows(void *user, size_t begin, size_t end, size_t thread)
{
    (void)thread;
    for (int64_t t = (int64_t)begin; t < (int64_t)end; t++)
        begin_row(user, t);
}

/* Router logits of experts `first` ... end-1 for n rows from t0 on, in float32 and in the exact order: which
 * experts are chosen hangs on it. */
static void route_rows(const struct row_job *job, int64_t first, int64_t end, int64_t t0, int64_t n,
                       size_t thread)
{
    const struct gs_config *config = &job->device->weights->config;
    struct gs_fast *fast = job->device->fast;
    const struct gs_fast_layer *layer = &fast->layers[job->layer];
    float *dots = fast->tile + thread * fast->tile_floats;
    for (int64_t e = first; e < end; e++) {
        job->device->kernels->dot(layer->router + e * config->d_model, fast->normed.f32_rows + t0, (size_t)n,
                                  (size_t)config->d_model, dots);
        for (int64_t t = 0; t < n; t++)
            fast->router[(t0 + t) * config->n_expert + e] = dots[t] + layer->router_bias[e];
    }
}

static void choose_experts(const struct row_job *job, int64_t t)
{
    const struct gs_config *config = &job->device->weights->config;
    struct gs_fast *fast = job->device->fast;
    job->device->stages.choose_experts(config, fast->router + t * config->n_expert,
                                       fast->choice + t * config->n_active,
                                       fast->choice_weight + t * config->n_active);
}

/* Rows of the router's matrix that are one item of few rows, and the rows that are one of many. */
#define ROUTER_EXPERTS 8
#define ROUTER_ROWS    8

static void route_experts(void *user, size_t begin, size_t end, size_t thread)
{
    const struct row_job *job = user;
    int64_t n_expert = job->device->weights->config.n_expert;
    for (int64_t first = (int64_t)begin * ROUTER_EXPERTS; first < (int64_t)end * ROUTER_EXPERTS;
         first += ROUTER_EXPERTS) {
        int64_t last = first + ROUTER_EXPERTS < n_expert ? first + ROUTER_EXPERTS : n_expert;
        route_rows(job, first, last, 0, job->n_rows, thread);
    }
}

/* Rows from the residual to their choice, on one thread. */
static void begin_and_route(void *user, size_t begin, size_t end, size_t thread)
{
    const struct row_job *job = user;
    for (int64_t t0 = (int64_t)begin * job->rows_together; t0 < (int64_t)end * job->rows_together;
         t0 += job->rows_together) {
        int64_t left = job->n_rows - t0, n = left < job->rows_together ? left : job->rows_together;
        for (int64_t t = t0; t < t0 + n; t++)
            begin_row(job, t);
        route_rows(job, 0, job->device->weights->config.n_expert, t0, n, thread);
        for (int64_t t = t0; t < t0 + n; t++)
            choose_experts(job, t);
    }
}

/* With a row for each thread, a thread has rows; with fewer, it has experts. */
static void run_router(struct row_job *job)
{
    struct gs_device *device = job->device;
    const struct gs_config *config = &device->weights->config;
    int64_t n_threads = (int64_t)gs_threads_count(device->threads);
    device->stats.weight_bytes += (uint64_t)(config->n_expert * config->d_model) * sizeof(float);
    if (job->n_rows >= n_threads) {
        int64_t share = (job->n_rows - 1) / n_threads + 1;
        job->rows_together = share < ROUTER_ROWS ? share : ROUTER_ROWS;
        gs_threads_run(device->threads, begin_and_route, job,
                       (size_t)((job->n_rows - 1) / job->rows_together + 1), 1);
        return;
    }
    gs_threads_run(device->threads, begin_rows, job, (size_t)job->n_rows, 1);
    gs_stage_clock_end(&device->clock, GS_TIME_NORM);
    gs_threads_run(device->threads, route_experts, job, (size_t)((config->n_expert - 1) / ROUTER_EXPERTS + 1),
                   1);
    for (int64_t t = 0; t < job->n_rows; t++)
        choose_experts(job, t);
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

/* In the order in which they lie in memory: where odd rows have a matrix of their own, they come last. */
static void find_rows(const struct gs_mxfp4_matrix *weight, int64_t expert, int64_t first, int64_t n,
                      struct gs_mxfp4_row *rows)
{
    int64_t groups = weight->columns / GS_MXFP4_GROUP, part_rows = weight->odd_blocks ? n / 2 : n;
    for (int64_t part = 0; part * part_rows < n; part++) {
        struct gs_mxfp4_row row = gs_mxfp4_find_row(weight, expert, first + part);
        for (int64_t r = part * part_rows; r < (part + 1) * part_rows; r++) {
            rows[r] = row;
            row.blocks += groups * (row.scales ? GS_MXFP4_GROUP_BYTES : GS_MXFP4_BLOCK_BYTES);
            row.scales = row.scales ? row.scales + groups : NULL;
        }
    }
}

/* Gates, then ups -> pairs. */
static void pair_units(float *units)
{
    float parted[GS_FAST_UNIT_ROWS];
    memcpy(parted, units, sizeof parted);
    for (int64_t u = 0; u < GS_FAST_UNIT_ROWS / 2; u++) {
        units[2 * u] = parted[u];
        units[2 * u + 1] = parted[GS_FAST_UNIT_ROWS / 2 + u];
    }
}

/* 64 rows of gate and up: 32 units, activated, are a block of 8-bit activations. */
static void gate_up_tiles(void *user, size_t begin, size_t end, size_t thread)
{
    const struct expert_job *job = user;
    const struct gs_layer_weights *w = &job->device->weights->layers[job->layer];
    const struct gs_config *config = &job->device->weights->config;
    struct gs_fast *fast = job->device->fast;
    float *out = fast->tile + thread * fast->tile_floats, bias[GS_FAST_UNIT_ROWS];
    void *work = fast->work + thread * fast->work_bytes;
    int64_t ff_chunks = (int64_t)gs_q8_chunk_count((size_t)config->d_ff);
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        int64_t expert = fast->active[item / job->tiles], tile = item % job->tiles;
        int64_t route = fast->first_route[expert], n = fast->first_route[expert + 1] - route;
        struct gs_mxfp4_row rows[GS_FAST_UNIT_ROWS];
        find_rows(&w->gate_up, expert, tile * GS_FAST_UNIT_ROWS, GS_FAST_UNIT_ROWS, rows);
        for (int64_t r = 0; r < GS_FAST_UNIT_ROWS; r += GS_FAST_TILE_ROWS)
            fast->kernels->mxfp4_q8(rows + r, GS_FAST_TILE_ROWS, (size_t)config->d_model,
                                    fast->gate_up_in + route, (size_t)n, work, out + r, GS_FAST_UNIT_ROWS);
        read_bias(&w->gate_up_bias, expert, tile * GS_FAST_UNIT_ROWS, GS_FAST_UNIT_ROWS, bias);
        for (int64_t i = 0; w->gate_up.odd_blocks && i < n; i++)
            pair_units(out + i * GS_FAST_UNIT_ROWS);
        struct gs_activation how = {config->swiglu_limit, config->swiglu_alpha, fast->expert_order,
                                    (size_t)tile};
        fast->kernels->activate_q8(&how, out, bias, (size_t)n, fast->activated + route * ff_chunks,
                                   (size_t)ff_chunks);
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
        fast->kernels->add_bias(out, (size_t)config->d_model, (size_t)n, bias, (size_t)n_rows);
    }
}

/*
 * projected = the weighted sum of a row's experts, in ascending order of the expert; the residual, and the
 * row as the next layer takes it.
 */
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
            fast->kernels->add_scaled(to, fast->expert_out + route * d, fast->routes[route].weight,
                                      (size_t)d);
        }
        fast->kernels->add_scaled(fast->hidden + t * d, to, 1.0f, (size_t)d);
        if (job->layer + 1 < config->n_layer)
            begin_layer(job->device, job->layer + 1, t);
    }
}

static void run_experts(struct gs_device *device, int64_t layer, int64_t n_active_experts)
{
    const struct gs_config *config = &device->weights->config;
    struct expert_job job = {device, layer, 2 * config->d_ff / GS_FAST_UNIT_ROWS};
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
    run_qkv(job);
    gs_stage_clock_end(&device->clock, GS_TIME_QKV);
    run_attention(job);
    gs_stage_clock_end(&device->clock, GS_TIME_ATTENTION);
    struct dense_job o = {
        device,      &fast->attended,
        job->n_rows, {{&w->o, fast->layers[job->layer].bias[3], fast->projected, config->d_model}},
        1,           0};
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
    run_router(job);
    tap(device, GS_STAGE_ROUTER, job->layer, fast->router, job->n_rows, config->n_expert);
    tap(device, GS_STAGE_ROUTER_CHOICE, job->layer, fast->choice, job->n_rows, config->n_active);
    tap(device, GS_STAGE_ROUTER_WEIGHT, job->layer, fast->choice_weight, job->n_rows, config->n_active);
    int64_t n_active_experts = sort_routes(device, job->n_rows);
    gs_stage_clock_end(&device->clock, GS_TIME_ROUTER);
    run_experts(device, job->layer, n_active_experts);
    gs_stage_clock_end(&device->clock, GS_TIME_EXPERTS);
    gs_threads_run(device->threads, combine_rows, job, n_rows, 1);
    gs_stage_clock_end(&device->clock, GS_TIME_NORM);
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
    struct dense_job job = {device,   &fast->normed,
                            n_wanted, {{&weights->head, NULL, device->logits, weights->config.n_vocab}},
                            1,        0};
    run_dense(&job);
    gs_stage_clock_end(&device->clock, GS_TIME_HEAD);
    tap(device, GS_STAGE_LOGITS, 0, device->logits, n_wanted, weights->config.n_vocab);
}

gs_status gs_fast_forward(struct gs_device *device, int64_t n_rows, const _Atomic bool *cancelled,
                          struct gs_error *error)
{
    struct row_job job = {.device = device, .n_rows = n_rows};
    gs_stage_clock_begin(&device->clock, device->stats.stage_seconds, device->threads);
    embed(device, n_rows);
    gs_stage_clock_end(&device->clock, GS_TIME_OTHER);
    gs_threads_run(device->threads, begin_first_layer, &job, (size_t)n_rows, 1);
    gs_stage_clock_end(&device->clock, GS_TIME_NORM);
    for (; job.layer < device->weights->config.n_layer; job.layer++) {
        if (cancelled && atomic_load_explicit(cancelled, memory_order_relaxed))
            return gs_fail(error, GS_CANCELLED, "cancelled");
        attention_block(device, &job);
        moe_block(device, &job);
    }
    head(device, n_rows);
    return GS_OK;
}
