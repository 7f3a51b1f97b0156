/* Batch: norms, the router, and the experts. */
#include "backend/gpu/batch.cuh"

#define TILES (GS_BATCH_EXPERT_ROUTES / 8)
#define AHEAD 2 /* chunks of a strip under way */

GS_DEVICE uint16_t *normed_of(const struct gs_gpu_args &args)
{
    return (uint16_t *)((char *)args.s.prefill + gs_batch_layout_of(&args.dims).normed);
}

/* Row t of hidden, normed with `weight` and times `factor`, to bfloat16. */
GS_DEVICE void write_normed(const struct gs_gpu_args &args, int t, const float *weight, float factor,
                            float *shared)
{
    int n = args.dims.d_model;
    const float *x = args.s.hidden + (int64_t)t * n;
    uint16_t *out = normed_of(args) + (int64_t)t * n;
    float scale = rms_of_row(x, n, args.dims.rms_norm_eps, shared);
    for (int i = gs_thread(); i < n; i += GS_BATCH_THREADS)
        out[i] = gs_bf16_of_float(weight[i] * (load_fresh(x + i) * scale) * factor);
}

/* Before the first layer. Grid: rows. */
GS_KERNEL void GS_BOUNDS(GS_BATCH_THREADS, 1) gs_batch_norm(GS_ARGS(struct gs_gpu_args, args))
{
    GS_SHARED float shared[GS_BATCH_WARPS];
    gs_wait_for_previous();
    gs_let_next_start();
    write_normed(args, gs_block(), args.w.attention_norm, 1.0f, shared);
}

/* The choice from logits [n_expert] in shared memory, by one warp: larger first, then the lower expert. */
GS_DEVICE void choose(const struct gs_gpu_args &args, int t, const float *logits)
{
    const int ACTIVE = GS_DECODE_ACTIVE;
    int lane = lane_of_thread(), chosen[ACTIVE];
    float best[ACTIVE], sum = 0.0f;
#pragma unroll
    for (int k = 0; k < ACTIVE; k++) {
        float top = -INFINITY;
        int at = GS_DECODE_EXPERTS;
        for (int e = lane; e < args.dims.n_expert; e += 32) {
            bool taken = false;
#pragma unroll
            for (int i = 0; i < k; i++)
                taken = taken || chosen[i] == e;
            if (!taken && logits[e] > top) {
                top = logits[e];
                at = e;
            }
        }
#pragma unroll
        for (int mask = 16; mask > 0; mask /= 2) {
            float other = gs_shuffle_xor(top, mask);
            int other_at = gs_shuffle_xor_i32(at, mask);
            if (other > top || (other == top && other_at < at)) {
                top = other;
                at = other_at;
            }
        }
        chosen[k] = at < args.dims.n_expert ? at : k; /* else all are NaN: the logits will show it */
        best[k] = top;
    }
#pragma unroll
    for (int k = 0; k < ACTIVE; k++)
        sum += gs_exp(best[k] - best[0]);
#pragma unroll
    for (int k = 0; k < ACTIVE; k++)
        if (lane == k) {
            args.s.choice[t * ACTIVE + k] = chosen[k];
            args.s.choice_weight[t * ACTIVE + k] = gs_exp(best[k] - best[0]) / sum;
        }
}

/*
 * hidden -> normed (times 2^64), router logits, choice. The router in float32: a warp takes a part of the
 * columns, a lane an expert. Grid: rows.
 */
