/*
 * Decode: the choice of the experts, which every warp of E and F makes for itself from the router's sums that
 * C's blocks added up. It lies on the way from C to the first byte of the experts' weights, and its code is
 * run once a launch, so that every instruction is also one to be fetched: short code counts here.
 */
#ifndef GS_BACKEND_GPU_DECODE_CHOICE_CUH
#define GS_BACKEND_GPU_DECODE_CHOICE_CUH

#include "backend/gpu/decode_stream.cuh"

#define ACTIVE GS_DECODE_ACTIVE

#define ROUTER_LANE (GS_DECODE_EXPERTS / 32) /* experts of a lane at most */

struct choice_shared {
    __align__(16) float squares[WARPS];
    __align__(16) float unit[4]; /* of the router's sums; the first counts */
    struct norm_kept norm;
    __align__(16) float scale; /* the norm's factor */
    float limit, alpha;        /* of the activation */
};

/* The router's sums, which lie here until a block has made the choice. */
struct router_sums {
    __align__(16) long long of[GS_DECODE_ROUTER_SUMS * GS_DECODE_EXPERTS];
};

struct route {
    uint32_t experts;    /* a byte each, ascending */
    int order[ACTIVE];   /* the same, best first */
    float value[ACTIVE]; /* logits, best first */
};

GS_DEVICE uint32_t of_slot(const struct route *route, int slot)
{
    return route->experts >> (8 * slot) & 255u;
}

/* Which of four. */
template <class T> GS_DEVICE T pick(const T of[ACTIVE], int i)
{
    T low = i == 0 ? of[0] : of[1], high = i == 2 ? of[2] : of[3];
    return i < 2 ? low : high;
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

/* ---------------------------------------------------------------- the router's sums */

/*
 * The router's logits are summed over C's blocks as integers, so that the order of the blocks does not
 * matter. The unit follows the size of the residual stream before the layer: there a root mean square of 1 is
 * 2^31 to 2^32 units. A block's part that is larger than 2^54 units or no number counts as the largest; the
 * residual stream itself says then that it is too large, or no number.
 */
GS_DEVICE long long *router_sums(const struct gs_gpu_args &args)
{
    return (long long *)((uint8_t *)args.s.decode + gs_decode_layout_of(&args.dims).router);
}

GS_DEVICE float *router_unit_at(const struct gs_gpu_args &args)
{
    return (float *)((uint8_t *)args.s.decode + gs_decode_layout_of(&args.dims).unit);
}

/* A, one warp: `scale` is the factor of the norm before. */
GS_DEVICE void clear_router(const struct gs_gpu_args &args, float scale)
{
    uint32_t exponent = gs_bits_of_float(scale) >> 23 & 255u;
#pragma unroll 1
    for (int i = lane_of_thread(); i < GS_DECODE_ROUTER_SUMS * args.dims.n_expert; i += 32)
        router_sums(args)[i] = 0;
    if (lane_of_thread() == 0)
        *router_unit_at(args) = gs_float_of_bits((exponent < 160 ? exponent + 32 : 192) << 23);
}

GS_DEVICE float router_unit(const struct gs_gpu_args &args)
{
    return load_fresh(router_unit_at(args));
}

/* C: a block's part of an expert's logit, and where the block adds its parts. */
GS_DEVICE long long router_units(float part, float unit)
{
    return __float2ll_rn(fminf(fmaxf(part * unit, -0x1p54f), 0x1p54f));
}

GS_DEVICE void add_units(long long *to, long long units)
{
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(to), "l"(units) : "memory");
}

GS_DEVICE long long *router_sums_of_block(const struct gs_gpu_args &args)
{
    return router_sums(args) + gs_block() % GS_DECODE_ROUTER_SUMS * args.dims.n_expert;
}

/* ---------------------------------------------------------------- the choice */

/* The experts in ascending order, from those in order of their logits. */
GS_DEVICE void sort_order(struct route *r)
{
    int a = min(r->order[0], r->order[1]), b = max(r->order[0], r->order[1]);
    int c = min(r->order[2], r->order[3]), d = max(r->order[2], r->order[3]);
    int inner = max(a, c), other = min(b, d);
    r->experts = (uint32_t)(min(a, c) | min(inner, other) << 8 | max(inner, other) << 16 | max(b, d) << 24);
}

/*
 * C's sums to shared memory, 16 bytes a thread: if all warps of all blocks asked for these few lines, the L2
 * cache would take 2 us to answer. They come while the residual stream does: loads to registers the compiler
 * would put behind those, and a block would wait twice. Until copies_wait and a barrier of the block.
 */
GS_DEVICE void fetch_router(const struct gs_gpu_args &args, struct choice_shared *block,
                            struct router_sums *sums)
{
    int n = GS_DECODE_ROUTER_SUMS * args.dims.n_expert / 2;
    if (gs_thread() < n)
        copy_async_16(shared_address(sums->of + 2 * gs_thread()), router_sums(args) + 2 * gs_thread());
    if (gs_thread() == n)
        copy_async_16(shared_address(block->unit), router_unit_at(args));
}

