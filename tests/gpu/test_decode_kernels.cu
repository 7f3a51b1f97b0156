/*
 * The decode kernels stage by stage against float64 on the host, over shapes that divide unevenly, with
 * poisoned buffers. Each stage's reference starts from what the kernel before it really wrote, so an error is
 * seen where it arises. Needs a device of compute capability 9.0; exit code 0: all is right.
 *
 *   test_decode_kernels [small|wide|20b|20b-q8]
 */
#include "decode_fixture.cuh"

/* Host copies of a layer's weights, as numbers. */
struct host_layer {
    float *attention_norm, *qkv, *qkv_bias, *sinks, *o, *o_bias, *mlp_norm, *router, *router_bias;
    uint8_t *gate_up, *gate_up_scales, *down, *down_scales;
    float *gate_up_bias, *down_bias;
};

static uint64_t seed = 1;
static int failures;

static float *random_vector(size_t n, float center, float spread)
{
    float *v = (float *)malloc(n * sizeof *v);
    for (size_t i = 0; i < n; i++)
        v[i] = center + spread * random_float(seed + i);
    seed += n;
    return v;
}

static void relay_dense(struct gs_gpu_matrix *m)
{
    int64_t bytes = gs_decode_relaid_bytes(m->rows, m->columns, 1, m->type);
    if (bytes == 0)
        return;
    void *to = device_bytes((size_t)bytes);
    struct gs_decode_relay relay = {m->data, m->scales, to, m->type, m->rows, m->columns, 1, 0, 0};
    if (m->type == GS_GPU_Q8)
        gs_decode_relay_q8<<<256, 256>>>(relay);
    else
        gs_decode_relay_dense<<<256, 256>>>(relay);
    CHECK(cudaDeviceSynchronize());
    m->relaid = to;
}

/* A dense matrix of type `type`, as numbers and on the device in both forms. */
static float *random_matrix(int32_t rows, int32_t columns, int32_t type, struct gs_gpu_matrix *out)
{
    size_t n = (size_t)rows * (size_t)columns;
    float *values = random_vector(n, 0.0f, 2.0f / sqrtf((float)columns));
    uint16_t *bits = (uint16_t *)malloc(n * 2), *scales = (uint16_t *)malloc(n / 32 * 2);
    int8_t *codes = (int8_t *)malloc(n);
    for (size_t i = 0; i < n; i++) {
        if (i % 32 == 0)
            scales[i / 32] = (uint16_t)(0x1400 + mix(seed + i) % 0x400); /* 2^-10 ... 2^-9 */
        codes[i] = (int8_t)((int)(mix(seed + i) >> 40) % 255 - 127);
        bits[i] = bf16_of_float(values[i]);
        values[i] = type == GS_GPU_Q8 ? ldexpf((float)(0x400 + (scales[i / 32] & 0x3ff)), -20) * codes[i]
                                      : float_of_bf16(bits[i]);
    }
    memset(out, 0, sizeof *out);
    out->data = type == GS_GPU_Q8 ? device_copy(codes, n) : device_copy(bits, n * 2);
    out->scales = type == GS_GPU_Q8 ? (uint16_t *)device_copy(scales, n / 32 * 2) : NULL;
    out->type = type, out->rows = rows, out->columns = columns;
    relay_dense(out);
    free(bits), free(codes), free(scales);
    return values;
}

