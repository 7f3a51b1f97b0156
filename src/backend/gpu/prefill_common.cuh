/*
 * What the prefill kernels share: asynchronous copies into swizzled shared memory, the fragments that the
 * warp's tensor-core instruction takes, and small conversions. NVIDIA alone: everything here is PTX of sm_80
 * and later.
 *
 * Fragment coordinates, used all over: lane = 4*g + q. Of a 16 x 8 accumulator a lane holds
 *   c[0], c[1] = row g, columns 2q and 2q+1;   c[2], c[3] = row g+8, the same columns.
 */
#ifndef GS_BACKEND_GPU_PREFILL_COMMON_CUH
#define GS_BACKEND_GPU_PREFILL_COMMON_CUH

#include "backend/gpu/gpu.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/prefill_launch.h"
#include "backend/gpu/shared_memory.cuh"
#include "backend/gpu/tensor_core.cuh"

#define TILE_K           64 /* columns of a shared-memory tile: 128 bytes of bfloat16 */
#define TILE_BYTES(rows) ((rows)*TILE_K * 2)

/* Where 16-byte chunk `chunk` (0 ... 7) of row `row` lies in a tile: the 128-byte swizzle of the hardware. */
GS_DEVICE uint32_t tile_offset(int row, int chunk)
{
    return (uint32_t)(row * 128 + ((chunk ^ (row & 7)) << 4));
}

GS_DEVICE void copy_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int PENDING> GS_DEVICE void copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

GS_DEVICE void load_matrix_4(uint32_t r[4], uint32_t shared)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared)
                 : "memory");
}

GS_DEVICE void load_matrix_4_transposed(uint32_t r[4], uint32_t shared)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared)
                 : "memory");
}

GS_DEVICE float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The A fragment (16 x 16) at `row`, k16 step `step`, of a swizzled tile. */
GS_DEVICE void load_a_fragment(uint32_t a[4], uint32_t tile, int row, int step, int lane)
{
    int r = row + (lane & 15), chunk = step * 2 + (lane >> 4);
    load_matrix_4(a, tile + tile_offset(r, chunk));
}

/* B fragments of columns `row` ... +15 (b[0], b[1]: the first eight; b[2], b[3]: the others). */
GS_DEVICE void load_b_fragments(uint32_t b[4], uint32_t tile, int row, int step, int lane)
{
    int r = row + (lane & 7) + ((lane >> 4) << 3), chunk = step * 2 + ((lane >> 3) & 1);
    load_matrix_4(b, tile + tile_offset(r, chunk));
}

/*
 * Inside each 32 columns of what the expert products read, activations lie in the order in which a lane finds
 * its eight codes in one 32-bit word: nibbles j and j+4 of word q are a pair of neighbours at 8*j + 2*q.
 */
GS_DEVICE int permuted_column(int k)
{
    int in_block = k & 31;
    return (k & ~31) | (in_block & 3) << 3 | (in_block >> 3) << 1 | ((in_block >> 2) & 1);
}

/*
 * Eight e2m1 codes (one word: elements 8q ... 8q+7 of a group) to four pairs of bfloat16, times
 * 2^(scale-127), exactly. A code moved to sign and upper mantissa bits is the value * 2^-126, subnormals
 * included; `factor` is 2^(scale-1) in both halves, or 2^127 and `again` the rest where that overflows.
 */
GS_DEVICE uint32_t multiply_bf16_pairs(uint32_t a, uint32_t b)
{
    uint32_t product;
#if __CUDA_ARCH__ >= 900
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
#else
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
#endif
    return product;
}

GS_DEVICE void decode_codes(uint32_t out[4], uint32_t word, uint32_t scale)
{
    uint32_t pairs[4] = {
        ((word << 12) & 0x80008000u) | ((word << 6) & 0x01C001C0u),
        ((word << 8) & 0x80008000u) | ((word << 2) & 0x01C001C0u),
        ((word << 4) & 0x80008000u) | ((word >> 2) & 0x01C001C0u),
        (word & 0x80008000u) | ((word >> 6) & 0x01C001C0u),
    };
    uint32_t exponent = scale > 128 ? 254 : scale + 126;
    uint32_t factor = exponent * 0x00800080u;
#pragma unroll
    for (int i = 0; i < 4; i++)
        out[i] = multiply_bf16_pairs(pairs[i], factor);
    if (scale > 128) { /* weights beyond 12: none in practice */
        uint32_t again = (scale > 254 ? 255u : scale - 1) * 0x00800080u;
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[i] = multiply_bf16_pairs(out[i], again);
    }
}

#endif
