/*
 * With AVX-512 VNNI and VBMI. dpbusd multiplies unsigned by signed bytes, so weights are shifted to be
 * unsigned and the shift times the block's sum of activations is taken off again: exact.
 *
 * One vector of activations: four rows at a time, each straight from memory. Several: 16 or 32 rows are laid
 * out side by side once, lanes being rows, and meet four vectors at a time. Both sum a row's blocks in this
 * order: blocks 0, 4, 8 ..., then 1, 5, 9 ..., 2 ..., 3 ..., and those four sums one after the other.
 */
#include <immintrin.h>

#define SIDE 16 /* rows in a register, one a lane */

enum format { MXFP4, MXFP4_GGUF, Q8_0 };

struct row {
    const uint8_t *blocks;
    const uint8_t *scales; /* MXFP4 alone */
};

#define INLINE static inline __attribute__((always_inline))

/* What makes the weights unsigned: 16 for the doubled codes, 128 for int8. As a power of two. */
INLINE int offset_bits(enum format format)
{
    return format == Q8_0 ? 7 : 4;
}

/* Four pieces of 16 bytes, `stride` apart; those from n_blocks on are zero. */
INLINE __m512i load_pieces(const uint8_t *from, size_t stride, size_t n_blocks)
{
    const void *second = from + stride, *third = from + 2 * stride, *fourth = from + 3 * stride;
    if (n_blocks >= 4) {
        __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)from)),
                                              _mm_loadu_si128(second), 1);
        __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(third)),
                                               _mm_loadu_si128(fourth), 1);
        return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    }
    __m512i value = _mm512_zextsi128_si512(_mm_loadu_si128((const void *)from));
    if (n_blocks > 1)
        value = _mm512_inserti32x4(value, _mm_loadu_si128(second), 1);
    if (n_blocks > 2)
        value = _mm512_inserti32x4(value, _mm_loadu_si128(third), 2);
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

#define ROWS_AHEAD 16

/*
 * Asks for the rows that come ROWS_AHEAD after these four, in the order in which they lie: rows follow each
 * other in memory, and the processor's own prefetching does not get far in four short streams. Into the
 * second cache: the first has too few loads in flight, and with it the rate halves. Harmless where nothing is
 * there.
 */
INLINE void prefetch_ahead(enum format format, const struct row *rows, size_t chunk, size_t n)
{
    size_t block_bytes = format == MXFP4 ? 16 : format == MXFP4_GGUF ? 17 : 34;
    const char *at = (const char *)rows[0].blocks + (n / 32 * ROWS_AHEAD + chunk * 16) * block_bytes;
    const size_t n_lines = format == Q8_0 ? 9 : 4;
#pragma GCC unroll 9
    for (size_t i = 0; i < n_lines; i++)
        _mm_prefetch(at + 64 * i, _MM_HINT_T1);
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

/* ---------------------------------------------------------------- one vector */

/* Scale bytes of four chunks of four rows [row][16 blocks]; blocks from n_blocks on are 0. */
INLINE __m512i load_scales(enum format format, const struct row *rows, size_t chunk, size_t n_blocks)
{
    __m512i value = _mm512_setzero_si512();
    size_t left = n_blocks - chunk * 4;
    if (format == MXFP4) {
        __mmask16 mask = left >= 16 ? (__mmask16)0xFFFF : (__mmask16)((1u << left) - 1);
        for (size_t r = 0; r < 4; r++)
            _mm_prefetch((const char *)rows[r].scales + n_blocks * ROWS_AHEAD + chunk * 4, _MM_HINT_T1);
        value = _mm512_inserti32x4(value, _mm_maskz_loadu_epi8(mask, rows[0].scales + chunk * 4), 0);
        value = _mm512_inserti32x4(value, _mm_maskz_loadu_epi8(mask, rows[1].scales + chunk * 4), 1);
        value = _mm512_inserti32x4(value, _mm_maskz_loadu_epi8(mask, rows[2].scales + chunk * 4), 2);
        value = _mm512_inserti32x4(value, _mm_maskz_loadu_epi8(mask, rows[3].scales + chunk * 4), 3);
        return value;
    }
    uint8_t bytes[64] = {0};
    for (size_t r = 0; r < 4; r++)
        for (size_t b = 0; b < 16 && b < left; b++)
            bytes[r * 16 + b] = rows[r].blocks[(chunk * 4 + b) * 17];
    return _mm512_loadu_si512(bytes);
}

/* [4 blocks][4 rows] of one chunk. `bytes` are load_scales' of the four chunks that it is one of. */
INLINE __m512 chunk_scales(enum format format, const struct row *rows, size_t chunk, size_t n_blocks,
                           __m512i bytes)
{
    if (format != Q8_0) {
        const __m512i place = _mm512_setr_epi32(0, 16, 32, 48, 1, 17, 33, 49, 2, 18, 34, 50, 3, 19, 35, 51);
        __m512i index = _mm512_add_epi32(place, _mm512_set1_epi32((int)(chunk % 4 * 4)));
        __m512i scales = _mm512_maskz_permutexvar_epi8(0x1111111111111111, index, bytes);
        return _mm512_castsi512_ps(_mm512_slli_epi32(scales, 23));
    }
    uint16_t halves[16] = {0};
    for (size_t b = 0; b < n_blocks; b++)
        for (size_t r = 0; r < 4; r++)
            __builtin_memcpy(&halves[b * 4 + r], rows[r].blocks + (chunk * 4 + b) * 34, 2);
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)halves));
}

