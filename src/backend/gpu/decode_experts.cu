/*
 * Decode: the stages of the active experts, MXFP4. E: choice, gate and up rows of the four experts as one
 * sequence of strips, clamped SwiGLU. F: down rows; the four experts' chunks of a strip follow each other, so
 * that their sum is made in ascending order of the expert. One row a call.
 *
 * E knows its weights only after the router. F starts its copies while E runs: E lets F start only after the
 * router's sums are complete, and F makes the choice anew.
 */
#include "backend/gpu/decode_choice.cuh"

#define CHUNK    GS_DECODE_EXPERT_CHUNK
#define PER_PART (ACTIVE / GS_DECODE_DOWN_PARTS) /* experts of a block of F */

/* Activations are multiplied by 2^64 before they are split, codes are read as value * 2^-126. */
#define ACTIVATION_SCALE 0x1p64f
#define RESULT_SCALE     0x1p62f

#define PIECE (GS_DECODE_EXPERT_COLUMNS * 6) /* bytes: activations of a chunk */

#define MAX_SLOTS GS_DECODE_MAX_SLOTS

struct expert_shared {
    uint64_t bars[WARPS * MAX_SLOTS + 64]; /* rings, then F's vectors */
    struct parts parts;
    float weights[WARPS][ACTIVE]; /* F: of the experts; each warp its own */
    struct choice_shared choice;
    struct u32x4 later[THREADS]; /* E: what a thread has found out before it waits, for after the stream */
};
static_assert(sizeof(struct expert_shared) <= GS_DECODE_BLOCK_SHARED, "the launch reserves less");

extern __shared__ __align__(128) unsigned char shared[];

/* ---------------------------------------------------------------- E */

/* A unit's activation to its place in the split vector, as the down projection wants it. */
GS_DEVICE void store_activation(uint8_t *activated, int d_ff, int slot, int unit, float value)
{
    uint16_t *to = (uint16_t *)activated + (int64_t)slot * 3 * d_ff + unit / 32 * 96 + unit % 32;
    value *= ACTIVATION_SCALE;
#pragma unroll
    for (int k = 0; k < 3; k++) {
        uint16_t term = (uint16_t)pack_bf16(value, 0.0f);
        to[32 * k] = term;
        value -= gs_float_of_bf16(term);
    }
}

GS_DEVICE float swiglu(const struct gs_gpu_dims &dims, float gate, float up)
{
    float limit = dims.swiglu_limit;
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : up < -limit ? -limit : up;
    return (up + 1.0f) * __fdividef(gate, 1.0f + gs_exp(-dims.swiglu_alpha * gate));
}

/*
 * A warp's chunks: one after another until an expert ends, which happens once at most: a warp's share is less
 * than an expert. The first ones of a ring are asked for by a lane each, as soon as the choice is known.
 */
struct gate_up_chunks {
    const uint8_t *at, *then; /* then: the next expert's first */
    int slot, left, matrix;   /* chunks of an expert */

    /* What does not depend on the choice. */
    __device__ __forceinline__ void seek(const uint8_t *weights, int chunk, int chunks)
    {
        matrix = chunks;
        slot = (chunk >= matrix) + (chunk >= 2 * matrix) + (chunk >= 3 * matrix);
        left = (slot + 1) * matrix - chunk;
        at = weights + (int64_t)(matrix - left) * CHUNK;
        then = weights;
    }

    __device__ __forceinline__ void choose(const struct route *route)
    {
        uint32_t bytes = (uint32_t)(matrix * CHUNK);
        at += (uint64_t)of_slot(route, slot) * bytes;
        then += (uint64_t)of_slot(route, (slot + 1) % ACTIVE) * bytes;
    }

    __device__ __forceinline__ const uint8_t *operator()()
    {
        const uint8_t *chunk = at;
        at += CHUNK;
        if (--left == 0)
            at = then;
        return chunk;
    }
};

/* The unit that a thread finishes: of which of the four experts, and where its parts lie. */
struct unit {
    int slot, unit, chunk; /* chunk: the warp's first of a strip */
    struct part_place parts;
};

/* Found before the wait and kept in memory: the compiler would compute it anew where it is wanted. */
GS_DEVICE void keep_unit(uint32_t later, const struct unit &u)
{
    store_shared_16(later, (uint32_t)u.slot << 24 | (uint32_t)u.unit << 4 | (uint32_t)u.parts.n,
                    u.parts.first, u.parts.others, (uint32_t)u.chunk);
}

