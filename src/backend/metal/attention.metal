/*
 * Attention of single rows: a SIMD-group is one head of one row. Keys are taken in chunks of GS_METAL_CHUNK
 * from the first visible one; chunks are merged in their order, by whoever merges them: so a row's bits do
 * not depend on how many threadgroups share its keys. The sink is a key without a value, merged first.
 */

#define GS_LANE_DIMS (GS_METAL_MAX_D_HEAD / GS_METAL_LANES) /* elements of a head that a lane owns at most   \
                                                             */

/* A softmax under way: exp(score - largest) summed, and the values weighted with it. Lane l: l, l + 32, ...
 */
struct softmax_state {
    float largest, sum;
    float out[GS_LANE_DIMS];
};

static inline void softmax_begin(thread softmax_state *state, float largest, float sum)
{
    state->largest = largest;
    state->sum = sum;
#pragma clang loop unroll(full)
    for (uint i = 0; i < GS_LANE_DIMS; i++)
        state->out[i] = 0.0f;
}

static inline void softmax_merge(thread softmax_state *state, thread const softmax_state *next)
{
    float largest = max(state->largest, next->largest);
    float keep = precise::exp(state->largest - largest), take = precise::exp(next->largest - largest);
    state->largest = largest;
    state->sum = fma(state->sum, keep, next->sum * take);
#pragma clang loop unroll(full)
    for (uint i = 0; i < GS_LANE_DIMS; i++)
        state->out[i] = fma(state->out[i], keep, next->out[i] * take);
}

/* q . the key at `at`, both in float32. */
static inline float score_key(const device uchar *keys, ulong at, threadgroup const float *q, uint d,
                              bool vectors)
{
    if (!vectors) {
        float dot = 0.0f;
        for (uint i = 0; i < d; i++)
            dot = fma(q[i], kv_read(keys, at + i), dot);
        return dot;
    }
    float4 total = float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (uint i = 0; i < d; i += 4)
        total = fma(((threadgroup const float4 *)q)[i / 4], kv_read4(keys, at + i), total);
    return (total.x + total.y) + (total.z + total.w);
}

/* Keys begin ... end-1, at most a chunk of them, of one kv head. */
static inline void attend_chunk(constant gs_metal_args &args, const device uchar *keys,
                                const device uchar *values, uint n_slot, uint kv_head, uint begin, uint end,
                                threadgroup const float *q, uint lane, thread softmax_state *state)
{
    bool vectors = args.d_head % 4 == 0;
    softmax_begin(state, GS_LOWEST, 0.0f);
    for (uint block = begin; block < end; block += GS_METAL_LANES) {
        uint n = min(end - block, (uint)GS_METAL_LANES);
        float score = GS_LOWEST;
        if (lane < n)
            score = args.attention_scale *
                    score_key(keys, kv_index(args, n_slot, kv_head, block + lane), q, args.d_head, vectors);
        float largest = max(state->largest, simd_max(score));
        float weight = lane < n ? precise::exp(score - largest) : 0.0f;
        float keep = precise::exp(state->largest - largest);
        state->largest = largest;
        state->sum = fma(state->sum, keep, simd_sum(weight));
#pragma clang loop unroll(full)
        for (uint i = 0; i < GS_LANE_DIMS; i++)
            state->out[i] *= keep;
        for (uint k = 0; k < n; k++) {
            float p = simd_shuffle(weight, (ushort)k);
            ulong at = kv_index(args, n_slot, kv_head, block + k);
#pragma clang loop unroll(full)
            for (uint i = 0; i < GS_LANE_DIMS; i++)
                if (i * GS_METAL_LANES + lane < args.d_head)
                    state->out[i] = fma(p, kv_read(values, at + i * GS_METAL_LANES + lane), state->out[i]);
        }
    }
}

static inline void write_attended(constant gs_metal_args &args, device float *attended, uint t, uint head,
                                  uint lane, thread const softmax_state *state)
{
    device float *out = attended + ((ulong)t * args.n_head + head) * args.d_head;
#pragma clang loop unroll(full)
    for (uint i = 0; i < GS_LANE_DIMS; i++)
        if (i * GS_METAL_LANES + lane < args.d_head)
            out[i * GS_METAL_LANES + lane] = state->out[i] / state->sum;
}

