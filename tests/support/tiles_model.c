/*
 * The products for AMX with the tile instructions as a model in C (src/backend/cpu/kernels/tiles.h): what is
 * around the instructions runs on every processor that has the rest of the set.
 */
#include "tests/support/kernel_cases.h"

#if defined(__x86_64__)
#define GS_TILES_MODEL
#define GS_ISA tiles_model
#include "backend/cpu/kernels/fast_int8.c"

const struct gs_fast_kernels kernel_tiles_model = {
    .isa = "amx, modelled",
    .mxfp4_q8 = gs_mxfp4_q8_tiles_model,
    .q8_0_q8 = gs_q8_0_q8_tiles_model,
};
#else
const struct gs_fast_kernels kernel_tiles_model = {0};
#endif
