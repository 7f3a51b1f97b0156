/*
 * The batch kernels stage by stage against float64 on the device, over shapes and numbers of rows that divide
 * unevenly, with poisoned buffers. Each stage's reference starts from what the kernel before it really wrote,
 * so an error is seen where it arises. Then whole steps: the same bits again, and the same bits of a row in a
 * smaller call. Needs a device of compute capability 9.0; exit code 0: all is right.
 *
 *   test_batch_kernels [SHAPE [ROWS ...]]      one shape; calls of as many rows alone
 */
#include "batch_fixture.cuh"

static int failures;

struct test {
    const char *name;
    struct model model;
    struct timelines timelines;
    std::vector<struct gs_gpu_row> rows;
    int n_rows;
};

/* ---------------------------------------------------------------- float64 on the device */

__device__ static double of_bf16(uint16_t bits)
{
    return (double)__uint_as_float((uint32_t)bits << 16);
}

__device__ static double of_f16(uint16_t bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

/* out[t][row] = scale[t] * m x[t] + bias[row] */
__global__ static void reference_dense(struct gs_gpu_matrix m, const uint16_t *x, const double *scale,
                                       const float *bias, double *out)
{
    int row = (int)(blockIdx.x * blockDim.x + threadIdx.x), t = (int)blockIdx.y;
    if (row >= m.rows)
        return;
    double sum = 0.0;
    for (int i = 0; i < m.columns; i++) {
        int64_t at = (int64_t)row * m.columns + i;
        double weight = m.type == GS_GPU_Q8 ? of_f16(m.scales[at / 32]) * (double)((const int8_t *)m.data)[at]
                                            : of_bf16(((const uint16_t *)m.data)[at]);
        sum += weight * of_bf16(x[(int64_t)t * m.columns + i]);
    }
    out[(int64_t)t * m.rows + row] = sum * (scale ? scale[t] : 1.0) + (bias ? bias[row] : 0.0);
}

/* out[route][row] of x[route / divide], which is times 2^64 */
__global__ static void reference_experts(struct gs_gpu_experts m, const int32_t *choice, const uint16_t *x,
                                         int divide, double *out)
{
    const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    int route = (int)blockIdx.y, row = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (row >= m.rows)
        return;
    int64_t at = (int64_t)choice[route] * m.rows + row;
    double sum = 0.0;
    for (int i = 0; i < m.columns; i++) {
        uint8_t byte = m.codes[(at * m.columns + i) / 2];
        int code = i % 2 ? byte >> 4 : byte & 15;
        double scale = exp2((double)m.scales[at * m.scale_stride + i / 32] - 127.0 - 64.0);
        sum += (code & 8 ? -values[code & 7] : values[code & 7]) * scale *
               of_bf16(x[(int64_t)(route / divide) * m.columns + i]);
    }
    out[(int64_t)route * m.rows + row] = sum + m.bias[at];
}

/* ---------------------------------------------------------------- comparing */

template <class T> static std::vector<T> read(const void *from, size_t n)
{
    std::vector<T> v(n);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(v.data(), from, n * sizeof(T), cudaMemcpyDeviceToHost));
    return v;
}

static std::vector<double> numbers(const std::vector<uint16_t> &bits, int exponent)
{
    std::vector<double> v(bits.size());
    for (size_t i = 0; i < bits.size(); i++)
        v[i] = ldexp((double)float_of_bf16(bits[i]), exponent);
    return v;
}

static std::vector<double> read_bf16(const void *from, size_t n, int exponent)
{
    return numbers(read<uint16_t>(from, n), exponent);
}

static std::vector<double> read_float(const void *from, size_t n)
{
    std::vector<float> f = read<float>(from, n);
    return std::vector<double>(f.begin(), f.end());
}

static void check(const struct test *t, const char *stage, int32_t layer, bool good, double error)
{
    failures += !good;
    if (!good || getenv("GS_TEST_ALL"))
        printf("%-8s rows %2d %-12s layer %d  error %.2e%s\n", t->name, t->n_rows, stage, layer, error,
               good ? "" : "  WRONG");
}

static void compare(const struct test *t, const char *stage, int32_t layer, const std::vector<double> &out,
                    const std::vector<double> &expected, double limit)
{
    double difference = 0.0, norm = 0.0;
    for (size_t i = 0; i < expected.size(); i++) {
        double d = out[i] - expected[i];
        difference += d * d; /* NaN stays NaN and fails below */
        norm += expected[i] * expected[i];
    }
    double error = sqrt(difference / norm);
    check(t, stage, layer, error <= limit, error);
}

