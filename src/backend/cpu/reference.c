/*
 * gpt-oss in plain order: the executable specification, float32 throughout. Read it from the bottom up:
 * gs_cpu_reference_forward is the model, each function above it one of its stages.
 *
 * Every sum has a fixed order that depends on nothing but the row it is for: not on the number of threads,
 * nor on which rows share a call. So a token's logits have the same bits however they are computed. Work is
 * split over outputs (rows of weights, heads, tokens), never over the terms of a sum.
 */
#include "backend/cpu/device.h"
#include "base/math.h"
#include "base/status.h"
#include "model/mxfp4.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#define ROW_GRAIN 16 /* rows of weights that a thread takes at a time */

/* ---------------------------------------------------------------- dense layers */

struct linear {
    struct gs_device *device;
    const struct gs_matrix *weight;
    const struct gs_matrix *bias; /* may be NULL */
    const float *const *in;       /* [n_in]: vectors of weight->columns */
    int64_t n_in;
    float *out; /* [n_in][weight->rows] */
};

static void linear_rows(void *user, size_t begin, size_t end, size_t thread)
{
    const struct linear *linear = user;
    struct gs_device *device = linear->device;
    const struct gs_matrix *weight = linear->weight;
    float *row = device->scratch.thread_rows + (int64_t)thread * device->scratch.thread_row_size;
    float *dots =
        device->scratch.thread_dots + (int64_t)thread * GS_CPU_MAX_TOKENS * device->weights->config.n_active;
    for (int64_t r = (int64_t)begin; r < (int64_t)end; r++) {
        gs_matrix_row(weight, r, row);
        float bias = linear->bias ? gs_matrix_element(linear->bias, 0, r) : 0.0f;
        device->kernels->dot(row, linear->in, (size_t)linear->n_in, (size_t)weight->columns, dots);
        for (int64_t t = 0; t < linear->n_in; t++)
            linear->out[t * weight->rows + r] = dots[t] + bias;
    }
}

/* The vectors are those of device->scratch.pointers. */
static void run_linear(struct gs_device *device, const struct gs_matrix *weight, const struct gs_matrix *bias,
                       int64_t n_in, float *out)
{
    struct linear linear = {device, weight, bias, device->scratch.pointers, n_in, out};
    gs_threads_run(device->threads, linear_rows, &linear, (size_t)weight->rows, ROW_GRAIN);
    device->stats.weight_bytes += (uint64_t)(weight->rows * gs_weight_bytes(weight->type, weight->columns));
}

/* out[t] = weight in[t] + bias for the n_in vectors at in + t * stride. */
static void apply_linear(struct gs_device *device, const struct gs_matrix *weight,
                         const struct gs_matrix *bias, const float *in, int64_t n_in, float *out)
{
    const float **pointers = device->scratch.pointers;
    for (int64_t t = 0; t < n_in; t++)
        pointers[t] = in + t * weight->columns;
    run_linear(device, weight, bias, n_in, out);
}

/* y = w * (x / rms(x)), with rms(x)^2 = mean(x^2) + eps */
static void rms_norm(struct gs_device *device, const struct gs_matrix *weight, const float *x, int64_t n_rows,
                     float *y)
{
    const struct gs_config *config = &device->weights->config;
    int64_t d = config->d_model;
    float *w = device->scratch.thread_rows;
    gs_matrix_row(weight, 0, w);
    for (int64_t t = 0; t < n_rows; t++, x += d, y += d) {
        float sum;
        device->kernels->dot(x, &x, 1, (size_t)d, &sum);
        float scale = 1.0f / sqrtf(sum / (float)d + config->rms_norm_eps);
        for (int64_t i = 0; i < d; i++)
            y[i] = w[i] * (x[i] * scale);
    }
}

/* ---------------------------------------------------------------- attention */

/* Rotates each head's pairs (j, j + d_head/2) by the row's angles. */
static void rotate(const struct gs_config *config, const float *cosine, const float *sine, float *heads,
                   int64_t n_head)
{
    int64_t half = config->d_head / 2;
    for (int64_t h = 0; h < n_head; h++) {
        float *low = heads + h * config->d_head, *high = low + half;
        for (int64_t j = 0; j < half; j++) {
            float a = low[j], b = high[j];
            low[j] = a * cosine[j] - b * sine[j];
            high[j] = b * cosine[j] + a * sine[j];
        }
    }
}

