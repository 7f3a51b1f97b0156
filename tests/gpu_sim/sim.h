/*
 * The GPU kernels that CUDA and HIP share, compiled for this processor and run by tests/sim: every thread of
 * a block a fiber. A library for each width of waves (libgpusim32.so, libgpusim64.so, or one with a fault put
 * into the kernels), which gives this table. One launch of a library at a time.
 */
#ifndef GS_TESTS_GPU_SIM_SIM_H
#define GS_TESTS_GPU_SIM_SIM_H

#include "tests/sim/fiber.h"

#include <stdint.h>

struct gpu_sim_launch {
    const char *kernel;
    uint32_t grid[3], block, shared_bytes; /* dynamic */
    const void *args;
    enum sim_order order;
    uint64_t seed;
    bool sums_whole; /* sums over a wave in one exchange: the same bits, less time */
};

struct gpu_sim {
    int n_lane;
    /* 0: there is no such kernel. */
    size_t (*args_bytes)(const char *kernel);
    size_t (*count)(void);
    const char *(*name)(size_t index);
    bool (*run)(const struct gpu_sim_launch *launch, struct sim_fault *fault);
    /* Memory whose end is a page that nobody may touch: faults inside a kernel name it. */
    bool (*buffer_init)(struct sim_buffer *buffer, const char *name, size_t bytes, size_t alignment);
    void (*buffer_release)(struct sim_buffer *buffer);
    bool (*buffer_intact)(const struct sim_buffer *buffer, struct sim_fault *fault);
};

typedef const struct gpu_sim *gpu_sim_fn(void);

#define GPU_SIM_TABLE "gpu_sim_table" /* the name of the library's gpu_sim_fn */

/* ---------------------------------------------------------------- inside the library */

/* A kernel takes its arguments by reference here. */
struct gpu_sim_kernel {
    const char *name;
    void (*run)(const void *args);
    size_t args_bytes;
};

#ifdef __cplusplus
extern "C" {
#endif
extern const struct gpu_sim_kernel gpu_sim_kernels[];
extern const size_t gpu_sim_kernel_count;
#ifdef __cplusplus
}
#endif

#endif
