/*
 * Batch: attention. A block takes a row, one KV head with its 8 query heads, and a part of the keys; a warp
 * takes 16 keys at a time, straight from memory into the operands of mma.m16n8k16, as the decode kernel does:
 *
 *   scores^T[head][key] = q k^T: A = query heads (rows 0-7 the high term, rows 8-15 the low one), B = keys as
 *     they lie: lane 4g+c loads dimensions 8c ... 8c+7 of key g.
 *   out^T[dimension][head] = v^T p^T: A = values, lane 4g+c loads dimensions 8g ... 8g+7 of keys 2c, 2c+1,
 *     2c+8, 2c+9 and pairs them up; B = the probabilities, which the scores' layout has in place.
 *
 * Queries and probabilities are float32 in two bfloat16 terms. Rotation is done here. Keys and values of this
 * call, of the row and of earlier rows of its timeline, come from qkv; the block that has a row's own writes
 * them to the cache. The cut of a row's keys depends on their number alone.
 */
#include "backend/gpu/batch.cuh"

#define D_HEAD    64
#define GROUP     8 /* query heads of a KV head */
#define TILE      16
#define OUT_STEP  (D_HEAD + 2) /* floats from head to head, so that stores spread over the banks */
#define MAX_FRESH GS_BATCH_ROWS
static_assert(GS_BATCH_THREADS == GROUP * D_HEAD / 2, "a thread has one pair of dimensions");

struct attention_shared {
    float q[GROUP][D_HEAD];
    float2 out[GS_BATCH_WARPS][GROUP][OUT_STEP / 2]; /* of each warp: pairs of dimensions */
    float largest[GS_BATCH_WARPS][GROUP];
    float sum[GS_BATCH_WARPS][GROUP];
    __align__(
        16) uint16_t fresh[2][MAX_FRESH][D_HEAD]; /* keys, values of this call, from key keys.fresh on */
    int32_t is_last;
};

/* A row's keys, by position, and how they are cut. */
struct cut {
    int first, end; /* of all that it sees */
    int fresh;      /* from this key on they are of this call */
    int per, n_split;
};

GS_DEVICE struct cut cut_of_row(const struct gs_gpu_args &args, int position, int first_row, int t)
{
    struct cut c;
    c.first = args.is_window && position >= args.dims.window ? position - args.dims.window + 1 : 0;
    c.end = position + 1;
    c.fresh = position - (t - first_row);
    int n_key = c.end - c.first, n_split = (n_key + GS_BATCH_SPLIT_KEYS - 1) / GS_BATCH_SPLIT_KEYS;
    n_split = n_split < GS_BATCH_MAX_SPLIT ? n_split : GS_BATCH_MAX_SPLIT;
    c.per = (n_key + n_split * TILE - 1) / (n_split * TILE) * TILE;
    c.n_split = (n_key + c.per - 1) / c.per;
    return c;
}

struct keys {
    int begin, end, fresh; /* fresh: as above, but not before begin */
};

GS_DEVICE struct keys keys_of_split(const struct cut &c, int split)
{
    struct keys k;
    k.begin = c.first + split * c.per;
    k.end = k.begin + c.per < c.end ? k.begin + c.per : c.end;
    k.fresh = c.fresh > k.begin ? c.fresh : k.begin;
    return k;
}

/*
 * The rotated and scaled queries of row t, and the keys and values of this call, to shared memory; the row's
 * own to the cache. A thread rotates a pair of dimensions: j and 32 more.
 */
