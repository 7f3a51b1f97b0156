/*
 * With AVX-512 VNNI and VBMI. dpbusd multiplies unsigned by signed bytes, so weights are shifted to be
 * unsigned and the shift times the block's sum of activations is taken off again: exact.
 *
 * One vector of activations: a row after the other (int8_rows_avx512.h). Several: 16 or 32 rows are laid out
 * side by side once, lanes being rows, and meet four vectors at a time. Both sum a row's blocks in this
 * order: blocks 0, 16, 32 ..., then 1, 17, 33 ..., and the sums of these TURNS one after the other.
 */
#include "backend/cpu/kernels/int8_rows_avx512.h"

/* ---------------------------------------------------------------- several vectors */

/*
 * 16 rows side by side. Blocks are in the order in which they are summed; of each, eight registers of four
 * weights a row, then a register of scales: of MXFP4 what they add to an exponent, in its place.
 */
struct side_block {
    __m512i weights[8];
    __m512i scales;
};

/* How a block's scales meet those of the activations. */
enum scaling {
    MULTIPLIED, /* float32 */
    POWERS,     /* powers of two, multiplied */
    ADDED,      /* powers of two, added to the exponents: the same product, in another pipe */
};

/* Turns that have a block. */
INLINE size_t count_turns(size_t n_blocks)
{
    return n_blocks < TURNS ? n_blocks : TURNS;
}

INLINE size_t block_place(size_t block, size_t n_blocks)
{
    size_t turn = block % TURNS, before = turn * (n_blocks / TURNS);
    before += turn < n_blocks % TURNS ? turn : n_blocks % TURNS;
    return before + block / TURNS;
}

/* The scales of a chunk's blocks of 16 rows of Q8_0. */
INLINE void lay_halves(const struct row *rows, size_t chunk, size_t n_blocks, struct side_block *out)
{
    for (size_t block = chunk * 4; block < chunk * 4 + 4 && block < n_blocks; block++) {
        uint16_t halves[SIDE];
        for (size_t r = 0; r < SIDE; r++)
            __builtin_memcpy(&halves[r], rows[r].blocks + block * 34, sizeof halves[r]);
        __m512 scales = _mm512_cvtph_ps(_mm256_loadu_si256((const void *)halves));
        out[block_place(block, n_blocks)].scales = _mm512_castps_si512(scales);
    }
}

/* Scale bytes of 16 blocks of 16 rows, four blocks of a row in a lane: [4][16 rows][4 blocks]; 0 past the
 * end.
 */
INLINE void load_side_scales(enum format format, const struct row *rows, size_t first, size_t n_blocks,
                             __m512i out[4])
{
    __m512i four[4]; /* rows each */
    size_t left = n_blocks - first;
    if (format == MXFP4) {
        __mmask16 mask = (__mmask16)(left >= 16 ? 0xFFFFu : (1u << left) - 1);
#pragma GCC unroll 4
        for (size_t i = 0; i < 4; i++) {
            four[i] = _mm512_castsi128_si512(_mm_maskz_loadu_epi8(mask, rows[4 * i].scales + first));
            four[i] =
                _mm512_inserti32x4(four[i], _mm_maskz_loadu_epi8(mask, rows[4 * i + 1].scales + first), 1);
            four[i] =
                _mm512_inserti32x4(four[i], _mm_maskz_loadu_epi8(mask, rows[4 * i + 2].scales + first), 2);
            four[i] =
                _mm512_inserti32x4(four[i], _mm_maskz_loadu_epi8(mask, rows[4 * i + 3].scales + first), 3);
        }
    } else {
        uint8_t bytes[SIDE][16] = {0};
        for (size_t r = 0; r < SIDE; r++)
            for (size_t b = 0; b < 16 && b < left; b++)
                bytes[r][b] = rows[r].blocks[(first + b) * 17];
        for (size_t i = 0; i < 4; i++)
            four[i] = _mm512_loadu_si512(bytes[4 * i]);
    }
    const __m512i place = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        __m512i index = _mm512_add_epi32(place, _mm512_set1_epi32(c));
        out[c] = _mm512_mask_blend_epi32(0xFF00, _mm512_permutex2var_epi32(four[0], index, four[1]),
                                         _mm512_permutex2var_epi32(four[2], index, four[3]));
    }
}