/* The row's rotated key, and its value, into its timeline's cache. */
static void store(struct gs_device *device, int64_t layer, int64_t t)
{
    const struct gs_config *config = &device->weights->config;
    const struct gs_cpu_row *row = &device->scratch.rows[t];
    int64_t d = config->d_head, kv_width = config->n_kv_head * d;
    const float *key = device->scratch.key + t * kv_width, *value = device->scratch.value + t * kv_width;
    for (int64_t h = 0; h < config->n_kv_head; h++) {
        memcpy(gs_kv_key(row->kv, layer, h, row->position), key + h * d, (size_t)d * sizeof *key);
        memcpy(gs_kv_value(row->kv, layer, h, row->position), value + h * d, (size_t)d * sizeof *value);
    }
}

static void rotate_and_store(struct gs_device *device, int64_t layer, int64_t n_rows)
{
    const struct gs_config *config = &device->weights->config;
    const struct gs_cpu_stages *stages = &device->stages;
    struct gs_cpu_scratch *s = &device->scratch;
    int64_t half = config->d_head / 2;
    for (int64_t t = 0; t < n_rows; t++) {
        const float *cosine = s->cosine + t * half, *sine = s->sine + t * half;
        float *query = s->query + t * config->n_head * config->d_head;
        float *key = s->key + t * config->n_kv_head * config->d_head;
        stages->rotate(config, cosine, sine, query, config->n_head);
        stages->rotate(config, cosine, sine, key, config->n_kv_head);
        stages->store(device, layer, t);
    }
}

/*
 * One head of one row: softmax over the sink and the visible keys, times the values. The keys come in blocks;
 * `largest` and `sum` are those of the softmax so far and `out` is the sum of exp(score - largest) * value.
 */
static void attend(struct gs_device *device, int64_t layer, int64_t t, int64_t head, float sink)
{
    const struct gs_config *config = &device->weights->config;
    const struct gs_cpu_row *row = &device->scratch.rows[t];
    int64_t d = config->d_head, kv_head = head / (config->n_head / config->n_kv_head);
    const float *query = device->scratch.query + (t * config->n_head + head) * d;
    float *out = device->scratch.attended + (t * config->n_head + head) * d;
    float scale = 1.0f / sqrtf((float)d);

    /* A window layer sees `window` positions, its own included. */
    int64_t first = config->layer_is_window[layer] ? row->position - (config->window - 1) : 0;
    first = first > 0 ? first : 0;

    /* The sink takes part in the softmax like a key that has no value. */
    float largest = sink, sum = 1.0f;
    memset(out, 0, (size_t)d * sizeof *out);
    for (int64_t begin = first; begin <= row->position; begin += GS_CPU_KEY_BLOCK) {
        int64_t n = row->position + 1 - begin;
        n = n < GS_CPU_KEY_BLOCK ? n : GS_CPU_KEY_BLOCK;
        const float *keys[GS_CPU_KEY_BLOCK];
        float scores[GS_CPU_KEY_BLOCK];
        for (int64_t i = 0; i < n; i++)
            keys[i] = gs_kv_key(row->kv, layer, kv_head, begin + i);
        device->kernels->dot(query, keys, (size_t)n, (size_t)d, scores);

        float block_largest = largest;
        for (int64_t i = 0; i < n; i++) {
            scores[i] *= scale;
            block_largest = scores[i] > block_largest ? scores[i] : block_largest;
        }
        /* A sum a block: its terms are of like size, which keeps the rounding of long contexts small. */
        float block_sum = 0.0f, block_out[GS_MAX_D_HEAD];
        memset(block_out, 0, (size_t)d * sizeof *block_out);
        for (int64_t i = 0; i < n; i++) {
            float p = gs_exp(scores[i] - block_largest);
            const float *value = gs_kv_value(row->kv, layer, kv_head, begin + i);
            block_sum += p;
            for (int64_t j = 0; j < d; j++)
                block_out[j] += p * value[j];
        }
        float shrink = gs_exp(largest - block_largest);
        largest = block_largest;
        for (int64_t j = 0; j < d; j++)
            out[j] = out[j] * shrink + block_out[j];
        sum = sum * shrink + block_sum;
    }
    for (int64_t j = 0; j < d; j++)
        out[j] /= sum;
}

struct attention {
    struct gs_device *device;
    int64_t layer;
};

