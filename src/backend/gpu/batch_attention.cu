/*
 * Batch: attention. A block takes a row, one KV head with its 8 query heads, and a part of the keys, as
 * attention_tile.cuh has it, with queries and probabilities in two terms. Rotation is done here. Keys and
 * values of this call, of the row and of earlier rows of its timeline, come from qkv; the block that has a
 * row's own writes them to the cache. The cut of a row's keys depends on their number alone.
 */
#include "backend/gpu/attention_tile.cuh"
#include "backend/gpu/batch.cuh"

#define MAX_FRESH GS_BATCH_ROWS
static_assert(GS_BATCH_THREADS == GROUP * D_HEAD / 2, "a thread has one pair of dimensions");

struct attention_shared {
    float q[GROUP][D_HEAD];
    WARP_RESULTS(GS_BATCH_WARPS);
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

/* Keys first ... first+15, of the cache; those of this call are not there: patch_fresh. */
GS_DEVICE void load_tile(struct tile *t, const struct gs_gpu_kv_layer &kv, int64_t base, int first, int fresh)
{
    auto slot = [=](int at) {
        at = at < fresh ? at : fresh > 0 ? fresh - 1 : 0;
        return base + (int64_t)(at < kv.n_slot ? at : at % kv.n_slot) * D_HEAD;
    };
    load_slots(t, kv, first, slot,
               [](const void *from, int64_t at) { return load_fresh_16((const uint16_t *)from + at); });
}

/* The keys and values of this call in a tile, and any of them in the place of those past the end. */
GS_DEVICE void patch_fresh(struct tile *t, const struct attention_shared *block, int first,
                           const struct keys &keys)
{
    patch_tile(t, first, keys.fresh, keys.fresh < keys.end, [&](int which, int at) {
        return (const struct u32x4 *)block->fresh[which][(at < keys.end ? at : keys.end - 1) - keys.fresh];
    });
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
    struct merged m = merge_warps<GS_BATCH_WARPS>(block, gs_thread() / 32, d / 2);
    if (n_split > 1) {
        const int64_t step = (int64_t)n_head * (D_HEAD + 2);
        float *of_row = partial_of(args) + (int64_t)t * GS_BATCH_MAX_SPLIT * step + (int64_t)h * (D_HEAD + 2);
        uint32_t *arrived = arrived_of(args) + t * args.dims.n_kv_head + kv_head;
        leave_split(of_row + split * step, m, d);
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
    float2 sum = add_sink(m, sink);
    *(uint32_t *)(attended_of(args) + tiled(t, h * D_HEAD + d, args.n_rows)) = pack_bf16(sum.x, sum.y);
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
        struct query_terms<2> q;
        load_queries(&memory, &q);
        struct running r = {-INFINITY, 0.0f, {}};
        while (key < keys.end) {
            struct tile current = tile;
            int next = key + GS_BATCH_WARPS * TILE;
            if (next < keys.fresh)
                load_tile(&tile, kv, cache, next, keys.fresh);
            if (key + TILE > keys.fresh)
                patch_fresh(&current, &memory, key, keys);
            attend_tile(&r, &q, &current, key, keys.end - 1);
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