/* The smallest and the largest exponent, by lane. */
struct exponents {
    __m512i least, most;
};

/* Blocks whose scale counts as zero get weights of zero instead, and any scale. */
INLINE void clear_weights(struct side_block *block, __mmask16 rows)
{
    for (int i = 0; i < 8; i++)
        block->weights[i] = _mm512_mask_mov_epi32(block->weights[i], rows, _mm512_set1_epi32(0x10101010));
}

/* The scales of 16 blocks from `first`, of 16 rows of MXFP4 whose weights are there. */
INLINE void lay_powers(enum format format, const struct row *rows, size_t first, size_t n_blocks,
                       struct side_block *out, struct exponents *seen)
{
    const __m512i one = _mm512_set1_epi32(127);
    __m512i bytes[4];
    load_side_scales(format, rows, first, n_blocks, bytes);
#pragma GCC unroll 4
    for (size_t c = 0; c < 4; c++) {
        for (size_t b = first + 4 * c; b < first + 4 * c + 4 && b < n_blocks; b++) {
            struct side_block *block = &out[block_place(b, n_blocks)];
            __m512i exponent = _mm512_and_si512(bytes[c], _mm512_set1_epi32(0xFF));
            __mmask16 zeros = _mm512_testn_epi32_mask(exponent, exponent);
            if (zeros) {
                clear_weights(block, zeros);
                exponent = _mm512_mask_mov_epi32(exponent, zeros, one);
            }
            seen->least = _mm512_min_epi32(seen->least, exponent);
            seen->most = _mm512_max_epi32(seen->most, exponent);
            block->scales = _mm512_slli_epi32(_mm512_sub_epi32(exponent, one), 23);
            bytes[c] = _mm512_srli_epi32(bytes[c], 8);
        }
    }
}

/* A chunk's weights of 16 rows. */
INLINE void lay_weights(enum format format, const struct row *rows, size_t chunk, size_t n_blocks,
                        struct side_block *out)
{
    size_t left = n_blocks - chunk * 4 < 4 ? n_blocks - chunk * 4 : 4;
    __m512i first[SIDE], second[SIDE];
#pragma GCC unroll 16
    for (size_t r = 0; r < SIDE; r++) {
        if (format == Q8_0)
            load_chunk(format, &rows[r], chunk, left, &first[r], &second[r]);
        else
            first[r] = load_codes(format, &rows[r], chunk, left);
    }
    transpose(first);
    if (format == Q8_0)
        transpose(second);
#pragma GCC unroll 4
    for (size_t b = 0; b < 4; b++) {
        if (b == left)
            return;
        struct side_block *block = &out[block_place(chunk * 4 + b, n_blocks)];
#pragma GCC unroll 4
        for (size_t i = 0; i < 4; i++) {
            __m512i low = first[4 * b + i], high = second[4 * b + i];
            if (format != Q8_0)
                decode(low, &low, &high);
            block->weights[i] = low;
            block->weights[4 + i] = high;
        }
    }
}

INLINE void lay_side(enum format format, const struct row *rows, size_t n_blocks, struct side_block *out,
                     struct exponents *seen)
{
    for (size_t chunk = 0; chunk * 4 < n_blocks; chunk++) {
        lay_weights(format, rows, chunk, n_blocks, out);
        if (format == Q8_0)
            lay_halves(rows, chunk, n_blocks, out);
        else if (chunk % 4 == 3 || chunk * 4 + 4 >= n_blocks)
            lay_powers(format, rows, chunk / 4 * 16, n_blocks, out, seen);
    }
}

/*
 * May exponents be added? Where every product of two scales is an ordinary number: no scale of an activation
 * is zero, subnormal, infinite or no number, and no sum leaves the exponents' range.
 */