GS_DEVICE void prepare(const struct gs_gpu_args &args, const struct gs_gpu_kv_layer &kv, int head, int t,
                       int position, const struct keys &keys, struct attention_shared *block)
{
    const struct gs_gpu_dims &dims = args.dims;
    int64_t width = (int64_t)(dims.n_head + 2 * dims.n_kv_head) * D_HEAD;
    int j = gs_thread() % 32;
    const float *q = args.s.qkv + t * width + (head * GROUP + gs_thread() / 32) * D_HEAD + j;
    float a = load_fresh(q), b = load_fresh(q + 32);
    float2 turn = __ldg((const float2 *)(args.s.rope + (int64_t)position * D_HEAD) + j);
    block->q[gs_thread() / 32][j] = (a * turn.x - b * turn.y) * dims.attention_scale;
    block->q[gs_thread() / 32][j + 32] = (b * turn.x + a * turn.y) * dims.attention_scale;
    for (int at = keys.fresh + gs_thread() / 32; at < keys.end; at += GS_BATCH_THREADS / 32) {
        const float *k = args.s.qkv + (t - (position - at)) * width + (dims.n_head + head) * D_HEAD + j;
        const float *v = k + dims.n_kv_head * D_HEAD;
        float2 turned = __ldg((const float2 *)(args.s.rope + (int64_t)at * D_HEAD) + j);
        a = load_fresh(k), b = load_fresh(k + 32);
        uint16_t low = gs_bf16_of_float(a * turned.x - b * turned.y);
        uint16_t high = gs_bf16_of_float(b * turned.x + a * turned.y);
        uint16_t value_low = gs_bf16_of_float(load_fresh(v)),
                 value_high = gs_bf16_of_float(load_fresh(v + 32));
        int slot = at - keys.fresh;
        block->fresh[0][slot][j] = low, block->fresh[0][slot][j + 32] = high;
        block->fresh[1][slot][j] = value_low, block->fresh[1][slot][j + 32] = value_high;
        if (at == position) {
            int64_t to = ((int64_t)head * kv.n_slot + position % kv.n_slot) * D_HEAD + j;
            ((uint16_t *)kv.keys)[to] = low, ((uint16_t *)kv.keys)[to + 32] = high;
            ((uint16_t *)kv.values)[to] = value_low, ((uint16_t *)kv.values)[to + 32] = value_high;
        }
    }
}

/* Two floats as a high and a low bfloat16 each. */
GS_DEVICE void split_in_two(float a, float b, uint32_t *high, uint32_t *low)
{
    *high = pack_bf16(a, b);
    *low = pack_bf16(a - gs_float_of_bits(*high << 16), b - gs_float_of_bits(*high & 0xffff0000u));
}

struct queries {
    uint32_t a[4][4]; /* [step of 16 dimensions]: an A operand */
};

GS_DEVICE void load_queries(const struct attention_shared *block, struct queries *q)
{
    int g = lane_of_thread() / 4, c = lane_of_thread() % 4;
#pragma unroll
    for (int step = 0; step < 4; step++)
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            int i = step / 2 * 32 + 8 * c + step % 2 * 4 + 2 * pair;
            split_in_two(block->q[g][i], block->q[g][i + 1], &q->a[step][2 * pair],
                         &q->a[step][2 * pair + 1]);
        }
}

/* What a lane loads of a tile of 16 keys. */
struct tile {
    struct u32x4 key[2][2]; /* [key g, key g+8][dimensions 8c.., 32+8c..] */
    struct u32x4 value[4];  /* keys 2c, 2c+1, 2c+8, 2c+9 */
};

/* Keys first ... first+15, of the cache; those of this call are not there: patch_tile. */
GS_DEVICE void load_tile(struct tile *t, const struct gs_gpu_kv_layer &kv, int64_t base, int first, int fresh)
{
    int g = lane_of_thread() / 4, c = lane_of_thread() % 4;
    auto slot = [&](int at) {
        at = at < fresh ? at : fresh > 0 ? fresh - 1 : 0;
        return base + (int64_t)(at < kv.n_slot ? at : at % kv.n_slot) * D_HEAD;
    };
#pragma unroll
    for (int n = 0; n < 2; n++) {
        int64_t at = slot(first + g + 8 * n) + 8 * c;
        t->key[n][0] = load_fresh_16((const uint16_t *)kv.keys + at);
        t->key[n][1] = load_fresh_16((const uint16_t *)kv.keys + at + 32);
    }
#pragma unroll
    for (int n = 0; n < 4; n++)
        t->value[n] =
            load_fresh_16((const uint16_t *)kv.values + slot(first + 2 * c + n % 2 + n / 2 * 8) + 8 * g);
}

