/*
 * The words in which kernels are written, so that one source serves CUDA, HIP and a simulator on the CPU. No
 * vendor header: CUDA's names are the compiler's own, HIP's are clang's attributes and builtins, the
 * simulator's (GS_GPU_SIM) are plain functions that tests/gpu_sim has. Lane counts are never written as
 * numbers: GS_WARP is 32 on NVIDIA and RDNA, 64 on CDNA, and sums over a warp must not depend on it beyond
 * their rounding.
 */
#ifndef GS_BACKEND_GPU_GPU_H
#define GS_BACKEND_GPU_GPU_H

#include <stdint.h>

#if defined(__HIP__)

#define GS_KERNEL                     extern "C" __attribute__((global))
#define GS_DEVICE                     static inline __attribute__((device)) __attribute__((always_inline))
#define GS_SHARED                     __attribute__((shared))
#define GS_SHARED_DYNAMIC(type, name) extern GS_SHARED type name[]
#define GS_BOUNDS(threads, blocks)    __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define GS_ARGS(type, name)           const type name
#if defined(__GFX9__)
#define GS_WARP 64
#else
#define GS_WARP 32
#endif

#define gs_thread()      ((int)__builtin_amdgcn_workitem_id_x())
#define gs_block()       ((int)__builtin_amdgcn_workgroup_id_x())
#define gs_block_y()     ((int)__builtin_amdgcn_workgroup_id_y())
#define gs_block_z()     ((int)__builtin_amdgcn_workgroup_id_z())
#define gs_n_thread()    ((int)__builtin_amdgcn_workgroup_size_x())
#define gs_n_block()     ((int)(__builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x()))
#define gs_n_block_z()   ((int)(__builtin_amdgcn_grid_size_z() / __builtin_amdgcn_workgroup_size_z()))
#define gs_exp(x)        __builtin_expf(x)
#define gs_sqrt(x)       __builtin_sqrtf(x)
#define gs_abs(x)        __builtin_fabsf(x)
#define gs_round(x)      __builtin_roundf(x)
#define gs_mul_f64(a, b) ((a) * (b)) /* compiled with -ffp-contract=off */
#define gs_add_f64(a, b) ((a) + (b))

GS_DEVICE void gs_sync(void)
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

GS_DEVICE int32_t gs_shuffle_xor_i32(int32_t value, int mask)
{
    int lane = (int)__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
    return __builtin_amdgcn_ds_bpermute((lane ^ mask) << 2, value);
}

GS_DEVICE float gs_shuffle_xor(float value, int mask)
{
    return __builtin_bit_cast(float, gs_shuffle_xor_i32(__builtin_bit_cast(int32_t, value), mask));
}

GS_DEVICE float gs_float_of_f16(uint16_t bits)
{
    return (float)__builtin_bit_cast(_Float16, bits);
}

GS_DEVICE uint16_t gs_f16_of_float(float value)
{
    return __builtin_bit_cast(uint16_t, (_Float16)value);
}

GS_DEVICE void gs_atomic_max_u64(uint64_t *at, uint64_t value)
{
    __atomic_fetch_max(at, value, __ATOMIC_RELAXED);
}

/* Programmatic dependent launch exists on NVIDIA alone. */
GS_DEVICE void gs_wait_for_previous(void)
{
}
GS_DEVICE void gs_let_next_start(void)
{
}

#elif defined(GS_GPU_SIM)

#define GS_KERNEL                     extern "C"
#define GS_DEVICE                     static inline
#define GS_SHARED                     static __attribute__((section("gs_shared")))
#define GS_SHARED_DYNAMIC(type, name) type *name = (type *)gs_sim_shared()
#define GS_BOUNDS(threads, blocks)
#define GS_ARGS(type, name) const type &name
#define GS_WARP             GS_GPU_SIM /* 32 or 64, as the compiler is told */

/* The block that runs, and the grid it is of. */
struct gs_sim_block {
    int at[3], n[3], n_thread;
};
extern "C" struct gs_sim_block gs_sim_block;
extern "C" int gs_sim_thread(void);
extern "C" void *gs_sim_shared(void);
extern "C" void gs_sim_at(const char *file, int line); /* of the kernel: where the next exchange is written */
extern "C" void gs_sim_sync(void);
extern "C" int32_t gs_sim_shuffle(int32_t value, int mask);
extern "C" bool gs_sim_sums_whole;
extern "C" float gs_sim_sum(float value); /* gs_warp_sum's result */
extern "C" float gs_sim_float_of_f16(uint16_t bits);
extern "C" uint16_t gs_sim_f16_of_float(float value);

#define gs_thread()            gs_sim_thread()
#define gs_block()             (gs_sim_block.at[0])
#define gs_block_y()           (gs_sim_block.at[1])
#define gs_block_z()           (gs_sim_block.at[2])
#define gs_n_thread()          (gs_sim_block.n_thread)
#define gs_n_block()           (gs_sim_block.n[0])
#define gs_n_block_z()         (gs_sim_block.n[2])
#define gs_exp(x)              __builtin_expf(x)
#define gs_sqrt(x)             __builtin_sqrtf(x)
#define gs_abs(x)              __builtin_fabsf(x)
#define gs_round(x)            __builtin_roundf(x)
#define gs_mul_f64(a, b)       ((a) * (b)) /* compiled with -ffp-contract=off */
#define gs_add_f64(a, b)       ((a) + (b))
#define gs_sync()              (gs_sim_at(__FILE__, __LINE__), gs_sim_sync())
#define gs_float_of_f16(bits)  gs_sim_float_of_f16(bits)
#define gs_f16_of_float(value) gs_sim_f16_of_float(value)