INLINE bool may_add(const struct exponents *seen, const struct gs_q8_chunk *const *x, size_t n_x,
                    size_t n_blocks)
{
    __m512i least = _mm512_set1_epi32(INT32_MAX), most = _mm512_setzero_si512();
    __mmask16 last = (__mmask16)(n_blocks % 4 == 0 ? 0xFFFFu : (1u << n_blocks % 4 * 4) - 1);
    size_t n_chunks = (n_blocks + 3) / 4;
    for (size_t t = 0; t < n_x; t++) {
        for (size_t chunk = 0; chunk < n_chunks; chunk++) {
            __mmask16 mask = chunk + 1 < n_chunks ? (__mmask16)0xFFFF : last;
            __m512i scales = _mm512_loadu_si512(x[t][chunk].scale);
            least = _mm512_mask_min_epi32(least, mask, least, scales);
            most = _mm512_mask_max_epi32(most, mask, most, scales);
        }
    }
    int32_t x_least = _mm512_reduce_min_epi32(least) >> 23, x_most = _mm512_reduce_max_epi32(most) >> 23;
    return x_least > 0 && x_most < 255 && x_least + _mm512_reduce_min_epi32(seen->least) - 127 > 0 &&
           x_most + _mm512_reduce_max_epi32(seen->most) - 127 < 255;
}

INLINE __m512i broadcast_four(const int8_t *q)
{
    int32_t four;
    __builtin_memcpy(&four, q, sizeof four);
    return _mm512_set1_epi32(four);
}

/* Scales of 16 rows times that of an activation's block. */
INLINE __m512 join_scales(enum scaling scaling, __m512i scales, float x_scale)
{
    __m512 x = _mm512_set1_ps(x_scale);
    if (scaling == ADDED)
        return _mm512_castsi512_ps(_mm512_add_epi32(scales, _mm512_castps_si512(x)));
    if (scaling == POWERS)
        scales = _mm512_add_epi32(scales, _mm512_castps_si512(_mm512_set1_ps(1.0f)));
    return _mm512_mul_ps(_mm512_castsi512_ps(scales), x);
}

/* sums[s][t] += block of side s times vector t. */
INLINE void add_block(enum scaling scaling, const struct side_block *const *sides, size_t n_sides,
                      const struct gs_q8_chunk *const *x, size_t n_x, size_t block, __m512 sums[2][4])
{
    __m512i dots[2][4];
    size_t chunk = block / 4, part = block % 4;
    const unsigned bits = (unsigned)offset_bits(scaling == MULTIPLIED ? Q8_0 : MXFP4);
#pragma GCC unroll 4
    for (size_t t = 0; t < n_x; t++) {
        __m512i shift = _mm512_slli_epi32(_mm512_set1_epi32(x[t][chunk].sum[part * 4]), bits);
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
#pragma GCC unroll 2
        for (size_t s = 0; s < n_sides; s++) {
            __m512 scale = join_scales(scaling, sides[s]->scales, x[t][chunk].scale[part * 4]);
            sums[s][t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[s][t]), scale, sums[s][t]);
        }
    }
}

/* totals[s][t] = side s times vector t. */
INLINE void multiply_sides(enum scaling scaling, const struct side_block *const *laid, size_t n_sides,
                           size_t n_blocks, const struct gs_q8_chunk *const *x, size_t n_x,
                           struct ahead *ahead, __m512 totals[2][4])
{
    const struct side_block *sides[2] = {laid[0], laid[n_sides - 1]};
    size_t n_turns = count_turns(n_blocks);
    for (size_t s = 0; s < n_sides; s++)
        for (size_t t = 0; t < n_x; t++)
            totals[s][t] = _mm512_set1_ps(-0.0f); /* to which any number adds up to itself */
    for (size_t turn = 0; turn < n_turns; turn++) {
        __m512 sums[2][4];
        prefetch_piece(ahead);
        for (size_t s = 0; s < 2; s++)
            for (size_t t = 0; t < 4; t++)
                sums[s][t] = _mm512_setzero_ps();
        for (size_t block = turn; block < n_blocks; block += TURNS) {
            add_block(scaling, sides, n_sides, x, n_x, block, sums);
            sides[0]++;
            sides[1]++;
        }
#pragma GCC unroll 2
        for (size_t s = 0; s < n_sides; s++)
#pragma GCC unroll 4
            for (size_t t = 0; t < n_x; t++)
                totals[s][t] = _mm512_add_ps(totals[s][t], sums[s][t]);
    }
    if (n_turns < TURNS) /* what the empty ones do: -0 becomes 0 */
        for (size_t s = 0; s < n_sides; s++)
            for (size_t t = 0; t < n_x; t++)
                totals[s][t] = _mm512_add_ps(totals[s][t], _mm512_setzero_ps());
}

