/*
 * Many vectors with AMX: 16 of them meet a block of 16 rows in one tile product. The rows are laid out as for
 * int8_avx512.h, which includes this; scales, and the order of the sums, are the same, and so are the bits.
 * Compared with the others where the instructions are emulated only (tests/kernels/test_amx.c).
 */
#include "backend/cpu/kernels/tiles.h"

#define TILE_VECTORS   16
#define TILE_LEAST     5 /* vectors for which a tile pays */
#define TILE_BYTES     (TILE_VECTORS * 32)
#define TILE_DOT_BYTES (TILE_VECTORS * SIDE * 4)

/* Vectors as tiles take them: [block][16][32], the two halves of a block one after the other. */
INLINE void pack_vectors(const struct gs_q8_chunk *const *x, size_t n_blocks, int8_t *packed)
{
    for (size_t t = 0; t < TILE_VECTORS; t++) {
        for (size_t block = 0; block < n_blocks; block++) {
            const int8_t *from = x[t][block / 4].q + block % 4 * 16;
            int8_t *to = packed + block * TILE_BYTES + t * 32;
            _mm_storeu_si128((void *)to, _mm_loadu_si128((const void *)from));
            _mm_storeu_si128((void *)(to + 16), _mm_loadu_si128((const void *)(from + 64)));
        }
    }
}

/* sums[t] += block of a side times vector t. */
INLINE void add_tile(enum scaling scaling, const struct side_block *side, const struct gs_q8_chunk *const *x,
                     size_t block, int32_t (*dots)[SIDE], __m512 sums[TILE_VECTORS])
{
    const unsigned bits = (unsigned)offset_bits(scaling == MULTIPLIED ? Q8_0 : MXFP4);
#pragma GCC unroll 16
    for (size_t t = 0; t < TILE_VECTORS; t++) {
        const struct gs_q8_chunk *chunk = &x[t][block / 4];
        __m512i shift = _mm512_slli_epi32(_mm512_set1_epi32(chunk->sum[block % 4 * 4]), bits);
        __m512i dot = _mm512_sub_epi32(_mm512_loadu_si512(dots[t]), shift);
        __m512 scale = join_scales(scaling, side->scales, chunk->scale[block % 4 * 4]);
        sums[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, sums[t]);
    }
}

/* out [n_x][stride] = a side times 16 vectors, of which n_x are wanted. */
INLINE void multiply_side_tiles(enum scaling scaling, const struct side_block *side, size_t n_blocks,
                                const struct gs_q8_chunk *const *x, size_t n_x, int8_t *packed,
                                const struct target *target, size_t first_row, float *out)
{
    int32_t(*dots)[SIDE] = (int32_t(*)[SIDE])(void *)(packed + n_blocks * TILE_BYTES);
    __m512 totals[TILE_VECTORS];
    for (size_t turn = 0; turn < TURNS; turn++) {
        __m512 sums[TILE_VECTORS];
        for (size_t t = 0; t < TILE_VECTORS; t++)
            sums[t] = _mm512_setzero_ps();
        for (size_t block = turn; block < n_blocks; block += TURNS, side++) {
            tiles_load_vectors(packed + block * TILE_BYTES);
            tiles_load_weights(side->weights);
            tiles_multiply();
            tiles_store(dots);
            add_tile(scaling, side, x, block, dots, sums);
        }
        for (size_t t = 0; t < TILE_VECTORS; t++)
            totals[t] = turn == 0 ? sums[t] : _mm512_add_ps(totals[t], sums[t]);
    }
    size_t left = target->n_rows - first_row;
    __mmask16 mask = (__mmask16)(left >= SIDE ? 0xFFFFu : (1u << left) - 1);
    for (size_t t = 0; t < n_x; t++)
        _mm512_mask_storeu_ps(out + t * target->stride + first_row, mask,
                              _mm512_mul_ps(totals[t], _mm512_set1_ps(target->factor)));
}

INLINE void multiply_sides_tiles(enum scaling scaling, const struct side_block *const *laid, size_t n_sides,
                                 size_t n_blocks, const struct gs_q8_chunk *const *x, size_t n_x,
                                 int8_t *packed, const struct target *target, float *out)
{
    for (size_t s = 0; s < n_sides; s++)
        multiply_side_tiles(scaling, laid[s], n_blocks, x, n_x, packed, target, s * SIDE, out);
}

/* As many vectors as tiles pay for, 16 at a time; how many that were. `packed` is aligned to 64 bytes. */
INLINE size_t multiply_with_tiles(enum scaling scaling, const struct side_block *const *laid, size_t n_sides,
                                  size_t n_blocks, const struct gs_q8_chunk *const *x, size_t n_x,
                                  int8_t *packed, const struct target *target)
{
    size_t done = 0;
    if (n_x < TILE_LEAST)
        return 0;
    tiles_begin();
    while (n_x - done >= TILE_LEAST) {
        const struct gs_q8_chunk *vectors[TILE_VECTORS];
        size_t n = n_x - done < TILE_VECTORS ? n_x - done : TILE_VECTORS;
        float *out = target->out + done * target->stride;
        for (size_t t = 0; t < TILE_VECTORS; t++) /* those past the end are the last one again */
            vectors[t] = x[done + (t < n ? t : n - 1)];
        pack_vectors(vectors, n_blocks, packed);
        if (scaling == MULTIPLIED)
            multiply_sides_tiles(MULTIPLIED, laid, n_sides, n_blocks, vectors, n, packed, target, out);
        else if (scaling == ADDED)
            multiply_sides_tiles(ADDED, laid, n_sides, n_blocks, vectors, n, packed, target, out);
        else
            multiply_sides_tiles(POWERS, laid, n_sides, n_blocks, vectors, n, packed, target, out);
        done += n;
    }
    tiles_end();
    return done;
}
