/* bfloat16 weights times bfloat16 activations, summed in float32. */
#include "backend/cpu/kernels/narrow.h"
#include "backend/cpu/kernels/variant.h"

#if defined(__AVX512BF16__)
#include "backend/cpu/kernels/bf16_avx512.h"
#elif defined(__AVX2__)
#include "backend/cpu/kernels/bf16_avx2.h"
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#include "backend/cpu/kernels/bf16_neon_bf16.h"
#elif defined(__ARM_FEATURE_DOTPROD)
#include "backend/cpu/kernels/bf16_neon.h"
#else
#include "backend/cpu/kernels/bf16_generic.h"
#endif
