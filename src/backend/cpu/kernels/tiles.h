/*
 * AMX: the tile registers of one product, 16 vectors of signed bytes times 16 rows of unsigned ones, 32 deep.
 * Tile 0 is int32 [16 vectors][16 rows], tile 1 int8 [16 vectors][32], tile 2 uint8 [8][16 rows][4].
 *
 * The registers are the thread's; the compiler is told where memory meets them. Tests compile this file with
 * the intrinsics defined anew (tests/support/tiles_model.c), so only _tile_... are used.
 */
#ifndef GS_BACKEND_CPU_KERNELS_TILES_H
#define GS_BACKEND_CPU_KERNELS_TILES_H

#include <immintrin.h>
#include <stdint.h>

#define TILES_INLINE static inline __attribute__((always_inline))

/* What LDTILECFG reads, all 64 bytes of it. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16]; /* of a row */
    uint8_t rows[16];
};

/* Static: GCC's intrinsic names but the first 8 bytes as read, so those of a local could be left unwritten.
 */
static const struct tile_config tile_config = {.palette = 1, .bytes = {64, 32, 64}, .rows = {16, 16, 8}};

#define MEMORY_IS_USED() __asm__ volatile("" ::: "memory")

TILES_INLINE void tiles_begin(void)
{
    _tile_loadconfig(&tile_config);
}

TILES_INLINE void tiles_end(void)
{
    _tile_release();
}

TILES_INLINE void tiles_load_vectors(const int8_t *from)
{
    MEMORY_IS_USED();
    _tile_loadd(1, from, 32);
}

TILES_INLINE void tiles_load_weights(const void *from)
{
    MEMORY_IS_USED();
    _tile_loadd(2, from, 64);
}

TILES_INLINE void tiles_multiply(void)
{
    _tile_zero(0);
    _tile_dpbsud(0, 1, 2);
}

TILES_INLINE void tiles_store(int32_t (*to)[16])
{
    _tile_stored(0, to, 64);
    MEMORY_IS_USED();
}

#endif
