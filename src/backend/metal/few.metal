/*
 * Few rows at once, 2 to GS_METAL_FEW_ROWS: a SIMD-group takes GS_METAL_SET_ROWS rows of a matrix, reads and
 * decodes each piece of them once, and multiplies it with all rows of activations, which the threadgroup keeps
 * in its memory piece by piece. Activations and sums are float32; a row's sums do not depend on the others.
 */

#define GS_FEW_SET   (GS_METAL_SIMDGROUPS * GS_METAL_SET_ROWS) /* matrix rows of a threadgroup */
#define GS_FEW_WIDTH GS_METAL_LANES /* float4 of a row in threadgroup memory; experts take twice as many */

/* Four columns of row source[j] of x, for all j below n -> tile [n][width]; what is beyond `columns` is 0. */
static inline void few_fill(threadgroup float4 *tile, threadgroup const uint *source, uint n, uint width,
                            const device float *x, uint c, uint columns, uint i)
{
    bool vectors = takes_vectors(columns);
    for (uint e = i; e < n * width; e += GS_METAL_THREADS) {
        uint at = c + e % width * 4;
        float4 in = float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (at < columns)
            in = load_input(x + (ulong)source[e / width] * columns, at, columns, vectors);
        tile[e] = in;
    }
}

/* sums[r] of lane j = that of row j, total [GS_METAL_SET_ROWS][GS_METAL_FEW_ROWS] over all lanes. */
static inline void few_sums(thread const float *total, uint n, uint lane, thread float *sums)
{
#pragma clang loop unroll(full)
    for (uint j = 0; j < GS_METAL_FEW_ROWS; j++) {
        if (j >= n)
            continue; /* the whole SIMD-group */
#pragma clang loop unroll(full)
        for (uint r = 0; r < GS_METAL_SET_ROWS; r++) {
            float sum = simd_sum(total[r * GS_METAL_FEW_ROWS + j]);
            if (lane == j)
                sums[r] = sum;
        }
    }
}

/* sums[r] of lane j: rows[r] . row source[j] of x [..][columns]. All threads of the threadgroup call it. */
static inline void few_dense(thread const dense_row *rows, const device float *x,
                             threadgroup const uint *source, uint n, uint columns, threadgroup float4 *tile,
                             uint i, uint lane, thread float *sums)
{
    bool vectors = takes_vectors(columns) && !gs_scalar_load;
    float total[GS_METAL_SET_ROWS * GS_METAL_FEW_ROWS];
#pragma clang loop unroll(full)
    for (uint k = 0; k < GS_METAL_SET_ROWS * GS_METAL_FEW_ROWS; k++)
        total[k] = 0.0f;
    for (uint c = 0; c < columns; c += GS_FEW_WIDTH * 4) {
        threadgroup_barrier(mem_flags::mem_threadgroup); /* source is there; the piece before is used up */
        few_fill(tile, source, n, GS_FEW_WIDTH, x, c, columns, i);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        uint at = c + lane * 4;
        float4 w[GS_METAL_SET_ROWS];
#pragma clang loop unroll(full)
        for (uint r = 0; r < GS_METAL_SET_ROWS; r++)
            w[r] = at < columns ? load_four(rows[r], at, columns, vectors) : float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma clang loop unroll(full)
        for (uint j = 0; j < GS_METAL_FEW_ROWS; j++) {
            if (j >= n)
                continue;
            float4 in = tile[j * GS_FEW_WIDTH + lane];
#pragma clang loop unroll(full)
            for (uint r = 0; r < GS_METAL_SET_ROWS; r++)
                total[r * GS_METAL_FEW_ROWS + j] += dot(w[r], in);
        }
    }
    few_sums(total, n, lane, sums);
}

/* Four bytes of codes. */
static inline uint load_few_codes(const device uchar *codes)
{
    if (!gs_scalar_load)
        return *(const device uint *)codes;
    uint word = 0;
    for (uint i = 0; i < 4; i++)
        word |= (uint)codes[i] << 8 * i;
    return word;
}

/*
 * The same with MXFP4 rows first ... (clamped to the last) of an expert, counted over experts from `base`. A lane
 * takes eight columns at a time, two float4 of the tile.
 */
