/*
 * Products of dense matrices with few vectors: `simdgroups` SIMD-groups share GS_METAL_SET_ROWS rows of a
 * matrix, a lane takes four columns at a time. Norms are applied to the sum: sum(w * g * x) * scale.
 */

/* A row of a matrix. */
struct dense_row {
    const device uchar *data;
    const device uchar *scales;
    uint type;
};

static inline dense_row find_row(const device uchar *matrix, uint type, uint scales_at, uint row,
                                 uint columns)
{
    uint element = type == GS_METAL_Q8 ? 1 : type == GS_METAL_F32 ? 4 : 2;
    dense_row found;
    found.data = matrix + (ulong)row * columns * element;
    found.scales = matrix + (ulong)scales_at * 16 + (ulong)row * (columns / 32) * 2;
    found.type = type;
    return found;
}

static inline float load_one(dense_row row, uint c)
{
    switch (row.type) {
    case GS_METAL_BF16:
        return float_of_bf16(((const device ushort *)row.data)[c]);
    case GS_METAL_F16:
        return (float)((const device half *)row.data)[c];
    case GS_METAL_F32:
        return ((const device float *)row.data)[c];
    default:
        return (float)((const device char *)row.data)[c] * (float)((const device half *)row.scales)[c / 32];
    }
}

/* Columns c ... c+3; those from `columns` on are 0. `vectors`: all four exist and are aligned. */
static inline float4 load_four(dense_row row, uint c, uint columns, bool vectors)
{
    if (!vectors) {
        float4 values = float4(load_one(row, c), 0.0f, 0.0f, 0.0f);
        if (c + 1 < columns)
            values.y = load_one(row, c + 1);
        if (c + 2 < columns)
            values.z = load_one(row, c + 2);
        if (c + 3 < columns)
            values.w = load_one(row, c + 3);
        return values;
    }
    switch (row.type) {
    case GS_METAL_BF16:
        return float4_of_bf16(((const device ushort4 *)row.data)[c / 4]);
    case GS_METAL_F16: {
        half4 h = ((const device half4 *)row.data)[c / 4];
        return float4((float)h.x, (float)h.y, (float)h.z, (float)h.w);
    }
    case GS_METAL_F32:
        return ((const device float4 *)row.data)[c / 4];
    default: {
        char4 codes = ((const device char4 *)row.data)[c / 4];
        float scale = (float)((const device half *)row.scales)[c / 32];
        return float4((float)codes.x, (float)codes.y, (float)codes.z, (float)codes.w) * scale;
    }
    }
}

static inline float4 load_input(const device float *x, uint c, uint columns, bool vectors)
{
    if (vectors)
        return ((const device float4 *)x)[c / 4];
    float4 values = float4(x[c], 0.0f, 0.0f, 0.0f);
    if (c + 1 < columns)
        values.y = x[c + 1];
    if (c + 2 < columns)
        values.z = x[c + 2];
    if (c + 3 < columns)
        values.w = x[c + 3];
    return values;
}

/* May a row of so many columns be read four at a time? */
static inline bool takes_vectors(uint columns)
{
    return columns % 4 == 0;
}

/*
 * sums[r] = rows[r] . x over the columns of `part`, the same in every lane; with NORMED rows[r] . (gain * x),
 * and sums[R] the sum of the squares of x.
 */
template <uint R, bool NORMED>
static inline void dense_dots(thread const dense_row *rows, const device float *x, const device float *gain,
                              uint columns, uint part, uint n_part, uint lane, thread float *sums)
{
    bool vectors = takes_vectors(columns), weight_vectors = vectors && !gs_scalar_load;
    float4 total[R + 1];
    for (uint r = 0; r <= R; r++)
        total[r] = float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (uint c = (part * GS_METAL_LANES + lane) * 4; c < columns; c += n_part * GS_METAL_LANES * 4) {
        float4 in = load_input(x, c, columns, vectors);
        if (NORMED) {
            total[R] = fma(in, in, total[R]);
            in = in * load_input(gain, c, columns, vectors);
        }
#pragma clang loop unroll(full)
        for (uint r = 0; r < R; r++)
            total[r] = fma(load_four(rows[r], c, columns, weight_vectors), in, total[r]);
    }
#pragma clang loop unroll(full)
    for (uint r = 0; r < R + (NORMED ? 1 : 0); r++)
        sums[r] = simd_sum((total[r].x + total[r].y) + (total[r].z + total[r].w));
}

