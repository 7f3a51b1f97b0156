/*
 * What the decode kernels share: the asynchronous stream of weights, the tensor-core product with float32
 * activations, and the hand-over of vectors between stages.
 *
 * A vector x of float32 is multiplied as three bfloat16 terms (high, middle, low), which together hold all
 * its bits, in three columns of mma.m16n8k16: products are exact, sums are float32. Weights are the A
 * operand, in an order that makes every load 16 bytes a lane. Fragment coordinates: lane = 4*g + q.
 *
 * Split vector: [n/32][T][3 terms][32] bfloat16: a block of 32 elements of all rows and terms lies together.
 * Within a block lane quarter q owns elements 8q ... 8q+7; of these step j (0, 1) of k16 takes 4j ... 4j+3.
 *
 * Strip: 16 rows of a matrix. A strip's k-range is cut into chunks, each contiguous in memory, and all chunks
 * of a stage form one sequence, which is cut evenly among all warps of the grid: no barrier while streaming.
 */
#ifndef GS_BACKEND_GPU_DECODE_COMMON_CUH
#define GS_BACKEND_GPU_DECODE_COMMON_CUH

#include "backend/gpu/decode_launch.h"
#include "backend/gpu/gpu.h"
#include "backend/gpu/shared_memory.cuh"
#include "backend/gpu/tensor_core.cuh"

#define WARPS   GS_DECODE_WARPS
#define THREADS (GS_DECODE_WARPS * 32)

/* ---------------------------------------------------------------- memory */

GS_DEVICE void barrier_init(uint32_t bar)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar) : "memory");
}

GS_DEVICE void barrier_init_fence(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* One thread: so many bytes will come. */
GS_DEVICE void copy_announce(uint32_t bytes, uint32_t bar)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

/* Starts the copy of them from global to shared memory. */
GS_DEVICE void copy_announced(uint32_t to, const void *from, uint32_t bytes, uint32_t bar)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(bar)
        : "memory");
}

/* The same for weights, which are read once: they shall not push activations out of L2. */
GS_DEVICE void copy_announced_once(uint32_t to, const void *from, uint32_t bytes, uint32_t bar,
                                   uint64_t policy)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], "
        "%2, [%3], %4;" ::"r"(to),
        "l"(from), "r"(bytes), "r"(bar), "l"(policy)
        : "memory");
}

/* Both at once. */
GS_DEVICE void copy_start(uint32_t to, const void *from, uint32_t bytes, uint32_t bar)
{
    copy_announce(bytes, bar);
    copy_announced(to, from, bytes, bar);
}

GS_DEVICE void copy_start_once(uint32_t to, const void *from, uint32_t bytes, uint32_t bar, uint64_t policy)
{
    copy_announce(bytes, bar);
    copy_announced_once(to, from, bytes, bar, policy);
}

GS_DEVICE uint64_t policy_read_once(void)
{
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* True in one lane of the warp, always the same; all lanes call it. */
GS_DEVICE bool elect_lane(void)
{
    uint32_t is;
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "elect.sync _|p, 0xffffffff;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}"
                 : "=r"(is));
    return is != 0;
}

struct u32x4 {
    uint32_t x, y, z, w;
} __attribute__((aligned(16)));

GS_DEVICE struct u32x4 load_shared_16(uint32_t at)
{
    struct u32x4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}

GS_DEVICE uint32_t load_shared_4(uint32_t at)
{
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
}

GS_DEVICE float load_shared_float(uint32_t at)
{
    return gs_float_of_bits(load_shared_4(at));
}

/* For all of this thread's copy_async_16 and copy_async_4. */
GS_DEVICE void copies_wait(void)
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

GS_DEVICE void store_shared_float(uint32_t at, float value)
{
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(value) : "memory");
}

GS_DEVICE void store_shared_16(uint32_t at, uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}

/*
 * A load, or zeros. A branch around a load waits for it where it ends, with everything that comes after: this
 * does not.
 */
GS_DEVICE float2 load_pair_if(bool is, const float2 *at)
{
    float2 value;
    asm volatile("{\n"
                 ".reg .pred is;\n"
                 "setp.ne.s32 is, %3, 0;\n"
                 "mov.f32 %0, 0f00000000;\n"
                 "mov.f32 %1, 0f00000000;\n"
                 "@is ld.global.nc.v2.f32 {%0, %1}, [%2];\n"
                 "}"
                 : "=f"(value.x), "=f"(value.y)
                 : "l"(at), "r"((int)is)
                 : "memory");
    return value;
}

/* What other kernels wrote is read past the L1 cache, which knows nothing of their writes. */
GS_DEVICE float load_fresh(const float *at)
{
    return __ldcg(at);
}

GS_DEVICE float load_fresh_if(bool is, const float *at)
{
    float value;
    asm volatile("{\n"
                 ".reg .pred is;\n"
                 "setp.ne.s32 is, %2, 0;\n"
                 "mov.f32 %0, 0f00000000;\n"
                 "@is ld.global.cg.f32 %0, [%1];\n"
                 "}"
                 : "=f"(value)
                 : "l"(at), "r"((int)is)
                 : "memory");
    return value;
}

#ifdef GS_DECODE_TRACE /* bench: when a block passes `point`, in s.projected [layer*8+stage][256][8] */
#define TRACE(stage, point)                                                                                  \
    do {                                                                                                     \
        if (gs_thread() == 0 && args.s.projected) {                                                          \
            uint64_t now_;                                                                                   \
            asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now_)::"memory");                                \
            ((uint64_t *)args.s.projected)[((args.layer * 8 + (stage)) * 256 + gs_block()) * 8 + (point)] =  \
                now_;                                                                                        \
        }                                                                                                    \
    } while (0)
#else
#define TRACE(stage, point) ((void)0)
#endif

/* ---------------------------------------------------------------- products */

/* The three terms of two neighbouring elements. */
GS_DEVICE void split_pair(float a, float b, uint32_t terms[3])
{
#pragma unroll
    for (int i = 0; i < 3; i++) {
        terms[i] = pack_bf16(a, b);
        a -= gs_float_of_bits(terms[i] << 16);
        b -= gs_float_of_bits(terms[i] & 0xffff0000u);
    }
}

/* Word of term `term` of elements i, i+1 (i even) of row t in a split vector of n_rows rows. */
GS_DEVICE uint32_t split_word(uint32_t i, uint32_t t, uint32_t term, uint32_t n_rows)
{
    return ((i / 32 * n_rows + t) * 3 + term) * 16 + i % 32 / 2;
}

/* ---------------------------------------------------------------- the stream of weights */

/* The first and the number of the chunks of part `part` of `parts` of [0, n). */
GS_DEVICE void share_of(int n, int part, int parts, int *first, int *count)
{
    int begin = (int)((uint32_t)n * (uint32_t)part / (uint32_t)parts);
    int end = (int)((uint32_t)n * (uint32_t)(part + 1) / (uint32_t)parts);
    *first = begin;
    *count = end - begin;
}

#endif
