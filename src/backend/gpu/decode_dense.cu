/*
 * Decode: the stages whose weights are bfloat16. A: norm and q|k|v projection. C: output projection, residual
 * and the router's sums. Head: last norm, logits and argmax. One row a call.
 *
 * Shared memory: rings, then what struct below holds, then the split vector.
 */
#include "backend/gpu/decode_choice.cuh"

#define MAX_SLOTS  GS_DECODE_MAX_SLOTS
/* Bounds of A and C: 64 registers a thread, so that B has room beside one of them. */
#define THREADS_64 512

/* C's share of the router's logits, which it adds when its stream is through. */
struct router_end {
    long long *sums;
    uint32_t columns; /* address: [n_row][n_expert] float */
    int32_t n_row, n_expert;
    float unit;
};

struct dense_shared {
    uint64_t bars[WARPS * MAX_SLOTS + 2];
    float squares[WARPS];
    struct parts parts;
    float values[THREADS]; /* C: this block's rows */
    union {
        struct u32x4 later[THREADS]; /* a thread's struct row_end */
        float logits[WARPS][GS_DECODE_EXPERTS];
    };
    struct router_end router; /* C */
    float scale;              /* A: the norm's factor */
    struct norm_kept norm;
    unsigned long long best[WARPS];
};

static_assert(sizeof(struct dense_shared) <= GS_DECODE_BLOCK_SHARED, "the launch reserves less");

extern __shared__ __align__(128) unsigned char shared[];

/* Where a block's and a warp's things lie. */
struct place {
    struct dense_shared *block;
    uint32_t *vector;
    uint32_t ring, bars, vector_bar;
};

template <int SLOTS, int CHUNK> GS_DEVICE struct place place_of_warp(void)
{
    struct place p;
    p.block = (struct dense_shared *)(shared + WARPS * SLOTS * CHUNK);
    p.vector = (uint32_t *)(shared + WARPS * SLOTS * CHUNK + GS_DECODE_BLOCK_SHARED);
    p.ring = shared_address(shared) + (uint32_t)warp_of_thread() * SLOTS * CHUNK;
    p.bars = shared_address(p.block->bars + warp_of_thread() * MAX_SLOTS);
    p.vector_bar = shared_address(p.block->bars + WARPS * MAX_SLOTS);
    return p;
}

/* A matrix whose chunks the warps of all blocks share. */
template <class Weights, int SLOTS> struct dense_stream {
    struct place place;
    struct share mine;
    struct contiguous<Weights::CHUNK> next;
    uint64_t policy;
    int n_chunk; /* of a strip */

    __device__ __forceinline__ void fill(int from, int to)
    {
        stream_fill<Weights::CHUNK>(place.ring, place.bars, from, to, mine.count, policy, next);
    }
};

/* All slots but `late` are asked for at once. */
template <class Weights, int SLOTS>
GS_DEVICE void open_stream(struct dense_stream<Weights, SLOTS> *s, const struct gs_gpu_matrix &m, int late)
{
    s->place = place_of_warp<SLOTS, Weights::CHUNK>();
    s->n_chunk = m.columns / GS_DECODE_DENSE_COLUMNS;
    s->mine = share_of_warp(m.rows / GS_DECODE_STRIP * s->n_chunk);
    s->policy = policy_read_once();
    s->next.at = (const uint8_t *)m.relaid + (int64_t)s->mine.first * Weights::CHUNK;
    stream_prepare<SLOTS>(s->place.bars);
    s->fill(0, SLOTS - late);
}

/* Streams the warp's share and leaves the parts of its strips. */
template <class Weights, int SLOTS> GS_DEVICE void multiply_share(struct dense_stream<Weights, SLOTS> *s)
{
    const struct share *mine = &s->mine;
    struct dense_shared *block = s->place.block;
    uint32_t x = operand_of(shared_address(s->place.vector));
    float c[2][4] = {};
    int segment = 0, n_chunk = s->n_chunk, chunk = mine->first % n_chunk;
    auto flush = [&](void) {
        float sum[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            sum[j] = c[0][j] + c[1][j];
            c[0][j] = c[1][j] = 0.0f;
        }
        leave_part(&block->parts, segment++, sum);
    };
    auto work = [&](uint32_t at) {
        Weights::multiply(at, x, 2 * chunk, c);
        if (++chunk == n_chunk) {
            flush();
            chunk = 0;
        }
    };
    stream_run<SLOTS, Weights::CHUNK>(s->place.ring, s->place.bars, mine->count, s->policy, s->next, work);
    if (mine->count == 0)
        leave_nothing(&block->parts);
    else if (chunk > 0)
        flush();
}

