/*
 * MXFP4 rows to float32, by byte shuffles where there are any. The 16 code values are exact in bfloat16, the
 * upper half of a float32: two shuffles look up its two bytes, and zeros make the lower half.
 */
#include "model/mxfp4.h"
#include "backend/cpu/kernels/variant.h"

#if defined(__AVX2__)
#include <immintrin.h>

/* Eight bfloat16 to float32, times the scale. */
static inline void store_eight(__m128i bf16, __m256 scale, float *out)
{
    __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16);
    _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_castsi256_ps(bits), scale));
}

/* Sixteen codes, in the order of their elements. */
static inline void store_codes(__m128i codes, __m256 scale, float *out)
{
    /* 0, .5, 1, 1.5, 2, 3, 4, 6 and their negatives as bfloat16: 0x0000, 0x3F00, 0x3F80, 0x3FC0, 0x4000 ...
     */
    const __m128i high =
        _mm_setr_epi8(0x00, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40, (char)0x80, (char)0xBF, (char)0xBF,
                      (char)0xBF, (char)0xC0, (char)0xC0, (char)0xC0, (char)0xC0);
    const __m128i low = _mm_setr_epi8(0x00, 0x00, (char)0x80, (char)0xC0, 0x00, 0x40, (char)0x80, (char)0xC0,
                                      0x00, 0x00, (char)0x80, (char)0xC0, 0x00, 0x40, (char)0x80, (char)0xC0);
    __m128i upper = _mm_shuffle_epi8(high, codes), lower = _mm_shuffle_epi8(low, codes);
    store_eight(_mm_unpacklo_epi8(lower, upper), scale, out);
    store_eight(_mm_unpackhi_epi8(lower, upper), scale, out + 8);
}

void GS_VARIANT(gs_dequantize_mxfp4_gguf)(const uint8_t *blocks, int64_t n, float *out)
{
    const __m128i nibble = _mm_set1_epi8(15);
    for (int64_t group = 0; group < n / GS_MXFP4_GROUP; group++, out += GS_MXFP4_GROUP) {
        __m256 scale = _mm256_set1_ps(gs_mxfp4_scale(*blocks));
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(blocks + 1));
        store_codes(_mm_and_si128(bytes, nibble), scale, out);
        store_codes(_mm_and_si128(_mm_srli_epi16(bytes, 4), nibble), scale, out + 16);
        blocks += GS_MXFP4_BLOCK_BYTES;
    }
}

void GS_VARIANT(gs_dequantize_mxfp4)(const uint8_t *blocks, const uint8_t *scales, int64_t n, float *out)
{
    const __m128i nibble = _mm_set1_epi8(15);
    for (int64_t group = 0; group < n / GS_MXFP4_GROUP; group++, out += GS_MXFP4_GROUP) {
        __m256 scale = _mm256_set1_ps(gs_mxfp4_scale(scales[group]));
        __m128i bytes =
            _mm_loadu_si128((const __m128i *)(const void *)(blocks + group * GS_MXFP4_GROUP_BYTES));
        __m128i even = _mm_and_si128(bytes, nibble), odd = _mm_and_si128(_mm_srli_epi16(bytes, 4), nibble);
        store_codes(_mm_unpacklo_epi8(even, odd), scale, out);
        store_codes(_mm_unpackhi_epi8(even, odd), scale, out + 16);
    }
}

#elif defined(__aarch64__)
#include <arm_neon.h>

/* Sixteen codes, in the order of their elements. */
static inline void store_codes(uint8x16_t codes, float scale, float *out)
{
    static const uint8_t high_bytes[16] = {0x00, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40,
                                           0x80, 0xBF, 0xBF, 0xBF, 0xC0, 0xC0, 0xC0, 0xC0};
    static const uint8_t low_bytes[16] = {0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0,
                                          0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0};
    const uint8x16_t high = vld1q_u8(high_bytes), low = vld1q_u8(low_bytes);
    uint8x16x2_t bf16 = vzipq_u8(vqtbl1q_u8(low, codes), vqtbl1q_u8(high, codes));
    for (int half = 0; half < 2; half++, out += 8) {
        uint16x8_t values = vreinterpretq_u16_u8(bf16.val[half]);
        float32x4_t first = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(values), 16));
        float32x4_t second = vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(values), 16));
        vst1q_f32(out, vmulq_n_f32(first, scale));
        vst1q_f32(out + 4, vmulq_n_f32(second, scale));
    }
}

void GS_VARIANT(gs_dequantize_mxfp4_gguf)(const uint8_t *blocks, int64_t n, float *out)
{
    for (int64_t group = 0; group < n / GS_MXFP4_GROUP; group++, out += GS_MXFP4_GROUP) {
        float scale = gs_mxfp4_scale(*blocks);
        uint8x16_t bytes = vld1q_u8(blocks + 1);
        store_codes(vandq_u8(bytes, vdupq_n_u8(15)), scale, out);
        store_codes(vshrq_n_u8(bytes, 4), scale, out + 16);
        blocks += GS_MXFP4_BLOCK_BYTES;
    }
}

void GS_VARIANT(gs_dequantize_mxfp4)(const uint8_t *blocks, const uint8_t *scales, int64_t n, float *out)
{
    for (int64_t group = 0; group < n / GS_MXFP4_GROUP; group++, out += GS_MXFP4_GROUP) {
        float scale = gs_mxfp4_scale(scales[group]);
        uint8x16_t bytes = vld1q_u8(blocks + group * GS_MXFP4_GROUP_BYTES);
        uint8x16x2_t codes = vzipq_u8(vandq_u8(bytes, vdupq_n_u8(15)), vshrq_n_u8(bytes, 4));
        store_codes(codes.val[0], scale, out);
        store_codes(codes.val[1], scale, out + 16);
    }
}

#else

void GS_VARIANT(gs_dequantize_mxfp4)(const uint8_t *blocks, const uint8_t *scales, int64_t n, float *out)
{
    gs_mxfp4_dequantize(blocks, scales, n, out);
}

void GS_VARIANT(gs_dequantize_mxfp4_gguf)(const uint8_t *blocks, int64_t n, float *out)
{
    gs_mxfp4_dequantize_gguf(blocks, n, out);
}

#endif
