/* What all kernels share: constants of the specialisation, numbers in their stored forms, sums. */
#include <metal_stdlib>

using namespace metal;

constant uint gs_simdgroups [[function_constant(GS_METAL_CONSTANT_SIMDGROUPS)]];
constant uint gs_mxfp4_simdgroups [[function_constant(GS_METAL_CONSTANT_MXFP4_SIMDGROUPS)]];
constant bool gs_scalar_load [[function_constant(GS_METAL_CONSTANT_SCALAR_LOAD)]];
constant bool gs_kv_f32 [[function_constant(GS_METAL_CONSTANT_KV_F32)]];
constant uint gs_control [[function_constant(GS_METAL_CONSTANT_CONTROL)]];

/* Below every score and logit, and far enough from the end of float that differences stay finite. */
#define GS_LOWEST (-1.0e30f)

/* ---------------------------------------------------------------- bfloat16, by its bits */

static inline float float_of_bf16(ushort bits)
{
    return as_type<float>((uint)bits << 16);
}

static inline float4 float4_of_bf16(ushort4 bits)
{
    return float4(float_of_bf16(bits.x), float_of_bf16(bits.y), float_of_bf16(bits.z), float_of_bf16(bits.w));
}

/* To nearest even; what is not a number stays so. */
static inline ushort bf16_of_float(float value)
{
    uint bits = as_type<uint>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (ushort)0x7fc0u;
    return (ushort)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* A factor of a tile product: half has no room beyond 65504. */
static inline half half_of_float(float value)
{
    return (half)clamp(value, -65504.0f, 65504.0f);
}

/* ---------------------------------------------------------------- sums over cooperating SIMD-groups */

/*
 * sums [n], the same in every lane of a SIMD-group -> in those of part 0 the sum over the n_part SIMD-groups
 * that follow one another, in their order. `shared`: n floats for each SIMD-group of the threadgroup. All
 * threads of the threadgroup call it, and meet a barrier before `shared` is written again.
 */
static inline void join_parts(thread float *sums, uint n, threadgroup float *shared, uint simdgroup,
                              uint lane, uint n_part)
{
    if (n_part <= 1)
        return;
    if (lane == 0)
        for (uint i = 0; i < n; i++)
            shared[simdgroup * n + i] = sums[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simdgroup % n_part == 0)
        for (uint part = 1; part < n_part; part++)
            for (uint i = 0; i < n; i++)
                sums[i] += shared[(simdgroup + part) * n + i];
}

/* ---------------------------------------------------------------- the cache */

static inline ulong kv_index(constant gs_metal_args &args, uint n_slot, uint kv_head, uint position)
{
    return ((ulong)kv_head * n_slot + position % n_slot) * args.d_head;
}

static inline void kv_write(device uchar *data, ulong at, float value)
{
    if (gs_kv_f32)
        ((device float *)data)[at] = value;
    else
        ((device ushort *)data)[at] = bf16_of_float(value);
}

static inline float kv_read(const device uchar *data, ulong at)
{
    return gs_kv_f32 ? ((const device float *)data)[at] : float_of_bf16(((const device ushort *)data)[at]);
}

/* `at` a multiple of 4. */
static inline float4 kv_read4(const device uchar *data, ulong at)
{
    if (gs_kv_f32)
        return ((const device float4 *)data)[at / 4];
    return float4_of_bf16(((const device ushort4 *)data)[at / 4]);
}

/* The first position that a row at `position` sees. */
static inline uint first_visible(constant gs_metal_args &args, uint position)
{
    return args.window > 0 && position >= args.window ? position - args.window + 1 : 0;
}
