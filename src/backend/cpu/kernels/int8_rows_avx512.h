/*
 * One vector of activations, with AVX-512 VNNI and VBMI.
 *
 * A row after the other, straight through memory, which several short streams are not: the processor's own
 * prefetching works in it. 16 blocks of the row are a register: lane 4k + j is block k of chunk j of four,
 * and so turn 4j + k.
 */
#ifndef GS_BACKEND_CPU_KERNELS_INT8_ROWS_AVX512_H
#define GS_BACKEND_CPU_KERNELS_INT8_ROWS_AVX512_H

#include "backend/cpu/kernels/int8_load_avx512.h"

#define AHEAD_BYTES 12288

/*
 * Asks for what the rows after these hold, into the second cache: the first has too few loads in flight. The
 * processor's own prefetching ends where a small page does. Harmless where nothing is there.
 */
INLINE void prefetch_group(enum format format, const struct row *row, size_t first)
{
    const size_t block_bytes = format == MXFP4 ? 16 : format == MXFP4_GGUF ? 17 : 34;
    const size_t n_lines = format == Q8_0 ? 9 : 4;
    const char *at = (const char *)row->blocks + first * block_bytes + AHEAD_BYTES;
#pragma GCC unroll 9
    for (size_t i = 0; i < n_lines; i++)
        _mm_prefetch(at + 64 * i, _MM_HINT_T1);
    if (format == MXFP4 && first % 64 == 0)
        _mm_prefetch((const char *)row->scales + first + AHEAD_BYTES / 16, _MM_HINT_T1);
}

/* What 16 blocks of activations bring to each row, by lane. */
struct group {
    __m512i shift; /* to be taken off */
    __m512 scale;
};

/* groups [(n_blocks + 15) / 16] */
INLINE void lay_groups(enum format format, const struct gs_q8_chunk *x, size_t n_blocks, struct group *groups)
{
    for (size_t chunk = 0; chunk * 4 < n_blocks; chunk += 4) {
        __m512i sums = _mm512_setzero_si512();
        __m512 scales = _mm512_setzero_ps();
        for (size_t j = 0; j < 4 && (chunk + j) * 4 < n_blocks; j++) {
            __mmask16 lanes = (__mmask16)(0x1111 << j); /* all four of a block's are alike */
            sums = _mm512_mask_loadu_epi32(sums, lanes, x[chunk + j].sum);
            scales = _mm512_mask_loadu_ps(scales, lanes, x[chunk + j].scale);
        }
        groups[chunk / 4] = (struct group){_mm512_slli_epi32(sums, (unsigned)offset_bits(format)), scales};
    }
}

/* Of GGUF's MXFP4: the scale bytes of 16 blocks, 17 bytes apart, in the lanes' lowest bytes. */
INLINE __m512i gather_scale_bytes(const uint8_t *blocks)
{
    const __m512i low = _mm512_setr_epi32(0, 68, 0, 0, 17, 85, 0, 0, 34, 102, 0, 0, 51, 119, 0, 0);
    const __m512i high = _mm512_setr_epi32(0, 0, 8, 76, 0, 0, 25, 93, 0, 0, 42, 110, 0, 0, 59, 127);
    __m512i first = _mm512_maskz_permutex2var_epi8(0x0011001100110011, _mm512_loadu_si512(blocks), low,
                                                   _mm512_loadu_si512(blocks + 64));
    __m512i second = _mm512_maskz_permutex2var_epi8(0x1100110011001100, _mm512_loadu_si512(blocks + 128),
                                                    high, _mm512_loadu_si512(blocks + 192));
    return _mm512_or_si512(first, second);
}

/* Of Q8_0: the halves of 16 blocks, 34 bytes apart. */
INLINE __m256i gather_halves(const uint8_t *blocks)
{
    const __m512i place =
        _mm512_zextsi256_si512(_mm256_setr_epi16(0, 0, 0, 0, 17, 17, 17, 17, 34, 34, 34, 34, 51, 51, 51, 51));
    __m512i halves = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        const uint8_t *chunk = blocks + j * 136;
        halves = _mm512_or_si512(halves, _mm512_maskz_permutex2var_epi16((__mmask32)(0x1111 << j),
                                                                         _mm512_loadu_si512(chunk), place,
                                                                         _mm512_loadu_si512(chunk + 64)));
    }
    return _mm512_castsi512_si256(halves);
}