static inline float norm_scale(constant gs_metal_args &args, float squares)
{
    return precise::rsqrt(squares / (float)args.d_model + args.rms_norm_eps);
}

/* ---------------------------------------------------------------- kernels */

[[max_total_threads_per_threadgroup(GS_METAL_THREADS)]] kernel void gs_embed(
    constant gs_metal_args &args [[buffer(GS_METAL_ARGS)]],
    const device gs_metal_row *rows [[buffer(GS_METAL_ROWS)]],
    device float *hidden [[buffer(GS_METAL_HIDDEN)]], const device int *chosen [[buffer(GS_METAL_CHOSEN)]],
    const device uchar *embedding [[buffer(GS_METAL_WEIGHT_0)]], uint3 group [[threadgroup_position_in_grid]],
    uint3 thread_at [[thread_position_in_threadgroup]])
{
    uint t = args.first_row + group.x;
    int token = rows[t].token;
    if (token < 0)
        token = max(chosen[-1 - token], 0); /* no token: a row at all, what follows means nothing */
    dense_row row = find_row(embedding, args.type[0], args.scales_at[0], (uint)token, args.d_model);
    for (uint i = thread_at.x; i < args.d_model; i += GS_METAL_THREADS)
        hidden[(ulong)t * args.d_model + i] = load_one(row, i);
}

/* Two elements of a head of q, k or v that are turned together: where they stand in the head. */
struct qkv_pair {
    uint head, low, high;
};

/* Pair `index` of all heads: element j and its partner, half a head further. */
static inline qkv_pair find_pair(uint index, uint half_head)
{
    qkv_pair pair;
    pair.head = index / half_head;
    pair.low = index % half_head;
    pair.high = pair.low + half_head;
    return pair;
}

static inline void store_pair(constant gs_metal_args &args, gs_metal_kv_layer layer, device uchar *kv,
                              qkv_pair pair, uint position, float low, float high)
{
    uint kv_head = pair.head - args.n_head;
    bool is_key = kv_head < args.n_kv_head;
    if (gs_control == GS_METAL_CONTROL_KV_RING && position >= layer.n_slot)
        position++;
    ulong at = kv_index(args, layer.n_slot, is_key ? kv_head : kv_head - args.n_kv_head, position);
    device uchar *data = kv + (is_key ? layer.keys : layer.values);
    kv_write(data, at + pair.low, low);
    kv_write(data, at + pair.high, high);
}

/* Struct by its members: whole structs do not cross address spaces everywhere. */
static inline gs_metal_kv_layer find_kv(constant gs_metal_args &args, const device gs_metal_kv_layer *table,
                                        int timeline)
{
    const device gs_metal_kv_layer *at = table + (ulong)timeline * args.n_layer + args.layer;
    gs_metal_kv_layer layer;
    layer.keys = at->keys;
    layer.values = at->values;
    layer.n_slot = at->n_slot;
    layer.unused = 0;
    return layer;
}

