/*
 * Batch: attention of single rows, the keys of a row and KV head split over blocks. Eight lanes hold a key,
 * eight elements each, so that a warp looks at four keys at once, for all eight heads of the KV head.
 */
#include "backend/gpu/batch.cuh"

#define HEADS   8
#define D_HEAD  64
#define WARPS_A 4 /* of a block */
#define PARTIAL (D_HEAD + 2)
#define NEVER   (-3.0e38f)

struct eight {
    float v[8];
};

GS_DEVICE struct eight load_eight(const void *data, int is_f32, int64_t at)
{
    struct eight e;
    if (is_f32) {
        const float *from = (const float *)data + at;
#pragma unroll
        for (int j = 0; j < 8; j++)
            e.v[j] = __ldcg(from + j);
        return e;
    }
    struct u32x4 w = load_fresh_16((const uint16_t *)data + at);
    const uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int j = 0; j < 4; j++) {
        e.v[2 * j] = gs_float_of_bits(words[j] << 16);
        e.v[2 * j + 1] = gs_float_of_bits(words[j] & 0xffff0000u);
    }
    return e;
}

GS_DEVICE float *partial_of(const struct gs_gpu_args &args, int t, int head, int split)
{
    float *base = (float *)((char *)args.s.prefill + gs_batch_layout_of(&args.dims).partial);
    return base + (((int64_t)t * args.dims.n_head + head) * GS_BATCH_MAX_SPLIT + split) * PARTIAL;
}

/* Keys first ... end-1 of part `split` of `n`, whole groups of 16. */
GS_DEVICE void keys_of_split(int begin, int end, int split, int n, int *first, int *last)
{
    int groups = (end - begin + 15) / 16;
    *first = begin + groups * split / n * 16;
    *last = begin + groups * (split + 1) / n * 16;
    *last = *last < end ? *last : end;
}

/* A lane's part of the softmax so far: of the keys it held, eight elements of each head. */
struct lane_state {
    float q[HEADS][8], out[HEADS][8], largest[HEADS], sum[HEADS];
};

GS_DEVICE void start_state(struct lane_state *s, const float *query, float scale)
{
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
#pragma unroll
        for (int j = 0; j < 8; j++) {
            s->q[h][j] = load_fresh(query + h * D_HEAD + j) * scale;
            s->out[h][j] = 0.0f;
        }
        s->largest[h] = NEVER;
        s->sum[h] = 0.0f;
    }
}

/* One key of each group of eight lanes. */
GS_DEVICE void take_key(struct lane_state *s, const struct eight &k, const struct eight &v, bool seen)
{
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        float score = 0.0f;
#pragma unroll
        for (int j = 0; j < 8; j++)
            score += s->q[h][j] * k.v[j];
        score += gs_shuffle_xor(score, 1);
        score += gs_shuffle_xor(score, 2);
        score += gs_shuffle_xor(score, 4);
        score = seen ? score : NEVER;
        float top = score > s->largest[h] ? score : s->largest[h];
        float shrink = gs_exp(s->largest[h] - top), p = seen ? gs_exp(score - top) : 0.0f;
        s->largest[h] = top;
        s->sum[h] = s->sum[h] * shrink + p;
#pragma unroll
        for (int j = 0; j < 8; j++)
            s->out[h][j] = s->out[h][j] * shrink + p * v.v[j];
    }
}

/* The four groups of a warp joined, in all lanes. */
GS_DEVICE void join_groups(struct lane_state *s)
{
#pragma unroll
    for (int h = 0; h < HEADS; h++)
#pragma unroll
        for (int mask = 8; mask < 32; mask *= 2) {
            float other = gs_shuffle_xor(s->largest[h], mask);
            float top = other > s->largest[h] ? other : s->largest[h];
            float shrink = gs_exp(s->largest[h] - top);
            s->largest[h] = top;
            s->sum[h] *= shrink;
            s->sum[h] += gs_shuffle_xor(s->sum[h], mask);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                s->out[h][j] *= shrink;
                s->out[h][j] += gs_shuffle_xor(s->out[h][j], mask);
            }
        }
}

