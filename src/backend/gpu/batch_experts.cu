/*
 * Batch: the experts. All strips of the experts that have routes form one sequence, which is cut evenly among
 * the blocks, one a multiprocessor; a block's warps take its strips in turn, each with a ring of its own in
 * shared memory. The activations of the routes that a block needs are staged beside the rings.
 */
#include "backend/gpu/batch.cuh"

#define ACTIVE       GS_DECODE_ACTIVE
#define WARPS_E      GS_BATCH_EXPERT_WARPS
#define THREADS_E    (WARPS_E * 32)
#define CHUNK        GS_DECODE_EXPERT_CHUNK
#define CHUNK_BLOCKS (GS_DECODE_EXPERT_COLUMNS / 32)
#define ASKED        8 /* chunks of a strip */
#define MAX_PARTS    (GS_DECODE_EXPERTS + GS_BATCH_ROWS * ACTIVE / 8)

/*
 * Who goes where, made by each block for itself: an expert's routes in parts, as many as are staged at a
 * time.
 */
struct routing {
    int32_t routes[GS_BATCH_ROWS * ACTIVE]; /* row*ACTIVE + k, sorted by expert, then row */
    int32_t part_expert[MAX_PARTS], part_at[MAX_PARTS], part_count[MAX_PARTS];
    int32_t n_part;
    uint32_t rows_of[GS_DECODE_EXPERTS][2]; /* bit t: row t has chosen the expert */
    int32_t first[GS_DECODE_EXPERTS];       /* of the expert's routes */
};

GS_DEVICE int scan_warp(int value)
{
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        int other = __shfl_up_sync(0xffffffffu, value, step);
        if (lane_of_thread() >= step)
            value += other;
    }
    return value; /* of this lane and the ones below */
}

/* s.choice -> routing, for up to 8 rows: a lane of the first warp has a route. */
GS_DEVICE void sort_few(const struct gs_gpu_args &args, struct routing *r)
{
    int i = gs_thread(), n = args.n_rows * ACTIVE;
    if (i < 32) {
        int expert = i < n ? __ldcg(args.s.choice + i) : GS_DECODE_EXPERTS, before = 0, parts_before = 0;
        uint32_t same = __match_any_sync(0xffffffffu, expert);
        int rank = __popc(same & ((1u << i) - 1));
        uint32_t leaders = __ballot_sync(0xffffffffu, rank == 0 && i < n);
#pragma unroll
        for (int j = 0; j < 32; j++) {
            bool smaller = __shfl_sync(0xffffffffu, expert, j) < expert;
            before += smaller;
            parts_before += smaller && (leaders >> j & 1);
        }
        if (i < n)
            r->routes[before + rank] = i;
        if (leaders >> i & 1) {
            r->part_expert[parts_before] = expert;
            r->part_at[parts_before] = before;
            r->part_count[parts_before] = __popc(same);
        }
        if (i == 0)
            r->n_part = __popc(leaders);
    }
    gs_sync();
}

/* The same for more rows, by the whole block. CAPACITY: routes of a part at most. */
template <int CAPACITY> GS_DEVICE void sort_many(const struct gs_gpu_args &args, struct routing *r)
{
    int i = gs_thread(), n = args.n_rows * ACTIVE, n_expert = args.dims.n_expert;
    int expert = i < n ? __ldcg(args.s.choice + i) : 0, row = i / ACTIVE;
    for (int e = i; e < n_expert; e += THREADS_E)
        r->rows_of[e][0] = r->rows_of[e][1] = 0;
    gs_sync();
    if (i < n)
        atomicOr(&r->rows_of[expert][row / 32], 1u << row % 32);
    gs_sync();
    if (warp_of_thread() == 0) {
        int before = 0, parts_before = 0;
        for (int e0 = 0; e0 < n_expert; e0 += 32) {
            int e = e0 + i;
            int count = e < n_expert ? __popc(r->rows_of[e][0]) + __popc(r->rows_of[e][1]) : 0;
            int parts = (count + CAPACITY - 1) / CAPACITY;
            int end = before + scan_warp(count), parts_end = parts_before + scan_warp(parts);
            if (e < n_expert)
                r->first[e] = end - count;
            for (int p = 0; p < parts; p++) {
                int left = count - p * CAPACITY;
                r->part_expert[parts_end - parts + p] = e;
                r->part_at[parts_end - parts + p] = end - left;
                r->part_count[parts_end - parts + p] = left < CAPACITY ? left : CAPACITY;
            }
            before = __shfl_sync(0xffffffffu, end, 31);
            parts_before = __shfl_sync(0xffffffffu, parts_end, 31);
        }
        if (i == 0)
            r->n_part = parts_before;
    }
    gs_sync();
    if (i < n) {
        uint32_t below = (1u << row % 32) - 1, low = r->rows_of[expert][0], high = r->rows_of[expert][1];
        int rank = row < 32 ? __popc(low & below) : __popc(low) + __popc(high & below);
        r->routes[r->first[expert] + rank] = i;
    }
    gs_sync();
}

