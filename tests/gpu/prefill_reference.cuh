/*
 * What the prefill kernels must compute, said once more in float64 and in the plainest order: a warp an
 * output. Each stage is fed with the tested kernels' own inputs, so that one stage's error is its own.
 */
#ifndef GS_TESTS_GPU_PREFILL_REFERENCE_CUH
#define GS_TESTS_GPU_PREFILL_REFERENCE_CUH

#include <stdint.h>

#include "backend/gpu/kernels.h"
#include "backend/gpu/prefill_launch.h"

static __device__ double bf16_value(uint16_t bits)
{
    return (double)__uint_as_float((uint32_t)bits << 16);
}

static __device__ double warp_total(double x)
{
    for (int mask = 16; mask > 0; mask /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, mask);
    return x;
}

/* Place of element k in the order of the experts' activations. */
static __device__ int place_of(int k)
{
    int word = k % 32 / 8, nibble = k % 8;
    return k / 32 * 32 + 8 * (nibble % 4) + 2 * word + nibble / 4;
}

static __device__ double mxfp4_value(const struct gs_gpu_experts &w, int64_t row, int k)
{
    const double table[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    uint8_t byte = w.codes[row * (w.columns / 2) + k / 2];
    int code = k % 2 ? byte >> 4 : byte & 15;
    double value = ldexp(table[code & 7], (int)w.scales[row * w.scale_stride + k / 32] - 127);
    return code & 8 ? -value : value;
}

/* out [n_rows][d_model], permuted or not */
static __global__ void reference_norm(struct gs_gpu_args a, const float *weight, int permuted, float *out)
{
    int n = a.dims.d_model;
    const float *x = a.s.hidden + (int64_t)blockIdx.x * n;
    double sum = 0;
    for (int k = threadIdx.x; k < n; k += 32)
        sum += (double)x[k] * x[k];
    double scale = 1 / sqrt(warp_total(sum) / n + a.dims.rms_norm_eps);
    for (int k = threadIdx.x; k < n; k += 32)
        out[(int64_t)blockIdx.x * n + (permuted ? place_of(k) : k)] = (float)(x[k] * scale * weight[k]);
}

/* out [n_rows][m.rows] = rows * m + bias */
static __global__ void reference_dense(const uint16_t *rows, struct gs_gpu_matrix m, const float *bias,
                                       int n_rows, float *out)
{
    int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (i >= (int64_t)n_rows * m.rows)
        return;
    const uint16_t *x = rows + i / m.rows * m.columns, *w = (const uint16_t *)m.data + i % m.rows * m.columns;
    double sum = 0;
    for (int k = threadIdx.x % 32; k < m.columns; k += 32)
        sum += bf16_value(x[k]) * bf16_value(w[k]);
    sum = warp_total(sum);
    if (threadIdx.x % 32 == 0)
        out[i] = (float)(sum + bias[i % m.rows]);
}

/* RoPE in place on the queries and keys of qkv [n_rows][..]; thread a pair. */
static __global__ void reference_rope(struct gs_gpu_args a, float *qkv)
{
    int heads = a.dims.n_head + a.dims.n_kv_head, width = (a.dims.n_head + 2 * a.dims.n_kv_head) * 64;
    int row = blockIdx.x;
    const float *rope = a.s.rope + (int64_t)a.s.rows[row].position * 64;
    for (int i = threadIdx.x; i < heads * 32; i += blockDim.x) {
        float *x = qkv + (int64_t)row * width + i / 32 * 64 + i % 32;
        double c = rope[2 * (i % 32)], s = rope[2 * (i % 32) + 1], low = x[0], high = x[32];
        x[0] = (float)(low * c - high * s);
        x[32] = (float)(high * c + low * s);
    }
}

/* The rows' keys and values as they lie in the cache, to out [n_rows][2][n_kv_head*64]. */
static __global__ void gather_cache(struct gs_gpu_args a, float *out)
{
    int row = blockIdx.x, width = a.dims.n_kv_head * 64;
    const struct gs_gpu_kv_layer &kv = a.s.rows[row].kv[a.layer];
    for (int i = threadIdx.x; i < 2 * width; i += blockDim.x) {
        const uint16_t *from = (const uint16_t *)(i < width ? kv.keys : kv.values);
        int c = i % width;
        int64_t at = ((int64_t)(c / 64) * kv.n_slot + a.s.rows[row].position % kv.n_slot) * 64 + c % 64;
        out[(int64_t)row * 2 * width + i] = (float)bf16_value(from[at]);
    }
}

/* out [n_rows][n_head*64]. A warp a (row, head): two passes over the keys. */
static __global__ void reference_attention(struct gs_gpu_args a, const uint16_t *queries, int window,
                                           int with_sink, float *out)
{
    int row = blockIdx.x, head = blockIdx.y, lane = threadIdx.x;
    const struct gs_gpu_kv_layer &kv = a.s.rows[row].kv[a.layer];
    int64_t kv_base = (int64_t)(head / (a.dims.n_head / a.dims.n_kv_head)) * kv.n_slot;
    const uint16_t *q = queries + ((int64_t)row * a.dims.n_head + head) * 64;
    int last = a.s.rows[row].position, first = last - window + 1 > 0 ? last - window + 1 : 0;
    double q0 = bf16_value(q[lane]), q1 = bf16_value(q[lane + 32]), scale = a.dims.attention_scale;
    double largest = with_sink ? a.w.sinks[head] : -1e30, sum = 0, o0 = 0, o1 = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1 && with_sink)
            sum = exp(a.w.sinks[head] - largest);
        for (int t = first; t <= last; t++) {
            int64_t at = (kv_base + t % kv.n_slot) * 64;
            const uint16_t *k = (const uint16_t *)kv.keys + at, *v = (const uint16_t *)kv.values + at;
            double score = warp_total(q0 * bf16_value(k[lane]) + q1 * bf16_value(k[lane + 32])) * scale;
            if (pass == 0) {
                largest = score > largest ? score : largest;
                continue;
            }
            double p = exp(score - largest);
            sum += p;
            o0 += p * bf16_value(v[lane]);
            o1 += p * bf16_value(v[lane + 32]);
        }
    }
    out[((int64_t)row * a.dims.n_head + head) * 64 + lane] = (float)(o0 / sum);
    out[((int64_t)row * a.dims.n_head + head) * 64 + lane + 32] = (float)(o1 / sum);
}

