/* Batch: what is done row by row: norms, the router's choice, and the sum of the experts. */
#include "backend/gpu/batch.cuh"

#define ACTIVE GS_DECODE_ACTIVE
#define PIECES GS_BATCH_DOWN_PIECES

GS_DEVICE float4 load_fresh_4(const float *at)
{
    return __ldcg((const float4 *)at);
}

/*
 * Four elements a thread of a part of a row: their sum of squares beside the others', and times the norm's
 * weights to normed. Without the factor 1/rms, which the next product puts to its results.
 */
GS_DEVICE void leave_part_of_row(const struct gs_gpu_args &args, int t, int i, float4 value, float4 norm)
{
    GS_SHARED float squares[GS_BATCH_WARPS];
    float square = value.x * value.x + value.y * value.y + value.z * value.z + value.w * value.w;
    if (i < args.dims.d_model) {
        uint2 packed = make_uint2(pack_bf16(norm.x * value.x, norm.y * value.y),
                                  pack_bf16(norm.z * value.z, norm.w * value.w));
        *(uint2 *)(normed_of(args) + tiled(t, i, args.n_rows)) = packed;
    }
    square = gs_warp_sum(square);
    if (lane_of_thread() == 0)
        squares[warp_of_thread()] = square;
    gs_sync();
    if (gs_thread() == 0) {
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < GS_BATCH_WARPS; w++)
            sum += squares[w];
        squares_of(args)[t * GS_BATCH_ROW_BLOCKS + gs_block()] = sum;
    }
}

/* Before the first layer. Grid: parts of a row, rows. */
GS_KERNEL void GS_BOUNDS(GS_BATCH_THREADS, 1) gs_batch_norm(GS_ARGS(struct gs_gpu_args, args))
{
    int t = gs_block_y(), i = gs_block() * GS_BATCH_ROW_COLUMNS + gs_thread() * 4;
    float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f), norm = zero, value = zero;
    gs_let_next_start();
    if (i < args.dims.d_model)
        norm = __ldg((const float4 *)(args.w.attention_norm + i));
    gs_wait_for_previous();
    if (i < args.dims.d_model)
        value = load_fresh_4(args.s.hidden + (int64_t)t * args.dims.d_model + i);
    if (gs_block() == 0 && gs_thread() < args.dims.n_kv_head)
        arrived_of(args)[t * args.dims.n_kv_head + gs_thread()] = 0;
    leave_part_of_row(args, t, i, value, norm);
}

