/*
 * E and F once more, for the benchmark, with the choice of the experts made by an earlier kernel: what is
 * left is the four experts' matrix-vector products.
 */
#ifndef GS_TESTS_GPU_DECODE_CHOSEN_CUH
#define GS_TESTS_GPU_DECODE_CHOSEN_CUH

#define GS_DECODE_CHOSEN
#define gs_decode_gate_up gs_chosen_gate_up
#define gs_decode_down    gs_chosen_down
#include "backend/gpu/decode_experts.cu"
#undef gs_decode_gate_up
#undef gs_decode_down

#endif