/* The keys and values of this call in a tile, and any of them in the place of those past the end. */
GS_DEVICE void patch_tile(struct tile *t, const struct attention_shared *block, int first,
                          const struct keys &keys)
{
    int g = lane_of_thread() / 4, c = lane_of_thread() % 4;
    auto fresh = [&](int which, int at) {
        at = at < keys.end ? at : keys.end - 1;
        return (const struct u32x4 *)block->fresh[which][at - keys.fresh];
    };
#pragma unroll
    for (int n = 0; n < 2; n++) {
        int at = first + g + 8 * n;
        if (at >= keys.fresh && keys.fresh < keys.end) {
            t->key[n][0] = fresh(0, at)[c];
            t->key[n][1] = fresh(0, at)[4 + c];
        }
    }
#pragma unroll
    for (int n = 0; n < 4; n++) {
        int at = first + 2 * c + n % 2 + n / 2 * 8;
        if (at >= keys.fresh && keys.fresh < keys.end)
            t->value[n] = fresh(1, at)[g];
    }
}

/* Running softmax of a warp: of head g in all four lanes of a row; out of heads 2c and 2c+1. */
struct running {
    float largest, sum;
    float out[4][4]; /* [m tile i]: dimension 8g+2i, then 8g+2i+1; heads 2c, 2c+1 */
};