struct target {
    float factor;
    float *out;
    size_t stride, n_rows;
};

INLINE void multiply_batch(enum scaling scaling, const struct side_block *const *laid, size_t n_sides,
                           size_t n_blocks, const struct gs_q8_chunk *const *x, size_t n_x,
                           const struct target *target, size_t first_x, struct ahead *ahead)
{
    __m512 totals[2][4];
    multiply_sides(scaling, laid, n_sides, n_blocks, x + first_x, n_x, ahead, totals);
    for (size_t s = 0; s < n_sides; s++) {
        size_t left = target->n_rows - s * SIDE;
        __mmask16 mask = (__mmask16)(left >= SIDE ? 0xFFFFu : (1u << left) - 1);
        for (size_t t = 0; t < n_x; t++)
            _mm512_mask_storeu_ps(target->out + (first_x + t) * target->stride + s * SIDE, mask,
                                  _mm512_mul_ps(totals[s][t], _mm512_set1_ps(target->factor)));
    }
}

INLINE void multiply_tile(enum scaling scaling, const struct side_block *const *laid, size_t n_sides,
                          size_t n_blocks, const struct gs_q8_chunk *const *x, size_t n_x,
                          const struct target *target, struct ahead *ahead)
{
    size_t t = 0;
    for (; t + 4 <= n_x; t += 4)
        multiply_batch(scaling, laid, n_sides, n_blocks, x, 4, target, t, ahead);
    if (n_x - t == 3)
        multiply_batch(scaling, laid, n_sides, n_blocks, x, 3, target, t, ahead);
    else if (n_x - t == 2)
        multiply_batch(scaling, laid, n_sides, n_blocks, x, 2, target, t, ahead);
    else if (n_x - t == 1)
        multiply_batch(scaling, laid, n_sides, n_blocks, x, 1, target, t, ahead);
}

/* The rows that follow these in memory, in as many pieces as there are turns. */
INLINE struct ahead plan_ahead(enum format format, const struct row *rows, size_t n_rows, size_t n_blocks,
                               size_t n_x)
{
    size_t block_bytes = format == MXFP4 ? 16 : format == MXFP4_GGUF ? 17 : 34;
    size_t row_bytes = n_blocks * block_bytes, n_turns = (n_x + 3) / 4 * count_turns(n_blocks);
    struct ahead ahead = {
        {(const char *)(rows[0].blocks + n_rows * row_bytes), NULL}, {n_rows * row_bytes / 64 + 1, 0}, {0}};
    if (format == MXFP4) {
        ahead.at[1] = (const char *)(rows[0].scales + n_rows * n_blocks);
        ahead.n_lines[1] = n_rows * n_blocks / 64 + 1;
    }
    for (int i = 0; i < 2; i++)
        ahead.piece[i] = (ahead.n_lines[i] + n_turns - 1) / n_turns;
    return ahead;
}

#if defined(GS_TILES)
#include "backend/cpu/kernels/int8_amx.h"
#else
INLINE size_t multiply_with_tiles(enum scaling scaling, const struct side_block *const *laid, size_t n_sides,
                                  size_t n_blocks, const struct gs_q8_chunk *const *x, size_t n_x,
                                  int8_t *packed, const struct target *target)
{
    (void)scaling, (void)laid, (void)n_sides, (void)n_blocks, (void)x, (void)n_x, (void)packed, (void)target;
    return 0;
}
#endif