GS_DEVICE int32_t gs_shuffle_xor_i32(int32_t value, int mask)
{
    return gs_sim_shuffle(value, mask);
}

GS_DEVICE float gs_shuffle_xor(float value, int mask)
{
    return __builtin_bit_cast(float, gs_sim_shuffle(__builtin_bit_cast(int32_t, value), mask));
}

/* One thread of all runs at a time. */
GS_DEVICE void gs_atomic_max_u64(uint64_t *at, uint64_t value)
{
    *at = value > *at ? value : *at;
}

GS_DEVICE void gs_wait_for_previous(void)
{
}
GS_DEVICE void gs_let_next_start(void)
{
}

#else /* CUDA */

#define GS_KERNEL                     extern "C" __global__
#define GS_DEVICE                     static __device__ __forceinline__
#define GS_SHARED                     __shared__
#define GS_SHARED_DYNAMIC(type, name) extern __shared__ type name[]
#define GS_BOUNDS(threads, blocks)    __launch_bounds__(threads, blocks)
#define GS_ARGS(type, name)           const __grid_constant__ type name
#define GS_WARP                       32

#define gs_thread()      ((int)threadIdx.x)
#define gs_block()       ((int)blockIdx.x)
#define gs_block_y()     ((int)blockIdx.y)
#define gs_block_z()     ((int)blockIdx.z)
#define gs_n_thread()    ((int)blockDim.x)
#define gs_n_block()     ((int)gridDim.x)
#define gs_n_block_z()   ((int)gridDim.z)
#define gs_exp(x)        expf(x)
#define gs_sqrt(x)       sqrtf(x)
#define gs_abs(x)        fabsf(x)
#define gs_round(x)      roundf(x)
#define gs_mul_f64(a, b) __dmul_rn(a, b) /* never contracted */
#define gs_add_f64(a, b) __dadd_rn(a, b)
#define gs_sync()        __syncthreads()

GS_DEVICE float gs_shuffle_xor(float value, int mask)
{
    return __shfl_xor_sync(0xffffffffu, value, mask);
}

GS_DEVICE int32_t gs_shuffle_xor_i32(int32_t value, int mask)
{
    return __shfl_xor_sync(0xffffffffu, value, mask);
}

GS_DEVICE float gs_float_of_f16(uint16_t bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

GS_DEVICE uint16_t gs_f16_of_float(float value)
{
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

GS_DEVICE void gs_atomic_max_u64(uint64_t *at, uint64_t value)
{
    atomicMax((unsigned long long *)at, (unsigned long long)value);
}

/*
 * Programmatic dependent launch. Before gs_wait_for_previous a kernel may touch only what no kernel of the
 * forward writes: weights. After it, everything that earlier kernels wrote is visible.
 * Every kernel of a captured graph calls gs_wait_for_previous, or what an earlier kernel wrote would reach a
 * later one without an edge between them.
 */
GS_DEVICE void gs_wait_for_previous(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

GS_DEVICE void gs_let_next_start(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#endif

/* The sum over the warp, in the same order whatever the warp does: a butterfly. Every lane gets it. */
GS_DEVICE float gs_warp_sum(float value)
{
#pragma unroll
    for (int mask = GS_WARP / 2; mask > 0; mask /= 2)
        value += gs_shuffle_xor(value, mask);
    return value;
}

GS_DEVICE float gs_warp_max(float value)
{
#pragma unroll
    for (int mask = GS_WARP / 2; mask > 0; mask /= 2) {
        float other = gs_shuffle_xor(value, mask);
        value = other > value ? other : value;
    }
    return value;
}

#if defined(GS_GPU_SIM)
/*
 * Exchanges are known by the kernel's line: a wave that is divided between two of them is noticed. A sum may
 * be made in one exchange, of the same additions in the same order: a model takes a fifth of the time then.
 */
#define gs_warp_sum(value)                                                                                   \
    (gs_sim_at(__FILE__, __LINE__), gs_sim_sums_whole ? gs_sim_sum(value) : gs_warp_sum(value))
#define gs_warp_max(value)              (gs_sim_at(__FILE__, __LINE__), gs_warp_max(value))
#define gs_shuffle_xor(value, mask)     (gs_sim_at(__FILE__, __LINE__), gs_shuffle_xor(value, mask))
#define gs_shuffle_xor_i32(value, mask) (gs_sim_at(__FILE__, __LINE__), gs_shuffle_xor_i32(value, mask))
#endif

GS_DEVICE float gs_float_of_bits(uint32_t bits)
{
    union {
        uint32_t bits;
        float value;
    } u;
    u.bits = bits;
    return u.value;
}

GS_DEVICE uint32_t gs_bits_of_float(float value)
{
    union {
        uint32_t bits;
        float value;
    } u;
    u.value = value;
    return u.bits;
}

GS_DEVICE float gs_float_of_bf16(uint16_t bits)
{
    return gs_float_of_bits((uint32_t)bits << 16);
}

/* To nearest, ties to even; NaN stays NaN. */
GS_DEVICE uint16_t gs_bf16_of_float(float value)
{
    uint32_t bits = gs_bits_of_float(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

#endif
