/*
 * Decode: attention of one row, as attention_tile.cuh has it, with products that are exact. Bias and rotation
 * of q, k and v are done here; the block with the newest key writes it to the cache.
 */
#include "backend/gpu/attention_tile.cuh"

#define ATTENTION_WARPS   GS_DECODE_ATTENTION_WARPS
#define ATTENTION_THREADS (ATTENTION_WARPS * 32)
static_assert(ATTENTION_THREADS == GROUP * D_HEAD / 2, "a thread has one pair of dimensions");

struct attention_shared {
    float q[GROUP][D_HEAD];
    WARP_RESULTS(ATTENTION_WARPS);
    __align__(16) uint16_t newest[2][D_HEAD]; /* key, value, of the block that has them */
    int32_t is_last;
};

/* q|k|v rows are sums of two parts and the bias; `early`, what does not depend on an earlier kernel. */
struct early {
    float bias[2], cosine, sine; /* of the pair of q that the thread rotates */
    float bias_kv[2];            /* of the pair of k, then of the element of v, that it writes */
};

GS_DEVICE float projected(const struct gs_gpu_args &args, const float *qkv, int row)
{
    return load_fresh(qkv + row) + load_fresh(qkv + args.w.qkv.rows + row);
}

/*
 * A thread rotates one pair of q: head t / 32 of the group, dimensions t % 32 and 32 more. Of the block with
 * the newest key, threads 0 ... 31 rotate a pair of k, 32 ... 95 take an element of v.
 */
GS_DEVICE int row_of_query(int head)
{
    return (head * GROUP + gs_thread() / 32) * D_HEAD + gs_thread() % 32;
}

GS_DEVICE int row_of_key(const struct gs_gpu_dims &dims, int head)
{
    int t = gs_thread();
    return t < 32 ? (dims.n_head + head) * D_HEAD + t
                  : (dims.n_head + dims.n_kv_head + head) * D_HEAD + t - 32;
}

GS_DEVICE void load_early(const struct gs_gpu_args &args, int head, int position, struct early *e)
{
    const float2 turn = *(const float2 *)(args.s.rope + (int64_t)position * D_HEAD + gs_thread() % 32 * 2);
    e->cosine = turn.x;
    e->sine = turn.y;
    int row = row_of_query(head), other = row_of_key(args.dims, head);
    e->bias[0] = args.w.qkv_bias[row];
    e->bias[1] = args.w.qkv_bias[row + 32];
    e->bias_kv[0] = gs_thread() < 96 ? args.w.qkv_bias[other] : 0.0f;
    e->bias_kv[1] = gs_thread() < 32 ? args.w.qkv_bias[other + 32] : 0.0f;
}

/* The rotated and scaled queries to shared memory; the newest key and value to the cache. */
GS_DEVICE void prepare(const struct gs_gpu_args &args, const struct gs_gpu_kv_layer &kv, const float *qkv,
                       int head, int position, bool writes, const struct early *e,
                       struct attention_shared *block)
{
    int t = gs_thread(), row = row_of_query(head), other = row_of_key(args.dims, head);
    float a = projected(args, qkv, row), b = projected(args, qkv, row + 32), c = 0.0f, d = 0.0f;
    if (writes && t < 96) {
        c = projected(args, qkv, other) + e->bias_kv[0];
        d = t < 32 ? projected(args, qkv, other + 32) + e->bias_kv[1] : 0.0f;
    }
    a += e->bias[0];
    b += e->bias[1];
    block->q[t / 32][t % 32] = (a * e->cosine - b * e->sine) * args.dims.attention_scale;
    block->q[t / 32][t % 32 + 32] = (b * e->cosine + a * e->sine) * args.dims.attention_scale;
    if (!writes || t >= 96)
        return;
    int64_t slot = ((int64_t)head * kv.n_slot + position % kv.n_slot) * D_HEAD;
    if (t < 32) {
        uint16_t low = gs_bf16_of_float(c * e->cosine - d * e->sine);
        uint16_t high = gs_bf16_of_float(d * e->cosine + c * e->sine);
        ((uint16_t *)kv.keys)[slot + t] = block->newest[0][t] = low;
        ((uint16_t *)kv.keys)[slot + t + 32] = block->newest[0][t + 32] = high;
    } else {
        ((uint16_t *)kv.values)[slot + t - 32] = block->newest[1][t - 32] = gs_bf16_of_float(c);
    }
}