/* The rows are laid out, then meet all vectors. */
INLINE void multiply_many(enum format format, const struct row *rows, size_t n_blocks,
                          const struct gs_q8_chunk *const *x, size_t n_x, struct side_block *laid,
                          const struct target *whole)
{
    struct target rest = *whole, *target = &rest;
    size_t n_sides = target->n_rows > SIDE ? 2 : 1;
    const struct side_block *sides[2] = {laid, laid + n_blocks};
    struct exponents seen = {_mm512_set1_epi32(255), _mm512_setzero_si512()};
    for (size_t s = 0; s < n_sides; s++)
        lay_side(format, rows + s * SIDE, n_blocks, laid + s * n_blocks, &seen);
    struct ahead ahead = plan_ahead(format, rows, target->n_rows, n_blocks, n_x);
    enum scaling scaling = format == Q8_0 ? MULTIPLIED : may_add(&seen, x, n_x, n_blocks) ? ADDED : POWERS;
    size_t done = multiply_with_tiles(scaling, sides, n_sides, n_blocks, x, n_x,
                                      (int8_t *)(laid + n_sides * n_blocks), target);
    x += done;
    n_x -= done;
    rest.out += done * rest.stride;
    if (scaling == MULTIPLIED && n_sides == 2)
        multiply_tile(MULTIPLIED, sides, 2, n_blocks, x, n_x, target, &ahead);
    else if (scaling == MULTIPLIED)
        multiply_tile(MULTIPLIED, sides, 1, n_blocks, x, n_x, target, &ahead);
    else if (scaling == ADDED && n_sides == 2)
        multiply_tile(ADDED, sides, 2, n_blocks, x, n_x, target, &ahead);
    else if (n_sides == 2)
        multiply_tile(POWERS, sides, 2, n_blocks, x, n_x, target, &ahead);
    else
        multiply_tile(POWERS, sides, 1, n_blocks, x, n_x, target, &ahead);
}

/* ---------------------------------------------------------------- both */

#define SHORT_BLOCKS 16 /* of a row, which are quickly laid out */

/* Does laying the rows out not pay? */
INLINE bool are_few(size_t n_blocks, size_t n_x)
{
    return n_x <= 1 || (n_x == 2 && n_blocks > SHORT_BLOCKS);
}

INLINE void multiply(enum format format, const struct row *rows, size_t n, const struct gs_q8_chunk *const *x,
                     size_t n_x, void *work, const struct target *target)
{
    if (are_few(n / 32, n_x)) {
        struct group *groups = work;
        for (size_t t = 0; t < n_x; t++) {
            lay_groups(format, x[t], n / 32, groups);
            for (size_t r = 0; r < target->n_rows; r += SIDE) {
                size_t left = target->n_rows - r;
                dot_rows(format, rows + r, left < SIDE ? left : SIDE, n / 32, x[t], groups, target->factor,
                         target->out + t * target->stride + r);
            }
        }
        return;
    }
    multiply_many(format, rows, n / 32, x, n_x, work, target);
}

void GS_VARIANT(gs_mxfp4_q8)(const struct gs_mxfp4_row *rows, size_t n_rows, size_t n,
                             const struct gs_q8_chunk *const *x, size_t n_x, void *work, float *out,
                             size_t stride)
{
    struct row padded[GS_FAST_TILE_ROWS];
    struct target target = {0.5f, out, stride, n_rows};
    for (size_t r = 0; r < GS_FAST_TILE_ROWS; r++) {
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
    struct row padded[GS_FAST_TILE_ROWS];
    struct target target = {1.0f, out, stride, n_rows};
    for (size_t r = 0; r < GS_FAST_TILE_ROWS; r++)
        padded[r] = (struct row){rows[r < n_rows ? r : n_rows - 1].blocks, NULL};
    multiply(Q8_0, padded, n, x, n_x, work, &target);
}