/* Grid: heads, rows, splits. `shared`: d_head floats, rounded up to 4, for each SIMD-group. */
[[max_total_threads_per_threadgroup(GS_METAL_THREADS)]] kernel void gs_attention(
    constant gs_metal_args &args [[buffer(GS_METAL_ARGS)]],
    const device gs_metal_row *rows [[buffer(GS_METAL_ROWS)]],
    const device float *qkv [[buffer(GS_METAL_QKV)]], device float *attended [[buffer(GS_METAL_ATTENDED)]],
    device float *partials [[buffer(GS_METAL_PARTIALS)]], const device uchar *kv [[buffer(GS_METAL_KV)]],
    const device gs_metal_kv_layer *kv_table [[buffer(GS_METAL_KV_TABLE)]],
    const device float *sinks [[buffer(GS_METAL_SINKS)]], threadgroup float *shared [[threadgroup(0)]],
    uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint n_simdgroup [[simdgroups_per_threadgroup]])
{
    uint t = args.first_row + group.y, head = group.x * n_simdgroup + simdgroup;
    if (head >= args.n_head)
        return; /* a whole SIMD-group, and none waits for another here */
    uint d = args.d_head, kv_head = head / (args.n_head / args.n_kv_head);
    threadgroup float *q = shared + simdgroup * ((d + 3) / 4 * 4);
    const device float *query = qkv + (ulong)t * (args.n_head + 2 * args.n_kv_head) * d + (ulong)head * d;
    for (uint i = lane; i < d; i += GS_METAL_LANES)
        q[i] = query[i];
    simdgroup_barrier(mem_flags::mem_threadgroup);

    gs_metal_kv_layer layer = find_kv(args, kv_table, rows[t].timeline);
    const device uchar *keys = kv + layer.keys;
    const device uchar *values = kv + layer.values;
    uint end = (uint)rows[t].position + 1, first = first_visible(args, end - 1);
    softmax_state state, chunk;
    if (args.n_split == 1)
        softmax_begin(&state, sinks[head], 1.0f);
    else
        softmax_begin(&state, GS_LOWEST, 0.0f);
    for (uint c = group.z; first + c * GS_METAL_CHUNK < end; c += args.n_split) {
        uint begin = first + c * GS_METAL_CHUNK;
        attend_chunk(args, keys, values, layer.n_slot, kv_head, begin, min(begin + GS_METAL_CHUNK, end), q,
                     lane, &chunk);
        if (args.n_split == 1)
            softmax_merge(&state, &chunk);
        else
            state = chunk;
    }
    if (args.n_split == 1) {
        write_attended(args, attended, t, head, lane, &state);
        return;
    }
    device float *partial = partials + (((ulong)t * args.n_head + head) * args.n_split + group.z) * (d + 2);
#pragma clang loop unroll(full)
    for (uint i = 0; i < GS_LANE_DIMS; i++)
        if (i * GS_METAL_LANES + lane < d)
            partial[i * GS_METAL_LANES + lane] = state.out[i];
    if (lane == 0) {
        partial[d] = state.largest;
        partial[d + 1] = state.sum;
    }
}

/* Merges the partials of a head, the sink first. Grid: heads by SIMD-group, rows. */
[[max_total_threads_per_threadgroup(GS_METAL_THREADS)]] kernel void gs_attention_combine(
    constant gs_metal_args &args [[buffer(GS_METAL_ARGS)]],
    const device gs_metal_row *rows [[buffer(GS_METAL_ROWS)]],
    device float *attended [[buffer(GS_METAL_ATTENDED)]],
    const device float *partials [[buffer(GS_METAL_PARTIALS)]],
    const device float *sinks [[buffer(GS_METAL_SINKS)]], uint3 group [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    uint t = args.first_row + group.y, head = group.x * GS_METAL_SIMDGROUPS + simdgroup;
    if (head >= args.n_head)
        return;
    uint d = args.d_head, position = (uint)rows[t].position;
    uint n = position + 1 - first_visible(args, position);
    softmax_state state, next;
    softmax_begin(&state, sinks[head], 1.0f);
    for (uint c = 0; c * GS_METAL_CHUNK < n; c++) {
        const device float *partial =
            partials + (((ulong)t * args.n_head + head) * args.n_split + c) * (d + 2);
        softmax_begin(&next, partial[d], partial[d + 1]);
#pragma clang loop unroll(full)
        for (uint i = 0; i < GS_LANE_DIMS; i++)
            if (i * GS_METAL_LANES + lane < d)
                next.out[i] = partial[i * GS_METAL_LANES + lane];
        softmax_merge(&state, &next);
    }
    write_attended(args, attended, t, head, lane, &state);
}
