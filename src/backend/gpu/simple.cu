/*
 * Every stage of the model, simply: the order of backend/cpu/reference.c, one kernel a step. Any shape, any
 * number of rows. A sum's order depends on its output alone: a warp's lanes take columns eight at a time,
 * round after round, then a butterfly adds the lanes. So a row's results have the same bits whatever else is
 * in the call.
 */
#include "backend/gpu/simple.cuh"

#define WARPS (GS_SIMPLE_THREADS / GS_WARP)

GS_DEVICE int warp_of_thread(void)
{
    return gs_thread() / GS_WARP;
}

GS_DEVICE int lane_of_thread(void)
{
    return gs_thread() % GS_WARP;
}

/* ---------------------------------------------------------------- rows and norms */

/* hidden[t] = the embedding of row t's token. Grid: rows. */
GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_simple_embed(GS_ARGS(struct gs_gpu_args, args))
{
    gs_wait_for_previous();
    gs_let_next_start();
    int t = gs_block();
    int32_t token = args.s.rows[t].token;
    float *out = args.s.hidden + (int64_t)t * args.dims.d_model;
    for (int32_t i = gs_thread(); i < args.dims.d_model; i += gs_n_thread())
        out[i] = gs_matrix_at(&args.outer, token, i);
}

/* The sum over the block in a fixed order; every thread gets it. `shared`: one float a warp. */
GS_DEVICE float block_sum(float value, float *shared)
{
    value = gs_warp_sum(value);
    gs_sync();
    if (lane_of_thread() == 0)
        shared[warp_of_thread()] = value;
    gs_sync();
    float sum = 0.0f;
    for (int i = 0; i < gs_n_thread() / GS_WARP; i++)
        sum += shared[i];
    return sum;
}

GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_simple_norm(GS_ARGS(struct gs_simple_norm, args))
{
    GS_SHARED float shared[WARPS];
    gs_wait_for_previous();
    gs_let_next_start();
    int64_t t = gs_block(), to = t;
    if (args.rows) {
        to = args.rows[t].logit_row;
        if (to < 0)
            return;
    }
    const float *x = args.in + t * args.d;
    float *y = args.out + to * args.d;
    float sum = 0.0f;
    for (int32_t i = gs_thread(); i < args.d; i += gs_n_thread())
        sum += x[i] * x[i];
    float scale = 1.0f / gs_sqrt(block_sum(sum, shared) / (float)args.d + args.eps);
    for (int32_t i = gs_thread(); i < args.d; i += gs_n_thread())
        y[i] = args.weight[i] * (x[i] * scale);
}

GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_simple_add(GS_ARGS(struct gs_simple_add, args))
{
    gs_wait_for_previous();
    gs_let_next_start();
    int64_t i = (int64_t)gs_block() * gs_n_thread() + gs_thread();
    if (i < args.n)
        args.to[i] += args.from[i];
}

/* A thread two bytes. */
GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_simple_move(GS_ARGS(struct gs_simple_move, args))
{
    gs_wait_for_previous();
    gs_let_next_start();
    int64_t i = (int64_t)gs_block() * gs_n_thread() + gs_thread();
    int64_t per_head = args.count * args.row_halves;
    if (i >= args.n_head * per_head)
        return;
    int64_t head = i / per_head, position = args.first + i % per_head / args.row_halves;
    int64_t from = head * args.from_slots + (position - args.from_shift) % args.from_slots;
    int64_t to = head * args.to_slots + (position - args.to_shift) % args.to_slots;
    int64_t j = i % args.row_halves;
    ((uint16_t *)args.to)[to * args.row_halves + j] =
        ((const uint16_t *)args.from)[from * args.row_halves + j];
}

/* ---------------------------------------------------------------- dense products */