static void random_experts(int32_t n_expert, int32_t rows, int32_t columns, int pairs,
                           struct gs_gpu_experts *out, uint8_t **codes, uint8_t **scales, float **bias)
{
    size_t n = (size_t)n_expert * (size_t)rows, stride = ((size_t)columns / 32 + 15) / 16 * 16;
    *codes = (uint8_t *)malloc(n * (size_t)columns / 2);
    *scales = (uint8_t *)calloc(n, stride);
    for (size_t i = 0; i < n * (size_t)columns / 2; i += 8) {
        uint64_t bits = mix(seed + i);
        memcpy(*codes + i, &bits, 8);
    }
    seed += n * (size_t)columns;
    for (size_t r = 0; r < n; r++)
        for (size_t g = 0; g < (size_t)columns / 32; g++)
            (*scales)[r * stride + g] = (uint8_t)(117 + mix(seed++) % 6);
    *bias = random_vector(n, 0.0f, 0.5f);
    memset(out, 0, sizeof *out);
    out->codes = (uint8_t *)device_copy(*codes, n * (size_t)columns / 2);
    out->scales = (uint8_t *)device_copy(*scales, n * stride);
    out->bias = (float *)device_copy(*bias, n * 4);
    out->rows = rows, out->columns = columns, out->scale_stride = (int32_t)stride;
    void *to = device_bytes((size_t)gs_decode_relaid_bytes(rows, columns, n_expert, GS_DECODE_MXFP4));
    struct gs_decode_relay relay = {out->codes, out->scales,     to,   GS_DECODE_MXFP4, rows, columns,
                                    n_expert,   (int32_t)stride, pairs};
    gs_decode_relay_experts<<<256, 256>>>(relay);
    CHECK(cudaDeviceSynchronize());
    out->relaid = to;
}

static double expert_at(const uint8_t *codes, const uint8_t *scales, int32_t columns, int64_t row,
                        int32_t column)
{
    static const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
    int64_t stride = (columns / 32 + 15) / 16 * 16;
    uint8_t byte = codes[(row * columns + column) / 2];
    return ldexp(values[column % 2 ? byte >> 4 : byte & 15], scales[row * stride + column / 32] - 127);
}

/* ---------------------------------------------------------------- comparing */

static double *read_pairs(const struct model *m, int64_t at, int32_t n, int n_pair)
{
    float *pair = (float *)malloc(2 * (size_t)n_pair * (size_t)n * 4);
    double *sum = (double *)calloc((size_t)n, 8);
    CHECK(cudaMemcpy(pair, (uint8_t *)m->scratch.decode + at, 2 * (size_t)n_pair * (size_t)n * 4,
                     cudaMemcpyDeviceToHost));
    for (int32_t i = 0; i < 2 * n_pair * n; i++)
        sum[i % n] += (double)pair[i];
    free(pair);
    return sum;
}

static double *read_pair(const struct model *m, int64_t at, int32_t n)
{
    return read_pairs(m, at, n, 1);
}

static double *read_split(const struct model *m, int64_t at, int32_t n, double scale)
{
    uint16_t *split = (uint16_t *)malloc((size_t)n * 6);
    double *sum = (double *)malloc((size_t)n * 8);
    CHECK(cudaMemcpy(split, (uint8_t *)m->scratch.decode + at, (size_t)n * 6, cudaMemcpyDeviceToHost));
    for (int32_t i = 0; i < n; i++) {
        sum[i] = 0.0;
        for (int k = 0; k < 3; k++)
            sum[i] += scale * (double)float_of_bf16(split[(i / 32 * 3 + k) * 32 + i % 32]);
    }
    free(split);
    return sum;
}

static float *read_floats(const void *from, size_t n)
{
    float *v = (float *)malloc(n * 4);
    CHECK(cudaMemcpy(v, from, n * 4, cudaMemcpyDeviceToHost));
    return v;
}

static void compare(const char *shape, const char *stage, int32_t layer, const double *out,
                    const double *expected, int64_t n, double limit)
{
    double difference = 0.0, norm = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double d = out[i] - expected[i];
        difference += d * d; /* NaN stays NaN and fails below */
        norm += expected[i] * expected[i];
    }
    double error = sqrt(difference / norm);
    bool good = error <= limit;
    failures += !good;
    printf("%-8s %-12s layer %d  error %.2e%s\n", shape, stage, layer, error, good ? "" : "  WRONG");
}

static void dot_rows(const float *matrix, const double *x, int32_t rows, int32_t columns, double *out)
{
    for (int32_t r = 0; r < rows; r++) {
        out[r] = 0.0;
        for (int32_t i = 0; i < columns; i++)
            out[r] += (double)matrix[(int64_t)r * columns + i] * x[i];
    }
}