static void attention_items(void *user, size_t begin, size_t end, size_t thread)
{
    (void)thread;
    const struct attention *attention = user;
    const struct gs_weights *weights = attention->device->weights;
    int64_t n_head = weights->config.n_head;
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        float sink = gs_matrix_element(&weights->layers[attention->layer].sinks, 0, item % n_head);
        attend(attention->device, attention->layer, item / n_head, item % n_head, sink);
    }
}

/* ---------------------------------------------------------------- router */

/* The n_active largest logits, best first, ties to the lower index; softmax over these alone. */
static void choose_experts(const struct gs_config *config, const float *logits, float *choice, float *weight)
{
    for (int64_t k = 0; k < config->n_active; k++) {
        int64_t best = -1;
        for (int64_t e = 0; e < config->n_expert; e++) {
            bool taken = false;
            for (int64_t i = 0; i < k; i++)
                taken = taken || (int64_t)choice[i] == e;
            if (!taken && (best < 0 || logits[e] > logits[best]))
                best = e;
        }
        choice[k] = (float)best;
        weight[k] = logits[best];
    }
    float largest = weight[0], sum = 0.0f;
    for (int64_t k = 0; k < config->n_active; k++) {
        weight[k] = gs_exp(weight[k] - largest);
        sum += weight[k];
    }
    for (int64_t k = 0; k < config->n_active; k++)
        weight[k] /= sum;
}

/* Routes sorted by expert, so that an expert's weights are read once for all of its rows. */
static int64_t sort_routes(struct gs_device *device, int64_t n_rows)
{
    const struct gs_config *config = &device->weights->config;
    struct gs_cpu_scratch *s = &device->scratch;
    int64_t n_active_experts = 0, n_routes = 0;
    for (int64_t e = 0; e < config->n_expert; e++) {
        s->expert_routes[e] = n_routes;
        for (int64_t t = 0; t < n_rows; t++)
            for (int64_t k = 0; k < config->n_active; k++) {
                int64_t at = t * config->n_active + k;
                if ((int64_t)s->choice[at] != e)
                    continue;
                s->routes[n_routes] = (struct gs_cpu_route){t, e, s->choice_weight[at]};
                s->expert_inputs[n_routes++] = s->normed + t * config->d_model;
            }
        if (n_routes > s->expert_routes[e])
            s->active[n_active_experts++] = e;
    }
    s->expert_routes[config->n_expert] = n_routes;
    return n_active_experts;
}

/* ---------------------------------------------------------------- experts */

struct expert_linear {
    struct gs_device *device;
    const struct gs_mxfp4_matrix *weight;
    const struct gs_matrix *bias; /* [n_expert][rows] */
    const float *const *in;       /* [routes] */
    float *out;                   /* [routes][rows] */
};

static void expert_rows(void *user, size_t begin, size_t end, size_t thread)
{
    const struct expert_linear *linear = user;
    struct gs_device *device = linear->device;
    struct gs_cpu_scratch *s = &device->scratch;
    const struct gs_mxfp4_matrix *weight = linear->weight;
    float *row = s->thread_rows + (int64_t)thread * s->thread_row_size;
    float *dots = s->thread_dots + (int64_t)thread * GS_CPU_MAX_TOKENS * device->weights->config.n_active;
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        int64_t expert = s->active[item / weight->rows], r = item % weight->rows;
        int64_t first = s->expert_routes[expert], n = s->expert_routes[expert + 1] - first;
        struct gs_mxfp4_row stored = gs_mxfp4_find_row(weight, expert, r);
        if (stored.scales)
            device->kernels->dequantize_mxfp4(stored.blocks, stored.scales, weight->columns, row);
        else
            device->kernels->dequantize_mxfp4_gguf(stored.blocks, weight->columns, row);
        float bias = gs_matrix_element(linear->bias, expert, r);
        device->kernels->dot(row, linear->in + first, (size_t)n, (size_t)weight->columns, dots);
        for (int64_t i = 0; i < n; i++)
            linear->out[(first + i) * weight->rows + r] = dots[i] + bias;
    }
}

/* The clamped SwiGLU: gate from above only, up on both sides, and one added to up. */
static void activate(struct gs_device *device, const float *gate_up, float *out)
{
    const struct gs_config *config = &device->weights->config;
    float limit = config->swiglu_limit, alpha = config->swiglu_alpha;
    for (int64_t u = 0; u < config->d_ff; u++) {
        float gate = gate_up[2 * u], up = gate_up[2 * u + 1];
        gate = gate > limit ? limit : gate;
        up = up > limit ? limit : up < -limit ? -limit : up;
        float sigmoid = 1.0f / (1.0f + gs_exp(-(gate * alpha)));
        out[u] = (up + 1.0f) * (gate * sigmoid);
    }
}