template <int N> GS_DEVICE void linear(const struct gs_simple_linear &args)
{
    int32_t columns = args.matrix.columns, rows = args.matrix.rows;
    int32_t row0 = (gs_block() * WARPS + warp_of_thread()) * GS_SIMPLE_ROWS;
    int32_t first = gs_block_y() * N;
    if (row0 >= rows)
        return;
    float sum[GS_SIMPLE_ROWS][N] = {};
    for (int32_t c = lane_of_thread() * 8; c < columns; c += GS_WARP * 8) {
        float w[GS_SIMPLE_ROWS][8];
#pragma unroll
        for (int r = 0; r < GS_SIMPLE_ROWS; r++)
            gs_matrix_load8(&args.matrix, row0 + r < rows ? row0 + r : rows - 1, c, w[r]);
#pragma unroll
        for (int n = 0; n < N; n++) {
            if (first + n >= args.n_in)
                break;
            float x[8];
            gs_vector_load8(args.in + (int64_t)(first + n) * columns, columns, c, x);
#pragma unroll
            for (int r = 0; r < GS_SIMPLE_ROWS; r++)
#pragma unroll
                for (int j = 0; j < 8; j++)
                    sum[r][n] += w[r][j] * x[j];
        }
    }
#pragma unroll
    for (int r = 0; r < GS_SIMPLE_ROWS; r++)
#pragma unroll
        for (int n = 0; n < N; n++) {
            float total = gs_warp_sum(sum[r][n]);
            if (lane_of_thread() == 0 && row0 + r < rows && first + n < args.n_in)
                args.out[(int64_t)(first + n) * rows + row0 + r] =
                    total + (args.bias ? args.bias[row0 + r] : 0.0f);
        }
}

GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_simple_linear_1(GS_ARGS(struct gs_simple_linear, args))
{
    gs_wait_for_previous();
    gs_let_next_start();
    linear<1>(args);
}

GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_simple_linear_8(GS_ARGS(struct gs_simple_linear, args))
{
    gs_wait_for_previous();
    gs_let_next_start();
    linear<GS_SIMPLE_VECTORS>(args);
}

/* ---------------------------------------------------------------- attention */

GS_DEVICE void store_kv(const struct gs_gpu_kv_layer *kv, const struct gs_gpu_dims &dims, int32_t position,
                        int32_t head, int32_t i, float key, float value)
{
    int64_t at = ((int64_t)head * kv->n_slot + position % kv->n_slot) * dims.d_head + i;
    if (kv->is_f32) {
        ((float *)kv->keys)[at] = key;
        ((float *)kv->values)[at] = value;
    } else {
        ((uint16_t *)kv->keys)[at] = gs_bf16_of_float(key);
        ((uint16_t *)kv->values)[at] = gs_bf16_of_float(value);
    }
}

/*
 * Rotates q and k of row t in place (pairs j, j + d_head/2) and puts k and v into the cache. Grid: rows.
 */
GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_simple_rotate(GS_ARGS(struct gs_gpu_args, args))
{
    gs_wait_for_previous();
    gs_let_next_start();
    int t = gs_block();
    const struct gs_gpu_dims &dims = args.dims;
    const struct gs_gpu_row row = args.s.rows[t];
    int32_t half = dims.d_head / 2, n_rotated = (dims.n_head + dims.n_kv_head) * half;
    float *qkv = args.s.qkv + (int64_t)t * (dims.n_head + 2 * dims.n_kv_head) * dims.d_head;
    const float *rope = args.s.rope + (int64_t)row.position * dims.d_head;
    const struct gs_gpu_kv_layer *kv = &row.kv[args.layer];
    for (int32_t i = gs_thread(); i < n_rotated; i += gs_n_thread()) {
        int32_t head = i / half, j = i % half;
        float *low = qkv + head * dims.d_head + j, *high = low + half;
        float cosine = rope[2 * j], sine = rope[2 * j + 1], a = *low, b = *high;
        *low = a * cosine - b * sine;
        *high = b * cosine + a * sine;
        if (head < dims.n_head)
            continue;
        int32_t kv_head = head - dims.n_head;
        const float *value = low + (int64_t)dims.n_kv_head * dims.d_head;
        store_kv(kv, dims, row.position, kv_head, j, *low, value[0]);
        store_kv(kv, dims, row.position, kv_head, j + half, *high, value[half]);
    }
}