GS_KERNEL void GS_BOUNDS(GS_BATCH_ROUTER_THREADS, 1) gs_batch_router(GS_ARGS(struct gs_gpu_args, args))
{
    const int N_WARP = GS_BATCH_ROUTER_THREADS / 32;
    GS_SHARED float squares[N_WARP], parts[N_WARP][GS_DECODE_EXPERTS], logits[GS_DECODE_EXPERTS];
    GS_SHARED float x[2 * GS_DECODE_MAX_PAIRS * GS_DECODE_WARPS * 32];
    int t = gs_block(), n = args.dims.d_model, n_expert = args.dims.n_expert;
    int lane = lane_of_thread(), warp = warp_of_thread();
    gs_wait_for_previous();
    gs_let_next_start();
    float sum = 0.0f;
    for (int i = gs_thread(); i < n; i += GS_BATCH_ROUTER_THREADS) {
        x[i] = load_fresh(args.s.hidden + (int64_t)t * n + i);
        sum += x[i] * x[i];
    }
    sum = gs_warp_sum(sum);
    if (lane == 0)
        squares[warp] = sum;
    gs_sync();
    sum = 0.0f;
#pragma unroll
    for (int w = 0; w < N_WARP; w++)
        sum += squares[w];
    float scale = 1.0f / gs_sqrt(sum / (float)n + args.dims.rms_norm_eps);
    uint16_t *out = normed_of(args) + (int64_t)t * n;
    for (int i = gs_thread(); i < n; i += GS_BATCH_ROUTER_THREADS)
        out[i] = gs_bf16_of_float(args.w.mlp_norm[i] * (x[i] * scale) * EXPERT_SCALE);
    int begin = warp * n / N_WARP, end = (warp + 1) * n / N_WARP;
    for (int e = lane; e < n_expert; e += 32) {
        const float *column = args.w.router_columns + e;
        float dot = 0.0f;
#pragma unroll 10
        for (int i = begin; i < end; i++)
            dot += x[i] * __ldg(column + (int64_t)i * n_expert);
        parts[warp][e] = dot;
    }
    gs_sync();
    for (int e = gs_thread(); e < n_expert; e += GS_BATCH_ROUTER_THREADS) {
        float dot = 0.0f;
#pragma unroll
        for (int w = 0; w < N_WARP; w++)
            dot += parts[w][e];
        logits[e] = dot * scale + args.w.router_bias[e];
        args.s.router[(int64_t)t * n_expert + e] = logits[e];
    }
    gs_sync();
    if (warp == 0)
        choose(args, t, logits);
}

/* choice -> route_first, routes: sorted by expert, then row. One block; at most 256 routes. */
GS_KERNEL void GS_BOUNDS(GS_BATCH_THREADS, 1) gs_batch_sort(GS_ARGS(struct gs_gpu_args, args))
{
    GS_SHARED int32_t choice[GS_BATCH_ROWS * GS_DECODE_ACTIVE];
    gs_wait_for_previous();
    gs_let_next_start();
    int n = args.n_rows * GS_DECODE_ACTIVE, i = gs_thread();
    if (i < n)
        choice[i] = __ldcg(args.s.choice + i);
    gs_sync();
    if (i < n) {
        int place = 0;
        for (int j = 0; j < n; j++)
            place += choice[j] < choice[i] || (choice[j] == choice[i] && j < i);
        args.s.routes[place] = i;
    }
    if (i <= args.dims.n_expert) {
        int before = 0;
        for (int j = 0; j < n; j++)
            before += choice[j] < i;
        args.s.route_first[i] = before;
    }
}

/* One chunk of a strip of an expert in flight: 16 rows x 192 columns. */
struct chunk {
    struct u32x4 codes[3];
    uint32_t scales[3];
};

GS_DEVICE void load_chunk(struct chunk *c, const uint8_t *at)
{
    int lane = lane_of_thread();
#pragma unroll
    for (int k = 0; k < 3; k++) {
        c->codes[k] = load_global_16(at + k * 512 + lane * 16);
        c->scales[k] = __ldg((const uint32_t *)(at + 3 * 512 + k * 32 + lane / 4 * 4));
    }
}

/*
 * sum[tile] = a strip of an expert times x of up to TILES*8 routes, whose rows lie in shared memory, `stride`
 * bytes apart. `next`: the strip's first chunks, under way.
 */
GS_DEVICE void expert_strip(const uint8_t *strip, int n_chunk, struct chunk next[AHEAD], uint32_t x,
                            uint32_t stride, int n_tile, float sum[TILES][4])
{
    uint32_t from = x + (uint32_t)(lane_of_thread() / 4) * stride + (uint32_t)(lane_of_thread() % 4) * 16;
#pragma unroll
    for (int t = 0; t < TILES; t++)
        sum[t][0] = sum[t][1] = sum[t][2] = sum[t][3] = 0.0f;
    for (int i = 0; i < n_chunk; i++) {
        struct chunk now = next[0];
#pragma unroll
        for (int j = 0; j + 1 < AHEAD; j++)
            next[j] = next[j + 1];
        if (i + AHEAD < n_chunk)
            load_chunk(&next[AHEAD - 1], strip + (int64_t)(i + AHEAD) * GS_DECODE_EXPERT_CHUNK);
#pragma unroll
        for (int k = 0; k < 3; k++) {
            const uint32_t codes[4] = {now.codes[k].x, now.codes[k].y, now.codes[k].z, now.codes[k].w};
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint32_t low[4], high[4];
                decode_word(codes[2 * half], low);
                decode_word(codes[2 * half + 1], high);
                const uint32_t a0[4] = {low[0], high[0], low[1], high[1]};
                const uint32_t a1[4] = {low[2], high[2], low[3], high[3]};
                float s0 = scale_of_word(now.scales[k], 2 * half),
                      s1 = scale_of_word(now.scales[k], 2 * half + 1);
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    if (t >= n_tile)
                        break;
                    struct u32x4 b = load_shared_16(from + (uint32_t)(t * 8) * stride +
                                                    (uint32_t)(i * 6 + k * 2 + half) * 64);
                    float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
                    mma_bf16(c, a0, b.x, b.y);
                    mma_bf16(c, a1, b.z, b.w);
                    sum[t][0] += s0 * c[0];
                    sum[t][1] += s0 * c[1];
                    sum[t][2] += s1 * c[2];
                    sum[t][3] += s1 * c[3];
                }
            }
        }
    }
}