static void run_experts(struct expert_linear *linear, int64_t n_active_experts)
{
    int64_t n_rows = n_active_experts * linear->weight->rows,
            groups = linear->weight->columns / GS_MXFP4_GROUP;
    gs_threads_run(linear->device->threads, expert_rows, linear, (size_t)n_rows, ROW_GRAIN);
    linear->device->stats.weight_bytes += (uint64_t)(n_rows * groups * (GS_MXFP4_GROUP_BYTES + 1));
}

struct activation {
    struct gs_device *device;
};

static void activate_routes(void *user, size_t begin, size_t end, size_t thread)
{
    (void)thread;
    struct gs_device *device = ((const struct activation *)user)->device;
    int64_t d_ff = device->weights->config.d_ff;
    for (int64_t route = (int64_t)begin; route < (int64_t)end; route++)
        device->stages.activate(device, device->scratch.gate_up + route * 2 * d_ff,
                                device->scratch.activated + route * d_ff);
}

/* moe[t] = the weighted sum of its experts' outputs, in ascending order of the expert. */
static void combine_routes(struct gs_device *device, int64_t n_rows)
{
    struct gs_cpu_scratch *s = &device->scratch;
    int64_t d = device->weights->config.d_model;
    memset(s->moe, 0, (size_t)(n_rows * d) * sizeof *s->moe);
    int64_t n_routes = s->expert_routes[device->weights->config.n_expert];
    for (int64_t i = 0; i < n_routes; i++) {
        const struct gs_cpu_route *route = &s->routes[i];
        const float *from = s->expert_out + i * d;
        float *to = s->moe + route->row * d;
        for (int64_t j = 0; j < d; j++)
            to[j] += from[j] * route->weight;
    }
}

/* ---------------------------------------------------------------- the model */

const struct gs_cpu_stages gs_cpu_reference_stages = {
    .rotate = rotate,
    .store = store,
    .choose_experts = choose_experts,
    .activate = activate,
};

static void tap(struct gs_device *device, enum gs_stage stage, int64_t layer, const float *values,
                int64_t rows, int64_t columns)
{
    if (device->tap)
        device->tap(device->tap_user, stage, layer, values, rows, columns);
}

