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
    union {
        struct router_sums sums; /* until the choice is made */
        struct parts parts;
    };
    float weights[ACTIVE]; /* F: of the experts, which are */
    uint32_t experts;
    struct choice_shared choice;
    struct u32x4 later[THREADS]; /* what a thread has found out before it waits, for after the stream */
};
static_assert(sizeof(struct expert_shared) <= GS_DECODE_BLOCK_SHARED, "the launch reserves less");

extern __shared__ __align__(128) unsigned char shared[];

#define UP_SLOTS   GS_DECODE_GATE_UP_SLOTS
#define DOWN_SLOTS GS_DECODE_DOWN_SLOTS

/* A warp's ring, and how its copies are cached. */
struct warp_ring {
    uint32_t slots, bars;
    uint64_t policy;
};

template <int SLOTS> GS_DEVICE struct warp_ring ring_of_warp(const struct expert_shared *block)
{
    struct warp_ring ring;
    ring.slots = shared_address(shared) + (uint32_t)warp_of_thread() * SLOTS * CHUNK;
    ring.bars = shared_address(block->bars + warp_of_thread() * MAX_SLOTS);
    ring.policy = policy_read_once();
    return ring;
}

/* ---------------------------------------------------------------- E */

GS_DEVICE float swiglu(float limit, float alpha, float gate, float up)
{
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : up < -limit ? -limit : up;
    return (up + 1.0f) * __fdividef(gate, 1.0f + gs_exp(-alpha * gate));
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

/* Its three terms to where the down projection wants them: 32 elements of a term lie together. */
GS_DEVICE void store_activation(uint16_t *to, float value)
{
    value *= ACTIVATION_SCALE;
#pragma unroll
    for (int k = 0; k < 3; k++) {
        uint16_t term = (uint16_t)pack_bf16(value, 0.0f);
        store_half(to + 32 * k, term);
        value -= gs_float_of_bf16(term);
    }
}

GS_DEVICE int64_t place_of_unit(int d_ff, int slot, int unit)
{
    return (int64_t)slot * 3 * d_ff + unit / 32 * 96 + unit % 32;
}

/*
 * The unit that a thread finishes, found before the wait and kept in shared memory (struct row_end says why):
 * where its activation goes, of which of the four experts it is, and where its parts lie.
 */
struct unit_end {
    uint32_t n, slot, unit;
    uint32_t parts; /* as in row_end: of the gate; the up's are 8 rows on */
    uint16_t *to;
};

GS_DEVICE void keep_unit(uint32_t at, const struct unit_end &u)
{
    uint64_t to = (uint64_t)u.to;
    store_shared_16(at, u.n | u.slot << 4 | u.unit << 6, u.parts, (uint32_t)to, (uint32_t)(to >> 32));
}

GS_DEVICE struct unit_end recall_unit(uint32_t at)
{
    const struct u32x4 kept = load_shared_16(at);
    struct unit_end u;
    u.n = kept.x & 15u, u.slot = kept.x >> 4 & 3u, u.unit = kept.x >> 6, u.parts = kept.y,
    u.to = (uint16_t *)((uint64_t)kept.w << 32 | kept.z);
    return u;
}

GS_DEVICE struct unit_end unit_of_thread(const struct gs_gpu_args &args, const struct parts *parts,
                                         const struct share *mine, int strip0, int n_chunk)
{
    const struct gs_gpu_dims &dims = args.dims;
    uint16_t *activated = (uint16_t *)((uint8_t *)args.s.decode + gs_decode_layout_of(&dims).activated);
    int unit = strip0 * 8 + gs_thread(), slot = unit / dims.d_ff;
    const struct part_place place = parts_of_strip(parts, mine, n_chunk, gs_thread() / 8);
    uint32_t in_strip = (uint32_t)gs_thread() % 8;
    struct unit_end u;
    unit -= slot * dims.d_ff;
    u.n = (uint32_t)place.n, u.slot = (uint32_t)slot, u.unit = (uint32_t)unit;
    u.parts = (place.first / 4 + in_strip) | (place.others / 4 + in_strip) << 16;
    u.to = activated + place_of_unit(dims.d_ff, slot, unit);
    return u;
}

GS_DEVICE float2 bias_of_unit(const struct gs_gpu_args &args, bool has_unit, const struct unit_end &unit,
                              const struct route *route)
{
    uint32_t row = of_slot(route, (int)unit.slot) * (uint32_t)args.dims.d_ff + unit.unit;
    return load_pair_if(has_unit, (const float2 *)args.w.gate_up.bias + row);
}

/* A unit's activation to its place in the split vector. */
GS_DEVICE void finish_unit(uint32_t later, uint32_t choice, float2 bias)
{
    const struct unit_end u = recall_unit(later);
    uint32_t first = (u.parts & 0xffffu) * 4, others = u.parts >> 16 << 2;
    const struct u32x4 norm = load_shared_16(choice + (uint32_t)offsetof(struct choice_shared, scale));
    float factor = RESULT_SCALE * gs_float_of_bits(norm.x);
    float gate = add_parts_of<2>((int)u.n, first, others) * factor + bias.x;
    float up = add_parts_of<2>((int)u.n, first + 32, others + 32) * factor + bias.y;
    store_activation(u.to, swiglu(gs_float_of_bits(norm.y), gs_float_of_bits(norm.z), gate, up));
}

/* The strips of a block of E, and a warp's share of their chunks. */
struct up_share {
    int strip0, strips, n_chunk;
    struct share mine;
};

GS_DEVICE struct up_share up_share_of_warp(const struct gs_gpu_dims &dims)
{
    struct up_share up;
    up.n_chunk = dims.d_model / GS_DECODE_EXPERT_COLUMNS;
    share_of(ACTIVE * (2 * dims.d_ff / GS_DECODE_STRIP), gs_block(), gs_n_block(), &up.strip0, &up.strips);
    up.mine.block_first = 0, up.mine.block_count = up.strips * up.n_chunk;
    share_of(up.mine.block_count, warp_of_thread(), WARPS, &up.mine.first, &up.mine.count);
    return up;
}

/* The warp's share goes through its ring; lets F start on the way. */
GS_DEVICE void multiply_up(struct expert_shared *block, const struct up_share &up,
                           const struct warp_ring &ring, uint32_t vector, struct gate_up_chunks &next)
{
    uint32_t operand = operand_of(vector);
    int chunk = up.mine.first % up.n_chunk, segment = 0;
    float sum[4] = {};
    int until_go = GS_DECODE_GO_AFTER;
    stream_run<UP_SLOTS, CHUNK>(ring.slots, ring.bars, up.mine.count, ring.policy, next, [&](uint32_t slot) {
        multiply_experts(slot, operand, 6 * chunk, sum);
        if (--until_go == 0)
            gs_let_next_start();
        if (++chunk < up.n_chunk)
            return;
        leave_part(&block->parts, segment++, sum);
        sum[0] = sum[1] = sum[2] = sum[3] = 0.0f;
        chunk = 0;
    });
    if (up.mine.count == 0)
        leave_nothing(&block->parts);
    else if (chunk > 0)
        leave_part(&block->parts, segment, sum);
}

/* E: residual after attention -> four split vectors of activations. Every block has whole strips. */
template <int LANE> GS_DEVICE void run_gate_up(const struct gs_gpu_args &args)
{
    struct expert_shared *block = (struct expert_shared *)(shared + WARPS * UP_SLOTS * CHUNK);
    uint32_t *vector = (uint32_t *)(shared + WARPS * UP_SLOTS * CHUNK + GS_DECODE_BLOCK_SHARED);
    const struct gs_gpu_dims &dims = args.dims;
    int lane = lane_of_thread();
    const struct up_share up = up_share_of_warp(dims);
    const struct warp_ring ring = ring_of_warp<UP_SLOTS>(block);
    TRACE(4, 0);
    struct norm_weights norm;
    load_norm(&norm, args.w.mlp_norm, dims.d_model);
    struct router_lane<LANE> router;
    router.early(args.w.router_bias, dims.n_expert);

    const uint8_t *weights = (const uint8_t *)args.w.gate_up.relaid;
    int sequence = up.strip0 * up.n_chunk + up.mine.first,
        matrix = 2 * dims.d_ff / GS_DECODE_STRIP * up.n_chunk;
    struct gate_up_chunks early, next; /* early: a lane's slot */
    early.seek(weights, sequence + (lane < UP_SLOTS ? lane : 0), matrix);
    next.seek(weights, sequence + UP_SLOTS, matrix);
    bool asks = lane < UP_SLOTS && lane < up.mine.count, has_unit = gs_thread() < up.strips * 8;
    if (lane < UP_SLOTS) {
        barrier_init(ring.bars + 8 * lane);
        barrier_init_fence();
    }
    __syncwarp();
    if (asks)
        copy_announce(CHUNK, ring.bars + 8 * (uint32_t)lane);
    uint32_t later = shared_address(block->later + gs_thread()), choice = shared_address(&block->choice);
    if (has_unit)
        keep_unit(later, unit_of_thread(args, &block->parts, &up.mine, up.strip0, up.n_chunk));
    if (gs_thread() == 0) {
        keep_norm(&block->choice.norm, dims);
        block->choice.limit = dims.swiglu_limit, block->choice.alpha = dims.swiglu_alpha;
    }
    struct route route;
    struct residual x;
    gs_wait_for_previous();
    TRACE(4, 1);
    load_choice(args, &x, &block->choice, &block->sums);
    gs_sync();
    choose_from(args, router, &block->choice, &block->sums, &route);
    early.choose(&route);
    if (asks)
        copy_announced_once(ring.slots + (uint32_t)lane * CHUNK, early.at, CHUNK,
                            ring.bars + 8 * (uint32_t)lane, ring.policy);
    TRACE(4, 5);
    float2 bias = bias_of_unit(args, has_unit, recall_unit(later), &route);
    next.choose(&route);
    store_split(&x, &norm, vector, dims.d_model, ACTIVATION_SCALE);
    gs_sync();
    TRACE(4, 2);
    multiply_up(block, up, ring, shared_address(vector), next);
    TRACE(4, 3);
    gs_sync();
    TRACE(4, 6);
    if (has_unit)
        finish_unit(later, choice, bias);
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

    /* What does not depend on the choice; returns the chunk that `set` then wants. */
    __device__ __forceinline__ int seek(int sequence)
    {
        strip = sequence / (PER_PART * n_chunk);
        sequence -= strip * (PER_PART * n_chunk);
        slot = sequence / n_chunk;
        return sequence - slot * n_chunk;
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

/* A block of F and a warp's share: strips of the chunks of PER_PART experts, from slot0 of the four on. */
struct down_share {
    int part, slot0, n_chunk, n_piece; /* n_piece: chunks of a strip, of both experts */
    struct share mine;
};

GS_DEVICE struct down_share down_share_of_warp(const struct gs_gpu_dims &dims)
{
    struct down_share down;
    int blocks = gs_n_block() / GS_DECODE_DOWN_PARTS;
    down.part = gs_block() / blocks, down.slot0 = down.part * PER_PART;
    down.n_chunk = dims.d_ff / GS_DECODE_EXPERT_COLUMNS, down.n_piece = PER_PART * down.n_chunk;
    down.mine =
        share_among(dims.d_model / GS_DECODE_STRIP * down.n_piece, gs_block() - down.part * blocks, blocks);
    return down;
}

/* Where the biases of a block's rows lie, of the experts one after another: rows have half of `later`. */
#define DOWN_ROWS (THREADS / 2)
static_assert(ACTIVE * DOWN_ROWS * sizeof(float) <= DOWN_ROWS * sizeof(struct u32x4), "room for the biases");

GS_DEVICE float *down_bias_of(struct expert_shared *block)
{
    return (float *)(block->later + DOWN_ROWS) + gs_thread();
}

/* Keeps what is left to do for a thread's row at the end. */
GS_DEVICE void keep_down_row(const struct gs_gpu_args &args, struct expert_shared *block,
                             const struct down_share &down)
{
    int d_model = args.dims.d_model;
    float *before = (float *)((uint8_t *)args.s.decode + gs_decode_layout_of(&args.dims).before) +
                    down.part * 2 * d_model;
    struct row_place place = place_of_row(&block->parts, &down.mine, down.n_piece);
    keep_row(shared_address(block->later + gs_thread()), end_of_row(place, before, before + d_model));
}

GS_DEVICE void fetch_down_bias(const struct gs_gpu_args &args, struct expert_shared *block,
                               const struct route *route, int row)
{
    uint32_t to = shared_address(down_bias_of(block));
#pragma unroll
    for (int k = 0; k < ACTIVE; k++)
        copy_async_4(to + (uint32_t)(k * DOWN_ROWS * 4),
               args.w.down.bias + (of_slot(route, k) * (uint32_t)args.dims.d_model + (uint32_t)row));
}

/* `residual`: of the row; the first part adds it, and the experts' biases. */
GS_DEVICE void finish_down(struct expert_shared *block, bool adds, float residual)
{
    float add = residual;
    copies_wait();
#pragma unroll
    for (int k = 0; k < ACTIVE; k++)
        add += adds ? block->weights[k] * down_bias_of(block)[k * DOWN_ROWS] : 0.0f;
    write_row<6>(recall_row(shared_address(block->later + gs_thread())), RESULT_SCALE, add);
}

/* The activations of a block, of PER_PART experts, in pieces of a chunk with a barrier each. */
struct down_vectors {
    uint32_t at, bars;
    int piece; /* the lane asks for */
    bool asks;

    __device__ __forceinline__ void announce(const struct down_share &down)
    {
        const struct share &mine = down.mine;
        int here = down.n_piece - (mine.first - mine.block_first);
        piece = mine.first % down.n_piece + lane_of_thread();
        piece = piece >= down.n_piece ? piece - down.n_piece : piece;
        asks = lane_of_thread() < (here < mine.count ? here : mine.count);
        if (asks)
            copy_announce(PIECE, bars + 8 * (uint32_t)piece);
    }

    __device__ __forceinline__ void fetch(const uint8_t *activated) const
    {
        if (asks)
            copy_announced(at + (uint32_t)piece * PIECE, activated + piece * PIECE, PIECE,
                           bars + 8 * (uint32_t)piece);
    }
};

/* The warp's share goes through its ring. */
GS_DEVICE void multiply_down(struct expert_shared *block, const struct down_share &down,
                             const struct warp_ring &ring, const struct down_vectors &vectors,
                             struct down_chunks &next)
{
    int n_chunk = down.n_chunk, first = down.mine.first % down.n_piece, segment = 0;
    int slot = first / n_chunk, chunk = first - slot * n_chunk;
    uint32_t operand = operand_of(vectors.at);
    float sum[4] = {}, total[4] = {};
    auto weigh = [&](void) {
        float weight = block->weights[down.slot0 + slot];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            total[j] += weight * sum[j];
            sum[j] = 0.0f;
        }
    };
    auto work = [&](uint32_t at) {
        barrier_wait(vectors.bars + 8 * (slot * n_chunk + chunk), 0);
        multiply_experts(at, operand, 6 * (slot * n_chunk + chunk), sum);
        if (++chunk < n_chunk)
            return;
        weigh();
        chunk = 0;
        slot = slot + 1 == PER_PART ? 0 : slot + 1;
        if (slot > 0)
            return;
        leave_part(&block->parts, segment++, total);
        total[0] = total[1] = total[2] = total[3] = 0.0f;
    };
    stream_run<DOWN_SLOTS, CHUNK>(ring.slots, ring.bars, down.mine.count, ring.policy, next, work);
    if (down.mine.count == 0) {
        leave_nothing(&block->parts);
    } else if (chunk > 0 || slot > 0) {
        if (chunk > 0)
            weigh();
        leave_part(&block->parts, segment, total);
    }
}

/* F: activations -> residual before the next layer, as a pair. Grid: blocks <= strips. */
template <int LANE> GS_DEVICE void run_down(const struct gs_gpu_args &args)
{
    struct expert_shared *block = (struct expert_shared *)(shared + WARPS * DOWN_SLOTS * CHUNK);
    const struct gs_gpu_dims &dims = args.dims;
    const struct down_share down = down_share_of_warp(dims);
    const struct warp_ring ring = ring_of_warp<DOWN_SLOTS>(block);
    struct down_vectors vectors;
    vectors.at = shared_address(shared + WARPS * DOWN_SLOTS * CHUNK + GS_DECODE_BLOCK_SHARED);
    vectors.bars = shared_address(block->bars + WARPS * MAX_SLOTS);
    TRACE(5, 0);
    struct router_lane<LANE> router;
    router.early(args.w.router_bias, dims.n_expert);
    stream_prepare<DOWN_SLOTS>(ring.bars);
    if (gs_thread() == 0)
        keep_norm(&block->choice.norm, dims);
    if (gs_thread() < down.n_piece) {
        barrier_init(vectors.bars + 8 * (uint32_t)gs_thread());
        barrier_init_fence();
    }
    const struct rows rows = rows_of_block(&down.mine, down.n_piece);
    bool has_row = gs_thread() < rows.n, adds = has_row && down.part == 0;
    struct down_chunks next;
    struct route route;
    struct residual x;
    next.weights = (const uint8_t *)args.w.down.relaid, next.route = &route;
    next.n_chunk = down.n_chunk, next.n_strip = dims.d_model / GS_DECODE_STRIP, next.slot0 = down.slot0;
    int first_chunk = next.seek(down.mine.first), row = rows.first + gs_thread();
    gs_sync();
    vectors.announce(down);
    /* What C wrote is complete: E, which has let this kernel start, waited for it. */
    const float *middle = (const float *)((const uint8_t *)args.s.decode + gs_decode_layout_of(&dims).middle);
    float residual = load_fresh_if(adds, middle + row),
          other = load_fresh_if(adds, middle + dims.d_model + row);
    load_choice(args, &x, &block->choice, &block->sums);
    gs_sync();
    /* One warp makes the choice: E is at work and wants the issue slots. */
    if (warp_of_thread() == WARPS - 1) {
        choose_from(args, router, &block->choice, &block->sums, &route);
        leave_weights(block->weights, &route);
        if (lane_of_thread() == 0)
            block->experts = route.experts;
    } else if (has_row) {
        keep_down_row(args, block, down);
    }
    gs_sync();
    route.experts = load_shared_4(shared_address(&block->experts));
    next.set(first_chunk);
    stream_fill<CHUNK>(ring.slots, ring.bars, 0, DOWN_SLOTS, down.mine.count, ring.policy, next);
    gs_let_next_start();
    TRACE(5, 5);
    if (adds)
        fetch_down_bias(args, block, &route, row);
    if (gs_block() == 0 && gs_thread() == 0)
        args.s.argmax[0] = 0;
    gs_wait_for_previous();
    TRACE(5, 1);
    vectors.fetch((const uint8_t *)args.s.decode + gs_decode_layout_of(&dims).activated +
                  down.slot0 * dims.d_ff * 6);
    TRACE(5, 2);
    multiply_down(block, down, ring, vectors, next);
    TRACE(5, 3);
    gs_sync();
    TRACE(5, 6);
    if (has_row)
        finish_down(block, adds, residual + other);
    TRACE(5, 4);
}

GS_KERNEL void GS_BOUNDS(THREADS, 2) gs_decode_down(GS_ARGS(struct gs_gpu_args, args))
{
    if (args.dims.n_expert <= 32)
        run_down<1>(args);
    else
        run_down<ROUTER_LANE>(args);
}
