/* The router: norm, logits, choice. */

#define GS_ROUTER_SETS (GS_METAL_ROUTER_THREADS / GS_METAL_LANES)

/*
 * The n_active largest logits, best first, ties to the lower expert, and the softmax over these alone; lane k
 * holds slot k. One SIMD-group; lane l owns logits l, l + 32, ... and marks what it has given.
 */
static inline void choose(constant gs_metal_args &args, threadgroup float *logits, uint lane, uint t,
                          device int *choice, device float *choice_weight, device gs_metal_active *active)
{
    uint mine = 0;
    float logit = GS_LOWEST, all = 0.0f, highest = 2.0f * GS_LOWEST;
    if (gs_control == GS_METAL_CONTROL_ROUTER_SOFTMAX) {
        for (uint e = lane; e < args.n_expert; e += GS_METAL_LANES)
            highest = max(highest, logits[e]);
        highest = simd_max(highest);
        for (uint e = lane; e < args.n_expert; e += GS_METAL_LANES)
            all += precise::exp(logits[e] - highest);
        all = simd_sum(all);
    }
    for (uint k = 0; k < args.n_active; k++) {
        float best = 2.0f * GS_LOWEST;
        uint at = 0xffffffffu;
        for (uint e = lane; e < args.n_expert; e += GS_METAL_LANES)
            if (logits[e] > best) {
                best = logits[e];
                at = e;
            }
        float top = simd_max(best);
        /* Logits that are not numbers compare as nothing: any expert will do, the output will show it. */
        at = min(simd_min(best == top ? at : 0xffffffffu), args.n_expert - 1);
        if (at % GS_METAL_LANES == lane)
            logits[at] = 2.0f * GS_LOWEST;
        if (lane == k) {
            mine = at;
            logit = top;
        }
    }
    float largest = simd_max(logit); /* by all lanes, not only by those with a slot */
    float weight = lane < args.n_active ? precise::exp(logit - largest) : 0.0f;
    float sum = simd_sum(weight);
    weight /= gs_control == GS_METAL_CONTROL_ROUTER_SOFTMAX ? all : sum;
    uint rank = 0;
    for (uint k = 0; k < args.n_active; k++) {
        uint other = simd_shuffle(mine, (ushort)k);
        rank += (other < mine || (other == mine && k < lane)) ? 1 : 0;
    }
    if (lane >= args.n_active)
        return;
    ulong row = (ulong)t * args.n_active;
    choice[row + lane] = (int)mine;
    choice_weight[row + lane] = weight;
    active[row + rank].expert = (int)mine;
    active[row + rank].weight = weight;
}

/* A threadgroup is a row: every SIMD-group takes two experts at a time. Grid: rows. */
[[max_total_threads_per_threadgroup(GS_METAL_ROUTER_THREADS)]] kernel void gs_router(
    constant gs_metal_args &args [[buffer(GS_METAL_ARGS)]],
    const device float *hidden [[buffer(GS_METAL_HIDDEN)]], device float *normed [[buffer(GS_METAL_NORMED)]],
    device float *router [[buffer(GS_METAL_ROUTER_LOGITS)]], device int *choice [[buffer(GS_METAL_CHOICE)]],
    device float *choice_weight [[buffer(GS_METAL_CHOICE_WEIGHT)]],
    device gs_metal_active *active [[buffer(GS_METAL_ACTIVE)]],
    const device float *norm [[buffer(GS_METAL_NORM_WEIGHT)]],
    const device uchar *matrix [[buffer(GS_METAL_WEIGHT_0)]],
    const device float *bias [[buffer(GS_METAL_BIAS_0)]], uint3 group [[threadgroup_position_in_grid]],
    uint3 thread_at [[thread_position_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    threadgroup float logits[GS_METAL_MAX_EXPERTS];
    uint t = args.first_row + group.x;
    const device float *x = hidden + (ulong)t * args.d_model;
    float scale = 0.0f;
    /* A SIMD-group without experts of its own still needs the scale. */
    for (uint e = simdgroup * 2; e < args.n_expert || e == simdgroup * 2; e += GS_ROUTER_SETS * 2) {
        dense_row w[2];
        for (uint r = 0; r < 2; r++)
            w[r] = find_row(matrix, args.type[0], args.scales_at[0], min(e + r, args.n_expert - 1),
                            args.d_model);
        float sums[3];
        dense_dots<2, true>(w, x, norm, args.d_model, 0, 1, lane, sums);
        scale = norm_scale(args, sums[2]);
        if (lane < 2 && e + lane < args.n_expert) {
            float logit = fma(lane == 0 ? sums[0] : sums[1], scale, bias[e + lane]);
            logits[e + lane] = logit;
            router[(ulong)t * args.n_expert + e + lane] = logit;
        }
    }
    for (uint i = thread_at.x; i < args.d_model; i += GS_METAL_ROUTER_THREADS)
        normed[(ulong)t * args.d_model + i] = norm[i] * (x[i] * scale);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simdgroup == 0)
        choose(args, logits, lane, t, choice, choice_weight, active);
}
