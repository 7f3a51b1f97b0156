/*
 * Products of an expert's MXFP4 rows with one vector. Two lanes share a group of 32: a lane takes eight bytes
 * of codes at a time, sixteen columns. Every expert of a row is a plane of the grid (gate and up), or summed
 * by the owner of the output, in ascending order (down).
 */

/* Eight bytes of codes. */
static inline uint2 load_codes(const device uchar *codes)
{
    if (!gs_scalar_load)
        return *(const device uint2 *)codes;
    uint2 words = uint2(0, 0);
    for (uint i = 0; i < 4; i++) {
        words.x |= (uint)codes[i] << 8 * i;
        words.y |= (uint)codes[4 + i] << 8 * i;
    }
    return words;
}

/*
 * Four bytes of codes -> eight values times 2^-14. A code's three lower bits are exponent and mantissa of a
 * half when they stand in bits 9 to 11, its upper bit is the sign. All four bytes at once: twice the code,
 * plus 0x70, has the sign where it belongs, and the mask drops the rest.
 */
static inline void decode_codes(uint codes, thread float4 *first, thread float4 *second)
{
    uint even = ((codes << 1 & 0x1e1e1e1eu) + 0x70707070u) & 0x8e8e8e8eu;
    uint odd = ((codes >> 3 & 0x1e1e1e1eu) + 0x70707070u) & 0x8e8e8e8eu;
    half2 e04 = as_type<half2>(even << 8 & 0xff00ff00u), e26 = as_type<half2>(even & 0xff00ff00u);
    half2 e15 = as_type<half2>(odd << 8 & 0xff00ff00u), e37 = as_type<half2>(odd & 0xff00ff00u);
    *first = float4((float)e04.x, (float)e15.x, (float)e26.x, (float)e37.x);
    *second = float4((float)e04.y, (float)e15.y, (float)e26.y, (float)e37.y);
}

/* 2^14 * 2^(scale - 127), what decode_codes lacks. Scales beyond 240, 2^113, count as 240. */
static inline float decode_scale(uchar scale)
{
    return as_type<float>(min((uint)scale + 14u, 254u) << 23);
}

/*
 * sums[r] = row first + r (clamped to the last) of the expert's rows, counted over experts from `base`, times
 * x, over the columns of `part`; the same in every lane.
 */
template <uint R>
static inline void expert_dots(const device uchar *codes, const device uchar *scales, ulong base, uint first,
                               uint n_row, uint columns, const device float *x, uint part, uint n_part,
                               uint lane, thread float *sums)
{
    ulong row[R];
    float total[R];
    for (uint r = 0; r < R; r++) {
        row[r] = (base + min(first + r, n_row - 1)) * (columns / 32);
        total[r] = 0.0f;
    }
    for (uint h = part * GS_METAL_LANES + lane; h < columns / 16; h += n_part * GS_METAL_LANES) {
        const device float4 *in = (const device float4 *)(x + h * 16);
        float4 x0 = in[0], x1 = in[1], x2 = in[2], x3 = in[3];
#pragma clang loop unroll(full)
        for (uint r = 0; r < R; r++) {
            uint2 words = load_codes(codes + row[r] * 16 + h * 8);
            float4 w0, w1, w2, w3;
            decode_codes(words.x, &w0, &w1);
            decode_codes(words.y, &w2, &w3);
            float4 s = fma(w3, x3, fma(w2, x2, fma(w1, x1, w0 * x0)));
            total[r] = fma((s.x + s.y) + (s.z + s.w), decode_scale(scales[row[r] + h / 2]), total[r]);
        }
    }
#pragma clang loop unroll(full)
    for (uint r = 0; r < R; r++)
        sums[r] = simd_sum(total[r]);
}

/* The clamped SwiGLU: gate from above only, up on both sides, and one added to up. */
static inline float swiglu(constant gs_metal_args &args, float gate, float up)
{
    if (gs_control != GS_METAL_CONTROL_SWIGLU_CLAMP) {
        gate = min(gate, args.swiglu_limit);
        up = clamp(up, -args.swiglu_limit, args.swiglu_limit);
    }
    /* The gate has no lower limit: the exponential must not leave float. */
    float sigmoid = 1.0f / (1.0f + precise::exp(min(-(gate * args.swiglu_alpha), 80.0f)));
    return (gs_control == GS_METAL_CONTROL_SWIGLU_PLUS_ONE ? up : up + 1.0f) * (gate * sigmoid);
}

