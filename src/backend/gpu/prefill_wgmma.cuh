/*
 * wgmma (sm_90a): a warpgroup of four warps multiplies 64 rows by N columns, 16 deep, with the accumulators
 * in registers: d[j] is the 16 x 8 fragment of columns 8j ... 8j+7 (prefill_common.cuh), of rows 16*warp.
 * Barriers in shared memory for a loading and several computing warpgroups, and the split of registers.
 */
#ifndef GS_BACKEND_GPU_PREFILL_WGMMA_CUH
#define GS_BACKEND_GPU_PREFILL_WGMMA_CUH

#include "backend/gpu/prefill_common.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* A tile of 128-byte rows, swizzled, 1024-byte aligned; `shared` may be moved by 32 bytes per k16 step. */
GS_DEVICE uint64_t tile_descriptor(uint32_t shared)
{
    return (uint64_t)((shared & 0x3ffff) >> 4) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}

/* The same tile with the depth along its rows: 8 rows, 1,024 bytes, to the next eight of the depth. */
GS_DEVICE uint64_t transposed_descriptor(uint32_t shared)
{
    return tile_descriptor(shared) & ~((uint64_t)0x3fff << 16) | (uint64_t)(1024 >> 4) << 16;
}

GS_DEVICE void wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

GS_DEVICE void wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int PENDING> GS_DEVICE void wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* What ordinary and cp.async stores wrote becomes visible to wgmma. */
GS_DEVICE void fence_shared_for_wgmma(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

GS_DEVICE void barrier_init(uint32_t barrier, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

GS_DEVICE void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* This thread arrives when its copies so far have landed. */
GS_DEVICE void barrier_arrive_after_copies(uint32_t barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/* A barrier of one warpgroup; ids 1 ... 15. */
GS_DEVICE void warpgroup_sync(int id)
{
    asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory");
}

template <int COUNT> GS_DEVICE void more_registers(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT> GS_DEVICE void fewer_registers(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

/*
 * The instruction takes every accumulator as an operand of its own: PLACES_n are the numbers of those of the
 * first n fragments, SUMS_n the operands.
 */
#define PLACES_4  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define PLACES_8  PLACES_4 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PLACES_10 PLACES_8 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define PLACES_12 PLACES_10 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define PLACES_14 PLACES_12 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define PLACES_16 PLACES_14 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define PLACES_18 PLACES_16 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define PLACES_24                                                                                            \
    PLACES_18 ", %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87"             \
              ", %88, %89, %90, %91, %92, %93, %94, %95"
#define PLACES_32                                                                                            \
    PLACES_24                                                                                                \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"           \
    ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

#define SUM(j)  "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
#define SUMS_4  SUM(0), SUM(1), SUM(2), SUM(3)
#define SUMS_8  SUMS_4, SUM(4), SUM(5), SUM(6), SUM(7)
#define SUMS_10 SUMS_8, SUM(8), SUM(9)
#define SUMS_12 SUMS_10, SUM(10), SUM(11)
#define SUMS_14 SUMS_12, SUM(12), SUM(13)
#define SUMS_16 SUMS_14, SUM(14), SUM(15)
#define SUMS_18 SUMS_16, SUM(16), SUM(17)
#define SUMS_24 SUMS_18, SUM(18), SUM(19), SUM(20), SUM(21), SUM(22), SUM(23)
#define SUMS_32 SUMS_24, SUM(24), SUM(25), SUM(26), SUM(27), SUM(28), SUM(29), SUM(30), SUM(31)

/* d += A (64 x 16, registers) * B (N columns of 16, a descriptor) */
template <int N> struct wgmma_rs;
/* d += A (descriptor) * B (descriptor) */
template <int N> struct wgmma_ss;
/* d += A (registers) * B, whose tile has the depth along its rows (values of attention) */
template <int N> struct wgmma_rs_transposed;

/* N columns are so many fragments; the numbers are the places of A and B, after those of d. */
#define WGMMA_RS(kind, n, fragments, a0, a1, a2, a3, b_at, transposed)                                       \
    template <> struct kind<n> {                                                                             \
        static __device__ __forceinline__ void run(float (*d)[4], const uint32_t a[4], uint64_t b)           \
        {                                                                                                    \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" PLACES_##fragments     \
                         "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b_at ", 1, 1, 1, " #transposed    \
                         ";"                                                                                 \
                         : SUMS_##fragments                                                                  \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                              \
        }                                                                                                    \
    }

WGMMA_RS(wgmma_rs, 32, 4, 16, 17, 18, 19, 20, 0);
WGMMA_RS(wgmma_rs, 64, 8, 32, 33, 34, 35, 36, 0);
WGMMA_RS(wgmma_rs, 80, 10, 40, 41, 42, 43, 44, 0);
WGMMA_RS(wgmma_rs, 96, 12, 48, 49, 50, 51, 52, 0);
WGMMA_RS(wgmma_rs, 112, 14, 56, 57, 58, 59, 60, 0);
WGMMA_RS(wgmma_rs, 128, 16, 64, 65, 66, 67, 68, 0);
WGMMA_RS(wgmma_rs, 144, 18, 72, 73, 74, 75, 76, 0);
WGMMA_RS(wgmma_rs_transposed, 64, 8, 32, 33, 34, 35, 36, 1);

/* `run` adds to d, `start` does not. */
#define WGMMA_SS_CALL(name, n, fragments, a_at, b_at, adds)                                                  \
    static __device__ __forceinline__ void name(float(*d)[4], uint64_t a, uint64_t b)                        \
    {                                                                                                        \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" PLACES_##fragments         \
                     "}, %" #a_at ", %" #b_at ", " #adds ", 1, 1, 0, 0;"                                     \
                     : SUMS_##fragments                                                                      \
                     : "l"(a), "l"(b));                                                                      \
    }
#define WGMMA_SS(n, fragments, a_at, b_at)                                                                   \
    template <> struct wgmma_ss<n> {                                                                         \
        WGMMA_SS_CALL(run, n, fragments, a_at, b_at, 1)                                                      \
        WGMMA_SS_CALL(start, n, fragments, a_at, b_at, 0)                                                    \
    }

WGMMA_SS(64, 8, 32, 33);
WGMMA_SS(192, 24, 96, 97);
WGMMA_SS(256, 32, 128, 129);

#endif /* sm_90a */
#endif
