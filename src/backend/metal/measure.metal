/* For the verifier and the benchmarks. */

/*
 * Code and scale to the bits of the float, which may be subnormal: by integers alone, since the device may
 * flush such numbers to zero. value = n * 2^(scale - 128), n = 0, 1, 2, 3, 4, 6, 8, 12.
 */
static inline uint dequantized_bits(uint code, uint scale)
{
    uint sign = (code & 8u) << 28, magnitude = code & 7u;
    if (magnitude == 0)
        return sign;
    if (scale == 255u)
        return sign | 0x7fc00000u;
    /* n = 2^power, or 1.5 times that. */
    uint power = magnitude >> 1;
    uint half_bit = magnitude > 1 && (magnitude & 1u) != 0 ? 1u : 0u;
    uint exponent = scale + power; /* biased, plus 1 */
    if (exponent > 255u)
        return sign | 0x7f800000u;
    if (exponent > 1u)
        return sign | (exponent - 1u) << 23 | half_bit << 22;
    uint n = half_bit != 0 ? 3u << (power - 1u) : 1u << power;
    return sign | n << (scale + 21u);
}

/* Grid: rows. */
[[max_total_threads_per_threadgroup(GS_METAL_THREADS)]] kernel void gs_dequantize_mxfp4(
    constant gs_metal_args &args [[buffer(GS_METAL_ARGS)]],
    const device uchar *codes [[buffer(GS_METAL_WEIGHT_0)]],
    const device uchar *scales [[buffer(GS_METAL_WEIGHT_1)]], device uint *out [[buffer(GS_METAL_OUT)]],
    uint3 group [[threadgroup_position_in_grid]], uint3 thread_at [[thread_position_in_threadgroup]])
{
    ulong row = (ulong)args.matrix_row + group.x;
    const device uchar *row_codes = codes + row * (args.columns / 2);
    const device uchar *row_scales = scales + row * (args.columns / 32);
    device uint *to = out + (ulong)group.x * args.columns;
    for (uint i = thread_at.x; i < args.columns / 2; i += GS_METAL_THREADS) {
        uint both = row_codes[i], scale = row_scales[i / 16];
        to[2 * i] = dequantized_bits(both & 15u, scale);
        to[2 * i + 1] = dequantized_bits(both >> 4, scale);
    }
}

/* Reads n_words words and keeps their sum, so that none can be left out. Grid: gs_metal_read_groups. */
[[max_total_threads_per_threadgroup(GS_METAL_THREADS)]] kernel void gs_read_words(
    constant gs_metal_args &args [[buffer(GS_METAL_ARGS)]], const device uint4 *in [[buffer(GS_METAL_IN)]],
    device uint *out [[buffer(GS_METAL_OUT)]], uint3 group [[threadgroup_position_in_grid]],
    uint3 thread_at [[thread_position_in_threadgroup]])
{
    uint n_thread =
        min(max(args.n_words / GS_METAL_THREADS / 16, 1u), (uint)GS_METAL_READ_GROUPS) * GS_METAL_THREADS;
    uint id = group.x * GS_METAL_THREADS + thread_at.x;
    uint4 sum = uint4(0, 0, 0, 0);
    uint i = id;
    for (; i + 3 * n_thread < args.n_words; i += 4 * n_thread)
        sum += (in[i] + in[i + n_thread]) + (in[i + 2 * n_thread] + in[i + 3 * n_thread]);
    for (; i < args.n_words; i += n_thread)
        sum += in[i];
    out[id] = (sum.x + sum.y) + (sum.z + sum.w);
}

[[max_total_threads_per_threadgroup(GS_METAL_LANES)]] kernel void gs_empty(constant gs_metal_args &args
                                                                           [[buffer(GS_METAL_ARGS)]])
{
    (void)args;
}
