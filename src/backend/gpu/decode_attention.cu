/*
 * Decode: attention of one row. A block takes one KV head, with its 8 query heads, and a part of the keys; a
 * warp takes 16 keys at a time, straight from memory into the operands of mma.m16n8k16:
 *
 *   scores^T[head][key] = q k^T: A = query heads (rows 0-7 the high term, rows 8-15 the middle one; then the
 *     low one), B = keys as they lie: lane 4g+c loads dimensions 8c ... 8c+7 of key g.
 *   out^T[dimension][head] = v^T p^T: A = values, lane 4g+c loads dimensions 8g ... 8g+7 of keys 2c, 2c+1,
 *     2c+8, 2c+9 and pairs them up; B = the probabilities, which the scores' layout has in place.
 *
 * Queries and probabilities are float32 in three bfloat16 terms, so products are exact. Bias and rotation of
 * q, k and v are done here; the block with the newest key writes it to the cache.
 */
#include "backend/gpu/decode_stream.cuh"

#define D_HEAD 64
#define GROUP  8 /* query heads of a KV head */
#define TILE   16

#define ATTENTION_WARPS   GS_DECODE_ATTENTION_WARPS
#define ATTENTION_THREADS (ATTENTION_WARPS * 32)
static_assert(ATTENTION_THREADS == GROUP * D_HEAD / 2, "a thread has one pair of dimensions");

#define OUT_STEP (D_HEAD + 2) /* floats from head to head, so that stores spread over the banks */

struct attention_shared {
    float q[GROUP][D_HEAD];
    float2 out[ATTENTION_WARPS][GROUP][OUT_STEP / 2]; /* of each warp: pairs of dimensions */
    float largest[ATTENTION_WARPS][GROUP];
    float sum[ATTENTION_WARPS][GROUP];
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

struct queries {
    uint32_t high_middle[4][4]; /* [step of 16 dimensions]: an A operand */
    uint32_t low[4][2];
};

GS_DEVICE void load_queries(const struct attention_shared *block, struct queries *q)
{
    int g = lane_of_thread() / 4, c = lane_of_thread() % 4;
#pragma unroll
    for (int step = 0; step < 4; step++)
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            int i = step / 2 * 32 + 8 * c + step % 2 * 4 + 2 * pair;
            uint32_t terms[3];
            split_pair(block->q[g][i], block->q[g][i + 1], terms);
            q->high_middle[step][2 * pair] = terms[0];
            q->high_middle[step][2 * pair + 1] = terms[1];
            q->low[step][pair] = terms[2];
        }
}

/* What a lane loads of a tile of 16 keys. */
struct tile {
    struct u32x4 key[2][2]; /* [key g, key g+8][dimensions 8c.., 32+8c..] */
    struct u32x4 value[4];  /* keys 2c, 2c+1, 2c+8, 2c+9 */
};

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
    int g = lane_of_thread() / 4, c = lane_of_thread() % 4;
    auto slot = [&](int position) {
        position = (position < last ? position : last > 0 ? last - 1 : 0) - offset;
        position += position < 0 ? kv.n_slot : 0;
        position -= position >= kv.n_slot ? kv.n_slot : 0;
        return base + (int64_t)position * D_HEAD;
    };
#pragma unroll
    for (int n = 0; n < 2; n++) {
        int64_t at = slot(first + g + 8 * n) + 8 * c;
        t->key[n][0] = load_cache(kv.keys, at);
        t->key[n][1] = load_cache(kv.keys, at + 32);
    }
#pragma unroll
    for (int n = 0; n < 4; n++)
        t->value[n] = load_cache(kv.values, slot(first + 2 * c + n % 2 + n / 2 * 8) + 8 * g);
}

/* The newest key and value in a tile, and in the place of those past it, which count for nothing. */
GS_DEVICE void patch_tile(struct tile *t, const struct attention_shared *block, int first, int last)
{
    int g = lane_of_thread() / 4, c = lane_of_thread() % 4;
    const struct u32x4 *key = (const struct u32x4 *)block->newest[0];
    const struct u32x4 *value = (const struct u32x4 *)block->newest[1];
#pragma unroll
    for (int n = 0; n < 2; n++)
        if (first + g + 8 * n >= last) {
            t->key[n][0] = key[c];
            t->key[n][1] = key[4 + c];
        }
#pragma unroll
    for (int n = 0; n < 4; n++)
        if (first + 2 * c + n % 2 + n / 2 * 8 >= last)
            t->value[n] = value[g];
}

/* Running softmax of a warp: of head g in all four lanes of a row; out of heads 2c and 2c+1. */
struct running {
    float largest, sum;
    float out[4][4]; /* [m tile i]: dimension 8g+2i, then 8g+2i+1; heads 2c, 2c+1 */
};