/* A lane's experts, LANE of them from LANE * lane on. n_expert is a multiple of LANE. */
template <int LANE> struct router_lane {
    float bias[LANE]; /* loaded early */
    bool has;

    __device__ __forceinline__ void early(const float *from, int n_expert)
    {
        int first = LANE * lane_of_thread();
        has = first < n_expert;
#pragma unroll
        for (int j = 0; j < LANE; j++)
            bias[j] = has ? from[first + j] : 0.0f;
    }

    /* The largest logits, ties to the lower expert. All lanes get the choice. */
    __device__ __forceinline__ void choose(const struct router_sums *sums, float unit, int n_expert,
                                           float scale, struct route *r) const
    {
        const long long *of_lane = sums->of + (has ? LANE * lane_of_thread() : 0);
        float factor = scale * gs_float_of_bits(0x7f000000u - gs_bits_of_float(unit));
        uint32_t key[LANE];
#pragma unroll
        for (int j = 0; j < LANE; j++) {
            long long all = of_lane[j];
#pragma unroll
            for (int i = 1; i < GS_DECODE_ROUTER_SUMS; i++)
                all += of_lane[j + i * n_expert];
            key[j] = has ? order_of_float(fmaf(__ll2float_rn(all), factor, bias[j])) : 0;
        }
#pragma unroll
        for (int k = 0; k < ACTIVE; k++) {
            uint32_t mine = key[0];
#pragma unroll
            for (int j = 1; j < LANE; j++)
                mine = key[j] > mine ? key[j] : mine;
            uint32_t largest = __reduce_max_sync(0xffffffffu, mine);
            int lane = __ffs((int)__ballot_sync(0xffffffffu, mine == largest)) - 1, at = 0;
#pragma unroll
            for (int j = LANE - 1; j > 0; j--)
                at = key[j - 1] == largest ? j - 1 : key[j] == largest && at == 0 ? j : at;
            if (LANE > 1)
                at = __shfl_sync(0xffffffffu, at, lane);
#pragma unroll
            for (int j = 0; j < LANE; j++)
                if (lane_of_thread() == lane && j == at)
                    key[j] = 0;
            r->order[k] = LANE * lane + at;
            r->value[k] = float_of_order(largest);
        }
        sort_order(r);
    }
};

/* Softmax over the chosen: of the k-th best in lane k. All lanes call it. */
GS_DEVICE float weight_of_lane(const struct route *r)
{
    int k = lane_of_thread() % ACTIVE;
    float weight = gs_exp(pick(r->value, k) - r->value[0]), sum = weight;
    sum += gs_shuffle_xor(sum, 1);
    sum += gs_shuffle_xor(sum, 2);
    return __fdividef(weight, sum);
}

/* Which place the k-th best, in lane k, has in ascending order of the experts. */
GS_DEVICE int place_of_lane(const struct route *r)
{
    int k = lane_of_thread() % ACTIVE, mine = pick(r->order, k), place = 0;
#pragma unroll
    for (int i = 0; i < ACTIVE; i++)
        place += r->order[i] < mine;
    return place;
}

/* The weights of the chosen in ascending order of the experts, for a warp. */
GS_DEVICE void leave_weights(float *weights, const struct route *route)
{
    float weight = weight_of_lane(route);
    int place = place_of_lane(route);
    if (lane_of_thread() < ACTIVE)
        weights[place] = weight;
    __syncwarp();
}

/* The contract's form of the choice: best first. One warp. */
GS_DEVICE void publish_choice(const struct gs_gpu_args &args, const struct route *route)
{
#ifndef GS_DECODE_CHOSEN
    float weight = weight_of_lane(route);
    if (lane_of_thread() < ACTIVE) {
        args.s.choice[lane_of_thread()] = pick(route->order, lane_of_thread());
        args.s.choice_weight[lane_of_thread()] = weight;
    }
#endif
}

#ifdef GS_DECODE_CHOSEN /* The benchmark: an earlier kernel has made the choice. */
GS_DEVICE void take_choice(const struct gs_gpu_args &args, struct route *route)
{
    int4 order = __ldcg((const int4 *)args.s.choice);
    float4 weight = __ldcg((const float4 *)args.s.choice_weight);
    route->order[0] = order.x, route->order[1] = order.y, route->order[2] = order.z,
    route->order[3] = order.w;
    route->value[0] = __logf(weight.x), route->value[1] = __logf(weight.y);
    route->value[2] = __logf(weight.z), route->value[3] = __logf(weight.w);
    sort_order(route);
}
#endif

/* What E and F need of C's results: the residual stream and, by one warp of the block, the router's sums. */
GS_DEVICE void load_choice(const struct gs_gpu_args &args, struct residual *x, struct choice_shared *block,
                           struct router_sums *sums)
{
    const float *middle =
        (const float *)((const uint8_t *)args.s.decode + gs_decode_layout_of(&args.dims).middle);
#ifdef GS_DECODE_CHOSEN
    leave_sum(block->squares, load_residual<2>(x, middle, args.dims.d_model));
#else
    fetch_router(args, block, sums);
    leave_sum(block->squares, load_residual<2>(x, middle, args.dims.d_model));
    copies_wait();
#endif
}

/* The choice from that, after a barrier of the block. Leaves the norm's factor in block->scale. */
template <int LANE>
GS_DEVICE void choose_from(const struct gs_gpu_args &args, const struct router_lane<LANE> &lane,
                           struct choice_shared *block, const struct router_sums *sums, struct route *route)
{
    float scale = norm_scale_kept(block->squares, &block->norm);
    if (gs_thread() == 0)
        block->scale = scale;
#ifdef GS_DECODE_CHOSEN
    take_choice(args, route);
#else
    lane.choose(sums, block->unit[0], args.dims.n_expert, scale, route);
#endif
}

#endif
