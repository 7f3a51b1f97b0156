/*
 * Decode: the choice of the experts, which every block of E and F makes for itself from the router's sums
 * that C's blocks left. It lies on the way from C to the first byte of the experts' weights, and its code is
 * run once a launch, so that every instruction is also one to be fetched: short code counts here.
 */
#ifndef GS_BACKEND_GPU_DECODE_CHOICE_CUH
#define GS_BACKEND_GPU_DECODE_CHOICE_CUH

#include "backend/gpu/decode_stream.cuh"

#define ACTIVE GS_DECODE_ACTIVE

#define ROUTER_LANE (GS_DECODE_EXPERTS / 32) /* experts of a lane at most */

struct choice_shared {
    float squares[WARPS];
    __align__(16) float logits[WARPS][GS_DECODE_EXPERTS];
};

struct route {
    uint32_t experts;     /* a byte each, ascending */
    uint32_t best;        /* 4 bits each, k = 0 lowest: place of the k-th best among the above */
    float value[ACTIVE];  /* logits, best first */
    float weight[ACTIVE]; /* ascending, by choose_weights */
};

GS_DEVICE int of_slot(const struct route *route, int slot)
{
    return (int)(route->experts >> (8 * slot) & 255u);
}

GS_DEVICE float weight_of_slot(const struct route *route, int slot)
{
    return slot == 0   ? route->weight[0]
           : slot == 1 ? route->weight[1]
           : slot == 2 ? route->weight[2]
                       : route->weight[3];
}

/*
 * A thread's share of the router's sums over C's blocks: four neighbouring experts of every so many blocks.
 * LOADS of them are under way together with whatever the caller loads before it calls router_leave.
 */
