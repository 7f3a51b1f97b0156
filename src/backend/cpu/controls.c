#include "backend/cpu/controls.h"

#include "backend/control_config.h"
#include "base/math.h"
#include "base/status.h"
#include "model/mxfp4.h"

#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------- stages */

static void rotate_neighbours(const struct gs_config *config, const float *cosine, const float *sine,
                              float *heads, int64_t n_head)
{
    for (int64_t h = 0; h < n_head; h++)
        for (int64_t j = 0; j < config->d_head / 2; j++) {
            float *pair = heads + h * config->d_head + 2 * j;
            float a = pair[0], b = pair[1];
            pair[0] = a * cosine[j] - b * sine[j];
            pair[1] = b * cosine[j] + a * sine[j];
        }
}

/*
 * A ring that goes on at its second slot after its end. The slot it spoils is one that no row of the step
 * sees: the ring holds the window and a whole step, one position more than a step needs.
 */
static void store_late(struct gs_device *device, int64_t layer, int64_t t)
{
    struct gs_cpu_row *row = &device->scratch.rows[t];
    const struct gs_kv_layer *ring = &row->kv->layers[layer];
    int64_t position = row->position;
    bool wrapped = ring->n_slot < row->kv->capacity && position >= ring->n_slot;
    row->position = wrapped ? position + 1 : position;
    gs_cpu_reference_stages.store(device, layer, t);
    row->position = position;
}

/* The reference's softmax over all experts, in its order; then the first n_active of them. */
static void choose_after_softmax(const struct gs_config *config, const float *logits, float *choice,
                                 float *weight)
{
    struct gs_config all = *config;
    float choices[GS_MAX_EXPERTS], weights[GS_MAX_EXPERTS];
    all.n_active = all.n_expert;
    gs_cpu_reference_stages.choose_experts(&all, logits, choices, weights);
    memcpy(choice, choices, (size_t)config->n_active * sizeof *choice);
    memcpy(weight, weights, (size_t)config->n_active * sizeof *weight);
}

static float gated(float gate, float alpha)
{
    float sigmoid = 1.0f / (1.0f + gs_exp(-(gate * alpha)));
    return gate * sigmoid;
}

static void activate_without_limit(struct gs_device *device, const float *gate_up, float *out)
{
    const struct gs_config *config = &device->weights->config;
    float limit = config->swiglu_limit;
    uint64_t n_past = 0;
    for (int64_t u = 0; u < config->d_ff; u++) {
        float gate = gate_up[2 * u], up = gate_up[2 * u + 1];
        n_past += (uint64_t)(gate > limit) + (uint64_t)(up > limit || up < -limit);
        out[u] = (up + 1.0f) * gated(gate, config->swiglu_alpha);
    }
    __atomic_fetch_add(&device->stats.n_past_limit, n_past, __ATOMIC_RELAXED);
}

static void activate_without_one(struct gs_device *device, const float *gate_up, float *out)
{
    const struct gs_config *config = &device->weights->config;
    for (int64_t u = 0; u < config->d_ff; u++) {
        float gate = fminf(gate_up[2 * u], config->swiglu_limit);
        float up = fmaxf(fminf(gate_up[2 * u + 1], config->swiglu_limit), -config->swiglu_limit);
        out[u] = up * gated(gate, config->swiglu_alpha);
    }
}

static void activate_halves(struct gs_device *device, const float *gate_up, float *out)
{
    const struct gs_config *config = &device->weights->config;
    int64_t d_ff = config->d_ff;
    for (int64_t u = 0; u < d_ff; u++) {
        float gate = fminf(gate_up[u], config->swiglu_limit);
        float up = fmaxf(fminf(gate_up[d_ff + u], config->swiglu_limit), -config->swiglu_limit);
        out[u] = (up + 1.0f) * gated(gate, config->swiglu_alpha);
    }
}

/* ---------------------------------------------------------------- kernels */

static void exchange(float *a, float *b)
{
    float kept = *a;
    *a = *b;
    *b = kept;
}

static void high_first(const uint8_t *blocks, const uint8_t *scales, int64_t n, float *out)
{
    gs_mxfp4_dequantize(blocks, scales, n, out);
    for (int64_t i = 0; i < n; i += 2)
        exchange(&out[i], &out[i + 1]);
}

static void high_first_gguf(const uint8_t *blocks, int64_t n, float *out)
{
    gs_mxfp4_dequantize_gguf(blocks, n, out);
    for (int64_t i = 0; i < n; i += GS_MXFP4_GROUP)
        for (int64_t k = i; k < i + GS_MXFP4_GROUP / 2; k++)
            exchange(&out[k], &out[k + GS_MXFP4_GROUP / 2]);
}

static void halve(float *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        values[i] *= 0.5f;
}

static void one_less(const uint8_t *blocks, const uint8_t *scales, int64_t n, float *out)
{
    gs_mxfp4_dequantize(blocks, scales, n, out);
    halve(out, n);
}

