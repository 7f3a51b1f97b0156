/* The table of one instruction set's kernels. */
#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/variant.h"

#define TEXT_OF_(x) #x
#define TEXT_OF(x)  TEXT_OF_(x)

extern const struct gs_kernels GS_VARIANT(gs_kernels);
const struct gs_kernels GS_VARIANT(gs_kernels) = {
    .isa = TEXT_OF(GS_ISA),
    .dot = GS_VARIANT(gs_dot),
    .dequantize_mxfp4 = GS_VARIANT(gs_dequantize_mxfp4),
    .dequantize_mxfp4_gguf = GS_VARIANT(gs_dequantize_mxfp4_gguf),
};