/* A: normed hidden -> q|k|v, without bias and rotation, as a pair. Grid: blocks <= strips. */
template <class Weights, int SLOTS> GS_DEVICE void run_qkv(const struct gs_gpu_args &args)
{
    const struct gs_gpu_dims &dims = args.dims;
    const struct gs_decode_layout at = gs_decode_layout_of(&dims);
    uint8_t *base = (uint8_t *)args.s.decode;
    struct dense_stream<Weights, SLOTS> stream;
    open_stream(&stream, args.w.qkv, GS_DECODE_LATE_SLOTS);
    gs_let_next_start();
    struct dense_shared *block = stream.place.block;
    TRACE(1, 0);
    struct norm_weights norm;
    load_norm(&norm, args.w.attention_norm, dims.d_model);
    uint32_t later = shared_address(block->later + gs_thread());
    float *out = (float *)(base + at.qkv);
    bool has_row = gs_thread() < rows_of_block(&stream.mine, stream.n_chunk).n;
    if (has_row)
        keep_row(later, end_of_row(place_of_row(&block->parts, &stream.mine, stream.n_chunk), out,
                                   out + args.w.qkv.rows));
    if (gs_thread() == 0)
        keep_norm(&block->norm, dims);
    gs_wait_for_previous();
    TRACE(1, 1);
    struct residual x;
    const float *before = (const float *)(base + at.before);
    float squares = load_residual<GS_DECODE_BEFORE>(&x, args.layer == 0 ? args.s.hidden : before,
                                                    dims.d_model, args.layer == 0 ? 1 : GS_DECODE_BEFORE);
    stream.fill(SLOTS - GS_DECODE_LATE_SLOTS, SLOTS);
    store_split(&x, &norm, stream.place.vector, dims.d_model, 1.0f);
    leave_sum(block->squares, squares);
    gs_sync();
    TRACE(1, 2);
    if (warp_of_thread() == WARPS - 1) {
        float scale = norm_scale_kept(block->squares, &block->norm);
        block->scale = scale;
        /* C, which waits for B, which waits for this, adds to them. */
        if (gs_block() == gs_n_block() - 1)
            clear_router(args, scale);
    }
    multiply_share(&stream);
    TRACE(1, 3);
    gs_sync();
    TRACE(1, 6);
    if (has_row)
        write_row<6>(recall_row(later), load_shared_float(shared_address(&block->scale)), 0.0f);
    TRACE(1, 4);
}

/*
 * A block's rows of C from their parts; and its part of the router's logits, the sum over its rows of value *
 * column. `block` is the address of its struct dense_shared.
 */
#define ROWS_AT_ONCE 4
GS_DEVICE void finish_o(uint32_t block, float add)
{
    const uint32_t values = block + (uint32_t)offsetof(struct dense_shared, values);
    const uint32_t logits = block + (uint32_t)offsetof(struct dense_shared, logits);
    const uint32_t router = block + (uint32_t)offsetof(struct dense_shared, router);
    uint32_t lane = (uint32_t)lane_of_thread(), warp = (uint32_t)warp_of_thread(),
             thread = (uint32_t)gs_thread();
    const struct u32x4 r = load_shared_16(router);
    uint32_t n_row = r.w;
    if (thread < n_row) {
        struct row_end end = recall_row(block + (uint32_t)offsetof(struct dense_shared, later) + 16 * thread);
        store_shared_float(values + 4 * thread, write_row<WARPS - 1>(end, 1.0f, add));
    }
    uint32_t n = load_shared_4(router + 16), columns = r.z;
    gs_sync();
#pragma unroll 1
    for (uint32_t e = lane; e < n; e += 32) {
        float sum = 0.0f;
#pragma unroll 1
        for (uint32_t first = warp; first < n_row; first += ROWS_AT_ONCE * WARPS) {
#pragma unroll
            for (uint32_t k = 0; k < ROWS_AT_ONCE; k++) {
                uint32_t i = first + k * WARPS;
                if (i < n_row)
                    sum += load_shared_float(values + 4 * i) * load_shared_float(columns + 4 * (i * n + e));
            }
        }
        store_shared_float(logits + 4 * (warp * GS_DECODE_EXPERTS + e), sum);
    }
    gs_sync();
    if (thread >= n)
        return;
    float sum = 0.0f;
#pragma unroll
    for (uint32_t w = 0; w < WARPS; w++)
        sum += load_shared_float(logits + 4 * (w * GS_DECODE_EXPERTS + thread));
    long long units = router_units(sum, load_shared_float(router + 20));
    add_units((long long *)((uint64_t)r.y << 32 | r.x) + thread, units);
}

