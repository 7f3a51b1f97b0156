/*
 * 4- and 8-bit weights times 8-bit activations: exact integer sums of a block, times both scales, in float32.
 * The codes of MXFP4 stand for doubled values, which are whole; one factor 1/2 at the end undoes that. A
 * scale byte of 0, 2^-127, counts as zero.
 */
#include "backend/cpu/kernels/variant.h"

#if defined(__AVX512VNNI__) && defined(__AVX512VBMI__)
#include "backend/cpu/kernels/int8_avx512.h"
#elif defined(__AVX2__)
#include "backend/cpu/kernels/int8_avx2.h"
#elif defined(__ARM_FEATURE_MATMUL_INT8)
#include "backend/cpu/kernels/int8_neon_i8mm.h"
#elif defined(__ARM_FEATURE_DOTPROD)
#include "backend/cpu/kernels/int8_neon.h"
#else
#include "backend/cpu/kernels/int8_generic.h"
#endif