static double *norm_of(const double *x, const float *weight, int32_t n)
{
    double *y = (double *)malloc((size_t)n * 8), squares = 0.0;
    for (int32_t i = 0; i < n; i++)
        squares += x[i] * x[i];
    for (int32_t i = 0; i < n; i++)
        y[i] = x[i] * weight[i] / sqrt(squares / n + 1e-5);
    return y;
}

/* ---------------------------------------------------------------- a layer */

struct test {
    const char *name;
    int32_t type;
    struct model model;
    struct host_layer *layers;
    float *norm, *head;
    uint16_t **keys, **values; /* of each layer, host */
};

static void make_layer(struct test *t, int32_t layer)
{
    struct model *m = &t->model;
    const struct gs_gpu_dims *d = &m->dims;
    struct gs_gpu_layer *w = &m->layers[layer];
    struct host_layer *h = &t->layers[layer];
    int32_t n_qkv = (d->n_head + 2 * d->n_kv_head) * 64;
    memset(w, 0, sizeof *w);
    h->attention_norm = random_vector((size_t)d->d_model, 1.0f, 0.5f);
    h->mlp_norm = random_vector((size_t)d->d_model, 1.0f, 0.5f);
    h->qkv_bias = random_vector((size_t)n_qkv, 0.0f, 0.5f);
    h->sinks = random_vector((size_t)d->n_head, 0.0f, 2.0f);
    h->o_bias = random_vector((size_t)d->d_model, 0.0f, 0.5f);
    h->router_bias = random_vector((size_t)d->n_expert, 0.0f, 0.5f);
    h->qkv = random_matrix(n_qkv, d->d_model, t->type, &w->qkv);
    h->o = random_matrix(d->d_model, d->n_head * 64, t->type, &w->o);
    h->router = random_matrix(d->n_expert, d->d_model, GS_GPU_BF16, &w->router);
    random_experts(d->n_expert, 2 * d->d_ff, d->d_model, 1, &w->gate_up, &h->gate_up, &h->gate_up_scales,
                   &h->gate_up_bias);
    random_experts(d->n_expert, d->d_model, d->d_ff, 0, &w->down, &h->down, &h->down_scales, &h->down_bias);
    float *columns = (float *)malloc((size_t)d->d_model * (size_t)d->n_expert * 4);
    for (int64_t i = 0; i < d->d_model; i++)
        for (int64_t e = 0; e < d->n_expert; e++)
            columns[i * d->n_expert + e] = h->router[e * d->d_model + i] * h->mlp_norm[i];
    w->router_columns = (float *)device_copy(columns, (size_t)d->d_model * (size_t)d->n_expert * 4);
    free(columns);
    w->attention_norm = (float *)device_copy(h->attention_norm, (size_t)d->d_model * 4);
    w->mlp_norm = (float *)device_copy(h->mlp_norm, (size_t)d->d_model * 4);
    w->qkv_bias = (float *)device_copy(h->qkv_bias, (size_t)n_qkv * 4);
    w->sinks = (float *)device_copy(h->sinks, (size_t)d->n_head * 4);
    w->o_bias = (float *)device_copy(h->o_bias, (size_t)d->d_model * 4);
    w->router_bias = (float *)device_copy(h->router_bias, (size_t)d->n_expert * 4);
}

static void make_cache(struct test *t, int32_t layer, int32_t n_slot)
{
    struct model *m = &t->model;
    size_t n = (size_t)m->dims.n_kv_head * (size_t)n_slot * 64;
    t->keys[layer] = (uint16_t *)malloc(n * 2);
    t->values[layer] = (uint16_t *)malloc(n * 2);
    for (size_t i = 0; i < n; i++) {
        t->keys[layer][i] = bf16_of_float(2.0f * random_float(seed++));
        t->values[layer][i] = bf16_of_float(random_float(seed++));
    }
    m->kv[layer].keys = device_copy(t->keys[layer], n * 2);
    m->kv[layer].values = device_copy(t->values[layer], n * 2);
    m->kv[layer].n_slot = n_slot;
    m->kv[layer].is_f32 = 0;
}

