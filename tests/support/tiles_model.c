/*
 * The products for AMX, their source compiled once more with the tile intrinsics emulated: all of it runs on
 * every processor that has the rest of the set. What the processor would stop at stops the process.
 */
#include "tests/support/kernel_cases.h"

#if defined(__x86_64__)
#include "tests/support/tiles_emulated.h"

#include <immintrin.h>

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbsud
#define _tile_loadconfig(from)        emulate_load_config(from)
#define _tile_release()               emulate_release()
#define _tile_zero(tile)              emulate_zero(tile)
#define _tile_loadd(tile, from, step) emulate_load(tile, from, step)
#define _tile_stored(tile, to, step)  emulate_store(tile, to, step)
#define _tile_dpbsud(sums, a, b)      emulate_dot(TILE_DOT_SU, sums, a, b)

#define GS_TILES
#define GS_ISA tiles_model
#include "backend/cpu/kernels/fast_int8.c"

const struct gs_fast_kernels kernel_tiles_model = {
    .isa = "amx, emulated",
    .mxfp4_q8 = gs_mxfp4_q8_tiles_model,
    .q8_0_q8 = gs_q8_0_q8_tiles_model,
};
#else
const struct gs_fast_kernels kernel_tiles_model = {0};
#endif