/* 1/rms of every row of hidden. */
static std::vector<double> scales_of(const struct test *t, const std::vector<double> &hidden)
{
    size_t d = (size_t)t->model.dims.d_model;
    std::vector<double> scale((size_t)t->n_rows, 0.0);
    for (size_t i = 0; i < hidden.size(); i++)
        scale[i / d] += hidden[i] * hidden[i];
    for (double &s : scale)
        s = 1.0 / sqrt(s / (double)d + 1e-5);
    return scale;
}

static const char *scratch_of(const struct test *t, int64_t at)
{
    return (const char *)t->model.scratch.prefill + at;
}

/* Rows [n_rows][columns] of bfloat16 that lie in tiles (batch.cuh). */
static std::vector<uint16_t> read_tiles(const struct test *t, int64_t at, size_t columns)
{
    size_t rows = (size_t)t->n_rows;
    std::vector<uint16_t> tiles = read<uint16_t>(scratch_of(t, at), rows * columns), v(rows * columns);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++)
            v[r * columns + c] = tiles[(c / 64 * rows + r) * 64 + (c % 64 ^ (r & 1) << 5)];
    return v;
}

/* at: where the rows lie in tiles. */
static std::vector<double> dense_of(const struct test *t, const struct gs_gpu_matrix &m, int64_t at,
                                    const std::vector<double> *scale, const float *bias)
{
    size_t n = (size_t)t->n_rows * (size_t)m.rows;
    double *out = (double *)device_bytes(n * 8), *scales = NULL;
    std::vector<uint16_t> rows = read_tiles(t, at, (size_t)m.columns);
    uint16_t *x = (uint16_t *)device_copy(rows.data(), rows.size() * 2);
    if (scale)
        scales = (double *)device_copy(scale->data(), scale->size() * 8);
    reference_dense<<<dim3((unsigned)(m.rows + 63) / 64, (unsigned)t->n_rows), 64>>>(m, x, scales, bias, out);
    std::vector<double> v = read<double>(out, n);
    CHECK(cudaFree(out));
    CHECK(cudaFree(x));
    CHECK(cudaFree(scales));
    return v;
}

static std::vector<double> experts_of(const struct test *t, const struct gs_gpu_experts &m, const void *x,
                                      int divide)
{
    size_t n = (size_t)t->n_rows * 4 * (size_t)m.rows;
    double *out = (double *)device_bytes(n * 8);
    reference_experts<<<dim3((unsigned)(m.rows + 63) / 64, (unsigned)t->n_rows * 4), 64>>>(
        m, t->model.scratch.choice, (const uint16_t *)x, divide, out);
    std::vector<double> v = read<double>(out, n);
    CHECK(cudaFree(out));
    return v;
}

/* ---------------------------------------------------------------- stages */

static void run(const struct test *t, enum gs_gpu_stage stage, int32_t layer)
{
    batch_stage(&t->model, stage, layer, t->n_rows, t->model.dims.max_ctx, 0);
    CHECK(cudaDeviceSynchronize());
}

static void check_norm(const struct test *t, const char *what, int32_t layer, const float *norm,
                       const std::vector<double> &hidden, const std::vector<double> *scale)
{
    size_t d = (size_t)t->model.dims.d_model;
    std::vector<double> weight = read_float(norm, d), expected(hidden.size());
    for (size_t i = 0; i < hidden.size(); i++)
        expected[i] = hidden[i] * weight[i % d] * (scale ? (*scale)[i / d] : 1.0);
    const struct gs_batch_layout at = gs_batch_layout_of(&t->model.dims);
    compare(t, what, layer,
            scale ? read_bf16(scratch_of(t, at.mlp_normed), hidden.size(), -64)
                  : numbers(read_tiles(t, at.normed, d), 0),
            expected, 3e-3);
}

static void rotate(double *head, int32_t position, double scale)
{
    for (int j = 0; j < 32; j++) {
        double angle = (double)position * pow(150000.0, -j / 32.0), a = head[j], b = head[j + 32];
        double c = 1.3465735902799727 * cos(angle) * scale, s = 1.3465735902799727 * sin(angle) * scale;
        head[j] = a * c - b * s;
        head[j + 32] = b * c + a * s;
    }
}

/*
 * Attention of some rows, the last among them, from the cache as the kernel left it; and what it wrote there.
 */
