// Kernels that compile, and are wrong: each must give something else or stop (test_metal_sim.c names their lines).
#include <metal_stdlib>
using namespace metal;

kernel void barrier_missing(device float *out [[buffer(0)]], uint tid [[thread_position_in_threadgroup]])
{
    threadgroup float shared[64];
    shared[tid] = float(tid);
    out[tid] = shared[63 - tid];
}

kernel void barrier_missing_at_loop_end(device float *out [[buffer(0)]], uint tid [[thread_position_in_threadgroup]])
{
    threadgroup float shared[65];
    float sum = 0.0f;
    for (uint round = 0; round < 4; round++) {
        shared[tid] = float(round * tid);
        if (tid == 0)
            shared[64] = 0.0f;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        sum += shared[tid + 1];
    }
    out[tid] = sum;
}

kernel void barrier_under_condition(device float *out [[buffer(0)]], uint tid [[thread_position_in_threadgroup]])
{
    float x = float(tid);
    if (tid < 16)
        threadgroup_barrier(mem_flags::mem_threadgroup); // line 30
    out[tid] = simd_sum(x);                              // line 31
}

kernel void barrier_not_for_all(device float *out [[buffer(0)]], uint tid [[thread_position_in_threadgroup]])
{
    if (tid < 32)
        threadgroup_barrier(mem_flags::mem_threadgroup); // line 37
    out[tid] = 1.0f;
}

kernel void lane_returns(device float *out [[buffer(0)]], uint tid [[thread_position_in_threadgroup]])
{
    if (tid == 3)
        return;
    out[tid] = simd_sum(1.0f); // line 45
}

kernel void read_past_end(device float *out [[buffer(0)]], const device float *in [[buffer(1)]],
                          uint tid [[thread_position_in_threadgroup]])
{
    out[tid] = in[tid + 1];
}

kernel void write_past_end(device float *out [[buffer(0)]], uint tid [[thread_position_in_threadgroup]])
{
    out[tid + 1] = 1.0f;
}

kernel void write_before_start(device float *out [[buffer(0)]], uint tid [[thread_position_in_threadgroup]])
{
    device float *before = out - 1;
    before[tid] = 1.0f;
}

kernel void index_past_array(device float *out [[buffer(0)]], uint tid [[thread_position_in_threadgroup]])
{
    threadgroup float shared[63];
    shared[tid] = float(tid);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[tid] = shared[tid / 2];
}

kernel void pointer_past_array(device float *out [[buffer(0)]], uint tid [[thread_position_in_threadgroup]])
{
    threadgroup float shared[60];
    threadgroup float *at = shared;
    at[tid] = float(tid);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[tid] = at[tid / 2];
}

kernel void too_much_shared(device float *out [[buffer(0)]], uint tid [[thread_position_in_threadgroup]])
{
    threadgroup float a[4096];
    threadgroup float b[4097];
    a[tid] = b[tid] = 1.0f;
    out[tid] = a[tid];
}

kernel void given_shared(device float *out [[buffer(0)]], threadgroup float *shared [[threadgroup(0)]],
                         uint tid [[thread_position_in_threadgroup]])
{
    shared[tid] = 1.0f;
    out[tid] = shared[tid];
}

kernel void matrix_without_value(device float *out [[buffer(0)]])
{
    simdgroup_float8x8 a;
    simdgroup_store(a, out, 8);
}

kernel void half_a_simdgroup(device float *out [[buffer(0)]])
{
    simdgroup_float8x8 a = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
    simdgroup_store(a, out, 8); // line 106
}

struct pair {
    float4 a, b;
};
kernel void reads_reference(device float *out [[buffer(0)]], constant pair &both [[buffer(1)]])
{
    out[0] = both.a.x;
}

[[max_total_threads_per_threadgroup(32)]] kernel void at_most_32(device float *out [[buffer(0)]])
{
    out[0] = 1.0f;
}