static void add(float *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

/* hidden += o(attention(norm(hidden))) */
static void attention_block(struct gs_device *device, int64_t layer, int64_t n_rows)
{
    const struct gs_config *config = &device->weights->config;
    const struct gs_layer_weights *w = &device->weights->layers[layer];
    struct gs_cpu_scratch *s = &device->scratch;

    rms_norm(device, &w->attention_norm, s->hidden, n_rows, s->normed);
    gs_stage_clock_end(&device->clock, GS_TIME_NORM);
    apply_linear(device, &w->q, &w->q_bias, s->normed, n_rows, s->query);
    apply_linear(device, &w->k, &w->k_bias, s->normed, n_rows, s->key);
    apply_linear(device, &w->v, &w->v_bias, s->normed, n_rows, s->value);
    rotate_and_store(device, layer, n_rows);
    gs_stage_clock_end(&device->clock, GS_TIME_QKV);

    struct attention attention = {device, layer};
    gs_threads_run(device->threads, attention_items, &attention, (size_t)(n_rows * config->n_head), 1);
    gs_stage_clock_end(&device->clock, GS_TIME_ATTENTION);

    apply_linear(device, &w->o, &w->o_bias, s->attended, n_rows, s->projected);
    gs_stage_clock_end(&device->clock, GS_TIME_OUTPUT);
    tap(device, GS_STAGE_ATTENTION, layer, s->projected, n_rows, config->d_model);
    add(s->hidden, s->projected, n_rows * config->d_model);
    gs_stage_clock_end(&device->clock, GS_TIME_NORM);
}

/* hidden += the chosen experts of norm(hidden) */
static void moe_block(struct gs_device *device, int64_t layer, int64_t n_rows)
{
    const struct gs_config *config = &device->weights->config;
    const struct gs_layer_weights *w = &device->weights->layers[layer];
    struct gs_cpu_scratch *s = &device->scratch;

    rms_norm(device, &w->mlp_norm, s->hidden, n_rows, s->normed);
    gs_stage_clock_end(&device->clock, GS_TIME_NORM);
    apply_linear(device, &w->router, &w->router_bias, s->normed, n_rows, s->router);
    for (int64_t t = 0; t < n_rows; t++)
        device->stages.choose_experts(config, s->router + t * config->n_expert,
                                      s->choice + t * config->n_active,
                                      s->choice_weight + t * config->n_active);
    tap(device, GS_STAGE_ROUTER, layer, s->router, n_rows, config->n_expert);
    tap(device, GS_STAGE_ROUTER_CHOICE, layer, s->choice, n_rows, config->n_active);
    tap(device, GS_STAGE_ROUTER_WEIGHT, layer, s->choice_weight, n_rows, config->n_active);

    int64_t n_active_experts = sort_routes(device, n_rows);
    gs_stage_clock_end(&device->clock, GS_TIME_ROUTER);
    int64_t n_routes = n_rows * config->n_active;
    struct expert_linear gate_up = {device, &w->gate_up, &w->gate_up_bias, s->expert_inputs, s->gate_up};
    run_experts(&gate_up, n_active_experts);

    struct activation activation = {device};
    gs_threads_run(device->threads, activate_routes, &activation, (size_t)n_routes, 1);

    for (int64_t i = 0; i < n_routes; i++)
        s->pointers[i] = s->activated + i * config->d_ff;
    struct expert_linear down = {device, &w->down, &w->down_bias, s->pointers, s->expert_out};
    run_experts(&down, n_active_experts);

    combine_routes(device, n_rows);
    gs_stage_clock_end(&device->clock, GS_TIME_EXPERTS);
    tap(device, GS_STAGE_MOE, layer, s->moe, n_rows, config->d_model);
    add(s->hidden, s->moe, n_rows * config->d_model);
    tap(device, GS_STAGE_LAYER, layer, s->hidden, n_rows, config->d_model);
    gs_stage_clock_end(&device->clock, GS_TIME_NORM);
}

static void embed(struct gs_device *device, int64_t n_rows)
{
    const struct gs_config *config = &device->weights->config;
    struct gs_cpu_scratch *s = &device->scratch;
    int64_t half = config->d_head / 2;
    for (int64_t t = 0; t < n_rows; t++) {
        gs_matrix_row(&device->weights->embedding, s->rows[t].token, s->hidden + t * config->d_model);
        gs_yarn_angles(&device->yarn, s->rows[t].position, s->cosine + t * half, s->sine + t * half);
    }
    tap(device, GS_STAGE_EMBEDDING, 0, s->hidden, n_rows, config->d_model);
}

/* Logits of the rows that want them. */
static void head(struct gs_device *device, int64_t n_rows)
{
    const struct gs_config *config = &device->weights->config;
    struct gs_cpu_scratch *s = &device->scratch;
    rms_norm(device, &device->weights->norm, s->hidden, n_rows, s->normed);
    tap(device, GS_STAGE_FINAL_NORM, 0, s->normed, n_rows, config->d_model);
    gs_stage_clock_end(&device->clock, GS_TIME_NORM);
    int64_t n_wanted = 0;
    for (int64_t t = 0; t < n_rows; t++)
        if (s->rows[t].wants_logits)
            s->pointers[n_wanted++] = s->normed + t * config->d_model;
    device->n_logit_rows = (size_t)n_wanted;
    if (n_wanted == 0)
        return;
    run_linear(device, &device->weights->head, NULL, n_wanted, device->logits);
    gs_stage_clock_end(&device->clock, GS_TIME_HEAD);
    tap(device, GS_STAGE_LOGITS, 0, device->logits, n_wanted, config->n_vocab);
}

gs_status gs_cpu_reference_forward(struct gs_device *device, int64_t n_rows, const _Atomic bool *cancelled,
                                   struct gs_error *error)
{
    gs_stage_clock_begin(&device->clock, device->stats.stage_seconds, device->threads);
    embed(device, n_rows);
    gs_stage_clock_end(&device->clock, GS_TIME_OTHER);
    for (int64_t layer = 0; layer < device->weights->config.n_layer; layer++) {
        if (cancelled && atomic_load_explicit(cancelled, memory_order_relaxed))
            return gs_fail(error, GS_CANCELLED, "cancelled");
        attention_block(device, layer, n_rows);
        moe_block(device, layer, n_rows);
    }
    head(device, n_rows);
    return GS_OK;
}