GS_DEVICE float kv_at(const void *data, int32_t is_f32, int64_t at)
{
    return is_f32 ? ((const float *)data)[at] : gs_float_of_bf16(((const uint16_t *)data)[at]);
}

/* The largest, or the sum, over the block of GS_SIMPLE_ATTENTION threads, in a fixed order. */
GS_DEVICE float block_largest(float value, float *shared)
{
    value = gs_warp_max(value);
    gs_sync();
    if (lane_of_thread() == 0)
        shared[warp_of_thread()] = value;
    gs_sync();
    float largest = shared[0];
    for (int i = 1; i < GS_SIMPLE_ATTENTION / GS_WARP; i++)
        largest = shared[i] > largest ? shared[i] : largest;
    return largest;
}

/*
 * One head of one row: softmax over the sink and the visible keys, times the values. A thread scores one key
 * of a block of keys, then owns elements of the output. Grid: heads, rows. Dynamic shared memory: d_head
 * floats of q, GS_SIMPLE_ATTENTION of p, d_head of the output so far.
 */
GS_KERNEL void GS_BOUNDS(GS_SIMPLE_ATTENTION, 1) gs_simple_attention(GS_ARGS(struct gs_gpu_args, args))
{
    GS_SHARED_DYNAMIC(float, memory);
    GS_SHARED float shared[GS_SIMPLE_ATTENTION / GS_WARP];
    gs_wait_for_previous();
    gs_let_next_start();
    const struct gs_gpu_dims &dims = args.dims;
    int head = gs_block(), t = gs_block_y();
    int32_t d = dims.d_head, kv_head = head / (dims.n_head / dims.n_kv_head);
    const struct gs_gpu_row row = args.s.rows[t];
    const struct gs_gpu_kv_layer kv = row.kv[args.layer];
    float *q = memory, *p = q + d, *out = p + GS_SIMPLE_ATTENTION;
    const float *query = args.s.qkv + ((int64_t)t * (dims.n_head + 2 * dims.n_kv_head) + head) * d;
    for (int i = gs_thread(); i < d; i += GS_SIMPLE_ATTENTION) {
        q[i] = query[i];
        out[i] = 0.0f;
    }
    int32_t first = args.is_window && row.position >= dims.window ? row.position - dims.window + 1 : 0;
    int64_t base = (int64_t)kv_head * kv.n_slot * d;
    float largest = args.w.sinks[head], sum = 1.0f; /* the sink is a key without a value */
    gs_sync();
    for (int32_t begin = first; begin <= row.position; begin += GS_SIMPLE_ATTENTION) {
        int32_t n = row.position + 1 - begin;
        n = n < GS_SIMPLE_ATTENTION ? n : GS_SIMPLE_ATTENTION;
        float score = -3.0e38f;
        if (gs_thread() < n) {
            int64_t at = base + (int64_t)((begin + gs_thread()) % kv.n_slot) * d;
            float dot = 0.0f;
            for (int i = 0; i < d; i++)
                dot += q[i] * kv_at(kv.keys, kv.is_f32, at + i);
            score = dot * dims.attention_scale;
        }
        float block_max = block_largest(score, shared);
        float next = block_max > largest ? block_max : largest;
        float weight = gs_thread() < n ? gs_exp(score - next) : 0.0f;
        float shrink = gs_exp(largest - next);
        p[gs_thread()] = weight;
        sum = sum * shrink + block_sum(weight, shared); /* block_sum synchronises: p is complete */
        largest = next;
        for (int i = gs_thread(); i < d; i += GS_SIMPLE_ATTENTION) {
            float total = 0.0f;
            for (int32_t k = 0; k < n; k++)
                total +=
                    p[k] * kv_at(kv.values, kv.is_f32, base + (int64_t)((begin + k) % kv.n_slot) * d + i);
            out[i] = out[i] * shrink + total;
        }
        gs_sync();
    }
    float *attended = args.s.attended + ((int64_t)t * dims.n_head + head) * d;
    for (int i = gs_thread(); i < d; i += GS_SIMPLE_ATTENTION)
        attended[i] = out[i] / sum;
}