GS_DEVICE struct unit recall_unit(uint32_t later)
{
    const struct u32x4 kept = load_shared_16(later);
    struct unit u;
    u.slot = (int)(kept.x >> 24), u.unit = (int)(kept.x >> 4 & 0xfffffu), u.chunk = (int)kept.w;
    u.parts.n = (int)(kept.x & 15u), u.parts.first = kept.y, u.parts.others = kept.z;
    return u;
}

GS_DEVICE void finish_unit(const struct gs_gpu_args &args, const struct expert_shared *block,
                           const struct unit &u, float2 bias)
{
    const struct gs_gpu_dims &dims = args.dims;
    uint8_t *activated = (uint8_t *)args.s.decode + gs_decode_layout_of(&dims).activated;
    float factor = RESULT_SCALE * norm_scale(block->choice.squares, dims);
    float gate = add_parts(u.parts, gs_thread() % 8) * factor + bias.x;
    float up = add_parts(u.parts, gs_thread() % 8 + 8) * factor + bias.y;
    store_activation(activated, dims.d_ff, u.slot, u.unit, swiglu(dims, gate, up));
}

/* E: residual after attention -> four split vectors of activations. Every block has whole strips. */
template <int LANE> GS_DEVICE void run_gate_up(const struct gs_gpu_args &args)
{
    const int SLOTS = GS_DECODE_GATE_UP_SLOTS;
    struct expert_shared *block = (struct expert_shared *)(shared + WARPS * SLOTS * CHUNK);
    uint32_t *vector = (uint32_t *)(shared + WARPS * SLOTS * CHUNK + GS_DECODE_BLOCK_SHARED);
    const struct gs_gpu_dims &dims = args.dims;
    const uint8_t *weights = (const uint8_t *)args.w.gate_up.relaid;
    int n_chunk = dims.d_model / GS_DECODE_EXPERT_COLUMNS, n_strip = 2 * dims.d_ff / GS_DECODE_STRIP;
    int strip0, strips, lane = lane_of_thread();
    share_of(ACTIVE * n_strip, gs_block(), gs_n_block(), &strip0, &strips);
    struct share mine; /* of the block's chunks */
    mine.block_first = 0, mine.block_count = strips * n_chunk;
    share_of(mine.block_count, warp_of_thread(), WARPS, &mine.first, &mine.count);
    uint32_t ring = shared_address(shared) + (uint32_t)warp_of_thread() * SLOTS * CHUNK;
    uint32_t bars = shared_address(block->bars + warp_of_thread() * MAX_SLOTS);
    uint64_t policy = policy_read_once();
    TRACE(4, 0);
    struct norm_weights norm;
    load_norm(&norm, args.w.mlp_norm, dims.d_model);
    struct router_lane<LANE> router;
    router.early(args.w.router_bias, dims.n_expert);

    int sequence = strip0 * n_chunk + mine.first, matrix = n_strip * n_chunk;
    struct gate_up_chunks early, next; /* early: a lane's slot */
    early.seek(weights, sequence + (lane < SLOTS ? lane : 0), matrix);
    next.seek(weights, sequence + SLOTS, matrix);
    bool asks = lane < SLOTS && lane < mine.count;
    if (lane < SLOTS) {
        barrier_init(bars + 8 * lane);
        barrier_init_fence();
    }
    __syncwarp();
    if (asks)
        copy_announce(CHUNK, bars + 8 * (uint32_t)lane);
    bool has_unit = gs_thread() < strips * 8;
    int global_unit = strip0 * 8 + (has_unit ? gs_thread() : 0);
    uint32_t later = shared_address(block->later + gs_thread());
    struct unit unit;
    unit.slot = global_unit / dims.d_ff, unit.unit = global_unit - unit.slot * dims.d_ff;
    unit.chunk = mine.first % n_chunk;
    unit.parts = parts_of_strip(&block->parts, &mine, n_chunk, has_unit ? gs_thread() / 8 : 0);
    keep_unit(later, unit);
    struct route route;
    struct residual x;
    __syncwarp();
    gs_wait_for_previous();
    TRACE(4, 1);
    choose_from(args, &x, router, &block->choice, &route);
    early.choose(&route);
    if (asks)
        copy_announced_once(ring + (uint32_t)lane * CHUNK, early.at, CHUNK, bars + 8 * (uint32_t)lane,
                            policy);
    TRACE(4, 5);
    unit = recall_unit(later);
    float2 bias = make_float2(0.0f, 0.0f);
    if (has_unit)
        bias =
            *(const float2 *)(args.w.gate_up.bias +
                              (of_slot(&route, unit.slot) * (uint32_t)dims.d_ff + (uint32_t)unit.unit) * 2);
    next.choose(&route);
    store_split(&x, &norm, vector, dims.d_model, ACTIVATION_SCALE);
    gs_sync();

    TRACE(4, 2);
    uint32_t operand = operand_of(shared_address(vector));
    int chunk = unit.chunk, segment = 0;
    float sum[4] = {};
    int until_go = GS_DECODE_GO_AFTER;
    stream_run<SLOTS, CHUNK>(ring, bars, mine.count, policy, next, [&](uint32_t slot) {
        multiply_experts(slot, operand, 6 * chunk, sum);
        if (--until_go == 0)
            gs_let_next_start();
        if (++chunk < n_chunk)
            return;
        leave_part(&block->parts, segment++, sum);
        sum[0] = sum[1] = sum[2] = sum[3] = 0.0f;
        chunk = 0;
    });
    if (mine.count == 0)
        leave_nothing(&block->parts);
    else if (chunk > 0)
        leave_part(&block->parts, segment, sum);
    TRACE(4, 3);
    gs_sync();
    TRACE(4, 6);
    if (has_unit)
        finish_unit(args, block, recall_unit(later), bias);
    if (gs_block() == 0 && warp_of_thread() == WARPS - 1)
        publish_choice(args, &route);
    TRACE(4, 4);
}