/*
 * Products and loads without an order among them, so that the compiler interleaves independent ones. A load
 * of what a barrier guards takes its address from after_wait: that is its order.
 */
GS_DEVICE void mma_free(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <int OFFSET> GS_DEVICE struct u32x4 load_free_16(uint32_t at)
{
    struct u32x4 v;
    asm("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4+%5];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "r"(at), "n"(OFFSET));
    return v;
}

template <int OFFSET> GS_DEVICE uint32_t load_free_4(uint32_t at)
{
    uint32_t v;
    asm("ld.shared.u32 %0, [%1+%2];" : "=r"(v) : "r"(at), "n"(OFFSET));
    return v;
}

/* `address`, once the barrier's turn is done. */
GS_DEVICE uint32_t after_wait(uint32_t bar, uint32_t phase, uint32_t address)
{
    uint32_t same;
    barrier_wait(bar, phase);
    asm volatile("mov.b32 %0, %1;" : "=r"(same) : "r"(address) : "memory");
    return same;
}

/* sum += a block of 32 columns of a chunk times up to TILES*8 routes. */
template <int TILES, int BLOCK>
GS_DEVICE void multiply_block(const uint32_t codes[2], uint32_t scales, const uint32_t from[TILES],
                              float sum[TILES][4])
{
    uint32_t low[4], high[4];
    decode_word(codes[0], low);
    decode_word(codes[1], high);
    const uint32_t a0[4] = {low[0], high[0], low[1], high[1]};
    const uint32_t a1[4] = {low[2], high[2], low[3], high[3]};
    float s0 = scale_of_word(scales, BLOCK % 2 * 2), s1 = scale_of_word(scales, BLOCK % 2 * 2 + 1);
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        const struct u32x4 b = load_free_16<BLOCK * 64>(from[t]);
        float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        mma_free(c, a0, b.x, b.y);
        mma_free(c, a1, b.z, b.w);
        sum[t][0] += s0 * c[0];
        sum[t][1] += s0 * c[1];
        sum[t][2] += s1 * c[2];
        sum[t][3] += s1 * c[3];
    }
}

template <int TILES, int PAIR>
GS_DEVICE void multiply_pair(uint32_t codes_at, uint32_t scales_at, const uint32_t from[TILES],
                             float sum[TILES][4])
{
    const struct u32x4 w = load_free_16<PAIR * 512>(codes_at);
    const uint32_t scales = load_free_4<PAIR * 32>(scales_at);
    const uint32_t first[2] = {w.x, w.y}, second[2] = {w.z, w.w};
    multiply_block<TILES, 2 * PAIR>(first, scales, from, sum);
    multiply_block<TILES, 2 * PAIR + 1>(second, scales, from, sum);
}

/* The chunk at `chunk`; `from`: where the lane finds its row of tile t, from the chunk's columns on. */
template <int TILES>
GS_DEVICE void multiply_routes(uint32_t chunk, const uint32_t from[TILES], float sum[TILES][4])
{
    uint32_t codes_at = chunk + (uint32_t)lane_of_thread() * 16;
    uint32_t scales_at = chunk + 3 * 512 + (uint32_t)(lane_of_thread() / 4 * 4);
    multiply_pair<TILES, 0>(codes_at, scales_at, from, sum);
    multiply_pair<TILES, 1>(codes_at, scales_at, from, sum);
    multiply_pair<TILES, 2>(codes_at, scales_at, from, sum);
}

/* What a warp streams: units first, first+WARPS_E, ... below end, a strip or a part of its columns each. */
struct feed {
    const uint8_t *weights; /* of the matrix */
    const struct routing *routing;
    int n_strip, n_chunk, split; /* of an expert; of a strip; units that share a strip */
    int unit, end;               /* the next to fetch from */
    const uint8_t *at;
    int left; /* chunks of that unit */
    __device__ __forceinline__ void enter(void)
    {
        int of_part = n_strip * split, part = unit / of_part, strip = unit % of_part / split,
            piece = unit % split;
        int first = n_chunk * piece / split;
        at = weights + ((int64_t)(routing->part_expert[part] * n_strip + strip) * n_chunk + first) * CHUNK;
        left = n_chunk * (piece + 1) / split - first;
    }
    __device__ __forceinline__ bool more(void) const
    {
        return unit < end;
    }
    __device__ __forceinline__ const uint8_t *next(void)
    {
        const uint8_t *chunk = at;
        at += CHUNK;
        if (--left == 0) {
            unit += WARPS_E;
            if (unit < end)
                enter();
        }
        return chunk;
    }
};

/* A warp's ring: the slot that comes next, and where it wraps. */
template <int SLOTS> struct ring {
    uint32_t slot, bar, phase, end;
    uint64_t policy;
    __device__ __forceinline__ void go_on(void)
    {
        slot += CHUNK;
        bar += 8;
        if (slot == end) {
            slot -= SLOTS * CHUNK;
            bar -= SLOTS * 8;
            phase ^= 1;
        }
    }
};

/* n chunks of a strip: sum of them times `count` routes, whose rows lie from x on. */
template <int SLOTS, int TILES>
GS_DEVICE void stream_unit(struct ring<SLOTS> &ring, struct feed &feed, int n, uint32_t x, uint32_t stride,
                           int count, float sum[TILES][4])
{
    uint32_t from[TILES];
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        int row = t * 8 + lane_of_thread() / 4;
        row = row < count ? row : count - 1;
        from[t] = x + (uint32_t)row * stride + (uint32_t)(lane_of_thread() % 4) * 16;
        sum[t][0] = sum[t][1] = sum[t][2] = sum[t][3] = 0.0f;
    }
#pragma unroll 1
    for (int i = 0; i < n; i++) {
        uint32_t chunk = after_wait(ring.bar, ring.phase, ring.slot);
        multiply_routes<TILES>(chunk, from, sum);
        __syncwarp();
        if (lane_of_thread() == 0 && feed.more())
            copy_start_once(ring.slot, feed.next(), CHUNK, ring.bar, ring.policy);
        ring.go_on();
#pragma unroll
        for (int t = 0; t < TILES; t++)
            from[t] += CHUNK_BLOCKS * 64;
    }
}

