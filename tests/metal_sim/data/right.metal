// Kernels that are right: the simulator must agree with plain C on each (test_metal_sim.c).
#include <metal_stdlib>
using namespace metal;

constant uint n_column [[function_constant(0)]];
constant bool with_bias [[function_constant(1)]];

#define WIDTH 4
#define HEIGHT 8

constant float code_values[16] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0};

// y[row] = w[row] . x + bias[row]; a SIMD-group a row, x in half in threadgroup memory.
kernel void mxfp4_row(const device uchar *codes [[buffer(0)]], const device uchar *scales [[buffer(1)]],
                      const device float *x [[buffer(2)]], const device bfloat *bias [[buffer(3)]],
                      device float *y [[buffer(4)]], constant uint &n_row [[buffer(5)]],
                      uint tid [[thread_index_in_threadgroup]], uint group [[threadgroup_position_in_grid]],
                      uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                      uint n_simdgroup [[simdgroups_per_threadgroup]], uint n_thread [[threads_per_threadgroup]])
{
    threadgroup half shared[WIDTH * 32 * HEIGHT];
    threadgroup half values[16];
    for (uint i = tid; i < n_column; i += n_thread)
        shared[i] = half(x[i]);
    if (tid < 16)
        values[tid] = half(code_values[tid]);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint row = group * n_simdgroup + simdgroup;
    if (row >= n_row)
        return;
    float sum = 0.0;
    for (uint column = lane * 2; column < n_column; column += 64) {
        const uchar pair = codes[(row * n_column + column) / 2];
        const uint scale = scales[(row * n_column + column) / 32];
        const float factor = as_type<float>(scale << 23);
        const float2 w = float2(float(values[pair & 15u]), float(values[pair >> 4])) * factor;
        sum += dot(w, float2(float(shared[column]), float(shared[column + 1])));
    }
    sum = simd_sum(sum);
    if (lane == 0)
        y[row] = with_bias ? sum + float(bias[row]) : sum;
}

kernel void rms_norm(const device float4 *x [[buffer(0)]], device float4 *y [[buffer(1)]],
                     constant uint &n [[buffer(2)]], uint tid [[thread_position_in_threadgroup]],
                     uint n_thread [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                     uint simdgroup [[simdgroup_index_in_threadgroup]], uint n_simdgroup [[simdgroups_per_threadgroup]])
{
    threadgroup float sums[32];
    float4 sum4 = 0.0f;
    for (uint i = tid; i < n / 4; i += n_thread)
        sum4 = fma(x[i], x[i], sum4);
    float sum = simd_sum(sum4.x + sum4.y + sum4.z + sum4.w);
    if (simd_is_first())
        sums[simdgroup] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum = simd_sum(lane < n_simdgroup ? sums[lane] : 0.0f);
    const float scale = precise::rsqrt(sum / float(n) + 1e-5f);
    for (uint i = tid; i < n / 4; i += n_thread)
        y[i] = x[i] * scale;
}

// c [16][16] = a [16][24] * b^T, b [16][24], half factors, float sums; a SIMD-group an 8 x 8 tile.
kernel void matrix_product(const device half *a [[buffer(0)]], const device half *b [[buffer(1)]],
                           device float *c [[buffer(2)]], uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    threadgroup float tile[4 * 64];
    const uint row = simdgroup / 2 * 8, column = simdgroup % 2 * 8;
    simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (uint k = 0; k < 24; k += 8) {
        simdgroup_half8x8 left, right;
        simdgroup_load(left, a, 24, ulong2(k, row));
        simdgroup_load(right, b, 24, ulong2(k, column), true);
        simdgroup_multiply_accumulate(sum, left, right, sum);
    }
    simdgroup_float8x8 twice(2.0f); // a diagonal
    simdgroup_multiply(sum, sum, twice);
    simdgroup_store(sum, tile + simdgroup * 64, 8);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_load(sum, tile + simdgroup * 64, 8);
    simdgroup_store(sum, c, 16, ulong2(column, row));
}

// How often each of 8 values occurs, and the largest index of the last.
kernel void histogram(const device uint *x [[buffer(0)]], device atomic_uint *counts [[buffer(1)]],
                      device atomic_uint *largest [[buffer(2)]], uint i [[thread_position_in_grid]],
                      uint tid [[thread_position_in_threadgroup]])
{
    threadgroup atomic_uint own[8];
    if (tid < 8)
        atomic_store_explicit(&own[tid], 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    atomic_fetch_add_explicit(&own[x[i]], 1u, memory_order_relaxed);
    if (x[i] == 7)
        atomic_fetch_max_explicit(largest, i, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tid < 8)
        atomic_fetch_add_explicit(&counts[tid], atomic_load_explicit(&own[tid], memory_order_relaxed),
                                  memory_order_relaxed);
}

// Each attribute, for a grid of three dimensions.
kernel void positions(device uint *out [[buffer(0)]], uint3 in_grid [[thread_position_in_grid]],
                      uint3 in_group [[thread_position_in_threadgroup]], uint3 group [[threadgroup_position_in_grid]],
                      uint3 grid [[threads_per_grid]], uint3 size [[threads_per_threadgroup]],
                      uint3 groups [[threadgroups_per_grid]], uint index [[thread_index_in_threadgroup]],
                      ushort lane [[thread_index_in_simdgroup]], uint width [[threads_per_simdgroup]])
{
    const uint at = in_grid.x + grid.x * (in_grid.y + grid.y * in_grid.z);
    const bool right = all(in_grid == group * size + in_group) && all(grid == groups * size) &&
                       index == in_group.x + size.x * (in_group.y + size.y * in_group.z) && lane == index % 32 &&
                       width == 32;
    out[at] = right ? at + 1 : 0;
}

// What simd functions give, from the lane number.
kernel void simd_functions(device float *out [[buffer(0)]], uint lane [[thread_index_in_simdgroup]])
{
    const float x = float(lane);
    float right = 0.0f;
    right += simd_max(x) == 31.0f;
    right += simd_min(x + 3.0f) == 3.0f;
    right += simd_shuffle_xor(x, 5) == float(lane ^ 5);
    const float before = simd_shuffle_up(x, 1); // not under a condition: || would split the SIMD-group
    right += lane == 0 || before == x - 1.0f;
    right += simd_broadcast(x, 9) == 9.0f;
    right += simd_broadcast_first(x) == 0.0f;
    right += simd_prefix_inclusive_sum(lane) == lane * (lane + 1) / 2;
    right += simd_prefix_exclusive_sum(1u) == lane;
    const bool any_30 = simd_any(lane == 30), all_30 = simd_all(lane == 30);
    right += any_30 && !all_30;
    right += simd_or(1u << lane) == 0xffffffffu;
    const float2 both = simd_sum(float2(1.0f, x));
    right += both.x == 32.0f && both.y == 496.0f;
    right += popcount(lane) == simd_shuffle(popcount(lane), lane);
    right += rotate(0x80000001u, 1u) == 3u && subsat(3u, 5u) == 0u && clz(1u) == 31u;
    right += as_type<half>(ushort(0x3c00)) == 1.0h && float(bfloat(1.00390625f)) == 1.0f;
    // Half rounds after each operation: 2048 + 1 is 2048.
    half big = half(2048.0f + x * 0.0f);
    big += 1.0h;
    right += big - 2048.0h == 0.0h;
    out[lane] = right;
}