static void make_test(struct test *t, const struct shape *s)
{
    struct model *m = &t->model;
    memset(t, 0, sizeof *t);
    t->name = s->name;
    t->type = s->type;
    m->machine = machine_here();
    m->dims = dims_of(s);
    make_scratch(m);
    m->layers = (struct gs_gpu_layer *)calloc((size_t)s->n_layer, sizeof *m->layers);
    m->kv = (struct gs_gpu_kv_layer *)calloc((size_t)s->n_layer, sizeof *m->kv);
    t->layers = (struct host_layer *)calloc((size_t)s->n_layer, sizeof *t->layers);
    t->keys = (uint16_t **)calloc((size_t)s->n_layer, sizeof *t->keys);
    t->values = (uint16_t **)calloc((size_t)s->n_layer, sizeof *t->values);
    for (int32_t layer = 0; layer < s->n_layer; layer++) {
        make_layer(t, layer);
        make_cache(t, layer, layer % 2 == 0 ? 136 : s->n_ctx);
    }
    m->kv_device = (struct gs_gpu_kv_layer *)device_copy(m->kv, (size_t)s->n_layer * sizeof *m->kv);
    t->norm = random_vector((size_t)s->d_model, 1.0f, 0.5f);
    m->norm = (float *)device_copy(t->norm, (size_t)s->d_model * 4);
    t->head = random_matrix(s->n_vocab, s->d_model, s->type, &m->head);
}

static void check_attention(struct test *t, int32_t layer, int32_t position)
{
    struct model *m = &t->model;
    const struct gs_gpu_dims *d = &m->dims;
    const struct host_layer *h = &t->layers[layer];
    struct gs_decode_layout at = gs_decode_layout_of(d);
    int32_t n_qkv = (d->n_head + 2 * d->n_kv_head) * 64, n_slot = m->kv[layer].n_slot;
    int32_t first = layer % 2 == 0 && position >= 128 ? position - 127 : 0;
    double *qkv = read_pair(m, at.qkv, n_qkv), *out = read_split(m, at.attended, d->n_head * 64, 1.0);
    double *expected = (double *)calloc((size_t)d->n_head * 64, 8);
    double *p = (double *)malloc((size_t)(position + 1) * 8);
    for (int32_t i = 0; i < n_qkv; i++)
        qkv[i] += h->qkv_bias[i];
    for (int32_t i = 0; i < d->n_head + d->n_kv_head; i++)
        for (int j = 0; j < 32; j++) {
            double angle = (double)position * pow(150000.0, -j / 32.0), a = qkv[i * 64 + j],
                   b = qkv[i * 64 + j + 32];
            double c = 1.3465735902799727 * cos(angle), s = 1.3465735902799727 * sin(angle);
            qkv[i * 64 + j] = a * c - b * s;
            qkv[i * 64 + j + 32] = b * c + a * s;
        }
    for (int32_t g = 0; g < d->n_kv_head; g++)
        for (int j = 0; j < 64; j++) {
            int64_t slot = ((int64_t)g * n_slot + position % n_slot) * 64 + j;
            t->keys[layer][slot] = bf16_of_float((float)qkv[(d->n_head + g) * 64 + j]);
            t->values[layer][slot] = bf16_of_float((float)qkv[(d->n_head + d->n_kv_head + g) * 64 + j]);
        }
    for (int32_t head = 0; head < d->n_head; head++) {
        int64_t base = (int64_t)(head / 8) * n_slot * 64;
        double largest = h->sinks[head], sum = 0.0;
        for (int32_t k = first; k <= position; k++) {
            p[k] = 0.0;
            for (int j = 0; j < 64; j++)
                p[k] +=
                    0.125 * qkv[head * 64 + j] * float_of_bf16(t->keys[layer][base + k % n_slot * 64 + j]);
            largest = p[k] > largest ? p[k] : largest;
        }
        sum = exp(h->sinks[head] - largest);
        for (int32_t k = first; k <= position; k++)
            sum += exp(p[k] - largest);
        for (int32_t k = first; k <= position; k++)
            for (int j = 0; j < 64; j++)
                expected[head * 64 + j] +=
                    exp(p[k] - largest) / sum * float_of_bf16(t->values[layer][base + k % n_slot * 64 + j]);
    }
    compare(t->name, "attention", layer, out, expected, d->n_head * 64,
            1e-4); /* a bf16 key may round apart */
    free(qkv), free(out), free(expected), free(p);
}

