/* What tiles with AVX-512 share: registers transposed, and the next tile asked for. */
#ifndef GS_BACKEND_CPU_KERNELS_TILE_AVX512_H
#define GS_BACKEND_CPU_KERNELS_TILE_AVX512_H

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

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

/* What is asked for, a piece each turn, while a tile is multiplied: the rows of the next one. */
struct ahead {
    const char *at[2]; /* weights, scales */
    size_t n_lines[2]; /* left */
    size_t piece[2];   /* lines */
};

INLINE void prefetch_piece(struct ahead *ahead)
{
    for (int i = 0; i < 2; i++) {
        size_t n = ahead->piece[i] < ahead->n_lines[i] ? ahead->piece[i] : ahead->n_lines[i];
        for (size_t k = 0; k < n; k++, ahead->at[i] += 64)
            _mm_prefetch(ahead->at[i], _MM_HINT_T1);
        ahead->n_lines[i] -= n;
    }
}

#endif