GS_DEVICE void attend_tile(struct running *r, const struct queries *q, const struct tile *t, int first,
                           int end)
{
    int c = lane_of_thread() % 4;
    float p[4];
#pragma unroll
    for (int n = 0; n < 2; n++) {
        float s[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int step = 0; step < 4; step++) {
            const struct u32x4 &k = t->key[n][step / 2];
            mma_bf16(s, q->a[step], step % 2 ? k.z : k.x, step % 2 ? k.w : k.y);
        }
#pragma unroll
        for (int j = 0; j < 2; j++)
            p[2 * n + j] = first + 8 * n + 2 * c + j < end ? s[j] + s[2 + j] : -INFINITY;
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
    uint32_t b0[2], b1[2];
    split_in_two(p[0], p[1], &b0[0], &b0[1]);
    split_in_two(p[2], p[3], &b1[0], &b1[1]);
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
        for (int k = 0; k < 2; k++)
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

/* A thread's pair of dimensions of one head. */
struct merged {
    float largest, sum, a, b;
};

/* Over all warps, in their order. */
GS_DEVICE struct merged merge_warps(const struct attention_shared *block, int h, int pair)
{
    struct merged m = {-INFINITY, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int w = 0; w < GS_BATCH_WARPS; w++)
        m.largest = fmaxf(m.largest, block->largest[w][h]);
#pragma unroll
    for (int w = 0; w < GS_BATCH_WARPS; w++) {
        float factor = gs_exp(block->largest[w][h] - m.largest); /* 0 where the warp had no key */
        float2 out = block->out[w][h][pair];
        m.sum += block->sum[w][h] * factor;
        m.a += out.x * factor;
        m.b += out.y * factor;
    }
    return m;
}

/* All splits are there: their sum in order. */
GS_DEVICE struct merged merge_splits(const float *from, int64_t step, int n_split, int d)
{
    struct merged m = {-INFINITY, 0.0f, 0.0f, 0.0f};
    for (int s = 0; s < n_split; s++)
        m.largest = fmaxf(m.largest, load_fresh(from + s * step));
    for (int s = 0; s < n_split; s++) {
        float factor = gs_exp(load_fresh(from + s * step) - m.largest);
        m.sum += factor * load_fresh(from + s * step + 1);
        m.a += factor * load_fresh(from + s * step + 2 + d);
        m.b += factor * load_fresh(from + s * step + 3 + d);
    }
    return m;
}

/*
 * A split's result, with the sink, to its place where it is the only one of the head and row; else beside the
 * other splits', which the block that comes last adds up in their order.
 */
GS_DEVICE void finish(const struct gs_gpu_args &args, struct attention_shared *block, int split, int n_split,
                      int kv_head, int t, float sink)
{
    int h = kv_head * GROUP + gs_thread() / 32, d = gs_thread() % 32 * 2, n_head = args.dims.n_head;
    struct merged m = merge_warps(block, gs_thread() / 32, d / 2);
    if (n_split > 1) {
        const int64_t step = (int64_t)n_head * (D_HEAD + 2);
        float *of_row = partial_of(args) + (int64_t)t * GS_BATCH_MAX_SPLIT * step + (int64_t)h * (D_HEAD + 2);
        float *to = of_row + split * step;
        uint32_t *arrived = arrived_of(args) + t * args.dims.n_kv_head + kv_head;
        if (d == 0) {
            to[0] = m.largest;
            to[1] = m.sum;
        }
        to[2 + d] = m.a;
        to[3 + d] = m.b;
        __threadfence();
        gs_sync();
        if (gs_thread() == 0) {
            block->is_last = atomicAdd(arrived, 1u) + 1 == (uint32_t)n_split;
            if (block->is_last)
                *arrived = 0;
            __threadfence();
        }
        gs_sync();
        if (!block->is_last)
            return;
        m = merge_splits(of_row, step, n_split, d);
    }
    float largest = fmaxf(sink, m.largest), factor = gs_exp(m.largest - largest);
    float total = m.sum * factor + gs_exp(sink - largest);
    *(uint32_t *)(attended_of(args) + tiled(t, h * D_HEAD + d, args.n_rows)) =
        pack_bf16(m.a * factor / total, m.b * factor / total);
}

/* B. Grid: KV heads, rows, blocks that take a row's splits in turn. */
GS_KERNEL void GS_BOUNDS(GS_BATCH_THREADS, 2) gs_batch_attention(GS_ARGS(struct gs_gpu_args, args))
{
    GS_SHARED struct attention_shared memory;
    int head = gs_block(), t = gs_block_y(), split = gs_block_z();
    gs_let_next_start();
    float sink = args.w.sinks[head * GROUP + gs_thread() / 32];
    /* Rows and old keys are complete once the first layer's kernels run. */
    if (args.layer == 0)
        gs_wait_for_previous();
    const struct gs_gpu_row *row = args.s.rows + t;
    const struct gs_gpu_kv_layer *layers =
        (const struct gs_gpu_kv_layer *)__ldcg((const unsigned long long *)&row->kv);
    const struct gs_gpu_kv_layer kv = layers[args.layer];
    int position = __ldcg(&row->position), first_row = __ldcg(&row->first);
    const struct cut cut = cut_of_row(args, position, first_row, t);
    if (split >= cut.n_split)
        return;
    int64_t cache = (int64_t)head * kv.n_slot * D_HEAD;
    struct tile tile;
    struct keys keys = keys_of_split(cut, split);
    int key = keys.begin + warp_of_thread() * TILE;
    if (key < keys.fresh)
        load_tile(&tile, kv, cache, key, keys.fresh);
    if (args.layer > 0)
        gs_wait_for_previous();
    while (true) {
        prepare(args, kv, head, t, position, keys, &memory);
        gs_sync();
        struct queries q;
        load_queries(&memory, &q);
        struct running r = {-INFINITY, 0.0f, {}};
        while (key < keys.end) {
            struct tile current = tile;
            int next = key + GS_BATCH_WARPS * TILE;
            if (next < keys.fresh)
                load_tile(&tile, kv, cache, next, keys.fresh);
            if (key + TILE > keys.fresh)
                patch_tile(&current, &memory, key, keys);
            attend_tile(&r, &q, &current, key, keys.end);
            key = next;
        }
        leave_warp(&r, &memory);
        gs_sync();
        finish(args, &memory, split, cut.n_split, head, t, sink);
        split += gs_n_block_z();
        if (split >= cut.n_split)
            return;
        gs_sync();
        keys = keys_of_split(cut, split);
        key = keys.begin + warp_of_thread() * TILE;
        if (key < keys.fresh)
            load_tile(&tile, kv, cache, key, keys.fresh);
    }
}