static void check_attention(const struct test *t, int32_t layer)
{
    const struct gs_gpu_dims *d = &t->model.dims;
    int32_t n_qkv = (d->n_head + 2 * d->n_kv_head) * 64;
    std::vector<double> qkv = read_float(t->model.scratch.qkv, (size_t)t->n_rows * (size_t)n_qkv);
    std::vector<double> sinks = read_float(t->model.layers[layer].sinks, (size_t)d->n_head);
    size_t width = (size_t)d->n_head * 64;
    std::vector<double> all = numbers(read_tiles(t, gs_batch_layout_of(d).attended, width), 0);
    std::vector<double> out, expected, wrote, should;
    for (int r = t->n_rows - 1; r >= 0; r -= (t->n_rows + 6) / 7) {
        const struct gs_gpu_row &row = t->rows[(size_t)r];
        const struct gs_gpu_kv_layer &kv =
            t->timelines.layers[(size_t)(row.kv - t->timelines.on_device) + (size_t)layer];
        size_t n_cache = (size_t)d->n_kv_head * (size_t)kv.n_slot * 64;
        std::vector<double> keys = read_bf16(kv.keys, n_cache, 0), values = read_bf16(kv.values, n_cache, 0);
        double *of_row = qkv.data() + (size_t)r * (size_t)n_qkv;
        int32_t first = layer % 2 == 0 && row.position >= d->window ? row.position - d->window + 1 : 0;
        for (int32_t head = 0; head < d->n_head; head++) {
            const int64_t base = (int64_t)(head / 8) * kv.n_slot * 64;
            double *q = of_row + head * 64, attended[64] = {0.0};
            std::vector<double> p((size_t)row.position + 1, 0.0);
            double largest = sinks[(size_t)head], sum;
            rotate(q, row.position, 0.125);
            for (int32_t k = first; k <= row.position; k++) {
                for (int j = 0; j < 64; j++)
                    p[(size_t)k] += q[j] * keys[(size_t)(base + k % kv.n_slot * 64 + j)];
                largest = std::max(largest, p[(size_t)k]);
            }
            sum = exp(sinks[(size_t)head] - largest);
            for (int32_t k = first; k <= row.position; k++)
                sum += exp(p[(size_t)k] - largest);
            for (int32_t k = first; k <= row.position; k++)
                for (int j = 0; j < 64; j++)
                    attended[j] +=
                        exp(p[(size_t)k] - largest) / sum * values[(size_t)(base + k % kv.n_slot * 64 + j)];
            expected.insert(expected.end(), attended, attended + 64);
        }
        out.insert(out.end(), all.begin() + (ptrdiff_t)((size_t)r * width),
                   all.begin() + (ptrdiff_t)((size_t)(r + 1) * width));
        for (int32_t head = 0; head < d->n_kv_head; head++) {
            double *k = of_row + (d->n_head + head) * 64, *v = k + d->n_kv_head * 64;
            rotate(k, row.position, 1.0);
            for (int j = 0; j < 64; j++) {
                size_t at = (size_t)(((int64_t)head * kv.n_slot + row.position % kv.n_slot) * 64 + j);
                wrote.push_back(keys[at]), should.push_back(k[j]);
                wrote.push_back(values[at]), should.push_back(v[j]);
            }
        }
    }
    compare(t, "cache", layer, wrote, should, 3e-3);
    compare(t, "attention", layer, out, expected, 3e-3);
}

/* The router's logits from hidden, and the choice from the logits that the kernel made. */
static void check_router(const struct test *t, int32_t layer, const std::vector<double> &hidden,
                         const std::vector<double> &scale)
{
    const struct gs_gpu_dims *d = &t->model.dims;
    const struct gs_gpu_layer *w = &t->model.layers[layer];
    size_t n = (size_t)d->d_model, n_expert = (size_t)d->n_expert, rows = (size_t)t->n_rows;
    std::vector<double> columns = read_float(w->router_columns, n * n_expert),
                        bias = read_float(w->router_bias, n_expert),
                        logits = read_float(t->model.scratch.router, rows * n_expert),
                        expected(rows * n_expert);
    std::vector<int32_t> choice = read<int32_t>(t->model.scratch.choice, rows * 4);
    std::vector<double> weights = read_float(t->model.scratch.choice_weight, rows * 4), right(rows * 4);
    bool chosen = true;
    for (size_t r = 0; r < rows; r++) {
        for (size_t e = 0; e < n_expert; e++) {
            double sum = 0.0;
            for (size_t i = 0; i < n; i++)
                sum += hidden[r * n + i] * columns[i * n_expert + e];
            expected[r * n_expert + e] = sum * scale[r] + bias[e];
        }
        const double *of_row = &logits[r * n_expert];
        double total = 0.0;
        for (size_t k = 0; k < 4; k++) {
            size_t best = n_expert;
            for (size_t e = 0; e < n_expert; e++) {
                bool taken = false;
                for (size_t i = 0; i < k; i++)
                    taken = taken || (size_t)choice[r * 4 + i] == e;
                if (!taken && (best == n_expert || of_row[e] > of_row[best]))
                    best = e;
            }
            chosen = chosen && (size_t)choice[r * 4 + k] == best;
            total += right[r * 4 + k] = exp(of_row[best] - of_row[choice[r * 4]]);
        }
        for (size_t k = 0; k < 4; k++)
            right[r * 4 + k] /= total;
    }
    compare(t, "router", layer, logits, expected, 1e-5);
    check(t, "choice", layer, chosen, 0.0);
    compare(t, "weights", layer, weights, right, 1e-5);
}