/* Grid: KV heads, rows, splits. 128 threads. */
GS_KERNEL void GS_BOUNDS(WARPS_A * 32, 2) gs_batch_attention(GS_ARGS(struct gs_gpu_args, args))
{
    GS_SHARED float largest_of[WARPS_A][HEADS], sum_of[WARPS_A][HEADS], out_of[WARPS_A][HEADS][D_HEAD];
    gs_wait_for_previous();
    gs_let_next_start();
    int kv_head = gs_block(), t = gs_block_y(), split = gs_block_z(), n_split = gs_n_block_z();
    int lane = lane_of_thread(), warp = warp_of_thread(), part = lane % 8, which = lane / 8;
    const struct gs_gpu_dims &dims = args.dims;
    const struct gs_gpu_row row = args.s.rows[t];
    const struct gs_gpu_kv_layer kv = row.kv[args.layer];
    int begin = args.is_window && row.position >= dims.window ? row.position - dims.window + 1 : 0, first,
        last;
    keys_of_split(begin, row.position + 1, split, n_split, &first, &last);

    struct lane_state state;
    int64_t n_qkv = dims.n_head + 2 * dims.n_kv_head, base = (int64_t)kv_head * kv.n_slot * D_HEAD + part * 8;
    start_state(&state, args.s.qkv + (t * n_qkv + kv_head * HEADS) * D_HEAD + part * 8, dims.attention_scale);
    for (int key0 = first + warp * 4; key0 < last; key0 += WARPS_A * 4) {
        bool seen = key0 + which < last;
        int64_t at = base + (int64_t)((seen ? key0 + which : last - 1) % kv.n_slot) * D_HEAD;
        take_key(&state, load_eight(kv.keys, kv.is_f32, at), load_eight(kv.values, kv.is_f32, at), seen);
    }
    join_groups(&state);
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        if (which == 0)
#pragma unroll
            for (int j = 0; j < 8; j++)
                out_of[warp][h][part * 8 + j] = state.out[h][j];
        if (lane == 0) {
            largest_of[warp][h] = state.largest[h];
            sum_of[warp][h] = state.sum[h];
        }
    }
    gs_sync();
    for (int i = gs_thread(); i < HEADS * D_HEAD; i += WARPS_A * 32) {
        int h = i / D_HEAD, j = i % D_HEAD;
        float top = NEVER, total = 0.0f, value = 0.0f;
        for (int w = 0; w < WARPS_A; w++)
            top = largest_of[w][h] > top ? largest_of[w][h] : top;
        for (int w = 0; w < WARPS_A; w++) {
            float weight = gs_exp(largest_of[w][h] - top);
            total += sum_of[w][h] * weight;
            value += out_of[w][h][j] * weight;
        }
        float *to = partial_of(args, t, kv_head * HEADS + h, split);
        to[j] = value;
        if (j == 0) {
            to[D_HEAD] = top;
            to[D_HEAD + 1] = total;
        }
    }
}

/* The splits of a row joined, with the sink; to bfloat16. Grid: KV heads, rows. A warp a head. */
GS_KERNEL void GS_BOUNDS(256, 2) gs_batch_attention_sum(GS_ARGS(struct gs_gpu_args, args))
{
    gs_wait_for_previous();
    gs_let_next_start();
    int head = gs_block() * HEADS + warp_of_thread(), t = gs_block_y(), lane = lane_of_thread();
    int n_ctx = args.is_window ? args.dims.window : args.n_ctx;
    int n_split = (n_ctx + GS_BATCH_SPLIT_KEYS - 1) / GS_BATCH_SPLIT_KEYS;
    n_split = n_split < GS_BATCH_MAX_SPLIT ? n_split : GS_BATCH_MAX_SPLIT;
    float sink = args.w.sinks[head], top = sink;
    for (int s = 0; s < n_split; s++) {
        float largest = load_fresh(partial_of(args, t, head, s) + D_HEAD);
        top = largest > top ? largest : top;
    }
    float total = gs_exp(sink - top), a = 0.0f, b = 0.0f;
    for (int s = 0; s < n_split; s++) {
        const float *from = partial_of(args, t, head, s);
        float weight = gs_exp(load_fresh(from + D_HEAD) - top);
        total += load_fresh(from + D_HEAD + 1) * weight;
        a += load_fresh(from + lane) * weight;
        b += load_fresh(from + lane + 32) * weight;
    }
    uint16_t *out = (uint16_t *)((char *)args.s.prefill + gs_batch_layout_of(&args.dims).attended) +
                    ((int64_t)t * args.dims.n_head + head) * D_HEAD;
    out[lane] = gs_bf16_of_float(a / total);
    out[lane + 32] = gs_bf16_of_float(b / total);
}
