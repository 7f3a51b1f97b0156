/*
 * Decode: the stages of the active experts, MXFP4. E: choice, gate and up rows of the four experts as one
 * sequence of strips, clamped SwiGLU. F: down rows; the four experts' chunks of a strip follow each other, so
 * that their sum is made in ascending order of the expert. One row a call.
 *
 * E knows its weights only after the router. F starts its copies while E runs: E lets F start only after the
 * router's sums are complete, and F makes the choice anew.
 */
#include "backend/gpu/decode_stream.cuh"

#define CHUNK  GS_DECODE_EXPERT_CHUNK
#define ACTIVE GS_DECODE_ACTIVE

/* Activations are multiplied by 2^64 before they are split, codes are read as value * 2^-126. */
#define ACTIVATION_SCALE 0x1p64f
#define RESULT_SCALE     0x1p62f

#define MAX_SLOTS GS_DECODE_MAX_SLOTS

#define ROUTER_LOADS 6 /* of a thread, in flight together */
#define ROUTER_LANE  (GS_DECODE_EXPERTS / 32)

struct expert_shared {
    uint64_t bars[WARPS * MAX_SLOTS + ACTIVE]; /* rings, then F's vectors */
    __align__(16) uint32_t zeros[4];
    float squares[WARPS];
    struct parts parts;
    float logits[WARPS][GS_DECODE_EXPERTS];
};
static_assert(sizeof(struct expert_shared) <= GS_DECODE_BLOCK_SHARED, "the launch reserves less");

extern __shared__ __align__(128) unsigned char shared[];

/* ---------------------------------------------------------------- the choice */

struct route {
    int expert[ACTIVE]; /* ascending */
    float weight[ACTIVE];
    uint32_t best; /* 4 bits each, k = 0 lowest: place of the k-th best among the above */
};

/*
 * This warp's part of the sums of the router's logits over the blocks that computed them: a thread adds four
 * experts of every so many blocks, all its loads in flight together, and then the warp's threads of the same
 * experts are added.
 */
GS_DEVICE void sum_router(const float *parts, int n_part, int n_expert, float *logits)
{
    int per_block = n_expert / 4, step = THREADS / per_block, column = gs_thread() % per_block * 4;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int block = gs_thread() / per_block; block < n_part; block += ROUTER_LOADS * step) {
        float4 v[ROUTER_LOADS];
#pragma unroll
        for (int j = 0; j < ROUTER_LOADS; j++) {
            int i = block + j * step;
            v[j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (i < n_part)
                v[j] = __ldcg((const float4 *)(parts + (int64_t)i * n_expert + column));
        }
#pragma unroll
        for (int j = 0; j < ROUTER_LOADS; j++) {
            sum.x += v[j].x;
            sum.y += v[j].y;
            sum.z += v[j].z;
            sum.w += v[j].w;
        }
    }
    for (int mask = per_block; mask < 32; mask *= 2) {
        sum.x += gs_shuffle_xor(sum.x, mask);
        sum.y += gs_shuffle_xor(sum.y, mask);
        sum.z += gs_shuffle_xor(sum.z, mask);
        sum.w += gs_shuffle_xor(sum.w, mask);
    }
    if (lane_of_thread() < per_block) {
        logits[column] = sum.x;
        logits[column + 1] = sum.y;
        logits[column + 2] = sum.z;
        logits[column + 3] = sum.w;
    }
}

/* The biases of a lane's experts, loaded early. */
struct router_bias {
    float of[ROUTER_LANE];
};

GS_DEVICE void load_router_bias(struct router_bias *b, const float *bias, int n_expert)
{
#pragma unroll
    for (int j = 0; j < ROUTER_LANE; j++)
        b->of[j] = lane_of_thread() + 32 * j < n_expert ? bias[lane_of_thread() + 32 * j] : 0.0f;
}