/* C: attended -> residual after attention, as a pair; and the router's sums. Grid: blocks <= strips. */
template <class Weights, int SLOTS> GS_DEVICE void run_o(const struct gs_gpu_args &args)
{
    const struct gs_gpu_dims &dims = args.dims;
    const struct gs_decode_layout at = gs_decode_layout_of(&dims);
    uint8_t *base = (uint8_t *)args.s.decode;
    struct dense_stream<Weights, SLOTS> stream;
    open_stream(&stream, args.w.o, GS_DECODE_LATE_SLOTS);
    gs_let_next_start();
    const struct place &place = stream.place;
    struct dense_shared *block = place.block;
    uint32_t vector_bytes = (uint32_t)dims.n_head * (uint32_t)dims.d_head * 6;
    TRACE(3, 0);
    struct rows rows = rows_of_block(&stream.mine, stream.n_chunk);
    float *middle = (float *)(base + at.middle), add = 0.0f;
    int row = -1; /* whose residual the thread adds */
    if (gs_thread() < rows.n) {
        struct row_place row_place = place_of_row(&block->parts, &stream.mine, stream.n_chunk);
        keep_row(shared_address(block->later + gs_thread()),
                 end_of_row(row_place, middle, middle + dims.d_model));
        row = row_place.starts ? row_place.row : -1;
        add = row >= 0 ? args.w.o_bias[row] : 0.0f;
    }
    float *columns = (float *)(place.vector + vector_bytes / 4);
    if (gs_thread() == 0) {
        barrier_init(place.vector_bar);
        barrier_init(place.vector_bar + 8);
        barrier_init_fence();
        copy_start(shared_address(columns), args.w.router_columns + (int64_t)rows.first * dims.n_expert,
                   (uint32_t)(rows.n * dims.n_expert * 4), place.vector_bar + 8);
        block->router.sums = router_sums_of_block(args);
        block->router.columns = shared_address(columns);
        block->router.n_row = rows.n, block->router.n_expert = dims.n_expert;
    }
    gs_wait_for_previous();
    TRACE(3, 1);
    if (gs_thread() == 0)
        copy_start(shared_address(place.vector), base + at.attended, vector_bytes, place.vector_bar);
    const float *before = args.layer == 0 ? args.s.hidden : (const float *)(base + at.before);
    float unit = load_fresh_if(gs_thread() == 0, router_unit_at(args)), residual[GS_DECODE_BEFORE];
#pragma unroll
    for (int v = 0; v < GS_DECODE_BEFORE; v++)
        residual[v] = load_fresh_if(row >= 0 && (v == 0 || args.layer > 0), before + v * dims.d_model + row);
    stream.fill(SLOTS - GS_DECODE_LATE_SLOTS, SLOTS);
    gs_sync();
    barrier_wait(place.vector_bar, 0);
    TRACE(3, 2);
#pragma unroll
    for (int v = 0; v < GS_DECODE_BEFORE; v++)
        add += residual[v];
    multiply_share(&stream);
    TRACE(3, 3);
    if (gs_thread() == 0)
        block->router.unit = unit;
    gs_sync();
    TRACE(3, 6);
    barrier_wait(place.vector_bar + 8, 0);
    finish_o(shared_address(block), add);
    TRACE(3, 4);
}