/*
 * Before the choice is known: the first chunks of the block's strips as if every expert had routes. With few
 * rows memory has nothing else to do meanwhile; what is asked for in vain is little.
 */
GS_DEVICE void ask_for_some(const struct gs_gpu_experts &m, int n_expert, int n_strip, int n_chunk)
{
    int first, n;
    share_of(n_expert * n_strip, gs_block(), gs_n_block(), &first, &n);
    if (lane_of_thread() != 0 || warp_of_thread() >= n)
        return;
    const uint8_t *strip = (const uint8_t *)m.relaid + (int64_t)(first + warp_of_thread()) * n_chunk * CHUNK;
    ask_into_l2(strip, (uint32_t)((n_chunk < ASKED ? n_chunk : ASKED) * CHUNK));
}

/*
 * A matrix of the experts times all routes. row_of(route): the row of x [..][columns] that a route reads.
 * work does a unit: a strip, or one of the SPLIT pieces of its columns. EARLY: the choice lies there before
 * the wait, and only x has to be waited for. Shared: CAPACITY rows, then the rings.
 */
template <int CAPACITY, int SLOTS, int SPLIT, bool EARLY, class RowOf, class Work>
GS_DEVICE void expert_product(const struct gs_gpu_args &args, const struct gs_gpu_experts &m,
                              const uint16_t *x, RowOf row_of, Work work)
{
    extern __shared__ __align__(128) uint8_t dynamic[]; /* staged rows, then the rings */
    GS_SHARED struct routing routing;
    GS_SHARED uint64_t bars[WARPS_E * SLOTS + 1];
    int n_chunk = m.columns / GS_DECODE_EXPERT_COLUMNS, n_strip = m.rows / GS_DECODE_STRIP;
    uint32_t stride = (uint32_t)gs_batch_row_stride(m.columns), rows = shared_address(dynamic);
    uint32_t staged = shared_address(&bars[WARPS_E * SLOTS]);
    if (gs_thread() == 0) {
        for (int i = 0; i <= WARPS_E * SLOTS; i++)
            barrier_init(shared_address(&bars[i]));
        barrier_init_fence();
    }
    if (!EARLY) {
        if (CAPACITY <= 8)
            ask_for_some(m, args.dims.n_expert, n_strip, n_chunk);
        gs_wait_for_previous();
    }
    gs_let_next_start();
    if (CAPACITY <= 8)
        sort_few(args, &routing);
    else
        sort_many<CAPACITY>(args, &routing);
    int of_part = n_strip * SPLIT, begin, count_units;
    share_of(routing.n_part * of_part, gs_block(), gs_n_block(), &begin, &count_units);
    int end = begin + count_units, mine = begin + warp_of_thread();
    struct feed feed = {(const uint8_t *)m.relaid, &routing, n_strip, n_chunk, SPLIT, mine, end, NULL, 0};
    struct ring<SLOTS> ring;
    ring.slot = rows + CAPACITY * stride + (uint32_t)(warp_of_thread() * SLOTS * CHUNK);
    ring.end = ring.slot + SLOTS * CHUNK;
    ring.bar = shared_address(&bars[warp_of_thread() * SLOTS]);
    ring.phase = 0;
    ring.policy = policy_read_once();
    if (lane_of_thread() == 0 && feed.more()) {
        feed.enter();
        for (int i = 0; i < SLOTS && feed.more(); i++)
            copy_start_once(ring.slot + (uint32_t)(i * CHUNK), feed.next(), CHUNK, ring.bar + 8 * (uint32_t)i,
                            ring.policy);
    }
    if (EARLY)
        gs_wait_for_previous();
    uint32_t phase = 0;
    for (int unit = begin; unit < end;) {
        int part0 = unit / of_part, part = part0, n_row = 0, stop = unit;
        for (; stop < end; part++) {
            int n = routing.part_count[part];
            if (n_row + n > CAPACITY)
                break;
            n_row += n;
            stop = (part + 1) * of_part < end ? (part + 1) * of_part : end;
        }
        if (warp_of_thread() == 0) { /* parts follow each other in routes */
            int at = routing.part_at[part0];
            if (lane_of_thread() == 0)
                expect_bytes(staged, (uint32_t)(n_row * m.columns * 2));
            __syncwarp();
            if (lane_of_thread() < n_row)
                copy_rows(rows + (uint32_t)lane_of_thread() * stride,
                          x + (int64_t)row_of(routing.routes[at + lane_of_thread()]) * m.columns,
                          (uint32_t)m.columns * 2, staged);
        }
        uint32_t ready = after_wait(staged, phase, rows);
        phase ^= 1;
        for (; mine < stop; mine += WARPS_E) {
            int p = mine / of_part, piece = mine % SPLIT;
            int first = n_chunk * piece / SPLIT, n = n_chunk * (piece + 1) / SPLIT - first;
            int offset = routing.part_at[p] - routing.part_at[part0];
            uint32_t from = ready + (uint32_t)offset * stride + (uint32_t)(first * CHUNK_BLOCKS) * 64;
            work(ring, feed, n, from, stride, routing.part_count[p], routing.part_expert[p],
                 mine % of_part / SPLIT, piece, routing.routes + routing.part_at[p]);
        }
        unit = stop;
        if (unit < end)
            gs_sync();
    }
}

