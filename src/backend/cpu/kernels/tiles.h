/*
 * AMX: the tile registers of one product, 16 vectors of signed bytes times 16 rows of unsigned ones, 32 deep.
 * Tile 0 is int32 [16 vectors][16 rows], tile 1 int8 [16 vectors][32], tile 2 uint8 [8][16 rows][4].
 *
 * With GS_TILES_MODEL the instructions are a model in C, so that tests can run what is around them on any
 * processor: it follows the manual's pseudocode of TILELOADD, TDPBSUD and TILESTORED.
 */
#ifndef GS_BACKEND_CPU_KERNELS_TILES_H
#define GS_BACKEND_CPU_KERNELS_TILES_H

#include <stdint.h>
#include <string.h>

#define TILES_INLINE static inline __attribute__((always_inline))

/* What LDTILECFG reads. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16]; /* of a row */
    uint8_t rows[16];
};

#define TILE_CONFIG                                                                                          \
    {                                                                                                        \
        .palette = 1, .bytes = {64, 32, 64}, .rows = { 16, 16, 8 }                                           \
    }

#if defined(GS_TILES_MODEL)

struct tiles {
    struct tile_config config;
    uint8_t data[3][16][64];
};

TILES_INLINE void tiles_begin(struct tiles *tiles)
{
    *tiles = (struct tiles){.config = TILE_CONFIG};
}

TILES_INLINE void tiles_end(struct tiles *tiles)
{
    memset(tiles, 0, sizeof *tiles);
}

static void model_load(struct tiles *tiles, int tile, const void *from, int64_t stride)
{
    memset(tiles->data[tile], 0, sizeof tiles->data[tile]);
    for (int row = 0; row < tiles->config.rows[tile]; row++)
        memcpy(tiles->data[tile][row], (const char *)from + row * stride, tiles->config.bytes[tile]);
}

TILES_INLINE void tiles_load_vectors(struct tiles *tiles, const int8_t *from)
{
    model_load(tiles, 1, from, 32);
}

TILES_INLINE void tiles_load_weights(struct tiles *tiles, const void *from)
{
    model_load(tiles, 2, from, 64);
}

static void tiles_multiply(struct tiles *tiles)
{
    const struct tile_config *config = &tiles->config;
    memset(tiles->data[0], 0, sizeof tiles->data[0]);
    for (int m = 0; m < config->rows[1]; m++)
        for (int k = 0; k < config->bytes[1] / 4; k++)
            for (int n = 0; n < config->bytes[2] / 4; n++) {
                int32_t sum;
                memcpy(&sum, &tiles->data[0][m][4 * n], sizeof sum);
                for (int i = 0; i < 4; i++)
                    sum += (int8_t)tiles->data[1][m][4 * k + i] * tiles->data[2][k][4 * n + i];
                memcpy(&tiles->data[0][m][4 * n], &sum, sizeof sum);
            }
}

TILES_INLINE void tiles_store(struct tiles *tiles, int32_t (*to)[16])
{
    for (int row = 0; row < tiles->config.rows[0]; row++)
        memcpy(to[row], tiles->data[0][row], tiles->config.bytes[0]);
}

#else

#include <immintrin.h>

/* The registers are the thread's; the compiler is told where memory meets them. */
struct tiles {
    char none;
};

#define MEMORY_IS_USED() __asm__ volatile("" ::: "memory")

TILES_INLINE void tiles_begin(struct tiles *tiles)
{
    const struct tile_config config = TILE_CONFIG;
    (void)tiles;
    MEMORY_IS_USED();
    _tile_loadconfig(&config);
}

TILES_INLINE void tiles_end(struct tiles *tiles)
{
    (void)tiles;
    _tile_release();
}

TILES_INLINE void tiles_load_vectors(struct tiles *tiles, const int8_t *from)
{
    (void)tiles;
    MEMORY_IS_USED();
    _tile_loadd(1, from, 32);
}

TILES_INLINE void tiles_load_weights(struct tiles *tiles, const void *from)
{
    (void)tiles;
    MEMORY_IS_USED();
    _tile_loadd(2, from, 64);
}

TILES_INLINE void tiles_multiply(struct tiles *tiles)
{
    (void)tiles;
    _tile_zero(0);
    _tile_dpbsud(0, 1, 2);
}

TILES_INLINE void tiles_store(struct tiles *tiles, int32_t (*to)[16])
{
    (void)tiles;
    _tile_stored(0, to, 64);
    MEMORY_IS_USED();
}

#endif

#endif