/* Head: the last residual -> logits and argmax. A warp has whole strips. GROUP chunks are copied at once. */
template <class Weights, int SLOTS, int GROUP> GS_DEVICE void run_head(const struct gs_gpu_args &args)
{
    const int CHUNK = GROUP * Weights::CHUNK;
    struct place place = place_of_warp<SLOTS, CHUNK>();
    struct dense_shared *block = place.block;
    const struct gs_gpu_dims &dims = args.dims;
    const struct gs_decode_layout at = gs_decode_layout_of(&dims);
    const unsigned char *weights = (const unsigned char *)args.outer.relaid;
    uint8_t *base = (uint8_t *)args.s.decode;
    int n_chunk = dims.d_model / (GROUP * GS_DECODE_DENSE_COLUMNS), strip0, n_strip;
    share_of(dims.n_vocab / GS_DECODE_STRIP, gs_block() * WARPS + warp_of_thread(), gs_n_block() * WARPS,
             &strip0, &n_strip);
    int first = strip0 * n_chunk, count = n_strip * n_chunk;
    uint64_t policy = policy_read_once();
    struct contiguous<CHUNK> next = {
        weights + (int64_t)first *CHUNK
    };
    stream_prepare<SLOTS>(place.bars);
    stream_fill<CHUNK>(place.ring, place.bars, 0, SLOTS, count, policy, next);
    gs_let_next_start();
    struct norm_weights norm;
    load_norm(&norm, args.norm, dims.d_model);
    gs_wait_for_previous();
    struct residual x;
    const float *before = (const float *)(base + at.before);
    float squares = load_residual<GS_DECODE_BEFORE>(&x, before, dims.d_model);
    store_split(&x, &norm, place.vector, dims.d_model, 1.0f);
    leave_sum(block->squares, squares);
    gs_sync();
    float scale = norm_scale(block->squares, dims);
    uint32_t operand = operand_of(shared_address(place.vector));
    int row_of_logits = __ldcg(&args.s.rows[0].logit_row), lane = lane_of_thread(), strip = strip0, chunk = 0;
    float *logits = args.s.logits + (int64_t)(row_of_logits > 0 ? row_of_logits : 0) * dims.n_vocab;
    unsigned long long best = 0;
    float c[2][4] = {};
    stream_run<SLOTS, CHUNK>(place.ring, place.bars, count, policy, next, [&](uint32_t slot) {
#pragma unroll
        for (int i = 0; i < GROUP; i++)
            Weights::multiply(slot + i * Weights::CHUNK, operand, 2 * (GROUP * chunk + i), c);
        if (++chunk < n_chunk)
            return;
        float sum[4], rows[2];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            sum[j] = c[0][j] + c[1][j];
            c[0][j] = c[1][j] = 0.0f;
        }
        add_columns(sum, rows);
        float value = (lane % 4 == 0 ? rows[0] : rows[1]) * scale;
        int row = strip * GS_DECODE_STRIP + lane / 4 + (lane % 4 == 0 ? 0 : 8);
        if (lane % 4 < 2 && row_of_logits >= 0) {
            logits[row] = value;
            uint64_t packed = gs_gpu_pack_argmax(gs_bits_of_float(value), (uint32_t)row);
            best = packed > best ? packed : best;
        }
        chunk = 0;
        strip++;
    });
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
        unsigned long long other = __shfl_xor_sync(0xffffffffu, best, mask);
        best = other > best ? other : best;
    }
    if (lane == 0)
        block->best[warp_of_thread()] = best;
    gs_sync();
    if (gs_thread() == 0 && row_of_logits >= 0) {
        for (int w = 1; w < WARPS; w++)
            best = block->best[w] > best ? block->best[w] : best;
        gs_atomic_max_u64(args.s.argmax + row_of_logits, best);
    }
}

GS_KERNEL void GS_BOUNDS(THREADS_64, 2) gs_decode_qkv(GS_ARGS(struct gs_gpu_args, args))
{
    run_qkv<struct weights_bf16, GS_DECODE_QKV_SLOTS>(args);
}

GS_KERNEL void GS_BOUNDS(THREADS_64, 2) gs_decode_qkv_q8(GS_ARGS(struct gs_gpu_args, args))
{
    run_qkv<struct weights_q8, GS_DECODE_Q8_SLOTS>(args);
}

GS_KERNEL void GS_BOUNDS(THREADS_64, 2) gs_decode_o(GS_ARGS(struct gs_gpu_args, args))
{
    run_o<struct weights_bf16, GS_DECODE_O_SLOTS>(args);
}

GS_KERNEL void GS_BOUNDS(THREADS_64, 2) gs_decode_o_q8(GS_ARGS(struct gs_gpu_args, args))
{
    run_o<struct weights_q8, GS_DECODE_Q8_SLOTS>(args);
}

GS_KERNEL void GS_BOUNDS(THREADS, 2) gs_decode_head(GS_ARGS(struct gs_gpu_args, args))
{
    run_head<struct weights_bf16, GS_DECODE_HEAD_SLOTS, 1>(args);
}

GS_KERNEL void GS_BOUNDS(THREADS, 2) gs_decode_head_q8(GS_ARGS(struct gs_gpu_args, args))
{
    run_head<struct weights_q8, GS_DECODE_Q8_HEAD_SLOTS, GS_DECODE_Q8_HEAD_GROUP>(args);
}