/* ---------------------------------------------------------------- router */

/*
 * The n_active largest logits, best first, ties to the lower expert; softmax over these alone. One warp a
 * row. Grid: rows.
 */
GS_KERNEL void GS_BOUNDS(GS_SIMPLE_CHOOSE, 1) gs_simple_choose(GS_ARGS(struct gs_gpu_args, args))
{
    gs_wait_for_previous();
    gs_let_next_start();
    if (warp_of_thread() > 0)
        return;
    const struct gs_gpu_dims &dims = args.dims;
    int64_t t = gs_block();
    const float *logits = args.s.router + t * dims.n_expert;
    int32_t *choice = args.s.choice + t * dims.n_active;
    float weights[GS_GPU_MAX_ACTIVE];
    int32_t chosen[GS_GPU_MAX_ACTIVE];
#pragma unroll
    for (int k = 0; k < GS_GPU_MAX_ACTIVE; k++) {
        if (k >= dims.n_active)
            break;
        float best = 0.0f;
        int32_t at = -1;
        for (int32_t e = lane_of_thread(); e < dims.n_expert; e += GS_WARP) {
            bool taken = false;
#pragma unroll
            for (int i = 0; i < k; i++)
                taken = taken || chosen[i] == e;
            if (!taken && (at < 0 || logits[e] > best)) {
                best = logits[e];
                at = e;
            }
        }
        for (int mask = GS_WARP / 2; mask > 0; mask /= 2) {
            float other = gs_shuffle_xor(best, mask);
            int32_t other_at = gs_shuffle_xor_i32(at, mask);
            if (other_at >= 0 && (at < 0 || other > best || (other == best && other_at < at))) {
                best = other;
                at = other_at;
            }
        }
        /* Logits that are not numbers compare as nothing: any expert will do, the logits will show it. */
        chosen[k] = at >= 0 && at < dims.n_expert ? at : k;
        weights[k] = best;
    }
    float largest = weights[0], sum = 0.0f;
#pragma unroll
    for (int k = 0; k < GS_GPU_MAX_ACTIVE; k++)
        if (k < dims.n_active) {
            weights[k] = gs_exp(weights[k] - largest);
            sum += weights[k];
        }
    if (lane_of_thread() == 0)
#pragma unroll
        for (int k = 0; k < GS_GPU_MAX_ACTIVE; k++)
            if (k < dims.n_active) {
                choice[k] = chosen[k];
                args.s.choice_weight[t * dims.n_active + k] = weights[k] / sum;
            }
}

/* Routes sorted by expert, then by row. One block; a thread owns an expert. */
GS_KERNEL void GS_BOUNDS(GS_SIMPLE_SORT, 1) gs_simple_sort(GS_ARGS(struct gs_gpu_args, args))
{
    GS_SHARED int32_t count[GS_SIMPLE_SORT];
    gs_wait_for_previous();
    gs_let_next_start();
    int32_t n = args.n_rows * args.dims.n_active, e = gs_thread(), mine = 0;
    if (e < args.dims.n_expert)
        for (int32_t i = 0; i < n; i++)
            mine += args.s.choice[i] == e;
    count[e] = mine;
    gs_sync();
    int32_t first = 0;
    for (int32_t i = 0; i < e && i < args.dims.n_expert; i++)
        first += count[i];
    if (e < args.dims.n_expert)
        args.s.route_first[e] = first;
    if (e == 0)
        args.s.route_first[args.dims.n_expert] = n;
    if (mine > 0)
        for (int32_t i = 0; i < n; i++)
            if (args.s.choice[i] == e)
                args.s.routes[first++] = i;
}

/* ---------------------------------------------------------------- experts */

/*
 * Products of GS_SIMPLE_ROWS rows of an expert, from row0 on (of the expert's own), with n of its routes'
 * vectors: every lane gets sum[r][v] without the bias. `in` [..][columns] is indexed by input[v].
 */
