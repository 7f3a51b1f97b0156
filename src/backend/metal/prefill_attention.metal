/*
 * Attention of many neighbouring rows of one timeline: a threadgroup takes one head of GS_METAL_TILE_TOKENS
 * rows, each of its four SIMD-groups eight of them, and meets the keys in blocks that all four share. Scores
 * and outputs are 8 x 8 products of halves with float32 sums; the softmax is float32 and starts with the
 * sink.
 */

#define GS_TILE_KEYS 32
#define GS_TILE_ROWS 8 /* of a SIMD-group */
#define GS_TILE_DIMS (GS_METAL_TILE_D_HEAD / 8)

/* A block of keys or values as halves: [GS_TILE_KEYS][GS_METAL_TILE_D_HEAD]; those that are not there are 0.
 */
static inline void fill_block(threadgroup half *to, const device uchar *data, constant gs_metal_args &args,
                              uint n_slot, uint kv_head, uint begin, uint end, uint i)
{
    uint fours = args.d_head / 4;
    for (uint e = i; e < GS_TILE_KEYS * fours; e += GS_METAL_TILE_THREADS) {
        uint key = e / fours, c = e % fours * 4;
        float4 values = float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (begin + key < end)
            values = kv_read4(data, kv_index(args, n_slot, kv_head, begin + key) + c);
        put_four(to + key * GS_METAL_TILE_D_HEAD + c, values);
    }
}

/* Of a SIMD-group: scores, then probabilities, and the factors that shrink what came before. */
struct tile_scratch {
    threadgroup float *scores; /* [GS_TILE_ROWS][GS_TILE_KEYS] */
    threadgroup half *weights; /* the same */
    threadgroup float *shrink; /* [8][8], a diagonal */
};

/*
 * Scores of eight rows -> weights, and the diagonal by which the outputs so far are to be multiplied. Four
 * lanes share a row: lane l has row l / 4, keys l % 4 * 8 ... + 7. `state`: the row's largest score and sum.
 */
static inline void soften(constant gs_metal_args &args, tile_scratch scratch, uint lane, uint begin,
                          uint first, uint end, thread float2 *state)
{
    uint row = lane / 4, key0 = lane % 4 * 8;
    threadgroup float *scores = scratch.scores + row * GS_TILE_KEYS + key0;
    threadgroup half *weights = scratch.weights + row * GS_TILE_KEYS + key0;
    float largest = state->x;
    for (uint k = 0; k < 8; k++) {
        uint key = begin + key0 + k;
        if (key >= first && key < end)
            largest = max(largest, scores[k] * args.attention_scale);
    }
    largest = max(largest, simd_shuffle_xor(largest, (ushort)1));
    largest = max(largest, simd_shuffle_xor(largest, (ushort)2));
    float sum = 0.0f;
    for (uint k = 0; k < 8; k++) {
        uint key = begin + key0 + k;
        bool visible = key >= first && key < end;
        float p = visible ? precise::exp(scores[k] * args.attention_scale - largest) : 0.0f;
        weights[k] = (half)p;
        sum += p;
    }
    sum += simd_shuffle_xor(sum, (ushort)1);
    sum += simd_shuffle_xor(sum, (ushort)2);
    float shrink = precise::exp(state->x - largest);
    state->x = largest;
    state->y = fma(state->y, shrink, sum);
    for (uint i = 0; i < 2; i++)
        scratch.shrink[row * 8 + lane % 4 * 2 + i] = lane % 4 * 2 + i == row ? shrink : 0.0f;
}

/* The queries of a tile as halves; rows that are not there are 0. */
static inline void fill_queries(threadgroup half *to, constant gs_metal_args &args, const device float *q,
                                uint width, uint n_row, uint i)
{
    uint fours = args.d_head / 4;
    for (uint e = i; e < GS_METAL_TILE_TOKENS * fours; e += GS_METAL_TILE_THREADS) {
        uint r = e / fours, c = e % fours * 4;
        float4 values = float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (r < n_row)
            values = load_input(q + (ulong)r * width, c, args.d_head, true);
        put_four(to + r * GS_METAL_TILE_D_HEAD + c, values);
    }
}

/* Eight queries times a block of keys. */
static inline void score_block(threadgroup const half *queries, threadgroup const half *keys, uint d,
                               threadgroup float *to)
{
    simdgroup_float8x8 scores[GS_TILE_KEYS / 8];
#pragma clang loop unroll(full)
    for (uint k = 0; k < GS_TILE_KEYS / 8; k++)
        scores[k] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (uint c = 0; c < d; c += 8) {
        simdgroup_half8x8 q;
        simdgroup_load(q, queries + c, GS_METAL_TILE_D_HEAD);
#pragma clang loop unroll(full)
        for (uint k = 0; k < GS_TILE_KEYS / 8; k++) {
            simdgroup_half8x8 key;
            simdgroup_load(key, keys + k * 8 * GS_METAL_TILE_D_HEAD + c, GS_METAL_TILE_D_HEAD, ulong2(0, 0),
                           true);
            simdgroup_multiply_accumulate(scores[k], q, key, scores[k]);
        }
    }
#pragma clang loop unroll(full)
    for (uint k = 0; k < GS_TILE_KEYS / 8; k++)
        simdgroup_store(scores[k], to + k * 8, GS_TILE_KEYS);
}