/* Sums of four lanes of four registers: [block] of each row -> [block][row]. */
INLINE __m512i add_across(__m512i a, __m512i b, __m512i c, __m512i d)
{
    __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

/* sum += a chunk of four rows. */
INLINE __m512 add_chunk(enum format format, const struct row *rows, size_t n, size_t chunk, size_t n_blocks,
                        __m512i bytes, const struct gs_q8_chunk *x, __m512 sum)
{
    __m512i dots[4];
    prefetch_ahead(format, rows, chunk, n);
    const __m512i x_first = _mm512_loadu_si512(x[chunk].q), x_second = _mm512_loadu_si512(x[chunk].q + 64);
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++) {
        __m512i first, second;
        load_chunk(format, &rows[r], chunk, n_blocks, &first, &second);
        dots[r] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), first, x_first);
        dots[r] = _mm512_dpbusd_epi32(dots[r], second, x_second);
    }
    __m512i shift = _mm512_slli_epi32(_mm512_loadu_si512(x[chunk].sum), (unsigned)offset_bits(format));
    __m512i whole = _mm512_sub_epi32(add_across(dots[0], dots[1], dots[2], dots[3]), shift);
    __m512 scale =
        _mm512_mul_ps(chunk_scales(format, rows, chunk, n_blocks, bytes), _mm512_loadu_ps(x[chunk].scale));
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), scale, sum);
}

/* out [4] = rows [4] . x */
INLINE __m128 dot_four(enum format format, const struct row *rows, size_t n, const struct gs_q8_chunk *x)
{
    __m512 sum = _mm512_setzero_ps();
    size_t n_blocks = n / 32, n_whole = n_blocks / 4;
    __m512i bytes = _mm512_setzero_si512();
    size_t chunk = 0;
    for (; chunk + 4 <= n_whole; chunk += 4) {
        if (format != Q8_0)
            bytes = load_scales(format, rows, chunk, n_blocks);
#pragma GCC unroll 4
        for (size_t i = 0; i < 4; i++)
            sum = add_chunk(format, rows, n, chunk + i, 4, bytes, x, sum);
    }
    if (format != Q8_0 && chunk * 4 < n_blocks)
        bytes = load_scales(format, rows, chunk, n_blocks);
    for (; chunk < n_whole; chunk++)
        sum = add_chunk(format, rows, n, chunk, 4, bytes, x, sum);
    if (n_blocks % 4 > 0)
        sum = add_chunk(format, rows, n, chunk, n_blocks % 4, bytes, x, sum);
    __m128 total = _mm_add_ps(_mm512_castps512_ps128(sum), _mm512_extractf32x4_ps(sum, 1));
    total = _mm_add_ps(total, _mm512_extractf32x4_ps(sum, 2));
    return _mm_add_ps(total, _mm512_extractf32x4_ps(sum, 3));
}

/* ---------------------------------------------------------------- several vectors */

/*
 * 16 rows side by side. Blocks are in the order in which they are summed; of each, eight registers of four
 * weights a row, then a register of scales.
 */
struct side_block {
    __m512i weights[8];
    __m512 scales;
};

INLINE size_t block_place(size_t block, size_t n_blocks)
{
    size_t turn = block % 4, before = turn * (n_blocks / 4);
    before += turn < n_blocks % 4 ? turn : n_blocks % 4;
    return before + block / 4;
}

/* v[r] lane i -> v[i] lane r */
INLINE void transpose(__m512i v[16])
{
    __m512i t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512i even_low = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88);
        __m512i odd_low = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xDD);
        __m512i even_high = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
        __m512i odd_high = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xDD);
        t[i] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
        t[i + 8] = _mm512_shuffle_i32x4(even_low, even_high, 0xDD);
        t[i + 12] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xDD);
    }
    for (int i = 0; i < 16; i++)
        v[i] = t[i];
}