/*
 * The block's expert times all its routes, in parts of TILES*8, a strip a warp. row_of(route) is the row of x
 * [..][columns] that a route reads; done(strip, sum, first, count) takes the results of routes first ... The
 * rows of a part are staged in shared memory once for all strips of the block.
 */
template <class RowOf, class Done>
GS_DEVICE void expert_product(const struct gs_gpu_args &args, const struct gs_gpu_experts &m,
                              const uint16_t *x, RowOf row_of, Done done)
{
    extern __shared__ __align__(16) uint8_t rows[];
    int expert = gs_block_y(), n_chunk = m.columns / GS_DECODE_EXPERT_COLUMNS;
    int n_strip = m.rows / GS_DECODE_STRIP, strip = gs_block() * GS_BATCH_WARPS + warp_of_thread();
    int first = __ldcg(args.s.route_first + expert), end = __ldcg(args.s.route_first + expert + 1);
    int stride = gs_batch_row_stride(m.columns), pieces = m.columns / 8;
    bool works = strip < n_strip;
    if (first >= end)
        return;
    const uint8_t *weights = (const uint8_t *)m.relaid + ((int64_t)expert * n_strip + (works ? strip : 0)) *
                                                             n_chunk * GS_DECODE_EXPERT_CHUNK;
    for (; first < end; first += TILES * 8) {
        int count = end - first < TILES * 8 ? end - first : TILES * 8;
        struct chunk next[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (works && j < n_chunk)
                load_chunk(&next[j], weights + (int64_t)j * GS_DECODE_EXPERT_CHUNK);
        for (int i = gs_thread(); i < count * pieces; i += GS_BATCH_THREADS) {
            int r = i / pieces, piece = i % pieces;
            int64_t row = row_of(__ldcg(args.s.routes + first + r));
            *(struct u32x4 *)(rows + r * stride + piece * 16) =
                load_fresh_16(x + row * m.columns + piece * 8);
        }
        gs_sync();
        if (works) {
            float sum[TILES][4];
            expert_strip(weights, n_chunk, next, shared_address(rows), (uint32_t)stride, (count + 7) / 8,
                         sum);
            done(strip, sum, first, count);
        }
        gs_sync();
    }
}

/* E: activated[route] = swiglu, bfloat16 times 2^64. Grid: groups of 8 strips, experts. */
GS_KERNEL void GS_BOUNDS(GS_BATCH_THREADS, 2) gs_batch_gate_up(GS_ARGS(struct gs_gpu_args, args))
{
    gs_wait_for_previous();
    gs_let_next_start();
    uint16_t *activated = (uint16_t *)((char *)args.s.prefill + gs_batch_layout_of(&args.dims).activated);
    int g = lane_of_thread() / 4, q = lane_of_thread() % 4, expert = gs_block_y();
    float limit = args.dims.swiglu_limit, alpha = args.dims.swiglu_alpha;
    expert_product(
        args, args.w.gate_up, normed_of(args), [](int route) { return route / GS_DECODE_ACTIVE; },
        [&](int strip, const float sum[TILES][4], int first, int count) {
            int unit = strip * 8 + g;
            const float *bias = args.w.gate_up.bias + (int64_t)expert * args.w.gate_up.rows + 2 * unit;
#pragma unroll
            for (int t = 0; t < TILES; t++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    int at = t * 8 + 2 * q + i;
                    if (at >= count)
                        continue;
                    float gate = sum[t][i] * RESULT_SCALE + bias[0],
                          up = sum[t][2 + i] * RESULT_SCALE + bias[1];
                    gate = gate > limit ? limit : gate;
                    up = up > limit ? limit : up < -limit ? -limit : up;
                    float value = (up + 1.0f) * (gate * (1.0f / (1.0f + gs_exp(-(gate * alpha)))));
                    int route = __ldcg(args.s.routes + first + at);
                    activated[(int64_t)route * args.dims.d_ff + unit] =
                        gs_bf16_of_float(value * EXPERT_SCALE);
                }
        });
}

/* F: expert_out[route], with the bias. Grid: groups of 8 strips, experts. */
GS_KERNEL void GS_BOUNDS(GS_BATCH_THREADS, 2) gs_batch_down(GS_ARGS(struct gs_gpu_args, args))
{
    gs_wait_for_previous();
    gs_let_next_start();
    const uint16_t *activated =
        (const uint16_t *)((const char *)args.s.prefill + gs_batch_layout_of(&args.dims).activated);
    int g = lane_of_thread() / 4, q = lane_of_thread() % 4, expert = gs_block_y(), d = args.dims.d_model;
    expert_product(
        args, args.w.down, activated, [](int route) { return route; },
        [&](int strip, const float sum[TILES][4], int first, int count) {
            const float *bias = args.w.down.bias + (int64_t)expert * d;
#pragma unroll
            for (int t = 0; t < TILES; t++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int at = t * 8 + 2 * q + i % 2, row = strip * GS_DECODE_STRIP + g + i / 2 * 8;
                    if (at < count)
                        args.s.expert_out[(int64_t)__ldcg(args.s.routes + first + at) * d + row] =
                            sum[t][i] * RESULT_SCALE + bias[row];
                }
        });
}

/* hidden += the weighted sum, in ascending order of the expert; then the next norm. Grid: rows. */
GS_KERNEL void GS_BOUNDS(GS_BATCH_ROUTER_THREADS, 1) gs_batch_combine(GS_ARGS(struct gs_gpu_args, args))
{
    const int ACTIVE = GS_DECODE_ACTIVE, PER_THREAD = 3; /* d_model <= 3072: gs_decode_takes */
    const int N_WARP = GS_BATCH_ROUTER_THREADS / 32;
    GS_SHARED float squares[N_WARP];
    gs_wait_for_previous();
    gs_let_next_start();
    int t = gs_block(), d = args.dims.d_model, choice[ACTIVE], slot[ACTIVE];
    float weight[ACTIVE];
#pragma unroll
    for (int k = 0; k < ACTIVE; k++)
        choice[k] = __ldcg(args.s.choice + t * ACTIVE + k);
#pragma unroll
    for (int place = 0; place < ACTIVE; place++)
#pragma unroll
        for (int k = 0; k < ACTIVE; k++) {
            int rank = 0;
#pragma unroll
            for (int i = 0; i < ACTIVE; i++)
                rank += choice[i] < choice[k] || (choice[i] == choice[k] && i < k);
            if (rank == place) {
                slot[place] = k;
                weight[place] = load_fresh(args.s.choice_weight + t * ACTIVE + k);
            }
        }
    float *hidden = args.s.hidden + (int64_t)t * d, mine[PER_THREAD], square = 0.0f;
#pragma unroll
    for (int j = 0; j < PER_THREAD; j++) {
        int i = gs_thread() + j * GS_BATCH_ROUTER_THREADS;
        mine[j] = 0.0f;
        if (i >= d)
            continue;
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < ACTIVE; k++)
            sum += load_fresh(args.s.expert_out + ((int64_t)t * ACTIVE + slot[k]) * d + i) * weight[k];
        mine[j] = load_fresh(hidden + i) + sum;
        hidden[i] = mine[j];
        square += mine[j] * mine[j];
    }
    square = gs_warp_sum(square);
    if (lane_of_thread() == 0)
        squares[warp_of_thread()] = square;
    gs_sync();
    square = 0.0f;
#pragma unroll
    for (int w = 0; w < N_WARP; w++)
        square += squares[w];
    float scale = 1.0f / gs_sqrt(square / (float)d + args.dims.rms_norm_eps);
    uint16_t *out = normed_of(args) + (int64_t)t * d;
#pragma unroll
    for (int j = 0; j < PER_THREAD; j++) {
        int i = gs_thread() + j * GS_BATCH_ROUTER_THREADS;
        if (i < d)
            out[i] = gs_bf16_of_float(args.norm[i] * (mine[j] * scale));
    }
}