static void check_experts(const struct test *t, int32_t layer, const std::vector<double> &before)
{
    const struct gs_gpu_dims *d = &t->model.dims;
    const struct gs_batch_layout at = gs_batch_layout_of(d);
    const struct gs_gpu_layer *w = &t->model.layers[layer];
    size_t n_ff = (size_t)d->d_ff, n = (size_t)d->d_model, rows = (size_t)t->n_rows;
    run(t, GS_GPU_MOE_IN, layer);
    std::vector<double> both = experts_of(t, w->gate_up, scratch_of(t, at.mlp_normed), 4),
                        expected(rows * 4 * n_ff);
    for (size_t i = 0; i < expected.size(); i++) {
        double gate = both[2 * i], up = both[2 * i + 1];
        gate = gate > 7.0 ? 7.0 : gate, up = up > 7.0 ? 7.0 : up < -7.0 ? -7.0 : up;
        expected[i] = (up + 1.0) * gate / (1.0 + exp(-gate * (double)1.702f));
    }
    compare(t, "gate_up", layer, read_bf16(scratch_of(t, at.activated), expected.size(), -64), expected,
            3e-3);
    run(t, GS_GPU_MOE_OUT, layer);
    std::vector<double> out = experts_of(t, w->down, scratch_of(t, at.activated), 1), after = before;
    std::vector<double> weights = read_float(t->model.scratch.choice_weight, rows * 4);
    for (size_t i = 0; i < out.size(); i++)
        after[i / n / 4 * n + i % n] += out[i] * weights[i / n];
    compare(t, "moe", layer, read_float(t->model.scratch.hidden, rows * n), after, 1e-5);
}

static void check_layer(const struct test *t, int32_t layer)
{
    const struct model *m = &t->model;
    const struct gs_batch_layout at = gs_batch_layout_of(&m->dims);
    const struct gs_gpu_layer *w = &m->layers[layer];
    size_t rows = (size_t)t->n_rows, n = (size_t)m->dims.d_model;
    std::vector<double> hidden = read_float(m->scratch.hidden, rows * n), scale = scales_of(t, hidden);
    run(t, GS_GPU_ATTENTION_IN, layer);
    check_norm(t, "norm", layer, w->attention_norm, hidden, NULL);
    compare(t, "qkv", layer, read_float(m->scratch.qkv, rows * (size_t)w->qkv.rows),
            dense_of(t, w->qkv, at.normed, &scale, w->qkv_bias), 1e-5);
    run(t, GS_GPU_ATTENTION, layer);
    check_attention(t, layer);
    run(t, GS_GPU_ATTENTION_OUT, layer);
    std::vector<double> added = dense_of(t, w->o, at.attended, NULL, w->o_bias);
    for (size_t i = 0; i < added.size(); i++)
        hidden[i] += added[i];
    std::vector<double> middle = read_float(m->scratch.hidden, rows * n);
    compare(t, "output", layer, middle, hidden, 1e-5);
    scale = scales_of(t, middle);
    check_norm(t, "mlp norm", layer, w->mlp_norm, middle, &scale);
    check_router(t, layer, middle, scale);
    check_experts(t, layer, middle);
}

/* ---------------------------------------------------------------- a shape */