/* activated[route] of a strip's 8 units = swiglu, bfloat16 times 2^64. */
template <int SLOTS, int TILES>
GS_DEVICE void gate_up_unit(const struct gs_gpu_args &args, struct ring<SLOTS> &ring, struct feed &feed,
                            int n, uint32_t x, uint32_t stride, int count, int expert, int strip,
                            const int32_t *routes)
{
    int g = lane_of_thread() / 4, q = lane_of_thread() % 4, unit = strip * 8 + g;
    const float *bias = args.w.gate_up.bias + (int64_t)expert * args.w.gate_up.rows + 2 * unit;
    float gate_bias = __ldg(bias), up_bias = __ldg(bias + 1), sum[TILES][4];
    float limit = args.dims.swiglu_limit, alpha = args.dims.swiglu_alpha;
    stream_unit<SLOTS, TILES>(ring, feed, n, x, stride, count, sum);
    uint16_t *activated = activated_of(args) + unit;
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int at = t * 8 + 2 * q + i;
            if (at >= count)
                continue;
            float gate = sum[t][i] * RESULT_SCALE + gate_bias, up = sum[t][2 + i] * RESULT_SCALE + up_bias;
            gate = gate > limit ? limit : gate;
            up = up > limit ? limit : up < -limit ? -limit : up;
            float value = (up + 1.0f) * (gate * (1.0f / (1.0f + gs_exp(-(gate * alpha)))));
            activated[(int64_t)routes[at] * args.dims.d_ff] = gs_bf16_of_float(value * EXPERT_SCALE);
        }
}