/* The row's scales of 16 blocks from `first`, of which `left` are there; 0 past the end. */
INLINE __m512 group_scales(enum format format, const struct row *row, size_t first, size_t left)
{
    const __m128i place = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    if (format == Q8_0) {
        uint16_t halves[16] = {0};
        if (left >= 16)
            return _mm512_cvtph_ps(gather_halves(row->blocks + first * 34));
        for (size_t b = 0; b < left; b++)
            __builtin_memcpy(&halves[b % 4 * 4 + b / 4], row->blocks + (first + b) * 34, 2);
        return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)halves));
    }
    __m512i bytes;
    if (format == MXFP4_GGUF && left >= 16) {
        bytes = gather_scale_bytes(row->blocks + first * 17);
    } else if (format == MXFP4_GGUF) {
        uint8_t one[16] = {0};
        for (size_t b = 0; b < left; b++)
            one[b] = row->blocks[(first + b) * 17];
        bytes = _mm512_cvtepu8_epi32(_mm_shuffle_epi8(_mm_loadu_si128((const void *)one), place));
    } else {
        __mmask16 mask = (__mmask16)(left >= 16 ? 0xFFFFu : (1u << left) - 1);
        bytes =
            _mm512_cvtepu8_epi32(_mm_shuffle_epi8(_mm_maskz_loadu_epi8(mask, row->scales + first), place));
    }
    return _mm512_castsi512_ps(_mm512_slli_epi32(bytes, 23));
}

/* Sums of four lanes of four registers: block [k] of each chunk [j] -> [k][j]. */
INLINE __m512i add_across(const __m512i dots[4])
{
    __m512i ab =
        _mm512_add_epi32(_mm512_unpacklo_epi32(dots[0], dots[1]), _mm512_unpackhi_epi32(dots[0], dots[1]));
    __m512i cd =
        _mm512_add_epi32(_mm512_unpacklo_epi32(dots[2], dots[3]), _mm512_unpackhi_epi32(dots[2], dots[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

/* sum += the 16 blocks from `first`, of which `left` (1 at least) are there. */
INLINE __m512 add_group(enum format format, const struct row *row, size_t first, size_t left,
                        const struct gs_q8_chunk *x, const struct group *group, __m512 sum)
{
    __m512i dots[4];
    prefetch_group(format, row, first);
#pragma GCC unroll 4
    for (size_t j = 0; j < 4; j++) {
        size_t chunk = first / 4 + j, n_blocks = left > j * 4 ? left - j * 4 : 0;
        dots[j] = _mm512_setzero_si512();
        if (n_blocks == 0)
            continue;
        __m512i low, high;
        load_chunk(format, row, chunk, n_blocks < 4 ? n_blocks : 4, &low, &high);
        dots[j] = _mm512_dpbusd_epi32(dots[j], low, _mm512_loadu_si512(x[chunk].q));
        dots[j] = _mm512_dpbusd_epi32(dots[j], high, _mm512_loadu_si512(x[chunk].q + 64));
    }
    __m512i whole = _mm512_sub_epi32(add_across(dots), group->shift);
    __m512 scale = _mm512_mul_ps(group_scales(format, row, first, left), group->scale);
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), scale, sum);
}

/* Turns in lanes. */
INLINE __m512 dot_row(enum format format, const struct row *row, size_t n_blocks, const struct gs_q8_chunk *x,
                      const struct group *groups)
{
    __m512 sum = _mm512_setzero_ps();
    size_t first = 0;
    for (; first + 16 <= n_blocks; first += 16)
        sum = add_group(format, row, first, 16, x, &groups[first / 16], sum);
    if (first < n_blocks)
        sum = add_group(format, row, first, n_blocks - first, x, &groups[first / 16], sum);
    return sum;
}

/* out [n_rows, 16 at most] = rows . x, times factor. */
INLINE void dot_rows(enum format format, const struct row *rows, size_t n_rows, size_t n_blocks,
                     const struct gs_q8_chunk *x, const struct group *groups, float factor, float *out)
{
    __m512i turns[SIDE];
    for (size_t r = 0; r < SIDE; r++)
        turns[r] = r < n_rows ? _mm512_castps_si512(dot_row(format, &rows[r], n_blocks, x, groups))
                              : _mm512_setzero_si512();
    transpose(turns);
    __m512 total = _mm512_castsi512_ps(turns[0]);
#pragma GCC unroll 16
    for (size_t turn = 1; turn < TURNS; turn++)
        total = _mm512_add_ps(total, _mm512_castsi512_ps(turns[turn % 4 * 4 + turn / 4]));
    _mm512_mask_storeu_ps(out, (__mmask16)((1u << n_rows) - 1), _mm512_mul_ps(total, _mm512_set1_ps(factor)));
}

#endif
