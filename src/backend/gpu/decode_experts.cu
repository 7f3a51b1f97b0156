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
};
static_assert(sizeof(struct expert_shared) <= GS_DECODE_BLOCK_SHARED, "the launch reserves less");

extern __shared__ __align__(128) unsigned char shared[];

/* ---------------------------------------------------------------- E */

/* The contract's form of the choice: best first. */
GS_DEVICE void publish_choice(const struct gs_gpu_args &args, const struct route *route)
{
    if (gs_block() > 0 || gs_thread() >= ACTIVE)
        return;
    int place = (int)(route->best >> (4 * gs_thread()) & 15u);
    args.s.choice[gs_thread()] = of_slot(route, place);
    args.s.choice_weight[gs_thread()] = weight_of_slot(route, place);
}

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
    return (up + 1.0f) * (gate / (1.0f + gs_exp(-dims.swiglu_alpha * gate)));
}

/* A warp's chunks: one after another until an expert ends. */
struct gate_up_chunks {
    const uint8_t *weights, *at;
    const struct route *route;
    int slot, left, matrix; /* chunks of an expert */

    /* What does not depend on the choice. */
    __device__ __forceinline__ void seek(int chunk)
    {
        slot = (chunk >= matrix) + (chunk >= 2 * matrix) + (chunk >= 3 * matrix);
        left = (slot + 1) * matrix - chunk;
        at = weights + (int64_t)(matrix - left) * CHUNK;
    }

    __device__ __forceinline__ const uint8_t *of_expert(const uint8_t *first) const
    {
        return first + (int64_t)of_slot(route, slot) * matrix * CHUNK;
    }

    __device__ __forceinline__ const uint8_t *operator()()
    {
        const uint8_t *chunk = at;
        at += CHUNK;
        if (--left == 0) {
            left = matrix;
            slot++;
            at = of_expert(weights);
        }
        return chunk;
    }
};