/* out = shrink * out + weights * a block of values. */
static inline void add_values(tile_scratch scratch, threadgroup const half *values, uint d,
                              thread simdgroup_float8x8 *out)
{
    simdgroup_float8x8 shrink;
    simdgroup_load(shrink, scratch.shrink, 8);
#pragma clang loop unroll(full)
    for (uint c = 0; c < GS_TILE_DIMS; c++) {
        if (c * 8 >= d)
            break;
        simdgroup_float8x8 kept;
        simdgroup_multiply(kept, shrink, out[c]);
#pragma clang loop unroll(full)
        for (uint k = 0; k < GS_TILE_KEYS / 8; k++) {
            simdgroup_half8x8 p, value;
            simdgroup_load(p, scratch.weights + k * 8, GS_TILE_KEYS);
            simdgroup_load(value, values + k * 8 * GS_METAL_TILE_D_HEAD + c * 8, GS_METAL_TILE_D_HEAD);
            simdgroup_multiply_accumulate(kept, p, value, kept);
        }
        out[c] = kept;
    }
}

/* Grid: heads, tiles of rows. */
[[max_total_threads_per_threadgroup(GS_METAL_TILE_THREADS)]] kernel void gs_attention_tile_f16(
    constant gs_metal_args &args [[buffer(GS_METAL_ARGS)]],
    const device gs_metal_row *rows [[buffer(GS_METAL_ROWS)]],
    const device float *qkv [[buffer(GS_METAL_QKV)]], device float *attended [[buffer(GS_METAL_ATTENDED)]],
    const device uchar *kv [[buffer(GS_METAL_KV)]],
    const device gs_metal_kv_layer *kv_table [[buffer(GS_METAL_KV_TABLE)]],
    const device float *sinks [[buffer(GS_METAL_SINKS)]], uint3 group [[threadgroup_position_in_grid]],
    uint3 thread_at [[thread_position_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    threadgroup half block[GS_TILE_KEYS * GS_METAL_TILE_D_HEAD];
    threadgroup half queries[GS_METAL_TILE_TOKENS * GS_METAL_TILE_D_HEAD];
    threadgroup float all_scores[4 * GS_TILE_ROWS * GS_TILE_KEYS];
    threadgroup half all_weights[4 * GS_TILE_ROWS * GS_TILE_KEYS];
    threadgroup float all_shrink[4 * 64];
    tile_scratch scratch;
    scratch.scores = all_scores + simdgroup * GS_TILE_ROWS * GS_TILE_KEYS;
    scratch.weights = all_weights + simdgroup * GS_TILE_ROWS * GS_TILE_KEYS;
    scratch.shrink = all_shrink + simdgroup * 64;
    uint d = args.d_head, head = group.x, kv_head = head / (args.n_head / args.n_kv_head);
    uint tile0 = group.y * GS_METAL_TILE_TOKENS,
         n_tile = min(args.n_rows - tile0, (uint)GS_METAL_TILE_TOKENS);
    uint t0 = args.first_row + tile0, i = thread_at.x;
    uint width = (args.n_head + 2 * args.n_kv_head) * d;
    fill_queries(queries, args, qkv + (ulong)t0 * width + (ulong)head * d, width, n_tile, i);
    gs_metal_kv_layer layer = find_kv(args, kv_table, rows[t0].timeline);

    /* What this lane's row sees, and what the tile sees. */
    uint my_row = min(simdgroup * GS_TILE_ROWS + lane / 4, n_tile - 1);
    uint my_end = (uint)rows[t0 + my_row].position + 1, my_first = first_visible(args, my_end - 1);
    uint tile_end = (uint)rows[t0 + n_tile - 1].position + 1;
    uint tile_first = first_visible(args, (uint)rows[t0].position);
    float2 state = float2(sinks[head], 1.0f);
    simdgroup_float8x8 out[GS_TILE_DIMS];
#pragma clang loop unroll(full)
    for (uint c = 0; c < GS_TILE_DIMS; c++)
        out[c] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    threadgroup const half *my_queries = queries + simdgroup * GS_TILE_ROWS * GS_METAL_TILE_D_HEAD;
    for (uint begin = tile_first; begin < tile_end; begin += GS_TILE_KEYS) {
        threadgroup_barrier(mem_flags::mem_threadgroup); /* values of the block before are no longer needed */
        fill_block(block, kv + layer.keys, args, layer.n_slot, kv_head, begin, tile_end, i);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        score_block(my_queries, block, d, scratch.scores);
        simdgroup_barrier(mem_flags::mem_threadgroup);
        soften(args, scratch, lane, begin, my_first, my_end, &state);
        threadgroup_barrier(mem_flags::mem_threadgroup); /* all have met the keys; weights are there */
        fill_block(block, kv + layer.values, args, layer.n_slot, kv_head, begin, tile_end, i);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        add_values(scratch, block, d, out);
    }
    /* Outputs through the scores' memory, eight columns at a time. */
    uint row = lane / 4, c0 = lane % 4 * 2;
#pragma clang loop unroll(full)
    for (uint c = 0; c < GS_TILE_DIMS; c++) {
        if (c * 8 >= d)
            break;
        simdgroup_barrier(mem_flags::mem_threadgroup);
        simdgroup_store(out[c], scratch.scores, 8);
        simdgroup_barrier(mem_flags::mem_threadgroup);
        if (simdgroup * GS_TILE_ROWS + row < n_tile) {
            device float *to = attended +
                               ((ulong)(t0 + simdgroup * GS_TILE_ROWS + row) * args.n_head + head) * d +
                               c * 8 + c0;
            to[0] = scratch.scores[row * 8 + c0] / state.y;
            to[1] = scratch.scores[row * 8 + c0 + 1] / state.y;
        }
    }
}