INLINE float row_scale(enum format format, const struct row *row, size_t block)
{
    if (format == Q8_0) {
        uint16_t half;
        __builtin_memcpy(&half, row->blocks + block * 34, sizeof half);
        return _cvtsh_ss(half);
    }
    uint32_t byte = format == MXFP4 ? row->scales[block] : row->blocks[block * 17];
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128((int)(byte << 23))));
}

/* The scales of a chunk's blocks of 16 rows. */
INLINE void lay_scales(enum format format, const struct row *rows, size_t chunk, size_t n_blocks,
                       struct side_block *out)
{
    size_t left = n_blocks - chunk * 4;
    for (size_t b = 0; b < 4 && b < left; b++) {
        float scales[SIDE];
        for (size_t r = 0; r < SIDE; r++)
            scales[r] = row_scale(format, &rows[r], chunk * 4 + b);
        out[block_place(chunk * 4 + b, n_blocks)].scales = _mm512_loadu_ps(scales);
    }
}

INLINE void lay_side(enum format format, const struct row *rows, size_t n_blocks, struct side_block *out)
{
    for (size_t chunk = 0; chunk * 4 < n_blocks; chunk++) {
        size_t left = n_blocks - chunk * 4 < 4 ? n_blocks - chunk * 4 : 4;
        __m512i first[SIDE], second[SIDE];
        for (size_t r = 0; r < SIDE; r++) {
            if (format == Q8_0)
                load_chunk(format, &rows[r], chunk, left, &first[r], &second[r]);
            else
                first[r] = load_codes(format, &rows[r], chunk, left);
        }
        transpose(first);
        if (format == Q8_0)
            transpose(second);
        for (size_t i = 0; i < left * 4; i++) {
            struct side_block *block = &out[block_place(chunk * 4 + i / 4, n_blocks)];
            if (format != Q8_0)
                decode(first[i], &first[i], &second[i]);
            block->weights[i % 4] = first[i];
            block->weights[4 + i % 4] = second[i];
        }
        lay_scales(format, rows, chunk, n_blocks, out);
    }
}

INLINE __m512i broadcast_four(const int8_t *q)
{
    int32_t four;
    __builtin_memcpy(&four, q, sizeof four);
    return _mm512_set1_epi32(four);
}

/* sums[s][t] += block of side s times vector t. */
INLINE void add_block(enum format format, const struct side_block *const *sides, size_t n_sides,
                      const struct gs_q8_chunk *const *x, size_t n_x, size_t block, __m512 sums[2][4])
{
    __m512i dots[2][4];
    size_t chunk = block / 4, part = block % 4;
#pragma GCC unroll 4
    for (size_t t = 0; t < n_x; t++) {
        __m512i shift =
            _mm512_slli_epi32(_mm512_set1_epi32(x[t][chunk].sum[part * 4]), (unsigned)offset_bits(format));
        dots[0][t] = dots[1][t] = _mm512_sub_epi32(_mm512_setzero_si512(), shift);
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++) {
        size_t at = i / 4 * 64 + part * 16 + i % 4 * 4;
#pragma GCC unroll 4
        for (size_t t = 0; t < n_x; t++) {
            __m512i four = broadcast_four(x[t][chunk].q + at);
#pragma GCC unroll 2
            for (size_t s = 0; s < n_sides; s++)
                dots[s][t] = _mm512_dpbusd_epi32(dots[s][t], sides[s]->weights[i], four);
        }
    }
#pragma GCC unroll 4
    for (size_t t = 0; t < n_x; t++) {
        __m512 x_scale = _mm512_set1_ps(x[t][chunk].scale[part * 4]);
#pragma GCC unroll 2
        for (size_t s = 0; s < n_sides; s++)
            sums[s][t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[s][t]),
                                         _mm512_mul_ps(sides[s]->scales, x_scale), sums[s][t]);
    }
}

/* totals[s][t] = side s times vector t. */
INLINE void multiply_sides(enum format format, const struct side_block *const *laid, size_t n_sides,
                           size_t n_blocks, const struct gs_q8_chunk *const *x, size_t n_x,
                           __m512 totals[2][4])
{
    const struct side_block *sides[2] = {laid[0], laid[n_sides - 1]};
    for (size_t turn = 0; turn < 4; turn++) {
        __m512 sums[2][4];
        for (size_t s = 0; s < 2; s++)
            for (size_t t = 0; t < 4; t++)
                sums[s][t] = _mm512_setzero_ps();
        for (size_t block = turn; block < n_blocks; block += 4) {
            add_block(format, sides, n_sides, x, n_x, block, sums);
            sides[0]++;
            sides[1]++;
        }
#pragma GCC unroll 2
        for (size_t s = 0; s < n_sides; s++)
#pragma GCC unroll 4
            for (size_t t = 0; t < n_x; t++)
                totals[s][t] = turn == 0 ? sums[s][t] : _mm512_add_ps(totals[s][t], sums[s][t]);
    }
}