/* E: residual after attention -> four split vectors of activations. Every block has whole strips. */
GS_KERNEL void GS_BOUNDS(THREADS, 2) gs_decode_gate_up(GS_ARGS(struct gs_gpu_args, args))
{
    const int SLOTS = GS_DECODE_GATE_UP_SLOTS;
    struct expert_shared *block = (struct expert_shared *)(shared + WARPS * SLOTS * CHUNK);
    uint32_t *vector = (uint32_t *)(shared + WARPS * SLOTS * CHUNK + GS_DECODE_BLOCK_SHARED);
    const struct gs_gpu_dims &dims = args.dims;
    const struct gs_decode_layout at = gs_decode_layout_of(&dims);
    const uint8_t *weights = (const uint8_t *)args.w.gate_up.relaid;
    uint8_t *base = (uint8_t *)args.s.decode;
    int n_chunk = dims.d_model / GS_DECODE_EXPERT_COLUMNS, n_strip = 2 * dims.d_ff / GS_DECODE_STRIP;
    int strip0, strips, first, count;
    share_of(ACTIVE * n_strip, gs_block(), gs_n_block(), &strip0, &strips);
    share_of(strips * n_chunk, warp_of_thread(), WARPS, &first, &count);
    uint32_t ring = shared_address(shared) + (uint32_t)warp_of_thread() * SLOTS * CHUNK;
    uint32_t bars = shared_address(block->bars + warp_of_thread() * MAX_SLOTS);
    uint64_t policy = policy_read_once();
    TRACE(4, 0);
    stream_prepare<SLOTS>(bars);
    struct norm_weights norm;
    load_norm(&norm, args.w.mlp_norm, dims.d_model);
    struct router_bias router_bias;
    load_router_bias(&router_bias, args.w.router_bias, dims.n_expert);
    clear_parts(&block->parts);

    struct gate_up_chunks next;
    struct route route;
    next.weights = weights;
    next.route = &route;
    next.matrix = n_strip * n_chunk;
    next.seek(strip0 * n_chunk + first);
    struct residual x;
    gs_wait_for_previous();
    TRACE(4, 1);
    float scale = make_choice(args, gs_n_block(), &x, &router_bias, &block->choice, &route);
    next.at = next.of_expert(next.at);
    stream_fill<CHUNK>(ring, bars, 0, SLOTS, count, policy, next);
    choose_weights(&route);
    TRACE(4, 5);
    publish_choice(args, &route);
    store_split(&x, &norm, vector, dims.d_model, ACTIVATION_SCALE);
    /* A thread finishes one unit: its biases are fetched while the weights arrive. */
    int global_unit = strip0 * 8 + gs_thread(), slot_of_unit = global_unit / dims.d_ff;
    int unit = global_unit - slot_of_unit * dims.d_ff;
    bool has_unit = gs_thread() < strips * 8;
    float2 bias = make_float2(0.0f, 0.0f);
    if (has_unit)
        bias = *(const float2 *)(args.w.gate_up.bias +
                                 (int64_t)of_slot(&route, slot_of_unit) * 2 * dims.d_ff + 2 * unit);
    gs_sync();

    TRACE(4, 2);
    uint32_t operand = operand_of(shared_address(vector));
    int strip = first / n_chunk, chunk = first % n_chunk, segment = 0;
    float sum[4] = {};
    int until_go = GS_DECODE_GO_AFTER;
    stream_run<SLOTS, CHUNK>(ring, bars, count, policy, next, [&](uint32_t slot) {
        multiply_experts(slot, operand, 6 * chunk, sum);
        if (--until_go == 0)
            gs_let_next_start();
        if (++chunk < n_chunk)
            return;
        leave_part(&block->parts, segment++, strip++, sum);
        sum[0] = sum[1] = sum[2] = sum[3] = 0.0f;
        chunk = 0;
    });
    if (chunk > 0 && count > 0)
        leave_part(&block->parts, segment, strip, sum);
    TRACE(4, 3);
    gs_sync();
    TRACE(4, 6);
    if (has_unit) {
        float factor = RESULT_SCALE * scale;
        float gate = add_parts(&block->parts, gs_thread() / 8, gs_thread() % 8) * factor + bias.x;
        float up = add_parts(&block->parts, gs_thread() / 8, gs_thread() % 8 + 8) * factor + bias.y;
        store_activation(base + at.activated, dims.d_ff, slot_of_unit, unit, swiglu(dims, gate, up));
    }
    TRACE(4, 4);
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
        at = weights + (((int64_t)of_slot(route, slot0 + slot) * n_strip + strip) * n_chunk + chunk) * CHUNK;
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
GS_KERNEL void GS_BOUNDS(THREADS, 2) gs_decode_down(GS_ARGS(struct gs_gpu_args, args))
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
    struct share mine = share_among(n_strip * PER_PART * n_chunk, gs_block() - part * blocks, blocks);
    uint32_t ring = shared_address(shared) + (uint32_t)warp_of_thread() * SLOTS * CHUNK;
    uint32_t bars = shared_address(block->bars + warp_of_thread() * MAX_SLOTS);
    uint32_t vector_bars = shared_address(block->bars + WARPS * MAX_SLOTS);
    uint64_t policy = policy_read_once();
    TRACE(5, 0);

    struct router_bias router_bias;
    load_router_bias(&router_bias, args.w.router_bias, dims.n_expert);
    clear_parts(&block->parts);
    stream_prepare<SLOTS>(bars);
    if (gs_thread() == 0) {
        for (int i = 0; i < PER_PART * n_chunk; i++)
            barrier_init(vector_bars + 8 * i);
        barrier_init_fence();
    }
    /* What C wrote is complete: E, which has let this kernel start, waited for it. */
    struct residual x;
    struct route route;
    const float *middle = (const float *)(base + at.middle);
    make_choice(args, gs_n_block(), &x, &router_bias, &block->choice, &route);
    struct down_chunks next;
    next.weights = weights;
    next.route = &route;
    next.n_chunk = n_chunk, next.n_strip = n_strip, next.slot0 = slot0;
    next.seek(mine.first);
    stream_fill<CHUNK>(ring, bars, 0, SLOTS - GS_DECODE_LATE_SLOTS, mine.count, policy, next);
    gs_let_next_start();
    choose_weights(&route);
    if (lane_of_thread() < ACTIVE)
        block->weights[warp_of_thread()][lane_of_thread()] = weight_of_slot(&route, lane_of_thread());
    __syncwarp();
    const float *weights_of = block->weights[warp_of_thread()];
    TRACE(5, 5);
    struct row_place place = place_of_row(&mine, PER_PART * n_chunk);
    float add = 0.0f;
    if (part == 0 && place.row >= 0) {
        int row = place.row;
        add = load_fresh(middle + row) + load_fresh(middle + dims.d_model + row);
#pragma unroll
        for (int k = 0; k < ACTIVE; k++)
            add += route.weight[k] * args.w.down.bias[(int64_t)of_slot(&route, k) * dims.d_model + row];
    }
    if (gs_block() == 0 && gs_thread() == 0)
        args.s.argmax[0] = 0;

    int strip = mine.first / (PER_PART * n_chunk), first_piece = mine.first - strip * (PER_PART * n_chunk);
    int slot = first_piece / n_chunk, chunk = first_piece - slot * n_chunk, segment = 0;
    int n_piece = PER_PART * n_chunk, n_piece_here = n_piece - (mine.first - mine.block_first);
    n_piece_here = n_piece_here < mine.count ? n_piece_here : mine.count;
    const uint8_t *activated = base + at.activated + slot0 * dims.d_ff * 6;

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
    if (lane_of_thread() == 0) {
        int piece = first_piece;
#pragma unroll 1
        for (int i = 0; i < n_piece_here; i++) {
            copy_start(shared_address(vectors) + (uint32_t)piece * PIECE, activated + piece * PIECE, PIECE,
                       vector_bars + 8 * piece);
            piece = piece + 1 == n_piece ? 0 : piece + 1;
        }
    }
    stream_fill<CHUNK>(ring, bars, SLOTS - GS_DECODE_LATE_SLOTS, SLOTS, mine.count, policy, next);
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
        leave_part(&block->parts, segment++, strip++, total);
        total[0] = total[1] = total[2] = total[3] = 0.0f;
    });
    if (mine.count > 0 && (chunk > 0 || slot > 0)) {
        if (chunk > 0)
            weigh();
        leave_part(&block->parts, segment, strip, total);
    }
    TRACE(5, 3);
    gs_sync();
    TRACE(5, 6);
    float *before = (float *)(base + at.before) + part * 2 * dims.d_model;
    write_pair(&block->parts, place, RESULT_SCALE, add, before, before + dims.d_model, nullptr);
    TRACE(5, 4);
}