static inline void few_mxfp4(const device uchar *codes, const device uchar *scales, ulong base, uint first,
                             uint n_row, const device float *x, threadgroup const uint *source, uint n,
                             uint columns, threadgroup float4 *tile, uint i, uint lane, thread float *sums)
{
    float total[GS_METAL_SET_ROWS * GS_METAL_FEW_ROWS];
#pragma clang loop unroll(full)
    for (uint k = 0; k < GS_METAL_SET_ROWS * GS_METAL_FEW_ROWS; k++)
        total[k] = 0.0f;
    for (uint c = 0; c < columns; c += 2 * GS_FEW_WIDTH * 4) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        few_fill(tile, source, n, 2 * GS_FEW_WIDTH, x, c, columns, i);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        uint at = c + lane * 8, from = min(at, columns - 8); /* beyond the last the tile is 0 */
        float4 w0[GS_METAL_SET_ROWS], w1[GS_METAL_SET_ROWS];
#pragma clang loop unroll(full)
        for (uint r = 0; r < GS_METAL_SET_ROWS; r++) {
            ulong row = base + min(first + r, n_row - 1);
            float scale = decode_scale(scales[row * (columns / 32) + from / 32]);
            decode_codes(load_few_codes(codes + row * (columns / 2) + from / 2), &w0[r], &w1[r]);
            w0[r] *= scale;
            w1[r] *= scale;
        }
#pragma clang loop unroll(full)
        for (uint j = 0; j < GS_METAL_FEW_ROWS; j++) {
            if (j >= n)
                continue;
            threadgroup const float4 *in = tile + j * (2 * GS_FEW_WIDTH) + lane * 2;
            float4 x0 = in[0], x1 = in[1];
#pragma clang loop unroll(full)
            for (uint r = 0; r < GS_METAL_SET_ROWS; r++)
                total[r * GS_METAL_FEW_ROWS + j] += dot(w0[r], x0) + dot(w1[r], x1);
        }
    }
    few_sums(total, n, lane, sums);
}

