/*
 * With AVX2: maddubs multiplies unsigned by signed bytes and adds pairs in 16 bits, which hold them: the
 * codes of MXFP4 are doubled and shifted by 16 to be unsigned (28 * 127 * 4 at most), and 16 times the
 * block's sum of activations is taken off again; int8 weights give their sign to the activations.
 *
 * Two blocks at a time, four lanes each; a row's lanes are added at its end. Where several vectors meet a row
 * its weights are unpacked once; the arithmetic is the same.
 */
#include "backend/cpu/kernels/narrow.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum format { MXFP4, MXFP4_GGUF, Q8_0 };

/* With VNNI, of either encoding, dpbusd does what maddubs and two more do, without their limits: int8 weights
 * are shifted by 128. */
#if defined(__AVXVNNI__)
#define DPBUSD _mm256_dpbusd_avx_epi32
#elif defined(__AVX512VNNI__)
#define DPBUSD _mm256_dpbusd_epi32
#endif

/* Blocks b and b + 1, 16 bytes each; the second is zero past the end. */
INLINE __m256i load_pair(const uint8_t *from, size_t stride, bool both)
{
    __m128i low = _mm_loadu_si128((const void *)from);
    __m128i high = both ? _mm_loadu_si128((const void *)(from + stride)) : _mm_setzero_si128();
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

INLINE void load_weights(enum format format, const uint8_t *blocks, size_t block, bool both, __m256i *first,
                         __m256i *second)
{
    if (format == Q8_0) {
        *first = load_pair(blocks + block * 34 + 2, 34, both);
        *second = load_pair(blocks + block * 34 + 18, 34, both);
#if defined(DPBUSD)
        *first = _mm256_xor_si256(*first, _mm256_set1_epi8((char)0x80));
        *second = _mm256_xor_si256(*second, _mm256_set1_epi8((char)0x80));
#endif
        return;
    }
    const __m256i values = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4));
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i codes = format == MXFP4 ? load_pair(blocks + block * 16, 16, both)
                                    : load_pair(blocks + block * 17 + 1, 17, both);
    *first = _mm256_shuffle_epi8(values, _mm256_and_si256(codes, nibble));
    *second = _mm256_shuffle_epi8(values, _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble));
}

/* Eight lanes of int32, which are two blocks' products once each four are added. */
INLINE __m256i multiply_pair(enum format format, __m256i first, __m256i second, const struct gs_q8_chunk *x,
                             size_t part)
{
    __m256i x_first = _mm256_loadu_si256((const void *)(x->q + part * 16));
    __m256i x_second = _mm256_loadu_si256((const void *)(x->q + 64 + part * 16));
    __m256i sums = _mm256_loadu_si256((const void *)(x->sum + part * 4));
#if defined(DPBUSD)
    __m256i whole = DPBUSD(DPBUSD(_mm256_setzero_si256(), first, x_first), second, x_second);
    /* Each of the four lanes takes off a fourth of 16, or of 128, sums. */
    return _mm256_sub_epi32(whole, _mm256_slli_epi32(sums, format == Q8_0 ? 5 : 2));
#else
    const __m256i ones = _mm256_set1_epi16(1);
    if (format == Q8_0) {
        __m256i low = _mm256_maddubs_epi16(_mm256_abs_epi8(first), _mm256_sign_epi8(x_first, first));
        __m256i high = _mm256_maddubs_epi16(_mm256_abs_epi8(second), _mm256_sign_epi8(x_second, second));
        return _mm256_add_epi32(_mm256_madd_epi16(low, ones), _mm256_madd_epi16(high, ones));
    }
    __m256i pairs =
        _mm256_add_epi16(_mm256_maddubs_epi16(first, x_first), _mm256_maddubs_epi16(second, x_second));
    /* Each of the four lanes takes off a fourth of 16 sums. */
    return _mm256_sub_epi32(_mm256_madd_epi16(pairs, ones), _mm256_slli_epi32(sums, 2));
#endif
}

/* sum += two blocks. */
INLINE __m256 add_pair(enum format format, __m256i first, __m256i second, const float *scales,
                       const struct gs_q8_chunk *x, size_t part, __m256 sum)
{
    __m256i whole = multiply_pair(format, first, second, x, part);
    __m256 scale = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_broadcast_ss(scales)),
                                        _mm_broadcast_ss(scales + 1), 1);
    scale = _mm256_mul_ps(scale, _mm256_loadu_ps(x->scale + part * 4));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole), scale, sum);
}