template <int LOADS> struct router_sums {
    float4 v[LOADS];
    const float *from;
    int block, step, n_part, n_expert;

    __device__ __forceinline__ void load(void)
    {
#pragma unroll
        for (int j = 0; j < LOADS; j++) {
            int i = block + j * step;
            v[j] = __ldcg((const float4 *)(from + (i < n_part ? i : 0) * n_expert));
            if (i >= n_part)
                v[j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
    }

    __device__ __forceinline__ void start(const float *parts, int parts_n, int experts_n)
    {
        int log_threads = 29 - __clz(experts_n); /* threads of a block's row: n_expert/4, a power of two */
        n_part = parts_n;
        n_expert = experts_n;
        step = THREADS >> log_threads;
        block = gs_thread() >> log_threads;
        from = parts + (gs_thread() & (experts_n / 4 - 1)) * 4;
        load();
    }

    /* The warp's sums to logits[n_expert]: a thread's own, then those of the warp's threads. */
    __device__ __forceinline__ void leave(float *logits)
    {
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        int rest = n_part; /* the same for all threads */
        while (true) {
#pragma unroll
            for (int j = 0; j < LOADS; j++) {
                sum.x += v[j].x;
                sum.y += v[j].y;
                sum.z += v[j].z;
                sum.w += v[j].w;
            }
            block += LOADS * step;
            rest -= LOADS * step;
            if (rest <= 0)
                break;
            load();
        }
        int per_block = n_expert / 4;
#pragma unroll 1
        for (int mask = per_block; mask < 32; mask *= 2) {
            sum.x += gs_shuffle_xor(sum.x, mask);
            sum.y += gs_shuffle_xor(sum.y, mask);
            sum.z += gs_shuffle_xor(sum.z, mask);
            sum.w += gs_shuffle_xor(sum.w, mask);
        }
        if (lane_of_thread() < per_block)
            *(float4 *)(logits + lane_of_thread() * 4) = sum;
    }
};

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

GS_DEVICE float float_of_order(uint32_t order)
{
    return gs_float_of_bits(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}

/*
 * The choice from the sums of all warps: the largest logits, ties to the lower expert. Every warp makes it,
 * all lanes get it. A lane has experts lane, lane + 32, ...: LANE of them. `scale` is the norm's.
 */
template <int LANE>
GS_DEVICE void choose(const float (*sums)[GS_DECODE_EXPERTS], const struct router_bias *bias, int n_expert,
                      float scale, struct route *r)
{
    uint32_t key[LANE];
    int expert[ACTIVE];
#pragma unroll
    for (int j = 0; j < LANE; j++) {
        int e = lane_of_thread() + 32 * j;
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            sum += sums[w][e];
        key[j] = e < n_expert ? order_of_float(sum * scale + bias->of[j]) : 0;
    }
#pragma unroll
    for (int k = 0; k < ACTIVE; k++) {
        uint32_t mine = key[0];
#pragma unroll
        for (int j = 1; j < LANE; j++)
            mine = key[j] > mine ? key[j] : mine;
        uint32_t largest = __reduce_max_sync(0xffffffffu, mine);
        int at = 0;
#pragma unroll
        for (int j = LANE - 1; j >= 0; j--) {
            uint32_t has = __ballot_sync(0xffffffffu, key[j] == largest);
            if (has)
                at = 32 * j + __ffs((int)has) - 1;
        }
#pragma unroll
        for (int j = 0; j < LANE; j++)
            if (lane_of_thread() + 32 * j == at)
                key[j] = 0;
        expert[k] = at;
        r->value[k] = float_of_order(largest);
    }
    r->experts = r->best = 0;
#pragma unroll
    for (int k = 0; k < ACTIVE; k++) {
        int place = 0;
#pragma unroll
        for (int i = 0; i < ACTIVE; i++)
            place += expert[i] < expert[k];
        r->best |= (uint32_t)place << (4 * k);
        r->experts |= (uint32_t)expert[k] << (8 * place);
    }
}

/* Softmax over the chosen: not needed before the copies are under way. */
GS_DEVICE void choose_weights(struct route *r)
{
    float weight[ACTIVE], sum = 0.0f;
#pragma unroll
    for (int k = 0; k < ACTIVE; k++) {
        weight[k] = gs_exp(r->value[k] - r->value[0]);
        sum += weight[k];
    }
    float factor = 1.0f / sum;
#pragma unroll
    for (int i = 0; i < ACTIVE; i++) {
        float mine = 0.0f;
#pragma unroll
        for (int k = 0; k < ACTIVE; k++)
            mine = (r->best >> (4 * k) & 15u) == (uint32_t)i ? weight[k] : mine;
        r->weight[i] = mine * factor;
    }
}

/* What E and F need of C's results: the residual stream, the norm's factor and the choice. */
template <int LANE, int LOADS>
GS_DEVICE float choose_from(const struct gs_gpu_args &args, int n_part, struct residual *x,
                            const struct router_bias *bias, struct choice_shared *block, struct route *route)
{
    const struct gs_decode_layout at = gs_decode_layout_of(&args.dims);
    const uint8_t *base = (const uint8_t *)args.s.decode;
    const float *middle = (const float *)(base + at.middle);
    struct router_sums<LOADS> sums;
    sums.start((const float *)(base + at.router), n_part, args.dims.n_expert);
    float squares = load_residual<2>(x, middle, args.dims.d_model);
    sums.leave(block->logits[warp_of_thread()]);
    leave_sum(block->squares, squares);
    gs_sync();
    float scale = norm_scale(block->squares, args.dims);
    choose<LANE>(block->logits, bias, args.dims.n_expert, scale, route);
    return scale;
}

GS_DEVICE float make_choice(const struct gs_gpu_args &args, int n_part, struct residual *x,
                            const struct router_bias *bias, struct choice_shared *block, struct route *route)
{
    return args.dims.n_expert <= 32 ? choose_from<1, 3>(args, n_part, x, bias, block, route)
                                    : choose_from<ROUTER_LANE, 6>(args, n_part, x, bias, block, route);
}

#endif
