/* What the batch kernels share: places in their scratch, copies, and a norm's scale. */
#ifndef GS_BACKEND_GPU_BATCH_CUH
#define GS_BACKEND_GPU_BATCH_CUH

#include "backend/gpu/batch_launch.h"
#include "backend/gpu/decode_stream.cuh"

/* Codes are read as value * 2^-126: activations that meet them carry 2^64, results get the rest back. */
#define EXPERT_SCALE 0x1p64f
#define RESULT_SCALE 0x1p62f

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

/* What lies in the batch kernels' scratch. */
GS_DEVICE char *scratch_at(const struct gs_gpu_args &args, int64_t at)
{
    return (char *)args.s.prefill + at;
}

#define SCRATCH(name, type, member)                                                                          \
    GS_DEVICE type *name(const struct gs_gpu_args &args)                                                     \
    {                                                                                                        \
        return (type *)scratch_at(args, gs_batch_layout_of(&args.dims).member);                              \
    }
SCRATCH(normed_of, uint16_t, normed)
SCRATCH(mlp_normed_of, uint16_t, mlp_normed)
SCRATCH(squares_of, float, squares)
SCRATCH(attended_of, uint16_t, attended)
SCRATCH(partial_of, float, partial)
SCRATCH(arrived_of, uint32_t, arrived)
SCRATCH(second_of, float, second)
SCRATCH(router_parts_of, float, router)
SCRATCH(activated_of, uint16_t, activated)
SCRATCH(expert_out_of, float, expert_out)
#undef SCRATCH

/*
 * Activations of the dense products lie in tiles: [columns/64][T][64], so that all rows of a chunk's columns
 * are one copy. Of odd rows the halves of a row are exchanged: rows of a pair of lanes meet other banks.
 */
GS_DEVICE int64_t tiled(int row, int column, int n_rows)
{
    return ((int64_t)(column / 64) * n_rows + row) * 64 + (column % 64 ^ (row & 1) << 5);
}

/* One thread of several that copy to one barrier, which has been told all their bytes. */
GS_DEVICE void copy_rows(uint32_t to, const void *from, uint32_t bytes, uint32_t bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::"
                 "bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar)
                 : "memory");
}

/* A copy for weights, which are read once. */
GS_DEVICE void copy_once(uint32_t to, const void *from, uint32_t bytes, uint32_t bar, uint64_t policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::"
                 "bytes.L2::cache_hint [%0], [%1], "
                 "%2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar), "l"(policy)
                 : "memory");
}

/* A hint: these bytes will be wanted, or may be. */
GS_DEVICE void ask_into_l2(const void *from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

GS_DEVICE void expect_bytes(uint32_t bar, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

/* 1/rms of row t of hidden, from the sums of squares that its blocks left beside the normed row. */
GS_DEVICE float scale_of_row(const struct gs_gpu_args &args, int t)
{
    const float *squares = squares_of(args) + t * GS_BATCH_ROW_BLOCKS;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < GS_BATCH_ROW_BLOCKS; i++)
        sum += load_fresh(squares + i);
    return 1.0f / gs_sqrt(sum / (float)args.dims.d_model + args.dims.rms_norm_eps);
}

#endif