INLINE float add_lanes(__m256 sum)
{
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

INLINE void read_scales(enum format format, const uint8_t *blocks, const uint8_t *scales, size_t n_blocks,
                        float *out)
{
    for (size_t b = 0; b < n_blocks; b++) {
        if (format == Q8_0) {
            out[b] = _cvtsh_ss(gs_load_u16(blocks + b * 34));
        } else {
            uint32_t byte = format == MXFP4 ? scales[b] : blocks[b * 17];
            out[b] = gs_bits_float(byte << 23);
        }
    }
    for (size_t b = n_blocks; b % 4 > 0; b++)
        out[b] = 0.0f;
}

INLINE float dot_packed(enum format format, const uint8_t *blocks, const float *scales, size_t n_blocks,
                        const struct gs_q8_chunk *x)
{
    __m256 sum = _mm256_setzero_ps();
    for (size_t b = 0; b < n_blocks; b += 2) {
        __m256i first, second;
        load_weights(format, blocks, b, b + 1 < n_blocks, &first, &second);
        sum = add_pair(format, first, second, scales + b, &x[b / 4], b % 4, sum);
    }
    return add_lanes(sum);
}

INLINE void unpack(enum format format, const uint8_t *blocks, size_t n_blocks, uint8_t *weights)
{
    for (size_t b = 0; b < n_blocks; b += 2) {
        __m256i first, second;
        load_weights(format, blocks, b, b + 1 < n_blocks, &first, &second);
        _mm256_storeu_si256((void *)(weights + b * 32), first);
        _mm256_storeu_si256((void *)(weights + b * 32 + 32), second);
    }
}

/* Two vectors at a time share what is read of the row. */
INLINE void dot_unpacked(enum format format, const uint8_t *weights, const float *scales, size_t n_blocks,
                         const struct gs_q8_chunk *const *x, size_t n_x, float factor, float *out,
                         size_t stride)
{
    for (size_t t = 0; t < n_x; t += 2) {
        size_t other = t + 1 < n_x ? t + 1 : t;
        __m256 sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
        for (size_t b = 0; b < n_blocks; b += 2) {
            __m256i first = _mm256_loadu_si256((const void *)(weights + b * 32));
            __m256i second = _mm256_loadu_si256((const void *)(weights + b * 32 + 32));
            sums[0] = add_pair(format, first, second, scales + b, &x[t][b / 4], b % 4, sums[0]);
            sums[1] = add_pair(format, first, second, scales + b, &x[other][b / 4], b % 4, sums[1]);
        }
        out[t * stride] = factor * add_lanes(sums[0]);
        out[other * stride] = factor * add_lanes(sums[1]);
    }
}

INLINE void multiply_row(enum format format, const uint8_t *blocks, const uint8_t *scale_bytes, size_t n,
                         const struct gs_q8_chunk *const *x, size_t n_x, void *work, float *out,
                         size_t stride)
{
    size_t n_blocks = n / 32, bytes = gs_q8_chunk_count(n) * GS_Q8_CHUNK;
    const float factor = format == Q8_0 ? 1.0f : 0.5f;
    uint8_t *weights = work;
    float *scales = (float *)(void *)(weights + bytes);
    read_scales(format, blocks, scale_bytes, n_blocks, scales);
    if (n_x == 1) {
        out[0] = factor * dot_packed(format, blocks, scales, n_blocks, x[0]);
        return;
    }
    unpack(format, blocks, n_blocks, weights);
    dot_unpacked(format, weights, scales, n_blocks, x, n_x, factor, out, stride);
}

void GS_VARIANT(gs_mxfp4_q8)(const struct gs_mxfp4_row *rows, size_t n_rows, size_t n,
                             const struct gs_q8_chunk *const *x, size_t n_x, void *work, float *out,
                             size_t stride)
{
    for (size_t r = 0; r < n_rows; r++)
        if (rows[r].scales)
            multiply_row(MXFP4, rows[r].blocks, rows[r].scales, n, x, n_x, work, out + r, stride);
        else
            multiply_row(MXFP4_GGUF, rows[r].blocks, NULL, n, x, n_x, work, out + r, stride);
}

void GS_VARIANT(gs_q8_0_q8)(const struct gs_q8_0_row *rows, size_t n_rows, size_t n,
                            const struct gs_q8_chunk *const *x, size_t n_x, void *work, float *out,
                            size_t stride)
{
    for (size_t r = 0; r < n_rows; r++)
        multiply_row(Q8_0, rows[r].blocks, NULL, n, x, n_x, work, out + r, stride);
}