template <int N>
GS_DEVICE void expert_dots(const struct gs_gpu_experts &m, int64_t expert, int32_t row0, const float *in,
                           const int32_t *input, int32_t n, float (&sum)[GS_SIMPLE_ROWS][N])
{
#pragma unroll
    for (int r = 0; r < GS_SIMPLE_ROWS; r++)
#pragma unroll
        for (int v = 0; v < N; v++)
            sum[r][v] = 0.0f;
    for (int32_t c = lane_of_thread() * 8; c < m.columns; c += GS_WARP * 8) {
        float w[GS_SIMPLE_ROWS][8];
#pragma unroll
        for (int r = 0; r < GS_SIMPLE_ROWS; r++)
            gs_experts_load8(&m, expert * m.rows + (row0 + r < m.rows ? row0 + r : m.rows - 1), c, w[r]);
#pragma unroll
        for (int v = 0; v < N; v++) {
            if (v >= n)
                break;
            float x[8];
            gs_vector_load8(in + (int64_t)input[v] * m.columns, m.columns, c, x);
#pragma unroll
            for (int r = 0; r < GS_SIMPLE_ROWS; r++)
#pragma unroll
                for (int j = 0; j < 8; j++)
                    sum[r][v] += w[r][j] * x[j];
        }
    }
#pragma unroll
    for (int r = 0; r < GS_SIMPLE_ROWS; r++)
#pragma unroll
        for (int v = 0; v < N; v++)
            sum[r][v] = gs_warp_sum(sum[r][v]);
}

/* The clamped SwiGLU: gate from above only, up on both sides, and one added to up. */
GS_DEVICE float swiglu(float gate, float up, float limit, float alpha)
{
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : up < -limit ? -limit : up;
    float sigmoid = 1.0f / (1.0f + gs_exp(-(gate * alpha)));
    return (up + 1.0f) * (gate * sigmoid);
}

template <int N> GS_DEVICE void moe_in(const struct gs_gpu_args &args)
{
    const struct gs_gpu_experts &m = args.w.gate_up;
    int32_t n_active = args.dims.n_active;
    int32_t row0 = (gs_block() * WARPS + warp_of_thread()) * GS_SIMPLE_ROWS, expert = gs_block_y();
    int32_t end = args.s.route_first[expert + 1];
    if (row0 >= m.rows)
        return;
    for (int32_t at = args.s.route_first[expert] + gs_block_z() * N; at < end; at += gs_n_block_z() * N) {
        int32_t route[N], input[N], n = end - at < N ? end - at : N;
#pragma unroll
        for (int v = 0; v < N; v++) {
            route[v] = args.s.routes[v < n ? at + v : at];
            input[v] = route[v] / n_active;
        }
        float sum[GS_SIMPLE_ROWS][N];
        expert_dots<N>(m, expert, row0, args.s.normed, input, n, sum);
        const float *bias = m.bias + (int64_t)expert * m.rows + row0;
#pragma unroll
        for (int r = 0; r < GS_SIMPLE_ROWS; r += 2)
#pragma unroll
            for (int v = 0; v < N; v++)
                if (lane_of_thread() == 0 && v < n && row0 + r + 1 < m.rows)
                    args.s.activated[(int64_t)route[v] * args.dims.d_ff + (row0 + r) / 2] =
                        swiglu(sum[r][v] + bias[r], sum[r + 1][v] + bias[r + 1], args.dims.swiglu_limit,
                               args.dims.swiglu_alpha);
    }
}

template <int N> GS_DEVICE void moe_out(const struct gs_gpu_args &args)
{
    const struct gs_gpu_experts &m = args.w.down;
    int32_t row0 = (gs_block() * WARPS + warp_of_thread()) * GS_SIMPLE_ROWS, expert = gs_block_y();
    int32_t end = args.s.route_first[expert + 1];
    if (row0 >= m.rows)
        return;
    for (int32_t at = args.s.route_first[expert] + gs_block_z() * N; at < end; at += gs_n_block_z() * N) {
        int32_t route[N], n = end - at < N ? end - at : N;
#pragma unroll
        for (int v = 0; v < N; v++)
            route[v] = args.s.routes[v < n ? at + v : at];
        float sum[GS_SIMPLE_ROWS][N];
        expert_dots<N>(m, expert, row0, args.s.activated, route, n, sum);
#pragma unroll
        for (int r = 0; r < GS_SIMPLE_ROWS; r++)
#pragma unroll
            for (int v = 0; v < N; v++)
                if (lane_of_thread() == 0 && v < n && row0 + r < m.rows)
                    args.s.expert_out[(int64_t)route[v] * m.rows + row0 + r] =
                        sum[r][v] + m.bias[(int64_t)expert * m.rows + row0 + r];
    }
}