/* The choice from logits [n_expert] in shared memory, by one warp: larger first, then the lower expert. */
GS_DEVICE void choose(const struct gs_gpu_args &args, int t, const float *logits)
{
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

#define N_WARP       (GS_BATCH_ROUTER_THREADS / 32)
#define ROUTER_LOADS 4 /* of a thread, in flight together */

/*
 * The sums of the router's logits over the blocks of the output projection, each warp's to sums: a thread
 * adds four experts of every so many blocks, and then the warp's threads of the same experts are added.
 */
GS_DEVICE void sum_router(const float *parts, int n_part, int n_expert, float *sums)
{
    int group = n_expert / 4, step = GS_BATCH_ROUTER_THREADS / group, column = gs_thread() % group * 4;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int first = gs_thread() / group; first < n_part; first += ROUTER_LOADS * step) {
        float4 v[ROUTER_LOADS];
#pragma unroll
        for (int j = 0; j < ROUTER_LOADS; j++) {
            v[j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (first + j * step < n_part)
                v[j] = load_fresh_4(parts + (int64_t)(first + j * step) * n_expert + column);
        }
#pragma unroll
        for (int j = 0; j < ROUTER_LOADS; j++) {
            sum.x += v[j].x;
            sum.y += v[j].y;
            sum.z += v[j].z;
            sum.w += v[j].w;
        }
    }
    for (int mask = group; mask < 32; mask *= 2) {
        sum.x += gs_shuffle_xor(sum.x, mask);
        sum.y += gs_shuffle_xor(sum.y, mask);
        sum.z += gs_shuffle_xor(sum.z, mask);
        sum.w += gs_shuffle_xor(sum.w, mask);
    }
    if (lane_of_thread() < group) {
        sums[column] = sum.x;
        sums[column + 1] = sum.y;
        sums[column + 2] = sum.z;
        sums[column + 3] = sum.w;
    }
}

/* Completes hidden; -> its norm (times 2^64), router logits, choice. Grid: rows. */
GS_KERNEL void GS_BOUNDS(GS_BATCH_ROUTER_THREADS, 1) gs_batch_router(GS_ARGS(struct gs_gpu_args, args))
{
    GS_SHARED float squares[N_WARP], sums[N_WARP][GS_DECODE_EXPERTS], logits[GS_DECODE_EXPERTS];
    int t = gs_block(), n = args.dims.d_model, n_expert = args.dims.n_expert, warp = warp_of_thread();
    int n_part = n / GS_DECODE_STRIP * GS_BATCH_O_PIECES;
    float x[GS_BATCH_ROW_BLOCKS], norm[GS_BATCH_ROW_BLOCKS], square = 0.0f, bias = 0.0f;
    gs_let_next_start();
#pragma unroll
    for (int j = 0; j < GS_BATCH_ROW_BLOCKS; j++) {
        int i = gs_thread() + j * GS_BATCH_ROUTER_THREADS;
        norm[j] = i < n ? __ldg(args.w.mlp_norm + i) * EXPERT_SCALE : 0.0f;
    }
    if (gs_thread() < n_expert)
        bias = __ldg(args.w.router_bias + gs_thread());
    gs_wait_for_previous();
    float *hidden = args.s.hidden + (int64_t)t * n;
    const float *second = second_of(args) + (int64_t)t * n;
#pragma unroll
    for (int j = 0; j < GS_BATCH_ROW_BLOCKS; j++) {
        int i = gs_thread() + j * GS_BATCH_ROUTER_THREADS;
        x[j] = i < n ? load_fresh(hidden + i) + load_fresh(second + i) : 0.0f;
    }
    sum_router(router_parts_of(args) + (int64_t)t * n_part * n_expert, n_part, n_expert, sums[warp]);
#pragma unroll
    for (int j = 0; j < GS_BATCH_ROW_BLOCKS; j++)
        square += x[j] * x[j];
    square = gs_warp_sum(square);
    if (lane_of_thread() == 0)
        squares[warp] = square;
    gs_sync();
    square = 0.0f;
#pragma unroll
    for (int w = 0; w < N_WARP; w++)
        square += squares[w];
    float scale = 1.0f / gs_sqrt(square / (float)n + args.dims.rms_norm_eps);
    if (gs_thread() < n_expert) {
        float dot = 0.0f;
#pragma unroll
        for (int w = 0; w < N_WARP; w++)
            dot += sums[w][gs_thread()];
        dot = dot * scale + bias;
        logits[gs_thread()] = dot;
        args.s.router[(int64_t)t * n_expert + gs_thread()] = dot;
    }
#pragma unroll
    for (int j = 0; j < GS_BATCH_ROW_BLOCKS; j++) {
        int i = gs_thread() + j * GS_BATCH_ROUTER_THREADS;
        if (i < n) {
            hidden[i] = x[j];
            mlp_normed_of(args)[(int64_t)t * n + i] = gs_bf16_of_float(norm[j] * (x[j] * scale));
        }
    }
    gs_sync();
    if (warp == 0)
        choose(args, t, logits);
}

/*
 * hidden += the weighted sum, in ascending order of the expert; then the next norm. Grid: parts of a row,
 * rows.
 */
GS_KERNEL void GS_BOUNDS(GS_BATCH_THREADS, 1) gs_batch_combine(GS_ARGS(struct gs_gpu_args, args))
{
    int t = gs_block_y(), d = args.dims.d_model, i = gs_block() * GS_BATCH_ROW_COLUMNS + gs_thread() * 4;
    const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float4 norm = zero, value = zero, out[ACTIVE];
    gs_let_next_start();
    if (i < d)
        norm = __ldg((const float4 *)(args.norm + i));
    gs_wait_for_previous();
    int4 choice = __ldcg((const int4 *)(args.s.choice + t * ACTIVE));
    float4 weight = load_fresh_4(args.s.choice_weight + t * ACTIVE);
    const int chosen[ACTIVE] = {choice.x, choice.y, choice.z, choice.w};
    const float weights[ACTIVE] = {weight.x, weight.y, weight.z, weight.w};
    if (i < d) {
        const float *from = expert_out_of(args) + (int64_t)t * ACTIVE * d + i;
        float4 more[PIECES][ACTIVE];
        value = load_fresh_4(args.s.hidden + (int64_t)t * d + i);
#pragma unroll
        for (int p = 0; p < PIECES; p++)
#pragma unroll
            for (int k = 0; k < ACTIVE; k++)
                more[p][k] = load_fresh_4(from + ((int64_t)p * args.n_rows * ACTIVE + k) * d);
#pragma unroll
        for (int k = 0; k < ACTIVE; k++) {
            out[k] = more[0][k];
#pragma unroll
            for (int p = 1; p < PIECES; p++) {
                out[k].x += more[p][k].x;
                out[k].y += more[p][k].y;
                out[k].z += more[p][k].z;
                out[k].w += more[p][k].w;
            }
        }
        float4 sum = zero;
#pragma unroll
        for (int place = 0; place < ACTIVE; place++)
#pragma unroll
            for (int k = 0; k < ACTIVE; k++) {
                int rank = 0;
#pragma unroll
                for (int j = 0; j < ACTIVE; j++)
                    rank += chosen[j] < chosen[k] || (chosen[j] == chosen[k] && j < k);
                if (rank == place) {
                    sum.x += out[k].x * weights[k];
                    sum.y += out[k].y * weights[k];
                    sum.z += out[k].z * weights[k];
                    sum.w += out[k].w * weights[k];
                }
            }
        value.x += sum.x;
        value.y += sum.y;
        value.z += sum.z;
        value.w += sum.w;
        *(float4 *)(args.s.hidden + (int64_t)t * d + i) = value;
    }
    leave_part_of_row(args, t, i, value, norm);
}
