/*
 * The kernels themselves, in the words of src/backend/gpu/gpu.h for a simulator. GPU_SIM_SIMPLE names another
 * file in simple.cu's place: one with a fault put into it.
 */
#include "tests/gpu_sim/sim.h"

#include "backend/gpu/convert.cu"
#ifdef GPU_SIM_SIMPLE
#include GPU_SIM_SIMPLE
#else
#include "backend/gpu/simple.cu"
#endif

/* A reference and a pointer are passed alike. */
#define KERNEL(name, type)                                                                                   \
    {                                                                                                        \
#name, (void (*)(const void *))name, sizeof(struct type)                                             \
    }

extern "C" const struct gpu_sim_kernel gpu_sim_kernels[] = {
    KERNEL(gs_simple_embed, gs_gpu_args),         KERNEL(gs_simple_norm, gs_simple_norm),
    KERNEL(gs_simple_add, gs_simple_add),         KERNEL(gs_simple_move, gs_simple_move),
    KERNEL(gs_simple_linear_1, gs_simple_linear), KERNEL(gs_simple_linear_8, gs_simple_linear),
    KERNEL(gs_simple_rotate, gs_gpu_args),        KERNEL(gs_simple_attention, gs_gpu_args),
    KERNEL(gs_simple_choose, gs_gpu_args),        KERNEL(gs_simple_sort, gs_gpu_args),
    KERNEL(gs_simple_moe_in_1, gs_gpu_args),      KERNEL(gs_simple_moe_in_8, gs_gpu_args),
    KERNEL(gs_simple_moe_out_1, gs_gpu_args),     KERNEL(gs_simple_moe_out_8, gs_gpu_args),
    KERNEL(gs_simple_combine, gs_gpu_args),       KERNEL(gs_simple_argmax, gs_gpu_args),
    KERNEL(gs_simple_next, gs_gpu_args),          KERNEL(gs_simple_weigh, gs_gpu_args),
    KERNEL(gs_simple_pick, gs_gpu_args),          KERNEL(gs_simple_weigh_next, gs_gpu_args),
    KERNEL(gs_simple_pick_next, gs_gpu_args),     KERNEL(gs_convert_f32, gs_convert),
    KERNEL(gs_convert_columns, gs_convert),       KERNEL(gs_convert_q8_0, gs_convert),
    KERNEL(gs_convert_quantise, gs_convert),      KERNEL(gs_convert_bf16, gs_simple_linear),
    KERNEL(gs_convert_scales, gs_convert),        KERNEL(gs_convert_gguf, gs_convert),
    KERNEL(gs_convert_rope, gs_convert_rope),     KERNEL(gs_dequantize, gs_dequantize),
};
extern "C" const size_t gpu_sim_kernel_count = sizeof gpu_sim_kernels / sizeof *gpu_sim_kernels;