static __global__ void reference_router(struct gs_gpu_args a, float *out)
{
    int row = blockIdx.x, expert = blockIdx.y, n = a.dims.d_model;
    const float *x = a.s.hidden + (int64_t)row * n;
    double square = 0, sum = 0;
    for (int k = threadIdx.x; k < n; k += 32) {
        square += (double)x[k] * x[k];
        sum += (double)x[k] * a.w.router_columns[(int64_t)k * a.dims.n_expert + expert];
    }
    square = warp_total(square);
    sum = warp_total(sum);
    out[(int64_t)row * a.dims.n_expert + expert] =
        (float)(sum / sqrt(square / n + a.dims.rms_norm_eps) + a.w.router_bias[expert]);
}

static __device__ int expert_of(const struct gs_gpu_args &a, int place)
{
    int e = 0;
    while (place >= a.s.route_first[e + 1])
        e++;
    return e;
}

/* out [places][d_ff] in permuted columns */
static __global__ void reference_gate_up(struct gs_gpu_args a, const uint16_t *normed, float *out)
{
    int place = blockIdx.x, e = expert_of(a, place), row = a.s.routes[place] / a.dims.n_active;
    double limit = a.dims.swiglu_limit;
    for (int u = threadIdx.x / 32; u < a.dims.d_ff; u += blockDim.x / 32) {
        int64_t first = (int64_t)e * a.w.gate_up.rows + 2 * u;
        const uint16_t *x = normed + (int64_t)row * a.dims.d_model;
        double gate = 0, up = 0;
        for (int k = threadIdx.x % 32; k < a.dims.d_model; k += 32) {
            gate += mxfp4_value(a.w.gate_up, first, k) * bf16_value(x[place_of(k)]);
            up += mxfp4_value(a.w.gate_up, first + 1, k) * bf16_value(x[place_of(k)]);
        }
        gate = warp_total(gate) + a.w.gate_up.bias[first];
        up = warp_total(up) + a.w.gate_up.bias[first + 1];
        gate = gate < limit ? gate : limit;
        up = up < -limit ? -limit : up > limit ? limit : up;
        if (threadIdx.x % 32 == 0)
            out[(int64_t)place * a.dims.d_ff + place_of(u)] =
                (float)((up + 1) * gate / (1 + exp(-a.dims.swiglu_alpha * gate)));
    }
}

/* out [routes][d_model], weighted; from what gate/up wrote */
static __global__ void reference_down(struct gs_gpu_args a, const uint16_t *activated, float *out)
{
    int place = blockIdx.x, e = expert_of(a, place), route = a.s.routes[place];
    for (int r = threadIdx.x / 32; r < a.dims.d_model; r += blockDim.x / 32) {
        int64_t row = (int64_t)e * a.w.down.rows + r;
        double y = 0;
        for (int k = threadIdx.x % 32; k < a.dims.d_ff; k += 32)
            y += mxfp4_value(a.w.down, row, k) *
                 bf16_value(activated[(int64_t)place * a.dims.d_ff + place_of(k)]);
        y = warp_total(y);
        if (threadIdx.x % 32 == 0)
            out[(int64_t)route * a.dims.d_model + r] =
                (float)((y + a.w.down.bias[row]) * a.s.choice_weight[route]);
    }
}

/* hidden before + the routes' outputs in ascending order of the expert */
static __global__ void reference_combine(struct gs_gpu_args a, const float *before, float *out)
{
    int row = blockIdx.x, n = a.dims.d_model, n_active = a.dims.n_active;
    for (int c = threadIdx.x; c < n; c += blockDim.x) {
        double sum = 0;
        for (int k = 0; k < n_active; k++)
            sum += a.s.expert_out[((int64_t)row * n_active + k) * n + c];
        out[(int64_t)row * n + c] = (float)(before[(int64_t)row * n + c] + sum);
    }
}

#endif