/* Unsigned order is the order of the floats. Never 0. */
GS_DEVICE uint32_t order_of_float(float value)
{
    uint32_t bits = gs_bits_of_float(value);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/*
 * The choice from the sums of all warps: the largest logits, ties to the lower expert, softmax over these.
 * Every warp makes it, all lanes get it. `scale` is the norm's.
 */
GS_DEVICE struct route choose(const float (*sums)[GS_DECODE_EXPERTS], const struct router_bias *bias,
                              int n_expert, float scale)
{
    const int per_lane = ROUTER_LANE;
    uint32_t key[per_lane];
    float logit[per_lane];
#pragma unroll
    for (int j = 0; j < per_lane; j++) {
        int e = lane_of_thread() + 32 * j;
        key[j] = 0;
        logit[j] = 0.0f;
        if (e < n_expert) {
            float sum = 0.0f;
#pragma unroll
            for (int w = 0; w < WARPS; w++)
                sum += sums[w][e];
            logit[j] = sum * scale + bias->of[j];
            key[j] = order_of_float(logit[j]);
        }
    }
    int expert[ACTIVE];
    float value[ACTIVE];
#pragma unroll
    for (int k = 0; k < ACTIVE; k++) {
        uint32_t mine = 0;
        int at = GS_DECODE_EXPERTS;
        float mine_logit = 0.0f;
#pragma unroll
        for (int j = 0; j < per_lane; j++)
            if (key[j] > mine) {
                mine = key[j];
                at = lane_of_thread() + 32 * j;
                mine_logit = logit[j];
            }
        uint32_t largest = __reduce_max_sync(0xffffffffu, mine);
        expert[k] = (int)__reduce_min_sync(0xffffffffu, mine == largest ? (uint32_t)at : GS_DECODE_EXPERTS);
        value[k] = __shfl_sync(0xffffffffu, mine_logit, expert[k] % 32);
#pragma unroll
        for (int j = 0; j < per_lane; j++)
            if (lane_of_thread() + 32 * j == expert[k])
                key[j] = 0;
    }
    float weight[ACTIVE], sum = 0.0f;
#pragma unroll
    for (int k = 0; k < ACTIVE; k++) {
        weight[k] = gs_exp(value[k] - value[0]);
        sum += weight[k];
    }
    struct route r;
    r.best = 0;
#pragma unroll
    for (int k = 0; k < ACTIVE; k++) {
        int place = 0;
#pragma unroll
        for (int i = 0; i < ACTIVE; i++)
            place += expert[i] < expert[k];
        r.best |= (uint32_t)place << (4 * k);
#pragma unroll
        for (int i = 0; i < ACTIVE; i++)
            if (i == place) {
                r.expert[i] = expert[k];
                r.weight[i] = weight[k] / sum;
            }
    }
    return r;
}

/* ---------------------------------------------------------------- E */

GS_DEVICE int of_slot(const struct route *route, int slot)
{
    return slot == 0   ? route->expert[0]
           : slot == 1 ? route->expert[1]
           : slot == 2 ? route->expert[2]
                       : route->expert[3];
}

GS_DEVICE float weight_of_slot(const struct route *route, int slot)
{
    return slot == 0   ? route->weight[0]
           : slot == 1 ? route->weight[1]
           : slot == 2 ? route->weight[2]
                       : route->weight[3];
}

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

    __device__ __forceinline__ void seek(int chunk)
    {
        slot = chunk / matrix;
        left = matrix - (chunk - slot * matrix);
        at = weights + ((int64_t)of_slot(route, slot) * matrix + (matrix - left)) * CHUNK;
    }

    __device__ __forceinline__ const uint8_t *operator()()
    {
        const uint8_t *chunk = at;
        at += CHUNK;
        if (--left == 0) {
            left = matrix;
            slot++;
            at = weights + (int64_t)of_slot(route, slot) * matrix * CHUNK;
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
    stream_prepare<GS_DECODE_GATE_UP_SLOTS>(bars);
    struct norm_weights norm;
    load_norm(&norm, args.w.mlp_norm, dims.d_model);
    struct router_bias router_bias;
    load_router_bias(&router_bias, args.w.router_bias, dims.n_expert);
    clear_parts(&block->parts);
    if (gs_thread() < 4)
        block->zeros[gs_thread()] = 0;

    gs_wait_for_previous();
    TRACE(4, 1);
    struct residual x;
    const float *middle = (const float *)(base + at.middle);
    float squares = load_residual(&x, middle, middle + dims.d_model, dims.d_model);
    sum_router((const float *)(base + at.router), gs_n_block(), dims.n_expert,
               block->logits[warp_of_thread()]);
    leave_sum(block->squares, squares);
    gs_sync();
    float scale = 1.0f / gs_sqrt(add_sums(block->squares) / (float)dims.d_model + dims.rms_norm_eps);
    struct route route = choose(block->logits, &router_bias, dims.n_expert, scale);
    struct gate_up_chunks next;
    next.weights = weights;
    next.route = &route;
    next.matrix = n_strip * n_chunk;
    next.seek(strip0 * n_chunk + first);
    stream_start<GS_DECODE_GATE_UP_SLOTS, CHUNK>(ring, bars, count, policy, next);
    gs_let_next_start();
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
    struct operand operand = operand_of(shared_address(vector), shared_address(block->zeros));
    int strip = first / n_chunk, chunk = first % n_chunk, segment = 0;
    float sum[4] = {};
    stream_run<GS_DECODE_GATE_UP_SLOTS, CHUNK>(ring, bars, count, policy, next, [&](uint32_t slot) {
        multiply_experts(slot, operand, 6 * chunk, sum);
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
    int strip, slot, left, n_chunk, n_strip;

    __device__ __forceinline__ void set(int chunk)
    {
        left = n_chunk - chunk;
        at = weights + (((int64_t)of_slot(route, slot) * n_strip + strip) * n_chunk + chunk) * CHUNK;
    }

    __device__ __forceinline__ void seek(int sequence)
    {
        strip = sequence / (ACTIVE * n_chunk);
        sequence -= strip * (ACTIVE * n_chunk);
        slot = sequence / n_chunk;
        set(sequence - slot * n_chunk);
    }

    __device__ __forceinline__ const uint8_t *operator()()
    {
        const uint8_t *chunk = at;
        at += CHUNK;
        if (--left == 0) {
            if (++slot == ACTIVE) {
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
    struct share mine = share_of_warp(n_strip * ACTIVE * n_chunk);
    uint32_t ring = shared_address(shared) + (uint32_t)warp_of_thread() * SLOTS * CHUNK;
    uint32_t bars = shared_address(block->bars + warp_of_thread() * MAX_SLOTS);
    uint32_t vector_bars = shared_address(block->bars + WARPS * MAX_SLOTS);
    uint64_t policy = policy_read_once();
    TRACE(5, 0);

    struct router_bias router_bias;
    load_router_bias(&router_bias, args.w.router_bias, dims.n_expert);
    /* What C wrote is complete: E, which has let this kernel start, waited for it. */
    struct residual x;
    const float *middle = (const float *)(base + at.middle);
    float squares = load_residual(&x, middle, middle + dims.d_model, dims.d_model);
    sum_router((const float *)(base + at.router), gs_n_block(), dims.n_expert,
               block->logits[warp_of_thread()]);
    leave_sum(block->squares, squares);
    clear_parts(&block->parts);
    if (gs_thread() < 4)
        block->zeros[gs_thread()] = 0;
    stream_prepare<GS_DECODE_DOWN_SLOTS>(bars);
    if (gs_thread() == 0) {
        for (int i = 0; i < ACTIVE; i++)
            barrier_init(vector_bars + 8 * i);
        barrier_init_fence();
    }
    gs_sync();
    float scale = 1.0f / gs_sqrt(add_sums(block->squares) / (float)dims.d_model + dims.rms_norm_eps);
    struct route route = choose(block->logits, &router_bias, dims.n_expert, scale);
    struct down_chunks next;
    next.weights = weights;
    next.route = &route;
    next.n_chunk = n_chunk, next.n_strip = n_strip;
    next.seek(mine.first);
    stream_start<GS_DECODE_DOWN_SLOTS, CHUNK>(ring, bars, mine.count, policy, next);
    gs_let_next_start();
    TRACE(5, 5);
    struct rows rows = rows_of_block(&mine, ACTIVE * n_chunk);
    float add = 0.0f;
    if (gs_thread() < rows.n) {
        int row = rows.first + gs_thread();
        add = load_fresh(middle + row) + load_fresh(middle + dims.d_model + row);
#pragma unroll
        for (int k = 0; k < ACTIVE; k++)
            add += route.weight[k] * args.w.down.bias[(int64_t)route.expert[k] * dims.d_model + row];
    }
    if (gs_block() == 0 && gs_thread() == 0)
        args.s.argmax[0] = 0;

    gs_wait_for_previous();
    TRACE(5, 1);
    if (gs_thread() == 0)
        for (int i = 0; i < ACTIVE; i++)
            copy_start(shared_address(vectors) + (uint32_t)(i * dims.d_ff * 6),
                       base + at.activated + (int64_t)i * dims.d_ff * 6, (uint32_t)(dims.d_ff * 6),
                       vector_bars + 8 * i);

    TRACE(5, 2);
    struct operand operand = operand_of(shared_address(vectors), shared_address(block->zeros));
    int strip = mine.first / (ACTIVE * n_chunk), rest = mine.first % (ACTIVE * n_chunk), segment = 0;
    int slot = rest / n_chunk, chunk = rest % n_chunk;
    float sum[4] = {}, total[4] = {};
    barrier_wait(vector_bars + 8 * slot, 0);
    auto weigh = [&](void) {
        float weight = weight_of_slot(&route, slot);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            total[j] += weight * sum[j];
            sum[j] = 0.0f;
        }
    };
    stream_run<GS_DECODE_DOWN_SLOTS, CHUNK>(ring, bars, mine.count, policy, next, [&](uint32_t at_slot) {
        multiply_experts(at_slot, operand, slot * (dims.d_ff / 32) + 6 * chunk, sum);
        if (++chunk < n_chunk)
            return;
        weigh();
        chunk = 0;
        slot = slot + 1 == ACTIVE ? 0 : slot + 1;
        barrier_wait(vector_bars + 8 * slot, 0);
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
    float *before = (float *)(base + at.before);
    write_pair(&block->parts, &mine, ACTIVE * n_chunk, rows, RESULT_SCALE, add, before, before + dims.d_model,
               nullptr);
    TRACE(5, 4);
}
