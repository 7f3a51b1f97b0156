/* What the batch kernels share: norms of rows, and activations as the B operand of mma.m16n8k16. */
#ifndef GS_BACKEND_GPU_BATCH_CUH
#define GS_BACKEND_GPU_BATCH_CUH

#include "backend/gpu/batch_launch.h"
#include "backend/gpu/decode_stream.cuh"

/* Codes are read as value * 2^-126: activations that meet them carry 2^64, results get the rest back. */
#define EXPERT_SCALE 0x1p64f
#define RESULT_SCALE 0x1p62f

GS_DEVICE struct u32x4 load_global_16(const void *at)
{
    struct u32x4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at));
    return v;
}

/* Activations, which an earlier kernel wrote: through L2. */
GS_DEVICE struct u32x4 load_fresh_16(const void *at)
{
    struct u32x4 v;
    asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at)
                 : "memory");
    return v;
}

/* 1/rms of hidden row x [n], by a block of GS_BATCH_THREADS; in a fixed order. */
GS_DEVICE float rms_of_row(const float *x, int n, float eps, float *shared)
{
    float sum = 0.0f;
    for (int i = gs_thread(); i < n; i += GS_BATCH_THREADS) {
        float value = load_fresh(x + i);
        sum += value * value;
    }
    sum = gs_warp_sum(sum);
    if (lane_of_thread() == 0)
        shared[warp_of_thread()] = sum;
    gs_sync();
    sum = 0.0f;
#pragma unroll
    for (int w = 0; w < GS_BATCH_WARPS; w++)
        sum += shared[w];
    return 1.0f / gs_sqrt(sum / (float)n + eps);
}

#endif