GS_KERNEL void GS_BOUNDS(THREADS, 2) gs_decode_gate_up(GS_ARGS(struct gs_gpu_args, args))
{
    if (args.dims.n_expert <= 32)
        run_gate_up<1>(args);
    else
        run_gate_up<ROUTER_LANE>(args);
}

/* ---------------------------------------------------------------- F */

/* A warp's chunks: those of a strip of the first expert, then of the same strip of the second, ... */
struct down_chunks {
    const uint8_t *weights, *at;
    const struct route *route;
    int strip, slot, left, n_chunk, n_strip, slot0;

    __device__ __forceinline__ void set(int chunk)
    {
        left = n_chunk - chunk;
        at = weights + (uint64_t)((of_slot(route, slot0 + slot) * (uint32_t)n_strip + (uint32_t)strip) *
                                      (uint32_t)n_chunk +
                                  (uint32_t)chunk) *
                           CHUNK;
    }

    __device__ __forceinline__ void seek(int sequence)
    {
        strip = sequence / (PER_PART * n_chunk);
        sequence -= strip * (PER_PART * n_chunk);
        slot = sequence / n_chunk;
        set(sequence - slot * n_chunk);
    }

    __device__ __forceinline__ const uint8_t *operator()()
    {
        const uint8_t *chunk = at;
        at += CHUNK;
        if (--left == 0) {
            if (++slot == PER_PART) {
                slot = 0;
                strip++;
            }
            set(0);
        }
        return chunk;
    }
};