static void one_less_gguf(const uint8_t *blocks, int64_t n, float *out)
{
    gs_mxfp4_dequantize_gguf(blocks, n, out);
    halve(out, n);
}

/* The device's kernels, in a copy that may be changed; NULL if memory is out. */
static struct gs_kernels *copy_kernels(struct gs_device *device)
{
    struct gs_kernels *kernels = gs_arena_alloc(&device->arena, sizeof *kernels);
    if (kernels) {
        *kernels = *device->kernels;
        device->kernels = kernels;
    }
    return kernels;
}

static bool reverse_nibbles(struct gs_device *device)
{
    struct gs_kernels *kernels = copy_kernels(device);
    if (!kernels)
        return false;
    kernels->dequantize_mxfp4 = high_first;
    kernels->dequantize_mxfp4_gguf = high_first_gguf;
    return true;
}

static bool lower_scales(struct gs_device *device)
{
    struct gs_kernels *kernels = copy_kernels(device);
    if (!kernels)
        return false;
    kernels->dequantize_mxfp4 = one_less;
    kernels->dequantize_mxfp4_gguf = one_less_gguf;
    return true;
}

/* ---------------------------------------------------------------- weights */

/* A copy of the weights whose configuration and layers may be changed, in place of device->weights. */
static struct gs_weights *copy_weights(struct gs_device *device)
{
    struct gs_weights *copy = gs_arena_alloc(&device->arena, sizeof *copy);
    size_t n_layer = (size_t)device->weights->config.n_layer;
    struct gs_layer_weights *layers = gs_arena_alloc_array(&device->arena, n_layer, sizeof *layers);
    if (!copy || !layers)
        return NULL;
    *copy = *device->weights;
    copy->arena = (struct gs_arena){0};
    copy->layers = layers;
    memcpy(layers, device->weights->layers, n_layer * sizeof *layers);
    device->weights = copy;
    return copy;
}

static void fill_matrix(struct gs_matrix *matrix, const float *values)
{
    matrix->data = (const unsigned char *)values;
    matrix->type = GS_WEIGHT_F32;
    matrix->odd = NULL;
}

static bool remove_sinks(struct gs_device *device)
{
    struct gs_weights *weights = copy_weights(device);
    float *values =
        weights ? gs_arena_alloc_array(&device->arena, (size_t)weights->config.n_head, sizeof *values) : NULL;
    if (!values)
        return false;
    for (int64_t h = 0; h < weights->config.n_head; h++)
        values[h] = -INFINITY;
    for (int64_t i = 0; i < weights->config.n_layer; i++)
        fill_matrix(&weights->layers[i].sinks, values);
    return true;
}

static bool remove_expert_biases(struct gs_device *device)
{
    struct gs_weights *weights = copy_weights(device);
    if (!weights)
        return false;
    const struct gs_config *c = &weights->config;
    int64_t width = 2 * c->d_ff > c->d_model ? 2 * c->d_ff : c->d_model;
    const float *zeros = gs_arena_alloc_array(&device->arena, (size_t)(c->n_expert * width), sizeof *zeros);
    for (int64_t i = 0; zeros && i < c->n_layer; i++) {
        fill_matrix(&weights->layers[i].gate_up_bias, zeros);
        fill_matrix(&weights->layers[i].down_bias, zeros);
    }
    return zeros;
}

static bool spoil(struct gs_device *device)
{
    struct gs_weights *weights;
    switch (device->control) {
    case GS_CONTROL_SINKS:
        return remove_sinks(device);
    case GS_CONTROL_EXPERT_BIAS:
        return remove_expert_biases(device);
    case GS_CONTROL_WINDOW:
    case GS_CONTROL_YARN:
    case GS_CONTROL_YARN_ROUNDED_BOUNDS:
        if (!(weights = copy_weights(device)))
            return false;
        gs_control_spoil_config(device->control, &weights->config);
        return true;
    case GS_CONTROL_NIBBLE_ORDER:
        return reverse_nibbles(device);
    case GS_CONTROL_SCALE_MINUS_ONE:
        return lower_scales(device);
    case GS_CONTROL_ROUTER_SOFTMAX:
        device->stages.choose_experts = choose_after_softmax;
        return true;
    case GS_CONTROL_SWIGLU_CLAMP:
        device->stages.activate = activate_without_limit;
        return true;
    case GS_CONTROL_SWIGLU_PLUS_ONE:
        device->stages.activate = activate_without_one;
        return true;
    case GS_CONTROL_GATE_UP_ORDER:
        device->stages.activate = activate_halves;
        return true;
    case GS_CONTROL_ROPE_PAIRS:
        device->stages.rotate = rotate_neighbours;
        return true;
    case GS_CONTROL_KV_RING:
        device->stages.store = store_late;
        return true;
    case GS_CONTROL_NONE:
    case GS_CONTROL_COUNT:
        break;
    }
    return true;
}

gs_status gs_cpu_control_apply(struct gs_device *device, struct gs_error *error)
{
    return spoil(device) ? GS_OK : gs_fail_memory(error, sizeof *device->weights);
}