static void check_experts(struct test *t, int32_t layer, const double *middle)
{
    struct model *m = &t->model;
    const struct gs_gpu_dims *d = &m->dims;
    const struct host_layer *h = &t->layers[layer];
    struct gs_decode_layout at = gs_decode_layout_of(d);
    double *y = norm_of(middle, h->mlp_norm, d->d_model), *logits = (double *)malloc((size_t)d->n_expert * 8);
    int order[4], ascending[4];
    double weight[4], total = 0.0;
    dot_rows(h->router, y, d->n_expert, d->d_model, logits);
    for (int32_t e = 0; e < d->n_expert; e++)
        logits[e] += h->router_bias[e];
    for (int k = 0; k < 4; k++) {
        order[k] = -1;
        for (int32_t e = 0; e < d->n_expert; e++) {
            bool taken = false;
            for (int i = 0; i < k; i++)
                taken = taken || order[i] == e;
            if (!taken && (order[k] < 0 || logits[e] > logits[order[k]]))
                order[k] = e;
        }
        total += weight[k] = exp(logits[order[k]] - logits[order[0]]);
    }
    int32_t choice[4];
    float choice_weight[4];
    CHECK(cudaMemcpy(choice, m->scratch.choice, sizeof choice, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(choice_weight, m->scratch.choice_weight, sizeof choice_weight, cudaMemcpyDeviceToHost));
    double weights_out[4];
    for (int k = 0; k < 4; k++) {
        weight[k] /= total;
        weights_out[k] = choice[k] == order[k] ? choice_weight[k] : NAN;
        ascending[k] = 0;
        for (int i = 0; i < 4; i++)
            ascending[k] += order[i] < order[k];
    }
    compare(t->name, "choice", layer, weights_out, weight, 4, 1e-5);

    double *activated = (double *)malloc((size_t)d->d_ff * 4 * 8),
           *u = (double *)malloc((size_t)d->d_ff * 2 * 8);
    for (int k = 0; k < 4; k++) {
        int64_t row0 = (int64_t)order[k] * 2 * d->d_ff;
        for (int32_t r = 0; r < 2 * d->d_ff; r++) {
            u[r] = h->gate_up_bias[row0 + r];
            for (int32_t i = 0; i < d->d_model; i++)
                u[r] += expert_at(h->gate_up, h->gate_up_scales, d->d_model, row0 + r, i) * y[i];
        }
        for (int32_t i = 0; i < d->d_ff; i++) {
            double gate = fmin(u[2 * i], 7.0), up = fmax(fmin(u[2 * i + 1], 7.0), -7.0);
            activated[ascending[k] * d->d_ff + i] = (up + 1.0) * gate / (1.0 + exp(-1.702 * gate));
        }
    }
    double *out = read_split(m, at.activated, 4 * d->d_ff, 0x1p-64);
    compare(t->name, "gate_up", layer, out, activated, 4 * d->d_ff, 2e-6);
    double *after = read_pairs(m, at.before, d->d_model, GS_DECODE_DOWN_PARTS),
           *expected = (double *)malloc((size_t)d->d_model * 8);
    for (int32_t r = 0; r < d->d_model; r++) {
        expected[r] = middle[r];
        for (int k = 0; k < 4; k++) {
            int64_t row = (int64_t)order[k] * d->d_model + r;
            double sum = h->down_bias[row];
            for (int32_t i = 0; i < d->d_ff; i++)
                sum += expert_at(h->down, h->down_scales, d->d_ff, row, i) * out[ascending[k] * d->d_ff + i];
            expected[r] += weight[k] * sum;
        }
    }
    compare(t->name, "down", layer, after, expected, d->d_model, 2e-6);
    free(y), free(logits), free(activated), free(u), free(out), free(after), free(expected);
}

static void check_layer(struct test *t, int32_t layer, int32_t position, const double *x)
{
    struct model *m = &t->model;
    const struct gs_gpu_dims *d = &m->dims;
    const struct host_layer *h = &t->layers[layer];
    struct gs_decode_layout at = gs_decode_layout_of(d);
    int32_t n_qkv = (d->n_head + 2 * d->n_kv_head) * 64, n_attended = d->n_head * 64;
    double *y = norm_of(x, h->attention_norm, d->d_model);
    double *expected = (double *)malloc((size_t)(n_qkv + d->d_model) * 8);
    run_stage(m, GS_GPU_ATTENTION_IN, layer, d->max_ctx, true, 0);
    run_stage(m, GS_GPU_ATTENTION, layer, d->max_ctx, true, 0);
    run_stage(m, GS_GPU_ATTENTION_OUT, layer, d->max_ctx, true, 0);
    run_stage(m, GS_GPU_MOE_IN, layer, d->max_ctx, true, 0);
    run_stage(m, GS_GPU_MOE_OUT, layer, d->max_ctx, true, 0);
    CHECK(cudaDeviceSynchronize());
    double *qkv = read_pair(m, at.qkv, n_qkv);
    dot_rows(h->qkv, y, n_qkv, d->d_model, expected);
    compare(t->name, "qkv", layer, qkv, expected, n_qkv, 2e-6);
    check_attention(t, layer, position);
    double *attended = read_split(m, at.attended, n_attended, 1.0),
           *middle = read_pair(m, at.middle, d->d_model);
    dot_rows(h->o, attended, d->d_model, n_attended, expected);
    for (int32_t i = 0; i < d->d_model; i++)
        expected[i] += x[i] + h->o_bias[i];
    compare(t->name, "o", layer, middle, expected, d->d_model, 2e-6);
    check_experts(t, layer, middle);
    free(y), free(expected), free(qkv), free(attended), free(middle);
}

/* All layers and the head, as a token runs them. */
static void run_token(const struct model *m)
{
    for (int32_t layer = 0; layer < m->dims.n_layer; layer++)
        for (int stage = GS_GPU_ATTENTION_IN; stage <= GS_GPU_MOE_OUT; stage++)
            run_stage(m, (enum gs_gpu_stage)stage, layer, m->dims.max_ctx, true, 0);
    run_stage(m, GS_GPU_HEAD, m->dims.n_layer, m->dims.max_ctx, true, 0);
    CHECK(cudaDeviceSynchronize());
}

/* The same bits on every run: what blocks add up in any order is integers. */
static void check_again(const struct model *m, const char *shape, const float *logits)
{
    size_t n = (size_t)m->dims.n_vocab;
    for (int i = 0; i < 5; i++) {
        run_token(m);
        float *again = read_floats(m->scratch.logits, n);
        if (memcmp(again, logits, n * sizeof *again) != 0) {
            printf("%-8s run %d gives other bits  WRONG\n", shape, i);
            failures++;
        }
        free(again);
    }
}

/* Residual streams that are no numbers or too large for any sum still choose four experts that there are. */
static void check_hostile(struct model *m, const char *shape)
{
    const float values[] = {NAN, INFINITY, -INFINITY, 3e38f, 1e30f, 1e-30f, 0.0f};
    size_t n = (size_t)m->dims.d_model;
    float *hidden = (float *)malloc(n * sizeof *hidden);
    for (float value : values) {
        int32_t choice[4];
        for (size_t i = 0; i < n; i++)
            hidden[i] = i % 3 == 0 ? value : -value;
        CHECK(cudaMemcpy(m->scratch.hidden, hidden, n * sizeof *hidden, cudaMemcpyHostToDevice));
        run_token(m);
        CHECK(cudaMemcpy(choice, m->scratch.choice, sizeof choice, cudaMemcpyDeviceToHost));
        bool good = true;
        for (int k = 0; k < 4; k++) {
            good = good && choice[k] >= 0 && choice[k] < m->dims.n_expert;
            for (int i = 0; i < k; i++)
                good = good && choice[i] != choice[k];
        }
        if (!good) {
            printf("%-8s of %g: experts %d %d %d %d  WRONG\n", shape, (double)value, choice[0], choice[1],
                   choice[2], choice[3]);
            failures++;
        }
    }
    free(hidden);
}

static void check_shape(const struct shape *s, int32_t position)
{
    struct test t;
    make_test(&t, s);
    struct model *m = &t.model;
    float *hidden = random_vector((size_t)s->d_model, 0.0f, 3.0f);
    double *x = (double *)malloc((size_t)s->d_model * 8);
    for (int32_t i = 0; i < s->d_model; i++)
        x[i] = hidden[i];
    CHECK(cudaMemcpy(m->scratch.hidden, hidden, (size_t)s->d_model * 4, cudaMemcpyHostToDevice));
    set_row(m, position);
    for (int32_t layer = 0; layer < s->n_layer; layer++) {
        check_layer(&t, layer, position, x);
        free(x);
        x = read_pairs(m, gs_decode_layout_of(&m->dims).before, s->d_model, GS_DECODE_DOWN_PARTS);
    }
    run_stage(m, GS_GPU_HEAD, s->n_layer, s->n_ctx, true, 0);
    CHECK(cudaDeviceSynchronize());
    double *y = norm_of(x, t.norm, s->d_model), *expected = (double *)malloc((size_t)s->n_vocab * 8);
    double *out = (double *)malloc((size_t)s->n_vocab * 8);
    float *logits = read_floats(m->scratch.logits, (size_t)s->n_vocab);
    dot_rows(t.head, y, s->n_vocab, s->d_model, expected);
    uint64_t argmax, best = 0;
    CHECK(cudaMemcpy(&argmax, m->scratch.argmax, 8, cudaMemcpyDeviceToHost));
    for (int32_t i = 0; i < s->n_vocab; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], 4);
        out[i] = logits[i];
        bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
        uint64_t packed = (uint64_t)bits << 32 | (uint32_t) ~(uint32_t)i;
        best = packed > best ? packed : best;
    }
    compare(s->name, "head", s->n_layer, out, expected, s->n_vocab, 2e-6);
    if (argmax != best) {
        printf("%-8s argmax %llx, expected %llx  WRONG\n", s->name, (unsigned long long)argmax,
               (unsigned long long)best);
        failures++;
    }
    check_again(m, s->name, logits);
    check_hostile(m, s->name);
    free(x), free(y), free(expected), free(out), free(logits), free(hidden);
}

int main(int argc, char **argv)
{
    const struct {
        struct shape shape;
        int32_t positions[5], n_position;
    } tests[] = {
        {{"small", 4, 384, 16, 2, 8, 576, 1008, 512, GS_GPU_BF16}, {0, 77, 127, 128, 500}, 5},
        {{"wide", 2, 768, 8, 1, 128, 384, 4096, 640, GS_GPU_BF16}, {600}, 1},
        {{"20b", 2, 2880, 64, 8, 32, 2880, 8000, 1024, GS_GPU_BF16}, {1000}, 1},
        {{"20b-q8", 2, 2880, 64, 8, 32, 2880, 8000, 1024, GS_GPU_Q8}, {1000}, 1},
    };
    int n_run = 0;
    for (const auto &test : tests)
        for (int i = 0; i < test.n_position; i++)
            if (argc < 2 || strcmp(argv[1], test.shape.name) == 0) {
                check_shape(&test.shape, test.positions[i]);
                n_run++;
            }
    if (n_run == 0) {
        printf("no shape is called %s: small, wide, 20b and 20b-q8 are there\n", argv[1]);
        return 2;
    }
    printf(failures ? "%d WRONG\n" : "all right\n", failures);
    return failures > 0;
}