GS_DEVICE void attend_tile(struct running *r, const struct queries *q, const struct tile *t, int first,
                           int last)
{
    int c = lane_of_thread() % 4;
    float p[4];
#pragma unroll
    for (int n = 0; n < 2; n++) {
        float s[4] = {0.0f, 0.0f, 0.0f, 0.0f}, low[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int step = 0; step < 4; step++) {
            const struct u32x4 &k = t->key[n][step / 2];
            uint32_t b0 = step % 2 ? k.z : k.x, b1 = step % 2 ? k.w : k.y;
            const uint32_t a[4] = {q->low[step][0], 0, q->low[step][1], 0};
            mma_bf16(s, q->high_middle[step], b0, b1);
            mma_bf16(low, a, b0, b1);
        }
#pragma unroll
        for (int j = 0; j < 2; j++)
            p[2 * n + j] = first + 8 * n + 2 * c + j <= last ? s[j] + (s[2 + j] + low[j]) : -INFINITY;
    }
    float largest = fmaxf(fmaxf(p[0], p[1]), fmaxf(p[2], p[3]));
    largest = fmaxf(largest, gs_shuffle_xor(largest, 1));
    largest = fmaxf(largest, gs_shuffle_xor(largest, 2));
    largest = fmaxf(largest, r->largest);
    float shrink = gs_exp(r->largest - largest), sum = 0.0f;
    r->largest = largest;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        p[j] = gs_exp(p[j] - largest);
        sum += p[j];
    }
    r->sum = r->sum * shrink + sum; /* of this lane's keys; lanes are added at the end */
    float shrink0 = __shfl_sync(0xffffffffu, shrink, 8 * c),
          shrink1 = __shfl_sync(0xffffffffu, shrink, 8 * c + 4);
    uint32_t b0[3], b1[3];
    split_pair(p[0], p[1], b0);
    split_pair(p[2], p[3], b1);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t v[4];
#pragma unroll
        for (int k = 0; k < 4; k++)
            v[k] = i == 0 ? t->value[k].x : i == 1 ? t->value[k].y : i == 2 ? t->value[k].z : t->value[k].w;
        const uint32_t a[4] = {__byte_perm(v[0], v[1], 0x5410), __byte_perm(v[0], v[1], 0x7632),
                               __byte_perm(v[2], v[3], 0x5410), __byte_perm(v[2], v[3], 0x7632)};
        r->out[i][0] *= shrink0;
        r->out[i][1] *= shrink1;
        r->out[i][2] *= shrink0;
        r->out[i][3] *= shrink1;
#pragma unroll
        for (int k = 0; k < 3; k++)
            mma_bf16(r->out[i], a, b0[k], b1[k]);
    }
}

/* Every warp's result to shared memory. */
GS_DEVICE void leave_warp(struct running *r, struct attention_shared *block)
{
    int warp = warp_of_thread(), g = lane_of_thread() / 4, c = lane_of_thread() % 4;
    r->sum += gs_shuffle_xor(r->sum, 1);
    r->sum += gs_shuffle_xor(r->sum, 2);
    if (c == 0) {
        block->largest[warp][g] = r->largest;
        block->sum[warp][g] = r->sum;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            block->out[warp][2 * c + h][4 * g + i] = make_float2(r->out[i][h], r->out[i][2 + h]);
}

/* A thread's pair of dimensions of one head over all warps, in their order. */
struct merged {
    float largest, sum, a, b;
};

GS_DEVICE struct merged merge_warps(const struct attention_shared *block, int h, int pair)
{
    struct merged m = {-INFINITY, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int w = 0; w < ATTENTION_WARPS; w++)
        m.largest = fmaxf(m.largest, block->largest[w][h]);
#pragma unroll
    for (int w = 0; w < ATTENTION_WARPS; w++) {
        float factor = gs_exp(block->largest[w][h] - m.largest); /* 0 where the warp had no key */
        float2 out = block->out[w][h][pair];
        m.sum += block->sum[w][h] * factor;
        m.a += out.x * factor;
        m.b += out.y * factor;
    }
    return m;
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
    struct merged m = merge_warps(block, h, d / 2);
    if (keys.n_split == 1) {
        float largest = fmaxf(sink, m.largest), factor = gs_exp(m.largest - largest);
        float total = m.sum * factor + gs_exp(sink - largest);
        store_attended(attended, head_of_all * D_HEAD + d, m.a * factor / total, m.b * factor / total);
        return;
    }
    float *to = partial + ((int64_t)gs_block_y() * args.dims.n_head + head_of_all) * (D_HEAD + 2);
    if (d == 0) {
        to[0] = m.largest;
        to[1] = m.sum;
    }
    to[2 + d] = m.a;
    to[3 + d] = m.b;
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
    struct queries q;
    load_queries(&memory, &q);
    struct running r = {-INFINITY, 0.0f, {}};
    while (key < keys.end) {
        struct tile current = tile;
        int next = key + ATTENTION_WARPS * TILE;
        if (next < keys.end)
            load_tile(&tile, kv, offset, cache, next, last);
        if (key + TILE > last)
            patch_tile(&current, &memory, key, last);
        attend_tile(&r, &q, &current, key, keys.end - 1);
        key = next;
    }
    leave_warp(&r, &memory);
    gs_sync();
    TRACE(2, 3);
    finish(args, &memory, keys, sink);
    TRACE(2, 4);
}