/* F: activations -> residual before the next layer, as a pair. Grid: blocks <= strips. */
template <int LANE> GS_DEVICE void run_down(const struct gs_gpu_args &args)
{
    const int SLOTS = GS_DECODE_DOWN_SLOTS;
    struct expert_shared *block = (struct expert_shared *)(shared + WARPS * SLOTS * CHUNK);
    uint32_t *vectors = (uint32_t *)(shared + WARPS * SLOTS * CHUNK + GS_DECODE_BLOCK_SHARED);
    const struct gs_gpu_dims &dims = args.dims;
    const struct gs_decode_layout at = gs_decode_layout_of(&dims);
    const uint8_t *weights = (const uint8_t *)args.w.down.relaid;
    uint8_t *base = (uint8_t *)args.s.decode;
    int n_chunk = dims.d_ff / GS_DECODE_EXPERT_COLUMNS, n_strip = dims.d_model / GS_DECODE_STRIP;
    int blocks = gs_n_block() / GS_DECODE_DOWN_PARTS, part = gs_block() / blocks, slot0 = part * PER_PART;
    int n_piece = PER_PART * n_chunk, lane = lane_of_thread();
    struct share mine = share_among(n_strip * n_piece, gs_block() - part * blocks, blocks);
    uint32_t ring = shared_address(shared) + (uint32_t)warp_of_thread() * SLOTS * CHUNK;
    uint32_t bars = shared_address(block->bars + warp_of_thread() * MAX_SLOTS);
    uint32_t vector_bars = shared_address(block->bars + WARPS * MAX_SLOTS);
    uint64_t policy = policy_read_once();
    TRACE(5, 0);

    struct router_lane<LANE> router;
    router.early(args.w.router_bias, dims.n_expert);
    stream_prepare<SLOTS>(bars);
    if (gs_thread() < n_piece) {
        barrier_init(vector_bars + 8 * (uint32_t)gs_thread());
        barrier_init_fence();
    }
    gs_sync();
    /* What C wrote is complete: E, which has let this kernel start, waited for it. */
    struct residual x;
    struct route route;
    const float *middle = (const float *)(base + at.middle);
    choose_from(args, &x, router, &block->choice, &route);
    struct down_chunks next;
    next.weights = weights;
    next.route = &route;
    next.n_chunk = n_chunk, next.n_strip = n_strip, next.slot0 = slot0;
    next.seek(mine.first);
    stream_fill<CHUNK>(ring, bars, 0, SLOTS, mine.count, policy, next);
    gs_let_next_start();
    leave_weights(block->weights[warp_of_thread()], &route);
    const float *weights_of = block->weights[warp_of_thread()];
    TRACE(5, 5);
    struct row_place place = place_of_row(&block->parts, &mine, n_piece);
    float add = 0.0f;
    if (part == 0 && place.row >= 0) {
        int row = place.row;
        add = load_fresh(middle + row) + load_fresh(middle + dims.d_model + row);
#pragma unroll
        for (int k = 0; k < ACTIVE; k++)
            add += weights_of[k] * args.w.down.bias[(int64_t)of_slot(&route, k) * dims.d_model + row];
    }
    if (gs_block() == 0 && gs_thread() == 0)
        args.s.argmax[0] = 0;

    int strip = mine.first / n_piece, first_piece = mine.first - strip * n_piece;
    int slot = first_piece / n_chunk, chunk = first_piece - slot * n_chunk, segment = 0;
    int n_piece_here = n_piece - (mine.first - mine.block_first);
    n_piece_here = n_piece_here < mine.count ? n_piece_here : mine.count;
    /* A lane asks for a piece of the activations. */
    int piece = first_piece + lane;
    piece = piece >= n_piece ? piece - n_piece : piece;
    const uint8_t *activated = base + at.activated + slot0 * dims.d_ff * 6 + piece * PIECE;
    bool asks = lane < n_piece_here;
    if (asks)
        copy_announce(PIECE, vector_bars + 8 * (uint32_t)piece);

    uint32_t operand = operand_of(shared_address(vectors));
    float sum[4] = {}, total[4] = {};
    auto weigh = [&](void) {
        float weight = weights_of[slot0 + slot];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            total[j] += weight * sum[j];
            sum[j] = 0.0f;
        }
    };
    gs_wait_for_previous();
    TRACE(5, 1);
    if (asks)
        copy_announced(shared_address(vectors) + (uint32_t)piece * PIECE, activated, PIECE,
                       vector_bars + 8 * (uint32_t)piece);
    TRACE(5, 2);
    stream_run<SLOTS, CHUNK>(ring, bars, mine.count, policy, next, [&](uint32_t at_slot) {
        barrier_wait(vector_bars + 8 * (slot * n_chunk + chunk), 0);
        multiply_experts(at_slot, operand, slot * (dims.d_ff / 32) + 6 * chunk, sum);
        if (++chunk < n_chunk)
            return;
        weigh();
        chunk = 0;
        slot = slot + 1 == PER_PART ? 0 : slot + 1;
        if (slot > 0)
            return;
        leave_part(&block->parts, segment++, total);
        total[0] = total[1] = total[2] = total[3] = 0.0f;
    });
    if (mine.count == 0) {
        leave_nothing(&block->parts);
    } else if (chunk > 0 || slot > 0) {
        if (chunk > 0)
            weigh();
        leave_part(&block->parts, segment, total);
    }
    TRACE(5, 3);
    gs_sync();
    TRACE(5, 6);
    float *before = (float *)(base + at.before) + part * 2 * dims.d_model;
    write_pair(place, RESULT_SCALE, add, before, before + dims.d_model, nullptr);
    TRACE(5, 4);
}

GS_KERNEL void GS_BOUNDS(THREADS, 2) gs_decode_down(GS_ARGS(struct gs_gpu_args, args))
{
    if (args.dims.n_expert <= 32)
        run_down<1>(args);
    else
        run_down<ROUTER_LANE>(args);
}