/* Grid: rows of the matrix. `tile`: n_rows * GS_METAL_FEW_BYTES. */
[[max_total_threads_per_threadgroup(GS_METAL_THREADS)]] kernel void gs_linear_few_f32(
    constant gs_metal_args &args [[buffer(GS_METAL_ARGS)]], device float *hidden [[buffer(GS_METAL_HIDDEN)]],
    const device uchar *matrix [[buffer(GS_METAL_WEIGHT_0)]],
    const device float *bias [[buffer(GS_METAL_BIAS_0)]], const device float *in [[buffer(GS_METAL_IN)]],
    device float *out [[buffer(GS_METAL_OUT)]], threadgroup float4 *tile [[threadgroup(0)]],
    uint3 group [[threadgroup_position_in_grid]], uint3 thread_at [[thread_position_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    threadgroup uint source[GS_METAL_FEW_ROWS];
    uint i = thread_at.x, first = group.x * GS_FEW_SET + simdgroup * GS_METAL_SET_ROWS;
    if (i < args.n_rows)
        source[i] = i;
    dense_row w[GS_METAL_SET_ROWS];
    for (uint r = 0; r < GS_METAL_SET_ROWS; r++)
        w[r] = find_row(matrix, args.type[0], args.scales_at[0], min(first + r, args.rows - 1), args.columns);
    float sums[GS_METAL_SET_ROWS];
    few_dense(w, in, source, args.n_rows, args.columns, tile, i, lane, sums);
    if (lane >= args.n_rows)
        return;
    for (uint r = first; r < min(first + GS_METAL_SET_ROWS, args.rows); r++) {
        float total = sums[r - first] + bias[r];
        out[(ulong)lane * args.out_stride + args.out_first + r] = total;
        if (args.add_to_hidden != 0)
            hidden[(ulong)lane * args.d_model + r] += total;
    }
}

/* Grid: rows of gate and up, experts that have a route. `tile`: n_rows * 2 * GS_METAL_FEW_BYTES. */
[[max_total_threads_per_threadgroup(GS_METAL_THREADS)]] kernel void gs_experts_gate_up_mxfp4_f32(
    constant gs_metal_args &args [[buffer(GS_METAL_ARGS)]],
    const device float *normed [[buffer(GS_METAL_NORMED)]],
    device float *activated [[buffer(GS_METAL_ACTIVATED)]],
    const device int *routes [[buffer(GS_METAL_ROUTES)]],
    const device uchar *codes [[buffer(GS_METAL_WEIGHT_0)]],
    const device uchar *scales [[buffer(GS_METAL_WEIGHT_1)]],
    const device float *bias [[buffer(GS_METAL_BIAS_0)]], threadgroup float4 *tile [[threadgroup(0)]],
    uint3 group [[threadgroup_position_in_grid]], uint3 thread_at [[thread_position_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    threadgroup uint source[GS_METAL_FEW_ROWS];
    route_tile found;
    if (!find_tile(args, routes, group.y, &found))
        return; /* the whole threadgroup */
    uint i = thread_at.x, first = group.x * GS_FEW_SET + simdgroup * GS_METAL_SET_ROWS, n_row = 2 * args.d_ff;
    if (i < found.n)
        source[i] = (uint)found.routes[i] / args.n_active;
    ulong base = (ulong)found.expert * n_row;
    float sums[GS_METAL_SET_ROWS];
    few_mxfp4(codes, scales, base, first, n_row, normed, source, found.n, args.d_model, tile, i, lane, sums);
    if (lane >= found.n)
        return;
    device float *to = activated + (ulong)found.routes[lane] * args.d_ff;
    for (uint r = 0; r < GS_METAL_SET_ROWS && first + r < n_row; r += 2)
        to[(first + r) / 2] =
            swiglu(args, sums[r] + bias[base + first + r], sums[r + 1] + bias[base + first + r + 1]);
}

/* Grid: rows of down, experts that have a route. `tile`: n_rows * 2 * GS_METAL_FEW_BYTES. */
[[max_total_threads_per_threadgroup(GS_METAL_THREADS)]] kernel void gs_experts_down_mxfp4_f32(
    constant gs_metal_args &args [[buffer(GS_METAL_ARGS)]],
    const device float *activated [[buffer(GS_METAL_ACTIVATED)]],
    const device int *routes [[buffer(GS_METAL_ROUTES)]],
    device float *expert_out [[buffer(GS_METAL_EXPERT_OUT)]],
    const device uchar *codes [[buffer(GS_METAL_WEIGHT_0)]],
    const device uchar *scales [[buffer(GS_METAL_WEIGHT_1)]],
    const device float *bias [[buffer(GS_METAL_BIAS_0)]], threadgroup float4 *tile [[threadgroup(0)]],
    uint3 group [[threadgroup_position_in_grid]], uint3 thread_at [[thread_position_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    threadgroup uint source[GS_METAL_FEW_ROWS];
    route_tile found;
    if (!find_tile(args, routes, group.y, &found))
        return; /* the whole threadgroup */
    uint i = thread_at.x, first = group.x * GS_FEW_SET + simdgroup * GS_METAL_SET_ROWS;
    if (i < found.n)
        source[i] = (uint)found.routes[i];
    ulong base = (ulong)found.expert * args.d_model;
    float sums[GS_METAL_SET_ROWS];
    few_mxfp4(codes, scales, base, first, args.d_model, activated, source, found.n, args.d_ff, tile, i, lane,
              sums);
    if (lane >= found.n)
        return;
    device float *to = expert_out + (ulong)found.routes[lane] * args.d_model;
    for (uint r = first; r < min(first + GS_METAL_SET_ROWS, args.d_model); r++)
        to[r] = sums[r - first] + bias[base + r];
}

/*
 * Logits of normed rows, and each threadgroup's best of each row, as HEAD has them. Grid: 1, candidates. `tile`:
 * n_logit_rows * GS_METAL_FEW_BYTES.
 */
[[max_total_threads_per_threadgroup(GS_METAL_THREADS)]] kernel void gs_head_few_f32(
    constant gs_metal_args &args [[buffer(GS_METAL_ARGS)]],
    const device gs_metal_row *rows [[buffer(GS_METAL_ROWS)]],
    const device float *normed [[buffer(GS_METAL_NORMED)]], device float *logits [[buffer(GS_METAL_LOGITS)]],
    device gs_metal_candidate *candidates [[buffer(GS_METAL_CANDIDATES)]],
    const device uchar *matrix [[buffer(GS_METAL_WEIGHT_0)]], threadgroup float4 *tile [[threadgroup(0)]],
    uint3 group [[threadgroup_position_in_grid]], uint3 thread_at [[thread_position_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    threadgroup uint source[GS_METAL_FEW_ROWS];
    threadgroup float best_logit[GS_METAL_SIMDGROUPS * GS_METAL_FEW_ROWS];
    threadgroup uint best_token[GS_METAL_SIMDGROUPS * GS_METAL_FEW_ROWS];
    uint i = thread_at.x, n = args.n_logit_rows, last = args.n_vocab - 1;
    uint at_once = GS_METAL_SIMDGROUPS / gs_simdgroups * GS_METAL_SET_ROWS * GS_METAL_HEAD_SETS;
    if (i < n)
        source[i] = (uint)rows[i].logit_source;
    float best = -3.0e38f;
    uint token = 0xffffffffu;
    for (uint set = 0; set < at_once; set += GS_FEW_SET) {
        uint first = group.y * at_once + set + simdgroup * GS_METAL_SET_ROWS;
        dense_row w[GS_METAL_SET_ROWS];
        for (uint r = 0; r < GS_METAL_SET_ROWS; r++)
            w[r] = find_row(matrix, args.type[0], args.scales_at[0], min(first + r, last), args.d_model);
        float sums[GS_METAL_SET_ROWS];
        few_dense(w, normed, source, n, args.d_model, tile, i, lane, sums);
        for (uint r = 0; lane < n && r < GS_METAL_SET_ROWS && first + r < args.n_vocab; r++) {
            logits[(ulong)lane * args.n_vocab + first + r] = sums[r];
            if (is_better(rank_of(sums[r]), first + r, best, token)) {
                best = rank_of(sums[r]);
                token = first + r;
            }
        }
    }
    if (lane < n) {
        best_logit[simdgroup * GS_METAL_FEW_ROWS + lane] = best;
        best_token[simdgroup * GS_METAL_FEW_ROWS + lane] = token;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simdgroup != 0 || lane >= n)
        return;
    for (uint s = 1; s < GS_METAL_SIMDGROUPS; s++) {
        uint other = s * GS_METAL_FEW_ROWS + lane;
        if (is_better(best_logit[other], best_token[other], best, token)) {
            best = best_logit[other];
            token = best_token[other];
        }
    }
    device gs_metal_candidate *out =
        candidates + (ulong)lane * ((args.n_vocab + at_once - 1) / at_once) + group.y;
    out->logit = best;
    out->token = (int)token;
}