/* expert_out[piece][route] of a strip, with the bias in the first piece. */
template <int SLOTS, int TILES>
GS_DEVICE void down_unit(const struct gs_gpu_args &args, struct ring<SLOTS> &ring, struct feed &feed, int n,
                         uint32_t x, uint32_t stride, int count, int expert, int strip, int piece,
                         const int32_t *routes)
{
    int g = lane_of_thread() / 4, q = lane_of_thread() % 4, d = args.dims.d_model;
    int row = strip * GS_DECODE_STRIP + g;
    const float *bias = args.w.down.bias + (int64_t)expert * d + row;
    float bias0 = piece == 0 ? __ldg(bias) : 0.0f, bias1 = piece == 0 ? __ldg(bias + 8) : 0.0f, sum[TILES][4];
    stream_unit<SLOTS, TILES>(ring, feed, n, x, stride, count, sum);
    float *out = expert_out_of(args) + (int64_t)piece * args.n_rows * ACTIVE * d + row;
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int at = t * 8 + 2 * q + i;
            if (at >= count)
                continue;
            float *to = out + (int64_t)routes[at] * d;
            to[0] = sum[t][i] * RESULT_SCALE + bias0;
            to[8] = sum[t][2 + i] * RESULT_SCALE + bias1;
        }
}

template <int CAPACITY, int SLOTS> GS_DEVICE void gate_up(const struct gs_gpu_args &args)
{
    expert_product<CAPACITY, SLOTS, 1, false>(
        args, args.w.gate_up, mlp_normed_of(args), [](int route) { return route / ACTIVE; },
        [&](struct ring<SLOTS> &ring, struct feed &feed, int n, uint32_t x, uint32_t stride, int count,
            int expert, int strip, int, const int32_t *routes) {
            if (CAPACITY <= 8 || count <= 8)
                gate_up_unit<SLOTS, 1>(args, ring, feed, n, x, stride, count, expert, strip, routes);
            else if (CAPACITY <= 16 || count <= 16)
                gate_up_unit<SLOTS, 2>(args, ring, feed, n, x, stride, count, expert, strip, routes);
            else
                gate_up_unit<SLOTS, 3>(args, ring, feed, n, x, stride, count, expert, strip, routes);
        });
}

template <int CAPACITY, int SLOTS> GS_DEVICE void down(const struct gs_gpu_args &args)
{
    expert_product<CAPACITY, SLOTS, GS_BATCH_DOWN_PIECES, true>(
        args, args.w.down, activated_of(args), [](int route) { return route; },
        [&](struct ring<SLOTS> &ring, struct feed &feed, int n, uint32_t x, uint32_t stride, int count,
            int expert, int strip, int piece, const int32_t *routes) {
            if (CAPACITY <= 8 || count <= 8)
                down_unit<SLOTS, 1>(args, ring, feed, n, x, stride, count, expert, strip, piece, routes);
            else if (CAPACITY <= 16 || count <= 16)
                down_unit<SLOTS, 2>(args, ring, feed, n, x, stride, count, expert, strip, piece, routes);
            else
                down_unit<SLOTS, 3>(args, ring, feed, n, x, stride, count, expert, strip, piece, routes);
        });
}

/* Up to 8 rows, and more. Grid: a block a multiprocessor. */
GS_KERNEL void GS_BOUNDS(THREADS_E, 2) gs_batch_gate_up_8(GS_ARGS(struct gs_gpu_args, args))
{
    gate_up<GS_BATCH_FEW_ROUTES, GS_BATCH_FEW_SLOTS>(args);
}

GS_KERNEL void GS_BOUNDS(THREADS_E, 1) gs_batch_gate_up_64(GS_ARGS(struct gs_gpu_args, args))
{
    gate_up<GS_BATCH_MANY_ROUTES, GS_BATCH_MANY_SLOTS>(args);
}

GS_KERNEL void GS_BOUNDS(THREADS_E, 2) gs_batch_down_8(GS_ARGS(struct gs_gpu_args, args))
{
    down<GS_BATCH_FEW_ROUTES, GS_BATCH_FEW_SLOTS>(args);
}

GS_KERNEL void GS_BOUNDS(THREADS_E, 1) gs_batch_down_64(GS_ARGS(struct gs_gpu_args, args))
{
    down<GS_BATCH_MANY_ROUTES, GS_BATCH_MANY_SLOTS>(args);
}
