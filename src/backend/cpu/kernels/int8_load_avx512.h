/* Rows of 4- and 8-bit weights with AVX-512 VBMI: four blocks at a time from memory to unsigned bytes. */
#ifndef GS_BACKEND_CPU_KERNELS_INT8_LOAD_AVX512_H
#define GS_BACKEND_CPU_KERNELS_INT8_LOAD_AVX512_H

#include "backend/cpu/kernels/tile_avx512.h"

#define SIDE  16 /* rows in a register, one a lane */
#define TURNS 16 /* partial sums of a row */

enum format { MXFP4, MXFP4_GGUF, Q8_0 };

struct row {
    const uint8_t *blocks;
    const uint8_t *scales; /* MXFP4 alone */
};

/* What makes the weights unsigned: 16 for the doubled codes, 128 for int8. As a power of two. */
INLINE int offset_bits(enum format format)
{
    return format == Q8_0 ? 7 : 4;
}

#define FOUR(a)    (a), (a) + 1, (a) + 2, (a) + 3
#define SIXTEEN(a) FOUR(a), FOUR((a) + 4), FOUR((a) + 8), FOUR((a) + 12)

/* Where four pieces of 16 bytes, 17 or 34 apart, lie in their first 64 bytes (0 ...) and their last (64 ...).
 */
static const uint8_t places_17[64] = {SIXTEEN(0), SIXTEEN(17), SIXTEEN(34), FOUR(51), FOUR(55),
                                      FOUR(59),   63,          125,         126,      127};
static const uint8_t places_34[64] = {SIXTEEN(0), SIXTEEN(34), SIXTEEN(78), SIXTEEN(112)};

/* Four pieces of 16 bytes, `stride` (17 or 34) apart; those from n_blocks on are zero. */
INLINE __m512i load_pieces(const uint8_t *from, size_t stride, size_t n_blocks)
{
    if (n_blocks >= 4)
        return _mm512_permutex2var_epi8(_mm512_loadu_si512(from),
                                        _mm512_loadu_si512(stride == 17 ? places_17 : places_34),
                                        _mm512_loadu_si512(from + 3 * stride - 48));
    __m512i value = _mm512_zextsi128_si512(_mm_loadu_si128((const void *)from));
    if (n_blocks > 1)
        value = _mm512_inserti32x4(value, _mm_loadu_si128((const void *)(from + stride)), 1);
    if (n_blocks > 2)
        value = _mm512_inserti32x4(value, _mm_loadu_si128((const void *)(from + 2 * stride)), 2);
    return value;
}

/* Codes of a chunk, n_blocks (1 to 4) of it: 16 bytes a block. */
INLINE __m512i load_codes(enum format format, const struct row *row, size_t chunk, size_t n_blocks)
{
    if (format == MXFP4_GGUF)
        return load_pieces(row->blocks + chunk * 68 + 1, 17, n_blocks);
    const uint8_t *from = row->blocks + chunk * 64;
    if (n_blocks >= 4)
        return _mm512_loadu_si512(from);
    return _mm512_maskz_loadu_epi8(((__mmask64)1 << n_blocks * 16) - 1, from);
}

/* The doubled values + 16, by the low four bits of an index: the table is there four times. */
INLINE __m512i code_values(void)
{
    return _mm512_broadcast_i32x4(
        _mm_setr_epi8(16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4));
}

INLINE void decode(__m512i codes, __m512i *first, __m512i *second)
{
    *first = _mm512_permutexvar_epi8(codes, code_values());
    *second = _mm512_permutexvar_epi8(_mm512_srli_epi16(codes, 4), code_values());
}

/* A chunk of a row as unsigned bytes, in the activations' order. */
INLINE void load_chunk(enum format format, const struct row *row, size_t chunk, size_t n_blocks,
                       __m512i *first, __m512i *second)
{
    if (format != Q8_0) {
        decode(load_codes(format, row, chunk, n_blocks), first, second);
        return;
    }
    const __m512i shift = _mm512_set1_epi8((char)0x80);
    const uint8_t *from = row->blocks + chunk * 136 + 2;
    *first = _mm512_xor_si512(load_pieces(from, 34, n_blocks), shift);
    *second = _mm512_xor_si512(load_pieces(from + 16, 34, n_blocks), shift);
}

#endif