/* A threadgroup takes sets of two pairs: four rows of q, k or v, of row t's normed hidden state. */
[[max_total_threads_per_threadgroup(GS_METAL_THREADS)]] kernel void gs_attention_in(
    constant gs_metal_args &args [[buffer(GS_METAL_ARGS)]],
    const device gs_metal_row *rows [[buffer(GS_METAL_ROWS)]],
    const device float *hidden [[buffer(GS_METAL_HIDDEN)]], device float *qkv [[buffer(GS_METAL_QKV)]],
    const device float *rope [[buffer(GS_METAL_ROPE)]], device uchar *kv [[buffer(GS_METAL_KV)]],
    const device gs_metal_kv_layer *kv_table [[buffer(GS_METAL_KV_TABLE)]],
    const device float *norm [[buffer(GS_METAL_NORM_WEIGHT)]],
    const device uchar *q [[buffer(GS_METAL_WEIGHT_0)]], const device uchar *k [[buffer(GS_METAL_WEIGHT_1)]],
    const device uchar *v [[buffer(GS_METAL_WEIGHT_2)]],
    const device float *q_bias [[buffer(GS_METAL_BIAS_0)]],
    const device float *k_bias [[buffer(GS_METAL_BIAS_1)]],
    const device float *v_bias [[buffer(GS_METAL_BIAS_2)]], uint3 group [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    threadgroup float shared[GS_METAL_SIMDGROUPS * (GS_METAL_SET_ROWS + 1)];
    uint t = args.first_row + group.x, half_head = args.d_head / 2;
    uint n_pair = (args.n_head + 2 * args.n_kv_head) * half_head;
    uint sets = GS_METAL_SIMDGROUPS / gs_simdgroups;
    uint first_pair = (group.y * sets + simdgroup / gs_simdgroups) * 2;

    dense_row w[GS_METAL_SET_ROWS];
    for (uint i = 0; i < 2; i++) {
        uint pair = min(first_pair + i, n_pair - 1);
        uint head = pair / half_head, row = head * args.d_head + pair % half_head;
        const device uchar *matrix = q;
        uint type = args.type[0], scales_at = args.scales_at[0];
        if (head >= args.n_head + args.n_kv_head) {
            matrix = v;
            type = args.type[2];
            scales_at = args.scales_at[2];
            row -= (args.n_head + args.n_kv_head) * args.d_head;
        } else if (head >= args.n_head) {
            matrix = k;
            type = args.type[1];
            scales_at = args.scales_at[1];
            row -= args.n_head * args.d_head;
        }
        w[2 * i] = find_row(matrix, type, scales_at, row, args.d_model);
        w[2 * i + 1] = find_row(matrix, type, scales_at, row + half_head, args.d_model);
    }
    float sums[GS_METAL_SET_ROWS + 1];
    dense_dots<GS_METAL_SET_ROWS, true>(w, hidden + (ulong)t * args.d_model, norm, args.d_model,
                                        simdgroup % gs_simdgroups, gs_simdgroups, lane, sums);
    join_parts(sums, GS_METAL_SET_ROWS + 1, shared, simdgroup, lane, gs_simdgroups);

    /* A lane a pair. */
    uint index = first_pair + lane;
    if (simdgroup % gs_simdgroups != 0 || lane >= 2 || index >= n_pair)
        return;
    qkv_pair pair = find_pair(index, half_head);
    float scale = norm_scale(args, sums[GS_METAL_SET_ROWS]);
    uint row = pair.head * args.d_head + pair.low;
    const device float *bias = q_bias + row;
    if (pair.head >= args.n_head + args.n_kv_head)
        bias = v_bias + (row - (args.n_head + args.n_kv_head) * args.d_head);
    else if (pair.head >= args.n_head)
        bias = k_bias + (row - args.n_head * args.d_head);
    float low = fma(lane == 0 ? sums[0] : sums[2], scale, bias[0]);
    float high = fma(lane == 0 ? sums[1] : sums[3], scale, bias[half_head]);
    if (pair.head < args.n_head + args.n_kv_head) {
        const device float *angle = rope + ((ulong)t * half_head + pair.low) * 2;
        float a = low, b = high;
        low = a * angle[0] - b * angle[1];
        high = b * angle[0] + a * angle[1];
        if (gs_control == GS_METAL_CONTROL_ROPE_PAIRS) {
            pair.high = 2 * pair.low + 1;
            pair.low = 2 * pair.low;
        }
    }
    device float *out =
        qkv + ((ulong)t * (args.n_head + 2 * args.n_kv_head) + pair.head) * args.d_head;
    out[pair.low] = low;
    out[pair.high] = high;
    if (args.store_kv != 0 && pair.head >= args.n_head)
        store_pair(args, find_kv(args, kv_table, rows[t].timeline), kv, pair, (uint)rows[t].position, low,
                   high);
}

/* The keys and values of qkv, as they stand there, into the cache. */
[[max_total_threads_per_threadgroup(GS_METAL_THREADS)]] kernel void gs_kv_store(
    constant gs_metal_args &args [[buffer(GS_METAL_ARGS)]],
    const device gs_metal_row *rows [[buffer(GS_METAL_ROWS)]],
    const device float *qkv [[buffer(GS_METAL_QKV)]], device uchar *kv [[buffer(GS_METAL_KV)]],
    const device gs_metal_kv_layer *kv_table [[buffer(GS_METAL_KV_TABLE)]],
    uint3 group [[threadgroup_position_in_grid]], uint3 thread_at [[thread_position_in_threadgroup]])
{
    uint t = args.first_row + group.x, half_head = args.d_head / 2;
    const device float *in = qkv + (ulong)t * (args.n_head + 2 * args.n_kv_head) * args.d_head;
    gs_metal_kv_layer layer = find_kv(args, kv_table, rows[t].timeline);
    for (uint i = thread_at.x; i < 2 * args.n_kv_head * half_head; i += GS_METAL_THREADS) {
        qkv_pair pair = find_pair(args.n_head * half_head + i, half_head);
        const device float *head = in + pair.head * args.d_head;
        store_pair(args, layer, kv, pair, (uint)rows[t].position, head[pair.low], head[pair.high]);
    }
}

/* The output projection of attention, its bias, and the residual. */
[[max_total_threads_per_threadgroup(GS_METAL_THREADS)]] kernel void gs_attention_out(
    constant gs_metal_args &args [[buffer(GS_METAL_ARGS)]], device float *hidden [[buffer(GS_METAL_HIDDEN)]],
    const device float *attended [[buffer(GS_METAL_ATTENDED)]],
    device float *projected [[buffer(GS_METAL_PROJECTED)]],
    const device uchar *matrix [[buffer(GS_METAL_WEIGHT_0)]],
    const device float *bias [[buffer(GS_METAL_BIAS_0)]], uint3 group [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    threadgroup float shared[GS_METAL_SIMDGROUPS * GS_METAL_SET_ROWS];
    uint t = args.first_row + group.x, columns = args.n_head * args.d_head;
    uint sets = GS_METAL_SIMDGROUPS / gs_simdgroups;
    uint first = (group.y * sets + simdgroup / gs_simdgroups) * GS_METAL_SET_ROWS;
    dense_row w[GS_METAL_SET_ROWS];
    for (uint r = 0; r < GS_METAL_SET_ROWS; r++)
        w[r] = find_row(matrix, args.type[0], args.scales_at[0], min(first + r, args.d_model - 1), columns);
    float sums[GS_METAL_SET_ROWS + 1];
    const device float *x = attended + (ulong)t * columns;
    dense_dots<GS_METAL_SET_ROWS, false>(w, x, x, columns, simdgroup % gs_simdgroups, gs_simdgroups, lane,
                                         sums);
    join_parts(sums, GS_METAL_SET_ROWS, shared, simdgroup, lane, gs_simdgroups);
    if (simdgroup % gs_simdgroups != 0 || lane != 0)
        return;
    for (uint r = 0; r < GS_METAL_SET_ROWS && first + r < args.d_model; r++) {
        ulong at = (ulong)t * args.d_model + first + r;
        float total = sums[r] + bias[first + r];
        projected[at] = total;
        hidden[at] += total;
    }
}
