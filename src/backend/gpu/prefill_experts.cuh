/*
 * The experts' products as the tensor-core kernels see them. Weights are the M side, the routes of an expert
 * the N side, so a few routes need no padding to a tile of rows.
 *
 * A stage in shared memory holds 64 columns: the activations' tile, swizzled; the rows' codes, 32 bytes a
 * row; and a word of scales a row, which serves two stages. Rows lie there in fragment order: of each 16,
 * gate_up has the gates of eight units, then their ups, so that both meet in one lane.
 */
#ifndef GS_BACKEND_GPU_PREFILL_EXPERTS_CUH
#define GS_BACKEND_GPU_PREFILL_EXPERTS_CUH

#include "backend/gpu/prefill_common.cuh"

#define EXPERT_GATE_UP 0 /* normed -> activated */
#define EXPERT_DOWN    1 /* activated -> expert_out */

struct expert_operands {
    const uint16_t *rows; /* bf16 [..][depth], columns permuted */
    const uint8_t *codes, *scales;
    const float *bias;
    int n_weight_rows, depth, scale_stride;
};

template <int PRODUCT>
GS_DEVICE struct expert_operands expert_operands_of(const struct gs_gpu_args &args, int expert)
{
    struct gs_prefill_parts parts = gs_prefill_carve(&args.dims, args.s.prefill);
    const struct gs_gpu_experts &w = PRODUCT == EXPERT_GATE_UP ? args.w.gate_up : args.w.down;
    int64_t first = (int64_t)expert * w.rows;
    return {PRODUCT == EXPERT_GATE_UP ? parts.normed : parts.activated,
            w.codes + first * (w.columns / 32) * 16,
            w.scales + first * w.scale_stride,
            w.bias + first,
            w.rows,
            w.columns,
            w.scale_stride};
}

/* The weight row at place `slot` of a tile whose first row is a multiple of 16. */
template <int PRODUCT> GS_DEVICE int weight_row_of(int slot)
{
    if (PRODUCT == EXPERT_DOWN)
        return slot;
    return (slot & ~15) | (slot & 7) << 1 | ((slot >> 3) & 1);
}

/* Where 16-byte group `group` (0 or 1) of a row's codes lies: eight rows' words q fall into 32 banks. */
GS_DEVICE uint32_t code_offset(int slot, int group)
{
    return (uint32_t)(slot * 32 + ((group ^ ((slot >> 2) & 1)) << 4));
}

/* The activation row of the route at `place` of s.routes. */
template <int PRODUCT> GS_DEVICE int activation_row_of(const struct gs_gpu_args &args, int place)
{
    return PRODUCT == EXPERT_GATE_UP ? args.s.routes[place] / args.dims.n_active : place;
}

/* (clamp(up) + 1) * gate * sigmoid(alpha * gate), with the gate clamped from above alone */
GS_DEVICE float swiglu(const struct gs_gpu_dims &dims, float gate, float up)
{
    gate = fminf(gate, dims.swiglu_limit);
    up = fminf(fmaxf(up, -dims.swiglu_limit), dims.swiglu_limit);
    return (up + 1.0f) * gate / (1.0f + gs_exp(-dims.swiglu_alpha * gate));
}

#endif