/* activated[route] = swiglu(gate_up normed[row]). Grid: row groups, experts, groups of routes. */
GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_simple_moe_in_1(GS_ARGS(struct gs_gpu_args, args))
{
    gs_wait_for_previous();
    gs_let_next_start();
    moe_in<1>(args);
}

GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_simple_moe_in_8(GS_ARGS(struct gs_gpu_args, args))
{
    gs_wait_for_previous();
    gs_let_next_start();
    moe_in<GS_SIMPLE_VECTORS>(args);
}

/* expert_out[route] = down activated[route]. The same grid. */
GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_simple_moe_out_1(GS_ARGS(struct gs_gpu_args, args))
{
    gs_wait_for_previous();
    gs_let_next_start();
    moe_out<1>(args);
}

GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_simple_moe_out_8(GS_ARGS(struct gs_gpu_args, args))
{
    gs_wait_for_previous();
    gs_let_next_start();
    moe_out<GS_SIMPLE_VECTORS>(args);
}

/* projected[t] = the weighted sum of its experts' outputs, in ascending order of the expert. Grid: rows. */
GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_simple_combine(GS_ARGS(struct gs_gpu_args, args))
{
    gs_wait_for_previous();
    gs_let_next_start();
    int64_t t = gs_block(), d = args.dims.d_model;
    int32_t n_active = args.dims.n_active, order[GS_GPU_MAX_ACTIVE];
    const int32_t *choice = args.s.choice + t * n_active;
    const float *weight = args.s.choice_weight + t * n_active;
    for (int k = 0; k < n_active; k++) {
        int rank = 0;
        for (int i = 0; i < n_active; i++)
            rank += choice[i] < choice[k] || (choice[i] == choice[k] && i < k);
        order[rank] = k;
    }
    for (int64_t i = gs_thread(); i < d; i += gs_n_thread()) {
        float sum = 0.0f;
        for (int k = 0; k < n_active; k++)
            sum += args.s.expert_out[(t * n_active + order[k]) * d + i] * weight[order[k]];
        args.s.projected[t * d + i] = sum;
    }
}

/* ---------------------------------------------------------------- the token */

/* argmax[row] = the packed maximum of its logits. Grid: parts of a row, logit rows. Zeroed before. */
GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_simple_argmax(GS_ARGS(struct gs_gpu_args, args))
{
    gs_wait_for_previous();
    gs_let_next_start();
    const float *logits = args.s.logits + (int64_t)gs_block_y() * args.dims.n_vocab;
    uint64_t best = 0;
    for (int32_t i = gs_block() * gs_n_thread() + gs_thread(); i < args.dims.n_vocab;
         i += gs_n_block() * gs_n_thread()) {
        uint64_t packed = gs_gpu_pack_argmax(gs_bits_of_float(logits[i]), (uint32_t)i);
        best = packed > best ? packed : best;
    }
    gs_atomic_max_u64(&args.s.argmax[gs_block_y()], best);
}

/* The next row of a chain: the chosen token (-1: none) at the next position. One thread. */
GS_DEVICE void go_on(const struct gs_gpu_args &args, int32_t token)
{
    args.s.rows[0].token = token >= 0 ? token : 0; /* a token at all: what follows means nothing */
    args.s.rows[0].position++;
    args.s.tokens[1 + args.s.tokens[0]++] = token;
    args.s.argmax[0] = 0;
}