GS_DEVICE struct u32x4 load_cache(const void *at, int64_t element)
{
    uint4 v = __ldcg((const uint4 *)((const uint16_t *)at + element));
    struct u32x4 u = {v.x, v.y, v.z, v.w};
    return u;
}

/*
 * Keys first ... first+15 of positions. The newest and what lies past it is not there yet: patch_tile.
 * Position p of the block's part lies in slot p - offset, once round the ring at most.
 */
GS_DEVICE void load_tile(struct tile *t, const struct gs_gpu_kv_layer &kv, int offset, int64_t base,
                         int first, int last)
{
    auto slot = [=](int position) {
        position = (position < last ? position : last > 0 ? last - 1 : 0) - offset;
        position += position < 0 ? kv.n_slot : 0;
        position -= position >= kv.n_slot ? kv.n_slot : 0;
        return base + (int64_t)position * D_HEAD;
    };
    load_slots(t, kv, first, slot, load_cache);
}

/* The newest key and value in a tile, and in the place of those past it, which count for nothing. */
GS_DEVICE void patch_newest(struct tile *t, const struct attention_shared *block, int first, int last)
{
    patch_tile(t, first, last, true,
               [=](int which, int) { return (const struct u32x4 *)block->newest[which]; });
}

/* Two neighbouring elements of the result to their place in the split vector. */
GS_DEVICE void store_attended(uint32_t *to, int i, float a, float b)
{
    uint32_t terms[3];
    split_pair(a, b, terms);
#pragma unroll
    for (int k = 0; k < 3; k++)
        to[split_word(i, 0, k, 1)] = terms[k];
}

#define COMBINE 8 /* splits whose results are under way together */

/*
 * All splits are there: their sum in order, with the sink. A thread has a pair of dimensions. Of a split and
 * head: the largest score, the sum, the values.
 */
GS_DEVICE void combine_splits(const struct gs_gpu_args &args, const float *partial, int head, int n_split,
                              float sink, uint32_t *attended)
{
    int step = args.dims.n_head * (D_HEAD + 2), h = head * GROUP + gs_thread() / 32, d = gs_thread() % 32 * 2;
    const float *from = partial + (int64_t)h * (D_HEAD + 2);
    float largest = sink, sum = 1.0f, a = 0.0f, b = 0.0f;
#pragma unroll 1
    for (int first = 0; first < n_split; first += COMBINE) {
        float2 head_of[COMBINE], values[COMBINE];
#pragma unroll
        for (int j = 0; j < COMBINE; j++) {
            const float *split = from + (first + j < n_split ? first + j : first) * step;
            head_of[j] = __ldcg((const float2 *)split);
            values[j] = __ldcg((const float2 *)(split + 2 + d));
        }
        float before = largest;
#pragma unroll
        for (int j = 0; j < COMBINE; j++)
            largest = fmaxf(largest, head_of[j].x);
        float factor = gs_exp(before - largest);
        sum *= factor, a *= factor, b *= factor;
#pragma unroll
        for (int j = 0; j < COMBINE; j++) {
            factor = first + j < n_split ? gs_exp(head_of[j].x - largest) : 0.0f;
            sum += factor * head_of[j].y;
            a += factor * values[j].x;
            b += factor * values[j].y;
        }
    }
    store_attended(attended, h * D_HEAD + d, a / sum, b / sum);
}

/* The part of the keys that a block takes. */
struct keys {
    int begin, end, n_split; /* begin == end: none */
};

GS_DEVICE struct keys keys_of_block(const struct gs_gpu_args &args, int last)
{
    int first = args.is_window && last >= args.dims.window ? last - args.dims.window + 1 : 0;
    int n_key = last + 1 - first, most = (int)gridDim.y;
    int n_split = (n_key + GS_DECODE_SPLIT_KEYS - 1) / GS_DECODE_SPLIT_KEYS;
    n_split = n_split < most ? n_split : most;
    int per = (n_key + n_split * TILE - 1) / (n_split * TILE) * TILE;
    struct keys k;
    k.n_split = (n_key + per - 1) / per;
    k.begin = first + gs_block_y() * per;
    k.begin = k.begin < last + 1 ? k.begin : last + 1;
    k.end = k.begin + per < last + 1 ? k.begin + per : last + 1;
    return k;
}

