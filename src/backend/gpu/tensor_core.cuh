/*
 * The warp's tensor-core instruction on bfloat16 (mma.sync), and its operands. PTX of sm_80 and later.
 */
#ifndef GS_BACKEND_GPU_TENSOR_CORE_CUH
#define GS_BACKEND_GPU_TENSOR_CORE_CUH

#include "backend/gpu/gpu.h"

/* c[16 rows][8 columns] += a[16][16] b[16][8]; bfloat16 operands, float32 sums. */
GS_DEVICE void mma_bf16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Two floats rounded to bfloat16, nearest even, the first in the low half. */
GS_DEVICE uint32_t pack_bf16(float low, float high)
{
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

#endif