/* A greedy step of a chain is done: it is kept in tokens[1 + n] with n = tokens[0] counted on. One thread. */
GS_KERNEL void gs_simple_next(GS_ARGS(struct gs_gpu_args, args))
{
    gs_wait_for_previous();
    gs_let_next_start();
    go_on(args, gs_gpu_argmax_token(args.s.argmax[0]));
}

/* ---------------------------------------------------------------- drawing a token */

/* A part of the vocabulary. */
struct part {
    int32_t begin, end;
};

GS_DEVICE struct part part_of(int32_t n, int32_t n_part, int32_t i)
{
    int32_t length = (n + n_part - 1) / n_part, begin = i * length, end = begin + length;
    struct part part = {begin < n ? begin : n, end < n ? end : n};
    return part;
}

/* How the token of a logit row is drawn: of a chain, the row of this step. */
template <bool CHAINED> GS_DEVICE struct gs_gpu_draw draw_of(const struct gs_gpu_args &args, int32_t row)
{
    return args.s.draws[CHAINED ? args.s.tokens[0] : row];
}

/* The weight that docs/sampling.md gives a logit, but for the last bits. */
GS_DEVICE double weight_of(float logit, double largest, double temperature)
{
    return gs_exp_f64(((double)logit - largest) / temperature);
}

/* draw_sums[row][part] = the part's weights. Grid: parts, logit rows. */
template <bool CHAINED> GS_DEVICE void weigh(const struct gs_gpu_args &args, double *shared)
{
    int32_t row = gs_block_y(), t = gs_thread();
    struct gs_gpu_draw draw = draw_of<CHAINED>(args, row);
    uint64_t best = args.s.argmax[row];
    if (!(draw.temperature > 0.0f) || gs_gpu_argmax_token(best) < 0)
        return;
    double largest = (double)gs_float_of_bits(gs_gpu_argmax_bits(best)), sum = 0.0;
    const float *logits = args.s.logits + (int64_t)row * args.dims.n_vocab;
    struct part part = part_of(args.dims.n_vocab, GS_SIMPLE_PARTS, gs_block());
    for (int32_t i = part.begin + t; i < part.end; i += GS_SIMPLE_THREADS)
        sum += weight_of(logits[i], largest, (double)draw.temperature);
    shared[t] = sum;
    int32_t half = GS_SIMPLE_THREADS / 2;
    while (half > 0 && half >= part.end - part.begin) /* no thread from there on has a value */
        half /= 2;
    for (; half > 0; half /= 2) {
        gs_sync();
        if (t < half)
            shared[t] += shared[t + half];
    }
    if (t == 0)
        args.s.draw_sums[(int64_t)row * GS_SIMPLE_PARTS + gs_block()] = shared[0];
}

GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_simple_weigh(GS_ARGS(struct gs_gpu_args, args))
{
    GS_SHARED double shared[GS_SIMPLE_THREADS];
    gs_wait_for_previous();
    gs_let_next_start();
    weigh<false>(args, shared);
}

GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_simple_weigh_next(GS_ARGS(struct gs_gpu_args, args))
{
    GS_SHARED double shared[GS_SIMPLE_THREADS];
    gs_wait_for_previous();
    gs_let_next_start();
    weigh<true>(args, shared);
}

#define SEGMENTS    16 /* a block's sums are added up by so many, so that a search is two short ones */
#define PER_SEGMENT (GS_SIMPLE_THREADS / SEGMENTS)
static_assert(GS_SIMPLE_PARTS == GS_SIMPLE_THREADS, "a thread has a part");

struct draw_block {
    double sums[GS_SIMPLE_THREADS];
    double segments[SEGMENTS];
};

/* sums[t] = sum, and the segments. */
GS_DEVICE void share_sums(struct draw_block *block, double sum)
{
    int32_t t = gs_thread();
    gs_sync();
    block->sums[t] = sum;
    gs_sync();
    if (t < SEGMENTS) {
        sum = 0.0;
        for (int32_t i = 0; i < PER_SEGMENT; i++)
            sum += block->sums[t * PER_SEGMENT + i];
        block->segments[t] = sum;
    }
    gs_sync();
}

