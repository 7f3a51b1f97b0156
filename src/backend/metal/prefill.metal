/*
 * Many rows at once: products of GS_METAL_TILE_TOKENS rows of activations with GS_METAL_TILE_ROWS rows of a
 * matrix, as 8 x 8 products of SIMD-groups. Both factors are put into threadgroup memory as half, sums are
 * float32. Four SIMD-groups: each has 16 tokens and 32 rows of the tile.
 */

#define GS_TILE_DEPTH  32                  /* columns in threadgroup memory at once */
#define GS_TILE_STRIDE (GS_TILE_DEPTH + 8) /* halves between rows there */
/* Floats of threadgroup memory: the two factors, and after the last product the sums. */
#define GS_TILE_POOL   (GS_METAL_TILE_TOKENS * GS_METAL_TILE_ROWS)

/* ---------------------------------------------------------------- rows by themselves */

/* Grid: rows. */
[[max_total_threads_per_threadgroup(GS_METAL_THREADS)]] kernel void gs_rms_norm(
    constant gs_metal_args &args [[buffer(GS_METAL_ARGS)]],
    const device float *hidden [[buffer(GS_METAL_HIDDEN)]], device float *normed [[buffer(GS_METAL_NORMED)]],
    const device float *norm [[buffer(GS_METAL_NORM_WEIGHT)]], uint3 group [[threadgroup_position_in_grid]],
    uint3 thread_at [[thread_position_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    threadgroup float shared[GS_METAL_SIMDGROUPS];
    ulong row = (ulong)(args.first_row + group.x) * args.d_model;
    float squares = 0.0f;
    for (uint i = thread_at.x; i < args.d_model; i += GS_METAL_THREADS)
        squares = fma(hidden[row + i], hidden[row + i], squares);
    squares = simd_sum(squares);
    if (lane == 0)
        shared[simdgroup] = squares;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float total = 0.0f;
    for (uint i = 0; i < GS_METAL_SIMDGROUPS; i++)
        total += shared[i];
    float scale = norm_scale(args, total);
    for (uint i = thread_at.x; i < args.d_model; i += GS_METAL_THREADS)
        normed[row + i] = norm[i] * (hidden[row + i] * scale);
}

/* Turns q and k of qkv, and puts k and v into the cache. Grid: rows. */
[[max_total_threads_per_threadgroup(GS_METAL_THREADS)]] kernel void gs_rotate(
    constant gs_metal_args &args [[buffer(GS_METAL_ARGS)]],
    const device gs_metal_row *rows [[buffer(GS_METAL_ROWS)]], device float *qkv [[buffer(GS_METAL_QKV)]],
    const device float *rope [[buffer(GS_METAL_ROPE)]], device uchar *kv [[buffer(GS_METAL_KV)]],
    const device gs_metal_kv_layer *kv_table [[buffer(GS_METAL_KV_TABLE)]],
    uint3 group [[threadgroup_position_in_grid]], uint3 thread_at [[thread_position_in_threadgroup]])
{
    uint t = args.first_row + group.x, half_head = args.d_head / 2, n_head = args.n_head + 2 * args.n_kv_head;
    device float *row = qkv + (ulong)t * n_head * args.d_head;
    gs_metal_kv_layer layer = find_kv(args, kv_table, rows[t].timeline);
    for (uint i = thread_at.x; i < n_head * half_head; i += GS_METAL_THREADS) {
        qkv_pair pair = find_pair(i, half_head);
        device float *head = row + pair.head * args.d_head;
        float low = head[pair.low], high = head[pair.high];
        if (pair.head < args.n_head + args.n_kv_head) {
            const device float *angle = rope + ((ulong)t * half_head + pair.low) * 2;
            float a = low, b = high;
            low = a * angle[0] - b * angle[1];
            high = b * angle[0] + a * angle[1];
            head[pair.low] = low;
            head[pair.high] = high;
        }
        if (pair.head >= args.n_head)
            store_pair(args, layer, kv, pair, (uint)rows[t].position, low, high);
    }
}

/* ---------------------------------------------------------------- tiles */

/* Columns c ... c+7 of a row of activations -> halves; `exists`: is there such a row? */
static inline void fill_input(threadgroup half *to, const device float *x, bool exists, uint c, uint columns)
{
    for (uint i = 0; i < 8; i += 4) {
        float4 in = float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (exists && c + i < columns)
            in = load_input(x, c + i, columns, takes_vectors(columns));
        to[i] = half_of_float(in.x);
        to[i + 1] = half_of_float(in.y);
        to[i + 2] = half_of_float(in.z);
        to[i + 3] = half_of_float(in.w);
    }
}

static inline void put_four(threadgroup half *to, float4 values)
{
    to[0] = half_of_float(values.x);
    to[1] = half_of_float(values.y);
    to[2] = half_of_float(values.z);
    to[3] = half_of_float(values.w);
}

/* Sixteen columns of a dense row. */
static inline void fill_dense(threadgroup half *to, dense_row row, bool exists, uint c, uint columns)
{
    for (uint i = 0; i < 16; i += 4) {
        float4 values = float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (exists && c + i < columns)
            values = load_four(row, c + i, columns, takes_vectors(columns) && !gs_scalar_load);
        put_four(to + i, values);
    }
}

/* Half a group of an expert's row, counted over experts: columns c ... c+15. */
static inline void fill_mxfp4(threadgroup half *to, const device uchar *codes, const device uchar *scales,
                              ulong row, bool exists, uint c, uint columns)
{
    float4 w0 = float4(0.0f, 0.0f, 0.0f, 0.0f), w1 = w0, w2 = w0, w3 = w0;
    float scale = 0.0f;
    if (exists) {
        uint2 words = load_codes(codes + row * (columns / 2) + c / 2);
        decode_codes(words.x, &w0, &w1);
        decode_codes(words.y, &w2, &w3);
        scale = decode_scale(scales[row * (columns / 32) + c / 32]);
    }
    put_four(to, w0 * scale);
    put_four(to + 4, w1 * scale);
    put_four(to + 8, w2 * scale);
    put_four(to + 12, w3 * scale);
}

#define GS_TILE_SUMS 8 /* 2 blocks of tokens, 4 of rows */

/* The products of what stands in threadgroup memory, added to a SIMD-group's 16 x 32 sums. */
static inline void tile_multiply(threadgroup const half *tokens, threadgroup const half *rows, uint simdgroup,
                                 thread simdgroup_float8x8 *sums)
{
    threadgroup const half *my_tokens = tokens + simdgroup / 2 * 16 * GS_TILE_STRIDE;
    threadgroup const half *my_rows = rows + simdgroup % 2 * 32 * GS_TILE_STRIDE;
#pragma clang loop unroll(full)
    for (uint k = 0; k < GS_TILE_DEPTH; k += 8) {
        simdgroup_half8x8 a[2];
#pragma clang loop unroll(full)
        for (uint i = 0; i < 2; i++)
            simdgroup_load(a[i], my_tokens + i * 8 * GS_TILE_STRIDE + k, GS_TILE_STRIDE);
#pragma clang loop unroll(full)
        for (uint j = 0; j < 4; j++) {
            simdgroup_half8x8 b;
            simdgroup_load(b, my_rows + j * 8 * GS_TILE_STRIDE + k, GS_TILE_STRIDE, ulong2(0, 0), true);
#pragma clang loop unroll(full)
            for (uint i = 0; i < 2; i++)
                simdgroup_multiply_accumulate(sums[i * 4 + j], a[i], b, sums[i * 4 + j]);
        }
    }
}

static inline void tile_clear(thread simdgroup_float8x8 *sums)
{
#pragma clang loop unroll(full)
    for (uint i = 0; i < GS_TILE_SUMS; i++)
        sums[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}

/* Sums -> pool [tokens][GS_METAL_TILE_ROWS], for all threads to see. All of them are done with the factors.
 */
static inline void tile_store(threadgroup float *pool, uint simdgroup, thread simdgroup_float8x8 *sums)
{
    threadgroup float *to = pool + simdgroup / 2 * 16 * GS_METAL_TILE_ROWS + simdgroup % 2 * 32;
#pragma clang loop unroll(full)
    for (uint i = 0; i < 2; i++)
#pragma clang loop unroll(full)
        for (uint j = 0; j < 4; j++)
            simdgroup_store(sums[i * 4 + j], to + i * 8 * GS_METAL_TILE_ROWS + j * 8, GS_METAL_TILE_ROWS);
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

/* Grid: rows of the matrix, tokens. */
[[max_total_threads_per_threadgroup(GS_METAL_TILE_THREADS)]] kernel void gs_linear_tile_f16(
    constant gs_metal_args &args [[buffer(GS_METAL_ARGS)]], device float *hidden [[buffer(GS_METAL_HIDDEN)]],
    const device uchar *matrix [[buffer(GS_METAL_WEIGHT_0)]],
    const device float *bias [[buffer(GS_METAL_BIAS_0)]], const device float *in [[buffer(GS_METAL_IN)]],
    device float *out [[buffer(GS_METAL_OUT)]], uint3 group [[threadgroup_position_in_grid]],
    uint3 thread_at [[thread_position_in_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    threadgroup float pool[GS_TILE_POOL];
    threadgroup half *tokens = (threadgroup half *)pool;
    threadgroup half *weights = tokens + GS_METAL_TILE_TOKENS * GS_TILE_STRIDE;
    uint i = thread_at.x, row0 = group.x * GS_METAL_TILE_ROWS, token0 = group.y * GS_METAL_TILE_TOKENS;
    uint my_token = token0 + i / 4, my_row = row0 + i / 2;
    dense_row w = find_row(matrix, args.type[0], args.scales_at[0], min(my_row, args.rows - 1), args.columns);
    const device float *x = in + (ulong)min(my_token, args.n_rows - 1) * args.columns;
    simdgroup_float8x8 sums[GS_TILE_SUMS];
    tile_clear(sums);
    for (uint c = 0; c < args.columns; c += GS_TILE_DEPTH) {
        fill_input(tokens + i / 4 * GS_TILE_STRIDE + i % 4 * 8, x, my_token < args.n_rows, c + i % 4 * 8,
                   args.columns);
        fill_dense(weights + i / 2 * GS_TILE_STRIDE + i % 2 * 16, w, my_row < args.rows, c + i % 2 * 16,
                   args.columns);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        tile_multiply(tokens, weights, simdgroup, sums);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    tile_store(pool, simdgroup, sums);
    for (uint e = i; e < GS_TILE_POOL; e += GS_METAL_TILE_THREADS) {
        uint t = token0 + e / GS_METAL_TILE_ROWS, r = row0 + e % GS_METAL_TILE_ROWS;
        if (t >= args.n_rows || r >= args.rows)
            continue;
        float total = pool[e] + bias[r];
        out[(ulong)t * args.out_stride + args.out_first + r] = total;
        if (args.add_to_hidden != 0)
            hidden[(ulong)t * args.d_model + r] += total;
    }
}

/* ---------------------------------------------------------------- experts */

/*
 * Groups the call's routes (row * n_active + rank) by expert: ROUTES = the number of tiles, then tiles of up
 * to GS_METAL_TILE_TOKENS routes of one expert {expert, first, count, -}, then the routes, sorted by expert,
 * then by row. One threadgroup; a thread is an expert.
 */
[[max_total_threads_per_threadgroup(GS_METAL_SORT_THREADS)]] kernel void gs_sort_routes(
    constant gs_metal_args &args [[buffer(GS_METAL_ARGS)]],
    const device gs_metal_active *active [[buffer(GS_METAL_ACTIVE)]],
    device int *routes [[buffer(GS_METAL_ROUTES)]], uint3 thread_at [[thread_position_in_threadgroup]])
{
    threadgroup uint count[GS_METAL_SORT_THREADS];
    uint n = args.n_rows * args.n_active, e = thread_at.x, mine = 0;
    if (e < args.n_expert)
        for (uint i = 0; i < n; i++)
            mine += (uint)active[i].expert == e ? 1u : 0u;
    count[e] = mine;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint first = 0, tile = 0, n_tile = 0;
    for (uint i = 0; i < args.n_expert; i++) {
        if (i < e) {
            first += count[i];
            tile += (count[i] + GS_METAL_TILE_TOKENS - 1) / GS_METAL_TILE_TOKENS;
        }
        n_tile += (count[i] + GS_METAL_TILE_TOKENS - 1) / GS_METAL_TILE_TOKENS;
    }
    if (e == 0)
        routes[0] = (int)n_tile;
    device int *tiles = routes + 4;
    device int *sorted = tiles + 4 * (n / GS_METAL_TILE_TOKENS + min(n, args.n_expert));
    for (uint done = 0; done < mine; done += GS_METAL_TILE_TOKENS, tile++) {
        tiles[4 * tile] = (int)e;
        tiles[4 * tile + 1] = (int)(first + done);
        tiles[4 * tile + 2] = (int)min(mine - done, (uint)GS_METAL_TILE_TOKENS);
        tiles[4 * tile + 3] = 0;
    }
    if (mine > 0)
        for (uint i = 0; i < n; i++)
            if ((uint)active[i].expert == e)
                sorted[first++] = (int)i;
}

/* A tile of routes, read back. */
struct route_tile {
    uint expert, n;
    const device int *routes;
};

static inline bool find_tile(constant gs_metal_args &args, const device int *routes, uint index,
                             thread route_tile *tile)
{
    if (index >= (uint)routes[0])
        return false;
    uint n = args.n_rows * args.n_active;
    const device int *tiles = routes + 4;
    const device int *sorted = tiles + 4 * (n / GS_METAL_TILE_TOKENS + min(n, args.n_expert));
    tile->expert = (uint)tiles[4 * index];
    tile->routes = sorted + tiles[4 * index + 1];
    tile->n = (uint)tiles[4 * index + 2];
    return true;
}

/*
 * sums = the tile's inputs times GS_METAL_TILE_ROWS rows of its expert, from row0 on, into pool. Route r's
 * input is row r / per_input of `in` [..][columns].
 */
static inline void expert_tile(const device uchar *codes, const device uchar *scales, uint n_row, uint row0,
                               thread const route_tile *tile, const device float *in, uint per_input,
                               uint columns, threadgroup float *pool, uint i, uint simdgroup)
{
    threadgroup half *tokens = (threadgroup half *)pool;
    threadgroup half *weights = tokens + GS_METAL_TILE_TOKENS * GS_TILE_STRIDE;
    uint my_row = row0 + i / 2;
    ulong row = (ulong)tile->expert * n_row + min(my_row, n_row - 1);
    uint route = (uint)tile->routes[min(i / 4, tile->n - 1)];
    const device float *x = in + (ulong)(route / per_input) * columns;
    simdgroup_float8x8 sums[GS_TILE_SUMS];
    tile_clear(sums);
    for (uint c = 0; c < columns; c += GS_TILE_DEPTH) {
        fill_input(tokens + i / 4 * GS_TILE_STRIDE + i % 4 * 8, x, i / 4 < tile->n, c + i % 4 * 8, columns);
        fill_mxfp4(weights + i / 2 * GS_TILE_STRIDE + i % 2 * 16, codes, scales, row, my_row < n_row,
                   c + i % 2 * 16, columns);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        tile_multiply(tokens, weights, simdgroup, sums);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    tile_store(pool, simdgroup, sums);
}

/* Grid: rows of gate and up, tiles. */
[[max_total_threads_per_threadgroup(GS_METAL_TILE_THREADS)]] kernel void gs_experts_gate_up_mxfp4_f16(
    constant gs_metal_args &args [[buffer(GS_METAL_ARGS)]],
    const device float *normed [[buffer(GS_METAL_NORMED)]],
    device float *activated [[buffer(GS_METAL_ACTIVATED)]],
    const device int *routes [[buffer(GS_METAL_ROUTES)]],
    const device uchar *codes [[buffer(GS_METAL_WEIGHT_0)]],
    const device uchar *scales [[buffer(GS_METAL_WEIGHT_1)]],
    const device float *bias [[buffer(GS_METAL_BIAS_0)]], uint3 group [[threadgroup_position_in_grid]],
    uint3 thread_at [[thread_position_in_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    threadgroup float pool[GS_TILE_POOL];
    route_tile tile;
    if (!find_tile(args, routes, group.y, &tile))
        return; /* the whole threadgroup */
    uint row0 = group.x * GS_METAL_TILE_ROWS, n_row = 2 * args.d_ff;
    expert_tile(codes, scales, n_row, row0, &tile, normed, args.n_active, args.d_model, pool, thread_at.x,
                simdgroup);
    const device float *expert_bias = bias + (ulong)tile.expert * n_row;
    for (uint e = thread_at.x; e < GS_TILE_POOL / 2; e += GS_METAL_TILE_THREADS) {
        uint token = e / (GS_METAL_TILE_ROWS / 2), unit = row0 / 2 + e % (GS_METAL_TILE_ROWS / 2);
        if (token < tile.n && unit < args.d_ff)
            activated[(ulong)tile.routes[token] * args.d_ff + unit] = swiglu(
                args, pool[2 * e] + expert_bias[2 * unit], pool[2 * e + 1] + expert_bias[2 * unit + 1]);
    }
}

/* Grid: rows of down, tiles. */
[[max_total_threads_per_threadgroup(GS_METAL_TILE_THREADS)]] kernel void gs_experts_down_mxfp4_f16(
    constant gs_metal_args &args [[buffer(GS_METAL_ARGS)]],
    const device float *activated [[buffer(GS_METAL_ACTIVATED)]],
    const device int *routes [[buffer(GS_METAL_ROUTES)]],
    device float *expert_out [[buffer(GS_METAL_EXPERT_OUT)]],
    const device uchar *codes [[buffer(GS_METAL_WEIGHT_0)]],
    const device uchar *scales [[buffer(GS_METAL_WEIGHT_1)]],
    const device float *bias [[buffer(GS_METAL_BIAS_0)]], uint3 group [[threadgroup_position_in_grid]],
    uint3 thread_at [[thread_position_in_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    threadgroup float pool[GS_TILE_POOL];
    route_tile tile;
    if (!find_tile(args, routes, group.y, &tile))
        return; /* the whole threadgroup */
    uint row0 = group.x * GS_METAL_TILE_ROWS;
    expert_tile(codes, scales, args.d_model, row0, &tile, activated, 1, args.d_ff, pool, thread_at.x,
                simdgroup);
    const device float *expert_bias = bias + (ulong)tile.expert * args.d_model;
    for (uint e = thread_at.x; e < GS_TILE_POOL; e += GS_METAL_TILE_THREADS) {
        uint token = e / GS_METAL_TILE_ROWS, r = row0 + e % GS_METAL_TILE_ROWS;
        if (token < tile.n && r < args.d_model)
            expert_out[(ulong)tile.routes[token] * args.d_model + r] = pool[e] + expert_bias[r];
    }
}

/* The weighted sum of a row's experts, in ascending order, and the residual. Grid: rows. */
[[max_total_threads_per_threadgroup(GS_METAL_THREADS)]] kernel void gs_experts_combine(
    constant gs_metal_args &args [[buffer(GS_METAL_ARGS)]], device float *hidden [[buffer(GS_METAL_HIDDEN)]],
    const device gs_metal_active *active [[buffer(GS_METAL_ACTIVE)]],
    device float *projected [[buffer(GS_METAL_PROJECTED)]],
    const device float *expert_out [[buffer(GS_METAL_EXPERT_OUT)]],
    uint3 group [[threadgroup_position_in_grid]], uint3 thread_at [[thread_position_in_threadgroup]])
{
    ulong t = args.first_row + group.x, route = t * args.n_active;
    for (uint i = thread_at.x; i < args.d_model; i += GS_METAL_THREADS) {
        float total = 0.0f;
        for (uint rank = 0; rank < args.n_active; rank++)
            total = fma(expert_out[(route + rank) * args.d_model + i], active[route + rank].weight, total);
        projected[t * args.d_model + i] = total;
        hidden[t * args.d_model + i] += total;
    }
}
