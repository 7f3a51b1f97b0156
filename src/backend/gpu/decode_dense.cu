/*
 * Decode: the stages whose weights are bfloat16. A: norm and q|k|v projection. C: output projection, residual
 * and the router's sums. Head: last norm, logits and argmax. One row a call.
 *
 * Shared memory: rings, then what struct below holds, then the split vector.
 */
#include "backend/gpu/decode_choice.cuh"

#define MAX_SLOTS GS_DECODE_MAX_SLOTS

/* Bounds of A and C: 64 registers a thread, so that B has room beside one of them. */
#define THREADS_64 512

struct dense_shared {
    uint64_t bars[WARPS * MAX_SLOTS + 2];
    float squares[WARPS];
    struct parts parts;
    float values[THREADS]; /* C: this block's rows */
    float logits[WARPS][GS_DECODE_EXPERTS];
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

/* Streams the warp's share and leaves the parts of its strips. */
template <int SLOTS, class Weights>
GS_DEVICE void multiply_share(const struct share *mine, int n_chunk, const struct place *place,
                              uint64_t policy, struct contiguous<Weights::CHUNK> &next)
{
    const int CHUNK = Weights::CHUNK;
    struct dense_shared *block = place->block;
    uint32_t x = operand_of(shared_address(place->vector));
    float c[2][4] = {};
    int segment = 0, chunk = mine->first % n_chunk;
    auto flush = [&](void) {
        float sum[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            sum[j] = c[0][j] + c[1][j];
            c[0][j] = c[1][j] = 0.0f;
        }
        leave_part(&block->parts, segment++, sum);
    };
    stream_run<SLOTS, CHUNK>(place->ring, place->bars, mine->count, policy, next, [&](uint32_t at) {
        Weights::multiply(at, x, 2 * chunk, c);
        if (++chunk == n_chunk) {
            flush();
            chunk = 0;
        }
    });
    if (mine->count == 0)
        leave_nothing(&block->parts);
    else if (chunk > 0)
        flush();
}

/* A: normed hidden -> q|k|v, without bias and rotation, as a pair. Grid: blocks <= strips. */
template <class Weights, int SLOTS> GS_DEVICE void run_qkv(const struct gs_gpu_args &args)
{
    const int CHUNK = Weights::CHUNK;
    struct place place = place_of_warp<SLOTS, CHUNK>();
    struct dense_shared *block = place.block;
    const struct gs_gpu_dims &dims = args.dims;
    const struct gs_decode_layout at = gs_decode_layout_of(&dims);
    const unsigned char *weights = (const unsigned char *)args.w.qkv.relaid;
    uint8_t *base = (uint8_t *)args.s.decode;
    int n_chunk = dims.d_model / GS_DECODE_DENSE_COLUMNS;
    struct share mine = share_of_warp(args.w.qkv.rows / GS_DECODE_STRIP * n_chunk);
    uint64_t policy = policy_read_once();
    struct contiguous<CHUNK> next = {
        weights + (int64_t)mine.first *CHUNK
    };
    stream_prepare<SLOTS>(place.bars);
    stream_fill<CHUNK>(place.ring, place.bars, 0, SLOTS - GS_DECODE_LATE_SLOTS, mine.count, policy, next);
    gs_let_next_start();
    TRACE(1, 0);
    struct norm_weights norm;
    load_norm(&norm, args.w.attention_norm, dims.d_model);
    struct row_place row_place = place_of_row(&block->parts, &mine, n_chunk);
    gs_wait_for_previous();
    TRACE(1, 1);
    struct residual x;
    const float *before = (const float *)(base + at.before);
    float squares = args.layer == 0 ? load_residual<1>(&x, args.s.hidden, dims.d_model)
                                    : load_residual<GS_DECODE_BEFORE>(&x, before, dims.d_model);
    stream_fill<CHUNK>(place.ring, place.bars, SLOTS - GS_DECODE_LATE_SLOTS, SLOTS, mine.count, policy, next);
    store_split(&x, &norm, place.vector, dims.d_model, 1.0f);
    leave_sum(block->squares, squares);
    gs_sync();
    TRACE(1, 2);
    multiply_share<SLOTS, Weights>(&mine, n_chunk, &place, policy, next);
    TRACE(1, 3);
    gs_sync();
    TRACE(1, 6);
    float scale = norm_scale(block->squares, dims);
    /* C, which waits for B, which waits for this, adds to them. */
    if (gs_block() == gs_n_block() - 1)
        clear_router(args, scale);
    float *out = (float *)(base + at.qkv);
    write_pair(row_place, scale, 0.0f, out, out + args.w.qkv.rows, nullptr);
    TRACE(1, 4);
}

/* This block's part of the router's logits: the sum over its rows of value * column. */
GS_DEVICE void add_router(const struct gs_gpu_args &args, struct dense_shared *block, struct rows rows,
                          const float *columns, float unit)
{
    int n = args.dims.n_expert;
    for (int e = lane_of_thread(); e < n; e += 32) {
        float sum = 0.0f;
        for (int i = warp_of_thread(); i < rows.n; i += WARPS)
            sum += block->values[i] * columns[i * n + e];
        block->logits[warp_of_thread()][e] = sum;
    }
    gs_sync();
    for (int e = gs_thread(); e < n; e += THREADS) {
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            sum += block->logits[w][e];
        add_to_router(args, e, sum, unit);
    }
}

/* C: attended -> residual after attention, as a pair; and the router's sums. Grid: blocks <= strips. */
template <class Weights, int SLOTS> GS_DEVICE void run_o(const struct gs_gpu_args &args)
{
    const int CHUNK = Weights::CHUNK;
    struct place place = place_of_warp<SLOTS, CHUNK>();
    struct dense_shared *block = place.block;
    const struct gs_gpu_dims &dims = args.dims;
    const struct gs_decode_layout at = gs_decode_layout_of(&dims);
    const unsigned char *weights = (const unsigned char *)args.w.o.relaid;
    uint8_t *base = (uint8_t *)args.s.decode;
    int n_in = dims.n_head * dims.d_head, n_chunk = n_in / GS_DECODE_DENSE_COLUMNS;
    struct share mine = share_of_warp(dims.d_model / GS_DECODE_STRIP * n_chunk);
    uint64_t policy = policy_read_once();
    struct contiguous<CHUNK> next = {
        weights + (int64_t)mine.first *CHUNK
    };
    stream_prepare<SLOTS>(place.bars);
    stream_fill<CHUNK>(place.ring, place.bars, 0, SLOTS - GS_DECODE_LATE_SLOTS, mine.count, policy, next);
    gs_let_next_start();
    TRACE(3, 0);
    if (gs_thread() == 0) {
        barrier_init(place.vector_bar);
        barrier_init_fence();
    }
    struct rows rows = rows_of_block(&mine, n_chunk);
    struct row_place row_place = place_of_row(&block->parts, &mine, n_chunk);
    float *columns = (float *)(place.vector + n_in * 3 / 2);
    if (gs_thread() == 0) {
        barrier_init(place.vector_bar + 8);
        barrier_init_fence();
        copy_start(shared_address(columns), args.w.router_columns + (int64_t)rows.first * dims.n_expert,
                   (uint32_t)(rows.n * dims.n_expert * 4), place.vector_bar + 8);
    }
    gs_wait_for_previous();
    TRACE(3, 1);
    if (gs_thread() == 0)
        copy_start(shared_address(place.vector), base + at.attended, (uint32_t)n_in * 6, place.vector_bar);
    const float *before = (const float *)(base + at.before);
    float *middle = (float *)(base + at.middle);
    float unit = router_unit(args), add = 0.0f;
    if (row_place.row >= 0 && row_place.starts) {
        int row = row_place.row;
        if (args.layer == 0)
            add = load_fresh(args.s.hidden + row);
        else
#pragma unroll
            for (int v = 0; v < GS_DECODE_BEFORE; v++)
                add += load_fresh(before + v * dims.d_model + row);
        add += args.w.o_bias[row];
    }
    stream_fill<CHUNK>(place.ring, place.bars, SLOTS - GS_DECODE_LATE_SLOTS, SLOTS, mine.count, policy, next);
    gs_sync();
    barrier_wait(place.vector_bar, 0);
    TRACE(3, 2);
    multiply_share<SLOTS, Weights>(&mine, n_chunk, &place, policy, next);
    TRACE(3, 3);
    gs_sync();
    TRACE(3, 6);
    write_pair(row_place, 1.0f, add, middle, middle + dims.d_model, block->values);
    barrier_wait(place.vector_bar + 8, 0);
    gs_sync();
    add_router(args, block, rows, columns, unit);
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
