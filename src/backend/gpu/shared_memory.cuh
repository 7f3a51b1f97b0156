/*
 * What all kernels of NVIDIA's devices need of shared memory: its addresses in PTX, copies to it that a
 * thread does not wait for, and the wait for a barrier that counts them. PTX of sm_80 and later; barriers: of
 * sm_90.
 */
#ifndef GS_BACKEND_GPU_SHARED_MEMORY_CUH
#define GS_BACKEND_GPU_SHARED_MEMORY_CUH

#include "backend/gpu/gpu.h"

GS_DEVICE uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* 16 bytes from L2, past the L1 cache: also for what another kernel wrote. */
GS_DEVICE void copy_async_16(uint32_t shared, const void *global)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}

/* 4 bytes, by way of the L1 cache: for what no kernel writes meanwhile. */
GS_DEVICE void copy_async_4(uint32_t shared, const void *global)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(global) : "memory");
}

GS_DEVICE void barrier_wait(uint32_t bar, uint32_t phase)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra finished;\n"
                 "bra again;\n"
                 "finished:\n"
                 "}" ::"r"(bar),
                 "r"(phase)
                 : "memory");
}

#endif