/* Adds one to what others count too: what the block wrote before is seen by whoever sees the sum. */
GS_DEVICE uint32_t arrive(uint32_t *count)
{
    uint32_t before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(count) : "memory");
    return before;
}

/*
 * The block's result: to its place where it is the only one of the head, else beside the other splits', which
 * the block that comes last adds up in their order.
 */
GS_DEVICE void finish(const struct gs_gpu_args &args, struct attention_shared *block, const struct keys &keys,
                      float sink)
{
    const struct gs_decode_layout at = gs_decode_layout_of(&args.dims);
    uint8_t *base = (uint8_t *)args.s.decode;
    uint32_t *attended = (uint32_t *)(base + at.attended), *arrived = (uint32_t *)(base + at.arrived);
    float *partial = (float *)(base + at.partial);
    int head = gs_block(), h = gs_thread() / 32, d = gs_thread() % 32 * 2, head_of_all = head * GROUP + h;
    struct merged m = merge_warps<ATTENTION_WARPS>(block, h, d / 2);
    if (keys.n_split == 1) {
        float2 sum = add_sink(m, sink);
        store_attended(attended, head_of_all * D_HEAD + d, sum.x, sum.y);
        return;
    }
    leave_split(partial + ((int64_t)gs_block_y() * args.dims.n_head + head_of_all) * (D_HEAD + 2), m, d);
    gs_sync();
    if (gs_thread() == 0) {
        block->is_last = arrive(arrived + head) + 1 == (uint32_t)keys.n_split;
        if (block->is_last)
            arrived[head] = 0;
    }
    gs_sync();
    if (block->is_last)
        combine_splits(args, partial, head, keys.n_split, sink, attended);
}

/* B. Grid: KV heads, splits. */
GS_KERNEL void __maxnreg__(160) gs_decode_attention(GS_ARGS(struct gs_gpu_args, args))
{
    GS_SHARED struct attention_shared memory;
    const struct gs_gpu_dims &dims = args.dims;
    const float *qkv = (const float *)((uint8_t *)args.s.decode + gs_decode_layout_of(&dims).qkv);
    int head = gs_block();
    gs_let_next_start();
    TRACE(2, 0);
    float sink = args.w.sinks[head * GROUP + gs_thread() / 32];
    /*
     * Old keys are complete, and this token's row is: a layer's last kernel has let this one start only after
     * the layer before was done. Not so in the first layer, where the token before may still be at work.
     */
    if (args.layer == 0)
        gs_wait_for_previous();
    const struct gs_gpu_kv_layer *layers =
        (const struct gs_gpu_kv_layer *)__ldcg((const unsigned long long *)&args.s.rows[0].kv);
    const struct gs_gpu_kv_layer kv = layers[args.layer];
    int last = __ldcg(&args.s.rows[0].position);
    const struct keys keys = keys_of_block(args, last);
    if (keys.begin == keys.end)
        return;
    int64_t cache = (int64_t)head * kv.n_slot * D_HEAD;
    int offset = keys.begin - keys.begin % kv.n_slot;
    struct early early;
    struct tile tile;
    int key = keys.begin + warp_of_thread() * TILE;
    load_early(args, head, last, &early);
    if (key < keys.end)
        load_tile(&tile, kv, offset, cache, key, last);
    if (args.layer > 0)
        gs_wait_for_previous();
    TRACE(2, 1);
    prepare(args, kv, qkv, head, last, keys.end == last + 1, &early, &memory);
    gs_sync();
    TRACE(2, 2);
    struct query_terms<3> q;
    load_queries(&memory, &q);
    struct running r = {-INFINITY, 0.0f, {}};
    while (key < keys.end) {
        struct tile current = tile;
        int next = key + ATTENTION_WARPS * TILE;
        if (next < keys.end)
            load_tile(&tile, kv, offset, cache, next, last);
        if (key + TILE > last)
            patch_newest(&current, &memory, key, last);
        attend_tile(&r, &q, &current, key, keys.end - 1);
        key = next;
    }
    leave_warp(&r, &memory);
    gs_sync();
    TRACE(2, 3);
    finish(args, &memory, keys, sink);
    TRACE(2, 4);
}