/* A set of SIMD-groups takes two units: gate, up, gate, up. Grid: rows, units, active experts. */
[[max_total_threads_per_threadgroup(GS_METAL_THREADS)]] kernel void gs_moe_gate_up_mxfp4_f32(
    constant gs_metal_args &args [[buffer(GS_METAL_ARGS)]],
    const device float *normed [[buffer(GS_METAL_NORMED)]],
    const device gs_metal_active *active [[buffer(GS_METAL_ACTIVE)]],
    device float *activated [[buffer(GS_METAL_ACTIVATED)]],
    const device uchar *codes [[buffer(GS_METAL_WEIGHT_0)]],
    const device uchar *scales [[buffer(GS_METAL_WEIGHT_1)]],
    const device float *bias [[buffer(GS_METAL_BIAS_0)]],
    device atomic_uint *past_limit [[buffer(GS_METAL_OUT)]], uint3 group [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    threadgroup float shared[GS_METAL_SIMDGROUPS * GS_METAL_SET_ROWS];
    uint t = args.first_row + group.x, rank = args.first_rank + group.z, n_row = 2 * args.d_ff;
    uint sets = GS_METAL_SIMDGROUPS / gs_mxfp4_simdgroups;
    uint first = (group.y * sets + simdgroup / gs_mxfp4_simdgroups) * GS_METAL_SET_ROWS;
    ulong route = (ulong)t * args.n_active + rank;
    ulong base = (ulong)active[route].expert * n_row;
    float sums[GS_METAL_SET_ROWS];
    expert_dots<GS_METAL_SET_ROWS>(codes, scales, base, first, n_row, args.d_model,
                                   normed + (ulong)t * args.d_model, simdgroup % gs_mxfp4_simdgroups,
                                   gs_mxfp4_simdgroups, lane, sums);
    join_parts(sums, GS_METAL_SET_ROWS, shared, simdgroup, lane, gs_mxfp4_simdgroups);
    uint unit = first / 2 + lane;
    if (simdgroup % gs_mxfp4_simdgroups != 0 || lane >= 2 || unit >= args.d_ff)
        return;
    float gate = (lane == 0 ? sums[0] : sums[2]) + bias[base + 2 * unit];
    float up = (lane == 0 ? sums[1] : sums[3]) + bias[base + 2 * unit + 1];
    if (gs_control == GS_METAL_CONTROL_SWIGLU_CLAMP) {
        float limit = args.swiglu_limit;
        uint n = (gate > limit ? 1u : 0u) + (up > limit || up < -limit ? 1u : 0u);
        atomic_fetch_add_explicit(past_limit, n, memory_order_relaxed);
    }
    activated[route * args.d_ff + unit] = swiglu(args, gate, up);
}

/*
 * Rows of down for one expert after another, their biases and weights, and with the last expert the residual.
 * What experts before first_rank gave stands in `projected`. Grid: rows, output rows.
 */
[[max_total_threads_per_threadgroup(GS_METAL_THREADS)]] kernel void gs_moe_down_mxfp4_f32(
    constant gs_metal_args &args [[buffer(GS_METAL_ARGS)]], device float *hidden [[buffer(GS_METAL_HIDDEN)]],
    const device gs_metal_active *active [[buffer(GS_METAL_ACTIVE)]],
    const device float *activated [[buffer(GS_METAL_ACTIVATED)]],
    device float *projected [[buffer(GS_METAL_PROJECTED)]],
    const device uchar *codes [[buffer(GS_METAL_WEIGHT_0)]],
    const device uchar *scales [[buffer(GS_METAL_WEIGHT_1)]],
    const device float *bias [[buffer(GS_METAL_BIAS_0)]], uint3 group [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    /* Two halves in turn, so that one barrier an expert is enough. */
    threadgroup float shared[2 * GS_METAL_SIMDGROUPS * GS_METAL_DOWN_ROWS];
    uint t = args.first_row + group.x;
    uint sets = GS_METAL_SIMDGROUPS / gs_mxfp4_simdgroups;
    uint first = (group.y * sets + simdgroup / gs_mxfp4_simdgroups) * GS_METAL_DOWN_ROWS;
    /* Lane r of part 0 owns row first + r. */
    bool owns =
        simdgroup % gs_mxfp4_simdgroups == 0 && lane < GS_METAL_DOWN_ROWS && first + lane < args.d_model;
    ulong at = (ulong)t * args.d_model + first + lane;
    float total = owns && args.first_rank > 0 ? projected[at] : 0.0f;
    for (uint rank = args.first_rank; rank < args.first_rank + args.n_ranks; rank++) {
        ulong route = (ulong)t * args.n_active + rank;
        ulong base = (ulong)active[route].expert * args.d_model;
        float sums[GS_METAL_DOWN_ROWS];
        expert_dots<GS_METAL_DOWN_ROWS>(codes, scales, base, first, args.d_model, args.d_ff,
                                        activated + route * args.d_ff, simdgroup % gs_mxfp4_simdgroups,
                                        gs_mxfp4_simdgroups, lane, sums);
        join_parts(sums, GS_METAL_DOWN_ROWS, shared + rank % 2 * (GS_METAL_SIMDGROUPS * GS_METAL_DOWN_ROWS),
                   simdgroup, lane, gs_mxfp4_simdgroups);
        if (owns)
            total =
                fma((lane == 0 ? sums[0] : sums[1]) + bias[base + first + lane], active[route].weight, total);
    }
    if (!owns)
        return;
    projected[at] = total;
    if (args.first_rank + args.n_ranks == args.n_active)
        hidden[at] += total;
}
