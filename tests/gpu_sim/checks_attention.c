/* Rotation, the cache, attention. */
#include "tests/gpu_sim/checks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    int32_t d_head, n_head, n_kv_head, n_slot, window, position; /* of the first row */
    bool is_f32;
};

static const struct shape shapes[] = {
    {64, 8, 2, 700, 0, 0, true},      {64, 16, 2, 40, 33, 300, false}, {10, 3, 1, 400, 0, 290, true},
    {8, 6, 3, 10, 7, 3, false},       {2, 1, 1, 4, 1, 2, true},        {80, 2, 1, 300, 0, 126, false},
    {128, 4, 4, 300, 200, 255, true},
};

static float bf16_value(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void put(void *to, bool is_f32, int64_t at, float value)
{
    float rounded = bf16_value(value);
    uint32_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    if (is_f32)
        ((float *)to)[at] = value;
    else
        ((uint16_t *)to)[at] = (uint16_t)(bits >> 16);
}

static float get(const void *from, bool is_f32, int64_t at)
{
    uint32_t bits;
    float value;
    if (is_f32)
        return ((const float *)from)[at];
    bits = (uint32_t)((const uint16_t *)from)[at] << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static struct gs_gpu_args args_of(const struct shape *s, int32_t n_rows)
{
    return (struct gs_gpu_args){.dims = {.d_head = s->d_head,
                                         .n_head = s->n_head,
                                         .n_kv_head = s->n_kv_head,
                                         .window = s->window,
                                         .attention_scale = 1.0f / sqrtf((float)s->d_head)},
                                .n_rows = n_rows,
                                .layer = 1,
                                .is_window = s->window > 0};
}

/* Layer 1's cache; layer 0's stands for another layer, which must be left alone. */
static void give_cache(struct check *check, const struct shape *s, struct gs_gpu_row *rows, int32_t n_rows,
                       struct gs_gpu_args *args, const void *keys, const void *values, size_t bytes)
{
    struct gs_gpu_kv_layer layers[2] = {{.n_slot = s->n_slot, .is_f32 = s->is_f32},
                                        {.n_slot = s->n_slot, .is_f32 = s->is_f32}};
    layers[1].keys = check_give(check, "keys", keys, bytes);
    layers[1].values = check_give(check, "values", values, bytes);
    const struct gs_gpu_kv_layer *kv = check_give(check, "the table of layers", layers, sizeof layers);
    for (int32_t t = 0; t < n_rows; t++)
        rows[t] = (struct gs_gpu_row){.kv = kv, .position = s->position + t};
    args->s.rows = check_give(check, "rows", rows, (size_t)n_rows * sizeof *rows);
}

/* ---------------------------------------------------------------- rotation */

static void rotate_one(const struct shape *s, const float *rope, float *x)
{
    int32_t half = s->d_head / 2;
    for (int32_t j = 0; j < half; j++) {
        float a = x[j], b = x[j + half], cosine = rope[2 * j], sine = rope[2 * j + 1];
        x[j] = a * cosine - b * sine;
        x[j + half] = b * cosine + a * sine;
    }
}

static void rotate_shape(struct check *check, const struct shape *s)
{
    enum { ROWS = 3 };
    int32_t n_heads = s->n_head + 2 * s->n_kv_head, d = s->d_head;
    size_t n = ROWS * (size_t)(n_heads * d), n_rope = (size_t)((s->position + ROWS) * d);
    size_t n_kv = (size_t)(s->n_kv_head * s->n_slot * d), bytes = n_kv * (s->is_f32 ? 4 : 2);
    float *qkv = calloc(n, sizeof *qkv), *rope = calloc(n_rope, sizeof *rope);
    void *keys = malloc(bytes), *values = malloc(bytes);
    struct gs_gpu_row rows[ROWS];
    struct gs_gpu_args args = args_of(s, ROWS);
    check_numbers(check, qkv, n);
    check_numbers(check, rope, n_rope);
    memset(keys, SIM_POISON, bytes);
    memset(values, SIM_POISON, bytes);
    give_cache(check, s, rows, ROWS, &args, NULL, NULL, bytes);
    args.s.qkv = check_give(check, "qkv", qkv, n * sizeof *qkv);
    args.s.rope = check_give(check, "rope", rope, n_rope * sizeof *rope);
    check_launch(check, "gs_simple_rotate", ROWS, 1, 1, GS_SIMPLE_THREADS, 0, &args);
    for (int32_t t = 0; t < ROWS; t++)
        for (int32_t h = 0; h < n_heads; h++) {
            float *x = qkv + (t * n_heads + h) * d;
            int32_t kv_head = (h - s->n_head) % s->n_kv_head;
            int64_t at = ((int64_t)kv_head * s->n_slot + (s->position + t) % s->n_slot) * d;
            if (h < s->n_head + s->n_kv_head)
                rotate_one(s, rope + (s->position + t) * d, x);
            for (int32_t i = 0; h >= s->n_head && i < d; i++)
                put(h < s->n_head + s->n_kv_head ? keys : values, s->is_f32, at + i, x[i]);
        }
    check_same(check, "rotate: q and k", args.s.qkv, qkv, n * sizeof *qkv);
    const struct gs_gpu_kv_layer *kv = rows[0].kv + 1;
    check_same(check, "rotate: keys", kv->keys, keys, bytes);
    check_same(check, "rotate: values", kv->values, values, bytes);
    free(qkv);
    free(rope);
    free(keys);
    free(values);
    check_release(check);
}

void check_rotate(struct check *check)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        rotate_shape(check, &shapes[i]);
}

/* ---------------------------------------------------------------- attention */

/* One head of one row: softmax over the sink and the keys from `first` on. */
static void attend(const struct shape *s, const float *q, const void *keys, const void *values,
                   int32_t kv_head, int32_t position, double sink, double *out)
{
    int32_t first = s->window > 0 && position >= s->window ? position - s->window + 1 : 0, d = s->d_head;
    double *score = calloc((size_t)(position - first) + 1, sizeof *score), largest = sink, sum = 0.0;
    for (int32_t p = first; p <= position; p++) {
        int64_t at = ((int64_t)kv_head * s->n_slot + p % s->n_slot) * d;
        for (int32_t i = 0; i < d; i++)
            score[p - first] += (double)q[i] * get(keys, s->is_f32, at + i);
        score[p - first] /= sqrt(d);
        largest = fmax(largest, score[p - first]);
    }
    sum = exp(sink - largest);
    memset(out, 0, (size_t)d * sizeof *out);
    for (int32_t p = first; p <= position; p++) {
        int64_t at = ((int64_t)kv_head * s->n_slot + p % s->n_slot) * d;
        double weight = exp(score[p - first] - largest);
        sum += weight;
        for (int32_t i = 0; i < d; i++)
            out[i] += weight * get(values, s->is_f32, at + i);
    }
    for (int32_t i = 0; i < d; i++)
        out[i] /= sum;
    free(score);
}

static void attention_shape(struct check *check, const struct shape *s)
{
    enum { ROWS = 2 };
    int32_t n_heads = s->n_head + 2 * s->n_kv_head, d = s->d_head;
    size_t n = ROWS * (size_t)(n_heads * d), n_out = ROWS * (size_t)(s->n_head * d);
    size_t n_kv = (size_t)(s->n_kv_head * s->n_slot * d), bytes = n_kv * (s->is_f32 ? 4 : 2);
    float *qkv = calloc(n, sizeof *qkv), *sinks = calloc((size_t)s->n_head, sizeof *sinks);
    double *expected = calloc(n_out, sizeof *expected);
    void *keys = malloc(bytes), *values = malloc(bytes);
    struct gs_gpu_row rows[ROWS];
    struct gs_gpu_args args = args_of(s, ROWS);
    for (size_t i = 0; i < n_kv; i++) {
        put(keys, s->is_f32, (int64_t)i, 2.0f * check_number(check));
        put(values, s->is_f32, (int64_t)i, check_number(check));
    }
    check_numbers(check, qkv, n);
    check_numbers(check, sinks, (size_t)s->n_head);
    give_cache(check, s, rows, ROWS, &args, keys, values, bytes);
    args.s.qkv = check_give(check, "qkv", qkv, n * sizeof *qkv);
    args.w.sinks = check_give(check, "sinks", sinks, (size_t)s->n_head * sizeof *sinks);
    args.s.attended = check_give(check, "attended", NULL, n_out * sizeof(float));
    for (int32_t t = 0; t < ROWS; t++)
        for (int32_t h = 0; h < s->n_head; h++)
            attend(s, qkv + (t * n_heads + h) * d, keys, values, h / (s->n_head / s->n_kv_head),
                   s->position + t, sinks[h], expected + (t * s->n_head + h) * d);
    check_launch(check, "gs_simple_attention", (uint32_t)s->n_head, ROWS, 1, GS_SIMPLE_ATTENTION,
                 (uint32_t)(2 * d + GS_SIMPLE_ATTENTION) * 4, &args);
    check_near(check, "attention", args.s.attended, expected, NULL, n_out, 2e-6);
    free(qkv);
    free(sinks);
    free(expected);
    free(keys);
    free(values);
    check_release(check);
}

void check_attention(struct check *check)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        attention_shape(check, &shapes[i]);
}