struct target {
    float factor;
    float *out;
    size_t stride, n_rows;
};

INLINE void multiply_batch(enum format format, const struct side_block *const *laid, size_t n_sides,
                           size_t n_blocks, const struct gs_q8_chunk *const *x, size_t n_x,
                           const struct target *target, size_t first_x)
{
    __m512 totals[2][4];
    multiply_sides(format, laid, n_sides, n_blocks, x + first_x, n_x, totals);
    for (size_t s = 0; s < n_sides; s++) {
        size_t left = target->n_rows - s * SIDE;
        __mmask16 mask = left >= SIDE ? (__mmask16)0xFFFF : (__mmask16)((1u << left) - 1);
        for (size_t t = 0; t < n_x; t++)
            _mm512_mask_storeu_ps(target->out + (first_x + t) * target->stride + s * SIDE, mask,
                                  _mm512_mul_ps(totals[s][t], _mm512_set1_ps(target->factor)));
    }
}

INLINE void multiply_tile(enum format format, const struct side_block *const *laid, size_t n_sides,
                          size_t n_blocks, const struct gs_q8_chunk *const *x, size_t n_x,
                          const struct target *target)
{
    size_t t = 0;
    for (; t + 4 <= n_x; t += 4)
        multiply_batch(format, laid, n_sides, n_blocks, x, 4, target, t);
    if (n_x - t == 3)
        multiply_batch(format, laid, n_sides, n_blocks, x, 3, target, t);
    else if (n_x - t == 2)
        multiply_batch(format, laid, n_sides, n_blocks, x, 2, target, t);
    else if (n_x - t == 1)
        multiply_batch(format, laid, n_sides, n_blocks, x, 1, target, t);
}

/* ---------------------------------------------------------------- both */

#define FEW 2 /* vectors for which laying the rows out does not pay */

/* rows [GS_FAST_TILE_ROWS + 3]: those past n_rows repeat the last. */
INLINE void multiply(enum format format, const struct row *rows, size_t n, const struct gs_q8_chunk *const *x,
                     size_t n_x, void *work, const struct target *target)
{
    if (n_x <= FEW) {
        const __m128 factor = _mm_set1_ps(target->factor);
        for (size_t r = 0; r < target->n_rows; r += 4) {
            size_t left = target->n_rows - r;
            __mmask8 mask = left >= 4 ? (__mmask8)0xF : (__mmask8)((1u << left) - 1);
            for (size_t t = 0; t < n_x; t++)
                _mm_mask_storeu_ps(target->out + t * target->stride + r, mask,
                                   _mm_mul_ps(dot_four(format, rows + r, n, x[t]), factor));
        }
        return;
    }
    size_t n_blocks = n / 32, n_sides = target->n_rows > SIDE ? 2 : 1;
    struct side_block *laid = work;
    const struct side_block *sides[2] = {laid, laid + n_blocks};
    for (size_t s = 0; s < n_sides; s++)
        lay_side(format, rows + s * SIDE, n_blocks, laid + s * n_blocks);
    if (n_sides == 2)
        multiply_tile(format, sides, 2, n_blocks, x, n_x, target);
    else
        multiply_tile(format, sides, 1, n_blocks, x, n_x, target);
}

#define MOST_ROWS (GS_FAST_TILE_ROWS + 3)

void GS_VARIANT(gs_mxfp4_q8)(const struct gs_mxfp4_row *rows, size_t n_rows, size_t n,
                             const struct gs_q8_chunk *const *x, size_t n_x, void *work, float *out,
                             size_t stride)
{
    struct row padded[MOST_ROWS];
    struct target target = {0.5f, out, stride, n_rows};
    for (size_t r = 0; r < MOST_ROWS; r++) {
        const struct gs_mxfp4_row *row = &rows[r < n_rows ? r : n_rows - 1];
        padded[r] = (struct row){row->blocks, row->scales};
    }
    if (padded[0].scales)
        multiply(MXFP4, padded, n, x, n_x, work, &target);
    else
        multiply(MXFP4_GGUF, padded, n, x, n_x, work, &target);
}

void GS_VARIANT(gs_q8_0_q8)(const struct gs_q8_0_row *rows, size_t n_rows, size_t n,
                            const struct gs_q8_chunk *const *x, size_t n_x, void *work, float *out,
                            size_t stride)
{
    struct row padded[MOST_ROWS];
    struct target target = {1.0f, out, stride, n_rows};
    for (size_t r = 0; r < MOST_ROWS; r++)
        padded[r] = (struct row){rows[r < n_rows ? r : n_rows - 1].blocks, NULL};
    multiply(Q8_0, padded, n, x, n_x, work, &target);
}