/* Rows of timelines of their own, but for a run of neighbours of one where `together` says how many. */
static void set_rows(struct test *t, int n_rows, int together)
{
    const struct gs_gpu_dims *d = &t->model.dims;
    t->n_rows = n_rows;
    t->rows.clear();
    for (int r = 0; r < n_rows; r++) {
        int first = r < together ? 0 : r;
        int32_t position = (int32_t)((first * 131 + 3) % (d->max_ctx - GS_BATCH_ROWS)) + (r - first);
        t->rows.push_back({t->timelines.on_device + (int64_t)first * d->n_layer, 0, position, r, first});
    }
    CHECK(cudaMemcpy(t->model.scratch.rows, t->rows.data(), t->rows.size() * sizeof t->rows[0],
                     cudaMemcpyHostToDevice));
}

static std::vector<float> whole_step(const struct test *t, const std::vector<float> &start)
{
    size_t n = (size_t)t->n_rows * (size_t)t->model.dims.d_model;
    CHECK(cudaMemcpy(t->model.scratch.hidden, start.data(), n * 4, cudaMemcpyHostToDevice));
    batch_step(&t->model, t->n_rows, t->model.dims.max_ctx, 0, -1);
    return read<float>(t->model.scratch.logits, (size_t)t->n_rows * (size_t)t->model.dims.n_vocab);
}

static bool same_bits(const std::vector<float> &a, const std::vector<float> &b, size_t n)
{
    return memcmp(a.data(), b.data(), n * 4) == 0 && std::isfinite(a[0]);
}

static void test_rows(struct test *t, int n_rows, int together)
{
    const struct model *m = &t->model;
    const struct gs_gpu_dims *d = &m->dims;
    size_t n = (size_t)n_rows * (size_t)d->d_model;
    set_rows(t, n_rows, together);
    fill_floats<<<256, 256>>>(m->scratch.hidden, (int64_t)n, 0.0f, 2.0f, 12345);
    std::vector<float> start = read<float>(m->scratch.hidden, n);
    CHECK(cudaMemset(m->scratch.prefill, 0xff, (size_t)gs_batch_layout_of(d).bytes));
    for (int32_t layer = 0; layer < d->n_layer; layer++)
        check_layer(t, layer);
    std::vector<double> hidden = read_float(m->scratch.hidden, n), scale = scales_of(t, hidden);
    run(t, GS_GPU_HEAD, d->n_layer);
    check_norm(t, "last norm", 0, m->norm, hidden, NULL);
    compare(t, "head", 0, read_float(m->scratch.logits, (size_t)n_rows * (size_t)d->n_vocab),
            dense_of(t, m->head, gs_batch_layout_of(d).normed, &scale, NULL), 1e-5);
    std::vector<float> first = whole_step(t, start), again = whole_step(t, start);
    check(t, "same again", 0, same_bits(first, again, first.size()), 0.0);
    for (int fewer : {2, 9, 20}) {
        if (fewer >= n_rows || (together && fewer < together))
            continue;
        set_rows(t, fewer, together);
        std::vector<float> alone = whole_step(t, start);
        set_rows(t, n_rows, together);
        check(t, "fewer rows", fewer, same_bits(alone, first, alone.size()), 0.0);
    }
    printf("%-8s rows %2d, %2d of one timeline: %d wrong so far\n", t->name, n_rows, together, failures);
}

int main(int argc, char **argv)
{
    const struct shape shapes[] = {{"small", 2, 576, 16, 2, 8, 384, 272, 700, GS_GPU_BF16},
                                   {"q8", 2, 960, 24, 3, 128, 768, 528, 5000, GS_GPU_Q8},
                                   {"20b", 2, 2880, 64, 8, 32, 2880, 1008, 700, GS_GPU_BF16}};
    int n_shape = 0;
    for (const struct shape &s : shapes) {
        if (argc > 1 && strcmp(argv[1], s.name) != 0)
            continue;
        n_shape++;
        static struct test t;
        t = {};
        t.name = s.name;
        make_model(&t.model, &s, true);
        make_timelines(&t.timelines, &t.model, GS_BATCH_ROWS);
        for (int i = 2; i < argc; i++)
            test_rows(&t, std::min(std::max(atoi(argv[i]), 2), GS_BATCH_ROWS), 0);
        if (argc > 2)
            continue;
        for (int n : {2, 7, 8, 9, 17, 33, 64})
            test_rows(&t, n, 0);
        test_rows(&t, 40, 33);
        test_rows(&t, 64, 64);
    }
    if (n_shape == 0) {
        printf("no shape is called %s: small, q8 and 20b are there\n", argv[1]);
        return 2;
    }
    printf("%s\n", failures ? "WRONG" : "all is right");
    return failures != 0;
}
