/* The table of one instruction set's kernels for --precision fast. */
#include "backend/cpu/kernels/variant.h"

#define TEXT_OF_(x) #x
#define TEXT_OF(x)  TEXT_OF_(x)

extern const struct gs_fast_kernels GS_VARIANT(gs_fast_kernels);
const struct gs_fast_kernels GS_VARIANT(gs_fast_kernels) = {
    .isa = TEXT_OF(GS_ISA),
    .quantize_q8 = GS_VARIANT(gs_quantize_q8),
    .quantize_q8_0 = GS_VARIANT(gs_quantize_q8_0),
    .round_bf16 = GS_VARIANT(gs_round_bf16),
    .rms_norm = GS_VARIANT(gs_rms_norm),
    .swiglu = GS_VARIANT(gs_swiglu),
    .add_scaled = GS_VARIANT(gs_add_scaled),
    .activate_q8 = GS_VARIANT(gs_activate_q8),
    .add_bias = GS_VARIANT(gs_add_bias),
    .rotate = GS_VARIANT(gs_rotate),
    .mxfp4_q8 = GS_VARIANT(gs_mxfp4_q8),
    .q8_0_q8 = GS_VARIANT(gs_q8_0_q8),
    .bf16_bf16 = GS_VARIANT(gs_bf16_bf16),
    .attend = GS_VARIANT(gs_attend),
    .merge_spans = GS_VARIANT(gs_merge_spans),
};