/* The first of sums [n], but for the last, behind which the cumulated sum passes target. */
GS_DEVICE int32_t pass_sums(const double *sums, int32_t n, double target, double *before)
{
    int32_t i = 0;
    while (i + 1 < n && *before + sums[i] <= target)
        *before += sums[i++];
    return i;
}

GS_DEVICE int32_t pass_shared(const struct draw_block *block, double target, double *before)
{
    int32_t first = PER_SEGMENT * pass_sums(block->segments, SEGMENTS, target, before);
    return first + pass_sums(block->sums + first, PER_SEGMENT, target, before);
}

/*
 * The token at which the cumulated weight passes uniform * (the sum of all), in ascending order of the token;
 * -1 where the order of additions could make another one of it: two orders are less than `doubt` apart.
 * Every thread of the block comes here; the first one gets the token.
 */
GS_DEVICE int32_t draw_token(const struct gs_gpu_args &args, int32_t row, const struct gs_gpu_draw &draw,
                             double largest, struct draw_block *block)
{
    const double epsilon = 0x1p-52;
    int32_t t = gs_thread(), n_vocab = args.dims.n_vocab;
    double temperature = (double)draw.temperature, total = 0.0, before = 0.0, sum = 0.0;
    const float *logits = args.s.logits + (int64_t)row * n_vocab;
    share_sums(block, args.s.draw_sums[(int64_t)row * GS_SIMPLE_PARTS + t]);
    for (int32_t i = 0; i < SEGMENTS; i++)
        total += block->segments[i];
    double target = draw.uniform * total, doubt = 4.0 * (double)n_vocab * epsilon * total;
    struct part part = part_of(n_vocab, GS_SIMPLE_PARTS, pass_shared(block, target, &before));
    struct part mine = part_of(part.end - part.begin, GS_SIMPLE_THREADS, t);
    for (int32_t i = mine.begin; i < mine.end; i++)
        sum += weight_of(logits[part.begin + i], largest, temperature);
    share_sums(block, sum);
    if (t > 0)
        return -1;
    mine = part_of(part.end - part.begin, GS_SIMPLE_THREADS, pass_shared(block, target, &before));
    for (int32_t i = mine.begin; i < mine.end; i++) {
        double weight = weight_of(logits[part.begin + i], largest, temperature);
        if (before + weight > target || i + 1 == mine.end) {
            bool is_behind = before == 0.0 || before + doubt <= target; /* zeros are zero in any order */
            bool is_past = weight > 0.0 && before + weight > target + doubt;
            return is_behind && is_past ? part.begin + i : -1;
        }
        before += weight;
    }
    return -1;
}

/* The first thread gets the token of a logit row. */
template <bool CHAINED>
GS_DEVICE int32_t pick(const struct gs_gpu_args &args, int32_t row, struct draw_block *block)
{
    struct gs_gpu_draw draw = draw_of<CHAINED>(args, row);
    uint64_t best = args.s.argmax[row];
    int32_t token = gs_gpu_argmax_token(best);
    if (draw.temperature > 0.0f && token >= 0)
        token = draw_token(args, row, draw, (double)gs_float_of_bits(gs_gpu_argmax_bits(best)), block);
    return token;
}

/* picked[row] = the row's token, after gs_simple_weigh. Grid: logit rows. */
GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_simple_pick(GS_ARGS(struct gs_gpu_args, args))
{
    GS_SHARED struct draw_block block;
    gs_wait_for_previous();
    gs_let_next_start();
    int32_t token = pick<false>(args, gs_block(), &block);
    if (gs_thread() == 0)
        args.s.picked[gs_block()] = token;
}

/* The same in a chain, which goes on from it. One block. */
GS_KERNEL void GS_BOUNDS(GS_SIMPLE_THREADS, 1) gs_simple_pick_next(GS_ARGS(struct gs_gpu_args, args))
{
    GS_SHARED struct draw_block block;
    gs_wait_for_previous();
    gs_let_next_start();
    int32_t token = pick<true>(args, 0, &block);
    gs_sync(); /* all have read what is written now */
    if (gs_thread() == 0)
        go_on(args, token);
}
